"""Retry policy: exponential backoff with full jitter, bounded in tries and time."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator
from typing import TypeVar

from attrs import field, frozen, validators

from commitlog.clock import Clock
from commitlog.errors import Busy

__all__ = ["Backoff"]

T = TypeVar("T")
E = TypeVar("E", bound=Exception)


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
    >>> answers = iter([ConnectionError("down"), ConnectionError("still down"), "up"])
    >>> def ask():
    ...     answer = next(answers)
    ...     if isinstance(answer, Exception):
    ...         raise answer
    ...     return answer
    >>> Backoff(tries=3).retry(clock, ask, on=ConnectionError)
    'up'
    """

    base: float = field(default=0.05, validator=validators.gt(0))
    cap: float = field(default=5.0, validator=validators.gt(0))
    tries: int = field(default=8, validator=validators.ge(1))
    random: random.Random = field(factory=random.SystemRandom, eq=False, repr=False)

    def pause(self, attempt: int) -> float:
        """Return the pause in seconds after failed attempt number `attempt` (from 0)."""
        bound: float = min(self.cap, self.base * 2.0 ** min(attempt, 60))
        return self.random.uniform(0, bound)

    def retry(
        self,
        clock: Clock,
        call: Callable[[], T],
        *,
        on: type[E] | tuple[type[E], ...],
        when: Callable[[E], bool] = lambda error: True,
        before_next: Callable[[E], object] = lambda error: None,
        deadline: float = math.inf,
        exhausted: Callable[[E], Exception] | None = None,
    ) -> T:
        """Return the result of `call`; call it again, after a pause, if it failed with certain errors.

        `Busy` is raised at once, whatever `on` is: that call has waited already.

        Args:
            clock: slept on between tries.
            call: one try.
            on: the errors after which another try may succeed. Any other error is raised at once.
            when: returns whether such an error is worth another try; otherwise it is raised at once.
            before_next: called with the error after the pause, before the next try. An error that it
                raises ends the tries.
            deadline: time on `Clock.monotonic` from which a failed try is the last.
            exhausted: returns the error to raise after the last try, from the error of that try. By
                default, the error of that try is raised.
        """
        for attempt in itertools.count():
            try:
                return call()
            except on as error:
                if isinstance(error, Busy) or not when(error):
                    raise
                late = deadline < math.inf and clock.monotonic() >= deadline
                if late or attempt + 1 >= self.tries:
                    if exhausted is None:
                        raise
                    raise exhausted(error) from error
                clock.sleep(self.pause(attempt))
                before_next(error)
        raise AssertionError("unreachable")

    def attempts(self, clock: Clock) -> Iterator[int]:
        """Yield 0, 1, 2, … up to `tries`, sleeping on `clock` between them.

        For a loop that `retry` does not express, such as one that goes on with the rest of its work.

        >>> from commitlog.testing import ManualClock
        >>> list(Backoff(tries=3).attempts(ManualClock()))
        [0, 1, 2]
        """
        for attempt in range(self.tries):
            if attempt:
                clock.sleep(self.pause(attempt - 1))
            yield attempt
