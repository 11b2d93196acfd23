"""Random histories of a bucket: each version is read exactly once, whatever crashes.

Hypothesis draws puts, overwrites, deletes and late objects, the passage of time, the settings, and the
calls between which a driver dies or another one runs. The comparison covers each byte of each version of
each object.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from attrs import evolve
from hypothesis import HealthCheck, settings, strategies
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from commitlog.errors import InputUnreadable, StateMismatch
from commitlog.ingest import IngestAdmin, IngestSettings, Pinned, Slice
from commitlog.testing import ManualClock
from support.ingest import Bucket, Checkpoint, Engine, Record, Stop, records_of, state_table
from support.selection import examples

GRACE = 60
NAMES = [*"abcdefg", "ü/%2F", "x y"]
STEPS = strategies.integers(0, 12)
OPTIONS = strategies.fixed_dictionaries(
    {
        "max_files": strategies.integers(1, 4),
        "max_bytes": strategies.none() | strategies.integers(1, 9),
        "slice_bytes": strategies.integers(1, 5),
        "ordered": strategies.booleans(),
        "list_limit": strategies.none() | strategies.integers(1, 4),
        "remember": strategies.sampled_from(["window", "everything"]),
    }
)


class Ingests(RuleBasedStateMachine):
    """A bucket, one query with a checkpoint, and processes that start and end."""

    @initialize(options=OPTIONS, splits=strategies.booleans())
    def begin(self, options: dict[str, Any], splits: bool) -> None:
        self.clock = ManualClock()
        self.store = Bucket(clock=self.clock)
        self.table = state_table()
        self.settings = IngestSettings(
            source="s",
            grace=GRACE,
            missing="skip",
            unreadable="quarantine",
            **options,
        )
        self.splits = splits
        self.checkpoint = Checkpoint()
        #: The size of every version, by path and etag.
        self.versions: dict[tuple[str, str], int] = {}
        self.keys = 0
        self.current: dict[str, str] = {}
        self.last_put: dict[str, float] = {}
        #: The first unreadable byte of each broken version, until it is repaired.
        self.broken: dict[str, int] = {}
        self.engine = self.process()

    def process(self) -> Engine:
        """Return a new process of the query."""
        return Engine(
            store=self.store,
            table=self.table,
            settings=self.settings,
            clock=self.clock,
            checkpoint=self.checkpoint,
            splits=self.splits,
            decode=self._decode,
        )

    @property
    def operator(self) -> IngestAdmin:
        """The administration of the source."""
        return IngestAdmin(self.store, self.table, self.settings, clock=self.clock)

    def _decode(self, pinned: Pinned, slice: Slice) -> Iterator[list[Record]]:
        for batch in records_of(pinned, slice):
            bad = self.broken.get(slice.file.etag)
            good = [record for record in batch if bad is None or record[2] < bad]
            if good:
                yield good
            if len(good) < len(batch):
                raise InputUnreadable("broken", offset=bad)

    # bucket

    def _put(self, path: str, size: int, age: int) -> None:
        etag = self.store.put_at(path, bytes(size), self.clock.epoch() - age)
        self.versions[path, etag] = size
        self.current[path] = etag
        self.last_put[path] = self.clock.epoch() - age

    @rule(
        name=strategies.sampled_from(NAMES),
        size=strategies.integers(0, 12),
        age=strategies.integers(0, GRACE),
    )
    def put(self, name: str, size: int, age: int) -> None:
        """Put an object, or overwrite one."""
        self._put(name, size, age)

    @rule(size=strategies.integers(0, 12), age=strategies.integers(0, GRACE))
    def put_next(self, size: int, age: int) -> None:
        """Put an object after all others in key order."""
        self.keys += 1
        self._put(f"k{self.keys:05}", size, age)

    @rule(name=strategies.sampled_from(NAMES), at=strategies.integers(0, 5))
    def put_broken(self, name: str, at: int) -> None:
        """Put an object that cannot be read from some byte on."""
        self._put(name, at + 3, 1)
        self.broken[self.current[name]] = at

    @rule(name=strategies.sampled_from(NAMES))
    def put_again(self, name: str) -> None:
        """Put the same content again, soon enough to count as a repeated upload."""
        if name in self.current and self.last_put[name] >= self.clock.epoch() - GRACE:
            etag, size = self.current[name], self.versions[name, self.current[name]]
            self.store.put_at(name, bytes(size), self.clock.epoch(), etag=etag)
            self.last_put[name] = self.clock.epoch()

    @rule(name=strategies.sampled_from(NAMES))
    def delete(self, name: str) -> None:
        """Delete an object."""
        self.store.delete(name)
        self.current.pop(name, None)

    @rule(seconds=strategies.integers(0, 2 * GRACE))
    def wait(self, seconds: int) -> None:
        """Let time pass."""
        self.clock.advance(seconds)

    # query

    @rule()
    def batch(self) -> None:
        """Run a batch."""
        self.engine.batch()

    @rule()
    def restart(self) -> None:
        """Start again in another process."""
        self.engine = self.process()

    @rule(options=OPTIONS)
    def restart_with_other_settings(self, options: dict[str, Any]) -> None:
        """Start again in another process, with other settings; the grace window stays."""
        self.settings = evolve(self.settings, **options)
        self.engine = self.process()

    @rule(steps=STEPS)
    def die(self, steps: int) -> None:
        """Die after `steps` calls, and start again."""
        left = steps

        def step(what: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Stop

        self.engine.step = step
        try:
            while self.engine.batch():
                pass
        except Stop:
            pass
        self.engine = self.process()

    @rule(steps=STEPS)
    def another_driver_comes_in(self, steps: int) -> None:
        """Run a batch in another process of the same query between two calls of this one."""
        left = steps

        def step(what: str) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                self.process().batch()

        self.engine.step = step
        try:
            self.engine.batch()
        except Stop:
            self.engine = self.process()
        except StateMismatch:  # in the first epoch, or far behind
            self.engine = self.process()
        self.engine.step = lambda what: None

    @rule()
    def finite(self) -> None:
        """Run to the end, as `Trigger.AvailableNow` does."""
        engine = self.process()
        engine.source.finish()
        engine.drain()
        self._all_is_read()

    @rule()
    def drain(self) -> None:
        """Run until a whole pass finds no new files."""
        idle = 0
        while idle < len(self.versions) + 3:
            idle = 0 if self.engine.batch() else idle + 1
        self._all_is_read()
        assert self.operator.backlog().files == 0

    @rule(restart=strategies.booleans())
    def repair(self, restart: bool) -> None:
        """Run to the end, repair the broken versions, and retry them."""
        self.drain()
        self.broken.clear()
        self.operator.retry()
        if restart:
            self.engine = self.process()
        self.drain()
        # Versions that were overwritten meanwhile are problems again, and yield no records.
        assert all(problem.kind != "unreadable" for problem in self.operator.problems())

    # invariants

    def _all_is_read(self) -> None:
        records = self.checkpoint.records
        for path, etag in self.current.items():
            for number in range(min(self.versions[path, etag], self.broken.get(etag, 99))):
                assert records[path, etag, number] == 1, f"byte {number} of {path} {etag} is missing"

    @invariant()
    def nothing_is_read_twice(self) -> None:
        """No byte of any version is delivered twice, and no byte is delivered that no version has."""
        if not hasattr(self, "checkpoint"):
            return
        for (path, etag, number), times in self.checkpoint.records.items():
            assert times == 1, f"byte {number} of {path} {etag} came {times} times"
            assert number < self.versions[path, etag]


Ingests.TestCase.settings = settings(
    max_examples=examples(50, 150),
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


class TestIngests(Ingests.TestCase):  # type: ignore[name-defined,misc]
    """Each version of each object is read exactly once."""


@pytest.mark.campaign
class TestManyIngests(Ingests.TestCase):  # type: ignore[name-defined,misc]
    """Each version is read exactly once, in many more histories."""

    settings = settings(
        max_examples=1_500,
        stateful_step_count=60,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
