"""JSON objects, one a line, as Arrow: by pyarrow where that is sure, else value by value.

pyarrow knows no objects as maps, no base64, no "NaN" in quotes; it takes several objects on a line, or
one on several, for as many rows, and crashes on a line that is ``null``. So `Quick` looks twice, and
what it does not vouch for is for `Exact`, which says what is what. Both make the same of the same line:
which of them reads it depends on its neighbours.

Imports the moments next to it and pyarrow.
"""

from __future__ import annotations

import base64
import decimal
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.json

from commitlog.spark.formats.moments import days_of, micros_of
from commitlog.spark.formats.nested import leaf_types

__all__ = ["Exact", "Quick", "table_of"]

#: Given a text and where a value begins, returns it and where it ends. One that is not of the kind that
#: is wanted is None, and ends where it begins.
_Read: TypeAlias = Callable[[str, int], tuple[Any, int]]


class Quick:
    """Reads lines by pyarrow. Thread-safe.

    Args:
        schema: the columns. Others are left out.
        all_known: whether lines with members that are not in the schema are for `Exact`.
        elsewhere: names of such members that do not count.
    """

    def __init__(
        self, schema: pa.Schema, *, all_known: bool = False, elsewhere: frozenset[str] = frozenset()
    ) -> None:
        self._schema = schema
        wire = pa.schema([field.with_type(_wire(field.type)) for field in schema])
        self._possible = not any(_is_foreign(field.type) for field in schema)
        self._all_known = all_known
        self._known = pa.struct([*wire, *(pa.field(name, pa.null()) for name in elsewhere)])
        self._elsewhere = elsewhere
        self._parse = pa.json.ParseOptions(
            explicit_schema=wire,
            unexpected_field_behavior="infer" if all_known else "ignore",
            newlines_in_values=False,
        )
        self._decimals = any(map(pa.types.is_decimal, leaf_types(pa.struct(list(schema)))))

    def table(self, lines: bytes) -> pa.Table | None:
        """Return the rows, one for each line; None if that is not certain.

        Args:
            lines: lines that end with a line feed, and perhaps a carriage return before it.
        """
        height = _height(lines) if self._possible else 0
        if not height or not _is_plain(lines):
            return None
        read = pa.json.ReadOptions(use_threads=False, block_size=len(lines) + 1)
        try:
            table = pa.json.read_json(pa.BufferReader(lines), read, self._parse)
            if table.num_rows != height or (self._all_known and self._has_news(table.schema)):
                return None
            table = table.select(self._schema.names).cast(self._schema)
            if self._decimals:
                # A decimal was looked at for its scale, and not for its precision.
                table.validate(full=True)
        except pa.ArrowException:
            return None
        return table

    def _has_news(self, found: pa.Schema) -> bool:
        return _is_more(
            pa.struct([each for each in found if each.name not in self._elsewhere]), self._known
        )


class Exact:
    """Reads line by line. Not thread-safe.

    A string column holds the text of any value, as it stands there. Of members of the same name the last
    one counts. All else has to be what the type says.

    Args:
        schema: the columns.

    Attributes:
        unknown: members of the last line that the schema does not have, such as ``a.b``; those that are
            null do not count.
        misfits: members of the last line whose values are not of their type. Null is in their place.
        odd: the columns and new members of the last line that have such within, each with its text.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.unknown: list[str] = []
        self.misfits: list[str] = []
        self.odd: dict[str, str] = {}
        self._schema = schema
        self._is_odd = False
        columns = {
            each.name: self._part(each.name, self._reader(each.type, each.name)) for each in schema
        }
        self._read = _members(columns, lambda name: self._part(name, partial(self._new, name)))

    def row(self, line: str) -> list[Any]:
        """Return the values of a line, in the order of the columns, for `table_of`.

        Raises `ValueError` if the line is not an object of JSON, or is nested too deeply.
        """
        self.unknown, self.misfits, self.odd = [], [], {}
        try:
            found, at = self._read(line, _space(line, 0))
        except RecursionError as error:
            raise ValueError("it is nested too deeply") from error
        if found is None or _space(line, at) != len(line):
            raise ValueError("it is not one object")
        return [found.get(name) for name in self._schema.names]

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
        value, end = _value(text, at)
        if value is not None:
            self._is_odd = True
            self.unknown.append(path)
        return None, end

    def _misfit(self, path: str, text: str, at: int) -> tuple[None, int]:
        value, end = _value(text, at)
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
            read = _scalar(kind)

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


# -- values --------------------------------------------------------------------------------------------


def _integer(text: str) -> int | float:
    # Python refuses to make integers of thousands of digits, and no column takes them.
    return int(text) if len(text) < 40 else float(text)


def _decoder(parse_int: Callable[[str], Any], parse_float: Callable[[str], Any]) -> _Read:
    return json.JSONDecoder(parse_int=parse_int, parse_float=parse_float).raw_decode


_value = _decoder(_integer, float)
_float_value = _decoder(float, float)
_decimal_value = _decoder(decimal.Decimal, decimal.Decimal)

_SPACE = re.compile(r"[ \t\n\r]*")
_KEY = re.compile(r'[ \t\n\r]*"([^"\\\x00-\x1f]*)"[ \t\n\r]*:[ \t\n\r]*')
_COLON = re.compile(r"[ \t\n\r]*:[ \t\n\r]*")
_NEXT = re.compile(r"[ \t\n\r]*(?:(,)[ \t\n\r]*|([]}]))")
_SURROGATE = re.compile("[\ud800-\udfff]")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")

#: How Spark spells what JSON has no numbers for.
_SPECIAL: Mapping[Any, float] = MappingProxyType(
    {
        "NaN": math.nan,
        **dict.fromkeys(["Infinity", "+Infinity", "+INF"], math.inf),
        **dict.fromkeys(["-Infinity", "-INF"], -math.inf),
    }
)


def _space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return at if match is None else match.end()


def _members(known: Mapping[str, _Read], other: Callable[[str], _Read]) -> _Read:
    """Return what reads objects as dictionaries: each member by what is known, or else by `other`."""

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
    name, end = _value(text, _space(text, at))
    colon = _COLON.match(text, end)
    if type(name) is not str or colon is None:
        raise ValueError(f"there is no name at character {at}")
    return name, colon.end()


def _next(text: str, at: int, close: str) -> tuple[bool, int]:
    """Return whether a comma comes next, rather than `close`, and what is behind."""
    match = _NEXT.match(text, at)
    if match is None or match[2] not in (None, close):
        raise ValueError(f"neither ',' nor {close!r} is at character {at}")
    return match[2] is None, match.end()


def _entries(item: _Read) -> _Read:
    """Return what reads objects as the pairs of a map."""
    members = _members({}, lambda name: item)

    def read(text: str, at: int) -> tuple[list[tuple[str, Any]] | None, int]:
        found, end = members(text, at)
        if found is None or any(map(_SURROGATE.search, found)):
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
    value, end = _value(text, at)
    if value is None:
        return None, at
    if type(value) is not str:
        return text[at:end], end
    # Half a character can be written in JSON, and nowhere else.
    return (None, at) if not value.isascii() and _SURROGATE.search(value) else (value, end)


def _scalar(kind: pa.DataType) -> _Read:
    """Return what reads values of a simple type."""
    decode, convert = _value, _converter(kind)
    if pa.types.is_floating(kind):
        decode = _float_value
    elif pa.types.is_decimal(kind):
        decode = _decimal_value

    def read(text: str, at: int) -> tuple[Any, int]:
        value, end = decode(text, at)
        return (None if value is None else convert(value)), end

    return read


def _converter(kind: pa.DataType) -> Callable[[Any], Any]:
    """Return what makes Arrow's value of one of JSON's: None if it is of another type."""
    if pa.types.is_integer(kind):
        bound = 1 << kind.bit_width - 1
        return lambda value: value if type(value) is int and -bound <= value < bound else None
    if pa.types.is_floating(kind):
        return lambda value: (
            value if type(value) is float else _SPECIAL.get(value) if type(value) is str else None
        )
    if pa.types.is_decimal(kind):
        return partial(_decimal, precision=kind.precision, scale=kind.scale)
    if pa.types.is_boolean(kind):
        return lambda value: value if type(value) is bool else None
    if pa.types.is_date(kind):
        return lambda value: days_of(value) if type(value) is str else None
    if pa.types.is_timestamp(kind):
        return partial(_time, instant=kind.tz is not None)
    return _binary


def _decimal(value: Any, precision: int, scale: int) -> decimal.Decimal | None:
    """Return a value of so many digits, of which so many are behind the point; None if it needs more."""
    if type(value) is str and _DECIMAL.fullmatch(value):
        value = decimal.Decimal(value)
    if type(value) is not decimal.Decimal:
        return None
    exact = decimal.Context(prec=precision, traps=[decimal.InvalidOperation, decimal.Inexact])
    try:
        return value.quantize(decimal.Decimal((0, (1,), -scale)), context=exact)
    except (decimal.InvalidOperation, decimal.Inexact):
        return None


def _time(value: Any, instant: bool) -> int | None:
    if type(value) is str:
        return micros_of(value, instant=instant)
    # Spark takes a number for seconds.
    if type(value) is int and instant and abs(value) < 1 << 43:
        return value * 1_000_000
    return None


def _binary(value: Any) -> bytes | None:
    try:
        return base64.b64decode(value, validate=True) if type(value) is str else None
    except ValueError:
        return None


# -- what pyarrow can be trusted with ------------------------------------------------------------------


def _height(lines: bytes) -> int:
    """Return the number of lines if each begins with ``{`` and ends with ``}``; else 0.

    Such bytes with a line's end between them can only be between two values of JSON.
    """
    begins = lines.count(b"\n{") + lines.startswith(b"{")
    ends = lines.count(b"}\n") + lines.endswith(b"}")
    height = lines.count(b"\n") + (not lines.endswith(b"\n"))
    if begins == height != ends:
        ends += lines.count(b"}\r\n")
    return height if begins == ends == height else 0


def _is_plain(lines: bytes) -> bool:
    """Return whether this is UTF-8, which pyarrow does not check, without its word for infinity."""
    if b"Inf" in lines and re.search(rb"\bInf\b", lines):
        return False
    try:
        return lines.isascii() or bool(lines.decode())
    except UnicodeDecodeError:
        return False


def _is_foreign(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind) or pa.types.is_binary(kind):
        return True
    return pa.types.is_nested(kind) and any(
        _is_foreign(kind.field(i).type) for i in range(kind.num_fields)
    )


def _wire(kind: pa.DataType) -> pa.DataType:
    """Return what pyarrow reads a column of type `kind` as, and then casts.

    Of dates it knows nothing, it drops the zones of local times, and it does not round to floats by way
    of doubles.
    """
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_wire(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_wire(kind.value_type)))
    if pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and kind.tz is None):
        return pa.string()
    return pa.float64() if pa.types.is_floating(kind) else kind


def _is_more(found: pa.DataType, known: pa.DataType) -> bool:
    """Return whether a type that pyarrow inferred has members that `known` has not, other than nulls."""
    if pa.types.is_struct(found) and pa.types.is_struct(known):
        names = {field.name: field.type for field in known}
        return any(
            _is_more(field.type, names[field.name])
            if field.name in names
            else not pa.types.is_null(field.type)
            for field in found
        )
    if pa.types.is_list(found) and pa.types.is_list(known):
        return _is_more(found.value_type, known.value_type)
    return False
