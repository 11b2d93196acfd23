"""Which of several restores of one namespace goes on: that which began last takes over.

Imports the ground floor, its siblings and the `Table` port.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from attrs import frozen

from commitlog.errors import AlreadyExists, Conflict, TransactionCanceled
from commitlog.namespace.change import MAX_WRITES
from commitlog.namespace.items import key_items, key_of
from commitlog.namespace.keys import Keys
from commitlog.namespace.marker import Marker
from commitlog.tables.api import Absent, Check, Delete, Equals, Item, Key, Put, Table, Write

__all__ = ["Takeover"]


@frozen(kw_only=True)
class Takeover:
    """A restore that has begun, and goes on as long as no other has begun since.

    Args:
        table: what it writes to.
        keys: of the namespace.
        claim: what requires that it is still the last to have begun.
    """

    table: Table
    keys: Keys
    claim: Check

    @staticmethod
    def check(table: Table, keys: Keys, *, replace: bool) -> Item | None:
        """Return the note of a restore that has begun and not ended, if there is one.

        Raises `AlreadyExists` if that one replaces, and this one does not.
        """
        found = table.get(_place(keys))
        if found is not None and found.get("replaces") and not replace:
            raise AlreadyExists(
                f"of what is to be replaced of namespace {keys.namespace!r} there may be something left"
                f" in {table.url}: that restore was broken off, or goes on. Replace it (`replace`, or"
                " --replace)"
            )
        return found

    @classmethod
    def begin(cls, table: Table, keys: Keys, *, word: str, replace: bool, epoch: int = 0) -> Takeover:
        """Note that this restore holds. From then on there is no marker.

        To replace what is there, the note is written, and the table scanned, before the marker goes.

        Args:
            table: what is written to.
            keys: of the namespace.
            word: names this restore.
            replace: whether what the table has of the namespace is to be removed.
            epoch: that of the log from which it is made; the later one goes on.

        Raises `AlreadyExists` if a restore that replaces was broken off and this one does not replace,
        and `Conflict` if another one begins at the same time.
        """
        place = _place(keys)
        found = cls.check(table, keys, replace=replace)
        own = {**key_items(place), "word": word, "replaces": replace, "epoch": epoch}
        seen = Absent() if found is None else Equals("word", str(found["word"]))
        begun = cls(table=table, keys=keys, claim=Check(place, Equals("word", word)))
        if found is not None and int(found.get("epoch", 0)) > epoch:
            raise begun.beaten()
        writes: list[Write] = [Put(own, seen)]
        if not replace:
            writes.append(_without_marker(table, keys, epoch))
        try:
            table.transact(writes, token=word)
        except TransactionCanceled as error:
            claimed = table.get(place)
            if claimed is None or claimed.get("word") != word:
                raise begun.beaten() from error
        if replace:
            table.scan_page(limit=1)
            try:
                table.transact([Delete(keys.marker), begun.claim])
            except TransactionCanceled as error:
                raise begun.beaten() from error
        return begun

    def remove_all(self) -> Iterator[int]:
        """Remove all records of the namespace; yield how many are gone so far. Raises `Conflict`."""
        mine = f"{self.keys.namespace}/"
        unreadable: list[Key] = []

        def found() -> Iterator[Key]:
            yield from map(
                key_of, self.table.scan(unreadable=lambda bad: unreadable.append(key_of(bad.item)))
            )
            yield from unreadable

        others = (key for key in found() if key.hash.startswith(mine) and key != self.claim.key)
        removed = 0
        while batch := [Delete(key) for key in islice(others, MAX_WRITES - 1)]:
            try:
                self.table.transact([*batch, self.claim])
            except TransactionCanceled as error:
                raise self.beaten() from error
            removed += len(batch)
            yield removed

    def finish(self, marker: Item) -> None:
        """Put the marker, if nobody else has begun a restore; else raise `Conflict`."""
        try:
            self.table.transact([Put(marker, Absent()), Delete(self.claim.key, self.claim.condition)])
        except TransactionCanceled as error:
            # A request that was repeated on its way finds what it has done itself.
            done = self.table.get(self.keys.marker) == marker
            if not done or self.table.get(self.claim.key) is not None:
                raise self.beaten() from error

    def beaten(self) -> Conflict:
        """Return what is raised when another restore has begun since."""
        return Conflict(
            f"somebody else restores namespace {self.keys.namespace!r} in {self.table.url}, too, and"
            " began later: this call has left the rest to that. If that was broken off, restore again"
        )


def _place(keys: Keys) -> Key:
    return Key(f"{keys.namespace}/r/restore", "-")


def _without_marker(table: Table, keys: Keys, epoch: int) -> Write:
    """Return what makes sure that there is no marker: one of an earlier epoch is fenced, and goes."""
    found = table.get(keys.marker)
    if found is None or Marker.from_item(found).epoch.number >= epoch:
        return Check(keys.marker, Absent())
    return Delete(keys.marker, Equals("body", found["body"]))
