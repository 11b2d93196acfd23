"""Bounds on the records and values of a block, checked before anything is allocated for them.

A few bytes can encode any number of values: values of type null take no bytes, nor do records of such
values. A record that is part of itself can be nested as deeply as there are bytes, and fastavro does not
bound the depth: it overruns the stack, which ends the process.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import frozen

__all__ = ["BlockBounds"]

#: The most types of a schema. A named type counts wherever it is used.
_MOST_TYPES = 100_000
#: The most values for each byte of a block. Real data has about one.
_VALUES_A_BYTE = 64
#: The deepest nesting of values of a type that is part of itself.
_DEPTH = 100

_BYTES = {"null": 0, "float": 4, "double": 8}


@frozen
class _Size:
    """Size of the values of a type.

    Attributes:
        bytes: the fewest bytes of a value in a file.
        values: the most values within a value, without those in arrays and maps.
        types: the number of types within the type, with those in arrays and maps.
        bounded: whether the bytes of a value bound the number of values within.
    """

    bytes: int
    values: int
    types: int
    bounded: bool


@frozen
class BlockBounds:
    """Bounds on the blocks of a file with a schema.

    Attributes:
        schema: the schema, as fastavro parsed it.
        named: its named types.
        size: of a record.
    """

    schema: Any
    named: Mapping[str, Any]
    size: _Size

    @classmethod
    def of(cls, schema: Any, named: Mapping[str, Any]) -> BlockBounds:
        """Return the bounds of a parsed schema. Raises `ValueError` if it has too many types."""
        size = _Sizes(named).of(schema)
        if size.types > _MOST_TYPES:
            raise ValueError(f"its schema has more than {_MOST_TYPES} types")
        return cls(schema, named, size)

    def check(self, count: int, data: bytes, most: int) -> None:
        """Raise `ValueError` if a block cannot hold its number of records, or encodes too many values.

        Args:
            count: the number of records in the header of the block.
            data: the block, decompressed.
            most: the most bytes of a block.
        """
        size = self.size
        if count * size.bytes > len(data):
            raise ValueError(f"{count} records are said to be in {len(data)} bytes")
        values = max(_VALUES_A_BYTE * len(data), most // _VALUES_A_BYTE)
        if count * size.values > values:
            raise ValueError(
                f"{count} records with hardly any bytes are in a block. If the file is valid, raise"
                " option maxBlockBytes"
            )
        if not size.bounded:
            skipper = _Skipper(self.named, data, len(data) + most // _VALUES_A_BYTE)
            for _ in range(count):
                skipper.skip(self.schema, 0)


class _Sizes:
    """Computes the sizes of types, and keeps those of named types."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._known: dict[str, _Size] = {}

    def of(self, schema: Any) -> _Size:
        if isinstance(schema, list):
            branches = [self.of(each) for each in schema]
            least = min((each.bytes for each in branches), default=0)
            values = max((each.values for each in branches), default=0)
            return _Size(1 + least, values, _types(branches), all(each.bounded for each in branches))
        if isinstance(schema, str):
            if schema not in self._named:
                return _Size(_BYTES.get(schema, 1), 1, 1, True)
            return self._known[schema] if schema in self._known else self.of(self._named[schema])
        kind = schema["type"]
        if kind in ("record", "error"):
            # The size of a record within itself has no bound.
            self._known[schema["name"]] = _Size(0, 1, 1, False)
            parts = [self.of(each["type"]) for each in schema["fields"]]
            whole = _Size(
                sum(each.bytes for each in parts),
                1 + min(sum(each.values for each in parts), _MOST_TYPES),
                _types(parts),
                all(each.bounded for each in parts),
            )
            self._known[schema["name"]] = whole
            return whole
        if kind in ("array", "map"):
            item = self.of(schema["items" if kind == "array" else "values"])
            least = item.bytes + (kind == "map")
            return _Size(1, 1, _types([item]), item.bounded and item.values <= _VALUES_A_BYTE * least)
        if kind == "fixed":
            return _Size(int(schema["size"]), 1, 1, True)
        return _Size(1, 1, 1, True) if kind == "enum" else self.of(kind)


def _types(parts: list[_Size]) -> int:
    return 1 + min(sum(each.types for each in parts), _MOST_TYPES)


class _Skipper:
    """Passes over the values of a block without decoding them. Not thread-safe.

    Args:
        named: the named types of the schema.
        data: the block.
        values: the most values.
    """

    def __init__(self, named: Mapping[str, Any], data: bytes, values: int) -> None:
        self._named = named
        self._data = data
        self._at = 0
        self._left = values

    def skip(self, schema: Any, depth: int) -> None:
        """Pass over a value. Raises `ValueError` or `EOFError` for damage or too many values."""
        self._left -= 1
        if self._left < 0:
            raise ValueError(
                "a block declares more values than it has bytes. If the file is valid, raise option"
                " maxBlockBytes"
            )
        if depth > _DEPTH:
            raise ValueError("a value is nested too deeply")
        if isinstance(schema, str) and schema in self._named:
            schema = self._named[schema]
        if isinstance(schema, list):
            branch = self._long()
            if not 0 <= branch < len(schema):
                raise ValueError(f"a union has no branch {branch}")
            self.skip(schema[branch], depth + 1)
            return
        kind = schema if isinstance(schema, str) else schema["type"]
        if kind in ("record", "error"):
            for each in schema["fields"]:
                self.skip(each["type"], depth + 1)
        elif kind in ("array", "map"):
            self._items(schema, kind, depth)
        elif kind == "fixed":
            self._pass(schema["size"])
        elif kind in ("bytes", "string"):
            self._pass(self._long())
        elif kind in ("int", "long", "enum"):
            self._long()
        elif isinstance(kind, str):
            self._pass(_BYTES.get(kind, 1))
        else:
            self.skip(kind, depth + 1)

    def _items(self, schema: Any, kind: str, depth: int) -> None:
        while count := self._long():
            if count < 0:
                self._long()
            for _ in range(abs(count)):
                if kind == "map":
                    self._pass(self._long())
                self.skip(schema["items" if kind == "array" else "values"], depth + 1)

    def _pass(self, size: int) -> None:
        if not 0 <= size <= len(self._data) - self._at:
            raise EOFError("a value is longer than its block")
        self._at += size

    def _long(self) -> int:
        value = shift = 0
        while shift < 70:
            if self._at >= len(self._data):
                raise EOFError("a value is longer than its block")
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            shift += 7
        raise ValueError("a number is too long")
