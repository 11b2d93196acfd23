"""Spark Connect: clients use the data source without a JVM, and the server commits their writes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commitlog import connect
from commitlog.outputs import Output
from support.project import ROOT, TESTS
from support.spark_status import started

pytestmark = [
    pytest.mark.all,
    pytest.mark.spark,
    # Each step starts processes, and the first test runs all steps.
    pytest.mark.timeout(900),
]

#: The workers find the format through a module on the path, as in an installed package.
_PATH = os.pathsep.join([str(ROOT), str(TESTS)])


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Results of the steps of `drive`, and under ``where`` the directory in which they ran."""
    where = tmp_path_factory.mktemp("connect")
    with (where / "driver.log").open("w") as log:
        done = subprocess.run(
            [sys.executable, "-c", "from spark.batch.test_connect import drive; drive()", where],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            check=False,
            # The server keeps a database in its working directory.
            cwd=where,
            env={**os.environ, "PYTHONPATH": _PATH, "TMPDIR": str(where)},
            timeout=850,
        )
    assert done.returncode == 0, (where / "driver.log").read_text()
    return {**json.loads(done.stdout), "where": where}


def drive() -> None:
    """Start a server and a client in this process, run all steps, and print their results."""
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.client.core import DefaultChannelBuilder
    from pyspark.sql.functions import udf

    import commitlog.spark
    from commitlog.spark.committer.configure import COMMIT_PROTOCOL

    where = sys.argv[1]
    out = f"{where}/out"
    builder = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.jars", str(commitlog.spark.committer_jar()))
    # A server that PySpark itself starts has no other plugin than Spark Connect's (see test_drivers).
    builder = builder.config("spark.sql.sources.commitProtocolClass", COMMIT_PROTOCOL)
    # The default port is fixed, and another run on this machine may use it.
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    DefaultChannelBuilder.default_port = staticmethod(lambda: port)
    builder = builder.config("spark.connect.grpc.binding.port", str(port))
    spark = builder.getOrCreate()

    def append() -> None:
        rows = spark.range(0, 10, numPartitions=2)
        rows.write.format("commitlog").mode("append").option("jobId", "daily").save(out)

    def helper() -> list[Any]:
        rows = spark.range(10, 15).selectExpr("id", "id % 2 as odd")
        record = commitlog.spark.write(
            rows, f"{where}/helped", mode="overwrite-partitions", partition_by=["odd"], job_id="daily"
        )
        assert record is not None
        return [record.version, record.job_id, record.mode]

    def overtaken() -> None:
        path = f"{where}/overtaken"

        def overtake(number: int) -> int:
            from commitlog import connect
            from commitlog.outputs import Output

            output = Output(connect(path))
            output.commit(output.begin("daily"), ())
            return number

        rows = spark.range(0, 1, 1, 1).select(udf(overtake, "bigint", useArrow=False)("id").alias("id"))
        commitlog.spark.write(rows, path, job_id="daily")

    def read() -> list[int]:
        return sorted(row.id for row in spark.read.format("commitlog").load(out).collect())

    def merged() -> list[Any]:
        record = commitlog.spark.compact(spark, out)
        assert record is not None
        return [record.mode, sorted(row.id for row in commitlog.spark.read(spark, out).collect())]

    def stream() -> list[int]:
        rows = spark.readStream.schema("id bigint").parquet(out).writeStream.format("commitlog")
        rows = rows.queryName("copy").option("checkpointLocation", f"{where}/checkpoint")
        query = rows.trigger(availableNow=True).start(f"{where}/copied")
        query.awaitTermination()
        return sorted(row.id for row in spark.read.format("commitlog").load(f"{where}/copied").collect())

    def ingest() -> list[int]:
        for number in range(3):
            Path(where, "landing").mkdir(exist_ok=True)
            Path(where, "landing", f"{number}.json").write_text(f'{{"id": {number}}}\n')
        rows = spark.readStream.format("commitlog_ingest").option("fileFormat", "json")
        rows = rows.option("maxFilesPerTrigger", "2").load(f"{where}/landing").writeStream
        rows = rows.format("commitlog").option("checkpointLocation", f"{where}/ingest-checkpoint")
        rows = rows.trigger(availableNow=True)
        started(lambda: rows.start(f"{where}/ingested")).awaitTermination()
        read = spark.read.format("commitlog").load(f"{where}/ingested")
        return sorted(row.id for row in read.collect())

    def streamed() -> list[Any]:
        rows = commitlog.spark.stream_files(
            spark, f"{where}/landing", schema="id BIGINT", options={"fileFormat": "json", "source": "s"}
        )
        query = rows.writeStream.format("commitlog").trigger(availableNow=True)
        query = query.option("checkpointLocation", f"{where}/streamed-checkpoint")
        started(lambda: query.start(f"{where}/streamed")).awaitTermination()
        read = spark.read.format("commitlog").load(f"{where}/streamed")
        return sorted(row.id for row in read.collect())

    def session() -> bool:
        return commitlog.spark.session("local[2]") is spark

    def configured(start: int, **options: str) -> None:
        given = {f"spark.commitlog.{name}": value for name, value in options.items()}
        rows = spark.range(start, start + 2).write.mode("append").options(**given)
        rows.parquet(f"{where}/configured")

    steps: dict[str, Callable[[], Any]] = {
        "append": append,
        "append again": append,
        "read": read,
        "helper": helper,
        "helper again": helper,
        "overtaken": overtaken,
        "stream": stream,
        "ingest": ingest,
        "streamed": streamed,
        "streamed by Spark": lambda: str(commitlog.spark.stream_files(spark, where, reader="spark")),
        "merged": merged,
        "session": session,
        "configure": lambda: commitlog.spark.configure(SparkSession.builder).getOrCreate(),
        "configured": lambda: configured(0),
        "configured again": lambda: configured(2, jobId="daily"),
        "configured with its id": lambda: configured(4, jobId="daily"),
    }
    came = {}
    for name, step in steps.items():
        try:
            came[name] = step()
        except Exception as error:
            traceback.print_exc()
            came[name] = f"{type(error).__name__}: {error}"
    spark.stop()
    print(json.dumps(came))


def test_rows_are_written_once_and_read(results: dict[str, Any]) -> None:
    """The format needs no registration, a job id is committed once, and the rows are read back."""
    assert results["append"] is None
    assert "commitlog.errors.JobAlreadyCommitted: job 'daily' is part of" in results["append again"]
    assert results["read"] == list(range(10))
    output = Output(connect(str(results["where"] / "out")))
    with output.store:
        assert next(record.job_id for record in output.log()) == "daily"
        assert list(output.store.list_staged()) == []


def test_write_takes_data_frames_of_connect(results: dict[str, Any]) -> None:
    """`commitlog.spark.write` takes DataFrames of Spark Connect, and returns the commit record."""
    assert results["helper"] == [1, "daily", "overwrite-partitions"]
    for step in ("helper again", "overtaken"):
        assert results[step].startswith("JobAlreadyCommitted: job 'daily' is part of the output since")


def test_files_are_merged_and_read_by_spark_itself(results: dict[str, Any]) -> None:
    """`commitlog.spark.compact` and `commitlog.spark.read` take sessions of Spark Connect."""
    assert results["merged"] == ["rewrite", list(range(10))]


def test_a_stream_commits_its_batches(results: dict[str, Any]) -> None:
    """A streaming query that the client starts commits its batches."""
    assert results["stream"] == list(range(10))
    output = Output(connect(str(results["where"] / "copied")))
    with output.store:
        assert [record.batch.number for record in output.log() if record.batch] == [0]


def test_a_source_ingests_a_directory(results: dict[str, Any]) -> None:
    """The files of a directory are ingested in the requested number of batches."""
    assert results["ingest"] == [0, 1, 2]
    output = Output(connect(str(results["where"] / "ingested")))
    with output.store:
        assert [record.batch.number for record in output.log() if record.batch] == [0, 1]


def test_python_streams_files(results: dict[str, Any]) -> None:
    """The choice of readers is Python's, and another one is refused."""
    assert results["streamed"] == [0, 1, 2]
    assert "NotSupported" in results["streamed by Spark"]
    assert "with Spark Connect, the driver is the server" in results["streamed by Spark"]


def test_the_running_session_is_returned(results: dict[str, Any]) -> None:
    """`commitlog.spark.session` returns the session that is already running."""
    assert results["session"] is True


def test_the_server_commits_what_clients_write(results: dict[str, Any]) -> None:
    """`df.write.parquet` of a client commits to an output, a job id once; the client has no setting."""
    assert results["configured"] is results["configured again"] is None
    refused = "commitlog.errors.JobAlreadyCommitted: job 'daily' is part of the output since version 2"
    assert refused in results["configured with its id"]
    output = Output(connect(str(results["where"] / "configured")))
    with output.store:
        assert [record.mode for record in output.log()] == ["append", "append"]
        assert output.snapshot().jobs[-1] == "daily"
        names = {file.path for file in output.snapshot().files}
    assert names == {file.name for file in (results["where"] / "configured").glob("part-*")}


def test_clients_cannot_be_configured(results: dict[str, Any]) -> None:
    """The error says that the server must be."""
    assert results["configure"].startswith("NotSupported: the committer belongs to the driver, which is")
