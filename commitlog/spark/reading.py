"""`read`: an output as a DataFrame, by the readers that Spark has itself wherever they can be used.

Imports outputs and the rest of this package; pyspark from outside.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructField, StructType

from commitlog.errors import ConfigurationError
from commitlog.outputs import DataFile
from commitlog.outputs.job import HIDDEN
from commitlog.paths import join
from commitlog.spark.formats import format_of
from commitlog.spark.namespaces.options import as_told_here
from commitlog.spark.options import ReadOptions, is_lake
from commitlog.spark.partitions import directory_of, value_of
from commitlog.spark.pruning import ReadFilter, condition_of, dump_filters, parse_filters
from commitlog.spark.schema import arrow_schema
from commitlog.spark.sessions import active, unbounded
from commitlog.spark.source import columns_of, open_output
from commitlog.urls import parse_store_url

__all__ = ["read"]

#: The formats of which Spark's own readers return the same rows, with what they need for it: settings
#: of the session must not change what is read.
_READERS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {"parquet": {"datetimeRebaseMode": "CORRECTED"}, "orc": {}}
)

#: Nothing that was committed is passed over, whatever the session is set to; and paths are no patterns,
#: as Spark itself has it for those of its tables.
_WHOLE: Mapping[str, str] = MappingProxyType(
    {"ignoreMissingFiles": "false", "ignoreCorruptFiles": "false", "__globPaths__": "false"}
)

#: With Spark Connect, every action looks at all files again, by a task for each if there are more.
CONNECT_FILES = 32

#: From how many paths on Spark starts a job to look at them, with a task for each.
_THRESHOLD = "spark.sql.sources.parallelPartitionDiscovery.threshold"


def read(
    spark: SparkSession,
    url: str,
    *,
    version: int | None = None,
    columns: Sequence[str] | None = None,
    filters: Sequence[ReadFilter] = (),
    hadoop_url: str | None = None,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return the rows of one version of the output at `url`.

    They are those of ``spark.read.format("commitlog")``, and the DataFrame keeps to the version that is
    the last one now. If all files are Parquet, or all ORC, and Spark can reach them, its own reader gets
    the list of them: it reads as fast as ``spark.read.parquet``, with all that Spark does to read less,
    and no directory is listed. It can reach a local directory, and others through `hadoop_url`.

    Args:
        spark: the session.
        url: of the output; or of a directory in a namespace, which is read by ``format("commitlog")``.
        version: the version to read; None for the last one.
        columns: names of the columns to read, in this order; None for all.
        filters: conditions (column, operator, value) that all rows have to satisfy, such as
            ``[("day", ">=", date(2026, 11, 1))]``. ``format("commitlog")`` skips the files and row
            groups that cannot match; for a condition of `where` it reads them all. The operators are
            ``=``, ``<``, ``<=``, ``>``, ``>=`` and ``in``.
        hadoop_url: of the same directory, as a file system of Spark's knows it, such as
            ``s3a://bucket/out``.
        options: options of the data source; see docs/spark.md.

    Raises:
        ConfigurationError: an argument is wrong, there is no such column, or the value of a filter does
            not fit its column.
        NotFound: there is no such version, yet or any more.
        PublishIncomplete, CorruptRecord, FormatTooNew: as `Output.snapshot` does.

    Files that a later version replaces go missing, and an action that needs them fails: at once if the
    output is ``listed``, when `gc` lets the version expire if it is ``logged``.
    """
    given = {**(options or {}), **({} if version is None else {"version": str(version)})}
    if filters:
        given["filters"] = dump_filters(filters)
    if is_lake(url):
        with active(spark):
            rows = spark.read.format("commitlog").options(**as_told_here(given)).load(url)
        if filters:
            rows = rows.where(condition_of(filters, rows.schema))
        return (
            rows if columns is None else rows.select(*map(_quoted, _chosen(rows.schema, columns).names))
        )
    place = ReadOptions.parse({**given, "path": url})
    output = open_output(place)
    with output.store:
        snapshot = output.snapshot(place.version, roll_forward=place.roll_forward)
    stored = columns_of(snapshot, place)
    chosen = _chosen(stored, columns)
    parse_filters(given.get("filters"), stored)
    if not snapshot.files:
        return spark.createDataFrame([], chosen)
    root = hadoop_url or (f"file:{place.url}" if parse_store_url(place.url).scheme == "file" else None)
    base = HIDDEN if snapshot.files[0].hidden else ""
    format_name = _format_for_spark(snapshot.files, base)
    if format_name == "orc" and "`" in stored.json():
        format_name = None  # Spark's reader of ORC takes a backtick for a quotation mark
    if not isinstance(spark, SparkSession) and len(snapshot.files) > CONNECT_FILES:
        format_name = None
    if root is None or format_name is None:
        with active(spark):
            reader = spark.read.format("commitlog").options(**given).option("version", snapshot.version)
            if not filters:
                return reader.schema(chosen).load(url)
            names = dict.fromkeys((*chosen.names, *(name for name, _, _ in filters)))
            rows = reader.schema(_chosen(stored, [*names])).load(url)
            return rows.where(condition_of(filters, stored)).select(*map(_quoted, chosen.names))
    _check_partitions(snapshot.files, stored)
    # What is noted of columns can make Spark read other values for those that a file lacks.
    plain = StructType([StructField(field.name, field.dataType) for field in stored])
    paths = [join(root, file.path) for file in snapshot.files]
    reader = spark.read.format(format_name).schema(plain).options(**_WHOLE, **_READERS[format_name])
    # To look at a local file takes less time than to start a task.
    with contextlib.nullcontext() if hadoop_url else unbounded(spark, _THRESHOLD):
        rows = reader.option("basePath", join(root, base)).load(paths)
    if filters:
        rows = rows.where(condition_of(filters, stored))
    return rows.select([f.col(_quoted(c.name)).alias(c.name, metadata=c.metadata) for c in chosen])


def _chosen(stored: StructType, names: Sequence[str] | None) -> StructType:
    if names is None:
        return stored
    columns = {field.name: field for field in stored}
    for name in names:
        if name not in columns:
            raise ConfigurationError(f"the output has no column {name!r}; it has {', '.join(columns)}")
    if not names or len(set(names)) != len(names):
        raise ConfigurationError("name some columns, each once")
    return StructType([columns[name] for name in names])


def _format_for_spark(files: Sequence[DataFile], base: str) -> str | None:
    """Return the format of all files, if Spark makes the same rows of them; or None.

    Spark goes by the directories below `base` for the values of partition columns, and so must the log.
    """
    names = {format_of(file.path).name for file in files}
    for file in files:
        partition = join(base, directory_of(file.partition))
        if not file.path.startswith(partition) or "=" in file.path[len(partition) :]:
            return None
    return next(iter(names)) if len(names) == 1 and names <= _READERS.keys() else None


def _check_partitions(files: Sequence[DataFile], stored: StructType) -> None:
    """Raise `CorruptRecord` if a partition value is none of its column's: Spark might make one of it."""
    kinds = {field.name: field.type for field in arrow_schema(stored)}
    for name, text in {pair for file in files for pair in file.partition.items()}:
        value_of(text, kinds[name])


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
