"""The Spark data source ``commitlog_ingest``."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql import types as t
from pyspark.sql.datasource import DataSource

from commitlog.files import Columns
from commitlog.spark.ingest.columns import (
    METADATA,
    METADATA_COLUMN,
    RowBuilder,
    check_metadata,
    inferred_columns,
)
from commitlog.spark.ingest.options import PYTHON_FORMAT, SPARK_FORMAT, IngestOptions, check_reader
from commitlog.spark.schema import check_columns, nullable
from commitlog.spark.versions import STREAM_READERS, require_pyspark

if TYPE_CHECKING:
    from commitlog.spark.ingest.reader import IngestReader

__all__ = ["IngestDataSource"]


class IngestDataSource(DataSource):
    """The format ``commitlog_ingest``: a stream of the records in all objects of a bucket.

    ``spark.readStream.format("commitlog_ingest").option("fileFormat", "json")
    .option("state", "dynamodb://ingest").load("s3://landing/events/")``. Options and guarantees:
    ``docs/ingest.md``.

    The class exists in every PySpark with data sources, because Spark looks it up. Before PySpark 4.2
    it cannot be used: creating it raises `NotSupported`.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        require_pyspark(STREAM_READERS, "format commitlog_ingest")
        super().__init__(options)
        check_reader(options, "spark", SPARK_FORMAT)
        self._inferred = False

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return PYTHON_FORMAT

    def schema(self) -> t.StructType:
        """Return the columns of a sample of files, as they were at the first call for the source.

        Raises `NotFound` if there is no file, and `ConfigurationError` if files contradict each other.
        """
        options = IngestOptions.parse(self.options)
        self._inferred = True
        options.check_table()
        with options.opened_store() as store:
            return _with_extras(inferred_columns(options, store), options)

    def streamReader(self, schema: t.StructType) -> IngestReader:
        """Return the reader of a query; check everything that can be checked before it runs.

        Raises:
            ConfigurationError: an option is wrong, or does not go with the schema.
            NotSupported: columns cannot be read.
            TableNotFound: there is no table for the state.
        """
        from commitlog.spark.ingest.reader import IngestReader

        options = IngestOptions.parse(self.options)
        check_columns(schema)
        new = options.new_columns or ("fail" if self._inferred else "ignore")
        builder = RowBuilder(nullable(schema), new, options.rescued_column)
        options.input.check(Columns(schema=builder.content, new=new))
        check_metadata(schema, wanted=options.metadata)
        options.check_table()
        return IngestReader(options, builder)


def _with_extras(content: t.StructType, options: IngestOptions) -> t.StructType:
    more = []
    if options.new_columns == "rescue":
        more.append(t.StructField(options.rescued_column, t.StringType()))
    if options.metadata:
        more.append(t.StructField(METADATA_COLUMN, METADATA))
    return t.StructType([*content, *more])
