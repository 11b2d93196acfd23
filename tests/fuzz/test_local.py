"""Damage to the private directory of a local store.

Objects are read correctly, or a typed error names the damage. Foreign files are kept.
"""

from __future__ import annotations

import gc
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from attrs import evolve
from hypothesis import strategies as st

from commitlog.commit.conditional import ConditionalStore
from commitlog.errors import (
    AlreadyExists,
    CommitError,
    CorruptRecord,
    FormatTooNew,
    InvalidPath,
    NotFound,
    PreconditionFailed,
    Unavailable,
)
from commitlog.outputs import Output
from commitlog.stores import IfAbsent, IfMatch, Staged
from commitlog.stores.local.index import Index, IndexRow, Transaction, Upload
from commitlog.stores.local.scratch import LocalWriter, make_base
from commitlog.stores.local.store import LocalStore
from commitlog.testing import ManualClock
from support.fuzzing import HOSTILE, Properties, damaged_bytes, dumps, outcome, scratch

fuzz = Properties()

CALLS: tuple[Callable[[LocalStore], object], ...] = (
    lambda store: store.head("a/1"),
    lambda store: store.get("a/1").data,
    lambda store: [info.path for info in store.list()],
    lambda store: store.list_page("a/", limit=1, delimiter="/"),
    lambda store: [upload.path for upload in store.list_staged()],
    lambda store: store.put("a/new", b"3", condition=IfAbsent()),
    lambda store: store.put("a/1", b"4", condition=IfMatch("nothing")),
    lambda store: store.copy("a/1", "b/1"),
    lambda store: store.publish(store.stage("a/5", b"5", metadata={"x": "y"})),
    lambda store: [store.abort(upload) for upload in store.list_staged()],
    lambda store: store.delete("a/2"),
    lambda store: store.delete_many(["a/1", "b/1"]),
)
#: Errors that a call on an undamaged store may raise.
SOUND = (PreconditionFailed,)


@pytest.fixture(scope="module")
def whole() -> Iterator[Path]:
    """An undamaged store with some objects, and two uploads that wait to be published."""
    with scratch() as directory:
        with closing(open_store(directory / "whole")) as store:
            for number in range(20):
                store.put(f"a/{number}", b"x" * number, metadata={"number": str(number)})
            store.stage("a/staged", b"one")
            store.stage("b/staged", b"two")
        with closing(sqlite3.connect(index_of(directory / "whole"))) as connection:
            connection.execute("PRAGMA journal_mode = DELETE")
        yield directory / "whole"


def open_store(root: Path) -> LocalStore:
    return LocalStore(root, clock=ManualClock(), durable=False)


def index_of(root: Path) -> Path:
    return root / ".commitlog" / "index.sqlite"


def objects(root: Path) -> dict[Path, bytes]:
    """Return the files that are objects."""
    return {path: path.read_bytes() for path in root.glob("a/*")}


def alter(root: Path, statement: str, *values: object) -> None:
    """Change the index directly."""
    with closing(sqlite3.connect(index_of(root), isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute(statement, values)


def use(root: Path, *errors: type[CommitError]) -> list[object]:
    """Return the outcome of each kind of call on the store."""
    with closing(open_store(root)) as store:
        return [outcome(lambda call=call: call(store), *SOUND, *errors) for call in CALLS]


@pytest.fixture
def copy(whole: Path) -> Iterator[Path]:
    """A copy of the undamaged store, to be damaged."""
    yield from _copies(whole)


def _copies(whole: Path) -> Iterator[Path]:
    root = whole.with_name("copy")
    # The inode numbers of the files are in the index, so they must not change.
    shutil.copytree(whole, root, copy_function=os.link)
    index_of(root).unlink()
    shutil.copy(index_of(whole), index_of(root))
    alter(root, "UPDATE home SET inode = ?", index_of(root).stat().st_ino)
    try:
        yield root
    finally:
        shutil.rmtree(root)


def test_an_undamaged_store_works(copy: Path) -> None:
    """Without damage all calls but one succeed, so the other tests are meaningful."""
    found = use(copy)
    assert [type(each) for each in found if isinstance(each, Exception)] == [PreconditionFailed]
    assert found[4] == ["a/staged", "b/staged"]


@fuzz(60, data=st.data())
def test_a_damaged_index_is_read_or_refused(data: st.DataObject, whole: Path) -> None:
    """With a truncated, overwritten or altered index, no call raises an error of SQLite."""
    for root in _copies(whole):
        index = index_of(root)
        index.write_bytes(data.draw(damaged_bytes(index.read_bytes())))
        use(root, CommitError)


@fuzz(60, bits=st.lists(st.integers(0, 40_960 * 8 - 1), min_size=1, max_size=20))
def test_flipped_bits_are_read_or_refused(bits: list[int], whole: Path) -> None:
    """Flipped bits anywhere in the index."""
    for root in _copies(whole):
        index = index_of(root)
        damaged = bytearray(index.read_bytes())
        for bit in bits:
            damaged[bit // 8 % len(damaged)] ^= 1 << bit % 8
        index.write_bytes(damaged)
        use(root, CommitError)


#: Values that a column of SQLite can hold, whatever its declared type.
CELLS = tuple(
    value
    for value in (*HOSTILE, b"", b"\xff", dumps("@bottomless@"), '{"a": 1}', '{"a": "\ud800"}')
    if type(value) is bytes
    or (type(value) is float and value == value)
    or (type(value) is int and abs(value) < 2**63)
    or (type(value) is str and value.isascii())
)


@pytest.mark.parametrize("column", ["token", "metadata"])
def test_an_invalid_row_of_an_object_is_corrupt(column: str, whole: Path) -> None:
    """For any value of a cell, the object has that etag and metadata, or the index is damaged."""
    for cell in CELLS:
        for root in _copies(whole):
            alter(root, f"UPDATE objects SET {column} = ?", cell)
            found = use(root, CorruptRecord)
            assert not isinstance(found[0], Exception) or "index.sqlite is damaged" in str(found[0])


@pytest.mark.parametrize("column", ["upload_id", "path", "initiated"])
def test_an_invalid_row_of_an_upload_is_corrupt(column: str, whole: Path) -> None:
    """For any value of a cell, no file outside of the store's private directory is touched."""
    for cell in CELLS:
        for root in _copies(whole):
            outside = objects(root)
            alter(root, f"UPDATE OR REPLACE staged SET {column} = ?", cell)
            with closing(open_store(root)) as store:
                found = outcome(lambda: list(store.list_staged()), CorruptRecord)
                for upload in () if isinstance(found, Exception) else found:
                    outcome(lambda: store.abort(upload), CommitError)  # noqa: B023
            assert objects(root) == outside


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("PRAGMA user_version = 2", FormatTooNew),
        ("PRAGMA user_version = 0", CorruptRecord),
        ("PRAGMA user_version = -1", CorruptRecord),
        ("DROP TABLE objects", CorruptRecord),
        ("DROP TABLE staged", CorruptRecord),
        ("DROP TABLE home", CorruptRecord),
        ("ALTER TABLE objects DROP COLUMN metadata", CorruptRecord),
        ("UPDATE objects SET token = CAST(x'ff61' AS TEXT)", CorruptRecord),
    ],
)
def test_an_index_with_another_schema_is_not_unavailable(
    statement: str, error: type[CommitError], copy: Path
) -> None:
    """The damage is permanent, so the error does not suggest a retry."""
    alter(copy, statement)
    assert [each for each in use(copy, error) if isinstance(each, error)]


def test_the_error_about_an_empty_index_has_instructions(copy: Path) -> None:
    """Power loss may leave an empty file. After the instructions, the objects still exist."""
    index_of(copy).write_bytes(b"")
    with closing(open_store(copy)) as store:
        with pytest.raises(CorruptRecord, match="stop all writers and remove it"):
            store.get("a/7")
        with pytest.raises(CorruptRecord):
            store.put("a/7", b"")
    index_of(copy).unlink()
    with closing(open_store(copy)) as store:
        assert store.get("a/7").data == b"x" * 7


def test_foreign_files_in_the_private_directory_are_kept(copy: Path) -> None:
    """Directories, links, pipes and files with other names neither stop a store nor are removed."""
    private = copy / ".commitlog"
    for place in (private, private / "writing", private / "staged"):
        (place / "directory").mkdir()
        (place / ("0" * 32)).mkdir()
        (place / "notes.txt").write_text("mine")
        (place / "link").symlink_to("/etc/passwd")
        os.mkfifo(place / "pipe")
    orphan = private / "writing" / ("f" * 32)
    orphan.write_bytes(b"of a writer that died")
    found = use(copy)
    assert [type(each) for each in found if isinstance(each, Exception)] == [PreconditionFailed]
    assert not orphan.exists()
    assert len(list(private.glob("*/notes.txt"))) == 2 and Path("/etc/passwd").exists()


def test_foreign_entries_next_to_objects_are_ignored(copy: Path) -> None:
    """Links, pipes and invalid names are not listed, read or followed."""
    (copy / "a" / "link").symlink_to("/etc/passwd")
    os.mkfifo(copy / "a" / "pipe")
    (copy / "a" / "new\nline").write_text("x")
    with open(os.path.join(os.fsencode(copy), b"a", b"\xff"), "wb"):
        pass
    with closing(open_store(copy)) as store:
        assert {info.path for info in store.list()} == {f"a/{number}" for number in range(20)}
        for path in ("a/link", "a/pipe", "a/new\nline", "a/\udcff"):
            assert isinstance(outcome(lambda: store.get(path), InvalidPath, NotFound), Exception)  # noqa: B023


@pytest.mark.parametrize("upload_id", ["", "../../a/1", "0" * 32, "x", "\0", "a" * 5000])
def test_an_upload_with_an_invalid_id_is_not_found(upload_id: str, copy: Path) -> None:
    """An upload id from a log cannot make the store touch another file."""
    staged = Staged(path="a/9", upload_id=upload_id, size=1, nonce="n")
    with closing(open_store(copy)) as store:
        with pytest.raises(NotFound):
            store.publish(staged)
        store.abort(staged)
        assert store.get("a/1").data == b"x"
        assert store.get("a/9").data == b"x" * 9


class FullIndex(Index):
    """An index whose disk is full when a transaction is committed."""

    @contextmanager
    def recording(self, *, durable: bool = True) -> Iterator[Transaction]:
        with super().recording(durable=durable) as transaction:
            yield transaction
        raise Unavailable("the disk is full")


def test_an_unrecorded_upload_leaves_no_open_file(copy: Path) -> None:
    """If its record cannot be committed, the body of a new upload is closed. A warning would fail."""
    base = make_base(str(copy), durable=False)
    index = FullIndex(str(index_of(copy)), base.identity, lambda _: None, durable=False)
    record = Upload("e" * 32, "a/x", 0.0)
    with closing(base.index), closing(index), pytest.raises(Unavailable, match="full"):
        LocalWriter(evolve(base, index=index), record, "a/x", IndexRow("token", {}))
    gc.collect()


def test_recovery_is_not_stopped_by_a_stray_directory(copy: Path) -> None:
    """A backup of a directory inside itself does not prevent the recovery of jobs."""
    shutil.copytree(copy / ".commitlog" / "staged", copy / ".commitlog" / "staged" / "backup")
    with closing(open_store(copy)) as store:
        output = Output(ConditionalStore(store, clock=ManualClock()), "out", clock=ManualClock())
        job = output.begin("daily")
        output.commit(job, [output.stage(job, job.file_name(0), b"1")])
        assert not output.recover(older_than=0).aborted
        with pytest.raises(AlreadyExists):
            output.begin("daily")


@pytest.mark.campaign
def test_campaign(campaign_seconds: float, campaign_seed: int, whole: Path) -> None:
    """Run all properties with new examples, for the given time."""
    print(f"{fuzz.campaign(campaign_seconds, campaign_seed, whole=whole)} examples")
