"""What a bound directory has: its rows together with what is in the store, less what tombstones hide.

The rules, for each name:

* What the namespace has made of its own accord is as its row says, whatever is in the store: content of
  its own, a directory, a file that was renamed to this name.
* A file that is an object *at home*, under the directory's prefix and its own name, is as the object is
  now; without the object there is no such file.
* An object that no row has is a file, and a prefix with any object below it is a directory, unless
  there is a tombstone that hides it. Of an object and a prefix of the same name, the object counts.

Nothing is written here. Imports the ground floor, its siblings and the ports.
"""

from __future__ import annotations

from attrs import evolve, frozen

from commitlog.clock import Clock
from commitlog.namespace.binding import Binding
from commitlog.namespace.data import Data, OddData, modified_of
from commitlog.namespace.keys import Keys, places_of
from commitlog.namespace.leftovers import Tombstone
from commitlog.namespace.outside import Outside
from commitlog.namespace.records import Entry, Shards
from commitlog.namespace.tree import Tree
from commitlog.stores.api import ObjectInfo

__all__ = ["Joint", "News", "home_of", "left_by", "renewed"]


def home_of(directory: Entry, entry: Entry) -> str | None:
    """Return the object, or prefix, that is this entry of a directory; None if it is something else."""
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
    """Return the tombstone that is left where `directory` has `entry` no more; None if none is needed.

    Args:
        keys: those of the namespace.
        directory, entry: as they were.
        word: that of the call.
        now: epoch millisecond.
    """
    home = home_of(directory, entry)
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
class News:
    """What the store says of a name, beside what the table says.

    Attributes:
        name: which.
        row: what the table has.
        seen: what is to be seen: the row itself, or something that is not in the table so.
        tombstone: one of that name that is there. Where something is seen it hides nothing of it; where
            nothing is, it hides what the store has.
    """

    name: str
    row: Entry | None
    seen: Entry | None
    tombstone: Tombstone | None = None

    @property
    def is_none(self) -> bool:
        """Whether the table has it so already."""
        return self.seen is self.row


@frozen(kw_only=True)
class Joint:
    """Compares bound directories of one namespace with the store. Thread-safe.

    Args:
        rows: what the table has.
        outside: the store.
        clock: tells how old a binding is.
    """

    rows: Tree
    outside: Outside
    clock: Clock

    def asks(self, directory: Entry) -> bool:
        """Tell whether the store has to be asked what a directory has."""
        return directory.binding is not None and not directory.binding.is_fresh(self.now())

    def row(self, directory: Entry, name: str) -> Entry | None:
        """Return what the table has of a name."""
        return self.rows.find(directory, name) if directory.is_stored else None

    def look(self, directory: Entry, name: str, row: Entry | None) -> News:
        """Ask the store about one name: a HEAD and, if there is no object, a listing of one object.

        What was there, or is hidden, may have been overwritten since the row was read, and have another
        one: that is read again before the name is said to be nothing.
        """
        news = self._look(directory, name, row)
        if news.seen is None and (row is not None or news.tombstone is not None):
            now = self.row(directory, name)
            if now != row:
                return self._look(directory, name, now)
        return news

    def _look(self, directory: Entry, name: str, row: Entry | None) -> News:
        binding = directory.binding
        assert binding is not None
        if row is not None and home_of(directory, row) is None:
            return News(name=name, row=row, seen=row)
        if row is not None and row.is_directory:
            return News(name=name, row=row, seen=row)
        hider: Tombstone | None = None
        info = self.outside.at(binding.path_of(name))
        if info is not None:
            if row is not None:
                return News(name=name, row=row, seen=renewed(row, info))
            tombstone = self._tombstone(directory, name)
            if tombstone is None or not tombstone.hides(info):
                seen = self.file_of(directory, name, info)
                return News(name=name, row=None, seen=seen, tombstone=tombstone)
            hider = tombstone
        below = binding.below(name)
        if below is not None and self.outside.has_any(below.prefix):
            tombstone = self._tombstone(directory, f"{name}/")
            if tombstone is None or tombstone.path != below.prefix:
                seen = self.directory_of(directory, name, below)
                return News(name=name, row=row, seen=seen, tombstone=tombstone)
            hider = tombstone
        return News(name=name, row=row, seen=None, tombstone=hider)

    def _tombstone(self, directory: Entry, name: str) -> Tombstone | None:
        return self.rows.tombstone(directory, name) if directory.is_stored else None

    def file_of(self, directory: Entry, name: str, info: ObjectInfo) -> Entry:
        """Return an entry for an object that the table does not have."""
        return self._file_of(directory, name, info, Data.of(info))

    def odd_of(self, directory: Entry, name: str, info: ObjectInfo) -> Entry:
        """Return what tells of an object that can be no file, whatever its path."""
        return self._file_of(directory, name, info, OddData.of(info))

    def directory_of(self, directory: Entry, name: str, binding: Binding | None) -> Entry:
        """Return an entry for a prefix that the table does not have."""
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
        """Return the epoch millisecond."""
        return int(self.clock.epoch() * 1000)


def renewed(row: Entry, info: ObjectInfo) -> Entry:
    """Return a row as its object is now; the row itself if it is so."""
    assert row.data is not None
    if row.data.is_still(info):
        return row
    return evolve(row, data=Data.of(info), modified=modified_of(info))
