"""A manually advanced clock for tests."""

from __future__ import annotations

import threading

__all__ = ["ManualClock"]


class ManualClock:
    """A `commitlog.clock.Clock` that only moves when it is advanced. Thread-safe.

    Args:
        epoch: the initial value of `epoch`, in epoch seconds.

    `sleep` returns at once and advances the clock by the requested time, so a test of a twenty-second
    wait takes no time.

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
        """Return the initial epoch second plus the time that has passed."""
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
