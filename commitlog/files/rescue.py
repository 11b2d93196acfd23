"""Rescued values as JSON."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from commitlog.files.json.writer import json_objects
from commitlog.files.types import convert, map_leaves, spark_type

__all__ = ["as_json", "joined", "quoted", "standard_json"]


def as_json(names: Sequence[str], columns: Sequence[pa.Array]) -> pa.Array | None:
    """Return a JSON object for each row of some columns, with its values that are not null.

    A row of nothing but nulls is null; if all rows are, return None. Binary is base64, dates and times
    are text, and maps whose keys are not strings are lists of ``{"key": …, "value": …}``. In strings,
    bytes that are not UTF-8 are escaped as ``\\\\xff``.

    >>> as_json(["a", "b"], [pa.array([1, None]), pa.array([["x"], None])]).to_pylist()
    ['{"a":1,"b":["x"]}', None]
    """
    members = [
        (
            name,
            map_leaves(convert(column, _json_type(spark_type(column.type))), itertools.repeat(_valid)),
        )
        for name, column in zip(names, columns, strict=True)
        if column.null_count < len(column)
    ]
    if not members:
        return None
    text = json_objects([name for name, _ in members], [column for _, column in members])
    return pc.if_else(pc.equal(text, "{}"), pa.scalar(None, pa.string()), text)


def _valid(values: pa.Array) -> pa.Array:
    """Return strings whose bytes are all UTF-8, and other values as they are."""
    if not pa.types.is_string(values.type):
        return values
    data = values.cast(pa.binary())
    try:
        return data.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [value and value.decode(errors="backslashreplace") for value in data.to_pylist()]
        return pa.array(texts, pa.string())


def joined(first: pa.Array | None, second: pa.Array | None) -> pa.Array | None:
    """Return JSON objects with the members of both, row by row; null counts as an empty object.

    >>> joined(pa.array(['{"a":1}', None]), pa.array(['{"b":2}', '{"b":3}'])).to_pylist()
    ['{"a":1,"b":2}', '{"b":3}']
    """
    if first is None or second is None:
        return second if first is None else first
    head, tail = pc.utf8_slice_codeunits(first, 0, -1), pc.utf8_slice_codeunits(second, 1)
    return pc.coalesce(pc.binary_join_element_wise(head, tail, ","), first, second)


def quoted(text: str) -> str:
    """Return a text as a JSON string: in ASCII if it has lone surrogates, which UTF-8 cannot encode.

    >>> quoted("é"), quoted("\\ud800")
    ('"é"', '"\\\\ud800"')
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(text)
    return json.dumps(text, ensure_ascii=False)


def standard_json(text: str) -> str:
    """Return JSON that all readers accept: NaN and the infinities become strings.

    >>> standard_json("[NaN, 1]")
    '["NaN", 1]'
    """
    if "NaN" in text or "Infinity" in text:
        return json.dumps(json.loads(text, parse_constant=str, parse_int=_short_integer))
    return text


def _short_integer(digits: str) -> int | float:
    # Python refuses to parse integers of thousands of digits.
    return int(digits) if len(digits) < 1000 else float(digits)


def _json_type(kind: pa.DataType) -> pa.DataType:
    """Return `kind` for JSON: with lists for maps whose keys are not strings, and no null type."""
    if pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_json_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        key, item = (_json_type(each) for each in (kind.key_type, kind.item_type))
        if key == pa.string():
            return pa.map_(key, item)
        return pa.list_(pa.struct([("key", key), ("value", item)]))
    if pa.types.is_list(kind):
        return pa.list_(_json_type(kind.value_type))
    return kind
