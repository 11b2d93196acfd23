"""Options of the data source."""

from __future__ import annotations

import os
import pickle

import pytest

from commitlog.errors import ConfigurationError
from commitlog.spark.options import JobOptions
from commitlog.spark.targets.output import ReadOptions, WriteOptions

SECRETS = {
    "accesskeyid": "AKIDHIDDEN",
    "secretaccesskey": "KEYHIDDEN",
    "sessiontoken": "TOKENHIDDEN",
    "table": "dynamodb://commits",
    "table.secretaccesskey": "TABLEHIDDEN",
}


def test_a_url_needs_no_options() -> None:
    """A URL alone means append, Parquet with snappy, no partitions, any size and a new job id."""
    options = WriteOptions.parse({"path": "s3://bucket/out"})
    assert options == WriteOptions(
        url="s3://bucket/out",
        connection={},
        table=None,
        table_options={},
        visibility=None,
        attempt=None,
        job=JobOptions(
            job_id=None,
            if_exists="append",
            on_duplicate="error",
            dynamic=False,
            merge_schema=False,
            file_format="parquet",
            compression="snappy",
            partition_by=(),
            sort_by=(),
            target_file_bytes=None,
            target_file_rows=None,
        ),
    )


def test_names_of_options_may_be_lower_case() -> None:
    """Names of options may be in lower case, as Spark passes them, or have underscores."""
    options = WriteOptions.parse(
        {
            "path": "s3://bucket/out",
            "jobid": "daily",
            "if_exists": "ERROR",
            "Compression": "zstd",
            "partitionby": "year, month",
            "sort_by": "day,hour",
            "targetFileBytes": "1000",
            "target_file_rows": "10",
            "fileformat": "JSON",
            "endpoint_url": "http://127.0.0.1:1",
            "accesskeyid": "a",
        }
    )
    assert options.job.job_id == "daily"
    assert options.job.if_exists == "error"
    assert options.job.compression == "zstd"
    assert options.job.partition_by == ("year", "month")
    assert options.job.sort_by == ("day", "hour")
    assert (options.job.target_file_bytes, options.job.target_file_rows) == (1000, 10)
    assert options.job.file_format == "json"
    assert options.connection == {"endpoint_url": "http://127.0.0.1:1", "access_key_id": "a"}


def test_options_of_the_table_go_to_the_table() -> None:
    """Options ``table.…`` complete the URL of the table, so that it needs no credentials."""
    given = {
        "path": "s3://bucket/out",
        "table": "dynamodb://commits?region=eu-west-1",
        "table.profile": "ops",
    }
    options = ReadOptions.parse(given)
    assert options.table == "dynamodb://commits?region=eu-west-1"
    assert options.table_options == {"profile": "ops"}
    assert options.connection == {}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "no path given"),
        (
            {"path": "s3://b-1/x", "jobbid": "a"},
            r"unknown option 'jobbid'; is it jobId\?; known: .*jobId",
        ),
        ({"path": "s3://b-1/x", "compression": "lzo"}, "compression is 'lzo'; known: snappy, zstd"),
        ({"path": "s3://b-1/x", "fileformat": "avro"}, "fileFormat is 'avro'; known: parquet, orc, csv"),
        (
            {"path": "s3://b-1/x", "fileformat": "csv", "compression": "snappy"},
            "compression is 'snappy'; known: none, gzip, bzip2, zstd",
        ),
        ({"path": "s3://b-1/x", "targetfilebytes": "1k"}, "is '1k': give a whole number from 1 on"),
        ({"path": "s3://b-1/x", "targetfilerows": "0"}, "is '0': give a whole number from 1 on"),
        ({"path": "s3://b-1/x", "ifexists": "skip"}, "ifExists is 'skip'; known: append, error, ignore"),
        ({"path": "s3://b-1/x", "table.region": "r"}, "go with option table"),
        ({"path": "s3://b-1/x", "jobid": "a", "job_id": "b"}, "jobId is given twice, with different"),
        ({"path": "memory://x"}, "memory:// store is gone"),
        ({"path": "ftp://x"}, "scheme must be"),
    ],
)
def test_wrong_options_are_refused(given: dict[str, str], message: str) -> None:
    """The error of a wrong option says which values are right."""
    with pytest.raises(ConfigurationError, match=message):
        WriteOptions.parse(given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"path": "s3://b-1/x?secret_access_key=HIDDEN"}, "as option secretAccessKey$"),
        (
            {"path": "s3://b-1/x", "table": "dynamodb://commits?session_token=HIDDEN"},
            r"as option table\.sessionToken$",
        ),
    ],
)
def test_credentials_in_urls_are_refused(given: dict[str, str], message: str) -> None:
    """Spark prints URLs in plans, so credentials in them are refused, without repeating them."""
    with pytest.raises(ConfigurationError, match=message) as caught:
        WriteOptions.parse(given)
    assert "HIDDEN" not in str(caught.value)


def test_roll_forward_false_reads_without_writing() -> None:
    """With ``rollForward=false``, a reader does not write; by default it completes versions."""
    assert ReadOptions.parse({"path": "x"}).roll_forward
    assert not ReadOptions.parse({"path": "x", "rollforward": "false"}).roll_forward


def test_relative_paths_are_those_of_the_driver() -> None:
    """A relative path becomes absolute, because workers may run in another directory."""
    assert ReadOptions.parse({"path": "out"}).url == os.path.abspath("out")
    assert ReadOptions.parse({"path": "file:///a%20b"}).url == "/a b"


def test_options_of_writes_are_refused_for_reads() -> None:
    """They are refused and not ignored."""
    with pytest.raises(ConfigurationError, match="unknown option 'jobid'"):
        ReadOptions.parse({"path": "s3://bucket/out", "jobid": "daily"})


def test_credentials_are_pickled_and_not_shown() -> None:
    """Pickled options keep the credentials; neither their repr nor an error shows them."""
    options = WriteOptions.parse({"path": "s3://bucket/out", **SECRETS})
    copy = pickle.loads(pickle.dumps(options))
    assert copy == options
    assert copy.connection["secret_access_key"] == "KEYHIDDEN"
    assert copy.table_options["secret_access_key"] == "TABLEHIDDEN"
    assert "HIDDEN" not in repr(copy)
    with pytest.raises(ConfigurationError) as caught:
        WriteOptions.parse({"path": "s3://bucket/out", **SECRETS, "nope": "1"})
    assert "HIDDEN" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "mode"),
    [
        ({}, "overwrite"),
        ({"partitionBy": "day"}, "overwrite"),
        ({"partitionOverwriteMode": "dynamic"}, "overwrite"),
        ({"partitionOverwriteMode": "dynamic", "partitionBy": "day"}, "overwrite-partitions"),
    ],
)
def test_a_dynamic_overwrite_needs_partition_columns(given: dict[str, str], mode: str) -> None:
    """A dynamic overwrite without partition columns replaces everything, as in Spark's own writers."""
    options = WriteOptions.parse({"path": "/data/out", **given}).job
    assert options.mode(overwrite=True) == mode
    assert options.mode(overwrite=False) == "append"
