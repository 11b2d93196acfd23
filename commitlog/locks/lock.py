"""`Lock`: one holder at a time, among all processes of all machines."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from types import TracebackType

from commitlog._util.background import Background, Threads
from commitlog._util.ids import random_id
from commitlog._util.retry import Backoff
from commitlog.clock import Clock, SystemClock
from commitlog.errors import LockLost, LockNotHeld
from commitlog.locks.records import LockStore
from commitlog.locks.settings import LockSettings
from commitlog.locks.tenure import Holder, open_tenure

__all__ = ["Lock"]


class Lock:
    """A lock with fencing tokens, kept in a store or a table, with the methods of `threading.Lock`.

    A lock by itself is advisory: no lock with a timeout can stop a process that was suspended just
    before its write. Pass the `token` with each write, to a resource that refuses smaller ones, such as
    a `FencedStore`.

    Args:
        store: where the lock is kept: a `ConditionalStore`, where the lock is the object `name`, or a
            `Table` with `LOCK_SCHEMA`, of DynamoDB, of SQLite or in memory. All who use the lock must
            name the same store.
        name: the name of the lock.
        settings: how it is kept; see `LockSettings`.
        holder: a description of this holder for people, at most 1,000 characters, such as its host and
            its process. Everyone who can read the store can read it.
        reentrant: whether the thread that holds it may acquire it again, as a `threading.RLock`. It is
            then released by as many releases, all of that thread.
        on_lost: is called once, with a `LockLost`, when a held lock is lost, `LockSettings.margin`
            seconds or less before another may have it. It may call any method, `release` too. It runs in
            a thread of the lock, or in the caller's of a method that noticed the loss; it must not
            raise.
        clock: the clock; by default the clock of this machine. `sleep` is used to wait.
        backoff: the retry policy of requests.
        new_id: makes unique ids.
        background: sends heartbeats; by default threads. With `commitlog.testing` it is the caller who
            calls `renew`.

    Guarantees:

    * Of all holders, at most one has a lock that says `held`, as long as no two monotonic clocks differ
      in rate by more than `LockSettings.max_clock_skew_rate`. No wall clock matters.
    * Of two holders, the later one has the larger `token`, whatever the clocks do. The record that
      counts them is never removed, neither by a release nor by the TTL of a table.

    Non-guarantees: no order among waiters, and no notification of them: they look every
    `LockSettings.test_interval` seconds. If someone removes the record, the lock is free at once, and
    later tokens are larger only if the wall clock of the next holder is right. A child of `os.fork` must
    not use the lock of its parent.

    Thread-safe, as `threading.Lock` is: threads that share the object exclude each other, and any thread
    may release it unless it is reentrant.

    >>> import commitlog
    >>> store = commitlog.connect("memory://")
    >>> lock, other = Lock(store, "nightly"), Lock(store, "nightly")
    >>> with lock:
    ...     other.acquire(blocking=False)
    False
    >>> other.acquire(timeout=5)
    True
    >>> other.release()
    """

    def __init__(
        self,
        store: LockStore,
        name: str,
        *,
        settings: LockSettings | None = None,
        holder: str = "",
        reentrant: bool = False,
        on_lost: Callable[[LockLost], object] | None = None,
        clock: Clock | None = None,
        backoff: Backoff | None = None,
        new_id: Callable[[], str] = random_id,
        background: Background | None = None,
    ) -> None:
        self.name = name
        self._background = Threads("commitlog-lock") if background is None else background
        self._tenure = open_tenure(
            store,
            name,
            settings=settings,
            holder=holder,
            on_lost=on_lost,
            clock=clock,
            backoff=backoff,
            new_id=new_id,
            background=self._background,
        )
        self._clock = SystemClock() if clock is None else clock
        self._pause = self._tenure.settings.test_interval
        self._reentrant = reentrant
        self._mutex = self._background.mutex()
        self._owner: tuple[Hashable] | None = None  # the thread that holds it or is acquiring it
        self._depth = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire the lock; return whether it is held.

        Args:
            blocking: whether to wait for another holder. Without, the call tries once.
            timeout: the seconds to wait at most; -1 to wait without a limit.

        A holder that died is waited for as long as its clock could be slow: its timeout times
        `LockSettings.max_clock_skew_rate`, from the moment at which this object has seen its last
        heartbeat, also in earlier calls.

        Raises:
            LockLost: this thread has lost the lock, and must release it first.
            OutcomeUnknown: an answer was lost. The lock is not held, but others may have to wait until
                its record runs out. Another call recognises its own record.
            CommitError: a request failed. The lock is not held.
            ValueError: a timeout without `blocking`, or a negative one; as `threading.Lock`.
        """
        if not blocking and timeout != -1:
            raise ValueError("can't specify a timeout for a non-blocking call")
        if timeout < 0 and timeout != -1:
            raise ValueError("timeout value must be a non-negative number")
        wait = 0.0 if not blocking else math.inf if timeout == -1 else timeout
        give_up = self._clock.monotonic() + wait
        me = (self._background.caller(),)
        while not self._enter(me):
            now = self._clock.monotonic()
            if now >= give_up:
                return False
            self._clock.sleep(min(self._pause, give_up - now))
        if self._depth > 1:
            return True
        acquired = False
        try:
            acquired = self._tenure.acquire(max(0.0, give_up - self._clock.monotonic()))
        finally:
            if not acquired:
                self._leave()
        return acquired

    def _enter(self, me: tuple[Hashable]) -> bool:
        """Exclude the other threads of this process; return False if one of them is inside."""
        with self._mutex:
            if self._owner is None:
                self._owner, self._depth = me, 1
                return True
            again = self._owner == me and self._tenure.acquired
        if not again:
            return False
        if not self._tenure.held:
            self._tenure.check()
        if self._reentrant:
            self._depth += 1
        return self._reentrant

    def _leave(self) -> None:
        with self._mutex:
            self._owner, self._depth = None, 0

    def release(self) -> None:
        """Release the lock, for which others then need not wait.

        It is not held afterwards in any case. If the request fails, others wait until the record runs
        out. The call waits for a heartbeat that is under way.

        Raises:
            LockLost: it was lost before; the work under it may have overlapped with that of others.
            LockNotHeld: it was not acquired, or, if reentrant, by another thread. Nothing happened.
        """
        if self._reentrant and self._owner is not None:
            if self._owner != (self._background.caller(),):
                raise LockNotHeld(f"the lock {self.name!r} is held by another thread")
            if self._depth > 1:
                self._depth -= 1
                return
        if not self._tenure.acquired:
            raise LockNotHeld(f"the lock {self.name!r} is not held: acquire it first")
        try:
            self._tenure.release()
        finally:
            self._leave()

    def __enter__(self) -> Lock:
        """Acquire the lock, waiting without a limit."""
        self.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Release the lock. Raises `LockLost` if it was lost, unless another error is on its way."""
        try:
            self.release()
        except LockNotHeld:
            if kind is None:
                raise

    @property
    def held(self) -> bool:
        """Whether this object holds the lock at this moment. Sends no request.

        The answer may be out of date when it is used: the process may be suspended in between.
        """
        return self._tenure.held

    @property
    def token(self) -> int:
        """The fencing token, larger than that of every earlier holder.

        Raises `LockNotHeld`, `LockLost`.
        """
        return self._tenure.token

    @property
    def expires(self) -> float:
        """The time on the clock's `monotonic` from which it is lost, if no heartbeat succeeds until
        then.

        Raises `LockNotHeld`, `LockLost`.
        """
        return self._tenure.expires

    def check(self) -> None:
        """Raise `LockLost` if the lock was lost, `LockNotHeld` if it is not held. Sends no request."""
        self._tenure.check()

    def renew(self) -> bool:
        """Send a heartbeat now; return whether the lock is held. Needed only without a background."""
        return self._tenure.renew()

    def locked(self) -> bool:
        """Return whether anyone holds the lock, by its record. A holder that died counts."""
        return self.holder() is not None

    def holder(self) -> Holder | None:
        """Return the present holder, which may be this one, by the record; None if the lock is free."""
        return next(iter(self._tenure.holders()), None)

    def break_holder(self, token: int, *, wait: bool = True) -> bool:
        """Release the lock in the name of the holder with this token; return whether that was needed.

        Args:
            token: `Holder.token`. If another holder has the lock, nothing happens.
            wait: whether to wait first until the holder must have noticed that it lost the lock: its
                timeout times `LockSettings.max_clock_skew_rate`. A heartbeat restarts the wait. Without,
                two holders overlap until the first one's next heartbeat. Their tokens still differ.

        Raises:
            OutcomeUnknown: no answer tells whether it was released. Call it again.
            CommitError: a request failed; nothing was changed.
        """
        return self._tenure.break_holder(token, wait=wait)
