"""What is known of a store, and that all who share a table know the same."""

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
from commitlog.commit.probe import RACERS
from commitlog.commit.probe_cache import FINDINGS, StoredReports
from commitlog.commit.probe_report import Kind, ProbeReport, ProbeResult
from commitlog.commit.record import LEASE_SCHEMA
from commitlog.errors import (
    ConfigurationError,
    CorruptRecord,
    FormatTooNew,
    InvalidPath,
    OutcomeUnknown,
    Unavailable,
)
from commitlog.paths import check_path
from commitlog.stores.memory import MemoryStore
from commitlog.tables.api import Item, Key, Table, TableCondition
from commitlog.tables.open import open_table
from commitlog.testing import ManualClock
from support.commit import Script, ScriptedStore, World, proven, raising


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
    """Return what makes clients of one server of the test's own."""
    server = f"memory://{random_id()}-"

    def make(table: Table | None, *, place: str = "", ignores: bool = False) -> ConditionalStore:
        return ConditionalStore(
            ScriptedStore(MemoryStore(f"{server}{place or 'bucket/'}"), Script(), ignores=ignores),
            table=table,
            open_executor=lambda: ThreadPoolExecutor(RACERS),
        )

    return make


def _requests(client: ConditionalStore) -> int:
    assert isinstance(client.object_store, ScriptedStore)
    return len(client.object_store.script.log)


def test_the_first_finding_serves_all_clients_of_a_table(client: Client) -> None:
    """The second client, on another prefix of the bucket, sends its put and measures nothing."""
    table = _table()
    first = client(table)
    first.put_if_absent("a", b"1")
    assert _requests(first) > 50
    second = client(table, place="bucket/prefix")
    second.put_if_absent("b", b"2")
    assert _requests(second) == 1
    assert second.probe_report.rows == first.probe_report.rows


def test_other_buckets_are_measured_on_their_own(client: Client) -> None:
    """What was found of one bucket says nothing about another."""
    table = _table()
    client(table).put_if_absent("a", b"1")
    other = client(table, place="other/", ignores=True)
    other.put_if_absent("a", b"1")
    assert not other.probe_report.proves(Kind.PUT_IF_ABSENT)


def test_all_go_by_what_was_kept_first(client: Client) -> None:
    """A client whose own probe would say otherwise takes leases like the others, or none does."""
    table = _table()
    client(table, ignores=True).put_if_absent("a", b"1")
    second = client(table, ignores=False)
    second.put_if_absent("b", b"2")
    assert not second.probe_report.proves(Kind.PUT_IF_ABSENT)
    assert table.get(Key("b", "*")) is not None  # its lease


def test_two_who_measure_at_once_agree(client: Client) -> None:
    """The one whose finding came second goes by the first."""
    table = _table()
    slow = client(table, ignores=False)
    assert slow._evidence.findings is not None
    measured = proven(Kind.PUT_IF_ABSENT).of(Kind.PUT_IF_ABSENT)
    other = proven().of(Kind.PUT_IF_ABSENT)
    assert slow._evidence.findings.agree(Kind.PUT_IF_ABSENT, other) == other
    assert slow._evidence.findings.agree(Kind.PUT_IF_ABSENT, measured) == other


def test_a_finding_outlasts_those_made_at_the_same_time(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that measures one kind does not forget what another thread found of another kind.

    It would take a lease for what the other goes by the store for.
    """
    store = client(_table())
    evidence = store._evidence
    find = evidence._find

    def other_thread_is_done_first(kind: Kind) -> tuple[ProbeResult, ...]:
        rows = find(kind)
        if kind is Kind.PUT_IF_ABSENT:
            assert evidence.proves(Kind.PUT_IF_MATCH)
        return rows

    monkeypatch.setattr(evidence, "_find", other_thread_is_done_first)
    assert evidence.proves(Kind.PUT_IF_ABSENT)
    assert store.probe_report.measured(Kind.PUT_IF_MATCH)
    rows = store.probe_report.rows
    assert evidence.proves(Kind.PUT_IF_MATCH)
    assert store.probe_report.rows == rows


def test_of_two_findings_of_one_client_the_first_counts(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two threads that measure one kind at once come to the same choice, also without a table."""
    evidence = client(None)._evidence
    bad = proven().of(Kind.FENCE)

    def found(kind: Kind) -> tuple[ProbeResult, ...]:
        monkeypatch.setattr(evidence, "_find", lambda kind: bad)
        assert not evidence.proves(kind)
        return proven(kind).of(kind)

    monkeypatch.setattr(evidence, "_find", found)
    assert not evidence.proves(Kind.FENCE)
    assert evidence.report.rows == bad


@pytest.mark.parametrize("arrived", [True, False])
def test_keeping_a_finding_is_not_the_caller_s_outcome(
    client: Client, monkeypatch: pytest.MonkeyPatch, arrived: bool
) -> None:
    """If the table's answer is lost, what is kept is read; else the call fails before it began."""
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


def test_all_spellings_of_one_bucket_share_its_findings() -> None:
    """Profile and region say who asks, and how; the bucket is the same, and its endpoint may matter."""
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

    for kind in (Kind.FENCE, Kind.PUT_IF_ABSENT):
        rows = proven(kind).of(kind)
        findings("/a?region=eu-west-1&profile=p&verify=false").agree(kind, rows)
        assert findings("/b?addressing_style=path").get(kind) == rows
    assert findings("?endpoint_url=http://host").get(Kind.FENCE) == ()


def test_a_client_that_cannot_race_keeps_nothing() -> None:
    """Its finding proves nothing, and must not stand in the way of one that could."""
    table = _table()
    mine = ConditionalStore(
        ScriptedStore(MemoryStore("memory://bucket"), Script(), ignores=False), table=table
    )
    mine.put_if_absent("a", b"1")
    kept = [item["etag"] for item in table.scan() if str(item["path"]).startswith(FINDINGS)]
    assert kept == [BUCKETS.range]


def test_a_verdict_of_ones_own_goes_first_and_can_be_kept_for_all(client: Client) -> None:
    """`keep_verdict` replaces what was kept; without a table there is nowhere to keep it."""
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
        proven(Kind.FENCE, url="memory://").to_json(),
    ],
    ids=["no text", "no verdict", "no rows", "rows of another kind"],
)
def test_a_corrupt_finding_is_reported(client: Client, probe_report: int | str) -> None:
    """It is not taken for a verdict, nor measured over: the message says how to replace it."""
    table = _table()
    client(table).put_if_absent("a", b"1")
    for item in list(table.scan()):
        if str(item["path"]).startswith(FINDINGS):
            table.put({**item, "verdict": probe_report})
    with pytest.raises(CorruptRecord, match="commitlog probe --table"):
        client(table).put_if_absent("b", b"2")


def test_nothing_is_kept_in_a_table_that_does_not_fit() -> None:
    """It is checked before the first look at it, whichever way a write would go in the end."""
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
    """Findings and leases share a table, never a key."""
    with pytest.raises(InvalidPath):
        check_path(f"{FINDINGS}memory://bucket")


def test_findings_that_contradict_one_another_prove_nothing() -> None:
    """A race that had several winners once is not made good by one that had a single winner."""
    bad = tuple(evolve(row, ok=row.check != "race") for row in proven().of(Kind.PUT_IF_ABSENT))
    good = proven(Kind.PUT_IF_ABSENT)
    assert not good.with_rows(bad).proves(Kind.PUT_IF_ABSENT)


def test_what_is_kept_goes_before_a_verdict_of_ones_own(client: Client) -> None:
    """A stale verdict must not send one client natively while all others take leases."""
    table = _table()
    client(table, ignores=True).put_if_absent("a", b"1")
    mine = client(table)
    stale = ConditionalStore(mine.object_store, table=table, probe_report=proven(*Kind, url=mine.url))
    stale.put_if_absent("b", b"2")
    assert not stale.probe_report.proves(Kind.PUT_IF_ABSENT)


def test_a_verdict_of_ones_own_is_kept_where_there_is_none(client: Client) -> None:
    """It spares the probe, and whoever comes later goes by it."""
    table = _table()
    store = client(table).object_store
    first = ConditionalStore(store, table=table, probe_report=proven(*Kind, url=store.url))
    first.put_if_absent("a", b"1")
    assert _requests(first) == 3  # with the identity object, and a look at its date
    later = client(table)
    later.put_if_absent("b", b"2")
    assert _requests(later) == 1 and later.probe_report.proves(Kind.PUT_IF_ABSENT)


@pytest.mark.parametrize("of", ["memory://other", "s3://bucket", "ftp://host", "s3://bucket/../x"])
def test_a_verdict_on_another_store_is_refused(client: Client, of: str) -> None:
    """Nothing is left to a store because another one honours it; the message names both."""
    mine = client(_table())
    with pytest.raises(ConfigurationError, match=f"{re.escape(of)}.*{mine.url}"):
        ConditionalStore(mine.object_store, probe_report=proven(*Kind, url=of))
    with pytest.raises(ConfigurationError, match=f"{re.escape(of)}.*{mine.url}"):
        mine.save_probe_report(proven(*Kind, url=of))


def test_a_verdict_serves_its_whole_bucket(client: Client) -> None:
    """The probe is often let loose on a prefix of its own; profile and region say only who asks."""
    mine, there = client(None), client(None, place="bucket/scratch")
    ConditionalStore(mine.object_store, probe_report=proven(*Kind, url=there.url)).put_if_absent(
        "a", b"1"
    )
    assert _requests(mine) == 1
    probe_report = proven(url="s3://bucket/scratch?endpoint_url=http://host:9/&region=eu-west-1")
    assert probe_report.is_of("s3://bucket?profile=p&endpoint_url=http://host:9")
    assert not probe_report.is_of("s3://bucket?endpoint_url=http://host:8")
    assert not probe_report.is_of("s3://bucket")


def test_a_store_that_enforces_conditions_itself_minds_no_verdict() -> None:
    """One that is set for all commands may meet a local file, too."""
    store = ConditionalStore(MemoryStore("memory://mine"), probe_report=proven(url="s3://bucket"))
    assert store.put_if_absent("a", b"1")


def test_threads_that_ask_at_the_same_time_measure_once() -> None:
    """Eight writers that begin together wait for one probe, instead of running eight."""
    store = ScriptedStore(MemoryStore(), Script(), ignores=False)
    many = ConditionalStore(store, open_executor=lambda: ThreadPoolExecutor(RACERS), lock=Lock())
    start = Barrier(8)

    def write(number: int) -> None:
        start.wait()
        many.put_if_absent(f"key-{number}", b"")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    once = ScriptedStore(MemoryStore(), Script(), ignores=False)
    ConditionalStore(once, open_executor=lambda: ThreadPoolExecutor(RACERS)).put_if_absent("key", b"")
    assert len(store.script.sent("put")) == len(once.script.sent("put")) + 7
