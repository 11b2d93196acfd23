"""Files of an output replaced by name: the effects of `rewrite`, its conflicts, and its plans."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Iterable

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from commitlog.commit import ConditionalStore
from commitlog.errors import (
    ConfigurationError,
    Conflict,
    CorruptRecord,
    FormatTooNew,
    NotFound,
    PublishIncomplete,
)
from commitlog.oplog.codec import Document, encode
from commitlog.outputs import Batch, CommitRecord, DataFile, Job, Mode, Output, StagedFile, Visibility
from commitlog.outputs.compaction import plan
from commitlog.stores import ObjectStore
from commitlog.stores.memory import MemoryStore
from commitlog.testing import ManualClock
from support.outputs import PLACES, Death, HookedStore, Once, Place, open_output, open_place, visible

VISIBILITIES: tuple[Visibility, ...] = ("listed", "logged")


def stage(output: Output, job: Job, task: int, *rows: str, p: str = "0") -> StagedFile:
    """Stage a file of partition `p` with one row per line."""
    return output.stage(
        job,
        f"p={p}/" + job.file_name(task, suffix=".txt"),
        "".join(f"{row}\n" for row in rows).encode(),
        rows=len(rows),
        partition={"p": p},
    )


def add(
    output: Output,
    job_id: str | None,
    *rows: str,
    p: str = "0",
    mode: Mode = "append",
    visibility: Visibility = "listed",
    batch: Batch | None = None,
) -> CommitRecord:
    """Commit a job with one file."""
    job = output.begin(job_id, mode=mode, visibility=visibility, batch=batch)
    return output.commit(job, [stage(output, job, 0, *rows, p=p)] if rows else [])


def rows_of(output: Output, files: Iterable[DataFile]) -> list[str]:
    """Return the rows of `files`."""
    data = (output.store.get(output.locate(file)).data for file in files)
    return [line for each in data for line in each.decode().splitlines()]


def read(output: Output, version: int | None = None) -> list[str]:
    """Return the sorted rows of a version."""
    return sorted(rows_of(output, output.snapshot(version).files))


def listed(store: ObjectStore | ConditionalStore) -> list[str]:
    """Return the sorted rows that a plain listing shows."""
    return sorted(line for data in visible(store).values() for line in data.decode().splitlines())


def rewriting(output: Output, files: Iterable[DataFile] | None = None) -> tuple[Job, list[StagedFile]]:
    """Begin to merge `files`, or all files, and stage the merged file."""
    chosen = list(output.snapshot().files if files is None else files)
    job = output.begin(mode="rewrite", replaces=[file.path for file in chosen])
    return job, [stage(output, job, 0, *rows_of(output, chosen))]


def rewrite(output: Output) -> CommitRecord:
    """Merge all files."""
    return output.commit(*rewriting(output))


# -- effects ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("visibility", VISIBILITIES)
def test_a_rewrite_changes_only_the_files(visibility: Visibility) -> None:
    """Rows, jobs, batches and schema stay; one file replaces three."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    output = open_output(store, clock)
    add(output, "a", "1", "2", visibility=visibility)
    add(output, None, "3", visibility=visibility, batch=Batch("q", 4))
    job = output.begin("c", schema="{}", visibility=visibility)
    output.commit(job, [stage(output, job, 0, "4")])
    before = output.state()
    record = rewrite(output)
    after = output.state()
    assert (record.mode, record.version, record.rows) == ("rewrite", 4, 4)
    assert sorted(record.replaced) == sorted(before.files)
    assert read(output) == ["1", "2", "3", "4"]
    assert len(after.files) == 1
    assert (after.batches, after.schema) == (before.batches, "{}")
    assert after.visibility == visibility
    assert output.snapshot(roll_forward=False).version == 4
    if visibility == "listed":
        assert listed(store) == ["1", "2", "3", "4"]
        assert after.replaced == {}
    else:
        assert read(output, 3) == ["1", "2", "3", "4"]
        assert output.gc(older_than=0).removed == 3
        with pytest.raises(NotFound, match="expired"):
            output.snapshot(3)
        assert read(output) == ["1", "2", "3", "4"]


@pytest.mark.parametrize("visibility", VISIBILITIES)
def test_a_stream_continues_during_rewrites(visibility: Visibility) -> None:
    """Batches are recognised after their files were merged, and later batches are added."""
    output = open_output(MemoryStore())
    for number in range(6):
        begun = output.begin(batch=Batch("q", number), visibility=visibility)
        files = [stage(output, begun, 0, f"{number}")]
        if number % 2:
            rewrite(output)
        output.commit(begun, files)
        again = output.state().batches["q"]
        assert again[0] == number
    assert read(output) == ["0", "1", "2", "3", "4", "5"]
    assert len(output.snapshot().files) == 2


def test_appends_during_a_rewrite_are_kept() -> None:
    """Files that other jobs add during a merge stay next to the merged file."""
    output = open_output(MemoryStore())
    add(output, "a", "1")
    add(output, "b", "2")
    job, files = rewriting(output)
    add(output, "c", "3")
    output.commit(job, files)
    assert read(output) == ["1", "2", "3"]
    assert len(output.snapshot().files) == 2


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest) -> Place:
    return open_place(request)


@pytest.mark.parametrize("visibility", VISIBILITIES)
def test_a_rewrite_works_on_every_kind_of_store(place: Place, visibility: Visibility) -> None:
    """Readers see the merged file only, and a late rewrite of the same files is refused."""
    with place() as store:
        output = Output(store, "out")
        add(output, "a", "1", visibility=visibility)
        add(output, "b", "2", visibility=visibility)
        late = rewriting(output)
        rewrite(output)
        with pytest.raises(Conflict):
            output.commit(*late)
        output.abort(*late)
        assert read(output) == ["1", "2"]
        assert listed(store) == (["1", "2"] if visibility == "listed" else [])


# -- conflicts -------------------------------------------------------------------------------------


@pytest.mark.parametrize("visibility", VISIBILITIES)
@pytest.mark.parametrize("mode", ["overwrite", "overwrite-partitions", "rewrite"])
def test_files_that_others_replaced_stop_a_rewrite(mode: Mode, visibility: Visibility) -> None:
    """Rows removed during the merge stay removed, and rows merged by another job do not double."""
    store = MemoryStore()
    output = open_output(store)
    add(output, "a", "1", visibility=visibility)
    add(output, "b", "2", visibility=visibility)
    job, files = rewriting(output)
    if mode == "rewrite":
        rewrite(output)
    else:
        add(output, "c", "9", mode=mode, visibility=visibility)
    rows = read(output)
    with pytest.raises(Conflict, match="replaced by another job"):
        output.commit(job, files)
    assert output.abort(job, files) is None
    assert read(output) == rows == (["1", "2"] if mode == "rewrite" else ["9"])
    output.gc(older_than=0)
    assert read(output) == rows


def test_a_concurrent_overwrite_stops_a_rewrite() -> None:
    """The overwrite takes the number of the record before the record arrives."""
    for at in itertools.count(1):
        store = MemoryStore()
        add(open_output(store), "a", "1")
        job, files = rewriting(open_output(store))

        def rival(perform: object, store: MemoryStore = store) -> object:
            add(open_output(store), "b", "9", mode="overwrite")
            return perform()  # type: ignore[operator]

        once = Once(at, rival)
        with contextlib.suppress(Conflict):
            open_output(HookedStore(store, once)).commit(job, files)
        open_output(store).recover(older_than=0)
        if not once.happened:
            break
        assert read(open_output(store)) == listed(store) == ["9"]


def test_a_rewrite_has_as_many_rows_as_before() -> None:
    """Files with more or fewer rows than the replaced files are refused, and nothing is changed."""
    output = open_output(MemoryStore())
    add(output, "a", "1", "2")
    job = output.begin(mode="rewrite", replaces=output.state().files)
    for rows in (("1",), ("1", "2", "2")):
        with pytest.raises(ConfigurationError, match=f"rewrite 2 rows, and its files have {len(rows)}"):
            output.commit(job, [stage(output, job, 0, *rows)])
    assert output.commit(job, [stage(output, job, 0, "1", "2")]).version == 2


def test_files_are_overwritten_by_name() -> None:
    """`overwrite-files` replaces the named files by files with any rows, or by none."""
    store = MemoryStore()
    output = open_output(store)
    for name in ("a", "b", "c"):
        add(output, name, name)
    first, second, _ = output.state().files
    job = output.begin("d", mode="overwrite-files", replaces=[first])
    output.commit(job, [stage(output, job, 0, "x", "y")])
    assert read(output) == listed(store) == ["b", "c", "x", "y"]
    output.commit(output.begin("e", mode="overwrite-files", replaces=[second]), [])
    assert read(output) == listed(store) == ["c", "x", "y"]


def test_only_two_modes_accept_names_of_files() -> None:
    """Other modes refuse names of files, and a name must not occur twice."""
    output = open_output(MemoryStore())
    with pytest.raises(ConfigurationError, match="overwrite-files or rewrite"):
        output.begin(mode="overwrite", replaces=["x"])
    with pytest.raises(ConfigurationError, match="twice"):
        output.begin(mode="rewrite", replaces=["x", "x"])


def test_the_name_of_a_missing_file_is_a_conflict() -> None:
    """It is raised before anything is stored."""
    store = MemoryStore()
    output = open_output(store)
    add(output, "a", "1")
    job = output.begin(mode="rewrite", replaces=["nothing"])
    with pytest.raises(Conflict, match="'nothing'"):
        output.commit(job, [])
    assert list(store.list("out/_commitlog/pending/")) == []


def test_a_repeated_commit_must_name_the_same_files() -> None:
    """The same call returns the record again; a call that names other files is refused."""
    output = open_output(MemoryStore())
    add(output, "a", "1")
    add(output, "b", "2")
    job, files = rewriting(output)
    assert output.commit(job, files) == output.commit(job, files)
    with pytest.raises(ConfigurationError, match="other files"):
        output.commit(evolve(job, replaces=job.replaces[:1]), files)


# -- crashes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("visibility", VISIBILITIES)
@pytest.mark.parametrize("what", ["before", "after", "late"])
def test_a_crash_during_a_rewrite_loses_and_doubles_nothing(what: str, visibility: Visibility) -> None:
    """After a crash at any request log-aware readers see each row once; after recovery all do."""
    files = set()
    for at in itertools.count(1):
        store = MemoryStore()
        add(open_output(store), "a", "1", "2", visibility=visibility)
        add(open_output(store), "b", "3", visibility=visibility)
        once = Once(at, what)
        with contextlib.suppress(Death):
            rewrite(open_output(HookedStore(store, once)))
        output = open_output(store)
        assert read(output) == ["1", "2", "3"]
        once.deliver()
        output.recover(older_than=0)
        assert read(output) == ["1", "2", "3"]
        assert listed(store) == (["1", "2", "3"] if visibility == "listed" else [])
        assert list(store.list_staged()) == []
        assert list(store.list("out/_commitlog/pending/")) == []
        files.add(len(output.snapshot().files))
        if not once.happened:
            break
    assert files == {1, 2}


def test_files_that_cannot_be_removed_are_removed_later() -> None:
    """While merged files are still listed, the commit raises `PublishIncomplete`."""

    def stubborn(name: str, _path: str, mutation: object) -> object:
        return {"x": NotFound("not now")} if name == "delete_many" else mutation()  # type: ignore[operator]

    store = MemoryStore()
    add(open_output(store), "a", "1")
    add(open_output(store), "b", "2")
    with pytest.raises(PublishIncomplete, match="still listed"):
        rewrite(open_output(HookedStore(store, stubborn)))
    assert listed(store) == ["1", "1", "2", "2"]
    assert read(open_output(store)) == listed(store) == ["1", "2"]


# -- long lists ------------------------------------------------------------------------------------


@pytest.fixture
def _short_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """Store more than two files in lists, with three files in each list."""
    monkeypatch.setattr("commitlog.outputs.pending.INLINE_FILES", 2)
    monkeypatch.setattr("commitlog.outputs.log.INLINE_FILES", 2)
    monkeypatch.setattr("commitlog.outputs.manifest.MANIFEST_FILES", 3)


@pytest.mark.usefixtures("_short_lists")
def test_a_long_list_of_names_is_stored_outside_the_record() -> None:
    """The record of a rewrite of many files stays small; readers find the names in the lists."""
    store = MemoryStore()
    output = open_output(store)
    for number in range(7):
        add(output, f"{number}", f"{number}")
    names = tuple(output.state().files)
    record = rewrite(output)
    assert record.replaced == ()
    assert [(each.files, each.rows) for each in record.replaced_manifests] == [(3, 3), (3, 3), (1, 1)]
    assert record.replaced_count == 7
    assert tuple(output.replaced(record)) == names
    assert read(open_output(store)) == listed(store) == [f"{number}" for number in range(7)]
    output.gc(older_than=0)
    assert read(open_output(store)) == [f"{number}" for number in range(7)]


@pytest.mark.usefixtures("_short_lists")
def test_recovery_removes_the_lists_of_an_aborted_attempt() -> None:
    """The driver died before its commit point, and had stored lists of names."""
    store = MemoryStore()
    for number in range(4):
        add(open_output(store), f"{number}", f"{number}")
    job, files = rewriting(open_output(store))
    once = Once(3, "before")  # after the list of names and the pending entry
    with pytest.raises(Death):
        open_output(HookedStore(store, once)).commit(job, files)
    assert len(list(store.list("out/_commitlog/manifests/"))) == 2
    open_output(store).recover(older_than=0)
    assert list(store.list("out/_commitlog/manifests/")) == []
    assert read(open_output(store)) == ["0", "1", "2", "3"]


# -- unreadable records ----------------------------------------------------------------------------


def test_a_mode_of_a_newer_release_is_refused() -> None:
    """A record of an unknown mode is newer: the files that it replaces are not known."""
    store = MemoryStore()
    output = open_output(store)
    record = add(output, "a", "1")
    body = {**record.to_document().body, "job": "b", "mode": "merge"}
    store.put("out/_commitlog/00000000000000000002.json", encode(Document("commit", body)))
    with pytest.raises(FormatTooNew, match="mode 'merge', which this library does not know: upgrade"):
        output.snapshot()


def test_a_record_that_replaces_a_missing_file_is_corrupt() -> None:
    """Such a log was tampered with: rows may be doubled, so none are read."""
    store = MemoryStore()
    output = open_output(store)
    add(output, "a", "1")
    rewrite(output)
    path = "out/_commitlog/00000000000000000002.json"
    body = {k: v for k, v in json.loads(store.get(path).data).items() if k not in ("kind", "format")}
    del body["checksum"]
    store.put(path, encode(Document("commit", {**body, "replaced": ["p=0/other.txt"]})))
    with pytest.raises(CorruptRecord, match=r"replaces 'p=0/other\.txt', which is not part"):
        output.state()


# -- plans -----------------------------------------------------------------------------------------


def suffix(file: DataFile) -> str | None:
    """Return the part of the path after the dot; None without one."""
    return file.path.partition(".")[2] or None


def file(name: str, size: int, p: str = "0") -> DataFile:
    return DataFile(path=f"p={p}/{name}", size=size, nonce="", rows=1, partition={"p": p})


def names(files: Iterable[DataFile], **options: int) -> list[list[str]]:
    """Return the names of the files of each planned group."""
    groups = plan(files, kind=suffix, **{"target_bytes": 100, **options})
    return [[each.path.removeprefix("p=0/") for each in group.files] for group in groups]


def test_small_files_are_merged_up_to_the_target() -> None:
    """A group ends before a file that would make it too large; large files are left alone."""
    files = [file(f"{n}.csv", size) for n, size in enumerate((40, 40, 75, 40, 30, 30, 76, 10))]
    assert names(files) == [["0.csv", "1.csv"], ["3.csv", "4.csv", "5.csv"]]
    assert names([file("0.csv", 74), file("1.csv", 75), file("2.csv", 26)]) == [["0.csv", "2.csv"]]
    assert names([file("0.csv", 25), file("1.csv", 75)]) == []


def test_partitions_and_formats_are_not_mixed() -> None:
    """Files of another partition or format, or of an unknown format, are not merged with others."""
    files = [
        file("0.csv", 1),
        file("1.csv", 1, p="1"),
        file("2.orc", 1),
        file("3", 1),
        file("4.csv", 1),
        file("5", 1),
    ]
    assert names(files) == [["0.csv", "4.csv"]]


def test_few_files_are_left_alone() -> None:
    """Groups with fewer files than `min_files` are not planned."""
    files = [file(f"{n}.csv", 30) for n in range(5)]
    assert names(files, min_files=3) == [["0.csv", "1.csv", "2.csv"]]
    assert names(files, min_files=4) == []


@pytest.mark.parametrize("options", [{"target_bytes": 0}, {"min_files": 1}])
def test_invalid_options_of_a_plan_are_refused(options: dict[str, int]) -> None:
    """A target of no bytes, and groups of single files, are refused."""
    with pytest.raises(ConfigurationError, match="at least 2 files"):
        names([], **options)


sizes = st.integers(0, 120)
outputs = st.lists(
    st.tuples(sizes, st.sampled_from("01"), st.sampled_from(["csv", "orc"])), max_size=30
).map(lambda drawn: [file(f"{n}.{kind}", size, p) for n, (size, p, kind) in enumerate(drawn)])


@given(outputs, st.integers(2, 4))
def test_groups_are_disjoint_and_uniform(files: list[DataFile], least: int) -> None:
    """Each group has one partition and format, the order of the files, and a size within the bounds."""
    groups = plan(files, kind=suffix, target_bytes=100, min_files=least)
    merged = [each.path for group in groups for each in group.files]
    assert len(merged) == len(set(merged))
    order = [each.path for each in files]
    for group in groups:
        assert len(group.files) >= least
        assert group.bytes <= 100
        assert group.rows == len(group.files)
        assert len({(each.partition["p"], suffix(each)) for each in group.files}) == 1
        places = [order.index(each.path) for each in group.files]
        assert places == sorted(places)


@given(outputs)
def test_repeated_merging_ends(files: list[DataFile]) -> None:
    """Each round of planned merges leaves fewer files, until there is no plan."""
    while groups := plan(files, kind=suffix, target_bytes=100):
        gone = {each.path for group in groups for each in group.files}
        merged = [
            file(
                f"{len(files)}-{n}.{suffix(group.files[0])}",
                group.bytes,
                str(group.files[0].partition["p"]),
            )
            for n, group in enumerate(groups)
        ]
        kept = [each for each in files if each.path not in gone]
        assert len(kept) + len(merged) < len(files)
        files = [*kept, *merged]
