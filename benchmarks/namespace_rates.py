"""Files created, looked up and listed per second, by one client and by several.

Clients are processes with their own connections. All of them work in one directory.
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

#: Files of the listed directory.
LISTED = 1_000

BODY = b"x" * 256


@frozen(kw_only=True)
class RateSizes:
    """Sizes of the measurement.

    Attributes:
        clients: numbers of concurrent clients.
        shards: numbers of shards of the directory.
        seconds: duration of one measurement of an operation.
        rounds: measurements of each operation. The best one counts, because it was disturbed least.
    """

    clients: Sequence[int]
    shards: Sequence[int]
    seconds: float
    rounds: int

    def fewest_shards(self) -> RateSizes:
        """Return the same sizes with the first number of shards only."""
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


#: The operation and its directory. New files are in a different directory from the files looked up.
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
    """Repeat an operation from time `start` on; return the count and the end time."""
    lake = _opened(site)
    work, directory = _OPERATIONS[operation]
    directory = f"{directory}-{shards}"
    lake.stat(directory)  # Open the connection.
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
    """Measure all operations in one namespace; return one row for each operation."""
    for shards in sizes.shards:
        fill(lake, f"old-{shards}", LISTED, shards=shards)
        lake.make_directory(f"new-{shards}", shards=shards)
    rows = []
    for clients, shards in itertools.product(sizes.clients, sizes.shards):
        say(f"rates, {site.kind}: {clients} clients, {shards} shards")
        # Let each process do its one-time work.
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
    start = time.monotonic() + ahead  # The clock is the same in all processes.
    futures = [pool.submit(work, start, seconds) for _ in range(clients)]
    parts = [future.result() for future in futures]
    # Each client counts with its own time, so that a client with a slow last call does not reduce the
    # rate of the others.
    return sum(count / (end - start) for count, end in parts)
