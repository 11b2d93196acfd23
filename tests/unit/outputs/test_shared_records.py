"""Jobs that share a record: outcomes of their own, and the number of requests."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from commitlog._util.request_stats import RequestRecorder
from commitlog.errors import (
    AlreadyExists,
    CommitError,
    Conflict,
    CorruptRecord,
    JobAborted,
    JobAlreadyCommitted,
    OutcomeUnknown,
    PublishIncomplete,
    Unavailable,
)
from commitlog.namespace import RequestStats
from commitlog.oplog.codec import Document, encode
from commitlog.outputs import Batch, CommitRecord, Job, Output, StagedFile
from commitlog.outputs.log_cache import CONFIRMED_FOR
from commitlog.outputs.pending import PendingJob
from commitlog.outputs.ready_jobs import ReadyJob
from commitlog.stores import ObjectStore
from commitlog.stores.counting_store import CountingStore
from commitlog.stores.memory import MemoryStore
from commitlog.testing import ManualClock
from support.outputs import HookedStore, open_output, perform, stage_some, visible

RECORDS = "out/_commitlog/" + 19 * "0"


def shared(store: ObjectStore, **options: Any) -> Output:
    """Open an output whose jobs share records."""
    plain = open_output(store)
    return Output(plain.store, "out", share_records=True, **options)


def ready(output: Output, *job_ids: str, **options: Any) -> list[tuple[Job, list[StagedFile]]]:
    """Begin jobs with a file each."""
    jobs = [output.begin(job_id, **options) for job_id in job_ids]
    return [(job, stage_some(output, job, count=1)) for job in jobs]


def versions(outcomes: list[CommitRecord | CommitError]) -> list[object]:
    """Return the version of each committed job, and the type of each error."""
    return [each.version if isinstance(each, CommitRecord) else type(each) for each in outcomes]


# -- outcomes ----------------------------------------------------------------------------------------


def test_every_reader_sees_each_job_of_a_record() -> None:
    """Snapshot, log, state, history and tail have all jobs; nothing is left to recover."""
    store = MemoryStore()
    output = shared(store)
    records = output.commit_many(ready(output, "a", "b", "c"))
    assert versions(records) == [1, 1, 1]
    assert list(output.log()) == records
    snapshot = open_output(store).snapshot(roll_forward=False)
    assert (snapshot.version, snapshot.jobs, snapshot.rows) == (1, ("a", "b", "c"), 3)
    assert visible(store).keys() == {file.path for file in snapshot.files}
    history = output.history()
    assert [each.files for each in history.commits] == [3, 3, 3]
    assert [each.job_id for each in history.commits] == ["a", "b", "c"]
    tail = open_output(store).tail()
    start = tail.start(0)
    half = tail.advance(start, max_files=2)
    end = tail.advance(half)
    files = [
        file for at in ((start, half), (half, end)) for new in tail.added(*at) for file in new.files
    ]
    assert files == list(snapshot.files)
    assert tail.advance(end) == end
    assert not open_output(store).inspect(expire_after=0).unpublished
    assert open_output(store).recover(older_than=0).completed == ()


def test_a_job_that_may_not_be_committed_fails_alone() -> None:
    """An aborted job, another driver's, and one that needs an empty output get their own errors."""
    store = MemoryStore()
    output, other = shared(store), open_output(store)
    jobs = ready(output, "kept", "aborted", "taken") + ready(output, "needs-empty", mode="error")
    assert other.abort(jobs[1][0]) is None
    other.commit(*ready(other, "taken")[0])
    assert versions(output.commit_many(jobs)) == [3, JobAborted, JobAlreadyCommitted, AlreadyExists]
    assert other.snapshot().jobs == ("taken", "kept")


def test_two_attempts_at_a_job_do_not_share_a_record() -> None:
    """The first one wins, also for a batch of a stream and a job of its id."""
    output = shared(MemoryStore())
    twice = ready(output, "a") + ready(output, "a")
    assert versions(output.commit_many(twice)) == [1, JobAlreadyCommitted]
    batches = [output.begin(batch=Batch("s", number)) for number in (1, 0)] + [output.begin("s/1")]
    outcomes = output.commit_many([(job, ()) for job in batches])
    assert versions(outcomes) == [2, JobAlreadyCommitted, JobAlreadyCommitted]


def test_jobs_of_other_columns_do_not_share_a_record() -> None:
    """The second one is checked against the first, as if it came later."""
    output = shared(MemoryStore())
    jobs = (
        ready(output, "a", schema="x") + ready(output, "b", schema="y") + ready(output, "c", schema="x")
    )
    assert versions(output.commit_many(jobs)) == [1, Conflict, 1]


def test_large_jobs_and_those_that_replace_are_committed_alone() -> None:
    """They have a pending entry, and records of the first format."""
    output = shared(MemoryStore())
    large = output.begin("large")
    jobs = [(large, stage_some(output, large, count=17)), *ready(output, "over", mode="overwrite")]
    records = output.commit_many(jobs)
    assert versions(records) == [1, 2]
    assert [output._log.document(version).format for version in (1, 2)] == [1, 1]
    assert output.snapshot().jobs == ("large", "over")


@pytest.mark.parametrize("share_records", [True, False])
def test_a_job_that_replaces_does_not_replace_later_ones(share_records: bool) -> None:
    """Jobs are committed in their order, whether they share records or not."""
    output = Output(open_output(MemoryStore()).store, "out", share_records=share_records)
    jobs = ready(output, "old") + ready(output, "over", mode="overwrite") + ready(output, "new")
    assert versions(output.commit_many(jobs)) == [1, 2, 3]
    assert output.snapshot().rows == 2
    names = [file.path for file in output.snapshot().files]
    assert [path for path in names if jobs[0][0].attempt in path] == []


def test_an_attempt_may_be_committed_again_by_any_client() -> None:
    """With the same files it gets the record; an entry of an earlier call is removed by a recovery."""
    store = MemoryStore()
    output = shared(store)
    [(job, files)] = ready(output, "a")
    plain = open_output(store)
    plain._prepare(_pending(plain, job, files))
    record = output.commit(job, files)
    assert output.commit(job, files) == record == plain.commit(job, files)
    assert plain.recover(older_than=0).completed == ()
    assert not list(store.list("out/_commitlog/pending/"))


def _pending(output: Output, job: Job, files: list[StagedFile]) -> PendingJob:
    return PendingJob.of(job, output._checked(job, files), output._log.manifests)


def test_an_unknown_record_is_an_unknown_outcome_of_each_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """`resolve` then finds out for each of them, and publishes it."""
    store = MemoryStore()
    output = shared(store)
    jobs = ready(output, "a", "b")
    add = output._log._entries.add

    def lose(name: str, document: Document) -> None:
        add(name, document)
        raise OutcomeUnknown("the answer was lost")

    def fail(_: str) -> Document:
        raise OutcomeUnknown("the store cannot be reached")

    with monkeypatch.context() as patch:
        patch.setattr(output._log._entries, "add", lose)
        patch.setattr(output._log._entries, "get", fail)
        outcomes = output.commit_many(jobs)
    assert versions(outcomes) == [OutcomeUnknown, OutcomeUnknown]
    assert outcomes[0] is not outcomes[1]
    assert visible(store) == {}
    assert [output.resolve(job).version for job, _ in jobs] == [1, 1]  # type: ignore[union-attr]
    assert len(visible(store)) == 2


def test_an_unexpected_error_of_a_job_is_its_own_outcome() -> None:
    """A job that is committed alone fails with no `CommitError`; those before and after it go on."""

    def fail(name: str, path: str, mutation: Callable[[], Any]) -> Any:
        if name == "put" and path.startswith("out/_commitlog/pending/"):
            raise MemoryError
        return mutation()

    store = HookedStore(MemoryStore())
    output = shared(store)
    jobs = ready(output, "a") + ready(output, "over", mode="overwrite") + ready(output, "b", schema="x")
    store.hook = fail
    outcomes = output.commit_many(jobs)
    assert versions(outcomes) == [1, OutcomeUnknown, 2]
    assert isinstance(outcomes[1], OutcomeUnknown)
    assert "MemoryError()" in str(outcomes[1])
    assert isinstance(outcomes[1].__cause__, MemoryError)
    store.hook = perform
    assert output.resolve(jobs[1][0]) is None
    assert output.snapshot().jobs == ("a", "b")


def test_an_unexpected_error_between_two_records_is_no_outcome_of_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The job of the first record is committed; the outcome of the one that waits is unknown."""
    output = shared(MemoryStore())
    jobs = ready(output, "a", schema="x") + ready(output, "b", schema="y")
    look_on = output._log.look_on

    def fail(job: Job, after: int, *, until: int) -> Any:
        if until == 1:
            raise RuntimeError("no thread can be started")
        return look_on(job, after, until=until)

    with monkeypatch.context() as patch:
        patch.setattr(output._log, "look_on", fail)
        assert versions(output.commit_many(jobs)) == [1, OutcomeUnknown]
    assert output.snapshot().jobs == ("a",)


@pytest.mark.parametrize("share_records", [True, False])
def test_an_unexpected_error_after_the_commit_point_says_that_the_job_is_committed(
    share_records: bool,
) -> None:
    """An executor that was shut down publishes nothing; the next client does it."""
    store, executor = MemoryStore(), ThreadPoolExecutor(1)
    output = Output(open_output(store).store, "out", share_records=share_records, executor=executor)
    jobs = ready(output, "a", "b")
    executor.shutdown()
    with pytest.raises(PublishIncomplete, match=r"is committed as version 1.*RuntimeError") as caught:
        output.commit(*jobs[0])
    assert (caught.value.job_id, caught.value.version) == ("a", 1)
    assert versions(output.commit_many(jobs[1:])) == [PublishIncomplete]
    assert len(open_output(store).snapshot().files) == len(visible(store)) == 2


# -- threads -----------------------------------------------------------------------------------------


def test_jobs_that_end_while_a_record_is_written_share_the_next_one() -> None:
    """One record is under way; the jobs of seven other threads are in the next one."""
    writing, go_on = threading.Event(), threading.Event()

    def wait(name: str, path: str, mutation: Callable[[], Any]) -> Any:
        if name == "put" and path == f"{RECORDS}1.json":
            writing.set()
            assert go_on.wait(30)
        return mutation()

    store = HookedStore(MemoryStore(), wait)
    output = shared(store)
    first, *others = ready(output, *map(str, range(8)))
    with ThreadPoolExecutor(8) as pool:
        begun = pool.submit(output.commit, *first)
        assert writing.wait(30)
        later = [pool.submit(output.commit, *each) for each in others]
        while output._commits.waiting < len(others):
            threading.Event().wait(0.001)
        go_on.set()
        assert begun.result().version == 1
        assert {each.result().version for each in later} == {2}
    assert len(open_output(store).snapshot(roll_forward=False).files) == 8


def test_an_interrupt_of_one_thread_does_not_stop_the_others() -> None:
    """The next commit works: the interrupted thread has handed its turn on."""

    def interrupt(name: str, path: str, mutation: Callable[[], Any]) -> Any:
        if name == "put" and path == f"{RECORDS}1.json":
            raise KeyboardInterrupt
        return mutation()

    store = HookedStore(MemoryStore(), interrupt)
    output = shared(store)
    first, second = ready(output, "a", "b")
    with pytest.raises(KeyboardInterrupt):
        output.commit(*first)
    store.hook = perform
    assert output.commit(*second).version == 1


# -- damage ------------------------------------------------------------------------------------------


def test_a_shared_record_of_format_1_is_corrupt() -> None:
    """Its jobs would count as published, since they have no pending entries."""
    store = MemoryStore()
    output = shared(store)
    assert versions(output.commit_many(ready(output, "a", "b"))) == [1, 1]
    body = output._log.document(1).body
    store.put(f"{RECORDS}1.json", encode(Document("commits", body, format=1)))
    calls: list[Callable[[Output], object]] = [
        lambda output: list(output.log()),
        lambda output: output.snapshot(),
        lambda output: output.begin("c"),
        lambda output: output.recover(older_than=0),
    ]
    for call in calls:
        with pytest.raises(CorruptRecord, match=r"1\.json' commits several jobs in format 1"):
            call(open_output(store))


# -- ready entries -----------------------------------------------------------------------------------


def busy(store: ObjectStore, **options: Any) -> Output:
    """Open an output whose client knows that others commit at the same time."""
    output = shared(store, clock=ManualClock(), **options)
    output._ready.note_busy()
    return output


def left(output: Output, *jobs: tuple[Job, list[StagedFile]]) -> None:
    """Leave a ready entry of each job, as a driver does that waits for others."""
    for job, files in jobs:
        each = ReadyJob(job=job, files=tuple(output._checked(job, files)))
        output._ready.leave([each], after=job.base)


def entries(output: Output) -> list[str]:
    """Return the attempts of the ready entries."""
    return [each.name.partition("-")[2] for each in output._ready.list()]


def test_a_record_takes_the_jobs_of_ready_entries_along() -> None:
    """All fields of the jobs are as their driver gave them, and their entries are removed."""
    store = MemoryStore()
    owner, output = shared(store), busy(store)
    jobs = [*ready(owner, "a", schema="x"), (owner.begin(batch=Batch("s", 3), schema="x"), [])]
    left(owner, *jobs)
    output.commit(*ready(output, "mine", schema="x")[0])
    assert {each.job_id for each in output.log()} == {"mine", "a", "s/3"}
    assert {each.version for each in output.log()} == {1}
    assert entries(output) == []
    records = [owner.commit(*each) for each in jobs]
    assert [(each.batch, each.schema) for each in records] == [(None, "x"), (Batch("s", 3), "x")]
    assert owner.snapshot(roll_forward=False).version == 1


def test_only_jobs_that_may_be_committed_are_taken_along() -> None:
    """Entries of aborted jobs are removed; those of other columns wait, and damaged ones stay."""
    store = MemoryStore()
    owner, output = shared(store), busy(store)
    aborted, other = ready(owner, "aborted") + ready(owner, "other", schema="y")
    left(owner, aborted, other)
    owner.abort(aborted[0])
    damaged = "out/_commitlog/ready/" + 20 * "0" + "-" + 32 * "a" + ".json"
    store.put(damaged, b"{}")
    output.commit(*ready(output, "mine", schema="x")[0])
    assert [each.job_id for each in output.log()] == ["mine"]
    assert set(entries(output)) == {32 * "a", other[0].attempt}
    with pytest.raises(Conflict):
        owner.commit(*other)


class _Arrivals(ManualClock):
    """A clock that makes a call at each pause."""

    def __init__(self, *calls: Callable[[], object]) -> None:
        super().__init__()
        self.calls = list(calls)

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        if self.calls:
            self.calls.pop(0)()


def test_the_driver_that_wrote_the_last_record_waits_for_as_many_jobs_as_lately() -> None:
    """It goes on without them after a few pauses."""
    store = MemoryStore()
    owner, clock = shared(store), _Arrivals()
    output = shared(store, clock=clock)
    output._ready.note_busy()
    left(owner, *ready(owner, "a", "b"))
    output.commit(*ready(output, "first")[0])
    late = ready(owner, "c", "d")
    clock.calls = [lambda: left(owner, late[0]), lambda: left(owner, late[1])]
    output.commit(*ready(output, "second")[0])
    assert {each.job_id for each in output.log() if each.version == 2} == {"second", "c", "d"}
    assert not clock.calls
    before = clock.monotonic()
    output.commit(*ready(output, "third")[0])
    assert 0 < clock.monotonic() - before < 1


def test_uploads_of_other_drivers_show_that_the_output_is_busy() -> None:
    """So a driver that never lost a claim finds the ready entries. Its own uploads do not count."""
    store = MemoryStore()
    output, owner = shared(store, clock=ManualClock()), shared(store)
    jobs = ready(output, "a", "b")
    output.commit(*jobs[0])
    assert not output._ready.busy
    others = ready(owner, "c")
    output.commit(*jobs[1])
    assert output._ready.busy
    left(owner, *others)
    output.commit(*ready(output, "d")[0])
    assert {each.job_id for each in output.log() if each.version == 3} == {"c", "d"}


def test_a_recovery_removes_the_entries_of_dead_drivers() -> None:
    """Their attempts are aborted first, also those without an upload. Young ones stay."""
    store = MemoryStore()
    output = shared(store)
    jobs = [*ready(output, "a"), (output.begin("empty"), [])]
    left(output, *jobs)
    assert output.recover(older_than=100, dry_run=True).aborted == {}
    assert sorted(output.recover(older_than=100).live) == sorted(job.attempt for job, _ in jobs)
    assert set(output.recover(older_than=0, dry_run=True).aborted.values()) == {"a", "empty"}
    assert len(entries(output)) == 2
    assert set(output.recover(older_than=0).aborted.values()) == {"a", "empty"}
    assert entries(output) == []


def test_an_error_of_a_job_in_a_ready_entry_is_an_unknown_outcome(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another driver may commit it later. Nothing is cleaned up."""
    store = MemoryStore()
    output = busy(store)
    [(job, files)] = ready(output, "a")

    def fail(*_: Any) -> bool:
        raise Unavailable("the store cannot be reached")

    with monkeypatch.context() as patch:
        patch.setattr(output._log, "claim", fail)
        with pytest.raises(OutcomeUnknown, match="or another one: the store cannot be reached"):
            output.commit(job, files)
    assert entries(output) == [job.attempt]
    assert output.commit(*ready(output, "b")[0]).version == 1
    resolved = output.resolve(job)
    assert resolved is not None
    assert resolved.version == 1


@pytest.mark.parametrize(("entry", "error"), [(False, CorruptRecord), (True, OutcomeUnknown)])
def test_a_number_with_an_unreadable_record_is_claimed_once(entry: bool, error: type[Exception]) -> None:
    """The jobs get the error of reading it; one in a ready entry may be committed by others later."""
    claims: list[str] = []

    def count(_name: str, path: str, mutation: Callable[[], Any]) -> Any:
        claims.extend([path] if path == f"{RECORDS}1.json" else ())
        assert len(claims) < 10, "it is claimed again and again"
        return mutation()

    store = MemoryStore()
    output = (busy if entry else shared)(HookedStore(store, count))
    jobs = ready(output, "a", "b")
    store.put(f"{RECORDS}1.json", b"damaged")
    assert versions(output.commit_many(jobs)) == [error, error]
    assert len(claims) == 1


# -- requests ----------------------------------------------------------------------------------------


class _Later:
    """An executor that keeps calls for later."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], Any]] = []

    def map(self, *_: Any) -> Any:
        raise AssertionError("nothing is mapped")

    def submit(self, call: Callable[..., Any], *_: Any, **__: Any) -> Future[Any]:
        self.calls.append(call)
        return Future()


def test_a_job_is_finished_after_the_finisher_was_shut_down() -> None:
    """An error would look as if the job were not committed."""
    finisher = ThreadPoolExecutor(1)
    output = shared(MemoryStore(), finisher=finisher)
    jobs = ready(output, "a", "b", "c")
    output.commit(*jobs[0])
    finisher.shutdown()
    assert [output.commit(*job).version for job in jobs[1:]] == [2, 3]
    assert output.watermark() == 3


def test_a_job_is_finished_after_the_finisher_dropped_its_calls() -> None:
    """A finisher that is shut down may cancel what it has not begun."""
    finisher, go_on = ThreadPoolExecutor(1), threading.Event()
    output = shared(MemoryStore(), finisher=finisher)
    jobs = ready(output, "a", "b")
    finisher.submit(go_on.wait, 30)
    output.commit(*jobs[0])
    finisher.shutdown(wait=False, cancel_futures=True)
    go_on.set()
    assert output.commit(*jobs[1]).version == 2
    assert output.watermark() == 2


def test_a_finisher_that_refuses_is_no_error_of_a_job() -> None:
    """Whatever it raises, the call itself does the work."""

    class Refuses(_Later):
        def submit(self, call: Callable[..., Any], *_: Any, **__: Any) -> Future[Any]:
            raise ValueError("no call is taken")

    output = shared(MemoryStore(), finisher=Refuses())
    jobs = ready(output, "a", "b")
    assert [output.commit(*job).version for job in jobs] == [1, 2]
    assert output.watermark() == 2


def test_an_unexpected_error_of_the_last_steps_is_no_error_of_a_job(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is logged: the job is committed, and its files are visible."""

    def fail(name: str, path: str, mutation: Callable[[], Any]) -> Any:
        if path == "out/_SUCCESS":
            raise MemoryError
        return mutation()

    store = HookedStore(MemoryStore())
    output = shared(store)
    jobs = ready(output, "a", "b", "c")
    store.hook = fail
    assert output.commit(*jobs[0]).version == 1
    assert versions(output.commit_many(jobs[1:])) == [2, 2]
    assert "tidying up after it failed: MemoryError()" in caplog.text
    assert len(visible(store)) == 3


def test_an_interrupt_of_the_thread_that_finishes_is_no_error_of_the_other_jobs() -> None:
    """They are committed and visible: only the work that the next commit does is left."""
    finishing, go_on = threading.Event(), threading.Event()

    def wait(name: str, path: str, mutation: Callable[[], Any]) -> Any:
        if path == "out/_SUCCESS":
            if finishing.is_set():
                raise KeyboardInterrupt
            finishing.set()
            assert go_on.wait(30)
        return mutation()

    store = HookedStore(MemoryStore(), wait)
    output = shared(store)
    first, *others = ready(output, "a", "b", "c")
    with ThreadPoolExecutor(3) as pool:
        begun = pool.submit(output.commit, *first)
        assert finishing.wait(30)
        later = [pool.submit(output.commit, *each) for each in others]
        while output._finishing.waiting < len(others):
            threading.Event().wait(0.001)
        go_on.set()
        assert begun.result().version == 1
        errors = [each.exception() for each in later]
    assert sorted(map(type, errors), key=repr) == [KeyboardInterrupt, type(None)]


def _requests(recorder: RequestRecorder) -> dict[str, int]:
    total = RequestStats.of("", recorder.counts()).total
    return {name: getattr(total, name) for name in total.__slots__ if name.startswith("store_")}


@pytest.mark.parametrize(("share_records", "visible_after", "total"), [(True, 4, 6), (False, 5, 8)])
def test_a_job_in_an_open_output_takes_few_requests(
    share_records: bool, visible_after: int, total: int
) -> None:
    """A job of one file: its requests until it is visible are sent one after the other.

    On S3, a staged file is one more: its upload is begun, and then sent.
    """
    recorder, later = RequestRecorder(), _Later()
    plain = open_output(CountingStore(MemoryStore(), recorder))
    output = Output(plain.store, "out", share_records=share_records, finisher=later)
    for job_id in ("first", "second"):
        before = sum(_requests(recorder).values())
        output.commit(*ready(output, job_id)[0])
        until_visible = sum(_requests(recorder).values()) - before
        later.calls.pop()()
        assert not later.calls
        cost = sum(_requests(recorder).values()) - before
    assert (until_visible, cost) == (visible_after, total)


def test_a_group_of_jobs_shares_all_but_the_files() -> None:
    """One record, one move of `_SUCCESS` and one listing, for any number of jobs."""
    recorder = RequestRecorder()
    output = shared(CountingStore(MemoryStore(), recorder))
    output.commit_many(ready(output, "before"))
    jobs = ready(output, *map(str, range(20)))
    before = _requests(recorder)
    output.commit_many(jobs)
    cost = {name: count - before[name] for name, count in _requests(recorder).items()}
    assert cost["store_publishes"] == 20
    assert sum(cost.values()) == 20 + 3
    assert cost["store_puts"] == 2


def test_an_output_that_was_made_again_is_noticed() -> None:
    """Ten seconds later at most, the remembered log is looked at again, and forgotten."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    output = Output(open_output(store, clock).store, "out", clock=clock)
    for job_id in ("a", "b"):
        output.commit(*ready(output, job_id)[0])
    for info in list(store.list("out/")):
        store.delete(info.path)
    clock.advance(CONFIRMED_FOR)
    assert output.begin("a").base == 0
