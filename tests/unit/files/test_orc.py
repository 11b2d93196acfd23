"""ORC: stripes in slices, columns of a query, damage, and values that ORC cannot hold."""

from __future__ import annotations

import datetime as dt
import decimal
import io
import re
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import orc

from commitlog.errors import (
    ConfigurationError,
    CorruptRecord,
    InputChanged,
    InputUnreadable,
    NotSupported,
    UnknownColumns,
)
from commitlog.files import INPUT_FORMATS, OUTPUT_FORMATS, Columns
from commitlog.files.orc import FileTail, OrcInput
from commitlog.ingest import Pinned
from support.input_files import Counting, pinned, records, slices, small_up_to
from support.output_files import read, text_of, write
from support.selection import examples

ORC = OrcInput({})


def stored(table: pa.Table, stripe_rows: int = 1000, path: str = "in/a.orc") -> Pinned:
    """Return a file of a table."""
    file = io.BytesIO()
    # The writer obeys the size of stripes only with dictionaries.
    options = {"stripe_size": 1, "batch_size": stripe_rows, "dictionary_key_size_threshold": 0.8}
    with orc.ORCWriter(file, compression="zlib", **options) as writer:
        for first in range(0, table.num_rows, stripe_rows):
            writer.write(table.slice(first, stripe_rows))
    return pinned(file.getvalue(), path)


def rows(source: Pinned, columns: Columns, input: OrcInput = ORC) -> list[dict[str, Any]]:
    """Return the records of a file."""
    return [row for row, _, _ in records(input, source, columns)]


TABLE = pa.table({"a": range(5000), "b": [str(n % 7) * 5 for n in range(5000)]})
SOURCE = stored(TABLE)
assert orc.ORCFile(io.BytesIO(SOURCE.get(SOURCE.file.path).data)).nstripes == 5


@given(cuts=st.lists(st.integers(1, 1200), max_size=6), small=st.sampled_from([0, 1 << 20]))
def test_each_row_is_read_once(cuts: list[int], small: int) -> None:
    """Each stripe is in one slice, whatever the cuts, and rows have their numbers in the file."""
    with small_up_to(small):
        got = records(ORC, SOURCE, Columns(schema=TABLE.schema, offsets=True), cuts)
    assert [row["a"] for row, _, _ in got] == list(range(5000))
    assert [offset for _, offset, _ in got] == list(range(5000))


def test_only_wanted_columns_are_read() -> None:
    """Other columns are not requested. A query may read no column."""
    table = pa.table({"a.b": [1, 2], "a": [3, 4], "c": [[5], []]})
    for names in (["a"], ["a.b"], ["c"], ["c", "a"], []):
        known = pa.schema([table.schema.field(name) for name in names])
        assert rows(stored(table), Columns(schema=known)) == table.select(names).to_pylist()
    assert rows(SOURCE, Columns(schema=pa.schema([]))) == [{}] * 5000


def test_columns_are_matched_widened_refused_or_rescued() -> None:
    """The rules are those of Parquet."""
    table = pa.table({"ID": pa.array([1, 2], pa.int16()), "more": ["x", None], "t": ["1", "2"]})
    schema = pa.schema([("id", pa.int64()), ("t", pa.int32())])
    with pytest.raises(UnknownColumns, match="more"):
        rows(stored(table), Columns(schema=schema, new="fail"))
    with pytest.raises(InputUnreadable, match="column 't'"):
        rows(stored(table), Columns(schema=schema))
    got = records(ORC, stored(table), Columns(schema=schema, new="rescue"))
    assert [row for row, _, _ in got] == [{"id": 1}, {"id": 2}]
    assert [text for _, _, text in got] == ['{"more":"x","t":"1"}', '{"t":"2"}']


def test_local_times_are_timestamps_only_with_a_time_zone() -> None:
    """The type timestamp of ORC has no time zone; option timeZone gives one."""
    moment = dt.datetime(2020, 7, 1, 12, 0, 0, 5)
    kind = pa.timestamp("us")
    table = pa.table({"t": pa.array([moment], kind), "l": pa.array([[moment]], pa.list_(kind))})
    source = stored(table)
    local = ORC.infer(source)
    assert local == pa.schema([("t", kind), ("l", pa.list_(pa.field("element", kind)))])
    assert rows(source, Columns(schema=local)) == [{"t": moment, "l": [moment]}]
    configured = OrcInput({"timeZone": "Europe/Berlin"})
    schema = configured.infer(source)
    assert schema.field("t").type == pa.timestamp("us", tz="UTC")
    with pytest.raises(InputUnreadable, match="has no zone"):
        rows(source, Columns(schema=schema))
    instant = dt.datetime(2020, 7, 1, 10, 0, 0, 5, tzinfo=dt.UTC)
    assert rows(source, Columns(schema=schema), configured) == [{"t": instant, "l": [instant]}]
    with pytest.raises(ConfigurationError, match="timeZone"):
        OrcInput({"timeZone": "Mars"})


def test_timestamp_with_local_time_zone_is_a_timestamp() -> None:
    """It is the type TIMESTAMP of Spark."""
    kind = pa.timestamp("us", tz="UTC")
    table = pa.table({"t": pa.array([dt.datetime(2020, 7, 1, tzinfo=dt.UTC)], kind)})
    assert ORC.infer(stored(table)) == pa.schema([("t", kind)])
    assert rows(stored(table), Columns(schema=table.schema)) == table.to_pylist()


def test_dates_of_the_julian_calendar_are_refused() -> None:
    """They would be read as other dates, some days off."""
    table = pa.table({"d": pa.array([dt.date(1582, 10, 15), None])})
    assert rows(stored(table), Columns(schema=table.schema)) == table.to_pylist()
    table = pa.table({"d": pa.array([dt.date(1582, 10, 14)])})
    with pytest.raises(InputUnreadable, match=r"column 'd'.*Julian"):
        rows(stored(table), Columns(schema=table.schema))
    kind = pa.list_(pa.field("element", pa.date32()))
    lists = [[dt.date(2000, 1, 1)] * (n % 3) for n in range(100)]
    lists[70] = [dt.date(2000, 1, 1), dt.date(1500, 1, 1)]
    source = stored(table := pa.table({"l": pa.array(lists, kind)}))
    got: list[Any] = []
    with pytest.raises(InputUnreadable, match="row 70: column 'l'"):
        got.extend(ORC.decode(source, slices(source.file)[0], Columns(schema=table.schema)))
    assert [row["l"] for part in got for row in part.batch.to_pylist()] == lists[:70]


def test_other_content_is_unreadable() -> None:
    """Such content is an empty object, text, a truncated or damaged file, or another version."""
    whole = SOURCE.get(SOURCE.file.path).data
    columns = Columns(schema=TABLE.schema)
    for data in (b"", b"ORC", b"a,b\n1,2\n" * 10, whole[: len(whole) // 2], whole[:-1]):
        for small in (0, 1 << 20):
            with small_up_to(small), pytest.raises(InputUnreadable, match="in/x"):
                rows(pinned(data, "in/x"), columns)
        with pytest.raises(InputUnreadable, match="in/x"):
            ORC.infer(pinned(data, "in/x"))
    stripes = FileTail.of(orc.ORCFile(io.BytesIO(whole)).reader.serialized_file_tail()).stripes
    begin = stripes[3][0]
    source = pinned(whole[: begin + 50] + bytes(200) + whole[begin + 250 :])
    got: list[Any] = []
    with pytest.raises(InputUnreadable, match="in/file"):
        got.extend(ORC.decode(source, slices(source.file)[0], columns))
    assert sum(map(len, got)) == sum(rows for _, rows in stripes[:3])
    source.store.put("in/file", b"something else")
    with small_up_to(0), pytest.raises(InputChanged):
        rows(source, columns)


def test_rows_are_those_that_the_tail_states() -> None:
    """A stripe that states fewer rows than it has is not cut in silence; nor is one that has fewer."""
    table = pa.table({"a": range(3000)})
    file = io.BytesIO()
    orc.write_table(table, file, compression="uncompressed")
    data = file.getvalue()
    for member in (b"\x28", b"\x30"):  # the number of rows of the stripe, and that of the file
        stated = member + b"\xb8\x17"  # 3000
        assert data.count(stated) == 1
        damaged = pinned(data.replace(stated, member + b"\x90\x03"), "in/x.orc")  # 400
        with pytest.raises(InputUnreadable, match=r"in/x\.orc.* rows of "):
            rows(damaged, Columns(schema=table.schema))
        with pytest.raises(CorruptRecord, match=" rows of "):
            read(OUTPUT_FORMATS["orc"], damaged.get("in/x.orc").data, table.schema)


def test_a_stripe_has_as_many_rows_as_its_tail_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that returns fewer rows than asked for is noticed."""
    whole = orc.ORCFile.read_stripe

    def cut(self: orc.ORCFile, n: int, columns: Any = None) -> pa.RecordBatch:
        return whole(self, n, columns)[: 500 if n == 2 else None]

    monkeypatch.setattr(orc.ORCFile, "read_stripe", cut)
    got: list[Any] = []
    with pytest.raises(InputUnreadable, match="stripe 2 has 500 rows of"):
        got.extend(ORC.decode(SOURCE, slices(SOURCE.file)[0], Columns(schema=TABLE.schema)))
    assert sum(map(len, got)) == 2000


@pytest.mark.parametrize("nested", [False, True])
def test_decimals_of_hive_0_11_are_refused(nested: bool) -> None:
    """Their scale is not in the file, and pyarrow takes it for 6. Other columns can be read."""
    kind = pa.decimal128(38, 6)
    numbers = pa.array([decimal.Decimal("1.234567")], kind)
    column = pa.array([[numbers[0].as_py()]], pa.list_(kind)) if nested else numbers
    table = pa.table({"l": [[[1]]], "d": column, "n": [7]})
    file = io.BytesIO()
    orc.write_table(table, file, compression="uncompressed")
    data = file.getvalue()
    # Kind, perhaps the maximum length, precision, scale.
    mark = rb"(\x08\x0e(?:\x20\x00)?)\x28\x26\x30\x06"
    data, changed = re.subn(mark, lambda found: found[1] + b"\x28\x00\x30\x00", data)
    assert changed == 1
    source = pinned(data, "in/x.orc")
    with pytest.raises(InputUnreadable, match=r"in/x.orc.*column 'd' has decimals without a scale"):
        rows(source, Columns(schema=table.schema.remove(0)))
    with pytest.raises(InputUnreadable, match="column 'd'"):
        ORC.infer(source)
    with pytest.raises(NotSupported, match="column 'd'"):
        read(OUTPUT_FORMATS["orc"], source.get("in/x.orc").data, table.schema)
    known = table.select(["l", "n"])
    assert rows(source, Columns(schema=known.schema)) == known.to_pylist()


def test_columns_are_inferred_from_the_end() -> None:
    """Only the last bytes of a large file are read."""
    table = pa.table({"a": [str(n * 7919) for n in range(100_000)]})
    source = stored(table, 10_000)
    counting = Counting(source.store, source.file)
    assert INPUT_FORMATS["orc"]({}).infer(counting) == table.schema
    assert sum(counting.sizes) <= 131_072 < source.file.size


@given(st.binary(max_size=40))
def test_damaged_tails_are_refused(data: bytes) -> None:
    """This holds for any bytes."""
    try:
        tail = FileTail.of(data)
    except ValueError:
        return
    assert all(isinstance(number, int) for stripe in tail.stripes for number in stripe)


# -- files of outputs ----------------------------------------------------------------------------------

OUTPUT = OUTPUT_FORMATS["orc"]


def test_stripes_of_wide_tables_are_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory that the ORC writer allocates for a stripe is limited for any number of columns."""
    monkeypatch.setattr("commitlog.files.orc.STRIPE_BYTES", 3 * 9 * 15_000)
    numbers = range(40_000)
    batch = pa.record_batch(
        {"a": numbers, "f": [n / 2 for n in numbers], "t": [str(n) for n in numbers]}
    )
    file = orc.ORCFile(io.BytesIO(text_of(OUTPUT, batch)))
    assert [file.read_stripe(i).num_rows for i in range(file.nstripes)] == [15_000, 15_000, 10_000]


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (pa.date32(), dt.date(1582, 10, 14), "a date before 1582-10-15"),
        (pa.timestamp("us", tz="UTC"), dt.datetime(1899, 12, 31, 23, 59, 59), "before 1900"),
        (pa.timestamp("us", tz="UTC"), dt.datetime(2262, 4, 11), "after 2262-04-10"),
        (pa.timestamp("us", tz="UTC"), dt.datetime(1969, 12, 31, 23, 59, 59, 1), "not a whole second"),
    ],
)
def test_times_that_orc_cannot_hold_are_refused(kind: pa.DataType, value: Any, message: str) -> None:
    """Readers would return other dates and times. This includes nested values."""
    for wrapped, cell in [
        (kind, value),
        (pa.list_(kind), [None, value]),
        (pa.map_(pa.string(), pa.struct([("a", kind)])), [("k", {"a": value})]),
    ]:
        batch = pa.record_batch([pa.array([None, cell], wrapped)], names=["x"])
        with pytest.raises(
            NotSupported, match=f"column 'x' has .*{message}.* choose fileFormat parquet"
        ):
            write(OUTPUT, batch)


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
def test_the_nearest_times_that_orc_can_hold_survive(kind: pa.DataType, value: Any) -> None:
    """Columns of local times have no bounds in statistics."""
    batch = pa.record_batch([pa.array([None, value], kind), pa.array([[value], None])], names=["x", "y"])
    batch = batch.cast(pa.schema([("x", kind), ("y", pa.list_(kind))]))
    assert read(OUTPUT, text_of(OUTPUT, batch), batch.schema).to_pylist() == batch.to_pylist()


@pytest.mark.parametrize(
    "kind",
    [
        pa.struct([("a", pa.struct([("b", pa.int8())]))]),
        pa.struct([("a", pa.list_(pa.struct([("b", pa.int8())])))]),
        pa.list_(pa.struct([("a", pa.map_(pa.string(), pa.struct([("b", pa.int8())])))])),
    ],
)
def test_orc_refuses_structs_in_structs(kind: pa.DataType) -> None:
    """pyarrow's writer loses values of the inner struct, so they are refused before a task runs."""
    with pytest.raises(NotSupported, match="column 'x' has a struct in a struct"):
        OUTPUT.check(pa.schema([("x", kind)]))


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
@settings(max_examples=examples(15, 40))
@given(data=st.data())
def test_nested_columns_of_orc_survive(column: str, data: st.DataObject) -> None:
    """They have nulls at every level, in batches that are slices, and in several stripes."""
    kind, values = COLUMNS[column]
    batch = pa.record_batch(
        [pa.array(data.draw(st.lists(values, min_size=1, max_size=9)), kind)], names=["x"]
    )
    at = data.draw(st.integers(0, batch.num_rows))
    target = io.BytesIO()
    sink = OUTPUT.open_writer(target, batch.schema)
    for part in (batch.slice(0, at), batch.slice(at)):
        sink.write(part)
        if data.draw(st.booleans()):
            sink.flush()
    sink.close()
    assert read(OUTPUT, target.getvalue(), batch.schema).to_pylist() == batch.to_pylist()
