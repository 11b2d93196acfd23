#!/usr/bin/env python
"""Speed of Spark jobs and of their commits, compared with Spark's own writer.

    ./run bench committer [--quick] [--only spark|store|drivers|scale|s3a] [--json FILE]

All writers run in one Spark application, in rounds of shuffled order, so that other load on the machine
affects all of them equally. The rows that each one wrote are counted. A ratio is the median, over the
rounds, of the ratio within a round. docs/benchmarks.md explains the figures.
"""

from __future__ import annotations

import argparse
import datetime
import json
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import SkipTest

import s3a_commits
import scale
import store_commits
from attrs import evolve, frozen
from measure import Cost, cost_of, print_ratios, ratio, versions
from s3a_commits import S3aSizes, Shape

from commitlog.tabular import PUBLISHERS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from spark_writers import Writer

#: Targets. They are printed next to the measured ratios and never asserted.
AIMS = {
    "flat_over_builtin": ">= 1.3",
    "partitioned_over_builtin": ">= 1.5",
    "configured_over_builtin": ">= 1.0",
    "tiny_over_builtin": "<= 1.0",
    "commits_per_second_1": ">= 8",
    "commits_per_second_16": ">= 25",
    "requests_per_commit_1": "<= 10",
    "requests_per_commit_16_over_1": "<= 1.2",
    "grouped_commits_over_single": ">= 5",
    **s3a_commits.AIMS,
}

BUILT_IN = "built-in v1"

_PARTS = ("spark", "store", "scale", "s3a")

#: The part of "store" in which several drivers commit at once.
_DRIVERS = "drivers"

#: Ratio, job, writer, and whether it compares rows per second (otherwise wall time).
_RATIOS = (
    ("flat_over_builtin", "flat", "data source", True),
    ("partitioned_over_builtin", "partitioned", "data source", True),
    ("tiny_over_builtin", "tiny", "data source", False),
    ("flat_format_over_builtin", "flat", "plain data source", True),
    ("partitioned_format_over_builtin", "partitioned", "plain data source", True),
    ("tiny_format_over_builtin", "tiny", "plain data source", False),
    ("tiny_in_memory_over_builtin", "tiny in memory", "data source", False),
    ("tiny_in_memory_format_over_builtin", "tiny in memory", "plain data source", False),
    ("tiny_in_memory_configured_over_builtin", "tiny in memory", "configured", False),
    ("configured_over_builtin", "flat", "configured", True),
    ("partitioned_configured_over_builtin", "partitioned", "configured", True),
    ("tiny_configured_over_builtin", "tiny", "configured", False),
    ("flat_builtin_v2_over_builtin", "flat", "built-in v2", True),
    ("partitioned_builtin_v2_over_builtin", "partitioned", "built-in v2", True),
    ("tiny_builtin_v2_over_builtin", "tiny", "built-in v2", False),
)


@frozen(kw_only=True)
class Scale:
    """Sizes of the benchmark.

    Attributes:
        rows: rows of the large jobs. Their source is a directory of Parquet files in the page cache.
        rounds: measured runs of each writer, after one run to warm up.
        tiny_rounds: the same for the job of a thousand rows.
        store: sizes of the measurements on S3.
        scale: sizes of the measurements of long logs and large jobs.
        s3a: sizes of the measurements of Spark on S3A.
    """

    rows: int
    rounds: int
    tiny_rounds: int
    store: store_commits.Sizes
    scale: scale.Sizes
    s3a: S3aSizes


FULL = Scale(
    rows=8_000_000,
    rounds=5,
    tiny_rounds=20,
    store=store_commits.Sizes(
        files=(10, 100, 1_000, 10_000),
        threads=(1, 4, PUBLISHERS, 64),
        rounds=3,
        drivers=(1, 4, 16),
        groups=(16, 32),
        commits=320,
    ),
    scale=scale.Sizes(logs=(100, 1_000, 10_000), jobs=(1_000, 10_000, 100_000)),
    s3a=S3aSizes(
        rounds={Shape(10): 9, Shape(100): 5, Shape(1_000): 3, Shape(1_000, 10): 3, Shape(10_000): 1},
        v1_rounds={Shape(10): 9, Shape(100): 3, Shape(1_000): 1},
        warm_up=(10, 10, 10, 50),
    ),
)
QUICK = Scale(
    rows=200_000,
    rounds=1,
    tiny_rounds=3,
    store=store_commits.Sizes(
        files=(10, 100),
        threads=(1, PUBLISHERS),
        rounds=1,
        drivers=(1, 16),
        groups=(16, 32),
        commits=64,
    ),
    scale=scale.Sizes(logs=(10, 100), jobs=(1_000,)),
    s3a=S3aSizes(rounds={Shape(10): 1, Shape(100): 1}, v1_rounds={Shape(10): 1}, warm_up=(2,)),
)

FILES = 4
TINY_ROWS = 1_000
PARTITIONS = 7

#: A file system in memory, where no write waits for a disk.
MEMORY = Path("/dev/shm")


def _say(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr)


def _measure_spark(sizes: Scale, scratch: Path) -> dict[str, dict[str, list[Cost]]]:
    # Only this part needs Spark, so it is imported here.
    from spark_writers import start, writers

    spark = start("local[2]", scratch)
    try:
        source = write_source(spark, sizes.rows, scratch)
        ways = writers(spark)
        bench = SparkBench(ways, scratch)
        bench.run("tiny", sizes.tiny_rounds, None, TINY_ROWS)
        if MEMORY.is_dir():
            with tempfile.TemporaryDirectory(prefix="committer-", dir=MEMORY) as memory:
                in_memory = SparkBench(ways, Path(memory))
                in_memory.run("tiny in memory", sizes.tiny_rounds, None, TINY_ROWS)
            bench.costs |= in_memory.costs
        bench.run("flat", sizes.rounds, source, sizes.rows)
        bench.run("partitioned", sizes.rounds, source, sizes.rows, partition_by=["part"])
        return bench.costs
    finally:
        spark.stop()


def write_source(spark: SparkSession, rows: int, scratch: Path) -> Path:
    """Store the rows that the large jobs copy: numbers, text, a time, and a partition column."""
    path = scratch / "source"
    spark.range(0, rows, 1, FILES).selectExpr(
        "id",
        f"cast(id % {PARTITIONS} as int) as part",
        "id * 0.37D as price",
        "concat('customer-', cast(id % 100003 as string)) as customer",
        "timestamp_seconds(1700000000 + id) as time",
        "id % 3 = 0 as paid",
    ).write.parquet(str(path))
    return path


class SparkBench:
    """Collects the costs of each writer, by job."""

    def __init__(self, ways: Sequence[Writer], scratch: Path) -> None:
        self._ways = ways
        self._scratch = scratch
        self._random = random.Random(1)
        self.costs: dict[str, dict[str, list[Cost]]] = {}

    def run(
        self, job: str, rounds: int, source: Path | None, rows: int, partition_by: Sequence[str] = ()
    ) -> None:
        """Let each writer write `source` (None: a range of numbers) once in every round."""
        order = list(self._ways)
        costs = self.costs[job] = {way.name: [] for way in order}
        for turn in range(rounds + 1):
            _say(f"{job}: round {turn} of {rounds}" if turn else f"{job}: warming up")
            self._random.shuffle(order)
            for way in order:
                cost = self._once(way, source, rows, partition_by)
                if turn:
                    costs[way.name].append(cost)

    def _once(self, way: Writer, source: Path | None, rows: int, partition_by: Sequence[str]) -> Cost:
        from spark_writers import count_rows

        if source is None:
            frame = way.session.range(0, rows, 1, 1)
        else:
            frame = way.session.read.parquet(str(source))
        target = self._scratch / "out"
        cost = cost_of(partial(way.write, frame, str(target), partition_by=partition_by))
        found = count_rows(target)
        assert found == rows, f"{way.name} wrote {found} of {rows} rows"
        shutil.rmtree(target)
        return cost


def _spark_figures(costs: dict[str, dict[str, list[Cost]]], sizes: Scale) -> list[dict[str, Any]]:
    figures = []
    for job, ways in costs.items():
        rows = TINY_ROWS if job.startswith("tiny") else sizes.rows
        for way, row in ways.items():
            wall = statistics.median(cost.wall for cost in row)
            figures.append(
                {
                    "job": job,
                    "way": way,
                    "rows": rows,
                    "rounds": len(row),
                    "wall_seconds": round(wall, 4),
                    "cpu_seconds": round(statistics.median(cost.cpu for cost in row), 3),
                    "rows_per_second": round(rows / wall),
                }
            )
    return figures


def _spark_ratios(costs: dict[str, dict[str, list[Cost]]]) -> dict[str, float]:
    ratios = {}
    for name, job, way, of_speed in _RATIOS:
        if way not in costs.get(job, {}):
            continue
        mine, built_in = costs[job][way], costs[job][BUILT_IN]
        mine_over = ratio([cost.wall for cost in mine], [cost.wall for cost in built_in])
        ratios[name] = round(1 / mine_over if of_speed else mine_over, 3)
        if not job.startswith("tiny"):
            # CPU time has ticks of 10 ms, which is too coarse for a job of a few milliseconds.
            cpu = ratio([cost.cpu for cost in built_in], [cost.cpu for cost in mine])
            ratios[name.replace("_over_builtin", "_cpu_over_builtin")] = round(cpu, 3)
    return ratios


def _store_ratios(figures: dict[str, Any]) -> dict[str, float]:
    ratios = {
        f"commit_seconds_per_file_{row['files']}": row["seconds_per_file"]
        for row in figures["commits"]
        if row["visibility"] == "listed" and row["threads"] == PUBLISHERS
    }
    rows = {row["name"]: row for row in figures["concurrency"]}
    ratios |= {
        f"commits_per_second_{name}": row["per_second"] for name, row in rows.items() if name.isdigit()
    }
    requests = {name: sum(row["requests_per_commit"].values()) for name, row in rows.items()}
    ratios["requests_per_commit_1"] = round(requests["1"], 2)
    if "16" in rows:
        ratios["requests_per_commit_16_over_1"] = round(requests["16"] / requests["1"], 3)
    grouped = max(row["per_second"] for row in figures["concurrency"] if row["threads"] > 1)
    ratios["grouped_commits_per_second"] = grouped
    ratios["grouped_commits_over_single"] = round(grouped / rows["1"]["per_second"], 3)
    return ratios


def main() -> None:
    """Run the benchmark, print the results, and write the JSON file if one was requested."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="rough figures within a minute")
    parser.add_argument("--only", choices=(*_PARTS, _DRIVERS), help="measure one part")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write ratios and figures")
    arguments = parser.parse_args()
    sizes = QUICK if arguments.quick else FULL
    parts = (arguments.only,) if arguments.only else _PARTS
    report: dict[str, Any] = {"ratios": {}}
    started = datetime.datetime.now(datetime.UTC)
    if "spark" in parts:
        with tempfile.TemporaryDirectory(prefix="committer-") as scratch:
            costs = _measure_spark(sizes, Path(scratch))
        report["ratios"].update(_spark_ratios(costs))
        report["spark"] = _spark_figures(costs, sizes)
    if "store" in parts or _DRIVERS in parts:
        store = sizes.store if "store" in parts else evolve(sizes.store, files=())
        figures = store_commits.measure_commits(store, _say)
        report["ratios"].update(_store_ratios(figures))
        report["store"] = {"latency_seconds": store_commits.LATENCY, **figures}
    if "scale" in parts:
        report["scale"] = scale.measure_scale(sizes.scale, _say)
    if "s3a" in parts:
        try:
            found = s3a_commits.measure_s3a(sizes.s3a, _say)
        except SkipTest as missing:
            if arguments.only:
                sys.exit(str(missing))
            _say(f"without s3a: {missing}")
        else:
            report["ratios"].update(found.pop("ratios"))
            report["s3a"] = found
    report |= {
        "date": started.date().isoformat(),
        "quick": arguments.quick,
        "versions": versions("commitlog-store", "pyspark", "pyarrow", "ministack"),
    }
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1) + "\n")
    _show(report)


def _show(report: dict[str, Any]) -> None:
    if "spark" in report:
        print(f"\n{'job':16}{'way':20}{'rows':>10}{'wall s':>10}{'CPU s':>10}{'rows/s':>12}")
        for row in report["spark"]:
            numbers = f"{row['wall_seconds']:10.3f}{row['cpu_seconds']:10.2f}{row['rows_per_second']:12}"
            print(f"{row['job']:16}{row['way']:20}{row['rows']:10}{numbers}")
    if "store" in report:
        _show_store(report["store"])
    if "scale" in report:
        _show_scale(report["scale"])
    if "s3a" in report:
        _show_s3a(report["s3a"])
    print_ratios(
        "ratios (rows per second; tiny: time; commit: seconds per file)",
        report["ratios"],
        AIMS,
        digits=4,
    )


def _show_store(figures: dict[str, Any]) -> None:
    print(f"\n{figures['latency_seconds'] * 1000:.0f} ms added to each request")
    if figures["commits"]:
        print("\ncommit of one job")
        print(f"{'files':>7} {'visibility':12}{'threads':>8}{'s':>9}{'ms/file':>10}  requests")
    for row in figures["commits"]:
        head = f"{row['files']:7} {row['visibility']:12}{row['threads']:8}{row['seconds']:9.2f}"
        print(f"{head}{row['seconds_per_file'] * 1000:10.2f}  {_requests(row['requests'])}")
    print("\njobs of one file on one output, begin to committed")
    print(f"{'drivers':>8}{'threads':>8}{'commits/s':>11}  requests per commit")
    for row in figures["concurrency"]:
        requests = row["requests_per_commit"]
        head = f"{row['drivers']:8}{row['threads']:8}{row['per_second']:11.1f}"
        print(f"{head}{sum(requests.values()):7.1f}: {_requests(requests)}")


def _show_scale(figures: dict[str, Any]) -> None:
    print("\nlogs in memory: milliseconds of processor time, bytes read and written, and requests")
    for row in figures["log"]:
        print(f"after {row['commits']} commits")
        for step in ("begin", "begin_second", "begin_again", "snapshot", "commit", "job"):
            took, requests = row[f"{step}_milliseconds"], _requests(row[f"{step}_requests"])
            size = f"{row[f'{step}_bytes_read']:9}{row[f'{step}_bytes_written']:9}"
            print(f"  {step:13}{took:9.2f}{size}  {requests}")
    print("\njobs of many files: processor time, memory of what tasks told, and what the commit adds")
    print(f"{'files':>8} {'visibility':12}{'CPU s':>8}{'told MB':>9}{'commit MB':>11}")
    for row in figures["jobs"]:
        head = f"{row['files']:8} {row['visibility']:12}{row['cpu_seconds']:8.2f}"
        print(f"{head}{row['told_megabytes']:9.1f}{row['commit_megabytes']:11.1f}")


def _show_s3a(figures: dict[str, Any]) -> None:
    latency = f"{figures['latency_seconds'] * 1000:.0f} ms added to each request"
    print(f"\nSpark on S3A, {figures['slots']} tasks at once, {latency}")
    print(f"{'files':16} {'committer':17}{'job s':>9}{'commit s':>10}{'copied':>11}  requests")
    for row in figures["jobs"]:
        seconds = f"{row['job_seconds']:9.2f}{row['commit_seconds']:10.2f}"
        head = f"{row['job']:16} {row['committer']:17}{seconds}{row['bytes_copied']:11}"
        print(f"{head}  {row['requests']}: {_requests(row['requests_by_kind'])}")


def _requests(counts: dict[str, float]) -> str:
    return ", ".join(f"{kind} {count:g}" for kind, count in counts.items())


if __name__ == "__main__":
    main()
