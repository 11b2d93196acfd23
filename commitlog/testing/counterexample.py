"""`Counterexample`: a small set of calls that cannot have happened one at a time, and its rendering.

The search has two steps, and the calls remain a proof after each. First, it truncates the history at the
earliest time at which it is wrong. Calls in flight at that time may or may not have happened. Then it
removes calls as long as the rest stays wrong *even if only the beginnings of the removed calls were
known*.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence

from attrs import evolve, frozen

from commitlog.testing.history import Action, Call, Outcome
from commitlog.testing.linearization import CheckUndecided, linearize

__all__ = ["Counterexample", "describe", "timeline"]

#: How many configurations may be looked at to find the fewest calls.
_CONFIGURATIONS = 200_000

_ENDS = {
    Outcome.DONE: "done",
    Outcome.CONTRADICTED: "refused",
    Outcome.NOTHING: "nothing happened",
    Outcome.UNKNOWN: "unknown",
}


@frozen
class Counterexample:
    """Calls on one key that no order explains.

    Attributes:
        calls: the calls, in the order in which they began. A call in flight when the history went wrong
            has an unknown outcome here.
        order: the longest valid order of some of these calls that was found.
        origins: other calls, with any outcome, that tried to write the versions that `calls` name.
        total: number of calls on the key in the history.
    """

    calls: tuple[Call, ...]
    order: tuple[Call, ...]
    origins: tuple[Call, ...]
    total: int

    @classmethod
    def of(cls, calls: Sequence[Call], *, limit: int) -> Counterexample:
        """Return one from calls on one key that no order explains, sorted by their beginning.

        No single call of it can be left out, as far as a reasonable search time shows. `limit` is the
        limit of `linearize` within which no order was found.
        """
        cut = _shortest(calls, limit)
        trial = _Trial(cut)
        kept = _fewest(_related(cut, trial), trial)
        found = linearize(kept, others=_without(cut, kept), limit=max(limit, _CONFIGURATIONS))
        order = tuple(call for call in found.order if call in kept)
        return cls(tuple(kept), order, tuple(_origins(calls, kept)), len(calls))

    def __str__(self) -> str:
        lines = [
            f"{len(self.calls)} of {self.total} calls prove it, whatever became of the others:",
            *timeline(self.calls),
        ]
        labels = {call: f"#{number}" for number, call in enumerate(self.calls, 1)}
        order = ", ".join(labels[call] for call in self.order)
        lines.append(f"the longest order that fits: {order}" if order else "none of them can come first")
        lines += [f"{call.version!r} is from {call.client}: {describe(call)}" for call in self.origins]
        return "\n".join(lines)


def timeline(calls: Sequence[Call]) -> list[str]:
    """Return a line for each call, with a bar from its beginning to its end, on a scale of events."""
    moments = {moment for call in calls for moment in (call.invoked, call.returned)}
    step = min(4.0, 60 / len(moments))
    places = {moment: round(step * number) for number, moment in enumerate(sorted(moments))}
    width = max(places.values()) + 1
    lines = []
    for number, call in enumerate(calls, 1):
        begin, end = places[call.invoked], places[call.returned]
        bar = " " * begin + "|" + "-" * (end - begin - 1) + ("?" if math.isinf(call.returned) else "|")
        lines.append(f"  {bar:{width}}  #{number} {call.client}: {describe(call)}")
    return lines


def describe(call: Call) -> str:
    """Return the action of a call and its outcome in one line.

    >>> describe(Call(client="A", action=Action.REPLACE, key="k", expected="w1", version="w2",
    ...               outcome=Outcome.DONE, invoked=1, returned=2))
    "replace 'w1' by 'w2': done"
    """
    name = call.name or call.action.value
    if call.action is Action.READ:
        return f"{name}: " + ("no object" if call.version is None else f"{call.version!r}")
    what = {
        Action.CREATE: f"{call.version!r}",
        Action.REPLACE: f"{call.expected!r} by {call.version!r}",
        Action.REMOVE: f"{call.expected!r}",
    }[call.action]
    return f"{name} {what}: {_ENDS[call.outcome]}"


class _Trial:
    """Tests whether some calls are wrong, whatever the other calls did; False after too many tests."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self._calls = calls
        self._left = _CONFIGURATIONS

    def __call__(self, kept: Sequence[Call]) -> bool:
        limit = min(self._left, _CONFIGURATIONS // 20)
        try:
            found = linearize(kept, others=_without(self._calls, kept), limit=limit)
        except CheckUndecided:
            self._left -= limit
            return False
        self._left -= found.configurations
        return not found.complete


def _without(calls: Sequence[Call], kept: Sequence[Call]) -> list[Call]:
    stay = {id(call) for call in kept}
    return [call for call in calls if id(call) not in stay]


def _shortest(calls: Sequence[Call], limit: int) -> Sequence[Call]:
    """Return the calls that had begun at the earliest moment at which the history was wrong."""

    def wrong(moment: float) -> bool:
        try:
            return not linearize(_until(calls, moment), limit=limit).complete
        except CheckUndecided:
            return False

    *moments, last = sorted({call.returned for call in calls if call.outcome is not Outcome.UNKNOWN})
    return _until(calls, [*moments, last][bisect_left(moments, True, key=wrong)])


def _until(calls: Sequence[Call], moment: float) -> list[Call]:
    """Return the calls known at `moment`; of calls in flight only the beginning is known."""
    return [
        call if call.returned <= moment else evolve(call, outcome=Outcome.UNKNOWN, returned=math.inf)
        for call in calls
        if call.invoked <= moment
    ]


def _related(calls: Sequence[Call], wrong: Callable[[Sequence[Call]], bool]) -> Sequence[Call]:
    """Return calls that are wrong by themselves: those related to the last response.

    This avoids trying thousands of calls. The error is related to the versions that the last response
    names, and to those in the responses shortly before.
    """
    known = [call for call in calls if call.outcome is not Outcome.UNKNOWN]
    known.sort(key=lambda call: call.returned, reverse=True)
    count = 1
    while count < len(known):
        latest = set(known[:count])
        versions = {version for call in latest for version in _versions(call)}
        some = [call for call in calls if call in latest or versions & _versions(call)]
        if wrong(some):
            return some
        count *= 2
    return calls


def _versions(call: Call) -> set[str]:
    return {version for version in (call.expected, call.version) if version is not None}


def _fewest(calls: Sequence[Call], wrong: Callable[[Sequence[Call]], bool]) -> list[Call]:
    """Remove calls as long as the rest is wrong, larger parts first.

    More calls are never less wrong, so a call that was needed once stays needed.
    """
    kept = list(calls)
    size = len(kept)
    while size:
        start = 0
        while start < len(kept):
            rest = kept[:start] + kept[start + size :]
            if wrong(rest):
                kept = rest
            else:
                start += size
        size //= 2
    return kept


def _origins(calls: Sequence[Call], kept: Sequence[Call]) -> list[Call]:
    """Return the calls that tried to write versions that the kept calls name but did not write."""
    wanted = {call.needs for call in kept} - {call.version for call in kept if call.writes} - {None}
    return [call for call in calls if call.action is not Action.READ and call.version in wanted]
