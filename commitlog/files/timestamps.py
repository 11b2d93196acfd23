"""Dates and timestamps: parsing and formatting of ISO 8601, and their values in nested columns."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from commitlog.files.types import as_list, leaf_types

__all__ = [
    "FIRST_DAY",
    "FIRST_EXACT_SECOND",
    "FIRST_GREGORIAN_DAY",
    "LAST_DAY",
    "days_of",
    "is_instant",
    "iso",
    "micros_of",
    "temporal_values",
]

#: Days from 1970-01-01 to 0001-01-01, and to 9999-12-31.
FIRST_DAY, LAST_DAY = -719_162, 2_932_896
#: 1582-10-15, the first day of the Gregorian calendar. Without a mark, some readers and writers of files
#: take earlier days for Julian ones.
FIRST_GREGORIAN_DAY = -141_427
#: 1900-01-01, before which old readers and writers mix up local mean times.
FIRST_EXACT_SECOND = -25_567 * 86_400

_EPOCH = dt.date(1970, 1, 1).toordinal()
#: Period of the Gregorian calendar, in years and in days.
_ERA_YEARS, _ERA_DAYS = 400, 146_097

_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_TIME = re.compile(
    _DATE.pattern + r"(?:[ T]([0-9]{2})(?::([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?)?"
    r"(Z|([+-])([0-9]{2})(?::?([0-9]{2}))?)?)?"
)


def days_of(text: str) -> int | None:
    """Return the days since 1970 of a date; None if `text` is not a date.

    >>> days_of("1970-01-02"), days_of("1970-02-30"), days_of("1970-01-02T00:00")
    (1, None, None)
    """
    match = _DATE.fullmatch(text)
    return None if match is None else _days(*match.groups())


def micros_of(text: str, *, instant: bool) -> int | None:
    """Return the microseconds since 1970 of a time; None if `text` is not a time.

    Args:
        text: a date, optionally with a time of day, which may have a zone. Fractions of a microsecond
            are dropped.
        instant: whether the time is an instant. An instant without a zone is in UTC. A local time must
            not have a zone.

    >>> micros_of("1970-01-01T01:00:00.000001+01:00", instant=True)
    1
    >>> micros_of("1970-01-01 00:00", instant=False), micros_of("1970-01-01T00:00Z", instant=False)
    (0, None)
    """
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    days = _days(*match.groups()[:3])
    hour, minute, second = (int(part or 0) for part in match.groups()[3:6])
    zone, sign, hours, minutes = match.groups()[7:]
    ahead, more = int(hours or 0), int(minutes or 0)
    if days is None or max(hour, ahead) > 23 or max(minute, second, more) > 59 or (zone and not instant):
        return None
    offset = (ahead * 60 + more) * (-1 if sign == "-" else 1)
    seconds = ((days * 24 + hour) * 60 + minute - offset) * 60 + second
    return seconds * 1_000_000 + int((match[7] or "0").ljust(6, "0")[:6])


def _days(year: str, month: str, day: str) -> int | None:
    try:
        # Python has no year 0; its calendar is that of the year 400.
        later = dt.date(int(year) or _ERA_YEARS, int(month), int(day)).toordinal()
    except ValueError:
        return None
    return later - _EPOCH - (0 if int(year) else _ERA_DAYS)


def is_instant(kind: pa.DataType) -> bool:
    """Return whether `kind` is a timestamp with a time zone."""
    return pa.types.is_timestamp(kind) and kind.tz is not None


def iso(array: pa.Array) -> pa.Array:
    """Return dates or timestamps as text, such as ``2013-03-10T02:30:00.123456``.

    The caller adds the ``Z`` of instants. Years must have four digits.
    """
    if pa.types.is_date(array.type):
        return array.cast(pa.string())
    # With a zone, pyarrow's cast takes thirty times as long.
    text = array.cast(pa.timestamp(array.type.unit)).cast(pa.string())
    return pc.binary_replace_slice(text, start=10, stop=11, replacement="T")


def temporal_values(table: pa.Table) -> Iterator[tuple[str, pa.DataType, pa.Array]]:
    """Yield the dates and timestamps of a table, nested ones too: column name, type, values as int64."""
    for field in table.schema:
        if any(map(pa.types.is_temporal, leaf_types(field.type))):
            for chunk in table.column(field.name).chunks:
                for values in _leaves(chunk):
                    if pa.types.is_temporal(values.type):
                        bits = pa.int32() if pa.types.is_date(values.type) else pa.int64()
                        yield field.name, values.type, values.cast(bits).cast(pa.int64())


def _leaves(array: pa.Array) -> Iterator[pa.Array]:
    if pa.types.is_struct(array.type):
        for child in array.flatten():
            yield from _leaves(child)
    elif pa.types.is_nested(array.type):
        yield from _leaves(pc.list_flatten(as_list(array)))
    else:
        yield array
