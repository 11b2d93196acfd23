"""The commit agent: the process that commits the jobs of one Spark driver.

The Java half starts it, once per driver, and sends requests to its standard input. Each request and each
answer is one line of JSON::

    {"version": 1, "id": 1, "call": "hello", "spark": "4.3.0"}
    {"id": 1, "answer": {"version": 1, "commitlog": "0.9.0"}}
    {"version": 1, "id": 2, "call": "begin", "path": "/data/out", …}
    {"id": 2, "error": "commitlog.errors.JobAlreadyCommitted: job 'daily' is part of …"}

Answers come in any order. The calls are those of `commitlog.spark.committer.jobs.JobCommitter`, and,
with the prefix ``ingest.``, those of `commitlog.spark.ingest.scans.ScanPlanner` for streaming sources.
Secrets travel through this pipe only, never in arguments or in the environment.

The agent ends when its standard input does: when the driver closes it, or is killed.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, BinaryIO

import commitlog
from commitlog._util.fork import WorkLock
from commitlog.errors import NotSupported

__all__ = ["PROTOCOL", "main", "serve"]

#: Version of the requests and answers.
PROTOCOL = 1

#: The calls of streaming sources, without their prefix.
_SCAN_CALLS = ("check", "latest_offset", "plan", "files", "commit", "stop")

#: Maximum number of requests that are handled at the same time. Others wait.
_REQUESTS = 64

_log = logging.getLogger(__name__)

#: Handles the fields of a request, and returns those of the answer.
Handler = Callable[[Mapping[str, Any]], Mapping[str, Any]]


def serve(requests: BinaryIO, answers: BinaryIO, calls: Mapping[str, Handler]) -> None:
    """Handle `requests` until their end, many at a time, and write each answer as one line.

    Returns at the end of the requests, even if some of them are not answered: the driver is gone then,
    and the log settles their outcome. It also returns at a line that is no request.

    Args:
        requests: lines of JSON.
        answers: takes the lines of the answers.
        calls: the handlers by the name of their call.
    """
    writing = threading.Lock()

    def handle(number: int, request: Mapping[str, Any]) -> None:
        try:
            text = json.dumps({"id": number, "answer": _handler(request, calls)(request)})
        except BaseException as error:  # the driver waits for an answer
            kind = type(error)
            text = json.dumps({"id": number, "error": f"{kind.__module__}.{kind.__qualname__}: {error}"})
            _log.debug("request %s failed", request.get("call"), exc_info=True)
        with writing:
            answers.write(text.encode() + b"\n")
            answers.flush()

    executor = ThreadPoolExecutor(_REQUESTS, "commitlog-agent")
    for line in requests:
        try:
            request = json.loads(line)
            number = int(request["id"])
        except (ValueError, TypeError, KeyError):
            # No answer can be given: it has no id.
            _log.error("the commit agent ends: a line of its standard input is not a request")
            break
        executor.submit(handle, number, request)
    executor.shutdown(wait=False, cancel_futures=True)


def _handler(request: Mapping[str, Any], calls: Mapping[str, Handler]) -> Handler:
    """Return the handler of a request; raise `NotSupported` if this version has none."""
    version, call = request.get("version"), str(request.get("call"))
    if version != PROTOCOL:
        raise NotSupported(
            f"the committer's jar speaks version {version} of the protocol, and commitlog"
            f" {commitlog.__version__} in {sys.executable} speaks {PROTOCOL}: build the jar with that"
            " version of commitlog (commitlog spark jar)"
        )
    if call not in calls:
        raise NotSupported(f"unknown call {call!r} of the protocol; known: {', '.join(calls)}")
    return calls[call]


def main() -> None:
    """Serve the driver that started this process, and end with it."""
    # Terminals and supervisors send these signals to whole process groups. The driver may still have to
    # abort its jobs; this process ends with it.
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    # Nothing but answers goes to the standard output. Only this process reads the standard input;
    # programs that it starts, such as botocore's credential_process, read nothing.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    requests = os.fdopen(os.dup(0), "rb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
    # The imports take most of the start.
    from commitlog.spark.committer.jobs import JobCommitter

    jobs = JobCommitter()
    scans = _Scans()
    calls: dict[str, Handler] = {
        "hello": _hello,
        "begin": jobs.begin,
        "resume": jobs.resume,
        "commit": jobs.commit,
        "abort": jobs.abort,
        **{f"ingest.{call}": partial(scans, call) for call in _SCAN_CALLS},
    }
    serve(requests, answers, calls)
    # A job under way has lost its driver. It ends here like that driver, and recover settles it.
    os._exit(0)


class _Scans:
    """The calls of streaming sources. Most drivers have none: the module is imported at the first."""

    def __init__(self) -> None:
        self._planner: Any = None
        self._lock = WorkLock()

    def __call__(self, call: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        with self._lock:
            if self._planner is None:
                from commitlog.spark.ingest.scans import ScanPlanner

                self._planner = ScanPlanner()
        found: Mapping[str, Any] = getattr(self._planner, call)(request)
        return found


def _hello(request: Mapping[str, Any]) -> dict[str, Any]:
    return {"version": PROTOCOL, "commitlog": commitlog.__version__, "pid": os.getpid()}


if __name__ == "__main__":
    main()
