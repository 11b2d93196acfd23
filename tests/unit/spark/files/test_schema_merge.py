"""One schema of many: types that go together, and those that do not."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlog.errors import ConfigurationError
from commitlog.spark.inputs.merge import merge, settled


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
def test_types_that_go_together(first: pa.DataType, second: pa.DataType, both: pa.DataType) -> None:
    """They make one that holds both, wherever in a column they are, and whichever comes first."""
    assert merge([of(a=first), of(a=second)]) == of(a=both)
    assert merge([of(a=element(second)), of(a=element(first))]).field("a").type.value_type.equals(
        both
    ) or pa.types.is_struct(both)


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
def test_types_that_do_not(first: pa.DataType, second: pa.DataType, named: str) -> None:
    """They are an error that names the column and both types; of text they make strings."""
    with pytest.raises(ConfigurationError, match=named):
        merge([of(a=first), of(a=second)])
    found = merge([of(a=first), of(a=second)], strings=True).field("a").type
    while pa.types.is_nested(found):
        found = found.field(found.num_fields - 1).type
    assert found == pa.string()


def test_columns_come_in_the_order_of_their_first_appearance() -> None:
    """Also those that nothing but nulls was seen of."""
    found = merge([of(b=pa.null(), a=pa.int8()), of(c=pa.int8()), of(a=pa.int8(), b=pa.int8())])
    assert found == of(b=pa.int8(), a=pa.int8(), c=pa.int8())
    assert merge([]) == pa.schema([])


@given(SCHEMAS)
def test_merging_adds_nothing_of_its_own(schemas: list[pa.Schema]) -> None:
    """What is merged already stays as it is, in strings and out of them; each column is there."""
    found = merge(schemas, strings=True)
    assert merge([found, *schemas], strings=True) == found
    assert set(found.names) == {name for schema in schemas for name in schema.names}


@given(SCHEMAS)
def test_what_is_settled_has_no_nulls(schemas: list[pa.Schema]) -> None:
    """Nulls and structs without members have become strings, and nothing else has changed."""
    found = settled(merge(schemas, strings=True))
    assert "null" not in str(found).replace("not null", "")
    assert "struct<>" not in str(found)
    assert settled(found) == found
