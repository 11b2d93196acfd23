#!/usr/bin/env python
"""Cost of checks and restores of a namespace, in one process and on Spark.

    ./run bench fsck [--quick] [--entries N ...] [--json FILE]

The namespace has files of one object, a hundred in each directory, with a log. Table and store are
SQLite and a local directory. A restore makes a read-only copy.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
from attrs import asdict, frozen
from measure import Cost, cost_of, versions
from pyspark.sql import SparkSession

import commitlog.spark
from commitlog.namespace import Data
from commitlog.namespaces import create_namespace, open_namespace, restore_namespace

#: Targets. They are printed next to the measured ratios and never asserted.
AIMS = {"driver_memory_growth": "<= 1.2", "two_cores_over_one": "<= 0.6"}

NAME = "lake"
FILES = 100


@frozen(kw_only=True)
class Result:
    """The cost of one check or restore.

    Attributes:
        entries: number of files and directories.
        where: ``process``, or a Spark master.
        mode: ``verify`` or ``restore``.
        wall, cpu: seconds; those of the processor are of all processes.
        driver: megabytes of the driver's Python process after it.
    """

    entries: int
    where: str
    mode: str
    wall: float
    cpu: float
    driver: float

    @property
    def cpu_per_million(self) -> float:
        """CPU seconds for a million entries."""
        return self.cpu / self.entries * 1e6


@frozen
class Place:
    """A namespace in a scratch directory."""

    scratch: Path

    @property
    def store(self) -> str:
        """URL of the store."""
        return f"file://{self.scratch}/store"

    @property
    def metadata(self) -> str:
        """URL of the table."""
        return f"sqlite://{self.scratch}/names.db"

    def copy(self) -> str:
        """Return the URL of a table that does not exist yet."""
        return f"sqlite://{self.scratch}/copy-{time.monotonic_ns()}.db"

    def fill(self, entries: int) -> None:
        """Create the namespace."""
        (self.scratch / "store").mkdir()
        with create_namespace(NAME, store=self.store, metadata=self.metadata) as lake:
            lake.store.put("raw/object", b"1")
            content = Data.of(lake.store.head("raw/object"))
            for number in range(entries // (FILES + 1)):
                directory = f"d{number % 100}/{number}"
                lake.make_directory(directory)
                lake.bulk_link(directory, {f"part-{each}": content for each in range(FILES)})


def measure_process(place: Place) -> dict[str, Callable[[], Any]]:
    """Return a check and a restore in this process."""

    def verify() -> Any:
        with open_namespace(NAME, metadata=place.metadata) as lake:
            return lake.maintenance.fsck(grace=0)

    def restore() -> Any:
        with restore_namespace(NAME, store=place.store, metadata=place.copy()) as restorer:
            return restorer.restore(read_only=True)

    return {"verify": verify, "restore": restore}


def measure_spark(place: Place, spark: SparkSession) -> dict[str, Callable[[], Any]]:
    """Return a check and a restore on Spark."""
    return {
        "verify": lambda: commitlog.spark.fsck(spark, NAME, metadata=place.metadata, grace=0),
        "restore": lambda: commitlog.spark.fsck(
            spark, NAME, mode="restore", store=place.store, metadata=place.copy(), read_only=True
        ),
    }


def measure(place: Place, entries: int, where: str, works: dict[str, Callable[[], Any]]) -> list[Result]:
    """Return the costs of a check and a restore."""
    results = []
    for mode, work in works.items():
        cost: Cost = cost_of(work)
        driver = psutil.Process().memory_info().rss / 1e6
        results.append(
            Result(entries=entries, where=where, mode=mode, wall=cost.wall, cpu=cost.cpu, driver=driver)
        )
        print(
            f"{entries:9} {where:10} {mode:8} {cost.wall:7.1f} s, {cost.cpu:7.1f} s of CPU",
            file=sys.stderr,
        )
    return results


def ratios_of(results: Sequence[Result]) -> dict[str, float]:
    """Return the ratios of the issue: for the largest namespace, on two cores."""
    found = {(each.entries, each.where, each.mode): each for each in results}
    small, large = min(each.entries for each in results), max(each.entries for each in results)
    two = {mode: found[large, "local[2]", mode] for mode in ("verify", "restore")}
    return {
        "verify_cpu_per_million": two["verify"].cpu_per_million,
        "restore_cpu_per_million": two["restore"].cpu_per_million,
        "driver_memory_growth": two["restore"].driver / found[small, "local[2]", "restore"].driver,
        "two_cores_over_one": two["verify"].wall / found[large, "local[1]", "verify"].wall,
    }


def main() -> None:
    """Measure, and print the results as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two small namespaces")
    parser.add_argument("--entries", type=int, nargs="+", help="numbers of entries")
    parser.add_argument("--json", type=Path, help="write the results to this file, too")
    arguments = parser.parse_args()
    sizes = arguments.entries or ([500, 2_000] if arguments.quick else [10_000, 100_000])
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    results: list[Result] = []
    for entries in sizes:
        with tempfile.TemporaryDirectory() as scratch:
            place = Place(Path(scratch))
            place.fill(entries)
            results += measure(place, entries, "process", measure_process(place))
            for master in ("local[1]", "local[2]"):
                conf = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
                spark = commitlog.spark.session(master, conf)
                results += measure(place, entries, master, measure_spark(place, spark))
                spark.stop()
    report = {
        "versions": versions("commitlog-store", "pyspark"),
        "results": [asdict(each) for each in results],
        "ratios": ratios_of(results),
        "aims": AIMS,
    }
    text = json.dumps(report, indent=2)
    print(text)
    if arguments.json is not None:
        arguments.json.write_text(text)


if __name__ == "__main__":
    main()
