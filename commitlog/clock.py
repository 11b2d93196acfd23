"""The `Clock` port: everything that the business rules know of time.

Imports nothing of the project.
"""

from __future__ import annotations

import time
from typing import Protocol

__all__ = ["Clock", "Stopwatch", "SystemClock"]


class Clock(Protocol):
    """A clock that can be read and slept on.

    Leases are measured on `monotonic` alone; `epoch` serves for what people and TTL sweepers read.
    Implementations are thread-safe.
    """

    def monotonic(self) -> float:
        """Seconds since some fixed point; never goes back, and should count while the machine sleeps."""

    def epoch(self) -> float:
        """Seconds since 1970-01-01 UTC, as far as this machine knows."""

    def sleep(self, seconds: float) -> None:
        """Return after at least `seconds` seconds on `monotonic`; at once for zero or less."""


#: What counts while the machine is suspended, as `time.monotonic` does not: on Linux CLOCK_BOOTTIME, on
#: macOS CLOCK_MONOTONIC. A lease or a look from before would else seem fresh after it.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """The clock of this machine. Thread-safe, stateless.

    `monotonic` counts while the machine is suspended, on Linux and macOS. Not while a virtual machine is
    stopped by its host: a guest that is resumed from a snapshot may not notice.

    >>> clock = SystemClock()
    >>> clock.monotonic() <= clock.monotonic()
    True
    """

    def monotonic(self) -> float:
        """Seconds since the machine was started, suspension included."""
        return time.clock_gettime(_CLOCK)

    def epoch(self) -> float:
        """Seconds on `time.time`."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Block this thread for `seconds` seconds."""
        if seconds > 0:
            time.sleep(seconds)


class Stopwatch:
    """How long ago something began, for what must not happen too late. Thread-safe.

    `Clock.monotonic` may stand still while a machine is suspended or stopped, and `Clock.epoch` may be
    set back: what counts is the one that says more.

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
        """Seconds since this was made."""
        return max(self._clock.monotonic() - self._monotonic, self._clock.epoch() - self._epoch)
