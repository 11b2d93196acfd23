"""Sources on real stores and tables: a local directory with SQLite, and S3 with DynamoDB."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from attrs import evolve

from commitlog.clock import SystemClock
from commitlog.connect import connect
from commitlog.errors import InvalidPath, NotSupported
from commitlog.ingest import (
    INGEST_SCHEMA,
    Cleaner,
    IngestAdmin,
    IngestSettings,
    PathFilter,
    Slice,
    store_to_clean,
)
from commitlog.stores.api import ObjectStore
from commitlog.stores.open import open_store
from commitlog.tables.api import Table
from commitlog.tables.open import open_table
from commitlog.urls import parse_store_url
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


def clean(place: str, table: Table, **options: str) -> list[str]:
    """Deliver three objects below `place`, put a new version of one, and clean; return the rest.

    Two cleaners work at once. Where a copy has another etag, each may have archived an object: the
    second copy is left out of the result.
    """
    settings = IngestSettings(source="clean", remember="everything", clean="archive", archive="_old/x/")
    url = parse_store_url(place).with_options(options)
    whole, below = store_to_clean(url, settings)
    with closing(open_store(url)) as store, closing(connect(whole, commit="native")) as opened:
        for path in ("a", "in/ü %2F.json", "in/c"):
            store.put(path, b"12")
        engine = Engine(store=store, table=table, settings=settings, clock=SystemClock())
        engine.drain()
        store.put("a", b"newer")
        with ThreadPoolExecutor(2) as executor:
            cleaners = [Cleaner(opened, table, settings, below=below) for _ in range(2)]
            found = list(executor.map(lambda cleaner: cleaner.clean(), cleaners))
        assert sum(each.files for each in found) >= 2
        assert {path for path, _, _ in engine.checkpoint.records} == {"a", "in/ü %2F.json", "in/c"}
        assert engine.drain() == 1
        assert store.get("a").data == b"newer"
        second = re.compile(r"(?P<stem>_old/x/.*)\.[0-9a-f]{16}(?P<suffix>\.json)?")
        rest = [info.path for info in opened.object_store.list()]
        twice = [match for path in rest if (match := second.fullmatch(path))]
        for match in twice:
            first = f"{match['stem']}{match['suffix'] or ''}"
            assert first in rest and opened.get(first).data == opened.get(match[0]).data
        return [path for path in rest if path not in {match[0] for match in twice}]


def test_files_of_a_directory_are_archived(tmp_path: Path) -> None:
    """The archive is a hidden directory of the input."""
    table = open_table(f"sqlite:///{tmp_path}/state.db", INGEST_SCHEMA)
    table.create()
    assert clean(f"{tmp_path}/in", table) == ["_old/x/in/c", "_old/x/in/ü %2F.json", "a"]
    table.close()


@pytest.mark.all
@pytest.mark.servers
def test_objects_of_a_bucket_are_archived_or_refused(
    ministack: Ministack, request: pytest.FixtureRequest
) -> None:
    """Servers that ignore the condition of a deletion, or cannot be trusted with it, are found out."""
    table = open_table(f"dynamodb://{ministack.new_table_name()}", INGEST_SCHEMA, **ministack.options)
    table.create()
    done = 0
    for kind in ("ministack", "seaweedfs"):
        server = request.getfixturevalue(kind)
        bucket = server.new_bucket()
        try:
            left = clean(f"s3://{bucket}/below", table, **server.options)
        except NotSupported:
            continue
        finally:
            IngestAdmin(None, table, IngestSettings(source="clean")).reset()
        done += 1
        assert left == ["_old/x/below/in/c", "_old/x/below/in/ü %2F.json", "below/a"]
    assert done
    table.close()


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
