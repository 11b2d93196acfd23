"""Filters of a DataFrame, and the files and row groups that can hold a row that matches them.

A file is skipped only if the commit record or a footer proves that no row matches. The proof uses the
values of partition columns, the bounds of other columns, and the number of nulls. Unknown bounds prove
nothing, nor do values that Python compares differently from Spark.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Any, TypeAlias

import pyarrow as pa
from attrs import field, frozen
from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql.types import DataType, DoubleType, FloatType, StringType, StructType

from commitlog.errors import ConfigurationError, CorruptRecord
from commitlog.files import ColumnStatistics, decode
from commitlog.outputs import DataFile
from commitlog.spark.schema import arrow_type
from commitlog.tabular.partitions import spelled, value_of

__all__ = ["Pruning", "ReadFilter", "condition_of", "dump_filters", "parse_filters"]

#: A condition on one column: name, operator and value, as in pandas and pyarrow. The operators are ``=``
#: (or ``==``), ``<``, ``<=``, ``>``, ``>=`` and ``in``, whose value is a list.
ReadFilter: TypeAlias = tuple[str, str, Any]

_OPERATORS = ("=", "==", "<", "<=", ">", ">=", "in")


def dump_filters(filters: Sequence[ReadFilter]) -> str:
    """Return filters as the option ``filters``: JSON, with values in the spelling of partitions.

    Raises `ConfigurationError` if one is not (column, operator, value).

    >>> dump_filters([("id", "=", 25), ("day", "in", [date(2026, 11, 22)])])
    '[["id", "=", "25"], ["day", "in", ["2026-11-22"]]]'
    """
    return json.dumps(
        [
            [name, operator, [spelled(one) for one in value] if operator == "in" else spelled(value)]
            for name, operator, value in map(_checked, filters)
        ]
    )


def parse_filters(text: str | None, schema: StructType) -> Pruning:
    """Return the filters in option ``filters``, for rows with the columns `schema`.

    Raises `ConfigurationError` if `text` is not from `dump_filters`, a column does not exist, or a value
    is not of the type of its column.
    """
    if text is None:
        return Pruning()
    try:
        items = json.loads(text)
    except ValueError as error:
        raise ConfigurationError(f"option filters is not JSON: {error}") from error
    if not isinstance(items, list):
        raise ConfigurationError('option filters is a list, such as [["id", "=", "25"]]')
    filters: list[ReadFilter] = []
    for name, operator, value in map(_checked, items):
        kind = _kind_of(name, schema)
        values = [_value(name, kind, one) for one in (value if operator == "in" else [value])]
        filters.append((name, operator, tuple(values) if operator == "in" else values[0]))
    return Pruning.of(filters, schema)


def condition_of(filters: Sequence[ReadFilter], schema: StructType) -> Column:
    """Return the condition that Spark checks on each row.

    Raises `ConfigurationError` if an operator is unknown. `parse_filters` checks columns and values.
    """
    condition = f.lit(True)
    for name, operator, value in map(_checked, filters):
        column, kind = f.col("`" + name.replace("`", "``") + "`"), schema[name].dataType
        wanted = value if operator == "in" else [value]
        values = [_literal(one).cast(kind) for one in wanted if not _is_zero(one, kind)]
        # Readers of files take -0.0 for less than 0.0.
        low, high = (f.lit(zero).cast(kind) for zero in (-0.0, 0.0))
        has_zero = len(values) < len(wanted)
        match operator:
            case "in" | "=" | "==":
                found = column.isin(*values) if values or not has_zero else f.lit(False)
                condition &= found | ((column >= low) & (column <= high)) if has_zero else found
            case "<":
                condition &= column < (low if has_zero else values[0])
            case "<=":
                condition &= column <= (high if has_zero else values[0])
            case ">":
                condition &= column > (high if has_zero else values[0])
            case _:
                condition &= column >= (low if has_zero else values[0])
    return condition


def _is_zero(value: object, kind: DataType) -> bool:
    """Return whether a value of a filter is zero, of either sign, in a column of floats."""
    if not isinstance(kind, (DoubleType, FloatType)):
        return False
    try:
        return float(str(value)) == 0
    except ValueError:
        return False


def _literal(value: object) -> Column:
    # PySpark takes a time for one of the Julian calendar before 1582, and without a zone for an instant
    # in the zone of this process. It cannot pass on a date before the year 1000.
    return f.lit(spelled(value) if isinstance(value, date) else value)


def _checked(item: object) -> ReadFilter:
    """Return `item` if it is a filter; else raise `ConfigurationError`."""
    if not isinstance(item, (tuple, list)) or len(item) != 3 or not isinstance(item[0], str):
        raise ConfigurationError(f"a filter is (column, operator, value), not {item!r}")
    name, operator, value = item
    if operator not in _OPERATORS:
        raise ConfigurationError(
            f"a filter has the operator {operator!r}; it must be one of {', '.join(_OPERATORS)}: use"
            " where() of the DataFrame"
        )
    several = isinstance(value, (tuple, list, set, frozenset))
    if several != (operator == "in") or value is None or (several and None in value):
        wanted = "a list of values" if operator == "in" else "one value"
        raise ConfigurationError(
            f"filter {name} {operator} takes {wanted}, not null: use where() of the DataFrame for nulls"
        )
    return name, operator, sorted(value, key=repr) if isinstance(value, (set, frozenset)) else value


def _kind_of(name: str, schema: StructType) -> pa.DataType:
    for column in schema:
        if column.name == name:
            return arrow_type(column.dataType, name)
    known = ", ".join(schema.names)
    raise ConfigurationError(f"a filter names the column {name!r}, and the output has {known}")


def _value(name: str, kind: pa.DataType, text: object) -> Any:
    if not isinstance(text, str):
        raise ConfigurationError(f"option filters has the value {text!r} of {name}: give it as a string")
    try:
        return value_of(text, kind).as_py()
    except (CorruptRecord, pa.ArrowException) as error:
        raise ConfigurationError(f"the value {text!r} of a filter does not fit {name} {kind}") from error


@frozen(kw_only=True)
class Pruning:
    """The filters that every row has to satisfy. Thread-safe, and can be pickled.

    Attributes:
        filters: the filters, with values of Python types. A null value satisfies none of them.
        columns: the columns in the filters whose bounds can be compared, with their types.
    """

    filters: tuple[ReadFilter, ...] = ()
    columns: Mapping[str, pa.DataType] = field(factory=dict, hash=False)

    @classmethod
    def of(cls, filters: Iterable[ReadFilter], schema: StructType) -> Pruning:
        """Return the pruning by `filters` of rows with the columns `schema`."""
        filters = tuple(filters)
        named = {name for name, _, _ in filters}
        columns = {
            column.name: arrow_type(column.dataType, column.name)
            for column in schema
            # Another collation orders strings differently, and different strings can be equal.
            if column.name in named
            and (not isinstance(column.dataType, StringType) or column.dataType == StringType())
        }
        return cls(filters=filters, columns=columns)

    def wants(self, file: DataFile) -> bool:
        """Return False if no row of `file` satisfies the filters.

        Raises `CorruptRecord` if the record contradicts the schema.
        """
        known = {name: _in_file(file, name, kind) for name, kind in self.columns.items()}
        return self._may_match(known)

    def wants_part(self, stats: Mapping[str, ColumnStatistics]) -> bool:
        """Return False if, by its statistics, no row of a part of a file satisfies the filters."""
        known = {
            name: _Values.bounded(*stats[name], kind=kind)
            for name, kind in self.columns.items()
            if name in stats
        }
        return self._may_match(known)

    def _may_match(self, known: Mapping[str, _Values]) -> bool:
        return all(_may_match(each, known) for each in self.filters)


@frozen(kw_only=True)
class _Values:
    """Known facts about the values of a column.

    Attributes:
        low: lower bound of all values; None: unknown.
        high: upper bound of all values; None: unknown.
        some: whether a value may be other than null.
        kind: type of the values; None: unknown.
    """

    low: Any = None
    high: Any = None
    some: bool = True
    kind: pa.DataType | None = None

    @classmethod
    def bounded(
        cls, low: object, high: object, nulls: int | None, *, kind: pa.DataType, rows: int | None = None
    ) -> _Values:
        """Return the facts in statistics."""
        return cls(
            low=decode(low, kind).as_py(),
            high=decode(high, kind).as_py(),
            some=nulls is None or nulls != rows,
            kind=kind,
        )


def _in_file(file: DataFile, name: str, kind: pa.DataType) -> _Values:
    if name in file.partition:
        value = value_of(file.partition[name], kind).as_py()
        return _Values(low=value, high=value, some=value is not None, kind=kind)
    if name in file.stats:
        return _Values.bounded(*file.stats[name], kind=kind, rows=file.rows)
    return _Values()


def _may_match(each: ReadFilter, known: Mapping[str, _Values]) -> bool:
    """Return False if no value of a column satisfies the filter `each`."""
    name, operator, value = each
    values = known.get(name, _Values())
    wanted = value if operator == "in" else [value]
    if not values.some:
        return False
    if not all(_comparable(one, values.kind) for one in wanted):
        return True
    low, high = values.low, values.high
    match operator:
        case "=" | "==" | "in":
            return any((low is None or low <= one) and (high is None or one <= high) for one in wanted)
        case "<":
            return low is None or low < value
        case "<=":
            return low is None or low <= value
        case ">":
            return high is None or high > value
        case _:
            return high is None or high >= value


#: The column types that Python compares to values of a Python type in the same way as Spark.
_COMPARED: Mapping[type, Callable[[pa.DataType], bool]] = MappingProxyType(
    {
        bool: pa.types.is_boolean,
        int: pa.types.is_integer,
        float: pa.types.is_floating,
        Decimal: pa.types.is_decimal,
        str: pa.types.is_string,
        date: pa.types.is_date,
        datetime: pa.types.is_timestamp,
    }
)


def _comparable(value: object, kind: pa.DataType | None) -> bool:
    fits = _COMPARED.get(type(value))
    if fits is None or kind is None or not fits(kind):
        return False
    if isinstance(value, datetime):
        return (value.tzinfo is None) == (kind.tz is None)
    return value == value  # NaN, which is greater than all others to Spark
