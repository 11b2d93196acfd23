"""Where the simulator gets its decisions from: all that could go one way or another is asked here.

What is decided in which order is the simulator's matter. So one list of picks is one run, and a run can
be drawn from a seed, replayed, enumerated (`commitlog.testing.sim.explore`) or left to Hypothesis.

Imports nothing of the project.
"""

from __future__ import annotations

import itertools
import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Protocol

from attrs import define, field, frozen

__all__ = ["Choices", "Deviating", "Drawn", "Pick", "Recording", "Replayed", "Seeded"]


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


@define
class Deviating:
    """The ordinary decision each time, except where another is ordered.

    The orders still fit when the code around them changes, as those of `Replayed` do not.

    Args:
        orders: which alternative to take, by what is decided and the how many-th time it is, from 1.

    >>> choices = Deviating({("A latency", 2): 1})
    >>> [choices.pick("A latency", [1, 1]) for _ in range(3)]
    [0, 1, 0]
    """

    orders: Mapping[tuple[str, int], int]
    _times: Counter[str] = field(factory=Counter, init=False)

    def pick(self, what: str, weights: Sequence[float]) -> int:
        """See `Choices.pick`."""
        self._times[what] += 1
        return min(self.orders.get((what, self._times[what]), 0), len(weights) - 1)


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

    @property
    def deviations(self) -> dict[tuple[str, int], int]:
        """The picks that were not ordinary; ``Deviating(recording.deviations)`` repeats all."""
        found: dict[tuple[str, int], int] = {}
        times: Counter[str] = Counter()
        for pick in self.picks:
            times[pick.what] += 1
            if pick.index:
                found[pick.what, times[pick.what]] = pick.index
        return found


@lru_cache(maxsize=1024)
def _sums(weights: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(itertools.accumulate(weights))


def _at(weights: Sequence[float], share: float) -> int:
    sums = _sums(tuple(weights))
    return min(bisect_right(sums, share * sums[-1]), len(sums) - 1)
