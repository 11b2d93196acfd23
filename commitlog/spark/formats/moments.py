"""Parsing of dates and times in ISO 8601 and Spark's notation into Arrow's numbers."""

from __future__ import annotations

import datetime as dt
import re

__all__ = ["days_of", "micros_of"]

_EPOCH = dt.date(1970, 1, 1).toordinal()
#: After so many years, and days, the calendar is the same again.
_ERA_YEARS, _ERA_DAYS = 400, 146_097

_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_TIME = re.compile(
    _DATE.pattern + r"(?:[ T]([0-9]{2})(?::([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?)?"
    r"(Z|([+-])([0-9]{2})(?::?([0-9]{2}))?)?)?"
)


def days_of(text: str) -> int | None:
    """Return the days since 1970 of a date; None if `text` is none.

    >>> days_of("1970-01-02"), days_of("1970-02-30"), days_of("1970-01-02T00:00")
    (1, None, None)
    """
    match = _DATE.fullmatch(text)
    return None if match is None else _days(*match.groups())


def micros_of(text: str, *, instant: bool) -> int | None:
    """Return the microseconds since 1970 of a time; None if `text` is none.

    Args:
        text: a date, optionally with a time of day, which may have a zone. Fractions of a microsecond
            are dropped.
        instant: whether the time is an instant. An instant without a zone is in UTC. A time that is no
            instant must not have a zone.

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
        # Of the year 0, which Python does not have.
        later = dt.date(int(year) or _ERA_YEARS, int(month), int(day)).toordinal()
    except ValueError:
        return None
    return later - _EPOCH - (0 if int(year) else _ERA_DAYS)
