"""Operation logs on the simulator: small worlds explored whole, large ones drawn from seeds.

What is checked is in `sim.oplog.world`. ``python -m pytest tests/sim/oplog/test_oplog.py -s -k states``
prints how large the worlds are. With ``-m campaign`` larger ones are explored, for minutes. ``python -m
commitlog.testing.sim --list`` names the large worlds, which it runs from seeds.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from attrs import field, frozen

from commitlog.oplog import Decision
from commitlog.testing.sim import Choices, Fault, Faults, Simulation, explore
from sim.oplog.world import Program, compact, decide_any, recover, run, world_of
from sim.outputs.world import explored
from worlds import run_seeds

COMMITTED, ROLLED_BACK = Decision.COMMITTED, Decision.ROLLED_BACK

#: How long decisions are kept, in seconds, and what is well before and well after that.
SETTLE = 20.0
SOON, LATE = 4.0, 1.5 * SETTLE


@pytest.fixture(autouse=True)
def _no_warnings_are_kept() -> Iterator[None]:
    """Spare the log the warnings of operations that were left pending."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@frozen(kw_only=True)
class Case:
    """A world to explore.

    Attributes:
        name: what it is about.
        nodes: what each does.
        faults: what may happen.
        most: most faults in a run.
        delays: lengths of delays and pauses.
        told: what must have been told to somebody in some run, or the world is not what it seems.
        options: those of `world_of`.
    """

    name: str
    nodes: Mapping[str, Program]
    faults: tuple[Fault, ...] = tuple(Fault)
    most: int = 1
    delays: tuple[float, ...] = (SOON,)
    told: tuple[str, ...] = ("run: committed",)
    options: Mapping[str, Any] = field(factory=dict)

    def __str__(self) -> str:
        return self.name

    def simulation(self, choices: Choices) -> Simulation:
        """Return the simulation."""
        rates = dict.fromkeys(self.faults, 0.01)
        return Simulation(choices, faults=Faults(rates=rates, delays=self.delays, most=self.most))

    def check(self) -> None:
        """Explore it all."""
        told: Counter[str] = Counter()
        print(f"\n{self.name:55}", end="")
        explored(
            world_of(
                self.nodes,
                simulation=self.simulation,
                outcomes=told,
                settle=SETTLE,
                **self.options,
            )
        )
        assert told.keys() >= set(self.told)


RIVALS = ("run: committed", "run: OutcomeUnknown")

#: Whoever was left pending is recovered, and what is old is forgotten, at the same moment.
AT_ONCE = {"after": {"R": LATE, "X": LATE, "Y": LATE}}

SMALL = [
    Case(
        name="an operation, two faults",
        nodes={"A": run()},
        most=2,
        told=("run: committed", "begin: Unavailable"),
    ),
    Case(
        name="an operation and another decision, any fault",
        nodes={"A": run(), "B": decide_any(ROLLED_BACK)},
        told=(*RIVALS, "decide: committed", "decide: rolled-back", "run: drift"),
    ),
    Case(
        name="an operation and a recovery, any fault",
        nodes={"A": run(), "R": recover(ROLLED_BACK)},
        told=(*RIVALS, "recover: committed", "recover: rolled-back", "run: drift"),
    ),
    Case(
        name="an operation that fails and a recovery, any fault",
        nodes={"A": run(fails=True), "R": recover(ROLLED_BACK)},
        told=("run: failed", "recover: rolled-back"),
    ),
    Case(
        name="an operation with an effect and a recovery, any fault",
        nodes={"A": run(), "R": recover(ROLLED_BACK)},
        told=(*RIVALS, "run: AlreadyExists", "recover: committed", "recover: rolled-back"),
        options={"effects": True},
    ),
    Case(
        name="an operation, two deciders, a crash",
        nodes={"A": run(), "B": decide_any(ROLLED_BACK), "C": decide_any(COMMITTED)},
        faults=(Fault.CRASHED,),
        told=("decide: committed", "decide: rolled-back"),
    ),
    Case(
        name="a recovery beside a compaction, any fault",
        nodes={"A": run(), "R": recover(ROLLED_BACK), "X": compact()},
        told=("recover: committed", "recover: rolled-back", "compact: something"),
        options=AT_ONCE,
    ),
    Case(
        name="a recovery beside two compactions, a crash",
        nodes={"A": run(), "R": recover(ROLLED_BACK), "X": compact(), "Y": compact()},
        faults=(Fault.CRASHED,),
        told=("recover: committed", "recover: rolled-back", "compact: something"),
        options=AT_ONCE,
    ),
    Case(
        name="a zombie, a recovery, a compaction, any fault",
        nodes={"A": run(seconds=LATE), "R": recover(ROLLED_BACK), "X": compact()},
        told=(*RIVALS, "recover: rolled-back", "compact: something"),
        options={"after": {"R": 1.0, "X": LATE}},
    ),
    Case(
        name="a zombie with an effect, a recovery, a compaction, any fault",
        nodes={"A": run(seconds=LATE), "R": recover(ROLLED_BACK), "X": compact()},
        told=("run: AlreadyExists", "recover: rolled-back", "compact: something"),
        options={"after": {"R": 1.0, "X": LATE}, "effects": True},
    ),
    Case(
        name="a decision on what is forgotten, any fault",
        nodes={"A": run(), "B": decide_any(ROLLED_BACK, after=LATE), "X": compact()},
        told=("decide: NotFound", "decide: committed"),
        options={"after": {"X": LATE}},
    ),
    *(
        Case(
            name=f"two deciders, compactions, a pause of {pause / SETTLE:g} × settle",
            nodes={
                "A": run(),
                "B": decide_any(ROLLED_BACK),
                "R": recover(COMMITTED),
                "X": compact(times=6, every=11),
            },
            faults=(Fault.PAUSED,),
            delays=(pause,),
            told=(*RIVALS, "decide: committed", "decide: rolled-back", "compact: something"),
            options={"after": {"R": 2.0, "X": 1.05 * SETTLE}},
        )
        for pause in (0.3 * SETTLE, 0.9 * SETTLE, 1.2 * SETTLE, 5 * SETTLE)
    ),
]

LARGE = [
    Case(
        name="an operation with an effect and a recovery, two faults",
        nodes={"A": run(), "R": recover(ROLLED_BACK)},
        most=2,
        options={"effects": True},
    ),
    Case(
        name="a recovery beside a compaction, two faults",
        nodes={"A": run(), "R": recover(ROLLED_BACK), "X": compact()},
        most=2,
        options=AT_ONCE,
    ),
    Case(
        name="a recovery beside two compactions, any fault",
        nodes={"A": run(), "R": recover(ROLLED_BACK), "X": compact(), "Y": compact()},
        options=AT_ONCE,
    ),
    Case(
        name="an operation, two deciders, any fault",
        nodes={"A": run(), "B": decide_any(ROLLED_BACK), "C": decide_any(COMMITTED)},
    ),
    Case(
        name="a zombie, a recovery, a compaction, two faults",
        nodes={"A": run(seconds=LATE), "R": recover(ROLLED_BACK), "X": compact()},
        most=2,
        options={"after": {"R": 1.0, "X": LATE}},
    ),
]


@pytest.mark.parametrize("case", SMALL, ids=str)
def test_states_of_small_worlds(case: Case) -> None:
    """An operation is decided once, and all who are told a decision are told that one."""
    case.check()


@pytest.mark.campaign
@pytest.mark.timeout(0)
@pytest.mark.parametrize("case", LARGE, ids=str)
def test_states_of_larger_worlds(case: Case) -> None:
    """The same, with more ways to go wrong."""
    case.check()


def test_what_a_stall_can_show_for_a_moment_is_known() -> None:
    """Beyond what compaction rests on: who stalls for too long shows a decision, and takes it back."""
    case = Case(
        name="a stall that is watched",
        nodes={
            "A": run(),
            "B": decide_any(ROLLED_BACK),
            "C": decide_any(COMMITTED, after=LATE),
            "X": compact(),
        },
        faults=(Fault.PAUSED,),
        delays=(LATE,),
        options={"after": {"X": 1.05 * SETTLE}},
    )
    world = world_of(case.nodes, simulation=case.simulation, settle=SETTLE, **case.options)
    worst = explore(world).shortest
    assert worst is not None
    assert "and somebody is told" in str(worst.error)


@pytest.mark.parametrize(("kind", "runs"), [("effects", 600), ("opinions", 150)])
def test_some_seeds(kind: str, runs: int) -> None:
    """Three to five nodes, everything that can go wrong, and the same."""
    report = run_seeds(f"oplog-{kind}", runs)
    assert set(report.faults) == set(Fault) - {Fault.SWEPT, Fault.MISROUTED}
    wanted = (
        *("run: committed", "run: failed", "run: OutcomeUnknown", "run: drift"),
        *("decide: committed", "decide: rolled-back", "decide: NotFound"),
        *("recover: committed", "recover: rolled-back", "compact: something", "pending: some"),
    )
    assert report.outcomes.keys() >= set(wanted)
