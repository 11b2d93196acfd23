"""Campaigns: many runs of a large world, one seed each, until the time is over or a run fails.

A failed run is shrunk and reported with the command that repeats it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping

from attrs import define, field

from commitlog.testing.sim.choices import Seeded
from commitlog.testing.sim.exploration import World
from commitlog.testing.sim.faults import Fault
from commitlog.testing.sim.shrinking import Shrunk, shrink
from commitlog.testing.sim.simulation import Simulation

__all__ = ["CampaignFailed", "CampaignReport", "run_campaign"]


@define
class CampaignReport:
    """The progress of a campaign.

    Attributes:
        seed: seed of the first run. Each later run uses the next integer.
        runs: number of runs.
        steps: number of events in all runs.
        seconds: duration of the campaign.
        faults: how often each fault struck.
        outcomes: sums of the judge's results, if the judge returns a mapping from names to numbers,
            such as calls by outcome.
    """

    seed: int
    runs: int = 0
    steps: int = 0
    seconds: float = 0.0
    faults: Counter[Fault] = field(factory=Counter)
    outcomes: Counter[str] = field(factory=Counter)

    def add(self, simulation: Simulation, result: object, *, seconds: float) -> None:
        """Add a run that ended `seconds` after the beginning of the campaign."""
        self.runs += 1
        self.steps += simulation.steps
        self.seconds = seconds
        self.faults.update(simulation.injected)
        if isinstance(result, Mapping):
            self.outcomes.update(result)

    def merge(self, other: CampaignReport) -> None:
        """Add the runs of another report of the same world."""
        self.runs += other.runs
        self.steps += other.steps
        self.seconds += other.seconds
        self.faults.update(other.faults)
        self.outcomes.update(other.outcomes)

    def __str__(self) -> str:
        lines = [
            f"{self.runs} runs from seed {self.seed}, {self.steps} steps, {self.seconds:.0f} s",
            "faults: " + _listed({fault.value: count for fault, count in self.faults.items()}),
        ]
        if self.outcomes:
            lines.append("outcomes: " + _listed(self.outcomes))
        return "\n".join(lines)


class CampaignFailed(AssertionError):
    """The error of a failed run. Its message has the command that repeats the run, and the trace.

    Attributes:
        seed: the seed of the failed run.
        shrunk: the failed run, or a similar one, reduced as far as possible.
        report: the report of the campaign, the failed run included.
    """

    def __init__(self, message: str, *, seed: int, shrunk: Shrunk, report: CampaignReport) -> None:
        super().__init__(message)
        self.seed = seed
        self.shrunk = shrunk
        self.report = report


def run_campaign(
    world: World,
    *,
    seed: int = 0,
    runs: int | None = None,
    seconds: float | None = None,
    steps: int = 100_000,
    again: str = "run_campaign(world, seed={seed}, runs=1)",
    progress: Callable[[str], object] | None = None,
    progress_interval: float = 30.0,
) -> CampaignReport:
    """Run a world with consecutive seeds, and return a report.

    Args:
        world: builds a world for each run, see `commitlog.testing.sim.exploration.World`. Its judge may
            return numbers, and `CampaignReport.outcomes` sums them.
        seed: seed of the first run.
        runs: number of runs, or None for as many as `seconds` allows.
        seconds: duration, or None for no limit. `runs` or `seconds` must be given.
        steps: maximum number of steps of a run. A run with more steps fails, see `Simulation.run`.
        again: the command that starts with the run of ``{seed}``, for the message.
        progress: called with a line of progress.
        progress_interval: seconds between two lines of progress.

    Raises:
        CampaignFailed: a run failed. An error that is no `AssertionError` propagates unchanged, with a
            note that has the command to repeat the run.
    """
    if runs is None and seconds is None:
        raise ValueError("pass `runs` or `seconds`")
    report = CampaignReport(seed)
    began = reported = time.monotonic()
    while (runs is None or report.runs < runs) and (seconds is None or report.seconds < seconds):
        current = seed + report.runs
        simulation, judge = world(Seeded(current))
        simulation.tracing = False  # a failed run is repeated with its trace
        error: AssertionError | None = None
        try:
            with simulation:
                simulation.run(steps=steps)
                result = judge()
        except AssertionError as found:
            error, result = found, None
        except Exception as found:
            found.add_note(f"again: {again.format(seed=current)}")
            raise
        now = time.monotonic()
        report.add(simulation, result, seconds=now - began)
        if error is not None:
            raise _failed(world, current, report, steps, again) from error
        if progress is not None and now - reported >= progress_interval:
            reported = now
            progress(f"{report.runs} runs, {report.steps} steps, {report.seconds:.0f} s")
    return report


def _failed(world: World, seed: int, report: CampaignReport, steps: int, again: str) -> CampaignFailed:
    shrunk = shrink(world, Seeded(seed), steps=steps)
    if shrunk is None:
        raise RuntimeError(f"the world depends on more than its choices: seed {seed} is right now")
    lines = (
        f"the run of seed {seed} is wrong; again: {again.format(seed=seed)}",
        f"as simple as can be, with {shrunk.faults} faults: Deviating({dict(shrunk.orders)})",
        *shrunk.trace,
        str(shrunk.error),
        str(report),
    )
    return CampaignFailed("\n".join(lines), seed=seed, shrunk=shrunk, report=report)


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{counts[name]} {name}" for name in sorted(counts)) or "none"
