"""All output formats: writers, readers, errors. No Spark session is needed."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from commitlog.errors import CorruptRecord, NotFound, NotSupported, Unavailable
from commitlog.files import (
    OUTPUT_FORMATS,
    StoredObject,
    base,
    combine_batches,
    output_format_of,
)
from commitlog.stores import ObjectData
from commitlog.stores.memory import MemoryStore
from support.output_files import EVERY, read, rows_for, text_of, write

NUMBERS = pa.schema([pa.field("a", pa.int64()), pa.field("b.c", pa.string())])


def numbers(rows: int, start: int = 0) -> pa.RecordBatch:
    """Return some rows."""
    found = range(start, start + rows)
    return pa.record_batch([list(found), [f"text {n}" for n in found]], schema=NUMBERS)


@pytest.mark.parametrize(("name", "compression"), EVERY)
def test_rows_survive(name: str, compression: str) -> None:
    """This holds for every type, nulls, hostile text and nesting, in every format and compression."""
    batch = rows_for(name)
    OUTPUT_FORMATS[name].check(batch.schema)
    data, _ = write(OUTPUT_FORMATS[name], batch.slice(0, 3), batch.slice(3), compression=compression)
    table = read(OUTPUT_FORMATS[name], data, batch.schema, compression=compression)
    assert table.schema == batch.schema
    for column in batch.schema.names:
        assert table.column(column).to_pylist() == batch.column(column).to_pylist(), column


@pytest.mark.parametrize(("name", "compression"), EVERY)
def test_the_suffix_of_a_path_gives_the_format(name: str, compression: str) -> None:
    """This holds for every format and compression."""
    path = "a=1/part-00000-c000" + OUTPUT_FORMATS[name].compressions[compression]
    assert output_format_of(path).name == name


@pytest.mark.parametrize("path", ["part-00000", "part.parquet.tmp", "part.csv.lz4", "part.txt"])
def test_other_suffixes_are_refused(path: str) -> None:
    """The format is not guessed."""
    with pytest.raises(NotSupported, match="does not tell its format: parquet, orc"):
        output_format_of(path)


@pytest.mark.parametrize("name", OUTPUT_FORMATS)
def test_some_columns_are_read(name: str) -> None:
    """Their names may have dots. Without columns, the number of rows is kept."""
    known, data = OUTPUT_FORMATS[name], write(OUTPUT_FORMATS[name], numbers(5))[0]
    assert read(known, data, NUMBERS, {"b.c", "z"}).to_pylist() == numbers(5).select(["b.c"]).to_pylist()
    assert read(known, data, NUMBERS, {"a"}).to_pylist() == numbers(5).select(["a"]).to_pylist()
    none = read(known, data, NUMBERS, set())
    assert (none.num_rows, none.num_columns) == (5, 0)


@pytest.mark.parametrize("name", OUTPUT_FORMATS)
def test_one_column_of_several_is_read(name: str) -> None:
    """This holds for files without dots in names."""
    batch = numbers(5).rename_columns(["a", "b"])
    data, _ = write(OUTPUT_FORMATS[name], batch)
    assert (
        read(OUTPUT_FORMATS[name], data, batch.schema, {"b"}).to_pylist()
        == batch.select(["b"]).to_pylist()
    )
    assert read(OUTPUT_FORMATS[name], data, batch.schema, set()).num_rows == 5


@pytest.mark.parametrize("name", OUTPUT_FORMATS)
def test_the_buffer_of_a_writer_is_bounded(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is limited in bytes and in rows; the writer flushes in between."""
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


def test_small_batches_become_large_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer combines batches into row groups or stripes."""
    monkeypatch.setattr(base, "GROUP_ROWS", 20_000)
    batches = [numbers(5000, start) for start in range(0, 50_000, 5000)]
    expected = [20_000, 20_000, 10_000]
    metadata = pq.read_metadata(io.BytesIO(text_of(OUTPUT_FORMATS["parquet"], *batches)))
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == expected
    file = orc.ORCFile(io.BytesIO(text_of(OUTPUT_FORMATS["orc"], *batches)))
    assert [file.read_stripe(i).num_rows for i in range(file.nstripes)] == expected
    arrow = pa.ipc.open_file(text_of(OUTPUT_FORMATS["arrow"], *batches))
    assert sum(arrow.get_batch(i).num_rows for i in range(arrow.num_record_batches)) == 50_000


@pytest.mark.parametrize("name", OUTPUT_FORMATS)
def test_an_abandoned_writer_writes_nothing_more(name: str) -> None:
    """It adds no footer to an upload, not even when it is garbage-collected."""
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
    """A sink that fails after some bytes."""

    def __init__(self, room: int) -> None:
        self.room = room

    def write(self, data: bytes) -> int:
        self.room -= len(data)
        if self.room < 0:
            raise Unavailable("no answer")
        return len(data)


@pytest.mark.parametrize("name", OUTPUT_FORMATS)
@pytest.mark.parametrize("room", [100, 3000])
def test_errors_of_the_sink_are_raised_unchanged(name: str, room: int) -> None:
    """pyarrow would replace some of them. The writer can be abandoned afterwards."""
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
    """A store that fails after some requests."""

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
def test_errors_of_the_store_are_raised_unchanged(name: str) -> None:
    """These are a missing object and a failing store. Other content is a corrupt record."""
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


def test_small_batches_are_combined(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are combined up to a number of rows or bytes. The order and number of rows stay."""
    monkeypatch.setattr(base, "COMBINED_ROWS", 250)
    batches = [numbers(100, start) for start in range(0, 1000, 100)]
    found = list(combine_batches(batches))
    assert [batch.num_rows for batch in found] == [300, 300, 300, 100]
    assert pa.Table.from_batches(found).equals(pa.Table.from_batches(batches))
    assert [batch.num_rows for batch in combine_batches(each.select([]) for each in batches[:4])] == [
        300,
        100,
    ]
    monkeypatch.setattr(base, "COMBINED_BYTES", 1)
    assert len(list(combine_batches(batches))) == 10
    assert not list(combine_batches([numbers(0)]))
