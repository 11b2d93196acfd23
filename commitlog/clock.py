"""The `Clock` port: the only access of the library's rules to time."""

from __future__ import annotations

import time
from typing import Protocol

__all__ = ["Clock", "Stopwatch", "SystemClock"]


class Clock(Protocol):
    """A clock that can be read and can sleep.

    Leases are measured with `monotonic` only; `epoch` gives the times that people and TTL sweepers read.
    Implementations are thread-safe.
    """

    def monotonic(self) -> float:
        """Return seconds since a fixed point. Never goes back; should count during a suspension."""

    def epoch(self) -> float:
        """Return seconds since 1970-01-01 UTC, by the clock of this machine."""

    def sleep(self, seconds: float) -> None:
        """Return after at least `seconds` seconds on `monotonic`; immediately for zero or less."""


#: The clock that counts while the machine is suspended, unlike `time.monotonic`: CLOCK_BOOTTIME on
#: Linux,
#: CLOCK_MONOTONIC on macOS. Otherwise a lease read before a suspension would seem fresh after it.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """The clock of this machine. Thread-safe, stateless.

    `monotonic` counts while the machine is suspended, on Linux and macOS. It does not count while the
    host has stopped a virtual machine: a guest that is resumed from a snapshot may not notice.

    >>> clock = SystemClock()
    >>> clock.monotonic() <= clock.monotonic()
    True
    """

    def monotonic(self) -> float:
        """Return seconds since the machine was started, suspension included."""
        return time.clock_gettime(_CLOCK)

    def epoch(self) -> float:
        """Return the seconds of `time.time`."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Block this thread for `seconds` seconds."""
        if seconds > 0:
            time.sleep(seconds)


class Stopwatch:
    """Measures elapsed time for deadlines. Thread-safe.

    `Clock.monotonic` may stand still while a machine is suspended or stopped, and `Clock.epoch` may be
    set back. The larger of the two elapsed times counts.

    >>> from commitlog.testing import ManualClock
    >>> clock = ManualClock()
    >>> watch = Stopwatch(clock)
    >>> clock.advance(3)
    >>> watch.elapsed()
    3.0
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._monotonic, self._epoch = clock.monotonic(), clock.epoch()

    def elapsed(self) -> float:
        """Return the seconds since this stopwatch was made."""
        return max(self._clock.monotonic() - self._monotonic, self._clock.epoch() - self._epoch)
