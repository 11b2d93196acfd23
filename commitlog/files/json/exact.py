"""Exact reader of JSON lines: value by value, with a report of every value that does not fit.

Most lines are read from the values that the decoder of the standard library returns, which takes a
third of the time. Other lines are read from their text: lines with a value that does not fit, or with an
object or an array in a string column, which holds the text of any value unchanged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import Any, TypeAlias

import pyarrow as pa

from commitlog.files.json.scalars import Number, is_unicode, scalar_converter

__all__ = ["ExactReader"]

#: Takes a text and the begin of a value; returns the value and its end. If the value does not have the
#: wanted type, it is None.
_Read: TypeAlias = Callable[[str, int], tuple[Any, int]]


class _TextNeeded(Exception):
    """A value does not fit, or its text is needed, so the line must be read from its text."""


class ExactReader:
    """Reads line by line; a `commitlog.files.line_parser.LineReader`. Not thread-safe.

    A string column holds the text of any value, unchanged. Of several members with one name, the last
    one counts. Any other value must have the type of its column.

    Args:
        schema: the columns.
        report_unknown: whether to report members that the schema lacks.

    Attributes:
        unknown: members of the last line that the schema lacks, such as ``a.b``, other than nulls.
        misfits: members of the last line whose values do not have the column's type. They are null.
        rescued: the columns and new members of the last line with such values, each with its text.
    """

    def __init__(self, schema: pa.Schema, *, report_unknown: bool = True) -> None:
        self.unknown: list[str] = []
        self.misfits: list[str] = []
        self.rescued: dict[str, str] = {}
        self._names = frozenset(schema.names)
        self._report_unknown = report_unknown
        #: Whether the member being read has a value to rescue.
        self._to_rescue = False
        self._converters = [(each.name, _converter(each.type, report_unknown)) for each in schema]
        self._schema = schema

    def row(self, line: str) -> list[Any]:
        """Return the values of a line, in the order of the columns.

        Raises `ValueError` if the line is not an object of JSON, or is nested too deeply.
        """
        self.unknown, self.misfits, self.rescued = [], [], {}
        try:
            found = _decoder.decode(line)
            if type(found) is not dict:
                raise ValueError("it is not an object")
            try:
                return self._from_values(found)
            except _TextNeeded:
                found, _ = self._read(line, _space(line, 0))
                return [found.get(name) for name, _ in self._converters]
        except RecursionError as error:
            raise ValueError("it is nested too deeply") from error

    def _from_values(self, found: dict[str, Any]) -> list[Any]:
        """Return the row of a decoded object. Raises `_TextNeeded`."""
        row = [convert(found.get(name)) for name, convert in self._converters]
        if self._report_unknown and not self._names.issuperset(found):
            self.rescued = {
                name: _json_of(value)
                for name, value in found.items()
                if value is not None and name not in self._names
            }
            self.unknown = list(self.rescued)
        return row

    @cached_property
    def _read(self) -> _Read:
        """The reader of a line from its text; few files need it."""
        columns = {
            each.name: self._part(each.name, self._reader(each.type, each.name)) for each in self._schema
        }
        return _members(columns, lambda name: self._part(name, partial(self._new, name)))

    def _part(self, name: str, read: _Read) -> _Read:
        """Return `read` for a member of the line; it keeps the text of a member to rescue."""

        def part(text: str, at: int) -> tuple[Any, int]:
            self._to_rescue = False
            value, end = read(text, at)
            if self._to_rescue:
                self.rescued[name] = text[at:end]
            return value, end

        return part

    def _new(self, path: str, text: str, at: int) -> tuple[None, int]:
        value, end = _decode(text, at)
        if value is not None:
            self._to_rescue = True
            self.unknown.append(path)
        return None, end

    def _misfit(self, path: str, text: str, at: int) -> tuple[None, int]:
        value, end = _decode(text, at)
        if value is not None:
            self._to_rescue = True
            self.misfits.append(path)
        return None, end

    def _reader(self, kind: pa.DataType, path: str) -> _Read:
        """Return a reader of values of type `kind`; messages call them `path`."""
        misfit = partial(self._misfit, path)
        read: _Read
        if pa.types.is_struct(kind):
            known = {field.name: self._reader(field.type, f"{path}.{field.name}") for field in kind}
            read = _members(known, lambda name: partial(self._new, f"{path}.{name}"))
        elif pa.types.is_map(kind):
            read = _entries(self._reader(kind.item_type, f"{path}.value"))
        elif pa.types.is_list(kind):
            read = _elements(self._reader(kind.value_type, f"{path}.element"))
        elif pa.types.is_string(kind):
            read = _text
        else:
            read = _scalar(scalar_converter(kind))

        def either(text: str, at: int) -> tuple[Any, int]:
            value, end = read(text, at)
            return (value, end) if value is not None else misfit(text, at)

        return either


# -- from text -----------------------------------------------------------------------------------------

_decoder = json.JSONDecoder(parse_int=Number, parse_float=Number, parse_constant=Number)
_decode = _decoder.raw_decode

_SPACE = re.compile(r"[ \t\n\r]*")
_KEY = re.compile(r'[ \t\n\r]*"([^"\\\x00-\x1f]*)"[ \t\n\r]*:[ \t\n\r]*')
_COLON = re.compile(r"[ \t\n\r]*:[ \t\n\r]*")
_NEXT = re.compile(r"[ \t\n\r]*(?:(,)[ \t\n\r]*|([]}]))")


def _space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return at if match is None else match.end()


def _members(known: Mapping[str, _Read], other: Callable[[str], _Read]) -> _Read:
    """Return a reader of objects as dictionaries: `known` reads its members, `other` reads the rest."""

    def read(text: str, at: int) -> tuple[dict[str, Any] | None, int]:
        if not text.startswith("{", at):
            return None, at
        found: dict[str, Any] = {}
        after = _space(text, at + 1)
        if text.startswith("}", after):
            return found, after + 1
        while True:
            name, begin = _key(text, after)
            found[name], end = (known.get(name) or other(name))(text, begin)
            more, after = _next(text, end, "}")
            if not more:
                return found, after

    return read


def _key(text: str, at: int) -> tuple[str, int]:
    if match := _KEY.match(text, at):
        return match[1], match.end()
    name, end = _decode(text, _space(text, at))
    colon = _COLON.match(text, end)
    if type(name) is not str or colon is None:
        raise ValueError(f"there is no name at character {at}")
    return name, colon.end()


def _next(text: str, at: int, close: str) -> tuple[bool, int]:
    """Return whether a comma comes next, rather than `close`, and the position after it."""
    match = _NEXT.match(text, at)
    if match is None or match[2] not in (None, close):
        raise ValueError(f"neither ',' nor {close!r} is at character {at}")
    return match[2] is None, match.end()


def _entries(item: _Read) -> _Read:
    """Return a reader of objects as the pairs of a map."""
    members = _members({}, lambda name: item)

    def read(text: str, at: int) -> tuple[list[tuple[str, Any]] | None, int]:
        found, end = members(text, at)
        if found is None or not all(map(is_unicode, found)):
            return None, at
        return list(found.items()), end

    return read


def _elements(item: _Read) -> _Read:
    """Return a reader of arrays."""

    def read(text: str, at: int) -> tuple[list[Any] | None, int]:
        if not text.startswith("[", at):
            return None, at
        found: list[Any] = []
        after = _space(text, at + 1)
        if text.startswith("]", after):
            return found, after + 1
        while True:
            value, end = item(text, after)
            found.append(value)
            more, after = _next(text, end, "]")
            if not more:
                return found, after

    return read


def _text(text: str, at: int) -> tuple[str | None, int]:
    """Read a string, or the text of another value."""
    value, end = _decode(text, at)
    if value is None or type(value) is str:
        return (value if value is not None and is_unicode(value) else None), end
    return text[at:end], end


def _scalar(convert: Callable[[Any], Any]) -> _Read:
    """Return a reader of values of a simple type."""

    def read(text: str, at: int) -> tuple[Any, int]:
        value, end = _decode(text, at)
        return (None if value is None else convert(value)), end

    return read


# -- from values ---------------------------------------------------------------------------------------


def _converter(kind: pa.DataType, report_unknown: bool) -> Callable[[Any], Any]:
    """Return a converter of decoded values to type `kind`. It raises `_TextNeeded`."""
    read: Callable[[Any], Any]
    if pa.types.is_struct(kind):
        members = {field.name: _converter(field.type, report_unknown) for field in kind}

        def read(value: Any) -> Any:
            if type(value) is not dict or (report_unknown and not value.keys() <= members.keys()):
                return None
            return {name: convert(value.get(name)) for name, convert in members.items()}

    elif pa.types.is_map(kind):
        item = _converter(kind.item_type, report_unknown)

        def read(value: Any) -> Any:
            if type(value) is not dict or not all(map(is_unicode, value)):
                return None
            return [(name, item(each)) for name, each in value.items()]

    elif pa.types.is_list(kind):
        element = _converter(kind.value_type, report_unknown)

        def read(value: Any) -> Any:
            return list(map(element, value)) if type(value) is list else None

    elif pa.types.is_string(kind):
        read = _string
    else:
        read = scalar_converter(kind)

    def either(value: Any) -> Any:
        if value is None:
            return None
        converted = read(value)
        if converted is None:
            raise _TextNeeded
        return converted

    return either


def _json_of(value: Any) -> str:
    """Return the JSON of a decoded value. Raises `_TextNeeded` if the text may differ."""
    if type(value) is Number:
        return str(value)
    if type(value) in (dict, list) or (type(value) is str and not is_unicode(value)):
        raise _TextNeeded
    return json.dumps(value, ensure_ascii=False)


def _string(value: Any) -> str | None:
    if type(value) is str:
        return value if is_unicode(value) else None
    if type(value) is Number:
        return str(value)
    return json.dumps(value) if type(value) is bool else None
