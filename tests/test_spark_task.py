"""The files of a task attempt, without Spark."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from commitlog.commit import ConditionalStore
from commitlog.errors import NotSupported, Unavailable
from commitlog.outputs import Job, Output
from commitlog.spark import task as task_module
from commitlog.spark.options import WriteOptions
from commitlog.spark.task import TaskFiles
from commitlog.stores import StageWriter
from commitlog.stores.memory import MemoryStore

SCHEMA = pa.schema([pa.field("k", pa.string()), pa.field("v", pa.int64())])


def rows(*keys: str | None) -> pa.RecordBatch:
    """Return a row for each of `keys`."""
    return pa.record_batch([list(keys), list(range(len(keys)))], schema=SCHEMA)


@pytest.fixture
def output() -> Output:
    """A new output in memory."""
    return Output(ConditionalStore(MemoryStore()))


def attempt(output: Output, job: Job, task: int = 0, **options: str) -> TaskFiles:
    """Begin an attempt at a task."""
    given = WriteOptions.parse({"path": "s3://bucket/out", **options})
    return TaskFiles(output, job, task, SCHEMA, given)


def staged(output: Output) -> list[str]:
    """Return the paths of the uploads that are neither published nor dropped."""
    return sorted(info.path for info in output.store.store.list_staged())


def test_of_two_attempts_at_a_task_the_winner_alone_is_published(output: Output) -> None:
    """A speculative attempt stages the same names; its rows are never seen, its uploads dropped."""
    job = output.begin()
    with attempt(output, job) as winner, attempt(output, job) as loser:
        winner.write(rows("won"))
        loser.write(rows("lost", "lost"))
        files = winner.finish()
        assert loser.finish()[0].staged.path == files[0].staged.path
    record = output.commit(job, files)
    (file,) = record.files
    table = pq.read_table(io.BytesIO(output.store.get(file.path).data))
    assert table.column("k").to_pylist() == ["won"]
    assert file.rows == 1
    assert staged(output) == []


def test_a_file_for_each_partition(output: Output) -> None:
    """Rows go to the directory of their value, numbered apart, whatever batch they come in."""
    job = output.begin()
    with attempt(output, job, task=3, partitionby="k", compression="gzip") as files:
        files.write(rows("a", None, "a"))
        files.write(rows())
        files.write(rows("b", "a"))
        found = files.finish()
    assert [(file.staged.path.partition("/")[0], file.rows, dict(file.partition)) for file in found] == [
        ("k=a", 3, {"k": "a"}),
        ("k=__HIVE_DEFAULT_PARTITION__", 1, {"k": None}),
        ("k=b", 1, {"k": "b"}),
    ]
    assert {file.staged.path[-len("-c000.gz.parquet") :] for file in found} == {
        f"-c00{index}.gz.parquet" for index in range(3)
    }
    assert output.commit(job, found).rows == 5


def test_no_rows_no_file(output: Output) -> None:
    """A task without rows stages nothing."""
    with attempt(output, output.begin()) as files:
        files.write(rows())
        assert files.finish() == ()
    assert staged(output) == []


def test_an_attempt_that_fails_drops_what_it_staged(output: Output) -> None:
    """An error while rows are written leaves no upload."""
    with attempt(output, output.begin(), partitionby="k") as files:
        files.write(rows("a", "b"))
        assert len(staged(output)) == 2
        with pytest.raises(NotSupported, match="no directory can tell"):
            files.write(rows(""))
    assert staged(output) == []


def test_an_attempt_that_fails_in_the_end_drops_what_it_finished(
    output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a later file cannot be completed, those that are complete are dropped as well."""
    begin_stage = output.begin_stage

    def second_fails(job: Job, name: str) -> StageWriter:
        upload = begin_stage(job, name)
        if name.startswith("k=b/"):

            def finish() -> None:
                raise Unavailable("no answer")

            monkeypatch.setattr(upload, "finish", finish)
        return upload

    monkeypatch.setattr(output, "begin_stage", second_fails)
    with attempt(output, output.begin(), partitionby="k") as files:
        files.write(rows("a", "b", "c"))
        with pytest.raises(Unavailable):
            files.finish()
    assert staged(output) == []


def test_the_error_of_a_task_outlives_a_failing_clean_up(
    output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upload that cannot be dropped hides neither the error nor the other uploads."""
    begin_stage = output.begin_stage

    def first_stays(job: Job, name: str) -> StageWriter:
        upload = begin_stage(job, name)
        if name.startswith("k=a/"):

            def abort() -> None:
                raise Unavailable("no answer")

            monkeypatch.setattr(upload, "abort", abort)
        return upload

    monkeypatch.setattr(output, "begin_stage", first_stays)

    def write(error: Exception | None) -> None:
        with attempt(output, output.begin(), partitionby="k") as files:
            files.write(rows("a", "b"))
            if error is not None:
                raise error

    with pytest.raises(ZeroDivisionError) as caught:
        write(ZeroDivisionError())
    assert ["no answer" in note for note in caught.value.__notes__] == [True]
    assert [path.partition("/")[0] for path in staged(output)] == ["k=a"]
    with pytest.raises(Unavailable):
        write(None)


def test_many_partitions_gather_no_more_than_one_would(
    output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a task holds in memory does not grow with the number of its files."""
    monkeypatch.setattr(task_module, "ROW_GROUP_BYTES", 1000)
    gathered = []
    with attempt(output, output.begin(), partitionby="k") as files:
        for _ in range(20):
            files.write(rows(*"abcdefghij"))
            gathered.append(sum(file.parquet.gathered_bytes for file in files._open.values()))
        files.finish()
    assert max(gathered) <= 1000
