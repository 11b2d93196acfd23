"""Removing records that nothing hangs on, many at once, and telling which of them went by that.

Nobody needs a log of it: what is removed says of other records that they are gone. Imports the ground
floor, its siblings and the `Table` port.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from attrs import define, field, frozen

from commitlog.backoff import Backoff
from commitlog.clock import Clock
from commitlog.errors import CommitError, Conflict, OutcomeUnknown, TransactionCanceled, Unavailable
from commitlog.namespace.change import MAX_WRITES
from commitlog.tables.api import Check, ConditionFailed, Delete, Key, Table, Write

__all__ = ["AGAIN", "Removals", "Removed"]

#: What says that a removal can be tried again.
AGAIN = (Conflict, OutcomeUnknown, Unavailable)


@frozen
class Removed:
    """What became of records that were to be removed.

    Attributes:
        keys: of those that this call has removed. Those that neither went nor failed are not as they
            were: somebody else was first.
        failed: the errors of those that may still be there though it was tried.
    """

    keys: Collection[Key]
    failed: Mapping[Key, CommitError]


@define
class _Sums:
    """A `Removed` that grows."""

    keys: set[Key] = field(factory=set)
    failed: dict[Key, CommitError] = field(factory=dict)


@frozen(kw_only=True)
class Removals:
    """Removes records of one table. Thread-safe.

    Args:
        table: which.
        clock: waited on between attempts.
        backoff: how often is tried again what did nothing or got no answer.
        words: makes tokens.
    """

    table: Table
    clock: Clock
    backoff: Backoff
    words: Callable[[], str]

    def remove(self, deletes: Sequence[Delete], *, check: Check | None = None) -> Removed:
        """Remove records, as many with each transaction as it takes; return what became of them.

        Args:
            deletes: what is to go, each if it is as its condition says.
            check: what has to be so, too, or nothing goes.
        """
        sums = _Sums()
        room = MAX_WRITES - (check is not None)
        for start in range(0, len(deletes), room):
            self._remove(deletes[start : start + room], check, sums)
        return Removed(sums.keys, sums.failed)

    def _remove(
        self, deletes: Sequence[Delete], check: Check | None, sums: _Sums, *, unknown: bool = False
    ) -> None:
        """Remove records with one transaction.

        Args:
            deletes, check: as of `remove`.
            sums: gets what became of them.
            unknown: whether a request of this call may have removed them already.
        """
        writes: list[Write] = [*deletes, *([] if check is None else [check])]
        token = self.words()
        failed: CommitError | None = None
        for _ in self.backoff.attempts(self.clock):
            try:
                if len(writes) == 1:
                    self.table.delete(deletes[0].key, condition=deletes[0].condition)
                else:
                    self.table.transact(writes, token=token)
                sums.keys.update(each.key for each in deletes)
                return
            except AGAIN as error:
                failed = error
                unknown = unknown or isinstance(error, OutcomeUnknown)
            except (ConditionFailed, TransactionCanceled):
                # Somebody else is here; or a request was done whose answer was lost.
                if len(deletes) > 1:
                    for each in deletes:
                        self._remove([each], check, sums, unknown=unknown)
                    return
                try:
                    if unknown and self.table.get(deletes[0].key) is None:
                        sums.keys.add(deletes[0].key)
                    return
                except Unavailable as error:
                    failed = error
        assert failed is not None
        sums.failed.update((each.key, failed) for each in deletes)
