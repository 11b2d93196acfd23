"""Versions that were planned, were not there when they were read, and come back: each is read once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from commitlog.errors import InputUnreadable
from commitlog.ingest import File, IngestAdmin, IngestSettings, InputProblem, Pinned, Slice
from commitlog.ingest.epoch_builder import Limits
from commitlog.ingest.planning import Planner
from commitlog.ingest.rows import FileEntry, encoded
from commitlog.ingest.seen_files import Seen, SeenFiles
from commitlog.testing import ManualClock
from support.ingest import Bucket, Checkpoint, Engine, Record, state_table

_GRACE = 60.0
_A, _B = '"a"', '"b"'


class Place:
    """A bucket with one object, and a query that reads it."""

    def __init__(self, **settings: Any) -> None:
        self.clock = ManualClock()
        self.store = Bucket(clock=self.clock)
        self.table = state_table()
        settings = {"source": "s", "grace": _GRACE, "missing": "skip", **settings}
        self.settings = IngestSettings(**settings)
        self.checkpoint = Checkpoint()

    def put(self, etag: str, *, size: int = 4, age: float = 0.0) -> None:
        """Put a version of the object."""
        self.store.put_at("x", bytes(size), self.clock.epoch() - age, etag=etag)

    def query(self, step: Any = lambda what: None, **options: Any) -> Engine:
        """Return a new process of the query; `step` is called before each of its calls."""
        return Engine(
            store=self.store,
            table=self.table,
            settings=self.settings,
            clock=self.clock,
            checkpoint=self.checkpoint,
            step=step,
            **options,
        )

    def batch_without(self, etag: str | None, **options: Any) -> None:
        """Run a batch whose object is overwritten, or deleted, after the batch was planned."""

        def step(what: str) -> None:
            if what == "read" and etag is None:
                self.store.delete("x")
            elif what == "read":
                self.put(str(etag))

        assert self.query(step, **options).batch()

    @property
    def delivered(self) -> list[tuple[str, int]]:
        """Etag and position of each delivered byte."""
        assert set(self.checkpoint.records.values()) <= {1}
        return sorted((etag, number) for _, etag, number in self.checkpoint.records)

    @property
    def open(self) -> int:
        """The number of open problems."""
        return len(list(IngestAdmin(None, self.table, self.settings).problems()))


def whole(*etags: str) -> list[tuple[str, int]]:
    """Return all bytes of these versions."""
    return [(etag, number) for etag in etags for number in range(4)]


@pytest.mark.parametrize("remember", ["window", "everything"])
@pytest.mark.parametrize("between", [_B, None])
@pytest.mark.parametrize("seconds", [0.0, 5.0])
def test_a_version_that_comes_back_is_read(remember: str, between: str | None, seconds: float) -> None:
    """This holds for an object that was overwritten or deleted; also if it has its old time again."""
    place = Place(remember=remember)
    place.put(_A)
    place.batch_without(between)
    assert place.delivered == [] and place.open == 1
    place.clock.advance(seconds)
    place.put(_A)
    place.query().drain()
    assert place.delivered == whole(_A) and place.open == 0
    place.clock.advance(9 * _GRACE)
    place.query().drain()
    assert place.delivered == whole(_A)


def test_a_version_that_comes_back_twice_is_read_once() -> None:
    """It is gone again when it is to be read the second time."""
    place = Place()
    place.put(_A)
    place.batch_without(_B)
    place.put(_A)
    place.batch_without(None)
    assert place.delivered == []
    place.clock.advance(1)
    place.put(_A)
    place.query().drain()
    assert place.delivered == whole(_A) and place.open == 0


def test_a_version_that_comes_back_as_a_new_one_is_read_once() -> None:
    """The other version was read in between, so the first content is a new version of it."""
    place = Place()
    place.put(_A)
    place.batch_without(_B)
    place.query().drain()
    place.put(_A)
    place.query().drain()
    place.query().drain()
    assert place.delivered == whole(_A, _B)


def test_only_the_slices_that_were_left_out_are_read() -> None:
    """The first half was delivered before the object changed."""
    place = Place(max_bytes=2, slice_bytes=2)
    place.put(_A)
    assert place.query(splits=True).batch()
    place.batch_without(_B, splits=True)
    assert place.delivered == whole(_A)[:2]
    place.put(_A)
    place.query(splits=True).drain()
    assert place.delivered == whole(_A)


def test_a_problem_is_remembered_as_long_as_its_file() -> None:
    """It stays when the rows of earlier epochs are forgotten."""
    seen = SeenFiles()
    early, late = files = [File(path, _A, 4, 50.0) for path in ("a", "b")]
    rows = [
        encoded(at, at, [(FileEntry(file, ((0, 4, 0),)), True)])[0] for at, file in enumerate(files, 1)
    ]
    for row in rows:
        seen.add(row)
    slice = Slice(late, 0, 4)
    problem = InputProblem(source="s", epoch=2, slice=slice, kind="missing", error="gone", time=0.0)
    seen.add_problem(problem)
    seen.forget([rows[0].range])
    assert (seen.look(early), seen.look(late)) == (Seen.NO, Seen.YES)
    assert seen.undelivered(late) == [problem]
    seen.forget([rows[1].range])
    assert (seen.look(late), seen.undelivered(late)) == (Seen.NO, [])


def test_an_unreadable_version_is_not_read_again_by_itself() -> None:
    """It is there all the time: an operator decides."""
    place = Place(unreadable="quarantine")
    place.put(_A)

    def decode(_pinned: Pinned, _slice: Slice) -> Iterator[list[Record]]:
        yield []
        raise InputUnreadable("broken")

    query = place.query(decode=decode)
    assert query.drain() == 1 and place.open == 1
    assert query.drain() == 0 and place.query().drain() == 0
    assert place.delivered == [] and place.open == 1


def test_an_object_that_a_notification_names_is_read_when_it_comes_back() -> None:
    """The listing need not reach it."""
    place = Place()
    place.put(_A)
    place.batch_without(None)
    place.put(_A)
    table = place.query().source.state
    state = table.read()
    assert state is not None
    planner = Planner(place.store, place.settings, splits=lambda path: False, clock=place.clock)
    seen = table.update(None, state)
    plan = planner.plan(state, seen, Limits(files=1), notified=["x"], lists=False)
    assert [problem.kind for problem in plan.undelivered] == ["missing"]


def test_a_later_attempt_leaves_out_the_same_slices() -> None:
    """Else it would deliver them, and so would the epoch that their problem leads to."""
    place = Place()
    place.put(_A)

    class Died(Exception):
        pass

    def step(what: str) -> None:
        if what == "read":
            place.put(_B)
        elif what == "sink":
            raise Died

    with pytest.raises(Died):
        place.query(step).batch()
    place.put(_A)
    assert place.query().batch()
    assert place.delivered == []
    place.query().drain()
    assert place.delivered == whole(_A)
