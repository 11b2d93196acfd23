"""Watermarks: the modification times before which all objects of a listing are known."""

from __future__ import annotations

import math
from bisect import bisect_left
from itertools import pairwise
from typing import Any

from attrs import evolve, field, frozen

from commitlog.oplog.validate import items, moment, text

__all__ = ["Watermarks", "watermark_from", "watermark_json"]

#: After this many steps, the next ones are twice as long: the state row must stay small.
_STEPS = 64


def _rising(_self: object, _attribute: object, steps: tuple[tuple[str, float], ...]) -> None:
    if any(left[0] >= right[0] or left[1] >= right[1] for left, right in pairwise(steps)):
        raise ValueError("steps must rise")


@frozen(kw_only=True)
class Watermarks:
    """The watermarks of a listing: a step function over its paths, which rises with them.

    The paths after the last step are the *tail* of the listing, all others its *body*. If keys have no
    order, the whole listing is the tail.

    Attributes:
        steps: the last path of each step, and its watermark; both rise.
        tail: watermark of the paths after the last step, at least the watermark of that step.

    Watermarks are epoch seconds. Objects modified *before* the watermark of their path are known; -inf:
    none.

    >>> marks = Watermarks(tail=7.0).settled("k", stride=1.0).raised(9.0).settled("p", stride=1.0)
    >>> marks.of("a"), marks.of("k"), marks.of("l"), marks.of("p"), marks.of("q")
    (7.0, 7.0, 9.0, 9.0, 9.0)
    >>> marks.swept(8.0).of("a")
    8.0
    """

    steps: tuple[tuple[str, float], ...] = field(default=(), validator=_rising)
    tail: float = -math.inf

    @property
    def boundary(self) -> str:
        """The path after which the tail begins; "" if the whole listing is the tail."""
        return self.steps[-1][0] if self.steps else ""

    @property
    def lowest(self) -> float:
        """The lowest watermark."""
        return self.steps[0][1] if self.steps else self.tail

    def of(self, path: str) -> float:
        """Return the watermark of a path."""
        step = bisect_left(self.steps, (path,))
        return self.steps[step][1] if step < len(self.steps) else self.tail

    def raised(self, watermark: float) -> Watermarks:
        """Return the watermarks after a sweep of the tail with `watermark`.

        Watermarks never fall, even if the store's clock goes back.
        """
        return evolve(self, tail=max(self.tail, watermark))

    def settled(self, path: str, *, stride: float) -> Watermarks:
        """Return the watermarks with the boundary at `path`: the paths up to it belong to the body.

        All objects there must have been modified before `tail`, so that none must be remembered. The
        mark does not move if its last move was less than `stride` seconds ago, or longer if there are
        many steps.
        """
        if path <= self.boundary:
            return self
        last = self.steps[-1][1] if self.steps else None
        if last == self.tail:
            return evolve(self, steps=(*self.steps[:-1], (path, last)))
        if last is not None and self.tail < last + stride * 2 ** (len(self.steps) // _STEPS):
            return self
        return evolve(self, steps=(*self.steps, (path, self.tail)))

    def swept(self, watermark: float) -> Watermarks:
        """Return the watermarks after a sweep of the body with `watermark`, at most that of the tail."""
        passed = [path for path, below in self.steps if below <= watermark]
        if not passed:
            return self
        return evolve(self, steps=((passed[-1], watermark), *self.steps[len(passed) :]))

    def to_json(self) -> list[Any]:
        """Return the fields as they are stored."""
        return [
            watermark_json(self.tail),
            *([path, watermark_json(watermark)] for path, watermark in self.steps),
        ]

    @classmethod
    def from_json(cls, value: object) -> Watermarks:
        """Return the watermarks that `value` describes; for use in `commitlog.oplog.validate.build`."""
        tail, *steps = items(value)
        pairs = (items(step) for step in steps)
        return cls(
            tail=watermark_from(tail),
            steps=tuple((text(path), watermark_from(watermark)) for path, watermark in pairs),
        )


def watermark_json(watermark: float) -> float | None:
    """Return a watermark as it is stored."""
    return None if watermark == -math.inf else watermark


def watermark_from(value: object) -> float:
    """Return the watermark in `value`; for use in `commitlog.oplog.validate.build`."""
    return -math.inf if value is None else moment(value)
