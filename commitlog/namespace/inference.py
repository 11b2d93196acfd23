"""What became of changes that were pending when the table was lost: inferred from the log alone.

While the table is there its records tell what happened: see `recovery`. Without it, what others have
changed since, or could not have changed, may tell; and where nothing does, somebody has to say.

Imports the operation log, and its siblings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from heapq import heapify, heappop, heappush

from attrs import define, evolve, field

from commitlog.namespace.claims import Claim, Claims, Spot
from commitlog.namespace.known import Known
from commitlog.namespace.logged import LoggedChange, State, parsed
from commitlog.oplog import Decision, Operation

__all__ = ["Inference"]


@define
class Inference:
    """Changes that are pending, and what others tell of them.

    Attributes:
        operations: as the log has them, by id.
        changes: those of which nothing tells yet whether they happened.
    """

    operations: Mapping[str, Operation]
    changes: dict[str, LoggedChange]
    _claims: Claims = field(factory=Claims, init=False)
    _known: Known = field(factory=Known, init=False)

    def __attrs_post_init__(self) -> None:
        for id, change in self.changes.items():
            claim = Claim.of(change)
            self._claims.add(id, claim)
            self._known.ask(claim)

    @classmethod
    def of(cls, operations: Iterable[Operation]) -> Inference:
        """Return the pending operations, of which nothing is known yet."""
        pending = {each.id: each for each in operations}
        return cls(pending, {id: parsed(each) for id, each in pending.items()})

    def forget(self, id: str) -> None:
        """Take in that an operation was decided after all."""
        if id in self.changes:
            self._take(id)

    def learn(self, change: LoggedChange) -> None:
        """Take in a change that was committed."""
        self._known.learn(change)

    def look(self, states: Iterable[State]) -> None:
        """Take in what all committed changes together have made."""
        self._known.look(states)

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
                if id in self.changes and (decision := self._evidence(self._claims[id], id)) is not None:
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
        self._claims.remove(id)
        return self.changes.pop(id)

    def _settle(self, id: str, decision: Decision) -> set[str]:
        """Take in a decision; return the pending changes of which that may tell."""
        claim, claims = self._claims[id], self._claims
        touched: set[str] = set()
        for each in claim.ids:
            touched |= claims.of[each] | claims.inside[each]
        for spot in claim.spots.union(*(self._known.where[each] for each in claim.left)):
            touched |= claims.around[spot]
        change = self._take(id)
        if claim.moves:  # what was a way to another directory may be none any more
            touched |= claims.moving()
        if decision is Decision.COMMITTED:
            self._known.learn(change)
            self._known.follow(claim)
            for _, (directory, _), _ in claim.added:
                touched |= claims.of[directory]
        return {each for each in touched if each in self.changes}

    def _evidence(self, claim: Claim, id: str) -> Decision | None:
        """Tell what became of a change, if what is known tells."""
        known, claims = self._known, self._claims
        if claim.seen & known.seen or claim.made & known.made:
            return Decision.ROLLED_BACK  # somebody else has replaced the same
        if any(number == 1 and of in known.within for of, number in claim.made):
            return Decision.COMMITTED
        if any(self._has_grown(of, id) for of in claim.shards):
            return Decision.COMMITTED
        if claim.made & known.seen:
            # Seen is what one of those made that would all have replaced the same.
            rivals = any(claims.makes[version] > 1 for version in claim.made)
            return None if rivals else Decision.COMMITTED
        for version, spot in claim.before:
            if not claims.is_seen_by_others(version, claim) and self._is_left(version[0], spot, claim):
                return Decision.COMMITTED
        if any(self._is_in_itself(of, claim) for of in claim.moves):
            return Decision.COMMITTED
        if any(claims.is_seen_by_others(version, claim) for version in claim.made):
            return None  # whether those happened tells more
        if any(self._would_be_in_itself(*move, claim) for move in claim.moves.items()):
            return Decision.ROLLED_BACK
        for (each, _), spot, shard in claim.added:
            there = any(not claims.leaves[other] for other in known.at[spot] - {each})
            if there or spot[0] in known.gone or not self._can_have(spot[0], shard):
                return Decision.ROLLED_BACK  # there was no room for it
        return None

    def _is_left(self, id: str, spot: Spot, claim: Claim) -> bool:
        """Tell whether something must have left its place, and only this change can have taken it."""
        if id not in claim.left:
            return False
        directory, _ = spot
        stays = {(i, of) for (i, _), (of, _), _ in claim.added}
        if directory in self._known.gone and (id, directory) not in stays:
            return True  # a directory is removed when nothing is in it
        own = {i for (i, _), place, _ in claim.added if place == spot} | {id}
        # It has made room for what is there now, unless another change takes that away.
        others = self._known.at[spot] - own
        return any(self._claims.leaves[other] <= (other in claim.left) for other in others)

    def _is_in_itself(self, directory: str, claim: Claim) -> bool:
        """Tell whether a directory were below itself if this change had not moved it away."""
        path = self._known.above(directory)
        cycle = self._known.parents.get(path[-1]) == directory
        return cycle and not self._claims.is_moved_by_others(path, claim)

    def _would_be_in_itself(self, directory: str, parent: str, claim: Claim) -> bool:
        """Tell whether a directory is above that into which this change would move it."""
        path = self._known.above(parent)
        return directory in path and not self._claims.is_moved_by_others(
            path[: path.index(directory)], claim
        )

    def _has_grown(self, directory: str, id: str) -> bool:
        """Tell whether others have added to a shard that there is by this change, and no other."""
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
        """Tell whether a directory has a shard, or may have."""
        return shard < self._known.shards.get(directory, 0) or any(
            shards > shard for _, shards in self._claims.shards(directory).values()
        )
