"""S3A, Hadoop's client of S3: its jars for each Spark, and its settings for a test server."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from unittest import SkipTest

from support.environments import set_up
from support.servers import Server

__all__ = [
    "HADOOP",
    "hadoop_committer_jars",
    "jars_of_session",
    "s3a_jars",
    "s3a_settings",
    "s3a_settings_of_bucket",
]

#: The version of Hadoop in each Spark.
HADOOP: Mapping[str, str] = MappingProxyType(
    {"3.5": "3.3.4", "4.0": "3.4.1", "4.1": "3.4.2", "4.2": "3.5.0", "4.3": "3.5.0"}
)

_NEWEST = "4.3"


def s3a_jars(spark: str = _NEWEST) -> list[Path]:
    """Return the jars that a Spark needs for ``s3a://``, for ``spark.jars``.

    Raises `SkipTest` if they are missing, or `AssertionError` with ``CI`` set.

    Args:
        spark: major and minor version of Spark. Only those of the newest are there without ``--all``.
    """
    command = "./run test" if HADOOP[spark] == HADOOP[_NEWEST] else "./run test --all"
    return sorted(set_up(f"hadoop-aws-{HADOOP[spark]}", command).glob("*.jar"))


def jars_of_session() -> str:
    """Return the jars for the newest Spark: the committer's, and those of S3A if they are there."""
    from commitlog.spark import committer_jar

    try:
        found = s3a_jars()
    except SkipTest:
        found = []
    return ",".join(map(str, [committer_jar(), *found]))


def hadoop_committer_jars() -> list[Path]:
    """Return the jars with which the newest Spark uses the committers of S3A, besides `s3a_jars`."""
    return sorted(set_up("spark-hadoop-cloud", "./run test").glob("*.jar"))


def s3a_settings(server: Server) -> dict[str, str]:
    """Return the settings of a Spark session with which ``s3a://`` reaches the buckets of `server`."""
    settings = {
        "endpoint": server.endpoint_url,
        "endpoint.region": server.region,
        "access.key": server.access_key_id,
        "secret.key": server.secret_access_key,
        "path.style.access": "true",
        "connection.ssl.enabled": "false",
        # A failure is an error at once, not after minutes.
        "attempts.maximum": "2",
        "retry.limit": "2",
    }
    return {f"spark.hadoop.fs.s3a.{name}": value for name, value in settings.items()}


def s3a_settings_of_bucket(server: Server, bucket: str) -> dict[str, str]:
    """Return the settings of Hadoop with which ``s3a://`` reaches one bucket of `server`."""
    return {
        name.removeprefix("spark.hadoop.").replace("fs.s3a.", f"fs.s3a.bucket.{bucket}."): value
        for name, value in s3a_settings(server).items()
    }
