"""`Election`: one leader among all candidates, and the next one after it."""

from __future__ import annotations

from collections.abc import Callable

from attrs import field, frozen

from commitlog._util.background import Background
from commitlog._util.ids import random_id
from commitlog._util.retry import Backoff
from commitlog.clock import Clock, SystemClock
from commitlog.errors import CommitError, LockLost, LockNotHeld
from commitlog.locks.lock import Lock
from commitlog.locks.records import LockStore
from commitlog.locks.settings import LockSettings
from commitlog.locks.tenure import Holder

__all__ = ["Election", "Term"]


@frozen
class Term:
    """The time for which a candidate leads. Thread-safe.

    Attributes:
        token: the fencing token of the term: larger than that of every earlier one.
    """

    token: int
    _held: Callable[[], bool] = field(repr=False, eq=False)

    @property
    def active(self) -> bool:
        """Whether the candidate still leads in this term. Sends no request."""
        return self._held()

    def check(self) -> None:
        """Raise `LockLost` if the term is over."""
        if not self.active:
            raise LockLost(f"the term with token {self.token} is over")


class Election:
    """Elects one leader among the candidates that name the same store and name.

    Args:
        store, name, settings, holder, clock, backoff, new_id, background: as of `Lock`, which an
            election is built on. Its guarantees are those of the lock; pass `Term.token` with each
            write.
        on_elected: is called with the term when this candidate begins to lead, in the thread of
            `campaign` or `run`, before they return or call their function.
        on_deposed: is called with the term when it ends without `step_down`: leadership was lost. It may
            still be running work; see `Lock.on_lost` for the thread and the time.

    Thread-safe, but one thread at a time may campaign.

    >>> import commitlog
    >>> store = commitlog.connect("memory://")
    >>> candidate = Election(store, "scheduler", holder="host-1")
    >>> term = candidate.campaign()
    >>> candidate.leader().description, term.active
    ('host-1', True)
    >>> candidate.step_down()
    >>> candidate.leader() is None, term.active
    (True, False)
    """

    def __init__(
        self,
        store: LockStore,
        name: str,
        *,
        settings: LockSettings | None = None,
        holder: str = "",
        on_elected: Callable[[Term], object] | None = None,
        on_deposed: Callable[[Term], object] | None = None,
        clock: Clock | None = None,
        backoff: Backoff | None = None,
        new_id: Callable[[], str] = random_id,
        background: Background | None = None,
    ) -> None:
        self._clock = SystemClock() if clock is None else clock
        self._pause = (LockSettings() if settings is None else settings).test_interval
        self._on_elected = on_elected
        self._on_deposed = on_deposed
        self._term: Term | None = None
        self._lock = Lock(
            store,
            name,
            settings=settings,
            holder=holder,
            on_lost=self._deposed,
            clock=self._clock,
            backoff=backoff,
            new_id=new_id,
            background=background,
        )

    @property
    def term(self) -> Term | None:
        """The term in which this candidate leads now, or None."""
        term = self._term
        return term if term is not None and term.active else None

    def campaign(self, timeout: float = -1) -> Term | None:
        """Wait until this candidate leads; return its term, or None after `timeout` seconds.

        A candidate that leads already gets its term at once. A term that was lost is left first.

        Raises:
            OutcomeUnknown, CommitError: as `Lock.acquire`; the candidate does not lead.

        An error of `on_elected` is raised, after the candidate has stepped down.
        """
        if (term := self.term) is not None:
            return term
        self.step_down()
        if not self._lock.acquire(timeout=timeout):
            return None
        token = self._lock.token
        term = self._term = Term(token, lambda: self._term is term and self._lock.held)
        if self._on_elected is not None:
            try:
                self._on_elected(term)
            except BaseException:
                self.step_down()  # or heartbeats would keep a leader that does nothing
                raise
        return term

    def step_down(self) -> None:
        """Stop leading, so that another candidate can begin; do nothing if this one does not lead."""
        self._term = None
        try:
            self._lock.release()
        except LockNotHeld:  # lost before, or never held
            return

    def run(self, lead: Callable[[Term], object], *, stop: Callable[[], bool] = lambda: False) -> None:
        """Campaign again and again, and call `lead` with each term, until `stop` returns True.

        Args:
            lead: the work of a leader. It should look at `Term.active`, and return soon when the term is
                over. When it returns, or raises, the candidate steps down.
            stop: is asked between attempts, at least every `LockSettings.test_interval` seconds, and
                after each term.

        Errors of requests end an attempt, and the next one begins. Errors of `lead` are raised; but a
        `LockLost` ends the term only. Errors of `on_elected` are raised, too, except a `CommitError`,
        after which the candidate campaigns again.
        """
        while not stop():
            try:
                term = self.campaign(timeout=self._pause)
            except CommitError:
                self._clock.sleep(self._pause)
                continue
            if term is None:
                continue
            try:
                lead(term)
            except LockLost:
                continue
            finally:
                self.step_down()

    def leader(self) -> Holder | None:
        """Return the present leader by the record, or None. It may have died."""
        return self._lock.holder()

    def renew(self) -> bool:
        """Send a heartbeat now; return whether this candidate leads. See `Lock.renew`."""
        return self._lock.renew()

    def _deposed(self, error: LockLost) -> None:
        term = self._term
        if term is not None and self._on_deposed is not None:
            self._on_deposed(term)
