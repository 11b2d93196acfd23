"""Columns that an output can have."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import types as t

from commitlog.errors import CorruptRecord, NotSupported
from commitlog.spark.schema import (
    arrow_schema,
    check_columns,
    dump_schema,
    load_schema,
    nullable,
    select,
)


def schema(**columns: t.DataType) -> t.StructType:
    """Return a schema of columns without nulls."""
    return t.StructType([t.StructField(name, kind, nullable=False) for name, kind in columns.items()])


@pytest.mark.parametrize(
    "kind",
    [
        t.NullType(),
        t.DayTimeIntervalType(),
        t.VariantType(),
        t.StructType([]),
        t.ArrayType(t.YearMonthIntervalType()),
        t.MapType(t.StringType(), t.StructType([t.StructField("x", t.NullType())])),
    ],
    ids=lambda kind: kind.simpleString(),
)
def test_unsupported_types_are_refused(kind: t.DataType) -> None:
    """They are refused at any depth, and the error names the column."""
    with pytest.raises(NotSupported, match=r"column 'odd.* is of type .*cast it"):
        check_columns(schema(fine=t.LongType(), odd=kind))


def test_names_that_differ_in_case_alone_are_refused() -> None:
    """Some readers ignore letter case."""
    with pytest.raises(NotSupported, match="column 'A' occurs twice"):
        check_columns(schema(a=t.LongType(), A=t.LongType()))


def test_rows_without_columns_are_refused() -> None:
    """Parquet cannot count such rows."""
    with pytest.raises(NotSupported, match="no column to write"):
        check_columns(schema())


def test_everything_in_an_output_may_be_null() -> None:
    """The stored schema is nullable at every depth, because a later append may add nulls."""
    deep = t.MapType(t.StringType(), t.ArrayType(t.LongType(), False), False)
    inner = t.StructType([t.StructField("x", deep, False)])
    field = arrow_schema(nullable(schema(a=inner))).field("a")
    assert field.nullable
    assert field.type.field("x").nullable
    assert field.type.field("x").type.item_field.nullable
    assert field.type.field("x").type.item_type.value_field.nullable


def test_schemas_are_stored_exactly() -> None:
    """The metadata of columns is stored too."""
    columns = t.StructType([t.StructField("a", t.DecimalType(38, 18), True, {"comment": "ü"})])
    assert load_schema(dump_schema(columns)) == columns


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"fields": [{"name": 1}]}', '{"fields": 3}'])
def test_an_invalid_schema_is_a_corrupt_record(text: str) -> None:
    """Text that is not a schema raises CorruptRecord."""
    with pytest.raises(CorruptRecord, match="not in Spark's notation"):
        load_schema(text)


def test_batches_are_converted_to_the_schema_of_the_file() -> None:
    """Columns are selected by name, in the order of the file, with timestamps in UTC."""
    wanted = arrow_schema(nullable(schema(t=t.TimestampType(), a=t.StringType())))
    given = pa.record_batch(
        {
            "a": pa.array(["x"], pa.large_string()),
            "t": pa.array([1_000_000], pa.timestamp("us", tz="America/New_York")),
        }
    )
    batch = select(given, wanted)
    assert batch.schema == wanted
    assert batch.column("t").cast(pa.int64()).to_pylist() == [1_000_000]
