"""The format ``commitlog_ingest_spark`` in a real Spark: Spark's own readers read a source's files."""

from __future__ import annotations

import gzip
import itertools
import json
import os
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from attrs import evolve
from pyspark.errors import StreamingQueryException

from commitlog.errors import InputChanged, InputMissing
from commitlog.spark import error_of, stream_files
from commitlog.spark.ingest.options import PYTHON_FORMAT, SPARK_FORMAT
from support.agent import kill_agent, killed_in
from support.s3a import s3a_settings
from support.selection import in_campaigns, with_all
from support.spark_ingest import SPARK_TEXT, Landing, new_landing
from support.spark_status import started

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from support.servers import Ministack

# Some queries end only after four attempts at a task.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

METADATA = (
    "_metadata struct<file_path:string,file_name:string,file_size:bigint,"
    "file_modification_time:timestamp,etag:string>"
)
IN_PATH = f"day date, n int, b string, {METADATA}"


@pytest.fixture
def local(tmp_path: Path) -> Landing:
    """A directory, and a query that reads it with Spark's readers and copies it to another one."""
    return new_landing("local", tmp_path, lambda: pytest.fail("no server is needed")).by_spark()


def read(
    spark: SparkSession,
    directory: Path,
    scratch: Path,
    reader: str,
    columns: str | None,
    **options: str,
) -> list[dict[str, Any]]:
    """Return all rows of a directory by a reader, in the order of their text."""
    options["state"] = f"sqlite://{scratch}/state-{reader}"
    stream = stream_files(spark, str(directory), schema=columns, reader=reader, options=options)
    writer = stream.writeStream.format("commitlog").trigger(availableNow=True)
    writer = writer.option("checkpointLocation", f"{scratch}/checkpoint-{reader}")
    query = started(lambda: writer.start(f"{scratch}/out-{reader}"))
    query.awaitTermination()
    rows = spark.read.format("commitlog").load(f"{scratch}/out-{reader}").collect()
    return sorted((row.asDict(recursive=True) for row in rows), key=str)


# -- rows ----------------------------------------------------------------------------------------------

#: Directories with columns, which also have other values in the records, and names that need quoting.
DIRECTORIES = [
    "day=2026-01-01/n=07/b=%41+ü",
    "day=__HIVE_DEFAULT_PARTITION__/n=-1/b=a%3Db",
    "_x/🚀%20 x",
]

#: Lines that fit the columns.
JSON_LINES = [
    '{"l":1,"s":"é\\u00e9\\n","b":"of the record","n":5}',
    ' {"l":9223372036854775807, "d":0.1, "m":-999.99} ',
    '{"s":1.50,"d":1e39,"more":[{"x":{}}]}',
    '{"s":{"b": 1.0,  "c":"\\u00e9"},"a":[1,null,2],"o":{"s":"x","i":1}}',
    '{"t":"2013-03-10T02:30:00","y":"0001-01-01"}',
    '{"t":"2013-03-10T02:30:00.123456+05:30","o":{}}',
    "{}",
    "",
]
CSV_LINES = [
    "l,s,d,m,y,t",
    '1,"a,b",.5,1.50,2013-03-10,2013-03-10T02:30:00',
    "-9223372036854775808, x ,1e2,-0.01,9999-12-31,2013-03-10T02:30:00Z",
    ",,,,,",
]
CASES = {
    "json": ("l bigint, d double, m decimal(5,2), s string, t timestamp, y date, a array<int>,"
             " o struct<i:int,s:string>", JSON_LINES),
    "csv": ("l bigint, s string, d double, m decimal(5,2), y date, t timestamp", CSV_LINES),
    "text": ("value string", ["Zeile 1", "", "ü € \t ", "Zeile 1"]),
}  # fmt: skip


def made(spark: SparkSession, name: str, directory: Path) -> tuple[str, dict[str, str]]:
    """Make files in directories of all kinds; return their columns and the options of their format."""
    if name in CASES:
        columns, lines = CASES[name]
        for number, below in enumerate(DIRECTORIES):
            path = directory / below.replace("_x", "x")
            # CSV without a column for a directory would have too few fields.
            if name == "csv" and "day=" not in below:
                continue
            path.mkdir(parents=True)
            data = "".join(f"{line}\n" for line in lines).encode()
            (path / f"{number}.{name}").write_bytes(data)
            (path / f"{number}.{name}.gz").write_bytes(gzip.compress(data))
            (path / f"empty.{name}").touch()
        return columns, {"header": "true"} if name == "csv" else {}
    # Names of columns in another case, and a column that the path has as well.
    rows = spark.sql(
        "select id L, nullif(id, 3) d, cast(id * 1.25 as decimal(5, 2)) m, concat('é', id) S,"
        " date_add(date'1969-12-25', cast(id as int)) y, 'of the record' b, array(id, null) a,"
        " if(id = 2, null, named_struct('s', 'x', 'i', nullif(id, 4))) o from range(8)"
    )
    for below in DIRECTORIES:
        target = directory / below.replace("_x", "x")
        # Spark includes the format Avro, but a jar of its own has the name.
        writer = "org.apache.spark.sql.avro.AvroFileFormat" if name == "avro" else name
        rows.coalesce(2).write.format(writer).save(str(target))
    columns = "l bigint, d bigint, m decimal(5,2), s string, y date, a array<bigint>"
    return f"{columns}, o struct<i:bigint,s:string>, lacking string", {}


@pytest.mark.parametrize(
    "name",
    [
        "parquet",
        *(with_all("text"), with_all("orc")),
        # Both formats read these in the test below, too.
        *(in_campaigns(each) for each in ("json", "csv", "avro")),
    ],
)
def test_rows_are_those_of_python(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """Both formats give the same rows: values, columns of directories, and metadata."""
    directory = tmp_path / "in put"
    columns, options = made(spark, name, directory)
    columns = f"{columns}, {IN_PATH}"
    options = {"fileFormat": name, "maxFilesPerTrigger": "4", "newColumns": "ignore", **options}
    theirs = read(spark, directory, tmp_path, "python", columns, **options)
    mine = read(spark, directory, tmp_path, "spark", columns, **options)
    assert len(mine) > 5
    assert list(map(str, mine)) == list(map(str, theirs))


@pytest.mark.parametrize(
    "name",
    [
        *(with_all(each) for each in ("json", "csv", "avro")),
        *(in_campaigns(each) for each in ("text", "parquet", "orc")),
    ],
)
def test_inferred_columns_are_those_of_python(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """Both formats infer the same columns, with those of directories, and read the same rows."""
    directory = tmp_path / "in put"
    _, options = made(spark, name, directory)
    options = {"fileFormat": name, "newColumns": "ignore", **options}
    theirs = read(spark, directory, tmp_path, "python", None, **options)
    mine = read(spark, directory, tmp_path, "spark", None, **options)
    assert len(mine) > 5
    assert list(map(str, mine)) == list(map(str, theirs))


def test_filters_of_directories_are_applied(spark: SparkSession, tmp_path: Path) -> None:
    """Spark leaves filters of columns in paths to the source, and pushes others into its readers."""
    for day, letter in ("2026-01-01", "a"), ("2026-01-02", "b"), ("2026-01-02", "c"):
        path = tmp_path / f"in/day={day}/b={letter}"
        spark.range(3).write.parquet(str(path))
    spark.range(10, 13).write.parquet(str(tmp_path / "in/plain"))
    rows = (
        spark.readStream.format(SPARK_FORMAT)
        .schema("id bigint, day date, b string")
        .options(fileFormat="parquet", state=f"sqlite://{tmp_path}/state")
        .load(str(tmp_path / "in"))
        .where("(day > date'2026-01-01' and b in ('b', 'x') or b is null) and id % 10 < 2")
    )
    found: list[Any] = []
    run(rows, tmp_path / "checkpoint", lambda batch: found.extend(batch.select("b", "id").collect()))
    assert sorted(map(tuple, found), key=str) == [("b", 0), ("b", 1), (None, 10), (None, 11)]


def run(rows: DataFrame, checkpoint: Path, act: Callable[[DataFrame], object]) -> None:
    """Run a query whose batches are given to `act`, until all files are read."""
    writer = rows.writeStream.foreachBatch(lambda batch, _: act(batch) and None)
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    query = started(writer.start)
    query.awaitTermination()


# -- batches -------------------------------------------------------------------------------------------


@pytest.mark.all
def test_any_name_is_read_once(spark: SparkSession, local: Landing) -> None:
    """Names are kept, batches have the given number of files, and a restart finds only new files."""
    landing = local.with_options(maxFilesPerTrigger="3")
    names = [
        "ü €.txt",
        "100%.txt",
        "%41%2F.txt",
        "a+b.txt",
        "x#y?z=1&w.txt",
        "🚀/day=2026-11-21/é=%3D.txt",
    ]
    names += [
        "back\\slash.txt",
        "quote'\".txt",
        "[a]{b}*.txt",
        "<&>.txt",
        "zwei  Leerzeichen .txt",
        "10:00Z.txt",
    ]
    for number, name in enumerate(names):
        landing.put(name, f"Zeile {number}", "zweite")
    landing.put_bytes("_hidden/x.txt", b"hidden\n")
    query = landing.flow.run(spark)
    assert [each.numInputRows for each in query.recentProgress if each.numInputRows] == [6, 6, 6, 6]
    landing.audit(spark, query)
    landing.put("later.txt", "nachher")
    landing.put_bytes("later.txt.gz", b"")  # Spark's readers fail at it
    landing.put("a+b.txt", "neuer Inhalt")
    query = landing.flow.run(spark)
    assert [each.numInputRows for each in query.recentProgress if each.numInputRows] == [2]
    every = [*landing.rows_of(*landing.records), *old_rows(landing, "a+b.txt", "Zeile 3", "zweite")]
    landing.audit(spark, query, every)


def old_rows(landing: Landing, path: str, *lines: str) -> list[tuple[str, str, str]]:
    """Return the rows of an earlier version of a file."""
    return evolve(landing, records={path: list(lines)}).rows_of(path)


@pytest.mark.all
def test_a_query_changes_its_reader(spark: SparkSession, local: Landing) -> None:
    """Both formats have the same state and the same offsets; the agent of a query may be another one."""
    by_python = evolve(local, flow=evolve(local.flow, format=PYTHON_FORMAT))
    for number, landing in enumerate([by_python, local, by_python, local]):
        landing.put(f"{number}.txt", f"Zeile {number}")
        kill_agent(spark)
        query = landing.flow.run(spark)
        landing.audit(spark, query)
    assert local.head().epoch == 4  # type: ignore[union-attr]


@pytest.mark.all
@pytest.mark.servers
def test_files_on_s3_are_read_through_s3a(
    spark: SparkSession, tmp_path: Path, ministack: Ministack
) -> None:
    """The agent lists with the settings of S3A, and a task compares etags."""
    landing = by_s3a(new_landing("s3", tmp_path, lambda: ministack))
    store = new_landing("s3", tmp_path / "other", lambda: ministack)
    url = landing.flow.source["path"]
    writer = evolve(landing, flow=evolve(store.flow, source={**store.flow.source, "path": url}))
    with settings(spark, s3a_settings(ministack)):
        writer.put("a ü.txt", "eins", "zwei")
        writer.put("day=1/b+%41.txt", "drei")
        landing.records.update(writer.records)
        query = landing.flow.run(spark)
        assert sum(each.numInputRows for each in query.recentProgress) == 3

        seen = []

        def change(batch: DataFrame) -> None:
            writer.put("c.txt", "neuer Inhalt")
            seen.append(outcome(batch))
            raise ValueError("the batch has failed")

        writer.put("c.txt", "alt")
        with pytest.raises(StreamingQueryException):
            run(stream(spark, landing), Path(landing.flow.checkpoint), change)
        assert seen == [InputChanged]
        landing.flow.run(spark)
        landing.records.update(writer.records)
        assert landing.rows(spark) == dict.fromkeys(landing.rows_of(*landing.records), 1)


def by_s3a(landing: Landing) -> Landing:
    """Return a landing on S3 whose files Spark reads, with the connection of S3A."""
    landing = landing.by_spark()
    source = {
        name: value
        for name, value in landing.flow.source.items()
        if "." in name or name in ("path", "state", "fileFormat", "metadata")
    }
    return evolve(landing, flow=evolve(landing.flow, source=source))


@contextmanager
def settings(spark: SparkSession, values: Any) -> Iterator[None]:
    """Set settings of Hadoop in a session for a block."""
    names = {name.removeprefix("spark.hadoop."): value for name, value in values.items()}
    for name, value in names.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in names:
            spark.conf.unset(name)


def stream(spark: SparkSession, landing: Landing) -> DataFrame:
    """Return the stream of a landing."""
    reader = spark.readStream.format(SPARK_FORMAT).options(**landing.flow.source).schema(SPARK_TEXT)
    return reader.load()


@pytest.mark.all
def test_tasks_are_filled_evenly(spark: SparkSession, local: Landing) -> None:
    """Two files of three fit into a partition. Five tasks would take as long as six on two cores."""
    for number in range(10):
        local.put(f"{number}.txt", "x" * 60_000)
    counts: list[int] = []
    limits = {"spark.sql.files.maxPartitionBytes": "150000", "spark.sql.files.openCostInBytes": "4096"}
    with settings(spark, limits):
        run(
            stream(spark, local),
            Path(local.flow.checkpoint),
            lambda batch: counts.append(batch.rdd.getNumPartitions()),
        )
    assert counts == [10]


@pytest.mark.all
@pytest.mark.parametrize("name", ["parquet", "orc"])
def test_a_small_file_has_more_rows_than_a_vector(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    """Vectors are short if files are small; a row of a small file may take less than a bit."""
    spark.sql("select 7 n from range(3000)").coalesce(1).write.format(name).save(str(tmp_path / "in"))
    found = read(spark, tmp_path / "in", tmp_path, "spark", "n int", fileFormat=name)
    assert found == [{"n": 7}] * 3000


# -- files that are not as they were listed ------------------------------------------------------------


def replaced(path: Path) -> None:
    """Put another file in the place of one, with the same size and time."""
    other = path.with_name("." + path.name)
    other.write_text(path.read_text().swapcase())
    times = path.stat()
    os.utime(other, ns=(times.st_atime_ns, times.st_mtime_ns))
    other.rename(path)


def outcome(batch: DataFrame) -> Any:
    """Return the class of our error that reading a batch raises; None if it raises none."""
    try:
        batch.collect()
    except Exception as error:
        return type(error_of(error))
    return None


CHANGES: dict[str, tuple[Callable[[Path], object], str, dict[str, str]]] = {
    "replaced": (replaced, "changed", {}),
    "appended": (lambda path: path.write_text(path.read_text() + "more\n"), "changed", {}),
    "deleted": (lambda path: path.unlink(), "missing", {"missing": "skip"}),
}


@pytest.mark.parametrize("change", ["replaced", with_all("appended"), with_all("deleted")])
def test_a_file_that_changes_is_found_by_the_task(
    spark: SparkSession, local: Landing, change: str
) -> None:
    """Nothing of another version is delivered. The next start leaves the listed version out."""
    act, kind, options = CHANGES[change]
    landing = local.with_options(**options)
    path = Path(landing.flow.source["path"], "b.txt")
    landing.put("a.txt", "eins")
    path.write_text("zwei\n")  # by another program: the store does not know it
    seen: list[Any] = []

    def changed(batch: DataFrame) -> None:
        act(path)
        seen.append(outcome(batch))
        raise ValueError("the batch has failed")

    with pytest.raises(StreamingQueryException):
        run(stream(spark, landing), Path(landing.flow.checkpoint), changed)
    assert seen == [InputMissing if kind == "missing" else InputChanged]
    query = landing.flow.run(spark)
    if path.exists():
        landing.records["b.txt"] = path.read_text().splitlines()
    landing.audit(spark, query)
    assert [(each.slice.file.path, each.kind) for each in landing.problems()] == [("b.txt", kind)]


@pytest.mark.all
def test_a_change_of_a_file_that_was_delivered_is_no_problem(
    spark: SparkSession, local: Landing
) -> None:
    """When a query starts, Spark asks for the batch that it has committed last, and does not read it."""
    local.put("a.txt", "eins")
    local.flow.run(spark)
    local.put("a.txt", "zwei")
    query = local.flow.run(spark)
    local.audit(spark, query, [*local.rows_of("a.txt"), *old_rows(local, "a.txt", "eins")])
    assert local.problems() == []


@pytest.mark.all
@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        ("json", b'{"n":1}\n{"n":"x"}\n', "FAILED_READ_FILE"),
        in_campaigns("csv", b"n\n1\nx\n", "FAILED_READ_FILE"),
        ("parquet", b"", "commitlog.errors.InputUnreadable"),
        in_campaigns("parquet", b"PAR1 and more", "FAILED_READ_FILE"),
    ],
)
def test_content_that_cannot_be_read_is_not_lost(
    spark: SparkSession, tmp_path: Path, name: str, content: bytes, error: str
) -> None:
    """It stops the query, whatever the session ignores. A file in its place is another version."""
    directory = tmp_path / "in"
    directory.mkdir()
    path = directory / "a"
    path.write_bytes(content)
    options = {"fileFormat": name, **({"header": "true"} if name == "csv" else {})}
    with settings(spark, {"spark.sql.files.ignoreCorruptFiles": "true"}):
        with pytest.raises(StreamingQueryException, match=error):
            read(spark, directory, tmp_path, "spark", "n int", **options)
        rows = spark.range(5, 6).selectExpr("cast(id as int) n")
        rows.coalesce(1).write.format(name).options(**options).save(str(tmp_path / "good"))
        (good,) = (tmp_path / "good").glob(f"*.{name}")
        good.rename(path)
        found = read(spark, directory, tmp_path, "spark", "n int", **options)
    assert found == [{"n": 5}]


# -- options -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"fileFormat": "binaryFile"}, "NotSupported"),
        ({"unreadable": "quarantine"}, "NotSupported"),
        ({"newColumns": "rescue"}, "NotSupported"),
        ({"sliceBytes": "1MiB"}, "NotSupported"),
        ({"ignoreCorruptFiles": "true"}, "NotSupported"),
        ({"recursiveFileLookup": "true"}, "ConfigurationError"),
        ({"reader": "python"}, "ConfigurationError"),
        ({"reader": "java"}, "ConfigurationError"),
        ({"maxFilesPerTrigger": "0"}, "ConfigurationError"),
    ],
)
def test_options_that_spark_cannot_satisfy_are_refused(
    spark: SparkSession, tmp_path: Path, options: dict[str, str], error: str
) -> None:
    """The error comes when the stream is made, and names what to use."""
    reader = spark.readStream.format(SPARK_FORMAT).schema("n int").option("fileFormat", "json")
    with pytest.raises(Exception, match=rf"commitlog\.errors\.{error}") as raised:
        reader.options(**options).load(str(tmp_path))
    assert type(error_of(raised.value)).__name__ == error


def test_each_format_names_the_other(spark: SparkSession, tmp_path: Path) -> None:
    """Spark has one implementation for each name, so option ``reader`` cannot choose."""
    (tmp_path / "a.json").write_text(json.dumps({"n": 1}))
    python = spark.readStream.format(PYTHON_FORMAT).options(fileFormat="json", reader="spark")
    with pytest.raises(Exception, match=rf"use format '{SPARK_FORMAT}'"):
        python.load(str(tmp_path))
    spark_format = spark.readStream.format(SPARK_FORMAT).options(fileFormat="json", reader="python")
    with pytest.raises(Exception, match=rf"use format '{PYTHON_FORMAT}'"):
        spark_format.load(str(tmp_path))


# -- cleaning and notifications ------------------------------------------------------------------------


def test_committed_files_are_cleaned(spark: SparkSession, local: Landing) -> None:
    """Spark commits a batch when the next one begins: the last one is cleaned after a restart."""
    landing = local.with_options(cleanSource="delete", maxFilesPerTrigger="1")
    for name in ("a.txt", "b.txt", "c.txt"):
        landing.put(name, name)
    landing.audit(spark, landing.flow.run(spark))
    assert files_of(landing) == {"c.txt"}
    landing.put("d.txt", "d")
    landing.audit(spark, landing.flow.run(spark))
    assert files_of(landing) == {"d.txt"}


def files_of(landing: Landing) -> set[str]:
    """Return the paths of the files of a directory."""
    root = Path(landing.flow.source["path"])
    return {str(path.relative_to(root)) for path in root.rglob("*.txt")}


#: The calls in which the agent is killed in each run with ``--all``; campaigns have the others.
SOME_CALLS = [("plan", False), ("files", True), ("commit", True)]


@pytest.mark.all
@pytest.mark.parametrize(
    ("call", "after"),
    [
        case if case in SOME_CALLS else in_campaigns(*case)
        for case in itertools.product(
            ["check", "latest_offset", "plan", "files", "commit", "stop"], [False, True]
        )
    ],
    ids=lambda value: {False: "before", True: "after"}.get(value, value),
)
def test_the_agent_is_killed_in_any_call(
    spark: SparkSession, local: Landing, call: str, after: bool
) -> None:
    """Another one continues: each record is delivered once, and only delivered files are cleaned."""
    landing = local.with_options(cleanSource="delete", maxFilesPerTrigger="1")
    for name in ("a.txt", "b.txt", "c.txt"):
        landing.put(name, name, "equal")
    with killed_in(spark, call, after=after):
        landing.audit(spark, landing.flow.run(spark))
    assert files_of(landing) >= {"c.txt"}
    landing.put("d.txt", "d")
    landing.audit(spark, landing.flow.run(spark))
    assert files_of(landing) == {"d.txt"}


@pytest.mark.all
@pytest.mark.servers
def test_objects_are_announced_and_deleted(
    spark: SparkSession, tmp_path: Path, ministack: Ministack
) -> None:
    """The agent receives messages and cleans the bucket with the connection of S3A."""
    landing = by_s3a(new_landing("s3", tmp_path, lambda: ministack))
    writer = new_landing("s3", tmp_path / "other", lambda: ministack)
    url = landing.flow.source["path"]
    writer = evolve(writer, flow=evolve(writer.flow, source={**writer.flow.source, "path": url}))
    sqs = ministack.client("sqs")
    queue = sqs.create_queue(QueueName=f"events-{writer.bucket}")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    events = [{"QueueArn": arn, "Events": ["s3:ObjectCreated:*"]}]
    ministack.client("s3").put_bucket_notification_configuration(
        Bucket=writer.bucket, NotificationConfiguration={"QueueConfigurations": events}
    )
    reach = {name: text for name, text in ministack.options.items() if "style" not in name}
    landing = landing.with_options(
        maxFilesPerTrigger="1",
        remember="everything",
        cleanSource="delete",
        notifications=f"sqs://events-{writer.bucket}",
        **{f"notifications.{name}": text for name, text in reach.items()},
    )
    with settings(spark, s3a_settings(ministack)):
        writer.put("a ü.txt", "eins")
        query = landing.flow.start(spark, processingTime="0 seconds")
        try:
            until_read(query, 1)
            for number, name in enumerate(("b.txt", "c.txt"), 2):
                writer.put(name, name)
                until_read(query, number)
            report = json.loads(query.lastProgress["sources"][0]["latestOffset"])
        finally:
            query.stop()
        landing.records.update(writer.records)
        assert landing.rows(spark) == dict.fromkeys(landing.rows_of(*landing.records), 1)
    assert report["counters"]["unusable"] == 0
    client = ministack.client("s3")
    keys = [each["Key"] for each in client.list_objects_v2(Bucket=writer.bucket)["Contents"]]
    assert keys == [writer.key("c.txt")]


def until_read(query: StreamingQuery, rows: int) -> None:
    """Return once a query has read a number of rows, or has often found nothing new.

    The server sends the message about an object in the background. Until it comes, nothing is new for
    Spark: each call ends with a batch that has waited for a message in vain.
    """
    for _ in range(20):
        query.processAllAvailable()
        if sum(each.numInputRows for each in query.recentProgress) >= rows:
            return
