"""Removal of independent records, many at once, with a report of those that this call removed.

The removals are not logged: such a record has no meaning after the items that it describes are gone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from attrs import define, field, frozen

from commitlog._util.retry import Backoff
from commitlog.clock import Clock
from commitlog.errors import CommitError, Conflict, OutcomeUnknown, TransactionCanceled, Unavailable
from commitlog.tables.api import (
    MAX_TRANSACTION_WRITES,
    Check,
    ConditionFailed,
    Delete,
    Key,
    Table,
    Write,
)

__all__ = ["RETRYABLE", "DeleteReport", "RecordDeleter"]

#: Errors after which a removal can be tried again.
RETRYABLE = (Conflict, OutcomeUnknown, Unavailable)


@frozen
class DeleteReport:
    """The result of a removal of records.

    Attributes:
        keys: keys of the records that this call removed. Records that were neither removed nor failed
            had changed: another client was first.
        failed: errors of the records that may still exist after all attempts.
    """

    keys: Collection[Key]
    failed: Mapping[Key, CommitError]


@define
class _Totals:
    """A mutable `DeleteReport`."""

    keys: set[Key] = field(factory=set)
    failed: dict[Key, CommitError] = field(factory=dict)


@frozen(kw_only=True)
class RecordDeleter:
    """A deleter of records of one table. Thread-safe.

    Args:
        table: the table.
        clock: used to wait between attempts.
        backoff: retry policy of removals that had no effect or got no answer.
        new_id: returns transaction tokens.
    """

    table: Table
    clock: Clock
    backoff: Backoff
    new_id: Callable[[], str]

    def remove(self, deletes: Sequence[Delete], *, check: Check | None = None) -> DeleteReport:
        """Remove records, with transactions as large as possible; return a report.

        Args:
            deletes: the removals, each with its condition.
            check: an extra condition; if it does not hold, nothing is removed.
        """
        totals = _Totals()
        room = MAX_TRANSACTION_WRITES - (check is not None)
        for start in range(0, len(deletes), room):
            self._remove(deletes[start : start + room], check, totals)
        return DeleteReport(totals.keys, totals.failed)

    def _remove(
        self, deletes: Sequence[Delete], check: Check | None, totals: _Totals, *, unknown: bool = False
    ) -> None:
        """Remove records with one transaction.

        Args:
            deletes, check: see `remove`.
            sums: collects the results.
            unknown: whether a request of this call may already have removed them.
        """
        writes: list[Write] = [*deletes, *([] if check is None else [check])]
        token = self.new_id()

        def remove() -> None:
            nonlocal unknown
            try:
                if len(writes) == 1:
                    self.table.delete(deletes[0].key, condition=deletes[0].condition)
                else:
                    self.table.transact(writes, token=token)
                totals.keys.update(each.key for each in deletes)
            except OutcomeUnknown:
                unknown = True
                raise
            except (ConditionFailed, TransactionCanceled):
                # Another client was first; or a request succeeded whose answer was lost.
                if len(deletes) > 1:
                    for each in deletes:
                        self._remove([each], check, totals, unknown=unknown)
                elif unknown and self.table.get(deletes[0].key) is None:
                    totals.keys.add(deletes[0].key)

        try:
            self.backoff.retry(self.clock, remove, on=RETRYABLE)
        except RETRYABLE as failed:
            totals.failed.update((each.key, failed) for each in deletes)
