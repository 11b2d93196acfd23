"""Making the names of a namespace again, when its table is lost: from the operation log alone.

Files and directories are in the log with their ids and versions; directory records, gates, and what is
garbage follow from them. Imports the ground floor, the operation log, its siblings and the ports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from attrs import define, evolve, field, frozen

from commitlog.errors import (
    AlreadyExists,
    ConfigurationError,
    Conflict,
    NotFound,
    TransactionCanceled,
)
from commitlog.namespace.base import Base, Bases
from commitlog.namespace.change import MAX_WRITES
from commitlog.namespace.items import key_items, key_of
from commitlog.namespace.keys import ROOT, TOP, TRASH, Keys, number_of, read_place
from commitlog.namespace.leftovers import Garbage
from commitlog.namespace.logged import LoggedChange, Newest, State, parsed
from commitlog.namespace.marker import Marker
from commitlog.namespace.records import Directory, Entry, Gate
from commitlog.namespace.undecided import Undecided
from commitlog.oplog import Decision, Operation, OperationLog
from commitlog.stores.api import ObjectStore, Observation, same_etag
from commitlog.tables.api import Absent, Check, Delete, Equals, Item, Key, Pending, Put, Table
from commitlog.words import random_word

__all__ = ["Lost", "Restored", "Restorer"]

#: Requests under way at a time.
_WINDOW = 32
#: Operations after which it is told how far it is.
_TOLD = 100


@frozen(kw_only=True)
class Lost:
    """A file that the log has, and whose object the store has not, or has with other content.

    Attributes:
        path: of the file; from its name on, if a directory above is not there.
        object: path of the object.
        changed: whether there is another object under that path.
    """

    path: str
    object: str
    changed: bool


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
        if self.table.get(keys.marker) is not None and not replace:
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
        claim = self._claim(keys, replace=replace)
        if replace:
            for removed in self._remove(claim):
                tell(evolve(told, removed=removed))
        # What was decided above is in the log by now.
        states = said.newest.select(bases.states(base), self._history(read))
        tell(evolve(told, decided=decided))
        lost = self._write(keys, states, said.newest, lambda: told, tell)
        self._finish(keys, marker, claim)
        tell(evolve(told, records=told.records + 1, lost=lost))
        return told

    # what the log says

    def _read(self, read: Callable[[int], object]) -> tuple[Undecided, _Said]:
        """Return what is pending, and what has been decided since the base."""
        pending = Undecided.of(self.log.pending())
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

    # writing

    def _write(
        self,
        keys: Keys,
        states: Iterable[State],
        newest: Newest,
        done: Callable[[], Restored],
        tell: Callable[[Restored], object],
    ) -> tuple[Lost, ...]:
        """Write all but the marker; return what is lost."""
        lost: list[Entry] = []
        live = (
            state
            for state in states
            if state.item is not None and state.of != "m" and not _is_stray(state, newest)
        )
        while batch := list(islice(live, _WINDOW)):
            tell(self._write_batch(keys, batch, done(), lost))
        return tuple(self._lost(keys, entry) for entry in lost)

    def _write_batch(
        self, keys: Keys, states: list[State], done: Restored, lost: list[Entry]
    ) -> Restored:
        items: list[Item] = []
        heads: list[tuple[Entry | Garbage, Pending[Observation]]] = []
        for state in states:
            assert state.item is not None
            if state.of.startswith("x/"):
                garbage = Garbage.from_item(state.item)
                heads.append((garbage, self.store.begin_head(garbage.data.path)))
                continue
            if state.of.startswith("t/"):
                items.append(state.item)
                continue
            entry = Entry.from_item(state.item)
            items += [record.to_item() for record in self._derived(keys, entry)]
            items.append(state.item)
            if entry.data is not None:
                heads.append((entry, self.store.begin_head(entry.data.path)))
                done = evolve(done, files=done.files + 1)
            elif entry.id not in (ROOT, TRASH):
                done = evolve(done, directories=done.directories + 1)
        for record, head in heads:
            info = head().info
            if isinstance(record, Entry):
                assert record.data is not None
                if info is None or not same_etag(info.etag, record.data.etag):
                    lost.append(record)
            elif info is not None or not record.data.own:  # else it was removed before
                items.append(record.to_item())
                done = evolve(done, garbage=done.garbage + 1)
        return evolve(done, records=done.records + self._put(items))

    def _derived(self, keys: Keys, entry: Entry) -> Iterator[Directory | Gate]:
        """Yield what there is besides the entry of a directory."""
        parent = read_place(entry.key.hash).of
        if not entry.is_directory or entry.id == TRASH:
            return
        if parent != TOP:
            yield Directory(key=keys.directory(entry.id), parent=parent, name=entry.name)
        if parent != TRASH:
            for shard in range(entry.shards.now):
                yield Gate(key=keys.gate(entry.id, shard), shards=entry.shards.now, word=entry.word)

    def _put(self, items: list[Item]) -> int:
        """Write records that are not there; return how many were not."""
        there = self.table.put_all(items, condition=Absent())
        for item in there:
            if self.table.get(key_of(item)) != item:  # else it is of a call that was broken off
                raise AlreadyExists(
                    f"{self.table.url} has another record of {item['name']!r} in {item['place']!r}"
                    f" than the log says, of namespace {self.name!r}: have it replaced (`replace`, or"
                    " --replace), or give another table"
                )
        return len(items) - len(there)

    def _claim(self, keys: Keys, *, replace: bool) -> Check:
        """Note whose restore holds, that which began last; return what requires it still to be this one.

        From then on there is no marker.
        """
        place, word = Key(f"{self.name}/r/restore", "-"), self.words()
        found = self.table.get(place)
        if found is not None and found.get("replaces") and not replace:
            raise AlreadyExists(
                f"of what is to be replaced of namespace {self.name!r} there may be something left in"
                f" {self.table.url}: that restore was broken off, or goes on. Replace it (`replace`, or"
                " --replace)"
            )
        own = {**key_items(place), "word": word, "replaces": replace}
        seen = Absent() if found is None else Equals("word", str(found["word"]))
        marker = Delete(keys.marker) if replace else Check(keys.marker, Absent())
        try:
            self.table.transact([Put(own, seen), marker], token=word)
        except TransactionCanceled as error:
            claimed = self.table.get(place)
            if claimed is None or claimed.get("word") != word:
                raise self._beaten() from error
        return Check(place, Equals("word", word))

    def _remove(self, claim: Check) -> Iterator[int]:
        """Remove all records of the namespace; yield how many are gone so far."""
        mine = f"{self.name}/"
        found = (key for key in map(key_of, self.table.scan()) if key.hash.startswith(mine))
        others = (key for key in found if key != claim.key)
        removed = 0
        while batch := [Delete(key) for key in islice(others, MAX_WRITES - 1)]:
            try:
                self.table.transact([*batch, claim])
            except TransactionCanceled as error:
                raise self._beaten() from error
            removed += len(batch)
            yield removed

    def _finish(self, keys: Keys, marker: Item, claim: Check) -> None:
        """Put the marker, if nobody else has begun a restore."""
        try:
            self.table.transact([Put(marker, Absent()), Delete(claim.key, claim.condition)])
        except TransactionCanceled as error:
            # A request that was repeated on its way finds what it has done itself.
            if self.table.get(keys.marker) != marker or self.table.get(claim.key) is not None:
                raise self._beaten() from error

    def _beaten(self) -> Conflict:
        return Conflict(
            f"somebody else restores namespace {self.name!r} in {self.table.url}, too, and began later:"
            " this call has left the rest to that. If that was broken off, restore again"
        )

    def _lost(self, keys: Keys, entry: Entry) -> Lost:
        assert entry.data is not None
        info = self.store.begin_head(entry.data.path)().info
        path, above = entry.name, read_place(entry.key.hash).of
        while above not in (ROOT, TRASH):
            item = self.table.get(keys.directory(above))
            if item is None:
                break
            directory = Directory.from_item(item)
            path, above = f"{directory.name}/{path}", directory.parent
        return Lost(path=path, object=entry.data.path, changed=info is not None)


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


def _is_stray(state: State, newest: Newest) -> bool:
    """Tell whether it is a tombstone of a directory that is gone, which the log does not tell."""
    kind, _, of = state.of.partition("/")
    return kind == "t" and newest.is_gone(f"e/{of.partition('/')[0]}")


def _counted(operations: Iterable[Operation], read: Callable[[int], object]) -> Iterator[Operation]:
    """Yield operations, and tell of every hundred."""
    number = 0
    for number, operation in enumerate(operations, 1):
        yield operation
        if number % _TOLD == 0:
            read(_TOLD)
    read(number % _TOLD)
