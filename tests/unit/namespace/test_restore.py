"""A namespace whose table is lost is restored from its log."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commitlog.commit import ConditionalStore
from commitlog.errors import (
    AccessDenied,
    AlreadyExists,
    ConfigurationError,
    Conflict,
    CorruptRecord,
    Fenced,
    NotFound,
)
from commitlog.namespace import NAMESPACE_SCHEMA, Namespace, RepairOutcome, Restorer, RestoreReport
from commitlog.namespace.log.checkpoint import merge_states
from commitlog.namespace.log.entries import ItemState, NewestStates, fold
from commitlog.namespace.log.inference import Inference
from commitlog.namespace.model.codec import key_of
from commitlog.namespace.model.keys import NAMESPACES, parse_hash_key
from commitlog.namespace.model.records import Entry
from commitlog.namespace.partitioned.dataset import SerialEngine
from commitlog.oplog import Decision, Operation, OperationLog
from commitlog.stores.memory import MemoryStore
from commitlog.tables.api import Item, Key
from commitlog.tables.open import open_table
from commitlog.testing import ManualClock
from commitlog.urls import parse_table_url
from support.namespace import Auditor, InterceptedTable, ServiceTable, objects_in
from support.restore import (
    KEYS,
    LAKE,
    Dies,
    History,
    World,
    before_requests,
    fill,
    leave_pending,
    records,
    world,
)
from support.selection import examples


@pytest.fixture(params=[False, True], ids=["whole", "partitioned"])
def at(request: pytest.FixtureRequest) -> World:
    """A new namespace, which is restored in one piece or in partitions."""
    made = world()
    if request.param:
        made.engine = SerialEngine(partitions=3, shuffle=Random(0).shuffle)
    return made


def test_a_restore_returns_all_entries(at: World) -> None:
    """Files, empty directories, the trash, shards and attributes are as before."""
    fill(at.lake, at.clock)
    table = at.lost()
    done = at.restorer(table).restore()
    assert at.entries(table) == at.entries(at.table)
    assert (done.files, done.directories, done.lost) == (5, 8, ())
    assert done.records == len(list(table.scan()))
    Auditor(table, LAKE, at.store).audit()
    again = Namespace(table, at.store, LAKE, clock=at.clock, log=at.log)
    assert again.read("over") == b"3"
    assert again.summary() == at.lake.summary()
    assert again.maintenance.empty_trash().files == 1
    again.write("empty/more", b"")


def test_an_existing_namespace_is_refused(at: World) -> None:
    """With `replace` all its records are replaced; other namespaces of the table stay."""
    fill(at.lake, at.clock)
    with pytest.raises(AlreadyExists, match="to replace it"):
        at.restorer(at.table).restore()
    before = at.entries(at.table)
    foreign: Item = {"place": "lake/g/nobody/0", "name": "-", "shards": 1, "change_id": "w"}
    at.table.put(foreign)
    neighbour = Namespace(at.table, at.store, "lake2", clock=at.clock)
    neighbour.create()
    at.restorer(at.table).restore(replace=True)
    assert {key: entry for key, entry in at.entries(at.table).items() if key in before} == before
    assert at.table.get(Key("lake/g/nobody/0", "-")) is None
    assert neighbour.summary().directories == 1


def test_records_that_the_log_does_not_have_stay(at: World) -> None:
    """A restore does not continue in a table with records from elsewhere."""
    fill(at.lake, at.clock)
    table = at.lost()
    changed = at.lake.stat("over").entry
    table.put({**changed.to_item(), "version": 77})
    with pytest.raises(AlreadyExists, match="another record"):
        at.restorer(table).restore()
    item = table.get(changed.key)
    assert item is not None and item["version"] == 77


def test_a_restore_can_be_interrupted_at_any_request(at: World) -> None:
    """Until its end the namespace does not exist; a repeated call has the result of a single one."""
    fill(at.lake, at.clock)
    whole = at.lost()
    at.restorer(whole).restore()
    wire = InterceptedTable(whole)
    at.restorer(wire).restore(replace=True)
    for last in range(wire.requests["put"]):
        table = at.lost()
        wire, left = InterceptedTable(table), [last]

        def step(what: str, perform: Callable[[], object]) -> None:
            if what == "put":
                if not left[0]:  # noqa: B023
                    raise Dies
                left[0] -= 1  # noqa: B023
            perform()

        wire.step = step
        with pytest.raises(Dies):
            at.restorer(wire).restore()
        with pytest.raises(NotFound):
            Namespace(table, at.store, LAKE, clock=at.clock).stat("")
        with pytest.raises(AlreadyExists, match="restore it"):
            Namespace(table, at.store, LAKE, clock=at.clock, log=at.log).create()
        at.restorer(table).restore()
        assert without_metadata(table) == without_metadata(whole)


@pytest.mark.parametrize("replace", [False, True])
def test_a_delayed_restore_harms_no_namespace_that_was_restored_meanwhile(
    at: World, replace: bool
) -> None:
    """Another one ends, between any two requests of the first one, and its namespace is used."""
    fill(at.lake, at.clock)
    for number in range(1000):
        table = at.lost()
        if replace:
            at.restorer(table).restore()
        wire, left, used = InterceptedTable(table), iter(range(number)), list[Namespace]()

        def interrupt(
            request: str,
            table: ServiceTable = table,
            left: Any = left,
            used: list[Namespace] = used,
        ) -> None:
            if next(left, None) is None and not used:
                used.append(Namespace(table, at.store, LAKE, clock=at.clock, log=at.log))
                at.restorer(table).restore(replace=replace)
                used[0].write("acknowledged", b"")
                used[0].delete("acknowledged")
                used[0].write("acknowledged", b"1")

        with pytest.MonkeyPatch.context() as patch:
            before_requests(at, wire, patch, interrupt)
            with contextlib.suppress(AlreadyExists, Conflict):
                at.restorer(wire).restore(replace=replace)
        if not used:
            break
        used[0].write("after", b"")
        lake = Namespace(table, at.store, LAKE, clock=at.clock, log=at.log)
        assert lake.read("acknowledged") == b"1"
        assert lake.maintenance.fsck(grace=0).is_clean
        for name in ("acknowledged", "after"):
            lake.delete(name)
    assert number > 10


def without_metadata(table: ServiceTable) -> list[Item]:
    """Return all items of a table but the metadata, whose epoch grows with each restore."""
    return [item for item in table.scan() if item["place"] != NAMESPACES]


def test_a_restore_reports_progress(at: World) -> None:
    """Each report has more files, and the last one has all."""
    for number in range(50):
        at.lake.write(f"f{number:02}", b"1")
    reported: list[int] = []
    at.restorer(at.lost()).restore(progress=lambda done: reported.append(done.files))
    assert reported == sorted(reported) and len(reported) > 1 and reported[-1] == 50


def test_a_restore_reports_reading_and_removing(at: World) -> None:
    """Reading a long log takes minutes before the first record is written."""
    at.engine = None
    for number in range(120):
        at.lake.write(f"f{number:03}", b"1")
    reported: list[RestoreReport] = []
    done = at.restorer(at.table).restore(replace=True, progress=reported.append)
    assert (reported[0].operations, reported[0].removed) == (100, 0)
    assert [each.removed for each in reported if not each.records][-1] == 123
    assert (done.operations, done.removed, done.files) == (121, 123, 120)


@given(seed=st.integers(0, 2**32))
def test_the_newest_states_are_found_by_versions_alone(seed: int) -> None:
    """Two passes over a log yield the same states as a log held in memory, each state once."""
    random = Random(seed)

    def state() -> ItemState:
        item = None if random.random() < 0.3 else {"place": "p", "name": "n"}
        return ItemState(
            item_id=f"e/{random.randrange(5)}", version=random.randrange(4), item=item, began=0.0
        )

    known: dict[str, ItemState] = {}
    fold((state() for _ in range(4)), known)
    after = [state() for _ in range(8)]
    newest = NewestStates()
    newest.add(after)
    changed: dict[str, ItemState] = {}
    fold(after, changed)
    expected = list(merge_states(sorted(known.values(), key=lambda each: each.item_id), changed))
    found = list(newest.select(known.values(), after))
    assert sorted(found, key=lambda each: each.item_id) == expected
    with pytest.raises(Conflict, match="was changed while it was read"):
        list(newest.select((), ()))


def test_files_without_content_are_reported(at: World) -> None:
    """They are restored too; the report has their paths."""
    at.lake.write("a/gone", b"1")
    at.lake.write("a/other", b"1")
    gone, other = at.lake.stat("a/gone").data, at.lake.stat("a/other").data
    assert gone is not None and other is not None
    at.lake.rename("a", "b")
    at.store.delete(gone.path)
    at.store.put(other.path, b"2")
    table = at.lost()
    lost = at.restorer(table).restore().lost
    assert sorted((each.path, each.object, each.changed) for each in lost) == [
        ("b/gone", gone.path, False),
        ("b/other", other.path, True),
    ]
    assert at.entries(table) == at.entries(at.table)


@pytest.mark.parametrize("max_age", [0.0, None])
def test_changes_of_others_in_a_bound_directory_are_no_loss(at: World, max_age: float | None) -> None:
    """This holds at any depth and below a directory with shards; a file that left it can be lost."""
    for name in ("a", "b", "c", "d/e"):
        at.store.put(f"theirs/{name}", b"1")
    at.lake.make_directory("x")
    at.lake.reshard("x", shards=4)
    at.lake.bindings.bind("theirs/", "x/bound", max_age=max_age)
    at.lake.bindings.sync("x/bound")
    at.lake.rename("x/bound/c", "c")
    at.clock.advance(1)
    at.store.put("theirs/a", b"22")
    at.store.delete("theirs/b")
    at.store.put("theirs/c", b"22")
    at.store.put("theirs/d/e", b"22")
    table = at.lost()
    lost = at.restorer(table).restore().lost
    assert [(each.path, each.changed) for each in lost] == [("c", True)]
    again = Namespace(table, at.store, LAKE, clock=at.clock, log=at.log)
    again.bindings.sync("x/bound")
    assert again.read("x/bound/a") == again.read("x/bound/d/e") == b"22"


def test_collected_garbage_does_not_come_back(at: World) -> None:
    """Garbage that was not collected is restored."""
    at.lake.write("f", b"1")
    at.lake.write("f", b"2")
    at.clock.advance(1)
    assert at.lake.maintenance.gc().objects == 1
    at.lake.write("f", b"3")
    table = at.lost()
    assert at.restorer(table).restore().garbage == 1
    garbage = [item for item in table.scan() if "/x/" in str(item["place"])]
    assert garbage == [item for item in at.table.scan() if "/x/" in str(item["place"])]


def test_hidden_objects_stay_hidden(at: World) -> None:
    """A directory stays bound to its prefix, and deleted objects of the prefix do not reappear."""
    for name in ("a", "b", "c/d"):
        at.store.put(f"theirs/{name}", b"1")
    at.lake.bindings.bind("theirs/", "bound")
    at.lake.delete("bound/a")
    at.lake.delete("bound/c", recursive=True)
    table = at.lost()
    at.restorer(table).restore()
    assert records(table, at.store) == records(at.table, at.store)
    assert sum("/t/" in key.hash for key in records(table, at.store)) == 2
    again = Namespace(table, at.store, LAKE, clock=at.clock, log=at.log)
    assert [each.path for each in again.walk()] == ["bound", "bound/b"]


def test_of_two_tombstones_of_a_name_the_later_counts(at: World) -> None:
    """This holds if the clock of the earlier one was ahead, and before and after a compaction."""
    at.store.put("theirs/x", b"1")
    at.lake.bindings.bind("theirs/", "bound")
    ahead = ManualClock(epoch=at.clock.epoch() + 7200)
    Namespace(at.table, at.store, LAKE, clock=ahead, log=at.log).delete("bound/x")
    at.clock.advance(60)
    at.store.put("theirs/x", b"2")
    at.lake.delete("bound/x")
    for compacted in (False, True):
        if compacted:
            at.clock.advance(100_000)
            at.lake.maintenance.compact_log()
        table = at.lost()
        at.restorer(table).restore(read_only=True)
        assert records(table, at.store) == records(at.table, at.store)


def test_tombstones_of_a_removed_directory_are_not_restored(at: World) -> None:
    """The tombstones of an existing directory are."""
    for name in ("in", "in/below"):
        at.store.put(f"{name}/x", b"1")
        at.lake.bindings.bind(f"{name}/", name)
        at.lake.delete(f"{name}/x")
    at.lake.delete("in", recursive=True)
    at.lake.maintenance.empty_trash()
    table = at.lost()
    at.restorer(table).restore()
    assert records(table, at.store) == records(at.table, at.store)
    assert not any("/t/" in str(item["place"]) for item in table.scan())


def test_a_log_of_another_namespace_is_refused(at: World) -> None:
    """An empty log is refused too."""
    with pytest.raises(NotFound, match="does not have a namespace 'other'"):
        Restorer(table=at.lost(), store=at.store, log=at.log, name="other").restore()
    log = OperationLog(ConditionalStore(MemoryStore()), "log")
    with pytest.raises(NotFound, match="does not have"):
        Restorer(table=at.lost(), store=at.store, log=log, name=LAKE).restore()


def test_an_unreadable_entry_stops_a_restore(at: World) -> None:
    """It stops before it writes the table or claims the log; the error names the option to continue."""
    at.lake.write("f", b"1")
    path = next(info.path for info in at.store.list("log/decided/"))
    at.store.put(path, b"{}")
    table = at.lost()
    with pytest.raises(CorruptRecord, match="salvage"):
        at.restorer(table).restore()
    assert not list(table.scan())
    at.lake.write("g", b"1")


@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("number", range(19))
def test_the_rest_of_a_log_with_a_truncated_entry_is_salvaged(
    at: World, number: int, compacted: bool
) -> None:
    """Only a file that no other entry has is lost; the entry is reported; the rest is one tree."""
    fill(at.lake, at.clock)
    if compacted:
        at.clock.advance(100_000)
        at.lake.write("late/f", b"late")
        at.lake.maintenance.compact_log()
        at.lake.write("late/g", b"g")
        path = [info.path for info in at.store.list("log/")][number % 4]
    else:
        path = [info.path for info in at.store.list("log/decided/")][number]
    before = contents(at.lake)
    whole = at.store.get(path).data
    at.store.put(path, whole[:40])
    table = at.lost()
    done = at.restorer(table).restore(salvage=True)
    assert [each for each in done.unreadable if path in each]
    lake = Namespace(table, at.store, LAKE, clock=at.clock, log=at.log, grace=0)
    assert lake.maintenance.fsck(grace=0).is_clean
    kept = [body for body in contents(lake).values() if body]
    # An entry belongs to one change: of a file that it made, or of entries that moved with it.
    if not compacted:
        assert len([body for body in before.values() if body and body not in kept]) <= 1
    lake.write("goes/on", b"")
    elsewhere = at.lost()
    at.restorer(elsewhere).restore()
    assert records(elsewhere, at.store) == records(table, at.store)


def test_a_log_with_a_missing_checkpoint_part_is_salvaged(at: World) -> None:
    """Later changes are restored; directories without a record are made again under their ids."""
    at.lake.write("a/f", b"1")
    at.clock.advance(100_000)
    at.lake.maintenance.compact_log()
    at.lake.write("a/g", b"2")
    for info in list(at.store.list("log/checkpoint-parts/")):
        at.store.delete(info.path)
    with pytest.raises(CorruptRecord, match="is missing"):
        at.restorer(at.lost()).restore()
    table = at.lost()
    done = at.restorer(table).restore(salvage=True)
    assert len(done.unreadable) == 1
    [directory] = done.found
    lake = Namespace(table, at.store, LAKE, clock=at.clock, log=at.log, grace=0)
    assert lake.read(f"lost+found/{directory}/g") == b"2"
    assert lake.stat("lost+found").entry.shards.now == 64
    assert lake.maintenance.fsck(grace=0).is_clean


def test_a_damaged_log_is_rewritten_from_the_table(at: World) -> None:
    """Whatever is damaged, the namespace can be restored afterwards, and clients can go on."""
    fill(at.lake, at.clock)
    for info in list(at.store.list("log/")):
        at.store.put(info.path, b"damaged")
    assert at.lake.maintenance.fsck(grace=0).counts == {"unreadable-log": 1}
    _, idle = at.client()
    idle.describe()
    done = at.rewrite_log(older_than=0)
    assert done.states == len([key for key in records(at.table, at.store) if "/d/" not in key.hash])
    assert at.lake.maintenance.fsck(grace=0).is_clean
    idle.write("after", b"")
    table = at.lost()
    at.restorer(table).restore()
    assert records(table, at.store) == records(at.table, at.store)


def test_a_log_is_not_rewritten_during_a_change(at: World) -> None:
    """A table with an unreadable record is refused too; nothing is begun in either case."""
    leave_pending(at, lambda lake: lake.write("f", b"1"))
    with pytest.raises(Conflict, match="under way"):
        at.rewrite_log()
    at.lake.write("g", b"1")
    at.clock.advance(3600)
    entry = at.lake.stat("g").entry
    at.table.put({**entry.to_item(), "body": b"{"})
    with pytest.raises(CorruptRecord):
        at.rewrite_log()
    at.table.put(entry.to_item())
    assert at.rewrite_log().epoch == 1
    assert at.lake.maintenance.fsck(grace=0).is_clean


def test_rewriting_a_log_can_be_interrupted_at_any_request(at: World) -> None:
    """An interrupted rewrite loses nothing: a restore returns all records, and it can be repeated."""
    fill(at.lake, at.clock)
    for last in range(5):
        wire, lake = at.client()
        left = [last]

        def put(path: str, *arguments: Any, **options: Any) -> Any:
            if not left[0]:  # noqa: B023
                raise Dies
            left[0] -= 1  # noqa: B023
            return MemoryStore.put(at.store, path, *arguments, **options)

        def step(what: str, perform: Callable[[], object]) -> None:
            if what == "transact" and left[0] < 2:  # noqa: B023
                raise Dies
            perform()

        wire.step = step
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(at.store, "put", put)
            with pytest.raises(Dies):
                at.rewrite_log(lake, older_than=0)
        elsewhere = at.lost()
        at.restorer(elsewhere).restore(read_only=True)
        assert records(elsewhere, at.store) == records(at.table, at.store)
        at.rewrite_log(older_than=0)
        at.lake.write("goes/on", b"")
        assert at.lake.maintenance.fsck(grace=0).is_clean


def forked(at: World) -> Namespace:
    """Return a client of a second table with the records of the first, and without an epoch of its own.

    Clients that did not know epochs have left such logs.
    """
    table = at.lost()
    for item in at.table.scan():
        table.put(item)
    return Namespace(table, at.store, LAKE, clock=at.clock, log=at.log, grace=0, new_id=at.word)


def contents(lake: Namespace) -> dict[str, bytes | None]:
    """Return the content at each path; None for directories."""
    return {found.path: None if found.is_directory else lake.read(found.path) for found in lake.walk()}


@pytest.mark.parametrize("replace", [False, True])
def test_a_second_history_in_a_log_moves_to_lost_and_found(at: World, replace: bool) -> None:
    """Entries with one name, contents of one version, cycles, removed directories: all of them exist."""
    for path in ("a/x", "b/y", "c/z", "f", "gone/g"):
        at.lake.write(path, path.encode())
    at.lake.make_directory("lost+found")
    other = forked(at)
    for number, lake in enumerate((at.lake, other)):
        at.clock.advance(1)
        lake.make_directory("tried")
        lake.write("tried/own", b"%d" % number)
        lake.write("tried/more", b"%d" % number)
        lake.write("f", b"f%d" % number)
    tried = at.lake.stat("tried").id
    at.lake.write("f", b"f again")
    at.lake.rename("a", "b/a")
    other.rename("b", "a/b")
    at.lake.rename("c/z", "c/renamed")
    other.write("c/z", b"new z")
    at.lake.delete("gone", recursive=True)
    at.lake.maintenance.empty_trash()
    other.write("gone/late", b"late")
    other.reshard("c", shards=8)
    for name in "mnopq":
        other.write(f"c/{name}", name.encode())
    at.lake.set_attributes("c", attributes={"x": "1"})
    at.lake.set_attributes("c", attributes={"x": "2"})
    table = at.table if replace else at.lost()
    done = at.restorer(table).restore(replace=replace)
    lake = Namespace(table, at.store, LAKE, clock=at.clock, log=at.log, grace=0)
    assert lake.maintenance.fsck(grace=0, objects=True).is_clean
    bodies = [body for body in contents(lake).values() if body is not None]
    for body in (b"a/x", b"b/y", b"f again", b"f1", b"new z", b"late", b"m", b"q"):
        assert body in bodies, body
    assert bodies.count(b"0") == bodies.count(b"1") == 2
    assert lake.read("tried/own") == b"1"
    assert lake.read(f"lost+found/{tried}/own") == b"0"
    assert all(lake.exists(f"lost+found/{id}") for id in done.found)
    assert not done.lost
    lake.write("tried/after", b"")
    elsewhere = at.lost()
    at.restorer(elsewhere).restore()
    assert records(elsewhere, at.store) == records(table, at.store)


def test_a_restore_fences_the_previous_table(at: World) -> None:
    """No client can change it from then on; it can take the log back."""
    at.lake.write("a", b"1")
    _, idle = at.client()
    idle.describe()
    table = at.lost()
    at.restorer(table).restore()
    taken = Namespace(table, at.store, LAKE, clock=at.clock, log=at.log, grace=0)
    taken.make_directory("tried")
    before = records(at.table, at.store)
    calls: list[Callable[[Namespace], object]] = [
        lambda lake: lake.make_directory("tried"),
        lambda lake: lake.write("a", b"2"),
        lambda lake: lake.rename("a", "b"),
        lambda lake: lake.delete("a"),
        lambda lake: lake.maintenance.compact_log(),
        lambda lake: lake.maintenance.recover(),
        lambda lake: lake.maintenance.rewrite_log(),
    ]
    for lake in (at.lake, idle, at.client()[1]):
        for call in calls:
            with pytest.raises(Fenced, match="belongs to another table"):
                call(lake)
    assert records(at.table, at.store) == before
    assert at.lake.maintenance.fsck(grace=0).counts == {"fenced": 1}
    assert taken.maintenance.fsck(grace=0).is_clean
    assert at.lake.read("a") == b"1"
    done = at.rewrite_log(take_over=True, older_than=0)
    assert done.epoch == 2
    at.lake.write("a", b"2")
    idle.write("a", b"3")
    with pytest.raises(Fenced):
        taken.write("a", b"4")
    elsewhere = at.lost()
    at.restorer(elsewhere).restore()
    assert records(elsewhere, at.store) == records(at.table, at.store)


def test_a_fenced_table_removes_no_objects(at: World) -> None:
    """Its garbage may be a file in the table that has the log."""
    at.lake.write("a", b"1")
    at.lake.delete("a")
    at.restorer(at.lost()).restore()
    at.clock.advance(1)
    objects = {info.path for info in objects_in(at.store)}
    with pytest.raises(Fenced):
        at.lake.maintenance.gc()
    assert {info.path for info in objects_in(at.store)} == objects


def test_a_read_only_copy_changes_nothing_else(at: World) -> None:
    """It has all entries of the log, cannot be changed, and only its own table is written."""
    fill(at.lake, at.clock)
    leave_pending(at, lambda lake: lake.write("pending", b"1"))
    before = {info.path: info.etag for info in at.store.list()}
    table = at.lost()
    done = at.restorer(table).restore(read_only=True)
    assert {info.path: info.etag for info in at.store.list()} == before
    assert [each.decision for each in done.decided] == [Decision.ROLLED_BACK]
    copy = Namespace(table, at.store, LAKE, clock=at.clock, log=at.log)
    assert copy.read("over") == b"3"
    assert copy.maintenance.fsck(grace=0).is_clean
    calls: list[Callable[[], object]] = [
        lambda: copy.write("x", b""),
        lambda: copy.delete("over"),
        copy.maintenance.empty_trash,
        copy.maintenance.gc,
        copy.maintenance.compact_log,
        copy.maintenance.recover,
        lambda: copy.maintenance.rewrite_log(take_over=True),
    ]
    for call in calls:
        with pytest.raises(ConfigurationError, match="as read-only"):
            call()
    at.lake.write("over", b"4")
    at.restorer(table).restore(replace=True, read_only=True)
    assert Namespace(table, at.store, LAKE, clock=at.clock, log=at.log).read("over") == b"4"
    with pytest.raises(AlreadyExists):
        at.restorer(table).restore(read_only=True)


@pytest.mark.parametrize("compacted", [None, 0.0, 80_000.0])
def test_a_read_only_copy_beside_a_compaction_is_whole(at: World, compacted: float | None) -> None:
    """The log is compacted before any listing of the copy, which has all entries, or fails.

    Args:
        at: the namespace.
        compacted: seconds between an earlier compaction, whose checkpoint is kept for some hours, and
            later changes; None without one.
    """
    ends: set[str] = set()
    for number in range(1000):
        made = world()
        made.engine = at.engine
        fill(made.lake, made.clock)
        if compacted is not None:
            made.clock.advance(100_000 - compacted)
            made.lake.write("later", b"1")
            made.clock.advance(compacted)
            assert made.lake.maintenance.compact_log().operations
        made.clock.advance(100_000 if compacted is None else 10_000 + 80_000 - compacted)
        done, left = list[int](), [number]
        with pytest.MonkeyPatch.context() as patch:

            def listing(
                *arguments: Any, made: World = made, done: list[int] = done, left: Any = left, **how: Any
            ) -> Any:
                left[0] -= 1
                if left[0] == -1:
                    done.append(made.client()[1].maintenance.compact_log().operations)
                return MemoryStore.list(made.store, *arguments, **how)

            patch.setattr(made.store, "list", listing)
            copy = made.lost()
            try:
                made.restorer(copy).restore(read_only=True)
                ends.add("whole")
            except (Conflict, NotFound) as error:
                ends.add(str(error))
        if copy.get(KEYS.metadata) is not None:
            assert records(copy, made.store) == records(made.table, made.store)
        if not done:
            break
        assert done[0]
    assert number > 5 and "whole" in ends
    assert not any("does not have a namespace" in end for end in ends)


def without_restore_record(table: ServiceTable) -> list[Item]:
    """Return all items of a table but the record of a restore in progress."""
    return [item for item in table.scan() if "/r/" not in str(item["place"])]


@pytest.mark.parametrize("denied", ["transact", "scan"])
def test_nothing_is_removed_without_permission_to_write_and_scan(at: World, denied: str) -> None:
    """The metadata and all records stay."""
    fill(at.lake, at.clock)
    before = without_restore_record(at.table)
    wire = InterceptedTable(at.table)

    def step(what: str, perform: Callable[[], object]) -> None:
        if what == denied:
            raise AccessDenied(f"no {what}")
        perform()

    wire.step = step
    with pytest.raises(AccessDenied):
        at.restorer(wire).restore(replace=True)
    assert without_restore_record(at.table) == before


def test_nothing_is_removed_if_the_log_has_an_invalid_record(at: World) -> None:
    """The record is found before the metadata is removed."""
    fill(at.lake, at.clock)
    before = without_restore_record(at.table)
    bad = {**at.lake.stat("over").entry.to_item(), "version": 99, "body": "no record"}
    body = {"what": "x", "change_id": "w", "primary": ["p", "n"], "put": [bad], "removed": []}
    with at.log.run({**body, "replaced": []}):
        pass
    with pytest.raises(CorruptRecord):
        at.restorer(at.table).restore(replace=True)
    assert without_restore_record(at.table) == before
    at.lake.write("more", b"")


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("ministack", marks=pytest.mark.servers)])
def test_a_restore_works_in_every_kind_of_table(
    kind: str, at: World, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The namespace is restored, checked, repaired after a loss, replaced, and used."""
    url, options = f"sqlite://{tmp_path}/names.db", {}
    if kind == "ministack":
        server = request.getfixturevalue(kind)
        url, options = f"dynamodb://{server.new_table_name()}", server.options
    fill(at.lake, at.clock)
    with closing(open_table(url, NAMESPACE_SCHEMA, **options)) as table:
        table.create()
        restorer = Restorer(table=table, store=at.store, log=at.log, name=LAKE)
        done = restorer.restore()
        entries = [Entry.from_item(item) for item in table.scan() if "id" in item]
        assert {entry.key: entry for entry in entries} == at.entries(at.table)
        lake = Namespace(table, at.store, LAKE, clock=at.clock, log=at.log)
        assert lake.maintenance.fsck(objects=True, orphans=True).is_clean
        table.delete(lake.stat("over").entry.key)
        [repaired] = lake.maintenance.repair(lake.maintenance.fsck().findings, dry_run=False)
        assert repaired.outcome is RepairOutcome.DONE
        assert lake.read("over") == b"3"
        assert restorer.restore(replace=True).records == done.records
        lake.rename("empty", "full")
        lake.maintenance.empty_trash()
        at.clock.advance(100_000)
        assert lake.maintenance.compact_log().operations > 3
        assert lake.maintenance.fsck(objects=True).is_clean


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("ministack", marks=pytest.mark.servers)])
def test_unreadable_rows_stop_neither_fsck_nor_repair_nor_restore(
    kind: str, at: World, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """They are findings of their own namespace only, and are replaced and removed by their keys."""
    url, options = f"sqlite://{tmp_path}/names.db", {}
    if kind == "ministack":
        server = request.getfixturevalue(kind)
        url, options = f"dynamodb://{server.new_table_name()}", server.options

    def spoil(key: Key) -> None:
        if kind == "sqlite":
            with closing(sqlite3.connect(tmp_path / "names.db")) as connection, connection:
                place = (key.hash.encode(), str(key.range).encode())
                connection.execute("UPDATE items SET item = '{' WHERE hash = ? AND range = ?", place)
        else:
            item = {"place": {"S": key.hash}, "name": {"S": str(key.range)}, "tags": {"L": []}}
            client = server.client("dynamodb")
            client.put_item(TableName=parse_table_url(url).name, Item=item)

    fill(at.lake, at.clock)
    with closing(open_table(url, NAMESPACE_SCHEMA, **options)) as table:
        table.create()
        restorer = Restorer(table=table, store=at.store, log=at.log, name=LAKE)
        restorer.restore()
        lake = Namespace(table, at.store, LAKE, clock=at.clock, log=at.log)
        neighbour = Namespace(table, at.store, "lake2", clock=at.clock)
        neighbour.create()
        neighbour.write("theirs", b"1")
        theirs = neighbour.stat("theirs").entry.key
        spoil(theirs)
        assert lake.maintenance.fsck(grace=0).is_clean
        over = lake.stat("over").entry.key
        spoil(over)
        [found] = [
            each for each in lake.maintenance.fsck(grace=0).findings if each.problem.name != "log-newer"
        ]
        assert (found.problem.name, key_of(found.records[0])) == ("corrupt-record", over)
        report = lake.maintenance.fsck(orphans=True, grace=0)
        assert "references-unknown" in report.counts
        outcomes = {each.outcome for each in lake.maintenance.repair([found], dry_run=False)}
        assert outcomes == {RepairOutcome.DONE}
        assert lake.read("over") == b"3"
        assert lake.maintenance.fsck(grace=0).is_clean
        for key in (over, KEYS.directory(lake.stat("empty").id), KEYS.metadata):
            spoil(key)
            restorer.restore(replace=True)
            assert lake.maintenance.fsck(grace=0).is_clean
            assert lake.read("over") == b"3"
        with pytest.raises(CorruptRecord):
            table.get(theirs)


def test_only_a_replacing_restore_continues_a_replacing_restore(at: World) -> None:
    """After its interruption a plain restore does not take the remaining records for restored ones."""
    fill(at.lake, at.clock)
    table = at.lost()
    at.restorer(table).restore()
    wire = InterceptedTable(table)

    def step(what: str, perform: Callable[[], object]) -> None:
        if what == "scan" and table.get(KEYS.metadata) is None:
            raise Dies
        perform()

    wire.step = step
    with pytest.raises(Dies):
        at.restorer(wire).restore(replace=True)
    with pytest.raises(NotFound):
        Namespace(table, at.store, LAKE, clock=at.clock).describe()
    with pytest.raises(AlreadyExists, match="interrupted"):
        at.restorer(table).restore()
    at.restorer(table).restore(replace=True)
    assert at.entries(table) == at.entries(at.table)
    assert Namespace(table, at.store, LAKE, clock=at.clock, log=at.log).maintenance.fsck().is_clean


# -- pending changes --------------------------------------------------------------------------------


@pytest.mark.parametrize("decision", Decision)
def test_pending_changes_need_a_decision(at: World, decision: Decision) -> None:
    """Nothing is written before the decision; the decision is recorded in the log."""
    at.lake.write("f", b"1")
    leave_pending(at, lambda lake: lake.rename("f", "g"))
    table = at.lost()
    restorer = at.restorer(table)
    with pytest.raises(ConfigurationError, match="such as 'rename a file'"):
        restorer.restore()
    assert not list(table.scan())
    [pending] = restorer.undecided()
    done = restorer.restore(decide=lambda operation: decision)
    assert [(each.id, each.decision) for each in done.decided] == [(pending.id, decision)]
    assert at.log.decision(pending.id) is decision
    again = Namespace(table, at.store, LAKE, clock=at.clock, log=at.log)
    assert again.exists("g") is (decision is Decision.COMMITTED)
    assert again.exists("f") is (decision is Decision.ROLLED_BACK)
    Auditor(table, LAKE, at.store).audit()


@pytest.mark.parametrize("applied", [True, False])
def test_a_change_that_the_log_proves_needs_no_decision(at: World, applied: bool) -> None:
    """A later change read the change's result, or replaced what the change would have replaced."""
    at.lake.write("f", b"1")
    leave_pending(at, lambda lake: lake.write("f", b"2"), applied=applied)
    leave_pending(at, lambda lake: lake.write("new", b"1"), applied=applied)
    at.lake.write("f", b"3")
    at.lake.write("new", b"2")
    table = at.lost()
    restorer = at.restorer(table)
    assert restorer.undecided() == ()
    wanted = Decision.COMMITTED if applied else Decision.ROLLED_BACK
    assert {each.decision for each in restorer.restore().decided} == {wanted}
    assert at.entries(table) == at.entries(at.table)


def test_the_entries_of_a_directory_prove_changes_of_it(at: World) -> None:
    """Entries are added only to a directory that was made, and not to one that was removed."""
    leave_pending(at, lambda lake: lake.make_directory("made"))
    at.lake.write("made/f", b"1")
    at.lake.make_directory("gone")
    leave_pending(at, lambda lake: lake.write("gone/f", b"1"), applied=False)
    at.lake.delete("gone", recursive=True)
    at.lake.maintenance.empty_trash()
    table = at.lost()
    restorer = at.restorer(table)
    assert restorer.undecided() == ()
    reported = {str(each.body["what"]): each.decision for each in restorer.restore().decided}
    assert reported == {"make directories": Decision.COMMITTED, "create a file": Decision.ROLLED_BACK}
    assert at.entries(table) == at.entries(at.table)


def test_only_one_of_two_conflicting_changes_happened(at: World) -> None:
    """Whatever the caller decides, the decisions are consistent."""
    at.lake.write("f", b"1")
    for applied in (False, True):
        leave_pending(at, lambda lake: lake.write("f", b"2"), applied=applied)
    leave_pending(at, lambda lake: lake.write("n", b"1"), applied=False)
    leave_pending(at, lambda lake: lake.write("n", b"2"))
    table = at.lost()
    done = at.restorer(table).restore(decide=lambda operation: Decision.COMMITTED)
    assert sorted(str(each.decision) for each in done.decided) == [
        *["Decision.COMMITTED"] * 2,
        *["Decision.ROLLED_BACK"] * 2,
    ]
    assert at.entries(table) == at.entries(at.table)
    Auditor(table, LAKE, at.store).audit()


def restored(at: World, decision: Decision) -> Namespace:
    """Return the namespace restored with this decision for every change that the log does not decide."""
    table = at.lost()
    at.restorer(table).restore(decide=lambda operation: decision)
    Auditor(table, LAKE, at.store).audit()
    lake = Namespace(table, at.store, LAKE, clock=at.clock, log=at.log)
    assert lake.maintenance.fsck(objects=True).is_clean
    return lake


@pytest.mark.parametrize("decision", Decision)
@pytest.mark.parametrize("applied", [True, False])
def test_an_entry_in_a_shard_proves_the_resharding(at: World, decision: Decision, applied: bool) -> None:
    """With any decision, each acknowledged file is in a shard that readers look up."""
    at.lake.make_directory("d")
    leave_pending(at, lambda lake: lake.set_attributes("d", attributes={"x": "1"}), applied=False)
    leave_pending(at, lambda lake: lake.reshard("d", shards=64), applied=applied)
    leave_pending(at, lambda lake: lake.write("d/late", b"1"), applied=applied)
    paths = [f"d/{number}" for number in range(10)]
    for path in paths:
        at.lake.write(path, b"acknowledged")
    lake = restored(at, decision)
    assert all(lake.exists(path) for path in paths)
    if applied:
        assert lake.stat("d").entry.shards.now == 64


@pytest.mark.parametrize("decision", Decision)
def test_changes_that_need_a_rolled_back_change_are_rolled_back(
    at: World, decision: Decision, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory that was not made, or not resharded, has no entries that need this."""
    at.lake.make_directory("d")
    for change in (lambda lake: lake.reshard("d", shards=64), lambda lake: lake.make_directory("e")):
        with monkeypatch.context() as patched:  # their clocks are ahead, so they are decided first
            now = 7200 + at.clock.epoch()
            patched.setattr(ManualClock, "epoch", lambda clock, now=now: now)
            leave_pending(at, change)
    for path in [f"{of}/{number}" for number in range(5) for of in "de"]:
        leave_pending(at, lambda lake, path=path: lake.write(path, b"1"))  # type: ignore[misc]
    answers = iter([Decision.ROLLED_BACK, Decision.ROLLED_BACK])
    table = at.lost()
    done = at.restorer(table).restore(decide=lambda operation: next(answers, decision))
    assert len(done.decided) == 12
    Auditor(table, LAKE, at.store).audit()


@pytest.mark.parametrize("decision", Decision)
def test_removing_a_directory_proves_that_it_was_emptied(at: World, decision: Decision) -> None:
    """A client died after it removed the file from the trash; another one removed the directory."""
    at.lake.write("d/x", b"1")
    at.lake.delete("d", recursive=True)
    leave_pending(at, lambda lake: lake.maintenance.empty_trash())
    assert at.lake.maintenance.empty_trash().directories == 1
    assert not list(restored(at, decision).walk())


def test_an_overwritten_file_leaves_no_room_for_another(at: World) -> None:
    """A file that exists, or was overwritten, still has its name: no other create of it happened."""
    leave_pending(at, lambda lake: lake.write("f", b"1"), applied=False)
    at.lake.write("f", b"2")
    leave_pending(at, lambda lake: lake.write("f", b"3"), applied=False)
    [pending] = at.restorer(at.lost()).undecided()
    assert pending.body["what"] == "overwrite a file"
    assert restored(at, Decision.COMMITTED).stat("f").version == 2


def test_adding_to_a_renamed_directory_is_not_ruled_out(at: World) -> None:
    """The log has no other record of a pending change that did happen."""
    at.lake.make_directory("d")
    leave_pending(at, lambda lake: lake.rename("d", "e"))
    leave_pending(at, lambda lake: lake.write("e/f", b"1"))
    at.lake.set_attributes("e", attributes={"x": "1"})
    table = at.lost()
    at.restorer(table).restore(decide=lambda operation: Decision.COMMITTED)
    assert at.entries(table) == at.entries(at.table)


@pytest.mark.parametrize("decision", Decision)
def test_no_directory_is_restored_below_itself(at: World, decision: Decision) -> None:
    """A rename that would do this did not happen, or another rename had moved the parent away before."""
    for path in ("a", "b", "c", "d/e"):
        at.lake.make_directory(path)
    leave_pending(at, lambda lake: lake.rename("a", "b/a"), applied=False)
    at.lake.rename("b", "a/b")
    leave_pending(at, lambda lake: lake.rename("d/e", "e"))
    leave_pending(at, lambda lake: lake.rename("d", "e/d"))
    lake = restored(at, decision)
    assert [found.path for found in lake.walk()] == {
        Decision.COMMITTED: ["a", "a/b", "c", "e", "e/d"],
        Decision.ROLLED_BACK: ["a", "a/b", "c", "d", "d/e"],
    }[decision]


def test_a_rename_that_made_another_possible_is_committed(
    at: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory is now in one that was below it; so that one was moved away first."""
    at.lake.make_directory("d/e")
    with monkeypatch.context() as patched:  # its clock is ahead, so it is decided first
        now = 7200 + at.clock.epoch()
        leave_pending(at, lambda lake: lake.rename("d/e", "e"))
        patched.setattr(ManualClock, "epoch", lambda clock: now)
        leave_pending(at, lambda lake: lake.rename("d", "e/d"))
    answers = iter([Decision.COMMITTED])
    table = at.lost()
    at.restorer(table).restore(decide=lambda operation: next(answers))
    assert at.entries(table) == at.entries(at.table)


@pytest.mark.parametrize("decision", Decision)
def test_a_name_is_in_one_shard_only(at: World, decision: Decision) -> None:
    """A client that died before the resharding made no file if another client has one of that name."""
    at.lake.make_directory("d")
    for number in range(8):
        leave_pending(at, lambda lake: lake.write(f"d/{number}", b"mine"), applied=False)  # noqa: B023
    at.lake.reshard("d", shards=8)
    for number in range(8):
        at.lake.write(f"d/{number}", b"acknowledged")
    shards = {parse_hash_key(at.lake.stat(f"d/{number}").entry.key.hash).shard for number in range(8)}
    assert len(shards) > 2
    lake = restored(at, decision)
    assert {lake.read(f"d/{number}") for number in range(8)} == {b"acknowledged"}


def test_many_pending_changes_are_decided_in_linear_time(
    at: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A decision re-examines only the changes that it concerns."""
    looks = 0
    evidence = Inference._infer

    def look(self: Inference, *arguments: object) -> Decision | None:
        nonlocal looks
        looks += 1
        return evidence(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Inference, "_infer", look)
    at.lake.make_directory("d")
    for number in range(40):
        leave_pending(at, lambda lake: lake.write(f"d/{number}", b"1"))  # noqa: B023
    restored(at, Decision.ROLLED_BACK)
    assert looks == 40


# -- histories --------------------------------------------------------------------------------------


@settings(max_examples=examples(20, 60))
@given(seed=st.integers(0, 2**32))
def test_any_history_can_be_restored(seed: int) -> None:
    """Entries have their ids, versions and attributes, and the namespace passes its audit."""
    history = History(seed)
    at = history.at
    history.go_on(25)
    history.recover()
    applied = set(at.table.applied)

    def decide(operation: Operation) -> Decision:
        change_id = operation.body["change_id"]
        return Decision.COMMITTED if change_id in applied else Decision.ROLLED_BACK

    table = at.lost()
    done = at.restorer(table).restore(decide=decide)
    for each in done.decided:
        assert (each.decision is Decision.COMMITTED) == (each.body["change_id"] in applied)
    assert at.entries(table) == at.entries(at.table)
    Auditor(table, LAKE, at.store).audit()
    assert records(table, at.store) == records(at.table, at.store)
