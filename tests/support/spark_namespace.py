"""Real Spark jobs that write to a namespace, and are stopped at their commit point.

As a program, this module is a separate driver; see `support.spark_driver`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import pyspark.cloudpickle
from attrs import asdict, frozen

from commitlog.namespace import Namespace
from commitlog.spark import CommitlogDataSource
from commitlog.spark.session_conf import active
from commitlog.spark.targets.namespace import NamespaceLocation
from demo.quiet import quiet_session
from support.spark_driver import read_tasks, report
from support.spark_gates import hold

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Workers cannot import test modules.
pyspark.cloudpickle.register_pickle_by_value(sys.modules[__name__])

ROWS = 6


@frozen(kw_only=True)
class Stop:
    """The end or the pause of a driver at its commit point.

    Attributes:
        after: whether it is after the rename of the directory.
        port: port of the gate at which the driver waits; 0: the process dies.
    """

    after: bool
    port: int = 0

    def source(self) -> type[CommitlogDataSource]:
        """Return the data source of a driver that is stopped, under a separate name."""
        format_name = f"commitlog-{uuid.uuid4().hex}"
        stop = self

        class Stopped(CommitlogDataSource):
            @classmethod
            def name(cls) -> str:
                return format_name

            @staticmethod
            def open_namespace(location: NamespaceLocation) -> Namespace:
                lake = location.open()
                for method in ("rename", "replace"):
                    setattr(lake, method, stop.around(getattr(lake, method)))
                return lake

        return Stopped

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return `call` with the stop."""

        def stopped(*args: Any, **options: Any) -> Any:
            if not self.after:
                self._spring()
            result = call(*args, **options)
            self._spring()
            return result

        return stopped

    def _spring(self) -> None:
        if self.port:
            hold(self.port)
        else:
            os.kill(os.getpid(), signal.SIGKILL)


@frozen(kw_only=True)
class LakeJob:
    """A job that writes the numbers below `ROWS`.

    Attributes:
        url: URL of a directory in a namespace.
        options: options of the data source.
        mode: Spark's save mode.
        stop: the stop of the driver.
    """

    url: str
    options: dict[str, str]
    mode: str = "append"
    stop: Stop

    def to_json(self) -> str:
        """Return it as text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> LakeJob:
        """Return the job that `to_json` wrote."""
        fields: dict[str, Any] = json.loads(text)
        return cls(**{**fields, "stop": Stop(**fields["stop"])})

    def run(self, spark: SparkSession) -> None:
        """Run the job in any thread."""
        source = self.stop.source()
        with active(spark):
            spark.dataSource.register(source)
            rows = spark.range(0, ROWS, 1, 2)
            rows.write.format(source.name()).mode(self.mode).options(**self.options).save(self.url)


def main() -> None:
    """Run the tasks of this driver."""
    jobs = [LakeJob.from_json(text) for text in read_tasks()]
    spark = quiet_session(master="local[4]")
    with ThreadPoolExecutor(len(jobs)) as pool:
        for number, job in enumerate(jobs):
            pool.submit(job.run, spark).add_done_callback(partial(report, number))
    threading.Event().wait()


if __name__ == "__main__":
    main()
