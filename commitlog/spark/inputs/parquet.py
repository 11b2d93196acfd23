"""Parquet input, from any writer."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from commitlog.ingest import Pinned, Slice
from commitlog.spark.formats.files import StoredFile
from commitlog.spark.inputs.api import BATCH_ROWS, Columns, Input, Records
from commitlog.spark.inputs.fitting import BATCH_BYTES, Fitting
from commitlog.spark.inputs.opened import opened
from commitlog.spark.inputs.types import plain_type, rebuilt

__all__ = ["Parquet"]

#: Most footers are no longer.
_FOOTER = 64 * 1024

_WHAT = "Parquet"


class Parquet(Input):
    """Parquet files, by row groups: each belongs to the slice in which it begins, were all rows alike.

    (Where it really does, pyarrow tells only at the risk of the process, should a footer be damaged.)
    Memory holds the wanted columns of a row group as they are stored, and a batch.

    An empty object is no Parquet. Dates before 1582-10-15 that were written by the Julian calendar, as
    Hive and Spark 2 did, come as they are stored.
    """

    name = "parquet"

    def splits(self, path: str) -> bool:
        """See `Input.splits`."""
        return True

    def infer(self, sample: Pinned) -> pa.Schema:
        """See `Input.infer`. Reads the footer."""
        with opened(sample, _WHAT, small=_FOOTER) as source, _file(source) as file:
            return pa.schema([(each.name, plain_type(each.type)) for each in _instants(file)])

    def decode(self, pinned: Pinned, slice: Slice, columns: Columns) -> Iterator[Records]:
        """See `Input.decode`."""
        with opened(pinned, _WHAT) as source, _file(source) as file:
            fitting = Fitting(pinned.file.path, file.schema_arrow, columns)
            names = file.schema_arrow.names
            # Naming them would make pyarrow take a dot in a name for a path.
            chosen = None if any("." in name for name in names) else fitting.names
            groups = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
            total = sum(group.num_rows for group in groups)
            first = 0
            for number, group in enumerate(groups):
                begin = slice.file.size * first // max(total, 1)
                # Whatever a damaged footer says, it is in some slice.
                if slice.start <= max(0, min(begin, slice.file.size - 1)) < slice.end:
                    at = first
                    # A task has one core.
                    for batch in file.iter_batches(_rows(group), [number], chosen, use_threads=False):
                        yield from fitting.records(batch, at)
                        at += batch.num_rows
                first += group.num_rows


def _file(source: object) -> pq.ParquetFile:
    return pq.ParquetFile(
        source,
        # In few large ranges, a row group at a time; of no use where all is in memory.
        pre_buffer=isinstance(source, StoredFile),
        # Spark writes checksums; of pages without, there is nothing to verify.
        page_checksum_verification=True,
        # What Spark has; in nanoseconds, years before 1678 and after 2262 would overflow.
        coerce_int96_timestamp_unit="us",
    )


def _rows(group: pq.RowGroupMetaData) -> int:
    """Return how many rows make a batch of some MiB, at most."""
    each = int(group.total_byte_size) // max(int(group.num_rows), 1) + 1
    return max(1, min(BATCH_ROWS, BATCH_BYTES // each))


def _instants(file: pq.ParquetFile) -> list[pa.Field]:
    """Return the columns of a file. INT96 columns are instants, though their type does not say so."""
    stored = [file.schema.column(number).physical_type for number in range(len(file.schema))]
    if "INT96" not in stored:
        return list(file.schema_arrow)
    leaves = iter(stored)
    instant = pa.timestamp("us", tz="UTC")
    return [
        rebuilt(field, lambda each: instant if next(leaves) == "INT96" else each.type)
        for field in file.schema_arrow
    ]
