"""Synchronisation: rows of a bound directory are added, updated and removed as its objects are.

A batch is one transaction. Its conditions: the binding of the directory is as it was when the directory
was compared with the store, the rows are as they were then, and no tombstone was written since. A batch
that removes or updates rows also writes the directory's entry: if two clients do this at once, one of
them has to start again. Before a row is removed, its object is requested once more, and the store is
verified.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from attrs import evolve, frozen

from commitlog.namespace.external.listing_diff import ListingDiff
from commitlog.namespace.external.overlay import NameDiff
from commitlog.namespace.external.store import BackingStore
from commitlog.namespace.model.binding import Binding
from commitlog.namespace.model.records import Entry
from commitlog.namespace.write.plan_common import PlanContext, add_directories, add_entry
from commitlog.namespace.write.transaction import Change, Changes, PlanOutdated
from commitlog.tables.api import MAX_TRANSACTION_WRITES, Absent, Equals

__all__ = ["SyncResult", "Synchronizer", "plan_bind", "plan_sync"]


@frozen(kw_only=True)
class SyncResult:
    """The result of synchronising a directory.

    Attributes:
        directory: its present entry.
        written: entries that were written, by name.
        removed: number of rows that were removed.
        complete: whether the table agrees with the listing of the store. If not, others have changed the
            same records in between.
    """

    directory: Entry
    written: dict[str, Entry]
    removed: int
    complete: bool


@frozen(kw_only=True)
class Synchronizer:
    """Saves the store's state to the table of one namespace. Thread-safe.

    Args:
        planning: what plans use.
        changes: applies changes to the namespace.
        backing_store: the store.
    """

    planning: PlanContext
    changes: Changes
    backing_store: BackingStore

    def sync_names(self, directory: Entry, diffs: Sequence[NameDiff]) -> tuple[Entry, dict[str, Entry]]:
        """Save the state of some names; return the directory's entry and the written entries.

        Raises the errors of `Changes.apply`, `PlanOutdated` among them if `diffs` are outdated; and, if
        a row is to be removed, those of `BackingStore.verify`.
        """
        if len(self.confirmed(diffs)) < len(diffs):
            raise PlanOutdated("an object is there again")
        return self._apply(directory, diffs)

    def _apply(self, directory: Entry, diffs: Sequence[NameDiff]) -> tuple[Entry, dict[str, Entry]]:
        change, directory, written = plan_sync(self.planning, directory, diffs)
        self.changes.apply(change)
        return directory, written

    def confirmed(self, diffs: Sequence[NameDiff], *, may_be_empty: bool = False) -> Sequence[NameDiff]:
        """Return the differences without those that would remove a row whose object exists.

        If any would remove a row, raises the errors of `BackingStore.verify`.
        """
        paths = [path for each in diffs if (path := _removed_object(each)) is not None]
        if not paths:
            return diffs
        missing = self.backing_store.confirmed_missing(paths, may_be_empty=may_be_empty)
        return [each for each in diffs if (path := _removed_object(each)) is None or path in missing]

    def sync_listing(
        self, directory: Entry, listing: ListingDiff, *, record: bool = True, may_be_empty: bool = False
    ) -> SyncResult:
        """Save the state of a listing; with `record`, record when the directory was synchronised.

        Records that others change at the same time are left to them. The call stops if the directory
        itself has changed: it may not be bound any more. If rows are to be removed, raises the errors of
        `BackingStore.verify`.
        """
        diffs = self.confirmed(listing.diffs, may_be_empty=may_be_empty)
        written: dict[str, Entry] = {}
        removed = 0
        complete = len(diffs) == len(listing.diffs)
        for batch in _batches(diffs, MAX_TRANSACTION_WRITES - 1 - directory.shards.now):
            try:
                directory, new = self._apply(directory, batch)
            except PlanOutdated:
                complete = False
                if self.planning.tree.reread(directory) != directory:
                    break
                continue
            written |= new
            removed += sum(each.visible is None for each in batch)
        if complete and record:
            try:
                directory = self._record_sync(directory, listing.began)
            except PlanOutdated:
                complete = False
        return SyncResult(directory=directory, written=written, removed=removed, complete=complete)

    def _record_sync(self, directory: Entry, synced: int) -> Entry:
        assert directory.binding is not None
        binding = evolve(directory.binding, synced=synced)
        change, recorded = _plan_rewrite(
            self.planning, "mark a directory as synchronised", directory, binding
        )
        self.changes.apply(change)
        return recorded


def plan_sync(
    context: PlanContext, directory: Entry, diffs: Sequence[NameDiff]
) -> tuple[Change, Entry, dict[str, Entry]]:
    """Plan to apply differences; return the change, the directory's entry, and the new entries."""
    change_id = context.new_id()
    now = context.now()
    only_adds = all(each.row is None for each in diffs)
    change = Change("take what the store has", change_id, directory.key)
    after = directory
    if not only_adds:
        after = evolve(directory, version=directory.version + 1, change_id=change_id, updated=now)
        change.put(after, directory.unchanged())
    written: dict[str, Entry] = {}
    for each in diffs:
        if each.visible is None:
            assert each.row is not None
            change.delete(each.row.key, each.row.unchanged())
            continue
        entry = evolve(each.visible, version=each.visible.version + 1, change_id=change_id, updated=now)
        if each.row is None:
            entry = evolve(entry, id=context.new_id())
            _add_unstored(context, change, directory, entry, each)
        else:
            change.put(entry, each.row.unchanged())
        written[each.name] = entry
    if only_adds:
        change.primary = next(iter(written.values())).key
        change.check(directory.key, directory.unchanged())
    return change, after, written


def _add_unstored(
    context: PlanContext, change: Change, directory: Entry, entry: Entry, diff: NameDiff
) -> None:
    """Add an entry for an object or prefix, on condition that no tombstone was written since."""
    name = f"{entry.name}/" if entry.is_directory else entry.name
    tombstone = diff.tombstone
    change.check(
        context.keys.tombstone(directory.id, name),
        Absent() if tombstone is None else Equals("change_id", tombstone.change_id),
    )
    if entry.is_directory:
        add_directories(context, change, directory, [entry])
    else:
        add_entry(context, change, directory, entry)


def plan_bind(
    context: PlanContext, directory: Entry, binding: Binding | None
) -> tuple[Change | None, Entry]:
    """Plan to bind or unbind a directory; the change is None if it is bound so.

    If the prefix stays the same, `synced` does, too.
    """
    before = directory.binding
    if binding is not None and before is not None and before.prefix == binding.prefix:
        binding = evolve(binding, synced=before.synced)
    if binding == before:
        return None, directory
    what = "unbind a directory" if binding is None else "bind a directory"
    return _plan_rewrite(context, what, directory, binding)


def _plan_rewrite(
    context: PlanContext, what: str, directory: Entry, binding: Binding | None
) -> tuple[Change, Entry]:
    change = Change(what, context.new_id(), directory.key)
    new = evolve(
        directory,
        version=directory.version + 1,
        change_id=change.id,
        updated=context.now(),
        binding=binding,
    )
    change.put(new, directory.unchanged())
    return change, new


def _batches(diffs: Iterable[NameDiff], limit: int) -> Iterator[list[NameDiff]]:
    """Divide differences into batches that fit into one transaction each, with no name twice."""
    batch: dict[str, NameDiff] = {}
    size = 0
    for each in diffs:
        writes = _write_count(each)
        if size + writes > limit or each.name in batch:
            yield list(batch.values())
            batch, size = {}, 0
        batch[each.name] = each
        size += writes
    if batch:
        yield list(batch.values())


def _removed_object(diff: NameDiff) -> str | None:
    """Return the path of the object whose row is to be removed; None if no row is."""
    if diff.visible is not None:
        return None
    assert diff.row is not None
    assert diff.row.data is not None
    return diff.row.data.path


def _write_count(diff: NameDiff) -> int:
    """Return the number of writes for a difference, not counting guards of the directory."""
    if diff.row is not None:
        return 1
    assert diff.visible is not None
    return 4 if diff.visible.is_directory else 2
