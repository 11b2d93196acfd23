"""Conversion of simple JSON values to Arrow values."""

from __future__ import annotations

import base64
import decimal
import math
import re
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from commitlog.files.timestamps import days_of, micros_of

__all__ = ["SMALL_DECIMAL", "Number", "is_unicode", "scalar_converter"]

#: Matches decimals that pyarrow must not parse. They have more places than its table has powers of ten;
#: it reads past the end of the table, and returns zero, or crashes with a segmentation fault.
SMALL_DECIMAL = r"\.[0-9]{29}|[eE]-[0-9]{2}"

_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_SURROGATE = re.compile("[\ud800-\udfff]")

#: Spark's notation for floats that JSON numbers cannot express.
_SPECIAL: Mapping[str, float] = MappingProxyType(
    {
        "NaN": math.nan,
        **dict.fromkeys(["Infinity", "+Infinity", "+INF"], math.inf),
        **dict.fromkeys(["-Infinity", "-INF"], -math.inf),
    }
)


class Number(str):
    """The text of a number: a string column keeps it, and a decimal needs it."""

    __slots__ = ()


def is_unicode(value: str) -> bool:
    """Return whether a text has no lone surrogates. JSON can express them, but UTF-8 cannot.

    >>> is_unicode("\\U0001f680"), is_unicode("\\ud83d")
    (True, False)
    """
    return value.isascii() or _SURROGATE.search(value) is None


def scalar_converter(kind: pa.DataType) -> Callable[[Any], Any]:
    """Return a converter of JSON values to values of a simple type other than string.

    JSON values are strings, `Number`, bool, lists and dictionaries. A value that does not fit becomes
    None.

    >>> convert = scalar_converter(pa.int8())
    >>> convert(Number("127")), convert(Number("128")), convert("127")
    (127, None, None)
    """
    if pa.types.is_integer(kind):
        return partial(_integer, bound=1 << kind.bit_width - 1)
    if pa.types.is_floating(kind):
        return _float
    if pa.types.is_decimal(kind):
        return partial(_decimal, precision=kind.precision, scale=kind.scale)
    if pa.types.is_boolean(kind):
        return _boolean
    if pa.types.is_date(kind):
        return _date
    if pa.types.is_timestamp(kind):
        return partial(_time, instant=kind.tz is not None)
    return _binary


def _integer(value: Any, bound: int) -> int | None:
    # No column holds 40 digits, and Python refuses to parse thousands.
    if type(value) is Number and len(value) < 40:
        try:
            number = int(value)
        except ValueError:
            return None
        return number if -bound <= number < bound else None
    return None


def _float(value: Any) -> float | None:
    if type(value) is Number:
        return float(value)
    return _SPECIAL.get(value) if type(value) is str else None


def _decimal(value: Any, precision: int, scale: int) -> decimal.Decimal | None:
    """Return a decimal with at most `precision` digits, `scale` of them after the point; else None."""
    if not isinstance(value, str) or not _DECIMAL.fullmatch(value):
        return None
    exact = decimal.Context(prec=precision, traps=[decimal.InvalidOperation, decimal.Inexact])
    try:
        return decimal.Decimal(value).quantize(decimal.Decimal((0, (1,), -scale)), context=exact)
    except decimal.DecimalException:
        return None


def _boolean(value: Any) -> bool | None:
    return value if type(value) is bool else None


def _date(value: Any) -> int | None:
    return days_of(value) if type(value) is str else None


def _time(value: Any, instant: bool) -> int | None:
    if type(value) is str:
        return micros_of(value, instant=instant)
    # A number is seconds, as in Spark.
    seconds = _integer(value, 1 << 43) if instant else None
    return None if seconds is None else seconds * 1_000_000


def _binary(value: Any) -> bytes | None:
    try:
        return base64.b64decode(value, validate=True) if type(value) is str else None
    except ValueError:
        return None
