"""Compaction of outputs: merging small files, with Spark or without it.

Only outputs can be compacted: the job names the files that it replaces, in the log of the output.
"""

from __future__ import annotations

import logging
import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

import pyarrow as pa
from attrs import evolve, frozen
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from commitlog.errors import Committed, CorruptRecord, NotSupported
from commitlog.files import output_format_of
from commitlog.files.stored import OtherColumns
from commitlog.outputs import CommitRecord, DataFile, Job, Output, StagedFile
from commitlog.outputs.compaction import TARGET_BYTES, Group, plan
from commitlog.spark.batch import read_files
from commitlog.spark.errors import own_errors
from commitlog.spark.pruning import Pruning
from commitlog.spark.targets.output import ReadOptions, locate_in, open_output
from commitlog.tabular import PUBLISHERS, OutputUploads, send_heartbeats
from commitlog.tabular.columns import OutputColumns
from commitlog.tabular.partitions import directory_of

__all__ = ["LeftOut", "Rewritten", "Stage", "compact", "compact_output", "groups_of", "rewrite"]

_log = logging.getLogger(__name__)


def compact(
    spark: SparkSession,
    url: str,
    *,
    target_bytes: int = TARGET_BYTES,
    min_files: int = 2,
    options: Mapping[str, str] | None = None,
) -> CommitRecord | None:
    """Merge small files of the output at `url` into larger ones; return the commit record.

    Readers of the log see each row exactly once before, during and after. Files of the same partition,
    format and compression are merged in the order of their commits. Other jobs may write at the same
    time: files that they add stay, and files that they replace stay replaced. Files of one bucket of
    Spark (``bucketBy``) become files of that bucket. Files with columns that could not be kept stay as
    they are; a warning in the log of the driver names each. docs/outputs.md describes what readers see
    that do not use the log.

    Args:
        spark: the session; Spark Connect works too.
        url: URL of the output.
        target_bytes: largest size of a merged file; files of at least three quarters of it are kept.
        min_files: least number of files to merge into one.
        options: further options of the data source, such as credentials; see docs/spark.md.

    Returns None if nothing is worth merging.

    Raises:
        ConfigurationError: an argument is wrong; nothing was written.
        NotSupported: the output's commits have no schema, or its columns are unknown, or `url` is a
            directory of a namespace.
        Conflict: other jobs replaced the files, three times in a row. Nothing was changed.
        PublishIncomplete: the compaction is committed, but readers that list the directory still see the
            old files, or files twice; `Output.recover` completes it.
        CorruptRecord: a file is not the one that was committed. Nothing was changed.
        Py4JJavaError, PySparkException: Spark's job failed for another reason. Nothing was changed.
    """
    location = ReadOptions.parse({**(options or {}), "path": url})

    def stage(job: Job, groups: Sequence[Group], schema: pa.Schema) -> list[Rewritten]:
        # A plain row function works on Spark Connect too, and does not need pandas.
        @f.udf(returnType="binary", useArrow=False)
        def work(number: int) -> bytes:
            own = open_output(location)
            with own.store:
                return pickle.dumps(rewrite(own, job, number, groups[number], schema))

        tasks = spark.range(0, len(groups), 1, len(groups)).select(work("id").alias("file"))
        with own_errors():
            return [pickle.loads(row.file) for row in tasks.collect()]

    with ThreadPoolExecutor(PUBLISHERS) as executor:
        output = open_output(location, executor)
        with output.store:
            return compact_output(output, stage, target_bytes=target_bytes, min_files=min_files)


#: Seconds between two heartbeats while files are written.
HEARTBEAT = 60.0

#: The number of a bucket in the name of a file, as Spark's BucketingUtils reads it.
_BUCKET = re.compile(r".*(_\d+)(?:\..*)?", re.DOTALL)

#: Number of attempts if other jobs replace the files during the compaction.
TRIES = 3


@frozen
class LeftOut:
    """A file that is not rewritten, because the new file could not keep its columns.

    Attributes:
        path: path relative to the output.
        why: the reason, with the column.
    """

    path: str
    why: str


@frozen
class Rewritten:
    """What became of a group of files.

    Attributes:
        file: the staged file with their rows; None if fewer than two could be merged.
        paths: paths of the files whose rows it has.
        left_out: the other files.
    """

    file: StagedFile | None
    paths: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()


#: Stages one file for each group, given the job and the columns that can be kept.
Stage: TypeAlias = Callable[[Job, Sequence[Group], pa.Schema], list[Rewritten]]


def _warn(file: LeftOut) -> None:
    _log.warning("%s was not merged: %s", file.path, file.why)


def groups_of(
    files: Iterable[DataFile], *, target_bytes: int = TARGET_BYTES, min_files: int = 2
) -> tuple[Group, ...]:
    """Return the groups of `files` to merge, each of the same format and compression; see `plan`.

    Files with an unknown suffix are not merged.
    """
    return plan(files, kind=_kind, target_bytes=target_bytes, min_files=min_files)


def compact_output(
    output: Output,
    stage: Stage,
    *,
    target_bytes: int = TARGET_BYTES,
    min_files: int = 2,
    report: Callable[[LeftOut], None] = _warn,
) -> CommitRecord | None:
    """Merge small files of `output` into larger ones, in one commit; return its record.

    If another job replaces files during the merge, the staged files are dropped and the merge is planned
    again, at most twice.

    Args:
        output: the output.
        stage: calls `rewrite` for each group.
        target_bytes: largest size of a merged file.
        min_files: least number of files to merge into one.
        report: takes each file that is left out, before the commit.

    Returns None if nothing is worth merging.

    Raises:
        NotSupported: the commits of the output have no schema, or its columns are unknown.
        Conflict: other jobs replaced files each time. Nothing was changed.

    It also raises the errors of `Output.commit`, `Output.snapshot` and `stage`. Readers of the log see
    the same rows in any case.
    """
    tries = 0
    while True:
        tries += 1
        snapshot = output.snapshot()
        groups = groups_of(snapshot.files, target_bytes=target_bytes, min_files=min_files)
        if not groups:
            return None
        if snapshot.schema is None:
            raise NotSupported(f"{output!r} has commits without schema: cannot rewrite its files")
        columns = OutputColumns.parse(snapshot.schema)
        columns.check_known()
        paths = [file.path for group in groups for file in group.files]
        job = output.begin(mode="rewrite", replaces=paths)
        files: list[StagedFile] = []
        try:
            with send_heartbeats(output, job.attempt, HEARTBEAT):
                done = stage(evolve(job, replaces=()), groups, columns.writable())
                files = [each.file for each in done if each.file is not None]
                job = evolve(job, replaces=tuple(path for each in done for path in each.paths))
                committed = output.commit(job, files) if files else None
            if not files:
                output.abort(job)
            for left in (left for each in done for left in each.left_out):
                report(left)
            return committed
        except Committed:
            raise
        except BaseException as error:
            record = output.abort(job, files)
            if not isinstance(error, Exception):
                raise
            if record is not None:
                return output.commit(job, files)  # it is committed: complete it
            # If files were replaced meanwhile, any error can follow from that: plan again.
            if tries == TRIES or set(paths) <= output.state().files.keys():
                raise


def rewrite(output: Output, job: Job, task: int, group: Group, schema: pa.Schema) -> Rewritten:
    """Stage one file with all rows of `group`, in order, in the same format and compression.

    Memory is bounded by one row group and the reader's buffers, whatever the size of the files. A file
    is left out if its own footer has a column that `schema` lacks or has with another type.

    Args:
        output: the output.
        job: the job.
        task: number of the file in the job.
        group: the files to read.
        schema: the columns that can be kept, partition columns included.

    Raises `CorruptRecord` if the number of rows of a file differs from its record, and the errors of
    reading and staging. After an error the upload is dropped.
    """
    [first, *_] = group.files
    kept = pa.schema([field for field in schema if field.name not in first.partition])
    known, compression = output_format_of(first.path), _compression(first.path)
    suffix = _bucket(first.path) + known.compressions[compression]
    name = directory_of(first.partition) + job.file_name(task, suffix=suffix)
    merged: list[str] = []
    left_out: list[LeftOut] = []
    with OutputUploads(output, job).open_file(name) as upload:
        writer = known.open_writer(upload, kept, compression)
        try:
            for file in group.files:
                try:
                    for batch in _rows(output, file, kept):
                        writer.write(batch)
                except _Unkeepable as error:
                    left_out.append(LeftOut(file.path, str(error)))
                else:
                    merged.append(file.path)
            if len(merged) < 2:
                writer.abandon()
                upload.abort()
                return Rewritten(None, left_out=tuple(left_out))
            writer.close()
        except BaseException:
            writer.abandon()
            raise
        staged = StagedFile(
            staged=upload.finish(), rows=writer.rows, partition=first.partition, stats=writer.statistics
        )
    return Rewritten(staged, tuple(merged), tuple(left_out))


class _Unkeepable(Exception):
    """A file has columns that a new file could not keep; raised before its first row."""


def _rows(output: Output, file: DataFile, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `file` with all columns of `schema`; columns added later are null."""
    count = 0
    try:
        for batch in read_files(locate_in(output), [file], schema, schema, Pruning(), whole=True):
            count += batch.num_rows
            yield batch
    except (OtherColumns, NotSupported) as error:
        if count:
            raise
        raise _Unkeepable(str(error)) from error
    if file.rows not in (None, count):
        raise CorruptRecord(
            f"{output.locate(file)!r} has {count} rows, but its commit record says {file.rows}: it is"
            " not the file that was committed. It was not changed"
        )


def _kind(file: DataFile) -> tuple[str, str, str] | None:
    try:
        return output_format_of(file.path).name, _compression(file.path), _bucket(file.path)
    except NotSupported:
        return None


def _bucket(path: str) -> str:
    """Return the part of the name of a file that tells Spark its bucket; "" if there is none.

    >>> _bucket("k=1/part-0-0_00002.c000.snappy.parquet"), _bucket("a_1/part-0.c000.parquet")
    ('_00002', '')
    """
    found = _BUCKET.fullmatch(path.rpartition("/")[2])
    return found[1] if found else ""


def _compression(path: str) -> str:
    """Return the compression that the suffix of `path` stands for.

    >>> _compression("part-0.c000.snappy.parquet"), _compression("part-0.parquet")
    ('snappy', 'none')
    """
    suffixes = output_format_of(path).compressions
    return max(
        (name for name in suffixes if path.endswith(suffixes[name])), key=lambda n: len(suffixes[n])
    )
