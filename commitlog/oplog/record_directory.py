"""A directory of small records that are written once: pending operations, decisions, commit records."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

from attrs import frozen

from commitlog.clock import Clock
from commitlog.commit.conditional import ConditionalStore
from commitlog.errors import NotFound, PreconditionFailed
from commitlog.oplog.codec import FORMAT, Document, decode, encode
from commitlog.paths import join

__all__ = ["ListedRecord", "NameRange", "RecordDirectory"]

_SUFFIX = ".json"


@frozen
class ListedRecord:
    """A listed entry: its name, and its time of writing by the store's clock."""

    name: str
    written: float


@frozen
class NameRange:
    """A range of names, such as a part of a directory that one of several processes reads.

    Attributes:
        start: the names that sort before it are not in the range.
        stop: this name, and those that sort after it, are not in the range; None: there is no end.
    """

    start: str = ""
    stop: str | None = None


#: The range of all names.
_EVERYTHING = NameRange()


class RecordDirectory:
    """Records of some kinds, one per object, at ``directory/name.json``. Thread-safe.

    Args:
        store: the store of the entries.
        directory: path of the entries. Deeper objects, and those not named ``.json``, are ignored.
        kinds: the kinds of records in it.
        newest: the newest format of its records.

    An entry appears whole, and only `note` changes it. Of racing writers of one name exactly one wins:
    these are the guarantees of `ConditionalStore.put_if_absent`.
    """

    def __init__(
        self,
        store: ConditionalStore,
        directory: str,
        kinds: frozenset[str],
        *,
        newest: int = FORMAT,
    ) -> None:
        self._store = store
        self._directory = directory
        self._kinds = kinds
        self._newest = newest

    def path(self, name: str) -> str:
        """Return the path of the entry called `name`."""
        return join(self._directory, name + _SUFFIX)

    def add(self, name: str, document: Document) -> None:
        """Store a new entry. Raises `AlreadyExists`, `OutcomeUnknown`, or the store's error."""
        self._store.put_if_absent(self.path(name), encode(document))

    def get(self, name: str) -> Document:
        """Return the entry. Raises `NotFound`, `CorruptRecord`, `FormatTooNew`."""
        path = self.path(name)
        return decode(self._store.get(path).data, self._kinds, path=path, newest=self._newest)

    def list(self, *, start_after: str = "", within: NameRange = _EVERYTHING) -> Iterator[ListedRecord]:
        """Yield the listed entries, page by page, without reading them.

        Args:
            start_after: only entries whose name sorts after this one.
            within: only entries in this range. Its bounds are compared with names that end in
                ``.json``, so they should be no names of entries.
        """
        top = join(self._directory, "")
        after = self.path(start_after) if start_after else ""
        if within.start:
            after = max(after, top + within.start)
        for info in self._store.list(top, start_after=after):
            name = info.path.removeprefix(top)
            if within.stop is not None and name >= within.stop:
                return
            if "/" not in name and name.endswith(_SUFFIX):
                yield ListedRecord(name.removesuffix(_SUFFIX), info.last_modified)

    def note(self, name: str, field: str) -> None:
        """Set a field to true, which also renews the entry's date. A removed entry stays removed."""
        with contextlib.suppress(NotFound, PreconditionFailed):
            found = self._store.get(self.path(name))
            document = decode(found.data, self._kinds, path=found.path, newest=self._newest)
            body = {**document.body, field: True}
            noted = encode(Document(document.kind, body, format=document.format))
            self._store.put_if_match(found.path, noted, etag=found.etag)

    def remove(self, name: str) -> None:
        """Remove the entry; a missing entry is no error."""
        self._store.delete(self.path(name))

    def remove_all(self, names: Iterable[str]) -> None:
        """Remove entries. Raises the first error, after all were tried."""
        for error in self._store.delete_many(self.path(name) for name in names).values():
            raise error

    def exists(self, name: str) -> bool:
        """Return whether the entry exists, without reading it."""
        return self._store.begin_head(self.path(name))().info is not None

    def now(self, clock: Clock) -> float:
        """Return the time of the store's clock, which dates entries; else that of `clock`."""
        store_time = self._store.begin_head(self.path("now"))().store_time
        # The store's time is rounded down, and no entry may seem to lie in the future.
        return clock.epoch() if store_time is None else store_time + 1
