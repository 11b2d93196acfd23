"""Parquet: every type, statistics in the footer, row groups that can be skipped.

One reader serves outputs and ingest. For an output, it skips row groups by their statistics. For ingest,
it reads the row groups of a slice, verifies checksums, and converts columns to those of the query.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from commitlog.files.base import BATCH_ROWS, Encoder, InputFormat, OutputFormat, PartFilter
from commitlog.files.columns import BATCH_BYTES, ColumnMapping, Columns, Records
from commitlog.files.io import (
    SinkFile,
    StoredFile,
    StoredObject,
    open_input_file,
    open_output_file,
)
from commitlog.files.statistics import ColumnStatistics, Statistics, bounded_fields
from commitlog.files.types import leaf_types, replace_leaves, spark_type

if TYPE_CHECKING:
    from commitlog.ingest import Pinned, Slice

__all__ = ["ParquetInput", "ParquetOutput"]

#: Most footers have fewer bytes.
_FOOTER = 64 * 1024

_WHAT = "Parquet"


class ParquetOutput(OutputFormat):
    """Parquet as Spark, DuckDB, Athena and pandas read it."""

    name = "parquet"
    compressions = MappingProxyType(
        {
            "snappy": ".snappy.parquet",
            "zstd": ".zstd.parquet",
            "gzip": ".gz.parquet",
            "lz4_raw": ".lz4raw.parquet",
            "none": ".parquet",
        }
    )
    bounds_in_footer = True

    def encoder(self, file: SinkFile, schema: pa.Schema, compression: str) -> Encoder:
        """See `OutputFormat.encoder`."""
        return _Encoder(file, schema, compression)

    def read(
        self,
        source: StoredObject,
        schema: pa.Schema,
        columns: Collection[str],
        keep: PartFilter | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """See `OutputFormat.read`. The file has its own schema."""
        with open_output_file(source, _WHAT) as stored, _open(stored) as file:
            wanted = [name for name in file.schema_arrow.names if name in columns]
            groups = [
                group
                for group in range(file.num_row_groups)
                if keep is None or keep(_group_statistics(file.metadata, group, file.schema_arrow))
            ]
            yield from _batches(file, groups, wanted, BATCH_ROWS)

    def stored_schema(self, source: StoredObject) -> pa.Schema:
        """See `OutputFormat.stored_schema`."""
        with open_output_file(source, _WHAT) as stored, _open(stored) as file:
            return file.schema_arrow


class ParquetInput(InputFormat):
    """Parquet files by row groups.

    A row group belongs to the slice in which it would begin if all rows had the same size. (pyarrow can
    return where it begins, but may crash if the footer is damaged.) Memory holds the wanted columns of a
    row group as they are stored, and a batch.

    An empty object is not Parquet. Dates before 1582-10-15 in the Julian calendar, as Hive and Spark 2
    wrote them, are returned as they are stored.
    """

    name = "parquet"

    def splits(self, path: str) -> bool:
        """See `InputFormat.splits`."""
        return True

    def infer(self, sample: Pinned) -> pa.Schema:
        """See `InputFormat.infer`. Reads the footer."""
        source = StoredObject.of(sample)
        with open_input_file(source, _WHAT, small=_FOOTER) as stored, _open(stored) as file:
            return pa.schema([(each.name, spark_type(each.type)) for each in _instants(file)])

    def decode(self, pinned: Pinned, slice: Slice, columns: Columns) -> Iterator[Records]:
        """See `InputFormat.decode`."""
        source = StoredObject.of(pinned)
        with (
            open_input_file(source, _WHAT) as stored,
            _open(stored, verify_checksums=True) as file,
        ):
            mapping = ColumnMapping(source.path, file.schema_arrow, columns)
            groups = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
            total = sum(group.num_rows for group in groups)
            first = 0
            for number, group in enumerate(groups):
                begin = source.size * first // max(total, 1)
                # Every group is in some slice, even if a damaged footer has impossible numbers.
                if slice.start <= max(0, min(begin, source.size - 1)) < slice.end:
                    at = first
                    # A task has one core.
                    for batch in _batches(
                        file, [number], mapping.names, _batch_rows(group), use_threads=False
                    ):
                        yield from mapping.records(batch, at)
                        at += batch.num_rows
                first += group.num_rows


# -- the reader ----------------------------------------------------------------------------------------


def _open(stored: pa.BufferReader | StoredFile, *, verify_checksums: bool = False) -> pq.ParquetFile:
    return pq.ParquetFile(
        stored,
        # Reads the columns of a row group in few large ranges. In memory, this is of no use.
        pre_buffer=isinstance(stored, StoredFile),
        # Spark writes checksums; pages without one are not verified.
        page_checksum_verification=verify_checksums,
        # Spark's own unit. In nanoseconds, years before 1678 and after 2262 would overflow.
        coerce_int96_timestamp_unit="us",
    )


def _batches(
    file: pq.ParquetFile,
    groups: Sequence[int],
    wanted: Sequence[str],
    rows: int,
    *,
    use_threads: bool = True,
) -> Iterator[pa.RecordBatch]:
    """Yield columns `wanted` of some row groups, in the file's order, in batches of at most `rows`."""
    # The name of a member of a struct, such as ``a.b``, is also found by pyarrow, and left out here.
    named = None if list(wanted) == file.schema_arrow.names else list(wanted)
    for batch in file.iter_batches(rows, row_groups=groups, columns=named, use_threads=use_threads):
        yield batch if named is None else batch.select(named)


def _batch_rows(group: pq.RowGroupMetaData) -> int:
    """Return the number of rows for a batch of some MiB, at most `BATCH_ROWS`."""
    row_bytes = int(group.total_byte_size) // max(int(group.num_rows), 1) + 1
    return max(1, min(BATCH_ROWS, BATCH_BYTES // row_bytes))


def _instants(file: pq.ParquetFile) -> list[pa.Field]:
    """Return the columns of a file. INT96 columns are instants, though their type does not say so."""
    stored = [file.schema.column(number).physical_type for number in range(len(file.schema))]
    if "INT96" not in stored:
        return list(file.schema_arrow)
    leaves = iter(stored)
    instant = pa.timestamp("us", tz="UTC")
    return [
        replace_leaves(field, lambda each: instant if next(leaves) == "INT96" else each.type)
        for field in file.schema_arrow
    ]


# -- the encoder, and statistics -----------------------------------------------------------------------


class _Encoder:
    def __init__(self, file: SinkFile, schema: pa.Schema, compression: str) -> None:
        self._file = file
        self._schema = schema
        self._compression = "lz4" if compression == "lz4_raw" else compression
        self._footers: list[pq.FileMetaData] = []
        self._writer: pq.ParquetWriter | None = None

    def write(self, table: pa.Table) -> None:
        if self._writer is None:
            self._writer = self._open(_dictionary_columns(table))
        self._writer.write_table(table, row_group_size=table.num_rows)

    def _open(self, dictionaries: list[str] | bool) -> pq.ParquetWriter:
        return pq.ParquetWriter(
            self._file,
            self._schema,
            compression=self._compression,
            use_dictionary=dictionaries,
            write_statistics=_bounded_leaves(self._schema),
            metadata_collector=self._footers,
        )

    def close(self, statistics: Statistics) -> None:
        (self._writer or self._open(True)).close()
        while self._footers:
            footer = self._footers.pop()
            for group in range(footer.num_row_groups):
                _merge(footer, group, self._schema, statistics)


def _bounded_leaves(schema: pa.Schema) -> list[str] | bool:
    """Return the paths of the leaves that get bounds in the footer, or True: all leaves but floats.

    Writers of Parquet leave NaN out of the bounds. For Spark, NaN is greater than all other values, so
    its reader would skip row groups with a NaN that satisfies the condition of a query.
    """
    if not any(map(pa.types.is_floating, leaf_types(pa.struct(list(schema))))):
        return True
    sink = pa.BufferOutputStream()
    pq.write_metadata(schema, sink)
    stored = pq.read_metadata(pa.BufferReader(sink.getvalue())).schema
    leaves = [stored.column(number) for number in range(len(stored))]
    return [leaf.path for leaf in leaves if leaf.physical_type not in ("FLOAT", "DOUBLE")]


def _group_statistics(
    footer: pq.FileMetaData, group: int, schema: pa.Schema
) -> Mapping[str, ColumnStatistics]:
    found = Statistics(schema, measure=False)
    _merge(footer, group, schema, found)
    # Writers leave NaN out of the bounds, and do not record whether there was one.
    return {
        name: known
        for name, known in found.result().items()
        if not pa.types.is_floating(schema.field(name).type)
    }


def _dictionary_columns(table: pa.Table) -> list[str] | bool:
    """Return the columns to encode with a dictionary, or True for all; `table` is the first row group.

    A dictionary is of no use for numbers and times that ascend strictly, such as ids: all values differ.
    Without it, encoding the rows of the benchmark takes a fifth less processor time, and their files are
    4 % smaller.
    """
    if any(pa.types.is_nested(field.type) for field in table.schema):
        return True  # pyarrow takes names of leaves, which depend on the format's version
    return [name for name in table.column_names if not _ascends(table.column(name))]


def _ascends(column: pa.ChunkedArray) -> bool:
    """Return whether all values of a column of numbers or times are larger than the one before."""
    kind = column.type
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    is_time = pa.types.is_date(kind) or pa.types.is_timestamp(kind)
    if not (is_number or is_time) or column.null_count or len(column) < 2:
        return False
    # The first chunk excludes most of the others.
    for values in (column.chunk(0), column):
        if not pc.all(pc.greater(values[1:], values[:-1])).as_py():
            return False
    return True


def _merge(footer: pq.FileMetaData, group: int, schema: pa.Schema, statistics: Statistics) -> None:
    rows = footer.row_group(group)
    bounded = {field.name for field in bounded_fields(schema)}
    leaf = 0
    for field in schema:
        if field.name in bounded and not pa.types.is_floating(field.type):
            found = rows.column(leaf).statistics
            if found is None or not found.has_null_count:
                statistics.drop(field.name)
            else:
                low, high = _bounds(found, field.type)
                statistics.merge(field.name, low, high, found.null_count, rows.num_rows)
        leaf += sum(1 for _ in leaf_types(field.type))


def _bounds(found: pq.Statistics, kind: pa.DataType) -> tuple[Any, Any]:
    if not found.has_min_max:
        return None, None
    if pa.types.is_temporal(kind):
        return found.min_raw, found.max_raw
    try:
        return found.min, found.max
    except UnicodeDecodeError:  # a string that is not UTF-8
        return None, None
