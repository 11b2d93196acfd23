"""The worker processes of a stress run: start, signal, join and end them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from attrs import asdict, evolve

from commitlog.testing.processes import ProcessOwner
from commitlog.testing.stress.worker import Schedule, Task

__all__ = ["Fleet"]

_TAIL = 2000


class Fleet(ProcessOwner):
    """A context manager of worker processes: no process outlives it. Not thread-safe.

    Args:
        tasks: one task per worker. The client of a task is the first part of the worker's name. A
            restarted worker remembers nothing of its predecessor, so it gets another name, another seed
            and another history file.
        directory: the directory of the histories and the error output.

    Entering returns when all workers are ready to `begin`. The number of its task identifies a worker.
    """

    def __init__(self, tasks: Sequence[Task], directory: Path) -> None:
        self._tasks = tasks
        self._directory = directory
        self._schedule: Schedule | None = None
        self._lives = [0] * len(tasks)
        self._processes: list[subprocess.Popen[bytes]] = []
        #: The names of workers that failed, with the end of their error output.
        self.failures: list[str] = []

    def _start(self) -> None:
        for worker in range(len(self._lives)):
            self._processes.append(self._start_worker(worker))
        for process in self._processes:
            assert process.stdout is not None
            process.stdout.readline()

    def stop(self) -> None:
        """Kill all workers that still run. Idempotent."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.communicate()

    @property
    def histories(self) -> list[Path]:
        """The history files that workers have created."""
        return sorted(self._directory.glob("*.jsonl"))

    def begin(self, schedule: Schedule) -> None:
        """Let the workers begin."""
        self._schedule = schedule
        for process in self._processes:
            self._send(process, asdict(schedule))

    def signal(self, worker: int, number: signal.Signals) -> None:
        """Send a signal to a worker. Restart it if the signal is SIGKILL."""
        process = self._processes[worker]
        process.send_signal(number)
        if number == signal.SIGKILL and process.wait() == -signal.SIGKILL:
            process.communicate()
            self._lives[worker] += 1
            self._processes[worker] = self._start_worker(worker)

    def join(self, deadline: float) -> float:
        """Wait until all workers have finished; return the `time.monotonic` time of the last one.

        Args:
            deadline: the time by which they must finish. Workers that do not are killed and listed in
                `failures`. Workers that ended with an error are listed there too.
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
                    output = self._errors(worker).read_text(errors="replace")[-_TAIL:]
                    self.failures.append(f"{self._name(worker)} ended with status {status}:\n{output}")
        return done

    def _start_worker(self, worker: int) -> subprocess.Popen[bytes]:
        task, name = self._tasks[worker], self._name(worker)
        with open(self._errors(worker), "wb") as errors:
            process = subprocess.Popen(
                [sys.executable, "-c", "from commitlog.testing.stress.worker import main; main()"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        history = str(self._directory / f"{name}.jsonl")
        task = evolve(task, client=name, seed=f"{task.seed} {name}", history=history)
        # Not as an argument: every user of the machine can read arguments.
        self._send(process, task.to_dict())
        if self._schedule is not None:
            self._send(process, asdict(self._schedule))
        return process

    @staticmethod
    def _send(process: subprocess.Popen[bytes], message: dict[str, Any]) -> None:
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # the worker has failed; `join` reports it
            process.stdin.write(json.dumps(message).encode() + b"\n")
            process.stdin.flush()

    def _name(self, worker: int) -> str:
        return f"{self._tasks[worker].client}{worker}.{self._lives[worker]}"

    def _errors(self, worker: int) -> Path:
        return self._directory / f"{self._name(worker)}.err"
