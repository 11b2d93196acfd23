"""`compact`: Spark merges the small files of an output, a task for each file that they become.

Imports outputs and the rest of this package; pyspark from outside.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from commitlog.errors import NotSupported
from commitlog.outputs import CommitRecord, Job, StagedFile
from commitlog.outputs.compaction import TARGET_BYTES, Group
from commitlog.spark.failures import own_errors
from commitlog.spark.options import ReadOptions, is_lake
from commitlog.spark.rewrite import merged, rewrite
from commitlog.spark.source import open_output
from commitlog.spark.writer import PUBLISHERS

__all__ = ["compact"]


def compact(
    spark: SparkSession,
    url: str,
    *,
    target_bytes: int = TARGET_BYTES,
    min_files: int = 2,
    options: Mapping[str, str] | None = None,
) -> CommitRecord | None:
    """Merge small files of the output at `url` into larger ones; return the commit record.

    Readers of the log see the same rows before and after, and each once. Files of one partition, format
    and compression are merged in the order in which they were committed. Other jobs may write meanwhile:
    what they add is left alone, and what they replace stays replaced. See docs/outputs.md for what plain
    readers see.

    Args:
        spark: does the work; a session of Spark Connect will do.
        url: of the output.
        target_bytes: files are merged up to this size; those of three quarters of it are left alone.
        min_files: merge no fewer files than this into one.
        options: further options of the data source, such as credentials; see docs/spark.md.

    Returns None if nothing is worth merging.

    Raises:
        ConfigurationError: an argument is wrong; nothing was written.
        NotSupported: the output's commits tell no columns, or `url` is of a namespace.
        Conflict: other jobs replaced the files, three times in a row. Nothing was changed.
        PublishIncomplete: it is done, but readers that list the directory do not see it yet, or see
            files twice; `Output.recover` completes it.
        CorruptRecord: a file is not the one that was committed. Nothing was changed.
        Py4JJavaError, PySparkException: Spark's job failed for a reason of its own. Nothing was changed.
    """
    if is_lake(url):
        raise NotSupported(
            f"{url!r} is of a namespace, and compact is for outputs: read it, and write its rows with"
            " mode 'overwrite'"
        )
    given = ReadOptions.parse({**(options or {}), "path": url})

    def stage(job: Job, groups: Sequence[Group], schema: pa.Schema) -> list[StagedFile]:
        # A plain function of a row: it is there on Spark Connect, too, and takes no pandas.
        @f.udf(returnType="binary", useArrow=False)
        def work(number: int) -> bytes:
            there = open_output(given)
            with there.store:
                return pickle.dumps(rewrite(there, job, number, groups[number], schema))

        tasks = spark.range(0, len(groups), 1, len(groups)).select(work("id").alias("file"))
        with own_errors():
            return [pickle.loads(row.file) for row in tasks.collect()]

    with ThreadPoolExecutor(PUBLISHERS) as executor:
        output = open_output(given, executor)
        with output.store:
            return merged(output, stage, target_bytes=target_bytes, min_files=min_files)
