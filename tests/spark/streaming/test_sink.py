"""The streaming sink in a real Spark: batches of a query after restarts, replays and crashes."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark.cloudpickle
import pytest
from attrs import field, frozen
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql.types import StructType

from commitlog.commit.record import LEASE_SCHEMA
from commitlog.outputs import Output
from commitlog.spark import CommitlogDataSource
from commitlog.spark.stream_writer import CommitlogStreamWriter
from commitlog.spark.targets.output import ReadOptions
from commitlog.spark.tasks import TaskCommitted
from commitlog.tables.open import open_table
from commitlog.urls import parse_table_url
from support.selection import in_campaigns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from support.servers import Ministack

pytestmark = pytest.mark.spark

# Workers cannot import test modules.
pyspark.cloudpickle.register_pickle_by_value(sys.modules[__name__])


@frozen
class Stream:
    """A query that copies the numbers in the files of a directory to an output.

    Attributes:
        scratch: the directory of the input and of the checkpoint.
        url: of the output.
        place: options with which the output is opened.
    """

    scratch: Path
    url: str
    place: Mapping[str, str] = field(repr=False)

    @property
    def checkpoint(self) -> Path:
        return self.scratch / "checkpoint"

    def feed(self, *numbers: int, columns: str = "id") -> None:
        """Add an input file. Each file becomes a batch, in the order of the file times."""
        path = self.scratch / "input" / f"{numbers[0]}.parquet"
        path.parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({columns: list(numbers)}), path)
        os.utime(path, (1_000_000_000 + numbers[0],) * 2)

    def run(
        self, spark: SparkSession, *columns: str, source: str = "commitlog", **options: str
    ) -> StreamingQuery:
        """Run the query until it has read all input; return it, or raise the error that ended it."""
        rows = spark.readStream.schema("id bigint").option("maxFilesPerTrigger", 1)
        query = (
            rows.parquet(str(self.scratch / "input"))
            .selectExpr(*(columns or ["id"]))
            .writeStream.format(source)
            .queryName("copy")
            .trigger(availableNow=True)
            .options(**{"checkpointLocation": str(self.checkpoint), **self.place, **options})
            .start(self.url)
        )
        try:
            query.awaitTermination()
        finally:
            query.stop()
        return query

    def forget_commit(self, batch: int) -> None:
        """Set the checkpoint back to its state if Spark dies right after our commit of `batch`."""
        for name in (str(batch), f".{batch}.crc"):
            (self.checkpoint / "commits" / name).unlink()

    def output(self) -> Output:
        return Output(ReadOptions.parse({**self.place, "path": self.url}).open())

    def check(self, spark: SparkSession, numbers: range, jobs: list[str]) -> None:
        """Check that the output has each number once, from these jobs, and nothing else."""
        output = self.output()
        with output.store:
            assert [record.job_id for record in output.log()] == jobs
            snapshot = output.snapshot(roll_forward=False)
            assert snapshot.rows == len(numbers)
            left = [info.path for info in output.store.list()]
            assert {path for path in left if not path.startswith("_")} == {
                file.path for file in snapshot.files
            }
            assert [path for path in left if path.startswith("_commitlog/pending/")] == []
            assert list(output.store.list_staged()) == []
        read = spark.read.format("commitlog").options(**self.place).load(self.url)
        assert sorted(row.id for row in read.select("id").collect()) == list(numbers)


@pytest.fixture
def local(tmp_path: Path) -> Stream:
    """A stream to a directory."""
    return Stream(tmp_path, str(tmp_path / "out"), {})


@pytest.fixture
def stream(request: pytest.FixtureRequest, local: Stream) -> Stream:
    """A stream to a directory, or to S3 with leases in DynamoDB."""
    if request.param == "local":
        return local
    server: Ministack = request.getfixturevalue("ministack")
    table = server.new_table_name()
    leases = parse_table_url(f"dynamodb://{table}").with_options(server.options)
    open_table(leases, LEASE_SCHEMA).create()
    # The shortest lease, because the test waits for the lease of a dead driver.
    place = {**server.options, "commit": f"dynamo:{table}:3000"}
    return Stream(local.scratch, f"s3://{server.new_bucket()}/out", place)


def jobs_of(query: StreamingQuery, count: int) -> list[str]:
    """Return the job ids of the first batches of a query."""
    return [f"{query.id}/{batch}" for batch in range(count)]


@pytest.mark.parametrize(
    "stream", ["local", in_campaigns("s3", marks=[pytest.mark.servers])], indirect=True
)
def test_each_batch_is_committed_once(spark: SparkSession, stream: Stream) -> None:
    """Each batch is a job named after its query and number, and a restart continues with the next one.

    A batch whose commit Spark has not recorded runs again, adds no row and drops its staged files.
    """
    stream.feed(0, 1)
    stream.feed(2, 3)
    query = stream.run(spark)
    stream.check(spark, range(4), jobs_of(query, 2))

    stream.forget_commit(1)
    stream.feed(4, 5)
    again = stream.run(spark)
    assert again.id == query.id
    assert [progress["batchId"] for progress in again.recentProgress] == [1, 2]
    stream.check(spark, range(6), jobs_of(query, 3))


def test_another_query_is_another_stream(spark: SparkSession, local: Stream) -> None:
    """A query without its checkpoint is a new query, and its batches have their own job ids."""
    local.feed(0, 1)
    first = local.run(spark)
    local.checkpoint.rename(local.scratch / "kept")
    (local.scratch / "input" / "0.parquet").unlink()
    local.feed(2, 3)
    second = local.run(spark)
    assert first.id != second.id
    local.check(spark, range(4), jobs_of(first, 1) + jobs_of(second, 1))


def test_batches_may_be_partitioned_and_logged(spark: SparkSession, local: Stream) -> None:
    """Partition columns become directories, and an output with visibility=logged keeps it."""
    local.feed(0, 1, 2)
    options = {"partitionBy": "odd", "fileFormat": "json"}
    local.run(spark, "id", "id % 2 as odd", visibility="logged", **options)
    local.feed(3)
    local.run(spark, "id", "id % 2 as odd", **options)
    output = local.output()
    with output.store:
        records = list(output.log())
        assert [record.visibility for record in records] == ["logged"] * 2
        partitions = [file.partition["odd"] for record in records for file in output.files(record)]
        assert sorted(partitions) == ["0", "1", "1"]
    assert list(Path(local.url).glob("part-*")) == list(Path(local.url).glob("odd=*")) == []
    read = spark.read.format("commitlog").load(local.url)
    assert sorted(map(tuple, read.collect())) == [(0, 0), (1, 1), (2, 0), (3, 1)]


@pytest.mark.all
def test_new_columns_end_the_query_unless_merged(spark: SparkSession, local: Stream) -> None:
    """A batch with other columns fails with our error, and succeeds with mergeSchema."""
    local.feed(0, 1)
    query = local.run(spark)
    local.feed(2, 3)
    with pytest.raises(
        StreamingQueryException, match=r"errors\.ConfigurationError: the output has the columns"
    ):
        local.run(spark, "id", "'a' as more")
    local.check(spark, range(2), jobs_of(query, 1))
    local.run(spark, "id", "'a' as more", mergeSchema="true")
    local.check(spark, range(4), jobs_of(query, 2))
    assert spark.read.format("commitlog").load(local.url).where("more is null").count() == 2


@pytest.mark.campaign
def test_a_batch_that_fails_leaves_nothing_and_is_run_again(spark: SparkSession, local: Stream) -> None:
    """If a task uses up its retries, the query ends and leaves no staged file; a restart continues."""
    local.feed(0, 1)
    with pytest.raises(StreamingQueryException, match="not today"):
        local.run(spark, "if(id = 1, raise_error('not today'), id) as id")
    output = local.output()
    with output.store:
        assert list(output.log()) == list(output.store.list_staged()) == []
    query = local.run(spark)
    local.check(spark, range(2), jobs_of(query, 1))


@pytest.mark.all
def test_options_that_streams_do_not_support_are_refused(spark: SparkSession, local: Stream) -> None:
    """Output mode complete, and the options of batch queries, are refused before anything is written."""
    local.feed(0)
    rows = spark.readStream.schema("id bigint").parquet(str(local.scratch / "input"))
    writer = rows.groupBy("id").count().writeStream.format("commitlog").outputMode("complete")
    with pytest.raises(PySparkException, match="NotSupported: output mode 'complete' would replace"):
        writer.option("checkpointLocation", str(local.checkpoint)).start(local.url).awaitTermination()
    for option in ({"jobId": "daily"}, {"ifExists": "error"}, {"partitionOverwriteMode": "dynamic"}):
        with pytest.raises(PySparkException, match="ConfigurationError: options jobId, ifExists and"):
            local.run(spark, **option)
    assert not Path(local.url).exists()


def test_a_task_without_a_message_is_never_committed(local: Stream) -> None:
    """Leaving the task out would lose its rows. `abort` treats it as a task that did not finish."""
    source = CommitlogDataSource({"path": local.url})
    writer = source.streamWriter(StructType().add("id", "long"), False)
    assert isinstance(writer, CommitlogStreamWriter)
    output = local.output()
    with output.store:
        message = TaskCommitted(output.begin(), ())
        with pytest.raises(AttributeError):
            writer.commit([message, None], 0)
        writer.abort([message, None], 0)
        assert list(output.log()) == []
