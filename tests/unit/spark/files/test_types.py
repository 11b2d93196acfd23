"""What types of files are read as."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlog.spark.inputs.rescue import as_json
from commitlog.spark.inputs.types import Misfit, extra_members, fit, matched, plain_type

D = decimal.Decimal

FITS: list[tuple[pa.DataType, pa.DataType, Any, Any]] = [
    (pa.int8(), pa.int64(), -5, -5),
    (pa.uint32(), pa.int64(), 2**32 - 1, 2**32 - 1),
    (pa.uint64(), pa.decimal128(20, 0), 2**64 - 1, D(2**64 - 1)),
    (pa.int32(), pa.decimal128(12, 2), -(2**31), D(-(2**31))),
    (pa.int64(), pa.float64(), 2**53 + 1, float(2**53)),
    (pa.int16(), pa.float32(), -7, -7.0),
    (pa.float16(), pa.float32(), 0.5, 0.5),
    (pa.float32(), pa.float64(), 0.5, 0.5),
    (pa.decimal128(5, 2), pa.decimal128(7, 3), D("1.25"), D("1.250")),
    (pa.decimal256(5, 2), pa.decimal128(5, 2), D("1.25"), D("1.25")),
    (pa.decimal128(5, 2), pa.float64(), D("1.25"), 1.25),
    (pa.large_string(), pa.string(), "é", "é"),
    (pa.string_view(), pa.string(), "é", "é"),
    (pa.binary(), pa.string(), "é".encode(), "é"),
    (pa.binary(2), pa.string(), b"ab", "ab"),
    (pa.string(), pa.binary(), "é", "é".encode()),
    (pa.binary_view(), pa.binary(), b"\xff", b"\xff"),
    (pa.binary(1), pa.binary(), b"\xff", b"\xff"),
    (pa.time64("us"), pa.string(), dt.time(1, 2, 3, 4), "01:02:03.000004"),
    (pa.date64(), pa.date32(), dt.date(1969, 1, 2), dt.date(1969, 1, 2)),
    (pa.duration("s"), pa.int64(), dt.timedelta(seconds=3), 3),
    (pa.timestamp("ms"), pa.timestamp("us"), dt.datetime(1, 1, 1), dt.datetime(1, 1, 1)),
    (
        pa.timestamp("us"),
        pa.timestamp("us", tz="UTC"),
        dt.datetime(2000, 1, 1),
        dt.datetime(2000, 1, 1, tzinfo=dt.UTC),
    ),
    (
        pa.timestamp("s", tz="Europe/Berlin"),
        pa.timestamp("us", tz="UTC"),
        dt.datetime(2000, 1, 1, tzinfo=dt.UTC),
        dt.datetime(2000, 1, 1, tzinfo=dt.UTC),
    ),
    (pa.null(), pa.list_(pa.int8()), None, None),
    (pa.dictionary(pa.int8(), pa.string()), pa.string(), "a", "a"),
    (pa.run_end_encoded(pa.int32(), pa.int8()), pa.int64(), 5, 5),
    (pa.large_list(pa.int8()), pa.list_(pa.int64()), [1, None], [1, None]),
    (pa.list_(pa.int8(), 2), pa.list_(pa.int8()), [1, 2], [1, 2]),
    (
        pa.map_(pa.large_string(), pa.int8()),
        pa.map_(pa.string(), pa.int64()),
        [("a", 1)],
        [("a", 1)],
    ),
    (
        pa.struct([("B", pa.int8()), ("c", pa.int8())]),
        pa.struct([("a", pa.string()), ("b", pa.int64())]),
        {"B": 1, "c": 2},
        {"a": None, "b": 1},
    ),
]


@pytest.mark.parametrize(("found", "kind", "value", "wanted"), FITS, ids=lambda each: str(each)[:40])
def test_a_type_fits_where_each_value_has_its_like(
    found: pa.DataType, kind: pa.DataType, value: Any, wanted: Any
) -> None:
    """A value becomes its like of the other type, a null stays one, in slices and nested, too."""
    array = _array([value, None, value], found)
    for first in (0, 1, 2):
        got = fit(array.slice(first), kind)
        got.validate(full=True)
        assert got.type == kind
        assert got.to_pylist() == [wanted, None, wanted][first:]
    if pa.types.is_run_end_encoded(found):
        return
    both = pa.array([[value], None, [], [value]], pa.list_(array.type))
    for first in (0, 2, 3):
        got = fit(both.slice(first), pa.list_(kind))
        got.validate(full=True)
        assert got.to_pylist() == [[wanted], None, [], [wanted]][first:]
    one = pa.StructArray.from_arrays([array], names=["x"], mask=pa.array([False, False, True]))
    for first in (0, 1, 2):
        got = fit(one.slice(first), pa.struct([("x", kind)]))
        got.validate(full=True)
        assert got.to_pylist() == [{"x": wanted}, {"x": None}, None][first:]


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_run_end_encoded(kind):
        ends = list(range(1, len(values) + 1))
        return pa.RunEndEncodedArray.from_arrays(ends, pa.array(values, kind.value_type))
    if pa.types.is_float16(kind):  # which older releases make by way of numpy
        return pa.array(values, pa.float32()).cast(kind)
    return pa.array(values, kind)


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        (pa.int64(), pa.int32()),
        (pa.uint32(), pa.int32()),
        (pa.uint64(), pa.int64()),
        (pa.int64(), pa.string()),
        (pa.string(), pa.int64()),
        (pa.bool_(), pa.int64()),
        (pa.int8(), pa.bool_()),
        (pa.float64(), pa.float32()),
        (pa.int32(), pa.float32()),
        (pa.float64(), pa.int64()),
        (pa.float64(), pa.decimal128(10, 2)),
        (pa.decimal128(10, 2), pa.decimal128(10, 3)),
        (pa.decimal128(10, 2), pa.decimal128(12, 1)),
        (pa.int64(), pa.decimal128(20, 2)),
        (pa.uint64(), pa.decimal128(19, 0)),
        (pa.date32(), pa.timestamp("us")),
        (pa.timestamp("us"), pa.date32()),
        (pa.int64(), pa.timestamp("us")),
        (pa.list_(pa.int64()), pa.list_(pa.int32())),
        (pa.list_(pa.int64()), pa.int64()),
        (pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.int8())),
        (pa.struct([("a", pa.int64())]), pa.struct([("a", pa.string())])),
        (pa.struct([("ID", pa.int8()), ("Id", pa.int8())]), pa.struct([("id", pa.int8())])),
    ],
    ids=str,
)
def test_a_type_that_could_change_values_does_not_fit(found: pa.DataType, kind: pa.DataType) -> None:
    """Whether types go together does not depend on the values that happen to be there."""
    with pytest.raises(Misfit):
        fit(pa.nulls(0, found), kind)


def test_values_that_have_no_like_are_told() -> None:
    """Bytes that are no text, and times that no microseconds count, are no such values."""
    with pytest.raises(Misfit, match="UTF8"):
        fit(pa.array([b"\xff"]), pa.string())
    with pytest.raises(Misfit):
        fit(pa.array([2**60], pa.int64()).view(pa.timestamp("s")), pa.timestamp("us"))


@given(st.integers(-(2**63), 2**63 - 1))
def test_nanoseconds_are_cut(moment: int) -> None:
    """A time falls into the microsecond that it lies in, before 1970, too."""
    array = pa.array([moment], pa.int64()).view(pa.timestamp("ns"))
    got = fit(array, pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_pylist()
    assert got == [moment // 1000]


def test_every_plain_type_fits() -> None:
    """What a type is read as when nobody says is what it fits."""
    for found, _, _, _ in FITS:
        kind = plain_type(found)
        assert fit(pa.nulls(2, found), kind).type == kind
        assert plain_type(kind) == kind


def test_names_are_matched_without_regard_to_case() -> None:
    """As in Spark; the very name goes first, and what could be two is refused."""
    assert matched(["ID", "id", "Name"], ["id", "name", "x"]) == [1, 2, None]
    for found in (["ID", "Id"], ["id", "id"]):
        with pytest.raises(Misfit, match="id"):
            matched(found, ["id"])


def test_members_that_nobody_knows_are_found_at_any_depth() -> None:
    """Lists, maps and structs are looked into."""
    inner = pa.struct([("a", pa.int8()), ("b", pa.int8())])
    less = pa.struct([("a", pa.int8())])
    for wrap, name in (
        (lambda kind: kind, "c.b"),
        (lambda kind: pa.large_list(kind) if kind is inner else pa.list_(kind), "c.element.b"),
        (lambda kind: pa.map_(kind, pa.int8()), "c.key.b"),
        (lambda kind: pa.map_(pa.int8(), kind), "c.value.b"),
        (lambda kind: pa.struct([("S" if kind is inner else "s", kind)]), "c.s.b"),
    ):
        assert extra_members(wrap(inner), wrap(less), "c") == [name]
        assert extra_members(wrap(less), wrap(inner), "c") == []


def test_any_type_can_be_rescued() -> None:
    """As JSON, whatever it is; a row of nulls is null, and nulls are left out."""
    columns = [_array([value, None], found) for found, _, value, _ in FITS]
    names = [str(number) for number in range(len(columns))]
    got = as_json(names, columns)
    assert got is not None
    assert got.type == pa.string()
    texts = got.to_pylist()
    assert texts[1] is None
    assert '"0":-5' in texts[0]
    assert as_json(["a"], [pa.nulls(3)]) is None
    assert as_json([], []) is None
    odd = pa.array([[(1, "a")]], pa.map_(pa.int8(), pa.string()))
    text = as_json(["m", "n"], [odd, pa.array([[None, {"x": None}]])])
    assert text is not None
    assert text.to_pylist() == ['{"m":[{"key":1,"value":"a"}],"n":[null,{}]}']
