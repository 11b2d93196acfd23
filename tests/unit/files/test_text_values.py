"""CSV and JSON lines of outputs: their exact text, and values that text cannot hold."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlog.errors import CorruptRecord, NotSupported
from commitlog.files import OUTPUT_FORMATS, compression
from support.output_files import HOSTILE, read, rows_for, text_of, write

CSV, JSON = OUTPUT_FORMATS["csv"], OUTPUT_FORMATS["json"]
TEXTS = [CSV, JSON]


def column(values: list[Any], kind: pa.DataType, name: str = "x") -> pa.RecordBatch:
    """Return rows of one column."""
    return pa.record_batch([pa.array(values, kind)], schema=pa.schema([pa.field(name, kind)]))


def table(*columns: tuple[list[Any], pa.DataType]) -> pa.RecordBatch:
    """Return rows of several columns, a, b, and so on."""
    fields = [pa.field(chr(ord("a") + n), kind) for n, (_, kind) in enumerate(columns)]
    return pa.record_batch([pa.array(v, k) for v, k in columns], schema=pa.schema(fields))


def test_csv_has_this_text() -> None:
    """There is no header. Strings are quoted and escaped; null is empty; times are UTC."""
    batch = table(
        (["a", None, ' "\\,', ""], pa.string()),
        ([1, None, -2, 3], pa.int8()),
        ([1.5, None, math.nan, -math.inf], pa.float32()),
        (
            [decimal.Decimal("1.50"), None, decimal.Decimal("-0.01"), decimal.Decimal(0)],
            pa.decimal128(5, 2),
        ),
        ([True, None, False, True], pa.bool_()),
        ([dt.date(2013, 3, 10), None, dt.date(1, 1, 1), dt.date(9999, 12, 31)], pa.date32()),
        ([0, None, -1, 1_362_882_600_123_456], pa.timestamp("us", tz="UTC")),
        ([0, None, -1, 1_362_882_600_123_456], pa.timestamp("us")),
    )
    assert text_of(CSV, batch).decode().splitlines() == [
        '"a",1,1.5,1.50,true,2013-03-10,1970-01-01T00:00:00.000000Z,1970-01-01T00:00:00.000000',
        ",,,,,,,",
        '" \\"\\\\,",-2,NaN,-0.01,false,0001-01-01,'
        "1969-12-31T23:59:59.999999Z,1969-12-31T23:59:59.999999",
        '"",3,-Infinity,0.00,true,9999-12-31,2013-03-10T02:30:00.123456Z,2013-03-10T02:30:00.123456',
    ]


def test_json_has_this_text() -> None:
    """Each row is one valid object, in the order of the columns, without nulls."""
    batch = table(
        ([None, 'a"\\\n\x00é'], pa.string()),
        ([None, decimal.Decimal("1.50")], pa.decimal128(5, 2)),
        ([None, math.nan], pa.float64()),
        ([None, b"\x00\xff"], pa.binary()),
        ([None, dt.date(2013, 3, 10)], pa.date32()),
        ([None, 1_362_882_600_123_456], pa.timestamp("us", tz="UTC")),
        ([None, [None, 1.0, math.inf]], pa.list_(pa.float64())),
        ([None, [("k", None), ('"', ["x"])]], pa.map_(pa.string(), pa.list_(pa.string()))),
        ([None, {"p": None, 'q"': False}], pa.struct([("p", pa.int8()), ('q"', pa.bool_())])),
        ([None, []], pa.list_(pa.int8())),
        ([None, {"p": None}], pa.struct([("p", pa.int8())])),
    )
    lines = text_of(JSON, batch).decode()
    assert lines.splitlines() == [
        "{}",
        r'{"a":"a\"\\\n\u0000é","b":1.50,"c":"NaN","d":"AP8=","e":"2013-03-10",'
        r'"f":"2013-03-10T02:30:00.123456Z","g":[null,1,"Infinity"],"h":{"k":null,"\"":["x"]},'
        r'"i":{"q\"":false},"j":[],"k":{}}',
    ]
    assert lines.endswith("}\n")


@pytest.mark.parametrize("known", TEXTS, ids=lambda known: known.name)
def test_a_file_may_be_split_anywhere(known: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part may end anywhere: within a row, a line break, an escape."""
    batch = table((HOSTILE * 3, pa.string()), (list(range(len(HOSTILE) * 3)), pa.int64()))
    data = text_of(known, batch)
    for block in (*range(1, 150), 1000):
        monkeypatch.setattr(compression, "CHUNK_BYTES", block)
        assert read(known, data, batch.schema).to_pylist() == batch.to_pylist()


@pytest.mark.parametrize("known", TEXTS, ids=lambda known: known.name)
def test_a_row_may_be_longer_than_a_part(known: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row may have any length, and the last row may have no line break."""
    monkeypatch.setattr(compression, "CHUNK_BYTES", 10)
    batch = column(["x" * 1000, "y\r\n" * 500, None, "z"], pa.string())
    data = text_of(known, batch)
    assert read(known, data, batch.schema).to_pylist() == batch.to_pylist()
    assert read(known, data[:-1], batch.schema).to_pylist() == batch.to_pylist()


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([None, 1, None], pa.int8()),
        ([None, True], pa.bool_()),
        ([None, dt.date(2000, 1, 1)], pa.date32()),
        ([None, math.nan], pa.float64()),
        ([None, "x", "\n", '"', None], pa.string()),
    ],
)
def test_null_in_csv_of_one_column_is_kept(values: list[Any], kind: pa.DataType) -> None:
    """Null is an empty string in quotes, because readers skip empty lines."""
    batch = column(values, kind)
    assert text_of(CSV, batch).startswith(b'""\n')
    assert list(map(str, read(CSV, text_of(CSV, batch), batch.schema).column(0).to_pylist())) == list(
        map(str, values)
    )


def test_an_empty_string_in_csv_of_one_column_is_refused() -> None:
    """It would be read as null. In a table with another column it is allowed."""
    with pytest.raises(NotSupported, match="column 'x' has an empty string"):
        write(CSV, column(["a", ""], pa.string()))
    write(CSV, table((["a", ""], pa.string()), ([1, 2], pa.int8())))


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        (pa.binary(), "binary"),
        (pa.list_(pa.int8()), "list<"),
        (pa.map_(pa.string(), pa.int8()), "map<"),
        (pa.struct([("a", pa.int8())]), "struct<"),
    ],
)
def test_types_that_csv_cannot_hold_are_refused(kind: pa.DataType, named: str) -> None:
    """The error names the column and its type."""
    schema = pa.schema([pa.field("fine", pa.int8()), pa.field("odd", kind)])
    with pytest.raises(NotSupported, match=f"column 'odd' is of type {named}.*, which CSV cannot hold"):
        CSV.check(schema)


@pytest.mark.parametrize("wrap", [lambda k: k, pa.list_, lambda k: pa.struct([("a", k)])])
def test_maps_that_json_cannot_hold_are_refused(wrap: Any) -> None:
    """Names in JSON are strings, so keys must be strings, at any depth."""
    fine, odd = (wrap(pa.map_(key, pa.int8())) for key in (pa.string(), pa.int32()))
    JSON.check(pa.schema([pa.field("m", fine)]))
    with pytest.raises(NotSupported, match="column 'm' has a map with keys of type int32"):
        JSON.check(pa.schema([pa.field("m", odd)]))


YEARS = [
    (pa.date32(), -719_163),
    (pa.date32(), 2_932_897),
    (pa.timestamp("us"), -62_135_596_800_000_001),
    (pa.timestamp("us", tz="UTC"), 253_402_300_800_000_000),
]


@pytest.mark.parametrize("known", TEXTS, ids=lambda known: known.name)
@pytest.mark.parametrize(("kind", "value"), YEARS)
def test_years_that_text_cannot_hold_are_refused(known: Any, kind: pa.DataType, value: int) -> None:
    """Years without four digits are refused; the first and the last year with four are allowed."""
    nearest = value + (1 if value < 0 else -1)
    batch = table(([nearest, None, 0], kind), ([1, 2, 3], pa.int8()))
    assert read(known, text_of(known, batch), batch.schema).column("a").cast(kind).to_pylist()[0]
    with pytest.raises(NotSupported, match="column 'a' has a date or time outside of the years"):
        write(known, table(([0, value], kind), ([1, 2], pa.int8())))


def test_nested_years_that_text_cannot_hold_are_refused() -> None:
    """This holds at any depth."""
    kinds = [pa.list_, lambda k: pa.struct([("a", k)]), lambda k: pa.map_(pa.string(), pa.list_(k))]
    for wrap, value in zip(kinds, [[9**7], {"a": 9**7}, [("k", [9**7])]], strict=True):
        with pytest.raises(NotSupported, match="column 'x' has a date or time outside"):
            write(JSON, column([None, value], wrap(pa.date32())))


def test_json_that_pyarrow_cannot_read_is_read_exactly() -> None:
    """The exact reader reads NaN among numbers, and maps and binary at any depth."""
    batch = table(
        ([1.5, math.inf, None, 1e300], pa.float64()),
        (
            [decimal.Decimal("0.1"), None, decimal.Decimal("1e10"), decimal.Decimal(0)],
            pa.decimal128(38, 18),
        ),
        ([None, dt.date(2000, 2, 29)] * 2, pa.date32()),
        ([[1, None], None, [], [2]], pa.list_(pa.timestamp("us", tz="UTC"))),
    )
    assert read(JSON, text_of(JSON, batch), batch.schema).to_pylist() == batch.to_pylist()
    whole = rows_for("json")
    for name in whole.schema.names:
        data = text_of(JSON, whole)
        assert read(JSON, data, whole.schema, {name}).to_pylist() == whole.select([name]).to_pylist()


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (b'{"x":"a"}', pa.int8()),
        (b'{"x":1000}', pa.int8()),
        (b'{"x":"2000-13-01"}', pa.date32()),
        (b'{"x":"yesterday"}', pa.timestamp("us")),
        (b'{"x":{"k":[]}}', pa.map_(pa.string(), pa.int8())),
        (b'{"x":"?"}', pa.binary()),
        (b'{"x":"one"}', pa.decimal128(5, 2)),
        (b'{"x":1', pa.int8()),
        (b"[1]", pa.int8()),
        (b'{"x":[]}', pa.struct([("a", pa.int8()), ("b", pa.binary())])),
    ],
)
def test_json_of_other_columns_is_corrupt(line: bytes, kind: pa.DataType) -> None:
    """Both readers refuse values that do not fit the schema."""
    with pytest.raises(CorruptRecord, match=r"'file\.json' cannot be read as JSON lines of the columns"):
        read(JSON, b"{}\n" + line + b"\n", pa.schema([pa.field("x", kind)]))


def test_json_errors_name_the_offset_of_the_line() -> None:
    """Lines of white space are not rows, and empty lines are skipped."""
    schema = pa.schema([pa.field("x", pa.int8())])
    assert read(JSON, b'\n{"x":1}\n\n{"x":2}', schema).column("x").to_pylist() == [1, 2]
    for line in (b" ", b"\r", b"5", b'{"x":"y"}'):
        with pytest.raises(CorruptRecord, match="to byte 9: "):
            read(JSON, b'{"x":1}\n\n' + line + b'\n{"x":2}\n', schema)


def test_json_read_line_by_line_has_large_batches() -> None:
    """They are as large as those of pyarrow, because each batch costs Spark time."""
    kind = pa.map_(pa.string(), pa.int64())
    batch = column([[("k", number)] for number in range(40_000)], kind)
    found = read(JSON, text_of(JSON, batch), batch.schema)
    assert found.column(0).num_chunks <= 3
    assert found.to_pylist() == batch.to_pylist()


@pytest.mark.parametrize(
    ("rows", "kind"),
    [(b"a,1\n", pa.int8()), (b"1\n", pa.int8()), (b"1,2,3\n", pa.int8()), (b"x,1\n", pa.bool_())],
)
def test_csv_of_other_columns_is_corrupt(rows: bytes, kind: pa.DataType) -> None:
    """The rows do not fit the schema in number or type of columns."""
    with pytest.raises(CorruptRecord, match=r"'file\.csv' cannot be read as CSV of the columns"):
        read(CSV, rows, pa.schema([pa.field("x", kind), pa.field("y", pa.int8())]))


VALUES = st.none() | st.text(max_size=8)


@given(st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=20), st.sampled_from(TEXTS))
def test_any_text_survives(rows: list[tuple[str | None, str | None]], known: Any) -> None:
    """Every string survives, whatever the other column contains."""
    batch = table(([a for a, _ in rows], pa.string()), ([b for _, b in rows], pa.string()))
    data = text_of(known, batch)
    assert read(known, data, batch.schema).to_pylist() == batch.to_pylist()
    if known is JSON:
        parsed = [json.loads(line) for line in data.decode().split("\n")[:-1]]
        assert parsed == [{k: v for k, v in row.items() if v is not None} for row in batch.to_pylist()]


NESTED = pa.struct(
    [
        pa.field("l", pa.list_(pa.struct([pa.field("m", pa.map_(pa.string(), pa.string()))]))),
        pa.field("s", pa.struct([pa.field("t", pa.string()), pa.field("n", pa.int64())])),
    ]
)
MAPS = st.none() | st.dictionaries(st.text(max_size=3), VALUES, max_size=2).map(
    lambda d: list(d.items())
)
STRUCTS = st.none() | st.fixed_dictionaries(
    {
        "l": st.none() | st.lists(st.none() | st.fixed_dictionaries({"m": MAPS}), max_size=2),
        "s": st.none() | st.fixed_dictionaries({"t": VALUES, "n": st.none() | st.integers(-9, 9)}),
    }
)


@given(st.lists(STRUCTS, min_size=1, max_size=12), st.data())
def test_any_nesting_survives(values: list[Any], data: st.DataObject) -> None:
    """JSON keeps nested columns, also in a slice of a batch."""
    whole = column(values, NESTED)
    batch = whole.slice(data.draw(st.integers(0, len(values) - 1)))
    assert read(JSON, text_of(JSON, batch), batch.schema).to_pylist() == batch.to_pylist()
