"""The cost of a batch as the history of the bucket grows: requests, and memory of the driver.

The listing of the bucket is generated (`support.ingest.Vast`). ``-m campaign`` has a million objects.
"""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from attrs import frozen

from commitlog._util.request_stats import RequestRecorder
from commitlog.ingest import Ingest, IngestSettings
from commitlog.namespace import RequestStats
from commitlog.tables.counting_table import CountingTable
from commitlog.testing import ManualClock
from support.ingest import Vast, state_table

GRACE = 600.0


@frozen
class Cost:
    """The cost of one batch of new objects.

    Attributes:
        calls: calls until the batch was found.
        pages: pages that the most expensive of these calls listed.
        requests: requests of the last call to the table.
        items: items in the table.
        memory: peak of the additional bytes.
        held: bytes that the source holds.
    """

    calls: int
    pages: int
    requests: int
    items: int
    memory: int
    held: int


def cost(history: int, **options: Any) -> Cost:
    """Return the cost of a batch of 100 new objects after a history of one object per second."""
    clock = ManualClock()
    store = Vast(history, clock=clock, begun=clock.epoch() - history)
    recorder = RequestRecorder()
    table = CountingTable(state_table(), recorder)

    def requests() -> int:
        return RequestStats.of("", recorder.counts()).total.table

    since = clock.epoch() - 2 * GRACE  # Older objects count as well, because they are listed.
    settings = IngestSettings(
        source="s", prefix="in/", grace=GRACE, starting_from=since, max_files=500, **options
    )
    source = Ingest(store, table, settings, clock=clock)
    offset = source.initial_offset()

    def batch() -> tuple[int, int, int]:
        nonlocal offset
        calls, most = 0, 0
        while True:
            calls, store.pages = calls + 1, 0
            before = requests()
            new = source.latest_offset(offset)
            most = max(most, store.pages)
            if new != offset:
                offset = new
                return calls, most, requests() - before

    handed_out = 0
    while handed_out < 2 * GRACE - 1:  # the objects that existed at the start
        batch()
        state = source.state.read()
        assert state is not None
        handed_out = state.files
    # Run until the grace window is full.
    for _ in range(16):
        clock.advance(100)
        store.size += 100
        batch()
    clock.advance(100)
    store.size += 100
    tracemalloc.start()
    calls, pages, sent = batch()
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return Cost(calls, pages, sent, sum(1 for _ in table.scan()), peak, held)


def late(history: int, **options: Any) -> int:
    """Return the number of calls until an object that appears before all others is found."""
    clock = ManualClock()
    store = Vast(history, clock=clock, begun=clock.epoch() - history)
    settings = IngestSettings(source="s", prefix="in/", grace=GRACE, starting_from="latest", **options)
    source = Ingest(store, state_table(), settings, clock=clock)
    clock.advance(1)
    offset = source.latest_offset(source.initial_offset())
    store.lowest = clock.epoch()
    for calls in range(1, 10_000):
        clock.advance(1)
        offset, before = source.latest_offset(offset), offset
        if offset != before:
            (partition,) = source.partitions(before, offset)
            assert [each.file.path for each in partition.slices] == [store.info(-1).path]
            return calls
    raise AssertionError("it was not found")


def assert_flat(small: Cost, large: Cost) -> None:
    """Assert that the use of table and memory does not depend on the history."""
    assert small.requests == large.requests <= 4
    assert small.items == large.items < 20
    assert large.memory < 1.1 * small.memory


def test_with_ordered_keys_the_cost_of_a_batch_does_not_depend_on_the_history() -> None:
    """It lists the tail and a page of the body, and looks for objects below the last one of the body.

    Table and memory do not depend on the history either.
    """
    small, large = (cost(history, ordered=True) for history in (8_000, 50_000))
    assert_flat(small, large)
    assert (small.calls, small.pages) == (large.calls, large.pages) == (1, 3)


def test_with_ordered_keys_a_late_object_is_found_in_time() -> None:
    """An object before all others is found before the second sweep of the history ends."""
    for history in (1_000, 20_000):
        assert late(history, ordered=True) <= 2 * history / 1_000 + 2
    assert late(20_000, ordered=True, list_limit=5_000) <= 10


@pytest.mark.all
def test_a_limited_listing_has_a_constant_cost_per_call() -> None:
    """Each call lists the same number of pages. A longer history needs more calls."""
    small, large = (cost(history, list_limit=3_000) for history in (6_000, 20_000))
    assert_flat(small, large)
    assert small.pages == large.pages <= 5
    assert small.calls < large.calls


@pytest.mark.all
def test_only_the_listing_grows_without_ordered_keys() -> None:
    """Without ordered keys, each batch lists the whole history, but does not keep it."""
    small, large = (cost(history) for history in (4_000, 20_000))
    assert_flat(small, large)
    assert small.pages < 10 < 20 < large.pages


@pytest.mark.campaign
@pytest.mark.timeout(0)
@pytest.mark.parametrize("options", [{"ordered": True}, {"list_limit": 4_000}, {}], ids=str)
def test_a_million_objects_cost_no_more_table_requests_or_memory(options: dict[str, Any]) -> None:
    """This is the test above with a million objects."""
    small, large = (cost(history, **options) for history in (10_000, 1_000_000))
    print(f"\n{options}: {small} {large}")
    assert_flat(small, large)
