"""Read-only access to the table, the store and the log.

A check gets only functions that read, so it cannot change anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cached_property
from itertools import chain
from typing import Protocol, TypeVar

from attrs import define, field, frozen

from commitlog.errors import CorruptRecord, FormatTooNew, NotFound
from commitlog.namespace.log.checkpoint import NamespaceCheckpoints, merge_states
from commitlog.namespace.log.entries import ItemState, LoggedChange, fold, parse_change
from commitlog.namespace.model.codec import key_of
from commitlog.namespace.model.keys import NAMESPACES, is_valid_key, parse_hash_key
from commitlog.namespace.model.records import (
    Directory,
    Entry,
    Garbage,
    Guard,
    Record,
    Tombstone,
    record_of,
)
from commitlog.oplog import Decision, Operation, OperationLog
from commitlog.stores.api import ObjectInfo, ObjectStore, Observation
from commitlog.tables.api import InFlight, Item, Key, Table, UnreadableItem

__all__ = [
    "LogReader",
    "LogSnapshot",
    "Scan",
    "ScannedRecords",
    "StoreReader",
    "TableReader",
    "read_matching",
    "retry_on_new_checkpoint",
]

T = TypeVar("T")


class Scan(Protocol):
    """The type of `Table.scan`: yields all items of a table, and passes on those that cannot be read."""

    def __call__(self, *, unreadable: Callable[[UnreadableItem], object]) -> Iterator[Item]:
        """Scan the table once."""


@frozen(kw_only=True)
class TableReader:
    """A read-only view of a table.

    Each scan has to handle unreadable items, so that no such item stops a check.
    """

    url: str
    get: Callable[[Key], Item | None]
    scan: Scan

    @classmethod
    def of(cls, table: Table) -> TableReader:
        """Return a reader of `table`."""
        return cls(url=table.url, get=table.get, scan=table.scan)


@define
class ScannedRecords:
    """The records of one namespace, as a scan found them, not all at the same time.

    Attributes:
        entries: entries by key.
        inside: number of entries of each directory, by id; includes entries that are not in `entries`.
        directories: directory records, by id.
        guards: guard records, by id and shard.
        garbage, tombstones: records by key.
        metadata: the item of the metadata record.
        corrupt: unreadable items, with the reason.
        strange: items of an unknown kind.
    """

    entries: dict[Key, Entry] = field(factory=dict)
    inside: Counter[str] = field(factory=Counter)
    directories: dict[str, Directory] = field(factory=dict)
    guards: dict[tuple[str, int], Guard] = field(factory=dict)
    garbage: dict[Key, Garbage] = field(factory=dict)
    tombstones: dict[Key, Tombstone] = field(factory=dict)
    metadata: Item | None = None
    corrupt: dict[Key, tuple[Item, str]] = field(factory=dict)
    strange: dict[Key, Item] = field(factory=dict)

    @staticmethod
    def _decode(item: Item) -> Record | None:
        """Return `record_of` the item. The simulator's judge decodes each item once."""
        return record_of(item)

    @classmethod
    def of(cls, table: TableReader, namespace: str) -> ScannedRecords:
        """Return all records that a scan of the table finds; takes some kilobytes for each file."""
        snapshot = cls()
        for item in table.scan(unreadable=lambda found: snapshot.refuse(found, namespace)):
            record = snapshot.read(item, namespace)
            if record is not None:
                snapshot.keep(record)
        return snapshot

    def refuse(self, found: UnreadableItem, namespace: str) -> None:
        """Keep an unreadable item of the table, if it belongs to this namespace."""
        key = key_of(found.item)
        if key.hash.startswith(f"{namespace}/"):
            self.corrupt[key] = found.item, found.reason

    def read(self, item: Item, namespace: str) -> Record | None:
        """Return the record of an item, or None; keep an item without a record, if it belongs to the
        namespace.
        """
        key = Key(str(item["place"]), str(item["name"]))
        if key.hash == NAMESPACES:
            if key.range == namespace:
                self.metadata = item
            return None
        if not key.hash.startswith(f"{namespace}/"):
            return None
        try:
            record = self._decode(item) if is_valid_key(key) else None
        except (CorruptRecord, FormatTooNew) as error:
            self.corrupt[key] = item, str(error)
            return None
        except ValueError:
            record = None
        if record is None:
            self.strange[key] = item
            return None
        if isinstance(record, Entry):
            self.inside[parse_hash_key(key.hash).id] += 1
        return record

    def keep(self, record: Record) -> None:
        """Add a record of the namespace."""
        place = parse_hash_key(record.key.hash)
        match record:
            case Entry():
                self.entries[record.key] = record
            case Directory():
                self.directories[place.id] = record
            case Guard():
                self.guards[place.id, place.shard] = record
            case Garbage():
                self.garbage[record.key] = record
            case Tombstone():
                self.tombstones[record.key] = record


@frozen(kw_only=True)
class StoreReader:
    """A read-only view of the objects of a store.

    A missing object counts only if `verify`, called afterwards, raises no error: it checks that the
    store itself exists.
    """

    url: str
    verify: Callable[[], object]
    begin_head: Callable[[str], InFlight[Observation]]
    list: Callable[[], Iterator[ObjectInfo]]

    @classmethod
    def of(cls, store: ObjectStore, verify: Callable[[], object] | None = None) -> StoreReader:
        """Return a reader of the objects of `store`; by default, `verify` is its `check`."""
        return cls(
            url=store.url,
            verify=store.check if verify is None else verify,
            begin_head=store.begin_head,
            list=store.list,
        )


@frozen(kw_only=True, slots=False)
class LogSnapshot:
    """The contents of a log at one point in time.

    Attributes:
        states: the newest state of each requested file and directory, by id.
        tombstones, garbage: the newest states of tombstones and garbage, by `ItemState.item_id`.
        metadata: the metadata record, if it was requested and the log has it.
        pending: operations that are not decided.
        changes: the changes of the pending operations.
    """

    states: dict[str, ItemState] = field(factory=dict)
    tombstones: dict[str, ItemState] = field(factory=dict)
    garbage: dict[str, ItemState] = field(factory=dict)
    metadata: Item | None = None
    pending: tuple[Operation, ...] = ()
    changes: tuple[LoggedChange, ...] = ()

    @classmethod
    def of(cls, newest: Iterable[ItemState], pending: Iterable[Operation]) -> LogSnapshot:
        """Return the contents of a log.

        Args:
            newest: the newest state of each requested item.
            pending: the pending operations.
        """
        states: dict[str, ItemState] = {}
        tombstones: dict[str, ItemState] = {}
        garbage: dict[str, ItemState] = {}
        metadata: Item | None = None
        for state in newest:
            kind, _, id = state.item_id.partition("/")
            if kind == "e":
                states[id] = state
            elif kind == "t":
                tombstones[state.item_id] = state
            elif kind == "x":
                garbage[state.item_id] = state
            elif kind == "m":
                metadata = state.item
        operations = tuple(pending)
        return cls(
            states=states,
            tombstones=tombstones,
            garbage=garbage,
            metadata=metadata,
            pending=operations,
            changes=tuple(map(parse_change, operations)),
        )

    @cached_property
    def touched(self) -> frozenset[str]:
        """Ids of the files and directories with pending changes."""
        return frozenset(id for change in self.changes for id, _ in change.written | change.replaced)

    def item(self, item_id: str) -> Item | None:
        """Return the newest record of a `ItemState.item_id`; None if the log has no such record."""
        kind, _, id = item_id.partition("/")
        if kind == "m":
            return self.metadata
        states = {"e": self.states, "t": self.tombstones, "x": self.garbage}[kind]
        state = states.get(id if kind == "e" else item_id)
        return None if state is None else state.item


@frozen(kw_only=True)
class LogReader:
    """A read-only view of an operation log and its checkpoint."""

    pending: Callable[[], Iterator[Operation]]
    history: Callable[[], Iterator[Operation]]
    checkpoint: Callable[[], Iterator[ItemState]]

    @classmethod
    def of(cls, log: OperationLog) -> LogReader:
        """Return a reader of `log`."""
        checkpoints = NamespaceCheckpoints(log, new_id=str)
        return cls(
            pending=log.pending,
            history=log.history,
            checkpoint=lambda: checkpoints.states(checkpoints.newest()),
        )

    def read(self, only: Collection[str] | None = None) -> LogSnapshot:
        """Return the contents of the log: every earlier change is in it, or pending.

        Args:
            only: the `ItemState.item_id` to return; by default all, which takes kilobytes for each file.
        """
        return retry_on_new_checkpoint(lambda: self._read(only))

    def states(self, decided: Callable[[str], object]) -> Iterator[ItemState]:
        """Yield all states of the log, both older and newer ones.

        Args:
            decided: called with the id of each operation that is no longer pending.
        """
        for operation in self.history():
            decided(operation.id)
            if operation.decision is Decision.COMMITTED:
                yield from parse_change(operation).states
        yield from self.checkpoint()

    def _read(self, only: Collection[str] | None) -> LogSnapshot:
        # Keep this order: an operation decided meanwhile is seen as pending or as decided, and one
        # compacted meanwhile is seen as decided or in the checkpoint.
        pending = {each.id: each for each in self.pending()}
        changed: dict[str, ItemState] = {}
        for operation in self.history():
            pending.pop(operation.id, None)
            if operation.decision is Decision.COMMITTED:
                fold(
                    (
                        each
                        for each in parse_change(operation).states
                        if only is None or each.item_id in only
                    ),
                    changed,
                )
        before = (state for state in self.checkpoint() if only is None or state.item_id in only)
        return LogSnapshot.of(merge_states(before, changed), pending.values())


def retry_on_new_checkpoint(read: Callable[[], T]) -> T:
    """Call `read` and return its result; retry if a newer checkpoint replaced the one being read."""
    for _ in range(3):
        try:
            return read()
        except NotFound:
            continue
    return read()


def read_matching(log: LogReader, wanted: Callable[[Item], bool]) -> LogSnapshot:
    """Return the log's contents for all ids that ever had, or may get, a record accepted by `wanted`."""

    def ids() -> set[str]:
        # In this order: see `LogReader.read`. A change that is decided after this, and before the log
        # is read again, would be neither pending nor of a known id.
        pending = [state for each in log.pending() for state in parse_change(each).states]
        return {
            state.item_id
            for state in chain(pending, log.states(lambda id: None))
            if state.item is not None and wanted(state.item)
        }

    return log.read(retry_on_new_checkpoint(ids))
