"""The worker processes of a stress run: starting, killing, stopping and outliving them.

Imports errors and the worker's task.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from attrs import evolve

from commitlog.testing.stress_worker import Task

__all__ = ["Fleet"]

_TAIL = 2000


class Fleet:
    """Worker processes, as a context manager: none outlives it. Not thread-safe.

    Args:
        tasks: what each worker is to do. One that is started anew goes on under another name, with
            another seed, and into another file, since it knows nothing of what it did before.
        directory: where histories and error output go.

    A worker is named by its place among the tasks.
    """

    def __init__(self, tasks: Sequence[Task], directory: Path) -> None:
        self._tasks = tasks
        self._directory = directory
        self._lives = [0] * len(tasks)
        self._processes: list[subprocess.Popen[bytes]] = []
        #: What went wrong with workers: the names and last words of those that failed.
        self.failures: list[str] = []

    def __enter__(self) -> Self:
        try:
            for worker in range(len(self._tasks)):
                self._processes.append(self._start(worker))
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
            process.wait()

    @property
    def histories(self) -> list[Path]:
        """The files that workers have begun."""
        return sorted(self._directory.glob("*.jsonl"))

    def kill(self, worker: int) -> None:
        """Kill a worker with SIGKILL, stopped or not, and start it anew."""
        process = self._processes[worker]
        if process.poll() is not None:
            return  # it failed; `join` tells
        process.kill()
        process.wait()
        self._lives[worker] += 1
        self._processes[worker] = self._start(worker)

    def halt(self, worker: int) -> int:
        """Stop a worker with SIGSTOP; return which of its lives it is in, for `resume`."""
        self._processes[worker].send_signal(signal.SIGSTOP)
        return self._lives[worker]

    def resume(self, worker: int, life: int) -> None:
        """Let a worker go on that was stopped in that life."""
        if self._lives[worker] == life:
            self._processes[worker].send_signal(signal.SIGCONT)

    def resume_all(self) -> None:
        """Let every worker go on."""
        for process in self._processes:
            process.send_signal(signal.SIGCONT)

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
                self.failures.append(f"worker {self._name(worker)} did not finish in time")
            else:
                done = max(done, time.monotonic())
                if status:
                    said = self._errors(worker).read_text(errors="replace")[-_TAIL:]
                    self.failures.append(
                        f"worker {self._name(worker)} ended with status {status}:\n{said}"
                    )
        return done

    def _start(self, worker: int) -> subprocess.Popen[bytes]:
        name, task = self._name(worker), self._tasks[worker]
        task = evolve(
            task,
            client=name,
            seed=f"{task.seed} {name}",
            history=str(self._directory / f"{name}.jsonl"),
        )
        with open(self._errors(worker), "wb") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "commitlog.testing.stress_worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )
        # Not as an argument, which everybody on the machine could read.
        assert process.stdin is not None
        with process.stdin:
            process.stdin.write(task.to_json().encode() + b"\n")
        return process

    def _name(self, worker: int) -> str:
        return f"{self._tasks[worker].client}.{self._lives[worker]}"

    def _errors(self, worker: int) -> Path:
        return self._directory / f"{self._name(worker)}.err"
