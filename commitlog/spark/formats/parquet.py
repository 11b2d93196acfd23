"""Parquet: every type, statistics in the footer, row groups that can be skipped."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from commitlog.spark.formats.api import BATCH_ROWS, Encoder, Format, Keep
from commitlog.spark.formats.files import Reads, SinkFile, stored_file
from commitlog.spark.formats.nested import leaf_types
from commitlog.spark.formats.statistics import ColumnStatistics, Statistics, bounded_fields

__all__ = ["Parquet"]


class Parquet(Format):
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
    tells_bounds = True

    def encoder(self, file: SinkFile, schema: pa.Schema, compression: str) -> Encoder:
        """See `Format.encoder`."""
        return _Encoder(file, schema, compression)

    def read(
        self,
        store: Reads,
        path: str,
        size: int,
        schema: pa.Schema,
        columns: Collection[str],
        keep: Keep | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """See `Format.read`. The file tells its own schema."""
        with (
            stored_file(store, path, size, "Parquet") as source,
            pq.ParquetFile(
                source,
                # Fetches the columns of a row group in few large ranges instead of one by one.
                pre_buffer=True,
                # Spark's own unit; in nanoseconds, years before 1678 and after 2262 would overflow.
                coerce_int96_timestamp_unit="us",
            ) as file,
        ):
            names = file.schema_arrow.names
            wanted = [name for name in names if name in columns]
            groups = [
                group
                for group in range(file.num_row_groups)
                if keep is None or keep(_of_group(file.metadata, group, file.schema_arrow))
            ]
            # Naming all of them would make pyarrow take a dot in a name for a path.
            chosen = None if wanted == names else wanted
            yield from file.iter_batches(BATCH_ROWS, row_groups=groups, columns=chosen)


class _Encoder:
    def __init__(self, file: SinkFile, schema: pa.Schema, compression: str) -> None:
        self._schema = schema
        self._footers: list[pq.FileMetaData] = []
        self._writer = pq.ParquetWriter(
            file,
            schema,
            compression="lz4" if compression == "lz4_raw" else compression,
            metadata_collector=self._footers,
        )

    def write(self, table: pa.Table) -> None:
        self._writer.write_table(table, row_group_size=table.num_rows)

    def close(self, statistics: Statistics) -> None:
        self._writer.close()
        while self._footers:
            footer = self._footers.pop()
            for group in range(footer.num_row_groups):
                _merge(footer, group, self._schema, statistics)


def _of_group(footer: pq.FileMetaData, group: int, schema: pa.Schema) -> Mapping[str, ColumnStatistics]:
    found = Statistics(schema, measure=False)
    _merge(footer, group, schema, found)
    # Writers leave NaN out of the bounds, and do not tell that there was one.
    return {
        name: (None, None, nulls)
        if pa.types.is_floating(schema.field(name).type)
        else (low, high, nulls)
        for name, (low, high, nulls) in found.result().items()
    }


def _merge(footer: pq.FileMetaData, group: int, schema: pa.Schema, statistics: Statistics) -> None:
    rows = footer.row_group(group)
    bounded = {field.name for field in bounded_fields(schema)}
    leaf = 0
    for field in schema:
        if field.name in bounded:
            found = rows.column(leaf).statistics
            if found is None or not found.has_null_count:
                statistics.lose(field.name)
            else:
                low, high = _raw(found, field.type)
                statistics.merge(field.name, low, high, found.null_count, rows.num_rows)
        leaf += sum(1 for _ in leaf_types(field.type))


def _raw(found: pq.Statistics, kind: pa.DataType) -> tuple[Any, Any]:
    if not found.has_min_max:
        return None, None
    if pa.types.is_temporal(kind):
        return found.min_raw, found.max_raw
    try:
        return found.min, found.max
    except UnicodeDecodeError:  # a string that is not UTF-8
        return None, None
