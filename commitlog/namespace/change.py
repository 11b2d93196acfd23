"""One change of a namespace: one transaction, and whether it happened.

All that a mutation writes goes into one `Change`, each write on condition that what was seen is still
so. `Changes.apply` sends it until it is known what became of it. Imports the ground floor, the operation
log, its siblings and the ports.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from attrs import define, field, frozen

from commitlog.backoff import Backoff
from commitlog.clock import Clock, Stopwatch
from commitlog.errors import (
    CommitError,
    Conflict,
    NotSupported,
    OutcomeUnknown,
    TransactionCanceled,
    TransactionTooLarge,
    Unavailable,
)
from commitlog.namespace.epoch import FencedLog
from commitlog.namespace.leftovers import Garbage, Tombstone
from commitlog.namespace.marker import Marker
from commitlog.namespace.recording import Recorder
from commitlog.namespace.records import Directory, Entry, Gate
from commitlog.tables.api import (
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

__all__ = ["AGAIN", "LATEST", "MAX_WRITES", "Change", "Changes", "Late", "Stale"]

#: Seconds after which a change is not sent any more that is pending in a log: who finds it there later
#: can count on that, but for a request that is on its way.
LATEST = 900.0

#: Seconds after its first sending after which a change is not sent again whose answer was lost. Its
#: token is kept for ten minutes (DynamoDB API reference, TransactWriteItems, ClientRequestToken); after
#: that it would be done once more, if others have removed what it made.
AGAIN = 540.0

#: Writes that one transaction takes; a limit of TransactWriteItems.
MAX_WRITES = 100


class Stale(Exception):
    """What a change was planned on is no longer so. Nothing happened; plan it again."""


class Late(Stale):
    """There was no time left to do a change. Nothing happened; plan it again."""


@define
class Change:
    """The writes of one transaction, each on another key.

    Attributes:
        what: verb, for messages and for the log.
        word: names this change; every record that it writes bears it.
        witness: key of the record by which its success is recognised.
        advice: what to do if it takes more writes than a transaction has.
    """

    what: str
    word: str
    witness: Key
    advice: str = "It cannot be done at once"
    _writes: dict[Key, Write] = field(factory=dict, init=False)

    def put(
        self,
        record: Entry | Directory | Garbage | Gate | Marker | Tombstone,
        condition: TableCondition | None,
    ) -> None:
        """Store a record."""
        self._add(record.key, Put(record.to_item(), condition))

    def delete(self, key: Key, condition: TableCondition) -> None:
        """Remove a record."""
        self._add(key, Delete(key, condition))

    def check(self, key: Key, condition: TableCondition) -> None:
        """Require something of a record. What is written anyway has its own condition."""
        self._writes.setdefault(key, Check(key, condition))

    def writes_to(self, key: Key) -> bool:
        """Tell whether a record under `key` is written, or required to be something."""
        return key in self._writes

    def _add(self, key: Key, write: Write) -> None:
        if not isinstance(self._writes.get(key), (Check, type(None))):
            raise ValueError(f"{self.what}: two writes on {key}")  # a mistake of the planner's
        self._writes[key] = write

    @property
    def writes(self) -> tuple[Write, ...]:
        """The writes, in the order in which they were added."""
        return tuple(self._writes.values())

    @property
    def witness_at(self) -> int:
        """Position of the witness among the writes."""
        return list(self._writes).index(self.witness)

    def to_log(self) -> Mapping[str, Any]:
        """Return what the operation log keeps: which records come, with their bodies, and which go.

        Of what goes it has the key, and what the condition said of it; the same of files and
        directories in whose place others come.
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
        witness = [self.witness.hash, self.witness.range]
        return {
            "what": self.what,
            "word": self.word,
            "witness": witness,
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
        table: where.
        clock: waited on between attempts.
        backoff: how often, and after what pauses, is repeated what did nothing or got no answer.
        log: has every change before it is sent, and what became of it; or None.
        recorder: counts what was sent again, refused, and recognised.
    """

    table: Table
    clock: Clock
    backoff: Backoff
    log: FencedLog | None = None
    recorder: Recorder = field(factory=Recorder)

    def apply(self, change: Change) -> None:
        """Do `change`, all of it or nothing. When this returns, it has happened, once.

        A lost answer is followed by the same request with the same token, which a service that keeps
        tokens does once. What is refused then was done before if the witness bears the change's word.
        Nothing is sent again later than `AGAIN` after the first time; by then the witness alone tells.

        With a log, nothing is sent later than `LATEST` after the change was about to be logged. Both by
        the monotonic clock or, since that may stand still while a machine sleeps, by the other.

        Raises:
            Fenced: the log belongs to another table; nothing was sent.
            Stale: a condition did not hold, or, `Late`, it is too late; nothing happened.
            TransactionTooLarge: it has too many writes, or too large ones; nothing was written.
            Conflict, Unavailable: nothing happened, after several attempts.
            OutcomeUnknown: it happened, and somebody changed the same since; or it did not; or it still
                may; or an answer was lost, and it is too late to ask again.
            NotSupported: the table has no transactions.
        """
        if len(change.writes) > MAX_WRITES:
            raise TransactionTooLarge(
                f"to {change.what} takes {len(change.writes)} writes in one transaction, which holds"
                f" {MAX_WRITES}; nothing was sent. {change.advice}"
            )
        if self.log is None:
            self._settle(change)
            return
        began = Stopwatch(self.clock)
        with self.log.run(change.to_log()):
            self._settle(change, began)

    def _settle(self, change: Change, began: Stopwatch | None = None) -> None:
        sent = Stopwatch(self.clock)
        unknown: OutcomeUnknown | None = None
        last: CommitError | None = None
        for attempt in self.backoff.attempts(self.clock):
            if attempt:
                self.recorder.add("retries")
            # `transact` may send it that much later.
            late = began is not None and began.elapsed() > LATEST - TRANSACT_WITHIN
            if unknown is not None and (late or sent.elapsed() > AGAIN - TRANSACT_WITHIN):
                if self._is_known_to_be_done(change):
                    return
                raise unknown
            if late:
                raise Late(f"{change.what}: it was not done within {LATEST:.0f} s")
            try:
                self.table.transact(change.writes, token=change.word)
                return
            except TransactionCanceled as error:
                if not self._refused_after_all(change, error, known=unknown is None):
                    self.recorder.add("recognised")
                    return
                if unknown is not None:
                    raise unknown from error
                self.recorder.add("refused")
                raise Stale(str(error)) from error
            except OutcomeUnknown as error:
                unknown = error
                if self._is_known_to_be_done(change):
                    return
            except (Conflict, Unavailable) as error:
                last = error
            except NotSupported as error:
                raise NotSupported(
                    f"{self.table.url} has no transactions, and a namespace needs them: give it a table"
                    " of DynamoDB, or an SQLite file"
                ) from error
            except CommitError as error:
                if unknown is None:
                    raise
                # That this request did nothing says nothing about those before it.
                raise unknown from error
            except ValueError as error:
                if unknown is not None:
                    raise unknown from error
                # Of what is written only the size is up to callers.
                raise TransactionTooLarge(
                    f"to {change.what}: {error}; nothing was written. Keep less in attributes, or link"
                    " fewer files at once"
                ) from error
        failed = unknown or last
        assert failed is not None
        raise failed

    def _refused_after_all(self, change: Change, error: TransactionCanceled, *, known: bool) -> bool:
        """Tell whether the change did not happen, though it may be its own doing that it was refused."""
        reason = error.reasons[change.witness_at] if error.reasons else None
        if isinstance(reason, ConditionFailed) and reason.item_known:
            return reason.item is None or reason.item.get("word") != change.word
        if reason is None and error.reasons and known:
            return True  # the witness is still as it was before
        try:
            return not self._is_done(change)
        except CommitError as unreadable:
            raise OutcomeUnknown(
                f"to {change.what} was refused, and whether that was its own doing could not be read"
                f" ({unreadable})"
            ) from unreadable

    def _is_known_to_be_done(self, change: Change) -> bool:
        with contextlib.suppress(CommitError):
            if self._is_done(change):
                self.recorder.add("recognised")
                return True
        return False

    def _is_done(self, change: Change) -> bool:
        found = self.table.get(change.witness)
        return found is not None and found.get("word") == change.word
