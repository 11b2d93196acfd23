"""Reading a namespace: from a path to what is there, and what a directory has.

A path is looked up name by name, one request each. Every answer is consistent by itself; all of them
together are not, as everywhere in POSIX: a directory above may be renamed between two of them. Imports
the ground floor, its siblings and the `Table` port.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import groupby, takewhile
from operator import attrgetter

from attrs import define, field, frozen

from commitlog.namespace.keys import ROOT, TOP, Keys, places_of
from commitlog.namespace.leftovers import Tombstone
from commitlog.namespace.marker import not_there
from commitlog.namespace.records import Entry, Gate
from commitlog.tables.api import Table

__all__ = ["PAGE", "Tree", "Walk"]

#: Most items that one request for a listing asks for.
PAGE = 1000


@frozen
class Walk:
    """How far a path leads.

    Attributes:
        found: what its names lead to, the root first.
        missing: the names that follow, and of which the first was not found. If the last of `found` is a
            file, they cannot be.
    """

    found: tuple[Entry, ...]
    missing: tuple[str, ...]

    @property
    def last(self) -> Entry:
        """The last that was found."""
        return self.found[-1]

    def shared(self, names: tuple[str, ...]) -> tuple[Entry, ...]:
        """Return what was found, as far as another path leads there, too; the root first."""
        alike = takewhile(lambda pair: pair[0].name == pair[1], zip(self.found[1:], names, strict=False))
        return (self.found[0], *(entry for entry, _ in alike))

    def misses(self, names: tuple[str, ...]) -> bool:
        """Tell whether another path leads to the first name that was not found."""
        to_it = (*(entry.name for entry in self.found[1:]), *self.missing[:1])
        return bool(self.missing) and names[: len(to_it)] == to_it


@define
class Tree:
    """What a namespace has. Thread-safe: what it keeps is only ever replaced, and may be outdated.

    Args:
        table: where the items are.
        keys: those of the namespace.
    """

    table: Table
    keys: Keys
    _root: Entry | None = field(default=None, init=False)

    def root(self) -> Entry:
        """Return the entry of the root as it is now. Raises `NotFound` if there is no namespace."""
        item = self.table.get(self.keys.entry(TOP, 0, ROOT))
        if item is None:
            raise not_there(self.keys.namespace, self.table.url)
        self._root = Entry.from_item(item)
        return self._root

    def known_root(self) -> Entry:
        """Return the entry of the root as it was last seen."""
        return self._root or self.root()

    def forget(self) -> None:
        """Read the root anew when it is needed next."""
        self._root = None

    def walk(self, names: tuple[str, ...], *, beside: Walk | None = None) -> Walk:
        """Follow `names` from the root; what they share with another path is not read again."""
        if beside is None:
            found = [self.known_root() if names else self.root()]
        else:
            found = list(beside.shared(names))
            if beside.misses(names):
                return Walk(tuple(found), names[len(found) - 1 :])
        for at in range(len(found) - 1, len(names)):
            name = names[at]
            entry = self.find(found[-1], name) if found[-1].is_directory else None
            if entry is None and at == 0:
                # The root may have grown since it was read.
                before, now = found[0], self.root()
                if before.shards != now.shards:
                    entry = self.find(now, name)
                found = [now]
            if entry is None:
                return Walk(tuple(found), names[at:])
            found.append(entry)
        return Walk(tuple(found), ())

    def find(self, directory: Entry, name: str) -> Entry | None:
        """Return what `directory` has under `name`, or None."""
        for shard in places_of(name, directory.shards.now, directory.shards.first):
            item = self.table.get(self.keys.entry(directory.id, shard, name))
            if item is not None:
                return Entry.from_item(item)
        return None

    def again(self, entry: Entry) -> Entry | None:
        """Return what an entry has become; None if it was renamed, or deleted."""
        item = self.table.get(entry.key)
        found = None if item is None else Entry.from_item(item)
        return found if found is not None and found.id == entry.id else None

    def entries(self, directory: Entry, *, after: str = "", page: int = PAGE) -> Iterator[Entry]:
        """Yield what `directory` has, by name, from behind the name `after` on; each name once.

        The first requests ask for `page` entries, all shards together; those that follow for more.
        """
        shards = directory.shards.now
        size = -(-page // shards)
        # What is deleted while this goes on, and made again, may be seen in two shards. As in `find`,
        # the one counts to which new entries go: no other has so high a number.
        each = (self._shard(directory.id, shard, after, size) for shard in reversed(range(shards)))
        by_name = attrgetter("name")
        return (next(same) for _, same in groupby(heapq.merge(*each, key=by_name), key=by_name))

    def gates(self, directory: Entry) -> tuple[Gate, ...] | None:
        """Return the gates of `directory`; None if some are missing, so that it is being removed."""
        gates = []
        for shard in range(directory.shards.now):
            item = self.table.get(self.keys.gate(directory.id, shard))
            if item is None:
                return None
            gates.append(Gate.from_item(item))
        return tuple(gates)

    def tombstone(self, directory: Entry, name: str) -> Tombstone | None:
        """Return the tombstone that a bound directory has of `name`, with a slash if of a prefix."""
        item = self.table.get(self.keys.tombstone(directory.id, name))
        return None if item is None else Tombstone.from_item(item)

    def tombstones(self, directory: Entry) -> Iterator[Tombstone]:
        """Yield all tombstones of a directory, by name."""
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
