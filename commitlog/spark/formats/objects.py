"""Reading of JSON lines by pyarrow, for lines that it reads correctly.

pyarrow reads no objects as maps, no base64, and no "NaN" in quotes. It accepts several objects on one
line, and one object on several lines. It crashes on a line that is ``null``. So `Quick` checks its input
first, and leaves input that pyarrow may misread to `Exact`. Both return the same row for the same line,
because the neighbours of a line determine which of them reads it.
"""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.json

from commitlog.spark.formats.nested import leaf_types

__all__ = ["Quick"]

#: Lines with no more brackets that open are not nested too deeply.
_DEPTH = 500
_NOT_OPENING = bytes(set(range(256)).difference(b"[{\n"))

# The parts of `SMALL`, at the end of a value; a decimal may be in quotes, and its characters escaped.
_MANY_DIGITS = re.compile(rb"\.[0-9]{29}")
_EXPONENT = re.compile(rb'[0-9.][eE]-[0-9]{2,}["\s,}\]]')
_ESCAPED = re.compile(rb"\\u00(?:2[dDeE]|3[0-9]|[46]5)")


class Quick:
    """Reads lines by pyarrow. Thread-safe.

    Args:
        schema: the columns. Others are left out.
        all_known: whether lines with members that are not in the schema are for `Exact`.
    """

    def __init__(self, schema: pa.Schema, *, all_known: bool = False) -> None:
        self._schema = schema
        wire = pa.schema([field.with_type(_wire(field.type)) for field in schema])
        self._possible = not any(_is_foreign(field.type) for field in schema)
        self._all_known = all_known
        self._wire = wire
        self._decimals = any(map(pa.types.is_decimal, leaf_types(pa.struct(list(schema)))))

    def table(self, lines: bytes) -> pa.Table | None:
        """Return the rows, one for each line; None if that is not certain.

        Args:
            lines: lines that end with a line feed, and perhaps a carriage return before it.
        """
        height = _height(lines) if self._possible else 0
        if not height or not _is_plain(lines) or (self._decimals and _may_be_small(lines)):
            return None
        try:
            table = self._read(lines)
            if table.num_rows != height:
                return None
            if self._all_known and _is_more(pa.struct(list(table.schema)), pa.struct(list(self._wire))):
                return None
            table = table.select(self._schema.names)
            if table.schema != self._schema:
                table = table.cast(self._schema)
            if self._decimals:
                # A decimal was looked at for its scale, and not for its precision.
                table.validate(full=True)
        except pa.ArrowException:
            return None
        return table

    def _read(self, lines: bytes) -> pa.Table:
        """Return the columns of the schema; with `all_known`, also those of others that are of use.

        Raises `pyarrow.ArrowException`.
        """
        if not self._all_known:
            return self._parsed(lines, "ignore")
        try:
            return self._parsed(lines, "error")
        except pa.ArrowInvalid:
            # Members that are null are no news.
            if _may_be_deep(lines):
                raise
            return self._parsed(lines, "infer")

    def _parsed(self, lines: bytes, unexpected: str) -> pa.Table:
        return pa.json.read_json(
            pa.BufferReader(lines),
            pa.json.ReadOptions(use_threads=False, block_size=len(lines) + 1),
            pa.json.ParseOptions(
                explicit_schema=self._wire,
                unexpected_field_behavior=unexpected,
                newlines_in_values=False,
            ),
        )


def _height(lines: bytes) -> int:
    """Return the number of lines if each begins with ``{`` and ends with ``}``; else 0.

    Such bytes with a line's end between them can only be between two values of JSON.
    """
    height = lines.count(b"\n") + (not lines.endswith(b"\n"))
    framed = lines.startswith(b"{") and lines.endswith((b"}", b"}\n"))
    # One look suffices nearly always; three take a quarter of the time that reading does.
    if framed and lines.count(b"}\n{") == height - 1:
        return height
    begins = lines.count(b"\n{") + lines.startswith(b"{")
    ends = lines.count(b"}\n") + lines.endswith(b"}")
    if begins == height != ends:
        ends += lines.count(b"}\r\n")
    return height if begins == ends == height else 0


def _may_be_deep(lines: bytes) -> bool:
    """Return whether values may be nested deeper than types that pyarrow infers can be.

    From some ten thousand levels on, it overruns the stack, which ends the process.
    """
    return max(map(len, lines.translate(None, _NOT_OPENING).split(b"\n"))) > _DEPTH


def _may_be_small(lines: bytes) -> bool:
    """Return whether there may be a decimal of which pyarrow makes anything; see `SMALL`."""
    return (
        _MANY_DIGITS.search(lines) is not None
        or ((b"e-" in lines or b"E-" in lines) and _EXPONENT.search(lines) is not None)
        or (b"\\u00" in lines and _ESCAPED.search(lines) is not None)
    )


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
