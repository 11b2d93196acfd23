"""Schemas of outputs: Spark's notation in commit records, columns in Arrow, and checks that rows fit.

`commitlog.tabular.columns` describes what a record keeps. This module needs Arrow, but not Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa

from commitlog.errors import ConfigurationError, NotSupported
from commitlog.files import OUTPUT_FORMATS
from commitlog.files.types import TypeMismatch, convert, leaf_types, spark_type
from commitlog.outputs import DataFile
from commitlog.tabular.columns import ARROW, OutputColumns, arrow_type
from commitlog.tabular.task_files import FileOptions

__all__ = [
    "check_names",
    "check_positions",
    "check_schema",
    "dump_schema",
    "fit_batch",
    "load_schema",
    "merge_schemas",
    "override_types",
    "storable_schema",
]


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


def load_schema(text: str) -> pa.Schema:
    """Return the columns of a schema in a commit record.

    Raises `CorruptRecord` if it is not in Spark's notation, and `NotSupported` if not every format has a
    type for each column, or the columns are unknown.

    >>> load_schema(dump_schema(pa.schema([("a", pa.int64())])))
    a: int64
    """
    return OutputColumns.parse(text).arrow()


def dump_schema(columns: pa.Schema) -> str:
    """Return `columns` as the JSON text that a commit record keeps; everything may be null.

    Raises `NotSupported` for a type that Spark's notation lacks, as `storable_schema` does.

    >>> dump_schema(pa.schema([("a", pa.int64())]))
    '{"fields":[{"metadata":{},"name":"a","nullable":true,"type":"long"}],"type":"struct"}'
    """
    return OutputColumns(fields=tuple(_noted_field(field, field.name) for field in columns)).dump()


def _noted_field(field: pa.Field, name: str) -> dict[str, Any]:
    kind = _noted(field.type, name)
    return {"metadata": {}, "name": field.name, "nullable": True, "type": kind}


def _noted(kind: pa.DataType, name: str) -> Any:
    for known, arrow in ARROW.items():
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
    known = pa.schema([]) if existing is None else OutputColumns.parse(existing).writable()
    fields = []
    for field in schema:
        kind = field.type
        if pa.types.is_null(kind) and field.name in known.names:
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

    Raises `ConfigurationError` if they do not fit, `NotSupported` if the columns of the existing files
    are unknown, and `CorruptRecord` if `before` is not a schema.
    """
    partition = next((tuple(file.partition) for file in files()), None)
    if partition is not None and partition != options.partition_by:
        raise ConfigurationError(
            f"the output is partitioned by {', '.join(partition) or 'nothing'}:"
            " give the same partition columns (partition_by, or Spark's option partitionBy)"
        )
    if before is None:
        return columns
    known, added = OutputColumns.parse(before), OutputColumns.parse(columns)
    if known.unknown is not None:
        if next(iter(files()), None) is not None:
            known.check_known()
        return columns
    merged = merge_schemas(before, columns)
    names, new_names = known.names, added.names
    if merged is None or not (set(names) == set(new_names) or merge):
        raise ConfigurationError(
            f"the output has the columns {known}, the rows to append {added}: they must be the same, in"
            " any order"
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
    if merged != before:
        check_positions(files())
    return merged


def check_positions(files: Iterable[DataFile]) -> None:
    """Raise `ConfigurationError` if an output with `files` cannot get another column."""
    csv = tuple(OUTPUT_FORMATS["csv"].compressions.values())
    if any(file.path.endswith(csv) for file in files):
        raise ConfigurationError(
            "the output has CSV files, which know their columns by their order: none can be added"
        )


def merge_schemas(first: str, second: str) -> str | None:
    """Return the columns of both, those of `first` first; None if a column has two types.

    The text is `first` itself if the second has no other column: concurrent jobs with the same columns
    do not conflict.

    Args:
        first: a schema in Spark's notation.
        second: another one.

    Raises `CorruptRecord` if a text is not a schema.
    """
    known = OutputColumns.parse(first)
    merged = known.merged(OutputColumns.parse(second))
    if merged is None:
        return None
    return first if merged == known else merged.dump()
