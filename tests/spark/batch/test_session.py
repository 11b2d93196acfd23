"""The session helper, and how Spark finds the format."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

from commitlog.errors import ConfigurationError
from commitlog.spark import session
from support.project import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Spark finds modules with `pkgutil`, which does not list every installed module.
_ELSEWHERE = """
from commitlog.spark import session

for _ in range(2):
    spark = session("local[1]", {"spark.ui.enabled": "false"})
spark.range(3).write.format("commitlog").mode("append").save("out")
print(spark.read.format("commitlog").load("out").count())
"""


#: Prints the settings of a session.
_SUBMITTED = """
import json
import commitlog.spark

spark = commitlog.spark.session()
names = ("spark.master", "spark.redaction.regex", "spark.sql.execution.arrow.maxBytesPerBatch")
print(json.dumps({name: spark.conf.get(name) for name in names}))
"""


def _submitted(tmp_path: Path, *command: str) -> dict[str, str]:
    script = tmp_path / "job.py"
    script.write_text(_SUBMITTED)
    done = subprocess.run(
        [*command, str(script)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    settings: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return settings


@pytest.mark.spark
@pytest.mark.campaign
def test_settings_of_spark_submit_are_kept(tmp_path: Path) -> None:
    """The master and the settings of spark-submit apply to the session."""
    given = {
        "spark.master": "local[1,3]",
        "spark.redaction.regex": "mine",
        "spark.sql.execution.arrow.maxBytesPerBatch": "1048576",
    }
    submit = Path(pyspark.__file__).parent / "bin/spark-submit"
    options = [f"--conf={name}={value}" for name, value in given.items()]
    assert _submitted(tmp_path, str(submit), *options, "--conf=spark.ui.enabled=false") == given


@pytest.mark.spark
@pytest.mark.campaign
def test_an_unconfigured_session_is_local(tmp_path: Path) -> None:
    """The session of a plain script uses all cores of the machine and the recommended settings."""
    assert _submitted(tmp_path, sys.executable) == {
        "spark.master": "local[*]",
        "spark.redaction.regex": "(?i)secret|password|token|access[._]?key",
        "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    }


#: Writes with the library from a zip file; Spark's workers have no other copy.
_ZIPPED = """
import sys
import commitlog
from pyspark.sql import SparkSession

assert ".zip" in commitlog.__file__, commitlog.__file__
spark = SparkSession.builder.getOrCreate()
spark.range(4).write.parquet(sys.argv[1] + "/plain")
assert commitlog.spark.write(spark.range(3), sys.argv[1] + "/out").rows == 3
print(spark.read.format("commitlog").load(sys.argv[1] + "/plain").count())
"""


def _zip(target: Path, package: Path) -> None:
    """Pack the Python and Java files of a package into a zip file."""
    with zipfile.ZipFile(target, "w") as packed:
        for file in package.rglob("*"):
            if file.suffix in (".py", ".java"):
                packed.write(file, file.relative_to(package.parent))


@pytest.mark.spark
@pytest.mark.all
def test_the_library_works_from_a_zip_file(tmp_path: Path) -> None:
    """With --py-files, `write` finds the format, and the committer finds its source."""
    _zip(tmp_path / "library.zip", ROOT / "commitlog")
    (tmp_path / "job.py").write_text(_ZIPPED)
    environ = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    zipped = {"PYTHONPATH": str(tmp_path / "library.zip")}
    built = "import commitlog; print(commitlog.spark.committer_jar(), commitlog.__file__)"
    jar, where = subprocess.run(
        [sys.executable, "-c", built],
        env={**environ, **zipped},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout.split()
    assert "library.zip" in where
    submit = Path(pyspark.__file__).parent / "bin/spark-submit"
    options = ["--master=local[1]", "--conf=spark.ui.enabled=false", "--py-files=library.zip"]
    protocol = "--conf=spark.plugins=io.commitlog.CommitlogPlugin"
    done = subprocess.run(
        [submit, *options, f"--jars={jar}", protocol, "job.py", str(tmp_path)],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    assert done.stdout.splitlines()[-1] == "4"


def test_botocore_in_a_zip_file_is_refused(tmp_path: Path) -> None:
    """botocore cannot read its data files there, and the error names the alternative."""
    import botocore

    _zip(tmp_path / "botocore.zip", Path(botocore.__file__).parent)
    code = "import commitlog; commitlog.connect('s3://bucket/out').head('a')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(tmp_path / "botocore.zip"), str(ROOT)]),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    last = done.stderr.splitlines()[-1]
    assert "ConfigurationError: botocore is imported from a zip file" in last and "--archives" in last


@pytest.mark.parametrize(
    ("found", "what", "needed"),
    [
        ("3.4.4", "from commitlog.spark import configure", "3.5"),
        ("3.5.6", "import commitlog; commitlog.spark.write", "4.0"),
        ("3.5.6", "from commitlog.spark import read", "4.0"),
        ("3.5.6", "from commitlog.spark import compact", "4.0"),
        ("3.5.6", "from commitlog.spark import session", "4.0"),
        ("3.5.6", "from commitlog.spark import physical_files", "4.0"),
        ("3.5.6", "from commitlog.spark import CommitlogDataSource", "4.0"),
        ("3.5.6", "from commitlog.spark.ingest import IngestDataSource", "4.0"),
        ("3.6.0.dev1", "from commitlog.spark.ingest import IngestListener", "4.0"),
        ("3.5.6", "import pyspark_commitlog", "4.0"),
        ("3.5.6", "import pyspark_commitlog_ingest", "4.0"),
    ],
)
def test_an_older_pyspark_is_refused(tmp_path: Path, found: str, what: str, needed: str) -> None:
    """The error names the required version instead of a module that an older Spark lacks."""
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark/__init__.py").write_text(f"__version__ = {found!r}\n")
    last = _refused(tmp_path, what)
    assert last.startswith("commitlog.errors.NotSupported: commitlog.spark"), last
    assert f" needs PySpark {needed} or newer, and this is PySpark {found}" in last


@pytest.mark.parametrize(
    "code",
    [
        "import commitlog; commitlog.spark.write",
        "from commitlog.spark.ingest import IngestDataSource",
        "from commitlog.spark.options import OptionReader",
    ],
)
def test_every_use_without_pyspark_names_the_extra(tmp_path: Path, code: str) -> None:
    """Using a name and importing a module raise the same error."""
    last = _refused(tmp_path, f"import sys; sys.modules['pyspark'] = None; {code}")
    assert last == "ImportError: commitlog.spark needs pyspark: pip install 'commitlog-store[spark]'"


def _refused(tmp_path: Path, code: str) -> str:
    """Return the last line of the errors of Python running `code`."""
    root = str(ROOT)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), root])},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stderr.splitlines()[-1]


def test_the_error_without_java_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line names the missing package, where Spark prints a page of JVM errors."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(ConfigurationError, match=r"Spark needs Java 17 or 21.*apt-get install"):
        session()


@pytest.mark.spark
@pytest.mark.all
def test_the_format_registers_itself(spark: SparkSession, tmp_path: Path) -> None:
    """A new session knows the format without a registration."""
    fresh = spark.newSession()
    fresh.range(3).write.format("commitlog").mode("append").save(str(tmp_path / "out"))
    assert fresh.read.format("commitlog").load(str(tmp_path / "out")).count() == 3


@pytest.mark.spark
@pytest.mark.campaign
def test_an_editable_install_knows_the_format(tmp_path: Path) -> None:
    """The session registers the format also where Spark does not see the module, without a warning."""
    ended = subprocess.run(
        [sys.executable, "-c", _ELSEWHERE], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.stdout.split() == ["3"], ended.stderr
    assert "DataSourceManager" not in ended.stderr
