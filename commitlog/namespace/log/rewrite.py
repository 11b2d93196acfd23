"""A rewrite of the log of a namespace from its table, if the log is damaged or another table owns it.

The table is the source; from the old log only the pending operations are read. A new epoch begins, as
with a restore, and its log begins with a checkpoint of all records of the table. The old log is
unchanged.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator
from itertools import chain
from typing import TypeAlias

from attrs import evolve, field, frozen

from commitlog.clock import Clock
from commitlog.errors import Conflict, CorruptRecord, Fenced, NotFound, TransactionCanceled
from commitlog.namespace.log.checkpoint import Checkpoint, NamespaceCheckpoints
from commitlog.namespace.log.entries import ItemState
from commitlog.namespace.log.epoch import Epochs
from commitlog.namespace.metadata import Epoch, NamespaceMetadata
from commitlog.namespace.model.codec import item_name
from commitlog.namespace.model.keys import Keys, parse_hash_key
from commitlog.namespace.model.records import Entry, Garbage, Tombstone, record_of
from commitlog.tables.api import Equals, Item, Put, Table, UnreadableItem

__all__ = [
    "LogRewriteReport",
    "LogRewriter",
    "OpenTableStates",
    "TableStates",
    "WholeTable",
    "states_of_scan",
]

#: Seconds between two checks for running changes.
_PAUSE = 10.0

#: Maximum number of attempts to replace the metadata record.
_TRIES = 3


@frozen(kw_only=True)
class LogRewriteReport:
    """The result of a rewrite.

    Attributes:
        epoch: number of the new epoch.
        states: number of files, directories, tombstones and pieces of garbage in the new log.
    """

    epoch: int
    states: int


@frozen(kw_only=True)
class LogRewriter:
    """A rewriter of the log of one namespace.

    Args:
        table: the table of the namespace.
        keys: its keys.
        epochs: the epochs of its log.
        states: the records of the table.
        clock: source of dates; also used to wait.
        new_id: returns unique ids.
    """

    table: Table
    keys: Keys
    epochs: Epochs
    states: TableStates
    clock: Clock
    new_id: Callable[[], str] = field(repr=False)

    def rewrite(self, *, take_over: bool, older_than: float) -> LogRewriteReport:
        """Rewrite the log: see `Maintenance.rewrite_log`."""
        newest = self.epochs.newest()
        metadata = NamespaceMetadata.from_item(self._metadata())
        metadata.check(writing=True)
        self._check_epoch(metadata.epoch, take_over=take_over)
        self.states.check()  # before the epoch begins
        age = self.epochs.log_of(metadata.epoch).youngest()
        if age < older_than:
            raise Conflict(
                f"a change was begun {age:.0f} s ago, and may still be under way: stop all writers and"
                f" decide it (`commitlog namespace recover`), or wait until it is {older_than:.0f} s"
                " old. Nothing was written"
            )
        epoch = self.epochs.claim(id=self.new_id(), table=self.table.url, after=newest)
        # Another rewrite may have ended before the claim. One that ends later has fenced its clients.
        now = self.table.get(self.keys.metadata)
        if now is None:
            raise self._superseded()
        self._wait(NamespaceMetadata.from_item(now).epoch, older_than)
        checkpoints = NamespaceCheckpoints(self.epochs.log_of(epoch), new_id=self.new_id)
        new = _next(now, epoch)
        state = ItemState(item_id="m", version=1, item=new, began=self.clock.epoch())
        parts = self.states.save(epoch, state)
        self._predecessor(new, epoch)  # else a restore may have removed records before they were read
        checkpoints.make_current(parts, after=None)
        self._finish(new, epoch)
        return LogRewriteReport(epoch=epoch.number, states=parts.states - 1)

    def _finish(self, new: Item, epoch: Epoch) -> None:
        """Replace the metadata record. Raises `Conflict` if another client has begun later."""
        for _ in range(_TRIES):
            item = self._predecessor(new, epoch)
            if item == new:
                return
            try:
                self.table.transact([Put(new, Equals("body", item["body"]))], token=self.new_id())
                return
            except TransactionCanceled:
                continue  # a rewrite that claimed an earlier epoch has ended: it changes no other record
        raise self._superseded()

    def _predecessor(self, new: Item, epoch: Epoch) -> Item:
        """Return the metadata record that `new` may replace, or `new` itself.

        Raises `Conflict` if a later epoch was claimed, or a restore has begun. A restore removes the
        metadata record first.
        """
        try:
            self.epochs.check(epoch)
        except Fenced as error:
            raise self._superseded() from error
        found = self.table.get(self.keys.metadata)
        if found == new:
            return new
        if found is None or _next(found, epoch) != new:
            raise self._superseded()
        if NamespaceMetadata.from_item(found).epoch.number > epoch.number:
            raise self._superseded()
        return found

    def _superseded(self) -> Conflict:
        return Conflict(
            f"another client restores namespace {self.keys.namespace!r}, or rewrites its log:"
            " this call has stopped and left the rest to that client"
        )

    def _metadata(self) -> Item:
        item = self.table.get(self.keys.metadata)
        if item is None:
            raise NotFound(
                f"there is no namespace {self.keys.namespace!r} in {self.table.url}: its log is left"
                " unchanged, so that you can restore from it"
            )
        return item

    def _check_epoch(self, epoch: Epoch, *, take_over: bool) -> None:
        try:
            self.epochs.check(epoch)
        except Fenced:
            # An epoch of this table without any entries was claimed by an interrupted call.
            newest = self.epochs.newest()
            unused = next(self.epochs.log_of(newest).names(), None) is None
            if not take_over and not (newest.table == self.table.url and unused):
                raise

    def _wait(self, epoch: Epoch, older_than: float) -> None:
        """Wait for changes that were logged just before the new epoch began."""
        log = self.epochs.log_of(epoch)
        for _ in range(int(older_than / _PAUSE) + 2):
            if log.youngest() >= older_than:
                return
            self.clock.sleep(_PAUSE)
        raise Conflict("other clients still log changes of this table: stop them, and try again")


def _next(item: Item, epoch: Epoch) -> Item:
    """Return a metadata record with another epoch."""
    return evolve(NamespaceMetadata.from_item(item).of(epoch), change_id=epoch.id).to_item()


class TableStates(abc.ABC):
    """The records of a namespace's table, as states of a log."""

    @abc.abstractmethod
    def check(self) -> None:
        """Read all records. Raises `CorruptRecord` or `FormatTooNew` for one that cannot be read."""

    @abc.abstractmethod
    def save(self, epoch: Epoch, metadata: ItemState) -> Checkpoint:
        """Store the metadata and all records in the log of an epoch, not as its checkpoint yet."""


#: Opens the records of a table, given the epochs of the log.
OpenTableStates: TypeAlias = Callable[[Epochs], TableStates]


@frozen(kw_only=True)
class WholeTable(TableStates):
    """The records of a table, read by this process.

    Args:
        table: the table.
        keys: keys of the namespace.
        epochs: the epochs of its log.
        clock: source of dates.
        new_id: returns unique ids.
    """

    table: Table
    keys: Keys
    epochs: Epochs
    clock: Clock
    new_id: Callable[[], str] = field(repr=False)

    def check(self) -> None:
        """See `TableStates.check`."""
        for _ in self._states():
            pass

    def save(self, epoch: Epoch, metadata: ItemState) -> Checkpoint:
        """See `TableStates.save`."""
        checkpoints = NamespaceCheckpoints(self.epochs.log_of(epoch), new_id=self.new_id)
        return checkpoints.store_unsorted_parts(chain([metadata], self._states()))

    def _states(self) -> Iterator[ItemState]:
        return states_of_scan(self.table.scan, self.keys.namespace, self.clock.epoch())


def states_of_scan(
    scan: Callable[..., Iterator[Item]], namespace: str, now: float
) -> Iterator[ItemState]:
    """Yield the records of a namespace, as states of a log that began at `now`.

    Args:
        scan: scans the table, or a part of it; see `Table.scan`.
        namespace: name of the namespace.
        now: epoch seconds.

    Raises `CorruptRecord` or `FormatTooNew` for a record that cannot be read.
    """
    mine = f"{namespace}/"

    def refuse(found: UnreadableItem) -> None:
        if str(found.item["place"]).startswith(mine):
            raise CorruptRecord(
                f"{found.reason}. Repair the table first (`commitlog namespace fsck --repair`), or"
                " remove the item; nothing was written"
            )

    for item in scan(unreadable=refuse):
        if not str(item["place"]).startswith(mine):
            continue
        try:
            record = record_of(item)
        except ValueError as error:
            raise CorruptRecord(f"{item_name(item)!r} is of an unknown kind: {error}") from error
        where = parse_hash_key(str(item["place"]))
        match record:
            case Entry():
                item_id, version = f"e/{record.id}", record.version
            case Garbage():
                item_id, version = f"x/{where.id}/{item['name']!s}", 1
            case Tombstone():
                item_id, version = f"t/{where.id}/{record.name}", record.written
            case _:
                continue
        yield ItemState(item_id=item_id, version=version, item=item, began=now)
