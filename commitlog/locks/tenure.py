"""One holder's tenure of one of several slots: acquiring, heartbeats, loss, release.

A lock has one slot, a semaphore one for each permit. A slot is a lease without an object
(`commitlog.commit.lease`), whose rules decide who may write its record, and when. This module adds:

* One claim, with one owner, for as many calls as it takes to acquire a slot. So a record that an earlier
  request wrote, whose answer was lost, is recognised, and does not read as that of another holder.
  Nor does the record of the hold before it, whose release may have been lost.
* Observations that last: a caller who only tries now and then still notices that a holder died.
* A loss that is final. Once a heartbeat, or any look at the clock, has found that the lease may have run
  out or is another's, nothing makes it held again.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Sequence

from attrs import frozen

from commitlog._util.background import Background
from commitlog._util.retry import Backoff
from commitlog.clock import Clock, SystemClock
from commitlog.commit import ConditionalStore
from commitlog.commit.lease import HeldLease, Lease, RecordTable, break_lease
from commitlog.commit.record import LeaseRecord
from commitlog.errors import (
    CommitError,
    ConfigurationError,
    LockLost,
    LockNotHeld,
    OutcomeUnknown,
    Unavailable,
)
from commitlog.locks.records import LockStore, key_of, open_records
from commitlog.locks.settings import LockSettings
from commitlog.tables.api import Key

__all__ = ["Holder", "Tenure", "open_tenure"]

#: Maximum length of a holder's description, so that records stay small.
_MAX_DESCRIPTION = 1000

#: The description of a holder that gives none. Some tables store no empty strings.
_UNKNOWN = "unknown"

_log = logging.getLogger(__name__)


@frozen(kw_only=True)
class Holder:
    """The holder of a lock, as its record describes it.

    Attributes:
        token: its fencing token.
        description: what the holder says of itself, such as its host and process.
        timeout: the seconds for which a heartbeat holds the lock.
        slot: the slot of a semaphore, from 0; 0 for a lock.

    A record does not tell when it was written. The holder may have died.
    """

    token: int
    description: str
    timeout: float
    slot: int = 0


@frozen
class _Hold:
    """A slot that is held: its number, its lease, and the last record that is known to be its own."""

    slot: int
    lease: Lease
    record: LeaseRecord
    ends: float


class Tenure:
    """Acquires and keeps one of several slots. Thread-safe, for one holder at a time.

    Args:
        name: the name of the lock, for messages.
        records: the records of the slots.
        keys: the key of each slot's record.
        settings: the settings.
        holder: the description of this holder.
        clock: own clock; everything is measured on its `monotonic`.
        backoff: the retry policy of requests.
        new_id: makes ids that no other call ever uses.
        background: runs heartbeats, and watches the clock.
        prepare: finds out how the records are written under conditions. It may take longer than a lease.
        on_lost: is called once for each loss, with the error, in the thread that noticed it.
    """

    def __init__(
        self,
        name: str,
        records: RecordTable,
        keys: Sequence[Key],
        *,
        settings: LockSettings,
        holder: str,
        clock: Clock,
        backoff: Backoff,
        new_id: Callable[[], str],
        background: Background,
        prepare: Callable[[], None],
        on_lost: Callable[[LockLost], object],
    ) -> None:
        self._name = name
        self._records = records
        self._keys = tuple(keys)
        self.settings = settings
        self._lease_settings = settings.lease
        self._holder = holder
        self._clock = clock
        self._backoff = backoff
        self._new_id = new_id
        self._background = background
        self._prepare = prepare
        self._on_lost = on_lost
        self._claims: dict[int, Lease] = {}
        self._seen: dict[int, HeldLease] = {}
        self._released: dict[int, Lease] = {}
        self._requests = background.mutex()  # held during requests: leases belong to one thread
        self._state = background.mutex()  # held for moments
        self._hold: _Hold | None = None
        self._lost: LockLost | None = None
        self._stops: tuple[Callable[[], None], ...] = ()

    # -- state -------------------------------------------------------------------------------------

    @property
    def acquired(self) -> bool:
        """Whether a slot was acquired and not released since, even if it was lost meanwhile."""
        return self._hold is not None

    @property
    def held(self) -> bool:
        """Whether the slot is held at this moment. Sends no request."""
        return self._current() is not None

    @property
    def token(self) -> int:
        """The fencing token. Raises as `check`."""
        return _token_of(self.check().record)

    @property
    def slot(self) -> int:
        """The number of the slot. Raises as `check`."""
        return self.check().slot

    @property
    def expires(self) -> float:
        """The time on the own clock at which the slot is lost without a heartbeat. Raises as `check`."""
        return self.check().ends - self.settings.margin

    def check(self) -> _Hold:
        """Return the hold. Raises `LockLost` or `LockNotHeld`."""
        hold = self._current()
        if hold is not None:
            return hold
        if self._lost is not None:
            raise LockLost(str(self._lost)) from self._lost
        raise LockNotHeld(f"the lock {self._name!r} is not held: acquire it first")

    def _current(self) -> _Hold | None:
        """Return the hold unless it is lost; notice that it ran out."""
        hold = self._hold
        if hold is None or self._lost is not None:
            return None
        if self._clock.monotonic() < hold.ends - self.settings.margin:
            return hold
        # A heartbeat may have prolonged it since.
        if self._hold is not hold:
            return self._current()
        self._lose("its heartbeats did not succeed in time, or the process was suspended")
        return None

    def _lose(self, why: str) -> None:
        error = LockLost(f"the lock {self._name!r} was lost: {why}")
        with self._state:
            if self._lost is not None or self._hold is None:
                return
            self._lost = error
        _log.warning("%s", error)
        self._on_lost(error)

    # -- acquiring ---------------------------------------------------------------------------------

    def acquire(self, timeout: float) -> bool:
        """Acquire a slot within `timeout` seconds; return whether it is held.

        Zero means one try of each slot. The clock is looked at between requests, so the call may take as
        long as the requests of a try take, and the probe of a store that is not known yet.

        Raises:
            OutcomeUnknown: an answer was lost. The slot is not held, but a record may say so, and others
                then wait until it runs out. Another call recognises it as its own.
            CommitError: a request failed; nothing is held.

        After an error of the background, the slot is released again.
        """
        give_up = self._clock.monotonic() + timeout
        self._prepare()
        while True:
            pause = self.settings.test_interval
            for slot in range(len(self._keys)):
                with self._requests:
                    left = self._try(slot)
                if left is None:
                    try:
                        self._begin_heartbeats()
                    except BaseException:  # such as that no thread can be started
                        with contextlib.suppress(LockNotHeld):
                            self.release()
                        raise
                    return True
                pause = min(pause, left)
            now = self._clock.monotonic()
            if now >= give_up:
                return False
            self._clock.sleep(max(0.0, min(pause, give_up - now)))

    def _try(self, slot: int) -> float | None:
        """Try to take a slot; return None if it is held now, else the seconds until it may be free."""
        claim = self._claims.get(slot)
        if claim is None:
            claim = self._claims[slot] = Lease(
                self._records,
                clock=self._clock,
                backoff=self._backoff,
                settings=self._lease_settings,
                key=self._keys[slot],
                owner=self._new_id(),
                holder=self._holder,
            )
        found = claim.observe()
        left_behind = self._released.get(slot)
        if (
            found is not None
            and found.record is not None
            and left_behind is not None
            and left_behind.owns(found.record)
        ):
            # My release may have been lost. The record does not read as another's.
            found = HeldLease(record=found.record, since=-math.inf)
        rate = self._lease_settings.max_clock_skew_rate
        for _ in range(self._backoff.tries):
            if found is not None:
                held = self._seen[slot] = self._since(slot, found)
                left = held.reclaimable_at(rate) - self._clock.monotonic()
                if held.record is not None and not held.record.released and left > 0:
                    return left
                found = self._request(claim, held.record)
            if found is None:
                if self._take(slot, claim):
                    return None
                found = HeldLease(record=claim.record, since=-math.inf)  # it ran out: renew it
        return self.settings.test_interval

    def _since(self, slot: int, found: HeldLease) -> HeldLease:
        """Return an observation with the time at which its record was first seen."""
        seen = self._seen.get(slot)
        if seen is None or seen.record != found.record:
            return found
        return min(seen, found, key=lambda each: each.since)

    def _request(self, claim: Lease, previous: LeaseRecord | None) -> HeldLease | None:
        try:
            return claim.begin_acquire(previous)()
        except Unavailable as error:
            if not isinstance(error.__cause__, OutcomeUnknown):
                raise
            raise OutcomeUnknown(
                f"no answer tells whether the lock {self._name!r} was acquired. It is not held, but"
                " others may have to wait until it runs out; acquire it again"
            ) from error

    def _take(self, slot: int, claim: Lease) -> bool:
        """Hold the slot, whose record is this claim's; return False if it has run out already."""
        assert claim.record is not None
        if self._clock.monotonic() >= claim.ends - self.settings.margin:
            return False
        with self._state:
            self._hold, self._lost = _Hold(slot, claim, claim.record, claim.ends), None
        self._claims.clear()
        self._seen.clear()
        return True

    def _begin_heartbeats(self) -> None:
        heartbeat, margin = self.settings.heartbeat, self.settings.margin
        self._stops = (self._background.repeat(heartbeat, self.renew),)
        # Requests may hang, so another thread watches the clock.
        look = self._background.repeat((margin or heartbeat) / 4, lambda: self.held)
        self._stops = (*self._stops, look)

    # -- holding -----------------------------------------------------------------------------------

    def renew(self) -> bool:
        """Send a heartbeat; return whether the slot is still held. Never raises a `CommitError`."""
        if not self.held:
            return False
        with self._requests:
            hold = self._hold
            if hold is None or self._lost is not None:
                return False
            try:
                found = hold.lease.begin_acquire(hold.record)()
            except CommitError as error:
                _log.warning("a heartbeat of the lock %r failed: %s", self._name, error)
                found = None
            else:
                if found is None:
                    self._prolong(hold)
        if found is not None:
            self._lose("its record was removed" if found.record is None else "another holder has it")
        return self.held

    def _prolong(self, hold: _Hold) -> None:
        lease = hold.lease
        assert lease.record is not None
        with self._state:
            self._hold = _Hold(hold.slot, lease, lease.record, lease.ends)

    def release(self) -> None:
        """Give the slot back, even if it was lost; the record is released if it is still this holder's.

        If that request fails, others wait until the record runs out. Raises `LockLost` if the slot was
        lost, and `LockNotHeld` if it was never acquired; then nothing is sent.
        """
        for stop in self._stops:
            stop()
        self._stops = ()
        self._current()  # notices a loss
        with self._requests:
            with self._state:
                hold, lost = self._hold, self._lost
                self._hold, self._lost = None, None
            if hold is None:
                raise LockNotHeld(f"the lock {self._name!r} is not held: acquire it first")
            lease = self._released[hold.slot] = hold.lease
            try:
                if lease.record is None:  # a heartbeat got no answer: it may have been stored
                    lease.observe()
                if lease.record is not None:
                    lease.begin_release()()
            except CommitError as error:
                _log.warning("the lock %r was not released and runs out: %s", self._name, error)
        if lost is not None:
            raise LockLost(str(lost)) from lost

    # -- other holders -----------------------------------------------------------------------------

    def holders(self) -> tuple[Holder, ...]:
        """Return the holders of all slots, this one included, by their records."""
        found: list[Holder] = []
        for slot, key in enumerate(self._keys):
            record = self._read(key)
            if record is not None and not record.released:
                found.append(
                    Holder(
                        token=_token_of(record),
                        description=record.holder or "",
                        timeout=record.timeout / 1000,
                        slot=slot,
                    )
                )
        return tuple(found)

    def break_holder(self, token: int, *, slot: int | None = None, wait: bool) -> bool:
        """Release the slot of the holder with this token; see `Semaphore.break_holder`."""
        if slot is not None and not 0 <= slot < len(self._keys):
            raise ConfigurationError(f"slot is {slot}; it must be from 0 to {len(self._keys) - 1}")
        held: dict[int, LeaseRecord] = {}
        for number, key in enumerate(self._keys):
            record = self._read(key) if slot in (None, number) else None
            if record is not None and not record.released and _token_of(record) == token:
                held[number] = record
        if len(held) > 1:
            raise ConfigurationError(
                f"the holders of the permits {', '.join(map(str, held))} of {self._name!r} have the same"
                f" token, {token}; nothing was changed. To break one of them, give its slot"
            )
        if not held:
            return False
        [record] = held.values()
        return break_lease(
            self._records,
            HeldLease(record=record, since=self._clock.monotonic() if wait else -math.inf),
            clock=self._clock,
            backoff=self._backoff,
            settings=self._lease_settings,
            owner=self._new_id(),
        )

    def _read(self, key: Key) -> LeaseRecord | None:
        item = self._records.get(key)
        return None if item is None else LeaseRecord.from_item(item)


def _token_of(record: LeaseRecord) -> int:
    return record.generation if record.token is None else record.token


def open_tenure(
    store: LockStore,
    name: str,
    *,
    slots: int | None = None,
    settings: LockSettings | None,
    holder: str,
    on_lost: Callable[[LockLost], object] | None,
    clock: Clock | None,
    backoff: Backoff | None,
    new_id: Callable[[], str],
    background: Background,
) -> Tenure:
    """Return the tenure of a lock, or of one of `slots` permits, with the arguments of `Lock`.

    Raises `ConfigurationError`.
    """
    if not isinstance(holder, str):
        raise ConfigurationError(f"the description of a holder is a str, not {holder!r}")
    if len(holder) > _MAX_DESCRIPTION:
        raise ConfigurationError(
            f"the description of a holder has {len(holder)} characters; the most are {_MAX_DESCRIPTION}"
        )
    clock = SystemClock() if clock is None else clock
    backoff = Backoff() if backoff is None else backoff
    names = [name] if slots is None else [f"{name}.{slot}" for slot in range(slots)]
    return Tenure(
        name,
        open_records(store, clock=clock, backoff=backoff),
        [key_of(store, each) for each in names],
        settings=LockSettings() if settings is None else settings,
        holder=holder or _UNKNOWN,
        clock=clock,
        backoff=backoff,
        new_id=new_id,
        background=background,
        prepare=store.probe if isinstance(store, ConditionalStore) else lambda: None,
        on_lost=(lambda error: None) if on_lost is None else on_lost,
    )
