"""The counters of a source, which the driver has without requests."""

from __future__ import annotations

import json

import pytest

from commitlog.errors import Unavailable
from commitlog.ingest import Counters, Ingest, IngestSettings, Quarantine
from commitlog.testing import ManualClock
from support.ingest import Bucket, Engine, state_table


def test_counters_describe_each_call() -> None:
    """They have the epoch, its files and bytes, the totals, the listed objects, and `caught_up`."""
    clock = ManualClock()
    store, table = Bucket(clock=clock), state_table()
    settings = IngestSettings(source="s", max_files=2, slice_bytes=2)
    engine = Engine(store=store, table=table, settings=settings, clock=clock, splits=True)
    for path, body in {"a": b"12345", "b": b"1", "c": b"12"}.items():
        store.put(path, body)
    reported = []
    for _ in range(3):
        engine.batch()
        reported.append(engine.source.counters())
    first, second, idle = reported
    assert (first.source, first.epoch, first.files, first.bytes) == ("s", 1, 2, 6)
    assert (first.epoch_files, first.epoch_bytes, first.epoch_slices) == (2, 6, 4)
    assert (first.listed, first.caught_up) == (2, False)
    assert (second.epoch, second.files, second.bytes, second.listed) == (2, 3, 8, 1)
    assert (second.epoch_files, second.epoch_bytes, second.epoch_slices) == (1, 2, 1)
    assert second.caught_up and second.revision > first.revision
    assert (idle.epoch, idle.files, idle.listed, idle.caught_up) == (2, 3, 3, True)
    assert (idle.epoch_files, idle.epoch_bytes, idle.epoch_slices) == (0, 0, 0)


def test_an_epoch_from_the_state_has_the_same_counters() -> None:
    """A process that finds the epoch in the state has the same counters, but has listed no object."""
    clock = ManualClock()
    store, table = Bucket(clock=clock), state_table()
    settings = IngestSettings(source="s")
    store.put("a", b"123")
    one, other = (Ingest(store, table, settings, clock=clock) for _ in range(2))
    start = one.initial_offset()
    one.latest_offset(start)
    other.latest_offset(start)
    mine, found = one.counters(), other.counters()
    assert (found.listed, found.caught_up) == (0, False)
    assert (mine.listed, mine.caught_up) == (1, True)
    names = ("revision", "epoch", "files", "bytes", "epoch_files", "epoch_bytes", "epoch_slices")
    for name in names:
        assert getattr(mine, name) == getattr(found, name), name


def test_problems_are_counted_once_a_minute() -> None:
    """Retried problems do not count. Within a minute, the table is not read."""
    clock = ManualClock()
    store, table = Bucket(clock=clock), state_table()
    settings = IngestSettings(source="s")
    for path in "ab":
        store.put(path, b"123")
    engine = Engine(store=store, table=table, settings=settings, clock=clock)
    engine.batch()
    problems = Quarantine(table, "s", clock=clock)
    assert engine.source.counters().problems == 0
    for slice in engine.checkpoint.slices[0]:
        problems.report(1, slice, "unreadable", "bad")
    Quarantine(table, "t", clock=clock).report(1, slice, "unreadable", "bad")
    clock.advance(59)
    assert engine.source.counters().problems == 0
    clock.advance(1)
    assert engine.source.counters().problems == 2
    engine.batch()
    assert engine.source.counters().problems == 2  # a call in between keeps the number
    assert problems.retry(next(iter(problems)))
    clock.advance(60)
    assert engine.source.counters().problems == 1


def test_a_failed_count_of_problems_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The previous number is used, and the next attempt is a minute later."""
    clock = ManualClock()
    source = Ingest(Bucket(clock=clock), state_table(), IngestSettings(source="s"), clock=clock)
    asked: list[int] = []

    def fail(most: int) -> int:
        asked.append(most)
        raise Unavailable("not now")

    monkeypatch.setattr(source.state, "problems", fail)
    assert source.counters().problems == 0
    source.counters()
    assert len(asked) == 1


def test_counters_are_stored_in_an_offset() -> None:
    """They round-trip through JSON. Unknown counters are ignored, and other JSON has no counters."""
    counters = Counters(source="s", epoch=3, seconds=0.25, caught_up=True)
    value = json.loads(json.dumps(counters.to_json({"epoch": 3, "source": "s"})))
    assert value["epoch"] == 3
    assert Counters.from_json(value) == counters
    value["counters"]["colour"] = "red"
    assert Counters.from_json(value) == counters
    others: list[object] = [None, 3, "x", [], {}, {"counters": 3}, {"counters": {}}, {"epoch": 3}]
    for other in others:
        assert Counters.from_json(other) is None
