"""The protocol of the commit agent: lines of JSON in, lines of JSON out."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO

import pytest
from attrs import frozen

import commitlog
from commitlog.errors import Conflict
from commitlog.spark.committer.agent import PROTOCOL, Handler, serve


@frozen
class Served:
    """The driver's ends of the pipes of an agent, and the thread that serves."""

    requests: BinaryIO
    answers: BinaryIO
    thread: threading.Thread

    def send(self, number: int, call: str, **fields: Any) -> None:
        """Send a request."""
        request = {"version": PROTOCOL, "id": number, "call": call, **fields}
        self.send_line(json.dumps(request).encode() + b"\n")

    def send_line(self, line: bytes) -> None:
        """Send any bytes."""
        self.requests.write(line)
        self.requests.flush()

    def answer(self) -> Any:
        """Return the next answer."""
        return json.loads(self.answers.readline())


@contextmanager
def served(**calls: Handler) -> Iterator[Served]:
    """Serve `calls` in a thread until the end of the context."""
    to_agent, from_agent = os.pipe(), os.pipe()
    with (
        open(to_agent[0], "rb") as requests,
        open(from_agent[1], "wb") as answers,
        open(to_agent[1], "wb") as driver_requests,
        open(from_agent[0], "rb") as driver_answers,
    ):
        thread = threading.Thread(target=serve, args=(requests, answers, calls))
        thread.start()
        try:
            yield Served(driver_requests, driver_answers, thread)
        finally:
            driver_requests.close()
            thread.join()


def echo(request: Mapping[str, Any]) -> dict[str, Any]:
    """Answer with the text of the request."""
    return {"text": request["text"]}


def test_an_answer_has_the_id_of_its_request() -> None:
    """Requests and answers are one line each, with any text in them."""
    with served(echo=echo) as agent:
        for number, text in (7, "first"), (8, "ü\n\u2028 😀"):
            agent.send(number, "echo", text=text)
            assert agent.answer() == {"id": number, "answer": {"text": text}}


def test_answers_come_as_they_are_ready() -> None:
    """A slow request does not hold up the next one."""
    release = threading.Event()

    def slow(request: Mapping[str, Any]) -> dict[str, Any]:
        release.wait()
        return {}

    with served(echo=echo, slow=slow) as agent:
        agent.send(1, "slow")
        agent.send(2, "echo", text="quick")
        assert agent.answer()["id"] == 2
        release.set()
        assert agent.answer() == {"id": 1, "answer": {}}


def test_an_error_is_answered_with_its_name() -> None:
    """Errors of this library and of Python are named; the agent serves on."""

    def fail(request: Mapping[str, Any]) -> dict[str, Any]:
        if request["how"] == "unserializable":
            return {"answer": object()}
        if request["how"] == "exit":
            sys.exit(3)
        raise Conflict("another job") if request["how"] == "conflict" else ValueError("no")

    with served(fail=fail, echo=echo) as agent:
        agent.send(1, "fail", how="conflict")
        assert agent.answer() == {"id": 1, "error": "commitlog.errors.Conflict: another job"}
        agent.send(2, "fail", how="other")
        assert agent.answer() == {"id": 2, "error": "builtins.ValueError: no"}
        agent.send(3, "fail", how="unserializable")
        assert agent.answer()["error"].startswith("builtins.TypeError: ")
        agent.send(4, "fail", how="exit")
        assert agent.answer() == {"id": 4, "error": "builtins.SystemExit: 3"}
        agent.send(5, "echo", text="on")
        assert agent.answer()["answer"] == {"text": "on"}


def test_an_unknown_call_is_refused() -> None:
    """The error names the known calls."""
    with served(echo=echo) as agent:
        agent.send(1, "sing")
        assert agent.answer()["error"] == (
            "commitlog.errors.NotSupported: unknown call 'sing' of the protocol; known: echo"
        )


@pytest.mark.parametrize("version", [PROTOCOL + 1, None])
def test_another_version_of_the_protocol_is_refused(version: int | None) -> None:
    """The error names both versions and this installation; the call is not handled."""
    with served(echo=echo) as agent:
        agent.send(1, "echo", text="x", version=version)
        error = agent.answer()["error"]
    assert error.startswith(
        f"commitlog.errors.NotSupported: the committer's jar speaks version {version}"
    )
    assert f"commitlog {commitlog.__version__} in {sys.executable} speaks {PROTOCOL}" in error


@pytest.mark.parametrize(
    "line", [b"{\n", b"[1]\n", b'{"version": 1, "call": "echo"}\n', b"\xff\n", b"\n"]
)
def test_a_line_that_is_no_request_ends_the_agent(line: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """It cannot be answered, and the driver must not wait for an answer forever."""
    with served(echo=echo) as agent:
        agent.send_line(line)
        agent.thread.join(timeout=30)
        assert not agent.thread.is_alive()
    assert "a line of its standard input is not a request" in caplog.text


def test_the_end_of_the_requests_ends_the_agent() -> None:
    """It does not wait for requests under way, nor begin others."""
    release, entered = threading.Event(), threading.Event()

    def slow(request: Mapping[str, Any]) -> dict[str, Any]:
        entered.set()
        release.wait()
        return {}

    with served(slow=slow) as agent:
        agent.send(1, "slow")
        entered.wait()
        agent.requests.close()
        agent.thread.join(timeout=30)
        assert not agent.thread.is_alive()
        release.set()
        # Read the late answer: its thread must not write while the pipe is being closed.
        assert agent.answer() == {"id": 1, "answer": {}}


@contextmanager
def process(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run the real agent, or Python with other arguments."""
    run = [sys.executable, *(arguments or ("-m", "commitlog.spark.committer.agent"))]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(run, **pipes) as agent:  # type: ignore[call-overload]
        try:
            yield agent
        finally:
            agent.kill()


def ask(agent: subprocess.Popen[bytes], **fields: Any) -> Any:
    """Send a request to the real agent and return its answer."""
    assert agent.stdin is not None and agent.stdout is not None
    agent.stdin.write(json.dumps({"version": PROTOCOL, "id": 1, **fields}).encode() + b"\n")
    agent.stdin.flush()
    return json.loads(agent.stdout.readline())


#: Runs the agent with a call that starts a program, which reads its standard input.
WITH_CHILD = """
import subprocess
from commitlog.spark.committer import agent
from commitlog.spark.committer.jobs import JobCommitter
JobCommitter.begin = lambda self, request: {"read": subprocess.check_output("cat").decode()}
agent.main()
"""


def test_a_program_that_the_agent_starts_cannot_read_requests() -> None:
    """Its standard input is empty. botocore starts a credential_process, for example."""
    with process("-c", WITH_CHILD) as agent:
        assert ask(agent, call="begin") == {"id": 1, "answer": {"read": ""}}
        assert "answer" in ask(agent, call="hello")


def test_the_process_ends_with_its_input_and_by_no_signal_for_its_group() -> None:
    """Ctrl-C and a supervisor's SIGTERM are for the driver."""
    with process() as agent:
        hello = ask(agent, call="hello")
        assert hello["answer"] == {
            "version": PROTOCOL,
            "commitlog": commitlog.__version__,
            "pid": agent.pid,
        }
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            agent.send_signal(number)
        assert ask(agent, call="hello") == hello
        assert agent.stdin is not None
        agent.stdin.close()
        assert agent.wait(timeout=30) == 0


def test_the_process_imports_no_heavy_package() -> None:
    """It starts with Spark, and must not take its memory or its time."""
    program = (
        "import sys; import commitlog.spark.committer.agent, commitlog.spark.committer.jobs;"
        "print([n for n in ('pandas', 'boto3', 'botocore', 'grpc', 'pyspark.pandas', 'pyarrow.dataset')"
        " if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
