"""What all formats have in common, without Spark."""

from __future__ import annotations

import io

import pyarrow as pa
import pytest

from commitlog.errors import CorruptRecord, NotFound, NotSupported, Unavailable
from commitlog.spark.files import OUTPUT_FORMATS, StoredObject, base, output_format_of
from commitlog.spark.files.io import StoredFile
from commitlog.stores import ObjectData
from commitlog.stores.memory import MemoryStore
from support.output_files import EVERY, read, rows_for, write

NUMBERS = pa.schema([pa.field("a", pa.int64()), pa.field("b.c", pa.string())])


def numbers(rows: int, start: int = 0) -> pa.RecordBatch:
    """Return some rows."""
    found = range(start, start + rows)
    return pa.record_batch([list(found), [f"text {n}" for n in found]], schema=NUMBERS)


@pytest.mark.parametrize(("name", "compression"), EVERY)
def test_rows_come_back_as_they_went(name: str, compression: str) -> None:
    """Every type, nulls, hostile text and nesting survive in every format and compression."""
    batch = rows_for(name)
    OUTPUT_FORMATS[name].check(batch.schema)
    data, _ = write(OUTPUT_FORMATS[name], batch.slice(0, 3), batch.slice(3), compression=compression)
    table = read(OUTPUT_FORMATS[name], data, batch.schema, compression=compression)
    assert table.schema == batch.schema
    for column in batch.schema.names:
        assert table.column(column).to_pylist() == batch.column(column).to_pylist(), column


@pytest.mark.parametrize(("name", "compression"), EVERY)
def test_files_are_named_after_what_is_in_them(name: str, compression: str) -> None:
    """A file's suffix tells its format, and of a text file its compression."""
    path = "a=1/part-00000-c000" + OUTPUT_FORMATS[name].compressions[compression]
    assert output_format_of(path).name == name


@pytest.mark.parametrize("path", ["part-00000", "part.parquet.tmp", "part.csv.lz4", "part.txt"])
def test_other_files_are_refused(path: str) -> None:
    """A file whose name tells nothing is not taken for something."""
    with pytest.raises(NotSupported, match="does not tell its format: parquet, orc"):
        output_format_of(path)


@pytest.mark.parametrize("name", OUTPUT_FORMATS)
def test_columns_of_choice(name: str) -> None:
    """The columns asked for come back, dots in names or not; without any, the number of rows does."""
    known, data = OUTPUT_FORMATS[name], write(OUTPUT_FORMATS[name], numbers(5))[0]
    assert read(known, data, NUMBERS, {"b.c", "z"}).to_pylist() == numbers(5).select(["b.c"]).to_pylist()
    assert read(known, data, NUMBERS, {"a"}).to_pylist() == numbers(5).select(["a"]).to_pylist()
    none = read(known, data, NUMBERS, set())
    assert (none.num_rows, none.num_columns) == (5, 0)


@pytest.mark.parametrize("name", OUTPUT_FORMATS)
def test_no_column_but_one_of_many_is_asked_for(name: str) -> None:
    """A column is found by its name where no name has a dot, too."""
    batch = numbers(5).rename_columns(["a", "b"])
    data, _ = write(OUTPUT_FORMATS[name], batch)
    assert (
        read(OUTPUT_FORMATS[name], data, batch.schema, {"b"}).to_pylist()
        == batch.select(["b"]).to_pylist()
    )
    assert read(OUTPUT_FORMATS[name], data, batch.schema, set()).num_rows == 5


@pytest.mark.parametrize("name", OUTPUT_FORMATS)
def test_what_is_gathered_is_bounded(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However wide the rows are, a sink gathers no more than it may, and writes out in between."""
    target = io.BytesIO()
    sink = OUTPUT_FORMATS[name].open_writer(target, NUMBERS, group_bytes=10_000)
    for start in range(0, 2000, 100):
        sink.write(numbers(100, start))
        assert sink.buffered_bytes < 10_000
    assert 0 < sink.written_bytes == len(target.getvalue())
    monkeypatch.setattr(base, "GROUP_ROWS", 300)
    sink.flush()
    for _ in range(2):
        sink.write(numbers(100))
        assert sink.buffered_bytes
    sink.write(numbers(100))
    assert not sink.buffered_bytes
    sink.close()
    assert read(OUTPUT_FORMATS[name], target.getvalue(), NUMBERS).num_rows == sink.rows == 2300


@pytest.mark.parametrize("name", OUTPUT_FORMATS)
def test_what_is_abandoned_writes_nothing_more(name: str) -> None:
    """A file that is given up adds no footer to an upload that was dropped, not even when collected."""
    target = io.BytesIO()
    sink = OUTPUT_FORMATS[name].open_writer(target, NUMBERS)
    sink.write(numbers(10))
    sink.flush()
    sink.write(numbers(10))
    size = len(target.getvalue())
    sink.abandon()
    sink.abandon()
    del sink
    assert len(target.getvalue()) == size


class Refusing:
    """A place for bytes that takes some, and then no more."""

    def __init__(self, room: int) -> None:
        self.room = room

    def write(self, data: bytes) -> int:
        self.room -= len(data)
        if self.room < 0:
            raise Unavailable("no answer")
        return len(data)


@pytest.mark.parametrize("name", OUTPUT_FORMATS)
@pytest.mark.parametrize("room", [100, 3000])
def test_what_a_store_raises_comes_out_as_it_is(name: str, room: int) -> None:
    """An error of the upload is not disguised by the writer in between, which can then be abandoned."""
    sink = OUTPUT_FORMATS[name].open_writer(Refusing(room), NUMBERS, "none")

    def write_all() -> None:
        for start in range(0, 1000, 100):
            sink.write(numbers(100, start))
            sink.flush()
        sink.close()

    with pytest.raises(Unavailable, match="no answer"):
        write_all()
    sink.abandon()


class Failing:
    """A store from which everything can be read but what comes late."""

    def __init__(self, data: bytes, room: int) -> None:
        self.data = data
        self.room = room

    def get(self, path: str, *, start: int = 0, end: int | None = None) -> ObjectData:
        if self.room <= 0:
            raise Unavailable("no answer")
        self.room -= 1
        store = MemoryStore()
        store.put("x", self.data)
        return store.get("x", start=start, end=end)


@pytest.mark.parametrize("name", OUTPUT_FORMATS)
def test_errors_of_reading(name: str) -> None:
    """A file that is not there or cannot be fetched says so; one of other bytes is corrupt."""
    known, data = OUTPUT_FORMATS[name], write(OUTPUT_FORMATS[name], numbers(1000))[0]
    path = "file" + next(iter(known.compressions.values()))
    with pytest.raises(NotFound):
        list(known.read(StoredObject(MemoryStore(), path, 1000), NUMBERS, {"a"}))
    for room in range(100):
        failing = Failing(data, room)
        try:
            list(known.read(StoredObject(failing, path, len(data)), NUMBERS, {"a"}))
        except Unavailable:
            continue
        break
    assert 0 < room < 99 and failing.room == 0
    for bad in (b"\xff\xfe nothing of this kind" * 100, data[:-1] + b"\xff\xff\xff\xff"):
        with pytest.raises(CorruptRecord, match=f"{path}' cannot be read as "):
            read(known, bad, NUMBERS)


def test_a_stored_file_is_read_in_blocks() -> None:
    """Readers that ask for little at a time cause few requests, each of a whole block."""
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
    """Memory is bounded: the block that was not read for the longest time is dropped."""
    monkeypatch.setattr("commitlog.spark.files.io.BLOCKS", 2)
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
