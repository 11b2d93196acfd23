"""Merging small files of an output into larger ones, wherever the work is done.

`merged` plans, has the files written, and commits; `rewrite` writes one of them, in a task of Spark's or
in any process. Neither needs a JVM.

Imports outputs and the formats, the schema and the signs of life next to it; pyarrow from outside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

import pyarrow as pa
from attrs import evolve

from commitlog.errors import CorruptRecord, NotSupported, PublishIncomplete
from commitlog.outputs import CommitRecord, DataFile, Job, Output, StagedFile
from commitlog.outputs.compaction import TARGET_BYTES, Group, plan
from commitlog.spark.alive import kept_alive
from commitlog.spark.formats import format_of
from commitlog.spark.partitions import directory_of
from commitlog.spark.schema import arrow_schema, load_schema, select, with_nulls

__all__ = ["Stage", "groups_of", "merged", "rewrite"]

#: Seconds between two signs of life while files are written.
HEARTBEAT = 60.0

#: How often is planned anew what another job has replaced meanwhile.
TRIES = 3

#: Stages what the groups become, a file each, given the job and the columns of the output.
Stage: TypeAlias = Callable[[Job, Sequence[Group], pa.Schema], list[StagedFile]]


def groups_of(
    files: Iterable[DataFile], *, target_bytes: int = TARGET_BYTES, min_files: int = 2
) -> tuple[Group, ...]:
    """Return what to merge of `files`, as `plan` does: files of one format and compression.

    Files of which the name tells no format are left alone.
    """
    return plan(files, kind=_kind, target_bytes=target_bytes, min_files=min_files)


def merged(
    output: Output, stage: Stage, *, target_bytes: int = TARGET_BYTES, min_files: int = 2
) -> CommitRecord | None:
    """Merge small files of `output` into larger ones, in one commit; return its record.

    If another job replaces files that are being merged, what was done is dropped and planned anew, twice
    at most.

    Args:
        output: the output.
        stage: has `rewrite` do its work for each group.
        target_bytes: most bytes of files that are merged into one.
        min_files: least number of them.

    Returns None if nothing is worth merging.

    Raises:
        NotSupported: the commits of the output tell no columns.
        Conflict: other jobs replaced files each time. Nothing was changed.

    And what `Output.commit`, `Output.snapshot` and `stage` raise. Readers of the log see the same rows
    in any case.
    """
    tries = 0
    while True:
        tries += 1
        snapshot = output.snapshot()
        groups = groups_of(snapshot.files, target_bytes=target_bytes, min_files=min_files)
        if not groups:
            return None
        if snapshot.schema is None:
            raise NotSupported(f"{output!r} tells no columns, which it takes to rewrite its files")
        schema = arrow_schema(load_schema(snapshot.schema))
        paths = [file.path for group in groups for file in group.files]
        job = output.begin(mode="rewrite", replaces=paths)
        files: list[StagedFile] = []
        try:
            with kept_alive(output, job.attempt, HEARTBEAT):
                files = stage(evolve(job, replaces=()), groups, schema)
                return output.commit(job, files)
        except PublishIncomplete:
            raise
        except BaseException as error:
            record = output.abort(job, files)
            if not isinstance(error, Exception):
                raise
            if record is not None:
                return output.commit(job, files)  # which only does what is left to do
            # Whatever it was that was raised: files that are gone are reason enough for it.
            if tries == TRIES or set(paths) <= output.state().files.keys():
                raise


def rewrite(output: Output, job: Job, task: int, group: Group, schema: pa.Schema) -> StagedFile:
    """Stage one file with all rows of `group`, in their order, and of the same kind.

    Memory is bounded by what a row group and a reader gather, however large the files are.

    Args:
        output: where.
        job: for which job.
        task: number of the file among those of the job.
        group: what to read.
        schema: the columns of the output, those in paths included.

    Raises `CorruptRecord` if a file has not the number of rows that its record tells, and what reading
    and staging raise; the upload is dropped then.
    """
    [first, *_] = group.files
    kept = pa.schema([field for field in schema if field.name not in first.partition])
    known, compression = format_of(first.path), _compression(first.path)
    name = directory_of(first.partition) + job.file_name(task, suffix=known.compressions[compression])
    with output.begin_stage(job, name) as upload:
        sink = known.open_sink(upload, kept, compression)
        try:
            for file in group.files:
                for batch in _rows(output, file, kept):
                    sink.write(batch)
            sink.close()
        except BaseException:
            sink.abandon()
            raise
        return StagedFile(
            staged=upload.finish(), rows=sink.rows, partition=first.partition, stats=sink.statistics
        )


def _rows(output: Output, file: DataFile, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `file` with all columns of `schema`: nulls for those that came later."""
    count = 0
    source = format_of(file.path).read(
        output.store, output.locate(file), file.size, schema, schema.names
    )
    for batch in source:
        count += batch.num_rows
        yield select(with_nulls(batch, schema), schema)
    if file.rows not in (None, count):
        raise CorruptRecord(
            f"{output.locate(file)!r} has {count} rows, and its commit record tells {file.rows}: it is"
            " not the file that was committed. It was left as it is"
        )


def _kind(file: DataFile) -> tuple[str, str] | None:
    try:
        return format_of(file.path).name, _compression(file.path)
    except NotSupported:
        return None


def _compression(path: str) -> str:
    """Return the compression that the suffix of `path` tells.

    >>> _compression("part-0.c000.snappy.parquet"), _compression("part-0.parquet")
    ('snappy', 'none')
    """
    suffixes = format_of(path).compressions
    return max(
        (name for name in suffixes if path.endswith(suffixes[name])), key=lambda n: len(suffixes[n])
    )
