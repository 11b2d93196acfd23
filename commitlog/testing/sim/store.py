"""The simulated client through which a node uses a store."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from attrs import evolve

from commitlog.errors import AccessDenied, CommitError, NotFound, RequestExpired, Unavailable
from commitlog.stores.api import (
    Condition,
    IfMatch,
    InFlight,
    ObjectData,
    ObjectStore,
    Observation,
    Page,
    PutResult,
    RequestExpiry,
    Staged,
    StagedInfo,
    StageWriter,
)
from commitlog.stores.body import Body, chunks
from commitlog.testing.sim.faults import Fault
from commitlog.testing.sim.request import begin, call
from commitlog.testing.sim.simulation import Node

__all__ = ["SimulatedStore", "store_state"]

T = TypeVar("T")

_EMPTY: Mapping[str, str] = MappingProxyType({})


class SimulatedStore(ObjectStore):
    """An `ObjectStore` that sends every request through a `Simulation`.

    Args:
        node: the node that uses this client.
        server: the store itself, such as a `commitlog.stores.memory.MemoryStore` on a clock of
            `Simulation.server_clock`. It is called when a request arrives, one at a time. Its answers
            count as the truth, so it may raise only the errors that the port allows.
        conditions: whether the store enforces conditions. If not, this client sends none, like the
            client of a store that failed a probe.
        enforces_expiry: whether the store enforces expiries. If not, requests carry expiries but the
            server ignores them. A `ConditionalStore` learns this only from a given probe report. Without
            one, it probes the store in the simulation.
        spared: faults that never strike mutations, such as those that no guarantee covers.
        denied: mutations that this client has no permission for, by the names of the port's methods,
            such as ``publish``. The server answers them with `AccessDenied` and does nothing.
        trusts_any_404: whether the client attributes every 404 to the store, even one from an
            intermediary. A client that does not trust it retries, and finally raises `Unavailable`.
        bandwidth: number of body bytes that reach the store per second of true time. The store checks
            the expiry when the head of a request arrives. It performs the request when the body is
            complete.
    """

    def __init__(
        self,
        node: Node,
        server: ObjectStore,
        *,
        conditions: bool = True,
        enforces_expiry: bool = True,
        spared: Iterable[Fault] = (),
        denied: Iterable[str] = (),
        trusts_any_404: bool = False,
        bandwidth: float = math.inf,
    ) -> None:
        self._trusts_any_404 = trusts_any_404
        self._node = node
        self._denied = frozenset(denied)
        self._bandwidth = bandwidth
        self._spared = frozenset(spared)
        self._server = server
        self._enforces_expiry = enforces_expiry
        self.url = server.url
        self.capabilities = evolve(
            server.capabilities,
            conditions=server.capabilities.conditions if conditions else {},
            enforced=enforces_expiry,
            request_expiry=server.capabilities.request_expiry,
        )

    def key(self, path: str) -> str:
        """Return the full key of `path` in its bucket."""
        return self._server.key(path)

    # reads

    def begin_head(self, path: str) -> InFlight[Observation]:
        """See `ObjectStore.begin_head`."""
        return begin(
            self._node,
            f"head {path}",
            lambda: self._server.begin_head(path)(),
            mutates=False,
            instead=self._misrouted(lambda: evolve(self._server.begin_head(path)(), info=None)),
        )

    def get(self, path: str, *, start: int = 0, end: int | None = None) -> ObjectData:
        """See `ObjectStore.get`."""

        def absent() -> ObjectData:
            raise NotFound(f"no object at {path!r} in {self.url}")

        return call(
            self._node,
            f"get {path}",
            lambda: self._server.get(path, start=start, end=end),
            mutates=False,
            instead=self._misrouted(absent),
        )

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
        return self._read(
            f"list {prefix}",
            lambda: self._server.list_page(
                prefix, start_after=start_after, delimiter=delimiter, limit=limit, token=token
            ),
        )

    # mutations

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
        # A request that is performed twice needs the same body twice.
        data = body if type(body) is bytes else b"".join(chunks(body))
        return self._write(
            f"put {path}",
            lambda kept: self._server.put(
                path,
                data,
                condition=condition,
                metadata=metadata,
                content_type=content_type,
                expiry=kept,
            ),
            condition,
            expiry,
            size=len(data),
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
        return self._write(
            f"copy {source} {target}",
            lambda kept: self._server.copy(source, target, condition=condition, expiry=kept),
            condition,
            expiry,
        )

    def delete(
        self, path: str, *, condition: IfMatch | None = None, expiry: RequestExpiry | None = None
    ) -> None:
        """See `ObjectStore.delete`."""
        self._write(
            f"delete {path}",
            lambda kept: self._server.delete(path, condition=condition, expiry=kept),
            condition,
            expiry,
        )

    def delete_many(self, paths: Iterable[str]) -> Mapping[str, CommitError]:
        """See `ObjectStore.delete_many`. A partial deletion keeps every second path."""
        paths = list(paths)

        def all_of_them() -> Mapping[str, CommitError]:
            self._check_allowed("delete_many")
            return self._server.delete_many(paths)

        def some() -> Mapping[str, CommitError]:
            self._check_allowed("delete_many")
            kept = paths[1::2]
            refused: dict[str, CommitError] = {path: Unavailable("InternalError") for path in kept}
            return {**self._server.delete_many(paths[::2]), **refused}

        return call(
            self._node,
            f"delete_many {len(paths)}",
            all_of_them,
            mutates=True,
            instead={Fault.PARTIAL: some},
            spared=self._spared,
        )

    # uploads

    def begin_stage(
        self,
        path: str,
        *,
        metadata: Mapping[str, str] = _EMPTY,
        content_type: str | None = None,
    ) -> StageWriter:
        """See `ObjectStore.begin_stage`."""
        inner = self._upload(
            f"begin_stage {path}",
            lambda: self._server.begin_stage(path, metadata=metadata, content_type=content_type),
        )
        return _Writer(self, path, inner)

    def publish(
        self, staged: Staged, *, condition: Condition | None = None, expiry: RequestExpiry | None = None
    ) -> PutResult:
        """See `ObjectStore.publish`."""
        return self._write(
            f"publish {staged.path}",
            lambda kept: self._server.publish(staged, condition=condition, expiry=kept),
            condition,
            expiry,
        )

    def abort(self, staged: Staged | StagedInfo) -> None:
        """See `ObjectStore.abort`."""
        self._write(f"abort {staged.path}", lambda _: self._server.abort(staged), None, None)

    def list_staged(self, prefix: str = "") -> Iterator[StagedInfo]:
        """See `ObjectStore.list_staged`."""
        found = self._read(f"list_staged {prefix}", lambda: tuple(self._server.list_staged(prefix)))
        return iter(found)

    # inside

    def _misrouted(self, answer: Callable[[], T]) -> Mapping[Fault, Callable[[], T]]:
        return {Fault.MISROUTED: answer} if self._trusts_any_404 else {}

    def _read(self, what: str, perform: Callable[[], T]) -> T:
        return call(self._node, what, perform, mutates=False)

    def _upload(self, what: str, perform: Callable[[], T], *, size: int = 0) -> T:
        # Real clients retry staged uploads, which readers cannot see, until they have an answer.
        def allowed() -> T:
            self._check_allowed(what.partition(" ")[0])
            return perform()

        return call(self._node, what, allowed, mutates=False, body=size / self._bandwidth)

    def _write(
        self,
        what: str,
        perform: Callable[[RequestExpiry | None], T],
        condition: Condition | None,
        expiry: RequestExpiry | None,
        *,
        size: int = 0,
    ) -> T:
        kept = expiry if self._enforces_expiry else None
        body = size / self._bandwidth

        def allowed() -> T:
            self._check_allowed(what.partition(" ")[0])
            return perform(None if body else kept)

        return call(
            self._node,
            what,
            allowed,
            mutates=True,
            more=() if condition is None else (Fault.CONFLICT,),
            spared=self._spared,
            body=body,
            admit=lambda: self._check_expiry(what, kept),
        )

    def _check_allowed(self, method: str) -> None:
        """Raise `AccessDenied`, as the server would, if the client may not call `method`."""
        if method in self._denied:
            raise AccessDenied(f"{self._node.name} has no permission to {method}")

    def _check_expiry(self, what: str, expiry: RequestExpiry | None) -> None:
        """Refuse a late request by the store's clock, which it truncates to whole seconds."""
        if expiry is None:
            return
        now = self._server.begin_head("clock")().store_time
        if now is not None and now > expiry.expires_at:
            raise RequestExpired(f"{what} came after its expiry")


class _Writer(StageWriter):
    def __init__(self, store: SimulatedStore, path: str, inner: StageWriter) -> None:
        self._store = store
        self._path = path
        self._inner = inner
        self._over = False
        self._size = 0

    def _append(self, data: memoryview) -> None:
        self._size += self._inner.write(data)

    def finish(self) -> Staged:
        staged = self._store._upload(f"finish {self._path}", self._inner.finish, size=self._size)
        self._over = True
        return staged

    def abort(self) -> None:
        if not self._over:
            self._over = True
            self._store._upload(f"abort {self._path}", self._inner.abort)


def store_state(server: ObjectStore) -> Callable[[], Hashable]:
    """Return a function for `Simulation.add_state` that returns all contents of a small `server`."""

    def state() -> Hashable:
        objects: list[Any] = []
        for listed in server.list():
            got = server.get(listed.path)
            metadata = tuple(sorted(got.metadata.items()))
            objects.append((got.path, got.etag, got.last_modified, got.data, metadata))
        staged = tuple((found.path, found.upload_id, found.initiated) for found in server.list_staged())
        return tuple(objects), staged

    return state
