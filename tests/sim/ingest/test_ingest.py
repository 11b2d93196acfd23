"""Ingest in the simulator: small worlds, explored exhaustively, and large ones from seeds.

`sim.ingest.judge` has the checks. ``python -m pytest tests/sim/ingest/test_ingest.py -s -k states``
prints the size of each world. With ``-m campaign`` larger ones are explored, for minutes. ``python -m
commitlog.testing.sim --list`` lists the large worlds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from attrs import evolve

from commitlog.ingest import IngestSettings
from commitlog.testing.sim import Fault
from sim.exploration import Case
from sim.ingest.actions import Upload
from sim.ingest.random_world import GRACE
from sim.ingest.world import world_of
from support.selection import with_all_but
from worlds import run_seeds

_ONE_AT_A_TIME = IngestSettings(source="s", grace=GRACE, max_files=1)
_EVERYTHING = tuple(Fault)
_DELETING = evolve(_ONE_AT_A_TIME, clean="delete", missing="skip")


def ingest_case(*, uploads: Sequence[Upload], options: Mapping[str, Any] = {}, **arguments: Any) -> Case:
    """Return a case with these uploads."""
    options = {"settings": _ONE_AT_A_TIME, "uploads": uploads, **options}
    return Case(
        **{"delays": (4.0,), "expected": ("batch", "nothing new"), "options": options, **arguments}
    )


_TWO = [Upload("a"), Upload("b", age=3)]
_TROUBLE = ("batch", "Unavailable", "OutcomeUnknown")

SMALL = [
    ingest_case(
        name="a driver, two files, any fault",
        programs={"A": {"batches": 2}},
        uploads=_TWO,
        faults=_EVERYTHING,
        expected=_TROUBLE,
    ),
    ingest_case(
        name="a driver, a file in slices, any fault",
        programs={"A": {"batches": 2}},
        uploads=[Upload("a", size=3)],
        faults=_EVERYTHING,
        expected=_TROUBLE,
        options={
            "settings": IngestSettings(source="s", grace=GRACE, max_bytes=2, slice_bytes=2),
            "splits": True,
        },
    ),
    ingest_case(
        name="a driver, a late file, any fault",
        programs={"A": {"batches": 3, "every": 6.0}},
        uploads=[Upload("b"), Upload("c"), Upload("a", at=5, age=GRACE - 2)],
        faults=_EVERYTHING,
    ),
    ingest_case(
        name="a driver, an overwritten file, a crash",
        programs={"A": {"batches": 3, "every": 6.0}},
        uploads=[Upload("a"), Upload("a", at=3, size=2), Upload("a", at=9, size=3)],
        faults=(Fault.CRASHED,),
        expected=("batch",),
    ),
    ingest_case(
        name="a driver, keys that grow and one that does not, a crash or a lost answer",
        programs={"A": {"batches": 4, "every": 2 * GRACE}},
        uploads=[Upload("b"), Upload("c", at=3 * GRACE), Upload("a", at=3 * GRACE, age=GRACE)],
        faults=(Fault.CRASHED, Fault.LOST_RESPONSE),
        options={"settings": IngestSettings(source="s", grace=GRACE, ordered=True, list_limit=1)},
    ),
    ingest_case(
        name="two drivers at once, a file",
        programs={"A": {"batches": 1, "lives": 2}, "B": {"batches": 1, "lives": 2}},
        uploads=[Upload("a")],
        expected=("batch", "StateMismatch", "Stop"),
    ),
    ingest_case(
        name="a zombie and its successor, two files, a pause",
        programs={"A": {"batches": 2, "lives": 2}, "B": {"batches": 1, "lives": 1, "after": 2.0}},
        uploads=_TWO,
        faults=(Fault.PAUSED,),
        expected=("batch",),
    ),
    ingest_case(
        name="a driver with notifications, lost, late and repeated ones, any fault",
        programs={"A": {"batches": 3, "every": 6.0}},
        uploads=[Upload("a", age=60), Upload("b"), Upload("c", at=5.0)],
        faults=_EVERYTHING,
        expected=_TROUBLE,
        options={
            "settings": evolve(_ONE_AT_A_TIME, listing_interval=10.0),
            "messages": ((4.0, "a"), (5.0, "c"), (5.0, "c")),
        },
    ),
    ingest_case(
        name="a driver and a cleaner, old files, any fault",
        programs={"A": {"batches": 2, "every": 2.0}, "C": {"steps": 2, "every": 2.0, "after": 5.0}},
        uploads=[Upload("a", age=60), Upload("b", age=60)],
        faults=_EVERYTHING,
        expected=("batch", "cleaned", "nothing cleaned"),
        options={"settings": _DELETING},
    ),
    ingest_case(
        name="a driver and a cleaner, a new version",
        programs={"A": {"batches": 2, "every": 2.0}, "C": {"steps": 1, "after": 3.0}},
        uploads=[Upload("a", age=60), Upload("b", age=60), Upload("a", at=3.0, size=2)],
        faults=(Fault.DELAYED,),
        expected=("batch", "cleaned", "nothing cleaned"),
        options={"settings": _DELETING},
    ),
    ingest_case(
        name="a driver and two cleaners, an archive, a pause, a crash or a lost answer",
        programs={
            "A": {"batches": 2, "every": 1.0},
            "C": {"steps": 1, "after": 3.0},
            "D": {"steps": 1, "after": 6.0},
        },
        uploads=[Upload("a", age=60), Upload("b", age=60), Upload("a", at=7.0, size=2)],
        faults=(Fault.PAUSED, Fault.CRASHED, Fault.LOST_RESPONSE),
        expected=("batch", "cleaned"),
        options={"settings": evolve(_DELETING, clean="archive", archive="_old/")},
    ),
]

LARGE = [
    ingest_case(
        name="a zombie, its successor and a cleaner, a pause",
        programs={
            "A": {"batches": 2, "lives": 2},
            "B": {"batches": 2, "lives": 1, "after": 2.0},
            "C": {"steps": 2, "every": 2.0, "after": 3.0},
        },
        uploads=[Upload("a", age=60), Upload("b", age=60)],
        faults=(Fault.PAUSED,),
        expected=("batch", "cleaned"),
        options={"settings": evolve(_DELETING, missing="fail")},
    ),
    ingest_case(
        name="a driver and two cleaners at once",
        programs={
            "A": {"batches": 2, "every": 1.0},
            "C": {"steps": 1, "after": 3.0},
            "D": {"steps": 1, "after": 3.0},
        },
        uploads=[Upload("a", age=60), Upload("b", age=60)],
        expected=("batch", "cleaned"),
        options={"settings": evolve(_DELETING, clean="archive", archive="_old/")},
    ),
    ingest_case(
        name="a zombie and its successor, two files, a pause or a crash",
        programs={"A": {"batches": 2}, "B": {"batches": 2, "after": 2.0}},
        uploads=_TWO,
        faults=(Fault.PAUSED, Fault.CRASHED),
        expected=("batch", "Stop"),
    ),
    ingest_case(
        name="a driver, a file, two faults",
        programs={"A": {"batches": 2}},
        uploads=[Upload("a")],
        faults=_EVERYTHING,
        most=2,
        expected=_TROUBLE,
    ),
    ingest_case(
        name="two drivers at once, two files",
        programs={"A": {"batches": 2}, "B": {"batches": 1}},
        uploads=_TWO,
    ),
    ingest_case(
        name="two drivers at once, a file, any fault",
        programs={"A": {"batches": 1, "lives": 2}, "B": {"batches": 1, "lives": 2}},
        uploads=[Upload("a")],
        faults=_EVERYTHING,
    ),
]


#: Worlds with many states that run only with ``--all``, because mutants need their rules, too.
LONG = (
    "a driver with notifications, lost, late and repeated ones, any fault",
    "a driver and a cleaner, a new version",
    "a driver and a cleaner, old files, any fault",
    "a driver and two cleaners, an archive, a pause, a crash or a lost answer",
)


@pytest.mark.parametrize("case", with_all_but(lambda case: case.name not in LONG, SMALL), ids=str)
def test_states_of_small_worlds(case: Case) -> None:
    """Each byte of each version is delivered once, with any fault of the drivers or their requests."""
    case.check(world_of)


@pytest.mark.campaign
@pytest.mark.timeout(0)
@pytest.mark.parametrize("case", LARGE, ids=str)
def test_states_of_larger_worlds(case: Case) -> None:
    """The same holds in larger worlds, with more drivers and faults."""
    case.check(world_of)


def test_some_seeds() -> None:
    """The same holds in random worlds of one to three drivers with all faults."""
    report = run_seeds("ingest", 120)
    assert set(report.faults) >= set(Fault) - {Fault.SWEPT, Fault.PARTIAL, Fault.MISROUTED}
    wanted = ("batch", "nothing new", "Unavailable", "OutcomeUnknown", "Stop", "StateMismatch")
    assert report.outcomes.keys() >= set(wanted)
