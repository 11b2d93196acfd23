"""Guarantees of a source in a real Spark: each version of each file is delivered once.

This holds whatever happens to files, drivers, checkpoints and state. (Drivers are killed in
``tests/spark/crash/test_ingest.py``.)
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

from support.selection import with_all
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
    """A directory with its state, and a query that writes to another directory."""
    return new_landing("local", tmp_path, lambda: pytest.fail("no server is needed"))


@pytest.fixture
def s3(tmp_path: Path, ministack: Ministack) -> Landing:
    """A prefix on S3 with its state in DynamoDB, and a query that writes to another prefix."""
    return new_landing("s3", tmp_path, lambda: ministack)


@contextmanager
def held(spark: SparkSession, landing: Landing, at: str, **trap: Any) -> Iterator[StreamingQuery]:
    """Run a query to a moment of its first batch at which a trap holds it; then let it continue."""
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
    """A query as a job for `Gate.wait`."""

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query

    def done(self) -> bool:
        """Return whether the query is over."""
        return not self._query.isActive

    def exception(self) -> Exception | None:
        """Return the error of the query."""
        return self._query.exception()


def refused(spark: SparkSession, landing: Landing, error: str) -> None:
    """Check that the query ends with an error of ours, and commits nothing."""
    before = landing.committed()
    with pytest.raises(StreamingQueryException, match=rf"commitlog\.errors\.{error}"):
        landing.flow.run(spark)
    assert landing.committed() == before


# -- names and times of files ------------------------------------------------------------------------


def test_files_of_one_second_and_late_ones_are_read(spark: SparkSession, local: Landing) -> None:
    """A new file is read even if its time is that of files that were read, or earlier within the
    grace window."""
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


@pytest.mark.servers
def test_an_upload_that_began_long_before_is_read(
    spark: SparkSession, s3: Landing, ministack: Ministack
) -> None:
    """A multipart object is read although it has the time of its begin, and later objects were read."""
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


#: Names that must be quoted in requests or paths.
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


@pytest.mark.parametrize("way", ["local", with_all("s3", marks=[pytest.mark.servers])])
def test_any_name_is_read(spark: SparkSession, request: pytest.FixtureRequest, way: str) -> None:
    """Names are unchanged; empty files have no records; hidden files are ignored."""
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


@pytest.mark.servers
def test_a_key_that_cannot_be_a_path_is_told(
    spark: SparkSession, s3: Landing, ministack: Ministack
) -> None:
    """Keys that this library refuses are listed and quarantined."""
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


def test_ten_thousand_files_are_one_batch(spark: SparkSession, local: Landing) -> None:
    """Offsets and the list row do not grow with the size of a batch."""
    landing = local.with_options(maxFilesPerTrigger="10000", partitionBytes="2GiB")
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

#: More bytes than one read takes.
LONG = [f"{number} " + "x" * 1000 for number in range(9000)]


@pytest.mark.parametrize("changed", [with_all("again"), with_all("ignore"), "fail"])
def test_files_are_overwritten(spark: SparkSession, local: Landing, changed: str) -> None:
    """Each version of a file that changes is delivered as a whole or not at all.

    The new version is read or ignored, or the query ends, as the option says.
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


@pytest.mark.parametrize("missing", ["fail", with_all("skip")])
def test_files_are_deleted_before_they_are_read(
    spark: SparkSession, local: Landing, missing: str
) -> None:
    """Without missing files, the query continues and records them, or it ends, as the option says."""
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


def test_a_run_of_what_is_available_ends_while_files_arrive(spark: SparkSession, local: Landing) -> None:
    """It reads the files that existed at its start, in limited batches; the next run reads the rest."""
    landing = local.with_options(maxFilesPerTrigger="2")
    for name in ("b.txt", "c.txt", "d.txt", "e.txt", "f.txt"):
        landing.put(name, name)
    there = landing.rows_of(*landing.records)
    with held(spark, landing, "commit") as query:
        # Not in the second in which the run began: a store's clock has a resolution of a second.
        later = time.time() + 1
        landing.put("a.txt", "new", modified=later)
        landing.put("g.txt", "new", modified=later)
    landing.audit(spark, query, there)
    assert [progress.numInputRows for progress in query.recentProgress] == [2, 2, 1]
    landing.audit(spark, landing.flow.run(spark))


# -- files that cannot be read -----------------------------------------------------------------------


def test_what_cannot_be_read_is_put_aside(spark: SparkSession, local: Landing) -> None:
    """An unreadable record ends the query, or is quarantined with the rest of its file.

    The rest is read when an operator asks for it, or from a new version of the file.
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


def test_a_file_is_larger_than_a_batch(spark: SparkSession, local: Landing) -> None:
    """The slices of a large file are in several batches; a restart continues with the next slice."""
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


def test_checkpoint_and_state_are_restored_lost_and_reset(
    spark: SparkSession, local: Landing, tmp_path: Path
) -> None:
    """An earlier checkpoint is accepted if its epochs are kept; any other mismatch is refused.

    Another source in the same table is not affected.
    """
    state = f"sqlite://{tmp_path}/state.sqlite"
    # Nothing is remembered for longer than necessary.
    landing = local.with_options(maxFilesPerTrigger="1", state=state, remember="window", grace="0s")
    other = new_landing("local", tmp_path / "other", lambda: pytest.fail("no server is needed"))
    other = other.with_options(state=state)
    other.put("x.txt", "one")
    other.flow.run(spark)
    for name in ("a.txt", "b.txt", "c.txt", "d.txt", "e.txt"):
        landing.put(name, name, modified=time.time() - 100)
    query = landing.flow.run(spark)
    landing.audit(spark, query)
    checkpoint = Path(landing.flow.checkpoint)
    kept = tmp_path / "kept"
    shutil.copytree(checkpoint, kept)

    back(checkpoint, 3)
    query = landing.flow.run(spark)
    assert [progress.batchId for progress in query.recentProgress][:2] == [3, 4]
    landing.audit(spark, query)

    back(checkpoint, 1)
    refused(spark, landing, "StateMismatch: epoch 2 of source .* is not kept any more")

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
    """Restore a checkpoint to its state before a batch, as from a backup."""
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


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_outlived(spark: SparkSession, local: Landing, name: str) -> None:
    """Lost answers of the table of the state, and failed task attempts, change no row."""
    landing = local.with_options(maxFilesPerTrigger="2")
    for number in range(5):
        landing.put(f"{number}.txt", "equal", f"Zeile {number}")
    fault = BatchTrap(**{"batch": 1, **FAULTS[name]})  # type: ignore[arg-type]
    query = evolve(landing.flow, trap=fault).run(spark)
    landing.audit(spark, query)


def test_the_process_of_the_source_is_killed(spark: SparkSession, local: Landing) -> None:
    """The query ends, and a restart continues."""
    landing = local.with_options(maxFilesPerTrigger="1")
    landing.put("a.txt", "one")
    landing.put("b.txt", "two")
    deadly = BatchTrap(at="plan", what="die", after=True)
    with pytest.raises(StreamingQueryException):
        evolve(landing.flow, trap=deadly).run(spark)
    landing.audit(spark, landing.flow.run(spark))
