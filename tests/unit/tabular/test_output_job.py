"""A job that several processes stage and one commits, in a directory."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from commitlog import connect
from commitlog.errors import (
    AlreadyExists,
    ConfigurationError,
    JobAborted,
    JobAlreadyCommitted,
    NotSupported,
    OutcomeUnknown,
)
from commitlog.outputs import Batch, CommitRecord, Output, StagedFile, State
from commitlog.outputs.log import CommitLog
from commitlog.outputs.publishing import Publisher
from commitlog.tabular import OutputWriter
from support.outputs import Death, check_invariants

COLUMNS = pa.schema([("k", pa.string()), ("v", pa.int64())])


def rows(*values: int, key: str = "a") -> pa.RecordBatch:
    """Return a row for each of `values`."""
    return pa.record_batch([[key] * len(values), list(values)], schema=COLUMNS)


def found(directory: Path) -> list[int]:
    """Return the values in all files that a listing shows, and check the output."""
    with connect(str(directory)) as store:
        check_invariants(store, "out")
        assert not list(store.list_staged())
    files = [path for path in (directory / "out").rglob("*.parquet") if "_commitlog" not in path.parts]
    return sorted(value for path in files for value in pq.ParquetFile(path).read()["v"].to_pylist())


@pytest.fixture
def writer_of(tmp_path: Path) -> Callable[..., OutputWriter]:
    """Makes writers to one output."""
    return lambda **arguments: OutputWriter.create(str(tmp_path / "out"), **arguments)


def write(writer: OutputWriter, *values: int) -> CommitRecord:
    """Write and commit a row for each of `values`."""
    begun = writer.begin(COLUMNS)
    return writer.commit(begun, writer.stage(begun, 0, [rows(*values)]))


def test_a_job_of_pickled_writers(writer_of: Callable[..., OutputWriter], tmp_path: Path) -> None:
    """Copies of the writer and of the job, in any process, stage files of one commit."""
    writer = writer_of(job_id="daily")
    begun = writer.begin(COLUMNS)
    files: list[StagedFile] = []
    for task in range(3):
        copy, job = pickle.loads(pickle.dumps((writer, begun)))
        files += pickle.loads(pickle.dumps(copy.stage(job, task, [rows(task)])))
    assert writer.committed() is None
    record = pickle.loads(pickle.dumps(writer)).commit(begun, files)
    assert (record.job_id, record.rows, len(record.files)) == ("daily", 3, 3)
    assert found(tmp_path) == [0, 1, 2]
    assert writer_of(job_id="daily").committed() == record


def test_only_one_run_of_a_task_counts(writer_of: Callable[..., OutputWriter], tmp_path: Path) -> None:
    """A task that ran twice staged its rows twice; the commit drops those that it does not get."""
    writer = writer_of()
    begun = writer.begin(COLUMNS)
    kept = writer.stage(begun, 0, [rows(1, 2)])
    writer.stage(begun, 0, [rows(1, 2)])
    writer.stage(begun, 1, [rows(3)])
    writer.commit(begun, kept)
    assert found(tmp_path) == [1, 2]


def test_a_job_begins_with_one_read_of_the_log(
    writer_of: Callable[..., OutputWriter], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attempt and the schema come from the same state of the output."""
    write(writer_of(), 1)
    states: list[State] = []
    read = CommitLog.state

    def counted(log: CommitLog, *args: Any, **options: Any) -> State:
        states.append(read(log, *args, **options))
        return states[-1]

    monkeypatch.setattr(CommitLog, "state", counted)
    writer_of().begin(COLUMNS)
    assert len(states) == 1


@pytest.mark.parametrize("job_id", [None, "daily"])
def test_a_committed_job_is_published_before_it_is_found(
    writer_of: Callable[..., OutputWriter],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    job_id: str | None,
) -> None:
    """The driver died after the commit point, and the engine runs the same job again."""
    writer = writer_of(job_id=job_id)
    begun = writer.begin(COLUMNS)
    files = writer.stage(begun, 0, [rows(1)])

    def die(*_: object) -> None:
        raise Death

    with monkeypatch.context() as patched:
        patched.setattr(Publisher, "publish", die)
        with pytest.raises(Death):
            writer.commit(begun, files)
    record = pickle.loads(pickle.dumps(writer)).begin_or_find(COLUMNS)
    assert isinstance(record, CommitRecord)
    assert record.attempt == begun.job.attempt
    assert found(tmp_path) == [1]


def test_a_repeated_begin_returns_the_same_attempt(writer_of: Callable[..., OutputWriter]) -> None:
    """An engine may lose the result of `begin`: staged files still belong to the job. After an abort,
    there is a new attempt."""
    writer = writer_of(job_id="daily")
    begun = writer.begin(COLUMNS)
    again = pickle.loads(pickle.dumps(writer)).begin(COLUMNS)
    assert again.job.attempt == begun.job.attempt
    assert writer_of(job_id="daily").begin(COLUMNS).job.attempt != begun.job.attempt
    writer.abort(begun)
    assert writer.begin(COLUMNS).job.attempt != begun.job.attempt


@pytest.mark.parametrize("job_id", ["daily", None])
def test_a_repeated_commit_returns_the_same_record(
    writer_of: Callable[..., OutputWriter], tmp_path: Path, job_id: str | None
) -> None:
    """An engine may lose the result of `commit`, and then compute every task again."""
    writer = writer_of(job_id=job_id)
    begun = writer.begin(COLUMNS)
    record = writer.commit(begun, writer.stage(begun, 0, [rows(1)]))
    assert writer.begin_or_find(COLUMNS) == record
    assert writer.commit(begun, writer.stage(begun, 0, [rows(1)])) == record
    assert found(tmp_path) == [1]


def test_credentials_are_not_in_the_repr() -> None:
    """Dask and Ray log the arguments of tasks that fail."""
    url = "s3://bucket/out?access_key_id=AKIA&secret_access_key=geheim"
    writer = OutputWriter.create(url, connection={"session_token": "geheim"})
    assert "s3://bucket/out" in repr(writer) and "geheim" not in repr(writer)
    assert writer.url == url


def test_the_commit_of_a_job_that_shares_a_record(
    writer_of: Callable[..., OutputWriter], tmp_path: Path
) -> None:
    """It is not that of the first job in the record."""
    with connect(str(tmp_path / "out")) as store:
        output = Output(store, share_records=True)
        jobs = [output.begin(name) for name in ("a", "b")] + [output.begin(batch=Batch("s", 7))]
        records = output.commit_many([(job, [output.stage(job, job.file_name(0), b"")]) for job in jobs])
    assert {record.version for record in records if isinstance(record, CommitRecord)} == {1}
    assert writer_of(job_id="b").committed() == records[1]
    for job_id, record in (("b", records[1]), ("s/7", records[2]), ("s/6", records[2])):
        assert writer_of(job_id=job_id, on_duplicate="skip").begin_or_find(COLUMNS) == record


def test_another_writer_of_the_same_job(writer_of: Callable[..., OutputWriter], tmp_path: Path) -> None:
    """The second one gets an error, or the record of the first, as asked: before the job or after it."""
    late, skipping = writer_of(job_id="daily"), writer_of(job_id="daily", on_duplicate="skip")
    begun, begun_skipping = late.begin(COLUMNS), skipping.begin(COLUMNS)
    record = write(writer_of(job_id="daily"), 1)
    for writer in (late, writer_of(job_id="daily")):
        with pytest.raises(JobAlreadyCommitted) as info:
            writer.begin_or_find(COLUMNS)
        assert info.value.version == record.version
    assert skipping.begin_or_find(COLUMNS) == record
    with pytest.raises(JobAlreadyCommitted):
        late.commit(begun, late.stage(begun, 0, [rows(2)]))
    assert skipping.commit(begun_skipping, skipping.stage(begun_skipping, 0, [rows(3)])) == record
    assert found(tmp_path) == [1]


def test_modes(writer_of: Callable[..., OutputWriter], tmp_path: Path) -> None:
    """A job appends, replaces its own partitions or everything, or is refused."""
    write(writer_of(partition_by="k"), 1)
    for value in (2, 3):
        writer = writer_of(mode="overwrite-partitions", partition_by=["k"])
        begun = writer.begin(COLUMNS)
        writer.commit(begun, writer.stage(begun, 0, [rows(value, key="b")]))
        assert found(tmp_path) == [1, value]
    with pytest.raises(AlreadyExists):
        writer_of(mode="error", partition_by="k").begin(COLUMNS)
    write(writer_of(mode="overwrite"), 4)
    assert found(tmp_path) == [4]
    empty = writer_of(mode="overwrite")
    empty.commit(empty.begin(None), [])
    assert found(tmp_path) == []


def test_a_foreign_partition_with_another_spelling_is_refused(
    writer_of: Callable[..., OutputWriter], tmp_path: Path
) -> None:
    """Its rows could not be recognised as those to replace, and a listing would show them for ever."""
    foreign = tmp_path / "out" / "at=2013-07-10 02%3A30%3A00" / "part-0.parquet"
    foreign.parent.mkdir(parents=True)
    pq.write_table(pa.table({"v": [1]}), foreign)
    columns = pa.schema([("at", pa.timestamp("us", tz="UTC")), ("v", pa.int64())])
    with pytest.raises(NotSupported, match="is not spelled as the output spells"):
        writer_of(mode="overwrite-partitions", partition_by="at").begin(columns)
    writer_of(mode="overwrite", partition_by="at").begin(columns)


@pytest.mark.parametrize("happened", [True, False])
def test_an_unknown_outcome_is_settled(
    writer_of: Callable[..., OutputWriter],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    happened: bool,
) -> None:
    """A commit without an answer is completed if it happened; else the attempt is excluded."""
    commit = Output.commit

    def unanswered(self: Output, *arguments: Any, **options: Any) -> CommitRecord:
        if happened:
            commit(self, *arguments, **options)
        raise OutcomeUnknown("no answer")

    monkeypatch.setattr(Output, "commit", unanswered)
    writer = writer_of(job_id="daily")
    if happened:
        assert write(writer, 1).rows == 1
        assert found(tmp_path) == [1]
        return
    with pytest.raises(JobAborted, match="Run it again"):
        write(writer, 1)
    monkeypatch.undo()
    assert found(tmp_path) == []
    write(writer, 2)
    assert found(tmp_path) == [2]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_job_that_fails_is_aborted(
    writer_of: Callable[..., OutputWriter], tmp_path: Path, error: type[BaseException]
) -> None:
    """Its files are dropped, and a task that is still running cannot be committed any more."""
    writer = writer_of(job_id="daily")
    begun = writer.begin(COLUMNS)
    files = writer.stage(begun, 0, [rows(1)])
    with pytest.raises(error), writer.supervise(begun, 60.0):
        raise error
    assert found(tmp_path) == []
    with pytest.raises(JobAborted):
        writer.commit(begun, files)
    write(writer, 2)
    assert found(tmp_path) == [2]


def test_a_task_that_fails_drops_its_files(
    writer_of: Callable[..., OutputWriter], tmp_path: Path
) -> None:
    """No upload is left of its first rows."""
    writer = writer_of()
    begun = writer.begin(COLUMNS)
    other = pa.record_batch([["a"], ["text"]], names=["k", "v"])
    with pytest.raises(ConfigurationError, match="column 'v'"):
        writer.stage(begun, 0, [rows(1), other])
    assert found(tmp_path) == []


def test_a_supervised_job_sends_heartbeats(
    writer_of: Callable[..., OutputWriter], tmp_path: Path
) -> None:
    """A recovery leaves a job alone whose tasks take longer than its age."""
    writer = writer_of()
    begun = writer.begin(COLUMNS)
    alive = tmp_path / "out/_commitlog/alive" / begun.job.attempt
    with writer.supervise(begun, 0.001):
        while not alive.exists():
            pass
    assert not alive.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mode": "ignore"}, "mode is 'ignore'; it must be one of append"),
        ({"mode": "rewrite"}, "mode is 'rewrite'"),
        ({"on_duplicate": "no"}, "on_duplicate is 'no'"),
        ({"visibility": "hidden"}, "visibility is 'hidden'; it must be one of listed, logged"),
        ({"compression": "zip"}, "compression is 'zip'"),
    ],
)
def test_wrong_arguments(
    writer_of: Callable[..., OutputWriter], arguments: dict[str, Any], message: str
) -> None:
    """They are refused before a request is sent."""
    with pytest.raises(ConfigurationError, match=message):
        writer_of(**arguments)


def test_a_store_in_memory_is_refused() -> None:
    """The files of the workers would be gone."""
    with pytest.raises(ConfigurationError, match="gone with its process"):
        OutputWriter.create("memory://out")


@pytest.mark.parametrize(
    ("arguments", "columns", "message"),
    [
        ({"mode": "overwrite-partitions"}, COLUMNS, "needs partition_by"),
        ({"partition_by": "x"}, COLUMNS, "no column 'x' to partition by"),
        ({"partition_by": "k"}, COLUMNS, "the output is partitioned by nothing"),
        ({}, pa.schema([("k", pa.string()), ("v", pa.string())]), "must be the same"),
        ({}, pa.schema([("k", pa.string())]), "merge_schema"),
    ],
)
def test_columns_that_do_not_fit_are_refused(
    writer_of: Callable[..., OutputWriter],
    arguments: dict[str, Any],
    columns: pa.Schema,
    message: str,
) -> None:
    """Before any task runs."""
    write(writer_of(), 1)
    with pytest.raises(ConfigurationError, match=message):
        writer_of(**arguments).begin(columns)


def test_columns_may_be_added_and_lack(writer_of: Callable[..., OutputWriter]) -> None:
    """If asked; the schema of the output then has all."""
    write(writer_of(), 1)
    writer = writer_of(merge_schema=True)
    begun = writer.begin(pa.schema([("k", pa.string()), ("w", pa.bool_())]))
    assert begun.job.schema is not None
    assert begun.columns.names == ["k", "w"]
    batch = pa.record_batch([["a"], [True]], schema=begun.columns)
    writer.commit(begun, writer.stage(begun, 0, [batch]))


def test_connection_options_are_not_shown(tmp_path: Path) -> None:
    """They may have credentials."""
    writer = OutputWriter.create(str(tmp_path), connection={"secret_access_key": "hidden"})
    assert "hidden" not in repr(writer)
