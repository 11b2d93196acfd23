"""`CatalogRecords`: reads and changes the records of a catalog in a `ConditionalStore`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from commitlog._util.ids import random_id
from commitlog._util.retry import Backoff
from commitlog.clock import Clock, SystemClock
from commitlog.commit import ConditionalStore
from commitlog.errors import (
    AlreadyExists,
    CommitError,
    Conflict,
    NotFound,
    OutcomeUnknown,
    PreconditionFailed,
)
from commitlog.iceberg.model import (
    NAMES,
    POINTER,
    Levels,
    Names,
    NamespaceExists,
    Pointer,
    TableEntry,
    TableExists,
)
from commitlog.oplog.codec import Document, encode
from commitlog.oplog.torn_reads import read_document

__all__ = ["CatalogRecords"]

R = TypeVar("R", Names, Pointer)

_NAMES = "names.json"
_POINTERS = "pointers/"


class CatalogRecords:
    """The records of one catalog. Thread-safe.

    ``names.json`` has the namespaces and tables. So each change of them, a rename across namespaces
    included, is one conditional write. ``pointers/ID.json`` has the metadata location of the table with
    that id, once the table has changed. So commits to different tables do not compete.

    Args:
        store: the store of the records. All clients of a catalog enforce conditions in the same way.
        clock: slept on between tries.
        backoff: the retry policy for changes of names that another client's change came before. It also
            gives the pauses after a damaged read; see `read_document`.
        new_id: makes the ids of tables and of changes.

    All methods may raise the errors of `ConditionalStore`, `CorruptRecord` and `FormatTooNew`.
    """

    def __init__(
        self,
        store: ConditionalStore,
        *,
        clock: Clock | None = None,
        backoff: Backoff | None = None,
        new_id: Callable[[], str] = random_id,
    ) -> None:
        self._store = store
        self._clock = SystemClock() if clock is None else clock
        self._backoff = Backoff(tries=12) if backoff is None else backoff
        self._new_id = new_id

    # -- names -------------------------------------------------------------------------------------

    def names(self) -> Names:
        """Return the present names. A catalog without a record is empty. One request."""
        return self._get(_NAMES, NAMES, Names.from_document) or Names()

    def change(self, edit: Callable[[Names], Names]) -> None:
        """Replace the names by what `edit` makes of them, in one conditional write.

        Args:
            edit: returns the new names. It is called again, with newer names, if another client's change
                came before. An error that it raises is raised; then nothing was written.

        Raises:
            Conflict: other clients' changes came before in every try. Nothing was written.
            OutcomeUnknown: an answer was lost, and the present names do not show whether the change
                happened.
        """

        def attempt() -> None:
            present = self.names()
            change = self._new_id()
            changed = edit(present).changed(change)
            self._write(
                _NAMES,
                changed.to_document(),
                replacing=present.etag,
                happened=lambda: self.names().shows_change(change, present),
            )

        self._backoff.retry(
            self._clock,
            attempt,
            on=(PreconditionFailed, AlreadyExists, Conflict),
            when=_is_rivalry,
            exhausted=_too_busy,
        )

    def drop(self, table: Levels) -> TableEntry:
        """Remove the name of a table; return its entry.

        Raises `TableMissing`, and what `change` raises.
        """
        dropped: list[TableEntry] = []

        def edit(names: Names) -> Names:
            dropped.append(names.table(table))
            return names.drop_table(table)

        self.change(edit)
        return dropped[-1]

    # -- pointers ----------------------------------------------------------------------------------

    def find(self, table: Levels) -> Pointer:
        """Return the present pointer of the table of that name. Two requests.

        A table that has not changed since it was created takes one more.

        Raises `TableMissing`.
        """
        entry = self.names().table(table)
        pointer = self._read(entry.id)
        if pointer is not None:
            return pointer
        # If the table was dropped meanwhile, its pointer is gone too, and the entry has an old location.
        # Ids are not reused: an entry that is still there was there all the time.
        if self.names().table(table) != entry:
            return self.find(table)
        return _first(entry)

    def move(self, pointer: Pointer, metadata_location: str) -> None:
        """Point to another metadata file, unless another client has moved it since it was read.

        Args:
            pointer: the pointer as it was read.
            metadata_location: a location that no pointer ever had.

        Raises:
            PreconditionFailed, AlreadyExists: another client has moved the pointer. Nothing
                was written.
            OutcomeUnknown: an answer was lost, and the present pointer does not show whether the write
                happened. The new metadata file, and all that it names, must be kept.
        """
        self._write(
            _pointer_path(pointer.table),
            pointer.moved(metadata_location).to_document(),
            replacing=pointer.etag,
            # A pointer that another writer moved after this one names this location, too.
            happened=lambda: self._shows_move(pointer, metadata_location),
        )

    def pointer(self, entry: TableEntry) -> Pointer:
        """Return the last pointer of a table that was just dropped. One request."""
        return self._read(entry.id) or _first(entry)

    def remove(self, table: str) -> None:
        """Remove the pointer of a table that has no name any more.

        The first commit to a table may write it again if it began before the table was dropped.
        `leftovers` finds it then.
        """
        self._store.delete(_pointer_path(table))

    def leftovers(self) -> list[str]:
        """Return the ids of dropped tables whose pointers are still stored, sorted.

        No name will have such an id again, because ids are not reused. So the pointers can be removed at
        any time. One request for each thousand pointers, and one for the names.
        """
        listed = [info.path for info in self._store.list(_POINTERS)]
        # Read after the listing: a table has a name before it has a pointer.
        used = {entry.id for entry in self.names().tables.values()}
        ids = (path.removeprefix(_POINTERS).removesuffix(".json") for path in listed)
        return sorted(id for id in ids if id not in used)

    def new_entry(self, metadata_location: str) -> TableEntry:
        """Return the entry of a new table, with an id that no table ever had."""
        return TableEntry(id=self._new_id(), metadata_location=metadata_location)

    # -- inside ------------------------------------------------------------------------------------

    def _read(self, table: str) -> Pointer | None:
        return self._get(_pointer_path(table), POINTER, partial(Pointer.from_document, table=table))

    def _get(self, path: str, kind: str, parse: Callable[[Document, str], R]) -> R | None:
        try:
            return read_document(
                self._store, path, kind, parse, clock=self._clock, backoff=self._backoff
            )
        except NotFound:
            return None

    def _shows_move(self, pointer: Pointer, metadata_location: str) -> bool | None:
        """Return whether the present pointer shows this move; None if nothing shows it any more."""
        present = self._read(pointer.table)
        return None if present is None else present.shows_move(metadata_location, pointer)

    def _write(
        self,
        path: str,
        document: Document,
        *,
        replacing: str | None,
        happened: Callable[[], bool | None],
    ) -> None:
        """Write a record if it is as it was read.

        Args:
            path: path of the record.
            document: the record.
            replacing: the etag of the record that was read; None if there was none.
            happened: returns whether the present record shows that this write happened; None if it
                cannot show it: the record was removed, or changed too often since.
        """
        data = encode(document)
        try:
            if replacing is None:
                self._store.put_if_absent(path, data)
            else:
                self._store.put_if_match(path, data, etag=replacing)
        except OutcomeUnknown as unknown:
            # A record that does not show it proves nothing: the request may still be on its way.
            if not _look(happened, unknown):
                raise
        except (PreconditionFailed, AlreadyExists) as refused:
            # A proxy may have repeated the request, and passed on the refusal of the second one
            # (RFC 9110, 9.2.2). Another writer may have replaced the first one's record since.
            shown = _look(happened, refused)
            if shown is None:
                raise OutcomeUnknown(
                    f"nothing shows whether {path!r} was written: the table was dropped, or the record"
                    " was changed too often since"
                ) from refused
            if not shown:
                raise


def _look(happened: Callable[[], bool | None], failure: CommitError) -> bool | None:
    """Return what `happened` returns. If it cannot, the outcome is unknown."""
    try:
        return happened()
    except CommitError as error:
        raise OutcomeUnknown(f"{failure}, and reading it back failed ({error})") from error


def _is_rivalry(error: CommitError) -> bool:
    """Return whether another client's write came before, and not a rule forbade the change."""
    return not isinstance(error, (NamespaceExists, TableExists))


def _too_busy(error: CommitError) -> Conflict:
    return Conflict(
        f"other clients changed the names of the catalog in every try; nothing was written ({error})"
    )


def _first(entry: TableEntry) -> Pointer:
    return Pointer(table=entry.id, metadata_location=entry.metadata_location)


def _pointer_path(table: str) -> str:
    return f"{_POINTERS}{table}.json"
