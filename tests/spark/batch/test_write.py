"""`commitlog.spark.write` in a real Spark."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.functions import udf

import commitlog.spark
from commitlog import connect
from commitlog.errors import (
    AlreadyExists,
    ConfigurationError,
    JobAlreadyCommitted,
    NotSupported,
    Unavailable,
)
from commitlog.outputs import Output
from support.selection import in_campaigns
from support.spark_gates import Gate
from support.spark_jobs import Job, Trap

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

BATCH_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"


def output_at(path: Path) -> Output:
    """Return the output in a directory."""
    return Output(connect(str(path)))


def rows_of(spark: SparkSession, path: Path) -> list[tuple[object, ...]]:
    """Return the rows of the last version, and check that a plain reader sees the same rows."""
    read = spark.read.format("commitlog").load(str(path))
    rows = sorted(map(tuple, read.collect()))
    plain = spark.read.schema(read.schema).parquet(str(path))
    assert sorted(map(tuple, plain.collect())) == rows
    return rows


@pytest.mark.all
def test_each_mode_treats_existing_data_as_named(spark: SparkSession, tmp_path: Path) -> None:
    """Each mode that writes returns its commit record; mode ignore returns None."""
    path = tmp_path / "out"

    def write(start: int, end: int, mode: str, part: str = "id % 2") -> int | None:
        rows = spark.range(start, end).selectExpr("id", f"{part} AS part")
        record = commitlog.spark.write(rows, str(path), mode=mode, partition_by=["part"])
        assert record is None or (record.mode, record.rows) == (mode, end - start)
        return record.version if record else None

    assert write(0, 4, "error") == 1
    assert write(4, 6, "append") == 2
    assert [row[0] for row in rows_of(spark, path)] == [0, 1, 2, 3, 4, 5]
    with pytest.raises(AlreadyExists, match="has committed data"):
        write(6, 8, "error")
    assert write(6, 8, "ignore") is None
    assert write(8, 9, "overwrite-partitions", part="1L") == 3
    assert rows_of(spark, path) == [(0, 0), (2, 0), (4, 0), (8, 1)]
    assert write(9, 10, "overwrite") == 4
    assert rows_of(spark, path) == [(9, 1)]
    assert [record.version for record in output_at(path).log()] == [1, 2, 3, 4]


def test_a_text_names_one_column(spark: SparkSession, tmp_path: Path) -> None:
    """Its letters are not taken for columns."""
    rows = spark.sql("SELECT 1 a, 2 b, 3 ab")
    record = commitlog.spark.write(rows, str(tmp_path / "out"), partition_by="ab")
    assert record is not None
    assert [file.partition for file in output_at(tmp_path / "out").snapshot().files] == [{"ab": "3"}]
    assert commitlog.spark.read(spark, str(tmp_path / "out"), columns="ab").collect() == [(3,)]


def test_a_job_id_is_committed_once(spark: SparkSession, tmp_path: Path) -> None:
    """A second run with the same id raises, or does nothing and returns None."""
    path = tmp_path / "out"
    record = commitlog.spark.write(spark.range(3), str(path), job_id="daily")
    assert record is not None and (record.job_id, record.rows) == ("daily", 3)
    commitlog.spark.write(spark.range(0), str(path), job_id="empty")
    with pytest.raises(JobAlreadyCommitted, match=r"^job 'daily' is part of") as error:
        commitlog.spark.write(spark.range(3), str(path), job_id="daily")
    assert (error.value.job_id, error.value.version) == ("daily", 1)
    assert isinstance(error.value.__cause__, PySparkException)
    again = commitlog.spark.write(spark.range(3), str(path), job_id="daily", on_duplicate="skip")
    assert again is None
    assert rows_of(spark, path) == [(0,), (1,), (2,)]


@pytest.mark.all
def test_errors_keep_their_class(spark: SparkSession, tmp_path: Path) -> None:
    """An error of a task or of the commit reaches the caller with its own class."""
    path = str(tmp_path / "out")
    unnamable = spark.range(2).selectExpr("id", "'' AS day")
    with pytest.raises(NotSupported, match=r"^partition column 'day' has the value ''"):
        commitlog.spark.write(unnamable, path, partition_by=["day"])

    def overtake(number: int) -> int:
        import commitlog as library
        from commitlog.outputs import Output

        output = Output(library.connect(path))
        output.commit(output.begin("daily"), ())
        return number

    rows = spark.range(1).select(udf(overtake, "bigint", useArrow=False)("id").alias("id"))
    with pytest.raises(JobAlreadyCommitted, match=r"^job 'daily' is part of") as error:
        commitlog.spark.write(rows, path, job_id="daily")
    version = next(r.version for r in output_at(tmp_path / "out").log() if r.job_id == "daily")
    assert (error.value.job_id, error.value.version) == ("daily", version)
    with pytest.raises(Exception, match="JobAlreadyCommitted") as refused:
        spark.range(1).write.format("commitlog").mode("append").option("jobId", "daily").save(path)
    own = commitlog.spark.error_of(refused.value)
    assert isinstance(own, JobAlreadyCommitted)


def test_an_error_without_a_cause_of_ours_is_not_translated() -> None:
    """An error in a suppressed abort is not the cause of the failure."""
    text = (
        "org.apache.spark.SparkException: Writing job failed.\n\tat a.b\n"
        "\tSuppressed: commitlog.errors.Unavailable: not now\n\t\tat a.b\n"
        "Caused by: org.apache.spark.SparkException: Python worker exited unexpectedly\n\tat a.b\n"
    )
    assert commitlog.spark.error_of(RuntimeError(text)) is None
    assert commitlog.spark.error_of(RuntimeError("commitlog.errors.NoSuchName: text")) is None
    kept = Unavailable("as it is")
    assert commitlog.spark.error_of(kept) is kept


def test_ignore_and_error_write_to_an_empty_output(spark: SparkSession, tmp_path: Path) -> None:
    """Both modes write the first version."""
    for mode in ("ignore", "error"):
        assert commitlog.spark.write(spark.range(2), str(tmp_path / mode), mode=mode) is not None
        assert rows_of(spark, tmp_path / mode) == [(0,), (1,)]


@pytest.mark.all
@pytest.mark.parametrize("before", ["1048576", in_campaigns(None)])
def test_the_setting_is_restored(spark: SparkSession, tmp_path: Path, before: str | None) -> None:
    """During a write only the number of rows limits a batch; afterwards the user's limit is restored."""
    session = spark.newSession()
    session.dataSource.register(commitlog.spark.CommitlogDataSource)
    session.conf.unset(BATCH_BYTES)
    if before is not None:
        session.conf.set(BATCH_BYTES, before)
    bound = session.conf.get(BATCH_BYTES)
    assert bound != "2147483647"
    failing = session.range(2).selectExpr("cast(raise_error('no such row') as bigint) AS id")
    with pytest.raises(PySparkException, match="no such row"):
        commitlog.spark.write(failing, str(tmp_path / "failed"))
    assert session.conf.get(BATCH_BYTES) == bound
    with Gate() as gate, ThreadPoolExecutor(1) as pool:
        trap = Trap(at="rows", what="hold", port=gate.port)
        rows = Job(url="", options={}, trap=trap).read(session)
        done = pool.submit(commitlog.spark.write, rows, str(tmp_path / "out"))
        gate.wait(done)
        assert session.conf.get(BATCH_BYTES) == "2147483647"
        gate.open()
        done.result()
    assert session.conf.get(BATCH_BYTES) == bound


def test_concurrent_threads_write(spark: SparkSession, tmp_path: Path) -> None:
    """In new threads, in which Spark has no active session, the format is found, and all jobs commit."""
    path, together = tmp_path / "out", threading.Barrier(2)
    before = spark.conf.get(BATCH_BYTES)

    def write(start: int) -> object:
        together.wait()
        return commitlog.spark.write(spark.range(start, start + 5), str(path))

    with ThreadPoolExecutor(2) as pool:
        assert None not in list(pool.map(write, (0, 5)))
    assert rows_of(spark, path) == [(number,) for number in range(10)]
    assert spark.conf.get(BATCH_BYTES) == before


def test_the_active_session_of_the_caller_stays(spark: SparkSession, tmp_path: Path) -> None:
    """Writing rows of another session does not change the active session."""
    other = spark.newSession()
    other.dataSource.register(commitlog.spark.CommitlogDataSource)
    commitlog.spark.write(other.range(1), str(tmp_path / "out"))
    sessions = spark._get_j_spark_session_class(spark._jvm)
    assert sessions.getActiveSession().get().equals(spark._jsparkSession)


def test_arguments_are_checked_first(spark: SparkSession, tmp_path: Path) -> None:
    """Invalid arguments are refused before anything is written."""
    rows, url = spark.range(1), str(tmp_path / "out")
    with pytest.raises(ConfigurationError, match="mode is 'upsert'; it must be one of append"):
        commitlog.spark.write(rows, url, mode="upsert")
    with pytest.raises(ConfigurationError, match="heartbeat is 0 s"):
        commitlog.spark.write(rows, url, heartbeat=0)
    with pytest.raises(ConfigurationError, match="unknown option 'colour'"):
        commitlog.spark.write(rows, url, options={"colour": "blue"})
    with pytest.raises(ConfigurationError, match="option onDuplicate is 'maybe'"):
        commitlog.spark.write(rows, url, on_duplicate="maybe")
    assert not (tmp_path / "out").exists()
