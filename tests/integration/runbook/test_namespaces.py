"""States of namespaces, from the runbook: what the page shows, does, and says about the loss."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from attrs import define

import commitlog
import commitlog.status
from commitlog.errors import Fenced, ObjectChanged, TableNotFound
from commitlog.namespace import NAMESPACE_SCHEMA, DirectoryCommitter, Namespace
from commitlog.stores.open import open_store
from commitlog.tables.api import Item, Key
from commitlog.tables.open import open_table
from support.killed_client import kill_client
from support.runbook import Operator, at
from support.servers import Ministack

DAY = 86_400.0

FILES = {"a/1": b"one", "a/2": b"two", "b/3": b"three"}


@define
class Site:
    """A namespace ``lake`` with three files.

    Attributes:
        metadata: URL of the table.
        store: URL of the store.
        server: the server of both, if they are S3 and DynamoDB.
    """

    metadata: str
    store: str
    server: Ministack | None = None

    def create(self) -> None:
        """Create the namespace and its files."""
        if self.server is not None:
            create_table(self.metadata)
        with commitlog.create_namespace("lake", store=self.store, metadata=self.metadata) as lake:
            for path, body in FILES.items():
                lake.write(path, body)

    def operator(self, anchor: str, **names: str) -> Operator:
        """Return an operator who follows a section."""
        real = {"dynamodb://names": self.metadata, "s3://bucket/lake": self.store, **names}
        return at(anchor, real, server=self.server, COMMITLOG_METADATA=self.metadata)

    def open(self, metadata: str | None = None) -> Namespace:
        """Open the namespace."""
        return commitlog.open_namespace("lake", metadata=metadata or self.metadata)

    def tree(self) -> dict[str, bytes]:
        """Return the content of all files."""
        with self.open() as lake:
            return {found.path: lake.read(found.path) for found in lake.walk() if not found.is_directory}

    def change(self) -> dict[str, bytes]:
        """Make, replace, delete and rename files; return their content afterwards."""
        with self.open() as lake:
            lake.write("a/4", b"four")
            lake.write("a/1", b"one again")
            lake.delete("b/3")
            lake.rename("a/2", "b/2")
        return {"a/1": b"one again", "a/4": b"four", "b/2": b"two"}

    def objects(self) -> dict[str, bytes]:
        """Return all objects of the store."""
        with closing(open_store(self.store)) as store:
            return {each.path: store.get(each.path).data for each in store.list()}

    def content(self) -> list[bytes]:
        """Return the content of all files in the store, with and without a name."""
        return sorted(body for path, body in self.objects().items() if "_commitlog" not in path)

    def restore_objects(self, objects: Mapping[str, bytes]) -> None:
        """Give the store the objects of a backup, and no others."""
        present = self.objects().keys()
        with closing(open_store(self.store)) as store:
            for path in present - objects.keys():
                store.delete(path)
            for path, body in objects.items():
                store.put(path, body)

    def lose_table(self) -> None:
        """Delete the table."""
        if self.server is not None:
            name = self.metadata.removeprefix("dynamodb://")
            self.server.client("dynamodb").delete_table(TableName=name)
        else:
            file = Path(self.metadata.removeprefix("sqlite://"))
            for each in file.parent.glob(f"{file.name}*"):
                each.unlink()

    def items(self) -> list[Item]:
        """Return all items of the table."""
        with closing(open_table(self.metadata, NAMESPACE_SCHEMA)) as table:
            return list(table.scan())

    def restore_items(self, items: Sequence[Item]) -> None:
        """Give the table the items of a backup, and no others."""
        hash_key, range_key = NAMESPACE_SCHEMA.key_names
        with closing(open_table(self.metadata, NAMESPACE_SCHEMA)) as table:
            for item in list(table.scan()):
                table.delete(Key(str(item[hash_key]), str(item[range_key])))
            for item in items:
                table.put(item)


def create_table(url: str) -> None:
    """Create a table for namespaces."""
    with closing(open_table(url, NAMESPACE_SCHEMA)) as table:
        table.create()


@pytest.fixture
def site(ministack: Ministack, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A namespace in S3 and DynamoDB, which clients reach through their environment."""
    for name, value in at("trash-full", {}, server=ministack).env.items():
        monkeypatch.setenv(name, value)
    store = f"s3://{ministack.new_bucket()}/lake"
    site = Site(f"dynamodb://{ministack.new_table_name()}", store, ministack)
    site.create()
    return site


@pytest.fixture
def local(tmp_path: Path) -> Site:
    """A namespace in a directory, which dates its log by the clock of the commands."""
    site = Site(f"sqlite://{tmp_path}/names.db", f"file://{tmp_path}/store")
    site.create()
    return site


@pytest.mark.servers
def test_table_of_names_lost(site: Site) -> None:
    """All names are back."""
    with site.operator("table-of-names-lost") as operator:
        site.lose_table()
        with pytest.raises(TableNotFound):
            site.open()
        operator.looks()
        operator.checks()
        operator.does()
    assert site.tree() == FILES


@pytest.mark.all
@pytest.mark.servers
def test_table_of_names_restored_to_an_earlier_time(site: Site) -> None:
    """All changes since the backup are back."""
    backup = site.items()
    newest = site.change()
    site.restore_items(backup)
    with site.operator("table-of-names-restored-to-an-earlier-time") as operator:
        operator.looks()
        operator.checks(status=1)
        operator.does()
    assert site.tree() == newest


@pytest.mark.all
@pytest.mark.servers
def test_store_restored_to_an_earlier_time(site: Site) -> None:
    """The content that was written since is lost, and nothing else."""
    backup = site.objects()
    newest = site.change()
    site.restore_objects(backup)
    with site.operator("store-restored-to-an-earlier-time") as operator:
        with site.open() as lake, pytest.raises(ObjectChanged):
            lake.read("a/1")
        operator.looks()
        operator.does()
    assert site.tree() == {"b/2": newest["b/2"]}
    with site.open() as lake:  # the log has the same names
        lake.write("a/5", b"five")


@pytest.mark.servers
@pytest.mark.all
def test_a_repair_after_a_restore_of_the_store_brings_files_back(site: Site) -> None:
    """So the page says: write the log again from the table first."""
    backup = site.objects()
    site.change()
    site.restore_objects(backup)
    operator = site.operator("store-restored-to-an-earlier-time")
    operator.runs("commitlog namespace fsck lake --repair")
    with site.open() as lake:
        assert lake.read("b/3") == FILES["b/3"]  # it was deleted after the backup


def test_a_directory_that_was_copied_counts_as_changed(local: Site, tmp_path: Path) -> None:
    """The page says so about a restore of a local store."""
    shutil.copytree(tmp_path / "store", tmp_path / "backup")
    shutil.rmtree(tmp_path / "store")
    (tmp_path / "backup").rename(tmp_path / "store")
    operator = local.operator("store-restored-to-an-earlier-time")
    found = operator.runs("commitlog namespace fsck lake --objects").output
    assert found.count("object-changed") == len(FILES)


def test_change_pending_in_the_log(local: Site) -> None:
    """The change of the killed client stays, and the log has it."""
    with local.operator("change-pending-in-the-log") as operator:
        kill_client(local.metadata, "changed", operator.env)
        operator.clock.advance(7200)
        operator.looks()
        operator.checks(status=1)
        operator.does()
    assert local.tree() == {**FILES, "a/9": b"nine"}


@pytest.mark.parametrize("damage", ["entry", "checkpoint", "missing"])
def test_log_of_a_namespace_damaged(local: Site, damage: str) -> None:
    """All names stay, and can be restored from the new log."""
    with local.operator("log-of-a-namespace-damaged") as operator:
        if damage != "entry":
            with local.operator("log-of-a-namespace-too-long") as compacting:
                compacting.clock.advance(30 * DAY)
                compacting.has_followed("Symptom", "Check")
                compacting.does()
        part = "/decided/" if damage == "entry" else "/checkpoint-parts/"
        path = next(path for path in local.objects() if part in path)
        with closing(open_store(local.store)) as store:
            if damage == "missing":
                store.delete(path)
            else:
                store.put(path, b"damaged")
        operator.clock.advance(30 * DAY)
        operator.looks()
        operator.checks()
        operator.does()
    assert local.tree() == FILES
    with local.operator("table-of-names-lost") as operator:
        local.lose_table()
        operator.has_followed("Symptom", "Check")
        operator.does()
    assert local.tree() == FILES


def test_log_of_a_namespace_too_long(local: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkpoint has all names, and the entries are gone; the limit is that of four changes."""
    settings = functools.partial(commitlog.status.LookSettings, max_log=4)
    monkeypatch.setattr(commitlog.status, "LookSettings", settings)
    with local.operator("log-of-a-namespace-too-long") as operator:
        operator.clock.advance(30 * DAY)
        operator.looks()
        operator.checks()
        operator.does()
    assert not [key for key in local.objects() if "/decided/" in key]
    assert local.tree() == FILES
    with local.operator("table-of-names-lost") as operator:
        local.lose_table()
        operator.has_followed("Symptom", "Check")
        operator.does()
    assert local.tree() == FILES


def test_log_belongs_to_another_table(local: Site, tmp_path: Path) -> None:
    """A drill took the log. The change of the other table is lost, and it can make no other."""
    other = f"sqlite://{tmp_path}/drill.db"
    with commitlog.restore_namespace("lake", store=local.store, metadata=other) as restorer:
        restorer.restore()
    with local.open(other) as lake:
        lake.write("drill", b"1")
    with local.operator("log-belongs-to-another-table") as operator:
        operator.looks()
        operator.checks()
        operator.does()
    assert local.tree() == FILES
    with local.open(other) as lake, pytest.raises(Fenced):
        lake.write("drill", b"2")


def test_store_of_a_namespace_missing(tmp_path: Path) -> None:
    """A file system is not mounted. Only the file that was written meanwhile has no content."""
    metadata, store = f"sqlite://{tmp_path}/names.db", tmp_path / "mnt"
    with commitlog.create_namespace("lake", store=f"file://{store}", metadata=metadata) as lake:
        for path, body in FILES.items():
            lake.write(path, body)
    store.rename(tmp_path / "unmounted")
    store.mkdir()
    with commitlog.open_namespace("lake", metadata=metadata) as lake:
        lake.write("new", b"new")
    names = {"sqlite:///var/names.db": metadata, "file:///mnt/store": f"file://{store}"}
    with at("store-of-a-namespace-missing", names, COMMITLOG_METADATA=metadata) as operator:
        operator.looks()
        operator.checks()
        store.rename(tmp_path / "below")
        (tmp_path / "unmounted").rename(store)
        operator.does(status=1)
    with commitlog.open_namespace("lake", metadata=metadata) as lake:
        assert {path: lake.read(path) for path in FILES} == FILES
        with pytest.raises(ObjectChanged):
            lake.read("new")
    assert b"new" in {file.read_bytes() for file in (tmp_path / "below").rglob("*") if file.is_file()}


def test_trash_full(local: Site) -> None:
    """Only what has no name is removed."""
    with local.open() as lake:
        lake.write("b/3", b"new")
        lake.delete("a", recursive=True)
    with local.operator("trash-full") as operator:
        operator.clock.advance(8 * DAY)
        operator.looks()
        operator.does()
        assert local.content() == [b"new", b"one", b"two"]
        operator.clock.advance(7200)
        operator.does(output=False)
    assert local.content() == [b"new"]
    assert local.tree() == {"b/3": b"new"}


@pytest.mark.all
@pytest.mark.servers
def test_job_of_a_namespace_died(site: Site) -> None:
    """Nothing of the job is there, and it can run again."""
    with site.operator("job-of-a-namespace-died") as operator:
        kill_client(site.metadata, "staged", operator.env)
        operator.clock.advance(8 * DAY)
        operator.looks()
        operator.checks()
        operator.does()
    assert site.tree() == FILES
    with closing(open_store(site.store)) as store:
        assert not list(store.list_staged())
    with site.open() as lake:
        committer = DirectoryCommitter(lake, "daily")
        attempt = committer.begin("load")
        with lake.open_writer("part-0") as writer:
            length = writer.write(b"rows")
            files = {"part-0": writer.finish()}
        assert length == 4
        committer.publish(attempt, files)
    assert site.tree() == {**FILES, "daily/part-0": b"rows"}


@pytest.mark.all
@pytest.mark.servers
def test_two_namespaces_on_one_store(site: Site) -> None:
    """Neither changes the other."""
    assert site.server is not None
    second = f"dynamodb://{site.server.new_table_name()}"
    create_table(second)
    with commitlog.create_namespace("other", store=site.store, metadata=second) as other:
        other.write("x", b"x")
        with site.operator("two-namespaces-on-one-store", **{"dynamodb://second": second}) as operator:
            operator.clock.advance(9 * DAY)
            operator.looks()
            operator.checks()
        other.delete("x")
        other.maintenance.gc()
    assert site.tree() == FILES


def test_record_of_a_namespace_damaged(local: Site) -> None:
    """Both records are restored from the log."""
    with local.open() as lake:
        lake.write("b/3", b"new")
        entry = lake.stat("a/1").entry.key
    hash_key, range_key = NAMESPACE_SCHEMA.key_names
    with closing(open_table(local.metadata, NAMESPACE_SCHEMA)) as table:
        [garbage] = [
            Key(str(item[hash_key]), str(item[range_key]))
            for item in table.scan()
            if str(item[hash_key]).startswith("lake/x/")
        ]
        for key in (entry, garbage):
            table.put({hash_key: key.hash, range_key: key.range, "kind": "other"})
    with local.operator("record-of-a-namespace-damaged") as operator:
        operator.looks()
        operator.checks(status=1)
        operator.does()
    assert local.tree() == {**FILES, "b/3": b"new"}
    with local.operator("trash-full") as operator:
        operator.has_followed("Symptom")
        operator.clock.advance(7200)
        operator.does(output=False)
    assert local.content() == sorted([b"one", b"two", b"new"])
