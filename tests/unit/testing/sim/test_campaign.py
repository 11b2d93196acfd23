"""Campaigns: runs of many seeds, a report, and for a wrong run its command and its shortest trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from commitlog.errors import CommitError
from commitlog.stores.memory import MemoryStore
from commitlog.testing.sim import (
    CampaignFailed,
    CampaignReport,
    Choices,
    Deviating,
    Fault,
    Faults,
    Recording,
    Replayed,
    Seeded,
    SimulatedStore,
    Simulation,
    Stuck,
    run_campaign,
    shrink,
)

RATES = {Fault.LOST_REQUEST: 0.1, Fault.LOST_RESPONSE: 0.1, Fault.PAUSED: 0.1}


def world(choices: Choices) -> tuple[Simulation, Callable[[], object]]:
    """Three nodes put two objects each. A run is wrong if B's second one is stored despite an error."""
    simulation = Simulation(choices, faults=Faults(rates=RATES, delays=(1.0, 5.0)), latencies=(0.1, 0.5))
    server = MemoryStore(clock=simulation.server_clock(), new_id=simulation.new_id)
    done: Counter[str] = Counter()

    def start(name: str) -> None:
        node = simulation.node(name)
        store = SimulatedStore(node, server)

        def program() -> None:
            for number in (1, 2):
                path = f"{name}{number}"
                try:
                    store.put(path, b"")
                    done[path] += 1
                except CommitError:
                    done["error"] += 1

        node.start(program)

    for name in "ABC":
        start(name)

    def judge() -> Counter[str]:
        stored = {info.path for info in server.list()}
        assert "B2" not in stored or done["B2"], "B2 is there, and B does not know"
        return Counter(stored=len(stored), errors=done["error"])

    return simulation, judge


def healthy(choices: Choices) -> tuple[Simulation, Callable[[], object]]:
    """Return the same world with a judge that accepts every run."""
    simulation, _ = world(choices)
    return simulation, lambda: {"runs": 1}


def failing(**options: object) -> CampaignFailed:
    """Return the error of a campaign of the world."""
    with pytest.raises(CampaignFailed) as caught:
        run_campaign(world, runs=200, **options)  # type: ignore[arg-type]
    return caught.value


def test_a_campaign_counts_steps_faults_and_outcomes() -> None:
    """The report has the runs, steps, faults by kind, and outcomes of the judges."""
    report = run_campaign(healthy, seed=5, runs=30)
    assert (report.seed, report.runs, report.outcomes) == (5, 30, Counter(runs=30))
    assert report.steps > 30 * 6
    assert set(report.faults) == set(RATES)
    assert "30 runs from seed 5" in str(report)
    assert f"{report.faults[Fault.LOST_REQUEST]} request lost" in str(report)


def test_a_campaign_ends_when_its_time_is_up() -> None:
    """It reports its progress from time to time."""
    lines: list[str] = []
    report = run_campaign(healthy, seconds=1.0, progress=lines.append, progress_interval=0.01)
    assert report.seconds >= 1.0
    assert report.runs > 1
    assert lines


def test_a_campaign_needs_a_limit() -> None:
    """The caller must pass `runs` or `seconds`."""
    with pytest.raises(ValueError, match="pass `runs` or"):
        run_campaign(healthy)


def test_a_wrong_run_ends_the_campaign() -> None:
    """The error has the seed, which fails alone, and the command to repeat it."""
    error = failing(seed=100, again="do --seed {seed}")
    assert error.seed == 100 + error.report.runs - 1
    assert f"again: do --seed {error.seed}\n" in str(error)
    assert "B2 is there, and B does not know" in str(error)
    with pytest.raises(CampaignFailed):
        run_campaign(world, seed=error.seed, runs=1)


def test_a_wrong_run_is_shrunk() -> None:
    """The error has the single fault that causes the violation, and a deviation that repeats it."""
    error = failing()
    assert error.shrunk.orders == {("B put B2", 1): 3}
    assert error.shrunk.faults == 1
    assert "Deviating({('B put B2', 1): 3})" in str(error)
    assert error.shrunk.trace[-1] in str(error)
    again = shrink(world, Deviating(error.shrunk.orders), most_runs=1)
    assert again is not None
    assert again.trace == error.shrunk.trace


def test_shrinking_lowers_picks_that_it_cannot_drop() -> None:
    """Of the alternatives that are wrong, the first one is kept."""

    def judged(choices: Choices) -> tuple[Simulation, Callable[[], object]]:
        picked = choices.pick("a", [1.0] * 9), choices.pick("b", [1.0] * 9)

        def judge() -> None:
            assert picked[0] < 3

        return Simulation(choices), judge

    shrunk = shrink(judged, Replayed((7, 5)))
    assert shrunk is not None
    assert shrunk.orders == {("a", 1): 3}


def test_shrinking_has_a_limit_of_runs() -> None:
    """At the limit the simplest run so far is returned."""
    runs = 0

    def counted(choices: Choices) -> tuple[Simulation, Callable[[], object]]:
        nonlocal runs
        runs += 1
        return world(choices)

    seed = failing().seed
    assert shrink(counted, Seeded(seed), most_runs=3) is not None
    assert runs == 3


def test_shrinking_has_a_limit_of_time() -> None:
    """If no simpler run was found by then, the first run is returned."""
    seed = failing().seed
    shrunk = shrink(world, Seeded(seed), most_seconds=0.0)
    assert shrunk is not None
    assert len(shrunk.orders) > 1


def test_shrinking_skips_runs_with_another_error() -> None:
    """A run that ends with an error of the world is not a violation."""

    def touchy(choices: Choices) -> tuple[Simulation, Callable[[], object]]:
        picked = choices.pick("a", [1.0] * 9), choices.pick("b", [1.0] * 9)

        def judge() -> None:
            if not picked[1]:
                raise KeyError("b")
            assert not picked[0]

        return Simulation(choices), judge

    shrunk = shrink(touchy, Replayed((7, 5)))
    assert shrunk is not None
    assert shrunk.orders == {("a", 1): 1, ("b", 1): 1}


def test_a_correct_run_is_not_shrunk() -> None:
    """`shrink` returns None for a run without a violation."""
    assert shrink(world, Deviating({})) is None


def test_a_run_without_end_is_wrong() -> None:
    """A run that makes no progress is stopped and reported as a violation."""

    def endless(choices: Choices) -> tuple[Simulation, Callable[[], object]]:
        simulation = Simulation(choices)
        node = simulation.node("A")

        def run() -> None:
            while True:
                node.clock.sleep(1)

        node.start(run)
        return simulation, lambda: None

    with pytest.raises(CampaignFailed) as caught:
        run_campaign(endless, runs=1, steps=50)
    assert isinstance(caught.value.__cause__, Stuck)


def test_an_error_of_the_world_is_raised_unchanged() -> None:
    """A note on the error has the command to repeat the run."""

    def broken(choices: Choices) -> tuple[Simulation, Callable[[], object]]:
        def judge() -> None:
            raise KeyError("k")

        return Simulation(choices), judge

    with pytest.raises(KeyError) as caught:
        run_campaign(broken, seed=3, runs=1, again="seed {seed}")
    assert caught.value.__notes__ == ["again: seed 3"]


def test_a_world_that_depends_on_more_than_its_choices_is_refused() -> None:
    """Its runs could not be repeated."""
    runs = 0

    def moody(choices: Choices) -> tuple[Simulation, Callable[[], object]]:
        nonlocal runs
        runs += 1

        def judge(first: bool = runs == 1) -> None:
            assert not first

        return Simulation(choices), judge

    with pytest.raises(RuntimeError, match="more than its choices"):
        run_campaign(moody, runs=1)


def test_a_report_adds_up() -> None:
    """A report of several runs has their sums."""
    report = CampaignReport(0)
    with Simulation(Seeded(0)) as simulation:
        report.add(simulation, {"a": 2}, seconds=1.0)
        report.add(simulation, {"a": 3}, seconds=2.0)
    assert (report.runs, report.outcomes, report.seconds) == (2, Counter(a=5), 2.0)


def test_deviations_repeat_a_run() -> None:
    """The deviations from the ordinary picks determine the run."""
    recording = Recording(Seeded(11))
    traces = []
    for choices in (recording, None):
        simulation, _ = world(choices or Deviating(recording.deviations))
        with simulation:
            simulation.run()
        traces.append(tuple(simulation.trace))
    assert traces[0] == traces[1]
    assert recording.deviations
