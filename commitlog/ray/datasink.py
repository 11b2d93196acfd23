"""`CommitlogDatasink`: tasks of Ray Data stage blocks, and the driver commits all of them at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain
from typing import Any

import pyarrow as pa
from ray.data import Dataset
from ray.data.block import Block, BlockAccessor
from ray.data.datasource import Datasink, WriteResult

from commitlog.errors import ConfigurationError, NotSupported
from commitlog.outputs import CommitRecord, Mode, StagedFile, Visibility
from commitlog.tabular import (
    OnDuplicate,
    OutputWriter,
    TabularJob,
    check_heartbeat,
    override_types,
)

__all__ = ["CommitlogDatasink", "write_commitlog"]

#: Bytes of rows that Ray Data collects for a task, and so for a file; as for a file of Spark.
TASK_BYTES = 128 * 1024 * 1024

_Files = tuple[StagedFile, ...]


class CommitlogDatasink(Datasink[_Files]):
    """A destination of `Dataset.write_datasink`: the output at a URL, written all or nothing.

    ::

        sink = CommitlogDatasink("s3://bucket/out", job_id="daily-2026-11-21")
        ds.write_datasink(sink)
        sink.record.version

    A task stages its rows as invisible files. A task that Ray runs again, since its worker died, stages
    files of its own. The commit takes the files of the runs whose results Ray keeps, and drops others.
    Use one datasink for one write. Pickled to the tasks; not thread-safe.

    Args:
        url: URL of the output, or a local directory that all workers share.
        mode: ``append``; ``error``: fail if there is data; ``overwrite``: replace everything;
            ``overwrite-partitions``: replace the partitions that have rows in the dataset.
        job_id: id of the job, which is committed at most once; None: a new job.
        on_duplicate: ``error``, or ``skip`` to write nothing, if the job was committed before.
        partition_by: the partition columns, which become directories.
        schema: Arrow types of columns, by name, in place of those of the dataset's first block.
        merge_schema: whether the rows may have other columns than the output, and lack some.
        compression: ``snappy``, ``zstd``, ``gzip``, ``lz4_raw`` or ``none``.
        visibility: ``listed`` or ``logged``, see `Output.begin`; None: as before, or ``listed``.
        storage_options: further arguments of `commitlog.connect`, such as ``table`` and
            ``endpoint_url``. Workers get them with their tasks: leave credentials to their environment.
        heartbeat: seconds between two heartbeats of the job, see `Output.heartbeat`.

    Attributes:
        record: the commit record after the write, or, with ``skip``, of the earlier write; else None.

    Raises `ConfigurationError` if an argument is wrong. `Dataset.write_datasink` raises the errors of
    `commitlog.dask.to_commitlog`, which leave the same state; Ray wraps those of a task.
    """

    def __init__(
        self,
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
    ) -> None:
        check_heartbeat(heartbeat)
        self._writer = OutputWriter.create(
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
        self._types = dict(schema or {})
        self._heartbeat = heartbeat
        self._begun: TabularJob | None = None
        self._supervision = ExitStack()
        self.record: CommitRecord | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a task, which has no part in the supervision of the job."""
        return {**self.__dict__, "_supervision": ExitStack()}

    @property
    def min_bytes_per_write(self) -> int:
        """The size of a task's rows.

        With a size, Ray does not fuse the write with the step before it. If it did, `on_write_start`
        would get the columns of that step's input (Ray 2.60, operator_fusion.py).
        """
        return TASK_BYTES

    def committed(self) -> CommitRecord | None:
        """Return the commit of this job by an earlier write, or None. Sends requests."""
        return self._writer.committed()

    def on_write_start(self, schema: pa.Schema | None = None) -> None:
        """Begin the job, on the driver, before the first task.

        Raises `ConfigurationError` for a second write, after one that was committed.
        """
        if self.record is not None:
            raise _used()
        begun = self._writer.begin_or_find(self._columns(schema))
        if isinstance(begun, CommitRecord):
            self.record = begun
            return
        self._begun = begun
        self._supervision.enter_context(self._writer.supervise(begun, self._heartbeat))

    def write(self, blocks: Iterable[Block], ctx: Any) -> _Files:
        """Stage the rows of a task; nothing if the job was committed before."""
        if self.record is not None:
            return ()
        if self._begun is None:
            raise _used()
        return self._writer.stage(self._begun, ctx.task_idx, _batches(blocks))

    def on_write_complete(self, write_result: WriteResult[_Files]) -> None:
        """Commit the files of all tasks, on the driver."""
        if self.record is not None:
            return
        if self._begun is None:  # there was no block
            self._begun = self._writer.begin(None)
        self.record = self._writer.commit(self._begun, chain.from_iterable(write_result.write_returns))
        self._supervision.close()

    def on_write_failed(self, error: Exception) -> None:
        """Exclude the attempt and drop its files, on the driver, unless it is committed."""
        self._stop(error)

    def _stop(self, error: BaseException) -> None:
        """End the supervision with an error: it aborts the job, and sends no more heartbeats."""
        self._supervision.__exit__(type(error), error, error.__traceback__)

    def _columns(self, schema: Any) -> pa.Schema | None:
        """Return the columns of the rows; None if nothing is known of them, as of an empty dataset."""
        if schema is None:
            return pa.schema(list(self._types.items())) if self._types else None
        if not isinstance(schema, pa.Schema):
            types = map(_of_pandas, schema.types)
            schema = pa.schema(list(zip(schema.names, types, strict=True)))
        return override_types(schema, self._types)


def write_commitlog(ds: Dataset, url: str, **arguments: Any) -> CommitRecord:
    """Write `ds` to the output at `url`, all or nothing; return its commit record.

    With ``on_duplicate="skip"``, the dataset is not computed if its job was committed before.

    Args:
        ds: the rows.
        url: URL of the output, or a local directory that all workers share.
        arguments: those of `CommitlogDatasink`.

    Raises as `CommitlogDatasink` says.
    """
    sink = CommitlogDatasink(url, **arguments)
    if arguments.get("on_duplicate") == "skip" and (record := sink.committed()) is not None:
        return record
    try:
        ds.write_datasink(sink)
    except BaseException as error:
        sink._stop(error)  # Ray calls `on_write_failed` for an `Exception`, but not for an interrupt
        raise
    assert sink.record is not None
    return sink.record


def _batches(blocks: Iterable[Block]) -> Iterator[pa.RecordBatch]:
    for block in blocks:
        try:
            table = BlockAccessor.for_block(block).to_arrow()
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise NotSupported(f"rows cannot be written: {error}") from error
        if table.num_rows:
            yield from table.combine_chunks().to_batches()


def _used() -> ConfigurationError:
    return ConfigurationError("a datasink is for one write: make another one")


def _of_pandas(kind: Any) -> pa.DataType:
    """Return the Arrow type of a dtype of pandas; null for Python objects."""
    import pandas as pd

    return pa.Array.from_pandas(pd.Series([], dtype=kind)).type
