"""The session helper, and how Spark comes to know the format."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from commitlog.errors import ConfigurationError
from commitlog.spark import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Spark finds modules as `pkgutil` lists them, and that is not how all installed ones are found.
_ELSEWHERE = """
from commitlog.spark import session

for _ in range(2):
    spark = session("local[1]", {"spark.ui.enabled": "false"})
spark.range(3).write.format("commitlog").mode("append").save("out")
print(spark.read.format("commitlog").load("out").count())
"""


def test_without_java_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Spark would fail with a page of JVM start-up, one line says what is missing."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(ConfigurationError, match=r"Spark needs Java 17 or 21.*apt-get install"):
        session()


@pytest.mark.spark
def test_the_format_registers_itself(spark: SparkSession, tmp_path: Path) -> None:
    """A session in which nobody registered anything knows the format."""
    fresh = spark.newSession()
    fresh.range(3).write.format("commitlog").mode("append").save(str(tmp_path / "out"))
    assert fresh.read.format("commitlog").load(str(tmp_path / "out")).count() == 3


@pytest.mark.spark
def test_a_session_knows_the_format_wherever_it_is_started(tmp_path: Path) -> None:
    """Also where Spark does not see the module, as of an editable install; and it says nothing of it."""
    ended = subprocess.run(
        [sys.executable, "-c", _ELSEWHERE], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.stdout.split() == ["3"], ended.stderr
    assert "DataSourceManager" not in ended.stderr
