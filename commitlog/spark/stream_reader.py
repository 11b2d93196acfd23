"""Streaming queries that read: the reader of new commits of an output.

This module needs `versions.STREAM_READERS`.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import groupby
from typing import Any

import pyarrow as pa
from attrs import frozen
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from commitlog.errors import NotFound, StateMismatch, UnknownColumns
from commitlog.outputs import DataFile, Output, Position, Tail
from commitlog.spark.batch import check_requested, group_files, read_files
from commitlog.spark.pruning import Pruning
from commitlog.spark.schema import load_schema, nullable, requested_schema
from commitlog.spark.targets.output import OpenOutput, TailOptions, locate_in
from commitlog.spark.tasks import freeze_gc
from commitlog.tabular import PUBLISHERS
from commitlog.tabular.columns import OutputColumns

__all__ = ["CommitlogStreamReader"]


#: Member of the offset that ends a query's first batch: the offset where that batch begins.
_BEGIN = "begin"


@frozen
class Work:
    """The files that one task reads.

    Attributes:
        schema: schema of the output when the files were committed, from the commit record.
        files: the files.
    """

    schema: str | None
    files: tuple[DataFile, ...]


class CommitlogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A reader of the new commits of an output, batch by batch, from its log.

    One object lives in a process next to the driver for as long as the query runs. Each task has a copy
    that was pickled before, and needs only its partition. The reader lists no directory, and keeps no
    state but the query's own checkpoint.

    An offset is a `Position`, and the files between two offsets never change. The offset that ends the
    first batch also contains its beginning, for a process that runs the batch again.

    Args:
        open_output: opens the output.
        options: options of the query.
        schema: the columns to read.
        inferred: whether `schema` is that of the output when the query began, and not the user's.
    """

    def __init__(
        self, open_output: OpenOutput, options: TailOptions, schema: StructType, *, inferred: bool
    ) -> None:
        self._open_output = open_output
        self._options = options
        self._columns = nullable(schema)
        self._schema = requested_schema(schema)
        self._inferred = inferred
        self._opened: tuple[Output, Tail] | None = None
        self._resources = ExitStack()
        self._until: int | None = None
        self._initial: dict[str, Any] | None = None

    # on the driver

    def prepareForTriggerAvailableNow(self) -> None:
        """Make the query end at the current last version."""
        self._until = self._tail.end()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit by files. Spark takes only one limit; `latestOffset` adds that by bytes."""
        return ReadMaxFiles(self._options.max_files)

    def initialOffset(self) -> dict[str, Any]:
        """Return where a query without a checkpoint begins: the same offset at every call.

        Spark asks before it plans the first batch, and again when it runs the batch. There may be new
        commits in between.

        Raises `NotFound` if there is no such version, and `ConfigurationError` if the output lacks
        columns that the user asked for.
        """
        if self._initial is None:
            if not self._inferred:
                schema = self._output.state().schema
                if schema is not None:
                    check_requested(self._columns, load_schema(schema))
            self._initial = self._tail.start(self._options.starting, until=self._until).to_json()
        return self._initial

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next batch; raise as `Tail.advance`."""
        position, options = Position.from_json(start), self._options
        limited = not isinstance(limit, ReadAllAvailable)
        end = self._tail.advance(
            position,
            max_files=options.max_files if limited else None,
            max_bytes=options.max_bytes if limited else None,
            until=self._until,
        )
        if end == position:
            return start
        # Spark stores only the end of a first batch. A process that runs it again has another beginning.
        return {**end.to_json(), _BEGIN: start} if start == self._initial else end.to_json()

    def reportLatestOffset(self) -> dict[str, Any]:
        """Return the last known version, for the query's progress."""
        return {"version": self._tail.seen}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the files between two offsets, in groups of whole files.

        Raises `UnknownColumns` if a commit has columns that the query cannot read, and `StateMismatch`
        if the offsets are of another output.
        """
        if start == self._initial and isinstance(end.get(_BEGIN), dict):
            start = end[_BEGIN]
        found = self._tail.added(Position.from_json(start), Position.from_json(end))
        partitions = []
        for schema, group in groupby(found, key=lambda added: added.schema):
            parts = list(group)
            if schema is not None:
                self._check(load_schema(schema), parts[0].version)
            for files in group_files(file for added in parts for file in added.files):
                partitions.append(InputPartition(Work(schema, tuple(files))))
        return partitions

    def stop(self) -> None:
        """Close the connections."""
        self._resources.close()

    # in a task

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition. Raises `StateMismatch` if a file of it is gone."""
        freeze_gc()
        work: Work = partition.value
        stored = self._schema if work.schema is None else OutputColumns.parse(work.schema).readable()
        output = self._open_output(self._options)
        with output.store:
            try:
                yield from read_files(locate_in(output), work.files, stored, self._schema, Pruning())
            except NotFound as error:
                raise StateMismatch(
                    f"a file of the stream is gone ({error}): a later version replaced it, and it was"
                    " removed, by that job if the output is 'listed', by gc if it is 'logged'. Restart"
                    " with a new checkpoint. An output that is read as a stream while it is compacted or"
                    " overwritten should be 'logged', and gc must keep what a query may still read"
                ) from error

    # inside

    @property
    def _output(self) -> Output:
        return self._open()[0]

    @property
    def _tail(self) -> Tail:
        return self._open()[1]

    def _open(self) -> tuple[Output, Tail]:
        if self._opened is None:
            options = self._options
            executor = self._resources.enter_context(ThreadPoolExecutor(PUBLISHERS))
            output = self._open_output(options, executor)
            self._resources.enter_context(output.store)
            tail = output.tail(on_rewrite=options.on_rewrite, roll_forward=options.roll_forward)
            self._opened = output, tail
        return self._opened

    def _check(self, stored: StructType, version: int) -> None:
        """Raise `UnknownColumns` if rows of `version` have columns that the query cannot read."""
        requested = {field.name: field.dataType for field in self._columns}
        for field in stored:
            known = requested.get(field.name, None if self._inferred else field.dataType)
            if known != field.dataType:
                raise UnknownColumns(
                    f"version {version} of the output has a column {field.name}"
                    f" {field.dataType.simpleString()}, which the query does not know. Start it again:"
                    " it goes on with the columns that the output has then. Or name the columns to read,"
                    " in schema(…)"
                )
