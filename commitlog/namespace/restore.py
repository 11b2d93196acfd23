"""Making the names of a namespace again, when its table is lost: from the operation log alone.

Files and directories are in the log with their ids and versions; directory records, gates, and what is
garbage follow from them. Imports the ground floor, the operation log, its siblings and the ports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from attrs import define, evolve, field, frozen

from commitlog.errors import AlreadyExists, ConfigurationError, CorruptRecord, NotFound
from commitlog.namespace.base import Base, Bases
from commitlog.namespace.inference import Inference
from commitlog.namespace.items import key_of
from commitlog.namespace.keys import Keys, number_of
from commitlog.namespace.logged import LoggedChange, Newest, State, parsed
from commitlog.namespace.marker import Marker
from commitlog.namespace.records import Entry
from commitlog.namespace.refill import Lost, Refill
from commitlog.namespace.takeover import Takeover
from commitlog.oplog import Decision, Operation, OperationLog
from commitlog.stores.api import ObjectStore
from commitlog.tables.api import Item, Table
from commitlog.words import random_word

__all__ = ["Restored", "Restorer"]

#: Operations after which it is told how far it is.
_TOLD = 100


@frozen(kw_only=True)
class Restored:
    """What was made of a log.

    Attributes:
        files, directories: how many there are now, those in the trash included.
        garbage: pieces of garbage.
        records: items of the table that were written; those that were there already are not counted.
        removed: items of the table that were removed before that.
        operations: operations of the log that were read, each twice; once more if some are pending, and
            once more if what is there is replaced.
        lost: files that cannot be read.
        decided: operations that were pending, with the decisions that stand.
    """

    files: int = 0
    directories: int = 0
    garbage: int = 0
    records: int = 0
    removed: int = 0
    operations: int = 0
    lost: tuple[Lost, ...] = ()
    decided: tuple[Operation, ...] = ()


@frozen(kw_only=True)
class Restorer:
    """Makes the table of one namespace again.

    Args:
        table: where; it exists, and has nothing of the namespace, or what was restored before.
        store: has the content; looked at, never written.
        log: of the namespace.
        name: of the namespace.
        words: makes words that nobody else ever makes.

    Nobody may change the namespace meanwhile. The marker comes last: before that nobody finds a
    namespace. It can be broken off at any point, and repeated. Of several at a time that goes on which
    began last.
    """

    table: Table
    store: ObjectStore
    log: OperationLog
    name: str
    words: Callable[[], str] = field(default=random_word, repr=False)

    def undecided(self) -> tuple[Operation, ...]:
        """Return the pending operations of which the log does not tell whether they happened.

        They were under way when the table was lost, or their clients had died before that.
        """
        pending, _ = self._read(lambda operations: None)
        pending.settle(None)
        return tuple(pending.operations[id] for id in pending.changes)

    def restore(
        self,
        *,
        decide: Callable[[Operation], Decision] | None = None,
        replace: bool = False,
        progress: Callable[[Restored], object] | None = None,
    ) -> Restored:
        """Write all records of the namespace; return what there is then.

        Args:
            decide: says what became of operations of which the log does not tell, the newest first.
                Either answer leaves a namespace in which all fits. Whoever was told that an operation
                had succeeded has seen it committed, so what nobody has waited for, or got an answer
                to, is best rolled back: then it has not happened, and can be repeated.
            replace: remove what the table has of the namespace first. The log is read once more before.
            progress: told now and then what was done so far.

        Raises:
            NotFound: the log does not tell of this namespace; or the table does not exist.
            AlreadyExists: the namespace is there, or records that are not what the log says; or the log
                has two files at one place, since two namespaces were kept in it. Nothing was removed.
            ConfigurationError: `decide` is needed; see `undecided`. Nothing was written.
            Conflict: somebody else has begun to restore it since, and goes on. There is no marker.
            CorruptRecord: an entry of the log cannot be read. Nothing was written, or not the marker.
        """
        keys = Keys(self.name)
        if not replace and self._is_there(keys):
            raise AlreadyExists(
                f"there is a namespace {self.name!r} in {self.table.url}; to have it made again from the"
                " log, say that it is to be replaced: `replace`, or --replace"
            )
        told = Restored()

        def tell(now: Restored) -> None:
            nonlocal told
            told = now
            if progress is not None:
                progress(now)

        def read(operations: int) -> None:
            tell(evolve(told, operations=told.operations + operations))

        pending, said = self._read(read)
        decided = pending.settle(decide)
        if pending.changes:
            raise ConfigurationError(
                f"of {len(pending.changes)} operations the log does not tell whether they happened, such"
                f" as {next(iter(pending.changes.values())).what!r}; decide whether they are to have"
                " happened (`decide`). Nothing was written"
            )
        for operation in decided:
            self._decide(operation)
            if operation.decision is Decision.COMMITTED:
                said.add(parsed(operation))
        bases = Bases(self.log, words=self.words)
        base = bases.newest()
        marker = self._marker(bases, base, said.marker)
        if replace:
            self._check_places(said.newest.select(bases.states(base), self._history(read)))
        begun = Takeover.begin(self.table, keys, word=self.words(), replace=replace)
        if replace:
            for removed in begun.remove_all():
                tell(evolve(told, removed=removed))
        # What was decided above is in the log by now.
        states = said.newest.select(bases.states(base), self._history(read))
        tell(evolve(told, decided=decided))
        refill = Refill(table=self.table, store=self.store, keys=keys)
        unreadable: list[Entry] = []
        for written in refill.write(state for state in states if _is_refilled(state, said.newest)):
            unreadable += written.lost
            tell(
                evolve(
                    told,
                    files=told.files + written.files,
                    directories=told.directories + written.directories,
                    garbage=told.garbage + written.garbage,
                    records=told.records + written.records,
                )
            )
        lost = tuple(refill.lost(unreadable))
        begun.finish(marker)
        tell(evolve(told, records=told.records + 1, lost=lost))
        return told

    def _is_there(self, keys: Keys) -> bool:
        try:
            return self.table.get(keys.marker) is not None
        except CorruptRecord:
            return True

    # what the log says

    def _read(self, read: Callable[[int], object]) -> tuple[Inference, _Said]:
        """Return what is pending, and what has been decided since the base."""
        pending = Inference.of(self.log.pending())
        said = _Said()
        for operation in _counted(self.log.history(), read):
            pending.forget(operation.id)
            if operation.decision is Decision.COMMITTED:
                change = parsed(operation)
                said.add(change)
                pending.learn(change)
        if pending.changes:
            bases = Bases(self.log, words=self.words)
            pending.look(said.newest.select(bases.states(bases.newest()), self._history(read)))
        return pending, said

    def _history(self, read: Callable[[int], object]) -> Iterator[State]:
        for operation in _counted(self.log.history(), read):
            if operation.decision is Decision.COMMITTED:
                yield from parsed(operation).states

    def _decide(self, operation: Operation) -> None:
        assert operation.decision is not None
        stands = self.log.decide(operation, operation.decision)
        if stands is not operation.decision:
            raise AlreadyExists(
                f"operation {operation.id} is decided as {stands.value} by somebody else: the namespace"
                " is being changed, or restored. Try again when that has ended"
            )

    def _marker(self, bases: Bases, base: Base | None, found: State | None) -> Item:
        if found is None:
            found = next((state for state in bases.states(base) if state.of == "m"), None)
        if found is None or found.item is None or found.item["name"] != self.name:
            raise NotFound(f"the log at {self.log.prefix!r} does not tell of a namespace {self.name!r}")
        Marker.from_item(found.item).check(writing=True)
        return found.item

    def _check_places(self, states: Iterable[State]) -> None:
        """Make sure that what is restored fits into one table, before anything is removed from it."""
        places: set[int] = set()
        for state in states:
            if state.item is None or not state.of.startswith("e/"):
                continue
            key = key_of(state.item)
            number = number_of(f"{key.hash}\n{key.range}")
            if number in places:
                raise AlreadyExists(
                    f"two tables have written the log at {self.log.prefix!r}, each for a namespace"
                    f" {self.name!r} of its own: both have a name {key.range!r} in {key.hash!r}, so that"
                    f" they cannot be restored together. Nothing was removed from {self.table.url}"
                )
            places.add(number)


@define
class _Said:
    """What the log says since its base."""

    newest: Newest = field(factory=Newest)
    marker: State | None = None

    def add(self, change: LoggedChange) -> None:
        """Take in a change that was committed."""
        self.newest.add(change.states)
        for state in change.states:
            if state.of == "m" and state.supersedes(self.marker):
                self.marker = state


def _is_refilled(state: State, newest: Newest) -> bool:
    """Tell whether a record is to be there, and comes before the marker."""
    kind, _, of = state.of.partition("/")
    if state.item is None or kind == "m":
        return False
    # Of a directory that is gone the log does not say that its tombstones are gone.
    return kind != "t" or not newest.is_gone(f"e/{of.partition('/')[0]}")


def _counted(operations: Iterable[Operation], read: Callable[[int], object]) -> Iterator[Operation]:
    """Yield operations, and tell of every hundred."""
    number = 0
    for number, operation in enumerate(operations, 1):
        yield operation
        if number % _TOLD == 0:
            read(_TOLD)
    read(number % _TOLD)
