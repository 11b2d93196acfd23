"""``dry_run`` of recover and gc: it returns the report of the real run, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from commitlog.outputs import Mode, Output
from commitlog.stores.memory import MemoryStore
from commitlog.testing import ManualClock
from support.outputs import Death, HookedStore, Once, open_output, stage_some


def add(output: Output, job_id: str, mode: Mode = "append") -> None:
    """Commit a job with one file, in an output that only its log shows."""
    job = output.begin(job_id, mode=mode, visibility="logged")
    output.commit(job, [output.stage(job, job.file_name(0), job_id.encode())])


def everything(store: MemoryStore) -> tuple[object, ...]:
    """Return all objects with their versions, and all uploads."""
    objects = [(info.path, info.etag, info.version, info.last_modified) for info in store.list()]
    return objects, sorted((upload.path, upload.upload_id) for upload in store.list_staged())


def nothing_left(store: MemoryStore, clock: ManualClock) -> None:
    """Make an output without anything to recover or to remove."""
    add(open_output(store, clock), "a")


def replaced(store: MemoryStore, clock: ManualClock) -> None:
    """Make versions that were replaced long ago and just now."""
    output = open_output(store, clock)
    add(output, "a")
    add(output, "b", mode="overwrite")
    clock.advance(100)
    add(output, "c", mode="overwrite")


def dead_and_alive(store: MemoryStore, clock: ManualClock) -> None:
    """Make jobs that are not committed, with files under hidden names: dead jobs and a live one."""
    output = open_output(store, clock)
    for name in ("dead", "deader"):
        stage_some(output, output.begin(name, visibility="logged"))
    slow = output.begin("slow", visibility="logged")
    stage_some(output, slow)
    clock.advance(100)
    output.heartbeat(slow.attempt)


def with_uploads(store: MemoryStore, clock: ManualClock) -> None:
    """Make jobs that are not committed, with uploads: a dead job and a live one."""
    output = open_output(store, clock)
    stage_some(output, output.begin("dead"))
    clock.advance(100)
    stage_some(output, output.begin("alive"))


def unpublished(store: MemoryStore, clock: ManualClock) -> None:
    """Make a committed job whose driver died before it published anything."""
    output = open_output(store, clock)
    job = output.begin("daily")
    files = stage_some(output, job)
    with suppress(Death):  # after the pending entry and the record
        open_output(HookedStore(store, Once(3, "before")), clock).commit(job, files)
    clock.advance(100)


@pytest.mark.parametrize("make", [nothing_left, replaced, dead_and_alive, with_uploads, unpublished])
@pytest.mark.parametrize("run", [Output.recover, Output.gc])
def test_a_dry_run_has_the_report_of_the_real_run(
    make: Callable[[MemoryStore, ManualClock], None], run: Callable[..., object]
) -> None:
    """It changes nothing, however often it is run."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    make(store, clock)
    clock.advance(10)
    before = everything(store)
    output = open_output(store, clock)
    planned = [run(output, older_than=50, dry_run=True) for _ in range(2)]
    assert everything(store) == before
    done = run(output, older_than=50)
    assert planned == [done, done]
    idle = make is nothing_left or (make in (replaced, dead_and_alive) and run is Output.recover)
    assert (everything(store) == before) == idle


def test_a_dry_run_needs_no_permission_to_write() -> None:
    """A dry run sends no request that changes something."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    for make in (dead_and_alive, replaced):
        make(store, clock)
    reading = open_output(HookedStore(store, Once(1, "before")), clock)
    report = reading.gc(older_than=50, dry_run=True)
    assert report.removed and report.expired
    with pytest.raises(Death):
        reading.gc(older_than=50)
