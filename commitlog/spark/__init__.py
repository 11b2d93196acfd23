"""Spark API: the data source ``commitlog``, `read`, `write` and `compact`, and the committer.

    commitlog.spark.write(df, url, job_id="daily-2026-11-21")
    df.write.format("commitlog").mode("append").option("jobId", "daily-2026-11-21").save(url)
    spark.read.format("commitlog").load(url)
    commitlog.spark.read(spark, url)
    commitlog.spark.compact(spark, url)
    commitlog.spark.stream_files(spark, url, options={"fileFormat": "json"})

See ``docs/spark.md``. The modules, in the order in which an operation passes them:

* `builder`, `session_conf`: the session, its settings, and the registration of formats
* `dataframe`: `write` and `read`, around Spark's own calls; `errors`: their errors
* `datasource`: the format ``commitlog``, which Spark calls; `options`: its options
* `targets`: the directory that is written or read: an output, or a directory of a namespace
* `batch`, `stream_reader`, `stream_writer`: readers and writers of batch queries and of streams
* `schema`, `pruning`: columns, and files that need not be read
* `tasks`: the part of a write that runs in a task; `commitlog.tabular` has its files, partitions and the
  checks that rows fit, and `commitlog.files` the formats
* `compaction`: merging the small files of an output
* `fsck_job`: `fsck`, checks and restores of namespaces on the executors
* `maintenance_jobs`: `import_objects`, `prune`, `diff`, `gc` and `empty_trash`, on the executors
* `cluster`: the executors as an engine for distributed work; `progress`: their progress; `inventory`: S3
  Inventories, for checks
* `committer`: jobs of Spark's own file writers (``df.write.parquet``)
* `ingest`: the formats ``commitlog_ingest`` and ``commitlog_ingest_spark``, and `stream_files`, which
  chooses one of them
* `versions`: the versions of PySpark that have what these need

A job writes in this order: `CommitlogDataSource.writer`, `batch.begin_job`, `targets.base.Target.begin`;
in each task `tasks.write_task`, `Target.open`, and ``open_file`` for each file; then `Target.commit`.

Names are imported on first use, because each of Spark's many Python processes imports this package and
needs little of it. Importing the package raises `ImportError` without the extra ``spark`` (pyspark and
pyarrow), and `NotSupported` if PySpark is older than 3.5. The configured committer works from that
version on; the format ``commitlog``, and the functions that use it, need PySpark 4.0. Streaming writes
need 4.1, and streaming reads and the format ``commitlog_ingest`` 4.2.
"""

from __future__ import annotations

from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from commitlog.extras import require
from commitlog.spark.versions import COMMITTER, DATA_SOURCES, require_pyspark

if TYPE_CHECKING:
    from commitlog.spark import ingest
    from commitlog.spark.builder import session
    from commitlog.spark.committer.configure import configure
    from commitlog.spark.compaction import compact
    from commitlog.spark.dataframe import read, write
    from commitlog.spark.datasource import CommitlogDataSource
    from commitlog.spark.errors import error_of
    from commitlog.spark.fsck_job import fsck
    from commitlog.spark.ingest.stream import stream_files
    from commitlog.spark.maintenance_jobs import diff, empty_trash, gc, import_objects, prune
    from commitlog.spark.targets.namespace import physical_files
    from commitlog.spark_jar import committer_jar

require("pyspark", extra="spark", user=__name__)
require("pyarrow", extra="spark", user=__name__)

__all__ = [
    "CommitlogDataSource",
    "committer_jar",
    "compact",
    "configure",
    "diff",
    "empty_trash",
    "error_of",
    "fsck",
    "gc",
    "import_objects",
    "ingest",
    "physical_files",
    "prune",
    "read",
    "session",
    "stream_files",
    "write",
]

#: The modules of the names.
_HOMES = MappingProxyType(
    {
        "CommitlogDataSource": "datasource",
        "committer_jar": "committer.configure",
        "compact": "compaction",
        "configure": "committer.configure",
        "diff": "maintenance_jobs",
        "empty_trash": "maintenance_jobs",
        "error_of": "errors",
        "fsck": "fsck_job",
        "gc": "maintenance_jobs",
        "import_objects": "maintenance_jobs",
        "physical_files": "targets.namespace",
        "prune": "maintenance_jobs",
        "read": "dataframe",
        "session": "builder",
        "stream_files": "ingest.stream",
        "write": "dataframe",
    }
)

#: Names that need only the committer.
_OF_COMMITTER = frozenset({"committer_jar", "configure", "error_of", "stream_files"})

require_pyspark(COMMITTER, __name__)


def __getattr__(name: str) -> Any:
    if name == "ingest":
        return import_module(f"{__name__}.ingest")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name not in _OF_COMMITTER:
        require_pyspark(DATA_SOURCES, f"{__name__}.{name}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
