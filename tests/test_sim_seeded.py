"""Large worlds of which each is drawn from a seed: leases, the store's own conditions, and both.

``python -m pytest tests/test_sim_seeded.py -m campaign --campaign-seconds 600 --campaign-seed 1000``
goes on for so long with each world, and prints what it did. A run that is wrong is repeated by its seed.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sim_seeded_kit import BEYOND, WAYS, Way, seeded_world

from commitlog.testing.linearizability import NotLinearizable
from commitlog.testing.sim import CampaignFailed, Drawn, Fault, Seeded, campaign

#: Runs of each world in a default run of the tests.
RUNS: dict[Way, int] = {"lease": 60, "unfenced": 50, "native": 80, "auto": 50}


def again(way: Way) -> str:
    """Return the command that repeats the run of a seed."""
    return (
        f"pytest tests/test_sim_seeded.py -m campaign -k {way} --campaign-seconds 0.1 "
        "--campaign-seed {seed}"
    )


@pytest.mark.parametrize("way", WAYS)
def test_some_seeds(way: Way) -> None:
    """What clients saw is linearizable, whatever goes wrong; once nothing does, everybody finishes."""
    report = campaign(seeded_world(way), runs=RUNS[way], again=again(way))
    print(f"\n{way}: {report}")
    never = {Fault.PARTIAL}
    if way == "native":
        never |= {Fault.DUPLICATED, Fault.REPEATED, Fault.SWEPT}
    assert set(report.faults) == set(Fault) - never
    names = ("put_if_absent", "put_if_match", "copy_if_absent", "delete_if_match")
    outcomes = ("done", "contradicted", "unknown")
    assert not [
        f"{name} {outcome}"
        for name in names
        for outcome in outcomes
        if not report.told[f"{name} {outcome}"]
    ]


@pytest.mark.campaign
@pytest.mark.timeout(0)
@pytest.mark.parametrize("way", WAYS)
def test_many_seeds(
    way: Way, campaign_seconds: float, campaign_seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same, for as long as told."""
    with capsys.disabled():
        report = campaign(
            seeded_world(way),
            seed=campaign_seed,
            seconds=campaign_seconds,
            again=again(way),
            tell=lambda line: print(f"\n{way}: {line}", end=""),
        )
        print(f"\n{way}: {report}")


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
        campaign(seeded_world("unfenced", spared=BEYOND["lease"]), runs=300)
    assert isinstance(caught.value.shrunk.error, NotLinearizable)
    assert caught.value.shrunk.faults <= 3
