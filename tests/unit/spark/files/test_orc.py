"""ORC of any writer: stripes in slices, columns as the query wants them, damage told."""

from __future__ import annotations

import datetime as dt
import io
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import orc

from commitlog.errors import ConfigurationError, InputChanged, InputUnreadable, UnknownColumns
from commitlog.ingest import Pinned
from commitlog.spark.files import INPUT_FORMATS, Columns
from commitlog.spark.files.orc import FileTail, OrcInput
from support.input_files import Counting, pinned, records, slices, small_up_to

ORC = OrcInput({})


def stored(table: pa.Table, stripe_rows: int = 1000, path: str = "in/a.orc") -> Pinned:
    """Return a file of a table."""
    file = io.BytesIO()
    # Only with dictionaries does the writer heed the size of stripes.
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
def test_any_cut_gives_each_row_once(cuts: list[int], small: int) -> None:
    """A stripe is in one slice, wherever it is cut; rows have their numbers in the file."""
    with small_up_to(small):
        got = records(ORC, SOURCE, Columns(schema=TABLE.schema, offsets=True), cuts)
    assert [row["a"] for row, _, _ in got] == list(range(5000))
    assert [offset for _, offset, _ in got] == list(range(5000))


def test_only_wanted_columns_are_read() -> None:
    """Others are not even looked at; and none may be wanted."""
    table = pa.table({"a.b": [1, 2], "a": [3, 4], "c": [[5], []]})
    for names in (["a"], ["a.b"], ["c"], ["c", "a"], []):
        known = pa.schema([table.schema.field(name) for name in names])
        assert rows(stored(table), Columns(schema=known)) == table.select(names).to_pylist()
    assert rows(SOURCE, Columns(schema=pa.schema([]))) == [{}] * 5000


def test_columns_are_matched_widened_refused_or_rescued() -> None:
    """As in Parquet."""
    table = pa.table({"ID": pa.array([1, 2], pa.int16()), "more": ["x", None], "t": ["1", "2"]})
    schema = pa.schema([("id", pa.int64()), ("t", pa.int32())])
    with pytest.raises(UnknownColumns, match="more"):
        rows(stored(table), Columns(schema=schema, new="fail"))
    with pytest.raises(InputUnreadable, match="column 't'"):
        rows(stored(table), Columns(schema=schema))
    got = records(ORC, stored(table), Columns(schema=schema, new="rescue"))
    assert [row for row, _, _ in got] == [{"id": 1}, {"id": 2}]
    assert [text for _, _, text in got] == ['{"more":"x","t":"1"}', '{"t":"2"}']


def test_local_times_are_no_instants_unless_their_zone_is_told() -> None:
    """The type timestamp of ORC bears no zone; only option timeZone makes instants of it."""
    moment = dt.datetime(2020, 7, 1, 12, 0, 0, 5)
    kind = pa.timestamp("us")
    table = pa.table({"t": pa.array([moment], kind), "l": pa.array([[moment]], pa.list_(kind))})
    source = stored(table)
    local = ORC.infer(source)
    assert local == pa.schema([("t", kind), ("l", pa.list_(pa.field("element", kind)))])
    assert rows(source, Columns(schema=local)) == [{"t": moment, "l": [moment]}]
    told = OrcInput({"timeZone": "Europe/Berlin"})
    schema = told.infer(source)
    assert schema.field("t").type == pa.timestamp("us", tz="UTC")
    with pytest.raises(InputUnreadable, match="bears no zone"):
        rows(source, Columns(schema=schema))
    instant = dt.datetime(2020, 7, 1, 10, 0, 0, 5, tzinfo=dt.UTC)
    assert rows(source, Columns(schema=schema), told) == [{"t": instant, "l": [instant]}]
    with pytest.raises(ConfigurationError, match="timeZone"):
        OrcInput({"timeZone": "Mars"})


def test_instants_are_instants() -> None:
    """The type timestamp with local time zone is what Spark calls TIMESTAMP."""
    kind = pa.timestamp("us", tz="UTC")
    table = pa.table({"t": pa.array([dt.datetime(2020, 7, 1, tzinfo=dt.UTC)], kind)})
    assert ORC.infer(stored(table)) == pa.schema([("t", kind)])
    assert rows(stored(table), Columns(schema=table.schema)) == table.to_pylist()


def test_dates_of_the_julian_calendar_are_refused() -> None:
    """They would come two days off, say, and nobody would know."""
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


def test_what_is_no_orc_is_told() -> None:
    """An empty object, another content, a file cut short, a damaged stripe; and another version."""
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


def test_columns_are_inferred_from_the_end() -> None:
    """Of a large file, only the last bytes are read."""
    table = pa.table({"a": [str(n * 7919) for n in range(100_000)]})
    source = stored(table, 10_000)
    counting = Counting(source.store, source.file)
    assert INPUT_FORMATS["orc"]({}).infer(counting) == table.schema
    assert sum(counting.sizes) <= 131_072 < source.file.size


@given(st.binary(max_size=40))
def test_ends_that_are_damaged_are_told(data: bytes) -> None:
    """What is no message is refused, whatever it is."""
    try:
        tail = FileTail.of(data)
    except ValueError:
        return
    assert all(isinstance(number, int) for stripe in tail.stripes for number in stripe)
