"""Inference of column types from JSON values."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pyarrow as pa

from commitlog.spark.inputs.merge import merge

__all__ = ["Guess", "common", "number_type"]


class Guess:
    """Collects the types of the members of some objects. Not thread-safe.

    >>> guess = Guess()
    >>> guess.add(b'{"a": 1, "b": [{"c": null}]}')
    >>> guess.add(b'{"a": 1.5, "d": "2013-01-01"}')
    >>> guess.add(b'neither')
    >>> guess.objects, str(guess.schema()).splitlines()[0]
    (2, 'a: double')
    """

    def __init__(self) -> None:
        #: How many objects there were.
        self.objects = 0
        self._seen = _Seen()

    def add(self, line: bytes) -> None:
        """Look at a line; one that is no object is passed over."""
        try:
            value = json.loads(line.decode(), parse_int=_integer)
        except (RecursionError, ValueError):
            return
        if type(value) is dict:
            self.objects += 1
            self._seen.add(value)

    def schema(self) -> pa.Schema:
        """Return the columns in the order in which they appeared."""
        return pa.schema(list(self._seen.type())) if self.objects else pa.schema([])


def common(kinds: Iterable[pa.DataType]) -> pa.DataType:
    """Return the type that holds values of all `kinds`, at worst as strings."""
    columns = merge((pa.schema([("", kind)]) for kind in (pa.null(), *kinds)), strings=True)
    return columns.field(0).type


def number_type(value: int | float) -> pa.DataType:
    """Return the type of a number, as Spark has it.

    >>> number_type(2**63 - 1), number_type(2**63), number_type(10**38), number_type(1e3)
    (DataType(int64), Decimal128Type(decimal128(19, 0)), DataType(double), DataType(double))
    """
    if type(value) is float:
        return pa.float64()
    if -(2**63) <= value < 2**63:
        return pa.int64()
    digits = len(str(abs(value)))
    return pa.decimal128(digits, 0) if digits <= 38 else pa.float64()


def _integer(text: str) -> int | float:
    # Python refuses to make integers of thousands of digits.
    return int(text) if len(text) < 40 else float(text)


class _Seen:
    """What values a member had."""

    def __init__(self) -> None:
        # In the order of appearance, which sets do not keep.
        self._simple: dict[pa.DataType, None] = {}
        self._members: dict[str, _Seen] | None = None
        self._elements: _Seen | None = None

    def add(self, value: object) -> None:
        if value is None:
            return
        if isinstance(value, dict):
            members = self._members = {} if self._members is None else self._members
            for name, member in value.items():
                members.setdefault(name, _Seen()).add(member)
        elif isinstance(value, list):
            elements = self._elements = self._elements or _Seen()
            for element in value:
                elements.add(element)
        else:
            self._simple[_simple_type(value)] = None

    def type(self) -> pa.DataType:
        kinds = list(self._simple)
        if self._members is not None:
            kinds.append(pa.struct([(name, seen.type()) for name, seen in self._members.items()]))
        if self._elements is not None:
            kinds.append(pa.list_(pa.field("element", self._elements.type())))
        return common(kinds)


def _simple_type(value: object) -> pa.DataType:
    if isinstance(value, bool):
        return pa.bool_()
    return number_type(value) if isinstance(value, int | float) else pa.string()
