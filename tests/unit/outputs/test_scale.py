"""Jobs of many files, and logs of many jobs: the cost of reads and writes stays in proportion."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Any

import pytest
from attrs import evolve

from commitlog._util.request_stats import RequestRecorder
from commitlog._util.retry import Backoff
from commitlog.commit.conditional import ConditionalStore
from commitlog.errors import ConfigurationError, CorruptRecord, FormatTooNew, JobAlreadyCommitted
from commitlog.namespace import RequestStats
from commitlog.outputs import Job, Output, StagedFile
from commitlog.outputs.checkpoints import INTERVAL, LANDMARK
from commitlog.outputs.manifest import MANIFEST_FILES
from commitlog.outputs.pending import INLINE_FILES, PendingJob
from commitlog.stores.api import ObjectData, PutResult, Staged
from commitlog.stores.counting_store import CountingStore
from commitlog.stores.memory import MemoryStore
from commitlog.testing import ManualClock
from sim.nodes import LongestPause
from support.outputs import HookedStore, open_output, stage_some, visible

CHECKPOINTS = "out/_commitlog/checkpoints/"
MANIFESTS = "out/_commitlog/manifests/"
RECORDS = "out/_commitlog/" + 19 * "0"


def logged_files(job: Job, count: int) -> Iterator[StagedFile]:
    """Yield the staged files of tasks whose files only the log shows, without storing any."""
    for n in range(count):
        path = f"out/_commitlog/data/{job.file_name(n)}"
        staged = Staged(path=path, upload_id=f"u{n}", size=n, nonce=f"n{n}")
        yield StagedFile(staged=staged, rows=1, stats={"a": (n, n + 1, 0)})


def commit_empty(output: Output, count: int) -> None:
    for n in range(count):
        output.commit(output.begin(f"job-{n}"), ())


# -- many files --------------------------------------------------------------------------------------


def test_a_job_of_many_files_has_a_small_record() -> None:
    """The list of files is in compressed manifests; record, log and snapshot have the same contents."""
    store = MemoryStore()
    output = open_output(store)
    job = output.begin("big", visibility="logged")
    count = 2 * MANIFEST_FILES + 1
    record = output.commit(job, logged_files(job, count))
    assert (record.file_count, record.rows, record.files) == (count, count, ())
    assert [manifest.files for manifest in record.manifests] == [MANIFEST_FILES, MANIFEST_FILES, 1]
    assert record.bytes == sum(range(count))
    assert store.head("out/_commitlog/00000000000000000001.json").size < 2_000
    assert max(info.size for info in store.list(MANIFESTS)) < 1_000_000
    assert [file.size for file in output.files(record)] == list(range(count))
    snapshot = output.snapshot()
    assert len(snapshot.files) == count
    assert snapshot.files[7].stats == {"a": (7, 8, 0)}


def test_recovery_publishes_the_files_of_manifests() -> None:
    """A driver with many files died after the commit point; its job is completed from its manifests."""
    store = MemoryStore()
    output = open_output(store)
    job = output.begin("big")
    files = stage_some(output, job, count=INLINE_FILES + 1)
    pending = output._pending
    record = output._log.commit(job, _prepared(output, job, files), after=0)
    assert visible(store) == {}
    assert len(list(pending.list())) == 1
    assert open_output(store).recover(older_than=1e9).completed == (record.version,)
    assert len(visible(store)) == INLINE_FILES + 1
    assert output.commit(job, files) == record


def _prepared(output: Output, job: Job, files: list[StagedFile]) -> PendingJob:
    pending = PendingJob.of(job, output._checked(job, files), output._log.manifests)
    output._prepare(pending)
    return pending


def test_another_list_for_the_same_attempt_is_refused() -> None:
    """The manifests of an attempt are written once."""
    output = open_output(MemoryStore())
    job = output.begin("big", visibility="logged")
    output.commit(job, logged_files(job, INLINE_FILES + 1))
    with pytest.raises(ConfigurationError, match="other files"):
        output.commit(job, logged_files(job, INLINE_FILES + 2))
    with pytest.raises(ConfigurationError, match="other files"):
        output.commit(job, logged_files(job, 1))


@pytest.mark.parametrize(
    ("damage", "error"),
    [
        (lambda data: data[:-1], CorruptRecord),
        (lambda data: b"", CorruptRecord),
        (lambda data: gzip.compress(b'{"format": 99}\n'), CorruptRecord),
    ],
)
def test_a_damaged_manifest_is_never_taken_for_a_shorter_list(
    damage: Callable[[bytes], bytes], error: type[Exception]
) -> None:
    """A manifest that differs from its record's checksum is corrupt."""
    store = MemoryStore()
    output = open_output(store)
    job = output.begin("big", visibility="logged")
    record = output.commit(job, logged_files(job, INLINE_FILES + 1))
    (manifest,) = list(store.list(MANIFESTS))
    store.put(manifest.path, damage(store.get(manifest.path).data))
    with pytest.raises(error):
        list(output.files(record))
    with pytest.raises(error):
        open_output(store).snapshot()


def test_a_missing_manifest_is_damage() -> None:
    """Not an object that does not exist: a record names it. Restored, it counts again."""
    store = MemoryStore()
    output = open_output(store)
    job = output.begin("big", visibility="logged")
    record = output.commit(job, logged_files(job, INLINE_FILES + 1))
    (manifest,) = list(store.list(MANIFESTS))
    data = store.get(manifest.path).data
    store.delete(manifest.path)
    for read in (lambda: list(output.files(record)), open_output(store).snapshot):
        with pytest.raises(CorruptRecord, match=f"{job.attempt}.* is missing.* list of 1001 files"):
            read()
    assert any("is missing" in message for message in open_output(store).inspect(expire_after=0).damage)
    store.put(manifest.path, data)
    assert len(open_output(store).snapshot().files) == INLINE_FILES + 1


def test_recovery_removes_the_manifests_of_an_aborted_job() -> None:
    """The job had prepared its commit, and then died."""
    store = MemoryStore()
    output = open_output(store)
    job = output.begin("big")
    _prepared(output, job, stage_some(output, job, count=INLINE_FILES + 1))
    assert list(store.list(MANIFESTS)) != []
    assert list(output.recover(older_than=0).aborted) == [job.attempt]
    assert list(store.list(MANIFESTS)) == []
    assert list(store.list_staged()) == []


# -- many jobs ---------------------------------------------------------------------------------------


def test_the_number_of_requests_does_not_grow_with_the_log() -> None:
    """With checkpoints, neither beginning nor reading reads the log from its start."""
    costs = []
    for jobs in (3 * INTERVAL + 5, 30 * INTERVAL + 5):
        recorder = RequestRecorder()
        output = open_output(CountingStore(MemoryStore(), recorder))
        commit_empty(output, jobs)
        before = RequestStats.of("", recorder.counts()).total
        output.begin("next")
        output.snapshot()
        output.recover(older_than=0)
        costs.append(RequestStats.of("", recorder.counts()).total - before)
    assert costs[0] == costs[1]
    assert costs[0].store_gets < 4 * INTERVAL


def test_a_job_is_recognised_at_any_age() -> None:
    """Checkpoints have all jobs that have ids of the caller."""
    output = open_output(MemoryStore())
    commit_empty(output, 5 * INTERVAL)
    with pytest.raises(JobAlreadyCommitted) as error:
        output.begin("job-0")
    assert error.value.version == 1


@pytest.mark.parametrize(("landmark", "kept"), [(LANDMARK, [5, 6]), (2 * INTERVAL, [2, 4, 5, 6])])
def test_old_checkpoints_except_landmarks_are_removed(
    monkeypatch: pytest.MonkeyPatch, landmark: int, kept: list[int]
) -> None:
    """The last two stay, and those at round numbers, for readers of past versions."""
    monkeypatch.setattr("commitlog.outputs.checkpoints.LANDMARK", landmark)
    store = MemoryStore()
    output = open_output(store)
    commit_empty(output, 6 * INTERVAL)
    names = [info.path.removeprefix(CHECKPOINTS) for info in store.list(CHECKPOINTS)]
    versions = [int(name[:20]) for name in names if not name.startswith("index-")]
    assert versions == [number * INTERVAL for number in kept]
    store.put(f"{CHECKPOINTS}{LANDMARK:020d}.jsonl.gz", b"")
    assert output.snapshot(3).version == 3


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", gzip.compress(b"[]"), gzip.compress(b'{"format": 9}')],
    ids=["empty", "not compressed", "no header", "newer"],
)
def test_an_unreadable_checkpoint_is_skipped(data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """The state is read from the log instead, with a warning."""
    store = MemoryStore()
    output = open_output(store)
    commit_empty(output, 2 * INTERVAL)
    for info in list(store.list(CHECKPOINTS)):
        store.put(info.path, data)
    assert output.snapshot().jobs == tuple(f"job-{n}" for n in range(2 * INTERVAL))
    assert "skipped" in caplog.text


def test_a_checkpoint_has_the_state_of_the_log() -> None:
    """The state at a checkpoint is that of its records, including replaced files and batches."""
    store = MemoryStore()
    output = open_output(store)
    for n in range(INTERVAL):
        mode = "overwrite-partitions" if n % 3 == 2 else "append"
        job = output.begin(f"job-{n}", visibility="logged", mode=mode, schema=json.dumps(n))
        output.commit(job, stage_some(output, job, count=1 + n % 2))
    from_checkpoint = output._log.checkpoints.load()
    assert from_checkpoint.version == INTERVAL
    for info in list(store.list(CHECKPOINTS)):
        store.delete(info.path)
    found = output._log.state()
    assert found.keys.keys() >= {f"j:job-{n}" for n in range(INTERVAL)}
    assert evolve(found, keys={}, segments=from_checkpoint.segments, indexed=INTERVAL) == from_checkpoint
    assert from_checkpoint.replaced


def test_a_newer_manifest_is_refused_as_newer() -> None:
    """A list of a newer format with the right checksum needs a newer library."""
    store = MemoryStore()
    output = open_output(store)
    job = output.begin("big", visibility="logged")
    record = output.commit(job, logged_files(job, INLINE_FILES + 1))
    (manifest,) = record.manifests
    data = gzip.compress(b'{"format": 99, "kind": "manifest"}')
    store.put(MANIFESTS + manifest.name, data)
    newer = evolve(manifest, sha256=hashlib.sha256(data).hexdigest())
    with pytest.raises(FormatTooNew):
        list(output._log.manifests.read(newer))


# -- concurrent jobs ---------------------------------------------------------------------------------


def test_a_driver_that_loses_numbers_of_the_log_backs_off() -> None:
    """Three others take a number just before it; it reads their records, and no record twice."""
    store = MemoryStore()
    quick = open_output(store)
    others = iter(range(3))
    requests: list[str] = []

    class Overtaken(HookedStore):
        def put(self, path: str, body: Any, **options: Any) -> PutResult:
            if path.startswith(RECORDS):
                requests.append(f"put {path.removeprefix(RECORDS)}")
                for number in islice(others, 1):
                    quick.commit(quick.begin(f"quick-{number}"), ())
            return super().put(path, body, **options)

        def get(self, path: str, *, start: int = 0, end: int | None = None) -> ObjectData:
            if path.startswith(RECORDS):
                requests.append(f"get {path.removeprefix(RECORDS)}")
            return super().get(path, start=start, end=end)

    class Resting(ManualClock):
        def sleep(self, seconds: float) -> None:
            requests.append(f"sleep {seconds:g}")

    overtaken, clock = ConditionalStore(Overtaken(store)), Resting()
    slow = Output(overtaken, "out", clock=clock, backoff=Backoff(base=1, random=LongestPause()))
    job = slow.begin("slow")
    requests.clear()
    assert slow.commit(job, ()).version == 4
    until = requests.index("put 4.json") + 1
    lost = [[f"put {n}.json", f"sleep {2 ** (n - 1)}", f"get {n}.json"] for n in (1, 2, 3)]
    # A client that has lost twice reads on to the end of the log.
    further = [[], ["get 3.json"], ["get 4.json"]]
    expected = [step for steps in zip(lost, further, strict=True) for step in chain(*steps)]
    assert requests[:until] == [*expected, "put 4.json"]
