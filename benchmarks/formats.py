#!/usr/bin/env python
"""Speed of writing rows in each format, compared with Spark's own writers, and the cost of sorting.

    ./run bench formats [--quick] [--rows N] [--rounds N] [--json FILE]

Prints, for each format, the median over the rounds of the ratio within a round: rows per second and rows
per CPU second of `commitlog.spark.write` over those of Spark's own writer with FileOutputCommitter, and
the peak memory of all Python workers together.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from committer import write_source
from measure import Cost, cost_of, ratio, versions
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


def _measure(rows: int, rounds: int, scratch: Path) -> Iterator[dict[str, Any]]:
    """Yield the ratios of each case."""
    spark = start("local[2]", scratch)
    try:
        source = write_source(spark, rows, scratch)
        writers = (("built-in", BuiltIn(spark, 1).session, _built_in), ("ours", spark, _ours))
        path = scratch / "out"
        for kind, compression, sort_by in CASES:
            costs: dict[str, list[Cost]] = {"built-in": [], "ours": []}
            with _watched() as most:
                for turn in range(rounds + 1):
                    for way, session, write in writers:
                        frame = session.read.parquet(str(source))
                        cost = cost_of(partial(write, frame, path, kind, compression, sort_by))
                        shutil.rmtree(path)
                        if turn:
                            costs[way].append(cost)
                memory = most() / 1e6
            wall = ratio([c.wall for c in costs["built-in"]], [c.wall for c in costs["ours"]])
            cpu = ratio([c.cpu for c in costs["built-in"]], [c.cpu for c in costs["ours"]])
            yield {
                "format": kind,
                "sorted_by": sort_by,
                "rows_per_second_over_builtin": round(wall, 3),
                "rows_per_cpu_second_over_builtin": round(cpu, 3),
                "worker_megabytes": round(memory),
            }
    finally:
        spark.stop()


def main() -> None:
    """Measure, print a row for each case, and write the JSON file if one was requested."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few rows, one round; rough figures")
    parser.add_argument("--rows", type=int, help="default: 2000000; with --quick 100000")
    parser.add_argument("--rounds", type=int, help="after one round to warm up (default: 3, or 1)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write ratios and figures")
    arguments = parser.parse_args()
    rows = arguments.rows or (100_000 if arguments.quick else 2_000_000)
    rounds = arguments.rounds or (1 if arguments.quick else 3)
    print(f"{'format':10}{'sorted by':12}{'rows/s':>8}{'rows/CPU s':>12}{'workers MB':>12}")
    figures = []
    with tempfile.TemporaryDirectory(prefix="formats-") as scratch:
        for row in _measure(rows, rounds, Path(scratch)):
            figures.append(row)
            wall, cpu = row["rows_per_second_over_builtin"], row["rows_per_cpu_second_over_builtin"]
            head = f"{row['format']:10}{row['sorted_by'] or '':12}"
            print(f"{head}{wall:8.2f}{cpu:12.2f}{row['worker_megabytes']:12}", flush=True)
    if arguments.json:
        ratios = {
            f"{row['format']}{'_sorted' if row['sorted_by'] else ''}_over_builtin": row[
                "rows_per_second_over_builtin"
            ]
            for row in figures
        }
        report = {
            "ratios": ratios,
            "rows": rows,
            "rounds": rounds,
            "formats": figures,
            "versions": versions("commitlog-store", "pyspark", "pyarrow"),
        }
        arguments.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
