"""Columns of a source: from the content, the path and the metadata of files."""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.csv
import pyarrow.orc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import types as t

from commitlog.errors import ConfigurationError, InputUnreadable, UnknownColumns
from commitlog.files import INPUT_FORMATS, NewColumns, Records
from commitlog.ingest import File, Slice
from commitlog.spark.ingest.columns import METADATA, RowBuilder
from commitlog.tabular.partitions import NULL
from support.input_files import pinned

FILE = File("raw/day=2026-11-21/x=y=z/a b.json", '"e1"', 100, 1_700_000_000.5)
SLICE = Slice(FILE, 0, 100)


LONG, STRING = t.LongType(), t.StringType()


def builder(new: NewColumns = "ignore", **columns: t.DataType) -> RowBuilder:
    """Return the builder of rows with these columns."""
    schema = t.StructType([t.StructField(name, kind) for name, kind in columns.items()])
    return RowBuilder(schema, new, "_rescued")


def records(**columns: list[object]) -> Records:
    """Return records with their numbers as offsets."""
    batch = pa.record_batch(columns)
    return Records(batch, pa.array(range(batch.num_rows), pa.int64()))


def test_a_column_comes_from_content_or_directory_or_is_null() -> None:
    """A column that neither the file nor a directory has is null."""
    rows = builder(day=t.DateType(), a=LONG, b=STRING).rows(records(a=[1, 2]), SLICE, "s3://landing")
    day = datetime(2026, 11, 21).date()
    assert rows.to_pylist() == [{"day": day, "a": 1, "b": None}, {"day": day, "a": 2, "b": None}]


def test_a_column_of_a_directory_is_read_from_the_file_too() -> None:
    """The values are compared, unless new columns are ignored.

    A directory without a column is a new column.
    """
    known = {"day": t.DateType(), "x": STRING, "a": LONG}
    assert builder("ignore", **known).columns(FILE).schema.names == ["a"]
    columns = builder("fail", **known).columns(FILE)
    assert columns.schema.names == ["day", "x", "a"]
    assert columns.in_path == {"day", "x"}
    with pytest.raises(UnknownColumns, match="'x'"):
        builder("fail", day=t.DateType(), a=LONG).columns(FILE)


def parquet(table: pa.Table) -> bytes:
    """Return a table as Parquet."""
    pq.write_table(table, file := io.BytesIO())
    return file.getvalue()


def orc(table: pa.Table) -> bytes:
    """Return a table as ORC."""
    pyarrow.orc.write_table(table, file := io.BytesIO())
    return file.getvalue()


def avro(table: pa.Table) -> bytes:
    """Return a table of strings as Avro."""
    kinds = [{"name": name, "type": ["null", "string"]} for name in table.schema.names]
    schema = {"type": "record", "name": "r", "fields": kinds}
    fastavro.writer(file := io.BytesIO(), schema, table.to_pylist())
    return file.getvalue()


def csv(table: pa.Table) -> bytes:
    """Return a table as CSV."""
    pyarrow.csv.write_csv(table, file := io.BytesIO())
    return file.getvalue()


def jsonl(table: pa.Table) -> bytes:
    """Return a table as JSON lines."""
    return "".join(json.dumps(row) + "\n" for row in table.to_pylist()).encode()


WRITERS = {"avro": avro, "csv": csv, "json": jsonl, "orc": orc, "parquet": parquet}


def rows_of(
    kind: str, table: pa.Table, path: str, new: NewColumns, columns: Mapping[str, t.DataType]
) -> list[dict[str, Any]]:
    """Return the rows that a query reads from a file of a format at a path."""
    source = pinned(WRITERS[kind](table), path)
    whole = Slice(source.file, 0, source.file.size)
    wanted = builder(new, **columns, **({"_rescued": STRING} if new == "rescue" else {}))
    input = INPUT_FORMATS[kind]({"header": "true"} if kind == "csv" else {})
    found = []
    for each in input.decode(source, whole, wanted.columns(source.file)):
        found += wanted.rows(each, whole, "s3://landing").to_pylist()
    return found


REGIONS = pa.table({"a": ["1", "2", "3"], "region": ["us", "eu", None]})


@pytest.mark.parametrize("kind", WRITERS)
def test_the_value_of_the_directory_wins(kind: str) -> None:
    """Another value in a record is ignored, refused or rescued."""
    known = {"a": STRING, "region": STRING}
    for path in ("in/region=eu/x", "in/Region=eu/x"):
        rows = rows_of(kind, REGIONS, path, "ignore", known)
        assert rows == [{"a": a, "region": "eu"} for a in "123"]
        with pytest.raises(UnknownColumns, match="'region' differs from that of its directory"):
            rows_of(kind, REGIONS, path, "fail", known)
        assert rows_of(kind, REGIONS.slice(1), path, "fail", known) == rows[1:]
        rows = rows_of(kind, REGIONS, path, "rescue", known)
        assert [(row["region"], row["_rescued"]) for row in rows] == [
            ("eu", '{"region":"us"}'),
            ("eu", None),
            ("eu", None),
        ]
    rows = rows_of(kind, REGIONS, f"region={NULL}/x", "rescue", known)
    assert [(row["region"], row["_rescued"]) for row in rows] == [
        (None, '{"region":"us"}'),
        (None, '{"region":"eu"}'),
        (None, None),
    ]


@pytest.mark.parametrize("kind", WRITERS)
def test_values_without_a_column_are_refused_or_rescued(kind: str) -> None:
    """This holds for the values of the directory and of the record."""
    known = {"a": STRING}
    rows = rows_of(kind, REGIONS, "region=é%22/x", "ignore", known)
    assert rows == [{"a": a} for a in "123"]
    for table in (REGIONS, REGIONS.select(["a"])):
        with pytest.raises(UnknownColumns, match="'region'"):
            rows_of(kind, table, "region=eu/x", "fail", known)
    rows = rows_of(kind, REGIONS, "region=é%22/x", "rescue", known)
    assert [json.loads(row["_rescued"]) for row in rows] == [
        {"region": "us", "_directories": {"region": 'é"'}},
        {"region": "eu", "_directories": {"region": 'é"'}},
        {"_directories": {"region": 'é"'}},
    ]


def test_a_value_that_differs_in_type_from_its_directory_is_rescued() -> None:
    """The value is rescued only once."""
    table = pa.table({"a": ["1"], "region": ["us"]})
    [row] = rows_of("json", table, "region=5/x", "rescue", {"a": STRING, "region": LONG})
    assert row == {"a": "1", "region": 5, "_rescued": '{"region":"us"}'}


def test_csv_without_a_header_skips_columns_of_the_path() -> None:
    """Its columns are matched by position, without the columns in the path."""
    source = pinned(b"1,2\n", "day=5/x.csv")
    whole = Slice(source.file, 0, source.file.size)
    for new in ("ignore", "fail", "rescue"):
        wanted = builder(new, a=LONG, day=LONG, b=LONG, _rescued=STRING)
        if new != "rescue":
            wanted = builder(new, a=LONG, day=LONG, b=LONG)
        [part] = INPUT_FORMATS["csv"]({}).decode(source, whole, wanted.columns(source.file))
        [row] = wanted.rows(part, whole, "s3://landing").to_pylist()
        assert (row["a"], row["day"], row["b"]) == (1, 5, 2)


def test_contradicting_directories_make_a_file_unreadable() -> None:
    """These are two directories with different values for one column."""
    rows = records(a=[1])
    for path in ("day=5/day=6/x", "Day=5/DAY=6/x"):
        slice = Slice(File(path, "e", 1, 0.0), 0, 1)
        with pytest.raises(InputUnreadable, match=r"'(day|Day)|'day'"):
            builder(a=LONG, day=LONG).rows(rows, slice, "s3://landing")
    slice = Slice(File("Day=5/day=6/x", "e", 1, 0.0), 0, 1)
    got = builder("rescue", a=LONG, day=LONG, _rescued=STRING).rows(rows, slice, "s3://landing")
    assert got.to_pylist() == [{"a": 1, "day": 6, "_rescued": '{"_directories": {"Day": "5"}}'}]


@pytest.mark.parametrize(
    ("text", "kind", "wanted"),
    [
        ("2026-01-01 00%3A00%3A00", t.TimestampType(), datetime(2026, 1, 1, tzinfo=UTC)),
        ("2026-01-01 00%3A00%3A00.5", t.TimestampType(), datetime(2026, 1, 1, 0, 0, 0, 500_000, UTC)),
        ("2026-01-01T01%3A00%3A00Z", t.TimestampType(), datetime(2026, 1, 1, 1, tzinfo=UTC)),
        ("2026-01-01 00%3A00%3A00", t.TimestampNTZType(), datetime(2026, 1, 1)),
        ("2026-01-01", t.DateType(), datetime(2026, 1, 1).date()),
        ("05", LONG, 5),
        ("-5", LONG, -5),
        ("1.50", t.DecimalType(9, 2), Decimal("1.50")),
        ("1.0E10", t.DoubleType(), 1e10),
        ("true", t.BooleanType(), True),
        ("caf%E9", STRING, "café"),
        ("caf%E8", STRING, "cafè"),
        ("caf%C3%A9", STRING, "café"),
        ("café", STRING, "café"),
        ("%2F%41%zz", STRING, "/A%zz"),
        ("é", t.BinaryType(), "é".encode()),
        (NULL, LONG, None),
    ],
)
def test_directory_values_of_all_writers_are_parsed(text: str, kind: t.DataType, wanted: object) -> None:
    """Times without a zone are in UTC. Escapes are UTF-8, or else one character each."""
    slice = Slice(File(f"p={text}/x", "e", 1, 0.0), 0, 1)
    [row] = builder(a=LONG, p=kind).rows(records(a=[1]), slice, "s3://landing").to_pylist()
    assert row == {"a": 1, "p": wanted}


@pytest.mark.parametrize("text", ["0x10", "1_0", "1e400", "1.5", " ", "9223372036854775808", "ten"])
def test_a_directory_that_is_no_integer_is_refused(text: str) -> None:
    """Text that is not a 64-bit integer makes the file unreadable."""
    slice = Slice(File(f"p={text}/x", "e", 1, 0.0), 0, 1)
    with pytest.raises(InputUnreadable, match="do not fit column 'p'"):
        builder(a=LONG, p=LONG).rows(records(a=[1]), slice, "s3://landing")


def test_a_directory_that_does_not_fit_its_column_is_refused() -> None:
    """The error names the file and the column."""
    with pytest.raises(InputUnreadable, match=r"'raw/day=2026-11-21/.*' do not fit column 'day'"):
        builder(day=LONG, a=LONG).rows(records(a=[1]), SLICE, "s3://landing")


def test_metadata_is_the_origin_of_a_record() -> None:
    """The metadata column has the file and the offset; a schema may ask for some of its fields."""
    whole = builder(a=LONG, _metadata=METADATA)
    assert whole.columns(FILE).offsets
    rows = whole.rows(records(a=[1, 2]), SLICE, "s3://landing/in?region=r").to_pylist()
    assert rows[1]["_metadata"] == {
        "file_path": "s3://landing/in/raw/day=2026-11-21/x=y=z/a b.json",
        "file_name": "a b.json",
        "file_size": 100,
        "file_modification_time": datetime.fromtimestamp(1_700_000_000.5, UTC),
        "etag": "e1",
        "offset": 1,
    }
    some = builder(_metadata=t.StructType([METADATA["etag"]]), a=LONG)
    assert not some.columns(FILE).offsets
    assert some.rows(records(a=[1]), SLICE, "s3://landing").to_pylist() == [
        {"_metadata": {"etag": "e1"}, "a": 1}
    ]


def test_a_column_named_metadata_may_be_content() -> None:
    """It is content if it has other fields."""
    assert builder(_metadata=STRING).content.names == ["_metadata"]


def test_rescue_needs_a_column() -> None:
    """Without a column for rescued values, the option is refused."""
    rescuing = builder("rescue", a=LONG, _rescued=STRING)
    assert rescuing.content.names == ["a"]
    rescued = Records(pa.record_batch({"a": [1, None]}), None, pa.array([None, '{"a":"x"}']))
    slice = Slice(File("raw/x", "e", 1, 0.0), 0, 1)
    assert [row["_rescued"] for row in rescuing.rows(rescued, slice, "s3://landing").to_pylist()] == [
        None,
        '{"a":"x"}',
    ]
    for columns in ({"a": LONG}, {"a": LONG, "_rescued": LONG}):
        with pytest.raises(ConfigurationError, match="_rescued STRING"):
            builder("rescue", **columns)


def test_a_row_builder_can_be_pickled() -> None:
    """Spark sends it to the workers."""
    copy = pickle.loads(pickle.dumps(builder(a=LONG, day=STRING)))
    assert copy.rows(records(a=[1]), SLICE, "s3://landing").to_pylist() == [
        {"a": 1, "day": "2026-11-21"}
    ]
