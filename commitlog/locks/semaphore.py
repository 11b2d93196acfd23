"""`Semaphore`: at most n holders at a time, among all processes of all machines.

A module of its own, as the counterpart of `commitlog.locks.lock`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import TracebackType

from commitlog._util.background import Background, Threads
from commitlog._util.ids import random_id
from commitlog._util.retry import Backoff
from commitlog.clock import Clock
from commitlog.errors import ConfigurationError, LockLost, LockNotHeld
from commitlog.locks.records import LockStore
from commitlog.locks.settings import LockSettings
from commitlog.locks.tenure import Holder, open_tenure

__all__ = ["Semaphore"]


class Semaphore:
    """A number of permits. One holder at a time can have each of them.

    Permit number i is the lock ``NAME.i``: one object, or one item, with fencing tokens of its own. One
    object of this class holds one permit at most, for one thread at a time; to have two permits, make
    two. The guarantees are those of `Lock`, for each permit.

    Args:
        store, name, settings, holder, on_lost, clock, backoff, new_id, background: as of `Lock`.
        permits: the number of permits, from 1 to 1,000. All holders must name the same number: with a
            smaller one, some of the permits cannot be had; with a larger one, there are more holders.

    An acquisition asks for the permits one after the other, and a waiter reads the records of all of
    them every `LockSettings.test_interval` seconds. So it suits tens of permits rather than hundreds.

    >>> import commitlog
    >>> store = commitlog.connect("memory://")
    >>> first, second, third = (Semaphore(store, "loads", permits=2) for _ in range(3))
    >>> with first, second:
    ...     first.slot, second.slot, third.acquire(blocking=False)
    (0, 1, False)
    """

    def __init__(
        self,
        store: LockStore,
        name: str,
        *,
        permits: int,
        settings: LockSettings | None = None,
        holder: str = "",
        on_lost: Callable[[LockLost], object] | None = None,
        clock: Clock | None = None,
        backoff: Backoff | None = None,
        new_id: Callable[[], str] = random_id,
        background: Background | None = None,
    ) -> None:
        if not 1 <= permits <= 1000:
            raise ConfigurationError(f"permits is {permits}; it must be from 1 to 1000")
        self.name = name
        self._tenure = open_tenure(
            store,
            name,
            slots=permits,
            settings=settings,
            holder=holder,
            on_lost=on_lost,
            clock=clock,
            backoff=backoff,
            new_id=new_id,
            background=Threads("commitlog-semaphore") if background is None else background,
        )

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        """Acquire a permit; return whether one is held. The arguments are those of
        `threading.Semaphore`.

        Raises:
            LockLost: the permit of this object was lost, and must be released first.
            RuntimeError: this object has a permit already.
            OutcomeUnknown, CommitError: as `Lock.acquire`.
            ValueError: a timeout without `blocking`.
        """
        if not blocking and timeout is not None:
            raise ValueError("can't specify timeout for non-blocking acquire")
        if self._tenure.acquired:
            self._tenure.check()
            raise RuntimeError(
                f"this object has a permit of {self.name!r} already: make another one for each permit"
            )
        return self._tenure.acquire(0.0 if not blocking else math.inf if timeout is None else timeout)

    def release(self) -> None:
        """Release the permit. Raises `LockLost`, `LockNotHeld`; see `Lock.release`."""
        self._tenure.release()

    def __enter__(self) -> Semaphore:
        """Acquire a permit, waiting without a limit."""
        self.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Release the permit. Raises `LockLost` if it was lost, unless another error is on its way."""
        try:
            self.release()
        except LockNotHeld:
            if kind is None:
                raise

    @property
    def held(self) -> bool:
        """Whether this object holds a permit at this moment; see `Lock.held`."""
        return self._tenure.held

    @property
    def slot(self) -> int:
        """The number of the permit, from 0. Raises `LockNotHeld`, `LockLost`."""
        return self._tenure.slot

    @property
    def token(self) -> int:
        """The fencing token among the holders of the same permit. Raises `LockNotHeld`, `LockLost`."""
        return self._tenure.token

    @property
    def expires(self) -> float:
        """The time on the clock's `monotonic` at which it is lost; see `Lock.expires`."""
        return self._tenure.expires

    def check(self) -> None:
        """Raise `LockLost` if the permit was lost, `LockNotHeld` if there is none."""
        self._tenure.check()

    def renew(self) -> bool:
        """Send a heartbeat now; return whether the permit is held."""
        return self._tenure.renew()

    def holders(self) -> tuple[Holder, ...]:
        """Return the present holders, by the records; those that died count."""
        return self._tenure.holders()

    def break_holder(self, token: int, *, slot: int | None = None, wait: bool = True) -> bool:
        """Release the permit in the name of the holder with this token; see `Lock.break_holder`.

        Args:
            token: `Holder.token`.
            slot: `Holder.slot`; None: that of the only holder with this token. Tokens are counted for
                each permit, so the holders of two permits may have the same one.
            wait: as of `Lock.break_holder`.

        Raises:
            ConfigurationError: there is no such slot, or several holders have the token and no slot is
                given; nothing was changed.
            OutcomeUnknown, CommitError: as `Lock.break_holder`.
        """
        return self._tenure.break_holder(token, slot=slot, wait=wait)
