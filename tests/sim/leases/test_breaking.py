"""Breaking a lease in small worlds: it is safe in every order of its requests and those of writers."""

from __future__ import annotations

import contextlib

import pytest

from commitlog.commit.lease import HeldLease, break_lease
from commitlog.commit.record import CREATE, LeaseRecord
from commitlog.errors import CommitError
from commitlog.tables.api import Key
from commitlog.testing.linearizability import NotLinearizable
from commitlog.testing.sim import (
    Choices,
    Exploration,
    Fault,
    Faults,
    SimulatedTable,
    Simulation,
    explore,
)
from sim.leases.actions import Client, Program, create
from sim.leases.world import SMALL, world_of
from sim.nodes import ClockSkew, fixed_backoff
from support.selection import in_campaigns, with_all

#: The holder's clock is as slow, and the breaker's as fast, as the skew rate of 1.5 allows.
CLOCKS = {"A": ClockSkew(rate=1.0), "B": ClockSkew(rate=1.25), "C": ClockSkew(rate=1.5)}


def breaking(path: str, *, early: bool = False) -> Program:
    """Break the lease to create an object; if `early`, without waiting for its holder."""

    def program(client: Client) -> None:
        node = client.world.nodes[client.name]
        table = SimulatedTable(node, client.world.items)
        with contextlib.suppress(CommitError):
            item = table.get(Key(path, CREATE))
            now = node.clock.monotonic()
            held = HeldLease(
                record=None if item is None else LeaseRecord.from_item(item),
                since=now - SMALL.timeout * SMALL.max_clock_skew_rate if early else now,
            )
            break_lease(
                table,
                held,
                clock=node.clock,
                backoff=fixed_backoff(node.name),
                settings=SMALL,
                owner=node.new_id(),
            )

    return program


def explored(breaker: Program, *faults: Fault, delays: tuple[float, ...] = (2.0, 4.0)) -> Exploration:
    """Explore two creators of one object and the breaker, with at most one fault."""

    def simulation(choices: Choices) -> Simulation:
        wrong = Faults(rates=dict.fromkeys(faults, 0.01), delays=delays, most=1)
        return Simulation(choices, faults=wrong)

    programs = {"A": create("k"), "B": create("k"), "C": breaker}
    return explore(world_of(programs, simulation=simulation, clocks=CLOCKS))


@pytest.mark.parametrize(
    "faults",
    [
        (),
        with_all((Fault.CRASHED,)),
        with_all((Fault.LOST_RESPONSE, Fault.DELAYED)),
        in_campaigns(tuple(Fault)),
    ],
    ids=["no fault", "a crash", "a lost or late request", "any fault"],
)
def test_a_broken_lease_harms_no_writer(faults: tuple[Fault, ...]) -> None:
    """Two creators exclude one another in any order, while a third client breaks their lease."""
    found = explored(breaking("k"), *faults)
    assert found.complete
    assert found.shortest is None, "\n".join((*found.shortest.trace, str(found.shortest.error)))


def test_a_lease_that_is_broken_early_has_two_holders() -> None:
    """The wait is what makes it safe: without it, both creators succeed."""
    [violation] = explored(breaking("k", early=True)).violations
    assert isinstance(violation.error, NotLinearizable)
