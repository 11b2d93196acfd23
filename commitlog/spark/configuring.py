"""Spark's own file writers, committed by this library: what has to be set, and the jar that it takes.

The jar is built from the Java source in this package, by the compiler that every Spark brings
(Janino): no JDK is needed. It is kept in the user's cache directory, under a name that is made of the
source, and runs on every Spark 4.

Imports the committer and errors; pyspark from outside.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from py4j.java_gateway import JavaClass
from pyspark import SparkContext
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from commitlog.errors import ConfigurationError, NotSupported
from commitlog.spark.committer import Committer

__all__ = ["COMMIT_PROTOCOL", "attach", "committer_jar", "configure"]

#: Value of ``spark.sql.sources.commitProtocolClass``.
COMMIT_PROTOCOL = "io.commitlog.CommitlogCommitProtocol"

_COMPILER = "org.codehaus.commons.compiler.samples.CompilerDemo"


def configure(builder: SparkSession.Builder) -> SparkSession.Builder:
    """Have every file that the session writes committed by this library, and return `builder`.

    That is ``df.write.parquet(path)`` and all other formats, ``saveAsTable``, ``INSERT`` and
    ``CREATE TABLE … AS SELECT``, for every directory that they write to. See ``docs/spark.md``::

        spark = commitlog.spark.configure(SparkSession.builder.appName("daily")).getOrCreate()

    Args:
        builder: of the first session of the process: Spark takes a jar only when its JVM starts. Name
            other jars (``spark.jars``) before.

    Raises:
        ConfigurationError: the jar could not be built. ``getOrCreate`` raises it if the JVM runs
            already, without the jar, and `NotSupported` for Spark Connect.
    """
    given: dict[str, Any] = builder._options
    jars = [jar for jar in given.get("spark.jars", "").split(",") if jar]
    builder.config("spark.jars", ",".join([*jars, str(committer_jar())]))
    builder.config("spark.sql.sources.commitProtocolClass", COMMIT_PROTOCOL)
    get_or_create = builder.getOrCreate

    def attached() -> SparkSession:
        if SparkContext._active_spark_context is not None and not is_remote():
            _driver(SparkContext._active_spark_context)  # or it would be given settings to no purpose
        spark = get_or_create()
        attach(spark)
        return spark

    builder.getOrCreate = attached  # type: ignore[method-assign]
    return builder


def attach(spark: SparkSession) -> None:
    """Have the commits of this application's file writers done in this process. Idempotent.

    `configure` does it. Call it yourself for a session that was set up by hand.

    Raises:
        NotSupported: the session is one of Spark Connect: its driver is elsewhere.
        ConfigurationError: the jar is not there.
    """
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise NotSupported(
            "the committer runs in the driver's process, and Spark Connect has none here: write with"
            " format('commitlog') instead"
        )
    driver = _driver(spark.sparkContext)
    ensure_callback_server_started(spark.sparkContext._gateway)  # type: ignore[no-untyped-call]
    driver.attach(Committer())


def _driver(context: SparkContext) -> Any:
    """Return the Java class that a committer is attached to."""
    gateway: Any = context._gateway
    driver = gateway.jvm.io.commitlog.Driver
    if not isinstance(driver, JavaClass):  # a name that leads to no class is taken for a package
        raise ConfigurationError(
            "Spark's JVM was started without the committer's jar, and takes none later. In a new"
            " process, start the first session with commitlog.spark.configure(builder), or name the"
            f" jar in spark.jars, which is --jars of spark-submit: {committer_jar()}"
        )
    return driver


def committer_jar() -> Path:
    """Return the path of the jar, which is built at the first call.

    It is in ``commitlog`` below ``XDG_CACHE_HOME``, by default ``~/.cache``.

    Raises `ConfigurationError` if it cannot be built, or cannot be kept there.
    """
    sources = _sources()
    digest = hashlib.sha256(b"\0".join(sources.values())).hexdigest()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "commitlog"
    jar = cache / f"commitlog-spark-{digest[:16]}.jar"
    if not jar.exists():
        try:
            cache.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=cache) as scratch:
                _build(sources, Path(scratch)).replace(jar)
        except OSError as error:
            raise ConfigurationError(
                f"the committer's jar cannot be kept in {cache} ({error}): set XDG_CACHE_HOME"
            ) from error
    return jar


def _sources() -> dict[str, bytes]:
    """Return the Java source by name; the package may have been imported from a zip file."""
    directory = resources.files(__package__).joinpath("java", "io", "commitlog")
    found = {each.name: each.read_bytes() for each in directory.iterdir() if each.name.endswith(".java")}
    return dict(sorted(found.items()))


def _build(sources: Mapping[str, bytes], scratch: Path) -> Path:
    jars = Path(_find_spark_home()) / "jars"
    classes = scratch / "classes"
    classes.mkdir()
    for name, source in sources.items():
        (scratch / name).write_bytes(source)
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else None)
    if java is None:
        raise ConfigurationError("there is no Java: install Java 17 or newer, or set JAVA_HOME to it")
    classpath = os.pathsep.join(str(jar) for jar in sorted(jars.glob("*.jar")))
    target = ["-d", str(classes), "-classpath", classpath]
    command = [java, "-cp", f"{jars}/*", _COMPILER, *target, *(str(scratch / name) for name in sources)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = sorted(classes.rglob("*.class"))
    if done.returncode or not found:
        raise ConfigurationError(
            f"the committer could not be compiled with the jars in {jars}; that takes Spark 4."
            f" The compiler says: {(done.stderr + done.stdout).strip()[-2000:]}"
        )
    jar = scratch / "commitlog.jar"
    with zipfile.ZipFile(jar, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in found:
            archive.write(file, file.relative_to(classes))
    return jar
