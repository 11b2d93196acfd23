"""The schema in commit records: the same text as Spark's, without Spark."""

from __future__ import annotations

import json
from datetime import date, datetime

import pyarrow as pa
import pytest
from pyspark.sql import types as t

from commitlog.errors import ConfigurationError, CorruptRecord, NotSupported
from commitlog.spark.schema import arrow_schema
from commitlog.tabular.schema import (
    dump_schema,
    fit_batch,
    load_schema,
    merge_schemas,
    storable_schema,
)

EVERY_TYPE = t.StructType(
    [
        t.StructField(f"c{number}", kind)
        for number, kind in enumerate(
            [
                *(t.BooleanType(), t.ByteType(), t.ShortType(), t.IntegerType(), t.LongType()),
                *(t.FloatType(), t.DoubleType(), t.StringType(), t.BinaryType(), t.DateType()),
                *(t.TimestampType(), t.TimestampNTZType(), t.DecimalType(38, 18), t.DecimalType(5, 0)),
                t.ArrayType(t.MapType(t.StringType(), t.LongType())),
                t.StructType([t.StructField("ü", t.ArrayType(t.StringType()))]),
            ]
        )
    ]
)


def test_the_text_is_sparks_own() -> None:
    """Spark reads what other programs write, and the other way round; jobs do not conflict."""
    columns = arrow_schema(EVERY_TYPE)
    assert dump_schema(columns) == EVERY_TYPE.json()
    assert load_schema(EVERY_TYPE.json()) == columns
    assert t.StructType.fromJson(EVERY_TYPE.jsonValue()) == EVERY_TYPE


def test_messages_spell_types_as_spark_does() -> None:
    """The message about a type at any depth has Spark's names."""
    odd = t.StructType([t.StructField("x", t.ArrayType(t.MapType(t.ShortType(), t.VariantType())))])
    with pytest.raises(NotSupported, match="column 'x' is of type variant"):
        arrow_schema(odd)
    first = dump_schema(pa.schema([("a", pa.int64())]))
    assert merge_schemas(first, dump_schema(pa.schema([("a", pa.int32())]))) is None


def test_merging_keeps_the_text_if_nothing_is_added() -> None:
    """Metadata of existing columns stays."""
    first = t.StructType([t.StructField("a", t.LongType(), True, {"comment": "ü"})]).json()
    assert merge_schemas(first, dump_schema(pa.schema([("a", pa.int64())]))) == first
    merged = merge_schemas(first, dump_schema(pa.schema([("b", pa.string()), ("a", pa.int64())])))
    assert merged is not None
    assert t.StructType.fromJson(json.loads(merged)).json() == merged
    assert load_schema(merged).names == ["a", "b"]


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{}", '{"fields": [{"name": 1}]}', '{"fields": 3, "type": "struct"}'),
        '{"type": "struct", "fields": [{"name": "a", "type": {"type": "udt"}, "nullable": 3}]}',
        '{"type": "struct", "fields": [{"name": "a", "type": {}, "nullable": true}]}',
        '{"type": "struct", "fields": [{"name": "a", "type": null, "nullable": true}]}',
    ],
)
def test_damaged_schemas_are_refused(text: str) -> None:
    """Text that is not a schema raises a typed error."""
    with pytest.raises((CorruptRecord, NotSupported)):
        load_schema(text)


def test_types_that_spark_lacks_become_wider() -> None:
    """Each value is kept."""
    given = pa.schema(
        [
            ("a", pa.large_string()),
            ("b", pa.dictionary(pa.int8(), pa.string())),
            ("c", pa.uint32()),
            ("d", pa.timestamp("ns", tz="Europe/Paris")),
            ("e", pa.large_list(pa.uint8())),
            ("f", pa.null()),
        ]
    )
    stored = storable_schema(given, dump_schema(pa.schema([("f", pa.date32())])))
    assert stored.types == [
        *(pa.string(), pa.string(), pa.int64(), pa.timestamp("us", tz="UTC")),
        *(pa.list_(pa.field("element", pa.int16())), pa.date32()),
    ]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (pa.duration("ns"), "duration.*cast it"),
        (pa.time64("us"), "time64.*cast it"),
        (pa.null(), "type null.*give the schema"),
        (pa.list_(pa.null()), "type null"),
        (pa.list_(pa.duration("s")), "duration"),
        (pa.month_day_nano_interval(), "cast it"),
        (pa.fixed_shape_tensor(pa.int8(), [2]), "extension"),
        (pa.struct([]), "struct<>"),
    ],
    ids=str,
)
def test_types_that_an_output_cannot_hold(kind: pa.DataType, message: str) -> None:
    """The error names the column."""
    with pytest.raises(NotSupported, match=f"column 'odd' .*{message}"):
        storable_schema(pa.schema([("odd", kind)]))


def test_rows_are_converted() -> None:
    """Columns are taken by name; a narrower type is widened."""
    columns = pa.schema([("a", pa.int64()), ("t", pa.timestamp("us", tz="UTC")), ("d", pa.date32())])
    batch = pa.record_batch(
        {
            "d": pa.array([date(2026, 11, 21)]),
            "t": pa.array([1_000_999], pa.timestamp("ns", tz="America/New_York")),
            "a": pa.array([7], pa.int8()),
        }
    )
    fitted = fit_batch(batch, columns)
    assert fitted.schema == columns
    assert fitted.column("t").cast(pa.int64()).to_pylist() == [1_000]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"a": ["x"]}, "column 'a': string cannot be read as timestamp"),
        ({"a": [datetime(2026, 1, 1)]}, "has no zone"),
        ({"b": [1]}, "some rows have the columns b"),
    ],
)
def test_rows_that_do_not_fit(given: dict[str, list[object]], message: str) -> None:
    """No value is guessed."""
    columns = pa.schema([("a", pa.timestamp("us", tz="UTC"))])
    with pytest.raises(ConfigurationError, match=message):
        fit_batch(pa.record_batch(given), columns)
