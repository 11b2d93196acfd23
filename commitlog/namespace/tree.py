"""Reads of the tree: path lookups, and listings of directories.

A path is looked up name by name, with one request each. Every answer is consistent by itself. Several
answers together are not, as in POSIX: a directory above may be renamed between two of them.

A tree remembers the directories that it has read. If it knows the directories of a path, it sends the
requests for all names at once, and those of several paths together. An answer counts if the directories
above are the remembered versions. A version never comes back, so they were in place all the time, also
when the name below was read: requests in turn could have had the same answers. Names below a directory
that has changed are looked up in turn.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, groupby
from operator import attrgetter
from typing import TypeVar

from attrs import define, field, frozen

from commitlog._util.concurrency import SERIAL, Executor
from commitlog.errors import CommitError
from commitlog.namespace.metadata import namespace_not_found
from commitlog.namespace.model.keys import ROOT, TOP, Keys, shards_of
from commitlog.namespace.model.records import Entry, Guard, Tombstone
from commitlog.tables.api import InFlight, Key, Table

__all__ = ["PAGE", "Tree", "Walk"]

T = TypeVar("T")

#: Most items that one request for a listing asks for.
PAGE = 1000

#: Most directories that a tree remembers; then it forgets them all.
_REMEMBERED = 10_000

#: Most requests under way for names of several paths.
_TOGETHER = 32


@frozen
class Walk:
    """The result of a path lookup: the entries that were found, and the names that were not.

    Attributes:
        found: the entries on the path, the root first.
        missing: the names after those; the first of them was not found. If the last of `found` is a
            file, they cannot exist.
    """

    found: tuple[Entry, ...]
    missing: tuple[str, ...]

    @property
    def last(self) -> Entry:
        """The last entry that was found."""
        return self.found[-1]


@frozen(kw_only=True)
class _Expected:
    """A name that is read ahead.

    Attributes:
        above: its directory, as it was read or is remembered.
        known: the directory that is remembered under this name, or None.
        key: the key that is read.
    """

    above: Entry
    known: Entry | None
    key: Key


@define
class Tree:
    """Reads one namespace. Thread-safe: cached values are only ever replaced, and may be outdated.

    Args:
        table: holds the items.
        keys: of the namespace.
    """

    table: Table
    keys: Keys
    _root: Entry | None = field(default=None, init=False)
    #: Directories by the id of their parent and their name.
    _directories: dict[tuple[str, str], Entry] = field(factory=dict, init=False)

    def root(self) -> Entry:
        """Read the entry of the root. Raises `NotFound` if the namespace does not exist."""
        item = self.table.get(self.keys.entry(TOP, 0, ROOT))
        if item is None:
            raise namespace_not_found(self.keys.namespace, self.table.url)
        self._root = Entry.from_item(item)
        return self._root

    def cached_root(self) -> Entry:
        """Return the entry of the root as it was last read."""
        return self._root or self.root()

    def forget(self) -> None:
        """Discard the cached root; the next use reads it again."""
        self._root = None

    def walk(self, names: tuple[str, ...]) -> Walk:
        """Look up the path `names`."""
        return self.walk_all([names])[names]

    def walk_all(
        self,
        paths: Collection[tuple[str, ...]],
        *,
        executor: Executor = SERIAL,
    ) -> dict[tuple[str, ...], Walk]:
        """Look up several paths, level by level; return the walk of each by its names.

        A name that several paths share is read once. All names of one level are read at the same time:
        with one call of `executor.map`, or, without an executor, up to 32 requests at a time. Then all
        paths take as long as the deepest one. Without an executor, the names below known directories
        are read together with these.
        """
        root = self.cached_root() if all(paths) else self.root()
        found: dict[tuple[str, ...], Entry] = {(): root}
        absent: set[tuple[str, ...]] = set()
        if len(paths) == 1 or executor is SERIAL:
            absent = self._look_ahead(paths, found)
        for length in range(1, 1 + max(map(len, paths), default=0)):
            wanted = dict.fromkeys([names[:length] for names in paths if len(names) >= length])
            level = [
                names
                for names in wanted
                if names not in found and names not in absent and _is_directory(found.get(names[:-1]))
            ]
            read = self._find_all(level, found, executor)
            if length == 1 and len(read) < len(level):
                # The root may have grown since it was read.
                found[()] = self.root()
                if found[()].shards != root.shards:
                    missing = [names for names in level if names not in read]
                    read |= self._find_all(missing, found, executor)
            found |= read
            for names, entry in read.items():
                self._remember(found[names[:-1]], entry)
        return {names: _walk(names, found) for names in paths}

    def _look_ahead(
        self, paths: Collection[tuple[str, ...]], found: dict[tuple[str, ...], Entry]
    ) -> set[tuple[str, ...]]:
        """Read at once the names on some paths, as far as their directories are known.

        Adds the entries in unchanged directories to `found`, which has the root. Returns the paths of
        names that such directories do not have.
        """
        ahead: dict[tuple[str, ...], _Expected] = {}
        for names in paths:
            self._expect(names, found[()], ahead)
        absent: set[tuple[str, ...]] = set()
        if not any(each.known for each in ahead.values()):
            return absent  # nothing is gained
        answers = self._read_together(
            [partial(self.table.begin_get, each.key) for each in ahead.values()],
            most=max(_TOGETHER, *map(len, paths)),
        )
        for (names, expected), answer in zip(ahead.items(), answers, strict=True):
            above, known = expected.above, expected.known
            if isinstance(answer, CommitError) or found.get(names[:-1]) != above:
                continue  # the request is repeated; or the directory has changed
            if isinstance(answer, Exception):
                raise answer
            if answer is not None:
                found[names] = entry = Entry.from_item(answer)
                if entry != known:
                    self._remember(above, entry)
            elif known is None:  # a known directory may have moved to another shard
                absent.add(names)
        return absent

    def _expect(
        self, names: tuple[str, ...], root: Entry, ahead: dict[tuple[str, ...], _Expected]
    ) -> None:
        """Add to `ahead` the names on a path whose keys follow from known directories."""
        above = root
        for length in range(1, 1 + len(names)):
            at = names[:length]
            if at not in ahead:
                if not above.is_directory or above.binding is not None:
                    return
                known = self._directories.get((above.id, at[-1]))
                shards = shards_of(at[-1], above.shards.now, above.shards.first)
                if known is None and (above is root or len(shards) > 1):
                    return  # it may take more reads: the root may have grown since it was read
                key = self.keys.entry(above.id, shards[0], at[-1]) if known is None else known.key
                ahead[at] = _Expected(above=above, known=known, key=key)
            below = ahead[at].known
            if below is None:
                return
            above = below

    def _read_together(
        self, requests: Sequence[Callable[[], InFlight[T]]], *, most: int
    ) -> Iterator[T | Exception]:
        """Yield the answers to requests that can be repeated, or their errors, with `most` under way."""
        for start in range(0, len(requests), most):
            sent = [send() for send in requests[start : start + most]]
            yield from [_answer(pending) for pending in sent]  # none is left under way

    def _remember(self, directory: Entry, entry: Entry) -> None:
        if not entry.is_directory or not entry.is_stored or directory.binding is not None:
            return
        if len(self._directories) >= _REMEMBERED:
            self._directories.clear()
        self._directories[directory.id, entry.name] = entry

    def _find_all(
        self,
        level: Sequence[tuple[str, ...]],
        above: dict[tuple[str, ...], Entry],
        executor: Executor,
    ) -> dict[tuple[str, ...], Entry]:
        """Return the entries that exist at paths of one level; `above` has their directories."""
        if len(level) == 1:  # of one path: most calls
            entry = self.find(above[level[0][:-1]], level[0][-1])
            return {} if entry is None else {level[0]: entry}

        if executor is SERIAL:
            entries: Iterable[Entry | None] = self._find_together(level, above)
            return {
                names: entry for names, entry in zip(level, entries, strict=True) if entry is not None
            }

        def find(together: list[tuple[str, ...]]) -> list[Entry | None]:
            return [self.find(above[names[:-1]], names[-1]) for names in together]

        groups: dict[tuple[str, ...], list[tuple[str, ...]]] = defaultdict(list)
        for names in level:
            groups[names[:-1] if self.is_changed_by_find(above[names[:-1]]) else names].append(names)
        entries = chain.from_iterable(executor.map(find, groups.values()))
        found = zip(chain.from_iterable(groups.values()), entries, strict=True)
        return {names: entry for names, entry in found if entry is not None}

    def _find_together(
        self, level: Sequence[tuple[str, ...]], above: dict[tuple[str, ...], Entry]
    ) -> Iterator[Entry | None]:
        """Yield the entry at each path of one level, or None, with several requests under way."""
        requests = [partial(self.begin_find, above[names[:-1]], names[-1]) for names in level]
        for answer in self._read_together(requests, most=_TOGETHER):
            if isinstance(answer, Exception):
                raise answer
            yield answer

    def is_changed_by_find(self, directory: Entry) -> bool:
        """Return whether `find` may change the directory. If so, its names are looked up in turn."""
        return False

    def find(self, directory: Entry, name: str) -> Entry | None:
        """Return the entry of `directory` under `name`, or None."""
        return self.begin_find(directory, name)()

    def begin_find(self, directory: Entry, name: str) -> InFlight[Entry | None]:
        """Begin a `find`: send its first request. The pending call returns the result."""
        first, *others = shards_of(name, directory.shards.now, directory.shards.first)
        sent = self.table.begin_get(self.keys.entry(directory.id, first, name))

        def finish() -> Entry | None:
            item = sent()
            for shard in others if item is None else ():
                item = self.table.get(self.keys.entry(directory.id, shard, name))
                if item is not None:
                    break
            return None if item is None else Entry.from_item(item)

        return finish

    def reread(self, entry: Entry) -> Entry | None:
        """Read an entry again; None if it was renamed or deleted."""
        item = self.table.get(entry.key)
        found = None if item is None else Entry.from_item(item)
        return found if found is not None and found.id == entry.id else None

    def entries(self, directory: Entry, *, after: str = "", page: int = PAGE) -> Iterator[Entry]:
        """Yield the entries of `directory` whose names follow `after`, sorted by name, each name once.

        The first requests ask for `page` entries, over all shards; later requests ask for more.
        """
        shards = directory.shards.now
        size = -(-page // shards)
        # A name that is deleted and made again during the listing may show up in two shards. The one in
        # the shard for new entries counts, as in `find`: no other shard has so high a number.
        each = (self._shard(directory.id, shard, after, size) for shard in reversed(range(shards)))
        by_name = attrgetter("name")
        return (next(same) for _, same in groupby(heapq.merge(*each, key=by_name), key=by_name))

    def guards(self, directory: Entry) -> tuple[Guard, ...] | None:
        """Return the guards of `directory`; None if some are missing, since it is being removed."""
        guards = []
        for shard in range(directory.shards.now):
            item = self.table.get(self.keys.guard(directory.id, shard))
            if item is None:
                return None
            guards.append(Guard.from_item(item))
        return tuple(guards)

    def tombstone(self, directory: Entry, name: str) -> Tombstone | None:
        """Return the tombstone for `name` in a bound directory, or None; a prefix ends in a slash."""
        item = self.table.get(self.keys.tombstone(directory.id, name))
        return None if item is None else Tombstone.from_item(item)

    def tombstones(self, directory: Entry) -> Iterator[Tombstone]:
        """Yield all tombstones of a directory, sorted by name."""
        return map(Tombstone.from_item, self.table.query(self.keys.tombstones(directory.id)))

    def _shard(self, directory: str, shard: int, after: str, size: int) -> Iterator[Entry]:
        place = self.keys.shard(directory, shard)
        token: str | None = None
        while True:
            page = self.table.query_page(place, start_after=after, limit=size, token=token)
            yield from map(Entry.from_item, page.items)
            token = page.next_token
            if token is None:
                return
            size = max(size, min(2 * size, PAGE))


def _answer(pending: InFlight[T]) -> T | Exception:
    """Return the answer to a request that can be repeated, or its error."""
    try:
        return pending()
    except Exception as error:
        return error


def _is_directory(entry: Entry | None) -> bool:
    return entry is not None and entry.is_directory


def _walk(names: tuple[str, ...], found: dict[tuple[str, ...], Entry]) -> Walk:
    entries: list[Entry] = []
    for at in range(1 + len(names)):
        entry = found.get(names[:at])
        if entry is None:
            return Walk(tuple(entries), names[at - 1 :])
        entries.append(entry)
    return Walk(tuple(entries), ())
