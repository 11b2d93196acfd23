"""Large worlds of which each is drawn from a seed: leases, the store's own conditions, and both.

``python -m commitlog.testing.sim --world lease --seeds 10000`` runs more seeds. A seed repeats its run.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from commitlog.testing.linearizability import NotLinearizable
from commitlog.testing.sim import CampaignFailed, Drawn, Fault, Seeded, run_campaign
from sim.leases.seeded import BEYOND, WAYS, Way, seeded_world
from worlds import run_seeds

#: Runs of each world in a default run of the tests.
RUNS: dict[Way, int] = {"lease": 60, "unfenced": 50, "native": 80, "auto": 50}


@pytest.mark.parametrize("way", WAYS)
def test_some_seeds(way: Way) -> None:
    """What clients saw is linearizable, whatever goes wrong; once nothing does, everybody finishes."""
    report = run_seeds(way, RUNS[way])
    never = {Fault.PARTIAL, Fault.MISROUTED}
    if way == "native":
        never |= {Fault.DUPLICATED, Fault.REPEATED, Fault.SWEPT}
    assert set(report.faults) == set(Fault) - never
    names = ("put_if_absent", "put_if_match", "copy_if_absent", "delete_if_match")
    outcomes = ("done", "contradicted", "unknown")
    assert not [
        f"{name} {outcome}"
        for name in names
        for outcome in outcomes
        if not report.outcomes[f"{name} {outcome}"]
    ]


@pytest.mark.parametrize("way", WAYS)
@given(data=st.data())
@settings(max_examples=50, suppress_health_check=list(HealthCheck))
def test_no_example_is_found(way: Way, data: st.DataObject) -> None:
    """Hypothesis looks for a small world that goes wrong, and would shrink it."""
    simulation, judge = seeded_world(way, small=True)(Drawn(lambda n: data.draw(st.integers(0, n - 1))))
    with simulation:
        simulation.run()
        judge()


def test_a_seed_is_a_trace() -> None:
    """The same seed gives the same run, bit for bit."""
    traces = []
    for _ in range(2):
        simulation, _ = seeded_world("lease")(Seeded(7))
        with simulation:
            simulation.run()
        traces.append("\n".join(simulation.trace))
    assert traces[0] == traces[1]


def test_the_judge_can_find_against_the_protocol() -> None:
    """Without expiries that the store enforces, some seed soon shows what a late request does."""
    with pytest.raises(CampaignFailed) as caught:
        run_campaign(seeded_world("unfenced", spared=BEYOND["lease"]), runs=300)
    assert isinstance(caught.value.shrunk.error, NotLinearizable)
    assert caught.value.shrunk.faults <= 3
