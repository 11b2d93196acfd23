"""Floors: up to which modification time everything is known, for each part of a listing.

Imports the ground floor.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from itertools import pairwise
from typing import Any

from attrs import evolve, field, frozen

from commitlog.oplog.fields import items, moment, text

__all__ = ["Floors", "floor_from", "floor_json"]

#: After so many steps, the next ones are twice as long: a list row has to stay small.
_STEPS = 64


def _rising(_self: object, _attribute: object, steps: tuple[tuple[str, float], ...]) -> None:
    if any(left[0] >= right[0] or left[1] >= right[1] for left, right in pairwise(steps)):
        raise ValueError("steps rise")


@frozen(kw_only=True)
class Floors:
    """A flight of steps over the paths of a listing: the further up, the later is the floor.

    The paths behind the last step are the *tail* of the listing, all others its *body*. Where keys have
    no order, all is tail.

    Attributes:
        steps: the last path of each step, and its floor; both rise.
        tail: floor of the paths behind the last step. Not below it.

    Floors are epoch seconds; objects modified *before* them are known. -inf: none are.

    >>> floors = Floors(tail=7.0).settled("k", stride=1.0).raised(9.0).settled("p", stride=1.0)
    >>> floors.of("a"), floors.of("k"), floors.of("l"), floors.of("p"), floors.of("q")
    (7.0, 7.0, 9.0, 9.0, 9.0)
    >>> floors.swept(8.0).of("a")
    8.0
    """

    steps: tuple[tuple[str, float], ...] = field(default=(), validator=_rising)
    tail: float = -math.inf

    @property
    def mark(self) -> str:
        """The path behind which the tail begins; "" where all is tail."""
        return self.steps[-1][0] if self.steps else ""

    @property
    def lowest(self) -> float:
        """The lowest floor."""
        return self.steps[0][1] if self.steps else self.tail

    def of(self, path: str) -> float:
        """Return the floor of a path."""
        step = bisect_left(self.steps, (path,))
        return self.steps[step][1] if step < len(self.steps) else self.tail

    def raised(self, floor: float) -> Floors:
        """Return the floors once the tail is known up to `floor`.

        A store's clock may go back; what was known stays known.
        """
        return evolve(self, tail=max(self.tail, floor))

    def settled(self, path: str, *, stride: float) -> Floors:
        """Return the floors once what lies behind the mark, up to `path`, belongs to the body.

        All objects there must have been modified before `tail`, so that none need be remembered. The
        mark stays where it is if it was moved less than `stride` seconds ago, or some more of them if
        there are many steps.
        """
        if path <= self.mark:
            return self
        last = self.steps[-1][1] if self.steps else None
        if last == self.tail:
            return evolve(self, steps=(*self.steps[:-1], (path, last)))
        if last is not None and self.tail < last + stride * 2 ** (len(self.steps) // _STEPS):
            return self
        return evolve(self, steps=(*self.steps, (path, self.tail)))

    def swept(self, floor: float) -> Floors:
        """Return the floors once all of the body is known up to `floor`, not above the tail's."""
        passed = [path for path, below in self.steps if below <= floor]
        if not passed:
            return self
        return evolve(self, steps=((passed[-1], floor), *self.steps[len(passed) :]))

    def to_json(self) -> list[Any]:
        """Return the fields as they are stored."""
        return [floor_json(self.tail), *([path, floor_json(floor)] for path, floor in self.steps)]

    @classmethod
    def from_json(cls, value: object) -> Floors:
        """Return the floors that `value` describes; for use in `commitlog.oplog.fields.build`."""
        tail, *steps = items(value)
        pairs = (items(step) for step in steps)
        return cls(
            tail=floor_from(tail), steps=tuple((text(path), floor_from(floor)) for path, floor in pairs)
        )


def floor_json(floor: float) -> float | None:
    """Return a floor as it is stored."""
    return None if floor == -math.inf else floor


def floor_from(value: object) -> float:
    """Return the floor that `value` is; for use in `commitlog.oplog.fields.build`."""
    return -math.inf if value is None else moment(value)
