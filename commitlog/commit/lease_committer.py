"""Conditions enforced by leases, for stores that enforce none: two round trips.

The caller's HEAD and the request for the lease are sent together, then the operation; the release is not
awaited. docs/protocol.md has the assumptions and non-guarantees of the protocol; the numbers in the
comments are those of its rules.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable

from attrs import frozen

from commitlog._util.retry import Backoff
from commitlog.clock import Clock
from commitlog.commit.lease import HeldLease, Lease
from commitlog.commit.mutation import Mutation, Reading
from commitlog.commit.record import CREATE, LeaseRecord
from commitlog.commit.settings import LeaseSettings
from commitlog.errors import (
    CommitError,
    ConfigurationError,
    Conflict,
    LeaseTimeout,
    NotFound,
    OutcomeUnknown,
    RequestExpired,
    Unavailable,
)
from commitlog.stores.api import (
    IfAbsent,
    InFlight,
    ObjectInfo,
    ObjectStore,
    Observation,
    PutResult,
    RequestExpiry,
    WriteOperation,
)
from commitlog.tables.api import Key, Table

__all__ = ["LeaseCommitter"]

#: Seconds of a lease that a request needs before it is begun, in addition to the reserve for its body:
#: one that a store may round away (see `RequestExpiry`), and one for the head of the request.
_LEAST = 2.0

_OVERTAKEN = (
    "the write was applied, perhaps after the lease had ended, and may have overwritten the work of the "
    "next holder. Set min_bandwidth to the bandwidth of the link"
)


@frozen(kw_only=True)
class _HeadResult:
    """The result of a HEAD, and the times of its request and response on the own monotonic clock."""

    observation: Observation
    sent: float
    received: float

    @property
    def info(self) -> ObjectInfo | None:
        return self.observation.info

    def expiry(self, ends: float, timeout: float, reserve: float) -> RequestExpiry | None:
        """Return an expiry on the store's clock, `reserve` before the end of a lease or earlier.

        The lease has a length of `timeout` seconds and ends at `ends`. The store checks the expiry when
        a request begins; a request that has begun by then is complete and applied at most `reserve`
        seconds later.

        Let m ≤ received be the reading of this client's clock at the moment when the store read its
        clock for the ``Date`` of its response, and let a = ends − timeout be the lease's start. The
        store accepts the request until its clock has advanced by at most seconds + 1: `date` is rounded
        down, which only makes the expiry earlier, but the store may truncate the time of its check to
        whole seconds. A waiter began to count no earlier than a. While this clock moved from a to m, the
        waiter's moved by at most rate × (m − a). While the store's then moved by seconds + 1, the
        waiter's moved by at most rate × (seconds + 1), and while a body arrives by at most rate ×
        reserve. It waits for rate × timeout. So nothing is applied after its takeover if m − a + seconds
        + 1 + reserve ≤ timeout, which holds for seconds = floor(ends − received − reserve) − 1. If m is
        before a, the store began to count before the waiter did, and seconds + 1 + reserve ≤ timeout
        suffices; but a pause between m and a must not be added to it. The rate must bound how fast any
        two of these clocks run relative to each other; their absolute times need not agree.
        """
        if self.observation.store_time is None:
            return None
        seconds = math.floor(min(ends - self.received, timeout) - reserve) - 1
        return RequestExpiry(self.observation.store_time, seconds)


class LeaseCommitter:
    """Carries out mutations under leases. Thread-safe.

    Args:
        store: the store of the objects.
        table: the table of the leases (`LEASE_SCHEMA`).
        settings: settings of leases.
        clock: the clock of this process.
        backoff: the retry policy for a step that did nothing.
        new_id: makes an id that no other call ever gets.
        check: makes sure that the table fits; called before each use, so it must remember that it did.
        enforces_expiry: returns whether the store enforces the expiry of requests. Called only after a
            lost response, so it may measure it then.
        finish: takes the in-flight call of a release, which must be called once, in the same thread; its
            result is not used. By default it is called at once.

    Guarantees: of all clients that use leases in one table, at most one replaces one version of an
    object, as long as no clock runs faster than another by more than the skew rate, and a store has
    stored and applied an accepted request within `LeaseSettings.reserve`. A lost response is resolved
    by reading back. A response after the end of the lease counts only while the table still has the
    lease.

    Non-guarantees: writers without leases are not excluded. A store that does not enforce the expiry of
    signed requests may apply a delayed one after the lease, over the data of the next holder. So may a
    store that accepts a request in time and takes longer than the reserve to receive and apply it; but
    then its call does not return as a success.
    """

    def __init__(
        self,
        store: ObjectStore,
        table: Table,
        *,
        settings: LeaseSettings,
        clock: Clock,
        backoff: Backoff,
        new_id: Callable[[], str],
        check: Callable[[], None],
        enforces_expiry: Callable[[], bool] = lambda: True,
        finish: Callable[[InFlight[None]], None] = lambda pending: pending(),
    ) -> None:
        self._store = store
        self._table = table
        self._settings = settings
        self._clock = clock
        self._backoff = backoff
        self._new_id = new_id
        self._check = check
        self._enforces_expiry = enforces_expiry
        self._finish = finish

    def run(self, mutation: Mutation) -> PutResult | None:
        """Carry out `mutation`; see `ConditionalStore` for results and errors."""
        self._check_body(mutation)
        self._check()
        lease, look = self._first_hold(mutation)
        failure: CommitError | None = None
        lost: OutcomeUnknown | None = None
        try:
            for attempt in self._backoff.attempts(self._clock):
                if attempt:
                    look = self._hold(lease, mutation)
                if mutation.recognises(look.info):
                    if lease.interrupted:
                        raise mutation.unknown(_OVERTAKEN) from lost
                    self._release(lease)
                    return mutation.result(look.info)
                if not mutation.holds(look.info):
                    self._release(lease)
                    raise mutation.contradiction(look.info)
                expiry = self._expiry(lease, mutation, look)
                try:
                    result = mutation.send(None, expiry)
                except OutcomeUnknown as error:
                    failure = lost = error
                    reading, info = self._resolve_unknown(lease, mutation, expiry, error)
                    if reading is Reading.LANDED:
                        self._release(lease)
                        return mutation.result(info)
                except (RequestExpired, Conflict, Unavailable) as error:
                    failure = error
                except CommitError as error:
                    published = self._published(mutation, error)
                    if published is None:
                        self._release(lease)
                        raise
                    self._check_mine(lease, mutation, self._clock.monotonic(), error)
                    self._release(lease)
                    return mutation.result(published)
                else:
                    if lost is not None:
                        result = self._confirm(mutation, result, lost)
                    self._check_mine(lease, mutation, self._clock.monotonic())
                    self._release(lease)
                    return result
            self._release(lease)
            raise Unavailable(
                f"{mutation.operation.value} of {mutation.path!r} did nothing in "
                f"{self._backoff.tries} attempts under a lease; the last one: {failure}"
            ) from failure
        except OutcomeUnknown:
            raise
        except CommitError as error:
            # The version to replace was seen again. But absence is not a version: removing the created
            # object needs another lease.
            if lost is not None and isinstance(mutation.condition, IfAbsent):
                raise mutation.unknown(f"its object may have come and gone; then: {error}") from lost
            raise

    def _check_body(self, mutation: Mutation) -> None:
        """Raise `ConfigurationError` if no lease is long enough for the body of a request."""
        needed = self._settings.reserve_for(mutation.body) + _LEAST
        if needed > self._settings.timeout:
            raise ConfigurationError(
                f"{mutation.operation.value} of {mutation.path!r} has a body of {mutation.body} bytes."
                f" With min_bandwidth={self._settings.min_bandwidth} it needs a lease of {needed:.1f} s,"
                f" and timeout is {self._settings.timeout} s; nothing was sent. Set a longer timeout, or"
                " a larger part size"
            )

    # -- holding -----------------------------------------------------------------------------------

    def _first_hold(self, mutation: Mutation) -> tuple[Lease, _HeadResult]:
        etag = CREATE if isinstance(mutation.condition, IfAbsent) else mutation.condition.etag
        while True:
            lease = Lease(
                self._table,
                clock=self._clock,
                backoff=self._backoff,
                settings=self._settings,
                key=Key(self._store.key(mutation.path), etag),
                owner=self._new_id(),
            )
            look = self._hold(lease, mutation)
            if etag == CREATE or look.info is None or not mutation.holds(look.info):
                return lease, look
            if look.info.etag == etag:
                return lease, look
            # The caller spelt the etag in another way than the store, quoted or bare. The record's key
            # is as HEAD spells it, for all clients, or one object would have two leases.
            self._release(lease)
            etag = look.info.etag

    def _hold(self, lease: Lease, mutation: Mutation) -> _HeadResult:
        """Return with the lease held and a HEAD that is valid under it, or one that contradicts.

        A HEAD is valid if no other client can have written since it began. Rule 1: it may begin before
        the lease is held, because a writer in between would have left a record, or another generation of
        the record that is taken over, and the request for the lease would have failed. That requires
        that the table still has the record (rule 4), and that the previous holder was done when the HEAD
        began (rule 3).
        """
        previous = lease.record
        fresh: _HeadResult | None = None
        give_up = math.inf
        if self._settings.max_wait is not None:
            give_up = self._clock.monotonic() + self._settings.max_wait
        renewals = 0
        while renewals < self._backoff.tries:
            look, obstacle = self._look_and_take(lease, mutation, previous, fresh)
            if not mutation.holds(look.info):
                return look
            if obstacle is not None:
                previous, fresh = self._wait(lease, mutation, obstacle, give_up)
                if not mutation.holds(fresh.info):
                    return fresh
            elif self._valid(lease, mutation, look):
                return look
            else:
                previous, fresh = lease.record, None
                renewals += 1
        self._release(lease)
        raise Unavailable(
            f"the store or the table took longer than a lease of {self._settings.timeout} s to answer, "
            f"{renewals} times; nothing was sent to {mutation.path!r}. Set a longer timeout"
        )

    def _valid(self, lease: Lease, mutation: Mutation, look: _HeadResult) -> bool:
        now = self._clock.monotonic()
        left = lease.ends - now - self._settings.reserve_for(mutation.body)
        return now - look.sent <= self._settings.timeout and left >= _LEAST

    def _expiry(self, lease: Lease, mutation: Mutation, look: _HeadResult) -> RequestExpiry | None:
        if not self._store.capabilities.request_expiry:
            return None
        reserve = self._settings.reserve_for(mutation.body)
        return look.expiry(lease.ends, self._settings.timeout, reserve)

    def _look_and_take(
        self, lease: Lease, mutation: Mutation, previous: LeaseRecord | None, fresh: _HeadResult | None
    ) -> tuple[_HeadResult, HeldLease | None]:
        looking = self._begin_look(mutation) if fresh is None else (lambda: fresh)
        taking = lease.begin_acquire(previous)
        try:
            look = looking()
        except CommitError:
            with contextlib.suppress(CommitError):
                taking()
            self._release(lease)
            raise
        return look, taking()

    def _wait(
        self, lease: Lease, mutation: Mutation, obstacle: HeldLease, give_up: float
    ) -> tuple[LeaseRecord | None, _HeadResult]:
        """Wait until the holder is done; return the record to take over, and a HEAD that began after
        that.

        The HEAD may contradict the condition instead. The record is read again in each iteration: its
        holder may have released it, or renewed it, which restarts the count.
        """
        while True:
            now = self._clock.monotonic()
            due = obstacle.reclaimable_at(self._settings.max_clock_skew_rate)
            look = self._begin_look(mutation)()
            if now >= due or not mutation.holds(look.info):
                return obstacle.record, look
            if now >= give_up:
                raise LeaseTimeout(
                    f"another writer holds the lease on {mutation.path!r}, which can be reclaimed in "
                    f"at most {due - now:.1f} s; nothing was written"
                )
            now = self._clock.monotonic()
            self._clock.sleep(min(self._settings.test_interval, due - now, give_up - now))
            seen = lease.observe()
            if seen is None:
                return lease.record, self._begin_look(mutation)()
            if seen.record != obstacle.record:
                obstacle = seen

    def _begin_look(self, mutation: Mutation) -> InFlight[_HeadResult]:
        sent = self._clock.monotonic()
        pending = self._store.begin_head(mutation.path)

        def wait() -> _HeadResult:
            observation = pending()
            if mutation.recognises(observation.info) and mutation.holds(observation.info):
                # The own nonce with the etag to replace: the content is the same, or the store read the
                # two one after the other while the request was in flight, as JuiceFS does. Now the
                # request is complete, so another HEAD has the etag to return.
                observation = self._store.begin_head(mutation.path)()
            return _HeadResult(observation=observation, sent=sent, received=self._clock.monotonic())

        return wait

    # -- afterwards --------------------------------------------------------------------------------

    def _resolve_unknown(
        self, lease: Lease, mutation: Mutation, expiry: RequestExpiry | None, lost: OutcomeUnknown
    ) -> tuple[Reading, ObjectInfo | None]:
        """Find out the outcome of a request whose response was lost (rule 7).

        Returns LANDED, or UNCHANGED as seen by a HEAD that began when the store's own clock was past the
        expiry of the request by more than the reserve: it can no longer land. (Its body may still have
        been in flight at the expiry. The HEAD that shows the time may be older than that time.) Raises
        `OutcomeUnknown`, and keeps the lease, if it sees neither.
        """
        ends = lease.ends
        # In whole seconds, as the store dates its answers, and by a clock that may run faster than ours.
        reserve = self._settings.reserve_for(mutation.body)
        body = math.ceil(reserve * self._settings.max_clock_skew_rate)
        patience = ends + self._settings.timeout + body
        late = "the store does not bound how late the request may still be applied"
        why = late
        over = False
        while True:
            try:
                look = self._begin_look(mutation)()
                reading = mutation.read(look.info, exclusive=True)
            except CommitError as error:
                why = f"the store could not be asked ({error})"
            else:
                if reading is Reading.LANDED:
                    # Once the lease is over, this may be the work of the next holder.
                    self._check_mine(lease, mutation, look.received, lost)
                    return reading, look.info
                if reading is Reading.OTHER:
                    raise mutation.unknown("the present object was written by another writer") from lost
                if over:
                    return reading, look.info
                store_time = look.observation.store_time
                if expiry is not None and store_time is not None:
                    over = store_time > expiry.expires_at + body
                if over:
                    try:
                        enforced = self._enforces_expiry()
                    except CommitError as error:
                        raise mutation.unknown(f"apparently {late} ({error})") from lost
                    if not enforced:
                        raise mutation.unknown(late) from lost
                    continue
            if self._clock.monotonic() > (ends if expiry is None else patience):
                raise mutation.unknown(why) from lost
            self._clock.sleep(self._settings.test_interval)

    def _confirm(
        self, mutation: Mutation, result: PutResult | None, lost: OutcomeUnknown
    ) -> PutResult | None:
        """Return the result of a request whose earlier answer was lost, see `Mutation.confirmed`."""
        try:
            info = self._begin_look(mutation)().info
        except CommitError as error:
            raise mutation.unknown(f"answered, and reading it back failed ({error})") from lost
        return mutation.confirmed(result, info, lost)

    def _check_mine(
        self, lease: Lease, mutation: Mutation, seen: float, cause: CommitError | None = None
    ) -> None:
        """Raise `OutcomeUnknown` if another may have written before what I sent was applied (rule 5).

        `seen` is the moment on the own clock by which it had been applied.

        A request whose body took long is applied after the lease, over the work of the next holder. If
        the lease can be renewed there is none, for it would have replaced the record. To read the record
        is not enough: a waiter that looked before my request was applied may be about to replace it.
        """
        if seen <= lease.ends:
            return
        try:
            if lease.begin_acquire(lease.record)() is None:
                return
        except CommitError as error:
            late = f"the answer came after the lease, and the table could not be asked ({error})"
            raise mutation.unknown(late) from cause or error
        raise mutation.unknown(_OVERTAKEN) from cause

    def _published(self, mutation: Mutation, refusal: CommitError) -> ObjectInfo | None:
        """Return the object if its upload was refused as missing because it is already published.

        This happens if a proxy repeats the request and passes on the second response.
        """
        if mutation.operation is not WriteOperation.PUBLISH or not isinstance(refusal, NotFound):
            return None
        try:
            info = self._begin_look(mutation)().info
        except CommitError as error:
            raise mutation.unknown(f"{refusal}, and reading it back failed ({error})") from refusal
        return info if mutation.recognises(info) else None

    def _release(self, lease: Lease) -> None:
        if lease.record is not None:
            self._finish(lease.begin_release())
