"""A store that counts its requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType

from commitlog._util.request_stats import RequestRecorder
from commitlog.errors import CommitError
from commitlog.stores.api import (
    Condition,
    IfMatch,
    InFlight,
    ObjectData,
    ObjectInfo,
    ObjectStore,
    Observation,
    Page,
    PutResult,
    RequestExpiry,
    Staged,
    StagedInfo,
    StageWriter,
    Versioning,
)
from commitlog.stores.body import Body

__all__ = ["CountingStore"]

_EMPTY: Mapping[str, str] = MappingProxyType({})

#: Number of objects in a full page of a listing.
_PAGE = 1000


class CountingStore(ObjectStore):
    """A store whose requests a recorder counts. Thread-safe.

    Args:
        store: the store that performs the requests.
        recorder: counts them as ``store_heads``, ``store_gets``, and so on: one name for each method,
            see `commitlog.namespace.RequestCounts`.
    """

    def __init__(self, store: ObjectStore, recorder: RequestRecorder) -> None:
        self.url, self.capabilities = store.url, store.capabilities
        self._store = store
        self._recorder = recorder

    def key(self, path: str) -> str:
        """See `ObjectStore.key`; no request."""
        return self._store.key(path)

    def portable_key(self, path: str) -> str:
        """See `ObjectStore.portable_key`; no request."""
        return self._store.portable_key(path)

    def check(self) -> None:
        """See `ObjectStore.check`; no request."""
        self._store.check()

    def versioning(self) -> Versioning | None:
        """See `ObjectStore.versioning`; not counted."""
        return self._store.versioning()

    def make_room(self) -> Callable[[], None] | None:
        """See `ObjectStore.make_room`; no request."""
        return self._store.make_room()

    def begin_head(self, path: str) -> InFlight[Observation]:
        """See `ObjectStore.begin_head`."""
        pending = self._recorder.request("store_heads", lambda: self._store.begin_head(path))
        return lambda: self._recorder.finish(pending)

    def get(self, path: str, *, start: int = 0, end: int | None = None) -> ObjectData:
        """See `ObjectStore.get`."""
        return self._recorder.request("store_gets", lambda: self._store.get(path, start=start, end=end))

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
        return self._recorder.request(
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
            page = self._recorder.request("store_lists", lambda: next(pages))
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
        expiry: RequestExpiry | None = None,
    ) -> PutResult:
        """See `ObjectStore.put`."""
        return self._recorder.request(
            "store_puts",
            lambda: self._store.put(
                path,
                body,
                condition=condition,
                metadata=metadata,
                content_type=content_type,
                expiry=expiry,
            ),
        )

    def copy(
        self,
        source: str,
        target: str,
        *,
        condition: Condition | None = None,
        expiry: RequestExpiry | None = None,
    ) -> PutResult:
        """See `ObjectStore.copy`."""
        return self._recorder.request(
            "store_copies",
            lambda: self._store.copy(source, target, condition=condition, expiry=expiry),
        )

    def delete(
        self, path: str, *, condition: IfMatch | None = None, expiry: RequestExpiry | None = None
    ) -> None:
        """See `ObjectStore.delete`."""
        self._recorder.request(
            "store_deletes", lambda: self._store.delete(path, condition=condition, expiry=expiry)
        )

    def delete_many(self, paths: Iterable[str]) -> Mapping[str, CommitError]:
        """See `ObjectStore.delete_many`."""
        return self._recorder.request("store_bulk_deletes", lambda: self._store.delete_many(paths))

    def begin_stage(
        self,
        path: str,
        *,
        metadata: Mapping[str, str] = _EMPTY,
        content_type: str | None = None,
    ) -> StageWriter:
        """See `ObjectStore.begin_stage`."""
        return self._recorder.request(
            "store_stages",
            lambda: self._store.begin_stage(path, metadata=metadata, content_type=content_type),
        )

    def publish(
        self, staged: Staged, *, condition: Condition | None = None, expiry: RequestExpiry | None = None
    ) -> PutResult:
        """See `ObjectStore.publish`."""
        return self._recorder.request(
            "store_publishes",
            lambda: self._store.publish(staged, condition=condition, expiry=expiry),
        )

    def abort(self, staged: Staged | StagedInfo) -> None:
        """See `ObjectStore.abort`."""
        self._recorder.request("store_aborts", lambda: self._store.abort(staged))

    def list_staged(self, prefix: str = "") -> Iterator[StagedInfo]:
        """See `ObjectStore.list_staged`."""
        self._recorder.add("store_staged_lists")
        return self._store.list_staged(prefix)

    def close(self) -> None:
        """See `ObjectStore.close`."""
        self._store.close()
