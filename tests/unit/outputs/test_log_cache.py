"""What a process remembers of a log: it is compared with the store, and forgotten if it is another."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest

from commitlog.errors import CorruptRecord, JobAlreadyCommitted, StateMismatch
from commitlog.outputs import AbortRecord, Output
from commitlog.outputs.log_cache import CONFIRMED_FOR, REMEMBERED_FILES
from commitlog.stores.memory import MemoryStore
from commitlog.testing import ManualClock
from support.outputs import add_job, open_output, stage_some


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    return MemoryStore(clock=clock)


def remove(store: MemoryStore, prefix: str = "out/") -> None:
    for info in list(store.list(prefix)):
        store.delete(info.path)


@pytest.mark.parametrize("files", [1, REMEMBERED_FILES + 1])
def test_a_log_of_the_same_length_is_not_taken_for_the_remembered_one(
    store: MemoryStore, clock: ManualClock, files: int
) -> None:
    """The output was removed, and made again by as many jobs. Its jobs count, and no others."""
    output = open_output(store, clock)
    for job_id in ("a", "b"):
        add_job(output, job_id, *range(files))
    remove(store)
    again = open_output(store, clock)
    for job_id in ("c", "d"):
        add_job(again, job_id, *range(files))
    clock.advance(CONFIRMED_FOR)
    with pytest.raises(JobAlreadyCommitted):
        output.begin("d")
    assert add_job(output, "b", 0).version == 3
    assert open_output(store, clock).snapshot().jobs == ("c", "d", "b")


def removed(output: Output, clock: ManualClock) -> None:
    remove(output.store.object_store)  # type: ignore[arg-type]


def shorter(output: Output, clock: ManualClock) -> None:
    removed(output, clock)
    add_job(open_output(output.store.object_store, clock), "new", 0)


def as_long(output: Output, clock: ManualClock) -> None:
    shorter(output, clock)
    for number in range(3):
        add_job(open_output(output.store.object_store, clock), f"new-{number}", 0)


@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize("change", [removed, shorter, as_long])
def test_a_job_is_not_committed_to_another_log_than_it_began_in(
    store: MemoryStore,
    clock: ManualClock,
    change: Callable[[Output, ManualClock], None],
    elsewhere: bool,
    share: bool,
) -> None:
    """It would follow a gap, or the job may be committed there already. The abort leaves no gap."""
    output = Output(open_output(store, clock).store, "out", clock=clock, share_records=share)
    for number in range(3):
        add_job(output, f"old-{number}", 0)
    job = output.begin("long")
    files = stage_some(output, job, count=1)
    change(output, clock)
    clock.advance(CONFIRMED_FOR)
    before = list(open_output(store, clock).records())
    if elsewhere:
        job = pickle.loads(pickle.dumps(job))
        output = Output(open_output(store, clock).store, "out", clock=clock, share_records=share)
    with pytest.raises(StateMismatch, match="removed"):
        output.commit(job, files)
    assert list(open_output(store, clock).records()) == before
    assert output.abort(job, files) is None
    *others, last = open_output(store, clock).records()
    assert (others, isinstance(last, AbortRecord)) == (before, True)
    assert last.version == len(before) + 1
    assert not list(store.list_staged())
    assert add_job(output, "long", 0).version == last.version + 1


def test_a_job_is_not_committed_to_another_log_that_its_process_has_just_read(
    store: MemoryStore, clock: ManualClock
) -> None:
    """That log has as many records as the one in which the job began."""
    output = open_output(store, clock)
    add_job(output, "old", 0)
    job = output.begin("long")
    remove(store)
    again = open_output(store, clock)
    add_job(again, "new", 0)
    with pytest.raises(StateMismatch, match="removed"):
        again.commit(job, stage_some(again, job))
    assert again.snapshot().jobs == ("new",)


def test_a_job_that_began_in_an_empty_output_is_committed_after_the_new_log(
    store: MemoryStore, clock: ManualClock
) -> None:
    """What its process remembers is of the log before, and counts no more."""
    output = open_output(store, clock)
    job = output.begin("early")
    for number in range(3):
        add_job(output, f"old-{number}", 0)
    remove(store)
    add_job(open_output(store, clock), "new", 0)
    clock.advance(CONFIRMED_FOR)
    assert output.commit(job, ()).version == 2
    assert open_output(store, clock).snapshot().jobs == ("new", "early")


def test_a_checkpoint_of_another_log_is_reported(store: MemoryStore, clock: ManualClock) -> None:
    """It is of the same version as the last record, and has another record."""
    output = open_output(store, clock)
    for number in range(10):
        add_job(output, f"old-{number}", 0)
    kept = list(store.list("out/_commitlog/checkpoints/"))
    data = [(info.path, store.get(info.path).data) for info in kept]
    remove(store)
    again = open_output(store, clock)
    for number in range(10):
        add_job(again, f"new-{number}", 0)
    remove(store, "out/_commitlog/checkpoints/")
    for path, content in data:
        store.put(path, content)
    with pytest.raises(CorruptRecord, match="another one"):
        open_output(store, clock).begin("old-1")
    with pytest.raises(CorruptRecord, match="another one"):
        open_output(store, clock).snapshot()
