"""Leases in an SQLite file, on a machine whose wall clock is changed.

Each node is a process of that machine, with its own SQLite connection to one real file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from commitlog.commit.record import LEASE_SCHEMA
from commitlog.tables.open import open_table
from commitlog.testing.linearizability import NotLinearizable
from commitlog.testing.sim import Fault, Faults, Forced, Seeded, Simulation
from sim.leases.actions import Client, create
from sim.leases.world import CommitWorld
from sim.nodes import ClockSkew

HOUR = 3600.0


class OneMachine(CommitWorld):
    """A world whose leases are in one SQLite file, and whose nodes share one wall clock."""

    def __init__(self, simulation: Simulation, file: Path, **options: Any) -> None:
        super().__init__(simulation, **options)
        self._file = file
        self._table_clock = simulation.server_clock()
        self._tables: list[Any] = []

    def client(self, name: str) -> Client:
        self.items = open_table(f"sqlite://{self._file}", LEASE_SCHEMA, clock=self._table_clock)
        self.items.create()
        self._tables.append(self.items)
        return super().client(name)

    def set_clocks(self, seconds: float) -> None:
        """Set the wall clock of the machine forward."""
        self._table_clock.set_forward(seconds)
        for node in self.nodes.values():
            node.clock.set_forward(seconds)

    def close(self) -> None:
        """Close all connections."""
        for table in self._tables:
            table.close()


def judged(file: Path, seed: int, *, settings: tuple[tuple[float, float], ...]) -> None:
    """Judge a run: A and B create one object, A's request is slow, and C and D work on others.

    Args:
        file: the file of the leases.
        seed: the seed of the travel times of requests.
        settings: the times at which the wall clock is changed, and the seconds that are added to it.
    """
    slow = Faults(forced=(Forced("A put k", Fault.DELAYED, 1, 1.6),))
    with Simulation(Seeded(seed), faults=slow, latencies=(0.0, 0.01, 0.05)) as simulation:
        world = OneMachine(simulation, file, nodes={name: ClockSkew() for name in "ABCD"})
        for name, program, after in (("A", "k", 0.0), ("C", "c", 0.5), ("D", "d", 1.0), ("B", "k", 1.2)):
            world.start(name, create(program), after=after)
        for moment, seconds in settings:
            simulation.after(moment, "the clock is set", lambda by=seconds: world.set_clocks(by))
        try:
            simulation.run()
            world.judge()
        finally:
            world.close()


@pytest.mark.parametrize("hours", [1, 5, 24 * 365 * 50])
def test_a_wall_clock_that_is_set_forward_ends_no_lease(tmp_path: Path, hours: int) -> None:
    """An item that seems to be expired is removed only hours later."""
    for seed in range(10):
        judged(tmp_path / f"{seed}.db", seed, settings=((0.4, hours * HOUR),))


def test_a_wall_clock_that_is_set_forward_and_back_ends_no_lease(tmp_path: Path) -> None:
    """A clock that is wrong for a short time does no harm."""
    for seed in range(10):
        judged(tmp_path / f"{seed}.db", seed, settings=((0.4, 100 * HOUR), (0.9, -100 * HOUR)))


def test_a_wall_clock_that_is_set_forward_repeatedly_may_end_a_lease(tmp_path: Path) -> None:
    """Two changes of hours during one lease, each seen by a sweep, break an assumption."""
    settings = ((0.4, 100 * HOUR), (0.9, 100 * HOUR))

    def refused(seed: int) -> bool:
        try:
            judged(tmp_path / f"{seed}.db", seed, settings=settings)
        except NotLinearizable:
            return True
        return False

    assert any(refused(seed) for seed in range(10))
