"""`CountingStore`: every kind of request is counted, and the behaviour is unchanged."""

from __future__ import annotations

from attrs import fields

from commitlog._util.request_stats import RequestRecorder
from commitlog.namespace import RequestCounts
from commitlog.stores.counting_store import CountingStore
from commitlog.stores.memory import MemoryStore
from commitlog.testing import check_object_store


def test_a_counting_store_keeps_the_contract() -> None:
    """Each kind of request to a store has a count."""
    recorder = RequestRecorder()
    check_object_store(CountingStore(MemoryStore(), recorder))
    counts = recorder.counts()
    kinds = [each.name for each in fields(RequestCounts) if each.name.startswith("store_")]
    assert kinds
    assert all(counts[f"other.{kind}"] for kind in kinds), counts


def test_a_listing_is_counted_by_pages() -> None:
    """A page has up to a thousand objects; an empty listing is one page."""
    recorder = RequestRecorder()
    memory = MemoryStore()
    store = CountingStore(memory, recorder)
    pages = []
    for number in (0, 1, 1000, 1001):
        for each in range(number):
            memory.put(f"{each}", b"")
        before = recorder.counts()["other.store_lists"]
        assert len(list(store.list())) == number
        pages.append(recorder.counts()["other.store_lists"] - before)
    assert pages == [1, 1, 1, 2]
