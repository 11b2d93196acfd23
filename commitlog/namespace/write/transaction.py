"""A change of a namespace as one transaction, and the decision whether it happened.

A plan puts all its writes into one `Change`. Each write is on condition that the record is as it was
read. `Changes.run` runs a plan: it plans a change, applies it, and plans again if the namespace has
changed in between. `Changes.apply` sends a change, and repeats it until the outcome is known.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from attrs import define, field, frozen

from commitlog._util.request_stats import RequestRecorder
from commitlog._util.retry import Backoff
from commitlog.clock import Clock, Stopwatch
from commitlog.errors import (
    Busy,
    CommitError,
    Conflict,
    Fenced,
    NotSupported,
    OutcomeUnknown,
    TransactionCanceled,
    TransactionTooLarge,
    Unavailable,
)
from commitlog.namespace.log.epoch import FencedLog
from commitlog.namespace.metadata import NamespaceMetadata
from commitlog.namespace.model.records import Directory, Entry, Garbage, Guard, Tombstone
from commitlog.tables.api import (
    MAX_TRANSACTION_WRITES,
    TRANSACT_WITHIN,
    Check,
    ConditionFailed,
    Delete,
    Equals,
    Key,
    Put,
    Table,
    TableCondition,
    Value,
    Write,
    parts_of,
)

__all__ = [
    "RESEND_WITHIN",
    "SEND_WITHIN",
    "Change",
    "Changes",
    "DeadlinePassed",
    "LogRenewed",
    "PlanOutdated",
]

T = TypeVar("T")

#: Seconds after which a change that is pending in the log is not sent any more. A client that finds it
#: there later relies on this. Only a request that is still on its way can break it.
SEND_WITHIN = 900.0

#: Seconds after the first request during which a change with a lost answer is sent again. DynamoDB
#: keeps its token for ten minutes (DynamoDB API reference, TransactWriteItems, ClientRequestToken).
#: After that, a repetition would be carried out once more if others have removed the records.
RESEND_WITHIN = 540.0


class PlanOutdated(Exception):
    """The records on which a change was planned have changed. Nothing happened; plan it again."""


class DeadlinePassed(PlanOutdated):
    """There was no time left to send a change. Nothing happened; plan it again."""


class LogRenewed(PlanOutdated):
    """A restore or a log rewrite has begun a new epoch of the log. Nothing happened; plan it again."""


@define
class Change:
    """The writes of one transaction, each on another key.

    Attributes:
        what: verb phrase, for messages and for the log.
        id: id of this change; every record that it writes has it.
        primary: key of the record that shows whether the change happened.
        advice: what to do if the change has more writes than a transaction takes.
    """

    what: str
    id: str
    primary: Key
    advice: str = "It cannot be done at once"
    _writes: dict[Key, Write] = field(factory=dict, init=False)

    def put(
        self,
        record: Entry | Directory | Garbage | Guard | NamespaceMetadata | Tombstone,
        condition: TableCondition | None,
    ) -> None:
        """Add a write that stores a record."""
        self._add(record.key, Put(record.to_item(), condition))

    def delete(self, key: Key, condition: TableCondition) -> None:
        """Add a write that removes a record."""
        self._add(key, Delete(key, condition))

    def check(self, key: Key, condition: TableCondition) -> None:
        """Add a condition on a record. Ignored if the change writes the record: that has its own."""
        self._writes.setdefault(key, Check(key, condition))

    def writes_to(self, key: Key) -> bool:
        """Return whether the change writes the record under `key`, or has a condition on it."""
        return key in self._writes

    def _add(self, key: Key, write: Write) -> None:
        if not isinstance(self._writes.get(key), (Check, type(None))):
            raise ValueError(f"{self.what}: two writes on {key}")  # a bug in the planner
        self._writes[key] = write

    @property
    def writes(self) -> tuple[Write, ...]:
        """The writes, in the order in which they were added."""
        return tuple(self._writes.values())

    @property
    def primary_index(self) -> int:
        """Position of the primary record among the writes."""
        return list(self._writes).index(self.primary)

    def to_log(self) -> Mapping[str, Any]:
        """Return the entry for the operation log: the stored records with their bodies, and the removed.

        For a removed record, the log has its key and the values that the condition required; likewise
        for files and directories that others replace.
        """
        put, removed, replaced = [], [], []
        for key, write in self._writes.items():
            if isinstance(write, Put):
                item = {name: value for name, value in write.item.items() if name != "body"}
                body = write.item.get("body")
                if isinstance(body, bytes):
                    item["body"] = body.decode()
                put.append(item)
                expected = _expected(write.condition)
                if expected.get("id", item.get("id")) != item.get("id"):
                    replaced.append([key.hash, key.range, expected])
            elif isinstance(write, Delete):
                removed.append([key.hash, key.range, _expected(write.condition)])
        primary = [self.primary.hash, self.primary.range]
        return {
            "what": self.what,
            "change_id": self.id,
            "primary": primary,
            "put": put,
            "removed": removed,
            "replaced": replaced,
        }


def _expected(condition: TableCondition | None) -> dict[str, Value]:
    return {part.attribute: part.value for part in parts_of(condition) if isinstance(part, Equals)}


@frozen(kw_only=True)
class Changes:
    """Applies changes to one table. Thread-safe.

    Args:
        table: holds the records.
        clock: waited on between attempts.
        backoff: retry policy for requests that did nothing or whose answer was lost.
        log: records every change before it is sent, and its outcome; or None.
        recorder: counts changes that were sent again, refused, or recognised as done.
    """

    table: Table
    clock: Clock
    backoff: Backoff
    log: FencedLog | None = None
    recorder: RequestRecorder = field(factory=RequestRecorder)

    def run(
        self,
        plan: Callable[[], tuple[Change | None, T]],
        *,
        forget: Callable[[], object],
    ) -> T:
        """Plan a change and apply it; plan it again if another change came in between.

        Args:
            plan: returns a change, or None if nothing has to be changed, and the result of the call.
            forget: discards cached records, which may be outdated.

        Raises the errors of `plan` and `apply`, and `Conflict` if other changes kept coming in between:
        nothing was changed.
        """

        def attempt() -> T:
            try:
                change, result = plan()
                if change is not None:
                    self.apply(change)
                return result
            except PlanOutdated:
                forget()
                raise

        return self.backoff.retry(
            self.clock,
            attempt,
            on=PlanOutdated,
            exhausted=lambda error: Conflict(
                f"other changes kept coming in between; nothing was changed ({error})"
            ),
        )

    def apply(self, change: Change) -> None:
        """Apply `change`, all of it or nothing. When this returns, it has happened, exactly once.

        After a lost answer, the same request is sent with the same token; a service that keeps tokens
        carries it out once. If that request is refused, the primary record decides: if it has
        the change's id, the change happened before. Nothing is sent later than `RESEND_WITHIN` after
        the first request; after that the primary record alone decides.

        With a log, nothing is sent later than `SEND_WITHIN` after the change was about to be logged.
        Both limits are measured with the monotonic clock and with the wall clock, since the first may
        stop while a machine sleeps; the larger value counts.

        Raises:
            Fenced: the log belongs to another table; nothing was sent.
            LogRenewed: the log has a new epoch, which belongs to this table; nothing was sent.
            PlanOutdated: a condition did not hold; nothing happened.
            DeadlinePassed: it is too late to send the change; nothing happened.
            TransactionTooLarge: the change has too many writes, or too large ones; nothing was written.
            Conflict, Unavailable: all attempts failed; nothing happened.
            OutcomeUnknown: the change happened, and others have changed the same records since; or it
                did not happen; or it may still happen; or an answer was lost, and it is too late to ask
                again.
            NotSupported: the table has no transactions.
        """
        if len(change.writes) > MAX_TRANSACTION_WRITES:
            raise TransactionTooLarge(
                f"to {change.what} takes {len(change.writes)} writes in one transaction, which holds"
                f" {MAX_TRANSACTION_WRITES}; nothing was sent. {change.advice}"
            )
        if self.log is None:
            self._send(change)
            return
        epoch = self.log.epoch()
        began = Stopwatch(self.clock)
        try:
            with self.log.run(change.to_log()):
                self._send(change, began)
        except Fenced as error:
            if not self.log.is_renewed(epoch):
                raise
            raise LogRenewed(f"{change.what}: a new epoch of the log has begun; repeat it") from error

    def _send(self, change: Change, began: Stopwatch | None = None) -> None:
        sent = Stopwatch(self.clock)
        unknown: OutcomeUnknown | None = None
        last: CommitError | None = None
        for attempt in self.backoff.attempts(self.clock):
            if attempt:
                self.recorder.add("retries")
            # `transact` itself may send it up to `TRANSACT_WITHIN` later.
            late = began is not None and began.elapsed() > SEND_WITHIN - TRANSACT_WITHIN
            if unknown is not None and (late or sent.elapsed() > RESEND_WITHIN - TRANSACT_WITHIN):
                if self._is_confirmed(change):
                    return
                raise unknown
            if late:
                raise DeadlinePassed(f"{change.what}: it was not done within {SEND_WITHIN:.0f} s")
            try:
                self.table.transact(change.writes, token=change.id)
                return
            except TransactionCanceled as error:
                if not self._is_refused(change, error, known=unknown is None):
                    self.recorder.add("recognised")
                    return
                if unknown is not None:
                    raise unknown from error
                self.recorder.add("refused")
                raise PlanOutdated(str(error)) from error
            except OutcomeUnknown as error:
                unknown = error
                if self._is_confirmed(change):
                    return
            except (Conflict, Unavailable) as error:
                if isinstance(error, Busy) and unknown is None:
                    raise
                last = error
            except NotSupported as error:
                raise NotSupported(
                    f"{self.table.url} has no transactions, and a namespace needs them: use a DynamoDB"
                    " table or an SQLite file"
                ) from error
            except CommitError as error:
                if unknown is None:
                    raise
                # This request did nothing, but an earlier one may have.
                raise unknown from error
            except ValueError as error:
                if unknown is not None:
                    raise unknown from error
                # Callers control only the size of the writes.
                raise TransactionTooLarge(
                    f"to {change.what}: {error}; nothing was written. Keep less in attributes, or link"
                    " fewer files at once"
                ) from error
        failed = unknown or last
        assert failed is not None
        raise failed

    def _is_refused(self, change: Change, error: TransactionCanceled, *, known: bool) -> bool:
        """Return whether the change did not happen. It may be refused because it happened before."""
        reason = error.reasons[change.primary_index] if error.reasons else None
        if isinstance(reason, ConditionFailed) and reason.item_known:
            return reason.item is None or reason.item.get("change_id") != change.id
        if reason is None and error.reasons and known:
            return True  # the primary record is as it was before the change
        try:
            return not self._is_applied(change)
        except CommitError as unreadable:
            raise OutcomeUnknown(
                f"to {change.what} was refused, and it could not be read whether an earlier request had"
                f" done it ({unreadable})"
            ) from unreadable

    def _is_confirmed(self, change: Change) -> bool:
        with contextlib.suppress(CommitError):
            if self._is_applied(change):
                self.recorder.add("recognised")
                return True
        return False

    def _is_applied(self, change: Change) -> bool:
        found = self.table.get(change.primary)
        return found is not None and found.get("change_id") == change.id
