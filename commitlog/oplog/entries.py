"""A directory of small records that are written once: pending operations, decisions, commit records.

Imports the codec, and knows a `ConditionalStore` by its methods.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from attrs import frozen

from commitlog.oplog.codec import Document, decode, encode
from commitlog.paths import join

if TYPE_CHECKING:
    from commitlog.commit.conditional import ConditionalStore

__all__ = ["Entries", "Listed"]

_SUFFIX = ".json"


@frozen
class Listed:
    """An entry as a listing shows it: its name, and when it was written by the store's clock."""

    name: str
    written: float


class Entries:
    """The records of some kinds, one an object, under ``directory/name.json``. Thread-safe.

    Args:
        store: where.
        directory: path below which the entries are. What lies deeper, or is no ``.json``, is not ours.
        kinds: the kinds of record that belong there.

    An entry appears whole, is never overwritten, and of racing writers of one name exactly one wins:
    the guarantees of `ConditionalStore.put_if_absent`.
    """

    def __init__(self, store: ConditionalStore, directory: str, kinds: frozenset[str]) -> None:
        self._store = store
        self._directory = directory
        self._kinds = kinds

    def path(self, name: str) -> str:
        """Return the path of the entry called `name`."""
        return join(self._directory, name + _SUFFIX)

    def add(self, name: str, document: Document) -> None:
        """Store a new entry. Raises `AlreadyExists`, `OutcomeUnknown`, or what the store raises."""
        self._store.put_if_absent(self.path(name), encode(document))

    def get(self, name: str) -> Document:
        """Return the entry. Raises `NotFound`, `CorruptRecord`, `FormatTooNew`."""
        path = self.path(name)
        return decode(self._store.get(path).data, self._kinds, path=path)

    def list(self, *, start_after: str = "") -> Iterator[Listed]:
        """Yield what a listing shows, page by page, without reading the entries."""
        top = join(self._directory, "")
        after = self.path(start_after) if start_after else ""
        for info in self._store.list(top, start_after=after):
            name = info.path.removeprefix(top)
            if "/" not in name and name.endswith(_SUFFIX):
                yield Listed(name.removesuffix(_SUFFIX), info.last_modified)

    def remove(self, name: str) -> None:
        """Remove the entry; one that is gone is no error."""
        self._store.delete(self.path(name))
