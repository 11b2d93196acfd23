"""Rewrites of a log from the table, while other clients rewrite or restore the same namespace."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from threading import Event, Thread
from typing import Any

import pytest

from commitlog.errors import Conflict, Fenced
from commitlog.namespace import Data, Namespace
from commitlog.namespace.partitioned.dataset import SerialEngine
from support.namespace import ServiceTable
from support.restore import LAKE, Dies, World, before_requests, fill, records, world


@pytest.fixture
def at() -> World:
    """A namespace with a bit of everything."""
    made = world()
    fill(made.lake, made.clock)
    return made


def check(at: World) -> None:
    """Check that the table owns its log, and can be restored from it."""
    at.lake.write("after", b"")
    assert at.lake.maintenance.fsck(grace=0, objects=True).is_clean
    elsewhere = at.lost()
    at.restorer(elsewhere).restore(read_only=True)
    assert records(elsewhere, at.store) == records(at.table, at.store)


@pytest.mark.parametrize("engine", [None, SerialEngine(partitions=2)], ids=["whole", "partitioned"])
def test_of_two_rewrites_the_one_that_began_last_continues(engine: SerialEngine | None) -> None:
    """One of them ends, between any two requests of the other. Clients can go on in each case."""
    ends: set[tuple[int | None, int]] = set()
    for number in range(1000):
        at = world()
        fill(at.lake, at.clock)
        at.engine = engine
        wire, lake = at.client()
        left, others = iter(range(number)), list[int]()

        def interrupt(
            request: str, at: World = at, left: Any = left, others: list[int] = others
        ) -> None:
            if not others and next(left, None) is None:
                others.append(0)
                others[0] = at.rewrite_log(older_than=0).epoch

        mine: int | None = None
        with pytest.MonkeyPatch.context() as patch:
            before_requests(at, wire, patch, interrupt)
            try:
                mine = at.rewrite_log(lake, older_than=0).epoch
            except Conflict:
                assert others
        check(at)
        if not others:
            break
        ends.add((mine, others[0]))
    assert number > 5
    # It had not looked at the epochs yet; both would claim the same; or the other one claimed the next.
    assert ends == {(2, 1), (None, 1), (None, 2)}


def test_a_delayed_rewrite_does_not_fence_a_table_that_was_restored_meanwhile() -> None:
    """It has looked at the log before the restore, and claims the epoch after it."""
    for number in range(1000):
        at = world()
        fill(at.lake, at.clock)
        wire, lake = at.client()
        left, restored = iter(range(number)), at.lost()
        restored.url = "memory://restored"
        epochs: list[int] = []

        def interrupt(
            request: str,
            at: World = at,
            left: Any = left,
            restored: ServiceTable = restored,
            epochs: list[int] = epochs,
        ) -> None:
            if not epochs and next(left, None) is None:
                epochs.append(0)
                epochs[0] = at.restorer(restored).restore().epoch

        with pytest.MonkeyPatch.context() as patch:
            before_requests(at, wire, patch, interrupt)
            with contextlib.suppress(Conflict, Fenced):
                at.rewrite_log(lake, older_than=0)
        if not epochs:
            break
        there = Namespace(restored, at.store, LAKE, clock=at.clock, log=at.log)
        there.write("after", b"")
        assert there.read("after") == b""
    assert number > 5


def test_a_rewrite_waits_for_changes_that_another_one_has_let_in(at: World) -> None:
    """Another rewrite ends after this one has read the metadata; a change in its epoch is under way."""
    late: list[Callable[[], object]] = []

    def delay(what: str, perform: Callable[[], object]) -> None:
        if what == "transact":
            late.append(perform)
            raise Dies
        perform()

    slow, other = at.client()
    slow.step = delay
    with pytest.raises(Dies):
        at.rewrite_log(other, older_than=0)
    end = late.pop()

    def interrupt(request: str) -> None:
        if request == "log/epochs/000000000002.json":
            end()
            theirs, client = at.client()
            theirs.step = delay
            with pytest.raises(Dies):
                client.write("late", b"1")

    def arrive(_seconds: float) -> None:
        at.clock.advance(60)
        while late:
            late.pop()()

    wire, lake = at.client()
    with pytest.MonkeyPatch.context() as patch:
        before_requests(at, wire, patch, interrupt)
        patch.setattr(at.clock, "sleep", arrive)
        assert at.rewrite_log(lake, older_than=60).epoch == 2
        arrive(0)
    assert lake.exists("late")
    check(at)


def test_a_table_that_a_restore_is_removing_is_not_saved(at: World) -> None:
    """A restore that claimed its epoch before removes records while the rewrite reads them, and dies.

    Another restore still returns all records.
    """
    expected = records(at.table, at.store)
    theirs, _ = at.client()
    wire, lake = at.client()
    begun, go_on, over = Event(), Event(), Event()

    def pause(what: str, perform: Callable[[], object]) -> None:
        number = theirs.requests["transact"]
        if what == "transact" and number == 2:  # the first removal; the table and the epoch are claimed
            begun.set()
            assert go_on.wait(60)
        if what == "transact" and number == 5:  # all are removed
            raise Dies
        perform()

    def restore() -> None:
        try:
            at.restorer(theirs).restore(replace=True)
        except Dies:
            over.set()

    thread = Thread(target=restore)
    scans = 0

    def before(request: str) -> None:
        nonlocal scans
        if request != "scan":
            return
        scans += 1
        if scans == 2:  # after the rewrite claimed an epoch
            go_on.set()
            assert over.wait(60)

    theirs.step = pause
    thread.start()
    assert begun.wait(60)
    with pytest.MonkeyPatch.context() as patch:
        before_requests(at, wire, patch, before)
        with pytest.raises(Conflict):
            at.rewrite_log(lake, older_than=0)
    thread.join()
    assert scans == 2
    assert [item["place"] for item in at.table.scan()] == ["lake/r/restore"]
    elsewhere = at.lost()
    at.restorer(elsewhere).restore()
    assert records(elsewhere, at.store) == expected


def test_all_threads_of_a_client_go_on_after_a_rewrite(
    at: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them finds the new epoch while the change of another is refused: that is sent again."""
    _, lake = at.client()
    lake.describe()
    at.rewrite_log(older_than=0)
    original, others = at.store.begin_head, [lambda: lake.make_directory("theirs")]

    def begin_head(path: str) -> Any:
        found = original(path)
        if path == "log/epochs/000000000001.json" and others:
            others.pop()()
        return found

    monkeypatch.setattr(at.store, "begin_head", begin_head)
    lake.make_directory("mine")
    assert not others
    assert lake.exists("mine") and lake.exists("theirs")
    check(at)


def change_in_bulk(lake: Namespace) -> None:
    """Link many files."""
    lake.bulk_link("empty", {"linked": lake.upload(b"1")})


def empty_the_trash(lake: Namespace) -> None:
    """Empty the trash, completely."""
    report = lake.maintenance.empty_trash()
    assert report.files and not report.failed


def synchronise(lake: Namespace) -> None:
    """Save the state of a bound directory."""
    assert lake.bindings.sync("bound").files == 1


def prune(lake: Namespace) -> None:
    """Remove a file whose object is gone; the first call reports what it left."""
    assert "repeat it" in dict(lake.bindings.prune("linked").failed)[lake.stat("linked/1").id]
    report = lake.bindings.prune("linked")
    assert report.files == 1 and not report.failed


@pytest.mark.parametrize("call", [change_in_bulk, empty_the_trash, synchronise, prune])
def test_clients_go_on_after_a_rewrite(at: World, call: Callable[[Namespace], None]) -> None:
    """They know the earlier epoch, and find the new one with their first change of any kind."""
    at.lake.bindings.bind("raw/", "bound")
    linked = at.store.put("others/1", b"1")
    at.lake.link("linked/1", Data(path="others/1", size=1, etag=linked.etag, own=False))
    at.store.delete("others/1")
    _, lake = at.client()
    lake.describe()
    at.rewrite_log(older_than=0)
    at.store.put("raw/1", b"1")
    call(lake)
    at.lake.bindings.prune("linked")
    check(at)
