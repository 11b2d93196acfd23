"""Any schema or partition of a record, and any option, is read, or refused with a typed error.

The tests need no Spark session.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import strategies as st
from pyspark.sql import types as t

from commitlog.errors import ConfigurationError, CorruptRecord, InvalidPath, NotSupported
from commitlog.spark.schema import arrow_schema, dump_schema, load_schema
from commitlog.spark.targets.output import ReadOptions, WriteOptions
from commitlog.tabular.partitions import column_of, directory_of
from support.fuzzing import (
    HOSTILE,
    WILD_TEXTS,
    Properties,
    damaged_json,
    dumps,
    outcome,
    replaced,
    wild_json,
    wild_texts,
)

fuzz = Properties()

SCHEMA = t.StructType(
    [
        t.StructField("id", t.LongType(), nullable=False, metadata={"type": "udt", "comment": "mine"}),
        t.StructField("price", t.DecimalType(10, 2)),
        t.StructField("tags", t.ArrayType(t.StringType())),
        t.StructField("by name", t.MapType(t.StringType(), t.DoubleType())),
        t.StructField("place", t.StructType([t.StructField("city", t.StringType())])),
        t.StructField("at", t.TimestampType()),
    ]
)
#: Terms of Spark's type notation, for places where they are invalid.
WORDS = (
    *("struct", "array", "map", "udt", "void", "variant", "long", "interval", "decimal"),
    *("decimal(10,2)", "decimal(99,0)", "decimal(5,9)", "decimal(0,0)", "decimal(-1,2)"),
    *("char(9999999999)", "varchar(-1)", "interval day to second", "interval second to day"),
    *("string collate UTF8_LCASE", "string collate NONE_SUCH", "geometry(4326)", "time(9)"),
    {"type": "udt", "pyClass": "this.Nothing", "sqlType": "long"},
    {"type": "struct", "fields": []},
    {"type": "array", "elementType": "long"},
)


def check_schema(text: str) -> None:
    """Check that `text` is refused, or is a schema that round-trips."""
    found = outcome(lambda: load_schema(text), CorruptRecord, NotSupported)
    if isinstance(found, t.StructType):
        assert load_schema(dump_schema(found)) == found
        outcome(lambda: arrow_schema(found), NotSupported)


def test_a_schema_round_trips() -> None:
    """The schema that the other tests damage is valid."""
    assert load_schema(dump_schema(SCHEMA)) == SCHEMA


def test_an_invalid_part_of_a_schema_is_corrupt() -> None:
    """Any value of a part is a valid part of a schema, or makes the record corrupt."""
    for value in replaced(json.loads(dump_schema(SCHEMA)), (*HOSTILE, *WORDS)):
        check_schema(dumps(value))


@fuzz(
    300,
    value=damaged_json(json.loads(dump_schema(SCHEMA)), st.sampled_from([*WORDS, *HOSTILE]) | wild_json),
)
def test_a_damaged_schema_is_valid_or_corrupt(value: Any) -> None:
    """Schemas with several damaged parts."""
    check_schema(dumps(value))


@fuzz(100, text=st.text(max_size=30) | wild_json.map(dumps))
def test_any_text_is_a_schema_or_corrupt(text: str) -> None:
    """This holds for arbitrary texts and arbitrary JSON."""
    check_schema(text)


@pytest.mark.parametrize("depth", [100, 300, 900, 50_000])
def test_a_deeply_nested_schema_is_refused(depth: int) -> None:
    """Deep nesting is refused at any depth of the stack."""
    text = '{"type":"array","containsNull":true,"elementType":' * depth + '"long"' + "}" * depth
    field = '{"name":"a","nullable":true,"metadata":{},"type":'
    check_schema(f'{{"type":"struct","fields":[{field}{text}}}]}}')


def test_a_stored_schema_runs_no_code() -> None:
    """To read a user-defined type, pyspark would import the module in the text, and call its class."""
    text = json.dumps(
        {
            "type": "struct",
            "fields": [{"name": "a", "nullable": True, "metadata": {}, "type": WORDS[-3]}],
        }
    )
    assert "udt" in text
    with pytest.raises(CorruptRecord):
        load_schema(text)
    assert "this" not in sys.modules


# -- partitions --------------------------------------------------------------------------------------

KINDS = (
    *(pa.int8(), pa.int64(), pa.string(), pa.bool_(), pa.date32(), pa.float64(), pa.binary()),
    *(pa.decimal128(5, 2), pa.timestamp("us", tz="UTC"), pa.list_(pa.int64()), pa.null()),
    *(pa.struct([pa.field("a", pa.int64())]), pa.map_(pa.string(), pa.int64())),
)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_partition_value_is_valid_or_corrupt(kind: pa.DataType) -> None:
    """Any text for a partition column makes a column, or makes the record corrupt."""
    field = pa.field("day", kind)
    for value in (None, *WILD_TEXTS):
        found = outcome(lambda: column_of({"day": value}, field, 3), CorruptRecord)  # noqa: B023
        assert isinstance(found, CorruptRecord) or (found.type == kind and len(found) == 3)
    with pytest.raises(CorruptRecord):
        column_of({}, field, 3)


@fuzz(200, partition=st.dictionaries(wild_texts, st.none() | wild_texts, max_size=3))
def test_a_partition_directory_cannot_lead_elsewhere(partition: dict[str, str | None]) -> None:
    """Each column makes one segment, whatever its name and value are."""
    segments = directory_of(partition).split("/")
    assert len(segments) == len(partition) + 1 and not segments[-1]
    assert not {".", ".."} & set(segments)


# -- options -----------------------------------------------------------------------------------------

NAMES = (
    *("path", "commit", "table", "table.endpointUrl", "endpoint_url", "ENDPOINTURL", "region"),
    *("rollForward", "jobId", "ifExists", "compression", "partitionBy", "accessKeyId", "what"),
)


@fuzz(
    300,
    options=st.dictionaries(
        st.sampled_from(NAMES) | wild_texts,
        wild_texts | st.sampled_from(["s3://bucket/a", "/data", "memory://a", "dynamodb://t", "true"]),
        max_size=5,
    ),
)
def test_any_options_are_valid_or_refused(options: dict[str, str]) -> None:
    """Options are checked before any file is touched, and no secret is shown."""
    secret = {"path": "/data", **options, "secretAccessKey": "hidden"}
    for kind in (ReadOptions, WriteOptions):
        found = outcome(lambda: kind.parse(secret), ConfigurationError, InvalidPath, NotSupported)  # noqa: B023
        assert "hidden" not in repr(found)


@pytest.mark.campaign
def test_campaign(campaign_seconds: float, campaign_seed: int) -> None:
    """Run all properties with new examples, for the given time."""
    print(f"{fuzz.campaign(campaign_seconds, campaign_seed)} examples")
