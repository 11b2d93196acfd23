"""Columns that become directories."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlog.errors import ConfigurationError, CorruptRecord, NotSupported
from commitlog.paths import check_path
from commitlog.tabular.partitions import (
    check_partitioning,
    check_spelling,
    column_of,
    directory_of,
    partition_of,
    split_batch,
    value_of,
)

INSTANT = pa.timestamp("us", tz="UTC")
NEW_YORK = datetime.timezone(datetime.timedelta(hours=-4))
MOMENT = datetime.datetime(2013, 3, 10, 2, 30, 0, 120_000)
ROWS = pa.record_batch(
    {
        "n": pa.array([1, None, 1, -2, None], pa.int16()),
        "day": pa.array([datetime.date(2013, 1, 1)] * 5),
        "flag": [True, False, None, True, False],
        "text": ["ü", "a/b", "ü", None, "a/b"],
        "price": pa.array([Decimal("0.00"), None, Decimal("-1.50")] * 2, pa.decimal128(20, 2))[:5],
        "instant": pa.array([MOMENT, None, MOMENT.replace(microsecond=0)] * 2, INSTANT)[:5],
        "local": pa.array([MOMENT, None, MOMENT.replace(year=1)] * 2, pa.timestamp("us"))[:5],
        "row": pa.array(range(5), pa.int64()),
    }
)
NAMES = ["n", "day", "flag", "text", "price", "instant", "local"]


def test_rows_split_and_joined_are_the_same_rows() -> None:
    """Each row is in one partition, whose values can be read back from their text."""
    seen = []
    for values, rows in split_batch(ROWS, NAMES):
        assert rows.schema.names == ["row"]
        partition = partition_of(NAMES, values)
        columns = {
            n: column_of(partition, ROWS.schema.field(n), rows.num_rows).to_pylist() for n in NAMES
        }
        for index, row in enumerate(rows.column("row").to_pylist()):
            seen.append({**{name: columns[name][index] for name in NAMES}, "row": row})
    assert sorted(seen, key=lambda row: row["row"]) == ROWS.to_pylist()


def test_rows_of_a_part_keep_their_order() -> None:
    """The rows of a partition keep their order."""
    batch = pa.record_batch({"k": [0, 1] * 500, "v": list(range(1000))})
    for (key,), rows in split_batch(batch, ["k"]):
        assert rows.column("v").to_pylist() == list(range(key, 1000, 2))


def test_many_columns_of_many_values_are_kept_apart() -> None:
    """Nine columns of 256 values make no two combinations equal by an overflow."""
    numbers = [*range(256), 255]
    batch = pa.record_batch({"a": [0] * 256 + [1], **{f"b{n}": numbers for n in range(8)}, "v": numbers})
    parts = list(split_batch(batch, batch.schema.names[:-1]))
    assert len(parts) == 257


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (-7, pa.int64(), "-7"),
        (True, pa.bool_(), "true"),
        (Decimal("0E-18"), pa.decimal128(38, 18), "0.000000000000000000"),
        (Decimal("-1.50"), pa.decimal128(5, 2), "-1.50"),
        (datetime.date(1, 1, 1), pa.date32(), "0001-01-01"),
        (MOMENT.replace(tzinfo=NEW_YORK), INSTANT, "2013-03-10T06:30:00.12Z"),
        (datetime.datetime(9999, 12, 31, tzinfo=datetime.UTC), INSTANT, "9999-12-31T00:00:00Z"),
        (MOMENT, pa.timestamp("us"), "2013-03-10 02:30:00.12"),
        (MOMENT.replace(microsecond=0), pa.timestamp("us"), "2013-03-10 02:30:00"),
        ("trailing  ", pa.string(), "trailing  "),
    ],
)
def test_a_value_has_one_spelling(value: object, kind: pa.DataType, text: str) -> None:
    """Equal values have the same spelling, because jobs replace partitions by spelling."""
    assert partition_of(["x"], [value]) == {"x": text}
    assert value_of(text, kind).equals(pa.scalar(value, kind))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("2013-03-10 02:30:00", INSTANT),
        ("2013-03-10T02:30:00", pa.timestamp("us")),
        ("1E-7", pa.decimal128(9, 7)),
        ("1.5", pa.decimal128(5, 2)),
        ("01", pa.int8()),
        ("True", pa.bool_()),
        ("x", pa.int8()),
    ],
)
def test_other_spellings_are_refused(text: str, kind: pa.DataType) -> None:
    """A foreign directory is accepted if its value has the usual spelling."""
    schema = pa.schema([pa.field("x", kind), pa.field("y", pa.string())])
    with pytest.raises(NotSupported, match=f"value {text!r} of partition column 'x' is not spelled"):
        check_spelling({"y": "any", "x": text}, schema)
    check_spelling({"y": "any", "x": None, "z": "unknown"}, schema)


@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("us"), INSTANT])
def test_years_of_five_digits_are_refused(kind: pa.DataType) -> None:
    """The error for a year of five digits names the column."""
    batch = pa.record_batch(
        [pa.array([2**31 - 1 if kind == pa.date32() else 2**62], kind), [1]], ["x", "y"]
    )
    with pytest.raises(NotSupported, match="column 'x' has a date or a time outside of the years"):
        list(split_batch(batch, ["x"]))


def test_an_empty_batch_has_no_parts() -> None:
    """Without rows there is no directory."""
    assert list(split_batch(ROWS.slice(0, 0), NAMES)) == []


@given(st.text(st.characters(codec="utf-8"), min_size=1))
def test_any_text_makes_a_path(text: str) -> None:
    """The directory of any value is one segment of a valid path."""
    directory = directory_of(partition_of(["k"], [text]))
    assert directory.count("/") == 1
    if len(directory) < 300:
        assert check_path(directory + "f")


@pytest.mark.parametrize("value", ["", "__HIVE_DEFAULT_PARTITION__"])
def test_text_that_readers_take_for_null_is_refused(value: str) -> None:
    """Values that a directory cannot distinguish from null are refused."""
    with pytest.raises(NotSupported, match="cannot distinguish from null"):
        partition_of(["k"], [value])


@pytest.mark.parametrize(
    ("names", "error", "message"),
    [
        (["x"], ConfigurationError, "no column 'x' to partition by; the columns are n, day"),
        (["n", "n"], ConfigurationError, "twice"),
        ([*NAMES, "row"], ConfigurationError, "nothing is left"),
        (["float"], NotSupported, "'float' is of type double"),
        ([".hidden"], NotSupported, "'.hidden': readers ignore directories"),
    ],
)
def test_wrong_partition_columns_are_refused(
    names: list[str], error: type[Exception], message: str
) -> None:
    """Wrong partition columns are refused before a task runs."""
    schema = ROWS.schema
    for name, kind in {"float": pa.float64(), ".hidden": pa.int8()}.items():
        schema = schema.append(pa.field(name, kind)) if name in names else schema
    with pytest.raises(error, match=message):
        check_partitioning(schema, names)


def test_a_record_that_contradicts_the_schema_is_corrupt() -> None:
    """A record that contradicts the schema raises CorruptRecord."""
    with pytest.raises(CorruptRecord, match="'abc' is not of type int16"):
        column_of({"n": "abc"}, pa.field("n", pa.int16()), 1)
    with pytest.raises(CorruptRecord, match="neither in the file nor in its path"):
        column_of({}, pa.field("n", pa.int16()), 1)
