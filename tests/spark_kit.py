"""Real Spark jobs to which something happens at a chosen moment, and the drivers that they die with.

A `Job` can be written as JSON, so that any driver can run it; its `Trap` is what happens to it. As a
program this module is a driver: it runs the jobs that it reads from stdin, side by side, and says what
came of each.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pyspark.cloudpickle
from attrs import asdict, frozen
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter

from commitlog.demo.quiet import quiet_session
from commitlog.errors import OutcomeUnknown
from commitlog.outputs import Output
from commitlog.spark import CommitlogDataSource, attach, committer, committer_jar
from commitlog.spark.configure import COMMIT_PROTOCOL
from commitlog.spark.options import ReadOptions, WriteOptions
from commitlog.spark.source import open_output
from commitlog.spark.write import active

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Workers cannot import test modules.
pyspark.cloudpickle.register_pickle_by_value(sys.modules[__name__])

#: Rows of a job, the tasks that write them, and the partitions that they are in.
ROWS, TASKS, PARTS = 24, 2, 2

#: What Spark's own writers commit by, and the setting.
PROTOCOL = ("spark.sql.sources.commitProtocolClass", COMMIT_PROTOCOL)

#: Seconds to wait for a job to get somewhere before the test fails.
PATIENCE = 250.0


def _commits(path: str, data: bytes, **_: object) -> bool:
    return b'"kind":"commit"' in data and re.search(r"_commitlog/\d{20}\.json$", path) is not None


#: What a driver does at the moments of a `Trap`: which method, and which calls of it.
_REQUESTS: Mapping[str, tuple[str, Callable[..., bool]]] = {
    "record": ("put_if_absent", _commits),
    "request": ("put", _commits),
    "publish": ("publish", lambda *_, **__: True),
}


class Gate:
    """A place in a job, of whatever process, where it waits until it is let go on."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._held: list[socket.socket] = []
        self._pid = 0

    @property
    def port(self) -> int:
        """What a `Trap` has to know of it."""
        return int(self._listener.getsockname()[1])

    def wait(self, job: Future[Any] | None = None) -> None:
        """Return once something waits here; fail if `job` is over before."""
        for _ in range(int(PATIENCE * 10)):
            if select.select([self._listener], [], [], 0.1)[0]:
                self._held.append(self._listener.accept()[0])
                self._pid = int(self._held[-1].recv(20))
                return
            if job is not None and job.done():
                raise AssertionError(f"the job did not get there: {job.exception()}")
        raise AssertionError(f"nothing got there within {PATIENCE:.0f} s")

    def open(self) -> None:
        """Let it go on."""
        self._held[-1].sendall(b"go")

    def kill(self) -> None:
        """Kill the process that waits here, unless it is dead."""
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)

    def __enter__(self) -> Gate:
        return self

    def __exit__(self, *_: object) -> None:
        # What still waits fails.
        for each in (self._listener, *self._held):
            each.close()


def _hold(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as held:
        held.sendall(str(os.getpid()).encode())
        if held.recv(2) != b"go":
            raise RuntimeError("nobody let this go on")


@frozen(kw_only=True)
class Trap:
    """What happens to a job, and when.

    Attributes:
        at: ``values``: the last row is computed; ``rows``: a task has written all of its rows;
            ``told``: a task's files are complete, and Spark is to hear of them; ``record``: the commit
            record is claimed; ``request``: it is written to the store for that; ``publish``: a file is
            published.
        what: ``hold``: it waits at a gate; ``die``: the process is killed; ``fail``: it raises;
            ``lose``: the answer is lost; ``haunt``: it raises, and a child of its process writes the
            task's rows once it is let. At ``values``, it can only fail, in every attempt.
        port: of the gate.
        nth: at which request of that kind, from 1.
        after: once the request is done.
        attempts: to how many attempts at a task it happens.
    """

    at: str
    what: str
    port: int = 0
    nth: int = 1
    after: bool = False
    attempts: int = 1

    def spring(self) -> None:
        """Let it happen, if this process is one that it is to happen to."""
        context = TaskContext.get()
        if context is not None and context.attemptNumber() >= self.attempts:
            return
        if self.what == "hold":
            _hold(self.port)
        elif self.what == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.what == "fail":
            raise RuntimeError("a trap")
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
        """Lay the trap among the requests of a driver, counted by `seen`; return `output`."""
        if self.at in _REQUESTS:
            method, counts = _REQUESTS[self.at]
            store = output.store if self.at == "record" else output.store.store
            setattr(store, method, self._around(getattr(store, method), counts, seen))
        return output


class TaskTrapped(DataSourceArrowWriter):
    """A writer whose second task is trapped."""

    def __init__(self, writer: DataSourceArrowWriter, trap: Trap) -> None:
        self._writer = writer
        self._trap = trap
        self.commit = writer.commit  # type: ignore[method-assign]
        self.abort = writer.abort  # type: ignore[method-assign]

    def write(self, iterator: Iterator[Any]) -> Any:
        """Write the rows, and tell of it or not."""
        context = TaskContext.get()
        assert context is not None
        if context.partitionId() != 1 or context.attemptNumber() >= self._trap.attempts:
            return self._writer.write(iterator)
        if self._trap.what != "haunt":
            told = self._writer.write(iterator)
            self._trap.spring()
            return told
        rows = list(iterator)
        if os.fork():
            raise RuntimeError("this attempt is taken for dead")
        try:
            _hold(self._trap.port)
            self._writer.write(iter(rows))
            _hold(self._trap.port)
        finally:
            os._exit(0)


def _source(trap: Trap) -> type[CommitlogDataSource]:
    """Return the data source with a trap, under a name of its own."""
    format_name = f"commitlog-{uuid.uuid4().hex}"

    class Trapped(CommitlogDataSource):
        @classmethod
        def name(cls) -> str:
            return format_name

        @staticmethod
        def open_output(options: ReadOptions, executor: Executor | None = None) -> Output:
            # One request after the other, so that it is known which is the nth.
            return trap.set(open_output(options), itertools.count(1))

        def writer(self, schema: Any, overwrite: bool) -> Any:
            writer = super().writer(schema, overwrite)
            return TaskTrapped(writer, trap) if trap.at == "told" else writer

    return Trapped


@frozen(kw_only=True)
class Job:
    """What a driver is to write, and what happens to it meanwhile.

    Attributes:
        url: of the output.
        options: of the data source.
        configured: whether Spark's own Parquet writer does it, with the configured committer.
        first: the first of the `rows` numbers that it writes.
        rows: how many.
        mode: ``append``, ``overwrite``, ``overwrite-partitions`` or ``error``.
        job_id: the job.
        parts: which partitions to keep the rows of, an SQL expression.
        trap: what happens to it.
    """

    url: str
    options: Mapping[str, str]
    configured: bool = False
    first: int = 0
    rows: int = ROWS
    mode: str = "append"
    job_id: str = "daily"
    parts: str = "true"
    trap: Trap | None = None

    @property
    def numbers(self) -> list[int]:
        """What it writes, if it keeps all of them."""
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

    def prepare(self, spark: SparkSession) -> Callable[[], None]:
        """Lay the trap; return what runs the job, which may be called in any thread."""
        name = "parquet" if self.configured else "commitlog"
        if self.trap is not None and not self.configured:
            source = _source(self.trap)
            spark.dataSource.register(source)
            name = source.name()
        elif self.trap is not None:
            committer.open_output = partial(
                self._open_trapped, self.trap, itertools.count(1), committer.open_output
            )
        return partial(self._write, spark, name)

    def run(self, spark: SparkSession) -> None:
        """Run the job here and now."""
        before = committer.open_output
        try:
            self.prepare(spark)()
        finally:
            committer.open_output = before

    def _open_trapped(
        self,
        trap: Trap,
        seen: Iterator[int],
        usual: Callable[..., Output],
        options: WriteOptions,
        executor: Executor | None = None,
    ) -> Output:
        # It happens to the first such job only, also if another one of the same id comes later.
        mine = (options.url, options.job_id) == (self.url, self.job_id)
        return trap.set(usual(options), seen) if mine else usual(options, executor)

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
                writer.options(**given).mode(mode).partitionBy("part").save(self.url)
                return
            if mode == "error":
                mode, given["ifExists"] = "append", "error"
            writer.options(**given).option("partitionBy", "part").mode(mode).save(self.url)


@contextmanager
def running(spark: SparkSession, *jobs: Job) -> Iterator[list[Future[None]]]:
    """Run jobs side by side in this driver; wait for all of them in the end."""
    before = committer.open_output
    try:
        with ThreadPoolExecutor(len(jobs)) as pool:
            # All traps are laid before the first job begins.
            yield [pool.submit(run) for run in [job.prepare(spark) for job in jobs]]
    finally:
        committer.open_output = before


class Driver:
    """A driver that is a process of its own, with a JVM of its own.

    Args:
        scratch: a directory for its files.
        jobs: what it is to do, all at once. When it has done them, it waits for its end.
    """

    def __init__(self, scratch: Path, jobs: Sequence[Job]) -> None:
        self._told: dict[int, str | None] = {}
        self._log = (scratch / "driver.log").open("ab")
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**os.environ, "TMPDIR": str(scratch)},
            # A group of its own, with its JVM, to be killed with.
            start_new_session=True,
        )
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([job.to_json() for job in jobs]) + "\n")
        self._process.stdin.flush()

    def error(self, number: int) -> str | None:
        """Wait until the job with this number is over; return its error, if there was one."""
        assert self._process.stdout is not None
        while number not in self._told:
            done, error = json.loads(self._process.stdout.readline())
            self._told[done] = error
        return self._told[number]

    def kill(self) -> None:
        """Kill it, and its JVM."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def __enter__(self) -> Driver:
        return self

    def __exit__(
        self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._log.close()


def _end_with_parent() -> None:
    sys.stdin.read()
    os.killpg(0, signal.SIGKILL)


def main() -> None:
    """Be a driver."""
    jobs = [Job.from_json(text) for text in json.loads(sys.stdin.readline())]
    threading.Thread(target=_end_with_parent, daemon=True).start()
    conf = {"spark.jars": str(committer_jar()), PROTOCOL[0]: PROTOCOL[1]}
    spark = quiet_session(master="local[6]", conf=conf)
    attach(spark)

    def tell(number: int, done: Future[None]) -> None:
        error = done.exception()
        sys.stdout.write(json.dumps([number, None if error is None else str(error)]) + "\n")
        sys.stdout.flush()

    with running(spark, *jobs) as under_way:
        for number, done in enumerate(under_way):
            done.add_done_callback(partial(tell, number))
    threading.Event().wait()


if __name__ == "__main__":
    main()
