"""Gates where jobs of any process wait until a test opens the gate or kills them."""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import pyspark.cloudpickle

# Workers cannot import test modules.
pyspark.cloudpickle.register_pickle_by_value(sys.modules[__name__])

#: Seconds to wait for a job before the test fails.
PATIENCE = 250.0


class Gate:
    """A place where a job of any process waits until the gate is opened."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._held: list[socket.socket] = []
        self._pid = 0

    @property
    def port(self) -> int:
        """The port for a `Trap`."""
        return int(self._listener.getsockname()[1])

    def fileno(self) -> int:
        """Return the file descriptor that is readable when a job arrives."""
        return self._listener.fileno()

    @property
    def pid(self) -> int:
        """The id of the process that came last."""
        return self._pid

    def wait(self, job: Future[Any] | None = None) -> None:
        """Return once a job waits here; fail if `job` ends before."""
        for _ in range(int(PATIENCE * 10)):
            # It may arrive just before the job ends.
            over = job is not None and job.done()
            if select.select([self._listener], [], [], 0.1)[0]:
                self._held.append(self._listener.accept()[0])
                self._pid = int(self._held[-1].recv(20))
                return
            if job is not None and over:
                raise AssertionError(f"the job did not get there: {job.exception()}")
        raise AssertionError(f"nothing got there within {PATIENCE:.0f} s")

    def open(self) -> None:
        """Open the gate."""
        self._held[-1].sendall(b"go")

    def kill(self) -> None:
        """Kill the process that waits here, unless it is dead."""
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)

    def __enter__(self) -> Gate:
        return self

    def __exit__(self, *_: object) -> None:
        # Jobs that still wait fail.
        for each in (self._listener, *self._held):
            each.close()


def hold(port: int) -> None:
    """Wait at a gate; raise if it is not opened."""
    stay(arrive(port))


def arrive(port: int) -> socket.socket:
    """Connect to a gate, whose `wait` returns once this process, or a child of it, calls `stay`."""
    return socket.create_connection(("127.0.0.1", port))


def stay(held: socket.socket) -> None:
    """Wait at the gate; raise if it is not opened."""
    with held:
        held.sendall(str(os.getpid()).encode())
        if held.recv(2) != b"go":
            raise RuntimeError("nobody let this go on")
