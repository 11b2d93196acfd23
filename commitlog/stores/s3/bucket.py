"""Requests to one bucket, and what their answers say in the words of `commitlog.errors`."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from hashlib import md5
from types import MappingProxyType

from attrs import frozen

from commitlog._util.request_stats import report_retry
from commitlog._util.retry import Backoff
from commitlog.aws import AwsClient, Response, common_error, encode_path, first_line
from commitlog.clock import Clock
from commitlog.errors import (
    AccessDenied,
    AlreadyExists,
    BucketNotFound,
    CommitError,
    Conflict,
    NotFound,
    NotSupported,
    OutcomeUnknown,
    PreconditionFailed,
    RequestExpired,
    Unavailable,
)
from commitlog.stores.api import (
    Condition,
    Dialect,
    IfAbsent,
    IfMatch,
    InFlight,
    RequestExpiry,
    WriteOperation,
)
from commitlog.stores.s3.dialects import EXISTS, condition_headers
from commitlog.stores.s3.xml import error_of, http_date

__all__ = ["LOOK", "Bucket", "S3Request", "content_md5", "has_code", "is_marked"]

_EMPTY: Mapping[str, str] = MappingProxyType({})

#: The body did not reach the service as it was sent, so the service did nothing with it.
_DAMAGED = frozenset({"BadDigest", "IncompleteBody", "RequestTimeout", "XAmzContentSHA256Mismatch"})
_COPY = "x-amz-copy-source"
_CONFLICT = frozenset({"ConditionalRequestConflict", "OperationAborted"})
#: Codes under which services refuse a signed query that is too late; the message tells it from others.
_TOO_LATE = frozenset({"AccessDenied", "ExpiredPresignRequest", "RequestExpired"})
#: Statuses of requests that services refuse before they process them.
_REFUSED = frozenset({400, 401, 403})
#: Codes under which a body without a checksum is refused; the message tells it from others.
_NO_CHECKSUM = frozenset({"InvalidRequest", "MissingContentMD5"})
_MARKS = frozenset({"x-amz-request-id", "x-amz-id-2"})
#: The answer to a HEAD has no text: the usual reasons of a refusal, by status.
_UNEXPLAINED = {
    400: "a HEAD is refused like this if the credentials have expired",
    403: "a HEAD needs s3:GetObject, and s3:ListBucket if there is no such object",
}
#: S3 refuses a request whose time differs from its own by more seconds than this.
_MAX_SKEW = 900.0


#: Advice after a mutation whose answer was lost.
LOOK = "It may have happened, or may yet: look before you repeat it"


@frozen
class S3Request:
    """One request to the bucket, before it is signed.

    Attributes:
        method: HTTP method.
        key: full key; empty for the bucket itself.
        query: names and values, not encoded.
        headers: names in lower case.
        body: the body.
        condition: the condition on the object under `key`; it is sent as a header.
        expiry: the time from which on the store refuses the request.
        generation: the generation to match, see `condition_headers`.
    """

    method: str
    key: str = ""
    query: Mapping[str, str] = _EMPTY
    headers: Mapping[str, str] = _EMPTY
    body: bytes | bytearray | memoryview = b""
    condition: Condition | None = None
    expiry: RequestExpiry | None = None
    generation: str | None = None

    @property
    def operation(self) -> WriteOperation:
        """The kind of mutation that it is."""
        if self.method == "PUT":
            return WriteOperation.COPY if _COPY in self.headers else WriteOperation.PUT
        return WriteOperation.DELETE if self.method == "DELETE" else WriteOperation.PUBLISH


class Bucket:
    """Sends requests to one bucket. Thread-safe.

    Args:
        name: name of the bucket, for messages.
        client: the client for the URL of the bucket.
        clock: the clock for pauses between attempts.
        backoff: the retry policy of requests that can be repeated.
        headers: headers of every request, names in lower case.
        checksum: whether the MD5 of a body is sent with each PUT and each part. If not, it is sent to a
            bucket that demands it, as one with Object Lock does: such a bucket refuses the first request
            without a checksum. The refusal proves that nothing happened, so the request is sent again
            with its MD5, and all later ones have theirs.
    """

    def __init__(
        self,
        name: str,
        client: AwsClient,
        *,
        clock: Clock,
        backoff: Backoff,
        headers: Mapping[str, str] = _EMPTY,
        checksum: bool = False,
    ) -> None:
        self._name = name
        self._client = client
        self._clock = clock
        self._backoff = backoff
        self._headers = headers
        self._checksum = checksum

    def send(self, request: S3Request) -> InFlight[Response]:
        """Send a mutation, once; the pending call returns an answer of success or raises.

        It is sent once more if the bucket has refused it for want of a checksum.
        """
        pending = self._begin(request)

        def outcome() -> Response:
            try:
                response = pending()
            except OutcomeUnknown as error:
                raise OutcomeUnknown(f"{self.what(request)}: {error}. {LOOK}") from error
            if 200 <= response.status < 300:
                return response
            problem = self.fault(request, response)
            raise (
                OutcomeUnknown(f"{problem}. {LOOK}") if isinstance(problem, OutcomeUnknown) else problem
            )

        return outcome

    def fetch(
        self,
        request: S3Request,
        *,
        accept: Callable[[Response], bool] = lambda response: False,
        flaw: Callable[[Mapping[str, str]], str] = lambda headers: "",
    ) -> InFlight[Response]:
        """Send a request that may be repeated; the in-flight call repeats it as needed.

        Such a request changes nothing, or nothing that is visible. The call returns a successful
        response, or another one that `accept` accepts. If that fails, it raises `Unavailable`, never
        `OutcomeUnknown`. `flaw` returns from the headers why a successful response is unusable, so that
        the request is repeated; or None.
        """
        pending = self._begin(request)

        def read() -> Response:
            try:
                response = pending()
            except (Unavailable, OutcomeUnknown) as error:
                raise type(error)(f"{self.what(request)}: {error}") from error
            if accept(response):
                return response
            if not 200 <= response.status < 300:
                raise self.fault(request, response)
            if why := flaw(response.headers):
                raise Unavailable(f"{self.what(request)}: {why}")
            return response

        def send_again(error: CommitError) -> None:
            nonlocal pending
            report_retry(error)
            pending = self._begin(request)

        return lambda: self._backoff.retry(
            self._clock,
            read,
            on=(Unavailable, OutcomeUnknown),
            before_next=send_again,
            exhausted=lambda error: Unavailable(f"{error}; stopped after several attempts"),
        )

    def what(self, request: S3Request) -> str:
        """Return what a request does, for a message."""
        place = f"{request.key!r} in " if request.key else ""
        return f"{request.method} {place}s3://{self._name}"

    def fault(self, request: S3Request, response: Response) -> CommitError:
        """Return the error that an answer of no success stands for.

        Sources: "Error responses" and the pages of each operation in the Amazon S3 API Reference, and
        the documents of `commitlog.stores.s3.dialects`.
        """
        status, (code, message) = response.status, error_of(response.body)
        what, condition = self.what(request), request.condition
        if condition is not None:
            if status == 412 or code == "PreconditionFailed":
                return _unmet(what, condition)
            if code in EXISTS and isinstance(condition, IfAbsent):
                return _unmet(what, condition)
            # Of a copy, the missing object may be the source.
            missing = code == "NoSuchKey" and _COPY not in request.headers
            if missing and isinstance(condition, IfMatch):
                return _unmet(what, condition)
        if code in _CONFLICT or (status == 409 and not code):
            return Conflict(f"{what}: the store saw a competing request; try again")
        if code == "NoSuchBucket":
            return BucketNotFound(f"{what}: there is no such bucket: create it, or correct the URL")
        if code == "NoSuchUpload":
            return NotFound(f"{what}: there is no such upload: it was published or aborted")
        if status == 404 and code:  # without one, something other than the store has answered
            return NotFound(f"{what}: there is no such object")
        if request.expiry is not None and _is_late(request.expiry, response, code, message):
            return RequestExpired(f"{what}: {status} {code}: the store says that it came too late")
        if code in _DAMAGED:
            return Unavailable(f"{what}: {status} {code}: {first_line(message)}; try again")
        if request.method == "HEAD" and status in _UNEXPLAINED:
            message = _UNEXPLAINED[status]
            store_time = http_date(response.headers.get("date"))
            if store_time is not None and abs(ahead := self._clock.epoch() - store_time) > _MAX_SKEW:
                return AccessDenied(
                    f"{what}: {status}: the clock of this machine is {abs(ahead):.0f} s"
                    f" {'ahead of' if ahead > 0 else 'behind'} that of the store. Set it"
                )
        if region := response.headers.get("x-amz-bucket-region"):
            message = f"{first_line(message)} (the bucket is in region {region})"
        return common_error(what, status, code, message)

    def close(self) -> None:
        """Close the connections. Idempotent."""
        self._client.close()

    def _begin(self, request: S3Request) -> InFlight[Response]:
        """Send a request; the call adds a checksum and sends it again, if the bucket demands one."""
        stores = request.method == "PUT" and _COPY not in request.headers
        # A signed query does not cover the body.
        checksum = (stores and self._checksum) or bool(request.expiry and request.body)
        pending = self._begin_once(request, checksum=checksum)
        if checksum or not stores:
            return pending

        def outcome() -> Response:
            response = pending()
            if not _demands_checksum(response):
                return response
            self._checksum = True
            report_retry(self.fault(request, response))
            return self._begin_once(request, checksum=True)()

        return outcome

    def _begin_once(self, request: S3Request, *, checksum: bool) -> InFlight[Response]:
        path = f"/{encode_path(request.key)}"
        headers = request.headers
        if self._headers:
            headers = {**headers, **self._headers}
        if checksum:
            headers = {**headers, "content-md5": content_md5(request.body)}
        google = False
        if request.condition is not None:
            own = condition_headers(request.operation, request.condition, request.generation)
            headers = {**headers, **own}
            google = request.condition.dialect is Dialect.GCS
        if request.expiry is None:
            return self._client.begin(
                request.method,
                path,
                query=request.query,
                headers=headers,
                body=request.body,
                google=google,
            )
        if google:
            raise NotSupported(f"{self.what(request)}: it cannot have both a generation and an expiry")
        return self._client.begin_until(
            request.method,
            path,
            date=request.expiry.date,
            seconds=request.expiry.seconds,
            query=request.query,
            headers=headers,
            body=request.body,
        )


def content_md5(body: bytes | bytearray | memoryview) -> str:
    """Return the value of a Content-MD5 header: protection against accidents, not against attackers."""
    return base64.b64encode(md5(body, usedforsecurity=False).digest()).decode()


def _demands_checksum(response: Response) -> bool:
    """Return whether a request was refused because its body had no checksum.

    S3 says ``InvalidRequest``, and its message names the header: "Content-MD5 OR x-amz-checksum- HTTP
    header is required for Put Part requests with Object Lock parameters".
    """
    if response.status != 400:
        return False
    code, message = error_of(response.body)
    return code in _NO_CHECKSUM and "content-md5" in message.lower()


def has_code(response: Response) -> bool:
    """Return whether an answer has an error code of S3, so that it comes from the store."""
    return bool(error_of(response.body)[0])


def is_marked(response: Response) -> bool:
    """Return whether an answer has a request id, as answers of S3 and of most other stores do."""
    return not _MARKS.isdisjoint(response.headers)


def _is_late(expiry: RequestExpiry, response: Response, code: str, message: str) -> bool:
    """Return whether a request was refused because it came after its expiry.

    Services refuse it with different codes, Ceph with one that says nothing more. But the store dates
    its response by the clock of its check. A request that was refused for another reason is refused
    again when it is repeated with a later expiry, so a wrong guess does no harm.
    """
    if code in _TOO_LATE and "expired" in message.lower():
        return True
    now = http_date(response.headers.get("date"))
    return response.status in _REFUSED and now is not None and now >= expiry.expires_at


def _unmet(what: str, condition: Condition) -> CommitError:
    if isinstance(condition, IfAbsent):
        return AlreadyExists(f"{what}: there is an object already")
    return PreconditionFailed(
        f"{what}: it should have etag {condition.etag}, but has another or is gone"
    )
