"""Items as DynamoDB's JSON, which is both what goes over the wire and what SQLite keeps.

Imports the port and errors alone.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import TypeAlias

from commitlog.errors import CorruptRecord
from commitlog.tables.api import Item, Value

__all__ = ["Wire", "marshal", "marshal_value", "to_json", "unmarshal"]

#: An item whose values are wrapped as ``{"N": "3"}``.
Wire: TypeAlias = dict[str, dict[str, str | bool]]

#: Made once: `json.dumps` would make an encoder for each call that wants other than its defaults.
_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def to_json(value: object) -> str:
    """Return `value` as JSON, as short as it gets.

    >>> to_json({"path": {"S": "ü"}})
    '{"path":{"S":"ü"}}'
    """
    return _encoder.encode(value)


def marshal(item: Item) -> Wire:
    """Return `item` as DynamoDB's JSON ("AttributeValue" in its API reference).

    >>> marshal({"path": "a", "generation": 3, "live": True, "raw": b"\\xff"})
    {'path': {'S': 'a'}, 'generation': {'N': '3'}, 'live': {'BOOL': True}, 'raw': {'B': '/w=='}}
    """
    return {name: marshal_value(value) for name, value in item.items()}


def marshal_value(value: Value) -> dict[str, str | bool]:
    """Return one value as DynamoDB's JSON."""
    # bool first: it is an int as well.
    if isinstance(value, bool):
        return {"BOOL": value}
    if isinstance(value, str):
        return {"S": value}
    if isinstance(value, int):
        return {"N": str(value)}
    return {"B": base64.b64encode(value).decode()}


def unmarshal(wire: Mapping[str, Mapping[str, object]]) -> dict[str, Value]:
    """Return the item that `wire` stands for.

    Raises `CorruptRecord` for an attribute that no `Value` can hold: leaving it out would lose it at
    the next put of the item.

    >>> unmarshal({"path": {"S": "a"}, "generation": {"N": "3"}})
    {'path': 'a', 'generation': 3}
    """
    return {name: _unmarshal_value(name, value) for name, value in wire.items()}


def _unmarshal_value(name: str, wrapped: Mapping[str, object]) -> Value:
    try:
        ((kind, value),) = wrapped.items()
        if kind == "S" and isinstance(value, str):
            return value
        if kind == "N" and isinstance(value, str):
            return int(value)
        if kind == "B" and isinstance(value, str):
            return base64.b64decode(value, validate=True)
        if kind == "BOOL" and isinstance(value, bool):
            return value
    except (AttributeError, TypeError, ValueError, binascii.Error):
        kind = "?"
    raise CorruptRecord(
        f"attribute {name!r} of a stored item is {kind}, not a string, whole number, binary or "
        f"boolean: it was written by another tool"
    )
