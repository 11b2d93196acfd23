"""A small world of namespaces that is explored whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from commitlog.testing.sim import Choices, Fault, Faults, Simulation
from sim.namespace.world import Program, world_of
from sim.outputs.world import explored


@frozen(kw_only=True)
class Case:
    """A world to explore.

    Attributes:
        name: what it is about.
        clients: what each of them does.
        faults: what may happen.
        most: how often, in one run.
        told: what must have been told to somebody in some run, or the world is not what it seems.
        options: those of `world_of`.
    """

    name: str
    clients: Mapping[str, Program]
    faults: tuple[Fault, ...] = ()
    most: int = 1
    told: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(factory=dict)

    def __str__(self) -> str:
        return self.name

    def simulation(self, choices: Choices) -> Simulation:
        """Return the simulation; what is late is so by more than anybody waits for it."""
        rates = dict.fromkeys(self.faults, 0.01)
        return Simulation(choices, faults=Faults(rates=rates, delays=(5.0,), most=self.most))

    def check(self, **common: Any) -> None:
        """Explore it all. Options that it does not have of its own are `common` ones."""
        told: Counter[str] = Counter()
        print(f"\n{self.name:70}", end="")
        options = {**common, **self.options}
        explored(world_of(self.clients, simulation=self.simulation, outcomes=told, **options))
        print(f" {dict(sorted(told.items()))}", end="")
        assert told.keys() >= set(self.told)
