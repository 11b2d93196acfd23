"""HTTP/1.1 requests to one server over a pool of open connections, without threads.

A call has two parts: `ConnectionPool.begin` sends the request, and its result, a pending response, waits
for the answer when it is called. So one thread can have several requests in flight. No request is sent
twice, except if not one byte of it was sent.

A pending response raises `Unavailable` if nothing was sent, `OutcomeUnknown` if the request was sent but
no complete answer arrived, and `ConfigurationError` if the server's certificate or a header is invalid.
"""

from __future__ import annotations

import base64
import io
import os
import re
import select
import socket
import ssl
import weakref
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TypeAlias
from urllib.parse import unquote, urlsplit

from attrs import field, frozen
from botocore.httpsession import where

from commitlog.clock import SystemClock
from commitlog.errors import CommitError, ConfigurationError, OutcomeUnknown, Unavailable

__all__ = ["ConnectionPool", "FailedRequest", "PendingResponse", "Response", "parse_date"]

#: Maximum size in bytes of a body that is sent together with the head.
_INLINE = 64 * 1024
_BUFFER = 64 * 1024
#: Maximum size in bytes of the head of a response, of a line in it, and of all its trailers.
_MAX_HEAD = 256 * 1024
#: Maximum number of bytes that are allocated because a head announces them.
_TRUSTED = 16 * 1024 * 1024
#: Maximum number of interim responses (1xx) before the final one.
_MAX_INTERIM = 100
# int() would also accept signs, spaces, underscores, and other digits.
_STATUS = re.compile("[1-9][0-9]{2}")
_DECIMAL = re.compile("[0-9]{1,18}")
_HEXADECIMAL = re.compile("[0-9a-fA-F]{1,15}")
#: Seconds after which an idle connection is not used any more: servers close theirs at about that time.
_MAX_IDLE = 15.0
_CLOCK = SystemClock()

_PORTS = {"http": 80, "https": 443}


@frozen
class Response:
    """A complete answer.

    Attributes:
        status: HTTP status.
        headers: names in lower case; values of repeated headers joined by a comma.
        body: all of it; empty for HEAD.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes


PendingResponse: TypeAlias = Callable[[], Response]


def parse_date(text: str) -> datetime:
    """Return a date in a response, in any form that boto3 reads. Raises `ValueError`.

    >>> parse_date("Sat, 21 Nov 2026 10:00:00 GMT").isoformat()
    '2026-11-21T10:00:00+00:00'
    """
    from botocore.utils import parse_timestamp

    parsed: datetime = parse_timestamp(text)
    return parsed


class ConnectionPool:
    """The connections to one server. Thread-safe, and usable in a child process after a fork.

    Args:
        url: ``http://host[:port]`` or ``https://host[:port]``; a path in it is not used.
        connect_timeout: seconds to wait for a connection.
        read_timeout: seconds to wait for room to send, or for the next bytes of a response.
        max_idle: maximum number of idle connections; more may be in use at once.
        verify: as in `AwsSession.verify`.
        proxy: URL of an HTTP proxy: requests go through it (``CONNECT`` for https).
        client_cert: as in `AwsSession.client_cert`.
    """

    def __init__(
        self,
        url: str,
        *,
        connect_timeout: float,
        read_timeout: float,
        max_idle: int,
        verify: bool | str = True,
        proxy: str | None = None,
        client_cert: str | tuple[str, str] | None = None,
    ) -> None:
        parts = urlsplit(url)
        self._hostname = parts.hostname or ""
        self._port = parts.port or _PORTS[parts.scheme]
        #: Value of the Host header.
        self.host = _host_header(self._hostname, parts.port, parts.scheme)
        self._connect_timeout = connect_timeout
        self._read_timeout = read_timeout
        self._max_idle = max_idle
        self._tls = _tls_context(verify, client_cert) if parts.scheme == "https" else None
        self._proxy = _Proxy.parse(proxy) if proxy else None
        # Appending to and popping from a list are atomic; a lock could stay locked after a fork.
        self._idle: list[_Connection] = []
        self._closed = False

    def begin(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | bytearray | memoryview = b"",
    ) -> PendingResponse:
        """Send a request; return its pending response.

        Args:
            method: HTTP method.
            target: path and query, encoded.
            headers: all headers except Host and Content-Length.
            body: the body.
        """
        try:
            head = self._head(method, target, headers, len(body))
            connection, problem = self._send(head, body)
        except CommitError as error:
            return FailedRequest(error)
        return _Exchange(self, connection, method, problem)

    def close(self) -> None:
        """Close the idle connections, and those in use once they are done. Idempotent."""
        self._closed = True
        while (connection := self._take()) is not None:
            connection.close()

    def _head(self, method: str, target: str, headers: Mapping[str, str], length: int) -> bytes:
        lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
        if length or method in ("PUT", "POST"):
            lines.append(f"content-length: {length}\r\n")
        if self._proxy and not self._tls:
            target = f"http://{self.host}{target}"
            lines.extend(self._proxy.headers)
        head = f"{method} {target} HTTP/1.1\r\nhost: {self.host}\r\n{''.join(lines)}\r\n"
        # A line break in a value must not begin another header.
        if head.count("\n") != len(lines) + 3 or head.count("\r") != len(lines) + 3:
            raise ConfigurationError("a header value has a line break in it")
        try:
            return head.encode("ascii")
        except UnicodeEncodeError:
            raise ConfigurationError("a header value is not ASCII") from None

    def _send(
        self, head: bytes, body: bytes | bytearray | memoryview
    ) -> tuple[_Connection, OSError | None]:
        """Send on an idle connection that is still open, else on a new one.

        Returns the connection, and the error after the first byte, if any: the server may have answered
        before it read the whole request.
        """
        first = memoryview(head + body if len(body) <= _INLINE else head)
        rest = memoryview(b"" if len(body) <= _INLINE else body)
        while True:
            reused = self._take()
            connection = reused or self._connect()
            try:
                sent = connection.sock.send(first)
            except OSError as error:
                connection.close()
                if reused:
                    continue
                raise Unavailable(f"{self.host}: nothing could be sent ({_reason(error)})") from error
            try:
                _send_all(connection.sock, first[sent:])
                _send_all(connection.sock, rest)
            except OSError as error:
                return connection, error
            return connection, None

    def _take(self) -> _Connection | None:
        """Return the most recently used idle connection that seems to be open, or None."""
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return None
            if connection.usable():
                return connection
            connection.close()

    def give_back(self, connection: _Connection) -> None:
        """Keep a connection for the next request. Its last response was read completely."""
        if self._closed or len(self._idle) >= self._max_idle:
            connection.close()
        else:
            connection.idle_since = _CLOCK.monotonic()
            self._idle.append(connection)

    def _connect(self) -> _Connection:
        place = self._proxy.place if self._proxy else (self._hostname, self._port)
        sock: socket.socket | None = None
        try:
            sock = socket.create_connection(place, timeout=self._connect_timeout)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls:
                if self._proxy:
                    self._tunnel(sock, self._proxy)
                sock = self._tls.wrap_socket(sock, server_hostname=self._hostname)
        except (OSError, ValueError) as error:
            if sock is not None:
                sock.close()
            if isinstance(error, ssl.SSLCertVerificationError):
                raise ConfigurationError(
                    f"{self.host}: its TLS certificate is not trusted ({error.verify_message}): set "
                    "verify to the path of a CA bundle"
                ) from error
            raise Unavailable(
                f"{self.host}: no connection ({_reason(error)}); check the endpoint and the network"
            ) from error
        sock.settimeout(self._read_timeout)
        return _Connection(sock)

    def _tunnel(self, sock: socket.socket, proxy: _Proxy) -> None:
        place = f"{_bracketed(self._hostname)}:{self._port}"
        lines = "".join(proxy.headers)
        sock.sendall(f"CONNECT {place} HTTP/1.1\r\nhost: {place}\r\n{lines}\r\n".encode())
        status, _ = _Reader(sock).head()
        if status != 200:
            raise ConnectionError(f"the proxy answered {status} to CONNECT")


class _Connection:
    """One open socket, and the state needed to check that it is still open."""

    __slots__ = ("__weakref__", "_pid", "_poll", "close", "idle_since", "sock")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.idle_since = 0.0
        self._pid = os.getpid()
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        #: Also called when the exchange is dropped and its response is no longer awaited.
        self.close = weakref.finalize(self, sock.close)
        self.close.atexit = False

    def usable(self) -> bool:
        """Return whether the connection is open and nothing arrived on it while it was idle.

        Data would mean that the server closed it, or that responses do not match requests. A connection
        of the parent process is not used.
        """
        return (
            self._pid == os.getpid()
            and _CLOCK.monotonic() - self.idle_since < _MAX_IDLE
            and not self._poll.poll(0)
            and not (isinstance(self.sock, ssl.SSLSocket) and self.sock.pending())
        )


class FailedRequest:
    """The pending response of a request that could not be sent: it raises the error."""

    __slots__ = ("_error",)

    def __init__(self, error: CommitError) -> None:
        self._error = error

    def __call__(self) -> Response:
        raise self._error


class _Exchange:
    """The pending response of a request that was sent."""

    __slots__ = ("_connection", "_method", "_pool", "_problem")

    def __init__(
        self, pool: ConnectionPool, connection: _Connection, method: str, problem: OSError | None
    ) -> None:
        self._pool = pool
        self._connection = connection
        self._method = method
        self._problem = problem

    def __call__(self) -> Response:
        connection = self._connection
        try:
            response, keep = _Reader(connection.sock).response(self._method)
        except (OSError, ValueError, MemoryError) as error:
            connection.close()
            reason = _reason(self._problem or error)
            raise OutcomeUnknown(
                f"{self._pool.host}: no complete answer to a {self._method} that was sent ({reason})"
            ) from error
        if keep and self._problem is None:
            self._pool.give_back(connection)
        else:
            connection.close()
        return response


class _Body(io.RawIOBase):
    """The bytes of a body: those that came with the head, and the rest from the socket."""

    def __init__(self, sock: socket.socket, start: bytes, length: int) -> None:
        self._sock = sock
        self._start = memoryview(start)
        self._left = length

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        target = buffer[: self._left]
        if self._start:
            count = min(len(target), len(self._start))
            target[:count] = self._start[:count]
            self._start = self._start[count:]
        else:
            count = self._sock.recv_into(target) if target else 0
        self._left -= count
        return count


class _Reader:
    """Reads one response from a socket. ValueError: the bytes are not HTTP."""

    __slots__ = ("_buffer", "_sock")

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._buffer = b""

    def response(self, method: str) -> tuple[Response, bool]:
        """Return the response, and whether the connection can be used again."""
        status, headers = self.head()
        interim = 0
        while 100 <= status < 200:
            interim += 1
            if interim > _MAX_INTERIM:
                raise ValueError("the response does not end")
            status, headers = self.head()
        keep = "close" not in headers.get("connection", "").lower()
        if method == "HEAD" or status in (204, 304):
            body = b""
        elif (coding := headers.get("transfer-encoding")) is not None:
            if coding.lower() != "chunked":
                raise ValueError(f"the response is coded as {coding!r}")
            body = self._chunked()
        elif (length := headers.get("content-length")) is not None:
            body = self._exactly(_number(length, _DECIMAL, 10))
        else:
            body, keep = self._to_end(), False
        return Response(status, headers, body), keep and not self._buffer

    def head(self) -> tuple[int, dict[str, str]]:
        buffer = self._buffer or self._more()
        while (end := buffer.find(b"\r\n\r\n")) < 0:
            if len(buffer) > _MAX_HEAD:
                raise ValueError("the head of the response is too long")
            buffer += self._more()
        self._buffer = buffer[end + 4 :]
        lines = buffer[:end].decode("latin-1").split("\r\n")
        version, _, rest = lines[0].partition(" ")
        if not version.startswith("HTTP/1."):
            raise ValueError("the response is not HTTP/1.1")
        headers: dict[str, str] = {} if version == "HTTP/1.1" else {"connection": "close"}
        for line in lines[1:]:
            name, colon, value = line.partition(":")
            if not colon:
                raise ValueError("the response has a line that is not a header")
            name = name.lower()
            value = value.strip()
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        return _number(rest[:3], _STATUS, 10), headers

    def _more(self) -> bytes:
        data = self._sock.recv(_BUFFER)
        if not data:
            raise ConnectionError("the server closed the connection")
        return data

    def _exactly(self, length: int) -> bytes:
        buffer = self._buffer
        if len(buffer) >= length:
            self._buffer = buffer[length:]
            return buffer[:length]
        self._buffer = b""
        if length <= _TRUSTED:
            # The bytes are allocated once, and received where they stay.
            body = io.BufferedReader(_Body(self._sock, buffer, length), _BUFFER).read(length)
            if len(body) < length:
                raise ConnectionError(
                    f"the server closed the connection {length - len(body)} bytes early"
                )
            return body
        return self._exactly_large(buffer, length)

    def _exactly_large(self, buffer: bytes, length: int) -> bytes:
        body = bytearray(max(_TRUSTED, len(buffer)))
        body[: len(buffer)] = buffer
        done = len(buffer)
        while done < length:
            if done == len(body):  # double the size
                body += bytes(min(length - done, done))
            count = self._sock.recv_into(memoryview(body)[done:])
            if not count:
                raise ConnectionError(f"the server closed the connection {length - done} bytes early")
            done += count
        return bytes(body)

    def _chunked(self) -> bytes:
        chunks: list[bytes] = []
        while size := _number(self._line().partition(b";")[0].decode("latin-1"), _HEXADECIMAL, 16):
            chunks.append(self._exactly(size))
            if self._line():
                raise ValueError("a chunk of the response is longer than it says")
        trailers = 0
        while line := self._line():
            trailers += len(line)
            if trailers > _MAX_HEAD:
                raise ValueError("the trailers of the response are too long")
        return b"".join(chunks)

    def _line(self) -> bytes:
        while (end := self._buffer.find(b"\r\n")) < 0:
            if len(self._buffer) > _MAX_HEAD:
                raise ValueError("a line of the response is too long")
            self._buffer += self._more()
        line = self._buffer[:end]
        self._buffer = self._buffer[end + 2 :]
        return line

    def _to_end(self) -> bytes:
        chunks = [self._buffer]
        self._buffer = b""
        while data := self._sock.recv(_BUFFER):
            chunks.append(data)
        return b"".join(chunks)


@frozen
class _Proxy:
    place: tuple[str, int]
    headers: tuple[str, ...] = field(repr=False)

    @classmethod
    def parse(cls, url: str) -> _Proxy:
        try:
            parts = urlsplit(url if "://" in url else f"http://{url}")
            place = (parts.hostname or "", parts.port or 80)
        except ValueError:  # it quotes a part of the URL, which may be one of the password
            parts, place = urlsplit(""), ("", 0)
        if parts.scheme != "http" or not place[0]:
            raise ConfigurationError(
                "the proxy for the endpoint must be given as http://host:port, with its password"
                " percent-encoded"
            )
        headers: tuple[str, ...] = ()
        if parts.username is not None:
            login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            headers = (f"proxy-authorization: Basic {base64.b64encode(login.encode()).decode()}\r\n",)
        return cls(place, headers)


def _host_header(hostname: str, port: int | None, scheme: str) -> str:
    host = _bracketed(hostname)
    return host if port in (None, _PORTS[scheme]) else f"{host}:{port}"


def _bracketed(hostname: str) -> str:
    return f"[{hostname}]" if ":" in hostname else hostname


def _tls_context(verify: bool | str, client_cert: str | tuple[str, str] | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if client_cert is not None:
        files = (client_cert,) if isinstance(client_cert, str) else tuple(client_cert)
        try:
            context.load_cert_chain(*files)
        except OSError as error:
            raise ConfigurationError(
                f"client certificate {files[0]!r} cannot be used: {_reason(error)}"
            ) from error
    if verify is False:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context
    bundle = where() if verify is True else verify
    try:
        if os.path.isdir(bundle):
            context.load_verify_locations(capath=bundle)
        else:
            context.load_verify_locations(cafile=bundle)
    except OSError as error:
        raise ConfigurationError(f"CA bundle {bundle!r} cannot be used: {_reason(error)}") from error
    return context


def _send_all(sock: socket.socket, view: memoryview) -> None:
    # The timeout of `sendall` would cover the whole body.
    while view:
        view = view[sock.send(view) :]


def _number(text: str, digits: re.Pattern[str], base: int) -> int:
    text = text.strip(" \t")
    if not digits.fullmatch(text):
        raise ValueError(f"{text!r:.40} in the response is not a number")
    return int(text, base)


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__
