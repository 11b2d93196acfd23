"""Small worlds that are explored exhaustively."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from attrs import field, frozen

from commitlog.testing.sim import Choices, Exploration, Fault, Faults, Simulation, World, explore

__all__ = ["Case", "check_all_runs"]


def check_all_runs(world: World) -> Exploration:
    """Explore a world and print its size. Check that the search is complete and no run failed."""
    began = time.process_time()
    found = explore(world)
    seconds = time.process_time() - began
    print(f"{found.states:9,} states {found.runs:9,} runs {seconds:7.1f} s of CPU", end="")
    worst = found.shortest
    assert worst is None, "\n".join((*worst.trace, str(worst.error)))
    assert found.complete
    return found


@frozen(kw_only=True)
class Case:
    """A small world to explore.

    Attributes:
        name: the name of the test case.
        programs: the program of each node, by the node's name.
        faults: the faults that may happen.
        most: maximum number of faults in a run.
        delays: lengths of delays and pauses in seconds. The default is longer than any request waits.
        expected: outcomes that must occur in some run; otherwise the world does not test its subject.
        options: further arguments of the function that returns the world.
    """

    name: str
    programs: Mapping[str, Any]
    faults: tuple[Fault, ...] = ()
    most: int = 1
    delays: tuple[float, ...] = (5.0,)
    expected: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(factory=dict)

    def __str__(self) -> str:
        return self.name

    def simulation(self, choices: Choices) -> Simulation:
        """Return the simulation of one run."""
        rates = dict.fromkeys(self.faults, 0.01)
        return Simulation(choices, faults=Faults(rates=rates, delays=self.delays, most=self.most))

    def check(self, world_of: Callable[..., World], **common: Any) -> None:
        """Check all runs of the world.

        Args:
            world_of: returns the world, given the programs, `simulation`, `outcomes` (a counter of the
                outcomes of all runs) and the options.
            common: options of all cases. The case's own options take precedence.
        """
        outcomes: Counter[str] = Counter()
        print(f"\n{self.name:70}", end="")
        options = {**common, **self.options}
        check_all_runs(world_of(self.programs, simulation=self.simulation, outcomes=outcomes, **options))
        assert outcomes.keys() >= set(self.expected)
