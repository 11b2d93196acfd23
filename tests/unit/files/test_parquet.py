"""Parquet: row groups in slices, columns of a query, damage, and filters by statistics."""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import io
import json
import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlog.errors import CorruptRecord, InputChanged, InputUnreadable, UnknownColumns
from commitlog.files import INPUT_FORMATS, OUTPUT_FORMATS, Columns, ColumnStatistics
from commitlog.files.parquet import ParquetInput
from commitlog.files.statistics import Statistics
from commitlog.ingest import Pinned
from commitlog.spark.schema import select
from support.input_files import Counting, pinned, records, slices, small_up_to
from support.output_files import read

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
def test_each_row_is_read_once(cuts: list[int], dictionary: bool, small: int) -> None:
    """Each row group is in one slice, whatever the cuts, and rows have their numbers in the file."""
    table = pa.table({"a": range(1000), "b": [str(n % 7) * 5 for n in range(1000)]})
    source = stored(table, row_group_size=90, use_dictionary=dictionary)
    columns = Columns(schema=table.schema, offsets=True)
    with small_up_to(small):
        got = records(PARQUET, source, columns, cuts)
    assert [row for row, _, _ in got] == table.to_pylist()
    assert [offset for _, offset, _ in got] == list(range(1000))


def test_a_slice_reads_its_own_row_groups_only() -> None:
    """A task reads the footer and its own range of a large file."""
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
    """A request takes longer than reading such a file."""
    table = pa.table({"a": [1, 2], "b": ["x", None]})
    source = stored(table)
    counting = Counting(source.store, source.file)
    assert rows(counting, Columns(schema=table.schema)) == table.to_pylist()
    assert counting.sizes == [source.file.size]


def test_only_wanted_columns_are_read() -> None:
    """Other columns are not requested. A query may read no column."""
    table = pa.table({"a.b": [1, 2], "a": [3, 4], "c": [[5], []]})
    for names in (["a"], ["a.b"], ["c"], ["c", "a"], []):
        known = pa.schema([table.schema.field(name) for name in names])
        assert rows(stored(table), Columns(schema=known)) == table.select(names).to_pylist()
    source = stored(table.rename_columns(["x", "a", "c"]))
    assert rows(source, Columns(schema=pa.schema([]))) == [{}, {}]


def test_columns_are_matched_by_name_and_widened() -> None:
    """Letter case does not matter. A column that the file lacks is not returned."""
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
    """This includes new members of structs."""
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
    """The message names the column and types. A rescued column is null."""
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


def test_rescued_strings_that_are_not_utf8_are_json() -> None:
    """Their other bytes are escaped, in nested values too."""
    texts = pa.array([b'a\xff"', b"\xc3\xa9", None])

    def loose(values: pa.Array) -> pa.Array:
        return pa.Array.from_buffers(pa.string(), len(values), values.buffers())

    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), loose(texts))
    table = pa.table({"t": loose(texts), "l": lists, "n": [1, 2, 3]})
    got = records(PARQUET, stored(table), Columns(schema=pa.schema([("n", pa.int64())]), new="rescue"))
    assert [text and json.loads(text) for _, _, text in got] == [
        {"t": 'a\\xff"', "l": ['a\\xff"']},
        {"t": "é", "l": ["é"]},
        {"l": [None]},
    ]


def test_a_few_bytes_do_not_stand_for_gigabytes() -> None:
    """A row group of huge rows is refused before it is read."""
    table = pa.table({"a": [b"x" * 50_000] * 2, "n": [1, 2]})
    source = stored(table, compression="brotli", use_dictionary=False)
    columns = Columns(schema=table.schema)
    assert len(records(ParquetInput({"maxRecordBytes": "60000"}), source, columns)) == 2
    with pytest.raises(InputUnreadable, match=r"row group 0 of 'in/a\.parquet' has .* bytes in 2 rows"):
        records(ParquetInput({"maxRecordBytes": "40000"}), source, columns)


def test_rows_are_those_that_the_footer_states() -> None:
    """If a number of rows or of values in the footer is wrong, no row is lost in silence."""
    table = pa.table({"a": range(3000), "b": ["x"] * 3000})
    source = stored(table, compression="none", use_dictionary=False, write_statistics=False)
    data = source.get("in/a.parquet").data
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    refused = []
    for at in range(footer, len(data) - 8):
        if not data.startswith(b"\xf0\x2e", at):  # 3000
            continue
        for number in (b"\xa0\x06", b"\x80\x00"):  # 400, 0
            damaged = data[:at] + number + data[at + 2 :]
            for names in (["a", "b"], ["a"], ["b"]):
                wanted = table.select(names)
                with contextlib.suppress(InputUnreadable):
                    assert rows(pinned(damaged), Columns(schema=wanted.schema)) == wanted.to_pylist()
                try:
                    assert read(OUTPUT, damaged, wanted.schema).equals(wanted)
                except CorruptRecord as error:
                    refused += re.findall("groups have .*", str(error))
    # That of the file, that of the row group, and those of the columns.
    assert refused.count("groups have 3000 rows of 400") == 3
    assert refused.count("groups have 400 rows of 3000") == 3
    assert refused.count("groups have 0 rows of 3000 in the footer") >= 2


def test_ambiguous_names_are_refused() -> None:
    """This is as in Spark, unless one of the names is equal."""
    table = pa.table({"ID": [1], "Id": [2]})
    with pytest.raises(InputUnreadable, match="'id'"):
        rows(stored(table), Columns(schema=pa.schema([("id", pa.int64())])))
    assert rows(stored(table), Columns(schema=pa.schema([("Id", pa.int64())]))) == [{"Id": 2}]


def test_other_content_is_unreadable() -> None:
    """Such content is an empty object, text, or a truncated file."""
    table = pa.table({"a": list(range(1000))})
    whole = stored(table).get("in/a.parquet").data
    for data in (b"", b"PAR1", b"a,b\n1,2\n" * 10, whole[: len(whole) // 2], whole[:-1]):
        for small in (0, 1 << 20):
            with small_up_to(small), pytest.raises(InputUnreadable, match="in/x"):
                rows(pinned(data, "in/x"), Columns(schema=table.schema))
        with pytest.raises(InputUnreadable, match="in/x"):
            PARQUET.infer(pinned(data, "in/x"))


def test_rows_before_a_damaged_page_are_read() -> None:
    """Each read returns the same rows."""
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


def test_another_version_of_the_object_is_detected() -> None:
    """It is detected even if pyarrow replaces the error."""
    table = pa.table({"a": [1]})
    for small in (0, 1 << 20):
        source = stored(table)
        source.store.put("in/a.parquet", b"PAR1 something else")
        with small_up_to(small), pytest.raises(InputChanged):
            rows(source, Columns(schema=table.schema))


def test_batches_are_bounded_by_rows_and_bytes() -> None:
    """The sizes of row groups do not matter."""
    wide = ["x" * 100_000] * 1000  # much less with a dictionary
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
    """They have Spark's types, whatever Arrow schema the writer stored."""
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


def test_int96_is_a_timestamp_at_any_depth_and_in_any_year() -> None:
    """Hive, Impala and older Spark store timestamps so; no year overflows."""
    moments = [dt.datetime(1, 1, 1), dt.datetime(1969, 12, 31, 23, 59, 59, 999_999), None]
    if int(pa.__version__.partition(".")[0]) < 23:  # writes such times before 1970 wrongly; reads them
        moments[1] = dt.datetime(1970, 1, 1, 23, 59, 59, 999_999)
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


def test_rows_before_a_value_that_does_not_fit_are_read() -> None:
    """The value may be in the middle of a batch. The error names its row."""
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


# -- files of outputs ----------------------------------------------------------------------------------

OUTPUT = OUTPUT_FORMATS["parquet"]
SCHEMA = pa.schema([("a", pa.int64()), ("f", pa.float64()), ("t", pa.string())])


def numbers(rows: int, start: int = 0) -> pa.RecordBatch:
    """Return some rows."""
    found = range(start, start + rows)
    columns = [list(found), [n / 2 for n in found], [f"text {n}" for n in found]]
    return pa.record_batch(columns, schema=SCHEMA)


def written(*tables: pa.Table) -> pq.FileMetaData:
    """Encode row groups, check that they can be read, and return the footer."""
    sink = io.BytesIO()
    encoder = OUTPUT_FORMATS["parquet"].encoder(sink, tables[0].schema, "snappy")  # type: ignore[arg-type]
    for table in tables:
        encoder.write(table)
    encoder.close(Statistics(tables[0].schema, measure=False))
    assert pq.read_table(sink).equals(pa.concat_tables(tables))
    return pq.read_metadata(sink)


def has_dictionary(footer: pq.FileMetaData) -> list[bool]:
    """Return for each column of the last row group whether it is encoded with a dictionary."""
    group = footer.row_group(footer.num_row_groups - 1)
    return ["RLE_DICTIONARY" in group.column(n).encodings for n in range(footer.num_columns)]


def test_floats_and_ascending_numbers_and_times_have_no_dictionary() -> None:
    """All values of the latter differ. In a dictionary of floats, Spark looks for 0.0 and skips -0.0."""
    numbers = pa.array(range(1000))
    columns = {
        "id": numbers,
        "price": pa.array([0.37 * (number % 7) for number in range(1000)]),
        "at": numbers.cast(pa.timestamp("us", "UTC")),
        "day": numbers.cast(pa.int32()).cast(pa.date32()),
        "part": pa.array([number % 7 for number in range(1000)]),
        "descending": pa.array(range(1000, 0, -1)),
        "with null": pa.array([None, *range(999)]),
        "repeated": pa.array([*range(999), 998]),
        "text": pa.array([f"{number:04}" for number in range(1000)]),
    }
    table = pa.table(columns)
    split = pa.concat_tables([table[:10], table[10:]])
    for tables in ([table], [split], [table, table]):
        assert has_dictionary(written(*tables)) == [False] * 4 + [True] * 5
    later = pa.concat_tables([table[:500], table[:500]])
    assert has_dictionary(written(later)) == [True, False, *[True] * 7]


def test_files_with_nested_columns_or_without_rows_are_encoded() -> None:
    """Leaves of nested columns have dictionaries, except floats."""
    nested = pa.table(
        {"id": [1, 2], "item": [{"n": 1, "x": 1.0}, {"n": 2, "x": 1.0}], "l": [[1.0], [1.0]]}
    )
    assert has_dictionary(written(nested)) == [False, True, False, False]
    sink = io.BytesIO()
    encoder = OUTPUT_FORMATS["parquet"].encoder(sink, nested.schema, "snappy")  # type: ignore[arg-type]
    encoder.close(Statistics(nested.schema, measure=False))
    assert pq.read_table(sink).equals(nested.slice(0, 0))


def test_row_groups_are_filtered_by_their_statistics() -> None:
    """A reader gets only the rows of the other groups."""
    target = io.BytesIO()
    sink = OUTPUT.open_writer(target, SCHEMA)
    for start in (0, 100, 200):
        sink.write(numbers(100, start))
        sink.flush()
    sink.close()
    data = target.getvalue()
    seen: list[Mapping[str, ColumnStatistics]] = []

    def keep(statistics: Mapping[str, ColumnStatistics]) -> bool:
        seen.append(statistics)
        return statistics["a"][1] == 199

    assert read(OUTPUT, data, SCHEMA, {"a"}, keep).column("a").to_pylist() == list(range(100, 200))
    # Parquet does not record whether floats contain NaN.
    assert seen[0] == {"a": (0, 99, 0), "t": ("text 0", "text 99", 0)}
    assert len(seen) == 3


def test_floats_have_no_bounds_in_the_footer() -> None:
    """Spark would skip row groups by them, and NaN, which is greater to Spark, is not within them."""
    kind = pa.list_(pa.field("element", pa.float64()))
    columns = {
        "a.b": pa.array([1.0, 2.0]),
        "id": pa.array([1, 2]),
        "item": pa.array([{"x": 1.0, "n": 1}] * 2, pa.struct([("x", pa.float32()), ("n", pa.int8())])),
        "list": pa.array([[1.0]] * 2, kind),
    }
    row_group = written(pa.table(columns)).row_group(0)
    stored = [row_group.column(number) for number in range(row_group.num_columns)]
    assert [each.path_in_schema for each in stored if each.is_stats_set] == ["id", "item.n"]


def test_columns_without_statistics_have_no_bounds() -> None:
    """Some writers store no statistics."""
    target = io.BytesIO()
    pq.write_table(pa.Table.from_batches([numbers(5)]), target, write_statistics=["t"])
    seen: list[Any] = []
    read(OUTPUT, target.getvalue(), SCHEMA, {"a"}, lambda found: not seen.append(found))
    assert seen == [{"t": ("text 0", "text 4", 0)}]


def test_int96_is_read_in_any_year() -> None:
    """By default Spark writes timestamps so. As nanoseconds, most years would overflow."""
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
    found = read(OUTPUT, target.getvalue(), wanted, keep=lambda each: not seen.append(each))
    [batch] = found.to_batches()
    rows = select(batch, wanted).to_pylist()
    utc = [each.replace(tzinfo=dt.UTC) for each in moments]
    assert rows == [{"t": t, "l": [t], "n": n + 1} for n, t in enumerate(utc)]
    assert seen[0]["n"] == (1, 3, 0)
    assert "t" not in seen[0] or seen[0]["t"][:2] == (None, None)


def test_a_member_of_a_struct_is_not_taken_for_a_column() -> None:
    """pyarrow finds member b of the struct a under the name of a column ``a.b``."""
    table = pa.table({"a": [{"b": 1, "c": 2}], "a.b": [7], "c.d": [8]})
    source = stored(table)
    data = source.get(source.file.path).data
    for names in ({"a.b"}, {"a"}, {"a", "a.b"}, {"a.b", "c.d"}, {"c.d"}):
        wanted = table.select([name for name in table.schema.names if name in names])
        assert read(OUTPUT, data, table.schema, names).equals(wanted)
        assert rows(source, Columns(schema=wanted.schema)) == wanted.to_pylist()
