"""An operation log: records each operation before it is performed, and its outcome.

::

    <prefix>/pending/<id>.json     written before anything is done
    <prefix>/decided/<id>.json     the same with the decision, written put-if-absent: decided once

A listing of ``pending/`` shows the undecided operations, however long the log is, because the winner of
the decision removes the pending entry. After a crash between these two steps a decided operation is
still listed; deciding it again returns the existing decision, and `compact` removes the entry.
"""

from __future__ import annotations

import contextlib
import enum
import logging
import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from attrs import evolve, field, frozen

from commitlog._util.batching import Collector
from commitlog._util.concurrency import OpenExecutor, in_order
from commitlog._util.ids import random_id
from commitlog._util.retry import Backoff
from commitlog._util.tracing import traced
from commitlog.clock import Clock, SystemClock
from commitlog.commit.conditional import ConditionalStore
from commitlog.errors import (
    AlreadyExists,
    CommitError,
    Committed,
    ConfigurationError,
    CorruptRecord,
    FormatTooNew,
    NotFound,
    OutcomeUnknown,
    Unavailable,
)
from commitlog.oplog.codec import Document
from commitlog.oplog.record_directory import ListedRecord, NameRange, RecordDirectory
from commitlog.oplog.torn_reads import read_record
from commitlog.oplog.validate import build, mapping, moment
from commitlog.paths import join

__all__ = ["Decision", "LogSize", "Operation", "OperationLog"]

_log = logging.getLogger(__name__)

_PENDING, _DECIDED = "pending", "decided"

#: Number of digits of the epoch millisecond with which an id begins.
_DIGITS = 13

#: Milliseconds between the first operation and the first guess of the last one, and the part of the
#: whole time to which the last one is searched; see `OperationLog.ranges`.
_FIRST_STEP, _PRECISION = 60_000, 64

#: The field that `compact` adds to a decision before it removes the pending entry.
_REDATED = "redated"

#: Maximum number of entries that are being read, or were read and not yet consumed. An entry usually has
#: some kilobytes, and four megabytes at most.
_AHEAD = 32


class Decision(enum.Enum):
    """The outcome of an operation."""

    COMMITTED = "committed"
    ROLLED_BACK = "rolled-back"


@frozen(kw_only=True)
class Operation:
    """A logged operation.

    Attributes:
        id: its name in the log; ids sort by the time at which their clocks began them.
        body: the description of the operation, a JSON object of the caller.
        time: epoch seconds at which it began, by the clock of its process.
        decision: None if no decision is known.
    """

    id: str
    body: Mapping[str, Any] = field(hash=False)
    time: float
    decision: Decision | None = None


@frozen(kw_only=True)
class LogSize:
    """The number of operations in a log, and their ages by the store's clock.

    Attributes:
        pending: number of operations that are listed as pending.
        overdue: number of those that began at least `older_than` seconds ago.
        oldest: age in seconds of the oldest pending operation; None if there is none.
        decided: number of decisions.
        settled: number of decisions that are older than the retention, which `compact` may forget.
        complete: False if a listing was cut at the limit, so numbers may be too low.
    """

    pending: int
    overdue: int
    oldest: float | None
    decided: int
    settled: int
    complete: bool


@traced(
    lambda log, arguments: {
        "commitlog.store": log._store.url,
        "commitlog.log": log.prefix,
        "commitlog.operation.id": arguments.get("id", getattr(arguments.get("operation"), "id", None)),
    },
    without=("run", "sibling", "below"),
)
class OperationLog:
    """A log of operations in an object store. Thread-safe.

    Args:
        store: the store of the log.
        prefix: path of the log.
        clock: gives operations their ids and times, and measures how long they took.
        retention: minimum number of seconds for which a decision is kept; the same for all users of a
            log.
        new_id: makes the unique part of an operation's id.
        open_executor: opens an executor to read several entries in parallel; None: entries are read one
            after the other.
        backoff: the retry policy of reads of a damaged decision; see `read_record`.

    Attributes:
        prefix, retention: as given.

    Guarantees: an operation is decided at most once, and every later attempt gets that decision, or the
    error that it is forgotten. `run` performs no operation that was not logged before.

    Non-guarantees: the log does not know whether an operation that stayed pending was performed; only
    the changed data shows it (`recover`). The log is not a lock: before a recovery rolls an operation
    back, it must make sure that the operation will not be performed later.
    """

    def __init__(
        self,
        store: ConditionalStore,
        prefix: str,
        *,
        clock: Clock | None = None,
        retention: float = 86_400.0,
        new_id: Callable[[], str] = random_id,
        open_executor: OpenExecutor | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        if retention <= 0:
            raise ConfigurationError(f"retention is {retention} seconds; it must be more than 0")
        self.prefix = prefix
        self.retention = retention
        self._store = store
        self._clock: Clock = SystemClock() if clock is None else clock
        self._new_id = new_id
        self._open_executor = open_executor
        self._backoff = Backoff() if backoff is None else backoff
        self._pending = RecordDirectory(store, join(prefix, _PENDING), frozenset({"operation"}))
        self._decided = RecordDirectory(store, join(prefix, _DECIDED), frozenset({"decision"}))
        self._drifted: list[str] = []
        # Threads that decide at the same time share the request.
        self._decided_now: Collector[tuple[str, float]] = Collector(self._remove_pending)

    def close(self) -> None:
        """Close the store. Idempotent."""
        self._store.close()

    @property
    def drift(self) -> int:
        """Number of operations that this instance left pending because it could not log a decision."""
        return len(self._drifted)

    # one operation

    @contextlib.contextmanager
    def run(self, body: Mapping[str, Any]) -> Iterator[Operation]:
        """Log an operation, let the block perform it, and log its outcome.

        * If the operation cannot be logged, the block is not entered: `Unavailable`, or the store's
          error.
        * If the block raises an `Exception`, the operation is rolled back in the log, and the exception
          propagates. The block must have undone its changes, or raise `OutcomeUnknown`.
        * If it raises `OutcomeUnknown` or `Committed`, or is interrupted by another `BaseException`,
          the operation stays pending.
        * If it returns, the operation has succeeded, even if that cannot be logged: then `drift` counts
          it, and `recover` repairs the log.

        Args:
            body: the description of the operation, a JSON object.

        Raises `OutcomeUnknown` after a block that returned, if a recovery had rolled the operation back
        in the meantime, or if its decision is already forgotten. The changed data shows the outcome.
        """
        began = self._clock.monotonic()
        operation = self.begin(body)
        try:
            yield operation
        except (Committed, OutcomeUnknown):
            raise
        except Exception:
            self._conclude(operation, Decision.ROLLED_BACK, began)
            raise
        if not self._conclude(operation, Decision.COMMITTED, began):
            raise OutcomeUnknown(
                f"operation {operation.id} was performed, but a recovery considered it dead, and"
                " decided it meanwhile; look at the data that it changes"
            )

    def begin(self, body: Mapping[str, Any]) -> Operation:
        """Log an operation as pending. It must not be performed before this returns.

        Raises `Unavailable` if the entry may or may not be stored; a stored entry does no harm.
        """
        now = self._clock.epoch()
        id = f"{_moment(int(now * 1000))}-{self._new_id()}"
        operation = Operation(id=id, body=dict(body), time=now)
        document = Document("operation", {"time": now, "operation": operation.body})
        try:
            self._pending.add(operation.id, document)
        except (AlreadyExists, OutcomeUnknown) as error:
            # This id is unique: an existing entry comes from a repeated request.
            raise Unavailable(
                f"the operation was not begun: it could not be logged ({error})"
            ) from error
        return operation

    def decide(self, operation: Operation, decision: Decision) -> Decision:
        """Decide an operation, and return the valid decision: this one or an earlier one.

        Raises:
            NotFound: it was decided and compacted away; the decision is forgotten.
            OutcomeUnknown: this or another decision is valid, or will be; call it again to get it.
        """
        seen = self._clock.monotonic()
        if not self._pending.exists(operation.id):
            return self._standing(operation)
        return self._decide(operation, decision, seen)

    def decision(self, id: str) -> Decision | None:
        """Return the decision of operation `id`; None if it is undecided, forgotten or never began."""
        try:
            return self._read_decided(id).decision
        except NotFound:
            return None

    # all operations

    def pending(
        self,
        *,
        older_than: float = -math.inf,
        known: Container[str] = (),
        unreadable: Callable[[CommitError], object] | None = None,
    ) -> Iterator[Operation]:
        """Yield the undecided operations, the oldest first.

        A concurrent change may or may not be visible.

        Args:
            older_than: only operations that began at least so many seconds ago, by the store's clock.
            known: ids of operations to leave out; they are not read.
            unreadable: is called with the error of each entry that cannot be read (`CorruptRecord`,
                `FormatTooNew`), which is then skipped; by default the error is raised.
        """
        deadline = self._now() - older_than if older_than > -math.inf else math.inf
        entries = (
            entry
            for entry in self._pending.list()
            if entry.written <= deadline and entry.name not in known
        )
        return self._listed(entries, self._read_pending, unreadable)

    def history(
        self,
        *,
        within: NameRange | None = None,
        unreadable: Callable[[CommitError], object] | None = None,
    ) -> Iterator[Operation]:
        """Yield the decided operations that are not compacted away, the oldest first.

        Args:
            within: only operations whose ids are in this range; see `ranges`.
            unreadable: as in `pending`.
        """
        entries = self._decided.list(within=NameRange() if within is None else within)
        return self._listed(entries, self._read_decided, unreadable)

    def names(self) -> Iterator[str]:
        """Yield the ids of all operations, the pending ones first, without reading them."""
        yield from self.pending_names()
        yield from self.decided_names()

    def pending_names(self) -> Iterator[str]:
        """Yield the ids of the operations that are listed as pending, without reading them."""
        return (entry.name for entry in self._pending.list())

    def decided_names(self, within: NameRange | None = None) -> Iterator[str]:
        """Yield the ids of the decided operations in a range, without reading them."""
        entries = self._decided.list(within=NameRange() if within is None else within)
        return (entry.name for entry in entries)

    def ranges(self, count: int) -> tuple[NameRange, ...]:
        """Return ranges of ids that divide the decided operations by the time of their beginning.

        The ranges are in order and adjacent; the first has no lower bound, and the last no upper one. So
        each id is in one range, whatever it looks like and whenever it is added. All ranges but the
        outer two have the same length in time, not the same number of operations. Takes up to 40 short
        listings.

        Args:
            count: maximum number of ranges; there are fewer if the operations began within fewer
                milliseconds.
        """
        first = next(self._decided.list(), None)
        if first is None or count < 2:
            return (NameRange(),)
        low = start = _millisecond(first.name)
        high, latest = start + _FIRST_STEP, 10**_DIGITS
        while high < latest and self._begin_after(high):
            low, high = high, min(start + 2 * (high - start), latest)
        while high - low > max(1, (high - start) // _PRECISION):
            middle = (low + high) // 2
            low, high = (middle, high) if self._begin_after(middle) else (low, middle)
        bounds = sorted({start + (high - start) * each // count for each in range(1, count)} - {start})
        names = ["", *map(_moment, bounds)]
        return tuple(map(NameRange, names, [*names[1:], None]))

    def _begin_after(self, millisecond: int) -> bool:
        """Return whether the id of a decided operation begins with this epoch millisecond or later."""
        later = self._decided.list(within=NameRange(_moment(millisecond)))
        return next(later, None) is not None

    def youngest(self) -> float:
        """Return the age in seconds, by the store's clock, of the newest pending operation.

        It is infinite if no operation is pending.
        """
        written = max((entry.written for entry in self._pending.list()), default=-math.inf)
        return self._now() - written

    def measure(self, *, older_than: float, limit: int | None = None) -> LogSize:
        """Return the number and ages of the operations, without reading them; change nothing.

        Takes one request for the store's time, and one for each thousand listed entries.

        Args:
            older_than: age in seconds at which a pending operation is overdue.
            limit: most entries of each kind that are listed; None for no bound.
        """
        most = None if limit is None else limit + 1
        now = self._now()
        pending, decided = (
            [now - entry.written for entry in islice(entries.list(), most)]
            for entries in (self._pending, self._decided)
        )
        complete = limit is None or max(len(pending), len(decided)) <= limit
        if not complete:
            del pending[limit:], decided[limit:]
        return LogSize(
            pending=len(pending),
            overdue=sum(age >= older_than for age in pending),
            oldest=max(pending, default=None),
            decided=len(decided),
            settled=sum(age >= self.retention for age in decided),
            complete=complete,
        )

    def recover(
        self, judge: Callable[[Operation], Decision | None], *, older_than: float
    ) -> tuple[Operation, ...]:
        """Decide operations that were left pending; return them with their decisions. Idempotent.

        Args:
            judge: finds the outcome of an operation from the data that it was to change; None: leave it
                pending. Before it returns "rolled back", it must make sure that the operation cannot be
                performed any more.
            older_than: only operations that began at least so many seconds ago, by the store's clock.

        Raises `CorruptRecord` or `FormatTooNew` if an entry cannot be read, after all others were
        recovered.
        """
        decided = []
        unreadable: list[CommitError] = []
        deadline = self._now() - older_than
        for entry in self._pending.list():
            if entry.written > deadline:
                continue
            try:
                operation = self._recover(entry.name, judge)
            except (CorruptRecord, FormatTooNew) as error:
                unreadable.append(error)
                continue
            if operation is not None:
                decided.append(operation)
        for another in unreadable[1:]:
            _log.warning("%s", another)
        if unreadable:
            raise unreadable[0]
        return tuple(decided)

    def sibling(self, name: str, kinds: frozenset[str]) -> RecordDirectory:
        """Return a directory of other records of this log, at ``<prefix>/<name>/``.

        Args:
            name: any name except ``pending`` and ``decided``.
            kinds: the kinds of records in it.
        """
        if name in (_PENDING, _DECIDED):
            raise ConfigurationError(f"{name!r} has the operations of the log: give another name")
        return RecordDirectory(self._store, join(self.prefix, name), kinds)

    def below(self, name: str) -> OperationLog:
        """Return another log with the same store and settings, at ``<prefix>/<name>/``.

        Args:
            name: a path that does not begin with ``pending`` or ``decided``.
        """
        return OperationLog(
            self._store,
            join(self.prefix, name),
            clock=self._clock,
            retention=self.retention,
            new_id=self._new_id,
            open_executor=self._open_executor,
            backoff=self._backoff,
        )

    def compact(
        self,
        *,
        older_than: float | None = None,
        save: Callable[[Iterator[Operation]], object] | None = None,
        listed: Callable[[str], object] = lambda id: None,
        limit: int | None = None,
    ) -> int:
        """Forget decisions; return how many.

        No operation becomes decidable again. A decision is kept for at least half of `retention` after
        its pending entry is gone. The winner of the decision removes the pending entry at once. If not,
        this method removes it, but first adds a mark to the decision, which also renews its date, and
        forgets the decision `retention` later. So a process that finds an operation pending, and decides
        it within a quarter of `retention`, cannot miss an earlier decision. A process that took longer
        checks whether the operation is still pending. If it is not, and the written decision has no such
        mark, there was an earlier decision, and the new one is taken back.

        Assumptions: clocks run at about the same rate. A request arrives within a quarter of `retention`
        of the last reading of the clock, or never. A process that took longer than that does not die, or
        lose contact with the store, before that check. Until the check others can read its decision.

        Args:
            older_than: minimum age of a decision in seconds by the store's clock; at least `retention`,
                which is the default.
            save: keeps decided operations from which something is to be rebuilt. It is called with the
                operations that are about to be forgotten. Operations that it does not take are not
                forgotten; if it raises, none is. With `save`, only operations are forgotten that were
                decided a quarter of `retention` before any pending operation began, by the store's
                clock: so the process that decides a pending one can still see all that came after.
            listed: is called with the id of each operation that the log has, pending ones first, before
                `save` is called. An operation that is decided meanwhile is not missed.
            limit: maximum number to forget; other operations that are old enough may stay.
        """
        age = self.retention if older_than is None else older_than
        if age < self.retention:
            raise ConfigurationError(
                f"older_than is {age} seconds; this log settles in {self.retention}"
            )
        deadline = self._now() - age
        # In this order: if another compaction has just removed the pending entry, the decision has a new
        # date.
        undecided = {entry.name: entry.written for entry in self._pending.list()}
        pending = frozenset(undecided)
        for name in pending:
            listed(name)
        left: list[str] = []
        old: list[ListedRecord] = []
        for entry in self._decided.list():
            listed(entry.name)
            undecided.pop(entry.name, None)
            if entry.written > deadline:
                continue
            if entry.name in pending:
                left.append(entry.name)
            elif limit is None or len(old) < limit:
                old.append(entry)
        for name in left:
            self._redate(name)
        self._pending.remove_all(left)
        if save is not None:
            bound = min(undecided.values(), default=math.inf) - self.retention / 4
            old = [entry for entry in old if entry.written < bound]
            if old:
                taken: list[ListedRecord] = []
                save(self._taken(old, taken))
                old = taken
        self._decided.remove_all(entry.name for entry in old)
        return len(old)

    # inside

    def _listed(
        self,
        entries: Iterable[ListedRecord],
        read: Callable[[str], Operation],
        unreadable: Callable[[CommitError], object] | None,
    ) -> Iterator[Operation]:
        """Yield the listed operations, except those decided or compacted away since the listing."""
        for _, outcome in self._read(entries, read):
            match outcome:
                case Operation():
                    yield outcome
                case NotFound():
                    pass
                case CorruptRecord() | FormatTooNew() if unreadable is not None:
                    unreadable(outcome)
                case _:
                    raise outcome

    def _taken(self, entries: Iterable[ListedRecord], taken: list[ListedRecord]) -> Iterator[Operation]:
        """Yield decided operations; add the entry of each one to `taken`."""
        for entry, outcome in self._read(entries, self._read_decided):
            if isinstance(outcome, Exception):
                raise outcome
            taken.append(entry)
            yield outcome

    def _read(
        self, entries: Iterable[ListedRecord], read: Callable[[str], Operation]
    ) -> Iterator[tuple[ListedRecord, Operation | Exception]]:
        return in_order(
            entries, lambda entry: read(entry.name), open_executor=self._open_executor, ahead=_AHEAD
        )

    def _recover(self, id: str, judge: Callable[[Operation], Decision | None]) -> Operation | None:
        """Decide an operation if it is pending and `judge` finds its outcome; return it if decided."""
        seen = self._clock.monotonic()
        try:
            operation = self._read_pending(id)
        except NotFound:
            return None  # another process has decided it
        stands = self.decision(id)
        if stands is None:
            decision = judge(operation)
            if decision is None:
                return None
            try:
                stands = self._decide(operation, decision, seen)
            except NotFound:
                return None
        return evolve(operation, decision=stands)

    def _conclude(self, operation: Operation, decision: Decision, began: float) -> bool:
        """Decide an operation of this process; return False if another process decided otherwise."""
        try:
            if self._took_long(began):
                return self.decide(operation, decision) is decision
            return self._decide(operation, decision, began) is decision
        except CommitError as error:
            if isinstance(error, NotFound):
                return False  # decided so long ago that the decision is forgotten
            self._drifted.append(operation.id)
            _log.warning(
                "operation %s is %s, but logged as pending: %s", operation.id, decision.value, error
            )
            return True

    def _decide(self, operation: Operation, decision: Decision, seen: float) -> Decision:
        """Decide an operation that was pending at `seen` on this clock, or later; see `compact`."""
        body = {"time": operation.time, "operation": operation.body, "decision": decision.value}
        sent = self._clock.monotonic()
        try:
            self._decided.add(operation.id, Document("decision", body))
        except AlreadyExists:
            return self._standing(operation)
        except OutcomeUnknown:
            # A decision that can be read is the valid one, whichever process wrote it.
            standing = None
            with contextlib.suppress(CommitError):
                standing = self.decision(operation.id)
            if standing is None:
                raise
            return standing
        if self._took_long(seen):
            try:
                forgotten = self._take_back(operation)
            except CommitError as error:
                raise OutcomeUnknown(
                    f"operation {operation.id} was decided, but it is unknown whether it had been"
                    f" decided before ({error})"
                ) from error
            if forgotten:
                raise _forgotten(operation)
        self._decided_now.add((operation.id, sent))
        return decision

    def _remove_pending(self, decided: Sequence[tuple[str, float]]) -> None:
        """Remove the pending entries of operations whose decision was just sent, and when."""
        names = [id for id, sent in decided if not self._took_long(sent)]
        with contextlib.suppress(CommitError):  # then `compact` removes them
            if len(names) == 1:
                self._pending.remove(names[0])
            else:
                self._pending.remove_all(names)

    def _took_long(self, since: float) -> bool:
        return self._clock.monotonic() - since > self.retention / 4

    def _take_back(self, operation: Operation) -> bool:
        """Remove the decision just written if there was an earlier one; return whether there was."""
        if self._pending.exists(operation.id) or self._get_decided(operation.id).body.get(_REDATED):
            return False
        self._decided.remove(operation.id)
        return True

    def _standing(self, operation: Operation) -> Decision:
        decision = self.decision(operation.id)
        if decision is None:
            raise _forgotten(operation)
        return decision

    def _read_pending(self, id: str) -> Operation:
        return _operation(id, self._pending.get(id))

    def _read_decided(self, id: str) -> Operation:
        document = self._get_decided(id)
        return evolve(
            _operation(id, document),
            decision=build(document, lambda: Decision(document.body["decision"])),
        )

    def _get_decided(self, id: str) -> Document:
        # `compact` may replace it meanwhile.
        return read_record(lambda: self._decided.get(id), clock=self._clock, backoff=self._backoff)

    def _redate(self, id: str) -> None:
        read_record(lambda: self._decided.note(id, _REDATED), clock=self._clock, backoff=self._backoff)

    def _now(self) -> float:
        return self._pending.now(self._clock)


def _operation(id: str, document: Document) -> Operation:
    body = document.body
    return build(
        document,
        lambda: Operation(id=id, body=mapping(body["operation"]), time=moment(body["time"])),
    )


def _moment(milliseconds: int) -> str:
    """Return the beginning of the ids of operations that began in this epoch millisecond."""
    return f"{milliseconds:0{_DIGITS}d}"


def _millisecond(id: str) -> int:
    """Return the epoch millisecond in an id; the earliest of all for a foreign id."""
    milliseconds = id.partition("-")[0]
    return int(milliseconds) if milliseconds.isascii() and milliseconds.isdigit() else 0


def _forgotten(operation: Operation) -> NotFound:
    return NotFound(
        f"operation {operation.id} was decided and compacted away; the decision is no longer stored"
    )
