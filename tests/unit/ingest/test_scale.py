"""What a batch costs as the history of the bucket grows: requests, and the driver's memory.

The bucket is made up while it is listed (`support.ingest.Vast`). ``-m campaign`` has a million objects.
"""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from attrs import frozen

from commitlog._util.request_stats import RequestRecorder
from commitlog.ingest import Ingest, IngestSettings
from commitlog.namespace import RequestStats
from commitlog.tables.counting import CountingTable
from commitlog.testing import ManualClock
from support.ingest import Vast, state_table

GRACE = 600.0


@frozen
class Cost:
    """What one batch of new objects cost.

    Attributes:
        calls: how often was asked until it was found.
        pages: pages that were listed in the most expensive of these calls.
        requests: to the table, in the last of them.
        items: in the table.
        memory: largest number of bytes beyond what was held before.
        held: bytes that the source holds.
    """

    calls: int
    pages: int
    requests: int
    items: int
    memory: int
    held: int


def cost(history: int, **options: Any) -> Cost:
    """Return what a batch of 100 new objects costs behind a history, of an object a second."""
    clock = ManualClock()
    store = Vast(history, clock=clock, begun=clock.epoch() - history)
    recorder = RequestRecorder()
    table = CountingTable(state_table(), recorder)

    def requests() -> int:
        return RequestStats.of("", recorder.counts()).total.table

    since = clock.epoch() - 2 * GRACE  # what is before counts all the same: it is listed
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
    while handed_out < 2 * GRACE - 1:  # what there was at the beginning
        batch()
        state = source.state.read()
        assert state is not None
        handed_out = state.files
    # Until everything is as it will stay.
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
    """Return how many calls it takes until an object is found that turns up below all others."""
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
    """Assert that table and memory do not notice the history."""
    assert small.requests == large.requests <= 4
    assert small.items == large.items < 20
    assert large.memory < 1.1 * small.memory


def test_with_ordered_keys_a_batch_costs_the_same_whatever_the_history() -> None:
    """The tail and a page of the body are listed; table and memory do not notice the history either."""
    small, large = (cost(history, ordered=True) for history in (8_000, 50_000))
    assert_flat(small, large)
    assert (small.calls, small.pages) == (large.calls, large.pages) == (1, 2)


def test_with_ordered_keys_what_turns_up_below_is_found_in_time() -> None:
    """An object below all others is found before a sweep of the history has ended twice."""
    for history in (1_000, 20_000):
        assert late(history, ordered=True) <= 2 * history / 1_000 + 2
    assert late(20_000, ordered=True, list_limit=5_000) <= 10


def test_a_limited_listing_costs_the_same_and_takes_longer_to_find() -> None:
    """Each call lists the same; that more of them are needed is what the limit is paid with."""
    small, large = (cost(history, list_limit=3_000) for history in (6_000, 20_000))
    assert_flat(small, large)
    assert small.pages == large.pages <= 5
    assert small.calls < large.calls


def test_a_full_listing_grows_and_nothing_else_does() -> None:
    """Without an order of keys everything has to be listed, and none of it has to be kept."""
    small, large = (cost(history) for history in (4_000, 20_000))
    assert_flat(small, large)
    assert small.pages < 10 < 20 < large.pages


@pytest.mark.campaign
@pytest.mark.timeout(0)
@pytest.mark.parametrize("options", [{"ordered": True}, {"list_limit": 4_000}, {}], ids=str)
def test_a_million_objects(options: dict[str, Any]) -> None:
    """The same with a million."""
    small, large = (cost(history, **options) for history in (10_000, 1_000_000))
    print(f"\n{options}: {small} {large}")
    assert_flat(small, large)
