"""The commit agent is killed: between jobs, while tasks run, and at each step of a commit."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from commitlog.errors import OutcomeUnknown
from commitlog.spark import error_of
from support.agent import (
    agent_interpreter,
    agents,
    heartbeat_every,
    kill_agent,
    other_interpreter,
    traps_of,
)
from support.selection import in_campaigns
from support.spark_gates import PATIENCE, Gate
from support.spark_jobs import Trap, running
from support.spark_session import SparkLogs
from support.spark_targets import Place, configured, place_of_test  # noqa: F401 - fixtures

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.all, pytest.mark.spark, pytest.mark.usefixtures("configured")]

#: The steps at which the agent dies. Up to the commit record, nothing is committed.
STEPS = {
    "before the pending entry": Trap(at="pending", what="die"),
    "before the record": Trap(at="record", what="die"),
    "after the record": Trap(at="record", what="die", after=True),
    "between two files": Trap(at="publish", what="die", nth=2),
    "before _SUCCESS": Trap(at="success", what="die"),
}

#: The ways with the configured committer.
CONFIGURED = ["configured", in_campaigns("s3a", marks=[pytest.mark.servers])]

#: The steps of each run with ``--all``; campaigns have the others.
OFTEN = ("before the record", "between two files")


def wait_for(condition: Callable[[], object], otherwise: str) -> None:
    """Return once `condition` is true."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.05)


def pids(spark: SparkSession) -> set[int]:
    """Return the ids of the agents of a session."""
    jvm: int = spark.sparkContext._gateway.proc.pid  # type: ignore[attr-defined]
    return {agent.pid for agent in agents(jvm)}


#: On S3A, the steps on both sides of the commit record.
ENDED = [
    *(("configured", step) if step in OFTEN else in_campaigns("configured", step) for step in STEPS),
    in_campaigns("s3a", "before the record", marks=[pytest.mark.servers]),
    pytest.param("s3a", "between two files", marks=pytest.mark.servers),
]


@pytest.mark.parametrize(("place", "step"), ENDED, indirect=["place"])
def test_another_agent_ends_the_commit(
    spark: SparkSession, spark_logs: SparkLogs, place: Place, step: str
) -> None:
    """The job succeeds. Its rows are there once, and every reader sees them, without a recovery."""
    place = place.with_short_leases()
    base = place.begin_base()
    job = place.job(trap=STEPS[step])
    seen = len(spark_logs.log.read_text())
    job.run(spark)
    news = "the commit agent ended during commit, with exit code 137; another one settles the outcome"
    assert spark_logs.log.read_text()[seen:].count(news) == 1
    assert len(pids(spark)) == 1
    place.audit(spark, base + job.numbers, "base", "daily")


@pytest.mark.parametrize("place", ["configured"], indirect=True)
@pytest.mark.parametrize("step", [in_campaigns("before the record"), "between two files"])
def test_another_agent_ends_an_overwriting_commit(spark: SparkSession, place: Place, step: str) -> None:
    """The partition that it overwrites has the new rows only."""
    place = place.with_short_leases()
    base = place.begin_base()
    job = place.job(mode="overwrite-partitions", parts="part = 1", trap=STEPS[step])
    job.run(spark)
    kept = [number for number in base if not number % 2]
    place.audit(spark, kept + [number for number in job.numbers if number % 2], "base", "daily")


def interpreter_that_dies(directory: Path, method: str, times: int) -> tuple[str, Path]:
    """Create an interpreter whose agents die in a method of the output.

    Returns its path, and a file with one letter for each agent that was started.

    Args:
        directory: a new directory.
        method: the name of the method of `Output`.
        times: number of the agents that die.
    """
    starts = directory / "starts"
    program = f"""
import os, sys
from commitlog.outputs import Output
from commitlog.spark.committer import agent

with open({str(starts)!r}, "a+") as starts:
    starts.write("x")
    starts.seek(0)
    number = len(starts.read())

def die(*_, **options):
    print("nothing left to do", file=sys.stderr, flush=True)
    os._exit(3)

if number <= {times}:
    Output.{method} = die
agent.main()
"""
    return agent_interpreter(directory, f"exec({program!r})"), starts


@pytest.mark.parametrize("place", ["configured"], indirect=True)
def test_an_agent_that_dies_at_the_begin_is_replaced(
    spark: SparkSession, place: Place, tmp_path: Path
) -> None:
    """The job begins once more in another agent, and is committed once."""
    base = place.begin_base()
    dying, starts = interpreter_that_dies(tmp_path / "agent", "begin", times=1)
    with other_interpreter(spark, dying):
        place.job().run(spark)
        assert starts.read_text() == "xx"
    place.audit(spark, base + place.job().numbers, "base", "daily")


@pytest.mark.parametrize("place", CONFIGURED, indirect=True)
def test_an_agent_that_always_dies_fails_the_job(
    spark: SparkSession, place: Place, tmp_path: Path
) -> None:
    """Spark's error says so, nothing is visible, agents are not started without end."""
    base = place.begin_base()
    dying, starts = interpreter_that_dies(tmp_path / "agent", "commit", times=99)
    with other_interpreter(spark, dying):
        expected = (
            r"(?s)commitlog\.errors\.OutcomeUnknown: the commit agent ended during commit, with"
            r" exit code 3\s+nothing left to do"
        )
        with pytest.raises(Exception, match=expected) as raised:
            place.job().run(spark)
        assert isinstance(error_of(raised.value), OutcomeUnknown)
        # One each for the three tries to commit, and one for the abort.
        assert starts.read_text() == "x" * 4
    assert place.by_listing() == base
    place.recover()
    place.job().run(spark)
    place.audit(spark, base + place.job().numbers, "base", "daily")


def interpreter_that_ends(directory: Path, traps: Path) -> str:
    """Create an interpreter whose first agent has `traps`, and which then starts no agent any more.

    Returns its path.

    Args:
        directory: a new directory.
        traps: the directory of the traps.
    """
    program = f"""
import os, sys
from support.agent import main

try:
    open({str(directory / "started")!r}, "x").close()
except FileExistsError:
    sys.exit("the environment is gone")
os.environ["COMMITLOG_TRAPS"] = {str(traps)!r}
main()
"""
    return agent_interpreter(directory, f"exec({program!r})")


@pytest.mark.parametrize("place", CONFIGURED, indirect=True)
@pytest.mark.parametrize("step", ["before the record", "after the record"])
def test_no_other_agent_can_be_started(
    spark: SparkSession, spark_logs: SparkLogs, place: Place, tmp_path: Path, step: str
) -> None:
    """The outcome is unknown then: the job may be committed. Another run with its id settles it."""
    place = place.with_short_leases()
    base = place.begin_base()
    seen = len(spark_logs.log.read_text())
    ending = interpreter_that_ends(tmp_path / "agent", traps_of(spark))
    expected = (
        r"(?s)commitlog\.errors\.OutcomeUnknown: the commit agent ended during commit, with exit code"
        r" 137.*No other one was started: the commit agent ended at its start, with the interpreter"
        r".* exit code 1\s+the environment is gone"
        r"\s+Run the job again with the same job id, which is committed once"
    )
    with other_interpreter(spark, ending), pytest.raises(Exception, match=expected) as raised:
        place.job(trap=STEPS[step]).run(spark)
    assert isinstance(error_of(raised.value), OutcomeUnknown)
    log = spark_logs.log.read_text()[seen:]
    assert "nothing was written" not in str(raised.value) + log
    assert "could not be aborted" in log
    if step == "after the record":
        with pytest.raises(Exception, match=r"commitlog\.errors\.JobAlreadyCommitted"):
            place.job().run(spark)
    else:
        place.job().run(spark)
    place.recover()
    place.audit(spark, base + place.job().numbers, "base", "daily")


@pytest.mark.parametrize("place", ["configured"], indirect=True)
def test_an_agent_that_is_killed_between_jobs_is_replaced(spark: SparkSession, place: Place) -> None:
    """The next job starts another one."""
    base = place.begin_base()
    place.job().run(spark)
    before = pids(spark)
    kill_agent(spark)
    other = place.job(first=100, job_id="other")
    other.run(spark)
    assert len(before) == len(pids(spark)) == 1 and before != pids(spark)
    place.audit(spark, base + place.job().numbers + other.numbers, "base", "daily", "other")


@pytest.mark.parametrize("place", ["configured"], indirect=True)
def test_heartbeats_go_on_when_the_agent_dies(spark: SparkSession, place: Place) -> None:
    """Another agent sends those of running jobs at once, so that no recovery takes them for dead."""
    base = place.begin_base()
    heartbeats = Path(place.url, "_commitlog", "alive")
    with Gate() as gate, heartbeat_every(spark, 0.2):
        job = place.job(trap=Trap(at="rows", what="hold", port=gate.port))
        with running(spark, job) as (done,):
            gate.wait(done)
            before = pids(spark)
            wait_for(lambda: list(heartbeats.glob("*")), "no heartbeat")
            kill_agent(spark)
            for file in heartbeats.glob("*"):
                file.unlink()
            wait_for(lambda: list(heartbeats.glob("*")), "no heartbeat of the other agent")
            assert len(pids(spark)) == 1 and pids(spark) != before
            gate.open()
            done.result()
    place.audit(spark, base + job.numbers, "base", "daily")
