"""Real Spark jobs with a trap at a chosen step.

A `Job` and its `Trap` can be written as JSON, so that any driver can run it.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pyspark.cloudpickle
from attrs import asdict, field, frozen
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter

from commitlog._util.concurrency import Executor
from commitlog.errors import OutcomeUnknown, Unavailable
from commitlog.outputs import Output
from commitlog.spark import CommitlogDataSource
from commitlog.spark.committer.configure import COMMIT_PROTOCOL
from commitlog.spark.session_conf import active
from commitlog.spark.targets.output import OutputLocation, open_output
from support.agent import trapped
from support.spark_gates import arrive, hold, stay

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Workers cannot import test modules.
pyspark.cloudpickle.register_pickle_by_value(sys.modules[__name__])

#: Rows of a job, the tasks that write them, and the partitions that they are in.
ROWS, TASKS, PARTS = 24, 2, 2

#: The setting of the commit protocol of Spark's own writers, and its value.
PROTOCOL = ("spark.sql.sources.commitProtocolClass", COMMIT_PROTOCOL)


def _commits(path: str, data: bytes, **_: object) -> bool:
    return b'"kind":"commit"' in data and re.search(r"_commitlog/\d{20}\.json$", path) is not None


def _named(part: str) -> Callable[..., bool]:
    def is_named(path: str, *_: object, **__: object) -> bool:
        return part in path

    return is_named


#: The requests at the steps of a `Trap`: the method, and a test of its arguments.
_REQUESTS: Mapping[str, tuple[str, Callable[..., bool]]] = {
    "pending": ("put", _named("_commitlog/pending/")),
    "stage": ("begin_stage", _named("part-00000")),
    "record": ("put_if_absent", _commits),
    "request": ("put", _commits),
    "publish": ("publish", lambda *_, **__: True),
    "success": ("put", _named("_SUCCESS")),
    "plan": ("get", _named("_commitlog/00000000000000000003")),
    "read": ("get", _named("part-")),
}


@frozen(kw_only=True)
class Trap:
    """An event at one step of a job.

    Attributes:
        at: the step. ``values``: the last row is computed; ``rows``: a task has written all of
            its rows; ``reported``: a task's files are complete, before it reports them. Or a
            request of a driver or a task is sent: ``pending``: the pending entry is written;
            ``stage``: the first task begins a file; ``record``: the commit record is claimed;
            ``request``: the request for that is sent to the store; ``publish``: a file is
            published; ``success``: ``_SUCCESS`` is written; ``plan``: a stream reader gets the
            third record of the log; ``read``: it gets a file.
        what: the event. ``hold``: it waits at a gate; ``die``: the process is killed; ``fail``: it
            raises; ``refuse``: the store is unavailable; ``lose``: the answer is lost; ``haunt``: it
            raises, and a child of its process writes the task's rows once the gate is opened. At
            ``values``, only ``fail`` is possible, in every attempt.
        port: port of the gate.
        nth: number of the request of that kind, from 1.
        after: whether the event is after the request, and not before it.
        attempts: number of attempts at a task with the event.
    """

    at: str
    what: str
    port: int = 0
    nth: int = 1
    after: bool = False
    attempts: int = 1

    def to_json(self) -> str:
        """Return the trap as text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Trap:
        """Return the trap that `to_json` wrote."""
        return cls(**json.loads(text))

    def spring(self) -> None:
        """Make the event happen, unless this attempt has none."""
        context = TaskContext.get()
        if context is not None and context.attemptNumber() >= self.attempts:
            return
        if self.what == "hold":
            hold(self.port)
        elif self.what == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.what == "fail":
            raise RuntimeError("a trap")
        elif self.what == "refuse":
            raise Unavailable("a trap")
        else:
            raise OutcomeUnknown("a trap")

    def _around(
        self, call: Callable[..., Any], counts: Callable[..., bool], seen: Iterator[int]
    ) -> Callable[..., Any]:
        def trapping(*args: Any, **options: Any) -> Any:
            here = counts(*args, **options) and next(seen) == self.nth
            if here and not self.after:
                self.spring()
            result = call(*args, **options)
            if here and self.after:
                self.spring()
            return result

        return trapping

    def set(self, output: Output, seen: Iterator[int]) -> Output:
        """Set the trap for requests to an output, counted by `seen`; return `output`."""
        if self.at in _REQUESTS:
            method, counts = _REQUESTS[self.at]
            store = output.store if self.at == "record" else output.store.object_store
            setattr(store, method, self._around(getattr(store, method), counts, seen))
        return output


class TaskTrapped(DataSourceArrowWriter):
    """A writer with a trap in the second task."""

    def __init__(self, writer: DataSourceArrowWriter, trap: Trap) -> None:
        self._writer = writer
        self._trap = trap
        self.commit = writer.commit  # type: ignore[method-assign]
        self.abort = writer.abort  # type: ignore[method-assign]

    def write(self, iterator: Iterator[Any]) -> Any:
        """Write the rows, with the trap."""
        context = TaskContext.get()
        assert context is not None
        if context.partitionId() != 1 or context.attemptNumber() >= self._trap.attempts:
            return self._writer.write(iterator)
        if self._trap.what != "haunt":
            message = self._writer.write(iterator)
            self._trap.spring()
            return message
        rows = list(iterator)
        # Not in the child, which may be slower than the rest of the job.
        arrived = arrive(self._trap.port)
        if os.fork():
            arrived.close()
            raise RuntimeError("this attempt is taken for dead")
        try:
            stay(arrived)
            self._writer.write(iter(rows))
            hold(self._trap.port)
        finally:
            os._exit(0)


def trapped_source(trap: Trap) -> type[CommitlogDataSource]:
    """Return the data source with a trap, under a separate name."""
    format_name = f"commitlog-{uuid.uuid4().hex}"

    class Trapped(CommitlogDataSource):
        @classmethod
        def name(cls) -> str:
            return format_name

        @staticmethod
        def open_output(location: OutputLocation, executor: Executor | None = None) -> Output:
            # One request at a time, so that the nth is always the same.
            return trap.set(open_output(location), itertools.count(1))

        def writer(self, schema: Any, overwrite: bool) -> Any:
            writer = super().writer(schema, overwrite)
            return TaskTrapped(writer, trap) if trap.at == "reported" else writer

    return Trapped


@frozen(kw_only=True)
class Job:
    """A write of a driver, with a trap.

    Attributes:
        url: URL of the output.
        options: options of the data source.
        hadoop: settings of Hadoop's file system.
        configured: whether Spark's own Parquet writer writes, with the configured committer.
        first: the first of the numbers.
        rows: how many numbers.
        mode: ``append``, ``overwrite``, ``overwrite-partitions`` or ``error``.
        job_id: id of the job.
        parts: SQL expression for the rows to keep.
        trap: the trap of the job.
    """

    url: str
    options: Mapping[str, str]
    hadoop: Mapping[str, str] = field(factory=dict)
    configured: bool = False
    first: int = 0
    rows: int = ROWS
    mode: str = "append"
    job_id: str = "daily"
    parts: str = "true"
    trap: Trap | None = None

    @property
    def numbers(self) -> list[int]:
        """The numbers that it writes, if it keeps all rows."""
        return list(range(self.first, self.first + self.rows))

    def to_json(self) -> str:
        """Return the job as text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Job:
        """Return the job that `to_json` wrote."""
        fields: dict[str, Any] = json.loads(text)
        trap = fields.pop("trap")
        return cls(**fields, trap=trap and Trap(**trap))

    def prepare(self, spark: SparkSession, traps: ExitStack) -> Callable[[], None]:
        """Set the trap, until `traps` end; return a function that runs the job in any thread."""
        name = "parquet" if self.configured else "commitlog"
        if self.trap is not None and not self.configured:
            source = trapped_source(self.trap)
            spark.dataSource.register(source)
            name = source.name()
        elif self.trap is not None:
            traps.enter_context(trapped(spark, self.url, self.job_id, self.trap))
        return partial(self._write, spark, name)

    def run(self, spark: SparkSession) -> None:
        """Run the job in this thread."""
        with ExitStack() as traps:
            self.prepare(spark, traps)()

    def read(self, spark: SparkSession) -> DataFrame:
        """Return its rows."""
        trap, number = self.trap, "id"
        if trap is not None and trap.at == "values":
            number = f"if(id = {self.numbers[-1]}, raise_error('a trap'), id)"
        rows = spark.range(self.first, self.first + self.rows, 1, TASKS).selectExpr(
            f"{number} AS id", "concat('Zeile ', id) AS text", f"CAST(id % {PARTS} AS INT) AS part"
        )
        if trap is not None and trap.at == "rows":

            def trapped(batches: Iterator[Any]) -> Iterator[Any]:
                yield from batches
                context = TaskContext.get()
                if context is not None and context.partitionId() == 1:
                    trap.spring()

            rows = rows.mapInArrow(trapped, rows.schema)
        return rows.where(self.parts)

    def _write(self, spark: SparkSession, name: str) -> None:
        with active(spark):
            writer = self.read(spark).write.format(name)
            given = {**self.options, "jobId": self.job_id}
            dynamic = self.mode == "overwrite-partitions"
            if dynamic:
                writer = writer.option("partitionOverwriteMode", "dynamic")
            mode = self.mode.removesuffix("-partitions")
            if self.configured:
                given = {f"spark.commitlog.{option}": value for option, value in given.items()}
                writer.options(**given, **self.hadoop).mode(mode).partitionBy("part").save(self.url)
                return
            if mode == "error":
                mode, given["ifExists"] = "append", "error"
            writer.options(**given).option("partitionBy", "part").mode(mode).save(self.url)


def retried_rows(spark: SparkSession, count: int) -> DataFrame:
    """Return rows with the ids from 0, in two tasks whose first attempts fail after their last row."""

    def late_failure(numbers: Iterator[int]) -> Iterator[tuple[int]]:
        yield from ((number,) for number in numbers)
        context = TaskContext.get()
        if context is not None and context.attemptNumber() == 0:
            raise RuntimeError("the first attempt fails")

    rows = spark.sparkContext.range(0, count, numSlices=TASKS).mapPartitions(late_failure)
    return spark.createDataFrame(rows, "id BIGINT")


@contextmanager
def running(spark: SparkSession, *jobs: Job) -> Iterator[list[Future[None]]]:
    """Run jobs at the same time in this driver; wait for all of them at the end."""
    with ExitStack() as traps, ThreadPoolExecutor(len(jobs)) as pool:
        # All traps are set before the first job begins.
        yield [pool.submit(run) for run in [job.prepare(spark, traps) for job in jobs]]
