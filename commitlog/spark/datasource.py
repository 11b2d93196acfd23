"""Spark data source ``commitlog``: the output of a job appears once and atomically.

Spark creates the writer in one process, runs the tasks in others, and commits or aborts in yet another.
These processes share only the pickled writer: the target and the job. Each process opens the target
itself.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceArrowWriter
from pyspark.sql.types import StructType

from commitlog.spark.batch import CommitlogReader, begin_job
from commitlog.spark.targets import source_of, target_of
from commitlog.spark.targets.base import Target
from commitlog.spark.targets.output import TailOptions, open_output
from commitlog.spark.versions import STREAM_READERS, STREAM_WRITERS, require_pyspark

if TYPE_CHECKING:
    from commitlog.namespace import Namespace
    from commitlog.spark.stream_reader import CommitlogStreamReader
    from commitlog.spark.stream_writer import CommitlogStreamWriter
    from commitlog.spark.targets.namespace import NamespaceLocation

__all__ = ["CommitlogDataSource"]


class CommitlogDataSource(DataSource):
    """The format ``commitlog``: writes and reads committed files, in batches and streams.

    ``df.write.format("commitlog").mode("append").option("jobId", "daily-2026-11-21").save(url)``,
    ``spark.read.format("commitlog").load(url)``, and the same with ``writeStream`` and ``readStream``.
    Options and guarantees: ``docs/spark.md``.

    A DataFrame that is loaded without a user's schema keeps reading the version that was the last one
    when it was loaded.
    """

    #: Opens an output in every process; a subclass may wrap the result.
    open_output = staticmethod(open_output)
    #: Opens a namespace on the driver; None: as the options say.
    open_namespace: Callable[[NamespaceLocation], Namespace] | None = None

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._source = source_of(self.options, type(self).open_output, type(self).open_namespace)
        self._inferred = False

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "commitlog"

    def schema(self) -> StructType:
        """Return the columns of the version to read. Raises `NotFound` if there is no version."""
        columns = self._source.schema()
        self._inferred = True
        return columns

    def reader(self, schema: StructType) -> CommitlogReader:
        """Return the reader of the columns `schema` of the pinned version."""
        return CommitlogReader.of(self._source.find(), schema)

    def streamReader(self, schema: StructType) -> CommitlogStreamReader:
        """Return the streaming reader; `schema` is the user's schema, or the result of `schema()`.

        Raises `NotSupported` for a directory of a namespace, and before PySpark 4.2.
        """
        require_pyspark(STREAM_READERS, "readStream with format commitlog")
        from commitlog.spark.stream_reader import CommitlogStreamReader

        options = TailOptions.parse(self.options)
        # Spark sends this object to the tasks of every batch, which do not need the list of files.
        self._source.forget_files()
        return CommitlogStreamReader(type(self).open_output, options, schema, inferred=self._inferred)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return the writer of one job; check everything that can be checked before the job runs.

        Raises:
            NotSupported: columns cannot be written.
            ConfigurationError: an option is wrong, or the output has other columns.
            AlreadyExists: there is data, and ``ifExists`` is ``error``.
            JobAlreadyCommitted: the job was committed before, and ``onDuplicate`` is ``error``.
        """
        return begin_job(self._target(), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> CommitlogStreamWriter:
        """Return the writer of a micro-batch of a streaming query.

        Raises the errors of `writer`, and `NotSupported` for output modes other than ``append``, and
        before PySpark 4.1.
        """
        require_pyspark(STREAM_WRITERS, "writeStream with format commitlog")
        from commitlog.spark.stream_writer import begin_stream

        return begin_stream(self._target(), schema, overwrite)

    def _target(self) -> Target:
        return target_of(self.options, type(self).open_output, type(self).open_namespace)
