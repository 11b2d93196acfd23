"""Searches for violations: Hypothesis shrinks what it found, `explore` makes every run of a world."""

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

# -- a toy that is wrong: look, then write ---------------------------------------------------------


@define
class Toy:
    """Two writers that look whether there is an object, and write one if not, without any lease.

    The second comes a second later, so it takes some delay for them to meet.
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
        """Write an object, unless there is one."""
        with contextlib.suppress(CommitError):
            if store.begin_head("k")().info is None:
                store.put("k", name.encode())
                self.won.append(name)

    def judge(self) -> None:
        """Both cannot have created it."""
        assert len(self.won) < 2, f"{self.won} both won"


def toy(choices: Choices, *, most: int | None, rate: float = 0.02) -> Toy:
    """Return a toy world to which that many faults may happen."""
    return Toy(
        Simulation(
            choices, faults=Faults(rates=dict.fromkeys(Fault, rate), delays=(2.0, 5.0), most=most)
        )
    )


def exhaustive(most: int) -> Callable[[Choices], tuple[Simulation, Callable[[], object]]]:
    """Return what builds it for `explore`."""

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
    """A violation that was found at random is shrunk to the least that brings it about."""

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
    """Return a world in which each node reads a few times, and nothing depends on anything."""

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
    # A node that reads n times is in one of n + 2 states: not started, each read under way, over. The
    # end of all, after which there is no step, is not counted; it is come to from one run for each node.
    [("A", 1, 3 - 1, 1), ("AB", 1, 3**2 - 1, 2), ("AB", 2, 4**2 - 1, 2), ("ABC", 1, 3**3 - 1, 3)],
)
def test_states_are_those_that_there_are(names: str, reads: int, states: int, ends: int) -> None:
    """Every state of a world is seen once, and no other one."""
    found = explore(readers(names, reads))
    assert (found.states, found.ends, found.complete) == (states, ends, True)


def test_states_with_a_fault() -> None:
    """Each fault is tried wherever it is possible."""
    throttled = Faults(rates={Fault.THROTTLED: 0.1}, most=1)
    # Not started; the read under way, throttled or not.
    assert explore(readers("A", 1, throttled)).states == 3
    # Two reads: not started; the first under way, throttled or not; the second after a throttled first,
    # or itself throttled, or neither.
    assert explore(readers("A", 2, throttled)).states == 1 + 2 + 3


def test_a_planted_bug_is_found() -> None:
    """A bug that takes one fault is not found without, is found with it, and can be replayed."""
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
    """After so many runs or violations it stops, and says that it is not complete."""
    some = explore(exhaustive(1), most_runs=2)
    assert (some.runs, some.complete) == (2, False)
    first = explore(exhaustive(1))
    assert (len(first.violations), first.complete) == (1, False)


def test_what_a_program_raises_ends_an_exploration() -> None:
    """An error of a program that is no verdict is an error of the test."""

    def build(choices: Choices) -> tuple[Simulation, Callable[[], object]]:
        simulation = Simulation(choices)
        simulation.node("A").start(lambda: 1 / 0)
        return simulation, lambda: None

    with pytest.raises(ZeroDivisionError):
        explore(build)


def test_the_kit_tells_what_its_judge_looks_at() -> None:
    """In the kit's worlds, whether calls overlap or come in turn makes two states, all else equal."""
    found = explore(world_of({"A": read("k"), "B": read("k")}, objects={"k": "seed"}, mode="native"))
    # As `readers` once each, but which of the reads had ended when the other began: for each node, none
    # or the other's. Only where both have begun can that differ: neither over (1), A's (2), B's (2).
    assert found.complete
    assert found.states == (3**2 - 1) + 2


# -- whether a state is all there is to it ---------------------------------------------------------

#: A history as its judge sees it: the calls, which of them came before which, and the verdict.
Ending = tuple[tuple[tuple[object, ...], ...], frozenset[tuple[int, int]], bool]


@define
class Endings:
    """Builds a world of the kit, and keeps how its runs ended."""

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
        """Return how all runs end, each made from beginning to end."""
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
        """Return how those runs end that `explore` goes through with."""
        self.found.clear()
        assert explore(self).complete
        return set(self.found)


def faults(most: int, *kinds: Fault) -> Faults:
    """Return faults of these kinds, or of all."""
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
def test_what_is_cut_off_ends_as_something_that_was_seen(endings: Endings, least: int) -> None:
    """A run that is broken off at a state seen before would have ended as another one has ended."""
    every = endings.by_brute_force()
    assert endings.by_states() == every
    assert len(every) >= least
