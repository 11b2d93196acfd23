"""A lock for ``commit_lock=`` of Lance, for callers that name a table by its URL.

It is the weaker choice. A lock without a fenced resource is advisory: Lance writes the manifest without
a condition, so a holder that is suspended, or whose request is slow, can overwrite the version of the
next one. `commitlog.lance.CommitlogNamespace` has no such weakness.

The lock is a `commitlog.locks.Lock` in a table of leases.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from commitlog._util.background import Background
from commitlog._util.ids import random_id
from commitlog._util.retry import Backoff
from commitlog.clock import Clock, SystemClock
from commitlog.errors import LeaseTimeout, LockLost, OutcomeUnknown, Unavailable
from commitlog.locks import LOCK_SCHEMA, Lock, LockSettings
from commitlog.tables import Table
from commitlog.tables.open import open_table

__all__ = ["CommitLock", "commit_lock"]

#: Seconds of a lease: longer than Lance takes to write a manifest, other than on a slow link.
_TIMEOUT = 60.0
#: Seconds between two looks at another writer's lease.
_INTERVAL = 0.1


class CommitLock:
    """A lock of one Lance table, for ``lance.write_dataset(…, commit_lock=lock)``. Thread-safe.

    Args:
        table: the table of leases.
        name: the name of the lock; all writers of a table give the same.
        settings: how the lock is kept; by default with leases of a minute.
        max_wait: seconds to wait for other writers; None for no limit.
        clock: own clock; the lease is measured on its `monotonic`.
        backoff: the retry policy after a lost answer.
        new_id: makes unique ids of holders.
        background: sends heartbeats; by default threads.

    Calling it with the number of a version returns a context manager. Entering waits for the other
    writers of the table; leaving releases. If the lock was lost meanwhile, leaving raises
    `OutcomeUnknown`: another writer may have overwritten the version, or may be about to.

    Guarantees: those of `Lock`: of two holders, the second begins after the first one's lease is over,
    on clocks whose rates differ by less than `LockSettings.max_clock_skew_rate`.

    Non-guarantees: it does not exclude writers that do not use it, nor a request of a holder whose lease
    is over. A lost answer to Lance's request for the manifest is retried by Lance, which may overwrite
    the next holder's. Lance takes it for each commit by ``write_dataset`` and ``LanceDataset.commit``;
    it has no such argument for other operations, such as ``delete`` and compaction.
    """

    def __init__(
        self,
        table: Table,
        name: str,
        *,
        settings: LockSettings | None = None,
        max_wait: float | None = None,
        clock: Clock | None = None,
        backoff: Backoff | None = None,
        new_id: Callable[[], str] = random_id,
        background: Background | None = None,
    ) -> None:
        self._table = table
        self._name = name
        self._settings = settings or LockSettings(timeout=_TIMEOUT, test_interval=_INTERVAL)
        self._max_wait = max_wait
        self._clock = clock
        self._backoff = backoff
        self._new_id = new_id
        self._background = background

    @contextmanager
    def __call__(self, version: int) -> Iterator[None]:
        """Hold the lock for the commit of a version.

        Raises:
            LeaseTimeout: another writer held it for longer than `max_wait`.
            Unavailable: the table did not answer. In both cases Lance writes nothing.
            OutcomeUnknown: the lock was lost before the block ended.
        """
        lock = Lock(
            self._table,
            f"lance-commit-lock/{self._name}",
            settings=self._settings,
            clock=self._clock,
            backoff=self._backoff,
            new_id=self._new_id,
            background=self._background,
        )
        try:
            acquired = lock.acquire(timeout=-1 if self._max_wait is None else self._max_wait)
        except OutcomeUnknown as error:
            raise Unavailable(f"{error}. Nothing was written; commit again") from error
        if not acquired:
            raise LeaseTimeout(
                f"another writer holds the lock {self._name!r}; nothing was written. Commit again"
            )
        try:
            yield
        except BaseException:
            with contextlib.suppress(LockLost):
                lock.release()
            raise
        try:
            lock.release()
        except LockLost as lost:
            raise OutcomeUnknown(
                f"the lock {self._name!r} was lost during the commit of version {version}: another"
                " writer may have overwritten it, or may still do so. Read the table again"
            ) from lost

    def close(self) -> None:
        """Close the table of leases. Idempotent."""
        self._table.close()

    def __repr__(self) -> str:
        return f"CommitLock({self._name!r})"


def commit_lock(
    name: str,
    *,
    table: str,
    settings: LockSettings | None = None,
    max_wait: float | None = None,
    clock: Clock | None = None,
) -> CommitLock:
    """Open a lock for ``commit_lock=`` of Lance. `CommitLock` tells its weakness.

    Args:
        name: the name of the lock, such as the URI of the dataset. All writers give the same.
        table: the table of leases: ``dynamodb://table``, ``sqlite:///file`` or ``memory://name``. A
            DynamoDB table must exist (``commitlog table create``).
        settings: by default leases of a minute.
        max_wait: seconds to wait for other writers; None for no limit.
        clock: the clock; by default the clock of this machine.

    Raises `ConfigurationError` for a wrong URL.
    """
    opened = open_table(table, LOCK_SCHEMA, clock=clock or SystemClock())
    if not table.startswith("dynamo"):
        opened.create()
    return CommitLock(opened, name, settings=settings, max_wait=max_wait, clock=clock)
