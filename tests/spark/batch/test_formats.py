"""Files of every format, read by Spark's own readers, and files of Spark's own writers, read by ours."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import StructType

from commitlog.commit import ConditionalStore
from commitlog.errors import ConfigurationError, NotSupported
from commitlog.files import OUTPUT_FORMATS, StoredObject, output_format_of
from commitlog.outputs import Output
from commitlog.spark import CommitlogDataSource
from commitlog.spark.schema import arrow_schema
from commitlog.stores.local.store import LocalStore
from support.output_files import HOSTILE, rows_for
from support.selection import with_all, with_all_but

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

#: Options with which Spark's reader of CSV keeps line breaks in strings, and empty strings.
CSV = {"multiLine": "true", "nullValue": "no such text"}


def numbered(name: str) -> pa.Table:
    """Return numbered rows with all values that the format supports."""
    batch = rows_for(name)
    ids = pa.array(range(batch.num_rows), pa.int32())
    return pa.Table.from_batches([batch]).add_column(0, pa.field("id", pa.int32()), ids)


def in_spark(spark: SparkSession, table: pa.Table, path: Path) -> DataFrame:
    """Return the rows of `table` by way of a file. From Arrow, Spark treats time zones differently."""
    pq.write_table(table, path)
    rows = spark.read.parquet(str(path))
    assert arrow_schema(rows.schema) == table.schema
    return rows


def arrow(rows: DataFrame, schema: pa.Schema) -> pa.Table:
    """Return `rows` as a table, ordered by id."""
    return pc.take(table := rows.toArrow().cast(schema), pc.sort_indices(table.column("id")))


def check_same(found: pa.Table, expected: pa.Table) -> None:
    """Check that the tables are equal, and name the first column that differs."""
    assert found.schema == expected.schema
    for name in expected.schema.names:
        assert found.column(name).to_pylist() == expected.column(name).to_pylist(), name


@pytest.mark.parametrize("name", with_all_but(lambda name: name in ("parquet", "arrow"), OUTPUT_FORMATS))
def test_spark_and_we_read_the_files_that_we_write(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    """Our reader and Spark's reader return the same rows of every type, in each compression."""
    table = numbered(name)
    rows = in_spark(spark, table, tmp_path / "rows")
    for compression in OUTPUT_FORMATS[name].compressions:
        url = str(tmp_path / compression)
        options = {"fileFormat": name, "compression": compression}
        rows.write.format("commitlog").mode("append").options(**options).save(url)
        check_same(arrow(spark.read.format("commitlog").load(url), table.schema), table)
        if name != "arrow":
            plain = spark.read.format(name).options(**CSV if name == "csv" else {})
            check_same(arrow(plain.schema(rows.schema).load(url), table.schema), table)


def test_spark_reads_csv_with_default_options(spark: SparkSession, tmp_path: Path) -> None:
    """Spark's reader returns the empty string as null, and every other string unchanged."""
    texts = [text for text in HOSTILE if not set("\r\n") & set(text)]
    rows = spark.createDataFrame(
        [(n, text) for n, text in enumerate([None, *texts])], "id int, t string"
    )
    rows.write.format("commitlog").mode("append").option("fileFormat", "csv").save(str(tmp_path / "x"))
    read = spark.read.schema(rows.schema).csv(str(tmp_path / "x")).orderBy("id").collect()
    assert [row.t for row in read] == [None, *(text or None for text in texts)]


def test_the_first_line_end_of_csv_may_be_in_a_string(spark: SparkSession, tmp_path: Path) -> None:
    """Spark takes the first line end of a file for that of all rows."""
    texts = ["a\rb", "c", "d\ne", "e\r\nf", *"x" * 400]
    rows = spark.createDataFrame(list(enumerate(texts)), "id int, t string").coalesce(1)
    rows.write.format("commitlog").mode("append").option("fileFormat", "csv").save(str(tmp_path / "x"))
    read = spark.read.schema(rows.schema).options(**CSV).csv(str(tmp_path / "x")).orderBy("id")
    assert [row.t for row in read.collect()] == texts


def test_csv_keeps_its_columns(tmp_path: Path) -> None:
    """Nothing distinguishes files without a header, so columns can neither be reordered nor added."""
    url = str(tmp_path / "x")

    def write(columns: str, **options: str) -> None:
        schema = StructType()
        for name in columns:
            schema = schema.add(name, "long")
        writer = CommitlogDataSource({"path": url, **options}).writer(schema, False)
        task = writer._job.file_name(0, suffix=".csv")
        with contextlib.closing(LocalStore(url)) as store:
            output = Output(ConditionalStore(store))
            output.commit(writer._job, [output.stage(writer._job, task, b"1,2")])

    write("ab", fileFormat="csv")
    write("ab", fileFormat="csv")
    write("ba", fileFormat="json")
    with pytest.raises(ConfigurationError, match=r"order: select those of the rows .* a, b$"):
        write("ba", fileFormat="csv")
    with pytest.raises(ConfigurationError, match=r"has CSV files, .*: none can be added"):
        write("abc", fileFormat="json", mergeSchema="true")
    write("a", fileFormat="json", mergeSchema="true")


def test_null_in_csv_of_one_column_is_kept(spark: SparkSession, tmp_path: Path) -> None:
    """A null is written as a line that no reader skips."""
    for number, kind in enumerate(["int", "string", "date"]):
        url = str(tmp_path / str(number))
        rows = spark.sql(f"select cast(null as {kind}) as x").unionAll(
            spark.sql(f"select cast(null as {kind})")
        )
        rows.write.format("commitlog").mode("append").option("fileFormat", "csv").save(url)
        assert spark.read.format("commitlog").load(url).collect() == rows.collect()
        assert spark.read.schema(rows.schema).csv(url).collect() == rows.collect()


@pytest.mark.parametrize(
    ("name", "compressions"),
    [
        ("parquet", ["snappy", "zstd", "gzip", "lz4_raw", "none"]),
        with_all("orc", ["zstd", "zlib", "snappy", "lz4", "none"]),
        ("csv", ["none", "gzip", "bzip2"]),
        with_all("json", ["none", "gzip", "bzip2"]),
    ],
)
def test_we_read_files_of_sparks_writers(
    spark: SparkSession, tmp_path: Path, name: str, compressions: list[str]
) -> None:
    """Our readers return the rows of files that Spark's own writers wrote."""
    table = numbered(name)
    # By default Spark writes timestamps with milliseconds and trims white space in CSV.
    given = {"ignoreLeadingWhiteSpace": "false", "ignoreTrailingWhiteSpace": "false"}
    pattern = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
    given |= {"timeZone": "UTC", "timestampFormat": f"{pattern}XXX", "timestampNTZFormat": pattern}
    if name == "orc":
        # Spark's ORC files do not name their time zone, see below.
        table = table.drop_columns(["instant"])
    if name == "csv":
        # Spark does not quote backslashes, and pyarrow reads them as escapes.
        bare = pc.match_substring(table.column("a.text"), "\\")
        table = table.filter(pc.invert(pc.fill_null(bare, False)))
    rows = in_spark(spark, table, tmp_path / "rows")
    for compression in compressions:
        url = tmp_path / compression
        rows.write.format(name).options(**given, compression=compression).save(str(url))
        (path,) = url.glob("part-*")
        with contextlib.closing(LocalStore(url)) as store:
            known = output_format_of(path.name)
            assert known.name == name
            names = set(table.schema.names)
            source = StoredObject(store, path.name, path.stat().st_size)
            batches = known.read(source, table.schema, names)
            check_same(pa.Table.from_batches(list(batches)).cast(table.schema), table)
        assert path.name.endswith(known.compressions[compression])


def test_timestamps_in_orc_files_of_spark_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Spark's ORC writer stores local time of a zone that pyarrow does not report."""
    rows = spark.sql("select timestamp'2013-03-10 12:00:00' as t, 1 as n")
    rows.write.orc(str(tmp_path / "x"))
    (path,) = (tmp_path / "x").glob("part-*")
    schema = arrow_schema(rows.schema)
    with contextlib.closing(LocalStore(tmp_path / "x")) as store:
        args = StoredObject(store, path.name, path.stat().st_size), schema
        with pytest.raises(NotSupported, match=r"column 't' of .* is in local time"):
            list(OUTPUT_FORMATS["orc"].read(*args, {"t"}))
        (batch,) = OUTPUT_FORMATS["orc"].read(*args, {"n"})
        assert batch.to_pydict() == {"n": [1]}
