"""Traps at the steps of a micro-batch of a query that reads a source.

Subclasses of the reader and the writer lay the traps, in formats with separate names. If Spark reads the
files, the commit agent (`support.agent`) lays those of the source, and a step after the source those of
its tasks.
"""

from __future__ import annotations

import itertools
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyspark.cloudpickle
from attrs import evolve, frozen
from pyspark import TaskContext
from pyspark.sql.datasource import InputPartition

from commitlog._util.concurrency import Executor
from commitlog.files import Columns, InputFormat, Records
from commitlog.outputs import Output
from commitlog.spark import CommitlogDataSource
from commitlog.spark.ingest import IngestDataSource
from commitlog.spark.ingest.reader import IngestReader
from commitlog.spark.ingest.scans import ScanPlanner
from commitlog.spark.stream_writer import CommitlogStreamWriter
from commitlog.spark.targets.output import OutputLocation, OutputTarget
from support.spark_jobs import Trap

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Workers cannot import test modules.
pyspark.cloudpickle.register_pickle_by_value(sys.modules[__name__])

#: Requests to the table of the state: the call of Spark that makes them, and their method.
_REQUESTS = {
    "begin": ("initialOffset", "put"),
    "plan": ("latestOffset", "transact"),
    "claim": ("partitions", "transact"),
}


#: The same steps if Spark reads the files: the call of the agent, and the method of the table.
_CALLS = {
    "begin": ("latest_offset", "put"),
    "latestOffset": ("latest_offset", ""),
    "plan": ("latest_offset", "transact"),
    "partitions": ("plan", ""),
    "claim": ("plan", "transact"),
    "files": ("files", ""),
}


@frozen(kw_only=True)
class BatchTrap(Trap):
    """A trap in one batch of a query.

    Attributes:
        at: the step. ``begin``: the state is created; ``latestOffset``: Spark asks for the next offset;
            ``plan``: an epoch is stored; ``partitions``: Spark asks for the partitions, after storing
            its offset; ``claim``: the query claims the source; ``files``: Spark plans a scan, if it
            reads the files; ``slice``: a task begins its nth slice; ``rows``: it has decoded the nth
            records; ``commit``: all tasks are done; ``record`` and ``publish``: as in `Trap`. If Spark
            reads the files, there is no ``slice``, and a task has few ``rows``.
        batch: number of the batch.
    """

    batch: int = 1

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return `call` with the trap at its nth call."""
        return self._around(call, lambda *_, **__: True, itertools.count(1))

    def in_agent(self, call: str = "") -> bool:
        """Return whether the step is in this call of the agent, or in any, if Spark reads the files."""
        return self.at in _CALLS and call in ("", _CALLS[self.at][0])

    def around_call(
        self, made: Callable[[], Any], planner: ScanPlanner, request: Mapping[str, Any]
    ) -> Callable[[], Any]:
        """Return a call of the agent with the trap, which is in this call.

        Args:
            made: the call.
            planner: handles it.
            request: its request.
        """
        method = _CALLS[self.at][1]
        if not method:
            return self.around(made)
        table = planner._query(request).ingest.state._table
        setattr(table, method, self.around(getattr(table, method)))
        return made

    def in_tasks(self, rows: DataFrame) -> DataFrame:
        """Return rows that Spark has read with the trap, which is at ``rows``."""

        def trapped(batches: Iterator[Any]) -> Iterator[Any]:
            context = TaskContext.get()
            assert context is not None
            here = context.getLocalProperty("streaming.sql.batchId") == str(self.batch)
            for number, batch in enumerate(batches, 1):
                yield batch
                if here and number == self.nth:
                    self.spring()

        return rows.mapInArrow(trapped, rows.schema)


def trapped(trap: BatchTrap) -> tuple[type[IngestDataSource], type[CommitlogDataSource]]:
    """Return the two formats of a query with a trap, under separate names."""
    word = uuid.uuid4().hex

    class Source(IngestDataSource):
        @classmethod
        def name(cls) -> str:
            return f"commitlog_ingest_{word}"

        def streamReader(self, schema: Any) -> IngestReader:
            reader = super().streamReader(schema)
            reader.__class__ = TrappedReader
            reader.trap = trap  # type: ignore[attr-defined]
            return reader

    class Sink(CommitlogDataSource):
        @classmethod
        def name(cls) -> str:
            return f"commitlog_{word}"

        def streamWriter(self, schema: Any, overwrite: bool) -> CommitlogStreamWriter:
            writer = super().streamWriter(schema, overwrite)
            writer.__class__ = TrappedWriter
            writer.trap = trap  # type: ignore[attr-defined]
            return writer

    return Source, Sink


class TrappedReader(IngestReader):
    """A reader with a trap."""

    trap: BatchTrap
    _laid = False

    def initialOffset(self) -> dict[str, Any]:
        return self._trapped("initialOffset", 0, super().initialOffset)()

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        return self._trapped("latestOffset", start["epoch"], super().latestOffset)(start, limit)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return self._trapped("partitions", start["epoch"], super().partitions)(start, end)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if partition.value.epoch == self.trap.batch + 1:
            self._options = evolve(self._options, input=TrappedInput(self._options.input, self.trap))
        return super().read(partition)

    def _trapped(self, method: str, epoch: int, call: Callable[..., Any]) -> Callable[..., Any]:
        if epoch != self.trap.batch or self._laid:
            return call
        if self.trap.at == method:
            self._laid = True
            return self.trap.around(call)
        of, request = _REQUESTS.get(self.trap.at, ("", ""))
        if of == method:
            self._laid = True
            table = self._ingest.state._table
            setattr(table, request, self.trap.around(getattr(table, request)))
        return call


class TrappedInput:
    """An input whose decoding is trapped."""

    def __init__(self, usual: InputFormat, trap: BatchTrap) -> None:
        self._usual = usual
        self._trap = trap
        self._seen = itertools.count(1)
        self.splits = usual.splits

    def decode(self, pinned: Any, slice: Any, columns: Columns) -> Iterator[Records]:
        """Decode with the trap."""
        self._turn("slice")
        for records in self._usual.decode(pinned, slice, columns):
            yield records
            self._turn("rows")

    def _turn(self, at: str) -> None:
        if self._trap.at == at and next(self._seen) == self._trap.nth:
            self._trap.spring()


class TrappedWriter(CommitlogStreamWriter):
    """A writer of a batch with a trap."""

    trap: BatchTrap

    def commit(self, messages: Any, batchId: int) -> None:
        call = super().commit
        if batchId == self.trap.batch:
            if self.trap.at == "commit":
                call = self.trap.around(call)
            target = self._target
            assert isinstance(target, OutputTarget)
            usual = target.open_output

            def open_output(location: OutputLocation, executor: Executor | None = None) -> Output:
                # One request at a time, so that the nth is always the same.
                return self.trap.set(usual(location), itertools.count(1))

            self._target = evolve(target, open_output=open_output)
        call(messages, batchId)
