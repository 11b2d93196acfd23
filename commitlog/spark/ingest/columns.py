"""Columns of a source: from the content of files, their paths, and their metadata."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Mapping
from itertools import islice
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from attrs import evolve
from pyspark.sql import types as t
from pyspark.sql.pandas.types import from_arrow_schema

from commitlog.errors import ConfigurationError, InputUnreadable, NotFound, UnknownColumns
from commitlog.files import Columns, NewColumns, Records
from commitlog.files.csv.values import value_converter
from commitlog.files.io import object_url
from commitlog.files.rescue import as_json, joined
from commitlog.files.types import (
    TypeMismatch,
    match_names,
    replace_null_types,
    unify_schemas,
)
from commitlog.ingest import File, Pinned, Slice, StateTable
from commitlog.spark.ingest.options import IngestOptions
from commitlog.spark.schema import (
    arrow_schema,
    dump_schema,
    load_schema,
    nullable,
    select,
    with_nulls,
)
from commitlog.stores.api import ObjectStore
from commitlog.tabular.partitions import NULL

__all__ = [
    "METADATA",
    "METADATA_COLUMN",
    "RowBuilder",
    "check_metadata",
    "inferred_columns",
    "metadata_values",
    "path_values",
]

#: Name of the column with the metadata of each record's file, and its possible fields.
METADATA_COLUMN = "_metadata"
METADATA = t.StructType(
    [
        t.StructField("file_path", t.StringType()),
        t.StructField("file_name", t.StringType()),
        t.StructField("file_size", t.LongType()),
        t.StructField("file_modification_time", t.TimestampType()),
        t.StructField("etag", t.StringType()),
        t.StructField("offset", t.LongType()),
    ]
)
#: Member of a rescued object with the values of directories without a column.
_DIRECTORIES = "_directories"

_ESCAPE = re.compile("%([0-9A-Fa-f]{2})")

_KNOWN = [(each.name, each.dataType) for each in METADATA]


def _is_metadata(known: t.StructField) -> bool:
    kind = known.dataType
    return (
        known.name == METADATA_COLUMN
        and isinstance(kind, t.StructType)
        and all((each.name, each.dataType) in _KNOWN for each in kind)
    )


class RowBuilder:
    """Builds the rows of a query from records of files, their paths and their metadata. Thread-safe.

    Args:
        schema: all columns of the query.
        new: policy for further columns of files.
        rescued: name of the column for rescued values, if that is the policy.

    A directory ``name=value`` is a column of the files below it. Names are matched without regard to
    letter case. The value of the directory is the value of the column. A record may have the column as
    well, with the same value or null. Another value is ignored, refused or rescued, like new columns;
    and so is a directory without a column.

    Attributes:
        content: the columns that files and their directories may have.
    """

    def __init__(self, schema: t.StructType, new: NewColumns, rescued: str) -> None:
        self._schema = arrow_schema(schema)
        self._new = new
        self._rescued = rescued
        #: The type of the metadata column, if there is one.
        self._metadata = next(
            (self._schema.field(each.name).type for each in schema if _is_metadata(each)), None
        )
        self._offsets = self._metadata is not None and self._metadata.get_field_index("offset") >= 0
        own = set() if self._metadata is None else {METADATA_COLUMN}
        if new == "rescue":
            if rescued not in schema.names or schema[rescued].dataType != t.StringType():
                raise ConfigurationError(
                    f"newColumns is rescue, but the schema has no column {rescued} STRING for rescued"
                    " values: add it"
                )
            own.add(rescued)
        self.content = pa.schema([each for each in self._schema if each.name not in own])

    def columns(self, file: File) -> Columns:
        """Return the columns to read from the content of a file.

        A column in the path is read from the content too, unless new columns are ignored: `rows`
        compares the two.

        Raises `UnknownColumns` if the path has columns that the query does not know and the policy is
        to fail, and `InputUnreadable` like `path_values`.
        """
        values, unknown = self._path_values(file.path)
        columns = Columns(
            schema=self.content, new=self._new, in_path=frozenset(values), offsets=self._offsets
        )
        columns.check(file.path, list(unknown))
        if self._new != "ignore":
            return columns
        return evolve(
            columns, schema=pa.schema([each for each in self.content if each.name not in values])
        )

    def rows(self, records: Records, slice: Slice, url: str) -> pa.RecordBatch:
        """Return records of a slice as rows of the query; `url` is the URL of the store.

        Raises:
            InputUnreadable: the name of a directory is not a value of its column's type.
            UnknownColumns: a record has another value than its directory, and new columns are refused.
        """
        path, batch = slice.file.path, records.batch
        values, unknown = self._path_values(path)
        others: dict[str, pa.Array] = {}
        for name, text in values.items():
            field = self.content.field(name)
            value = _value(path, field, text)
            if name in batch.schema.names:
                others[name] = _others(batch.column(name), value)
                batch = batch.select([each for each in batch.schema.names if each != name])
            batch = batch.append_column(field, pa.repeat(value, batch.num_rows))
        if self._new == "fail":
            _refuse_others(path, others)
        if self._new == "rescue":
            rescued = joined(records.rescued, as_json(list(others), list(others.values())))
            if unknown:
                directories = json.dumps({_DIRECTORIES: unknown}, ensure_ascii=False)
                rescued = joined(rescued, pa.repeat(pa.scalar(directories), batch.num_rows))
            if rescued is not None:
                batch = batch.append_column(self._schema.field(self._rescued), rescued)
        if self._metadata is not None:
            metadata = _metadata(records, slice.file, url, self._metadata)
            batch = batch.append_column(self._schema.field(METADATA_COLUMN), metadata)
        return select(with_nulls(batch, self._schema), self._schema)

    def path_columns(self, path: str) -> dict[str, pa.Scalar]:
        """Return the values of columns in a path, by column. Raises `InputUnreadable` as `rows`."""
        values, _ = self._path_values(path)
        return {name: _value(path, self.content.field(name), text) for name, text in values.items()}

    def _path_values(self, path: str) -> tuple[dict[str, str | None], dict[str, str | None]]:
        """Return the values in a path: those of columns by the names of the columns, and the others."""
        values = path_values(path)
        names = list(values)
        try:
            indexes = match_names(names, self.content.names)
        except TypeMismatch as error:
            raise InputUnreadable(f"the directories of {path!r} cannot be read: {error}") from error
        known = {
            name: values[names[index]]
            for name, index in zip(self.content.names, indexes, strict=True)
            if index is not None
        }
        return known, {name: values[name] for at, name in enumerate(names) if at not in indexes}


def _value(path: str, field: pa.Field, text: str | None) -> pa.Scalar:
    """Return the value of a column from the text in the name of a directory."""
    kind = field.type
    if text is None or kind in (pa.string(), pa.binary()):
        return pa.scalar(text, pa.string()).cast(kind)
    value = None if pa.types.is_nested(kind) else value_converter(kind)(text)
    if value is None:
        raise InputUnreadable(
            f"the directories of {path!r} do not fit column {field.name!r}: {text!r} is not of type"
            f" {kind}. Make the column a string, or leave out the directory with a glob"
        )
    return pa.scalar(value, kind)


def _others(column: pa.Array, value: pa.Scalar) -> pa.Array:
    """Return a column with null for each value that is equal to `value`."""
    if not value.is_valid:
        return column
    return pc.if_else(pc.not_equal(column, value), column, pa.scalar(None, column.type))


def _refuse_others(path: str, others: Mapping[str, pa.Array]) -> None:
    for name, column in others.items():
        if column.null_count < len(column):
            raise UnknownColumns(
                f"{path!r} has a record whose {name!r} differs from that of its directory. Set"
                " option newColumns to rescue to keep both, or to ignore to take the directory's alone;"
                " nothing was lost"
            )


def check_metadata(schema: t.StructType, *, wanted: bool) -> None:
    """Raise `ConfigurationError` if the column with metadata is wanted, and the schema lacks it."""
    if wanted and METADATA_COLUMN not in schema.names:
        raise ConfigurationError(
            f"metadata is true, but the schema has no column {METADATA_COLUMN}: add it as"
            f" {METADATA.simpleString()}, or with some of these fields"
        )


def metadata_values(file: File, url: str) -> dict[str, Any]:
    """Return the fields of `METADATA` that all records of a file share; `url` is that of the store."""
    return {
        "file_path": object_url(url, file.path),
        "file_name": posixpath.basename(file.path),
        "file_size": file.size,
        "file_modification_time": int(file.modified * 1_000_000),
        "etag": file.etag.strip('"'),
    }


def _metadata(records: Records, file: File, url: str, kind: pa.StructType) -> pa.Array:
    values = metadata_values(file, url)
    arrays = [
        records.offsets
        if each.name == "offset"
        else pa.repeat(pa.scalar(values[each.name], each.type), len(records))
        for each in kind
    ]
    return pa.StructArray.from_arrays(arrays, fields=list(kind))


def inferred_columns(options: IngestOptions, store: ObjectStore) -> t.StructType:
    """Return the columns of a sample of files, as they were at the first call for the source.

    They are kept in the state, and do not change.

    Args:
        options: options of the source. The table of its state exists.
        store: the store of the input.

    Raises `NotFound` if there is no file, and `ConfigurationError` if files contradict each other.
    """
    with options.opened_table() as table:
        state = StateTable(table, options.settings.source)
        stored = state.schema()
        if stored is None:
            stored = state.fix_schema(dump_schema(_inferred(options, store)))
    return load_schema(stored)


def _inferred(options: IngestOptions, store: ObjectStore) -> t.StructType:
    fixed = options.input.fixed
    listed = store.list(options.settings.listed_prefix)
    wanted = (info for info in listed if options.settings.names.wants(info.path))
    sample = [File.of(info) for info in islice(wanted, options.sample_files)]
    if fixed is None and not sample:
        raise NotFound(
            f"there is no file below {store.url} to infer the columns: give them with .schema(…)"
        )
    found = [fixed] if fixed else [options.input.infer(Pinned(store, file)) for file in sample]
    merged = replace_null_types(unify_schemas(found, strings=options.input.strings))
    # Strings: the name of a later directory may not be a number, and must not fail the query.
    known = {name.lower() for name in merged.names}
    more = []
    for name in (name for file in sample for name in path_values(file.path)):
        if name.lower() not in known:
            known.add(name.lower())
            more.append(pa.field(name, pa.string()))
    # The default of the flag depends on the version of Spark.
    schema = nullable(from_arrow_schema(pa.schema([*merged, *more]), prefer_timestamp_ntz=True))
    arrow_schema(schema)
    return schema


def path_values(path: str) -> dict[str, str | None]:
    """Return the values in directories called ``name=value``; other directories are ignored.

    Escapes are read as UTF-8, as pyarrow and DuckDB write them. If they are not valid UTF-8, each is one
    character, as in Hive and Spark, which escape only ASCII characters.

    Raises `InputUnreadable` if two directories have the same name and different values.

    >>> path_values("raw/day=2026-11-21/at=00%3A30/a=b.json"), path_values("a=caf%E9/b=caf%C3%A9/c")
    ({'day': '2026-11-21', 'at': '00:30'}, {'a': 'café', 'b': 'café'})
    """
    values: dict[str, str | None] = {}
    for directory in path.split("/")[:-1]:
        if "=" not in directory.strip("="):
            continue
        name, text = map(_unescaped, directory.split("=", 1))
        value = None if text == NULL else text
        if values.setdefault(name, value) != value:
            raise InputUnreadable(
                f"two directories of {path!r} are called {name!r}: leave them out with a glob, or rename"
                " one"
            )
    return values


def _unescaped(text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        return _ESCAPE.sub(lambda match: chr(int(match[1], 16)), text)
