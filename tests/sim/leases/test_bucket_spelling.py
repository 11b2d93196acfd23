"""Two names for one store: clients that spell its endpoint in different ways enforce conditions alike.

A is told that the store honours conditions, B that it does not: two probes may differ, and each client
was given the probe_report of its own spelling. With one table, both have to go by what was kept first.
"""

from __future__ import annotations

import pytest
from attrs import evolve

from commitlog.commit.probe_report import Kind
from commitlog.testing.sim import (
    Fault,
    Faults,
    Node,
    Seeded,
    SimulatedStore,
    Simulation,
)
from sim.leases.world import Client, CommitWorld, Ticks, create
from support.commit import proven

ABSENT = (Kind.PUT_IF_ABSENT, Kind.COPY_IF_ABSENT, Kind.PUBLISH_IF_ABSENT)
#: Longer than a lease of these worlds, and than others wait for one.
LONG = 10.0


class TwoNames(CommitWorld):
    """Each node has its own name for the one store, and its own probe_report on it."""

    def port(self, node: Node) -> SimulatedStore:
        store = super().port(node)
        store.url = f"s3://bucket?endpoint_url=http://{node.name.lower()}"
        return store

    def client(self, name: str) -> Client:
        self._mode = "auto"
        url = self.port(self.nodes[name]).url
        self._probe_report = evolve(proven(*(ABSENT if name == "A" else ())), url=url)
        return super().client(name)


def judged(seed: int, *faults: Fault) -> bool:
    """Judge a run of A and B, who create one object; return whether a fault happened in it."""
    wrong = Faults(rates=dict.fromkeys(faults, 0.1), delays=(LONG,), most=2)
    latencies = (0.01, 0.1, 0.5)
    with Simulation(Seeded(seed), faults=wrong, latencies=latencies) as simulation:
        nodes = {"A": Ticks(), "B": Ticks()}
        world = TwoNames(simulation, nodes=nodes, fences=False, conditions=True)
        for name in nodes:
            world.start(name, create("k"), restart=create("k"))
        simulation.run()
        world.judge()
        return bool(simulation.injected)


def test_two_names_for_one_store_have_one_winner() -> None:
    """The one that registers its name first decides for both."""
    for seed in range(100):
        judged(seed)


@pytest.mark.parametrize(
    "fault", [Fault.LOST_REQUEST, Fault.LOST_RESPONSE, Fault.REPEATED, Fault.CRASHED, Fault.THROTTLED]
)
def test_so_they_have_if_a_request_gets_lost(fault: Fault) -> None:
    """Of the identity object, the list, the finding or the write itself; or if one of them dies."""
    assert sum(judged(seed, fault) for seed in range(100)) > 30
