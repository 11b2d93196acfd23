"""Shrinking of failed runs: find a small set of deviations with which a run still fails.

Delta debugging (Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", 2002) over
the decisions of a run that differ from the ordinary ones.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeAlias

from attrs import field, frozen

from commitlog.testing.sim.choices import Choices, Deviating, Recording
from commitlog.testing.sim.exploration import World

__all__ = ["Orders", "Shrunk", "shrink"]

#: The deviations from the ordinary decisions, as `Deviating` takes them.
Orders: TypeAlias = Mapping[tuple[str, int], int]


def _frozen(orders: Orders) -> Orders:
    return MappingProxyType(dict(orders))


@frozen
class Shrunk:
    """A failed run with few deviations.

    Attributes:
        orders: the deviations that repeat the run with `Deviating`.
        faults: number of faults in the run.
        trace: the trace of the run.
        error: the judge's error.
    """

    orders: Orders = field(converter=_frozen, hash=False)
    faults: int
    trace: tuple[str, ...] = field(repr=False)
    error: AssertionError


def shrink(
    world: World,
    choices: Choices,
    *,
    most_runs: int = 1_000,
    most_seconds: float = 60.0,
    steps: int = 100_000,
) -> Shrunk | None:
    """Repeat a run; return the simplest failed run found, or None if the run passes.

    The returned run may fail for another reason than the given one.

    Args:
        world: builds the world.
        choices: the choices of the run.
        most_runs: maximum number of runs.
        most_seconds: maximum duration in seconds; long runs may take up all of it.
        steps: maximum number of steps of a run. A run with more steps fails, see `Simulation.run`.
    """
    first = _wrong(world, choices, steps)
    if first is None:
        return None
    return _Shrinker(world, first, most_runs - 1, time.monotonic() + most_seconds, steps).run()


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
    def __init__(self, world: World, best: Shrunk, runs: int, until: float, steps: int) -> None:
        self._world = world
        self._best = best
        self._runs = runs
        self._until = until
        self._steps = steps

    def run(self) -> Shrunk:
        before: Orders = {}
        while before != self._best.orders and self._may_go_on():
            before = self._best.orders
            size = math.ceil(len(before) / 2)
            while size:
                self._leave_out(size)
                size //= 2
            self._lower()
        return self._best

    def _leave_out(self, size: int) -> None:
        """Try to remove `size` orders at a time. Begin at the end: fewest decisions depend on those."""
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
        """Keep the run of `orders` if it is simpler and fails; return whether it was kept."""
        if not self._may_go_on():
            return False
        self._runs -= 1
        try:
            found = _wrong(self._world, Deviating(orders), self._steps)
        except Exception:  # a different failure
            return False
        if found is None or _size(found.orders) >= _size(self._best.orders):
            return False
        self._best = found
        return True

    def _may_go_on(self) -> bool:
        return self._runs > 0 and time.monotonic() < self._until


def _size(orders: Orders) -> tuple[int, int]:
    return len(orders), sum(orders.values())
