"""The command ``spark jar``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from click.testing import CliRunner, Result

from commitlog.cli import main
from commitlog.cli import spark as commands
from commitlog.spark_jar import jar_name


def run(*words: str) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(main, ["spark", "jar", *words], catch_exceptions=False)


@pytest.fixture(autouse=True)
def _no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Store a text in place of a jar, and work in an empty directory."""

    def build_jar(path: Path) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("a jar")
        return path

    monkeypatch.setattr(commands, "build_jar", build_jar)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("output", "path"),
    [
        (["--output", "other.jar"], "other.jar"),
        (["--output", "spark/jars"], f"spark/jars/{jar_name()}"),
        (["--output", "spark/jars/"], f"spark/jars/{jar_name()}"),
        ([], jar_name()),
    ],
)
def test_the_output_is_a_file_or_a_directory(tmp_path: Path, output: list[str], path: str) -> None:
    """A path that ends with .jar is a file. In a directory, the name has a digest."""
    done = run("--spark", "3.5", *output)
    assert (done.exit_code, done.stdout) == (0, f"{path}\n")
    assert (tmp_path / path).is_file()


def test_a_present_directory_may_be_called_like_a_jar(tmp_path: Path) -> None:
    """The jar is stored in it."""
    (tmp_path / "all.jar").mkdir()
    assert run("--output", "all.jar").stdout == f"all.jar/{jar_name()}\n"


def test_a_spark_that_is_not_supported_is_wrong_usage(tmp_path: Path) -> None:
    """Nothing is built, and the error lists the supported versions."""
    done = run("--spark", "3.4", "--output", "a.jar")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "does not run on Spark 3.4, only on 3.5, 4.0" in done.stderr
    assert not list(tmp_path.iterdir())


def test_json(tmp_path: Path) -> None:
    """The path is printed as an object."""
    assert json.loads(run("--json", "--output", "a.jar").stdout) == {"path": "a.jar"}
    assert json.loads(run("--json", "--spark", "2.4").stderr)["error"] == "NotSupported"


@pytest.mark.all
def test_the_jar_is_built_without_pyspark(tmp_path: Path) -> None:
    """An installation of Spark and Java suffice."""
    code = (
        "import sys; sys.modules |= {'pyspark': None, 'pyarrow': None};"
        "from commitlog.cli import main; main(['spark', 'jar', '--output', 'built'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "SPARK_HOME": str(Path(pyspark.__file__).parent)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, f"built/{jar_name()}\n"), done.stderr
    assert (tmp_path / "built" / jar_name()).read_bytes().startswith(b"PK")
