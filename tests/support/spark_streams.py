"""A chain of two streaming queries, input to output to output, in a driver that is killed.

As a program, this module is that driver.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from attrs import asdict, field, frozen
from pyspark.sql.types import StructType

from commitlog.commit.record import LEASE_SCHEMA
from commitlog.outputs import Output
from commitlog.spark.schema import dump_schema
from commitlog.spark.targets.output import ReadOptions
from commitlog.tables.open import open_table
from commitlog.urls import parse_table_url
from support.spark_driver import serve
from support.spark_jobs import Trap, trapped_source
from support.spark_status import started

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from support.servers import Ministack

#: The steps at which a driver may die: writing the first output, reading it, or writing the second one.
WRITER, TAIL, SINK = "writer", "tail", "sink"


@frozen
class Chain:
    """A query that copies numbers in files to an output, and one that copies the output to another.

    Attributes:
        scratch: a directory for input and checkpoints.
        top: URL above both outputs.
        place: options to reach them.
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
        """Copy the first output to the second one, with three files in a batch."""
        reader = spark.readStream.format(source).options(**self.place)
        reader = reader.option("startingVersion", 0).option("maxFilesPerTrigger", 3)
        self._copy(reader.schema("id bigint").load(f"{self.top}/a"), "b", sink)

    def _copy(self, rows: DataFrame, name: str, format_name: str) -> None:
        options = {"checkpointLocation": str(self.scratch / f"checkpoint-{name}"), **self.place}
        writer = rows.writeStream.format(format_name).options(**options)
        writer = writer.trigger(availableNow=True)
        query = started(lambda: writer.start(f"{self.top}/{name}"))
        try:
            query.awaitTermination()
        finally:
            query.stop()

    def output(self, name: str) -> Output:
        """Open an output."""
        return Output(ReadOptions.parse({**self.place, "path": f"{self.top}/{name}"}).open())

    def recover(self, name: str) -> None:
        """Recover an output, while no query is running."""
        output = self.output(name)
        with output.store:
            assert output.recover(older_than=0).live == ()

    def versions(self, name: str) -> int:
        """Return the number of visible versions of an output."""
        output = self.output(name)
        with output.store:
            return output.snapshot(roll_forward=False).version

    def check(self, spark: SparkSession, numbers: range) -> None:
        """Check that both outputs have each number once, and that nothing is left over."""
        for name in "ab":
            self.recover(name)
            output = self.output(name)
            with output.store:
                assert list(output.store.list_staged()) == []
                snapshot = output.snapshot(roll_forward=False)
                assert snapshot.rows == len(numbers)
                left = {info.path for info in output.store.list()}
                assert {path for path in left if not path.startswith("_")} == {
                    file.path for file in snapshot.files
                }
                assert not any(path.startswith("_commitlog/pending/") for path in left)
                jobs = [record.job_id.rpartition("/") for record in output.log()]
            if name == "b":
                assert len({query for query, _, _ in jobs}) == 1
                assert [int(batch) for _, _, batch in jobs] == list(range(len(jobs)))
            read = spark.read.format("commitlog").options(**self.place).load(f"{self.top}/{name}")
            assert sorted(row.id for row in read.collect()) == list(numbers)


@frozen
class Doom:
    """The work of a driver until it is killed.

    Attributes:
        chain: its chain.
        where: the part of it with the trap. The first batch of the writer has none.
        trap: the trap at which it waits.
    """

    chain: Chain
    where: str
    trap: Trap

    def to_json(self) -> str:
        """Return it as text."""
        place = [str(self.chain.scratch), self.chain.top, dict(self.chain.place)]
        return json.dumps([place, self.where, asdict(self.trap)])

    @classmethod
    def from_json(cls, text: str) -> Doom:
        """Return what `to_json` wrote."""
        (scratch, top, place), where, trap = json.loads(text)
        return cls(Chain(Path(scratch), top, place), where, Trap(**trap))

    def run(self, spark: SparkSession) -> None:
        """Run the part."""
        source = trapped_source(self.trap)
        spark.dataSource.register(source)
        if self.where == WRITER:
            self.chain.feed(range(4))
            self.chain.write(spark)
            self.chain.feed(range(4, 8))
            self.chain.feed(range(8, 12))
            self.chain.write(spark, source.name())
        elif self.where == TAIL:
            self.chain.follow(spark, source=source.name())
        else:
            self.chain.follow(spark, sink=source.name())


def new_chain(way: str, scratch: Path, ministack: Callable[[], Ministack]) -> Chain:
    """Return a chain in a directory, or on S3 with leases in DynamoDB."""
    (scratch / "lake").mkdir(parents=True)
    if way == "local":
        return Chain(scratch, str(scratch / "lake"), {})
    server = ministack()
    table = server.new_table_name()
    leases = parse_table_url(f"dynamodb://{table}").with_options(server.options)
    open_table(leases, LEASE_SCHEMA).create()
    # The shortest lease, because the lease of a dead driver delays the next one.
    place = {**server.options, "commit": f"dynamo:{table}:3000"}
    return Chain(scratch, f"s3://{server.new_bucket()}", place)


if __name__ == "__main__":
    serve(Doom.from_json, Doom.run)
