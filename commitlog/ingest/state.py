"""The state of one source in the table: its list row, its rows of files, what is to be read again.

What changes goes through `State.advance`: one transaction, on condition that the list row is still the
one that was read. So of two drivers one advances, and the other finds out.
Imports its siblings and the `Table` port.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from attrs import evolve

from commitlog.errors import OutcomeUnknown, StateMismatch, TransactionCanceled
from commitlog.ingest.about import SCHEMA, SETTINGS, About, schema_item, schema_text
from commitlog.ingest.files import Slice
from commitlog.ingest.head import HEAD, Head
from commitlog.ingest.problems import PROBLEMS, WANTED, wanted_slice
from commitlog.ingest.rows import ROWS, Row, epoch_prefix
from commitlog.ingest.window import Window
from commitlog.tables.api import Absent, ConditionFailed, Delete, Item, Key, Put, Table, Write
from commitlog.words import random_word

__all__ = ["MAX_WRITES", "State"]

#: Writes that one transaction takes; a limit of TransactWriteItems.
MAX_WRITES = 100

_DROPPED = "dropped"


class State:
    """The state of one source. Thread-safe.

    Args:
        table: where it is kept.
        source: the source's id.
        words: makes a new word with each call.
    """

    def __init__(self, table: Table, source: str, *, words: Callable[[], str] = random_word) -> None:
        self._table = table
        self.source = source
        self._words = words

    def head(self) -> Head | None:
        """Return the list row, or None if the source has no state."""
        item = self._table.get(Key(self.source, HEAD))
        if item is not None and item.get(_DROPPED) is True:
            raise StateMismatch(
                f"the state of source {self.source!r} is being removed, or was in part: run"
                " `commitlog ingest reset` again"
            )
        return None if item is None else Head.from_item(item)

    def begin(self, since: float | None) -> None:
        """Make the list row, if there is none. Raises `OutcomeUnknown` if it stays open who made it."""
        word = self._words()
        head = Head(source=self.source, revision=1, word=word, born=word, since=since)
        try:
            self._table.put(head.to_item(), condition=Absent())
        except ConditionFailed:
            pass
        except OutcomeUnknown:
            if self.head() is None:
                raise

    def advance(
        self, old: Head, new: Head, *, rows: Sequence[Row] = (), remove: Sequence[str] = ()
    ) -> Head | None:
        """Put `new` in place of `old`, add rows, and remove items by their range keys: all or nothing.

        Returns:
            The list row as it is stored now; None if it cannot be told whether this call wrote it, or
            if somebody else was first. Then it has to be read again, and tells what is so.
        """
        written = evolve(new, revision=old.revision + 1, word=self._words())
        writes: list[Write] = [Put(written.to_item(), old.unchanged())]
        writes += [Put(row.to_item(self.source)) for row in rows]
        writes += [Delete(Key(self.source, range)) for range in remove]
        try:
            self._table.transact(writes)
        except (TransactionCanceled, OutcomeUnknown):
            return None
        return written

    def update(self, window: Window | None, head: Head) -> Window:
        """Return what `head` remembers: `window` with the rows that were added since, or a new one."""
        if window is None:
            window = Window()
        if window.revision != head.revision:
            for item in self._rows(window.last or ROWS, ROWS):
                window.add(Row.from_item(item))
            window.revision = head.revision
        return window

    def slices(self, epoch: int) -> list[Slice]:
        """Return the slices of an epoch, the same in the same order each time.

        Raises `StateMismatch` if the epoch is not kept any more.
        """
        prefix = epoch_prefix(epoch)
        rows = [Row.from_item(item) for item in self._rows(prefix, prefix)]
        # Those of later revisions are of files that are only remembered.
        rows = [row for row in rows if row.revision == rows[0].revision]
        found = [each for row in rows for entry in row.entries for each in entry.to_slices()]
        if not found or len(rows) != rows[0].of:
            raise StateMismatch(
                f"epoch {epoch} of source {self.source!r} is not kept any more: the checkpoint is older"
                " than the epochs that are. Restore a later checkpoint, or begin anew with `commitlog"
                " ingest reset` and a new checkpoint directory, which reads everything again"
            )
        return found

    def wanted(self, most: int) -> list[tuple[str, Slice]]:
        """Return up to `most` slices that are to be read again, with the range keys of their rows."""
        page = self._table.query_page(self.source, start_after=WANTED, limit=most)
        return [(str(item["item"]), wanted_slice(item)) for item in page.items]

    def problems(self, most: int) -> int:
        """Return the number of slices that could not be read, and were not handed out again.

        One request; no more than `most` are looked at, and no more than a page of the table holds.
        """
        page = self._table.query_page(self.source, start_after=PROBLEMS, limit=most)
        return sum(item.get("retried") is False for item in page.items)  # no other items have it

    def fix_schema(self, schema: str) -> str:
        """Keep `schema` as that of the source, unless one is kept already; return the one that is.

        Raises `OutcomeUnknown` if it cannot be told which one that is, and `PreconditionFailed` if the
        state was removed at that moment. Either way the call can be repeated.
        """
        try:
            self._table.put(schema_item(self.source, schema), condition=Absent())
        except (ConditionFailed, OutcomeUnknown):
            kept = self.schema()
            if kept is None:
                raise
            return kept
        return schema

    def schema(self) -> str | None:
        """Return the schema that is kept, or None."""
        item = self._table.get(Key(self.source, SCHEMA))
        return None if item is None else schema_text(item)

    def describe(self, about: About) -> None:
        """Keep what the query runs with, in place of what it ran with before; writes only what is new.

        Raises `OutcomeUnknown` if it stays open whether it was written: repeat it.
        """
        item = about.to_item()
        if self._table.get(about.key) == item:
            return
        try:
            self._table.put(item)
        except OutcomeUnknown:
            if self._table.get(about.key) != item:
                raise

    def about(self) -> About | None:
        """Return what the query was last started with; None if it was not, or the state was reset."""
        item = self._table.get(Key(self.source, SETTINGS))
        return None if item is None else About.from_item(item)

    def drop(self) -> int:
        """Remove all that is stored of the source; return the number of items.

        Until all is gone there is a list row that says so, and nobody can begin the source anew: rows
        that are left would be taken for what is known. A call that was cut off can be repeated.
        """
        head = self._table.get(Key(self.source, HEAD))
        if head is not None:
            self._table.put({"source": self.source, "item": HEAD, "word": self._words(), _DROPPED: True})
        removed = 0 if head is None else 1
        for item in self._table.query(self.source):
            if item["item"] != HEAD:
                self._table.delete(Key(self.source, str(item["item"])))
                removed += 1
        self._table.delete(Key(self.source, HEAD))
        return removed

    def _rows(self, after: str, prefix: str) -> Iterator[Item]:
        for item in self._table.query(self.source, start_after=after):
            if not str(item["item"]).startswith(prefix):
                return
            yield item
