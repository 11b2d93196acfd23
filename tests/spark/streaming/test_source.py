"""Following an output with Spark: positions, columns, formats, replaced files and expired versions."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from attrs import frozen
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from commitlog.errors import (
    ConfigurationError,
    NotFound,
    RowsReplaced,
    StateMismatch,
    UnknownColumns,
)
from commitlog.outputs import Output
from commitlog.spark import CommitlogDataSource, compact
from commitlog.spark.schema import dump_schema
from commitlog.spark.stream_reader import CommitlogStreamReader
from commitlog.spark.targets.output import ReadOptions, TailOptions
from support.spark_status import started

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

IDS = StructType().add("id", "long")
MORE = StructType().add("id", "long").add("more", "string")


@frozen
class Place:
    """An output in a directory, with methods to follow it without Spark."""

    url: str

    def open(self) -> Output:
        """Open the output."""
        return Output(ReadOptions.parse({"path": self.url}).open())

    def add(self, ids: Iterable[int], columns: StructType = IDS, **options: Any) -> None:
        """Commit a job with a file for each of `ids`."""
        output = self.open()
        with output.store:
            job = output.begin(schema=dump_schema(columns), **options)
            files = []
            for number, each in enumerate(ids):
                body = io.BytesIO()
                more = {field.name: [str(each)] for field in columns if field.name != "id"}
                pq.write_table(pa.table({"id": [each], **more}), body)
                name = job.file_name(number, suffix=".parquet")
                files.append(output.stage(job, name, body.getvalue(), rows=1))
            output.commit(job, files)

    def source(self, **options: str) -> CommitlogDataSource:
        """Return the data source in the form that Spark creates."""
        return CommitlogDataSource({"path": self.url, **options})

    def tail(self, schema: StructType | None = None, **options: str) -> CommitlogStreamReader:
        """Return the reader that Spark creates for `load`, or for ``schema(schema).load``."""
        source = self.source(**options)
        if schema is None:
            schema = source.schema()
        return pickle.loads(pickle.dumps(source)).streamReader(schema)


def rows(
    tail: CommitlogStreamReader, start: dict[str, Any], end: dict[str, Any]
) -> list[dict[str, Any]]:
    """Return the rows between two offsets, read by pickled copies of the reader."""
    copy = CommitlogStreamReader(
        tail._open_output, tail._options, tail._columns, inferred=tail._inferred
    )
    return [
        row
        for partition in pickle.loads(pickle.dumps(tail.partitions(start, end)))
        for batch in pickle.loads(pickle.dumps(copy)).read(partition)
        for row in batch.to_pylist()
    ]


def follow(tail: CommitlogStreamReader, start: dict[str, Any]) -> tuple[list[list[int]], dict[str, Any]]:
    """Return the ids that a query reads in each batch, and its last offset."""
    batches = []
    while (end := tail.latestOffset(start, tail.getDefaultReadLimit())) != start:
        batches.append([row["id"] for row in rows(tail, start, end)])
        start = end
    return batches, end


def ids(tail: CommitlogStreamReader, start: dict[str, Any]) -> list[int]:
    """Return the ids that a query reads in all batches."""
    return [each for batch in follow(tail, start)[0] for each in batch]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """An output that does not exist yet."""
    return Place(str(tmp_path / "out"))


# -- options -----------------------------------------------------------------------------------------


def test_options_of_streams_and_of_batches(place: Place) -> None:
    """Options of streams have defaults. Batch queries and streams refuse each other's options."""
    options = TailOptions.parse({"path": "/out"})
    found = options.starting, options.on_rewrite, options.max_files, options.max_bytes
    assert found == ("all", "fail", 1000, None)
    given = {"startingversion": "LATEST", "on_rewrite": "skip", "maxBytesPerTrigger": "10MB"}
    options = TailOptions.parse({"path": "/out", "maxFilesPerTrigger": "7", **given})
    found = options.starting, options.on_rewrite, options.max_files, options.max_bytes
    assert found == ("latest", "skip", 7, 10 * 1024**2)
    assert TailOptions.parse({"path": "/out", "startingVersion": "0"}).starting == 0
    with pytest.raises(ConfigurationError, match="give all, latest, or the number of a version"):
        TailOptions.parse({"path": "/out", "startingVersion": "-1"})
    place.add([1])
    with pytest.raises(ConfigurationError, match="option version is of batch queries"):
        place.tail(version="1")
    with pytest.raises(ConfigurationError, match="unknown option 'onRewrite'"):
        place.source(onRewrite="skip").reader(IDS)


# -- batches -----------------------------------------------------------------------------------------


def test_batches_are_limited_unless_spark_asks_for_all(place: Place) -> None:
    """Files and bytes limit a batch, unless Spark asks for all available data."""
    place.add(range(5))
    tail = place.tail(maxFilesPerTrigger="2")
    start = tail.initialOffset()
    assert follow(tail, start)[0] == [[0, 1], [2, 3], [4]]
    end = tail.latestOffset(start, ReadAllAvailable())
    assert len(rows(tail, start, end)) == 5
    assert tail.partitions(end, end) == []
    assert follow(place.tail(maxBytesPerTrigger="1"), start)[0] == [[n] for n in range(5)]
    tail.stop()


@pytest.mark.parametrize(
    ("starting", "expected"),
    [("all", [0, 1, 2, 3]), ("latest", [3]), ("0", [0, 1, 2, 3]), ("1", [2, 3])],
)
def test_a_query_begins_at_the_starting_version(
    place: Place, starting: str, expected: list[int]
) -> None:
    """It begins with all rows, with new rows only, or with the rows after a version."""
    place.add([0, 1])
    place.add([2])
    tail = place.tail(startingVersion=starting)
    start = tail.initialOffset()
    place.add([3])
    assert ids(tail, start) == expected
    assert tail.reportLatestOffset() == {"version": 3}


@pytest.mark.parametrize("starting", ["all", "latest", "0"])
def test_the_initial_offset_does_not_change_with_later_commits(place: Place, starting: str) -> None:
    """Spark asks for the initial offset before it plans the first batch, and again before it runs it."""
    place.add([0])
    tail = place.tail(startingVersion=starting, maxFilesPerTrigger="3")
    start = tail.initialOffset()
    place.add([1, 2, 3, 4])
    end = tail.latestOffset(start, tail.getDefaultReadLimit())
    expected = [1, 2, 3] if starting == "latest" else [0, 1, 2]
    assert [row["id"] for row in rows(tail, tail.initialOffset(), end)] == expected


@pytest.mark.parametrize("starting", ["all", "latest"])
@pytest.mark.parametrize("files", [1, 2, 3])
def test_a_first_batch_is_run_again_as_it_was_planned(place: Place, starting: str, files: int) -> None:
    """The process that planned the batch dies before its commit, and its successor finds more rows."""
    place.add([0, 1])
    options = {"startingVersion": starting, "maxFilesPerTrigger": f"{files}"}
    tail = place.tail(**options)
    start = tail.initialOffset()
    place.add([2, 3, 4, 5])
    end = tail.latestOffset(start, tail.getDefaultReadLimit())
    planned = [row["id"] for row in rows(tail, start, end)]
    place.add([6])
    again = place.tail(**options)
    assert [row["id"] for row in rows(again, again.initialOffset(), end)] == planned
    first = 2 if starting == "latest" else 0
    assert planned + ids(again, end) == list(range(first, 7))


@pytest.mark.parametrize("files", ["1", "2", "3"])
def test_a_first_batch_without_its_beginning_is_refused(place: Place, files: str) -> None:
    """If the checkpoint does not record where the batch begins, reading fails and no row is lost."""
    place.add([0, 1])
    tail = place.tail(maxFilesPerTrigger=files)
    start = tail.initialOffset()
    place.add([2, 3, 4, 5])
    end = tail.latestOffset(start, tail.getDefaultReadLimit())
    del end["begin"]
    again = place.tail()
    with pytest.raises(StateMismatch, match="from a snapshot before version 2"):
        rows(again, again.initialOffset(), end)


def test_available_now_reads_the_versions_from_before_its_start(place: Place) -> None:
    """With Trigger.AvailableNow, the next run reads later commits."""
    place.add([0])
    place.add([1])
    tail = place.tail(maxFilesPerTrigger="1")
    tail.prepareForTriggerAvailableNow()
    place.add([2])
    batches, end = follow(tail, tail.initialOffset())
    assert batches == [[0], [1]]
    tail = place.tail()
    tail.prepareForTriggerAvailableNow()
    assert follow(tail, end)[0] == [[2]]


def test_an_output_can_be_followed_before_its_first_commit(place: Place) -> None:
    """This needs a schema, because the output has none yet."""
    with pytest.raises(NotFound, match="nothing has been committed"):
        place.tail()
    tail = place.tail(IDS)
    start = tail.initialOffset()
    assert tail.latestOffset(start, tail.getDefaultReadLimit()) == start
    place.add([0, 1])
    assert follow(tail, start)[0] == [[0, 1]]


# -- columns -----------------------------------------------------------------------------------------


def test_new_columns_end_a_query_and_the_next_run_reads_them(place: Place) -> None:
    """The batch with the new column is not read without it. Earlier rows have null in it."""
    place.add([0])
    tail = place.tail()
    start = tail.initialOffset()
    place.add([1], MORE)
    end = tail.latestOffset(start, tail.getDefaultReadLimit())
    with pytest.raises(UnknownColumns, match=r"version 2 .* a column more string.*Start it again"):
        tail.partitions(start, end)
    again = rows(place.tail(), start, end)
    assert again == [{"id": 0, "more": None}, {"id": 1, "more": "1"}]


def test_a_query_with_a_schema_ignores_other_columns(place: Place) -> None:
    """A query that names its columns reads only those, also after other columns are added."""
    place.add([0], MORE)
    asked = StructType().add("more", "string")
    tail = place.tail(asked)
    start = tail.initialOffset()
    place.add([1], StructType([*MORE, *StructType().add("other", "string")]))
    end = tail.latestOffset(start, tail.getDefaultReadLimit())
    assert rows(tail, start, end) == [{"more": "0"}, {"more": "1"}]


def test_a_requested_column_must_exist(place: Place) -> None:
    """A query does not begin with a column that the output lacks or that has another type."""
    place.add([0])
    for asked in (MORE, StructType().add("id", "string")):
        with pytest.raises(ConfigurationError, match=r"the output has no (more|id) string; it has id"):
            place.tail(asked).initialOffset()


def test_a_column_of_another_type_is_not_read(place: Place) -> None:
    """An overwrite may change types. Rows from before it are not read with the new type."""
    place.add([0])
    tail = place.tail(IDS, onRewrite="added")
    start = tail.initialOffset()
    place.add([1], StructType().add("id", "string"), mode="overwrite")
    with pytest.raises(UnknownColumns, match=r"version 2 .* a column id string"):
        tail.partitions(start, tail.latestOffset(start, ReadAllAvailable()))


# -- replaced rows and expired versions -----------------------------------------------------------------


def test_a_commit_that_removes_rows_ends_a_query_by_default(place: Place) -> None:
    """The versions before it are read; then the error names the option with the choices."""
    place.add([0])
    tail = place.tail()
    start = tail.initialOffset()
    place.add([1])
    place.add([2], mode="overwrite", job_id="monthly")
    place.add([3])
    for choice, expected in ({"skip": [3], "added": [2, 3]}).items():
        again = place.tail(startingVersion="2", onRewrite=choice)
        assert ids(again, again.initialOffset()) == expected
    end = tail.latestOffset(start, ReadAllAvailable())
    assert end["version"] == 2
    with pytest.raises(RowsReplaced, match=r"version 3 \(job 'monthly', mode 'overwrite'\).*onRewrite"):
        tail.latestOffset(end, ReadAllAvailable())
    # The files of both versions were removed when they were replaced.
    (partition,) = tail.partitions(start, end)
    with pytest.raises(StateMismatch, match=r"is gone .*a later version replaced it.*'logged'"):
        list(tail.read(partition))


def merge(place: Place) -> None:
    """Rewrite the output as compaction does, from the view of a query that follows it."""
    output = place.open()
    with output.store:
        old = output.snapshot().files
        tables = [pq.read_table(io.BytesIO(output.store.get(output.locate(f)).data)) for f in old]
        body = io.BytesIO()
        pq.write_table(pa.concat_tables(tables), body)
        job = output.begin(mode="rewrite", replaces=[file.path for file in old])
        name = job.file_name(0, suffix=".parquet")
        output.commit(job, [output.stage(job, name, body.getvalue(), rows=len(old))])


def test_a_query_that_lags_behind_compaction_reads_logged_outputs_until_gc(place: Place) -> None:
    """Old files are kept for the query. Once gc has removed them, reading fails and no row is lost."""
    place.add([0], visibility="logged")
    tail = place.tail(maxFilesPerTrigger="1")
    start = tail.initialOffset()
    place.add([1])
    place.add([2])
    merge(place)
    place.add([3])
    assert follow(tail, start)[0] == [[0], [1], [2], [3]]
    middle = tail.latestOffset(start, tail.getDefaultReadLimit())
    output = place.open()
    with output.store:
        assert output.gc(older_than=0).removed == 3
    for begin in (start, middle):
        with pytest.raises(StateMismatch, match="is gone"):
            rows(tail, begin, tail.latestOffset(begin, tail.getDefaultReadLimit()))
    # A new query finds all rows in the merged file.
    again = place.tail()
    assert ids(again, again.initialOffset()) == [0, 1, 2, 3]


def test_without_roll_forward_only_complete_versions_are_read(place: Place) -> None:
    """A version that a dead driver left incomplete is not read until it is completed."""
    place.add([0])
    place.add([1])
    success = Path(place.url) / "_SUCCESS"
    before = success.read_bytes()
    place.add([2])
    success.write_bytes(before)
    tail = place.tail(rollForward="false")
    assert follow(tail, tail.initialOffset())[0] == [[0, 1]]
    assert success.read_bytes() == before
    tail = place.tail()
    assert follow(tail, tail.initialOffset())[0] == [[0, 1, 2]]


# -- a real Spark ------------------------------------------------------------------------------------


def copy(
    rows: DataFrame, target: Path, trigger: Mapping[str, Any] | None = None, **options: str
) -> StreamingQuery:
    """Start a query that writes `rows` to another output."""
    writer = rows.writeStream.format("commitlog").options(**options)
    writer = writer.option("checkpointLocation", str(target.parent / "checkpoint"))
    writer = writer.trigger(**(trigger or {"availableNow": True}))
    return started(lambda: writer.start(str(target)))


def run(rows: DataFrame, target: Path, **options: str) -> list[dict[str, Any]]:
    """Copy `rows` until there is nothing new; return Spark's progress reports of batches with rows."""
    query = copy(rows, target, **options)
    try:
        query.awaitTermination()
    finally:
        query.stop()
    return [progress for progress in query.recentProgress if progress["numInputRows"]]


def read(spark: SparkSession, url: str) -> list[tuple[Any, ...]]:
    """Return the rows of an output, sorted."""
    return sorted(map(tuple, spark.read.format("commitlog").load(url).collect()), key=str)


@pytest.mark.all
@pytest.mark.spark
def test_a_query_continues_where_it_stopped(spark: SparkSession, place: Place, tmp_path: Path) -> None:
    """The checkpoint holds the position of the query, and its progress shows how far it lags.

    New columns end the query until it is started again.
    """
    place.add(range(5))
    follow = spark.readStream.format("commitlog").option("maxFilesPerTrigger", 2)
    first = run(follow.load(place.url), tmp_path / "copy")
    assert [progress["numInputRows"] for progress in first] == [2, 2, 1]
    assert first[0]["sources"][0]["latestOffset"] == '{"version": 1}'
    place.add([5])
    rows = follow.load(place.url)
    place.add([6], MORE)
    with pytest.raises(StreamingQueryException, match=r"errors\.UnknownColumns: version 3"):
        run(rows, tmp_path / "copy")
    (second,) = run(follow.load(place.url), tmp_path / "copy", mergeSchema="true")
    (source,) = second["sources"]
    assert second["batchId"] == 3
    assert '"version": 1' in source["startOffset"]
    expected = [(n, "6" if n == 6 else None) for n in range(7)]
    assert read(spark, str(tmp_path / "copy")) == expected
    assert run(follow.load(place.url), tmp_path / "copy", mergeSchema="true") == []


@pytest.mark.campaign
@pytest.mark.spark
@pytest.mark.parametrize("visibility", ["listed", "logged"])
def test_all_formats_and_partitions(
    spark: SparkSession, place: Place, tmp_path: Path, visibility: str
) -> None:
    """The query reads the same rows as a batch query, from files of every format."""
    for number, kind in enumerate(["parquet", "orc", "json", "arrow", "csv"]):
        first = 10 * number
        rows = spark.range(first, first + 10, 1, 2).selectExpr(
            "id", "if(id % 3 = 0, null, concat('ü ', id)) AS text", "id % 2 AS odd",
            "timestamp_seconds(id) AS at",
        )  # fmt: skip
        options = {"fileFormat": kind, "partitionBy": "odd", "visibility": visibility}
        rows.write.format("commitlog").mode("append").options(**options).save(place.url)
    rows = spark.readStream.format("commitlog").option("maxFilesPerTrigger", 7).load(place.url)
    assert len(run(rows, tmp_path / "copy")) == 3
    copied = read(spark, str(tmp_path / "copy"))
    assert copied == read(spark, place.url)
    assert len(copied) == 50


@pytest.mark.spark
def test_writers_compaction_and_gc_during_a_query(
    spark: SparkSession, place: Place, tmp_path: Path
) -> None:
    """Each row is copied once, in any order of the commits."""
    place.add([0], visibility="logged")
    rows = spark.readStream.format("commitlog").option("maxFilesPerTrigger", 3).load(place.url)
    query = copy(rows, tmp_path / "copy", {"processingTime": "100 milliseconds"})
    try:
        for number in range(1, 13, 4):
            place.add(range(number, number + 4))
            if number == 5:
                query.processAllAvailable()
                assert compact(spark, place.url) is not None
                place.add([], mode="append")
                output = place.open()
                with output.store:
                    output.gc(older_than=0)
        query.processAllAvailable()
    finally:
        query.stop()
    assert read(spark, str(tmp_path / "copy")) == sorted(((n,) for n in range(13)), key=str)
