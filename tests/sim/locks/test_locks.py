"""Locks in the simulator: small worlds, explored exhaustively, and large ones from seeds.

`sim.locks.judge` has the checks. ``python -m pytest tests/sim/locks -s -k states`` prints the size of
each world. With ``-m campaign`` larger ones are explored.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import pytest

from commitlog.testing.sim import Fault
from sim.exploration import Case
from sim.locks.actions import Program, break_lock, hold, jump, remove_record
from sim.locks.world import world_of
from sim.nodes import ClockSkew, in_sequence
from support.selection import examples, with_all_but
from worlds import run_seeds

#: The fastest clock that the settings of the worlds allow, if all others are accurate.
FAST = {"B": ClockSkew(rate=1.5)}

#: Long enough for the lock of a holder that died.
PATIENT: Mapping[str, Any] = {"timeout": 20.0}

HELD = ("acquire: held", "release: done")


@pytest.fixture(autouse=True)
def _silence_warnings() -> Iterator[None]:
    """Silence the warnings about locks that were lost."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def _cases(place: str) -> Iterator[Case]:
    case = partial(Case, faults=tuple(Fault), expected=HELD)
    options = {"place": place}
    yield case(
        name=f"one client of a {place}, any fault",
        programs={"A": hold(tries=2)},
        most=2,
        options=options,
    )
    yield case(
        name=f"two clients of a {place} that do not wait, any fault",
        programs={"A": hold(blocking=False), "B": hold(blocking=False)},
        faults=tuple(Fault) if place == "table" else (Fault.LOST_RESPONSE, Fault.DELAYED),
        expected=(*HELD, "acquire: refused"),
        options=options,
    )
    yield case(
        name=f"a holder and a waiter with a fast clock in a {place}",
        programs={"A": hold(beats=2), "B": hold(**PATIENT)},
        faults=(Fault.PAUSED, *((Fault.LOST_RESPONSE, Fault.CRASHED) if place == "table" else ())),
        expected=(*HELD, "heartbeat: held", "heartbeat: lost"),
        options={**options, "clocks": FAST},
    )
    yield case(
        name=f"two clients of a {place} increment, delays and pauses",
        programs={"A": hold(increments=1, work=1), "B": hold(increments=1, work=1, **PATIENT)},
        faults=(Fault.PAUSED, Fault.DELAYED),
        expected=(*HELD, "increment: done", "increment: StaleToken"),
        options=options,
    )
    yield case(
        name=f"a holder of a {place} that dies, and two heartbeats of the next",
        programs={"A": hold(rest=5, releases=False), "B": hold(beats=2, **PATIENT)},
        faults=(Fault.DUPLICATED, Fault.LOST_RESPONSE),
        expected=(*HELD, "heartbeat: held"),
        options={**options, "clocks": FAST},
    )
    yield case(
        name=f"a lock in a {place} is broken",
        programs={"A": hold(rest=5), "B": hold(**PATIENT), "C": break_lock(after=0.5)},
        faults=(Fault.PAUSED,) if place == "table" else (),
        expected=(*HELD, "break: done", "break: needless", "release: LockLost"),
        options=options,
    )
    yield case(
        name=f"the record of a {place} is removed between two holders",
        programs={"A": hold(beats=1), "B": hold(), "C": remove_record(after=2)},
        expected=HELD,
        faults=(),
        options={**options, "after": {"B": 3.0}},
    )
    yield case(
        name=f"wall clocks jump, in a {place}",
        programs={
            "A": in_sequence(jump(-1e6), hold(beats=2)),
            "B": in_sequence(jump(1e6), hold(beats=1, **PATIENT)),
        },
        faults=(Fault.PAUSED,),
        options=options,
    )


CASES = [
    *_cases("table"),
    *_cases("store"),
    Case(
        name="a semaphore of two permits and three clients",
        programs={"A": hold(), "B": hold(beats=1), "C": hold(**PATIENT)},
        expected=HELD,
        options={"permits": 2},
    ),
]


#: Worlds of the default run: one in four, without the one with the most states.
QUICK = {case.name for case in CASES[::4]} - {"one client of a store, any fault"}


@pytest.mark.parametrize("case", with_all_but(lambda case: case.name in QUICK, CASES), ids=str)
def test_states_of_small_worlds(case: Case) -> None:
    """At most one client holds the lock, tokens grow, and no increment is lost."""
    case.check(world_of)


@pytest.mark.campaign
@pytest.mark.timeout(0)
@pytest.mark.parametrize("place", ["table", "store"])
def test_states_of_larger_worlds(place: str) -> None:
    """The same holds with any two faults, and with every fault of a semaphore."""
    programs: dict[str, Program] = {"A": hold(beats=1), "B": hold(increments=1, **PATIENT)}
    case = Case(name="two faults", programs=programs, faults=tuple(Fault), most=2, expected=HELD)
    case.check(world_of, place=place, clocks=FAST)
    programs = {"A": hold(beats=1), "B": hold(beats=1), "C": hold(timeout=10)}
    case = Case(name="a semaphore", programs=programs, faults=(Fault.PAUSED,), expected=HELD)
    case.check(world_of, place=place, permits=2)


@pytest.mark.parametrize("kind", ["table", "store", "broken", "semaphore"])
def test_some_seeds(kind: str) -> None:
    """The same holds in random worlds of two to four nodes with all faults."""
    # In a store, a lost lock is rare.
    report = run_seeds(f"locks-{kind}", 250 if kind == "store" else examples(100, 250))
    wanted = {
        *("acquire: held", "acquire: refused", "heartbeat: held"),
        *("heartbeat: lost", "release: done", "release: LockLost", "break: done"),
    }
    if kind != "semaphore":
        wanted |= {"increment: done", "increment: StaleToken", "increment: LockLost"}
    assert report.outcomes.keys() >= wanted
