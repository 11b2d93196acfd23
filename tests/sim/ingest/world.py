"""Worlds of ingest.

An `IngestWorld` has one bucket, one state table and one checkpoint, which no fault affects. Its nodes
are drivers of one query (`support.ingest.Engine`); a failed query is started again. At the end of a run,
`IngestWorld.judge` repairs unreadable objects and runs the query to its end without faults. Then each
byte of each version that was not overwritten must have been delivered exactly once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

from commitlog._util.retry import Backoff
from commitlog.commit import ConditionalStore
from commitlog.errors import InputUnreadable
from commitlog.ingest import Cleaner, IngestAdmin, IngestSettings, Pinned, Slice
from commitlog.testing import ManualClock
from commitlog.testing.sim import (
    Choices,
    Fault,
    Node,
    SimulatedStore,
    SimulatedTable,
    Simulation,
    World,
    store_state,
    table_state,
)
from sim.ingest.actions import Upload, retry_problems, run_cleaner, run_query
from sim.ingest.judge import check_delivered_once, drain, missing_bytes
from sim.ingest.queue import Message, SimulatedQueue, created
from sim.nodes import ACCURATE, ClockSkew, check_ended, fixed_backoff, world_builder
from support.ingest import Bucket, Checkpoint, Engine, Record, records_of, state_table
from support.library import GetClass, original

__all__ = ["IngestWorld", "world_of"]

_NONE: Mapping[str, int] = MappingProxyType({})

_STEPS = (Fault.PAUSED, Fault.CRASHED)


class IngestWorld:
    """One source, its query, and the drivers that run it.

    Args:
        simulation: the simulation, with its faults and latencies.
        nodes: the clock of each node, by the node's name.
        settings: the settings of the source.
        uploads: the objects that are put into the bucket.
        messages: times and paths of the notifications that are sent. Without any, the drivers use no
            queue.
        splits: whether files can be read in ranges.
        store: the clock of the store.
        backoff: returns the retry policy of a node, given its name.
        broken: the first byte of each path that cannot be read while the drivers run.
        code: returns the class that replaces a class of the library.

    Attributes:
        checkpoint: the checkpoint of the query.
        outcomes: the number of calls with each outcome.
        current: the etag of the current version of each path.
        sizes: the size of each version, by path and etag.
        missed: errors about bytes that a finite run has missed.
    """

    def __init__(
        self,
        simulation: Simulation,
        *,
        nodes: Mapping[str, ClockSkew],
        settings: IngestSettings,
        uploads: Sequence[Upload],
        messages: Sequence[tuple[float, str]] = (),
        splits: bool = False,
        store: ClockSkew = ACCURATE,
        backoff: Callable[[str], Backoff] = fixed_backoff,
        broken: Mapping[str, int] = _NONE,
        code: GetClass = original,
    ) -> None:
        self.simulation = simulation
        self._broken = dict(broken)
        self._code = code
        self.missed: list[str] = []
        self.settings = settings
        self.splits = splits
        self.checkpoint = Checkpoint()
        self.outcomes: Counter[str] = Counter()
        self._backoff = backoff
        self._clock = simulation.server_clock(rate=store.rate, offset=store.offset)
        self.bucket = Bucket(clock=self._clock, new_id=simulation.new_id)
        self.table = state_table(self._clock)
        self.current: dict[str, str] = {}
        self.sizes: dict[tuple[str, str], int] = {}
        for number, upload in enumerate(uploads):
            if upload.at:
                simulation.after(upload.at, f"upload {number}", lambda upload=upload: self._put(upload))
            else:
                self._put(upload)
        # Notifications name the bucket that a store's URL names.
        self.bucket.url = "memory://landing"
        self._notifies = bool(messages)
        self.messages: list[Message] = []
        for number, (at, path) in enumerate(messages):
            simulation.after(
                at,
                f"message {number} about {path}",
                lambda number=number, path=path: self.messages.append(created(number, path)),
            )
        self.nodes: dict[str, Node] = {
            name: simulation.node(name, rate=skew.rate, offset=skew.offset)
            for name, skew in nodes.items()
        }
        simulation.add_state(store_state(self.bucket))
        simulation.add_state(table_state(self.table))
        simulation.add_state(self._state)

    def start(
        self,
        name: str,
        *,
        batches: int,
        every: float = 1.0,
        lives: int = 3,
        after: float = 0.0,
        finite: bool = False,
    ) -> None:
        """Start the query on the node of that name.

        Args:
            name: the name of the node.
            batches: number of batches in each run of the query.
            every: seconds between two batches, and before the restart of a query that failed.
            lives: maximum number of runs.
            after: the start time in seconds.
            finite: whether a run ends when it has read all objects that existed at its start.
        """
        program = run_query(self, name, batches=batches, every=every, lives=lives, finite=finite)
        self.nodes[name].start(program, restart=program, after=after)

    def start_cleaner(
        self, name: str, *, steps: int, every: float = 1.0, most: int = 1, after: float = 0.0
    ) -> None:
        """Start a cleaner on the node of that name.

        Args:
            name: the name of the node.
            steps: number of its steps.
            every: seconds between two steps.
            most: most files of a step.
            after: the start time in seconds.
        """
        program = run_cleaner(self, name, steps=steps, every=every, most=most)
        self.nodes[name].start(program, restart=program, after=after)

    def start_operator(self, name: str, *, retry_at: float) -> None:
        """Start an operator on the node of that name, who lets all problems be read again once.

        Args:
            name: the name of the node.
            retry_at: the time in seconds.
        """
        program = retry_problems(self, name)
        self.nodes[name].start(program, restart=program, after=retry_at)

    def judge(self) -> Counter[str]:
        """Raise `AssertionError` if a run that has ended is wrong; return `outcomes`."""
        check_ended(self.nodes)
        check_delivered_once(self.checkpoint)
        assert not self.missed, f"a finite run has ended, and {self.missed[0]}"
        last = Engine(
            store=self.bucket,
            table=self.table,
            settings=self.settings,
            clock=ManualClock(),
            checkpoint=self.checkpoint,
            splits=self.splits,
            decode=self._decode,
            code=self._code,
        )
        self._drain(last)
        if self._broken:
            self._broken.clear()
            self._code(IngestAdmin)(self.bucket, self.table, self.settings, clock=ManualClock()).retry()
            self._drain(last)
        for missing in self.missing(self.current):
            raise AssertionError(missing)
        return self.outcomes

    # for drivers

    def engine(self, name: str) -> Engine:
        """Return the query's engine in a new process of the node of that name."""
        node = self.nodes[name]

        def step(what: str) -> None:
            node.point(f"step {what}", _STEPS)
            kept = self.checkpoint
            node.note(f"{what}: {len(kept.log)} begun, {kept.committed} done, {sorted(kept.sink)} kept")

        return Engine(
            store=SimulatedStore(node, self.bucket),
            table=SimulatedTable(node, self.table),
            settings=self.settings,
            clock=node.clock,
            checkpoint=self.checkpoint,
            splits=self.splits,
            step=step,
            backoff=self._backoff(name),
            new_id=node.new_id,
            decode=self._decode,
            code=self._code,
            notifications=SimulatedQueue(node, self.messages) if self._notifies else None,
        )

    def cleaner(self, name: str) -> Cleaner:
        """Return a cleaner in a new process of the node of that name."""
        node = self.nodes[name]
        store = ConditionalStore(
            SimulatedStore(node, self.bucket),
            mode="native",
            clock=node.clock,
            backoff=self._backoff(name),
            new_id=node.new_id,
        )
        table = SimulatedTable(node, self.table)
        return self._code(Cleaner)(store, table, self.settings, clock=node.clock, new_id=node.new_id)

    def admin(self, name: str) -> IngestAdmin:
        """Return the administration in a new process of the node of that name."""
        node = self.nodes[name]
        table = SimulatedTable(node, self.table)
        return self._code(IngestAdmin)(self.bucket, table, self.settings, clock=node.clock)

    def report(self, node: Node, outcome: str) -> None:
        """Record the outcome of a call."""
        self.outcomes[outcome] += 1
        node.note(outcome)

    def missing(self, versions: Mapping[str, str]) -> list[str]:
        """Return an error for each readable byte of these versions that was not delivered."""
        return missing_bytes(self.checkpoint, versions, self.sizes, self._broken)

    # inside

    def _drain(self, engine: Engine) -> None:
        drain(engine, lambda: check_delivered_once(self.checkpoint), idle=len(self.sizes) + 2)

    def _decode(self, pinned: Pinned, slice: Slice) -> Iterator[list[Record]]:
        bad = self._broken.get(slice.file.path)
        for batch in records_of(pinned, slice):
            good = [record for record in batch if bad is None or record[2] < bad]
            if good:
                yield good
            if len(good) < len(batch):
                raise InputUnreadable("broken", offset=bad)

    def _put(self, upload: Upload) -> None:
        # The name of the request determines the etag.
        name = f"upload {len(self.sizes)} of {upload.path}"
        self.simulation.perform(name, lambda: self._put_now(upload))

    def _put_now(self, upload: Upload) -> None:
        modified = self._clock.epoch() - upload.age
        before = next((etag for path, etag in self.sizes if path == upload.path), None)
        etag = self.bucket.put_at(
            upload.path, bytes(upload.size), modified, etag=before if upload.again else None
        )
        self.current[upload.path] = etag
        self.sizes[upload.path, etag] = upload.size
        self.simulation.note(f"{upload.path} is put: {etag}, {upload.age:g} s old")

    def _state(self) -> Any:
        kept = self.checkpoint
        log = tuple(tuple(offset.values()) for offset in kept.log)
        sink = tuple((number, tuple(records)) for number, records in sorted(kept.sink.items()))
        return log, kept.committed, sink, tuple(self.missed), tuple(self.messages)


def world_of(
    programs: Mapping[str, Mapping[str, Any]],
    *,
    simulation: Callable[[Choices], Simulation] = Simulation,
    clocks: Mapping[str, ClockSkew] | None = None,
    outcomes: Counter[str] | None = None,
    **options: Any,
) -> World:
    """Return a world for `explore`.

    Args:
        programs: the arguments of `IngestWorld.start` for each driver, by the node's name, or those of
            `IngestWorld.start_cleaner`, which have ``steps``, or those of `IngestWorld.start_operator`,
            which have ``retry_at``.
        simulation: makes the simulation, with its faults.
        clocks: the clocks of nodes that are not correct.
        outcomes: a counter to which the outcomes of all completed runs are added.
        options: those of `IngestWorld`, except `nodes`.
    """

    def start(world: IngestWorld, name: str) -> None:
        if "steps" in programs[name]:
            world.start_cleaner(name, **programs[name])
        elif "retry_at" in programs[name]:
            world.start_operator(name, **programs[name])
        else:
            world.start(name, **programs[name])

    return world_builder(
        partial(IngestWorld, **options),
        start,
        nodes=programs,
        simulation=simulation,
        clocks=clocks,
        outcomes=outcomes,
    )
