"""The commit agent seen from its JVM: its start, its lines, interrupts, and its end."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import psutil
import pytest

from support.agent_driver import AgentDriver, agent_program

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ('{"id": 2, "answer": {"secretAccessKey": "hunter2"', "that is not JSON"),
        ('{"answer": {"secretAccessKey": "hunter2"}}', "without an id"),
    ],
)
def test_a_line_that_is_no_answer_is_not_shown(tmp_path: Path, line: str, kind: str) -> None:
    """Its length and its kind are, and it ends the agent at once: an answer may have secrets."""
    program = f"""
import os
answers = os.dup(1)
def begin(*_):
    os.write(answers, {line.encode()!r} + b"\\n")
    return {{}}
jobs.JobCommitter.begin = begin
agent.main()
"""
    body = "Agent.startInBackground(conf); ask(begin(path));"
    with AgentDriver(tmp_path, body, python=agent_program(tmp_path / "python", program)) as driver:
        (outcome,) = driver.end()
        log = driver.stderr()
    shown = f"it wrote a line of {len(line)} characters {kind} in place of an answer"
    assert outcome.startswith("begin: commitlog.errors.OutcomeUnknown: ") and shown in outcome
    assert log.count(f"WARN Agent: the commit agent is ended: {shown}") == 3
    assert "hunter2" not in outcome + log and "secretAccessKey" not in outcome + log


def blocked(directory: Path) -> tuple[str, Path]:
    """Create an interpreter that blocks until its standard input ends.

    Returns its path, and a fifo from which the test reads the process id of each one.
    """
    fifo = directory / "pids"
    os.mkfifo(fifo)
    path = directory / "python"
    path.write_text(f'#!/bin/sh\necho $$ > "{fifo}"\nexec cat > "{directory}/input"\n')
    path.chmod(0o755)
    return str(path), fifo


def test_a_start_is_shared_and_ends_when_spark_stops(tmp_path: Path) -> None:
    """Jobs wait for one start together, can be interrupted, and fail when Spark stops, at once."""
    body = """
        Agent.startInBackground(conf);
        Thread[] jobs = new Thread[3];
        for (int i = 0; i < jobs.length; i++) {
            jobs[i] = asking(begin(path));
            untilItWaits(jobs[i]);
        }
        print("waiting");
        INPUT.readLine();
        jobs[0].interrupt();
        jobs[0].join();
        Agent.stop();
        for (int i = 0; i < jobs.length; i++) {
            jobs[i].join();
        }
        print("over");
        INPUT.readLine();
    """
    python, fifo = blocked(tmp_path)
    with AgentDriver(tmp_path, body, python=python) as driver:
        process = psutil.Process(int(fifo.read_text()))
        assert driver.line() == "waiting"
        driver.go_on()
        unavailable = "begin: commitlog.errors.Unavailable:"
        interrupted = "interrupted while the commit agent started. Nothing was written"
        assert driver.line() == f"{unavailable} {interrupted}"
        assert driver.line() == "interrupted"
        stopped = f"{unavailable} Spark was stopped while the commit agent started. Nothing was written"
        assert [driver.line() for _ in range(3)] == [stopped, stopped, "over"]
        psutil.wait_procs([process], timeout=20)
        assert not process.is_running() and driver.children() == []
        driver.go_on()
        assert driver.end() == []


def test_a_failed_start_fails_all_that_wait_for_it(tmp_path: Path) -> None:
    """The next job starts another agent, which commits."""
    body = """
        Thread[] jobs = new Thread[2];
        for (int i = 0; i < jobs.length; i++) {
            jobs[i] = asking(begin(path));
            untilItWaits(jobs[i]);
        }
        print("waiting");
        for (int i = 0; i < jobs.length; i++) {
            jobs[i].join();
        }
        conf.set("spark.commitlog.python", INPUT.readLine());
        ask(ending("abort", ask(begin(path))));
    """
    body = "Agent.startInBackground(conf);" + body
    python, fifo = blocked(tmp_path)
    with AgentDriver(tmp_path, body, python=python) as driver:
        process = psutil.Process(int(fifo.read_text()))
        assert driver.line() == "waiting"
        process.kill()
        failed = "begin: commitlog.errors.ConfigurationError: the commit agent ended at its start"
        for _ in range(2):
            assert driver.line().startswith(failed)
        driver.go_on(sys.executable)
        assert driver.end() == ["begin: done", "abort: done"]


@pytest.mark.parametrize("call", ["commit", "abort"])
def test_no_agent_can_be_started_for_the_end_of_a_job(tmp_path: Path, call: str) -> None:
    """The request was not sent, and the error tells what that means for the job."""
    body = """
        Agent.startInBackground(conf);
        JsonNode job = ask(begin(path));
        conf.set("spark.commitlog.python", "/nowhere/python");
        INPUT.readLine();
        ask(ending(CALL, job));
    """.replace("CALL", f'"{call}"')
    with AgentDriver(tmp_path, body) as driver:
        assert driver.line() == "begin: done"
        gone = driver.children()
        for process in gone:
            process.kill()
        # It tries to start another one at once, for the heartbeats.
        driver.wait_for("jobs that write will fail")
        driver.go_on()
        (outcome,) = driver.end()
    problem = "the commit agent could not be started with the interpreter /nowhere/python ("
    assert outcome.startswith(f"{call}: commitlog.errors.ConfigurationError: {problem}")
    rest = {
        "commit": "The job is not committed. Run it again",
        "abort": "The job is left for recover, which aborts it",
    }
    assert outcome.endswith(f"). {rest[call]}")
