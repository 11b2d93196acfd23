"""The Spark data source ``commitlog``: a job's output appears once and whole, or not at all.

Spark makes the writer in one process, runs the tasks in others, and commits or aborts in yet another.
What they share is what the writer pickles: the options and the `Job`. Each process opens the output
anew.

Imports outputs and the rest of this package; pyspark and pyarrow from outside.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from concurrent.futures import Executor

from attrs import evolve
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter
from pyspark.sql.types import StructType

from commitlog.errors import (
    AlreadyExists,
    ConfigurationError,
    JobAlreadyCommitted,
    NotFound,
    NotSupported,
)
from commitlog.outputs import Output, Snapshot, State
from commitlog.spark.formats import FORMATS
from commitlog.spark.options import ReadOptions, TailOptions, WriteOptions
from commitlog.spark.reader import CommitlogReader, check_asked
from commitlog.spark.schema import (
    arrow_schema,
    check_columns,
    dump_schema,
    load_schema,
    merge_schemas,
    nullable,
)
from commitlog.spark.stream import CommitlogStreamWriter
from commitlog.spark.tail import CommitlogTail
from commitlog.spark.task import check_files
from commitlog.spark.writer import CommitlogWriter, NothingToWrite

__all__ = ["CommitlogDataSource", "columns_of", "open_output"]

_CSV = tuple(FORMATS["csv"].compressions.values())


def open_output(options: ReadOptions, executor: Executor | None = None) -> Output:
    """Open the output that `options` name. Nothing is sent before it is used."""
    return Output(options.open(), executor=executor)


class CommitlogDataSource(DataSource):
    """The format ``commitlog``: write and read of committed files, in batches and streams.

    ``df.write.format("commitlog").mode("append").option("jobId", "daily-2026-11-21").save(url)``,
    ``spark.read.format("commitlog").load(url)``, and the same with ``writeStream`` and ``readStream``.
    Options and guarantees: ``docs/spark.md``.

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
        """Return the columns of the version to read. Raises `NotFound` if there is none."""
        options = ReadOptions.parse_any(self.options)
        return columns_of(self._pinned(options), options)

    def reader(self, schema: StructType) -> CommitlogReader:
        """Return the reader of the pinned version's columns `schema`."""
        options = ReadOptions.parse(self.options)
        snapshot = self._pinned(options)
        stored = columns_of(snapshot, options)
        check_asked(nullable(schema), stored)
        return CommitlogReader(type(self).open_output, options, snapshot.files, stored, schema)

    def streamReader(self, schema: StructType) -> CommitlogTail:
        """Return what follows the output; `schema` is that of the user, or what `schema` returned."""
        inferred = self._snapshot is not None
        if self._snapshot is not None:
            # Spark sends this object to the tasks of every batch, and they need no list of files.
            self._snapshot = evolve(self._snapshot, files=())
        options = TailOptions.parse(self.options)
        return CommitlogTail(type(self).open_output, options, schema, inferred=inferred)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return the writer of one job; everything that can be refused is refused here.

        Raises:
            NotSupported: columns that cannot be written.
            ConfigurationError: an option is wrong, or the output has other columns.
            AlreadyExists: there is data, and ``ifExists`` is ``error``.
            JobAlreadyCommitted: the job id is part of the output, and ``onDuplicate`` is ``error``.
        """
        options = WriteOptions.parse(self.options)
        mode = options.mode(overwrite)
        columns = self._writable(schema, options)
        output = self.open_output(options)
        with output.store:
            attempt = None if options.attempt is None else output.new_attempt(options.attempt)
            try:
                job = output.begin(
                    options.job_id,
                    mode=mode,
                    # Overwriting is free to change the columns; what is added has to go with the rest.
                    schema=lambda state: _fit(
                        State() if mode == "overwrite" else state, columns, options
                    ),
                    visibility=options.visibility,
                    attempt=attempt,
                )
            except JobAlreadyCommitted:
                if options.on_duplicate == "skip":
                    return NothingToWrite()
                raise
            except AlreadyExists:
                if options.if_exists == "ignore":
                    return NothingToWrite()
                raise
        return CommitlogWriter(type(self).open_output, options, job, columns)

    def streamWriter(self, schema: StructType, overwrite: bool) -> CommitlogStreamWriter:
        """Return the writer of a micro-batch of a streaming query.

        Raises as `writer`, and `NotSupported` for output modes other than ``append``.
        """
        options = WriteOptions.parse(self.options)
        if overwrite:
            raise NotSupported(
                "output mode 'complete' would replace everything with each batch: use 'append'"
            )
        if options.job_id is not None or options.if_exists != "append" or options.dynamic:
            raise ConfigurationError(
                "options jobId, ifExists and partitionOverwriteMode are of batch queries: each batch of"
                " a stream is a job by itself, and appends"
            )
        columns = self._writable(schema, options)
        output = self.open_output(options)
        with output.store:
            state = output.state()
        return CommitlogStreamWriter(
            type(self).open_output,
            evolve(options, visibility=options.visibility or state.visibility),
            columns,
            schema=_fit(state, columns, options),
            base=state.version,
        )

    @staticmethod
    def _writable(schema: StructType, options: WriteOptions) -> StructType:
        check_columns(schema)
        columns = nullable(schema)
        check_files(arrow_schema(columns), options)
        return columns

    def _pinned(self, options: ReadOptions) -> Snapshot:
        # Spark keeps this object from load() on, so all actions on a DataFrame see one version.
        if self._snapshot is None:
            output = self.open_output(options)
            with output.store:
                self._snapshot = output.snapshot(options.version, roll_forward=options.roll_forward)
        return self._snapshot


def columns_of(snapshot: Snapshot, options: ReadOptions) -> StructType:
    """Return the columns of a version; raise `NotFound` if there is nothing to read."""
    if snapshot.schema is None:
        what = "its commits tell no schema" if snapshot.version else "nothing has been committed to it"
        raise NotFound(f"no output to read at {options.url}: {what}")
    return load_schema(snapshot.schema)


def _fit(state: State, columns: StructType, options: WriteOptions) -> str:
    """Return the schema that the output has with rows of `columns`; raise if they do not fit."""
    partition = next((tuple(file.partition) for file in state.files.values()), None)
    if partition is not None and partition != options.partition_by:
        raise ConfigurationError(
            f"the output is partitioned by {', '.join(partition) or 'nothing'}:"
            " give option partitionBy accordingly"
        )
    if state.schema is None:
        return dump_schema(columns)
    there = load_schema(state.schema)
    merged = merge_schemas(there, columns)
    same = {field.name for field in columns} == {field.name for field in there}
    if merged is None or not (same or options.merge_schema):
        raise ConfigurationError(
            f"the output has the columns {there.simpleString()}, the rows to append"
            f" {columns.simpleString()}: they must be the same, in any order"
            + ("" if merged is None else "; option mergeSchema=true lets some be added or lack")
        )
    if options.file_format == "csv" and there.names != columns.names:
        raise ConfigurationError(
            "CSV files know their columns by their order: select those of the rows to append in the"
            f" output's, {', '.join(there.names)}"
        )
    if merged != there and any(path.endswith(_CSV) for path in state.files):
        raise ConfigurationError(
            "the output has CSV files, which know their columns by their order: none can be added"
        )
    # The same text for the same columns, so that jobs which run side by side do not stop each other.
    return state.schema if merged == there else dump_schema(merged)
