"""What is stored of the tree: entries, and what directories depend on.

An entry holds all there is to know of a file, so that a listing needs no further request. Of a directory
it holds what people see; what its own entries depend on is in its directory record and its gates, which
are keyed by its id. What conditions look at is an attribute of its own; the rest is in the body, a JSON
record with format version and checksum. Imports maps, the codec, the `Table` port and its siblings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from commitlog.maps import FrozenMap, frozen_map
from commitlog.namespace.binding import Binding
from commitlog.namespace.data import Data, data_of
from commitlog.namespace.items import bare, document_of, key_items, key_of, text_map
from commitlog.namespace.keys import MAX_SHARDS, read_place
from commitlog.oplog.codec import Document, encode
from commitlog.oplog.fields import (
    build,
    count,
    items,
    text,
)
from commitlog.tables.api import Equals, Item, Key, TableCondition

__all__ = ["Directory", "Entry", "Gate", "Shards"]


_FILE, _DIRECTORY = "namespace-file", "namespace-directory"

_EMPTY = FrozenMap()


@frozen(kw_only=True)
class Shards:
    """Over how many partitions the entries of a directory are spread: powers of two.

    Attributes:
        now: where new entries go.
        first: how many there were when it was made.
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
    """What a directory has under a name: a file, if it has data, or else a directory.

    Attributes:
        key: where it is stored.
        id: of the file or directory; never used again.
        version: grows by one with each change of it, from 1.
        word: that of the call that wrote this version.
        created, modified: epoch milliseconds, by the clocks of who did it. A directory is not modified
            by what happens in it.
        updated: epoch millisecond at which this version was written.
        data: of a file.
        shards: of a directory.
        binding: of a directory that others write to, too.
        attributes: what users keep with it.
    """

    key: Key
    id: str
    version: int
    word: str
    created: int
    modified: int
    updated: int
    data: Data | None = None
    shards: Shards = _ONE
    binding: Binding | None = None
    attributes: Mapping[str, str] = field(default=_EMPTY, converter=frozen_map, hash=False)

    @property
    def name(self) -> str:
        """The name under which the directory has it."""
        return str(self.key.range)

    @property
    def is_directory(self) -> bool:
        """Whether it is a directory."""
        return self.data is None

    @property
    def parent(self) -> str:
        """Id of the directory that has it."""
        return read_place(self.key.hash).of

    @property
    def is_stored(self) -> bool:
        """Whether it is in the table; else it is an object that was only seen in the store."""
        return self.version > 0

    def unchanged(self) -> TableCondition:
        """Return the condition that it is still this version. Once it fails, it never holds again."""
        return Equals("id", self.id) & Equals("version", self.version)

    def to_item(self) -> Item:
        """Return it as a table item."""
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
            "word": self.word,
            "body": encode(Document(_DIRECTORY if self.data is None else _FILE, body)),
        }

    @classmethod
    def from_item(cls, item: Item) -> Entry:
        """Return the entry that `item` holds. Raises `CorruptRecord`, `FormatTooNew`."""
        document = document_of(item, _FILE, _DIRECTORY)
        fields = document.body
        is_file = document.kind == _FILE

        def make() -> Entry:
            return cls(
                key=key_of(item),
                id=text(item["id"]),
                version=count(item["version"]),
                word=text(item["word"]),
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
    """Which entry names a directory. There is one for each directory but root and trash.

    Attributes:
        key: where it is stored.
        parent: id of the directory that has the entry.
        name: the entry's name.
    """

    key: Key
    parent: str
    name: str

    def named(self) -> TableCondition:
        """Return the condition that it is still named by the same entry."""
        return Equals("parent", self.parent) & Equals("called", self.name)

    def to_item(self) -> Item:
        """Return it as a table item."""
        return {**key_items(self.key), "parent": self.parent, "called": self.name}

    @classmethod
    def from_item(cls, item: Item) -> Directory:
        """Return the record that `item` holds. Raises `CorruptRecord`."""
        return build(
            bare(item),
            lambda: cls(
                key=key_of(item),
                parent=text(item["parent"]),
                name=text(item["called"]),
            ),
        )


@frozen(kw_only=True)
class Gate:
    """What has to be written to add an entry to one shard of a directory.

    It is there as long as entries may be added, and says to how many shards. Its word is another after
    each addition, so whoever found all shards of a directory empty, and finds all words as they were
    before he looked, can remove the directory: nothing was added meanwhile.

    Attributes:
        key: where it is stored.
        shards: how many shards the directory has.
        word: that of the call that wrote it last.
    """

    key: Key
    shards: int
    word: str

    def to_item(self) -> Item:
        """Return it as a table item."""
        return {**key_items(self.key), "shards": self.shards, "word": self.word}

    @classmethod
    def from_item(cls, item: Item) -> Gate:
        """Return the gate that `item` holds. Raises `CorruptRecord`."""
        return build(
            bare(item),
            lambda: cls(
                key=key_of(item),
                shards=count(item["shards"]),
                word=text(item["word"]),
            ),
        )
