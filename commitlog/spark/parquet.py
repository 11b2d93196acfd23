"""Parquet files out of Arrow batches, and back, over whatever an `ObjectStore` gives.

Knows pyarrow and the port, and nothing of Spark or of job commits.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator
from types import MappingProxyType
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from commitlog.stores import ObjectData

__all__ = ["COMPRESSIONS", "ROW_GROUP_BYTES", "ROW_GROUP_ROWS", "ParquetSink", "read_parquet"]

#: Codecs that Spark, DuckDB, Athena and pandas all read, with the infix that file names bear.
COMPRESSIONS = MappingProxyType({"snappy": ".snappy", "zstd": ".zstd", "gzip": ".gz", "none": ""})

#: A row group is written out when it has this many rows, or this many bytes as Arrow: small enough to be
#: held in memory by a task, large enough that the encodings and a reader's requests pay.
ROW_GROUP_ROWS = 512 * 1024
ROW_GROUP_BYTES = 128 * 1024 * 1024

#: Rows that a reader hands on at a time.
BATCH_ROWS = 64 * 1024


class Reads(Protocol):
    """What is needed of a store to read from it."""

    def get(self, path: str, *, start: int = 0, end: int | None = None) -> ObjectData:
        """See `commitlog.stores.ObjectStore.get`."""


class BinarySink(Protocol):
    """Where a file's bytes go, in order."""

    def write(self, data: bytes) -> int:
        """Take `data`; return its length."""


class _File(io.RawIOBase):
    """What pyarrow asks of a file to write to, over a `BinarySink`. Closing it leaves the sink open."""

    def __init__(self, sink: BinarySink) -> None:
        self.sink: BinarySink | None = sink

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        return len(data) if self.sink is None else self.sink.write(data)


class ParquetSink:
    """One Parquet file in the making. Not thread-safe.

    Batches are gathered into large row groups: Spark hands over some 10 000 rows at a time, and a row
    group for each would cost readers dearly.

    Args:
        sink: takes the bytes; it is neither finished nor aborted here.
        schema: of every batch.
        compression: one of `COMPRESSIONS`.
    """

    def __init__(self, sink: BinarySink, schema: pa.Schema, *, compression: str = "snappy") -> None:
        self._file = _File(sink)
        self._writer = pq.ParquetWriter(self._file, schema, compression=compression)
        self._schema = schema
        self._batches: list[pa.RecordBatch] = []
        self._gathered_rows = 0
        #: Rows written so far.
        self.rows = 0
        #: Bytes of Arrow that are gathered in memory.
        self.gathered_bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Append the rows of `batch`."""
        self._batches.append(batch)
        self._gathered_rows += batch.num_rows
        self.gathered_bytes += batch.nbytes
        self.rows += batch.num_rows
        if self._gathered_rows >= ROW_GROUP_ROWS or self.gathered_bytes >= ROW_GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what is gathered as a row group."""
        if self._batches:
            table = pa.Table.from_batches(self._batches, schema=self._schema)
            self._writer.write_table(table, row_group_size=self._gathered_rows)
        self._batches = []
        self._gathered_rows = self.gathered_bytes = 0

    def close(self) -> None:
        """Write what is gathered, and the footer."""
        self.flush()
        self._writer.close()

    def abandon(self) -> None:
        """Forget what is gathered; nothing more goes to the sink. Idempotent."""
        # pyarrow's writer would add its footer when it is collected.
        self._file.sink = None
        self._batches = []
        self._writer.close()


class _StoredFile(io.RawIOBase):
    """A stored object as a seekable file: a range request a read."""

    def __init__(self, store: Reads, path: str, size: int) -> None:
        self._store = store
        self._path = path
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = start + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        end = self._size if size < 0 else min(self._size, self._position + size)
        if end <= self._position:
            return b""
        data = self._store.get(self._path, start=self._position, end=end).data
        self._position += len(data)
        return data


def read_parquet(
    store: Reads, path: str, size: int, columns: Collection[str]
) -> Iterator[pa.RecordBatch]:
    """Yield those of `columns` that the Parquet file at `path`, which is `size` bytes long, has.

    Memory is bounded by the file's largest row group. Raises `NotFound` if there is no such object.
    """
    # pre_buffer fetches the columns of a row group in few large ranges instead of one by one.
    with pq.ParquetFile(_StoredFile(store, path, size), pre_buffer=True) as file:
        names = file.schema_arrow.names
        wanted = [name for name in names if name in columns]
        # Naming all of them would make pyarrow take a dot in a name for a path.
        yield from file.iter_batches(BATCH_ROWS, columns=None if wanted == names else wanted)
