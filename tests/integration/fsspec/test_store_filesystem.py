"""`StoreFileSystem`: the guarantees in addition to those of fsspec's own tests."""

# ruff: noqa: PT012 - the tests are about blocks that fail

from __future__ import annotations

import contextlib
import io
import json
import pickle
import re
import resource
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import pandas
import pyarrow
import pyarrow.parquet
import pytest

from commitlog.commit import ConditionalStore
from commitlog.errors import (
    AccessDenied,
    AlreadyExists,
    ConfigurationError,
    Conflict,
    DirectoryNotEmpty,
    InvalidPath,
    IsADirectory,
    JobAborted,
    JobAlreadyCommitted,
    NotADirectory,
    NotFound,
    NotSupported,
    OutcomeUnknown,
    PreconditionFailed,
    Unavailable,
)
from commitlog.filesystem import LocalStoreFileSystem, MemoryStoreFileSystem, S3StoreFileSystem
from commitlog.outputs import Output
from commitlog.stores.api import Page
from commitlog.stores.memory import MemoryStore
from commitlog.testing.proxy import Proxy
from support.project import ROOT
from support.servers import Ministack

BIG = 9 << 20


@pytest.fixture(params=["memory", "file"])
def kind(request: pytest.FixtureRequest) -> str:
    """The kind of the store."""
    found: str = request.param
    return found


@pytest.fixture
def fs(kind: str, tmp_path: Path) -> Iterator[Any]:
    """A file system."""
    made: Any = MemoryStoreFileSystem(skip_instance_cache=True)
    if kind == "file":
        made = LocalStoreFileSystem(root=f"{tmp_path}/lake", skip_instance_cache=True)
    yield made
    made.close()


@pytest.fixture
def top(kind: str, tmp_path: Path) -> str:
    """The path of the store."""
    return f"{tmp_path}/lake" if kind == "file" else tmp_path.name


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[tuple[MemoryStoreFileSystem, str]]:
    """A file system in memory, and the path of a store."""
    made = MemoryStoreFileSystem(skip_instance_cache=True)
    made.pipe(f"{tmp_path.name}/first", b"1")
    yield made, tmp_path.name
    made.close()


def uploads(fs: Any, top: str) -> list[str]:
    """Return the paths of uploads that are neither published nor dropped."""
    return [each.path for each in fs._locations.find(top).store.list_staged()]


def failing(
    monkeypatch: pytest.MonkeyPatch, method: str, *errors: Exception, after: bool = False
) -> None:
    """Let the next calls of a method of the store raise errors, before it or, with `after`, after it."""
    real, left = getattr(MemoryStore, method), list(errors)

    def called(self: MemoryStore, *args: Any, **kwargs: Any) -> Any:
        if not left:
            return real(self, *args, **kwargs)
        error = left.pop(0)
        if after:
            real(self, *args, **kwargs)
        raise error

    monkeypatch.setattr(MemoryStore, method, called)


# -- instances and paths -----------------------------------------------------------------------------


def test_fsspec_knows_the_protocols(fs: Any, top: str, kind: str) -> None:
    """Paths and URLs are those of the store, also behind a cache."""
    url, options = f"commitlog+{kind}://{top}/a/b", {"root": top} if kind == "file" else {}
    fs.pipe(f"{top}/a/b", b"rows")
    assert fs.unstrip_protocol(f"{top}/a/b") == url
    with fsspec.open(url, **options) as file:
        assert file.read() == b"rows"
    with fsspec.open(f"simplecache::{url}", **{f"commitlog+{kind}": options}) as file:
        assert file.read() == b"rows"
    with fsspec.open(url.replace("+", "", 1), **options) as file:  # as xarray needs it
        assert file.read() == b"rows"
    again = pickle.loads(pickle.dumps(fs))
    assert again.cat(url) == b"rows"
    again.close()
    type(fs).clear_instance_cache()


def test_wrong_options_are_refused_at_once() -> None:
    """A local file system needs its root. Secrets are in no message."""
    with pytest.raises(ConfigurationError, match="unknown option 'tabel'"):
        MemoryStoreFileSystem(tabel="x")
    with pytest.raises(ConfigurationError, match="give the file system the option root"):
        LocalStoreFileSystem()
    with pytest.raises(ConfigurationError, match="endpoint_url must be"):
        S3StoreFileSystem(endpoint_url="nowhere")
    with pytest.raises(ConfigurationError, match="unknown option 'endpoint_url'"):
        MemoryStoreFileSystem(endpoint_url="http://127.0.0.1")
    table = "dynamodb://leases?secret_access_key=hidden&region=eu-west-1"
    shown = repr(S3StoreFileSystem(secret_access_key="hidden", table=table))
    assert "leases" in shown
    assert "hidden" not in shown


def test_pandas_raises_the_error_of_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a `PermissionError` it opens the file again, with another option."""
    failing(monkeypatch, "begin_head", AccessDenied("by the policy"), AccessDenied("by the policy"))
    with pytest.raises(AccessDenied, match="by the policy"):
        pandas.read_csv("commitlog+memory://denied/a.csv")
    MemoryStoreFileSystem.clear_instance_cache()


# -- writers that fail -------------------------------------------------------------------------------


def _compressed(fs: Any, path: str) -> None:
    with fsspec.open(fs.unstrip_protocol(path), "wb", compression="gzip") as file:
        file.write(bytes(100_000))
        raise KeyError


def _text(fs: Any, path: str) -> None:
    with fsspec.open(fs.unstrip_protocol(path), "xt") as file:
        file.write("half")
        raise KeyError


def _parquet(fs: Any, path: str) -> None:
    table = pyarrow.table({"a": [1]})
    with pyarrow.parquet.ParquetWriter(path, table.schema, filesystem=fs) as writer:
        writer.write_table(table)
        raise KeyError


def _in_finally(fs: Any, path: str) -> None:
    file = fs.open(path, "wb")
    try:
        file.write(b"half")
        raise KeyError
    finally:
        file.close()


def _wrapped(fs: Any, path: str) -> None:
    with io.TextIOWrapper(fs.open(path, "wb")) as text:
        text.write("half")
        raise KeyError


def _in_except(fs: Any, path: str) -> None:
    # It may be whole, but no check can tell. So the exception is not swallowed.
    file = fs.open(path, "wb")
    try:
        raise KeyError
    except KeyError:
        file.close()


@pytest.mark.parametrize("way", [_compressed, _text, _parquet, _in_finally, _wrapped, _in_except])
def test_a_writer_that_fails_leaves_nothing(
    way: Callable[[Any, str], None], memory: tuple[MemoryStoreFileSystem, str]
) -> None:
    """Also one that closes the file in any case. Its exception says so, and is no other."""
    fs, top = memory
    with pytest.raises(KeyError) as raised:
        way(fs, f"{top}/half")
    assert fs.find(top) == [f"{top}/first"]
    assert uploads(fs, top) == []
    assert way in (_compressed, _text) or "nothing was written" in raised.value.__notes__[0]


def test_a_generator_that_is_not_finished_leaves_nothing(
    memory: tuple[MemoryStoreFileSystem, str],
) -> None:
    """Its end is an exception, too."""
    fs, top = memory

    def writing() -> Iterator[None]:
        file = fs.open(f"{top}/half", "wb")
        try:
            yield
        finally:
            file.close()

    next(writing())
    assert fs.find(top) == [f"{top}/first"]


def test_a_file_that_is_opened_while_an_exception_is_handled(
    memory: tuple[MemoryStoreFileSystem, str],
) -> None:
    """It is written, as a report of that exception is."""
    fs, top = memory
    try:
        raise KeyError
    except KeyError:
        file = fs.open(f"{top}/report", "wb")
        file.close()
    assert fs.exists(f"{top}/report")


# -- paths -------------------------------------------------------------------------------------------


def test_paths_name_their_store(tmp_path: Path) -> None:
    """Others are invalid, and nothing exists there."""
    local = LocalStoreFileSystem(root=f"{tmp_path}/lake", skip_instance_cache=True)
    for path in (f"{tmp_path}/other", f"{tmp_path}/lakes", "/"):
        assert not local.exists(path)
        with pytest.raises(InvalidPath, match="is not below the root"):
            local.pipe(path, b"")
    memory = MemoryStoreFileSystem(skip_instance_cache=True)
    with pytest.raises(NotSupported, match="name one"):
        memory.ls("")
    for fs, path in ((local, f"{tmp_path}/lake"), (memory, "lake")):
        assert fs.isdir(path)
        with pytest.raises(InvalidPath):
            fs.open(path, "wb")
        fs.close()


def test_directories_are_prefixes(fs: Any, top: str) -> None:
    """They exist as long as there is an object below them."""
    fs.mkdir(f"{top}/a")
    assert not fs.exists(f"{top}/a")
    fs.pipe({f"{top}/a/b/{name}": name.encode() for name in "xy"})
    fs.pipe(f"{top}/a/z", b"zz")
    assert fs.ls(f"{top}/a", detail=False) == [f"{top}/a/b", f"{top}/a/z"]
    assert fs.find(top) == [f"{top}/a/b/x", f"{top}/a/b/y", f"{top}/a/z"]
    assert fs.find(f"{top}/a/z") == [f"{top}/a/z"]
    assert fs.find(top, withdirs=True)[:3] == [top, f"{top}/a", f"{top}/a/b"]
    assert fs.ls(f"{top}/a/z", detail=False) == [f"{top}/a/z"]
    assert fs.du(top) == 4
    info = fs.info(f"{top}/a/z")
    assert (info["type"], info["size"]) == ("file", 2)
    assert fs.modified(f"{top}/a/z") == info["modified"]
    assert fs.info(f"{top}/a/b")["type"] == "directory"
    for missing in (f"{top}/a/no", f"{top}/no"):
        assert not fs.exists(missing)
        assert fs.find(missing) == []
        for call in (fs.info, fs.ls, fs.cat_file, fs.open, fs.rm, fs.rm_file):
            with pytest.raises(NotFound):
                call(missing)
    with pytest.raises(DirectoryNotEmpty):
        fs.rmdir(f"{top}/a")
    with pytest.raises(DirectoryNotEmpty):
        fs.rm(f"{top}/a/b")
    with pytest.raises(NotADirectory):
        fs.rmdir(f"{top}/a/z")
    fs.rm(f"{top}/a/b/*")
    assert fs.find(top) == [f"{top}/a/z"]
    fs.mv(f"{top}/a", f"{top}/c", recursive=True)
    assert fs.cat(f"{top}/c/z") == b"zz"
    fs.rm(f"{top}/c", recursive=True)
    assert fs.find(top) == []


def test_a_recursive_removal_includes_an_object_with_the_path_of_a_directory(
    memory: tuple[Any, str],
) -> None:
    """Both can exist in memory and on S3."""
    fs, top = memory
    fs.pipe({f"{top}/a": b"1", f"{top}/a/b": b"2"})
    fs.rm(f"{top}/a", recursive=True)
    assert fs.find(top) == [f"{top}/first"]
    fs.rm(top, recursive=True)
    assert fs.find(top) == []


def test_an_object_with_the_path_of_a_directory_is_not_left_out(
    memory: tuple[Any, str], tmp_path: Path
) -> None:
    """Calls for many take it for an object. A download, which has no place for both, fails."""
    fs, top = memory

    def both(path: str) -> dict[str, bytes]:
        return {f"{top}/{path}": b"1", f"{top}/{path}/b": b"2"}

    fs.pipe(both("d/a"))
    assert fs.find(f"{top}/d/a", withdirs=True) == list(both("d/a"))
    assert fs.cat(f"{top}/d", recursive=True) == both("d/a")
    fs.cp(f"{top}/d", f"{top}/e", recursive=True)
    fs.cp(f"{top}/d/a", f"{top}/f", recursive=True)
    assert fs.cat(f"{top}/e", recursive=True) == both("e/a")
    assert fs.cat(f"{top}/f", recursive=True) == both("f")
    fs.mv(f"{top}/d", f"{top}/g", recursive=True)
    fs.mv(f"{top}/f", f"{top}/h", recursive=True)
    moved = {**both("e/a"), f"{top}/first": b"1", **both("g/a"), **both("h")}
    assert fs.cat(top, recursive=True) == moved
    with pytest.raises(OSError, match="a"):
        fs.get(f"{top}/g", str(tmp_path / "local"), recursive=True)


def test_a_move_to_the_same_path_changes_nothing(fs: Any, top: str, kind: str) -> None:
    """However the path is spelled: the object is not copied onto itself and then removed."""
    fs.pipe(f"{top}/d/a", b"1")
    fs.mv(f"commitlog+{kind}://{top}/d/a", f"{top}/d/a")
    fs.mv(f"commitlog+{kind}://{top}/d/", f"{top}/d/", recursive=True)
    assert fs.cat(f"{top}/d/a") == b"1"


def test_a_move_removes_only_what_it_has_copied(
    fs: Any, top: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither what is deeper than it looks, nor what another client adds meanwhile, nor its target."""
    fs.pipe({f"{top}/d/{name}": b"1" for name in ("a", "b", "deeper/c")})
    fs.mv(f"{top}/d", f"{top}/e", recursive=True, maxdepth=1)
    assert fs.find(top) == [f"{top}/d/deeper/c", f"{top}/e/a", f"{top}/e/b"]
    copy = fs.cp_file

    def copy_and_add(source: str, target: str) -> None:
        copy(source, target)
        fs.pipe(f"{top}/e/later", b"2")

    monkeypatch.setattr(fs, "cp_file", copy_and_add)
    fs.mv(f"{top}/e", f"{top}/f", recursive=True)
    assert fs.find(f"{top}/e") == [f"{top}/e/later"]
    assert fs.find(f"{top}/f") == [f"{top}/f/a", f"{top}/f/b"]
    monkeypatch.undo()
    fs.mv(f"{top}/f", f"{top}/f/", recursive=True)
    assert fs.find(f"{top}/f") == [f"{top}/f/f/a", f"{top}/f/f/b"]


def test_moves_that_would_lose_objects_are_refused(fs: Any, top: str) -> None:
    """In a transaction, and if a source is the target of another one; nothing changes."""
    objects = {f"{top}/d/a": b"1", f"{top}/d/d/a": b"2"}
    fs.pipe(objects)
    with fs.transaction, pytest.raises(NotSupported, match="in a transaction"):
        fs.mv(f"{top}/d/a", f"{top}/b")
    with pytest.raises(NotSupported, match="both moved and a target"):
        fs.mv(f"{top}/d", f"{top}/d/", recursive=True)
    with pytest.raises(IsADirectory):
        fs.mv(f"{top}/d", f"{top}/e")
    with pytest.raises(FileNotFoundError):
        fs.mv(f"{top}/no", f"{top}/e")
    assert fs.cat(top, recursive=True) == objects


def test_a_directory_is_found_if_a_page_of_its_listing_is_empty(
    memory: tuple[Any, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on S3, where the empty object ``d/`` counts on a page, and is left out."""
    fs, top = memory
    fs.pipe(f"{top}/d/a", b"1")
    real = MemoryStore.list_page

    def list_page(self: MemoryStore, prefix: str = "", **options: Any) -> Page:
        if prefix == "d/" and options.get("token") is None:
            return Page(objects=(), next_token=prefix)
        return real(self, prefix, **options)

    monkeypatch.setattr(MemoryStore, "list_page", list_page)
    assert fs.info(f"{top}/d")["type"] == "directory"
    assert fs.isdir(f"{top}/d")


@pytest.mark.parametrize("options", [{"compression": "no"}, {"mode": "w", "encoding": "no"}])
def test_a_file_that_could_not_be_opened_does_not_spoil_its_transaction(
    fs: Any, top: str, options: dict[str, str]
) -> None:
    """The caller has no file to close."""
    with fs.transaction:
        with pytest.raises((LookupError, ValueError)):
            fs.open(f"{top}/a", **{"mode": "wb", **options})
        fs.pipe(f"{top}/b", b"1")
    assert fs.find(top) == [f"{top}/b"]


def test_a_download_that_fails_at_its_end_leaves_no_file(fs: Any, top: str, tmp_path: Path) -> None:
    """Here the last bytes, which are written when the file is closed, do not fit."""
    fs.pipe(f"{top}/a", b"12345678")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            fs.get_file(f"{top}/a", f"{tmp_path}/local")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not (tmp_path / "local").exists()


def test_checksums_change_with_the_content(fs: Any, top: str) -> None:
    """A replaced object has another one."""
    fs.pipe(f"{top}/a", b"1")
    before = fs.ukey(f"{top}/a"), fs.checksum(f"{top}/a")
    assert before == (fs.ukey(f"{top}/a"), fs.checksum(f"{top}/a"))
    fs.pipe(f"{top}/a", b"2")
    assert fs.ukey(f"{top}/a") != before[0]
    assert fs.checksum(f"{top}/a") != before[1]


@pytest.mark.parametrize(
    ("start", "end"),
    [(None, None), (0, 3), (2, None), (-3, None), (None, -2), (4, 2), (7, 99), (10, 20)],
)
def test_slices_work_as_in_python(fs: Any, top: str, start: int | None, end: int | None) -> None:
    """Negative numbers count from the end."""
    fs.pipe(f"{top}/a", b"0123456789")
    assert fs.cat_file(f"{top}/a", start, end) == b"0123456789"[start:end]
    assert fs.cat_ranges([f"{top}/a"], start, end) == [b"0123456789"[start:end]]


def test_an_open_file_reads_one_version(fs: Any, top: str) -> None:
    """A replaced object is an error."""
    fs.pipe(f"{top}/a", b"x" * BIG)
    with fs.open(f"{top}/a", block_size=1024, cache_type="none") as file:
        assert file.read(4) == b"xxxx"
        fs.pipe(f"{top}/a", b"y" * BIG)
        with pytest.raises(PreconditionFailed, match="was replaced while it was read"):
            file.read(4)


# -- new objects -------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [3, BIG])
def test_an_object_appears_when_its_file_is_closed(fs: Any, top: str, size: int) -> None:
    """It does not appear after an exception, and no upload is left."""
    for mode in ("wb", "xb"):
        with contextlib.suppress(KeyError), fs.open(f"{top}/{mode}", mode) as file:
            file.write(b"x" * size)
            assert not fs.exists(f"{top}/{mode}")
            raise KeyError
        assert not fs.exists(f"{top}/{mode}")
        assert uploads(fs, top) == []
        with fs.open(f"{top}/{mode}", mode) as file:
            file.write(b"x" * size)
        assert fs.cat(f"{top}/{mode}") == b"x" * size
        assert uploads(fs, top) == []


@pytest.mark.parametrize("size", [3, BIG])
def test_mode_x_requires_a_new_object(fs: Any, top: str, tmp_path: Path, size: int) -> None:
    """It is refused at once if it exists, and on closing if it appeared meanwhile."""
    path, data = f"{top}/a", b"x" * size
    (tmp_path / "local").write_bytes(data)
    file = fs.open(path, "xb")
    file.write(data)
    fs.pipe(path, b"first", mode="create")
    with pytest.raises(AlreadyExists):
        file.close()
    with pytest.raises(FileExistsError):
        fs.open(path, "xb")
    with pytest.raises(AlreadyExists):
        fs.pipe(path, data, mode="create")
    with pytest.raises(AlreadyExists):
        fs.put(f"{tmp_path}/local", path, mode="create")
    with pytest.raises(AlreadyExists):
        fs.pipe({f"{top}/b": b"", path: data}, mode="create")
    fs.touch(path, truncate=False)
    assert fs.cat(path) == b"first"
    assert uploads(fs, top) == []


def test_one_of_several_threads_creates_an_object(fs: Any, top: str) -> None:
    """Its content stays."""

    def create(number: int) -> int | None:
        try:
            fs.pipe(f"{top}/a", b"%d" % number, mode="create")
        except AlreadyExists:
            return None
        return number

    with ThreadPoolExecutor(8) as executor:
        [winner] = [each for each in executor.map(create, range(8)) if each is not None]
    assert fs.cat(f"{top}/a") == b"%d" % winner


def test_a_lost_answer_is_not_a_lost_race(
    memory: tuple[Any, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The creator finds its own object. If another's is there, the outcome is unknown."""
    fs, top = memory
    failing(monkeypatch, "put", OutcomeUnknown("lost"), after=True)
    fs.pipe(f"{top}/a", b"mine", mode="create")
    failing(monkeypatch, "publish", OutcomeUnknown("lost"), after=True)
    with fs.open(f"{top}/b", "xb") as file:
        file.write(b"m" * BIG)
    with fs.open(f"{top}/c", "xb") as file:
        file.write(b"mine")
        fs.pipe(f"{top}/c", b"another's")
        failing(monkeypatch, "put", OutcomeUnknown("lost"))
        with pytest.raises(OutcomeUnknown):
            file.close()


def test_writes_without_a_condition_are_sent_again(
    memory: tuple[Any, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a lost answer, and after an error that says that nothing happened."""
    fs, top = memory
    failing(monkeypatch, "put", Unavailable("busy"), OutcomeUnknown("lost"), Conflict("rival"))
    fs.pipe(f"{top}/a", b"a")
    failing(monkeypatch, "publish", OutcomeUnknown("lost"), after=True)  # then the upload is missing
    with fs.open(f"{top}/b", "wb") as file:
        file.write(b"b" * BIG)
    failing(monkeypatch, "copy", OutcomeUnknown("lost"))
    fs.cp(f"{top}/a", f"{top}/c")
    assert [fs.cat(f"{top}/{name}")[:1] for name in "abc"] == [b"a", b"b", b"a"]
    assert uploads(fs, top) == []


def test_a_publication_that_was_sent_twice_on_its_way_succeeds(
    memory: tuple[Any, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second answer says that the upload is missing. If the object cannot be read, it is unknown."""
    fs, top = memory
    failing(monkeypatch, "publish", NotFound("no such upload"), after=True)
    with fs.open(f"{top}/a", "wb") as file:
        file.write(b"a" * BIG)
    assert fs.info(f"{top}/a")["size"] == BIG
    failing(monkeypatch, "publish", NotFound("no such upload"), after=True)
    failing(monkeypatch, "begin_head", Unavailable("busy"))
    with pytest.raises(OutcomeUnknown), fs.open(f"{top}/b", "wb") as file:
        file.write(b"b" * BIG)
    failing(monkeypatch, "publish", NotFound("no such upload"))
    with pytest.raises(NotFound), fs.open(f"{top}/c", "wb") as file:
        file.write(b"c" * BIG)


def test_another_object_is_not_taken_for_the_one_that_is_written(
    memory: tuple[Any, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The upload is missing, and the object of before is there still."""
    fs, top = memory
    failing(monkeypatch, "publish", NotFound("no such upload"))
    with pytest.raises(NotFound), fs.open(f"{top}/first", "wb") as file:
        file.write(b"2" * BIG)
    failing(monkeypatch, "publish", OutcomeUnknown("lost"), NotFound("no such upload"))
    with pytest.raises(OutcomeUnknown), fs.open(f"{top}/first", "wb") as file:
        file.write(b"3" * BIG)
    assert fs.cat(f"{top}/first") == b"1"


def test_an_unknown_outcome_stays_unknown(
    memory: tuple[Any, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that says that nothing happened does not follow an attempt that may have happened."""
    fs, top = memory
    failing(monkeypatch, "put", OutcomeUnknown("lost"), *[AlreadyExists("strange")])
    with pytest.raises(OutcomeUnknown, match="was lost, and then: strange"):
        fs.pipe(f"{top}/a", b"a")
    failing(monkeypatch, "publish", OutcomeUnknown("lost"), AlreadyExists("strange"))
    file = fs.open(f"{top}/b", "wb")
    file.write(b"b" * BIG)
    with pytest.raises(OutcomeUnknown):
        file.close()
    assert uploads(fs, top) == ["b"]  # nothing is cleaned up
    file = fs.open(f"{top}/d", "wb")
    file.write(b"d" * BIG)
    failing(monkeypatch, "publish", OutcomeUnknown("lost"), NotFound("no upload"))
    failing(monkeypatch, "begin_head", Unavailable("busy"))  # so nothing shows who published it
    with pytest.raises(OutcomeUnknown, match="no upload"):
        file.close()
    assert uploads(fs, top) == ["b", "d"]
    failing(monkeypatch, "publish", AlreadyExists("strange"))
    with pytest.raises(AlreadyExists), fs.open(f"{top}/c", "wb") as file:
        file.write(b"b" * BIG)
    assert uploads(fs, top) == ["b", "d"]


def test_a_store_that_proves_nothing_refuses_new_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is never a plain write in silence."""

    def refuse(self: ConditionalStore, *_: object, **__: object) -> None:
        raise NotSupported("no way")

    fs = MemoryStoreFileSystem(skip_instance_cache=True)
    monkeypatch.setattr(ConditionalStore, "check_absent", refuse)
    with pytest.raises(NotSupported):
        fs.open("lake/a", "xb")
    fs.close()


def test_a_file_with_a_failed_write_is_not_made(
    memory: tuple[MemoryStoreFileSystem, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the error was: a caller that goes on does not make an object without the bytes."""
    fs, top = memory
    failing(monkeypatch, "begin_stage", MemoryError())
    file = fs.open(f"{top}/large", "wb")
    file.write(b"one")
    with pytest.raises(MemoryError):
        file.write(bytes(BIG))
    with pytest.raises(ConfigurationError, match=r"a write has failed \(MemoryError"):
        file.close()
    assert not fs.exists(f"{top}/large") and not uploads(fs, top)


# -- transactions ------------------------------------------------------------------------------------


def test_files_of_a_transaction_appear_in_order(
    memory: tuple[Any, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are made at the end, in the order of their opening; of one path, the last one."""
    fs, top = memory
    made: list[str] = []
    real = MemoryStore.publish

    def publish(self: MemoryStore, staged: Any, **kwargs: Any) -> Any:
        made.append(staged.path)
        return real(self, staged, **kwargs)

    monkeypatch.setattr(MemoryStore, "publish", publish)
    with fs.transaction:
        fs.pipe({f"{top}/b": b"1", f"{top}/a": b"2"}, mode="create")
        fs.pipe(f"{top}/manifest", b"early")
        fs.cp(f"{top}/first", f"{top}/copy")
        fs.pipe(f"{top}/manifest", b"late")
        assert fs.find(top) == [f"{top}/first"]
    assert set(made[:2]) == {"a", "b"}
    assert made[2:] == ["copy", "manifest"]
    assert fs.cat(f"{top}/manifest") == b"late"
    assert uploads(fs, top) == []


def test_a_failed_transaction_makes_no_file(memory: tuple[Any, str]) -> None:
    """After an exception in the block, and if a file exists that has to be new."""
    fs, top = memory
    with contextlib.suppress(KeyError), fs.transaction:
        fs.pipe(f"{top}/a", b"1")
        raise KeyError
    with pytest.raises(AlreadyExists), fs.transaction:
        fs.pipe(f"{top}/a", b"1")
        with fs.open(f"{top}/new", "xb") as file:
            file.write(b"mine")
        MemoryStore(f"memory://{top}").put("new", b"another's")
    with pytest.raises(ConfigurationError, match="is still open"), fs.transaction:
        fs.pipe(f"{top}/a", b"1")
        fs.open(f"{top}/b", "wb")
    assert not fs.exists(f"{top}/a")
    assert uploads(fs, top) == []


@pytest.mark.parametrize("error", [AlreadyExists("no"), OutcomeUnknown("lost")])
def test_a_transaction_that_ends_early_says_how_far_it_came(
    memory: tuple[Any, str], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """The files before the failed one stay; those after it are not made. The failed one is unknown."""
    fs, top = memory
    real = MemoryStore.publish

    def publish(self: MemoryStore, staged: Any, **kwargs: Any) -> Any:
        if staged.path == "b":
            raise error
        return real(self, staged, **kwargs)

    monkeypatch.setattr("commitlog._util.retry.Backoff.pause", lambda *_: 0.0)
    monkeypatch.setattr(MemoryStore, "publish", publish)
    with pytest.raises(type(error)) as caught, fs.transaction:
        for name in "abcd":
            with fs.open(f"{top}/{name}", "wb") as file:
                file.write(b"x")
    assert caught.value.__notes__ == [
        "1 of 4 files of the transaction were made before the error, and stay; the rest were not made"
    ]
    assert fs.find(top) == [f"{top}/a", f"{top}/first"]
    assert uploads(fs, top) == (["b"] if isinstance(error, OutcomeUnknown) else [])


@pytest.fixture
def output(tmp_path: Path) -> Iterator[tuple[Any, str]]:
    """A file system whose transactions are jobs of an output, and its path."""
    top = f"{tmp_path.name}/events"
    made = MemoryStoreFileSystem(output=top, skip_instance_cache=True)
    made.pipe(f"{tmp_path.name}/other", b"")
    yield made, top
    made.close()


def test_a_transaction_is_a_job_of_an_output(output: tuple[Any, str]) -> None:
    """All of its files are committed, at most once for a job id, or none."""
    fs, top = output
    frame = pandas.DataFrame({"a": range(6), "day": [1, 2] * 3})
    log = Output(fs._locations.find(top).store, "events")
    for fails in (True, False):
        with contextlib.suppress(KeyError), fs.transaction as transaction:
            transaction.job_id = "daily-1"
            fs.pipe(f"{top}/day=3/part.csv.gz", b"rows")
            with fs.open(f"{top}/day=4/x", "wb") as file:
                file.write(b"x" * BIG)
            assert not fs.exists(top)
            if fails:
                raise KeyError
        assert bool(fs.find(top)) is not fails
    assert transaction.record.version == 1
    files = log.snapshot().files
    assert {file.partition["day"] for file in files} == {"3", "4"}
    assert sorted(re.sub("-[0-9a-f]{32}-", "-", file.path) for file in files) == [
        "day=3/part-00000-c000.csv.gz",
        "day=4/part-00001-c000",
    ]
    assert all(fs.exists(f"{top}/{file.path}") for file in files)
    with pytest.raises(JobAlreadyCommitted), fs.transaction as transaction:
        transaction.job_id = "daily-1"
        fs.pipe(f"{top}/a", b"")
    with fs.transaction:
        pass
    assert log.snapshot().version == 1
    assert uploads(fs, top) == []
    with MemoryStoreFileSystem(output=top).transaction:
        frame.to_csv(f"commitlog+memory://{top}/frame.csv", storage_options={"output": top})
    assert log.snapshot().version == 2
    MemoryStoreFileSystem.clear_instance_cache()


def test_a_job_refuses_other_names(output: tuple[Any, str]) -> None:
    """Paths elsewhere, hidden names, and mode x."""
    fs, top = output
    for path, error in (
        ("other/a", InvalidPath),
        (f"{top}/_metadata", InvalidPath),
        (f"{top}2/a", InvalidPath),
    ):
        with pytest.raises(error), fs.transaction:
            fs.pipe(path, b"")
    with pytest.raises(NotSupported, match="mode 'x'"), fs.transaction:
        fs.pipe(f"{top}/a", b"", mode="create")
    assert uploads(fs, top) == []


def test_a_lost_answer_to_a_job_is_settled(
    output: tuple[Any, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job is completed if its record is there, and excluded if it is not."""
    fs, top = output
    real = ConditionalStore.put_if_absent
    answers: list[bool] = []

    def lose(self: ConditionalStore, path: str, *args: Any, **kwargs: Any) -> Any:
        if not answers or not re.search(r"_commitlog/\d+\.json$", path):
            return real(self, path, *args, **kwargs)
        if answers.pop():
            real(self, path, *args, **kwargs)
        raise OutcomeUnknown("lost")

    monkeypatch.setattr(ConditionalStore, "put_if_absent", lose)
    answers.append(True)
    with fs.transaction as transaction:
        fs.pipe(f"{top}/a.csv", b"1")
    assert transaction.record.version == 1
    answers.append(False)
    with pytest.raises(JobAborted, match="nothing was added"), fs.transaction:
        fs.pipe(f"{top}/b.csv", b"1")
    assert [path for path in fs.find(top) if path.endswith(".csv")] == [
        f"{top}/{file.path}" for file in Output(fs._locations.find(top).store, "events").snapshot().files
    ]
    assert uploads(fs, top) == []


# -- requests and examples ---------------------------------------------------------------------------


@pytest.mark.servers
def test_the_requests_of_the_page(ministack: Ministack, tmp_path: Path) -> None:
    """The table of docs/filesystem.md has the requests of each call."""
    bucket = ministack.new_bucket()
    (tmp_path / "local").write_bytes(b"x")
    with Proxy(ministack.endpoint_url) as proxy:
        fs: Any = S3StoreFileSystem(
            **{**ministack.options, "endpoint_url": proxy.endpoint_url}, skip_instance_cache=True
        )
        fs.pipe(f"{bucket}/warm", b"", mode="create")
        fs.pipe({f"{bucket}/d/{number}": b"rows" for number in range(3)})
        fs.pipe(f"{bucket}/empty", b"")

        def write(path: str, mode: str) -> None:
            with fs.open(path, mode) as file:
                file.write(b"x")

        def transact() -> None:
            with fs.transaction:
                write(f"{bucket}/t", "wb")

        calls = {
            "`info`, `exists` of an object": lambda: fs.info(f"{bucket}/d/1"),
            "… of a directory or a missing path": lambda: fs.exists(f"{bucket}/no"),
            "`ls`, `find`, per 1,000 entries": lambda: fs.find(f"{bucket}/d"),
            "`cat_file`, `get_file` up to 8 MiB, a slice": lambda: fs.cat_file(f"{bucket}/d/1"),
            "… of an empty object": lambda: fs.cat_file(f"{bucket}/empty"),
            "`open` and read to the end": lambda: fs.open(f"{bucket}/d/1").read(),
            "`pipe_file`, mode `wb`, up to 8 MiB": lambda: write(f"{bucket}/w", "wb"),
            '`pipe_file(mode="create")`, natively': lambda: fs.pipe_file(f"{bucket}/c", b"", "create"),
            "mode `xb`, natively, up to 8 MiB": lambda: write(f"{bucket}/x", "xb"),
            "each file of a transaction": transact,
            "`cp_file`": lambda: fs.cp_file(f"{bucket}/w", f"{bucket}/y"),
            "`rm` of an object": lambda: fs.rm(f"{bucket}/y"),
        }
        page = (ROOT / "docs/filesystem.md").read_text()
        for name, call in calls.items():
            proxy.requests()
            call()
            sent = " ".join(each.split()[0] for each in proxy.requests())
            assert f"| {name} | {sent} |" in page, sent
        fs.close()


def test_the_zarr_stores_create_keys_once(tmp_path: Path) -> None:
    """`set_if_not_exists` keeps the first value; metadata of the second class is written once."""
    zarr = pytest.importorskip("zarr")
    from zarr.core.sync import sync

    from commitlog.filesystem import WriteOnceZarrStore, ZarrStore

    url = f"commitlog+memory://{tmp_path.name}/a.zarr"
    store, once = ZarrStore.from_url(url), WriteOnceZarrStore.from_url(url)
    buffer = zarr.core.buffer.default_buffer_prototype().buffer
    for value in (b"first", b"second"):
        sync(store.set_if_not_exists("key", buffer.from_bytes(value)))
    fs = fsspec.filesystem("commitlog+memory")
    assert fs.cat(f"{tmp_path.name}/a.zarr/key") == b"first"
    zarr.create_group(once, path="g", attributes={"owner": 1})
    array = zarr.create_array(once, name="g/a", shape=(4,), chunks=(2,), dtype="i4")
    array[:] = 7
    with pytest.raises(AlreadyExists):
        array.update_attributes({"changed": True})
    assert zarr.open_group(store, path="g")["a"][:].tolist() == [7] * 4
    zarr.open_array(store, path="g/a").update_attributes({"changed": True})
    assert json.loads(fs.cat(f"{tmp_path.name}/a.zarr/g/zarr.json"))["attributes"] == {"owner": 1}
    read_only = once.with_read_only(True)
    assert isinstance(read_only, WriteOnceZarrStore)
    with pytest.raises(ValueError, match="read-only"):
        sync(read_only.set_if_not_exists("other", buffer.from_bytes(b"")))
    MemoryStoreFileSystem.clear_instance_cache()
