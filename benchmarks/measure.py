"""What a piece of work takes: time on the clock, and processor time of this process and all below it.
And what it was done with: the versions of packages.

Spark's work is done in a JVM and in Python workers, which are children and grandchildren of the driver.
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
    """Seconds on the clock, and processor seconds of the whole tree of processes."""

    wall: float
    cpu: float


def cost_of(work: Callable[[], object]) -> Cost:
    """Do `work`, and return what it took.

    Of a process that is started and gone meanwhile, only what its parent waited for is counted.
    """
    before, start = _cpu_seconds(), time.perf_counter()
    work()
    wall = time.perf_counter() - start
    after = _cpu_seconds()
    # One that is gone has its time in its parent's.
    return Cost(wall, sum(after.values()) - sum(before.values()))


def _cpu_seconds() -> dict[int, float]:
    root = psutil.Process()
    spent = {}
    for process in (root, *root.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        spent[process.pid] = sum(times[:4])  # own and waited-for children's, user and system
    return spent


def ratio(mine: Iterable[float], others: Iterable[float]) -> float:
    """Return the median, over the rounds, of `mine` over `others` in the same round."""
    return statistics.median(m / o for m, o in zip(mine, others, strict=True))


def versions(*packages: str) -> dict[str, str]:
    """Return the versions of `packages` and of Python, and what kind of machine it is."""
    return {name: importlib.metadata.version(name) for name in packages} | {
        "python": platform.python_version(),
        "machine": platform.machine(),
    }
