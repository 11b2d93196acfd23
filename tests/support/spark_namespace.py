"""Real Spark jobs that write into a namespace, and that are stopped at their commit point.

As a program, this module is a driver of its own; see `support.spark_driver`.
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
from support.spark_driver import tell, told
from support.spark_gates import hold

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Workers cannot import test modules.
pyspark.cloudpickle.register_pickle_by_value(sys.modules[__name__])

ROWS = 6


@frozen(kw_only=True)
class Stop:
    """What happens to a driver at its commit point.

    Attributes:
        after: whether the directory has been renamed by then.
        port: of the gate at which it waits; 0: the process dies.
    """

    after: bool
    port: int = 0

    def source(self) -> type[CommitlogDataSource]:
        """Return the data source of a driver that is stopped, under a name of its own."""
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
        """Return `call`, with what happens to it."""

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
        url: of a directory in a namespace.
        options: of the data source.
        mode: Spark's save mode.
        stop: what happens to it.
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
        """Run it, in any thread."""
        source = self.stop.source()
        with active(spark):
            spark.dataSource.register(source)
            rows = spark.range(0, ROWS, 1, 2)
            rows.write.format(source.name()).mode(self.mode).options(**self.options).save(self.url)


def main() -> None:
    """Be a driver."""
    jobs = [LakeJob.from_json(text) for text in told()]
    spark = quiet_session(master="local[4]")
    with ThreadPoolExecutor(len(jobs)) as pool:
        for number, job in enumerate(jobs):
            pool.submit(job.run, spark).add_done_callback(partial(tell, number))
    threading.Event().wait()


if __name__ == "__main__":
    main()
