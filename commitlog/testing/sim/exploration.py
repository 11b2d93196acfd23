"""Exhaustive search of all runs of a small world: depth first, each state once.

A run cannot be undone, so the search repeats each run from its list of picks (stateless search). It ends
a run at a state that an earlier run has reached, because all continuations are already known. The states
are those of `Simulation.state`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from attrs import define, field, frozen

from commitlog.testing.sim.choices import Choices, Recording, Replayed
from commitlog.testing.sim.simulation import Simulation

__all__ = ["Exploration", "Violation", "World", "explore"]

#: Builds a world with started programs, and a judge that raises `AssertionError` if a run is wrong.
World: TypeAlias = Callable[[Choices], tuple[Simulation, Callable[[], object]]]


@frozen
class Violation:
    """A run that was judged wrong.

    Attributes:
        picks: the picks that repeat the run with `Replayed`.
        faults: number of faults in the run.
        trace: the trace of the run.
        error: the judge's error.
    """

    picks: tuple[int, ...]
    faults: int
    trace: tuple[str, ...] = field(repr=False)
    error: AssertionError


@define
class Exploration:
    """The result of an exploration.

    Attributes:
        states: distinct states seen between two steps.
        runs: number of runs, including those that ended early at a known state.
        ends: number of runs that ended and passed the judge.
        violations: the runs that failed.
        complete: whether nothing is left to explore.
    """

    states: int = 0
    runs: int = 0
    ends: int = 0
    violations: list[Violation] = field(factory=list)
    complete: bool = False

    @property
    def shortest(self) -> Violation | None:
        """The violation with the fewest faults; among equals, the one with the shortest trace."""
        return min(self.violations, key=lambda v: (v.faults, len(v.trace)), default=None)


class _SeenBefore(BaseException):
    pass


def explore(
    world: World, *, most_runs: int | None = None, most_violations: int | None = 1
) -> Exploration:
    """Search all runs of a world.

    Args:
        world: builds the world. Everything that its judge reads must be a function of
            `Simulation.state`, so add other records of the world with `Simulation.add_state`.
        most_runs: stop after this number of runs; None for no limit.
        most_violations: stop after this number of violations; None for no limit.

    Errors of programs propagate, except `AssertionError`.
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
