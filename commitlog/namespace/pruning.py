"""Removing rows and tombstones of which nothing is in the store any more.

A tombstone is read before the store is listed, and goes only if that listing has nothing that it would
hide, also from behind a row; so nothing that was deleted comes back by it. Imports the ground floor, its
siblings and the ports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from attrs import evolve, frozen

from commitlog.backoff import Backoff
from commitlog.clock import Clock
from commitlog.errors import Conflict
from commitlog.namespace.change import Stale
from commitlog.namespace.joining import Joining
from commitlog.namespace.joint import Joint, home_of
from commitlog.namespace.leftovers import Tombstone
from commitlog.namespace.levels import level_of
from commitlog.namespace.planning import Planner
from commitlog.namespace.records import Entry
from commitlog.tables.api import ConditionFailed, Equals

__all__ = ["Pruned", "Pruner"]


@frozen(kw_only=True)
class Pruned:
    """What a call has removed from the table.

    Attributes:
        directories: number of directories that were looked at.
        tombstones: tombstones that were removed.
        files: files that were removed, since their objects were gone.
    """

    directories: int = 0
    tombstones: int = 0
    files: int = 0


@frozen(kw_only=True)
class Pruner:
    """Prunes directories of one namespace.

    Args:
        joint: compares directories with the store.
        joining: removes rows of bound directories.
        planner: removes other rows.
        clock: tells how old tombstones are; waited on between attempts.
        backoff: how often a directory is tried again that others change.
    """

    joint: Joint
    joining: Joining
    planner: Planner
    clock: Clock
    backoff: Backoff

    def prune(
        self,
        top: Entry,
        *,
        older_than: float | None,
        progress: Callable[[Pruned], object] | None,
    ) -> Pruned:
        """See `Namespace.prune`."""
        done = Pruned()
        pending = [top]
        while pending:
            directory = pending.pop()
            done = evolve(done, directories=done.directories + 1)
            for _ in self.backoff.attempts(self.clock):
                now = self.joint.rows.again(directory)
                if now is None:  # renamed, or deleted, meanwhile
                    break
                whole, rows, done = self._once(now, older_than, done)
                if whole:
                    for entry in rows:
                        if entry.is_directory:
                            pending.append(entry)
                        elif self._is_useless(now, entry):
                            done = evolve(done, files=done.files + self._remove_file(entry))
                    break
            else:
                raise Conflict(f"others kept changing directory {directory.name!r}; repeat it")
            if progress is not None:
                progress(done)
        return done

    def _once(
        self, directory: Entry, older_than: float | None, done: Pruned
    ) -> tuple[bool, Iterable[Entry], Pruned]:
        """Prune one directory; return whether nobody came in between, what rows stay, and the sum."""
        whole = True
        rows: Iterable[Entry]
        if directory.binding is None:
            useless = list(self.joint.rows.tombstones(directory))
            rows = self.joint.rows.entries(directory)
        else:
            level = level_of(self.joint, directory)
            gone = [news for news in level.news if news.seen is None]
            settled = self.joining.settle(directory, evolve(level, news=gone), mark=False)
            whole, rows = settled.whole, level.rows()
            done = evolve(done, files=done.files + settled.removed)
            useless = [
                each
                for name, each in level.tombstones.items()
                if name in level.idle or self._is_old(each, older_than)
            ]
        return whole, rows, evolve(done, tombstones=done.tombstones + self._remove(useless))

    def _is_old(self, tombstone: Tombstone, older_than: float | None) -> bool:
        return older_than is not None and tombstone.left <= (self.clock.epoch() - older_than) * 1000

    def _remove(self, tombstones: Iterable[Tombstone]) -> int:
        removed = 0
        for each in tombstones:
            try:
                self.joint.rows.table.delete(each.key, condition=Equals("word", each.word))
            except ConditionFailed:
                continue  # another was left there, or somebody else prunes
            removed += 1
        return removed

    def _is_useless(self, directory: Entry, file: Entry) -> bool:
        """Tell whether a file that is no object at home has lost the one that it is."""
        if file.data is None or file.data.own or home_of(directory, file) is not None:
            return False
        return self.joint.outside.is_gone(file.data.path)

    def _remove_file(self, file: Entry) -> int:
        try:
            self.joining.changes.apply(self.planner.remove_files([file]))
        except Stale:
            return 0  # it is another by now
        return 1
