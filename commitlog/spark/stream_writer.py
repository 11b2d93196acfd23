"""Streaming queries that write: the writer of micro-batches.

The writer is a module of its own, because it works with `versions.STREAM_WRITERS`, and the reader only
with `versions.STREAM_READERS`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from commitlog.errors import CommitError, JobAlreadyCommitted
from commitlog.spark.targets.base import JobOfBatch, MicroBatch, Target
from commitlog.spark.tasks import TaskCommitted, files_of, writable, write_task

__all__ = ["CommitlogStreamWriter", "begin_stream"]

# Spark's names for them among the local properties of a task.
_QUERY, _RUN, _BATCH = "sql.streaming.queryId", "spark.jobGroup.id", "streaming.sql.batchId"


def begin_stream(target: Target, schema: StructType, overwrite: bool) -> CommitlogStreamWriter:
    """Return the writer of a micro-batch with rows of `schema`.

    Raises the errors of `Target.begin_stream`, and `NotSupported` for output mode ``complete``, which
    `overwrite` stands for.
    """
    target.options.check_stream(overwrite)
    columns = writable(schema, target.options)
    return CommitlogStreamWriter(target, target.begin_stream(columns), columns)


class CommitlogStreamWriter(DataSourceStreamArrowWriter):
    """The writer of one micro-batch, which is a job of its own.

    Spark creates it twice for every batch, once for the tasks and once for the commit. The tasks know
    the number of the batch, and send the job to the driver.

    Args:
        target: the target.
        job_of: returns the job of a batch.
        columns: columns of the rows.
    """

    def __init__(self, target: Target, job_of: JobOfBatch, columns: StructType) -> None:
        self._target = target
        self._job_of = job_of
        self._columns = columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommitted:
        """Write the rows of one task attempt; see `write_task`."""
        return write_task(self._target, self._job_of(current_batch()), self._columns, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Commit the batch; if an earlier run has committed it, drop the files of this one.

        Spark tells a Python sink neither the offsets of the batch nor whether it runs again. So the rows
        are compared by what the commit record of an output has of them; `StateMismatch` tells that they
        are others. A namespace keeps nothing to compare.
        """
        if not messages:
            return  # a batch without tasks has no rows
        files = files_of(messages)
        job = cast(TaskCommitted, messages[0]).job
        try:
            self._target.commit(job, files)
        except JobAlreadyCommitted:
            # This attempt may have committed it, in an earlier call that was interrupted.
            self._target.abort(job, files)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Abort this run of the batch, unless it was committed."""
        sent = [message for message in messages if message is not None]
        if sent:  # otherwise no job is known, and cleanups of the target find the files
            self._target.abort(cast(TaskCommitted, sent[0]).job, files_of(sent))


def current_batch() -> MicroBatch:
    """Return the micro-batch of the current task."""
    context = TaskContext.get()
    assert context is not None
    query, run, number = (context.getLocalProperty(name) for name in (_QUERY, _RUN, _BATCH))
    if query is None or number is None:
        raise CommitError("Spark does not tell which batch of which query this is")
    return MicroBatch(query, str(run), int(number))
