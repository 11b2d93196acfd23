"""The contract of a namespace, over every table: what each operation does, refuses, and leaves alone."""

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
    """Each kind of table in turn, new."""
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
    """A clock that is moved by hand."""
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> ObjectStore:
    """A store for content."""
    return MemoryStore(clock=clock)


@pytest.fixture
def lake(table: Table, store: ObjectStore, clock: ManualClock) -> Iterator[Namespace]:
    """A new namespace; after the test, nothing is wrong with it."""
    namespace = Namespace(table, store, LAKE, clock=clock, grace=60)
    assert namespace.create()
    yield namespace
    Auditor(table, LAKE).audit()


def names(lake: Namespace, path: str = "") -> list[str]:
    """Return the paths below `path`, those of directories with a slash."""
    return [found.path + "/" * found.is_directory for found in lake.walk(path)]


# -- the namespace itself ----------------------------------------------------------------------------


def test_what_gets_in_the_way_of_making_it_is_told_as_what_it_is(store: ObjectStore) -> None:
    """Transactions in each other's way are a `Conflict`, and no damage."""
    wire = InterceptedTable(ServiceTable())
    new = Namespace(wire, store, LAKE, clock=ManualClock(), backoff=QUICK)

    def step(what: str, perform: Callable[[], object]) -> None:
        if what == "transact":
            raise Conflict("they got in each other's way")
        perform()

    wire.step = step
    with pytest.raises(Conflict, match="each other's way"):
        new.create()


def test_what_a_table_says_of_itself_is_not_taken_for_a_limit(lake: Namespace) -> None:
    """A record that cannot be read is told as that, and not as a transaction that is too large."""

    def transact(*_: object, **__: object) -> None:
        raise CorruptRecord("it cannot be read")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(type(lake.table), "transact", transact)
        with pytest.raises(CorruptRecord, match="it cannot be read"):
            lake.write("f", b"1")


def test_a_namespace_is_made_once(lake: Namespace, table: Table, store: ObjectStore) -> None:
    """Making it again changes nothing; another name in the same table is another tree."""
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
        table.delete(table.schema.key_of(item))  # for the auditor, who knows one


def test_a_namespace_of_a_newer_format_is_left_alone(
    lake: Namespace, table: Table, store: ObjectStore
) -> None:
    """A newer minimum for writers still lets this library read; one for readers does not.

    What `create` makes has the first format, which the first release changes, too.
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
    """A table that lost the marker is refused: nobody knows what is in it."""
    marker = lake.describe()
    table.delete(marker.key)
    with pytest.raises(CorruptRecord, match="but not the record of its format"):
        Namespace(table, store, LAKE, clock=clock).create()
    table.put(marker.to_item())


@pytest.mark.servers
def test_a_table_without_transactions_is_refused(request: pytest.FixtureRequest) -> None:
    """The message says what is missing, and what has it; nothing was written."""
    server = request.getfixturevalue("dynalite")
    table = open_table(f"dynamodb://{server.new_table_name()}", NAMESPACE_SCHEMA, **server.options)
    table.create()
    with pytest.raises(NotSupported, match="has no transactions, and a namespace needs them"):
        Namespace(table, MemoryStore(clock=ManualClock()), LAKE).create()
    assert list(table.scan()) == []
    table.close()


@pytest.mark.parametrize("name", ["", "a/b", ".hidden", "ü", "x" * 65])
def test_names_of_namespaces(name: str, store: ObjectStore) -> None:
    """What could be mistaken for something else in a key is no name."""
    table = MemoryTable(parse_table_url("memory://"), NAMESPACE_SCHEMA, clock=ManualClock())
    with pytest.raises(ConfigurationError, match="a name has 1 to 64"):
        Namespace(table, store, name)
    with pytest.raises(ConfigurationError, match="grace"):
        Namespace(table, store, LAKE, grace=-1)


# -- files -------------------------------------------------------------------------------------------


def test_a_file_is_what_was_written(lake: Namespace, clock: ManualClock) -> None:
    """Content, size, times and attributes are those of the write; directories above are made."""
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


def test_what_is_told_of_a_file_can_be_sent_elsewhere(lake: Namespace) -> None:
    """A status and a page of a listing can be pickled and copied, attributes included."""
    lake.write("a", b"rows", attributes={"from": "here"})
    for told in (lake.stat("a"), lake.list_page("")):
        assert pickle.loads(pickle.dumps(told)) == copy.deepcopy(told) == told


def test_an_empty_file_and_a_file_of_a_stream(lake: Namespace) -> None:
    """No bytes are content as well; a binary file is read to its end."""
    assert lake.write("empty", b"").size == 0
    assert lake.read("empty") == b""
    assert lake.write("stream", io.BytesIO(b"12345")).size == 5
    assert lake.read("stream") == b"12345"


def test_what_is_no_content_is_refused(lake: Namespace, store: ObjectStore) -> None:
    """Text and None are no bodies: that is told before anything is stored."""
    for body in ("text", None, io.StringIO("text")):
        with pytest.raises(TypeError, match="a body is bytes, or a file that is open in binary mode"):
            lake.write("a", cast(Body, body))
    assert not objects_in(store) and not lake.exists("a")


def test_an_overwritten_file_keeps_its_id(lake: Namespace, clock: ManualClock) -> None:
    """Its version grows, its creation time stays, and nothing of the old content or attributes."""
    old = lake.write("a", b"old", attributes={"x": "1"})
    clock.advance(1)
    new = lake.write("a", b"new!")
    assert (new.id, new.version, new.created) == (old.id, 2, old.created)
    assert (new.size, new.modified, dict(new.attributes)) == (4, old.modified + 1000, {})
    assert lake.read("a") == b"new!"


def test_an_exclusive_write_finds_the_path_free_or_fails(lake: Namespace, store: ObjectStore) -> None:
    """What is there stays, and no content is left behind."""
    lake.write("a", b"1", overwrite=False)
    lake.make_directory("d")
    for path in ("a", "d"):
        with pytest.raises(AlreadyExists):
            lake.write(path, b"2", overwrite=False)
    assert lake.read("a") == b"1"
    assert len(objects_in(store)) == 1


def test_what_a_file_cannot_replace(lake: Namespace) -> None:
    """A directory, the root, what is below a file; and a missing directory, unless it is to be made."""
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


def test_a_file_that_comes_bit_by_bit(lake: Namespace, store: ObjectStore) -> None:
    """It appears whole with the commit; without one it never does, and leaves nothing."""
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


def test_an_upload_whose_answers_are_lost(
    lake: Namespace, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is found by its nonce, or stored again under another name; what fails leaves nothing."""
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


def test_readers_keep_what_they_opened(lake: Namespace, clock: ManualClock) -> None:
    """A file that is overwritten or deleted is readable to the end for those who have it open."""
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


def test_content_that_was_changed_behind_our_back(lake: Namespace, store: ObjectStore) -> None:
    """Neither another content nor a missing one is taken for the file's."""
    data = lake.write("a", b"right").data
    assert data is not None
    store.put(data.path, b"wrong")
    with pytest.raises(ObjectChanged, match="another program replaced it"):
        lake.read("a")
    store.delete(data.path)
    with pytest.raises(ObjectChanged, match="is gone"):
        lake.read("a")


def test_differences_are_told(lake: Namespace, store: ObjectStore) -> None:
    """Which files have lost their object, and whose was replaced; the others are not mentioned."""
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
        lake.write(each.status.path, b"right")  # which makes the directory change while it is walked
    assert not list(lake.bindings.diff())


def test_a_file_that_is_overwritten_while_it_is_compared_is_no_difference(
    lake: Namespace, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its old object is gone by right; what there is now is looked at."""
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


def test_a_reader_that_finds_its_object_collected_looks_again(
    lake: Namespace, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`read` goes on with the version that is there now, if there is another one."""
    lake.write("a", b"old")
    opened = lake.open("a")
    lake.write("a", b"new")
    clock.advance(61)
    lake.maintenance.gc()
    answers = iter([opened])
    right = Namespace.open
    monkeypatch.setattr(Namespace, "open", lambda self, path: next(answers, None) or right(self, path))
    assert lake.read("a") == b"new"


def test_content_that_is_there_is_linked(lake: Namespace, store: ObjectStore) -> None:
    """A file can be made of an object that a task has stored."""
    result = store.put("elsewhere/part-0", b"rows")
    data = Data(path=result.path, size=4, etag=result.etag, version=result.version)
    assert lake.link("out/part-0", data).data == data
    assert lake.read("out/part-0") == b"rows"
    with pytest.raises(AlreadyExists):
        lake.link("out/part-0", data, overwrite=False)
    assert store.head("elsewhere/part-0").size == 4  # only what `write` has stored is dropped


def test_linking_the_same_again_does_not_make_it_garbage(
    lake: Namespace, store: ObjectStore, clock: ManualClock
) -> None:
    """As a caller does who has not heard what became of his first call."""
    result = store.put("part-0", b"rows")
    data = Data(path=result.path, size=4, etag=result.etag)
    for _ in range(2):
        lake.link("f", data)
    clock.advance(61)
    assert lake.maintenance.gc().objects == 0
    assert lake.read("f") == b"rows"


def test_an_object_of_the_longest_path_is_collected_as_others_are(
    lake: Namespace, store: ObjectStore, clock: ManualClock
) -> None:
    """Also one that was linked as the namespace's own, though it has not stored it."""
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
def test_content_that_is_not_our_own_is_not_removed(
    lake: Namespace, store: ObjectStore, clock: ManualClock, own: bool
) -> None:
    """When nothing names it any more, it is forgotten, and stays."""
    etag = store.put("theirs", b"rows").etag
    lake.link("f", Data(path="theirs", size=4, etag=etag, own=own))
    lake.delete("f")
    clock.advance(61)
    assert lake.maintenance.gc().objects == own
    assert [info.path for info in objects_in(store)] == ["theirs"] * (not own)
    assert lake.maintenance.gc().objects == 0


def test_reading_what_is_no_file(lake: Namespace) -> None:
    """A directory has no content, and nothing is below a file."""
    lake.write("d/file", b"")
    for path in ("d", ""):
        with pytest.raises(IsADirectory):
            lake.open(path)
    for path in ("x", "d/file/x", "d/x/y"):
        with pytest.raises(NotFound):
            lake.open(path)
        assert not lake.exists(path)


# -- directories -------------------------------------------------------------------------------------


def test_directories_are_made_with_all_above(lake: Namespace) -> None:
    """In one step; what is there already is left as it is."""
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


def test_a_listing_is_sorted_and_comes_in_pages(lake: Namespace) -> None:
    """By UTF-8 bytes, over all shards; the token of a page gets the next one."""
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


def test_a_directory_grows_without_moving_anything(lake: Namespace) -> None:
    """What was there is found, overwritten, renamed and deleted where it is; new names spread."""
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


def test_what_is_made_again_in_another_shard_is_listed_once(
    store: ObjectStore, clock: ManualClock
) -> None:
    """Also if a listing that goes on has seen it where it was: as it is now, like `stat` tells it."""
    lake = Namespace(ServiceTable(clock=clock), store, LAKE, clock=clock)
    lake.create()
    lake.make_directory("d")
    files = {f"{number:04}": lake.upload(b"") for number in range(600)}
    lake.bulk_link("d", files)
    lake.reshard("d", shards=2)
    again = next(name for name in files if shards_of(name, 2, 1)[0] == 1)
    # More names that come before it than a page has, so that the page with the new one is read later.
    new = (name for name in map("!{:04}".format, range(1300)) if shards_of(name, 2, 1)[0] == 1)
    lake.bulk_link("d", {name: lake.upload(b"") for name in islice(new, 501)})
    listing = lake.list("d")
    listed = [next(listing)]
    lake.delete(f"d/{again}")
    lake.write(f"d/{again}", b"new")
    listed += listing
    assert len(listed) == len({each.name for each in listed}) == 1101
    assert [each.size for each in listed if each.name == again] == [3]


def test_a_listing_to_the_end_asks_for_more_with_each_page(
    store: ObjectStore, clock: ManualClock
) -> None:
    """However many shards there are; for a few entries no more is read than these."""
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


def test_growth_is_noticed_by_who_knew_the_root_before(
    lake: Namespace, table: Table, store: ObjectStore
) -> None:
    """A client that keeps the root's shards finds what others put into new ones, and adds to these."""
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
    """It keeps its id, content and times; its version grows."""
    old = lake.write("a/f", b"1", attributes={"x": "1"})
    lake.make_directory("b")
    new = lake.rename("a/f", "b/g")
    assert (new.path, new.id, new.version, new.data) == ("b/g", old.id, 2, old.data)
    assert (new.created, new.modified, new.attributes) == (old.created, old.modified, old.attributes)
    assert lake.rename("b/g", "b/g").version == 2
    assert names(lake) == ["a/", "b/", "b/g"]


def test_a_directory_is_renamed_with_all_that_is_in_it(lake: Namespace) -> None:
    """Nothing below changes but its path."""
    below = [lake.write(f"a/b/{name}", b"1") for name in ("x", "y/z")]
    lake.rename("a/b", "c")
    lake.rename("c", "a/d")
    assert names(lake) == ["a/", "a/d/", "a/d/x", "a/d/y/", "a/d/y/z"]
    assert [lake.stat(path).entry for path in ("a/d/x", "a/d/y/z")] == [each.entry for each in below]


def test_what_a_rename_replaces(lake: Namespace, clock: ManualClock) -> None:
    """Nothing, unless asked to; then a file a file, and a directory an empty one."""
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


def test_where_nothing_can_be_renamed_to(lake: Namespace) -> None:
    """Below itself, below a file, into a directory that is missing; and the root stays where it is."""
    lake.write("a/b/f", b"")
    for target in ("a/b", "a/x", "a/b/c/d"):
        with pytest.raises(InvalidPath, match="below itself"):
            lake.rename("a", target)
    assert lake.rename("a/b", "ab").path == "ab"  # not below "a", though it begins with it
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


def test_how_far_a_directory_moves_at_once(lake: Namespace) -> None:
    """Up to ninety-odd directories that the two paths do not share; the error says how to go further."""
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


# -- deletion ----------------------------------------------------------------------------------------


def test_a_deleted_file_is_gone(lake: Namespace) -> None:
    """A new one of that name is another file."""
    old = lake.write("a", b"1")
    lake.delete("a")
    assert not lake.exists("a")
    with pytest.raises(NotFound):
        lake.delete("a")
    assert lake.write("a", b"2").id != old.id


def test_a_directory_is_deleted_if_it_is_empty_or_with_all(
    lake: Namespace, table: Table, store: ObjectStore, clock: ManualClock
) -> None:
    """It is gone at once; sweeping and collecting remove every trace of it."""
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
    told: list[object] = []
    swept = lake.maintenance.empty_trash(told.append)
    assert (swept.files, swept.directories) == (4, 6)
    assert told[-1] == swept
    assert lake.maintenance.empty_trash().files == 0
    clock.advance(61)
    assert lake.maintenance.gc().bytes == 12
    assert objects_in(store) == []
    assert {key_of(item) for item in table.scan()} == untouched


def key_of(item: object) -> tuple[str, str]:
    """Return the key of an item."""
    return item["place"], item["name"]  # type: ignore[index]


def test_a_large_directory_is_swept_in_few_requests(lake: Namespace) -> None:
    """Fifty files at a time become garbage."""
    for number in range(103):
        lake.write(f"d/{number}", b"")
    lake.delete("d", recursive=True)
    swept = lake.maintenance.empty_trash()
    assert (swept.files, swept.directories) == (103, 1)


def test_a_failed_removal_is_told_and_tried_again(
    lake: Namespace, store: ObjectStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a bulk deletion did not remove stays listed as garbage, exactly that."""
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


def test_attributes(lake: Namespace, clock: ManualClock) -> None:
    """They are merged, removed by None, and a new version; content and creation stay."""
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
        assert lake.set_attributes(path, modified=-17).modified == 0  # as of objects of before 1970
    assert lake.stat("d") in list(lake.list())
    with pytest.raises(NotFound):
        lake.set_attributes("x")


def test_what_could_not_be_read_again_is_not_written(lake: Namespace) -> None:
    """Attributes are texts, times are whole numbers, and content has a path and an etag."""
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


def test_clients_in_many_threads(lake: Namespace) -> None:
    """One `Namespace` serves them all; each exclusive write and each rename has one winner."""

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


def test_summary(lake: Namespace) -> None:
    """Files, directories and bytes at and below a path."""
    lake.write("d/e/f", b"123")
    lake.write("d/g", b"4")
    lake.make_directory("d/h")
    assert lake.summary("d") == Summary(files=2, directories=3, bytes=4)
    assert lake.summary() == Summary(files=2, directories=4, bytes=4)
    assert lake.summary("d/g") == Summary(files=1, directories=0, bytes=1)


# -- paths -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/a", "a/", "a//b", ".", "a/../b", "a\nb", "\ud800", "x" * 256])
def test_paths_that_are_none(lake: Namespace, path: str) -> None:
    """They are refused, not repaired."""
    for call in (lake.stat, lake.make_directory, lake.delete):
        with pytest.raises(InvalidPath):
            call(path)


def test_nothing_but_jobs_can_be_made_where_jobs_are(lake: Namespace) -> None:
    """No listing would show it; only the name in the root is taken so."""
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


def test_what_came_to_be_where_jobs_are_can_be_taken_from_there(
    lake: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was not refused at all times; whoever knows of it reads, renames and deletes it as all else."""
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


def test_names_that_look_alike_are_different(lake: Namespace) -> None:
    """Nothing is normalised: composed and decomposed letters, upper and lower case differ."""
    for number, name in enumerate(["\u00e9", "e\u0301", "E", "e"]):
        lake.write(name, bytes([number]))
    assert len(list(lake.list())) == 4
