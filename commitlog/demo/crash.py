"""Killing a Spark driver at a chosen request of its commit, as a crash would.

The driver's store is wrapped from outside; nothing that ships knows of it. SIGKILL goes to the driver's
process group, in which its JVM is, and to the group of the Python worker that is committing.
"""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import Executor
from typing import Any, cast

from attrs import frozen

from commitlog.outputs import Output
from commitlog.spark.options import ReadOptions
from commitlog.spark.source import CommitlogDataSource, open_output
from commitlog.stores import ObjectStore

__all__ = ["Death", "MortalSource"]

# Spark's Python workers inherit the environment, and nothing else of ours.
_DEATH = "COMMITLOG_DEMO_DEATH"
_DRIVER = "COMMITLOG_DEMO_DRIVER"


@frozen
class Death:
    """When the driver dies: instead of sending a certain request to the store.

    Attributes:
        method: of `ObjectStore`, such as ``publish`` or ``put``.
        path: what the object's path contains.
        nth: at which such request, from 1.
    """

    method: str
    path: str = ""
    nth: int = 1

    def arm(self) -> None:
        """Let it happen to the driver that this process is about to start."""
        if os.getpgrp() != os.getpid():
            # Whoever started this process is to live.
            os.setpgid(0, 0)
        os.environ[_DEATH] = f"{self.method}:{self.nth}:{self.path}"
        os.environ[_DRIVER] = str(os.getpgrp())

    @classmethod
    def armed(cls) -> Death:
        """Return what was armed in the driver, from a process that descends from it."""
        method, nth, path = os.environ[_DEATH].split(":", 2)
        return cls(method, path, int(nth))


class _MortalStore:
    """An `ObjectStore` that does what another one does, until it dies."""

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
    """The format ``commitlog``, under the name of ``commitlog-mortal``, with a `Death` armed."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "commitlog-mortal"

    @staticmethod
    def open_output(options: ReadOptions, executor: Executor | None = None) -> Output:
        """Open the output over a store that dies. Requests go one by one, so that it is known when."""
        output = open_output(options)
        output.store.store = cast(ObjectStore, _MortalStore(output.store.store, Death.armed()))
        return output


def _die() -> None:
    os.killpg(int(os.environ[_DRIVER]), signal.SIGKILL)
    os.killpg(os.getpgrp(), signal.SIGKILL)
