"""Writer of the micro-batches of a streaming query, each exactly once.

Spark creates a writer twice for every batch, once for the tasks and once for the commit. Both know the
query, the run and the batch, which name the attempt, and the messages of the tasks.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from commitlog.errors import CommitError, JobAlreadyCommitted
from commitlog.outputs import Batch, Job, Output
from commitlog.spark.options import OpenOutput, WriteOptions
from commitlog.spark.writer import PUBLISHERS, TaskCommitted, files_of, stage_rows

__all__ = ["CommitlogStreamWriter", "batch_of"]

# What Spark calls these in the local properties of a task.
_QUERY, _RUN, _BATCH = "sql.streaming.queryId", "spark.jobGroup.id", "streaming.sql.batchId"


class CommitlogStreamWriter(DataSourceStreamArrowWriter):
    """Writes one micro-batch.

    Args:
        open_output: opens the output.
        options: of the query.
        columns: of the rows.
        schema: the schema that the output is to have, as its commit record tells it.
        base: number of the log's last record before the batch was begun.
    """

    def __init__(
        self,
        open_output: OpenOutput,
        options: WriteOptions,
        columns: StructType,
        *,
        schema: str,
        base: int,
    ) -> None:
        self._open_output = open_output
        self._options = options
        self._columns = columns
        self._schema = schema
        self._base = base

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommitted:
        """Stage the rows of one task attempt; see `stage_rows`."""
        job = self._job(self._open_output(self._options))
        return stage_rows(self._open_output, self._options, job, self._columns, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Commit the batch; if an earlier run has committed it, drop what this one staged."""
        if not messages:
            return  # a batch without tasks has no rows
        # Every task has a message here. Were one skipped, its rows would be missing.
        files = files_of(messages)
        job = cast(TaskCommitted, messages[0]).job
        with ThreadPoolExecutor(PUBLISHERS) as executor:
            output = self._open_output(self._options, executor)
            with output.store:
                try:
                    # Check again: the batch may have been committed since the writer was created.
                    output.begin(batch=job.batch, visibility=job.visibility)
                    output.commit(job, files)
                except JobAlreadyCommitted:
                    # This attempt may have committed it, in an earlier call that was interrupted.
                    output.abort(job, files)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Abort what this run staged of the batch, unless it was committed."""
        sent = [message for message in messages if message is not None]
        if not sent:
            return  # `recover` finds what tasks may have staged
        with ThreadPoolExecutor(PUBLISHERS) as executor:
            output = self._open_output(self._options, executor)
            with output.store:
                output.abort(cast(TaskCommitted, sent[0]).job, files_of(sent))

    def _job(self, output: Output) -> Job:
        query, run, number = batch_of()
        batch = Batch(query, number)
        return Job(
            job_id=batch.job_id,
            attempt=output.new_attempt(f"{query}/{run}/{number}"),
            mode="append",
            base=self._base,
            schema=self._schema,
            visibility=self._options.visibility or "listed",
            batch=batch,
        )


def batch_of() -> tuple[str, str, int]:
    """Return the query of this task, its run, and the number of the batch."""
    context = TaskContext.get()
    assert context is not None
    query, run, batch = (context.getLocalProperty(name) for name in (_QUERY, _RUN, _BATCH))
    if query is None or batch is None:
        raise CommitError("Spark does not tell which batch of which query this is")
    return query, str(run), int(batch)
