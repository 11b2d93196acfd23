"""What committed changes tell of the things that pending ones are about, when the table is lost.

Imports its siblings.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from attrs import define, field

from commitlog.namespace.claims import Claim, Spot, added_by, shards_of, spot_of
from commitlog.namespace.items import key_of
from commitlog.namespace.keys import TOP
from commitlog.namespace.logged import LoggedChange, State, Version

__all__ = ["Known"]


@define
class Known:
    """What committed changes have made.

    Attributes:
        made, seen: versions that they have made, and have replaced or removed.
        within: the highest shard of each directory to which they have added.
        shards: how many each directory has.
        at, where: which ids are at a spot; and where each of these is.
        gone: directories that are no more.
        parents: in which directory each one is, if pending changes would move some.
    """

    made: set[Version] = field(factory=set, init=False)
    seen: set[Version] = field(factory=set, init=False)
    within: dict[str, int] = field(factory=dict, init=False)
    shards: dict[str, int] = field(factory=lambda: {TOP: 1}, init=False)
    at: defaultdict[Spot, set[str]] = field(factory=lambda: defaultdict(set), init=False)
    where: defaultdict[str, set[Spot]] = field(factory=lambda: defaultdict(set), init=False)
    gone: set[str] = field(factory=set, init=False)
    parents: dict[str, str] = field(factory=dict, init=False)
    #: What pending changes are about: only of that it is kept.
    _versions: set[Version] = field(factory=set, init=False)
    _spots: set[Spot] = field(factory=set, init=False)
    _directories: set[str] = field(factory=set, init=False)
    _moves: bool = field(default=False, init=False)

    def ask(self, claim: Claim) -> None:
        """Keep what is learned from now on of the things that a pending change is about."""
        self._versions |= claim.made | claim.seen
        self._spots |= claim.spots
        self._directories.update(of for of, _ in claim.spots)
        self._directories |= claim.shards.keys()
        self._moves = self._moves or bool(claim.moves)

    def learn(self, change: LoggedChange) -> None:
        """Take in a change that was committed."""
        self.made |= change.made & self._versions
        self.seen |= change.seen & self._versions
        for _, (of, _), shard in added_by(change):
            if of in self._directories:
                self.within[of] = max(shard, self.within.get(of, 0))

    def look(self, states: Iterable[State]) -> None:
        """Take in what all committed changes together have made."""
        for state in states:
            id = state.of.removeprefix("e/")
            if id == state.of:
                continue
            if state.item is not None:
                spot, _ = spot_of(key_of(state.item))
                if spot in self._spots:
                    self._come(id, spot)
                if self._moves and shards_of(state):
                    self.parents[id] = spot[0]
            if id in self._directories:
                if state.item is None:
                    self.gone.add(id)
                else:
                    self.shards[id] = shards_of(state)

    def follow(self, claim: Claim) -> None:
        """Take in what a pending change has made after all; `learn` it before."""
        self.gone |= claim.gone
        for of, (_, shards) in claim.shards.items():
            self.shards[of] = max(shards, self.shards.get(of, 0))
        for (each, _), spot in claim.before:
            if each in claim.left:
                self.at[spot].discard(each)
                self.where[each].discard(spot)
        for version, spot, _ in claim.added:
            if version not in self.seen:  # else it is there no more
                self._come(version[0], spot)
                if version[0] in claim.shards:
                    self.parents[version[0]] = spot[0]

    def above(self, directory: str) -> list[str]:
        """Return a directory, and those above it, as far as they are known, each once."""
        path = [directory]
        while (above := self.parents.get(path[-1])) is not None and above not in path:
            path.append(above)
        return path

    def _come(self, id: str, spot: Spot) -> None:
        self.at[spot].add(id)
        self.where[id].add(spot)
