"""A table whose writes keep to a rate."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlog._util.request_stats import RequestRecorder, report_retry
from commitlog.clock import SystemClock
from commitlog.errors import ConfigurationError, Conflict, TransactionCanceled, Unavailable
from commitlog.namespace import NAMESPACE_SCHEMA
from commitlog.tables.api import Absent, Check, Delete, Equals, Key, Put, Write
from commitlog.tables.counting_table import CountingTable
from commitlog.tables.memory import MemoryTable
from commitlog.tables.rate_limit import RateLimitedTable, TokenBucket, bucket_of_process, units_of
from commitlog.testing import ManualClock, check_table
from commitlog.urls import parse_table_url
from support.namespace import InterceptedTable


@pytest.fixture
def clock() -> ManualClock:
    """A clock that moves when something waits."""
    return ManualClock()


@pytest.fixture
def wire(clock: ManualClock) -> InterceptedTable:
    """A connection to a table in memory."""
    table = MemoryTable(parse_table_url("memory://"), NAMESPACE_SCHEMA, clock=clock)
    table.create()
    return InterceptedTable(table)


def put(name: str, size: int = 10) -> Put:
    """Return a write of an item."""
    return Put({"place": "p", "name": name, "body": b"1" * size})


@given(
    rate=st.floats(0.5, 1000),
    requests=st.lists(st.tuples(st.floats(0, 20), st.integers(1, 200)), min_size=2, max_size=25),
)
def test_the_rate_holds_in_any_time(rate: float, requests: list[tuple[float, int]]) -> None:
    """Unused units are kept for a second; and a request is sent before it is paid for."""
    clock = ManualClock()
    bucket = TokenBucket(rate, clock=clock)
    sent = []
    for idle, units in requests:
        clock.advance(idle)
        sent.append((clock.monotonic(), units))
        bucket.spend(units)
    most = max(units for _, units in sent)
    for first, last in combinations(range(len(sent)), 2):
        spent = sum(units for _, units in sent[first : last + 1])
        passed = sent[last][0] - sent[first][0]
        assert spent <= rate * (passed + 1) + most + 1e-6


@given(units=st.lists(st.integers(1, 50), min_size=1, max_size=50))
def test_a_busy_caller_gets_the_whole_rate(units: list[int]) -> None:
    """Nothing is lost by rounding or by waiting too long."""
    clock = ManualClock()
    bucket = TokenBucket(10, clock=clock)
    for each in units:
        bucket.spend(each)
    assert clock.monotonic() == pytest.approx(sum(units) / 10)


def test_units_are_those_of_dynamodb() -> None:
    """Transactions take two for each KiB; so do checks and removals of small items."""
    key = Key("p", "a")
    writes: list[tuple[Write, int]] = [
        (put("a"), 2),
        (put("a", 1020), 4),
        (put("a", 3 * 1024), 8),
        (Delete(key), 2),
        (Check(key, Absent()), 2),
    ]
    for write, units in writes:
        assert units_of([write]) == units
    assert units_of([write for write, _ in writes]) == 18


@pytest.mark.parametrize(
    ("call", "seconds"),
    [
        (lambda table: table.put(put("a").item), 0.1),
        (lambda table: table.put(put("a", 1020).item), 0.2),
        (lambda table: table.delete(Key("p", "a")), 0.1),
        (lambda table: table.transact([put("a"), put("b"), Check(Key("p", "c"), Absent())]), 0.6),
        (lambda table: table.put_all([put(str(each)).item for each in range(50)]), 5.0),
        (lambda table: [table.get(Key("p", "a")), list(table.query("p")), list(table.scan())], 0.0),
    ],
)
def test_each_write_is_paid_for(
    call: Callable[[RateLimitedTable], object],
    seconds: float,
    clock: ManualClock,
    wire: InterceptedTable,
) -> None:
    """Reads take no time."""
    call(RateLimitedTable(wire, TokenBucket(10, clock=clock)))
    assert clock.monotonic() == pytest.approx(seconds)


def test_a_refused_write_is_paid_for(clock: ManualClock, wire: InterceptedTable) -> None:
    """The error reaches the caller, and later writes are not held up."""
    table = RateLimitedTable(wire, TokenBucket(10, clock=clock))
    with pytest.raises(TransactionCanceled):
        table.transact([put("a"), Check(Key("p", "b"), Equals("name", "b"))])
    assert clock.monotonic() == pytest.approx(0.4)
    table.put(put("a").item)
    assert clock.monotonic() == pytest.approx(0.5)
    assert table.get(Key("p", "a")) == put("a").item


def test_a_write_is_sent_at_once(clock: ManualClock, wire: InterceptedTable) -> None:
    """A transaction must not be sent late: the caller waits afterwards."""
    table = RateLimitedTable(wire, TokenBucket(1, clock=clock))
    sent: list[float] = []

    def step(what: str, perform: Callable[[], object]) -> None:
        sent.append(clock.monotonic())
        perform()

    wire.step = step
    table.transact([put("a"), put("b")])
    assert (sent, clock.monotonic()) == ([0.0], 4.0)


def test_throttling_reduces_the_rate_for_some_time(clock: ManualClock, wire: InterceptedTable) -> None:
    """The table below retries: it reports that, and the statistics still count it."""
    recorder = RequestRecorder()
    bucket = TokenBucket(100, clock=clock, jitter=Random(0))
    table = CountingTable(RateLimitedTable(wire, bucket), recorder)

    def throttled(what: str, perform: Callable[[], object]) -> None:
        for _ in range(3):
            report_retry(Unavailable("throttled"))
        perform()

    wire.step = throttled
    table.put(put("a").item)
    assert 40 <= bucket.rate <= 70.1
    assert recorder.counts()["other.retries"] == 3
    for _ in range(100):
        clock.advance(1.0)
        table.put(put("a").item)
    assert bucket.rate == pytest.approx(100 / 64, abs=5)
    wire.step = lambda what, perform: perform()
    clock.advance(10.0)
    assert 20 <= bucket.rate <= 30
    clock.advance(100.0)
    assert bucket.rate == 100


@pytest.mark.parametrize(("error", "slower"), [(Unavailable("down"), True), (Conflict("busy"), False)])
def test_a_throttled_request_that_fails_reduces_the_rate(
    error: Exception, slower: bool, clock: ManualClock, wire: InterceptedTable
) -> None:
    """A conflict between transactions does not."""
    bucket = TokenBucket(100, clock=clock)
    table = RateLimitedTable(wire, bucket)

    def fail(what: str, perform: Callable[[], object]) -> None:
        raise error

    wire.step = fail
    with pytest.raises(type(error)):
        table.transact([put("a")])
    assert (bucket.rate < 80) is slower


def test_tables_of_a_process_share_a_rate() -> None:
    """This holds for the same table and rate, on the clock of the machine."""
    clock = SystemClock()
    one = bucket_of_process("dynamodb://one", 5, clock)
    assert bucket_of_process("dynamodb://one", 5, SystemClock()) is one
    assert bucket_of_process("dynamodb://two", 5, clock) is not one
    assert bucket_of_process("dynamodb://one", 6, clock) is not one
    assert bucket_of_process("dynamodb://one", 5, ManualClock()) is not one


@pytest.mark.parametrize("rate", [0, -1, float("inf"), float("nan")])
def test_a_rate_is_positive(rate: float) -> None:
    """Other numbers are refused."""
    with pytest.raises(ConfigurationError):
        TokenBucket(rate)


def test_it_is_a_table() -> None:
    """It keeps the contract of every table."""
    clock = ManualClock()
    table = MemoryTable(parse_table_url("memory://"), NAMESPACE_SCHEMA, clock=clock)
    table.create()
    check_table(RateLimitedTable(table, TokenBucket(1e9, clock=clock)))
