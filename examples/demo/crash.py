"""Crash of a Spark driver at a chosen call of its commit.

A wrapper around a method of the driver's store counts its calls; the library itself has no hook for it.
SIGKILL goes to the driver's process group, which includes its JVM, and to the group of the committing
Python worker.
"""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

from attrs import frozen

from commitlog._util.concurrency import Executor
from commitlog.commit import ConditionalStore
from commitlog.outputs import Output
from commitlog.spark.datasource import CommitlogDataSource
from commitlog.spark.targets.output import OutputLocation, open_output

__all__ = ["Death", "MortalSource"]

# Spark's Python workers inherit only the environment of the driver.
_DEATH = "COMMITLOG_DEMO_DEATH"
_DRIVER = "COMMITLOG_DEMO_DRIVER"


@frozen
class Death:
    """The call of the store before which the driver dies.

    Attributes:
        method: method of `ConditionalStore` for one object, such as ``publish`` or ``put_if_absent``.
        path: text that the object's path must contain.
        nth: number of the matching call, from 1.
    """

    method: str
    path: str = ""
    nth: int = 1

    def arm(self) -> None:
        """Arm the crash for the driver that this process starts next."""
        if os.getpgrp() != os.getpid():
            # Do not kill the parent process.
            os.setpgid(0, 0)
        os.environ[_DEATH] = f"{self.method}:{self.nth}:{self.path}"
        os.environ[_DRIVER] = str(os.getpgrp())

    @classmethod
    def armed(cls) -> Death:
        """Return the crash that the driver armed; for use in processes that the driver started."""
        method, nth, path = os.environ[_DEATH].split(":", 2)
        return cls(method, path, int(nth))

    def attach(self, store: ConditionalStore) -> None:
        """Replace the method of `store` by one that kills the driver."""
        call = getattr(store, self.method)
        lock = threading.Lock()
        calls = 0

        def mortal(target: Any, *args: Any, **options: Any) -> Any:
            nonlocal calls
            if self.path in (target if isinstance(target, str) else target.path):
                with lock:
                    calls += 1
                    if calls == self.nth:
                        _die()
            return call(target, *args, **options)

        setattr(store, self.method, mortal)


class MortalSource(CommitlogDataSource):
    """The format ``commitlog`` under the name ``commitlog-mortal``, with the armed `Death`."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "commitlog-mortal"

    @staticmethod
    def open_output(location: OutputLocation, executor: Executor | None = None) -> Output:
        """Open the output with the crashing store, one request at a time to make it deterministic."""
        output = open_output(location)
        Death.armed().attach(output.store)
        return output


def _die() -> None:
    os.killpg(int(os.environ[_DRIVER]), signal.SIGKILL)
    os.killpg(os.getpgrp(), signal.SIGKILL)
