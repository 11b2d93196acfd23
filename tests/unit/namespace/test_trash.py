"""Emptying the trash ends, and reports why records are left."""

from __future__ import annotations

from attrs import evolve

from commitlog.commit import ConditionalStore
from commitlog.errors import Unavailable
from commitlog.namespace import Namespace, TrashReport
from commitlog.namespace.model.keys import Keys
from commitlog.namespace.write.transaction import SEND_WITHIN
from commitlog.oplog import OperationLog
from commitlog.stores.memory import MemoryStore
from commitlog.tables.api import Write
from commitlog.testing import ManualClock
from support.namespace import QUICK, ServiceTable

LAKE = "lake"


def world() -> tuple[ManualClock, ServiceTable, Namespace]:
    """Return a clock, a table, and a new namespace in it that has a log."""
    clock = ManualClock()
    table, store = ServiceTable(clock=clock), MemoryStore(clock=clock)
    log = OperationLog(ConditionalStore(store, clock=clock), "_commitlog/log", clock=clock)
    lake = Namespace(table, store, LAKE, clock=clock, backoff=QUICK, log=log)
    lake.create()
    return clock, table, lake


def test_emptying_ends_if_several_directories_have_the_same_file() -> None:
    """The removals that fail are reported once, and the call ends."""
    _, table, lake = world()
    lake.write("a/f", b"1")
    file = lake.stat("a/f").entry
    keys = Keys(LAKE)
    for name in "bcd":
        above = lake.make_directory(name)
        table.put(evolve(file, key=keys.entry(above.id, 0, "f")).to_item())
    for name in "abcd":
        lake.delete(name, recursive=True)
    sent = 0
    right = table.transact

    def transact(writes: list[Write], *, token: str | None = None) -> None:
        nonlocal sent
        sent += 1
        assert sent < 50
        right(writes, token=token)

    table.transact = transact  # type: ignore[assignment,method-assign]
    swept = lake.maintenance.empty_trash()
    assert swept.files == 1 and [id for id, _ in swept.failed] == [file.id]
    assert lake.maintenance.empty_trash().failed == swept.failed


def test_a_removal_that_took_too_long_is_reported() -> None:
    """The machine slept; the records stay consistent, and the next call removes them."""
    clock, table, lake = world()
    id = lake.make_directory("d/e").id
    lake.delete("d", recursive=True)
    right = table.transact

    def transact(writes: list[Write], *, token: str | None = None) -> None:
        clock.advance(SEND_WITHIN + 1)
        raise Unavailable("throttled")

    table.transact = transact  # type: ignore[assignment,method-assign]
    failed = dict(lake.maintenance.empty_trash().failed)
    assert failed == {id: "delete a directory: it was not done within 900 s"}
    table.transact = right  # type: ignore[method-assign]
    assert lake.maintenance.empty_trash() == TrashReport(directories=2)
