"""Statistics of columns."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import math
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlog.errors import CorruptRecord
from commitlog.files import OUTPUT_FORMATS, ColumnStatistics, decode
from commitlog.files.statistics import CHARACTERS, COLUMNS
from support.output_files import SIMPLE, rows_for, write


def of(values: list[Any], kind: pa.DataType, name: str = "parquet", parts: int = 2) -> ColumnStatistics:
    """Return the statistics of a column in a file of `parts` groups."""
    schema = pa.schema([pa.field("x", kind), pa.field("other", pa.int8())])
    batch = pa.record_batch([pa.array(values, kind), pa.nulls(len(values), pa.int8())], schema=schema)
    sink = OUTPUT_FORMATS[name].open_writer(Nowhere(), schema)
    size = math.ceil(len(values) / parts) or 1
    for start in range(0, len(values), size):
        sink.write(batch.slice(start, size))
        sink.flush()
    sink.close()
    return sink.statistics["x"]


class Nowhere:
    """A sink that discards all bytes."""

    def write(self, data: bytes) -> int:
        return len(data)


@pytest.mark.parametrize("name", OUTPUT_FORMATS)
def test_bounds_of_every_type(name: str) -> None:
    """Columns of simple types have bounds and numbers of nulls, as JSON values, equal in all formats."""
    _, sink = write(OUTPUT_FORMATS[name], rows_for(name).slice(0, 20), rows_for(name).slice(20))
    found = sink.statistics
    assert found.keys() == SIMPLE.keys()
    assert found == json.loads(
        json.dumps(found), object_hook=lambda o: {k: tuple(v) for k, v in o.items()}
    )
    batch = rows_for(name)
    for column, (low, high, nulls) in found.items():
        values = [value for value in batch.column(column).to_pylist() if value is not None]
        kind = batch.schema.field(column).type
        assert decode(low, kind).as_py() == min(values), column
        assert decode(high, kind).as_py() == max(values), column
        assert nulls == batch.num_rows - len(values)
    assert found["date"][:2] == ("1582-10-15", "9999-12-31")
    assert found["instant"][:2] == ("1900-01-01T00:00:00.000000Z", "2013-03-10T02:30:00.123456Z")
    assert found["local"][:2] == ("0001-01-01T00:00:00.000001", "9999-12-31T23:59:59.000000")
    assert found["wide"][0] == "0E-18" and found["narrow"][:2] == ("-0.01", "999.99")


@pytest.mark.parametrize("name", ["parquet", "arrow"])
@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([], pa.int8(), (None, None, 0)),
        ([None, None], pa.int8(), (None, None, 2)),
        ([None, 1, 2, None], pa.int8(), (1, 2, 2)),
        # Spark orders NaN after all numbers; writers of Parquet do not count it as a number.
        ([1.0, 2.0, math.nan, 3.0], pa.float64(), (None, None, 0)),
        ([math.nan] * 2, pa.float32(), (None, None, 0)),
        ([-math.inf, 1.0, 2.0, 3.0], pa.float64(), (None, 3.0, 0)),
        ([1.0, 2.0, 3.0, math.inf], pa.float32(), (1.0, None, 0)),
        ([-math.inf, 1.0, math.inf, 3.0], pa.float64(), (None, None, 0)),
        ([dt.date(1, 1, 1), None, dt.date(9999, 12, 31)], pa.date32(), ("0001-01-01", "9999-12-31", 1)),
        ([-719_163, 0], pa.date32(), (None, "1970-01-01", 0)),
        ([0, 2_932_897], pa.date32(), ("1970-01-01", None, 0)),
        ([0, 253_402_300_800_000_000], pa.timestamp("us"), ("1970-01-01T00:00:00.000000", None, 0)),
        (["x" * CHARACTERS, "y"], pa.string(), ("x" * CHARACTERS, "y", 0)),
        (["x" * 99], pa.string(), ("x" * CHARACTERS, "x" * (CHARACTERS - 1) + "y", 0)),
        (["\ud7ff" * 99], pa.string(), ("\ud7ff" * 32, "\ud7ff" * 31 + "\ue000", 0)),
        (["x" + "\U0010ffff" * 99], pa.string(), ("x" + "\U0010ffff" * 31, "y", 0)),
        (["\U0010ffff" * 99], pa.string(), ("\U0010ffff" * 32, None, 0)),
        # too long for the footer of Parquet
        (["a", "b", "x" * 5000], pa.string(), None),
    ],
)
def test_unknown_bounds_are_none(
    name: str, values: list[Any], kind: pa.DataType, expected: ColumnStatistics | None
) -> None:
    """The column has no bounds if none holds, or if they cannot be stored."""
    if expected is None:
        expected = (None, None, 0) if name == "parquet" else ("a", "x" * 31 + "y", 0)
    assert of(values, kind, name) == expected


TEXTS = st.text(
    st.sampled_from(["a", "b", "\x00", "\x7f", "é", "\ud7ff", "\ue000", "\U0010ffff"]), max_size=40
)


@given(st.lists(st.none() | TEXTS, min_size=1), st.sampled_from(["parquet", "arrow"]))
def test_bounds_of_text_hold(values: list[str | None], name: str) -> None:
    """Every string is within the bounds, also truncated ones, in the order of its UTF-8 bytes."""
    low, high, nulls = of(values, pa.string(), name)
    given_ = [value.encode() for value in values if value is not None]
    assert nulls == len(values) - len(given_)
    if given_ and low is not None:
        assert str(low).encode() <= min(given_)
    if given_ and high is not None:
        assert max(given_) <= str(high).encode()
    assert max(len(str(low)), len(str(high))) <= CHARACTERS


@given(st.lists(st.none() | st.floats(width=32), min_size=1), st.sampled_from(["parquet", "arrow"]))
def test_bounds_of_floats_hold(values: list[float | None], name: str) -> None:
    """Every number is within the bounds. A column with NaN has no bounds."""
    low, high, _ = of(values, pa.float32(), name)
    found = [value for value in values if value is not None]
    if any(map(math.isnan, found)):
        assert low is None and high is None
    for value in found:
        assert low is None or decode(low, pa.float32()).as_py() <= value
        assert high is None or decode(high, pa.float32()).as_py() >= value
        assert not math.isfinite(value) or low is not None or any(not math.isfinite(v) for v in found)


def test_the_first_columns_of_a_wide_table_have_statistics() -> None:
    """Nested columns do not count."""
    fields = [pa.field(f"c{n}", pa.int8()) for n in range(COLUMNS + 5)]
    fields.insert(1, pa.field("nested", pa.struct([("c5", pa.int8()), ("c6", pa.int8())])))
    schema = pa.schema(fields)
    row = {field.name: number for number, field in enumerate(fields)} | {"nested": {"c5": 99, "c6": 98}}
    _, sink = write(OUTPUT_FORMATS["parquet"], pa.RecordBatch.from_pylist([row], schema=schema))
    assert list(sink.statistics) == [f"c{n}" for n in range(COLUMNS)]
    assert sink.statistics["c5"] == (6, 6, 0)


def test_names_with_dots_are_not_mixed_up() -> None:
    """Column ``a.b`` is not member b of the struct a."""
    schema = pa.schema([pa.field("a", pa.struct([("b", pa.int8())])), pa.field("a.b", pa.int8())])
    batch = pa.record_batch([[{"b": 1}], [2]], schema=schema)
    assert write(OUTPUT_FORMATS["parquet"], batch)[1].statistics == {"a.b": (2, 2, 0)}


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("x", pa.int8()),
        (300, pa.int8()),
        ("2013-13-01", pa.date32()),
        ("2013-01-01T00:00:00", pa.timestamp("us", tz="UTC")),
        ([1], pa.int8()),
        ("1.234", pa.decimal128(5, 2)),
        (True, pa.string()),
    ],
)
def test_an_invalid_bound_is_corrupt(value: object, kind: pa.DataType) -> None:
    """The bounds in commit records are checked."""
    with pytest.raises(CorruptRecord, match="is not a bound of a column of type"):
        decode(value, kind)


def test_an_unknown_bound_decodes_to_null() -> None:
    """The null has the type of the column."""
    for kind in (pa.int8(), pa.string(), pa.date32(), pa.timestamp("us", tz="UTC"), pa.decimal128(5, 2)):
        assert not decode(None, kind).is_valid and decode(None, kind).type == kind
    assert decode("1.50", pa.decimal128(5, 2)).as_py() == decimal.Decimal("1.50")
    assert pc.equal(decode(2, pa.float32()), pa.scalar(2.0, pa.float32())).as_py()
