"""Records of one namespace in memory, as a scan has found them.

Imports its siblings, and the `Table` port.
"""

from __future__ import annotations

from collections import Counter
from typing import TypeAlias

from attrs import define, field

from commitlog.errors import CorruptRecord, FormatTooNew
from commitlog.namespace.items import key_of
from commitlog.namespace.keys import MARKERS, is_in_place, read_place
from commitlog.namespace.leftovers import Garbage, Tombstone
from commitlog.namespace.readers import TableReader
from commitlog.namespace.records import Directory, Entry, Gate
from commitlog.tables.api import Item, Key, UnreadableItem

__all__ = ["Record", "Snapshot", "read_kind", "record_of"]

#: What a namespace has under one key, other than its marker.
Record: TypeAlias = Entry | Directory | Gate | Garbage | Tombstone


@define
class Snapshot:
    """Records of one namespace, as a scan has found them, some later than others.

    Attributes:
        entries: by key.
        inside: how many entries each directory has, by id, also of those that are not in `entries`.
        directories: directory records, by id.
        gates: by id and shard.
        garbage, tombstones: by key.
        marker: as it is.
        corrupt: what cannot be read, with the reason.
        strange: what is of no kind that is known.
    """

    entries: dict[Key, Entry] = field(factory=dict)
    inside: Counter[str] = field(factory=Counter)
    directories: dict[str, Directory] = field(factory=dict)
    gates: dict[tuple[str, int], Gate] = field(factory=dict)
    garbage: dict[Key, Garbage] = field(factory=dict)
    tombstones: dict[Key, Tombstone] = field(factory=dict)
    marker: Item | None = None
    corrupt: dict[Key, tuple[Item, str]] = field(factory=dict)
    strange: dict[Key, Item] = field(factory=dict)

    @staticmethod
    def _decode(item: Item) -> Record | None:
        """Return `record_of` the item. The simulator's judge decodes each item once."""
        return record_of(item)

    @classmethod
    def of(cls, table: TableReader, namespace: str) -> Snapshot:
        """Return all that a scan of the table finds; it takes some kilobytes for each file."""
        snapshot = cls()
        for item in table.scan(unreadable=lambda found: snapshot.refuse(found, namespace)):
            record = snapshot.read(item, namespace)
            if record is not None:
                snapshot.keep(record)
        return snapshot

    def refuse(self, found: UnreadableItem, namespace: str) -> None:
        """Keep an item of the table that cannot be read, if it is of this namespace."""
        key = key_of(found.item)
        if key.hash.startswith(f"{namespace}/"):
            self.corrupt[key] = found.item, found.reason

    def read(self, item: Item, namespace: str) -> Record | None:
        """Return the record that an item is; keep what is none, if it is of this namespace."""
        key = Key(str(item["place"]), str(item["name"]))
        if key.hash == MARKERS:
            if key.range == namespace:
                self.marker = item
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
        """Take in a record of the namespace."""
        place = read_place(record.key.hash)
        match record:
            case Entry():
                self.entries[record.key] = record
            case Directory():
                self.directories[place.of] = record
            case Gate():
                self.gates[place.of, place.shard] = record
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
            return Gate.from_item(item)
        case "x":
            return Garbage.from_item(item)
        case "t":
            return Tombstone.from_item(item)
    return None
