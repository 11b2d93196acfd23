"""`to_commitlog`: each partition of a Dask DataFrame is staged by a worker, and one call commits all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import pandas as pd
import pyarrow as pa
from dask.base import compute as compute_all
from dask.dataframe import DataFrame
from dask.delayed import Delayed, delayed

from commitlog.errors import ConfigurationError, NotSupported
from commitlog.outputs import CommitRecord, Mode, StagedFile, Visibility
from commitlog.tabular import (
    OnDuplicate,
    OutputWriter,
    TabularJob,
    check_heartbeat,
    override_types,
)

__all__ = ["to_commitlog"]


def to_commitlog(
    ddf: DataFrame,
    url: str,
    *,
    mode: Mode = "append",
    job_id: str | None = None,
    on_duplicate: OnDuplicate = "error",
    partition_by: Sequence[str] | str = (),
    schema: Mapping[str, pa.DataType] | None = None,
    merge_schema: bool = False,
    compression: str = "snappy",
    visibility: Visibility | None = None,
    storage_options: Mapping[str, Any] | None = None,
    heartbeat: float = 60.0,
    compute: bool = True,
    compute_kwargs: Mapping[str, Any] | None = None,
) -> CommitRecord | Delayed:
    """Write the rows of `ddf` to the output at `url` as Parquet files, all or nothing.

    A worker stages the files of a partition, which no reader sees; then one call commits those of all
    partitions. A partition that a worker computes again, or two at a time, stages its files again. Only
    the files of the run whose result Dask keeps are committed, and the commit drops the others.

    Args:
        ddf: the rows. An index with a name becomes a column; an index without a name is not written.
        url: URL of the output, or a local directory that all workers share.
        mode: ``append``; ``error``: fail if there is data; ``overwrite``: replace everything;
            ``overwrite-partitions``: replace the partitions that have rows in `ddf`.
        job_id: id of the job, which is committed at most once; None: a new job.
        on_duplicate: ``error``, or ``skip`` to return the existing commit, if the job was committed
            before.
        partition_by: the partition columns, which become directories.
        schema: Arrow types of columns, by name. Needed for columns of Python objects, whose type Dask
            does not know.
        merge_schema: whether the rows may have other columns than the output, and lack some.
        compression: ``snappy``, ``zstd``, ``gzip``, ``lz4_raw`` or ``none``.
        visibility: ``listed`` or ``logged``, see `Output.begin`; None: as before, or ``listed``.
        storage_options: further arguments of `commitlog.connect`, such as ``table`` and
            ``endpoint_url``. Workers get them with their tasks: leave credentials to their environment.
        heartbeat: seconds between two heartbeats of the job during the call, see `Output.heartbeat`.
        compute: whether to write now. False: return a `Delayed` that writes when it is computed.
        compute_kwargs: arguments of `dask.compute`, such as ``scheduler`` or ``retries``.

    Returns the commit record; with ``compute=False``, a `Delayed` that computes it. That one begins and
    commits the job in tasks. Computed again, it returns the same record; without `job_id`, as long as
    one of its files is in the output, or fewer than 1,000 attempts of others were decided since. It
    sends no heartbeats, and if a task fails, `Output.recover` drops its files.

    Raises:
        ConfigurationError: an argument is wrong, or the rows do not fit the output.
        NotSupported: an output cannot hold a column or a value.
        JobAlreadyCommitted: the job was committed before. Its rows are there once.
        AlreadyExists: there is data, and `mode` is ``error``.
        JobAborted: a recovery has aborted the job, or the outcome of its commit was unknown and it is
            excluded now. Run it again.
        PublishIncomplete: the job **is** committed; `Output.recover` completes it.
        OutcomeUnknown: the job may be committed or not. Run it again under the same job id.

    After any error but the last two, nothing was added. The error of a task is raised unchanged.
    Thread-safe.
    """
    if not isinstance(ddf, DataFrame):
        raise ConfigurationError(f"a Dask DataFrame is needed, not a {type(ddf).__name__}")
    check_heartbeat(heartbeat)
    writer = OutputWriter.create(
        url,
        connection=storage_options,
        compression=compression,
        partition_by=partition_by,
        job_id=job_id,
        mode=mode,
        on_duplicate=on_duplicate,
        visibility=visibility,
        merge_schema=merge_schema,
    )
    if ddf._meta.index.name is not None:
        ddf = ddf.reset_index()
    rows = _schema_of(ddf._meta, schema or {})
    if not compute:
        begun = delayed(writer.begin_or_find, pure=False)(rows)
        return delayed(_commit, pure=False)(writer, begun, _staged(ddf, writer, begun))
    begun = writer.begin_or_find(rows)
    if isinstance(begun, CommitRecord):
        return begun
    with writer.supervise(begun, heartbeat):
        files = compute_all(*_staged(ddf, writer, begun), **(compute_kwargs or {}))
        return writer.commit(begun, chain.from_iterable(files))


def _staged(ddf: DataFrame, writer: OutputWriter, begun: Any) -> list[Delayed]:
    """Return the tasks that stage the partitions of `ddf`."""
    stage = delayed(_stage, pure=False)
    return [stage(writer, begun, task, rows) for task, rows in enumerate(ddf.to_delayed())]


def _stage(
    writer: OutputWriter, begun: TabularJob | CommitRecord, task: int, rows: pd.DataFrame
) -> tuple[StagedFile, ...]:
    """Stage the rows of one partition; nothing if the job is committed."""
    return () if isinstance(begun, CommitRecord) else writer.stage(begun, task, _batches(rows, begun))


def _commit(
    writer: OutputWriter,
    begun: TabularJob | CommitRecord,
    files: Iterable[tuple[StagedFile, ...]],
) -> CommitRecord:
    if isinstance(begun, CommitRecord):
        return begun
    return writer.commit(begun, chain.from_iterable(files))


def _batches(rows: pd.DataFrame, begun: TabularJob) -> Iterator[pa.RecordBatch]:
    try:
        table = pa.Table.from_pandas(rows, preserve_index=False)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise NotSupported(f"rows cannot be written: {error}") from error
    yield from table.combine_chunks().to_batches()


def _schema_of(meta: pd.DataFrame, types: Mapping[str, pa.DataType]) -> pa.Schema:
    """Return the columns of a frame by its dtypes, or by `types`, which go before them."""
    for name in meta.columns:
        if not isinstance(name, str):
            raise ConfigurationError(f"column {name!r} has no text as its name: rename it")
    return override_types(pa.Schema.from_pandas(meta, preserve_index=False), types)
