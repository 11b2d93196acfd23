"""A lock for ``commit_lock=`` of Lance, for callers that name a table by its URL.

It is the weaker choice. A lock without a fenced resource is advisory: Lance writes the manifest without
a condition, so a holder that is suspended, or whose request is slow, can overwrite the version of the
next one. `commitlog.lance.CommitlogNamespace` has no such weakness.

The lock is a lease of `commitlog.commit.lease` on the key of the table's directory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from commitlog._util.ids import random_id
from commitlog._util.retry import Backoff
from commitlog.clock import Clock, SystemClock
from commitlog.commit import LeaseSettings
from commitlog.commit.lease import HeldLease, Lease
from commitlog.commit.record import LEASE_SCHEMA
from commitlog.errors import LeaseTimeout, OutcomeUnknown
from commitlog.tables import Table
from commitlog.tables.api import Key
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
        settings: the length of a lease, and how long to wait for that of another.
        clock: own clock; the lease is measured on its `monotonic`.
        backoff: the retry policy after a lost answer.
        new_id: makes unique ids of holders.

    Calling it with the number of a version returns a context manager. Entering waits for the other
    writers of the table; leaving releases. If the lease ran out meanwhile, leaving raises
    `OutcomeUnknown`: another writer may have overwritten the version, or may be about to.

    Guarantees: of two holders, the second begins after the first one's lease is over, on clocks whose
    rates differ by less than `LeaseSettings.max_clock_skew_rate`.

    Non-guarantees: it excludes nobody who does not use it, and no request of a holder whose lease is
    over. A lost answer to Lance's request for the manifest is retried by Lance, which may overwrite
    the next holder's. Lance takes it for each commit by ``write_dataset`` and ``LanceDataset.commit``;
    it has no such argument for other operations, such as ``delete`` and compaction.
    """

    def __init__(
        self,
        table: Table,
        name: str,
        *,
        settings: LeaseSettings | None = None,
        clock: Clock | None = None,
        backoff: Backoff | None = None,
        new_id: Callable[[], str] = random_id,
    ) -> None:
        self._table = table
        self._name = name
        self._settings = settings or LeaseSettings(timeout=_TIMEOUT, test_interval=_INTERVAL)
        self._clock = clock or SystemClock()
        self._backoff = backoff or Backoff()
        self._new_id = new_id

    @contextmanager
    def __call__(self, version: int) -> Iterator[None]:
        """Hold the lock for the commit of a version.

        Raises:
            LeaseTimeout: another writer held it for longer than `LeaseSettings.max_wait`.
            Unavailable: the table did not answer. In both cases Lance writes nothing.
            OutcomeUnknown: the lease was over before the block ended.
        """
        lease = Lease(
            self._table,
            clock=self._clock,
            backoff=self._backoff,
            settings=self._settings,
            key=Key(f"lance-commit-lock/{self._name}", "*"),
            owner=self._new_id(),
        )
        self._acquire(lease)
        ends = lease.ends
        try:
            yield
        finally:
            over = self._clock.monotonic() > ends
            lease.begin_release()()
        if over:
            raise OutcomeUnknown(
                f"the lease on {self._name!r} was over before version {version} was written: another"
                " writer may overwrite it. Read the table again"
            )

    def close(self) -> None:
        """Close the table of leases. Idempotent."""
        self._table.close()

    def __repr__(self) -> str:
        return f"CommitLock({self._name!r})"

    def _acquire(self, lease: Lease) -> None:
        settings, clock = self._settings, self._clock
        wait = settings.max_wait
        give_up = float("inf") if wait is None else clock.monotonic() + wait
        obstacle = lease.begin_acquire(None)()
        while obstacle is not None:
            now = clock.monotonic()
            due = obstacle.reclaimable_at(settings.max_clock_skew_rate)
            if now >= due:
                obstacle = lease.begin_acquire(obstacle.record)()
                continue
            if now >= give_up:
                raise LeaseTimeout(
                    f"another writer holds the lock {self._name!r}; nothing was written. Commit again"
                )
            clock.sleep(min(settings.test_interval, due - now, give_up - now))
            obstacle = _newer(obstacle, lease.observe())


def _newer(before: HeldLease, seen: HeldLease | None) -> HeldLease | None:
    """Return the obstacle, whose time counts from when its record was first seen."""
    return before if seen is not None and seen.record == before.record else seen


def commit_lock(
    name: str,
    *,
    table: str,
    settings: LeaseSettings | None = None,
    clock: Clock | None = None,
) -> CommitLock:
    """Open a lock for ``commit_lock=`` of Lance. See `CommitLock` for what it does not guarantee.

    Args:
        name: the name of the lock, such as the URI of the dataset. All writers give the same.
        table: the table of leases: ``dynamodb://table``, ``sqlite:///file`` or ``memory://name``. A
            DynamoDB table must exist (``commitlog table create``).
        settings: by default leases of a minute, and no limit to the wait.
        clock: the clock; by default the clock of this machine.

    Raises `ConfigurationError` for a wrong URL.
    """
    opened = open_table(table, LEASE_SCHEMA, clock=clock or SystemClock())
    if not table.startswith("dynamo"):
        opened.create()
    return CommitLock(opened, name, settings=settings, clock=clock)
