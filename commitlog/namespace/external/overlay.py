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

from attrs import frozen

from commitlog.clock import Clock
from commitlog.namespace.external.store import BackingStore
from commitlog.namespace.model.backing import backing_path, refreshed
from commitlog.namespace.model.binding import Binding
from commitlog.namespace.model.data import Data, UnlinkableData, modified_of
from commitlog.namespace.model.keys import shards_of
from commitlog.namespace.model.records import Entry, Shards, Tombstone
from commitlog.namespace.tree import Tree
from commitlog.stores.api import ObjectInfo

__all__ = ["NameDiff", "Overlay"]


@frozen(kw_only=True)
class NameDiff:
    """The difference between table and store for one name.

    Attributes:
        name: the name.
        row: the entry in the table.
        visible: the visible entry: the row itself, or an entry that is not in the table in this form.
        tombstone: a tombstone of that name. If `visible` is an entry, the tombstone does not hide it; if
            `visible` is None, the tombstone hides the store's object.
    """

    name: str
    row: Entry | None
    visible: Entry | None
    tombstone: Tombstone | None = None

    @property
    def is_unchanged(self) -> bool:
        """Whether the table agrees with the store."""
        return self.visible is self.row


@frozen(kw_only=True)
class Overlay:
    """Combines rows and objects in the bound directories of one namespace. Thread-safe.

    Args:
        tree: reads the table.
        backing_store: the store.
        clock: gives the age of synchronisations.
    """

    tree: Tree
    backing_store: BackingStore
    clock: Clock

    def needs_store(self, directory: Entry) -> bool:
        """Return whether the store has to be asked for the entries of a directory."""
        return directory.binding is not None and not directory.binding.is_fresh(self.now())

    def row(self, directory: Entry, name: str) -> Entry | None:
        """Return the row for a name."""
        return self.tree.find(directory, name) if directory.is_stored else None

    def compare(self, directory: Entry, name: str, row: Entry | None) -> NameDiff:
        """Ask the store about one name: a HEAD and, if there is no object, a listing of one object.

        A missing or hidden file may have been overwritten since its row was read, and have another
        object. So the row is read again before the name is reported as missing.
        """
        diff = self._compare(directory, name, row)
        if diff.visible is None and (row is not None or diff.tombstone is not None):
            current = self.row(directory, name)
            if current != row:
                return self._compare(directory, name, current)
        return diff

    def _compare(self, directory: Entry, name: str, row: Entry | None) -> NameDiff:
        binding = directory.binding
        assert binding is not None
        if row is not None and backing_path(directory, row) is None:
            return NameDiff(name=name, row=row, visible=row)
        if row is not None and row.is_directory:
            return NameDiff(name=name, row=row, visible=row)
        hiding: Tombstone | None = None
        info = self.backing_store.head(binding.path_of(name))
        if info is not None:
            if row is not None:
                return NameDiff(name=name, row=row, visible=refreshed(row, info))
            tombstone = self._tombstone(directory, name)
            if tombstone is None or not tombstone.hides(info):
                visible = self.unstored_file(directory, name, info)
                return NameDiff(name=name, row=None, visible=visible, tombstone=tombstone)
            hiding = tombstone
        below = binding.below(name)
        if below is not None and self.backing_store.has_any(below.prefix):
            tombstone = self._tombstone(directory, f"{name}/")
            if tombstone is None or tombstone.path != below.prefix:
                visible = self.unstored_directory(directory, name, below)
                return NameDiff(name=name, row=row, visible=visible, tombstone=tombstone)
            hiding = tombstone
        return NameDiff(name=name, row=row, visible=None, tombstone=hiding)

    def _tombstone(self, directory: Entry, name: str) -> Tombstone | None:
        return self.tree.tombstone(directory, name) if directory.is_stored else None

    def unstored_file(self, directory: Entry, name: str, info: ObjectInfo) -> Entry:
        """Return an entry for an object without a row."""
        return self._unstored_file(directory, name, info, Data.of(info))

    def unlinkable_file(self, directory: Entry, name: str, info: ObjectInfo) -> Entry:
        """Return an entry for an object whose path is not valid, so that it can only be listed."""
        return self._unstored_file(directory, name, info, UnlinkableData.of(info))

    def unstored_directory(self, directory: Entry, name: str, binding: Binding | None) -> Entry:
        """Return an entry for a prefix without a row."""
        return self._unstored(directory, name, self.now(), binding=binding)

    def _unstored_file(self, directory: Entry, name: str, info: ObjectInfo, data: Data) -> Entry:
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
            key=self.tree.keys.entry(directory.id, shards_of(name, shards.now, shards.first)[0], name),
            id="",
            version=0,
            change_id="",
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
