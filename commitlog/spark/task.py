"""The files that one task attempt stages: one, or one for each partition of the output."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType

import pyarrow as pa
from attrs import frozen

from commitlog.outputs import Job, Output, StagedFile
from commitlog.spark.options import WriteOptions
from commitlog.spark.parquet import COMPRESSIONS, ROW_GROUP_BYTES, ParquetSink
from commitlog.spark.partitions import directory_of, partition_of, split_batch
from commitlog.stores import Staged, StageWriter

__all__ = ["TaskFiles"]


@frozen
class _OpenFile:
    upload: StageWriter
    parquet: ParquetSink
    partition: Mapping[str, str | None]


class TaskFiles:
    """A context manager that drops every upload unless `finish` returned. Not thread-safe.

    If an upload cannot be dropped, the others are all the same, and the error of the block stays what
    it is; a note of it tells.

    Args:
        output: where to stage.
        job: for which job.
        task: number of the task; two attempts at one task may run at the same time.
        schema: of the rows.
        options: the codec and the partition columns.
    """

    def __init__(
        self, output: Output, job: Job, task: int, schema: pa.Schema, options: WriteOptions
    ) -> None:
        self._output = output
        self._job = job
        self._task = task
        self._partition_by = options.partition_by
        self._compression = options.compression
        kept = [field for field in schema if field.name not in options.partition_by]
        self._schema = pa.schema(kept)
        self._open: dict[tuple[object, ...], _OpenFile] = {}
        self._staged: list[Staged] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Append the rows of `batch` to the files that they belong to."""
        if not batch.num_rows:
            return
        if not self._partition_by:
            self._file(()).parquet.write(batch)
            return
        for values, rows in split_batch(batch, self._partition_by):
            self._file(values).parquet.write(rows)
        # What all files gather together is bounded as it is for a single one.
        files = sorted((file.parquet for file in self._open.values()), key=lambda f: f.gathered_bytes)
        excess = sum(file.gathered_bytes for file in files) - ROW_GROUP_BYTES
        while excess > 0:
            largest = files.pop()
            excess -= largest.gathered_bytes
            largest.flush()

    def finish(self) -> tuple[StagedFile, ...]:
        """Complete all files; return them, still invisible. A task without rows has none."""
        for file in self._open.values():
            file.parquet.close()
            self._staged.append(file.upload.finish())
        files = tuple(
            StagedFile(staged=staged, rows=file.parquet.rows, partition=file.partition)
            for staged, file in zip(self._staged, self._open.values(), strict=True)
        )
        self._open, self._staged = {}, []
        return files

    def __enter__(self) -> TaskFiles:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        steps: list[Callable[[], None]] = []
        for file in self._open.values():
            steps += file.parquet.abandon, file.upload.abort
        for staged in self._staged:
            steps.append(partial(self._output.store.store.abort, staged))
        failures = []
        for step in steps:
            try:
                step()
            except Exception as failure:
                failures.append(failure)
        if not failures:
            return
        # What stays behind is invisible, and `recover` finds it; what failed first is what matters.
        if error is None:
            raise failures[0]
        error.add_note(f"Besides, not all uploads of the task could be dropped: {failures[0]}")

    def _file(self, values: tuple[object, ...]) -> _OpenFile:
        file = self._open.get(values)
        if file is None:
            partition = partition_of(self._partition_by, values)
            suffix = f"{COMPRESSIONS[self._compression]}.parquet"
            name = self._job.file_name(self._task, len(self._open), suffix)
            upload = self._output.begin_stage(self._job, directory_of(partition) + name)
            parquet = ParquetSink(upload, self._schema, compression=self._compression)
            file = self._open[values] = _OpenFile(upload, parquet, partition)
        return file
