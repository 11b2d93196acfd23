"""Base classes of the file formats: what an output writes and reads, and what ingest reads."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar, Protocol

import pyarrow as pa

from commitlog.errors import ConfigurationError
from commitlog.files.io import BinarySink, SinkFile, StoredObject
from commitlog.files.statistics import ColumnStatistics, Statistics

if TYPE_CHECKING:
    from commitlog.files.columns import Columns, Records
    from commitlog.ingest import Pinned, Slice

__all__ = [
    "BATCH_ROWS",
    "GROUP_BYTES",
    "GROUP_ROWS",
    "Encoder",
    "FormatWriter",
    "InputFormat",
    "OutputFormat",
    "PartFilter",
    "combine_batches",
]

#: Rows, and Arrow bytes, at which a writer's buffer is written: small enough for the memory of a task,
#: large enough for efficient encodings and requests of readers.
GROUP_ROWS = 512 * 1024
GROUP_BYTES = 128 * 1024 * 1024

#: The most rows of a batch that a reader yields.
BATCH_ROWS = 64 * 1024

#: Rows, and Arrow bytes, of a batch to which small batches are combined.
COMBINED_ROWS = 16 * 1024
COMBINED_BYTES = 16 * 1024 * 1024

#: Takes the statistics of a part of a file, such as a row group; returns whether to read the part.
PartFilter = Callable[[Mapping[str, ColumnStatistics]], bool]


class Encoder(Protocol):
    """Encodes the bytes of one file."""

    def write(self, table: pa.Table) -> None:
        """Append the rows of `table`, and release it."""

    def close(self, statistics: Statistics) -> None:
        """Write the rest of the file, and add the bounds in its footer to `statistics`. Idempotent."""


class OutputFormat(ABC):
    """A format for the files of an output. Stateless, hence thread-safe."""

    #: The name, as option ``fileFormat`` has it.
    name: ClassVar[str]
    #: Suffix of file names by compression; the first is the default.
    compressions: ClassVar[Mapping[str, str]]
    #: Whether the encoder takes the bounds of columns from the footer that it writes.
    bounds_in_footer: ClassVar[bool] = False

    def check(self, schema: pa.Schema) -> None:  # noqa: B027 - most formats hold every type
        """Raise `NotSupported`, with name and type, if files cannot hold a column of `schema`."""

    def open_writer(
        self,
        sink: BinarySink,
        schema: pa.Schema,
        compression: str | None = None,
        *,
        group_bytes: int = GROUP_BYTES,
    ) -> FormatWriter:
        """Begin a file.

        Args:
            sink: takes the bytes; the writer neither finishes nor aborts it.
            schema: of every batch; `check` has accepted it.
            compression: one of `compressions`; None for the default.
            group_bytes: the most Arrow bytes to buffer.
        """
        file = SinkFile(sink)
        encoder = self.encoder(file, schema, compression or next(iter(self.compressions)))
        statistics = Statistics(schema, measure=not self.bounds_in_footer)
        return FormatWriter(file, encoder, schema, statistics, group_bytes)

    @abstractmethod
    def encoder(self, file: SinkFile, schema: pa.Schema, compression: str) -> Encoder:
        """Return the encoder of a file with the columns of `schema`, which writes to `file`."""

    @abstractmethod
    def read(
        self,
        source: StoredObject,
        schema: pa.Schema,
        columns: Collection[str],
        keep: PartFilter | None = None,
        *,
        whole: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file of this format, in order.

        Memory is bounded by the buffer of a writer.

        Args:
            source: the file. The suffix of a text file's path gives its compression.
            schema: of the file, with its columns in their order. A text file has no schema of its own.
            columns: names of the wanted columns. The batches have those that the file has, in its order.
            keep: called with the statistics of a part. If it returns False, the part may be skipped.
                Formats without such statistics do not call it.
            whole: whether `schema` must have all that the file has, so that the rows can replace it.

        Raises:
            NotFound: the object does not exist.
            CorruptRecord: the file is not of this format, or its rows are not of `schema`;
                `OtherColumns` if its footer tells that, before the first row.
        """

    def stored_schema(self, source: StoredObject) -> pa.Schema | None:
        """Return the schema that a file has in its footer; None for formats without one.

        Raises as `read`.
        """
        return None


class FormatWriter:
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
        self._buffered_rows = 0
        #: Rows written so far, with those in the buffer.
        self.rows = 0
        #: Arrow bytes in the buffer.
        self.buffered_bytes = 0

    @property
    def written_bytes(self) -> int:
        """Bytes of the file so far, without the buffer."""
        return self._file.written

    @property
    def statistics(self) -> Mapping[str, ColumnStatistics]:
        """Statistics of the columns; complete after `close`."""
        return self._statistics.result()

    def write(self, batch: pa.RecordBatch) -> None:
        """Append the rows of `batch`. Raises `NotSupported` for a value that the format cannot hold."""
        self._batches.append(batch)
        self._buffered_rows += batch.num_rows
        self.buffered_bytes += batch.nbytes
        self.rows += batch.num_rows
        if self._buffered_rows >= GROUP_ROWS or self.buffered_bytes >= self._group_bytes:
            self.flush()

    def flush(self) -> None:
        """Write the buffer to the file."""
        if self._batches:
            table = pa.Table.from_batches(self._batches, schema=self._schema)
            self._statistics.add(table)
            self._run(lambda: self._encoder.write(table))
        self._batches = []
        self._buffered_rows = self.buffered_bytes = 0

    def close(self) -> None:
        """Write the buffer and the end of the file."""
        self.flush()
        self._run(lambda: self._encoder.close(self._statistics))

    def abandon(self) -> None:
        """Drop the buffer; write nothing more to the underlying sink. Idempotent."""
        # Writers of pyarrow would add a footer when they are garbage-collected.
        self._file.detach()
        self._batches = []
        # An encoder that has failed may fail again.
        with contextlib.suppress(Exception):
            self._encoder.close(self._statistics)

    def _run(self, step: Callable[[], None]) -> None:
        """Run `step`; raise the error of the sink instead of another error that it caused."""
        try:
            step()
        except Exception as error:
            if self._file.error is not None and self._file.error is not error:
                raise self._file.error from None
            raise


class InputFormat(ABC):
    """A format of input files, with the options of a query. Thread-safe; pickled along with readers.

    Args:
        options: the given options among `options`, by their documented names.

    Raises `ConfigurationError` for an invalid value.
    """

    #: The name, as option ``fileFormat`` has it.
    name: ClassVar[str]
    #: Documented names of the options of the format.
    options: ClassVar[tuple[str, ...]] = ()
    #: Whether every value can be read as a string; see `merge_schemas`.
    strings: ClassVar[bool] = False
    #: The columns of all files, if they are always the same and need not be inferred.
    fixed: ClassVar[pa.Schema | None] = None

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = dict(options)

    def splits(self, path: str) -> bool:
        """Return whether slices of this file can be read. A file compressed as a whole has no slices."""
        return False

    def check(self, columns: Columns) -> None:  # noqa: B027 - most formats hold every type
        """Raise `NotSupported`, with name and type, if files cannot have one of the columns."""

    @abstractmethod
    def infer(self, sample: Pinned) -> pa.Schema:
        """Return the columns of a file, from its metadata or its first bytes.

        A column with nothing but nulls is of type null. Raises `InputUnreadable`.
        """

    @abstractmethod
    def decode(self, pinned: Pinned, slice: Slice, columns: Columns) -> Iterator[Records]:
        """Yield the records that begin in a slice, in order, the same ones each time.

        Memory is bounded by the size of one read and of the largest record.

        Raises:
            InputUnreadable: the next record is not valid; all records before it were yielded. Under
                ``rescue``, an invalid record or value is rescued instead, if possible.
            UnknownColumns: there are new columns, and the policy is to fail.
            InputChanged, InputMissing: as `Pinned.get`.
        """

    def _flag(self, name: str, default: bool) -> bool:
        value = self._options.get(name, str(default)).lower()
        if value not in ("true", "false"):
            raise ConfigurationError(f"option {name} is {value!r}: give true or false")
        return value == "true"


def combine_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `batches` in larger batches: Spark takes the same time for each, however small.

    A batch is complete at `COMBINED_ROWS`, or at `COMBINED_BYTES`. Batches without rows are left out.
    """
    kept: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        kept.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= COMBINED_ROWS or size >= COMBINED_BYTES:
            yield _concatenated(kept)
            kept, rows, size = [], 0, 0
    if rows:
        yield _concatenated(kept)


def _concatenated(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
