"""What became of changes that are pending in a log, when there is no table to look at: by the log alone.

Imports the operation log, its siblings, and the `Table` port.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from heapq import heapify, heappop, heappush

from attrs import define, evolve, field, frozen

from commitlog.namespace.items import key_of
from commitlog.namespace.keys import TOP, read_place
from commitlog.namespace.logged import LoggedChange, State, Version, parsed
from commitlog.namespace.records import Entry
from commitlog.oplog import Decision, Operation
from commitlog.oplog.fields import MAX_COUNT
from commitlog.tables.api import Key

__all__ = ["Undecided"]

#: A directory, and a name in it, in whichever shard.
Spot = tuple[str, str]


@frozen
class _Told:
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
    def of(cls, change: LoggedChange) -> _Told:
        added = tuple(_added(change))
        before = tuple((version, _spot(key)[0]) for key, version in change.before)
        stays = {(id, spot) for (id, _), spot, _ in added}
        were = {id: directory for (id, _), (directory, _) in before}
        shards = {
            state.of.removeprefix("e/"): (state.version, shards)
            for state in change.states
            if (shards := _shards(state))
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
class Undecided:
    """Changes that are pending, and what others tell of them.

    Attributes:
        operations: as the log has them, by id.
        changes: those of which nothing tells yet whether they happened.
    """

    operations: Mapping[str, Operation]
    changes: dict[str, LoggedChange]
    _told: dict[str, _Told] = field(init=False)
    _versions: frozenset[Version] = field(init=False)
    #: Directories that pending changes make, change, add to, or take something from.
    _directories: frozenset[str] = field(init=False)
    #: Versions that committed changes have made, and have seen.
    _made: set[Version] = field(factory=set, init=False)
    _seen: set[Version] = field(factory=set, init=False)
    #: The highest shard of each directory to which committed changes have added; how many it has.
    _within: dict[str, int] = field(factory=dict, init=False)
    _shards: dict[str, int] = field(factory=lambda: {TOP: 1}, init=False)
    #: Which ids are where pending changes add or remove something; and where each of these is.
    _at: defaultdict[Spot, set[str]] = field(factory=lambda: defaultdict(set), init=False)
    _where: defaultdict[str, set[Spot]] = field(factory=lambda: defaultdict(set), init=False)
    #: Which directories are gone.
    _gone: set[str] = field(factory=set, init=False)
    #: In which directory each one is, if pending changes would move some; how many would move it.
    _parents: dict[str, str] = field(factory=dict, init=False)
    _moves: Counter[str] = field(factory=Counter, init=False)
    #: How many pending changes would make a version, replace or remove it, and leave no such id.
    _makes: Counter[Version] = field(factory=Counter, init=False)
    _sees: Counter[Version] = field(factory=Counter, init=False)
    _leaves: Counter[str] = field(factory=Counter, init=False)
    #: Pending changes of an id, at a spot, and in a directory.
    _of: defaultdict[str, set[str]] = field(factory=_index, init=False)
    _around: defaultdict[Spot, set[str]] = field(factory=lambda: defaultdict(set), init=False)
    _inside: defaultdict[str, set[str]] = field(factory=_index, init=False)

    def __attrs_post_init__(self) -> None:
        self._told = {id: _Told.of(change) for id, change in self.changes.items()}
        all_told = self._told.values()
        self._versions = frozenset(version for each in all_told for version in each.made | each.seen)
        inside = {of for each in all_told for of, _ in each.spots}
        self._directories = frozenset(inside.union(*(each.shards for each in all_told)))
        for id, told in self._told.items():
            self._makes.update(told.made)
            self._sees.update(told.seen)
            self._leaves.update(told.left)
            self._moves.update(told.moves.keys())
            for each in told.ids:
                self._of[each].add(id)
            for spot in told.spots:
                self._around[spot].add(id)
                self._inside[spot[0]].add(id)

    @classmethod
    def of(cls, operations: Iterable[Operation]) -> Undecided:
        """Return the pending operations, of which nothing is known yet."""
        pending = {each.id: each for each in operations}
        return cls(pending, {id: parsed(each) for id, each in pending.items()})

    def forget(self, id: str) -> None:
        """Take in that an operation was decided after all."""
        if id in self.changes:
            self._take(id)

    def learn(self, change: LoggedChange) -> None:
        """Take in a change that was committed."""
        self._made |= change.made & self._versions
        self._seen |= change.seen & self._versions
        for _, (of, _), shard in _added(change):
            if of in self._directories:
                self._within[of] = max(shard, self._within.get(of, 0))

    def look(self, states: Iterable[State]) -> None:
        """Take in what all committed changes together have made."""
        for state in states:
            id = state.of.removeprefix("e/")
            if id == state.of:
                continue
            if state.item is not None:
                spot, _ = _spot(key_of(state.item))
                if spot in self._around:
                    self._come(id, spot)
                if self._moves and _shards(state):
                    self._parents[id] = spot[0]
            if id in self._directories:
                if state.item is None:
                    self._gone.add(id)
                else:
                    self._shards[id] = _shards(state)

    def settle(self, decide: Callable[[Operation], Decision] | None) -> tuple[Operation, ...]:
        """Return what is decided now: by what the log tells, then by `decide`, the newest first.

        What neither tells stays in `changes`.
        """
        decided: list[Operation] = []
        newest = sorted(self.changes)
        told, waiting = list(newest), set(newest)

        def settle(id: str, decision: Decision) -> None:
            decided.append(evolve(self.operations[id], decision=decision))
            for touched in self._settle(id, decision) - waiting:
                waiting.add(touched)
                heappush(told, touched)

        heapify(told)
        while self.changes:
            while told:
                # One by one: each tells of others.
                waiting.remove(id := heappop(told))
                if id in self.changes and (decision := self._evidence(self._told[id], id)) is not None:
                    settle(id, decision)
            if decide is None:
                break
            # The newest first: if it was committed, so was what it has built on.
            id = newest.pop()
            if id in self.changes:
                settle(id, decide(self.operations[id]))
        return tuple(decided)

    # inside

    def _take(self, id: str) -> LoggedChange:
        told = self._told[id]
        self._makes.subtract(told.made)
        self._sees.subtract(told.seen)
        self._leaves.subtract(told.left)
        self._moves.subtract(told.moves.keys())
        for each in told.ids:
            self._of[each].discard(id)
        for spot in told.spots:
            self._around[spot].discard(id)
            self._inside[spot[0]].discard(id)
        return self.changes.pop(id)

    def _come(self, id: str, spot: Spot) -> None:
        self._at[spot].add(id)
        self._where[id].add(spot)

    def _leave(self, id: str, spot: Spot) -> None:
        self._at[spot].discard(id)
        self._where[id].discard(spot)

    def _settle(self, id: str, decision: Decision) -> set[str]:
        """Take in a decision; return the pending changes of which that may tell."""
        told = self._told[id]
        touched: set[str] = set()
        for each in told.ids:
            touched |= self._of[each] | self._inside[each]
        for spot in told.spots.union(*(self._where[each] for each in told.left)):
            touched |= self._around[spot]
        change = self._take(id)
        if told.moves:  # what was a way to another directory may be none any more
            touched |= {each for each in self.changes if self._told[each].moves}
        if decision is Decision.COMMITTED:
            self.learn(change)
            self._gone |= told.gone
            for of, (_, shards) in told.shards.items():
                self._shards[of] = max(shards, self._shards.get(of, 0))
            for (each, _), spot in told.before:
                if each in told.left:
                    self._leave(each, spot)
            for version, spot, _ in told.added:
                touched |= self._of[spot[0]]
                if version not in self._seen:  # else it is there no more
                    self._come(version[0], spot)
                    if version[0] in told.shards:
                        self._parents[version[0]] = spot[0]
        return {each for each in touched if each in self.changes}

    def _evidence(self, change: _Told, id: str) -> Decision | None:
        """Tell what became of a change, if what is known tells."""
        if change.seen & self._seen or change.made & self._made:
            return Decision.ROLLED_BACK  # somebody else has replaced the same
        if any(number == 1 and of in self._within for of, number in change.made):
            return Decision.COMMITTED
        if any(self._has_grown(of, id) for of in change.shards):
            return Decision.COMMITTED
        if change.made & self._seen:
            # Seen is what one of those made that would all have replaced the same.
            rivals = any(self._makes[version] > 1 for version in change.made)
            return None if rivals else Decision.COMMITTED
        for version, spot in change.before:
            if not self._is_seen_by_others(version, change) and self._is_left(version[0], spot, change):
                return Decision.COMMITTED
        if any(self._is_in_itself(of, change) for of in change.moves):
            return Decision.COMMITTED
        if any(self._is_seen_by_others(version, change) for version in change.made):
            return None  # whether those happened tells more
        if any(self._would_be_in_itself(*move, change) for move in change.moves.items()):
            return Decision.ROLLED_BACK
        for (each, _), spot, shard in change.added:
            there = any(not self._leaves[other] for other in self._at[spot] - {each})
            if there or spot[0] in self._gone or not self._can_have(spot[0], shard):
                return Decision.ROLLED_BACK  # there was no room for it
        return None

    def _is_seen_by_others(self, version: Version, change: _Told) -> bool:
        return self._sees[version] > (version in change.seen)

    def _is_left(self, id: str, spot: Spot, change: _Told) -> bool:
        """Tell whether something must have left its place, and only this change can have taken it."""
        if id not in change.left:
            return False
        directory, _ = spot
        if directory in self._gone and (id, directory) not in {
            (i, of) for (i, _), (of, _), _ in change.added
        }:
            return True  # a directory is removed when nothing is in it
        own = {i for (i, _), place, _ in change.added if place == spot} | {id}
        # It has made room for what is there now, unless another change takes that away.
        return any(self._leaves[other] <= (other in change.left) for other in self._at[spot] - own)

    def _is_in_itself(self, directory: str, change: _Told) -> bool:
        """Tell whether a directory were below itself if this change had not moved it away."""
        path = self._above(directory)
        cycle = self._parents.get(path[-1]) == directory
        return cycle and not self._is_moved_by_others(path, change)

    def _would_be_in_itself(self, directory: str, parent: str, change: _Told) -> bool:
        """Tell whether a directory is above that into which this change would move it."""
        path = self._above(parent)
        return directory in path and not self._is_moved_by_others(path[: path.index(directory)], change)

    def _is_moved_by_others(self, directories: Iterable[str], change: _Told) -> bool:
        return any(self._moves[each] > (each in change.moves) for each in directories)

    def _above(self, directory: str) -> list[str]:
        """Return a directory, and those above it, as far as they are known, each once."""
        path = [directory]
        while (above := self._parents.get(path[-1])) is not None and above not in path:
            path.append(above)
        return path

    def _has_grown(self, directory: str, id: str) -> bool:
        """Tell whether others have added to a shard that there is by this change, and no other."""
        shard = self._within.get(directory, -1)
        if shard < self._shards.get(directory, 0):
            return False
        would = self._would(directory)
        growing = {each for each, (_, shards) in would.items() if shards > shard}

        def builds(number: int) -> bool:
            before = {each for each, (other, _) in would.items() if other == number - 1}
            return bool(before) and before <= growing

        return {each for each in growing if not builds(would[each][0])} == {id}

    def _can_have(self, directory: str, shard: int) -> bool:
        """Tell whether a directory has a shard, or may have."""
        return shard < self._shards.get(directory, 0) or any(
            shards > shard for _, shards in self._would(directory).values()
        )

    def _would(self, directory: str) -> dict[str, tuple[int, int]]:
        """Return the pending changes of a directory, with the version that they make, and its shards."""
        return {
            each: shards
            for each in self._of[directory]
            if (shards := self._told[each].shards.get(directory)) is not None
        }


def _added(change: LoggedChange) -> list[tuple[Version, Spot, int]]:
    """Return the entries that a change makes, with their places."""
    return [
        ((str(state.item["id"]), state.version), *_spot(key_of(state.item)))
        for state in change.states
        if state.item is not None and "id" in state.item
    ]


def _shards(state: State) -> int:
    """Return how many shards a directory has by what is said of it; 0 if it is none."""
    if state.item is None or "id" not in state.item:
        return 0
    entry = Entry.from_item(state.item)
    return entry.shards.now if entry.is_directory else 0


def _spot(key: Key) -> tuple[Spot, int]:
    place = read_place(key.hash)
    return (place.of, str(key.range)), place.shard
