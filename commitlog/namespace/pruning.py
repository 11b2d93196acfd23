"""Removing rows and tombstones of which nothing is in the store any more.

A tombstone is read before the store is listed, and goes only if that listing has nothing that it would
hide, also from behind a row, and if the directory is bound as it was then; so nothing that was deleted
comes back by it. A file goes only if its object is asked for once more, and the store proves that it is
there, before that and after. Imports the ground floor, its siblings and the ports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from attrs import define, evolve, field, frozen

from commitlog.backoff import Backoff
from commitlog.clock import Clock
from commitlog.errors import CommitError, Conflict
from commitlog.maps import AppendOnly
from commitlog.namespace.change import MAX_WRITES, Stale
from commitlog.namespace.joining import Joining
from commitlog.namespace.joint import Joint, News, home_of
from commitlog.namespace.leftovers import Tombstone
from commitlog.namespace.levels import Level, level_of
from commitlog.namespace.outside import WINDOW
from commitlog.namespace.planning import Planner
from commitlog.namespace.records import Entry
from commitlog.namespace.removals import AGAIN, Removals
from commitlog.tables.api import Check, Delete, Equals

__all__ = ["Pruned", "Pruner"]

#: Files for which the store proves once that it is there.
_PROVED = 100


@frozen(kw_only=True)
class Pruned:
    """What a call has removed from the table, and what is left.

    Attributes:
        directories: number of directories that were looked at.
        tombstones: tombstones that were removed.
        files: files that were removed, since their objects were gone.
        failed: ids of files, and of directories in and below which something may be left, with the
            errors.
    """

    directories: int = 0
    tombstones: int = 0
    files: int = 0
    failed: AppendOnly[tuple[str, str]] = field(factory=AppendOnly)


@frozen(kw_only=True)
class Pruner:
    """Prunes directories of one namespace.

    Args:
        joint: compares directories with the store.
        joining: removes rows of bound directories.
        planner: removes other rows.
        clock: tells how old tombstones are; waited on between attempts.
        backoff: how often a directory is tried again that others change.
        older_than: tombstones that were left so many seconds ago go, too.
        may_be_empty: whether all objects of the store may have been removed.
    """

    joint: Joint
    joining: Joining
    planner: Planner
    clock: Clock
    backoff: Backoff
    older_than: float | None
    may_be_empty: bool

    def prune(self, top: Entry, *, progress: Callable[[Pruned], object] | None) -> Pruned:
        """See `Namespace.prune`."""
        done = _Done()
        pending = [top]
        while pending:
            directory = pending.pop()
            done.directories += 1
            try:
                pending += self._prune(directory, done)
            except AGAIN as error:
                done.fail(directory.id, error)
            if progress is not None:
                progress(done.pruned())
        return done.pruned()

    def _prune(self, directory: Entry, done: _Done) -> list[Entry]:
        """Prune one directory; return those in it. Raises `Conflict` if others kept changing it."""
        for _ in self.backoff.attempts(self.clock):
            now = self.joint.rows.again(directory)
            if now is None:  # renamed, or deleted, meanwhile
                return []
            rows: Iterable[Entry]
            if now.binding is None:
                left = self._without(now, list(self.joint.rows.tombstones(now)), done)
                rows = () if left is None else self.joint.rows.entries(now)
            else:
                level = level_of(self.joint, now)
                left = self._without_lost(now, level, done)
                left = None if left is None else self._without(left, self._useless(level), done)
                rows = level.rows()
            if left is None:
                continue
            below: list[Entry] = []
            self._remove_files(self._lost(left, rows, below), done)
            return below
        raise Conflict(f"others kept changing directory {directory.name!r}; repeat it")

    def _without_lost(self, directory: Entry, level: Level, done: _Done) -> Entry | None:
        """Remove the rows of a bound directory whose objects are gone; return its entry then.

        None if others have changed the same.
        """
        gone = iter([news for news in level.news if news.seen is None])
        # One transaction at a time, so that what was done is known if the next one fails.
        while batch := list[News](islice(gone, MAX_WRITES - 1 - directory.shards.now)):
            settled = self.joining.settle(
                directory, evolve(level, news=batch), mark=False, may_be_empty=self.may_be_empty
            )
            done.files += settled.removed
            if not settled.whole:
                return None
            directory = settled.directory
        return directory

    def _useless(self, level: Level) -> list[Tombstone]:
        before = None if self.older_than is None else (self.clock.epoch() - self.older_than) * 1000
        return [
            each
            for name, each in level.tombstones.items()
            if name in level.idle or (before is not None and each.left <= before)
        ]

    def _without(self, directory: Entry, tombstones: Sequence[Tombstone], done: _Done) -> Entry | None:
        """Remove tombstones, if the directory is as it was; return it, or None if it is not.

        One that is another by now was left there since, or somebody else prunes.
        """
        removals = Removals(
            table=self.joint.rows.table,
            clock=self.clock,
            backoff=self.backoff,
            words=self.planner.words,
        )
        removed = removals.remove(
            [Delete(each.key, Equals("word", each.word)) for each in tombstones],
            check=Check(directory.key, directory.unchanged()),
        )
        done.tombstones += len(removed.keys)
        for error in removed.failed.values():
            raise error
        if len(removed.keys) < len(tombstones) and self.joint.rows.again(directory) != directory:
            return None
        return directory

    def _lost(self, directory: Entry, rows: Iterable[Entry], below: list[Entry]) -> Iterator[Entry]:
        """Yield files that have lost their objects, and are no objects at home; keep directories.

        The store is asked about many files at a time.
        """
        foreign = self._foreign(directory, rows, below)
        while batch := list(islice(foreign, WINDOW)):  # several files may have one object
            missing = set(self.joint.outside.missing({path for _, path in batch}))
            yield from (file for file, path in batch if path in missing)

    def _foreign(
        self, directory: Entry, rows: Iterable[Entry], below: list[Entry]
    ) -> Iterator[tuple[Entry, str]]:
        """Yield files whose objects others own, and that are not at home, with the objects' paths."""
        for entry in rows:
            if entry.data is None:
                below.append(entry)
            elif not entry.data.own and home_of(directory, entry) is None:
                yield entry, entry.data.path

    def _remove_files(self, lost: Iterator[Entry], done: _Done) -> None:
        while batch := list(islice(lost, _PROVED)):
            paths = {file.id: file.data.path for file in batch if file.data is not None}
            gone = self.joint.outside.gone(list(paths.values()), may_be_empty=self.may_be_empty)
            for file in batch:
                if paths[file.id] not in gone:
                    continue
                try:
                    self.joining.changes.apply(self.planner.remove_files([file]))
                except Stale:
                    continue  # it is another by now
                except AGAIN as error:
                    done.fail(file.id, error)
                else:
                    done.files += 1


@define
class _Done:
    """What a call has done so far. See `Pruned`."""

    directories: int = 0
    tombstones: int = 0
    files: int = 0
    failed: AppendOnly[tuple[str, str]] = field(factory=AppendOnly)

    def fail(self, id: str, error: CommitError) -> None:
        """Keep that something may be left, and why."""
        self.failed += [(id, str(error))]

    def pruned(self) -> Pruned:
        """Return it for callers."""
        return Pruned(
            directories=self.directories,
            tombstones=self.tombstones,
            files=self.files,
            failed=self.failed,
        )
