"""Recovery and publishing: which attempts are dead, what stays, and jobs that cannot be completed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import pytest

from commitlog._util.retry import Backoff
from commitlog.commit.conditional import ConditionalStore
from commitlog.errors import (
    AccessDenied,
    BucketNotFound,
    CommitError,
    CorruptRecord,
    FormatTooNew,
    JobAborted,
    JobAlreadyCommitted,
    NotFound,
    OutcomeUnknown,
    PublishIncomplete,
    Unavailable,
)
from commitlog.outputs import AbortRecord, Job, Mode, Output, RecoveryReport
from commitlog.outputs.pending import PendingJob
from commitlog.stores import ObjectData, ObjectStore, StagedInfo
from commitlog.stores.memory import MemoryStore
from commitlog.testing import ManualClock
from support.outputs import Death, HookedStore, Once, audit, open_output, stage_some, visible


@pytest.fixture
def clock() -> ManualClock:
    """The clock of clients and store."""
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    """The store of the output."""
    return MemoryStore(clock=clock)


@pytest.fixture
def output(store: MemoryStore, clock: ManualClock) -> Output:
    """The output, opened by an operator."""
    return open_output(store, clock)


class Outage:
    """A hook: while it is `on`, mutations of one name fail, and are applied or not."""

    def __init__(self, name: str, error: Exception, *, applied: bool = False) -> None:
        self.name = name
        self.error = error
        self.applied = applied
        self.on = True

    def __call__(self, name: str, path: str, mutation: Callable[[], object]) -> object:
        if name != self.name or not self.on:
            return mutation()
        if self.applied:
            mutation()
        raise self.error


def die_at(store: MemoryStore, clock: ManualClock, at: int, what: str, job_id: str = "daily") -> Job:
    """Let a driver with two files die at request `at` of its commit."""
    output = open_output(store, clock)
    job = output.begin(job_id)
    files = stage_some(output, job)
    with pytest.raises(Death):
        open_output(HookedStore(store, Once(at, what)), clock).commit(job, files)
    return job


#: The number of each request of a commit with two files.
PREPARE, DECIDE, PUBLISH_1, PUBLISH_2, FORGET, SUCCESS = range(1, 7)


def test_a_job_with_a_recent_upload_is_alive(
    output: Output, store: MemoryStore, clock: ManualClock
) -> None:
    """The age of an attempt is that of its newest upload, not of its first one."""
    job = output.begin("long")
    files = stage_some(output, job)
    clock.advance(1000)
    files.append(output.stage(job, job.file_name(9), b"long " + job.attempt.encode()))
    clock.advance(10)
    assert output.recover(older_than=20) == RecoveryReport(live=(job.attempt,))
    output.commit(job, files)
    audit(store)


def test_a_job_with_a_recent_pending_entry_is_alive(
    output: Output, store: MemoryStore, clock: ManualClock
) -> None:
    """The age of the pending entry counts, too."""
    job = output.begin("long")
    files = stage_some(output, job)
    clock.advance(1000)
    with pytest.raises(Death):
        open_output(HookedStore(store, Once(PREPARE, "after")), clock).commit(job, files)
    assert output.recover(older_than=20).live == (job.attempt,)
    output.commit(job, files)
    audit(store)


def test_a_slow_listing_does_not_expire_live_jobs(store: MemoryStore, clock: ManualClock) -> None:
    """The age of an attempt is measured when the recovery begins."""

    class Slow(HookedStore):
        def list_staged(self, prefix: str = "") -> Iterator[StagedInfo]:
            clock.advance(1000)
            return super().list_staged(prefix)

    output = open_output(Slow(store), clock)
    job = output.begin("long")
    files = stage_some(output, job)
    clock.advance(10)
    assert output.recover(older_than=500).live == (job.attempt,)
    output.commit(job, files)


def test_an_old_heartbeat_without_files_is_removed(
    output: Output, store: MemoryStore, clock: ManualClock
) -> None:
    """Nothing else is left of such an attempt, so it is not ruled out."""
    output.heartbeat(output.begin("long").attempt)
    clock.advance(100)
    for older_than, left in ((500, 1), (50, 0)):
        output.recover(older_than=older_than)
        assert len(list(store.list("out/_commitlog/alive/"))) == left
    assert list(output.records()) == []


def test_success_stays_before_a_version_that_cannot_be_completed(
    output: Output, store: MemoryStore, clock: ManualClock
) -> None:
    """A later job is committed and published, and `_SUCCESS` does not pass the incomplete version."""
    job = die_at(store, clock, PUBLISH_1, "before")
    entry = f"out/_commitlog/pending/{job.attempt}.json"
    data = store.get(entry).data
    store.put(entry, b"{")
    later = output.begin("later")
    output.commit(later, stage_some(output, later))
    assert output.watermark() == 0
    store.put(entry, data)
    assert output.recover(older_than=0).completed == (1,)
    assert output.watermark() == 2
    assert len(audit(store)) == 2


def test_a_live_job_that_recovery_ruled_out_is_aborted(output: Output, store: MemoryStore) -> None:
    """It loses its work, does no harm, and can be run again."""
    job = output.begin("daily")
    files = stage_some(output, job)
    report = output.recover(older_than=0)
    assert (report.aborted, report.uploads) == ({job.attempt: None}, 2)
    with pytest.raises(JobAborted):
        output.commit(job, files)
    output.abort(job, files)
    again = output.begin("daily")
    output.commit(again, stage_some(output, again))
    assert len(audit(store)) == 1


def test_the_report_has_the_job_id_of_the_pending_entry(
    output: Output, store: MemoryStore, clock: ManualClock
) -> None:
    """An attempt that was prepared is reported and recorded with its job id."""
    job = die_at(store, clock, DECIDE, "before")
    assert output.recover(older_than=0).aborted == {job.attempt: "daily"}
    (record,) = output.records()
    assert isinstance(record, AbortRecord)
    assert record.attempts == {job.attempt: "daily"}


def test_one_record_rules_out_all_dead_attempts(output: Output, store: MemoryStore) -> None:
    """Recovery adds one record, whatever the number of dead drivers."""
    for n in range(3):
        stage_some(output, output.begin(f"job-{n}"))
    assert len(output.recover(older_than=0).aborted) == 3
    assert len(list(output.records())) == 1
    audit(store)


@pytest.mark.parametrize("at", [PUBLISH_1, PUBLISH_2, FORGET, SUCCESS])
def test_a_committed_job_is_completed_at_any_age(
    output: Output, store: MemoryStore, clock: ManualClock, at: int
) -> None:
    """A job whose driver died after the commit point is completed at once."""
    die_at(store, clock, at, "before")
    completed = () if at == SUCCESS else (1,)
    assert output.recover(older_than=1e9).completed == completed
    assert len(audit(store)) == 1


def test_between_commit_point_and_publishing_plain_readers_see_nothing(
    output: Output, store: MemoryStore, clock: ManualClock
) -> None:
    """A crash there shows no partial job; a repeated job completes it, and is refused."""
    die_at(store, clock, PUBLISH_1, "before")
    assert visible(store) == {}
    assert output.snapshot(roll_forward=False).files == ()
    with pytest.raises(JobAlreadyCommitted):
        output.begin("daily")
    assert len(visible(store)) == 2
    audit(store)


def test_the_next_job_completes_the_one_before(
    output: Output, store: MemoryStore, clock: ManualClock
) -> None:
    """A commit publishes the files of an earlier one before `_SUCCESS` passes it."""
    die_at(store, clock, PUBLISH_2, "before")
    job = output.begin("next")
    output.commit(job, stage_some(output, job))
    assert len(audit(store)) == 2


@pytest.mark.parametrize("replaced", [False, True])
def test_success_never_goes_back(
    output: Output, store: MemoryStore, clock: ManualClock, replaced: bool
) -> None:
    """A driver that is overtaken while it writes `_SUCCESS` does not undo the later one."""
    if replaced:
        output.commit(output.begin("first"), ())
    early = output.begin("early")
    files = stage_some(output, early)

    def overtaken(mutation: Callable[[], object]) -> object:
        job = output.begin("late")
        output.commit(job, stage_some(output, job))
        return mutation()

    driver = open_output(HookedStore(store, Once(SUCCESS, overtaken)), clock)
    record = driver.commit(early, files)
    assert output.snapshot(roll_forward=False).version == record.version + 1
    audit(store)


def test_a_failed_publishing_reports_that_the_job_is_committed(
    output: Output, store: MemoryStore, clock: ManualClock
) -> None:
    """`PublishIncomplete` has the job and the version; an abort then keeps the job."""
    outage = Outage("publish", Unavailable("no"))
    driver = open_output(HookedStore(store, outage), clock)
    job = driver.begin("daily")
    files = stage_some(driver, job)
    with pytest.raises(PublishIncomplete) as failure:
        driver.commit(job, files)
    assert (failure.value.job_id, failure.value.version) == ("daily", 1)
    with pytest.raises(PublishIncomplete):
        driver.begin("daily")
    record = driver.abort(job, files)
    assert record is not None
    outage.on = False
    assert driver.commit(job, files) == record
    assert audit(store) == [record]


def test_a_file_that_cannot_be_published_does_not_stop_the_others(
    output: Output, store: MemoryStore, clock: ManualClock
) -> None:
    """Every file is tried, in parallel if there is an executor."""
    for pool in (None, ThreadPoolExecutor(2)):
        clogged: list[str] = []

        def hook(
            name: str, path: str, mutation: Callable[[], object], clogged: list[str] = clogged
        ) -> object:
            if name == "publish" and "p=0" in path:
                clogged.append(path)
                raise OutcomeUnknown("no answer")
            return mutation()

        backoff = Backoff(tries=2)
        hooked = ConditionalStore(HookedStore(store, hook), clock=clock, backoff=backoff)
        driver = Output(hooked, "out", clock=clock, backoff=backoff, executor=pool)
        job = driver.begin()
        with pytest.raises(PublishIncomplete, match="1 of its 3 files"):
            driver.commit(job, stage_some(driver, job, count=3))
        assert len(clogged) == 2
        shown = [name for name in visible(store) if job.attempt in name]
        assert len(shown) == 2
        if pool is not None:
            pool.shutdown()
    output.recover(older_than=0)
    audit(store)


def test_a_lost_committed_file_is_always_reported(
    output: Output, store: MemoryStore, clock: ManualClock
) -> None:
    """If the upload of a committed job was removed by others, all readers and writers get an error."""
    die_at(store, clock, PUBLISH_1, "before")
    lost = next(store.list_staged("out/"))
    store.abort(lost)
    for act in (output.snapshot, lambda: output.begin("daily")):
        # A retry cannot succeed, so the error does not suggest it.
        with pytest.raises(PublishIncomplete, match=r"1 of its 2 files are lost.*roll_forward") as error:
            act()
        assert error.value.lost == (lost.path.removeprefix("out/"),)
    assert output.snapshot(roll_forward=False).version == 0


def test_a_recovery_reports_lost_files_and_the_job_to_run_again(
    output: Output, store: MemoryStore, clock: ManualClock
) -> None:
    """Everything else is recovered. After the job is run again and replaces the rest, all is well."""
    die_at(store, clock, PUBLISH_1, "before")
    lost, _ = store.list_staged("out/")
    store.abort(lost)
    stage_some(output, output.begin("dead"))
    report = output.recover(older_than=0)
    [loss] = report.lost
    assert (loss.job_id, loss.version) == ("daily", 1)
    assert loss.files == (lost.path.removeprefix("out/"),)
    assert (len(report.aborted), report.uploads) == (1, 2)
    add = output.begin("next", mode="overwrite-partitions")
    with pytest.raises(PublishIncomplete, match="still listed"):
        output.commit(add, stage_some(output, add, count=3)[2:])
    assert output.recover(older_than=0).lost == (loss,)
    assert output.gc(older_than=0).recovery.lost == (loss,)

    [record] = [record for record in output.log() if record.version == loss.version]
    replaces = [file.path for file in output.files(record)]
    again = output.begin("daily, again", mode="overwrite-files", replaces=replaces)
    output.commit(again, stage_some(output, again))
    assert output.recover(older_than=0).lost == ()
    assert output.recover(older_than=0) == RecoveryReport()
    assert output.snapshot().rows == 3
    assert visible(store).keys() == {file.path for file in output.snapshot().files}
    with pytest.raises(JobAlreadyCommitted):
        output.begin("daily")


def test_a_recovery_that_finds_lost_files_reports_the_versions_that_it_completes(
    output: Output, store: MemoryStore, clock: ManualClock
) -> None:
    """The files of a later version are published, and the next recovery has nothing to complete."""
    die_at(store, clock, PUBLISH_1, "before")
    for upload in list(store.list_staged("out/")):
        store.abort(upload)
    die_at(store, clock, PUBLISH_1, "before", job_id="later")
    assert visible(store) == {}
    report = output.recover(older_than=0)
    assert [loss.version for loss in report.lost] == [1]
    assert report.completed == (2,)
    assert len(visible(store)) == 2
    assert output.recover(older_than=0).completed == ()


class Astray(HookedStore):
    """A store whose reads of some paths report a missing bucket."""

    def __init__(self, inner: ObjectStore, part: str) -> None:
        super().__init__(inner)
        self.part = part

    def get(self, path: str, *, start: int = 0, end: int | None = None) -> ObjectData:
        """Read an object."""
        if self.part in path:
            raise BucketNotFound("no such bucket")
        return super().get(path, start=start, end=end)


def test_files_in_a_missing_bucket_are_not_reported_as_lost(
    store: MemoryStore, clock: ManualClock
) -> None:
    """A wrong endpoint says nothing about staged files: the job can be completed with the right one."""
    die_at(store, clock, PUBLISH_1, "before")

    def refuse(name: str, path: str, mutation: Callable[[], object]) -> object:
        if name == "publish":
            raise BucketNotFound("no such bucket")
        return mutation()

    with pytest.raises(PublishIncomplete, match=r"not visible yet \(no such bucket\)"):
        open_output(HookedStore(store, refuse), clock).snapshot()
    assert open_output(store, clock).snapshot().version == 1


def test_an_unreadable_pending_entry_is_not_taken_for_missing(
    store: MemoryStore, clock: ManualClock
) -> None:
    """Otherwise a version without visible files would count as complete."""
    die_at(store, clock, PUBLISH_1, "before")
    with pytest.raises(BucketNotFound):
        open_output(Astray(store, "/pending/"), clock).snapshot()
    assert open_output(store, clock).snapshot(roll_forward=False).version == 0


def test_a_watermark_in_a_missing_bucket_is_not_version_0(
    output: Output, store: MemoryStore, clock: ManualClock
) -> None:
    """A reader that changes nothing gets the error, and not an empty output."""
    job = output.begin("daily")
    output.commit(job, stage_some(output, job))
    with pytest.raises(BucketNotFound):
        open_output(Astray(store, "_SUCCESS"), clock).snapshot(roll_forward=False)
    assert output.snapshot(roll_forward=False).version == 1


def test_a_pending_entry_in_a_missing_bucket_is_neither_ruled_out_nor_accepted(
    output: Output, store: MemoryStore, clock: ManualClock
) -> None:
    """A recovery, and a second call of commit, stop before they change anything."""
    job = output.begin("daily")
    files = stage_some(output, job)
    with pytest.raises(Death):
        open_output(HookedStore(store, Once(DECIDE, "before")), clock).commit(job, files)
    astray = open_output(Astray(store, "/pending/"), clock)
    with pytest.raises(BucketNotFound):
        astray.recover(older_than=0)
    with pytest.raises(BucketNotFound):
        astray.commit(job, files)
    assert list(output.records()) == []
    output.commit(job, files)
    audit(store)


def test_a_snapshot_has_only_visible_files(store: MemoryStore, clock: ManualClock) -> None:
    """A job that is committed during a read is in the snapshot with all its files, or not at all."""
    rival: list[bool] = []

    class Busy(HookedStore):
        def get(self, path: str, *, start: int = 0, end: int | None = None) -> ObjectData:
            try:
                return self.inner.get(path, start=start, end=end)
            except NotFound:
                # The reader has found the end of the log. Now a driver commits, and dies.
                if path.endswith("1.json") and not rival:
                    rival.append(True)
                    die_at(store, clock, PUBLISH_1, "before")
                raise

    snapshot = open_output(Busy(store), clock).snapshot()
    assert rival
    assert {file.path for file in snapshot.files} <= visible(store).keys()


@pytest.mark.parametrize("at", [FORGET, SUCCESS])
@pytest.mark.parametrize("error", [AccessDenied("read only"), OutcomeUnknown("no answer")])
def test_readers_need_no_permission_to_write(
    store: MemoryStore, clock: ManualClock, at: int, error: CommitError
) -> None:
    """If only `_SUCCESS` cannot be written, readers and repeated jobs still get their answer."""
    die_at(store, clock, at, "before")

    def refuse(name: str, path: str, mutation: Callable[[], object]) -> object:
        if name == "publish":
            return mutation()
        raise error

    reader = open_output(HookedStore(store, refuse), clock)
    assert reader.snapshot().version == 1
    with pytest.raises(JobAlreadyCommitted):
        reader.begin("daily")
    with pytest.raises(type(error)):
        reader.recover(older_than=1e9)


def test_two_calls_of_commit_for_one_attempt_agree(
    output: Output, store: MemoryStore, clock: ManualClock
) -> None:
    """A call that is overtaken while it prepares, and finds no entry, returns the same record."""
    job = output.begin("daily")
    files = stage_some(output, job)

    class Overtaken(HookedStore):
        def get(self, path: str, *, start: int = 0, end: int | None = None) -> ObjectData:
            if "/pending/" in path:
                output.commit(job, files)
            return super().get(path, start=start, end=end)

    with pytest.raises(Death):
        open_output(HookedStore(store, Once(PREPARE, "after")), clock).commit(job, files)
    assert open_output(Overtaken(store), clock).commit(job, files).version == 1
    assert len(audit(store)) == 1


def test_a_recovery_that_cannot_publish_keeps_a_new_job(
    output: Output, store: MemoryStore, clock: ManualClock
) -> None:
    """A job committed between the two listings of a recovery is not in the first listing."""
    job = output.begin("daily")
    files = stage_some(output, job)

    class Busy(HookedStore):
        def list_staged(self, prefix: str = "") -> Iterator[StagedInfo]:
            with contextlib.suppress(Death):  # after the commit point
                open_output(HookedStore(store, Once(PUBLISH_1, "before")), clock).commit(job, files)
            return super().list_staged(prefix)

    operator = open_output(Busy(store, Outage("publish", AccessDenied("may not complete"))), clock)
    with pytest.raises(PublishIncomplete, match="2 of its 2 files are not visible yet"):
        operator.recover(older_than=0)
    assert len(list(store.list_staged("out/"))) == 2
    assert output.recover(older_than=0).completed == (1,)
    assert len(audit(store)) == 1


def test_a_recovery_that_cannot_publish_keeps_replaced_uploads(
    output: Output, store: MemoryStore, clock: ManualClock
) -> None:
    """A version is published before the later one that replaced its files, so its uploads are kept."""
    for job_id, mode in (("first", "append"), ("second", "overwrite")):
        driver = open_output(HookedStore(store, Outage("publish", AccessDenied("no"))), clock)
        job = driver.begin(job_id, mode=cast(Mode, mode))
        with pytest.raises(PublishIncomplete):
            driver.commit(job, stage_some(driver, job))
    operator = open_output(HookedStore(store, Outage("publish", AccessDenied("no"))), clock)
    with pytest.raises(PublishIncomplete):
        operator.recover(older_than=0)
    assert len(list(store.list_staged("out/"))) == 4
    assert output.recover(older_than=0).completed == (1, 2)
    assert [record.job_id for record in output.log()] == ["first", "second"]
    assert visible(store).keys() == output.state().files.keys()


@pytest.mark.parametrize("answers", [2, 3, 100])
def test_an_upload_is_kept_if_its_file_cannot_be_seen(
    output: Output, store: MemoryStore, clock: ManualClock, answers: int
) -> None:
    """A missing pending entry proves nothing: each file is checked before its upload is removed."""
    die_at(store, clock, PUBLISH_1, "before")
    left = answers

    class Wrong(HookedStore):
        def get(self, path: str, *, start: int = 0, end: int | None = None) -> ObjectData:
            nonlocal left
            if "/pending/" in path and left:
                left -= 1
                raise NotFound("an answer of something between client and store")
            return super().get(path, start=start, end=end)

    operator = open_output(Wrong(store), clock)
    if left < 3:
        assert operator.recover(older_than=0).uploads == 0
    else:
        with pytest.raises(PublishIncomplete, match="2 of its 2 files are not visible"):
            operator.recover(older_than=0)
        assert len(list(store.list_staged("out/"))) == 2
    # `_SUCCESS` has passed the version now. The next recovery finds the entry, and publishes.
    output.recover(older_than=0)
    assert len(audit(store)) == 1


def test_published_uploads_are_not_reported_as_dropped(
    output: Output, store: MemoryStore, clock: ManualClock
) -> None:
    """When a committed job is completed, only uploads that lost to another attempt count as dropped."""
    job = die_at(store, clock, PUBLISH_1, "before")
    output.stage(job, job.file_name(0, suffix=".lost"), b"lost")
    report = output.recover(older_than=1e9)
    assert (report.completed, report.uploads) == ((1,), 1)
    audit(store)


def test_an_unknown_outcome_at_the_commit_point_is_settled_by_abort(
    output: Output, store: MemoryStore, clock: ManualClock
) -> None:
    """While the record cannot be read nothing is cleaned up; abort makes sure that it cannot appear."""
    late: list[Callable[[], object]] = []

    def hook(name: str, path: str, mutation: Callable[[], object]) -> object:
        if name == "put" and path.endswith("/00000000000000000001.json"):
            late.append(mutation)
            raise OutcomeUnknown("no answer")
        return mutation()

    driver = open_output(HookedStore(store, hook), clock)
    job = driver.begin("daily")
    files = stage_some(driver, job)
    with pytest.raises(OutcomeUnknown):
        driver.commit(job, files)
    assert len(list(store.list_staged("out/"))) == 2
    assert output.abort(job, files) is None
    for request in late:
        with pytest.raises(CommitError):
            request()
    assert audit(store) == []


def test_a_lost_answer_for_a_taken_number_is_no_unknown_outcome(
    output: Output, store: MemoryStore, clock: ManualClock
) -> None:
    """The record read under the number shows the outcome; then the next number is tried."""

    def lose(mutation: Callable[[], object]) -> object:
        output.commit(output.begin("rival"), ())
        raise OutcomeUnknown("no answer, and it never arrived")

    driver = open_output(HookedStore(store, Once(DECIDE, lose)), clock)
    job = output.begin("daily")
    record = driver.commit(job, stage_some(output, job))
    assert [record.job_id for record in audit(store)] == ["rival", "daily"]
    assert record.version == 2


def test_recovery_keeps_a_job_that_commits_first(
    output: Output, store: MemoryStore, clock: ManualClock
) -> None:
    """A job that commits while it is ruled out is committed; others' commits do not save a dead job."""
    job, dead = output.begin("slow"), output.begin("dead")
    files = stage_some(output, job)
    stage_some(output, dead)

    def overtake(mutation: Callable[[], object]) -> object:
        output.commit(output.begin("rival"), ())
        output.commit(job, files)
        return mutation()

    operator = open_output(HookedStore(store, Once(1, overtake)), clock)
    assert operator.recover(older_than=0).aborted == {dead.attempt: None}
    assert [record.job_id for record in audit(store)] == ["rival", "slow"]
    with pytest.raises(JobAborted):
        output.commit(dead, ())


def test_abort_that_is_overtaken_by_another_job_tries_the_next_number(
    output: Output, store: MemoryStore, clock: ManualClock
) -> None:
    """The abort record is written in the end, even if others take its number first."""
    job = output.begin("dead")
    files = stage_some(output, job)

    def overtake(mutation: Callable[[], object]) -> object:
        output.commit(output.begin("rival"), ())
        return mutation()

    open_output(HookedStore(store, Once(1, overtake)), clock).abort(job, files)
    with pytest.raises(JobAborted):
        output.commit(job, files)


@pytest.mark.parametrize("other_files", [False, True])
def test_a_late_pending_entry_has_no_effect(
    output: Output, store: MemoryStore, clock: ManualClock, other_files: bool
) -> None:
    """An entry that arrives after the commit of its job is removed, and its files are not published."""
    job = output.begin("daily")
    files = stage_some(output, job)
    output.commit(job, files)
    late = [output.stage(job, job.file_name(9), b"not committed")] if other_files else files
    output._prepare(PendingJob.of(job, late, "out"))
    assert output.recover(older_than=0).aborted == {}
    assert len(audit(store)) == 1


def test_commit_reads_only_records_since_the_job_began(
    output: Output, store: MemoryStore, clock: ManualClock
) -> None:
    """Neither commit nor the start of a job without a caller's id reads the whole log."""
    for n in range(10):
        output.commit(output.begin(f"job-{n}"), ())
    job = output.begin("daily")
    output.commit(output.begin("rival"), ())
    read: list[str] = []

    class Watched(HookedStore):
        def get(self, path: str, *, start: int = 0, end: int | None = None) -> ObjectData:
            read.append(path)
            return super().get(path, start=start, end=end)

    driver = open_output(Watched(store), clock)
    driver.commit(job, ())
    driver.begin()
    assert not any(path.endswith(f"{n:020d}.json") for path in read for n in range(1, 10))


def test_uploads_of_decided_attempts_are_removed_at_any_age(
    output: Output, store: MemoryStore, clock: ManualClock
) -> None:
    """A task that continues after its job was decided leaves a useless upload."""
    kept, dropped = output.begin("kept"), output.begin("dropped")
    output.commit(kept, stage_some(output, kept))
    output.abort(dropped)
    for job in (kept, dropped):
        output.stage(job, job.file_name(7), b"late")
    report = output.recover(older_than=1e9)
    assert (report.uploads, report.live, report.aborted) == (2, (), {})
    audit(store)


def test_gc_keeps_the_lists_of_a_job_that_was_committed_long_ago(
    output: Output, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A late upload of a replaced job does not rule it out, and its version stays."""
    monkeypatch.setattr("commitlog.outputs.pending.INLINE_FILES", 1)
    long_ago = output.begin("long ago")
    record = output.commit(long_ago, stage_some(output, long_ago))
    now = output.begin("now", mode="overwrite")
    output.commit(now, stage_some(output, now))
    output.stage(long_ago, long_ago.file_name(7), b"late")
    for _ in range(2):
        output.gc(older_than=0)
        assert list(store.list_staged()) == []
        assert len(list(output.files(record))) == 2
        tail = output.tail(on_rewrite="added")
        assert len(list(tail.added(tail.start(0), tail.advance(tail.start(0))))) == 2


def test_an_aborted_attempt_is_not_aborted_again(output: Output, store: MemoryStore) -> None:
    """Its later uploads are dropped, even after later complete versions, and no record is added."""
    dropped = output.begin("dropped")
    output.abort(dropped)
    later = output.begin("later")
    output.commit(later, stage_some(output, later))
    output.stage(dropped, dropped.file_name(7), b"late")
    records = list(output.records())
    assert output.recover(older_than=0) == RecoveryReport(uploads=1)
    assert list(output.records()) == records


def test_objects_with_similar_names_are_left_alone(output: Output, store: MemoryStore) -> None:
    """Only a name that is exactly an attempt is an entry or a heartbeat."""
    job = output.begin("daily")
    alive = f"out/_commitlog/alive/{job.attempt}.old"
    entry = f"out/_commitlog/pending/{job.attempt}-old.json"
    store.put(alive, b"")
    output.recover(older_than=0)
    store.put(entry, b"{}")
    with pytest.raises(CorruptRecord, match="is not a pending entry"):
        output.recover(older_than=0)
    assert [info.path for info in store.list("out/")] == [alive, entry]


def test_an_old_upload_of_a_large_record_is_dropped(
    output: Output, store: MemoryStore, clock: ManualClock
) -> None:
    """A driver that dies while it uploads a large record leaves nothing permanently."""
    store.stage("out/_commitlog/00000000000000000001.json", b"{}")
    assert output.recover(older_than=100).uploads == 0
    assert output.recover(older_than=0).uploads == 1
    assert list(store.list_staged()) == []


@pytest.mark.parametrize(
    ("content", "error"), [(b"{", CorruptRecord), (b'{"format": 99}', FormatTooNew)]
)
@pytest.mark.parametrize("name", ["00000000000000000002", "pending/{attempt}"])
def test_an_unreadable_record_stops_all_operations(
    output: Output,
    store: MemoryStore,
    clock: ManualClock,
    name: str,
    content: bytes,
    error: type[Exception],
) -> None:
    """Corrupt records, and records of a newer format, are never taken for missing ones."""
    output.commit(output.begin("first"), ())
    job = output.begin("daily")
    files = stage_some(output, job)
    store.put(f"out/_commitlog/{name.format(attempt=job.attempt)}.json", content)
    with pytest.raises(error):
        output.commit(job, files)
    with pytest.raises(error):
        output.recover(older_than=0)
    assert len(list(store.list_staged())) == 2


def test_a_newer_success_file_is_not_overwritten(output: Output, store: MemoryStore) -> None:
    """A file of a newer library is left alone."""
    store.put("out/_SUCCESS", b'{"format": 99}')
    with pytest.raises(FormatTooNew):
        output.recover(older_than=0)
    with pytest.raises(FormatTooNew):
        output.snapshot()


def test_a_missing_version_is_not_found(output: Output) -> None:
    """A snapshot of a version that the log does not have is refused."""
    with pytest.raises(NotFound, match="no version 3"):
        output.snapshot(3)
