"""Which objects of a store something names, and which nothing does.

Imports the ground floor, its siblings and the ports.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator
from typing import TypeAlias

from commitlog.errors import CorruptRecord, FormatTooNew
from commitlog.namespace.binding import RESERVED
from commitlog.namespace.content import is_own
from commitlog.namespace.items import place_of
from commitlog.namespace.keys import number_of
from commitlog.namespace.leftovers import Garbage
from commitlog.namespace.readers import LogReader, StoreReader, TableReader, logged_as
from commitlog.namespace.records import Entry
from commitlog.namespace.snapshot import record_of
from commitlog.stores.api import ObjectInfo
from commitlog.tables.api import Item, UnreadableItem

__all__ = ["named_among", "namers", "unnamed_objects"]

#: Letters of the kinds of records that name no object.
_NAMELESS = frozenset("dgt")

#: Records that name objects.
_By: TypeAlias = tuple[type[Entry | Garbage], ...]


def unnamed_objects(
    table: TableReader,
    store: StoreReader,
    log: LogReader | None,
    *,
    until: float,
    tell: Callable[[int], object],
) -> list[ObjectInfo]:
    """Return the objects of namespaces that no file and no garbage of any namespace names (I5).

    Args:
        table: has the names, and nobody else has any of this store.
        store: has the objects.
        log: what else may name them.
        until: epoch second; younger objects may be about to be named.
        tell: told of every thousand objects that were listed.

    Raises `CorruptRecord`, or `FormatTooNew`, for a record that may name an object, but cannot be read:
    then nobody can tell of which objects it is true that nothing names them.
    """
    named = array("Q", sorted(array("Q", map(number_of, _named_objects(table)))))
    left: dict[str, ObjectInfo] = {}
    for number, info in enumerate(store.list(), 1):
        if number % 1000 == 0:
            tell(1000)
        if (
            is_own(info.path)
            and not info.path.startswith(RESERVED)
            and info.last_modified <= until
            and not _is_in(named, number_of(info.path))
        ):
            left[info.path] = info
    if left:  # what was moved while it was scanned may have been missed
        for path in named_among(left, table, log):
            del left[path]
    return list(left.values())


def named_among(
    paths: Collection[str], table: TableReader, log: LogReader | None, *, by: _By = (Entry, Garbage)
) -> frozenset[str]:
    """Return which of some objects are named by files or garbage, of all namespaces of the table; or by
    files as the log has them, or will if what is pending has happened.

    Args:
        paths: those of the objects.
        table, log: as of `unnamed_objects`.
        by: which records of the table count.

    Raises as `unnamed_objects` does.
    """
    named = {path for path in _named_objects(table, by) if path in paths}
    return frozenset(named.union(_logged_among(paths, log)))


def _logged_among(paths: Collection[str], log: LogReader | None) -> set[str]:
    """Return which of some objects files have, or will have if pending changes happened, by the log."""
    if log is None:
        return set()
    logged = logged_as(log, lambda item: _object_of(item) in paths)
    states = [*logged.states.values(), *(each for change in logged.changes for each in change.states)]
    return {_object_of(state.item) for state in states if state.item is not None}.intersection(paths)


def namers(
    paths: Collection[str], table: TableReader, log: LogReader | None
) -> dict[str, frozenset[str]]:
    """Return what names each of some objects: the place and name of each file, ``x/ID-VERSION`` for the
    garbage that was this version of a file, and ``log`` for the log.

    Args:
        paths: those of the objects.
        table, log: as of `unnamed_objects`.

    Raises as `unnamed_objects` does.
    """
    found: dict[str, set[str]] = {path: set() for path in paths}
    for record in _naming(table, (Entry, Garbage)):
        if record.data is not None and record.data.path in found:
            key = f"{record.key.hash} {record.key.range}"
            was = f"x/{record.file}-{record.version}" if isinstance(record, Garbage) else key
            found[record.data.path].add(was)
    for path in _logged_among(found, log):
        found[path].add("log")
    return {path: frozenset(names) for path, names in found.items()}


def _object_of(item: Item) -> str:
    """Return the object of a file; "" if it is none."""
    data = Entry.from_item(item).data if "id" in item else None
    return "" if data is None else data.path


def _named_objects(table: TableReader, by: _By = (Entry, Garbage)) -> Iterator[str]:
    """Yield the paths of all objects that records name, of all namespaces of the table."""
    return (record.data.path for record in _naming(table, by) if record.data is not None)


def _naming(table: TableReader, by: _By) -> Iterator[Entry | Garbage]:
    """Yield the records that may name objects, of all namespaces of the table."""
    for item in table.scan(unreadable=_refuse):
        _, kind, *of = f"{item['place']!s}/".split("/")
        if not any(of) or kind in _NAMELESS:
            continue
        try:
            record = record_of(item)
        except CorruptRecord:
            raise
        except ValueError:
            record = None
        if record is None:
            raise FormatTooNew(
                f"{place_of(item)!r} is of a restore that has not ended, or of a newer library"
            )
        if isinstance(record, by):
            yield record


def _refuse(found: UnreadableItem) -> None:
    """Raise `CorruptRecord` for an item that may name an object."""
    _, kind, *of = f"{found.item['place']!s}/".split("/")
    if any(of) and kind not in _NAMELESS:
        raise CorruptRecord(found.reason)


def _is_in(numbers: array[int], number: int) -> bool:
    """Tell whether a number is among sorted ones."""
    at = bisect_left(numbers, number)
    return at < len(numbers) and numbers[at] == number
