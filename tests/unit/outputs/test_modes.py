"""Outputs with replaced files, outputs that only the log shows, and the expiry of old versions."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest
from attrs import evolve

from commitlog.commit import ConditionalStore
from commitlog.errors import (
    AlreadyExists,
    CommitError,
    ConfigurationError,
    Conflict,
    JobAborted,
    JobAlreadyCommitted,
    NotFound,
    PublishIncomplete,
    Unavailable,
)
from commitlog.outputs import Batch, ExpiryRecord, Job, Mode, Output
from commitlog.outputs.compaction import plan
from commitlog.outputs.job import HIDDEN
from commitlog.stores import ObjectData, ObjectStore
from commitlog.stores.memory import MemoryStore
from commitlog.testing import ManualClock
from support.outputs import PLACES as ALL_PLACES
from support.outputs import (
    Death,
    HookedStore,
    Once,
    Place,
    add_job,
    open_output,
    open_place,
    stage_some,
    visible,
)


@pytest.fixture(params=ALL_PLACES)
def place(request: pytest.FixtureRequest) -> Place:
    return open_place(request)


def content(output: Output, version: int | None = None) -> list[str]:
    """Return the contents of the files of a version."""
    snapshot = output.snapshot(version)
    return sorted(output.store.get(output.locate(file)).data.decode() for file in snapshot.files)


def listed(store: ObjectStore | ConditionalStore) -> list[str]:
    """Return the contents of the files that a plain listing shows."""
    return sorted(data.decode() for data in visible(store).values())


# -- replacing ---------------------------------------------------------------------------------------


def test_an_overwrite_replaces_everything(place: Place) -> None:
    """After an overwrite, readers of the log and of the directory see only the new files."""
    with place() as store:
        output = Output(store, "out")
        add_job(output, "a", 0, 1)
        add_job(output, "b", 2)
        add_job(output, "c", 1, mode="overwrite")
        assert content(output) == listed(store) == ["c 1"]
        add_job(output, "d", 5)
        assert content(output) == listed(store) == ["c 1", "d 5"]


def test_an_overwrite_of_partitions_keeps_the_others(place: Place) -> None:
    """Only the partitions in which the job has files are replaced."""
    with place() as store:
        output = Output(store, "out")
        add_job(output, "a", 0, 1, 2)
        add_job(output, "b", 1, 3, mode="overwrite-partitions")
        assert content(output) == listed(store) == ["a 0", "a 2", "b 1", "b 3"]


def test_a_partition_is_known_by_its_values_in_any_order() -> None:
    """A job that gives the columns in another order overwrites the same partition, and merges in it."""
    output = open_output(MemoryStore())
    orders = ({"a": "1", "b": None}, {"b": None, "a": "1"})

    def add(job_id: str, partition: Mapping[str, str | None], mode: Mode) -> None:
        job = output.begin(job_id, mode=mode)
        path = "a=1/b=2/" + job.file_name(0, suffix=".txt")
        output.commit(job, [output.stage(job, path, job_id.encode(), partition=partition)])

    for number, partition in enumerate((*orders, *orders)):
        add(f"job-{number}", partition, "overwrite-partitions")
        assert content(output) == [f"job-{number}"]
    add("more", orders[0], "append")
    [group] = plan(output.snapshot().files, kind=lambda _file: "text")
    assert len(group.files) == 2


def test_an_overwrite_without_files_empties_the_output_or_no_partition() -> None:
    """Mode `overwrite` replaces everything; mode `overwrite-partitions` replaces nothing."""
    store = MemoryStore()
    output = open_output(store)
    add_job(output, "a", 0)
    add_job(output, "b", mode="overwrite-partitions")
    assert listed(store) == ["a 0"]
    add_job(output, "c", mode="overwrite")
    assert content(output) == listed(store) == []


def test_old_files_stay_until_the_overwrite_is_committed() -> None:
    """They exist while an overwriting job stages its files, and after it is aborted."""
    store = MemoryStore()
    output = open_output(store)
    add_job(output, "a", 0)
    job = output.begin("b", mode="overwrite")
    files = stage_some(output, job)
    assert content(output) == listed(store) == ["a 0"]
    output.abort(job, files)
    assert content(output) == listed(store) == ["a 0"]
    with pytest.raises(JobAborted):
        output.commit(job, files)


@pytest.mark.parametrize("mode", ["overwrite", "overwrite-partitions"])
@pytest.mark.parametrize("what", ["before", "after"])
def test_a_crash_during_an_overwrite_leaves_one_whole_version(what: str, mode: Mode) -> None:
    """After a crash at any request, recovery shows one whole version to both kinds of reader."""
    seen = set()
    for at in itertools.count(1):
        store = MemoryStore()
        add_job(open_output(store), "a", 0, 1)
        once = Once(at, what)
        with contextlib.suppress(Death):
            add_job(open_output(HookedStore(store, once)), "b", 0, 1, mode=mode)
        output = open_output(store)
        assert {*content(output)} in ({"a 0", "a 1"}, {"b 0", "b 1"})
        output.recover(older_than=0)
        assert content(output) == listed(store)
        assert list(store.list_staged()) == []
        assert list(store.list("out/_commitlog/pending/")) == []
        seen.add(content(output)[0])
        if not once.happened:
            break
    assert seen == {"a 0", "b 0"}


def test_a_late_publisher_brings_no_replaced_file_back() -> None:
    """A driver stalls before it publishes; its job is committed and replaced meanwhile."""
    for at in itertools.count(1):
        store = MemoryStore()

        def rival(perform: object, store: MemoryStore = store) -> object:
            add_job(open_output(store), "b", 7, mode="overwrite")
            return perform()  # type: ignore[operator]

        once = Once(at, rival)
        add_job(open_output(HookedStore(store, once)), "a", 0, 1)
        open_output(store).recover(older_than=0)
        assert content(open_output(store)) == listed(store)
        assert list(store.list_staged()) == []
        if not once.happened:
            break


def test_files_that_cannot_be_removed_are_removed_later() -> None:
    """An overwrite whose old files stay listed reports this; the next recovery removes them."""
    store = MemoryStore()
    add_job(open_output(store), "a", 0)

    output = open_output(_Stubborn(store))
    with pytest.raises(PublishIncomplete, match="still listed"):
        add_job(output, "b", 1, mode="overwrite")
    assert listed(store) == ["a 0", "b 1"]
    assert content(open_output(store)) == ["b 1"]
    open_output(store).recover(older_than=0)
    assert listed(store) == ["b 1"]


def test_a_reader_that_cannot_remove_files_leaves_that_to_a_recovery() -> None:
    """It reads the new rows; ``_SUCCESS`` would tell the recovery that no work is left."""
    store = MemoryStore()
    add_job(open_output(store), "a", 0)
    with pytest.raises(PublishIncomplete, match="still listed"):
        add_job(open_output(_Stubborn(store)), "b", 1, mode="overwrite")
    assert content(open_output(_Stubborn(store))) == ["b 1"]
    assert open_output(store).watermark() == 1
    open_output(store).recover(older_than=0)
    assert listed(store) == ["b 1"]


class _Stubborn(HookedStore):
    """A store whose bulk deletes fail."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner, lambda _name, _path, mutation: mutation())

    def delete_many(self, paths: Iterable[str]) -> Mapping[str, CommitError]:
        return {path: Unavailable("not now") for path in paths}


# -- logged outputs ------------------------------------------------------------------------------------


def test_a_logged_output_shows_nothing_to_a_plain_listing(place: Place) -> None:
    """Only the log has the files; old versions stay readable after they are replaced."""
    with place() as store:
        output = Output(store, "out")
        add_job(output, "a", 0, visibility="logged")
        add_job(output, "b", 1)
        add_job(output, "c", 2, mode="overwrite")
        assert listed(store) == []
        assert [content(output, version) for version in (1, 2, 3)] == [["a 0"], ["a 0", "b 1"], ["c 2"]]
        path = output.snapshot().files[0].path
        assert path.startswith(f"{HIDDEN}/p=2/")


def test_an_output_is_listed_or_logged_not_both() -> None:
    """A job of the other visibility is refused when it begins and at the commit point."""
    output = open_output(MemoryStore())
    logged = output.begin("early", visibility="logged")
    add_job(output, "a", 0)
    with pytest.raises(ConfigurationError, match="'listed'"):
        output.begin("b", visibility="logged")
    with pytest.raises(ConfigurationError, match="'listed'"):
        output.commit(logged, ())
    assert len(list(output.records())) == 1


def test_gc_removes_versions_that_were_replaced_long_ago() -> None:
    """A read of an expired version is refused with a reason; younger versions stay."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    output = open_output(store, clock)
    add_job(output, "a", 0, visibility="logged")
    add_job(output, "b", 1, mode="overwrite")
    clock.advance(100)
    add_job(output, "c", 2, mode="overwrite")
    clock.advance(10)
    report = output.gc(older_than=50)
    assert (report.expired, report.removed) == (2, 1)
    with pytest.raises(NotFound, match="expired"):
        output.snapshot(1)
    assert content(output, 2) == ["b 1"]
    assert isinstance(list(output.records())[-1], ExpiryRecord)
    again = output.gc(older_than=50)
    assert (again.expired, again.removed, len(list(output.records()))) == (2, 0, 4)
    clock.advance(100)
    assert output.gc(older_than=50).removed == 1
    assert content(output) == ["c 2"]


def test_a_past_version_is_readable_while_its_files_exist() -> None:
    """A version of a listed output is lost when its files are replaced; additions keep it."""
    output = open_output(MemoryStore())
    add_job(output, "a", 0)
    add_job(output, "b", 1)
    assert content(output, 1) == ["a 0"]
    add_job(output, "c", 1, mode="overwrite-partitions")
    assert content(output, 1) == ["a 0"]
    with pytest.raises(NotFound, match=r"version 2 of .* cannot be read any more: 1 of its files"):
        output.snapshot(2)
    assert content(output, 3) == ["a 0", "c 1"]


def test_a_reader_overtaken_by_gc_reads_again() -> None:
    """A reader that names no version never gets the error that its version has expired."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    add_job(open_output(store, clock), "a", 0, visibility="logged")

    class Overtaken(HookedStore):
        happened = False

        def get(self, path: str, **options: Any) -> ObjectData:
            found = super().get(path, **options)
            if path == "out/_SUCCESS" and not self.happened:
                self.happened = True
                output = open_output(store, clock)
                add_job(output, "b", 1, mode="overwrite")
                output.gc(older_than=0)
            return found

    reader = open_output(Overtaken(store), clock)
    assert reader.snapshot(roll_forward=False).jobs == ("a", "b")
    store.delete("out/_SUCCESS")
    with pytest.raises(NotFound, match="expired"):
        reader.snapshot(roll_forward=False)


def test_gc_removes_files_of_dead_jobs_only() -> None:
    """Files of a dead driver under hidden names are removed; a heartbeat keeps those of a slow one."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    output = open_output(store, clock)
    dead = output.begin("dead", visibility="logged")
    stage_some(output, dead)
    slow = output.begin("slow", visibility="logged")
    files = stage_some(output, slow)
    clock.advance(100)
    output.heartbeat(slow.attempt)
    clock.advance(10)
    assert output.gc(older_than=50).removed == 2
    assert len(output.commit(slow, files).files) == 2
    with pytest.raises(JobAborted):
        output.commit(dead, ())
    clock.advance(100)
    report = output.gc(older_than=50)
    assert (report.removed, len(output.snapshot().files)) == (0, 2)
    assert list(store.list("out/_commitlog/alive/")) == []


def test_gc_keeps_the_files_of_a_job_that_is_committed_meanwhile() -> None:
    """Its driver seemed dead, and commits right before the record that would have excluded it."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    driver = open_output(store, clock)
    job = driver.begin("slow", visibility="logged")
    files = stage_some(driver, job)
    clock.advance(100)

    def overtake(_name: str, path: str, mutation: Callable[[], Any]) -> Any:
        if path.endswith("1.json") and not store.begin_head(path)().info:
            assert driver.commit(job, files).version == 1
        return mutation()

    assert open_output(HookedStore(store, overtake), clock).gc(older_than=50).removed == 0
    assert content(driver) == sorted(store.get(f.staged.path).data.decode() for f in files)


def test_gc_goes_by_the_newest_file_of_a_job() -> None:
    """A long job with a recently finished file is alive, at any age of its first file."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    output = open_output(store, clock)
    job = output.begin("long", visibility="logged")
    files = []
    for task in range(8):  # random names, so that a listing has them in any order
        files.append(output.stage(job, job.file_name(task), b"1"))
        clock.advance(100)
    for _ in range(2):
        assert output.gc(older_than=150).removed == 0
    assert len(output.commit(job, files).files) == 8


def test_an_abort_removes_files_under_hidden_names() -> None:
    """Files that the driver knows of an aborted logged job are removed."""
    store = MemoryStore()
    output = open_output(store)
    job = output.begin("a", visibility="logged")
    files = stage_some(output, job)
    assert len(list(store.list(f"out/{HIDDEN}/"))) == 2
    assert output.abort(job, files) is None
    assert list(store.list(f"out/{HIDDEN}/")) == []


@pytest.mark.parametrize("what", ["before", "after"])
def test_a_logged_commit_is_one_record(what: str) -> None:
    """A crash leaves all files or none, and gc leaves no file without a version."""
    seen = set()
    for at in itertools.count(1):
        store = MemoryStore()
        once = Once(at, what)
        with contextlib.suppress(Death):
            add_job(open_output(HookedStore(store, once)), "a", 0, 1, visibility="logged")
        output = open_output(store)
        found = content(output)
        assert found in ([], ["a 0", "a 1"])
        seen.add(len(found))
        output.gc(older_than=0)
        assert content(output) == found
        assert len(list(store.list(f"out/{HIDDEN}/"))) == len(found)
        if not once.happened:
            break
    assert seen == {0, 2}


# -- heartbeats and batches --------------------------------------------------------------------------


def test_a_heartbeat_keeps_recovery_away() -> None:
    """A job that stages nothing for long, but sends heartbeats, is left alone."""
    clock = ManualClock()
    output = open_output(MemoryStore(clock=clock), clock)
    slow, dead = output.begin("slow"), output.begin("dead")
    files = stage_some(output, slow)
    stage_some(output, dead)
    clock.advance(1000)
    output.heartbeat(slow.attempt)
    report = output.recover(older_than=500)
    assert (list(report.aborted), report.live) == ([dead.attempt], (slow.attempt,))
    assert len(output.commit(slow, files).files) == 2


def test_a_slow_recovery_does_not_expire_live_jobs() -> None:
    """The age of an attempt is measured when the recovery begins, however long the log takes to read."""
    clock = ManualClock()

    class Slow(MemoryStore):
        read = 0

        def get(self, path: str, **options: Any) -> ObjectData:
            self.read += 1
            clock.advance(1000)
            return super().get(path, **options)

    store = Slow(clock=clock)
    output = open_output(store, clock)
    earlier = output.begin("earlier")
    output.commit(earlier, stage_some(output, earlier))
    job = output.begin("slow")
    files = stage_some(output, job)
    clock.advance(100)
    before, store.read = clock.epoch(), 0
    assert output.recover(older_than=500).live == (job.attempt,)
    assert store.read and clock.epoch() > before + 500
    assert len(output.commit(job, files).files) == 2


def test_a_batch_of_a_stream_is_committed_once_and_in_order() -> None:
    """A committed batch, or one before it, is recognised; each stream has its own numbers."""
    output = open_output(MemoryStore())
    late = output.begin(batch=Batch("q", 1))
    for number in (0, 1, 2):
        job = output.begin(batch=Batch("q", number))
        output.commit(job, stage_some(output, job))
    with pytest.raises(JobAlreadyCommitted) as error:
        output.begin(batch=Batch("q", 1))
    assert error.value.version == 3
    with pytest.raises(JobAlreadyCommitted):
        output.commit(late, ())
    other = output.begin(batch=Batch("p", 0))
    assert output.commit(other, ()).batch == Batch("p", 0)


@pytest.mark.parametrize(
    "mode", ["append", "overwrite-partitions", "overwrite-files", "rewrite", "overwrite"]
)
def test_changed_columns_stop_every_mode_except_overwrite(mode: Mode) -> None:
    """All other modes leave files of other jobs, which must have the same columns."""
    output = open_output(MemoryStore())
    first = add_job(output, "first", 0)
    replaces = [file.path for file in first.files] if mode in ("overwrite-files", "rewrite") else []
    job = output.begin("late", mode=mode, schema="old", replaces=replaces)
    files = stage_some(output, job, count=1)
    output.commit(output.begin("wider", schema="new"), ())
    if mode == "overwrite":
        assert output.commit(job, files).version == 3
    else:
        with pytest.raises(Conflict, match="other columns"):
            output.commit(job, files)
        assert output.state().commit == 2


def test_a_job_has_an_id_or_a_batch() -> None:
    """If both were allowed, one id could be committed with each batch, and once more without one."""
    output = open_output(MemoryStore())
    assert output.begin("q/0", batch=Batch("q", 0)).job_id == "q/0"
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="Give a job id or a batch, not both"):
            output.begin("daily", batch=Batch("q", 0))
        output.commit(output.begin(), ())
        add_job(output, f"daily-{_}", 0)
    job = output.begin(batch=Batch("q", 0))
    with pytest.raises(ConfigurationError, match="Give a job id or a batch"):
        evolve(job, job_id="daily")
    output.commit(job, ())
    with pytest.raises(ConfigurationError, match="Give a job id or a batch"):
        output.begin("daily", batch=Batch("q", 0))


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("late", [True, False])
def test_the_id_of_a_batch_is_one_job(batch_first: bool, late: bool) -> None:
    """A job under the id of a batch, and the batch, are the same job, whichever comes first."""
    output = open_output(MemoryStore())
    begin: list[Callable[[], Job]] = [
        lambda: output.begin("q/3"),
        lambda: output.begin(batch=Batch("q", 3)),
    ]
    first, second = reversed(begin) if batch_first else begin
    job = second() if late else None
    output.commit(first(), ())
    with pytest.raises(JobAlreadyCommitted) as error:
        output.commit(job or second(), ())
    assert (error.value.job_id, error.value.version) == ("q/3", 1)


def test_a_job_under_the_id_of_an_earlier_batch_is_refused() -> None:
    """The batch is refused, too. Under the id of a later batch, or a similar id, it is another job."""
    output = open_output(MemoryStore())
    late = output.begin("q/2")
    output.commit(output.begin(batch=Batch("q", 3)), ())
    with pytest.raises(JobAlreadyCommitted):
        output.begin("q/2")
    with pytest.raises(JobAlreadyCommitted):
        output.commit(late, ())
    for job_id in (
        "q/4",
        "q/02",
        "q/",
        "/2",
        "p/2",
        "q/2/x",
        "q/-2",
        "q/\N{SUPERSCRIPT TWO}",
        f"q/{2**63}",
    ):
        output.commit(output.begin(job_id), ())


@pytest.mark.parametrize(
    ("stream", "number"), [("", 0), ("q", -1), ("q", 1.0), ("q", True), ("q", 2**63), (7, 0)]
)
def test_a_batch_has_a_stream_and_a_number(stream: Any, number: Any) -> None:
    """Other values are refused before they are stored."""
    with pytest.raises(ConfigurationError):
        Batch(stream, number)


def test_mode_error_is_checked_again_at_the_commit_point() -> None:
    """Data added after the job had begun stops it, too."""
    output = open_output(MemoryStore())
    job = output.begin("b", mode="error")
    add_job(output, "a", 0)
    with pytest.raises(AlreadyExists):
        output.commit(job, ())
