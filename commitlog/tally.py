"""Counters that all threads add to, and that cost next to nothing. Imports nothing of the project."""

from __future__ import annotations

import threading
from collections import Counter

__all__ = ["Tally"]


class Tally:
    """Counts things by name. Thread-safe; a forked child goes on with a copy of its own.

    Each thread adds to counters of its own, so none waits for another; there is no lock that a fork
    could leave locked.

    >>> tally = Tally()
    >>> tally.add("reads")
    >>> tally.add("reads", 2)
    >>> tally.counts()
    Counter({'reads': 3})
    """

    def __init__(self) -> None:
        # Threads that have ended leave their number, and with it their counters, to later ones.
        self._of_thread: dict[int, dict[str, int]] = {}

    def add(self, name: str, number: int = 1) -> None:
        """Count so many of them."""
        counts = self._of_thread.setdefault(threading.get_ident(), {})
        counts[name] = counts.get(name, 0) + number

    def counts(self) -> Counter[str]:
        """Return how many there were of each, so far."""
        total: Counter[str] = Counter()
        for counts in list(self._of_thread.values()):
            total.update(dict(counts))
        return total
