"""The source ``commitlog_ingest`` in a real Spark: formats, columns, options, progress."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.orc
import pyarrow.parquet as pq
import pytest
from attrs import field, frozen
from pyspark.errors import PySparkException, StreamingQueryException

from commitlog.ingest import INGEST_SCHEMA, Counters
from commitlog.stores.open import open_store
from commitlog.tables.open import open_table
from commitlog.urls import parse_store_url
from support.selection import in_campaigns, with_all
from support.spark_status import started

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from support.servers import Ministack
    from support.spark_session import SparkLogs

pytestmark = pytest.mark.spark


@frozen
class Stream:
    """A query that reads a directory and keeps its rows in a directory of Parquet files.

    Attributes:
        scratch: a directory of its own.
        options: of the source.
    """

    scratch: Path
    options: Mapping[str, Any] = field(factory=dict)

    @property
    def input(self) -> Path:
        path = self.scratch / "input"
        path.mkdir(exist_ok=True)
        return path

    def feed(self, name: str, *rows: Mapping[str, Any]) -> None:
        """Add a file of JSON lines."""
        path = self.input / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def run(self, spark: SparkSession, schema: str | None = None, **options: Any) -> StreamingQuery:
        """Read until there is nothing new; return the query, or raise the error that ended it."""
        reader = spark.readStream.format("commitlog_ingest")
        reader = reader.options(**{"fileFormat": "json", **self.options, **options})
        rows = (reader if schema is None else reader.schema(schema)).load(str(self.input))
        writer = (
            rows.writeStream.format("commitlog")
            .option("mergeSchema", "true")
            .option("checkpointLocation", str(self.scratch / "checkpoint"))
            .trigger(availableNow=True)
        )
        query = started(lambda: writer.start(str(self.scratch / "out")))
        query.awaitTermination()
        return query

    def rows(self, spark: SparkSession) -> list[dict[str, Any]]:
        """Return all rows that were read, in the order of their text."""
        read = spark.read.format("commitlog").load(str(self.scratch / "out"))
        return sorted((row.asDict(recursive=True) for row in read.collect()), key=str)


@pytest.mark.all
def test_columns_are_inferred_once(spark: SparkSession, tmp_path: Path) -> None:
    """The columns are those of the first files and do not change.

    A file with another column stops the query before any of its records is read. With option newColumns
    the query continues.
    """
    stream = Stream(tmp_path)
    stream.feed("1.json", {"a": 1, "b": "x"}, {"a": 2})
    stream.run(spark)
    stream.feed("2.json", {"a": 3, "b": "z", "c": [1]})
    with pytest.raises(StreamingQueryException, match=r"(?s)UnknownColumns.*'c'"):
        stream.run(spark)
    assert [row["a"] for row in stream.rows(spark)] == [1, 2]
    stream.run(spark, newColumns="ignore")
    assert stream.rows(spark) == [{"a": 1, "b": "x"}, {"a": 2, "b": None}, {"a": 3, "b": "z"}]


@pytest.mark.all
def test_new_columns_are_rescued(spark: SparkSession, tmp_path: Path) -> None:
    """Values that do not fit the columns are kept as JSON."""
    stream = Stream(tmp_path, {"newColumns": "rescue"})
    stream.feed("1.json", {"a": 1})
    stream.run(spark)
    stream.feed("2.json", {"a": "two", "c": {"d": [1, None]}})
    stream.run(spark)
    plain, rescued = stream.rows(spark)
    assert plain == {"a": 1, "_rescued": None}
    assert rescued["a"] is None
    assert json.loads(rescued["_rescued"]) == {"a": "two", "c": {"d": [1, None]}}


def test_a_schema_selects_columns_and_types(spark: SparkSession, tmp_path: Path) -> None:
    """Only the columns of the schema are read, with its types, and nothing is inferred."""
    stream = Stream(tmp_path)
    stream.feed("year=2026/1.json", {"a": 1, "b": "x"})
    stream.run(spark, "a DOUBLE, year INT, _metadata STRUCT<file_name STRING, offset BIGINT>")
    assert stream.rows(spark) == [
        {"a": 1.0, "year": 2026, "_metadata": {"file_name": "1.json", "offset": 0}}
    ]


@pytest.mark.all
def test_partition_directories_of_spark_are_read(spark: SparkSession, tmp_path: Path) -> None:
    """A directory written with `partitionBy` is read as Spark reads it in a session in UTC."""
    stream = Stream(tmp_path, {"fileFormat": "parquet"})
    query = (
        "SELECT id AS a, timestamp'2026-01-01 00:00:00' + make_interval(0,0,0,0,0,id) AS ts,"
        " concat('é/', id, '%:') AS city, cast(id AS INT) AS p FROM range(3)"
    )
    columns = "a BIGINT, ts TIMESTAMP, city STRING, p INT"
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    session.sql(query).write.partitionBy("ts", "city", "p").parquet(str(stream.input), mode="append")
    stream.run(spark, columns, newColumns="fail")
    read = session.read.schema(columns).parquet(str(stream.input)).collect()
    assert stream.rows(spark) == sorted((row.asDict() for row in read), key=str)
    assert len(read) == 3


@pytest.mark.parametrize(
    ("schema", "options", "said"),
    [
        (None, {}, "give them with .schema"),
        in_campaigns("a INT", {"metadata": "true"}, "no column _metadata"),
        in_campaigns("a INT", {"newColumns": "rescue"}, "_rescued STRING"),
        in_campaigns("a INT, A INT", {}, "twice"),
        with_all("a INT", {"maxFiles": "1"}, "unknown option 'maxfiles'"),
        ("a INT", {"state": "sqlite:////nowhere/at/all.db"}, "nowhere"),
    ],
)
def test_invalid_options_are_refused(
    spark: SparkSession, tmp_path: Path, schema: str | None, options: dict[str, str], said: str
) -> None:
    """The error names the problem, and nothing is read."""
    with pytest.raises((PySparkException, StreamingQueryException)) as raised:
        Stream(tmp_path).run(spark, schema, **options)
    assert said in str(raised.value)


def _csv(table: pa.Table, path: Path) -> None:
    pa.csv.write_csv(table, path)


@pytest.mark.parametrize(
    ("name", "write", "options"),
    [
        with_all("parquet", pq.write_table, {}),
        in_campaigns("orc", pa.orc.write_table, {}),
        in_campaigns("csv", _csv, {"header": "true", "inferSchema": "true"}),
    ],
)
def test_each_format_is_read_with_its_columns(
    spark: SparkSession,
    tmp_path: Path,
    name: str,
    write: Callable[[pa.Table, Path], None],
    options: dict[str, str],
) -> None:
    """Parquet, ORC and CSV files are read with their own columns."""
    stream = Stream(tmp_path, {"fileFormat": name, **options})
    for number in range(3):
        write(pa.table({"id": [number, number + 10], "text": ["ü", None]}), stream.input / f"{number}")
    stream.run(spark)
    rows = stream.rows(spark)
    assert sorted(row["id"] for row in rows) == [0, 1, 2, 10, 11, 12]
    assert {row["text"] for row in rows} == {"ü", None}


@pytest.mark.all
def test_each_line_of_text_is_a_row(spark: SparkSession, tmp_path: Path) -> None:
    """A row has the text of a line, and its offset on request."""
    stream = Stream(tmp_path, {"fileFormat": "text", "metadata": "true", "pathGlobFilter": "*.log"})
    (stream.input / "day=1").mkdir()
    (stream.input / "day=1" / "a.log").write_text("eins\nzwei\n")
    (stream.input / "b.txt").write_text("drei\n")
    stream.run(spark)
    assert [(row["value"], row["day"], row["_metadata"]["offset"]) for row in stream.rows(spark)] == [
        ("eins", "1", 0),
        ("zwei", "1", 5),
    ]


def test_batches_are_limited_and_counted(spark: SparkSession, tmp_path: Path) -> None:
    """A batch has at most maxFilesPerTrigger files, and the query's progress has the counters."""
    stream = Stream(tmp_path, {"maxFilesPerTrigger": 2})
    for number in range(5):
        stream.feed(f"{number}.json", {"a": number})
    query = stream.run(spark, "a INT")
    batches = [batch for batch in query.recentProgress if batch.numInputRows]
    assert [batch.numInputRows for batch in batches] == [2, 2, 1]
    counters = [Counters.from_json(json.loads(batch.sources[0].latestOffset)) for batch in batches]
    assert [each and (each.epoch, each.epoch_files, each.files) for each in counters] == [
        (1, 2, 2),
        (2, 2, 4),
        (3, 1, 5),
    ]


@pytest.mark.all
def test_committed_files_are_archived(spark: SparkSession, tmp_path: Path) -> None:
    """Spark commits a batch when the next one begins."""
    archive = tmp_path / "input" / "_old"
    stream = Stream(tmp_path, {"cleanSource": "archive", "sourceArchiveDir": str(archive)})
    stream.feed("1.json", {"a": 1})
    stream.run(spark, "a INT")
    stream.feed("2.json", {"a": 2})
    stream.run(spark, "a INT")
    assert [file.name for file in archive.iterdir()] == ["1.json"]
    assert [file.name for file in stream.input.glob("*.json")] == ["2.json"]
    assert [row["a"] for row in stream.rows(spark)] == [1, 2]


@pytest.mark.servers
def test_credentials_are_not_written_anywhere(
    spark: SparkSession, tmp_path: Path, ministack: Ministack, spark_logs: SparkLogs
) -> None:
    """Credentials from options reach the services. No plan, log, checkpoint or state contains them."""
    name = ministack.new_table_name()
    given = {_camel(option): value for option, value in ministack.options.items()}
    given |= {f"state.{option}": value for option, value in given.items()}
    with (
        closing(open_table(f"dynamodb://{name}", INGEST_SCHEMA, **ministack.options)) as table,
        closing(open_store(f"s3://{ministack.new_bucket()}/in", **ministack.options)) as store,
    ):
        table.create()
        store.put("a.json", b'{"a": 1}\n')
        place = parse_store_url(store.url)
        options = {"fileFormat": "json", "state": f"dynamodb://{name}", **given}
        rows = spark.readStream.format("commitlog_ingest").options(**options)
        writer = (
            rows.load(f"s3://{place.name}/{place.prefix}")
            .writeStream.format("commitlog")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
        )
        query = started(lambda: writer.start(str(tmp_path / "out")))
        query.awaitTermination()
        assert sum(batch.numInputRows for batch in query.recentProgress) == 1
        stored = [str(item) for item in table.scan()]
    files = [
        path.read_text(errors="replace")
        for path in (tmp_path / "checkpoint").rglob("*")
        if path.is_file()
    ]
    shown = [spark_logs.text(), *stored, *files, str(query.lastProgress)]
    assert len(stored) > 3
    for secret in (ministack.access_key_id, ministack.secret_access_key):
        assert [text for text in shown if secret in text] == []


def _camel(name: str) -> str:
    head, *words = name.split("_")
    return head + "".join(map(str.capitalize, words))
