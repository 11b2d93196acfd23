"""Spark jobs that write to and read from directories of a namespace, with a real Spark and table."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark.cloudpickle
import pytest
from attrs import frozen
from py4j.protocol import Py4JJavaError
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import functions as f
from pyspark.sql.datasource import DataSourceArrowWriter
from pyspark.sql.types import StructType

from commitlog.errors import ConfigurationError, NotSupported
from commitlog.namespace import NAMESPACE_SCHEMA, Namespace
from commitlog.namespaces import create_namespace
from commitlog.spark import CommitlogDataSource, compact, physical_files, read, write
from commitlog.spark.session_conf import active
from commitlog.tables.open import open_table
from commitlog.urls import parse_store_url, parse_table_url
from support.selection import with_all
from support.spark_driver import Driver
from support.spark_gates import Gate, hold
from support.spark_namespace import ROWS, LakeJob, Stop
from support.spark_status import wait_for_all_but_one

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from support.servers import Ministack
    from support.spark_session import SparkLogs

pytestmark = pytest.mark.spark

# Workers cannot import test modules.
pyspark.cloudpickle.register_pickle_by_value(sys.modules[__name__])


@frozen
class Site:
    """A namespace, and the options with which Spark opens it."""

    lake: Namespace
    options: dict[str, str]

    def save(
        self, rows: DataFrame, path: str, mode: str = "append", source: str = "commitlog", **options: str
    ) -> None:
        """Write `rows` into a directory."""
        rows.write.format(source).mode(mode).options(**self.options, **options).save(self.url(path))

    def load(self, spark: SparkSession, path: str) -> DataFrame:
        """Return the rows in a directory."""
        return spark.read.format("commitlog").options(**self.options).load(self.url(path))

    def ids(self, spark: SparkSession, path: str) -> list[int]:
        """Return the ids of the rows in a directory, sorted."""
        return ids(self.load(spark, path))

    def url(self, path: str) -> str:
        """Return the URL of a directory for Spark."""
        return f"commitlog://lake/{path}"

    def objects(self) -> set[str]:
        """Return the paths of all objects except those of the log."""
        return {info.path for info in self.lake.store.list() if not info.path.startswith("_commitlog/")}

    def named(self) -> set[str]:
        """Return the paths of the objects that files refer to."""
        return {found.data.path for found in self.lake.walk() if found.data is not None}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A namespace in an SQLite file and a directory, with a log."""
    names = f"sqlite://{tmp_path}/names.db"
    with create_namespace("lake", store=f"file://{tmp_path}/store", metadata=names) as lake:
        yield Site(lake, {"metadata": names})


def numbers(spark: SparkSession, start: int = 0, end: int = 8) -> DataFrame:
    """Return some rows in two tasks."""
    return spark.range(start, end, 1, 2).select("id", (f.col("id") % 2).cast("int").alias("part"))


def ids(rows: DataFrame) -> list[int]:
    """Return the ids of rows, sorted."""
    return sorted(row.id for row in rows.collect())


def test_jobs_create_extend_and_replace_a_directory(
    spark: SparkSession, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs create, extend and replace a directory. Rows loaded before are still readable.

    `write` and `read` take the metadata store from the caller's environment, which Spark does not have.
    """
    site.save(numbers(spark), "a/out", partitionBy="part", jobId="one")
    assert {found.path for found in site.lake.list("a/out")} == {"a/out/part=0", "a/out/part=1"}
    first = site.load(spark, "a/out")
    assert first.dtypes == [("id", "bigint"), ("part", "int")]
    assert sorted(map(tuple, first.collect())) == [(n, n % 2) for n in range(8)]
    more, url = numbers(spark, 8, 10), site.url("a/out")
    with monkeypatch.context() as patch:
        patch.setenv("COMMITLOG_METADATA", site.options["metadata"])
        assert write(more, url, partition_by=["part"], job_id="two") is None
        part = read(spark, url, columns=["part"])
        with pytest.raises(ConfigurationError, match="it has id, part"):
            read(spark, url, columns=["nope"])
        with pytest.raises(NotSupported, match="in a namespace"):
            compact(spark, url)
    assert sorted(row.part for row in part.collect()) == [0] * 5 + [1] * 5
    assert site.ids(spark, "a/out") == list(range(10))
    assert ids(first) == list(range(8))
    assert ids(site.load(spark, "a/out").where("part = 1")) == [1, 3, 5, 7, 9]
    site.save(numbers(spark, 20, 22), "a/out", "overwrite", jobId="three")
    site.lake.maintenance.empty_trash()
    site.lake.maintenance.gc()
    assert site.ids(spark, "a/out") == [20, 21]
    assert ids(first) == list(range(8))
    site.lake.rename("a/out", "b")
    assert site.ids(spark, "b") == [20, 21]
    with pytest.raises(PySparkException, match=r"NotFound.*there is nothing at 'a/out'"):
        site.load(spark, "a/out")
    assert list(site.lake.list(".staging")) == []


@pytest.mark.campaign
def test_merge_schema_adds_columns(spark: SparkSession, site: Site) -> None:
    """With mergeSchema, columns that new or old rows lack are null."""
    site.save(numbers(spark, 0, 2), "out", ifExists="error", jobId="one")
    site.save(numbers(spark, 5, 6), "out", ifExists="ignore", jobId="two")
    site.save(numbers(spark, 5, 6), "out", onDuplicate="skip", jobId="one")
    wider = numbers(spark, 8, 9).drop("part").withColumn("text", f.lit("x"))
    site.save(wider, "out", mergeSchema="true")
    rows = site.load(spark, "out").select("id", "part", "text")
    assert sorted(map(tuple, rows.collect())) == [(0, 0, None), (1, 1, None), (8, None, "x")]
    with pytest.raises(PySparkException, match="JobAlreadyCommitted: job 'one' is at 'out'"):
        site.save(wider, "out", jobId="one")
    assert site.objects() == site.named()


class Failing(DataSourceArrowWriter):
    """A writer whose second task always fails once it has written all of its rows.

    The first attempt fails when a gate is opened.
    """

    def __init__(self, writer: DataSourceArrowWriter, port: int) -> None:
        self._writer = writer
        self._port = port
        self.commit = writer.commit  # type: ignore[method-assign]
        self.abort = writer.abort  # type: ignore[method-assign]

    def write(self, iterator: Iterator[Any]) -> Any:
        return self._writer.write(self._batches(iterator))

    def _batches(self, iterator: Iterator[Any]) -> Iterator[Any]:
        yield from iterator
        context = TaskContext.get()
        assert context is not None
        if context.partitionId() == 1:
            if context.attemptNumber() == 0:
                hold(self._port)
            raise RuntimeError("this attempt fails")


class FailingSource(CommitlogDataSource):
    """The data source with a `Failing` writer; the port of the gate is passed as the job id."""

    @classmethod
    def name(cls) -> str:
        return "commitlog-failing-lake"

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        return Failing(super().writer(schema, overwrite), int(self.options["jobId"]))


@pytest.mark.all
def test_a_job_whose_tasks_fail_leaves_nothing(spark: SparkSession, site: Site) -> None:
    """No directory, no file and no object of any attempt remains."""
    spark.dataSource.register(FailingSource)

    def fail(port: int) -> None:
        with active(spark):
            site.save(numbers(spark), "out", source="commitlog-failing-lake", jobId=str(port))

    with Gate() as gate, ThreadPoolExecutor(1) as pool:
        done = pool.submit(fail, gate.port)
        gate.wait(done)
        # Spark does not wait for running tasks when it gives up a job.
        wait_for_all_but_one(spark)
        gate.open()
        with pytest.raises(PySparkException, match="this attempt fails"):
            done.result()
    assert not site.lake.exists("out")
    assert list(site.lake.list(".staging")) == []
    assert site.objects() == set()


@pytest.mark.parametrize("after", [with_all(False), True])
def test_a_commit_that_fails_is_visible_whole_or_not_at_all(
    spark: SparkSession, site: Site, after: bool
) -> None:
    """Spark aborts the job. After the commit point all rows are there, before it none."""
    job = LakeJob(url=site.url("out"), options={**site.options, "jobId": "one"}, stop=Stop(after=after))
    with pytest.raises((Py4JJavaError, PySparkException)):
        job.run(spark)
    assert site.lake.exists("out") == after
    assert list(site.lake.list(".staging")) == []
    if after:
        assert site.ids(spark, "out") == list(range(ROWS))
        with pytest.raises(PySparkException, match="JobAlreadyCommitted"):
            site.save(numbers(spark), "out", jobId="one")


@pytest.mark.all
def test_a_job_of_a_killed_driver_is_visible_whole_or_not_at_all(
    spark: SparkSession, site: Site, tmp_path: Path
) -> None:
    """Before the commit point no row is there, after it all rows are. A rerun writes each row once."""
    site.save(spark.range(100, 101), "after")
    with Gate() as before, Gate() as after:
        stops = {
            "before": ("append", Stop(after=False, port=before.port)),
            "after": ("overwrite", Stop(after=True, port=after.port)),
        }
        jobs = [
            LakeJob(url=site.url(name), options={**site.options, "jobId": name}, mode=mode, stop=stop)
            for name, (mode, stop) in stops.items()
        ]
        with Driver(tmp_path, jobs, program="support.spark_namespace") as driver:
            for gate, job in zip((before, after), driver.jobs, strict=True):
                gate.wait(job)
            driver.kill()
        for gate in (before, after):
            gate.kill()
    assert not site.lake.exists("before")
    assert len(list(site.lake.list(".staging"))) == 1
    assert site.ids(spark, "after") == list(range(ROWS))
    for name, (mode, _) in stops.items():
        site.save(spark.range(ROWS), name, mode, jobId=name, onDuplicate="skip")
    rows = site.load(spark, "before").union(site.load(spark, "after"))
    assert ids(rows) == sorted([*range(ROWS), *range(ROWS)])


@pytest.mark.all
def test_foreign_files_are_read_and_extended(spark: SparkSession, site: Site) -> None:
    """Columns come from the files and from directory names, and jobs can add rows."""
    site.save(numbers(spark), "made", partitionBy="part")
    for found in list(site.lake.walk("made")):
        if not found.is_directory:
            site.lake.write(f"given/{found.path.removeprefix('made/')}", site.lake.read(found.path))
    site.lake.write("given/_SUCCESS", b"")
    rows = site.load(spark, "given")
    assert rows.dtypes == [("id", "bigint"), ("part", "bigint")]
    assert sorted(map(tuple, rows.collect())) == [(n, n % 2) for n in range(8)]
    more = numbers(spark, 8, 9).select("id", f.col("part").cast("long"))
    site.save(more, "given", partitionBy="part")
    assert site.ids(spark, "given") == list(range(9))
    own = spark.read.schema("id bigint").parquet(
        *physical_files(site.url("given"), options=site.options)
    )
    assert ids(own) == list(range(9))


def test_the_format_of_a_file_comes_from_its_name(spark: SparkSession, site: Site) -> None:
    """The name of a file in the namespace gives its format and compression."""
    for number, (kind, compression) in enumerate([("csv", "gzip"), ("orc", "zstd"), ("json", "none")]):
        rows = numbers(spark, number, number + 1)
        site.save(rows, "out", fileFormat=kind, compression=compression, sortBy="id")
    assert site.ids(spark, "out") == [0, 1, 2]


@pytest.mark.all
def test_each_batch_of_a_stream_is_there_once(spark: SparkSession, site: Site, tmp_path: Path) -> None:
    """This includes a batch whose commit Spark's checkpoint has lost."""
    for start in (0, 10):
        spark.range(start, start + 2, 1, 1).write.mode("append").parquet(str(tmp_path / "in"))

        def run() -> None:
            rows = spark.readStream.schema("id bigint").parquet(str(tmp_path / "in"))
            query = rows.writeStream.format("commitlog").trigger(availableNow=True)
            query = query.options(**site.options, checkpointLocation=str(tmp_path / "checkpoint"))
            started = query.start(site.url("out"))
            try:
                started.awaitTermination()
            finally:
                started.stop()

        run()
    for name in ("1", ".1.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink()
    run()
    assert site.ids(spark, "out") == [0, 1, 10, 11]


@pytest.mark.all
@pytest.mark.servers
def test_on_s3_and_dynamodb(spark: SparkSession, ministack: Ministack, spark_logs: SparkLogs) -> None:
    """Jobs work with credentials from options, and no log of Spark shows them."""
    place = {
        "endpoint_url": ministack.endpoint_url,
        "region": "us-east-1",
        "access_key_id": ministack.access_key_id,
        "secret_access_key": ministack.secret_access_key,
    }
    table = f"dynamodb://{ministack.new_table_name()}"
    names = parse_table_url(table).with_options(place)
    open_table(names, NAMESPACE_SCHEMA).create()
    bucket = f"s3://{ministack.new_bucket()}/lake"
    store = parse_store_url(bucket).with_options(place)
    spelled = {
        "endpointUrl": place["endpoint_url"],
        "region": place["region"],
        "accessKeyId": place["access_key_id"],
        "secretAccessKey": place["secret_access_key"],
    }
    options = {
        **spelled,
        "metadata": table,
        **{f"metadata.{name}": each for name, each in spelled.items()},
    }
    with create_namespace("lake", store=store, metadata=names) as lake:
        site = Site(lake, options)
        site.save(numbers(spark), "out", partitionBy="part", jobId="one")
        site.save(numbers(spark, 8, 10), "out", partitionBy="part", jobId="two")
        assert site.ids(spark, "out") == list(range(10))
        with pytest.raises(PySparkException, match="JobAlreadyCommitted"):
            site.save(numbers(spark), "out", partitionBy="part", jobId="two")
        assert site.objects() == site.named()
    for secret in (ministack.access_key_id, ministack.secret_access_key):
        assert secret not in spark_logs.text()
