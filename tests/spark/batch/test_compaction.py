"""Compaction of an output's files into larger files, in this process and by Spark."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

import commitlog
from commitlog.commit import ConditionalStore
from commitlog.errors import (
    Conflict,
    CorruptRecord,
    NotFound,
    NotSupported,
    OutcomeUnknown,
    Unavailable,
)
from commitlog.files import StoredObject, output_format_of
from commitlog.files.base import BATCH_ROWS
from commitlog.outputs import CommitRecord, Job, Output, StagedFile, Visibility
from commitlog.outputs.compaction import Group
from commitlog.spark.committer.configure import COMMIT_PROTOCOL
from commitlog.spark.compaction import Rewritten, Stage, compact_output, rewrite
from commitlog.spark.schema import dump_schema, nullable
from commitlog.spark.targets.output import WriteOptions
from commitlog.stores.memory import MemoryStore
from commitlog.tabular import OutputUploads, TaskFiles
from support.output_files import EVERY, rows_for
from support.outputs import visible
from support.selection import with_all

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROTOCOL = "spark.sql.sources.commitProtocolClass"
SCHEMA = pa.schema([pa.field("k", pa.string()), pa.field("v", pa.int64())])


@pytest.fixture
def output() -> Output:
    """A new output in memory."""
    return Output(ConditionalStore(MemoryStore()), "out")


def columns(schema: pa.Schema) -> str:
    """Return `schema` in the form that a commit record stores."""
    return dump_schema(nullable(from_arrow_schema(schema)))


def add(
    output: Output, *batches: pa.RecordBatch, visibility: Visibility | None = None, **options: str
) -> CommitRecord:
    """Commit a job with the rows of `batches`."""
    schema = batches[0].schema
    job = output.begin(schema=columns(schema), visibility=visibility)
    given = WriteOptions.parse({"path": "s3://bucket/out", **options}).job
    with TaskFiles(OutputUploads(output, job), 0, schema, given) as files:
        for batch in batches:
            files.write(batch)
        return output.commit(job, files.finish())


def rows(*keys: str | None, first: int = 0) -> pa.RecordBatch:
    """Return one row for each of `keys`."""
    return pa.record_batch([list(keys), list(range(first, first + len(keys)))], schema=SCHEMA)


def one_by_one(output: Output) -> Stage:
    """Return a stage that rewrites the groups one after another in this process."""

    def stage(job: Job, groups: Sequence[Group], schema: pa.Schema) -> list[Rewritten]:
        return [rewrite(output, job, n, group, schema) for n, group in enumerate(groups)]

    return stage


def merge(output: Output, **options: int) -> CommitRecord | None:
    """Compact the output in this process."""
    return compact_output(output, one_by_one(output), **options)


def content(output: Output, schema: pa.Schema = SCHEMA) -> list[dict[str, Any]]:
    """Return the rows of all files in order, with partition columns as text."""
    found: list[dict[str, Any]] = []
    for file in output.snapshot().files:
        kept = pa.schema([field for field in schema if field.name not in file.partition])
        path = output.locate(file)
        for batch in output_format_of(path).read(
            StoredObject(output.store, path, file.size), kept, kept.names
        ):
            found += ({**row, **file.partition} for row in batch.to_pylist())
    return found


@pytest.mark.parametrize(("name", "codec"), EVERY)
def test_every_format_keeps_rows_compression_and_statistics(
    output: Output, name: str, codec: str
) -> None:
    """Merging three files keeps all types, nulls and hostile text. The merged file has statistics."""
    batch = rows_for(name)
    if name == "orc":  # ORC cannot hold these columns
        batch = batch.select([n for n in batch.schema.names if n not in ("pairs", "date", "local")])
    options = {"fileFormat": name, "compression": codec}
    records = [add(output, batch.slice(0, 9), **options), add(output, batch.slice(9), **options)]
    records.append(add(output, batch, **options))
    before = content(output, batch.schema)
    record = merge(output)
    assert record is not None
    [file] = record.files
    assert str(content(output, batch.schema)) == str(before)  # NaN is not equal to itself
    assert file.rows == record.rows == 2 * batch.num_rows == len(before)
    old = [old for each in records for old in each.files]
    suffix = output_format_of(file.path).compressions[codec]
    assert all(each.path.endswith(f"-c000{suffix}") for each in (file, *old))
    assert file.stats.keys() == old[2].stats.keys()
    for column, (least, most, nulls) in old[2].stats.items():
        assert file.stats[column] == (least, most, 2 * (nulls or 0))


@pytest.mark.parametrize("visibility", ["listed", "logged"])
def test_each_partition_is_merged_separately(output: Output, visibility: Visibility) -> None:
    """Directories keep their names, also for null and for values that need escaping."""
    keys = ["a", None, "x/y=z", "%41", "ü ", "#"]
    for number in range(3):
        add(output, rows(*keys, first=number * 10), visibility=visibility, partitionBy="k")
    before = sorted(map(str, content(output)))
    directories = {path.rpartition("/")[0] for path in visible(output.store)}
    record = merge(output)
    assert record is not None
    assert len(record.files) == len(output.snapshot().files) == len(keys)
    assert sorted(map(str, content(output))) == before
    assert {file.partition["k"] for file in record.files} == set(keys)
    shown = visible(output.store)
    assert {path.rpartition("/")[0] for path in shown} == directories
    assert len(shown) == (len(keys) if visibility == "listed" else 0)
    assert merge(output) is None


def test_formats_and_compressions_are_not_mixed(output: Output) -> None:
    """Each format and each compression gets its own merged file."""
    for options in ({"compression": "zstd"}, {}, {"fileFormat": "json"}) * 2:
        add(output, rows("a"), **options)
    record = merge(output)
    assert record is not None
    endings = [file.path.rpartition("-c000")[2] for file in record.files]
    assert endings == [".zstd.parquet", ".snappy.parquet", ".json"]


def test_files_of_one_bucket_become_a_file_of_that_bucket(output: Output) -> None:
    """Spark reads the number of the bucket in the name, and fails if a file has none."""
    for bucket in ("_00001", "_00000") * 2:
        job = output.begin(schema=columns(SCHEMA))
        with OutputUploads(output, job).open_file(job.file_name(0, suffix=f"{bucket}.json")) as file:
            file.write(b'{"k":"a","v":1}\n')
            output.commit(job, [StagedFile(staged=file.finish(), rows=1)])
    record = merge(output)
    assert record is not None
    assert [file.path.rpartition("-c000")[2] for file in record.files] == ["_00001.json", "_00000.json"]


def test_columns_that_were_added_later_are_null_in_earlier_rows(output: Output) -> None:
    """After a column was added, files without it are merged with files that have it."""
    add(output, rows("a"))
    wider = SCHEMA.append(pa.field("w", pa.float64()))
    add(output, pa.record_batch([["b"], [1], [0.5]], schema=wider))
    assert merge(output) is not None
    assert content(output, wider) == [{"k": "a", "v": 0, "w": None}, {"k": "b", "v": 1, "w": 0.5}]


def test_targets_are_kept(output: Output) -> None:
    """Files are merged up to the target size, and only if there are at least `min_files`."""
    for number in range(5):
        add(output, rows("a", first=number))
    size = output.snapshot().files[0].size
    assert merge(output, target_bytes=3 * size, min_files=4) is None
    record = merge(output, target_bytes=3 * size, min_files=3)
    assert record is not None
    assert (len(record.replaced), len(output.snapshot().files)) == (3, 3)


# -- failures -------------------------------------------------------------------------------------------


def test_a_file_that_does_not_match_its_record_is_not_merged(output: Output) -> None:
    """If another program replaced a file, compaction fails with its name and changes nothing."""
    first = add(output, rows("a", "b"))
    second = add(output, rows("c"))
    [one], [two] = first.files, second.files
    output.store.put(output.locate(one), output.store.get(output.locate(two)).data)
    with pytest.raises((CorruptRecord, NotFound)) as error:
        merge(output)
    assert one.path in str(error.value)
    assert output.snapshot().version == 2
    assert list(output.store.list_staged()) == []


def test_a_file_that_cannot_be_read_to_its_end_is_not_merged(output: Output) -> None:
    """Its first rows are in the new file by then, so the others could not be left where they are."""
    schema = pa.schema([("t", pa.timestamp("us", tz="UTC"))])
    marks = {"version": "3.5.0", "legacyDateTime": "", "timeZone": "Europe/Berlin"}
    table = pa.table({"t": [0] * BATCH_ROWS + [-(2**52)]}, schema=schema)
    body = io.BytesIO()
    pq.write_table(
        table.replace_schema_metadata({f"org.apache.spark.{n}": text for n, text in marks.items()}), body
    )
    job = output.begin(schema=columns(schema))
    # Spark's own writers do not tell the number of rows.
    name = job.file_name(0, suffix=".snappy.parquet")
    output.commit(job, [output.stage(job, name, body.getvalue())])
    for value in (1, 2):
        add(output, pa.record_batch([[value]], schema=schema))
    with pytest.raises(NotSupported, match="a time before 1900"):
        merge(output)
    assert output.snapshot().version == 3
    assert list(output.store.list_staged()) == []


def test_an_output_without_a_schema_is_refused(output: Output) -> None:
    """Without a schema in the commits the files are left alone, and the error says why."""
    for name in ("a", "b"):
        job = output.begin(name)
        output.commit(job, [output.stage(job, job.file_name(0, suffix=".csv"), b"1\n")])
    with pytest.raises(NotSupported, match="commits without schema"):
        merge(output)


def test_files_of_an_unknown_format_are_left_alone(output: Output) -> None:
    """A file whose name shows no format stays, and the other files are merged."""
    add(output, rows("a"))
    job = output.begin("x")
    output.commit(job, [output.stage(job, job.file_name(0, suffix=".txt"), b"1\n")])
    add(output, rows("b"))
    record = merge(output)
    assert record is not None
    assert len(record.replaced) == 2
    assert len(output.snapshot().files) == 2


def meanwhile(output: Output, happens: Callable[[int], object]) -> tuple[Stage, list[int]]:
    """Return a stage that calls `happens` after staging, and the list of the numbers of its calls."""
    calls: list[int] = []

    def stage(job: Job, groups: Sequence[Group], schema: pa.Schema) -> list[Rewritten]:
        calls.append(len(calls))
        files = one_by_one(output)(job, groups, schema)
        happens(calls[-1])
        return files

    return stage, calls


def overwrite(output: Output, *keys: str) -> None:
    """Replace all files by one file per key."""
    job = output.begin(mode="overwrite", schema=columns(SCHEMA))
    files: list[StagedFile] = []
    for task, key in enumerate(keys):
        with TaskFiles(
            OutputUploads(output, job), task, SCHEMA, WriteOptions.parse({"path": "s3://bucket/out"}).job
        ) as made:
            made.write(rows(key))
            files += made.finish()
    output.commit(job, files)


def test_files_that_are_replaced_during_a_merge_are_planned_again(output: Output) -> None:
    """A concurrent overwrite is not undone; its files are merged instead."""
    add(output, rows("a"))
    add(output, rows("b"))
    stage, calls = meanwhile(output, lambda n: n or overwrite(output, "c", "d"))
    record = compact_output(output, stage)
    assert record is not None and len(record.files) == 1
    assert [row["k"] for row in content(output)] == ["c", "d"]
    assert calls == [0, 1]
    assert list(output.store.list_staged()) == []


def test_compaction_gives_up_after_the_third_conflict(output: Output) -> None:
    """If the files are replaced each time, compaction raises Conflict and leaves nothing staged."""
    add(output, rows("a"))
    add(output, rows("b"))
    stage, calls = meanwhile(output, lambda _: overwrite(output, "c", "d"))
    with pytest.raises(Conflict):
        compact_output(output, stage)
    assert calls == [0, 1, 2]
    assert [row["k"] for row in content(output)] == ["c", "d"]
    assert list(output.store.list_staged()) == []


def test_a_file_that_is_gone_before_it_is_read_is_planned_again(output: Output) -> None:
    """A task whose file another job replaced does not fail the compaction."""
    add(output, rows("a"))
    add(output, rows("b"))
    calls: list[int] = []

    def stage(job: Job, groups: Sequence[Group], schema: pa.Schema) -> list[Rewritten]:
        calls.append(1)
        if len(calls) == 1:
            overwrite(output, "c", "d")
        return one_by_one(output)(job, groups, schema)

    record = compact_output(output, stage)
    assert record is not None and len(calls) == 2
    assert [row["k"] for row in content(output)] == ["c", "d"]


@pytest.mark.parametrize("error", [Unavailable("not now"), KeyboardInterrupt()])
def test_a_failure_changes_nothing(output: Output, error: BaseException) -> None:
    """If staging fails or is interrupted, the staged files are dropped."""
    add(output, rows("a"))
    add(output, rows("b"))

    def fail(_: int) -> None:
        raise error

    stage, calls = meanwhile(output, fail)
    with pytest.raises(type(error)):
        compact_output(output, stage)
    assert calls == [0]
    assert len(output.snapshot().files) == 2
    assert list(output.store.list_staged()) == []


def test_a_commit_of_unknown_outcome_is_resolved(
    output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the answer to the commit is lost, the log shows the commit, and it is completed."""
    add(output, rows("a"))
    add(output, rows("b"))
    commit = output._log.commit

    def lost(*arguments: Any, **options: Any) -> CommitRecord:
        commit(*arguments, **options)
        raise OutcomeUnknown("lost")

    monkeypatch.setattr(output._log, "commit", lost)
    record = merge(output)
    assert record is not None and record.version == 3
    assert len(visible(output.store)) == 1


# -- by Spark ----------------------------------------------------------------------------------------


@pytest.mark.spark
@pytest.mark.parametrize("visibility", ["listed", with_all("logged")])
def test_spark_merges_the_files_of_its_jobs(
    spark: SparkSession, tmp_path: Path, visibility: str
) -> None:
    """Rows, columns and job ids stay. Each partition has one file, and a second run does nothing."""
    url = f"{tmp_path}/out"
    for number in range(3):
        rows = spark.range(number * 100, number * 100 + 100, 1, 3)
        rows = rows.selectExpr("id", "CAST(id % 2 AS INT) AS k", "map('a', id) AS m", "now() AS t")
        commitlog.spark.write(
            rows, url, job_id=f"{number}", partition_by=["k"], options={"visibility": visibility}
        )
    loaded = spark.read.format("commitlog").load(url)
    schema, before = loaded.schema, sorted(map(str, loaded.collect()))
    assert len(before) == 300
    record = commitlog.spark.compact(spark, url)
    assert record is not None
    assert (record.rows, len(record.files), len(record.replaced)) == (300, 2, 18)
    loaded = spark.read.format("commitlog").load(url)
    assert loaded.schema == schema
    assert sorted(map(str, loaded.collect())) == before
    with commitlog.connect(url) as store:
        assert Output(store).snapshot().jobs == ("0", "1", "2")
    if visibility == "listed":
        plain = spark.read.schema(schema).parquet(url).select(*schema.names)
        assert sorted(map(str, plain.collect())) == before
    assert commitlog.spark.compact(spark, url) is None


@pytest.mark.all
@pytest.mark.spark
@pytest.mark.parametrize("visibility", ["listed", with_all("logged")])
def test_files_of_sparks_own_writer_are_merged(
    spark: SparkSession, tmp_path: Path, visibility: str
) -> None:
    """Files of the configured committer, whose records have no row count, keep their rows."""
    url = f"{tmp_path}/out"
    columns = (
        "id", "CAST(id % 2 AS STRING) AS k", "CAST(id AS DECIMAL(30, 5)) AS d", "now() AS t",
        "TIMESTAMP_NTZ'1800-01-01 00:00:00.000001' AS n", "DATE'1900-01-01' AS day",
        "array(id, null) AS a", "TIMESTAMP'9999-12-30 00:00:00' AS far",
        "named_struct('x', CAST(id AS TINYINT), 'y', map('z', 0.5f)) AS s", "CAST('b' AS BINARY) AS b",
    )  # fmt: skip
    conf = {PROTOCOL: COMMIT_PROTOCOL, "spark.commitlog.visibility": visibility}
    for name, value in conf.items():
        spark.conf.set(name, value)
    try:
        for number in range(2):
            rows = spark.range(number * 10, number * 10 + 10, 1, 2).selectExpr(*columns)
            rows.write.mode("append").partitionBy("k").parquet(url)
    finally:
        for name in conf:
            spark.conf.unset(name)
    loaded = spark.read.format("commitlog").load(url)
    before = sorted(map(str, loaded.collect()))
    with commitlog.connect(url) as store:
        output = Output(store)
        assert output.snapshot().rows is None
        record = merge(output)
    assert record is not None
    assert (record.rows, len(record.files), len(record.replaced)) == (20, 2, 8)
    assert sorted(map(str, spark.read.format("commitlog").load(url).collect())) == before
    if visibility == "listed":
        plain = spark.read.schema(loaded.schema).parquet(url).select(*loaded.columns)
        assert sorted(map(str, plain.collect())) == before


@pytest.mark.spark
def test_files_of_old_calendars_keep_their_days(spark: SparkSession, tmp_path: Path) -> None:
    """Spark writes the Julian calendar for Hive and Spark 2, and any microseconds in INT96."""
    url = f"{tmp_path}/out"
    conf = {
        PROTOCOL: COMMIT_PROTOCOL,
        "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
        "spark.sql.parquet.int96RebaseModeInWrite": "LEGACY",
    }
    days = ("0001-01-01", "1500-02-28", "1582-10-15", "2024-01-01")
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "UTC")  # early times of other zones are refused
    for name, value in conf.items():
        spark.conf.set(name, value)
    try:
        for kind in ("INT96", "TIMESTAMP_MICROS"):
            spark.conf.set("spark.sql.parquet.outputTimestampType", kind)
            rows = spark.createDataFrame([(day,) for day in days], "s string").coalesce(1)
            columns = ("DATE(s) AS d", "TIMESTAMP(s) AS t", "array(named_struct('d', DATE(s))) AS l")
            rows.selectExpr(*columns).write.mode("append").parquet(url)
        spark.conf.set("spark.sql.parquet.int96RebaseModeInWrite", "CORRECTED")
        spark.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
        far = spark.range(2).selectExpr(f"timestamp_micros(if(id = 0, {-(10**18)}, {2**63 - 1})) AS t")
        far.selectExpr("DATE'0001-01-01' AS d", "t", "NULL AS l").selectExpr(
            "d", "t", "CAST(l AS array<struct<d: date>>) AS l"
        ).coalesce(1).write.mode("append").parquet(url)
    finally:
        for name in (*conf, "spark.sql.parquet.outputTimestampType"):
            spark.conf.unset(name)
        spark.conf.set("spark.sql.session.timeZone", zone)
    text = ("unix_date(d) AS d", "unix_micros(t) AS t", "CAST(l AS STRING) AS l")
    expected = sorted(map(str, spark.read.parquet(url).selectExpr(*text).collect()))
    loaded = spark.read.format("commitlog").load(url)
    assert sorted(map(str, loaded.selectExpr(*text).collect())) == expected
    with commitlog.connect(url) as store:
        record = merge(Output(store))
    assert record is not None
    assert len(record.replaced) == 3
    for again in (commitlog.spark.read(spark, url), spark.read.format("commitlog").load(url)):
        assert sorted(map(str, again.selectExpr(*text).collect())) == expected


@pytest.mark.all
@pytest.mark.spark
def test_a_stream_runs_during_compaction(spark: SparkSession, tmp_path: Path) -> None:
    """Batches that arrive during a merge are neither lost nor doubled, and a restart continues."""
    url, source = f"{tmp_path}/out", tmp_path / "in"
    source.mkdir()

    def start() -> Any:
        lines = spark.readStream.schema("v INT").option("maxFilesPerTrigger", 1).csv(str(source))
        options = {"path": url, "checkpointLocation": f"{tmp_path}/state"}
        return lines.writeStream.format("commitlog").options(**options).start()

    def feed(first: int, count: int) -> None:
        for number in range(first, first + count):
            (tmp_path / "new").write_text(f"{number}\n")
            (tmp_path / "new").rename(source / f"{number}.csv")

    def values() -> list[int]:
        found = spark.read.format("commitlog").load(url).collect()
        return sorted(row.v for row in found)

    query = start()
    try:
        feed(0, 3)
        query.processAllAvailable()
        feed(3, 3)
        assert commitlog.spark.compact(spark, url) is not None
        query.processAllAvailable()
        assert values() == [0, 1, 2, 3, 4, 5]
        # The merge may have run after all of these batches.
        feed(6, 1)
        query.processAllAvailable()
    finally:
        query.stop()
    assert commitlog.spark.compact(spark, url) is not None
    feed(7, 1)
    query = start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    assert values() == [0, 1, 2, 3, 4, 5, 6, 7]
