"""Files and row groups that a query skips; a file with a matching row is never skipped."""

from __future__ import annotations

import datetime as dt
import math
import pickle
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as t

from commitlog.errors import CorruptRecord
from commitlog.files import OUTPUT_FORMATS, ColumnStatistics
from commitlog.outputs import DataFile
from commitlog.spark.pruning import Pruning, ReadFilter
from commitlog.spark.schema import arrow_schema
from commitlog.tabular.partitions import partition_of
from support.output_files import read, write

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


#: The conditions on a value, by the operators of filters.
CONDITIONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: bool(order(a) == order(b)),
    "==": lambda a, b: bool(order(a) == order(b)),
    "<": lambda a, b: bool(order(a) < order(b)),
    "<=": lambda a, b: bool(order(a) <= order(b)),
    ">": lambda a, b: bool(order(a) > order(b)),
    ">=": lambda a, b: bool(order(a) >= order(b)),
    "in": lambda a, several: any(order(a) == order(b) for b in several),
}


def holds(filters: Sequence[ReadFilter], value: Any) -> bool:
    """Return whether a value of column x satisfies all filters, as Spark evaluates them."""
    return all(
        value is not None and CONDITIONS[operator](value, asked) for _, operator, asked in filters
    )


def filters_of(name: str) -> st.SearchStrategy[ReadFilter]:
    """Make filters of a column called x that has the type `name`."""
    values = VALUES[name][1]
    comparisons = st.sampled_from(sorted(CONDITIONS.keys() - {"in"}))
    return st.tuples(st.just("x"), comparisons, values) | st.tuples(
        st.just("x"), st.just("in"), st.lists(values, max_size=4).map(tuple)
    )


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


def wants(file: DataFile, kind: t.DataType, *filters: ReadFilter) -> bool:
    """Return whether a query with `filters` needs `file`."""
    return Pruning.of(filters, schema_of(kind)).wants(file)


@st.composite
def cases(draw: st.DrawFn) -> tuple[str, list[Any], list[ReadFilter]]:
    """Return a type, values, and filters."""
    name = draw(st.sampled_from(sorted(VALUES)))
    values = draw(st.lists(st.none() | VALUES[name][1], min_size=1, max_size=6))
    return name, values, draw(st.lists(filters_of(name), min_size=1, max_size=3))


@given(cases(), st.sampled_from(["parquet", "arrow"]), st.booleans())
def test_a_file_with_a_matching_row_is_never_skipped(
    case: tuple[str, list[Any], list[ReadFilter]], fmt: str, counted: bool
) -> None:
    """This holds for any values and filters."""
    name, values, filters = case
    _, sink = write(OUTPUT_FORMATS[fmt], batch_of(name, values))
    file = file_of(sink.statistics["x"], rows=len(values) if counted else None)
    if any(holds(filters, value) for value in values):
        assert wants(file, VALUES[name][0], *filters)


@given(cases())
def test_a_part_with_a_matching_row_is_never_skipped(
    case: tuple[str, list[Any], list[ReadFilter]],
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
        assert wanted or not holds(filters, value)


@given(st.data())
def test_a_partition_is_skipped_if_and_only_if_it_does_not_match(data: st.DataObject) -> None:
    """Filters on a partition column are exact, because its value is known."""
    name = data.draw(st.sampled_from(PARTITIONED))
    value = data.draw(st.none() | VALUES[name][1].filter(lambda value: value != ""))
    filters = data.draw(st.lists(filters_of(name), min_size=1, max_size=2))
    file = file_of(partition=partition_of(["x"], [value]))
    assert wants(file, VALUES[name][0], *filters) == holds(filters, value)


MARCH = dt.datetime(2013, 3, 10, 2, 30, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("kind", "stats", "each", "expected"),
    [
        (t.LongType(), (3, 7, 0), ("x", "=", 8), False),
        (t.LongType(), (3, 7, 0), ("x", "=", 2), False),
        (t.LongType(), (3, 7, 0), ("x", "=", 7), True),
        (t.LongType(), (3, 7, 0), ("x", "in", (1, 9)), False),
        (t.LongType(), (3, 7, 0), ("x", "in", (1, 5)), True),
        (t.LongType(), (3, 7, 0), ("x", ">", 7), False),
        (t.LongType(), (3, 7, 0), ("x", ">=", 7), True),
        (t.LongType(), (3, 7, 0), ("x", "<", 3), False),
        (t.LongType(), (3, 7, 0), ("x", "<=", 3), True),
        (t.LongType(), (None, None, 10), ("x", "=", 1), False),
        (t.LongType(), (None, None, 9), ("x", "=", 1), True),
        (t.LongType(), (None, None, None), ("x", "=", 1), True),
        (t.LongType(), None, ("x", "=", 1), True),
        # In this collation, "B" equals "b".
        (t.StringType("UTF8_LCASE"), ("B", "B", 0), ("x", "=", "b"), True),
        # NaN is greater than everything, and -0.0 equals 0.0 only in some places of Spark.
        (t.DoubleType(), (1.0, 2.0, 0), ("x", "<", math.nan), True),
        (t.DoubleType(), (0.0, 0.0, 0), ("x", "=", -0.0), True),
        (t.DoubleType(), (-0.0, -0.0, 0), ("x", "in", (0.0,)), True),
        (t.DoubleType(), (None, 3.0, 0), ("x", ">", 3.0), False),
        (t.DoubleType(), (None, 3.0, 0), ("x", "<", -9.9), True),
        (t.DateType(), ("2013-01-01", "2013-01-31", 0), ("x", "=", dt.date(2013, 2, 1)), False),
        (t.DecimalType(5, 2), ("1.50", "2.50", 0), ("x", ">", Decimal("2.5")), False),
        (
            t.TimestampType(),
            ("2013-03-10T02:30:00.000000Z", "2013-03-10T02:30:00.000000Z", 0),
            ("x", "=", MARCH.astimezone(PLUS_TWO)),
            True,
        ),
        (
            t.TimestampType(),
            ("2013-03-10T02:30:00.000000Z", "2013-03-10T02:30:00.000000Z", 0),
            ("x", ">", MARCH),
            False,
        ),
        # Spark evaluates filters whose value is not of the column's type.
        (t.TimestampType(), ("2013-03-10T02:30:00.000000Z",) * 2 + (0,), ("x", "<", 1), True),
        (t.DateType(), ("2013-01-01", "2013-01-31", 0), ("x", ">", MARCH), True),
        (
            t.TimestampNTZType(),
            ("2013-03-10T02:30:00.000000",) * 2 + (0,),
            ("x", "<", MARCH),
            True,
        ),
        (t.LongType(), (3, 7, 0), ("x", "=", True), True),
        (t.LongType(), (3, 7, 0), ("x", "=", "9"), True),
        (t.LongType(), (3, 7, 0), ("x", "=", None), True),
        (t.LongType(), (3, 7, 0), ("z", "=", 9), True),
        (t.BinaryType(), None, ("x", "=", b"a"), True),
        (t.ArrayType(t.LongType()), None, ("x", "=", [1]), True),
    ],
)
def test_a_file_is_skipped_by_its_bounds(
    kind: t.DataType, stats: ColumnStatistics | None, each: ReadFilter, expected: bool
) -> None:
    """A file is skipped if its bounds exclude every row, and only then."""
    assert wants(file_of(stats), kind, each) is expected


@pytest.mark.parametrize("rows", [None, 10])
def test_an_unknown_number_of_nulls_excludes_nothing(rows: int | None) -> None:
    """Bounds alone count: a writer need not give the nulls, nor the number of rows."""
    for low, expected in ((1, True), (8, False)):
        stats = low, 9, None
        assert wants(file_of(stats, rows=rows), t.LongType(), ("x", "=", 5)) is expected
        assert Pruning.of([("x", "=", 5)], schema_of(t.LongType())).wants_part({"x": stats}) is expected


def test_statistics_that_contradict_the_schema_are_corrupt() -> None:
    """They raise CorruptRecord, and skip no file."""
    with pytest.raises(CorruptRecord):
        wants(file_of(("x", "y", 0)), t.LongType(), ("x", "=", 1))
    with pytest.raises(CorruptRecord):
        wants(file_of(partition={"x": "y"}), t.LongType(), ("x", "=", 1))


def test_filters_can_be_pickled() -> None:
    """Tasks use them to skip row groups."""
    pruning = Pruning.of([("x", "in", (1, 2))], schema_of(t.LongType()))
    again = pickle.loads(pickle.dumps(pruning))
    assert [again.wants_part({"x": (each, each, 0)}) for each in (2, 3)] == [True, False]
