"""Spark's own file writers, configured to commit to outputs."""

from __future__ import annotations

import datetime
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from commitlog import connect
from commitlog.errors import NotSupported
from commitlog.outputs import Output
from commitlog.outputs.records import AbortRecord
from commitlog.spark import compact, configure, read, write
from commitlog.spark.committer.configure import COMMIT_PROTOCOL
from commitlog.tabular.columns import OutputColumns
from support.agent import agent_interpreter, trapped
from support.spark_jobs import Trap, retried_rows
from support.spark_status import wait_for_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

CLASS = "spark.sql.sources.commitProtocolClass"
OVERWRITE_MODE = "spark.sql.sources.partitionOverwriteMode"
VISIBILITY = "spark.commitlog.visibility"


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """The shared session, with the committer configured during the test."""
    spark.conf.set(CLASS, COMMIT_PROTOCOL)
    yield spark
    for name in (CLASS, OVERWRITE_MODE, VISIBILITY):
        spark.conf.unset(name)


def output_at(path: Path) -> Output:
    """Return the output in a directory."""
    return Output(connect(str(path)))


def ids(spark: SparkSession, path: Path) -> list[int]:
    """Return the column id as a plain reader of the directory sees it, sorted."""
    return sorted(row.id for row in spark.read.parquet(str(path)).select("id").collect())


def hidden(path: Path) -> list[str]:
    """Return the files and uploads that a listing of the output does not show."""
    output = output_at(path)
    with output.store:
        staged = [upload.path for upload in output.store.list_staged()]
    return staged + [str(file) for file in path.rglob("_commitlog/data/**/*") if file.is_file()]


def numbers(spark: SparkSession, start: int, end: int) -> Any:
    """Return rows with the ids from `start` to `end`, a partition column and a text column."""
    return spark.range(start, end, numPartitions=2).selectExpr("id", "id % 3 AS k", "'a/ü%' AS s")


def test_appends_and_overwrites_are_versions_that_plain_readers_see(
    session: SparkSession, tmp_path: Path
) -> None:
    """Each write is one version, and the directory shows only the files of the last version."""
    path = tmp_path / "an output"
    session.range(10).write.parquet(str(path))
    session.range(10, 15).write.mode("append").parquet(str(path))
    assert ids(session, path) == list(range(15))
    session.range(3).write.mode("overwrite").parquet(str(path))
    assert ids(session, path) == [0, 1, 2]

    snapshot = output_at(path).snapshot()
    assert snapshot.version == 3
    assert {file.path for file in snapshot.files} == {file.name for file in path.glob("part-*")}
    assert hidden(path) == []
    assert list(path.glob("*.crc")) == list(path.glob(".*.crc")) == []


@pytest.mark.parametrize("name", ["csv", "json", "orc"])
def test_every_format_is_committed(session: SparkSession, tmp_path: Path, name: str) -> None:
    """The output has the files that Spark's writer of each format wrote, with any file ending."""
    path = tmp_path / name
    numbers(session, 0, 9).write.format(name).save(str(path))
    read = session.read.format(name).schema("id BIGINT, k BIGINT, s STRING").load(str(path))
    assert sorted(row.id for row in read.collect()) == list(range(9))
    snapshot = output_at(path).snapshot()
    assert len(snapshot.files) == len(list(path.glob("part-*"))) > 0
    assert snapshot.schema is not None
    columns = OutputColumns.parse(snapshot.schema)
    assert (columns.names, columns.unknown) == (["id", "k", "s"], "csv" if name == "csv" else None)
    if columns.unknown is None:
        logged = session.read.format("commitlog").load(str(path))
        assert sorted(logged.collect()) == sorted(read.collect())
        with pytest.raises(Exception, match=r"NotSupported: the output has the columns struct<id"):
            session.range(3).write.mode("append").option("header", True).csv(str(path))


def test_partitions_are_kept_and_overwritten_one_by_one(session: SparkSession, tmp_path: Path) -> None:
    """Partition values survive as directory names; a dynamic overwrite replaces those with new rows."""
    path = tmp_path / "out"
    numbers(session, 0, 9).write.partitionBy("k", "s").parquet(str(path))
    session.conf.set(OVERWRITE_MODE, "dynamic")
    rows = session.createDataFrame([(100, 1, "a/ü%")], "id BIGINT, k BIGINT, s STRING")
    rows.write.mode("overwrite").partitionBy("k", "s").parquet(str(path))

    assert ids(session, path) == [0, 2, 3, 5, 6, 8, 100]
    partitions = [file.partition for file in output_at(path).snapshot().files]
    assert {"k": "1", "s": "a/ü%"} in partitions
    assert {tuple(partition) for partition in partitions} == {("k", "s")}


def test_tables_are_written_through_it(session: SparkSession, tmp_path: Path) -> None:
    """CREATE TABLE AS SELECT, INSERT INTO and INSERT OVERWRITE commit, also of one partition."""
    path = tmp_path / "t"
    session.sql(
        f"CREATE TABLE configured USING parquet PARTITIONED BY (k) LOCATION '{path}'"
        " AS SELECT id, id % 2 AS k FROM range(4)"
    )
    try:
        session.sql("INSERT INTO configured VALUES (10, 7)")
        assert ids(session, path) == [0, 1, 2, 3, 10]
        session.sql("INSERT OVERWRITE configured PARTITION (k = 7) SELECT 11")
        assert ids(session, path) == [0, 1, 2, 3, 11]
        session.range(20, 21).selectExpr("id", "5 AS k").write.insertInto("configured")
        assert sorted(row.id for row in session.table("configured").collect()) == [0, 1, 2, 3, 11, 20]
        session.sql("INSERT OVERWRITE configured VALUES (1, 1)")
        assert [tuple(row) for row in session.table("configured").collect()] == [(1, 1)]
    finally:
        session.sql("DROP TABLE configured")
    assert [record.mode for record in output_at(path).log()] == [
        "append",
        "append",
        "overwrite-partitions",
        "append",
        "overwrite",
    ]


@pytest.mark.parametrize("visibility", ["listed", "logged"])
def test_a_named_partition_is_replaced_whole(
    session: SparkSession, tmp_path: Path, visibility: str
) -> None:
    """A static overwrite also empties the partitions below the named one that get no rows."""
    path = tmp_path / "t"
    session.conf.set(VISIBILITY, visibility)
    try:
        rows = session.range(12).selectExpr("id", "id % 2 AS k", "concat('s', id % 3) AS s")
        rows.write.partitionBy("k", "s").parquet(str(path))
        session.sql(f"CREATE TABLE partial (id BIGINT, k BIGINT, s STRING) USING parquet"
                    f" PARTITIONED BY (k, s) LOCATION '{path}'")  # fmt: skip
        if visibility == "listed":
            session.sql("MSCK REPAIR TABLE partial")
        session.sql("INSERT OVERWRITE partial PARTITION (k = 1, s) SELECT 50, 's0'")
        session.sql("INSERT OVERWRITE partial PARTITION (k = 0, s) SELECT 60, 's0' WHERE false")
    finally:
        session.sql("DROP TABLE IF EXISTS partial")
    output = output_at(path)
    modes = [record.mode for record in output.log()]
    assert modes == ["error", "overwrite-files", "overwrite-files"]
    assert [file.partition for file in output.snapshot().files] == [{"k": "1", "s": "s0"}]
    if visibility == "listed":
        assert ids(session, path) == [50]
        assert hidden(path) == []


def test_a_named_partition_of_null_is_replaced_alone(session: SparkSession, tmp_path: Path) -> None:
    """A static overwrite of the rows without a value keeps those of the other partitions."""
    path = tmp_path / "t"
    session.sql(
        f"CREATE TABLE of_null (id BIGINT, k STRING) USING parquet PARTITIONED BY (k) LOCATION '{path}'"
    )
    try:
        session.sql("INSERT INTO of_null VALUES (1, 'a'), (2, 'b'), (3, NULL)")
        session.sql("INSERT OVERWRITE of_null PARTITION (k = NULL) SELECT 30")
        assert ids(session, path) == [1, 2, 30]
    finally:
        session.sql("DROP TABLE of_null")
    assert {file.partition["k"] for file in output_at(path).snapshot().files} == {"a", "b", None}


def test_files_of_a_retried_task_are_there_once(session: SparkSession, tmp_path: Path) -> None:
    """An attempt that fails after its writes leaves no file; the rows of the next attempt are there."""
    path = tmp_path / "out"
    retried_rows(session, 20).write.parquet(str(path))
    assert ids(session, path) == list(range(20))
    assert hidden(path) == []


def test_a_job_that_fails_leaves_what_was_there(session: SparkSession, tmp_path: Path) -> None:
    """If the tasks of an overwriting job use up their retries, it is aborted and the old rows stay."""
    path = tmp_path / "out"
    session.range(5).write.parquet(str(path))
    failing = session.range(9).selectExpr("if(id > 3, raise_error('no'), id) AS id")
    with pytest.raises(Exception, match="no"):
        failing.write.mode("overwrite").parquet(str(path))
    # Spark aborts the job while its other task may still be writing.
    wait_for_tasks(session)
    assert ids(session, path) == list(range(5))
    assert isinstance(list(output_at(path).records())[-1], AbortRecord)
    output_at(path).gc(older_than=0)
    assert hidden(path) == []
    session.range(7).write.mode("overwrite").parquet(str(path))
    assert ids(session, path) == list(range(7))


def test_an_error_of_the_commit_is_named_in_the_error_of_spark(
    session: SparkSession, tmp_path: Path
) -> None:
    """Spark's error contains ours, the old rows are still there, and the adopted files are dropped."""
    path = tmp_path / "out"
    session.range(5).write.parquet(str(path))
    with (
        trapped(session, str(path), None, Trap(at="record", what="refuse")),
        pytest.raises(Exception, match=r"commitlog\.errors\.Unavailable: a trap"),
    ):
        session.range(9).write.mode("overwrite").parquet(str(path))
    assert ids(session, path) == list(range(5))
    assert hidden(path) == []


def test_concurrent_jobs_are_both_committed(session: SparkSession, tmp_path: Path) -> None:
    """Two concurrent appends to one directory lose no row. With Spark's own committer they do."""
    path = tmp_path / "out"
    failures: list[BaseException] = []

    def append(start: int) -> None:
        try:
            session.range(start, start + 50).write.mode("append").parquet(str(path))
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=append, args=(start,)) for start in (0, 50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert ids(session, path) == list(range(100))


def test_a_job_id_is_committed_once(session: SparkSession, tmp_path: Path) -> None:
    """A second job with the same id raises before a task runs, or adds nothing if so configured."""
    path = tmp_path / "out"

    def write(**options: str) -> None:
        given = {f"spark.commitlog.{name}": value for name, value in options.items()}
        session.range(5).write.mode("append").options(**given).parquet(str(path))

    write(jobId="daily")
    with pytest.raises(Exception, match=r"commitlog\.errors\.JobAlreadyCommitted: job 'daily'"):
        write(jobId="daily")
    write(jobId="daily", onDuplicate="skip")
    assert ids(session, path) == list(range(5))
    assert hidden(path) == []

    session.sparkContext.setLocalProperty("spark.commitlog.jobId", "of the thread")
    try:
        write()
    finally:
        session.sparkContext.setLocalProperty("spark.commitlog.jobId", None)  # type: ignore[arg-type]
    assert output_at(path).snapshot().jobs == ("daily", "of the thread")

    with pytest.raises(Exception, match=r"unknown setting spark\.commitlog\.colour; known: .*jobId"):
        write(colour="blue")


def test_a_job_id_applies_to_one_write_to_a_table(session: SparkSession, tmp_path: Path) -> None:
    """The options of saveAsTable apply to that write, although Spark stores them in the table."""
    path = tmp_path / "t"

    def save(number: int, job_id: str | None, *, on_duplicate: str = "error") -> None:
        options = {"path": str(path), "spark.commitlog.onDuplicate": on_duplicate}
        options |= {} if job_id is None else {"spark.commitlog.jobId": job_id}
        rows = session.range(number, number + 1).write.mode("append").options(**options)
        rows.format("parquet").saveAsTable("kept")

    try:
        save(0, "a", on_duplicate="skip")
        save(1, "b")
        save(2, None)
        session.sql("INSERT INTO kept VALUES (3)")
        assert ids(session, path) == [0, 1, 2, 3]
        with pytest.raises(Exception, match="JobAlreadyCommitted: job 'b'"):
            save(4, "b")
        save(4, "a", on_duplicate="skip")
        session.conf.set("spark.commitlog.jobId", "c")
        session.sql("INSERT INTO kept VALUES (5)")
        session.conf.unset("spark.commitlog.jobId")
        session.sparkContext.setLocalProperty("spark.commitlog.jobId", "d")
        session.sql("INSERT INTO kept VALUES (6)")
    finally:
        session.conf.unset("spark.commitlog.jobId")
        session.sparkContext.setLocalProperty("spark.commitlog.jobId", None)  # type: ignore[arg-type]
        session.sql("DROP TABLE IF EXISTS kept")
    assert ids(session, path) == [0, 1, 2, 3, 5, 6]
    assert output_at(path).snapshot().jobs == ("a", "b", "c", "d")


def test_a_job_id_in_sql_applies_to_one_statement(session: SparkSession, tmp_path: Path) -> None:
    """CREATE TABLE AS SELECT commits with the job id of its options; a later INSERT has no job id."""
    options = "OPTIONS('spark.commitlog.jobId'='x', 'spark.commitlog.visibility'='listed')"
    for name, made in {"filled": " AS SELECT 1L AS id", "empty": ""}.items():
        columns = "" if made else "(id BIGINT) "
        session.sql(
            f"CREATE TABLE {name} {columns}USING parquet {options} LOCATION '{tmp_path / name}'{made}"
        )
        try:
            for _ in range(2):
                session.sql(f"INSERT INTO {name} VALUES (7)")
            session.sql(f"INSERT OVERWRITE {name} VALUES (8)")
        finally:
            session.sql(f"DROP TABLE {name}")
        assert ids(session, tmp_path / name) == [8]
    assert output_at(tmp_path / "filled").snapshot().jobs == ("x",)
    assert output_at(tmp_path / "empty").snapshot().jobs == ()


def test_the_data_source_reads_files_that_no_listing_shows(
    session: SparkSession, tmp_path: Path
) -> None:
    """With visibility=logged a listing shows no file, and the data source reads all of them."""
    path = tmp_path / "out"
    session.conf.set(VISIBILITY, "logged")
    rows = numbers(session, 0, 6).selectExpr("*", "timestamp '2026-11-21 12:00:00Z' AS t")
    rows.write.partitionBy("k").parquet(str(path))
    rows.where("id = 0").write.mode("append").partitionBy("k").parquet(str(path))

    assert list(path.glob("part-*")) == list(path.glob("k=*")) == []
    read = session.read.format("commitlog").load(str(path))
    assert read.schema.simpleString() == "struct<id:bigint,s:string,t:timestamp,k:string>"
    assert sorted((row.id, row.k) for row in read.collect()) == sorted(
        (n, str(n % 3)) for n in (0, 0, 1, 2, 3, 4, 5)
    )
    instant = datetime.datetime(2026, 11, 21, 12, tzinfo=datetime.UTC)
    assert {row.t.astimezone(datetime.UTC) for row in read.collect()} == {instant}

    failing = session.range(9).selectExpr(
        "if(id > 3, raise_error('no'), id) AS id", "'x' AS s", "0 AS k"
    )
    with pytest.raises(Exception, match="no"):
        failing.write.mode("overwrite").partitionBy("k").parquet(str(path))
    wait_for_tasks(session)
    output_at(path).gc(older_than=0)
    files = output_at(path).snapshot().files
    assert len(hidden(path)) == len(files)
    assert read.count() == 7


def test_files_without_a_log_are_overwritten(session: SparkSession, tmp_path: Path) -> None:
    """An overwrite removes files that were written without a log, once the job is committed."""
    path = tmp_path / "out"
    session.conf.unset(CLASS)
    session.range(5).write.parquet(str(path))
    session.conf.set(CLASS, COMMIT_PROTOCOL)
    session.range(7, 9).write.mode("append").parquet(str(path))
    assert ids(session, path) == [0, 1, 2, 3, 4, 7, 8]
    session.range(2).write.mode("overwrite").parquet(str(path))
    assert ids(session, path) == [0, 1]


@pytest.mark.all
def test_partitions_by_timestamp_are_refused(session: SparkSession, tmp_path: Path) -> None:
    """Spark names such directories in the session's time zone, and the name does not say which zone."""
    path = str(tmp_path / "out")
    rows = session.sql("SELECT 1 AS n, timestamp'2013-07-10 02:30:00' AS at, date'2013-03-10' AS day")
    write(rows, path, partition_by=["day", "at"])
    with pytest.raises(
        Exception, match="NotSupported: the value '2013-07-10 02:30:00' of partition col"
    ):
        rows.write.mode("append").partitionBy("day", "at").parquet(path)
    write(rows, f"{path} by day", partition_by=["day"])
    rows.write.mode("append").partitionBy("day").parquet(f"{path} by day")
    read = session.read.format("commitlog").load(f"{path} by day")
    assert read.distinct().collect() == rows.collect()


def test_a_column_of_another_type_is_refused(session: SparkSession, tmp_path: Path) -> None:
    """An append may add columns; a column of another type is refused before a task runs."""
    path = tmp_path / "out"
    session.range(3).write.parquet(str(path))
    session.range(3).selectExpr("id", "'x' AS s").write.mode("append").parquet(str(path))
    with pytest.raises(Exception, match=r"ConfigurationError: the output has the columns struct<id"):
        session.range(3).selectExpr("'x' AS id").write.mode("append").parquet(str(path))
    read = session.read.format("commitlog").load(str(path))
    assert sorted((row.id, row.s or "") for row in read.collect()) == [
        (0, ""), (0, "x"), (1, ""), (1, "x"), (2, ""), (2, "x"),
    ]  # fmt: skip


def test_types_of_spark_alone_are_kept(session: SparkSession, tmp_path: Path) -> None:
    """They are in the log, are no other type, and a compaction leaves their files alone."""
    path = str(tmp_path / "out")
    session.range(1).selectExpr("id", "7L AS a").write.parquet(path)
    interval = session.range(1, 2).selectExpr("id", "INTERVAL '1' SECOND AS a", "NULL AS n")
    with pytest.raises(Exception, match="the rows to append have struct<id:bigint,a:interval second"):
        interval.write.mode("append").parquet(path)
    for _ in range(2):
        interval.withColumnRenamed("a", "i").write.mode("append").parquet(path)
    second = datetime.timedelta(seconds=1)
    rows = [(0, 7, None, None), *[(1, None, second, None)] * 2]
    record = compact(session, path)
    assert record is not None and len(record.replaced) == 2  # those of the first job
    assert sorted(session.read.format("commitlog").load(path).collect()) == rows
    assert sorted(read(session, path).collect()) == rows
    interval.write.mode("overwrite").parquet(path)
    assert session.read.format("commitlog").load(path).collect() == [(1, second, None)]


@pytest.mark.all
def test_a_dropped_partition_is_emptied_in_the_log(session: SparkSession) -> None:
    """Log readers fail on its missing files until the partition is overwritten without rows."""
    session.sql("CREATE TABLE dropping (id BIGINT, k INT) USING parquet PARTITIONED BY (k)")
    try:
        session.sql("INSERT INTO dropping VALUES (1, 1), (2, 2)")
        described = session.sql("DESCRIBE FORMATTED dropping").where("col_name = 'Location'").collect()
        path = described[0].data_type.removeprefix("file:")
        session.sql("ALTER TABLE dropping DROP PARTITION (k = 1)")
        assert [tuple(row) for row in session.table("dropping").collect()] == [(2, 2)]
        with pytest.raises(Exception, match=r"commitlog\.errors\.NotFound"):
            session.read.format("commitlog").load(path).collect()
        session.sql("INSERT OVERWRITE dropping PARTITION (k = 1) SELECT 1L WHERE false")
        read = session.read.format("commitlog").load(path).collect()
        assert [tuple(row) for row in read] == [(2, "2")]
    finally:
        session.sql("DROP TABLE dropping")


def test_partitions_outside_the_output_are_refused(session: SparkSession, tmp_path: Path) -> None:
    """A partition whose location is outside the output is not touched."""
    path = tmp_path / "t"
    session.sql(f"CREATE TABLE scattered (id BIGINT, k INT) USING parquet PARTITIONED BY (k)"
                f" LOCATION '{path}'")  # fmt: skip
    try:
        session.sql(f"ALTER TABLE scattered ADD PARTITION (k = 1) LOCATION '{tmp_path / 'far'}'")
        with pytest.raises(Exception, match=r"far is not below the output"):
            session.sql("INSERT INTO scattered VALUES (1, 1)")
    finally:
        session.sql("DROP TABLE scattered")


@pytest.mark.parametrize("visibility", ["listed", "logged"])
def test_another_class_than_s3a_is_refused(session: SparkSession, visibility: str) -> None:
    """If another file system serves s3a://, the error names it before a task runs."""
    other = "org.apache.hadoop.fs.http.HttpFileSystem"
    hadoop = session.sparkContext._jsc.hadoopConfiguration()  # type: ignore[attr-defined]
    settings = {"fs.s3a.impl": other, "fs.s3a.impl.disable.cache": "true"}
    usual = {name: hadoop.get(name) for name in settings}
    rows = session.range(1).selectExpr("raise_error('a task runs') AS id")
    session.conf.set(VISIBILITY, visibility)
    for name, value in settings.items():
        hadoop.set(name, value)
    try:
        with pytest.raises(Exception, match="NotSupported: s3a:// is served by") as raised:
            rows.write.mode("append").parquet("s3a://bucket/out")
    finally:
        for name, value in usual.items():
            hadoop.unset(name) if value is None else hadoop.set(name, value)
    assert f"is served by {other}, not by Hadoop's S3A; nothing was written" in str(raised.value)


def test_a_builder_of_spark_connect_is_refused() -> None:
    """The error says that the server must be configured."""
    from pyspark.sql import SparkSession

    builder = configure(SparkSession.builder.remote("sc://localhost:1"))
    with pytest.raises(NotSupported, match=r"configure the server with the jar"):
        builder.getOrCreate()


SCRIPT = """
import sys
from pyspark.sql import SparkSession
import commitlog.spark

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
if sys.argv[2] == "plain":
    builder.getOrCreate()
if sys.argv[2] == "killed":
    builder.config("spark.commitlog.python", sys.argv[3])
spark = commitlog.spark.configure(builder).getOrCreate()
spark.range(3).write.mode("append").parquet(sys.argv[1])
"""


#: An agent that kills its driver, when it is about to commit a job.
KILLER = """
import os, signal
from commitlog.outputs import Output
from commitlog.spark.committer import agent
Output.commit = lambda *_, **options: os.kill(os.getppid(), signal.SIGKILL)
agent.main()
"""


def drive(path: Path, how: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a separate driver that writes three rows to `path`."""
    run = [sys.executable, "-c", SCRIPT, str(path), how, *arguments]
    return subprocess.run(run, cwd=path.parent, capture_output=True, text=True, check=False)


@pytest.mark.campaign
def test_one_line_configures_a_session(tmp_path: Path) -> None:
    """A session of a configured builder commits its writes to an output."""
    done = drive(tmp_path / "out", "configured")
    assert done.returncode == 0, done.stderr
    assert [record.version for record in output_at(tmp_path / "out").log()] == [1]


@pytest.mark.all
def test_a_jvm_without_the_jar_is_refused(tmp_path: Path) -> None:
    """A session that is already running cannot be configured; `configure` raises an error."""
    done = drive(tmp_path / "out", "plain")
    assert "ConfigurationError: Spark's JVM was started without the committer's jar" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.campaign
def test_a_driver_that_is_killed_leaves_nothing_visible(session: SparkSession, tmp_path: Path) -> None:
    """Its adopted, uncommitted files are dropped, and a rerun writes each row once."""
    path = tmp_path / "out"
    session.range(10, 12).write.parquet(str(path))
    done = drive(path, "killed", agent_interpreter(tmp_path / "agent", f"exec({KILLER!r})"))
    assert done.returncode and "JobAborted" not in done.stderr
    assert ids(session, path) == [10, 11]
    assert len(hidden(path)) > 0
    output_at(path).gc(older_than=0)
    assert hidden(path) == []
    session.range(3).write.mode("append").parquet(str(path))
    assert ids(session, path) == [0, 1, 2, 10, 11]


def test_configured_jars_are_kept() -> None:
    """`configure` adds its jar to the jars that the builder already has."""
    from pyspark.sql import SparkSession

    builder = configure(SparkSession.builder.config("spark.jars", "/a.jar,/b.jar"))
    jars = builder._options["spark.jars"].split(",")
    assert jars[:2] == ["/a.jar", "/b.jar"] and jars[2].endswith(".jar") and len(jars) == 3
