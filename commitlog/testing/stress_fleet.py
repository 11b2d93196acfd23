"""The worker processes of a stress run: starting, killing, stopping and outliving them.

Imports errors and the worker's task.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from attrs import asdict, evolve

from commitlog.testing.stress_worker import Hours, Task

__all__ = ["Fleet"]

_TAIL = 2000


class Fleet:
    """Worker processes, as a context manager: none outlives it. Not thread-safe.

    Args:
        tasks: what each of them is to do. The client of a task is what the worker's name begins with;
            one that is started anew goes by another name, with another seed, into another file, for it
            knows nothing of what it did before.
        directory: where histories and error output go.

    Entering returns when all of them are ready to `begin`. A worker is known by the number of its task.
    """

    def __init__(self, tasks: Sequence[Task], directory: Path) -> None:
        self._tasks = tasks
        self._directory = directory
        self._hours: Hours | None = None
        self._lives = [0] * len(tasks)
        self._processes: list[subprocess.Popen[bytes]] = []
        #: What went wrong with workers: the names and last words of those that failed.
        self.failures: list[str] = []

    def __enter__(self) -> Self:
        try:
            for worker in range(len(self._lives)):
                self._processes.append(self._start(worker))
            for process in self._processes:
                assert process.stdout is not None
                process.stdout.readline()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Kill all workers that are left. Idempotent."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.communicate()

    @property
    def histories(self) -> list[Path]:
        """The files that workers have begun."""
        return sorted(self._directory.glob("*.jsonl"))

    def begin(self, hours: Hours) -> None:
        """Let the workers begin."""
        self._hours = hours
        for process in self._processes:
            self._tell(process, asdict(hours))

    def signal(self, worker: int, number: signal.Signals) -> None:
        """Send a signal to a worker. One that is killed with SIGKILL is started anew."""
        process = self._processes[worker]
        process.send_signal(number)
        if number == signal.SIGKILL and process.wait() == -signal.SIGKILL:
            process.communicate()
            self._lives[worker] += 1
            self._processes[worker] = self._start(worker)

    def join(self, deadline: float) -> float:
        """Wait until all workers have done their tasks; return when, on `time.monotonic`.

        Args:
            deadline: moment by which they have to. Those that have not are killed, and are among the
                `failures`, as are those that ended without having done their task.
        """
        done = time.monotonic()
        for worker, process in enumerate(self._processes):
            try:
                status = process.wait(timeout=max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                self.failures.append(f"{self._name(worker)} did not finish in time")
            else:
                done = max(done, time.monotonic())
                if status:
                    said = self._errors(worker).read_text(errors="replace")[-_TAIL:]
                    self.failures.append(f"{self._name(worker)} ended with status {status}:\n{said}")
        return done

    def _start(self, worker: int) -> subprocess.Popen[bytes]:
        task, name = self._tasks[worker], self._name(worker)
        with open(self._errors(worker), "wb") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "commitlog.testing.stress_worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        history = str(self._directory / f"{name}.jsonl")
        task = evolve(task, client=name, seed=f"{task.seed} {name}", history=history)
        # Not as an argument, which everybody on the machine could read.
        self._tell(process, task.to_dict())
        if self._hours is not None:
            self._tell(process, asdict(self._hours))
        return process

    @staticmethod
    def _tell(process: subprocess.Popen[bytes], what: dict[str, Any]) -> None:
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # it has failed; `join` tells
            process.stdin.write(json.dumps(what).encode() + b"\n")
            process.stdin.flush()

    def _name(self, worker: int) -> str:
        return f"{self._tasks[worker].client}{worker}.{self._lives[worker]}"

    def _errors(self, worker: int) -> Path:
        return self._directory / f"{self._name(worker)}.err"
