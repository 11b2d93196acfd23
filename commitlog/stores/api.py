"""The `ObjectStore` port: where bytes live.

Every implementation passes `commitlog.testing.check_object_store`. Business rules import this file and
never an implementation. Imports errors and maps alone.

The rules that all implementations keep:

* A mutation is sent **once**. It returns, or raises an error that proves that nothing happened, or
  raises `OutcomeUnknown` (response lost, 5xx). Whoever retries knows what is retried, and it is not
  the store. Reads, and uploads that nobody sees yet, are retried inside.
* An object appears whole or not at all.
* Reads see every write that returned before they began.
* All methods are thread-safe. Instances are not picklable; pickle the URL.
"""

from __future__ import annotations

import abc
import enum
import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import BinaryIO, Self, TypeAlias, TypeVar

from attrs import field, frozen, validators

from commitlog.errors import CommitError, NotFound
from commitlog.maps import FrozenMap, frozen_map

__all__ = [
    "NONCE",
    "Body",
    "Capabilities",
    "Condition",
    "Fence",
    "IfAbsent",
    "IfMatch",
    "ObjectData",
    "ObjectInfo",
    "ObjectStore",
    "Observation",
    "Operation",
    "Page",
    "Pending",
    "PutResult",
    "Sink",
    "StageWriter",
    "Staged",
    "StagedInfo",
    "same_etag",
]

T = TypeVar("T")

#: A request that is under way: call it, once and in the same thread, to wait for its answer.
#: I/O errors come out of the call, never out of the method that began the request.
Pending: TypeAlias = Callable[[], T]

#: What can be stored: bytes in memory, or a binary file read from its current position to its end.
Body: TypeAlias = bytes | bytearray | memoryview | BinaryIO

#: Metadata key of the random word by which a writer recognises its own write after a lost response.
NONCE = "commitlog-nonce"

_EMPTY = FrozenMap()


def _show_size(data: bytes) -> str:
    return f"<{len(data)} bytes>"


def same_etag(left: str, right: str) -> bool:
    """Tell whether two entity tags name the same content, quoted or bare.

    Stores differ in whether they quote etags, and some accept only one of the forms back.

    >>> same_etag('"abc"', "abc"), same_etag('"abc"', '"abd"')
    (True, False)
    """
    return left.strip('"') == right.strip('"')


# -- conditions ------------------------------------------------------------------------------------


@frozen
class IfAbsent:
    """Go ahead only if there is no object under the path (``If-None-Match: *``)."""


@frozen
class IfMatch:
    """Go ahead only if the object under the path has this etag, quoted or bare (``If-Match``)."""

    etag: str = field(validator=validators.min_len(1))


Condition: TypeAlias = IfAbsent | IfMatch


class Operation(enum.Enum):
    """A mutation that may carry a condition on the object it is about to replace."""

    PUT = "put"
    COPY = "copy"
    PUBLISH = "publish"
    DELETE = "delete"


@frozen(kw_only=True)
class Capabilities:
    """What a store's client can ask for, and what is known of the answer.

    Attributes:
        conditions: for each operation, the kinds of condition that a request can carry.
        enforced: True if the implementation itself enforces them (memory, local directory); False
            if a server does, which has to be probed before it is trusted.
        fences: True if a mutation can carry a `Fence`.
    """

    conditions: Mapping[Operation, frozenset[type[IfAbsent] | type[IfMatch]]]
    enforced: bool
    fences: bool

    def carries(self, operation: Operation, condition: Condition) -> bool:
        """Tell whether `operation` can be sent with a condition of this kind."""
        return type(condition) in self.conditions.get(operation, frozenset())


@frozen
class Fence:
    """An expiry that the *store* enforces: it refuses the request once its own clock is past it.

    Attributes:
        date: a moment on the store's clock, in whole epoch seconds, as `Observation.store_time` gave it.
        seconds: how many seconds after `date` the request stops being acceptable; at least 1.
    """

    date: int
    seconds: int = field(validator=validators.ge(1))

    @property
    def expires_at(self) -> int:
        """The last acceptable moment on the store's clock, in epoch seconds."""
        return self.date + self.seconds


# -- records -----------------------------------------------------------------------------------------


@frozen(kw_only=True)
class ObjectInfo:
    """What a store tells of an object without its content.

    Attributes:
        path: path relative to the store's root.
        size: bytes.
        etag: the entity tag exactly as the store gives it (S3 quotes it); compare with `same_etag`. From
            `ObjectStore.list_page` it is empty if the store's listing has none: ask HEAD.
        version: the store's version id, or None where it keeps no versions.
        last_modified: epoch seconds by the store's clock; on S3 whole seconds, and for a multipart
            upload the time at which it began.
        metadata: user metadata, keys in lower case. `ObjectStore.list_page` leaves it empty.
    """

    path: str
    size: int
    etag: str
    version: str | None = None
    last_modified: float
    metadata: Mapping[str, str] = field(default=_EMPTY, converter=frozen_map, hash=False)

    @property
    def nonce(self) -> str | None:
        """The word that its writer left to recognise the write by, if there is one."""
        return self.metadata.get(NONCE)


@frozen(kw_only=True)
class ObjectData(ObjectInfo):
    """An object, or a range of it, with its content.

    Attributes:
        data: the bytes asked for. `size` is that of the whole object all the same.
    """

    data: bytes = field(repr=_show_size)


@frozen(kw_only=True)
class PutResult:
    """What a store answers to a write: the new object's path, etag (as the store gives it), version.

    The etag is empty if the answer had none.
    """

    path: str
    etag: str
    version: str | None = None


@frozen(kw_only=True)
class Observation:
    """What a HEAD saw.

    Attributes:
        info: the object, or None if there was none.
        store_time: the store's own clock when it answered, in epoch seconds, rounded down (the HTTP
            ``Date`` header); None if the answer had none.
    """

    info: ObjectInfo | None
    store_time: int | None


@frozen(kw_only=True)
class Page:
    """One page of a listing.

    Attributes:
        objects: the objects, in the store's order (UTF-8 bytes on S3; some servers differ).
        prefixes: with a delimiter, the common prefixes of what was rolled up, each ending in it.
        next_token: pass it to get the next page; None at the end.
    """

    objects: tuple[ObjectInfo, ...]
    prefixes: tuple[str, ...] = ()
    next_token: str | None = None


@frozen(kw_only=True)
class Staged:
    """A complete body that is stored, and that nobody sees until it is published.

    It is plain data: it may be pickled, written to a log, and published from another machine.

    Attributes:
        path: where it will appear.
        upload_id: the store's name for it.
        size: bytes.
        nonce: the nonce that the published object will bear in its metadata.
        parts: what the store wants to hear again on publishing (S3: the etag of each part).
    """

    path: str
    upload_id: str
    size: int
    nonce: str
    parts: tuple[str, ...] = ()


@frozen(kw_only=True)
class StagedInfo:
    """An upload that is neither published nor aborted, complete or not.

    Attributes:
        path: where it would appear.
        upload_id: the store's name for it.
        initiated: epoch seconds by the store's clock.
    """

    path: str
    upload_id: str
    initiated: float


class Sink(abc.ABC):
    """Takes bytes, of which nobody sees anything until all are there. Not thread-safe.

    As a context manager it aborts unless it was finished; it never swallows an exception, nor hides one
    behind that of an abort that fails.
    """

    @abc.abstractmethod
    def write(self, data: bytes | bytearray | memoryview) -> int:
        """Append `data`; return its length in bytes."""

    @abc.abstractmethod
    def abort(self) -> None:
        """Drop what was written, if it is not finished. Idempotent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        try:
            self.abort()
        except CommitError:
            if exc_info[0] is None:
                raise


class StageWriter(Sink):
    """A sink for one upload, which `finish` finishes. Not thread-safe."""

    @abc.abstractmethod
    def finish(self) -> Staged:
        """Store what is buffered and return the complete upload, still invisible."""


# -- the port ----------------------------------------------------------------------------------------


class ObjectStore(abc.ABC):
    """Bytes under paths. See the module for the rules that every method keeps.

    Errors that any method may raise: `InvalidPath` before anything is sent, `BucketNotFound`,
    `AccessDenied`, `Unavailable` (nothing happened) and, for mutations, `OutcomeUnknown`.

    A mutation with a condition that `capabilities` does not list raises `NotSupported`; one that the
    store itself finds unmet raises `AlreadyExists` (`IfAbsent`) or `PreconditionFailed` (`IfMatch`,
    also when there is no object). `Conflict` means that the store saw a racing request and did
    neither. A mutation with a fence raises `RequestExpired` when the store refuses it as too late.
    """

    #: The URL that opens this store again, without credentials; for messages and for pickling.
    url: str
    #: What requests can carry.
    capabilities: Capabilities

    @abc.abstractmethod
    def key(self, path: str) -> str:
        """Return the full key of `path` in its bucket, the prefix that was opened included.

        Two stores opened on different prefixes of one bucket agree on the key of an object.
        """

    # reads

    def check(self) -> None:  # noqa: B027
        """Raise `BucketNotFound` if what was opened is not there, and reads would not say so.

        A local store's directory is made with the first write, so reads of one that is missing find no
        objects. Of a bucket, a listing tells. No request.
        """

    @abc.abstractmethod
    def begin_head(self, path: str) -> Pending[Observation]:
        """Send a HEAD and return at once; the pending call waits for what it saw."""

    def head(self, path: str) -> ObjectInfo:
        """Return what is known of the object; raise `NotFound` if there is none."""
        info = self.begin_head(path)().info
        if info is None:
            raise NotFound(f"no object at {path!r} in {self.url}")
        return info

    @abc.abstractmethod
    def get(self, path: str, *, start: int = 0, end: int | None = None) -> ObjectData:
        """Return the object with its bytes ``[start, end)``; all of them by default.

        A range that reaches past the end is cut; one that starts at or past the end gives ``b""``.
        Raises `NotFound`.
        """

    @abc.abstractmethod
    def list_page(
        self,
        prefix: str = "",
        *,
        start_after: str = "",
        delimiter: str = "",
        limit: int = 1000,
        token: str | None = None,
    ) -> Page:
        """Return one page of the objects whose path starts with `prefix` (a string, not a directory).

        Args:
            prefix: what paths must start with.
            start_after: only paths that come after this one in the store's order.
            delimiter: "" or "/": roll up what lies below the next "/" into `Page.prefixes`.
            limit: most entries wanted, 1 to 1000; a page may have fewer and still not be the last.
            token: `Page.next_token` of the page before, with the other arguments unchanged.
        """

    def list_pages(
        self, prefix: str = "", *, start_after: str = "", delimiter: str = ""
    ) -> Iterator[Page]:
        """Yield all pages of a listing, at least one; the last one has no token.

        Arguments and errors as of `list_page`, which is called for each page unless the store has a
        cheaper way: a local one reads each directory once, and not once for each page.
        """
        token: str | None = None
        while True:
            page = self.list_page(prefix, start_after=start_after, delimiter=delimiter, token=token)
            yield page
            token = page.next_token
            if token is None:
                return

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """Yield every object whose path starts with `prefix`, page by page."""
        for page in self.list_pages(prefix, start_after=start_after):
            yield from page.objects

    # mutations

    @abc.abstractmethod
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
        """Store `body` under `path`.

        Args:
            path: where.
            body: what; else than bytes and binary files, it is a `TypeError`. A body too large for one
                request is uploaded in parts and published, and then condition and fence hold for the
                publishing.
            condition: what must hold of the object that is there now.
            metadata: ASCII keys in lower case to ASCII values, 2 kB in all.
            content_type: media type, where the store keeps one.
            fence: the store refuses the request after this.
        """

    @abc.abstractmethod
    def copy(
        self,
        source: str,
        target: str,
        *,
        condition: Condition | None = None,
        fence: Fence | None = None,
    ) -> PutResult:
        """Copy an object with its metadata inside the store; `condition` is on the target.

        Raises `NotFound` if there is no source.
        """

    @abc.abstractmethod
    def delete(self, path: str, *, condition: IfMatch | None = None, fence: Fence | None = None) -> None:
        """Remove the object. Without a condition, a missing object is no error."""

    @abc.abstractmethod
    def delete_many(self, paths: Iterable[str]) -> Mapping[str, CommitError]:
        """Remove objects without a condition; return the error of each one that may still be there.

        An empty result means that all are gone. Missing objects are no error. Order is not kept.
        """

    # uploads that stay invisible until they are published

    @abc.abstractmethod
    def begin_stage(
        self,
        path: str,
        *,
        metadata: Mapping[str, str] = _EMPTY,
        content_type: str | None = None,
    ) -> StageWriter:
        """Begin an upload that will appear under `path` when it is published.

        The nonce of the result is that of `metadata` under `NONCE`, or a new random one.
        """

    def stage(
        self,
        path: str,
        body: Body,
        *,
        metadata: Mapping[str, str] = _EMPTY,
        content_type: str | None = None,
    ) -> Staged:
        """Upload all of `body` and return it, complete and invisible."""
        pieces = chunks(body)
        with self.begin_stage(path, metadata=metadata, content_type=content_type) as writer:
            for chunk in pieces:
                writer.write(chunk)
            return writer.finish()

    @abc.abstractmethod
    def publish(
        self, staged: Staged, *, condition: Condition | None = None, fence: Fence | None = None
    ) -> PutResult:
        """Make a staged upload visible under its path, whole, in one step.

        Raises `NotFound` if there is no such upload: it was aborted, or published before. Which of
        the two, `head` tells by the nonce. Do not rely on it: S3 may answer a second publish of an
        upload as it did the first. An unmet condition leaves the upload staged.
        """

    @abc.abstractmethod
    def abort(self, staged: Staged | StagedInfo) -> None:
        """Drop a staged upload. One that is gone already is no error; what is published stays."""

    @abc.abstractmethod
    def list_staged(self, prefix: str = "") -> Iterator[StagedInfo]:
        """Yield the uploads under `prefix` that are neither published nor aborted."""

    def close(self) -> None:  # noqa: B027 - optional to implement
        """Release connections and files. The store must not be used after it. Idempotent."""


def chunks(body: Body, size: int = 8 * 1024 * 1024) -> Iterator[bytes | memoryview]:
    """Give `body` in pieces of at most `size` bytes, without copying what is in memory already.

    Raises `TypeError` for what is no body, when it is called.
    """
    if isinstance(body, (bytes, bytearray, memoryview)):
        view = memoryview(body).cast("B")
        return (view[start : start + size] for start in range(0, len(view), size))
    return iter(partial(_file(body).read, size), b"")


def split_body(body: Body, most: int) -> tuple[bytes | memoryview, Body | None]:
    """Return a body of at most `most` bytes, and None; or its beginning, and what has the rest.

    Raises `TypeError` for what is no body.
    """
    if isinstance(body, (bytes, bytearray, memoryview)):
        view = body if isinstance(body, bytes) else memoryview(body).cast("B")
        return (view, None) if len(view) <= most else (b"", body)
    file = _file(body)
    start = bytearray()
    while len(start) <= most and (piece := file.read(most + 1 - len(start))):
        start += piece
    return bytes(start), None if len(start) <= most else file


def _file(body: BinaryIO) -> BinaryIO:
    if isinstance(body, io.TextIOBase) or not hasattr(body, "read"):
        raise TypeError(f"a body is bytes, or a file that is open in binary mode; not {type(body)}")
    return body
