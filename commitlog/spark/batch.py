"""Batch queries: the reader of the files of a `Source`, and the writer of a job to a `Target`.

Spark pickles both to the processes of the query.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from commitlog._util.bin_packing import packed
from commitlog.errors import AlreadyExists, ConfigurationError
from commitlog.files import StoredObject, output_format_of
from commitlog.outputs import DataFile, Job
from commitlog.spark.pruning import Pruning, parse_filters
from commitlog.spark.schema import nullable, readable_schema, requested_schema, select, with_nulls
from commitlog.spark.targets.base import FoundFiles, Locate, OpenFiles, Target
from commitlog.spark.tasks import TaskCommitted, files_of, freeze_gc, writable, write_task
from commitlog.tabular.partitions import column_of

__all__ = [
    "CommitlogReader",
    "CommitlogWriter",
    "NothingToWrite",
    "begin_job",
    "check_requested",
    "group_files",
    "read_files",
]

#: Small files are read by one task together, up to this size in bytes, which takes a few seconds. A
#: larger file is a partition of its own.
PARTITION_BYTES = 32 * 1024 * 1024
#: The size in bytes that a file counts with at least, for the cost of opening it.
FILE_BYTES = 1024 * 1024


# -- reading -----------------------------------------------------------------------------------------


class CommitlogReader(DataSourceReader):
    """A reader of a list of files. It lists no directory.

    Args:
        open_files: opens the store in a task.
        files: the files.
        stored: all columns of the files.
        schema: the columns to read.
        pruning: the filters that the DataFrame was loaded with. Files and row groups without a matching
            row are skipped.

    Filters of a query are not pushed down, although Spark offers it
    (``spark.sql.python.filterPushdown.enabled``): Spark keeps the partitions of one query with the
    DataFrame and uses them again for the next query, which has other filters or none (measured with
    Spark 4.2 and 4.3). So only filters that belong to the DataFrame itself may skip a file.
    """

    def __init__(
        self,
        open_files: OpenFiles,
        files: Sequence[DataFile],
        stored: StructType,
        schema: StructType,
        pruning: Pruning,
    ) -> None:
        self._open_files = open_files
        self._files = [file for file in files if pruning.wants(file)]
        self._stored = readable_schema(stored)
        self._schema = requested_schema(schema)
        self._pruning = pruning

    @classmethod
    def of(cls, found: FoundFiles, schema: StructType) -> CommitlogReader:
        """Return the reader of the columns `schema` of the files `found`.

        Raises `ConfigurationError` if the files lack a column, or for a wrong filter, and `NotSupported`
        for a column of a type that only Spark's own reader returns.
        """
        # If nothing has stored the columns, the user's are all that is known.
        stored = nullable(schema) if found.columns is None else found.columns
        check_requested(nullable(schema), stored)
        pruning = parse_filters(found.filters, stored)
        return cls(found.open, found.files, stored, schema, pruning)

    def partitions(self) -> list[InputPartition]:
        """Return groups of whole files, in their order, each large enough for a task; at least one."""
        # Without partitions, Spark would call `read` with other arguments in each version.
        return [InputPartition(files) for files in group_files(self._files) or [[]]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the files of `partition`."""
        freeze_gc()
        with self._open_files() as locate:
            yield from read_files(locate, partition.value, self._stored, self._schema, self._pruning)


def check_requested(requested: StructType, stored: StructType) -> None:
    """Raise `ConfigurationError` unless all `requested` columns are among the `stored` ones."""
    columns = {field.name: field.dataType for field in stored}
    for field in requested:
        if columns.get(field.name) != field.dataType:
            listed = ", ".join(f"{name} {kind.simpleString()}" for name, kind in columns.items())
            raise ConfigurationError(
                f"the output has no {field.name} {field.dataType.simpleString()}; it has {listed}"
            )


def group_files(files: Iterable[DataFile]) -> list[list[DataFile]]:
    """Return `files`, in their order, in groups that are each large enough for a task."""
    return packed(files, lambda file: file.size, group_bytes=PARTITION_BYTES, least_bytes=FILE_BYTES)


def read_files(
    locate: Locate,
    files: Iterable[DataFile],
    stored: pa.Schema,
    schema: pa.Schema,
    pruning: Pruning,
    *,
    whole: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of files.

    Args:
        locate: returns the store that has a file, and the path there.
        files: the files.
        stored: all columns at the time when the files were committed, or later.
        schema: the columns to read; a column that a file lacks is null.
        pruning: determines the parts of files to skip.
        whole: whether `stored` must have all that a file has; see `OutputFormat.read`.
    """
    names = set(schema.names)
    for file in files:
        inside = pa.schema([field for field in stored if field.name not in file.partition])
        source = StoredObject(*locate(file), file.size)
        known = output_format_of(file.path)
        for batch in known.read(source, inside, names, pruning.wants_part, whole=whole):
            yield _complete(batch, file, schema)


def _complete(batch: pa.RecordBatch, file: DataFile, schema: pa.Schema) -> pa.RecordBatch:
    """Return `batch` with all columns of `schema`; add columns in the file's path, and nulls."""
    for field in schema:
        if field.name in file.partition and field.name not in batch.schema.names:
            batch = batch.append_column(field, column_of(file.partition, field, batch.num_rows))
    return select(with_nulls(batch, schema), schema)


# -- writing -----------------------------------------------------------------------------------------


def begin_job(target: Target, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
    """Begin a job that writes rows of `schema`; return its writer.

    The writer writes nothing if the job or the data exists already and the options say to skip it then.
    It raises the errors of `Target.begin` otherwise.
    """
    freeze_gc()
    columns = writable(schema, target.options)
    try:
        job = target.begin(columns, overwrite=overwrite)
    except AlreadyExists as error:
        if not target.options.skips(error):
            raise
        return NothingToWrite()
    return CommitlogWriter(target, job, columns)


class CommitlogWriter(DataSourceArrowWriter):
    """The writer of one job.

    Args:
        target: the target.
        job: the job, from `Target.begin`.
        columns: columns of the rows.
    """

    def __init__(self, target: Target, job: Job, columns: StructType) -> None:
        self._target = target
        self._job = job
        self._columns = columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommitted:
        """Write the rows of one task attempt; see `write_task`."""
        return write_task(self._target, self._job, self._columns, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the files of the winning attempts; see `Target.commit`."""
        freeze_gc()
        files = files_of(messages)
        try:
            self._target.commit(self._job, files)
        except AlreadyExists as error:
            if not self._target.options.skips(error):
                raise
            self._target.abort(self._job, files)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Abort the job, unless it was committed: Spark also calls this when `commit` has raised."""
        self._target.abort(self._job, files_of(m for m in messages if m is not None))


class NothingToWrite(DataSourceArrowWriter):
    """A writer that ignores all rows."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Ignore the rows."""
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing."""

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing."""
