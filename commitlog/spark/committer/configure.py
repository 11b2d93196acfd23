"""Configuration of Spark sessions whose file writers commit with this library, and the jar for it.

The jar is compiled from the Java source in this package with Janino, which every Spark includes: no JDK
is needed. It is cached in the user's cache directory under a name with a digest of the source, and runs
on every Spark 4.
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
from commitlog.spark.committer.bridge import Committer

__all__ = ["COMMIT_PROTOCOL", "attach", "committer_jar", "configure"]

#: Value of ``spark.sql.sources.commitProtocolClass``.
COMMIT_PROTOCOL = "io.commitlog.CommitlogCommitProtocol"

_COMPILER = "org.codehaus.commons.compiler.samples.CompilerDemo"


def configure(builder: SparkSession.Builder) -> SparkSession.Builder:
    """Configure `builder` so that this library commits all files that the session writes; return it.

    This covers ``df.write.parquet(path)`` and all other file formats, ``saveAsTable``, ``INSERT`` and
    ``CREATE TABLE … AS SELECT``, for every directory that they write to. See ``docs/spark.md``::

        spark = commitlog.spark.configure(SparkSession.builder.appName("daily")).getOrCreate()

    Args:
        builder: builder of the first session of the process: Spark loads jars only when its JVM starts.
            Set other jars (``spark.jars``) before the call.

    Raises:
        ConfigurationError: the jar could not be built. ``getOrCreate`` raises it if the JVM already runs
            without the jar, and raises `NotSupported` with Spark Connect.
    """
    options: dict[str, Any] = builder._options
    jars = [jar for jar in options.get("spark.jars", "").split(",") if jar]
    builder.config("spark.jars", ",".join([*jars, str(committer_jar())]))
    builder.config("spark.sql.sources.commitProtocolClass", COMMIT_PROTOCOL)
    get_or_create = builder.getOrCreate

    def attached() -> SparkSession:
        if SparkContext._active_spark_context is not None and not is_remote():
            _driver(SparkContext._active_spark_context)  # without the jar, the settings have no effect
        spark = get_or_create()
        attach(spark)
        return spark

    builder.getOrCreate = attached  # type: ignore[method-assign]
    return builder


def attach(spark: SparkSession) -> None:
    """Commit the jobs of this application's file writers in this process. Idempotent.

    `configure` calls it. Call it yourself for a session that you configure by hand.

    Raises:
        NotSupported: the session uses Spark Connect: its driver is another process.
        ConfigurationError: Spark's JVM was started without the jar.
    """
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise NotSupported(
            "the committer runs in the driver's process, which is remote with Spark Connect: write with"
            " format('commitlog') instead"
        )
    driver = _driver(spark.sparkContext)
    ensure_callback_server_started(spark.sparkContext._gateway)  # type: ignore[no-untyped-call]
    driver.attach(Committer())


def _driver(context: SparkContext) -> Any:
    """Return the Java class that a committer is attached to."""
    gateway: Any = context._gateway
    driver = gateway.jvm.io.commitlog.Driver
    if not isinstance(driver, JavaClass):  # py4j takes the name of an unknown class for a package
        raise ConfigurationError(
            "Spark's JVM was started without the committer's jar, and cannot load it later. In a new"
            " process, start the first session with commitlog.spark.configure(builder), or add the"
            f" jar to spark.jars (--jars of spark-submit): {committer_jar()}"
        )
    return driver


def committer_jar() -> Path:
    """Return the path of the jar; build it at the first call.

    It is in the directory ``commitlog`` below ``XDG_CACHE_HOME``, by default ``~/.cache``.

    Raises `ConfigurationError` if the jar cannot be built or stored there.
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
                f"cannot store the committer's jar in {cache} ({error}): set XDG_CACHE_HOME"
            ) from error
    return jar


def _sources() -> dict[str, bytes]:
    """Return the Java sources by file name. It works for a package in a zip file too."""
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
        raise ConfigurationError("Java is missing: install Java 17 or newer, or set JAVA_HOME")
    classpath = os.pathsep.join(str(jar) for jar in sorted(jars.glob("*.jar")))
    target = ["-d", str(classes), "-classpath", classpath]
    command = [java, "-cp", f"{jars}/*", _COMPILER, *target, *(str(scratch / name) for name in sources)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = sorted(classes.rglob("*.class"))
    if done.returncode or not found:
        raise ConfigurationError(
            f"cannot compile the committer with the jars in {jars}, which must be those of Spark 4."
            f" Output of the compiler: {(done.stderr + done.stdout).strip()[-2000:]}"
        )
    jar = scratch / "commitlog.jar"
    with zipfile.ZipFile(jar, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in found:
            archive.write(file, file.relative_to(classes))
    return jar
