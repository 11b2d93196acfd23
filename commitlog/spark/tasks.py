"""What a task of a job does: write its rows to files of a target, and send the driver their list.

`commitlog.tabular.task_files` has the files of a task.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from typing import cast

import pyarrow as pa
from attrs import frozen
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from commitlog.outputs import Job, StagedFile
from commitlog.spark.options import JobOptions
from commitlog.spark.schema import arrow_schema, check_columns, nullable, select
from commitlog.spark.targets.base import Target
from commitlog.tabular import TaskFiles, check_files

__all__ = [
    "TaskCommitted",
    "files_of",
    "freeze_gc",
    "writable",
    "write_task",
]


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


def writable(schema: StructType, options: JobOptions) -> StructType:
    """Return the columns of files with rows of `schema`; raise as `check_columns` and `check_files`."""
    check_columns(schema)
    columns = nullable(schema)
    check_files(arrow_schema(columns), options)
    return columns
