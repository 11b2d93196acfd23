"""Existing objects become files in place: repeated and interrupted imports, and concurrent writers."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from attrs import define, evolve

from commitlog.errors import ConfigurationError, Conflict
from commitlog.namespace import ImportReport, Namespace
from commitlog.stores.api import ObjectInfo
from commitlog.stores.local.store import LocalStore
from commitlog.stores.memory import MemoryStore
from commitlog.testing import ManualClock
from support.directory_order import DirectoryOrder
from support.namespace import QUICK, Auditor, InterceptedTable, ServiceTable

LAKE = "lake"


@define
class Place:
    """A namespace, and the store whose objects it imports."""

    clock: ManualClock
    store: MemoryStore
    table: ServiceTable
    wire: InterceptedTable
    lake: Namespace

    def put(self, *paths: str) -> None:
        """Put an object at each path; its content is the path."""
        for path in paths:
            self.store.put(path, path.encode())

    def paths(self) -> list[str]:
        """Audit the namespace, and return the paths of all files."""
        tree = Auditor(self.table, LAKE, self.store).audit()
        return sorted(path for path, entry in tree.items() if not entry.is_directory)


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Place:
    """A new namespace; the parameter is the class of its store."""
    clock = ManualClock()
    store = getattr(request, "param", MemoryStore)(clock=clock)
    table = ServiceTable(clock=clock)
    wire = InterceptedTable(table)
    lake = Namespace(wire, store, LAKE, clock=clock, backoff=QUICK, grace=0)
    lake.create()
    return Place(clock, store, table, wire, lake)


def test_refusals_are_not_copied_for_each_batch(place: Place) -> None:
    """The progress reports of a large import contain all refusals so far, and share their memory."""
    place.lake.write("a", b"")
    place.put(*(f"old/b/{number:04}" for number in range(1000)))
    steps: list[ImportReport] = []
    done = place.lake.maintenance.import_objects("old/", "a", progress=steps.append)
    assert [len(step.refused) for step in steps] == [*range(99, 1000, 99), 1000]
    assert steps[-1] == done and done.refused[:99] == steps[0].refused
    holders = [each for each in gc.get_referrers(done.refused[0]) if isinstance(each, (list, tuple))]
    assert len(holders) == 1


def test_objects_become_files(place: Place) -> None:
    """Files get the paths, sizes, etags and times; changes of files leave the objects alone."""
    place.put("old/a/1", "old/a/2", "old/b", "other/c")
    done = place.lake.maintenance.import_objects("old/", "new")
    assert done == ImportReport(files=3, bytes=19, last="old/b")
    assert place.paths() == ["new/a/1", "new/a/2", "new/b"]
    status = place.lake.stat("new/a/1")
    info = place.store.head("old/a/1")
    assert status.data is not None and not status.data.own
    assert (status.size, status.etag, status.modified) == (7, info.etag, int(info.last_modified * 1000))
    assert place.lake.read("new/b") == b"old/b"
    place.lake.rename("new/a", "x")
    assert place.lake.read("x/2") == b"old/a/2"
    place.lake.write("x/1", b"own")
    place.lake.delete("new", recursive=True)
    place.lake.maintenance.empty_trash()
    place.clock.advance(1)
    assert place.lake.maintenance.gc().objects == 0
    assert place.store.head("old/a/1").size == 7 and place.store.head("old/b").size == 5


def test_a_repeated_import_takes_new_and_changed_objects(place: Place) -> None:
    """Known objects are skipped; own content does not become a second file."""
    place.put("a", "d/b")
    assert place.lake.maintenance.import_objects().files == 2
    place.lake.write("own", b"1")
    place.store.put("a", b"changed")
    place.put("d/c")
    done = evolve(place.lake.maintenance.import_objects(), last="")
    assert done == ImportReport(files=1, updated=1, known=1, bytes=10)
    assert place.lake.read("a") == b"changed" and place.lake.stat("a").version == 2
    assert place.paths() == ["a", "d/b", "d/c", "own"]


def test_objects_that_cannot_be_files_are_reported(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """These are a path below a file, a directory marker, a name too long, and a name already taken."""
    place.put("a", "a/b", "c", "d", "f", "x" * 300)
    place.lake.write("c", b"own")
    place.lake.write("f", b"f")  # the same content
    place.lake.make_directory("d")
    right = place.store.list

    def with_marker(prefix: str = "", *, start_after: str = "") -> object:
        for info in right(prefix, start_after=start_after):
            yield info
            if info.path == "a/b":
                yield ObjectInfo(path="e/", size=0, etag="e", last_modified=0.0)

    monkeypatch.setattr(place.store, "list", with_marker)
    done = place.lake.maintenance.import_objects()
    assert (done.files, done.known, done.updated) == (1, 0, 0)
    assert {path for path, _ in done.refused} == {"a/b", "c", "d", "e/", "f", "x" * 300}
    assert place.lake.read("c") == b"own"
    with pytest.raises(ConfigurationError, match="slash"):
        place.lake.maintenance.import_objects("a")


@pytest.mark.parametrize(
    "place", [MemoryStore, DirectoryOrder], indirect=True, ids=["bytes", "directories"]
)
def test_an_import_that_continues_leaves_out_nothing(place: Place) -> None:
    """This holds on a store that hides what is below the object after which a listing starts."""
    place.put("raw/app", "raw/app/1", "raw/app/2", "raw/app-eu/1", "raw/b")
    listed = [info.path for info in place.store.list("raw/")]
    done = place.lake.maintenance.import_objects("raw/", start_after="raw/app")
    assert done.files == 4 and done.last == listed[-1]
    assert place.paths() == ["app-eu/1", "app/1", "app/2", "b"]


def test_a_large_directory_takes_few_requests(place: Place) -> None:
    """99 files fit in one transaction; progress is reported, and an import can continue from there."""
    place.put(*(f"d/{number:04}" for number in range(250)))
    reported: list[ImportReport] = []

    class Stop(Exception):
        pass

    def stop(done: ImportReport) -> None:
        reported.append(done)
        if len(reported) == 3:  # the first covers the namespace's own objects
            raise Stop

    place.wire.requests.clear()
    with pytest.raises(Stop):
        place.lake.maintenance.import_objects(progress=stop)
    assert reported[-1].last == "d/0197" and reported[-1].files == 198
    rest = place.lake.maintenance.import_objects(start_after=reported[-1].last)
    assert (rest.files, rest.known) == (52, 0)
    assert len(place.paths()) == 250
    # One transaction makes the directory.
    assert place.wire.requests["transact"] == 4
    place.wire.requests.clear()
    assert place.lake.maintenance.import_objects().known == 250
    assert place.wire.requests["get"] <= 10
    looked: list[int] = []
    place.store.put("d/0137", b"other")
    [found] = place.lake.bindings.diff("d", progress=looked.append)
    assert (found.status.path, found.kind, looked) == ("d/0137", "changed", [100, 200])
    assert place.lake.maintenance.import_objects().updated == 1
    place.lake.make_directory("s", shards=16)
    assert place.lake.maintenance.import_objects("d/", "s").files == 250


def test_a_file_created_during_an_import_is_kept(place: Place) -> None:
    """The file of another client is reported as refused, and the other objects are imported."""
    place.put("d/1", "d/2", "d/3")
    other = Namespace(place.table, place.store, LAKE, clock=place.clock, backoff=QUICK)
    other.make_directory("d")

    def step(what: str, perform: Callable[[], object]) -> None:
        if what == "transact" and not other.exists("d/2"):
            other.write("d/2", b"theirs")
        perform()

    place.wire.step = step
    done = place.lake.maintenance.import_objects()
    assert evolve(done, refused=()) == ImportReport(files=2, bytes=6, last="d/3")
    assert [path for path, _ in done.refused] == ["d/2"]
    assert place.lake.read("d/2") == b"theirs"
    assert place.paths() == ["d/1", "d/2", "d/3"]


def meanwhile(place: Place, does: Callable[[Namespace], object]) -> None:
    """Let another client act once, right before the next transaction."""
    other = Namespace(place.table, place.store, LAKE, clock=place.clock, backoff=QUICK)

    def step(what: str, perform: Callable[[], object]) -> None:
        if what == "transact":
            place.wire.step = lambda what, perform: perform()
            does(other)
        perform()

    place.wire.step = step


def test_a_file_overwritten_during_an_import_stays(place: Place) -> None:
    """The object of the file had changed, and the import was about to update it; it reports this."""
    place.put("a", "b")
    place.lake.maintenance.import_objects()
    place.store.put("a", b"changed")
    meanwhile(place, lambda other: other.write("a", b"theirs"))
    done = place.lake.maintenance.import_objects()
    assert (done.updated, done.known, [path for path, _ in done.refused]) == (0, 1, ["a"])
    assert place.lake.read("a") == b"theirs"
    assert place.store.head("a").size == 7


def test_a_file_with_new_attributes_is_updated_by_an_import(place: Place) -> None:
    """The import reads the file again, and keeps the new attributes."""
    place.put("a")
    place.lake.maintenance.import_objects()
    place.store.put("a", b"changed")
    meanwhile(place, lambda other: other.set_attributes("a", attributes={"k": "v"}))
    assert place.lake.maintenance.import_objects().updated == 1
    status = place.lake.stat("a")
    assert (status.attributes, status.version, place.lake.read("a")) == ({"k": "v"}, 3, b"changed")
    assert status.modified == int(place.store.head("a").last_modified * 1000)


def test_a_file_deleted_during_an_import_is_imported_again(place: Place) -> None:
    """The result is as if it had been deleted before the import."""
    place.put("a")
    place.lake.maintenance.import_objects()
    place.store.put("a", b"changed")
    meanwhile(place, lambda other: other.delete("a"))
    assert evolve(place.lake.maintenance.import_objects(), last="") == ImportReport(files=1, bytes=7)
    assert place.lake.read("a") == b"changed"


def test_an_object_from_before_1970_is_dated_1970(tmp_path: Path) -> None:
    """Archives can leave local files with such dates; a second import recognises the object."""
    store = LocalStore(tmp_path)
    for name in ("a", "b"):
        store.put(f"raw/{name}", b"1")
    os.utime(tmp_path / "raw/a", (-5.5, -5.5))
    lake = Namespace(ServiceTable(), store, LAKE, backoff=QUICK)
    lake.create()
    assert lake.maintenance.import_objects("raw/", "in").files == 2
    status = lake.stat("in/a")
    assert status.data is not None
    assert (status.modified, status.created, status.data.stored) == (0, 0, 0)
    assert lake.read("in/a") == b"1"
    assert lake.maintenance.import_objects("raw/", "in").known == 2
    assert list(lake.bindings.diff("in", prefix="raw/")) == []
    bound = lake.bindings.bind("raw/", "bound", max_age=0)
    assert next(each.modified for each in lake.list("bound")) == lake.stat("bound/a").modified == 0
    assert lake.bindings.sync(bound.path).files == 2
    assert list(lake.bindings.diff()) == []


def test_concurrent_imports_count_each_file_once(place: Place) -> None:
    """A file that the other import made first counts as known."""
    place.put(*(f"d/{number:03}" for number in range(150)))
    others: list[ImportReport] = []
    meanwhile(place, lambda other: others.append(other.maintenance.import_objects()))
    done = place.lake.maintenance.import_objects()
    assert evolve(others[0], last="") == ImportReport(files=150, bytes=750)
    assert evolve(done, last="") == ImportReport(known=150)
    place.put("d/200")
    meanwhile(place, lambda other: others.append(other.maintenance.import_objects()))
    done = place.lake.maintenance.import_objects()
    assert (others[1].files, done.files, done.known, done.bytes) == (1, 0, 151, 0)
    assert len(place.paths()) == 151


def test_a_deep_object_does_not_stop_an_import(place: Place) -> None:
    """Its directories are made in several steps; where no step is small enough, it is reported."""
    deep = "d/" * 120
    place.put("raw/a/x", f"raw/{deep}y", "raw/z")
    done = place.lake.maintenance.import_objects("raw/", "in")
    assert (done.files, done.refused) == (3, ())
    assert place.lake.read(f"in/{deep}y") == f"raw/{deep}y".encode()
    assert place.lake.maintenance.import_objects("raw/", "in").known == 3
    stable = Namespace(place.table, place.store, LAKE, clock=place.clock, stable_paths=True)
    done = stable.maintenance.import_objects("raw/", "out")
    assert (done.files, [path for path, _ in done.refused]) == (2, [f"raw/{deep}y"])
    assert "takes" in done.refused[0][1]
    place.store.put(f"raw/{deep}new", b"")
    place.store.put(f"raw/{deep}y", b"changed")
    done = stable.maintenance.import_objects("raw/", "in")
    assert (done.known, [path[-4:] for path, _ in done.refused]) == (2, ["/d/y", "/new"])


@pytest.mark.parametrize("into", ["in", "up/in"])
def test_an_import_does_not_continue_in_another_directory(place: Place, into: str) -> None:
    """If the directory is renamed, the import reports its progress, and makes nothing at the path."""
    place.put("raw/a/1", "raw/a/2", "raw/b/1")

    def move(_: ImportReport) -> None:
        place.lake.rename(into.partition("/")[0], "old")

    with pytest.raises(Conflict, match=f"'{into}' was renamed.* 2 objects became .* after 'raw/a/2'"):
        place.lake.maintenance.import_objects("raw/", into, progress=move)
    below = into.replace("up", "old") if "/" in into else "old"
    assert place.paths() == [f"{below}/a/1", f"{below}/a/2"]
    assert not place.lake.exists(into)


def test_objects_of_one_prefix_stay_in_one_directory(place: Place) -> None:
    """This holds if another directory takes its path between two transactions, or before the first."""
    place.put(*(f"raw/a/{number:03}" for number in range(120)))

    def move(_: object) -> None:
        place.lake.rename("in/a", "old")
        place.lake.make_directory("in/a")

    with pytest.raises(Conflict, match=r"'in/a' was renamed.* 99 objects became .* after 'raw/a/098'"):
        place.lake.maintenance.import_objects("raw/", "in", progress=move)
    assert len(place.paths()) == 99 and list(place.lake.list("in/a")) == []
    place.lake.delete("old", recursive=True)

    def step(what: str, perform: Callable[[], object]) -> None:
        perform()
        if what == "query":  # the import lists the directory, then walks to it again
            place.wire.step = lambda what, perform: perform()
            move(None)

    place.wire.step = step
    with pytest.raises(Conflict, match=r"another directory at 'in/a' now: nothing .* 0 objects became"):
        place.lake.maintenance.import_objects("raw/", "in")
    assert place.paths() == []


def test_nothing_is_imported_into_the_staging_directory_of_jobs(place: Place) -> None:
    """Listings do not show files there."""
    place.put(".staging/x", "d/.staging/x", "x")
    done = place.lake.maintenance.import_objects()
    assert (done.files, [path for path, _ in done.refused]) == (2, [".staging/x"])
    assert "jobs" in done.refused[0][1]
    place.store.put("raw/.staging", b"")
    assert [path for path, _ in place.lake.maintenance.import_objects("raw/").refused] == [
        "raw/.staging"
    ]
    assert place.lake.maintenance.import_objects("raw/", ".staging").files == 0
    assert place.paths() == ["d/.staging/x", "x"]
