"""Connections: from URLs and settings to a store."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest

import commitlog
from commitlog import connect as function
from commitlog.commit.probe_report import Kind, ProbeReport
from commitlog.commit.record import LEASE_SCHEMA, LeaseRecord
from commitlog.connect import _DeferredWait, connect
from commitlog.errors import AlreadyExists, ConfigurationError, NotSupported, TableNotFound
from commitlog.tables.api import Key
from commitlog.tables.open import open_table
from commitlog.tables.sqlite import SqliteTable


def test_the_package_offers_the_function() -> None:
    """`commitlog.connect` is the function, even if the module of that name was imported before."""
    import commitlog.connect as module

    assert module is connect is function is commitlog.connect


def test_names_of_the_package_exist() -> None:
    """Every name in ``__all__`` exists, and the version is a number."""
    assert all(hasattr(commitlog, name) for name in commitlog.__all__)
    assert commitlog.__version__[0].isdigit()
    with pytest.raises(AttributeError):
        commitlog.no_such_name  # noqa: B018


def test_connecting_in_memory_loads_no_client() -> None:
    """boto3 and botocore are loaded with the first URL that needs them."""
    code = """
import sys, commitlog
commitlog.connect("memory://", commit="lease", table="memory://").put_if_absent("a", b"")
assert not {"boto3", "botocore", "sqlite3", "pyspark", "pyarrow"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_directory_is_native(tmp_path: Path) -> None:
    """The embedded default needs neither a service nor a table."""
    with connect(str(tmp_path)) as store:
        store.put_if_absent("a", b"")
        with pytest.raises(AlreadyExists):
            store.put_if_absent("a", b"")


@pytest.mark.parametrize("how", ["table", "settings"])
def test_a_sqlite_table_is_made(tmp_path: Path, how: str) -> None:
    """An embedded table needs no setup. Leases are kept in it."""
    url = f"sqlite://{tmp_path}/commits.db"
    arguments: dict[str, Any] = {"commit": "lease", "table": url}
    if how == "settings":
        arguments = {"commit": commitlog.SqliteCommit(tmp_path / "commits.db", timeout=7.0)}
    with connect("memory://", **arguments) as store:
        store.put_if_absent("a", b"")
    item = open_table(url, LEASE_SCHEMA).get(Key("a", "*"))
    assert item is not None
    assert LeaseRecord.from_item(item).released


@pytest.mark.parametrize(
    "wrong",
    [
        {"commit": "lease"},
        {"commit": "always"},
        {"commit": "dynamo"},
        {"commit": "dynamo:no/table"},
        {"commit": "native", "table": "memory://"},
        {"commit": "dynamo:commits", "table": "memory://"},
        {"commit": commitlog.DynamoCommit("commits"), "table": "memory://"},
        {"table": "s3://bucket"},
        {"region": "eu-west-1"},
    ],
)
def test_contradictory_arguments_are_refused(wrong: dict[str, Any]) -> None:
    """They are refused before a request is sent."""
    with pytest.raises(ConfigurationError):
        connect("memory://", **wrong)


def test_a_refused_connection_closes_its_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the file stays open."""
    closed: list[str] = []
    monkeypatch.setattr(SqliteTable, "close", lambda self: closed.append(self.url))
    other = ProbeReport(url="s3://other", rows=())
    table = f"sqlite://{tmp_path}/leases.db"
    with pytest.raises(ConfigurationError, match="probe report"):
        connect("s3://bucket", region="eu-west-1", table=table, probe_report=other)
    assert closed == [table]


def test_a_probe_report_is_used(tmp_path: Path) -> None:
    """A store that was probed before is not probed again."""
    probe_report = commitlog.ProbeReport(url="memory://", rows=())
    assert connect("memory://", probe_report=probe_report).probe_report == probe_report


S3 = {
    "endpoint_url": "http://127.0.0.1:1",
    "region": "eu-west-1",
    "access_key_id": "key",
    "secret_access_key": "secret",
}


def _table_options(monkeypatch: pytest.MonkeyPatch, **arguments: Any) -> dict[str, str]:
    seen: list[Any] = []

    def spy(url: Any, schema: Any, **_: Any) -> Any:
        seen.append(url)
        return open_table("memory://", schema)

    monkeypatch.setattr("commitlog.tables.open.open_table", spy)
    connect("s3://bucket", **S3, **arguments)
    return dict(seen[0].options)


def test_object_stores_spelling_shares_the_options_of_s3(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in object_store, S3 and DynamoDB share one endpoint."""
    assert _table_options(monkeypatch, commit="dynamo:commits", addressing_style="path") == S3


def test_a_table_has_its_own_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """An endpoint for S3 alone does not apply to the table."""
    assert _table_options(monkeypatch, table="dynamodb://commits?region=us-east-1") == {
        "region": "us-east-1"
    }
    commit = commitlog.DynamoCommit("commits", endpoint_url="http://127.0.0.1:2")
    assert _table_options(monkeypatch, commit=commit) == {"endpoint_url": "http://127.0.0.1:2"}


def test_the_response_to_a_release_is_read_before_the_next_release() -> None:
    """Each thread reads its own response at its next call, and no response twice."""
    read: list[str] = []
    later = _DeferredWait()
    later(lambda: read.append("one"))
    assert read == []
    other = threading.Thread(target=later, args=(lambda: read.append("other"),))
    other.start()
    other.join()
    later(lambda: read.append("two"))
    later(lambda: read.append("three"))
    assert read == ["one", "two"]


def test_a_forked_child_leaves_the_response_to_its_parent() -> None:
    """Otherwise both would read from one connection."""
    read: list[str] = []
    later = _DeferredWait()
    later(lambda: read.append("parent's"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a fork in a process with threads
        child = os.fork()
    if child == 0:
        try:
            later(lambda: None)
        finally:
            os._exit(len(read))
    assert os.waitpid(child, 0)[1] == 0
    later(lambda: None)
    assert read == ["parent's"]


@pytest.mark.servers
def test_auto_measures_and_chooses(ministack: Any) -> None:
    """Puts use native conditions. The server ignores the condition of a copy, so copies need a table."""
    url = f"s3://{ministack.new_bucket()}/below"
    with connect(url, **ministack.options) as store:
        store.put_if_absent("a", b"one")
        with pytest.raises(AlreadyExists):
            store.put_if_absent("a", b"two")
        with pytest.raises(NotSupported, match="copy-if-absent"):
            store.copy_if_absent("a", "b")
        assert store.probe_report.proves(Kind.PUT_IF_ABSENT)
        assert [info.path for info in store.list()] == ["a"]


@pytest.mark.servers
def test_a_missing_table_is_named(ministack: Any) -> None:
    """It is named before anything is written."""
    url = f"s3://{ministack.new_bucket()}"
    with connect(url, commit="dynamo:nowhere", **ministack.options) as store:
        with pytest.raises(TableNotFound, match="nowhere"):
            store.put_if_absent("a", b"one")
        assert not list(store.list())
