"""Conversion of the texts of fields to values, by column or one by one, with the same result."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from commitlog.files.json.scalars import SMALL_DECIMAL, Number, scalar_converter
from commitlog.files.types import number_type

__all__ = ["convert_column", "infer_type", "value_converter"]

_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
#: Spark's names of special floats, in exactly this spelling.
_SPECIAL: Mapping[str, float] = MappingProxyType(
    {
        "NaN": math.nan,
        **dict.fromkeys(["Inf", "Infinity", "+Infinity"], math.inf),
        **dict.fromkeys(["-Inf", "-Infinity"], -math.inf),
    }
)
_BOOLEANS: Mapping[str, bool] = MappingProxyType({"true": True, "false": False})


def value_converter(kind: pa.DataType) -> Callable[[str], Any]:
    """Return a function that converts texts to values of a type, and invalid texts to None.

    >>> value_converter(pa.int8())("+7"), value_converter(pa.int8())("7.0")
    (7, None)
    >>> value_converter(pa.bool_())("TRUE")
    True
    """
    if pa.types.is_string(kind):
        return lambda text: text
    if pa.types.is_boolean(kind):
        return lambda text: _BOOLEANS.get(text.lower())
    convert = scalar_converter(kind)
    if pa.types.is_temporal(kind):
        return convert
    special = _SPECIAL if pa.types.is_floating(kind) else {}
    return lambda text: convert(Number(text)) if _NUMBER.fullmatch(text) else special.get(text)


def convert_column(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return texts as values of a type, the same ones as `value_converter` returns.

    Raises `pyarrow.ArrowInvalid` if a text is invalid, or pyarrow might convert it to another value.

    >>> convert_column(pa.array(["1", None]), pa.int8()).to_pylist()
    [1, None]
    """
    if pa.types.is_string(kind):
        return texts
    if pa.types.is_boolean(kind):
        lower = pc.utf8_lower(texts)
        is_true = pc.equal(lower, "true")
        _require(pc.or_(is_true, pc.equal(lower, "false")))
        return is_true
    if pa.types.is_floating(kind):
        found = texts.cast(pa.float64())
        # pyarrow accepts other names of special floats.
        _require(pc.is_finite(found))
        return found.cast(kind)
    if pa.types.is_integer(kind):
        # pyarrow accepts hexadecimal digits.
        data = texts.buffers()[2]
        if data is not None and any(mark in data.to_pybytes() for mark in (b"x", b"X")):
            raise pa.ArrowInvalid("not all are decimal")
    if pa.types.is_decimal(kind):
        _require(pc.invert(pc.match_substring_regex(texts, SMALL_DECIMAL)))
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        try:
            return texts.cast(kind)
        except pa.ArrowInvalid:
            return texts.cast(pa.timestamp(kind.unit)).cast(pa.int64()).cast(kind)
    return texts.cast(kind)


def infer_type(text: str) -> pa.DataType:
    """Return the type of a field's text, as Spark's option ``inferSchema`` infers it.

    >>> [str(infer_type(text)) for text in ("1", "1e3", "2013-01-01", "False", "x")]
    ['int64', 'double', 'date32[day]', 'bool', 'string']
    """
    if _INTEGER.fullmatch(text):
        return number_type(int(text))
    if _NUMBER.fullmatch(text) or text in _SPECIAL:
        return pa.float64()
    for kind in (pa.date32(), pa.timestamp("us", tz="UTC"), pa.bool_()):
        if value_converter(kind)(text) is not None:
            return kind
    return pa.string()


def _require(conditions: pa.Array) -> None:
    if pc.all(conditions).as_py() is False:
        raise pa.ArrowInvalid("pyarrow might convert a text to another value")
