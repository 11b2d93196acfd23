"""A Spark driver in a separate process, for races and kills.

As a program, this module is that driver: it runs the jobs from stdin at the same time, and reports the
result of each.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

import psutil

from commitlog.spark.session_conf import active
from demo.quiet import quiet_session
from support.agent import SETTING, agent_interpreter
from support.project import environment
from support.s3a import jars_of_session
from support.spark_jobs import PROTOCOL, Job, running

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_T = TypeVar("_T")

#: The environment variable with a driver's further settings.
_CONF = "DRIVER_CONF"


class Task(Protocol):
    """A task for a driver."""

    def to_json(self) -> str:
        """Return it as text."""


class Driver:
    """A driver in a separate process, with its own JVM.

    Args:
        scratch: a directory for its files.
        jobs: its tasks, which it runs at the same time. Then it waits to be killed.
        program: the name of the module that it runs.
        conf: further settings of Spark; on another master than a local one, it runs one job at a time.
    """

    def __init__(
        self,
        scratch: Path,
        jobs: Sequence[Task],
        program: str = "support.spark_driver",
        conf: Mapping[str, str] | None = None,
    ) -> None:
        #: The results of the jobs: None, or an error with the text of their error.
        self.jobs: list[Future[None]] = [Future() for _ in jobs]
        self._log = (scratch / "driver.log").open("ab")
        self._process = subprocess.Popen(
            [sys.executable, "-m", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=environment(TMPDIR=str(scratch), **{_CONF: json.dumps(conf or {})}),
            # A separate process group with its JVM, to kill all of it.
            start_new_session=True,
        )
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([job.to_json() for job in jobs]) + "\n")
        self._process.stdin.flush()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def error(self, number: int) -> str | None:
        """Wait until the job with this number ends; return its error, if there is one."""
        error = self.jobs[number].exception()
        return None if error is None else str(error)

    def next(self) -> None:
        """Let it begin another job, if it waits."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            number, error = json.loads(line)
            if error is None:
                self.jobs[number].set_result(None)
            else:
                self.jobs[number].set_exception(RuntimeError(error))
        for job in self.jobs:
            if not job.done():
                job.set_exception(RuntimeError("the driver is dead"))

    def kill(self) -> None:
        """Kill it and its JVM, and then Spark's Python workers, which are in other process groups."""
        family = psutil.Process(self._process.pid).children(recursive=True)
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for each in family:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        psutil.wait_procs(family, timeout=10)

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self.kill()
        self._listener.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._log.close()


def read_tasks(go_on: Callable[[], None] | None = None) -> list[str]:
    """Return the tasks of this driver, as text. The driver ends with the process that started it.

    `go_on` is called at each `Driver.next`.
    """
    tasks: list[str] = json.loads(sys.stdin.readline())
    threading.Thread(target=_obey, args=(go_on,), daemon=True).start()
    return tasks


def report(number: int, done: Future[None]) -> None:
    """Report the result of a task."""
    error = done.exception()
    sys.stdout.write(json.dumps([number, None if error is None else str(error)]) + "\n")
    sys.stdout.flush()


def _obey(go_on: Callable[[], None] | None) -> None:
    for _ in sys.stdin:
        assert go_on is not None
        go_on()
    os.killpg(0, signal.SIGKILL)


def serve(parse: Callable[[str], _T], run: Callable[[_T, SparkSession], None]) -> None:
    """Run the tasks of this driver, two at the same time, not counting those that wait at a gate.

    On a cluster, run one after the other.

    The process that waits at the gate reports each arrival with `Driver.next`.
    """
    conf = json.loads(os.environ[_CONF])
    turns = threading.Semaphore(1 if "spark.master" in conf else 2)
    tasks = [parse(text) for text in read_tasks(turns.release)]
    # Each waiting task of Spark takes a slot.
    spark = _session(len(tasks) + 2, **conf)

    def take_turn(task: _T) -> None:
        with turns, active(spark):
            run(task, spark)

    with ThreadPoolExecutor(len(tasks)) as pool:
        for number, task in enumerate(tasks):
            pool.submit(take_turn, task).add_done_callback(partial(report, number))
    threading.Event().wait()


def _session(slots: int, **conf: str) -> SparkSession:
    agent = agent_interpreter(Path(tempfile.mkdtemp()) / "agent")
    conf = {"spark.jars": jars_of_session(), SETTING: agent, **conf}
    return quiet_session(master=conf.pop("spark.master", f"local[{slots}]"), conf=conf)


def main() -> None:
    """Run the tasks of this driver."""
    jobs = [Job.from_json(text) for text in read_tasks()]
    spark = _session(6, **dict([PROTOCOL]))
    with running(spark, *jobs) as under_way:
        for number, done in enumerate(under_way):
            done.add_done_callback(partial(report, number))
    threading.Event().wait()


if __name__ == "__main__":
    main()
