"""Files that Spark wrote: we read the same values that Spark reads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from commitlog.errors import InputUnreadable
from commitlog.files import INPUT_FORMATS, Columns
from commitlog.ingest import File, Pinned
from commitlog.spark.schema import arrow_schema, nullable
from commitlog.stores.local.store import LocalStore
from support.input_files import records
from support.selection import with_all

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

#: A row for each id, with every type, nulls at each level, and times around 1970 and 1900.
QUERY = """
select id, nullif(id, 3) n, cast(id as tinyint) i8, cast(id as smallint) i16, cast(id as int) i32,
  cast(id as float) f, id / 7 d, id = 1 b, concat('é', id) s, cast(concat('x', id) as binary) raw,
  cast(id * 1.25 as decimal(10, 2)) dec, cast(id as decimal(38, 0)) big,
  date_add(date'1969-12-25', cast(id as int)) day,
  timestamp_ntz'2020-01-01 00:00:00.123456' + make_interval(0, 0, 0, cast(id as int)) local,
  if(id = 2, null, named_struct('x', id, 'y', array(named_struct('z', nullif(id, 4))))) st,
  if(id = 3, null, array(id, null)) l, if(id = 4, null, map('k', nullif(id, 1))) m
  {more} from range(8)
"""
TIMES = """, timestamp_micros(id * {step} - {before}) t,
  named_struct('t', array(timestamp_micros(id * 1000001 - 3000000))) nested"""


def files(directory: Path) -> list[Pinned]:
    """Return the data files that Spark wrote in a directory."""
    store = LocalStore(directory)
    return [Pinned(store, File.of(info)) for info in store.list() if info.path[:1] not in (".", "_")]


def ours(name: str, sources: list[Pinned], schema: pa.Schema, **options: str) -> list[dict[str, Any]]:
    """Return the records of the files, as our reader reads them."""
    columns = Columns(schema=schema, new="fail")
    found = [records(INPUT_FORMATS[name](options), source, columns) for source in sources]
    return [row for rows in found for row, _, _ in rows]


def theirs(frame: DataFrame, schema: pa.Schema) -> list[dict[str, Any]]:
    """Return the rows that Spark reads."""
    return list(frame.toArrow().cast(schema).to_pylist())


@pytest.mark.parametrize("stored", ["INT96", "TIMESTAMP_MICROS", with_all("TIMESTAMP_MILLIS")])
def test_parquet_values_and_schema_are_those_of_spark(
    spark: SparkSession, tmp_path: Path, stored: str
) -> None:
    """Values and schema are those of Spark, for each type in which Spark stores timestamps."""
    setting = "spark.sql.parquet.outputTimestampType"
    spark.conf.set(setting, stored)
    try:
        # TIMESTAMP_MILLIS keeps only milliseconds.
        step, before = 31_557_600_123_456_000, 62_135_596_800_000_000
        more = TIMES.format(step=step, before=before)
        spark.sql(QUERY.format(more=more)).coalesce(1).write.parquet(str(tmp_path / "p"))
    finally:
        spark.conf.unset(setting)
    frame = spark.read.parquet(str(tmp_path / "p"))
    schema = arrow_schema(nullable(frame.schema))
    sources = files(tmp_path / "p")
    assert INPUT_FORMATS["parquet"]({}).infer(sources[0]) == schema
    assert ours("parquet", sources, schema) == theirs(frame, schema)


def test_orc_values_without_timestamps_are_those_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Spark stores timestamps in ORC in local time, so reading those needs option timeZone."""
    spark.sql(QUERY.format(more="")).coalesce(1).write.orc(str(tmp_path / "o"))
    frame = spark.read.orc(str(tmp_path / "o"))
    schema = arrow_schema(nullable(frame.schema))
    sources = files(tmp_path / "o")
    assert INPUT_FORMATS["orc"]({}).infer(sources[0]) == schema
    assert ours("orc", sources, schema) == theirs(frame, schema)


def test_orc_timestamps_need_the_zone_of_the_writer(spark: SparkSession, tmp_path: Path) -> None:
    """With the time zone of the process that wrote them, timestamps are read correctly."""
    spark.sql(
        QUERY.format(more=TIMES.format(step=31_557_600_123_456, before=94_672_800_000_000))
    ).coalesce(1).write.orc(str(tmp_path / "o"))
    frame = spark.read.orc(str(tmp_path / "o"))
    schema = arrow_schema(nullable(frame.schema))
    sources = files(tmp_path / "o")
    with pytest.raises(InputUnreadable, match="has no zone"):
        ours("orc", sources, schema)
    zone = spark.sparkContext._jvm.java.util.TimeZone.getDefault().getID()  # type: ignore[union-attr]
    assert INPUT_FORMATS["orc"]({"timeZone": zone}).infer(sources[0]) == schema
    assert ours("orc", sources, schema, timeZone=zone) == theirs(frame, schema)


@pytest.mark.parametrize("compression", ["none", "gzip", with_all("bzip2"), with_all("deflate")])
def test_text_is_read_in_every_compression(
    spark: SparkSession, tmp_path: Path, compression: str
) -> None:
    """Lines are read in every compression that Hadoop writes without native code."""
    lines = spark.range(50_000).selectExpr("concat('é line ', id) value").coalesce(1)
    lines.write.option("compression", compression).text(str(tmp_path / "t"))
    found = ours("text", files(tmp_path / "t"), pa.schema([("value", pa.string())]))
    assert found == [{"value": f"é line {number}"} for number in range(50_000)]


@pytest.mark.parametrize("compression", ["snappy", "lz4"])
def test_compressions_of_hadoop_are_refused(
    spark: SparkSession, tmp_path: Path, compression: str
) -> None:
    """A file that cannot be decompressed is never read as lines."""
    spark.range(5).selectExpr("concat('line ', id) value").coalesce(1).write.option(
        "compression", compression
    ).text(str(tmp_path / "t"))
    with pytest.raises(InputUnreadable, match="cannot be decompressed"):
        ours("text", files(tmp_path / "t"), pa.schema([("value", pa.string())]))


def test_lines_end_where_spark_ends_them(spark: SparkSession, tmp_path: Path) -> None:
    """Lines end with a line feed, a carriage return or both. A byte order mark is not text."""
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfa\rb\r\nc\n\n\rd\r")
    (tmp_path / "b.txt").write_bytes(b"x||y|||z\n||")
    schema = pa.schema([("value", pa.string())])
    for path, options in (("a.txt", {}), ("b.txt", {"lineSep": "||"}), ("b.txt", {})):
        store = LocalStore(tmp_path)
        source = Pinned(store, File.of(store.head(path)))
        frame = spark.read.options(**options).text(str(tmp_path / path))
        assert ours("text", [source], schema, **options) == theirs(frame, schema)
