"""Clocks of the simulator, each with a rate and an offset of its own."""

from __future__ import annotations

from attrs import define

__all__ = ["EPOCH", "SimulatedClock", "TrueTime"]

#: What a clock without an offset calls the beginning, in epoch seconds.
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
        """Set what `epoch` shows forward, or back if `seconds` is negative; `monotonic` goes on."""
        self.offset += seconds

    def sleep(self, seconds: float) -> None:
        """Refuse: a server never sleeps."""
        raise NotImplementedError("only the clock of a node can be slept on")
