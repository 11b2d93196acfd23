"""Operation logs in the simulator: small worlds, explored exhaustively, and large ones from seeds.

`sim.oplog.judge` has the checks. ``python -m pytest tests/sim/oplog/test_oplog.py -s -k states`` prints
the size of each world. With ``-m campaign`` larger ones are explored, for minutes. ``python -m
commitlog.testing.sim --list`` lists the large worlds.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial

import pytest

from commitlog.oplog import Decision
from commitlog.testing.sim import Fault, explore
from sim.exploration import Case
from sim.oplog.actions import compact, decide_any, recover, run
from sim.oplog.world import world_of
from support.selection import examples, with_all_but
from worlds import run_seeds

COMMITTED, ROLLED_BACK = Decision.COMMITTED, Decision.ROLLED_BACK

#: The retention of decisions in seconds, and times well before and well after its end.
RETENTION = 20.0
SOON, LATE = 4.0, 1.5 * RETENTION


@pytest.fixture(autouse=True)
def _silence_warnings() -> Iterator[None]:
    """Silence the warnings about operations that were left pending."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


log_case = partial(Case, faults=tuple(Fault), delays=(SOON,), expected=("run: committed",))

RIVALS = ("run: committed", "run: OutcomeUnknown")

#: Recovery and compaction start at the same time.
AT_ONCE = {"after": {"R": LATE, "X": LATE, "Y": LATE}}

SMALL = [
    log_case(
        name="an operation, two faults",
        programs={"A": run()},
        most=2,
        expected=("run: committed", "begin: Unavailable"),
    ),
    log_case(
        name="an operation and another decision, any fault",
        programs={"A": run(), "B": decide_any(ROLLED_BACK)},
        expected=(*RIVALS, "decide: committed", "decide: rolled-back", "run: drift"),
    ),
    log_case(
        name="an operation and a recovery, any fault",
        programs={"A": run(), "R": recover(ROLLED_BACK)},
        expected=(*RIVALS, "recover: committed", "recover: rolled-back", "run: drift"),
    ),
    log_case(
        name="an operation that fails and a recovery, any fault",
        programs={"A": run(fails=True), "R": recover(ROLLED_BACK)},
        expected=("run: failed", "recover: rolled-back"),
    ),
    log_case(
        name="an operation with an effect and a recovery, any fault",
        programs={"A": run(), "R": recover(ROLLED_BACK)},
        expected=(*RIVALS, "run: AlreadyExists", "recover: committed", "recover: rolled-back"),
        options={"effects": True},
    ),
    log_case(
        name="an operation, two deciders, a crash",
        programs={"A": run(), "B": decide_any(ROLLED_BACK), "C": decide_any(COMMITTED)},
        faults=(Fault.CRASHED,),
        expected=("decide: committed", "decide: rolled-back"),
    ),
    log_case(
        name="a recovery beside a compaction, any fault",
        programs={"A": run(), "R": recover(ROLLED_BACK), "X": compact()},
        expected=("recover: committed", "recover: rolled-back", "compact: something"),
        options=AT_ONCE,
    ),
    log_case(
        name="a recovery beside two compactions, a crash",
        programs={"A": run(), "R": recover(ROLLED_BACK), "X": compact(), "Y": compact()},
        faults=(Fault.CRASHED,),
        expected=("recover: committed", "recover: rolled-back", "compact: something"),
        options=AT_ONCE,
    ),
    log_case(
        name="a zombie, a recovery, a compaction, any fault",
        programs={"A": run(seconds=LATE), "R": recover(ROLLED_BACK), "X": compact()},
        expected=(*RIVALS, "recover: rolled-back", "compact: something"),
        options={"after": {"R": 1.0, "X": LATE}},
    ),
    log_case(
        name="a zombie with an effect, a recovery, a compaction, any fault",
        programs={"A": run(seconds=LATE), "R": recover(ROLLED_BACK), "X": compact()},
        expected=("run: AlreadyExists", "recover: rolled-back", "compact: something"),
        options={"after": {"R": 1.0, "X": LATE}, "effects": True},
    ),
    log_case(
        name="a decision on a forgotten operation, any fault",
        programs={"A": run(), "B": decide_any(ROLLED_BACK, after=LATE), "X": compact()},
        expected=("decide: NotFound", "decide: committed"),
        options={"after": {"X": LATE}},
    ),
    *(
        log_case(
            name=f"two deciders, compactions, a pause of {pause / RETENTION:g} × settle",
            programs={
                "A": run(),
                "B": decide_any(ROLLED_BACK),
                "R": recover(COMMITTED),
                "X": compact(times=6, every=11),
            },
            faults=(Fault.PAUSED,),
            delays=(pause,),
            expected=(*RIVALS, "decide: committed", "decide: rolled-back", "compact: something"),
            options={"after": {"R": 2.0, "X": 1.05 * RETENTION}},
        )
        for pause in (0.3 * RETENTION, 0.9 * RETENTION, 1.2 * RETENTION, 5 * RETENTION)
    ),
]

LARGE = [
    log_case(
        name="an operation with an effect and a recovery, two faults",
        programs={"A": run(), "R": recover(ROLLED_BACK)},
        most=2,
        options={"effects": True},
    ),
    log_case(
        name="a recovery beside a compaction, two faults",
        programs={"A": run(), "R": recover(ROLLED_BACK), "X": compact()},
        most=2,
        options=AT_ONCE,
    ),
    log_case(
        name="a recovery beside two compactions, any fault",
        programs={"A": run(), "R": recover(ROLLED_BACK), "X": compact(), "Y": compact()},
        options=AT_ONCE,
    ),
    log_case(
        name="an operation, two deciders, any fault",
        programs={"A": run(), "B": decide_any(ROLLED_BACK), "C": decide_any(COMMITTED)},
    ),
    log_case(
        name="a zombie, a recovery, a compaction, two faults",
        programs={"A": run(seconds=LATE), "R": recover(ROLLED_BACK), "X": compact()},
        most=2,
        options={"after": {"R": 1.0, "X": LATE}},
    ),
]


#: Small worlds of the default run.
QUICK = (
    "an operation, two faults",
    "an operation that fails and a recovery, any fault",
    "a recovery beside a compaction, any fault",
    "an operation and another decision, any fault",
    *(case.name for case in SMALL if case.name.startswith("two deciders")),
)


@pytest.mark.parametrize("case", with_all_but(lambda case: case.name in QUICK, SMALL), ids=str)
def test_states_of_small_worlds(case: Case) -> None:
    """An operation is decided once, and every client gets that decision."""
    case.check(world_of, retention=RETENTION)


@pytest.mark.campaign
@pytest.mark.timeout(0)
@pytest.mark.parametrize("case", LARGE, ids=str)
def test_states_of_larger_worlds(case: Case) -> None:
    """The same holds in larger worlds, with more clients and faults."""
    case.check(world_of, retention=RETENTION)


def test_a_long_stall_can_show_a_wrong_decision_for_a_moment() -> None:
    """A process that stalls withdraws its decision later. This breaks an assumption of `compact`."""
    case = log_case(
        name="a stall and a reader",
        programs={
            "A": run(),
            "B": decide_any(ROLLED_BACK),
            "C": decide_any(COMMITTED, after=LATE),
            "X": compact(),
        },
        faults=(Fault.PAUSED,),
        delays=(LATE,),
        options={"after": {"X": 1.05 * RETENTION}},
    )
    world = world_of(case.programs, simulation=case.simulation, retention=RETENTION, **case.options)
    worst = explore(world).shortest
    assert worst is not None
    assert "a client got" in str(worst.error)


@pytest.mark.parametrize(("kind", "runs"), [("effects", 600), ("opinions", examples(75, 150))])
def test_some_seeds(kind: str, runs: int) -> None:
    """The same holds in random worlds of three to five nodes with all faults."""
    report = run_seeds(f"oplog-{kind}", runs)
    assert set(report.faults) == set(Fault) - {Fault.SWEPT, Fault.MISROUTED}
    wanted = (
        *("run: committed", "run: failed", "run: OutcomeUnknown", "run: drift"),
        *("decide: committed", "decide: rolled-back", "decide: NotFound"),
        *("recover: committed", "recover: rolled-back", "compact: something", "pending: some"),
    )
    assert report.outcomes.keys() >= set(wanted)
