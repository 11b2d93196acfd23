"""Signed requests to one endpoint, without the overhead of botocore."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from hashlib import sha256
from types import MappingProxyType
from urllib.parse import urlsplit

from commitlog._util.tracing import OpenSpan, begin_span
from commitlog.aws.connections import ConnectionPool, FailedRequest, PendingResponse, Response
from commitlog.aws.session import AwsSession
from commitlog.aws.signing import AWS4, GOOG4, MAX_EXPIRES, Signer, canonical_query
from commitlog.clock import Clock
from commitlog.errors import CommitError, ConfigurationError

__all__ = ["AwsClient"]

_EMPTY: Mapping[str, str] = MappingProxyType({})

_PORTS = MappingProxyType({"http": 80, "https": 443})


class AwsClient:
    """A client that sends signed requests to one service, or to one bucket of it. Thread-safe.

    Args:
        session: the credentials, region and settings.
        service: the name in the signature: ``s3`` or ``dynamodb``.
        url: the endpoint, as `AwsSession.endpoint` returns it. A path in it precedes all other paths.
        clock: dates the signatures.

    A request is sent once. See `commitlog.aws.connections` for the errors of a pending response. It also
    raises the errors of `AwsSession.credentials`. A response of any status is returned.

    Each request records a span, see `commitlog._util.tracing`: the span of an HTTP client in
    https://opentelemetry.io/docs/specs/semconv/http/http-spans/, without the query of the URL, which may
    hold a signature. It ends when the response is read.
    """

    def __init__(self, session: AwsSession, service: str, url: str, *, clock: Clock) -> None:
        parts = urlsplit(url)
        self._scheme, self._hostname = parts.scheme, parts.hostname
        self._port = parts.port or _PORTS[parts.scheme]
        self._session = session
        self._clock = clock
        self._root = parts.path.rstrip("/")
        self._signer = Signer(service, session.region)
        self._google_signer = Signer("storage", session.region, scheme=GOOG4)
        self._s3 = service == "s3"
        self._wire = ConnectionPool(
            url,
            connect_timeout=session.connect_timeout,
            read_timeout=session.read_timeout,
            max_idle=session.max_idle_connections,
            verify=session.verify(),
            proxy=session.proxy(url),
            client_cert=session.client_cert,
        )

    def begin(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] = _EMPTY,
        headers: Mapping[str, str] = _EMPTY,
        body: bytes | bytearray | memoryview = b"",
        google: bool = False,
    ) -> PendingResponse:
        """Sign the request in its headers and send it; return its pending response.

        Args:
            method: HTTP method.
            path: encoded path, from its slash on.
            query: names and values, not encoded.
            headers: names in lower case; all of them are signed.
            body: the body.
            google: sign it as Google Cloud Storage documents, with headers ``x-goog-`` in place of
                ``x-amz-``.
        """
        path = self._root + path
        signed = {"host": self._wire.host, **headers}
        if google:
            signed = GOOG4.renamed(signed)
        payload = sha256(body).hexdigest()
        if self._s3:
            signed[f"{(GOOG4 if google else AWS4).prefix}content-sha256"] = payload
        try:
            credentials = self._session.credentials()
        except CommitError as error:
            return FailedRequest(error)
        text = canonical_query(query)
        signer = self._google_signer if google else self._signer
        signer.sign_headers(method, path, text, signed, payload, credentials, self._clock.epoch())
        del signed["host"]
        return self._begin(method, path, text, signed, body)

    def begin_until(
        self,
        method: str,
        path: str,
        *,
        date: int,
        seconds: int,
        query: Mapping[str, str] = _EMPTY,
        headers: Mapping[str, str] = _EMPTY,
        body: bytes | bytearray | memoryview = b"",
    ) -> PendingResponse:
        """Sign a request in its query and send it. The service refuses it `seconds` after `date`.

        `date` is an epoch second by the service's clock. The other arguments are those of `begin`; the
        body is not signed. Only S3 supports such requests.
        """
        if seconds > MAX_EXPIRES:
            raise ConfigurationError(
                f"a request can be signed for {MAX_EXPIRES} s at most, not {seconds}"
            )
        path = self._root + path
        try:
            credentials = self._session.credentials()
        except CommitError as error:
            return FailedRequest(error)
        signed = {"host": self._wire.host, **headers}
        text = self._signer.sign_query(method, path, query, signed, credentials, date, seconds)
        return self._begin(method, path, text, headers, body)

    def close(self) -> None:
        """Close the connections. Idempotent."""
        self._wire.close()

    def _begin(
        self,
        method: str,
        path: str,
        query: str,
        headers: Mapping[str, str],
        body: bytes | bytearray | memoryview,
    ) -> PendingResponse:
        span = self._begin_span(method, path, headers)
        pending = self._wire.begin(method, f"{path}?{query}" if query else path, headers, body)
        return pending if span is None else partial(_finish, span, pending)

    def _begin_span(self, method: str, path: str, headers: Mapping[str, str]) -> OpenSpan | None:
        # Such as DynamoDB_20120810.PutItem: the services with one URL name the operation in a header.
        operation = headers.get("x-amz-target", "").rpartition(".")[2]
        return begin_span(
            f"{method} {operation}" if operation else method,
            {
                "http.request.method": method,
                "url.full": f"{self._scheme}://{self._wire.host}{path}",
                "server.address": self._hostname,
                "server.port": self._port,
            },
            is_request=True,
        )


def _finish(span: OpenSpan, pending: PendingResponse) -> Response:
    try:
        response = pending()
    except CommitError as error:
        span.end(error)
        raise
    request_id = response.headers.get("x-amz-request-id") or response.headers.get("x-amzn-requestid")
    span.set({"http.response.status_code": response.status, "aws.request_id": request_id})
    if response.status < 400:
        span.end()
    else:
        span.fail(str(response.status))
    return response
