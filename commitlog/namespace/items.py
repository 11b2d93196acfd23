"""What the records of a namespace have in common: an item of the table with a body that is checked.

Imports errors, the keys, the codec and the `Table` port.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from commitlog.errors import CorruptRecord, TransactionTooLarge
from commitlog.oplog.codec import ADVICE, Document, decode
from commitlog.oplog.fields import text
from commitlog.tables.api import Item, Key, Value

__all__ = [
    "MAX_ATTRIBUTES",
    "attributes_of",
    "bare",
    "document_of",
    "key_items",
    "key_of",
    "place_of",
    "text_map",
]

#: Most bytes of what users keep with a file or directory, as JSON. An item has 400 KiB: so the rest
#: of it fits in, too, wherever it is moved, and that may be the trash.
MAX_ATTRIBUTES = 400_000


def place_of(item: Item) -> str:
    """Return what messages call an item."""
    return f"{item.get('place')!s} {item.get('name')!s}"


def text_map(value: object) -> dict[str, str]:
    """Return `value`, which must be a mapping of texts to texts."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{value!r} is no mapping")
    return {text(name): text(each) for name, each in value.items()}


def attributes_of(value: object) -> dict[str, str]:
    """Return what users want to keep with a file or directory.

    Raises `TypeError` if it is no mapping of texts to texts, `TransactionTooLarge` for more than
    `MAX_ATTRIBUTES`.
    """
    kept = text_map(value)
    size = len(json.dumps(kept, ensure_ascii=False).encode()) if kept else 0
    if size > MAX_ATTRIBUTES:
        raise TransactionTooLarge(
            f"attributes of {size} bytes as JSON are too large: {MAX_ATTRIBUTES} are kept. Keep less in"
            " attributes; nothing was written"
        )
    return kept


def document_of(item: Item, *kinds: str) -> Document:
    """Return the record in the body of an item. Raises `CorruptRecord`, `FormatTooNew`."""
    body = item.get("body")
    if not isinstance(body, bytes):
        raise CorruptRecord(f"{place_of(item)!r} has no body. {ADVICE}")
    return decode(body, kinds, path=place_of(item))


def bare(item: Item) -> Document:
    """Return an item without a body as a record, for messages."""
    return Document("record of a namespace", item, place_of(item))


def key_of(item: Item) -> Key:
    """Return the key of an item. Raises `KeyError` or `TypeError` if it has none."""
    return Key(text(item["place"]), text(item["name"]))


def key_items(key: Key) -> dict[str, Value]:
    """Return the attributes of an item that are its key."""
    return {"place": key.hash, "name": str(key.range)}
