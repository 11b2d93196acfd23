"""Measurement of work: wall time, CPU time and memory of this process and its descendants, and requests.

The module also reports the versions of packages. Spark works in a JVM and in Python workers, which are
children and grandchildren of the driver.
"""

from __future__ import annotations

import importlib.metadata
import platform
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from urllib.parse import parse_qs, urlsplit

import psutil
from attrs import frozen

from commitlog.testing.proxy import Proxy

__all__ = [
    "Cost",
    "PeakMemory",
    "cost_of",
    "kind_of",
    "print_ratios",
    "ratio",
    "requests_of",
    "versions",
]


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


class PeakMemory:
    """Samples the memory of this process and its descendants in a thread, while it is a context.

    Args:
        kind_of: returns the kind of a process, given that process and its ancestors below this one, the
            nearest first; "" if it does not count. This process is of the kind ``driver``.
        interval: seconds between two samples.

    Attributes:
        megabytes: the highest sum of the resident memory of the processes of each kind.
    """

    def __init__(
        self, kind_of: Callable[[Sequence[psutil.Process]], str], *, interval: float = 0.5
    ) -> None:
        self.megabytes: dict[str, float] = {}
        self._kind_of = kind_of
        self._interval = interval
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._kinds: dict[int, str] = {}

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            self._sample()
            if self._over.wait(self._interval):
                return

    def _sample(self) -> None:
        root = psutil.Process()
        now = {"driver": root.memory_info().rss / 1e6}
        for process in root.children(recursive=True):
            try:
                if process.pid not in self._kinds:
                    above = [each for each in process.parents() if each.pid != root.pid]
                    below = [each for each in above if root in each.parents()]
                    self._kinds[process.pid] = self._kind_of([process, *below])
                kind = self._kinds[process.pid]
                now[kind] = now.get(kind, 0.0) + process.memory_info().rss / 1e6
            except psutil.NoSuchProcess:
                continue
        for kind, megabytes in now.items():
            self.megabytes[kind] = max(megabytes, self.megabytes.get(kind, 0.0))


def requests_of(work: Callable[[], object], proxy: Proxy) -> tuple[float, list[str]]:
    """Run `work`; return its duration in seconds, and the requests that the proxy received meanwhile."""
    seen: list[str] = []
    over = threading.Event()

    def drain() -> None:
        # The proxy keeps only the last ten thousand requests.
        while not over.wait(0.5):
            seen.extend(proxy.requests())

    proxy.requests()
    drainer = threading.Thread(target=drain)
    drainer.start()
    try:
        start = time.perf_counter()
        work()
        seconds = time.perf_counter() - start
    finally:
        over.set()
        drainer.join()
    return seconds, seen + proxy.requests()


def kind_of(request: str) -> str:
    """Return the kind of a request that the proxy recorded: its method, or the name of the S3 operation.

    >>> [kind_of(f"{method} /bucket/a") for method in ("PUT", "COPY", "GET", "HEAD", "DELETE")]
    ['PUT', 'COPY', 'GET', 'HEAD', 'DELETE']
    >>> kind_of("GET /bucket?list-type=2&prefix=a"), kind_of("GET /bucket?uploads&prefix=a")
    ('LIST', 'LIST uploads')
    >>> kind_of("POST /bucket/a?uploads"), kind_of("PUT /bucket/a?partNumber=1&uploadId=2")
    ('begin upload', 'upload part')
    >>> kind_of("PUBLISH /bucket/a?uploadId=2"), kind_of("DELETE /bucket/a?uploadId=2")
    ('complete upload', 'abort upload')
    >>> kind_of("POST /bucket?delete")
    'bulk delete'
    """
    method, target = request.split(" ", 1)
    query = parse_qs(urlsplit(target).query, keep_blank_values=True)
    if method == "PUBLISH":
        return "complete upload"
    for of, parameter, kind in _KINDS:
        if method == of and parameter in query:
            return kind
    return method


_KINDS = (
    ("GET", "list-type", "LIST"),
    ("GET", "uploads", "LIST uploads"),
    ("POST", "uploads", "begin upload"),
    ("PUT", "uploadId", "upload part"),
    ("DELETE", "uploadId", "abort upload"),
    ("POST", "delete", "bulk delete"),
)


def ratio(mine: Iterable[float], others: Iterable[float]) -> float:
    """Return the median, over the rounds, of `mine` divided by `others` in the same round."""
    return statistics.median(m / o for m, o in zip(mine, others, strict=True))


def versions(*packages: str) -> dict[str, str]:
    """Return the versions of `packages` and of Python, and the machine type."""
    return {name: importlib.metadata.version(name) for name in packages} | {
        "python": platform.python_version(),
        "machine": platform.machine(),
    }


def print_ratios(
    heading: str, ratios: Mapping[str, float], aims: Mapping[str, object], *, digits: int = 3
) -> None:
    """Print ratios by name, each with its aim if it has one."""
    print(f"\n{heading}")
    for name, value in ratios.items():
        aim = f"  (aim: {aims[name]})" if name in aims else ""
        print(f"  {name:52}{value:12.{digits}f}{aim}")
