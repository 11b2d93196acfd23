#!/usr/bin/env python
"""Cost of checks and restores of a namespace on Spark, and of the reduction of a log's states.

    ./run bench fsck [--quick] [--entries N ...] [--states N ...] [--only ROW ...] [--json FILE]

The namespace has files of one object each, a hundred in each directory, and a log with a checkpoint and
recent operations. Table and store are SQLite and a local directory. A restore makes a read-only copy. A
row is named by its place and its work, such as ``local2/verify``:

    process            this process, without Spark
    local1, local2     Spark's master local[1], local[2]
    cluster1, cluster2 a standalone cluster of one or two workers, with one core each
    verify, restore    a check and a restore of N entries
    reduce             the newest state of each item, of N states; half as many items

Rows can be measured one after the other: `--merge` adds the rows of earlier reports.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import fsck_data
import psutil
import pyspark.cloudpickle
import servers  # noqa: F401 - makes `support` importable
from attrs import asdict, evolve, frozen
from fsck_data import NAME, Place, reduce_states
from measure import PeakMemory, cost_of, print_ratios, versions
from pyspark.sql import SparkSession

import commitlog.spark
from commitlog.namespaces import open_namespace, restore_namespace
from commitlog.spark.cluster import SparkEngine
from support.spark_cluster import HOSTS, Workers

#: Aims for the ratios. They are printed next to the measured ones and never asserted.
AIMS = {"driver_memory_growth": "<= 1.2", "two_workers_over_one": "<= 0.6"}

#: Spark's masters; a number is that of the workers of a standalone cluster.
MASTERS = MappingProxyType(
    {"local1": "local[1]", "local2": "local[2]", "cluster1": 1, "cluster2": 2, "process": None}
)
MODES = ("verify", "restore", "reduce")

#: The larger namespaces and reductions are measured on two cores only.
ENTRIES, QUICK_ENTRIES = (100_000, 1_000_000, 10_000_000), (500, 2_000)
STATES, QUICK_STATES = (1_000_000, 10_000_000, 100_000_000), (20_000,)
_ONE_CORE = 1_000_000

_CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.executor.memory": "1g",
    "spark.executor.cores": "1",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
}


@frozen(kw_only=True)
class Row:
    """The measurements of one driver.

    Attributes:
        where: a key of `MASTERS`.
        number: number of entries, or of states of a reduction.
        modes: some of `MODES`.
        partitions: of grouped records; None: the default.
        scratch: directory of the namespace.
    """

    where: str
    number: int
    modes: tuple[str, ...]
    partitions: int | None
    scratch: str


@frozen(kw_only=True)
class Result:
    """The cost of one check, restore or reduction.

    Attributes:
        number: number of files and directories, or of states.
        where, mode: as in `Row`.
        partitions: of grouped records; None: the default.
        wall, cpu: seconds; those of the processor are of all processes.
        driver, jvm, executors: highest resident megabytes meanwhile: of the driver's Python process and
            its JVM, which runs the tasks of a local master, too; and of the other processes, which are
            Spark's Python workers and, on a cluster, the JVMs of the executors.
    """

    number: int
    where: str
    mode: str
    partitions: int | None
    wall: float
    cpu: float
    driver: float
    jvm: float
    executors: float

    @property
    def key(self) -> tuple[str, int, str]:
        """The mode, the size and the place."""
        return self.mode, self.number, self.where

    @property
    def cpu_per_million(self) -> float:
        """CPU seconds for a million entries or states."""
        return self.cpu / self.number * 1e6

    def markdown(self) -> str:
        """Return a row of the table in the documentation."""
        return (
            f"| {self.mode} | {self.number:,} | {self.where} | {self.wall:,.0f} |"
            f" {self.cpu_per_million:,.0f} | {self.driver:,.0f} + {self.jvm:,.0f} |"
            f" {self.executors:,.0f} |"
        )


HEADER = """\
| Work | Entries, states | Where | Seconds | CPU s per million | Driver MB: Python + JVM | Executors MB |
|---|---:|---|---:|---:|---:|---:|"""


# -- one driver ----------------------------------------------------------------------------------------


def run(row: Row) -> list[Result]:
    """Measure a row in this process."""
    place = Place(Path(row.scratch))
    with ExitStack() as stack:
        spark = stack.enter_context(_session(row)) if MASTERS[row.where] is not None else None
        results = []
        for mode in row.modes:
            with PeakMemory(_kind_of) as peak:
                cost = cost_of(_work(mode, row, place, spark))
            memory = {kind: peak.megabytes.get(kind, 0.0) for kind in ("driver", "jvm", "executors")}
            results.append(
                Result(
                    number=row.number,
                    where=row.where,
                    mode=mode,
                    partitions=row.partitions,
                    wall=cost.wall,
                    cpu=cost.cpu,
                    **memory,
                )
            )
            print(results[-1].markdown(), file=sys.stderr)
        return results


@contextmanager
def _session(row: Row) -> Iterator[SparkSession]:
    master = MASTERS[row.where]
    with ExitStack() as stack:
        # A new directory: a cluster finds the address of its master in a log.
        temporary = tempfile.TemporaryDirectory(dir=row.scratch, ignore_cleanup_errors=True)
        scratch = Path(stack.enter_context(temporary))
        conf = {**_CONF, "spark.local.dir": str(scratch)}
        if isinstance(master, int):
            # For the JVM of an executor: Spark does not count the memory of its Python processes.
            cluster = stack.enter_context(Workers(scratch, HOSTS[:master], memory="1g"))
            master = cluster.master
        spark = commitlog.spark.session(master, conf)
        stack.callback(spark.stop)
        # Its tasks do not find the modules of benchmarks.
        pyspark.cloudpickle.register_pickle_by_value(fsck_data)
        cores = spark.sparkContext.defaultParallelism
        spark.sparkContext.parallelize(range(cores), cores).map(str).count()  # starts the workers
        yield spark


def _kind_of(processes: Sequence[psutil.Process]) -> str:
    """Return the kind of a process, given those above it."""
    texts = [" ".join(each.cmdline()) for each in processes]
    if "org.apache.spark.deploy.SparkSubmit" in texts[0]:
        return "jvm"
    if "org.apache.spark.deploy.master" in texts[0] or "org.apache.spark.deploy.worker" in texts[0]:
        return ""
    return "executors" if "pyspark.daemon" in texts[0] or "ExecutorBackend" in texts[0] else ""


def _work(mode: str, row: Row, place: Place, spark: SparkSession | None) -> Callable[[], object]:
    """Return the work to measure. It fails unless the result is the expected one."""
    options: dict[str, Any] = {"metadata": place.metadata}

    def verify() -> None:
        if spark is None:
            with open_namespace(NAME, **options) as lake:
                report = lake.maintenance.fsck(grace=0)
        else:
            report = commitlog.spark.fsck(spark, NAME, grace=0, partitions=row.partitions, **options)
        assert report.is_clean, report.counts
        assert report.entries == row.number + 2, report  # with the root and the trash

    def restore() -> None:
        where = {"store": place.store, "metadata": place.table("copy")}
        if spark is None:
            with restore_namespace(NAME, **where) as restorer:
                report = restorer.restore(read_only=True)
        else:
            report = commitlog.spark.fsck(
                spark, NAME, mode="restore", read_only=True, partitions=row.partitions, **where
            )
        assert not report.lost and not report.found and not report.unreadable
        assert report.files + report.directories == row.number, report

    def reduce() -> None:
        assert spark is not None
        engine = SparkEngine(spark, partitions=row.partitions)
        assert reduce_states(engine, row.number) == row.number // 2

    return {"verify": verify, "restore": restore, "reduce": reduce}[mode]


# -- all rows ------------------------------------------------------------------------------------------


def measure(row: Row) -> list[Result]:
    """Measure a row in another process, whose memory has held no other row."""
    command = [sys.executable, __file__, "--row", json.dumps(asdict(row))]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return [Result(**each) for each in json.loads(done.stdout.splitlines()[-1])]


def rows_of(arguments: argparse.Namespace, numbers: Sequence[int], modes: Sequence[str]) -> list[Row]:
    """Return the wanted rows for numbers of entries or states, without their directories."""
    found = []
    for number in numbers:
        for where in MASTERS:
            wanted = tuple(mode for mode in modes if _is_wanted(arguments, number, where, mode))
            if wanted:
                found.append(
                    Row(
                        where=where,
                        number=number,
                        modes=wanted,
                        partitions=arguments.partitions,
                        scratch="",
                    )
                )
    return found


def _is_wanted(arguments: argparse.Namespace, number: int, where: str, mode: str) -> bool:
    if (where, mode) == ("process", "reduce"):
        return False
    if arguments.only is not None:
        return bool({where, mode, f"{where}/{mode}"} & set(arguments.only))
    if mode == "reduce":
        return where == "local2"
    if where == "process":
        return False
    if arguments.quick:
        largest = number == max(QUICK_ENTRIES)
        wanted = {("cluster2", "verify"), *([("cluster2", "restore"), ("cluster1", "verify")] * largest)}
        return (where, mode) in wanted
    return where.endswith("2") or number <= _ONE_CORE


def ratios_of(results: Sequence[Result]) -> dict[str, float]:
    """Return the ratios of the issue, of the largest rows that are there."""
    ratios = {}
    found = {each.key: each for each in results}
    for mode in ("verify", "restore", "reduce"):
        largest = max((each.key for each in results if each.mode == mode), default=None)
        if largest is not None:
            by_place = [found.get((mode, largest[1], where)) for where in ("local2", largest[2])]
            ratios[f"{mode}_cpu_per_million"] = next(filter(None, by_place)).cpu_per_million
    verified = sorted((each for each in results if each.mode == "verify"), key=lambda each: each.number)
    drivers = [each.driver + each.jvm for each in verified if each.where == "cluster2"]
    if len(drivers) > 1:
        ratios["driver_memory_growth"] = drivers[-1] / drivers[0]
    for each in verified:
        two = found.get(("verify", each.number, "cluster2"))
        if each.where == "cluster1" and two is not None:
            ratios["two_workers_over_one"] = two.wall / each.wall
    return ratios


def main() -> None:
    """Measure, and print the results as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two small namespaces")
    parser.add_argument("--entries", type=int, nargs="*", help="numbers of entries")
    parser.add_argument("--states", type=int, nargs="*", help="numbers of states of a reduction")
    parser.add_argument("--only", nargs="+", metavar="ROW", help="where, what, or WHERE/WHAT")
    parser.add_argument("--partitions", type=int, help="partitions of grouped records")
    parser.add_argument("--scratch", type=Path, help="keep the namespaces here, and use those there")
    parser.add_argument("--json", type=Path, help="write the results to this file, too")
    parser.add_argument("--merge", type=Path, nargs="+", default=(), help="add the rows of these files")
    parser.add_argument("--markdown", action="store_true", help="print a table instead of JSON")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if arguments.quick and arguments.partitions is None:
        arguments.partitions = 2
    if arguments.row is not None:
        row = json.loads(arguments.row)
        print(json.dumps([asdict(each) for each in run(Row(**row))]))
        return
    results: dict[tuple[str, int, str], Result] = {}
    for path in arguments.merge:
        for fields in json.loads(path.read_text())["results"]:
            merged = Result(**fields)
            results[merged.key] = merged
    for each in _measured(arguments):
        results[each.key] = each
    ordered = [results[key] for key in sorted(results, key=_order_of)]
    report = {
        "versions": versions("commitlog-store", "pyspark"),
        "results": [asdict(each) for each in ordered],
        "ratios": ratios_of(ordered),
        "aims": AIMS,
    }
    text = json.dumps(report, indent=2)
    print("\n".join([HEADER, *(each.markdown() for each in ordered)]) if arguments.markdown else text)
    print_ratios("Ratios", report["ratios"], AIMS)
    if arguments.json is not None:
        arguments.json.write_text(text)


def _order_of(key: tuple[str, int, str]) -> tuple[int, int, int]:
    mode, number, where = key
    return MODES.index(mode), number, list(MASTERS).index(where)


def _measured(arguments: argparse.Namespace) -> Iterator[Result]:
    entries = (QUICK_ENTRIES if arguments.quick else ENTRIES) if arguments.entries is None else ()
    entries = arguments.entries or entries
    for number in entries:
        rows = rows_of(arguments, [number], ("verify", "restore"))
        if rows:
            with _scratch(arguments.scratch, number) as scratch:
                yield from _measured_there(rows, Place(scratch))
    states = (QUICK_STATES if arguments.quick else STATES) if arguments.states is None else ()
    with _scratch(arguments.scratch, 0) as scratch:
        for row in rows_of(arguments, arguments.states or states, ("reduce",)):
            yield from measure(evolve(row, scratch=str(scratch)))


@contextmanager
def _scratch(top: Path | None, number: int) -> Iterator[Path]:
    if top is not None:
        path = top.resolve() / str(number)
        path.mkdir(parents=True, exist_ok=True)
        yield path
        return
    with tempfile.TemporaryDirectory() as created:
        yield Path(created)


def _measured_there(rows: Sequence[Row], place: Place) -> Iterator[Result]:
    """Measure rows of one namespace, which is created unless it is there."""
    done = place.scratch / "filled"
    if not done.exists():
        place.fill(rows[0].number)
        done.write_text(json.dumps(place.digest("names")))
    for row in rows:
        yield from measure(evolve(row, scratch=str(place.scratch)))
        if "restore" in row.modes:
            assert place.digest("copy") == tuple(json.loads(done.read_text()))
            place.remove("copy")


if __name__ == "__main__":
    main()
