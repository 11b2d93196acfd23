"""Worlds for tests of namespaces on the simulator: clients of one tree, and what must be so after each
request.

A `NamespaceWorld` has one table, one store, perhaps a log, and nodes that run programs: sequences of
operations (`write`, `rename`, …) and pauses. What they do is in `sim.namespace.actions` and
`sim.namespace.workflows`, what must be so in `sim.namespace.judge`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any

from commitlog.testing.sim import Choices, Fault, Simulation, World
from sim.namespace.actions import (
    Do,
    Program,
    attributes,
    delete,
    grow,
    link,
    list_,
    make,
    read,
    rename,
    replace,
    stream,
    tamper,
    write,
)
from sim.namespace.cluster import STEADY, NamespaceWorld
from sim.namespace.judge import LAKE, Call, Known
from sim.namespace.servers import WatchedStore, WatchedTable
from sim.namespace.workflows import adopt, bulk_link, collect, publish, recover, sweep
from sim.nodes import ClockSkew

__all__ = [
    "ANY",
    "LAKE",
    "ON_THE_WAY",
    "STEADY",
    "Call",
    "Do",
    "Known",
    "NamespaceWorld",
    "Program",
    "WatchedStore",
    "WatchedTable",
    "adopt",
    "attributes",
    "bulk_link",
    "collect",
    "delete",
    "grow",
    "link",
    "list_",
    "make",
    "publish",
    "read",
    "recover",
    "rename",
    "replace",
    "stream",
    "sweep",
    "tamper",
    "world_of",
    "write",
]

_NONE: Mapping[str, Any] = {}


def world_of(
    programs: Mapping[str, Program],
    *,
    simulation: Callable[[Choices], Simulation] = Simulation,
    clocks: Mapping[str, ClockSkew] = _NONE,
    after: Mapping[str, float] = _NONE,
    restarts: Collection[str] = (),
    outcomes: Counter[str] | None = None,
    make: type[NamespaceWorld] = NamespaceWorld,
    **options: Any,
) -> World:
    """Return what `explore` builds worlds with.

    Args:
        programs: what the node of each name does.
        simulation: makes the simulation, with what faults there are to be.
        clocks: clocks of the nodes that do not go right.
        after: when nodes start that do not start at once, in seconds.
        restarts: nodes that begin their programs anew when they have died.
        outcomes: where to add up what was told in the runs that came to their end.
        make: what kind of world it is.
        options: those of `NamespaceWorld`, other than its nodes.
    """

    known = Known()

    def build(choices: Choices) -> tuple[Simulation, Callable[[], object]]:
        nodes = {name: clocks.get(name, ClockSkew()) for name in programs}
        world = make(simulation(choices), nodes=nodes, known=known, **options)
        for name, program in programs.items():
            world.start(name, program, restart=name in restarts, after=after.get(name, 0.0))

        def judge() -> None:
            told = world.judge()
            if outcomes is not None:
                outcomes.update(told)

        return world.simulation, judge

    return build


#: What a request can meet whose sender lives on.
ON_THE_WAY = tuple(
    fault for fault in Fault if fault not in (Fault.PAUSED, Fault.CRASHED, Fault.SWEPT, Fault.PARTIAL)
)
ANY = tuple(fault for fault in Fault if fault is not Fault.SWEPT)
