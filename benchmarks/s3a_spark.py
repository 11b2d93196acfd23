"""One Spark application on S3A, and the committers that can write through it.

All of them write with ``df.write.parquet("s3a://…")``. They differ in settings of the session alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from attrs import evolve, field, frozen
from pyspark.sql import DataFrame, SparkSession
from servers import Server, hadoop_committer_jars, s3a_jars, s3a_settings
from spark_writers import Writer, start

from commitlog.spark.committer.configure import COMMIT_PROTOCOL
from commitlog.testing.proxy import Proxy

__all__ = [
    "COMMITTERS",
    "FAULT_COMMITTERS",
    "CommitTimes",
    "S3aCommitter",
    "S3aWriter",
    "settings_of",
    "spark_jars",
    "start_on_s3a",
]

_PROTOCOL = "spark.sql.sources.commitProtocolClass"
_PARQUET = "spark.sql.parquet.output.committer.class"
_THREADS = "fs.s3a.committer.threads"
_IN_MEMORY = "fs.s3a.committer.magic.track.commits.in.memory.enabled"


def _file_output(algorithm: int) -> Mapping[str, str]:
    return {
        _PROTOCOL: "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol",
        _PARQUET: "org.apache.parquet.hadoop.ParquetOutputCommitter",
        "mapreduce.fileoutputcommitter.algorithm.version": str(algorithm),
    }


def _in_memory(wanted: bool) -> dict[str, str]:
    return {_IN_MEMORY: str(wanted).lower()}


def _s3a(name: str, settings: Mapping[str, str] | None = None) -> Mapping[str, str]:
    """Return the settings that the documentation of Spark and of Hadoop recommends for a committer."""
    return {
        _PROTOCOL: "org.apache.spark.internal.io.cloud.PathOutputCommitProtocol",
        _PARQUET: "org.apache.spark.internal.io.cloud.BindingParquetOutputCommitter",
        "fs.s3a.committer.name": name,
        # The default in the source of S3A. Hadoop's core-default.xml sets 8.
        _THREADS: "32",
        **(settings or {}),
    }


def _ours(visibility: str) -> Mapping[str, str]:
    return {_PROTOCOL: COMMIT_PROTOCOL, "spark.commitlog.visibility": visibility}


@frozen(kw_only=True)
class S3aCommitter:
    """A committer.

    Attributes:
        name: name in the tables.
        settings: settings of its session.
        of_bucket: settings of S3A for its bucket, by their usual names.
        logged: whether the output has a log that lists its files.
        hidden: whether only the log shows the files.
        completes: whether the job commit completes an upload for each file.
    """

    name: str
    settings: Mapping[str, str] = field(repr=False)
    of_bucket: Mapping[str, str] = field(factory=dict, repr=False)
    logged: bool = False
    hidden: bool = False
    completes: bool = True


#: Our plugin lets S3A keep its records in memory, which is not the default of the magic committer.
_MAGIC = S3aCommitter(
    name="magic", settings=_s3a("magic", _in_memory(False)), of_bucket=_in_memory(False)
)

COMMITTERS = (
    S3aCommitter(name="file v1", settings=_file_output(1), completes=False),
    S3aCommitter(name="file v2", settings=_file_output(2), completes=False),
    S3aCommitter(name="directory", settings=_s3a("directory")),
    _MAGIC,
    S3aCommitter(
        name="magic in memory",
        settings=_s3a("magic", _in_memory(True)),
        of_bucket=_in_memory(True),
    ),
    S3aCommitter(name="listed", settings=_ours("listed"), logged=True),
    S3aCommitter(name="logged", settings=_ours("logged"), logged=True, hidden=True, completes=False),
)

#: The committers whose failures are compared.
FAULT_COMMITTERS = (
    _MAGIC,
    # Hadoop's documentation recommends this if several jobs write to one directory.
    evolve(
        _MAGIC,
        name="magic, uploads kept",
        settings={**_MAGIC.settings, "fs.s3a.committer.abort.pending.uploads": "false"},
    ),
    S3aCommitter(name="listed", settings=_ours("listed"), logged=True),
    S3aCommitter(name="logged", settings=_ours("logged"), logged=True, hidden=True, completes=False),
)


class S3aWriter(Writer):
    """A writer to S3 with one committer, in a session and in a bucket of its own.

    Attributes:
        bucket: the bucket.
        completes: see `S3aCommitter`.
    """

    def __init__(self, spark: SparkSession, committer: S3aCommitter, bucket: str) -> None:
        super().__init__(spark)
        self.name = committer.name
        self.logged = committer.logged
        self.hidden = committer.hidden
        self.completes = committer.completes
        self.bucket = bucket
        for name, value in committer.settings.items():
            self.session.conf.set(name, value)

    def write(
        self, rows: DataFrame, path: str, *, mode: str = "append", partition_by: Sequence[str] = ()
    ) -> None:
        """Write with ``df.write.parquet`` to a path in the bucket."""
        rows.write.mode(mode).partitionBy(*partition_by).parquet(f"s3a://{self.bucket}/{path}")

    def append_once(self, rows: DataFrame, path: str, job_id: str) -> None:
        """Append `rows`, if the committer has job ids only once for each id."""
        writer = rows.write.mode("append")
        if self.logged:
            writer = writer.option("spark.commitlog.jobId", job_id)
            writer = writer.option("spark.commitlog.onDuplicate", "skip")
        writer.parquet(f"s3a://{self.bucket}/{path}")


class CommitTimes:
    """The times of job commits, as Spark's own log has them.

    Args:
        scratch: directory for the log and its configuration.
    """

    def __init__(self, scratch: Path) -> None:
        self._log = scratch / "commits.log"
        self._configuration = scratch / "log4j2.properties"
        self._configuration.write_text(
            # Without an appender, Spark takes this for no configuration.
            "rootLogger.level = off\n"
            "rootLogger.appenderRef.commits.ref = commits\n"
            "appender.commits.type = File\n"
            "appender.commits.name = commits\n"
            f"appender.commits.fileName = {self._log}\n"
            "appender.commits.layout.type = PatternLayout\n"
            "appender.commits.layout.pattern = %m%n\n"
            "logger.writer.name = org.apache.spark.sql.execution.datasources.FileFormatWriter\n"
            "logger.writer.level = info\n"
            "logger.writer.additivity = false\n"
            "logger.writer.appenderRef.commits.ref = commits\n"
        )

    @property
    def java_option(self) -> str:
        """The option of the JVM that turns the log on."""
        return f"-Dlog4j2.configurationFile={self._configuration.as_uri()}"

    def seconds(self) -> list[float]:
        """Return the seconds of each job commit so far."""
        found = re.findall(r"committed\. Elapsed time: (\d+) ms", self._log.read_text())
        return [int(milliseconds) / 1000 for milliseconds in found]


def settings_of(
    server: Server, proxy: Proxy, committers: Iterable[S3aCommitter], buckets: Mapping[str, str]
) -> dict[str, str]:
    """Return the settings with which S3A reaches a server through a proxy.

    Args:
        server: the server.
        proxy: the proxy in front of it.
        committers: the committers.
        buckets: the bucket of each committer, by name.
    """
    settings = s3a_settings(server)
    settings["spark.hadoop.fs.s3a.endpoint"] = proxy.endpoint_url
    for name in ("attempts.maximum", "retry.limit"):  # tests give up early
        del settings[f"spark.hadoop.fs.s3a.{name}"]
    for committer in committers:
        bucket = f"spark.hadoop.fs.s3a.bucket.{buckets[committer.name]}."
        for name, value in committer.of_bucket.items():
            settings[bucket + name.removeprefix("fs.s3a.")] = value
    return settings


def spark_jars() -> str:
    """Return the jars of S3A and of Spark's classes for its committers, for ``spark.jars``.

    Raises `SkipTest` if they are missing.
    """
    return ",".join(map(str, [*s3a_jars(), *hadoop_committer_jars()]))


def start_on_s3a(
    master: str,
    scratch: Path,
    settings: Mapping[str, str],
    java_options: str = "",
) -> SparkSession:
    """Start Spark in this process, for S3A only.

    Args:
        master: Spark's master URL.
        scratch: directory for its files.
        settings: how to connect to the server; see `settings_of`.
        java_options: further options of the JVM.

    Raises `SkipTest` if jars are missing.
    """
    return start(
        master,
        scratch,
        {
            **settings,
            "spark.jars": spark_jars(),
            "spark.driver.memory": "3g",
            "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={scratch} {java_options}",
            "spark.hadoop.fs.s3a.buffer.dir": str(scratch / "s3a"),
            # The file system of the staging committer's own records. It is HDFS on a cluster.
            "spark.hadoop.fs.s3a.committer.staging.tmp.path": f"file://{scratch}/staging",
        },
    )
