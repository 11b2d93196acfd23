"""Servers of a namespace on the simulator that tell of each change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from namespace_kit import ServiceTable

from commitlog.clock import Clock
from commitlog.errors import CommitError
from commitlog.stores.api import Body, PutResult, Staged
from commitlog.stores.memory import MemoryStore
from commitlog.tables.api import Item, Key, TableCondition, Write


class WatchedTable(ServiceTable):
    """A table that tells of each change, by the token of its transaction.

    Args:
        watch: is told.
        tokens: whether a transaction with the same token is done once.
    """

    def __init__(self, *, clock: Clock, watch: Callable[[str], object], tokens: bool) -> None:
        super().__init__(clock=clock)
        self.watch = watch
        self._tokens = tokens

    def transact(self, writes: Sequence[Write], *, token: str | None = None) -> None:
        """Do it, and tell."""
        if self._tokens and token in self.applied:
            return
        super(ServiceTable, self).transact(writes, token=token)
        self.applied.append(token or "")
        self.watch(token or "")

    def begin_put(self, item: Item, *, condition: TableCondition | None = None) -> Callable[[], None]:
        """Do it, and tell."""
        pending = super().begin_put(item, condition=condition)
        try:
            pending()
        except CommitError:
            return pending
        self.watch("")
        return pending

    def delete(self, key: Key, *, condition: TableCondition | None = None) -> None:
        """Do it, and tell."""
        super().delete(key, condition=condition)
        self.watch("")


class WatchedStore(MemoryStore):
    """A store that tells of each change."""

    def __init__(
        self, *, clock: Clock, words: Callable[[], str], watch: Callable[[str], object]
    ) -> None:
        super().__init__(clock=clock, words=words)
        self.watch = watch

    def put(self, path: str, body: Body, **options: Any) -> PutResult:
        """Do it, and tell."""
        result = super().put(path, body, **options)
        self.watch("")
        return result

    def publish(self, staged: Staged, **options: Any) -> PutResult:
        """Do it, and tell."""
        result = super().publish(staged, **options)
        self.watch("")
        return result

    def delete(self, path: str, **options: Any) -> None:
        """Do it, and tell."""
        super().delete(path, **options)
        self.watch("")

    def delete_many(self, paths: Iterable[str]) -> Mapping[str, CommitError]:
        """Do it, and tell."""
        result = super().delete_many(paths)
        self.watch("")
        return result
