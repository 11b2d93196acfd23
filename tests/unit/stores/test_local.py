"""The local store: the contract, races between processes, crashes, links, and foreign programs."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
import textwrap
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from commitlog.commit import ConditionalStore
from commitlog.errors import (
    AccessDenied,
    AlreadyExists,
    BucketNotFound,
    Busy,
    CommitError,
    ConfigurationError,
    CorruptRecord,
    FormatTooNew,
    InvalidPath,
    NotFound,
    OutcomeUnknown,
    PreconditionFailed,
    RequestExpired,
    Unavailable,
)
from commitlog.stores.api import IfAbsent, IfMatch, ObjectStore, RequestExpiry, Staged
from commitlog.stores.local import index
from commitlog.stores.local.index import Index
from commitlog.stores.local.scratch import RESERVE
from commitlog.stores.local.store import LocalStore
from commitlog.stores.local.tree import DirectoryTree
from commitlog.stores.memory import MemoryStore
from commitlog.testing import ManualClock, check_object_store
from support.project import TESTS
from support.selection import examples


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory that does not exist yet."""
    return tmp_path / "lake"


@pytest.fixture
def store(root: Path) -> Iterator[LocalStore]:
    """A store in it that does not wait for the disk."""
    store = LocalStore(root, durable=False)
    yield store
    store.close()


def _private(root: Path) -> list[str]:
    return sorted(
        os.path.join(name, file)
        for name in ("staged", "writing")
        for file in os.listdir(root / ".commitlog" / name)
    )


def _paths(store: ObjectStore, prefix: str = "") -> list[str]:
    return [info.path for info in store.list(prefix)]


# -- the contract ----------------------------------------------------------------------------------


@pytest.mark.parametrize("durable", [True, False])
def test_keeps_the_contract(root: Path, durable: bool) -> None:
    """The local store keeps the whole contract, except that ``a`` and ``a/b`` cannot both be objects."""
    check_object_store(LocalStore(root, durable=durable), nested=False, keys=3)
    assert _private(root) == []


def test_keeps_the_contract_below_another_store(root: Path) -> None:
    """A directory inside the directory of another store is a store like any other."""
    LocalStore(root, durable=False).put("a", b"")
    store = LocalStore(f"file://{root}/part%20%3F%231", durable=False)
    check_object_store(store, nested=False)
    assert not (root / "part ?#1" / ".commitlog").exists()


_FILES = ("a-b", "a/1", "a/2/x", "a/2-", "a0", "b", "é/x", "\uffee", "\U0001f986/y")
_PREFIXES = ("", "a", "a/", "a/2", "a/2/", "é", "é/", "b", "c")
_MOVES = st.one_of(
    st.tuples(
        st.just("put"), st.sampled_from(_FILES), st.sampled_from(["plain", "absent", "match", "stale"])
    ),
    st.tuples(st.just("copy"), st.sampled_from(_FILES), st.sampled_from(_FILES)),
    st.tuples(
        st.just("publish"), st.sampled_from(_FILES), st.sampled_from(["plain", "absent", "match"])
    ),
    st.tuples(st.just("delete"), st.sampled_from(_FILES), st.sampled_from(["plain", "match", "stale"])),
    st.tuples(st.just("many"), st.sampled_from(_FILES), st.sampled_from(_FILES)),
    st.tuples(
        st.just("list"), st.sampled_from(_PREFIXES), st.sampled_from(["", *_FILES, "a/", "a/3", "z"])
    ),
    st.tuples(st.just("pages"), st.sampled_from(_PREFIXES), st.sampled_from(["", "/"])),
)


def _condition(store: ObjectStore, path: str, kind: str) -> IfAbsent | IfMatch | None:
    if kind == "absent":
        return IfAbsent()
    if kind == "match":
        info = store.begin_head(path)().info
        return IfMatch("none" if info is None else info.etag)
    return IfMatch("stale") if kind == "stale" else None


def _pages(
    store: ObjectStore, prefix: str, delimiter: str
) -> Iterator[tuple[list[str], tuple[str, ...]]]:
    token: str | None = None
    while True:
        page = store.list_page(prefix, delimiter=delimiter, limit=2, token=token)
        yield [info.path for info in page.objects], page.prefixes
        if (token := page.next_token) is None:
            return


def _play(store: ObjectStore, number: int, move: tuple[str, str, str]) -> object:
    """Make one move; return its visible result, without etags and times."""
    name, one, two = move
    data = f"{number}".encode()
    try:
        if name == "put":
            return store.put(one, data, condition=_condition(store, one, two)).path
        if name == "copy":
            return store.copy(one, two).path
        if name == "publish":
            staged = store.stage(one, data, metadata={"number": str(number)})
            return store.publish(staged, condition=_condition(store, one, two)).path
        if name == "delete":
            return store.delete(one, condition=_condition(store, one, two))  # type: ignore[arg-type]
        if name == "many":
            return dict(store.delete_many([one, two]))
        if name == "list":
            return [(info.path, info.size) for info in store.list(one, start_after=two)]
        return list(_pages(store, one, two))
    except CommitError as error:
        return type(error)


@settings(max_examples=examples(25, 60), suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(_MOVES, max_size=25))
def test_behaves_like_the_memory_store(moves: list[tuple[str, str, str]]) -> None:
    """On any sequence of calls both stores give the same results, lists, order and errors."""
    with tempfile.TemporaryDirectory() as directory:
        local, memory = LocalStore(directory, durable=False), MemoryStore()
        for number, move in enumerate(moves):
            assert _play(local, number, move) == _play(memory, number, move)
        for path in _paths(memory):
            one, two = local.get(path), memory.get(path)
            assert (one.data, dict(one.metadata).keys()) == (two.data, dict(two.metadata).keys())
        assert _paths(local) == _paths(memory)
        staged = [[info.path for info in store.list_staged()] for store in (local, memory)]
        assert staged[0] == staged[1]
        local.close()


# -- location --------------------------------------------------------------------------------------


def test_objects_are_plain_files(store: LocalStore, root: Path) -> None:
    """Any program can list and read the objects. Their mode follows the umask."""
    store.put("a/b", b"hello")
    assert (root / "a" / "b").read_bytes() == b"hello"
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE((root / "a" / "b").stat().st_mode) == 0o666 & ~umask


def test_a_check_finds_that_the_directory_is_missing(store: LocalStore, root: Path) -> None:
    """Reads find no objects, because the first write makes the directory. `check` raises an error."""
    with pytest.raises(BucketNotFound):
        store.check()
    assert _paths(store) == []
    store.put("a", b"")
    store.delete("a")
    store.check()
    shutil.rmtree(root)
    root.write_bytes(b"")
    with pytest.raises(BucketNotFound):
        store.check()


def test_reading_does_not_create_the_directory(store: LocalStore, root: Path) -> None:
    """A missing directory has no objects, and reads and deletes do not create it."""
    assert store.begin_head("a")().info is None
    with pytest.raises(NotFound):
        store.get("a")
    with pytest.raises(NotFound):
        store.copy("a", "b")
    assert _paths(store) == [] and list(store.list_staged()) == []
    store.delete("a")
    assert store.delete_many(["a"]) == {}
    with pytest.raises(PreconditionFailed):
        store.delete("a", condition=IfMatch("x"))
    store.abort(Staged(path="a", upload_id="0" * 32, size=0, nonce="n"))
    assert not root.exists()
    root.mkdir()
    (root / "a").write_bytes(b"x")
    assert store.get("a").data == b"x" and _paths(store) == ["a"]
    assert os.listdir(root) == ["a"]


def test_a_root_that_cannot_be_a_directory_is_refused(tmp_path: Path) -> None:
    """A URL of a file, or of a path through a file, is a configuration error."""
    (tmp_path / "file").write_bytes(b"")
    for url in (tmp_path / "file", tmp_path / "file" / "below", "memory://x"):
        with pytest.raises(ConfigurationError):
            LocalStore(url)
    store = LocalStore(tmp_path / "later")
    (tmp_path / "later").write_bytes(b"")
    with pytest.raises(CommitError):
        store.put("a", b"")
    with pytest.raises(CommitError):
        store.get("a")


def test_spellings_of_one_directory_are_one_store(root: Path, tmp_path: Path) -> None:
    """A link to the root, and dots in its path, lead to the same objects under the same keys."""
    root.mkdir()
    (tmp_path / "link").symlink_to(root)
    one, two = LocalStore(root), LocalStore(f"file://{tmp_path}/link/../link")
    etag = one.put("a", b"").etag
    assert two.head("a").etag == etag and two.key("a") == one.key("a") == str(root / "a")


def test_a_store_below_another_uses_the_lock_of_the_outer_store(store: LocalStore, root: Path) -> None:
    """An object has one etag and one lock, through whichever of the two directories it is written."""
    store.put("part/a", b"1")
    part = LocalStore(root / "part" / "deep", durable=False)
    etag = part.put("b", b"1").etag
    assert store.head("part/deep/b").etag == etag
    store.put("part/deep/b", b"2", condition=IfMatch(etag))
    with pytest.raises(PreconditionFailed):
        part.put("b", b"3", condition=IfMatch(etag))
    staged = part.stage("c", b"")
    assert [info.path for info in store.list_staged()] == ["part/deep/c"]
    assert [info.path for info in part.list_staged()] == ["c"]
    part.publish(staged)
    assert part.key("c") == store.key("part/deep/c")
    assert _paths(part) == ["b", "c"] and _paths(store) == ["part/a", "part/deep/b", "part/deep/c"]
    assert [info.path for info in part.list_page(start_after="b").objects] == ["c"]
    part.delete_many(["b", "c"])
    assert (root / "part" / "deep").is_dir(), "the directory that was opened is not removed"
    assert not (root / "part" / "deep" / ".commitlog").exists()


def test_a_root_that_was_removed_is_made_again(store: LocalStore, root: Path) -> None:
    """An open store goes on working after another program removed its whole directory."""
    store.put("a", b"1")
    shutil.rmtree(root)
    assert _paths(store) == []
    store.put("a", b"2", condition=IfAbsent())
    assert store.get("a").data == b"2"
    assert LocalStore(root).head("a").etag == store.head("a").etag


def test_a_private_directory_that_is_a_link_is_refused(
    store: LocalStore, root: Path, tmp_path: Path
) -> None:
    """The link cannot lead the store's own files elsewhere."""
    root.mkdir()
    (tmp_path / "elsewhere").mkdir()
    (root / ".commitlog").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InvalidPath):
        store.put("a", b"")
    assert os.listdir(tmp_path / "elsewhere") == []


@pytest.mark.parametrize("opened", [True, False])
@pytest.mark.parametrize("name", ["", "staged", "writing", "index.sqlite", "index.sqlite-wal"])
def test_no_private_file_is_used_through_a_link(
    root: Path, tmp_path: Path, name: str, opened: bool
) -> None:
    """Who may write in one directory cannot make others remove or read the files of another one."""
    victim, store = LocalStore(tmp_path / "victim"), LocalStore(root)
    kept = victim.stage("kept", b"rows")
    (tmp_path / "victim/.commitlog/writing" / ("0" * 32)).write_bytes(b"half")
    staged = store.stage("a", b"x")
    store.close()
    store = LocalStore(root)
    if opened:
        store.put("b", b"")
    there, place = tmp_path / "victim/.commitlog" / name, root / ".commitlog" / name
    before = {path: path.read_bytes() for path in there.parent.rglob("*") if path.is_file()}
    if place.is_dir():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)
    place.symlink_to(there)
    calls: list[Callable[[], object]] = [
        lambda: list(store.list_staged()),
        lambda: store.put("c", b""),
        lambda: store.publish(staged),
        lambda: store.publish(kept),
        lambda: store.abort(kept),
        lambda: store.delete("b"),
        lambda: LocalStore(root).stage("d", b""),
    ]
    for call in calls:
        with suppress(InvalidPath, NotFound):
            call()
    left = {path: path.read_bytes() for path in there.parent.rglob("*") if path.is_file()}
    assert {path for path in left if path.suffix == ""} == {p for p in before if p.suffix == ""}
    assert victim.publish(kept).path == "kept" and victim.get("kept").nonce == kept.nonce


# -- paths -----------------------------------------------------------------------------------------


def test_its_own_directory_is_hidden_and_reserved(store: LocalStore, root: Path) -> None:
    """Nothing in .commitlog can be listed, read or written, at any depth."""
    store.put("a/b", b"")
    for path in (".commitlog/index.sqlite", ".commitlog", "a/.commitlog/x"):
        for call in (store.head, store.get, store.delete, store.key, lambda p: store.put(p, b"")):
            with pytest.raises(InvalidPath, match="reserved"):
                call(path)
    (root / "a" / ".commitlog").mkdir()
    (root / "a" / ".commitlog" / "x").write_bytes(b"")
    assert _paths(store) == ["a/b"] and _paths(store, ".commitlog/") == []
    assert store.list_page(delimiter="/").prefixes == ("a/",)


def test_a_directory_cannot_be_an_object_as_well(store: LocalStore) -> None:
    """Writing ``a`` next to ``a/b`` is refused with the reason. Nothing changes and nothing is left."""
    before = [store.stage(path, b"2") for path in ("a", "a/b/c", "a/b/c/d")]
    store.put("a/b", b"1")
    for staged in before:
        path = staged.path
        calls: tuple[Callable[[], object], ...] = (
            lambda path=path: store.put(path, b"2"),
            lambda path=path: store.put(path, b"2", condition=IfAbsent()),
            lambda path=path: store.copy("a/b", path),
            lambda path=path: store.stage(path, b"2"),
            lambda staged=staged: store.publish(staged),
        )
        for call in calls:
            with pytest.raises(InvalidPath, match="cannot hold both"):
                call()
        store.abort(staged)
        assert store.begin_head(path)().info is None
        store.delete(path)
    assert [(info.path, info.size) for info in store.list()] == [("a/b", 1)]


def test_a_name_that_no_file_can_have_is_refused(store: LocalStore) -> None:
    """A segment has at most 255 bytes of UTF-8."""
    store.put("é" * 127, b"")
    with pytest.raises(InvalidPath, match="255"):
        store.put("é" * 128, b"")
    with pytest.raises(InvalidPath, match="255"):
        store.get("a/" + "x" * 256)


def test_links_are_never_followed(store: LocalStore, root: Path, tmp_path: Path) -> None:
    """No call reads or writes through a link in any part of a path below the root."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    paths = ("file", "dangling", "away", "away/secret", "away/new/x", "dir/away/secret", "loop/x")
    before = [store.stage(path, b"2") for path in paths]
    store.put("dir/a", b"1")
    (root / "file").symlink_to(outside / "secret")
    (root / "dangling").symlink_to(outside / "new")
    (root / "away").symlink_to(outside)
    (root / "dir" / "away").symlink_to(outside)
    (root / "loop").symlink_to("loop")
    for staged in before:
        path = staged.path
        calls: tuple[Callable[[], object], ...] = (
            lambda path=path: store.head(path),
            lambda path=path: store.get(path),
            lambda path=path: store.put(path, b"2"),
            lambda path=path: store.put(path, b"2", condition=IfAbsent()),
            lambda path=path: store.copy("dir/a", path),
            lambda path=path: store.copy(path, "copied"),
            lambda path=path: store.delete(path),
            lambda path=path: store.stage(path, b"2"),
            lambda staged=staged: store.publish(staged),
        )
        for call in calls:
            with pytest.raises(InvalidPath, match="link"):
                call()
        assert isinstance(store.delete_many([path])[path], InvalidPath)
        store.abort(staged)
    assert _paths(store) == ["dir/a"] and _paths(store, "away/") == []
    assert store.list_page(delimiter="/").prefixes == ("dir/",)
    assert os.listdir(outside) == ["secret"]
    assert (outside / "secret").read_bytes() == b"secret"


def test_only_plain_files_are_listed(store: LocalStore, root: Path) -> None:
    """Pipes, empty directories, and names that no path can have are not objects."""
    store.put("a", b"")
    os.mkfifo(root / "fifo")
    (root / "empty" / "er").mkdir(parents=True)
    (root / "new\nline").write_bytes(b"")
    (Path(os.fsdecode(bytes(root) + b"/\xff"))).write_bytes(b"")
    assert _paths(store) == ["a"]
    assert store.list_page(delimiter="/").prefixes == ()
    assert store.begin_head("fifo")().info is None
    with pytest.raises(InvalidPath):
        store.put("fifo", b"")


def test_an_upload_id_cannot_be_a_path(store: LocalStore, root: Path) -> None:
    """A record with a hostile upload id publishes and removes nothing."""
    store.put("a", b"1")
    staged = store.stage("b", b"2")
    for upload_id in ("../../a", "/etc/passwd", "", staged.upload_id + "/.", "0" * 32):
        hostile = Staged(path="b", upload_id=upload_id, size=0, nonce="n")
        with pytest.raises(NotFound):
            store.publish(hostile)
        store.abort(hostile)
    other = Staged(path="elsewhere", upload_id=staged.upload_id, size=1, nonce=staged.nonce)
    with pytest.raises(NotFound):
        store.publish(other)
    store.publish(staged)
    assert _paths(store) == ["a", "b"]


# -- foreign programs ------------------------------------------------------------------------------


def test_a_foreign_file_is_an_object_with_a_weak_etag(store: LocalStore, root: Path) -> None:
    """A file of another program can be read, listed, updated under a condition, copied and deleted."""
    store.put("ours", b"")
    (root / "theirs").write_bytes(b"1")
    etag = store.head("theirs").etag
    assert etag.startswith("weak-")
    assert [info.etag for info in store.list("theirs")] == [etag]
    with pytest.raises(AlreadyExists):
        store.put("theirs", b"2", condition=IfAbsent())
    with pytest.raises(PreconditionFailed):
        store.put("theirs", b"2", condition=IfMatch("weak-0"))
    store.copy("theirs", "copy")
    assert store.get("copy").data == b"1"
    store.put("theirs", b"2", condition=IfMatch(etag))
    assert not store.head("theirs").etag.startswith("weak-")
    (root / "theirs too").write_bytes(b"1")
    store.delete("theirs too", condition=IfMatch(store.head("theirs too").etag))
    assert _paths(store) == ["copy", "ours", "theirs"]


def test_a_foreign_file_that_appears_during_a_creation_is_kept(
    store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its program takes no lock."""
    store.put("source", b"ours")
    staged = store.stage("c", b"ours")
    real = os.link

    def link(source: str, target: str, **options: Any) -> None:
        (root / target).write_bytes(b"theirs")
        real(source, target, **options)

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(AlreadyExists):
        store.put("a", b"ours", condition=IfAbsent())
    with pytest.raises(AlreadyExists):
        store.copy("source", "b", condition=IfAbsent())
    with pytest.raises(AlreadyExists):
        store.publish(staged, condition=IfAbsent())
    assert [store.get(path).data for path in "abc"] == 3 * [b"theirs"]
    assert [upload.path for upload in store.list_staged()] == ["c"]


@pytest.mark.parametrize("how", ["replaced", "rewritten", "touched"])
def test_a_foreign_change_changes_the_etag(store: LocalStore, root: Path, how: str) -> None:
    """After another program replaced or rewrote an object, the old etag no longer matches."""
    etag = store.put("a", b"ours", metadata={"kind": "ours"}).etag
    if how == "replaced":
        (root / "new").write_bytes(b"them")
        os.replace(root / "new", root / "a")
    elif how == "rewritten":
        (root / "a").write_bytes(b"theirs")
    else:
        os.utime(root / "a", ns=(1, 1))
    found = store.head("a")
    assert found.etag != etag and not found.metadata
    with pytest.raises(PreconditionFailed):
        store.put("a", b"lost", condition=IfMatch(etag))
    with pytest.raises(PreconditionFailed):
        store.delete("a", condition=IfMatch(etag))
    store.put("a", b"won", condition=IfMatch(found.etag))


def test_a_reused_inode_number_does_not_transfer_etag_or_metadata(store: LocalStore, root: Path) -> None:
    """The row of a removed file does not apply to a foreign file that gets the same inode number."""
    etag = store.put("a", b"1", metadata={"kind": "ours"}).etag
    with sqlite3.connect(root / ".commitlog" / "index.sqlite") as index:
        (root / "b").write_bytes(b"1")
        index.execute("UPDATE objects SET inode = ?", ((root / "b").stat().st_ino,))
    index.close()
    for path in ("a", "b"):
        info = store.head(path)
        assert info.etag.startswith("weak-") and info.etag != etag and not info.metadata


# -- copies of the directory -----------------------------------------------------------------------


def _copied(root: Path) -> Path:
    """Return a copy of the directory, in which files have other inode numbers."""
    return Path(shutil.copytree(root, root.with_name("copy")))


def test_an_upload_in_a_copy_of_the_directory_is_the_same_upload(store: LocalStore, root: Path) -> None:
    """It can be published in each of them, with its metadata; and again in a copy of the copy."""
    staged = store.stage("a", b"1", metadata={"kind": "ours"})
    (root / "in").write_bytes(b"22")
    [moved] = store.stage_files({"in": "b"}, key="job")
    store.close()
    copy = _copied(root)
    with closing(LocalStore(copy)) as first:
        first.put("c", b"3")
    again = Path(shutil.copytree(copy, root.with_name("again")))
    for place in (root, copy, again):
        with closing(LocalStore(place)) as opened:
            for upload, metadata in ((staged, {"kind": "ours"}), (moved, {})):
                opened.publish(upload)
                found = opened.head(upload.path)
                assert found.nonce == upload.nonce and not found.etag.startswith("weak-")
                assert found.metadata.items() >= metadata.items()
            assert not list(opened.list_staged())


def test_a_body_of_another_size_is_not_the_upload_of_a_copy(store: LocalStore, root: Path) -> None:
    """Such as one that was being written, or that the copying has cut."""
    staged = store.stage("a", b"123")
    store.close()
    copy = _copied(root)
    (copy / ".commitlog" / "staged" / staged.upload_id).write_bytes(b"1")
    with closing(LocalStore(copy)) as opened, pytest.raises(NotFound):
        opened.publish(staged)


def test_a_file_of_a_copy_has_no_row_of_another_file(store: LocalStore, root: Path) -> None:
    """It may have the inode number, the size and the time of a file in the original."""
    etag = store.put("a", b"1", metadata={"of": "a"}).etag
    store.put("b", b"2", metadata={"of": "b"})
    store.close()
    copy = _copied(root)
    found = (copy / "b").stat()
    with closing(sqlite3.connect(copy / ".commitlog" / "index.sqlite")) as rows:
        rows.execute("DELETE FROM objects WHERE token != ?", (etag,))
        rows.execute("UPDATE objects SET inode = ?, mtime_ns = ?", (found.st_ino, found.st_mtime_ns))
        rows.commit()
    with closing(LocalStore(copy)) as opened:
        for _ in range(2):  # before and after the first change
            info = opened.head("b")
            assert info.etag.startswith("weak-") and not info.metadata
            opened.put("c", b"3", metadata={"of": "c"})
        assert opened.head("c").metadata == {"of": "c"}
    with closing(LocalStore(root)) as opened:
        assert opened.head("a").etag == etag


# -- creation and removal of directories -----------------------------------------------------------


def test_a_delete_removes_the_directories_that_it_leaves_empty(store: LocalStore, root: Path) -> None:
    """Empty directories are removed with their last object, up to the root. Others stay."""
    store.put("a/b/c/d", b"")
    store.put("a/x", b"")
    store.delete("a/b/c/d")
    assert os.listdir(root / "a") == ["x"]
    store.delete_many(["a/x"])
    assert os.listdir(root) == [".commitlog"]


def test_concurrent_creates_and_deletes_in_one_directory_succeed(root: Path) -> None:
    """A directory that is removed during a create is made again."""
    outer, inner = LocalStore(root, durable=False), LocalStore(root / "d", durable=False)
    outer.put("first", b"")
    inner.put("first", b"")

    def churn(number: int) -> None:
        one, path = ((outer, "d/deep/er"), (inner, "deep/er"))[number % 2]
        for _ in range(60):
            one.put(f"{path}/{number}", b"x", condition=IfAbsent())
            one.delete(f"{path}/{number}")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(churn, range(4)))
    assert _paths(outer) == ["d/first", "first"]
    assert os.listdir(root / "d") == ["first"]


# -- many processes --------------------------------------------------------------------------------

_RACE = """
import sys
from commitlog.errors import CommitError
from commitlog.stores.api import IfAbsent, IfMatch
from commitlog.stores.local.store import LocalStore
root, me, keys, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
store = LocalStore(root, durable=False)
print("ready", flush=True)
sys.stdin.readline()
for key in range(keys):
    try:
        store.put(f"race/{key}", me.encode(), condition=IfAbsent())
        print(key)
    except FileExistsError:
        pass
done = 0
while done < rounds:
    seen = store.get("counter")
    try:
        store.put("counter", b"%d" % (int(seen.data) + 1), condition=IfMatch(seen.etag))
        done += 1
    except CommitError as error:
        assert type(error).__name__ == "PreconditionFailed", error
"""


def test_racing_processes_exclude_each_other(store: LocalStore, root: Path) -> None:
    """Four processes race to create 100 objects, one winner each, and lose no increment of a counter."""
    store.put("counter", b"0")
    keys, rounds = 100, 25
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", _RACE, str(root), str(me), str(keys), str(rounds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for me in range(4)
    ]
    for racer in racers:
        assert racer.stdout is not None and racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("\n")
        racer.stdin.flush()
    won: dict[str, list[str]] = {}
    for me, racer in enumerate(racers):
        output, _ = racer.communicate(timeout=60)
        assert racer.returncode == 0
        for key in output.split():
            won.setdefault(key, []).append(str(me))
    assert len(won) == keys
    for key, winners in won.items():
        assert [store.get(f"race/{key}").data.decode()] == winners
    assert store.get("counter").data == b"%d" % (4 * rounds)


_FORK = """
import os, sys, threading
from commitlog.stores.local.store import LocalStore
store = LocalStore(sys.argv[1], durable=False)
store.put("parent", b"1")
list(store.list())
children = []
for number in range(3):
    pid = os.fork()
    if not pid:
        store.put(f"child-{number}", store.get("parent").data)
        os._exit(0)
    children.append(pid)
store.put("parent", b"2")
assert all(os.waitpid(pid, 0)[1] == 0 for pid in children)
store.put("parent", b"3")
assert [info.path for info in store.list()] == ["child-0", "child-1", "child-2", "parent"]
store.close()
"""


def test_a_store_goes_on_working_in_a_forked_child(root: Path) -> None:
    """Parent and children share no connection, and each of them can write."""
    subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", _FORK, str(root)], check=True, timeout=60
    )
    with sqlite3.connect(root / ".commitlog" / "index.sqlite") as index:
        assert index.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    index.close()


_FORK_AND_CLOSE = """
import os, subprocess, sys
from commitlog.stores.local.store import LocalStore
store = LocalStore(sys.argv[1], durable=False)
store.put("a", b"1")
ready, parent = os.pipe()
child, closed = os.pipe()
pid = os.fork()
if not pid:
    store.put("b", b"1")
    os.write(parent, b"x")
    os.read(child, 1)
    etag = store.put("c", b"1", metadata={"kind": "child"}).etag
    look = "from commitlog.stores.local.store import LocalStore; import sys;"
    look += "seen = LocalStore(sys.argv[1]).head('c'); print(seen.etag, seen.metadata['kind'])"
    seen = subprocess.check_output([sys.executable, "-c", look, sys.argv[1]], text=True)
    os._exit(seen.split() != [etag, "child"])
os.read(ready, 1)
store.close()
os.write(closed, b"x")
assert os.waitpid(pid, 0)[1] == 0
"""


def test_closing_the_parent_keeps_the_index_of_a_forked_child(root: Path) -> None:
    """When the parent closes the store, the child still uses the index, so its WAL file must stay."""
    subprocess.run([sys.executable, "-c", _FORK_AND_CLOSE, str(root)], check=True, timeout=60)


def test_a_fork_with_other_threads_leaves_both_sides_working(root: Path) -> None:
    """A fork waits for the threads that hold a lock. Neither they nor the child wait forever."""
    store = LocalStore(root, durable=False)
    done = threading.Event()
    wrote = threading.Event()

    def write() -> None:
        while not done.is_set():
            store.put(f"thread-{threading.get_ident()}", b"x")
            store.head("a")
            wrote.set()

    store.put("a", b"1")
    threads = [threading.Thread(target=write) for _ in range(2)]
    for thread in threads:
        thread.start()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a fork in a process with threads
        for number in range(5):
            pid = os.fork()
            if not pid:
                try:
                    store.put(f"child-{number}", b"1")
                finally:
                    os._exit(store.head(f"child-{number}").size != 1)
            assert os.waitpid(pid, 0)[1] == 0
    wrote.clear()
    assert wrote.wait(30)
    done.set()
    for thread in threads:
        thread.join()
    assert [info.path for info in store.list("child-")] == [f"child-{number}" for number in range(5)]
    store.close()


def test_a_read_that_is_overtaken_by_a_replacement_is_repeated(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An object that is replaced after its file was opened and before its row is read is read again."""
    store.put("a", b"old", metadata={"kind": "old"})
    real, results = os.fstat, []

    def overtaken(fd: int) -> os.stat_result:
        found = real(fd)
        monkeypatch.setattr(os, "fstat", real)
        results.append(store.put("a", b"newer", metadata={"kind": "new"}))
        return found

    monkeypatch.setattr(os, "fstat", overtaken)
    found = store.get("a")
    assert (found.data, found.etag, dict(found.metadata)) == (b"newer", results[0].etag, {"kind": "new"})


def test_a_listing_that_is_overtaken_by_a_replacement_is_repeated(
    store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An object that is replaced between the reads of its file and of its row is read again."""
    store.put("a", b"old")
    (root / "foreign").write_bytes(b"1")
    real, results = Index.read, []

    def overtaken(self: Index, work: Callable[[Any], Any]) -> Any:
        if not results:
            results.append(store.put("a", b"newer"))
        return real(self, work)

    monkeypatch.setattr(Index, "read", overtaken)
    listed = {info.path: (info.size, info.etag) for info in store.list()}
    assert listed == {"a": (5, results[0].etag), "foreign": (1, store.head("foreign").etag)}


@pytest.mark.parametrize("delimiter", ["", "/"])
def test_a_listing_reads_each_directory_once(
    store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch, delimiter: str
) -> None:
    """This holds for any number of pages. The index is read once per page, also for foreign files."""
    store.put("d/ours", b"")
    for number in range(2000):
        (root / "d" / f"{number:04}").touch()
    asked: list[str] = []
    scandir, read = os.scandir, Index.read

    def counted(fd: int) -> Any:
        asked.append("scandir")
        return scandir(fd)

    def counted_read(self: Index, work: Callable[[Any], Any]) -> Any:
        asked.append("read")
        return read(self, work)

    monkeypatch.setattr(os, "scandir", counted)
    monkeypatch.setattr(Index, "read", counted_read)
    pages = list(store.list_pages("d/", delimiter=delimiter))
    assert sum(len(page.objects) for page in pages) == 2001
    assert len(pages) > 2
    assert asked.count("scandir") == 1
    assert asked.count("read") == len(pages)


# -- crashes ---------------------------------------------------------------------------------------


@pytest.mark.all
def test_a_process_killed_at_any_point_leaves_all_or_nothing(tmp_path: Path) -> None:
    """SIGKILL at each file operation of each mutation leaves a whole object or none, and no leaks."""
    memory = Path("/dev/shm")  # A kill needs no real disk, and fsync is fast there.
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as directory:
        done = subprocess.run(
            [sys.executable, str(TESTS / "support/local_crashes.py"), directory],
            capture_output=True,
            text=True,
            timeout=250,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    points = dict(line.split() for line in done.stdout.splitlines())
    assert len(points) == 8 and all(int(count) >= 6 for count in points.values()), points


_WRITER = """
import sys
from commitlog.stores.local.store import LocalStore
store = LocalStore(sys.argv[1], durable=False)
for number in range(100_000):
    digit = b"%d" % (number % 10)
    store.put(f"dir-{number % 3}/object", digit * 400_000, metadata={"digit": digit.decode()})
    staged = store.stage(f"dir-{number % 3}/staged", digit * 100_000, metadata={"digit": digit.decode()})
    store.publish(staged)
    store.delete(f"dir-{(number + 1) % 3}/staged")
    print(number, flush=True)
"""


def test_a_writer_killed_at_random_leaves_no_partial_object(root: Path) -> None:
    """During a write and after a kill, readers see whole objects, and no lock is left."""
    for _ in range(4):
        writer = subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(root)], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        for _ in range(5):
            assert writer.stdout.readline()
        reader = LocalStore(root)
        for _ in range(20):
            _assert_whole(reader)
        writer.send_signal(signal.SIGKILL)
        writer.communicate()
        _assert_whole(reader)
        reader.put("dir-0/object", b"0" * 400_000, metadata={"digit": "0"})
        for upload in reader.list_staged():
            reader.abort(upload)
        assert _private(root) == []
        reader.close()


def _assert_whole(store: LocalStore) -> None:
    for info in store.list():
        try:
            found = store.get(info.path)
        except NotFound:
            continue
        digit = found.metadata["digit"].encode()
        assert found.data == digit * len(found.data) and len(found.data) in (400_000, 100_000)


def test_bodies_of_dead_processes_are_swept_and_those_of_live_ones_kept(
    store: LocalStore, root: Path
) -> None:
    """The next store that writes removes a body that no live process holds. Others stay."""
    store.put("a", b"")
    orphan = root / ".commitlog" / "writing" / ("0" * 32)
    orphan.write_bytes(b"half")

    class Body:
        def read(self, size: int) -> bytes:
            LocalStore(root, durable=False).put("b", b"")
            assert not orphan.exists()
            assert len(_private(root)) == 1
            return b""

    store.put("c", Body())  # type: ignore[arg-type]
    assert _paths(store) == ["a", "b", "c"]
    assert _private(root) == []


def test_staged_bodies_without_a_record_are_swept(store: LocalStore, root: Path) -> None:
    """After power loss, a body or a record may be left alone. The next writer removes both."""
    kept, lost = store.stage("kept", b"1"), store.stage("lost", b"2")
    (root / ".commitlog" / "staged" / lost.upload_id).unlink()
    (root / ".commitlog" / "staged" / ("0" * 32)).write_bytes(b"")
    assert [info.path for info in LocalStore(root).list_staged()] == ["kept"]
    assert len(os.listdir(root / ".commitlog" / "staged")) == 2
    LocalStore(root).put("a", b"")
    assert os.listdir(root / ".commitlog" / "staged") == [kept.upload_id]
    with pytest.raises(NotFound):
        store.publish(lost)


def test_an_interrupted_publish_can_be_repeated(store: LocalStore, root: Path) -> None:
    """After a crash between linking the body and dropping the upload, publishing again completes it."""
    staged = store.stage("a", b"x")
    os.link(root / ".commitlog" / "staged" / staged.upload_id, root / "a")
    with pytest.raises(AlreadyExists):
        store.publish(staged, condition=IfAbsent())
    etag = store.publish(staged).etag
    assert (store.head("a").etag, store.head("a").nonce) == (etag, staged.nonce)
    assert _private(root) == [] and not list(store.list_staged())


def test_removing_a_second_name_of_an_object_keeps_the_object(
    store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hidden name that is left after publishing is swept. The object keeps its etag and metadata."""
    staged = store.stage("a", b"x")
    with monkeypatch.context() as patch:
        _failing(patch, "unlink", errno.EIO)
        etag = store.publish(staged, condition=IfAbsent()).etag
    assert len(_private(root)) == 1
    assert list(store.list_staged()) == []
    LocalStore(root).put("b", b"")
    assert _private(root) == []
    assert (store.head("a").etag, store.head("a").nonce) == (etag, staged.nonce)


def test_finishing_an_aborted_upload_fails(store: LocalStore, root: Path) -> None:
    """It raises `NotFound`, and the upload stays removed."""
    with store.begin_stage("a") as writer:
        writer.write(b"x")
        for upload in store.list_staged():
            store.abort(upload)
        with pytest.raises(NotFound):
            writer.finish()
    assert _private(root) == [] and not list(store.list_staged())


def test_an_upload_with_a_failed_write_is_not_finished(
    store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk was full for a moment, and the caller goes on: bytes are missing. It can be aborted."""

    def full(target: Any, block: memoryview) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    writer = store.begin_stage("a")
    writer.write(b"one")
    with monkeypatch.context() as patched:
        patched.setattr("commitlog.stores.local.scratch.write_block", full)
        with pytest.raises(CommitError, match="No space left"):
            writer.write(b"two")
    for proceed in (lambda: writer.write(b"three"), writer.finish):
        with pytest.raises(ConfigurationError, match=r"a write has failed \(.*No space left"):
            proceed()
    writer.abort()
    assert _private(root) == [] and not list(store.list_staged())


def test_a_failing_body_leaves_nothing(store: LocalStore, root: Path) -> None:
    """An error of the caller's file is raised unchanged, and no file is left."""

    class Body:
        def read(self, size: int) -> bytes:
            raise OSError(errno.EIO, "the caller's own")

    with pytest.raises(OSError, match="the caller's own") as caught:
        store.put("a", Body())  # type: ignore[arg-type]
    assert not isinstance(caught.value, CommitError)
    assert _paths(store) == [] and _private(root) == []


# -- order of syncs --------------------------------------------------------------------------------


class _Trace:
    """Records the calls that decide what survives power loss, with the real paths of their files."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[str, str]] = []
        for name in ("fsync", "link", "replace", "unlink", "mkdir"):
            monkeypatch.setattr(os, name, self._traced(name, getattr(os, name)))

    def _traced(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            result = real(*args, **options)
            if name == "fsync":
                self.calls.append((name, os.readlink(f"/proc/self/fd/{args[0]}")))
            else:
                directory = options.get("dst_dir_fd", options.get("dir_fd"))
                target = str(args[-1])
                parent = "" if directory is None else os.readlink(f"/proc/self/fd/{directory}") + "/"
                self.calls.append((name, parent + target))
            return result

        return call

    def first(self, name: str, path: str) -> int:
        """Return the position of the first such call."""
        return self.calls.index((name, path))


def _last(calls: list[tuple[str, str]], call: tuple[str, str]) -> int:
    return max(number for number, found in enumerate(calls) if found == call)


@pytest.mark.parametrize("condition", [None, IfAbsent()])
def test_a_put_syncs_the_body_before_its_name_and_the_name_before_it_returns(
    root: Path, monkeypatch: pytest.MonkeyPatch, condition: IfAbsent | None
) -> None:
    """The order is: body, its new directories, name. So power loss leaves all or nothing."""
    store = LocalStore(root)
    store.put("first", b"")
    trace = _Trace(monkeypatch)
    store.put("a/b/c", b"x", condition=condition)
    (body,) = [path for name, path in trace.calls if name == "fsync" and "/writing/" in path]
    named = trace.first("replace" if condition is None else "link", f"{root}/a/b/c")
    assert trace.first("fsync", body) < named
    for made, parent in ((f"{root}/a", f"{root}"), (f"{root}/a/b", f"{root}/a")):
        assert trace.first("mkdir", made) < trace.first("fsync", parent) < named
    assert named < _last(trace.calls, ("fsync", f"{root}/a/b"))


def test_an_upload_is_durable_when_it_is_finished_and_when_it_is_published(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When `stage` returns, body, row and hidden name are on disk, so a job may log the upload."""
    store = LocalStore(root)
    store.put("a/first", b"")
    trace = _Trace(monkeypatch)
    staged = store.stage("a/b", b"x")
    private = f"{root}/.commitlog/staged"
    assert trace.first("fsync", f"{private}/{staged.upload_id}") < trace.first("fsync", private)
    trace.calls.clear()
    store.publish(staged)
    assert trace.first("replace", f"{root}/a/b") < trace.first("fsync", f"{root}/a")
    trace.calls.clear()
    store.delete("a/b")
    assert trace.first("unlink", f"{root}/a/b") < trace.first("fsync", f"{root}/a")
    trace.calls.clear()
    store.delete("a/first")
    assert trace.first("unlink", f"{root}/a/first") < trace.first("fsync", f"{root}")


def test_rows_are_on_disk_before_their_file_is_visible(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row is committed before the body gets its name, so no object ever lacks its metadata."""
    store = LocalStore(root)
    store.put("first", b"")
    rows: list[int] = []
    real = os.replace

    def look_and_replace(source: str, target: str, **options: Any) -> None:
        with sqlite3.connect(f"file:{root}/.commitlog/index.sqlite?mode=ro", uri=True) as index:
            rows.extend(row for (row,) in index.execute("SELECT inode FROM objects"))
        index.close()
        assert os.stat(source, dir_fd=options["src_dir_fd"]).st_ino in rows
        real(source, target, **options)

    monkeypatch.setattr(os, "replace", look_and_replace)
    store.put("a", b"x", metadata={"kind": "x"})
    assert rows


def test_threads_that_put_at_the_same_time_share_a_wait_for_the_rows(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes while a transaction is on its way to the disk is one transaction after it."""
    batches: list[int] = []
    begun, go_on = threading.Event(), threading.Event()
    record = Index._record

    def slow(index: Index, rows: Any) -> list[None]:
        batches.append(len(rows))
        if len(batches) == 1:
            begun.set()
            assert go_on.wait(30)
        return record(index, rows)

    monkeypatch.setattr(Index, "_record", slow)
    store = LocalStore(root)
    with ThreadPoolExecutor(5) as pool:
        puts = [pool.submit(store.put, "a", b"0", condition=IfAbsent())]
        assert begun.wait(30)
        puts += [pool.submit(store.put, name, b"0", condition=IfAbsent()) for name in "abcd"]
        while store._base().index._rows.waiting < 4:
            threading.Event().wait(0.001)
        go_on.set()
        refused = [name for name, put in zip("aabcd", puts, strict=True) if put.exception()]
    assert batches == [1, 4]
    assert refused == ["a"]
    etags = {store.head(name).etag for name in "abcd"}
    assert len(etags) == 4
    assert not any(etag.startswith("weak-") for etag in etags)


def test_a_store_that_is_not_durable_never_syncs(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With durable=False no file is synced."""
    trace = _Trace(monkeypatch)
    store.put("a/b", b"")
    store.publish(store.stage("c/d", b""))
    store.delete("a/b")
    assert "fsync" not in {name for name, _ in trace.calls}


# -- read-only users -------------------------------------------------------------------------------


def test_a_read_only_user_gets_true_etags_or_an_error() -> None:
    """The etags are those that the writer got. If the index cannot be read, the error says so."""
    program = """
        import os, sys
        from commitlog.errors import AccessDenied
        from commitlog.stores.local.store import LocalStore
        if os.geteuid() == 0:
            os.setuid(65534)  # Permissions are nothing to root.
        store = LocalStore(sys.argv[1])
        for look in (lambda: store.get("a"), lambda: store.head("a"), lambda: list(store.list())[0]):
            try:
                print(look().etag)
            except AccessDenied as error:
                print(error)
        """

    def seen() -> list[str]:
        command = [sys.executable, "-c", textwrap.dedent(program), directory]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()

    # In a directory that any user can enter: TMPDIR may be in a directory of root.
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        os.chmod(directory, 0o755)
        own = Path(directory, ".commitlog")
        mask = os.umask(0o022)  # otherwise other users may not read it on some machines
        try:
            store = LocalStore(directory, durable=False)
            etag = store.put("a", b"1").etag
        finally:
            os.umask(mask)
        assert seen() == [etag] * 3, "while a writer has the index open"
        store.close()
        try:
            for path in (own, *own.iterdir()):
                path.chmod(path.stat().st_mode & ~0o222)
            assert seen() == [etag] * 3, "when nobody has"
            (own / "index.sqlite-wal").touch()
            (own / "index.sqlite-wal").chmod(0)
            refused = seen()
        finally:
            own.chmod(0o755)
    assert len(refused) == 3
    assert all("it has the etags of the files" in line for line in refused), refused


# -- errors ----------------------------------------------------------------------------------------


def _failing(
    monkeypatch: pytest.MonkeyPatch, name: str, number: int, when: Callable[..., bool] = lambda *_: True
) -> None:
    real = getattr(os, name)

    def fail(*args: Any, **options: Any) -> Any:
        if when(*args):
            raise OSError(number, os.strerror(number))
        return real(*args, **options)

    monkeypatch.setattr(os, name, fail)


@pytest.mark.parametrize(
    ("name", "number", "error"),
    [
        ("write", errno.ENOSPC, Unavailable),
        ("fsync", errno.EIO, Unavailable),
        ("replace", errno.EACCES, AccessDenied),
        ("replace", errno.EROFS, AccessDenied),
        ("replace", errno.EXDEV, InvalidPath),
        ("replace", errno.ENOSPC, Unavailable),
        ("mkdir", errno.EDQUOT, Unavailable),
        ("mkdir", errno.ENAMETOOLONG, InvalidPath),
    ],
)
def test_a_failure_before_the_link_changes_nothing(
    root: Path, monkeypatch: pytest.MonkeyPatch, name: str, number: int, error: type[CommitError]
) -> None:
    """A full disk, a missing permission and similar failures are typed errors and leave no files."""
    store = LocalStore(root)
    etag = store.put("old/a", b"1").etag
    with monkeypatch.context() as patch:
        _failing(patch, name, number)
        with pytest.raises(error):
            store.put("old/a" if name != "mkdir" else "new/a", b"2")
    assert store.head("old/a").etag == etag
    assert _paths(store) == ["old/a"] and _private(root) == []


@pytest.fixture
def reserve(store: LocalStore, root: Path) -> Path:
    """What the store holds back for a full disk."""
    store.put("old/a", b"1")
    return root / ".commitlog" / "reserve"


def _fill(patch: pytest.MonkeyPatch, reserve: Path, most: int = 1 << 30) -> None:
    """Fill the disk: without the reserve, there is space for writes of up to `most` bytes."""
    _failing(patch, "write", errno.ENOSPC, lambda _, data: reserve.exists() or len(data) > most)


def test_space_is_held_back_while_the_disk_is_not_full(store: LocalStore, reserve: Path) -> None:
    """It is real space, and stays when there is no need for it."""
    assert reserve.stat().st_size == RESERVE <= reserve.stat().st_blocks * 512
    assert store.make_room() is None and reserve.exists()
    assert {file.name for file in reserve.parent.iterdir() if "sqlite" not in file.name} == {
        "reserve",
        "staged",
        "writing",
    }


def test_no_space_is_held_back_on_a_disk_with_little(
    root: Path, store: LocalStore, reserve: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What there is serves the writers."""
    reserve.unlink()
    with monkeypatch.context() as patch:
        _fill(patch, reserve, most=RESERVE)
        with closing(LocalStore(root)) as other:
            other.put("b", b"2")
    assert not reserve.exists() and store.make_room() is None
    with closing(LocalStore(root)) as other:
        other.put("b", b"2")
    assert reserve.exists()


def test_only_a_removal_gets_what_is_held_back(
    store: LocalStore, reserve: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writers of objects do not: they would fill the disk again."""
    with monkeypatch.context() as patch:
        _fill(patch, reserve, most=RESERVE)
        patch.setattr("commitlog.stores.local.scratch.write_block", lambda file, data: os.write(0, data))
        for write in (store.put, store.stage):
            with pytest.raises(Unavailable, match="No space left"):
                write("b", b"2")
            assert reserve.exists()
        hold_back = store.make_room()
        assert hold_back is not None and not reserve.exists()
        store.put("b", b"2")
        hold_back()
        assert not reserve.exists(), "it would fill the disk"
    hold_back()
    assert reserve.stat().st_size == RESERVE


def test_a_full_disk_does_not_prevent_a_removal(
    store: LocalStore, root: Path, reserve: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new process cannot open the index without space for the log of SQLite."""
    store.put("old/b", b"2")
    staged = store.stage("c", b"3")

    def begin(*arguments: Any, **options: Any) -> None:
        if reserve.exists():
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR
            raise error
        real(*arguments, **options)

    real = index.begin
    removals = (
        lambda: store.delete("old/a"),
        lambda: store.delete_many(["old/b"]),
        lambda: store.abort(staged),
    )
    for remove in removals:
        with monkeypatch.context() as patch:
            patch.setattr(index, "begin", begin)
            with pytest.raises(Unavailable):
                store.put("d", b"4")
            assert reserve.exists()
            _fill(patch, reserve)
            assert not remove()
        assert reserve.exists(), "it was made again"
    assert not _paths(store) and not list(store.list_staged())


def test_a_failed_sync_after_the_link_leaves_the_outcome_unknown(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The object exists, but may not survive power loss. The error is `OutcomeUnknown`."""
    store = LocalStore(root)
    store.put("d/a", b"1")
    store.put("d/b", b"1")
    with monkeypatch.context() as patch:
        _failing(
            patch, "fsync", errno.EIO, lambda fd: os.readlink(f"/proc/self/fd/{fd}") == str(root / "d")
        )
        with pytest.raises(OutcomeUnknown):
            store.put("d/a", b"2")
        assert store.get("d/a").data == b"2"
        assert isinstance(store.delete_many(["d/a"])["d/a"], OutcomeUnknown)


def test_a_copy_works_where_the_kernel_cannot_copy(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without copy_file_range(2) bytes are copied through memory. Its other failures are reported."""
    data = os.urandom(700_000)
    store.put("a", data)
    with monkeypatch.context() as patch:
        _failing(patch, "copy_file_range", errno.EOPNOTSUPP)
        store.copy("a", "b")
        assert store.get("b").data == data
    with monkeypatch.context() as patch:
        _failing(patch, "copy_file_range", errno.ENOSPC)
        with pytest.raises(Unavailable):
            store.copy("a", "c")
    assert _paths(store) == ["a", "b"]


def test_a_damaged_or_newer_index_is_refused(store: LocalStore, root: Path) -> None:
    """An index that is not an SQLite file, or has a later format, raises a specific error."""
    store.put("a", b"")
    store.close()
    file = root / ".commitlog" / "index.sqlite"
    with sqlite3.connect(file) as index:
        index.execute("PRAGMA user_version = 2")
    index.close()
    for call in (lambda: LocalStore(root).put("a", b""), lambda: LocalStore(root).head("a")):
        with pytest.raises(FormatTooNew):
            call()
    for name in os.listdir(file.parent):
        if name.startswith("index.sqlite-"):
            os.unlink(file.parent / name)
    file.write_bytes(b"no database, but long enough to be looked at" * 100)
    with pytest.raises(CorruptRecord):
        LocalStore(root).put("a", b"")


def test_requests_expire_by_the_clock_of_the_store(root: Path) -> None:
    """A mutation after its expiry is refused, by the clock that was passed to the store."""
    clock = ManualClock(epoch=1000.5)
    store = LocalStore(root, clock=clock, durable=False)
    assert store.begin_head("a")().store_time == 1000
    store.put("a", b"1", expiry=RequestExpiry(1000, 1))
    clock.advance(1.0)
    with pytest.raises(RequestExpired):
        store.put("a", b"2", expiry=RequestExpiry(1000, 1))
    with pytest.raises(RequestExpired):
        LocalStore(root / "none", clock=clock).delete("a", expiry=RequestExpiry(1000, 1))
    assert store.get("a").data == b"1" and _private(root) == []


def test_the_slower_creator_of_the_index_may_lose_its_scratch_file(tmp_path: Path) -> None:
    """The first clean-up of the faster process removes the scratch file that the slower one writes."""
    Index.create(str(tmp_path / "index"), str(tmp_path / "scratch"), durable=True)
    Index.create(str(tmp_path / "index"), str(tmp_path / "gone" / "scratch"), durable=True)
    with pytest.raises(CommitError):
        Index.create(str(tmp_path / "other"), str(tmp_path / "gone" / "scratch"), durable=True)


# -- order on disk ---------------------------------------------------------------------------------


@pytest.mark.parametrize("change", ["put", "publish", "delete", "delete_many"])
def test_the_index_drops_rows_after_the_names_are_on_disk(
    root: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """Otherwise a power loss between the two would leave an object without etag, or lose an upload."""
    store = LocalStore(root)
    store.put("a", b"1", metadata={"k": "v"})
    staged = store.stage("a", b"2")
    seen: list[tuple[int, int]] = []
    sync = DirectoryTree.sync

    def counts() -> tuple[int, int]:
        with closing(sqlite3.connect(root / ".commitlog" / "index.sqlite")) as index:
            rows = [index.execute(f"SELECT count(*) FROM {name}") for name in ("objects", "staged")]
            (objects,), (uploads,) = (found.fetchone() for found in rows)
        return objects, uploads

    def observed(tree: DirectoryTree, parts: Sequence[str]) -> None:
        seen.append(counts())
        sync(tree, parts)

    monkeypatch.setattr(DirectoryTree, "sync", observed)
    changes: dict[str, Callable[[], object]] = {
        "put": lambda: store.put("a", b"3"),
        "publish": lambda: store.publish(staged),
        "delete": lambda: store.delete("a"),
        "delete_many": lambda: store.delete_many(["a"]),
    }
    changes[change]()
    assert seen == [(3 if change == "put" else 2, 1)]
    assert counts() == {"put": (2, 1), "publish": (1, 0)}.get(change, (1, 1))


def test_a_new_file_with_a_reused_inode_keeps_its_row(root: Path) -> None:
    """The row of a removed file is dropped later, when its inode number may already be in use again."""
    LocalStore(root).put("a", b"1")
    file = root / ".commitlog" / "index.sqlite"
    index = Index(str(file), file.stat().st_ino, lambda _: None, durable=False)
    found = (root / "a").stat()
    with index.recording() as transaction:
        token = transaction.token(found.st_ino)
        assert token is not None
        transaction.forget(found.st_ino, "of the gone file")
        assert transaction.token(found.st_ino) == token
        transaction.forget(found.st_ino, token)
        assert transaction.token(found.st_ino) is None
    index.close()


@pytest.mark.parametrize("change", ["put", "delete"])
def test_a_change_that_happened_is_not_reported_as_a_failure(
    store: LocalStore, root: Path, change: str
) -> None:
    """The row of the old file is damaged, and is looked at when the name is changed."""
    store.put("a", b"1")
    with closing(sqlite3.connect(root / ".commitlog" / "index.sqlite", isolation_level=None)) as index:
        index.execute("UPDATE objects SET token = CAST(x'ff' AS TEXT)")
    if change == "put":
        store.put("a", b"2")
        assert store.get("a").data == b"2"
    else:
        store.delete("a")
        assert list(store.list()) == []


def test_a_bulk_removal_tells_what_remains(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """If it gets no lock after the first batch, the objects of that batch are gone all the same."""
    paths = [f"{number:03}" for number in range(501)]
    for path in paths:
        store.put(path, b"")
    real, calls = Index.changing, iter(range(9))

    def changing(self: Index) -> Any:
        if next(calls) == 2:  # the first batch has two: its change, and what it leaves to tidy
            raise Unavailable("busy")
        return real(self)

    monkeypatch.setattr(Index, "changing", changing)
    failures = store.delete_many(paths)
    monkeypatch.undo()
    assert list(failures) == [info.path for info in store.list()] == ["500"]
    assert isinstance(failures["500"], Unavailable)


def test_a_base_that_cannot_be_looked_for_is_a_typed_error(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a write as well as of a read."""
    real = os.stat

    def refused(path: Any, **options: Any) -> os.stat_result:
        if str(path).endswith("index.sqlite"):
            raise PermissionError(errno.EACCES, "Permission denied")
        return real(path, **options)

    monkeypatch.setattr(os, "stat", refused)
    for call in (lambda: store.put("a", b""), lambda: store.get("a")):
        with pytest.raises(AccessDenied):
            call()


def test_a_listing_that_cannot_open_a_directory_again_is_a_typed_error(
    store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks at files of other programs a second time."""
    store.put("a", b"")
    (root / "foreign").write_bytes(b"1")
    real, calls = DirectoryTree.directory, iter(range(9))

    def directory(self: DirectoryTree, parts: Sequence[str]) -> Any:
        if next(calls) == 1:
            raise OSError(errno.EMFILE, "Too many open files")
        return real(self, parts)

    monkeypatch.setattr(DirectoryTree, "directory", directory)
    with pytest.raises(Unavailable, match="Too many open files"):
        store.list_page()


def test_a_body_that_cannot_be_locked_leaves_no_open_file(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a file system without locks."""
    store.put("a", b"")

    opened: list[int] = []

    def refused(fd: int, operation: int) -> None:
        opened.append(fd)
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refused)
    with pytest.raises(Unavailable, match="No locks available"):
        store.put("b", b"")
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(opened[0])


def test_each_call_waits_once_for_a_writer_that_stands_still(
    store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the retries of a conditional write nor the removal of what it wrote waits once more."""
    for path in ("a", "b", "c"):
        store.put(path, b"1")
    waits: list[str] = []

    def count(*arguments: Any, **options: Any) -> None:
        waits.append("begin")
        begin(*arguments, **options)

    begin = index.begin
    monkeypatch.setattr(index, "begin", count)
    monkeypatch.setattr(index, "PATIENCE", 0.01)
    monkeypatch.setattr("commitlog.stores.local.store._BATCH", 1)
    for name in ("0" * 32, "1" * 32):  # bodies of dead writers
        (root / ".commitlog" / "writing" / name).write_bytes(b"")
    file = str(root / ".commitlog" / "index.sqlite")
    with closing(sqlite3.connect(file, isolation_level=None)) as suspended:
        suspended.execute("BEGIN IMMEDIATE")
        with pytest.raises(Busy, match="is a writer suspended"):
            ConditionalStore(store).put_if_absent("d", b"1")
        assert len(waits) == 1
        assert {type(each) for each in store.delete_many(["a", "b", "c"]).values()} == {Busy}
        assert len(waits) == 2
        with pytest.raises(Busy):
            store._base().sweep()
        assert len(waits) == 3
        suspended.execute("ROLLBACK")
    ConditionalStore(store).put_if_absent("d", b"1")
    assert not store.delete_many(["a", "b", "c"])
