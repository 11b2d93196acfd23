"""A bound directory compared with a listing of its prefix: what is to be seen, and what of it is new.

The tombstones are read before the rows. So what is overwritten or renamed meanwhile is not taken for
hidden: either its tombstone is not known yet, or the new row is. The rows are read before the store is
listed. So a row that changes after that is not that version any more, and what is listed is at least as
new as the row. Holds the names of the directory in memory. Nothing is written. Imports the ground floor,
its siblings and the ports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import define, field, frozen

from commitlog.errors import InvalidPath
from commitlog.namespace.binding import Binding
from commitlog.namespace.joint import Joint, News, home_of, renewed
from commitlog.namespace.keys import split
from commitlog.namespace.leftovers import Tombstone
from commitlog.namespace.records import Entry
from commitlog.stores.api import ObjectInfo

__all__ = ["Level", "level_of"]


@frozen(kw_only=True)
class Level:
    """What a directory has, at one moment.

    Attributes:
        began: epoch millisecond before which nothing was looked at.
        seen: what is to be seen, by name.
        news: what of that is not in the table so. What is gone comes first.
        hidden: by name what tombstones hide: the object, or None for a prefix.
        unfit: paths of objects, and prefixes with None, that cannot be files or directories here: there
            is something else of that name, or nothing can be.
        tombstones: by name those that were there.
        idle: names of those that hid nothing, not even from behind a row.
    """

    began: int
    seen: Mapping[str, Entry]
    news: Sequence[News]
    hidden: Mapping[str, ObjectInfo | None]
    unfit: Mapping[str, ObjectInfo | None]
    tombstones: Mapping[str, Tombstone]
    idle: frozenset[str]

    def in_order(self) -> list[Entry]:
        """Return what is to be seen, by name."""
        return [self.seen[name] for name in sorted(self.seen)]

    def rows(self) -> list[Entry]:
        """Return, by name, what of that the table has, be it as it was."""
        return [entry for entry in self.in_order() if entry.is_stored]


def level_of(joint: Joint, directory: Entry, *, after: str = "") -> Level:
    """Compare a bound directory with one listing of its prefix.

    Args:
        joint: has the rows and the store.
        directory: which.
        after: only names that come after this one.
    """
    assert directory.binding is not None
    began = joint.now()
    comparison = _Comparison(joint, directory, directory.binding)
    comparison.read(after)
    idle = comparison.listen(after)
    comparison.keep()
    comparison.add_objects()
    comparison.add_prefixes()
    return Level(
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
    """One, step by step.

    Attributes:
        joint, directory, binding: what is compared.
        seen, news, hidden, unfit, tombstones: as of `Level`.
        lost: rows of objects at home that were not listed yet.
        renewed: rows of objects at home that are other objects now.
        objects: those that are in no row.
        prefixes: names.
    """

    joint: Joint
    directory: Entry
    binding: Binding
    seen: dict[str, Entry] = field(factory=dict)
    news: list[News] = field(factory=list)
    hidden: dict[str, ObjectInfo | None] = field(factory=dict)
    unfit: dict[str, ObjectInfo | None] = field(factory=dict)
    tombstones: dict[str, Tombstone] = field(factory=dict)
    lost: dict[str, Entry] = field(factory=dict)
    renewed: list[News] = field(factory=list)
    objects: dict[str, ObjectInfo] = field(factory=dict)
    prefixes: list[str] = field(factory=list)

    def read(self, after: str) -> None:
        """Read the tombstones, and then the rows."""
        if self.directory.is_stored:
            self.tombstones = {each.name: each for each in self.joint.rows.tombstones(self.directory)}
            for row in self.joint.rows.entries(self.directory, after=after):
                self.seen[row.name] = row
                if not row.is_directory and self._is_home(row):
                    self.lost[row.name] = row

    def listen(self, after: str) -> frozenset[str]:
        """Take the listing of the store; return which tombstones have nothing in it to hide."""
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
                    self.renewed.append(News(name=name, row=row, seen=now))
            elif _is_name(name):
                self.objects[name] = info
            elif name:  # the marker of the directory itself has none
                self.unfit[info.path] = info
        return frozenset(idle)

    def keep(self) -> None:
        """See what rows have, as it is now. What is gone comes first."""
        for name, row in self.lost.items():
            del self.seen[name]
            self.news.append(News(name=name, row=row, seen=None))
        for news in self.renewed:
            assert news.seen is not None
            self.seen[news.name] = news.seen
            self.news.append(news)

    def add_objects(self) -> None:
        """See objects that no row has."""
        for name, info in self.objects.items():
            tombstone = self.tombstones.get(name)
            if tombstone is not None and tombstone.hides(info):
                self.hidden[name] = info
            elif name in self.seen:
                self.unfit[info.path] = info
            else:
                self._add(name, self.joint.file_of(self.directory, name, info), tombstone)

    def add_prefixes(self) -> None:
        """See directories that no row is."""
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
        self.news.append(News(name=name, row=None, seen=entry, tombstone=tombstone))

    def _is_home(self, row: Entry) -> bool:
        return home_of(self.directory, row) is not None


def _is_name(name: str) -> bool:
    try:
        return split(name) == (name,)
    except InvalidPath:
        return False
