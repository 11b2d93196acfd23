"""Measurement of work: wall time, and CPU time of this process and all of its descendants.

The module also reports the versions of packages. Spark works in a JVM and in Python workers, which are
children and grandchildren of the driver.
"""

from __future__ import annotations

import importlib.metadata
import platform
import statistics
import time
from collections.abc import Callable, Iterable

import psutil
from attrs import frozen

__all__ = ["Cost", "cost_of", "ratio", "versions"]


@frozen
class Cost:
    """Wall time in seconds, and CPU seconds of the whole process tree."""

    wall: float
    cpu: float


def cost_of(work: Callable[[], object]) -> Cost:
    """Run `work`, and return its cost.

    For a process that starts and ends meanwhile, only the CPU time that its parent collected is counted.
    """
    before, start = _cpu_seconds(), time.perf_counter()
    work()
    wall = time.perf_counter() - start
    after = _cpu_seconds()
    # The CPU time of a process that has ended is included in that of its parent.
    return Cost(wall, sum(after.values()) - sum(before.values()))


def _cpu_seconds() -> dict[int, float]:
    root = psutil.Process()
    spent = {}
    for process in (root, *root.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        spent[process.pid] = sum(times[:4])  # own and collected children's, user and system
    return spent


def ratio(mine: Iterable[float], others: Iterable[float]) -> float:
    """Return the median, over the rounds, of `mine` divided by `others` in the same round."""
    return statistics.median(m / o for m, o in zip(mine, others, strict=True))


def versions(*packages: str) -> dict[str, str]:
    """Return the versions of `packages` and of Python, and the machine type."""
    return {name: importlib.metadata.version(name) for name in packages} | {
        "python": platform.python_version(),
        "machine": platform.machine(),
    }
