"""Files and row groups that a query skips; a file with a matching row is never skipped."""

from __future__ import annotations

import datetime as dt
import math
import pickle
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import datasource as ds
from pyspark.sql import types as t
from pyspark.sql.datasource import Filter

from commitlog.errors import CorruptRecord
from commitlog.outputs import DataFile
from commitlog.spark.files import OUTPUT_FORMATS, ColumnStatistics
from commitlog.spark.partitions import partition_of
from commitlog.spark.pruning import Pruning
from commitlog.spark.schema import arrow_schema
from support.output_files import read, write

X = ("x",)
PLUS_TWO = dt.timezone(dt.timedelta(hours=2))
TEXT = st.text(st.sampled_from(["a", "b", "\x00", "é", "\ud7ff", "\ue000", "\U0010ffff"]), max_size=40)
MOMENTS = st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30))

#: Values of each type; few of them, so that equal values occur.
VALUES: dict[str, tuple[t.DataType, st.SearchStrategy[Any]]] = {
    "boolean": (t.BooleanType(), st.booleans()),
    "int": (t.IntegerType(), st.integers(-3, 3) | st.integers(-(2**31), 2**31 - 1)),
    "long": (t.LongType(), st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1)),
    "float": (
        t.FloatType(),
        st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf]) | st.floats(width=32),
    ),
    "double": (t.DoubleType(), st.sampled_from([0.0, -0.0, math.nan, 1.5, -math.inf]) | st.floats()),
    "decimal": (t.DecimalType(5, 2), st.integers(-300, 300).map(lambda n: Decimal(n).scaleb(-2))),
    "date": (t.DateType(), st.dates(dt.date(2013, 1, 1), dt.date(2013, 1, 5)) | st.dates()),
    "instant": (t.TimestampType(), MOMENTS.map(lambda moment: moment.replace(tzinfo=dt.UTC))),
    "local": (t.TimestampNTZType(), MOMENTS),
    "text": (t.StringType(), st.sampled_from(["", "a", "ab", "b"]) | TEXT),
}
PARTITIONED = sorted(VALUES.keys() - {"float", "double"})


def order(value: Any) -> Any:
    """Return a key that Python orders as Spark orders `value`."""
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value)
    return value.encode() if isinstance(value, str) else value


def holds(each: Filter, value: Any) -> bool | None:
    """Evaluate a filter on one value as Spark does; None for null."""
    if isinstance(each, ds.Not):
        child = holds(each.child, value)
        return None if child is None else not child
    if isinstance(each, ds.IsNull | ds.IsNotNull):
        return (value is None) == isinstance(each, ds.IsNull)
    asked: Any = getattr(each, "value", None)
    if isinstance(each, ds.EqualNullSafe):
        if value is None or asked is None:
            return value is asked
        return bool(order(value) == order(asked))
    if value is None:
        return None
    if isinstance(each, ds.In):
        found = any(one is not None and order(one) == order(value) for one in asked)
        return found or (None if None in asked else False)
    if asked is None:
        return None
    compare: dict[type[Filter], Callable[[Any, Any], bool]] = {
        ds.EqualTo: lambda a, b: order(a) == order(b),
        ds.LessThan: lambda a, b: order(a) < order(b),
        ds.LessThanOrEqual: lambda a, b: order(a) <= order(b),
        ds.GreaterThan: lambda a, b: order(a) > order(b),
        ds.GreaterThanOrEqual: lambda a, b: order(a) >= order(b),
        ds.StringStartsWith: lambda a, b: a.startswith(b),
        ds.StringEndsWith: lambda a, b: a.endswith(b),
        ds.StringContains: lambda a, b: b in a,
    }
    return bool(compare[type(each)](value, asked))


def filters_of(name: str) -> st.SearchStrategy[Filter]:
    """Make filters of a column called x that has the type `name`."""
    values = VALUES[name][1]
    kinds = [ds.EqualTo, ds.LessThan, ds.LessThanOrEqual, ds.GreaterThan, ds.GreaterThanOrEqual]
    found = st.one_of(
        *(st.builds(kind, st.just(X), values) for kind in kinds),
        st.builds(ds.EqualNullSafe, st.just(X), st.none() | values),
        st.builds(ds.In, st.just(X), st.lists(st.none() | values, max_size=4).map(tuple)),
        st.sampled_from([ds.IsNull(X), ds.IsNotNull(X)]),
    )
    if name == "text":
        short = st.sampled_from(["", "a", "ab"]) | TEXT
        texts = [ds.StringStartsWith, ds.StringEndsWith, ds.StringContains]
        found |= st.one_of(*(st.builds(kind, st.just(X), short) for kind in texts))
    return found | found.map(ds.Not)


def batch_of(name: str, values: list[Any]) -> pa.RecordBatch:
    """Return rows with a column x of the type `name`, and another one."""
    schema = arrow_schema(schema_of(VALUES[name][0]))
    return pa.record_batch(
        [pa.array(values, schema.field("x").type), pa.array([1] * len(values), pa.int64())],
        schema=schema,
    )


def schema_of(kind: t.DataType) -> t.StructType:
    """Return the schema of an output whose column x is of type `kind`."""
    return t.StructType([t.StructField("x", kind), t.StructField("y", t.LongType())])


def file_of(
    stats: ColumnStatistics | None = None,
    partition: dict[str, str | None] | None = None,
    rows: int | None = 10,
) -> DataFile:
    """Return a file with the statistics `stats` of column x."""
    known = {} if stats is None else {"x": stats}
    return DataFile(path="f", size=1, nonce="n", rows=rows, partition=partition or {}, stats=known)


def wants(file: DataFile, kind: t.DataType, *filters: Filter) -> bool:
    """Return whether a query with `filters` needs `file`."""
    return Pruning.of(filters, schema_of(kind)).wants(file)


@st.composite
def cases(draw: st.DrawFn) -> tuple[str, list[Any], list[Filter]]:
    """Return a type, values, and filters."""
    name = draw(st.sampled_from(sorted(VALUES)))
    values = draw(st.lists(st.none() | VALUES[name][1], min_size=1, max_size=6))
    return name, values, draw(st.lists(filters_of(name), min_size=1, max_size=3))


@given(cases(), st.sampled_from(["parquet", "arrow"]), st.booleans())
def test_a_file_with_a_matching_row_is_never_skipped(
    case: tuple[str, list[Any], list[Filter]], fmt: str, counted: bool
) -> None:
    """This holds for any values and filters."""
    name, values, filters = case
    _, sink = write(OUTPUT_FORMATS[fmt], batch_of(name, values))
    file = file_of(sink.statistics["x"], rows=len(values) if counted else None)
    if any(all(holds(each, value) for each in filters) for value in values):
        assert wants(file, VALUES[name][0], *filters)


@given(cases())
def test_a_part_with_a_matching_row_is_never_skipped(
    case: tuple[str, list[Any], list[Filter]],
) -> None:
    """In this test, each row is a part of the file."""
    name, values, filters = case
    batch = batch_of(name, values)
    target = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_batches([batch]), target, row_group_size=1)
    pruning = Pruning.of(filters, schema_of(VALUES[name][0]))
    asked: list[bool] = []

    def keep(stats: Mapping[str, ColumnStatistics]) -> bool:
        asked.append(pruning.wants_part(stats))
        return True

    read(OUTPUT_FORMATS["parquet"], target.getvalue().to_pybytes(), batch.schema, {"x"}, keep)
    for value, wanted in zip(values, asked, strict=True):
        assert wanted or not all(holds(each, value) for each in filters)


@given(st.data())
def test_a_partition_is_skipped_if_and_only_if_it_does_not_match(data: st.DataObject) -> None:
    """Filters on a partition column are exact, because its value is known."""
    name = data.draw(st.sampled_from(PARTITIONED))
    value = data.draw(st.none() | VALUES[name][1].filter(lambda value: value != ""))
    filters = data.draw(st.lists(filters_of(name), min_size=1, max_size=2))
    file = file_of(partition=partition_of(["x"], [value]))
    wanted = wants(file, VALUES[name][0], *filters)
    if all(holds(each, value) for each in filters):
        assert wanted
    elif not any(None in getattr(each, "value", ()) for each in map(inner, filters) if is_in(each)):
        assert not wanted


def inner(each: Filter) -> Filter:
    """Return the negated filter."""
    return each.child if isinstance(each, ds.Not) else each


def is_in(each: Filter) -> bool:
    """Return whether `each` is a list of values."""
    return isinstance(inner(each), ds.In)


MARCH = dt.datetime(2013, 3, 10, 2, 30, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("kind", "stats", "each", "expected"),
    [
        (t.LongType(), (3, 7, 0), ds.EqualTo(X, 8), False),
        (t.LongType(), (3, 7, 0), ds.EqualTo(X, 2), False),
        (t.LongType(), (3, 7, 0), ds.EqualTo(X, 7), True),
        (t.LongType(), (3, 7, 0), ds.EqualNullSafe(X, 8), False),
        (t.LongType(), (3, 7, 0), ds.EqualNullSafe(X, None), False),
        (t.LongType(), (3, 7, 1), ds.EqualNullSafe(X, None), True),
        (t.LongType(), (3, 7, 0), ds.In(X, (1, 9)), False),
        (t.LongType(), (3, 7, 0), ds.In(X, (1, 5)), True),
        (t.LongType(), (3, 7, 0), ds.GreaterThan(X, 7), False),
        (t.LongType(), (3, 7, 0), ds.GreaterThanOrEqual(X, 7), True),
        (t.LongType(), (3, 7, 0), ds.LessThan(X, 3), False),
        (t.LongType(), (3, 7, 0), ds.LessThanOrEqual(X, 3), True),
        (t.LongType(), (3, 7, 0), ds.Not(ds.LessThanOrEqual(X, 7)), False),
        (t.LongType(), (3, 7, 0), ds.Not(ds.EqualTo(X, 3)), True),
        (t.LongType(), (3, 3, 5), ds.Not(ds.EqualTo(X, 3)), False),
        (t.LongType(), (3, 3, 5), ds.Not(ds.EqualNullSafe(X, 3)), True),
        (t.LongType(), (3, 3, 5), ds.Not(ds.In(X, (1, 3))), False),
        (t.LongType(), (3, 7, 0), ds.IsNull(X), False),
        (t.LongType(), (3, 7, 2), ds.IsNull(X), True),
        (t.LongType(), (None, None, 10), ds.IsNotNull(X), False),
        (t.LongType(), (None, None, 10), ds.EqualTo(X, 1), False),
        (t.LongType(), (None, None, 10), ds.Not(ds.IsNull(X)), False),
        (t.LongType(), (None, None, 9), ds.EqualTo(X, 1), True),
        (t.LongType(), (None, None, None), ds.EqualTo(X, 1), True),
        (t.LongType(), None, ds.EqualTo(X, 1), True),
        (t.StringType(), ("b", "d", 0), ds.StringStartsWith(X, "e"), False),
        (t.StringType(), ("b", "d", 0), ds.StringStartsWith(X, "az"), False),
        (t.StringType(), ("b", "d", 0), ds.StringStartsWith(X, "dz"), False),
        (t.StringType(), ("b", "d", 0), ds.StringStartsWith(X, "b"), True),
        (t.StringType(), ("ba", "bz", 0), ds.Not(ds.StringStartsWith(X, "b")), False),
        (t.StringType(), ("abc", "abc", 0), ds.StringContains(X, "d"), False),
        (t.StringType(), ("abc", "abd", 0), ds.StringContains(X, "z"), True),
        (t.StringType(), ("abc", "abc", 0), ds.StringEndsWith(X, "c"), True),
        (t.StringType(), ("abc", "abc", 0), ds.StringEndsWith(X, "b"), False),
        # In this collation, "B" equals "b".
        (t.StringType("UTF8_LCASE"), ("B", "B", 0), ds.EqualTo(X, "b"), True),
        # NaN is greater than everything, and -0.0 equals 0.0 only in some places of Spark.
        (t.DoubleType(), (1.0, 2.0, 0), ds.LessThan(X, math.nan), True),
        (t.DoubleType(), (0.0, 0.0, 0), ds.EqualTo(X, -0.0), True),
        (t.DoubleType(), (-0.0, -0.0, 0), ds.Not(ds.In(X, (0.0,))), True),
        (t.DoubleType(), (None, 3.0, 0), ds.GreaterThan(X, 3.0), False),
        (t.DoubleType(), (None, 3.0, 0), ds.LessThan(X, -9.9), True),
        (t.DateType(), ("2013-01-01", "2013-01-31", 0), ds.EqualTo(X, dt.date(2013, 2, 1)), False),
        (t.DecimalType(5, 2), ("1.50", "2.50", 0), ds.GreaterThan(X, Decimal("2.5")), False),
        (
            t.TimestampType(),
            ("2013-03-10T02:30:00.000000Z", "2013-03-10T02:30:00.000000Z", 0),
            ds.EqualTo(X, MARCH.astimezone(PLUS_TWO)),
            True,
        ),
        (
            t.TimestampType(),
            ("2013-03-10T02:30:00.000000Z", "2013-03-10T02:30:00.000000Z", 0),
            ds.GreaterThan(X, MARCH),
            False,
        ),
        # Spark evaluates filters whose value is not of the column's type.
        (t.TimestampType(), ("2013-03-10T02:30:00.000000Z",) * 2 + (0,), ds.LessThan(X, 1), True),
        (t.DateType(), ("2013-01-01", "2013-01-31", 0), ds.GreaterThan(X, MARCH), True),
        (
            t.TimestampNTZType(),
            ("2013-03-10T02:30:00.000000",) * 2 + (0,),
            ds.LessThan(X, MARCH),
            True,
        ),
        (t.LongType(), (3, 7, 0), ds.EqualTo(X, True), True),
        (t.LongType(), (3, 7, 0), ds.EqualTo(X, "9"), True),
        (t.LongType(), (3, 7, 0), ds.EqualTo(X, None), True),
        (t.LongType(), (3, 7, 0), ds.EqualTo(("x", "y"), 9), True),
        (t.LongType(), (3, 7, 0), ds.EqualTo(("z",), 9), True),
        (t.BinaryType(), None, ds.EqualTo(X, b"a"), True),
        (t.ArrayType(t.LongType()), None, ds.EqualTo(X, [1]), True),
    ],
)
def test_a_file_is_skipped_by_its_bounds(
    kind: t.DataType, stats: ColumnStatistics | None, each: Filter, expected: bool
) -> None:
    """A file is skipped if its bounds exclude every row, and only then."""
    assert wants(file_of(stats), kind, each) is expected


def test_unknown_filters_skip_nothing() -> None:
    """A later Spark may have more filters, and applies them itself."""

    class Later(Filter):
        attribute = X

    assert wants(file_of((3, 7, 0)), t.LongType(), Later())
    assert wants(file_of((3, 7, 0)), t.LongType(), ds.Not(Later()))


def test_statistics_that_contradict_the_schema_are_corrupt() -> None:
    """They raise CorruptRecord, and skip no file."""
    with pytest.raises(CorruptRecord):
        wants(file_of(("x", "y", 0)), t.LongType(), ds.EqualTo(X, 1))
    with pytest.raises(CorruptRecord):
        wants(file_of(partition={"x": "y"}), t.LongType(), ds.EqualTo(X, 1))


def test_filters_can_be_pickled() -> None:
    """Tasks use them to skip row groups."""
    pruning = Pruning.of([ds.Not(ds.In(X, (1, 2)))], schema_of(t.LongType()))
    assert pickle.loads(pickle.dumps(pruning)).wants_part({"x": (1, 1, 0)}) is False
