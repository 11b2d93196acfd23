"""Clocks, retry policies and combined programs of simulated nodes, and the worlds that they form."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol, TypeVar

from attrs import frozen

from commitlog._util.retry import Backoff
from commitlog.testing.sim import Choices, Node, Simulation, World

__all__ = [
    "ACCURATE",
    "ClockSkew",
    "LongestPause",
    "check_ended",
    "fixed_backoff",
    "in_sequence",
    "repeated",
    "seeded_backoff",
    "start_lives",
    "world_builder",
]


class _HasNode(Protocol):
    @property
    def node(self) -> Node: ...


class _Judged(Protocol):
    @property
    def simulation(self) -> Simulation: ...

    def judge(self) -> Counter[str] | None: ...


_World = TypeVar("_World", bound=_Judged)
_Client = TypeVar("_Client")
_ClientOfNode = TypeVar("_ClientOfNode", bound=_HasNode)


@frozen(kw_only=True)
class ClockSkew:
    """The skew of a clock: its seconds per true second, and seconds ahead at the beginning."""

    rate: float = 1.0
    offset: float = 0.0


#: A correct clock.
ACCURATE = ClockSkew()


class LongestPause(random.Random):
    """Jitter without randomness, for exhaustive worlds: always the longest pause."""

    def uniform(self, a: float, b: float) -> float:
        return b


_FIXED = Backoff(base=1, cap=1, tries=4, random=LongestPause())


def fixed_backoff(node: str) -> Backoff:
    """Return the retry policy of a node in an exhaustive world."""
    return _FIXED


def seeded_backoff(seed: int, **options: Any) -> Callable[[str], Backoff]:
    """Return a function that returns a node's retry policy, with its own jitter drawn from a seed.

    `options` are those of `Backoff`.
    """
    return lambda node: Backoff(random=random.Random(f"{seed} {node}"), **options)


def check_ended(nodes: Mapping[str, Node]) -> None:
    """Check that no program of a node still waits after the run has ended."""
    stuck = [name for name, node in nodes.items() if node.running]
    assert not stuck, f"the programs of {stuck} wait for nothing"


def start_lives(
    node: Node,
    client: Callable[[], _Client],
    program: Callable[[_Client], object],
    *,
    restart: Callable[[_Client], object] | None = None,
    **options: float,
) -> None:
    """Start a program on a node. If the node crashes, start `restart`.

    Args:
        node: the node.
        client: makes a client. Each life of the node has its own.
        program: the program of the first life.
        restart: the program of later lives, or None for no other life.
        options: the times ``after`` and ``restart_after`` of `Node.start`.
    """

    def live(what: Callable[[_Client], object]) -> Callable[[], object]:
        return lambda: what(client())

    later = None if restart is None else live(restart)
    node.start(live(program), restart=later, **options)


def in_sequence(*programs: Callable[[_Client], object]) -> Callable[[_Client], object]:
    """Return a program that runs programs one after the other."""

    def program(client: _Client) -> None:
        for each in programs:
            each(client)

    return program


def repeated(
    call: Callable[[_ClientOfNode], object], *, times: int, every: float
) -> Callable[[_ClientOfNode], object]:
    """Return a program that makes a call `times` times, `every` seconds by the node's clock."""

    def program(client: _ClientOfNode) -> None:
        for number in range(times):
            if number:
                client.node.clock.sleep(every)
            call(client)

    return program


def world_builder(
    make: Callable[..., _World],
    start: Callable[[_World, str], object],
    *,
    nodes: Collection[str],
    simulation: Callable[[Choices], Simulation] = Simulation,
    clocks: Mapping[str, ClockSkew] | None = None,
    outcomes: Counter[str] | None = None,
) -> World:
    """Return a world for `explore`.

    Args:
        make: makes the world of a simulation, with the argument `nodes`: the clock of each node.
        start: starts the program of a node, given the world and the node's name.
        nodes: the names of the nodes.
        simulation: makes the simulation, with its faults.
        clocks: the clocks of nodes that are not correct.
        outcomes: a counter to which the outcomes of all completed runs are added.
    """

    def build(choices: Choices) -> tuple[Simulation, Callable[[], object]]:
        skews = {name: (clocks or {}).get(name, ACCURATE) for name in nodes}
        world = make(simulation(choices), nodes=skews)
        for name in nodes:
            start(world, name)

        def judge() -> None:
            found = world.judge()
            if outcomes is not None:
                outcomes.update(found)

        return world.simulation, judge

    return build
