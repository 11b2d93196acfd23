"""Writer of one job of a batch query. It is pickled to every process that takes part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import pyarrow as pa
from attrs import frozen
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from commitlog.errors import AlreadyExists, JobAlreadyCommitted
from commitlog.outputs import Job, StagedFile
from commitlog.spark.options import JobOptions, OpenOutput, WriteOptions
from commitlog.spark.schema import arrow_schema, select
from commitlog.spark.tasks import Stages, TaskFiles
from commitlog.spark.workers import freeze_gc

__all__ = [
    "PUBLISHERS",
    "CommitlogWriter",
    "NothingToWrite",
    "TaskCommitted",
    "files_of",
    "stage_rows",
    "staged_rows",
]

#: Requests that a driver has under way when it publishes or drops uploads.
PUBLISHERS = 16


@frozen
class TaskCommitted(WriterCommitMessage):
    """What a task tells the driver: the files that it staged, and for which job."""

    job: Job
    files: tuple[StagedFile, ...]


def stage_rows(
    open_output: OpenOutput,
    options: WriteOptions,
    job: Job,
    columns: StructType,
    batches: Iterator[pa.RecordBatch],
) -> TaskCommitted:
    """Stage the rows of one task attempt; if it fails, nothing of it stays behind.

    An attempt that is killed, or that Spark drops for another one, leaves uploads. They are invisible,
    and ``recover`` drops them.
    """
    freeze_gc()
    output = open_output(options)
    with output.store:
        return TaskCommitted(job, staged_rows(output, options, job, columns, batches))


def staged_rows(
    stages: Stages,
    options: JobOptions,
    job: Job,
    columns: StructType,
    batches: Iterator[pa.RecordBatch],
) -> tuple[StagedFile, ...]:
    """Return the files that have the rows of one task attempt; if it fails, none stays behind."""
    schema = arrow_schema(columns)
    context = TaskContext.get()
    assert context is not None
    with TaskFiles(stages, job, context.partitionId(), schema, options) as files:
        for batch in batches:
            files.write(select(batch, schema))
        return files.finish()


def files_of(messages: Iterable[WriterCommitMessage | None]) -> list[StagedFile]:
    """Return the files in the messages of a job's tasks."""
    return [file for message in messages for file in cast(TaskCommitted, message).files]


class CommitlogWriter(DataSourceArrowWriter):
    """Writes one job; each process opens the output itself."""

    def __init__(
        self, open_output: OpenOutput, options: WriteOptions, job: Job, columns: StructType
    ) -> None:
        self._open_output = open_output
        self._options = options
        self._job = job
        self._columns = columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommitted:
        """Stage the rows of one task attempt; see `stage_rows`."""
        return stage_rows(self._open_output, self._options, self._job, self._columns, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the files of the winning attempts; see `Output.commit`."""
        # Every task has a message here. Were one skipped, its rows would be missing.
        files = files_of(messages)
        with ThreadPoolExecutor(PUBLISHERS) as executor:
            output = self._open_output(self._options, executor)
            with output.store:
                try:
                    output.commit(self._job, files)
                except JobAlreadyCommitted:
                    if self._options.on_duplicate != "skip":
                        raise
                    output.abort(self._job, files)
                except AlreadyExists:
                    if self._options.if_exists != "ignore":
                        raise
                    output.abort(self._job, files)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Abort the job, unless it was committed: Spark also calls this when `commit` has raised."""
        with ThreadPoolExecutor(PUBLISHERS) as executor:
            output = self._open_output(self._options, executor)
            with output.store:
                output.abort(self._job, files_of(m for m in messages if m is not None))


class NothingToWrite(DataSourceArrowWriter):
    """Writes nothing: the job or the data exists already, and the options say to skip it then."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Leave the rows where they are."""
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing."""

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing."""
