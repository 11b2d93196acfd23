"""Where the simulator gets its decisions from: all that could go one way or another is asked here.

What is decided in which order is the simulator's matter. So one list of picks is one run, and a run can
be drawn from a seed, replayed, enumerated (`commitlog.testing.sim.explore`) or left to Hypothesis.

Imports nothing of the project.
"""

from __future__ import annotations

import itertools
import random
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from attrs import define, field, frozen

__all__ = ["Choices", "Drawn", "Pick", "Recording", "Replayed", "Seeded"]


class Choices(Protocol):
    """A source of decisions."""

    def pick(self, what: str, weights: Sequence[float]) -> int:
        """Return the index of one of ``len(weights)`` alternatives, at least one.

        Args:
            what: what is decided, for people.
            weights: how often each is wanted, relative to the others. The first alternative is the
                ordinary one: nothing goes wrong, things happen in the order in which they began.
        """


class Seeded:
    """Decisions drawn from a seed: the same seed, the same run.

    >>> [Seeded(7).pick("", [1, 1, 1]) for _ in range(3)]
    [0, 0, 0]
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def pick(self, what: str, weights: Sequence[float]) -> int:
        """See `Choices.pick`."""
        return _at(weights, self._random.random())


@define
class Replayed:
    """Decisions made before, in order; after their end, the ordinary one each time.

    A pick that is out of range, since the code has changed, stands for the last alternative.
    """

    picks: Sequence[int]
    _next: int = 0

    def pick(self, what: str, weights: Sequence[float]) -> int:
        """See `Choices.pick`."""
        at, self._next = self._next, self._next + 1
        return min(self.picks[at], len(weights) - 1) if at < len(self.picks) else 0

    @property
    def exhausted(self) -> bool:
        """True once all picks were used."""
        return self._next >= len(self.picks)


class Drawn:
    """Decisions drawn by Hypothesis, which shrinks them towards the ordinary ones.

    Args:
        draw: returns an integer in ``[0, n)`` for n, such as
            ``lambda n: data.draw(strategies.integers(0, n - 1))``.
    """

    def __init__(self, draw: Callable[[int], int]) -> None:
        self._draw = draw

    def pick(self, what: str, weights: Sequence[float]) -> int:
        """See `Choices.pick`."""
        return _at(weights, self._draw(_GRAIN) / _GRAIN)


_GRAIN = 10_000


@frozen
class Pick:
    """A decision that was made.

    Attributes:
        what: what was decided.
        index: which alternative was taken.
        of: how many there were.
    """

    what: str
    index: int
    of: int


@define
class Recording:
    """Decisions of another source, kept in `picks`; ``Replayed(recording.indexes)`` repeats them."""

    source: Choices
    picks: list[Pick] = field(factory=list)

    def pick(self, what: str, weights: Sequence[float]) -> int:
        """See `Choices.pick`."""
        index = self.source.pick(what, weights)
        self.picks.append(Pick(what, index, len(weights)))
        return index

    @property
    def indexes(self) -> tuple[int, ...]:
        """What was picked so far."""
        return tuple(pick.index for pick in self.picks)


def _at(weights: Iterable[float], share: float) -> int:
    sums = list(itertools.accumulate(weights))
    return min(bisect_right(sums, share * sums[-1]), len(sums) - 1)
