"""Schemas of outputs: Spark's notation in commit records, columns in Arrow, and checks that rows fit.

A commit record has the schema as the JSON text of Spark's ``StructType.json()``, whatever program wrote
the rows. So every reader and writer understands the schema. This module needs Arrow, but not Spark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from commitlog.errors import ConfigurationError, CorruptRecord, NotSupported
from commitlog.files import OUTPUT_FORMATS
from commitlog.files.types import TypeMismatch, convert, leaf_types, spark_type
from commitlog.outputs import DataFile
from commitlog.tabular.task_files import FileOptions

__all__ = [
    "arrow_type",
    "check_names",
    "check_schema",
    "dump_schema",
    "fit_batch",
    "load_schema",
    "merge_schemas",
    "override_types",
    "storable_schema",
]

# Timestamps are stored as instants in UTC, independent of the time zone of a session. Spark expects them
# in that form from a reader.
_ARROW: Mapping[str, pa.DataType] = MappingProxyType(
    {
        "boolean": pa.bool_(),
        "byte": pa.int8(),
        "short": pa.int16(),
        "integer": pa.int32(),
        "long": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "string": pa.string(),
        "binary": pa.binary(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestamp_ntz": pa.timestamp("us"),
    }
)

#: The names in the notation of types that messages spell as SQL does.
_SQL: Mapping[str, str] = MappingProxyType(
    {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}
)

_DECIMAL = re.compile(r"decimal\((\d{1,2}),(-?\d{1,2})\)")

#: Errors of Python for a text that is not a schema.
_MALFORMED = (AttributeError, LookupError, RecursionError, TypeError, ValueError)


def check_names(names: Iterable[str]) -> None:
    """Raise `NotSupported` if readers cannot tell the columns `names` apart, or there are none."""
    seen: set[str] = set()
    for name in names:
        # By default, Spark matches names without regard to case.
        if name.lower() in seen:
            raise NotSupported(f"column {name!r} occurs twice (letter case does not count)")
        seen.add(name.lower())
    if not seen:
        raise NotSupported("there is no column to write: Parquet cannot store rows without columns")


# -- the notation ------------------------------------------------------------------------------------


def arrow_type(kind: Any, name: str) -> pa.DataType:
    """Return the Arrow type of a type in Spark's notation; `name` is the column's name for messages.

    Raises `NotSupported` for a type that not every reader of Parquet understands.

    >>> arrow_type({"type": "array", "elementType": "long", "containsNull": True}, "a")
    ListType(list<element: int64>)
    """
    if isinstance(kind, str):
        if kind in _ARROW:
            return _ARROW[kind]
        decimal = _DECIMAL.fullmatch(kind)
        if decimal:
            return pa.decimal128(int(decimal[1]), int(decimal[2]))
    elif kind["type"] == "array":
        element = arrow_type(kind["elementType"], name)
        return pa.list_(pa.field("element", element, kind["containsNull"]))
    elif kind["type"] == "map":
        key = pa.field("key", arrow_type(kind["keyType"], name), nullable=False)
        value = arrow_type(kind["valueType"], name)
        return pa.map_(key, pa.field("value", value, kind["valueContainsNull"]))
    elif kind["type"] == "struct" and kind["fields"]:
        return pa.struct([_arrow_field(field, f"{name}.{field['name']}") for field in kind["fields"]])
    raise NotSupported(
        f"column {name!r} is of type {_spelled(kind)}, which not every Parquet reader"
        " understands: cast it, for example to string"
    )


def _arrow_field(field: Mapping[str, Any], name: str) -> pa.Field:
    return pa.field(field["name"], arrow_type(field["type"], name), field["nullable"])


def load_schema(text: str) -> pa.Schema:
    """Return the columns of a schema in a commit record.

    Raises `CorruptRecord` if it is not in Spark's notation, and `NotSupported` if a later release wrote
    it, with types that are not known here.

    >>> load_schema(dump_schema(pa.schema([("a", pa.int64())])))
    a: int64
    """
    try:
        return pa.schema([_arrow_field(field, field["name"]) for field in _fields(text)])
    except _MALFORMED as error:
        raise _not_a_schema() from error


def dump_schema(columns: pa.Schema) -> str:
    """Return `columns` as the JSON text that a commit record keeps; everything may be null.

    Raises `NotSupported` for a type that Spark's notation lacks, as `storable_schema` does.

    >>> dump_schema(pa.schema([("a", pa.int64())]))
    '{"fields":[{"metadata":{},"name":"a","nullable":true,"type":"long"}],"type":"struct"}'
    """
    return _dump([_noted_field(field, field.name) for field in columns])


def _noted_field(field: pa.Field, name: str) -> dict[str, Any]:
    kind = _noted(field.type, name)
    return {"metadata": {}, "name": field.name, "nullable": True, "type": kind}


def _noted(kind: pa.DataType, name: str) -> Any:
    for known, arrow in _ARROW.items():
        if kind == arrow:
            return known
    if pa.types.is_decimal128(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_list(kind):
        return {"type": "array", "elementType": _noted(kind.value_type, name), "containsNull": True}
    if pa.types.is_map(kind):
        key, value = _noted(kind.key_type, name), _noted(kind.item_type, name)
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    if pa.types.is_struct(kind) and kind.num_fields:
        fields = [_noted_field(field, f"{name}.{field.name}") for field in kind]
        return {"type": "struct", "fields": fields}
    raise NotSupported(
        f"column {name!r} is of type {kind}, which not every Parquet reader understands:"
        " cast it, for example to string"
    )


def _fields(text: str) -> list[dict[str, Any]]:
    """Return the columns in a text; raise `CorruptRecord` if it is not in Spark's notation."""
    try:
        value = json.loads(text)
        fields = value["fields"]
        if value["type"] != "struct" or not all(isinstance(field["name"], str) for field in fields):
            raise _not_a_schema()
    except _MALFORMED as error:
        raise _not_a_schema() from error
    return list(fields)


def _dump(fields: Sequence[Mapping[str, Any]]) -> str:
    """Return the same text as Spark does for columns."""
    return json.dumps({"type": "struct", "fields": fields}, separators=(",", ":"), sort_keys=True)


def _not_a_schema() -> CorruptRecord:
    return CorruptRecord("the schema in the commit record is not in Spark's notation")


def _spelled(kind: Any) -> str:
    """Return a type as Spark's messages spell it."""
    match kind:
        case str():
            return _SQL.get(kind, kind)
        case {"type": "array"}:
            return f"array<{_spelled(kind['elementType'])}>"
        case {"type": "map"}:
            return f"map<{_spelled(kind['keyType'])},{_spelled(kind['valueType'])}>"
        case {"type": "struct"}:
            members = (f"{field['name']}:{_spelled(field['type'])}" for field in kind["fields"])
            return f"struct<{','.join(members)}>"
    return str(kind["type"])


# -- rows and their output ---------------------------------------------------------------------------


def storable_schema(schema: pa.Schema, existing: str | None = None) -> pa.Schema:
    """Return the columns of files for rows of `schema`: the types of Spark that hold their values.

    Text and dictionaries become strings, an unsigned number the next wider signed one, and a timestamp
    one of microseconds, in UTC if it has a zone. A column of type null gets that of the output.

    Args:
        schema: columns of the rows.
        existing: the schema of the output, as a commit record has it; None if there is none.

    Raises `NotSupported` for a column that an output cannot hold: of a duration, a time of day, an
    extension type, or type null if the output lacks the column.

    >>> storable_schema(pa.schema([("a", pa.large_string()), ("b", pa.timestamp("ns"))]))
    a: string
    b: timestamp[us]
    """
    check_names(schema.names)
    known = None
    fields = []
    for field in schema:
        kind = field.type
        if pa.types.is_null(kind) and existing is not None:
            known = load_schema(existing) if known is None else known
            if field.name in known.names:
                kind = known.field(field.name).type
        for leaf in (kind, *leaf_types(kind)):
            _check_leaf(leaf, field.name)
        # As `load_schema` returns it: names of members, and what may be null, can differ.
        stored = arrow_type(_noted(spark_type(kind), field.name), field.name)
        fields.append(pa.field(field.name, stored))
    return pa.schema(fields)


def _check_leaf(kind: pa.DataType, name: str) -> None:
    if isinstance(kind, pa.BaseExtensionType) or pa.types.is_duration(kind) or pa.types.is_time(kind):
        raise NotSupported(f"column {name!r} is of type {kind}, which an output cannot hold: cast it")
    if pa.types.is_null(kind):
        raise NotSupported(
            f"column {name!r} has type null, because no value of it is known: cast it, or give the"
            " schema of the rows"
        )


def override_types(columns: pa.Schema, types: Mapping[str, pa.DataType]) -> pa.Schema:
    """Return the names of `columns` with their types, or with those that `types` has for them.

    Raises `ConfigurationError` if `types` names another column.
    """
    if unknown := types.keys() - set(columns.names):
        raise ConfigurationError(f"schema names {min(unknown)!r}, and the rows have no such column")
    return pa.schema([(each.name, types.get(each.name, each.type)) for each in columns])


def fit_batch(batch: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    """Return the rows of `batch` with the columns `columns`, in their order.

    A number, decimal or timestamp may be converted to a wider type; see `commitlog.files.types.convert`.

    Raises `ConfigurationError` if the batch has other columns, or a value is not of its column's type.
    """
    if sorted(batch.schema.names) != sorted(columns.names):
        raise ConfigurationError(
            f"some rows have the columns {', '.join(batch.schema.names)}, but the columns of the job are"
            f" {', '.join(columns.names)}"
        )
    arrays = []
    for field in columns:
        try:
            # A time without a zone is not an instant.
            arrays.append(convert(batch.column(field.name), field.type, zone=None))
        except TypeMismatch as error:
            raise ConfigurationError(f"column {field.name!r}: {error}") from error
    return pa.RecordBatch.from_arrays(arrays, schema=columns)


def check_schema(
    before: str | None,
    files: Callable[[], Iterable[DataFile]],
    columns: str,
    options: FileOptions,
    *,
    merge: bool,
) -> str:
    """Return the schema after rows with `columns` are added; raise if they do not fit.

    Args:
        before: the existing schema, in Spark's notation; None if there is none.
        files: yields the existing files, from the start at each call.
        columns: columns of the rows to add, in the same notation.
        options: options of the write.
        merge: whether rows may have other columns, and lack some.

    Raises `ConfigurationError` if they do not fit, and `CorruptRecord` if `before` is not a schema.
    """
    partition = next((tuple(file.partition) for file in files()), None)
    if partition is not None and partition != options.partition_by:
        raise ConfigurationError(
            f"the output is partitioned by {', '.join(partition) or 'nothing'}:"
            " give the same partition columns (partition_by, or Spark's option partitionBy)"
        )
    if before is None:
        return columns
    load_schema(before)  # raises if it is none
    merged = merge_schemas(before, columns)
    names, new_names = ([field["name"] for field in _fields(text)] for text in (before, columns))
    if merged is None or not (set(names) == set(new_names) or merge):
        old, new = (_spelled({"type": "struct", "fields": _fields(t)}) for t in (before, columns))
        raise ConfigurationError(
            f"the output has the columns {old}, the rows to append {new}: they must be the same, in any"
            " order"
            + (
                ""
                if merged is None
                else "; merge_schema (Spark: mergeSchema=true) lets some be added or lack"
            )
        )
    if options.file_format == "csv" and names != new_names:
        raise ConfigurationError(
            "CSV files know their columns by their order: select those of the rows to append in the"
            f" output's, {', '.join(names)}"
        )
    csv = tuple(OUTPUT_FORMATS["csv"].compressions.values())
    if merged != before and any(file.path.endswith(csv) for file in files()):
        raise ConfigurationError(
            "the output has CSV files, which know their columns by their order: none can be added"
        )
    return merged


def merge_schemas(first: str, second: str) -> str | None:
    """Return the columns of both, those of `first` first; None if a column has two types.

    The text is `first` itself if the second has no other column: concurrent jobs with the same columns
    do not conflict.

    Args:
        first: a schema in Spark's notation.
        second: another one.

    Raises `CorruptRecord` if a text is not a schema.
    """
    fields = _fields(first)
    by_name = {field["name"].lower(): field for field in fields}
    added = []
    for field in _fields(second):
        known = by_name.get(field["name"].lower())
        if known is None:
            added.append(field)
        elif (known["name"], known["type"]) != (field["name"], field["type"]):
            return None
    return _dump([*fields, *added]) if added else first
