"""Inference of the outcomes of pending changes from committed ones, when the table is lost."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Mapping
from heapq import heapify, heappop, heappush

from attrs import define, evolve, field, frozen

from commitlog.namespace.log.entries import ItemState, LoggedChange, Version, parse_change
from commitlog.namespace.model.codec import key_of
from commitlog.namespace.model.keys import TOP, parse_hash_key
from commitlog.namespace.model.records import Entry
from commitlog.oplog import Decision, Operation
from commitlog.oplog.validate import MAX_COUNT
from commitlog.tables.api import Key

__all__ = [
    "CommittedFacts",
    "Effects",
    "Inference",
    "NameSlot",
    "PendingEffects",
    "entries_of",
    "shard_count",
    "slot_of",
]


@define
class CommittedFacts:
    """Facts that follow from committed changes.

    The facts of a part of the changes are a value that can be pickled, and merged with the facts of
    other parts in any order: unions and maxima.

    Attributes:
        written, replaced: versions that they wrote, and versions that they replaced or removed.
        highest_shard: of each directory, the highest shard to which they added an entry.
        shards: number of shards of each directory.
        ids_at, slots_of: ids at each name slot, and name slots of each id.
        removed: removed directories.
        parents: parent of each directory, if pending changes would move some directory.
    """

    written: set[Version] = field(factory=set, init=False)
    replaced: set[Version] = field(factory=set, init=False)
    highest_shard: dict[str, int] = field(factory=dict, init=False)
    shards: dict[str, int] = field(factory=lambda: {TOP: 1}, init=False)
    ids_at: defaultdict[NameSlot, set[str]] = field(factory=lambda: defaultdict(set), init=False)
    slots_of: defaultdict[str, set[NameSlot]] = field(factory=lambda: defaultdict(set), init=False)
    removed: set[str] = field(factory=set, init=False)
    parents: dict[str, str] = field(factory=dict, init=False)
    #: Only facts about these subjects of pending changes are kept.
    _versions: set[Version] = field(factory=set, init=False)
    _slots: set[NameSlot] = field(factory=set, init=False)
    _directories: set[str] = field(factory=set, init=False)
    _moves: bool = field(default=False, init=False)

    def watch(self, effects: Effects) -> None:
        """Keep facts from now on about the subjects of a pending change."""
        self._versions |= effects.written | effects.replaced
        self._slots |= effects.slots
        self._directories.update(directory for directory, _ in effects.slots)
        self._directories |= effects.shards.keys()
        self._moves = self._moves or bool(effects.moves)

    def copy_subjects(self) -> CommittedFacts:
        """Return an empty collection of facts about the same subjects."""
        facts = CommittedFacts()
        facts._versions, facts._slots = set(self._versions), set(self._slots)
        facts._directories, facts._moves = set(self._directories), self._moves
        return facts

    def merge(self, other: CommittedFacts) -> None:
        """Add what `other` has learned from changes, about the same subjects."""
        self.written |= other.written
        self.replaced |= other.replaced
        for directory, shard in other.highest_shard.items():
            self.highest_shard[directory] = max(shard, self.highest_shard.get(directory, 0))

    def concerns(self, state: ItemState) -> bool:
        """Return whether facts about the item of a state may follow from its newest state.

        It is true for one of the states of such an item at least, so a selection of items is complete
        only after all states were passed.
        """
        id = state.item_id.removeprefix("e/")
        if id == state.item_id:
            return False
        return id in self._directories or (
            state.item is not None and slot_of(key_of(state.item))[0] in self._slots
        )

    def missing_parents(self, known: Container[str]) -> set[str]:
        """Return ids of directories whose parents `above` may need, and that are not in `known`.

        Pass the newest states of these directories to `add_states`, and call it again, until it returns
        none.
        """
        if not self._moves:
            return set()
        return {id for id in self._directories.union(self.parents.values()) if id not in known}

    def learn(self, change: LoggedChange) -> None:
        """Add a committed change."""
        self.written |= change.written & self._versions
        self.replaced |= change.replaced & self._versions
        for _, (directory, _), shard in entries_of(change):
            if directory in self._directories:
                self.highest_shard[directory] = max(shard, self.highest_shard.get(directory, 0))

    def add_states(self, states: Iterable[ItemState]) -> None:
        """Add the newest states that all committed changes left."""
        for state in states:
            id = state.item_id.removeprefix("e/")
            if id == state.item_id:
                continue
            if state.item is not None:
                slot, _ = slot_of(key_of(state.item))
                if slot in self._slots:
                    self._place(id, slot)
                if self._moves and shard_count(state):
                    self.parents[id] = slot[0]
            if id in self._directories:
                if state.item is None:
                    self.removed.add(id)
                else:
                    self.shards[id] = shard_count(state)

    def add_effects(self, effects: Effects) -> None:
        """Add the results of a pending change that was committed after all; call `learn` before."""
        self.removed |= effects.removed
        for id, (_, shards) in effects.shards.items():
            self.shards[id] = max(shards, self.shards.get(id, 0))
        for (each, _), slot in effects.replaced_at:
            if each in effects.vacated:
                self.ids_at[slot].discard(each)
                self.slots_of[each].discard(slot)
        for version, slot, _ in effects.adds:
            if version not in self.replaced:  # otherwise a later change replaced it
                self._place(version[0], slot)
                if version[0] in effects.shards:
                    self.parents[version[0]] = slot[0]

    def above(self, directory: str) -> list[str]:
        """Return a directory and its known ancestors, each once."""
        path = [directory]
        while (above := self.parents.get(path[-1])) is not None and above not in path:
            path.append(above)
        return path

    def _place(self, id: str, slot: NameSlot) -> None:
        self.ids_at[slot].add(id)
        self.slots_of[id].add(slot)


#: A directory, and a name in it, in any shard.
NameSlot = tuple[str, str]


@frozen
class Effects:
    """The effects that a change has if it is committed.

    Attributes:
        written, replaced: see `LoggedChange`.
        adds: entries that it puts: version, name slot and shard.
        replaced_at: versions that it replaces or removes, and their name slots.
        shards: the new version and number of shards of each directory that it writes.
        removed: directories that it removes.
        vacated: ids that it takes away from their name slots.
        moves: directories that it moves to another parent, with the new parents.
    """

    written: frozenset[Version]
    replaced: frozenset[Version]
    adds: tuple[tuple[Version, NameSlot, int], ...]
    replaced_at: tuple[tuple[Version, NameSlot], ...]
    shards: Mapping[str, tuple[int, int]]
    removed: frozenset[str]
    vacated: frozenset[str]
    moves: Mapping[str, str]

    @classmethod
    def of(cls, change: LoggedChange) -> Effects:
        """Return the effects of a change."""
        adds = tuple(entries_of(change))
        before = tuple((version, slot_of(key)[0]) for key, version in change.replaced_at)
        stays = {(id, slot) for (id, _), slot, _ in adds}
        were = {id: directory for (id, _), (directory, _) in before}
        shards = {
            state.item_id.removeprefix("e/"): (state.version, shards)
            for state in change.states
            if (shards := shard_count(state))
        }
        return cls(
            written=change.written,
            replaced=change.replaced,
            adds=adds,
            replaced_at=before,
            shards=shards,
            removed=frozenset(
                state.item_id.removeprefix("e/")
                for state in change.states
                if state.item is None and state.version == MAX_COUNT
            ),
            vacated=frozenset(id for (id, _), slot in before if (id, slot) not in stays),
            moves={
                id: directory
                for (id, _), (directory, _), _ in adds
                if id in shards and were.get(id, directory) != directory
            },
        )

    @property
    def ids(self) -> set[str]:
        """Ids of the items that it makes, changes or removes."""
        return {id for id, _ in self.written | self.replaced}

    @property
    def slots(self) -> set[NameSlot]:
        """Name slots in which it puts, replaces or removes an entry."""
        return {slot for _, slot, _ in self.adds} | {slot for _, slot in self.replaced_at}


def _index() -> defaultdict[str, set[str]]:
    return defaultdict(set)


@define
class PendingEffects:
    """The effects of all pending changes, by the id of the operation.

    Attributes:
        writes, replaces, vacates, moves: number of pending changes that would write a version, replace
            or remove it, take an id away from its name slot, or move a directory to another parent.
        by_id, by_slot, by_directory: pending changes that concern an id, a name slot, or the entries of
            a directory.
    """

    _all: dict[str, Effects] = field(factory=dict, init=False)
    writes: Counter[Version] = field(factory=Counter, init=False)
    replaces: Counter[Version] = field(factory=Counter, init=False)
    vacates: Counter[str] = field(factory=Counter, init=False)
    moves: Counter[str] = field(factory=Counter, init=False)
    by_id: defaultdict[str, set[str]] = field(factory=_index, init=False)
    by_slot: defaultdict[NameSlot, set[str]] = field(factory=lambda: defaultdict(set), init=False)
    by_directory: defaultdict[str, set[str]] = field(factory=_index, init=False)

    def __getitem__(self, id: str) -> Effects:
        return self._all[id]

    def add(self, id: str, effects: Effects) -> None:
        """Add the effects of an operation."""
        self._all[id] = effects
        self.writes.update(effects.written)
        self.replaces.update(effects.replaced)
        self.vacates.update(effects.vacated)
        self.moves.update(effects.moves.keys())
        for each in effects.ids:
            self.by_id[each].add(id)
        for slot in effects.slots:
            self.by_slot[slot].add(id)
            self.by_directory[slot[0]].add(id)

    def remove(self, id: str) -> None:
        """Remove the effects of an operation that was decided."""
        effects = self._all.pop(id)
        self.writes.subtract(effects.written)
        self.replaces.subtract(effects.replaced)
        self.vacates.subtract(effects.vacated)
        self.moves.subtract(effects.moves.keys())
        for each in effects.ids:
            self.by_id[each].discard(id)
        for slot in effects.slots:
            self.by_slot[slot].discard(id)
            self.by_directory[slot[0]].discard(id)

    def moving(self) -> set[str]:
        """Return the operations that would move a directory to another parent."""
        return {id for id, effects in self._all.items() if effects.moves}

    def shards(self, directory: str) -> dict[str, tuple[int, int]]:
        """Return the new version and shards of a directory for each operation that writes it."""
        return {
            each: shards
            for each in self.by_id[directory]
            if (shards := self._all[each].shards.get(directory)) is not None
        }

    def is_replaced_by_others(self, version: Version, effects: Effects) -> bool:
        """Return whether another pending change would replace or remove a version."""
        return self.replaces[version] > (version in effects.replaced)

    def is_moved_by_others(self, directories: Iterable[str], effects: Effects) -> bool:
        """Return whether another pending change would move one of some directories."""
        return any(self.moves[each] > (each in effects.moves) for each in directories)


def entries_of(change: LoggedChange) -> list[tuple[Version, NameSlot, int]]:
    """Return the entries that a change puts, with their name slots and shards."""
    return [
        ((str(state.item["id"]), state.version), *slot_of(key_of(state.item)))
        for state in change.states
        if state.item is not None and "id" in state.item
    ]


def shard_count(state: ItemState) -> int:
    """Return the number of shards of a directory; 0 if the state is not that of a directory."""
    if state.item is None or "id" not in state.item:
        return 0
    entry = Entry.from_item(state.item)
    return entry.shards.now if entry.is_directory else 0


def slot_of(key: Key) -> tuple[NameSlot, int]:
    """Return the name slot and the shard of an entry with this key."""
    place = parse_hash_key(key.hash)
    return (place.id, str(key.range)), place.shard


@define
class Inference:
    """Pending changes, and the facts from which their outcomes are inferred.

    Attributes:
        operations: the pending operations, by id.
        changes: the changes whose outcome is unknown.
    """

    operations: Mapping[str, Operation]
    changes: dict[str, LoggedChange]
    _effects: PendingEffects = field(factory=PendingEffects, init=False)
    _facts: CommittedFacts = field(factory=CommittedFacts, init=False)

    def __attrs_post_init__(self) -> None:
        for id, change in self.changes.items():
            effects = Effects.of(change)
            self._effects.add(id, effects)
            self._facts.watch(effects)

    @classmethod
    def of(cls, operations: Iterable[Operation]) -> Inference:
        """Return an inference about pending operations, without any facts yet."""
        by_id = {each.id: each for each in operations}
        return cls(by_id, {id: parse_change(each) for id, each in by_id.items()})

    def forget(self, id: str) -> None:
        """Remove an operation that was decided after all."""
        if id in self.changes:
            self._remove(id)

    def learn(self, change: LoggedChange) -> None:
        """Add a committed change."""
        self._facts.learn(change)

    @property
    def facts(self) -> CommittedFacts:
        """The facts so far; they know the subjects of the pending changes."""
        return self._facts

    def add_states(self, states: Iterable[ItemState]) -> None:
        """Add the newest states that all committed changes left."""
        self._facts.add_states(states)

    def decide_pending(self, decide: Callable[[Operation], Decision] | None) -> tuple[Operation, ...]:
        """Decide changes from the facts, and the rest with `decide`, the newest first.

        Returns the decided operations. Changes that remain undecided stay in `changes`.
        """
        decided: list[Operation] = []
        newest = sorted(self.changes)
        queue, waiting = list(newest), set(newest)

        def apply(id: str, decision: Decision) -> None:
            decided.append(evolve(self.operations[id], decision=decision))
            for touched in self._apply_decision(id, decision) - waiting:
                waiting.add(touched)
                heappush(queue, touched)

        heapify(queue)
        while self.changes:
            while queue:
                # Decide one at a time: each decision adds facts.
                waiting.remove(id := heappop(queue))
                if id in self.changes and (decision := self._infer(self._effects[id], id)) is not None:
                    apply(id, decision)
            if decide is None:
                break
            # Ask for the newest first: if it was committed, so were those on which it depends.
            id = newest.pop()
            if id in self.changes:
                apply(id, decide(self.operations[id]))
        return tuple(decided)

    # implementation

    def _remove(self, id: str) -> LoggedChange:
        self._effects.remove(id)
        return self.changes.pop(id)

    def _apply_decision(self, id: str, decision: Decision) -> set[str]:
        """Add the facts of a decision; return the pending changes that they may decide."""
        effects, pending = self._effects[id], self._effects
        touched: set[str] = set()
        for each in effects.ids:
            touched |= pending.by_id[each] | pending.by_directory[each]
        for slot in effects.slots.union(*(self._facts.slots_of[each] for each in effects.vacated)):
            touched |= pending.by_slot[slot]
        change = self._remove(id)
        if effects.moves:  # a path between two directories may have ended
            touched |= pending.moving()
        if decision is Decision.COMMITTED:
            self._facts.learn(change)
            self._facts.add_effects(effects)
            for _, (directory, _), _ in effects.adds:
                touched |= pending.by_id[directory]
        return {each for each in touched if each in self.changes}

    def _infer(self, effects: Effects, id: str) -> Decision | None:
        """Return the outcome of a change; None if the facts do not determine it."""
        facts, pending = self._facts, self._effects
        if effects.replaced & facts.replaced or effects.written & facts.written:
            return Decision.ROLLED_BACK  # another change replaced the same version
        if any(number == 1 and each in facts.highest_shard for each, number in effects.written):
            return Decision.COMMITTED
        if any(self._has_grown(directory, id) for directory in effects.shards):
            return Decision.COMMITTED
        if effects.written & facts.replaced:
            # A later change has read the version, which several changes would write.
            ambiguous = any(pending.writes[version] > 1 for version in effects.written)
            return None if ambiguous else Decision.COMMITTED
        for version, slot in effects.replaced_at:
            if not pending.is_replaced_by_others(version, effects) and self._has_left(
                version[0], slot, effects
            ):
                return Decision.COMMITTED
        if any(self._is_in_itself(directory, effects) for directory in effects.moves):
            return Decision.COMMITTED
        if any(pending.is_replaced_by_others(version, effects) for version in effects.written):
            return None  # the outcome of those changes is evidence too
        if any(self._would_be_in_itself(*move, effects) for move in effects.moves.items()):
            return Decision.ROLLED_BACK
        for (each, _), slot, shard in effects.adds:
            taken = any(not pending.vacates[other] for other in facts.ids_at[slot] - {each})
            if taken or slot[0] in facts.removed or not self._can_have(slot[0], shard):
                return Decision.ROLLED_BACK
        return None

    def _has_left(self, id: str, slot: NameSlot, effects: Effects) -> bool:
        """Return whether an entry must have left its place, and only by this change."""
        if id not in effects.vacated:
            return False
        directory, _ = slot
        stays = {(added, within) for (added, _), (within, _), _ in effects.adds}
        if directory in self._facts.removed and (id, directory) not in stays:
            return True  # only an empty directory is removed
        own = {added for (added, _), at, _ in effects.adds if at == slot} | {id}
        # The slot was free for its current entry, unless another change takes that entry away.
        others = self._facts.ids_at[slot] - own
        return any(self._effects.vacates[other] <= (other in effects.vacated) for other in others)

    def _is_in_itself(self, directory: str, effects: Effects) -> bool:
        """Return whether a directory would be its own ancestor if this change had not moved it away."""
        path = self._facts.above(directory)
        cycle = self._facts.parents.get(path[-1]) == directory
        return cycle and not self._effects.is_moved_by_others(path, effects)

    def _would_be_in_itself(self, directory: str, parent: str, effects: Effects) -> bool:
        """Return whether a directory is an ancestor of the one into which this change would move it."""
        path = self._facts.above(parent)
        return directory in path and not self._effects.is_moved_by_others(
            path[: path.index(directory)], effects
        )

    def _has_grown(self, directory: str, id: str) -> bool:
        """Return whether a shard with new entries exists only because of this change."""
        shard = self._facts.highest_shard.get(directory, -1)
        if shard < self._facts.shards.get(directory, 0):
            return False
        planned = self._effects.shards(directory)
        growing = {each for each, (_, shards) in planned.items() if shards > shard}

        def follows_growth(version: int) -> bool:
            before = {each for each, (other, _) in planned.items() if other == version - 1}
            return bool(before) and before <= growing

        return {each for each in growing if not follows_growth(planned[each][0])} == {id}

    def _can_have(self, directory: str, shard: int) -> bool:
        """Return whether a directory has a shard, or may have it."""
        return shard < self._facts.shards.get(directory, 0) or any(
            shards > shard for _, shards in self._effects.shards(directory).values()
        )
