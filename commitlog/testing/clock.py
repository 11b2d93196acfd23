"""Clocks for tests: one that a test advances, and the clocks of the simulator."""

from __future__ import annotations

import threading

from attrs import define

__all__ = ["EPOCH", "ManualClock", "SimulatedClock", "TrueTime"]


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
        """Return the seconds by which the clock was advanced."""
        with self._lock:
            return self._now

    def epoch(self) -> float:
        """Return the initial epoch second plus the time that has passed."""
        with self._lock:
            return self._start + self._now

    def sleep(self, seconds: float) -> None:
        """Advance the clock by `seconds` and return."""
        self.advance(max(0.0, seconds))

    def advance(self, seconds: float) -> None:
        """Advance the clock by `seconds`."""
        if seconds < 0:
            raise ValueError("a clock does not go back")
        with self._lock:
            self._now += seconds

    def set_forward(self, seconds: float) -> None:
        """Add `seconds` to `epoch`, which may be negative. `monotonic` does not change."""
        with self._lock:
            self._start += seconds

    def suspend(self, seconds: float) -> None:
        """Advance `epoch` by `seconds`, but not `monotonic`, as if the machine were suspended."""
        if seconds < 0:
            raise ValueError("a clock does not go back")
        self.set_forward(seconds)


#: The beginning of a simulation in epoch seconds, on a clock without an offset.
EPOCH = 1_800_000_000.0


@define
class TrueTime:
    """The true time of the world, hidden from nodes. `now` is in seconds from the beginning."""

    now: float = 0.0


class SimulatedClock:
    """A clock on `TrueTime`, for a server: it cannot be slept on.

    Args:
        time: the time of the world.
        rate: seconds of this clock per second of true time.
        offset: seconds by which its `epoch` is ahead of the others at the beginning.

    >>> clock = SimulatedClock(TrueTime(10.0), rate=3.0)
    >>> clock.monotonic()
    30.0
    """

    def __init__(self, time: TrueTime, *, rate: float = 1.0, offset: float = 0.0) -> None:
        if rate <= 0:
            raise ValueError(f"a clock's rate is more than 0, not {rate}")
        self.time = time
        self.rate = rate
        self.offset = offset
        self._read_at = self._shown = 0.0  # the last reading, since time stands still between events

    def monotonic(self) -> float:
        """Return the seconds since the beginning on this clock."""
        now = self.time.now
        if now != self._read_at:
            self._read_at, self._shown = now, round(now * self.rate, 9)
        return self._shown

    def epoch(self) -> float:
        """Return the epoch seconds on this clock."""
        return EPOCH + self.offset + self.monotonic()

    def set_forward(self, seconds: float) -> None:
        """Add `seconds` to `epoch`, which may be negative. `monotonic` does not change."""
        self.offset += seconds

    def sleep(self, seconds: float) -> None:
        """Refuse: a server never sleeps."""
        raise NotImplementedError("only the clock of a node can be slept on")
