"""Bugs of outputs that the simulator found, each reproduced at the one moment at which it occurred."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from commitlog.errors import (
    CommitError,
    JobAborted,
    NotFound,
    OutcomeUnknown,
    PublishIncomplete,
    Unavailable,
)
from commitlog.outputs import AbortRecord, Output, RecoveryReport, Visibility
from commitlog.stores import ObjectData, ObjectStore, PutResult, Staged
from commitlog.stores.memory import MemoryStore
from commitlog.testing import ManualClock
from support.outputs import Death, HookedStore, Once, open_output, stage_some


class Meddled(HookedStore):
    """`inner`, with a call before the n-th GET of a path."""

    def __init__(self, inner: ObjectStore, path: str, nth: int, meddle: Callable[[], object]) -> None:
        super().__init__(inner)
        self.path = path
        self.left = nth
        self.meddle = meddle

    def get(self, path: str, *, start: int = 0, end: int | None = None) -> ObjectData:
        if path == self.path:
            self.left -= 1
            if not self.left:
                self.meddle()
        return super().get(path, start=start, end=end)


def is_there(store: ObjectStore, output: Output) -> bool:
    """Return whether all files of the output's last version exist."""
    paths = [output.locate(file) for file in output.snapshot().files]
    return bool(paths) and all(store.begin_head(path)().info is not None for path in paths)


@pytest.mark.parametrize("nth", range(1, 6))
def test_gc_keeps_files_of_a_job_committed_meanwhile(nth: int) -> None:
    """A job is ruled out at the end of the log that was read, not where the log is complete then."""
    store = MemoryStore()
    driver = open_output(store)
    job = driver.begin("slow", visibility="logged")
    files = stage_some(driver, job)

    def commit() -> None:
        driver.commit(job, files)

    meddled = Meddled(store, "out/_SUCCESS", nth, commit)
    open_output(meddled).gc(older_than=0)
    if meddled.left <= 0:
        assert is_there(store, driver)
    else:
        with pytest.raises(CommitError):
            commit()


def test_gc_keeps_files_of_a_job_committed_between_two_reads_of_the_log() -> None:
    """What the log says at its end does not count for files that were compared with an earlier state."""
    for nth in itertools.count(1):
        store = MemoryStore()
        driver = open_output(store)
        job = driver.begin("slow", visibility="logged")
        files = stage_some(driver, job)
        record = "out/_commitlog/00000000000000000001.json"
        meddled = Meddled(store, record, nth, partial(driver.commit, job, files))
        try:
            open_output(meddled).gc(older_than=0)
        except JobAborted:  # the job was ruled out before
            assert not list(driver.log())
            break
        assert is_there(store, driver)
    assert nth > 3


def test_gc_spares_the_records_of_an_attempt_with_a_young_upload() -> None:
    """An attempt lives as long as its uploads are young, however old its records of S3A are."""
    clock = ManualClock(epoch=1_000_000.0)
    store = MemoryStore(clock=clock)
    output = open_output(store, clock)
    job = output.begin("slow")
    store.put(f"out/__magic_job-{job.attempt}/tasks/__base/{job.file_name(0)}.pending", b"{}")
    clock.advance(60.0)
    files = stage_some(output, job)
    assert output.gc(older_than=30.0).removed == 0
    assert output.commit(job, files).version == 1
    assert output.gc(older_than=0).removed == 1
    assert not list(store.list("out/__magic"))


@pytest.mark.parametrize("visibility", ["listed", "logged"])
def test_a_resolved_commit_is_visible(visibility: Visibility) -> None:
    """A driver died after the commit point: `resolve` publishes its files and removes the replaced."""
    store = MemoryStore()
    store.put("out/p=0/old", b"of another program")
    hook = Once(0, "before")
    driver = open_output(HookedStore(store, hook))
    job = driver.begin("job", mode="overwrite", visibility=visibility)
    files = stage_some(driver, job)
    hook.count, hook.at = 0, 3  # the pending entry, the commit record, the next mutation
    with pytest.raises(Death):
        driver.commit(job, files)
    output = open_output(store)
    record = output.resolve(job)
    assert record is not None
    assert record.version == 1
    assert is_there(store, output)
    assert store.begin_head("out/p=0/old")().info is None
    assert not list(store.list("out/_commitlog/pending/"))
    assert output.watermark() == 1
    assert output.resolve(job, files) == record


def test_a_commit_that_did_not_happen_is_resolved_by_an_abort() -> None:
    """`resolve` excludes the job permanently, and drops its uploads."""
    store = MemoryStore()
    output = open_output(store)
    job = output.begin("job")
    files = stage_some(output, job)
    assert output.resolve(job, files) is None
    with pytest.raises(JobAborted):
        output.commit(job, files)
    assert not list(store.list_staged())


def test_a_late_heartbeat_does_not_abort_a_committed_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The heartbeat of a replaced job does not rule it out, and no list of its files is removed."""
    monkeypatch.setattr("commitlog.outputs.pending.INLINE_FILES", 1)
    store = MemoryStore()
    output = open_output(store)
    long = output.begin("long")
    output.heartbeat(long.attempt)
    output.commit(long, stage_some(output, long))
    after = output.begin("after", mode="overwrite")
    output.commit(after, stage_some(output, after))
    assert output.recover(older_than=0) == RecoveryReport()
    assert output.recover(older_than=0) == RecoveryReport()
    assert not list(store.list("out/_commitlog/alive/"))
    assert output.version_of("long") == 1
    assert is_there(store, output)


def test_a_late_upload_does_not_remove_the_lists_of_a_committed_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The attempt of a replaced job is not ruled out, and the lists of its record stay."""
    monkeypatch.setattr("commitlog.outputs.pending.INLINE_FILES", 1)
    store = MemoryStore()
    output = open_output(store)
    early = output.begin("early")
    output.commit(early, stage_some(output, early))
    after = output.begin("after", mode="overwrite")
    output.commit(after, stage_some(output, after))
    output.stage(early, early.file_name(7), b"of a task that lost its race, and went on")
    assert output.recover(older_than=0).uploads == 1
    assert not any(isinstance(record, AbortRecord) for record in output.records())
    assert output.version_of("early") == 1
    assert output.abort(early) is not None


@pytest.mark.parametrize("comes_back", [False, True])
def test_a_slow_publisher_reports_no_loss_of_replaced_files(comes_back: bool) -> None:
    """Another process published its files, and a third one replaced them.

    Either one of its requests was refused for another reason, so the loss of the upload was not
    recognised; or its pending entry came back, since the request to write it was repeated.
    """
    store = MemoryStore()

    class Overtaken(HookedStore):
        entry: tuple[str, bytes] | None = None
        published = 0

        def put(self, path: str, body: Any, **options: Any) -> PutResult:
            if "pending" in path:
                self.entry = path, body
            return super().put(path, body, **options)

        def publish(self, staged: Staged, **options: Any) -> PutResult:
            self.published += 1
            if self.published == 1:
                other = open_output(store)
                other.recover(older_than=0)
                job = other.begin("after", mode="overwrite")
                other.commit(job, stage_some(other, job))
                if comes_back and self.entry:
                    store.put(*self.entry)
            elif self.published < 5 and not comes_back:
                raise Unavailable("slow down")
            return super().publish(staged, **options)

    slow = open_output(Overtaken(store))
    job = slow.begin("before")
    assert slow.commit(job, stage_some(slow, job)).version == 1
    assert open_output(store).recover(older_than=0) == RecoveryReport()


def test_a_publisher_that_cannot_read_reports_no_loss() -> None:
    """Until it is known whether all was published and replaced, nothing is reported as lost."""
    store = MemoryStore()

    class Down(HookedStore):
        down = False

        def publish(self, staged: Staged, **options: Any) -> PutResult:
            self.down = True
            raise NotFound("no such upload")

        def get(self, path: str, *, start: int = 0, end: int | None = None) -> ObjectData:
            if self.down:
                raise Unavailable("down")
            return super().get(path, start=start, end=end)

    output = open_output(Down(store))
    job = output.begin("job")
    with pytest.raises(PublishIncomplete, match="not visible yet"):
        output.commit(job, stage_some(output, job))


def test_a_losing_task_does_not_overwrite_a_logged_file() -> None:
    """Files under hidden names exist as soon as they are written, so each has its own name."""
    store = MemoryStore()
    output = open_output(store)
    job = output.begin("job", visibility="logged")
    name = job.file_name(0)
    early, won = (output.stage(job, name, data) for data in (b"lost, early", b"won"))
    output.commit(job, [won])
    output.stage(job, name, b"lost, and late")
    (file,) = output.snapshot().files
    found = store.get(output.locate(file))
    assert (found.data, found.nonce) == (b"won", file.nonce)
    assert early.staged.path != won.staged.path
    assert output.gc(older_than=0).removed == 2
    assert store.get(output.locate(file)).data == b"won"


@pytest.mark.parametrize("error", [OutcomeUnknown("no answer"), NotFound("no such upload")])
def test_a_lost_answer_does_not_fail_a_task_whose_file_exists(error: CommitError) -> None:
    """A file that only the log shows is recognised after a lost answer, or a repeated request."""

    class Lossy(HookedStore):
        applied = True

        def publish(self, staged: Staged, **options: Any) -> PutResult:
            if self.applied:
                super().publish(staged, **options)
            raise error

    store = Lossy(MemoryStore())
    output = open_output(store)
    job = output.begin("job", visibility="logged")
    assert output.commit(job, stage_some(output, job)).file_count == 2
    assert is_there(store, output)
    store.applied = False
    with pytest.raises(type(error)):
        stage_some(output, output.begin("other"))


def test_a_commit_with_a_lost_answer_is_not_reported_as_failed() -> None:
    """After a lost answer the record is read once, which shows whose it is.

    It used to be read twice: for whether the number is taken, and for its owner. If the second read
    failed, the driver wrongly got an error that said that nothing was added.
    """
    store = MemoryStore()
    record = "out/_commitlog/00000000000000000001.json"

    class Lossy(HookedStore):
        lost = False
        gets = 0

        def put(self, path: str, body: Any, **options: Any) -> PutResult:
            result = super().put(path, body, **options)
            if path == record:
                self.lost = True
                raise OutcomeUnknown("no answer")
            return result

        def begin_head(self, path: str) -> Any:
            if self.lost:
                raise Unavailable("down")
            return super().begin_head(path)

        def get(self, path: str, *, start: int = 0, end: int | None = None) -> ObjectData:
            if self.lost and path == record:
                self.gets += 1
                if self.gets > 1:
                    raise Unavailable("down again")
            return super().get(path, start=start, end=end)

    output = open_output(Lossy(store))
    job = output.begin("job")
    assert output.commit(job, stage_some(output, job)).version == 1


@pytest.mark.parametrize("visibility", ["listed", "logged"])
def test_gc_removes_lists_of_aborted_jobs(
    monkeypatch: pytest.MonkeyPatch, visibility: Visibility
) -> None:
    """A list that arrives late, or whose job left only files, is removed."""
    monkeypatch.setattr("commitlog.outputs.pending.INLINE_FILES", 1)
    store = MemoryStore()
    late: list[Callable[[], object]] = []

    class Slow(HookedStore):
        def put(self, path: str, body: Any, **options: Any) -> PutResult:
            if "manifests" in path:
                late.append(lambda: super(Slow, self).put(path, body, **options))
                raise Unavailable("slow down")
            return super().put(path, body, **options)

    output = open_output(store)
    slow = open_output(Slow(store))
    job = slow.begin("slow", visibility=visibility)
    files = stage_some(slow, job)
    with pytest.raises(Unavailable):
        slow.commit(job, files)
    if visibility == "listed":
        output.abort(job, files)
    late[0]()
    kept = output.begin("kept", visibility=visibility)
    output.commit(kept, stage_some(output, kept))
    assert len(list(store.list("out/_commitlog/manifests/"))) == 2
    output.gc(older_than=0)
    assert len(list(store.list("out/_commitlog/manifests/"))) == 1
    assert is_there(store, output)
