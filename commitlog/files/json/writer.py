"""Writer of JSON lines as Spark writes and reads them: one object a row, without null fields.

Decimals are numbers, binary is base64, NaN and the infinities are strings; dates and timestamps are text
of ISO 8601, with all digits and, for instants, a ``Z``.

pyarrow has no writer of JSON. The text is made column by column with its string kernels.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from json.encoder import encode_basestring

import pyarrow as pa
import pyarrow.compute as pc

from commitlog.files.compression import compress
from commitlog.files.io import SinkFile
from commitlog.files.statistics import Statistics
from commitlog.files.text_values import (
    TEXT_ROWS,
    TextColumn,
    check_utf8,
    check_years,
    concatenate,
    text_bytes,
    text_of,
)
from commitlog.files.types import as_list

__all__ = ["JsonEncoder", "json_objects"]


class JsonEncoder:
    """Encodes the bytes of a file of JSON lines; a `commitlog.files.base.Encoder`."""

    def __init__(self, file: SinkFile, compression: str) -> None:
        self._stream = compress(file, compression)

    def write(self, table: pa.Table) -> None:
        """See `Encoder.write`. Raises `NotSupported` for a value that JSON cannot hold."""
        check_utf8(table)
        check_years(table)
        for batch in table.to_batches(max_chunksize=TEXT_ROWS):
            self._stream.write(text_bytes(json_objects(batch.schema.names, batch.columns, end="}\n")))

    def close(self, statistics: Statistics) -> None:
        """See `Encoder.close`."""
        self._stream.close()


def json_objects(names: Sequence[str], columns: Sequence[pa.Array], end: str = "}") -> pa.Array:
    """Return the text of a JSON object for each row, in which nulls are left out."""
    texts = [_text(column) for column in columns]
    # The first member that no row lacks has no comma. Members before it end with one, and members after
    # it begin with one.
    sure = next((number for number, text in enumerate(texts) if not text.values.null_count), None)
    members = []
    for number, (name, text) in enumerate(zip(names, texts, strict=True)):
        before, after = f"{json.dumps(name, ensure_ascii=False)}:{text.prefix}", text.suffix
        if sure is None or number > sure:
            before = "," + before
        elif number < sure:
            after += ","
        members.append(TextColumn(before, text.values, after))
    if sure is not None:
        return concatenate("{", *members, end, null="")
    return concatenate(
        TextColumn("{", pc.binary_replace_slice(concatenate(*members, null=""), 0, 1, ""), end)
    )


def _text(array: pa.Array) -> TextColumn:
    """Return the JSON of each value."""
    kind = array.type
    if pa.types.is_struct(kind):
        texts = json_objects([field.name for field in kind], array.flatten())
        return TextColumn("", _with_nulls_of(array, texts), "")
    if pa.types.is_nested(kind):
        return TextColumn("", _with_nulls_of(array, _lists(array)), "")
    if pa.types.is_string(kind):
        return _strings(array)
    if pa.types.is_binary(kind):
        encoded = [value and base64.b64encode(value).decode() for value in array.to_pylist()]
        return _quoted(TextColumn("", pa.array(encoded, pa.string()), ""))
    text = text_of(array)
    if pa.types.is_temporal(kind):
        return _quoted(text)
    if pa.types.is_floating(kind) and pc.all(pc.is_finite(array)).as_py() is False:
        return TextColumn(
            "", pc.if_else(pc.is_finite(array), text.values, concatenate(_quoted(text))), ""
        )
    return text


def _lists(array: pa.Array) -> pa.Array:
    lists = as_list(array)
    values = pc.list_flatten(lists)
    left, right = "[]"
    keys: list[str | TextColumn] = []
    if pa.types.is_map(array.type):
        left, right = "{}"
        names, values = values.flatten()
        keys = [_strings(names), ":"]
    texts = concatenate(*keys, _text(values), null="null")
    ends = pc.cumulative_sum(pc.fill_null(pc.list_value_length(lists), 0))
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    inside = pc.binary_join(pa.ListArray.from_arrays(offsets, texts), ",")
    return concatenate(TextColumn(left, inside, right))


def _with_nulls_of(array: pa.Array, text: pa.Array) -> pa.Array:
    return pc.if_else(array.is_valid(), text, None) if array.null_count else text


def _strings(array: pa.Array) -> TextColumn:
    if pc.any(pc.match_substring_regex(array, r'[\x00-\x1f"\\]')).as_py():
        escaped = [None if value is None else encode_basestring(value) for value in array.to_pylist()]
        return TextColumn("", pa.array(escaped, pa.string()), "")
    return _quoted(TextColumn("", array, ""))


def _quoted(text: TextColumn) -> TextColumn:
    return TextColumn('"' + text.prefix, text.values, text.suffix + '"')
