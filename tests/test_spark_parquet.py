"""Arrow batches to Parquet and back."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from commitlog.spark import parquet
from commitlog.spark.parquet import COMPRESSIONS, ParquetSink, read_parquet
from commitlog.stores.memory import MemoryStore

SCHEMA = pa.schema([pa.field("a", pa.int64()), pa.field("b.c", pa.string())])


def batch(rows: int, start: int = 0) -> pa.RecordBatch:
    """Return some rows."""
    numbers = range(start, start + rows)
    return pa.record_batch([list(numbers), [f"text {n}" for n in numbers]], schema=SCHEMA)


def test_small_batches_become_large_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row group is written when enough rows are gathered, not for each batch."""
    monkeypatch.setattr(parquet, "ROW_GROUP_ROWS", 1000)
    target = io.BytesIO()
    sink = ParquetSink(target, SCHEMA)
    for start in range(0, 2500, 100):
        sink.write(batch(100, start))
    sink.close()
    metadata = pq.read_metadata(io.BytesIO(target.getvalue()))
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [1000, 1000, 500]
    assert sink.rows == 2500


def test_wide_rows_are_bounded_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task never gathers much more than the bound, however wide its rows are."""
    monkeypatch.setattr(parquet, "ROW_GROUP_BYTES", 10_000)
    target = io.BytesIO()
    sink = ParquetSink(target, SCHEMA)
    for start in range(0, 1000, 100):
        sink.write(batch(100, start))
        assert sink.gathered_bytes < 10_000
    sink.close()
    assert pq.read_metadata(io.BytesIO(target.getvalue())).num_row_groups > 1


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_codecs(compression: str) -> None:
    """Each codec on offer is one that this build of pyarrow writes and reads."""
    target = io.BytesIO()
    sink = ParquetSink(target, SCHEMA, compression=compression)
    sink.write(batch(10))
    sink.close()
    assert pq.read_table(io.BytesIO(target.getvalue())).to_batches()[0] == batch(10)


def test_what_is_abandoned_writes_nothing_more() -> None:
    """A file that is given up adds no footer to an upload that was dropped, not even when collected."""
    target = io.BytesIO()
    sink = ParquetSink(target, SCHEMA)
    sink.write(batch(10))
    sink.abandon()
    sink.abandon()
    size = len(target.getvalue())
    del sink
    assert len(target.getvalue()) == size < 10


def test_reading_from_a_store() -> None:
    """The columns asked for come back, by name, dots in names or not; others are not read."""
    store = MemoryStore()
    with store.begin_stage("f") as upload:
        sink = ParquetSink(upload, SCHEMA)
        sink.write(batch(5))
        sink.close()
        store.publish(upload.finish())
    size = store.head("f").size
    assert list(read_parquet(store, "f", size, {"a", "b.c", "z"})) == [batch(5)]
    assert list(read_parquet(store, "f", size, {"a"})) == [batch(5).select(["a"])]
    (none,) = read_parquet(store, "f", size, set())
    assert (none.num_rows, none.num_columns) == (5, 0)


def test_pyarrow_reads_the_files_itself(tmp_path: Path) -> None:
    """What is written is plain Parquet, for every tool."""
    with (tmp_path / "f.parquet").open("wb") as file:
        sink = ParquetSink(file, SCHEMA)
        sink.write(batch(5))
        sink.close()
    assert pq.read_table(tmp_path / "f.parquet").num_rows == 5
