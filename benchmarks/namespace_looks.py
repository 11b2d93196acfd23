"""Looks at paths of several depths, with a latency added to each request."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from attrs import frozen
from namespace_sites import dynamodb_site, made_up
from servers import Ministack

from commitlog.namespace import Namespace
from commitlog.testing.proxy import Proxy

__all__ = ["LATENCY", "LookSizes", "measure_looks"]

#: Seconds added to each request.
LATENCY = 0.020


@frozen(kw_only=True)
class LookSizes:
    """Sizes of the measurement.

    Attributes:
        depths: numbers of names of the paths.
        rounds: looks at each path, cold and warm, in an order of their own in each round.
    """

    depths: Sequence[int]
    rounds: int


def measure_looks(
    sizes: LookSizes, say: Callable[[str], None]
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Measure `stat` by a client that knows the directories (warm), and by one that does not (cold).

    Returns the rows, and the ratios of the deepest path to the first one.
    """
    with Ministack() as server, Proxy(server.endpoint_url, latency={"DynamoDB": LATENCY}) as proxy:
        site = dynamodb_site(server, proxy.endpoint_url)
        paths = {depth: "/".join(f"d{level}" for level in range(depth - 1)) for depth in sizes.depths}
        with site.create(log=False) as lake:
            for depth, directory in paths.items():
                if directory:
                    lake.make_directory(directory)
                paths[depth] = f"{directory}/file-{depth}".lstrip("/")
                lake.link(paths[depth], made_up(str(depth)))
        cases = [(depth, warm) for depth in sizes.depths for warm in (False, True)]
        times: dict[tuple[int, bool], list[float]] = {case: [] for case in cases}
        order = random.Random(1)
        for number in range(sizes.rounds):
            say(f"looks, round {number + 1} of {sizes.rounds}")
            for depth, warm in order.sample(cases, len(cases)):
                with site.open() as lake:
                    lake.stat("")  # opens the connection, and reads the metadata and the root
                    if warm:  # the second look opens connections for requests at the same time
                        lake.stat(paths[depth])
                        lake.stat(paths[depth])
                    times[depth, warm].append(_seconds(lake, paths[depth]))
    rows = [
        {
            "depth": depth,
            "warm": warm,
            "rounds": sizes.rounds,
            "median_ms": round(1e3 * statistics.median(times[depth, warm]), 2),
        }
        for depth, warm in cases
    ]
    medians = {case: statistics.median(found) for case, found in times.items()}
    least, most = sizes.depths[0], sizes.depths[-1]
    return rows, {
        f"stat_depth{most}_over_depth{least}{suffix}": round(
            medians[most, warm] / medians[least, warm], 3
        )
        for warm, suffix in ((True, ""), (False, "_cold"))
    }


def _seconds(lake: Namespace, path: str) -> float:
    began = time.perf_counter()
    lake.stat(path)
    return time.perf_counter() - began
