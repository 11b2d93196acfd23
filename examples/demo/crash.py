"""Crash of a Spark driver at a chosen request of its commit.

A wrapper around the driver's store counts the requests; the library itself has no hook for it. SIGKILL
goes to the driver's process group, which includes its JVM, and to the group of the committing Python
worker.
"""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import Executor
from typing import Any, cast

from attrs import frozen

from commitlog.outputs import Output
from commitlog.spark.datasource import CommitlogDataSource, open_output
from commitlog.spark.options import ReadOptions
from commitlog.stores import ObjectStore

__all__ = ["Death", "MortalSource"]

# Spark's Python workers inherit only the environment of the driver.
_DEATH = "COMMITLOG_DEMO_DEATH"
_DRIVER = "COMMITLOG_DEMO_DRIVER"


@frozen
class Death:
    """The request to the store before which the driver dies.

    Attributes:
        method: method of `ObjectStore`, such as ``publish`` or ``put``.
        path: text that the object's path must contain.
        nth: number of the matching request, from 1.
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


class _MortalStore:
    """An `ObjectStore` that passes requests to another one, until it kills the driver."""

    def __init__(self, store: ObjectStore, death: Death) -> None:
        self._store = store
        self._death = death
        self._calls = 0
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._store, name)
        if name != self._death.method:
            return attribute

        def mortal(target: Any, *args: Any, **options: Any) -> Any:
            if self._death.path in (target if isinstance(target, str) else target.path):
                with self._lock:
                    self._calls += 1
                    if self._calls == self._death.nth:
                        _die()
            return attribute(target, *args, **options)

        return mortal


class MortalSource(CommitlogDataSource):
    """The format ``commitlog`` under the name ``commitlog-mortal``, with the armed `Death`."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "commitlog-mortal"

    @staticmethod
    def open_output(options: ReadOptions, executor: Executor | None = None) -> Output:
        """Open the output with the crashing store, one request at a time to make it deterministic."""
        output = open_output(options)
        output.store.store = cast(ObjectStore, _MortalStore(output.store.store, Death.armed()))
        return output


def _die() -> None:
    os.killpg(int(os.environ[_DRIVER]), signal.SIGKILL)
    os.killpg(os.getpgrp(), signal.SIGKILL)
