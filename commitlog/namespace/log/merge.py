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
    hash_of,
    parse_hash_key,
    shards_of,
)
from commitlog.namespace.model.records import Entry, Garbage, Shards, Tombstone
from commitlog.tables.api import Key

__all__ = ["Corrections", "Outline"]


@frozen
class Corrections:
    """The corrections that turn states into a tree.

    Attributes:
        states: new states, and replacements of others.
        dropped: states to leave out, by `State.item_id`.
        found: ids of the entries that moved into lost+found.
    """

    states: dict[str, State] = field(factory=dict)
    dropped: frozenset[str] = frozenset()
    found: tuple[str, ...] = ()

    def apply(self, states: Iterable[State]) -> Iterator[State]:
        """Yield the corrected states."""
        for state in states:
            if state.item_id not in self.states and state.item_id not in self.dropped:
                yield state
        yield from self.states.values()


@define
class Outline:
    """A compact summary of a log's states: hashes for files, and directories by id.

    Args:
        keys: keys of the namespace.
    """

    keys: Keys
    #: Hashes of the versions written since the checkpoint, and of those written twice.
    _written: set[int] = field(factory=set, init=False)
    _written_twice: set[int] = field(factory=set, init=False)
    #: Hashes of the objects of files, of garbage, and of objects listed as garbage twice.
    _referenced: set[int] = field(factory=set, init=False)
    _garbage: set[int] = field(factory=set, init=False)
    _duplicate_garbage: set[int] = field(factory=set, init=False)
    #: Hashes of name slots, and of those that two entries have.
    _slots: set[int] = field(factory=set, init=False)
    _duplicate_slots: set[int] = field(factory=set, init=False)
    #: Parent, name and shards of each directory; and its highest shard that has an entry.
    _directories: dict[str, tuple[str, str, Shards]] = field(factory=dict, init=False)
    _used: dict[str, int] = field(factory=dict, init=False)
    _latest: float = field(default=0.0, init=False)

    def add_history(self, states: Iterable[State]) -> None:
        """Add the states of committed changes: only two tables write the same version."""
        for state in states:
            if state.item is not None and state.item_id.startswith("e/"):
                number = _version_hash(state)
                (self._written_twice if number in self._written else self._written).add(number)

    def add(self, state: State) -> None:
        """Add the newest state of an item. Raises `CorruptRecord`, `FormatTooNew`."""
        self._latest = max(self._latest, state.began)
        assert state.item is not None
        if state.item_id.startswith("x/"):
            garbage = Garbage.from_item(state.item)
            if garbage.data.own:
                number = hash_of(garbage.data.path)
                (self._duplicate_garbage if number in self._garbage else self._garbage).add(number)
        elif state.item_id.startswith("t/"):
            Tombstone.from_item(state.item)
        else:
            entry = Entry.from_item(state.item)
            place = parse_hash_key(entry.key.hash)
            number = _slot_hash(entry)
            (self._duplicate_slots if number in self._slots else self._slots).add(number)
            self._used[place.id] = max(place.shard, self._used.get(place.id, 0))
            if entry.is_directory:
                self._directories[entry.id] = place.id, entry.name, entry.shards
            elif entry.data is not None and entry.data.own:
                self._referenced.add(hash_of(entry.data.path))

    def merge(
        self,
        states: Callable[[], Iterable[State]],
        history: Callable[[], Iterable[State]],
        exists: Callable[[Data], bool],
    ) -> Corrections:
        """Return the corrections that make the states one tree; none if they are one already.

        Args:
            states: yields the states that were passed to `add` again.
            history: yields the states that were passed to `add_history` again.
            exists: returns whether the store has the content of a file.
        """
        unknown = {id for id in (ROOT, TRASH, *self._used) if not self._is_known(id)}
        cycles = self._cycles()
        narrow = {id for id, highest in self._used.items() if self._is_narrow(id, highest)}
        in_use = self._referenced & self._garbage
        doubtful = (
            self._duplicate_slots,
            unknown,
            cycles,
            narrow,
            in_use,
            self._duplicate_garbage,
            self._written_twice,
        )
        if not any(doubtful):
            return Corrections()
        corrector = _Corrector(self.keys, self._lost_and_found(), self._latest)
        dropped: set[str] = set()
        for state in states():
            assert state.item is not None
            if state.item_id.startswith("x/"):
                data = Garbage.from_item(state.item).data
                number = hash_of(data.path)
                if data.own and number in in_use:
                    dropped.add(state.item_id)
                elif data.own and number in self._duplicate_garbage:
                    in_use.add(number)  # leave out the other of two records of one object
            elif state.item_id.startswith("t/"):
                if parse_hash_key(key_of(state.item).hash).id in unknown:
                    dropped.add(state.item_id)
            else:
                entry = Entry.from_item(state.item)
                number = _slot_hash(entry)
                if number in self._duplicate_slots:
                    corrector.keep_later(number, state.item_id, state.began)
                if number in self._duplicate_slots or entry.id in cycles or entry.id in narrow:
                    corrector.entries[state.item_id] = entry
        for id in sorted(narrow):
            corrector.widen(f"e/{id}", self._used[id])
        for id in sorted(unknown):
            corrector.recreate_directory(id, self._used.get(id, 0))
        for id in sorted(cycles):
            corrector.move_to_lost_and_found(f"e/{id}")
        for entry in self._overwritten_files(history):
            assert entry.data is not None
            if exists(entry.data):
                corrector.add_content(entry)
        return corrector.corrections(frozenset(dropped))

    def _overwritten_files(self, history: Callable[[], Iterable[State]]) -> Iterator[Entry]:
        """Yield files of one table that the other has overwritten, and whose content is unreferenced."""
        found: dict[int, Entry] = {}
        for state in history() if self._written_twice else ():
            if state.item is not None and state.item_id.startswith("x/"):
                self._garbage.add(hash_of(Garbage.from_item(state.item).data.path))
            elif state.item is not None and state.item_id.startswith("e/"):
                data = Entry.from_item(state.item).data
                if data is not None and data.own and _version_hash(state) in self._written_twice:
                    found[hash_of(data.path)] = Entry.from_item(state.item)
        yield from (each for at, each in found.items() if at not in self._referenced | self._garbage)

    def _is_known(self, id: str) -> bool:
        return id in self._directories or id == TOP

    def _is_narrow(self, id: str, highest: int) -> bool:
        return id in self._directories and highest >= self._directories[id][2].now

    def _cycles(self) -> set[str]:
        """Return one directory of each cycle."""
        done: set[str] = set()
        found: set[str] = set()
        for start in self._directories:
            path: list[str] = []
            id = start
            while id in self._directories and id not in done:
                done.add(id)
                path.append(id)
                id = self._directories[id][0]
            if id in path:
                found.add(min(path[path.index(id) :]))
        return found

    def _lost_and_found(self) -> tuple[str, str, Shards | None]:
        """Return id and name of lost+found, and its shards if it exists."""
        for id, (parent, name, shards) in sorted(self._directories.items()):
            if (parent, name) == (ROOT, LOST_AND_FOUND) and not self._is_duplicate_slot(ROOT, name):
                return id, name, shards
        name, number = LOST_AND_FOUND, 0
        while _hash_of_slot(ROOT, name) in self._slots:
            number += 1
            name = f"{LOST_AND_FOUND}.{number}"
        return _digest(f"{self.keys.namespace}/{name}"), name, None

    def _is_duplicate_slot(self, parent: str, name: str) -> bool:
        return _hash_of_slot(parent, name) in self._duplicate_slots


@define
class _Corrector:
    """The corrections in progress; see `Corrections`."""

    keys: Keys
    #: Id, name and shards of lost+found; the shards are None if it does not exist yet.
    lost_and_found: tuple[str, str, Shards | None]
    latest: float
    entries: dict[str, Entry] = field(factory=dict)
    _states: dict[str, State] = field(factory=dict)
    _kept: dict[int, tuple[float, str]] = field(factory=dict)
    _lost: set[str] = field(factory=set)

    def keep_later(self, number: int, item_id: str, began: float) -> None:
        """Keep the later of two entries at one place; move the other into lost+found."""
        kept = self._kept.setdefault(number, (began, item_id))
        if kept[1] != item_id:
            later, earlier = max(kept, (began, item_id)), min(kept, (began, item_id))
            self._kept[number] = later
            self._lost.discard(later[1])
            self._lost.add(earlier[1])

    def move_to_lost_and_found(self, item_id: str) -> None:
        """Move an entry into lost+found."""
        self._lost.add(item_id)

    def widen(self, item_id: str, highest: int) -> None:
        """Give a directory enough shards for its entries."""
        entry = self.entries[item_id]
        now = 1 << highest.bit_length()
        self.entries[item_id] = evolve(
            entry, shards=evolve(entry.shards, now=now), version=entry.version + 1
        )
        self._put(self.entries[item_id])

    def recreate_directory(self, id: str, highest: int) -> None:
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
            self.move_to_lost_and_found(f"e/{id}")

    def add_content(self, entry: Entry) -> None:
        """Create a file with content of one table that the other table has overwritten."""
        assert entry.data is not None
        id = _digest(entry.data.path)
        self.entries[f"e/{id}"] = evolve(entry, id=id, version=0)
        self.move_to_lost_and_found(f"e/{id}")

    def corrections(self, dropped: frozenset[str]) -> Corrections:
        """Return all corrections."""
        for item_id in sorted(self._lost):
            entry = self.entries[item_id]
            self._put(evolve(entry, key=self._place(entry.id), version=entry.version + 1))
        if self._lost:
            self._create_lost_and_found()
        found = tuple(item_id.removeprefix("e/") for item_id in sorted(self._lost))
        return Corrections(states=self._states, dropped=dropped, found=found)

    def _put(self, entry: Entry) -> None:
        item_id = f"e/{entry.id}"
        self._states[item_id] = State(
            item_id=item_id, version=entry.version, item=entry.to_item(), began=self.latest
        )

    def _place(self, name: str) -> Key:
        id, _, shards = self.lost_and_found
        shards = Shards() if shards is None else shards
        return self.keys.entry(id, shards_of(name, shards.now, shards.first)[0], name)

    def _create_lost_and_found(self) -> None:
        id, name, shards = self.lost_and_found
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


def _version_hash(state: State) -> int:
    return hash_of(f"{state.item_id}\n{state.version}")


def _slot_hash(entry: Entry) -> int:
    return _hash_of_slot(parse_hash_key(entry.key.hash).id, entry.name)


def _hash_of_slot(directory: str, name: str) -> int:
    return hash_of(f"{directory}\n{name}")


def _digest(text: str) -> str:
    """Return an id that is the same for each merge of the same text."""
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
