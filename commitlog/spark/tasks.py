"""What a task of a job does: write its rows to files of a target, and send the driver their list.

A task writes one file, or one for each partition of its rows, or several if options limit the size of
files or ask for an order.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc
from attrs import define, field, frozen
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from commitlog.errors import ConfigurationError, NotSupported
from commitlog.outputs import Job, StagedFile
from commitlog.spark.files import GROUP_BYTES, OUTPUT_FORMATS, FileWriter
from commitlog.spark.options import JobOptions
from commitlog.spark.partitions import check_partitioning, directory_of, partition_of, split_batch
from commitlog.spark.schema import arrow_schema, check_columns, nullable, select
from commitlog.spark.targets.base import Target, Uploads
from commitlog.stores import StageWriter

__all__ = [
    "TaskCommitted",
    "TaskFiles",
    "check_files",
    "files_of",
    "freeze_gc",
    "writable",
    "write_task",
]

#: Size in bytes of Arrow of the buffer for sorting. Sorting takes about as much again.
SORT_BYTES = 256 * 1024 * 1024

#: Number of sorted rows in a batch.
SORTED_ROWS = 16 * 1024

#: Values of the partition columns, which determine the file of a row.
_Values = tuple[object, ...]


@frozen
class TaskCommitted(WriterCommitMessage):
    """The message of a successful task attempt to the driver: its files, and their job."""

    job: Job
    files: tuple[StagedFile, ...]


def write_task(
    target: Target, job: Job, columns: StructType, batches: Iterator[pa.RecordBatch]
) -> TaskCommitted:
    """Write the rows of one task attempt to files of `target`; if it fails, drop the files.

    An attempt that is killed, or that Spark drops in favour of another one, leaves uploads. They are
    invisible. ``recover`` of an output and ``fsck`` of a namespace find them.
    """
    freeze_gc()
    schema = arrow_schema(columns)
    context = TaskContext.get()
    assert context is not None
    with (
        target.open(job) as uploads,
        TaskFiles(uploads, context.partitionId(), schema, target.options) as files,
    ):
        for batch in batches:
            files.write(select(batch, schema))
        return TaskCommitted(job, files.finish())


def files_of(messages: Iterable[WriterCommitMessage | None]) -> list[StagedFile]:
    """Return the files in the messages of a job's tasks.

    Raises `AttributeError` if a message is missing: the rows of its task would be missing, too.
    """
    return [file for message in messages for file in cast(TaskCommitted, message).files]


def freeze_gc() -> None:
    """Exclude all current objects, such as imported modules, from garbage collection.

    Call it at the start of a task, and where Spark begins or commits a job. Spark's daemon makes each
    worker collect garbage after each of these, which takes tens of milliseconds only to scan the same
    modules again (pyspark 4.3, daemon.py).
    Idempotent: garbage of later tasks is collected as usual.
    """
    if not gc.get_freeze_count():
        gc.freeze()


# -- before the job ----------------------------------------------------------------------------------


def check_files(schema: pa.Schema, options: JobOptions) -> None:
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
                f"option sortBy names {name!r}; the columns of a file are {', '.join(kept.names)}"
            )
        kind = kept.field(name).type
        if pa.types.is_nested(kind):
            raise NotSupported(f"option sortBy: column {name!r} is of type {kind}, which has no order")
    OUTPUT_FORMATS[options.file_format].check(kept)


def writable(schema: StructType, options: JobOptions) -> StructType:
    """Return the columns of files with rows of `schema`; raise as `check_columns` and `check_files`."""
    check_columns(schema)
    columns = nullable(schema)
    check_files(arrow_schema(columns), options)
    return columns


def _kept(schema: pa.Schema, options: JobOptions) -> pa.Schema:
    return pa.schema([field for field in schema if field.name not in options.partition_by])


# -- files -------------------------------------------------------------------------------------------


@frozen
class _OpenFile:
    upload: StageWriter
    writer: FileWriter
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

    The buffers of all files together have the same bound as the buffer of a single file. With ``sortBy``
    the bound is `SORT_BYTES`: the buffered rows of a partition are then sorted and written to new files.
    So each file is sorted, and a task with more rows than that writes several.

    Args:
        uploads: the connection to the store, and the job.
        task: number of the task; two attempts at one task may run at the same time.
        schema: columns of the rows; `check_files` has accepted them.
        options: the format, the partition columns, the size of files and their order.
    """

    def __init__(self, uploads: Uploads, task: int, schema: pa.Schema, options: JobOptions) -> None:
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
