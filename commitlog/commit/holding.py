"""A lease as an operator sees it: its age and state at a given time.

A lease record holds neither a start nor an end. Both are derived, and are only as exact as wall clocks:
a record's ``ttl`` is the time at which it was written plus the TTL setting of its writer.
"""

from __future__ import annotations

from typing import Literal

from attrs import frozen

from commitlog.commit.record import LeaseRecord

__all__ = ["Holding"]


@frozen(kw_only=True)
class Holding:
    """A lease, with its age at a given time.

    Attributes:
        record: the stored record.
        age: seconds since it was written, if the wall clocks agree and the TTL setting is known.
        wait: the maximum number of seconds until a client that starts to wait now may take it over.
    """

    record: LeaseRecord
    age: float
    wait: float

    @classmethod
    def of(cls, record: LeaseRecord, *, now: float, ttl: float, skew_rate: float) -> Holding:
        """Derive age and wait from `record`, at epoch second `now`, under the writers' settings.

        >>> record = LeaseRecord(path="a", etag="*", generation=0, timeout=20_000, ttl=1_003_600)
        >>> holding = Holding.of(record, now=1_000_025, ttl=3600, skew_rate=3)
        >>> holding.age, holding.wait, holding.state
        (25, 60.0, 'overdue')
        """
        return cls(record=record, age=now - (record.ttl - ttl), wait=record.timeout / 1000 * skew_rate)

    @property
    def state(self) -> Literal["held", "overdue", "released"]:
        """``held``, ``overdue`` (older than its timeout, and not released) or ``released``."""
        if self.record.released:
            return "released"
        return "overdue" if self.age > self.record.timeout / 1000 else "held"
