"""The visible tree of a namespace with bound directories, computed from its records and the store.

This is a simple second implementation of docs/namespace.md, to compare with the library: for each name,
what the rows have, what the store has, and what tombstones hide.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from typing import TypeAlias

from attrs import define, field, frozen

from commitlog.namespace.fsck.readers import ScannedRecords
from commitlog.namespace.model.binding import Binding
from commitlog.namespace.model.keys import ROOT
from commitlog.namespace.model.records import Entry, Tombstone
from commitlog.stores.api import ObjectInfo
from support.namespace import Model

Names: TypeAlias = tuple[str, ...]

#: The id of a directory, and a name in it. The name of a directory ends with a slash.
Position: TypeAlias = tuple[str, str]


class Stale(bytes):
    """The content of a file that cannot be read, because its object is gone or replaced."""


def is_covered(names: Names, files: Collection[Names]) -> bool:
    """Return whether one of these files has this name, or that of a directory above it."""
    return any(names[:length] in files for length in range(1, len(names) + 1))


@frozen
class State:
    """The records of a namespace and the objects of its store at one moment.

    Attributes:
        rows: the entries of each directory, by the directory's id.
        tombstones: the tombstones of each directory, by its id and their names.
        objects: the objects of other programs, by path.
        bodies: the content of all current and former objects, by path and etag.
    """

    rows: Mapping[str, Mapping[str, Entry]]
    tombstones: Mapping[str, Mapping[str, Tombstone]]
    objects: Mapping[str, ObjectInfo]
    bodies: Mapping[tuple[str, str], bytes]

    @classmethod
    def of(
        cls,
        snapshot: ScannedRecords,
        objects: Mapping[str, ObjectInfo],
        bodies: Mapping[tuple[str, str], bytes],
    ) -> State:
        """Return the state from a scan of the table and the objects of the store."""
        rows: dict[str, dict[str, Entry]] = {}
        tombstones: dict[str, dict[str, Tombstone]] = {}
        for entry in snapshot.entries.values():
            rows.setdefault(_directory(entry.key.hash), {})[entry.name] = entry
        for tombstone in snapshot.tombstones.values():
            tombstones.setdefault(_directory(tombstone.key.hash), {})[tombstone.name] = tombstone
        return cls(rows, tombstones, objects, bodies)

    @cached_property
    def recorded(self) -> View:
        """The tree of the rows."""
        return View.of(self, lambda binding: False)

    @cached_property
    def current(self) -> View:
        """The tree if every lookup reads the store."""
        return View.of(self, lambda binding: True)

    def body(self, entry: Entry) -> bytes:
        """Return the content of a file."""
        assert entry.data is not None
        body = self.bodies.get((entry.data.path, entry.data.etag), b"unknown content")
        now = self.objects.get(entry.data.path)
        changed = not entry.data.own and (now is None or now.etag != entry.data.etag)
        return Stale(body) if changed else body


def _directory(place: str) -> str:
    return place.split("/")[2]


@define
class View:
    """A visible tree.

    Attributes:
        state: the records and objects.
        asks: whether lookups of a directory with such a binding read the store; else they use its rows.
        keeps: whether the row of a bound file counts, even if its object is gone or replaced.
        unseen: objects that are ignored if no row has them.
        tree: the tree.
        places: id and binding of each directory; the id is empty if the directory has no row.
        alone: the position of each entry that has no row, by its path.
        has_asked: whether lookups of some directory read the store.
    """

    state: State
    asks: Callable[[Binding], bool]
    keeps: bool = False
    unseen: Collection[str] = ()
    tree: Model = field(factory=Model)
    places: dict[Names, tuple[str, Binding | None]] = field(factory=dict)
    alone: dict[Names, Position] = field(factory=dict)
    has_asked: bool = False

    @classmethod
    def of(
        cls,
        state: State,
        asks: Callable[[Binding], bool],
        *,
        keeps: bool = False,
        unseen: Collection[str] = (),
    ) -> View:
        """Compute the tree."""
        view = cls(state, asks, keeps, unseen)
        view._add_directory((), ROOT, None)
        return view

    def parents(self) -> dict[str, str]:
        """Return the id of the parent of each directory that has a row, by its id."""
        above = {names: id for names, (id, _) in self.places.items()}
        return {id: above[names[:-1]] for names, id in above.items() if id and names}

    def _add_directory(self, names: Names, id: str, binding: Binding | None) -> None:
        self.tree.nodes[names] = None
        self.places[names] = (id, binding)
        asking = binding is not None and self.asks(binding)
        for name, row in self.state.rows.get(id, {}).items():
            if row.is_directory:
                self._add_directory((*names, name), row.id, row.binding)
                continue
            assert row.data is not None
            home = binding is not None and row.data.path == binding.path_of(name) and not row.data.own
            body: bytes | None = self.state.body(row)
            if home and asking and not self.keeps:
                info = self.state.objects.get(row.data.path)
                body = None if info is None else self.state.bodies[info.path, info.etag]
            if body is not None:
                self.tree.nodes[(*names, name)] = body
        if asking:
            assert binding is not None
            self.has_asked = True
            self._add_others(names, id, binding)

    def _add_others(self, names: Names, id: str, binding: Binding) -> None:
        """Add entries without a row. Of an object and a prefix of the same name, the object counts."""
        tombstones = self.state.tombstones.get(id, {})
        below = [
            (path[len(binding.prefix) :].split("/"), info)
            for path, info in sorted(self.state.objects.items())
            if path.startswith(binding.prefix) and path not in self.unseen
        ]
        for (name, *rest), info in below:
            tombstone = tombstones.get(name)
            hidden = tombstone is not None and tombstone.hides(info)
            if not rest and not hidden and (*names, name) not in self.tree.nodes:
                self.tree.nodes[(*names, name)] = self.state.bodies[info.path, info.etag]
                self.alone[(*names, name)] = (id, name)
        for (name, *rest), _ in below:
            inner = binding.below(name)
            assert inner is not None
            tombstone = tombstones.get(f"{name}/")
            hidden = tombstone is not None and tombstone.path == inner.prefix
            if rest and not hidden and (*names, name) not in self.tree.nodes:
                self.alone[(*names, name)] = (id, f"{name}/")
                self._add_directory((*names, name), "", inner)
