"""Counters of requests that several threads use."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from commitlog._util.request_stats import PerThreadCounter


def test_counts_of_many_threads_add_up() -> None:
    """No count is lost, and the counts of a thread stay when it ends."""
    counter = PerThreadCounter()
    for _ in range(3):
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(lambda _: [counter.add("a") for _ in range(500)], range(8)))
    assert counter.counts() == {"a": 12_000}
