"""The jar of the committer: where it is found, and how it is built."""

from __future__ import annotations

import re
import sys
import zipfile
from pathlib import Path

import pyspark
import pytest

from commitlog.errors import ConfigurationError, NotSupported
from commitlog.spark_jar import SPARKS, build_jar, check_spark, committer_jar, jar_name


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The ``SPARK_HOME``: a Spark without jars. The cache is empty, too."""
    (tmp_path / "spark/jars").mkdir(parents=True)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "spark"


def test_a_jar_in_spark_home_is_found_by_its_name(home: Path, tmp_path: Path) -> None:
    """It is taken before one in the cache. A jar of another source is ignored."""
    cached = tmp_path / "cache/commitlog" / jar_name()
    cached.parent.mkdir(parents=True)
    cached.touch()
    (home / "jars/commitlog-spark-0123456789abcdef.jar").touch()
    assert committer_jar() == cached
    ahead = home / "jars" / jar_name()
    ahead.touch()
    assert committer_jar() == ahead


def test_without_a_compiler_there_is_an_error(home: Path) -> None:
    """It says that the jars of Spark are missing, and nothing is stored."""
    with pytest.raises(
        ConfigurationError, match=r"cannot compile the committer with the jars in .*jars"
    ):
        committer_jar()
    assert not [path for path in home.parent.rglob("*") if path.is_file()]


def test_without_a_spark_the_error_says_what_to_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """There is neither ``SPARK_HOME`` nor PySpark."""
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(ConfigurationError, match="set SPARK_HOME, or install pyspark"):
        build_jar(tmp_path / "a.jar")


def test_an_installation_is_found_by_its_pyspark(
    home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without ``SPARK_HOME``, if PySpark is imported from its directory python."""
    package = home / "python/pyspark"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    monkeypatch.delenv("SPARK_HOME")
    monkeypatch.delitem(sys.modules, "pyspark")
    monkeypatch.syspath_prepend(package.parent)
    with pytest.raises(ConfigurationError, match=re.escape(f"with the jars in {home / 'jars'}")):
        build_jar(tmp_path / "a.jar")


@pytest.mark.all
def test_a_jar_of_another_version_does_not_take_part_in_the_build(home: Path, tmp_path: Path) -> None:
    """The jar is the same as without it."""
    for jar in Path(pyspark.__file__).parent.glob("jars/*.jar"):
        (home / "jars" / jar.name).symlink_to(jar)
    clean = build_jar(tmp_path / "clean.jar").read_bytes()
    with zipfile.ZipFile(home / "jars/commitlog-spark-0123456789abcdef.jar", "w") as other:
        other.writestr("io/commitlog/CommitException.class", b"not a class")
    assert build_jar(tmp_path / "again.jar").read_bytes() == clean


@pytest.mark.parametrize("version", [*SPARKS, "3.5.1", "4.0.1-amzn-0"])
def test_supported_sparks_are_accepted(version: str) -> None:
    """With or without the number of the patch."""
    check_spark(version)


@pytest.mark.parametrize("version", ["3.4.4", "4", "5.0.0", ""])
def test_other_sparks_are_refused(version: str) -> None:
    """The error lists the supported ones."""
    with pytest.raises(NotSupported, match=r"only on 3\.5, 4\.0, 4\.1, 4\.2, 4\.3"):
        check_spark(version)
