"""What pending changes say that they have done: a `Claim` of each, and `Claims`, which finds them.

Imports the operation log, its siblings, and the `Table` port.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from attrs import define, field, frozen

from commitlog.namespace.items import key_of
from commitlog.namespace.keys import read_place
from commitlog.namespace.logged import LoggedChange, State, Version
from commitlog.namespace.records import Entry
from commitlog.oplog.fields import MAX_COUNT
from commitlog.tables.api import Key

__all__ = ["Claim", "Claims", "Spot", "added_by", "shards_of", "spot_of"]

#: A directory, and a name in it, in whichever shard.
Spot = tuple[str, str]


@frozen
class Claim:
    """What a change says.

    Attributes:
        made, seen: as of `LoggedChange`.
        added: what it puts: version, where, and in which shard.
        before: what it replaces or removes, and where that was.
        shards: of directories of which it makes a version: its number, and how many shards it has.
        gone: directories that it removes for good.
        left: what it takes from where it was.
        moves: directories that it puts into another one, and into which.
    """

    made: frozenset[Version]
    seen: frozenset[Version]
    added: tuple[tuple[Version, Spot, int], ...]
    before: tuple[tuple[Version, Spot], ...]
    shards: Mapping[str, tuple[int, int]]
    gone: frozenset[str]
    left: frozenset[str]
    moves: Mapping[str, str]

    @classmethod
    def of(cls, change: LoggedChange) -> Claim:
        """Return what a change says."""
        added = tuple(added_by(change))
        before = tuple((version, spot_of(key)[0]) for key, version in change.before)
        stays = {(id, spot) for (id, _), spot, _ in added}
        were = {id: directory for (id, _), (directory, _) in before}
        shards = {
            state.of.removeprefix("e/"): (state.version, shards)
            for state in change.states
            if (shards := shards_of(state))
        }
        return cls(
            made=change.made,
            seen=change.seen,
            added=added,
            before=before,
            shards=shards,
            gone=frozenset(
                state.of.removeprefix("e/")
                for state in change.states
                if state.item is None and state.version == MAX_COUNT
            ),
            left=frozenset(id for (id, _), spot in before if (id, spot) not in stays),
            moves={
                id: directory
                for (id, _), (directory, _), _ in added
                if id in shards and were.get(id, directory) != directory
            },
        )

    @property
    def ids(self) -> set[str]:
        """What it makes, changes or removes."""
        return {id for id, _ in self.made | self.seen}

    @property
    def spots(self) -> set[Spot]:
        """Where it puts, replaces or removes something."""
        return {spot for _, spot, _ in self.added} | {spot for _, spot in self.before}


def _index() -> defaultdict[str, set[str]]:
    return defaultdict(set)


@define
class Claims:
    """The claims of all changes that are pending, by the id of the operation.

    Attributes:
        makes, sees, leaves, moves: how many of them would make a version, replace or remove it, take an
            id from where it is, and move a directory to another one.
        of, around, inside: which of them are about an id, a spot, and what is in a directory.
    """

    _all: dict[str, Claim] = field(factory=dict, init=False)
    makes: Counter[Version] = field(factory=Counter, init=False)
    sees: Counter[Version] = field(factory=Counter, init=False)
    leaves: Counter[str] = field(factory=Counter, init=False)
    moves: Counter[str] = field(factory=Counter, init=False)
    of: defaultdict[str, set[str]] = field(factory=_index, init=False)
    around: defaultdict[Spot, set[str]] = field(factory=lambda: defaultdict(set), init=False)
    inside: defaultdict[str, set[str]] = field(factory=_index, init=False)

    def __getitem__(self, id: str) -> Claim:
        return self._all[id]

    def add(self, id: str, claim: Claim) -> None:
        """Take in the claim of an operation."""
        self._all[id] = claim
        self.makes.update(claim.made)
        self.sees.update(claim.seen)
        self.leaves.update(claim.left)
        self.moves.update(claim.moves.keys())
        for each in claim.ids:
            self.of[each].add(id)
        for spot in claim.spots:
            self.around[spot].add(id)
            self.inside[spot[0]].add(id)

    def remove(self, id: str) -> None:
        """Leave out the claim of an operation, which is decided."""
        claim = self._all.pop(id)
        self.makes.subtract(claim.made)
        self.sees.subtract(claim.seen)
        self.leaves.subtract(claim.left)
        self.moves.subtract(claim.moves.keys())
        for each in claim.ids:
            self.of[each].discard(id)
        for spot in claim.spots:
            self.around[spot].discard(id)
            self.inside[spot[0]].discard(id)

    def moving(self) -> set[str]:
        """Return the operations that would move a directory to another one."""
        return {id for id, claim in self._all.items() if claim.moves}

    def shards(self, directory: str) -> dict[str, tuple[int, int]]:
        """Return of each operation that changes a directory which version it makes, and its shards."""
        return {
            each: shards
            for each in self.of[directory]
            if (shards := self._all[each].shards.get(directory)) is not None
        }

    def is_seen_by_others(self, version: Version, claim: Claim) -> bool:
        """Tell whether another one would replace or remove a version."""
        return self.sees[version] > (version in claim.seen)

    def is_moved_by_others(self, directories: Iterable[str], claim: Claim) -> bool:
        """Tell whether another one would move one of some directories."""
        return any(self.moves[each] > (each in claim.moves) for each in directories)


def added_by(change: LoggedChange) -> list[tuple[Version, Spot, int]]:
    """Return the entries that a change makes, with their places."""
    return [
        ((str(state.item["id"]), state.version), *spot_of(key_of(state.item)))
        for state in change.states
        if state.item is not None and "id" in state.item
    ]


def shards_of(state: State) -> int:
    """Return how many shards a directory has by what is said of it; 0 if it is none."""
    if state.item is None or "id" not in state.item:
        return 0
    entry = Entry.from_item(state.item)
    return entry.shards.now if entry.is_directory else 0


def spot_of(key: Key) -> tuple[Spot, int]:
    """Return where an entry with this key is, and in which shard."""
    place = read_place(key.hash)
    return (place.of, str(key.range)), place.shard
