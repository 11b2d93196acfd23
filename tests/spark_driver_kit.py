"""A Spark driver that is a process of its own, to be raced and killed.

As a program, this module is that driver: it runs the jobs that it reads from stdin, side by side, and
says what came of each.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path

from spark_kit import PROTOCOL, Job, running

from commitlog.demo.quiet import quiet_session
from commitlog.spark import attach, committer_jar


class Driver:
    """A driver that is a process of its own, with a JVM of its own.

    Args:
        scratch: a directory for its files.
        jobs: what it is to do, all at once. When it has done them, it waits for its end.
    """

    def __init__(self, scratch: Path, jobs: Sequence[Job]) -> None:
        self._told: dict[int, str | None] = {}
        self._log = (scratch / "driver.log").open("ab")
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**os.environ, "TMPDIR": str(scratch)},
            # A group of its own, with its JVM, to be killed with.
            start_new_session=True,
        )
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([job.to_json() for job in jobs]) + "\n")
        self._process.stdin.flush()

    def error(self, number: int) -> str | None:
        """Wait until the job with this number is over; return its error, if there was one."""
        assert self._process.stdout is not None
        while number not in self._told:
            done, error = json.loads(self._process.stdout.readline())
            self._told[done] = error
        return self._told[number]

    def kill(self) -> None:
        """Kill it, and its JVM."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._log.close()


def _end_with_parent() -> None:
    sys.stdin.read()
    os.killpg(0, signal.SIGKILL)


def main() -> None:
    """Be a driver."""
    jobs = [Job.from_json(text) for text in json.loads(sys.stdin.readline())]
    threading.Thread(target=_end_with_parent, daemon=True).start()
    conf = {"spark.jars": str(committer_jar()), PROTOCOL[0]: PROTOCOL[1]}
    spark = quiet_session(master="local[6]", conf=conf)
    attach(spark)

    def tell(number: int, done: Future[None]) -> None:
        error = done.exception()
        sys.stdout.write(json.dumps([number, None if error is None else str(error)]) + "\n")
        sys.stdout.flush()

    with running(spark, *jobs) as under_way:
        for number, done in enumerate(under_way):
            done.add_done_callback(partial(tell, number))
    threading.Event().wait()


if __name__ == "__main__":
    main()
