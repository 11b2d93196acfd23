"""Signed requests to one endpoint: the lean path for calls whose speed matters."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from types import MappingProxyType
from urllib.parse import urlsplit

from commitlog.aws.session import AwsSession
from commitlog.aws.signing import MAX_EXPIRES, Signer, canonical_query
from commitlog.aws.wire import Failed, InFlight, Wire
from commitlog.clock import Clock
from commitlog.errors import CommitError, ConfigurationError

__all__ = ["Caller"]

_EMPTY: Mapping[str, str] = MappingProxyType({})


class Caller:
    """Sends signed requests to one service, or to one bucket of it. Thread-safe.

    Args:
        session: whose requests they are.
        service: name that they are signed for: ``s3`` or ``dynamodb``.
        url: where the service is, as `AwsSession.endpoint` gave it. A path in it goes before all others.
        clock: dates the signatures.

    A request is sent once. See `commitlog.aws.wire` for the errors of the pending call; it also raises
    what `AwsSession.credentials` raises. An answer of any status is an answer.
    """

    def __init__(self, session: AwsSession, service: str, url: str, *, clock: Clock) -> None:
        parts = urlsplit(url)
        self._session = session
        self._clock = clock
        self._root = parts.path.rstrip("/")
        self._signer = Signer(service, session.region)
        self._s3 = service == "s3"
        self._wire = Wire(
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
    ) -> InFlight:
        """Sign the request in its headers and send it; return the call that waits for the answer.

        Args:
            method: HTTP method.
            path: encoded path, from its slash on.
            query: names and values, not encoded.
            headers: names in lower case; all of them are signed.
            body: what to send.
        """
        path = self._root + path
        signed = {"host": self._wire.host, **headers}
        payload = sha256(body).hexdigest()
        if self._s3:
            signed["x-amz-content-sha256"] = payload
        try:
            credentials = self._session.credentials()
        except CommitError as error:
            return Failed(error)
        text = canonical_query(query)
        self._signer.sign_headers(method, path, text, signed, payload, credentials, self._clock.epoch())
        del signed["host"]
        return self._wire.begin(method, f"{path}?{text}" if text else path, signed, body)

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
    ) -> InFlight:
        """Sign a request in its query, to be refused `seconds` after `date`, and send it.

        `date` is an epoch second by the service's own clock. The other arguments are those of `begin`;
        the body is not signed. S3 alone knows such requests.
        """
        if seconds > MAX_EXPIRES:
            raise ConfigurationError(
                f"a request can be signed for {MAX_EXPIRES} s at most, not {seconds}"
            )
        path = self._root + path
        try:
            credentials = self._session.credentials()
        except CommitError as error:
            return Failed(error)
        signed = {"host": self._wire.host, **headers}
        text = self._signer.sign_query(method, path, query, signed, credentials, date, seconds)
        return self._wire.begin(method, f"{path}?{text}", headers, body)

    def close(self) -> None:
        """Close the connections. Idempotent."""
        self._wire.close()
