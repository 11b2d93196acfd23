"""The committer with every supported Spark, each in an environment of its own, with one jar for all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyspark
import pytest
from attrs import frozen

import commitlog
from commitlog.outputs import Output
from commitlog.spark.versions import DATA_SOURCES
from commitlog.spark_jar import build_jar
from support.environments import run_process, run_with, set_up, set_up_python
from support.s3a import HADOOP, s3a_jars, s3a_settings
from support.selection import in_campaigns
from support.servers import Seaweedfs

pytestmark = [
    pytest.mark.all,
    pytest.mark.servers,
    pytest.mark.spark,
    # Each Spark starts only once.
    pytest.mark.timeout(900),
]


@frozen(kw_only=True)
class Installation:
    """An installed Spark.

    Attributes:
        spark: its major and minor version.
        scala: the major and minor version of its Scala.
        environment: the environment of its Python.
        home: the directory of its jars, if those are not in the environment.
        configured: whether Python configures the session, instead of settings.
        avro: the directory of the jar with its reader of Avro; "" if it is in Spark, None if missing.
    """

    spark: str
    scala: str = "2.13"
    environment: str
    home: str | None = None
    configured: bool = False
    avro: str | None = ""

    @property
    def name(self) -> str:
        """The name of the case."""
        return f"{self.spark}-scala-{self.scala}"

    def python(self) -> Path:
        """Return its Python; skip the test if it is missing."""
        return set_up_python(self.environment)

    def spark_home(self) -> Path:
        """Return the directory that has its jars; skip the test if it is missing."""
        if self.home is not None:
            return set_up(self.home)
        return next((self.python().parents[1] / "lib").glob("python3.*/site-packages/pyspark"))


INSTALLATIONS = [
    Installation(
        spark="3.5", scala="2.12", environment="spark-3.5", avro="spark-avro-3.5", configured=True
    ),
    Installation(spark="3.5", environment="spark-3.5", home="spark-3.5-scala-2.13", avro=None),
    Installation(spark="4.0", environment="spark-4.0", configured=True),
    Installation(spark="4.1", environment="spark-4.1"),
    Installation(spark="4.2", environment="floors"),
    Installation(spark="4.3", environment="."),
]

#: The formats of files that a Spark ingests.
FORMATS = ["parquet", "orc", "json", "csv", "text", "avro"]
ENDS = ("3.5-scala-2.12", "4.3-scala-2.13")

#: Sparks with which test_formats.py runs the committer in a directory, in each run with ``--all``.
ELSEWHERE = ("4.0", "4.2")

#: What each output has after the steps, except for errors.
ROUND: dict[str, Any] = {
    "written": [0, 1, 2, 3, 4, 5],
    "appended": [0, 1, 2, 3, 4, 5, 6, 7],
    "after the failure": [0, 1, 2, 3, 4, 5, 6, 7],
    "partitions overwritten": [0, 2, 4, 6, 21, 23],
    "overwritten": [30, 31, 32, 33],
    "appended at once": [30, 31, 32, 33, 40, 41, 50, 51],
    "versions": ["error", "append", "overwrite-partitions", "overwrite", "append", "append"],
    "staged": [],
}

#: The same for tables.
TABLES: dict[str, Any] = {
    "inserted": [0, 1, 2, 3, 4, 5],
    "partition overwritten": [0, 2, 4, 10, 11],
    "saved": [0, 2],
    "log of parts": ["append", "append", "overwrite-partitions"],
    "log of saved": ["append", "append"],
}


@pytest.fixture(scope="module")
def jar_of_newest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The committer's jar from the compiler of the newest Spark."""
    return build_jar(tmp_path_factory.mktemp("jar") / "newest.jar", Path(pyspark.__path__[0]))


def rounds() -> list[Any]:
    """Return each installation with the formats that it ingests, from a directory and through S3A.

    With ``--all``, the oldest and the newest Spark have the whole round; the others, except for those of
    `ELSEWHERE`, write an output through S3A and ingest one format from a directory. Campaigns have the
    whole round of each.
    """
    cases = []
    for each in INSTALLATIONS:
        is_end = each.name in ENDS
        many = FORMATS if is_end else ["parquet", "json", "avro"]
        known = [name for name in many if name != "avro" or each.avro is not None]
        whole = (each, {"local": known, "s3a": ["parquet", "json"]})
        if is_end:
            cases.append(pytest.param(*whole, id=each.name))
        else:
            if each.spark not in ELSEWHERE:
                cases.append(pytest.param(each, {"local": ["parquet"]}, id=each.name))
            cases.append(pytest.param(*whole, marks=pytest.mark.campaign, id=f"{each.name}-whole"))
    return cases


@pytest.mark.parametrize(("installation", "formats"), rounds())
def test_the_committer_works(
    installation: Installation,
    formats: dict[str, list[str]],
    jar_of_newest: Path,
    seaweedfs: Seaweedfs,
    tmp_path: Path,
) -> None:
    """All modes, failed and repeated jobs, ingest, on disk and by S3A, with the newest Spark's jar."""
    bucket = seaweedfs.new_bucket()
    whole = "s3a" in formats
    avro = sorted(set_up(installation.avro).glob("*.jar")) if installation.avro else []
    settings = {
        "conf": {
            "spark.jars": ",".join(map(str, [*s3a_jars(installation.spark), *avro])),
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            **s3a_settings(seaweedfs),
        },
        "jar": None if installation.configured else str(jar_of_newest),
        "outputs": {
            **({"local": (f"file://{tmp_path}/out", f"{tmp_path}/out")} if whole else {}),
            "s3a": (f"s3a://{bucket}/out", f"s3://{bucket}/out"),
        },
        "more": whole,
        "tables": f"{tmp_path}/tables",
        "options": seaweedfs.options,
        "formats": formats,
    }
    came = run_with(
        installation.python(),
        Path(__file__).with_name("committer_smoke.py"),
        tmp_path,
        json.dumps(settings),
        SPARK_HOME=str(installation.spark_home()),
    )
    assert came.pop("spark").startswith(f"{installation.spark}.")
    assert came.pop("scala").startswith(f"{installation.scala}.")
    assert came.pop("hadoop") == HADOOP[installation.spark]
    version = tuple(map(int, installation.spark.split(".")))
    data_source = came.pop("data source")
    assert ("needs PySpark 4.0 or newer" in data_source) == (version < DATA_SOURCES)
    if whole:
        check_tables(came.pop("tables"), version)
        assert came.pop("inferred and cleaned") == {
            "columns": "struct<n:bigint,k:string>",
            "rows": [[0, "0"], [1, "1"], [2, "2"]],
            "left": ["2.json"],
            "reader": "commitlog_ingest_spark",
        }
    rows = [["2", "2026-01-02", True], ["3", "2026-01-02", True]]
    assert came.pop("ingested") == {
        place: dict.fromkeys(names, rows) for place, names in formats.items()
    }
    refused, needed = came.pop("avro"), "errors.NotSupported: this session has no reader of avro: add"
    assert (f"{needed} org.apache.spark:spark-avro_" in refused) == (installation.avro is None)
    assert set(came) == ({"local logged", "s3a listed"} if whole else {"s3a listed"})
    for output, results in came.items():
        assert "errors.JobAlreadyCommitted: job 'first' is part of" in results.pop("again"), output
        assert "a bad row" in results.pop("failed"), output
        assert results == ROUND, output


def check_tables(tables: dict[str, Any], version: tuple[int, ...]) -> None:
    """Check the results for tables with a version of Spark."""
    # Earlier versions hide the options of saveAsTable with a table that exists.
    expected = "JobAlreadyCommitted: job 'first'" if version >= (4, 1) else "NotSupported: the table was"
    assert f"errors.{expected}" in tables.pop("saved again")
    assert "errors.JobAlreadyCommitted: job 'second'" in tables.pop("inserted again")
    assert tables == TABLES


# tests/spark/batch/test_drivers.py has such a driver of the newest Spark.
@pytest.mark.parametrize(
    "installation",
    [each if each.spark == "3.5" else in_campaigns(each) for each in INSTALLATIONS if each.home is None],
    ids=lambda each: each.name,
)
def test_spark_sql_commits(
    installation: Installation, jar_of_newest: Path, seaweedfs: Seaweedfs, tmp_path: Path
) -> None:
    """A driver without Python, with the jar and one setting."""
    place = f"{seaweedfs.new_bucket()}/numbers"
    settings = {
        "spark.jars": ",".join(map(str, [jar_of_newest, *s3a_jars(installation.spark)])),
        "spark.plugins": "io.commitlog.CommitlogPlugin",
        "spark.ui.enabled": "false",
        **s3a_settings(seaweedfs),
    }
    statements = [
        f"CREATE TABLE numbers USING parquet LOCATION 's3a://{place}' AS SELECT 1 AS n",
        "INSERT INTO numbers SELECT 2",
        "SELECT 'sum', sum(n) FROM numbers",
    ]
    printed = run_process(
        [
            *(installation.spark_home() / "bin/spark-sql", "--master", "local[2]"),
            *(word for name, value in settings.items() for word in ("--conf", f"{name}={value}")),
            *("-e", "; ".join(statements)),
        ],
        installation.python(),
        tmp_path,
    )
    assert "sum\t3" in printed.splitlines()
    with commitlog.connect(f"s3://{place}", **seaweedfs.options) as store:
        assert [record.mode for record in Output(store).log()] == ["append", "append"]


@pytest.mark.parametrize(
    "installation",
    # The oldest, with another Scala.
    [each if each.scala == "2.12" else in_campaigns(each) for each in INSTALLATIONS],
    ids=lambda each: each.name,
)
def test_the_jar_is_the_same_from_every_compiler(
    installation: Installation, jar_of_newest: Path, tmp_path: Path
) -> None:
    """Each Spark compiles the source to the same bytes, so a jar from any of them runs on all."""
    jar = build_jar(tmp_path / "committer.jar", installation.spark_home())
    assert jar.read_bytes() == jar_of_newest.read_bytes()
