"""A clock that moves only when told to. Imports nothing of the project."""

from __future__ import annotations

import threading

__all__ = ["ManualClock"]


class ManualClock:
    """A `commitlog.clock.Clock` whose time passes only when told to. Thread-safe.

    Args:
        epoch: what `epoch` says at the start, in epoch seconds.

    `sleep` returns at once and moves the clock by what it was asked to wait, so a test of a
    twenty-second wait takes no time.

    >>> clock = ManualClock()
    >>> clock.sleep(2.5)
    >>> clock.monotonic()
    2.5
    """

    def __init__(self, epoch: float = 1_800_000_000.0) -> None:
        self._start = epoch
        self._now = 0.0
        self._lock = threading.Lock()

    def monotonic(self) -> float:
        """Seconds by which the clock was moved since it was made."""
        with self._lock:
            return self._now

    def epoch(self) -> float:
        """The epoch second given at the start, plus what has passed."""
        with self._lock:
            return self._start + self._now

    def sleep(self, seconds: float) -> None:
        """Move the clock by `seconds` and return."""
        self.advance(max(0.0, seconds))

    def advance(self, seconds: float) -> None:
        """Move the clock forward by `seconds`."""
        if seconds < 0:
            raise ValueError("a clock does not go back")
        with self._lock:
            self._now += seconds

    def set_forward(self, seconds: float) -> None:
        """Set what `epoch` shows forward, or back if `seconds` is negative; `monotonic` goes on."""
        with self._lock:
            self._start += seconds

    def suspend(self, seconds: float) -> None:
        """Move `epoch` forward by `seconds`, and `monotonic` not: as on a machine that sleeps."""
        if seconds < 0:
            raise ValueError("a clock does not go back")
        self.set_forward(seconds)
