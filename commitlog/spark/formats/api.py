"""Interface of the file formats of outputs."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import ClassVar, Protocol

import pyarrow as pa

from commitlog.spark.formats.files import BinarySink, Reads, SinkFile
from commitlog.spark.formats.statistics import ColumnStatistics, Statistics

__all__ = ["BATCH_ROWS", "GROUP_BYTES", "GROUP_ROWS", "Encoder", "Format", "Keep", "Sink"]

#: Rows, and Arrow bytes, at which the buffer is written: small enough for the memory of a task, large
#: enough for efficient encodings and requests of readers.
GROUP_ROWS = 512 * 1024
GROUP_BYTES = 128 * 1024 * 1024

#: Rows that a reader hands on at a time.
BATCH_ROWS = 64 * 1024

#: Given the statistics of a part of a file, whether a reader wants its rows.
Keep = Callable[[Mapping[str, ColumnStatistics]], bool]


class Encoder(Protocol):
    """Encodes the bytes of one file."""

    def write(self, table: pa.Table) -> None:
        """Append the rows of `table`, and release it."""

    def close(self, statistics: Statistics) -> None:
        """Write the rest of the file, and add the bounds in its footer to `statistics`. Idempotent."""


class Format(ABC):
    """A kind of file. Stateless, hence thread-safe."""

    #: As option ``fileFormat`` has it.
    name: ClassVar[str]
    #: Suffix of file names by compression; the first is the default.
    compressions: ClassVar[Mapping[str, str]]
    #: Whether its encoder computes the bounds of columns.
    tells_bounds: ClassVar[bool] = False

    def check(self, schema: pa.Schema) -> None:  # noqa: B027 - most formats hold everything
        """Raise `NotSupported`, with name and type, if files cannot hold a column of `schema`."""

    def open_sink(
        self,
        sink: BinarySink,
        schema: pa.Schema,
        compression: str | None = None,
        *,
        group_bytes: int = GROUP_BYTES,
    ) -> Sink:
        """Begin a file.

        Args:
            sink: takes the bytes; it is neither finished nor aborted here.
            schema: of every batch; `check` has accepted it.
            compression: one of `compressions`; None for the default.
            group_bytes: gather at most this many bytes of Arrow.
        """
        file = SinkFile(sink)
        encoder = self.encoder(file, schema, compression or next(iter(self.compressions)))
        statistics = Statistics(schema, measure=not self.tells_bounds)
        return Sink(file, encoder, schema, statistics, group_bytes)

    @abstractmethod
    def encoder(self, file: SinkFile, schema: pa.Schema, compression: str) -> Encoder:
        """Return what writes a file of `schema` to `file`."""

    @abstractmethod
    def read(
        self,
        store: Reads,
        path: str,
        size: int,
        schema: pa.Schema,
        columns: Collection[str],
        keep: Keep | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file that this format's sink wrote, in order.

        Memory is bounded by what a sink gathers.

        Args:
            store: where the file is.
            path: its path there. The suffix tells text files' compression.
            size: its size in bytes.
            schema: of the file, with its columns in their order. Text files do not tell it.
            columns: names of the wanted columns. Those that the file has come back, in its order.
            keep: called with the statistics of a part. If it returns False, the part may be skipped.
                Formats without such statistics do not call it.

        Raises:
            NotFound: there is no such object.
            CorruptRecord: the file is not of this format, or its rows are not of `schema`.
        """


class Sink:
    """Buffered writer of one file. Not thread-safe.

    It combines batches into large groups: Spark's batches have some 10 000 rows, and a row group for
    each would be slow to read. Errors of the underlying sink are raised unchanged.
    """

    def __init__(
        self,
        file: SinkFile,
        encoder: Encoder,
        schema: pa.Schema,
        statistics: Statistics,
        group_bytes: int,
    ) -> None:
        self._file = file
        self._encoder = encoder
        self._schema = schema
        self._statistics = statistics
        self._group_bytes = group_bytes
        self._batches: list[pa.RecordBatch] = []
        self._gathered_rows = 0
        #: Rows taken so far.
        self.rows = 0
        #: Bytes of Arrow that are gathered in memory.
        self.gathered_bytes = 0

    @property
    def written_bytes(self) -> int:
        """Bytes of the file so far, without the buffer."""
        return self._file.written

    @property
    def statistics(self) -> Mapping[str, ColumnStatistics]:
        """What the file holds; complete once it is closed."""
        return self._statistics.result()

    def write(self, batch: pa.RecordBatch) -> None:
        """Append the rows of `batch`. Raises `NotSupported` for a value that the format cannot hold."""
        self._batches.append(batch)
        self._gathered_rows += batch.num_rows
        self.gathered_bytes += batch.nbytes
        self.rows += batch.num_rows
        if self._gathered_rows >= GROUP_ROWS or self.gathered_bytes >= self._group_bytes:
            self.flush()

    def flush(self) -> None:
        """Write the buffer to the file."""
        if self._batches:
            table = pa.Table.from_batches(self._batches, schema=self._schema)
            self._statistics.add(table)
            self._guard(lambda: self._encoder.write(table))
        self._batches = []
        self._gathered_rows = self.gathered_bytes = 0

    def close(self) -> None:
        """Write the buffer and the end of the file."""
        self.flush()
        self._guard(lambda: self._encoder.close(self._statistics))

    def abandon(self) -> None:
        """Drop the buffer; write nothing more to the underlying sink. Idempotent."""
        # Writers of pyarrow would add a footer when they are collected.
        self._file.detach()
        self._batches = []
        # One that has failed may fail again.
        with contextlib.suppress(Exception):
            self._encoder.close(self._statistics)

    def _guard(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception as error:
            if self._file.error is not None and self._file.error is not error:
                raise self._file.error from None
            raise
