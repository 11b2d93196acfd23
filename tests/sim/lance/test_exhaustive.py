"""Two writers of one version of a Lance table, in every run with one fault."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any

import pytest

from commitlog.testing.sim import Fault, Faults, Simulation, explore
from sim.lance.actions import commit
from sim.leases.world import world_of
from support.selection import in_campaigns, with_all_but

FAULTS = (
    Fault.LOST_REQUEST,
    Fault.LOST_RESPONSE,
    Fault.DELAYED,
    Fault.DUPLICATED,
    Fault.REPEATED,
    Fault.FAILED_AFTER,
    Fault.CONFLICT,
    Fault.CRASHED,
)


#: The cases of each run; the others take longer.
QUICK = (("native", Fault.LOST_RESPONSE), ("native", Fault.REPEATED))

#: Faults under leases that only campaigns have: the worlds of leases have them, too.
LONG = (
    *(Fault.FAILED_AFTER, Fault.REPEATED, Fault.DUPLICATED, Fault.CONFLICT),
    *(Fault.LOST_REQUEST, Fault.DELAYED),
)


def _cases() -> list[Any]:
    cases = [
        (mode, fault)
        for mode, fault in product(("native", "lease"), FAULTS)
        if mode == "native" or fault not in LONG
    ]
    return [
        *with_all_but(lambda *case: case in QUICK, cases),
        *(in_campaigns("lease", fault) for fault in LONG),
    ]


@pytest.mark.parametrize(
    ("mode", "fault"),
    _cases(),
    ids=lambda value: value if isinstance(value, str) else value.name.lower(),
)
def test_a_version_has_one_creator(mode: Any, fault: Fault) -> None:
    """No other outcome than that of the version that is there, whatever answer is lost."""
    world = world_of(
        {"A": commit(), "B": commit()},
        simulation=partial(Simulation, faults=Faults(rates={fault: 0.1}, most=1), patience=2.0),
        mode=mode,
    )
    found = explore(world)
    assert found.complete
    assert found.ends
    assert not found.violations, found.violations[0].error
