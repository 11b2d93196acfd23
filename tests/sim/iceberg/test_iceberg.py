"""Iceberg catalogs in the simulator: small worlds, explored exhaustively.

`sim.iceberg.judge` has the checks.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from commitlog.testing.sim import Fault
from sim.exploration import Case
from sim.iceberg.world import ONE, TWO, clean, commit, create, drop, find, rename, world_of
from sim.nodes import in_sequence
from support.selection import in_campaigns, with_all, with_all_but

#: The target of renames.
NEW = ("b", "new")

#: Faults of requests and of nodes that a catalog can meet.
ANY = tuple(fault for fault in Fault if fault not in (Fault.PARTIAL, Fault.SWEPT))

case = partial(Case, faults=ANY)

SMALL = [
    case(
        name="two commits, lost and repeated requests",
        programs={"A": commit(ONE), "B": commit(ONE)},
        faults=(Fault.LOST_RESPONSE, Fault.LOST_REQUEST, Fault.REPEATED),
        expected=("commit: done", "commit: failed", "commit: unknown"),
    ),
    case(
        name="a commit and a rename, any fault",
        programs={"A": commit(ONE), "B": rename(ONE, NEW)},
        expected=("commit: done", "rename: done"),
    ),
    case(
        name="a commit and a drop, lost and repeated requests",
        programs={"A": commit(ONE), "B": drop(ONE)},
        faults=(Fault.LOST_RESPONSE, Fault.DELAYED, Fault.REPEATED),
        expected=("commit: done", "commit: failed", "drop: done"),
    ),
    case(
        name="two renames to one name, any fault",
        programs={"A": rename(ONE, NEW), "B": rename(TWO, NEW)},
        expected=("rename: done", "rename: failed", "rename: unknown"),
    ),
    case(
        name="a rename and a creation, any fault",
        programs={"A": rename(ONE, NEW), "B": create(ONE)},
        expected=("create: done", "create: failed"),
    ),
    case(
        name="a table is found while it changes and is dropped",
        programs={"A": find(ONE), "B": in_sequence(commit(ONE), drop(ONE))},
        faults=(Fault.DELAYED,),
        expected=("find: done", "find: failed"),
    ),
    case(
        name="a clean-up beside a creation and a commit",
        programs={"A": clean, "B": in_sequence(create(NEW), commit(NEW), drop(NEW))},
        faults=(Fault.DELAYED,),
        expected=("clean: done", "drop: done"),
    ),
]


LARGE = [
    case(name="two commits, any fault", programs={"A": commit(ONE), "B": commit(ONE)}),
    case(name="a commit and a drop, any fault", programs={"A": commit(ONE), "B": drop(ONE)}),
]


#: Two commits with any fault take longest, and differ from those in `SMALL` only in their faults.
LONGEST = "two commits, any fault"


def _cases() -> list[Any]:
    long = ("two commits, lost and repeated requests", "a clean-up beside a creation and a commit")
    longest = [in_campaigns(case) if case.name == LONGEST else with_all(case) for case in LARGE]
    return [*with_all_but(lambda case: case.name not in long, SMALL), *longest]


@pytest.mark.parametrize("case", _cases(), ids=str)
def test_small_worlds(case: Case) -> None:
    """Every run of a small world has the outcomes that its clients report."""
    case.check(world_of)
