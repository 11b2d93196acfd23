"""Sources on real stores and tables: a local directory with SQLite, and S3 with DynamoDB."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from attrs import evolve

from commitlog.clock import SystemClock
from commitlog.errors import InvalidPath
from commitlog.ingest import INGEST_SCHEMA, IngestAdmin, IngestSettings, PathFilter, Slice
from commitlog.stores.api import ObjectStore
from commitlog.stores.open import open_store
from commitlog.tables.api import Table
from commitlog.tables.open import open_table
from support.ingest import Checkpoint, Engine
from support.servers import Ministack

SETTINGS = IngestSettings(source="s", prefix="in/", max_files=7, max_bytes=40, slice_bytes=8)


def run(
    store: Callable[[], ObjectStore], table: Callable[[], Table], put: Callable[[str, bytes], object]
) -> None:
    """Run a query in several processes' lives, each with its own clients, while objects arrive."""
    checkpoint = Checkpoint()
    contents: dict[str, bytes] = {}

    def life() -> list[Slice]:
        before = len(checkpoint.sink)
        with_store, with_table = store(), table()
        Engine(
            store=with_store,
            table=with_table,
            settings=SETTINGS,
            clock=SystemClock(),
            checkpoint=checkpoint,
            splits=True,
        ).drain()
        assert IngestAdmin(with_store, with_table, SETTINGS).backlog().files == 0
        with_store.close()
        with_table.close()
        new = range(before, len(checkpoint.sink))
        return [each for number in new for each in checkpoint.slices[number]]

    for number in range(20):
        path = f"in/{number % 3}/ü %2F{number}.json"
        contents[path] = bytes(number % 7)
        put(path, contents[path])
    assert len({each.file.path for each in life()}) == 20
    assert life() == []
    put("in/0/ü %2F0.json", b"no longer empty")
    put("in/new", b"12")
    assert {each.file.path for each in life()} == {"in/0/ü %2F0.json", "in/new"}
    assert life() == []
    assert set(checkpoint.records.values()) == {1}
    assert (
        len(checkpoint.records) == sum(number % 7 for number in range(20)) + len(b"no longer empty") + 2
    )


def test_files_of_a_directory_are_read_once(tmp_path: Path) -> None:
    """Other programs move files into the directory. The state is in SQLite."""
    root = tmp_path / "files"
    (tmp_path / "outside").mkdir()

    def put(path: str, body: bytes) -> None:
        file = tmp_path / "outside" / "file"
        file.write_bytes(body)
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        os.replace(file, root / path)

    def table() -> Table:
        opened = open_table(f"sqlite:///{tmp_path}/state.db", INGEST_SCHEMA)
        opened.create()
        return opened

    run(lambda: open_store(str(root)), table, put)


@pytest.mark.servers
@pytest.mark.parametrize("kind", ["ministack", "seaweedfs"])
def test_objects_of_a_bucket_are_read_once(
    kind: str, ministack: Ministack, request: pytest.FixtureRequest
) -> None:
    """The state is in DynamoDB."""
    server = request.getfixturevalue(kind)
    bucket, name = server.new_bucket(), ministack.new_table_name()

    def store() -> ObjectStore:
        return open_store(f"s3://{bucket}/below", **server.options)

    def table() -> Table:
        opened = open_table(f"dynamodb://{name}", INGEST_SCHEMA, **ministack.options)
        opened.create()
        return opened

    def put(path: str, body: bytes) -> None:
        opened = store()
        opened.put(path, body)
        opened.close()

    run(store, table, put)


@pytest.mark.servers
def test_invalid_keys_are_problems_or_an_error(ministack: Ministack) -> None:
    """Keys of other tools such as ``a//b`` are listed, and are quarantined or fail the query."""
    bucket, name = ministack.new_bucket(), ministack.new_table_name()
    odd = ["in//a", "in/b//c", "in/./d", "in/e/../f"]
    for key in [*odd, "in/a", "in/z"]:
        ministack.client("s3").put_object(Bucket=bucket, Key=key, Body=b"12")
    store = open_store(f"s3://{bucket}", **ministack.options)
    table = open_table(f"dynamodb://{name}", INGEST_SCHEMA, **ministack.options)
    table.create()
    failing = IngestSettings(source="s", prefix="in/", names=PathFilter(hidden=True), max_files=1)
    passing = evolve(failing, unreadable="quarantine")
    checkpoint = Checkpoint()

    def engine(settings: IngestSettings) -> Engine:
        return Engine(
            store=store, table=table, settings=settings, clock=SystemClock(), checkpoint=checkpoint
        )

    with pytest.raises(InvalidPath, match=r"path 'in/./d' has the segment '.'"):
        engine(failing).drain()
    engine(passing).drain()
    assert {path for path, _, _ in checkpoint.records} == {"in/a", "in/z"}
    problems = list(IngestAdmin(store, table, passing).problems())
    assert sorted(each.slice.file.path for each in problems) == sorted(odd)
    assert {each.kind for each in problems} == {"unreadable"}
    store.close()
    table.close()
