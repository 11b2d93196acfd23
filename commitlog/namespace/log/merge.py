"""Merge of a log's states into one tree, if two tables have written the log or entries are missing.

The states of a complete log of one table are a tree; `Outline` checks that with little memory. If two
tables have written the log, both started from the same state. They may have put entries at the same
place, moved directories into each other, or one may have removed a directory in which the other put
files. If entries were lost, directories may be missing.

Nothing is dropped: an entry that lost its place moves into ``lost+found``, under its id, and so does
content that one table has overwritten. The later change keeps the place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator

from attrs import define, evolve, field, frozen

from commitlog.namespace.log.entries import State
from commitlog.namespace.model.codec import key_of
from commitlog.namespace.model.data import Data
from commitlog.namespace.model.keys import (
    LOST_AND_FOUND,
    ROOT,
    TOP,
    TRASH,
    TRASH_SHARDS,
    Keys,
    number_of,
    places_of,
    read_place,
)
from commitlog.namespace.model.records import Entry, Garbage, Shards, Tombstone
from commitlog.tables.api import Key

__all__ = ["Merged", "Outline"]


@frozen
class Merged:
    """The corrections that turn states into a tree.

    Attributes:
        states: new states, and replacements of others.
        dropped: states to leave out, by `State.of`.
        found: ids of the entries that moved into lost+found.
    """

    states: dict[str, State] = field(factory=dict)
    dropped: frozenset[str] = frozenset()
    found: tuple[str, ...] = ()

    def apply(self, states: Iterable[State]) -> Iterator[State]:
        """Yield the corrected states."""
        for state in states:
            if state.of not in self.states and state.of not in self.dropped:
                yield state
        yield from self.states.values()


@define
class Outline:
    """A compact summary of a log's states: numbers for files, and directories by id.

    Args:
        keys: keys of the namespace.
    """

    keys: Keys
    #: Numbers of the versions made since the checkpoint, and of those made twice.
    _made: set[int] = field(factory=set, init=False)
    _forked: set[int] = field(factory=set, init=False)
    #: Numbers of the objects of files, of garbage, and of objects listed as garbage twice.
    _named: set[int] = field(factory=set, init=False)
    _garbage: set[int] = field(factory=set, init=False)
    _listed_twice: set[int] = field(factory=set, init=False)
    #: Numbers of places, and of those that two entries have.
    _places: set[int] = field(factory=set, init=False)
    _twice: set[int] = field(factory=set, init=False)
    #: Parent, name and shards of each directory; and its highest shard that has an entry.
    _directories: dict[str, tuple[str, str, Shards]] = field(factory=dict, init=False)
    _used: dict[str, int] = field(factory=dict, init=False)
    _latest: float = field(default=0.0, init=False)

    def wrote(self, states: Iterable[State]) -> None:
        """Add the states of committed changes: only two tables make the same version twice."""
        for state in states:
            if state.item is not None and state.of.startswith("e/"):
                number = _version_number(state)
                (self._forked if number in self._made else self._made).add(number)

    def add(self, state: State) -> None:
        """Add the newest state of an item. Raises `CorruptRecord`, `FormatTooNew`."""
        self._latest = max(self._latest, state.began)
        assert state.item is not None
        if state.of.startswith("x/"):
            garbage = Garbage.from_item(state.item)
            if garbage.data.own:
                number = number_of(garbage.data.path)
                (self._listed_twice if number in self._garbage else self._garbage).add(number)
        elif state.of.startswith("t/"):
            Tombstone.from_item(state.item)
        else:
            entry = Entry.from_item(state.item)
            place = read_place(entry.key.hash)
            number = _place_number(entry)
            (self._twice if number in self._places else self._places).add(number)
            self._used[place.of] = max(place.shard, self._used.get(place.of, 0))
            if entry.is_directory:
                self._directories[entry.id] = place.of, entry.name, entry.shards
            elif entry.data is not None and entry.data.own:
                self._named.add(number_of(entry.data.path))

    def merge(
        self,
        states: Callable[[], Iterable[State]],
        history: Callable[[], Iterable[State]],
        is_there: Callable[[Data], bool],
    ) -> Merged:
        """Return the corrections that make the states one tree; none if they are one already.

        Args:
            states: yields the states that were passed to `add` again.
            history: yields the states that were passed to `wrote` again.
            is_there: tells whether the store has the content of a file.
        """
        unknown = {id for id in (ROOT, TRASH, *self._used) if not self._is_known(id)}
        loops = self._loops()
        narrow = {id for id, highest in self._used.items() if self._is_narrow(id, highest)}
        in_use = self._named & self._garbage
        doubtful = (self._twice, unknown, loops, narrow, in_use, self._listed_twice, self._forked)
        if not any(doubtful):
            return Merged()
        made = _Merging(self.keys, self._lost_and_found(), self._latest)
        dropped: set[str] = set()
        for state in states():
            assert state.item is not None
            if state.of.startswith("x/"):
                data = Garbage.from_item(state.item).data
                number = number_of(data.path)
                if data.own and number in in_use:
                    dropped.add(state.of)
                elif data.own and number in self._listed_twice:
                    in_use.add(number)  # leave out the other of two records of one object
            elif state.of.startswith("t/"):
                if read_place(key_of(state.item).hash).of in unknown:
                    dropped.add(state.of)
            else:
                entry = Entry.from_item(state.item)
                number = _place_number(entry)
                if number in self._twice:
                    made.keep_later(number, state.of, state.began)
                if number in self._twice or entry.id in loops or entry.id in narrow:
                    made.entries[state.of] = entry
        for id in sorted(narrow):
            made.widen(f"e/{id}", self._used[id])
        for id in sorted(unknown):
            made.make_again(id, self._used.get(id, 0))
        for id in sorted(loops):
            made.lose(f"e/{id}")
        for entry in self._written_over(history):
            assert entry.data is not None
            if is_there(entry.data):
                made.content(entry)
        return made.merged(frozenset(dropped))

    def _written_over(self, history: Callable[[], Iterable[State]]) -> Iterator[Entry]:
        """Yield files of one table that the other has overwritten, and whose content is unreferenced."""
        found: dict[int, Entry] = {}
        for state in history() if self._forked else ():
            if state.item is not None and state.of.startswith("x/"):
                self._garbage.add(number_of(Garbage.from_item(state.item).data.path))
            elif state.item is not None and state.of.startswith("e/"):
                data = Entry.from_item(state.item).data
                if data is not None and data.own and _version_number(state) in self._forked:
                    found[number_of(data.path)] = Entry.from_item(state.item)
        yield from (each for at, each in found.items() if at not in self._named | self._garbage)

    def _is_known(self, id: str) -> bool:
        return id in self._directories or id == TOP

    def _is_narrow(self, id: str, highest: int) -> bool:
        return id in self._directories and highest >= self._directories[id][2].now

    def _loops(self) -> set[str]:
        """Return one directory of each cycle."""
        done: set[str] = set()
        found: set[str] = set()
        for start in self._directories:
            way: list[str] = []
            id = start
            while id in self._directories and id not in done:
                done.add(id)
                way.append(id)
                id = self._directories[id][0]
            if id in way:
                found.add(min(way[way.index(id) :]))
        return found

    def _lost_and_found(self) -> tuple[str, str, Shards | None]:
        """Return id and name of lost+found, and its shards if it exists."""
        for id, (parent, name, shards) in sorted(self._directories.items()):
            if (parent, name) == (ROOT, LOST_AND_FOUND) and not self._is_twice(ROOT, name):
                return id, name, shards
        name, number = LOST_AND_FOUND, 0
        while _number(ROOT, name) in self._places:
            number += 1
            name = f"{LOST_AND_FOUND}.{number}"
        return _digest(f"{self.keys.namespace}/{name}"), name, None

    def _is_twice(self, parent: str, name: str) -> bool:
        return _number(parent, name) in self._twice


@define
class _Merging:
    """The corrections in progress; see `Merged`."""

    keys: Keys
    #: Id, name and shards of lost+found; the shards are None if it does not exist yet.
    home: tuple[str, str, Shards | None]
    latest: float
    entries: dict[str, Entry] = field(factory=dict)
    _states: dict[str, State] = field(factory=dict)
    _kept: dict[int, tuple[float, str]] = field(factory=dict)
    _lost: set[str] = field(factory=set)

    def keep_later(self, number: int, of: str, began: float) -> None:
        """Keep the later of two entries at one place; move the other into lost+found."""
        kept = self._kept.setdefault(number, (began, of))
        if kept[1] != of:
            later, earlier = max(kept, (began, of)), min(kept, (began, of))
            self._kept[number] = later
            self._lost.discard(later[1])
            self._lost.add(earlier[1])

    def lose(self, of: str) -> None:
        """Move an entry into lost+found."""
        self._lost.add(of)

    def widen(self, of: str, highest: int) -> None:
        """Give a directory enough shards for its entries."""
        entry = self.entries[of]
        now = 1 << highest.bit_length()
        self.entries[of] = evolve(entry, shards=evolve(entry.shards, now=now), version=entry.version + 1)
        self._put(self.entries[of])

    def make_again(self, id: str, highest: int) -> None:
        """Create a directory of which only the id is known."""
        top = id in (ROOT, TRASH)
        shards = Shards(now=max(1, 1 << highest.bit_length()) if highest else 1, first=1)
        if id == TRASH:
            shards = Shards(now=TRASH_SHARDS, first=TRASH_SHARDS)
        when = int(self.latest * 1000)
        entry = Entry(
            key=self.keys.entry(TOP, 0, id),
            id=id,
            version=when,  # higher than any earlier version
            change_id=_digest(id),
            created=when,
            modified=when,
            updated=when,
            shards=shards,
        )
        if top:
            self._put(entry)
        else:
            self.entries[f"e/{id}"] = entry
            self.lose(f"e/{id}")

    def content(self, entry: Entry) -> None:
        """Create a file with content of one table that the other table has overwritten."""
        assert entry.data is not None
        id = _digest(entry.data.path)
        self.entries[f"e/{id}"] = evolve(entry, id=id, version=0)
        self.lose(f"e/{id}")

    def merged(self, dropped: frozenset[str]) -> Merged:
        """Return all corrections."""
        for of in sorted(self._lost):
            entry = self.entries[of]
            self._put(evolve(entry, key=self._place(entry.id), version=entry.version + 1))
        if self._lost:
            self._make_home()
        found = tuple(of.removeprefix("e/") for of in sorted(self._lost))
        return Merged(states=self._states, dropped=dropped, found=found)

    def _put(self, entry: Entry) -> None:
        of = f"e/{entry.id}"
        self._states[of] = State(of=of, version=entry.version, item=entry.to_item(), began=self.latest)

    def _place(self, name: str) -> Key:
        id, _, shards = self.home
        shards = Shards() if shards is None else shards
        return self.keys.entry(id, places_of(name, shards.now, shards.first)[0], name)

    def _make_home(self) -> None:
        id, name, shards = self.home
        if shards is None:
            when = int(self.latest * 1000)
            self._put(
                Entry(
                    key=self.keys.entry(ROOT, 0, name),
                    id=id,
                    version=1,
                    change_id=_digest(id),
                    created=when,
                    modified=when,
                    updated=when,
                    shards=Shards(),
                )
            )


def _version_number(state: State) -> int:
    return number_of(f"{state.of}\n{state.version}")


def _place_number(entry: Entry) -> int:
    return _number(read_place(entry.key.hash).of, entry.name)


def _number(directory: str, name: str) -> int:
    return number_of(f"{directory}\n{name}")


def _digest(text: str) -> str:
    """Return an id that is the same for each merge of the same text."""
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
