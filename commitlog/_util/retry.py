"""Retry policy: exponential backoff with full jitter, bounded in tries and time."""

from __future__ import annotations

import random
from collections.abc import Iterator

from attrs import field, frozen, validators

from commitlog.clock import Clock

__all__ = ["Backoff"]


@frozen(kw_only=True)
class Backoff:
    """A retry policy.

    Args:
        base: maximum of the first pause, in seconds.
        cap: maximum of any pause, in seconds.
        tries: maximum number of tries, the first included.
        random: source of the jitter; pass a seeded one for a reproducible run. The default asks the
            operating system: a fork cannot copy its state. With copied state, all children of a process
            would pause alike and collide again each time.

    Full jitter (a pause drawn evenly from zero to the exponential bound) spreads competing clients
    best: Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015. Thread-safe.

    >>> from commitlog.testing import ManualClock
    >>> clock = ManualClock()
    >>> [attempt for attempt in Backoff(tries=3).attempts(clock)]
    [0, 1, 2]
    """

    base: float = field(default=0.05, validator=validators.gt(0))
    cap: float = field(default=5.0, validator=validators.gt(0))
    tries: int = field(default=8, validator=validators.ge(1))
    random: random.Random = field(factory=random.SystemRandom, eq=False, repr=False)

    def pause(self, attempt: int) -> float:
        """Return the pause in seconds after failed attempt number `attempt` (from 0)."""
        bound: float = min(self.cap, self.base * 2.0 ** min(attempt, 60))
        return self.random.uniform(0, bound)

    def attempts(self, clock: Clock) -> Iterator[int]:
        """Yield 0, 1, 2, … up to `tries`, sleeping on `clock` between them."""
        for attempt in range(self.tries):
            if attempt:
                clock.sleep(self.pause(attempt - 1))
            yield attempt
