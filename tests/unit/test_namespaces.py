"""Namespaces opened by name: the location of their names, content and log, and refused arguments."""

from __future__ import annotations

import pickle
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from commitlog.errors import AlreadyExists, ConfigurationError, NotFound, TableNotFound
from commitlog.namespace import Namespace, creation
from commitlog.namespace.model.keys import Keys
from commitlog.namespaces import (
    METADATA,
    create_namespace,
    list_namespaces,
    metadata_table_url,
    open_namespace,
    open_parts,
    parse_url,
    restore_namespace,
    store_of,
)
from commitlog.stores.api import ObjectData, ObjectStore
from commitlog.stores.local.store import LocalStore
from commitlog.stores.s3.store import S3Store
from commitlog.tables.sqlite import SqliteTable
from commitlog.testing import ManualClock
from commitlog.urls import parse_store_url
from support.servers import Ministack


@pytest.fixture
def names(tmp_path: Path) -> str:
    """A metadata table."""
    return f"sqlite://{tmp_path / 'names.db'}"


@pytest.fixture
def store(tmp_path: Path) -> str:
    """A directory for content."""
    return str(tmp_path / "content")


def test_a_namespace_is_created_and_opened_by_its_name(names: str, store: str) -> None:
    """The metadata table and the name of the namespace lead to its content and its log."""
    with create_namespace("lake", store=store, metadata=names) as lake:
        lake.write("a/b", b"rows")
    with open_namespace("lake", metadata=names) as again:
        assert again.read("a/b") == b"rows"
        again.rename("a", "c")
    logged = sorted(Path(store).glob("_commitlog/namespaces/lake/log/decided/*"))
    assert len(logged) == 3


def test_the_parts_of_a_namespace_open_in_another_process(names: str, store: str) -> None:
    """A task gets a function that can be pickled; it needs no record of the namespace."""
    with create_namespace("lake", store=store, metadata=names) as lake:
        lake.write("a", b"1")
        known = lake.describe()
    task = partial(open_parts, "lake", metadata=names, store=store_of(known), log=known.log)
    with pickle.loads(pickle.dumps(task))() as parts:
        assert len([*parts.log.decided_names()]) == 2
        assert any(item.get("name") == "a" for item in parts.table.scan())
        assert any(parts.store.list())
        parts.table.delete(Keys("lake").metadata)
    with open_parts("lake", metadata=names, store=store) as parts:
        assert len([*parts.log.decided_names()]) == 2


def test_the_metadata_table_is_an_argument_or_in_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without either, the error names both."""
    monkeypatch.delenv(METADATA, raising=False)
    with pytest.raises(ConfigurationError, match=METADATA):
        metadata_table_url(None)
    monkeypatch.setenv(METADATA, "memory://there")
    assert metadata_table_url(None) == "memory://there"
    assert metadata_table_url("memory://here") == "memory://here"


def test_options_of_the_creator_are_left_out_of_the_store(names: str, store: str) -> None:
    """Another client has other credentials."""
    with create_namespace("lake", store=store, metadata=names) as lake:
        known = evolve(lake.describe(), store="s3://bucket/lake?region=eu-west-1&profile=me")
    assert dict(store_of(known).options) == {"region": "eu-west-1"}


@pytest.mark.servers
@pytest.mark.parametrize("local", [True, False])
def test_the_log_of_a_server_is_read_by_several_threads(
    local: bool, names: str, store: str, ministack: Ministack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log in a local directory is read by one thread, because threads would make it slower."""
    place = parse_store_url(store)
    if not local:
        place = parse_store_url(f"s3://{ministack.new_bucket()}").with_options(ministack.options)
    readers = set()
    kind: type[ObjectStore] = LocalStore if local else S3Store
    get = kind.get

    def recorded(self: ObjectStore, path: str, **options: Any) -> ObjectData:
        readers.add(threading.current_thread())
        return get(self, path, **options)

    with create_namespace("lake", store=place, metadata=names, commit="native") as lake:
        for number in range(5):
            lake.write(f"f{number}", b"")
        monkeypatch.setattr(kind, "get", recorded)
        lake.maintenance.fsck()
    assert readers
    assert (readers == {threading.current_thread()}) == local


def test_the_rate_of_writes_may_be_limited(names: str, store: str) -> None:
    """A change waits until its write units are paid for; so does a restore."""
    create_namespace("lake", store=store, metadata=names).close()
    clock = ManualClock()
    with open_namespace("lake", metadata=names, clock=clock, write_units=0.5) as lake:
        lake.write("a", b"1")  # an entry and a guard record, in a transaction
        assert clock.monotonic() == 8
        assert lake.read("a") == b"1" and clock.monotonic() == 8
    copy = f"{names}-copy"
    with restore_namespace("lake", store=store, metadata=copy, clock=clock, write_units=0.5) as restorer:
        done = restorer.restore(read_only=True)
    assert clock.monotonic() >= 8 + 4 * done.records
    with pytest.raises(ConfigurationError, match="write_units"):
        open_namespace("lake", metadata=names, write_units=0)


def test_creating_an_existing_namespace_opens_it(names: str, store: str) -> None:
    """It keeps the log setting that it was created with."""
    for log in (False, True):
        with create_namespace("lake", store=store, metadata=names, log=log) as lake:
            lake.write(f"log={log}", b"")
            assert lake.describe().log is None
    assert [each.name for each in Path(store, "_commitlog/namespaces/lake").iterdir()] == ["mark"]


def test_the_content_of_a_namespace_is_in_one_store(names: str, tmp_path: Path) -> None:
    """Creating an existing namespace with another store is an error and writes nothing there."""
    here, there, link = (str(tmp_path / name) for name in ("here", "there", "link"))
    create_namespace("lake", store=here, metadata=names).close()
    with pytest.raises(ConfigurationError, match=r"is in file://.*/here, not in file://.*/there"):
        create_namespace("lake", store=there, metadata=names)
    assert not Path(there).exists()
    Path(here).mkdir(exist_ok=True)
    Path(link).symlink_to(here)
    create_namespace("lake", store=link, metadata=names).close()


def test_the_second_of_two_concurrent_creations_with_different_stores_fails(
    names: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the store of the first creation, even if the first check found no namespace."""
    create = Namespace.create

    def second(lake: Namespace) -> bool:
        monkeypatch.setattr(Namespace, "create", create)
        create_namespace("lake", store=str(tmp_path / "first"), metadata=names).close()
        return lake.create()

    monkeypatch.setattr(Namespace, "create", second)
    with pytest.raises(ConfigurationError, match=r"is in file://.*/first, not in file://.*/second"):
        create_namespace("lake", store=str(tmp_path / "second"), metadata=names)
    with open_namespace("lake", metadata=names) as lake:
        assert lake.store.url.endswith("/first")


def test_a_namespace_whose_table_is_lost_is_restored_and_not_created_again(
    names: str, store: str, tmp_path: Path
) -> None:
    """Opening or creating it raises an error that refers to its log. After a restore it works again."""
    with create_namespace("lake", store=store, metadata=names) as lake:
        lake.write("f", b"rows")
    for file in tmp_path.glob("names.db*"):
        file.unlink()
    with pytest.raises(AlreadyExists, match="restore it"):
        create_namespace("lake", store=store, metadata=names)
    with pytest.raises(NotFound, match="if its table was lost, restore it from its log"):
        open_namespace("lake", metadata=names)
    with restore_namespace("lake", store=store, metadata=names) as restorer:
        restorer.restore()
    with create_namespace("lake", store=store, metadata=names) as lake:
        assert lake.read("f") == b"rows"


def test_a_failed_open_closes_the_table(names: str, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table is closed after a missing namespace and after invalid arguments."""
    create_namespace("lake", store=store, metadata=names).close()
    opened: list[SqliteTable] = []
    closed: list[SqliteTable] = []
    opening, closing = SqliteTable.__init__, SqliteTable.close

    def opens(table: SqliteTable, *args: Any, **options: Any) -> None:
        opening(table, *args, **options)
        opened.append(table)

    def closes(table: SqliteTable) -> None:
        closing(table)
        closed.append(table)

    monkeypatch.setattr(SqliteTable, "__init__", opens)
    monkeypatch.setattr(SqliteTable, "close", closes)
    with pytest.raises(NotFound):
        open_namespace("land", metadata=names)
    with pytest.raises(ConfigurationError):
        open_namespace("lake", metadata=names, commit="none")
    with pytest.raises(ConfigurationError):
        create_namespace("land", store=store, metadata=names, commit="none")
    assert closed == opened
    assert len(opened) == 3


def test_the_table_of_names_may_come_from_the_environment(
    names: str, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment variable is the default. Without it, the error asks for a metadata table."""
    monkeypatch.delenv(METADATA, raising=False)
    with pytest.raises(ConfigurationError, match=r"no metadata table is given: .*sqlite:///ABSOLUTE"):
        open_namespace("lake")
    monkeypatch.setenv(METADATA, names)
    create_namespace("lake", store=store).close()
    open_namespace("lake").close()
    create_namespace("land", store=store).close()
    assert list(list_namespaces()) == ["lake", "land"]


def test_a_namespace_that_is_not_there(names: str, store: str) -> None:
    """A missing table or namespace is an error, and opening does not create it."""
    with pytest.raises(TableNotFound):
        open_namespace("lake", metadata=names)
    create_namespace("lake", store=store, metadata=names).close()
    with pytest.raises(NotFound, match="there is no namespace 'land'"):
        open_namespace("land", metadata=names)


def test_content_may_be_reached_by_another_url(
    names: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory may be mounted elsewhere. Another kind of store or another bucket is refused."""
    config = tmp_path / "config"
    config.write_text("[profile mine]\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    with create_namespace("lake", store=str(tmp_path / "here"), metadata=names, log=False) as lake:
        lake.write("a", b"1")
    (tmp_path / "here").rename(tmp_path / "there")
    with open_namespace("lake", metadata=names, store=str(tmp_path / "there")) as lake:
        assert lake.read("a") == b"1"
    with pytest.raises(ConfigurationError, match="is in file://"):
        open_namespace("lake", metadata=names, store="s3://bucket")
    remote = "s3://bucket/a?region=eu-west-1&profile=mine"
    monkeypatch.setattr(
        creation, "store_identity_object", lambda context, path: False
    )  # no request reaches that bucket
    with create_namespace("remote", store=remote, metadata=names, log=False) as lake:
        assert lake.store.url == "s3://bucket/a?profile=mine&region=eu-west-1"
    config.unlink()
    with open_namespace("remote", metadata=names) as lake:  # with other profiles configured
        assert lake.store.url == "s3://bucket/a?region=eu-west-1"
    open_namespace(
        "remote", metadata=names, store="s3://bucket/a?endpoint_url=http://127.0.0.1:9"
    ).close()
    with pytest.raises(ConfigurationError, match="is in s3://bucket/a"):
        open_namespace("remote", metadata=names, store="s3://bucket/b")


@pytest.mark.parametrize("url", ["lake/a", "s3://lake/a", "commitlog:lake", "commitlog:///a", 5])
def test_other_urls_are_refused(url: str) -> None:
    """A text that is not the URL of a namespace is refused."""
    with pytest.raises(ConfigurationError):
        parse_url(url)


@pytest.mark.parametrize(
    "url", ["s3://key:SECRET@b/a", "commitlog://key:SECRET@lake", "lake?secret=SECRET"]
)
def test_an_invalid_name_that_looks_like_a_url_is_not_in_the_error(url: str) -> None:
    """It may contain a secret."""
    for refused in (parse_url, lambda name: open_namespace(name, metadata="memory://")):
        with pytest.raises(ConfigurationError) as reported:
            refused(url)
        assert "SECRET" not in str(reported.value)


def test_the_path_of_a_url_is_not_decoded() -> None:
    """A path may have any character that a name may have."""
    assert parse_url("commitlog://lake/a%20b?c#d") == ("lake", "a%20b?c#d")
