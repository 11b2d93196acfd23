"""Queries from a source through a transformation to an output, and the audit of their results.

As a program, this module is a driver: it runs the flows from stdin at the same time.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from attrs import asdict, define, evolve, field, frozen

from commitlog.ingest import INGEST_SCHEMA, IngestAdmin, InputProblem, StateTable
from commitlog.ingest.source_state import SourceState
from commitlog.spark.ingest.options import SPARK_FORMAT, IngestOptions
from commitlog.spark.session_conf import active
from commitlog.tables.open import open_table
from commitlog.urls import parse_store_url, parse_table_url
from support.agent import set_ingest_trap
from support.s3a import s3a_settings_of_bucket
from support.spark_driver import serve
from support.spark_ingest_traps import BatchTrap, trapped
from support.spark_status import started
from support.spark_targets import Place, new_place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from support.servers import Ministack

#: A directory whose name must be quoted in requests and paths.
_NAME = "Ein gang ü%20+=1"

#: Columns of text files, and the expressions of a flow.
TEXT = "value STRING, _metadata STRUCT<file_path: STRING, offset: BIGINT>"
SPARK_TEXT = "value STRING, _metadata STRUCT<file_path: STRING>"
DIGESTS = ("_metadata.file_path AS file", "upper(value) AS text", "sha2(value, 256) AS digest")

Row = tuple[str, str, str]


@frozen(kw_only=True)
class Flow:
    """A query that ingests files, transforms their records, and commits each batch to an output.

    Attributes:
        source: options of the source, with the path.
        columns: columns of the source, as DDL; None to infer them.
        select: SQL expressions for the columns of the output.
        out: URL of the output.
        sink: options of the output.
        checkpoint: directory of the query's checkpoint.
        trap: the trap of the query.
        format: the format of the source.
        hadoop: settings of Hadoop's file systems, with which Spark reads the files.
    """

    source: Mapping[str, str]
    columns: str | None = TEXT
    select: tuple[str, ...] = DIGESTS
    out: str
    sink: Mapping[str, str]
    checkpoint: str
    trap: BatchTrap | None = None
    format: str = "commitlog_ingest"
    hadoop: Mapping[str, str] = field(factory=dict)

    def to_json(self) -> str:
        """Return the flow as text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Flow:
        """Return the flow that `to_json` wrote."""
        fields: dict[str, Any] = json.loads(text)
        trap = fields.pop("trap")
        return cls(**fields, trap=trap and BatchTrap(**trap))

    def start(self, spark: SparkSession, **trigger: Any) -> StreamingQuery:
        """Start the query; without a trigger, it reads all files and ends."""
        names = (self.format, "commitlog")
        by_spark = self.format == SPARK_FORMAT
        trap = self.trap
        if trap is not None:
            formats = trapped(trap)
            for each in formats:
                spark.dataSource.register(each)
            names = (self.format if by_spark else formats[0].name(), formats[1].name())
            if by_spark and trap.in_agent():
                set_ingest_trap(spark, self.source["path"], trap)
        for name, value in self.hadoop.items():
            spark.conf.set(name, value)

        def start() -> StreamingQuery:
            with active(spark):
                reader = spark.readStream.format(names[0]).options(**self.source)
                if self.columns is not None:
                    reader = reader.schema(self.columns)
                rows = reader.load().selectExpr(*self.select)
                if by_spark and trap is not None and trap.at == "rows":
                    rows = trap.in_tasks(rows)
                writer = rows.writeStream.format(names[1]).options(**self.sink)
                writer = writer.option("checkpointLocation", self.checkpoint)
                return writer.trigger(**(trigger or {"availableNow": True})).start(self.out)

        return started(start)

    def run(self, spark: SparkSession) -> StreamingQuery:
        """Run the query until all files are read; return it, or raise its error."""
        query = self.start(spark)
        try:
            query.awaitTermination()
        finally:
            query.stop()
        return query

    def logged(self, log: str) -> list[int]:
        """Return the batches in a log of Spark: ``offsets`` or ``commits``."""
        names = [path.name for path in Path(self.checkpoint, log).glob("[0-9]*")]
        return sorted(int(name) for name in names)


@define
class Landing:
    """A place for input, and a query from there to an output.

    Attributes:
        flow: the query.
        place: its output.
        records: records of the last version of each file, by path.
    """

    flow: Flow
    place: Place
    records: dict[str, list[str]] = field(factory=dict)

    @property
    def options(self) -> IngestOptions:
        """The options of the source, parsed."""
        return IngestOptions.parse(self.flow.source)

    def put(self, path: str, *lines: str, modified: float | None = None) -> None:
        """Put a file of lines."""
        self.put_bytes(path, "".join(f"{line}\n" for line in lines).encode(), modified=modified)
        self.records[path] = list(lines)

    def put_bytes(self, path: str, body: bytes, *, modified: float | None = None) -> None:
        """Put a file of any content; in a directory, it may have any time."""
        with self.options.opened_store() as store:
            store.put(path, body)
        if modified is not None:
            self.set_time(path, modified)

    def set_time(self, path: str, modified: float) -> None:
        """Set the time of a file in a directory, in epoch seconds."""
        os.utime(Path(self.flow.source["path"], path), (modified, modified))

    def delete(self, path: str) -> None:
        """Delete a file."""
        with self.options.opened_store() as store:
            store.delete(path)

    @property
    def bucket(self) -> str:
        """The bucket, on S3."""
        return parse_store_url(self.options.url).name

    def key(self, path: str) -> str:
        """Return the key of an object in the bucket."""
        return f"{parse_store_url(self.options.url).prefix}/{path}"

    def with_options(self, **options: str) -> Landing:
        """Return the same with further options of the source."""
        return evolve(self, flow=evolve(self.flow, source={**self.flow.source, **options}))

    def by_spark(self) -> Landing:
        """Return the same with Spark's own readers."""
        source = {name: value for name, value in self.flow.source.items() if name != "sliceBytes"}
        flow = evolve(self.flow, source=source, columns=SPARK_TEXT, format=SPARK_FORMAT)
        return evolve(self, flow=flow)

    def rows_of(self, *paths: str) -> list[Row]:
        """Return the expected rows of the last versions of some files."""
        return [
            (path, line.upper(), hashlib.sha256(line.encode()).hexdigest())
            for path in paths
            for line in self.records[path]
        ]

    def rows(self, spark: SparkSession) -> Counter[Row]:
        """Return the rows of the output with their counts."""
        url = parse_store_url(self.flow.source["path"])
        root = f"{url.scheme}://{url.name}/" + (f"{url.prefix}/" if url.prefix else "")
        read = spark.read.format("commitlog").options(**self.place.options).load(self.place.url)
        rows = read.select("file", "text", "digest").collect()
        assert all(row.file.startswith(root) for row in rows)
        return Counter((row.file.removeprefix(root), row.text, row.digest) for row in rows)

    def head(self) -> SourceState | None:
        """Return the list row of the source."""
        options = self.options
        with options.opened_table() as table:
            return StateTable(table, options.settings.source).read()

    def operate(self, what: Callable[[IngestAdmin], Any]) -> Any:
        """Return the result of a call of `IngestAdmin`."""
        options = self.options
        with options.opened_store() as store, options.opened_table() as table:
            return what(IngestAdmin(store, table, options.settings))

    def problems(self) -> list[InputProblem]:
        """Return the quarantined slices, sorted by path."""
        found: list[InputProblem] = self.operate(lambda operator: list(operator.problems()))
        return sorted(found, key=lambda problem: problem.slice.file.path)

    def committed(self) -> list[str]:
        """Return the jobs of the output, in order."""
        output = self.place.open()
        with output.store:
            return [record.job_id for record in output.log()]

    def audit(
        self, spark: SparkSession, query: StreamingQuery, expected: Iterable[Row] | None = None
    ) -> None:
        """Check that the output has each input record once, from the batches of `query` in their order,
        and that nothing is left over after a recovery."""
        self.place.recover()
        there = Counter(self.rows_of(*self.records) if expected is None else expected)
        rows = self.rows(spark)
        # Show only a few differences.
        assert list((there - rows).elements())[:5] == list((rows - there).elements())[:5] == []
        jobs = self.committed()
        assert jobs == [f"{query.id}/{number}" for number in range(len(jobs))]
        assert self.flow.logged("offsets")[-1] == self.flow.logged("commits")[-1] == len(jobs) - 1
        output = self.place.open()
        with output.store:
            snapshot = output.snapshot(roll_forward=False)
            assert self.place.visible().keys() == {file.path for file in snapshot.files}
            assert list(output.store.list_staged()) == []
            assert [info.path for info in output.store.list("_commitlog/pending/")] == []


def new_landing(
    way: str, directory: Path, ministack: Callable[[], Ministack], **options: str
) -> Landing:
    """Return a place for text files, with a query to an output in a `way`.

    In a directory, the state is in its default file; on S3, it is in a table of DynamoDB.
    """
    place = new_place(way, directory, ministack)
    source = {"fileFormat": "text", "metadata": "true", **options}
    hadoop: Mapping[str, str] = {}
    if way == "local":
        source["path"] = str(directory / _NAME)
        (directory / _NAME).mkdir()
    else:
        server = ministack()
        given = {name: value for name, value in place.options.items() if name.count(".") == 0}
        of_service = {name: value for name, value in given.items() if name not in ("table", "commit")}
        state = f"dynamodb://{server.new_table_name()}"
        open_table(parse_table_url(state).with_options(server.options), INGEST_SCHEMA).create()
        source |= of_service
        source |= {f"state.{name}": value for name, value in of_service.items()}
        bucket = server.new_bucket()
        source |= {"state": state, "path": f"s3://{bucket}/{quote(_NAME)}"}
        hadoop = s3a_settings_of_bucket(server, bucket)
    flow = Flow(
        source=source,
        out=place.url,
        sink=place.options,
        checkpoint=str(directory / "checkpoint"),
        hadoop=hadoop,
    )
    return Landing(flow, place)


if __name__ == "__main__":
    serve(Flow.from_json, Flow.run)
