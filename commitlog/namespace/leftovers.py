"""What stays of files that are gone: garbage to collect, and tombstones that hide what others store.

Imports the codec, the `Table` port and its siblings.
"""

from __future__ import annotations

from attrs import frozen

from commitlog.namespace.data import Data, data_of, is_same
from commitlog.namespace.items import document_of, key_items, key_of
from commitlog.oplog.codec import Document, encode
from commitlog.oplog.fields import (
    build,
    count,
    maybe_count,
    maybe_text,
    text,
)
from commitlog.stores.api import ObjectInfo
from commitlog.tables.api import Item, Key

__all__ = ["NAMELESS", "Garbage", "Tombstone"]

#: In place of the id of a file.
NAMELESS = "-"

_GARBAGE, _TOMBSTONE = "namespace-garbage", "namespace-tombstone"


@frozen(kw_only=True)
class Garbage:
    """An object that was a file's data, and that may be removed some time.

    Attributes:
        key: where it is stored; sorts by the time.
        file: id of the file; `NAMELESS` for an object of which no file was found.
        version: the file's last version that had this data.
        word: that of the call after which nothing named the object any more.
        not_before: epoch millisecond before which readers may still be reading.
        data: the object.
    """

    key: Key
    file: str
    version: int
    word: str
    not_before: int
    data: Data

    @property
    def is_nameless(self) -> bool:
        """Whether no file was found that had it; one may have been made of it since."""
        return self.file == NAMELESS

    def to_item(self) -> Item:
        """Return it as a table item."""
        body = {
            "file": self.file,
            "version": self.version,
            "not_before": self.not_before,
            "data": self.data.to_json(),
        }
        return {**key_items(self.key), "word": self.word, "body": encode(Document(_GARBAGE, body))}

    @classmethod
    def from_item(cls, item: Item) -> Garbage:
        """Return the garbage that `item` tells of. Raises `CorruptRecord`, `FormatTooNew`."""
        document = document_of(item, _GARBAGE)
        fields = document.body
        return build(
            document,
            lambda: cls(
                key=key_of(item),
                file=text(fields["file"]),
                version=count(fields["version"]),
                word=text(item["word"]),
                not_before=count(fields["not_before"]),
                data=data_of(*fields["data"]),
            ),
        )


@frozen(kw_only=True)
class Tombstone:
    """What is not to be in a bound directory, though the store has it.

    The name of one that hides a prefix ends in a slash, as the prefix does: an object and a prefix of
    the same name are hidden apart.

    Attributes:
        key: where it is stored.
        word: that of the call that left it.
        path: what it hides: that object, or all that begins with that prefix.
        etag: the object is hidden as long as it is this one; None for a prefix.
        stored: epoch second; the object is hidden if the store got it then, or before; None: whenever.
        left: epoch millisecond at which it was left.
    """

    key: Key
    word: str
    path: str
    etag: str | None = None
    stored: int | None = None
    left: int

    def __attrs_post_init__(self) -> None:
        prefix = str(self.key.range).endswith("/")
        if not prefix == self.path.endswith("/") == (self.etag is None):
            raise ValueError(f"{self.key} with the etag {self.etag!r} hides no {self.path!r}")

    @property
    def name(self) -> str:
        """The name of the file, or with a slash that of the directory."""
        return str(self.key.range)

    def hides(self, info: ObjectInfo) -> bool:
        """Tell whether it hides an object, which may be a newer one than was deleted."""
        if self.etag is None or info.path != self.path:
            return False
        return is_same(self.etag, self.stored, info)

    def to_item(self) -> Item:
        """Return it as a table item."""
        body = {"path": self.path, "etag": self.etag, "stored": self.stored, "left": self.left}
        return {**key_items(self.key), "word": self.word, "body": encode(Document(_TOMBSTONE, body))}

    @classmethod
    def from_item(cls, item: Item) -> Tombstone:
        """Return the tombstone that `item` holds. Raises `CorruptRecord`, `FormatTooNew`."""
        document = document_of(item, _TOMBSTONE)
        fields = document.body
        return build(
            document,
            lambda: cls(
                key=key_of(item),
                word=text(item["word"]),
                path=text(fields["path"]),
                etag=maybe_text(fields["etag"]),
                stored=maybe_count(fields["stored"]),
                left=count(fields["left"]),
            ),
        )
