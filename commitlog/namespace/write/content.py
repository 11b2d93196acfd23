"""The content of files, as objects with unique paths that are written once.

An object is written whole under a new path, before any file refers to it, and is never written again. So
a file's entry says exactly which content it has: a reader finds that content or nothing, but never a
mixture. If the store supports conditional writes, an object is written only if the path is free. Then a
network that delivers a request twice cannot change the object.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable

from attrs import field, frozen

from commitlog._util.request_stats import RequestRecorder
from commitlog._util.retry import Backoff
from commitlog.clock import Clock
from commitlog.errors import (
    AlreadyExists,
    CommitError,
    Conflict,
    NotFound,
    NotSupported,
    ObjectChanged,
    OutcomeUnknown,
    Unavailable,
)
from commitlog.namespace.model.binding import RESERVED
from commitlog.namespace.model.data import Data
from commitlog.namespace.status import Kind
from commitlog.stores.api import (
    Condition,
    IfAbsent,
    ObjectStore,
    PutResult,
    Staged,
    StageWriter,
    WriteOperation,
    same_etag,
)
from commitlog.stores.body import PUT_LIMIT, Body, chunks, split_body

__all__ = ["Content", "content_prefixes", "is_content", "is_content_prefix", "is_own"]

_OWN = re.compile(r"([0-9a-f]{3})/\1[0-9a-f]{29}")
_PREFIX = re.compile(r"[0-9a-f]{3}/")

#: Errors after which the upload is made again, under another path.
_RETRYABLE = (OutcomeUnknown, Unavailable, Conflict)


@frozen(kw_only=True)
class Content:
    """The content objects of one namespace. Thread-safe.

    Args:
        store: holds the objects.
        clock: waited on between attempts.
        backoff: retry policy for uploads.
        new_id: makes the objects' names.
        recorder: counts requests.
    """

    store: ObjectStore
    clock: Clock
    backoff: Backoff
    new_id: Callable[[], str] = field(repr=False)
    recorder: RequestRecorder = field(factory=RequestRecorder)
    #: Operations for which the store has refused conditions.
    _unconditional: set[WriteOperation] = field(factory=set, init=False, repr=False)

    def put(self, body: Body) -> Data:
        """Store a body under a new path.

        Raises `Unavailable` if it could not be stored. An object may exist after that, but no file
        refers to it.
        """
        if isinstance(body, (bytes, bytearray, memoryview)):
            return self._put(memoryview(body))
        start, rest = split_body(body, PUT_LIMIT)
        if rest is None:
            return self._put(memoryview(start))
        with self.open_upload() as writer:
            writer.write(start)
            for chunk in chunks(rest):
                writer.write(chunk)
            staged = writer.finish()
        try:
            return self.publish(staged)
        except CommitError:
            with contextlib.suppress(CommitError):
                self.abort(staged)
            raise

    def _put(self, view: memoryview) -> Data:
        def put(path: str, condition: Condition | None) -> PutResult:
            return self.store.put(path, view, condition=condition)

        return self._retry(lambda: self._write(WriteOperation.PUT, put, view.nbytes))

    def copy(self, data: Data) -> Data:
        """Have the store copy an object to a new path; return the copy.

        Raises `ObjectChanged` if the object is gone or was replaced, and `Unavailable` as `put` does.
        """

        def copy(path: str, condition: Condition | None) -> PutResult:
            return self.store.copy(data.path, path, condition=condition)

        try:
            copied = self._retry(
                lambda: self._write(WriteOperation.COPY, copy, data.size), what="copied"
            )
        except NotFound as error:
            self.store.check()
            raise ObjectChanged(_gone(data)) from error
        # Checked after the copy: an object that is the same now was the same when it was copied.
        info = self.store.begin_head(data.path)().info
        if info is None or not same_etag(info.etag, data.etag):
            self.remove(copied)
            raise ObjectChanged(_gone(data) if info is None else _replaced(data, info.etag))
        return copied

    def open_upload(self) -> StageWriter:
        """Begin an upload under a new path, for a body that arrives in parts."""
        return self.store.begin_stage(self._new_path())

    def publish(self, staged: Staged) -> Data:
        """Make an upload readable. Raises `Unavailable` if that failed."""

        def publish() -> Data:
            try:
                return self._data(self.store.publish(staged), staged.size)
            except (*_RETRYABLE, NotFound):
                with contextlib.suppress(Unavailable):
                    # The answer may have been lost. No other client writes to this path.
                    info = self.store.begin_head(staged.path)().info
                    if info is not None and info.nonce == staged.nonce:
                        return Data(path=info.path, size=info.size, etag=info.etag, version=info.version)
                raise

        return self._retry(publish, on=(*_RETRYABLE, NotFound))

    def abort(self, staged: Staged) -> None:
        """Discard an upload that is not readable yet."""
        self.store.abort(staged)

    def remove(self, data: Data) -> None:
        """Remove an object to which no file refers or will refer. Errors are ignored."""
        with contextlib.suppress(CommitError):
            self.store.delete(data.path)

    def difference(self, data: Data) -> Kind | None:
        """Return how an object differs from `data`, without reading it; None if it does not differ."""
        info = self.store.begin_head(data.path)().info
        if info is None:
            self.store.check()
            return "missing"
        return None if same_etag(info.etag, data.etag) else "changed"

    def read(self, data: Data, start: int = 0, end: int | None = None) -> bytes:
        """Return the bytes ``[start, end)`` of a file's content; all of them by default.

        Raises `ObjectChanged` if the object is gone or was replaced; `BucketNotFound` if the store is
        gone.
        """
        try:
            found = self.store.get(data.path, start=start, end=end)
        except NotFound as error:
            self.store.check()
            raise ObjectChanged(_gone(data)) from error
        if not same_etag(found.etag, data.etag):
            raise ObjectChanged(_replaced(data, found.etag))
        return found.data

    def _retry(
        self,
        call: Callable[[], Data],
        *,
        on: tuple[type[CommitError], ...] = _RETRYABLE,
        what: str = "stored",
    ) -> Data:
        return self.backoff.retry(
            self.clock,
            call,
            on=on,
            exhausted=lambda error: Unavailable(
                f"the content could not be {what}, and no file refers to it ({error})"
            ),
        )

    def _write(
        self, operation: WriteOperation, send: Callable[[str, Condition | None], PutResult], size: int
    ) -> Data:
        """Write an object of `size` bytes under a new path, on condition that the path is free."""
        path = self._new_path()
        condition = IfAbsent()
        if operation in self._unconditional or not self.store.capabilities.carries(operation, condition):
            return self._data(send(path, None), size)
        try:
            return self._data(send(path, condition), size)
        except NotSupported:  # the server refused the condition; nothing was written
            result = self._data(send(path, None), size)
            self._unconditional.add(operation)
            return result
        except AlreadyExists as error:
            # The first request was carried out, and then repeated on the way.
            return self._stored(path, size, f"{error}")

    def _data(self, result: PutResult, size: int) -> Data:
        """Return the stored object. An etag is required: without one, the file could not be read."""
        if not result.etag:
            return self._stored(result.path, size, "the answer to the write had no etag")
        return Data(path=result.path, size=size, etag=result.etag, version=result.version)

    def _stored(self, path: str, size: int, why: str) -> Data:
        """Return the object at a new path. No other client writes there, so it is the one sent."""
        info = self.store.begin_head(path)().info
        if info is None or info.size != size:
            raise Conflict(f"the object at {path!r} is not the one that was sent ({why})")
        return Data(path=path, size=size, etag=info.etag, version=info.version)

    def _new_path(self) -> str:
        # Random from the first character: that spreads requests over the partitions of a bucket.
        name = self.new_id()
        return f"{name[:3]}/{name}"


def is_content(path: str) -> bool:
    """Return whether `path` is a path for content of a namespace."""
    return _OWN.fullmatch(path) is not None


def is_content_prefix(prefix: str) -> bool:
    """Return whether all content is below prefixes like this one, which ends in a slash.

    >>> is_content_prefix("0b1/"), is_content_prefix("raw/")
    (True, False)
    """
    return _PREFIX.fullmatch(prefix) is not None


def content_prefixes(start: str) -> list[str]:
    """Return all prefixes of content that begin with some lower-case hexadecimal digits.

    >>> content_prefixes("0b")[:2], len(content_prefixes(""))
    (['0b0/', '0b1/'], 4096)
    """
    left = 3 - len(start)
    return [f"{start}{number:0{left}x}/" if left else f"{start}/" for number in range(16**left)]


def is_own(path: str) -> bool:
    """Return whether `path` is reserved for a namespace: for its content or its log.

    >>> is_own("0b1/0b1c2d3e4f50617283940a1b2c3d4e5f"), is_own("0b1/part-0")
    (True, False)
    """
    return is_content(path) or path.startswith(RESERVED)


def _gone(data: Data) -> str:
    return (
        f"object {data.path!r} is gone: the file was overwritten or deleted, and its grace period is"
        " over, or another program removed the object. Open the file again"
    )


def _replaced(data: Data, etag: str) -> str:
    return (
        f"object {data.path!r} has etag {etag}, and the file was given {data.etag}:"
        " another program replaced it, not through the namespace"
    )
