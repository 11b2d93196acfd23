"""Local directories: files may have any modification time, and all read files are remembered."""

from __future__ import annotations

import os
import shutil
import tarfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from commitlog.clock import SystemClock
from commitlog.ingest import INGEST_SCHEMA, IngestSettings
from commitlog.stores.local.store import LocalStore
from commitlog.tables.open import open_table
from support.ingest import Checkpoint, Engine

SETTINGS = IngestSettings(source="s", prefix="in/", remember="everything")
LONG_AGO = 1_000_000_000.0


class Place:
    """A directory, a place next to it, and a query of the directory; each batch in a new process."""

    def __init__(self, tmp_path: Path) -> None:
        self.root = tmp_path / "root"
        self.into = self.root / "in"
        self.into.mkdir(parents=True)
        self.beside = tmp_path / "beside"
        self.beside.mkdir()
        self.url = f"sqlite:///{tmp_path}/state.db"
        self.checkpoint = Checkpoint()

    def old(self, name: str, body: bytes = b"1") -> Path:
        """Create an old file next to the directory."""
        file = self.beside / name
        file.write_bytes(body)
        os.utime(file, (LONG_AGO, LONG_AGO))
        return file

    def read(self) -> list[str]:
        """Return the names of the files that are read, until there are no new ones."""
        before = len(self.checkpoint.sink)
        with (
            closing(open_table(self.url, INGEST_SCHEMA)) as table,
            closing(LocalStore(self.root)) as store,
        ):
            table.create()
            engine = Engine(
                store=store,
                table=table,
                settings=SETTINGS,
                clock=SystemClock(),
                checkpoint=self.checkpoint,
            )
            engine.drain()
        found = (self.checkpoint.slices[number] for number in range(before, len(self.checkpoint.sink)))
        return [each.file.path.removeprefix("in/") for batch in found for each in batch]


def _move(old: Path, new: Path) -> None:
    os.rename(old, new)


def _unpack(old: Path, new: Path) -> None:
    with tarfile.open(old.parent / "archive.tar", "w") as made:
        made.add(old, arcname=new.name)
    with tarfile.open(old.parent / "archive.tar") as archive:
        archive.extractall(new.parent, filter="data")


@pytest.mark.parametrize(
    "bring", [_move, shutil.copy2, _unpack, os.link], ids=lambda each: each.__name__
)
def test_a_new_file_with_an_old_time_is_read_once(
    bring: Callable[[Path, Path], object], tmp_path: Path
) -> None:
    """A file that is moved, copied with its time, unpacked or linked is new, whatever its time is."""
    place = Place(tmp_path)
    (place.into / "b").write_bytes(b"22")
    assert place.read() == ["b"]
    for name in ("c", "a"):
        bring(place.old(name), place.into / name)
        assert place.read() == [name]
        assert place.read() == []


def test_a_replacement_of_the_same_size_and_time_is_read(tmp_path: Path) -> None:
    """A replaced file is another version, even if size and time are the same."""
    place = Place(tmp_path)
    shutil.copy2(place.old("a", b"1"), place.into / "a")
    assert place.read() == ["a"]
    os.replace(place.old("a", b"2"), place.into / "a")
    assert place.read() == ["a"]
    assert place.read() == []


def test_a_file_that_is_rewritten_in_place_is_read_again(tmp_path: Path) -> None:
    """Content of the same size that is later written to the same file is another version."""
    place = Place(tmp_path)
    file = place.into / "a"
    file.write_bytes(b"1")
    os.utime(file, (LONG_AGO, LONG_AGO))
    assert place.read() == ["a"]
    file.write_bytes(b"2")
    assert place.read() == ["a"]
    with file.open("ab") as appended:
        appended.write(b"3")
    assert place.read() == ["a"]
    assert place.read() == []


def test_a_new_time_makes_a_new_version(tmp_path: Path) -> None:
    """A touched file is read again, like an object that was copied onto itself."""
    place = Place(tmp_path)
    shutil.copy2(place.old("a"), place.into / "a")
    assert place.read() == ["a"]
    os.utime(place.into / "a")
    assert place.read() == ["a"]
    assert place.read() == []


@pytest.mark.parametrize("written", ["by a store", "by a program"])
def test_permissions_and_links_are_not_part_of_a_version(written: str, tmp_path: Path) -> None:
    """This holds for files of a store and of another program."""
    place = Place(tmp_path)
    if written == "by a store":
        with closing(LocalStore(place.root)) as store:
            store.put("in/a", b"1")
    else:
        (place.into / "a").write_bytes(b"1")
    assert place.read() == ["a"]
    os.chmod(place.into / "a", 0o600)
    os.link(place.into / "a", place.beside / "elsewhere")
    assert place.read() == []
    os.rename(place.into / "a", place.into / "b")
    assert place.read() == ["b"]
    assert place.read() == []
