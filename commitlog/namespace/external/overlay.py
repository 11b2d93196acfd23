"""The entries of a bound directory: rows and objects, without those that tombstones hide.

The rules, for each name:

* An entry that the namespace made itself is as its row says, whatever the store has: a file with content
  of the namespace's own, a directory, a file that was renamed to this name.
* A file at its *backing path*, which is the directory's prefix and the file's name, is as the object is
  now. Without the object there is no file.
* An object without a row is a file, and a prefix with at least one object below it is a directory,
  unless a tombstone hides it. If an object and a prefix have the same name, the object counts.

Nothing is written here.
"""

from __future__ import annotations

from attrs import evolve, frozen

from commitlog.clock import Clock
from commitlog.namespace.external.store import BackingStore
from commitlog.namespace.model.binding import Binding
from commitlog.namespace.model.data import Data, OddData, modified_of
from commitlog.namespace.model.garbage import Tombstone
from commitlog.namespace.model.keys import Keys, places_of
from commitlog.namespace.model.records import Entry, Shards
from commitlog.namespace.read.tree import Tree
from commitlog.stores.api import ObjectInfo

__all__ = ["NameDiff", "Overlay", "backing_path", "left_by", "renewed"]


def backing_path(directory: Entry, entry: Entry) -> str | None:
    """Return the path or prefix in the store that backs an entry of a bound directory, or None."""
    if directory.binding is None:
        return None
    if entry.data is not None:
        home = directory.binding.path_of(entry.name)
        return home if entry.data.path == home and not entry.data.own else None
    below = directory.binding.below(entry.name)
    if entry.binding is None or below is None or entry.binding.prefix != below.prefix:
        return None
    return below.prefix


def left_by(keys: Keys, directory: Entry, entry: Entry, *, word: str, now: int) -> Tombstone | None:
    """Return the tombstone to write when `entry` leaves `directory`; None if none is needed.

    Args:
        keys: of the namespace.
        directory, entry: as they were.
        word: id of the change.
        now: epoch millisecond.
    """
    home = backing_path(directory, entry)
    if home is None:
        return None
    name = entry.name if entry.data is not None else f"{entry.name}/"
    return Tombstone(
        key=keys.tombstone(directory.id, name),
        word=word,
        path=home,
        etag=None if entry.data is None else entry.data.etag,
        stored=None if entry.data is None else entry.data.stored,
        left=now,
    )


@frozen(kw_only=True)
class NameDiff:
    """The difference between table and store for one name.

    Attributes:
        name: the name.
        row: the entry in the table.
        seen: the visible entry: the row itself, or an entry that is not in the table in this form.
        tombstone: a tombstone of that name. If `seen` is an entry, the tombstone does not hide it; if
            `seen` is None, the tombstone hides the store's object.
    """

    name: str
    row: Entry | None
    seen: Entry | None
    tombstone: Tombstone | None = None

    @property
    def is_unchanged(self) -> bool:
        """Whether the table agrees with the store."""
        return self.seen is self.row


@frozen(kw_only=True)
class Overlay:
    """Combines rows and objects in the bound directories of one namespace. Thread-safe.

    Args:
        rows: reads the table.
        outside: the store.
        clock: gives the age of synchronisations.
    """

    rows: Tree
    outside: BackingStore
    clock: Clock

    def asks(self, directory: Entry) -> bool:
        """Return whether the store has to be asked for the entries of a directory."""
        return directory.binding is not None and not directory.binding.is_fresh(self.now())

    def row(self, directory: Entry, name: str) -> Entry | None:
        """Return the row for a name."""
        return self.rows.find(directory, name) if directory.is_stored else None

    def look(self, directory: Entry, name: str, row: Entry | None) -> NameDiff:
        """Ask the store about one name: a HEAD and, if there is no object, a listing of one object.

        A missing or hidden file may have been overwritten since its row was read, and have another
        object. So the row is read again before the name is reported as missing.
        """
        news = self._look(directory, name, row)
        if news.seen is None and (row is not None or news.tombstone is not None):
            now = self.row(directory, name)
            if now != row:
                return self._look(directory, name, now)
        return news

    def _look(self, directory: Entry, name: str, row: Entry | None) -> NameDiff:
        binding = directory.binding
        assert binding is not None
        if row is not None and backing_path(directory, row) is None:
            return NameDiff(name=name, row=row, seen=row)
        if row is not None and row.is_directory:
            return NameDiff(name=name, row=row, seen=row)
        hider: Tombstone | None = None
        info = self.outside.at(binding.path_of(name))
        if info is not None:
            if row is not None:
                return NameDiff(name=name, row=row, seen=renewed(row, info))
            tombstone = self._tombstone(directory, name)
            if tombstone is None or not tombstone.hides(info):
                seen = self.file_of(directory, name, info)
                return NameDiff(name=name, row=None, seen=seen, tombstone=tombstone)
            hider = tombstone
        below = binding.below(name)
        if below is not None and self.outside.has_any(below.prefix):
            tombstone = self._tombstone(directory, f"{name}/")
            if tombstone is None or tombstone.path != below.prefix:
                seen = self.directory_of(directory, name, below)
                return NameDiff(name=name, row=row, seen=seen, tombstone=tombstone)
            hider = tombstone
        return NameDiff(name=name, row=row, seen=None, tombstone=hider)

    def _tombstone(self, directory: Entry, name: str) -> Tombstone | None:
        return self.rows.tombstone(directory, name) if directory.is_stored else None

    def file_of(self, directory: Entry, name: str, info: ObjectInfo) -> Entry:
        """Return an entry for an object without a row."""
        return self._file_of(directory, name, info, Data.of(info))

    def odd_of(self, directory: Entry, name: str, info: ObjectInfo) -> Entry:
        """Return an entry for an object whose path is not valid, so that it can only be listed."""
        return self._file_of(directory, name, info, OddData.of(info))

    def directory_of(self, directory: Entry, name: str, binding: Binding | None) -> Entry:
        """Return an entry for a prefix without a row."""
        return self._unstored(directory, name, self.now(), binding=binding)

    def _file_of(self, directory: Entry, name: str, info: ObjectInfo, data: Data) -> Entry:
        return self._unstored(directory, name, modified_of(info), data=data)

    def _unstored(
        self,
        directory: Entry,
        name: str,
        modified: int,
        *,
        data: Data | None = None,
        binding: Binding | None = None,
    ) -> Entry:
        shards = directory.shards
        return Entry(
            key=self.rows.keys.entry(directory.id, places_of(name, shards.now, shards.first)[0], name),
            id="",
            version=0,
            word="",
            created=modified,
            modified=modified,
            updated=modified,
            data=data,
            shards=Shards(),
            binding=binding,
        )

    def now(self) -> int:
        """Return the present epoch millisecond."""
        return int(self.clock.epoch() * 1000)


def renewed(row: Entry, info: ObjectInfo) -> Entry:
    """Return a row updated to the object `info`; the same row if the object has not changed."""
    assert row.data is not None
    if row.data.is_still(info):
        return row
    return evolve(row, data=Data.of(info), modified=modified_of(info))
