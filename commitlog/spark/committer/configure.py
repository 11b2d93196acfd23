"""Configuration of Spark sessions whose file writers commit with this library.

A module of its own, because the jar can be built where there is no PySpark.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from py4j.java_gateway import JavaClass
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from commitlog.errors import ConfigurationError, NotSupported
from commitlog.spark_jar import committer_jar

__all__ = ["COMMIT_PROTOCOL", "PLUGIN", "configure"]

#: Value of ``spark.sql.sources.commitProtocolClass``. The plugin sets it.
COMMIT_PROTOCOL = "io.commitlog.CommitlogCommitProtocol"

#: The class for ``spark.plugins``.
PLUGIN = "io.commitlog.CommitlogPlugin"


def configure(builder: SparkSession.Builder) -> SparkSession.Builder:
    """Configure `builder` so that this library commits all files that the session writes; return it.

    This covers ``df.write.parquet(path)`` and all other file formats, ``saveAsTable``, ``INSERT`` and
    ``CREATE TABLE … AS SELECT``, for every directory that they write to. See ``docs/spark.md``::

        spark = commitlog.spark.configure(SparkSession.builder.appName("daily")).getOrCreate()

    It adds the jar to ``spark.jars`` and the plugin to ``spark.plugins``, and names this interpreter in
    ``spark.commitlog.python``, unless that is set. Drivers without Python do the same with settings.

    Args:
        builder: builder of the first session of the process: Spark loads jars only when its JVM starts.
            Set other jars (``spark.jars``) and plugins before the call. Those of spark-submit stay.

    Raises:
        ConfigurationError: the jar could not be built. ``getOrCreate`` raises it if the JVM already runs
            without the jar.
        NotSupported: ``getOrCreate`` raises it with Spark Connect, whose server must be configured.
    """
    options: dict[str, Any] = builder._options
    submitted = _submitted()
    for name, value in ("spark.jars", str(committer_jar())), ("spark.plugins", PLUGIN):
        present = [each for each in options.get(name, submitted.get(name, "")).split(",") if each]
        builder.config(name, ",".join(dict.fromkeys([*present, value])))
    builder.config("spark.sql.sources.commitProtocolClass", COMMIT_PROTOCOL)
    present_python = submitted.get("spark.commitlog.python", sys.executable)
    builder.config("spark.commitlog.python", options.get("spark.commitlog.python", present_python))
    get_or_create = builder.getOrCreate

    def checked() -> SparkSession:
        if is_remote() or "spark.remote" in options:
            raise NotSupported(
                "the committer belongs to the driver, which is the server with Spark Connect:"
                " configure the server with the jar (spark.jars) and the plugin (spark.plugins), and use"
                " its sessions as they are"
            )
        if SparkContext._active_spark_context is not None:
            _check(SparkContext._active_spark_context)  # without the jar, the settings have no effect
        spark = get_or_create()
        _check(spark.sparkContext)
        return spark

    builder.getOrCreate = checked  # type: ignore[method-assign]
    return builder


def _submitted() -> dict[str, str]:
    """Return the settings of spark-submit; empty for a driver whose JVM does not run yet."""
    # The JVM must not start here: the jar would be missing in its class path.
    has_jvm = SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ
    if not has_jvm:
        return {}
    SparkContext._ensure_initialized()  # connects to the JVM
    return dict(SparkConf().getAll())


def _check(context: SparkContext) -> None:
    """Raise `ConfigurationError` unless the JVM has the jar."""
    gateway: Any = context._gateway
    # py4j takes the name of an unknown class for a package.
    if not isinstance(gateway.jvm.io.commitlog.CommitlogPlugin, JavaClass):
        raise ConfigurationError(
            "Spark's JVM was started without the committer's jar, and cannot load it later. In a new"
            " process, start the first session with commitlog.spark.configure(builder), or add the"
            f" jar to spark.jars (--jars of spark-submit): {committer_jar()}"
        )
