"""The records of one namespace in memory, as a scan found them."""

from __future__ import annotations

from collections import Counter
from typing import TypeAlias

from attrs import define, field

from commitlog.errors import CorruptRecord, FormatTooNew
from commitlog.namespace.fsck.readers import TableReader
from commitlog.namespace.model.codec import key_of
from commitlog.namespace.model.garbage import Garbage, Tombstone
from commitlog.namespace.model.keys import NAMESPACES, is_in_place, read_place
from commitlog.namespace.model.records import Directory, Entry, Guard
from commitlog.tables.api import Item, Key, UnreadableItem

__all__ = ["Record", "Snapshot", "read_kind", "record_of"]

#: Any record of a namespace, except the metadata record.
Record: TypeAlias = Entry | Directory | Guard | Garbage | Tombstone


@define
class Snapshot:
    """The records of one namespace, as a scan found them, not all at the same time.

    Attributes:
        entries: entries by key.
        inside: number of entries of each directory, by id; includes entries that are not in `entries`.
        directories: directory records, by id.
        guards: guard records, by id and shard.
        garbage, tombstones: records by key.
        metadata: the item of the metadata record.
        corrupt: unreadable items, with the reason.
        strange: items of an unknown kind.
    """

    entries: dict[Key, Entry] = field(factory=dict)
    inside: Counter[str] = field(factory=Counter)
    directories: dict[str, Directory] = field(factory=dict)
    guards: dict[tuple[str, int], Guard] = field(factory=dict)
    garbage: dict[Key, Garbage] = field(factory=dict)
    tombstones: dict[Key, Tombstone] = field(factory=dict)
    metadata: Item | None = None
    corrupt: dict[Key, tuple[Item, str]] = field(factory=dict)
    strange: dict[Key, Item] = field(factory=dict)

    @staticmethod
    def _decode(item: Item) -> Record | None:
        """Return `record_of` the item. The simulator's judge decodes each item once."""
        return record_of(item)

    @classmethod
    def of(cls, table: TableReader, namespace: str) -> Snapshot:
        """Return all records that a scan of the table finds; takes some kilobytes for each file."""
        snapshot = cls()
        for item in table.scan(unreadable=lambda found: snapshot.refuse(found, namespace)):
            record = snapshot.read(item, namespace)
            if record is not None:
                snapshot.keep(record)
        return snapshot

    def refuse(self, found: UnreadableItem, namespace: str) -> None:
        """Keep an unreadable item of the table, if it belongs to this namespace."""
        key = key_of(found.item)
        if key.hash.startswith(f"{namespace}/"):
            self.corrupt[key] = found.item, found.reason

    def read(self, item: Item, namespace: str) -> Record | None:
        """Return the record of an item, or None; keep an item without a record, if it belongs to the
        namespace.
        """
        key = Key(str(item["place"]), str(item["name"]))
        if key.hash == NAMESPACES:
            if key.range == namespace:
                self.metadata = item
            return None
        if not key.hash.startswith(f"{namespace}/"):
            return None
        try:
            record = self._decode(item) if is_in_place(key) else None
        except (CorruptRecord, FormatTooNew) as error:
            self.corrupt[key] = item, str(error)
            return None
        except ValueError:
            record = None
        if record is None:
            self.strange[key] = item
            return None
        if isinstance(record, Entry):
            self.inside[read_place(key.hash).of] += 1
        return record

    def keep(self, record: Record) -> None:
        """Add a record of the namespace."""
        place = read_place(record.key.hash)
        match record:
            case Entry():
                self.entries[record.key] = record
            case Directory():
                self.directories[place.of] = record
            case Guard():
                self.guards[place.of, place.shard] = record
            case Garbage():
                self.garbage[record.key] = record
            case Tombstone():
                self.tombstones[record.key] = record


def read_kind(key: Key) -> str | None:
    """Return the letter of the kind of record that is under a key; None if there are no such keys."""
    try:
        return read_place(key.hash).kind
    except ValueError:
        return None


def record_of(item: Item) -> Record | None:
    """Return the record that an item of a namespace is; None if it is of no kind that is known.

    Raises `ValueError` if there are no such keys, `CorruptRecord`, `FormatTooNew`.
    """
    match read_place(str(item["place"])).kind:
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
