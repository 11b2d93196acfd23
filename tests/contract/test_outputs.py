"""`Output` over every kind of store: memory, a directory, servers with and without preconditions."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from commitlog.commit import ConditionalStore
from commitlog.connect import connect
from commitlog.errors import (
    AlreadyExists,
    ConfigurationError,
    InvalidPath,
    JobAborted,
    JobAlreadyCommitted,
    NotFound,
)
from commitlog.outputs import Output, RecoveryReport
from commitlog.outputs.pending import PendingJob
from support.outputs import PLACES, Place, audit, open_place, stage_some, visible


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest) -> Place:
    """Each kind of store in turn."""
    return open_place(request)


@pytest.fixture
def store(place: Place) -> Iterator[ConditionalStore]:
    """The store, as one process has opened it."""
    with place() as opened:
        yield opened


@pytest.fixture
def output(store: ConditionalStore) -> Output:
    """An output in that store."""
    return Output(store, "out")


def test_a_committed_job_is_visible_as_a_whole(output: Output) -> None:
    """Before the commit no file is visible. Then files, record, `_SUCCESS` and snapshot agree."""
    job = output.begin("daily", schema='{"fields":[]}')
    files = stage_some(output, job, count=3)
    assert visible(output.store) == {}
    record = output.commit(job, files)
    assert (record.version, record.job_id, record.rows, len(record.files)) == (1, "daily", 3, 3)
    assert audit(output.store) == [record]
    snapshot = output.snapshot()
    assert (snapshot.version, snapshot.files, snapshot.jobs) == (1, record.files, ("daily",))
    assert (snapshot.schema, snapshot.rows) == ('{"fields":[]}', 3)
    assert record.files[2].partition == {"p": "2"}
    assert output.store.head(output.locate(record.files[0])).size == record.files[0].size


def test_a_job_id_is_committed_once(place: Place, output: Output) -> None:
    """Of two drivers of one job, the second is refused at its commit, and a third when it begins."""
    first, second = output.begin("daily"), output.begin("daily")
    late = stage_some(output, second)
    record = output.commit(first, stage_some(output, first))
    with pytest.raises(JobAlreadyCommitted) as refused:
        output.commit(second, late)
    assert (refused.value.job_id, refused.value.version) == ("daily", 1)
    assert output.abort(second, late) is None
    with place() as store, pytest.raises(JobAlreadyCommitted):
        Output(store, "out").begin("daily")
    assert audit(output.store) == [record]


def test_commit_may_be_repeated(place: Place, output: Output) -> None:
    """A second call with the same attempt, in another process, returns the same record."""
    job = output.begin("daily")
    files = stage_some(output, job)
    record = output.commit(job, files)
    with place() as store:
        again = Output(store, "out").commit(*pickle.loads(pickle.dumps((job, files))))
    assert again == record
    assert audit(output.store) == [record]


def test_commit_drops_the_uploads_of_other_task_attempts(output: Output) -> None:
    """They are dropped with the commit, even if unfinished."""
    job = output.begin("daily")
    stage_some(output, job)
    with output.begin_stage(job, job.file_name(0)) as unfinished:
        unfinished.write(b"half")
        output.commit(job, stage_some(output, job))
        assert list(output.store.list_staged("out/")) == []


def test_abort_undoes_a_job_and_spares_a_committed_one(output: Output) -> None:
    """Abort drops every upload of the attempt, also unlisted ones, and does nothing after a commit."""
    kept, dropped = output.begin("kept"), output.begin("dropped")
    record = output.commit(kept, stage_some(output, kept))
    with output.begin_stage(dropped, dropped.file_name(9)) as unfinished:
        unfinished.write(b"half")
        files = stage_some(output, dropped)
        assert output.abort(dropped, files[:1]) is None
        assert list(output.store.list_staged("out/")) == []
        assert output.abort(dropped, files) is None
    assert output.abort(kept) == record
    with pytest.raises(JobAborted):
        output.commit(dropped, files)
    assert output.abort(dropped) is None
    assert audit(output.store) == [record]


def test_recovery_drops_the_uploads_of_a_dead_driver(place: Place, output: Output) -> None:
    """It first rules out a commit of the attempt. A second run finds no uploads."""
    dead = output.begin("daily")
    stage_some(output, dead)
    with place() as store:
        other = Output(store, "out")
        assert other.recover(older_than=3600) == RecoveryReport(live=(dead.attempt,))
        report = other.recover(older_than=0)
        assert (report.uploads, report.aborted) == (2, {dead.attempt: None})
        assert other.recover(older_than=0) == RecoveryReport()
    with pytest.raises(JobAborted):
        output.commit(dead, ())
    output.abort(dead)
    assert audit(output.store) == []


def test_concurrent_jobs_are_all_committed(place: Place) -> None:
    """Jobs that commit at the same time all succeed, in some order, and `_SUCCESS` names the last."""
    with place() as store, ThreadPoolExecutor(4) as pool, ThreadPoolExecutor(4) as executor:
        output = Output(store, "out", executor=executor)
        jobs = [output.begin(f"job-{n}") for n in range(4)]
        staged = [stage_some(output, job) for job in jobs]
        start = threading.Barrier(4)

        def commit(n: int) -> int:
            start.wait()
            return output.commit(jobs[n], staged[n]).version

        versions = list(pool.map(commit, range(4)))
        assert sorted(versions) == [1, 2, 3, 4]
        assert len(audit(store)) == 4


def test_racing_drivers_of_one_job_have_one_winner(place: Place) -> None:
    """Of drivers that commit one job at the same time, exactly one succeeds. The others get an error."""
    with place() as store, ThreadPoolExecutor(3) as pool:
        output = Output(store, "out")
        jobs = [output.begin("daily") for _ in range(3)]
        staged = [stage_some(output, job) for job in jobs]
        start = threading.Barrier(3)

        def commit(n: int) -> bool:
            start.wait()
            try:
                output.commit(jobs[n], staged[n])
            except JobAlreadyCommitted:
                output.abort(jobs[n], staged[n])
                return False
            return True

        assert sorted(pool.map(commit, range(3))) == [False, False, True]
        assert len(audit(store)) == 1


# The tests below do not depend on the kind of store, so they use memory alone.


@pytest.fixture
def plain() -> Output:
    """An output in memory."""
    return Output(connect("memory://"), "out")


def test_mode_error_refuses_an_output_with_data(plain: Output) -> None:
    """The job is refused when it begins and, if data was committed since, at its commit."""
    early = plain.begin("early", mode="error")
    files = stage_some(plain, early)
    job = plain.begin("daily", mode="error")
    record = plain.commit(job, stage_some(plain, job))
    for job_id in ("late", None):
        with pytest.raises(AlreadyExists):
            plain.begin(job_id, mode="error")
    with pytest.raises(AlreadyExists):
        plain.commit(early, files)
    plain.abort(early, files)
    assert audit(plain.store) == [record]


def test_mode_error_ignores_aborted_jobs(plain: Output) -> None:
    """An output that has records of aborts only is empty."""
    plain.abort(plain.begin("failed"))
    job = plain.begin("daily", mode="error")
    assert plain.commit(job, stage_some(plain, job)).version == 2


def test_a_repeated_job_in_mode_error_is_reported_as_committed(plain: Output) -> None:
    """The retry of a committed job gets `JobAlreadyCommitted`, and not the error about existing data."""
    job = plain.begin("daily", mode="error")
    plain.commit(job, stage_some(plain, job))
    with pytest.raises(JobAlreadyCommitted):
        plain.begin("daily", mode="error")


def test_a_job_without_an_id_gets_a_new_one(plain: Output) -> None:
    """Two jobs without ids are two jobs."""
    for version in (1, 2):
        job = plain.begin()
        assert plain.commit(job, stage_some(plain, job)).version == version


def test_a_job_without_files_is_committed(plain: Output) -> None:
    """Its record has no files, and its id is taken."""
    record = plain.commit(plain.begin("daily"), ())
    assert (record.rows, record.bytes, record.files) == (0, 0, ())
    with pytest.raises(JobAlreadyCommitted):
        plain.begin("daily")


def test_files_of_another_job_are_refused(plain: Output) -> None:
    """A file of another attempt, or a duplicate name, is refused before anything is written."""
    job, other = plain.begin(), plain.begin()
    with pytest.raises(InvalidPath):
        plain.commit(job, stage_some(plain, other))
    twice = stage_some(plain, job) + stage_some(plain, job)
    with pytest.raises(ConfigurationError):
        plain.commit(job, twice)
    assert list(plain.records()) == []


@pytest.mark.parametrize("name", ["part-0.parquet", "_x/{}", ".{}", "a/../{}", "/{}"])
def test_a_file_name_needs_the_attempt_and_must_not_be_hidden(plain: Output, name: str) -> None:
    """Names without the attempt, hidden names, and invalid paths are refused."""
    job = plain.begin()
    with pytest.raises(InvalidPath):
        plain.begin_stage(job, name.format(job.file_name(0)))


def test_a_second_commit_of_an_attempt_must_name_the_same_files(plain: Output) -> None:
    """An attempt with a pending entry is not committed with other files than the entry has."""
    job = plain.begin("daily")
    files = stage_some(plain, job)
    plain._prepare(PendingJob.of(job, plain._checked(job, files), plain._log.manifests))
    with pytest.raises(ConfigurationError):
        plain.commit(job, files[:1])
    assert len(plain.commit(job, files).files) == 2
    with pytest.raises(ConfigurationError):
        plain.commit(job, files[:1])
    audit(plain.store)


def test_a_snapshot_of_an_older_version_has_its_commits(plain: Output) -> None:
    """A snapshot has the commits up to its version, even if the record of that number is an abort."""
    for job_id in ("a", "b"):
        job = plain.begin(job_id)
        plain.commit(job, stage_some(plain, job))
        plain.abort(plain.begin())
    assert plain.snapshot(1).jobs == ("a",)
    assert (plain.snapshot(2).version, plain.snapshot(2).jobs) == (1, ("a",))
    assert (plain.snapshot().version, plain.snapshot().jobs) == (3, ("a", "b"))
    for roll_forward in (True, False):
        with pytest.raises(NotFound):
            plain.snapshot(9, roll_forward=roll_forward)


def test_a_read_only_snapshot_has_the_requested_version(plain: Output) -> None:
    """An older version is not replaced by the last complete one."""
    for name in ("first", "second"):
        job = plain.begin(name)
        plain.commit(job, stage_some(plain, job))
    assert plain.snapshot(1, roll_forward=False).jobs == ("first",)
    assert plain.snapshot(roll_forward=False).jobs == ("first", "second")


def test_a_snapshot_of_an_empty_output_is_version_0(plain: Output) -> None:
    """An output without commits has an empty snapshot."""
    for roll_forward in (True, False):
        snapshot = plain.snapshot(roll_forward=roll_forward)
        assert (snapshot.version, snapshot.files, snapshot.schema) == (0, (), None)


def test_the_log_can_be_tailed(plain: Output) -> None:
    """`log(after)` yields the commits after a version, without the aborts between them."""
    plain.abort(plain.begin())
    for job_id in ("a", "b", "c"):
        plain.commit(plain.begin(job_id), ())
    assert [record.job_id for record in plain.log()] == ["a", "b", "c"]
    assert [record.version for record in plain.log(after=2)] == [3, 4]
    assert list(plain.log(after=4)) == []


def test_the_schema_is_that_of_the_last_commit_with_a_schema(plain: Output) -> None:
    """A commit without a schema keeps the earlier one."""
    for schema in ("old", "new", None):
        plain.commit(plain.begin(schema=schema), ())
    assert plain.snapshot().schema == "new"


def test_nested_outputs_do_not_affect_each_other() -> None:
    """Recovery of an output touches no upload of a nested output, nor of other writers."""
    store = connect("memory://")
    outer, inner = Output(store, "out"), Output(store, "out/inner")
    job = inner.begin("inner")
    files = stage_some(inner, job)
    foreign = store.stage("out/somebody-else.bin", b"x")
    assert outer.recover(older_than=0) == RecoveryReport()
    assert inner.recover(older_than=3600).live == (job.attempt,)
    inner.commit(job, files)
    assert [info.upload_id for info in store.list_staged()] == [foreign.upload_id]


def test_an_output_may_be_the_root_of_its_store() -> None:
    """The path "" is a directory like any other."""
    store = connect("memory://")
    output = Output(store)
    lost, job = output.begin(), output.begin("daily")
    stage_some(output, lost)
    output.commit(job, stage_some(output, job))
    assert output.recover(older_than=0).uploads == 2
    audit(store, "")


def test_an_output_can_be_opened_at_another_depth() -> None:
    """A job that began under one root can be recovered and read under another."""
    keep = connect("memory://depth")
    low, high = Output(connect("memory://depth/lake/out")), Output(keep, "lake/out")
    lost, job = low.begin(), low.begin("daily")
    stage_some(low, lost)
    low.commit(job, stage_some(low, job))
    assert high.recover(older_than=0).uploads == 2
    assert high.snapshot() == low.snapshot()


@pytest.mark.parametrize("left", [b"", b"{}", b"\xff"])
def test_another_writers_success_file_is_replaced(plain: Output, left: bytes) -> None:
    """A foreign `_SUCCESS` is ignored, and does not stop a commit."""
    plain.store.put("out/_SUCCESS", left)
    job = plain.begin("daily")
    record = plain.commit(job, stage_some(plain, job))
    assert audit(plain.store) == [record]


def test_a_deleted_success_file_is_restored(plain: Output) -> None:
    """Deleting `_SUCCESS` loses no information, because the log has all of it."""
    job = plain.begin("daily")
    plain.commit(job, stage_some(plain, job))
    plain.store.delete("out/_SUCCESS")
    with pytest.raises(JobAlreadyCommitted):
        plain.begin("daily")
    audit(plain.store)


@pytest.mark.parametrize("job_id", ["", " ", "x" * 513, "\ud800"])
def test_a_job_id_is_a_text_of_limited_length(plain: Output, job_id: str) -> None:
    """Blank, oversized and invalid job ids are refused before a request is sent."""
    with pytest.raises(ConfigurationError):
        plain.begin(job_id)


def test_later_jobs_are_in_the_log_after_the_watermark(plain: Output) -> None:
    """The watermark is the end of the published versions, and 0 if there are none."""
    assert plain.watermark() == 0
    for number in (1, 2):
        job = plain.begin()
        plain.commit(job, stage_some(plain, job))
        assert plain.watermark() == number
        assert [record.attempt for record in plain.log(number - 1)] == [job.attempt]
