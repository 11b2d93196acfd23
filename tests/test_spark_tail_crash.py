"""A chain of streams, input to output to output, in a driver that is killed: each row arrives once."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark.cloudpickle
import pytest
from attrs import field, frozen
from pyspark.sql.types import StructType

from commitlog.commit.record import LEASE_SCHEMA
from commitlog.demo.crash import Death, MortalSource
from commitlog.outputs import Output
from commitlog.spark.options import ReadOptions
from commitlog.spark.schema import dump_schema
from commitlog.tables.open import open_table
from commitlog.urls import parse_table_url

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from commitlog.testing.servers import Ministack

pytestmark = pytest.mark.spark

# Workers cannot import test modules.
pyspark.cloudpickle.register_pickle_by_value(sys.modules[__name__])

#: Where a driver may die: while it writes the first output, follows it, or writes the second one.
WRITER, TAIL, SINK = "writer", "tail", "sink"


@frozen
class Chain:
    """A query that copies the numbers in files to an output, and one that copies that to another.

    Attributes:
        scratch: a directory for input and checkpoints.
        top: URL below which both outputs are.
        place: how to reach them.
    """

    scratch: Path
    top: str
    place: Mapping[str, str] = field(repr=False)

    def feed(self, numbers: range) -> None:
        """Add an input file, which becomes a version of the first output."""
        path = self.scratch / "input" / f"{numbers[0]}.parquet"
        path.parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({"id": numbers}), path)
        os.utime(path, (1_000_000_000 + numbers[0],) * 2)

    def fill(self, numbers: range) -> None:
        """Add a version of two files to the first output, without Spark."""
        output = self.output("a")
        with output.store:
            job = output.begin(schema=dump_schema(StructType().add("id", "long")))
            files = []
            for task in range(2):
                body = io.BytesIO()
                pq.write_table(pa.table({"id": numbers[task::2]}), body)
                name = job.file_name(task, suffix=".parquet")
                files.append(output.stage(job, name, body.getvalue(), rows=len(numbers) // 2))
            output.commit(job, files)

    def write(self, spark: SparkSession, format_name: str = "commitlog") -> None:
        """Copy all input to the first output."""
        files = spark.readStream.schema("id bigint").option("maxFilesPerTrigger", 1)
        # Two tasks, so that a version has two files.
        rows = files.parquet(str(self.scratch / "input")).repartition(2)
        self._copy(rows, "a", format_name)

    def follow(self, spark: SparkSession, source: str = "commitlog", sink: str = "commitlog") -> None:
        """Copy what the first output has to the second one, three files a batch."""
        reader = spark.readStream.format(source).options(**self.place)
        reader = reader.option("startingVersion", 0).option("maxFilesPerTrigger", 3)
        self._copy(reader.schema("id bigint").load(f"{self.top}/a"), "b", sink)

    def _copy(self, rows: DataFrame, name: str, format_name: str) -> None:
        options = {"checkpointLocation": str(self.scratch / f"checkpoint-{name}"), **self.place}
        writer = rows.writeStream.format(format_name).options(**options)
        query = writer.trigger(availableNow=True).start(f"{self.top}/{name}")
        try:
            query.awaitTermination()
        finally:
            query.stop()

    def die(self, spark: SparkSession, where: str) -> None:
        """Run the query that is to be killed, with a death armed where it is to be."""
        spark.dataSource.register(MortalSource)
        mortal = MortalSource.name()
        if where == WRITER:
            self.write(spark, mortal)
        elif where == TAIL:
            self.follow(spark, source=mortal)
        else:
            self.follow(spark, sink=mortal)

    def output(self, name: str) -> Output:
        """Open an output."""
        return Output(ReadOptions.parse({**self.place, "path": f"{self.top}/{name}"}).open())

    def check(self, spark: SparkSession, numbers: range) -> None:
        """Check that both outputs have each number once, and that nothing is left over."""
        for name in "ab":
            output = self.output(name)
            with output.store:
                assert output.recover(older_than=0).live == ()
                assert list(output.store.store.list_staged()) == []
                assert output.snapshot(roll_forward=False).rows == len(numbers)
            read = spark.read.format("commitlog").options(**self.place).load(f"{self.top}/{name}")
            assert sorted(row.id for row in read.collect()) == list(numbers)


@pytest.fixture
def chain(request: pytest.FixtureRequest, tmp_path: Path) -> Chain:
    """A chain in a directory, or on S3 with leases in DynamoDB."""
    if request.param == "local":
        (tmp_path / "lake").mkdir()
        return Chain(tmp_path, str(tmp_path / "lake"), {})
    server: Ministack = request.getfixturevalue("ministack")
    table = server.new_table_name()
    leases = parse_table_url(f"dynamodb://{table}").with_options(server.options)
    open_table(leases, LEASE_SCHEMA).create()
    # The shortest lease, for a dead driver's is waited for.
    place = {**server.options, "commit": f"dynamo:{table}:3000"}
    return Chain(tmp_path, f"s3://{server.new_bucket()}", place)


def drive(chain: Chain, where: str, death: Death) -> None:
    """Run a query in a driver of its own that dies."""
    script = "import test_spark_tail_crash; test_spark_tail_crash.main()"
    given = [
        str(chain.scratch),
        chain.top,
        dict(chain.place),
        where,
        death.method,
        death.path,
        death.nth,
    ]
    with (chain.scratch / "driver.log").open("ab") as log:
        done = subprocess.run(
            [sys.executable, "-c", script],
            stdout=log,
            stderr=log,
            check=False,
            env={
                **os.environ,
                "PYTHONPATH": str(Path(__file__).parent),
                "TMPDIR": str(chain.scratch),
                "CHAIN": json.dumps(given),
            },
            start_new_session=True,
            timeout=280,
        )
    assert done.returncode == -signal.SIGKILL, (chain.scratch / "driver.log").read_text()


def main() -> None:
    """What `drive` runs."""
    from commitlog.demo.quiet import quiet_session

    scratch, top, place, where, method, path, nth = json.loads(os.environ["CHAIN"])
    Death(method, path, nth).arm()
    Chain(Path(scratch), top, place).die(quiet_session(), where)


#: Where the driver dies: in which part of the chain, and at which request.
DEATHS = {
    "a version is committed and not published": (WRITER, Death("publish", "part-", 2)),
    "the second batch is planned": (TAIL, Death("get", "_commitlog/00000000000000000003", 1)),
    "a task has read a file": (TAIL, Death("get", "part-", 2)),
    "before the commit of what was read": (SINK, Death("put", "_commitlog/0000", 1)),
    "after the commit of what was read": (SINK, Death("publish", "part-", 1)),
}
ON_S3 = ["a version is committed and not published", "after the commit of what was read"]


@pytest.mark.parametrize(
    ("chain", "when"),
    [
        *(("local", when) for when in DEATHS),
        *(pytest.param("s3", when, marks=pytest.mark.servers) for when in ON_S3),
    ],
    indirect=["chain"],
)
def test_a_killed_driver_neither_loses_nor_doubles_a_row(
    spark: SparkSession, chain: Chain, when: str
) -> None:
    """Wherever the driver is killed, both queries go on where they were, and each row arrives
    once; a version that was committed and not published is published by who follows."""
    where, death = DEATHS[when]
    for first in (0, 4, 8):
        add = chain.feed if where == WRITER else chain.fill
        add(range(first, first + 4))
    drive(chain, where, death)
    chain.follow(spark)
    if where == WRITER:
        output = chain.output("a")
        with output.store:
            assert output.snapshot(roll_forward=False).version == 1
        chain.write(spark)
        chain.follow(spark)
    chain.check(spark, range(12))
