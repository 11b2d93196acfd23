"""Two spellings of one store: clients with different endpoint URLs enforce conditions in the same way.

A has a probe report that the store enforces conditions, B a report that it does not: two probes may
differ, and each client has the report for its own spelling. With one table, both must use the report
that was stored first.
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
from sim.leases.actions import Client, create
from sim.leases.world import CommitWorld
from sim.nodes import ClockSkew
from support.commit import proven

ABSENT = (Kind.PUT_IF_ABSENT, Kind.COPY_IF_ABSENT, Kind.PUBLISH_IF_ABSENT)
#: Longer than a lease, and than the wait for one.
LONG = 10.0


class TwoNames(CommitWorld):
    """A world whose nodes have different names for the store, and different probe reports on it."""

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
    """Judge a run in which A and B create one object; return whether a fault happened in it."""
    wrong = Faults(rates=dict.fromkeys(faults, 0.1), delays=(LONG,), most=2)
    latencies = (0.01, 0.1, 0.5)
    with Simulation(Seeded(seed), faults=wrong, latencies=latencies) as simulation:
        nodes = {"A": ClockSkew(), "B": ClockSkew()}
        world = TwoNames(simulation, nodes=nodes, enforces_expiry=False, conditions=True)
        for name in nodes:
            world.start(name, create("k"), restart=create("k"))
        simulation.run()
        world.judge()
        return bool(simulation.injected)


def test_two_names_for_one_store_have_one_winner() -> None:
    """The client that registers its name first decides for both."""
    for seed in range(100):
        judged(seed)


@pytest.mark.parametrize(
    "fault", [Fault.LOST_REQUEST, Fault.LOST_RESPONSE, Fault.REPEATED, Fault.CRASHED, Fault.THROTTLED]
)
def test_two_names_have_one_winner_with_a_fault(fault: Fault) -> None:
    """The fault strikes the identity object, the list, the report or the write, or a client crashes."""
    assert sum(judged(seed, fault) for seed in range(100)) > 30
