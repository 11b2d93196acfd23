"""The Spark data source ``commitlog_ingest``."""

from __future__ import annotations

from collections.abc import MutableMapping
from itertools import islice
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import types as t
from pyspark.sql.datasource import DataSource
from pyspark.sql.pandas.types import from_arrow_schema

from commitlog.errors import NotFound
from commitlog.ingest import File, Pinned, StateTable
from commitlog.spark.files import Columns
from commitlog.spark.files.types import replace_null_types, unify_schemas
from commitlog.spark.ingest.columns import (
    METADATA,
    METADATA_COLUMN,
    RowBuilder,
    check_metadata,
    path_values,
)
from commitlog.spark.ingest.options import SPARK_FORMAT, IngestOptions, check_reader
from commitlog.spark.schema import arrow_schema, check_columns, dump_schema, load_schema, nullable
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
        return "commitlog_ingest"

    def schema(self) -> t.StructType:
        """Return the columns of a sample of files, as they were at the first call for the source.

        Raises `NotFound` if there is no file, and `ConfigurationError` if files contradict each other.
        """
        options = IngestOptions.parse(self.options)
        self._inferred = True
        return _with_extras(_content(options), options)

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


def _content(options: IngestOptions) -> t.StructType:
    """Return the columns of the files, as the state has them; infer them if it does not."""
    options.check_table()
    with options.opened_table() as table:
        state = StateTable(table, options.settings.source)
        stored = state.schema()
        if stored is None:
            stored = state.fix_schema(dump_schema(_inferred(options)))
    return load_schema(stored)


def _inferred(options: IngestOptions) -> t.StructType:
    fixed = options.input.fixed
    with options.opened_store() as store:
        listed = store.list(options.settings.listed_prefix)
        wanted = (info for info in listed if options.settings.names.wants(info.path))
        sample = [File.of(info) for info in islice(wanted, options.sample_files)]
        if fixed is None and not sample:
            raise NotFound(
                f"there is no file below {store.url} to infer the columns: give them with .schema(…)"
            )
        found = [fixed] if fixed else [options.input.infer(Pinned(store, file)) for file in sample]
        merged = replace_null_types(unify_schemas(found, strings=options.input.strings))
    # Strings: the name of a later directory may not be a number, and must not fail the query.
    known = {name.lower() for name in merged.names}
    more = []
    for name in (name for file in sample for name in path_values(file.path)):
        if name.lower() not in known:
            known.add(name.lower())
            more.append(pa.field(name, pa.string()))
    return _spark(pa.schema([*merged, *more]))


def _spark(schema: pa.Schema) -> t.StructType:
    found = nullable(from_arrow_schema(schema))
    arrow_schema(found)
    return found


def _with_extras(content: t.StructType, options: IngestOptions) -> t.StructType:
    more = []
    if options.new_columns == "rescue":
        more.append(t.StructField(options.rescued_column, t.StringType()))
    if options.metadata:
        more.append(t.StructField(METADATA_COLUMN, METADATA))
    return t.StructType([*content, *more])
