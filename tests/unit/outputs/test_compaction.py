"""Outputs whose files are replaced by name: what `rewrite` keeps, what stops it, and plans for it."""

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
    """Stage a file of partition `p` with a row a line."""
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
    """Commit a job with a file."""
    job = output.begin(job_id, mode=mode, visibility=visibility, batch=batch)
    return output.commit(job, [stage(output, job, 0, *rows, p=p)] if rows else [])


def rows_of(output: Output, files: Iterable[DataFile]) -> list[str]:
    """Return the rows of `files`."""
    data = (output.store.get(output.locate(file)).data for file in files)
    return [line for each in data for line in each.decode().splitlines()]


def read(output: Output, version: int | None = None) -> list[str]:
    """Return the rows of a version, sorted."""
    return sorted(rows_of(output, output.snapshot(version).files))


def listed(store: ObjectStore | ConditionalStore) -> list[str]:
    """Return the rows that a plain listing shows, sorted."""
    return sorted(line for data in visible(store).values() for line in data.decode().splitlines())


def rewriting(output: Output, files: Iterable[DataFile] | None = None) -> tuple[Job, list[StagedFile]]:
    """Begin to merge `files`, or all of them, and stage what they become."""
    chosen = list(output.snapshot().files if files is None else files)
    job = output.begin(mode="rewrite", replaces=[file.path for file in chosen])
    return job, [stage(output, job, 0, *rows_of(output, chosen))]


def rewrite(output: Output) -> CommitRecord:
    """Merge all files."""
    return output.commit(*rewriting(output))


# -- what is kept ----------------------------------------------------------------------------------


@pytest.mark.parametrize("visibility", VISIBILITIES)
def test_a_rewrite_changes_nothing_but_the_files(visibility: Visibility) -> None:
    """Rows, jobs, batches and schema are what they were; there is one file where there were three."""
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
    assert (after.jobs, after.batches, after.schema) == (before.jobs, before.batches, "{}")
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
def test_a_stream_goes_on_beside_rewrites(visibility: Visibility) -> None:
    """Batches are recognised after their files were merged, and later ones are added."""
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


def test_appends_meanwhile_are_kept() -> None:
    """What other jobs add while files are merged is there beside what they become."""
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
def test_every_kind_of_store_will_do(place: Place, visibility: Visibility) -> None:
    """Readers see the merged file alone, and a late rewrite of the same files is stopped."""
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


# -- what stops it ---------------------------------------------------------------------------------


@pytest.mark.parametrize("visibility", VISIBILITIES)
@pytest.mark.parametrize("mode", ["overwrite", "overwrite-partitions", "rewrite"])
def test_files_that_others_replaced_stop_a_rewrite(mode: Mode, visibility: Visibility) -> None:
    """What was removed while it was merged stays removed, and merged once it is not doubled."""
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


def test_a_number_that_is_taken_is_looked_at() -> None:
    """An overwrite that takes the number while the record is on its way stops the rewrite."""
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
    """Files with more or fewer rows than those that they replace are refused, and nothing is changed."""
    output = open_output(MemoryStore())
    add(output, "a", "1", "2")
    job = output.begin(mode="rewrite", replaces=output.state().files)
    for rows in (("1",), ("1", "2", "2")):
        with pytest.raises(ConfigurationError, match=f"rewrite 2 rows, and its files have {len(rows)}"):
            output.commit(job, [stage(output, job, 0, *rows)])
    assert output.commit(job, [stage(output, job, 0, "1", "2")]).version == 2


def test_files_are_overwritten_by_name() -> None:
    """`overwrite-files` replaces what it names by any rows, or by none."""
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


def test_only_some_modes_name_files() -> None:
    """A job of another mode that names files is refused, and so is a file that is named twice."""
    output = open_output(MemoryStore())
    with pytest.raises(ConfigurationError, match="overwrite-files or rewrite"):
        output.begin(mode="overwrite", replaces=["x"])
    with pytest.raises(ConfigurationError, match="twice"):
        output.begin(mode="rewrite", replaces=["x", "x"])


def test_a_file_that_was_never_there_stops_it() -> None:
    """Names that are none of the output's are a conflict, before anything is stored."""
    store = MemoryStore()
    output = open_output(store)
    add(output, "a", "1")
    job = output.begin(mode="rewrite", replaces=["nothing"])
    with pytest.raises(Conflict, match="'nothing'"):
        output.commit(job, [])
    assert list(store.list("out/_commitlog/pending/")) == []


def test_a_commit_that_is_called_again_names_the_same() -> None:
    """The same call returns the record again; one that names other files is told of it."""
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
def test_a_driver_that_dies_while_rewriting_loses_and_doubles_nothing(
    what: str, visibility: Visibility
) -> None:
    """Wherever it dies, log-aware readers see each row once, and after a recovery all readers do."""
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


def test_what_cannot_be_removed_is_reported_and_removed_later() -> None:
    """While the merged files are still listed beside the new one, the caller is told of it."""

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
    """Make two files a long list, and lists of three files each."""
    monkeypatch.setattr("commitlog.outputs.pending.INLINE_FILES", 2)
    monkeypatch.setattr("commitlog.outputs.log.INLINE_FILES", 2)
    monkeypatch.setattr("commitlog.outputs.manifest.MANIFEST_FILES", 3)


@pytest.mark.usefixtures("_short_lists")
def test_a_long_list_of_names_is_kept_beside_the_record() -> None:
    """The record of a rewrite of many files stays small; readers find the names all the same."""
    store = MemoryStore()
    output = open_output(store)
    for number in range(7):
        add(output, f"{number}", f"{number}")
    names = tuple(output.state().files)
    record = rewrite(output)
    assert record.replaced == ()
    assert [(each.files, each.rows) for each in record.replaced_manifests] == [(3, 3), (3, 3), (1, 1)]
    assert tuple(output.replaced(record)) == names
    assert read(open_output(store)) == listed(store) == [f"{number}" for number in range(7)]
    output.gc(older_than=0)
    assert read(open_output(store)) == [f"{number}" for number in range(7)]


@pytest.mark.usefixtures("_short_lists")
def test_lists_of_names_go_with_an_attempt_that_is_ruled_out() -> None:
    """What a driver listed that died before its commit point is removed by the recovery."""
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


# -- what cannot be read ---------------------------------------------------------------------------


def test_a_mode_of_a_later_release_is_refused() -> None:
    """A record of a mode that is not known here is newer: what it replaces cannot be told."""
    store = MemoryStore()
    output = open_output(store)
    record = add(output, "a", "1")
    body = {**record.to_document().body, "job": "b", "mode": "merge"}
    store.put("out/_commitlog/00000000000000000002.json", encode(Document("commit", body)))
    with pytest.raises(FormatTooNew, match="mode 'merge', which this library does not know: upgrade"):
        output.snapshot()


def test_a_record_that_replaces_what_is_not_there_is_corrupt() -> None:
    """Such a log was tampered with: rows may be doubled, so nothing is read of it."""
    store = MemoryStore()
    output = open_output(store)
    add(output, "a", "1")
    rewrite(output)
    path = "out/_commitlog/00000000000000000002.json"
    body = {k: v for k, v in json.loads(store.get(path).data).items() if k not in ("kind", "format")}
    del body["checksum"]
    store.put(path, encode(Document("commit", {**body, "replaced": ["p=0/other.txt"]})))
    with pytest.raises(CorruptRecord, match=r"replaces 'p=0/other\.txt', which is no part"):
        output.state()


# -- plans -----------------------------------------------------------------------------------------


def suffix(file: DataFile) -> str | None:
    """Return what follows the dot, None if nothing does."""
    return file.path.partition(".")[2] or None


def file(name: str, size: int, p: str = "0") -> DataFile:
    return DataFile(path=f"p={p}/{name}", size=size, nonce="", rows=1, partition={"p": p})


def names(files: Iterable[DataFile], **options: int) -> list[list[str]]:
    """Return the names of the files of each planned group."""
    groups = plan(files, kind=suffix, **{"target_bytes": 100, **options})
    return [[each.path.removeprefix("p=0/") for each in group.files] for group in groups]


def test_small_files_are_merged_up_to_the_target() -> None:
    """Groups end where the next file would make them too large; large files are left alone."""
    files = [file(f"{n}.csv", size) for n, size in enumerate((40, 40, 75, 40, 30, 30, 76, 10))]
    assert names(files) == [["0.csv", "1.csv"], ["3.csv", "4.csv", "5.csv"]]
    assert names([file("0.csv", 74), file("1.csv", 75), file("2.csv", 26)]) == [["0.csv", "2.csv"]]
    assert names([file("0.csv", 25), file("1.csv", 75)]) == []


def test_partitions_and_kinds_are_kept_apart() -> None:
    """Files of another partition or format, or of none that is known, are not merged with others."""
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
    """Groups of fewer files than asked for are not worth it."""
    files = [file(f"{n}.csv", 30) for n in range(5)]
    assert names(files, min_files=3) == [["0.csv", "1.csv", "2.csv"]]
    assert names(files, min_files=4) == []


@pytest.mark.parametrize("options", [{"target_bytes": 0}, {"min_files": 1}])
def test_a_plan_makes_sense(options: dict[str, int]) -> None:
    """No bytes, or single files, are refused."""
    with pytest.raises(ConfigurationError, match="at least 2 files"):
        names([], **options)


sizes = st.integers(0, 120)
outputs = st.lists(
    st.tuples(sizes, st.sampled_from("01"), st.sampled_from(["csv", "orc"])), max_size=30
).map(lambda drawn: [file(f"{n}.{kind}", size, p) for n, (size, p, kind) in enumerate(drawn)])


@given(outputs, st.integers(2, 4))
def test_groups_are_disjoint_and_alike(files: list[DataFile], least: int) -> None:
    """Whatever there is, groups are of one partition and kind, in order, and within their bounds."""
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
def test_merging_comes_to_an_end(files: list[DataFile]) -> None:
    """Merge what is planned, as often as anything is: each time there are fewer files, then no plan."""
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
