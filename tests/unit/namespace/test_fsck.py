"""fsck finds each kind of damage of a namespace, and changes nothing."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from random import Random

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from commitlog.errors import BucketNotFound, CorruptRecord
from commitlog.namespace import Finding, Namespace, RepairOutcome
from commitlog.namespace.fsck.checker import Checker
from commitlog.namespace.fsck.confirm import records_unchanged, with_occupant
from commitlog.namespace.fsck.cross_checks import check_records
from commitlog.namespace.fsck.readers import (
    LogReader,
    ScannedRecords,
    StoreReader,
    TableReader,
    retry_on_new_checkpoint,
)
from commitlog.namespace.fsck.survey import TableSurveyor
from commitlog.namespace.fsck.tree_checks import TreeChecks
from commitlog.namespace.log.restore_writer import RestoreClaim, RestoreWriter
from commitlog.namespace.model.data import Data
from commitlog.namespace.model.keys import ROOT, TOP, TRASH, shards_of
from commitlog.oplog import Decision
from commitlog.tables.api import Absent, Check, Item, ItemPage
from support.damage import (
    DAMAGES,
    KEYS,
    corrupt,
    cycle,
    entry,
    filled,
    forget_directory,
    lose,
    lose_directory,
    lose_object,
    object_twice,
    put,
    spoil,
    store_unnamed,
    with_more_fields,
    without_log,
    written_by_newer,
)
from support.namespace import QUICK, InterceptedTable, ServiceTable, stored
from support.restore import World, fill, leave_pending, world
from support.selection import examples


@pytest.fixture
def at() -> World:
    """A namespace with an example of everything."""
    return filled()


def test_a_missing_bucket_is_not_a_replaced_checkpoint() -> None:
    """The log is not read again."""
    reads = []

    def read() -> None:
        reads.append(1)
        raise BucketNotFound("no such bucket")

    with pytest.raises(BucketNotFound):
        retry_on_new_checkpoint(read)
    assert len(reads) == 1


def test_a_sound_namespace_is_clean(at: World) -> None:
    """The trash, garbage and other namespaces are no findings."""
    Namespace(at.table, at.store, "other", clock=at.clock).create()
    checked = at.lake.maintenance.fsck(objects=True, orphans=True)
    assert checked.is_clean and checked.counts == {}
    assert checked.entries == len(at.entries(at.table)) - 2
    assert checked.objects == sum(not each.is_directory for each in at.entries(at.table).values())


def _bound(at: World, max_age: float | None) -> None:
    """Make a bound directory with files whose objects other programs change and remove later."""
    for name in "abc":
        at.store.put(f"raw/{name}", b"1")
    at.lake.bindings.bind("raw/", "in", max_age=max_age)
    at.lake.bindings.sync("in")
    at.lake.rename("in/c", "c")
    at.clock.advance(100)
    at.store.put("raw/a", b"22")
    at.store.delete("raw/b")


@pytest.mark.parametrize("max_age", [0.0, 60.0, 1000.0])
def test_files_that_are_not_synchronised_are_not_lost(at: World, max_age: float) -> None:
    """A file of a bound directory is as its object, whatever its row says; a file that left is not."""
    _bound(at, max_age)
    assert at.lake.maintenance.fsck(objects=True).is_clean
    at.store.put("raw/c", b"22")
    [found] = at.lake.maintenance.fsck(objects=True).findings
    assert (found.problem.name, found.path) == ("object-changed", "c")


def test_an_authoritative_directory_can_be_out_of_date(at: World) -> None:
    """Its rows are trusted, so changed files cannot be read; a synchronisation ends this."""
    _bound(at, None)
    assert at.lake.maintenance.fsck(objects=True).counts == {"out-of-date": 2}
    at.lake.bindings.sync("in")
    assert at.lake.maintenance.fsck(objects=True).is_clean


def test_a_directory_that_was_never_synchronised_has_no_losses(at: World) -> None:
    """Until the first synchronisation, an authoritative directory asks the store, too."""
    at.store.put("raw/a", b"1")
    at.lake.maintenance.import_objects("raw/", "in")
    at.lake.bindings.bind("raw/", "in", max_age=None)
    at.store.put("raw/a", b"22")
    assert at.lake.maintenance.fsck(objects=True).is_clean
    assert at.lake.read("in/a") == b"22"


# -- damage ------------------------------------------------------------------------------------------


def test_a_directory_in_a_cycle_has_no_path(at: World) -> None:
    """`path_of` reports the cycle; a restore reports a lost file in it with a partial path."""
    id, file = entry(at, "empty/below").id, entry(at, "over")
    cycle(at)
    with pytest.raises(CorruptRecord, match="in itself"):
        at.lake.path_of(id)
    assert at.lake.path_of(entry(at, "d2").id) == "d2"
    lost = evolve(file, key=KEYS.entry(id, 0, "lost"))
    claim = RestoreClaim(table=at.table, keys=KEYS, precondition=Check(lost.key, Absent()))
    reported = RestoreWriter(table=at.table, store=at.store, keys=KEYS, claim=claim).describe(lost)
    assert reported.path == "empty/below/lost"


@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.parametrize(
    "name", ["an entry is gone", "content is garbage", "a guard is gone", "a guard is left"]
)
def test_recovery_decides_an_interrupted_repair(at: World, name: str, applied: bool) -> None:
    """Its own writes and removals decide; a missing record may be the damage that it repairs."""
    DAMAGES[name].does(at)
    at.clock.advance(1)
    findings = at.lake.maintenance.fsck().findings
    leave_pending(
        at, lambda lake: list(lake.maintenance.repair(findings, dry_run=False)), applied=applied
    )
    [decided] = at.lake.maintenance.recover(older_than=0)
    assert decided.decision is (Decision.COMMITTED if applied else Decision.ROLLED_BACK)
    for _ in range(2):
        list(at.lake.maintenance.repair(at.lake.maintenance.fsck().findings, dry_run=False))
    assert at.lake.maintenance.fsck().is_clean


def test_orphans_are_removed_only_on_request(at: World) -> None:
    """An orphan may be a file of a namespace in another table; on request it becomes garbage first."""
    store_unnamed(at)
    lake = at.client()[1]
    found = lake.maintenance.fsck(orphans=True).findings
    assert list(lake.maintenance.repair(found, dry_run=False)) == []
    list(lake.maintenance.repair(found, dry_run=False, only=["orphan-object"]))
    assert lake.maintenance.fsck(orphans=True).is_clean
    at.clock.advance(1)
    assert lake.maintenance.gc().objects > 0
    assert not list(at.store.list("abc/"))


@pytest.mark.parametrize("when", ["while it is repaired", "after that", "in another namespace"])
def test_a_linked_orphan_is_not_collected(at: World, when: str) -> None:
    """References are checked again before the garbage is collected, and the object is kept."""
    lake, other = at.client()[1], Namespace(at.table, at.store, "other", clock=at.clock)
    other.create()
    datas = [lake.upload(bytes([number])) for number in range(3)]
    at.clock.advance(9 * 86_400)
    found = lake.maintenance.fsck(orphans=True).findings
    repairs = lake.maintenance.repair(found, dry_run=False, only=["orphan-object"])
    next(repairs)
    late = next(data for data in datas if data.path == found[-1].object)
    if when == "while it is repaired":
        lake.link("late", late)
    assert all(done.outcome is RepairOutcome.DONE for done in repairs)
    if when == "after that":
        lake.link("late", late)
    if when == "in another namespace":
        other.link("late", late)
    at.clock.advance(86_400)
    assert {path for path, _ in lake.maintenance.gc().failed} == set()
    assert {info.path for info in at.store.list()} & {data.path for data in datas} == {late.path}
    assert (other if "other" in when else lake).read("late") == at.store.get(late.path).data
    assert lake.maintenance.fsck(objects=True, orphans=True).is_clean


def test_an_orphan_is_kept_while_a_record_is_unreadable(at: World) -> None:
    """The record may refer to it; gc reports the object."""
    store_unnamed(at)
    lake = at.client()[1]
    found = lake.maintenance.fsck(orphans=True).findings
    list(lake.maintenance.repair(found, dry_run=False, only=["orphan-object"]))
    row = entry(at, "over")
    corrupt(at, row.key)
    at.clock.advance(86_400)
    assert {found[0].object} == {path for path, _ in lake.maintenance.gc().failed}
    put(at, row)
    assert lake.maintenance.gc().objects == 1


@pytest.mark.parametrize("unreadable", ["corrupt", "newer", "garbage", "unknown"])
def test_an_unreadable_record_may_refer_to_any_object(at: World, unreadable: str) -> None:
    """So fsck reports no orphans, and repair leaves those that were found before."""
    store_unnamed(at)
    over = entry(at, "over")
    before = at.lake.maintenance.fsck(orphans=True).findings
    match unreadable:
        case "corrupt":
            corrupt(at, over.key)
        case "newer":
            written_by_newer(at.table, over)
        case "garbage":
            at.table.put({"place": KEYS.garbage_slot(3), "name": "-"})
        case "unknown":
            at.table.put({"place": "other/q/1", "name": "-"})
    [done] = at.lake.maintenance.repair(before, dry_run=False, only=["orphan-object"])
    assert done.outcome is RepairOutcome.LEFT
    found = at.lake.maintenance.fsck(orphans=True).counts
    assert found["references-unknown"] == 1 and "orphan-object" not in found


def test_damage_of_records_with_more_fields_is_found(at: World) -> None:
    """A newer library may add fields within a format; fsck ignores them."""
    directory, file = entry(at, "empty"), entry(at, "over")
    for each in directory, file:
        with_more_fields(at.table, each)
    at.table.delete(KEYS.directory(directory.id))
    lose_object(at)
    found = at.lake.maintenance.fsck(objects=True)
    assert found.counts == {"no-directory-record": 1, "object-missing": 1}
    outcomes = [each.outcome for each in at.lake.maintenance.repair(found.findings, dry_run=False)]
    assert outcomes == [RepairOutcome.LEFT, RepairOutcome.DONE]
    assert at.lake.maintenance.fsck(objects=True).counts == {"object-missing": 1}


def test_records_of_a_newer_library_are_not_repaired(at: World) -> None:
    """Such a record is not corrupt: the newer library may know more than the log shows this one."""
    written_by_newer(at.table, entry(at, "over"))
    found = at.lake.maintenance.fsck().findings
    assert [each.problem.name for each in found] == ["corrupt-record"]
    assert [each.outcome for each in at.lake.maintenance.repair(found, dry_run=False)] == [
        RepairOutcome.LEFT
    ]


@pytest.mark.parametrize("id", [ROOT, TRASH])
def test_an_unreadable_root_is_made_again(at: World, id: str) -> None:
    """This is done as for a missing root, also without a log; all earlier entries are found then."""
    before = at.entries(at.table).keys()
    lake = without_log(at)
    key = KEYS.entry(TOP, 0, id)
    item = at.table.get(key)
    assert item is not None
    at.table.put({**item, "body": b"{"})
    at.clock.advance(1)
    found = lake.maintenance.fsck().findings
    assert [each.problem.name for each in found] == ["corrupt-record"]
    assert [each.outcome for each in lake.maintenance.repair(found, dry_run=False)] == [
        RepairOutcome.DONE
    ]
    assert lake.maintenance.fsck().is_clean and at.entries(at.table).keys() == before


def test_a_directory_without_a_readable_name_returns_to_its_path(at: World) -> None:
    """The log has its path, so no entry of it moves to lost+found."""
    tree = {found.path: found.entry.id for found in at.lake.walk()}
    lose_directory(at, "empty/b")
    at.clock.advance(1)
    lake = _repaired(at)
    assert {found.path: found.entry.id for found in lake.walk()} == tree


def test_a_file_in_the_place_of_lost_and_found_stops_no_other_repair(at: World) -> None:
    """Entries that would move there are left; all other damage is repaired."""
    at.lake.write("lost+found", b"a user's")
    forget_directory(at)
    at.table.delete(KEYS.directory(entry(at, "empty").id))
    lake = without_log(at)
    found = lake.maintenance.fsck().findings
    done = {
        each.finding.problem.name: each.outcome for each in lake.maintenance.repair(found, dry_run=False)
    }
    assert done.pop("unreachable-entry") is RepairOutcome.LEFT
    assert done == {"no-directory-record": RepairOutcome.DONE, "stray-guard": RepairOutcome.DONE}
    assert lake.read("lost+found") == b"a user's"


def test_objects_that_only_the_log_refers_to_are_no_orphans(at: World) -> None:
    """This holds for a file that the table lost, and not for a file that was deleted."""
    store_unnamed(at)
    path = entry(at, "over").data
    lose(at, "over")
    at.lake.link("gone", stored(at.store, "abc/abc" + 29 * "1"))
    at.lake.delete("gone")
    for item in list(at.table.scan()):
        if "/x/" in str(item["place"]) and b"abc/abc1" in bytes(item["body"]):  # type: ignore[arg-type]
            at.table.delete(at.table.schema.key_of(item))
    at.clock.advance(9 * 86_400)
    leave_pending(at, lambda lake: lake.link("left", stored(at.store, "abc/abc" + 29 * "2")))
    lose(at, "left")
    at.clock.advance(9 * 86_400)
    found = at.lake.maintenance.fsck(orphans=True)
    nobodys = {each.object for each in found.findings if each.problem.name == "orphan-object"}
    assert nobodys == {"abc/abc" + 29 * "0", "abc/abc" + 29 * "1"}
    # As if it was found while it was an orphan: the table is not repaired yet.
    assert path is not None
    [reported] = [each for each in found.findings if each.object == "abc/abc" + 29 * "0"]
    lost = evolve(reported, object=path.path)
    [done] = at.lake.maintenance.repair([lost], dry_run=False, only=["orphan-object"])
    assert done.outcome is RepairOutcome.CHANGED


def test_an_unreachable_directory_moves_to_lost_and_found(at: World) -> None:
    """It keeps its entries, and gets its id as its name."""
    found = entry(at, "empty/b")
    lose(at, "empty/b")
    lake = without_log(at)
    list(lake.maintenance.repair(lake.maintenance.fsck().findings, dry_run=False))
    assert lake.read(f"lost+found/{found.id}/1") == b"1"
    assert lake.maintenance.fsck().is_clean


# -- fsck changes nothing ------------------------------------------------------------------------------


def test_fsck_sends_no_write(at: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the damage, the table and the store get no request that changes something."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a check has written")

    for damage in DAMAGES.values():
        if damage.kind not in ("no-metadata", "orphan-object"):
            damaged = world()
            fill(damaged.lake, damaged.clock)
            damage.does(damaged)
            with monkeypatch.context() as patch:
                for method in ("begin_put", "put", "delete", "transact", "create"):
                    patch.setattr(damaged.table, method, refuse)
                for method in (
                    "put",
                    "copy",
                    "delete",
                    "delete_many",
                    "begin_stage",
                    "publish",
                    "abort",
                ):
                    patch.setattr(damaged.store, method, refuse)
                _, lake = damaged.client()
                assert damage.kind in lake.maintenance.fsck(objects=True, orphans=True).counts


def test_the_readers_of_fsck_cannot_write(at: World) -> None:
    """They have no method that changes something."""
    readers = TableReader.of(at.table), StoreReader.of(at.store), LogReader.of(at.log)
    names = {name for reader in readers for name in dir(reader) if not name.startswith("_")}
    assert names == {
        "url",
        "get",
        "scan",
        "of",
        "begin_head",
        "list",
        "verify",
        "pending",
        "history",
        "checkpoint",
        "read",
        "states",
    }


def test_an_orphan_that_became_a_file_is_not_garbage(at: World) -> None:
    """A slow job had stored the object, and committed between fsck and the repair."""
    store_unnamed(at)
    path = "abc/abc" + 29 * "0"
    found = at.lake.maintenance.fsck(orphans=True).findings
    at.lake.link("slow", stored(at.store, path))
    [done] = at.lake.maintenance.repair(found, dry_run=False, only=["orphan-object"])
    assert done.outcome is RepairOutcome.CHANGED
    at.clock.advance(1)
    at.lake.maintenance.gc()
    assert at.lake.read("slow") == b"nobody's"


def test_a_repaired_file_is_not_pruned(at: World) -> None:
    """A file whose object a repair keeps forever is not taken for one without an object."""
    lake = without_log(at)
    object_twice(at)
    at.clock.advance(1)
    list(lake.maintenance.repair(lake.maintenance.fsck(grace=0).findings, dry_run=False))
    assert at.lake.bindings.prune().files == 0
    assert at.lake.read("empty/b/1") == at.lake.read("empty/b/2")


@settings(max_examples=examples(8, 20))
@given(seed=st.integers(0, 2**32))
def test_fsck_with_little_memory_finds_the_same(seed: int) -> None:
    """A check that holds a few numbers per file finds the same as a check of all records at once."""
    random = Random(seed)
    at = world(seed)
    fill(at.lake, at.clock)
    leave_pending(at, lambda lake: lake.write("left", b"1"))
    for _ in range(random.randrange(1, 6)):
        spoil(at, random)
    reader, log = TableReader.of(at.table), LogReader.of(at.log).read()
    shape = TreeChecks(ScannedRecords.of(reader, "lake"), KEYS)
    whole = list(check_records(shape, log))
    surveyor = TableSurveyor(table=reader, keys=KEYS, log=LogReader.of(at.log))
    checker = Checker(table=reader, keys=KEYS, clock=at.clock, surveyor=surveyor, grace=0)
    found = [each for each in checker.check().findings if each.problem.name != "no-metadata"]

    def described(findings: Iterable[Finding]) -> list[str]:
        return sorted(
            f"{each.problem.name} {each.id} {each.object} {each.missing} {each.detail} {each.logged}"
            f" {each.path}"
            for each in findings
        )

    placed = (with_occupant(reader, each) for each in whole)
    assert described(found) == described(each for each in placed if records_unchanged(reader, each))


def test_fsck_takes_little_memory_per_file(at: World) -> None:
    """It keeps numbers instead of records, so that a million files fit in memory."""
    root = entry(at, "")

    def scan(files: int) -> Iterator[Item]:
        yield from at.table.scan()
        for number in range(files):
            name = f"part-{number:06}-of-a-job"
            place = shards_of(name, root.shards.now, root.shards.first)[0]
            path = f"abc/abc{number:029}"
            data = Data(path=path, size=1, etag=f"{number:032x}")
            key = KEYS.entry(ROOT, place, name)
            yield evolve(entry_of_file, key=key, id=f"{number:032x}", data=data).to_item()

    def peak(files: int) -> int:
        reader = TableReader(url="", get=at.table.get, scan=lambda unreadable: scan(files))
        surveyor = TableSurveyor(table=reader, keys=KEYS)
        checker = Checker(table=reader, keys=KEYS, clock=at.clock, surveyor=surveyor, grace=0)
        tracemalloc.start()
        try:
            assert checker.check().entries > files
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    entry_of_file = entry(at, "over")
    few, many = 100, 1500
    peak(few)
    assert peak(many) - peak(few) < 100 * (many - few)


class Slow(InterceptedTable):
    """A connection to a table whose scans have small pages, with changes by other clients in between."""

    def __init__(self, table: ServiceTable, between: Callable[[], object]) -> None:
        super().__init__(table)
        self._between = between

    def scan_page(
        self, *, segment: int = 0, segments: int = 1, limit: int = 1000, token: str | None = None
    ) -> ItemPage:
        """See `Table.scan_page`."""
        page = super().scan_page(segment=segment, segments=segments, limit=2, token=token)
        self._between()
        return page


@pytest.mark.parametrize("every", [1, 2, 3, 5])
@pytest.mark.parametrize("first", range(0, 20, 4))
def test_changes_during_fsck_are_no_findings(at: World, every: int, first: int) -> None:
    """Whatever mix of old and new records a scan has seen, nothing false is reported."""
    steps: list[Callable[[], object]] = [
        lambda: at.lake.rename("empty/b", "d2/b"),
        lambda: at.lake.reshard("empty", shards=8),
        lambda: at.lake.write("d2/b/1", b"2"),
        lambda: at.lake.rename("d2", "empty/d2"),
        lambda: at.lake.write("new/a/b", b""),
        lambda: at.lake.delete("new", recursive=True),
        lambda: at.lake.maintenance.empty_trash(),
        lambda: at.lake.rename("empty/d2/b/1", "one"),
        lambda: at.lake.delete("empty", recursive=True),
        lambda: at.lake.maintenance.gc(),
    ]
    pages = 0

    def between() -> None:
        nonlocal pages
        pages += 1
        if steps and pages >= first and (pages - first) % every == 0:
            at.clock.advance(1)
            steps.pop(0)()

    slow = Slow(at.table, between)
    lake = Namespace(slow, at.store, "lake", clock=at.clock, backoff=QUICK, log=at.log)
    assert lake.maintenance.fsck(objects=True, orphans=True).counts == {}
    assert pages > 10


@pytest.mark.parametrize("first", range(1, 12))
def test_a_file_that_keeps_moving_is_not_lost(
    at: World, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scan may miss it, and a second read may, too."""
    paths = iter([f"d2/moved-{number}" for number in range(100)])
    where, pages = "over", 0

    def move() -> None:
        nonlocal where, pages
        pages += 1
        if pages >= first:
            where = at.lake.rename(where, next(paths)).path

    slow = Slow(at.table, move)
    lake = Namespace(slow, at.store, "lake", clock=at.clock, backoff=QUICK, log=at.log)
    monkeypatch.setattr(at.clock, "sleep", lambda seconds: move())
    at.table.delete(KEYS.guard(entry(at, "empty").id, 0))  # so that fsck reads records again
    assert lake.maintenance.fsck().counts == {"no-guard": 1}


def test_damage_is_found_while_other_clients_work(at: World) -> None:
    """Records that keep changing do not hide it."""
    at.table.delete(KEYS.guard(entry(at, "d2").id, 0))
    numbers = iter(range(1000))
    slow = Slow(at.table, lambda: at.lake.write(f"empty/b/{next(numbers)}", b""))
    lake = Namespace(slow, at.store, "lake", clock=at.clock, backoff=QUICK, log=at.log)
    assert lake.maintenance.fsck(objects=True).counts == {"no-guard": 1}


def test_records_changed_since_fsck_are_not_repaired(at: World) -> None:
    """Each repair is conditional on the records that fsck found."""
    at.table.delete(KEYS.directory(entry(at, "empty").id))
    found = at.lake.maintenance.fsck().findings
    at.lake.set_attributes("empty", attributes={"x": "1"})
    [repaired] = at.lake.maintenance.repair(found, dry_run=False)
    assert repaired.outcome is RepairOutcome.CHANGED
    [repaired] = at.lake.maintenance.repair(at.lake.maintenance.fsck().findings, dry_run=False)
    assert (repaired.outcome, repaired.writes) == (RepairOutcome.DONE, 2)


@settings(max_examples=examples(8, 25))
@given(seed=st.integers(0, 2**32))
def test_the_log_restores_lost_records(seed: int) -> None:
    """After repeated fsck and repair all entries have their paths, and lost+found is empty."""
    random = Random(seed)
    at = world(seed)
    fill(at.lake, at.clock)
    before = {found.path: found.entry.id for found in at.lake.walk()}
    items = [item for item in at.table.scan() if str(item["place"]).split("/")[1:2] > ["d"]]
    items += [item for item in at.table.scan() if "/d/" in str(item["place"])]
    for item in random.sample(items, random.randint(1, 6)):
        if "/x/" not in str(item["place"]):
            at.table.delete(at.table.schema.key_of(item))
    lake = at.client()[1]
    for _ in range(6):
        if (found := lake.maintenance.fsck(grace=0)).is_clean:
            break
        list(lake.maintenance.repair(found.findings, dry_run=False))
    assert lake.maintenance.fsck(objects=True, orphans=True).is_clean
    assert {found.path: found.entry.id for found in lake.walk()} == before


def _back_to(at: World, backup: list[Item]) -> None:
    """Restore the items of a table from a backup."""
    for item in list(at.table.scan()):
        at.table.delete(at.table.schema.key_of(item))
    at.table.put_all(backup)


def _repaired(at: World) -> Namespace:
    """Return the namespace after repairs that leave no finding."""
    lake = at.client()[1]
    for _ in range(6):
        if (found := lake.maintenance.fsck(grace=0)).is_clean:
            break
        list(lake.maintenance.repair(found.findings, dry_run=False))
    assert lake.maintenance.fsck(objects=True).is_clean
    return lake


def test_entries_that_exchanged_places_since_a_backup_do_so_again(at: World) -> None:
    """These are two files, and three directories in a circle; each group takes one repair."""
    for name in "abcde":
        at.lake.make_directory(name)
        at.lake.write(f"{name}/{name}", b"1")
    backup = list(at.table.scan())
    for source, target in [("a/a", "t"), ("b/b", "a/a"), ("t", "b/b")]:
        at.lake.rename(source, target)
    for source, target in [("c", "t"), ("e", "c"), ("d", "e"), ("t", "d")]:
        at.lake.rename(source, target)
    before = at.entries(at.table)
    tree = {found.path: found.entry.id for found in at.lake.walk()}
    _back_to(at, backup)
    at.clock.advance(1)
    lake = at.client()[1]
    done = [
        each.outcome for each in lake.maintenance.repair(lake.maintenance.fsck().findings, dry_run=False)
    ]
    assert (done.count(RepairOutcome.DONE), done.count(RepairOutcome.CHANGED)) == (2, 3)
    assert lake.maintenance.fsck().is_clean and at.entries(at.table).keys() == before.keys()
    assert {found.path: found.entry.id for found in lake.walk()} == tree


def test_nothing_is_restored_into_a_removed_directory(at: World) -> None:
    """Another client removes the empty directory between the plan and the repair."""
    at.lake.write("d/f", b"1")
    lose(at, "d/f")
    found = at.lake.maintenance.fsck().findings
    wire, lake = at.client()

    def step(what: str, perform: Callable[[], object]) -> None:
        if what == "transact" and at.lake.exists("d"):
            at.lake.delete("d")
        perform()

    wire.step = step
    assert [each.outcome for each in lake.maintenance.repair(found, dry_run=False)] == [
        RepairOutcome.CHANGED
    ]


def test_repair_repeats_deletions_since_a_backup(at: World) -> None:
    """Each repeated deletion makes its tombstone; files whose objects others removed get none."""
    for path in ("raw/x", "raw/y", "raw/z", "raw/d/x", "raw/e/x"):
        at.store.put(path, b"of others")
    at.lake.bindings.bind("raw/", "in", max_age=60)
    at.lake.bindings.sync("in")
    at.lake.delete("in/z")
    at.store.delete("raw/z")
    at.lake.bindings.prune("in")
    at.clock.advance(100)
    at.store.put("raw/z", b"again")
    at.lake.bindings.sync("in")
    at.lake.write("own", b"1")
    own = entry(at, "own").data
    backup = list(at.table.scan())
    at.clock.advance(1)
    at.lake.delete("in/x")
    at.lake.rename("in/y", "y")
    at.lake.delete("in/d", recursive=True)
    at.lake.delete("own")
    for path in ("raw/z", "raw/e/x"):
        at.store.delete(path)
    at.clock.advance(100)
    at.lake.bindings.sync("in")
    tree = [found.path for found in at.lake.walk()]
    _back_to(at, backup)
    lake = _repaired(at)
    hidden = {str(item["name"]) for item in at.table.scan() if "/t/" in str(item["place"])}
    assert hidden == {"x", "y", "d/"}
    at.clock.advance(100)
    at.store.put("raw/z", b"another")
    at.store.put("raw/e/x", b"another")
    tree += ["in/e/x", "in/z"]
    assert sorted(found.path for found in lake.walk()) == sorted(tree)
    lake.maintenance.empty_trash()
    at.clock.advance(1)
    lake.maintenance.gc()
    assert own is not None and at.store.begin_head(own.path)().info is None


@settings(max_examples=examples(8, 25))
@given(seed=st.integers(0, 2**32))
def test_lost_records_without_a_log_leave_a_sound_namespace(seed: int) -> None:
    """Every file with an entry can be found, at its path or in lost+found."""
    random = Random(seed)
    at = world(seed)
    made = Namespace(at.table, at.store, "other", clock=at.clock, new_id=at.word)
    made.create()
    fill(made, at.clock)
    items = [item for item in at.table.scan() if str(item["place"]).startswith("other/")]
    for item in random.sample(items, random.randint(1, 6)):
        if "/x/" not in str(item["place"]):
            at.table.delete(at.table.schema.key_of(item))
    left = {str(item["id"]) for item in at.table.scan() if item.get("id") and b'"data"' in item["body"]}  # type: ignore[operator]
    lake = Namespace(at.table, at.store, "other", clock=at.clock, new_id=at.word)
    for _ in range(6):
        if (found := lake.maintenance.fsck(grace=0)).is_clean:
            break
        list(lake.maintenance.repair(found.findings, dry_run=False))
    assert lake.maintenance.fsck().is_clean
    reached = {each.entry.id for each in lake.walk() if not each.is_directory}
    assert left == {each.id for each in at.entries(at.table).values() if not each.is_directory}
    assert reached <= left
