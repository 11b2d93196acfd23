"""The columns of a source: from content, from the path, and about the file."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyspark.sql import types as t

from commitlog.errors import ConfigurationError, InputUnreadable
from commitlog.ingest import File, Slice
from commitlog.spark.ingest.columns import METADATA, Shape
from commitlog.spark.inputs import Records
from commitlog.spark.inputs.api import NewColumns

FILE = File("raw/day=2026-11-21/x=y=z/a b.json", '"e1"', 100, 1_700_000_000.5)
SLICE = Slice(FILE, 0, 100)


LONG, STRING = t.LongType(), t.StringType()


def shape(new: NewColumns = "ignore", **columns: t.DataType) -> Shape:
    """Return the shape of rows with these columns."""
    schema = t.StructType([t.StructField(name, kind) for name, kind in columns.items()])
    return Shape(schema, new, "_rescued")


def records(**columns: list[object]) -> Records:
    """Return records with their numbers as offsets."""
    batch = pa.record_batch(columns)
    return Records(batch, pa.array(range(batch.num_rows), pa.int64()))


def test_columns_of_content_path_and_neither() -> None:
    """A column is the file's, or its directory's, or null."""
    rows = shape(day=t.DateType(), a=LONG, b=STRING).rows(records(a=[1, 2]), SLICE, "s3://landing")
    day = datetime(2026, 11, 21).date()
    assert rows.to_pylist() == [{"day": day, "a": 1, "b": None}, {"day": day, "a": 2, "b": None}]


def test_what_the_path_tells_is_not_asked_of_the_file() -> None:
    """A name in the path is no column of the content, and no news there."""
    columns = shape("fail", day=t.DateType(), a=LONG).columns(FILE)
    assert columns.schema.names == ["a"]
    assert columns.check("x", ["a", "day", "x"]) == []


def test_a_directory_that_does_not_spell_its_type() -> None:
    """A directory whose value is not of the column's type makes the file unreadable, which is named."""
    with pytest.raises(InputUnreadable, match=r"'raw/day=2026-11-21/.*' do not fit column 'day'"):
        shape(day=LONG, a=LONG).rows(records(a=[1]), SLICE, "s3://landing")


def test_metadata() -> None:
    """The metadata column tells where a record is from; a schema may ask for some of it."""
    whole = shape(a=LONG, _metadata=METADATA)
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
    some = shape(_metadata=t.StructType([METADATA["etag"]]), a=LONG)
    assert not some.columns(FILE).offsets
    assert some.rows(records(a=[1]), SLICE, "s3://landing").to_pylist() == [
        {"_metadata": {"etag": "e1"}, "a": 1}
    ]


def test_a_column_of_that_name_may_be_the_files() -> None:
    """Only a struct of the known fields is about the file; another column of that name is content."""
    assert shape(_metadata=STRING).content.names == ["_metadata"]


def test_rescued() -> None:
    """What is rescued has its column, which must be there then."""
    rescuing = shape("rescue", a=LONG, _rescued=STRING)
    assert rescuing.content.names == ["a"]
    rescued = Records(pa.record_batch({"a": [1, None]}), None, pa.array([None, '{"a":"x"}']))
    assert [row["_rescued"] for row in rescuing.rows(rescued, SLICE, "s3://landing").to_pylist()] == [
        None,
        '{"a":"x"}',
    ]
    for columns in ({"a": LONG}, {"a": LONG, "_rescued": LONG}):
        with pytest.raises(ConfigurationError, match="_rescued STRING"):
            shape("rescue", **columns)


def test_travels() -> None:
    """A shape reaches executors as it is."""
    copy = pickle.loads(pickle.dumps(shape(a=LONG, day=STRING)))
    assert copy.rows(records(a=[1]), SLICE, "s3://landing").to_pylist() == [
        {"a": 1, "day": "2026-11-21"}
    ]
