"""Outputs in directories of another output: jobs of the outer one replace their files."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from commitlog.commit import ConditionalStore
from commitlog.connect import connect
from commitlog.errors import (
    AlreadyExists,
    CorruptRecord,
    InvalidPath,
    NotSupported,
    PublishIncomplete,
    Unavailable,
)
from commitlog.outputs import CommitRecord, Mode, Output, Visibility
from commitlog.outputs.foreign import survey
from commitlog.stores.api import Page
from commitlog.stores.memory import MemoryStore
from support.outputs import PLACES, Death, HookedStore, Once, Place, add_job, open_output, open_place


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest) -> Place:
    return open_place(request)


def add(
    output: Output,
    rows: str,
    *,
    mode: Mode = "append",
    below: str = "",
    visibility: Visibility | None = None,
    replaces: Iterable[str] = (),
) -> CommitRecord:
    """Commit a job with one file of these rows in the directory `below`."""
    job = output.begin(mode=mode, visibility=visibility, replaces=replaces)
    partition = dict(part.split("=") for part in below.split("/") if part)
    file = output.stage(job, below + job.file_name(0), rows.encode(), partition=partition)
    return output.commit(job, [file])


def listed(store: ConditionalStore) -> list[str]:
    """Return the rows that readers of the whole directory see."""
    found = survey(store.list("out/"), "out/").files
    return sorted(store.get(f"out/{file.path}").data.decode() for file in found)


def logged(output: Output) -> list[str]:
    """Return the rows that readers of a log see."""
    files = output.snapshot().files
    return sorted(output.store.get(output.locate(file)).data.decode() for file in files)


def test_an_overwrite_replaces_the_partitions_that_are_outputs(place: Place) -> None:
    """Both kinds of readers see the new rows alone; the log of the partition shows no hole."""
    with place() as store:
        top, day = Output(store, "out"), Output(store, "out/p=1")
        add(day, "by path")
        add(day, "by path too")
        add(top, "old", below="p=2/")
        record = add(top, "new", mode="overwrite", below="p=1/")
        assert {file.output for file in record.foreign} == {"p=1"}
        assert listed(store) == logged(top) == ["new"]
        assert logged(day) == []
        add(day, "later")
        assert (listed(store), logged(day)) == (["later", "new"], ["later"])
        assert top.recover(older_than=0).completed == ()


def test_only_the_partitions_of_the_job_are_replaced(place: Place) -> None:
    """A listing of p=0/q=1/ does not show that p=0/ is another output."""
    with place() as store:
        top, inner, other = (Output(store, each) for each in ("out", "out/p=0", "out/p=1"))
        add(inner, "inner 1", below="q=1/")
        add(inner, "inner 2", below="q=2/")
        add(other, "other", below="q=1/")
        add(top, "new", mode="overwrite-partitions", below="p=0/q=1/")
        assert listed(store) == ["inner 2", "new", "other"]
        assert (logged(inner), logged(other)) == (["inner 2"], ["other"])


def test_a_log_that_is_marked_as_a_directory_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first page of such a listing on S3 may have no objects."""
    real = MemoryStore.list_page

    def list_page(self: MemoryStore, prefix: str = "", **options: Any) -> Page:
        if prefix == "out/p=0/_commitlog/" and options.get("token") is None:
            return Page(objects=(), next_token=prefix)
        return real(self, prefix, **options)

    monkeypatch.setattr(MemoryStore, "list_page", list_page)
    top = open_output(MemoryStore())
    inner = Output(top.store, "out/p=0")
    add(inner, "inner", below="q=1/")
    add(top, "new", mode="overwrite-partitions", below="p=0/q=1/")
    assert logged(inner) == []


def test_files_that_only_a_log_shows_are_replaced() -> None:
    """They are replaced in the log, where older versions stay readable; outputs may be nested twice."""
    top = open_output(MemoryStore())
    hidden, twice = Output(top.store, "out/p=1"), Output(top.store, "out/p=1/q=1")
    add(hidden, "hidden", visibility="logged")
    begun = hidden.begin(visibility="logged")
    staged = hidden.stage(begun, begun.file_name(0), b"uncommitted")
    add(twice, "twice")
    add(top, "new", mode="overwrite")
    assert (logged(hidden), logged(twice), listed(top.store)) == ([], [], ["new"])
    [old] = hidden.snapshot(1).files
    assert hidden.store.get(hidden.locate(old)).data == b"hidden"
    hidden.commit(begun, [staged])
    assert logged(hidden) == ["uncommitted"]


def test_an_output_that_is_no_partition_is_not_overwritten() -> None:
    """Nobody meant its rows; the job is refused before its commit point. An append does not mind."""
    top = open_output(MemoryStore())
    other = Output(top.store, "out/p=1/archive")
    add(other, "kept")
    job = top.begin("a", mode="overwrite")
    with pytest.raises(NotSupported, match="'p=1/archive' is an output of its own"):
        top.commit(job, ())
    assert list(top.log()) == []
    add(top, "new")
    assert listed(top.store) == ["kept", "new"]


@pytest.mark.parametrize("name", ["_delta_log/0.json", "p=1/.hoodie/x", "_commitlog"])
def test_a_table_of_another_format_is_not_overwritten(name: str) -> None:
    top = open_output(MemoryStore())
    top.store.put(f"out/{name}", b"")
    if name == "_commitlog":  # an object of that name is no log
        add(top, "new", mode="overwrite")
        return
    with pytest.raises(NotSupported, match=r"is the log of a table of another format"):
        add(top, "new", mode="overwrite")
    assert list(top.log()) == []


def test_mode_error_counts_the_rows_of_a_partition_that_is_an_output() -> None:
    top = open_output(MemoryStore())
    add(Output(top.store, "out/p=1"), "by path")
    with pytest.raises(AlreadyExists):
        top.begin(mode="error")


def test_a_damaged_log_below_is_an_error_before_the_commit_point() -> None:
    top = open_output(MemoryStore())
    add(Output(top.store, "out/p=1"), "by path")
    top.store.put("out/p=1/_commitlog/00000000000000000001.json", b"{")
    with pytest.raises(CorruptRecord):
        add(top, "new", mode="overwrite")
    assert list(top.log()) == []


@pytest.mark.parametrize("what", ["before", "after"])
def test_a_crash_loses_and_doubles_nothing(what: str) -> None:
    """Before the commit point all rows of the partition are there; after a recovery past it, none is."""
    seen = set()
    for at in itertools.count(1):
        store = MemoryStore()
        add(Output(open_output(store).store, "out/p=1"), "old")
        once = Once(at, what)
        with contextlib.suppress(Death):
            add(open_output(HookedStore(store, once)), "new", mode="overwrite")
        top, day = open_output(store), Output(open_output(store).store, "out/p=1")
        committed = bool(list(top.log()))
        later = add(day, "later")  # before the recovery
        top.recover(older_than=0)
        day.recover(older_than=0)
        want = ["later"] if committed else ["later", "old"]
        assert logged(day) == want
        assert listed(top.store) == [*want, "new"] if committed else want
        assert {file.path for file in later.files} <= {file.path for file in day.snapshot().files}
        assert list(store.list("out/_commitlog/pending/")) == []
        assert list(store.list("out/p=1/_commitlog/pending/")) == []
        seen.add(committed)
        if not once.happened:
            break
    assert seen == {False, True}


def _dies(_name: str, path: str, mutation: Callable[[], Any]) -> Any:
    """Die before anything is written below p=1/."""
    if path.startswith("out/p=1/"):
        raise Death
    return mutation()


def test_rows_that_were_merged_meanwhile_are_replaced(caplog: pytest.LogCaptureFixture) -> None:
    """A compaction between the commit point and the recovery moves rows to another file."""
    for mixed in (False, True):
        store = MemoryStore()
        day = Output(open_output(store).store, "out/p=1")
        add(day, "a")
        add(day, "b")
        with pytest.raises(Death):
            add(open_output(HookedStore(store, _dies)), "new", mode="overwrite")
        if mixed:
            add(day, "c")
        merged = [file.path for file in day.snapshot().files]
        add(day, "merged", mode="rewrite", replaces=merged)
        open_output(store).recover(older_than=0)
        assert listed(day.store) == (["merged", "new"] if mixed else ["new"])
        assert ("both stay" in caplog.text) == mixed


def test_rows_of_a_partition_that_cannot_be_removed_are_left_to_a_later_recovery() -> None:
    """Its log has replaced them already, but a listing still shows them."""
    store = MemoryStore()
    day = Output(open_output(store).store, "out/p=1")
    add(day, "old")

    def stubborn(name: str, _path: str, mutation: Callable[[], Any]) -> Any:
        if name == "delete_many":
            raise Unavailable("not now")
        return mutation()

    with pytest.raises(PublishIncomplete):
        add(open_output(HookedStore(store, stubborn)), "new", mode="overwrite")
    assert logged(open_output(HookedStore(store, stubborn))) == ["new"]
    with pytest.raises(PublishIncomplete):
        open_output(HookedStore(store, stubborn)).recover(older_than=0)
    assert listed(day.store) == ["new", "old"]
    open_output(store).recover(older_than=0)
    assert listed(day.store) == ["new"]


def test_directories_with_an_index_of_their_own_are_overwritten(tmp_path: Path) -> None:
    """Local partitions that were written first have an index; jobs at the top publish there, too."""
    for number in (1, 2):
        with connect(f"{tmp_path}/out/p={number}") as store:
            add(Output(store), f"by path {number}")
    with connect(str(tmp_path)) as store:
        top = Output(store, "out")
        add(top, "added", below="p=1/")
        assert listed(store) == ["added", "by path 1", "by path 2"]
        add(top, "new", mode="overwrite", below="p=1/")
        assert listed(store) == logged(top) == ["new"]
    with connect(f"{tmp_path}/out/p=1") as store:
        assert logged(Output(store)) == []


@pytest.mark.parametrize("way", ["move", "overwrite"])
def test_an_output_with_something_in_the_way_of_a_file_has_a_way_out(tmp_path: Path, way: str) -> None:
    """A file came to the place of a directory before the job was published. No row is lost."""
    with connect(str(tmp_path)) as store:
        top = Output(store, "out")
        job = top.begin("a")
        files = [
            top.stage(job, f"p={p}/{job.file_name(p)}", b"a", partition={"p": str(p)}) for p in (1, 2)
        ]
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "p=1").write_bytes(b"in the way")
        with pytest.raises(PublishIncomplete, match="once you have moved the file or directory"):
            top.commit(job, files)
        with pytest.raises(PublishIncomplete):
            top.recover(older_than=0)
        with pytest.raises(InvalidPath, match="'out/p=1' is an object"):
            add(top, "b", below="p=1/", mode="overwrite")
        if way == "move":
            (tmp_path / "out" / "p=1").rename(tmp_path / "moved")
            assert top.recover(older_than=0).completed == (1,)
            assert listed(store) == logged(top) == ["a", "a"]
        else:
            add(top, "b", below="p=2/", mode="overwrite")
            assert listed(store) == logged(top) == ["b"]
            assert top.recover(older_than=0).lost == ()
        assert list(store.list_staged()) == []


def test_add_job_is_not_disturbed_by_an_empty_output_below() -> None:
    top = open_output(MemoryStore())
    add(Output(top.store, "out/p=0"), "old")
    add_job(top, "a", 0, mode="overwrite")
    add_job(top, "b", 0, mode="overwrite-partitions")
    assert logged(top) == ["b 0"]
