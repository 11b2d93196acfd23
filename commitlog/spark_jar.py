"""The jar of the committer for Spark's own file writers.

It is compiled from the Java source in ``commitlog/spark/committer/java`` with Janino, which every Spark
includes: no JDK is needed. The jar has a name with a digest of its source. One jar runs on all supported
Sparks, with any Scala.

A module of its own outside of `commitlog.spark`, which cannot be imported without PySpark: any
installation of Spark can build the jar.
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
from importlib.util import find_spec
from pathlib import Path

from commitlog.errors import ConfigurationError, NotSupported

__all__ = ["SPARKS", "build_jar", "check_spark", "committer_jar", "jar_name"]

#: The versions of Spark on which the jar runs, from the oldest.
SPARKS = ("3.5", "4.0", "4.1", "4.2", "4.3")

#: Names of jars of this library.
_JARS = "commitlog-spark*.jar"

#: The classes that Spark finds by the names of their formats, and the file that names them.
_FORMATS = "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister"
_CLASSES = "io.commitlog.IngestProvider\n"

_COMPILER = "org.codehaus.commons.compiler.samples.CompilerDemo"

#: The date of the files in the jar, so that the same source gives the same jar.
_DATE = (2026, 1, 1, 0, 0, 0)


def committer_jar() -> Path:
    """Return the path of the jar; build it if there is none for this version of the library.

    A jar that was built ahead (``commitlog spark jar``) is taken from ``SPARK_HOME/jars``. Others are in
    the directory ``commitlog`` below ``XDG_CACHE_HOME``, by default ``~/.cache``. A jar with another
    source has another name.

    Raises `ConfigurationError` if the jar cannot be built or stored there.
    """
    name = jar_name()
    cached = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "commitlog" / name
    home = os.environ.get("SPARK_HOME")
    ahead = [Path(home, "jars", name)] if home else []
    present = [jar for jar in (*ahead, cached) if jar.is_file()]
    return present[0] if present else build_jar(cached)


def check_spark(version: str) -> None:
    """Raise `NotSupported` if the jar does not run on a version of Spark, such as ``3.5.1``."""
    if ".".join(version.split(".")[:2]) not in SPARKS:
        raise NotSupported(f"the committer does not run on Spark {version}, only on {', '.join(SPARKS)}")


def jar_name() -> str:
    """Return the file name of the jar for the source in this version of the library."""
    digest = hashlib.sha256(b"\0".join([*_sources().values(), _CLASSES.encode()])).hexdigest()
    return f"commitlog-spark-{digest[:16]}.jar"


def build_jar(path: Path, spark_home: Path | None = None) -> Path:
    """Build the jar at `path`, and return it. A present file is replaced in one step.

    Args:
        path: where the jar is stored.
        spark_home: directory of a Spark of any supported version, whose compiler and classes are used;
            None: ``SPARK_HOME``, or else that of the installed PySpark.

    Raises `ConfigurationError` if there is no Spark or no Java, or if the jar cannot be stored.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
            return _build(_sources(), Path(scratch), spark_home or _spark_home()).replace(path)
    except OSError as error:
        raise ConfigurationError(
            f"cannot store the committer's jar in {path.parent} ({error}): set XDG_CACHE_HOME, or give"
            " another path"
        ) from error


def _sources() -> dict[str, bytes]:
    """Return the Java sources by file name. It works for a package in a zip file too."""
    directory = resources.files(__package__).joinpath("spark", "committer", "java", "io", "commitlog")
    found = {each.name: each.read_bytes() for each in directory.iterdir() if each.name.endswith(".java")}
    return dict(sorted(found.items()))


def _spark_home() -> Path:
    if home := os.environ.get("SPARK_HOME"):
        return Path(home)
    pyspark = find_spec("pyspark")
    if pyspark is not None and pyspark.origin is not None:
        package = Path(pyspark.origin).parent
        # The package has the jars of Spark, or is in the directory python of an installation.
        for place in (package, package.parents[1]):
            if (place / "jars").is_dir():
                return place
    raise ConfigurationError(
        "there is no Spark to compile the committer with: set SPARK_HOME, or install pyspark"
    )


def _build(sources: Mapping[str, bytes], scratch: Path, spark_home: Path) -> Path:
    jars = spark_home / "jars"
    classes = scratch / "classes"
    classes.mkdir()
    for name, source in sources.items():
        (scratch / name).write_bytes(source)
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else None)
    if java is None:
        raise ConfigurationError("Java is missing: install Java 17 or newer, or set JAVA_HOME")
    # Janino prefers classes of the path to those of the source: leave out a jar of another version.
    path = sorted(set(jars.glob("*.jar")) - set(jars.glob(_JARS)))
    classpath = os.pathsep.join(map(str, path))
    target = ["-d", str(classes), "-classpath", classpath]
    command = [java, "-cp", f"{jars}/*", _COMPILER, *target, *(str(scratch / name) for name in sources)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = sorted(classes.rglob("*.class"))
    if done.returncode or not found:
        raise ConfigurationError(
            f"cannot compile the committer with the jars in {jars}, which must be those of Spark 3.5 or"
            f" newer. Output of the compiler: {(done.stderr + done.stdout).strip()[-2000:]}"
        )
    jar = scratch / "commitlog.jar"
    with zipfile.ZipFile(jar, "w", zipfile.ZIP_DEFLATED) as archive:
        content = {str(file.relative_to(classes)): file.read_bytes() for file in found}
        for name, data in {**content, _FORMATS: _CLASSES.encode()}.items():
            entry = zipfile.ZipInfo(name, _DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return jar
