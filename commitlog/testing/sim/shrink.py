"""From a run that was judged wrong to one that people can read: what has to go otherwise than it should.

Delta debugging (Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", 2002) over
the decisions of a run that were not the ordinary ones. Imports its siblings.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeAlias

from attrs import field, frozen

from commitlog.testing.sim.choices import Choices, Deviating, Recording
from commitlog.testing.sim.explore import World

__all__ = ["Orders", "Shrunk", "shrink"]

#: What deviates from the ordinary, as `Deviating` takes it.
Orders: TypeAlias = Mapping[tuple[str, int], int]


def _frozen(orders: Orders) -> Orders:
    return MappingProxyType(dict(orders))


@frozen
class Shrunk:
    """A run that was judged wrong, and of which little can be left out.

    Attributes:
        orders: repeats it, as `Deviating`.
        faults: how many faults it took.
        trace: what happened.
        error: the judge's.
    """

    orders: Orders = field(converter=_frozen, hash=False)
    faults: int
    trace: tuple[str, ...] = field(repr=False)
    error: AssertionError


def shrink(
    world: World, choices: Choices, *, most_runs: int = 1_000, steps: int = 100_000
) -> Shrunk | None:
    """Make a run; return the simplest one found that is judged wrong, if this one is, else None.

    What it returns may be wrong for another reason than the run it began with.

    Args:
        world: builds it.
        choices: those of the run.
        most_runs: stop after so many.
        steps: most steps of a run; one that takes more is judged wrong, see `Simulation.run`.
    """
    first = _wrong(world, choices, steps)
    if first is None:
        return None
    return _Shrinker(world, first, most_runs - 1, steps).run()


def _wrong(world: World, choices: Choices, steps: int) -> Shrunk | None:
    recording = Recording(choices)
    simulation, judge = world(recording)
    try:
        with simulation:
            simulation.run(steps=steps)
            judge()
    except AssertionError as error:
        faults = sum(simulation.injected.values())
        return Shrunk(recording.deviations, faults, tuple(simulation.trace), error)
    return None


class _Shrinker:
    def __init__(self, world: World, best: Shrunk, runs: int, steps: int) -> None:
        self._world = world
        self._best = best
        self._runs = runs
        self._steps = steps

    def run(self) -> Shrunk:
        before: Orders = {}
        while before != self._best.orders and self._runs > 0:
            before = self._best.orders
            size = math.ceil(len(before) / 2)
            while size:
                self._leave_out(size)
                size //= 2
            self._lower()
        return self._best

    def _leave_out(self, size: int) -> None:
        """Leave out so many orders at a time, the last ones first: the least depends on them."""
        end = len(self._best.orders)
        while end > 0:
            start = max(0, end - size)
            orders = list(self._best.orders.items())
            self._try(dict(orders[:start] + orders[end:]))
            end = min(start, len(self._best.orders))

    def _lower(self) -> None:
        for what, index in reversed(list(self._best.orders.items())):
            for lower in range(1, index):
                if what in self._best.orders and self._try({**self._best.orders, what: lower}):
                    break

    def _try(self, orders: Orders) -> bool:
        """Keep the run of `orders` if it is simpler and judged wrong; tell whether it is."""
        if self._runs <= 0:
            return False
        self._runs -= 1
        found = _wrong(self._world, Deviating(orders), self._steps)
        if found is None or _size(found.orders) >= _size(self._best.orders):
            return False
        self._best = found
        return True


def _size(orders: Orders) -> tuple[int, int]:
    return len(orders), sum(orders.values())
