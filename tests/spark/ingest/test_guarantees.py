"""The guarantees of a source in a real Spark: each version of each file is read once.

This holds for changed and deleted files, and for lost checkpoints and state. The tests in
``tests/spark/crash/test_ingest.py`` kill drivers.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from attrs import evolve
from pyspark.errors import StreamingQueryException

from support.agent import ingest_trapped
from support.selection import in_campaigns, with_all
from support.spark_gates import Gate
from support.spark_ingest import Landing, new_landing
from support.spark_ingest_traps import BatchTrap

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from support.servers import Ministack

# Some queries end only after four attempts at a task.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture
def local(tmp_path: Path) -> Landing:
    """A directory, its state in the default place, and a query that copies it to another directory."""
    return new_landing("local", tmp_path, lambda: pytest.fail("no server is needed"))


@pytest.fixture
def s3(tmp_path: Path, ministack: Ministack) -> Landing:
    """A prefix on S3 with its state in DynamoDB, and a query that copies it to another prefix."""
    return new_landing("s3", tmp_path, lambda: ministack)


#: Who reads the files: Python workers, or Spark's own readers. A slow test leaves one to campaigns.
READERS = ["python", "spark"]
BY_PYTHON = ["python", in_campaigns("spark")]
BY_SPARK = [in_campaigns("python"), "spark"]


def read_by(reader: str, landing: Landing) -> Landing:
    """Return the same place read by one of `READERS`."""
    return landing.by_spark() if reader == "spark" else landing


@contextmanager
def held(spark: SparkSession, landing: Landing, at: str, **trap: Any) -> Iterator[StreamingQuery]:
    """Run a query up to a trap in its first batch, and let it continue at the end of the block."""
    with Gate() as gate:
        trapped = BatchTrap(**{"at": at, "what": "hold", "batch": 0, "port": gate.port, **trap})
        query = evolve(landing.flow, trap=trapped).start(spark)
        try:
            gate.wait(Ended(query))
            yield query
            gate.open()
            query.awaitTermination()
        finally:
            query.stop()


class Ended:
    """A query with the methods that `Gate.wait` needs of a job."""

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query

    def done(self) -> bool:
        """Return whether the query has ended."""
        return not self._query.isActive

    def exception(self) -> Exception | None:
        """Return the error that ended the query."""
        return self._query.exception()


def refused(spark: SparkSession, landing: Landing, error: str) -> None:
    """Check that the query ends with this error of ours, and commits nothing."""
    before = landing.committed()
    with pytest.raises(StreamingQueryException, match=rf"commitlog\.errors\.{error}"):
        landing.flow.run(spark)
    assert landing.committed() == before


# -- files in a bucket ----------------------------------------------------------------------------------


@pytest.mark.all
def test_files_of_one_second_and_late_ones_are_read(spark: SparkSession, local: Landing) -> None:
    """A file is known by its name and content, and not by its time.

    A new file may have the time of files that were read, or an earlier one in the grace window.
    """
    landing = local.with_options(remember="window", grace="1h")
    now = int(time.time()) - 10.0
    landing.put("b.txt", "one", modified=now)
    landing.put("c.txt", "two", modified=now)
    landing.flow.run(spark)
    landing.put("a.txt", "three", modified=now)
    landing.put("d.txt", "four", modified=now)
    landing.put("late.txt", "five", modified=now - 3000)
    query = landing.flow.run(spark)
    landing.audit(spark, query)


@pytest.mark.all
@pytest.mark.servers
def test_an_upload_that_began_long_before_is_read(
    spark: SparkSession, s3: Landing, ministack: Ministack
) -> None:
    """A multipart object appears when its upload ends, and is read although later files were read."""
    client = ministack.client("s3")
    key = {"Bucket": s3.bucket, "Key": s3.key("a-late.txt")}
    upload = client.create_multipart_upload(**key)["UploadId"]
    part = client.upload_part(**key, UploadId=upload, PartNumber=1, Body=b"late\n")
    s3.put("b.txt", "one")
    s3.put("z.txt", "two")
    s3.flow.run(spark)
    parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
    client.complete_multipart_upload(**key, UploadId=upload, MultipartUpload=parts)
    s3.records["a-late.txt"] = ["late"]
    s3.put("c.txt", "three")
    query = s3.flow.run(spark)
    s3.audit(spark, query)


#: Names that need quoting at some step.
NAMES = [
    "ü €.txt",
    "zwei  Leerzeichen .txt",
    "100%.txt",
    "%41%2F.txt",
    "a+b.txt",
    "x#y?z=1&w.txt",
    "🚀/day=2026-11-21/é=%3D.txt",
    "back\\slash.txt",
    "quote'\".txt",
    "[a]{b}*.txt",
    "<&>.txt",
]


@pytest.mark.all
@pytest.mark.parametrize("way", ["local", in_campaigns("s3", marks=[pytest.mark.servers])])
def test_any_name_is_read(spark: SparkSession, request: pytest.FixtureRequest, way: str) -> None:
    """Names are kept unchanged, empty files have no records, and hidden files are ignored."""
    landing: Landing = request.getfixturevalue(way)
    for number, name in enumerate(NAMES):
        landing.put(name, f"Zeile {number}")
    landing.put("empty.txt")
    landing.put_bytes("_hidden/x.txt", b"hidden\n")
    landing.put_bytes(".hidden.txt", b"hidden\n")
    query = landing.flow.run(spark)
    landing.audit(spark, query)
    assert landing.operate(lambda operator: operator.status()).files == len(NAMES) + 1
    again = landing.flow.run(spark)
    assert again.recentProgress == [] or again.recentProgress[-1].numInputRows == 0
    landing.audit(spark, query)


@pytest.mark.campaign
@pytest.mark.servers
def test_a_key_that_is_no_path_is_reported(
    spark: SparkSession, s3: Landing, ministack: Ministack
) -> None:
    """Keys of other tools that this library refuses are listed and end up as problems."""
    client = ministack.client("s3")
    strange = ["new\nline.txt", "a//b.txt", "tab\t.txt"]
    for name in strange:
        client.put_object(Bucket=s3.bucket, Key=s3.key(name), Body=b"strange\n")
    s3.put("plain.txt", "one")
    refused(spark, s3, "InvalidPath")
    query = s3.with_options(unreadable="quarantine").flow.run(spark)
    s3.audit(spark, query)
    problems = s3.problems()
    assert [each.slice.file.path for each in problems] == sorted(strange)
    assert {each.kind for each in problems} == {"unreadable"}


@pytest.mark.campaign
@pytest.mark.parametrize("reader", READERS)
def test_ten_thousand_files_are_one_batch(spark: SparkSession, local: Landing, reader: str) -> None:
    """Neither Spark's record of a batch nor a row of the state's table grows with the batch."""
    landing = read_by(reader, local).with_options(maxFilesPerTrigger="10000", partitionBytes="2GiB")
    top = Path(landing.flow.source["path"])
    for number in range(10_300):
        if number % 1000 == 0:
            (top / f"{number // 1000:02}").mkdir()
        path = f"{number // 1000:02}/datei-{number:05}.txt"
        (top / path).write_text(f"Zeile {number}\n")
        landing.records[path] = [f"Zeile {number}"]
    query = landing.flow.run(spark)
    landing.audit(spark, query)
    assert [progress.numInputRows for progress in query.recentProgress] == [10_000, 300]
    checkpoint = Path(landing.flow.checkpoint)
    assert sum(path.stat().st_size for path in checkpoint.rglob("*") if path.is_file()) < 20_000
    assert all(path.stat().st_size < 2000 for path in (checkpoint / "offsets").iterdir())
    with landing.options.opened_table() as table:
        sizes = [len(item["body"]) for item in table.scan() if "body" in item]
    assert max(sizes) <= 256 * 1024
    assert sum(sizes) < 100 * 10_300


# -- files that change -------------------------------------------------------------------------------

#: More than one read.
LONG = [f"{number} " + "x" * 1000 for number in range(9000)]


@pytest.mark.all
@pytest.mark.parametrize("changed", ["again", in_campaigns("ignore"), in_campaigns("fail")])
def test_files_are_overwritten(spark: SparkSession, local: Landing, changed: str) -> None:
    """All records of a version are delivered or none, whenever the file is overwritten.

    This may be before, during or after reading. The new version is read or ignored, or the query ends
    until option changed says what to do.
    """
    landing = local.with_options(changed=changed)
    landing.put("z.txt", "read")
    landing.flow.run(spark)
    expected = landing.rows_of("z.txt")
    landing.put("a.txt", *LONG)
    landing.put("b.txt", "never read")
    ends: Any = nullcontext()
    if changed == "fail":
        ends = pytest.raises(
            StreamingQueryException, match=r"errors\.InputChanged: '[ab]\.txt' had etag"
        )
    else:
        landing.put("z.txt", "overwritten after it was read")
    with ends, held(spark, landing, "rows", batch=1):
        landing.put("a.txt", "overwritten while it was read")
        landing.put("b.txt", "overwritten before it was read")
    if changed == "fail":
        refused(spark, landing, "InputChanged")
        landing = landing.with_options(changed="again")
        landing.put("z.txt", "overwritten after it was read")
    query = landing.flow.run(spark)
    if changed != "ignore":
        expected += landing.rows_of("a.txt", "b.txt", "z.txt")
    landing.audit(spark, query, expected)
    problems = landing.problems()
    assert [(each.slice.file.path, each.kind) for each in problems] == [
        ("a.txt", "changed"),
        ("b.txt", "changed"),
    ]


@pytest.mark.all
@pytest.mark.parametrize("missing", [in_campaigns("fail"), "skip"])
def test_files_are_deleted_before_they_are_read(
    spark: SparkSession, local: Landing, missing: str
) -> None:
    """The query skips the files and records a problem for each, or ends until it may skip them."""
    landing = local.with_options(missing=missing)
    for name in ("a.txt", "b.txt", "c.txt"):
        landing.put(name, name)
    ends: Any = nullcontext()
    if missing == "fail":
        ends = pytest.raises(
            StreamingQueryException, match=r"errors\.InputMissing: '[bc]\.txt' was listed"
        )
    with ends, held(spark, landing, "partitions", after=True):
        landing.delete("b.txt")
        landing.delete("c.txt")
    if missing == "fail":
        refused(spark, landing, "InputMissing")
    landing.put("d.txt", "d")
    query = landing.with_options(missing="skip").flow.run(spark)
    landing.audit(spark, query, landing.rows_of("a.txt", "d.txt"))
    problems = landing.problems()
    assert [(each.slice.file.path, each.kind) for each in problems] == [
        ("b.txt", "missing"),
        ("c.txt", "missing"),
    ]


@pytest.mark.parametrize("reader", BY_PYTHON)
@pytest.mark.all
def test_a_run_of_what_is_available_ends_while_files_arrive(
    spark: SparkSession, local: Landing, reader: str
) -> None:
    """It reads the files from before its start, in batches of the given size; the next run, the rest."""
    landing = read_by(reader, local).with_options(maxFilesPerTrigger="2")
    for name in ("b.txt", "c.txt", "d.txt", "e.txt", "f.txt"):
        landing.put(name, name)
    there = landing.rows_of(*landing.records)
    with held(spark, landing, "commit") as query:
        # A second later than the start of the run, because a store keeps times in seconds.
        later = time.time() + 1
        landing.put("a.txt", "new", modified=later)
        landing.put("g.txt", "new", modified=later)
    landing.audit(spark, query, there)
    assert [progress.numInputRows for progress in query.recentProgress] == [2, 2, 1]
    for name in ("a.txt", "g.txt"):
        landing.set_time(name, time.time())  # the next run may start within that second
    landing.audit(spark, landing.flow.run(spark))


# -- files that cannot be read -----------------------------------------------------------------------


@pytest.mark.all
def test_unreadable_records_are_quarantined(spark: SparkSession, local: Landing) -> None:
    """An unreadable record ends the query, or only the records before it are delivered.

    The other records of the same version are delivered after a retry by an operator, and those of a new
    version at once.
    """
    columns = "value STRING, number INT, _metadata STRUCT<file_path: STRING>"
    landing = local.with_options(fileFormat="json")
    landing = evolve(landing, flow=evolve(landing.flow, columns=columns))
    good, text = '{"value": "%s1", "number": 1}\n', '{"value": "%s2", "number": "zwei"}\n'
    landing.put_bytes("a.json", (good % "a").encode())
    landing.put_bytes("b.json", (good % "b" + text % "b" + good % "b").encode())
    landing.put_bytes("c.json", (good % "c" + '{"value": ').encode())
    refused(spark, landing, "InputUnreadable: '[bc].json'")

    landing = landing.with_options(unreadable="quarantine")
    landing.records = {"a.json": ["a1"], "b.json": ["b1"], "c.json": ["c1"]}
    expected = landing.rows_of(*landing.records)
    query = landing.flow.run(spark)
    landing.audit(spark, query, expected)
    place = len(good % "b")
    assert [
        (each.slice.file.path, each.kind, each.records, each.offset) for each in landing.problems()
    ] == [("b.json", "unreadable", 1, place), ("c.json", "unreadable", 1, place)]

    landing.put_bytes("c.json", (good % "c").encode())
    assert len(landing.operate(lambda operator: operator.retry("b.json"))) == 1
    rescuing = landing.with_options(newColumns="rescue")
    flow = evolve(rescuing.flow, columns=f"{columns}, _rescued STRING")
    flow.run(spark)
    landing.records = {"b.json": ["b2", "b1"], "c.json": ["c1"]}
    landing.audit(spark, query, expected + landing.rows_of("b.json", "c.json"))
    assert [each.slice.file.path for each in landing.problems()] == ["c.json"]


# -- limits ------------------------------------------------------------------------------------------


@pytest.mark.all
def test_a_file_may_be_larger_than_a_batch(spark: SparkSession, local: Landing) -> None:
    """Its slices are read in several batches, and a restart continues with the next slice."""
    landing = local.with_options(maxBytesPerTrigger="20KiB", sliceBytes="8KiB")
    landing.put("a.txt", *(f"{number} " + "é" * (number % 50) for number in range(2000)))
    size = Path(landing.flow.source["path"], "a.txt").stat().st_size
    with Gate() as gate:
        trap = BatchTrap(at="latestOffset", what="hold", batch=3, port=gate.port)
        query = evolve(landing.flow, trap=trap).start(spark, processingTime="0 seconds")
        try:
            gate.wait(Ended(query))
        finally:
            query.stop()
    before = landing.operate(lambda operator: operator.status())
    assert 0 < before.rest < size - 2 * 20 * 1024
    batches = len(landing.flow.logged("offsets"))

    landing.put("b.txt", "one")
    again = landing.flow.run(spark)
    landing.audit(spark, again)
    assert len(landing.flow.logged("commits")) >= size / (20 * 1024)
    assert again.recentProgress[0].batchId in (batches - 1, batches)


# -- checkpoint and state ----------------------------------------------------------------------------


@pytest.mark.all
@pytest.mark.parametrize("reader", BY_SPARK)
def test_checkpoint_and_state_are_restored_lost_and_reset(
    spark: SparkSession, local: Landing, tmp_path: Path, reader: str
) -> None:
    """An earlier checkpoint continues if its epochs are kept; any other mismatch is refused.

    None of this touches another source in the same table.
    """
    state = f"sqlite://{tmp_path}/state.sqlite"
    # State is kept only as long as necessary.
    landing = read_by(reader, local)
    landing = landing.with_options(maxFilesPerTrigger="1", state=state, remember="window", grace="0s")
    other = new_landing("local", tmp_path / "other", lambda: pytest.fail("no server is needed"))
    other = read_by(reader, other).with_options(state=state)
    other.put("x.txt", "one")
    other.flow.run(spark)
    for name in ("a.txt", "b.txt", "c.txt", "d.txt", "e.txt"):
        landing.put(name, name, modified=time.time() - 100)
    query = landing.flow.run(spark)
    landing.audit(spark, query)
    checkpoint = Path(landing.flow.checkpoint)
    kept = tmp_path / "kept"
    shutil.copytree(checkpoint, kept)

    # Spark asks a source in Java for the last committed batch, too, and does not run it.
    again = [3, 4] if reader == "python" else [4]
    back(checkpoint, again[0])
    query = landing.flow.run(spark)
    assert [progress.batchId for progress in query.recentProgress][: len(again)] == again
    landing.audit(spark, query)

    back(checkpoint, 1)
    refused(spark, landing, "StateMismatch: epoch [12] of source .* is not kept any more")

    shutil.rmtree(checkpoint)
    refused(spark, landing, "StateMismatch: source .* was read up to epoch 5 by a query with another")

    shutil.rmtree(checkpoint)
    shutil.copytree(kept, checkpoint)
    landing.put("f.txt", "six")
    query = landing.flow.run(spark)
    landing.audit(spark, query)

    assert landing.operate(lambda operator: operator.reset()) > 1
    refused(spark, landing, "StateMismatch")
    other.put("y.txt", "two")
    other.audit(spark, other.flow.run(spark))
    assert other.operate(lambda operator: operator.status()).epoch == 2

    # With a new checkpoint, as the message says, everything is read again.
    shutil.rmtree(checkpoint)
    landing.flow.run(spark)
    assert landing.rows(spark) == Counter(2 * landing.rows_of(*landing.records))


def back(checkpoint: Path, batch: int) -> None:
    """Set a checkpoint back to its state before a batch, as restoring a backup does."""
    for log in ("offsets", "commits"):
        for path in (checkpoint / log).iterdir():
            if int(path.name.strip(".").removesuffix(".crc")) >= batch:
                path.unlink()


# -- requests, tasks and processes that fail ---------------------------------------------------------


FAULTS = {
    "the epoch is not known to be stored, and is not": {"at": "plan", "what": "lose"},
    "the epoch is not known to be stored, and is": {"at": "plan", "what": "lose", "after": True},
    "the claim is not known to be stored, and is": {
        "at": "claim",
        "what": "lose",
        "after": True,
        "batch": 0,
    },
    "a worker is killed in a slice": {"at": "rows", "what": "die"},
    "a worker fails between slices": {"at": "slice", "what": "fail", "nth": 2, "attempts": 2},
}


@pytest.mark.parametrize(
    "name",
    [
        in_campaigns("the epoch is not known to be stored, and is not"),
        with_all("the epoch is not known to be stored, and is"),
        with_all("the claim is not known to be stored, and is"),
        with_all("a worker is killed in a slice"),
        in_campaigns("a worker fails between slices"),
    ],
)
def test_a_query_survives_a_fault(spark: SparkSession, local: Landing, name: str) -> None:
    """Lost answers of the state's table and failed task attempts do not end the query or change rows."""
    landing = local.with_options(maxFilesPerTrigger="2")
    for number in range(5):
        landing.put(f"{number}.txt", "equal", f"Zeile {number}")
    fault = BatchTrap(**{"batch": 1, **FAULTS[name]})  # type: ignore[arg-type]
    query = evolve(landing.flow, trap=fault).run(spark)
    landing.audit(spark, query)


@pytest.mark.all
def test_the_process_of_the_source_is_killed(spark: SparkSession, local: Landing) -> None:
    """The query ends, and its restart continues where it was."""
    landing = local.with_options(maxFilesPerTrigger="1")
    landing.put("a.txt", "one")
    landing.put("b.txt", "two")
    deadly = BatchTrap(at="plan", what="die", after=True)
    with pytest.raises(StreamingQueryException):
        evolve(landing.flow, trap=deadly).run(spark)
    landing.audit(spark, landing.flow.run(spark))


#: Steps at which the agent is killed, in the order of batches: a call of Spark, before or after it is
#: answered, or a request to the table.
DEADLY = [
    BatchTrap(at="begin", what="die", batch=0),
    BatchTrap(at="claim", what="die", batch=0),
    BatchTrap(at="claim", what="die", batch=0, after=True),
    BatchTrap(at="files", what="die", batch=0),
    BatchTrap(at="latestOffset", what="die", batch=1),
    BatchTrap(at="plan", what="die", batch=1, after=True),
    BatchTrap(at="partitions", what="die", batch=1),
    BatchTrap(at="plan", what="die", batch=2),
    BatchTrap(at="latestOffset", what="die", batch=2, after=True),
    BatchTrap(at="partitions", what="die", batch=2, after=True),
    BatchTrap(at="files", what="die", batch=2, after=True),
]


@pytest.mark.parametrize(
    ("way", "deadly"),
    [
        ("local", [DEADLY[2], DEADLY[5]]),
        in_campaigns("local", DEADLY),
        in_campaigns("s3", DEADLY, marks=[pytest.mark.servers]),
    ],
    ids=["local, some", "local", "s3"],
)
def test_the_commit_agent_is_killed(
    spark: SparkSession, request: pytest.FixtureRequest, way: str, deadly: list[BatchTrap]
) -> None:
    """If Spark reads the files, another agent answers, whenever it dies, and the query goes on."""
    landing: Landing = request.getfixturevalue(way).with_options(maxFilesPerTrigger="1").by_spark()
    for number in range(3):
        landing.put(f"{number}.txt", "equal", f"Zeile {number}")
    with ingest_trapped(spark, landing.flow.source["path"], *deadly):
        query = landing.flow.run(spark)
    landing.audit(spark, query)
