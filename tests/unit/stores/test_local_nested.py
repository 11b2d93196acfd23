"""A local store, and a directory in it that is opened as a store: one index, or a refusal."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from attrs import evolve

from commitlog.errors import ConfigurationError, InvalidPath, NotFound, PreconditionFailed
from commitlog.stores.api import IfAbsent, IfMatch
from commitlog.stores.local.store import LocalStore

_COUNT = """
import sys
from commitlog.errors import PreconditionFailed
from commitlog.stores.api import IfMatch
from commitlog.stores.local.store import LocalStore

store, path, done = LocalStore(sys.argv[1], durable=False), sys.argv[2], 0
while done < int(sys.argv[3]):
    seen = store.get(path)
    try:
        store.put(path, b"%d" % (int(seen.data) + 1), condition=IfMatch(seen.etag))
        done += 1
    except PreconditionFailed:
        pass
"""

#: Runs a command with only the directory $1 mounted, at $2, as in a container.
_MOUNTED = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'


def _index(directory: Path) -> Path:
    return directory / ".commitlog" / "index.sqlite"


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o755])
def test_processes_of_both_directories_lose_no_increment(tmp_path: Path, mode: int) -> None:
    """Volumes of containers are often writable by all. There is one index, whatever the mode."""
    outer = tmp_path / "outer"
    LocalStore(outer).put("inner/counter", b"0")
    outer.chmod(mode)
    counts = [
        subprocess.Popen([sys.executable, "-c", _COUNT, str(root), path, "100"])
        for root, path in ((outer, "inner/counter"), (outer / "inner", "counter"))
    ]
    try:
        assert [count.wait(60) for count in counts] == [0, 0]
    finally:
        for count in counts:
            count.kill()
            count.wait()
    assert LocalStore(outer).get("inner/counter").data == b"200"
    assert not _index(outer / "inner").exists()


def _as_another_user(outer: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    outer.chmod(0o1777)
    for file in (outer / ".commitlog", *(outer / ".commitlog").rglob("*")):
        os.chown(file, 12345, -1)


def test_the_index_of_another_user_in_tmp_is_ignored(tmp_path: Path) -> None:
    """Otherwise that user could affect the writes of this user, whose directory gets its own index."""
    outer = tmp_path / "tmp"
    LocalStore(outer).put("x", b"")
    _as_another_user(outer)
    mine = outer / "mine"
    LocalStore(mine).put("a", b"")
    assert _index(mine).exists()


def test_a_directory_that_the_other_user_may_write_is_refused(tmp_path: Path) -> None:
    """That user locks the other index, so the writes of the two users would not exclude each other."""
    outer = tmp_path / "tmp"
    LocalStore(outer).put("shared/x", b"")
    _as_another_user(outer)
    (outer / "shared").chmod(0o777)
    with pytest.raises(ConfigurationError, match="another user"):
        LocalStore(outer / "shared").put("x", b"1")


def test_an_index_in_a_nested_directory_counts_there(tmp_path: Path) -> None:
    """A container that mounts only the inner directory has created an index there.

    From then on, changes through the outer store take its lock, and inner stores that were open before
    go on with it.
    """
    outer, place = tmp_path / "outer", tmp_path / "container"
    place.mkdir()
    whole, inner = LocalStore(outer), LocalStore(outer / "inner")
    whole.put("inner/counter", b"0")
    whole.put("inner/kept", b"", metadata={"a": "b"})
    assert inner.get("counter").data == b"0"
    staged = whole.stage("inner/staged", b"1")
    command = ["unshare", "--mount", "sh", "-c", _MOUNTED, "sh", str(outer / "inner"), str(place)]
    if subprocess.run([*command, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no mount namespace may be made here")
    subprocess.run([*command, sys.executable, "-c", _COUNT, str(place), "counter", "10"], check=True)
    assert _index(outer / "inner").exists()
    contained = subprocess.Popen([*command, sys.executable, "-c", _COUNT, str(place), "counter", "100"])
    try:
        for _ in range(100):
            while True:
                seen = whole.get("inner/counter")
                try:
                    whole.put(
                        "inner/counter", b"%d" % (int(seen.data) + 1), condition=IfMatch(seen.etag)
                    )
                    break
                except PreconditionFailed:
                    pass
        assert contained.wait(60) == 0
    finally:
        contained.kill()
        contained.wait()
    assert inner.get("counter").data == b"210"
    published = whole.publish(staged)
    assert inner.get("staged").etag == published.etag == whole.get("inner/staged").etag
    kept = whole.get("inner/kept")
    assert (kept.etag, kept.metadata) == (inner.get("kept").etag, {"a": "b"})


@pytest.fixture
def both(tmp_path: Path) -> tuple[LocalStore, LocalStore]:
    """An outer store and one in its directory ``a/b``, which was written to first."""
    inner = LocalStore(tmp_path / "a" / "b")
    inner.put("first", b"1", metadata={"k": "v"})
    return LocalStore(tmp_path), inner


def test_both_stores_of_a_nested_index_see_the_same_objects(
    both: tuple[LocalStore, LocalStore],
) -> None:
    outer, inner = both
    assert outer.get("a/b/first").metadata == {"k": "v"}  # also before the outer one has an index
    outer.put("c", b"")
    with pytest.raises(PreconditionFailed):
        outer.put("a/b/first", b"2", condition=IfMatch("another"))
    outer.put("a/b/first", b"2", condition=IfMatch(inner.get("first").etag), metadata={"k": "w"})
    outer.copy("c", "a/b/x/copy", condition=IfAbsent())
    outer.put("a/b/gone", b"")
    outer.put("a/b/gone too", b"")
    outer.delete("a/b/gone")
    assert outer.delete_many(["c", "a/b/gone too", "a/b/none"]) == {}
    listed = [(info.path, info.etag) for info in outer.list()]
    assert listed == [(f"a/b/{info.path}", info.etag) for info in inner.list()]
    assert [path for path, _ in listed] == ["a/b/first", "a/b/x/copy"]
    assert inner.get("first").metadata == {"k": "w"}


def test_an_upload_is_published_through_either_store_of_a_nested_index(
    both: tuple[LocalStore, LocalStore],
) -> None:
    outer, inner = both
    theirs = inner.stage("theirs", b"1")
    dropped = inner.stage("dropped", b"")
    ours = outer.stage("a/b/ours", b"2")
    assert [info.path for info in outer.list_staged("a/b/")] == [
        "a/b/dropped",
        "a/b/ours",
        "a/b/theirs",
    ]
    outer.abort(evolve(dropped, path="a/b/dropped"))
    outer.publish(evolve(theirs, path="a/b/theirs"))
    etag = outer.publish(ours, condition=IfAbsent()).etag
    assert inner.get("ours").etag == etag == outer.get("a/b/ours").etag
    assert inner.get("theirs").metadata == outer.get("a/b/theirs").metadata != {}
    assert [*inner.list_staged(), *outer.list_staged("a/")] == []
    with pytest.raises(NotFound):
        outer.publish(ours)


def test_a_link_to_a_directory_with_an_index_is_not_followed(
    both: tuple[LocalStore, LocalStore], tmp_path: Path
) -> None:
    outer, inner = both
    (tmp_path / "link").symlink_to(tmp_path / "a" / "b")
    for change in (lambda: outer.put("link/x", b""), lambda: outer.delete("link/first")):
        with pytest.raises(InvalidPath):
            change()
    assert [info.path for info in inner.list()] == ["first"]


def test_a_file_is_not_staged_where_none_can_appear(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.put("a", b"")
    store.put("b/c", b"")
    store.put("ready", b"")
    for path in ("a/x", "a/x/y", "b"):
        with pytest.raises(InvalidPath, match="cannot hold both"):
            store.begin_stage(path)
        with pytest.raises(InvalidPath, match="cannot hold both"):
            store.stage_files({"ready": path}, key="k")
    assert store.get("ready").data == b""
    assert list(store.list_staged()) == []
