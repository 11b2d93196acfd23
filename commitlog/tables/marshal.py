"""Items as DynamoDB's JSON, the format of the wire protocol and of the SQLite file."""

from __future__ import annotations

import binascii
import contextlib
import json
import re
from collections.abc import Collection, Mapping
from typing import TypeAlias

from commitlog.errors import CorruptRecord
from commitlog.tables.api import Item, Value

__all__ = ["Wire", "marshal", "marshal_value", "readable_part", "to_json", "unmarshal"]

#: An item whose values are wrapped as ``{"N": "3"}``.
Wire: TypeAlias = dict[str, dict[str, str | bool]]

# What N holds; int() would take signs, spaces and underscores, too.
_NUMBER = re.compile("-?[0-9]{1,38}")

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
    return {"B": binascii.b2a_base64(value, newline=False).decode()}


def unmarshal(wire: object, keys: Collection[str] = ()) -> dict[str, Value]:
    """Return the item that `wire` stands for.

    Args:
        wire: the item as it came.
        keys: names of its key attributes, which an error shows.

    Raises `CorruptRecord` for an attribute that no `Value` can hold: leaving it out would lose it at
    the next put of the item.

    >>> unmarshal({"path": {"S": "a"}, "generation": {"N": "3"}})
    {'path': 'a', 'generation': 3}
    """
    if not isinstance(wire, Mapping):
        raise CorruptRecord("a stored item is not an object: it was written by another tool")
    item: dict[str, Value] = {}
    # Encoded only to check that they can be: JSON can hold a lone surrogate.
    for name, wrapped in wire.items():
        try:
            if not name.isascii():
                name.encode()
            item[name] = _unmarshal_value(wrapped)
        except (AttributeError, TypeError, ValueError):
            shown = ", ".join(f"{key} {wire.get(key)!r}" for key in keys)
            kind = next(iter(wrapped), "?") if isinstance(wrapped, Mapping) else "?"
            raise CorruptRecord(
                f"attribute {name!r} of a stored item{shown and f' ({shown})'} is {kind:.10}, not a "
                "string, whole number, binary or boolean: it was written by another tool"
            ) from None
    return item


def readable_part(wire: object) -> dict[str, Value]:
    """Return the attributes that can be read of what `unmarshal` refuses.

    >>> readable_part({"path": {"S": "a"}, "tags": {"L": []}})
    {'path': 'a'}
    """
    item: dict[str, Value] = {}
    for name, wrapped in wire.items() if isinstance(wire, Mapping) else ():
        with contextlib.suppress(CorruptRecord):
            item |= unmarshal({name: wrapped})
    return item


def _unmarshal_value(wrapped: Mapping[str, object]) -> Value:
    ((kind, value),) = wrapped.items()
    if kind == "BOOL" and isinstance(value, bool):
        return value
    if isinstance(value, str):
        if kind == "S":
            if not value.isascii():
                value.encode()
            return value
        if kind == "N" and _NUMBER.fullmatch(value):
            return int(value)
        if kind == "B":
            return binascii.a2b_base64(value, strict_mode=True)
    raise ValueError
