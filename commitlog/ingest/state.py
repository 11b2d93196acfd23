"""State of one source in the table: its state row, its rows of files, the slices to retry.

Steps go through `StateTable.advance`: one transaction, on condition that the state row is unchanged. So
only one of two concurrent drivers advances, and the other one notices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from attrs import evolve

from commitlog._util.ids import random_id
from commitlog.errors import OutcomeUnknown, StateMismatch, TransactionCanceled
from commitlog.ingest.cleaning_queue import QueuedFiles
from commitlog.ingest.files import Slice
from commitlog.ingest.quarantine import PROBLEMS, WANTED, InputProblem, wanted_slice
from commitlog.ingest.rows import ROWS, FilesRow, epoch_prefix
from commitlog.ingest.seen_files import SeenFiles
from commitlog.ingest.source_metadata import SCHEMA, SETTINGS, SourceMetadata, schema_item, schema_text
from commitlog.ingest.source_state import STATE_KEY, SourceState
from commitlog.tables.api import Absent, ConditionFailed, Delete, Item, Key, Put, Table, Write

__all__ = ["StateTable"]

_DROPPED = "dropped"


class StateTable:
    """The state of one source. Thread-safe.

    Args:
        table: the table for the state.
        source: id of the source.
        new_id: returns a new id for each call.
    """

    def __init__(self, table: Table, source: str, *, new_id: Callable[[], str] = random_id) -> None:
        self._table = table
        self.source = source
        self._new_id = new_id

    def read(self) -> SourceState | None:
        """Return the state row, or None if the source has no state.

        Raises `StateMismatch` if a `drop` of the state is not complete.
        """
        item = self._table.get(Key(self.source, STATE_KEY))
        if item is not None and item.get(_DROPPED) is True:
            raise StateMismatch(
                f"the removal of the state of source {self.source!r} is not complete: run"
                " `commitlog ingest reset` again"
            )
        return None if item is None else SourceState.from_item(item)

    def begin(self, since: float | None, *, latest: bool = False) -> None:
        """Create the state row if there is none; for `since` and `latest` see `SourceState`.

        Raises `OutcomeUnknown` if there may still be none.
        """
        change_id = self._new_id()
        state = SourceState(
            source=self.source,
            revision=1,
            change_id=change_id,
            born=change_id,
            since=since,
            latest=latest,
        )
        try:
            self._table.put(state.to_item(), condition=Absent())
        except ConditionFailed:
            pass
        except OutcomeUnknown:
            if self.read() is None:
                raise

    def advance(
        self,
        old: SourceState,
        new: SourceState,
        *,
        rows: Sequence[FilesRow] = (),
        queued: Sequence[QueuedFiles] = (),
        remove: Sequence[str] = (),
    ) -> SourceState | None:
        """Replace `old` with `new`, add rows, and remove items by their range keys: all or nothing.

        Returns:
            The stored state row. None if another driver advanced first, or if it is unknown whether
            this call wrote the row: read the state row again to find out.
        """
        written = evolve(new, revision=old.revision + 1, change_id=self._new_id())
        writes: list[Write] = [Put(written.to_item(), old.unchanged())]
        writes += [Put(row.to_item(self.source)) for row in rows]
        writes += [Put(row.to_item(self.source)) for row in queued]
        writes += [Delete(Key(self.source, range)) for range in remove]
        try:
            self._table.transact(writes)
        except (TransactionCanceled, OutcomeUnknown):
            return None
        return written

    def update(self, seen_files: SeenFiles | None, state: SourceState) -> SeenFiles:
        """Return `seen_files` with all rows up to `state` added, and the problems that matter for them.

        It is a new cache if `seen_files` is None, or is of the state before a reset: its files are new.
        """
        if seen_files is None or seen_files.born != state.born:
            seen_files = SeenFiles(born=state.born)
        if seen_files.revision != state.revision:
            for item in self._rows(seen_files.last or ROWS, ROWS):
                seen_files.add(FilesRow.from_item(item))
            seen_files.revision = state.revision
        since = seen_files.checked or seen_files.oldest
        if since is not None:
            for item in self._rows(f"{PROBLEMS}{since:020d}", PROBLEMS):
                seen_files.add_problem(InputProblem.from_item(item))
            seen_files.checked = state.epoch
        return seen_files

    def slices(self, epoch: int) -> list[Slice]:
        """Return the slices of an epoch, always the same ones in the same order.

        Raises `StateMismatch` if the epoch is not kept any more.
        """
        prefix = epoch_prefix(epoch)
        rows = [FilesRow.from_item(item) for item in self._rows(prefix, prefix)]
        # Rows of later revisions hold files that are only remembered.
        rows = [row for row in rows if row.revision == rows[0].revision]
        found = [each for row in rows for entry in row.entries for each in entry.to_slices()]
        if not found or len(rows) != rows[0].of:
            raise StateMismatch(
                f"epoch {epoch} of source {self.source!r} is not kept any more: the checkpoint is too"
                " old. Restore a later checkpoint, or run `commitlog ingest reset` and restart with a"
                " new checkpoint directory, which reads everything again"
            )
        return found

    def wanted(self, most: int) -> list[tuple[str, Slice]]:
        """Return up to `most` slices to retry, with the range keys of their rows."""
        page = self._table.query_page(self.source, start_after=WANTED, limit=most)
        return [(str(item["item"]), wanted_slice(item)) for item in page.items]

    def all_wanted(self) -> Iterator[Slice]:
        """Yield all slices to retry."""
        for item in self._rows(WANTED, WANTED):
            yield wanted_slice(item)

    def problems(self, most: int) -> int:
        """Return the number of slices that could not be read and were not handed out again.

        Sends one request. Counts at most `most`, and at most one page of the table.
        """
        page = self._table.query_page(self.source, start_after=PROBLEMS, limit=most)
        return sum(item.get("retried") is False for item in page.items)  # no other items have it

    def fix_schema(self, schema: str) -> str:
        """Store `schema` as the source's schema if it has none yet; return the stored one.

        Raises `OutcomeUnknown` if it is unknown which schema is stored, and `PreconditionFailed` if the
        state was removed during the call. In both cases the call can be repeated.
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
        """Return the stored schema, or None."""
        item = self._table.get(Key(self.source, SCHEMA))
        return None if item is None else schema_text(item)

    def describe(self, metadata: SourceMetadata) -> None:
        """Store the configuration of the query in place of the earlier one; write only if it differs.

        Raises `OutcomeUnknown` if it may not be stored: repeat the call.
        """
        item = metadata.to_item()
        if self._table.get(metadata.key) == item:
            return
        try:
            self._table.put(item)
        except OutcomeUnknown:
            if self._table.get(metadata.key) != item:
                raise

    def metadata(self) -> SourceMetadata | None:
        """Return the last configuration of the query; None if it never started, or after a reset."""
        item = self._table.get(Key(self.source, SETTINGS))
        return None if item is None else SourceMetadata.from_item(item)

    def drop(self) -> int:
        """Remove all stored items of the source; return their number.

        During the removal, a flag in the state row keeps the source from being created again: otherwise
        the remaining rows would count as known files. An interrupted call can be repeated.
        """
        state = self._table.get(Key(self.source, STATE_KEY))
        if state is not None:
            self._table.put(
                {"source": self.source, "item": STATE_KEY, "change_id": self._new_id(), _DROPPED: True}
            )
        removed = 0 if state is None else 1
        for item in self._table.query(self.source):
            if item["item"] != STATE_KEY:
                self._table.delete(Key(self.source, str(item["item"])))
                removed += 1
        self._table.delete(Key(self.source, STATE_KEY))
        return removed

    def _rows(self, after: str, prefix: str) -> Iterator[Item]:
        for item in self._table.query(self.source, start_after=after):
            if not str(item["item"]).startswith(prefix):
                return
            yield item
