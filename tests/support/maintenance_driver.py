"""A Spark driver in a separate process that is killed while it maintains a namespace.

As a program, this module is that driver; see `support.spark_driver`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark.cloudpickle
from attrs import asdict, frozen

import commitlog
from commitlog.namespace import Namespace
from commitlog.spark import maintenance_jobs
from commitlog.spark.cluster import NamespaceAddress
from demo.quiet import quiet_session
from support.spark_driver import read_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Workers cannot import test modules.
pyspark.cloudpickle.register_pickle_by_value(sys.modules[__name__])


@frozen
class MaintenanceJob:
    """A call of a function of `commitlog.spark`, and the death of its driver.

    Attributes:
        function: name of the function.
        words: its arguments after the session.
        options: its other arguments.
        opened: number of times that tasks open the namespace before one of them kills the driver.
        directory: a directory for the count.
    """

    function: str
    words: Sequence[str]
    options: dict[str, Any]
    opened: int
    directory: str

    def to_json(self) -> str:
        """Return it as text."""
        return json.dumps(asdict(self))

    def run(self, spark: SparkSession) -> Any:
        """Call the function."""
        return getattr(commitlog.spark, self.function)(spark, *self.words, **self.options)


def open_or_kill(
    driver: int, job: MaintenanceJob, address: NamespaceAddress, options: dict[str, Any]
) -> Namespace:
    """Open a namespace in a task, or kill the driver."""
    count = Path(job.directory) / "opened"
    with count.open("ab") as file:
        file.write(b".")
    if count.stat().st_size > job.opened:
        with suppress(ProcessLookupError):
            os.kill(driver, signal.SIGKILL)
        raise RuntimeError("the driver was killed")
    return NamespaceAddress.open_namespace(address, **options)


def main() -> None:
    """Run the task of this driver."""
    [job] = [MaintenanceJob(**json.loads(text)) for text in read_tasks()]
    driver = os.getpid()

    class DeadlyPlace(NamespaceAddress):
        """A place whose namespace is opened in tasks by `open_or_kill`."""

        def open_namespace(self, **options: Any) -> Namespace:
            """See `NamespaceAddress.open_namespace`."""
            if os.getpid() == driver:
                return NamespaceAddress.open_namespace(self, **options)
            return open_or_kill(driver, job, self, options)

    maintenance_jobs.NamespaceAddress = DeadlyPlace  # type: ignore[misc]
    job.run(quiet_session(master="local[1]"))
    threading.Event().wait()


if __name__ == "__main__":
    main()
