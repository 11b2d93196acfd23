"""Conversion of text cells to a column's type, by column or one by one, with the same result."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from commitlog.spark.formats.scalars import SMALL, Number, scalar
from commitlog.spark.inputs.guess import number_type

__all__ = ["cell", "column", "guess"]

_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
#: The words that Spark takes among numbers, and in its own spelling alone.
_SPECIAL: Mapping[str, float] = MappingProxyType(
    {
        "NaN": math.nan,
        **dict.fromkeys(["Inf", "Infinity", "+Infinity"], math.inf),
        **dict.fromkeys(["-Inf", "-Infinity"], -math.inf),
    }
)
_TRUTH: Mapping[str, bool] = MappingProxyType({"true": True, "false": False})


def cell(kind: pa.DataType) -> Callable[[str], Any]:
    """Return a function that converts text to values of a type, and invalid text to None.

    >>> cell(pa.int8())("+7"), cell(pa.int8())("7.0"), cell(pa.bool_())("TRUE")
    (7, None, True)
    """
    if pa.types.is_string(kind):
        return lambda text: text
    if pa.types.is_boolean(kind):
        return lambda text: _TRUTH.get(text.lower())
    convert = scalar(kind)
    if pa.types.is_temporal(kind):
        return convert
    special = _SPECIAL if pa.types.is_floating(kind) else {}
    return lambda text: convert(Number(text)) if _NUMBER.fullmatch(text) else special.get(text)


def column(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return what `cell` makes of each. Raises `pyarrow.ArrowInvalid` if that is not sure.

    >>> column(pa.array(["1", None]), pa.int8()).to_pylist()
    [1, None]
    """
    if pa.types.is_string(kind):
        return texts
    if pa.types.is_boolean(kind):
        lower = pc.utf8_lower(texts)
        truth = pc.equal(lower, "true")
        _be_sure(pc.or_(truth, pc.equal(lower, "false")))
        return truth
    if pa.types.is_floating(kind):
        found = texts.cast(pa.float64())
        # It knows more words than we do.
        _be_sure(pc.is_finite(found))
        return found.cast(kind)
    if pa.types.is_integer(kind):
        # It takes hexadecimal digits.
        data = texts.buffers()[2]
        if data is not None and any(mark in data.to_pybytes() for mark in (b"x", b"X")):
            raise pa.ArrowInvalid("not all are decimal")
    if pa.types.is_decimal(kind):
        _be_sure(pc.invert(pc.match_substring_regex(texts, SMALL)))
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        try:
            return texts.cast(kind)
        except pa.ArrowInvalid:
            return texts.cast(pa.timestamp(kind.unit)).cast(pa.int64()).cast(kind)
    return texts.cast(kind)


def guess(text: str) -> pa.DataType:
    """Return the type of a cell, as Spark's option ``inferSchema`` has it.

    >>> guess("1"), guess("1e3"), guess("2013-01-01"), guess("False"), guess("x")
    (DataType(int64), DataType(double), DataType(date32[day]), DataType(bool), DataType(string))
    """
    if _INTEGER.fullmatch(text):
        return number_type(int(text))
    if _NUMBER.fullmatch(text) or text in _SPECIAL:
        return pa.float64()
    for kind in (pa.date32(), pa.timestamp("us", tz="UTC"), pa.bool_()):
        if cell(kind)(text) is not None:
            return kind
    return pa.string()


def _be_sure(truths: pa.Array) -> None:
    if pc.all(truths).as_py() is False:
        raise pa.ArrowInvalid("not all are what they look like")
