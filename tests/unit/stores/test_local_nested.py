"""A local store, and a directory in it that is opened as a store: one index, or a refusal."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from commitlog.errors import ConfigurationError
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


def test_an_index_in_a_nested_directory_is_respected(tmp_path: Path) -> None:
    """A container that mounts only the inner directory has created an index there.

    No change bypasses its lock: the outer store refuses. An inner store that was open before goes on
    with the new index.
    """
    outer, place = tmp_path / "outer", tmp_path / "container"
    place.mkdir()
    whole, inner = LocalStore(outer), LocalStore(outer / "inner")
    whole.put("inner/counter", b"0")
    whole.put("beside", b"0")
    assert inner.get("counter").data == b"0"
    staged = whole.stage("inner/staged", b"")
    command = ["unshare", "--mount", "sh", "-c", _MOUNTED, "sh", str(outer / "inner"), str(place)]
    if subprocess.run([*command, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no mount namespace may be made here")
    subprocess.run([*command, sys.executable, "-c", _COUNT, str(place), "counter", "10"], check=True)
    assert _index(outer / "inner").exists()
    seen = whole.get("inner/counter")
    assert seen.data == b"10"
    for change in (
        lambda: whole.put("inner/counter", b"1", condition=IfMatch(seen.etag)),
        lambda: whole.put("inner/new/object", b"1", condition=IfAbsent()),
        lambda: whole.copy("beside", "inner/counter"),
        lambda: whole.delete("inner/counter"),
        lambda: whole.publish(staged),
        lambda: whole.stage_files({"inner/counter": "elsewhere"}, key="k"),
    ):
        with pytest.raises(ConfigurationError, match="its own index"):
            change()
    assert isinstance(whole.delete_many(["inner/counter"])["inner/counter"], ConfigurationError)
    whole.put("beside", b"1")
    etag = inner.get("counter").etag
    assert etag == LocalStore(outer / "inner").get("counter").etag
    assert inner.put("counter", b"11", condition=IfMatch(etag))
    assert whole.get("inner/counter").data == b"11"
