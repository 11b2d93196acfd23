"""Jobs that wait at gates, and drivers that are killed while their jobs wait.

A job writes `ROWS` numbers by three tasks. Each task can be held at a gate: it creates a file to report
its arrival, then reads a command from a pipe, which blocks until one is written. As a program, this
module is a driver whose jobs are all held, until it is killed::

    python benchmarks/fault_jobs.py SITE

It prints ``ready`` once all tasks are done except those that are held. Only then does it start the jobs
that the proxy holds.
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

from attrs import frozen
from fault_sites import Place, load_site
from pyspark.sql import DataFrame, SparkSession
from s3a_spark import S3aWriter
from spark_writers import Writer

__all__ = [
    "ALL",
    "BASE",
    "COMPLETED",
    "COMPLETING",
    "COMPLETING_FILES",
    "ROWS",
    "Books",
    "Gate",
    "append_by_id",
    "begin_base",
    "books",
    "numbers",
    "tasks_done",
    "when",
]

#: Rows that exist before a job, and rows that each job adds.
BASE, ROWS = 100, 300
ALL = range(BASE + ROWS)
TASKS = 3

#: The scenario of drivers that are killed while they complete uploads: jobs of `COMPLETING_FILES` files,
#: of which `COMPLETED` are visible at that moment.
COMPLETING, COMPLETING_FILES, COMPLETED = "killed-completing", 30, 10

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


def books(place: Place, expected: range) -> Books:
    """Compare the numbers in `place` with `expected`. Each expected number must occur once."""
    found = place.numbers()
    lost = len(set(expected) - set(found))
    return Books(rows=len(found), lost=lost, surplus=len(found) - (len(expected) - lost))


def begin_base(writer: Writer, place: Place) -> None:
    """Write the rows that exist before a job: those from 0."""
    writer.write(writer.session.range(0, BASE, 1, 1), place.path)


def _write(writer: Writer, place: Place, mode: str, gate: Gate) -> None:
    # Spark finds the format through the session of the thread; this call sets that session.
    writer.write(numbers(writer, BASE, gate), place.path, mode=mode)


def append_by_id(writer: S3aWriter, place: Place) -> None:
    """Append the numbers from `BASE` on in `COMPLETING_FILES` files, as a job that has an id."""
    frame = writer.session.range(BASE, BASE + ROWS, 1, COMPLETING_FILES)
    writer.append_once(frame, place.path, "completing")


def _end_with_parent() -> None:
    sys.stdin.read()
    os.killpg(0, signal.SIGKILL)


def main(arguments: Sequence[str]) -> None:
    """Start jobs of each writer that append, overwrite, and complete uploads, and hold them all."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    site = load_site(arguments[0])
    scratch = site.top / "driver"
    scratch.mkdir(parents=True)
    spark = site.start(scratch)
    threads, completing = [], []
    for writer in site.writers(spark):
        if isinstance(writer, S3aWriter) and writer.completes:
            completing.append((writer, site.place(writer, COMPLETING)))
            begin_base(*completing[-1])
        for mode in ("append", "overwrite"):
            place = site.place(writer, f"killed-{mode}")
            begin_base(writer, place)
            gate = Gate.new(place.gate, TASKS - 1)
            threads.append(threading.Thread(target=_write, args=(writer, place, mode, gate)))
    for thread in threads:
        thread.start()
    when(lambda: tasks_done(spark) == (TASKS - 1) * len(threads), "the tasks that are not held")
    for writer, place in completing:
        threading.Thread(target=append_by_id, args=(writer, place)).start()
    print("ready", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main(sys.argv[1:])
