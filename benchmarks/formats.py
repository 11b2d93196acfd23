#!/usr/bin/env python
"""Speed of writing rows in each format, compared with Spark's own writers, and the cost of sorting.

    ./run bench formats [--rows N] [--rounds N]

Prints, for each format, the median over the rounds of the ratio within a round: rows per second and rows
per CPU second of `commitlog.spark.write` over those of Spark's own writer with FileOutputCommitter, and
the peak memory of all Python workers together.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import psutil
from committer import write_source
from measure import Cost, cost_of, ratio
from pyspark.sql import DataFrame
from spark_writers import BuiltIn, start

import commitlog.spark

#: The cases: the format, the compression of both writers, and the column to sort by.
CASES = (
    ("parquet", "snappy", None),
    ("parquet", "snappy", "customer"),
    ("orc", "zstd", None),
    ("csv", "none", None),
    ("json", "none", None),
)


def _built_in(rows: DataFrame, path: Path, kind: str, compression: str, sort_by: str | None) -> None:
    rows = rows.sortWithinPartitions(sort_by) if sort_by else rows
    rows.write.format(kind).option("compression", compression).mode("append").save(str(path))


def _ours(rows: DataFrame, path: Path, kind: str, compression: str, sort_by: str | None) -> None:
    options = {"fileFormat": kind, "compression": compression}
    if sort_by:
        options["sortBy"] = sort_by
    commitlog.spark.write(rows, str(path), options=options)


@contextlib.contextmanager
def _watched() -> Iterator[Callable[[], int]]:
    """Measure memory in the background; yield a function that returns the peak of all workers."""
    most, over = 0, threading.Event()

    def watch() -> None:
        nonlocal most
        while not over.wait(0.05):
            resident = 0
            for process in psutil.Process().children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    if process.name().startswith("python"):
                        resident += process.memory_info().rss
            most = max(most, resident)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield lambda: most
    finally:
        over.set()
        watcher.join()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3, help="after one round to warm up")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="formats-") as scratch:
        spark = start("local[2]", Path(scratch))
        try:
            source = write_source(spark, arguments.rows, Path(scratch))
            own = BuiltIn(spark, 1).session
            print(f"{'format':10}{'sorted by':12}{'rows/s':>8}{'rows/CPU s':>12}{'workers MB':>12}")
            for kind, compression, sort_by in CASES:
                costs: dict[str, list[Cost]] = {"built-in": [], "ours": []}
                with _watched() as most:
                    for turn in range(arguments.rounds + 1):
                        for way, session, write in (
                            ("built-in", own, _built_in),
                            ("ours", spark, _ours),
                        ):
                            path = Path(scratch) / "out"
                            rows = session.read.parquet(str(source))
                            cost = cost_of(partial(write, rows, path, kind, compression, sort_by))
                            shutil.rmtree(path)
                            if turn:
                                costs[way].append(cost)
                    memory = most() / 1e6
                wall = ratio([c.wall for c in costs["built-in"]], [c.wall for c in costs["ours"]])
                cpu = ratio([c.cpu for c in costs["built-in"]], [c.cpu for c in costs["ours"]])
                print(f"{kind:10}{sort_by or '':12}{wall:8.2f}{cpu:12.2f}{memory:12.0f}", flush=True)
        finally:
            spark.stop()


if __name__ == "__main__":
    main()
