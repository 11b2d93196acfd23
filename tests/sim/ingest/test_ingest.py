"""Sources on the simulator: small worlds explored whole, large ones drawn from seeds.

What is checked is in `sim.ingest.world`. ``python -m pytest tests/sim/ingest/test_ingest.py -s -k
states`` prints how large the worlds are. With ``-m campaign`` larger ones are explored, for minutes.
``python -m commitlog.testing.sim --list`` names the large worlds, which it runs from seeds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from attrs import field, frozen

from commitlog.ingest import IngestSettings
from commitlog.testing.sim import Choices, Fault, Faults, Simulation
from sim.ingest.seeded import GRACE
from sim.ingest.world import Upload, world_of
from sim.outputs.world import explored
from worlds import run_seeds

_ONE_AT_A_TIME = IngestSettings(source="s", grace=GRACE, max_files=1)
_EVERYTHING = tuple(Fault)


@frozen(kw_only=True)
class Case:
    """A world to explore.

    Attributes:
        name: what it is about.
        drivers: arguments of `IngestWorld.start` for each node.
        uploads: what is put into the bucket.
        faults: what may happen.
        most: most faults in a run.
        told: what must have been told in some run, or the world is not what it seems.
        options: those of `IngestWorld`.
    """

    name: str
    drivers: Mapping[str, Mapping[str, Any]]
    uploads: Sequence[Upload]
    faults: tuple[Fault, ...] = ()
    most: int = 1
    told: tuple[str, ...] = ("batch", "nothing new")
    options: Mapping[str, Any] = field(factory=dict)

    def __str__(self) -> str:
        return self.name

    def check(self) -> None:
        """Explore it all."""

        def simulation(choices: Choices) -> Simulation:
            rates = dict.fromkeys(self.faults, 0.01)
            return Simulation(choices, faults=Faults(rates=rates, delays=(4.0,), most=self.most))

        told: Counter[str] = Counter()
        print(f"\n{self.name:55}", end="")
        options = {"settings": _ONE_AT_A_TIME, **self.options}
        explored(
            world_of(self.drivers, uploads=self.uploads, simulation=simulation, outcomes=told, **options)
        )
        assert told.keys() >= set(self.told)


_TWO = [Upload("a"), Upload("b", age=3)]
_TROUBLE = ("batch", "Unavailable", "OutcomeUnknown")

SMALL = [
    Case(
        name="a driver, two files, any fault",
        drivers={"A": {"batches": 2}},
        uploads=_TWO,
        faults=_EVERYTHING,
        told=_TROUBLE,
    ),
    Case(
        name="a driver, a file in slices, any fault",
        drivers={"A": {"batches": 2}},
        uploads=[Upload("a", size=3)],
        faults=_EVERYTHING,
        told=_TROUBLE,
        options={
            "settings": IngestSettings(source="s", grace=GRACE, max_bytes=2, slice_bytes=2),
            "splits": True,
        },
    ),
    Case(
        name="a driver, a late file, any fault",
        drivers={"A": {"batches": 3, "every": 6.0}},
        uploads=[Upload("b"), Upload("c"), Upload("a", at=5, age=GRACE - 2)],
        faults=_EVERYTHING,
    ),
    Case(
        name="a driver, an overwritten file, a crash",
        drivers={"A": {"batches": 3, "every": 6.0}},
        uploads=[Upload("a"), Upload("a", at=3, size=2), Upload("a", at=9, size=3)],
        faults=(Fault.CRASHED,),
        told=("batch",),
    ),
    Case(
        name="a driver, keys that grow and one that does not, a crash or a lost answer",
        drivers={"A": {"batches": 4, "every": 2 * GRACE}},
        uploads=[Upload("b"), Upload("c", at=3 * GRACE), Upload("a", at=3 * GRACE, age=GRACE)],
        faults=(Fault.CRASHED, Fault.LOST_RESPONSE),
        options={"settings": IngestSettings(source="s", grace=GRACE, ordered=True, list_limit=1)},
    ),
    Case(
        name="two drivers at once, a file",
        drivers={"A": {"batches": 1, "lives": 2}, "B": {"batches": 1, "lives": 2}},
        uploads=[Upload("a")],
        told=("batch", "StateMismatch", "Stop"),
    ),
    Case(
        name="a zombie and its successor, two files, a pause",
        drivers={"A": {"batches": 2, "lives": 2}, "B": {"batches": 1, "lives": 1, "after": 2.0}},
        uploads=_TWO,
        faults=(Fault.PAUSED,),
        told=("batch",),
    ),
]

LARGE = [
    Case(
        name="a zombie and its successor, two files, a pause or a crash",
        drivers={"A": {"batches": 2}, "B": {"batches": 2, "after": 2.0}},
        uploads=_TWO,
        faults=(Fault.PAUSED, Fault.CRASHED),
        told=("batch", "Stop"),
    ),
    Case(
        name="a driver, a file, two faults",
        drivers={"A": {"batches": 2}},
        uploads=[Upload("a")],
        faults=_EVERYTHING,
        most=2,
        told=_TROUBLE,
    ),
    Case(
        name="two drivers at once, two files",
        drivers={"A": {"batches": 2}, "B": {"batches": 1}},
        uploads=_TWO,
    ),
    Case(
        name="two drivers at once, a file, any fault",
        drivers={"A": {"batches": 1, "lives": 2}, "B": {"batches": 1, "lives": 2}},
        uploads=[Upload("a")],
        faults=_EVERYTHING,
    ),
]


@pytest.mark.parametrize("case", SMALL, ids=str)
def test_states_of_small_worlds(case: Case) -> None:
    """Each byte of each version comes once, whatever happens to the drivers and their requests."""
    case.check()


@pytest.mark.campaign
@pytest.mark.timeout(0)
@pytest.mark.parametrize("case", LARGE, ids=str)
def test_states_of_larger_worlds(case: Case) -> None:
    """The same, with more ways to go wrong."""
    case.check()


def test_some_seeds() -> None:
    """One to three drivers, everything that can go wrong, and the same."""
    report = run_seeds("ingest", 120)
    assert set(report.faults) >= set(Fault) - {Fault.SWEPT, Fault.PARTIAL, Fault.MISROUTED}
    wanted = ("batch", "nothing new", "Unavailable", "OutcomeUnknown", "Stop", "StateMismatch")
    assert report.outcomes.keys() >= set(wanted)
