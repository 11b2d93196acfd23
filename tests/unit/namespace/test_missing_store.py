"""A store that is missing, or is the wrong one: its objects are not taken for removed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
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
    """A namespace with objects of other programs: imported, and in each kind of bound directory."""

    clock: ManualClock
    table: ServiceTable
    store: ObjectStore
    lake: Namespace

    def rows(self) -> list[str]:
        """Audit the table, and return the paths of its files."""
        return sorted(path for path in Auditor(self.table, LAKE).audit() if "/" in path)

    def each_way(self) -> dict[str, Callable[[], object]]:
        """Return operations that read files of other programs, and remove those without objects."""
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
    """Return a new site; the listings of its directories have expired."""
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
def test_a_missing_local_store_removes_nothing(tmp_path: Path, how: str) -> None:
    """Each operation fails, and no row is removed; when the store is back, all is as before."""
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
def test_an_empty_store_removes_nothing(log: bool) -> None:
    """Rows are removed only if the caller confirms that the store is empty.

    A log does not count as an object, since it is created wherever it is missing.
    """
    clock = ManualClock()
    at = site(MemoryStore(clock=clock), clock, log=log)
    for info in list(at.store.list()):
        at.store.delete(info.path)
    at.lake.make_directory("new")
    assert bool(list(at.store.list())) is log
    for name, do in at.each_way().items():
        if name == "list":
            assert do() == []  # shows the store, and changes no row
        else:
            with pytest.raises(StoreEmpty, match="empty_store=True"):
                do()
        assert at.rows() == FILES, name
    assert at.lake.bindings.sync(empty_store=True).removed == 3
    assert at.lake.bindings.prune(empty_store=True).files == 1
    assert at.rows() == []


class Guarded(MemoryStore):
    """A store that refuses writes of the library's own objects."""

    def put(self, path, body, **options):  # type: ignore[no-untyped-def]
        if path.startswith("_commitlog/"):
            raise AccessDenied("no")
        return super().put(path, body, **options)


def test_without_an_identity_object_any_object_proves_the_store() -> None:
    """Any object below the prefix of the store is enough; then missing objects count as removed."""
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


def identity_objects(store: ObjectStore) -> list[str]:
    """Return the paths of all identity objects."""
    return [info.path for info in store.list(MARKS)]


@pytest.mark.parametrize("how", ["written", "other"])
def test_the_wrong_store_removes_nothing(tmp_path: Path, how: str) -> None:
    """New objects, or a namespace of the same name, do not make it the right store.

    The error names the missing object, and the identity object of the right store.
    """
    root, away = tmp_path / "store", tmp_path / "away"
    at = site(LocalStore(root, durable=False), ManualClock())
    (mark,) = identity_objects(at.store)
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


def test_a_removed_identity_object_is_restored_on_request() -> None:
    """Only a call that confirms the empty store restores it."""
    clock = ManualClock()
    at = site(MemoryStore(clock=clock), clock)
    (mark,) = identity_objects(at.store)
    at.store.delete(mark)
    at.store.delete("old/x")
    assert not at.lake.create()
    with pytest.raises(StoreEmpty):
        at.lake.bindings.prune()
    assert identity_objects(at.store) == []
    assert at.lake.bindings.prune(empty_store=True).files == 1
    assert identity_objects(at.store) == [mark]
    at.store.delete("told/a")
    assert at.lake.bindings.sync().removed == 1


@pytest.mark.parametrize("how", ["missing", "empty"])
def test_garbage_of_a_missing_store_stays_listed(tmp_path: Path, how: str) -> None:
    """Its objects are not taken for removed; when the store is back, they are removed."""
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


def test_a_store_that_disappears_during_gc(tmp_path: Path) -> None:
    """Objects that it no longer has are not taken for removed."""

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
def test_a_busy_store_during_gc(proofs: int) -> None:
    """If the store cannot be verified, each object is reported, and stays listed."""

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


def test_fsck_and_import_of_a_missing_store(tmp_path: Path) -> None:
    """fsck reports no lost file, and nothing is imported."""
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
    """It works at once, without content and without a log; its identity object is no file."""
    clock = ManualClock()
    store = LocalStore(tmp_path / "new", durable=False, clock=clock)
    lake = Namespace(ServiceTable(clock=clock), store, LAKE, clock=clock, grace=0)
    lake.create()
    lake.bindings.bind("raw/", "d")
    assert list(lake.list("d")) == []
    assert list(lake.bindings.diff()) == []
    assert lake.bindings.sync().directories == 1
    assert lake.bindings.prune() == PruneReport(directories=2)
    assert lake.maintenance.import_objects() == ImportReport(last=identity_objects(store)[0])
    lake.write("d/x", b"1", overwrite=False)
    clock.advance(10_000)
    assert lake.maintenance.fsck(objects=True, orphans=True, age=0).is_clean
    assert [found.path for found in lake.walk()] == ["d", "d/x"]


def test_one_of_two_creations_leaves_its_identity_object() -> None:
    """The object of the other one is removed; a later creation stores nothing."""
    clock = ManualClock()
    table = ServiceTable(clock=clock)

    class Slow(MemoryStore):
        def put(self, path, body, **options):  # type: ignore[no-untyped-def]
            done = super().put(path, body, **options)
            if len(identity_objects(self)) == 1:
                assert Namespace(table, self, LAKE, clock=clock).create()
            return done

    store = Slow(clock=clock)
    late = Namespace(table, store, LAKE, clock=clock)
    assert not late.create()
    assert identity_objects(store) == [late.describe().identity]
    assert not Namespace(table, store, LAKE, clock=clock).create()
    assert len(identity_objects(store)) == 1


@pytest.mark.parametrize("name", ["sync", "prune what is not bound", "delete", "remove a directory"])
def test_a_store_that_returns_during_an_operation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Missing objects are requested again after the store was verified."""
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


@pytest.mark.parametrize("name", ["sync", "prune what is not bound", "delete", "remove a directory"])
def test_a_store_that_returns_for_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """It is verified after the missing objects were requested, too, and nothing is removed."""
    root, away = tmp_path / "store", tmp_path / "away"
    at = site(LocalStore(root, durable=False), ManualClock())
    rows = at.rows()
    root.rename(away)
    root.mkdir()
    verify, missing = BackingStore.verify, BackingStore.missing
    returns = iter([True])

    def mounted(outside: BackingStore, **options: object) -> None:
        if next(returns, False):
            root.rmdir()
            away.rename(root)
        verify(outside, **options)  # type: ignore[arg-type]

    def unmounted(outside: BackingStore, paths: Iterable[str]) -> Iterator[str]:
        if not away.exists():
            root.rename(away)
            root.mkdir()
        return missing(outside, paths)

    monkeypatch.setattr(BackingStore, "verify", mounted)
    monkeypatch.setattr(BackingStore, "missing", unmounted)
    with pytest.raises(StoreEmpty):
        at.each_way()[name]()
    assert at.rows() == rows


def test_a_store_that_disappears_during_an_operation(tmp_path: Path) -> None:
    """The store is verified after the requests, and not only before."""

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


def test_existing_objects_cost_no_verification() -> None:
    """The store is verified only if a row is to be removed."""
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
def test_a_missing_bucket_removes_nothing(ministack: Ministack) -> None:
    """A HEAD does not distinguish it from a missing object, so this is not taken as a proof.

    The same holds if it is created again, or has objects only outside the prefix.
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
        reported: list[type[CommitError]] = []
        for path in ("told/a", "asked/a"):
            try:
                at.lake.read(path)
            except CommitError as error:
                reported.append(type(error))
        assert reported == [ObjectChanged, NotFound]
