"""The servers of a world of namespaces, which report each change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from commitlog.clock import Clock
from commitlog.errors import CommitError
from commitlog.stores.api import PutResult, Staged
from commitlog.stores.body import Body
from commitlog.stores.memory import MemoryStore
from commitlog.tables.api import Item, Key, TableCondition, Write
from support.namespace import ServiceTable


class WatchedTable(ServiceTable):
    """A table that reports each change, with the token of its transaction.

    Args:
        watch: called after each change.
        tokens: whether a transaction with the same token is performed once.
    """

    def __init__(self, *, clock: Clock, watch: Callable[[str], object], tokens: bool) -> None:
        super().__init__(clock=clock)
        self.watch = watch
        self._tokens = tokens

    @property
    def changes(self) -> int:
        """The number of changes of items so far."""
        return self._contents.changes

    def transact(self, writes: Sequence[Write], *, token: str | None = None) -> None:
        """Perform it, and report it."""
        if self._tokens and token in self.applied:
            return
        super(ServiceTable, self).transact(writes, token=token)
        self.applied.append(token or "")
        self.watch(token or "")

    def begin_put(self, item: Item, *, condition: TableCondition | None = None) -> Callable[[], None]:
        """Perform it, and report it."""
        pending = super().begin_put(item, condition=condition)
        try:
            pending()
        except CommitError:
            return pending
        self.watch("")
        return pending

    def delete(self, key: Key, *, condition: TableCondition | None = None) -> None:
        """Perform it, and report it."""
        super().delete(key, condition=condition)
        self.watch("")


class WatchedStore(MemoryStore):
    """A store that reports each change.

    Attributes:
        changes: number of mutations so far.
    """

    def __init__(
        self, *, clock: Clock, new_id: Callable[[], str], watch: Callable[[str], object]
    ) -> None:
        super().__init__(clock=clock, new_id=new_id)
        self.watch = watch
        self.changes = 0

    def put(self, path: str, body: Body, **options: Any) -> PutResult:
        """Perform it, and report it."""
        result = super().put(path, body, **options)
        self._changed()
        return result

    def copy(self, source: str, target: str, **options: Any) -> PutResult:
        """Perform it, and report it."""
        result = super().copy(source, target, **options)
        self._changed()
        return result

    def publish(self, staged: Staged, **options: Any) -> PutResult:
        """Perform it, and report it."""
        result = super().publish(staged, **options)
        self._changed()
        return result

    def delete(self, path: str, **options: Any) -> None:
        """Perform it, and report it."""
        super().delete(path, **options)
        self._changed()

    def delete_many(self, paths: Iterable[str]) -> Mapping[str, CommitError]:
        """Perform it, and report it."""
        result = super().delete_many(paths)
        self._changed()
        return result

    def etags(self) -> dict[str, str]:
        """Return the etag of each object by its path, in the order of the paths."""
        return {path: self._space.objects[path].etag for path in self._space.keys}

    def _changed(self) -> None:
        self.changes += 1
        self.watch("")
