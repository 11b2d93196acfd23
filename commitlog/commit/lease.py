"""A lease on one version of one object: taking, watching, releasing and breaking its record.

Rules (numbers as in docs/protocol.md); the waiting rules are those of ``DynamoCommit`` in the Rust crate
``object_store`` up to 0.12:

* For its holder, a lease starts before the request that takes it is sent; for others, when they receive
  the response that shows it (1, 3). So with any network delay, others count from a later time.
* Others may take it over once the holder's stored timeout × max_clock_skew_rate has passed on their own
  monotonic clock, provided that the record is still exactly the one that they observed (3).
* A record with this client's owner is its own: a request of it was answered twice, or its response lost.
* Release rewrites the record with timeout 0, and never deletes it: generations must not restart while
  any client may remember them (6).
* A lock is a lease on a name, with a holder. Its record is kept for ever, so that its generations, which
  are the fencing tokens of its holders, never restart. `commitlog.locks` has the rest of locks.
* A lease is broken by a takeover that writes nothing: wait as above, then write the record as released.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from attrs import evolve, frozen

from commitlog._util.retry import Backoff
from commitlog.clock import Clock
from commitlog.commit.record import CREATE, NEVER, LeaseRecord
from commitlog.commit.settings import LeaseSettings
from commitlog.errors import CommitError, LeaseTimeout, OutcomeUnknown, Unavailable
from commitlog.tables.api import Absent, ConditionFailed, InFlight, Item, Key, TableCondition

__all__ = ["HeldLease", "Lease", "RecordTable", "break_lease"]

_log = logging.getLogger(__name__)


class RecordTable(Protocol):
    """The methods of a `commitlog.tables.Table` that leases need."""

    def get(self, key: Key, /) -> Item | None:
        """Return the item under `key`, or None."""

    def begin_put(self, item: Item, /, *, condition: TableCondition | None = None) -> InFlight[None]:
        """Send a put, and return the request in flight; see `commitlog.tables.Table.begin_put`."""


@frozen(kw_only=True)
class HeldLease:
    """The lease of another holder that blocks this one.

    Attributes:
        record: the record, or None if it was gone when it was read.
        since: time of this process's monotonic clock at which the response that showed it was received.
    """

    record: LeaseRecord | None
    since: float

    def reclaimable_at(self, rate: float) -> float:
        """Return the moment on the own clock from which the record may be taken over."""
        if self.record is None:
            return self.since
        return self.since + self.record.timeout / 1000 * rate


class Lease:
    """One call's lease. Not thread-safe: it belongs to the call that made it.

    Args:
        table: the table of the records.
        clock: own clock; the lease is measured on its `monotonic`.
        backoff: the retry policy after a lost answer.
        settings: the settings of leases.
        key: the record's key: the object's key in its bucket, and its etag or `CREATE`.
        owner: an id that no other call ever uses.
        holder: the description of the holder, if the lease is a lock; see `LeaseRecord.holder`.

    Attributes:
        record: the record as this call last wrote it, or None while the lease is not held. A lease
            that ran out (see `ends`) stays here, and acquiring it again renews it.
        interrupted: True once another record was seen after this call had held the lease: another holder
            may have written since.
    """

    def __init__(
        self,
        table: RecordTable,
        *,
        clock: Clock,
        backoff: Backoff,
        settings: LeaseSettings,
        key: Key,
        owner: str,
        holder: str | None = None,
    ) -> None:
        self._table = table
        self._clock = clock
        self._backoff = backoff
        self._settings = settings
        self._key = key
        self._owner = owner
        self._holder = holder
        self._first_sent: dict[int, float] = {}
        self.record: LeaseRecord | None = None
        self.interrupted = False
        self._held = False

    @property
    def ends(self) -> float:
        """Moment on the own monotonic clock at which the lease ends; it must be held."""
        assert self.record is not None
        return self._first_sent[self.record.generation] + self.record.timeout / 1000

    def begin_acquire(self, previous: LeaseRecord | None) -> InFlight[HeldLease | None]:
        """Send the request for the lease; the pending call returns None once it is held.

        Args:
            previous: the record to take over (released, run out, or my own to renew), or None if there
                is none to be seen.

        The pending call returns the `HeldLease` if another record is there; the lease is not held
        then, whatever it was before. It raises `Unavailable` if the table could not be asked or did
        not answer; a record that landed unseen is then left to run out.
        """
        wanted = self._next(previous, timeout_ms=self._settings.timeout_ms)
        condition = Absent() if previous is None else previous.unchanged()
        self._first_sent.setdefault(wanted.generation, self._clock.monotonic())
        pending = self._table.begin_put(wanted.to_item(), condition=condition)

        def take() -> HeldLease | None:
            try:
                pending()
            except ConditionFailed as failed:
                found = _found(failed, self._table, self._key)
            except OutcomeUnknown:
                found = _read(self._table, self._key)
                if found == previous:
                    raise
            else:
                found = wanted
            return self._judge(found)

        def send_again(lost: OutcomeUnknown) -> None:
            # If the lost request lands after all, this one meets its record and recognises it.
            nonlocal pending
            pending = self._table.begin_put(wanted.to_item(), condition=condition)

        def wait() -> HeldLease | None:
            self.record = None
            return self._backoff.retry(
                self._clock,
                take,
                on=OutcomeUnknown,
                before_next=send_again,
                exhausted=lambda lost: Unavailable(
                    f"the table did not answer to a lease on {self._key.hash!r}; the object is untouched"
                ),
            )

        return wait

    def observe(self) -> HeldLease | None:
        """Read the record again while waiting; None means that it is mine."""
        return self._judge(_read(self._table, self._key))

    def owns(self, record: LeaseRecord) -> bool:
        """Return whether this call has sent a request for the lease that stores `record`."""
        return record.owner == self._owner and record.generation in self._first_sent

    def begin_release(self) -> InFlight[None]:
        """Send the record with timeout 0, so that no waiter must wait for its expiry.

        The outcome of the caller's operation does not depend on this request, so the in-flight call
        raises nothing: a lease that could not be released expires.
        """
        mine, self.record = self.record, None
        assert mine is not None
        released = self._next(mine, timeout_ms=0)
        pending = self._table.begin_put(released.to_item(), condition=mine.unchanged())

        def wait() -> None:
            try:
                pending()
            except CommitError as error:
                _log.debug("lease on %r was not released and runs out: %s", self._key.hash, error)

        return wait

    def _next(self, previous: LeaseRecord | None, *, timeout_ms: int) -> LeaseRecord:
        if self._holder is not None:
            return self._next_of_lock(previous, self._holder, timeout_ms=timeout_ms)
        return LeaseRecord(
            path=self._key.hash,
            etag=self._key.range or CREATE,
            generation=0 if previous is None else previous.generation + 1,
            timeout=timeout_ms,
            ttl=int(self._clock.epoch() + self._settings.ttl),
            owner=self._owner,
        )

    def _next_of_lock(
        self, previous: LeaseRecord | None, holder: str, *, timeout_ms: int
    ) -> LeaseRecord:
        # If the record was removed by hand, tokens still grow, as far as wall clocks can be trusted: a
        # lock is not rewritten once in every millisecond.
        first = int(self._clock.epoch() * 1000)
        generation = first if previous is None else previous.generation + 1
        renewed = previous is not None and previous.owner == self._owner and not previous.released
        return LeaseRecord(
            path=self._key.hash,
            etag=self._key.range or CREATE,
            generation=generation,
            timeout=timeout_ms,
            ttl=NEVER,
            owner=self._owner,
            token=previous.token if previous is not None and renewed else generation,
            holder=holder,
        )

    def _judge(self, found: LeaseRecord | None) -> HeldLease | None:
        # The first of all requests for that generation counts: any of them may be the one that
        # landed, and others may have been counting since.
        if found is not None and self.owns(found):
            self.record = found
            self._held = True
            return None
        self.interrupted = self._held
        return HeldLease(record=found, since=self._clock.monotonic())


def break_lease(
    table: RecordTable,
    held: HeldLease,
    *,
    clock: Clock,
    backoff: Backoff,
    settings: LeaseSettings,
    owner: str,
    waiting: Callable[[float], None] = lambda seconds: None,
) -> bool:
    """Wait until the holder of a lease can no longer write, then release its lease.

    A waiter of the protocol waits as long before it takes the lease over (3). A renewal by the holder
    restarts the count.

    Args:
        table: the table of the record.
        held: the lease, as this process received it.
        clock: own clock; the wait is measured on its `monotonic`.
        backoff: the retry policy after a lost answer.
        settings: `max_clock_skew_rate`, `test_interval`, `max_wait` and `ttl`; the holder's timeout is
            that of its record.
        owner: an id that no other call ever uses.
        waiting: is called before each pause, with the seconds that are left at most.

    Returns True if this call released the lease. Returns False if the lease was over without it: its
    holder released it, another client took it over, or the table dropped its record.

    Raises:
        LeaseTimeout: the holder may still write after `max_wait` seconds. The record is unchanged.
        OutcomeUnknown: an answer was lost, and the record could not be read. The record is unchanged, or
            released; the call may be repeated.
        CommitError: the table could not be asked. The record is unchanged.
    """
    give_up = float("inf") if settings.max_wait is None else clock.monotonic() + settings.max_wait
    holder = held.record and held.record.owner
    while held.record is not None and not held.record.released and held.record.owner == holder:
        now = clock.monotonic()
        due = held.reclaimable_at(settings.max_clock_skew_rate)
        if now >= due:
            found = _release_expired(table, held.record, clock, backoff, settings, owner)
            if found is not None and found.owner == owner:
                return True
        elif now >= give_up:
            raise LeaseTimeout(
                f"the holder of the lease on {held.record.path!r} may write for another"
                f" {due - now:.1f} s; its lease is unchanged"
            )
        else:
            waiting(due - now)
            clock.sleep(min(settings.test_interval, due - now, give_up - now))
            found = _read(table, held.record.key)
        if found != held.record:
            held = HeldLease(record=found, since=clock.monotonic())
    return False


def _release_expired(
    table: RecordTable,
    expired: LeaseRecord,
    clock: Clock,
    backoff: Backoff,
    settings: LeaseSettings,
    owner: str,
) -> LeaseRecord | None:
    """Replace the record by a released one of `owner`, and return the record that is there then."""
    remembered = 2 * expired.timeout / 1000 * settings.max_clock_skew_rate
    released = evolve(
        expired,
        generation=expired.generation + 1,
        timeout=0,
        # A client that remembers the old record must not meet its generation again.
        ttl=NEVER if expired.ttl == NEVER else int(clock.epoch() + max(settings.ttl, remembered)),
        owner=owner,
    )
    lost = False

    def release() -> LeaseRecord | None:
        nonlocal lost
        try:
            table.begin_put(released.to_item(), condition=expired.unchanged())()
        except ConditionFailed as failed:
            return _found(failed, table, expired.key)
        except OutcomeUnknown:
            lost = True
            found = _read(table, expired.key)
            if found != expired:
                return found
            raise  # if the lost request lands after all, the next one meets its record
        return released

    try:
        return backoff.retry(clock, release, on=OutcomeUnknown)
    except CommitError as error:
        if not lost:
            raise
        raise _unknown(expired) from error


def _unknown(expired: LeaseRecord) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"the table did not answer to the release of the expired lease on {expired.path!r}: it may be"
        " released or not; run it again"
    )


def _found(failed: ConditionFailed, table: RecordTable, key: Key) -> LeaseRecord | None:
    """Return the record that made a put fail, which the answer holds or the table."""
    return _parse(failed.item) if failed.item_known else _read(table, key)


def _read(table: RecordTable, key: Key) -> LeaseRecord | None:
    return _parse(table.get(key))


def _parse(item: Item | None) -> LeaseRecord | None:
    return None if item is None else LeaseRecord.from_item(item)
