"""Fast reader of JSON lines: by pyarrow, for lines that it reads correctly.

pyarrow reads no objects as maps, no base64, and no "NaN" in quotes. It accepts several objects on one
line, and one object on several lines. It crashes on a line that is ``null``. So `FastReader` checks its
input first, and leaves input that pyarrow may misread to `ExactReader`. Both return the same row for the
same line, because the neighbours of a line determine which of them reads it.
"""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.json

from commitlog.files.types import leaf_types

__all__ = ["FastReader"]

#: A line with at most this many opening brackets is not nested too deeply.
_DEPTH = 500
_NOT_OPENING = bytes(set(range(256)).difference(b"[{\n"))

# The alternatives of `SMALL_DECIMAL`, at the end of a value. A decimal may be in quotes, and its
# characters escaped.
_MANY_DIGITS = re.compile(rb"\.[0-9]{29}")
_EXPONENT = re.compile(rb'[0-9.][eE]-[0-9]{2,}["\s,}\]]')
_ESCAPED = re.compile(rb"\\u00(?:2[dDeE]|3[0-9]|[46]5)")


class FastReader:
    """Reads lines by pyarrow. Thread-safe.

    Args:
        schema: the columns. Other members are left out.
        report_unknown: whether to leave lines with members that the schema lacks to `ExactReader`.
    """

    def __init__(self, schema: pa.Schema, *, report_unknown: bool = False) -> None:
        self._schema = schema
        self._parsed_schema = pa.schema([field.with_type(_parsed_type(field.type)) for field in schema])
        self._possible = not any(_is_unsupported(field.type) for field in schema)
        self._report_unknown = report_unknown
        self._decimals = any(map(pa.types.is_decimal, leaf_types(pa.struct(list(schema)))))

    def table(self, lines: bytes) -> pa.Table | None:
        """Return the rows, one for each line; None if the result is uncertain.

        Args:
            lines: lines that end with a line feed, or a carriage return and a line feed.
        """
        count = _line_count(lines) if self._possible else 0
        if not count or not _is_plain(lines) or (self._decimals and _may_be_small(lines)):
            return None
        try:
            table = self._read(lines)
            if table.num_rows != count:
                return None
            if self._report_unknown and _has_unknown(
                pa.struct(list(table.schema)), pa.struct(list(self._parsed_schema))
            ):
                return None
            table = table.select(self._schema.names)
            if table.schema != self._schema:
                table = table.cast(self._schema)
            if self._decimals:
                # pyarrow checks the scale of a decimal, but not its precision.
                table.validate(full=True)
        except pa.ArrowException:
            return None
        return table

    def _read(self, lines: bytes) -> pa.Table:
        """Return the columns of the schema, and perhaps unknown columns if they are reported.

        Raises `pyarrow.ArrowException`.
        """
        if not self._report_unknown:
            return self._parse(lines, "ignore")
        try:
            return self._parse(lines, "error")
        except pa.ArrowInvalid:
            # Unknown members that are null are not reported.
            if _may_be_deep(lines):
                raise
            return self._parse(lines, "infer")

    def _parse(self, lines: bytes, unexpected: str) -> pa.Table:
        return pa.json.read_json(
            pa.BufferReader(lines),
            pa.json.ReadOptions(use_threads=False, block_size=len(lines) + 1),
            pa.json.ParseOptions(
                explicit_schema=self._parsed_schema,
                unexpected_field_behavior=unexpected,
                newlines_in_values=False,
            ),
        )


def _line_count(lines: bytes) -> int:
    """Return the number of lines if each begins with ``{`` and ends with ``}``; else 0.

    These bytes with the end of a line between them can only be between two values of JSON.
    """
    count = lines.count(b"\n") + (not lines.endswith(b"\n"))
    framed = lines.startswith(b"{") and lines.endswith((b"}", b"}\n"))
    # This suffices nearly always. The checks below take a quarter of the time of reading.
    if framed and lines.count(b"}\n{") == count - 1:
        return count
    begins = lines.count(b"\n{") + lines.startswith(b"{")
    ends = lines.count(b"}\n") + lines.endswith(b"}")
    if begins == count != ends:
        ends += lines.count(b"}\r\n")
    return count if begins == ends == count else 0


def _may_be_deep(lines: bytes) -> bool:
    """Return whether values may be nested so deeply that pyarrow cannot infer a type.

    From some ten thousand levels on, it overruns the stack, which ends the process.
    """
    return max(map(len, lines.translate(None, _NOT_OPENING).split(b"\n"))) > _DEPTH


def _may_be_small(lines: bytes) -> bool:
    """Return whether there may be a decimal that pyarrow misreads; see `SMALL_DECIMAL`."""
    return (
        _MANY_DIGITS.search(lines) is not None
        or ((b"e-" in lines or b"E-" in lines) and _EXPONENT.search(lines) is not None)
        or (b"\\u00" in lines and _ESCAPED.search(lines) is not None)
    )


def _is_plain(lines: bytes) -> bool:
    """Return whether `lines` are UTF-8, which pyarrow does not check, and without ``Inf``.

    pyarrow reads ``Inf`` as infinity; it is not JSON.
    """
    if b"Inf" in lines and re.search(rb"\bInf\b", lines):
        return False
    try:
        return lines.isascii() or bool(lines.decode())
    except UnicodeDecodeError:
        return False


def _is_unsupported(kind: pa.DataType) -> bool:
    """Return whether pyarrow cannot read a column of type `kind` from JSON."""
    if pa.types.is_map(kind) or pa.types.is_binary(kind):
        return True
    return pa.types.is_nested(kind) and any(
        _is_unsupported(kind.field(i).type) for i in range(kind.num_fields)
    )


def _parsed_type(kind: pa.DataType) -> pa.DataType:
    """Return the type that pyarrow parses, and then casts to `kind`.

    pyarrow parses no dates, drops the zones of local times, and rounds floats directly rather than by
    way of doubles.
    """
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_parsed_type(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_parsed_type(kind.value_type)))
    if pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and kind.tz is None):
        return pa.string()
    return pa.float64() if pa.types.is_floating(kind) else kind


def _has_unknown(found: pa.DataType, known: pa.DataType) -> bool:
    """Return whether a type that pyarrow inferred has members that `known` lacks, other than nulls."""
    if pa.types.is_struct(found) and pa.types.is_struct(known):
        names = {field.name: field.type for field in known}
        return any(
            _has_unknown(field.type, names[field.name])
            if field.name in names
            else not pa.types.is_null(field.type)
            for field in found
        )
    if pa.types.is_list(found) and pa.types.is_list(known):
        return _has_unknown(found.value_type, known.value_type)
    return False
