"""Request counters, and the reporting of internal retries to them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from contextvars import ContextVar
from typing import TypeAlias, TypeVar

__all__ = ["PerThreadCounter", "listen_for_retries", "report_retry"]

T = TypeVar("T")

Listener: TypeAlias = Callable[[Exception], object]

_listener: ContextVar[Listener | None] = ContextVar("commitlog._util.request_stats", default=None)


def listen_for_retries(listener: Listener, call: Callable[[], T]) -> T:
    """Return the result of `call`; call `listener` with the cause of each internal retry.

    >>> def call() -> None:
    ...     report_retry(TimeoutError("busy"))
    >>> listen_for_retries(lambda cause: print("again:", cause), call)
    again: busy
    """
    token = _listener.set(listener)
    try:
        return call()
    finally:
        _listener.reset(token)


def report_retry(cause: Exception) -> None:
    """Report that a request is about to be retried after `cause`."""
    listener = _listener.get()
    if listener is not None:
        listener(cause)


class PerThreadCounter:
    """Counts events by name. Thread-safe; a forked child continues with its own copy.

    Each thread adds to its own counters, so no thread waits for another, and there is no lock that a
    fork could leave locked.

    >>> tally = PerThreadCounter()
    >>> tally.add("reads")
    >>> tally.add("reads", 2)
    >>> tally.counts()
    Counter({'reads': 3})
    """

    def __init__(self) -> None:
        # A later thread may reuse the id, and so the counters, of a thread that has ended.
        self._of_thread: dict[int, dict[str, int]] = {}

    def add(self, name: str, number: int = 1) -> None:
        """Add `number` to the counter `name`."""
        counts = self._of_thread.setdefault(threading.get_ident(), {})
        counts[name] = counts.get(name, 0) + number

    def counts(self) -> Counter[str]:
        """Return the current counts by name."""
        total: Counter[str] = Counter()
        for counts in list(self._of_thread.values()):
            total.update(dict(counts))
        return total
