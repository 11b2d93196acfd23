"""A store that is not there, or has nothing: no file is taken for gone by that."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from attrs import frozen
from namespace_kit import QUICK, Auditor, ServiceTable

from commitlog.aws import AwsOptions
from commitlog.commit import ConditionalStore
from commitlog.errors import (
    BucketNotFound,
    CommitError,
    NotFound,
    ObjectChanged,
    StoreEmpty,
)
from commitlog.namespace import Namespace, Pruned
from commitlog.oplog import OperationLog
from commitlog.stores.api import ObjectStore
from commitlog.stores.local import LocalStore
from commitlog.stores.memory import MemoryStore
from commitlog.stores.s3 import S3Store
from commitlog.testing import ManualClock
from commitlog.testing.servers import Ministack

LAKE = "lake"
FILES = ["adopted/x", "aged/a", "asked/a", "told/a"]


@frozen
class Site:
    """A namespace with files that are objects of others: adopted, and in each kind of directory."""

    clock: ManualClock
    table: ServiceTable
    store: ObjectStore
    lake: Namespace

    def rows(self) -> list[str]:
        """Return the paths of the files that the table has, after it was audited."""
        return sorted(path for path in Auditor(self.table, LAKE).audit() if "/" in path)

    def each_way(self) -> dict[str, Callable[[], object]]:
        """Return what looks at files of others, and removes those that are gone."""
        return {
            "sync": self.lake.sync,
            "prune": self.lake.prune,
            "prune what is not bound": lambda: self.lake.prune("adopted"),
            "list": lambda: list(self.lake.list("aged")),
            "delete": lambda: self.lake.delete("aged/a"),
            "rename": lambda: self.lake.rename("aged/a", "elsewhere"),
            "remove a directory": lambda: self.lake.delete("aged"),
        }


def site(store: ObjectStore, clock: ManualClock, *, log: bool = False) -> Site:
    """Return a new one, whose listings are all too old by now."""
    table = ServiceTable(clock=clock)
    kept = OperationLog(ConditionalStore(store, clock=clock), "_commitlog/log", clock=clock)
    lake = Namespace(table, store, LAKE, clock=clock, backoff=QUICK, grace=0, log=kept if log else None)
    lake.create()
    store.put("old/x", b"1")
    lake.adopt("old/", "adopted")
    for name, max_age in (("aged", 60.0), ("asked", 0.0), ("told", None)):
        store.put(f"{name}/a", b"1")
        lake.bind(f"{name}/", name, max_age=60.0)
        lake.sync(name)
        lake.bind(f"{name}/", name, max_age=max_age)
    lake.set_attributes("aged/a", attributes={"owner": "me"})
    clock.advance(100)
    return Site(clock, table, store, lake)


@pytest.mark.parametrize("how", ["gone", "file"])
def test_a_local_store_that_is_not_there(tmp_path: Path, how: str) -> None:
    """Whoever looks is told so, and nothing is removed; when it is back, all is as it was."""
    root, away = tmp_path / "store", tmp_path / "away"
    at = site(LocalStore(root, durable=False), ManualClock())
    at.lake.write("own", b"own")
    rows = at.rows()
    root.rename(away)
    if how == "file":
        root.write_bytes(b"")
    for name, do in at.each_way().items():
        with pytest.raises(BucketNotFound):
            do()
        assert at.rows() == rows, name
    for look in (
        lambda: at.lake.read("own"),
        lambda: at.lake.read("adopted/x"),
        lambda: at.lake.stat("asked/a"),
        lambda: list(at.lake.list("asked")),
        lambda: at.lake.prune(empty_store=True),
    ):
        with pytest.raises(BucketNotFound):
            look()
    root.unlink(missing_ok=True)
    away.rename(root)
    assert at.lake.prune() == Pruned(directories=5)
    at.lake.sync()
    assert at.lake.stat("aged/a").attributes == {"owner": "me"}
    assert at.rows() == rows == FILES
    assert at.lake.read("own") == b"own"


@pytest.mark.parametrize("log", [False, True])
def test_a_store_without_any_object(log: bool) -> None:
    """It is refused to remove anything for that, unless it is said that it is empty; a log, which is
    made anew wherever it is written to, is no object.
    """
    clock = ManualClock()
    at = site(MemoryStore(clock=clock), clock, log=log)
    for info in list(at.store.list()):
        at.store.delete(info.path)
    at.lake.make_directory("new")
    assert bool(list(at.store.list())) is log
    for name, do in at.each_way().items():
        if name == "list":
            assert do() == []  # what is to be seen is what the store has, but that is not kept
        else:
            with pytest.raises(StoreEmpty, match="empty_store=True"):
                do()
        assert at.rows() == FILES, name
    assert at.lake.sync(empty_store=True).removed == 3
    assert at.lake.prune(empty_store=True).files == 1
    assert at.rows() == []


def test_one_object_is_enough() -> None:
    """Whatever it is, below the prefix that was opened: then the others are gone."""
    clock = ManualClock()
    at = site(MemoryStore(clock=clock), clock)
    for path in FILES:
        at.store.delete(path.replace("adopted", "old"))
    at.store.put("zzz", b"")
    assert at.lake.sync().removed == 3
    assert at.lake.prune().files == 1


def test_a_store_that_goes_away_meanwhile(tmp_path: Path) -> None:
    """It has to prove that it is there after it was asked, not before."""

    class Leaving(LocalStore):
        left = 0

        def begin_head(self, path: str):  # type: ignore[no-untyped-def]
            if path.startswith("old/"):
                self.left += 1
                if self.left == 2:
                    root.rename(tmp_path / "away")
            return super().begin_head(path)

    root = tmp_path / "store"
    at = site(Leaving(root, durable=False), ManualClock())
    at.store.put("old/y", b"1")
    at.store.put("old/z", b"1")
    at.lake.adopt("old/", "adopted")
    with pytest.raises(BucketNotFound):
        at.lake.prune("adopted")
    assert at.rows() == [*FILES[:1], "adopted/y", "adopted/z", *FILES[1:]]


def test_what_is_still_there_costs_no_proof() -> None:
    """The store is asked for it only if something is to go."""
    clock = ManualClock()
    at = site(MemoryStore(clock=clock), clock)
    before = at.lake.requests
    at.lake.sync()
    at.lake.prune()
    found = at.lake.requests.since(before).operations
    assert (found["sync"].store, found["prune"].store) == (3, 4)
    at.store.delete("old/x")
    before = at.lake.requests
    at.lake.prune("adopted")
    pruned = at.lake.requests.since(before).operations["prune"]
    assert (pruned.store_heads, pruned.store_lists) == (1, 1)


@pytest.mark.servers
def test_a_bucket_that_is_not_there(ministack: Ministack) -> None:
    """A HEAD says the same of it as of a missing object; that is not believed. Nor if it is made anew,
    or has only what is not below the prefix.
    """
    bucket, s3 = ministack.new_bucket(), ministack.client("s3")
    options = AwsOptions(**ministack.options)
    with closing(S3Store(f"s3://{bucket}/below/it", options=options)) as store:
        at = site(store, ManualClock())
        for info in list(store.list()):
            store.delete(info.path)
        s3.delete_bucket(Bucket=bucket)
        for name, do in at.each_way().items():
            with pytest.raises(BucketNotFound):
                do()
            assert at.rows() == FILES, name
        for look in (lambda: at.lake.read("told/a"), lambda: at.lake.stat("asked/a")):
            with pytest.raises(BucketNotFound):
                look()
        s3.create_bucket(Bucket=bucket)
        s3.put_object(Bucket=bucket, Key="elsewhere", Body=b"1")
        for do in (at.lake.sync, at.lake.prune):
            with pytest.raises(StoreEmpty):
                do()
        assert at.rows() == FILES
        told: list[type[CommitError]] = []
        for path in ("told/a", "asked/a"):
            try:
                at.lake.read(path)
            except CommitError as error:
                told.append(type(error))
        assert told == [ObjectChanged, NotFound]
