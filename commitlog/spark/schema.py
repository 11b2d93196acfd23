"""Schemas of outputs: checks and conversions between Spark, Arrow and commit records."""

from __future__ import annotations

import json

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import types as t

from commitlog.errors import CorruptRecord, NotSupported
from commitlog.tabular import columns as output_columns
from commitlog.tabular.columns import OutputColumns
from commitlog.tabular.schema import check_names

__all__ = [
    "arrow_schema",
    "check_columns",
    "dump_schema",
    "load_schema",
    "nullable",
    "readable_schema",
    "requested_schema",
    "select",
    "with_nulls",
]


def nullable(schema: t.StructType) -> t.StructType:
    """Return `schema` with everything in it nullable, as Spark's own file sources do.

    A DataFrame may exclude nulls, but an output cannot promise that: a later append may add nulls.

    >>> field = t.StructField("a", t.ArrayType(t.LongType(), containsNull=False), nullable=False)
    >>> nullable(t.StructType([field])).simpleString(), nullable(t.StructType([field]))[0].nullable
    ('struct<a:array<bigint>>', True)
    """
    widened = _nullable(schema)
    assert isinstance(widened, t.StructType)
    return widened


def _nullable(kind: t.DataType) -> t.DataType:
    if isinstance(kind, t.StructType):
        fields = [t.StructField(f.name, _nullable(f.dataType), True, f.metadata) for f in kind]
        return t.StructType(fields)
    if isinstance(kind, t.ArrayType):
        return t.ArrayType(_nullable(kind.elementType), True)
    if isinstance(kind, t.MapType):
        return t.MapType(_nullable(kind.keyType), _nullable(kind.valueType), True)
    return kind


def check_columns(schema: t.StructType) -> None:
    """Raise `NotSupported` if Parquet cannot store a column so that every reader understands it."""
    check_names(field.name for field in schema)
    arrow_schema(schema)


def arrow_schema(schema: t.StructType) -> pa.Schema:
    """Return the Arrow schema of `schema`; raise `NotSupported` for a type without an Arrow type."""
    return pa.schema([_field(field, field.name) for field in schema])


def _field(field: t.StructField, name: str) -> pa.Field:
    return pa.field(field.name, arrow_type(field.dataType, name), field.nullable)


def readable_schema(schema: t.StructType) -> pa.Schema:
    """Return the Arrow schema of those columns of `schema` that have an Arrow type."""
    return OutputColumns.parse(schema.json()).readable()


def requested_schema(schema: t.StructType) -> pa.Schema:
    """Return the Arrow schema of columns to read.

    Raises `NotSupported` for a column of a type that only Spark's own readers return.
    """
    found = readable_schema(schema)
    for field in schema:
        if field.name not in found.names:
            raise NotSupported(
                f"column {field.name!r} is of type {field.dataType.simpleString()}, which only Spark's"
                " own readers return: read with commitlog.spark.read, or name the other columns in"
                " schema(…)"
            )
    return found


def arrow_type(kind: t.DataType, name: str) -> pa.DataType:
    """Return the Arrow type of `kind`; `name` is the column's name for messages."""
    return output_columns.arrow_type(kind.jsonValue(), name)


def select(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the columns of `batch` that `schema` names, in its order and of its types."""
    columns = [batch.column(field.name) for field in schema]
    cast = [
        column if column.type.equals(field.type) else column.cast(field.type)
        for column, field in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(cast, schema=schema)


def with_nulls(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return `batch` with a column of nulls for each that `schema` has and the batch lacks."""
    for field in schema:
        if field.name not in batch.schema.names:
            batch = batch.append_column(field, pa.nulls(batch.num_rows, field.type))
    return batch


def dump_schema(schema: t.StructType) -> str:
    """Return `schema` as the JSON text that a commit record keeps: Spark's own notation."""
    text: str = schema.json()
    return text


def load_schema(text: str) -> t.StructType:
    """Return the columns in a commit record, of any type that this Spark has.

    Raises `CorruptRecord` if it has none, and `NotSupported` if the columns are unknown, or have types
    that this Spark lacks.

    >>> load_schema(dump_schema(t.StructType([t.StructField("a", t.LongType())]))).simpleString()
    'struct<a:bigint>'
    """
    OutputColumns.parse(text).check_known()
    value = json.loads(text)
    try:
        _refuse_code(value)
    except (RecursionError, ValueError) as error:
        raise CorruptRecord("the schema in the commit record is not in Spark's notation") from error
    try:
        return t.StructType.fromJson(value)
    except _MALFORMED as error:
        raise NotSupported(
            f"the output has columns of types that this version of Spark does not know ({error})"
        ) from error


# Errors of pyspark for a type that it does not know: it checks little, and asserts some.
_MALFORMED = (
    AssertionError,
    AttributeError,
    LookupError,
    PySparkException,
    RecursionError,
    TypeError,
    ValueError,
)


def _refuse_code(value: object) -> None:
    """Raise `ValueError` if a type is user-defined: pyspark would import the module that it names."""
    if isinstance(value, dict):
        if value.get("type") == "udt":
            raise ValueError("a type is user-defined")
        for name, inner in value.items():
            if name != "metadata":  # the user's own, and not read
                _refuse_code(inner)
    elif isinstance(value, list):
        for inner in value:
            _refuse_code(inner)
