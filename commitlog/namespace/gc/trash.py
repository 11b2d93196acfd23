"""Emptying of the trash: the permanent removal of deleted files and directories.

The data of removed files becomes garbage. It can be interrupted at any point, and several clients can do
it at once: every step is a separate change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

from attrs import define, field, frozen

from commitlog.errors import (
    CorruptRecord,
    FormatTooNew,
    NotFound,
    TransactionTooLarge,
    Unavailable,
)
from commitlog.namespace.gc.deletes import RETRYABLE, RecordDeleter
from commitlog.namespace.model.codec import item_name
from commitlog.namespace.model.keys import TOP, TRASH, Keys
from commitlog.namespace.model.records import Entry
from commitlog.namespace.tree import Tree
from commitlog.namespace.write.plan_common import PlanContext
from commitlog.namespace.write.plan_files import plan_remove_files
from commitlog.namespace.write.plan_tree import plan_remove_trashed, plan_trash_directory
from commitlog.namespace.write.transaction import (
    Change,
    Changes,
    DeadlinePassed,
    LogRenewed,
    PlanOutdated,
)
from commitlog.tables.api import MAX_TRANSACTION_WRITES, Delete

__all__ = ["TrashEmptier", "TrashReport"]

#: Maximum number of files that one change removes: each takes two writes, one entry and one garbage.
_FILES = MAX_TRANSACTION_WRITES // 2


@frozen(kw_only=True)
class TrashReport:
    """The removed files and directories, and those that are left.

    Attributes:
        files: number of removed files.
        directories: number of removed directories.
        failed: ids of files and directories whose removal failed, and which may still exist, with the
            errors; the key of an unreadable record; ``trash`` for the trash itself. If an item fails
            each time, its records are inconsistent: `Maintenance.fsck` reports them.
    """

    files: int = 0
    directories: int = 0
    failed: tuple[tuple[str, str], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "files": self.files,
            "directories": self.directories,
            "failed": list(map(list, self.failed)),
        }


@frozen(kw_only=True)
class TrashEmptier:
    """Removes the contents of the trash of one namespace.

    A directory in the trash has no guard records, so no entry can be added to it. Its subdirectories
    move into the trash themselves, which closes them too; its files become garbage; it is removed when
    empty.
    """

    tree: Tree
    keys: Keys
    planning: PlanContext
    changes: Changes

    def empty(
        self,
        progress: Callable[[TrashReport], object] | None = None,
        *,
        shards: Sequence[int] | None = None,
    ) -> TrashReport:
        """Remove the contents of the trash; return what this call removed.

        Args:
            progress: called from time to time with the report so far.
            shards: the shards of the trash to empty; by default all.
        """
        done = _Progress(progress)
        stuck: set[str] = set()
        try:
            while self._empty_once(stuck, done, shards):  # subdirectories move into the trash meanwhile
                pass
        except Unavailable as error:
            done.fail(TRASH, error)
        return done.report()

    def _empty_once(self, stuck: set[str], done: _Progress, shards: Sequence[int] | None) -> bool:
        """Remove the current contents of the trash, except `stuck`; return whether there were any."""
        found = False
        for trashed in self._entries(self._read_trash(), done, shards):
            if trashed.id in stuck:
                continue
            found = True
            done.clear(trashed.id)  # its move into the trash succeeded after all
            done.stuck.clear()
            try:
                self._remove_files(trashed, done)
                self._remove_directory(trashed, done)
            except Unavailable as error:
                done.fail(trashed.id, error)
            if done.stuck:
                stuck.add(trashed.id)
            done.notify()
        return found

    def _read_trash(self) -> Entry:
        item = self.tree.table.get(self.keys.entry(TOP, 0, TRASH))
        if item is None:
            raise NotFound(f"there is no namespace {self.keys.namespace!r} in {self.tree.table.url}")
        return Entry.from_item(item)

    def _entries(
        self, directory: Entry, done: _Progress, shards: Sequence[int] | None = None
    ) -> Iterator[Entry]:
        """Yield the entries of a directory, or of some shards; record unreadable ones as failed."""
        for shard in range(directory.shards.now) if shards is None else shards:
            for item in self.tree.table.query(self.keys.shard(directory.id, shard)):
                try:
                    entry = Entry.from_item(item)
                except (CorruptRecord, FormatTooNew) as error:
                    done.fail(item_name(item), error)
                else:
                    yield entry

    def _remove_files(self, trashed: Entry, done: _Progress) -> None:
        batch: list[Entry] = []
        for entry in self._entries(trashed, done):
            if entry.is_directory:
                self._apply(plan_trash_directory(self.planning, trashed.id, entry), [entry], done)
                continue
            batch.append(entry)
            if len(batch) == _FILES:
                self._remove(batch, done)
                batch = []
        self._remove(batch, done)

    def _remove(self, files: list[Entry], done: _Progress) -> None:
        if not files:
            return
        if self._apply(plan_remove_files(self.planning, files), files, done):
            done.files += len(files)
            done.notify()
        elif len(files) > 1:
            # One was renamed away or removed by another client, or together they are too large.
            half = len(files) // 2
            self._remove(files[:half], done)
            self._remove(files[half:], done)

    def _remove_directory(self, trashed: Entry, done: _Progress) -> None:
        table = self.tree.table
        for shard in range(trashed.shards.now):
            if next(table.query(self.keys.shard(trashed.id, shard)), None) is not None:
                return
        deleter = RecordDeleter(
            table=table,
            clock=self.changes.clock,
            backoff=self.changes.backoff,
            new_id=self.planning.new_id,
        )
        tombstones = iter(table.query(self.keys.tombstones(trashed.id)))  # no more will be added
        while batch := list(islice(tombstones, MAX_TRANSACTION_WRITES)):
            removed = deleter.remove([Delete(table.schema.key_of(item)) for item in batch])
            for error in removed.failed.values():
                done.fail(trashed.id, error)
                return
        done.directories += self._apply(plan_remove_trashed(self.planning, trashed), [trashed], done)

    def _apply(self, change: Change, entries: list[Entry], done: _Progress) -> bool:
        """Apply a change; return whether it was applied. Record an error unless it was not needed."""
        for entry in entries:
            done.clear(entry.id)
        try:
            self.changes.apply(change)
        except (*RETRYABLE, DeadlinePassed, TransactionTooLarge) as error:
            for entry in entries:
                done.fail(entry.id, error)
            return False
        except LogRenewed:
            return False  # the next pass over the trash does it
        except PlanOutdated as error:
            # Another client did it, unless the entry is unchanged: then other records are inconsistent.
            if len(entries) == 1 and self.tree.reread(entries[0]) == entries[0]:
                done.fail(entries[0].id, f"its records do not fit, check the namespace: {error}")
            return False
        return True


@define
class _Progress:
    """The progress of `TrashEmptier.empty`.

    Attributes:
        progress: called with the report so far.
        files, directories, failed: see `TrashReport`.
        stuck: items that failed in the current directory; they may have failed in another one before.
    """

    progress: Callable[[TrashReport], object] | None = None
    files: int = 0
    directories: int = 0
    failed: dict[str, str] = field(factory=dict)
    stuck: set[str] = field(factory=set)

    def fail(self, what: str, why: object) -> None:
        """Record that an item may still exist, and why."""
        self.failed[what] = str(why)
        self.stuck.add(what)

    def clear(self, what: str) -> None:
        """Remove an item from the failed ones, to try it again."""
        self.failed.pop(what, None)
        self.stuck.discard(what)

    def notify(self) -> None:
        """Report the progress."""
        if self.progress is not None:
            self.progress(self.report())

    def report(self) -> TrashReport:
        """Return the report for callers."""
        return TrashReport(
            files=self.files, directories=self.directories, failed=tuple(self.failed.items())
        )
