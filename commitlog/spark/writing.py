"""`write`: a DataFrame into an output, with all that Spark's own `df.write` cannot say.

Imports outputs and the rest of this package; pyspark from outside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession

from commitlog.errors import ConfigurationError
from commitlog.outputs import CommitRecord
from commitlog.spark.alive import kept_alive
from commitlog.spark.failures import own_errors
from commitlog.spark.namespaces.options import as_told_here
from commitlog.spark.options import WriteOptions, is_lake
from commitlog.spark.sessions import active, register, unbounded
from commitlog.spark.source import CommitlogDataSource, open_output, warn_of_foreign
from commitlog.words import random_word

__all__ = ["write"]

_BATCH_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"

_MODES = ("append", "overwrite", "overwrite-partitions", "error", "ignore")


def write(
    df: DataFrame,
    url: str,
    *,
    mode: str = "append",
    job_id: str | None = None,
    on_duplicate: str = "error",
    partition_by: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
    heartbeat: float = 60.0,
) -> CommitRecord | None:
    """Write `df` to the output at `url`, whole or not at all; return its commit record.

    It is ``df.write.format("commitlog")`` with the right mode and options, and besides:

    * Arrow batches are bounded by rows alone while it runs, since Spark's check of their size after each
      row makes writing three times slower; the setting is restored afterwards;
    * the job is kept alive: `recover` and `gc` do not take it for dead however long it computes.

    Args:
        df: the rows.
        url: of the output, or of a directory in a namespace.
        mode: ``append``; ``overwrite`` everything that is there; ``overwrite-partitions``: what is there
            in the partitions that the rows are in; ``error`` if there is data; ``ignore``: then do
            nothing.
        job_id: what is committed at most once, ever; None: a new job.
        on_duplicate: what to do about a job that was committed before: ``error`` or ``skip``.
        partition_by: columns that become directories.
        options: further options of the data source; see docs/spark.md.
        heartbeat: seconds between two signs of life.

    Returns None if there was nothing to do (``ignore``, ``skip``), and if `url` is of a namespace, which
    has no commit records and takes no signs of life.

    Raises:
        ConfigurationError: an argument is wrong; nothing was written.
        JobAlreadyCommitted: the job was committed before. Its rows are there once; nothing was added.
        AlreadyExists: there is data, and `mode` is ``error``; nothing was added.
        NotSupported: columns or values that cannot be written; nothing was added.
        JobAborted: a recovery took the job for dead; nothing was added. Run it again.
        PublishIncomplete: the job is committed; `Output.recover` completes it. Do not run it again.
        OutcomeUnknown: the job may be committed or not. Run it again under the same job id.
        Py4JJavaError, PySparkException: Spark's job failed for a reason of its own. Unless its commit
            had begun, nothing was added. Run it again under the same job id.

    And the other errors of `Output.begin` and `Output.commit`. Each has Spark's exception as its cause.

    Thread-safe. The setting is the session's, so of threads that write at once with one session, those
    that go on when the first is done may write more slowly: give each its own (``spark.newSession()``).
    """
    if mode not in _MODES:
        raise ConfigurationError(f"mode is {mode!r}; it must be one of {', '.join(_MODES)}")
    if heartbeat <= 0:
        raise ConfigurationError(f"heartbeat is {heartbeat} s; it must be more than 0")
    given = {
        **(options or {}),
        **({"jobId": job_id} if job_id is not None else {}),
        **({"partitionBy": ",".join(partition_by)} if partition_by else {}),
        **({"ifExists": mode} if mode in ("error", "ignore") else {}),
        **({"partitionOverwriteMode": "dynamic"} if mode == "overwrite-partitions" else {}),
        "onDuplicate": on_duplicate,
    }
    if is_lake(url):
        with own_errors(job_id):
            _save(df, url, mode, as_told_here(given))
        return None
    word = random_word()
    given["attempt"] = word
    output = open_output(WriteOptions.parse({**given, "path": url}))
    attempt = output.new_attempt(word)
    with output.store:
        before = output.watermark()
        if mode == "append" and not before:
            warn_of_foreign(output)
        with own_errors(job_id or attempt, output), kept_alive(output, attempt, heartbeat):
            _save(df, url, mode, given)
        return next((record for record in output.log(before) if record.attempt == attempt), None)


def _save(df: DataFrame, url: str, mode: str, given: Mapping[str, str]) -> None:
    spark_mode = "overwrite" if mode.startswith("overwrite") else "append"
    spark = df.sparkSession
    with active(spark), unbounded(spark, _BATCH_BYTES):
        if isinstance(spark, SparkSession):
            register(spark, CommitlogDataSource)
        df.write.format("commitlog").mode(spark_mode).options(**given).save(url)
