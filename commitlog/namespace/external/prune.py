"""Removal of rows and tombstones whose objects are gone from the store.

A tombstone is read before the store is listed. It is removed only if the listing has nothing for it to
hide, not even an object that a row covers, and the binding of the directory has not changed. So a
deleted file never comes back. A row is removed only after its object was requested once more, from a
store that is verified before and after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from attrs import define, evolve, field, frozen

from commitlog._util.frozen_map import AppendOnly
from commitlog._util.retry import Backoff
from commitlog.clock import Clock
from commitlog.errors import Conflict
from commitlog.namespace.external.listing_diff import ListingDiff, diff_listing
from commitlog.namespace.external.overlay import NameDiff, Overlay
from commitlog.namespace.external.store import WINDOW
from commitlog.namespace.external.sync import Synchronizer
from commitlog.namespace.gc.deletes import RETRYABLE, RecordDeleter
from commitlog.namespace.model.backing import backing_path
from commitlog.namespace.model.records import Entry, Tombstone
from commitlog.namespace.write.plan_common import PlanContext
from commitlog.namespace.write.plan_files import plan_remove_files
from commitlog.namespace.write.transaction import DeadlinePassed, LogRenewed, PlanOutdated
from commitlog.tables.api import MAX_TRANSACTION_WRITES, Check, Delete, Equals

__all__ = ["PruneReport", "PrunedDirectory", "Pruner", "external_files"]

#: Number of files between two verifications of the store.
_VERIFIED = 100


@frozen(kw_only=True)
class PruneReport:
    """The result of pruning: records removed from the table, and records left.

    Attributes:
        directories: number of directories that were checked.
        tombstones: number of tombstones that were removed.
        files: number of files that were removed, since their objects were gone.
        failed: ids of files that may be left, and of directories with records left in or below them;
            with the errors.
    """

    directories: int = 0
    tombstones: int = 0
    files: int = 0
    failed: AppendOnly[tuple[str, str]] = field(factory=AppendOnly)

    def followed_by(self, other: PruneReport) -> PruneReport:
        """Return the report of this call and of another one, of other directories."""
        return PruneReport(
            directories=self.directories + other.directories,
            tombstones=self.tombstones + other.tombstones,
            files=self.files + other.files,
            failed=self.failed + other.failed,
        )

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "directories": self.directories,
            "tombstones": self.tombstones,
            "files": self.files,
            "failed": list(map(list, self.failed)),
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> PruneReport:
        """Return the report that `to_json` returned."""
        failed = AppendOnly((what, error) for what, error in found["failed"])
        return cls(**{**found, "failed": failed})


@frozen(kw_only=True)
class PrunedDirectory:
    """The result of pruning one directory.

    Attributes:
        report: the removals from it.
        below: the directories in it.
        external: number of its files outside their backing path, with objects of others, that were left.
    """

    report: PruneReport
    below: tuple[Entry, ...] = ()
    external: int = 0


@frozen(kw_only=True)
class Pruner:
    """Prunes directories of one namespace.

    Args:
        overlay: compares directories with the store.
        synchronizer: removes rows of bound directories.
        planning: what the plans use that remove other rows.
        clock: gives the age of tombstones; waited on between attempts.
        backoff: retry policy for directories that others change.
        older_than: also remove all tombstones that are at least so many seconds old; None: do not.
        may_be_empty: whether all objects of the store may have been removed.
    """

    overlay: Overlay
    synchronizer: Synchronizer
    planning: PlanContext
    clock: Clock
    backoff: Backoff
    older_than: float | None
    may_be_empty: bool

    def prune(self, top: Entry, *, progress: Callable[[PruneReport], object] | None) -> PruneReport:
        """See `Bindings.prune`."""
        done = PruneReport()
        pending: list[tuple[Entry, tuple[str, ...]]] = [(top, ())]
        while pending:
            directory, above = pending.pop()
            pruned = self.prune_directory(directory)
            # A damaged directory may be inside itself.
            ids = (*above, directory.id)
            pending += [(each, ids) for each in pruned.below if each.id not in ids]
            done = done.followed_by(pruned.report)
            if progress is not None:
                progress(done)
        return done

    def prune_directory(self, directory: Entry, *, look_up: bool = True) -> PrunedDirectory:
        """Prune one directory, without those in it.

        Args:
            directory: its entry, which may be outdated.
            look_up: whether to look up the objects of files outside their backing path. Otherwise these
                files are left for `remove_lost`.
        """
        done = _Totals(directories=1)
        below: list[Entry] = []
        external = 0
        try:
            rows = self._prune(directory, done)
            if rows is not None:
                files = external_files(*rows, below)
                if look_up:
                    self._remove_files(self._missing(files), done)
                else:
                    external = sum(1 for _ in files)
        except RETRYABLE as error:
            done.fail(directory.id, error)
        return PrunedDirectory(report=done.report(), below=tuple(below), external=external)

    def remove_lost(self, files: Iterable[Entry]) -> PruneReport:
        """Remove those of some files outside their backing path whose objects are gone."""
        done = _Totals()
        rest = iter(files)
        while batch := list(islice(rest, _VERIFIED)):
            try:
                self._remove_files(self._missing(batch), done)
            except RETRYABLE as error:
                for file in batch:
                    done.fail(file.id, error)
        return done.report()

    def _prune(self, directory: Entry, done: _Totals) -> tuple[Entry, Iterable[Entry]] | None:
        """Prune one directory, except for files outside their backing path.

        Returns its entry and its rows; None if it is gone. Raises `Conflict` if it keeps changing.
        """
        for _ in self.backoff.attempts(self.clock):
            current = self.overlay.tree.reread(directory)
            if current is None:  # renamed, or deleted, meanwhile
                return None
            rows: Iterable[Entry]
            if current.binding is None:
                tombstones = list(self.overlay.tree.tombstones(current))
                pruned = self._remove_tombstones(current, tombstones, done)
                rows = () if pruned is None else self.overlay.tree.entries(current)
            else:
                listing = diff_listing(self.overlay, current)
                pruned = self._remove_rows(current, listing, done)
                if pruned is not None:
                    pruned = self._remove_tombstones(pruned, self._unneeded(listing), done)
                rows = listing.rows()
            if pruned is not None:
                return pruned, rows
        raise Conflict(f"other clients kept changing directory {directory.name!r}; repeat it")

    def _remove_rows(self, directory: Entry, listing: ListingDiff, done: _Totals) -> Entry | None:
        """Remove the rows of a bound directory whose objects are gone; return its new entry.

        None if others have changed the same records.
        """
        gone = iter([diff for diff in listing.diffs if diff.visible is None])
        # One transaction at a time: if one fails, the report is right about the earlier ones.
        while batch := list[NameDiff](islice(gone, MAX_TRANSACTION_WRITES - 1 - directory.shards.now)):
            synced = self.synchronizer.sync_listing(
                directory, evolve(listing, diffs=batch), record=False, may_be_empty=self.may_be_empty
            )
            done.files += synced.removed
            if not synced.complete:
                return None
            directory = synced.directory
        return directory

    def _unneeded(self, listing: ListingDiff) -> list[Tombstone]:
        before = None if self.older_than is None else (self.clock.epoch() - self.older_than) * 1000
        return [
            each
            for name, each in listing.tombstones.items()
            if name in listing.unneeded or (before is not None and each.written <= before)
        ]

    def _remove_tombstones(
        self, directory: Entry, tombstones: Sequence[Tombstone], done: _Totals
    ) -> Entry | None:
        """Remove tombstones if the directory is unchanged; return it, or None if it has changed.

        A tombstone with another change id was written since, or another client prunes.
        """
        deleter = RecordDeleter(
            table=self.overlay.tree.table,
            clock=self.clock,
            backoff=self.backoff,
            new_id=self.planning.new_id,
        )
        removed = deleter.remove(
            [Delete(each.key, Equals("change_id", each.change_id)) for each in tombstones],
            check=Check(directory.key, directory.unchanged()),
        )
        done.tombstones += len(removed.keys)
        for error in removed.failed.values():
            raise error
        if len(removed.keys) < len(tombstones) and self.overlay.tree.reread(directory) != directory:
            return None
        return directory

    def _missing(self, files: Iterable[Entry]) -> Iterator[Entry]:
        """Yield files whose objects are gone. The store is asked about many files at a time."""
        rest = iter(files)
        while batch := list(islice(rest, WINDOW)):  # several files may share one object
            paths = {file.data.path for file in batch if file.data is not None}
            missing = set(self.overlay.backing_store.missing(paths))
            yield from (file for file in batch if file.data is not None and file.data.path in missing)

    def _remove_files(self, lost: Iterator[Entry], done: _Totals) -> None:
        while batch := list(islice(lost, _VERIFIED)):
            paths = {file.id: file.data.path for file in batch if file.data is not None}
            gone = self.overlay.backing_store.confirmed_missing(
                list(paths.values()), may_be_empty=self.may_be_empty
            )
            for file in batch:
                if paths[file.id] not in gone:
                    continue
                try:
                    self.synchronizer.changes.apply(plan_remove_files(self.planning, [file]))
                except (*RETRYABLE, DeadlinePassed, LogRenewed) as error:
                    done.fail(file.id, error)
                except PlanOutdated:
                    continue  # the file has changed since
                else:
                    done.files += 1


def external_files(
    directory: Entry, rows: Iterable[Entry], below: list[Entry] | None = None
) -> Iterator[Entry]:
    """Yield the files outside their backing path with objects of others.

    Args:
        directory: the directory.
        rows: its rows.
        below: takes the directories among the rows, if given.
    """
    for entry in rows:
        if entry.data is None:
            if below is not None:
                below.append(entry)
        elif not entry.data.own and backing_path(directory, entry) is None:
            yield entry


@define
class _Totals:
    """The counts of a call in progress. See `PruneReport`."""

    directories: int = 0
    tombstones: int = 0
    files: int = 0
    failed: AppendOnly[tuple[str, str]] = field(factory=AppendOnly)

    def fail(self, id: str, error: Exception) -> None:
        """Record an error, and the id for which records may be left."""
        self.failed += [(id, str(error))]

    def report(self) -> PruneReport:
        """Return the report."""
        return PruneReport(
            directories=self.directories,
            tombstones=self.tombstones,
            files=self.files,
            failed=self.failed,
        )
