"""The settings of locks, checked when they are given.

A module of its own, so that the modules of the package share it without a circle.
"""

from __future__ import annotations

from attrs import field, frozen

from commitlog.commit.settings import LeaseSettings
from commitlog.errors import ConfigurationError

__all__ = ["LockSettings"]


@frozen(kw_only=True)
class LockSettings:
    """How a lock is kept, and how others wait for it. Thread-safe.

    All holders of one lock should have the same settings. What safety needs is smaller: each waiter's
    `max_clock_skew_rate` bounds the rates of the clocks. The timeout of a holder is in its record.

    Args:
        timeout: seconds for which a request for the lock, or a heartbeat, holds it; at least 3. After
            its holder died, a lock is free after `timeout` × `max_clock_skew_rate`.
        heartbeat: seconds between two heartbeats; by default a fifth of `timeout`, and at most a third.
        margin: seconds before the end of `timeout` at which the holder gives the lock up as lost, so
            that it can stop its work in time; by default a quarter of `timeout`, and at most a third.
            With 0, another client may have the lock before the loss is noticed.
        max_clock_skew_rate: how many times faster the monotonic clock of any holder or waiter may run
            than that of any other, at least 1. Their wall clocks may differ, and may jump.
        test_interval: seconds between two looks at the record while waiting.

    Raises:
        ConfigurationError: a value, or a relation between them, is out of range.

    >>> LockSettings(timeout=20.0).heartbeat, LockSettings(timeout=20.0).margin
    (4.0, 5.0)
    >>> LockSettings(timeout=20.0, heartbeat=10.0)
    Traceback (most recent call last):
    commitlog.errors.ConfigurationError: heartbeat is 10.0 s; it must be above 0 and at most a third ...
    """

    timeout: float = 20.0
    heartbeat: float = field(default=0.0)
    margin: float = field(default=-1.0)
    max_clock_skew_rate: float = 3.0
    test_interval: float = 1.0

    def __attrs_post_init__(self) -> None:
        if self.heartbeat == 0:
            object.__setattr__(self, "heartbeat", self.timeout / 5)
        if self.margin == -1:
            object.__setattr__(self, "margin", self.timeout / 4)
        _ = self.lease  # checks the values that leases have, too
        if not 0 < self.heartbeat <= self.timeout / 3:
            raise ConfigurationError(
                f"heartbeat is {self.heartbeat} s; it must be above 0 and at most a third of timeout"
            )
        if not 0 <= self.margin <= self.timeout / 3:
            raise ConfigurationError(
                f"margin is {self.margin} s; it must be 0 or more, and at most a third of timeout"
            )

    @property
    def lease(self) -> LeaseSettings:
        """These settings as those of a lease."""
        return LeaseSettings(
            timeout=self.timeout,
            max_clock_skew_rate=self.max_clock_skew_rate,
            ttl=2 * self.timeout * self.max_clock_skew_rate,
            test_interval=self.test_interval,
        )
