"""The records of a catalog: the names of all namespaces and tables, and a pointer for each table.

A change of names returns new `Names`, or raises an error that says which rule forbids it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TypeAlias, TypeVar

from attrs import evolve, field, frozen

from commitlog._util.frozen_map import FrozenMap, frozen_map
from commitlog.errors import AlreadyExists, DirectoryNotEmpty, NotFound
from commitlog.oplog.codec import Document
from commitlog.oplog.validate import build, count, items, mapping, path, text

__all__ = [
    "NAMES",
    "POINTER",
    "Levels",
    "Names",
    "NamespaceExists",
    "NamespaceMissing",
    "NotEmpty",
    "Pointer",
    "TableEntry",
    "TableExists",
    "TableMissing",
]

V = TypeVar("V")

#: The levels of a namespace, or the levels and the name of a table. Each is a text with any characters.
Levels: TypeAlias = tuple[str, ...]

#: Kinds of records.
NAMES, POINTER = "iceberg-names", "iceberg-pointer"

#: The number of last changes that a record of names keeps, and of last locations that a pointer keeps.
#: A writer whose answer was lost finds its own write among them.
REMEMBERED = 32


class NamespaceMissing(NotFound):
    """There is no such namespace. Nothing was written."""


class TableMissing(NotFound):
    """There is no such table. Nothing was written."""


class NamespaceExists(AlreadyExists):
    """There is such a namespace. Nothing was written."""


class TableExists(AlreadyExists):
    """There is a table of that name. Nothing was written."""


class NotEmpty(DirectoryNotEmpty):
    """The namespace has tables or namespaces. Nothing was written."""


def show(levels: Levels) -> str:
    """Return levels as text for a message."""
    return ".".join(levels)


@frozen(kw_only=True)
class TableEntry:
    """What a name stands for.

    Attributes:
        id: the id of the table in this catalog. It is made with the entry and never used again, so it
            differs from the UUID in the table's metadata, which two registered tables may share.
        metadata_location: location of the table's metadata until its pointer is first written.
    """

    id: str
    metadata_location: str


@frozen(kw_only=True)
class Pointer:
    """The present metadata of a table.

    Attributes:
        table: the id of the table.
        version: the number of times that the pointer was moved.
        metadata_location: location of the present metadata file.
        previous: locations before it, the last one first, up to `REMEMBERED`.
        etag: the etag of the record; None if the table has no record of its pointer yet.
    """

    table: str
    version: int = 0
    metadata_location: str
    previous: tuple[str, ...] = ()
    etag: str | None = field(default=None, eq=False)

    def moved(self, metadata_location: str) -> Pointer:
        """Return the next pointer, to a location that no pointer of the table had before."""
        previous = (self.metadata_location, *self.previous)[:REMEMBERED]
        return evolve(
            self,
            version=self.version + 1,
            metadata_location=metadata_location,
            previous=previous,
            etag=None,
        )

    def shows_move(self, metadata_location: str, since: Pointer) -> bool | None:
        """Return whether the pointer was moved to this location after `since`, an earlier version.

        None if it was moved so often since then that the location may be forgotten.
        """
        if metadata_location in (self.metadata_location, *self.previous):
            return True
        return None if self.version - since.version > REMEMBERED + 1 else False

    def to_document(self) -> Document:
        """Return the record to store."""
        body = {
            "table": self.table,
            "version": self.version,
            "metadata_location": self.metadata_location,
            "previous": list(self.previous),
        }
        return Document(POINTER, body)

    @classmethod
    def from_document(cls, document: Document, etag: str, *, table: str) -> Pointer:
        """Return the pointer in the record of the table with that id. Raises `CorruptRecord`."""
        body = document.body

        def make() -> Pointer:
            if body["table"] != table:
                raise ValueError(f"it is the pointer of table {body['table']!r}")
            return cls(
                table=table,
                version=count(body["version"]),
                metadata_location=text(body["metadata_location"]),
                previous=tuple(text(each) for each in items(body["previous"])),
                etag=etag,
            )

        return build(document, make)


_NO_NAMESPACES: Mapping[Levels, FrozenMap] = MappingProxyType({})
_NO_TABLES: Mapping[Levels, TableEntry] = MappingProxyType({})


@frozen(kw_only=True)
class Names:
    """The namespaces and tables of a catalog, at one version.

    Attributes:
        version: the number of changes.
        changes: ids of the last changes, the last one first, up to `REMEMBERED`.
        namespaces: the properties of each created namespace. A namespace also exists if a namespace or
            a table below it does.
        tables: the entry of each table.
        etag: the etag of the record; None if there is none yet.
    """

    version: int = 0
    changes: tuple[str, ...] = ()
    namespaces: Mapping[Levels, FrozenMap] = field(default=_NO_NAMESPACES, hash=False)
    tables: Mapping[Levels, TableEntry] = field(default=_NO_TABLES, hash=False)
    etag: str | None = field(default=None, eq=False)

    # -- questions

    def has_namespace(self, namespace: Levels) -> bool:
        """Return whether a namespace was created, or contains a namespace or a table."""
        return namespace in self.namespaces or any(self._below(namespace))

    def require_namespace(self, namespace: Levels) -> None:
        """Raise `NamespaceMissing` unless the namespace exists."""
        if not self.has_namespace(namespace):
            raise NamespaceMissing(f"Namespace {show(namespace)} does not exist")

    def table(self, table: Levels) -> TableEntry:
        """Return the entry of a table. Raises `TableMissing`."""
        if table not in self.tables:
            raise TableMissing(f"Table does not exist: {show(table)}")
        return self.tables[table]

    def require_free(self, table: Levels) -> None:
        """Raise `NamespaceMissing` or `TableExists` unless a table of that name can be created."""
        self.require_namespace(table[:-1])
        if table in self.tables:
            raise TableExists(f"Table {show(table)} already exists")

    def properties(self, namespace: Levels) -> Mapping[str, str]:
        """Return the properties of a namespace. Raises `NamespaceMissing`."""
        self.require_namespace(namespace)
        return self.namespaces.get(namespace, FrozenMap())

    def tables_in(self, namespace: Levels) -> list[Levels]:
        """Return the tables of a namespace, sorted. Raises `NamespaceMissing`."""
        self.require_namespace(namespace)
        return sorted(table for table in self.tables if table[:-1] == namespace)

    def namespaces_in(self, namespace: Levels) -> list[Levels]:
        """Return the namespaces one level below another, or all of the top level, sorted.

        Raises `NamespaceMissing`.
        """
        if namespace:
            self.require_namespace(namespace)
        depth = len(namespace) + 1
        everything = (*self.namespaces, *(table[:-1] for table in self.tables))
        below = {
            one[:depth] for one in everything if len(one) >= depth and one[: depth - 1] == namespace
        }
        return sorted(below)

    def _below(self, namespace: Levels) -> Iterator[Levels]:
        depth = len(namespace)
        for one in (*self.namespaces, *self.tables):
            if len(one) > depth and one[:depth] == namespace:
                yield one

    # -- changes

    def create_namespace(self, namespace: Levels, properties: Mapping[str, str]) -> Names:
        """Add a namespace. Raises `NamespaceExists`."""
        if self.has_namespace(namespace):
            raise NamespaceExists(f"Namespace {show(namespace)} already exists")
        return evolve(self, namespaces={**self.namespaces, namespace: frozen_map(properties)})

    def set_properties(self, namespace: Levels, properties: Mapping[str, str]) -> Names:
        """Replace the properties of a namespace. Raises `NamespaceMissing`."""
        self.require_namespace(namespace)
        return evolve(self, namespaces={**self.namespaces, namespace: frozen_map(properties)})

    def drop_namespace(self, namespace: Levels) -> Names:
        """Remove a namespace. Raises `NamespaceMissing` or `NotEmpty`."""
        self.require_namespace(namespace)
        if any(self._below(namespace)):
            raise NotEmpty(f"Namespace {show(namespace)} is not empty: it has tables or namespaces")
        others = {each: its for each, its in self.namespaces.items() if each != namespace}
        return evolve(self, namespaces=others)

    def create_table(self, table: Levels, entry: TableEntry) -> Names:
        """Add a table. Raises `NamespaceMissing` or `TableExists`."""
        self.require_free(table)
        return evolve(self, tables={**self.tables, table: entry})

    def rename_table(self, source: Levels, target: Levels) -> Names:
        """Give a table another name. Raises `TableMissing`, `NamespaceMissing` or `TableExists`."""
        entry = self.table(source)
        self.require_free(target)
        others = {each: its for each, its in self.tables.items() if each != source}
        return evolve(self, tables={**others, target: entry})

    def drop_table(self, table: Levels) -> Names:
        """Remove a table. Raises `TableMissing`."""
        self.table(table)
        return evolve(self, tables={each: its for each, its in self.tables.items() if each != table})

    # -- storage

    def changed(self, change: str) -> Names:
        """Return the names as the result of the change with this id, to be stored."""
        return evolve(
            self, version=self.version + 1, changes=(change, *self.changes)[:REMEMBERED], etag=None
        )

    def shows_change(self, change: str, since: Names) -> bool | None:
        """Return whether the change with this id was made after `since`, an earlier version.

        None if there were so many changes since then that the id may be forgotten.
        """
        if change in self.changes:
            return True
        return None if self.version - since.version > REMEMBERED else False

    def to_document(self) -> Document:
        """Return the record to store."""
        body = {
            "version": self.version,
            "changes": list(self.changes),
            "namespaces": [
                {"levels": list(levels), "properties": dict(properties)}
                for levels, properties in sorted(self.namespaces.items())
            ],
            "tables": [
                {
                    "levels": list(levels),
                    "id": entry.id,
                    "metadata_location": entry.metadata_location,
                }
                for levels, entry in sorted(self.tables.items())
            ],
        }
        return Document(NAMES, body)

    @classmethod
    def from_document(cls, document: Document, etag: str) -> Names:
        """Return the names in a record. Raises `CorruptRecord`."""
        body = document.body

        def make() -> Names:
            tables = _unique(
                (_levels(one["levels"], at_least=2), _entry(one))
                for one in map(mapping, items(body["tables"]))
            )
            if len({entry.id for entry in tables.values()}) < len(tables):
                raise ValueError("two tables have the same id")
            return cls(
                version=count(body["version"]),
                changes=tuple(text(each) for each in items(body["changes"])),
                namespaces=_unique(
                    (_levels(one["levels"]), frozen_map(_texts(one["properties"])))
                    for one in map(mapping, items(body["namespaces"]))
                ),
                tables=tables,
                etag=etag,
            )

        return build(document, make)


def _entry(one: Mapping[str, object]) -> TableEntry:
    id = path(one["id"])
    if "/" in id:
        raise ValueError(f"{id!r} is not the id of a table")
    return TableEntry(id=id, metadata_location=text(one["metadata_location"]))


def _unique(named: Iterable[tuple[Levels, V]]) -> dict[Levels, V]:
    found: dict[Levels, V] = {}
    for levels, value in named:
        if levels in found:
            raise ValueError(f"{show(levels)!r} is there twice")
        found[levels] = value
    return found


def _levels(value: object, *, at_least: int = 1) -> Levels:
    levels = tuple(text(each) for each in items(value))
    if len(levels) < at_least:
        raise ValueError(f"a name has {len(levels)} levels, not {at_least} or more")
    return levels


def _texts(value: object) -> dict[str, str]:
    return {text(name): text(each) for name, each in mapping(value).items()}
