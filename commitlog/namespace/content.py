"""The content of files: objects under names that nobody else ever uses, read only as what they were.

An object is written whole, under a fresh name, before anything names it; it is never written again. So a
file's entry tells which content it has, and a reader finds that content, or nothing, but never a
mixture. That a network delivers a request once more, when there is a file already, changes nothing where
the store has conditions: an object is written if there is none. Imports the ground floor, its siblings
and the ports.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable

from attrs import field, frozen

from commitlog.backoff import Backoff
from commitlog.clock import Clock
from commitlog.errors import (
    AlreadyExists,
    BucketNotFound,
    CommitError,
    Conflict,
    NotFound,
    NotSupported,
    ObjectChanged,
    OutcomeUnknown,
    Unavailable,
)
from commitlog.namespace.binding import RESERVED
from commitlog.namespace.data import Data
from commitlog.namespace.recording import Recorder
from commitlog.namespace.status import Kind
from commitlog.stores.api import (
    Body,
    Condition,
    IfAbsent,
    ObjectStore,
    Operation,
    PutResult,
    Staged,
    StageWriter,
    chunks,
    same_etag,
    split_body,
)

__all__ = ["Content", "is_content", "is_own"]

_OWN = re.compile(r"([0-9a-f]{3})/\1[0-9a-f]{29}")

#: What says that an upload has to be made again, under another name.
_AGAIN = (OutcomeUnknown, Unavailable, Conflict)

#: Bytes of a file that are read into memory, and sent in one request.
_AT_ONCE = 16 * 1024 * 1024


@frozen(kw_only=True)
class Content:
    """The objects of one namespace. Thread-safe.

    Args:
        store: where they are.
        clock: waited on between attempts.
        backoff: how uploads are tried again.
        words: makes their names.
        recorder: of the namespace.
    """

    store: ObjectStore
    clock: Clock
    backoff: Backoff
    words: Callable[[], str] = field(repr=False)
    recorder: Recorder = field(factory=Recorder)
    #: What the store has refused to do on a condition.
    _without: set[Operation] = field(factory=set, init=False, repr=False)

    def put(self, body: Body) -> Data:
        """Store a body under a fresh name.

        Raises `Unavailable` if it could not be stored; what may have been stored all the same is named
        by nothing.
        """
        if isinstance(body, (bytes, bytearray, memoryview)):
            return self._put(memoryview(body))
        start, rest = split_body(body, _AT_ONCE)
        if rest is None:
            return self._put(memoryview(start))
        with self.begin() as writer:
            writer.write(start)
            for chunk in chunks(rest):
                writer.write(chunk)
            staged = writer.finish()
        try:
            return self.publish(staged)
        except CommitError:
            with contextlib.suppress(CommitError):
                self.abandon(staged)
            raise

    def _put(self, view: memoryview) -> Data:
        def put(path: str, condition: Condition | None) -> PutResult:
            return self.store.put(path, view, condition=condition)

        last: CommitError | None = None
        for _ in self.backoff.attempts(self.clock):
            try:
                return self._once(Operation.PUT, put, view.nbytes)
            except _AGAIN as error:
                last = error
        raise Unavailable(f"the content could not be stored, and nothing names it ({last})") from last

    def copy(self, data: Data) -> Data:
        """Have the store copy an object under a fresh name; return the copy.

        Raises `ObjectChanged` if the object is gone, or another, and `Unavailable` as `put` does.
        """

        def copy(path: str, condition: Condition | None) -> PutResult:
            return self.store.copy(data.path, path, condition=condition)

        last: CommitError | None = None
        for _ in self.backoff.attempts(self.clock):
            try:
                copied = self._once(Operation.COPY, copy, data.size)
            except BucketNotFound:
                raise
            except NotFound as error:
                self.store.check()
                raise ObjectChanged(_gone(data)) from error
            except _AGAIN as error:
                last = error
                continue
            # After the copy: what is still the same now was so when it was copied.
            info = self.store.begin_head(data.path)().info
            if info is None or not same_etag(info.etag, data.etag):
                self.drop(copied)
                raise ObjectChanged(_gone(data) if info is None else _replaced(data, info.etag))
            return copied
        raise Unavailable(f"the content could not be copied, and nothing names it ({last})") from last

    def begin(self) -> StageWriter:
        """Begin an upload under a fresh name, for a body that comes bit by bit."""
        return self.store.begin_stage(self._fresh())

    def publish(self, staged: Staged) -> Data:
        """Make an upload readable. Raises `Unavailable` if that could not be done."""
        last: CommitError | None = None
        for _ in self.backoff.attempts(self.clock):
            try:
                return self._data(self.store.publish(staged), staged.size)
            except (*_AGAIN, NotFound) as error:
                if isinstance(error, BucketNotFound):
                    raise
                last = error
            with contextlib.suppress(Unavailable):
                # The answer may have been lost; nobody else writes under this name.
                info = self.store.begin_head(staged.path)().info
                if info is not None and info.nonce == staged.nonce:
                    return Data(path=info.path, size=info.size, etag=info.etag, version=info.version)
        raise Unavailable(f"the content could not be stored, and nothing names it ({last})") from last

    def abandon(self, staged: Staged) -> None:
        """Drop an upload that is not readable yet."""
        self.store.abort(staged)

    def drop(self, data: Data) -> None:
        """Remove an object that nothing names, and nothing ever will; leave it if that fails."""
        with contextlib.suppress(CommitError):
            self.store.delete(data.path)

    def difference(self, data: Data) -> Kind | None:
        """Tell what is wrong with an object, without reading it; None if it is what it should be."""
        info = self.store.begin_head(data.path)().info
        if info is None:
            self.store.check()
            return "missing"
        return None if same_etag(info.etag, data.etag) else "changed"

    def read(self, data: Data, start: int = 0, end: int | None = None) -> bytes:
        """Return the bytes ``[start, end)`` of a file's content; all of them by default.

        Raises `ObjectChanged` if the object is gone, or another; `BucketNotFound` if the store is.
        """
        try:
            found = self.store.get(data.path, start=start, end=end)
        except BucketNotFound:
            raise
        except NotFound as error:
            self.store.check()
            raise ObjectChanged(_gone(data)) from error
        if not same_etag(found.etag, data.etag):
            raise ObjectChanged(_replaced(data, found.etag))
        return found.data

    def _once(
        self, operation: Operation, send: Callable[[str, Condition | None], PutResult], size: int
    ) -> Data:
        """Write an object of so many bytes under a fresh name, on condition that there is none."""
        path = self._fresh()
        condition = IfAbsent()
        if operation in self._without or not self.store.capabilities.carries(operation, condition):
            return self._data(send(path, None), size)
        try:
            return self._data(send(path, condition), size)
        except NotSupported:  # by this server; nothing happened
            result = self._data(send(path, None), size)
            self._without.add(operation)
            return result
        except AlreadyExists as error:
            # The request was repeated on its way.
            return self._seen(path, size, f"{error}")

    def _data(self, result: PutResult, size: int) -> Data:
        """Return what was stored; a file without an etag could never be read."""
        if not result.etag:
            return self._seen(result.path, size, "the answer to the write had no etag")
        return Data(path=result.path, size=size, etag=result.etag, version=result.version)

    def _seen(self, path: str, size: int, why: str) -> Data:
        """Return what is under a fresh name. Nobody else writes there, so it is what was sent."""
        info = self.store.begin_head(path)().info
        if info is None or info.size != size:
            raise Conflict(f"{path!r} is not what was sent ({why})")
        return Data(path=path, size=size, etag=info.etag, version=info.version)

    def _fresh(self) -> str:
        # Random from the first character on: that spreads requests over the partitions of a bucket.
        word = self.words()
        return f"{word[:3]}/{word}"


def is_content(path: str) -> bool:
    """Tell whether `path` is one of those under which a namespace stores content."""
    return _OWN.fullmatch(path) is not None


def is_own(path: str) -> bool:
    """Tell whether `path` is one of those under which a namespace stores content, or keeps its log.

    >>> is_own("0b1/0b1c2d3e4f50617283940a1b2c3d4e5f"), is_own("0b1/part-0")
    (True, False)
    """
    return is_content(path) or path.startswith(RESERVED)


def _gone(data: Data) -> str:
    return (
        f"object {data.path!r} is gone: the file was overwritten or deleted, longer ago than"
        " content is kept, or somebody removed the object. Open the file again"
    )


def _replaced(data: Data, etag: str) -> str:
    return (
        f"object {data.path!r} has etag {etag}, and the file was given {data.etag}:"
        " somebody replaced it, other than through the namespace"
    )
