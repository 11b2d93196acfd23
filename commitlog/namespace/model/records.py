"""The records of a namespace, and how a table stores them.

Entries, directory records and guards make up the tree. Garbage and tombstones are what deleted files
leave behind.

An entry has all fields of a file, so a listing needs no further request. For a directory, an entry has
the fields that users see; the fields on which its own entries depend are in its directory record and its
guards, which are keyed by its id. Fields that conditions test are attributes of the item. The others are
in the body, a JSON record with a format version and a checksum.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from attrs import field, frozen

from commitlog._util.frozen_map import FrozenMap, frozen_map
from commitlog.namespace.model.binding import Binding
from commitlog.namespace.model.codec import bare, document_of, key_items, key_of, text_map
from commitlog.namespace.model.data import Data, data_of, is_same
from commitlog.namespace.model.keys import MAX_SHARDS, parse_hash_key
from commitlog.oplog.codec import Document, encode
from commitlog.oplog.validate import (
    build,
    count,
    items,
    maybe_count,
    maybe_text,
    text,
)
from commitlog.stores.api import ObjectInfo
from commitlog.tables.api import Equals, Item, Key, TableCondition

__all__ = [
    "NO_FILE",
    "Directory",
    "Entry",
    "Garbage",
    "Guard",
    "Record",
    "Shards",
    "Tombstone",
    "record_of",
]


_FILE, _DIRECTORY = "namespace-file", "namespace-directory"
_GARBAGE, _TOMBSTONE = "namespace-garbage", "namespace-tombstone"

#: Stands for a file id in garbage that belongs to no known file.
NO_FILE = "-"

_EMPTY = FrozenMap()


@frozen(kw_only=True)
class Shards:
    """The number of partitions over which the entries of a directory are spread. Powers of two.

    Attributes:
        now: number of shards for new entries.
        first: number of shards when the directory was made.
    """

    now: int = 1
    first: int = 1

    def __attrs_post_init__(self) -> None:
        whole = type(self.now) is int and type(self.first) is int  # `True` is stored as something else
        if not whole or not {self.now, self.first} <= _POWERS or self.first > self.now:
            raise ValueError(f"{self} is not 1, 2, 4, … up to {MAX_SHARDS}, and growing")


_POWERS = frozenset(2**power for power in range(MAX_SHARDS.bit_length()))
_ONE = Shards()


@frozen(kw_only=True)
class Entry:
    """An entry of a directory: a file if it has `data`, or else a directory.

    Attributes:
        key: of this record.
        id: of the file or directory; never reused.
        version: begins at 1, and grows by one with each change of the entry.
        change_id: id of the change that wrote this version.
        created, modified: epoch milliseconds, by the clocks of the clients. Changes in a directory do
            not modify the directory.
        updated: epoch millisecond at which this version was written.
        data: content of a file.
        shards: of a directory.
        binding: of a bound directory.
        attributes: the users' attributes.
    """

    key: Key
    id: str
    version: int
    change_id: str
    created: int
    modified: int
    updated: int
    data: Data | None = None
    shards: Shards = _ONE
    binding: Binding | None = None
    attributes: Mapping[str, str] = field(default=_EMPTY, converter=frozen_map, hash=False)

    @property
    def name(self) -> str:
        """The name of the entry in its directory."""
        return str(self.key.range)

    @property
    def is_directory(self) -> bool:
        """Whether it is a directory."""
        return self.data is None

    @property
    def parent(self) -> str:
        """Id of the directory that contains the entry."""
        return parse_hash_key(self.key.hash).id

    @property
    def is_stored(self) -> bool:
        """Whether the entry is in the table. If not, it stands for an object that only the store has."""
        return self.version > 0

    def unchanged(self) -> TableCondition:
        """Return the condition that it is still this version. Once it is false, it stays false."""
        return Equals("id", self.id) & Equals("version", self.version)

    def to_item(self) -> Item:
        """Return this record as a table item."""
        body: dict[str, Any] = {
            "created": self.created,
            "modified": self.modified,
            "updated": self.updated,
            "attributes": dict(self.attributes),
        }
        if self.data is None:
            body["shards"] = [self.shards.now, self.shards.first]
            body["binding"] = None if self.binding is None else self.binding.to_json()
        else:
            body["data"] = self.data.to_json()
        return {
            **key_items(self.key),
            "id": self.id,
            "version": self.version,
            "change_id": self.change_id,
            "body": encode(Document(_DIRECTORY if self.data is None else _FILE, body)),
        }

    @classmethod
    def from_item(cls, item: Item) -> Entry:
        """Return the entry in `item`. Raises `CorruptRecord`, `FormatTooNew`."""
        document = document_of(item, _FILE, _DIRECTORY)
        fields = document.body
        is_file = document.kind == _FILE

        def make() -> Entry:
            return cls(
                key=key_of(item),
                id=text(item["id"]),
                version=count(item["version"]),
                change_id=text(item["change_id"]),
                created=count(fields["created"]),
                modified=count(fields["modified"]),
                updated=count(fields["updated"]),
                attributes=text_map(fields["attributes"]),
                data=data_of(*fields["data"]) if is_file else None,
                shards=_ONE if is_file else _shards(*fields["shards"]),
                binding=None if is_file else _binding(fields["binding"]),
            )

        return build(document, make)


def _binding(value: object) -> Binding | None:
    if value is None:
        return None
    prefix, max_age, synced = items(value)
    return Binding(prefix=prefix, max_age=max_age, synced=synced)


def _shards(now: object, first: object) -> Shards:
    return Shards(now=count(now), first=count(first))


@frozen(kw_only=True)
class Directory:
    """The record of which entry names a directory. All directories but the root and the trash have one.

    Attributes:
        key: of this record.
        parent: id of the directory that contains the entry.
        name: of the entry.
    """

    key: Key
    parent: str
    name: str

    def named(self) -> TableCondition:
        """Return the condition that the same entry still names the directory."""
        return Equals("parent", self.parent) & Equals("entry_name", self.name)

    def to_item(self) -> Item:
        """Return this record as a table item."""
        return {**key_items(self.key), "parent": self.parent, "entry_name": self.name}

    @classmethod
    def from_item(cls, item: Item) -> Directory:
        """Return the directory record in `item`. Raises `CorruptRecord`."""
        return build(
            bare(item),
            lambda: cls(
                key=key_of(item),
                parent=text(item["parent"]),
                name=text(item["entry_name"]),
            ),
        )


@frozen(kw_only=True)
class Guard:
    """The guard of one shard of a directory. Adding an entry to the shard writes it.

    It exists as long as entries may be added. Each addition gives it another change id. So a client that
    reads all guards, then finds all shards empty, can remove the directory on condition that the change
    ids are the same: nothing was added in between.

    Attributes:
        key: of this record.
        shards: number of shards of the directory.
        change_id: id of the change that wrote it last.
    """

    key: Key
    shards: int
    change_id: str

    def to_item(self) -> Item:
        """Return this record as a table item."""
        return {**key_items(self.key), "shards": self.shards, "change_id": self.change_id}

    @classmethod
    def from_item(cls, item: Item) -> Guard:
        """Return the guard in `item`. Raises `CorruptRecord`."""
        return build(
            bare(item),
            lambda: cls(
                key=key_of(item),
                shards=count(item["shards"]),
                change_id=text(item["change_id"]),
            ),
        )


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
        return {
            **key_items(self.key),
            "change_id": self.change_id,
            "body": encode(Document(_GARBAGE, body)),
        }

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
                change_id=text(item["change_id"]),
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
        written: epoch millisecond at which the tombstone was written.
    """

    key: Key
    change_id: str
    path: str
    etag: str | None = None
    stored: int | None = None
    written: int

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
        body = {"path": self.path, "etag": self.etag, "stored": self.stored, "written": self.written}
        return {
            **key_items(self.key),
            "change_id": self.change_id,
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
                change_id=text(item["change_id"]),
                path=text(fields["path"]),
                etag=maybe_text(fields["etag"]),
                stored=maybe_count(fields["stored"]),
                written=count(fields["written"]),
            ),
        )


#: Any record of a namespace, except the metadata record.
Record: TypeAlias = Entry | Directory | Guard | Garbage | Tombstone


def record_of(item: Item) -> Record | None:
    """Return the record that an item of a namespace is; None if it is of no kind that is known.

    Raises `ValueError` if there are no such keys, `CorruptRecord`, `FormatTooNew`.
    """
    match parse_hash_key(str(item["place"])).kind:
        case "e":
            return Entry.from_item(item)
        case "d":
            return Directory.from_item(item)
        case "g":
            return Guard.from_item(item)
        case "x":
            return Garbage.from_item(item)
        case "t":
            return Tombstone.from_item(item)
    return None
