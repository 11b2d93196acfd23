"""Defects that campaigns found, each with the fault that shows it."""

from __future__ import annotations

from commitlog.testing import Call, Outcome
from commitlog.testing.sim import Fault, Faults, Forced, Replayed, Simulation
from sim.leases.actions import Program, create, publish, update
from sim.leases.world import CommitWorld
from sim.nodes import ClockSkew


def calls(program: Program, *forced: Forced, **options: object) -> dict[str, Call]:
    """Run a program on client A with these faults; judge the history, and return A's calls by name."""
    with Simulation(Replayed(()), faults=Faults(forced=forced)) as simulation:
        world = CommitWorld(simulation, nodes={"A": ClockSkew()}, **options)  # type: ignore[arg-type]
        world.start("A", program)
        simulation.run()
        assert sum(simulation.injected.values()) == len(forced)
        world.judge()
        return {call.name: call for call in world.history() if call.client == "A"}


def test_a_repeated_publication_under_a_lease() -> None:
    """Seed 67: the repetition found no upload, and publish_if_absent raised `NotFound`."""
    made = calls(publish("k"), Forced("A publish k", Fault.REPEATED))
    assert made["publish_if_absent"].outcome is Outcome.DONE


def test_a_repeated_native_creation() -> None:
    """The repetition conflicted with the first request, and put_if_absent raised `AlreadyExists`."""
    made = calls(create("k"), Forced("A put k", Fault.REPEATED), mode="native")
    assert made["put_if_absent"].outcome is Outcome.DONE


def test_a_repeated_native_update() -> None:
    """The repetition conflicted with the first request, and put_if_match raised `PreconditionFailed`."""
    forced = Forced("A put k", Fault.REPEATED)
    made = calls(update("k"), forced, mode="native", objects={"k": "seed"})
    assert made["put_if_match"].outcome is Outcome.DONE
