"""Spark data source ``commitlog``: the output of a job appears once and atomically.

Spark creates the writer in one process, runs the tasks in others, and commits or aborts in yet another.
These processes share only the pickled writer: the options and the `Job`. Each process opens the output
itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, MutableMapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from attrs import evolve
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceStreamArrowWriter
from pyspark.sql.types import StructType

from commitlog._util.concurrency import Executor
from commitlog.errors import (
    AlreadyExists,
    ConfigurationError,
    JobAlreadyCommitted,
    NotFound,
    NotSupported,
)
from commitlog.outputs import Output, Snapshot, State
from commitlog.outputs.foreign import partition_in
from commitlog.spark.options import ReadOptions, TailOptions, WriteOptions, is_namespace
from commitlog.spark.partitions import check_spelling
from commitlog.spark.pruning import parse_filters
from commitlog.spark.reader import CommitlogReader, check_asked, content_of_output
from commitlog.spark.schema import arrow_schema, load_schema, nullable
from commitlog.spark.schema_check import check_schema
from commitlog.spark.streaming import CommitlogStreamWriter
from commitlog.spark.tail import CommitlogTail
from commitlog.spark.tasks import writable
from commitlog.spark.writer import CommitlogWriter, NothingToWrite

if TYPE_CHECKING:
    from commitlog.namespace import Namespace
    from commitlog.spark.namespaces.options import NamespaceOptions
    from commitlog.spark.namespaces.source import NamespaceSource

__all__ = ["CommitlogDataSource", "columns_of", "open_output", "warn_of_foreign"]

_log = logging.getLogger(__name__)


def open_output(options: ReadOptions, executor: Executor | None = None) -> Output:
    """Open the output that `options` name. The first request is sent on its first use."""
    return Output(options.open(), executor=executor)


class CommitlogDataSource(DataSource):
    """The format ``commitlog``: writes and reads committed files, in batches and streams.

    ``df.write.format("commitlog").mode("append").option("jobId", "daily-2026-11-21").save(url)``,
    ``spark.read.format("commitlog").load(url)``, and the same with ``writeStream`` and ``readStream``.
    Options and guarantees: ``docs/spark.md``.

    A DataFrame that is loaded without a user's schema keeps reading the version that was the last one
    when it was loaded.
    """

    #: Opens the output in every process; a subclass may wrap the result.
    open_output = staticmethod(open_output)
    #: Opens the namespace on the driver, if the URL is in one; None: use the options.
    mount: Callable[[NamespaceOptions], Namespace] | None = None

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._snapshot: Snapshot | None = None
        self._lake: NamespaceSource | None = None
        if is_namespace(self.options.get("path", "")):
            # Import here: each of Spark's processes imports this module, and few need namespaces.
            from commitlog.spark.namespaces.source import NamespaceSource, namespace_of

            self._lake = NamespaceSource(self.options, type(self).mount or namespace_of)

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "commitlog"

    def schema(self) -> StructType:
        """Return the columns of the version to read. Raises `NotFound` if there is no version."""
        if self._lake is not None:
            return self._lake.schema()
        options = ReadOptions.parse_any(self.options)
        return columns_of(self._pinned(options), options)

    def reader(self, schema: StructType) -> CommitlogReader:
        """Return the reader of the columns `schema` of the pinned version."""
        if self._lake is not None:
            return self._lake.reader(schema)
        options = ReadOptions.parse(self.options)
        snapshot = self._pinned(options)
        stored = columns_of(snapshot, options)
        check_asked(nullable(schema), stored)
        content = partial(content_of_output, type(self).open_output, options)
        pruning = parse_filters(options.filters, stored)
        return CommitlogReader(content, snapshot.files, stored, schema, pruning)

    def streamReader(self, schema: StructType) -> CommitlogTail:
        """Return the streaming reader; `schema` is the user's schema, or the result of `schema()`."""
        if self._lake is not None:
            raise NotSupported(
                "a directory of a namespace cannot be read as a stream: read an output in its own store"
            )
        inferred = self._snapshot is not None
        if self._snapshot is not None:
            # Spark sends this object to the tasks of every batch, which do not need the list of files.
            self._snapshot = evolve(self._snapshot, files=())
        options = TailOptions.parse(self.options)
        return CommitlogTail(type(self).open_output, options, schema, inferred=inferred)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return the writer of one job; check everything that can be checked before the job runs.

        Raises:
            NotSupported: columns cannot be written.
            ConfigurationError: an option is wrong, or the output has other columns.
            AlreadyExists: there is data, and ``ifExists`` is ``error``.
            JobAlreadyCommitted: the job was committed before, and ``onDuplicate`` is ``error``.
        """
        if self._lake is not None:
            return self._lake.writer(schema, overwrite)
        options = WriteOptions.parse(self.options)
        mode = options.mode(overwrite)
        columns = writable(schema, options)
        output = self.open_output(options)
        with output.store:
            attempt = None if options.attempt is None else output.new_attempt(options.attempt)
            try:
                job = output.begin(
                    options.job_id,
                    mode=mode,
                    # An overwrite may change the columns; appended rows must fit the others.
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
            # `write` has already warned, where the user sees it.
            if mode == "append" and options.attempt is None and not job.last_commit:
                warn_of_foreign(output)
            if mode == "overwrite-partitions":
                _check_spellings(output, columns, options.partition_by)
        return CommitlogWriter(type(self).open_output, options, job, columns)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """Return the writer of a micro-batch of a streaming query.

        Raises the errors of `writer`, and `NotSupported` for output modes other than ``append``.
        """
        if self._lake is not None:
            return self._lake.stream_writer(schema, overwrite)
        options = WriteOptions.parse(self.options)
        if overwrite:
            raise NotSupported(
                "output mode 'complete' would replace everything with each batch: use 'append'"
            )
        if options.job_id is not None or options.if_exists != "append" or options.dynamic:
            raise ConfigurationError(
                "options jobId, ifExists and partitionOverwriteMode apply to batch queries only: each"
                " batch of a stream is a job of its own that appends"
            )
        columns = writable(schema, options)
        output = self.open_output(options)
        with output.store:
            state = output.state()
            if not state.commit:
                warn_of_foreign(output)
        return CommitlogStreamWriter(
            type(self).open_output,
            evolve(options, visibility=options.visibility or state.visibility),
            columns,
            schema=_fit(state, columns, options),
            base=state.version,
        )

    def _pinned(self, options: ReadOptions) -> Snapshot:
        # Spark keeps this object from load() on, so all actions on a DataFrame see one version.
        if self._snapshot is None:
            output = self.open_output(options)
            with output.store:
                self._snapshot = output.snapshot(options.version, roll_forward=options.roll_forward)
        return self._snapshot


def warn_of_foreign(output: Output) -> None:
    """Log a warning if there are foreign files. Call it for an output without commits."""
    file = next(output.foreign(), None)
    if file is not None:
        _log.warning(
            "%r has files that were written without it, such as %r. They stay where they are: readers"
            " that list the directory see them together with the new files, readers of the log do not."
            " To include their rows, write them with mode 'overwrite', or write all rows to another"
            " directory",
            output,
            file.path,
        )


def _check_spellings(output: Output, columns: StructType, names: Sequence[str]) -> None:
    """Raise `NotSupported` if foreign files are in partitions that the output spells differently.

    The job would not recognise them as files to replace. Only instants have several spellings.
    """
    schema = arrow_schema(columns)
    instants = [name for name in names if getattr(schema.field(name).type, "tz", None)]
    if instants:
        only = pa.schema([schema.field(name) for name in instants])
        for file in output.foreign():
            check_spelling(partition_in(file.path), only)


def columns_of(snapshot: Snapshot, options: ReadOptions) -> StructType:
    """Return the columns of a version; raise `NotFound` if there is nothing to read."""
    if snapshot.schema is None:
        what = "its commits have no schema" if snapshot.version else "nothing has been committed to it"
        raise NotFound(f"no output to read at {options.url}: {what}")
    return load_schema(snapshot.schema)


def _fit(state: State, columns: StructType, options: WriteOptions) -> str:
    return check_schema(state.schema, state.files.values, columns, options, merge=options.merge_schema)
