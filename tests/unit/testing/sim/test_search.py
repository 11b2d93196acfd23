"""Searches for violations: Hypothesis shrinks a run, and `explore` makes all runs of a world."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest
from attrs import define, field, frozen
from hypothesis import find, settings, strategies

from commitlog.errors import CommitError, Unavailable
from commitlog.stores.api import ObjectStore
from commitlog.stores.memory import MemoryStore
from commitlog.testing.sim import (
    Choices,
    Drawn,
    Fault,
    Faults,
    Recording,
    Replayed,
    SimulatedStore,
    Simulation,
    explore,
    store_state,
)
from sim.leases.actions import Program, create, delete, read, update
from sim.leases.world import CommitWorld, world_of
from sim.nodes import ClockSkew

# -- a wrong toy: read, then write ----------------------------------------------------------------------


@define
class Toy:
    """Two writers that each read an object and write it if it is missing, without a lease.

    The second writer starts a second later, so they meet only if a request is delayed.
    """

    simulation: Simulation
    won: list[str] = field(factory=list)

    def __attrs_post_init__(self) -> None:
        clock = self.simulation.server_clock()
        server = MemoryStore(clock=clock, new_id=self.simulation.new_id)
        self.simulation.add_state(store_state(server))
        for after, name in enumerate("AB"):
            node = self.simulation.node(name)
            store = SimulatedStore(node, server)
            node.start(partial(self.write, store, name), after=float(after))

    def write(self, store: ObjectStore, name: str) -> None:
        """Write an object if it is missing."""
        with contextlib.suppress(CommitError):
            if store.begin_head("k")().info is None:
                store.put("k", name.encode())
                self.won.append(name)

    def judge(self) -> None:
        """Check that at most one writer created the object."""
        assert len(self.won) < 2, f"{self.won} both won"


def toy(choices: Choices, *, most: int | None, rate: float = 0.02) -> Toy:
    """Return a toy world with at most `most` faults."""
    return Toy(
        Simulation(
            choices, faults=Faults(rates=dict.fromkeys(Fault, rate), delays=(2.0, 5.0), most=most)
        )
    )


def exhaustive(most: int) -> Callable[[Choices], tuple[Simulation, Callable[[], object]]]:
    """Return a function that builds this world for `explore`."""

    def build(choices: Choices) -> tuple[Simulation, Callable[[], object]]:
        world = toy(choices, most=most)
        return world.simulation, world.judge

    return build


@frozen
class Finding:
    """A run of the toy."""

    picks: tuple[int, ...]
    trace: tuple[str, ...]
    faults: int
    wrong: bool


def test_hypothesis_shrinks_a_violation() -> None:
    """A violation found at random is shrunk to the smallest run that causes it."""

    @strategies.composite
    def runs(draw: Callable[..., Any]) -> Finding:
        recording = Recording(Drawn(lambda n: draw(strategies.integers(0, n - 1))))
        world = toy(recording, most=None, rate=0.05)
        with world.simulation as simulation:
            simulation.run()
        faults = sum(simulation.injected.values())
        return Finding(recording.indexes, tuple(simulation.trace), faults, len(world.won) > 1)

    found = find(
        runs(),
        lambda run: run.wrong,
        random=random.Random(1),
        settings=settings(max_examples=2000, database=None, deadline=None),
    )
    assert found.faults == 1, found.trace
    assert "paused before put k" in "".join(found.trace) or "delayed" in "".join(found.trace)
    assert len(found.trace) <= 16


# -- all runs of a world ---------------------------------------------------------------------------


def readers(names: str, reads: int, faults: Faults | None = None) -> Callable[[Choices], Any]:
    """Return a builder of a world in which each node reads a few times, independently."""

    def build(choices: Choices) -> tuple[Simulation, Callable[[], object]]:
        simulation = Simulation(choices, faults=faults)
        server = MemoryStore(clock=simulation.server_clock())

        def program(store: ObjectStore) -> None:
            for _ in range(reads):
                with contextlib.suppress(Unavailable):
                    store.begin_head("k")()

        for name in names:
            node = simulation.node(name)
            node.start(partial(program, SimulatedStore(node, server)))
        return simulation, lambda: None

    return build


@pytest.mark.parametrize(
    ("names", "reads", "states", "ends"),
    # A node that reads n times is in one of n + 2 states: not started, one of the reads under way,
    # ended. The end of all nodes, after which there is no step, is not counted; one run for each node
    # leads to it.
    [("A", 1, 3 - 1, 1), ("AB", 1, 3**2 - 1, 2), ("AB", 2, 4**2 - 1, 2), ("ABC", 1, 3**3 - 1, 3)],
)
def test_each_state_is_seen_once(names: str, reads: int, states: int, ends: int) -> None:
    """`explore` counts every state of a world once, and no other state."""
    found = explore(readers(names, reads))
    assert (found.states, found.ends, found.complete) == (states, ends, True)


def test_each_fault_is_tried_at_every_point() -> None:
    """The number of states shows that each fault is tried wherever it is possible."""
    throttled = Faults(rates={Fault.THROTTLED: 0.1}, most=1)
    # Not started; the read under way, throttled or not.
    assert explore(readers("A", 1, throttled)).states == 3
    # Two reads: not started; the first under way, throttled or not; the second after a throttled first
    # one, or itself throttled, or neither.
    assert explore(readers("A", 2, throttled)).states == 1 + 2 + 3


def test_a_planted_bug_is_found() -> None:
    """A bug that needs one fault is found only with a fault, and its run can be replayed."""
    without = explore(exhaustive(0))
    assert without.complete
    assert without.shortest is None
    found = explore(exhaustive(1), most_violations=None)
    assert found.complete
    shortest = found.shortest
    assert shortest is not None
    assert shortest.faults == 1
    assert str(shortest.error).startswith("['B', 'A'] both won")
    simulation, judge = exhaustive(1)(Replayed(shortest.picks))
    with simulation:
        simulation.run()
        with pytest.raises(AssertionError):
            judge()
    assert tuple(simulation.trace) == shortest.trace


def test_an_exploration_can_be_cut_short() -> None:
    """It stops after the given number of runs or violations, and reports that it is not complete."""
    some = explore(exhaustive(1), most_runs=2)
    assert (some.runs, some.complete) == (2, False)
    first = explore(exhaustive(1))
    assert (len(first.violations), first.complete) == (1, False)


def test_an_error_of_a_program_ends_an_exploration() -> None:
    """An error that is not a verdict of the judge is raised as an error of the test."""

    def build(choices: Choices) -> tuple[Simulation, Callable[[], object]]:
        simulation = Simulation(choices)
        simulation.node("A").start(lambda: 1 / 0)
        return simulation, lambda: None

    with pytest.raises(ZeroDivisionError):
        explore(build)


def test_the_order_of_calls_is_part_of_a_state() -> None:
    """In worlds of the kit, overlapping and sequential calls make different states, all else equal."""
    found = explore(world_of({"A": read("k"), "B": read("k")}, objects={"k": "seed"}, mode="native"))
    # As with `readers` once each, and also the reads that had ended when another one began: for each
    # node, none or that of the other node. Only if both have begun can this differ: none ended (1), A's
    # (2), B's (2).
    assert found.complete
    assert found.states == (3**2 - 1) + 2


# -- whether states capture everything ------------------------------------------------------------------

#: A history from the judge's view: the calls, their order in time, and the verdict.
Ending = tuple[tuple[tuple[object, ...], ...], frozenset[tuple[int, int]], bool]


@define
class Endings:
    """A builder of a world of the kit that records how its runs ended."""

    programs: Mapping[str, Program]
    faults: Faults
    mode: str
    objects: Mapping[str, str]
    found: set[Ending] = field(factory=set)

    def __call__(self, choices: Choices) -> tuple[Simulation, Callable[[], object]]:
        world = CommitWorld(
            Simulation(choices, faults=self.faults),
            nodes={"A": ClockSkew(), "B": ClockSkew(rate=1.5)},
            mode=self.mode,
            objects=self.objects,
        )
        for name, program in self.programs.items():
            world.start(name, program, restart=program)
        return world.simulation, lambda: self.found.add(self.ending(world))

    @staticmethod
    def ending(world: CommitWorld) -> Ending:
        """Return how a run ended."""
        try:
            world.judge()
            fine = True
        except AssertionError:
            fine = False
        calls = sorted(world.history(), key=lambda call: (call.client, call.invoked))
        seen = tuple(
            (call.client, call.action, call.expected, call.version, call.outcome) for call in calls
        )
        order = frozenset(
            (i, j)
            for (i, one), (j, other) in itertools.permutations(enumerate(calls), 2)
            if one.returned < other.invoked
        )
        return seen, order, fine

    def by_brute_force(self) -> set[Ending]:
        """Return the endings of all runs, each made from start to end."""
        self.found.clear()
        todo: list[tuple[int, ...]] = [()]
        while todo:
            start = todo.pop()
            choices = Recording(Replayed(start))
            simulation, judge = self(choices)
            with simulation:
                simulation.run()
                judge()
            for at in range(len(start), len(choices.picks)):
                todo += [(*choices.indexes[:at], other) for other in range(1, choices.picks[at].of)]
        return set(self.found)

    def by_states(self) -> set[Ending]:
        """Return the endings of the runs that `explore` completes."""
        self.found.clear()
        assert explore(self).complete
        return set(self.found)


def faults(most: int, *kinds: Fault) -> Faults:
    """Return faults of these kinds, or of all kinds."""
    return Faults(rates=dict.fromkeys(kinds or Fault, 0.01), delays=(1.5, 10.0), most=most)


@pytest.mark.parametrize(
    ("endings", "least"),
    [
        (Endings({"A": create("k"), "B": delete("k")}, faults(1), "native", {"k": "seed"}), 10),
        (Endings({"A": update("k"), "B": read("k")}, faults(1), "native", {"k": "seed"}), 10),
        (Endings({"A": create("k")}, faults(1), "lease", {}), 4),
        (Endings({"A": create("k")}, faults(2, Fault.CRASHED, Fault.LOST_RESPONSE), "lease", {}), 4),
        (Endings({"A": create("k"), "B": delete("k")}, faults(0), "lease", {"k": "seed"}), 4),
    ],
    ids=["native-1", "native-read-1", "lease-alone-1", "lease-alone-2", "lease-0"],
)
def test_a_run_that_is_cut_off_has_a_known_ending(endings: Endings, least: int) -> None:
    """A run that stops at a known state would have ended like some other run."""
    every = endings.by_brute_force()
    assert endings.by_states() == every
    assert len(every) >= least
