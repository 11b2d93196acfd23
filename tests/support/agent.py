"""The commit agent with the traps of jobs.

Spark takes a script of this module for the interpreter of its agent. A trap is a file in the
directory ``traps`` next to the script. The first job that it names takes it.
The agent has other heartbeats if there is a file ``heartbeat`` with their seconds. It dies in the call
of a streaming source that a file ``dies`` names. Traps of sources whose files Spark reads are there as
well: the first call at their step takes them.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from commitlog.spark.committer.s3a import s3_url
from support.project import IMPORT_PATH

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from support.spark_ingest_traps import BatchTrap
    from support.spark_jobs import Trap

__all__ = [
    "SETTING",
    "agent_interpreter",
    "agents",
    "heartbeat_every",
    "ingest_trapped",
    "kill_agent",
    "killed_in",
    "main",
    "other_interpreter",
    "set_ingest_trap",
    "trapped",
    "traps_of",
]

#: The setting of Spark with the interpreter of the agent.
SETTING = "spark.commitlog.python"


def agent_interpreter(directory: Path, program: str = "from support.agent import main; main()") -> str:
    """Create an interpreter in `directory` that runs the agent with traps; return its path.

    Args:
        directory: a new directory.
        program: the Python program to run instead of the agent; it must end as the agent does.
    """
    (directory / "traps").mkdir(parents=True)
    path = directory / "python"
    program = f"import sys; sys.path[:0] = {IMPORT_PATH.split(os.pathsep)!r}; {program}"
    traps = shlex.quote(str(directory / "traps"))
    run = shlex.join([sys.executable, "-c", program])
    path.write_text(f"#!/bin/sh\nexport COMMITLOG_TRAPS={traps}\nexec {run}\n")
    path.chmod(0o755)
    return str(path)


@contextmanager
def trapped(spark: SparkSession, url: str, job_id: str | None, trap: Trap) -> Iterator[None]:
    """Set a trap for the next job of the committer with that id and place."""
    file = traps_of(spark) / _name(url, job_id)
    file.write_text(trap.to_json())
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


@contextmanager
def ingest_trapped(spark: SparkSession, path: str, *traps: BatchTrap) -> Iterator[None]:
    """Set traps for a source whose files Spark reads. All of them must be taken until the end.

    Args:
        spark: a session whose agent has traps.
        path: the path of the source, as its query has it.
        traps: steps that `BatchTrap.in_agent` names.
    """
    files = [set_ingest_trap(spark, path, trap, number) for number, trap in enumerate(traps)]
    try:
        yield
        assert [file for file in files if file.exists()] == []
    finally:
        for file in files:
            file.unlink(missing_ok=True)


def set_ingest_trap(spark: SparkSession, path: str, trap: BatchTrap, number: int = 0) -> Path:
    """Set a trap for a source whose files Spark reads; return its file.

    Of two traps in one call of a batch, the one with the lower number is taken first.
    """
    file = traps_of(spark) / f"{_name(path, str(trap.batch))}-{number:02}"
    file.write_text(trap.to_json())
    return file


@contextmanager
def other_interpreter(spark: SparkSession, path: str) -> Iterator[None]:
    """Let the agents of a session run with the interpreter at `path`."""
    conf: Any = spark.sparkContext._jsc.sc().conf()  # type: ignore[attr-defined]
    usual = conf.get(SETTING)
    conf.set(SETTING, path)
    kill_agent(spark)
    try:
        yield
    finally:
        conf.set(SETTING, usual)
        kill_agent(spark)


@contextmanager
def heartbeat_every(spark: SparkSession, seconds: float) -> Iterator[None]:
    """Let the agents of a session, which must have traps, send their heartbeats more often."""
    file = traps_of(spark) / "heartbeat"
    file.write_text(str(seconds))
    kill_agent(spark)
    try:
        yield
    finally:
        file.unlink()
        kill_agent(spark)


@contextmanager
def killed_in(spark: SparkSession, call: str, *, after: bool) -> Iterator[None]:
    """Let the next agent of a session be killed in its first call of a streaming source.

    The agent that replaces it goes on.

    Args:
        spark: the session, whose agents must have traps.
        call: the method of `ScanPlanner`.
        after: whether it dies after it has done its work, before it answers.

    Raises `AssertionError` if there was no such call.
    """
    file = traps_of(spark) / "dies"
    file.write_text(json.dumps([call, after]))
    kill_agent(spark)
    try:
        yield
        assert not file.exists(), f"no agent has died in {call}"
    finally:
        file.unlink(missing_ok=True)
        kill_agent(spark)


def agents(pid: int) -> list[psutil.Process]:
    """Return the agents among the descendants of a process."""
    found = []
    for child in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if any("agent" in word and "main()" in word for word in child.cmdline()):
                found.append(child)
    return found


def kill_agent(spark: SparkSession) -> None:
    """Kill the agent of a session, if it runs."""
    found = agents(_jvm(spark))
    for agent in found:
        agent.kill()
    psutil.wait_procs(found)


def _jvm(spark: SparkSession) -> int:
    gateway: Any = spark.sparkContext._gateway  # type: ignore[attr-defined]
    return int(gateway.proc.pid)


def traps_of(spark: SparkSession) -> Path:
    """Return the directory of the traps of a session's usual interpreter."""
    return Path(spark.conf.get(SETTING) or "").parent / "traps"


def _name(url: str, job_id: str | None) -> str:
    url = s3_url(url) if url.startswith("s3a:") else url
    return hashlib.sha256(f"{url} {job_id}".encode()).hexdigest()


def main() -> None:
    """Run the agent."""
    from commitlog.spark.committer import agent, jobs
    from support.spark_jobs import Trap

    directory = Path(os.environ["COMMITLOG_TRAPS"])
    usual: Callable[..., Any] = jobs.JobCommitter.open_output

    def open_output(committer: Any, options: Any, executor: Any) -> Any:
        file = directory / _name(options.url, options.job.job_id)
        with suppress(FileNotFoundError):
            trap = Trap.from_json(file.read_text())
            file.unlink()
            # One request at a time, so that the nth is always the same.
            return trap.set(jobs.open_output(options), itertools.count(1))
        return usual(committer, options, executor)

    usual_scans: Callable[..., Any] = agent._Scans.__call__

    def scans(self: Any, call: str, request: Mapping[str, Any]) -> Any:
        start = request.get("start")
        batch = 0 if start is None else json.loads(start)["epoch"]
        made = partial(usual_scans, self, call, request)
        path = request["options"].get("path", "")
        for file in sorted(directory.glob(f"{_name(path, str(batch))}-*")):
            from commitlog.spark.ingest.scans import ScanPlanner
            from support.spark_ingest_traps import BatchTrap

            trap = BatchTrap.from_json(file.read_text())
            if trap.in_agent(call):
                file.unlink()
                self._planner = self._planner or ScanPlanner()
                return trap.around_call(made, self._planner, request)()
        return made()

    agent._Scans.__call__ = scans  # type: ignore[assignment]
    jobs.JobCommitter.open_output = open_output  # type: ignore[assignment]
    with suppress(FileNotFoundError):
        _die_in(directory / "dies", *json.loads((directory / "dies").read_text()))
    with suppress(FileNotFoundError):
        seconds = float((directory / "heartbeat").read_text())
        jobs.JobCommitter = partial(jobs.JobCommitter, heartbeat=seconds)  # type: ignore
    agent.main()


def _die_in(file: Path, call: str, after: bool) -> None:
    """Let this process be killed in its first call of a streaming source, and no other one."""
    from commitlog.spark.ingest.scans import ScanPlanner

    usual: Callable[..., Any] = getattr(ScanPlanner, call)

    def deadly(planner: Any, request: Any) -> Any:
        if after:
            usual(planner, request)
        file.unlink()
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(ScanPlanner, call, deadly)
