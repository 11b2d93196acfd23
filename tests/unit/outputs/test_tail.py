"""Following an output by its log: each file once, despite limits, restarts and other jobs."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from attrs import field, frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from commitlog.errors import (
    ConfigurationError,
    CorruptRecord,
    FormatTooNew,
    NotFound,
    PublishIncomplete,
    RowsReplaced,
    StateMismatch,
    Unavailable,
)
from commitlog.outputs import DataFile, Job, Output, Position, StagedFile, Tail
from commitlog.outputs.checkpoints import INTERVAL
from commitlog.outputs.manifest import MANIFEST_FILES
from commitlog.stores.api import ObjectData, Staged
from commitlog.stores.memory import MemoryStore
from commitlog.testing import ManualClock
from support.outputs import HookedStore, open_output, stage_some
from support.selection import examples

RECORD = "out/_commitlog/{:020d}.json"


class Reading(HookedStore):
    """A store that counts reads, listings and changes by kind of object."""

    def __init__(self, inner: MemoryStore) -> None:
        self.requests: Counter[str] = Counter()

        def hook(name: str, path: str, mutation: Callable[[], Any]) -> Any:
            self.requests[f"{name} {_kind(path)}"] += 1
            return mutation()

        super().__init__(inner, hook)

    def get(self, path: str, *, start: int = 0, end: int | None = None) -> ObjectData:
        self.requests[f"get {_kind(path)}"] += 1
        return super().get(path, start=start, end=end)

    def list_page(self, prefix: str = "", **options: Any) -> Any:
        self.requests["list"] += 1
        return super().list_page(prefix, **options)

    def take_requests(self) -> dict[str, int]:
        """Return the requests since the last call."""
        reported = dict(self.requests)
        self.requests.clear()
        return reported


def _kind(path: str) -> str:
    return "record" if path.startswith("out/_commitlog/0000") else path.split("/")[-2]


def append(output: Output, job_id: str, count: int = 1, **options: Any) -> list[str]:
    """Commit a job of `count` files; return their paths."""
    job = output.begin(job_id, **options)
    record = output.commit(job, stage_some(output, job, count))
    return [file.path for file in record.files]


def files(tail: Tail, start: Position, end: Position) -> list[str]:
    """Return the paths of the files between two positions."""
    return [file.path for added in tail.added(start, end) for file in added.files]


@frozen
class Followed:
    """The files that a tail took, batch by batch."""

    batches: list[tuple[Position, Position]] = field(factory=list)
    paths: list[str] = field(factory=list)

    @classmethod
    def of(cls, tail: Tail, start: Position, **limits: Any) -> Followed:
        """Follow from `start` until there is nothing new."""
        followed = cls()
        while (end := tail.advance(start, **limits)) != start:
            followed.batches.append((start, end))
            followed.paths.extend(files(tail, start, end))
            start = end
        return followed

    @property
    def end(self) -> Position:
        return self.batches[-1][1]


# -- start positions ---------------------------------------------------------------------------------


def test_all_yields_the_snapshot_and_then_new_files() -> None:
    """The files of the last version come first, in the order of commits, then those of each commit."""
    output = open_output(MemoryStore())
    first = append(output, "a", 2) + append(output, "b", 1)
    tail = output.tail()
    start = tail.start("all")
    assert (start.version, start.snapshot) == (2, True)
    second = append(output, "c", 2)
    followed = Followed.of(tail, start)
    assert followed.paths == first + second
    assert followed.end == tail.start("latest")
    assert tail.advance(followed.end) == followed.end
    third = append(output, "d")
    assert Followed.of(tail, followed.end).paths == third


def test_the_snapshot_has_no_replaced_file() -> None:
    """A tail from the last version yields its rows, and not those of earlier versions."""
    output = open_output(MemoryStore())
    append(output, "a", 2)
    kept = append(output, "b", 2, mode="overwrite")
    tail = output.tail()
    assert Followed.of(tail, tail.start("all")).paths == kept


def test_latest_yields_only_new_files() -> None:
    """Existing files are not read."""
    output = open_output(MemoryStore())
    append(output, "a")
    tail = output.tail()
    start = tail.start("latest")
    new = append(output, "b", 2)
    assert Followed.of(tail, start).paths == new


@pytest.mark.parametrize("max_files", [0, -1])
def test_a_batch_of_no_file_is_refused(max_files: int) -> None:
    """The tail would stay where it is, as if there were nothing new."""
    output = open_output(MemoryStore())
    append(output, "a")
    tail = output.tail()
    with pytest.raises(ConfigurationError, match="max_files"):
        tail.advance(tail.start("all"), max_files=max_files)


def test_an_unknown_reaction_is_refused() -> None:
    """Its positions could be stored, and not be read again."""
    with pytest.raises(ConfigurationError, match="on_rewrite is 'ignore'; it must be one of fail"):
        open_output(MemoryStore()).tail(on_rewrite="ignore")  # type: ignore[arg-type]


def test_an_unknown_first_position_is_refused() -> None:
    """A mistyped ``latest`` would read all files again."""
    output = open_output(MemoryStore())
    append(output, "a")
    with pytest.raises(ConfigurationError, match="at is 'newest'; it must be one of all, latest"):
        output.tail().start("newest")  # type: ignore[arg-type]


def test_a_log_is_not_read_after_a_negative_number() -> None:
    """There is no record before the first one, so the log would seem to be empty."""
    output = open_output(MemoryStore())
    append(output, "a")
    for read in (output.log, output.records):
        with pytest.raises(ConfigurationError, match="after record -1"):
            read(-1)


def test_a_version_yields_the_files_added_after_it() -> None:
    """Version 0 yields all files that were ever added; a version that does not exist is an error."""
    output = open_output(MemoryStore())
    paths = append(output, "a") + append(output, "b", 2) + append(output, "c")
    tail = output.tail()
    assert Followed.of(tail, tail.start(0)).paths == paths
    assert Followed.of(tail, tail.start(1)).paths == paths[1:]
    with pytest.raises(NotFound, match=r"no version 4 to begin after: the log ends with 3"):
        tail.start(4)


@pytest.mark.parametrize("at", ["all", "latest", 0])
def test_an_output_may_be_followed_before_it_exists(at: Any) -> None:
    """All its files are new then."""
    output = open_output(MemoryStore())
    tail = output.tail()
    start = tail.start(at)
    assert start == Position()
    assert tail.advance(start) == start
    assert list(tail.added(start, start)) == []
    paths = append(output, "a", 2)
    assert Followed.of(tail, start).paths == paths


def test_until_bounds_a_tail() -> None:
    """Later versions are in neither the snapshot nor a batch."""
    output = open_output(MemoryStore())
    paths = append(output, "a") + append(output, "b")
    tail = output.tail()
    until = tail.end()
    append(output, "c")
    assert until == 2
    for at in ("all", 0):
        start = tail.start(at, until=until)
        assert Followed.of(tail, start, until=until).paths == paths
    assert tail.start("latest", until=until).version == until
    patient = output.tail(roll_forward=False)
    assert patient.advance(patient.start(0), until=until).version == until


# -- batches -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", ["all", 0])
def test_batches_have_a_maximum_number_of_files(at: Any) -> None:
    """A version may be spread over batches, and a batch over versions."""
    output = open_output(MemoryStore())
    paths = append(output, "a", 5) + append(output, "b", 1) + append(output, "c", 2)
    tail = output.tail()
    followed = Followed.of(tail, tail.start(at), max_files=3)
    assert followed.paths == paths
    assert [len(files(tail, *batch)) for batch in followed.batches] == [3, 3, 2]


def test_batches_have_a_maximum_number_of_bytes() -> None:
    """A batch has at least one file, even if that file is larger."""
    output = open_output(MemoryStore())
    job = output.begin("a")
    staged = [
        output.stage(job, job.file_name(n), size * b"x", rows=1)
        for n, size in enumerate([3, 9, 1, 4, 2])
    ]
    output.commit(job, staged)
    tail = output.tail()
    followed = Followed.of(tail, tail.start(0), max_bytes=5)
    sizes = [
        [file.size for added in tail.added(*batch) for file in added.files] for batch in followed.batches
    ]
    assert sizes == [[3], [9], [1, 4], [2]]


def test_a_batch_is_the_same_in_another_process() -> None:
    """Positions are stored as JSON, and give the same files after later commits."""
    store = MemoryStore()
    output = open_output(store)
    append(output, "a", 3)
    tail = output.tail()
    start = tail.start("all")
    append(output, "b", 3, schema="x")
    followed = Followed.of(tail, start, max_files=2)
    for n in range(INTERVAL):
        append(output, f"later-{n}")
    for begin, end in followed.batches:
        stored = [Position.from_json(each.to_json()) for each in (begin, end)]
        assert stored == [begin, end]
        again = list(open_output(store).tail().added(*stored))
        assert again == list(tail.added(begin, end))
        assert {added.schema for added in again} <= {None, "x"}


def logged_files(job: Job, count: int) -> Iterator[StagedFile]:
    """Yield the staged files of tasks whose files only the log shows, without storing any."""
    for n in range(count):
        path = f"out/_commitlog/data/{job.file_name(n)}"
        yield StagedFile(staged=Staged(path=path, upload_id=f"u{n}", size=1, nonce=f"n{n}"), rows=1)


def test_a_batch_reads_only_the_lists_that_it_needs() -> None:
    """Lists of ten thousand files are read singly, once each, and not if the whole job is taken."""
    store = Reading(MemoryStore())
    output = open_output(store)
    job = output.begin("big", visibility="logged")
    record = output.commit(job, logged_files(job, 2 * MANIFEST_FILES + 5))
    paths = [file.path for file in output.files(record)]
    tail = output.tail()
    start = tail.start(0)
    store.take_requests()
    assert tail.advance(start).version == 1
    assert "get manifests" not in store.take_requests()
    end = tail.advance(start, max_files=MANIFEST_FILES + 10)
    assert store.take_requests()["get manifests"] == 1
    assert files(tail, start, end) == paths[: MANIFEST_FILES + 10]
    store.take_requests()
    rest = tail.advance(end, max_files=100)
    assert files(tail, end, rest) == paths[MANIFEST_FILES + 10 :][:100]
    assert "get manifests" not in store.take_requests()
    followed = Followed.of(tail, rest, max_files=MANIFEST_FILES)
    assert followed.paths == paths[MANIFEST_FILES + 110 :]
    assert len(followed.batches) == 1


# -- commits without new rows, and commits that remove rows ------------------------------------------


def compact(output: Output, job_id: str = "compact") -> list[str]:
    """Rewrite the rows of all files; return the paths of the new files."""
    replaced = output.snapshot().files
    job = output.begin(job_id, mode="rewrite", replaces=[file.path for file in replaced])
    rows = sum(file.rows or 0 for file in replaced)
    file = output.stage(job, job.file_name(0), b"all", rows=rows)
    return [file.path for file in output.commit(job, [file]).files]


def test_records_without_new_rows_are_skipped() -> None:
    """Compaction, aborts and expiries give no batch; the next files do."""
    clock = ManualClock()
    output = open_output(MemoryStore(clock=clock), clock)
    append(output, "a", 2, visibility="logged")
    tail = output.tail()
    start = tail.start("latest")
    compact(output)
    output.abort(output.begin("b"))
    clock.advance(10)
    output.gc(older_than=5)
    assert [type(record).__name__ for record in output.records(1)] == [
        "CommitRecord",
        "AbortRecord",
        "ExpiryRecord",
    ]
    assert tail.advance(start) == start
    new = append(output, "c")
    output.abort(output.begin("d"))
    end = tail.advance(start)
    assert (end.version, files(tail, start, end)) == (6, new)


def overwrite(output: Output) -> list[str]:
    return append(output, "over", 1, mode="overwrite")


def overwrite_partitions(output: Output) -> list[str]:
    return append(output, "over", 1, mode="overwrite-partitions")


def overwrite_files(output: Output) -> list[str]:
    there = output.snapshot().files[0].path
    return append(output, "over", 1, mode="overwrite-files", replaces=[there])


REMOVING = [overwrite, overwrite_partitions, overwrite_files]


@pytest.mark.parametrize("remove", REMOVING)
def test_a_commit_that_removes_rows_ends_a_tail(remove: Callable[[Output], list[str]]) -> None:
    """Earlier files are read first; then the error has the version and the job."""
    output = open_output(MemoryStore())
    tail = output.tail()
    start = tail.start("latest")
    first = append(output, "a", 2, visibility="logged")
    remove(output)
    append(output, "b")
    end = tail.advance(start)
    assert files(tail, start, end) == first
    with pytest.raises(RowsReplaced, match=r"version 2 \(job 'over', mode 'overwrite") as error:
        tail.advance(end)
    assert (error.value.version, error.value.job_id) == (2, "over")


@pytest.mark.parametrize("remove", REMOVING)
def test_a_commit_that_removes_rows_can_be_skipped(remove: Callable[[Output], list[str]]) -> None:
    """The files that it adds are skipped, too."""
    output = open_output(MemoryStore())
    tail = output.tail(on_rewrite="skip")
    start = tail.start("latest")
    first = append(output, "a", 2, visibility="logged")
    remove(output)
    last = append(output, "b")
    assert Followed.of(tail, start).paths == first + last


@pytest.mark.parametrize("remove", REMOVING)
def test_the_files_of_a_commit_that_removes_rows_can_be_read(
    remove: Callable[[Output], list[str]],
) -> None:
    """They come in addition to the files that were read before."""
    output = open_output(MemoryStore())
    tail = output.tail(on_rewrite="added")
    start = tail.start("latest")
    first = append(output, "a", 2, visibility="logged")
    second = remove(output)
    last = append(output, "b")
    assert Followed.of(tail, start).paths == first + second + last


def test_an_overwrite_of_nothing_is_an_append() -> None:
    """The first job of an output, or of a partition, removes nothing in any mode."""
    output = open_output(MemoryStore())
    tail = output.tail()
    paths = append(output, "a", 1, mode="overwrite")
    for n in (1, 2):
        job = output.begin(f"day-{n}", mode="overwrite-partitions")
        file = output.stage(job, f"p=new-{n}/" + job.file_name(0), b"x", partition={"p": f"new-{n}"})
        paths += [each.path for each in output.commit(job, [file]).files]
        paths += append(output, f"more-{n}", 0)
    paths += append(output, "files", 1, mode="overwrite-files")
    assert Followed.of(tail, tail.start(0)).paths == paths
    followed = Followed.of(tail, tail.start(0), max_files=2)
    assert [files(tail, *batch) for batch in followed.batches] == [paths[:2], paths[2:]]


def test_rows_added_after_the_last_overwrite_can_be_removed() -> None:
    """The existing files are tracked from one overwrite to the next."""
    output = open_output(MemoryStore())
    tail = output.tail()
    for mode in ("overwrite-partitions", "append", "overwrite-partitions"):
        job = output.begin(f"{mode} {tail.end()}", mode=mode)
        partition = "old" if tail.end() == 0 else "new"
        name = f"p={partition}/" + job.file_name(0)
        output.commit(job, [output.stage(job, name, b"x", partition={"p": partition})])
    end = tail.advance(tail.start(0))
    assert end.version == 2
    with pytest.raises(RowsReplaced, match="overwrite-partitions 2"):
        tail.advance(end)


def test_a_batch_keeps_its_choice_of_on_rewrite() -> None:
    """The choice is part of the position, so that a repeated batch has the same files."""
    store = MemoryStore()
    output = open_output(store)
    tail = output.tail(on_rewrite="skip")
    start = tail.start("latest")
    append(output, "a", 2, visibility="logged")
    overwrite(output)
    append(output, "b")
    end = tail.advance(start)
    for other in ("fail", "added"):
        assert files(open_output(store).tail(on_rewrite=other), start, end) == files(tail, start, end)


# -- visibility --------------------------------------------------------------------------------------


class Dead(HookedStore):
    """A store in which publishing fails, as if each driver died after its commit point."""

    dead = True

    def publish(self, staged: Staged, **options: Any) -> Any:
        if self.dead:
            raise Unavailable("the driver is dead")
        return super().publish(staged, **options)


def unpublished(store: Dead) -> Output:
    """Return an output with a published version and an unpublished one."""
    output = open_output(store)
    store.dead = False
    append(output, "a")
    store.dead = True
    with pytest.raises(PublishIncomplete):
        append(output, "b", 2)
    return output


def test_the_job_of_a_dead_driver_is_published() -> None:
    """All files of a batch are visible."""
    store = Dead(MemoryStore())
    output = unpublished(store)
    tail = output.tail()
    with pytest.raises(PublishIncomplete):
        tail.advance(tail.start(1))
    store.dead = False
    start = tail.start(1)
    end = tail.advance(start, max_files=1)
    (path,) = files(tail, start, end)
    assert store.head(f"out/{path}")
    assert output.snapshot(roll_forward=False).version == 2


def test_without_roll_forward_a_tail_waits() -> None:
    """A reader that may not write takes only versions that are known to be complete."""
    store = Dead(MemoryStore())
    output = unpublished(store)
    tail = output.tail(roll_forward=False)
    assert tail.end() == 1
    assert [tail.start(at).version for at in ("all", "latest")] == [1, 1]
    start = tail.start(1)
    assert tail.advance(start) == tail.advance(start, until=2) == start
    store.dead = False
    output.recover(older_than=1e9)
    assert len(files(tail, start, tail.advance(start))) == 2


# -- differences between a checkpoint and a log ------------------------------------------------------


def remake(store: MemoryStore, jobs: int) -> Output:
    """Remove the output, and make another one with this number of jobs."""
    for info in list(store.list("out/")):
        store.delete(info.path)
    output = open_output(store)
    for n in range(jobs):
        append(output, f"other-{n}", 3)
    return output


@pytest.mark.parametrize("jobs", [0, 1, 2, 4])
@pytest.mark.parametrize("limit", [None, 1, 5])
def test_an_output_that_was_created_again_is_noticed(jobs: int, limit: int | None) -> None:
    """Neither a restart nor a repeated batch takes it for the output that was followed."""
    store = MemoryStore()
    output = open_output(store)
    append(output, "a", 3)
    append(output, "b", 3)
    tail = output.tail()
    start = tail.start(0)
    end = tail.advance(start, max_files=limit)
    remake(store, jobs)
    with pytest.raises(StateMismatch, match="created again"):
        open_output(store).tail().advance(end)
    with pytest.raises(StateMismatch, match="created again"):
        list(open_output(store).tail().added(start, end))
    if jobs == 4:
        with pytest.raises(StateMismatch, match="created again"):
            tail.advance(end)


def test_a_snapshot_of_an_output_created_again_is_noticed() -> None:
    """Its files belong to another output, or the version does not exist."""
    store = MemoryStore()
    output = open_output(store)
    append(output, "a", 3)
    tail = output.tail()
    start = tail.start("all")
    end = tail.advance(start, max_files=1)
    for jobs in (0, 1):
        remake(store, jobs)
        for call in ("advance", "added"):
            other = open_output(store).tail()
            with pytest.raises(StateMismatch, match="created again"):
                list(other.added(start, end)) if call == "added" else other.advance(end)


def test_lost_records_are_not_the_end_of_the_log() -> None:
    """A gap before a version that is known to be complete is an error."""
    store = MemoryStore()
    output = open_output(store)
    for job in "abc":
        append(output, job)
    store.delete(RECORD.format(2))
    tail = output.tail()
    with pytest.raises(CorruptRecord, match="no record 2, though there is a version 3"):
        tail.advance(tail.start(0))
    with pytest.raises(CorruptRecord, match="no record 2, though there is a version 3"):
        tail.start("all")


def test_a_lost_last_record_is_not_the_end_of_the_log() -> None:
    """The version that is known to be complete must have a record."""
    store = MemoryStore()
    output = open_output(store)
    for job in "ab":
        append(output, job)
    store.delete(RECORD.format(2))
    tail = output.tail()
    with pytest.raises(CorruptRecord, match="no record 2, though there is a version 2"):
        tail.advance(tail.start(0))


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"format": 2}, FormatTooNew),
        ({}, CorruptRecord),
        ({**Position().to_json(), "format": 0}, CorruptRecord),
        ({**Position().to_json(), "version": -1}, CorruptRecord),
        ({**Position().to_json(), "onRewrite": "perhaps"}, CorruptRecord),
        ({**Position().to_json(), "snapshot": 1}, CorruptRecord),
    ],
)
def test_a_position_is_checked(given: dict[str, Any], error: type[Exception]) -> None:
    """Other values are refused."""
    with pytest.raises(error):
        Position.from_json(given)


@given(
    st.dictionaries(
        st.sampled_from(list(Position().to_json())),
        st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.integers()),
    )
)
def test_any_stored_value_is_a_position_or_an_error(value: dict[str, Any]) -> None:
    """The error is `CorruptRecord` or `FormatTooNew`."""
    with contextlib.suppress(CorruptRecord, FormatTooNew):
        assert Position.from_json(value).to_json() == value


# -- costs -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("before", [3, 3 * INTERVAL, 30 * INTERVAL])
def test_a_batch_costs_one_request_per_new_record(before: int) -> None:
    """In a log of any length nothing is listed, and only the last record is read twice."""
    store = Reading(MemoryStore())
    output = open_output(store)
    for n in range(before):
        append(output, f"before-{n}", 0)
    tail = output.tail()
    start = tail.start("latest")
    tail.advance(start)
    store.take_requests()
    assert tail.advance(start) == start
    assert store.take_requests() == {"get out": 1, "get record": 1}
    new = [path for n in range(5) for path in append(output, f"new-{n}", 2)]
    store.take_requests()
    end = tail.advance(start)
    assert files(tail, start, end) == new
    # The five new ones, the missing next one, and the last one of the batch before.
    assert store.take_requests() == {"get out": 1, "get record": 7}


def test_overwriting_commits_cost_the_same() -> None:
    """The files before the first of them are read once, and tracked from then on."""
    costs = []
    for count in (10, 20):
        store = Reading(MemoryStore())
        output = open_output(store)
        for n in range(count):
            job = output.begin(f"day-{n}", mode="overwrite-partitions")
            output.commit(
                job, [output.stage(job, f"p={n}/" + job.file_name(0), b"x", partition={"p": str(n)})]
            )
        tail = output.tail()
        start = tail.start(0)
        store.take_requests()
        assert len(files(tail, start, tail.advance(start))) == count
        reported = store.take_requests()
        costs.append(reported["get record"])
        assert reported["list"] == 1
    assert costs[1] - costs[0] == 10


def test_a_snapshot_is_read_once() -> None:
    """Its further batches cost the same as others, and a new tail reads a new snapshot."""
    store = Reading(MemoryStore())
    output = open_output(store)
    first = append(output, "a", 4)
    tail = output.tail()
    start = tail.start("all")
    middle = tail.advance(start, max_files=2)
    store.take_requests()
    assert files(tail, middle, tail.advance(middle, max_files=1)) == first[2:3]
    assert store.take_requests() == {"get out": 1, "get record": 1}
    second = append(output, "b")
    again = tail.start("all")
    assert (again.version, Followed.of(tail, again).paths) == (2, first + second)


def test_a_tail_forgets_files_that_were_taken() -> None:
    """A long query keeps nothing that it has read."""
    output = open_output(MemoryStore())
    for n in range(5):
        append(output, f"a-{n}", 1, mode="overwrite-partitions")
    tail = output.tail(on_rewrite="skip")
    end = Followed.of(tail, tail.start("all")).end
    append(output, "b")
    last = tail.advance(end)
    assert tail.advance(last) == last
    assert (tail._snapshot, tail._additions, tail._removing) == (None, {}, {})


def test_the_last_known_version_costs_no_request() -> None:
    """It is known from the log that was read, or from `_SUCCESS`."""
    store = Reading(MemoryStore())
    output = open_output(store)
    for n in range(3):
        append(output, f"a-{n}")
    tail = output.tail()
    tail.advance(tail.start(0), max_files=1)
    store.take_requests()
    assert (tail.seen, store.take_requests()) == (3, {})
    store.delete("out/_SUCCESS")
    tail = output.tail()
    tail.advance(tail.start(0), max_files=2)
    assert tail.seen == 3


# -- comparison with a model -------------------------------------------------------------------------

STEPS = st.one_of(
    st.tuples(st.just("append"), st.integers(0, 4)),
    st.tuples(st.sampled_from(["overwrite", "partitions", "compact", "abort", "gc"]), st.just(1)),
    st.tuples(st.just("read"), st.sampled_from([1, 2, 3, 100])),
    st.tuples(st.just("restart"), st.just(0)),
)


@settings(max_examples=examples(40, 120), deadline=None)
@given(
    steps=st.lists(STEPS, max_size=25),
    at=st.sampled_from(["all", "latest", 0]),
    before=st.integers(0, 2),
    on_rewrite=st.sampled_from(["skip", "added"]),
)
def test_each_file_is_taken_once_in_the_order_of_the_log(
    steps: list[tuple[str, int]], at: Any, before: int, on_rewrite: Any
) -> None:
    """The taken files are those that commits added, in their order, and each batch can be read again.

    This holds for any jobs and restarts between batches of any size.
    """
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    output = open_output(store, clock)
    append(output, "visibility", 0, visibility="logged")
    expected: list[str] = []
    for n in range(before):
        paths = append(output, f"before-{n}", 2)
        expected += paths if at != "latest" else []
    tail = output.tail(on_rewrite=on_rewrite)
    position = tail.start(at)
    batches: list[tuple[Position, Position, list[str]]] = []

    def read(limit: int) -> Position:
        end = tail.advance(position, max_files=limit)
        taken = files(tail, position, end)
        assert len(taken) <= limit
        assert (end == position) == (not taken)
        batches.append((position, end, taken))
        return end

    for n, (step, count) in enumerate(steps):
        there = output.snapshot().files
        if step == "append":
            expected += append(output, f"job-{n}", count)
        elif step == "overwrite":
            paths = append(output, f"job-{n}", 2, mode="overwrite")
            expected += paths if on_rewrite == "added" or not there else []
        elif step == "partitions":
            paths = append(output, f"job-{n}", 1, mode="overwrite-partitions")
            new = all(file.partition != {"p": "0"} for file in there)
            expected += paths if on_rewrite == "added" or new else []
        elif step == "compact" and there:
            compact(output, f"job-{n}")
        elif step == "abort":
            output.abort(output.begin(f"job-{n}"))
        elif step == "gc":
            clock.advance(10)
            output.gc(older_than=5)
        elif step == "restart":
            output = open_output(store, clock)
            tail = output.tail(on_rewrite=on_rewrite)
            position = Position.from_json(position.to_json())
        elif step == "read":
            position = read(count)
    while (end := read(3)) != position:
        position = end
    assert [path for _, _, paths in batches for path in paths] == expected
    fresh = open_output(store).tail()
    for start, end, paths in batches:
        assert files(fresh, start, end) == paths


def test_files_keep_their_size_rows_and_partition() -> None:
    """These are the values of the commit."""
    output = open_output(MemoryStore())
    append(output, "a", 2, schema="x")
    tail = output.tail()
    start = tail.start(0)
    (added,) = tail.added(start, tail.advance(start))
    snapshot = output.snapshot()
    assert (added.version, added.schema, added.files) == (1, "x", snapshot.files)
    assert all(isinstance(file, DataFile) for file in added.files)
