"""Where the jobs of the failure benchmark write: local directories, or S3 through S3A.

A site starts Spark and has the writers to compare. A place is the output of one scenario with one
writer, and reads it as a plain reader does: it lists the files.
"""

from __future__ import annotations

import abc
import json
import re
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import boto3
import pyarrow.parquet as pq
from botocore.config import Config
from pyspark.sql import SparkSession
from s3a_spark import FAULT_COMMITTERS, S3aWriter, start_on_s3a
from spark_writers import CommitlogFormat, Writer, listed_files, start, writers

import commitlog
from commitlog.outputs import Output

__all__ = ["Directory", "LocalSite", "Place", "Prefix", "S3aSite", "Site", "load_site"]

#: Enough task slots to hold many tasks at once, in a JVM that starts quickly.
_MASTER = "local[16]"
_SMALL = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class Place(abc.ABC):
    """An output.

    Args:
        path: its path, for `Writer.write`.
        gate: a local path for the gate of one of its jobs.
    """

    def __init__(self, path: str, gate: Path) -> None:
        self.path = path
        self.gate = gate

    @abc.abstractmethod
    def shown(self) -> int:
        """Return the number of data files that a listing shows."""

    @abc.abstractmethod
    def numbers(self) -> list[int]:
        """Return the column ``id`` of these files."""

    @abc.abstractmethod
    def logged(self) -> int:
        """Return the number of data files that the log has, for a reader without permission to write."""


class Directory(Place):
    """A local directory."""

    def __init__(self, directory: Path) -> None:
        super().__init__(str(directory), directory.with_suffix(".gate"))
        self._directory = directory

    def shown(self) -> int:
        """Return the number of data files that a listing shows."""
        return len(listed_files(self._directory))

    def numbers(self) -> list[int]:
        """Return the column ``id`` of these files."""
        return [id for file in listed_files(self._directory) for id in _ids(file)]

    def logged(self) -> int:
        """Return the number of data files that the log has."""
        with commitlog.connect(self.path) as store:
            return len(Output(store).snapshot(roll_forward=False).files)

    def first_files(self) -> int:
        """Return the number of files of first tasks, visible or not."""
        return sum(1 for _ in self._directory.rglob("part-00000-*.parquet"))


class Prefix(Place):
    """A prefix in a bucket; with `hidden`, only its log shows the files."""

    def __init__(
        self, bucket: str, path: str, gate: Path, client: Any, options: dict[str, Any], *, hidden: bool
    ) -> None:
        super().__init__(path, gate)
        self._hidden = hidden
        self._bucket = bucket
        self._client = client
        self._options = options

    def shown(self) -> int:
        """Return the number of data files that a listing shows."""
        return len(self._listed())

    def numbers(self) -> list[int]:
        """Return the column ``id`` of these files, or of those in the log."""
        found: list[int] = []
        for key in self._in_log() if self._hidden else self._listed():
            body = self._client.get_object(Bucket=self._bucket, Key=key)["Body"].read()
            found += _ids(BytesIO(body))
        return found

    def logged(self) -> int:
        """Return the number of data files that the log has."""
        return len(self._in_log())

    def _in_log(self) -> list[str]:
        with commitlog.connect(f"s3://{self._bucket}", **self._options) as store:
            files = Output(store, self.path).snapshot(roll_forward=False).files
            return [f"{self.path}/{each.path}" for each in files]

    def _listed(self) -> list[str]:
        pages = self._client.get_paginator("list_objects_v2")
        return [
            each["Key"]
            for page in pages.paginate(Bucket=self._bucket, Prefix=f"{self.path}/")
            for each in page.get("Contents", ())
            if each["Size"] and not re.search("/[_.]", each["Key"])
        ]


def _ids(file: Any) -> list[int]:
    ids: list[int] = pq.read_table(file, columns=["id"], partitioning=None).column("id").to_pylist()
    return ids


class Site(abc.ABC):
    """Where all the jobs write.

    Attributes:
        top: local directory for the files of all processes.
    """

    top: Path

    @abc.abstractmethod
    def start(self, scratch: Path) -> SparkSession:
        """Start Spark with enough task slots to hold many tasks at once; its files go to `scratch`."""

    @abc.abstractmethod
    def writers(self, spark: SparkSession) -> list[Writer]:
        """Return the writers to compare."""

    @abc.abstractmethod
    def place(self, writer: Writer, scenario: str) -> Place:
        """Return the output of `writer` in a scenario."""

    @abc.abstractmethod
    def dump(self) -> str:
        """Return the site as JSON, for another process; see `load_site`."""


class LocalSite(Site):
    """Directories below `top`."""

    def __init__(self, top: str) -> None:
        self.top = Path(top)

    def start(self, scratch: Path) -> SparkSession:
        """Start Spark."""
        java = {"spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={scratch} {_SMALL}"}
        return start(_MASTER, scratch, java)

    def writers(self, spark: SparkSession) -> list[Writer]:
        """Return the writers that differ when something fails."""
        return [writer for writer in writers(spark) if not isinstance(writer, CommitlogFormat)]

    def place(self, writer: Writer, scenario: str) -> Directory:
        """Return the directory of `writer`."""
        directory = self.top / scenario / writer.name.replace(" ", "-")
        directory.parent.mkdir(exist_ok=True)
        return Directory(directory)

    def dump(self) -> str:
        """Return the site as JSON."""
        return json.dumps(["local", str(self.top)])


class S3aSite(Site):
    """A bucket for each writer.

    Attributes:
        settings: settings with which Spark reaches the server.
        buckets: bucket of each writer.

    Args:
        top: see `Site`.
        options: how to connect to the server.
        settings: settings with which Spark reaches it.
        buckets: bucket of each writer.
    """

    def __init__(
        self,
        top: str,
        options: Mapping[str, str],
        settings: Mapping[str, str],
        buckets: Mapping[str, str],
    ) -> None:
        self.top = Path(top)
        self._state = [top, options, settings, buckets]
        self._options = dict(options)
        self.settings = settings
        self.buckets = buckets
        self._client = boto3.client(
            "s3",
            endpoint_url=options["endpoint_url"],
            region_name=options["region"],
            aws_access_key_id=options["access_key_id"],
            aws_secret_access_key=options["secret_access_key"],
            config=Config(s3={"addressing_style": "path"}),
        )

    def start(self, scratch: Path) -> SparkSession:
        """Start Spark."""
        return start_on_s3a(_MASTER, scratch, self.settings, _SMALL)

    def writers(self, spark: SparkSession) -> list[Writer]:
        """Return the writers that differ when something fails."""
        return [S3aWriter(spark, each, self.buckets[each.name]) for each in FAULT_COMMITTERS]

    def place(self, writer: Writer, scenario: str) -> Prefix:
        """Return the prefix of a scenario in the bucket of `writer`."""
        return self.prefix(writer.name, scenario, hidden=writer.hidden)

    def prefix(self, name: str, path: str, *, hidden: bool) -> Prefix:
        """Return a prefix in the bucket of the writer with that name."""
        bucket = self.buckets[name]
        gate = self.top / f"{bucket}-{path}.gate"
        return Prefix(bucket, path, gate, self._client, self._options, hidden=hidden)

    def dump(self) -> str:
        """Return the site as JSON."""
        return json.dumps(["s3a", *self._state])


def load_site(text: str) -> Site:
    """Return the site that `Site.dump` has written."""
    kind, *state = json.loads(text)
    return S3aSite(*state) if kind == "s3a" else LocalSite(*state)
