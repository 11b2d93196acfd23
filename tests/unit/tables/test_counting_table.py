"""`CountingTable`: every kind of request is counted, and the behaviour is unchanged."""

from __future__ import annotations

import pytest
from attrs import evolve, fields

from commitlog._util.request_stats import RequestRecorder
from commitlog.errors import CommitError, OutcomeUnknown
from commitlog.namespace import NAMESPACE_SCHEMA, RequestCounts
from commitlog.tables.counting_table import CountingTable
from commitlog.tables.memory import MemoryTable
from commitlog.testing import ManualClock, check_table
from commitlog.urls import parse_table_url
from support.namespace import InterceptedTable, ServiceTable

#: Counters that are not for requests to a table.
OTHER = {"calls", "unavailable", "unknown", "conflicts", "retries", "refused", "recognised"}


def test_a_counting_table_keeps_the_contract() -> None:
    """Each kind of request to a table has a count."""
    recorder = RequestRecorder()
    table = MemoryTable(parse_table_url("memory://"), evolve(NAMESPACE_SCHEMA), clock=ManualClock())
    counting = CountingTable(table, recorder)
    assert counting.create() and not counting.create()
    counting.describe()
    assert counting.describe().url == table.url
    check_table(counting)
    counts = recorder.counts()
    names = {each.name for each in fields(RequestCounts)} - OTHER
    kinds = {name for name in names if not name.startswith("store_")}
    assert kinds
    assert all(counts[f"other.{kind}"] for kind in kinds), counts


def test_an_error_is_counted_once_for_each_request() -> None:
    """This includes a request whose response is awaited later."""
    recorder = RequestRecorder()

    def fail() -> None:
        raise OutcomeUnknown("lost")

    table = InterceptedTable(ServiceTable())
    table.begin_put = lambda item, condition=None: fail  # type: ignore[assignment,method-assign]
    counting = CountingTable(table, recorder)
    with pytest.raises(CommitError):
        counting.put({"place": "a", "name": "b"})
    assert recorder.counts() == {"other.puts": 1, "other.unknown": 1}
