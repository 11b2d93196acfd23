"""Records of deleted files: garbage to collect, and tombstones that hide objects of other programs."""

from __future__ import annotations

from attrs import frozen

from commitlog.namespace.model.codec import document_of, key_items, key_of
from commitlog.namespace.model.data import Data, data_of, is_same
from commitlog.oplog.codec import Document, encode
from commitlog.oplog.validate import (
    build,
    count,
    maybe_count,
    maybe_text,
    text,
)
from commitlog.stores.api import ObjectInfo
from commitlog.tables.api import Item, Key

__all__ = ["NO_FILE", "Garbage", "Tombstone"]

#: Stands for a file id in garbage that belongs to no known file.
NO_FILE = "-"

_GARBAGE, _TOMBSTONE = "namespace-garbage", "namespace-tombstone"


@frozen(kw_only=True)
class Garbage:
    """An object that was a file's content, and that is to be removed after a grace period.

    Attributes:
        key: of this record; sorts by `not_before`.
        file: id of the file; `NO_FILE` for an object of which no file was found.
        version: the file's last version with this content.
        change_id: id of the change that removed the last reference to the object.
        not_before: epoch millisecond until which readers may still read the object.
        data: the object.
    """

    key: Key
    file: str
    version: int
    change_id: str
    not_before: int
    data: Data

    @property
    def is_orphan(self) -> bool:
        """Whether no file was found for the object. A file may have been made of it since."""
        return self.file == NO_FILE

    def to_item(self) -> Item:
        """Return this record as a table item."""
        body = {
            "file": self.file,
            "version": self.version,
            "not_before": self.not_before,
            "data": self.data.to_json(),
        }
        return {**key_items(self.key), "word": self.change_id, "body": encode(Document(_GARBAGE, body))}

    @classmethod
    def from_item(cls, item: Item) -> Garbage:
        """Return the garbage record in `item`. Raises `CorruptRecord`, `FormatTooNew`."""
        document = document_of(item, _GARBAGE)
        fields = document.body
        return build(
            document,
            lambda: cls(
                key=key_of(item),
                file=text(fields["file"]),
                version=count(fields["version"]),
                change_id=text(item["word"]),
                not_before=count(fields["not_before"]),
                data=data_of(*fields["data"]),
            ),
        )


@frozen(kw_only=True)
class Tombstone:
    """A record that hides an object, or a prefix, from a bound directory.

    The name of a tombstone for a prefix ends in a slash, as the prefix does. So an object and a prefix
    of the same name are hidden independently.

    Attributes:
        key: of this record.
        change_id: id of the change that wrote it.
        path: the hidden object, or the prefix of the hidden objects.
        etag: the object is hidden only while it has this etag; None for a prefix.
        stored: epoch second; the object is hidden only if the store received it then or earlier. None:
            at any time.
        left: epoch millisecond at which the tombstone was written.
    """

    key: Key
    change_id: str
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
        """The name of the file; that of a directory, with a slash."""
        return str(self.key.range)

    def hides(self, info: ObjectInfo) -> bool:
        """Return whether this hides the object `info`: an object stored later is not hidden."""
        if self.etag is None or info.path != self.path:
            return False
        return is_same(self.etag, self.stored, info)

    def to_item(self) -> Item:
        """Return this record as a table item."""
        body = {"path": self.path, "etag": self.etag, "stored": self.stored, "left": self.left}
        return {
            **key_items(self.key),
            "word": self.change_id,
            "body": encode(Document(_TOMBSTONE, body)),
        }

    @classmethod
    def from_item(cls, item: Item) -> Tombstone:
        """Return the tombstone in `item`. Raises `CorruptRecord`, `FormatTooNew`."""
        document = document_of(item, _TOMBSTONE)
        fields = document.body
        return build(
            document,
            lambda: cls(
                key=key_of(item),
                change_id=text(item["word"]),
                path=text(fields["path"]),
                etag=maybe_text(fields["etag"]),
                stored=maybe_count(fields["stored"]),
                left=count(fields["left"]),
            ),
        )
