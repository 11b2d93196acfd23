"""Making one tree of what a log says, where two tables have written it, or where entries are missing.

A log that one table has written, and that is whole, is a tree: `Outline` sees that in few words. If two
tables have written it, each has gone on from the same state: both may have put something at one place,
moved directories into each other, or removed a directory into which the other has put files. If entries
were lost, directories may be missing. Nothing of that is dropped: what has lost its place comes into
``lost+found``, under its id, and so does content that one table has written over. The later change keeps
the place. Imports its siblings and the `Table` port.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator

from attrs import define, evolve, field, frozen

from commitlog.namespace.data import Data
from commitlog.namespace.fixing import LOST_AND_FOUND
from commitlog.namespace.items import key_of
from commitlog.namespace.keys import (
    ROOT,
    TOP,
    TRASH,
    TRASH_SHARDS,
    Keys,
    number_of,
    places_of,
    read_place,
)
from commitlog.namespace.leftovers import Garbage, Tombstone
from commitlog.namespace.logged import State
from commitlog.namespace.records import Entry, Shards
from commitlog.tables.api import Key

__all__ = ["Merged", "Outline"]


@frozen
class Merged:
    """What is done about states that are no tree.

    Attributes:
        states: in place of others of the same, or new.
        dropped: what is left out, as `State.of` has it.
        found: ids of what came into lost+found.
    """

    states: dict[str, State] = field(factory=dict)
    dropped: frozenset[str] = frozenset()
    found: tuple[str, ...] = ()

    def apply(self, states: Iterable[State]) -> Iterator[State]:
        """Yield states as they are to be."""
        for state in states:
            if state.of not in self.states and state.of not in self.dropped:
                yield state
        yield from self.states.values()


@define
class Outline:
    """What the states of a log are together: numbers for files, and directories by their ids.

    Args:
        keys: of the namespace.
    """

    keys: Keys
    #: Numbers of the versions that were made since the base, and of those that were made twice.
    _made: set[int] = field(factory=set, init=False)
    _forked: set[int] = field(factory=set, init=False)
    #: Numbers of the objects that files have, that garbage has, and that two pieces of garbage have.
    _named: set[int] = field(factory=set, init=False)
    _garbage: set[int] = field(factory=set, init=False)
    _listed_twice: set[int] = field(factory=set, init=False)
    #: Numbers of places, and of those that two things have.
    _places: set[int] = field(factory=set, init=False)
    _twice: set[int] = field(factory=set, init=False)
    #: Of each directory: where it is, and its shards; and the highest shard that has an entry.
    _directories: dict[str, tuple[str, str, Shards]] = field(factory=dict, init=False)
    _used: dict[str, int] = field(factory=dict, init=False)
    _latest: float = field(default=0.0, init=False)

    def wrote(self, states: Iterable[State]) -> None:
        """Take in what committed changes have made: only two tables make one version twice."""
        for state in states:
            if state.item is not None and state.of.startswith("e/"):
                number = _version_number(state)
                (self._forked if number in self._made else self._made).add(number)

    def add(self, state: State) -> None:
        """Take in what is so in the end of one thing. Raises `CorruptRecord`, `FormatTooNew`."""
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
        """Return what is to be done so that all of it is one tree; nothing if it is one already.

        Args:
            states: yields what was taken in by `add`, once more.
            history: the same of `wrote`.
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
                    in_use.add(number)  # of two records of one object the other one goes
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
        """Yield the files of one table whose content nothing names, since the other has written, too."""
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
        """Return one directory of each ring of directories that are in each other."""
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
        """Return id and name of the directory for what has no place, and its shards if it is there."""
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
    """Collects what is done; see `Merged`."""

    keys: Keys
    #: Id, name and shards of lost+found; None: it is not there yet.
    home: tuple[str, str, Shards | None]
    latest: float
    entries: dict[str, Entry] = field(factory=dict)
    _states: dict[str, State] = field(factory=dict)
    _kept: dict[int, tuple[float, str]] = field(factory=dict)
    _lost: set[str] = field(factory=set)

    def keep_later(self, number: int, of: str, began: float) -> None:
        """Of the things at one place, keep the one that came later; lose the others."""
        kept = self._kept.setdefault(number, (began, of))
        if kept[1] != of:
            later, earlier = max(kept, (began, of)), min(kept, (began, of))
            self._kept[number] = later
            self._lost.discard(later[1])
            self._lost.add(earlier[1])

    def lose(self, of: str) -> None:
        """Have something come into lost+found."""
        self._lost.add(of)

    def widen(self, of: str, highest: int) -> None:
        """Give a directory the shards in which it has entries."""
        entry = self.entries[of]
        now = 1 << highest.bit_length()
        self.entries[of] = evolve(entry, shards=evolve(entry.shards, now=now), version=entry.version + 1)
        self._put(self.entries[of])

    def make_again(self, id: str, highest: int) -> None:
        """Make a directory of which nothing is known but that there are things in it."""
        top = id in (ROOT, TRASH)
        shards = Shards(now=max(1, 1 << highest.bit_length()) if highest else 1, first=1)
        if id == TRASH:
            shards = Shards(now=TRASH_SHARDS, first=TRASH_SHARDS)
        when = int(self.latest * 1000)
        entry = Entry(
            key=self.keys.entry(TOP, 0, id),
            id=id,
            version=when,  # more than it can have had
            word=_digest(id),
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
        """Make a file of content that one table has written, and the other one has written over."""
        assert entry.data is not None
        id = _digest(entry.data.path)
        self.entries[f"e/{id}"] = evolve(entry, id=id, version=0)
        self.lose(f"e/{id}")

    def merged(self, dropped: frozenset[str]) -> Merged:
        """Return the whole."""
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
                    word=_digest(id),
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
    """Return a word that is the same whenever the same is merged again."""
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
