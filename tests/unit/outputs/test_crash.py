"""Drivers that die or stall at each request, with recoveries and other jobs in between, and an audit."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator

import pytest

from commitlog.errors import (
    CommitError,
    JobAlreadyCommitted,
    OutcomeUnknown,
    PublishIncomplete,
)
from commitlog.outputs import CommitRecord, Job
from commitlog.outputs.job import attempt_of
from commitlog.stores import ObjectStore
from commitlog.stores.memory import MemoryStore
from support.outputs import Death, HookedStore, Once, audit, check_invariants, open_output, stage_some


def new_store() -> MemoryStore:
    """Return a store with one committed job."""
    store = MemoryStore()
    output = open_output(store)
    job = output.begin("before")
    output.commit(job, stage_some(output, job))
    return store


def drive(store: ObjectStore, job_id: str = "daily") -> CommitRecord:
    """Run a driver and its workers, including a task that lost its race."""
    output = open_output(store)
    job = output.begin(job_id)
    stage_some(output, job, count=1)
    return output.commit(job, stage_some(output, job))


def drive_and_abort(store: ObjectStore, job_id: str = "daily") -> CommitRecord | None:
    """Run a driver as Spark does: abort after a commit that raised."""
    output = open_output(store)
    try:
        job = output.begin(job_id)
        files = stage_some(output, job)
    except CommitError:
        return None
    try:
        return output.commit(job, files)
    except CommitError:
        return output.abort(job, files)


def recover(store: ObjectStore) -> None:
    open_output(store).recover(older_than=0)


def every_death(
    run: Callable[[ObjectStore], object],
) -> Iterator[tuple[Once, Callable[[MemoryStore], None]]]:
    """Yield each crash of `run`: the hook, and a function that runs it over a store until it dies."""
    for at in itertools.count(1):
        for what in ("before", "after", "late"):
            hook = Once(at, what)

            def die(store: MemoryStore, hook: Once = hook) -> None:
                with pytest.raises(Death):
                    run(HookedStore(store, hook))

            probe = Once(at, "before")
            try:
                run(HookedStore(new_store(), probe))
            except Death:
                yield hook, die
            else:
                return


def test_a_crash_of_a_driver_leaves_a_whole_job_or_none() -> None:
    """After a crash at any request and a recovery the job is whole or absent, and can be rerun."""
    outcomes = set()
    for hook, die in every_death(drive):
        store = new_store()
        die(store)
        check_invariants(store)
        recover(store)
        hook.deliver()
        check_invariants(store)
        recover(store)
        jobs = [record.job_id for record in audit(store)]
        outcomes.add(tuple(jobs))
        if "daily" in jobs:
            with pytest.raises(JobAlreadyCommitted):
                drive(store)
        else:
            drive(store)
        assert [record.job_id for record in audit(store)] == ["before", "daily"]
    assert outcomes == {("before",), ("before", "daily")}


def read(store: ObjectStore) -> None:
    """Read as a log-aware reader, and check that a listing shows all files of the snapshot."""
    snapshot = open_output(store).snapshot()
    for file in snapshot.files:
        assert store.head(f"out/{file.path}").nonce == file.nonce


def test_a_reader_completes_the_job_of_a_dead_driver() -> None:
    """After a crash of a driver at any request, the next snapshot names only files that exist."""
    for hook, die in every_death(drive):
        store = new_store()
        die(store)
        read(store)
        hook.deliver()
        read(store)
        check_invariants(store)
        recover(store)
        audit(store)


@pytest.mark.all
def test_the_next_recovery_completes_one_that_died() -> None:
    """This holds for any request of the recovery, after a crash of the driver at any request."""
    for driver, _ in every_death(drive):
        for at in itertools.count(1):
            deaths = 0
            for what in ("before", "after", "late"):
                store = new_store()
                hook = Once(driver.at, driver.what)
                with pytest.raises(Death):
                    drive(HookedStore(store, hook))
                recovery = Once(at, what)
                with contextlib.suppress(Death):
                    recover(HookedStore(store, recovery))
                deaths += recovery.dead
                check_invariants(store)
                recover(store)
                hook.deliver()
                recovery.deliver()
                check_invariants(store)
                recover(store)
                audit(store)
            if not deaths:
                break


def abort_all(store: ObjectStore) -> None:
    """Abort each attempt that has uploads, as another process that has only the pickled job."""
    for attempt in {attempt_of(upload.path) for upload in store.list_staged("out/")}:
        assert attempt is not None
        open_output(store).abort(Job(job_id="daily", attempt=attempt, base=1))


def drive_the_same(store: ObjectStore) -> None:
    """Run the same job as another driver, which may find that it is committed."""
    with contextlib.suppress(JobAlreadyCommitted):
        drive(store)


#: Processes that may run while a driver is stalled.
RIVALS: dict[str, Callable[[ObjectStore], object]] = {
    "recovery": recover,
    "reader": read,
    "abort": abort_all,
    "another job": lambda store: drive(store, "hourly"),
    "the same job": drive_the_same,
}


def stalled(
    store: ObjectStore, rival: Callable[[ObjectStore], object], *, first: bool, lost: bool
) -> Callable[[Callable[[], object]], object]:
    """Return the action of a stalled request: `rival` runs before it or after it."""

    def stall(mutation: Callable[[], object]) -> object:
        if first:
            rival(store)
        result = mutation()
        if not first:
            rival(store)
        if lost:
            raise OutcomeUnknown("the answer was lost")
        return result

    return stall


@pytest.mark.parametrize("rival", RIVALS)
@pytest.mark.parametrize("run", [drive, drive_and_abort])
def test_a_stalled_driver_and_a_rival_agree(
    run: Callable[[ObjectStore], CommitRecord | None], rival: str
) -> None:
    """A driver that stalls at any request while another process acts gets the true outcome."""
    reported = set()
    for at in itertools.count(1):
        hook = None
        for first, lost in itertools.product((True, False), repeat=2):
            store = new_store()
            hook = Once(at, stalled(store, RIVALS[rival], first=first, lost=lost))
            record = failure = None
            try:
                record = run(HookedStore(store, hook))
            except CommitError as error:
                failure = error
            check_invariants(store)
            committed = {record.job_id: record.attempt for record in open_output(store).log()}
            reported.add(type(failure) if record is None else "committed")
            if record is not None:
                assert committed["daily"] == record.attempt
            elif isinstance(failure, PublishIncomplete):
                assert "daily" in committed
            recover(store)
            audit(store)
            drive_the_same(store)
            audit(store)
        assert hook is not None
        if not hook.happened:
            break
    assert "committed" in reported


def test_one_lost_answer_in_a_commit_never_makes_it_fail() -> None:
    """If any answer from `commit` on is lost, the commit succeeds, and its caller knows it."""
    for at in itertools.count(1):
        store = new_store()
        hook = Once(at, stalled(store, check_invariants, first=True, lost=True))
        output = open_output(store)
        job = output.begin("daily")
        files = stage_some(output, job)
        driver = open_output(HookedStore(store, hook))
        assert driver.commit(job, files).job_id == "daily"
        recover(store)
        assert len(audit(store)) == 2
        if not hook.happened:
            break
    assert at > 5
