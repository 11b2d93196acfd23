"""`stream_files` in a real Spark: whose readers it takes, and why."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from commitlog.errors import CommitError, ConfigurationError, NotSupported
from commitlog.ingest import Ingest
from commitlog.spark import stream_files
from commitlog.spark.ingest.options import PYTHON_FORMAT, SPARK_FORMAT, IngestOptions
from support.project import ROOT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

LOGGER = "commitlog.spark.ingest.stream"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory with a file of JSON."""
    path = tmp_path / "in put"
    path.mkdir()
    (path / "a").write_text('{"n":1}\n')
    return path


def chosen(
    caplog: pytest.LogCaptureFixture, spark: SparkSession, url: Path | str, **arguments: Any
) -> tuple[str, str]:
    """Return the format that a stream has, and the reason for it, as they are logged."""
    options = {"fileFormat": "json", **arguments.pop("options", {})}
    caplog.clear()
    with caplog.at_level(logging.INFO, LOGGER):
        rows = stream_files(spark, str(url), options=options, **arguments)
    assert rows.isStreaming
    (message,) = [record.getMessage() for record in caplog.records if record.name == LOGGER]
    head, _, reason = message.partition(", because ")
    assert str(url) in head
    return head.rpartition(" ")[2], reason


def ended(rows: DataFrame, scratch: Path) -> tuple[list[Any], str]:
    """Return the rows of a stream, and the description of its source."""
    found: list[Any] = []
    writer = rows.writeStream.foreachBatch(lambda batch, _: found.extend(batch.collect()))
    writer = writer.option("checkpointLocation", f"{scratch}/checkpoint").trigger(availableNow=True)
    query = writer.start()
    query.awaitTermination()
    return sorted(found), query.recentProgress[-1]["sources"][0]["description"]


def test_a_query_takes_the_reader_that_its_options_allow(
    spark: SparkSession, directory: Path, tmp_path: Path
) -> None:
    """It changes with the options, and each record is read once."""
    strict = {"fileFormat": "json"}
    quarantined = {**strict, "unreadable": "quarantine"}
    cases = [(strict, True), (quarantined, False), (strict, True)]
    for number, (options, by_spark) in enumerate(cases, start=2):
        (directory / str(number)).write_text(f'{{"n":{number}}}\n')
        rows, description = ended(
            stream_files(spark, str(directory), schema="n int", options=options), tmp_path
        )
        assert [row.n for row in rows] == ([1, 2] if number == 2 else [number])
        assert description.startswith(SPARK_FORMAT) == by_spark


@pytest.mark.parametrize("name", ["json", "parquet", "orc", "text", "avro"])
def test_sparks_own_readers_are_taken(
    caplog: pytest.LogCaptureFixture, spark: SparkSession, directory: Path, name: str
) -> None:
    """The session has the jar, and the options suit them."""
    found = chosen(caplog, spark, directory, schema="value string", options={"fileFormat": name})
    assert found == (SPARK_FORMAT, "")


@pytest.mark.parametrize(
    ("schema", "options", "reason"),
    [
        ("content binary", {"fileFormat": "binaryFile"}, "not binaryFile"),
        ("n int", {"fileFormat": "csv"}, "keeps doubled quotes"),
        ("n int", {"unreadable": "quarantine"}, "quarantine nothing"),
        ("n int, _rescued string", {"newColumns": "rescue"}, "ignore new columns"),
        ("n int, _metadata struct<offset:bigint>", {}, "do not know offsets of records"),
        ("n int", {"sliceBytes": "1MiB"}, "one of Python's readers"),
        ("n int", {"maxRecordBytes": "1000"}, "one of Python's readers"),
        ("t timestamp", {"fileFormat": "orc", "timeZone": "UTC"}, "has no option timeZone"),
        (None, {}, "set newColumns to ignore"),
    ],
)
def test_pythons_readers_are_taken_where_sparks_differ(
    caplog: pytest.LogCaptureFixture,
    spark: SparkSession,
    directory: Path,
    schema: str | None,
    options: dict[str, str],
    reason: str,
) -> None:
    """The log says why."""
    format, said = chosen(caplog, spark, directory, schema=schema, options=options)
    assert (format, reason in said) == (PYTHON_FORMAT, True), said


def test_the_connection_of_the_options_is_pythons(
    caplog: pytest.LogCaptureFixture, spark: SparkSession, tmp_path: Path
) -> None:
    """Spark's readers have the connection of S3A."""
    options = {"state": f"sqlite://{tmp_path}/state", "region": "eu-west-1"}
    found = chosen(caplog, spark, "s3://bucket/in", schema="n int", options=options)
    assert found == (PYTHON_FORMAT, "Spark's readers take region from the settings of S3A")


def test_an_option_of_sparks_reader_alone_decides(
    caplog: pytest.LogCaptureFixture, spark: SparkSession, directory: Path
) -> None:
    """CSV is read by Spark, if Python does not know an option."""
    options = {"fileFormat": "csv", "timestampFormat": "yyyy"}
    found = chosen(caplog, spark, directory, schema="t timestamp", options=options)
    assert found == (SPARK_FORMAT, "")


def test_a_file_is_read_by_whom_has_begun_it(
    caplog: pytest.LogCaptureFixture, spark: SparkSession, directory: Path
) -> None:
    """Spark reads whole files."""
    (directory / "big").write_text('{"n":1}\n' * 1000)
    options = IngestOptions.parse(
        {
            "path": str(directory),
            "fileFormat": "json",
            "sliceBytes": "1000",
            "maxBytesPerTrigger": "1000",
        }
    )
    options.check_table()
    with options.opened_store() as store, options.opened_table() as table:
        ingest = Ingest(store, table, options.settings, splits=options.input.splits)
        ingest.latest_offset(ingest.latest_offset(ingest.initial_offset()))
    format, reason = chosen(caplog, spark, directory, schema="n int")
    assert (format, reason) == (PYTHON_FORMAT, "'big' is read in part, and Spark reads whole files")


def test_a_reader_can_be_demanded(
    caplog: pytest.LogCaptureFixture, spark: SparkSession, directory: Path
) -> None:
    """The default is to choose."""
    assert chosen(caplog, spark, directory, schema="n int", reader="python") == (PYTHON_FORMAT, "")
    csv = {"fileFormat": "csv"}
    found = chosen(caplog, spark, directory, schema="n int", reader="spark", options=csv)
    assert found == (SPARK_FORMAT, "")
    ignore = {"newColumns": "ignore"}
    assert chosen(caplog, spark, directory, reader="spark", options=ignore) == (SPARK_FORMAT, "")


@pytest.mark.parametrize(
    ("reader", "options", "error", "said"),
    [
        ("java", {}, ConfigurationError, "must be one of auto, python, spark"),
        ("auto", {"reader": "spark"}, ConfigurationError, "leave it out of options"),
        ("auto", {"maxFilesPerTrigger": "0"}, ConfigurationError, "from 1 on"),
        ("auto", {"recursiveFileLookup": "true"}, ConfigurationError, "unknown option.*does not apply"),
        ("spark", {"unreadable": "quarantine"}, NotSupported, "quarantine nothing"),
        ("spark", {"fileFormat": "binaryFile"}, NotSupported, "not binaryFile"),
        ("python", {"recursiveFileLookup": "true"}, ConfigurationError, "unknown option"),
    ],
)
def test_what_cannot_be_read_is_an_error_of_the_library(
    spark: SparkSession,
    directory: Path,
    reader: str,
    options: dict[str, str],
    error: type[CommitError],
    said: str,
) -> None:
    """It says what to change."""
    options = {"fileFormat": "json", **options}
    with pytest.raises(error, match=rf"(?s){said}"):
        stream_files(spark, str(directory), schema="n int", reader=reader, options=options)


def alone(directory: Path, program: str) -> tuple[str, str]:
    """Run a program in a process of its own; return its last line, and its log."""
    done = subprocess.run(
        [sys.executable, "-c", _BEFORE + program, str(directory)],
        cwd=directory.parent,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1], done.stderr


_BEFORE = """
import logging, sys
import commitlog.spark
from commitlog.spark import committer_jar, session, stream_files

logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
conf = {"spark.ui.enabled": "false"}
"""

_WITHOUT_JAR = """
spark = session("local[1]", conf)
arguments = {"schema": "n int", "options": {"fileFormat": "json"}}
stream_files(spark, sys.argv[1], **arguments)
try:
    stream_files(spark, sys.argv[1], reader="spark", **arguments)
except commitlog.NotSupported as error:
    print(error)
"""


@pytest.mark.all
def test_a_session_without_the_jar_has_pythons_readers(directory: Path) -> None:
    """It goes on as before; to demand Spark's is an error that says how to have them."""
    error, log = alone(directory, _WITHOUT_JAR)
    assert "commitlog.spark.configure(builder)" in error
    assert f"format {PYTHON_FORMAT}, because the session was started without" in log


_WITHOUT_S3A = """
spark = session("local[1]", {**conf, "spark.jars": str(committer_jar())})
state = f"sqlite://{sys.argv[1]}/../state"
arguments = {"schema": "n int", "options": {"fileFormat": "json", "state": state}}
stream_files(spark, "s3://bucket/in", **arguments)
try:
    stream_files(spark, "s3://bucket/in", reader="spark", **arguments)
except commitlog.NotSupported as error:
    print(error)
"""


@pytest.mark.all
def test_objects_need_the_jar_of_s3a(directory: Path) -> None:
    """The error names it. Python reads them in its place."""
    error, log = alone(directory, _WITHOUT_S3A)
    assert "add org.apache.hadoop:hadoop-aws" in error
    assert f"format {PYTHON_FORMAT}, because this session cannot read s3a://" in log
