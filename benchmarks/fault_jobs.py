"""Jobs that wait where they are told to, and the drivers that die while they do.

A job writes `ROWS` numbers by three tasks. Each task can be held at a gate: it tells that it is there,
and reads from a pipe whether to go on, which blocks until somebody writes. As a program this module is a
driver whose jobs are all held so, until it is killed::

    python benchmarks/fault_jobs.py DIRECTORY

It prints ``ready`` once all tasks are done but those that are held.
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

#: Rows that are there before, and rows that each job adds.
BASE, ROWS = 100, 300
TASKS = 3

#: How long to wait for Spark to get somewhere before the benchmark gives up.
PATIENCE = 300.0


@frozen
class Gate:
    """Where one task of a job is held.

    Attributes:
        path: of the pipe; beside it appears a file when the task has got there.
        task: which.
    """

    path: str
    task: int

    @classmethod
    def new(cls, path: Path, task: int) -> Gate:
        """Make a gate."""
        os.mkfifo(path)
        return cls(str(path), task)

    @property
    def reached(self) -> Path:
        """What is there once the task has got to the gate."""
        return Path(self.path + ".reached")

    def open(self, word: str = "go", *, wait: bool = True) -> None:
        """Let the task go on, or fail; if it is not there (yet), `wait` for it or do nothing."""
        try:
            pipe = os.open(self.path, os.O_WRONLY | (0 if wait else os.O_NONBLOCK))
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            return
        os.write(pipe, word.encode())
        os.close(pipe)


def session(scratch: Path) -> SparkSession:
    """Start Spark with tasks enough to hold many of them at once."""
    quick_to_start = f"-Djava.io.tmpdir={scratch} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    return start("local[16]", scratch, {"spark.driver.extraJavaOptions": quick_to_start})


def contenders(spark: SparkSession) -> list[Writer]:
    """Return the ways to write that differ when something fails."""
    return [writer for writer in writers(spark) if not isinstance(writer, CommitlogFormat)]


def numbers(writer: Writer, first: int, gate: Gate | None = None) -> DataFrame:
    """Return the `ROWS` numbers from `first` on, in three partitions, one of which may be held."""
    if gate is None:
        return writer.session.range(first, first + ROWS, 1, TASKS)
    path, task = gate.path, gate.task

    # Workers cannot import this module, so it is pickled whole, and must not refer to its names.
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
    """Return once `condition` holds: nothing tells of it, so it is asked for now and then."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {PATIENCE:.0f} s for {what}")
        time.sleep(0.02)


def tasks_done(spark: SparkSession) -> int:
    """Return how many tasks of the stages that are running are done."""
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    return sum(stage.numCompletedTasks for stage in stages if stage is not None)


@frozen(kw_only=True)
class Books:
    """What a reader that lists a directory finds there, held against what has been written.

    Attributes:
        rows: how many.
        lost: how many numbers are missing.
        surplus: how many there are too many.
    """

    rows: int
    lost: int
    surplus: int

    def __str__(self) -> str:
        faults = {"lost": self.lost, "too many": self.surplus}
        told = ", ".join(f"{number} {fault}" for fault, number in faults.items() if number)
        return f"{self.rows} rows" + (f" ({told})" if told else "")


def books(path: Path, expected: range) -> Books:
    """Compare the numbers below `path` with `expected`, of which each is to be there once."""
    found: list[int] = []
    for file in listed_files(path):
        found += pq.read_table(file, columns=["id"], partitioning=None).column("id").to_pylist()
    lost = len(set(expected) - set(found))
    return Books(rows=len(found), lost=lost, surplus=len(found) - (len(expected) - lost))


def directory_of(top: Path, writer: Writer, scenario: str) -> Path:
    """Return where the output of `writer` is."""
    return top / scenario / writer.name.replace(" ", "-")


def begin_base(writer: Writer, path: Path) -> None:
    """Write the rows that are there before: those from 0."""
    writer.write(writer.session.range(0, BASE, 1, 1), path)


def _write(writer: Writer, path: Path, mode: str, gate: Gate) -> None:
    # Spark finds the format by a session that is the thread's own: this makes it so.
    writer.write(numbers(writer, BASE, gate), path, mode=mode)


def _end_with_parent() -> None:
    sys.stdin.read()
    os.killpg(0, signal.SIGKILL)


def main(arguments: Sequence[str]) -> None:
    """Have a job of each writer appending and one overwriting, and hold them all."""
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
