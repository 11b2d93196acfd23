"""Writing the log of a namespace again, from its table: it is damaged, or another table has taken it.

The table says what there is; of the log nothing is read but what is pending. A new epoch begins, as with
a restore, and its log begins with a base that has each record of the table. The log of before is left as
it is. Imports the ground floor, the operation log, its siblings, and the `Table` port.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from attrs import evolve, field, frozen

from commitlog.clock import Clock
from commitlog.errors import Conflict, CorruptRecord, Fenced, NotFound, TransactionCanceled
from commitlog.namespace.base import Bases
from commitlog.namespace.epoch import Epochs
from commitlog.namespace.items import place_of
from commitlog.namespace.keys import Keys, read_place
from commitlog.namespace.leftovers import Garbage, Tombstone
from commitlog.namespace.logged import State
from commitlog.namespace.marker import Epoch, Marker
from commitlog.namespace.records import Entry
from commitlog.namespace.snapshot import record_of
from commitlog.tables.api import Equals, Item, Put, Table, UnreadableItem

__all__ = ["Relogged", "Relogger"]

#: Seconds between two looks at what is under way.
_PAUSE = 10.0


@frozen(kw_only=True)
class Relogged:
    """What was written.

    Attributes:
        epoch: number of the epoch that has begun.
        states: files, directories, tombstones and pieces of garbage of which the log tells now.
    """

    epoch: int
    states: int


@frozen(kw_only=True)
class Relogger:
    """Writes the log of one namespace again.

    Args:
        table: has the namespace.
        keys: its keys.
        epochs: those of its log.
        clock: dates what is written; waited on.
        words: makes words that nobody else ever makes.
    """

    table: Table
    keys: Keys
    epochs: Epochs
    clock: Clock
    words: Callable[[], str] = field(repr=False)

    def relog(self, *, take_over: bool, older_than: float) -> Relogged:
        """See `Namespace.relog`."""
        item = self._marker()
        marker = Marker.from_item(item)
        marker.check(writing=True)
        self._check_epoch(marker.epoch, take_over=take_over)
        for _ in self._states():  # all of it can be read, or nothing is begun
            pass
        age = self.epochs.log_of(marker.epoch).youngest()
        if age < older_than:
            raise Conflict(
                f"a change was begun {age:.0f} s ago, and may still be under way: stop those who write,"
                f" and decide it (`commitlog namespace recover`), or wait until it is {older_than:.0f} s"
                " old. Nothing was written"
            )
        epoch = self.epochs.claim(word=self.words(), table=self.table.url)
        self._wait(marker.epoch, older_than)
        bases = Bases(self.epochs.log_of(epoch), words=self.words)
        new = evolve(marker.of(epoch), word=epoch.word).to_item()
        stored = bases.stored_unsorted(self._with_marker(new))
        bases.hold(stored, after=None)
        try:
            self.table.transact([Put(new, Equals("body", item["body"]))], token=epoch.word)
        except TransactionCanceled as error:
            if self.table.get(self.keys.marker) != new:
                raise Conflict(
                    f"somebody else restores namespace {self.keys.namespace!r}, or writes its log again:"
                    " this call has left the rest to that"
                ) from error
        return Relogged(epoch=epoch.number, states=stored.states - 1)

    def _marker(self) -> Item:
        item = self.table.get(self.keys.marker)
        if item is None:
            raise NotFound(
                f"there is no namespace {self.keys.namespace!r} in {self.table.url}: its log is left as"
                " it is, to restore it from"
            )
        return item

    def _check_epoch(self, epoch: Epoch, *, take_over: bool) -> None:
        try:
            self.epochs.check(epoch)
        except Fenced:
            # An epoch of this table in which nothing was logged is that of a call that was broken off.
            newest = self.epochs.newest()
            unused = next(self.epochs.log_of(newest).names(), None) is None
            if not take_over and not (newest.table == self.table.url and unused):
                raise

    def _wait(self, epoch: Epoch, older_than: float) -> None:
        """Wait for changes that were logged just before the new epoch was begun."""
        log = self.epochs.log_of(epoch)
        for _ in range(int(older_than / _PAUSE) + 2):
            if log.youngest() >= older_than:
                return
            self.clock.sleep(_PAUSE)
        raise Conflict("others go on logging changes of this table: stop them, and repeat it")

    def _with_marker(self, marker: Item) -> Iterator[State]:
        yield State(of="m", version=1, item=marker, began=self.clock.epoch())
        yield from self._states()

    def _states(self) -> Iterator[State]:
        """Yield what the table has, as the log tells of it."""
        now = self.clock.epoch()
        mine = f"{self.keys.namespace}/"

        def refuse(found: UnreadableItem) -> None:
            if str(found.item["place"]).startswith(mine):
                raise CorruptRecord(
                    f"{found.reason}. Repair the table first (`commitlog namespace check --repair`), or"
                    " remove the item; nothing was written"
                )

        for item in self.table.scan(unreadable=refuse):
            if not str(item["place"]).startswith(mine):
                continue
            try:
                record = record_of(item)
            except ValueError as error:
                raise CorruptRecord(
                    f"{place_of(item)!r} is of no kind that is known: {error}"
                ) from error
            where = read_place(str(item["place"]))
            match record:
                case Entry():
                    of, version = f"e/{record.id}", record.version
                case Garbage():
                    of, version = f"x/{where.of}/{item['name']!s}", 1
                case Tombstone():
                    of, version = f"t/{where.of}/{record.name}", record.left
                case _:
                    continue
            yield State(of=of, version=version, item=item, began=now)
