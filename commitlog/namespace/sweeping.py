"""Emptying the trash: what was deleted with all that was in it goes for good, and its data is garbage.

It can be broken off at any point, and done by several at once: every step is a change of its own.
Imports the ground floor, its siblings and the ports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from attrs import define, field, frozen

from commitlog.errors import (
    CorruptRecord,
    FormatTooNew,
    NotFound,
    TransactionTooLarge,
    Unavailable,
)
from commitlog.namespace.change import MAX_WRITES, Change, Changes, Late, Stale
from commitlog.namespace.items import place_of
from commitlog.namespace.keys import TOP, TRASH, Keys
from commitlog.namespace.planning import Planner
from commitlog.namespace.records import Entry
from commitlog.namespace.removals import AGAIN, Removals
from commitlog.namespace.tree import Tree
from commitlog.tables.api import Delete

__all__ = ["Sweeper", "Swept"]

#: Files that one change removes: an entry goes and a piece of garbage comes for each.
_FILES = MAX_WRITES // 2


@frozen(kw_only=True)
class Swept:
    """What was removed from the trash, and what is left.

    Attributes:
        files: number of files removed.
        directories: number of directories removed.
        failed: ids of files and directories that may still be there though it was tried, with the
            errors; of what cannot be read, its key; ``trash`` for the trash itself. What fails each time
            has records that do not fit: `Namespace.audit` tells which.
    """

    files: int = 0
    directories: int = 0
    failed: tuple[tuple[str, str], ...] = ()


@frozen(kw_only=True)
class Sweeper:
    """Empties the trash of one namespace.

    A directory in the trash has no gates, so nothing is added to it. Directories in it come to lie in
    the trash themselves, which closes them, too; files become garbage; what is empty is forgotten.
    """

    tree: Tree
    keys: Keys
    planner: Planner
    changes: Changes

    def sweep(self, progress: Callable[[Swept], object] | None = None) -> Swept:
        """Remove all that is in the trash; return what was removed by this call.

        Args:
            progress: told now and then what was removed so far.
        """
        done = _Done(progress)
        stuck: set[str] = set()
        try:
            while self._sweep(stuck, done):  # directories come to lie in the trash meanwhile
                pass
        except Unavailable as error:
            done.fail(TRASH, error)
        return done.swept()

    def _sweep(self, stuck: set[str], done: _Done) -> bool:
        """Remove what is in the trash by now, but for what is stuck; tell whether there was anything."""
        found = False
        for trashed in self._inside(self._trash(), done):
            if trashed.id in stuck:
                continue
            found = True
            done.clear(trashed.id)  # it has come here after all
            done.stuck.clear()
            try:
                self._remove_files(trashed, done)
                self._forget(trashed, done)
            except Unavailable as error:
                done.fail(trashed.id, error)
            if done.stuck:
                stuck.add(trashed.id)
            done.tell()
        return found

    def _trash(self) -> Entry:
        item = self.tree.table.get(self.keys.entry(TOP, 0, TRASH))
        if item is None:
            raise NotFound(f"there is no namespace {self.keys.namespace!r} in {self.tree.table.url}")
        return Entry.from_item(item)

    def _inside(self, directory: Entry, done: _Done) -> Iterator[Entry]:
        """Yield what a directory has; keep why that cannot be removed which cannot be read."""
        for shard in range(directory.shards.now):
            for item in self.tree.table.query(self.keys.shard(directory.id, shard)):
                try:
                    entry = Entry.from_item(item)
                except (CorruptRecord, FormatTooNew) as error:
                    done.fail(place_of(item), error)
                else:
                    yield entry

    def _remove_files(self, trashed: Entry, done: _Done) -> None:
        batch: list[Entry] = []
        for entry in self._inside(trashed, done):
            if entry.is_directory:
                self._apply(self.planner.discard(trashed.id, entry), [entry], done)
                continue
            batch.append(entry)
            if len(batch) == _FILES:
                self._remove(batch, done)
                batch = []
        self._remove(batch, done)

    def _remove(self, files: list[Entry], done: _Done) -> None:
        if not files:
            return
        if self._apply(self.planner.remove_files(files), files, done):
            done.files += len(files)
            done.tell()
        elif len(files) > 1:
            # Some was renamed away, or removed by another sweeper; or together they are too large.
            half = len(files) // 2
            self._remove(files[:half], done)
            self._remove(files[half:], done)

    def _forget(self, trashed: Entry, done: _Done) -> None:
        table = self.tree.table
        for shard in range(trashed.shards.now):
            if next(table.query(self.keys.shard(trashed.id, shard)), None) is not None:
                return
        removals = Removals(
            table=table,
            clock=self.changes.clock,
            backoff=self.changes.backoff,
            words=self.planner.words,
        )
        tombstones = iter(table.query(self.keys.tombstones(trashed.id)))  # it gets no more of them
        while batch := list(islice(tombstones, MAX_WRITES)):
            removed = removals.remove([Delete(table.schema.key_of(item)) for item in batch])
            for error in removed.failed.values():
                done.fail(trashed.id, error)
                return
        done.directories += self._apply(self.planner.forget(trashed), [trashed], done)

    def _apply(self, change: Change, entries: list[Entry], done: _Done) -> bool:
        """Apply a change; tell whether it was done, and keep why not, unless there is nothing to do."""
        for entry in entries:
            done.clear(entry.id)
        try:
            self.changes.apply(change)
        except (*AGAIN, Late, TransactionTooLarge) as error:
            for entry in entries:
                done.fail(entry.id, error)
            return False
        except Stale as error:
            # Another has done it, unless it is still as it was: then other records are not what they
            # should be.
            if len(entries) == 1 and self.tree.again(entries[0]) == entries[0]:
                done.fail(entries[0].id, f"its records do not fit, check the namespace: {error}")
            return False
        return True


@define
class _Done:
    """What a sweep has done so far.

    Attributes:
        progress: told of it.
        files, directories, failed: see `Swept`.
        stuck: what failed in the directory that is swept, which may have failed in another before.
    """

    progress: Callable[[Swept], object] | None = None
    files: int = 0
    directories: int = 0
    failed: dict[str, str] = field(factory=dict)
    stuck: set[str] = field(factory=set)

    def fail(self, what: str, why: object) -> None:
        """Keep that something may still be there, and why."""
        self.failed[what] = str(why)
        self.stuck.add(what)

    def clear(self, what: str) -> None:
        """Forget that something failed: it is tried anew."""
        self.failed.pop(what, None)
        self.stuck.discard(what)

    def tell(self) -> None:
        """Tell how far it is."""
        if self.progress is not None:
            self.progress(self.swept())

    def swept(self) -> Swept:
        """Return it for callers."""
        return Swept(files=self.files, directories=self.directories, failed=tuple(self.failed.items()))
