"""Kill a process at every file operation of every mutation of a local store, and audit the result.

``unit.stores.test_local`` runs it as a separate program, since it forks. ``python local_crashes.py DIR``
prints a line for each mutation: its name, and the number of points at which it was killed.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from commitlog.errors import CommitError
from commitlog.stores.api import IfAbsent, IfMatch, ObjectInfo
from commitlog.stores.local.store import LocalStore

OLD, NEW = b"old" * 1000, b"newer" * 1000
STEPS = ("fsync", "link", "replace", "unlink", "mkdir", "rmdir", "open", "write")


def _put(store: LocalStore) -> None:
    store.put("new/dir/a", NEW, condition=IfAbsent(), metadata={"kind": "new"})


def _update(store: LocalStore) -> None:
    store.put("dir/a", NEW, condition=IfMatch(store.head("dir/a").etag), metadata={"kind": "new"})


def _publish(store: LocalStore) -> None:
    store.publish(store.stage("new/dir/a", NEW, metadata={"kind": "new"}))


def _publish_create(store: LocalStore) -> None:
    staged = store.stage("new/dir/a", NEW, metadata={"kind": "new"})
    store.publish(staged, condition=IfAbsent())


def _replace(store: LocalStore) -> None:
    store.publish(store.stage("dir/a", NEW, metadata={"kind": "new"}))


def _copy(store: LocalStore) -> None:
    store.copy("source", "new/dir/a")


def _delete(store: LocalStore) -> None:
    store.delete("dir/a")


def _abort(store: LocalStore) -> None:
    store.abort(store.stage("new/dir/a", NEW))


#: The mutations, and the path that each one changes.
MUTATIONS: tuple[tuple[Callable[[LocalStore], None], str], ...] = (
    (_put, "new/dir/a"),
    (_update, "dir/a"),
    (_publish, "new/dir/a"),
    (_publish_create, "new/dir/a"),
    (_replace, "dir/a"),
    (_copy, "new/dir/a"),
    (_delete, "dir/a"),
    (_abort, "new/dir/a"),
)


def main(top: Path) -> None:
    """Kill each mutation at point 0, 1, 2, …, until it ends before the point."""
    for mutation, path in MUTATIONS:
        point = 0
        while _dies(mutation, top / f"{mutation.__name__}-{point}", path, point):
            point += 1
        print(mutation.__name__.strip("_"), point)


def _dies(mutation: Callable[[LocalStore], None], root: Path, path: str, point: int) -> bool:
    store = LocalStore(root)
    store.put("dir/a", OLD, metadata={"kind": "old"})
    store.put("source", NEW, metadata={"kind": "new"})
    before = store.begin_head(path)().info
    pid = os.fork()
    if not pid:
        _die_at(point)
        mutation(store)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        _audit(LocalStore(root), root, path, before)
        return True
    assert status == 0, f"the mutation failed: {status}"
    return False


def _die_at(point: int) -> None:
    left = point

    def deadly(step: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            nonlocal left
            for after in (False, True):
                result = step(*args, **options) if after else None
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                left -= 1
            return result

        return call

    for name in STEPS:
        setattr(os, name, deadly(getattr(os, name)))


def _audit(store: LocalStore, root: Path, path: str, before: ObjectInfo | None) -> None:
    # the old state or the new one, and nothing between
    info = store.begin_head(path)().info
    if info is None:
        found: tuple[object, ...] = ()
    else:
        found = (store.get(path).data, dict(info.metadata))
    was = () if before is None else (OLD, {"kind": "old"})
    if found and "commitlog-nonce" in found[1]:  # type: ignore[operator]
        found[1].pop("commitlog-nonce")  # type: ignore[attr-defined]
    assert found in (was, (NEW, {"kind": "new"}), ()), f"left: {found}"
    if found == was and before is not None and info is not None:
        assert info.etag == before.etag, "an unchanged object has another etag"
    # a dead process leaves no lock, and no file that stays after the next change
    for upload in store.list_staged():
        store.abort(upload)
    store.put(path, b"again")
    store.delete(path)
    for name in ("staged", "writing"):
        assert not os.listdir(root / ".commitlog" / name), f"left in {name}"
    listed = [info.path for info in store.list()]
    assert set(listed) <= {"dir/a", "source"}, f"listed: {listed}"
    try:
        store.put(path, b"once more", condition=IfAbsent())
    except CommitError as error:
        raise AssertionError("the path cannot be created again") from error
    with sqlite3.connect(root / ".commitlog" / "index.sqlite") as index:
        assert index.execute("SELECT count(*) FROM staged").fetchone() == (0,), "records were left"
    index.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
