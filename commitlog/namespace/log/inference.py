"""Inference of the outcomes of pending changes from committed ones, when the table is lost."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from heapq import heapify, heappop, heappush

from attrs import define, evolve, field, frozen

from commitlog.namespace.log.entries import LoggedChange, State, Version, parsed
from commitlog.namespace.model.codec import key_of
from commitlog.namespace.model.keys import TOP, read_place
from commitlog.namespace.model.records import Entry
from commitlog.oplog import Decision, Operation
from commitlog.oplog.validate import MAX_COUNT
from commitlog.tables.api import Key

__all__ = [
    "Claim",
    "Claims",
    "CommittedFacts",
    "Inference",
    "NameSlot",
    "added_by",
    "shards_of",
    "slot_of",
]


@define
class CommittedFacts:
    """Facts that follow from committed changes.

    Attributes:
        made, seen: versions that they made, and versions that they replaced or removed.
        within: the highest shard of each directory to which they added.
        shards: number of shards of each directory.
        at, where: ids at each name slot, and name slots of each id.
        gone: removed directories.
        parents: parent of each directory, if pending changes would move some directory.
    """

    made: set[Version] = field(factory=set, init=False)
    seen: set[Version] = field(factory=set, init=False)
    within: dict[str, int] = field(factory=dict, init=False)
    shards: dict[str, int] = field(factory=lambda: {TOP: 1}, init=False)
    at: defaultdict[NameSlot, set[str]] = field(factory=lambda: defaultdict(set), init=False)
    where: defaultdict[str, set[NameSlot]] = field(factory=lambda: defaultdict(set), init=False)
    gone: set[str] = field(factory=set, init=False)
    parents: dict[str, str] = field(factory=dict, init=False)
    #: Only facts about these subjects of pending changes are kept.
    _versions: set[Version] = field(factory=set, init=False)
    _slots: set[NameSlot] = field(factory=set, init=False)
    _directories: set[str] = field(factory=set, init=False)
    _moves: bool = field(default=False, init=False)

    def ask(self, claim: Claim) -> None:
        """Keep facts from now on about the subjects of a pending change."""
        self._versions |= claim.made | claim.seen
        self._slots |= claim.slots
        self._directories.update(of for of, _ in claim.slots)
        self._directories |= claim.shards.keys()
        self._moves = self._moves or bool(claim.moves)

    def learn(self, change: LoggedChange) -> None:
        """Add a committed change."""
        self.made |= change.made & self._versions
        self.seen |= change.seen & self._versions
        for _, (of, _), shard in added_by(change):
            if of in self._directories:
                self.within[of] = max(shard, self.within.get(of, 0))

    def compare(self, states: Iterable[State]) -> None:
        """Add the newest states that all committed changes left."""
        for state in states:
            id = state.of.removeprefix("e/")
            if id == state.of:
                continue
            if state.item is not None:
                slot, _ = slot_of(key_of(state.item))
                if slot in self._slots:
                    self._come(id, slot)
                if self._moves and shards_of(state):
                    self.parents[id] = slot[0]
            if id in self._directories:
                if state.item is None:
                    self.gone.add(id)
                else:
                    self.shards[id] = shards_of(state)

    def follow(self, claim: Claim) -> None:
        """Add the results of a pending change that was committed after all; call `learn` before."""
        self.gone |= claim.gone
        for of, (_, shards) in claim.shards.items():
            self.shards[of] = max(shards, self.shards.get(of, 0))
        for (each, _), slot in claim.before:
            if each in claim.left:
                self.at[slot].discard(each)
                self.where[each].discard(slot)
        for version, slot, _ in claim.added:
            if version not in self.seen:  # otherwise a later change replaced it
                self._come(version[0], slot)
                if version[0] in claim.shards:
                    self.parents[version[0]] = slot[0]

    def above(self, directory: str) -> list[str]:
        """Return a directory and its known ancestors, each once."""
        path = [directory]
        while (above := self.parents.get(path[-1])) is not None and above not in path:
            path.append(above)
        return path

    def _come(self, id: str, slot: NameSlot) -> None:
        self.at[slot].add(id)
        self.where[id].add(slot)


#: A directory, and a name in it, in any shard.
NameSlot = tuple[str, str]


@frozen
class Claim:
    """The contents of a change.

    Attributes:
        made, seen: see `LoggedChange`.
        added: entries that it puts: version, name slot and shard.
        before: versions that it replaces or removes, and their name slots.
        shards: the new version and number of shards of each directory that it writes.
        gone: directories that it removes.
        left: ids that it takes away from their name slots.
        moves: directories that it moves to another parent, with the new parents.
    """

    made: frozenset[Version]
    seen: frozenset[Version]
    added: tuple[tuple[Version, NameSlot, int], ...]
    before: tuple[tuple[Version, NameSlot], ...]
    shards: Mapping[str, tuple[int, int]]
    gone: frozenset[str]
    left: frozenset[str]
    moves: Mapping[str, str]

    @classmethod
    def of(cls, change: LoggedChange) -> Claim:
        """Return the contents of a change."""
        added = tuple(added_by(change))
        before = tuple((version, slot_of(key)[0]) for key, version in change.before)
        stays = {(id, slot) for (id, _), slot, _ in added}
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
            left=frozenset(id for (id, _), slot in before if (id, slot) not in stays),
            moves={
                id: directory
                for (id, _), (directory, _), _ in added
                if id in shards and were.get(id, directory) != directory
            },
        )

    @property
    def ids(self) -> set[str]:
        """Ids of the items that it makes, changes or removes."""
        return {id for id, _ in self.made | self.seen}

    @property
    def slots(self) -> set[NameSlot]:
        """Name slots in which it puts, replaces or removes an entry."""
        return {slot for _, slot, _ in self.added} | {slot for _, slot in self.before}


def _index() -> defaultdict[str, set[str]]:
    return defaultdict(set)


@define
class Claims:
    """The claims of all pending changes, by the id of the operation.

    Attributes:
        makes, sees, leaves, moves: number of pending changes that would make a version, replace or
            remove it, take an id away from its name slot, or move a directory to another parent.
        of, around, inside: pending changes that concern an id, a name slot, or the entries of a
        directory.
    """

    _all: dict[str, Claim] = field(factory=dict, init=False)
    makes: Counter[Version] = field(factory=Counter, init=False)
    sees: Counter[Version] = field(factory=Counter, init=False)
    leaves: Counter[str] = field(factory=Counter, init=False)
    moves: Counter[str] = field(factory=Counter, init=False)
    of: defaultdict[str, set[str]] = field(factory=_index, init=False)
    around: defaultdict[NameSlot, set[str]] = field(factory=lambda: defaultdict(set), init=False)
    inside: defaultdict[str, set[str]] = field(factory=_index, init=False)

    def __getitem__(self, id: str) -> Claim:
        return self._all[id]

    def add(self, id: str, claim: Claim) -> None:
        """Add the claim of an operation."""
        self._all[id] = claim
        self.makes.update(claim.made)
        self.sees.update(claim.seen)
        self.leaves.update(claim.left)
        self.moves.update(claim.moves.keys())
        for each in claim.ids:
            self.of[each].add(id)
        for slot in claim.slots:
            self.around[slot].add(id)
            self.inside[slot[0]].add(id)

    def remove(self, id: str) -> None:
        """Remove the claim of an operation that was decided."""
        claim = self._all.pop(id)
        self.makes.subtract(claim.made)
        self.sees.subtract(claim.seen)
        self.leaves.subtract(claim.left)
        self.moves.subtract(claim.moves.keys())
        for each in claim.ids:
            self.of[each].discard(id)
        for slot in claim.slots:
            self.around[slot].discard(id)
            self.inside[slot[0]].discard(id)

    def moving(self) -> set[str]:
        """Return the operations that would move a directory to another parent."""
        return {id for id, claim in self._all.items() if claim.moves}

    def shards(self, directory: str) -> dict[str, tuple[int, int]]:
        """Return the new version and shards of a directory for each operation that writes it."""
        return {
            each: shards
            for each in self.of[directory]
            if (shards := self._all[each].shards.get(directory)) is not None
        }

    def is_seen_by_others(self, version: Version, claim: Claim) -> bool:
        """Tell whether another pending change would replace or remove a version."""
        return self.sees[version] > (version in claim.seen)

    def is_moved_by_others(self, directories: Iterable[str], claim: Claim) -> bool:
        """Tell whether another pending change would move one of some directories."""
        return any(self.moves[each] > (each in claim.moves) for each in directories)


def added_by(change: LoggedChange) -> list[tuple[Version, NameSlot, int]]:
    """Return the entries that a change puts, with their name slots and shards."""
    return [
        ((str(state.item["id"]), state.version), *slot_of(key_of(state.item)))
        for state in change.states
        if state.item is not None and "id" in state.item
    ]


def shards_of(state: State) -> int:
    """Return the number of shards of a directory; 0 if the state is not that of a directory."""
    if state.item is None or "id" not in state.item:
        return 0
    entry = Entry.from_item(state.item)
    return entry.shards.now if entry.is_directory else 0


def slot_of(key: Key) -> tuple[NameSlot, int]:
    """Return the name slot and the shard of an entry with this key."""
    place = read_place(key.hash)
    return (place.of, str(key.range)), place.shard


@define
class Inference:
    """Pending changes, and the facts from which their outcomes are inferred.

    Attributes:
        operations: the pending operations, by id.
        changes: the changes whose outcome is unknown.
    """

    operations: Mapping[str, Operation]
    changes: dict[str, LoggedChange]
    _claims: Claims = field(factory=Claims, init=False)
    _known: CommittedFacts = field(factory=CommittedFacts, init=False)

    def __attrs_post_init__(self) -> None:
        for id, change in self.changes.items():
            claim = Claim.of(change)
            self._claims.add(id, claim)
            self._known.ask(claim)

    @classmethod
    def of(cls, operations: Iterable[Operation]) -> Inference:
        """Return an inference about pending operations, without any facts yet."""
        pending = {each.id: each for each in operations}
        return cls(pending, {id: parsed(each) for id, each in pending.items()})

    def forget(self, id: str) -> None:
        """Remove an operation that was decided after all."""
        if id in self.changes:
            self._take(id)

    def learn(self, change: LoggedChange) -> None:
        """Add a committed change."""
        self._known.learn(change)

    def compare(self, states: Iterable[State]) -> None:
        """Add the newest states that all committed changes left."""
        self._known.compare(states)

    def settle(self, decide: Callable[[Operation], Decision] | None) -> tuple[Operation, ...]:
        """Decide changes from the facts, and the rest with `decide`, the newest first; return the
        decided.

        Changes that remain undecided stay in `changes`.
        """
        decided: list[Operation] = []
        newest = sorted(self.changes)
        queue, waiting = list(newest), set(newest)

        def settle(id: str, decision: Decision) -> None:
            decided.append(evolve(self.operations[id], decision=decision))
            for touched in self._settle(id, decision) - waiting:
                waiting.add(touched)
                heappush(queue, touched)

        heapify(queue)
        while self.changes:
            while queue:
                # Decide one at a time: each decision adds facts.
                waiting.remove(id := heappop(queue))
                if id in self.changes and (decision := self._evidence(self._claims[id], id)) is not None:
                    settle(id, decision)
            if decide is None:
                break
            # Ask for the newest first: if it was committed, so were those on which it depends.
            id = newest.pop()
            if id in self.changes:
                settle(id, decide(self.operations[id]))
        return tuple(decided)

    # implementation

    def _take(self, id: str) -> LoggedChange:
        self._claims.remove(id)
        return self.changes.pop(id)

    def _settle(self, id: str, decision: Decision) -> set[str]:
        """Add the facts of a decision; return the pending changes that they may decide."""
        claim, claims = self._claims[id], self._claims
        touched: set[str] = set()
        for each in claim.ids:
            touched |= claims.of[each] | claims.inside[each]
        for slot in claim.slots.union(*(self._known.where[each] for each in claim.left)):
            touched |= claims.around[slot]
        change = self._take(id)
        if claim.moves:  # a path between two directories may have ended
            touched |= claims.moving()
        if decision is Decision.COMMITTED:
            self._known.learn(change)
            self._known.follow(claim)
            for _, (directory, _), _ in claim.added:
                touched |= claims.of[directory]
        return {each for each in touched if each in self.changes}

    def _evidence(self, claim: Claim, id: str) -> Decision | None:
        """Return the outcome of a change; None if the facts do not determine it."""
        known, claims = self._known, self._claims
        if claim.seen & known.seen or claim.made & known.made:
            return Decision.ROLLED_BACK  # another change replaced the same version
        if any(number == 1 and of in known.within for of, number in claim.made):
            return Decision.COMMITTED
        if any(self._has_grown(of, id) for of in claim.shards):
            return Decision.COMMITTED
        if claim.made & known.seen:
            # A later change has seen the version of one of several rivals.
            rivals = any(claims.makes[version] > 1 for version in claim.made)
            return None if rivals else Decision.COMMITTED
        for version, slot in claim.before:
            if not claims.is_seen_by_others(version, claim) and self._is_left(version[0], slot, claim):
                return Decision.COMMITTED
        if any(self._is_in_itself(of, claim) for of in claim.moves):
            return Decision.COMMITTED
        if any(claims.is_seen_by_others(version, claim) for version in claim.made):
            return None  # the outcome of those changes is evidence too
        if any(self._would_be_in_itself(*move, claim) for move in claim.moves.items()):
            return Decision.ROLLED_BACK
        for (each, _), slot, shard in claim.added:
            there = any(not claims.leaves[other] for other in known.at[slot] - {each})
            if there or slot[0] in known.gone or not self._can_have(slot[0], shard):
                return Decision.ROLLED_BACK  # its place was taken
        return None

    def _is_left(self, id: str, slot: NameSlot, claim: Claim) -> bool:
        """Tell whether an entry must have left its place, and only by this change."""
        if id not in claim.left:
            return False
        directory, _ = slot
        stays = {(i, of) for (i, _), (of, _), _ in claim.added}
        if directory in self._known.gone and (id, directory) not in stays:
            return True  # only an empty directory is removed
        own = {i for (i, _), place, _ in claim.added if place == slot} | {id}
        # It made room for the current entry, unless another change takes that entry away.
        others = self._known.at[slot] - own
        return any(self._claims.leaves[other] <= (other in claim.left) for other in others)

    def _is_in_itself(self, directory: str, claim: Claim) -> bool:
        """Tell whether a directory would be its own ancestor if this change had not moved it away."""
        path = self._known.above(directory)
        cycle = self._known.parents.get(path[-1]) == directory
        return cycle and not self._claims.is_moved_by_others(path, claim)

    def _would_be_in_itself(self, directory: str, parent: str, claim: Claim) -> bool:
        """Tell whether a directory is an ancestor of the one into which this change would move it."""
        path = self._known.above(parent)
        return directory in path and not self._claims.is_moved_by_others(
            path[: path.index(directory)], claim
        )

    def _has_grown(self, directory: str, id: str) -> bool:
        """Tell whether a shard with new entries exists only because of this change."""
        shard = self._known.within.get(directory, -1)
        if shard < self._known.shards.get(directory, 0):
            return False
        would = self._claims.shards(directory)
        growing = {each for each, (_, shards) in would.items() if shards > shard}

        def builds(number: int) -> bool:
            before = {each for each, (other, _) in would.items() if other == number - 1}
            return bool(before) and before <= growing

        return {each for each in growing if not builds(would[each][0])} == {id}

    def _can_have(self, directory: str, shard: int) -> bool:
        """Tell whether a directory has a shard, or may have it."""
        return shard < self._known.shards.get(directory, 0) or any(
            shards > shard for _, shards in self._claims.shards(directory).values()
        )
