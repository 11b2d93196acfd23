"""`Counterexample`: the few calls that can not have happened one at a time, and a picture of them.

Imports the history and the search for an order.

It is found in steps each of which keeps it a proof. The history is cut off at the earliest moment at
which it is wrong; what was under way by then may have happened or not. Then calls are left out while the
rest stays wrong *even if each call left out took effect whenever it could, as often as it could*.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence

from attrs import evolve, frozen

from commitlog.testing.history import Action, Call, Outcome
from commitlog.testing.linearization import CheckUndecided, linearize

__all__ = ["Counterexample", "describe"]

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
        calls: them, in the order in which they began. One that was under way when the history went wrong
            has an unknown outcome here.
        order: the longest order of some of them that was found.
        denied: calls that ended without effect although a version that only they would have written was
            seen.
        total: how many calls on the key there are in the history.
    """

    calls: tuple[Call, ...]
    order: tuple[Call, ...]
    denied: tuple[Call, ...]
    total: int

    @classmethod
    def of(cls, calls: Sequence[Call], *, limit: int) -> Counterexample:
        """Return one from calls on one key that no order explains, sorted by their beginning.

        No single call of it can be left out, as far as could be told within reasonable time. `limit` is
        that of `linearize`; raises `CheckUndecided`.
        """
        cut = _shortest(calls, lambda some: not linearize(some, limit=limit).complete)
        trial = _Trial(cut)
        kept = _fewest(_related(cut, trial), trial)
        order = linearize(kept, anytime=_without(cut, kept), limit=limit).order
        return cls(tuple(kept), order, tuple(_denied(calls, kept)), len(calls))

    def __str__(self) -> str:
        lines = [
            f"{len(self.calls)} of {self.total} calls prove it, even if the others took effect whenever "
            "they could, as often as they could:",
            *timeline(self.calls),
        ]
        names = {call: f"#{number}" for number, call in enumerate(self.calls, 1)}
        order = ", ".join(names[call] for call in self.order)
        lines.append(f"the longest order that fits: {order}" if order else "none of them can come first")
        lines += [f"{call.client} was told of {describe(call)}" for call in self.denied]
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
    """Return what a call was, and how it ended, in a few words.

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
    """Tells whether some calls are wrong, whatever the others did. After many trials it just says no."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self._calls = calls
        self._left = _CONFIGURATIONS

    def __call__(self, kept: Sequence[Call]) -> bool:
        limit = min(self._left, _CONFIGURATIONS // 20)
        try:
            found = linearize(kept, anytime=_without(self._calls, kept), limit=limit)
        except CheckUndecided:
            self._left -= limit
            return False
        self._left -= found.configurations
        return not found.complete


def _without(calls: Sequence[Call], kept: Sequence[Call]) -> list[Call]:
    stay = {id(call) for call in kept}
    return [call for call in calls if id(call) not in stay]


def _shortest(calls: Sequence[Call], wrong: Callable[[Sequence[Call]], bool]) -> Sequence[Call]:
    """Return what had begun by the earliest moment at which the calls were wrong."""
    moments = sorted({call.returned for call in calls if call.outcome is not Outcome.UNKNOWN})
    at = bisect_left(range(len(moments)), True, key=lambda place: wrong(_until(calls, moments[place])))
    return _until(calls, moments[at])


def _until(calls: Sequence[Call], moment: float) -> list[Call]:
    """Return what was known at `moment`. Of what was under way, only what had an effect can matter."""
    return [
        call if call.returned <= moment else evolve(call, outcome=Outcome.UNKNOWN, returned=math.inf)
        for call in calls
        if call.invoked <= moment and (call.returned <= moment or call.writes)
    ]


def _related(calls: Sequence[Call], wrong: Callable[[Sequence[Call]], bool]) -> Sequence[Call]:
    """Return calls that are wrong by themselves: all that name a version that the latest ones name.

    What went wrong last has to do with the versions in it, and with those there shortly before.
    """
    latest = sorted(calls, key=_known_at, reverse=True)
    count = 1
    while count < len(calls):
        words = {word for call in latest[:count] for word in _words(call)}
        some = [call for call in calls if words & _words(call)]
        if wrong(some):
            return some
        count *= 2
    return calls


def _known_at(call: Call) -> float:
    return call.invoked if call.outcome is Outcome.UNKNOWN else call.returned


def _words(call: Call) -> set[str]:
    return {word for word in (call.expected, call.version) if word is not None}


def _fewest(calls: Sequence[Call], wrong: Callable[[Sequence[Call]], bool]) -> list[Call]:
    """Leave out calls for as long as the rest is wrong, larger pieces first.

    As Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input" (2002), do it.
    """
    kept = list(calls)
    size = len(kept)
    while size:
        start, before = 0, len(kept)
        while start < len(kept):
            rest = kept[:start] + kept[start + size :]
            if wrong(rest):
                kept = rest
            else:
                start += size
        # A call that goes may let go one that was tried before it.
        size = size // 2 if size > 1 or len(kept) == before else 1
    return kept


def _denied(calls: Sequence[Call], kept: Sequence[Call]) -> list[Call]:
    """Return the calls that did nothing, though a version is found that they alone were to write."""
    written = {call.version for call in calls if call.writes}
    found = {call.version if call.action is Action.READ else call.expected for call in kept}
    return [
        call
        for call in calls
        if call.action is not Action.READ and not call.writes and call.version in found - written
    ]
