"""A Spark session whose workers run this very Python, and that knows the data source."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from types import MappingProxyType

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from commitlog.errors import ConfigurationError
from commitlog.spark.sessions import register
from commitlog.spark.source import CommitlogDataSource

__all__ = ["session"]


#: Settings that a session gets unless they are configured.
_DEFAULTS: Mapping[str, str] = MappingProxyType(
    {
        "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
        "spark.redaction.regex": "(?i)secret|password|token|access[._]?key",
    }
)


def session(master: str | None = None, conf: Mapping[str, str] | None = None) -> SparkSession:
    """Return a Spark session that knows the formats ``commitlog`` and ``commitlog_ingest``.

    It is for a first try, tests and notebooks. In a program of your own, build the session as you are
    used to; see ``docs/spark.md``. What is configured stays, by ``spark-submit``, its configuration
    files or ``conf``; where nothing is:

    * workers run `sys.executable` (Spark would take the first ``python3`` on ``PATH``, where neither
      pyarrow nor this package need be), unless ``PYSPARK_PYTHON`` says otherwise;
    * Spark sizes Arrow batches by rows alone, since its check of the size after every row makes writing
      three times slower;
    * Spark hides the option ``access_key_id`` in plans, too, as it does secrets and tokens.

    Args:
        master: Spark's master URL; None: the configured one, or ``local[*]`` if there is none.
        conf: further settings, such as ``{"spark.ui.enabled": "false"}``.

    Raises:
        ConfigurationError: there is no Java to run Spark with.

    An existing session of the process is returned, with the settings that can still be changed.
    """
    if not (shutil.which("java") or os.environ.get("JAVA_HOME")):
        raise ConfigurationError(
            "Spark needs Java 17 or 21, and neither is 'java' on the PATH nor JAVA_HOME set:"
            " install it (Debian, Ubuntu: apt-get install openjdk-17-jre-headless;"
            " macOS: brew install openjdk@17)"
        )
    # All workers import this package; few of them need these formats of files.
    from commitlog.spark.ingest import IngestDataSource

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    wanted = {**({} if master is None else {"spark.master": master}), **(conf or {})}
    configured = set() if is_remote() else _configured(wanted)
    defaults = {name: value for name, value in _DEFAULTS.items() if name not in configured}
    builder = SparkSession.builder
    for name, value in {**defaults, **wanted}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    for source in (CommitlogDataSource, IngestDataSource):
        if is_remote():  # it cannot be asked, and the warning goes to the server
            spark.dataSource.register(source)
        else:
            register(spark, source)
    return spark


def _configured(wanted: Mapping[str, str]) -> set[str]:
    """Return the names of the settings that Spark has before its session is built.

    Spark's JVM reads the files and options of spark-submit. It is started here, with the settings
    `wanted`, if it does not run yet.
    """
    given = SparkConf(loadDefaults=False)
    for name, value in wanted.items():
        given.set(name, value)
    SparkContext._ensure_initialized(conf=given)
    running = SparkContext._active_spark_context
    return {name for name, _ in (SparkConf() if running is None else running.getConf()).getAll()}
