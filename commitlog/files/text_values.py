"""Text of Arrow columns in Spark's notation, for writers of CSV and JSON."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc
from attrs import frozen

from commitlog.errors import NotSupported
from commitlog.files.timestamps import FIRST_DAY, LAST_DAY, is_instant, iso, temporal_values
from commitlog.files.types import leaf_types

__all__ = [
    "TEXT_ROWS",
    "TextColumn",
    "check_utf8",
    "check_years",
    "concatenate",
    "text_bytes",
    "text_of",
]

#: Rows whose text is made at once: it fits into the 2 GB of an Arrow array, and into caches.
TEXT_ROWS = 8 * 1024

#: How floats are spelled where pyarrow's text differs from Spark's. JSON readers would drop the sign of
#: ``-0``.
_ZERO = {"-0": "-0.0"}
_SPECIAL = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def check_utf8(table: pa.Table) -> None:
    """Raise `NotSupported` for a string that is not UTF-8: no reader could decode the file."""
    for field in table.schema:
        if any(map(pa.types.is_string, leaf_types(field.type))):
            try:
                table.column(field.name).validate(full=True)
            except pa.ArrowInvalid as error:
                raise NotSupported(
                    f"column {field.name!r} has a string that is not UTF-8 ({error}): choose fileFormat"
                    " parquet or orc, or write hex(…) of it"
                ) from error


def check_years(table: pa.Table) -> None:
    """Raise `NotSupported` for a date or timestamp whose year does not have four digits."""
    for name, kind, values in temporal_values(table):
        unit = 1 if pa.types.is_date(kind) else 24 * 60 * 60 * 1_000_000
        low, high = (pc.min_max(values)[end].as_py() for end in ("min", "max"))
        if low is not None and not FIRST_DAY <= low // unit <= high // unit <= LAST_DAY:
            raise NotSupported(
                f"column {name!r} has a date or time outside of the years from 1 to 9999, which readers"
                " of text do not understand: choose fileFormat parquet"
            )


@frozen
class TextColumn:
    """The text of a column: each value with a prefix and a suffix; null for null.

    Combining the parts costs a copy, which `concatenate` avoids if it can.
    """

    prefix: str
    values: pa.Array
    suffix: str


def text_of(array: pa.Array) -> TextColumn:
    """Return the text of values of a simple type, neither quoted nor escaped."""
    if pa.types.is_temporal(array.type):
        return TextColumn("", iso(array), "Z" if is_instant(array.type) else "")
    text = array.cast(pa.string())
    if pa.types.is_floating(array.type):
        text = _respell(text, _ZERO)
        if pc.all(pc.is_finite(array)).as_py() is False:
            text = _respell(text, _SPECIAL)
    return TextColumn("", text, "")


def concatenate(*parts: str | TextColumn, null: str | None = None) -> pa.Array:
    """Return the concatenation of `parts`, row by row.

    Args:
        parts: texts, the same in each row, and columns.
        null: replaces a null of a column, with its prefix and suffix; None: a row with a null is null.
    """
    pieces: list[str | pa.Array] = []
    for part in parts:
        if isinstance(part, str):
            more = [part]
        elif null is not None and part.values.null_count:
            more = [concatenate(part)]
        else:
            more = [part.prefix, part.values, part.suffix]
        for piece in more:
            if isinstance(piece, str) and pieces and isinstance(pieces[-1], str):
                pieces[-1] += piece
            else:
                pieces.append(piece)
    handling = "emit_null" if null is None else "replace"
    return pc.binary_join_element_wise(*pieces, "", null_handling=handling, null_replacement=null or "")


def text_bytes(lines: pa.Array) -> pa.Buffer:
    """Return the bytes of all of `lines`, in order, without a copy. None of them is null."""
    _, bounds, data = lines.buffers()
    offsets = pa.Array.from_buffers(pa.int32(), len(lines) + 1, [None, bounds], offset=lines.offset)
    start, end = offsets[0].as_py(), offsets[-1].as_py()
    return data.slice(start, end - start)


def _respell(text: pa.Array, spellings: Mapping[str, str]) -> pa.Array:
    for known, wanted in spellings.items():
        text = pc.if_else(pc.equal(text, known), wanted, text)
    return text
