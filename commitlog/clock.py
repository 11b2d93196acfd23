"""The `Clock` port: everything that the business rules know of time.

Imports nothing of the project.
"""

from __future__ import annotations

import time
from typing import Protocol

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """A clock that can be read and slept on.

    Leases are measured on `monotonic` alone; `epoch` serves for what people and TTL sweepers read.
    Implementations are thread-safe.
    """

    def monotonic(self) -> float:
        """Seconds since some fixed point; never goes back."""

    def epoch(self) -> float:
        """Seconds since 1970-01-01 UTC, as far as this machine knows."""

    def sleep(self, seconds: float) -> None:
        """Return after at least `seconds` seconds on `monotonic`; at once for zero or less."""


class SystemClock:
    """The clock of this machine. Thread-safe, stateless.

    >>> clock = SystemClock()
    >>> clock.monotonic() <= clock.monotonic()
    True
    """

    def monotonic(self) -> float:
        """Seconds on `time.monotonic`."""
        return time.monotonic()

    def epoch(self) -> float:
        """Seconds on `time.time`."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Block this thread for `seconds` seconds."""
        if seconds > 0:
            time.sleep(seconds)
