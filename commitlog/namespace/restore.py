"""Making the names of a namespace again, when its table is lost: from the operation log alone.

Files and directories are in the log with their ids and versions; directory records, gates, and what is
garbage follow from them. A restore begins a new epoch of the log: from then on the log belongs to the
table that it makes, and no other table changes anything. What the log said is written into the log of
the new epoch first, and from that into the table. Imports the ground floor, the operation log, its
siblings and the ports.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from attrs import Factory, define, evolve, field, frozen

from commitlog.errors import (
    AlreadyExists,
    CommitError,
    ConfigurationError,
    Conflict,
    CorruptRecord,
    Fenced,
    NotFound,
)
from commitlog.namespace.base import Base, Bases
from commitlog.namespace.data import Data
from commitlog.namespace.epoch import Epochs
from commitlog.namespace.inference import Inference
from commitlog.namespace.keys import Keys
from commitlog.namespace.logged import LoggedChange, Newest, State, readable
from commitlog.namespace.marker import Epoch, Marker
from commitlog.namespace.merging import Merged, Outline
from commitlog.namespace.records import Entry
from commitlog.namespace.refill import Lost, Refill
from commitlog.namespace.takeover import Takeover
from commitlog.oplog import Decision, Operation, OperationLog
from commitlog.stores.api import ObjectStore, same_etag
from commitlog.tables.api import Table
from commitlog.words import random_word

__all__ = ["Restored", "Restorer"]

#: Operations after which it is told how far it is.
_TOLD = 100

#: States of a log that are held in memory; a longer log is read again each time.
_HELD = 10_000

#: How often the log is read while others go on changing it.
_TRIES = 3


@frozen(kw_only=True)
class Restored:
    """What was made of a log.

    Attributes:
        files, directories: how many there are now, those in the trash included.
        garbage: pieces of garbage.
        records: items of the table that were written; those that were there already are not counted.
        removed: items of the table that were removed before that.
        operations: operations of the log that were read; a long log is read four times.
        lost: files that cannot be read.
        found: ids of what came into ``lost+found``, since it had no place, or another thing had it: two
            tables had written the log, or entries of it are missing.
        unreadable: what of the log could not be read, and was passed over (`salvage`).
        decided: operations that were pending, with the decisions that stand.
        epoch: that of the log from now on; of a copy to look at, that from which it was read.
    """

    files: int = 0
    directories: int = 0
    garbage: int = 0
    records: int = 0
    removed: int = 0
    operations: int = 0
    lost: tuple[Lost, ...] = ()
    found: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    decided: tuple[Operation, ...] = ()
    epoch: int = 0


@frozen(kw_only=True)
class Restorer:
    """Makes the table of one namespace again.

    Args:
        table: where; it exists, and has nothing of the namespace, or what was restored before.
        store: has the content; looked at, never written.
        log: of the namespace, as it was created: that of the first epoch.
        name: of the namespace.
        words: makes words that nobody else ever makes.

    The marker comes last: before that nobody finds a namespace. It can be broken off at any point, and
    repeated. Of several at a time that goes on which began last. Another table that the log belonged to
    is fenced: its clients get `Fenced` for each change, from the moment at which the new epoch begins.
    """

    table: Table
    store: ObjectStore
    log: OperationLog
    name: str
    words: Callable[[], str] = field(default=random_word, repr=False)
    _epochs: Epochs = field(
        init=False, repr=False, eq=False, default=Factory(lambda self: Epochs(self.log), takes_self=True)
    )

    def undecided(self) -> tuple[Operation, ...]:
        """Return the pending operations of which the log does not tell whether they happened.

        They were under way when the table was lost, or their clients had died before that.
        """
        reading = self._reading(lambda operations: None, salvage=True)
        pending = reading.pending
        pending.settle(None)
        return tuple(pending.operations[id] for id in pending.changes)

    def restore(
        self,
        *,
        decide: Callable[[Operation], Decision] | None = None,
        replace: bool = False,
        read_only: bool = False,
        salvage: bool = False,
        progress: Callable[[Restored], object] | None = None,
    ) -> Restored:
        """Write all records of the namespace; return what there is then.

        Args:
            decide: says what became of operations of which the log does not tell, the newest first.
                Either answer leaves a namespace in which all fits. Whoever was told that an operation
                had succeeded has seen it committed, so what nobody has waited for, or got an answer
                to, is best rolled back: then it has not happened, and can be repeated.
            replace: remove what the table has of the namespace first. Nothing is removed before all of
                the log was read and decoded, and kept in the log of the new epoch, and before the table
                has taken a write and a scan.
            read_only: make a copy to look at, of what the log says now, such as for a drill. The log is
                not written, the table that it belongs to is not fenced, and nothing can change the copy.
                Others may go on working. What is undecided is left out unless `decide` says otherwise.
            salvage: pass over what of the log cannot be read, and report it (`Restored.unreadable`).
            progress: told now and then what was done so far.

        Raises:
            NotFound: the log does not tell of this namespace; or the table does not exist.
            AlreadyExists: the namespace is there, or records that are not what the log says. Nothing was
                removed.
            ConfigurationError: `decide` is needed; see `undecided`. Nothing was written.
            Conflict: somebody else has begun to restore it since, and goes on; or somebody went on
                changing it. There is no marker.
            CorruptRecord: an entry of the log cannot be read. Nothing was written.
        """
        keys = Keys(self.name)
        if not replace and self._is_there(keys):
            raise AlreadyExists(
                f"there is a namespace {self.name!r} in {self.table.url}; to have it made again from the"
                " log, say that it is to be replaced: `replace`, or --replace"
            )
        Takeover.check(self.table, keys, replace=replace)
        told = Restored()

        def tell(now: Restored) -> None:
            nonlocal told
            told = now
            if progress is not None:
                progress(now)

        def read(operations: int) -> None:
            tell(evolve(told, operations=told.operations + operations))

        if read_only and decide is None:
            decide = _rolled_back
        epoch: Epoch | None = None
        for _ in range(_TRIES):
            reading = self._reading(read, salvage=salvage)
            reading.settle(decide)
            marker = self._marker(reading, keys)
            merged = self._merge(reading, keys)
            if read_only:
                break
            if epoch is None:
                epoch = self._epochs.claim(word=self.words(), table=self.table.url)
            # What was sent before it was claimed is in the log by now, as decided or as pending.
            if self._place() == (reading.epoch, reading.place):
                break
        else:
            raise Conflict(
                "the log was changed while it was read: stop those who write, and restore it again"
            )
        tell(evolve(told, found=merged.found, unreadable=tuple(reading.unreadable)))
        decided = reading.decided
        if epoch is None:
            marker = marker.of(reading.epoch, read_only=True)
            states = merged.apply(reading.states())
        else:
            decided = tuple(self._decide(reading, operation) for operation in decided)
            marker = evolve(marker.of(epoch), word=epoch.word)
            states = self._kept(reading, epoch, merged, marker)
        begun = Takeover.begin(
            self.table, keys, word=self.words(), replace=replace, epoch=marker.epoch.number
        )
        if replace:
            for removed in begun.remove_all():
                tell(evolve(told, removed=removed))
        tell(evolve(told, decided=decided, epoch=marker.epoch.number))
        refill = Refill(table=self.table, store=self.store, keys=keys, begun=begun)
        unreadable: list[Entry] = []
        for written in refill.write(state for state in states if state.of != "m"):
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
        if epoch is not None:
            try:
                self._epochs.check(epoch)
            except Fenced as error:
                raise Conflict(
                    f"somebody else restores namespace {self.name!r}, too, and began later: this call"
                    f" has left the rest to that ({error})"
                ) from error
        begun.finish(marker.to_item())
        tell(evolve(told, records=told.records + 1, lost=lost))
        return told

    def _is_there(self, keys: Keys) -> bool:
        try:
            return self.table.get(keys.marker) is not None
        except CorruptRecord:
            return True

    # what the log says

    def _reading(self, read: Callable[[int], object], *, salvage: bool) -> _Reading:
        """Read what the log says that is to be restored from."""
        epoch, place = self._place()
        log = self._epochs.log_of(epoch)
        reading = _Reading(
            log=log,
            bases=Bases(log, words=self.words),
            epoch=epoch,
            place=place,
            told=read,
            salvage=salvage,
        )
        reading.read()
        return reading

    def _place(self) -> tuple[Epoch, str]:
        """Return the epoch to restore from, and a word that says which entries its log has."""
        epoch = self._epochs.complete(self.words)
        log = self._epochs.log_of(epoch)
        digest = hashlib.sha256()
        for name in chain(log.names(), Bases(log, words=self.words).names()):
            digest.update(f"\n{name}".encode())
        return epoch, digest.hexdigest()

    def _decide(self, reading: _Reading, operation: Operation) -> Operation:
        assert operation.decision is not None
        try:
            stands = reading.log.decide(operation, operation.decision)
        except CorruptRecord as error:
            reading.refuse(error)
            return operation
        if stands is not operation.decision:
            raise AlreadyExists(
                f"operation {operation.id} is decided as {stands.value} by somebody else: the namespace"
                " is being changed, or restored. Try again when that has ended"
            )
        return operation

    def _marker(self, reading: _Reading, keys: Keys) -> Marker:
        found = reading.marker
        if found is None:
            found = next((state for state in reading.base_states() if state.of == "m"), None)
        if found is not None and found.item is not None and found.item["name"] == self.name:
            marker = Marker.from_item(found.item)
            marker.check(writing=True)
            return marker
        if not reading.unreadable or found is not None:
            raise NotFound(f"the log at {self.log.prefix!r} does not tell of a namespace {self.name!r}")
        return Marker(  # its entry is one of those that cannot be read
            key=keys.marker,
            store=self.store.url,
            log=self.log.prefix,
            created=int(reading.first * 1000),
            word=self.words(),
        )

    def _merge(self, reading: _Reading, keys: Keys) -> Merged:
        outline = Outline(keys)
        outline.wrote(reading.history())
        for state in reading.states():
            outline.add(state)
        return outline.merge(reading.states, reading.history, self._has)

    def _has(self, data: Data) -> bool:
        info = self.store.begin_head(data.path)().info
        return info is not None and same_etag(info.etag, data.etag)

    def _kept(self, reading: _Reading, epoch: Epoch, merged: Merged, marker: Marker) -> Iterator[State]:
        """Have the log of an epoch say all that is restored; return that."""
        bases = Bases(self._epochs.log_of(epoch), words=self.words)
        told = State(of="m", version=1, item=marker.to_item(), began=reading.first)
        stored = bases.stored_unsorted(chain([told], merged.apply(reading.states())))
        bases.hold(stored, after=None)
        return bases.states(stored)


@define(kw_only=True)
class _Reading:
    """What a log says: read once for what is newest of each thing, and again for the things.

    Args:
        log: that.
        bases: its bases.
        epoch: its epoch.
        place: the entries that it had before it was read, in one word.
        told: told of every hundred operations.
        salvage: whether to pass over what cannot be read.
    """

    log: OperationLog
    bases: Bases
    epoch: Epoch
    place: str
    told: Callable[[int], object]
    salvage: bool
    base: Base | None = field(default=None, init=False)
    newest: Newest = field(factory=Newest, init=False)
    marker: State | None = field(default=None, init=False)
    first: float = field(default=0.0, init=False)
    unreadable: dict[str, None] = field(factory=dict, init=False)
    decided: tuple[Operation, ...] = field(default=(), init=False)
    pending: Inference = field(init=False)
    #: What those have made that were pending, and are decided as committed.
    _more: list[State] = field(factory=list, init=False)
    #: The operations, if they are few enough to be read once.
    _held: list[tuple[Operation, LoggedChange]] | None = field(default=None, init=False)

    def read(self) -> None:
        """Read all of it once."""
        self.pending = Inference.of(
            operation for operation, _ in readable(self.log.pending(unreadable=self.refuse), self.refuse)
        )
        try:
            self.base = self.bases.newest()
        except CorruptRecord as error:
            self.refuse(error)
        for operation, change in self._changes():
            self.pending.forget(operation.id)
            self.first = min(self.first or operation.time, operation.time)
            if operation.decision is Decision.COMMITTED:
                self._add(change)
                self.pending.learn(change)
        if self.pending.changes:
            self.pending.look(self._newest())

    def settle(self, decide: Callable[[Operation], Decision] | None) -> None:
        """Decide what is pending. Raises `ConfigurationError` if that takes somebody who knows."""
        changes = dict(self.pending.changes)
        self.decided = self.pending.settle(decide)
        if self.pending.changes:
            raise ConfigurationError(
                f"of {len(self.pending.changes)} operations the log does not tell whether they"
                f" happened, such as {next(iter(self.pending.changes.values())).what!r}; decide whether"
                " they are to have happened (`decide`). Nothing was written"
            )
        for operation in self.decided:
            if operation.decision is Decision.COMMITTED:
                self._add(changes[operation.id])
                self._more += changes[operation.id].states

    def states(self) -> Iterator[State]:
        """Yield what is so in the end, and has a record; not the marker."""
        for state in self._newest():
            kind, _, of = state.of.partition("/")
            if state.item is None or kind == "m":
                continue
            # Of a directory that is gone the log does not say that its tombstones are gone.
            if kind != "t" or not self.newest.is_gone(f"e/{of.partition('/')[0]}"):
                yield state

    def history(self) -> Iterator[State]:
        """Yield what was made since the base, the older beside the newer."""
        for operation, change in self._changes():
            if operation.decision is Decision.COMMITTED:
                yield from change.states
        yield from self._more

    def base_states(self) -> Iterator[State]:
        """Yield what the base says."""
        return self.bases.states(self.base, unreadable=self.refuse)

    def refuse(self, error: CommitError) -> None:
        """Pass over what cannot be read, if that is wanted; else raise the error."""
        if not isinstance(error, CorruptRecord):
            raise error
        if not self.salvage:
            raise CorruptRecord(
                f"{error}. To restore what else the log says, pass over it (`salvage`, or --salvage)"
            ) from error
        self.unreadable[str(error)] = None

    def _newest(self) -> Iterator[State]:
        return self.newest.select(self.base_states(), self.history())

    def _add(self, change: LoggedChange) -> None:
        self.newest.add(change.states)
        for state in change.states:
            if state.of == "m" and state.supersedes(self.marker):
                self.marker = state

    def _changes(self) -> Iterator[tuple[Operation, LoggedChange]]:
        if self._held is not None:
            yield from self._held
            return
        held: list[tuple[Operation, LoggedChange]] | None = []
        states = 0
        operations = _counted(self.log.history(unreadable=self.refuse), self.told)
        for found in readable(operations, self.refuse):
            states += len(found[1].states)
            if held is not None and states <= _HELD:
                held.append(found)
            else:
                held = None
            yield found
        self._held = held


def _rolled_back(operation: Operation) -> Decision:
    return Decision.ROLLED_BACK


def _counted(operations: Iterable[Operation], read: Callable[[int], object]) -> Iterator[Operation]:
    """Yield operations, and tell of every hundred."""
    number = 0
    for number, operation in enumerate(operations, 1):
        yield operation
        if number % _TOLD == 0:
            read(_TOLD)
    read(number % _TOLD)
