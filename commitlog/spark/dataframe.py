"""`write` and `read`: DataFrames to and from outputs and directories of namespaces.

Both call Spark with ``format("commitlog")``, except that `read` uses Spark's own readers where it can.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructField, StructType

from commitlog._util.parsing import check_choice
from commitlog.errors import ConfigurationError
from commitlog.files import output_format_of
from commitlog.outputs import CommitRecord, DataFile
from commitlog.outputs.job import HIDDEN
from commitlog.paths import join
from commitlog.spark.datasource import CommitlogDataSource
from commitlog.spark.pruning import ReadFilter, condition_of, dump_filters, parse_filters
from commitlog.spark.schema import readable_schema
from commitlog.spark.session_conf import active, register, unbounded
from commitlog.spark.targets import source_of, target_of, with_environment
from commitlog.spark.versions import ORC_INSTANTS, has_pyspark
from commitlog.tabular import check_heartbeat
from commitlog.tabular.partitions import directory_of, value_of
from commitlog.urls import parse_store_url

__all__ = ["read", "write"]

#: Formats that Spark's own readers read in the same way, with the options that make them independent of
#: settings of the session. Files of this library have no mark of their calendar, and no INT96.
_READERS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "parquet": {"datetimeRebaseMode": "CORRECTED", "int96RebaseMode": "EXCEPTION"},
        "orc": {"orc.force.positional.evolution": "false"},
    }
)

#: Options that override settings of the session: no committed file is skipped, and paths are not globs
#: (Spark itself sets this for paths of tables).
_COMPLETE: Mapping[str, str] = MappingProxyType(
    {"ignoreMissingFiles": "false", "ignoreCorruptFiles": "false", "__globPaths__": "false"}
)

#: For files of Spark's own writer, which have dictionaries of floats: its reader looks for 0.0 in one,
#: does not find -0.0, and skips the rows.
_ALL_ZEROS: Mapping[str, str] = MappingProxyType({"parquet.filter.dictionary.enabled": "false"})

#: Largest number of files for Spark's own readers on Spark Connect. There, each action checks all files
#: again, and more files than this with one task for each.
CONNECT_FILES = 32

#: The number of paths above which Spark starts a job to check them, with one task for each.
_THRESHOLD = "spark.sql.sources.parallelPartitionDiscovery.threshold"


def read(
    spark: SparkSession,
    url: str,
    *,
    version: int | None = None,
    columns: Sequence[str] | str | None = None,
    filters: Sequence[ReadFilter] = (),
    hadoop_url: str | None = None,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return the rows of one version of the output at `url`.

    The rows are those of ``spark.read.format("commitlog")``. The DataFrame stays at the version that is
    the last one now. If all files are Parquet, or all ORC, and Spark can reach them, Spark's own reader
    reads the listed files: as fast as ``spark.read.parquet``, with all its optimizations, and without
    listing a directory. Spark can reach local directories, and others through `hadoop_url`.

    Args:
        spark: the session.
        url: URL of the output, or of a directory in a namespace. The latter is always read with
            ``format("commitlog")``.
        version: the version to read; None for the last one.
        columns: names of the columns to read, in this order; a text is one name; None for all.
        filters: conditions (column, operator, value) that all rows must satisfy, such as
            ``[("day", ">=", date(2026, 11, 1))]``. ``format("commitlog")`` skips the files and row
            groups that cannot match; for a condition in `where` it reads all of them. The operators are
            ``=``, ``<``, ``<=``, ``>``, ``>=`` and ``in``.
        hadoop_url: URL of the same directory in a file system of Spark, such as ``s3a://bucket/out``.
        options: options of the data source; see docs/spark.md.

    Raises:
        ConfigurationError: an argument is wrong, a column does not exist, or the value of a filter does
            not match the type of its column.
        NotFound: the version does not exist yet, or has expired.
        PublishIncomplete, CorruptRecord, FormatTooNew: as in `Output.snapshot`.

    After a later version replaces files, they are removed, and an action that needs them fails. If the
    output is ``listed``, they are removed at once; if it is ``logged``, when `gc` expires the version.
    """
    all_options = {
        **(options or {}),
        **({} if version is None else {"version": str(version)}),
        **({"filters": dump_filters(filters)} if filters else {}),
    }
    all_options = with_environment(url, all_options)
    found = source_of({**all_options, "path": url}).pin()
    if found is None:
        return _read_with_data_source(spark, url, all_options, None, columns, filters)
    stored = found.columns
    assert stored is not None
    chosen = _chosen(stored, columns)
    parse_filters(found.filters, stored)
    if not found.files:
        return spark.createDataFrame([], chosen)
    is_local = parse_store_url(found.url).scheme == "file"
    root = hadoop_url or (f"file:{found.url}" if is_local else None)
    base = HIDDEN if found.files[0].hidden else ""
    format_name = _format_for_spark(found.files, base)
    if format_name == "orc" and not _spark_reads_orc(stored):
        format_name = None
    if not isinstance(spark, SparkSession) and len(found.files) > CONNECT_FILES:
        format_name = None
    if root is None or format_name is None:
        pinned = {**all_options, "version": str(found.version)}
        return _read_with_data_source(spark, url, pinned, stored, columns, filters)
    _check_partitions(found.files, stored)
    # Column metadata can make Spark read other values for columns that a file lacks: drop it here.
    plain = StructType([StructField(field.name, field.dataType) for field in stored])
    paths = [join(root, file.path) for file in found.files]
    reader = spark.read.format(format_name).schema(plain).options(**_COMPLETE, **_READERS[format_name])
    if _has_floats(stored.json()):
        reader = reader.options(**_ALL_ZEROS)
    # Checking a local file is faster than starting a task.
    with contextlib.nullcontext() if hadoop_url else unbounded(spark, _THRESHOLD):
        rows = reader.option("basePath", join(root, base)).load(paths)
    if filters:
        rows = rows.where(condition_of(filters, stored))
    return rows.select([f.col(_quoted(c.name)).alias(c.name, metadata=c.metadata) for c in chosen])


def _read_with_data_source(
    spark: SparkSession,
    url: str,
    options: Mapping[str, str],
    stored: StructType | None,
    columns: Sequence[str] | str | None,
    filters: Sequence[ReadFilter],
) -> DataFrame:
    """Read with ``format("commitlog")``; if `stored` is None, the data source looks up the columns."""
    with active(spark):
        reader = spark.read.format("commitlog").options(**options)
        if stored is not None:
            wanted = dict.fromkeys((*_chosen(stored, columns).names, *(name for name, _, _ in filters)))
            loaded = _chosen(stored, [*wanted])
            rows = reader.schema(loaded).load(url)
        else:
            rows = reader.load(url)
            stored = loaded = rows.schema
    if filters:
        rows = rows.where(condition_of(filters, stored))
    names = _chosen(stored, columns).names
    return rows if names == loaded.names else rows.select(*map(_quoted, names))


def _chosen(stored: StructType, names: Sequence[str] | str | None) -> StructType:
    if names is None:
        return stored
    if isinstance(names, str):
        names = [names]
    columns = {field.name: field for field in stored}
    for name in names:
        if name not in columns:
            raise ConfigurationError(f"the output has no column {name!r}; it has {', '.join(columns)}")
    if not names or len(set(names)) != len(names):
        raise ConfigurationError("columns must name at least one column, and each only once")
    return StructType([columns[name] for name in names])


def _format_for_spark(files: Sequence[DataFile], base: str) -> str | None:
    """Return the format of all files if Spark's own reader returns the same rows; else None.

    Spark takes the values of partition columns from the directories below `base`, so the log must agree.
    It leaves out files without the partition columns of the others.
    """
    names = {output_format_of(file.path).name for file in files}
    if len({tuple(file.partition) for file in files}) > 1:
        return None
    for file in files:
        partition = join(base, directory_of(file.partition))
        if not file.path.startswith(partition) or "=" in file.path[len(partition) :]:
            return None
    return next(iter(names)) if len(names) == 1 and names <= _READERS.keys() else None


def _has_floats(schema: str) -> bool:
    return '"double"' in schema or '"float"' in schema


def _spark_reads_orc(stored: StructType) -> bool:
    """Return whether Spark's own ORC reader reads the columns `stored`."""
    text = stored.json()
    # It takes the columns _col0 and so on, as Hive calls them, by their order.
    if any(name.startswith("_col") for name in stored.names):
        return False
    # It treats a backtick as a quotation mark, and skips stripes because -0.0 is not 0.0 to it.
    return (
        "`" not in text
        and not _has_floats(text)
        and (has_pyspark(ORC_INSTANTS) or '"timestamp"' not in text)
    )


def _check_partitions(files: Sequence[DataFile], stored: StructType) -> None:
    """Raise `CorruptRecord` if a partition value does not fit its column: Spark might convert it."""
    kinds = {field.name: field.type for field in readable_schema(stored)}
    for name, text in {pair for file in files for pair in file.partition.items()}:
        value_of(text, kinds[name])


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


_BATCH_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"

_MODES = ("append", "overwrite", "overwrite-partitions", "error", "ignore")


def write(
    df: DataFrame,
    url: str,
    *,
    mode: str = "append",
    job_id: str | None = None,
    on_duplicate: str = "error",
    partition_by: Sequence[str] | str = (),
    options: Mapping[str, str] | None = None,
    heartbeat: float = 60.0,
) -> CommitRecord | None:
    """Write `df` to the output at `url` atomically; return its commit record.

    It is ``df.write.format("commitlog")`` with the right mode and options. In addition:

    * During the write, only the number of rows limits Arrow batches. Spark's check of their size after
      each row makes writing three times slower. The setting is restored afterwards.
    * The job sends heartbeats: `recover` and `gc` do not abort it, however long it computes.

    Args:
        df: the rows.
        url: URL of the output, or of a directory in a namespace.
        mode: ``append``; ``overwrite``: replace everything; ``overwrite-partitions``: replace the
            partitions that have rows in `df`, or everything if `partition_by` names no column;
            ``error``: fail if there is data; ``ignore``: do nothing if there is data.
        job_id: id of the job, which is committed at most once; None: a new job.
        on_duplicate: ``error`` or ``skip``, for a job that was committed before.
        partition_by: the partition columns, which become directories; a text is one column.
        options: further options of the data source; see docs/spark.md.
        heartbeat: seconds between two heartbeats.

    Returns None if there was nothing to do (``ignore``, ``skip``), and for a directory in a namespace,
    which has neither commit records nor heartbeats.

    Raises:
        ConfigurationError: an argument is wrong; nothing was written.
        JobAlreadyCommitted: the job was committed before. The output has its rows once; nothing was
            added.
        AlreadyExists: there is data, and `mode` is ``error``; nothing was added.
        NotSupported: columns or values cannot be written; nothing was added.
        JobAborted: a recovery has aborted the job; nothing was added. Run it again.
        PublishIncomplete: the job is committed; `Output.recover` completes it. Do not run it again.
        OutcomeUnknown: the job may be committed or not. Run it again under the same job id.
        Py4JJavaError, PySparkException: Spark's job failed for another reason. Unless its commit had
            begun, nothing was added. Run it again under the same job id.

    It also raises the other errors of `Output.begin` and `Output.commit`. Spark's exception is the cause
    of each error.

    Thread-safe. The setting of Arrow batches belongs to the session. If several threads write with one
    session, the first one to finish restores it, and the others write more slowly from then on: use one
    session for each thread (``spark.newSession()``).
    """
    check_choice("mode", mode, _MODES)
    check_heartbeat(heartbeat)
    if isinstance(partition_by, str):
        partition_by = [partition_by]
    all_options = {
        **(options or {}),
        **({"jobId": job_id} if job_id is not None else {}),
        **({"partitionBy": ",".join(partition_by)} if partition_by else {}),
        **({"ifExists": mode} if mode in ("error", "ignore") else {}),
        **({"partitionOverwriteMode": "dynamic"} if mode == "overwrite-partitions" else {}),
        "onDuplicate": on_duplicate,
    }
    all_options = with_environment(url, all_options)
    with target_of({**all_options, "path": url}).supervise(mode, heartbeat) as job:
        _save(df, url, mode, {**all_options, **job.options})
    return job.record


def _save(df: DataFrame, url: str, mode: str, options: Mapping[str, str]) -> None:
    spark_mode = "overwrite" if mode.startswith("overwrite") else "append"
    spark = df.sparkSession
    with active(spark), unbounded(spark, _BATCH_BYTES):
        if isinstance(spark, SparkSession):
            register(spark, CommitlogDataSource)
        df.write.format("commitlog").mode(spark_mode).options(**options).save(url)
