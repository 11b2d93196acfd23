"""The probe results of a store, which all clients of a table share."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Lock
from typing import Protocol

import pytest
from attrs import evolve

from commitlog._util.ids import random_id
from commitlog._util.retry import Backoff
from commitlog.commit import ConditionalStore
from commitlog.commit.bucket_identity import BUCKETS, BucketIdentity
from commitlog.commit.probe import THREADS
from commitlog.commit.probe_cache import FINDINGS, StoredReports
from commitlog.commit.probe_report import Kind, ProbeReport, ProbeResult
from commitlog.commit.record import LEASE_SCHEMA
from commitlog.errors import (
    ConfigurationError,
    CorruptRecord,
    FormatTooNew,
    InvalidPath,
    NotSupported,
    OutcomeUnknown,
    Unavailable,
)
from commitlog.paths import check_path
from commitlog.stores.memory import MemoryStore
from commitlog.tables.api import Item, Key, Table, TableCondition
from commitlog.tables.open import open_table
from commitlog.testing import ManualClock
from support.commit import Script, ScriptedStore, World, proven, raising
from support.selection import with_all


def _table() -> Table:
    table = open_table("memory://", LEASE_SCHEMA)
    table.create()
    return table


class Client(Protocol):
    def __call__(
        self, table: Table | None, *, place: str = "", ignores: bool = False
    ) -> ConditionalStore: ...


@pytest.fixture
def client() -> Client:
    """Return a function that makes clients of one server."""
    server = f"memory://{random_id()}-"

    def make(table: Table | None, *, place: str = "", ignores: bool = False) -> ConditionalStore:
        return ConditionalStore(
            ScriptedStore(MemoryStore(f"{server}{place or 'bucket/'}"), Script(), ignores=ignores),
            table=table,
            open_executor=lambda: ThreadPoolExecutor(THREADS),
        )

    return make


def _requests(client: ConditionalStore) -> int:
    assert isinstance(client.object_store, ScriptedStore)
    return len(client.object_store.script.log)


def test_the_first_finding_serves_all_clients_of_a_table(client: Client) -> None:
    """The second client, on another prefix of the bucket, sends its put and does not probe."""
    table = _table()
    first = client(table)
    first.put_if_absent("a", b"1")
    assert _requests(first) > 50
    second = client(table, place="bucket/prefix")
    second.put_if_absent("b", b"2")
    assert _requests(second) == 1
    assert second.probe_report.rows == first.probe_report.rows


def test_a_store_is_probed_ahead_of_its_first_writes(client: Client) -> None:
    """After `probe`, conditional puts send their own requests only; without conditions, it raises."""
    early = client(None)
    early.probe()
    before = _requests(early)
    assert before > 50
    written = early.put_if_absent("a", b"1")
    early.put_if_match("a", b"2", etag=written.etag)
    early.probe()
    assert _requests(early) == before + 2
    with pytest.raises(NotSupported, match="there is no table for leases"):
        client(None, place="ignorant/", ignores=True).probe()


def test_other_buckets_are_probed_separately(client: Client) -> None:
    """The finding of one bucket does not apply to another."""
    table = _table()
    client(table).put_if_absent("a", b"1")
    other = client(table, place="other/", ignores=True)
    other.put_if_absent("a", b"1")
    assert not other.probe_report.proves(Kind.PUT_IF_ABSENT)


def test_the_first_stored_finding_is_used_by_all(client: Client) -> None:
    """A client whose own probe would differ takes leases like the others."""
    table = _table()
    client(table, ignores=True).put_if_absent("a", b"1")
    second = client(table, ignores=False)
    second.put_if_absent("b", b"2")
    assert not second.probe_report.proves(Kind.PUT_IF_ABSENT)
    assert table.get(Key("b", "*")) is not None  # its lease


def test_two_concurrent_probes_agree(client: Client) -> None:
    """The client that stores its finding second uses the first one."""
    table = _table()
    slow = client(table, ignores=False)
    assert slow._probe_cache.findings is not None
    measured = proven(Kind.PUT_IF_ABSENT).of(Kind.PUT_IF_ABSENT)
    other = proven().of(Kind.PUT_IF_ABSENT)
    assert slow._probe_cache.findings.agree(Kind.PUT_IF_ABSENT, other) == other
    assert slow._probe_cache.findings.agree(Kind.PUT_IF_ABSENT, measured) == other


def test_concurrent_findings_of_other_kinds_are_kept(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that probes one kind keeps the finding of another thread about another kind.

    Otherwise it would take a lease where the other thread relies on the store.
    """
    store = client(_table())
    probe_cache = store._probe_cache
    find = probe_cache._find

    def other_thread_is_done_first(kind: Kind) -> tuple[ProbeResult, ...]:
        rows = find(kind)
        if kind is Kind.PUT_IF_ABSENT:
            assert probe_cache.proves(Kind.PUT_IF_MATCH)
        return rows

    monkeypatch.setattr(probe_cache, "_find", other_thread_is_done_first)
    assert probe_cache.proves(Kind.PUT_IF_ABSENT)
    assert store.probe_report.measured(Kind.PUT_IF_MATCH)
    rows = store.probe_report.rows
    assert probe_cache.proves(Kind.PUT_IF_MATCH)
    assert store.probe_report.rows == rows


def test_the_first_of_two_findings_of_one_client_is_used(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two threads that probe one kind at once use the same finding, also without a table."""
    probe_cache = client(None)._probe_cache
    bad = proven().of(Kind.REQUEST_EXPIRY)

    def found(kind: Kind) -> tuple[ProbeResult, ...]:
        monkeypatch.setattr(probe_cache, "_find", lambda kind: bad)
        assert not probe_cache.proves(kind)
        return proven(kind).of(kind)

    monkeypatch.setattr(probe_cache, "_find", found)
    assert not probe_cache.proves(Kind.REQUEST_EXPIRY)
    assert probe_cache.report.rows == bad


@pytest.mark.parametrize("arrived", [with_all(True), False])
def test_a_lost_response_while_storing_a_finding_is_not_an_unknown_outcome(
    client: Client, monkeypatch: pytest.MonkeyPatch, arrived: bool
) -> None:
    """If the finding can be read back, the call goes on. Otherwise it fails before its own request."""
    table = _table()
    put = table.put

    def lost(item: Item, *, condition: TableCondition | None = None) -> None:
        if arrived:
            put(item, condition=condition)
        raise OutcomeUnknown("no answer")

    monkeypatch.setattr(table, "put", lost)
    mine = client(table)
    if arrived:
        mine.put_if_absent("a", b"1")
        assert mine.probe_report.proves(Kind.PUT_IF_ABSENT)
    else:
        with pytest.raises(Unavailable, match="nothing was sent"):
            mine.put_if_absent("a", b"1")


def test_all_urls_of_one_bucket_share_its_findings() -> None:
    """Profile, region and similar options do not change the bucket. An endpoint may."""
    table = _table()

    def findings(query: str) -> StoredReports:
        store = MemoryStore()
        store.url = f"s3://bucket{query}"
        bucket = BucketIdentity(
            table,
            ScriptedStore(store, Script()),
            root=None,
            clock=ManualClock(),
            backoff=Backoff(),
            new_id=random_id,
        )
        return StoredReports(table, store, bucket=bucket, check=table.check)

    for kind in (Kind.REQUEST_EXPIRY, Kind.PUT_IF_ABSENT):
        rows = proven(kind).of(kind)
        findings("/a?region=eu-west-1&profile=p&verify=false").agree(kind, rows)
        assert findings("/b?addressing_style=path").get(kind) == rows
    assert findings("?endpoint_url=http://host").get(Kind.REQUEST_EXPIRY) == ()


def test_a_client_that_cannot_race_stores_no_finding() -> None:
    """Its finding proves nothing, and would block the finding of a client that can race."""
    table = _table()
    mine = ConditionalStore(
        ScriptedStore(MemoryStore("memory://bucket"), Script(), ignores=False), table=table
    )
    mine.put_if_absent("a", b"1")
    kept = [item["etag"] for item in table.scan() if str(item["path"]).startswith(FINDINGS)]
    assert kept == [BUCKETS.range]


def test_a_saved_probe_report_is_used_by_all(client: Client) -> None:
    """`save_probe_report` replaces the stored findings. Without a table it is refused."""
    table = _table()
    mine = client(table)
    mine.put_if_absent("a", b"1")
    mine.save_probe_report(proven(url=mine.url))
    later = client(table)
    later.put_if_absent("b", b"2")
    assert not later.probe_report.proves(Kind.PUT_IF_ABSENT)
    with pytest.raises(ConfigurationError, match="no table"):
        client(None).save_probe_report(proven())


@pytest.mark.parametrize(
    "probe_report",
    [
        7,
        "{}",
        ProbeReport(url="memory://", rows=()).to_json(),
        proven(Kind.REQUEST_EXPIRY, url="memory://").to_json(),
    ],
    ids=["no text", "no verdict", "no rows", "rows of another kind"],
)
def test_a_corrupt_finding_is_reported(client: Client, probe_report: int | str) -> None:
    """It is neither used nor replaced by a new probe. The message says how to replace it."""
    table = _table()
    client(table).put_if_absent("a", b"1")
    for item in list(table.scan()):
        if str(item["path"]).startswith(FINDINGS):
            table.put({**item, "verdict": probe_report})
    with pytest.raises(CorruptRecord, match="commitlog probe --table"):
        client(table).put_if_absent("b", b"2")


def test_nothing_is_stored_in_a_table_with_another_schema() -> None:
    """The table is checked before its first use, also if the write needs no lease."""
    world = World(mode="auto", ignores=False, probe_report=proven(*Kind))
    world.script.next("check", *[raising(FormatTooNew("newer"))] * 2)
    with pytest.raises(FormatTooNew):
        world.client.put_if_absent("a", b"1")
    with pytest.raises(FormatTooNew):
        world.client.save_probe_report(proven())
    assert not list(world.items.scan())
    world.client.put_if_absent("a", b"1")
    world.client.put_if_absent("b", b"2")
    identifying = ["put", "head"]
    assert world.script.log == ["check"] * 3 + identifying + ["put"] * 2


def test_no_object_can_have_the_key_of_a_finding() -> None:
    """Findings and leases share a table, but never a key."""
    with pytest.raises(InvalidPath):
        check_path(f"{FINDINGS}memory://bucket")


def test_contradictory_findings_prove_nothing() -> None:
    """A race with several winners is not outweighed by a later race with one winner."""
    bad = tuple(evolve(row, ok=row.check != "race") for row in proven().of(Kind.PUT_IF_ABSENT))
    good = proven(Kind.PUT_IF_ABSENT)
    assert not good.with_rows(bad).proves(Kind.PUT_IF_ABSENT)


def test_stored_findings_take_precedence_over_a_given_probe_report(client: Client) -> None:
    """With a stale report one client would write natively while all others take leases."""
    table = _table()
    client(table, ignores=True).put_if_absent("a", b"1")
    mine = client(table)
    stale = ConditionalStore(mine.object_store, table=table, probe_report=proven(*Kind, url=mine.url))
    stale.put_if_absent("b", b"2")
    assert not stale.probe_report.proves(Kind.PUT_IF_ABSENT)


def test_a_given_probe_report_is_stored_if_there_is_none(client: Client) -> None:
    """It replaces the probe, and later clients use it."""
    table = _table()
    store = client(table).object_store
    first = ConditionalStore(store, table=table, probe_report=proven(*Kind, url=store.url))
    first.put_if_absent("a", b"1")
    assert _requests(first) == 3  # includes the identity object, and a HEAD for its date
    later = client(table)
    later.put_if_absent("b", b"2")
    assert _requests(later) == 1 and later.probe_report.proves(Kind.PUT_IF_ABSENT)


@pytest.mark.parametrize("of", ["memory://other", "s3://bucket", "ftp://host", "s3://bucket/../x"])
def test_a_probe_report_of_another_store_is_refused(client: Client, of: str) -> None:
    """A finding applies to its own store only. The message names both stores."""
    mine = client(_table())
    with pytest.raises(ConfigurationError, match=f"{re.escape(of)}.*{mine.url}"):
        ConditionalStore(mine.object_store, probe_report=proven(*Kind, url=of))
    with pytest.raises(ConfigurationError, match=f"{re.escape(of)}.*{mine.url}"):
        mine.save_probe_report(proven(*Kind, url=of))


def test_a_probe_report_applies_to_its_whole_bucket(client: Client) -> None:
    """A probe often runs on a separate prefix. Profile and region do not change the bucket."""
    mine, there = client(None), client(None, place="bucket/scratch")
    ConditionalStore(mine.object_store, probe_report=proven(*Kind, url=there.url)).put_if_absent(
        "a", b"1"
    )
    assert _requests(mine) == 1
    probe_report = proven(url="s3://bucket/scratch?endpoint_url=http://host:9/&region=eu-west-1")
    assert probe_report.is_of("s3://bucket?profile=p&endpoint_url=http://host:9")
    assert not probe_report.is_of("s3://bucket?endpoint_url=http://host:8")
    assert not probe_report.is_of("s3://bucket")


def test_a_store_that_enforces_conditions_itself_ignores_a_probe_report() -> None:
    """A report that is configured for all commands may be used with a local store, too."""
    store = ConditionalStore(MemoryStore("memory://mine"), probe_report=proven(url="s3://bucket"))
    assert store.put_if_absent("a", b"1")


def test_concurrent_threads_probe_once() -> None:
    """Eight writers that start together wait for one probe, instead of running eight."""
    store = ScriptedStore(MemoryStore(), Script(), ignores=False)
    probes: list[ThreadPoolExecutor] = []

    def open_executor() -> ThreadPoolExecutor:
        probes.append(ThreadPoolExecutor(THREADS))
        return probes[-1]

    many = ConditionalStore(store, open_executor=open_executor, lock=Lock())
    start = Barrier(8)

    def write(number: int) -> None:
        start.wait()
        many.put_if_absent(f"key-{number}", b"")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    assert len(probes) == 1
