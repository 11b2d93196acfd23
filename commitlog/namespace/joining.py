"""Taking what the store has into the table: rows come, change and go as objects do.

A batch is one transaction, on condition that the directory is bound as it was when it was compared with
the store, that the rows are as they were then, and that no tombstone was left since. One that takes
something away writes the directory's entry: of two clients that do so at once, one starts again. What
goes is asked for once more before, of a store that proves that it is there.

Imports the ground floor, its siblings and the `Table` port.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from attrs import evolve, frozen

from commitlog.namespace.binding import Binding
from commitlog.namespace.change import MAX_WRITES, Change, Changes, Stale
from commitlog.namespace.joint import News
from commitlog.namespace.levels import Level
from commitlog.namespace.outside import Outside
from commitlog.namespace.parts import Parts
from commitlog.namespace.records import Entry
from commitlog.tables.api import Absent, Equals

__all__ = ["Joining", "Settled"]


@frozen(kw_only=True)
class Settled:
    """What has become of a level.

    Attributes:
        directory: its entry now.
        made: entries that were put, by name.
        removed: number of rows that were removed.
        whole: whether the table agrees with what was seen in the store. If not, others have changed the
            same meanwhile.
    """

    directory: Entry
    made: dict[str, Entry]
    removed: int
    whole: bool


@frozen(kw_only=True)
class Joining(Parts):
    """Takes what the store has into the table of one namespace. Thread-safe.

    Args:
        changes: applies what is planned.
        outside: the store.
    """

    changes: Changes
    outside: Outside

    def take(self, directory: Entry, news: Sequence[News]) -> tuple[Entry, dict[str, Entry]]:
        """Do one batch; return the directory's entry and the entries that were put, as they are now.

        Raises what `Changes.apply` raises: `Stale` if the batch is no news any more; and, if something
        goes, what `Outside.prove` raises.
        """
        if len(self.still(news)) < len(news):
            raise Stale("an object is there again")
        return self._take(directory, news)

    def _take(self, directory: Entry, news: Sequence[News]) -> tuple[Entry, dict[str, Entry]]:
        change, directory, made = self.plan(directory, news)
        self.changes.apply(change)
        return directory, made

    def still(self, news: Sequence[News], *, may_be_empty: bool = False) -> Sequence[News]:
        """Return the news without rows that would go, but whose objects are there.

        If any would go, raises what `Outside.prove` raises.
        """
        going = [path for each in news if (path := _going(each)) is not None]
        if not going:
            return news
        gone = self.outside.gone(going, may_be_empty=may_be_empty)
        return [each for each in news if (path := _going(each)) is None or path in gone]

    def settle(
        self, directory: Entry, level: Level, *, mark: bool = True, may_be_empty: bool = False
    ) -> Settled:
        """Take all news of a level; `mark` when the directory was seen to agree with the store.

        What others change at the same time is left to them. It stops if the directory itself was changed
        meanwhile: it may not be bound any more. If something goes, raises what `Outside.prove` raises.
        """
        news = self.still(level.news, may_be_empty=may_be_empty)
        made: dict[str, Entry] = {}
        removed = 0
        whole = len(news) == len(level.news)
        for batch in _batches(news, MAX_WRITES - 1 - directory.shards.now):
            try:
                directory, new = self._take(directory, batch)
            except Stale:
                whole = False
                if self.tree.again(directory) != directory:
                    break
                continue
            made |= new
            removed += sum(each.seen is None for each in batch)
        if whole and mark:
            try:
                directory = self._mark(directory, level.began)
            except Stale:
                whole = False
        return Settled(directory=directory, made=made, removed=removed, whole=whole)

    def bind(self, directory: Entry, binding: Binding | None) -> tuple[Change | None, Entry]:
        """Plan that a directory is bound so; None if it is. When it was synchronised stays known."""
        before = directory.binding
        if binding is not None and before is not None and before.prefix == binding.prefix:
            binding = evolve(binding, synced=before.synced)
        if binding == before:
            return None, directory
        what = "unbind a directory" if binding is None else "bind a directory"
        return self._rewrite(what, directory, binding)

    def plan(self, directory: Entry, news: Sequence[News]) -> tuple[Change, Entry, dict[str, Entry]]:
        """Plan that the table has what is seen; return the change, and what it makes."""
        word = self.words()
        now = self._now()
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
                entry = evolve(entry, id=self.words())
                self._adopt(change, directory, entry, each)
            else:
                change.put(entry, each.row.unchanged())
            made[each.name] = entry
        if keeps:
            change.witness = next(iter(made.values())).key
            change.check(directory.key, directory.unchanged())
        return change, after, made

    def _adopt(self, change: Change, directory: Entry, entry: Entry, news: News) -> None:
        name = f"{entry.name}/" if entry.is_directory else entry.name
        tombstone = news.tombstone
        change.check(
            self.keys.tombstone(directory.id, name),
            Absent() if tombstone is None else Equals("word", tombstone.word),
        )
        if entry.is_directory:
            self._make_directories(change, directory, [entry])
        else:
            self._add(change, directory, entry)

    def _mark(self, directory: Entry, synced: int) -> Entry:
        assert directory.binding is not None
        binding = evolve(directory.binding, synced=synced)
        change, marked = self._rewrite("mark a directory as synchronised", directory, binding)
        self.changes.apply(change)
        return marked

    def _rewrite(self, what: str, directory: Entry, binding: Binding | None) -> tuple[Change, Entry]:
        change = Change(what, self.words(), directory.key)
        new = evolve(
            directory,
            version=directory.version + 1,
            word=change.word,
            updated=self._now(),
            binding=binding,
        )
        change.put(new, directory.unchanged())
        return change, new


def _batches(news: Iterable[News], writes: int) -> Iterator[list[News]]:
    """Cut what has to be done into what fits into one transaction, no name twice."""
    batch: dict[str, News] = {}
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


def _going(news: News) -> str | None:
    """Return the path of the object of a file that is to go; None if none is."""
    if news.seen is not None:
        return None
    assert news.row is not None
    assert news.row.data is not None
    return news.row.data.path


def _weight(news: News) -> int:
    """Return how many writes it takes, beside gates of the directory."""
    if news.row is not None:
        return 1
    assert news.seen is not None
    return 4 if news.seen.is_directory else 2
