"""Sources on the simulator: small worlds explored whole, large ones drawn from seeds.

What is checked is in `sim_ingest_kit`. ``python -m pytest tests/test_sim_ingest.py -s -k states`` prints
how large the worlds are. With ``-m campaign`` larger ones are explored, for minutes, and seeds are drawn
for as long as ``--campaign-seconds`` says, from ``--campaign-seed`` on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import pytest
from attrs import field, frozen
from sim_ingest_kit import IngestWorld, Upload, world_of
from sim_kit import Ticks, seeded
from sim_outputs_kit import explored

from commitlog.ingest import IngestSettings
from commitlog.testing.sim import Choices, Fault, Faults, Simulation, World, campaign

T = TypeVar("T")

GRACE = 10.0

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


#: How probable a fault is, at each point where it is possible, when a run has it at all.
_USUAL = (0.0, 0.01, 0.04)
_RATES: Mapping[Fault, tuple[float, ...]] = {
    **dict.fromkeys(Fault, _USUAL),
    Fault.PAUSED: (0.0, 0.003, 0.02),
    Fault.CRASHED: (0.0, 0.003, 0.02),
}


def seeded_world(choices: Choices) -> tuple[Simulation, Callable[[], object]]:
    """Build a world of two or three drivers and a bucket that fills; everything about it is drawn."""

    def draw(what: str, options: Sequence[T]) -> T:
        return options[choices.pick(what, [1.0] * len(options))]

    faults = Faults(
        rates={fault: draw(f"rate of {fault.value}", rates) for fault, rates in _RATES.items()},
        delays=(0.2, 1.0, 3.0, 9.0),
        until=draw("faults until", (10.0, 60.0)),
    )
    latencies = draw("network", ((0.005,), (0.005, 0.05), (0.005, 0.05, 0.6)))
    simulation = Simulation(choices, faults=faults, latencies=latencies)
    ordered = draw("ordered", (False, False, True))
    settings = IngestSettings(
        source="s",
        grace=GRACE,
        ordered=ordered,
        max_files=draw("files", (1, 2, 5)),
        max_bytes=draw("bytes", (None, 2, 7)),
        slice_bytes=draw("slice", (1, 3)),
        list_limit=draw("limit", (None, 1, 3)),
        remember=draw("remember", ("window", "window", "everything")),
    )
    uploads = []
    at = 0.0
    for number in range(draw("uploads", (3, 8))):
        at += draw("pause", (0.0, 0.3, 3.0, 2 * GRACE))
        age = draw("age", (0.0, 0.0, 1.0, GRACE - 1))
        # Keys grow, or do not.
        name = draw("name", (*"abcde", *[f"c{number:03}"] * (5 if ordered else 1)))
        uploads.append(Upload(name, at=at, size=draw("size", (0, 1, 4, 9)), age=age))

    def clock() -> Ticks:
        return Ticks(rate=draw("rate", (1.0, 0.9, 1.1)), offset=draw("offset", (0.0, -5e4, 5e4)))

    world = IngestWorld(
        simulation,
        nodes={name: clock() for name in draw("drivers", ("A", "AB", "ABC"))},
        settings=settings,
        uploads=uploads,
        splits=draw("splits", (False, True)),
        store=Ticks(offset=draw("store", (0.0, 300.0))),
        backoff=seeded(draw("jitter", range(100)), base=0.1, cap=1.0, tries=4),
    )
    for name in world.nodes:
        every = draw("every", (0.05, 1.0, GRACE / 2))
        world.start(name, batches=draw("batches", (3, 10)), every=every, lives=10)
    return simulation, world.judge


WORLD: World = seeded_world
AGAIN = (
    "pytest tests/test_sim_ingest.py -m campaign -k many_seeds --campaign-seconds 0.1 "
    "--campaign-seed {seed}"
)


def test_some_seeds() -> None:
    """One to three drivers, everything that can go wrong, and the same."""
    report = campaign(WORLD, runs=120, again=AGAIN)
    print(f"\n{report}")
    assert set(report.faults) >= set(Fault) - {Fault.SWEPT, Fault.PARTIAL}
    wanted = ("batch", "nothing new", "Unavailable", "OutcomeUnknown", "Stop", "StateMismatch")
    assert report.told.keys() >= set(wanted)


@pytest.mark.campaign
@pytest.mark.timeout(0)
def test_many_seeds(
    campaign_seconds: float, campaign_seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same, for as long as told."""
    with capsys.disabled():
        report = campaign(
            WORLD,
            seed=campaign_seed,
            seconds=campaign_seconds,
            again=AGAIN,
            tell=lambda line: print(f"\n{line}", end=""),
        )
        print(f"\n{report}")
