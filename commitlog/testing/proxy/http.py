"""HTTP/1.1 messages as the proxy reads and forwards them, byte for byte."""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Mapping

from attrs import frozen

__all__ = ["HttpMessage", "Peer"]

_READS = frozenset({"GET", "HEAD"})
_CHUNK = 262_144


@frozen
class HttpMessage:
    """A request or a response.

    Attributes:
        start_line: the parts of its first line.
        headers: names in lower case.
        data: all its bytes.
        last: whether the connection ends with it.
    """

    start_line: list[str]
    headers: dict[str, str]
    data: bytes
    last: bool

    @property
    def method(self) -> str:
        """Method of a request."""
        return self.start_line[0]

    @property
    def target(self) -> str:
        """Path and query of a request."""
        return self.start_line[1]

    @property
    def path(self) -> str:
        """Path of a request."""
        return self.target.partition("?")[0]

    @property
    def status(self) -> int:
        """Status of a response."""
        return int(self.start_line[1])

    @property
    def service(self) -> str:
        """The service of a request: ``DynamoDB`` or ``S3``."""
        return "DynamoDB" if "x-amz-target" in self.headers else "S3"

    @property
    def mutates(self) -> bool:
        """Whether the request may change an object."""
        return self.service == "S3" and self.method not in _READS

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of a request, narrowest first; see `Proxy`."""
        if self.service == "DynamoDB":
            return self.headers["x-amz-target"].rpartition(".")[2], "DynamoDB"
        kinds = [self.method, "S3"]
        if "x-amz-copy-source" in self.headers:
            kinds.insert(0, "COPY")
        elif self.method == "POST" and "uploadId=" in self.target:
            kinds.insert(0, "PUBLISH")
        if "X-Amz-Expires=" in self.target:
            kinds.append("expiring")
        if "if-none-match" in self.headers:
            kinds.append("if-absent")
        if "if-match" in self.headers:
            kinds.append("if-match")
        return tuple(kinds)


class Peer:
    """One end of an HTTP/1.1 connection. Not thread-safe.

    Raises `OSError` if the other side is gone, `ValueError` or `IndexError` if it sends no HTTP.
    """

    def __init__(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connection
        self._buffer = bytearray()

    def read_request(self) -> HttpMessage | None:
        """Return the next request, or None at the end."""
        head = self._read_head()
        if head is None:
            return None
        start_line, headers, data = head
        if "expect" in headers:
            self.send(b"HTTP/1.1 100 Continue\r\n\r\n")
            lines = data.split(b"\r\n")
            data = b"\r\n".join(line for line in lines if not line.lower().startswith(b"expect:"))
        body, _ = self._read_body(headers, otherwise=0)
        return HttpMessage(start_line, headers, data + body, last=_is_last(headers))

    def read_response(self, *, to_head: bool) -> HttpMessage:
        """Return the response to a request; `to_head` if that was HEAD, so that no body follows."""
        head = self._read_head()
        if head is None:
            raise ConnectionResetError("the server closed the connection instead of answering")
        start_line, headers, data = head
        if to_head or start_line[1] in ("204", "304"):
            return HttpMessage(start_line, headers, data, last=_is_last(headers))
        body, ended = self._read_body(headers, otherwise=None)
        return HttpMessage(start_line, headers, data + body, last=ended or _is_last(headers))

    def pass_response(self, target: Peer, *, to_head: bool) -> bool:
        """Send the response to `target` as it arrives; return whether the connection ends with it.

        A response of known size is not held in memory. If it breaks off, this raises, and `target` has a
        part of it.
        """
        head = self._read_head()
        if head is None:
            raise ConnectionResetError("the server closed the connection instead of answering")
        start_line, headers, data = head
        last = _is_last(headers)
        if to_head or start_line[1] in ("204", "304"):
            target.send(data)
        elif "content-length" in headers and "transfer-encoding" not in headers:
            left = int(headers["content-length"])
            body = self._take(min(left, len(self._buffer)))
            target.send(data + body)
            self._pass_on(target, left - len(body))
        else:
            body, ended = self._read_body(headers, otherwise=None)
            target.send(data + body)
            last = last or ended
        return last

    def _pass_on(self, target: Peer, size: int) -> None:
        view = memoryview(bytearray(min(size, _CHUNK)))
        while size:
            count = self._socket.recv_into(view[: min(size, _CHUNK)])
            if not count:
                raise ConnectionResetError("the connection ended in mid message")
            target._socket.sendall(view[:count])
            size -= count

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._socket.sendall(data)

    def is_stale(self) -> bool:
        """Return whether the other side has closed the idle connection."""
        return bool(select.select([self._socket], [], [], 0)[0])

    def reset(self) -> None:
        """Close so that the other side sees "connection reset by peer". Idempotent."""
        if self._socket.fileno() < 0:
            return
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    def close(self) -> None:
        """Close in good order. Idempotent."""
        self._socket.close()

    def _read_head(self) -> tuple[list[str], dict[str, str], bytes] | None:
        while (end := self._buffer.find(b"\r\n\r\n")) < 0:
            if not self._fill():
                return None
        data = self._take(end + 4)
        first, *lines = data[:-4].decode("latin-1").split("\r\n")
        headers = {
            name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
        }
        return first.split(" ", 2), headers, data

    def _read_body(self, headers: Mapping[str, str], *, otherwise: int | None) -> tuple[bytes, bool]:
        """Return the body as it was framed, and whether only the end of the connection ended it."""
        if "chunked" in headers.get("transfer-encoding", ""):
            return self._read_chunks(), False
        size = int(headers["content-length"]) if "content-length" in headers else otherwise
        if size is None:
            while self._fill():
                pass
            return self._take(len(self._buffer)), True
        self._need(size)
        return self._take(size), False

    def _read_chunks(self) -> bytes:
        chunks = bytearray()
        while True:
            line = self._take_line()
            size = int(line.split(b";")[0], 16)
            chunks += line
            if size == 0:
                break
            self._need(size + 2)
            chunks += self._take(size + 2)
        while (line := self._take_line()) != b"\r\n":
            chunks += line
        return bytes(chunks + line)

    def _take_line(self) -> bytes:
        while (end := self._buffer.find(b"\r\n")) < 0:
            self._need(len(self._buffer) + 1)
        return self._take(end + 2)

    def _need(self, size: int) -> None:
        while len(self._buffer) < size:
            if not self._fill():
                raise ConnectionResetError("the connection ended in mid message")

    def _fill(self) -> bool:
        data = self._socket.recv(_CHUNK)
        self._buffer += data
        return bool(data)

    def _take(self, size: int) -> bytes:
        data = bytes(self._buffer[:size])
        del self._buffer[:size]
        return data


def _is_last(headers: Mapping[str, str]) -> bool:
    return headers.get("connection", "").lower() == "close"
