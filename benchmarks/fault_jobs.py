"""Jobs that wait at gates, and drivers that are killed while their jobs wait.

A job writes `ROWS` numbers by three tasks. Each task can be held at a gate: it creates a file to report
its arrival, then reads a command from a pipe, which blocks until one is written. As a program, this
module is a driver whose jobs are all held, until it is killed::

    python benchmarks/fault_jobs.py DIRECTORY

It prints ``ready`` once all tasks are done except those that are held.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from attrs import frozen
from pyspark.sql import DataFrame, SparkSession
from spark_writers import CommitlogFormat, Writer, listed_files, start, writers

__all__ = [
    "BASE",
    "ROWS",
    "Books",
    "Gate",
    "begin_base",
    "books",
    "contenders",
    "directory_of",
    "numbers",
    "session",
    "tasks_done",
    "when",
]

#: Rows that exist before a job, and rows that each job adds.
BASE, ROWS = 100, 300
TASKS = 3

#: Seconds to wait for Spark to reach a state before the benchmark gives up.
PATIENCE = 300.0


@frozen
class Gate:
    """The place where one task of a job is held.

    Attributes:
        path: path of the pipe. When the task arrives, it creates a file next to the pipe.
        task: number of the task.
    """

    path: str
    task: int

    @classmethod
    def new(cls, path: Path, task: int) -> Gate:
        """Create a gate."""
        os.mkfifo(path)
        return cls(str(path), task)

    @property
    def reached(self) -> Path:
        """The file that exists once the task has arrived at the gate."""
        return Path(self.path + ".reached")

    def open(self, word: str = "go", *, wait: bool = True) -> None:
        """Let the task go on, or fail. Without `wait`, do nothing if it has not arrived."""
        try:
            pipe = os.open(self.path, os.O_WRONLY | (0 if wait else os.O_NONBLOCK))
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            return
        os.write(pipe, word.encode())
        os.close(pipe)


def session(scratch: Path) -> SparkSession:
    """Start Spark with enough task slots to hold many tasks at once."""
    quick_to_start = f"-Djava.io.tmpdir={scratch} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    return start("local[16]", scratch, {"spark.driver.extraJavaOptions": quick_to_start})


def contenders(spark: SparkSession) -> list[Writer]:
    """Return the writers that differ when something fails."""
    return [writer for writer in writers(spark) if not isinstance(writer, CommitlogFormat)]


def numbers(writer: Writer, first: int, gate: Gate | None = None) -> DataFrame:
    """Return the `ROWS` numbers from `first` on, in three partitions; `gate` may hold one of them."""
    if gate is None:
        return writer.session.range(first, first + ROWS, 1, TASKS)
    path, task = gate.path, gate.task

    # Workers cannot import this module. The function is pickled whole, so it must not use names of the
    # module.
    def held(index: int, rows: Iterable[int]) -> Iterable[tuple[int]]:
        if index == task:
            Path(path + ".reached").touch()
            with open(path) as pipe:
                if pipe.read() == "fail":
                    raise RuntimeError("this task was told to fail")
        return ((row,) for row in rows)

    rows = writer.session.sparkContext.parallelize(range(first, first + ROWS), TASKS)
    return writer.session.createDataFrame(rows.mapPartitionsWithIndex(held), "id long")


def when(condition: Callable[[], Any], what: str) -> None:
    """Poll `condition` until it holds. Raise TimeoutError after `PATIENCE` seconds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {PATIENCE:.0f} s for {what}")
        time.sleep(0.02)


def tasks_done(spark: SparkSession) -> int:
    """Return how many tasks of the active stages are done."""
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    return sum(stage.numCompletedTasks for stage in stages if stage is not None)


@frozen(kw_only=True)
class Books:
    """The rows that a reader finds by listing a directory, compared with the rows that were written.

    Attributes:
        rows: number of rows found.
        lost: number of expected rows that are missing.
        surplus: number of rows in excess.
    """

    rows: int
    lost: int
    surplus: int

    def __str__(self) -> str:
        faults = {"lost": self.lost, "too many": self.surplus}
        told = ", ".join(f"{number} {fault}" for fault, number in faults.items() if number)
        return f"{self.rows} rows" + (f" ({told})" if told else "")


def books(path: Path, expected: range) -> Books:
    """Compare the numbers below `path` with `expected`. Each expected number must occur once."""
    found: list[int] = []
    for file in listed_files(path):
        found += pq.read_table(file, columns=["id"], partitioning=None).column("id").to_pylist()
    lost = len(set(expected) - set(found))
    return Books(rows=len(found), lost=lost, surplus=len(found) - (len(expected) - lost))


def directory_of(top: Path, writer: Writer, scenario: str) -> Path:
    """Return the output directory of `writer`."""
    return top / scenario / writer.name.replace(" ", "-")


def begin_base(writer: Writer, path: Path) -> None:
    """Write the rows that exist before a job: those from 0."""
    writer.write(writer.session.range(0, BASE, 1, 1), path)


def _write(writer: Writer, path: Path, mode: str, gate: Gate) -> None:
    # Spark finds the format through the session of the thread; this call sets that session.
    writer.write(numbers(writer, BASE, gate), path, mode=mode)


def _end_with_parent() -> None:
    sys.stdin.read()
    os.killpg(0, signal.SIGKILL)


def main(arguments: Sequence[str]) -> None:
    """Start one appending and one overwriting job of each writer, and hold them all."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    top = Path(arguments[0])
    scratch = top / "driver"
    scratch.mkdir(parents=True)
    spark = session(scratch)
    threads = []
    for writer in contenders(spark):
        for mode in ("append", "overwrite"):
            path = directory_of(top, writer, f"killed-{mode}")
            begin_base(writer, path)
            gate = Gate.new(scratch / f"{path.name}-{mode}", TASKS - 1)
            threads.append(threading.Thread(target=_write, args=(writer, path, mode, gate)))
    for thread in threads:
        thread.start()
    when(lambda: tasks_done(spark) == (TASKS - 1) * len(threads), "the tasks that are not held")
    print("ready", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main(sys.argv[1:])
