"""Records of namespaces and tables, below ``_catalog/`` in the store.

``_catalog/a/b/_namespace.json`` is the namespace ``a.b``; ``_catalog/a/b/t.json`` its table ``t``, with
the location of the table's directory. A table that is created again gets another directory, so a late
write of the earlier table cannot reach it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from attrs import field, frozen

from commitlog._util.frozen_map import FrozenMap, frozen_map
from commitlog._util.retry import Backoff
from commitlog.clock import Clock, SystemClock
from commitlog.commit import ConditionalStore
from commitlog.errors import AlreadyExists, ConfigurationError, DirectoryNotEmpty
from commitlog.oplog.codec import Document, encode
from commitlog.oplog.torn_reads import read_document
from commitlog.oplog.validate import build, mapping, path, text
from commitlog.paths import check_path, join

__all__ = ["LanceCatalog", "TableRecord"]

T = TypeVar("T")

_ROOT: Final = "_catalog"
_NAMESPACE: Final = "_namespace.json"
_SUFFIX: Final = ".json"
_NAMESPACE_KIND: Final = "lance-namespace"
_TABLE_KIND: Final = "lance-table"
#: Names that LanceDB takes, too, and that no store and no URL has to encode.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
#: Digits of the random part of a table's directory.
_ID_DIGITS: Final = 12
_EMPTY: Mapping[str, str] = FrozenMap()


@frozen(kw_only=True)
class TableRecord:
    """A table, as the catalog has it.

    Attributes:
        location: path of the table's directory in the store.
        properties: properties that its creator gave.
        etag: etag of the record.
    """

    location: str
    properties: Mapping[str, str] = field(default=_EMPTY, converter=frozen_map)
    etag: str = field(default="", eq=False)

    @classmethod
    def from_document(cls, document: Document, etag: str) -> TableRecord:
        """Return the table in a record. Raises `CorruptRecord`."""
        body = document.body
        return build(
            document,
            lambda: cls(
                location=_outside_catalog(path(body["location"])),
                properties=_properties(body),
                etag=etag,
            ),
        )


class LanceCatalog:
    """The namespaces and tables of a store. Nothing is cached. Thread-safe.

    Args:
        store: the store of the records and tables.
        new_id: makes unique ids, for the directories of tables.
        clock: slept on between two reads of a damaged record.
        backoff: the retry policy of such reads; see `read_document`.

    The id of a namespace or table is the list of its names, from the outermost namespace; the root
    namespace has the empty id, and always exists.

    Guarantees: of all callers that declare or register one table, one succeeds. A table record is
    removed only if it is the one that was read.

    Non-guarantees: a namespace that is dropped while a table is declared in it may be gone, and the
    table there; declare the namespace again. Removing a table's files is not one step. Nothing prevents
    that one directory is registered as two tables: then dropping one removes the files of both.

    All methods raise `ConfigurationError` for an id that is not valid, and the errors of
    `ConditionalStore`.
    """

    def __init__(
        self,
        store: ConditionalStore,
        *,
        new_id: Callable[[], str],
        clock: Clock | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        self._store = store
        self._new_id = new_id
        self._clock = SystemClock() if clock is None else clock
        self._backoff = Backoff() if backoff is None else backoff

    # -- namespaces --------------------------------------------------------------------------------

    def create_namespace(self, names: Sequence[str], properties: Mapping[str, str]) -> None:
        """Create a namespace. Raises `AlreadyExists`, and `NotFound` if its parent does not exist."""
        if not names:
            raise AlreadyExists("the root namespace always exists")
        self._check_namespace(names[:-1])
        body = {"properties": dict(properties)}
        self._store.put_if_absent(
            _namespace_path(names), encode(Document(_NAMESPACE_KIND, body)), content_type=_JSON
        )

    def namespace(self, names: Sequence[str]) -> Mapping[str, str]:
        """Return the properties of a namespace.

        Raises `NotFound`, `CorruptRecord`, `FormatTooNew`.
        """
        if not names:
            return _EMPTY

        def parse(document: Document, etag: str) -> Mapping[str, str]:
            return build(document, lambda: _properties(document.body))

        return self._read(_namespace_path(names), _NAMESPACE_KIND, parse)

    def drop_namespace(self, names: Sequence[str]) -> None:
        """Remove an empty namespace.

        Raises:
            NotFound: there is no such namespace.
            DirectoryNotEmpty: it has tables or namespaces. Nothing was removed.
            PreconditionFailed: it was dropped and created again meanwhile. Nothing was removed.
            OutcomeUnknown: the namespace may be gone.
        """
        if not names:
            raise ConfigurationError("the root namespace cannot be dropped")
        path = _namespace_path(names)
        info = self._store.head(path)
        page = self._store.list_page(f"{_directory(names)}/", limit=2)
        if any(found.path != path for found in page.objects):
            raise DirectoryNotEmpty(
                f"namespace {_show(names)} has tables or namespaces: drop them first"
            )
        self._store.delete_if_match(path, etag=info.etag)

    def children(self, names: Sequence[str]) -> tuple[list[str], list[str]]:
        """Return the sorted names of the namespaces and of the tables in a namespace.

        Raises `NotFound` if there is no such namespace.
        """
        self._check_namespace(names)
        prefix = f"{_directory(names)}/"
        namespaces: list[str] = []
        tables: list[str] = []
        for page in self._store.list_pages(prefix, delimiter="/"):
            namespaces += [found[len(prefix) : -1] for found in page.prefixes]
            files = [info.path.removeprefix(prefix) for info in page.objects]
            tables += [file.removesuffix(_SUFFIX) for file in files if file != _NAMESPACE]
        return sorted(namespaces), sorted(tables)

    def _read(self, path: str, kind: str, parse: Callable[[Document, str], T]) -> T:
        # A dropped name may be used again while its record is read.
        return read_document(self._store, path, kind, parse, clock=self._clock, backoff=self._backoff)

    def _check_namespace(self, names: Sequence[str]) -> None:
        if names:
            self._store.head(_namespace_path(names))

    # -- tables ------------------------------------------------------------------------------------

    def declare(
        self,
        names: Sequence[str],
        *,
        location: str | None = None,
        properties: Mapping[str, str] = _EMPTY,
    ) -> TableRecord:
        """Add a table.

        Args:
            names: id of the table.
            location: path of an existing directory of a table; None for a new one.
            properties: properties to keep with it. No secrets: all readers of the store see them.

        Raises:
            AlreadyExists: there is such a table.
            NotFound: its namespace does not exist.
            ConfigurationError, InvalidPath: no table can be at `location`.
            OutcomeUnknown: the table may be declared.
        """
        path = _table_path(names)
        self._check_namespace(names[:-1])
        if location is None:
            inner = "/".join(names)
            location = f"{inner}-{self._new_id()[:_ID_DIGITS]}.lance"
        check_path(location)
        try:
            _outside_catalog(location)
        except ValueError as error:
            raise ConfigurationError(str(error)) from error
        body = {"location": location, "properties": dict(properties)}
        result = self._store.put_if_absent(path, encode(Document(_TABLE_KIND, body)), content_type=_JSON)
        return TableRecord(location=location, properties=properties, etag=result.etag)

    def table(self, names: Sequence[str]) -> TableRecord:
        """Return the record of a table. Raises `NotFound`, `CorruptRecord`, `FormatTooNew`."""
        return self._read(_table_path(names), _TABLE_KIND, TableRecord.from_document)

    def remove(self, names: Sequence[str]) -> TableRecord:
        """Remove the record of a table, and return it. Its files stay.

        Raises:
            NotFound: there is no such table.
            PreconditionFailed: it was dropped and created again meanwhile. Nothing was removed.
            OutcomeUnknown: the record may be gone.
        """
        record = self.table(names)
        self._store.delete_if_match(_table_path(names), etag=record.etag)
        return record

    def delete_files(self, record: TableRecord) -> None:
        """Remove the files of a table whose record was removed.

        Raises `CommitError` if some may remain: remove the directory by other means.
        """
        paths = (info.path for info in self._store.list(f"{record.location}/"))
        for error in self._store.delete_many(paths).values():
            raise error


_JSON: Final = "application/json"


def _check(names: Sequence[str]) -> Sequence[str]:
    for name in names:
        if not isinstance(name, str) or not _NAME.fullmatch(name) or name.endswith(_SUFFIX):
            raise ConfigurationError(
                f"{name!r} cannot name a table or namespace: it needs 1 to 100 letters, digits, '_', '-'"
                " or '.', the first a letter or digit, and not '.json' at its end"
            )
    return names


def _directory(names: Sequence[str]) -> str:
    return "/".join((_ROOT, *_check(names)))


def _namespace_path(names: Sequence[str]) -> str:
    return join(_directory(names), _NAMESPACE)


def _table_path(names: Sequence[str]) -> str:
    if not names:
        raise ConfigurationError("the id of a table is a list of names, and not empty")
    _check(names)
    return join(_directory(names[:-1]), f"{names[-1]}{_SUFFIX}")


def _properties(body: Mapping[str, object]) -> Mapping[str, str]:
    return {text(name): text(value) for name, value in mapping(body["properties"]).items()}


def _outside_catalog(location: str) -> str:
    if location.split("/", 1)[0] == _ROOT:
        raise ValueError(f"a table cannot be in {_ROOT!r}, which has the catalog")
    return location


def _show(names: Sequence[str]) -> str:
    return ".".join(names)
