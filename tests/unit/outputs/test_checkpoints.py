"""Checkpoints: the beginning of a job reads a small part, and finds every job that was committed."""

from __future__ import annotations

import contextlib
import gzip
import itertools
import json
import random
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from commitlog.commit.conditional import ConditionalStore
from commitlog.errors import ConfigurationError, JobAborted, JobAlreadyCommitted
from commitlog.oplog.codec import encode
from commitlog.outputs import Output
from commitlog.outputs.checkpoints import INTERVAL, OutputCheckpoints
from commitlog.outputs.job_index import attempt_key, job_key
from commitlog.outputs.records import CommitRecord, DataFile
from commitlog.outputs.state import State
from commitlog.stores.api import ObjectData, PutResult
from commitlog.stores.memory import MemoryStore
from commitlog.testing import ManualClock
from support.outputs import Death, HookedStore, Once, open_output, stage_some

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
    last = attempt_of(jobs)
    state = State(version=jobs, commit=jobs, schema=schema, visibility="logged", record_id=last)
    for number in range(1, jobs + 1):
        path = f"_commitlog/data/part-00000-{attempt_of(number)}-c000.csv"
        state.files[path] = DataFile(path=path, size=8, nonce=attempt_of(-number), rows=1)
        state.keys |= keys_of(number)
    store = MemoryStore()
    put_record(store, jobs)
    OutputCheckpoints(ConditionalStore(store), DIRECTORY).save(state)
    return store, state


def keys_of(number: int) -> dict[str, tuple[int, int]]:
    """Return the keys of a record with one job."""
    return {job_key(f"daily-{number}"): (number, 0), attempt_key(attempt_of(number)): (number, 1)}


def put_record(store: MemoryStore, number: int) -> None:
    record = CommitRecord(
        version=number,
        job_id=f"daily-{number}",
        attempt=attempt_of(number),
        mode="append",
        time=1.0,
        visibility="logged",
    )
    store.put(f"out/_commitlog/{number:020d}.json", encode(record.to_document()))


def segments_of(store: MemoryStore) -> list[str]:
    """Return the paths of the segments, in the order of their records."""
    return [info.path for info in store.list(f"{DIRECTORY}/index-")]


def refused(output: Output, job_id: str) -> int:
    """Return the version of which `begin` tells that it committed the job."""
    with pytest.raises(JobAlreadyCommitted) as error:
        output.begin(job_id)
    assert error.value.version is not None
    return error.value.version


# -- requests and bytes --------------------------------------------------------------------------------


def test_the_bytes_that_begin_reads_hardly_grow_with_the_log() -> None:
    """With 10,000 jobs it is two more requests than with 100, and few more bytes."""
    read = {}
    for jobs in (100, 2_000, 10_000):
        store = ReadingStore(long_log(jobs)[0])
        assert open_output(store).begin("next").base == jobs
        read[jobs] = store
    assert [read[jobs].gets for jobs in (100, 10_000)] == [4, 5]
    assert read[10_000].bytes < 24_000


@pytest.mark.parametrize("whole", [True, False])
def test_the_second_job_of_an_open_output_reads_a_small_segment_whole(
    whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the jobs after it send no request for it. Of a large one, each job reads its own shard."""
    if not whole:
        monkeypatch.setattr("commitlog.outputs.job_index.WHOLE", 100_000)
    inner, _ = long_log(10_000)
    store = ReadingStore(inner)
    output = open_output(store)
    output.begin("first")
    store.clear()
    output.begin("first")
    assert not store.parts
    output.begin("another")
    [size] = store.parts
    assert (size > 100_000) == whole
    store.clear()
    for number in range(1, 10_000, 500):
        assert refused(output, f"daily-{number}") == number
    assert bool(store.parts) != whole
    assert sum(store.parts) < 200_000


def test_the_bytes_that_a_commit_writes_hardly_grow_with_the_log() -> None:
    """A key is written again a number of times that grows with the logarithm of their number."""
    store, written = MemoryStore(), []

    class Measured(HookedStore):
        def put(self, path: str, body: Any, **options: Any) -> PutResult:
            written.append(len(body))
            return super().put(path, body, **options)

    checkpoints = OutputCheckpoints(ConditionalStore(Measured(store)), DIRECTORY)
    marks: list[int] = []
    state = State()
    for number in range(1, 6_001):
        state.version, state.record_id = number, attempt_of(number)
        state.keys |= keys_of(number)
        if number % INTERVAL == 0:
            checkpoints.save(state)
            state = checkpoints.load(indexed=True)
        if number % 1_500 == 0:
            marks.append(sum(written))
    _, second, _, last = (b - a for a, b in itertools.pairwise([0, *marks]))
    assert last < 1.5 * second
    assert last / 1_500 < 700
    assert len(segments_of(store)) < 12
    known = checkpoints.load_keys()[1]
    assert known == {key: value for n in range(1, 6_001) for key, value in keys_of(n).items()}


def test_a_long_first_line_is_read_in_several_requests() -> None:
    """A schema that does not fit into the first request."""
    schema = json.dumps(random.Random(1).randbytes(100_000).hex())
    inner, _ = long_log(100, schema=schema)
    store = ReadingStore(inner)
    assert refused(open_output(store), "daily-7") == 7
    first, second, rest, _ = store.parts
    assert (first, second) == (8 * 1024, 64 * 1024) < (rest, rest)


# -- lookups -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("jobs", [1, 2, 3, 4, 99, 1_000])
def test_every_committed_job_is_found(jobs: int) -> None:
    """In a new process and in an open output; other ids are not found."""
    store, _ = long_log(jobs)
    checkpoints = OutputCheckpoints(ConditionalStore(store), DIRECTORY)
    kept = open_output(store)
    for number in range(1, jobs + 1):
        keys = keys_of(number)
        assert checkpoints.load_head([*keys]).index.find([*keys]) == keys
        assert refused(kept, f"daily-{number}") == number
    assert kept.begin("daily-0").base == open_output(store).begin(f"daily-{jobs + 1}").base == jobs
    together = {key: value for number in range(1, jobs + 1) for key, value in keys_of(number).items()}
    wanted = [*together, job_key("daily-0")]
    assert checkpoints.load_head(wanted).index.find(wanted) == together


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


def test_the_jobs_of_a_snapshot_are_in_the_order_of_their_commits() -> None:
    """Those that share a record, too; of any version, whether its checkpoint has its index or not."""
    store = MemoryStore()
    output = Output(ConditionalStore(store), "out", share_records=True, clock=ManualClock())
    names = [f"{n % 7}-{n}" for n in range(9 * INTERVAL)]
    for first in range(0, len(names), 3):
        output.commit_many([(output.begin(name), []) for name in names[first : first + 3]])
    for version in (1, INTERVAL, INTERVAL + 1, 3 * INTERVAL):
        assert open_output(store).snapshot(version).jobs == tuple(names[: 3 * version])


def test_an_attempt_is_committed_once_however_long_ago() -> None:
    """It may be named by the caller. A job without an id is the same job, and another one is refused."""
    store = MemoryStore()
    output = open_output(store)
    name = output.new_attempt("daily")
    first = output.begin(attempt=name)
    [file] = files = stage_some(output, first, count=1)
    output.commit(first, files)
    dropped = output.begin("dropped", attempt=output.new_attempt("dropped"))
    late = output.begin("late", attempt=output.new_attempt("late"))
    output.abort(dropped)
    output.commit(output.begin("other", attempt=late.attempt), ())
    with pytest.raises(ConfigurationError, match="for another job"):
        output.commit(late, ())
    for number in range(3 * INTERVAL):
        output.commit(output.begin(f"more-{number}"), ())
    for again in (output, open_output(store)):
        for schema in (None, lambda _state: ""):
            with pytest.raises(JobAlreadyCommitted) as error:
                again.begin(attempt=name, schema=schema)
            assert error.value.version == 1
            with pytest.raises(ConfigurationError, match="for another job, as version 1"):
                again.begin("another", attempt=name, schema=schema)
            with pytest.raises(JobAborted):
                again.begin("dropped", attempt=dropped.attempt, schema=schema)
    assert output.state().committed(name) and output.state().committed(dropped.attempt) is False
    assert output.snapshot().rows == 1
    assert store.head(file.staged.path).nonce == file.staged.nonce


# -- changes and damage --------------------------------------------------------------------------------


def members(data: bytes) -> list[bytes]:
    """Return the gzip members of an object."""
    found = []
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
        lambda first, second: (gzip.compress(b'{"shard": 0, "keys": {}}'), second),
        lambda first, second: (gzip.compress(b'{"shard": 1, "keys": {}}\n'), second),
    ],
    ids=["swapped", "first twice", "second twice", "lost", "cut", "joined", "replaced", "other number"],
)
def test_a_job_in_a_damaged_shard_is_found(
    change: Callable[[bytes, bytes], tuple[bytes, bytes]],
) -> None:
    """Shards of other jobs, or of other sizes than the first line tells, are not used."""
    store = long_output()
    damaged = 0
    for path in segments_of(store):
        head, first, second, *others = [*members(store.get(path).data), b"", b""]
        if second:
            changed = change(first, second)
            assert changed != (first, second)
            store.put(path, b"".join((head, *changed, *others)))
            damaged += 1
    assert damaged
    for number in range(3 * INTERVAL):
        assert refused(open_output(store), f"job-{number}") == number + 1
    assert open_output(store).begin("next").base == 3 * INTERVAL


@pytest.mark.parametrize("then", ["removed", "replaced"])
def test_a_segment_may_go_while_it_is_read(then: str, caplog: pytest.LogCaptureFixture) -> None:
    """Between its first line and the shard; then an earlier checkpoint or the log has the jobs."""
    inner, _ = long_log(10_000)
    store = ReadingStore(inner)
    checkpoints = OutputCheckpoints(ConditionalStore(store), DIRECTORY)
    [path] = segments_of(inner)

    def change(read: str, start: int) -> None:
        if start and read == path:
            store.before = lambda _path, _start: None
            data = inner.get(path).data
            inner.delete(path)
            if then == "replaced":
                inner.put(path, data)

    store.before = change
    assert checkpoints.load_head([job_key("daily-1")]).state.version == 0
    assert ("was replaced" in caplog.text) == (then == "replaced")
    head = checkpoints.load_head([job_key("daily-1")])
    assert head.state.version == (10_000 if then == "replaced" else 0)


def test_an_open_output_goes_on_when_its_checkpoint_was_removed() -> None:
    """Its second job reads the last checkpoint, since others have removed the segment that it knew."""
    inner, state = long_log(2_000)
    store = ReadingStore(inner)
    output = open_output(store)
    assert refused(output, "daily-7") == 7
    state.version = state.commit = 2_010
    state.record_id = attempt_of(2_010)
    state.keys |= keys_of(2_010)
    OutputCheckpoints(ConditionalStore(inner), DIRECTORY).save(state)
    put_record(inner, 2_010)
    inner.delete(path_of(2_000))
    inner.delete(segments_of(inner)[0])
    assert refused(output, "daily-2010") == 2_010
    assert refused(output, "daily-8") == 8
    assert output.begin("next").base == 2_010


@pytest.mark.parametrize("what", ["before", "after", "late"])
def test_a_crash_while_a_checkpoint_is_saved_loses_no_job(what: str) -> None:
    """At any request: of the segment, of the checkpoint, or of a removal. The next one tidies up."""
    for at in itertools.count(1):
        store = long_output(3 * INTERVAL - 1)
        once = Once(at, what)

        def hook(name: str, path: str, mutation: Callable[[], Any], once: Once = once) -> Any:
            return once(name, path, mutation) if path.startswith(DIRECTORY) else mutation()

        dying = open_output(HookedStore(store, hook))
        with contextlib.suppress(Death):
            dying.commit(dying.begin("last"), ())
        for number in (0, 5, 2 * INTERVAL):
            assert refused(open_output(store), f"job-{number}") == number + 1
        assert refused(open_output(store), "last") == 3 * INTERVAL
        once.deliver()
        output = open_output(store)
        for number in range(2 * INTERVAL):
            output.commit(output.begin(f"more-{number}"), ())
        assert len(open_output(store).snapshot().jobs) == 5 * INTERVAL
        assert len(segments_of(store)) <= 4
        for job_id in ("job-0", "job-15", "last", "more-1"):
            refused(open_output(store), job_id)
        if not once.happened:
            break
    assert at > 4


def test_a_lost_segment_is_made_again_from_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Until the next checkpoint, the log is read."""
    store = long_output()
    for path in segments_of(store):
        store.delete(path)
    assert refused(open_output(store), "job-7") == 8
    assert "its index is gone" in caplog.text
    output = open_output(store)
    for number in range(INTERVAL):
        output.commit(output.begin(f"more-{number}"), ())
    caplog.clear()
    reading = ReadingStore(store)
    assert refused(open_output(reading), "job-7") == 8
    assert not caplog.text and reading.gets < 10


def test_a_slow_client_does_not_remove_what_later_checkpoints_name() -> None:
    """It has read an earlier checkpoint, and ends after others have stored a later one."""
    store = long_output()
    output = open_output(store)
    slow = output._log.state(indexed=True)
    assert slow.indexed == 3 * INTERVAL
    slow.version = slow.indexed + INTERVAL // 2
    slow.keys |= keys_of(1)
    for number in range(INTERVAL):
        output.commit(output.begin(f"more-{number}"), ())
    OutputCheckpoints(ConditionalStore(store), DIRECTORY).save(slow)
    assert open_output(store)._log.state(indexed=True).indexed == 4 * INTERVAL
    for number in range(INTERVAL):
        assert refused(open_output(store), f"job-{number}") == number + 1
        assert refused(open_output(store), f"more-{number}") == number + 3 * INTERVAL + 1


def test_a_damaged_segment_is_made_again_when_it_is_to_be_merged() -> None:
    """The next checkpoint reads the whole log."""
    store = long_output()
    for path in segments_of(store):
        store.put(path, b"damaged")
    output = open_output(store)
    for number in range(INTERVAL):
        output.commit(output.begin(f"more-{number}"), ())
    reading = ReadingStore(store)
    assert refused(open_output(reading), "job-7") == 8
    assert reading.gets < 10


# -- formats -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [2, 4])
def test_a_checkpoint_of_another_format_is_skipped(
    number: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has everything that it has."""
    store = long_output()
    for version in (2 * INTERVAL, 3 * INTERVAL):
        head, *others = members(store.get(path_of(version)).data)
        other = {**json.loads(gzip.decompress(head)), "format": number}
        store.put(path_of(version), b"".join((gzip.compress(json.dumps(other).encode()), *others)))
    assert refused(open_output(store), "job-7") == 8
    assert len(open_output(store).snapshot().jobs) == 3 * INTERVAL
    assert "another format" in caplog.text
