"""The `ObjectStore` port.

Every implementation passes `commitlog.testing.check_object_store`. Business rules import this file and
never an implementation. All implementations follow these rules:

* A mutation is sent **once**. It returns, or raises an error that proves that nothing happened, or
  raises `OutcomeUnknown` (lost response, 5xx). Retries of mutations are the caller's task. The store
  itself retries reads, and uploads that are not visible yet.
* An object appears whole or not at all.
* Reads see every write that returned before they began.
* All methods are thread-safe. Instances are not picklable; pickle the URL.
"""

from __future__ import annotations

import abc
import enum
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Self, TypeAlias, TypeVar

from attrs import field, frozen, validators

from commitlog._util.frozen_map import FrozenMap, frozen_map
from commitlog.errors import CommitError, ConfigurationError, InvalidPath, NotFound
from commitlog.stores.body import Body, chunks

__all__ = [
    "NONCE",
    "Capabilities",
    "Condition",
    "Dialect",
    "IfAbsent",
    "IfMatch",
    "InFlight",
    "ObjectData",
    "ObjectInfo",
    "ObjectStore",
    "Observation",
    "Page",
    "PutResult",
    "RequestExpiry",
    "Sink",
    "StageWriter",
    "Staged",
    "StagedInfo",
    "Versioning",
    "WriteOperation",
    "same_etag",
]

T = TypeVar("T")

#: A request in flight: call it, once and in the same thread, to wait for its answer.
#: I/O errors come out of the call, never out of the method that began the request.
InFlight: TypeAlias = Callable[[], T]

#: Metadata key of the nonce by which a writer recognizes its own write after a lost response.
NONCE = "commitlog-nonce"

_EMPTY = FrozenMap()


def _show_size(data: bytes) -> str:
    return f"<{len(data)} bytes>"


def same_etag(left: str, right: str) -> bool:
    """Return whether two entity tags, quoted or bare, are equal.

    Stores differ in whether they quote etags, and some accept only one of the forms.

    >>> same_etag('"abc"', "abc"), same_etag('"abc"', '"abd"')
    (True, False)
    """
    return left.strip('"') == right.strip('"')


# -- conditions ------------------------------------------------------------------------------------


class Dialect(enum.Enum):
    """How a request expresses its condition.

    `commitlog.stores.s3.dialects` has the headers, and the vendors' documents that define them. The
    value is the name in options, in stored reports, and in the checks of a probe.
    """

    #: ``If-None-Match: *``, and ``If-Match`` with the etag in quotes (RFC 9110, 13.1).
    STANDARD = "standard"
    #: ``If-Match`` with the etag without its quotes.
    BARE = "bare"
    #: Alibaba Cloud OSS.
    OSS = "oss"
    #: Tencent Cloud COS.
    COS = "cos"
    #: Cloudflare R2.
    R2 = "r2"
    #: Google Cloud Storage, XML API.
    GCS = "gcs"

    @property
    def is_vendors(self) -> bool:
        """Whether a vendor defines it for its own store."""
        return self not in (Dialect.STANDARD, Dialect.BARE)

    @property
    def needs_unversioned(self) -> bool:
        """Whether the store ignores the condition in a bucket that keeps versions."""
        return self in (Dialect.OSS, Dialect.COS)


@frozen
class IfAbsent:
    """A condition: there is no object at the path."""

    dialect: Dialect = Dialect.STANDARD


@frozen
class IfMatch:
    """A condition: the object at the path has this etag, quoted or bare."""

    etag: str = field(validator=validators.min_len(1))
    dialect: Dialect = Dialect.STANDARD


#: The precondition of a write.
Condition: TypeAlias = IfAbsent | IfMatch

#: The dialects of most stores.
_COMMON: Mapping[type[IfAbsent] | type[IfMatch], tuple[Dialect, ...]] = MappingProxyType(
    {IfAbsent: (Dialect.STANDARD,), IfMatch: (Dialect.STANDARD, Dialect.BARE)}
)


class Versioning(enum.Enum):
    """Whether a bucket keeps the versions of objects that are replaced or removed."""

    NEVER = "never enabled"
    ENABLED = "enabled"
    SUSPENDED = "suspended"


class WriteOperation(enum.Enum):
    """A mutation that may carry a condition on the object that it replaces."""

    PUT = "put"
    COPY = "copy"
    PUBLISH = "publish"
    DELETE = "delete"


@frozen(kw_only=True)
class Capabilities:
    """The conditional requests that a store's client supports.

    Attributes:
        conditions: for each operation, the kinds of condition that a request can carry.
        enforced: True if the implementation itself enforces them (memory, local directory); False
            if a server enforces them, which must be probed before it is trusted.
        request_expiry: True if a mutation can carry a `RequestExpiry`.
        dialects: for an operation and a kind of condition, the dialects that the client speaks, those
            to prefer first. Where it has no entry: `Dialect.STANDARD`, and `Dialect.BARE` for etags.
    """

    conditions: Mapping[WriteOperation, frozenset[type[IfAbsent] | type[IfMatch]]]
    enforced: bool
    request_expiry: bool
    dialects: Mapping[tuple[WriteOperation, type[IfAbsent] | type[IfMatch]], tuple[Dialect, ...]] = (
        MappingProxyType({})
    )

    def carries(self, operation: WriteOperation, condition: Condition) -> bool:
        """Return whether `operation` can be sent with a condition of this kind, in some dialect."""
        return type(condition) in self.conditions.get(operation, frozenset())

    def dialects_of(
        self, operation: WriteOperation, kind: type[IfAbsent] | type[IfMatch]
    ) -> tuple[Dialect, ...]:
        """Return the dialects in which `operation` can carry such a condition, preferred ones first."""
        return self.dialects.get((operation, kind), _COMMON[kind])


@frozen
class RequestExpiry:
    """An expiry that the *store* enforces: it refuses the request when its own clock is past it.

    Attributes:
        date: a time of the store's clock, in whole epoch seconds, from `Observation.store_time`.
        seconds: the number of seconds after `date` for which the request is accepted; at least 1.
    """

    date: int
    seconds: int = field(validator=validators.ge(1))

    @property
    def expires_at(self) -> int:
        """The last accepted time of the store's clock, in epoch seconds."""
        return self.date + self.seconds


# -- records -----------------------------------------------------------------------------------------


@frozen(kw_only=True)
class ObjectInfo:
    """The description of an object, without its content.

    Attributes:
        path: path relative to the store's root.
        size: bytes.
        etag: the entity tag exactly as the store returns it (S3 quotes it); compare with `same_etag`.
            Empty from `ObjectStore.list_page` if the store's listing has none: use HEAD.
        version: the store's version id, or None if it keeps no versions. Google Cloud Storage gives
            each object a generation, which is its version id here.
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
        """The nonce by which its writer recognizes the write, or None."""
        return self.metadata.get(NONCE)


@frozen(kw_only=True)
class ObjectData(ObjectInfo):
    """An object, or a range of it, with its content.

    Attributes:
        data: the requested bytes. `size` is still the size of the whole object.
    """

    data: bytes = field(repr=_show_size)


@frozen(kw_only=True)
class PutResult:
    """The result of a write: path, etag (as the store returns it) and version of the new object.

    The etag is empty if the response had none.
    """

    path: str
    etag: str
    version: str | None = None


@frozen(kw_only=True)
class Observation:
    """The result of a HEAD request.

    Attributes:
        info: the object, or None if there was none.
        store_time: the time of the store's clock at the response, in epoch seconds, rounded down (the
            HTTP ``Date`` header); None if the response had none.
    """

    info: ObjectInfo | None
    store_time: int | None


@frozen(kw_only=True)
class Page:
    """One page of a listing.

    Attributes:
        objects: the objects, in the store's order (UTF-8 bytes on S3; some servers differ).
        prefixes: with a delimiter, the common prefixes, each ending in the delimiter.
        next_token: pass it to get the next page; None at the end.
    """

    objects: tuple[ObjectInfo, ...]
    prefixes: tuple[str, ...] = ()
    next_token: str | None = None


@frozen(kw_only=True)
class Staged:
    """A complete upload that is invisible until it is published.

    It is plain data: it can be pickled, written to a log, and published from another machine.

    Attributes:
        path: the path of the published object.
        upload_id: the store's name for it.
        size: bytes.
        nonce: the nonce in the metadata of the published object; "" if another program wrote the
            upload, under a name that no other upload has.
        parts: data that the store needs again for publishing (S3: the etag of each part).
    """

    path: str
    upload_id: str
    size: int
    nonce: str
    parts: tuple[str, ...] = ()

    @property
    def list_size(self) -> int:
        """Maximum size in bytes of the list of parts, the body of the publish request, or 0."""
        return 128 + sum(64 + len(part) for part in self.parts) if self.parts else 0


@frozen(kw_only=True)
class StagedInfo:
    """An upload that is neither published nor aborted, complete or not.

    Attributes:
        path: the path of the object, if the upload is published.
        upload_id: the store's name for it.
        initiated: epoch seconds by the store's clock.
    """

    path: str
    upload_id: str
    initiated: float


class Sink(abc.ABC):
    """Takes bytes, which are invisible until all have been written. Not thread-safe.

    After a write that failed, bytes are missing, so the sink cannot be finished. A subclass appends the
    bytes in `_append`, and calls `_check_whole` before it finishes.

    As a context manager it aborts unless it was finished. It never swallows an exception, nor hides one
    behind that of a failing abort.
    """

    #: The error of the write that failed, as text; "" if none has.
    _failure = ""

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """Append `data`; return its length in bytes.

        Raises `TypeError` if `data` has no contiguous bytes; nothing was appended then. After any other
        error, some of the bytes may be missing: all later writes, and the call that finishes the sink,
        raise `ConfigurationError`. Then call `abort`, and write the whole content to another sink.
        """
        view = memoryview(data).cast("B")
        self._check_whole()
        try:
            self._append(view)
        except BaseException as error:
            self._failure = f"{type(error).__name__}: {error}"
            raise
        return len(view)

    @abc.abstractmethod
    def _append(self, data: memoryview) -> None:
        """Append all of `data`, which are single bytes."""

    def _check_whole(self) -> None:
        """Raise `ConfigurationError` if a write has failed."""
        if self._failure:
            raise ConfigurationError(
                f"a write has failed ({self._failure}), and its bytes are missing: abort, and write the"
                " whole content again"
            )

    @abc.abstractmethod
    def abort(self) -> None:
        """Drop the written bytes unless the sink is finished. Idempotent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        try:
            self.abort()
        except CommitError:
            if exc_info[0] is None:
                raise


class StageWriter(Sink):
    """A sink for one upload, completed by `finish`. Not thread-safe."""

    @abc.abstractmethod
    def finish(self) -> Staged:
        """Store the buffered bytes and return the complete upload, still invisible.

        Raises `ConfigurationError` if a write has failed, or if the writer is finished or aborted
        already. After another error the upload is not complete: call it again, or `abort`.
        """


# -- the port ----------------------------------------------------------------------------------------


class ObjectStore(abc.ABC):
    """Objects at paths. The module's docstring has the rules that every method follows.

    Errors that any method may raise: `InvalidPath` before anything is sent, `BucketNotFound`,
    `AccessDenied`, `Unavailable` (nothing happened) and, for mutations, `OutcomeUnknown`.

    A mutation with a condition that `capabilities` does not list raises `NotSupported`. An unmet
    condition raises `AlreadyExists` (`IfAbsent`) or `PreconditionFailed` (`IfMatch`, also if there is
    no object). `Conflict` means that the store rejected the request because of a competing one. A
    mutation with an expiry raises `RequestExpired` if the store refuses it as too late.
    """

    #: The URL that opens this store again, without credentials; for error messages and pickling.
    url: str
    #: The conditions and expiries that requests can carry.
    capabilities: Capabilities

    @abc.abstractmethod
    def key(self, path: str) -> str:
        """Return the full key of `path` in its bucket, including the opened prefix.

        Two stores opened on different prefixes of one bucket agree on the key of an object.
        """

    def portable_key(self, path: str) -> str:
        """Return the key, but the same one where the bucket is seen in another place.

        A local directory may be mounted elsewhere, or be copied.
        """
        return self.key(path)

    # reads

    def check(self) -> None:  # noqa: B027
        """Raise `BucketNotFound` if the store does not exist and reads would not report it.

        A local store's directory is made by the first write, so reads of a missing one find no objects.
        A listing reports a missing bucket. Sends no request.
        """

    def versioning(self) -> Versioning | None:
        """Return whether the bucket keeps versions; None if that is not known, or not permitted."""
        return None

    @abc.abstractmethod
    def begin_head(self, path: str) -> InFlight[Observation]:
        """Send a HEAD and return at once; the in-flight call waits for its result."""

    def head(self, path: str) -> ObjectInfo:
        """Return the description of the object; raise `NotFound` if there is none."""
        info = self.begin_head(path)().info
        if info is None:
            raise NotFound(f"no object at {path!r} in {self.url}")
        return info

    @abc.abstractmethod
    def get(self, path: str, *, start: int = 0, end: int | None = None) -> ObjectData:
        """Return the object with its bytes ``[start, end)``; all of them by default.

        A range is cut at the end of the object; if it starts at or past the end, the result is ``b""``.
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
            prefix: the prefix of the paths.
            start_after: only paths that come after this one in the store's order; to continue a listing
                of objects of other writers, use `resume`.
            delimiter: "" or "/": group paths below the next "/" into `Page.prefixes`.
            limit: maximum number of entries, 1 to 1000; a page with fewer need not be the last.
            token: `Page.next_token` of the previous page, with the other arguments unchanged.
        """

    def list_pages(
        self, prefix: str = "", *, start_after: str = "", delimiter: str = ""
    ) -> Iterator[Page]:
        """Yield all pages of a listing, at least one; the last one has no token.

        Arguments and errors are those of `list_page`, which is called for each page unless the store has
        a cheaper way: a local store reads each directory once, and not once for each page.
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

    def resume(self, prefix: str = "", *, after: str) -> Iterator[ObjectInfo]:
        """Yield the objects that a listing of `prefix` has after the one at `after`; all if it is "".

        A store that sorts directory by directory may leave out all objects below ``after/``, if a
        listing starts after the object `after`, as SeaweedFS does. One more short request looks for
        them. Arguments and errors are otherwise those of `list`.
        """
        listed = self.list(prefix, start_after=after)
        below = f"{after}/"
        if after and below.startswith(prefix) and self._hides(prefix, after, below):
            yield from self.list(below)
            listed = (info for info in listed if not info.path.startswith(below))
        yield from listed

    def _hides(self, prefix: str, after: str, below: str) -> bool:
        """Return whether a listing that starts after an object may leave out what is below it."""
        try:
            if self.first(below) is None:
                return False
        except InvalidPath:  # a key of other programs, such as "a//b"
            return False
        # In the order of bytes, "." is the last character before "/".
        first = self.first(prefix, start_after=f"{after}.{chr(0x10FFFF)}")
        return first is None or not first.path.startswith(below)

    def first(self, prefix: str = "", *, start_after: str = "") -> ObjectInfo | None:
        """Return the first object whose path starts with `prefix`; None if there is none.

        Mostly one short request: a page may have no objects although others follow, since what marks a
        directory on S3 is left out. Arguments and errors are those of `list`.
        """
        page = self.list_page(prefix, start_after=start_after, limit=2)
        if page.objects or page.next_token is None:
            return next(iter(page.objects), None)
        return next(self.list(prefix, start_after=start_after), None)

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
        expiry: RequestExpiry | None = None,
    ) -> PutResult:
        """Store `body` under `path`.

        Args:
            path: path of the object.
            body: the content; a `TypeError` unless it is bytes or a binary file. A body too large for
                one request is uploaded in parts and published; then condition and expiry apply to the
                publishing.
            condition: the condition on the present object.
            metadata: ASCII keys in lower case to ASCII values, 2 kB in all.
            content_type: media type, if the store keeps one.
            expiry: the store refuses the request after this.
        """

    @abc.abstractmethod
    def copy(
        self,
        source: str,
        target: str,
        *,
        condition: Condition | None = None,
        expiry: RequestExpiry | None = None,
    ) -> PutResult:
        """Copy an object with its metadata inside the store; `condition` is on the target.

        Raises `NotFound` if there is no source.
        """

    @abc.abstractmethod
    def delete(
        self, path: str, *, condition: IfMatch | None = None, expiry: RequestExpiry | None = None
    ) -> None:
        """Remove the object. Without a condition, a missing object is not an error."""

    @abc.abstractmethod
    def delete_many(self, paths: Iterable[str]) -> Mapping[str, CommitError]:
        """Remove objects without a condition; return the error of each one that may still exist.

        An empty result means that all are gone. Missing objects are not errors. Order is not kept.
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

        The nonce of the result is the entry `NONCE` of `metadata`, or a new random one.
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
        self, staged: Staged, *, condition: Condition | None = None, expiry: RequestExpiry | None = None
    ) -> PutResult:
        """Make a staged upload visible at its path, whole, in one step.

        Raises `NotFound` if there is no such upload: it was aborted, or already published. In the second
        case `head` shows its nonce. Do not rely on the error: S3 may answer a second publish of an
        upload like the first. An unmet condition leaves the upload staged.
        """

    @abc.abstractmethod
    def abort(self, staged: Staged | StagedInfo) -> None:
        """Drop a staged upload. A missing upload is not an error; a published object stays."""

    @abc.abstractmethod
    def list_staged(self, prefix: str = "") -> Iterator[StagedInfo]:
        """Yield the uploads under `prefix` that are neither published nor aborted."""

    def make_room(self) -> Callable[[], None] | None:
        """Free the space that the store holds back for a full disk, to remove what fills it.

        Returns a function that holds space back again if there is room; call it after the removal. None,
        with nothing freed: the store holds no space back, or its disk is not full.
        """
        return None

    def close(self) -> None:  # noqa: B027 - optional to implement
        """Release connections and files. The store must not be used afterwards. Idempotent."""
