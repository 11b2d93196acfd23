"""Stored objects as files: requests, memory, and errors."""

from __future__ import annotations

import io
from typing import Any

import pytest

from commitlog.errors import CorruptRecord, InputUnreadable, NotFound, Unavailable
from commitlog.files.io import (
    StoredFile,
    StoredObject,
    convert_errors,
    open_input_file,
    open_output_file,
)
from commitlog.stores import ObjectData
from commitlog.stores.memory import MemoryStore
from support.input_files import Counting as CountingInput
from support.input_files import pinned


def test_a_stored_file_is_read_in_blocks() -> None:
    """Readers that read little at a time make few requests, one for each whole block."""
    store = MemoryStore()
    data = bytes(range(256)) * 40
    store.put("x", data)
    asked: list[tuple[int, int | None]] = []

    class Counting:
        def get(self, path: str, *, start: int = 0, end: int | None = None) -> ObjectData:
            asked.append((start, end))
            return store.get(path, start=start, end=end)

    file = StoredFile(StoredObject(Counting(), "x", len(data)), block=4096)
    for start in range(0, len(data), 100):
        file.seek(start)
        assert file.read(100) == data[start : start + 100]
    assert asked == [(0, 4096), (4096, 8192), (8192, 10240)]
    file.seek(-10, io.SEEK_END)
    assert file.read() == data[-10:] and file.read(5) == b""
    file.seek(4000)
    assert file.read(5000) == data[4000:9000]
    assert len(asked) == 3


def test_a_stored_file_keeps_the_latest_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory is limited: the least recently read block is dropped."""
    monkeypatch.setattr("commitlog.files.io.BLOCKS", 2)
    store = MemoryStore()
    store.put("x", b"abcdef")
    asked: list[int] = []

    class Counting:
        def get(self, path: str, *, start: int = 0, end: int | None = None) -> ObjectData:
            asked.append(start)
            return store.get(path, start=start, end=end)

    file = StoredFile(StoredObject(Counting(), "x", 6), block=2)
    for start in (0, 2, 0, 4, 0, 2):
        file.seek(start)
        file.read(1)
    assert asked == [0, 2, 4, 2]


def test_errors_of_readers_are_converted() -> None:
    """An error in a file of an output is a corrupt record; an input file is unreadable."""
    source = StoredObject.of(pinned(b"data", "x"))
    message = r"'x' cannot be read as ABC: .*bad"
    for error in (ValueError("bad"), OSError("bad"), KeyError("bad"), RecursionError("bad")):
        with pytest.raises(CorruptRecord, match=message) as caught, open_output_file(source, "ABC"):
            raise error
        assert type(caught.value) is CorruptRecord
        with pytest.raises(InputUnreadable, match=message), open_input_file(source, "ABC"):
            raise error
    with (
        pytest.raises(CorruptRecord, match=message) as caught,
        convert_errors("x", "ABC", CorruptRecord),
    ):
        raise InputUnreadable("at byte 5: bad", offset=5)
    assert type(caught.value) is CorruptRecord


class Failing:
    """A store that does not answer."""

    def get(self, path: str, *, start: int = 0, end: int | None = None) -> ObjectData:
        raise Unavailable("no answer")


def read_badly(file: Any) -> None:
    """Read, and replace the error, as pyarrow does in places."""
    try:
        file.read(5)
    except Unavailable:
        raise OSError("a reader failed") from None


def test_errors_of_the_store_are_not_converted() -> None:
    """This holds for built-in errors, and if a reader replaces them by another error."""
    failing = StoredObject(Failing(), "x", 10)
    for opened in (open_output_file(failing, "ABC"), open_input_file(failing, "ABC", small=0)):
        with pytest.raises(Unavailable, match="no answer"), opened as file:
            read_badly(file)
    with pytest.raises(Unavailable), open_input_file(failing, "ABC"):
        pass
    with pytest.raises(NotFound), open_output_file(StoredObject(MemoryStore(), "x", 9), "ABC") as file:
        file.read()


def test_a_small_input_file_is_one_request() -> None:
    """A larger file is read in ranges."""
    small = pinned(b"x" * 100, "x")
    for limit, sizes in ((100, [100]), (99, [10])):
        counting = CountingInput(small.store, small.file)
        with open_input_file(StoredObject.of(counting), "ABC", small=limit) as file:
            assert file.read(10) == b"x" * 10
        assert counting.sizes == sizes
