"""Parquet: every type, statistics in the footer, row groups that can be skipped.

One reader serves outputs and ingest. For an output, it skips row groups by their statistics. For ingest,
it reads the row groups of a slice, verifies checksums, and converts columns to those of the query.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from commitlog._util.parsing import check_choice
from commitlog.errors import InputUnreadable, NotSupported
from commitlog.files.base import BATCH_ROWS, Encoder, InputFormat, OutputFormat, PartFilter
from commitlog.files.calendars import REBASE_MODES, Times, unmarked_modes, with_binary_int96
from commitlog.files.columns import BATCH_BYTES, ColumnMapping, Columns, Records
from commitlog.files.io import (
    SinkFile,
    StoredFile,
    StoredObject,
    open_input_file,
    open_output_file,
)
from commitlog.files.lines import Lines
from commitlog.files.statistics import ColumnStatistics, Statistics, bounded_fields
from commitlog.files.stored import check_file_columns, spark_kinds
from commitlog.files.types import TypeMismatch, leaf_types, spark_type

if TYPE_CHECKING:
    from commitlog.ingest import Pinned, Slice

__all__ = ["ParquetInput", "ParquetOutput"]

#: Most footers have fewer bytes.
_FOOTER = 64 * 1024

_WHAT = "Parquet"

#: Key of a footer by Spark with the columns in its notation, which have types that Parquet lacks.
_SPARK_COLUMNS = b"org.apache.spark.sql.parquet.row.metadata"


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
        *,
        whole: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """See `OutputFormat.read`. The file has its own schema."""
        with open_output_file(source, _WHAT) as stored, _Reader(stored) as file:
            found, kinds = file.times.schema, spark_kinds(file.marks.get(_SPARK_COLUMNS))
            wanted = check_file_columns(source.path, found, schema, columns, kinds, whole=whole)
            groups = [
                number
                for number in range(len(file.groups))
                if keep is None or keep(_group_statistics(file, number))
            ]
            try:
                for batch in file.batches(groups, wanted, BATCH_ROWS):
                    yield file.times.read(batch)
            except TypeMismatch as error:
                raise NotSupported(f"{source.path!r} cannot be read: {error}") from error

    def stored_schema(self, source: StoredObject) -> pa.Schema:
        """See `OutputFormat.stored_schema`."""
        with open_output_file(source, _WHAT) as stored, _Reader(stored) as file:
            return file.times.schema


class ParquetInput(InputFormat):
    """Parquet files by row groups.

    A row group belongs to the slice in which it would begin if all rows had the same size. (pyarrow can
    return where it begins, but may crash if the footer is damaged.) Memory holds the wanted columns of a
    row group as they are stored, and a batch.

    An empty object is not Parquet. Options ``datetimeRebaseMode`` and ``int96RebaseMode`` give the
    calendar of early times in files without a mark of it; see `commitlog.files.calendars`. A row
    group whose rows have more than ``maxRecordBytes`` on average is unreadable: a few bytes can stand
    for gigabytes.
    """

    name = "parquet"
    options = (*REBASE_MODES, "maxRecordBytes")

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self._max_record = Lines.of(options).max_record
        self._modes = {name: options[name].upper() for name in REBASE_MODES if name in options}
        for name, value in self._modes.items():
            check_choice(f"option {name}", value, REBASE_MODES[name])

    def splits(self, path: str) -> bool:
        """See `InputFormat.splits`."""
        return True

    def infer(self, sample: Pinned) -> pa.Schema:
        """See `InputFormat.infer`. Reads the footer."""
        source = StoredObject.of(sample)
        with open_input_file(source, _WHAT, small=_FOOTER) as stored, _Reader(stored) as file:
            return pa.schema([(each.name, spark_type(each.type)) for each in file.times.schema])

    def decode(self, pinned: Pinned, slice: Slice, columns: Columns) -> Iterator[Records]:
        """See `InputFormat.decode`."""
        source = StoredObject.of(pinned)
        with (
            open_input_file(source, _WHAT) as stored,
            _Reader(stored, options=self._modes, verify_checksums=True) as file,
        ):
            mapping = ColumnMapping(source.path, file.times.schema, columns)
            total = sum(group.num_rows for group in file.groups)
            first = 0
            for number, group in enumerate(file.groups):
                begin = source.size * first // max(total, 1)
                # Every group is in some slice, even if a damaged footer has impossible numbers.
                if slice.start <= max(0, min(begin, source.size - 1)) < slice.end:
                    at = first
                    if group.total_byte_size > self._max_record * max(group.num_rows, 1):
                        raise InputUnreadable(
                            f"row group {number} of {source.path!r} has {group.total_byte_size} bytes in"
                            f" {group.num_rows} rows. If the file is valid, raise option maxRecordBytes"
                        )
                    # A task has one core.
                    for batch in file.batches(
                        [number], mapping.names, _batch_rows(group), use_threads=False
                    ):
                        rows, why = file.times.before_refused(batch)
                        yield from mapping.records(rows, at)
                        at += rows.num_rows
                        if why is not None:
                            raise InputUnreadable(
                                f"{source.path!r} cannot be read further than to row {at}: {why}"
                            )
                first += group.num_rows


# -- the reader ----------------------------------------------------------------------------------------


class _Reader:
    """An open file. Not thread-safe.

    Attributes:
        marks: the texts of the footer, by key.
        groups: the metadata of the row groups.
        times: how the columns are read.
    """

    def __init__(
        self,
        stored: pa.BufferReader | StoredFile,
        *,
        options: Mapping[str, str] = MappingProxyType({}),
        verify_checksums: bool = False,
    ) -> None:
        def opened(footer: pq.FileMetaData | None) -> pq.ParquetFile:
            return pq.ParquetFile(
                stored,
                metadata=footer,
                # Reads the columns of a row group in few large ranges. In memory, this is of no use.
                pre_buffer=isinstance(stored, StoredFile),
                # Spark writes checksums; pages without one are not verified.
                page_checksum_verification=verify_checksums,
            )

        file = opened(None)
        leaves = range(len(file.schema))
        int96 = frozenset(leaf for leaf in leaves if file.schema.column(leaf).physical_type == "INT96")
        self._file = opened(with_binary_int96(file.metadata)) if int96 else file
        footer = file.metadata
        self.marks: Mapping[bytes, bytes] = footer.metadata or {}
        self.groups = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
        footer = file.metadata
        modes = unmarked_modes(footer, options)
        self.times = Times.of(self._file.schema_arrow, footer.metadata or {}, modes, int96)
        stated = sum(group.num_rows for group in self.groups)
        if file.metadata.num_rows != stated:
            raise ValueError(f"its row groups have {stated} rows of {file.metadata.num_rows}")

    def __enter__(self) -> _Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def batches(
        self, groups: Sequence[int], wanted: Sequence[str], rows: int, *, use_threads: bool = True
    ) -> Iterator[pa.RecordBatch]:
        """Yield columns `wanted` of row groups, as stored, in the file's order.

        Args:
            groups: numbers of the row groups.
            wanted: names of the columns.
            rows: the most rows of a batch.
            use_threads: whether pyarrow may decode columns in threads.

        Raises `ValueError` if the groups do not have as many rows as the footer says.
        """
        stated = sum(self.groups[number].num_rows for number in groups)
        # The name of a member of a struct, such as ``a.b``, is also found by pyarrow, and left out here.
        named = None if list(wanted) == self.times.schema.names else list(wanted)
        found = 0
        for batch in self._file.iter_batches(
            rows, row_groups=groups, columns=named, use_threads=use_threads
        ):
            found += batch.num_rows
            yield batch if named is None else batch.select(named)
        if found != stated:
            raise ValueError(f"{len(groups)} row groups have {found} rows of {stated} in the footer")


def _batch_rows(group: pq.RowGroupMetaData) -> int:
    """Return the number of rows for a batch of some MiB, at most `BATCH_ROWS`."""
    row_bytes = int(group.total_byte_size) // max(int(group.num_rows), 1) + 1
    return max(1, min(BATCH_ROWS, BATCH_BYTES // row_bytes))


# -- the encoder, and statistics -----------------------------------------------------------------------


class _Encoder:
    def __init__(self, file: SinkFile, schema: pa.Schema, compression: str) -> None:
        self._file = file
        self._schema = schema
        self._compression = "lz4" if compression == "lz4_raw" else compression
        self._exact = _exact_leaves(schema)
        self._footers: list[pq.FileMetaData] = []
        self._writer: pq.ParquetWriter | None = None

    def write(self, table: pa.Table) -> None:
        if self._writer is None:
            self._writer = self._open(_dictionary_leaves(table, self._exact))
        self._writer.write_table(table, row_group_size=table.num_rows)

    def _open(self, dictionaries: list[str]) -> pq.ParquetWriter:
        return pq.ParquetWriter(
            self._file,
            self._schema,
            compression=self._compression,
            use_dictionary=dictionaries,
            # Writers of Parquet leave NaN out of the bounds. For Spark, NaN is greater than all other
            # values, so its reader would skip row groups with a NaN that satisfies a condition.
            write_statistics=self._exact,
            metadata_collector=self._footers,
        )

    def close(self, statistics: Statistics) -> None:
        (self._writer or self._open([])).close()
        while self._footers:
            footer = self._footers.pop()
            for group in range(footer.num_row_groups):
                _merge(footer.row_group(group), self._schema, statistics)


def _exact_leaves(schema: pa.Schema) -> list[str]:
    """Return the paths of all leaves but floats, as the file has them."""
    sink = pa.BufferOutputStream()
    pq.write_metadata(schema, sink)
    stored = pq.read_metadata(pa.BufferReader(sink.getvalue())).schema
    leaves = [stored.column(number) for number in range(len(stored))]
    return [leaf.path for leaf in leaves if leaf.physical_type not in ("FLOAT", "DOUBLE")]


def _group_statistics(file: _Reader, number: int) -> Mapping[str, ColumnStatistics]:
    schema = file.times.schema
    found = Statistics(schema, measure=False)
    _merge(file.groups[number], schema, found, file.times.foreign)
    # Writers leave NaN out of the bounds, and do not record whether there was one.
    return {
        name: known
        for name, known in found.result().items()
        if name not in file.times.foreign and not pa.types.is_floating(schema.field(name).type)
    }


def _dictionary_leaves(table: pa.Table, exact: Iterable[str]) -> list[str]:
    """Return the leaves among `exact` to encode with a dictionary; `table` is the first row group.

    A dictionary is of no use for numbers and times that ascend strictly, such as ids: all values differ.
    Without it, encoding the rows of the benchmark takes a fifth less processor time, and their files are
    4 % smaller. Floats have none: readers such as Spark's look for ``0.0`` in a dictionary, do not find
    ``-0.0``, and skip the row group.
    """
    ascending = {name for name in table.column_names if _ascends(table.column(name))}
    return [path for path in exact if path not in ascending]


def _ascends(column: pa.ChunkedArray) -> bool:
    """Return whether all values of a column of numbers or times are larger than the one before."""
    kind = column.type
    is_time = pa.types.is_date(kind) or pa.types.is_timestamp(kind)
    if not (pa.types.is_integer(kind) or is_time) or column.null_count or len(column) < 2:
        return False
    # The first chunk excludes most of the others.
    for values in (column.chunk(0), column):
        if not pc.all(pc.greater(values[1:], values[:-1])).as_py():
            return False
    return True


def _merge(
    rows: pq.RowGroupMetaData,
    schema: pa.Schema,
    statistics: Statistics,
    but: Collection[str] = (),
) -> None:
    bounded = {field.name for field in bounded_fields(schema)}.difference(but)
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
