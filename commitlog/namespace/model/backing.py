"""The objects that back the entries of bound directories.

The *backing path* of a file in a bound directory is the directory's prefix and the file's name. If the
file has the object there, and other programs own it, the object decides what the file is.
"""

from __future__ import annotations

from attrs import evolve

from commitlog.namespace.model.data import Data, modified_of
from commitlog.namespace.model.keys import Keys
from commitlog.namespace.model.records import Entry, Tombstone
from commitlog.stores.api import ObjectInfo

__all__ = ["backing_path", "is_external", "refreshed", "tombstone_for"]


def backing_path(directory: Entry, entry: Entry) -> str | None:
    """Return the path or prefix in the store that backs an entry of a bound directory, or None."""
    if directory.binding is None:
        return None
    if entry.data is not None:
        path = directory.binding.path_of(entry.name)
        return path if entry.data.path == path and not entry.data.own else None
    below = directory.binding.below(entry.name)
    if entry.binding is None or below is None or entry.binding.prefix != below.prefix:
        return None
    return below.prefix


def is_external(directory: Entry | None, entry: Entry) -> bool:
    """Return whether other programs may change the object of a file, at its backing path."""
    return directory is not None and backing_path(directory, entry) is not None


def tombstone_for(
    keys: Keys, directory: Entry, entry: Entry, *, change_id: str, now: int
) -> Tombstone | None:
    """Return the tombstone to write when `entry` leaves `directory`; None if none is needed.

    Args:
        keys: of the namespace.
        directory, entry: as they were.
        change_id: id of the change.
        now: epoch millisecond.
    """
    path = backing_path(directory, entry)
    if path is None:
        return None
    name = entry.name if entry.data is not None else f"{entry.name}/"
    return Tombstone(
        key=keys.tombstone(directory.id, name),
        change_id=change_id,
        path=path,
        etag=None if entry.data is None else entry.data.etag,
        stored=None if entry.data is None else entry.data.stored,
        written=now,
    )


def refreshed(row: Entry, info: ObjectInfo) -> Entry:
    """Return a row updated to the object `info`; the same row if the object has not changed."""
    assert row.data is not None
    if row.data.matches(info):
        return row
    return evolve(row, data=Data.of(info), modified=modified_of(info))
