"""Ways to write a DataFrame as Parquet files into a directory, all with the same call.

Each has its own session within one Spark application, so that its settings do not affect the others.
Plain readers that list the directory can read the files of all of them.
"""

from __future__ import annotations

import abc
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import commitlog.spark

__all__ = [
    "BuiltIn",
    "CommitlogFormat",
    "CommitlogWrite",
    "Configured",
    "Writer",
    "count_rows",
    "listed_files",
    "start",
    "writers",
]

_PROTOCOL = "spark.sql.sources.commitProtocolClass"
_SPARKS_OWN = "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol"
_QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
}

#: Configures Spark's own writers to commit here, if the package has it.
_configure: Any = getattr(commitlog.spark, "configure", None)


def start(master: str, scratch: Path, conf: dict[str, str] | None = None) -> SparkSession:
    """Start Spark in this process. Its files go to `scratch`, and its messages are discarded."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ["SPARK_LOCAL_DIRS"] = str(scratch)
    builder = SparkSession.builder.master(master)
    places = {
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={scratch}",
    }
    for name, value in {**_QUIET, **places, **(conf or {})}.items():
        builder = builder.config(name, value)
    if _configure is not None:
        builder = _configure(builder)
    # The log level takes effect too late for the messages of Spark's startup.
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        builder.getOrCreate()
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
    # Adds the settings of this package to the existing session.
    return commitlog.spark.session(master)


class Writer(abc.ABC):
    """One way to write.

    Attributes:
        name: name in the tables.
        session: the session of the DataFrames that it writes.
        logged: whether the output has a log that lists its files.
        hidden: whether only the log shows the files.
        opens_first: whether a task opens its file before it has a row, as Spark's own tasks do.
    """

    name: str
    logged = True
    hidden = False
    opens_first = False

    def __init__(self, spark: SparkSession) -> None:
        self.session = spark.newSession()

    @abc.abstractmethod
    def write(
        self, rows: DataFrame, path: str, *, mode: str = "append", partition_by: Sequence[str] = ()
    ) -> None:
        """Write `rows`, of this writer's session; `mode` is ``append`` or ``overwrite``."""


class BuiltIn(Writer):
    """Spark's own writer with Hadoop's FileOutputCommitter, by algorithm 1 (Spark's default) or 2."""

    logged = False
    opens_first = True

    def __init__(self, spark: SparkSession, algorithm: int) -> None:
        super().__init__(spark)
        self.name = f"built-in v{algorithm}"
        self._algorithm = str(algorithm)
        self.session.conf.set(_PROTOCOL, _SPARKS_OWN)

    def write(
        self, rows: DataFrame, path: str, *, mode: str = "append", partition_by: Sequence[str] = ()
    ) -> None:
        """Write with ``df.write.parquet``."""
        writer = rows.write.mode(mode).partitionBy(*partition_by)
        writer.option("mapreduce.fileoutputcommitter.algorithm.version", self._algorithm).parquet(path)


class Configured(Writer):
    """Spark's own writer, committing here: `commitlog.spark.configure`."""

    name = "configured"
    opens_first = True

    def write(
        self, rows: DataFrame, path: str, *, mode: str = "append", partition_by: Sequence[str] = ()
    ) -> None:
        """Write with ``df.write.parquet``."""
        rows.write.mode(mode).partitionBy(*partition_by).parquet(path)


class CommitlogFormat(Writer):
    """The data source, as a plain format."""

    name = "plain data source"

    def __init__(self, spark: SparkSession) -> None:
        super().__init__(spark)
        # The same value as in `commitlog.spark.session`. `commitlog.spark.write` sets it itself.
        self.session.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", str(2**31 - 1))

    def write(
        self, rows: DataFrame, path: str, *, mode: str = "append", partition_by: Sequence[str] = ()
    ) -> None:
        """Write with ``df.write.format("commitlog")``."""
        writer = rows.write.format("commitlog").mode(mode)
        if partition_by:
            writer = writer.option("partitionBy", ",".join(partition_by))
        writer.save(path)


class CommitlogWrite(Writer):
    """The data source, through `commitlog.spark.write`."""

    name = "data source"

    def __init__(self, spark: SparkSession) -> None:
        super().__init__(spark)

    def write(
        self, rows: DataFrame, path: str, *, mode: str = "append", partition_by: Sequence[str] = ()
    ) -> None:
        """Write with `commitlog.spark.write`."""
        commitlog.spark.write(rows, path, mode=mode, partition_by=partition_by)


def writers(spark: SparkSession) -> list[Writer]:
    """Return all writers, the built-in ones first."""
    found: list[Writer] = [BuiltIn(spark, 1), BuiltIn(spark, 2), CommitlogWrite(spark)]
    found.append(CommitlogFormat(spark))
    if _configure is not None:
        found.append(Configured(spark))
    return found


def listed_files(path: Path) -> list[Path]:
    """Return the data files of a reader that lists the directory and skips hidden names.

    Directories that are created or deleted meanwhile are no error.
    """
    found = []
    for directory, below, files in os.walk(path):
        below[:] = [name for name in below if not name.startswith(("_", "."))]
        found += [Path(directory, name) for name in files if not name.startswith(("_", "."))]
    return found


def count_rows(path: Path) -> int:
    """Return the number of rows in the files that `listed_files` finds."""
    return sum(pq.read_metadata(file).num_rows for file in listed_files(path))
