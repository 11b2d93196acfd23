"""Saving the store's state to the table: rows are added, updated and removed as objects are.

A batch is one transaction. Its conditions: the binding of the directory is as it was when the directory
was compared with the store, the rows are as they were then, and no tombstone was written since. A batch
that removes or updates rows also writes the directory's entry: if two clients do this at once, one of
them has to start again. Before a row is removed, its object is requested once more, from a store that
proves its presence.
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
from commitlog.namespace.write.transaction import MAX_WRITES, Change, Changes, PlanOutdated
from commitlog.tables.api import Absent, Equals

__all__ = ["Settled", "Synchronizer", "plan_bind", "plan_sync"]


@frozen(kw_only=True)
class Settled:
    """The result of synchronising a directory.

    Attributes:
        directory: its present entry.
        made: entries that were written, by name.
        removed: number of rows that were removed.
        whole: whether the table agrees with the listing of the store. If not, others have changed the
            same records in between.
    """

    directory: Entry
    made: dict[str, Entry]
    removed: int
    whole: bool


@frozen(kw_only=True)
class Synchronizer:
    """Saves the store's state to the table of one namespace. Thread-safe.

    Args:
        planning: what plans use.
        changes: applies changes to the namespace.
        outside: the store.
    """

    planning: PlanContext
    changes: Changes
    outside: BackingStore

    def take(self, directory: Entry, news: Sequence[NameDiff]) -> tuple[Entry, dict[str, Entry]]:
        """Apply one batch; return the directory's entry and the written entries, as they are now.

        Raises the errors of `Changes.apply`, `PlanOutdated` among them if the batch is outdated; and, if
        a row is to be removed, those of `BackingStore.prove`.
        """
        if len(self.still(news)) < len(news):
            raise PlanOutdated("an object is there again")
        return self._take(directory, news)

    def _take(self, directory: Entry, news: Sequence[NameDiff]) -> tuple[Entry, dict[str, Entry]]:
        change, directory, made = plan_sync(self.planning, directory, news)
        self.changes.apply(change)
        return directory, made

    def still(self, news: Sequence[NameDiff], *, may_be_empty: bool = False) -> Sequence[NameDiff]:
        """Return the differences without those that would remove a row whose object exists.

        If any would remove a row, raises the errors of `BackingStore.prove`.
        """
        going = [path for each in news if (path := _going(each)) is not None]
        if not going:
            return news
        gone = self.outside.gone(going, may_be_empty=may_be_empty)
        return [each for each in news if (path := _going(each)) is None or path in gone]

    def settle(
        self, directory: Entry, level: ListingDiff, *, mark: bool = True, may_be_empty: bool = False
    ) -> Settled:
        """Apply all differences of a listing; with `mark`, record when the directory was synchronised.

        Records that others change at the same time are left to them. The call stops if the directory
        itself has changed: it may not be bound any more. If rows are to be removed, raises the errors of
        `BackingStore.prove`.
        """
        news = self.still(level.news, may_be_empty=may_be_empty)
        made: dict[str, Entry] = {}
        removed = 0
        whole = len(news) == len(level.news)
        for batch in _batches(news, MAX_WRITES - 1 - directory.shards.now):
            try:
                directory, new = self._take(directory, batch)
            except PlanOutdated:
                whole = False
                if self.planning.tree.again(directory) != directory:
                    break
                continue
            made |= new
            removed += sum(each.seen is None for each in batch)
        if whole and mark:
            try:
                directory = self._mark(directory, level.began)
            except PlanOutdated:
                whole = False
        return Settled(directory=directory, made=made, removed=removed, whole=whole)

    def _mark(self, directory: Entry, synced: int) -> Entry:
        assert directory.binding is not None
        binding = evolve(directory.binding, synced=synced)
        change, marked = _plan_rewrite(
            self.planning, "mark a directory as synchronised", directory, binding
        )
        self.changes.apply(change)
        return marked


def plan_sync(
    context: PlanContext, directory: Entry, news: Sequence[NameDiff]
) -> tuple[Change, Entry, dict[str, Entry]]:
    """Plan to apply differences; return the change, the directory's entry, and the new entries."""
    word = context.new_id()
    now = context.now()
    keeps = all(each.row is None for each in news)
    change = Change("take what the store has", word, directory.key)
    after = directory
    if not keeps:
        after = evolve(directory, version=directory.version + 1, word=word, updated=now)
        change.put(after, directory.unchanged())
    made: dict[str, Entry] = {}
    for each in news:
        if each.seen is None:
            assert each.row is not None
            change.delete(each.row.key, each.row.unchanged())
            continue
        entry = evolve(each.seen, version=each.seen.version + 1, word=word, updated=now)
        if each.row is None:
            entry = evolve(entry, id=context.new_id())
            _add_unstored(context, change, directory, entry, each)
        else:
            change.put(entry, each.row.unchanged())
        made[each.name] = entry
    if keeps:
        change.witness = next(iter(made.values())).key
        change.check(directory.key, directory.unchanged())
    return change, after, made


def _add_unstored(
    context: PlanContext, change: Change, directory: Entry, entry: Entry, news: NameDiff
) -> None:
    """Add an entry for an object or prefix, on condition that no tombstone was written since."""
    name = f"{entry.name}/" if entry.is_directory else entry.name
    tombstone = news.tombstone
    change.check(
        context.keys.tombstone(directory.id, name),
        Absent() if tombstone is None else Equals("word", tombstone.word),
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
        word=change.word,
        updated=context.now(),
        binding=binding,
    )
    change.put(new, directory.unchanged())
    return change, new


def _batches(news: Iterable[NameDiff], writes: int) -> Iterator[list[NameDiff]]:
    """Divide differences into batches that fit into one transaction each, with no name twice."""
    batch: dict[str, NameDiff] = {}
    size = 0
    for each in news:
        weight = _weight(each)
        if size + weight > writes or each.name in batch:
            yield list(batch.values())
            batch, size = {}, 0
        batch[each.name] = each
        size += weight
    if batch:
        yield list(batch.values())


def _going(news: NameDiff) -> str | None:
    """Return the path of the object whose row is to be removed; None if no row is."""
    if news.seen is not None:
        return None
    assert news.row is not None
    assert news.row.data is not None
    return news.row.data.path


def _weight(news: NameDiff) -> int:
    """Return the number of writes for a difference, not counting guards of the directory."""
    if news.row is not None:
        return 1
    assert news.seen is not None
    return 4 if news.seen.is_directory else 2
