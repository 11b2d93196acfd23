"""The references from records to objects of a store, and the unreferenced objects."""

from __future__ import annotations

import abc
from array import array
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TypeAlias

from attrs import field, frozen

from commitlog.errors import CorruptRecord, FormatTooNew
from commitlog.namespace.fsck.readers import (
    LogReader,
    Scan,
    StoreReader,
    TableReader,
    read_matching,
)
from commitlog.namespace.log.epoch import FencedLog
from commitlog.namespace.model.binding import RESERVED
from commitlog.namespace.model.codec import item_name
from commitlog.namespace.model.keys import Keys, hash_of
from commitlog.namespace.model.records import Entry, Garbage, record_of
from commitlog.namespace.write.content import is_own
from commitlog.stores.api import ObjectInfo
from commitlog.tables.api import Item, UnreadableItem

__all__ = [
    "IN_LOG",
    "KnownReferences",
    "OpenReferences",
    "References",
    "WholeReferences",
    "described_references",
    "find_orphans",
    "find_referenced",
    "may_be_orphan",
    "object_of",
    "referenced_objects",
]

#: The reference of the log to an object.
IN_LOG = "log"

#: Letters of the kinds of records that refer to no object.
_WITHOUT_OBJECTS = frozenset("dgt")

#: Classes of records that refer to objects.
_By: TypeAlias = tuple[type[Entry | Garbage], ...]


def find_orphans(
    table: TableReader,
    store: StoreReader,
    log: LogReader | None,
    *,
    until: float,
    notify: Callable[[int], object],
) -> list[ObjectInfo]:
    """Return the objects of namespaces to which no file and no garbage of any namespace refers (I5).

    Args:
        table: reader of the table; no other table may refer to objects of this store.
        store: reader of the objects.
        log: reader of the log, which may refer to objects too.
        until: epoch seconds; younger objects are left out, since a reference may follow.
        notify: called with the number of listed objects, once for every thousand.

    Raises `CorruptRecord`, or `FormatTooNew`, for an unreadable record that may refer to an object: then
    the unreferenced objects cannot be determined.
    """
    referenced = array("Q", sorted(array("Q", map(hash_of, referenced_objects(table.scan)))))
    left: dict[str, ObjectInfo] = {}
    for number, info in enumerate(store.list(), 1):
        if number % 1000 == 0:
            notify(1000)
        if may_be_orphan(info, until) and not _is_in(referenced, hash_of(info.path)):
            left[info.path] = info
    if left:  # the scan may have missed a record that was moved meanwhile
        for path in find_referenced(left, table, log):
            del left[path]
    return list(left.values())


class References(abc.ABC):
    """Finds the references to objects, for repairs.

    A reference is a file or garbage of any namespace of the table, or a file of the log, committed or
    pending. Both methods raise the errors of `find_orphans`.
    """

    @abc.abstractmethod
    def find(self, paths: Collection[str]) -> frozenset[str]:
        """Return the referenced ones of some objects."""

    @abc.abstractmethod
    def describe(self, paths: Collection[str]) -> dict[str, frozenset[str]]:
        """Return the references to each of some objects.

        They are the place and name of a file, ``x/ID-VERSION`` for garbage that was this version of a
        file, or ``log`` for the log.
        """


#: Opens the references, given the keys of a namespace and its log, if there is one.
OpenReferences: TypeAlias = Callable[[Keys, FencedLog | None], References]


@frozen(kw_only=True)
class WholeReferences(References):
    """The references in a table and a log, read by this process.

    Args:
        table: reader of the table; no other table may refer to the objects.
        log: reader of the log, if there is one.
    """

    table: TableReader
    log: LogReader | None

    def find(self, paths: Collection[str]) -> frozenset[str]:
        """See `References.find`."""
        return find_referenced(paths, self.table, self.log)

    def describe(self, paths: Collection[str]) -> dict[str, frozenset[str]]:
        """See `References.describe`."""
        found: dict[str, set[str]] = {path: set() for path in paths}
        for path, reference in described_references(self.table.scan, paths):
            found[path].add(reference)
        for path in _logged_among(found, self.log):
            found[path].add(IN_LOG)
        return {path: frozenset(names) for path, names in found.items()}


@frozen(kw_only=True)
class KnownReferences(References):
    """References that were found before.

    Args:
        described: the references to each object; None if they are unknown.
        referenced: the referenced objects; None if they are unknown.
    """

    described: Mapping[str, frozenset[str]] | None = field(hash=False)
    referenced: frozenset[str] | None

    def find(self, paths: Collection[str]) -> frozenset[str]:
        """See `References.find`."""
        if self.referenced is None:
            raise CorruptRecord("the references to objects are unknown")
        return self.referenced.intersection(paths)

    def describe(self, paths: Collection[str]) -> dict[str, frozenset[str]]:
        """See `References.describe`."""
        if self.described is None:
            raise CorruptRecord("the references to objects are unknown")
        return {path: self.described.get(path, frozenset()) for path in paths}


def may_be_orphan(info: ObjectInfo, until: float) -> bool:
    """Return whether an object is the content of a namespace, and not younger than `until`."""
    return is_own(info.path) and not info.path.startswith(RESERVED) and info.last_modified <= until


def find_referenced(
    paths: Collection[str], table: TableReader, log: LogReader | None, *, by: _By = (Entry, Garbage)
) -> frozenset[str]:
    """Return the referenced ones of some objects.

    A reference is a file or garbage of any namespace of the table, or a file of the log, committed or
    pending.

    Args:
        paths: paths of the objects.
        table, log: see `find_orphans`.
        by: classes of the table's records that count.

    Raises the same errors as `find_orphans`.
    """
    referenced = {path for path in referenced_objects(table.scan, by) if path in paths}
    return frozenset(referenced.union(_logged_among(paths, log)))


def _logged_among(paths: Collection[str], log: LogReader | None) -> set[str]:
    """Return the objects to which files of the log refer, committed or pending."""
    if log is None:
        return set()
    logged = read_matching(log, lambda item: object_of(item) in paths)
    states = [*logged.states.values(), *(each for change in logged.changes for each in change.states)]
    return {object_of(state.item) for state in states if state.item is not None}.intersection(paths)


def described_references(scan: Scan, paths: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield the objects to which the records of a scan refer, with the references.

    Args:
        scan: scans the table, or a part of it.
        paths: paths of the objects.
    """
    for record in _naming(scan, (Entry, Garbage)):
        if record.data is not None and record.data.path in paths:
            key = f"{record.key.hash} {record.key.range}"
            was = f"x/{record.file}-{record.version}" if isinstance(record, Garbage) else key
            yield record.data.path, was


def object_of(item: Item) -> str:
    """Return the path of a file's object; "" if the item is no file."""
    data = Entry.from_item(item).data if "id" in item else None
    return "" if data is None else data.path


def referenced_objects(scan: Scan, by: _By = (Entry, Garbage)) -> Iterator[str]:
    """Yield the paths of all objects to which the records of a scan refer, of all namespaces.

    Raises the same errors as `find_orphans`.
    """
    return (record.data.path for record in _naming(scan, by) if record.data is not None)


def _naming(scan: Scan, by: _By) -> Iterator[Entry | Garbage]:
    """Yield the records that may refer to objects, of all namespaces of the table."""
    for item in scan(unreadable=_refuse):
        _, kind, *of = f"{item['place']!s}/".split("/")
        if not any(of) or kind in _WITHOUT_OBJECTS:
            continue
        try:
            record = record_of(item)
        except CorruptRecord:
            raise
        except ValueError:
            record = None
        if record is None:
            raise FormatTooNew(
                f"{item_name(item)!r} belongs to an unfinished restore, or was written by a newer"
                " library"
            )
        if isinstance(record, by):
            yield record


def _refuse(found: UnreadableItem) -> None:
    """Raise `CorruptRecord` for an item that may refer to an object."""
    _, kind, *of = f"{found.item['place']!s}/".split("/")
    if any(of) and kind not in _WITHOUT_OBJECTS:
        raise CorruptRecord(found.reason)


def _is_in(numbers: array[int], number: int) -> bool:
    """Return whether a sorted array contains a number."""
    at = bisect_left(numbers, number)
    return at < len(numbers) and numbers[at] == number
