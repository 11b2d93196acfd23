"""One run of the checks of the `ObjectStore` contract, and its assertions."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias, TypeVar

from attrs import field, frozen

from commitlog.errors import CommitError, Conflict, Unavailable
from commitlog.stores.api import (
    Condition,
    IfAbsent,
    IfMatch,
    ObjectStore,
    PutResult,
    RequestExpiry,
    WriteOperation,
    same_etag,
)
from commitlog.testing.contract import assertions

__all__ = ["Conditions", "StoreRun", "race"]

T = TypeVar("T")

#: For each operation, kinds of condition: as in `Capabilities.conditions`.
Conditions: TypeAlias = Mapping[WriteOperation, frozenset[type[IfAbsent] | type[IfMatch]]]

#: How often a racer retries if the store says that it did nothing.
_TRIES = 50


@frozen(kw_only=True)
class StoreRun:
    """One run of the checks: the store, its known properties, and the run's own paths."""

    store: ObjectStore
    byte_order: bool
    conditions: Conditions
    races: Conditions
    enforces_expiry: bool
    nested: bool
    fresh_etags: bool
    forgets_uploads: bool
    threads: int
    keys: int
    prefix: str = field(factory=lambda: f"check-{uuid.uuid4().hex[:12]}/")

    def path(self, name: str) -> str:
        """Return a path of this run."""
        return self.prefix + name

    def honours(self, operation: WriteOperation, kind: type[IfAbsent] | type[IfMatch]) -> bool:
        """Return whether the store should honour conditions of `kind` on `operation`."""
        return kind in self.conditions.get(operation, frozenset())

    def expiry(self, seconds: int) -> RequestExpiry:
        """Return an expiry that many seconds from now; for a negative number, it has."""
        now = self.store.begin_head(self.path("clock"))().store_time
        assert now is not None, "a store that supports expiries must report its time with a HEAD"
        return RequestExpiry(now + min(seconds, 0) - 1, max(seconds, 1))

    def write(
        self,
        operation: WriteOperation,
        path: str,
        data: bytes,
        *,
        condition: Condition | None = None,
        expiry: RequestExpiry | None = None,
    ) -> PutResult:
        """Write `data` to `path` by a put, by the copy of a new object, or by publishing an upload."""
        if operation is WriteOperation.PUT:
            return self.store.put(path, data, condition=condition, expiry=expiry)
        if operation is WriteOperation.COPY:
            source = self.path(f"source-{uuid.uuid4().hex}")
            self.store.put(source, data)
            return self.store.copy(source, path, condition=condition, expiry=expiry)
        staged = self.store.stage(path, data)
        try:
            return self.store.publish(staged, condition=condition, expiry=expiry)
        except CommitError:
            self.store.abort(staged)
            raise

    def assert_holds(self, path: str, data: bytes | None, after: str) -> None:
        """Assert that `path` holds `data` now, or nothing if it is None; by HEAD, GET and list."""
        info = self.store.begin_head(path)().info
        listed = [found for found in self.store.list(path) if found.path == path]
        if data is None:
            assert info is None, f"after {after}: there is an object at {path!r}: {info}"
            assert not listed, f"after {after}: {path!r} is listed, but not there"
            return
        assert info is not None, f"after {after}: nothing at {path!r}"
        found = self.store.get(path)
        assert found.data == data, (
            f"after {after}: {path!r} holds {found.data[:40]!r}, not {data[:40]!r}"
        )
        assert len(listed) == 1, f"after {after}: {path!r} is listed {len(listed)} times"
        for one in (info, found, listed[0]):
            assert one.path == path, f"a request for {path!r} returned the path {one.path!r}"
            assert one.size == len(data), f"after {after}: size {one.size}, not {len(data)}"
            assert same_etag(one.etag, info.etag), f"two etags of {path!r}: {one.etag} and {info.etag}"
            assert one.last_modified > 0, f"{path!r} was last modified at {one.last_modified}"


def race(calls: Sequence[Callable[[], T]]) -> list[T | CommitError]:
    """Run `assertions.race`; repeat a call that did nothing."""
    return assertions.race([partial(_insist, call) for call in calls])


def _insist(call: Callable[[], T]) -> T:
    for _ in range(_TRIES - 1):
        with contextlib.suppress(Conflict, Unavailable):
            return call()
    return call()
