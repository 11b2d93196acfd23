"""Large random worlds: leases, the store's own conditions, and both.

``python -m commitlog.testing.sim --world lease --seeds 10000`` runs more seeds. A seed repeats its run.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from commitlog.testing.linearizability import NotLinearizable
from commitlog.testing.sim import CampaignFailed, Drawn, Fault, Seeded, run_campaign
from sim.leases.random_world import ENFORCEMENTS, EXCLUDED, Enforcement, seeded_world
from worlds import run_seeds

#: Runs of each world in a default run of the tests.
RUNS: dict[Enforcement, int] = {"lease": 60, "unfenced": 50, "native": 80, "auto": 50}


@pytest.mark.parametrize("enforcement", ENFORCEMENTS)
def test_some_seeds(enforcement: Enforcement) -> None:
    """The history is linearizable with all faults; after the last fault, every client finishes."""
    report = run_seeds(enforcement, RUNS[enforcement])
    never = {Fault.PARTIAL, Fault.MISROUTED}
    if enforcement == "native":
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


@pytest.mark.parametrize("enforcement", ENFORCEMENTS)
@given(data=st.data())
@settings(max_examples=50, suppress_health_check=list(HealthCheck))
def test_hypothesis_finds_no_failure(enforcement: Enforcement, data: st.DataObject) -> None:
    """Hypothesis finds no small world that fails."""
    simulation, judge = seeded_world(enforcement, small=True)(
        Drawn(lambda n: data.draw(st.integers(0, n - 1)))
    )
    with simulation:
        simulation.run()
        judge()


def test_a_seed_determines_the_trace() -> None:
    """The same seed gives the same run, bit for bit."""
    traces = []
    for _ in range(2):
        simulation, _ = seeded_world("lease")(Seeded(7))
        with simulation:
            simulation.run()
        traces.append("\n".join(simulation.trace))
    assert traces[0] == traces[1]


def test_the_judge_can_fail() -> None:
    """Without enforced expiries, one of the first seeds shows the effect of a late request."""
    with pytest.raises(CampaignFailed) as caught:
        run_campaign(seeded_world("unfenced", spared=EXCLUDED["lease"]), runs=300)
    assert isinstance(caught.value.shrunk.error, NotLinearizable)
    assert caught.value.shrunk.faults <= 3
