"""Arrow IPC files: every type as it is in memory, for readers that map or stream it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from types import MappingProxyType

import pyarrow as pa

from commitlog.files.base import BATCH_ROWS, Encoder, OutputFormat, PartFilter
from commitlog.files.io import SinkFile, StoredObject, open_output_file
from commitlog.files.statistics import Statistics
from commitlog.files.stored import check_file_columns

__all__ = ["ArrowOutput"]

_WHAT = "an Arrow file"


class ArrowOutput(OutputFormat):
    """The Arrow IPC file format, which is also Feather version 2. Spark itself does not read it."""

    name = "arrow"
    compressions = MappingProxyType({"lz4": ".arrow", "zstd": ".arrow", "none": ".arrow"})

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
        with open_output_file(source, _WHAT) as stored:
            found = pa.ipc.open_file(stored).schema
            names = found.names
            wanted = check_file_columns(source.path, found, schema, columns, whole=whole)
            # An empty list would include all fields.
            fields = [names.index(name) for name in wanted] or [0]
            options = pa.ipc.IpcReadOptions(included_fields=fields)
            file = pa.ipc.open_file(stored, options=options)
            for number in range(file.num_record_batches):
                yield file.get_batch(number).select(wanted)

    def stored_schema(self, source: StoredObject) -> pa.Schema:
        """See `OutputFormat.stored_schema`."""
        with open_output_file(source, _WHAT) as stored:
            return pa.ipc.open_file(stored).schema


class _Encoder:
    def __init__(self, file: SinkFile, schema: pa.Schema, compression: str) -> None:
        codec = None if compression == "none" else compression
        options = pa.ipc.IpcWriteOptions(compression=codec)
        self._writer = pa.ipc.new_file(file, schema, options=options)

    def write(self, table: pa.Table) -> None:
        self._writer.write_table(table, max_chunksize=BATCH_ROWS)

    def close(self, statistics: Statistics) -> None:
        self._writer.close()
