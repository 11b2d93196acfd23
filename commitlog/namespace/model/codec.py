"""Helpers shared by all records of a namespace: items of the table, with a checksummed body."""

from __future__ import annotations

import json
from collections.abc import Mapping

from commitlog.errors import CorruptRecord, TransactionTooLarge
from commitlog.oplog.codec import ADVICE, Document, decode
from commitlog.oplog.validate import text
from commitlog.tables.api import Item, Key, Value

__all__ = [
    "MAX_ATTRIBUTES",
    "attributes_of",
    "bare",
    "document_of",
    "item_name",
    "key_items",
    "key_of",
    "text_map",
]

#: Limit of a file's or directory's attributes, in bytes of JSON. An item of the table has 400 KiB; the
#: rest of the record fits in wherever it is moved, the trash included.
MAX_ATTRIBUTES = 400_000


def item_name(item: Item) -> str:
    """Return the name of an item for error messages."""
    return f"{item.get('place')!s} {item.get('name')!s}"


def text_map(value: object) -> dict[str, str]:
    """Return `value` if it is a mapping of str to str. Raises `TypeError` if it is not."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{value!r} is not a mapping")
    return {text(name): text(each) for name, each in value.items()}


def attributes_of(value: object) -> dict[str, str]:
    """Return the users' attributes of a file or directory, checked.

    Raises `TypeError` if `value` is not a mapping of str to str, and `TransactionTooLarge` if it has
    more than `MAX_ATTRIBUTES` bytes.
    """
    kept = text_map(value)
    size = len(json.dumps(kept, ensure_ascii=False).encode()) if kept else 0
    if size > MAX_ATTRIBUTES:
        raise TransactionTooLarge(
            f"attributes of {size} bytes as JSON are too large: the limit is {MAX_ATTRIBUTES}. Keep less"
            " in attributes; nothing was written"
        )
    return kept


def document_of(item: Item, *kinds: str) -> Document:
    """Return the record in the body of an item. Raises `CorruptRecord`, `FormatTooNew`."""
    body = item.get("body")
    if not isinstance(body, bytes):
        raise CorruptRecord(f"{item_name(item)!r} has no body. {ADVICE}")
    return decode(body, kinds, path=item_name(item))


def bare(item: Item) -> Document:
    """Return an item without a body as a document, for error messages."""
    return Document("record of a namespace", item, item_name(item))


def key_of(item: Item) -> Key:
    """Return the key of an item. Raises `KeyError` or `TypeError` if it has none."""
    return Key(text(item["place"]), text(item["name"]))


def key_items(key: Key) -> dict[str, Value]:
    """Return the two attributes of an item that are its key."""
    return {"place": key.hash, "name": str(key.range)}
