"""What is to be seen of a namespace with bound directories, from its records and the store alone.

This is docs/namespace.md over again, as plainly as can be, to hold the library against it: for each name
what the rows say, what the store has, and what tombstones hide.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from typing import TypeAlias

from attrs import define, field, frozen

from commitlog.namespace.fsck.readers import Snapshot
from commitlog.namespace.model.binding import Binding
from commitlog.namespace.model.keys import ROOT
from commitlog.namespace.model.records import Entry, Tombstone
from commitlog.stores.api import ObjectInfo
from support.namespace import Model

Names: TypeAlias = tuple[str, ...]

#: A directory's id, and a name in it; that of a directory ends in a slash.
Spot: TypeAlias = tuple[str, str]


class Stale(bytes):
    """Content that a file is to have, and that nobody can read: its object is another, or gone."""


def is_covered(names: Names, files: Collection[Names]) -> bool:
    """Tell whether one of these files has this name, or that of a directory above it."""
    return any(names[:length] in files for length in range(1, len(names) + 1))


@frozen
class Sight:
    """The records of a namespace and what its store has, at one moment.

    Attributes:
        rows: what each directory has, by its id.
        tombstones: those of each, by its id and their names.
        objects: what others have stored, by path.
        bodies: what any object is, or was, by its path and etag.
    """

    rows: Mapping[str, Mapping[str, Entry]]
    tombstones: Mapping[str, Mapping[str, Tombstone]]
    objects: Mapping[str, ObjectInfo]
    bodies: Mapping[tuple[str, str], bytes]

    @classmethod
    def of(
        cls,
        snapshot: Snapshot,
        objects: Mapping[str, ObjectInfo],
        bodies: Mapping[tuple[str, str], bytes],
    ) -> Sight:
        """Return what a scan has found, beside what the store has."""
        rows: dict[str, dict[str, Entry]] = {}
        tombstones: dict[str, dict[str, Tombstone]] = {}
        for entry in snapshot.entries.values():
            rows.setdefault(_directory(entry.key.hash), {})[entry.name] = entry
        for tombstone in snapshot.tombstones.values():
            tombstones.setdefault(_directory(tombstone.key.hash), {})[tombstone.name] = tombstone
        return cls(rows, tombstones, objects, bodies)

    @cached_property
    def rowed(self) -> View:
        """What the rows say."""
        return View.of(self, lambda binding: False)

    @cached_property
    def asked(self) -> View:
        """What is so, if every look asks the store."""
        return View.of(self, lambda binding: True)

    def body(self, entry: Entry) -> bytes:
        """Return the content that a file is to have."""
        assert entry.data is not None
        body = self.bodies.get((entry.data.path, entry.data.etag), b"gone before anybody looked")
        now = self.objects.get(entry.data.path)
        changed = not entry.data.own and (now is None or now.etag != entry.data.etag)
        return Stale(body) if changed else body


def _directory(place: str) -> str:
    return place.split("/")[2]


@define
class View:
    """What is to be seen.

    Attributes:
        sight: of what.
        asks: whether the store is asked about a directory that is bound so; else rows are believed.
        keeps: whether a file at home is as its row says, though its object is gone or another.
        unseen: objects that are passed over where no row has them.
        tree: all there is.
        places: id and binding of each directory; the id is "" of one that no row is.
        alone: what no row has, by its path: where it is seen.
        has_asked: whether there is a directory about which the store is asked.
    """

    sight: Sight
    asks: Callable[[Binding], bool]
    keeps: bool = False
    unseen: Collection[str] = ()
    tree: Model = field(factory=Model)
    places: dict[Names, tuple[str, Binding | None]] = field(factory=dict)
    alone: dict[Names, Spot] = field(factory=dict)
    has_asked: bool = False

    @classmethod
    def of(
        cls,
        sight: Sight,
        asks: Callable[[Binding], bool],
        *,
        keeps: bool = False,
        unseen: Collection[str] = (),
    ) -> View:
        """Look at it all."""
        view = cls(sight, asks, keeps, unseen)
        view._add_directory((), ROOT, None)
        return view

    def parents(self) -> dict[str, str]:
        """Return for the id of each directory that a row is the id of the one that has it."""
        above = {names: id for names, (id, _) in self.places.items()}
        return {id: above[names[:-1]] for names, id in above.items() if id and names}

    def _add_directory(self, names: Names, id: str, binding: Binding | None) -> None:
        self.tree.nodes[names] = None
        self.places[names] = (id, binding)
        asking = binding is not None and self.asks(binding)
        for name, row in self.sight.rows.get(id, {}).items():
            if row.is_directory:
                self._add_directory((*names, name), row.id, row.binding)
                continue
            assert row.data is not None
            home = binding is not None and row.data.path == binding.path_of(name) and not row.data.own
            body: bytes | None = self.sight.body(row)
            if home and asking and not self.keeps:
                info = self.sight.objects.get(row.data.path)
                body = None if info is None else self.sight.bodies[info.path, info.etag]
            if body is not None:
                self.tree.nodes[(*names, name)] = body
        if asking:
            assert binding is not None
            self.has_asked = True
            self._add_others(names, id, binding)

    def _add_others(self, names: Names, id: str, binding: Binding) -> None:
        """See what no row has. Of an object and a prefix of the same name, the object counts."""
        tombstones = self.sight.tombstones.get(id, {})
        below = [
            (path[len(binding.prefix) :].split("/"), info)
            for path, info in sorted(self.sight.objects.items())
            if path.startswith(binding.prefix) and path not in self.unseen
        ]
        for (name, *rest), info in below:
            tombstone = tombstones.get(name)
            hidden = tombstone is not None and tombstone.hides(info)
            if not rest and not hidden and (*names, name) not in self.tree.nodes:
                self.tree.nodes[(*names, name)] = self.sight.bodies[info.path, info.etag]
                self.alone[(*names, name)] = (id, name)
        for (name, *rest), _ in below:
            inner = binding.below(name)
            assert inner is not None
            tombstone = tombstones.get(f"{name}/")
            hidden = tombstone is not None and tombstone.path == inner.prefix
            if rest and not hidden and (*names, name) not in self.tree.nodes:
                self.alone[(*names, name)] = (id, f"{name}/")
                self._add_directory((*names, name), "", inner)
