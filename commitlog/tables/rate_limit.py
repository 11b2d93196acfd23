"""A table whose writes keep to a rate, in the write units of DynamoDB.

A write takes one unit for each 1 KiB of the item, rounded up, and twice as many in a transaction, as a
check does ("DynamoDB read and write operations", Amazon DynamoDB developer guide). A removal, or a write
over a larger item, takes the units of the item that was there. Its size is unknown here: such writes
count with the size that is sent.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from commitlog._util.fork import fork_safe_lock
from commitlog._util.request_stats import also_listen_for_retries
from commitlog.clock import Clock, SystemClock
from commitlog.errors import ConfigurationError, Unavailable
from commitlog.tables.api import (
    InFlight,
    Item,
    ItemPage,
    Key,
    Put,
    Table,
    TableCondition,
    TableInfo,
    Write,
)
from commitlog.tables.rules import size_of_item

__all__ = ["RateLimitedTable", "TokenBucket", "bucket_of_process", "units_of"]

T = TypeVar("T")

#: Bytes of one write unit.
_UNIT = 1024

#: The factor by which a transaction takes more units.
_IN_TRANSACTION = 2

#: Seconds for which unused units are kept.
_BURST = 1.0

#: The rate is multiplied by a number in this range after a throttled request. So clients that were
#: throttled together continue at different rates.
_DECREASE = (0.4, 0.7)

#: Part of the full rate by which a reduced rate grows in a second.
_INCREASE = 0.02

#: The smallest part of the full rate.
_LEAST = 1 / 64

#: Seconds in which several throttled requests reduce the rate once.
_SETTLING = 1.0


class TokenBucket:
    """A rate that several threads share. Thread-safe. A forked process has a copy with the whole rate.

    Units are spent first, and paid for by waiting: no request is delayed before it is sent, because a
    transaction must not be sent late. So in any *t* seconds, at most ``rate × (t + 1)`` units are spent,
    and those of the requests that are under way at a time. The bucket is empty at the beginning.

    After a throttled request the rate is reduced by about a half; then it grows again, each second by a
    fiftieth of the full rate (additive increase, multiplicative decrease: Chiu and Jain, 1989).

    Args:
        rate: units per second.
        clock: waited on.
        jitter: source of random numbers.

    Raises `ConfigurationError` if the rate is not positive.

    >>> from commitlog.testing import ManualClock
    >>> clock = ManualClock()
    >>> bucket = TokenBucket(10, clock=clock)
    >>> bucket.spend(25)
    >>> clock.monotonic()
    2.5
    """

    def __init__(
        self, rate: float, *, clock: Clock | None = None, jitter: random.Random | None = None
    ) -> None:
        if not 0 < rate < float("inf"):
            raise ConfigurationError(f"write_units is {rate!r}; it must be a positive number per second")
        self._full = self._rate = float(rate)
        self._clock = SystemClock() if clock is None else clock
        self._jitter = random.SystemRandom() if jitter is None else jitter
        self._lock = fork_safe_lock()
        self._units = 0.0
        self._at = self._reduced = self._clock.monotonic()

    @property
    def rate(self) -> float:
        """The present rate, in units per second."""
        with self._lock:
            self._refill()
            return self._rate

    def spend(self, units: float) -> None:
        """Spend units, and wait until they are paid for."""
        with self._lock:
            self._refill()
            self._units -= units
            debt = -self._units / self._rate
        self._clock.sleep(debt)

    def slow_down(self) -> None:
        """Reduce the rate after a throttled request."""
        with self._lock:
            self._refill()
            if self._rate == self._full or self._at >= self._reduced + _SETTLING:
                self._reduced = self._at
                self._rate = max(self._full * _LEAST, self._rate * self._jitter.uniform(*_DECREASE))

    def _refill(self) -> None:
        now = self._clock.monotonic()
        passed, self._at = now - self._at, now
        self._units = min(self._rate * _BURST, self._units + self._rate * passed)
        self._rate = min(self._full, self._rate + self._full * _INCREASE * passed)


#: The buckets of this process, by the URL of a table and the rate.
_BUCKETS: dict[tuple[str, float], TokenBucket] = {}


def bucket_of_process(url: str, rate: float, clock: Clock) -> TokenBucket:
    """Return the bucket that all tables with a URL and a rate share in this process.

    A process of an executor opens a table for each of its tasks, which follow each other.

    Args:
        url: URL of the table.
        rate: units per second.
        clock: waited on. With another clock than that of the machine, nothing is shared.

    Raises `ConfigurationError` if the rate is not positive.
    """
    if not isinstance(clock, SystemClock):
        return TokenBucket(rate, clock=clock)
    found = _BUCKETS.get((url, rate))
    return found or _BUCKETS.setdefault((url, rate), TokenBucket(rate, clock=clock))


def units_of(writes: Sequence[Write]) -> int:
    """Return the write units of a transaction.

    >>> units_of([Put({"path": "a", "body": b"1" * 2000})])
    4
    """
    return _IN_TRANSACTION * sum(
        _units_of_item(write.item) if isinstance(write, Put) else 1 for write in writes
    )


def _units_of_item(item: Item) -> int:
    return max(1, -(-size_of_item(item) // _UNIT))


class RateLimitedTable(Table):
    """A table whose writes keep to a rate. Thread-safe.

    After each write, whether it succeeds or not, the caller waits until the units are paid for. Reads do
    not wait. If the service throttles a write, the rate is reduced for some time.

    Args:
        table: the table that performs the requests.
        bucket: the rate.
    """

    def __init__(self, table: Table, bucket: TokenBucket) -> None:
        self.url, self.schema = table.url, table.schema
        self._table = table
        self._bucket = bucket

    def create(self) -> bool:
        """See `Table.create`."""
        return self._table.create()

    def check(self) -> None:
        """See `Table.check`."""
        self._table.check()

    def describe(self) -> TableInfo:
        """See `Table.describe`."""
        return self._table.describe()

    def tag(self, tags: Mapping[str, str]) -> None:
        """See `Table.tag`."""
        self._table.tag(tags)

    def begin_get(self, key: Key) -> InFlight[Item | None]:
        """See `Table.begin_get`."""
        return self._table.begin_get(key)

    def begin_put(self, item: Item, *, condition: TableCondition | None = None) -> InFlight[None]:
        """See `Table.begin_put`; the pending call waits."""
        units = _units_of_item(item)
        pending = also_listen_for_retries(
            self._listen, lambda: self._table.begin_put(item, condition=condition)
        )
        return lambda: self._pay(units, pending)

    def delete(self, key: Key, *, condition: TableCondition | None = None) -> None:
        """See `Table.delete`."""
        self._pay(1, lambda: self._table.delete(key, condition=condition))

    def query_page(
        self, hash_key: str, *, start_after: str = "", limit: int = 1000, token: str | None = None
    ) -> ItemPage:
        """See `Table.query_page`."""
        return self._table.query_page(hash_key, start_after=start_after, limit=limit, token=token)

    def scan_page(
        self, *, segment: int = 0, segments: int = 1, limit: int = 1000, token: str | None = None
    ) -> ItemPage:
        """See `Table.scan_page`."""
        return self._table.scan_page(segment=segment, segments=segments, limit=limit, token=token)

    def transact(self, writes: Sequence[Write], *, token: str | None = None) -> None:
        """See `Table.transact`."""
        self._pay(units_of(writes), lambda: self._table.transact(writes, token=token))

    def close(self) -> None:
        """See `Table.close`."""
        self._table.close()

    def _pay(self, units: int, write: Callable[[], T]) -> T:
        """Return the result of a write, once its units are paid for."""
        try:
            result = also_listen_for_retries(self._listen, write)
        except Exception as error:
            self._listen(error)
            self._bucket.spend(units)
            raise
        self._bucket.spend(units)
        return result

    def _listen(self, cause: Exception) -> None:
        """Take notice of the cause of a retry, or of a failure."""
        if isinstance(cause, Unavailable):
            self._bucket.slow_down()
