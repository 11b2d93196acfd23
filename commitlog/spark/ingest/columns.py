"""The columns of a source: what is read of files, and what is told about them.

Imports input formats, pyspark's types and pyarrow.
"""

from __future__ import annotations

import posixpath

import pyarrow as pa
from pyspark.sql import types as t

from commitlog.errors import ConfigurationError, CorruptRecord, InputUnreadable
from commitlog.ingest import File, Slice
from commitlog.spark.inputs import Columns, Records
from commitlog.spark.inputs.api import NewColumns, location
from commitlog.spark.partitions import column_of, partition_in
from commitlog.spark.schema import arrow_schema, select, with_nulls

__all__ = ["METADATA", "METADATA_COLUMN", "Shape", "told_by_path"]

#: Name of the column that tells of each record's file, and what it can tell.
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
_KNOWN = [(each.name, each.dataType) for each in METADATA]


def _is_metadata(known: t.StructField) -> bool:
    kind = known.dataType
    return (
        known.name == METADATA_COLUMN
        and isinstance(kind, t.StructType)
        and all((each.name, each.dataType) in _KNOWN for each in kind)
    )


class Shape:
    """What the rows of a query look like, and where each column comes from. Thread-safe.

    Args:
        schema: all columns.
        new: what to do about those that files have beyond these.
        rescued: name of the column that takes what no other can, if that is what to do.

    Attributes:
        content: the columns that files have, if their paths do not tell them.
    """

    def __init__(self, schema: t.StructType, new: NewColumns, rescued: str) -> None:
        self._schema = arrow_schema(schema)
        self._new = new
        self._rescued = rescued
        #: The type of the metadata column, if there is one.
        self._metadata = next(
            (self._schema.field(each.name).type for each in schema if _is_metadata(each)), None
        )
        own = set() if self._metadata is None else {METADATA_COLUMN}
        if new == "rescue":
            if rescued not in schema.names or schema[rescued].dataType != t.StringType():
                raise ConfigurationError(
                    f"newColumns is rescue, but the schema has no column {rescued} STRING to keep what"
                    " is rescued: add it"
                )
            own.add(rescued)
        self.content = pa.schema([each for each in self._schema if each.name not in own])

    def columns(self, file: File) -> Columns:
        """Return what is wanted of the content of a file: all that its path does not tell."""
        told = told_by_path(file.path)
        return Columns(
            schema=pa.schema([each for each in self.content if each.name not in told]),
            new=self._new,
            elsewhere=frozenset(told),
            offsets=self._metadata is not None and self._metadata.get_field_index("offset") >= 0,
        )

    def rows(self, records: Records, slice: Slice, url: str) -> pa.RecordBatch:
        """Return records of a slice as rows of the query; `url` is of the store."""
        batch, told = records.batch, told_by_path(slice.file.path)
        for each in self.content:
            if each.name in told:
                try:
                    values = column_of(told, each, batch.num_rows)
                except CorruptRecord as error:
                    raise InputUnreadable(
                        f"the directories of {slice.file.path!r} do not fit column {each.name!r}:"
                        f" {error}. Make it a string, or leave out the directory with a glob"
                    ) from error
                batch = batch.append_column(each, values)
        if self._new == "rescue" and records.rescued is not None:
            batch = batch.append_column(self._schema.field(self._rescued), records.rescued)
        if self._metadata is not None:
            told_of = _metadata(records, slice.file, url, self._metadata)
            batch = batch.append_column(self._schema.field(METADATA_COLUMN), told_of)
        return select(with_nulls(batch, self._schema), self._schema)


def _metadata(records: Records, file: File, url: str, kind: pa.StructType) -> pa.Array:
    values = {
        "file_path": location(url, file.path),
        "file_name": posixpath.basename(file.path),
        "file_size": file.size,
        "file_modification_time": int(file.modified * 1_000_000),
        "etag": file.etag.strip('"'),
    }
    arrays = [
        records.offsets
        if each.name == "offset"
        else pa.repeat(pa.scalar(values[each.name], each.type), len(records))
        for each in kind
    ]
    return pa.StructArray.from_arrays(arrays, fields=list(kind))


def told_by_path(path: str) -> dict[str, str | None]:
    """Return the partition values in a path, whose other directories may have any name.

    >>> told_by_path("raw/day=2026-11-21/a=b.json")
    {'day': '2026-11-21'}
    """
    directories = [each for each in path.split("/")[:-1] if "=" in each.strip("=")]
    return partition_in("/".join([*directories, ""]))
