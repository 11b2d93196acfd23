"""Statistics of a file's columns: least and greatest value, and number of nulls.

They are kept for the first `COLUMNS` columns of simple types at the top level. The values are JSON:
numbers and booleans as such; decimals, dates and timestamps as text (ISO 8601; instants in UTC, with a
``Z``); long strings cut to a bound that still holds. None stands for an unknown bound: all values are
null, one of them is NaN, or the bound is infinite or outside of the years 1 to 9999.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from commitlog.errors import CorruptRecord
from commitlog.files.timestamps import FIRST_DAY, LAST_DAY, is_instant, iso

__all__ = ["ColumnStatistics", "Statistics", "bounded_fields", "decode", "raw"]

#: Least value, greatest value, number of nulls.
ColumnStatistics: TypeAlias = tuple[object, object, int]

#: More would cost the commit record of a wide table more than it would save readers.
COLUMNS = 32

#: Characters that are kept of a string.
CHARACTERS = 32

_DAY = 24 * 60 * 60 * 1_000_000


def bounded_fields(schema: pa.Schema) -> list[pa.Field]:
    """Return the columns that have statistics."""
    return [field for field in schema if _is_simple(field.type)][:COLUMNS]


def raw(scalar: pa.Scalar) -> Any:
    """Return a value that can be compared: a Python object; for a date or a timestamp, an int.

    None stands for an unknown bound: Spark's strings may have bytes that are not UTF-8.
    """
    try:
        return scalar.value if pa.types.is_temporal(scalar.type) else scalar.as_py()
    except UnicodeDecodeError:
        return None


class Statistics:
    """Collects the statistics of one file. Not thread-safe.

    Args:
        schema: of the file.
        measure: whether `add` computes the bounds of all columns. If not, it computes only those of
            floats; the others come from the format's footer (`merge`).
    """

    def __init__(self, schema: pa.Schema, *, measure: bool) -> None:
        self._measure = measure
        self._columns = {field.name: _Column(field.type) for field in bounded_fields(schema)}

    def add(self, table: pa.Table) -> None:
        """Add the rows of `table`."""
        for name, column in self._columns.items():
            values = table.column(name)
            # A sum with a NaN in it is NaN, and is found much faster than a NaN.
            is_float = pa.types.is_floating(column.kind)
            if is_float and math.isnan(pc.sum(values).as_py() or 0):
                column.unbounded = True
            if self._measure or is_float:
                found = pc.min_max(values)
                low, high = (None if column.unbounded else raw(found[end]) for end in ("min", "max"))
                column.merge(low, high, values.null_count, table.num_rows)

    def merge(self, name: str, low: Any, high: Any, nulls: int, rows: int) -> None:
        """Add a part of column `name`: `raw` bounds (None: unknown), number of nulls and of rows."""
        if name in self._columns:
            self._columns[name].merge(low, high, nulls, rows)

    def drop(self, name: str) -> None:
        """Drop the statistics of column `name`, because nothing is known of a part of it."""
        self._columns.pop(name, None)

    def result(self) -> Mapping[str, ColumnStatistics]:
        """Return the statistics by column."""
        return {name: column.result() for name, column in self._columns.items()}


class _Column:
    def __init__(self, kind: pa.DataType) -> None:
        self.kind = kind
        self.unbounded = False
        self._low: Any = None
        self._high: Any = None
        self._nulls = 0

    def merge(self, low: Any, high: Any, nulls: int, rows: int) -> None:
        self._nulls += nulls
        if nulls == rows:
            return
        if low is None or high is None:
            self.unbounded = True
            return
        self._low = low if self._low is None else min(self._low, low)
        self._high = high if self._high is None else max(self._high, high)

    def result(self) -> ColumnStatistics:
        if self.unbounded or self._low is None:
            return None, None, self._nulls
        return _encode(self._low, self.kind), _encode(self._high, self.kind, up=True), self._nulls


def _is_simple(kind: pa.DataType) -> bool:
    return (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
        or (pa.types.is_timestamp(kind) and kind.unit == "us")
        or kind in (pa.bool_(), pa.string(), pa.date32())
    )


def _encode(value: Any, kind: pa.DataType, *, up: bool = False) -> object:
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return _cut(value, up=up)
    if pa.types.is_temporal(kind):
        day = value if pa.types.is_date(kind) else value // _DAY
        if not FIRST_DAY <= day <= LAST_DAY:
            return None
        return str(iso(pa.array([value], kind))[0]) + ("Z" if is_instant(kind) else "")
    return value


def _cut(text: str, *, up: bool) -> str | None:
    """Return a short bound of `text` in the order of code points, which is that of UTF-8 bytes."""
    if len(text) <= CHARACTERS:
        return text
    head = text[:CHARACTERS]
    if not up:
        return head
    head = head.rstrip(chr(0x10FFFF))
    if not head:
        return None
    following = ord(head[-1]) + 1
    # Surrogates are no characters.
    return head[:-1] + chr(0xE000 if following == 0xD800 else following)


def decode(value: object, kind: pa.DataType) -> pa.Scalar:
    """Return a bound as a scalar of type `kind`, null for an unknown bound.

    Raises `CorruptRecord` if `value` is not a value of that type.

    >>> decode("2013-03-10T02:30:00.123456Z", pa.timestamp("us", tz="UTC")).value
    1362882600123456
    """
    try:
        if isinstance(value, str):
            return pa.scalar(value).cast(kind)
        return pa.scalar(value, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as error:
        raise CorruptRecord(f"{value!r} is not a bound of a column of type {kind}") from error
