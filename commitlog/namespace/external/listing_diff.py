"""Comparison of a bound directory with a listing of its prefix.

The order of reads matters. Tombstones are read before rows: if a file is overwritten or renamed in
between, either its tombstone is not known yet, or its new row is, so the file is not taken for hidden.
Rows are read before the store is listed: the listing is at least as new as the rows, and a row that
changes later has another version. The names of the directory are held in memory. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import define, field, frozen

from commitlog.errors import InvalidPath
from commitlog.namespace.external.overlay import NameDiff, Overlay
from commitlog.namespace.model.backing import backing_path, refreshed
from commitlog.namespace.model.binding import Binding
from commitlog.namespace.model.keys import split
from commitlog.namespace.model.records import Entry, Tombstone
from commitlog.stores.api import ObjectInfo

__all__ = ["ListingDiff", "diff_listing"]


@frozen(kw_only=True)
class ListingDiff:
    """The result of comparing a directory with its prefix.

    Attributes:
        began: epoch millisecond before the first read.
        visible: the visible entries, by name.
        diffs: the differences of the table from `visible`. Removals come first.
        hidden: what tombstones hide, by name: the object, or None for a prefix.
        unfit: paths of objects that cannot be files here, and prefixes, with None, that cannot be
            directories: the name is invalid, or something else has it.
        tombstones: all tombstones, by name.
        unneeded: names of tombstones with nothing to hide, not even an object that a row covers.
    """

    began: int
    visible: Mapping[str, Entry]
    diffs: Sequence[NameDiff]
    hidden: Mapping[str, ObjectInfo | None]
    unfit: Mapping[str, ObjectInfo | None]
    tombstones: Mapping[str, Tombstone]
    unneeded: frozenset[str]

    def in_order(self) -> list[Entry]:
        """Return the visible entries, sorted by name."""
        return [self.visible[name] for name in sorted(self.visible)]

    def rows(self) -> list[Entry]:
        """Return the visible entries that are in the table, sorted by name; some may be outdated."""
        return [entry for entry in self.in_order() if entry.is_stored]


def diff_listing(overlay: Overlay, directory: Entry, *, after: str = "") -> ListingDiff:
    """Compare a bound directory with one listing of its prefix.

    Args:
        overlay: has the rows and the store.
        directory: to compare.
        after: compare only names that follow this one.
    """
    assert directory.binding is not None
    began = overlay.now()
    comparison = _Comparison(overlay, directory, directory.binding)
    comparison.read_rows(after)
    unneeded = comparison.list_store(after)
    comparison.update_rows()
    comparison.add_objects()
    comparison.add_prefixes()
    return ListingDiff(
        began=began,
        visible=comparison.visible,
        diffs=comparison.diffs,
        hidden=comparison.hidden,
        unfit=comparison.unfit,
        tombstones=comparison.tombstones,
        unneeded=unneeded,
    )


@define
class _Comparison:
    """The steps of one comparison.

    Attributes:
        overlay, directory, binding: to compare.
        visible, diffs, hidden, unfit, tombstones: as in `ListingDiff`.
        lost: rows at their backing path whose objects have not been listed yet.
        changed: rows at their backing path whose objects have changed.
        objects: listed objects that no row refers to.
        prefixes: names of listed prefixes.
    """

    overlay: Overlay
    directory: Entry
    binding: Binding
    visible: dict[str, Entry] = field(factory=dict)
    diffs: list[NameDiff] = field(factory=list)
    hidden: dict[str, ObjectInfo | None] = field(factory=dict)
    unfit: dict[str, ObjectInfo | None] = field(factory=dict)
    tombstones: dict[str, Tombstone] = field(factory=dict)
    lost: dict[str, Entry] = field(factory=dict)
    changed: list[NameDiff] = field(factory=list)
    objects: dict[str, ObjectInfo] = field(factory=dict)
    prefixes: list[str] = field(factory=list)

    def read_rows(self, after: str) -> None:
        """Read the tombstones, then the rows."""
        if self.directory.is_stored:
            self.tombstones = {each.name: each for each in self.overlay.tree.tombstones(self.directory)}
            for row in self.overlay.tree.entries(self.directory, after=after):
                self.visible[row.name] = row
                if not row.is_directory and self._is_backed(row):
                    self.lost[row.name] = row

    def list_store(self, after: str) -> frozenset[str]:
        """List the store; return the names of tombstones for which the listing has nothing to hide."""
        unneeded = set(self.tombstones)
        for name, info in self.overlay.backing_store.list_directory(self.binding.prefix, after=after):
            if info is None:
                self.prefixes.append(name)
                unneeded.discard(f"{name}/")
                continue
            if name in unneeded and self.tombstones[name].hides(info):
                unneeded.discard(name)
            row = self.lost.pop(name, None)
            if row is not None:
                current = refreshed(row, info)
                if current is not row:
                    self.changed.append(NameDiff(name=name, row=row, visible=current))
            elif _is_name(name):
                self.objects[name] = info
            elif name:  # an empty name is the object that marks the directory itself
                self.unfit[info.path] = info
        return frozenset(unneeded)

    def update_rows(self) -> None:
        """Apply removals and updates to the rows. Removals come first."""
        for name, row in self.lost.items():
            del self.visible[name]
            self.diffs.append(NameDiff(name=name, row=row, visible=None))
        for diff in self.changed:
            assert diff.visible is not None
            self.visible[diff.name] = diff.visible
            self.diffs.append(diff)

    def add_objects(self) -> None:
        """Add objects without a row, unless they are hidden."""
        for name, info in self.objects.items():
            tombstone = self.tombstones.get(name)
            if tombstone is not None and tombstone.hides(info):
                self.hidden[name] = info
            elif name in self.visible:
                self.unfit[info.path] = info
            else:
                self._add(name, self.overlay.unstored_file(self.directory, name, info), tombstone)

    def add_prefixes(self) -> None:
        """Add directories for prefixes without a row, unless they are hidden."""
        for name in self.prefixes:
            below = self.binding.below(name) if _is_name(name) else None
            row = self.visible.get(name)
            if row is not None and row.is_directory and self._is_backed(row):
                continue
            tombstone = self.tombstones.get(f"{name}/")
            if below is not None and tombstone is not None and tombstone.path == below.prefix:
                self.hidden[f"{name}/"] = None
            elif below is None or row is not None:
                self.unfit[f"{self.binding.prefix}{name}/"] = None
            else:
                self._add(name, self.overlay.unstored_directory(self.directory, name, below), tombstone)

    def _add(self, name: str, entry: Entry, tombstone: Tombstone | None) -> None:
        self.visible[name] = entry
        self.diffs.append(NameDiff(name=name, row=None, visible=entry, tombstone=tombstone))

    def _is_backed(self, row: Entry) -> bool:
        return backing_path(self.directory, row) is not None


def _is_name(name: str) -> bool:
    try:
        return split(name) == (name,)
    except InvalidPath:
        return False
