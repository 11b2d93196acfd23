"""A standalone Spark cluster of loopback hosts, its driver, and gates for its tasks."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import psutil
import pyarrow as pa
import pyspark.cloudpickle
from pyspark import TaskContext
from pyspark.find_spark_home import _find_spark_home
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from commitlog.spark import CommitlogDataSource
from commitlog.spark.committer.configure import COMMIT_PROTOCOL
from support.project import IMPORT_PATH
from support.spark_status import wait_for_executors, wait_for_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["HOSTS", "Cluster", "Gate", "Visitor", "Workers"]

#: Spark runs a speculative attempt on another host only.
HOSTS = ("127.0.0.2", "127.0.0.3")

#: Seconds to wait for anything before the test fails.
_SECONDS = 250.0
_SMALL = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_CONF = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": " ".join(_SMALL),
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.cores.max": "2",
    "spark.sql.sources.commitProtocolClass": COMMIT_PROTOCOL,
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.quantile": "0.5",
    # Losers of a race may go on as long as a test needs them.
    "spark.python.task.killTimeout": "250s",
}


class Visitor:
    """A task that waits at a gate."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        connection.settimeout(_SECONDS)
        self.host = self.hear()

    def hear(self) -> str:
        """Return the next line from the task; "" if its process has ended."""
        line = b""
        while not line.endswith(b"\n"):
            try:
                character = self._connection.recv(1)
            except ConnectionResetError:
                return ""
            if not character:
                return ""
            line += character
        return line.decode().strip()

    def let_go_on(self) -> None:
        """Let the task run until it sends another line."""
        self._connection.sendall(b"\n")

    def __enter__(self) -> Visitor:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()


class Gate:
    """A gate for all attempts at the first task of a job."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.socket.getsockname()[1]

    def __enter__(self) -> Gate:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()


@contextlib.contextmanager
def _at_gate(port: int) -> Iterator[socket.socket | None]:
    """Wait at the gate, if this is the first task."""
    context = TaskContext.get()
    assert context is not None
    if context.partitionId():
        yield None
        return
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(f"{os.environ['SPARK_LOCAL_IP']}\n".encode())
        connection.recv(1)
        yield connection


class GatedWriter(DataSourceArrowWriter):
    """A writer whose first task waits at a gate, writes, reports it, and waits again."""

    def __init__(self, writer: DataSourceArrowWriter, port: int) -> None:
        self._writer = writer
        self._port = port

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        with _at_gate(self._port) as connection:
            message = self._writer.write(iterator)
            if connection is not None:
                connection.sendall(b"staged\n")
                connection.recv(1)
            return message

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._writer.commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._writer.abort(messages)


class GatedSource(CommitlogDataSource):
    """The data source with a `GatedWriter`; the gate's port comes as the job id."""

    @classmethod
    def name(cls) -> str:
        return "commitlog-gated"

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        return GatedWriter(super().writer(schema, overwrite), int(self.options["jobId"]))


def _gated_rows(port: int) -> Any:
    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # More than the buffer of the pipe to the JVM, so that a file is begun.
        yield from batches
        with _at_gate(port):
            pass

    return rows


class Workers:
    """A master, and workers of one core each. Stops only its own processes.

    Args:
        scratch: directory for logs and temporary files.
        hosts: the hosts of the workers, of `HOSTS`.
        memory: memory of each worker for executors, as Spark writes it.

    Attributes:
        master: URL of the master, once it has started.
    """

    master: str

    def __init__(self, scratch: Path, hosts: Sequence[str] = HOSTS, memory: str = "600m") -> None:
        self._scratch = scratch
        self._hosts = hosts
        self._memory = memory
        self._processes: dict[str, subprocess.Popen[str]] = {}

    def __enter__(self) -> Self:
        try:
            self._start_all()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self._processes):
            self.kill(name)

    def _start_all(self) -> None:
        self.master = self._start_master()
        for host in self._hosts:
            self.start_worker(host)

    def start_worker(self, host: str) -> None:
        """Start a worker on one of `HOSTS`."""
        options = ["--webui-port", "0", "--cores", "1", "--memory", self._memory]
        work = ["--work-dir", str(self._scratch / host)]
        name = "org.apache.spark.deploy.worker.Worker"
        command = [*_java(), name, "--host", host, *options, *work, self.master]
        self._start(host, command, SPARK_LOCAL_IP=host)

    def kill_host_of(self, pid: int) -> None:
        """Kill the worker, with its executors, that has started a process."""
        above = {process.pid for process in psutil.Process(pid).parents()}
        [host] = [host for host in self._hosts if self._processes[host].pid in above]
        self.kill(host)

    def kill(self, name: str) -> None:
        """Kill the worker on a host with its processes, except for Spark's Python processes."""
        process = self._processes.pop(name)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(BrokenPipeError):
                if pipe is not None:
                    pipe.close()

    def _start_master(self) -> str:
        name = "org.apache.spark.deploy.master.Master"
        options = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        process = self._start("master", [*_java(), name, *options])
        deadline = time.monotonic() + _SECONDS
        log = self._scratch / "master.log"
        while process.poll() is None and time.monotonic() < deadline:
            found = re.search(r"Starting Spark master at (spark://\S+)", log.read_text())
            if found is not None:
                return found[1]
            time.sleep(0.05)
        raise RuntimeError(f"Spark's master does not start: {log.read_text()}")

    def _start(self, name: str, command: list[str], **environment: str) -> subprocess.Popen[str]:
        with (self._scratch / f"{name}.log").open("ab") as log:
            process = self._processes[name] = subprocess.Popen(
                command,
                stdin=subprocess.PIPE if name == "driver" else subprocess.DEVNULL,
                stdout=subprocess.PIPE if name == "driver" else log,
                stderr=log,
                text=True,
                env={
                    **os.environ,
                    "TMPDIR": str(self._scratch),
                    # The settings of Spark's own shell scripts.
                    "SPARK_HOME": _find_spark_home(),
                    "SPARK_SCALA_VERSION": "2.13",
                    "SPARK_LOCAL_IP": "127.0.0.1",
                    **environment,
                },
                # A separate process group, to kill all of it.
                start_new_session=True,
            )
        return process


class Cluster(Workers):
    """Workers on all `HOSTS`, and a driver.

    Args:
        scratch: directory for logs and temporary files.
        jars: value of ``spark.jars``.
        conf: further settings of Spark.
    """

    def __init__(self, scratch: Path, jars: str, conf: Mapping[str, str] | None = None) -> None:
        super().__init__(scratch)
        self._conf = {**_CONF, "spark.jars": jars, **(conf or {})}

    def _start_all(self) -> None:
        super()._start_all()
        self._driver = self._start(
            "driver",
            [sys.executable, "-c", "from support.spark_cluster import drive; drive()"],
            PYTHONPATH=IMPORT_PATH,
            CLUSTER=json.dumps([self.master, self._conf]),
        )
        assert self.answer() == "ready"

    def save(self, gate: Gate, **request: Any) -> None:
        """Make the driver begin a write; see `drive`."""
        self._ask({**request, "gate": gate.port})

    def settle(self) -> None:
        """Wait until no task is running, not even a losing attempt."""
        self._ask(None)
        assert self.answer() == ""

    def _ask(self, request: Mapping[str, Any] | None) -> None:
        assert self._driver.stdin is not None
        self._driver.stdin.write(json.dumps(request) + "\n")
        self._driver.stdin.flush()

    def visitor(self, gate: Gate) -> Visitor:
        """Wait for the next task at `gate`, and return it."""
        if self._next(gate.socket) is not gate.socket:
            raise RuntimeError(f"the job ended before a task came to the gate: {self.answer()}")
        return Visitor(gate.socket.accept()[0])

    def answer(self) -> str:
        """Wait for the driver's answer, and return it."""
        self._next()
        assert self._driver.stdout is not None
        answer: str = json.loads(self._driver.stdout.readline() or '"the driver has ended"')
        return answer

    def _next(self, *others: socket.socket) -> object:
        """Wait for a line from the driver or one of `others`; return its sender."""
        said, _, _ = select.select([*others, self._driver.stdout], [], [], _SECONDS)
        if not said:
            raise TimeoutError("the cluster is silent")
        return said[0]


def _java() -> list[str]:
    java = f"{os.environ['JAVA_HOME']}/bin/java" if os.environ.get("JAVA_HOME") else "java"
    jars = f"{_find_spark_home()}/jars/*"
    return [java, *_SMALL, "-Xmx256m", "-Dspark.master.rest.enabled=false", "-cp", jars]


def drive() -> None:
    """The driver: runs a write for each line on stdin, and answers it with "" or with an error.

    A line has `source`, `url`, `options`, the number of `rows`, and the port of the `gate`. There are
    two tasks, each of which writes a half of the rows. (The source "parquet" is Spark's own,
    configured.) With `conf`, the write has a session of its own with these settings.
    A line null is answered when no task is running.
    """
    from demo.quiet import quiet_session

    master, conf = json.loads(os.environ["CLUSTER"])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    pyspark.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    spark = quiet_session(master=master, conf=conf)
    spark.dataSource.register(GatedSource)
    answer = "ready"
    while True:
        print(json.dumps(answer), file=answers, flush=True)
        line = sys.stdin.readline()
        if not line:
            return
        request = json.loads(line)
        answer = ""
        try:
            # Wait for both hosts: a speculative attempt needs another host than the first one.
            wait_for_executors(spark, lambda executors: len(executors) == 1 + len(HOSTS))
            if request is None:
                wait_for_tasks(spark)
            else:
                _save(spark, **request)
        except Exception as error:
            answer = str(error)


def _save(
    spark: SparkSession,
    *,
    source: str,
    url: str,
    options: Mapping[str, str],
    rows: int,
    gate: int,
    conf: Mapping[str, str] | None = None,
) -> None:
    if conf is not None:
        spark = spark.newSession()
        for name, value in conf.items():
            spark.conf.set(name, value)
    numbers = spark.range(0, rows, numPartitions=2)
    if source == "parquet":
        numbers = numbers.mapInArrow(_gated_rows(gate), "id bigint")
    else:
        options = {**options, "jobId": str(gate)}
    numbers.write.format(source).mode("append").options(**options).save(url)
