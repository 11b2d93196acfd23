"""An operation log: for every operation, what was to be done, and whether it was.

::

    <prefix>/pending/<id>.json     written before anything is done
    <prefix>/decided/<id>.json     the same and its decision, written put-if-absent: decided once

A listing of ``pending/`` alone tells what is not decided, however long the log is: the winner of the
decision removes the pending entry. (After a crash between these two steps a decided operation is still
listed; deciding it again then just tells what was decided, and `compact` removes it.)

Imports the ground floor and the entries; knows the ports `ConditionalStore` and `Clock`, and of threads
only that it may be given some.
"""

from __future__ import annotations

import contextlib
import enum
import logging
import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Any

from attrs import evolve, field, frozen

from commitlog.absence import is_absent
from commitlog.clock import Clock, SystemClock
from commitlog.commit.conditional import ConditionalStore
from commitlog.crew import Threads, in_order
from commitlog.errors import (
    AlreadyExists,
    BucketNotFound,
    CommitError,
    ConfigurationError,
    CorruptRecord,
    FormatTooNew,
    NotFound,
    OutcomeUnknown,
    Unavailable,
)
from commitlog.oplog.codec import Document
from commitlog.oplog.entries import Entries, Listed
from commitlog.oplog.fields import build, mapping, moment
from commitlog.paths import join
from commitlog.words import random_word

__all__ = ["Decision", "Operation", "OperationLog"]

_log = logging.getLogger(__name__)

_PENDING, _DECIDED = "pending", "decided"

#: What `compact` notes in a decision before it removes the pending entry.
_DATED_ANEW = "dated_anew"

#: Most entries that are read, or were, and that nobody has taken yet. One has some kilobytes mostly, and
#: four megabytes at most.
_AHEAD = 32


class Decision(enum.Enum):
    """What became of an operation."""

    COMMITTED = "committed"
    ROLLED_BACK = "rolled-back"


@frozen(kw_only=True)
class Operation:
    """A logged operation.

    Attributes:
        id: its name in the log; ids sort by the time at which their clocks began them.
        body: what is to be done, as a JSON object of the caller's.
        time: epoch seconds at which it was begun, by the clock of who began it.
        decision: None as long as none is known.
    """

    id: str
    body: Mapping[str, Any] = field(hash=False)
    time: float
    decision: Decision | None = None


class OperationLog:
    """A log of operations in an object store. Thread-safe.

    Args:
        store: where.
        prefix: path below which the log is.
        clock: names and dates operations, and measures how long they took.
        settle: seconds for which a decision is kept at least; the same for all users of one log.
        ids: makes the part of an operation's id that nobody else ever makes.
        threads: opens what entries are read on, several at a time, where many are; None: they are read
            one after the other.

    Attributes:
        prefix, settle: as given.

    Guarantees: an operation is decided at most once, and every later attempt learns that decision or
    that it is forgotten; `run` leaves no operation performed that was not logged before.

    Non-guarantees: the log does not know whether an operation that stayed pending was performed; ask
    what it was to change (`recover`). It is no lock: a recoverer that rolls an operation back has to
    make sure first, with the means of what it changes, that it will not be performed later.
    """

    def __init__(
        self,
        store: ConditionalStore,
        prefix: str,
        *,
        clock: Clock | None = None,
        settle: float = 86_400.0,
        ids: Callable[[], str] = random_word,
        threads: Threads | None = None,
    ) -> None:
        if settle <= 0:
            raise ConfigurationError(f"settle is {settle} seconds; it must be more than 0")
        self.prefix = prefix
        self.settle = settle
        self._store = store
        self._clock: Clock = SystemClock() if clock is None else clock
        self._ids = ids
        self._threads = threads
        self._pending = Entries(store, join(prefix, _PENDING), frozenset({"operation"}))
        self._decided = Entries(store, join(prefix, _DECIDED), frozenset({"decision"}))
        self._drifted: list[str] = []

    def close(self) -> None:
        """Close the store. Idempotent."""
        self._store.close()

    @property
    def drift(self) -> int:
        """How many operations this instance left pending because it could not write their decision."""
        return len(self._drifted)

    # one operation

    @contextlib.contextmanager
    def run(self, body: Mapping[str, Any]) -> Iterator[Operation]:
        """Log an operation, let the block perform it, and log what became of it.

        * If it cannot be logged, the block is not entered: `Unavailable` or what the store raises.
        * If the block raises an `Exception`, the operation is rolled back in the log, and the exception
          goes on. The block must have undone what it did, or raise `OutcomeUnknown`.
        * If it raises `OutcomeUnknown`, or is broken off by another `BaseException`, the operation
          stays pending.
        * If it returns, the operation has succeeded, even if that cannot be logged: then `drift` counts
          it, and `recover` repairs it.

        Args:
            body: what is to be done, as a JSON object.

        Raises `OutcomeUnknown` after a block that returned if a recovery had rolled the operation back
        meanwhile, or decided it so long ago that it is forgotten how. What was changed tells.
        """
        began = self._clock.monotonic()
        operation = self.begin(body)
        try:
            yield operation
        except OutcomeUnknown:
            raise
        except Exception:
            self._conclude(operation, Decision.ROLLED_BACK, began)
            raise
        if not self._conclude(operation, Decision.COMMITTED, began):
            raise OutcomeUnknown(
                f"operation {operation.id} was performed, but taken for dead and decided by a recovery"
                " meanwhile; look at what it was to change"
            )

    def begin(self, body: Mapping[str, Any]) -> Operation:
        """Log an operation as pending. Nothing of it may be done before this returns.

        Raises `Unavailable` if it is not known whether the entry was stored; it does no harm if it was.
        """
        now = self._clock.epoch()
        operation = Operation(id=f"{int(now * 1000):013d}-{self._ids()}", body=dict(body), time=now)
        document = Document("operation", {"time": now, "operation": operation.body})
        try:
            self._pending.add(operation.id, document)
        except (AlreadyExists, OutcomeUnknown) as error:
            # Nobody else has this id: what exists already is a request that was repeated on its way.
            raise Unavailable(
                f"the operation was not begun: it could not be logged ({error})"
            ) from error
        return operation

    def decide(self, operation: Operation, decision: Decision) -> Decision:
        """Decide an operation, and return the decision that stands: this one, or an earlier one.

        Raises:
            NotFound: it was decided and has been compacted away since; how, is forgotten.
            OutcomeUnknown: this decision or another one stands, or will; call it again to learn which.
        """
        seen = self._clock.monotonic()
        if not self._pending.exists(operation.id):
            return self._standing(operation)
        return self._decide(operation, decision, seen)

    def decision(self, id: str) -> Decision | None:
        """Return how operation `id` was decided; None if it was not, or is forgotten, or never began."""
        try:
            return self._read_decided(id).decision
        except BucketNotFound:
            raise
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
        """Yield the operations that are not decided, the oldest first.

        What changes meanwhile may be seen as it was or as it is.

        Args:
            older_than: only operations begun so many seconds ago, by the store's clock.
            known: ids of those that are left out, and not read.
            unreadable: told the error of each entry that cannot be read (`CorruptRecord`,
                `FormatTooNew`), which is passed over; by default it is raised.
        """
        deadline = self._now() - older_than if older_than > -math.inf else math.inf
        entries = (
            entry
            for entry in self._pending.list()
            if entry.written <= deadline and entry.name not in known
        )
        return self._listed(entries, self._read_pending, unreadable)

    def history(
        self, *, unreadable: Callable[[CommitError], object] | None = None
    ) -> Iterator[Operation]:
        """Yield the operations that are decided and not compacted away, the oldest first.

        Args:
            unreadable: as of `pending`.
        """
        return self._listed(self._decided.list(), self._read_decided, unreadable)

    def names(self) -> Iterator[str]:
        """Yield the ids of all operations, those that are pending first, without reading them."""
        for entries in (self._pending, self._decided):
            yield from (entry.name for entry in entries.list())

    def youngest(self) -> float:
        """Return the age in seconds, by the store's clock, of the operation that is pending last.

        It is infinite if none is.
        """
        written = max((entry.written for entry in self._pending.list()), default=-math.inf)
        return self._now() - written

    def recover(
        self, judge: Callable[[Operation], Decision | None], *, older_than: float
    ) -> tuple[Operation, ...]:
        """Decide what was left pending, and return it with the decisions that stand. Idempotent.

        Args:
            judge: tells what became of an operation, from what it was to change; None: leave it
                pending. Before it says "rolled back" it must see to it that the operation cannot be
                performed any more.
            older_than: only operations begun so many seconds ago, by the store's clock.

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

    def beside(self, name: str, kinds: frozenset[str]) -> Entries:
        """Return other records that are kept with this log, in ``<prefix>/<name>/``.

        Args:
            name: any but ``pending`` and ``decided``.
            kinds: the kinds of record that belong there.
        """
        if name in (_PENDING, _DECIDED):
            raise ConfigurationError(f"{name!r} has the operations of the log: give another name")
        return Entries(self._store, join(self.prefix, name), kinds)

    def below(self, name: str) -> OperationLog:
        """Return another log, of the same store and settings, that is kept in ``<prefix>/<name>/``.

        Args:
            name: a path that does not begin with ``pending`` or ``decided``.
        """
        return OperationLog(
            self._store,
            join(self.prefix, name),
            clock=self._clock,
            settle=self.settle,
            ids=self._ids,
            threads=self._threads,
        )

    def compact(
        self,
        *,
        older_than: float | None = None,
        save: Callable[[Iterator[Operation], float], object] | None = None,
        most: int | None = None,
    ) -> int:
        """Forget decisions; return how many.

        No operation becomes decidable again by that: a decision is kept for at least half of `settle`
        after the pending entry is gone. Its winner removes that at once, or leaves it to this method,
        which notes so in the decision first, and dates it anew by that, to forget it `settle` later. So
        who finds an operation pending, and decides it within a quarter of `settle`, cannot miss an
        earlier decision. Who took longer looks whether it is still pending. If it is not, and the
        decision that was written bears no such note, there was another one before, and it is taken back.

        What this rests on: clocks go at about the same rate; a request arrives within a quarter of
        `settle` of the last look at the clock, or never; and who took longer than that does not die, or
        lose contact with the store, before it could look. Until then others can read what it wrote.

        Args:
            older_than: age of a decision in seconds by the store's clock; at least, and by default,
                `settle`.
            save: for who needs decided operations to rebuild something from. It is given those that are
                about to be forgotten, and the epoch second at which the oldest was begun of all that are
                listed, by the clocks of who began them. What it does not take of them is not forgotten;
                if it raises, none is. With it, only
                what was decided a quarter of `settle` before anything was begun that is pending: who
                decides that can still look at all that came after.
            most: at most so many; some others that are old enough stay then.
        """
        age = self.settle if older_than is None else older_than
        if age < self.settle:
            raise ConfigurationError(f"older_than is {age} seconds; this log settles in {self.settle}")
        deadline = self._now() - age
        # In this order: whose pending entry another compaction has just removed is dated anew by now.
        undecided = {entry.name: entry.written for entry in self._pending.list()}
        listed = frozenset(undecided)
        oldest = min(map(_began, listed), default=math.inf)
        left: list[str] = []
        old: list[Listed] = []
        for entry in self._decided.list():
            oldest = min(oldest, _began(entry.name))
            undecided.pop(entry.name, None)
            if entry.written > deadline:
                continue
            if entry.name in listed:
                left.append(entry.name)
            elif most is None or len(old) < most:
                old.append(entry)
        for name in left:
            self._decided.note(name, _DATED_ANEW)
        self._pending.remove_all(left)
        if save is not None:
            bound = min(undecided.values(), default=math.inf) - self.settle / 4
            old = [entry for entry in old if entry.written < bound]
            if old:
                taken: list[Listed] = []
                save(self._taken(old, taken), oldest)
                old = taken
        self._decided.remove_all(entry.name for entry in old)
        return len(old)

    # inside

    def _listed(
        self,
        entries: Iterable[Listed],
        read: Callable[[str], Operation],
        unreadable: Callable[[CommitError], object] | None,
    ) -> Iterator[Operation]:
        """Yield what is listed, but what was decided, or compacted away, since."""
        for _, outcome in self._read(entries, read):
            match outcome:
                case Operation():
                    yield outcome
                case NotFound() if is_absent(outcome):
                    pass
                case CorruptRecord() | FormatTooNew() if unreadable is not None:
                    unreadable(outcome)
                case _:
                    raise outcome

    def _taken(self, entries: Iterable[Listed], taken: list[Listed]) -> Iterator[Operation]:
        """Yield decided operations; add to `taken` those that are."""
        for entry, outcome in self._read(entries, self._read_decided):
            if isinstance(outcome, Exception):
                raise outcome
            taken.append(entry)
            yield outcome

    def _read(
        self, entries: Iterable[Listed], read: Callable[[str], Operation]
    ) -> Iterator[tuple[Listed, Operation | Exception]]:
        return in_order(entries, lambda entry: read(entry.name), threads=self._threads, ahead=_AHEAD)

    def _recover(self, id: str, judge: Callable[[Operation], Decision | None]) -> Operation | None:
        """Decide an operation if it is pending, and `judge` knows how; return it if it is decided."""
        seen = self._clock.monotonic()
        try:
            operation = self._read_pending(id)
        except NotFound as error:
            if not is_absent(error):
                raise
            return None  # decided by another meanwhile
        stands = self.decision(id)
        if stands is None:
            decision = judge(operation)
            if decision is None:
                return None
            try:
                stands = self._decide(operation, decision, seen)
            except NotFound as error:
                if not is_absent(error):
                    raise
                return None
        return evolve(operation, decision=stands)

    def _conclude(self, operation: Operation, decision: Decision, began: float) -> bool:
        """Decide an operation of this process; False if somebody else has decided it otherwise."""
        try:
            if self._took_long(began):
                return self.decide(operation, decision) is decision
            return self._decide(operation, decision, began) is decision
        except CommitError as error:
            if type(error) is NotFound:
                return False  # decided so long ago that it is forgotten how
            self._drifted.append(operation.id)
            _log.warning(
                "operation %s is %s, but logged as pending: %s", operation.id, decision.value, error
            )
            return True

    def _decide(self, operation: Operation, decision: Decision, seen: float) -> Decision:
        """Decide an operation that was pending at `seen` on the own clock, or later; see `compact`."""
        body = {"time": operation.time, "operation": operation.body, "decision": decision.value}
        sent = self._clock.monotonic()
        try:
            self._decided.add(operation.id, Document("decision", body))
        except AlreadyExists:
            return self._standing(operation)
        except OutcomeUnknown:
            # A decision that can be read is the one that stands, whoever wrote it.
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
                    f"operation {operation.id} was decided, but it cannot be told whether it had been"
                    f" decided before ({error})"
                ) from error
            if forgotten:
                raise _forgotten(operation)
        if not self._took_long(sent):
            with contextlib.suppress(CommitError):  # then `compact` removes it
                self._pending.remove(operation.id)
        return decision

    def _took_long(self, since: float) -> bool:
        return self._clock.monotonic() - since > self.settle / 4

    def _take_back(self, operation: Operation) -> bool:
        """Remove the decision that was just written, if there was an earlier one; tell whether so."""
        if self._pending.exists(operation.id) or self._decided.get(operation.id).body.get(_DATED_ANEW):
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
        document = self._decided.get(id)
        return evolve(
            _operation(id, document),
            decision=build(document, lambda: Decision(document.body["decision"])),
        )

    def _now(self) -> float:
        return self._pending.now(self._clock)


def _operation(id: str, document: Document) -> Operation:
    body = document.body
    return build(
        document,
        lambda: Operation(id=id, body=mapping(body["operation"]), time=moment(body["time"])),
    )


def _began(id: str) -> float:
    """Return the epoch second that an id tells; the first of all for one that is none of ours."""
    told = id.partition("-")[0]
    return int(told) / 1000 if told.isascii() and told.isdigit() else 0.0


def _forgotten(operation: Operation) -> NotFound:
    return NotFound(f"operation {operation.id} was decided and compacted away; how, is forgotten")
