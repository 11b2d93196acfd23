"""Schemas of outputs: checks and conversions between Spark, Arrow and commit records."""

from __future__ import annotations

import json

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import types as t

from commitlog.errors import CorruptRecord, NotSupported

__all__ = [
    "arrow_schema",
    "check_columns",
    "dump_schema",
    "load_schema",
    "merge_schemas",
    "nullable",
    "select",
    "with_nulls",
]

# Timestamps are stored as instants in UTC, independent of the session's time zone. Spark expects them in
# that form from a reader.
_ARROW: dict[type[t.DataType], pa.DataType] = {
    t.BooleanType: pa.bool_(),
    t.ByteType: pa.int8(),
    t.ShortType: pa.int16(),
    t.IntegerType: pa.int32(),
    t.LongType: pa.int64(),
    t.FloatType: pa.float32(),
    t.DoubleType: pa.float64(),
    t.StringType: pa.string(),
    t.BinaryType: pa.binary(),
    t.DateType: pa.date32(),
    t.TimestampType: pa.timestamp("us", tz="UTC"),
    t.TimestampNTZType: pa.timestamp("us"),
}


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
    seen: set[str] = set()
    for field in schema:
        # By default, Spark matches names without regard to case.
        if field.name.lower() in seen:
            raise NotSupported(f"column {field.name!r} occurs twice (letter case does not count)")
        seen.add(field.name.lower())
        arrow_type(field.dataType, field.name)
    if not seen:
        raise NotSupported("there is no column to write: Parquet cannot store rows without columns")


def arrow_schema(schema: t.StructType) -> pa.Schema:
    """Return the Arrow schema of `schema`; raise `NotSupported` for a type without an Arrow type."""
    return pa.schema([_field(field, field.name) for field in schema])


def _field(field: t.StructField, name: str) -> pa.Field:
    return pa.field(field.name, arrow_type(field.dataType, name), field.nullable)


def arrow_type(kind: t.DataType, name: str) -> pa.DataType:
    """Return the Arrow type of `kind`; `name` is the column's name for messages."""
    match kind:
        case t.DecimalType():
            return pa.decimal128(kind.precision, kind.scale)
        case t.ArrayType():
            return pa.list_(pa.field("element", arrow_type(kind.elementType, name), kind.containsNull))
        case t.MapType():
            key = pa.field("key", arrow_type(kind.keyType, name), nullable=False)
            value = pa.field("value", arrow_type(kind.valueType, name), kind.valueContainsNull)
            return pa.map_(key, value)
        case t.StructType() if kind.fields:
            return pa.struct([_field(f, f"{name}.{f.name}") for f in kind])
    known = _ARROW.get(type(kind))
    if known is None:
        raise NotSupported(
            f"column {name!r} is of type {kind.simpleString()}, which not every Parquet reader"
            " understands: cast it, for example to string"
        )
    return known


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


def merge_schemas(first: t.StructType, second: t.StructType) -> t.StructType | None:
    """Return the columns of both, those of `first` first; None if one has two types.

    >>> a, b = t.StructField("a", t.LongType()), t.StructField("b", t.StringType())
    >>> merge_schemas(t.StructType([a]), t.StructType([b, a])).simpleString()
    'struct<a:bigint,b:string>'
    """
    by_name = {field.name.lower(): field for field in first}
    added = []
    for field in second:
        known = by_name.get(field.name.lower())
        if known is None:
            added.append(field)
        elif (known.name, known.dataType) != (field.name, field.dataType):
            return None
    return t.StructType([*first, *added])


def dump_schema(schema: t.StructType) -> str:
    """Return `schema` as the JSON text that a commit record keeps: Spark's own notation."""
    text: str = schema.json()
    return text


def load_schema(text: str) -> t.StructType:
    """Return the schema that `dump_schema` wrote; raise `CorruptRecord` if it is none.

    Raises `NotSupported` if a later release wrote it, with types that are not known here.

    >>> load_schema(dump_schema(t.StructType([t.StructField("a", t.LongType())]))).simpleString()
    'struct<a:bigint>'
    """
    try:
        value = json.loads(text)
        _refuse_code(value)
        schema = t.StructType.fromJson(value)
        arrow_schema(schema)
    except _MALFORMED as error:
        raise CorruptRecord("the schema in the commit record is not in Spark's notation") from error
    return schema


# Errors of pyspark for a text that is not a schema: it checks little, and asserts some.
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
