"""`linearize`: looks for an order in which the calls on one key could have happened one at a time.

The algorithm is that of Wing and Gong, "Testing and Verifying Concurrent Objects" (1993), with Lowe's
memory of the configurations seen and his linked list, "Testing for Linearizability" (2017), adapted to
an object of which there is one version or none:

* Calls that change nothing (reads, and calls whose condition did not hold) are taken as soon as they
  fit. This loses no order: such a call could move to the front of every order that continues from here.
* Calls with an unknown outcome may be taken at any time after they began, or never. Of several such
  calls with the same effect, the search tries only the one that began first: it can replace each of the
  others.
* A version that no call names except the unknown call that writes it is equivalent to any other such
  version. So of the unknown writes that no other call saw, the search tries one at a time.

The search then tries each overlapping write that fits as the first one. So the time is about
proportional to the number of calls times the number of overlapping calls, unless other calls saw many of
the writes with an unknown outcome. `limit` bounds it in any case.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from attrs import frozen

from commitlog.testing.history import Call, Outcome

__all__ = ["CheckUndecided", "Linearization", "linearize"]

#: States are numbered: no object, a version that no call names, a version that only `others` name, and
#: then the versions that the calls name.
_ABSENT, _IDLE, _OTHER = 0, 1, 2
#: The state after a call that changes nothing: the state before it.
_SAME = -1


class CheckUndecided(RuntimeError):
    """The error of a check that needs more configurations than its limit allows."""


@frozen
class Linearization:
    """The result of the search.

    Attributes:
        complete: whether the order includes all calls with a known outcome.
        order: the calls in an order that explains them; if incomplete, the longest one found.
        configurations: number of configurations examined.
    """

    complete: bool
    order: tuple[Call, ...]
    configurations: int


def linearize(calls: Iterable[Call], *, others: Iterable[Call] = (), limit: int) -> Linearization:
    """Put calls on one key in an order, beginning without an object, that explains their results.

    A call comes before another if it returned before the other was invoked. Calls that are known to have
    changed nothing and returned no state, and reads without a response, are left out.

    Args:
        calls: all on one key, in any order.
        others: calls on that key of which only the beginning is known. Versions that `calls` do not name
            are treated as equal, so more orders are allowed.
        limit: maximum number of configurations to examine.

    Raises:
        CheckUndecided: the limit was reached.
    """
    return _Search(calls, others, limit).run()


class _Search:
    """One search. The number of a call is its position in the order in which calls began."""

    def __init__(self, calls: Iterable[Call], others: Iterable[Call], limit: int) -> None:
        ordered = sorted(calls, key=lambda call: call.invoked)
        self._known = [call for call in ordered if call.outcome in (Outcome.DONE, Outcome.CONTRADICTED)]
        self._unknown = [call for call in ordered if call.outcome is Outcome.UNKNOWN and call.writes]
        self._limit = limit
        others = [call for call in others if call.writes]
        self._codes = _codes([*self._known, *self._unknown], others)
        self._trail: list[int] = []
        # A shared number for versions that are treated as equal.
        self._anytime: dict[int, set[int]] = {}
        for call in others:
            before, after = self._change(call)
            if before > _OTHER or after > _OTHER:
                self._unknown.append(call)
            else:
                self._anytime.setdefault(before, set()).add(after)
        self._unknown.sort(key=lambda call: call.invoked)

        # For each known call: the state that it needs, or must not find, and the state that it leaves.
        self._state = [self._code(call.needs) for call in self._known]
        self._equal = [call.outcome is Outcome.DONE for call in self._known]
        self._after = [self._code(call.version) if call.writes else _SAME for call in self._known]
        # The remaining calls form a ring around their count; the taken calls are bits.
        self._count = len(self._known)
        self._next = [*range(1, self._count + 1), 0]
        self._previous = [self._count, *range(self._count)]
        self._lifted = 0

        # Unknown calls, in groups with the same effect, and how many of each group are taken.
        groups: dict[tuple[int, int], list[int]] = {}
        for number, call in enumerate(self._unknown):
            groups.setdefault(self._change(call), []).append(number)
        self._groups = list(groups.values())
        self._taken = [0] * len(groups)
        self._used = 0
        self._possible: dict[int, list[tuple[int, int]]] = {}
        for group, (before, after) in enumerate(groups):
            self._possible.setdefault(before, []).append((group, after))

    def run(self) -> Linearization:
        """Search depth first, without recursion."""
        open_choices = [(self._settle(_ABSENT), len(self._trail))]
        seen = {self._configuration(_ABSENT)}
        longest: list[int] = []
        while self._next[self._count] != self._count:
            if not open_choices:
                return Linearization(False, self._calls(longest), len(seen))
            choices, mark = open_choices[-1]
            self._undo(mark)
            if not choices:
                longest = self._trail.copy() if len(self._trail) > len(longest) else longest
                open_choices.pop()
                continue
            state = self._take(*choices.pop())
            choices = self._settle(state)
            configuration = self._configuration(state)
            if configuration in seen:
                continue
            if len(seen) >= self._limit:
                raise CheckUndecided(
                    f"{self._limit} configurations did not tell whether {self._count} calls with a "
                    f"known and {len(self._unknown)} with an unknown outcome can be put in order: raise "
                    "the limit, or record shorter histories or more keys"
                )
            seen.add(configuration)
            open_choices.append((choices, len(self._trail)))
        return Linearization(True, self._calls(self._trail), len(seen))

    def _settle(self, state: int) -> list[tuple[int, int]]:
        """Take all calls that fit and change nothing; return the possible next calls, likeliest last.

        A call may come next if no remaining call returned before it was invoked. The calls are in the
        order of their invocation, so one pass suffices.
        """
        choices = []
        deadline = math.inf
        number = self._next[self._count]
        while number != self._count and self._known[number].invoked <= deadline:
            fits = (self._state[number] == state) == self._equal[number]
            if fits and self._after[number] == _SAME:
                self._lift(number)
            else:
                if fits:
                    choices.append((number, self._after[number]))
                deadline = min(deadline, self._known[number].returned)
            number = self._next[number]
        maybe = [
            (~group, after)
            for group, after in self._possible.get(state, ())
            if self._taken[group] < len(self._groups[group])
            and self._unknown[self._groups[group][self._taken[group]]].invoked <= deadline
        ]
        free = [(self._count, after) for after in self._anytime.get(state, ())]
        return [*free, *maybe, *choices]

    def _take(self, entry: int, after: int) -> int:
        """Take one of the entries that `_settle` returned; return the state that it leaves.

        Args:
            entry: the number of a known call; or ``~group``, for the next unknown call of a group; or
                the number of known calls, for one of `others`, which the order leaves out.
            after: that state.
        """
        if entry < 0:
            group = self._groups[~entry]
            self._used |= 1 << group[self._taken[~entry]]
            self._taken[~entry] += 1
            self._trail.append(entry)
        elif entry < self._count:
            self._lift(entry)
        return after

    def _lift(self, number: int) -> None:
        before, after = self._previous[number], self._next[number]
        self._next[before], self._previous[after] = after, before
        self._lifted |= 1 << number
        self._trail.append(number)

    def _undo(self, mark: int) -> None:
        """Undo the calls taken since the trail had length `mark`."""
        while len(self._trail) > mark:
            entry = self._trail.pop()
            if entry < 0:
                self._taken[~entry] -= 1
                self._used ^= 1 << self._groups[~entry][self._taken[~entry]]
            else:
                self._next[self._previous[entry]] = self._previous[self._next[entry]] = entry
                self._lifted ^= 1 << entry

    def _configuration(self, state: int) -> tuple[int, int, int, int]:
        first = self._next[self._count]
        return first, self._lifted >> first, self._used, state

    def _calls(self, trail: Iterable[int]) -> tuple[Call, ...]:
        members = [iter(group) for group in self._groups]
        return tuple(
            self._known[entry] if entry >= 0 else self._unknown[next(members[~entry])] for entry in trail
        )

    def _code(self, version: str | None) -> int:
        return _ABSENT if version is None else self._codes.get(version, _IDLE)

    def _change(self, write: Call) -> tuple[int, int]:
        """Return the state that a write needs, and the state that it leaves."""
        return self._code(write.expected), self._code(write.version)


def _codes(calls: Iterable[Call], others: Iterable[Call]) -> dict[str, int]:
    """Number the versions that calls name."""
    codes = {call.expected: _OTHER for call in others if call.expected is not None}
    versions = sorted({call.needs for call in calls if call.needs is not None})
    return codes | {version: code for code, version in enumerate(versions, _OTHER + 1)}
