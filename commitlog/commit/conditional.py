"""`ConditionalStore`: writes that happen only if the object is what the caller thinks it is."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import cache
from itertools import chain
from types import MappingProxyType, TracebackType
from typing import Any, Literal, TypeAlias, get_args

from commitlog._util.concurrency import OpenExecutor
from commitlog._util.ids import random_id
from commitlog._util.parsing import check_choice
from commitlog._util.retry import Backoff
from commitlog._util.tracing import Attributes, traced
from commitlog.clock import Clock, SystemClock
from commitlog.commit.bucket_identity import BucketIdentity, Root
from commitlog.commit.lease_committer import LeaseCommitter
from commitlog.commit.mutation import (
    Committer,
    Mutation,
    contradiction,
    holds,
    matching,
    quoted,
)
from commitlog.commit.native_committer import NativeCommitter
from commitlog.commit.probe_cache import ProbeCache, StoredReports
from commitlog.commit.probe_report import Kind, ProbeReport
from commitlog.commit.settings import LeaseSettings
from commitlog.errors import (
    CommitError,
    ConfigurationError,
    Conflict,
    InvalidPath,
    NotFound,
    NotSupported,
    OutcomeUnknown,
)
from commitlog.stores.api import (
    NONCE,
    Condition,
    IfAbsent,
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
    WriteOperation,
)
from commitlog.stores.body import STAGE_ABOVE, Body, chunks, split_body
from commitlog.tables.api import MAX_HASH_BYTES, Table
from commitlog.urls import parse_store_url

__all__ = ["ConditionalStore", "Mode"]

#: How conditions are enforced: where the store was proven to do it, else under leases; or one of them.
Mode: TypeAlias = Literal["auto", "native", "lease"]

#: The operations that can compete under a kind of condition, those that are quick to measure first.
_RIVALS: Mapping[type[Condition], tuple[WriteOperation, ...]] = MappingProxyType(
    {
        IfAbsent: (WriteOperation.PUT, WriteOperation.COPY, WriteOperation.PUBLISH),
        IfMatch: (WriteOperation.PUT, WriteOperation.DELETE, WriteOperation.PUBLISH),
    }
)

_EMPTY: Mapping[str, str] = MappingProxyType({})


def _span_attributes(store: ConditionalStore, arguments: Mapping[str, Any]) -> Attributes:
    path = arguments.get("path", getattr(arguments.get("staged"), "path", None))
    found = {
        "commitlog.store": store.url,
        "commitlog.path": path,
        "commitlog.source": arguments.get("source"),
        "commitlog.target": arguments.get("target"),
        "commitlog.prefix": arguments.get("prefix"),
    }
    if not store.url.startswith("s3://"):
        return found
    place = parse_store_url(store.url)
    key = arguments.get("target", path)
    if key is not None and place.prefix:
        key = f"{place.prefix}/{key}"
    return {**found, "aws.s3.bucket": place.name, "aws.s3.key": key}


@traced(_span_attributes, without=("key", "begin_head"))
class ConditionalStore:
    """Objects at paths, with conditional writes. Thread-safe.

    Args:
        store: the store of the objects.
        table: the table of leases (`commitlog.commit.record.LEASE_SCHEMA`), or None.
        mode: ``native``: only conditions that the store enforces; ``lease``: only leases; ``auto``:
            without a table native if the store enforces the very operation; with a table, native if it
            enforces the condition on every operation that could compete, else leases.
        settings: settings of leases.
        probe_report: the report of a `probe` of this store, or of another prefix of its bucket. Results
            that neither it nor the table has are measured at the first call that depends on them, which
            takes seconds rather than milliseconds. Results in the table take precedence, because all
            clients of a table must use the same way.
        clock: the clock of this process.
        backoff: the retry policy for requests that did nothing or got no response.
        new_id: makes unique ids: nonces and lease owners.
        open_executor: opens an executor for the races of a probe. Without it a server's conditions never
            count as proven; `commitlog.connect` passes one.
        finish: takes the releases of leases, see `LeaseCommitter`.
        lock: keeps threads from measuring the same thing at the same time, see `ProbeCache`.
        root: opens the whole bucket of `store`, where an object identifies the bucket, see
            `BucketIdentity`. By default `store` itself, if its URL has no prefix.

    Every conditional method returns (it happened), raises a typed error (nothing happened), or raises
    `OutcomeUnknown` (only if reading back could not decide, except `rename_if_absent`). Lost responses
    and conflicts are retried inside. In addition to the errors of each method, all may raise
    `NotSupported`, `AccessDenied`, `BucketNotFound`, `TableNotFound`, `InvalidPath`, `Unavailable`,
    `Conflict` and `LeaseTimeout`.

    All writers of one path must enforce conditions in the same way. No way excludes the plain writes:
    `put`, `copy`, `delete`, `delete_many` and `publish`, which are the store's own. Clients of the crate
    ``object_store`` in its ``dynamo:`` mode always take leases; to share paths with them, use ``lease``.

    >>> from commitlog.stores import MemoryStore
    >>> store = ConditionalStore(MemoryStore())
    >>> etag = store.put_if_absent("a", b"1").etag
    >>> store.put_if_absent("a", b"2")
    Traceback (most recent call last):
    commitlog.errors.AlreadyExists: there is an object at 'a' already; nothing was written
    >>> store.put_if_match("a", b"2", etag=etag).etag == store.head("a").etag
    True
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        table: Table | None = None,
        mode: Mode = "auto",
        settings: LeaseSettings | None = None,
        probe_report: ProbeReport | None = None,
        clock: Clock | None = None,
        backoff: Backoff | None = None,
        new_id: Callable[[], str] = random_id,
        open_executor: OpenExecutor | None = None,
        finish: Callable[[InFlight[None]], None] = lambda pending: pending(),
        lock: AbstractContextManager[object] | None = None,
        root: Root | None = None,
    ) -> None:
        check_choice("mode", mode, get_args(Mode))
        if mode == "lease" and table is None:
            raise ConfigurationError("mode 'lease' needs a table to keep leases in")
        if mode == "native" and table is not None:
            raise ConfigurationError("mode 'native' uses no table; leave it out, or choose 'auto'")
        clock = SystemClock() if clock is None else clock
        backoff = Backoff() if backoff is None else backoff
        #: The store itself, for code that needs an `ObjectStore`, such as a `probe`.
        self.object_store = store
        self._table = table
        self._finish = finish
        self._new_id = new_id
        findings: StoredReports | None = None
        lease: LeaseCommitter | None = None
        settings = LeaseSettings() if settings is None else settings
        if table is not None:
            check = cache(table.check)
            if root is None and not parse_store_url(store.url).prefix:
                root = lambda: contextlib.nullcontext(store)  # noqa: E731
            bucket = BucketIdentity(table, store, root=root, clock=clock, backoff=backoff, new_id=new_id)
            findings = StoredReports(table, store, bucket=bucket, check=check)
            lease = LeaseCommitter(
                store,
                table,
                settings=settings,
                clock=clock,
                backoff=backoff,
                new_id=new_id,
                check=check,
                enforces_expiry=lambda: self._probe_cache.proves(Kind.REQUEST_EXPIRY),
                finish=finish,
            )
        self._lease = lease
        self._settings = settings
        self._probe_cache = ProbeCache(
            store,
            probe_report,
            findings=findings,
            open_executor=open_executor,
            lock=lock,
            new_id=new_id,
            clock=clock,
        )
        self._strategy = _Strategy(
            store,
            native=None
            if mode == "lease"
            else NativeCommitter(store, clock=clock, backoff=backoff, spelled=self._spelled),
            lease=lease,
            probe_cache=self._probe_cache,
        )

    @property
    def url(self) -> str:
        """The store's URL, without credentials."""
        return self.object_store.url

    @property
    def probe_report(self) -> ProbeReport:
        """The known results about the conditions that the store enforces; keep and reuse it."""
        return self._probe_cache.report

    def probe(self) -> None:
        """Probe now what the first `put_if_absent` and `put_if_match` would probe.

        Call it in another thread, so that those calls do not wait. It does nothing if the results are
        known. Raises what the probe raises, and `NotSupported` as those calls would.
        """
        for condition in (IfAbsent(), IfMatch('""')):
            self._strategy.choose(WriteOperation.PUT, condition)

    def save_probe_report(self, probe_report: ProbeReport) -> None:
        """Keep `probe_report` in the table for all clients of the table, in place of earlier results.

        Do this while no writer on ``auto`` is active: active ones continue with the earlier results.
        Raises `ConfigurationError` if there is no table, or if the report is of another bucket.
        """
        if self._probe_cache.findings is None:
            raise ConfigurationError("there is no table for the probe report")
        self._probe_cache.findings.replace(probe_report)

    def stored_probe_report(self) -> ProbeReport:
        """Return the results that the table keeps for all its clients; without rows if it has none.

        Nothing is measured. But a table that does not know the bucket yet gets to know it, see
        `BucketIdentity`. Raises `ConfigurationError` if there is no table, and `CorruptRecord`.
        """
        if self._probe_cache.findings is None:
            raise ConfigurationError("there is no table that could have a probe report")
        return self._probe_cache.findings.report()

    # -- conditional -------------------------------------------------------------------------------

    def put_if_absent(
        self,
        path: str,
        data: Body,
        *,
        metadata: Mapping[str, str] = _EMPTY,
        content_type: str | None = None,
    ) -> PutResult:
        """Create the object unless it exists.

        Args:
            path: path of the object.
            data: bytes, or a binary file, read from its position to its end. Larger bodies than 8 MiB
                are staged first; under a lease, bodies larger than `LeaseSettings.largest_body` (160 KiB
                by default). The object appears whole, or not at all.
            metadata: user metadata; the library adds a nonce.
            content_type: media type.

        Raises:
            AlreadyExists: the object exists; nothing was written.
            OutcomeUnknown: a response was lost, and the present object does not show the outcome:
                another writer's object is there, or, under a lease, the lease ended before the outcome
                was seen. Natively, also if the write was refused and the present object could not be
                read.
        """
        return self._put(path, data, IfAbsent(), metadata, content_type)

    def put_if_match(
        self,
        path: str,
        data: Body,
        *,
        etag: str,
        metadata: Mapping[str, str] = _EMPTY,
        content_type: str | None = None,
    ) -> PutResult:
        """Replace the object if it still has `etag` (quoted or bare).

        If the store's etag is a digest of the content, an object that changed and changed back has the
        same etag again.

        Raises:
            PreconditionFailed: it has another etag, or does not exist; nothing was written.
            OutcomeUnknown: as in `put_if_absent`.
        """
        return self._put(path, data, IfMatch(quoted(etag)), metadata, content_type)

    def copy_if_absent(self, source: str, target: str) -> PutResult:
        """Copy an object with its metadata, unless there is one under `target`.

        Raises:
            NotFound: there is no source; nothing was written.
            AlreadyExists: there is a target; nothing was written.
            OutcomeUnknown: an answer was lost, and there is a target that may be another's: natively
                any, under a lease one that has neither the nonce nor the etag of the source, or that was
                seen after the lease ended.
        """
        committer = self._choose(WriteOperation.COPY, IfAbsent(), target)

        def send(condition: Condition | None, expiry: RequestExpiry | None) -> PutResult:
            return self.object_store.copy(source, target, condition=condition, expiry=expiry)

        mutation = Mutation(
            operation=WriteOperation.COPY,
            path=target,
            condition=IfAbsent(),
            send=send,
            source=lambda: self.object_store.begin_head(source)().info,
        )
        return _written(committer.run(mutation))

    def delete_if_match(self, path: str, *, etag: str) -> None:
        """Remove the object, if it still has `etag` (quoted or bare).

        Raises:
            PreconditionFailed: it has another etag, or there is none; nothing was removed.
            OutcomeUnknown: an answer was lost, and the object is gone or replaced; under a lease, only
                if it was replaced, or if the lease ended before the outcome was seen.
        """
        condition = IfMatch(quoted(etag))
        committer = self._choose(WriteOperation.DELETE, condition, path)

        def send(sent: Condition | None, expiry: RequestExpiry | None) -> None:
            assert not isinstance(sent, IfAbsent)
            self.object_store.delete(path, condition=sent, expiry=expiry)

        committer.run(
            Mutation(operation=WriteOperation.DELETE, path=path, condition=condition, send=send)
        )

    def rename_if_absent(self, source: str, target: str) -> PutResult:
        """Copy the source to `target`, unless there is one, and then remove the source.

        It is not atomic: for a while both exist, and if this process dies, or the source can not be
        removed, both remain.

        Raises:
            NotFound: there is no source; nothing happened.
            AlreadyExists: there is a target; nothing happened.
            OutcomeUnknown: as `copy_if_absent`; or the target was written but the source remains: it
                changed meanwhile, or could not be removed. The cause says which, the message that
                both exist.
        """
        seen = self.object_store.head(source)
        # A rename that could not end is not begun.
        self.check_delete()
        result = self.copy_if_absent(source, target)
        try:
            self.delete_if_match(source, etag=seen.etag)
        except CommitError as error:
            raise OutcomeUnknown(
                f"{source!r} was copied to {target!r}, but the source may not have been removed "
                f"({error}). Both may exist: check the source, and remove it if you do not need it"
            ) from error
        return result

    def publish_if_absent(self, staged: Staged, *, abort: bool = False) -> PutResult:
        """Make a staged upload visible at its path, unless another object is there.

        Publishing the same upload again, also by another process, succeeds while the object is there.

        Args:
            staged: the upload.
            abort: drop the upload if it was not published, unless the outcome is unknown. Only for an
                upload that no other process publishes. Then `NotFound` is not raised either: a missing
                upload raises `AlreadyExists` or `Conflict`.

        Raises:
            AlreadyExists: there is another object; the upload stays staged, without `abort`.
            NotFound: there is no such upload, and its object is not there.
            ConfigurationError: a lease is too short for the list of its parts; nothing was sent.
            OutcomeUnknown: as in `put_if_absent`.
        """
        if abort:
            return self._publish_once(staged, IfAbsent())
        return self._publish(staged, IfAbsent(), shared=True)

    def check_absent(self, path: str, *, staged: bool = False) -> None:
        """Raise what creating an object would raise now; do nothing if it could be created.

        It is for writers that get their content later: what cannot succeed is refused at once. It does
        not reserve the path.

        Args:
            path: the path of the object.
            staged: whether the content will be staged, and published by `publish_if_absent`.

        Raises:
            AlreadyExists: the object exists.
            NotSupported: there is no way to enforce the condition.
        """
        self._choose(WriteOperation.PUBLISH if staged else WriteOperation.PUT, IfAbsent(), path)
        self._look(path, IfAbsent())

    def check_delete(self) -> None:
        """Raise `NotSupported` if there is no way to enforce the condition of `delete_if_match`.

        It is for callers that do something else first, such as a copy. It looks at no object. If it is
        not known whether the store enforces the condition, that is measured, as at the first deletion.
        """
        self._strategy.choose(WriteOperation.DELETE, IfMatch('""'))

    # -- the store's own ---------------------------------------------------------------------------

    def key(self, path: str) -> str:
        """Return the full key of `path` in its bucket; see `ObjectStore.key`. Sends no request."""
        return self.object_store.key(path)

    def portable_key(self, path: str) -> str:
        """Return the key of `path` in any place of its bucket; see `ObjectStore.portable_key`."""
        return self.object_store.portable_key(path)

    def begin_head(self, path: str) -> InFlight[Observation]:
        """Send a HEAD and return at once; see `ObjectStore.begin_head`."""
        return self.object_store.begin_head(path)

    def head(self, path: str) -> ObjectInfo:
        """Return the description of the object; see `ObjectStore.head`."""
        return self.object_store.head(path)

    def get(self, path: str, *, start: int = 0, end: int | None = None) -> ObjectData:
        """Return the object with its bytes, or some of them; see `ObjectStore.get`."""
        return self.object_store.get(path, start=start, end=end)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """Yield every object whose path starts with `prefix`; see `ObjectStore.list`."""
        return self.object_store.list(prefix, start_after=start_after)

    def list_pages(
        self, prefix: str = "", *, start_after: str = "", delimiter: str = ""
    ) -> Iterator[Page]:
        """Yield all pages of a listing; see `ObjectStore.list_pages`."""
        return self.object_store.list_pages(prefix, start_after=start_after, delimiter=delimiter)

    def list_page(
        self,
        prefix: str = "",
        *,
        start_after: str = "",
        delimiter: str = "",
        limit: int = 1000,
        token: str | None = None,
    ) -> Page:
        """Return one page of a listing; see `ObjectStore.list_page`."""
        return self.object_store.list_page(
            prefix, start_after=start_after, delimiter=delimiter, limit=limit, token=token
        )

    def put(
        self,
        path: str,
        data: Body,
        *,
        metadata: Mapping[str, str] = _EMPTY,
        content_type: str | None = None,
    ) -> PutResult:
        """Store an object, whatever is there; see `ObjectStore.put`."""
        return self.object_store.put(path, data, metadata=metadata, content_type=content_type)

    def copy(self, source: str, target: str) -> PutResult:
        """Copy an object over whatever is there; see `ObjectStore.copy`."""
        return self.object_store.copy(source, target)

    def delete(self, path: str) -> None:
        """Remove the object, if there is one; see `ObjectStore.delete`."""
        self.object_store.delete(path)

    def delete_many(self, paths: Iterable[str]) -> Mapping[str, CommitError]:
        """Remove objects; return the error of each that may remain; see `ObjectStore.delete_many`."""
        return self.object_store.delete_many(paths)

    def begin_stage(
        self,
        path: str,
        *,
        metadata: Mapping[str, str] = _EMPTY,
        content_type: str | None = None,
    ) -> StageWriter:
        """Begin an invisible upload for `publish_if_absent`; see `ObjectStore.begin_stage`."""
        return self.object_store.begin_stage(path, metadata=metadata, content_type=content_type)

    def stage(
        self,
        path: str,
        body: Body,
        *,
        metadata: Mapping[str, str] = _EMPTY,
        content_type: str | None = None,
    ) -> Staged:
        """Upload all of `body`, still invisible; see `ObjectStore.stage`."""
        return self.object_store.stage(path, body, metadata=metadata, content_type=content_type)

    def publish(self, staged: Staged) -> PutResult:
        """Make a staged upload visible, whatever is at its path; see `ObjectStore.publish`."""
        return self.object_store.publish(staged)

    def abort(self, staged: Staged | StagedInfo) -> None:
        """Drop a staged upload, if it is still there; see `ObjectStore.abort`."""
        self.object_store.abort(staged)

    def list_staged(self, prefix: str = "") -> Iterator[StagedInfo]:
        """Yield the uploads that are neither published nor aborted; see `ObjectStore.list_staged`."""
        return self.object_store.list_staged(prefix)

    # -- life --------------------------------------------------------------------------------------

    def close(self) -> None:
        """Release the connections and files of store and table. Idempotent."""
        # A release of this thread whose answer was not read could be cut off, and its lease run out.
        self._finish(lambda: None)
        if self._table is not None:
            self._table.close()
        self.object_store.close()

    def __enter__(self) -> ConditionalStore:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"ConditionalStore({self.url!r})"

    # -- inside ------------------------------------------------------------------------------------

    def _spelled(self, mutation: Mutation) -> Condition:
        """Return the condition of a native mutation in a dialect that the store honours."""
        condition = mutation.condition
        kind = Kind.of(mutation.operation, condition)
        dialect = None if kind is None else self._probe_cache.dialect(kind)
        if dialect is None or dialect is condition.dialect:
            return condition
        if isinstance(condition, IfMatch):
            return matching(condition.etag, dialect)
        return IfAbsent(dialect)

    def _choose(self, operation: WriteOperation, condition: Condition, path: str) -> Committer:
        """Return the committer of a call. Raises `NotSupported` and `InvalidPath`; nothing was sent."""
        committer = self._strategy.choose(operation, condition)
        if committer is self._lease and (size := len(self.key(path).encode())) > MAX_HASH_BYTES:
            raise InvalidPath(
                f"the key of {path!r} in its store has {size} bytes, and a lease is possible for at most"
                f" {MAX_HASH_BYTES}; nothing was sent. Use a shorter path, or a shorter root of a local"
                " store; or let the store enforce the condition, without a table"
            )
        return committer

    def _put(
        self,
        path: str,
        data: Body,
        condition: Condition,
        metadata: Mapping[str, str],
        content_type: str | None,
    ) -> PutResult:
        marked = {**metadata, NONCE: self._new_id()}
        small, rest = split_body(data, STAGE_ABOVE)
        if rest is not None:
            return self._put_large(path, chain((small,), chunks(rest)), condition, marked, content_type)
        committer = self._choose(WriteOperation.PUT, condition, path)
        if committer is self._lease and len(small) > self._settings.largest_body:
            return self._put_large(path, chunks(small), condition, marked, content_type)

        def send(sent: Condition | None, expiry: RequestExpiry | None) -> PutResult:
            return self.object_store.put(
                path, small, condition=sent, metadata=marked, content_type=content_type, expiry=expiry
            )

        mutation = Mutation(
            operation=WriteOperation.PUT, path=path, condition=condition, send=send, nonce=marked[NONCE]
        )
        return _written(committer.run(mutation))

    def _put_large(
        self,
        path: str,
        pieces: Iterable[bytes | memoryview],
        condition: Condition,
        metadata: Mapping[str, str],
        content_type: str | None,
    ) -> PutResult:
        # What cannot succeed is refused before anything is uploaded.
        self._choose(WriteOperation.PUBLISH, condition, path)
        self._look(path, condition)
        with self.object_store.begin_stage(path, metadata=metadata, content_type=content_type) as writer:
            for piece in pieces:
                writer.write(piece)
            staged = writer.finish()
        return self._publish_once(staged, condition)

    def _publish_once(self, staged: Staged, condition: Condition) -> PutResult:
        """Publish an upload that only this call publishes. If nothing happened, drop it."""
        try:
            return self._publish(staged, condition)
        except OutcomeUnknown:
            raise
        except CommitError as error:
            with contextlib.suppress(CommitError):  # it stays staged then, for a clean-up to find
                self.object_store.abort(staged)
            if not isinstance(error, NotFound):
                raise
            # S3 says to begin the upload again after a 409 ("CompleteMultipartUpload", If-None-Match),
            # so a retry with the old one may find it gone. If the rival won, the condition shows it.
            self._look(staged.path, condition)
            raise Conflict(
                f"the upload to {staged.path!r} was gone before it could be published; nothing was"
                " written. Write it again"
            ) from error

    def _look(self, path: str, condition: Condition) -> None:
        """Raise the typed failure of `condition` if it does not hold now."""
        info = self.object_store.begin_head(path)().info
        if not holds(condition, info):
            raise contradiction(path, condition, info)

    def _publish(self, staged: Staged, condition: Condition, *, shared: bool = False) -> PutResult:
        committer = self._choose(WriteOperation.PUBLISH, condition, staged.path)

        def send(sent: Condition | None, expiry: RequestExpiry | None) -> PutResult:
            return self.object_store.publish(staged, condition=sent, expiry=expiry)

        mutation = Mutation(
            operation=WriteOperation.PUBLISH,
            path=staged.path,
            condition=condition,
            send=send,
            nonce=staged.nonce,
            body=staged.list_size,
            shared=shared,
        )
        return _written(committer.run(mutation))


class _Strategy:
    """Chooses a committer for each kind of call. Thread-safe.

    Args:
        store: the store of the objects.
        native: leaves the condition to the store; None: not allowed.
        lease: works under leases; None: there is no table.
        probe_cache: the known probe results of the store.

    A condition that the store enforces does not exclude a plain write under a lease, nor the lease the
    condition. So calls that can compete for one version of an object use the same way: with a table, a
    condition is left to the store only if it enforces it on every operation that takes it. Conditions of
    different kinds never compete: one needs an object, the other needs none. All *clients* of one path
    must make the same choice, too; those that share a table do, see `StoredReports`.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        native: Committer | None,
        lease: Committer | None,
        probe_cache: ProbeCache,
    ) -> None:
        self._store = store
        self._native = native
        self._lease = lease
        self._probe_cache = probe_cache

    def choose(self, operation: WriteOperation, condition: Condition) -> Committer:
        """Return the committer of `operation` under `condition`. Raises `NotSupported`."""
        if self._native is not None and self._enforced(operation, condition):
            rivals = _RIVALS[type(condition)]
            if self._lease is None or all(self._enforced(rival, condition) for rival in rivals):
                return self._native
        if self._lease is not None:
            return self._lease
        kind = "absent" if isinstance(condition, IfAbsent) else "match"
        raise NotSupported(
            f"{self._store.url} does not enforce {operation.value}-if-{kind} (run `commitlog probe` "
            "for details), and there is no table for leases; nothing was sent. Give one: "
            "table='dynamodb://NAME', or 'sqlite:///ABSOLUTE/FILE' for writers on one machine"
        )

    def _enforced(self, operation: WriteOperation, condition: Condition) -> bool:
        if not self._store.capabilities.carries(operation, condition):
            return False
        kind = Kind.of(operation, condition)
        return kind is not None and self._probe_cache.proves(kind)


def _written(result: PutResult | None) -> PutResult:
    assert result is not None  # only a deletion has none
    return result
