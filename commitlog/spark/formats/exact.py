"""Exact reader of JSON lines: reads value by value, and reports every value that does not fit."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, TypeAlias

import pyarrow as pa

from commitlog.spark.formats.scalars import Number, is_text, scalar

__all__ = ["Exact", "table_of"]

#: Given a text and where a value begins, returns it and where it ends. One that is not of the kind that
#: is wanted is None.
_Read: TypeAlias = Callable[[str, int], tuple[Any, int]]


class _Odd(Exception):
    """Something is not as it should be, or has to be looked for in the text."""


class Exact:
    """Reads line by line. Not thread-safe.

    A string column holds the text of any value, as it stands there. Of members of the same name the last
    one counts. All else has to be what the type says.

    Args:
        schema: the columns.
        all_known: whether it matters that there are others.

    Attributes:
        unknown: members of the last line that the schema does not have, such as ``a.b``; those that are
            null do not count.
        misfits: members of the last line whose values are not of their type. Null is in their place.
        odd: the columns and new members of the last line that have such within, each with its text.
    """

    def __init__(self, schema: pa.Schema, *, all_known: bool = True) -> None:
        self.unknown: list[str] = []
        self.misfits: list[str] = []
        self.odd: dict[str, str] = {}
        self._names = frozenset(schema.names)
        self._all_known = all_known
        self._is_odd = False
        self._plain = [(each.name, _plain(each.type, all_known)) for each in schema]
        self._schema = schema

    def row(self, line: str) -> list[Any]:
        """Return the values of a line, in the order of the columns, for `table_of`.

        Raises `ValueError` if the line is not an object of JSON, or is nested too deeply.
        """
        self.unknown, self.misfits, self.odd = [], [], {}
        try:
            found = _decoder.decode(line)
            if type(found) is not dict:
                raise ValueError("it is no object")
            try:
                return self._by_value(found)
            except _Odd:
                found, _ = self._read(line, _space(line, 0))
                return [found.get(name) for name, _ in self._plain]
        except RecursionError as error:
            raise ValueError("it is nested too deeply") from error

    def _by_value(self, found: dict[str, Any]) -> list[Any]:
        """Return the row of an object: in a third of the time that its text takes."""
        row = [convert(found.get(name)) for name, convert in self._plain]
        if self._all_known and not self._names.issuperset(found):
            self.odd = {
                name: _told(value)
                for name, value in found.items()
                if value is not None and name not in self._names
            }
            self.unknown = list(self.odd)
        return row

    @cached_property
    def _read(self) -> _Read:
        """What reads a line by its text; few files need it."""
        columns = {
            each.name: self._part(each.name, self._reader(each.type, each.name)) for each in self._schema
        }
        return _members(columns, lambda name: self._part(name, partial(self._new, name)))

    def _part(self, name: str, read: _Read) -> _Read:
        """Return `read` for a member of the whole, of which is noted whether it is odd."""

        def part(text: str, at: int) -> tuple[Any, int]:
            self._is_odd = False
            value, end = read(text, at)
            if self._is_odd:
                self.odd[name] = text[at:end]
            return value, end

        return part

    def _new(self, path: str, text: str, at: int) -> tuple[None, int]:
        value, end = _decode(text, at)
        if value is not None:
            self._is_odd = True
            self.unknown.append(path)
        return None, end

    def _misfit(self, path: str, text: str, at: int) -> tuple[None, int]:
        value, end = _decode(text, at)
        if value is not None:
            self._is_odd = True
            self.misfits.append(path)
        return None, end

    def _reader(self, kind: pa.DataType, path: str) -> _Read:
        """Return what reads values of type `kind`, which are called `path`."""
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
            read = _scalar(scalar(kind))

        def either(text: str, at: int) -> tuple[Any, int]:
            value, end = read(text, at)
            return (value, end) if value is not None else misfit(text, at)

        return either


def table_of(rows: Sequence[Sequence[Any]], schema: pa.Schema) -> pa.Table:
    """Return rows as a table. Their values are what `Exact.row` makes, in the order of the columns."""
    if not schema.names:
        # Without columns, only this knows how many there are.
        return pa.table([pa.nulls(len(rows))], names=[""]).select([])
    columns: Sequence[Any] = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.table(arrays, schema=schema)


# -- by their text -------------------------------------------------------------------------------------

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
    """Return what reads objects as the pairs of a map."""
    members = _members({}, lambda name: item)

    def read(text: str, at: int) -> tuple[list[tuple[str, Any]] | None, int]:
        found, end = members(text, at)
        if found is None or not all(map(is_text, found)):
            return None, at
        return list(found.items()), end

    return read


def _elements(item: _Read) -> _Read:
    """Return what reads arrays."""

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
        return (value if value is not None and is_text(value) else None), end
    return text[at:end], end


def _scalar(convert: Callable[[Any], Any]) -> _Read:
    """Return what reads values of a simple type."""

    def read(text: str, at: int) -> tuple[Any, int]:
        value, end = _decode(text, at)
        return (None if value is None else convert(value)), end

    return read


# -- by their values -----------------------------------------------------------------------------------


def _plain(kind: pa.DataType, all_known: bool) -> Callable[[Any], Any]:
    """Return what makes values of type `kind` of what a decoder made, unless there is more to say."""
    read: Callable[[Any], Any]
    if pa.types.is_struct(kind):
        members = {field.name: _plain(field.type, all_known) for field in kind}

        def read(value: Any) -> Any:
            if type(value) is not dict or (all_known and not value.keys() <= members.keys()):
                return None
            return {name: convert(value.get(name)) for name, convert in members.items()}

    elif pa.types.is_map(kind):
        item = _plain(kind.item_type, all_known)

        def read(value: Any) -> Any:
            if type(value) is not dict or not all(map(is_text, value)):
                return None
            return [(name, item(each)) for name, each in value.items()]

    elif pa.types.is_list(kind):
        element = _plain(kind.value_type, all_known)

        def read(value: Any) -> Any:
            return list(map(element, value)) if type(value) is list else None

    elif pa.types.is_string(kind):
        read = _plain_text
    else:
        read = scalar(kind)

    def either(value: Any) -> Any:
        if value is None:
            return None
        made = read(value)
        if made is None:
            raise _Odd
        return made

    return either


def _told(value: Any) -> str:
    """Return the JSON of a value, unless it has to be looked for."""
    if type(value) is Number:
        return str(value)
    if type(value) in (dict, list) or (type(value) is str and not is_text(value)):
        raise _Odd
    return json.dumps(value, ensure_ascii=False)


def _plain_text(value: Any) -> str | None:
    if type(value) is str:
        return value if is_text(value) else None
    if type(value) is Number:
        return str(value)
    return json.dumps(value) if type(value) is bool else None
