"""Parquet, ORC and Arrow files: their groups, and what ORC cannot hold."""

from __future__ import annotations

import datetime as dt
import io
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commitlog.errors import NotSupported
from commitlog.spark.files import OUTPUT_FORMATS, ColumnStatistics, base, orc
from commitlog.spark.schema import select
from support.output_files import read, text_of, write

PARQUET, ORC, ARROW = OUTPUT_FORMATS["parquet"], OUTPUT_FORMATS["orc"], OUTPUT_FORMATS["arrow"]
SCHEMA = pa.schema([pa.field("a", pa.int64()), pa.field("f", pa.float64()), pa.field("t", pa.string())])


def numbers(rows: int, start: int = 0) -> pa.RecordBatch:
    """Return some rows."""
    found = range(start, start + rows)
    columns = [list(found), [n / 2 for n in found], [f"text {n}" for n in found]]
    return pa.record_batch(columns, schema=SCHEMA)


def test_small_batches_become_large_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row group or stripe is written when enough rows are gathered, not for each batch."""
    monkeypatch.setattr(base, "GROUP_ROWS", 20_000)
    batches = [numbers(5000, start) for start in range(0, 50_000, 5000)]
    expected = [20_000, 20_000, 10_000]
    metadata = pq.read_metadata(io.BytesIO(text_of(PARQUET, *batches)))
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == expected
    file = pa.orc.ORCFile(io.BytesIO(text_of(ORC, *batches)))
    assert [file.read_stripe(i).num_rows for i in range(file.nstripes)] == expected
    arrow = pa.ipc.open_file(text_of(ARROW, *batches))
    assert sum(arrow.get_batch(i).num_rows for i in range(arrow.num_record_batches)) == 50_000


def test_stripes_of_wide_tables_are_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory that the ORC writer allots before it sees a value is bounded, whatever the columns."""
    monkeypatch.setattr(orc, "STRIPE_BYTES", 3 * 9 * 15_000)
    file = pa.orc.ORCFile(io.BytesIO(text_of(ORC, numbers(40_000))))
    assert [file.read_stripe(i).num_rows for i in range(file.nstripes)] == [15_000, 15_000, 10_000]


def test_groups_that_nobody_wants_are_not_read() -> None:
    """The statistics of a row group tell a reader whether to take it."""
    target = io.BytesIO()
    sink = PARQUET.open_writer(target, SCHEMA)
    for start in (0, 100, 200):
        sink.write(numbers(100, start))
        sink.flush()
    sink.close()
    data = target.getvalue()
    seen: list[Mapping[str, ColumnStatistics]] = []

    def keep(statistics: Mapping[str, ColumnStatistics]) -> bool:
        seen.append(statistics)
        return statistics["a"][1] == 199

    assert read(PARQUET, data, SCHEMA, {"a"}, keep).column("a").to_pylist() == list(range(100, 200))
    # Whether there is NaN among floats, Parquet does not tell.
    assert seen[0] == {"a": (0, 99, 0), "f": (None, None, 0), "t": ("text 0", "text 99", 0)}
    assert len(seen) == 3


def test_parquet_of_writers_that_tell_nothing() -> None:
    """Of columns without statistics nothing is believed."""
    target = io.BytesIO()
    pq.write_table(pa.Table.from_batches([numbers(5)]), target, write_statistics=["t"])
    seen: list[Any] = []
    read(PARQUET, target.getvalue(), SCHEMA, {"a"}, lambda found: not seen.append(found))
    assert seen == [{"t": ("text 0", "text 4", 0)}]


def test_int96_is_read_in_any_year() -> None:
    """Spark writes timestamps so by default. As nanoseconds, most years would overflow."""
    moments = [
        dt.datetime(1, 1, 1),
        dt.datetime(2020, 5, 6, 7, 8, 9, 123_456),
        dt.datetime(9999, 12, 31),
    ]
    stored, instant = pa.timestamp("us"), pa.timestamp("us", tz="UTC")
    columns = {"t": moments, "l": [[each] for each in moments], "n": [1, 2, 3]}
    table = pa.table(
        columns, schema=pa.schema([("t", stored), ("l", pa.list_(stored)), ("n", pa.int64())])
    )
    pq.write_table(table, target := io.BytesIO(), use_deprecated_int96_timestamps=True)
    wanted = pa.schema([("t", instant), ("l", pa.list_(instant)), ("n", pa.int64())])
    seen: list[Any] = []
    found = read(PARQUET, target.getvalue(), wanted, keep=lambda each: not seen.append(each))
    [batch] = found.to_batches()
    rows = select(batch, wanted).to_pylist()
    utc = [each.replace(tzinfo=dt.UTC) for each in moments]
    assert rows == [{"t": t, "l": [t], "n": n + 1} for n, t in enumerate(utc)]
    assert seen[0]["n"] == (1, 3, 0)
    assert "t" not in seen[0] or seen[0]["t"][:2] == (None, None)


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (pa.date32(), dt.date(1582, 10, 14), "a date before 1582-10-15"),
        (pa.timestamp("us", tz="UTC"), dt.datetime(1899, 12, 31, 23, 59, 59), "before 1900"),
        (pa.timestamp("us", tz="UTC"), dt.datetime(2262, 4, 11), "after 2262-04-10"),
        (pa.timestamp("us", tz="UTC"), dt.datetime(1969, 12, 31, 23, 59, 59, 1), "not a whole second"),
    ],
)
def test_moments_that_orc_cannot_hold(kind: pa.DataType, value: Any, message: str) -> None:
    """Dates and times that readers would not get back as they are, are refused, nested or not."""
    for wrapped, cell in [
        (kind, value),
        (pa.list_(kind), [None, value]),
        (pa.map_(pa.string(), pa.struct([("a", kind)])), [("k", {"a": value})]),
    ]:
        batch = pa.record_batch([pa.array([None, cell], wrapped)], names=["x"])
        with pytest.raises(
            NotSupported, match=f"column 'x' has .*{message}.* choose fileFormat parquet"
        ):
            write(ORC, batch)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.date32(), dt.date(1582, 10, 15)),
        (pa.timestamp("us", tz="UTC"), dt.datetime(1900, 1, 1, tzinfo=dt.UTC)),
        (pa.timestamp("us", tz="UTC"), dt.datetime(2262, 4, 10, 23, 59, 59, 999999, tzinfo=dt.UTC)),
        (pa.timestamp("us", tz="UTC"), dt.datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=dt.UTC)),
        (pa.timestamp("us"), dt.datetime(1, 1, 1, 0, 0, 0, 1)),
        (pa.timestamp("us"), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)),
    ],
)
def test_moments_that_orc_just_holds(kind: pa.DataType, value: Any) -> None:
    """The nearest that are not refused come back; those without a zone have no bounds."""
    batch = pa.record_batch([pa.array([None, value], kind), pa.array([[value], None])], names=["x", "y"])
    batch = batch.cast(pa.schema([("x", kind), ("y", pa.list_(kind))]))
    assert read(ORC, text_of(ORC, batch), batch.schema).to_pylist() == batch.to_pylist()


@pytest.mark.parametrize(
    "kind",
    [
        pa.struct([("a", pa.struct([("b", pa.int8())]))]),
        pa.struct([("a", pa.list_(pa.struct([("b", pa.int8())])))]),
        pa.list_(pa.struct([("a", pa.map_(pa.string(), pa.struct([("b", pa.int8())])))])),
    ],
)
def test_structs_in_structs_are_not_for_orc(kind: pa.DataType) -> None:
    """pyarrow's writer loses values of the inner one, so they are refused before a task runs."""
    with pytest.raises(NotSupported, match="column 'x' has a struct in a struct"):
        ORC.check(pa.schema([("x", kind)]))


TEXT = st.none() | st.text(max_size=3)
STRUCT = st.none() | st.fixed_dictionaries({"a": st.none() | st.integers(-9, 9), "t": TEXT})
KIND = pa.struct([("a", pa.int64()), ("t", pa.string())])
PAIRS = st.dictionaries(st.text(max_size=2), STRUCT, max_size=2).map(lambda found: list(found.items()))
COLUMNS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "struct": (KIND, STRUCT),
    "structs": (pa.list_(KIND), st.none() | st.lists(STRUCT, max_size=3)),
    "map": (pa.map_(pa.string(), KIND), st.none() | PAIRS),
    "lists": (
        pa.list_(pa.list_(pa.string())),
        st.none() | st.lists(st.none() | st.lists(TEXT, max_size=2)),
    ),
    "inside": (
        pa.struct([("l", pa.list_(pa.string())), ("m", pa.map_(pa.string(), pa.string()))]),
        st.none()
        | st.fixed_dictionaries(
            {
                "l": st.none() | st.lists(TEXT, max_size=2),
                "m": st.none()
                | st.dictionaries(st.text(max_size=2), TEXT, max_size=2).map(lambda d: list(d.items())),
            }
        ),
    ),
    "text": (pa.string(), TEXT),
}


@pytest.mark.parametrize("column", COLUMNS)
@settings(max_examples=40)
@given(data=st.data())
def test_any_nesting_that_orc_holds(column: str, data: st.DataObject) -> None:
    """Nulls at every level survive, over batches that are slices, and over stripes."""
    kind, values = COLUMNS[column]
    batch = pa.record_batch(
        [pa.array(data.draw(st.lists(values, min_size=1, max_size=9)), kind)], names=["x"]
    )
    at = data.draw(st.integers(0, batch.num_rows))
    target = io.BytesIO()
    sink = ORC.open_writer(target, batch.schema)
    for part in (batch.slice(0, at), batch.slice(at)):
        sink.write(part)
        if data.draw(st.booleans()):
            sink.flush()
    sink.close()
    assert read(ORC, target.getvalue(), batch.schema).to_pylist() == batch.to_pylist()
