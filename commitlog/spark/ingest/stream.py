"""`stream_files`: the records in files as a stream, read by Spark's own readers or by Python's.

Spark cannot hold two implementations of one name, so each way has a format of its own, and this function
chooses. It works with PySpark 3.5 too, which has no data sources in Python.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from py4j.java_gateway import JavaClass
from pyspark.sql import SparkSession

from commitlog._util.parsing import check_choice
from commitlog.errors import ConfigurationError, NotSupported, StateMismatch
from commitlog.ingest import Slice, StateTable
from commitlog.spark.errors import own_errors
from commitlog.spark.ingest.options import (
    PYTHON_FORMAT,
    READERS,
    SPARK_FORMAT,
    IngestOptions,
    SourceOptions,
    split_options,
)
from commitlog.spark.session_conf import active, register
from commitlog.spark.versions import STREAM_READERS, has_pyspark, require_pyspark
from commitlog.urls import parse_store_url

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

__all__ = ["stream_files"]

_log = logging.getLogger(__name__)


def stream_files(
    spark: SparkSession,
    url: str,
    *,
    schema: StructType | str | None = None,
    reader: str = "auto",
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return the records of all files below `url` as a stream, each version of each file once.

    It is ``spark.readStream`` with one of two formats. Spark's own readers read the files of
    ``commitlog_ingest_spark``, and Python workers those of ``commitlog_ingest``. Both have the same
    options of the source, state and offsets, so the choice may change from one start of a query to the
    next. The log says at level INFO which one it is, and why it is not Spark's. The progress of a query
    says it too: the description of its source begins with ``commitlog_ingest_spark``, or does not.

    Args:
        spark: the session.
        url: URL of the directory or prefix, which may end in a glob.
        schema: the columns, as DDL or as Spark's type; None to infer them.
        reader: ``auto``, ``spark`` or ``python``. ``auto`` takes Spark's own readers if the session is
            classic and has the committer's jar (see `configure`), and if they support the options. It
            takes Python's in their place for CSV, whose rules differ; if the options have the connection
            to S3, which Spark's readers take from S3A; and while a file is read in part. Before Spark
            4.2, there are only Spark's.
        options: options of the source and of the format, with ``fileFormat``; see docs/ingest.md.

    Raises:
        ConfigurationError: an argument or an option is wrong.
        NotSupported: the wanted reader cannot read the files, or none can. The error says why.
        TableNotFound: there is no table for the state.
        NotFound: there is no file to infer the columns from.
    """
    given = dict(options or {})
    check_choice("reader", reader, READERS)
    if any(name.lower() == "reader" for name in given):
        raise ConfigurationError("option reader has an argument of its own: leave it out of options")
    location = url.partition("?")[0]
    only_spark = reader == "spark" or not has_pyspark(STREAM_READERS)
    reason = ""
    if reader != "python":
        reason = _missing(spark)
        if reason and only_spark:
            raise NotSupported(f"Spark's own readers cannot read {location}: {reason}")
        if not only_spark:
            reason = reason or _better_in_python({**given, "path": url})
        if not reason:
            try:
                rows = _load(spark, SPARK_FORMAT, url, schema, given)
            except (ConfigurationError, NotSupported) as error:
                if only_spark:
                    raise
                reason = str(error)
            else:
                _log.info("Spark's own readers read %s: format %s", location, SPARK_FORMAT)
                return rows
    require_pyspark(STREAM_READERS, f"reader {reader}")
    from commitlog.spark.ingest.source import IngestDataSource

    try:
        # With a schema, Spark calls the format when the query starts.
        IngestOptions.parse({**given, "path": url})
        with active(spark):
            register(spark, IngestDataSource)
            rows = _load(spark, PYTHON_FORMAT, url, schema, given)
    except ConfigurationError as error:
        if not reason:
            raise
        raise ConfigurationError(f"{error}. Spark's own readers cannot read it: {reason}") from error
    because = f", because {reason}" if reason else ""
    _log.info("Python's readers read %s: format %s%s", location, PYTHON_FORMAT, because)
    return rows


def _load(
    spark: SparkSession,
    format: str,
    url: str,
    schema: StructType | str | None,
    options: Mapping[str, str],
) -> DataFrame:
    stream = spark.readStream.format(format).options(**options)
    if schema is not None:
        stream = stream.schema(schema)
    with own_errors():
        return stream.load(url)


def _missing(spark: SparkSession) -> str:
    """Return what a session lacks for Spark's own readers, or ""."""
    if not isinstance(spark, SparkSession):
        return "with Spark Connect, the driver is the server"
    jvm = spark._jvm
    # py4j takes the name of an unknown class for a package.
    if jvm is None or not isinstance(jvm.io.commitlog.IngestProvider, JavaClass):
        return (
            "the session was started without the committer's jar: start it with"
            " commitlog.spark.configure(builder)"
        )
    return ""


def _better_in_python(options: Mapping[str, str]) -> str:
    """Return why Python's readers are to read files that Spark's could read as well, or ""."""
    own, rest = split_options(options)
    source = SourceOptions.parse(own)
    connection = sorted({**parse_store_url(source.url).options, **source.connection})
    if connection:
        return f"Spark's readers take {', '.join(connection)} from the settings of S3A"
    if source.format == "csv":
        with suppress(ConfigurationError):  # Python's reader has fewer options
            IngestOptions.parse({**own, **rest})
            return "Spark's reader keeps doubled quotes, and needs the columns in their order"
    begun = _begun(source)
    return f"{begun!r} is read in part, and Spark reads whole files" if begun is not None else ""


def _begun(source: SourceOptions) -> str | None:
    """Return the path of a file of which a part is delivered, or about to be; None if there is none."""
    source.check_table()
    with source.opened_table() as table:
        stored = StateTable(table, source.settings.source)
        state = stored.read()
        if state is None:
            return None
        slices: list[Slice] = [] if state.rest is None else [state.rest]
        # The query may have committed neither of them.
        for epoch in range(max(1, state.epoch - 1), state.epoch + 1):
            with suppress(StateMismatch):  # it is not kept any more
                slices += stored.slices(epoch)
        slices += stored.all_wanted()
    return next((each.file.path for each in slices if not each.whole or each.skip), None)
