"""Records of one namespace in memory, and readers of table, store and log that cannot write.

What looks for mistakes must not make any: it is given nothing but functions that read. Imports the
ground floor, the operation log, its siblings and the ports.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from typing import TypeAlias, TypeVar

from attrs import define, field, frozen

from commitlog.errors import CorruptRecord, FormatTooNew, NotFound
from commitlog.namespace.base import Bases, merged
from commitlog.namespace.items import place_of
from commitlog.namespace.keys import MARKERS, read_place
from commitlog.namespace.leftovers import Garbage, Tombstone
from commitlog.namespace.logged import LoggedChange, State, fold, parsed
from commitlog.namespace.problems import Finding
from commitlog.namespace.records import Directory, Entry, Gate
from commitlog.oplog import Decision, Operation, OperationLog
from commitlog.stores.api import ObjectInfo, ObjectStore, Observation
from commitlog.tables.api import Item, Key, Pending, Table

__all__ = [
    "LogReader",
    "LogSnapshot",
    "Record",
    "Snapshot",
    "StoreReader",
    "TableReader",
    "is_still",
    "logged_as",
    "named_among",
    "named_objects",
    "record_of",
    "states_of",
    "steadily",
]

T = TypeVar("T")

#: Letters of the kinds of records that name no object.
_NAMELESS = frozenset("dgt")

#: What a namespace has under one key, other than its marker.
Record: TypeAlias = Entry | Directory | Gate | Garbage | Tombstone


@frozen(kw_only=True)
class TableReader:
    """What reads a table, and nothing else of it."""

    url: str
    get: Callable[[Key], Item | None]
    scan: Callable[[], Iterator[Item]]

    @classmethod
    def of(cls, table: Table) -> TableReader:
        """Return what reads `table`."""
        return cls(url=table.url, get=table.get, scan=table.scan)


@frozen(kw_only=True)
class StoreReader:
    """What looks at objects of a store, and nothing else of it."""

    url: str
    begin_head: Callable[[str], Pending[Observation]]
    list: Callable[[], Iterator[ObjectInfo]]

    @classmethod
    def of(cls, store: ObjectStore) -> StoreReader:
        """Return what looks at the objects of `store`."""
        return cls(url=store.url, begin_head=store.begin_head, list=store.list)


@frozen(kw_only=True)
class LogSnapshot:
    """What a log says.

    Attributes:
        states: the newest of each file and directory that was asked for, by id.
        tombstones: the same of tombstones, by what the state is of.
        marker: what it has of the marker, if that was.
        pending: what is not decided.
        changes: the same, as changes.
    """

    states: dict[str, State] = field(factory=dict)
    tombstones: dict[str, State] = field(factory=dict)
    marker: Item | None = None
    pending: tuple[Operation, ...] = ()
    changes: tuple[LoggedChange, ...] = ()

    def is_touched(self, id: str) -> bool:
        """Tell whether something of a file or directory is pending."""
        return any(id == each for change in self.changes for each, _ in change.made | change.seen)


@frozen(kw_only=True)
class LogReader:
    """What reads an operation log with its base, and nothing else of it."""

    pending: Callable[[], Iterator[Operation]]
    history: Callable[[], Iterator[Operation]]
    base: Callable[[], Iterator[State]]

    @classmethod
    def of(cls, log: OperationLog) -> LogReader:
        """Return what reads `log`."""
        bases = Bases(log, words=str)
        return cls(pending=log.pending, history=log.history, base=lambda: bases.states(bases.newest()))

    def read(self, only: Collection[str] | None = None) -> LogSnapshot:
        """Return what the log says. Whatever was done before that is in it, or pending.

        Args:
            only: of what, as `State.of` has it; by default all, which takes kilobytes for each file.
        """
        return steadily(lambda: self._read(only))

    def _read(self, only: Collection[str] | None) -> LogSnapshot:
        # In this order: what is decided meanwhile is seen as pending, or as decided; what is compacted
        # meanwhile is seen as decided, or in the base.
        pending = {each.id: each for each in self.pending()}
        changed: dict[str, State] = {}
        for operation in self.history():
            pending.pop(operation.id, None)
            if operation.decision is Decision.COMMITTED:
                fold(
                    (each for each in parsed(operation).states if only is None or each.of in only),
                    changed,
                )
        states: dict[str, State] = {}
        tombstones: dict[str, State] = {}
        marker: Item | None = None
        before = (state for state in self.base() if only is None or state.of in only)
        for state in merged(before, changed):
            kind, _, id = state.of.partition("/")
            if kind == "e":
                states[id] = state
            elif kind == "t":
                tombstones[state.of] = state
            elif kind == "m":
                marker = state.item
        return LogSnapshot(
            states=states,
            tombstones=tombstones,
            marker=marker,
            pending=tuple(pending.values()),
            changes=tuple(map(parsed, pending.values())),
        )


def steadily(read: Callable[[], T]) -> T:
    """Return what `read` returns, which reads the base of a log, and may find that a newer one holds."""
    for _ in range(3):
        try:
            return read()
        except NotFound:
            continue
    return read()


def states_of(log: LogReader) -> Iterator[State]:
    """Yield all that a log says of files, directories and more, the older beside the newer."""
    for operation in log.history():
        if operation.decision is Decision.COMMITTED:
            yield from parsed(operation).states
    yield from log.base()


def is_still(table: TableReader, finding: Finding) -> bool:
    """Tell whether the records that a finding is based on are still as they were."""
    for item in finding.records:
        if not _same(table.get(Key(str(item["place"]), str(item["name"]))), item):
            return False
    return all(table.get(key) is None for key in finding.missing)


def _same(found: Item | None, item: Item) -> bool:
    if found is None:
        return False
    try:
        record, now = record_of(item), record_of(found)
    except (ValueError, CorruptRecord, FormatTooNew):
        return found == item
    if isinstance(record, Gate) and isinstance(now, Gate):  # whoever adds something writes a gate
        return record.shards == now.shards
    # A newer library may have added fields, which the item of a finding has lost.
    return found == item if record is None else record == now


@define
class Snapshot:
    """Records of one namespace, as a scan has found them, some later than others.

    Attributes:
        entries: by key.
        inside: how many entries each directory has, by id, also of those that are not in `entries`.
        directories: directory records, by id.
        gates: by id and shard.
        garbage, tombstones: by key.
        marker: as it is.
        corrupt: what cannot be read, with the reason.
        strange: what is of no kind that is known.
    """

    entries: dict[Key, Entry] = field(factory=dict)
    inside: Counter[str] = field(factory=Counter)
    directories: dict[str, Directory] = field(factory=dict)
    gates: dict[tuple[str, int], Gate] = field(factory=dict)
    garbage: dict[Key, Garbage] = field(factory=dict)
    tombstones: dict[Key, Tombstone] = field(factory=dict)
    marker: Item | None = None
    corrupt: dict[Key, tuple[Item, str]] = field(factory=dict)
    strange: dict[Key, Item] = field(factory=dict)

    @classmethod
    def of(cls, table: TableReader, namespace: str) -> Snapshot:
        """Return all that a scan of the table finds; it takes some kilobytes for each file."""
        snapshot = cls()
        for item in table.scan():
            record = snapshot.read(item, namespace)
            if record is not None:
                snapshot.keep(record)
        return snapshot

    def read(self, item: Item, namespace: str) -> Record | None:
        """Return the record that an item is; keep what is none, if it is of this namespace."""
        key = Key(str(item["place"]), str(item["name"]))
        if key.hash == MARKERS:
            if key.range == namespace:
                self.marker = item
            return None
        if not key.hash.startswith(f"{namespace}/"):
            return None
        try:
            record = record_of(item)
        except (CorruptRecord, FormatTooNew) as error:
            self.corrupt[key] = item, str(error)
            return None
        except ValueError:
            record = None
        if record is None:
            self.strange[key] = item
        elif isinstance(record, Entry):
            self.inside[read_place(key.hash).of] += 1
        return record

    def keep(self, record: Record) -> None:
        """Take in a record of the namespace."""
        place = read_place(record.key.hash)
        match record:
            case Entry():
                self.entries[record.key] = record
            case Directory():
                self.directories[place.of] = record
            case Gate():
                self.gates[place.of, place.shard] = record
            case Garbage():
                self.garbage[record.key] = record
            case Tombstone():
                self.tombstones[record.key] = record


def named_objects(table: TableReader) -> Iterator[str]:
    """Yield the paths of all objects that files and garbage name, of all namespaces of the table.

    Raises `CorruptRecord`, or `FormatTooNew`, for a record that may name one, but cannot be read: then
    nobody can tell of which objects it is true that nothing names them.
    """
    for item in table.scan():
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
        if isinstance(record, (Entry, Garbage)) and record.data is not None:
            yield record.data.path


def named_among(paths: Collection[str], table: TableReader, log: LogReader | None) -> frozenset[str]:
    """Return which of some objects are named by files or garbage, of all namespaces of the table; or by
    files as the log has them, or will if what is pending has happened.

    Raises as `named_objects` does.
    """
    named = {path for path in named_objects(table) if path in paths}
    if log is not None:
        logged = logged_as(log, lambda item: _object_of(item) in paths)
        states = [
            *logged.states.values(),
            *(each for change in logged.changes for each in change.states),
        ]
        named |= {_object_of(state.item) for state in states if state.item is not None}
    return frozenset(named.intersection(paths))


def _object_of(item: Item) -> str:
    """Return the object of a file; "" if it is none."""
    data = Entry.from_item(item).data if "id" in item else None
    return "" if data is None else data.path


def logged_as(log: LogReader, wanted: Callable[[Item], bool]) -> LogSnapshot:
    """Return what a log says of those files and directories that it has ever had as is wanted."""
    return log.read(
        steadily(
            lambda: {
                state.of for state in states_of(log) if state.item is not None and wanted(state.item)
            }
        )
    )


def record_of(item: Item) -> Record | None:
    """Return the record that an item of a namespace is; None if it is of no kind that is known.

    Raises `ValueError` if there are no such keys, `CorruptRecord`, `FormatTooNew`.
    """
    match read_place(str(item["place"])).kind:
        case "e":
            return Entry.from_item(item)
        case "d":
            return Directory.from_item(item)
        case "g":
            return Gate.from_item(item)
        case "x":
            return Garbage.from_item(item)
        case "t":
            return Tombstone.from_item(item)
    return None
