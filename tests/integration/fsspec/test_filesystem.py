"""`CommitlogFileSystem`: the guarantees in addition to those of fsspec's own tests."""

# ruff: noqa: PT012 - the tests are about blocks that fail

from __future__ import annotations

import gzip
import io
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

import fsspec
import pytest
from fsspec.generic import GenericFileSystem, rsync

from commitlog import transfer
from commitlog.errors import (
    AccessDenied,
    AlreadyExists,
    ConfigurationError,
    DirectoryNotEmpty,
    InvalidPath,
    IsADirectory,
    NotADirectory,
    NotFound,
    NotSupported,
    ObjectChanged,
    OutcomeUnknown,
    TableNotFound,
    TransactionTooLarge,
    Unavailable,
)
from commitlog.filesystem import CommitlogFileSystem, locations
from commitlog.namespace import FileWriter, Namespace, OpenFile
from commitlog.namespaces import METADATA, create_namespace, open_namespace
from commitlog.stores.memory import MemoryStore
from commitlog.tables.memory import MemoryTable
from support.namespace import Auditor, atomic_links, objects_in, watched_executors, watched_transactions

BIG = 9 << 20


@pytest.fixture
def url(tmp_path: Path) -> str:
    """The URL of a table and a store in memory for one test."""
    return f"memory://{tmp_path.name}"


@pytest.fixture
def lake(url: str) -> Iterator[Namespace]:
    """A new namespace. After the test it is consistent."""
    with create_namespace("lake", store=f"{url}-lake", metadata=url, log=False) as namespace:
        yield namespace
        Auditor(namespace.table, "lake", namespace.store).audit()


@pytest.fixture
def fs(lake: Namespace, url: str) -> CommitlogFileSystem:
    """The file system with the namespace."""
    return CommitlogFileSystem(url, skip_instance_cache=True)


@pytest.fixture
def transactions(lake: Namespace, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of writes of each transaction."""
    return watched_transactions(monkeypatch)


@pytest.fixture
def land(url: str) -> Iterator[Namespace]:
    """A second namespace in the same table."""
    with create_namespace("land", store=f"{url}-land", metadata=url, log=False) as namespace:
        yield namespace
        for item in namespace.table.scan():  # for the auditor, who knows one
            if "land" in f"{item['place']}{item['name']}":
                namespace.table.delete(namespace.table.schema.key_of(item))


def referenced(lake: Namespace) -> set[str]:
    """Return the objects to which files refer."""
    return {found.data.path for found in lake.walk() if found.data is not None}


def stored(lake: Namespace) -> set[str]:
    """Return the objects in the store, except those of the library."""
    return {info.path for info in objects_in(lake.store)}


def break_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every request to the table fail."""

    def fail(*_: object, **__: object) -> None:
        raise Unavailable("the table does not answer")

    monkeypatch.setattr(MemoryTable, "get", fail)
    monkeypatch.setattr(MemoryTable, "query_page", fail)


# -- instances ---------------------------------------------------------------------------------------


def test_fsspec_finds_the_protocol(fs: CommitlogFileSystem, url: str) -> None:
    """A URL is enough."""
    assert fsspec.get_filesystem_class("commitlog") is CommitlogFileSystem
    with fsspec.open("commitlog://lake/a/b", "w", metadata=url) as file:
        file.write("rows")
    found, path = fsspec.url_to_fs("commitlog://lake/a/b", metadata=url)
    assert found.cat(path) == b"rows"
    assert found.unstrip_protocol(path) == "commitlog://lake/a/b"
    with fsspec.open("simplecache::commitlog://lake/a/b", commitlog={"metadata": url}) as file:
        assert file.read() == b"rows"


def test_other_packages_work_without_fsspec() -> None:
    """Only this one needs it."""
    code = (
        "import sys; sys.modules['fsspec'] = None; import commitlog, commitlog.namespaces, commitlog.cli"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_table_comes_from_the_environment(
    lake: Namespace, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For an instance without arguments."""
    fs = CommitlogFileSystem(skip_instance_cache=True)
    monkeypatch.delenv(METADATA, raising=False)
    with pytest.raises(ConfigurationError, match="no metadata table"):
        fs.exists("lake")
    monkeypatch.setenv(METADATA, url)
    assert fs.ls("", detail=False) == ["lake"]
    assert fs.exists("lake")
    assert repr(fs) == "CommitlogFileSystem()"


def test_unknown_options_are_refused(url: str) -> None:
    """So is an invalid URL. Options that fsspec passes to all file systems are ignored."""
    CommitlogFileSystem(url, use_listings_cache=False, asynchronous=True)
    with pytest.raises(ConfigurationError, match="unknown option 'stabel_paths'"):
        CommitlogFileSystem(url, stabel_paths=True)
    with pytest.raises(ConfigurationError, match="sqlite:///absolute"):
        CommitlogFileSystem("sqlite://names.db")


def test_options_apply_to_namespaces(fs: CommitlogFileSystem, lake: Namespace, url: str) -> None:
    """They are passed on. The block size is that of the file system."""
    lake.write("f", b"1")
    other = CommitlogFileSystem(url, grace=0.0, block_size=7)
    with other.open("lake/f") as file, other.open("lake/f", block_size=3) as smaller:
        assert (file.blocksize, smaller.blocksize) == (7, 3)
    other.rm("lake/f")
    assert lake.maintenance.gc().objects == 1
    with pytest.raises(ConfigurationError, match="content of namespace"):
        CommitlogFileSystem(url, store="/elsewhere").ls("lake")


def test_secrets_are_not_printed() -> None:
    """The pickle has the arguments as they were given."""
    url = "dynamodb://names?region=eu-west-1&secret_access_key=hidden&access_key_id=known"
    fs = CommitlogFileSystem(url)
    shown = repr(fs) + str(fs) + fs._fs_token + str(hash(fs))
    assert "names?region=eu-west-1" in shown
    assert "hidden" not in shown and "known" not in shown
    assert "hidden" in fs.to_json()


# -- status and listings -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["lake/a/b", "/lake/a/b", "lake/a/b/", "commitlog://lake/a/b", "commitlog:///lake/a/b"]
)
def test_paths_have_several_spellings(fs: CommitlogFileSystem, path: str) -> None:
    """With or without the protocol, and with or without a slash at either end."""
    fs.pipe("lake/a/b", b"rows")
    assert fs.info(path)["name"] == "lake/a/b"
    assert fs.cat_file(path) == b"rows"


@pytest.mark.parametrize("path", ["lake/a//b", "lake/../b", "no such/b", "lake/./b", "lake/a\nb"])
def test_invalid_paths_do_not_exist(fs: CommitlogFileSystem, path: str) -> None:
    """Writing to them is refused."""
    assert not fs.exists(path) and not fs.isfile(path) and not fs.isdir(path)
    assert fs.find(path) == []
    with pytest.raises(InvalidPath):
        fs.info(path)
    with pytest.raises(InvalidPath):
        fs.pipe_file(path, b"")


def test_details_of_a_file(fs: CommitlogFileSystem, lake: Namespace) -> None:
    """The keys of fsspec, and those of the namespace."""
    status = lake.write("a/f", b"rows")
    lake.set_attributes("a/f", modified=5000)
    info = fs.info("lake/a/f")
    assert (info["name"], info["size"], info["type"]) == ("lake/a/f", 4, "file")
    assert (info["id"], info["version"], info["etag"]) == (status.id, 2, status.etag)
    assert fs.created("lake/a/f") == datetime.fromtimestamp(status.created / 1000, UTC)
    assert fs.modified("lake/a/f") == datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)
    assert info["mtime"] == 5
    assert fs.ls("lake/a/f") == [info] == fs.ls("lake/a") == list(fs.find("lake", detail=True).values())
    assert fs.size("lake/a/f") == 4


def test_details_of_directories(fs: CommitlogFileSystem) -> None:
    """Namespaces are directories, too."""
    for path in ("", "/", "commitlog://", "lake"):
        assert fs.isdir(path) and fs.exists(path) and not fs.isfile(path)
        assert (fs.info(path)["type"], fs.info(path)["size"]) == ("directory", 0)
    assert fs.ls("", detail=False) == ["lake"]
    assert fs.ls("lake") == []
    with pytest.raises(InvalidPath, match="name a namespace"):
        fs.modified("")


def test_missing_paths(fs: CommitlogFileSystem, url: str) -> None:
    """Asking for missing files, directories and namespaces is no error."""
    fs.pipe("lake/f", b"")
    for path in ("lake/no", "lake/no/no", "lake/f/no", "land", "land/no"):
        assert not fs.exists(path) and not fs.isfile(path) and not fs.isdir(path)
        assert fs.find(path) == [] and fs.glob(path) == [] and fs.du(path) == 0
        for look in (fs.info, fs.ls, fs.cat_file, fs.open, fs.modified):
            with pytest.raises(FileNotFoundError):
                look(path)
    nowhere = CommitlogFileSystem(f"{url}-nowhere")
    with pytest.raises(TableNotFound):
        nowhere.exists("lake")


def test_a_failing_service_hides_no_file(
    fs: CommitlogFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paths look neither missing nor omitted."""
    fs.pipe("lake/a/f", b"")
    break_table(monkeypatch)
    for look in (
        fs.exists,
        fs.isdir,
        fs.isfile,
        fs.find,
        fs.ls,
        fs.du,
        lambda path: list(fs.walk(path)),
    ):
        with pytest.raises(Unavailable):
            look("lake/a")
    with pytest.raises(Unavailable):
        fs.glob("lake/*/f")


def test_walk(fs: CommitlogFileSystem) -> None:
    """A missing directory is omitted, passed to a handler, or raised."""
    fs.pipe({"lake/a/f": b"1", "lake/a/d/g": b"22"})
    assert list(fs.walk("lake")) == [
        ("lake", ["a"], []),
        ("lake/a", ["d"], ["f"]),
        ("lake/a/d", [], ["g"]),
    ]
    assert next(iter(fs.walk("lake", topdown=False)))[0] == "lake/a/d"
    assert [path for path, _, _ in fs.walk("lake", maxdepth=1)] == ["lake"]
    assert list(fs.walk("lake/no")) == []
    reported: list[OSError] = []
    assert list(fs.walk("lake/no", on_error=reported.append)) == []
    assert [type(error) for error in reported] == [NotFound]
    with pytest.raises(NotFound):
        list(fs.walk("lake/no", on_error="raise"))


def test_find(fs: CommitlogFileSystem) -> None:
    """Files with or without directories, to any depth; sizes; patterns."""
    fs.pipe({"lake/a/f": b"1", "lake/a/d/g": b"22", "lake/h": b"333"})
    assert fs.find("lake") == fs.find("") == ["lake/a/d/g", "lake/a/f", "lake/h"]
    assert fs.find("lake/a/f") == ["lake/a/f"]
    assert fs.find("lake/a", withdirs=True) == ["lake/a", "lake/a/d", "lake/a/d/g", "lake/a/f"]
    assert fs.find("lake", maxdepth=1) == ["lake/h"]
    assert (fs.du("lake"), fs.du("lake/a"), fs.du("lake/h"), fs.du("lake", maxdepth=2)) == (6, 3, 3, 4)
    assert fs.du("lake/a", total=False, withdirs=True) == {
        "lake/a": 0,
        "lake/a/d": 0,
        "lake/a/d/g": 2,
        "lake/a/f": 1,
    }
    assert fs.glob("lake/*/f") == fs.glob("*/a/f") == fs.glob("lake/a/?")[1:] == ["lake/a/f"]
    assert fs.glob("lake/**/g") == ["lake/a/d/g"]


def test_nothing_is_cached(fs: CommitlogFileSystem, url: str) -> None:
    """An instance sees the changes of another one at once."""
    other = CommitlogFileSystem(url, skip_instance_cache=True)
    assert other.ls("lake") == []
    fs.pipe("lake/f", b"1")
    assert other.cat("lake/f") == b"1"
    fs.pipe("lake/f", b"2")
    assert other.cat("lake/f") == b"2"
    fs.mv("lake/f", "lake/g")
    assert other.ls("lake", detail=False) == ["lake/g"]


def test_checksums_change_with_the_content(fs: CommitlogFileSystem) -> None:
    """They differ for each version and each file."""
    fs.pipe({"lake/f": b"1", "lake/g": b"1"})
    seen = {fs.ukey("lake/f"), fs.ukey("lake/g"), fs.ukey("lake"), fs.ukey("")}
    assert len(seen) == 4
    assert fs.ukey("lake/f") in seen
    first = fs.checksum("lake/f")
    fs.pipe("lake/f", b"1")
    assert fs.checksum("lake/f") != first
    assert fs.ukey("lake/f") not in seen


# -- reading -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [None, 0, 3, -3, 9, 99, -99])
@pytest.mark.parametrize("end", [None, 0, 5, -2, 99, -99])
def test_slices_work_as_in_python(fs: CommitlogFileSystem, start: int | None, end: int | None) -> None:
    """`cat_file` counts like slices of bytes."""
    content = b"0123456789"
    fs.pipe("lake/f", content)
    assert fs.cat_file("lake/f", start, end) == content[start:end]


def test_slices_of_many_files(fs: CommitlogFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of the paths. Errors are returned in place, or raised."""
    fs.pipe({f"lake/{number}": bytes([48 + number]) * 5 for number in range(5)})
    paths = [f"lake/{number}" for number in (3, 1, 4, 1)]
    opened: list[str] = []
    real = Namespace.open
    with monkeypatch.context() as patched:
        patched.setattr(Namespace, "open", lambda self, path: (opened.append(path), real(self, path))[1])
        assert fs.cat_ranges(paths, 1, [2, 3, 4, 5]) == [b"3", b"11", b"444", b"1111"]
    assert sorted(opened) == ["1", "3", "4"]
    assert fs.cat_ranges([], [], []) == []
    found = fs.cat_ranges(["lake/no", "lake/0", "lake"], 0, 1)
    assert isinstance(found[0], NotFound) and found[1] == b"0" and isinstance(found[2], IsADirectory)
    with pytest.raises(NotFound):
        fs.cat_ranges(["lake/0", "lake/no"], 0, 1, on_error="raise")
    with pytest.raises(ValueError, match="differ in number"):
        fs.cat_ranges(["lake/0"], [0, 1], 1)
    with pytest.raises(TypeError):
        fs.cat_ranges("lake/0", 0, 1)


def test_slices_are_read_concurrently(fs: CommitlogFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    """All slices of a file are of one version."""
    fs.pipe("lake/f", b"old!")
    together = threading.Barrier(4, timeout=30)
    real = MemoryStore.get

    def get(self: MemoryStore, path: str, **kwargs: Any) -> Any:
        if together.wait() == 0:
            fs.pipe_file("lake/f", b"new!")
        return real(self, path, **kwargs)

    monkeypatch.setattr(MemoryStore, "get", get)
    assert fs.cat_ranges(["lake/f"] * 4, [0, 1, 2, 3], [1, 2, 3, 4]) == [b"o", b"l", b"d", b"!"]


def test_an_open_file_reads_its_version(fs: CommitlogFileSystem, lake: Namespace) -> None:
    """Also after the file was overwritten, moved and deleted."""
    fs.pipe("lake/f", b"old")
    with fs.open("lake/f", block_size=1, cache_type="none") as file:
        assert file.read(1) == b"o"
        fs.pipe("lake/f", b"newer")
        assert file.read(1) == b"l"
        fs.mv("lake/f", "lake/g")
        fs.rm("lake/g")
        assert (file.read(), file.size) == (b"d", 3)
        assert file.info()["size"] == 3
        file.seek(0)
        assert file.readinto(bytearray(2)) == 2


def test_lost_content_is_an_error(fs: CommitlogFileSystem, url: str) -> None:
    """Content that was collected, or that others changed, never becomes other bytes."""
    fs = CommitlogFileSystem(url, grace=0)
    fs.pipe("lake/f", b"old")
    with fs.open("lake/f") as file:
        fs.pipe("lake/f", b"new")
        lake = fs._find("lake").namespace
        lake.maintenance.gc()
        with pytest.raises(ObjectChanged):
            file.read()
    lake.store.put("object", b"old")
    lake.maintenance.import_objects()
    lake.store.put("object", b"new")
    with fs.open("lake/object") as file, pytest.raises(ObjectChanged):
        file.read()
    with pytest.raises(ObjectChanged):
        fs.cat("lake/object")
    fs.rm("lake/object")


def test_an_open_file_can_be_pickled(fs: CommitlogFileSystem) -> None:
    """It continues at its position, unless the file was overwritten."""
    fs.pipe("lake/f", b"0123456789")
    with fs.open("lake/f", block_size=2, cache_type="bytes") as file:
        file.seek(4)
        sent = pickle.dumps(file)
    with pickle.loads(sent) as again:
        assert (again.read(3), again.blocksize, again.cache.name) == (b"456", 2, "bytes")
    fs.pipe("lake/f", b"abcdefghij")
    with pytest.raises(ObjectChanged, match="overwritten"):
        pickle.loads(sent)
    with pytest.raises(RuntimeError), fs.open("lake/g", "wb") as file:
        pickle.dumps(file)


# -- writing -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 4, BIG])
def test_a_file_appears_when_it_is_closed(fs: CommitlogFileSystem, lake: Namespace, size: int) -> None:
    """It is complete, and its parent directories appear with it."""
    file = fs.open("lake/a/b/f", "wb")
    assert file.writable() and not file.readable() and not file.seekable()
    assert file.write(b"x" * size) == size == file.tell()
    file.flush()
    assert not fs.exists("lake/a")
    file.close()
    file.close()
    assert fs.info("lake/a/b/f")["size"] == size
    assert fs.cat("lake/a/b/f") == b"x" * size
    with pytest.raises(ValueError, match="is closed"):
        file.write(b"more")
    assert stored(lake) == referenced(lake)


@pytest.mark.parametrize(
    ("compression", "size"), [(None, 4), (None, BIG), ("gzip", 4), ("bz2", 4), ("xz", 4)]
)
@pytest.mark.parametrize("mode", ["wb", "w", "xb", "x"])
def test_a_failed_with_block_writes_nothing(
    fs: CommitlogFileSystem, lake: Namespace, mode: str, compression: str | None, size: int
) -> None:
    """Also with text or compression around the file."""
    data: Any = b"x" * size if "b" in mode else "x" * size
    with pytest.raises(KeyError), fs.open("lake/f", mode, compression=compression) as file:
        file.write(data)
        raise KeyError
    assert file.closed
    inner = file.buffer if isinstance(file, io.TextIOWrapper) else file
    assert getattr(inner, "_outer", inner).closed  # else it would write when it is collected
    with pytest.raises(ValueError, match="closed"):
        file.write(data)
    assert fs.ls("lake") == [] and stored(lake) == set()
    assert list(lake.store.list_staged()) == []


@pytest.mark.parametrize("compression", [None, "gzip", "bz2", "xz"])
@pytest.mark.parametrize("mode", ["wb", "w"])
def test_the_error_of_a_failed_write_is_raised(
    fs: CommitlogFileSystem, monkeypatch: pytest.MonkeyPatch, mode: str, compression: str | None
) -> None:
    """Not the one of the compressor, which cannot write its last bytes then."""

    def fail(*_: Any) -> int:
        raise Unavailable("the store cannot be reached")

    monkeypatch.setattr(FileWriter, "write", fail)
    data: Any = os.urandom(1 << 20) if mode == "wb" else os.urandom(1 << 20).hex()
    with pytest.raises(Unavailable), fs.open("lake/f", mode, compression=compression) as file:
        while True:
            file.write(data)
    assert fs.ls("lake") == []


@pytest.mark.parametrize("compression", [None, "gzip", "bz2", "xz", "infer"])
def test_text_and_compression_are_closed_with_the_file(
    fs: CommitlogFileSystem, compression: str | None
) -> None:
    """The file reads back as it was written."""
    with fs.open("lake/f.gz", "wt", compression=compression, encoding="latin-1", newline="") as file:
        file.write("a\r\nü\r\n")
    with fs.open("lake/f.gz", "r", compression=compression, encoding="latin-1") as file:
        assert list(file) == ["a\n", "ü\n"]
    with fs.open("lake/f.gz", compression=compression) as file:
        assert b"".join(file).decode("latin-1") == "a\r\nü\r\n"
    if compression == "infer":
        assert gzip.decompress(fs.cat("lake/f.gz")).decode("latin-1") == "a\r\nü\r\n"
    fs.write_text("lake/t", "text")
    assert fs.read_text("lake/t") == "text"


@pytest.mark.parametrize("compression", [None, "gzip", "xz"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "UTF_16", "utf-16-le", "utf-32"])
def test_utf_16_has_a_byte_order_mark(
    fs: CommitlogFileSystem, encoding: str, compression: str | None
) -> None:
    """The same as in a local file, once."""
    with fs.open("lake/t", "w", encoding=encoding, compression=compression, newline="") as file:
        file.write("a\n")
        file.write("ü")
    with fs.open("lake/t", compression=compression) as here:
        assert here.read() == "a\nü".encode(encoding)
    with fs.open("lake/t", "r", encoding=encoding, compression=compression) as here:
        assert here.read() == "a\nü"


@pytest.mark.parametrize("compression", [None, "gzip"])
@pytest.mark.parametrize("mode", ["rb", "r"])
def test_a_failed_with_block_while_reading(
    fs: CommitlogFileSystem, mode: str, compression: str | None
) -> None:
    """The file is closed, and the exception is raised."""
    with fs.open("lake/f", "wb", compression=compression) as file:
        file.write(b"rows")
    with pytest.raises(KeyError), fs.open("lake/f", mode, compression=compression) as file:
        raise KeyError
    assert file.closed


@pytest.mark.parametrize("compression", [None, "gzip", "bz2", "xz"])
@pytest.mark.parametrize("mode", ["wb", "w"])
def test_a_file_that_is_never_closed_is_not_written(
    fs: CommitlogFileSystem, lake: Namespace, mode: str, compression: str | None
) -> None:
    """It is dropped with a warning, because it may be incomplete."""
    file = fs.open("lake/f", mode, compression=compression)
    file.write(b"half" if mode == "wb" else "half")
    with pytest.warns(ResourceWarning, match="never closed"):
        del file
    assert fs.ls("lake") == [] and stored(lake) == set()


def test_mode_x_requires_a_new_file(fs: CommitlogFileSystem, lake: Namespace, tmp_path: Path) -> None:
    """An existing file is refused at once, and a concurrent one on closing."""
    fs.pipe("lake/f", b"1")
    (tmp_path / "local").write_bytes(b"2")
    for refused in (
        lambda: fs.open("lake/f", "xb"),
        lambda: fs.open("lake/f", "x"),
        lambda: fs.pipe_file("lake/f", b"2", mode="create"),
        lambda: fs.put_file(str(tmp_path / "local"), "lake/f", mode="create"),
    ):
        with pytest.raises(FileExistsError):
            refused()
    one, other = fs.open("lake/g", "xb"), fs.open("lake/g", "xb")
    one.write(b"one")
    other.write(b"other")
    one.close()
    with pytest.raises(AlreadyExists):
        other.close()
    assert (fs.cat("lake/f"), fs.cat("lake/g")) == (b"1", b"one")
    assert stored(lake) == referenced(lake)


@pytest.mark.parametrize("size", [4, BIG])
def test_a_failed_upload_leaves_nothing(
    fs: CommitlogFileSystem, lake: Namespace, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """The file does not appear, and its content is removed."""

    def fail(*_: object) -> None:
        raise Unavailable("the store does not answer")

    file = fs.open("lake/f", "wb")
    file.write(b"x" * size)
    monkeypatch.setattr(FileWriter, "finish", fail)
    with pytest.raises(Unavailable):
        file.close()
    file.close()
    assert fs.ls("lake") == [] and stored(lake) == set() and list(lake.store.list_staged()) == []


@pytest.mark.parametrize("compression", [None, "gzip"])
@pytest.mark.parametrize("mode", ["wb", "w"])
def test_an_incomplete_file_does_not_appear(
    fs: CommitlogFileSystem,
    lake: Namespace,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    compression: str | None,
) -> None:
    """After a failed write, closing writes nothing, even if later writes would succeed."""

    def fail(*_: object) -> None:
        raise Unavailable("the store does not answer")

    file = fs.open("lake/f", mode, compression=compression)
    with monkeypatch.context() as patched, pytest.raises(Unavailable):
        patched.setattr(FileWriter, "write", fail)
        for _ in range(2):
            file.write(b"x" if mode == "wb" else "x")
        file.close()
    file.close()
    assert fs.ls("lake") == [] and stored(lake) == set()


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_a_failed_abort_hides_no_error(
    fs: CommitlogFileSystem, monkeypatch: pytest.MonkeyPatch, compression: str | None
) -> None:
    """The first error is raised."""

    def fail(*_: object) -> None:
        raise Unavailable("the store does not answer")

    monkeypatch.setattr(FileWriter, "abort", fail)
    with (
        monkeypatch.context() as patched,
        pytest.raises(KeyError),
        fs.open("lake/f", "wb", compression=compression),
    ):
        patched.setattr(FileWriter, "write", fail)
        raise KeyError
    file = fs.open("lake/g", "xb")
    fs.pipe("lake/g", b"")
    with pytest.raises(AlreadyExists):
        file.close()


def test_only_one_of_several_creators_succeeds(fs: CommitlogFileSystem) -> None:
    """The others get an error."""

    def create(number: int) -> bool:
        try:
            fs.pipe_file("lake/f", bytes([number]), mode="create")
        except FileExistsError:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(create, range(8)))
    assert made.count(True) == 1
    assert fs.cat("lake/f") == bytes([made.index(True)])


@pytest.mark.parametrize("mode", ["ab", "a", "r+b", "w+b", "rb+"])
def test_files_are_written_once(fs: CommitlogFileSystem, mode: str) -> None:
    """Files cannot be appended to or changed in place."""
    fs.pipe("lake/f", b"1")
    with pytest.raises(NotSupported, match="written once"):
        fs.open("lake/f", mode)


@pytest.mark.parametrize("mode", ["", "zz", "U", "b", "rw", "rr", "rbt"])
def test_invalid_modes_are_refused(fs: CommitlogFileSystem, mode: str) -> None:
    """As in Python, this is a `ValueError`."""
    fs.pipe("lake/f", b"1")
    with pytest.raises(ValueError, match="invalid mode"):
        fs.open("lake/f", mode)


def test_the_letters_of_a_mode_have_any_order(fs: CommitlogFileSystem) -> None:
    """As in Python."""
    with fs.open("lake/f", "bw") as file:
        file.write(b"1")
    assert fs.open("lake/f", "br").read() == b"1"


@pytest.mark.parametrize("value", ["text", 5, None])
def test_content_has_to_be_bytes(fs: CommitlogFileSystem, value: object) -> None:
    """Other types are refused with a message, also in a transaction."""
    with pytest.raises(TypeError, match="encode it as bytes"):
        fs.pipe("lake/f", value)
    with pytest.raises(TypeError, match="encode it as bytes"), fs.transaction:
        fs.pipe("lake/f", value)
    assert fs.ls("lake") == []


def test_paths_of_new_files(fs: CommitlogFileSystem, lake: Namespace) -> None:
    """Not of a directory, below a file, or above all namespaces."""
    fs.pipe("lake/d/f", b"1")
    for path, error in {"lake/d": IsADirectory, "lake/d/f/g": NotADirectory, "": InvalidPath}.items():
        with pytest.raises(error):
            fs.open(path, "wb")
        with pytest.raises(error):
            fs.pipe_file(path, b"2")
    with pytest.raises(NotFound, match="no namespace 'land'"):
        fs.pipe_file("land/f", b"2")
    assert stored(lake) == referenced(lake)


def test_unsupported_methods_raise(fs: CommitlogFileSystem) -> None:
    """The error is known to fsspec and to Python."""
    with pytest.raises(NotImplementedError, match="give them credentials"):
        fs.sign("lake/f")


def test_touch(fs: CommitlogFileSystem, lake: Namespace) -> None:
    """It makes an empty file, empties a file, or changes only its time."""
    fs.touch("lake/f", truncate=False)
    assert fs.cat("lake/f") == b""
    fs.pipe("lake/f", b"1")
    lake.set_attributes("f", modified=1)
    fs.touch("lake/f", truncate=False)
    assert fs.cat("lake/f") == b"1" and fs.modified("lake/f").year > 1970
    fs.touch("lake/f")
    assert fs.cat("lake/f") == b""


def test_touch_keeps_a_concurrent_file(fs: CommitlogFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its content stays."""

    def too_early(self: Namespace, path: str, **_: object) -> None:
        self.write(path, b"1")
        raise NotFound(path)

    monkeypatch.setattr(Namespace, "set_attributes", too_early)
    fs.touch("lake/f", truncate=False)
    assert fs.cat("lake/f") == b"1"


def test_put_and_get_of_trees(fs: CommitlogFileSystem, tmp_path: Path) -> None:
    """Block by block, with progress."""
    source = tmp_path / "source"
    (source / "d" / "empty").mkdir(parents=True)
    (source / "d" / "f").write_bytes(b"x" * 1000)
    fs.blocksize = 300
    reported = fsspec.callbacks.Callback()
    fs.put_file(str(source / "d" / "f"), "lake/g", callback=reported)
    assert (reported.size, reported.value) == (1000, 1000)
    fs.put(str(source), "lake/target", recursive=True)
    assert fs.find("lake/target", withdirs=True) == [
        "lake/target",
        "lake/target/d",
        "lake/target/d/empty",
        "lake/target/d/f",
    ]
    fs.get("lake/target", str(tmp_path / "back"), recursive=True)
    assert (tmp_path / "back" / "d" / "f").read_bytes() == b"x" * 1000
    assert (tmp_path / "back" / "d" / "empty").is_dir()


# -- changes of names --------------------------------------------------------------------------------


def test_mkdir_and_makedirs(fs: CommitlogFileSystem) -> None:
    """`mkdir` requires a new directory; `makedirs` accepts an existing one."""
    fs.mkdir("lake/a/b")
    for path in ("lake/a/b", "lake/a", "lake"):
        with pytest.raises(FileExistsError):
            fs.mkdir(path)
        with pytest.raises(FileExistsError):
            fs.makedirs(path)
        fs.makedirs(path, exist_ok=True)
    with pytest.raises(FileNotFoundError):
        fs.mkdir("lake/x/y", create_parents=False)
    fs.mkdir("lake/x", create_parents=False)
    fs.makedirs("", exist_ok=True)
    fs.makedirs("lake/x/y/z")
    assert fs.isdir("lake/x/y/z")
    with pytest.raises(FileNotFoundError, match="create it first"):
        fs.mkdir("land")
    fs.pipe("lake/f", b"")
    with pytest.raises(FileExistsError):
        fs.makedirs("lake/f", exist_ok=True)


def test_rm_file_rmdir_and_rm(fs: CommitlogFileSystem) -> None:
    """Directories with contents stay."""
    fs.pipe({"lake/d/f": b"", "lake/d/g": b""})
    fs.mkdir("lake/e")
    with pytest.raises(IsADirectoryError):
        fs.rm_file("lake/d")
    with pytest.raises(NotADirectoryError):
        fs.rmdir("lake/d/f")
    for remove in (fs.rmdir, fs.rm):
        with pytest.raises(DirectoryNotEmpty):
            remove("lake/d")
    for remove in (fs.rmdir, fs.rm, fs.rm_file):
        with pytest.raises(FileNotFoundError):
            remove("lake/no")
    with pytest.raises(InvalidPath, match="root"):
        fs.rm("lake", recursive=True)
    fs.rmdir("lake/e")
    fs.rm_file("lake/d/g")
    fs.rm(["lake/d", "lake/d/f"])
    assert fs.ls("lake") == []


def test_a_directory_is_removed_in_one_transaction(
    fs: CommitlogFileSystem, transactions: list[int]
) -> None:
    """For any size. Paths below it in the same list are removed with it."""
    fs.pipe({f"lake/d/e/{number}": b"" for number in range(20)})
    fs.pipe({"lake/d.txt": b"", "lake/d/x": b"", "lake/other/f": b""})
    transactions.clear()
    fs.rm(["lake/d/e/3", "lake/d", "lake/d/x", "lake/d.txt"], recursive=True)
    assert len(transactions) == 2
    assert fs.find("lake") == ["lake/other/f"]
    fs.rm("commitlog://lake/oth*", recursive=True)
    assert fs.ls("lake") == []


def test_rm_with_maxdepth(fs: CommitlogFileSystem) -> None:
    """A directory with deeper contents stays, and is an error."""
    fs.pipe({"lake/d/f": b"", "lake/d/e/g": b""})
    with pytest.raises(DirectoryNotEmpty):
        fs.rm("lake/d", recursive=True, maxdepth=1)
    fs.rm("lake/d", recursive=True, maxdepth=2)
    assert not fs.exists("lake/d")


@pytest.mark.parametrize(
    ("source", "target", "becomes"),
    [
        ("lake/f", "lake/new", "lake/new"),
        ("lake/f", "lake/g", "lake/g"),
        ("lake/f", "lake/e", "lake/e/f"),
        ("lake/f", "lake/e/", "lake/e/f"),
        ("commitlog://lake/f", "commitlog://lake/e/h", "lake/e/h"),
        ("lake/f", "lake", "lake/f"),
        ("lake/d", "lake/new", "lake/new/x/y"),
        ("lake/d", "lake/e", "lake/e/d/x/y"),
        ("lake/d/", "lake/e", "lake/e/x/y"),
        ("lake/d/x", "lake", "lake/x/y"),
        ("lake/d/x/y", "lake/e", "lake/e/y"),
        ("lake/[f]", "lake/e", "lake/e/f"),
        ("lake/[d]", "lake/e", "lake/e/d/x/y"),
        (["lake/f"], "lake/e", "lake/e/f"),
        (["lake/f"], ["lake/e/new"], "lake/e/new"),
    ],
)
def test_mv(
    fs: CommitlogFileSystem, transactions: list[int], source: Any, target: Any, becomes: str
) -> None:
    """To a new name, over a file, or into a directory, in one transaction."""
    fs.pipe({"lake/f": b"moved", "lake/d/x/y": b"moved", "lake/g": b"replaced"})
    fs.mkdir("lake/e")
    transactions.clear()
    fs.mv(source, target, recursive=True)
    assert fs.cat(becomes) == b"moved"
    assert len(transactions) == (becomes != "lake/f")
    assert len([path for path in fs.find("lake") if fs.cat(path) == b"moved"]) == 2


def test_refused_moves_change_nothing(fs: CommitlogFileSystem, land: Namespace) -> None:
    """The error has the reason."""
    fs.pipe({"lake/f": b"1", "lake/d/g": b"2", "lake/e/d/h": b"3"})
    before = fs.find("lake")
    fs.mv("lake/d", "lake/d/")
    for source, target, error in (
        ("lake/no", "lake/new", FileNotFoundError),
        ("lake/no*", "lake/e", FileNotFoundError),
        ("lake/no", "lake/a/new", FileNotFoundError),
        ("lake/f", "lake/d/g/f", NotADirectoryError),
        ("lake/d", "lake/e", DirectoryNotEmpty),
        ("lake/d", "lake/f", NotADirectoryError),
        ("lake/d", "lake/d/e", InvalidPath),
        ("lake", "lake/d", InvalidPath),
        ("lake/f", "land", NotSupported),
        ("lake/f", "land/f", NotSupported),
    ):
        with pytest.raises(error):
            fs.mv(source, target)
    assert fs.find("lake") == before
    assert not fs.exists("lake/a")


@pytest.mark.parametrize(
    ("source", "target", "becomes"),
    [
        ("lake/f", "lake/a/b/g", "lake/a/b/g"),
        ("lake/f", "lake/a/", "lake/a/f"),
        ("lake/d", "lake/a/b", "lake/a/b/y"),
        ("lake/d", "/".join(["lake", *"a" * 60]), "/".join(["lake", *"a" * 60, "y"])),
        (["lake/f"], ["lake/a/b/g"], "lake/a/b/g"),
    ],
)
def test_mv_makes_missing_parents(
    fs: CommitlogFileSystem, source: Any, target: Any, becomes: str
) -> None:
    """As on object stores."""
    fs.pipe({"lake/f": b"moved", "lake/d/y": b"moved"})
    fs.mv(source, target)
    assert fs.cat(becomes) == b"moved"
    assert len(fs.find("lake")) == 2


def test_a_copy_has_its_own_content(
    fs: CommitlogFileSystem, lake: Namespace, land: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store copies it if possible; otherwise it is read and written."""
    fs.pipe("lake/d/f", b"0123456789")
    copies: list[str] = []
    real = MemoryStore.copy

    def copy(self: MemoryStore, source: str, target: str, **kwargs: Any) -> Any:
        copies.append(target)
        return real(self, source, target, **kwargs)

    monkeypatch.setattr(MemoryStore, "copy", copy)
    fs.cp("lake/d/f", "lake/copied")
    assert len(copies) == 1
    fs.cp("lake/d", "land/d", recursive=True)
    assert land.read("d/f") == b"0123456789"
    monkeypatch.setattr(transfer, "COPY_LIMIT", 9)
    fs.blocksize = 4
    fs.cp("lake/d/f", "lake/streamed")
    assert len(copies) == 1
    fs.rm("lake/d", recursive=True)
    assert fs.cat("lake/copied") == fs.cat("lake/streamed") == b"0123456789"
    assert len(referenced(lake)) == 2
    with pytest.raises(FileNotFoundError):
        fs.cp_file("lake/no", "lake/x")


def test_makedirs_has_no_depth_limit(fs: CommitlogFileSystem) -> None:
    """It takes as many transactions as needed. `exist_ok` applies as usual."""
    deep = "lake/" + "/".join("d" * 200)
    fs.makedirs(deep)
    assert len(fs.find("lake/d", withdirs=True)) == 200
    fs.makedirs(deep, exist_ok=True)
    with pytest.raises(FileExistsError):
        fs.makedirs(deep)
    assert fs.isdir(deep)


@pytest.mark.parametrize("transaction", [False, True])
def test_put_and_cp_have_no_depth_limit(
    fs: CommitlogFileSystem, lake: Namespace, tmp_path: Path, transaction: bool
) -> None:
    """Deeper than the directories that one transaction makes with a file."""
    deep = tmp_path.joinpath("a", *["d"] * 50)
    deep.mkdir(parents=True)
    (deep / "file").write_bytes(b"1")
    with fs.transaction if transaction else nullcontext():
        fs.put(str(tmp_path / "a"), "lake/a", recursive=True)
    fs.copy("lake/a", "lake/b", recursive=True)
    for top in ("a", "b"):
        assert lake.read(f"{top}/{'d/' * 50}file") == b"1"


# -- transactions ------------------------------------------------------------------------------------


def test_files_of_a_transaction_appear_at_once(
    fs: CommitlogFileSystem, lake: Namespace, transactions: list[int], tmp_path: Path
) -> None:
    """All kinds of writes are one transaction of the table, at the end."""
    fs.pipe({"lake/old": b"old", "lake/source": b"source"})
    (tmp_path / "local").write_bytes(b"local")
    transactions.clear()
    with fs.transaction:
        with fs.open("lake/a/b/new", "wb") as file:
            file.write(b"new")
        with fs.open("lake/a/text", "w") as text:
            text.write("text")
        fs.pipe("lake/old", b"piped")
        fs.put(str(tmp_path / "local"), "lake/c/put")
        fs.cp("lake/source", "lake/copied")
        fs.touch("lake/touched")
        assert fs.find("lake") == ["lake/old", "lake/source"]
        assert fs.cat("lake/old") == b"old"
    assert len(transactions) == 1
    assert fs.cat(fs.find("lake")) == {
        "lake/a/b/new": b"new",
        "lake/a/text": b"text",
        "lake/c/put": b"local",
        "lake/copied": b"source",
        "lake/old": b"piped",
        "lake/source": b"source",
        "lake/touched": b"",
    }
    fs.pipe("lake/after", b"at once")
    assert fs.exists("lake/after")


@pytest.mark.parametrize("size", [4, BIG])
def test_a_failed_transaction_leaves_nothing(
    fs: CommitlogFileSystem, lake: Namespace, size: int
) -> None:
    """No file, object or upload remains. The next transaction works."""
    with pytest.raises(KeyError), fs.transaction:
        fs.pipe("lake/f", b"x" * size)
        left = fs.open("lake/g", "wb")
        left.write(b"x" * size)
        raise KeyError
    assert left.closed
    assert fs.ls("lake") == [] and stored(lake) == set() and list(lake.store.list_staged()) == []
    with fs.transaction:
        fs.pipe("lake/f", b"1")
    assert fs.cat("lake/f") == b"1"


def test_a_transaction_has_a_limit(fs: CommitlogFileSystem, lake: Namespace) -> None:
    """Files that do not fit are not made, and the error has advice."""
    with (
        pytest.raises(TransactionTooLarge, match="new directory that has no readers yet, then rename"),
        fs.transaction,
    ):
        for number in range(101):
            fs.pipe(f"lake/d/{number}", b"")
    assert fs.ls("lake") == [] and stored(lake) == set()
    with fs.transaction:
        for number in range(95):
            fs.pipe(f"lake/d/{number}", b"")
    assert len(fs.ls("lake/d")) == 95


def test_refused_transactions(fs: CommitlogFileSystem, lake: Namespace, land: Namespace) -> None:
    """Files in two namespaces, new files next to replaced ones, and open files."""
    with pytest.raises(NotSupported, match="'x'"), fs.transaction:
        fs.pipe("lake/f", b"1")
        fs.pipe_file("lake/g", b"1", mode="create")
    with pytest.raises(ConfigurationError, match="'lake/f' is still open"), fs.transaction:
        file = fs.open("lake/f", "wb")
    assert file.closed
    with pytest.raises(ConfigurationError, match="do not nest"), fs.transaction:
        fs.pipe("lake/f", b"1")
        with fs.transaction:
            raise AssertionError
    with pytest.raises(NotSupported, match="one namespace"), fs.transaction:
        fs.pipe({"lake/f": b"1", "land/f": b"1"})
    assert list(land.walk()) == [] and stored(land) == set()
    assert fs.ls("lake") == [] and stored(lake) == set()


def test_mode_x_in_a_transaction(fs: CommitlogFileSystem, lake: Namespace) -> None:
    """All files must be new at the end, or none is made."""
    with fs.transaction:
        fs.pipe({"lake/a": b"1", "lake/b": b"1"}, mode="create")
    with pytest.raises(FileExistsError), fs.transaction:
        fs.pipe({"lake/c": b"2", "lake/d": b"2"}, mode="create")
        lake.write("d", b"meanwhile")
    assert fs.find("lake") == ["lake/a", "lake/b", "lake/d"]
    assert stored(lake) == referenced(lake)


def test_the_last_content_of_a_path_is_used(fs: CommitlogFileSystem, lake: Namespace) -> None:
    """A file that is written twice is made once; a discarded one is not made."""
    with fs.transaction:
        fs.pipe("lake/f", b"1")
        fs.pipe("lake/f", b"2")
        fs.open("lake/g", "wb").discard()
        with pytest.raises(KeyError), fs.open("lake/h", "wb") as file:
            file.write(b"3")
            raise KeyError
    assert fs.cat("lake/*") == {"lake/f": b"2"}
    assert stored(lake) == referenced(lake)


def test_after_an_unknown_outcome_content_stays(
    fs: CommitlogFileSystem, lake: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files may appear."""

    def lose(self: Namespace, files: object, **_: object) -> None:
        raise OutcomeUnknown("no answer")

    with monkeypatch.context() as patched:
        patched.setattr(Namespace, "link_many", lose)
        with pytest.raises(OutcomeUnknown), fs.transaction:
            fs.pipe("lake/f", b"1")
    assert len(stored(lake)) == 1
    fs.pipe("lake/f", b"2")
    assert fs.cat("lake/f") == b"2"


def test_a_file_can_be_committed_explicitly(fs: CommitlogFileSystem, lake: Namespace) -> None:
    """With ``autocommit=False`` it appears at `commit`. A later `discard` has no effect."""
    file = fs.open("lake/f", "wb", autocommit=False)
    file.write(b"1")
    file.close()
    assert not fs.exists("lake/f")
    file.commit()
    file.discard()
    assert fs.cat("lake/f") == b"1"
    fs.start_transaction()
    fs.pipe("lake/g", b"2")
    fs.end_transaction()
    assert fs.cat("lake/g") == b"2"


# -- many files at a time ----------------------------------------------------------------------------


def meet(monkeypatch: pytest.MonkeyPatch, method: str, parties: int) -> None:
    """Let requests of a kind wait until this number of them is in progress."""
    together = threading.Barrier(parties, timeout=30)
    real = getattr(MemoryStore, method)

    def called(self: MemoryStore, *args: Any, **kwargs: Any) -> Any:
        together.wait()
        return real(self, *args, **kwargs)

    monkeypatch.setattr(MemoryStore, method, called)


@pytest.fixture
def many(tmp_path: Path) -> Path:
    """A local directory with 40 files, ten in each of four directories."""
    top = tmp_path / "many"
    for number in range(40):
        file = top / f"{number % 4}" / f"{number:02}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{number}")
    return top


def contents(top: Path) -> dict[str, bytes]:
    """Return the content of all files below a directory."""
    return {
        str(path.relative_to(top)): path.read_bytes()
        for path in sorted(top.rglob("*"))
        if path.is_file()
    }


def test_calls_for_many_files_are_concurrent(
    fs: CommitlogFileSystem, many: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`batch_size` is the number of concurrent files in all these calls."""
    with monkeypatch.context() as patched:
        meet(patched, "put", 8)
        fs.put(f"{many}/", "lake/a", recursive=True, batch_size=8)
        fs.pipe({f"lake/p/{n}": b"%d" % n for n in range(8)}, batch_size=8)
    with monkeypatch.context() as patched:
        meet(patched, "copy", 8)
        fs.cp("lake/a", "lake/b", recursive=True, batch_size=8)
    with monkeypatch.context() as patched:
        meet(patched, "get", 8)
        fs.get("lake/b", f"{tmp_path}/back", recursive=True, batch_size=8)
        assert fs.cat("lake/p/*", batch_size=8) == {f"lake/p/{n}": b"%d" % n for n in range(8)}
    assert contents(tmp_path / "back") == contents(many)
    other = CommitlogFileSystem(fs._metadata, batch_size=4)
    meet(monkeypatch, "get", 4)
    assert len(other.cat(fs.find("lake/p"))) == 8


def test_batch_size_is_the_maximum(
    fs: CommitlogFileSystem, many: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For uploads and downloads. An invalid number is refused."""
    now = most = 0
    lock = threading.Lock()
    real_put, real_get = MemoryStore.put, MemoryStore.get

    def watched(real: Any) -> Any:
        def called(*args: Any, **kwargs: Any) -> Any:
            nonlocal now, most
            with lock:
                now += 1
                most = max(most, now)
            try:
                return real(*args, **kwargs)
            finally:
                with lock:
                    now -= 1

        return called

    monkeypatch.setattr(MemoryStore, "put", watched(real_put))
    monkeypatch.setattr(MemoryStore, "get", watched(real_get))
    fs.put(f"{many}/", "lake/a", recursive=True, batch_size=2)
    fs.get("lake/a", f"{tmp_path}/back", recursive=True, batch_size=2)
    assert most <= 2
    with pytest.raises(ValueError, match="batch_size is -2"):
        fs.cat(["lake/a/0/00", "lake/a/1/01"], batch_size=-2)
    with pytest.raises(ConfigurationError, match="batch_size"):
        CommitlogFileSystem(fs._metadata, batch_size=-3)


def test_many_files_take_few_transactions(
    fs: CommitlogFileSystem,
    transactions: list[int],
    land: Namespace,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Files that are stored during a transaction are made by the next one, in each namespace."""
    ready = threading.Semaphore(0)
    real = MemoryStore.put

    def put(self: MemoryStore, *args: Any, **kwargs: Any) -> Any:
        done = real(self, *args, **kwargs)
        ready.release()
        return done

    def link_many(self: Namespace, files: Any, **kwargs: Any) -> Any:
        for _ in range(0 if transactions else 16):  # while the first is made, others are stored
            assert ready.acquire(timeout=30)
        return real_link(self, files, **kwargs)

    real_link = Namespace.link_many
    monkeypatch.setattr(MemoryStore, "put", put)
    monkeypatch.setattr(Namespace, "link_many", atomic_links(link_many))
    fs.pipe({f"lake/d/{n}": b"1" for n in range(17)})
    assert len(transactions) <= 4
    assert len(fs.ls("lake/d")) == 17
    monkeypatch.undo()
    fs.pipe({f"{name}/e/{n}": b"2" for n in range(9) for name in ("lake", "land")})
    assert len(fs.ls("lake/e")) == len(fs.ls("land/e")) == 9


def test_the_first_failure_ends_the_call(
    fs: CommitlogFileSystem, lake: Namespace, many: Path, tmp_path: Path
) -> None:
    """No other file is started. The error has a note of the state."""
    fs.makedirs("lake/a/0/00")
    with pytest.raises(IsADirectory, match="'a/0/00' is a directory") as raised:
        fs.put(f"{many}/", "lake/a", recursive=True, batch_size=1)
    [note] = raised.value.__notes__
    there = len(fs.find("lake/a"))
    assert there < 40
    assert note.endswith("the rest were not started, or were cancelled")
    assert " of 45 paths were completed before the error" in note
    assert stored(lake) == referenced(lake)  # the content of other files was removed
    missing = [str(tmp_path / f"no-{n}") for n in range(20)]
    with pytest.raises(FileNotFoundError) as raised_too:
        fs.put(missing, [f"lake/n/{n}" for n in range(20)], batch_size=4)
    assert raised_too.value.filename in missing
    assert raised_too.value.__notes__[0].startswith("0 of 20 paths")


def test_names_of_many_files_are_read_in_parallel(
    fs: CommitlogFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For `pipe` and for transactions. A single file needs no thread."""
    seen = watched_executors(monkeypatch)
    fs.pipe({f"lake/{number}": b"" for number in range(30)})
    assert sum(seen) == 30
    seen.clear()
    for count in (1, 3):
        with fs.transaction:
            for number in range(count):
                fs.pipe(f"lake/{number}", b"")
    assert seen == [3]


def test_a_failed_file_does_not_stop_its_group(
    fs: CommitlogFileSystem, lake: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other files of the group are made."""
    gate = threading.Event()
    real = Namespace.link_many
    sizes: list[int] = []

    def link_many(self: Namespace, files: Any, **kwargs: Any) -> Any:
        sizes.append(len(files))
        if len(sizes) == 1:
            assert gate.wait(30)
        return real(self, files, **kwargs)

    count = 0
    real_put = MemoryStore.put

    def put(self: MemoryStore, *args: Any, **kwargs: Any) -> Any:
        nonlocal count
        done = real_put(self, *args, **kwargs)
        count += 1
        if count == 12:
            gate.set()
        return done

    lake.make_directory("d/5")
    monkeypatch.setattr(Namespace, "link_many", atomic_links(link_many))
    monkeypatch.setattr(MemoryStore, "put", put)
    with pytest.raises(IsADirectory):
        fs.pipe({f"lake/d/{n}": b"1" for n in range(12)})
    assert max(sizes) > 1
    assert len(fs.find("lake/d")) == 11
    assert stored(lake) == referenced(lake)


def test_after_an_unknown_outcome_of_many_files_content_stays(
    fs: CommitlogFileSystem, lake: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files may exist."""
    real = Namespace.link_many

    def link_many(self: Namespace, files: Any, **kwargs: Any) -> Any:
        real(self, files, **kwargs)
        raise OutcomeUnknown("no answer")

    monkeypatch.setattr(Namespace, "link_many", atomic_links(link_many))
    with pytest.raises(OutcomeUnknown):
        fs.pipe({f"lake/d/{n}": b"1" for n in range(30)})
    assert referenced(lake)
    assert stored(lake) == referenced(lake)


def test_an_interrupt_leaves_no_unreferenced_content(
    fs: CommitlogFileSystem, lake: Namespace, many: Path, tmp_path: Path
) -> None:
    """Files in progress are cancelled, and unused content is removed."""

    class Impatient(fsspec.callbacks.Callback):
        def relative_update(self, inc: int = 1) -> None:
            super().relative_update(inc)
            if self.value == 5:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fs.put(f"{many}/", "lake/a", recursive=True, callback=Impatient())
    assert 0 < len(fs.find("lake/a")) < 40
    assert stored(lake) == referenced(lake)
    fs.put(f"{many}/", "lake/b", recursive=True)
    with pytest.raises(KeyboardInterrupt):
        fs.get("lake/b", str(tmp_path / "back"), recursive=True, callback=Impatient())
    found = contents(tmp_path / "back")
    assert found.items() <= contents(many).items() and len(found) < 40


def test_callbacks_of_many_files(fs: CommitlogFileSystem, many: Path, tmp_path: Path) -> None:
    """They get each completed file and its bytes, from one thread at a time."""
    busy = threading.Lock()

    class Counter(fsspec.callbacks.Callback):
        def __init__(self, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.children: dict[tuple[str, str], Counter] = {}
            self.ended = False

        def call(self, *_: Any, **__: Any) -> None:
            assert busy.acquire(blocking=False)
            busy.release()

        def branched(self, path_1: str, path_2: str, **_: Any) -> Any:
            return self.children.setdefault((path_1, path_2), Counter())

        def close(self) -> None:
            self.ended = True

    up, down = Counter(), Counter()
    fs.put(f"{many}/", "lake/a", recursive=True, callback=up)
    fs.get("lake/a", str(tmp_path / "back"), recursive=True, callback=down)
    for counter in (up, down):
        assert counter.size == counter.value == len(counter.children) == 45
        assert all(child.ended for child in counter.children.values())
        reported = [child for child in counter.children.values() if child.size is not None]
        assert len(reported) == 40
        assert all(child.size == child.value for child in reported)
    assert up.children[str(many / "1" / "13"), "lake/a/1/13"].value == 2
    assert down.children["lake/a/1/13", str(tmp_path / "back/1/13")].value == 2


def test_few_large_files_are_sent_at_a_time(
    fs: CommitlogFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The memory holds the parts of four files, and one block of each other file."""
    fs.blocksize = 1000
    now = most = 0
    lock = threading.Lock()
    real_begin, real_finish = Namespace.open_writer, FileWriter.finish

    def begin(*args: Any, **kwargs: Any) -> FileWriter:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        return real_begin(*args, **kwargs)

    def finish(self: FileWriter) -> Any:
        nonlocal now
        with lock:
            now -= 1
        return real_finish(self)

    for number in range(24):
        (tmp_path / f"{number}").write_bytes(b"x" * (2000 + number))
    monkeypatch.setattr(Namespace, "open_writer", begin)
    monkeypatch.setattr(FileWriter, "finish", finish)
    fs.put([str(tmp_path / f"{n}") for n in range(24)], [f"lake/{n}" for n in range(24)])
    assert 1 <= most <= 4
    assert [fs.size(f"lake/{n}") for n in range(24)] == [2000 + n for n in range(24)]


def test_many_files_in_a_transaction(
    fs: CommitlogFileSystem, lake: Namespace, many: Path, transactions: list[int]
) -> None:
    """They are sent concurrently, and appear at once at the end."""
    with fs.transaction:
        fs.put([str(path) for path in sorted(many.rglob("?[0-9]"))], "lake/a/")
        fs.pipe({"lake/b": b"1", "lake/c": b"2"})
        assert fs.find("lake") == []
    assert len(fs.find("lake/a")) == 40 and fs.cat("lake/b") == b"1"
    assert len(transactions) == 1
    with pytest.raises(FileNotFoundError), fs.transaction:
        fs.put(f"{many}/", "lake/t", recursive=True)
        fs.put([str(many / "0" / "00"), str(many / "no")], ["lake/f", "lake/g"])
    assert fs.ls("lake", detail=False) == ["lake/a", "lake/b", "lake/c"]
    assert stored(lake) == referenced(lake)


def test_the_last_source_of_a_path_is_used(fs: CommitlogFileSystem, many: Path, tmp_path: Path) -> None:
    """As if the files were copied one after the other."""
    files = [str(many / "0" / "00"), str(many / "1" / "01")]
    fs.put(files, ["lake/x", "/lake/x/"])
    assert fs.cat("lake/x") == b"1"
    fs.put(files, ["lake/a", "lake/b"])
    fs.get(["lake/b", "lake/a"], [str(tmp_path / "y")] * 2)
    assert (tmp_path / "y").read_bytes() == b"0"
    fs.pipe({"lake/z": b"1", "commitlog://lake/z": b"2"})
    assert fs.cat("lake/z") == b"2"


def test_mode_create_of_many_files(fs: CommitlogFileSystem, lake: Namespace, many: Path) -> None:
    """Mode "create" replaces no file."""
    fs.pipe("lake/a/1/01", b"old")
    for _ in range(2):
        with pytest.raises(AlreadyExists):
            fs.put(f"{many}/", "lake/a", recursive=True, mode="create")
    with pytest.raises(AlreadyExists):
        fs.pipe({"lake/n": b"1", "lake/a/1/01": b"2"}, mode="create")
    assert fs.cat("lake/a/1/01") == b"old"
    assert stored(lake) == referenced(lake)


def test_mode_create_of_many_files_replaces_none_made_meanwhile(
    fs: CommitlogFileSystem, lake: Namespace, many: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another client makes them when the content is stored."""
    real = Namespace.link_many

    def later(self: Namespace, files: Any, **options: Any) -> Any:
        for path in files:
            lake.write(path, b"another's")
        return real(self, files, **options)

    monkeypatch.setattr(Namespace, "link_many", later)
    with pytest.raises(AlreadyExists):
        fs.pipe({"lake/a": b"1", "lake/b": b"2"}, mode="create")
    with pytest.raises(AlreadyExists):
        fs.put(f"{many}/", "lake/c", recursive=True, mode="create")
    assert set(fs.cat("lake", recursive=True).values()) == {b"another's"}


def test_a_failed_download_leaves_no_partial_file(
    fs: CommitlogFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An open file that was passed in is not removed."""
    fs.pipe("lake/f", b"0123456789")
    fs.blocksize = 4
    real = OpenFile.read

    def read(self: OpenFile, start: int = 0, end: int | None = None) -> bytes:
        if start == 8:
            raise Unavailable("no")
        return real(self, start, end)

    with monkeypatch.context() as patched:
        patched.setattr(OpenFile, "read", read)
        with pytest.raises(Unavailable):
            fs.get("lake/f", str(tmp_path / "d" / "f"))
    assert list((tmp_path / "d").iterdir()) == []
    into = io.BytesIO()
    fs.get_file("lake/f", into)
    assert into.getvalue() == b"0123456789"
    with pytest.raises(IsADirectory):
        fs.get_file("lake", into)


def test_rsync(fs: CommitlogFileSystem, url: str, many: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """fsspec's `rsync` copies differences, and removes missing files if requested."""
    monkeypatch.setenv(METADATA, url)
    both = GenericFileSystem()
    assert len(rsync(f"file://{many}", "commitlog://lake/a", fs=both)) == 40
    (many / "0" / "00").write_text("longer")
    (many / "1" / "01").unlink()
    sent = rsync(f"file://{many}", "commitlog://lake/a", fs=both, delete_missing=True)
    assert list(sent.values()) == ["commitlog://lake/a/0/00"]
    assert {path: fs.cat(f"lake/a/{path}") for path in contents(many)} == contents(many)
    assert len(fs.find("lake/a")) == 39


def test_cat_of_many_files(fs: CommitlogFileSystem) -> None:
    """By path, for lists, patterns and directories. Errors are raised, omitted or returned."""
    fs.pipe({"lake/a/x": b"0123", "lake/a/d/y": b"4567"})
    assert fs.cat("lake/a", recursive=True) == {"lake/a/d/y": b"4567", "lake/a/x": b"0123"}
    assert fs.cat(["lake/a/x"], start=1, end=3) == {"lake/a/x": b"12"}
    assert fs.cat("lake/a/x", start=-1) == b"3"
    paths = ["lake/a/x", "lake/no", "lake/a"]
    with pytest.raises(IsADirectory):
        fs.cat(paths)
    assert fs.cat(paths, on_error="omit") == {"lake/a/x": b"0123"}
    returned = fs.cat(paths, on_error="return")
    assert [type(returned[path]) for path in paths] == [bytes, NotFound, IsADirectory]


def test_directories_are_made_with_their_contents(
    fs: CommitlogFileSystem, many: Path, transactions: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only empty ones are made separately."""
    made: list[str] = []
    real = Namespace.make_directory

    def make_directory(self: Namespace, path: str, **kwargs: Any) -> Any:
        made.append(path)
        return real(self, path, **kwargs)

    monkeypatch.setattr(Namespace, "make_directory", make_directory)
    (many / "empty" / "too").mkdir(parents=True)
    fs.put(f"{many}/", "lake/a", recursive=True)
    fs.cp("lake/a", "lake/b", recursive=True)
    assert sorted(made) == ["a/empty/too", "b/empty/too"]
    assert fs.isdir("lake/b/empty/too") and len(fs.find("lake/b")) == 40
    fs.pipe("lake/c/3", b"a file")
    with pytest.raises(NotADirectory):
        fs.put(f"{many}/", "lake/c", recursive=True)


def test_matches_are_not_looked_up_again(
    fs: CommitlogFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pattern with many matches takes no request for each."""
    fs.pipe({f"lake/a/{n}.csv": b"%d" % n for n in range(5)} | {"lake/a/d.csv/x": b""})
    looked: list[str] = []
    real = Namespace.stat
    monkeypatch.setattr(Namespace, "stat", lambda self, path: (looked.append(path), real(self, path))[1])
    fs.get("lake/a/*.csv", str(tmp_path / "back"))
    assert sorted(contents(tmp_path / "back")) == [f"{n}.csv" for n in range(5)]
    assert max(looked.count(f"a/{n}.csv") for n in range(5)) == 1  # to open it
    looked.clear()
    fs.cp("lake/a/*.csv", "lake/b/")
    assert fs.find("lake/b", maxdepth=1) == [f"lake/b/{n}.csv" for n in range(5)]
    assert max(looked.count(f"a/{n}.csv") for n in range(5)) == 1


def test_paths_can_be_path_objects(fs: CommitlogFileSystem, tmp_path: Path) -> None:
    """A `pathlib.Path` is accepted in place of a string."""
    there, back = PurePosixPath("lake/f"), tmp_path / "back"
    (tmp_path / "here").write_text("1")
    fs.put(tmp_path / "here", there)
    assert fs.cat(there) == fs.open(there).read() == b"1"
    fs.cp(there, PurePosixPath("lake/g"))
    fs.get(PurePosixPath("lake/g"), back)
    assert back.read_text() == "1"
    fs.rm(there)
    assert fs.find("lake") == ["lake/g"]


def test_cp_of_many_files(
    fs: CommitlogFileSystem, land: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With empty directories, and to other namespaces. Files that no longer exist are skipped."""
    fs.pipe({f"lake/a/{n}": b"%d" % n for n in range(9)})
    fs.makedirs("lake/a/empty")
    fs.blocksize = 4
    fs.pipe("lake/a/large", b"0123456789")
    fs.cp("lake/a", "land/b", recursive=True)
    assert fs.isdir("land/b/empty")
    assert fs.cat("land/b/large") == b"0123456789"
    assert [fs.cat(f"land/b/{n}") for n in range(9)] == [b"%d" % n for n in range(9)]
    gone = ["lake/a/1", "lake/a/no"]
    with pytest.raises(FileNotFoundError):
        fs.cp(gone, "lake/c/")
    fs.cp(gone, "lake/d/", on_error="ignore")
    assert fs.find("lake/d") == ["lake/d/1"]
    fs.cp("lake/a/no", "lake/e", on_error="ignore")
    assert not fs.exists("lake/e")
    with pytest.raises(FileNotFoundError):
        fs.cp("lake/a/no", "lake/e")


def test_a_copy_skips_no_file_that_is_there(
    fs: CommitlogFileSystem, lake: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails for any other reason than that a source is missing."""
    fs.pipe({f"lake/a/{n}": b"%d" % n for n in range(3)})
    real = Namespace.open

    def refused(self: Namespace, path: str, **options: Any) -> Any:
        if path == "a/1":
            raise AccessDenied("not yours")
        return real(self, path, **options)

    monkeypatch.setattr(Namespace, "open", refused)
    for options in ({"recursive": True}, {"recursive": True, "on_error": "ignore"}):
        with pytest.raises(AccessDenied):
            fs.cp("lake/a", "lake/b", **options)


def test_rm_is_concurrent(fs: CommitlogFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    """Matches of a pattern are removed concurrently; contents before their directories."""
    fs.pipe({f"lake/a/{n}": b"" for n in range(8)} | {"lake/a/d/e/f": b""})
    together = threading.Barrier(4, timeout=30)
    real = Namespace.delete

    def delete(self: Namespace, path: str, **kwargs: Any) -> None:
        together.wait()
        real(self, path, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(Namespace, "delete", delete)
        fs.rm("lake/a/[0-7]", batch_size=4)
    assert fs.find("lake/a") == ["lake/a/d/e/f"]
    fs.rm(["lake/a/d/e/f", "lake/a/d/e", "lake/a/d", "lake/a"])
    assert fs.ls("lake") == []


# -- other threads and processes ---------------------------------------------------------------------


def test_instances_can_be_serialized(fs: CommitlogFileSystem, url: str) -> None:
    """Pickle and JSON create an instance with the same arguments."""
    fs.pipe("lake/f", b"1")
    given = CommitlogFileSystem(url, grace=60.0)
    for again in (
        pickle.loads(pickle.dumps(given)),
        CommitlogFileSystem.from_json(given.to_json()),
        fsspec.AbstractFileSystem.from_dict(given.to_dict()),
    ):
        assert again == given and hash(again) == hash(given)
        assert again.cat("lake/f") == b"1"
    assert given != fs


def test_each_thread_has_its_own_instance(lake: Namespace, url: str) -> None:
    """A transaction contains the writes of one thread. Several threads can share an instance."""
    with ThreadPoolExecutor(1) as thread, (fs := CommitlogFileSystem(url)).transaction:
        other = thread.submit(CommitlogFileSystem, url).result()
        assert other is not fs
        thread.submit(other.pipe, "lake/f", b"1").result()
        assert fs.cat("lake/f") == b"1"
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda number: fs.pipe(f"lake/d/{number}", b"1"), range(20)))
    assert len(fs.ls("lake/d")) == 20


def test_a_namespace_is_opened_once(fs: CommitlogFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    """If two threads open it at the same time, both use one instance."""
    together = threading.Barrier(2, timeout=30)
    made: list[Namespace] = []

    def slow(name: str, **options: Any) -> Namespace:
        mounted = open_namespace(name, **options)
        made.append(mounted)
        together.wait()
        return mounted

    closed: list[Namespace] = []
    monkeypatch.setattr(locations, "open_namespace", slow)
    monkeypatch.setattr(Namespace, "close", lambda self: closed.append(self))
    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(lambda _: fs._find("lake/f").namespace, range(2)))
    assert found[0] is found[1]
    assert len(made) == 2 and [each for each in made if each is not found[0]] == closed


def test_a_directory_as_a_mapping(fs: CommitlogFileSystem) -> None:
    """fsspec's mappings of names to bytes, which Zarr uses, work."""
    mapping = fs.get_mapper("lake/array")
    mapping["a/0"] = b"chunk"
    assert dict(mapping) == {"a/0": b"chunk"} and "a" not in mapping
    with pytest.raises(KeyError):
        mapping["a/1"]
    del mapping["a/0"]
    assert list(mapping) == []


def test_a_closed_instance_opens_again(fs: CommitlogFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    """It opens connections when it needs them."""
    fs.pipe("lake/f", b"1")
    closed: list[Namespace] = []
    monkeypatch.setattr(Namespace, "close", lambda self: closed.append(self))
    before = fs._find("lake").namespace
    fs.close()
    fs.close()
    assert closed == [before]
    assert fs.cat("lake/f") == b"1"


def _write(fs: CommitlogFileSystem, path: str) -> None:
    with fs.transaction:
        fs.pipe(path, fs.cat("lake/f"))


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_other_processes(tmp_path: Path, method: str) -> None:
    """A child process works with an instance that it got by pickle or fork, and so does its parent."""
    names = f"sqlite://{tmp_path / 'names.db'}"
    create_namespace("lake", store=str(tmp_path / "content"), metadata=names).close()
    fs = CommitlogFileSystem(names, skip_instance_cache=True)
    fs.pipe("lake/f", b"1")
    children = multiprocessing.get_context(method)
    process = children.Process(target=_write, args=(fs, "lake/g"))
    process.start()
    process.join(60)
    assert process.exitcode == 0
    assert fs.cat("lake/*") == {"lake/f": b"1", "lake/g": b"1"}
    fs.close()
