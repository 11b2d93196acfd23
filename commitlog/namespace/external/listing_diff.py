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
from commitlog.namespace.external.overlay import NameDiff, Overlay, backing_path, renewed
from commitlog.namespace.model.binding import Binding
from commitlog.namespace.model.garbage import Tombstone
from commitlog.namespace.model.keys import split
from commitlog.namespace.model.records import Entry
from commitlog.stores.api import ObjectInfo

__all__ = ["ListingDiff", "listing_diff"]


@frozen(kw_only=True)
class ListingDiff:
    """The result of comparing a directory with its prefix.

    Attributes:
        began: epoch millisecond before the first read.
        seen: the visible entries, by name.
        news: the differences of the table from `seen`. Removals come first.
        hidden: what tombstones hide, by name: the object, or None for a prefix.
        unfit: paths of objects that cannot be files here, and prefixes, with None, that cannot be
            directories: the name is invalid, or something else has it.
        tombstones: all tombstones, by name.
        idle: names of tombstones with nothing to hide, not even an object that a row covers.
    """

    began: int
    seen: Mapping[str, Entry]
    news: Sequence[NameDiff]
    hidden: Mapping[str, ObjectInfo | None]
    unfit: Mapping[str, ObjectInfo | None]
    tombstones: Mapping[str, Tombstone]
    idle: frozenset[str]

    def in_order(self) -> list[Entry]:
        """Return the visible entries, sorted by name."""
        return [self.seen[name] for name in sorted(self.seen)]

    def rows(self) -> list[Entry]:
        """Return the visible entries that are in the table, sorted by name; some may be outdated."""
        return [entry for entry in self.in_order() if entry.is_stored]


def listing_diff(joint: Overlay, directory: Entry, *, after: str = "") -> ListingDiff:
    """Compare a bound directory with one listing of its prefix.

    Args:
        joint: has the rows and the store.
        directory: to compare.
        after: compare only names that follow this one.
    """
    assert directory.binding is not None
    began = joint.now()
    comparison = _Comparison(joint, directory, directory.binding)
    comparison.read(after)
    idle = comparison.listen(after)
    comparison.keep()
    comparison.add_objects()
    comparison.add_prefixes()
    return ListingDiff(
        began=began,
        seen=comparison.seen,
        news=comparison.news,
        hidden=comparison.hidden,
        unfit=comparison.unfit,
        tombstones=comparison.tombstones,
        idle=idle,
    )


@define
class _Comparison:
    """The steps of one comparison.

    Attributes:
        joint, directory, binding: to compare.
        seen, news, hidden, unfit, tombstones: as in `ListingDiff`.
        lost: rows at their backing path whose objects have not been listed yet.
        renewed: rows at their backing path whose objects have changed.
        objects: listed objects that no row refers to.
        prefixes: names of listed prefixes.
    """

    joint: Overlay
    directory: Entry
    binding: Binding
    seen: dict[str, Entry] = field(factory=dict)
    news: list[NameDiff] = field(factory=list)
    hidden: dict[str, ObjectInfo | None] = field(factory=dict)
    unfit: dict[str, ObjectInfo | None] = field(factory=dict)
    tombstones: dict[str, Tombstone] = field(factory=dict)
    lost: dict[str, Entry] = field(factory=dict)
    renewed: list[NameDiff] = field(factory=list)
    objects: dict[str, ObjectInfo] = field(factory=dict)
    prefixes: list[str] = field(factory=list)

    def read(self, after: str) -> None:
        """Read the tombstones, then the rows."""
        if self.directory.is_stored:
            self.tombstones = {each.name: each for each in self.joint.rows.tombstones(self.directory)}
            for row in self.joint.rows.entries(self.directory, after=after):
                self.seen[row.name] = row
                if not row.is_directory and self._is_home(row):
                    self.lost[row.name] = row

    def listen(self, after: str) -> frozenset[str]:
        """List the store; return the names of tombstones for which the listing has nothing to hide."""
        idle = set(self.tombstones)
        for name, info in self.joint.outside.level(self.binding.prefix, after=after):
            if info is None:
                self.prefixes.append(name)
                idle.discard(f"{name}/")
                continue
            if name in idle and self.tombstones[name].hides(info):
                idle.discard(name)
            row = self.lost.pop(name, None)
            if row is not None:
                now = renewed(row, info)
                if now is not row:
                    self.renewed.append(NameDiff(name=name, row=row, seen=now))
            elif _is_name(name):
                self.objects[name] = info
            elif name:  # an empty name is the object that marks the directory itself
                self.unfit[info.path] = info
        return frozenset(idle)

    def keep(self) -> None:
        """Apply removals and updates to the rows. Removals come first."""
        for name, row in self.lost.items():
            del self.seen[name]
            self.news.append(NameDiff(name=name, row=row, seen=None))
        for news in self.renewed:
            assert news.seen is not None
            self.seen[news.name] = news.seen
            self.news.append(news)

    def add_objects(self) -> None:
        """Add objects without a row, unless they are hidden."""
        for name, info in self.objects.items():
            tombstone = self.tombstones.get(name)
            if tombstone is not None and tombstone.hides(info):
                self.hidden[name] = info
            elif name in self.seen:
                self.unfit[info.path] = info
            else:
                self._add(name, self.joint.file_of(self.directory, name, info), tombstone)

    def add_prefixes(self) -> None:
        """Add directories for prefixes without a row, unless they are hidden."""
        for name in self.prefixes:
            below = self.binding.below(name) if _is_name(name) else None
            row = self.seen.get(name)
            if row is not None and row.is_directory and self._is_home(row):
                continue
            tombstone = self.tombstones.get(f"{name}/")
            if below is not None and tombstone is not None and tombstone.path == below.prefix:
                self.hidden[f"{name}/"] = None
            elif below is None or row is not None:
                self.unfit[f"{self.binding.prefix}{name}/"] = None
            else:
                self._add(name, self.joint.directory_of(self.directory, name, below), tombstone)

    def _add(self, name: str, entry: Entry, tombstone: Tombstone | None) -> None:
        self.seen[name] = entry
        self.news.append(NameDiff(name=name, row=None, seen=entry, tombstone=tombstone))

    def _is_home(self, row: Entry) -> bool:
        return backing_path(self.directory, row) is not None


def _is_name(name: str) -> bool:
    try:
        return split(name) == (name,)
    except InvalidPath:
        return False
