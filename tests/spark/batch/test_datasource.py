"""The data source in a real Spark: one session, local directories and a real S3."""

from __future__ import annotations

import datetime as dt
import decimal
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyspark.cloudpickle
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import functions as f
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from commitlog._util.concurrency import Executor
from commitlog.errors import ConfigurationError
from commitlog.outputs import Output
from commitlog.spark import CommitlogDataSource
from commitlog.spark.batch import CommitlogWriter
from commitlog.spark.schema import dump_schema
from commitlog.spark.session_conf import active
from commitlog.spark.targets.output import OutputLocation, ReadOptions, open_output
from commitlog.spark.tasks import TaskCommitted
from commitlog.stores import ObjectData
from support.selection import in_campaigns, with_all
from support.spark_gates import Gate, hold
from support.spark_status import wait_for_all_but_one, wait_for_events

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from support.servers import Ministack
    from support.spark_session import SparkLogs

pytestmark = pytest.mark.spark

# Workers cannot import test modules.
pyspark.cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Failing(DataSourceArrowWriter):
    """A writer whose second task fails once it has staged all of its rows.

    The first two attempts fail, by an exception or, if `how` is ``"exit"``, by the exit of the process.
    If `how` is the port of a gate, all attempts fail, and the first one waits until the gate is opened.
    """

    def __init__(self, writer: DataSourceArrowWriter, how: str) -> None:
        self._writer = writer
        self._how = how

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._writer.write(self._batches(iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._writer.commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._writer.abort(messages)

    def _batches(self, iterator: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from iterator
        context = TaskContext.get()
        assert context is not None
        if context.partitionId() == 1 and (self._how.isdigit() or context.attemptNumber() < 2):
            if self._how == "exit":
                os._exit(17)
            if self._how.isdigit() and context.attemptNumber() == 0:
                hold(int(self._how))
            raise RuntimeError("this attempt fails")


class FailingSource(CommitlogDataSource):
    """The data source with a `Failing` writer, whose `how` is passed as the job id."""

    @classmethod
    def name(cls) -> str:
        return "commitlog-failing"

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        return Failing(super().writer(schema, overwrite), self.options["jobId"])


def save(rows: DataFrame, url: Path | str, source: str = "commitlog", **options: str) -> None:
    """Append `rows` to the output."""
    rows.write.format(source).mode("append").options(**options).save(str(url))


def load(spark: SparkSession, url: Path | str, **options: str) -> DataFrame:
    """Return the last version of the output."""
    return spark.read.format("commitlog").options(**options).load(str(url))


def opened(url: Path | str, **options: str) -> Output:
    """Return the output for checks without Spark."""
    return Output(ReadOptions.parse({"path": str(url), **options}).open())


def data_files(directory: Path) -> set[str]:
    """Return the files that a listing shows."""
    found = (path.relative_to(directory) for path in directory.rglob("*") if path.is_file())
    return {str(path) for path in found if not any(part.startswith(("_", ".")) for part in path.parts)}


def check_clean(url: Path, jobs: int) -> None:
    """Check that the directory holds only files of the log, and that the log has `jobs` commits."""
    output = opened(url)
    with output.store:
        snapshot = output.snapshot()
        assert len(list(output.log())) == jobs
        assert data_files(url) == {file.path for file in snapshot.files}
        assert list(output.store.list_staged()) == []


def everything(spark: SparkSession) -> DataFrame:
    """Return rows with every type that an output supports, and a row of nulls."""
    moment = dt.datetime(2013, 3, 10, 2, 30, 0, 123456)
    rows = [
        (
            True,
            -128,
            -32768,
            2**31 - 1,
            -(2**63),
            1.5,
            float("inf"),
            decimal.Decimal("12345678901234567890.123456789012345678"),
            decimal.Decimal("-0.01"),
            "Grüße, 世界 \U0001f680\n\x00",
            b"\x00\xff",
            dt.date(1582, 10, 4),
            moment,
            moment,
            ["a", None],
            {"k": [1, None]},
            (7, ("deep", {1: dt.date(1969, 12, 31)})),
        ),
        (None,) * 17,
    ]
    schema = (
        "boolean boolean, byte tinyint, short smallint, int int, long bigint, float float,"
        " double double,"
        " wide decimal(38,18), narrow decimal(5,2), text string, binary binary, date date,"
        " instant timestamp, local timestamp_ntz, list array<string>, map map<string,array<int>>,"
        " nested struct<a:int,b:struct<c:string,d:map<int,date>>>"
    )
    return spark.createDataFrame(rows, schema)


def test_rows_are_read_as_they_were_written(spark: SparkSession, tmp_path: Path) -> None:
    """Every type, nulls, Unicode and nesting survive, for log-aware and for plain readers alike."""
    rows = everything(spark)
    save(rows, tmp_path / "out")
    read = load(spark, tmp_path / "out")
    assert read.schema.simpleString() == rows.schema.simpleString()
    assert sorted(read.collect(), key=str) == sorted(rows.collect(), key=str)
    plain = spark.read.parquet(str(tmp_path / "out"))
    assert plain.schema.simpleString() == rows.schema.simpleString()
    assert sorted(plain.collect(), key=str) == sorted(rows.collect(), key=str)


def test_a_reader_chooses_columns(spark: SparkSession, tmp_path: Path) -> None:
    """A reader's schema selects columns. A missing column or another type is refused."""
    save(
        spark.range(5).selectExpr("id", "id % 2 as half", "'x' as `a.b`"),
        tmp_path / "out",
        partitionBy="half",
    )
    some = spark.read.format("commitlog").schema("half bigint, `a.b` string").load(str(tmp_path / "out"))
    assert sorted(map(tuple, some.collect())) == [(0, "x")] * 3 + [(1, "x")] * 2
    with pytest.raises(PySparkException, match=r"errors\.ConfigurationError: the output has no id int"):
        spark.read.format("commitlog").schema("id int").load(str(tmp_path / "out")).collect()


def test_partition_columns_keep_their_values_and_types(spark: SparkSession, tmp_path: Path) -> None:
    """Partition columns become directories that Spark's own reader knows, and keep their types."""
    days = "date_add(date'2013-01-01', cast(id % 3 as int))"
    rows = spark.range(100).selectExpr("id", f"{days} as day", "if(id % 2 = 0, 'a/b', null) as place")
    save(rows, tmp_path / "out", partitionBy="day,place")
    assert any(
        name.startswith("day=2013-01-01/place=a%2Fb/part-") for name in data_files(tmp_path / "out")
    )
    read = load(spark, tmp_path / "out")
    assert read.dtypes == rows.dtypes
    assert sorted(read.collect(), key=str) == sorted(rows.collect(), key=str)
    plain = spark.read.parquet(str(tmp_path / "out")).select("id", "day", "place")
    assert sorted(plain.collect(), key=str) == sorted(rows.collect(), key=str)
    with pytest.raises(PySparkException, match="the output is partitioned by day, place"):
        save(rows, tmp_path / "out")
    check_clean(tmp_path / "out", jobs=1)


@pytest.mark.all
def test_a_job_id_commits_once(spark: SparkSession, tmp_path: Path) -> None:
    """A second job with the same id is refused with its name and adds no row."""
    save(spark.range(10), tmp_path / "out", jobId="daily")
    with pytest.raises(PySparkException, match=r"errors\.JobAlreadyCommitted: job 'daily' is part of"):
        save(spark.range(10), tmp_path / "out", jobId="daily")
    save(spark.range(10, 20), tmp_path / "out")
    assert sorted(row.id for row in load(spark, tmp_path / "out").collect()) == list(range(20))
    check_clean(tmp_path / "out", jobs=2)


def test_a_refused_write_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """Existing data, other columns and unsupported types raise named errors and change nothing."""
    url = tmp_path / "out"
    save(spark.range(10), url)
    before = {path: path.stat().st_mtime_ns for path in url.rglob("*.parquet")}
    with pytest.raises(PySparkException, match=r"errors\.AlreadyExists: "):
        save(spark.range(5), url, ifExists="error")
    with pytest.raises(
        PySparkException, match=r"errors\.ConfigurationError: the output has the columns"
    ):
        save(spark.range(5).selectExpr("cast(id as int) id"), url)
    with pytest.raises(PySparkException, match=r"errors\.NotSupported: column 'x' is of type void"):
        save(spark.range(5).selectExpr("null as x"), url)
    with pytest.raises(PySparkException, match=r"errors\.NotFound: no output to read at .*nowhere"):
        load(spark, tmp_path / "nowhere")
    assert {path: path.stat().st_mtime_ns for path in url.rglob("*.parquet")} == before
    check_clean(url, jobs=1)


def test_planning_a_write_reads_each_record_once(tmp_path: Path) -> None:
    """Beginning the job reads the log, and the columns come from the same records."""
    options = {"path": str(tmp_path / "out")}
    columns = StructType().add("id", "long")
    output = opened(tmp_path / "out")
    for _ in range(5):
        job = output.begin(schema=dump_schema(columns))
        output.commit(job, [output.stage(job, job.file_name(0), b"rows")])
    output.abort(output.begin())
    read: list[str] = []

    class WatchedSource(CommitlogDataSource):
        @staticmethod
        def open_output(location: OutputLocation, executor: Executor | None = None) -> Output:
            output = open_output(location, executor)
            get = output.store.get

            def watched(path: str, **options: Any) -> ObjectData:
                read.append(path)
                return get(path, **options)

            output.store.get = watched  # type: ignore[method-assign]
            return output

    WatchedSource({**options, "jobId": "daily"}).writer(columns, False)
    # Six records and the end of the log. They also show whether the output has commits.
    records = [f"_commitlog/{number:020}.json" for number in range(1, 8)]
    assert sorted(read) == records
    with pytest.raises(ConfigurationError, match="the output has the columns"):
        WatchedSource(options).writer(StructType().add("id", "string"), False)


def test_a_task_without_a_message_is_never_committed(tmp_path: Path) -> None:
    """Leaving the task out would lose its rows. `abort` treats it as a task that did not finish."""
    writer = CommitlogDataSource({"path": str(tmp_path / "out")}).writer(
        StructType().add("id", "long"), False
    )
    assert isinstance(writer, CommitlogWriter)
    with pytest.raises(AttributeError):
        writer.commit([TaskCommitted(writer._job, ()), None])
    writer.abort([TaskCommitted(writer._job, ()), None])
    check_clean(tmp_path / "out", jobs=0)


def test_a_job_without_rows_is_a_version(spark: SparkSession, tmp_path: Path) -> None:
    """A job without rows is committed with its schema and no file. An empty task writes no file."""
    save(spark.range(0), tmp_path / "out", jobId="empty")
    read = load(spark, tmp_path / "out")
    assert read.dtypes == [("id", "bigint")]
    assert read.count() == 0
    save(spark.range(1, numPartitions=4), tmp_path / "out", ifExists="append")
    assert len(data_files(tmp_path / "out")) == 1
    check_clean(tmp_path / "out", jobs=2)


def test_a_data_frame_stays_at_its_version(spark: SparkSession, tmp_path: Path) -> None:
    """A DataFrame loaded before a commit shows the old rows; one loaded after it shows all rows."""
    save(spark.range(10), tmp_path / "out")
    old = load(spark, tmp_path / "out")
    save(spark.range(10), tmp_path / "out")
    assert old.count() == 10
    assert old.agg(f.count("*")).first()[0] == 10
    assert load(spark, tmp_path / "out").count() == 20


@pytest.mark.parametrize("how", [in_campaigns("raise"), with_all("exit")])
def test_failed_attempts_leave_nothing(spark: SparkSession, tmp_path: Path, how: str) -> None:
    """Attempts that fail, or whose process dies, after staging are retried: no row twice, no residue."""
    spark.dataSource.register(FailingSource)
    save(spark.range(0, 1000, numPartitions=3), tmp_path / "out", "commitlog-failing", jobId=how)
    assert sorted(row.id for row in load(spark, tmp_path / "out").collect()) == list(range(1000))
    check_clean(tmp_path / "out", jobs=1)


@pytest.mark.campaign
def test_a_job_whose_retries_are_used_up_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """After the last attempt the job is aborted, nothing is visible or staged, and it can run again."""
    spark.dataSource.register(FailingSource)
    url = tmp_path / "out"

    def fail(name: str) -> None:
        with active(spark):
            save(spark.range(0, 1000, numPartitions=3), url, "commitlog-failing", jobId=name)

    with Gate() as gate, ThreadPoolExecutor(1) as pool:
        name = str(gate.port)
        done = pool.submit(fail, name)
        gate.wait(done)
        # Spark does not wait for running tasks when it gives up a job.
        wait_for_all_but_one(spark)
        gate.open()
        with pytest.raises(PySparkException, match="this attempt fails"):
            done.result()
    check_clean(url, jobs=0)
    save(spark.range(10), url, jobId=name)
    check_clean(url, jobs=1)


def test_credentials_reach_workers_and_no_log(
    spark: SparkSession, spark_logs: SparkLogs, ministack: Ministack, capfd: pytest.CaptureFixture[str]
) -> None:
    """S3 is reached with credentials from options, which no plan, log, error or output shows."""
    given = {
        "endpointUrl": ministack.endpoint_url,
        "region": "us-east-1",
        "access_key_id": ministack.access_key_id,
        "secret_access_key": ministack.secret_access_key,
    }
    url = f"s3://{ministack.new_bucket()}/out"
    save(spark.range(10), url, jobId="daily", **given)
    read = load(spark, url, **given)
    assert read.count() == 10
    read.explain(True)
    with pytest.raises(PySparkException, match="JobAlreadyCommitted") as refused:
        save(spark.range(10), url, jobId="daily", **given)
    with pytest.raises(PySparkException, match="unknown option") as unknown:
        save(spark.range(10), url, odd="1", **given)
    # This lets Spark flush its event log.
    spark.range(1).count()
    wait_for_events(spark)
    said = [spark_logs.text(), *capfd.readouterr(), str(refused.value), str(unknown.value)]
    assert "AppendData" in said[0]
    for secret in (ministack.access_key_id, ministack.secret_access_key):
        assert [text for text in said if secret in text] == []
