"""A table and a store that stand before those of a namespace, and count what they are asked for.

Imports errors, its siblings and the ports.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from commitlog.errors import CommitError
from commitlog.namespace.recording import Recorder
from commitlog.stores.api import (
    Body,
    Condition,
    Fence,
    IfMatch,
    ObjectData,
    ObjectInfo,
    ObjectStore,
    Observation,
    Page,
    PutResult,
    Staged,
    StagedInfo,
    StageWriter,
)
from commitlog.tables.api import (
    Check,
    Item,
    ItemPage,
    Key,
    Pending,
    Table,
    TableCondition,
    TableInfo,
    Write,
)

__all__ = ["CountingStore", "CountingTable"]

_EMPTY: Mapping[str, str] = MappingProxyType({})

#: Objects of a full page of a listing.
_PAGE = 1000


class CountingTable(Table):
    """A table whose requests are counted."""

    def __init__(self, table: Table, recorder: Recorder) -> None:
        self.url, self.schema = table.url, table.schema
        self._table = table
        self._recorder = recorder

    def create(self) -> bool:
        """See `Table.create`; not counted."""
        return self._table.create()

    def check(self) -> None:
        """See `Table.check`; not counted."""
        self._table.check()

    def describe(self) -> TableInfo:
        """See `Table.describe`; not counted."""
        return self._table.describe()

    def tag(self, tags: Mapping[str, str]) -> None:
        """See `Table.tag`; not counted."""
        self._table.tag(tags)

    def get(self, key: Key) -> Item | None:
        """See `Table.get`."""
        return self._recorder.watched("gets", lambda: self._table.get(key))

    def begin_put(self, item: Item, *, condition: TableCondition | None = None) -> Pending[None]:
        """See `Table.begin_put`."""
        pending = self._recorder.watched(
            "puts", lambda: self._table.begin_put(item, condition=condition)
        )
        return lambda: self._recorder.troubled(pending)

    def delete(self, key: Key, *, condition: TableCondition | None = None) -> None:
        """See `Table.delete`."""
        self._recorder.watched("deletes", lambda: self._table.delete(key, condition=condition))

    def query_page(
        self, hash_key: str, *, start_after: str = "", limit: int = 1000, token: str | None = None
    ) -> ItemPage:
        """See `Table.query_page`."""
        return self._recorder.watched(
            "queries",
            lambda: self._table.query_page(hash_key, start_after=start_after, limit=limit, token=token),
        )

    def scan_page(
        self, *, segment: int = 0, segments: int = 1, limit: int = 1000, token: str | None = None
    ) -> ItemPage:
        """See `Table.scan_page`."""
        return self._recorder.watched(
            "scans",
            lambda: self._table.scan_page(segment=segment, segments=segments, limit=limit, token=token),
        )

    def transact(self, writes: Sequence[Write], *, token: str | None = None) -> None:
        """See `Table.transact`."""
        self._recorder.add("writes", len(writes))
        self._recorder.add("checks", sum(isinstance(write, Check) for write in writes))
        self._recorder.watched("transactions", lambda: self._table.transact(writes, token=token))

    def close(self) -> None:
        """See `Table.close`."""
        self._table.close()


class CountingStore(ObjectStore):
    """A store whose requests are counted."""

    def __init__(self, store: ObjectStore, recorder: Recorder) -> None:
        self.url, self.capabilities = store.url, store.capabilities
        self._store = store
        self._recorder = recorder

    def key(self, path: str) -> str:
        """See `ObjectStore.key`; no request."""
        return self._store.key(path)

    def check(self) -> None:
        """See `ObjectStore.check`; no request."""
        self._store.check()

    def begin_head(self, path: str) -> Pending[Observation]:
        """See `ObjectStore.begin_head`."""
        pending = self._recorder.watched("store_heads", lambda: self._store.begin_head(path))
        return lambda: self._recorder.troubled(pending)

    def get(self, path: str, *, start: int = 0, end: int | None = None) -> ObjectData:
        """See `ObjectStore.get`."""
        return self._recorder.watched("store_gets", lambda: self._store.get(path, start=start, end=end))

    def list_page(
        self,
        prefix: str = "",
        *,
        start_after: str = "",
        delimiter: str = "",
        limit: int = 1000,
        token: str | None = None,
    ) -> Page:
        """See `ObjectStore.list_page`."""
        return self._recorder.watched(
            "store_lists",
            lambda: self._store.list_page(
                prefix, start_after=start_after, delimiter=delimiter, limit=limit, token=token
            ),
        )

    def list_pages(
        self, prefix: str = "", *, start_after: str = "", delimiter: str = ""
    ) -> Iterator[Page]:
        """See `ObjectStore.list_pages`; each page counts."""
        pages = self._store.list_pages(prefix, start_after=start_after, delimiter=delimiter)
        more = True
        while more:
            page = self._recorder.watched("store_lists", lambda: next(pages))
            more = page.next_token is not None
            yield page

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """See `ObjectStore.list`; a thousand objects count as a page."""
        self._recorder.add("store_lists")
        for number, info in enumerate(self._store.list(prefix, start_after=start_after)):
            if number and number % _PAGE == 0:
                self._recorder.add("store_lists")
            yield info

    def put(
        self,
        path: str,
        body: Body,
        *,
        condition: Condition | None = None,
        metadata: Mapping[str, str] = _EMPTY,
        content_type: str | None = None,
        fence: Fence | None = None,
    ) -> PutResult:
        """See `ObjectStore.put`."""
        return self._recorder.watched(
            "store_puts",
            lambda: self._store.put(
                path,
                body,
                condition=condition,
                metadata=metadata,
                content_type=content_type,
                fence=fence,
            ),
        )

    def copy(
        self,
        source: str,
        target: str,
        *,
        condition: Condition | None = None,
        fence: Fence | None = None,
    ) -> PutResult:
        """See `ObjectStore.copy`."""
        return self._recorder.watched(
            "store_copies",
            lambda: self._store.copy(source, target, condition=condition, fence=fence),
        )

    def delete(self, path: str, *, condition: IfMatch | None = None, fence: Fence | None = None) -> None:
        """See `ObjectStore.delete`."""
        self._recorder.watched(
            "store_deletes", lambda: self._store.delete(path, condition=condition, fence=fence)
        )

    def delete_many(self, paths: Iterable[str]) -> Mapping[str, CommitError]:
        """See `ObjectStore.delete_many`."""
        return self._recorder.watched("store_bulk_deletes", lambda: self._store.delete_many(paths))

    def begin_stage(
        self,
        path: str,
        *,
        metadata: Mapping[str, str] = _EMPTY,
        content_type: str | None = None,
    ) -> StageWriter:
        """See `ObjectStore.begin_stage`."""
        return self._recorder.watched(
            "store_stages",
            lambda: self._store.begin_stage(path, metadata=metadata, content_type=content_type),
        )

    def publish(
        self, staged: Staged, *, condition: Condition | None = None, fence: Fence | None = None
    ) -> PutResult:
        """See `ObjectStore.publish`."""
        return self._recorder.watched(
            "store_publishes",
            lambda: self._store.publish(staged, condition=condition, fence=fence),
        )

    def abort(self, staged: Staged | StagedInfo) -> None:
        """See `ObjectStore.abort`."""
        self._recorder.watched("store_aborts", lambda: self._store.abort(staged))

    def list_staged(self, prefix: str = "") -> Iterator[StagedInfo]:
        """See `ObjectStore.list_staged`."""
        self._recorder.add("store_staged_lists")
        return self._store.list_staged(prefix)

    def close(self) -> None:
        """See `ObjectStore.close`."""
        self._store.close()
