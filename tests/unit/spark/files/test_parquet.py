"""Parquet of any writer: row groups in slices, columns as the query wants them, damage told."""

from __future__ import annotations

import base64
import datetime as dt
import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlog.errors import InputChanged, InputUnreadable, UnknownColumns
from commitlog.ingest import Pinned
from commitlog.spark.files import INPUT_FORMATS, Columns
from commitlog.spark.files.parquet import ParquetInput
from support.input_files import Counting, pinned, records, slices, small_up_to

PARQUET = ParquetInput({})


def stored(table: pa.Table, path: str = "in/a.parquet", **options: Any) -> Pinned:
    """Return a file of a table."""
    file = io.BytesIO()
    pq.write_table(table, file, **options)
    return pinned(file.getvalue(), path)


def rows(source: Pinned, columns: Columns, cuts: list[int] | None = None) -> list[dict[str, Any]]:
    """Return the records of a file."""
    return [row for row, _, _ in records(PARQUET, source, columns, cuts or [])]


@given(
    cuts=st.lists(st.integers(1, 12_000), max_size=6),
    dictionary=st.booleans(),
    small=st.sampled_from([0, 1 << 20]),
)
def test_any_cut_gives_each_row_once(cuts: list[int], dictionary: bool, small: int) -> None:
    """A row group is in one slice, wherever it is cut; rows have their numbers in the file."""
    table = pa.table({"a": range(1000), "b": [str(n % 7) * 5 for n in range(1000)]})
    source = stored(table, row_group_size=90, use_dictionary=dictionary)
    columns = Columns(schema=table.schema, offsets=True)
    with small_up_to(small):
        got = records(PARQUET, source, columns, cuts)
    assert [row for row, _, _ in got] == table.to_pylist()
    assert [offset for _, offset, _ in got] == list(range(1000))


def test_a_slice_reads_its_row_groups_alone() -> None:
    """Of a large file, a task reads the footer and its own range."""
    table = pa.table({"a": list(range(400_000))})
    source = stored(table, row_group_size=40_000, use_dictionary=False, compression="none")
    size = source.file.size
    counting = Counting(source.store, source.file)
    each = slices(source.file, [size // 4, size // 2])[1]
    with small_up_to(0):
        got = [len(part) for part in PARQUET.decode(counting, each, Columns(schema=table.schema))]
    assert sum(got) in (80_000, 120_000)
    assert sum(counting.sizes) < size * 0.45
    assert len(counting.sizes) <= 5


def test_a_small_file_is_one_request() -> None:
    """Opening costs more than reading does."""
    table = pa.table({"a": [1, 2], "b": ["x", None]})
    source = stored(table)
    counting = Counting(source.store, source.file)
    assert rows(counting, Columns(schema=table.schema)) == table.to_pylist()
    assert counting.sizes == [source.file.size]


def test_only_wanted_columns_are_read() -> None:
    """Others are not even looked at; and none may be wanted."""
    table = pa.table({"a.b": [1, 2], "a": [3, 4], "c": [[5], []]})
    for names in (["a"], ["a.b"], ["c"], ["c", "a"], []):
        known = pa.schema([table.schema.field(name) for name in names])
        assert rows(stored(table), Columns(schema=known)) == table.select(names).to_pylist()
    source = stored(table.rename_columns(["x", "a", "c"]))
    assert rows(source, Columns(schema=pa.schema([]))) == [{}, {}]


def test_columns_are_matched_by_name_and_widened() -> None:
    """Letter case does not count; what the file lacks is for the caller to fill in; types get wider."""
    table = pa.table(
        {
            "ID": pa.array([1, 2], pa.int32()),
            "when": pa.array([1, None], pa.timestamp("ns")),
            "s": pa.array([{"x": 1, "y": "a"}, None]),
            "word": pa.array(["a", "b"]).dictionary_encode(),
        }
    )
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("missing", pa.string()),
            ("when", pa.timestamp("us", tz="UTC")),
            ("s", pa.struct([("Y", pa.string()), ("z", pa.int8())])),
            ("word", pa.string()),
        ]
    )
    assert rows(stored(table), Columns(schema=schema)) == [
        {
            "id": 1,
            "when": dt.datetime(1970, 1, 1, tzinfo=dt.UTC),
            "s": {"Y": "a", "z": None},
            "word": "a",
        },
        {"id": 2, "when": None, "s": None, "word": "b"},
    ]


def test_new_columns_are_left_out_refused_or_rescued() -> None:
    """So are new members of structs."""
    table = pa.table(
        {
            "a": [1, 2],
            "b": ["x", None],
            "s": [{"x": 1, "y": 2}, None],
        }
    )
    schema = pa.schema([("a", pa.int64()), ("s", pa.struct([("x", pa.int64())]))])
    want = [{"a": 1, "s": {"x": 1}}, {"a": 2, "s": None}]
    assert rows(stored(table), Columns(schema=schema)) == want
    with pytest.raises(UnknownColumns, match="'b'"):
        rows(stored(table), Columns(schema=schema, new="fail"))
    with pytest.raises(UnknownColumns, match=r"s\.y"):
        rows(stored(table.drop_columns("b")), Columns(schema=schema, new="fail"))
    got = records(PARQUET, stored(table), Columns(schema=schema, new="rescue"))
    assert [row for row, _, _ in got] == want
    assert [text for _, _, text in got] == ['{"b":"x","s":{"x":1,"y":2}}', None]


def test_a_type_that_does_not_fit_is_unreadable_or_rescued() -> None:
    """The message names column and types; rescued, the column is null and its values are kept."""
    table = pa.table({"a": ["1", "x"], "b": [True, None], "c": [b"\xff", b"ok"]})
    schema = pa.schema([("a", pa.int64()), ("b", pa.bool_()), ("c", pa.binary())])
    source = stored(table)
    with pytest.raises(InputUnreadable, match=r"column 'a' of 'in/a.parquet'.* string .*int64"):
        rows(source, Columns(schema=schema))
    got = records(PARQUET, source, Columns(schema=schema, new="rescue"))
    assert [row for row, _, _ in got] == [{"b": True, "c": b"\xff"}, {"b": None, "c": b"ok"}]
    assert [text for _, _, text in got] == ['{"a":"1"}', '{"a":"x"}']
    text = pa.schema([("a", pa.string()), ("b", pa.bool_()), ("c", pa.string())])
    with pytest.raises(InputUnreadable, match="column 'c'"):
        rows(source, Columns(schema=text))
    got = records(PARQUET, source, Columns(schema=text, new="rescue"))
    assert [text for _, _, text in got] == [
        f'{{"c":"{base64.b64encode(each).decode()}"}}' for each in (b"\xff", b"ok")
    ]


def test_names_that_could_be_two_are_refused() -> None:
    """As Spark refuses them; if neither is the very name."""
    table = pa.table({"ID": [1], "Id": [2]})
    with pytest.raises(InputUnreadable, match="'id'"):
        rows(stored(table), Columns(schema=pa.schema([("id", pa.int64())])))
    assert rows(stored(table), Columns(schema=pa.schema([("Id", pa.int64())]))) == [{"Id": 2}]


def test_what_is_no_parquet_is_told() -> None:
    """An empty object, another content, a file cut short: nothing is skipped in silence."""
    table = pa.table({"a": list(range(1000))})
    whole = stored(table).get("in/a.parquet").data
    for data in (b"", b"PAR1", b"a,b\n1,2\n" * 10, whole[: len(whole) // 2], whole[:-1]):
        for small in (0, 1 << 20):
            with small_up_to(small), pytest.raises(InputUnreadable, match="in/x"):
                rows(pinned(data, "in/x"), Columns(schema=table.schema))
        with pytest.raises(InputUnreadable, match="in/x"):
            PARQUET.infer(pinned(data, "in/x"))


def test_rows_before_a_damaged_page_come() -> None:
    """What comes before the damage is read, each time the same."""
    table = pa.table({"a": [str(n) * 9 for n in range(10_000)]})
    good = stored(table, row_group_size=1000, compression="zstd", use_dictionary=False)
    data = bytearray(good.get("in/a.parquet").data)
    begin = pq.ParquetFile(io.BytesIO(bytes(data))).metadata.row_group(4).column(0).data_page_offset
    data[begin + 60 : begin + 200] = bytes(140)
    source = pinned(bytes(data))
    for _ in range(2):
        got: list[Any] = []
        with pytest.raises(InputUnreadable, match="in/file"):
            got.extend(PARQUET.decode(source, slices(source.file)[0], Columns(schema=table.schema)))
        assert sum(map(len, got)) == 4000


def test_another_version_is_told_as_such() -> None:
    """Whatever pyarrow makes of the error."""
    table = pa.table({"a": [1]})
    for small in (0, 1 << 20):
        source = stored(table)
        source.store.put("in/a.parquet", b"PAR1 something else")
        with small_up_to(small), pytest.raises(InputChanged):
            rows(source, Columns(schema=table.schema))


def test_batches_are_bounded_by_rows_and_bytes() -> None:
    """Whatever a writer made of its row groups."""
    wide = ["x" * 100_000] * 1000  # much less in a dictionary
    table = pa.table({"a": wide})
    source = stored(table)
    parts = list(PARQUET.decode(source, slices(source.file)[0], Columns(schema=table.schema)))
    assert sum(map(len, parts)) == 1000
    assert max(part.batch.nbytes for part in parts) <= 17 * 1024 * 1024
    source = stored(pa.table({"a": list(range(200_000))}))
    known = Columns(schema=pa.schema([("a", pa.int64())]))
    parts = list(PARQUET.decode(source, slices(source.file)[0], known))
    assert max(map(len, parts)) <= 65_536


def test_columns_are_inferred_from_the_footer() -> None:
    """As Spark has types: whatever pyarrow kept of its own in the file."""
    table = pa.table(
        {
            "a": pa.array([1], pa.uint32()),
            "b": pa.array(["x"], pa.large_string()).dictionary_encode(),
            "c": pa.array([0], pa.timestamp("ns", tz="Europe/Berlin")),
            "d": pa.array([0], pa.timestamp("ms")),
            "e": pa.array([[{"x": None}]]),
            "n": pa.nulls(1),
        }
    )
    source = stored(table)
    counting = Counting(source.store, source.file)
    assert INPUT_FORMATS["parquet"]({}).infer(counting) == pa.schema(
        [
            ("a", pa.int64()),
            ("b", pa.string()),
            ("c", pa.timestamp("us", tz="UTC")),
            ("d", pa.timestamp("us")),
            ("e", pa.list_(pa.field("element", pa.struct([("x", pa.null())])))),
            ("n", pa.null()),
        ]
    )
    large = stored(pa.table({"a": list(range(1_000_000))}))
    counting = Counting(large.store, large.file)
    assert ParquetInput({}).infer(counting) == pa.schema([("a", pa.int64())])
    assert sum(counting.sizes) <= 65_536


def test_int96_is_an_instant_at_any_depth_and_in_any_year() -> None:
    """Hive, Impala and older Spark keep timestamps so; no year overflows."""
    moments = [dt.datetime(1, 1, 1), dt.datetime(1969, 12, 31, 23, 59, 59, 999_999), None]
    kind = pa.timestamp("us")
    table = pa.table(
        {
            "n": [1, 2, 3],
            "a": pa.array(moments, kind),
            "l": pa.array([[each] for each in moments], pa.list_(kind)),
            "m": pa.array([[("k", each)] for each in moments], pa.map_(pa.string(), kind)),
            "s": pa.array([{"x": each} for each in moments], pa.struct([("x", kind)])),
        }
    )
    source = stored(table, use_deprecated_int96_timestamps=True)
    schema = PARQUET.infer(source)
    instant = pa.timestamp("us", tz="UTC")
    assert schema == pa.schema(
        [
            ("n", pa.int64()),
            ("a", instant),
            ("l", pa.list_(pa.field("element", instant))),
            ("m", pa.map_(pa.string(), instant)),
            ("s", pa.struct([("x", instant)])),
        ]
    )
    got = rows(source, Columns(schema=schema))
    wanted = [each and each.replace(tzinfo=dt.UTC) for each in moments]
    assert [row["a"] for row in got] == wanted
    assert [row["l"][0] for row in got] == wanted
    assert [row["m"][0][1] for row in got] == wanted
    assert [row["s"]["x"] for row in got] == wanted


def test_rows_before_a_value_that_does_not_fit_come() -> None:
    """In the middle of a batch; the error names the first row that does not fit in any column."""
    good, bad = [b"ok"] * 300, [b"\xff"]
    table = pa.table(
        {"n": list(range(300)), "a": good[:250] + bad + good[:49], "b": good[:150] + bad + good[:149]}
    )
    schema = pa.schema([("n", pa.int64()), ("a", pa.string()), ("b", pa.string())])
    source = stored(table)
    got: list[Any] = []
    with pytest.raises(InputUnreadable, match=r"column 'b' of 'in/a.parquet' does not fit in row 150"):
        got.extend(PARQUET.decode(source, slices(source.file)[0], Columns(schema=schema)))
    assert [row["n"] for part in got for row in part.batch.to_pylist()] == list(range(150))
    rescued = records(PARQUET, source, Columns(schema=schema, new="rescue"))
    assert [row["n"] for row, _, _ in rescued] == list(range(300))
