"""Types of files: conversion to the types of a query, and unification."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlog.errors import ConfigurationError
from commitlog.files.rescue import as_json
from commitlog.files.types import (
    TypeMismatch,
    convert,
    match_names,
    replace_null_types,
    spark_type,
    unify_schemas,
    unknown_members,
)

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
def test_convert_keeps_each_value(
    found: pa.DataType, kind: pa.DataType, value: Any, wanted: Any
) -> None:
    """A value becomes the equal value of the other type, and a null stays null; nested ones too."""
    array = _array([value, None, value], found)
    for first in (0, 1, 2):
        got = convert(array.slice(first), kind)
        got.validate(full=True)
        assert got.type == kind
        assert got.to_pylist() == [wanted, None, wanted][first:]
    if pa.types.is_run_end_encoded(found):
        return
    both = _array([[value], None, [], [value]], pa.list_(array.type))
    for first in (0, 2, 3):
        got = convert(both.slice(first), pa.list_(kind))
        got.validate(full=True)
        assert got.to_pylist() == [[wanted], None, [], [wanted]][first:]
    one = pa.StructArray.from_arrays([array], names=["x"], mask=pa.array([False, False, True]))
    for first in (0, 1, 2):
        got = convert(one.slice(first), pa.struct([("x", kind)]))
        got.validate(full=True)
        assert got.to_pylist() == [{"x": wanted}, {"x": None}, None][first:]


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_run_end_encoded(kind):
        ends = list(range(1, len(values) + 1))
        return pa.RunEndEncodedArray.from_arrays(ends, pa.array(values, kind.value_type))
    if pa.types.is_float16(kind):  # older releases need numpy for it, and end the process in a list
        return pa.array(values, pa.float32()).cast(kind)
    if pa.types.is_list(kind) and pa.types.is_float16(kind.value_type):
        return pa.array(values, pa.list_(pa.float32())).cast(kind)
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
def test_convert_refuses_a_type_that_could_change_values(found: pa.DataType, kind: pa.DataType) -> None:
    """The types alone decide, not the values."""
    with pytest.raises(TypeMismatch):
        convert(pa.nulls(0, found), kind)


def test_convert_refuses_values_without_an_equal() -> None:
    """Examples are bytes that are not UTF-8, and times beyond the range of microseconds."""
    with pytest.raises(TypeMismatch, match="UTF8"):
        convert(pa.array([b"\xff"]), pa.string())
    with pytest.raises(TypeMismatch):
        convert(pa.array([2**60], pa.int64()).view(pa.timestamp("s")), pa.timestamp("us"))


@given(st.integers(-(2**63), 2**63 - 1))
def test_nanoseconds_are_rounded_down(moment: int) -> None:
    """A time is rounded down to a microsecond, before 1970 too."""
    array = pa.array([moment], pa.int64()).view(pa.timestamp("ns"))
    got = convert(array, pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_pylist()
    assert got == [moment // 1000]


def test_every_type_converts_to_its_spark_type() -> None:
    """So a column of an inferred type can be read."""
    for found, _, _, _ in FITS:
        kind = spark_type(found)
        assert convert(pa.nulls(2, found), kind).type == kind
        assert spark_type(kind) == kind


def test_names_are_matched_without_regard_to_case() -> None:
    """This is as in Spark. An equal name goes first; a name that matches two columns is refused."""
    assert match_names(["ID", "id", "Name"], ["id", "name", "x"]) == [1, 2, None]
    for found in (["ID", "Id"], ["id", "id"]):
        with pytest.raises(TypeMismatch, match="id"):
            match_names(found, ["id"])


def test_unknown_members_are_found_at_any_depth() -> None:
    """They are found in lists, maps and structs."""
    inner = pa.struct([("a", pa.int8()), ("b", pa.int8())])
    less = pa.struct([("a", pa.int8())])
    for wrap, name in (
        (lambda kind: kind, "c.b"),
        (lambda kind: pa.large_list(kind) if kind is inner else pa.list_(kind), "c.element.b"),
        (lambda kind: pa.map_(kind, pa.int8()), "c.key.b"),
        (lambda kind: pa.map_(pa.int8(), kind), "c.value.b"),
        (lambda kind: pa.struct([("S" if kind is inner else "s", kind)]), "c.s.b"),
    ):
        assert unknown_members(wrap(inner), wrap(less), "c") == [name]
        assert unknown_members(wrap(less), wrap(inner), "c") == []


def test_any_type_can_be_rescued() -> None:
    """A value is rescued as JSON. A row of nulls is null, and nulls are left out."""
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
    pairs = pa.array([[(1, "a")]], pa.map_(pa.int8(), pa.string()))
    text = as_json(["m", "n"], [pairs, pa.array([[None, {"x": None}]])])
    assert text is not None
    assert text.to_pylist() == ['{"m":[{"key":1,"value":"a"}],"n":[null,{}]}']


# -- unified types --------------------------------------------------------------------------------------


def of(**columns: pa.DataType) -> pa.Schema:
    """Return a schema."""
    return pa.schema(list(columns.items()))


def element(kind: pa.DataType) -> pa.DataType:
    """Return the type of a list."""
    return pa.list_(pa.field("element", kind))


LEAVES = st.sampled_from(
    [
        *(
            pa.null(),
            pa.int8(),
            pa.int32(),
            pa.int64(),
            pa.float32(),
            pa.float64(),
            pa.decimal128(20, 3),
        ),
        *(pa.string(), pa.bool_(), pa.date32(), pa.timestamp("us"), pa.timestamp("us", tz="UTC")),
    ]
)
TYPES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        inner.map(element),
        inner.map(lambda kind: pa.map_(pa.string(), pa.field("value", kind))),
        st.dictionaries(st.sampled_from("abc"), inner, max_size=3).map(
            lambda members: pa.struct(list(members.items()))
        ),
    ),
    max_leaves=4,
)
SCHEMAS = st.lists(st.dictionaries(st.sampled_from("abc"), TYPES, max_size=3).map(lambda c: of(**c)))


@pytest.mark.parametrize(
    ("first", "second", "both"),
    [
        (pa.null(), pa.date32(), pa.date32()),
        (pa.int32(), pa.int64(), pa.int64()),
        (pa.int64(), pa.float64(), pa.float64()),
        (pa.int64(), pa.float32(), pa.float64()),
        (pa.int64(), pa.decimal128(20, 0), pa.decimal128(20, 0)),
        (pa.decimal128(20, 0), pa.float64(), pa.float64()),
        (pa.decimal128(38, 0), pa.decimal128(38, 10), pa.float64()),
        (element(pa.null()), element(pa.int8()), element(pa.int8())),
        (
            pa.map_(pa.string(), pa.int8()),
            pa.map_(pa.string(), pa.int16()),
            pa.map_(pa.string(), pa.int16()),
        ),
        (
            pa.struct([("y", pa.int8()), ("x", pa.null())]),
            pa.struct([("z", pa.string()), ("x", pa.bool_())]),
            pa.struct([("y", pa.int8()), ("x", pa.bool_()), ("z", pa.string())]),
        ),
    ],
)
def test_types_that_unify(first: pa.DataType, second: pa.DataType, both: pa.DataType) -> None:
    """The unified type holds both, at any depth of a column, in either order."""
    assert unify_schemas([of(a=first), of(a=second)]) == of(a=both)
    assert unify_schemas([of(a=element(second)), of(a=element(first))]).field(
        "a"
    ).type.value_type.equals(both) or pa.types.is_struct(both)


@pytest.mark.parametrize(
    ("first", "second", "named"),
    [
        (
            pa.int64(),
            pa.string(),
            "column 'a' is of type int64 in one file and of type string in another",
        ),
        (pa.bool_(), pa.int8(), "column 'a' is of type bool"),
        (pa.date32(), pa.timestamp("us"), "column 'a' is of type date32"),
        (pa.timestamp("us"), pa.timestamp("us", tz="UTC"), "column 'a' is of type timestamp"),
        (pa.string(), pa.binary(), "column 'a' is of type string"),
        (element(pa.int8()), pa.int8(), "column 'a' is of type list"),
        (element(pa.int8()), element(pa.bool_()), "column 'a.element' is of type int8"),
        (pa.struct([("b", pa.int8())]), pa.struct([("b", pa.bool_())]), "column 'a.b' is of type int8"),
        (
            pa.map_(pa.string(), pa.int8()),
            pa.map_(pa.string(), pa.bool_()),
            "column 'a.value' is of type int8",
        ),
    ],
)
def test_types_that_do_not_unify(first: pa.DataType, second: pa.DataType, named: str) -> None:
    """The error names the column and both types. Types of text unify to string."""
    with pytest.raises(ConfigurationError, match=named):
        unify_schemas([of(a=first), of(a=second)])
    found = unify_schemas([of(a=first), of(a=second)], strings=True).field("a").type
    while pa.types.is_nested(found):
        found = found.field(found.num_fields - 1).type
    assert found == pa.string()


def test_columns_come_in_the_order_of_their_first_appearance() -> None:
    """This includes columns with only nulls."""
    found = unify_schemas([of(b=pa.null(), a=pa.int8()), of(c=pa.int8()), of(a=pa.int8(), b=pa.int8())])
    assert found == of(b=pa.int8(), a=pa.int8(), c=pa.int8())
    assert unify_schemas([]) == pa.schema([])


@given(SCHEMAS)
def test_unifying_again_changes_nothing(schemas: list[pa.Schema]) -> None:
    """A schema unified with its own parts stays the same and keeps each column."""
    found = unify_schemas(schemas, strings=True)
    assert unify_schemas([found, *schemas], strings=True) == found
    assert set(found.names) == {name for schema in schemas for name in schema.names}


@given(SCHEMAS)
def test_null_types_are_replaced(schemas: list[pa.Schema]) -> None:
    """Nulls and structs without members become strings, and other types stay."""
    found = replace_null_types(unify_schemas(schemas, strings=True))
    assert "null" not in str(found).replace("not null", "")
    assert "struct<>" not in str(found)
    assert replace_null_types(found) == found
