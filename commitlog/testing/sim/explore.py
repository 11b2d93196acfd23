"""Every run of a small world: depth first, each state once.

A run cannot be taken back, so each is made anew from its picks (stateless search), and broken off when
it comes to a state that was seen before: from there on, everything is known. The states are those of
`Simulation.state`. Imports its siblings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from attrs import define, field, frozen

from commitlog.testing.sim.choices import Choices, Recording, Replayed
from commitlog.testing.sim.simulation import Simulation

__all__ = ["Exploration", "Violation", "World", "explore"]

#: Builds a world whose programs are started, and what judges a run of it: it raises `AssertionError`.
World: TypeAlias = Callable[[Choices], tuple[Simulation, Callable[[], object]]]


@frozen
class Violation:
    """A run that was judged wrong.

    Attributes:
        picks: repeats it, as `Replayed`.
        faults: how many faults it took.
        trace: what happened.
        error: the judge's.
    """

    picks: tuple[int, ...]
    faults: int
    trace: tuple[str, ...] = field(repr=False)
    error: AssertionError


@define
class Exploration:
    """What was explored.

    Attributes:
        states: distinct states seen between two steps.
        runs: runs that were made, those included that were broken off at a state seen before.
        ends: runs that came to their end and were judged.
        violations: those that were judged wrong.
        complete: whether nothing is left to explore.
    """

    states: int = 0
    runs: int = 0
    ends: int = 0
    violations: list[Violation] = field(factory=list)
    complete: bool = False

    @property
    def shortest(self) -> Violation | None:
        """The violation of the fewest faults, and of those the one of the shortest trace."""
        return min(self.violations, key=lambda v: (v.faults, len(v.trace)), default=None)


class _SeenBefore(BaseException):
    pass


def explore(
    world: World, *, most_runs: int | None = None, most_violations: int | None = 1
) -> Exploration:
    """Make every run of a world.

    Args:
        world: builds it. All that its judge looks at must be a function of `Simulation.state`, so what
            it records beside has to be added with `Simulation.add_state`.
        most_runs: stop after so many; None: never.
        most_violations: stop after so many; None: never.

    Errors of programs that are no `AssertionError` are raised.
    """
    result = Exploration()
    seen: set[int] = set()
    todo: list[tuple[int, ...]] = [()]
    while todo:
        if result.runs == most_runs or len(result.violations) == most_violations:
            return result
        start = todo.pop()
        choices = Recording(Replayed(start))
        _run(world, choices, len(start), seen, result)
        taken = choices.indexes
        for at in range(len(start), len(taken)):
            for other in range(1, choices.picks[at].of):
                todo.append((*taken[:at], other))
    result.complete = True
    return result


def _run(world: World, choices: Recording, known: int, seen: set[int], result: Exploration) -> None:
    simulation, judge = world(choices)

    def watch() -> None:
        if len(choices.picks) >= known:
            state = hash(simulation.state())
            if state in seen:
                raise _SeenBefore
            seen.add(state)

    simulation.watch = watch
    result.runs += 1
    try:
        with simulation:
            simulation.run()
            judge()
        result.ends += 1
    except _SeenBefore:
        pass
    except AssertionError as error:
        faults = sum(simulation.injected.values())
        trace = tuple(simulation.trace)
        result.violations.append(Violation(choices.indexes, faults, trace, error))
    result.states = len(seen)
