"""The commit agent seen from its JVM: its start, its lines, interrupts, and its end."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from commitlog import connect
from commitlog.outputs import Output
from commitlog.spark.committer.agent import PROTOCOL
from support.agent_driver import AgentDriver, agent_program
from support.selection import in_campaigns
from support.spark_gates import Gate

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.mark.all
@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ('{"id": 2, "answer": {"secretAccessKey": "hunter2"', "that is not JSON"),
        in_campaigns('{"answer": {"secretAccessKey": "hunter2"}}', "without an id"),
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


@pytest.mark.all
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


@pytest.mark.all
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


@pytest.mark.campaign
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


def held(path: Path, method: str, gate: Gate, *, after: bool = False) -> str:
    """Create an interpreter whose agent waits at a gate before a method, or after it.

    Its heartbeats are frequent. Returns its path.
    """
    program = f"""
from functools import partial
from commitlog.outputs import Output
from commitlog.spark.committer.jobs import JobCommitter
from support.spark_gates import hold
usual = {method}
def held(*args, **options):
    answer = usual(*args, **options) if {after} else None
    hold({gate.port})
    return answer or usual(*args, **options)
{method} = held
jobs.JobCommitter = partial(jobs.JobCommitter, heartbeat=0.05)
agent.main()
"""
    return agent_program(path, program)


def wait_for(condition: Callable[[], object], otherwise: Callable[[], str]) -> None:
    """Return once `condition` is true."""
    deadline = time.monotonic() + 100
    while not condition():
        assert time.monotonic() < deadline, otherwise()
        time.sleep(0.05)


def records(path: Path) -> list[str]:
    """Return the types of the records of an output."""
    output = Output(connect(str(path)))
    with output.store:
        return [type(record).__name__ for record in output.records()]


@pytest.mark.all
@pytest.mark.parametrize("stopped", [in_campaigns(False), True])
def test_a_job_is_aborted_if_its_begin_is_interrupted(tmp_path: Path, stopped: bool) -> None:
    """Its heartbeats end: Spark does not know of the job. An agent that is stopped ends afterwards."""
    body = """
        Agent.startInBackground(conf);
        Thread job = asking(begin(path));
        boolean stopped = INPUT.readLine().equals("True");
        job.interrupt();
        job.join();
        if (stopped) {
            Agent.stop();
        }
        print("left");
        INPUT.readLine();
    """
    alive = tmp_path / "out/_commitlog/alive"
    with Gate() as gate:
        python = held(tmp_path / "python", "JobCommitter.begin", gate, after=True)
        with AgentDriver(tmp_path, body, python=python) as driver:
            gate.wait()
            driver.go_on(str(stopped))
            error = "commitlog.errors.JobAborted: interrupted while the job began. Nothing was written"
            assert [driver.line() for _ in range(3)] == [f"begin: {error}", "interrupted", "left"]
            wait_for(lambda: list(alive.glob("*")), driver.stderr)
            gate.open()
            wait_for(lambda: records(tmp_path / "out") == ["AbortRecord"], driver.stderr)
            wait_for(lambda: not list(alive.glob("*")), driver.stderr)
            if stopped:
                wait_for(lambda: not driver.children(), driver.stderr)
            assert len(driver.children()) == (0 if stopped else 1)
            driver.go_on()
            assert driver.end() == []
            assert "aborted" not in driver.stderr()


@pytest.mark.all
@pytest.mark.parametrize("interrupted", [in_campaigns("before the abort"), "during the commit"])
def test_an_interrupted_thread_aborts_its_job(tmp_path: Path, interrupted: str) -> None:
    """It waits for the answer, the agent does not end before, and the thread stays interrupted.

    A commit that was interrupted comes first: its outcome stays.
    """
    body = """
        Agent.startInBackground(conf);
        final boolean commit = INPUT.readLine().equals("commit");
        final JsonNode job = ask(begin(path));
        final CommitlogCommitProtocol protocol = new CommitlogCommitProtocol("job", path, false);
        java.lang.reflect.Field state = CommitlogCommitProtocol.class.getDeclaredField("state");
        state.setAccessible(true);
        state.set(protocol, job.get("state"));
        java.lang.reflect.Field staged = CommitlogCommitProtocol.class.getDeclaredField("staged");
        staged.setAccessible(true);
        staged.set(protocol, new ArrayList());
        Thread thread = new Thread(new Runnable() {
            public void run() {
                if (commit) {
                    ask(ending("commit", job));
                } else {
                    Thread.currentThread().interrupt();
                }
                protocol.abortJob(null);
                print("aborted, " + Thread.currentThread().isInterrupted());
            }
        });
        thread.start();
        INPUT.readLine();
        if (commit) {
            thread.interrupt();
        }
        while (thread.getState() != Thread.State.TIMED_WAITING) {
            Thread.sleep(5);
        }
        Agent.stop();
        print("stopped");
        thread.join();
        INPUT.readLine();
    """
    call = "commit" if interrupted == "during the commit" else "abort"
    with Gate() as gate:
        method = {"commit": "Output.commit", "abort": "JobCommitter.abort"}[call]
        python = held(tmp_path / "python", method, gate)
        with AgentDriver(tmp_path, body, python=python) as driver:
            driver.go_on(call)
            assert driver.line() == "begin: done"
            gate.wait()
            driver.go_on()
            if call == "commit":
                unknown = "commitlog.errors.OutcomeUnknown: interrupted while the commit agent worked"
                again = "Run the job again with the same job id, which is committed once"
                assert driver.line() == f"commit: {unknown} {again}"
            assert driver.line() == "stopped"
            assert len(driver.children()) == 1
            gate.open()
            assert driver.line() == "aborted, true"
            wait_for(lambda: not driver.children(), driver.stderr)
            driver.go_on()
            assert driver.end() == []
            assert "could not be aborted" not in driver.stderr()
    expected = {"commit": "CommitRecord", "abort": "AbortRecord"}
    assert records(tmp_path / "out") == [expected[call]]


@pytest.mark.all
def test_an_interrupted_thread_does_not_wait_for_ever(tmp_path: Path) -> None:
    """Its time is limited, also if it is interrupted again, and it stays interrupted."""
    body = """
        Patience patience = Patience.untilInterrupted(1);
        Thread.currentThread().interrupt();
        long begin = System.nanoTime();
        synchronized (path) {
            try {
                patience.await(path);
                Thread.currentThread().interrupt();
                for (;;) {
                    patience.await(path);
                }
            } catch (java.util.concurrent.TimeoutException e) {
                print("over");
            }
        }
        print("" + (System.nanoTime() - begin > 900000000L) + Thread.currentThread().isInterrupted());
        patience.restore();
        print("" + Thread.currentThread().isInterrupted());
    """
    with AgentDriver(tmp_path, body) as driver:
        assert driver.end() == ["over", "truefalse", "true"]


#: The settings and variables that name the interpreter, from the first that counts.
SETTINGS = ("spark.commitlog.python", "spark.pyspark.driver.python", "spark.pyspark.python")
VARIABLES = ("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON")


@pytest.mark.parametrize(
    ("driver_python", "python", "expected"),
    [
        in_campaigns("/a/python", "/b/python", "/a/python"),
        ("/opt/bin/jupyter-lab", "", "python3"),
        in_campaigns("/opt/jupyter/bin/python", None, "/opt/jupyter/bin/python"),
        in_campaigns("jupyter", "/b/python", "/b/python"),
        in_campaigns("/opt/bin/ipython3", None, "python3"),
        in_campaigns("", "/b/python", "/b/python"),
        in_campaigns(None, None, "python3"),
    ],
)
def test_the_first_interpreter_that_is_named_counts(
    tmp_path: Path, driver_python: str | None, python: str | None, expected: str
) -> None:
    """Settings come before variables. A notebook is no interpreter."""
    body = "".join(f'print(Agent.interpreter(conf)); conf.remove("{name}");' for name in SETTINGS)
    body = "".join(f'conf.set("{name}", "/{name}");' for name in SETTINGS) + body
    body += "print(Agent.interpreter(conf));"
    variables = zip(VARIABLES, (driver_python, python), strict=True)
    with AgentDriver(tmp_path, body, variables=variables) as driver:
        assert driver.end() == [*(f"/{name}" for name in SETTINGS), expected]


@pytest.mark.all
def test_a_jar_with_another_version_of_the_protocol_is_refused(tmp_path: Path) -> None:
    """The error tells how to build the right one."""
    version = f"PROTOCOL = {PROTOCOL}"

    def edit(source: bytes) -> bytes:
        return source.replace(version.encode(), b"PROTOCOL = 99")

    body = "Agent.startInBackground(conf); ask(begin(path));"
    with AgentDriver(tmp_path, body, edit=edit) as driver:
        (outcome,) = driver.end()
    refused = "commitlog.errors.NotSupported: the committer's jar speaks version 99 of the protocol"
    assert outcome.startswith(f"begin: {refused}")
    assert f" in {sys.executable} speaks {PROTOCOL}: build the jar" in outcome
    assert "(commitlog spark jar)" in outcome and "Nothing was written" in outcome
    assert not (tmp_path / "out").exists()
