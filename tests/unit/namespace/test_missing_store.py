"""A store that is not there, or is not the right one: nothing is taken for gone by that."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from attrs import frozen

from commitlog.aws import AwsOptions
from commitlog.commit import ConditionalStore
from commitlog.errors import (
    AccessDenied,
    BucketNotFound,
    CommitError,
    DirectoryNotEmpty,
    NotFound,
    ObjectChanged,
    StoreEmpty,
    Unavailable,
)
from commitlog.namespace import GcReport, ImportReport, Namespace, PruneReport
from commitlog.namespace.external.store import BackingStore
from commitlog.oplog import OperationLog
from commitlog.stores.api import ObjectStore
from commitlog.stores.local.store import LocalStore
from commitlog.stores.memory import MemoryStore
from commitlog.stores.s3.store import S3Store
from commitlog.testing import ManualClock
from support.namespace import QUICK, Auditor, ServiceTable
from support.servers import Ministack

LAKE = "lake"
MARKS = f"_commitlog/namespaces/{LAKE}/mark/"
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
            "sync": self.lake.bindings.sync,
            "prune": self.lake.bindings.prune,
            "prune what is not bound": lambda: self.lake.bindings.prune("adopted"),
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
    lake.maintenance.import_objects("old/", "adopted")
    for name, max_age in (("aged", 60.0), ("asked", 0.0), ("told", None)):
        store.put(f"{name}/a", b"1")
        lake.bindings.bind(f"{name}/", name, max_age=60.0)
        lake.bindings.sync(name)
        lake.bindings.bind(f"{name}/", name, max_age=max_age)
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
        lambda: at.lake.bindings.prune(empty_store=True),
    ):
        with pytest.raises(BucketNotFound):
            look()
    root.unlink(missing_ok=True)
    away.rename(root)
    assert at.lake.bindings.prune() == PruneReport(directories=5)
    at.lake.bindings.sync()
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
    assert at.lake.bindings.sync(empty_store=True).removed == 3
    assert at.lake.bindings.prune(empty_store=True).files == 1
    assert at.rows() == []


class Guarded(MemoryStore):
    """A store in which nobody may write what is the library's own."""

    def put(self, path, body, **options):  # type: ignore[no-untyped-def]
        if path.startswith("_commitlog/"):
            raise AccessDenied("no")
        return super().put(path, body, **options)


def test_without_a_mark_one_object_is_enough() -> None:
    """Whatever it is, below the prefix that was opened: then the others are gone."""
    clock = ManualClock()
    at = site(Guarded(clock=clock), clock)
    assert at.lake.describe().identity is None
    for path in FILES:
        at.store.delete(path.replace("adopted", "old"))
    for name, do in at.each_way().items():
        if name != "list":
            with pytest.raises(StoreEmpty, match="no object at all"):
                do()
    with pytest.raises(StoreEmpty):
        at.lake.maintenance.fsck(objects=True)
    assert at.lake.maintenance.gc() == GcReport()
    at.store.put("zzz", b"")
    assert at.lake.bindings.sync().removed == 3
    assert at.lake.bindings.prune().files == 1


def marks(store: ObjectStore) -> list[str]:
    """Return the paths of all marks."""
    return [info.path for info in store.list(MARKS)]


@pytest.mark.parametrize("how", ["written", "other"])
def test_a_store_that_is_not_the_right_one(tmp_path: Path, how: str) -> None:
    """That something was stored in it proves nothing, nor that it is of a namespace of that name. What
    is missing is told: what was asked for, and what the store is known by.
    """
    root, away = tmp_path / "store", tmp_path / "away"
    at = site(LocalStore(root, durable=False), ManualClock())
    (mark,) = marks(at.store)
    rows = at.rows()
    root.rename(away)
    if how == "other":
        other = site(LocalStore(root, durable=False), ManualClock())
        for path in FILES:
            other.store.delete(path.replace("adopted", "old"))
    at.store.put("report", b"1")
    for name, do in at.each_way().items():
        if name == "list":
            assert do() == []
        else:
            with pytest.raises(StoreEmpty, match=f"there is no object '.*/[ax]', but .* no '{mark}'"):
                do()
        assert at.rows() == rows, name
    with pytest.raises(StoreEmpty):
        at.lake.maintenance.fsck(objects=True)


def test_a_mark_that_was_removed_is_put_back() -> None:
    """By those who say that the store is the right one, and nobody else."""
    clock = ManualClock()
    at = site(MemoryStore(clock=clock), clock)
    (mark,) = marks(at.store)
    at.store.delete(mark)
    at.store.delete("old/x")
    assert not at.lake.create()
    with pytest.raises(StoreEmpty):
        at.lake.bindings.prune()
    assert marks(at.store) == []
    assert at.lake.bindings.prune(empty_store=True).files == 1
    assert marks(at.store) == [mark]
    at.store.delete("told/a")
    assert at.lake.bindings.sync().removed == 1


@pytest.mark.parametrize("how", ["missing", "empty"])
def test_garbage_of_a_store_that_is_not_there_stays_listed(tmp_path: Path, how: str) -> None:
    """Its objects are not taken for removed; when it is back, they are."""
    root, away = tmp_path / "store", tmp_path / "away"
    at = site(LocalStore(root, durable=False), ManualClock())
    at.lake.write("own", b"own")
    at.lake.delete("own")
    at.clock.advance(10)
    root.rename(away)
    if how == "empty":
        root.mkdir()
    with pytest.raises(BucketNotFound if how == "missing" else StoreEmpty):
        at.lake.maintenance.gc()
    if how == "empty":
        root.rmdir()
    away.rename(root)
    assert at.lake.maintenance.gc() == GcReport(objects=1, bytes=3)


def test_a_store_that_goes_away_while_garbage_is_removed(tmp_path: Path) -> None:
    """What it does not have by then is not taken for removed."""

    class Leaving(LocalStore):
        def delete_many(self, paths):  # type: ignore[no-untyped-def]
            if not away.exists():
                root.rename(away)
            return super().delete_many(paths)

    root, away = tmp_path / "store", tmp_path / "away"
    at = site(Leaving(root, durable=False), ManualClock())
    at.lake.write("own", b"own")
    at.lake.delete("own")
    at.clock.advance(10)
    with pytest.raises(BucketNotFound):
        at.lake.maintenance.gc()
    away.rename(root)
    away.mkdir()
    assert at.lake.maintenance.gc() == GcReport(objects=1, bytes=3)


@pytest.mark.parametrize("proofs", [1, 2])
def test_a_store_that_is_busy_while_garbage_is_removed(proofs: int) -> None:
    """What it cannot prove is told of each object, and stays listed."""

    class Busy(MemoryStore):
        left = 0

        def begin_head(self, path):  # type: ignore[no-untyped-def]
            if path.startswith(MARKS):
                self.left -= 1
                if self.left == 0:
                    raise Unavailable("busy")
            return super().begin_head(path)

    clock = ManualClock()
    store = Busy(clock=clock)
    at = site(store, clock)
    at.lake.write("own", b"own")
    at.lake.delete("own")
    clock.advance(10)
    store.left = proofs
    assert [error for _, error in at.lake.maintenance.gc().failed] == ["busy"]
    assert at.lake.maintenance.gc() == GcReport(objects=1, bytes=3)


def test_a_check_of_a_store_that_is_not_there(tmp_path: Path) -> None:
    """It loses no file; and none is adopted from it."""
    root, away = tmp_path / "store", tmp_path / "away"
    at = site(LocalStore(root, durable=False), ManualClock())
    at.lake.write("own", b"own")
    root.rename(away)
    for do in (
        lambda: at.lake.maintenance.fsck(objects=True),
        lambda: at.lake.maintenance.import_objects("old/", "adopted"),
    ):
        with pytest.raises(BucketNotFound):
            do()
    away.rename(root)
    assert at.lake.maintenance.fsck(objects=True).is_clean


def test_a_new_namespace_over_a_new_directory(tmp_path: Path) -> None:
    """It works at once, though nothing was stored yet, and no log is kept; its mark is no file."""
    clock = ManualClock()
    store = LocalStore(tmp_path / "new", durable=False, clock=clock)
    lake = Namespace(ServiceTable(clock=clock), store, LAKE, clock=clock, grace=0)
    lake.create()
    lake.bindings.bind("raw/", "d")
    assert list(lake.list("d")) == []
    assert list(lake.bindings.diff()) == []
    assert lake.bindings.sync().directories == 1
    assert lake.bindings.prune() == PruneReport(directories=2)
    assert lake.maintenance.import_objects() == ImportReport(last=marks(store)[0])
    lake.write("d/x", b"1", overwrite=False)
    clock.advance(10_000)
    assert lake.maintenance.fsck(objects=True, orphans=True, age=0).is_clean
    assert [found.path for found in lake.walk()] == ["d", "d/x"]


def test_of_two_that_create_one_marks() -> None:
    """What the other has stored goes again; who comes later stores nothing."""
    clock = ManualClock()
    table = ServiceTable(clock=clock)

    class Slow(MemoryStore):
        def put(self, path, body, **options):  # type: ignore[no-untyped-def]
            done = super().put(path, body, **options)
            if len(marks(self)) == 1:
                assert Namespace(table, self, LAKE, clock=clock).create()
            return done

    store = Slow(clock=clock)
    late = Namespace(table, store, LAKE, clock=clock)
    assert not late.create()
    assert marks(store) == [late.describe().identity]
    assert not Namespace(table, store, LAKE, clock=clock).create()
    assert len(marks(store)) == 1


@pytest.mark.parametrize("name", ["sync", "prune what is not bound", "delete", "remove a directory"])
def test_a_store_that_comes_back_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """What it did not have while it was away is asked for again, once it has proved that it is there."""
    root, away = tmp_path / "store", tmp_path / "away"
    at = site(LocalStore(root, durable=False), ManualClock())
    rows = set(at.rows())
    root.rename(away)
    root.mkdir()
    verify = BackingStore.verify

    def mounted(outside: BackingStore, **options: object) -> None:
        if away.exists():
            root.rmdir()
            away.rename(root)
        verify(outside, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(BackingStore, "verify", mounted)
    do = at.each_way()[name]
    if name == "remove a directory":
        with pytest.raises(DirectoryNotEmpty):
            do()
    else:
        do()
    assert not away.exists()
    assert set(at.rows()) == (rows - {"aged/a"} if name == "delete" else rows)


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
    at.lake.maintenance.import_objects("old/", "adopted")
    with pytest.raises(BucketNotFound):
        at.lake.bindings.prune("adopted")
    assert at.rows() == [*FILES[:1], "adopted/y", "adopted/z", *FILES[1:]]


def test_what_is_still_there_costs_no_proof() -> None:
    """The store is asked for it only if something is to go."""
    clock = ManualClock()
    at = site(MemoryStore(clock=clock), clock)
    before = at.lake.request_stats
    at.lake.bindings.sync()
    at.lake.bindings.prune()
    found = at.lake.request_stats.since(before).operations
    assert (found["sync"].store, found["prune"].store) == (3, 4)
    at.store.delete("old/x")
    before = at.lake.request_stats
    at.lake.bindings.prune("adopted")
    pruned = at.lake.request_stats.since(before).operations["prune"]
    assert (pruned.store_heads, pruned.store_lists) == (1 + 1 + 2, 0)


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
        for do in (at.lake.bindings.sync, at.lake.bindings.prune):
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
