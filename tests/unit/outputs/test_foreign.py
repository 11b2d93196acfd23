"""Files in the directory of an output that none of its jobs wrote."""

from __future__ import annotations

import contextlib
import itertools

import pytest

from commitlog.commit import ConditionalStore
from commitlog.errors import AlreadyExists, InvalidPath
from commitlog.outputs import Mode, Output, Visibility
from commitlog.outputs.foreign import ForeignFile, survey
from commitlog.stores import ObjectStore
from commitlog.stores.memory import MemoryStore
from support.outputs import PLACES, Death, HookedStore, Once, Place, add_job, open_output, open_place

#: Files of another program, and names that readers skip or that belong to another output.
LEFT = ("plain.csv", "p=0/old.csv", "p=0/q=1/old.csv", "p=%30/old.csv", "p=7/old.csv", "_p=1/old.csv")
SKIPPED = (
    "_temporary/0/part.csv",
    ".hidden/part.csv",
    "p=0/.old.csv.crc",
    "p=0/_SUCCESS",
    "p=9_$folder$",
)

#: Files that tell readers what to read.
METADATA = ("_metadata", "p=0/_common_metadata", "_spark_metadata/0", "_spark_metadata/.0.crc")


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest) -> Place:
    return open_place(request)


def leave(store: ObjectStore | ConditionalStore, *names: str) -> None:
    """Write files as another program does."""
    for name in names:
        store.put(f"out/{name}", f"left {name}".encode())


def left(store: ObjectStore | ConditionalStore) -> set[str]:
    """Return the files of `LEFT`, `SKIPPED` and `METADATA` that exist."""
    there = {info.path.removeprefix("out/") for info in store.list("out/")}
    return there & {*LEFT, *SKIPPED, *METADATA}


def rows(store: ObjectStore | ConditionalStore) -> list[str]:
    """Return the rows that readers of the directory see."""
    found = survey(store.list("out/"), "out/").files
    paths = [f"out/{file.path}" for file in found if not file.is_metadata]
    return sorted(store.get(path).data.decode() for path in paths)


def test_an_overwrite_replaces_foreign_files(place: Place) -> None:
    """Readers of the directory see only the rows of the new version, on every kind of store."""
    with place() as store:
        leave(store, *LEFT, *SKIPPED, *METADATA)
        output = Output(store, "out")
        assert {file.path for file in output.foreign()} == set(LEFT)
        record = add_job(output, "a", 0, 1, mode="overwrite")
        assert {file.path for file in record.foreign} == {*LEFT, *METADATA}
        assert left(store) == set(SKIPPED)
        assert rows(store) == ["a 0", "a 1"]
        assert list(output.foreign()) == []
        assert next(output.log()) == record


def test_foreign_files_are_replaced_by_partition(place: Place) -> None:
    """Foreign files in the partitions of a job are replaced, and no others."""
    with place() as store:
        leave(store, *LEFT, "p=0/_common_metadata", "p=7/_spark_metadata/0")
        output = Output(store, "out")
        add_job(output, "a", 0, 1, mode="overwrite-partitions")
        # p=%30 is partition 0, too, but the job has no file in that directory.
        assert "out/p=7/_spark_metadata/0" in {info.path for info in store.list("out/")}
        assert left(store) == {"plain.csv", "p=%30/old.csv", "p=7/old.csv", "_p=1/old.csv"}
        add_job(output, "b", 7, mode="overwrite-partitions")
        assert left(store) == {"plain.csv", "p=%30/old.csv", "_p=1/old.csv"}


def test_files_without_a_partition_replace_files_without_one() -> None:
    """This holds for foreign files and for the output's own files; partitions stay as they are."""
    store = MemoryStore()
    leave(store, *LEFT, "sub/plain.csv")
    output = open_output(store)
    add_job(output, "a", 0)
    for job_id in ("b", "c"):
        job = output.begin(job_id, mode="overwrite-partitions")
        output.commit(job, [output.stage(job, job.file_name(0, suffix=".csv"), job_id.encode())])
    assert rows(store) == sorted(["a 0", "c", *(f"left {name}" for name in LEFT if "=" in name)])


def test_an_append_keeps_foreign_files() -> None:
    """They stay, appends and merges do not include them, and the next overwrite replaces them."""
    store = MemoryStore()
    leave(store, *LEFT)
    output = open_output(store)
    add_job(output, "a", 0)
    add_job(output, "b", 1)
    assert left(store) == set(LEFT)
    assert len(output.snapshot().files) == 2
    add_job(output, "c", 5, mode="overwrite")
    assert rows(store) == ["c 5"]


def test_mode_error_refuses_foreign_files() -> None:
    """It refuses a directory with such files when the job begins and at the commit point."""
    store = MemoryStore()
    leave(store, *SKIPPED, *METADATA)
    output = open_output(store)
    job = output.begin("late", mode="error")
    leave(store, "plain.csv")
    with pytest.raises(AlreadyExists, match=r"written without it, such as 'plain\.csv'"):
        output.commit(job, ())
    with pytest.raises(AlreadyExists, match=r"written without it, such as 'plain\.csv'"):
        output.begin("a", mode="error")
    assert list(output.log()) == []
    store.delete("out/plain.csv")
    assert output.commit(job, ()).version == 1


@pytest.mark.parametrize("visibility", ["listed", "logged"])
@pytest.mark.parametrize("mode", ["overwrite", "overwrite-partitions"])
@pytest.mark.parametrize("what", ["before", "after"])
def test_a_crash_loses_and_doubles_nothing(what: str, mode: Mode, visibility: Visibility) -> None:
    """Before the commit point all foreign files exist; after a recovery past it, none does."""
    seen = set()
    for at in itertools.count(1):
        store = MemoryStore()
        leave(store, "p=0/old.csv", "p=1/old.csv")
        once = Once(at, what)
        with contextlib.suppress(Death):
            add_job(open_output(HookedStore(store, once)), "b", 0, 1, mode=mode, visibility=visibility)
        output = open_output(store)
        committed = bool(list(output.log()))
        old = ["left p=0/old.csv", "left p=1/old.csv"]
        if not committed:
            assert rows(store) == old
        output.recover(older_than=0)
        new = ["b 0", "b 1"] if visibility == "listed" else []
        assert rows(store) == (new if committed else old)
        assert list(store.list("out/_commitlog/pending/")) == []
        seen.add(committed)
        if not once.happened:
            break
    assert seen == {False, True}


def test_a_foreign_file_that_was_written_again_is_not_removed() -> None:
    """The record of a dead driver names a file by its etag, and not a later file of the same name."""
    store = MemoryStore()
    leave(store, "p=0/old.csv", "p=1/old.csv")

    class Dies(HookedStore):
        def delete_many(self, paths: object) -> object:  # type: ignore[override]
            raise Death

    with pytest.raises(Death):
        add_job(open_output(Dies(store)), "b", 0, mode="overwrite")
    store.put("out/p=0/old.csv", b"written again")
    open_output(store).recover(older_than=0)
    assert rows(store) == ["b 0", "written again"]


def test_many_foreign_files_are_stored_in_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """The record names the lists, and a recovery reads them."""
    monkeypatch.setattr("commitlog.outputs.log.INLINE_FILES", 2)
    monkeypatch.setattr("commitlog.outputs.manifest.MANIFEST_FILES", 3)
    store = MemoryStore()
    leave(store, *LEFT)
    record = add_job(open_output(store), "a", 3, mode="overwrite")
    assert (record.foreign, [each.files for each in record.foreign_manifests]) == ((), [3, 3])
    assert rows(store) == ["a 3"]
    assert next(open_output(store).log()) == record
    open_output(store).gc(older_than=0)
    assert len(list(store.list("out/_commitlog/manifests/"))) == 2


def test_a_copy_of_an_output_has_no_foreign_files() -> None:
    """In a copy the paths do not show whose a file is, and the log does."""
    store = MemoryStore()
    add_job(open_output(store), "a", 0)
    for info in list(store.list("out/")):
        store.copy(info.path, info.path.replace("out/", "copy/", 1))
    copy = Output(open_output(store).store, "copy")
    assert list(copy.foreign()) == []
    add_job(copy, "b", 1, mode="overwrite-partitions")
    assert len(copy.snapshot().files) == 2


def test_names_like_those_of_pyarrow_are_foreign() -> None:
    """Files of pyarrow have 32 digits in their names, too, and are still foreign."""
    store = MemoryStore()
    leave(store, "0123456789abcdef0123456789abcdef-0.csv")
    add_job(open_output(store), "a", 0, mode="overwrite")
    assert rows(store) == ["a 0"]


def test_an_invalid_foreign_name_is_refused_before_the_commit_point() -> None:
    """S3 lists such names. A record with one could not be read again, and so the output could not be."""
    output = open_output(MemoryStore())
    job = output.begin("a", mode="overwrite")
    foreign = [ForeignFile(path="p=0/a\nb.csv", size=1, etag="e")]
    with pytest.raises(InvalidPath, match=r"control character.*Nothing was added"):
        output.commit(job, (), foreign=foreign)
    assert output.snapshot().version == 0
    assert output.commit(job, (), foreign=()).version == 1
