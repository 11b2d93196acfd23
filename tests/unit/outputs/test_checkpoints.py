"""Checkpoints: the beginning of a job reads a small part, and finds every job that was committed."""

from __future__ import annotations

import gzip
import json
import random
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from commitlog.commit.conditional import ConditionalStore
from commitlog.errors import ConfigurationError, JobAlreadyCommitted
from commitlog.oplog.codec import encode
from commitlog.outputs import Output
from commitlog.outputs.checkpoints import INTERVAL, Checkpoints
from commitlog.outputs.records import CommitRecord, DataFile
from commitlog.outputs.state import State
from commitlog.stores.api import ObjectData
from commitlog.stores.memory import MemoryStore
from support.outputs import HookedStore, open_output, stage_some

DIRECTORY = "out/_commitlog/checkpoints"


class ReadingStore(HookedStore):
    """A store that counts what it sends, and calls a function before it reads a range.

    Attributes:
        gets: number of GETs, those of missing objects included.
        bytes: number of bytes that they returned.
        parts: sizes of the parts of checkpoints that were read.
        before: called with the path and the first byte of each GET.
    """

    def __init__(self, inner: MemoryStore) -> None:
        super().__init__(inner)
        self.before: Callable[[str, int], None] = lambda _path, _start: None
        self.clear()

    def clear(self) -> None:
        """Count from 0."""
        self.gets = self.bytes = 0
        self.parts: list[int] = []

    def get(self, path: str, *, start: int = 0, end: int | None = None) -> ObjectData:
        self.before(path, start)
        self.gets += 1
        found = super().get(path, start=start, end=end)
        self.bytes += len(found.data)
        if path.startswith(DIRECTORY):
            self.parts.append(len(found.data))
        return found


def path_of(version: int) -> str:
    return f"{DIRECTORY}/{version:020d}.jsonl.gz"


def attempt_of(number: int) -> str:
    return random.Random(number).randbytes(16).hex()


def long_log(jobs: int, *, schema: str | None = None) -> tuple[MemoryStore, State]:
    """Return a store with the last record and the checkpoint of a log of that many jobs of one file."""
    state = State(version=jobs, commit=jobs, schema=schema, visibility="logged")
    for number in range(1, jobs + 1):
        path = f"_commitlog/data/part-00000-{attempt_of(number)}-c000.csv"
        state.files[path] = DataFile(path=path, size=8, nonce=attempt_of(-number), rows=1)
        state.jobs[f"daily-{number}"] = number
    state.decided = {attempt_of(number): True for number in range(max(jobs - 1_000, 0) + 1, jobs + 1)}
    store = MemoryStore()
    last = CommitRecord(
        version=jobs,
        job_id=f"daily-{jobs}",
        attempt=attempt_of(jobs),
        mode="append",
        time=1.0,
        visibility="logged",
    )
    store.put(f"out/_commitlog/{jobs:020d}.json", encode(last.to_document()))
    Checkpoints(ConditionalStore(store), DIRECTORY).save(state)
    return store, state


def refused(output: Output, job_id: str) -> int:
    """Return the version of which `begin` tells that it committed the job."""
    with pytest.raises(JobAlreadyCommitted) as error:
        output.begin(job_id)
    assert error.value.version is not None
    return error.value.version


# -- requests and bytes --------------------------------------------------------------------------------


def test_the_bytes_that_begin_reads_hardly_grow_with_the_log() -> None:
    """With 10,000 jobs it is one more request than with 100, and less than twice the bytes."""
    read = {}
    for jobs in (100, 2_000, 10_000):
        store = ReadingStore(long_log(jobs)[0])
        assert open_output(store).begin("next").base == jobs
        read[jobs] = store
    assert [read[jobs].gets for jobs in (100, 10_000)] == [3, 4]
    assert read[2_000].bytes < 2 * read[100].bytes
    assert read[10_000].bytes < 2 * read[100].bytes
    assert read[10_000].bytes < 12_000


def test_the_second_job_of_an_open_output_reads_all_job_ids_at_once() -> None:
    """It sends a request for them, and the jobs after it send none."""
    inner, _ = long_log(10_000)
    store = ReadingStore(inner)
    output = open_output(store)
    output.begin("first")
    store.clear()
    output.begin("first")
    assert not store.parts
    output.begin("second")
    [size] = store.parts
    assert 50_000 < size < 200_000
    store.clear()
    output.begin("third")
    assert store.gets == 1
    for number in range(1, 10_000, 500):
        assert refused(output, f"daily-{number}") == number
    assert not store.parts


def test_a_long_first_line_is_read_in_several_requests() -> None:
    """A schema that does not fit into the first request."""
    schema = json.dumps(random.Random(1).randbytes(100_000).hex())
    inner, _ = long_log(100, schema=schema)
    store = ReadingStore(inner)
    assert refused(open_output(store), "daily-7") == 7
    first, second, rest = store.parts
    assert (first, second) == (8 * 1024, 64 * 1024) < (rest, rest)


# -- lookups -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("jobs", [1, 2, 3, 4, 99, 1_000])
def test_every_committed_job_is_found(jobs: int) -> None:
    """In a new process and in an open output; other ids are not found."""
    store, _ = long_log(jobs)
    checkpoints = Checkpoints(ConditionalStore(store), DIRECTORY)
    kept = open_output(store)
    for number in range(1, jobs + 1):
        found = checkpoints.load_head([f"daily-{number}"]).jobs.find([f"daily-{number}"])
        assert found == {f"daily-{number}": number}
        assert refused(kept, f"daily-{number}") == number
    assert kept.begin("daily-0").base == open_output(store).begin(f"daily-{jobs + 1}").base == jobs
    together = [f"daily-{number}" for number in range(jobs + 2)]
    found = checkpoints.load_head(together).jobs.find(together)
    assert found == {f"daily-{number}": number for number in range(1, jobs + 1)}


def test_an_invalid_job_id_is_refused_before_a_request_is_sent() -> None:
    """Without it, the jobs that other threads begin at the same time would fail, too."""
    store = ReadingStore(long_log(100)[0])
    with pytest.raises(ConfigurationError):
        open_output(store).begin("\ud800")
    assert not store.gets


def test_jobs_before_and_after_the_checkpoint_are_found() -> None:
    """And batches of streams, by their numbers and by their ids."""
    store = MemoryStore()
    output = open_output(store)
    for number in range(INTERVAL + 3):
        output.commit(output.begin(f"job-{number}"), ())
    for number in range(INTERVAL + 3):
        assert refused(open_output(store), f"job-{number}") == number + 1
        assert refused(output, f"job-{number}") == number + 1


def test_a_checkpoint_keeps_the_order_of_the_jobs() -> None:
    """Jobs that share a record, too."""
    state = State(version=20, jobs={f"{n % 7}-{n}": 1 + n // 3 for n in range(50)})
    store = ConditionalStore(MemoryStore())
    Checkpoints(store, DIRECTORY).save(state)
    found = Checkpoints(store, DIRECTORY).load()
    assert found == state
    assert list(found.jobs) == list(state.jobs)


# -- changes and damage --------------------------------------------------------------------------------


def members(store: MemoryStore, version: int) -> list[bytes]:
    """Return the gzip members of a checkpoint."""
    data, found = store.get(path_of(version)).data, []
    while data:
        reader = zlib.decompressobj(wbits=31)
        reader.decompress(data)
        found.append(data[: len(data) - len(reader.unused_data)])
        data = reader.unused_data
    return found


def long_output(jobs: int = 3 * INTERVAL) -> MemoryStore:
    """Return the store of an output whose log can be read without its checkpoints."""
    store = MemoryStore()
    output = open_output(store)
    for number in range(jobs):
        output.commit(output.begin(f"job-{number}"), ())
    return store


@pytest.mark.parametrize(
    "change",
    [
        lambda first, second: (second, first),
        lambda first, second: (first, first),
        lambda first, second: (second, second),
        lambda first, second: (b"", second),
        lambda first, second: (first[:-1], second),
        lambda first, second: (first + second, b""),
        lambda first, second: (gzip.compress(b'{"shard": 0, "jobs": {}}'), second),
        lambda first, second: (gzip.compress(b'{"shard": 1, "jobs": {}}\n'), second),
    ],
    ids=["swapped", "first twice", "second twice", "lost", "cut", "joined", "replaced", "other number"],
)
def test_a_job_in_a_damaged_shard_is_found(
    change: Callable[[bytes, bytes], tuple[bytes, bytes]],
) -> None:
    """Shards of other jobs, or of other sizes than the first line tells, are not used."""
    store = long_output()
    for version in (2 * INTERVAL, 3 * INTERVAL):
        head, first, second, *others = members(store, version)
        changed = change(first, second)
        assert changed != (first, second)
        store.put(path_of(version), b"".join((head, *changed, *others)))
    for number in range(3 * INTERVAL):
        assert refused(open_output(store), f"job-{number}") == number + 1
    assert open_output(store).begin("next").base == 3 * INTERVAL


@pytest.mark.parametrize("then", ["removed", "replaced"])
def test_a_checkpoint_may_go_while_it_is_read(then: str, caplog: pytest.LogCaptureFixture) -> None:
    """Between the head and the shard; then an earlier checkpoint or the log has the jobs."""
    inner, state = long_log(10_000)
    store = ReadingStore(inner)
    checkpoints = Checkpoints(ConditionalStore(store), DIRECTORY)
    # A job id of the last of a hundred shards.
    [job_id, *_] = [job_id for job_id in state.jobs if zlib.crc32(job_id.encode()) % 100 == 99]
    found = {job_id: state.jobs[job_id]}
    state.version -= 10

    def change(path: str, start: int) -> None:
        if start:
            store.before = lambda _path, _start: None
            data = inner.get(path).data
            inner.delete(path)
            if then == "replaced":
                inner.put(path, data)
            Checkpoints(ConditionalStore(inner), DIRECTORY).save(state)

    store.before = change
    assert checkpoints.load_head([job_id]).state.version == 0
    assert ("was replaced" in caplog.text) == (then == "replaced")
    head = checkpoints.load_head([job_id])
    assert head.state.version == (10_000 if then == "replaced" else 9_990)
    assert head.jobs.find([job_id]) == found


def test_an_open_output_goes_on_when_its_checkpoint_was_removed() -> None:
    """Its second job reads the last checkpoint, since others have removed the one that it knew."""
    inner, state = long_log(2_000)
    store = ReadingStore(inner)
    output = open_output(store)
    assert refused(output, "daily-7") == 7
    state.jobs["later"] = state.version = state.commit = 2_010
    Checkpoints(ConditionalStore(inner), DIRECTORY).save(state)
    record = inner.get(f"out/_commitlog/{2_000:020d}.json").data
    inner.put(f"out/_commitlog/{2_010:020d}.json", record)
    inner.delete(path_of(2_000))
    assert refused(output, "later") == 2_010
    assert refused(output, "daily-8") == 8
    assert output.begin("next").base == 2_010


# -- formats -------------------------------------------------------------------------------------------


def format_1(state: State, *, one_member: bool) -> bytes:
    """Return a checkpoint as earlier programs wrote it."""
    head: dict[str, Any] = {
        "format": 1,
        "kind": "checkpoint",
        "version": state.version,
        "commit": state.commit,
        "files": len(state.files),
        "replaced": state.replaced,
        "jobs": state.jobs,
        "batches": state.batches,
        "schema": state.schema,
        "visibility": state.visibility,
        "expired": state.expired,
        "decided": state.decided,
    }
    first = json.dumps(head).encode()
    files = "".join(f"\n{json.dumps(file.to_json())}" for file in state.files.values()).encode()
    if one_member:
        return gzip.compress(first + files)
    return gzip.compress(first) + gzip.compress(files)


@pytest.mark.parametrize("one_member", [True, False])
@pytest.mark.parametrize("jobs", [30, 3_000])
def test_a_checkpoint_of_format_1_is_read(one_member: bool, jobs: int) -> None:
    """Its first line has the job ids, of any size."""
    store, state = long_log(jobs)
    state.replaced = {"_commitlog/data/old": 3}
    store.put(path_of(jobs), format_1(state, one_member=one_member))
    found = Checkpoints(ConditionalStore(store), DIRECTORY).load()
    assert found == state
    assert list(found.jobs) == list(state.jobs)
    output = open_output(store)
    assert output.begin("next").base == jobs
    assert refused(output, "daily-7") == 7
    assert refused(open_output(store), f"daily-{jobs}") == jobs


def test_a_checkpoint_of_a_later_format_is_skipped(caplog: pytest.LogCaptureFixture) -> None:
    """The log has everything that it has."""
    store = long_output()
    for version in (2 * INTERVAL, 3 * INTERVAL):
        head, *others = members(store, version)
        later = {**json.loads(gzip.decompress(head)), "format": 3}
        store.put(path_of(version), b"".join((gzip.compress(json.dumps(later).encode()), *others)))
    assert refused(open_output(store), "job-7") == 8
    assert len(open_output(store).snapshot().jobs) == 3 * INTERVAL
    assert "another format" in caplog.text


def test_a_snapshot_needs_every_shard(caplog: pytest.LogCaptureFixture) -> None:
    """A checkpoint that lacks the job ids of one shard is skipped, though it has all files."""
    store = MemoryStore()
    output = open_output(store)
    for number in range(INTERVAL):
        job = output.begin(f"job-{number}")
        output.commit(job, stage_some(output, job, count=1))
    head, *others = members(store, INTERVAL)
    fields = json.loads(gzip.decompress(head))
    empty = gzip.compress(b'{"shard": 0, "jobs": {}}\n')
    fields["shards"][0] = len(empty)
    changed = (gzip.compress(json.dumps(fields).encode() + b"\n"), empty, *others[1:])
    store.put(path_of(INTERVAL), b"".join(changed))
    assert open_output(store).snapshot().jobs == tuple(f"job-{n}" for n in range(INTERVAL))
    assert "lacks jobs" in caplog.text
