"""Runs of many seeds of several worlds in several processes, with summed results."""

from __future__ import annotations

import gc
import importlib.util
import logging
import multiprocessing
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from attrs import define, field

from commitlog.testing.sim.campaign import CampaignFailed, CampaignReport, run_campaign
from commitlog.testing.sim.exploration import World

__all__ = ["WorldResult", "load_worlds", "run_worlds"]

#: Seeds that a process takes at a time: some seconds of work.
_CHUNK = 100

#: Objects that are allocated between two collections of garbage: some tens of megabytes.
_ALLOCATIONS = 100_000

#: Seconds between two lines of progress.
_PROGRESS = 10.0


@define
class WorldResult:
    """The runs of one world.

    Attributes:
        report: the sums of the runs.
        cpu: seconds of CPU time of the runs, in all processes.
        violations: the message of each failed run, by its seed.
    """

    report: CampaignReport
    cpu: float = 0.0
    violations: dict[int, str] = field(factory=dict)

    def merge(self, other: WorldResult) -> None:
        """Add further runs of the same world."""
        self.report.merge(other.report)
        self.cpu += other.cpu
        self.violations |= other.violations


def load_worlds(file: Path) -> Mapping[str, World]:
    """Return `WORLDS`, a mapping from names to worlds, of a Python file.

    The directory of the file is put on ``sys.path``, as Python does for a script. Raises `ImportError`,
    `AttributeError` or `OSError` if there is no such mapping.
    """
    file = file.resolve()
    if str(file.parent) not in sys.path:
        sys.path.insert(0, str(file.parent))
    module = sys.modules.get(file.stem)
    if module is None or module.__file__ != str(file):
        spec = importlib.util.spec_from_file_location(file.stem, file)
        if spec is None or spec.loader is None:
            raise ImportError(f"{file} is not a Python file")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules[file.stem] = module
    worlds: Mapping[str, World] = module.WORLDS
    return worlds


def run_worlds(
    file: Path,
    names: Sequence[str],
    *,
    first: int,
    seeds: int,
    processes: int,
    command: str,
    progress: Callable[[str], object],
) -> dict[str, WorldResult]:
    """Run the same seeds of several worlds, and return the result of each.

    Args:
        file: the file that defines the worlds, see `load_worlds`.
        names: the names of the worlds to run.
        first: the first seed; the others follow it.
        seeds: number of seeds of each world.
        processes: number of concurrent processes.
        command: the command that repeats a run, without its arguments; for messages.
        progress: called with a line of progress every ten seconds.

    A failed run does not end the others.
    """
    results = {name: WorldResult(CampaignReport(first)) for name in names}
    total = seeds * len(names)
    done, began = 0, time.monotonic()
    reported = began
    # A forked child would inherit locks of the threads of its parent.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        min(processes, total), mp_context=context, initializer=_prepare, initargs=(file,)
    ) as pool:
        tasks = {
            pool.submit(_run_chunk, file, name, start, runs, command): name
            for start, runs in _chunks(first, seeds)
            for name in names
        }
        for task in as_completed(tasks):
            result = task.result()
            results[tasks[task]].merge(result)
            done += result.report.runs
            if time.monotonic() - reported >= _PROGRESS:
                reported = time.monotonic()
                rate = done / (reported - began)
                left = (total - done) / rate
                progress(f"{done} of {total} seeds, {rate:.0f} a second, {left:.0f} s left")
    return results


def _prepare(file: Path) -> None:
    """Load the worlds, silence warnings, and collect garbage less often."""
    # The library warns of faults that the simulator injects on purpose.
    logging.disable(logging.CRITICAL)
    load_worlds(file)
    # A run leaves many objects in cycles, and few that stay. So a collection ignores the modules, and
    # begins only after several runs.
    gc.collect()
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS)


def _chunks(first: int, seeds: int) -> Iterator[tuple[int, int]]:
    for start in range(first, first + seeds, _CHUNK):
        yield start, min(_CHUNK, first + seeds - start)


def _run_chunk(file: Path, name: str, first: int, runs: int, command: str) -> WorldResult:
    world = load_worlds(file)[name]
    again = f"{command} --world {name} --seeds 1 --from {{seed}}"
    result = WorldResult(CampaignReport(first))
    began = time.process_time()
    for seed in range(first, first + runs):
        try:
            report = run_campaign(world, seed=seed, runs=1, again=again)
        except CampaignFailed as failed:
            report = failed.report
            result.violations[seed] = str(failed)
        except Exception:
            report = CampaignReport(seed, runs=1)
            result.violations[seed] = traceback.format_exc()
        result.report.merge(report)
    result.cpu = time.process_time() - began
    return result
