"""Directories bound to a prefix of the store: visible and hidden objects, and the cost in requests."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from attrs import define, evolve, field

from commitlog.errors import (
    AccessDenied,
    AlreadyExists,
    CommitError,
    ConfigurationError,
    Conflict,
    DirectoryNotEmpty,
    IsADirectory,
    NotADirectory,
    NotFound,
    ObjectChanged,
    PreconditionFailed,
    TableNotFound,
    Unavailable,
)
from commitlog.namespace import NAMESPACE_SCHEMA, Data, Namespace, PruneReport, SyncReport, TrashReport
from commitlog.namespace.model.keys import Keys
from commitlog.stores.api import InFlight, Observation, Page
from commitlog.stores.memory import MemoryStore
from commitlog.stores.open import open_store
from commitlog.tables.api import Delete, Table, Write
from commitlog.tables.open import open_table
from commitlog.testing import ManualClock
from support.namespace import QUICK, Auditor, InterceptedTable, ServiceTable, outcome
from support.servers import Ministack

LAKE = "lake"


class CountedStore(MemoryStore):
    """A store that counts requests, and can be given the etags of the next objects."""

    def __init__(self, clock: ManualClock) -> None:
        self.asked: Counter[str] = Counter()
        self.etags: list[str] = []
        self._made = 0
        super().__init__(clock=clock, new_id=self._next_id)

    def _next_id(self) -> str:
        self._made += 1
        return self.etags.pop() if self.etags else f"{self._made:032x}"

    def begin_head(self, path: str) -> InFlight[Observation]:
        """A HEAD."""
        self.asked["head"] += 1
        return super().begin_head(path)

    def list_page(self, *args: object, **named: object) -> Page:
        """A listing."""
        self.asked["list"] += 1
        return super().list_page(*args, **named)  # type: ignore[arg-type]


@define
class Place:
    """A namespace, and the store to which other programs write."""

    table: Table
    clock: ManualClock = field(factory=ManualClock)
    store: CountedStore = field(init=False)
    wire: InterceptedTable = field(init=False)
    lake: Namespace = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.store = CountedStore(self.clock)
        self.wire = InterceptedTable(self.table)
        self.lake = self.client(self.wire)
        self.lake.create()

    def client(self, table: Table) -> Namespace:
        """Return another client."""
        return Namespace(table, self.store, LAKE, clock=self.clock, backoff=QUICK, grace=0)

    def put(self, *paths: str, body: bytes | None = None) -> None:
        """Put an object at each path, as another program; its content is the path."""
        for path in paths:
            self.store.put(path, path.encode() if body is None else body)

    def wait(self, seconds: float = 1) -> None:
        """Advance the clock."""
        self.clock.advance(seconds)

    def forget(self) -> None:
        """Reset the request counters."""
        self.wire.requests.clear()
        self.store.asked.clear()

    def see(self, path: str = "b") -> list[str]:
        """Return the visible paths below a path; directories end in a slash."""
        return [
            each.path.removeprefix(f"{path}/") + "/" * each.is_directory for each in self.lake.walk(path)
        ]

    def rows(self) -> list[str]:
        """Audit the table, and return the paths of all rows."""
        return sorted(Auditor(self.table, LAKE).audit())

    def tombstones(self) -> list[str]:
        """Return the names that tombstones hide."""
        return sorted(str(item["name"]) for item in self.table.scan() if "/t/" in str(item["place"]))


@pytest.fixture(params=["memory", "sqlite"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A new namespace on each kind of table; it is audited after the test."""
    table: Table
    if request.param == "memory":
        table = ServiceTable()
    else:
        table = open_table(f"sqlite://{tmp_path}/names.db", NAMESPACE_SCHEMA)
        table.create()
    found = Place(table)
    yield found
    found.rows()
    table.close()


@pytest.fixture
def quick() -> Place:
    """A new namespace in memory, for tests that do not depend on the table."""
    return Place(ServiceTable())


AGES: list[float | None] = [0, 60, None]
every_age = pytest.mark.parametrize("max_age", AGES, ids=["always ask", "aged", "authoritative"])


# -- reading -----------------------------------------------------------------------------------------


@every_age
def test_a_bound_directory_shows_the_objects_of_its_prefix(place: Place, max_age: float | None) -> None:
    """The first listing has all objects, and the directory's own entries, in order, at any depth."""
    place.put("raw/a", "raw/a-b", "raw/d/x", "raw/d/e/y", "raw/z/1", "other/o")
    place.lake.write("b/d-own", b"own")
    place.lake.bindings.bind("raw/", "b", max_age=max_age)
    assert place.see() == ["a", "a-b", "d/", "d/e/", "d/e/y", "d/x", "d-own", "z/", "z/1"]
    assert place.lake.read("b/d/e/y") == b"raw/d/e/y"
    status = place.lake.stat("b/a")
    info = place.store.head("raw/a")
    assert (status.size, status.etag, status.modified) == (5, info.etag, int(info.last_modified * 1000))
    assert status.data == Data.of(info) and not status.data.own
    assert place.lake.summary("b").files == 6
    assert not place.lake.exists("b/nothing") and not place.lake.exists("b/a/x")


def test_an_object_without_a_row_can_be_the_expected_one(place: Place) -> None:
    """A precondition on an object without a row holds until the object is replaced."""
    place.put("raw/f", "raw/d/x", "raw/e/x")
    place.lake.bindings.bind("raw/", "b", max_age=0)
    reader = place.lake
    seen = {each.name: each for each in reader.list("b")}
    assert (
        outcome(lambda: reader.delete("b/e", recursive=True, expected=seen["f"])) is PreconditionFailed
    )
    reader.delete("b/e", recursive=True, expected=seen["e"])
    place.wait(1)
    place.put("raw/f", body=b"other")
    assert outcome(lambda: reader.delete("b/f", expected=seen["f"])) is PreconditionFailed
    before = reader.stat("b/f")
    reader.set_attributes("b/f", attributes={"a": "b"}, expected=before)
    assert outcome(lambda: reader.delete("b/f", expected=before)) is PreconditionFailed
    reader.delete("b/f", expected=reader.stat("b/f"))
    assert place.see() == ["d/", "d/x"]


@every_age
def test_linking_many_replaces_no_object_of_others(quick: Place, max_age: float | None) -> None:
    """Another program's object takes its name even without a row; it keeps its content."""
    quick.lake.bindings.bind("raw/", "b", max_age=max_age)
    quick.put("raw/new")
    quick.lake.bindings.sync()
    quick.put("raw/newer")
    with quick.lake.open_writer("b/x") as writer:
        data = writer.finish()
    with pytest.raises(AlreadyExists):
        quick.lake.bulk_link("b", {"new": data})
    assert quick.lake.read("b/new") == b"raw/new"
    if max_age == 0:
        with pytest.raises(AlreadyExists):
            quick.lake.bulk_link("b", {"newer": data})
        assert quick.lake.read("b/newer") == b"raw/newer"


@every_age
def test_pages_have_the_order_of_the_listing(quick: Place, max_age: float | None) -> None:
    """This holds also if a prefix sorts later in the store than its name in the directory."""
    quick.put("raw/a-1", "raw/a/x", "raw/b", "raw/c/y", "raw/c-1", "raw/d")
    quick.lake.bindings.bind("raw/", "b", max_age=max_age)
    quick.lake.write("b/bb", b"")
    found, token = [], None
    while True:
        page = quick.lake.list_page("b", limit=2, token=token)
        found += [each.name for each in page.entries]
        token = page.next_token
        if token is None:
            break
    assert found == [each.name for each in quick.lake.list("b")]
    assert found == ["a", "a-1", "b", "bb", "c", "c-1", "d"]


def test_a_later_page_does_not_refresh_the_directory(quick: Place) -> None:
    """A page after the first one, read after `max_age`, does not mark the directory as synchronised."""
    quick.put("raw/a", "raw/b", "raw/c")
    quick.lake.bindings.bind("raw/", "b", max_age=60)
    token = quick.lake.list_page("b", limit=1).next_token
    quick.wait(60)
    quick.put("raw/a-new", "raw/d")
    assert [each.name for each in quick.lake.list_page("b", token=token).entries] == [
        "a-new",
        "b",
        "c",
        "d",
    ]
    quick.put("raw/Z")
    assert quick.see() == ["Z", "a", "a-new", "b", "c", "d"]


def test_the_namespaces_own_objects_are_skipped(quick: Place) -> None:
    """Own content, the log, names that no file can have and the directory's marker are skipped."""
    word = "0b1c2d3e4f50617283940a1b2c3d4e5f"
    quick.put(f"0b1/{word}", "0b1/theirs", f"0b1/{'x' * 300}", "_commitlog/log/1", f"0b1/{'y' * 300}/z")
    quick.lake.bindings.bind("0b1/", "b")
    assert quick.see() == ["theirs"]
    assert quick.lake.maintenance.import_objects("", "all").files == 1
    assert quick.lake.bindings.sync("b").unfit == (f"0b1/{'x' * 300}", f"0b1/{'y' * 300}/")


def test_a_rename_replaces_an_empty_bound_directory(quick: Place) -> None:
    """The old directory's rows without objects and its tombstones are removed with the trash."""
    quick.put("raw/gone", "raw/hidden")
    quick.lake.bindings.bind("raw/", "b", max_age=60)
    quick.see()
    quick.lake.delete("b/hidden")
    quick.store.delete("raw/gone")
    quick.wait(60)
    quick.lake.make_directory("new")
    quick.lake.rename("new", "b", overwrite=True)
    assert quick.rows() == ["b"]
    assert quick.lake.maintenance.empty_trash() == TrashReport(files=1, directories=1)
    assert quick.rows() == ["b"] and quick.tombstones() == []


ODD = ("raw/../a", "raw/./b", "raw//c", "raw/d\x01", "raw/e\x02/f", "raw/g//h", "raw/g/i")


def test_objects_with_paths_that_no_file_can_have(quick: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them is reported, and none prevents other work."""
    with monkeypatch.context() as lax:
        lax.setattr(quick.store, "key", str)  # S3 takes any key
        quick.put(*ODD)
    quick.lake.bindings.bind("raw/", "b", max_age=None)
    assert quick.see() == ["g/", "g/i"]
    synced = quick.lake.bindings.sync()
    assert set(synced.unfit) == {
        *("raw/../", "raw/./", "raw//", "raw/d\x01", "raw/e\x02/", "raw/g//"),
    }
    reported = [*quick.lake.bindings.diff()]
    assert {each.kind for each in reported} == {"unknown"}
    odd = {path for path in ODD if path != "raw/g/i"}
    assert {each.status.data.path for each in reported if each.status.data} == odd
    assert {each.status.path for each in reported} == {path.replace("raw", "b", 1) for path in odd}
    adopted = quick.lake.maintenance.import_objects("raw/", "all")
    assert {path for path, _ in adopted.refused} == odd
    assert adopted.files == 1
    assert quick.rows() == ["all", "all/g", "all/g/i", "b", "b/g", "b/g/i"]


def test_an_object_hides_a_prefix_of_the_same_name(quick: Place) -> None:
    """Objects below the prefix cannot be reached, and are reported."""
    quick.put("raw/a", "raw/a/x")
    quick.lake.bindings.bind("raw/", "b")
    assert quick.see() == ["a"]
    assert not quick.lake.stat("b/a").is_directory
    assert quick.lake.bindings.sync().unfit == ("raw/a/",)
    assert [(each.status.path, each.kind) for each in quick.lake.bindings.diff()] == [
        ("b/a/x", "unknown")
    ]
    quick.store.delete("raw/a")
    assert quick.see() == ["a/", "a/x"]
    assert quick.lake.bindings.sync() == SyncReport(directories=2, files=1, removed=1)
    assert quick.rows() == ["b", "b/a", "b/a/x"]


def test_a_change_replaces_a_file_whose_object_became_a_prefix(quick: Place) -> None:
    """The file's row is replaced by a directory before the change, in a transaction of its own."""
    quick.put("raw/a")
    quick.lake.bindings.bind("raw/", "b")
    quick.lake.bindings.sync()
    quick.store.delete("raw/a")
    quick.put("raw/a/x")
    quick.lake.rename("b/a", "moved")
    assert quick.see("") == ["b/", "moved/", "moved/x"]
    assert quick.rows() == ["b", "moved"]


# -- the matrix of changes by others -----------------------------------------------------------------

AS_IT_WAS = "listed as it was, stat as it was, reading fails as changed"
AS_IT_IS = "listed as it is, stat as it is, read as it is"
NOT_THERE = "not listed, no stat, not found"

OUT_OF_BAND = {
    ("overwrite", "authoritative"): AS_IT_WAS,
    ("overwrite", "younger than its age"): AS_IT_WAS,
    ("overwrite", "older than its age"): AS_IT_IS,
    ("overwrite", "always asked"): AS_IT_IS,
    ("delete", "authoritative"): AS_IT_WAS,
    ("delete", "younger than its age"): AS_IT_WAS,
    ("delete", "older than its age"): NOT_THERE,
    ("delete", "always asked"): NOT_THERE,
    ("create", "authoritative"): NOT_THERE,
    ("create", "younger than its age"): NOT_THERE,
    ("create", "older than its age"): AS_IT_IS,
    ("create", "always asked"): AS_IT_IS,
}


def observe(place: Place, path: str, before: int) -> str:
    """Describe how a file with a known earlier size looks after another program changed its object."""

    def size(found: int) -> str:
        return "as it was" if found == before else "as it is"

    listed = [each.size for each in place.lake.list("b") if each.path == path]
    try:
        stat = f"stat {size(place.lake.stat(path).size)}"
    except NotFound:
        stat = "no stat"
    try:
        read = f"read {size(len(place.lake.read(path)))}"
    except ObjectChanged:
        read = "reading fails as changed"
    except NotFound:
        read = "not found"
    return f"{'listed ' + size(listed[0]) if listed else 'not listed'}, {stat}, {read}"


@pytest.mark.parametrize("look_first", ["list", "stat"])
@pytest.mark.parametrize(("change", "state"), OUT_OF_BAND)
def test_changes_by_others(place: Place, change: str, state: str, look_first: str) -> None:
    """Changes are seen when the store is read: never, after `max_age`, or always; `sync` sees all."""
    max_age = {"authoritative": None, "always asked": 0}.get(state, 60)
    if change != "create":
        place.put("raw/f", body=b"12345")
    place.put("raw/other")
    place.lake.bindings.bind("raw/", "b", max_age=max_age)
    place.lake.bindings.sync()
    place.wait(61 if state == "older than its age" else 59)
    if change == "delete":
        place.store.delete("raw/f")
    else:
        place.put("raw/f", body=b"1234567")
    if look_first == "stat":
        place.lake.exists("b/f")
    assert observe(place, "b/f", 5) == OUT_OF_BAND[change, state]
    place.lake.bindings.sync()
    assert observe(place, "b/f", 5) == (NOT_THERE if change == "delete" else AS_IT_IS)


# -- costs -------------------------------------------------------------------------------------------


def test_age_zero_reads_the_store_and_stores_nothing(quick: Place) -> None:
    """A listing takes one store listing; a name takes a HEAD; a missing name also takes a listing."""
    quick.put("raw/a", "raw/d/x")
    quick.lake.bindings.bind("raw/", "b")
    quick.lake.stat("b")
    for look, heads, lists in (
        (lambda: list(quick.lake.list("b")), 0, 1),
        (lambda: quick.see(), 0, 2),
        (lambda: quick.lake.stat("b/a"), 1, 0),
        (lambda: quick.lake.stat("b/d/x"), 2, 1),
        (lambda: quick.lake.exists("b/none"), 1, 1),
        (lambda: quick.lake.stat("b"), 0, 0),
    ):
        quick.forget()
        look()
        assert (quick.store.asked["head"], quick.store.asked["list"]) == (heads, lists)
        assert not quick.wire.requests["transact"] and not quick.wire.requests["put"]
    assert quick.rows() == ["b"]


def test_the_store_is_read_again_when_max_age_is_reached(quick: Place) -> None:
    """The last listing is in the table, so the store gets no request until then."""
    quick.put("raw/a", "raw/d/x")
    quick.lake.bindings.bind("raw/", "b", max_age=60)
    assert quick.see() == ["a", "d/", "d/x"]
    assert quick.rows() == ["b", "b/a", "b/d", "b/d/x"]
    quick.wait(59)
    quick.forget()
    quick.see()
    assert quick.lake.exists("b/a") and not quick.lake.exists("b/none")
    quick.lake.write("b/own", b"")
    assert not quick.store.asked
    quick.wait(1)
    quick.see()
    assert quick.store.asked == {"list": 2}
    assert quick.lake.stat("b").binding is not None


def test_a_listing_without_changes_stores_only_the_time(quick: Place) -> None:
    """A directory without changes costs a listing, and one transaction for its synchronisation time."""
    quick.put(*(f"raw/{number:04}" for number in range(1200)))
    quick.lake.bindings.bind("raw/", "b", max_age=None)
    quick.forget()
    assert quick.lake.bindings.sync() == SyncReport(directories=1, files=1200)
    assert quick.store.asked == {"list": 2}
    assert quick.wire.requests["transact"] == -(-1200 // 49) + 1
    quick.forget()
    assert quick.lake.bindings.sync() == SyncReport(directories=1)
    assert quick.store.asked == {"list": 2} and quick.wire.requests["transact"] == 1


#: Changes in a synchronised directory: name, change, reads of the table, writes in the transaction.
WRITES: list[tuple[str, Callable[[Namespace], object], int, int]] = [
    ("delete a file", lambda lake: lake.delete("b/a"), 2, 3),
    ("rename a file", lambda lake: lake.rename("b/a", "b/aa"), 3, 4),
    ("write over a file", lambda lake: lake.write("b/a", b""), 2, 3),
    ("write a new file", lambda lake: lake.write("b/new", b""), 2, 2),
    ("delete a directory", lambda lake: lake.delete("b/d", recursive=True), 2, 5),
    ("rename a directory", lambda lake: lake.rename("b/d", "b/dd"), 3, 5),
    ("make a directory", lambda lake: lake.make_directory("b/new"), 3, 5),
]


@pytest.mark.parametrize(("what", "change", "gets", "writes"), WRITES, ids=[each[0] for each in WRITES])
def test_a_change_in_a_bound_directory_costs_one_write_more(
    quick: Place,
    monkeypatch: pytest.MonkeyPatch,
    what: str,
    change: Callable[[Namespace], object],
    gets: int,
    writes: int,
) -> None:
    """The additional write makes or excludes a tombstone; the store gets no request."""
    quick.put("raw/a", "raw/d/x")
    quick.lake.bindings.bind("raw/", "b", max_age=None)
    quick.lake.bindings.sync()
    sizes: list[int] = []
    right = quick.table.transact

    def transact(all: Sequence[Write], *, token: str | None = None) -> None:
        sizes.append(len(all))
        right(all, token=token)

    monkeypatch.setattr(quick.table, "transact", transact)
    quick.forget()
    change(quick.lake)
    assert (quick.wire.requests["get"], sizes) == (gets, [writes])
    assert not quick.store.asked


def test_a_directory_with_shards_can_be_bound(quick: Place) -> None:
    """The guards of its shards leave room for files in a transaction."""
    quick.put(*(f"raw/{number:04}" for number in range(200)))
    quick.lake.make_directory("b", shards=64)
    quick.lake.bindings.bind("raw/", "b", max_age=None)
    assert len(quick.see()) == 200
    assert len(quick.rows()) == 201


# -- changes by the namespace ------------------------------------------------------------------------


@every_age
def test_objects_of_others_can_be_renamed_and_deleted(place: Place, max_age: float | None) -> None:
    """They behave like files of the namespace; the objects stay in the store, and do not reappear."""
    place.put("raw/a", "raw/b", "raw/c", "raw/d/x", "raw/e/y")
    place.lake.bindings.bind("raw/", "b", max_age=max_age)
    place.lake.bindings.sync()
    place.put("raw/new")  # not visible in an authoritative directory
    before = {info.path for info in place.store.list("raw/")}
    place.lake.delete("b/a")
    place.lake.rename("b/b", "b/bb")
    place.lake.rename("b/c", "c")
    place.lake.rename("b/d", "d")
    place.lake.delete("b/e", recursive=True)
    new = [] if max_age != 0 else ["new"]
    assert place.see() == ["bb", *new]
    assert place.lake.read("b/bb") == b"raw/b" and place.lake.read("c") == b"raw/c"
    assert place.see("d") == ["x"]
    assert place.tombstones() == ["a", "b", "c", "d/", "e/"]
    place.lake.bindings.sync()
    assert place.see() == ["bb", "new"]
    place.lake.maintenance.empty_trash()
    place.wait()
    place.lake.maintenance.gc()
    assert {info.path for info in place.store.list("raw/")} == before
    place.lake.bindings.sync()
    assert place.see() == ["bb", "new"]


@every_age
def test_an_object_without_a_row_can_be_changed(place: Place, max_age: float | None) -> None:
    """In a directory that was never synchronised, the object first gets a row."""
    place.put("raw/a", "raw/b", "raw/c", "raw/d/x", "raw/e/f/y", "raw/g")
    place.lake.bindings.bind("raw/", "b", max_age=max_age)
    place.lake.delete("b/a")
    assert place.lake.rename("b/b", "x").version == 2
    assert place.lake.set_attributes("b/c", attributes={"k": "v"}).attributes == {"k": "v"}
    place.lake.rename("b/d", "b/dd")
    place.lake.write("b/e/f/own", b"own")
    with pytest.raises(AlreadyExists):
        place.lake.write("b/g", b"", overwrite=False)
    with pytest.raises(AlreadyExists):
        place.lake.make_directory("b/g")
    with pytest.raises(NotADirectory):
        place.lake.write("b/g/x", b"")
    with pytest.raises(IsADirectory):
        place.lake.write("b/e", b"")
    with pytest.raises(NotFound):
        place.lake.delete("b/none")
    assert place.see() == ["c", "dd/", "dd/x", "e/", "e/f/", "e/f/own", "e/f/y", "g"]


def test_a_change_uses_the_current_object(quick: Place) -> None:
    """A file whose object was replaced is renamed with its new content; a removed one is not found."""
    quick.put("raw/a", "raw/b", "raw/c")
    quick.lake.bindings.bind("raw/", "b")
    quick.lake.bindings.sync()
    quick.wait()
    quick.put("raw/a", body=b"newer")
    quick.store.delete("raw/b")
    quick.lake.rename("b/a", "a")
    assert quick.lake.read("a") == b"newer"
    assert quick.see() == ["c"]
    with pytest.raises(NotFound):
        quick.lake.delete("b/b")
    assert quick.rows() == ["a", "b", "b/c"]


@every_age
def test_a_directory_with_objects_in_it_is_not_empty(quick: Place, max_age: float | None) -> None:
    """Objects without rows count; hidden objects do not."""
    quick.put("raw/d/x")
    quick.lake.bindings.bind("raw/", "b", max_age=max_age)
    with pytest.raises(DirectoryNotEmpty):
        quick.lake.delete("b/d")
    quick.lake.delete("b/d/x")
    quick.lake.delete("b/d")
    assert quick.see() == []


def test_directories_made_in_a_bound_directory_are_bound(quick: Place) -> None:
    """They show later objects of their prefix; directories that were renamed into it do not."""
    quick.lake.bindings.bind("raw/", "b")
    quick.lake.make_directory("b/made")
    quick.lake.write("b/deep/er/own", b"")
    quick.lake.write("own/x", b"")
    quick.lake.rename("own", "b/own")
    quick.put("raw/made/1", "raw/deep/er/2", "raw/own/3")
    assert quick.see() == [
        "deep/",
        "deep/er/",
        "deep/er/2",
        "deep/er/own",
        "made/",
        "made/1",
        "own/",
        "own/x",
    ]


def test_a_bound_directory_keeps_its_prefix_when_renamed(place: Place) -> None:
    """New objects appear at the new path of the directory, and not at the old one."""
    place.put("raw/d/1")
    place.lake.bindings.bind("raw/", "b")
    place.lake.rename("b/d", "d")
    place.put("raw/d/2")
    assert (place.see("b"), place.see("d")) == ([], ["1", "2"])
    place.lake.rename("b", "bb")
    place.put("raw/3")
    assert (place.see("bb"), place.see("d")) == (["3"], ["1", "2"])
    place.lake.rename("d", "bb/d")
    assert place.see("bb") == ["3", "d/", "d/1", "d/2"]


# -- tombstones --------------------------------------------------------------------------------------


@every_age
def test_a_tombstone_does_not_hide_a_newer_object(place: Place, max_age: float | None) -> None:
    """A deleted file hides its object, and no later object, even one with the same etag."""
    place.lake.bindings.bind("raw/", "b", max_age=max_age)
    place.store.etags = ["empty"]
    place.put("raw/_SUCCESS", "raw/a")
    place.lake.bindings.sync()
    place.lake.delete("b/_SUCCESS")
    place.lake.delete("b/a")
    place.lake.bindings.sync()
    assert place.see() == []
    place.wait()
    place.store.etags = ["empty"]
    place.put("raw/_SUCCESS")
    place.put("raw/a", body=b"other")
    place.lake.bindings.sync()
    assert place.see() == ["_SUCCESS", "a"]
    assert place.lake.read("b/a") == b"other"
    place.lake.delete("b/a")
    place.lake.bindings.sync()
    assert place.see() == ["_SUCCESS"]


@every_age
def test_an_overwritten_object_does_not_come_back(place: Place, max_age: float | None) -> None:
    """Own content at the name of an object hides it, even after that file is deleted or renamed."""
    place.put("raw/a", "raw/b", "raw/c", "raw/d")
    place.lake.bindings.bind("raw/", "b", max_age=max_age)
    place.lake.write("b/a", b"own")
    place.lake.write("own", b"own")
    place.lake.rename("own", "b/b", overwrite=True)
    place.lake.write("b/c", b"own")
    place.put("elsewhere")
    place.lake.link_many({"b/d": Data.of(place.store.head("elsewhere"))})
    place.lake.bindings.sync()
    assert place.see() == ["a", "b", "c", "d"]
    assert [place.lake.read(f"b/{name}") for name in "abc"] == [b"own"] * 3
    assert place.lake.bindings.prune().tombstones == 0
    place.lake.delete("b/a")
    place.lake.rename("b/b", "x")
    for name in "cd":
        place.lake.delete(f"b/{name}")
    place.lake.bindings.sync()
    assert place.see() == []


@every_age
def test_a_directory_hides_its_prefix(place: Place, max_age: float | None) -> None:
    """Old and new objects of the prefix stay hidden, also behind a new directory of that name."""
    place.put("raw/d/1", "raw/d", "raw/e/1")
    place.store.delete("raw/d")
    place.lake.bindings.bind("raw/", "b", max_age=max_age)
    place.lake.delete("b/d", recursive=True)
    place.lake.make_directory("new")
    place.lake.replace("new", "b/e")
    place.put("raw/d/2", "raw/e/2")
    place.lake.bindings.sync()
    assert place.see() == ["e/"]
    place.lake.write("b/d/own", b"")
    assert place.see() == ["d/", "d/own", "e/"]
    place.wait()
    place.put("raw/f")
    place.lake.bindings.sync()
    assert place.see() == ["d/", "d/own", "e/", "f"]
    place.lake.bindings.bind("raw/d/", "b/d", max_age=0)
    assert place.see() == ["d/", "d/1", "d/2", "d/own", "e/", "f"]


def test_an_object_and_a_prefix_have_separate_tombstones(quick: Place) -> None:
    """A file and then a directory of the same name are deleted, and neither comes back."""
    quick.put("raw/n")
    quick.lake.bindings.bind("raw/", "b")
    quick.lake.delete("b/n")
    quick.put("raw/n/x")
    assert quick.see() == ["n/", "n/x"]
    quick.lake.delete("b/n", recursive=True)
    assert quick.see() == []
    assert quick.tombstones() == ["n", "n/"]


def test_a_tombstone_is_made_only_if_an_object_would_reappear(quick: Place) -> None:
    """Own content, a file whose name is not its object's, and an unbound directory make none."""
    quick.put("raw/a", "other/o")
    quick.lake.maintenance.import_objects("other/", "plain")
    quick.lake.bindings.bind("raw/", "b")
    quick.lake.write("b/own", b"")
    quick.lake.rename("plain/o", "b/o")
    quick.lake.rename("b/a", "b/a2")
    assert quick.tombstones() == ["a"]
    for path in ("b/own", "b/o", "b/a2"):
        quick.lake.delete(path)
    quick.lake.make_directory("made")
    quick.lake.delete("made")
    quick.put("raw/k")
    quick.lake.bindings.sync()
    quick.wait()
    quick.put("raw/k")
    assert quick.lake.maintenance.import_objects("raw/", "b").updated == 1
    assert quick.tombstones() == ["a"]


def test_a_file_can_be_renamed_back(quick: Place) -> None:
    """The file is as before; its tombstone has no effect on it."""
    quick.put("raw/a")
    quick.lake.bindings.bind("raw/", "b")
    quick.lake.rename("b/a", "x")
    quick.lake.rename("x", "b/a")
    assert quick.see() == ["a"] and quick.lake.read("b/a") == b"raw/a"
    quick.wait()
    quick.put("raw/a", body=b"newer")
    assert quick.lake.read("b/a") == b"newer"


def test_tombstones_are_removed_with_their_directory(quick: Place) -> None:
    """They are removed when the trash is emptied."""
    quick.put("raw/a", "raw/d/x")
    quick.lake.bindings.bind("raw/", "b")
    quick.lake.delete("b/a")
    quick.lake.delete("b/d/x")
    quick.lake.delete("b", recursive=True)
    assert quick.tombstones() == ["a", "x"]
    quick.lake.maintenance.empty_trash()
    assert quick.tombstones() == [] and quick.rows() == []


# -- pruning -----------------------------------------------------------------------------------------


def test_prune_removes_useless_tombstones_and_files(place: Place) -> None:
    """It removes tombstones that hide nothing and files without objects, and reports both numbers."""
    place.put(
        "raw/a",
        "raw/b",
        "raw/c",
        "raw/d/x",
        "raw/e/y",
        "raw/f",
        "raw/g",
        "raw/kept",
        "plain/p",
        "plain/q",
    )
    place.lake.bindings.bind("raw/", "b", max_age=None)
    place.lake.maintenance.import_objects("plain/", "plain")
    place.lake.bindings.sync()
    for path in ("b/a", "b/b", "b/c"):
        place.lake.delete(path)
    for path in ("b/d", "b/e"):
        place.lake.delete(path, recursive=True)
    place.lake.rename("b/g", "b/gg")
    place.wait()
    place.put("raw/b", body=b"newer")
    for path in ("raw/a", "raw/d/x", "raw/f", "raw/g", "plain/p"):
        place.store.delete(path)
    steps: list[PruneReport] = []
    place.forget()
    done = place.lake.bindings.prune(progress=steps.append)
    # a, b, d/ and g hide nothing; the objects of f, gg and p are gone.
    assert done == PruneReport(directories=3, tombstones=4, files=3) == steps[-1]
    # The prefix is listed. p, q and gg get a HEAD each; then f, gg and p one more each, with a proof of
    # the store's presence before and after.
    assert place.store.asked == {"list": 1, "head": 3 + 3 * (1 + 2)}
    assert place.tombstones() == ["c", "e/"]
    assert place.lake.bindings.prune() == PruneReport(directories=3)
    assert place.see() == ["kept"]
    place.lake.bindings.sync()
    assert place.see() == ["b", "kept"]
    assert place.see("plain") == ["q"]


def test_a_bound_directory_of_a_local_store_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds also for a page of ten, whatever the number of files."""
    store = open_store(f"file://{tmp_path}/data")
    store.put("raw/0", b"")
    for number in range(1, 2500):
        (tmp_path / "data" / "raw" / f"{number}").touch()
    clock = ManualClock()
    lake = Namespace(ServiceTable(clock=clock), store, LAKE, clock=clock)
    lake.create()
    lake.bindings.bind("raw/", "b")
    scandir, scans = os.scandir, Counter[str]()

    def counted(fd: int) -> Any:
        scans["scandir"] += 1
        return scandir(fd)

    monkeypatch.setattr(os, "scandir", counted)
    assert len(lake.list_page("b", limit=10).entries) == 10
    assert scans["scandir"] == 1
    assert lake.request_stats.total.store_lists == 3


def test_prune_sends_many_requests_at_a_time(quick: Place) -> None:
    """It removes every file without an object, also two files of the same object."""
    quick.put(*(f"plain/{number}" for number in range(70)))
    quick.lake.maintenance.import_objects("plain/", "p")
    quick.lake.link("p/again", quick.lake.stat("p/3").data)
    quick.store.delete("plain/3")
    begin_head, waiting, most = quick.store.begin_head, 0, 0

    def count(path: str) -> InFlight[Observation]:
        nonlocal waiting, most
        waiting += 1
        most = max(most, waiting)
        answer = begin_head(path)

        def wait() -> Observation:
            nonlocal waiting
            waiting -= 1
            return answer()

        return wait

    quick.store.begin_head = count  # type: ignore[method-assign]
    assert quick.lake.bindings.prune() == PruneReport(directories=2, files=2)
    assert most == 32
    assert quick.see("p") == sorted(str(number) for number in range(70) if number != 3)


def test_prune_by_age_brings_deleted_objects_back(quick: Place) -> None:
    """Old tombstones are removed, so that their number stays bounded."""
    quick.put("raw/a", "raw/d/x", "raw/b")
    quick.lake.bindings.bind("raw/", "b")
    quick.lake.delete("b/a")
    quick.lake.delete("b/d", recursive=True)
    quick.wait(100)
    quick.lake.delete("b/b")
    quick.wait(10)
    assert quick.lake.bindings.prune(older_than=111).tombstones == 0
    assert quick.lake.bindings.prune(older_than=110).tombstones == 2
    assert quick.see() == ["a", "d/", "d/x"]
    with pytest.raises(ConfigurationError):
        quick.lake.bindings.prune(older_than=-1)


@pytest.mark.parametrize("error", [Unavailable("throttled"), Conflict("busy")])
def test_prune_reports_failures(quick: Place, error: CommitError) -> None:
    """One failure is retried. A lasting failure stops no other removal; the next call completes it."""
    quick.put("raw/a", "raw/b", "plain/p", "plain/q", "kept")
    quick.lake.bindings.bind("raw/", "b", max_age=None)
    quick.lake.maintenance.import_objects("plain/", "plain")
    quick.lake.bindings.sync()
    quick.lake.delete("b/b")
    ids = {path: quick.lake.stat(path).entry.id for path in ("b", "plain/p")}
    for path in ("raw/a", "raw/b", "plain/p", "plain/q"):
        quick.store.delete(path)
    right = quick.table.transact

    def transact(writes: Sequence[Write], *, token: str | None = None) -> None:
        keys = [write.key for write in writes if isinstance(write, Delete)]
        if once:
            once.pop()
            raise error
        if refusing and any("/t/" in str(key.hash) or key.range == "p" for key in keys):
            raise error
        right(writes, token=token)

    once, refusing = [True], True
    quick.table.transact = transact  # type: ignore[method-assign]
    done = quick.lake.bindings.prune()
    assert (done.directories, done.tombstones, done.files) == (3, 0, 2)
    assert dict(done.failed) == {ids["b"]: str(error), ids["plain/p"]: str(error)}
    assert quick.tombstones() == ["b"] and quick.see("plain") == ["p"]
    refusing = False
    assert quick.lake.bindings.prune() == PruneReport(directories=3, tombstones=1, files=1)


def test_prune_reports_a_directory_that_keeps_changing(quick: Place) -> None:
    """The directories below it are left to the next call."""
    quick.put("raw/a", "raw/d/x")
    quick.lake.bindings.bind("raw/", "b", max_age=None)
    quick.lake.bindings.sync()
    quick.store.delete("raw/a")
    other = quick.client(quick.table)

    def step(what: str, perform: Callable[[], object]) -> None:
        if what == "transact":
            other.set_attributes("b", attributes={"n": str(quick.wire.requests["transact"])})
        perform()

    id = quick.lake.stat("b").entry.id
    quick.wire.step = step
    done = quick.lake.bindings.prune()
    assert (done.directories, done.files, [failed for failed, _ in done.failed]) == (2, 0, [id])
    assert "kept changing" in done.failed[0][1]
    quick.wire.step = lambda what, perform: perform()
    assert quick.lake.bindings.prune() == PruneReport(directories=3, files=1)


# -- differences -------------------------------------------------------------------------------------


def differences(place: Place, path: str = "", **named: str) -> list[tuple[str, str]]:
    """Return the sorted paths and kinds of all differences."""
    found = place.lake.bindings.diff(path, **named)
    return sorted((each.status.path, each.kind) for each in found)


def test_a_diff_shows_the_changes_of_others(place: Place) -> None:
    """One listing of the prefix finds missing, changed, unknown and hidden objects."""
    place.put("raw/a", "raw/b", "raw/c", "raw/d/x", "raw/e/y", "raw/same", "raw/h/z")
    place.lake.bindings.bind("raw/", "b", max_age=None)
    place.lake.bindings.sync()
    place.lake.rename("b/c", "c")
    place.lake.delete("b/h", recursive=True)
    assert differences(place) == [("b/c", "hidden"), ("b/h", "hidden")]
    place.wait()
    place.store.delete("raw/a")
    place.put("raw/b", "raw/c", "raw/d/x", "raw/new", "raw/n/e/w", body=b"2")
    place.forget()
    assert differences(place) == [
        ("b/a", "missing"),
        ("b/b", "changed"),
        ("b/c", "unknown"),
        ("b/d/x", "changed"),
        ("b/h", "hidden"),
        ("b/n/e/w", "unknown"),
        ("b/new", "unknown"),
        ("c", "changed"),
    ]
    assert place.wire.requests["transact"] == 0
    assert differences(place, "b/d") == [("b/d/x", "changed")]
    assert differences(place, "b/b") == [("b/b", "changed")]
    with pytest.raises(NotFound):
        differences(place, "none")
    place.lake.bindings.sync()
    assert differences(place) == [("b/h", "hidden"), ("c", "changed")]


def test_imported_files_can_be_compared_with_a_prefix(quick: Place) -> None:
    """They are compared as if the directory were bound, and it does not become bound."""
    quick.put("old/a", "old/d/b")
    quick.lake.maintenance.import_objects("old/", "new")
    assert differences(quick, "new", prefix="old/") == []
    quick.put("old/c", "old/d/e")
    quick.store.delete("old/a")
    assert differences(quick) == [("new/a", "missing")]
    assert differences(quick, "new", prefix="old/") == [
        ("new/a", "missing"),
        ("new/c", "unknown"),
        ("new/d/e", "unknown"),
    ]
    assert quick.lake.stat("new").binding is None
    with pytest.raises(ConfigurationError):
        differences(quick, "new", prefix="old")


def test_a_diff_costs_one_request_per_thousand_objects(quick: Place) -> None:
    """Files without a difference cost no further request."""
    quick.put(*(f"raw/{number:04}" for number in range(2500)))
    quick.lake.bindings.bind("raw/", "b", max_age=None)
    quick.lake.bindings.sync()
    quick.forget()
    assert differences(quick) == []
    assert quick.store.asked == {"list": 3}


def test_a_change_during_a_diff_is_not_reported(quick: Place) -> None:
    """Each difference is checked a second time before it is reported."""
    quick.put("raw/a", "raw/b", "raw/h")
    quick.lake.bindings.bind("raw/", "b", max_age=None)
    quick.lake.bindings.sync()
    quick.lake.delete("b/h")
    quick.wait()
    quick.put("raw/b", "raw/new", "raw/n/x", body=b"2")
    quick.store.delete("raw/a")
    assert len(differences(quick)) == 5
    right = quick.store.list_page

    def then(*args: object, **named: object) -> Page:
        page = right(*args, **named)
        quick.store.list_page = right  # type: ignore[method-assign]
        quick.client(quick.table).bindings.sync()
        quick.store.delete("raw/h")
        return page

    quick.store.list_page = then  # type: ignore[method-assign]
    assert differences(quick) == []


# -- binding -----------------------------------------------------------------------------------------


def test_a_binding_can_be_changed_and_removed(place: Place) -> None:
    """The change applies to all directories bound with it; files with rows stay."""
    place.put("raw/a", "raw/d/x")
    place.lake.maintenance.import_objects("raw/", "b")
    place.lake.make_directory("b/own")
    assert place.lake.bindings.bind("raw/", "b").binding is not None
    place.put("raw/d/y", "raw/own/z")
    assert place.see() == ["a", "d/", "d/x", "d/y", "own/", "own/z"]
    place.lake.bindings.sync()
    place.lake.bindings.bind("raw/", "b", max_age=None)
    place.put("raw/d/w")
    assert place.see() == ["a", "d/", "d/x", "d/y", "own/", "own/z"]
    place.lake.delete("b/a")
    assert place.lake.bindings.unbind("b").binding is None
    assert place.lake.stat("b/d").binding is None
    assert place.see() == ["d/", "d/x", "d/y", "own/", "own/z"]
    assert place.lake.bindings.prune().tombstones == 1
    assert place.lake.bindings.unbind("b").binding is None


def test_an_invalid_binding_is_refused(quick: Place) -> None:
    """It is refused before anything is stored."""
    quick.lake.write("f", b"")
    for prefix, into, max_age in (
        ("raw", "b", 0),
        ("", "b", 0),
        ("/raw/", "b", 0),
        ("_commitlog/x/", "b", 0),
        ("raw/", "", 0),
        ("raw/", "b", -1),
        ("raw/", "b", float("nan")),
    ):
        with pytest.raises(ConfigurationError):
            quick.lake.bindings.bind(prefix, into, max_age=max_age)
    with pytest.raises(AlreadyExists):
        quick.lake.bindings.bind("raw/", "f")
    assert quick.rows() == ["f"]
    quick.lake.bindings.bind("raw/", "b")
    with pytest.raises(ConfigurationError, match="unbind"):
        quick.lake.bindings.bind("other/", "b")
    with pytest.raises(NotADirectory):
        quick.lake.bindings.unbind("f")


@pytest.mark.parametrize("call", ["bind", "unbind"])
def test_a_missing_table_stops_bind_and_unbind(quick: Place, call: str) -> None:
    """Only a directory that another client removed is skipped. The call can be repeated."""
    bindings = quick.lake.bindings
    do = {"bind": lambda: bindings.bind("raw/", "b"), "unbind": lambda: bindings.unbind("b")}[call]
    quick.lake.make_directory("b/d")
    if call == "unbind":
        bindings.bind("raw/", "b")
    good = quick.wire.requests["transact"] + (call == "bind")  # the upper directory is bound first

    def step(what: str, perform: Callable[[], object]) -> None:
        if what == "transact" and quick.wire.requests[what] > good:
            raise TableNotFound("no such table")
        perform()

    quick.wire.step = step
    with pytest.raises(TableNotFound):
        do()
    quick.wire.step = lambda what, perform: perform()
    do()
    assert (quick.lake.stat("b/d").binding is None) == (call == "unbind")


def test_two_directories_can_have_one_prefix(quick: Place) -> None:
    """An object that one of them hides is visible in the other one."""
    quick.put("raw/a", "raw/d/x")
    quick.lake.bindings.bind("raw/", "b")
    quick.lake.bindings.bind("raw/", "c")
    quick.lake.delete("b/a")
    quick.lake.delete("b/d", recursive=True)
    assert (quick.see("b"), quick.see("c")) == ([], ["a", "d/", "d/x"])


def test_an_import_brings_deleted_objects_back(quick: Place) -> None:
    """An explicit import of a prefix takes all its objects."""
    quick.put("raw/a")
    quick.lake.bindings.bind("raw/", "b")
    quick.lake.delete("b/a")
    assert quick.lake.maintenance.import_objects("raw/", "b").files == 1
    assert quick.see() == ["a"]


@every_age
def test_files_imported_into_a_bound_directory_stay_after_unbind(
    place: Place, max_age: float | None
) -> None:
    """All rows are written, in few transactions, though the objects were visible before."""
    place.put("raw/a", *(f"raw/d/{number:03}" for number in range(250)))
    place.lake.bindings.bind("raw/", "b", max_age=max_age)
    place.forget()
    done = place.lake.maintenance.import_objects("raw/", "b")
    assert (done.files, done.known, done.refused) == (251, 0, ())
    assert place.wire.requests["transact"] == 5  # "a"; the directory; 99, 99 and 52 files in it
    assert place.wire.requests["get"] < 20 and place.store.asked.total() < 20
    assert place.lake.maintenance.import_objects("raw/", "b").known == 251
    assert len(place.rows()) == 1 + 1 + 251
    place.lake.bindings.unbind("b")
    assert len(place.see()) == 252 and place.lake.read("b/d/249") == b"raw/d/249"


def test_an_import_is_refused_where_a_bound_directory_has_an_entry(quick: Place) -> None:
    """This holds with or without a row, for an object from elsewhere, and for a prefix of that name."""
    quick.put("raw/a", "raw/n/x", "other/a", "other/n", "other/o")
    quick.lake.bindings.bind("raw/", "b")
    done = quick.lake.maintenance.import_objects("other/", "b")
    assert (done.files, [path for path, _ in done.refused]) == (1, ["other/a", "other/n"])
    assert quick.see() == ["a", "n/", "n/x", "o"] and quick.lake.read("b/a") == b"raw/a"


# -- read-only clients --------------------------------------------------------------------------------


@every_age
def test_reading_needs_no_permission_to_write(place: Place, max_age: float | None) -> None:
    """A reader sees all objects, though no row can be stored; it tries to store them once."""
    place.put("raw/a", "raw/b", "raw/d/x")
    place.lake.bindings.bind("raw/", "b", max_age=max_age)
    place.lake.delete("b/a")
    refused = InterceptedTable(place.table)

    def step(what: str, perform: Callable[[], object]) -> None:
        if what not in ("get", "query"):
            raise AccessDenied(f"{what} is not allowed")
        perform()

    refused.step = step
    writer, place.lake = place.lake, place.client(refused)
    for _ in range(2):
        assert place.see() == ["b", "d/", "d/x"]
    assert refused.requests["transact"] == (max_age != 0)
    assert place.lake.read("b/d/x") == b"raw/d/x"
    assert place.lake.stat("b/b").version == 0 and place.lake.stat("b/b").id == ""
    assert [each.name for each in place.lake.list_page("b", limit=1).entries] == ["b"]
    assert len(differences(place)) == 3
    with pytest.raises(AccessDenied):
        place.lake.delete("b/b")
    writer.bindings.sync()
    place.put("raw/c")
    assert place.see() == (["b", "d/", "d/x"] if max_age != 0 else ["b", "c", "d/", "d/x"])
    assert outcome(lambda: place.lake.bindings.sync()) is AccessDenied


# -- on servers --------------------------------------------------------------------------------------


@pytest.mark.servers
def test_on_s3_and_dynamodb(ministack: Ministack) -> None:
    """The path from the first listing to pruning works with the etags, times and order of a server."""
    options: dict[str, Any] = dict(ministack.options)
    table = open_table(f"dynamodb://{ministack.new_table_name()}", NAMESPACE_SCHEMA, **options)
    table.create()
    bucket = ministack.new_bucket()
    store = open_store(f"s3://{bucket}/lake", **options)
    lake = Namespace(table, store, LAKE, grace=0)
    lake.create()

    def see() -> list[str]:
        return [each.path[2:] for each in lake.walk("b")]

    for path in ("raw/a", "raw/a-b", "raw/d/x", "raw/d/e/y"):
        store.put(path, path.encode())
    for marker in ("raw/", "raw/d/", "raw/empty/"):  # consoles make such objects
        ministack.client("s3").put_object(Bucket=bucket, Key=f"lake/{marker}", Body=b"")
    lake.bindings.bind("raw/", "b")
    assert lake.stat("b/d").is_directory
    lake.bindings.bind("raw/", "b", max_age=None)
    assert see() == ["a", "a-b", "d", "d/e", "d/e/y", "d/x", "empty"]
    assert lake.read("b/d/e/y") == b"raw/d/e/y"
    assert [lake.stat(f"b/{path}").version for path in ("a", "d", "d/x")] == [1, 2, 1]
    assert lake.bindings.sync() == SyncReport(directories=4)
    lake.delete("b/empty")
    lake.delete("b/a")
    lake.rename("b/d", "d")
    lake.write("b/a-b", b"own")
    store.put("raw/new", b"new")
    store.put("raw/d/new", b"new")
    lake.bindings.sync()
    assert see() == ["a-b", "new"]
    assert lake.read("b/a-b") == b"own" and lake.read("d/new") == b"new"
    assert [(each.status.path, each.kind) for each in lake.bindings.diff()] == [
        ("b/a", "hidden"),
        ("b/a-b", "hidden"),
        ("b/d", "hidden"),
    ]
    store.delete("raw/a")
    store.delete("raw/new")
    assert lake.bindings.prune() == PruneReport(directories=4, tombstones=1, files=1)
    assert see() == ["a-b"]
    Auditor(table, LAKE, store).audit()
    table.close()
    store.close()


@pytest.mark.parametrize("walk", ["prune", "diff", "sync"])
def test_a_directory_inside_itself_is_not_walked_again(quick: Place, walk: str) -> None:
    """A damaged directory record leads back to a directory above. `fsck` reports it."""
    lake = quick.lake
    lake.make_directory("a/b")
    above, below = lake.stat("a").entry, lake.stat("a/b").entry
    loop = evolve(above, key=Keys(LAKE).entry(below.id, 0, "loop"))
    quick.table.put(loop.to_item())
    queries = quick.wire.requests["query"]
    if walk == "prune":
        assert lake.bindings.prune().directories == 3
    elif walk == "diff":
        assert not list(lake.bindings.diff())
    else:
        assert lake.bindings.sync() == SyncReport()
    assert 0 < quick.wire.requests["query"] - queries < 10
    assert lake.maintenance.fsck(grace=0).counts
