"""Requests to one bucket, and what their answers say in the words of `commitlog.errors`.

Imports aws, the port, errors, backoff and clock.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from hashlib import md5
from types import MappingProxyType

from attrs import frozen

from commitlog.aws import Caller, Response, common_fault, encode_path, first_line
from commitlog.backoff import Backoff
from commitlog.clock import Clock
from commitlog.errors import (
    AlreadyExists,
    BucketNotFound,
    CommitError,
    Conflict,
    NotFound,
    OutcomeUnknown,
    PreconditionFailed,
    RequestExpired,
    Unavailable,
)
from commitlog.repeats import repeated
from commitlog.stores.api import Condition, Fence, IfAbsent, IfMatch, Pending
from commitlog.stores.s3_xml import error_of, http_date

__all__ = ["LOOK", "Bucket", "Request", "content_md5", "has_code", "is_marked"]

_EMPTY: Mapping[str, str] = MappingProxyType({})

#: The body did not reach the service as it was sent, so the service did nothing with it.
_DAMAGED = frozenset({"BadDigest", "IncompleteBody", "RequestTimeout", "XAmzContentSHA256Mismatch"})
_COPY = "x-amz-copy-source"
_CONFLICT = frozenset({"ConditionalRequestConflict", "OperationAborted"})
#: Codes under which services refuse a signed query that is too late; the message tells it from others.
_TOO_LATE = frozenset({"AccessDenied", "ExpiredPresignRequest", "RequestExpired"})
#: Statuses with which services refuse a request before they look at what it is about.
_REFUSED = frozenset({400, 401, 403})
_MARKS = frozenset({"x-amz-request-id", "x-amz-id-2"})


#: What to do after a mutation whose answer was lost.
LOOK = "It may have happened, or may yet: look before you repeat it"


@frozen
class Request:
    """One request to the bucket, before it is signed.

    Attributes:
        method: HTTP method.
        key: full key; empty for the bucket itself.
        query: names and values, not encoded.
        headers: names in lower case.
        body: what to send.
        condition: what the object under `key` must be; adds its header.
        fence: when the store must refuse it.
    """

    method: str
    key: str = ""
    query: Mapping[str, str] = _EMPTY
    headers: Mapping[str, str] = _EMPTY
    body: bytes | bytearray | memoryview = b""
    condition: Condition | None = None
    fence: Fence | None = None


class Bucket:
    """Sends requests to one bucket. Thread-safe.

    Args:
        name: of the bucket, for messages.
        caller: sends to the URL of the bucket.
        clock: what `backoff` waits on.
        backoff: how requests are repeated that may be.
    """

    def __init__(self, name: str, caller: Caller, *, clock: Clock, backoff: Backoff) -> None:
        self._name = name
        self._caller = caller
        self._clock = clock
        self._backoff = backoff

    def send(self, request: Request) -> Pending[Response]:
        """Send a mutation, once; the pending call returns an answer of success or raises."""
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
        request: Request,
        *,
        accept: Callable[[Response], bool] = lambda response: False,
        flaw: Callable[[Mapping[str, str]], str] = lambda headers: "",
    ) -> Pending[Response]:
        """Send a request that may be repeated, which the pending call does as needed.

        That is one that changes nothing, or nothing that anybody sees. The call returns an answer of
        success, or another that `accept` takes. In the end it raises `Unavailable`, never
        `OutcomeUnknown`.
        `flaw` tells from the headers why an answer of success is of no use, so that another is asked
        for; or nothing.
        """
        first = self._begin(request)

        def outcome() -> Response:
            cause: CommitError | None = None
            said = ""
            for attempt in self._backoff.attempts(self._clock):
                if cause is not None:
                    repeated(cause)
                pending = self._begin(request) if attempt else first
                try:
                    response = pending()
                except (Unavailable, OutcomeUnknown) as error:
                    cause, said = error, f"{self.what(request)}: {error}"
                    continue
                if accept(response):
                    return response
                if 200 <= response.status < 300:
                    if not (why := flaw(response.headers)):
                        return response
                    problem: CommitError = Unavailable(f"{self.what(request)}: {why}")
                else:
                    problem = self.fault(request, response)
                if not isinstance(problem, (Unavailable, OutcomeUnknown)):
                    raise problem
                cause, said = problem, str(problem)
            raise Unavailable(f"{said}; given up after several attempts") from cause

        return outcome

    def what(self, request: Request) -> str:
        """Return what a request does, for a message."""
        place = f"{request.key!r} in " if request.key else ""
        return f"{request.method} {place}s3://{self._name}"

    def fault(self, request: Request, response: Response) -> CommitError:
        """Return the error that an answer of no success stands for.

        Sources: "Error responses" and the pages of each operation in the Amazon S3 API Reference.
        """
        status, (code, message) = response.status, error_of(response.body)
        what, condition = self.what(request), request.condition
        if condition is not None:
            if status == 412 or code == "PreconditionFailed":
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
        if request.fence is not None and _is_late(request.fence, response, code, message):
            return RequestExpired(f"{what}: {status} {code}: the store says that it came too late")
        if code in _DAMAGED:
            return Unavailable(f"{what}: {status} {code}: {first_line(message)}; try again")
        if region := response.headers.get("x-amz-bucket-region"):
            message = f"{first_line(message)} (the bucket is in region {region})"
        return common_fault(what, status, code, message)

    def close(self) -> None:
        """Close the connections. Idempotent."""
        self._caller.close()

    def _begin(self, request: Request) -> Pending[Response]:
        path = f"/{encode_path(request.key)}"
        headers = request.headers
        if isinstance(request.condition, IfAbsent):
            headers = {**headers, "if-none-match": "*"}
        elif isinstance(request.condition, IfMatch):
            headers = {**headers, "if-match": request.condition.etag}
        if request.fence is None:
            return self._caller.begin(
                request.method, path, query=request.query, headers=headers, body=request.body
            )
        if request.body:  # a signed query does not cover the body
            headers = {**headers, "content-md5": content_md5(request.body)}
        return self._caller.begin_until(
            request.method,
            path,
            date=request.fence.date,
            seconds=request.fence.seconds,
            query=request.query,
            headers=headers,
            body=request.body,
        )


def content_md5(body: bytes | bytearray | memoryview) -> str:
    """Return the value of a Content-MD5 header: protection against accidents, not against attackers."""
    return base64.b64encode(md5(body, usedforsecurity=False).digest()).decode()


def has_code(response: Response) -> bool:
    """Tell whether an answer has an error code of S3, so that it is the store's own."""
    return bool(error_of(response.body)[0])


def is_marked(response: Response) -> bool:
    """Tell whether an answer bears the id by which S3, and most that speak its protocol, mark theirs."""
    return not _MARKS.isdisjoint(response.headers)


def _is_late(fence: Fence, response: Response, code: str, message: str) -> bool:
    """Tell whether a request was refused because it came after its expiry.

    Services refuse it under different codes, Ceph under one that says nothing more. But the store dates
    its answer by the clock by which it checks. A refusal for another reason comes again when the request
    is made anew with a later expiry, so nothing is lost if it is taken for a late one.
    """
    if code in _TOO_LATE and "expired" in message.lower():
        return True
    now = http_date(response.headers.get("date"))
    return response.status in _REFUSED and now is not None and now >= fence.expires_at


def _unmet(what: str, condition: Condition) -> CommitError:
    if isinstance(condition, IfAbsent):
        return AlreadyExists(f"{what}: there is an object already")
    return PreconditionFailed(
        f"{what}: it should have etag {condition.etag}, but has another or is gone"
    )
