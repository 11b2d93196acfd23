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
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import TypeAlias

from attrs import define, evolve, field, frozen

from commitlog.namespace.log.entries import ItemState
from commitlog.namespace.model.codec import key_of
from commitlog.namespace.model.data import Data
from commitlog.namespace.model.keys import (
    LOST_AND_FOUND,
    LOST_AND_FOUND_SHARDS,
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

__all__ = [
    "Corrections",
    "LostAndFound",
    "MergeConflicts",
    "Outline",
    "cycles_of",
    "find_lost_and_found",
    "hash_of_slot",
    "is_narrow",
    "overwritten_file",
    "version_hash",
]


@frozen
class Corrections:
    """The corrections that turn states into a tree.

    Attributes:
        states: new states, and replacements of others.
        dropped: states to leave out, by `ItemState.item_id`.
        found: ids of the entries that moved into lost+found.
    """

    states: dict[str, ItemState] = field(factory=dict)
    dropped: frozenset[str] = frozenset()
    found: tuple[str, ...] = ()

    def apply(self, states: Iterable[ItemState]) -> Iterator[ItemState]:
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

    def add_history(self, states: Iterable[ItemState]) -> None:
        """Add the states of committed changes: only two tables write the same version."""
        for state in states:
            if state.item is not None and state.item_id.startswith("e/"):
                number = version_hash(state)
                (self._written_twice if number in self._written else self._written).add(number)

    def add(self, state: ItemState) -> None:
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
        states: Callable[[], Iterable[ItemState]],
        history: Callable[[], Iterable[ItemState]],
        exists: Callable[[Data], bool],
    ) -> Corrections:
        """Return the corrections that make the states one tree; none if they are one already.

        Args:
            states: yields the states that were passed to `add` again.
            history: yields the states that were passed to `add_history` again.
            exists: returns whether the store has the content of a file.
        """
        conflicts = self._conflicts()
        if not conflicts:
            return Corrections()
        return conflicts.corrections(self.keys, states(), self._overwritten_files(history), exists)

    def _conflicts(self) -> MergeConflicts:
        unknown = {id for id in (ROOT, TRASH, *self._used) if not self._is_known(id)}
        narrow = {
            id
            for id, highest in self._used.items()
            if id in self._directories and is_narrow(self._directories[id][2], highest)
        }
        parents = {id: parent for id, (parent, _, _) in self._directories.items()}
        return MergeConflicts(
            slots=frozenset(self._duplicate_slots),
            unknown={id: self._used.get(id, 0) for id in unknown},
            narrow={id: self._used[id] for id in narrow},
            cycles=frozenset(map(min, cycles_of(parents))),
            in_use=frozenset(self._referenced & self._garbage),
            garbage=frozenset(self._duplicate_garbage),
            written=frozenset(self._written_twice),
            lost_and_found=find_lost_and_found(
                self.keys,
                ((id, parent, name, shards) for id, (parent, name, shards) in self._directories.items()),
                is_taken=lambda name: hash_of_slot(ROOT, name) in self._slots,
                is_taken_twice=lambda name: hash_of_slot(ROOT, name) in self._duplicate_slots,
            ),
            latest=self._latest,
        )

    def _overwritten_files(self, history: Callable[[], Iterable[ItemState]]) -> Iterator[Entry]:
        """Yield files of one table that the other has overwritten, and whose content is unreferenced."""
        found: dict[int, Entry] = {}
        for state in history() if self._written_twice else ():
            if state.item is not None and state.item_id.startswith("x/"):
                self._garbage.add(hash_of(Garbage.from_item(state.item).data.path))
            elif (entry := overwritten_file(state, self._written_twice)) is not None:
                assert entry.data is not None
                found[hash_of(entry.data.path)] = entry
        yield from (each for at, each in found.items() if at not in self._referenced | self._garbage)

    def _is_known(self, id: str) -> bool:
        return id in self._directories or id == TOP


#: Id, name and shards of the directory for entries that lost their place; the shards are None if it does
#: not exist yet.
LostAndFound: TypeAlias = tuple[str, str, Shards | None]

#: The shards of that directory, if a merge creates it.
_NEW = Shards(now=LOST_AND_FOUND_SHARDS, first=LOST_AND_FOUND_SHARDS)


@frozen(kw_only=True)
class MergeConflicts:
    """What keeps the states of a log from being one tree.

    Attributes:
        slots: hashes of the name slots that several entries have (`hash_of_slot`).
        unknown: directories that have entries and no state of their own, or that every namespace has;
            with the highest shard that has an entry.
        narrow: directories with an entry in a shard that they do not have; with the highest such shard.
        cycles: one directory of each cycle.
        in_use: hashes of the paths of objects that are garbage and the content of a file.
        garbage: hashes of the paths of objects that are garbage twice.
        written: hashes of the versions that two tables have written (`version_hash`).
        lost_and_found: the directory for entries that lose their place.
        latest: latest beginning of a change, in epoch seconds.
    """

    slots: frozenset[int]
    unknown: Mapping[str, int] = field(hash=False)
    narrow: Mapping[str, int] = field(hash=False)
    cycles: frozenset[str]
    in_use: frozenset[int]
    garbage: frozenset[int]
    written: frozenset[int]
    lost_and_found: LostAndFound
    latest: float

    def __bool__(self) -> bool:
        return bool(
            self.slots
            or self.unknown
            or self.narrow
            or self.cycles
            or self.in_use
            or self.garbage
            or self.written
        )

    def concern(self, state: ItemState) -> bool:
        """Return whether `corrections` needs the newest state of an item."""
        assert state.item is not None
        if state.item_id.startswith("x/"):
            data = Garbage.from_item(state.item).data
            return data.own and hash_of(data.path) in self.in_use | self.garbage
        if state.item_id.startswith("t/"):
            return parse_hash_key(key_of(state.item).hash).id in self.unknown
        entry = Entry.from_item(state.item)
        return _slot_hash(entry) in self.slots or entry.id in self.cycles or entry.id in self.narrow

    def corrections(
        self,
        keys: Keys,
        states: Iterable[ItemState],
        overwritten: Iterable[Entry],
        exists: Callable[[Data], bool],
    ) -> Corrections:
        """Return the corrections that make the states one tree.

        Args:
            keys: keys of the namespace.
            states: the newest states, or at least those that `concern` accepts; in any order.
            overwritten: files of one table that the other has overwritten, one for each object to which
                nothing else refers.
            exists: returns whether the store has the content of a file.
        """
        corrector = _Corrector(keys, self.lost_and_found, self.latest)
        dropped: set[str] = set()
        garbage: dict[int, str] = {}
        for state in filter(self.concern, states):
            assert state.item is not None
            if state.item_id.startswith("x/"):
                number = hash_of(Garbage.from_item(state.item).data.path)
                if number in self.in_use:
                    dropped.add(state.item_id)
                else:  # leave out the later of two records of one object
                    kept = min(state.item_id, garbage.setdefault(number, state.item_id))
                    dropped |= {state.item_id, garbage[number]} - {kept}
                    garbage[number] = kept
            elif state.item_id.startswith("t/"):
                dropped.add(state.item_id)
            else:
                entry = Entry.from_item(state.item)
                number = _slot_hash(entry)
                if number in self.slots:
                    corrector.keep_later(number, state.item_id, state.began)
                corrector.entries[state.item_id] = entry
        for id in sorted(self.narrow):
            corrector.widen(f"e/{id}", self.narrow[id])
        for id in sorted(self.unknown):
            corrector.recreate_directory(id, self.unknown[id])
        for id in sorted(self.cycles):
            corrector.move_to_lost_and_found(f"e/{id}")
        for entry in overwritten:
            assert entry.data is not None
            if exists(entry.data):
                corrector.add_content(entry)
        return corrector.corrections(frozenset(dropped))


def is_narrow(shards: Shards, highest: int) -> bool:
    """Return whether a directory has too few shards for an entry in the shard `highest`."""
    return highest >= shards.now


def overwritten_file(state: ItemState, written: Container[int]) -> Entry | None:
    """Return the file in a state if two tables have written its version, and it has own content.

    Args:
        state: a state of any change.
        written: hashes of the versions that two tables have written.
    """
    if state.item is None or not state.item_id.startswith("e/"):
        return None
    entry = Entry.from_item(state.item)
    own = entry.data is not None and entry.data.own
    return entry if own and version_hash(state) in written else None


def cycles_of(parents: Mapping[str, str]) -> Iterator[list[str]]:
    """Yield the ids in each cycle of directories, given the parent of each directory.

    >>> list(cycles_of({"a": "b", "b": "a", "c": "a", "d": "root"}))
    [['a', 'b']]
    """
    done: set[str] = set()
    for start in parents:
        path: list[str] = []
        id = start
        while id in parents and id not in done:
            done.add(id)
            path.append(id)
            id = parents[id]
        if id in path:
            yield path[path.index(id) :]


def find_lost_and_found(
    keys: Keys,
    directories: Iterable[tuple[str, str, str, Shards]],
    *,
    is_taken: Callable[[str], bool],
    is_taken_twice: Callable[[str], bool],
) -> LostAndFound:
    """Return the directory for entries that lose their place.

    Args:
        keys: keys of the namespace.
        directories: id, parent, name and shards of the directories; in any order.
        is_taken: whether an entry of the root has a name.
        is_taken_twice: whether several entries of the root have a name.
    """
    existing = (
        (id, name, shards)
        for id, parent, name, shards in directories
        if (parent, name) == (ROOT, LOST_AND_FOUND) and not is_taken_twice(name)
    )
    found = min(existing, key=lambda directory: directory[0], default=None)
    if found is not None:
        return found
    name, number = LOST_AND_FOUND, 0
    while is_taken(name):
        number += 1
        name = f"{LOST_AND_FOUND}.{number}"
    return _digest(f"{keys.namespace}/{name}"), name, None


@define
class _Corrector:
    """The corrections in progress; see `Corrections`."""

    keys: Keys
    lost_and_found: LostAndFound
    latest: float
    entries: dict[str, Entry] = field(factory=dict)
    _states: dict[str, ItemState] = field(factory=dict)
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
        self._states[item_id] = ItemState(
            item_id=item_id, version=entry.version, item=entry.to_item(), began=self.latest
        )

    def _place(self, name: str) -> Key:
        id, _, shards = self.lost_and_found
        shards = _NEW if shards is None else shards
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
                    shards=_NEW,
                )
            )


def version_hash(state: ItemState) -> int:
    """Return a hash of the item and the version of a state."""
    return hash_of(f"{state.item_id}\n{state.version}")


def _slot_hash(entry: Entry) -> int:
    return hash_of_slot(parse_hash_key(entry.key.hash).id, entry.name)


def hash_of_slot(directory: str, name: str) -> int:
    """Return a hash of a name in a directory, in any shard."""
    return hash_of(f"{directory}\n{name}")


def _digest(text: str) -> str:
    """Return an id that is the same for each merge of the same text."""
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
