"""Places for the jobs of `support.spark_jobs`, and the audit: each row once, and nothing else."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from attrs import evolve, frozen
from pyspark.sql.types import StructType

from commitlog.commit.record import LEASE_SCHEMA
from commitlog.outputs import Output, RecoveryReport
from commitlog.spark.schema import dump_schema
from commitlog.spark.targets.output import ReadOptions
from commitlog.tables.open import open_table
from commitlog.urls import parse_table_url
from support.s3a import s3a_settings_of_bucket
from support.selection import in_campaigns, with_all
from support.spark_jobs import PARTS, PROTOCOL, Job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from support.servers import Ministack

#: The ways to write that keep the guarantees: the data source, to a directory with leases in SQLite and
#: to S3 with leases in DynamoDB; and Spark's own writer with the configured committer, to a directory,
#: and by S3A to S3 with leases in DynamoDB.
WAYS = [
    "local",
    with_all("s3", marks=[pytest.mark.servers]),
    "configured",
    with_all("s3a", marks=[pytest.mark.servers]),
]

#: The same for tests of the commit, which S3A leaves to the same code as the data source on S3.
WAYS_TO_COMMIT = [*WAYS[:3], in_campaigns("s3a", marks=[pytest.mark.servers])]

#: The ways of the data source.
SOURCES = WAYS[:2]

#: A directory whose name must be quoted in requests and paths.
_NAME = "Aus gabe ü%20+=1"


@frozen(kw_only=True)
class Place:
    """A new output, and two ways to read it: by its log, and by a listing.

    Attributes:
        url: URL of the output.
        options: options of the data source or the committer.
        configured: whether Spark's own writer writes there.
        listed: returns all objects below it, by path.
        s3a: the same place for S3A: its URL, and settings of Hadoop; None if S3A is not used.
    """

    url: str
    options: Mapping[str, str]
    configured: bool
    listed: Callable[[], dict[str, bytes]]
    s3a: tuple[str, Mapping[str, str]] | None = None

    def job(self, **fields: Any) -> Job:
        """Return a job for this place."""
        if self.s3a is not None:
            url, hadoop = self.s3a
            # The connection to the bucket comes from the settings of Hadoop.
            options = {
                name: self.options[name]
                for name in self.options
                if name.startswith("table") or name == "commit"
            }
            return Job(url=url, options=options, hadoop=hadoop, configured=True, **fields)
        return Job(url=self.url, options=self.options, configured=self.configured, **fields)

    def with_short_leases(self) -> Place:
        """Return the same place, on S3 with the shortest leases, which dead drivers keep."""
        if not self.options["table"].startswith("dynamodb://"):
            return self
        table = self.options["table"].removeprefix("dynamodb://")
        options = {name: value for name, value in self.options.items() if not name.startswith("table")}
        return evolve(self, options={**options, "commit": f"dynamo:{table}:3000"})

    def open(self) -> Output:
        """Open it without Spark."""
        return Output(ReadOptions.parse({**self.options, "path": self.url}).open())

    def visible(self) -> dict[str, bytes]:
        """Return the data files that a listing shows."""
        hidden = re.compile(r"(^|/)[._]")
        return {path: data for path, data in self.listed().items() if not hidden.search(path)}

    def by_listing(self) -> list[int]:
        """Return the numbers in the files of a listing, sorted."""
        numbers = []
        for path, data in self.visible().items():
            rows = pq.read_table(io.BytesIO(data)).to_pydict()
            assert rows["text"] == [f"Zeile {number}" for number in rows["id"]]
            assert {f"part={number % PARTS}" for number in rows["id"]} <= {path.split("/")[0]}
            numbers += rows["id"]
        return sorted(numbers)

    def by_log(self, spark: SparkSession, **options: str) -> list[int]:
        """Return the numbers that a reader of the log finds, sorted."""
        read = spark.read.format("commitlog").options(**{**self.options, **options})
        rows = read.load(self.url).select("id", "text", "part").collect()
        assert all((row.text, int(row.part)) == (f"Zeile {row.id}", row.id % PARTS) for row in rows)
        return sorted(row.id for row in rows)

    def recover(self) -> RecoveryReport:
        """Remove all leftovers, while no job is running."""
        output = self.open()
        with output.store:
            return output.gc(older_than=0).recovery

    def begin_base(self) -> list[int]:
        """Write the rows that exist before a test; return their numbers."""
        numbers = list(range(1000, 1000 + 4 * PARTS))
        columns = StructType().add("id", "long").add("text", "string").add("part", "integer")
        output = self.open()
        with output.store:
            job = output.begin("base", schema=dump_schema(columns))
            files = []
            for part in range(PARTS):
                mine = [number for number in numbers if number % PARTS == part]
                body = io.BytesIO()
                pq.write_table(pa.table({"id": mine, "text": [f"Zeile {n}" for n in mine]}), body)
                name = f"part={part}/" + job.file_name(part, suffix=".parquet")
                partition = {"part": str(part)}
                files.append(
                    output.stage(job, name, body.getvalue(), rows=len(mine), partition=partition)
                )
            output.commit(job, files)
        return numbers

    def audit(self, spark: SparkSession, numbers: Iterable[int], *jobs: str) -> None:
        """Check that every reader finds each of `numbers` once, and that nothing is left over.

        Exactly the `jobs` must be committed.
        """
        expected = sorted(numbers)
        assert self.by_listing() == expected
        assert self.by_log(spark) == expected
        output = self.open()
        with output.store:
            snapshot = output.snapshot(roll_forward=False)
            assert snapshot.jobs == jobs
            assert [record.job_id for record in output.log()] == list(jobs)
            assert self.visible().keys() == {file.path for file in snapshot.files}
            left = re.compile(r"_commitlog/(pending|data|alive|manifests)/|^\.commitlog/staged|^__magic")
            assert [path for path in self.listed() if left.search(path)] == []
            assert list(output.store.list_staged()) == []


@pytest.fixture(name="place")
def place_of_test(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A new output, in the way of the test's parameter."""
    return new_place(request.param, tmp_path, lambda: request.getfixturevalue("ministack"))


@pytest.fixture(scope="module")
def configured(spark: SparkSession) -> Iterator[None]:
    """Make Spark's own writers commit to outputs."""
    spark.conf.set(*PROTOCOL)
    yield
    spark.conf.unset(PROTOCOL[0])


def new_place(way: str, directory: Path, ministack: Callable[[], Ministack]) -> Place:
    """Return a place to write to in a `way`; `ministack` is called if it needs a server."""
    directory.mkdir(exist_ok=True)
    if way not in ("s3", "s3a"):
        options = {"table": f"sqlite://{directory}/leases.sqlite"}
        if way == "local":
            options["commit"] = "lease"
        top = directory / _NAME
        return Place(
            url=str(top),
            options=options,
            configured=way == "configured",
            listed=partial(_files, top),
        )
    server = ministack()
    table, bucket = f"dynamodb://{server.new_table_name()}", server.new_bucket()
    open_table(parse_table_url(table).with_options(server.options), LEASE_SCHEMA).create()
    given = {
        "endpointUrl": server.endpoint_url,
        "region": server.region,
        "accessKeyId": server.access_key_id,
        "secretAccessKey": server.secret_access_key,
    }
    of_table = {f"table.{name}": value for name, value in given.items()}
    hadoop = s3a_settings_of_bucket(server, bucket)
    return Place(
        url=f"s3://{bucket}/{quote(_NAME)}",
        options={**given, **of_table, "commit": "lease", "table": table},
        configured=way == "s3a",
        listed=partial(_objects, server.client("s3"), bucket),
        s3a=(f"s3a://{bucket}/{_NAME}", hadoop) if way == "s3a" else None,
    )


def _files(top: Path) -> dict[str, bytes]:
    return {str(path.relative_to(top)): path.read_bytes() for path in top.rglob("*") if path.is_file()}


def _objects(client: Any, bucket: str) -> dict[str, bytes]:
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"{_NAME}/")
    keys = [item["Key"] for page in pages for item in page.get("Contents", ())]
    return {
        key.removeprefix(f"{_NAME}/"): client.get_object(Bucket=bucket, Key=key)["Body"].read()
        for key in keys
    }
