"""Emptying the trash and collecting garbage: in bulk, with a report of all failures."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing

import pytest
from attrs import evolve

from commitlog.aws import AwsOptions
from commitlog.errors import AccessDenied, CommitError, Conflict, OutcomeUnknown, Unavailable
from commitlog.namespace import GcReport, Namespace, RequestCounts, TrashReport
from commitlog.namespace.model.codec import item_name
from commitlog.namespace.model.keys import Keys, parse_hash_key
from commitlog.paths import MAX_PATH_BYTES
from commitlog.stores.memory import MemoryStore
from commitlog.stores.s3.store import S3Store
from commitlog.tables.api import Delete, Key, Put, TableCondition, Write
from commitlog.testing import ManualClock
from support.namespace import QUICK, Auditor, InterceptedTable, ServiceTable, objects_in, stored

LAKE = "lake"


class Failing(MemoryStore):
    """A store that fails to remove some objects.

    Attributes:
        errors: for a path, the errors of its removals, in order.
        asked: the paths of each removal.
        performs: whether objects are removed despite the error.
    """

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock=clock)
        self.errors: dict[str, list[CommitError]] = {}
        self.asked: list[list[str]] = []
        self.performs = False

    def delete_many(self, paths: Iterable[str]) -> dict[str, CommitError]:
        """Remove the objects that have no error."""
        self.asked.append(list(paths))
        failed = {path: self.errors[path].pop(0) for path in self.asked[-1] if self.errors.get(path)}
        super().delete_many([path for path in self.asked[-1] if self.performs or path not in failed])
        return failed


class Site:
    """A namespace whose requests can be intercepted, with any amount of garbage."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = Failing(self.clock)
        self.table = ServiceTable(clock=self.clock)
        self.wire = InterceptedTable(self.table)
        self.lake = self.opened(self.wire)
        self.lake.create()

    def opened(self, table: ServiceTable | InterceptedTable) -> Namespace:
        """Return another client."""
        return Namespace(table, self.store, LAKE, clock=self.clock, backoff=QUICK, grace=0)

    def garbage(self, number: int) -> list[str]:
        """Make this number of objects of one byte without files; return their paths."""
        files = {f"{each:04}": stored(self.store, f"objects/{each:04}") for each in range(number)}
        self.lake.make_directory("d")
        self.lake.bulk_link("d", files)
        self.lake.delete("d", recursive=True)
        self.lake.maintenance.empty_trash()
        self.clock.advance(1)
        return [data.path for data in files.values()]

    def rows(self) -> int:
        """Audit the namespace, and return the number of records of garbage."""
        Auditor(self.table, LAKE, self.store).audit()
        return sum(str(item["place"]).startswith(f"{LAKE}/x/") for item in self.table.scan())


@pytest.fixture
def site() -> Site:
    """A new site."""
    return Site()


def test_many_objects_are_removed_with_few_requests(site: Site) -> None:
    """A request to the store removes a thousand objects, and a transaction a hundred records."""
    site.garbage(1050)
    before = site.lake.request_stats
    reported: list[GcReport] = []
    collected = site.lake.maintenance.gc(reported.append)
    assert collected == GcReport(objects=1050, bytes=1050)
    assert [each.objects for each in reported] == [1000, 1050]
    found = site.lake.request_stats.since(before).operations["gc"]
    # The store is verified before and after each request.
    assert found == RequestCounts(
        calls=1, queries=8, transactions=11, writes=1050, store_heads=4, store_bulk_deletes=2
    )
    assert site.rows() == 0 and not objects_in(site.store)
    assert site.lake.maintenance.gc() == GcReport()


def test_emptying_the_trash_reports_progress(site: Site) -> None:
    """It reports after each transaction, also within one directory."""
    files = {f"{each:04}": stored(site.store, f"objects/{each:04}") for each in range(120)}
    site.lake.make_directory("d")
    site.lake.bulk_link("d", files)
    site.lake.delete("d", recursive=True)
    reported: list[tuple[int, int]] = []
    site.lake.maintenance.empty_trash(lambda done: reported.append((done.files, done.directories)))
    assert reported == [(50, 0), (100, 0), (120, 0), (120, 1)]


@pytest.mark.parametrize("performs", [True, False])
@pytest.mark.parametrize("error", [OutcomeUnknown("lost"), Unavailable("busy"), Conflict("busy")])
def test_failed_removals_are_retried(site: Site, error: CommitError, performs: bool) -> None:
    """Only these are retried, and a later success counts."""
    paths = site.garbage(5)
    site.store.performs = performs
    site.store.errors = {paths[1]: [error], paths[3]: [error, error]}
    assert site.lake.maintenance.gc() == GcReport(objects=5, bytes=5)
    assert [len(asked) for asked in site.store.asked] == [5, 2, 1]
    assert site.rows() == 0


def test_objects_that_cannot_be_removed_are_reported(site: Site) -> None:
    """A permanent error is final after one attempt, a temporary one after eight; the objects stay."""
    paths = site.garbage(5)
    site.store.errors = {
        paths[0]: [AccessDenied("locked")],
        paths[1]: [Unavailable(f"busy {number}") for number in range(8)],
    }
    collected = site.lake.maintenance.gc()
    assert (collected.objects, collected.bytes) == (3, 3)
    assert dict(collected.failed) == {paths[0]: "locked", paths[1]: "busy 7"}
    assert sorted(info.path for info in objects_in(site.store)) == paths[:2]
    assert len(site.store.asked) == 8 and site.rows() == 2
    assert site.lake.maintenance.gc() == GcReport(objects=2, bytes=2)
    assert site.rows() == 0


def test_two_collectors_count_each_object_once(site: Site) -> None:
    """The client that removes the record counts it; removed records do not stop the rest."""
    site.garbage(4)
    other = site.opened(site.table)
    others: list[GcReport] = []

    def step(what: str, perform: Callable[[], object]) -> None:
        if what == "transact" and not others:
            others.append(other.maintenance.gc())
        perform()

    site.wire.step = step
    assert site.lake.maintenance.gc() == GcReport()
    assert others == [GcReport(objects=4, bytes=4)]
    assert site.rows() == 0


def test_records_removed_by_others_do_not_stop_the_rest(site: Site) -> None:
    """A missing record refuses the whole transaction; the other records are removed one by one."""
    site.garbage(4)

    def step(what: str, perform: Callable[[], object]) -> None:
        if what == "transact":
            record = next(
                item for item in site.table.scan() if str(item["place"]).startswith(f"{LAKE}/x/")
            )
            site.table.delete(site.table.schema.key_of(record))
        perform()

    site.wire.step = step
    assert site.lake.maintenance.gc().objects == 3
    assert site.rows() == 0


@pytest.mark.parametrize("times", [1, 99])
@pytest.mark.parametrize("applied", [True, False])
def test_a_lost_answer_to_the_removal_of_records(site: Site, applied: bool, times: int) -> None:
    """The request is repeated; without any answer the objects are reported, and gc can be repeated."""
    site.garbage(4)
    lost = 0

    def step(what: str, perform: Callable[[], object]) -> None:
        nonlocal lost
        if what != "transact" or lost == times:
            perform()
            return
        lost += 1
        if applied:
            perform()
        raise OutcomeUnknown("lost")

    site.wire.step = step
    if times == 1:
        assert site.lake.maintenance.gc().objects == 4
    else:
        collected = site.lake.maintenance.gc()
        assert (collected.objects, len(collected.failed), lost) == (0, 4, 8)
    assert not objects_in(site.store)
    site.wire.step = lambda what, perform: perform()
    assert site.lake.maintenance.gc().objects == (0 if applied or times == 1 else 4)
    assert site.rows() == 0


def test_an_own_earlier_removal_is_recognised(site: Site) -> None:
    """The table keeps no tokens, so it refuses the second request."""
    paths = site.garbage(3)
    right = site.table.transact

    def transact(writes: list[Write], *, token: str | None = None) -> None:
        right(writes, token=f"{token}+" if lost else token)
        if not lost:
            lost.append(token)
            raise OutcomeUnknown("lost")

    lost: list[str | None] = []
    site.table.transact = transact  # type: ignore[assignment,method-assign]
    assert site.lake.maintenance.gc() == GcReport(objects=len(paths), bytes=len(paths))
    assert site.rows() == 0


@pytest.mark.parametrize("times", [3, 99])
@pytest.mark.parametrize("error", [Unavailable("throttled"), Conflict("another collector")])
def test_refused_removals_of_records_are_retried(site: Site, error: CommitError, times: int) -> None:
    """Records that stay are reported, and the next call removes them."""
    paths = site.garbage(120)
    refused = 0

    def step(what: str, perform: Callable[[], object]) -> None:
        nonlocal refused
        if what == "transact" and refused < times:
            refused += 1
            raise error
        perform()

    site.wire.step = step
    collected = site.lake.maintenance.gc()
    if times == 3:
        assert collected == GcReport(objects=120, bytes=120)
    else:
        assert collected.objects == 0 and dict(collected.failed) == dict.fromkeys(paths, str(error))
        assert refused == 16 and site.rows() == 120
        site.wire.step = lambda what, perform: perform()
        assert site.lake.maintenance.gc().objects == 120
    assert site.rows() == 0 and not objects_in(site.store)


@pytest.mark.parametrize("error", [Unavailable("throttled"), Conflict("another collector")])
def test_removals_of_single_records_are_retried_too(site: Site, error: CommitError) -> None:
    """They follow a refused transaction; if one of them fails, the others still count."""
    site.garbage(4)
    records = [item for item in site.table.scan() if str(item["place"]).startswith(f"{LAKE}/x/")]
    gone, flaky, stuck, _ = map(site.table.schema.key_of, records)
    right = site.table.delete
    once, refusing = [True], True

    def delete(key: Key, *, condition: TableCondition | None = None) -> None:
        if (key == flaky and once and once.pop()) or (key == stuck and refusing):
            raise error
        right(key, condition=condition)

    def step(what: str, perform: Callable[[], object]) -> None:
        if what == "transact":
            right(gone)
        perform()

    site.table.delete = delete  # type: ignore[method-assign]
    site.wire.step = step
    collected = site.lake.maintenance.gc()
    assert (collected.objects, [reported for _, reported in collected.failed]) == (2, [str(error)])
    refusing = False
    assert site.lake.maintenance.gc().objects == 1 and site.rows() == 0


def test_a_store_that_refuses_a_whole_removal(site: Site) -> None:
    """The request is retried; if it keeps failing, each of its objects is reported."""
    paths = site.garbage(3)
    right, shed = site.store.delete_many, 0

    def delete_many(paths: Iterable[str]) -> dict[str, CommitError]:
        nonlocal shed
        shed += 1
        if shed <= 8 or shed == 9:
            raise Unavailable("busy")
        return right(paths)

    site.store.delete_many = delete_many  # type: ignore[method-assign]
    assert dict(site.lake.maintenance.gc().failed) == dict.fromkeys(paths, "busy")
    assert site.lake.maintenance.gc() == GcReport(objects=3, bytes=3)


def test_a_failed_listing_is_reported(site: Site) -> None:
    """The other parts of the garbage are removed. A failed listing of the trash is reported, too."""
    site.garbage(3)
    site.lake.make_directory("e")
    site.lake.delete("e", recursive=True)
    queries = 0

    def step(what: str, perform: Callable[[], object]) -> None:
        nonlocal queries
        if what == "query":
            queries += 1
            if queries == 1:
                raise Unavailable("throttled")
        perform()

    site.wire.step = step
    collected = site.lake.maintenance.gc()
    assert [reported for _, reported in collected.failed] == ["throttled"]
    assert collected.objects + site.lake.maintenance.gc().objects == 3
    queries = 0
    assert site.lake.maintenance.empty_trash() == TrashReport(failed=(("trash", "throttled"),))
    assert site.lake.maintenance.empty_trash() == TrashReport(directories=1)


def test_a_throttled_table_does_not_stop_the_rest(site: Site) -> None:
    """Refused removals are reported; the rest of the trash is removed."""
    for number in range(3):
        site.lake.write(f"d{number}/f", b"1")
    ids = {site.lake.stat(f"d{number}").entry.id for number in range(3)}
    for number in range(3):
        site.lake.delete(f"d{number}", recursive=True)
    sent = 0

    def step(what: str, perform: Callable[[], object]) -> None:
        nonlocal sent
        if what == "transact":
            sent += 1
            if 3 <= sent < 11:
                raise Unavailable("throttled")
        perform()

    site.wire.step = step
    swept = site.lake.maintenance.empty_trash()
    assert (swept.files, swept.directories) == (2, 2)
    assert [reported for _, reported in swept.failed] == ["throttled"] and swept.failed[0][0] not in ids
    assert site.lake.maintenance.empty_trash() == TrashReport(files=1, directories=1)
    assert site.rows() == 3


def test_a_directory_stays_until_its_tombstones_are_removed(site: Site) -> None:
    """It stays in the trash and is reported; the next call removes it with them."""
    for name in "ab":
        site.store.put(f"raw/{name}", b"1")
    site.lake.bindings.bind("raw/", "b")
    id = site.lake.stat("b").entry.id
    for name in "ab":
        site.lake.delete(f"b/{name}")
    site.lake.delete("b", recursive=True)
    site.wire.step = lambda what, perform: _raise() if what == "transact" else perform()
    assert site.lake.maintenance.empty_trash() == TrashReport(failed=((id, "throttled"),))
    site.wire.step = lambda what, perform: perform()
    assert site.lake.maintenance.empty_trash() == TrashReport(directories=1)
    assert not [item for item in site.table.scan() if f"/t/{id}" in str(item["place"])]


def _raise() -> None:
    raise Unavailable("throttled")


def test_a_file_that_cannot_be_removed_is_reported(site: Site) -> None:
    """Its removal keeps conflicting; all else is removed, and the next call removes the file, too.

    The file is in a shard that its directory did not have at first, and keeps the directory.
    """
    lake = site.lake
    lake.make_directory("d")
    lake.reshard("d", shards=64)
    for number in range(3):
        lake.write(f"d/{number}", b"1")
    stuck = lake.stat("d/1").entry
    assert parse_hash_key(stuck.key.hash).shard > 0
    lake.delete("d", recursive=True)
    refusing = True

    right = site.table.transact

    def transact(writes: list[Write], *, token: str | None = None) -> None:
        if refusing and any(isinstance(each, Delete) and each.key == stuck.key for each in writes):
            raise Conflict("busy")
        right(writes, token=token)

    site.table.transact = transact  # type: ignore[assignment,method-assign]
    assert lake.maintenance.empty_trash() == TrashReport(files=2, failed=((stuck.id, "busy"),))
    refusing = False
    assert lake.maintenance.empty_trash() == TrashReport(files=1, directories=1)
    assert site.rows() == 3


@pytest.mark.parametrize("own", [False, True])
def test_files_with_a_common_object_are_removed_together(site: Site, own: bool) -> None:
    """One transaction can remove or overwrite several files with the same object.

    The object is another program's, or is own content, which breaks a rule.
    """
    data = evolve(stored(site.store, "old/a"), own=own)
    for path in ("d/a", "d/b", "e/a", "e/b"):
        site.lake.link(path, data)
    site.lake.delete("d", recursive=True)
    assert site.lake.maintenance.empty_trash() == TrashReport(files=2, directories=1)
    site.clock.advance(1)
    new = {f"e/{name}": stored(site.store, name) for name in "ab"}
    site.lake.link_many(new)
    site.lake.maintenance.gc()
    assert (site.store.begin_head("old/a")().info is None) is own


def test_a_file_with_the_longest_object_path_can_be_deleted(site: Site) -> None:
    """The object is another program's, and stays."""
    path = "/".join(["x" * 204] * 5)
    assert len(path) == MAX_PATH_BYTES
    site.lake.link("a", evolve(stored(site.store, path), own=False))
    site.lake.delete("a")
    site.lake.maintenance.gc()
    assert site.store.head(path).size == 1


def test_a_directory_that_cannot_be_removed_is_reported(site: Site) -> None:
    """The report has its id."""
    site.lake.make_directory("d/e")
    inner = site.lake.stat("d/e").entry
    site.lake.delete("d", recursive=True)
    right = site.table.transact
    lost = 0

    def transact(writes: list[Write], *, token: str | None = None) -> None:
        nonlocal lost
        if lost < 8 and any(
            isinstance(each, Put) and each.item.get("id") == inner.id for each in writes
        ):
            lost += 1
            raise OutcomeUnknown("lost")
        right(writes, token=token)

    site.table.transact = transact  # type: ignore[assignment,method-assign]
    reported: list[TrashReport] = []
    swept = site.lake.maintenance.empty_trash(reported.append)
    assert (inner.id, "lost") in {failed for each in reported for failed in each.failed} | {
        *swept.failed
    }
    site.lake.maintenance.empty_trash()
    assert site.rows() == 0
    assert not [item for item in site.table.scan() if "/trash/" in str(item["place"])]


def test_files_with_large_records_are_removed_in_smaller_batches(site: Site) -> None:
    """A batch is halved until the table takes it."""
    files = {f"{number:02}": stored(site.store, f"objects/{number:02}") for number in range(40)}
    site.lake.make_directory("d")
    site.lake.bulk_link("d", files, attributes={"k": "x" * 80_000})
    site.lake.delete("d", recursive=True)
    sent: list[int] = []
    right = site.table.transact

    def transact(writes: list[Write], *, token: str | None = None) -> None:
        sent.append(len(writes))
        if len(writes) > 24:  # a service may count removed items, too
            raise ValueError("the transaction is 4500000 bytes")
        right(writes, token=token)

    site.table.transact = transact  # type: ignore[assignment,method-assign]
    assert site.lake.maintenance.empty_trash() == TrashReport(files=40, directories=1)
    assert sent == [80, 40, 20, 20, 40, 20, 20, 2]


def test_inconsistent_directories_do_not_stop_the_rest(site: Site) -> None:
    """They are reported, however many there are, and the directories after them are removed."""
    for number in range(102):
        site.lake.make_directory(f"d/{number:03}/e")
    ids = {f"{number:03}": site.lake.stat(f"d/{number:03}").entry.id for number in range(102)}
    for number in range(102):
        site.lake.delete(f"d/{number:03}", recursive=True)
    good = ids.pop(max(ids, key=lambda name: ids[name]))
    for id in ids.values():
        site.table.delete(Keys(LAKE).directory(id))
    swept = site.lake.maintenance.empty_trash()
    assert (swept.directories, {id for id, _ in swept.failed}) == (103, {*ids.values()})
    assert "check the namespace" in swept.failed[0][1]
    assert site.table.get(Keys(LAKE).directory(good)) is None
    assert {found.id for found in site.lake.maintenance.fsck().findings} == {*ids.values()}
    for _ in site.lake.maintenance.repair(site.lake.maintenance.fsck().findings, dry_run=False):
        pass
    assert site.lake.maintenance.empty_trash() == TrashReport(directories=101)


def test_a_subdirectory_that_cannot_be_moved_is_reported(site: Site) -> None:
    """Its parent is in the trash; all else is removed."""
    site.lake.make_directory("d/e")
    site.lake.write("d/f", b"1")
    inner = site.lake.stat("d/e").entry.id
    site.table.delete(Keys(LAKE).guard(inner, 0))
    site.lake.delete("d", recursive=True)
    swept = site.lake.maintenance.empty_trash()
    assert swept.files == 1 and [id for id, _ in swept.failed] == [inner]


def test_an_unreadable_record_does_not_stop_the_rest(site: Site) -> None:
    """In the trash or in the garbage, it is reported, and all else is removed."""
    for directory in "abc":
        site.lake.make_directory(f"{directory}/d")
        for name in "xyz":
            site.lake.write(f"{directory}/{name}", b"1")
    file, inner = site.lake.stat("b/y").entry, site.lake.stat("c/d").entry
    trashed = {site.lake.stat(each).id for each in "bc"}
    for directory in "abc":
        site.lake.delete(directory, recursive=True)
    for entry in file, inner:
        site.table.put({**entry.to_item(), "body": b"{"})
    swept = site.lake.maintenance.empty_trash()
    assert (swept.files, swept.directories) == (8, 3)
    assert {key for key, _ in swept.failed} == {item_name(each.to_item()) for each in (file, inner)}
    assert site.lake.maintenance.empty_trash().failed == swept.failed
    left = [item for item in site.table.scan() if str(item["place"]).startswith(f"{LAKE}/e/trash/")]
    assert {item["id"] for item in left} == trashed
    site.table.put({**left[0], "body": b"{"})  # an unreadable record in the trash itself
    assert item_name(left[0]) in dict(site.lake.maintenance.empty_trash().failed)
    garbage = [item for item in site.table.scan() if str(item["place"]).startswith(f"{LAKE}/x/")]
    site.table.put({**garbage[0], "body": b"{"})
    site.clock.advance(1)
    collected = site.lake.maintenance.gc()
    assert collected.objects == len(garbage) - 1
    assert [key for key, _ in collected.failed] == [item_name(garbage[0])]


@pytest.mark.servers
@pytest.mark.parametrize("kind", ["ministack", "seaweedfs"])
def test_on_real_stores(request: pytest.FixtureRequest, kind: str) -> None:
    """One request removes all objects; files in use stay."""
    server = request.getfixturevalue(kind)
    clock = ManualClock()
    options = AwsOptions(**server.options)
    with closing(S3Store(f"s3://{server.new_bucket()}/content", options=options)) as store:
        lake = Namespace(ServiceTable(clock=clock), store, LAKE, clock=clock, grace=0)
        lake.create()
        for number in range(40):
            lake.write(f"d/{number}", b"12")
        lake.rename("d/7", "kept")
        lake.delete("d", recursive=True)
        assert lake.maintenance.empty_trash().files == 39
        clock.advance(1)
        assert lake.maintenance.gc() == GcReport(objects=39, bytes=78)
        assert lake.request_stats.operations["gc"].store == 1 + 2
        assert lake.read("kept") == b"12"
        assert len(objects_in(store)) == 1
