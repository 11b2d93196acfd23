"""The Spark data source ``commitlog``: a job's output appears once and whole, or not at all.

Spark makes the writer in one process, runs the tasks in others, and commits or aborts in yet another.
What they share is what the writer pickles: the options and the `Job`. Each process opens the output
anew.

Imports outputs and the rest of this package; pyspark and pyarrow from outside.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import cast

import pyarrow as pa
from attrs import frozen
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from commitlog.errors import ConfigurationError, NotFound, NotSupported
from commitlog.outputs import CommitRecord, DataFile, Job, Output, Snapshot, StagedFile
from commitlog.spark.formats import format_of
from commitlog.spark.options import ReadOptions, WriteOptions
from commitlog.spark.partitions import column_of
from commitlog.spark.schema import (
    arrow_schema,
    check_columns,
    dump_schema,
    load_schema,
    nullable,
    select,
)
from commitlog.spark.task import TaskFiles, check_files

__all__ = ["CommitlogDataSource", "CommitlogReader", "CommitlogWriter", "open_output"]

#: Files are read together up to the first size, each counting as the second at least: that is a few
#: seconds' work for a task. A larger file is a partition of its own.
PARTITION_BYTES = 32 * 1024 * 1024
FILE_BYTES = 1024 * 1024

#: Requests that a driver has under way when it publishes or drops uploads.
PUBLISHERS = 16


def open_output(options: ReadOptions, executor: Executor | None = None) -> Output:
    """Open the output that `options` name. Nothing is sent before it is used."""
    return Output(options.open(), executor=executor)


class CommitlogDataSource(DataSource):
    """The format ``commitlog``: batch write and read of committed files.

    ``df.write.format("commitlog").mode("append").option("jobId", "daily-2026-11-21").save(url)`` and
    ``spark.read.format("commitlog").load(url)``. Options and guarantees: ``docs/spark.md``.

    A DataFrame that was loaded without a schema of the user's keeps reading the version that was the
    last one at that moment.
    """

    #: How every process opens the output; a subclass may wrap what it returns.
    open_output = staticmethod(open_output)

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._snapshot: Snapshot | None = None

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "commitlog"

    def schema(self) -> StructType:
        """Return the columns of the last committed version. Raises `NotFound` if there is none."""
        return _columns(self._pinned(), self.options)

    def reader(self, schema: StructType) -> CommitlogReader:
        """Return the reader of the pinned version's columns `schema`."""
        snapshot = self._pinned()
        stored = _columns(snapshot, self.options)
        columns = {field.name: field.dataType for field in stored}
        for field in nullable(schema):
            if columns.get(field.name) != field.dataType:
                there = ", ".join(f"{name} {kind.simpleString()}" for name, kind in columns.items())
                raise ConfigurationError(
                    f"the output has no {field.name} {field.dataType.simpleString()}; it has {there}"
                )
        options = ReadOptions.parse(self.options)
        return CommitlogReader(type(self), options, snapshot.files, stored, schema)

    def writer(self, schema: StructType, overwrite: bool) -> CommitlogWriter:
        """Return the writer of one job; everything that can be refused is refused here.

        Raises:
            NotSupported: mode ``overwrite``, or columns that cannot be written.
            ConfigurationError: an option is wrong, or the output has other columns.
            AlreadyExists: there is data, and ``ifExists`` is ``error``.
            JobAlreadyCommitted: the job id is part of the output.
        """
        options = WriteOptions.parse(self.options)
        if overwrite:
            raise NotSupported(
                "mode 'overwrite' is not in this version: use mode 'append', to a new URL if what is"
                " there is to be replaced. Nothing was changed"
            )
        check_columns(schema)
        columns = nullable(schema)
        check_files(arrow_schema(columns), options)
        output = self.open_output(options)
        with output.store:
            job = output.begin(options.job_id, mode=options.if_exists, schema=dump_schema(columns))
            _check_fit(output, job, columns, options)
        return CommitlogWriter(type(self), options, job, columns)

    def _pinned(self) -> Snapshot:
        # Spark keeps this object from load() on, so all actions on a DataFrame see one version.
        if self._snapshot is None:
            options = ReadOptions.parse(self.options)
            output = self.open_output(options)
            with output.store:
                self._snapshot = output.snapshot(roll_forward=options.roll_forward)
        return self._snapshot


class CommitlogReader(DataSourceReader):
    """Reads the files of one version. Never lists."""

    def __init__(
        self,
        source: type[CommitlogDataSource],
        options: ReadOptions,
        files: Sequence[DataFile],
        stored: StructType,
        schema: StructType,
    ) -> None:
        self._source = source
        self._options = options
        self._files = files
        self._stored = arrow_schema(stored)
        self._schema = arrow_schema(schema)

    def partitions(self) -> list[InputPartition]:
        """Return partitions of whole files, in their order, so that each is worth a task."""
        packed: list[list[DataFile]] = []
        filled = PARTITION_BYTES
        for file in self._files:
            cost = max(file.size, FILE_BYTES)
            if filled + cost > PARTITION_BYTES:
                packed.append([])
                filled = 0
            packed[-1].append(file)
            filled += cost
        return [InputPartition(files) for files in packed]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the files of `partition`."""
        output = self._source.open_output(self._options)
        names = set(self._schema.names)
        with output.store:
            # Spark makes a partition of None where there is none.
            for file in partition.value or ():
                stored = pa.schema([field for field in self._stored if field.name not in file.partition])
                known, path = format_of(file.path), output.locate(file)
                for batch in known.read(output.store, path, file.size, stored, names):
                    yield _complete(batch, file, self._schema)


@frozen
class TaskCommitted(WriterCommitMessage):
    """What a task tells the driver: the files that it staged."""

    files: tuple[StagedFile, ...]


class CommitlogWriter(DataSourceArrowWriter):
    """Writes one job. It is pickled to every process that takes part, and opens the output there."""

    def __init__(
        self, source: type[CommitlogDataSource], options: WriteOptions, job: Job, columns: StructType
    ) -> None:
        self._source = source
        self._options = options
        self._job = job
        self._columns = columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommitted:
        """Stage the rows of one task attempt; if it fails, nothing of it stays behind.

        An attempt that is killed, or that Spark drops for another one, leaves uploads that nobody ever
        sees and that ``recover`` drops.
        """
        schema = arrow_schema(self._columns)
        context = TaskContext.get()
        assert context is not None
        output = self._source.open_output(self._options)
        files = TaskFiles(output, self._job, context.partitionId(), schema, self._options)
        with output.store, files:
            for batch in iterator:
                files.write(select(batch, schema))
            return TaskCommitted(files.finish())

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the files of the winning attempts; see `Output.commit`."""
        with ThreadPoolExecutor(PUBLISHERS) as executor:
            output = self._source.open_output(self._options, executor)
            with output.store:
                # Every task has a message here. Were one skipped, its rows would be missing.
                output.commit(self._job, _files(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Abort the job, unless it was committed: Spark also calls this when `commit` has raised."""
        with ThreadPoolExecutor(PUBLISHERS) as executor:
            output = self._source.open_output(self._options, executor)
            with output.store:
                output.abort(self._job, _files(m for m in messages if m is not None))


def _files(messages: Iterable[WriterCommitMessage | None]) -> list[StagedFile]:
    return [file for message in messages for file in cast(TaskCommitted, message).files]


def _columns(snapshot: Snapshot, options: Mapping[str, str]) -> StructType:
    if snapshot.schema is None:
        what = "its commits tell no schema" if snapshot.version else "nothing has been committed to it"
        raise NotFound(f"no output to read at {options.get('path')}: {what}")
    return load_schema(snapshot.schema)


def _check_fit(output: Output, job: Job, columns: StructType, options: WriteOptions) -> None:
    # Every job before was checked as well, so the last one that tells speaks for all.
    schema: str | None = None
    partition: tuple[str, ...] | None = None
    for version in range(job.base, 0, -1):
        record = next(output.records(after=version - 1))
        if isinstance(record, CommitRecord):
            schema = record.schema if schema is None else schema
            if record.files and partition is None:
                partition = tuple(record.files[0].partition)
            if schema is not None and partition is not None:
                break
    if schema is not None:
        there = load_schema(schema)
        if {field.name: field.dataType for field in there} != {f.name: f.dataType for f in columns}:
            raise ConfigurationError(
                f"the output has the columns {there.simpleString()}, the rows to append"
                f" {columns.simpleString()}: they must be the same, in any order"
            )
        if options.file_format == "csv" and there.names != columns.names:
            raise ConfigurationError(
                "CSV files know their columns by their order: select those of the rows to append in the"
                f" output's, {', '.join(there.names)}"
            )
    if partition is not None and partition != options.partition_by:
        raise ConfigurationError(
            f"the output is partitioned by {', '.join(partition) or 'nothing'}:"
            " give option partitionBy accordingly"
        )


def _complete(batch: pa.RecordBatch, file: DataFile, schema: pa.Schema) -> pa.RecordBatch:
    for field in schema:
        if field.name not in batch.schema.names:
            batch = batch.append_column(field, column_of(file.partition, field, batch.num_rows))
    return select(batch, schema)
