"""States of ingest, from the runbook: what the page shows, does, and says about the loss."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from attrs import define, field

from commitlog.clock import SystemClock
from commitlog.errors import (
    BucketNotFound,
    CorruptRecord,
    InputUnreadable,
    StateMismatch,
    TableNotFound,
)
from commitlog.ingest import INGEST_SCHEMA, IngestSettings, Pinned, Slice, SourceMetadata, StateTable
from commitlog.stores.open import open_store
from commitlog.tables.api import Key, Table
from commitlog.tables.open import open_table
from support.ingest import Checkpoint, Engine, Record
from support.runbook import Operator, at
from support.servers import Ministack


@define
class Site:
    """A query that reads a bucket or a directory, and its state.

    Attributes:
        input: URL of the input.
        state: URL of the table of the state.
        server: the server of both, if they are S3 and DynamoDB.
        checkpoint: the checkpoint of the query, and what its sink has.
        bad: a path whose content the reader cannot read after the second byte.
    """

    input: str
    state: str
    server: Ministack | None = None
    checkpoint: Checkpoint = field(factory=Checkpoint)
    bad: str = ""

    def operator(self, anchor: str, **names: str) -> Operator:
        """Return an operator who follows a section."""
        return at(anchor, {"dynamodb://ingest": self.state, **names}, server=self.server)

    def table(self) -> Table:
        """Open the table of the state."""
        return open_table(self.state, INGEST_SCHEMA)

    def put(self, **files: bytes) -> None:
        """Store files."""
        with closing(open_store(self.input)) as store:
            for path, body in files.items():
                store.put(path, body)

    def run(self, checkpoint: Checkpoint | None = None, **settings: Any) -> None:
        """Run the query until nothing waits, with its checkpoint or another one."""
        options = IngestSettings(source="events", **settings)
        with closing(open_store(self.input)) as store, closing(self.table()) as table:
            engine = Engine(
                store=store,
                table=table,
                settings=options,
                clock=SystemClock(),
                checkpoint=self.checkpoint if checkpoint is None else checkpoint,
                decode=self._decode,
            )
            StateTable(table, "events").describe(
                SourceMetadata(url=self.input, format="json", settings=options)
            )
            engine.drain()

    def _decode(self, pinned: Pinned, slice: Slice) -> Iterator[list[Record]]:
        path = slice.file.path
        data = pinned.get(path)
        records = [(path, data.etag, byte) for byte in data.data]
        yield records[:2]
        if path == self.bad:
            raise InputUnreadable(f"{path!r} is not JSON at byte 2", offset=2)
        if records[2:]:
            yield records[2:]


def delivered(checkpoint: Checkpoint) -> dict[str, list[int]]:
    """Return the bytes of each file that the sink of a query has, in order."""
    found: dict[str, list[int]] = {}
    for path, _, byte in checkpoint.records.elements():
        found.setdefault(path, []).append(byte)
    return {path: sorted(body) for path, body in found.items()}


def whole(**files: bytes) -> dict[str, list[int]]:
    """Return the bytes of files, each once."""
    return {path: sorted(body) for path, body in files.items()}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """A directory with one file, which the query has delivered."""
    site = Site(f"file://{tmp_path}/in", f"sqlite://{tmp_path}/state.db")
    with closing(site.table()) as table:
        table.create()
    site.put(a=b"abc")
    site.run()
    return site


@pytest.fixture
def remote(ministack: Ministack, monkeypatch: pytest.MonkeyPatch) -> Site:
    """The same on S3 and DynamoDB."""
    for name, value in at("input-not-reachable", {}, server=ministack).env.items():
        monkeypatch.setenv(name, value)
    table = f"dynamodb://{ministack.new_table_name()}"
    site = Site(f"s3://{ministack.new_bucket()}/in", table, ministack)
    with closing(site.table()) as opened:
        opened.create()
    site.put(a=b"abc")
    site.run()
    return site


def test_query_stopped_or_too_slow(site: Site) -> None:
    """The query continues where it stopped."""
    site.put(late=b"de")
    with site.operator("query-stopped-or-too-slow") as operator:
        operator.clock.advance(7200)
        operator.looks()
        operator.checks()
        operator.does()
    site.run()
    assert delivered(site.checkpoint) == whole(a=b"abc", late=b"de")


def test_file_quarantined(site: Site) -> None:
    """A retry delivers exactly the missing records; a corrected file all of its records."""
    site.put(bad=b"123456")
    site.bad = "bad"
    with site.operator("file-quarantined") as operator:
        with pytest.raises(InputUnreadable) as caught:
            site.run()
        operator.sees(caught.value)
        site.run(unreadable="quarantine")
        assert delivered(site.checkpoint) == whole(a=b"abc", bad=b"12")
        operator.looks()
        operator.checks()
        site.bad = ""  # the reader is corrected
        operator.does()
    site.run(unreadable="quarantine")
    assert delivered(site.checkpoint) == whole(a=b"abc", bad=b"123456")
    assert max(site.checkpoint.records.values()) == 1


def test_a_corrected_file_is_delivered_as_a_whole(site: Site) -> None:
    """The other half of the section on quarantined files."""
    site.put(bad=b"123456")
    site.bad = "bad"
    site.run(unreadable="quarantine")
    site.bad = ""
    site.put(bad=b"12345678")
    site.run(unreadable="quarantine")
    found = Counter(delivered(site.checkpoint)["bad"])
    assert found == Counter(b"12") + Counter(b"12345678")


@pytest.mark.all
@pytest.mark.servers
def test_input_not_reachable(remote: Site) -> None:
    """The bucket is deleted, and comes back with another file."""
    assert remote.server is not None
    client, bucket = remote.server.client("s3"), remote.input.split("/")[2]
    client.delete_object(Bucket=bucket, Key="in/a")
    client.delete_bucket(Bucket=bucket)
    with remote.operator("input-not-reachable", **{"s3://bucket": f"s3://{bucket}"}) as operator:
        operator.looks()
        operator.checks(status=1)
        with pytest.raises(BucketNotFound):
            remote.run()
        client.create_bucket(Bucket=bucket)
        remote.put(new=b"de")
        operator.does()
    remote.run()
    assert delivered(remote.checkpoint) == whole(a=b"abc", new=b"de")


def test_a_directory_that_is_not_mounted(site: Site, tmp_path: Path) -> None:
    """The other half of that section: the query goes on, and each file comes once."""
    site.put(new=b"de")
    (tmp_path / "in").rename(tmp_path / "elsewhere")
    site.run()
    operator = site.operator("input-not-reachable")
    found = operator.runs("commitlog status dynamodb://ingest").output
    assert f"! unreachable-input: 1: source 'events': {tmp_path}/in is not there: mount it" in found
    (tmp_path / "elsewhere").rename(tmp_path / "in")
    site.run()
    assert delivered(site.checkpoint) == whole(a=b"abc", new=b"de")


@pytest.mark.servers
def test_state_of_ingest_lost(remote: Site) -> None:
    """The query reads nothing more with its checkpoint, and everything with a new one."""
    assert remote.server is not None
    table = remote.state.removeprefix("dynamodb://")
    remote.server.client("dynamodb").delete_table(TableName=table)
    remote.put(b=b"de")
    with remote.operator("state-of-ingest-lost") as operator:
        operator.looks()
        with pytest.raises(TableNotFound):
            remote.run()
        operator.checks(status=1)
        operator.does()
        with pytest.raises(StateMismatch) as caught:
            remote.run()
        operator.sees(caught.value)
    assert delivered(remote.checkpoint) == whole(a=b"abc")
    again = Checkpoint()
    remote.run(again)
    assert delivered(again) == whole(a=b"abc", b=b"de")


def save_state(directory: Path) -> None:
    """Copy the table of the state."""
    (directory / "backup").mkdir()
    for file in directory.glob("state.db*"):
        shutil.copy2(file, directory / "backup")


def restore_state(directory: Path) -> None:
    """Put the copy of the table back."""
    for file in directory.glob("state.db*"):
        file.unlink()
    for file in (directory / "backup").iterdir():
        shutil.copy2(file, directory)


def test_state_of_ingest_restored_to_an_earlier_time(site: Site, tmp_path: Path) -> None:
    """The same after a reset."""
    save_state(tmp_path)
    site.put(b=b"de")
    site.run()
    restore_state(tmp_path)
    site.put(c=b"f")
    with site.operator("state-of-ingest-restored-to-an-earlier-time") as operator:
        with pytest.raises(StateMismatch) as caught:
            site.run()
        operator.sees(caught.value)
        operator.checks()
        operator.does()
    assert delivered(site.checkpoint) == whole(a=b"abc", b=b"de")
    again = Checkpoint()
    site.run(again)
    assert delivered(again) == whole(a=b"abc", b=b"de", c=b"f")


def test_state_and_checkpoint_restored_together_lose_rows(site: Site, tmp_path: Path) -> None:
    """The page warns of it: the sink drops the batch with a new file, whose number it has."""
    save_state(tmp_path)
    log, committed = list(site.checkpoint.log), site.checkpoint.committed
    site.put(b=b"de")
    site.run()
    restore_state(tmp_path)
    site.checkpoint.log[:], site.checkpoint.committed = log, committed
    site.put(c=b"f")
    site.run()
    assert delivered(site.checkpoint) == whole(a=b"abc", b=b"de")


def test_checkpoint_of_a_query_lost(site: Site) -> None:
    """The query with a new checkpoint reads nothing before the reset."""
    again = Checkpoint()
    site.put(b=b"de")
    with site.operator("checkpoint-of-a-query-lost") as operator:
        with pytest.raises(StateMismatch) as caught:
            site.run(again)
        operator.sees(caught.value)
        operator.checks()
        assert delivered(again) == {}
        operator.does()
    site.run(again)
    assert delivered(again) == whole(a=b"abc", b=b"de")


def test_record_of_ingest_damaged(site: Site) -> None:
    """With the item of before, the query continues; without it, the state is removed."""
    key = Key("events", "list")
    with closing(site.table()) as table:
        before = table.get(key)
        assert before is not None
        damaged = {**before, "body": b"damaged"}
        table.put(damaged)
    with site.operator("record-of-ingest-damaged") as operator:
        with pytest.raises(CorruptRecord) as caught:
            site.run()
        operator.sees(caught.value)
        operator.looks()
        operator.checks(status=1)
        site.put(b=b"de")
        with closing(site.table()) as table:
            table.put(before)
        site.run()
        assert delivered(site.checkpoint) == whole(a=b"abc", b=b"de")
        with closing(site.table()) as table:
            table.put(damaged)
        operator.does()
    again = Checkpoint()
    site.run(again)
    assert delivered(again) == whole(a=b"abc", b=b"de")
