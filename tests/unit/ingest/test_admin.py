"""The administration of a source: status, backlog, quarantine and reset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from commitlog.errors import (
    BucketNotFound,
    ConfigurationError,
    InputUnreadable,
    NotFound,
    StateMismatch,
)
from commitlog.ingest import IngestAdmin, IngestSettings, Pinned, Quarantine, Slice, sources
from commitlog.stores.local.store import LocalStore
from commitlog.testing import ManualClock
from support.ingest import Bucket, Checkpoint, Engine, state_table


class Site:
    """A source whose files fail to read while their paths are in `bad`."""

    def __init__(self, **settings: Any) -> None:
        self.clock = ManualClock()
        self.store = Bucket(clock=self.clock)
        self.table = state_table()
        self.settings = IngestSettings(source="s", grace=60, unreadable="quarantine", **settings)
        self.checkpoint = Checkpoint()
        self.bad: set[str] = set()
        self.operator = IngestAdmin(self.store, self.table, self.settings, clock=self.clock)

    def drain(self, **options: Any) -> list[str]:
        """Run the query; return path and number of each new record, in order."""
        before = len(self.checkpoint.sink)
        engine = Engine(
            store=self.store,
            table=self.table,
            settings=self.settings,
            clock=self.clock,
            checkpoint=self.checkpoint,
            **options,
        )
        inner = engine.fetch.read

        def read(partition: Any, decode: Any, **rest: Any) -> Any:
            def guarded(pinned: Pinned, slice: Slice) -> Any:
                for number, batch in enumerate(decode(pinned, slice)):
                    if number and slice.file.path in self.bad:
                        raise InputUnreadable("bad", offset=2 * number)
                    yield batch

            return inner(partition, guarded, **rest)

        engine.fetch.read = read  # type: ignore[method-assign]
        engine.drain()
        new = [self.checkpoint.sink[number] for number in range(before, len(self.checkpoint.sink))]
        return [f"{path}{number}" for batch in new for path, _, number in batch]


def test_status_shows_progress() -> None:
    """It has the files handed out, the position of the listing, and the rest of a file."""
    site = Site(max_files=2, max_bytes=4)
    with pytest.raises(NotFound, match="has no state"):
        site.operator.status()
    for path in "abc":
        site.store.put(path, b"12345"[: 5 if path == "c" else 1])
    Engine(
        store=site.store, table=site.table, settings=site.settings, clock=site.clock, splits=True
    ).batch()
    status = site.operator.status()
    assert (status.epoch, status.files, status.bytes, status.cursor) == (1, 2, 2, "b")
    assert (status.sweeps, status.rest, status.known_before) == (0, 0, None)
    without = IngestAdmin(None, site.table, site.settings, clock=site.clock)
    assert without.status() == status
    with pytest.raises(ConfigurationError, match="without a store"):
        without.backlog()


def test_the_backlog_is_the_unread_files() -> None:
    """It is what a query without limits would read, during a listing pass and between two."""
    site = Site(max_files=1, max_bytes=3)
    now = site.clock.epoch()
    for number, path in enumerate("abcd"):
        site.store.put_at(path, b"12345", now - 1000 * number)
    engine = Engine(
        store=site.store,
        table=site.table,
        settings=site.settings,
        clock=site.clock,
        splits=True,
    )
    left = 20
    engine.source.initial_offset()
    while True:
        backlog = site.operator.backlog()
        assert backlog.bytes == left
        assert backlog.files == -(-left // 5)
        if not engine.batch():
            break
        assert backlog.oldest is not None and backlog.oldest.file.path == "d"
        left -= sum(each.size for each in engine.checkpoint.slices[len(engine.checkpoint.log) - 1])
    assert left == 0 and backlog.oldest is None
    site.store.put("a", b"x")  # behind the position of the current pass, and between passes
    listed: list[None] = []
    assert site.operator.backlog(listed=lambda: listed.append(None)).files == 1
    assert len(listed) == 4


def test_an_input_that_is_not_mounted_has_no_backlog(tmp_path: Path) -> None:
    """Its listing would be empty, and nothing would seem to wait."""
    site = Site()
    site.drain()
    missing = LocalStore(tmp_path / "in", clock=site.clock)
    operator = IngestAdmin(missing, site.table, site.settings, clock=site.clock)
    for look in (operator.backlog, lambda: list(operator.waiting())):
        with pytest.raises(BucketNotFound, match="mount it"):
            look()


def test_a_quarantined_slice_is_read_again_from_its_failure() -> None:
    """After `retry`, the next epoch has the undelivered records, and no others."""
    site = Site()
    site.store.put("a", b"12345")
    site.store.put("b", b"12345")
    site.bad = {"a", "b"}
    assert site.drain() == ["a0", "a1", "b0", "b1"]
    assert site.operator.status().problems == 2
    assert site.operator.status().problems_by_kind == {"changed": 0, "missing": 0, "unreadable": 2}
    site.bad = {"b"}
    assert [problem.slice.file.path for problem in site.operator.retry("a")] == ["a"]
    assert site.operator.retry("a") == []
    assert site.operator.status().problems == 1
    assert site.operator.backlog().files == 1
    assert site.drain() == ["a2", "a3", "a4"]
    site.operator.retry()
    assert site.drain() == []  # They still cannot be read.
    assert site.operator.status().problems == 1
    site.bad = set()
    site.operator.retry()
    assert site.drain() == ["b2", "b3", "b4"]
    assert site.operator.status().problems == 0
    assert set(site.checkpoint.records.values()) == {1}


def test_a_slice_that_is_retried_twice_is_read_once() -> None:
    """The second retry has no effect, even after the slice was handed out."""
    site = Site()
    site.store.put("a", b"12345")
    site.bad = {"a"}
    site.drain()
    site.bad = set()
    problems = Quarantine(site.table, "s", clock=site.clock)
    (problem,) = problems
    assert problems.retry(problem)
    assert not problems.retry(problem)
    assert site.drain() == ["a2", "a3", "a4"]
    assert not problems.retry(problem)
    assert site.drain() == []


def test_a_retried_slice_keeps_its_bounds_under_new_settings() -> None:
    """A retried slice is not cut, so that no part of it is lost or repeated."""
    site = Site(missing="skip")
    etag = site.store.put_at("a", b"1234567890", site.clock.epoch())
    site.drain(step=lambda what: site.store.delete("a") if what == "read" else None)
    site.store.put_at("a", b"1234567890", site.clock.epoch(), etag=etag)
    site.settings = IngestSettings(source="s", grace=60, slice_bytes=2, max_bytes=3)
    site.operator.retry()
    assert site.drain(splits=True) == [f"a{number}" for number in range(10)]
    assert site.drain(splits=True) == []


def test_a_repeated_batch_does_not_report_a_retried_problem_again() -> None:
    """A retried problem is remembered as long as its epoch may be read again."""
    site = Site()
    site.store.put("a", b"12345")
    site.bad = {"a"}
    site.drain()
    site.operator.retry()
    site.checkpoint.committed = 0  # as if the driver had died before it committed the batch
    site.bad = {"a"}
    site.drain()
    assert [problem.epoch for problem in site.operator.problems()] == [2]


def test_many_quarantined_slices_are_handed_out_in_bounded_epochs() -> None:
    """A retry of many slices respects the limit of an epoch, and each slice is read once."""
    site = Site(max_files=7)
    for number in range(50):
        site.store.put(f"{number:02}", b"123")
    site.bad = {f"{number:02}" for number in range(50)}
    site.drain()
    site.bad = set()
    assert len(site.operator.retry()) == 50
    assert len(site.drain()) == 50
    assert max(len(batch) for batch in site.checkpoint.slices.values()) == 7
    assert len(site.checkpoint.records) == 150
    assert set(site.checkpoint.records.values()) == {1}


def test_retry_removes_old_retried_problems() -> None:
    """A retried problem is removed once its epoch cannot be read again."""
    site = Site()
    site.store.put("a", b"123")
    site.bad = {"a"}
    site.drain()
    site.operator.retry()
    site.bad = set()
    for path in "bcd":
        site.clock.advance(100)
        site.store.put(path, b"1")
        site.drain()
    site.operator.retry()
    assert not [item for item in site.table.scan() if "problem" in str(item["item"])]


def test_the_sources_of_a_table_are_listed() -> None:
    """Each source with state is listed once."""
    site = Site()
    site.store.put("a", b"1")
    site.drain()
    assert sources(site.table) == ["s"]
    site.operator.reset()
    assert sources(site.table) == []


def test_all_slices_to_retry_wait() -> None:
    """There may be more of them than a page of the table holds."""
    site = Site()
    site.store.put("a", b"12345")
    site.drain()
    (slice,) = site.checkpoint.slices[0]
    problems = Quarantine(site.table, "s", clock=site.clock)
    for epoch in range(1, 1003):
        problems.report(epoch, slice, "unreadable", "bad")
    assert len(site.operator.retry()) == 1002
    assert site.operator.backlog().files == 1002


def test_a_retried_slice_is_no_problem_again_while_its_epoch_is_kept() -> None:
    """A restored checkpoint gets the epoch again. A second retry would deliver the slice twice."""
    site = Site(max_files=1)
    site.store.put("a", b"12345")
    site.bad = {"a"}
    site.drain()
    early = Checkpoint(log=site.checkpoint.log[:1])
    site.bad = set()
    site.operator.retry()
    for path in "bcd":
        site.store.put(path, b"1")
    site.drain()
    assert site.operator.retry() == []
    site.bad, site.checkpoint = {"a"}, early
    with pytest.raises(StateMismatch, match="epoch 2"):
        site.drain()
    assert list(site.operator.problems()) == []
