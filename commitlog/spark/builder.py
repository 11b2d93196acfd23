"""A Spark session with the data sources, whose workers run the same Python.

The module is not called ``session``: it would hide the function `commitlog.spark.session`.
"""

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
from commitlog.spark.datasource import CommitlogDataSource
from commitlog.spark.session_conf import register

__all__ = ["session"]


#: Default settings of a session.
_DEFAULTS: Mapping[str, str] = MappingProxyType(
    {
        "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
        "spark.redaction.regex": "(?i)secret|password|token|access[._]?key",
    }
)


def session(master: str | None = None, conf: Mapping[str, str] | None = None) -> SparkSession:
    """Return a Spark session with the formats ``commitlog`` and ``commitlog_ingest``.

    Use it for a first try, tests and notebooks. In your own program, build the session as usual; see
    ``docs/spark.md``. Settings from ``spark-submit``, its configuration files or ``conf`` stay. The
    defaults are:

    * Workers run `sys.executable`, unless ``PYSPARK_PYTHON`` is set. (Spark's own default is the first
      ``python3`` on ``PATH``, which may lack pyarrow or this package.)
    * Only the number of rows limits Arrow batches. Spark's check of their size after every row makes
      writing three times slower.
    * Spark hides the option ``access_key_id`` in plans, as it does secrets and tokens.

    Args:
        master: Spark's master URL; None: the configured one, else ``local[*]``.
        conf: further settings, such as ``{"spark.ui.enabled": "false"}``.

    Raises:
        ConfigurationError: Java is missing.

    If the process has a session already, it is returned, with those settings that can still be changed.
    """
    if not (shutil.which("java") or os.environ.get("JAVA_HOME")):
        raise ConfigurationError(
            "Spark needs Java 17 or 21, but 'java' is not on the PATH and JAVA_HOME is not set:"
            " install it (Debian, Ubuntu: apt-get install openjdk-17-jre-headless;"
            " macOS: brew install openjdk@17)"
        )
    # Import here: all workers import this package, and few of them read ingest formats.
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
        register(spark, source)
    return spark


def _configured(wanted: Mapping[str, str]) -> set[str]:
    """Return the names of the settings that Spark has before its session is built.

    Spark's JVM reads the configuration files and options of spark-submit. Start it here, with the
    settings `wanted`, if it does not run yet.
    """
    conf = SparkConf(loadDefaults=False)
    for name, value in wanted.items():
        conf.set(name, value)
    SparkContext._ensure_initialized(conf=conf)
    running = SparkContext._active_spark_context
    return {name for name, _ in (SparkConf() if running is None else running.getConf()).getAll()}
