"""How many files are created, looked at and listed in a second, by one client and by several.

Clients are processes, each with connections of its own, and all at work in one directory.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from typing import Any

from attrs import evolve, frozen
from namespace_sites import Site, fill, made_up

from commitlog._util.ids import random_id
from commitlog.namespace import Namespace

__all__ = ["RateSizes", "measure_rates"]

#: Files of the directory that is listed.
LISTED = 1_000

BODY = b"x" * 256


@frozen(kw_only=True)
class RateSizes:
    """How much to measure.

    Attributes:
        clients: numbers of clients at once.
        shards: numbers of shards of the directory.
        seconds: for how long each operation is repeated.
        rounds: how often that is done; the best counts, which was disturbed least.
    """

    clients: Sequence[int]
    shards: Sequence[int]
    seconds: float
    rounds: int

    def fewest_shards(self) -> RateSizes:
        """Return the same for the first number of shards alone."""
        return evolve(self, shards=self.shards[:1])


def _write(lake: Namespace, directory: str) -> None:
    lake.write(f"{directory}/{random_id()}", BODY, parents=False)


def _link(lake: Namespace, directory: str) -> None:
    name = random_id()
    lake.link(f"{directory}/{name}", made_up(name), parents=False)


def _stat(lake: Namespace, directory: str) -> None:
    lake.stat(f"{directory}/part-000007")


def _list(lake: Namespace, directory: str) -> None:
    assert sum(1 for _ in lake.list(directory)) == LISTED


#: What is done again and again; new files are in another directory than those that are looked at.
_OPERATIONS: dict[str, tuple[Callable[[Namespace, str], None], str]] = {
    "write": (_write, "new"),
    "link": (_link, "new"),
    "stat": (_stat, "old"),
    "list": (_list, "old"),
}


@cache
def _opened(site: Site) -> Namespace:
    """Open the namespace, once in each process."""
    return site.open()


def _work(site: Site, operation: str, shards: int, start: float, seconds: float) -> tuple[int, float]:
    """Do an operation from the instant `start` on; return how often, and until when."""
    lake = _opened(site)
    work, directory = _OPERATIONS[operation]
    directory = f"{directory}-{shards}"
    lake.stat(directory)  # connects
    time.sleep(max(0.0, start - time.monotonic()))
    count, now = 0, start
    while now < start + seconds:
        work(lake, directory)
        count += 1
        now = time.monotonic()
    return count, now


def measure_rates(
    site: Site,
    lake: Namespace,
    pool: ProcessPoolExecutor,
    sizes: RateSizes,
    say: Callable[[str], None],
) -> list[dict[str, Any]]:
    """Measure all operations in one namespace; return one row for each, told by its kind."""
    for shards in sizes.shards:
        fill(lake, f"old-{shards}", LISTED, shards=shards)
        lake.make_directory(f"new-{shards}", shards=shards)
    rows = []
    for clients, shards in itertools.product(sizes.clients, sizes.shards):
        say(f"rates, {site.kind}: {clients} clients, {shards} shards")
        # Whatever a process needs but once.
        _rate(pool, partial(_work, site, "stat", shards), clients, seconds=0.1, ahead=1.0)
        for operation in _OPERATIONS:
            work = partial(_work, site, operation, shards)
            best = max(
                _rate(pool, work, clients, seconds=sizes.seconds, ahead=0.1) for _ in range(sizes.rounds)
            )
            rows.append(
                {
                    "site": site.kind,
                    "operation": operation,
                    "clients": clients,
                    "shards": shards,
                    "per_second": round(best, 1),
                }
            )
    return rows


def _rate(
    pool: ProcessPoolExecutor,
    work: Callable[[float, float], tuple[int, float]],
    clients: int,
    *,
    seconds: float,
    ahead: float,
) -> float:
    start = time.monotonic() + ahead  # the same clock in all processes
    futures = [pool.submit(work, start, seconds) for _ in range(clients)]
    parts = [future.result() for future in futures]
    # By each client's own time: one that has to wait for its last call does not make the others slower.
    return sum(count / (end - start) for count, end in parts)
