"""The files of one task of a job: its rows, in one file or several, staged for a later commit.

A task writes one file, or one for each partition of its rows, or several if options limit the size of
files or ask for an order.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
from attrs import define, field, frozen

from commitlog.errors import ConfigurationError, NotSupported
from commitlog.files import GROUP_BYTES, OUTPUT_FORMATS, FormatWriter
from commitlog.outputs import Job, Output, StagedFile
from commitlog.stores import StageWriter
from commitlog.tabular.partitions import check_partitioning, directory_of, partition_of, split_batch

__all__ = ["FileOptions", "OutputUploads", "TaskFiles", "Uploads", "check_files"]

#: Size in bytes of Arrow of the buffer for sorting. Sorting takes about as much again.
SORT_BYTES = 256 * 1024 * 1024

#: Number of sorted rows in a batch.
SORTED_ROWS = 16 * 1024

#: Values of the partition columns, which determine the file of a row.
_Values = tuple[object, ...]


@frozen(kw_only=True)
class FileOptions:
    """Options of the files that the tasks of a job write.

    Attributes:
        file_format: one of `OUTPUT_FORMATS`.
        compression: one of the format's compressions.
        partition_by: names of the columns that become directories.
        sort_by: names of the columns that each file is sorted by.
        target_file_bytes: size in bytes from which a file is complete; None for any size.
        target_file_rows: largest number of rows of a file; None for any number.
    """

    file_format: str = "parquet"
    compression: str = "snappy"
    partition_by: tuple[str, ...] = ()
    sort_by: tuple[str, ...] = ()
    target_file_bytes: int | None = None
    target_file_rows: int | None = None


def check_files(schema: pa.Schema, options: FileOptions) -> None:
    """Raise unless tasks can write rows of `schema` as `options` say.

    Raises:
        ConfigurationError: an option names a column that does not exist or that it must not name.
        NotSupported: the format cannot hold a column, or rows cannot be partitioned or sorted by it.
    """
    check_partitioning(schema, options.partition_by)
    kept = _kept(schema, options)
    for name in options.sort_by:
        if name not in kept.names:
            raise ConfigurationError(
                f"there is no column {name!r} to sort by; a file has {', '.join(kept.names)}"
            )
        kind = kept.field(name).type
        if pa.types.is_nested(kind):
            raise NotSupported(f"column {name!r} cannot be sorted by: type {kind} has no order")
    OUTPUT_FORMATS[options.file_format].check(kept)


def _kept(schema: pa.Schema, options: FileOptions) -> pa.Schema:
    return pa.schema([field for field in schema if field.name not in options.partition_by])


class Uploads(Protocol):
    """The connection of one task attempt, to write files of a job. Not thread-safe."""

    @property
    def job(self) -> Job:
        """The job."""

    def open_file(self, name: str) -> StageWriter:
        """Begin a file that readers do not see before the commit of the job.

        Args:
            name: path below the directory; its last segment is made by ``job.file_name``.
        """

    def drop(self, files: Iterable[StagedFile]) -> None:
        """Remove finished files."""


@frozen
class OutputUploads:
    """The connection of one task attempt to an output."""

    output: Output
    job: Job

    def open_file(self, name: str) -> StageWriter:
        """Begin a file; see `Output.begin_stage`."""
        return self.output.begin_stage(self.job, name)

    def drop(self, files: Iterable[StagedFile]) -> None:
        """Drop staged files."""
        self.output.drop(self.job, files)


@frozen
class _OpenFile:
    upload: StageWriter
    writer: FormatWriter
    partition: Mapping[str, str | None]

    @property
    def buffered_bytes(self) -> int:
        return self.writer.buffered_bytes


@define
class _Unsorted:
    batches: list[pa.RecordBatch] = field(factory=list)
    buffered_bytes: int = 0


class TaskFiles:
    """The files of one task attempt. Not thread-safe.

    As a context manager, it drops every file unless `finish` returned. If a file cannot be dropped, the
    others still are. The error of the block does not change; a note on it names the failure.

    The buffers of all files together have the same bound as the buffer of a single file. With
    ``sort_by`` it is `SORT_BYTES`: the buffered rows of a partition are then sorted and written to new
    files. So each file is sorted, and a task with more rows than that writes several.

    Args:
        uploads: the connection to the store, and the job.
        task: number of the task; two attempts at one task may run at the same time.
        schema: columns of the rows; `check_files` has accepted them.
        options: the format, the partition columns, the size of files and their order.
    """

    def __init__(self, uploads: Uploads, task: int, schema: pa.Schema, options: FileOptions) -> None:
        self._uploads = uploads
        self._task = task
        self._options = options
        self._schema = _kept(schema, options)
        self._begun = 0
        self._unsorted: dict[_Values, _Unsorted] = {}
        self._open: dict[_Values, _OpenFile] = {}
        self._staged: list[StagedFile] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Append the rows of `batch` to their files."""
        for values, rows in self._split(batch):
            if self._options.sort_by:
                part = self._unsorted.setdefault(values, _Unsorted())
                part.batches.append(rows)
                part.buffered_bytes += rows.nbytes
            else:
                self._append(values, rows)
        if self._options.sort_by:
            _reduce(self._unsorted, SORT_BYTES, self._sort)
        elif self._options.partition_by:
            _reduce(self._open, GROUP_BYTES, lambda values: self._open[values].writer.flush())

    def finish(self) -> tuple[StagedFile, ...]:
        """Complete all files; return them, still invisible. A task without rows has none."""
        for values in list(self._unsorted):
            self._sort(values)
        for values in list(self._open):
            self._complete(values)
        files, self._staged = tuple(self._staged), []
        return files

    def __enter__(self) -> TaskFiles:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        steps: list[Callable[[], None]] = []
        for file in self._open.values():
            steps += file.writer.abandon, file.upload.abort
        for done in self._staged:
            steps.append(partial(self._uploads.drop, [done]))
        failures = []
        for step in steps:
            try:
                step()
            except Exception as failure:
                failures.append(failure)
        if not failures:
            return
        # Files that stay behind are invisible, and `recover` finds them. The first error matters.
        if error is None:
            raise failures[0]
        error.add_note(f"Besides, not all uploads of the task could be dropped: {failures[0]}")

    def _split(self, batch: pa.RecordBatch) -> Iterator[tuple[_Values, pa.RecordBatch]]:
        if self._options.partition_by:
            yield from split_batch(batch, self._options.partition_by)
        elif batch.num_rows:
            yield (), batch

    def _sort(self, values: _Values) -> None:
        """Write the buffered rows of a partition to new files, sorted."""
        rows = pa.Table.from_batches(self._unsorted.pop(values).batches, schema=self._schema)
        rows = rows.take(_order(rows, self._options.sort_by))
        for batch in rows.to_batches(max_chunksize=SORTED_ROWS):
            self._append(values, batch)
        if values in self._open:
            self._complete(values)

    def _append(self, values: _Values, rows: pa.RecordBatch) -> None:
        most = self._options.target_file_rows or sys.maxsize
        enough = self._options.target_file_bytes or sys.maxsize
        while rows.num_rows:
            writer = self._file(values).writer
            room = most - writer.rows
            writer.write(rows.slice(0, room))
            rows = rows.slice(room)
            if writer.rows >= most or writer.written_bytes >= enough:
                self._complete(values)

    def _file(self, values: _Values) -> _OpenFile:
        file = self._open.get(values)
        if file is None:
            options = self._options
            known = OUTPUT_FORMATS[options.file_format]
            partition = partition_of(options.partition_by, values)
            suffix = known.compressions[options.compression]
            name = self._uploads.job.file_name(self._task, self._begun, suffix)
            upload = self._uploads.open_file(directory_of(partition) + name)
            # A file can be completed only between two flushes of its buffer.
            group_bytes = min(GROUP_BYTES, options.target_file_bytes or GROUP_BYTES)
            try:
                writer = known.open_writer(
                    upload, self._schema, options.compression, group_bytes=group_bytes
                )
            except BaseException:
                upload.abort()
                raise
            file = self._open[values] = _OpenFile(upload, writer, partition)
            self._begun += 1
        return file

    def _complete(self, values: _Values) -> None:
        file = self._open[values]
        file.writer.close()
        staged = file.upload.finish()
        self._staged.append(
            StagedFile(
                staged=staged,
                rows=file.writer.rows,
                partition=file.partition,
                stats=file.writer.statistics,
            )
        )
        del self._open[values]


def _order(rows: pa.Table, names: Sequence[str]) -> pa.Array:
    """Return the indices that sort `rows` by the columns `names` as Spark does: nulls, values, NaN."""
    keys: dict[str, pa.ChunkedArray] = {}
    for number, name in enumerate(names):
        column = rows.column(name)
        if column.null_count:
            keys[f"{number} is there"] = pc.is_valid(column)
        keys[str(number)] = column
    return pc.sort_indices(pa.table(keys), sort_keys=[(key, "ascending") for key in keys])


def _reduce(
    held: Mapping[_Values, _OpenFile] | Mapping[_Values, _Unsorted],
    bound: int,
    release: Callable[[_Values], None],
) -> None:
    """Release the largest buffers until all together have at most `bound` bytes."""
    sizes = {values: each.buffered_bytes for values, each in held.items()}
    excess = sum(sizes.values()) - bound
    for values in sorted(sizes, key=lambda values: sizes[values], reverse=True) if excess > 0 else ():
        release(values)
        excess -= sizes[values]
        if excess <= 0:
            return
