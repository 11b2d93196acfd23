"""The contract of a namespace, over every table: the effects and errors of each operation."""

from __future__ import annotations

import contextlib
import copy
import io
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import cast

import pytest
from attrs import evolve

from commitlog.errors import (
    AlreadyExists,
    ConfigurationError,
    Conflict,
    CorruptRecord,
    DirectoryNotEmpty,
    FormatTooNew,
    InvalidPath,
    IsADirectory,
    NotADirectory,
    NotFound,
    NotSupported,
    ObjectChanged,
    OutcomeUnknown,
    TransactionTooLarge,
    Unavailable,
)
from commitlog.namespace import NAMESPACE_SCHEMA, Data, Namespace, Status, Summary
from commitlog.namespace.metadata import FORMAT
from commitlog.namespace.model import keys
from commitlog.namespace.model.keys import shards_of
from commitlog.stores.api import ObjectStore
from commitlog.stores.body import Body
from commitlog.stores.memory import MemoryStore
from commitlog.tables.api import Table
from commitlog.tables.memory import MemoryTable
from commitlog.tables.open import open_table
from commitlog.testing import ManualClock
from commitlog.urls import parse_table_url
from support.namespace import QUICK, Auditor, InterceptedTable, ServiceTable, objects_in

LAKE = "lake"


@pytest.fixture(
    params=["memory", "sqlite", pytest.param("ministack", marks=pytest.mark.servers)],
)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Table]:
    """Each kind of table in turn, empty."""
    options: dict[str, str] = {}
    url = {"memory": "memory://", "sqlite": f"sqlite://{tmp_path}/names.db"}.get(request.param)
    if url is None:
        server = request.getfixturevalue(request.param)
        url, options = f"dynamodb://{server.new_table_name()}", server.options
    opened = open_table(url, NAMESPACE_SCHEMA, **options)
    opened.create()
    yield opened
    opened.close()


@pytest.fixture
def clock() -> ManualClock:
    """A manual clock."""
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> ObjectStore:
    """A store for content."""
    return MemoryStore(clock=clock)


@pytest.fixture
def lake(table: Table, store: ObjectStore, clock: ManualClock) -> Iterator[Namespace]:
    """A new namespace. Its invariants are checked after the test."""
    namespace = Namespace(table, store, LAKE, clock=clock, grace=60)
    assert namespace.create()
    yield namespace
    Auditor(table, LAKE).audit()


def names(lake: Namespace, path: str = "") -> list[str]:
    """Return the paths below `path`, with a slash after directories."""
    return [found.path + "/" * found.is_directory for found in lake.walk(path)]


# -- the namespace itself ----------------------------------------------------------------------------


def test_a_conflict_during_creation_is_reported_as_a_conflict(store: ObjectStore) -> None:
    """Conflicting transactions raise `Conflict`, and not an error about damaged records."""
    wire = InterceptedTable(ServiceTable())
    new = Namespace(wire, store, LAKE, clock=ManualClock(), backoff=QUICK)

    def step(what: str, perform: Callable[[], object]) -> None:
        if what == "transact":
            raise Conflict("they got in each other's way")
        perform()

    wire.step = step
    with pytest.raises(Conflict, match="each other's way"):
        new.create()


def test_an_error_of_the_table_is_not_reported_as_a_limit(lake: Namespace) -> None:
    """An unreadable record is reported as such, and not as a transaction that is too large."""

    def transact(*_: object, **__: object) -> None:
        raise CorruptRecord("it cannot be read")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(type(lake.table), "transact", transact)
        with pytest.raises(CorruptRecord, match="it cannot be read"):
            lake.write("f", b"1")


def test_a_namespace_is_created_once(lake: Namespace, table: Table, store: ObjectStore) -> None:
    """A second creation changes nothing. Another name in the same table is another tree."""
    lake.write("a", b"1")
    assert not Namespace(table, store, LAKE).create()
    twin = Namespace(table, store, "twin")
    with pytest.raises(NotFound, match=r"no namespace 'twin' .*create it first"):
        twin.stat("a")
    assert twin.create()
    assert not twin.exists("a") and lake.read("a") == b"1"
    twin.write("a", b"2")
    assert lake.read("a") == b"1"
    for item in [item for item in table.scan() if "twin" in (str(item["place"]) + str(item["name"]))]:
        table.delete(table.schema.key_of(item))  # the auditor knows only one namespace


def test_a_namespace_of_a_newer_format_is_refused(
    lake: Namespace, table: Table, store: ObjectStore
) -> None:
    """A newer minimum for writers allows reads, and a newer minimum for readers does not.

    `create` makes the first format, which the first release also writes.
    """
    lake.write("a", b"1")
    marker = lake.describe()
    assert (marker.format, marker.min_reader, marker.min_writer) == (1, 1, 1)
    table.put(evolve(marker, format=FORMAT + 2, min_writer=FORMAT + 1).to_item())
    newer = Namespace(table, store, LAKE)
    assert newer.read("a") == b"1"
    with pytest.raises(FormatTooNew, match=f"takes a library that knows format {FORMAT + 1}"):
        newer.write("a", b"2")
    with pytest.raises(FormatTooNew):
        newer.create()
    newest = evolve(marker, format=FORMAT + 2, min_writer=FORMAT + 2, min_reader=FORMAT + 1)
    table.put(newest.to_item())
    with pytest.raises(FormatTooNew, match="to read it"):
        Namespace(table, store, LAKE).stat("")


def test_records_without_a_marker_are_not_overwritten(
    lake: Namespace, table: Table, store: ObjectStore, clock: ManualClock
) -> None:
    """Without the marker, the format of the records is unknown."""
    marker = lake.describe()
    table.delete(marker.key)
    with pytest.raises(CorruptRecord, match="but not the record of its format"):
        Namespace(table, store, LAKE, clock=clock).create()
    table.put(marker.to_item())


@pytest.mark.servers
def test_a_table_without_transactions_is_refused(request: pytest.FixtureRequest) -> None:
    """The message names the missing feature and services that have it. Nothing is written."""
    server = request.getfixturevalue("dynalite")
    table = open_table(f"dynamodb://{server.new_table_name()}", NAMESPACE_SCHEMA, **server.options)
    table.create()
    with pytest.raises(NotSupported, match="has no transactions, and a namespace needs them"):
        Namespace(table, MemoryStore(clock=ManualClock()), LAKE).create()
    assert list(table.scan()) == []
    table.close()


@pytest.mark.parametrize("name", ["", "a/b", ".hidden", "ü", "x" * 65])
def test_invalid_names_of_namespaces_are_refused(name: str, store: ObjectStore) -> None:
    """A name that would be ambiguous in a key is invalid."""
    table = MemoryTable(parse_table_url("memory://"), NAMESPACE_SCHEMA, clock=ManualClock())
    with pytest.raises(ConfigurationError, match="a name has 1 to 64"):
        Namespace(table, store, name)
    with pytest.raises(ConfigurationError, match="grace"):
        Namespace(table, store, LAKE, grace=-1)


# -- files -------------------------------------------------------------------------------------------


def test_a_file_has_the_written_content_and_attributes(lake: Namespace, clock: ManualClock) -> None:
    """Content, size, times and attributes are those of the write. Missing parents are made."""
    clock.advance(5)
    now = int(clock.epoch() * 1000)
    made = lake.write("a/b/ü %2F.txt", b"some text", attributes={"owner": "me"})
    assert lake.stat("a/b/ü %2F.txt") == made
    assert (made.name, made.size, made.version, made.is_directory) == ("ü %2F.txt", 9, 1, False)
    assert (made.created, made.modified, made.updated) == (now, now, now)
    assert dict(made.attributes) == {"owner": "me"}
    assert lake.read("a/b/ü %2F.txt") == b"some text"
    assert lake.read("a/b/ü %2F.txt", start=5, end=7) == b"te"
    assert names(lake) == ["a/", "a/b/", "a/b/ü %2F.txt"]
    assert lake.exists("a/b") and not lake.exists("a/c")


def test_a_status_can_be_pickled_and_copied(lake: Namespace) -> None:
    """The same holds for a page of a listing, including attributes."""
    lake.write("a", b"rows", attributes={"from": "here"})
    for reported in (lake.stat("a"), lake.list_page("")):
        assert pickle.loads(pickle.dumps(reported)) == copy.deepcopy(reported) == reported


def test_content_may_be_empty_or_a_stream(lake: Namespace) -> None:
    """A binary file is read to its end."""
    assert lake.write("empty", b"").size == 0
    assert lake.read("empty") == b""
    assert lake.write("stream", io.BytesIO(b"12345")).size == 5
    assert lake.read("stream") == b"12345"


def test_invalid_content_is_refused(lake: Namespace, store: ObjectStore) -> None:
    """Text and None are refused before anything is stored."""
    for body in ("text", None, io.StringIO("text")):
        with pytest.raises(TypeError, match="a body is bytes, or a file that is open in binary mode"):
            lake.write("a", cast(Body, body))
    assert not objects_in(store) and not lake.exists("a")


def test_an_overwritten_file_keeps_its_id(lake: Namespace, clock: ManualClock) -> None:
    """Its version grows and its creation time stays. The old content and attributes are replaced."""
    old = lake.write("a", b"old", attributes={"x": "1"})
    clock.advance(1)
    new = lake.write("a", b"new!")
    assert (new.id, new.version, new.created) == (old.id, 2, old.created)
    assert (new.size, new.modified, dict(new.attributes)) == (4, old.modified + 1000, {})
    assert lake.read("a") == b"new!"


def test_an_exclusive_write_to_an_existing_path_fails(lake: Namespace, store: ObjectStore) -> None:
    """The existing file stays, and no new content is left."""
    lake.write("a", b"1", overwrite=False)
    lake.make_directory("d")
    for path in ("a", "d"):
        with pytest.raises(AlreadyExists):
            lake.write(path, b"2", overwrite=False)
    assert lake.read("a") == b"1"
    assert len(objects_in(store)) == 1


def test_a_file_cannot_replace_a_directory(lake: Namespace) -> None:
    """Nor can it be written below a file, or into a missing directory with `parents=False`."""
    lake.write("file", b"")
    lake.make_directory("d")
    for path in ("d", ""):
        with pytest.raises(IsADirectory):
            lake.write(path, b"")
    with pytest.raises(NotADirectory):
        lake.write("file/x/y", b"")
    with pytest.raises(NotFound):
        lake.write("missing/x", b"", parents=False)
    assert lake.write("d/x", b"", parents=False).path == "d/x"
    assert names(lake) == ["d/", "d/x", "file"]


def test_a_file_can_be_written_in_parts(lake: Namespace, store: ObjectStore) -> None:
    """The commit makes the whole file visible. Without a commit there is no file and no content."""
    with lake.open_writer("a/small") as writer:
        writer.write(b"12")
        writer.write(memoryview(b"3"))
        assert not lake.exists("a")
        assert writer.commit().size == 3
    with pytest.raises(ValueError, match="committed"):
        writer.write(b"")
    big = bytes(5 * 1024 * 1024)
    with lake.open_writer("a/big") as writer:
        for _ in range(3):
            writer.write(big)
        writer.commit()
    assert lake.stat("a/big").size == 3 * len(big) == len(lake.read("a/big"))
    for chunks in (1, 3):
        with lake.open_writer("never") as writer:
            for _ in range(chunks):
                writer.write(big)
    assert names(lake) == ["a/", "a/big", "a/small"]
    assert len(objects_in(store)) == 2 and not list(store.list_staged())


def test_an_upload_with_lost_responses_is_recognised_or_repeated(
    lake: Namespace, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is recognised by its nonce, or stored again under another name. A failure leaves no upload."""
    big = bytes(9 * 1024 * 1024)
    put, publish = store.put, store.publish
    lost = 0

    def losing(right: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **options: object) -> object:
            nonlocal lost
            result = right(*arguments, **options)
            lost += 1
            if lost % 2:
                raise OutcomeUnknown("no answer")
            return result

        return call

    monkeypatch.setattr(store, "put", losing(put))
    monkeypatch.setattr(store, "publish", losing(publish))
    assert lake.write("small", b"1").size == 1 and lost == 2
    with lake.open_writer("big") as writer:
        writer.write(big)
        writer.commit()
    assert lake.stat("big").size == len(big) and lost == 3

    def failing(*_: object, **__: object) -> object:
        raise Unavailable("no")

    monkeypatch.setattr(store, "put", failing)
    monkeypatch.setattr(store, "publish", failing)
    with pytest.raises(Unavailable, match="no file refers to it"):
        lake.write("f", b"1")
    with lake.open_writer("f") as writer:
        writer.write(big)
        with pytest.raises(Unavailable, match="no file refers to it"):
            writer.commit()
    assert not lake.exists("f") and not list(store.list_staged())
    with lake.open_writer("f") as writer:
        writer.write(big)
        with pytest.raises(Unavailable):
            writer.commit()
        monkeypatch.setattr(store, "publish", publish)
        assert writer.commit().size == len(big)


def test_open_files_stay_readable(lake: Namespace, clock: ManualClock) -> None:
    """A file that is overwritten or deleted stays readable during the grace period."""
    lake.write("a", b"old")
    first = lake.open("a")
    lake.write("a", b"newer")
    second = lake.open("a")
    lake.delete("a")
    clock.advance(59)
    assert lake.maintenance.gc().objects == 0
    assert (first.read(), second.read(1, 3)) == (b"old", b"ew")
    clock.advance(2)
    collected = lake.maintenance.gc()
    assert (collected.objects, collected.bytes, collected.failed) == (2, 8, ())
    with pytest.raises(ObjectChanged, match="is gone"):
        first.read()
    assert lake.maintenance.gc().objects == 0


def test_content_changed_by_another_program_is_detected(lake: Namespace, store: ObjectStore) -> None:
    """Replaced and missing objects raise `ObjectChanged`."""
    data = lake.write("a", b"right").data
    assert data is not None
    store.put(data.path, b"wrong")
    with pytest.raises(ObjectChanged, match="another program replaced it"):
        lake.read("a")
    store.delete(data.path)
    with pytest.raises(ObjectChanged, match="is gone"):
        lake.read("a")


def test_diff_lists_missing_and_changed_content(lake: Namespace, store: ObjectStore) -> None:
    """Files whose content is correct are not listed."""
    paths = ["a", "d/b", "d/c"]
    data = [lake.write(path, b"right").data for path in paths]
    assert not list(lake.bindings.diff())
    assert data[0] and data[2]
    store.delete(data[0].path)
    store.put(data[2].path, b"wrong")
    found = [(each.status.path, each.kind) for each in lake.bindings.diff()]
    assert found == [("a", "missing"), ("d/c", "changed")]
    assert [each.kind for each in lake.bindings.diff("d")] == ["changed"]
    for each in lake.bindings.diff():
        lake.write(each.status.path, b"right")  # which changes the directory while it is walked
    assert not list(lake.bindings.diff())


def test_a_file_overwritten_during_a_diff_is_no_difference(
    lake: Namespace, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its old object was collected correctly, so the current version is compared."""
    lake.write("a", b"old")
    lake.write("b", b"old")
    right = Namespace.walk

    def late(self: Namespace, path: str = "") -> Iterator[Status]:
        found = list(right(self, path))
        lake.write("a", b"new")
        lake.delete("b")
        clock.advance(61)
        lake.maintenance.gc()
        return iter(found)

    monkeypatch.setattr(Namespace, "walk", late)
    assert not list(lake.bindings.diff())


def test_a_read_of_a_collected_object_continues_with_the_new_version(
    lake: Namespace, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`read` opens the file again if it has another version."""
    lake.write("a", b"old")
    opened = lake.open("a")
    lake.write("a", b"new")
    clock.advance(61)
    lake.maintenance.gc()
    answers = iter([opened])
    right = Namespace.open
    monkeypatch.setattr(Namespace, "open", lambda self, path: next(answers, None) or right(self, path))
    assert lake.read("a") == b"new"


def test_existing_content_can_be_linked(lake: Namespace, store: ObjectStore) -> None:
    """A file can be made of an object that a task has stored."""
    result = store.put("elsewhere/part-0", b"rows")
    data = Data(path=result.path, size=4, etag=result.etag, version=result.version)
    assert lake.link("out/part-0", data).data == data
    assert lake.read("out/part-0") == b"rows"
    with pytest.raises(AlreadyExists):
        lake.link("out/part-0", data, overwrite=False)
    assert store.head("elsewhere/part-0").size == 4  # only content that `write` has stored is deleted


def test_linking_the_same_object_again_does_not_make_it_garbage(
    lake: Namespace, store: ObjectStore, clock: ManualClock
) -> None:
    """A caller repeats a link after an unknown outcome."""
    result = store.put("part-0", b"rows")
    data = Data(path=result.path, size=4, etag=result.etag)
    for _ in range(2):
        lake.link("f", data)
    clock.advance(61)
    assert lake.maintenance.gc().objects == 0
    assert lake.read("f") == b"rows"


def test_an_object_with_the_longest_path_is_collected(
    lake: Namespace, store: ObjectStore, clock: ManualClock
) -> None:
    """This includes an object that was linked as the namespace's own, but stored by another program."""
    path = "p" * 900 + "/" + "q" * 123
    for name in ("overwritten", "deleted"):
        result = store.put(path, name.encode())
        lake.link(name, Data(path=path, size=len(name), etag=result.etag))
        if name == "overwritten":
            lake.write(name, b"")
        else:
            lake.delete(name)
        clock.advance(61)
        assert lake.maintenance.gc().objects == 1
        assert store.begin_head(path)().info is None


@pytest.mark.parametrize("own", [True, False])
def test_foreign_content_is_not_removed(
    lake: Namespace, store: ObjectStore, clock: ManualClock, own: bool
) -> None:
    """When no file refers to it any more, its record is dropped and the object stays."""
    etag = store.put("theirs", b"rows").etag
    lake.link("f", Data(path="theirs", size=4, etag=etag, own=own))
    lake.delete("f")
    clock.advance(61)
    assert lake.maintenance.gc().objects == own
    assert [info.path for info in objects_in(store)] == ["theirs"] * (not own)
    assert lake.maintenance.gc().objects == 0


def test_only_files_can_be_opened(lake: Namespace) -> None:
    """A directory has no content, and a file has no children."""
    lake.write("d/file", b"")
    for path in ("d", ""):
        with pytest.raises(IsADirectory):
            lake.open(path)
    for path in ("x", "d/file/x", "d/x/y"):
        with pytest.raises(NotFound):
            lake.open(path)
        assert not lake.exists(path)


# -- directories -------------------------------------------------------------------------------------


def test_directories_are_made_with_their_parents(lake: Namespace) -> None:
    """This is one step. Existing directories are unchanged."""
    made = lake.make_directory("a/b/c")
    assert (made.path, made.is_directory, made.size, made.data) == ("a/b/c", True, 0, None)
    assert lake.make_directory("a/b/c") == made
    assert lake.make_directory("").path == ""
    lake.write("file", b"")
    with pytest.raises(AlreadyExists):
        lake.make_directory("file")
    with pytest.raises(NotADirectory):
        lake.make_directory("file/x/y")
    assert names(lake) == ["a/", "a/b/", "a/b/c/", "file"]


def test_a_listing_is_sorted_and_paged(lake: Namespace) -> None:
    """The order is by UTF-8 bytes, over all shards. The token of a page gives the next page."""
    lake.make_directory("d", shards=4)
    wanted = sorted(["ü", "a", "B", "b/x", *(f"{number:02}" for number in range(20)), "￿", "𝄞"])
    for name in wanted:
        lake.write(f"d/{name}", b"")
    wanted[wanted.index("b/x")] = "b"
    wanted = sorted(set(wanted), key=str.encode)
    assert [found.name for found in lake.list("d")] == wanted
    token, pages = None, []
    while True:
        page = lake.list_page("d", limit=7, token=token)
        pages.append([found.name for found in page.entries])
        token = page.next_token
        if token is None:
            break
    assert [len(page) for page in pages] == [7, 7, 7, 5]
    assert [name for page in pages for name in page] == wanted
    assert lake.list_page("d", limit=26).next_token is None
    assert [found.path for found in lake.list("d/a")] == ["d/a"]
    assert [found.path for found in lake.list_page("d/a").entries] == ["d/a"]
    for bad in ("!", "gA=="):
        with pytest.raises(ConfigurationError, match="token"):
            lake.list_page("d", token=bad)
    for limit in (0, 2**70):
        with pytest.raises(ConfigurationError, match="limit"):
            lake.list_page("d", limit=limit)
    with pytest.raises(NotFound):
        list(lake.list("missing"))


def test_resharding_moves_no_entries(lake: Namespace) -> None:
    """Old entries are found, overwritten, renamed and deleted in place. New names use all shards."""
    for path in ("d", ""):
        for number in range(8):
            lake.write(f"{path}/{number}".strip("/"), b"old")
        assert lake.reshard(path, shards=4).entry.shards.now == 4
        assert lake.reshard(path, shards=2).entry.shards.now == 4
        for number in range(4, 16):
            lake.write(f"{path}/{number}".strip("/"), b"new")
        with pytest.raises(AlreadyExists):
            lake.write(f"{path}/3".strip("/"), b"", overwrite=False)
        lake.rename(f"{path}/0".strip("/"), f"{path}/zero".strip("/"))
        lake.rename(f"{path}/1".strip("/"), f"{path}/2".strip("/"), overwrite=True)
        lake.delete(f"{path}/3".strip("/"))
    numbers = sorted([*map(str, range(4, 16)), "2", "zero"])
    assert [found.name for found in lake.list("d")] == numbers
    assert [found.name for found in lake.list()] == [*numbers[:-1], "d", "zero"]
    assert lake.read("d/2") == b"old" and lake.read("d/5") == b"new"
    with pytest.raises(DirectoryNotEmpty):
        lake.delete("d")
    for found in lake.list("d"):
        lake.delete(found.path)
    lake.delete("d")
    for bad in (0, 3, 128, True, 2.0):
        with pytest.raises(ConfigurationError, match="shards"):
            lake.make_directory("x", shards=bad)  # type: ignore[arg-type]
    lake.write("f", b"")
    with pytest.raises(NotADirectory):
        lake.reshard("f", shards=2)


def test_a_file_recreated_in_another_shard_is_listed_once(
    store: ObjectStore, clock: ManualClock
) -> None:
    """A listing that has passed its old shard lists it as it is now, like `stat`."""
    lake = Namespace(ServiceTable(clock=clock), store, LAKE, clock=clock)
    lake.create()
    lake.make_directory("d")
    files = {f"{number:04}": lake.upload(b"") for number in range(600)}
    lake.bulk_link("d", files)
    lake.reshard("d", shards=2)
    again = next(name for name in files if shards_of(name, 2, 1)[0] == 1)
    # More names before it than a page has, so that the page with the new file is read later.
    new = (name for name in map("!{:04}".format, range(1300)) if shards_of(name, 2, 1)[0] == 1)
    lake.bulk_link("d", {name: lake.upload(b"") for name in islice(new, 501)})
    listing = lake.list("d")
    listed = [next(listing)]
    lake.delete(f"d/{again}")
    lake.write(f"d/{again}", b"new")
    listed += listing
    assert len(listed) == len({each.name for each in listed}) == 1101
    assert [each.size for each in listed if each.name == again] == [3]


def test_a_full_listing_reads_larger_pages_with_each_request(
    store: ObjectStore, clock: ManualClock
) -> None:
    """This holds for any number of shards. A short page reads no more than it needs."""
    wire = InterceptedTable(ServiceTable(clock=clock))
    lake = Namespace(wire, store, LAKE, clock=clock)
    lake.create()
    lake.make_directory("d", shards=64)
    content = evolve(lake.upload(b""), own=False)
    lake.bulk_link("d", {f"{number:05}": content for number in range(6400)})
    wire.requests.clear()
    assert len(list(lake.list("d"))) == 6400
    assert wire.requests["query"] <= 64 * 4  # of 16, 32, 64 and 128
    wire.requests.clear()
    page = lake.list_page("d", limit=10)
    assert [each.name for each in page.entries] == [f"{number:05}" for number in range(10)]
    assert wire.requests["query"] <= 64 + 10


def test_a_client_with_a_cached_root_notices_resharding(
    lake: Namespace, table: Table, store: ObjectStore
) -> None:
    """It finds entries of others in the new shards, and writes to them."""
    other = Namespace(table, store, LAKE)
    assert not other.exists("x")
    lake.reshard("", shards=8)
    for number in range(8):
        lake.write(f"{number}", b"")
    assert all(other.exists(f"{number}") for number in range(8))
    late = Namespace(table, store, LAKE)
    assert late.exists("1")
    lake.reshard("", shards=16)
    late.write("9", b"")
    assert lake.exists("9") and len(list(late.list())) == 9


# -- rename ------------------------------------------------------------------------------------------


def test_a_file_is_renamed(lake: Namespace) -> None:
    """It keeps its id, content and times, and its version grows."""
    old = lake.write("a/f", b"1", attributes={"x": "1"})
    lake.make_directory("b")
    new = lake.rename("a/f", "b/g")
    assert (new.path, new.id, new.version, new.data) == ("b/g", old.id, 2, old.data)
    assert (new.created, new.modified, new.attributes) == (old.created, old.modified, old.attributes)
    assert lake.rename("b/g", "b/g").version == 2
    assert names(lake) == ["a/", "b/", "b/g"]


def test_a_directory_is_renamed_with_its_content(lake: Namespace) -> None:
    """Only the paths of its content change."""
    below = [lake.write(f"a/b/{name}", b"1") for name in ("x", "y/z")]
    lake.rename("a/b", "c")
    lake.rename("c", "a/d")
    assert names(lake) == ["a/", "a/d/", "a/d/x", "a/d/y/", "a/d/y/z"]
    assert [lake.stat(path).entry for path in ("a/d/x", "a/d/y/z")] == [each.entry for each in below]


def test_a_rename_replaces_only_with_overwrite(lake: Namespace, clock: ManualClock) -> None:
    """With `overwrite`, a file replaces a file, and a directory replaces an empty one."""
    lake.write("f", b"f")
    lake.write("g", b"g")
    lake.write("full/x", b"x")
    lake.make_directory("empty")
    for target in ("g", "full", "empty", ""):
        with pytest.raises(AlreadyExists):
            lake.rename("f", target)
    with pytest.raises(AlreadyExists):
        lake.rename("full", "", overwrite=True)
    with pytest.raises(IsADirectory):
        lake.rename("f", "empty", overwrite=True)
    with pytest.raises(NotADirectory):
        lake.rename("full", "f", overwrite=True)
    with pytest.raises(DirectoryNotEmpty):
        lake.rename("empty", "full", overwrite=True)
    lake.rename("f", "g", overwrite=True)
    lake.rename("full", "empty", overwrite=True)
    assert names(lake) == ["empty/", "empty/x", "g"]
    assert lake.read("g") == b"f"
    clock.advance(61)
    assert lake.maintenance.gc().objects == 1


def test_impossible_renames_are_refused(lake: Namespace) -> None:
    """This includes targets below the source, below a file and in a missing directory, and the root."""
    lake.write("a/b/f", b"")
    for target in ("a/b", "a/x", "a/b/c/d"):
        with pytest.raises(InvalidPath, match="below itself"):
            lake.rename("a", target)
    assert lake.rename("a/b", "ab").path == "ab"  # not below "a", although it begins with it
    lake.rename("ab", "a/bc")
    with pytest.raises(InvalidPath, match="root"):
        lake.rename("", "x")
    with pytest.raises(NotADirectory):
        lake.rename("a/bc/f", "a/bc/f/x")
    with pytest.raises(NotFound):
        lake.rename("a/bc/f", "x/y/z")
    with pytest.raises(NotFound):
        lake.rename("missing", "x")
    assert names(lake) == ["a/", "a/bc/", "a/bc/f"]


def test_the_distance_of_a_rename_is_limited(lake: Namespace) -> None:
    """The two paths may differ in about ninety directories. The error says how to move further."""
    deep = "/".join("d" * 60)
    for top in ("a", "b"):
        lake.make_directory("/".join([top, *"d" * 29]))
        lake.make_directory(f"{top}/{deep}")
    lake.make_directory(f"a/{deep}/x")
    with pytest.raises(TransactionTooLarge, match=r"takes 126 writes .* in steps") as refused:
        lake.rename(f"a/{deep}/x", f"b/{deep}/x")
    assert isinstance(refused.value, NotSupported)
    lake.rename(f"a/{deep}/x", "x")
    lake.rename("x", f"b/{deep}/x")
    with pytest.raises(TransactionTooLarge, match="Make the upper directories first"):
        lake.make_directory("/".join("e" * 40))


def test_directories_are_made_in_steps_that_fit(
    lake: Namespace, table: Table, store: ObjectStore, clock: ManualClock
) -> None:
    """Many shards and the conditions of stable paths leave a transaction less room for directories."""
    deep = "/".join("d" * 13)
    with pytest.raises(TransactionTooLarge):
        lake.make_directory(deep, shards=64)
    assert lake.make_directory(deep, shards=64, atomic=False).entry.shards.now == 64
    assert lake.stat(deep.rpartition("/")[0]).entry.shards.now == 1
    with pytest.raises(AlreadyExists):
        lake.make_directory(deep, exist_ok=False, atomic=False)
    stable = Namespace(table, store, LAKE, clock=clock, stable_paths=True)
    assert stable.make_directory("/".join("e" * 60), atomic=False).is_directory
    with pytest.raises(TransactionTooLarge):
        stable.make_directory("/".join("f" * 120), atomic=False)


# -- deletion ----------------------------------------------------------------------------------------


def test_a_deleted_file_does_not_exist(lake: Namespace) -> None:
    """A new file of the same name has another id."""
    old = lake.write("a", b"1")
    lake.delete("a")
    assert not lake.exists("a")
    with pytest.raises(NotFound):
        lake.delete("a")
    assert lake.write("a", b"2").id != old.id


def test_a_directory_is_deleted_if_empty_or_recursively(
    lake: Namespace, table: Table, store: ObjectStore, clock: ManualClock
) -> None:
    """It disappears at once. `empty_trash` and `gc` remove all of its records and objects."""
    untouched = {key_of(item) for item in table.scan()}
    for path in ("d/e/f", "d/e/g", "d/h", "d/i/j/k/l"):
        lake.write(path, b"123")
    with pytest.raises(DirectoryNotEmpty):
        lake.delete("d")
    with pytest.raises(InvalidPath, match="root"):
        lake.delete("", recursive=True)
    lake.delete("d", recursive=True)
    assert names(lake) == []
    lake.make_directory("d")
    lake.delete("d")
    reported: list[object] = []
    swept = lake.maintenance.empty_trash(reported.append)
    assert (swept.files, swept.directories) == (4, 6)
    assert reported[-1] == swept
    assert lake.maintenance.empty_trash().files == 0
    clock.advance(61)
    assert lake.maintenance.gc().bytes == 12
    assert objects_in(store) == []
    assert {key_of(item) for item in table.scan()} == untouched


def key_of(item: object) -> tuple[str, str]:
    """Return the key of an item."""
    return item["place"], item["name"]  # type: ignore[index]


def test_the_trash_is_emptied_with_few_requests(lake: Namespace) -> None:
    """Files become garbage in batches of fifty."""
    for number in range(103):
        lake.write(f"d/{number}", b"")
    lake.delete("d", recursive=True)
    swept = lake.maintenance.empty_trash()
    assert (swept.files, swept.directories) == (103, 1)


def test_a_failed_removal_is_reported_and_retried(
    lake: Namespace, store: ObjectStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exactly the objects that a bulk deletion did not remove stay garbage."""
    kept = lake.write("a", b"1").data
    lake.write("b", b"22")
    lake.delete("a")
    lake.delete("b")
    clock.advance(61)
    assert kept is not None
    right = store.delete_many

    def partly(paths: list[str]) -> dict[str, Exception]:
        right([path for path in paths if path != kept.path])
        return {path: NotSupported("locked") for path in paths if path == kept.path}

    monkeypatch.setattr(store, "delete_many", partly)
    collected = lake.maintenance.gc()
    assert (collected.objects, collected.bytes, collected.failed) == (1, 2, ((kept.path, "locked"),))
    monkeypatch.undo()
    assert lake.maintenance.gc().objects == 1


# -- attributes --------------------------------------------------------------------------------------


def test_attributes_are_merged(lake: Namespace, clock: ManualClock) -> None:
    """None removes an attribute. A change makes a new version, and content and creation time stay."""
    lake.write("d/f", b"1", attributes={"a": "1", "b": "2"})
    clock.advance(3)
    for path in ("d/f", "d", ""):
        before = lake.stat(path)
        changed = lake.set_attributes(path, modified=17, attributes={"b": None, "c": "3"})
        assert changed == lake.stat(path)
        assert dict(changed.attributes) == ({"a": "1", "c": "3"} if path == "d/f" else {"c": "3"})
        assert (changed.modified, changed.created, changed.data) == (17, before.created, before.data)
        assert (changed.version, changed.updated) == (before.version + 1, int(clock.epoch() * 1000))
        assert lake.set_attributes(path).modified == 17
        assert lake.set_attributes(path, modified=-17).modified == 0  # as for objects from before 1970
    assert lake.stat("d") in list(lake.list())
    with pytest.raises(NotFound):
        lake.set_attributes("x")


def test_values_that_cannot_be_stored_are_refused(lake: Namespace) -> None:
    """Attributes are texts, times are integers, and content has a path and an etag."""
    lake.write("f", b"1")
    for attributes in ({"a": 1}, {1: "a"}, {"a": b""}):
        with pytest.raises(TypeError):
            lake.set_attributes("f", attributes=attributes)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            lake.write("g", b"1", attributes=attributes)  # type: ignore[arg-type]
    for modified in (1.5, 2**63):
        with pytest.raises(TypeError):
            lake.set_attributes("f", modified=modified)  # type: ignore[arg-type]
    with pytest.raises(InvalidPath):
        Data(path="../x", size=0, etag="e")
    with pytest.raises(TypeError):
        Data(path="x", size=-1, etag="e")
    assert lake.stat("f").version == 1 and not lake.exists("g")


def test_threads_can_share_a_namespace(lake: Namespace) -> None:
    """Each exclusive write and each rename has one winner."""

    def work(number: int) -> tuple[int, int]:
        won = moved = 0
        for step in range(4):
            with contextlib.suppress(AlreadyExists):
                won += lake.write(f"d/{step}", bytes([number]), overwrite=False).version
            with contextlib.suppress(NotFound):
                moved += lake.rename(f"d/{step}", f"e/{number}-{step}").version > 0
        return won, moved

    lake.make_directory("e")
    with ThreadPoolExecutor(4) as threads:
        done = list(threads.map(work, range(4)))
    found = [found.name for found in lake.walk() if not found.is_directory]
    assert sum(won for won, _ in done) == len(found)
    assert sum(moved for _, moved in done) == len([name for name in found if "-" in name])


def test_a_summary_counts_files_directories_and_bytes(lake: Namespace) -> None:
    """It covers the path and all paths below it."""
    lake.write("d/e/f", b"123")
    lake.write("d/g", b"4")
    lake.make_directory("d/h")
    assert lake.summary("d") == Summary(files=2, directories=3, bytes=4)
    assert lake.summary() == Summary(files=2, directories=4, bytes=4)
    assert lake.summary("d/g") == Summary(files=1, directories=0, bytes=1)


# -- paths -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/a", "a/", "a//b", ".", "a/../b", "a\nb", "\ud800", "x" * 256])
def test_invalid_paths_are_refused(lake: Namespace, path: str) -> None:
    """They are not repaired."""
    for call in (lake.stat, lake.make_directory, lake.delete):
        with pytest.raises(InvalidPath):
            call(path)


def test_the_staging_directory_is_reserved(lake: Namespace) -> None:
    """No listing would show files in it. Only the name in the root is reserved."""
    data = lake.write("f", b"1").data
    assert data is not None
    foreign = evolve(data, own=False)
    lake.make_directory("d")
    for there in (".staging", ".staging/x", ".staging/x/y"):
        refused: list[Callable[[], object]] = [
            lambda: lake.write(there, b""),  # noqa: B023
            lambda: lake.open_writer(there),  # noqa: B023
            lambda: lake.link(there, foreign),  # noqa: B023
            lambda: lake.link_many({"g": foreign, there: foreign}),  # noqa: B023
            lambda: lake.make_directory(there),  # noqa: B023
            lambda: lake.rename("f", there),  # noqa: B023
            lambda: lake.rename("d", there, overwrite=True),  # noqa: B023
            lambda: lake.replace("d", there),  # noqa: B023
            lambda: lake.bindings.bind("raw/", there),  # noqa: B023
        ]
        for make in refused:
            with pytest.raises(InvalidPath, match=r"'\.staging' in the root holds unpublished jobs"):
                make()
    with pytest.raises(InvalidPath, match="jobs"):
        lake.bulk_link("", {"g": foreign, ".staging": foreign})
    assert names(lake) == ["d/", "f"] and not lake.exists(".staging")
    lake.write("d/.staging/x", b"")
    lake.write(".staging-2", b"")
    attempt = f".staging/{'0' * 32}"
    lake.write(f"{attempt}/x", b"1")
    lake.rename(f"{attempt}/x", f"{attempt}/y")
    lake.rename(attempt, "published")
    assert names(lake, "published") == ["published/y"]


def test_old_entries_in_the_staging_directory_can_be_moved_out(
    lake: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier versions allowed them. They can be read, renamed and deleted by path."""
    for _ in range(2):
        with monkeypatch.context() as before:
            before.setattr(keys, "STAGING", "")
            lake.write(".staging", b"1")
        assert names(lake) == [] and lake.read(".staging") == b"1"
        lake.delete(".staging")
    with monkeypatch.context() as before:
        before.setattr(keys, "STAGING", "")
        lake.write(".staging/data/f", b"1")
    assert names(lake, ".staging") == [".staging/data/", ".staging/data/f"]
    lake.set_attributes(".staging/data", attributes={"a": "1"})
    lake.rename(".staging/data", "data")
    lake.delete(".staging")
    assert names(lake) == ["data/", "data/f"]


def test_names_are_not_normalised(lake: Namespace) -> None:
    """Composed and decomposed letters differ, and so do upper and lower case."""
    for number, name in enumerate(["\u00e9", "e\u0301", "E", "e"]):
        lake.write(name, bytes([number]))
    assert len(list(lake.list())) == 4
