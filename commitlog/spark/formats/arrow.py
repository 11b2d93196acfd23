"""Arrow IPC files: every type as it is in memory, for readers that map or stream it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from types import MappingProxyType

import pyarrow as pa

from commitlog.spark.formats.api import BATCH_ROWS, Encoder, Format, Keep
from commitlog.spark.formats.files import Reads, SinkFile, stored_file
from commitlog.spark.formats.statistics import Statistics

__all__ = ["Arrow"]


class Arrow(Format):
    """The Arrow IPC file format, which is also Feather version 2. Spark itself does not read it."""

    name = "arrow"
    compressions = MappingProxyType({"lz4": ".arrow", "zstd": ".arrow", "none": ".arrow"})

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
        with stored_file(store, path, size, "an Arrow file") as source:
            names = pa.ipc.open_file(source).schema.names
            wanted = [name for name in names if name in columns]
            # To include no field would mean all.
            fields = [names.index(name) for name in wanted] or [0]
            options = pa.ipc.IpcReadOptions(included_fields=fields)
            file = pa.ipc.open_file(source, options=options)
            for number in range(file.num_record_batches):
                yield file.get_batch(number).select(wanted)


class _Encoder:
    def __init__(self, file: SinkFile, schema: pa.Schema, compression: str) -> None:
        codec = None if compression == "none" else compression
        options = pa.ipc.IpcWriteOptions(compression=codec)
        self._writer = pa.ipc.new_file(file, schema, options=options)

    def write(self, table: pa.Table) -> None:
        self._writer.write_table(table, max_chunksize=BATCH_ROWS)

    def close(self, statistics: Statistics) -> None:
        self._writer.close()
