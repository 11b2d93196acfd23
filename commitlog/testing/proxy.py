"""An HTTP proxy on loopback that makes a nearby server slow, or its network unreliable.

For benchmarks it adds a latency to each kind of request; for tests it loses a request, or the
response to one that was carried out, at a moment of the test's choosing. It runs in a process of its
own, so that it takes no time from the interpreter under test, and ends with the one that started it.

Imports the ground floor alone. Guarantees that it never sends a request twice, that latencies of
concurrent requests overlap, and that what it lets through is unchanged (but for ``Expect``, which it
answers itself). Bodies are held in memory whole. No TLS.
"""

from __future__ import annotations

import json
import select
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import urlsplit

from attrs import asdict, evolve, field, frozen, validators

from commitlog.errors import Unavailable

__all__ = ["Fault", "Proxy"]

_KEPT_REQUESTS = 10_000


@frozen(kw_only=True)
class Fault:
    """Something that goes wrong with the next requests of one kind.

    Attributes:
        kind: which requests; see `Proxy`.
        action: ``drop_request`` resets the connection without telling the server; ``drop_response``
            lets the server carry the request out, then resets the connection; ``delay`` holds the
            request back for `seconds` before the server sees it; ``answer`` answers in its stead.
        path: only requests whose path and query contain this.
        skip: let that many matching requests through first.
        times: how many requests it then strikes.
        seconds: length of a ``delay``.
        status: HTTP status of an ``answer``.
        body: body of an ``answer``.
    """

    kind: str
    action: Literal["drop_request", "drop_response", "delay", "answer"] = field(
        validator=validators.in_(["drop_request", "drop_response", "delay", "answer"])
    )
    path: str = ""
    skip: int = field(default=0, validator=validators.ge(0))
    times: int = field(default=1, validator=validators.ge(1))
    seconds: float = field(default=0.0, validator=validators.ge(0))
    status: int = 503
    body: str = ""


class Proxy:
    """A proxy in front of `upstream`, as a context manager.

    Args:
        upstream: URL of the server, such as ``http://127.0.0.1:8000``.
        latency: seconds to add to each request of a kind.

    The kind of a request is its HTTP method for S3 (``HEAD``, ``PUT``, …), but ``COPY`` for a
    CopyObject, and the operation for DynamoDB (``PutItem``, …), told by the ``X-Amz-Target`` header.
    Where nothing is given for it, the wider kind counts: ``PUT`` for ``COPY``, ``DynamoDB`` for all
    operations of DynamoDB. The latency passes before the server sees the request.

    The methods may be called from any thread. An instance can be entered once.
    """

    def __init__(self, upstream: str, *, latency: Mapping[str, float] | None = None) -> None:
        self._upstream = upstream
        self._latency = dict(latency or {})
        self._process: subprocess.Popen[str] | None = None
        self._port = 0
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        settings = json.dumps({"upstream": self._upstream, "latency": self._latency})
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from commitlog.testing.proxy import _main; _main()", settings],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            self._port = self._answer()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End the proxy; requests under way are cut off. Idempotent."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    @property
    def endpoint_url(self) -> str:
        """The URL that clients are to talk to."""
        return f"http://127.0.0.1:{self._port}"

    def inject(self, fault: Fault) -> None:
        """Let `fault` happen to the next requests that match it.

        Several faults form a queue: the first that matches a request is the one that strikes it.
        """
        self._ask("inject", asdict(fault))

    def requests(self) -> list[str]:
        """Return the requests seen since the last call, as ``"PUT /bucket/key"``, in order.

        At most the last ten thousand. One that was dropped is among them.
        """
        seen: list[str] = self._ask("requests")
        return seen

    def _ask(self, method: str, *arguments: Any) -> Any:
        assert self._process is not None and self._process.stdin is not None, "not started"
        with self._lock:
            try:
                self._process.stdin.write(json.dumps([method, *arguments]) + "\n")
                self._process.stdin.flush()
            except BrokenPipeError:
                pass  # The missing answer says it.
            return self._answer()

    def _answer(self) -> Any:
        assert self._process is not None and self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise Unavailable(f"the proxy of {self._upstream} has ended; its error is on stderr")
        return json.loads(line)


# -- in the proxy's own process -----------------------------------------------------------------------


def _main() -> None:
    settings = json.loads(sys.argv[1])
    relay = _Relay(settings["upstream"], settings["latency"])
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        threading.Thread(target=relay.serve, args=(listener,), daemon=True).start()
        print(listener.getsockname()[1], flush=True)
        # The end of stdin is the end of whoever started this process, however it came about.
        for line in sys.stdin:
            method, *arguments = json.loads(line)
            print(json.dumps(getattr(relay, method)(*arguments)), flush=True)


class _Relay:
    """Hands requests on, one thread a connection: blocking calls are the cheapest there are here."""

    def __init__(self, upstream: str, latency: Mapping[str, float]) -> None:
        parts = urlsplit(upstream)
        self._upstream = (parts.hostname or "", parts.port or 80)
        self._latency = latency
        self._lock = threading.Lock()
        self._faults: list[Fault] = []
        self._requests: deque[str] = deque(maxlen=_KEPT_REQUESTS)

    def inject(self, fault: dict[str, Any]) -> None:
        with self._lock:
            self._faults.append(Fault(**fault))

    def requests(self) -> list[str]:
        with self._lock:
            seen = list(self._requests)
            self._requests.clear()
            return seen

    def serve(self, listener: socket.socket) -> None:
        while True:
            client, _ = listener.accept()
            threading.Thread(target=self._converse, args=(client,), daemon=True).start()

    def _converse(self, connection: socket.socket) -> None:
        client, server = _Peer(connection), None
        try:
            while request := client.read_request():
                kinds = _kinds_of(request)
                fault = self._note(kinds, request)
                time.sleep(next((self._latency[kind] for kind in kinds if kind in self._latency), 0.0))
                if fault is not None:
                    if fault.action == "drop_request":
                        return client.reset()
                    if fault.action == "answer":
                        client.send(_made_up(fault, request))
                        continue
                    time.sleep(fault.seconds)
                if server is None or server.is_stale():
                    server = _Peer(socket.create_connection(self._upstream))
                server.send(request.data)
                response = server.read_response(to_head=request.method == "HEAD")
                if fault is not None and fault.action == "drop_response":
                    return client.reset()
                client.send(response.data)
                if response.last or request.last:
                    return None
        except (OSError, ValueError, IndexError):
            # Either side is gone or speaks no HTTP. The other is to see a broken connection, not an
            # orderly end.
            client.reset()
        finally:
            client.close()
            if server is not None:
                server.close()

    def _note(self, kinds: tuple[str, ...], request: _Message) -> Fault | None:
        with self._lock:
            self._requests.append(f"{kinds[0]} {request.target}")
            for index, fault in enumerate(self._faults):
                if fault.kind not in kinds or fault.path not in request.target:
                    continue
                if fault.skip:
                    self._faults[index] = evolve(fault, skip=fault.skip - 1)
                    continue
                if fault.times > 1:
                    self._faults[index] = evolve(fault, times=fault.times - 1)
                else:
                    del self._faults[index]
                return fault
        return None


@frozen
class _Message:
    """A request or a response: its first line in words, its headers in lower case, all its bytes."""

    words: list[str]
    headers: dict[str, str]
    data: bytes
    last: bool

    @property
    def method(self) -> str:
        return self.words[0]

    @property
    def target(self) -> str:
        return self.words[1]


class _Peer:
    """One side of a conversation in HTTP/1.1."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connection
        self._buffer = bytearray()

    def read_request(self) -> _Message | None:
        """Return the next request, or None at the end."""
        head = self._read_head()
        if head is None:
            return None
        words, headers, data = head
        if "expect" in headers:
            self.send(b"HTTP/1.1 100 Continue\r\n\r\n")
            lines = data.split(b"\r\n")
            data = b"\r\n".join(line for line in lines if not line.lower().startswith(b"expect:"))
        body, _ = self._read_body(headers, otherwise=0)
        return _Message(words, headers, data + body, last=_is_last(headers))

    def read_response(self, *, to_head: bool) -> _Message:
        """Return the response to a request; `to_head` if that was HEAD, so that no body follows."""
        head = self._read_head()
        if head is None:
            raise ConnectionResetError("the server closed the connection instead of answering")
        words, headers, data = head
        if to_head or words[1] in ("204", "304"):
            return _Message(words, headers, data, last=_is_last(headers))
        body, ended = self._read_body(headers, otherwise=None)
        return _Message(words, headers, data + body, last=ended or _is_last(headers))

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def is_stale(self) -> bool:
        """Tell whether the other side has closed the idle connection."""
        return bool(select.select([self._socket], [], [], 0)[0])

    def reset(self) -> None:
        """Close so that the other side sees "connection reset by peer"."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    def close(self) -> None:
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
        data = self._socket.recv(262_144)
        self._buffer += data
        return bool(data)

    def _take(self, size: int) -> bytes:
        data = bytes(self._buffer[:size])
        del self._buffer[:size]
        return data


def _kinds_of(request: _Message) -> tuple[str, ...]:
    if "x-amz-target" in request.headers:
        return request.headers["x-amz-target"].rpartition(".")[2], "DynamoDB"
    if "x-amz-copy-source" in request.headers:
        return "COPY", request.method
    return (request.method,)


def _made_up(fault: Fault, request: _Message) -> bytes:
    body = b"" if request.method == "HEAD" else fault.body.encode()
    return b"HTTP/1.1 %d Injected\r\nContent-Length: %d\r\n\r\n%b" % (fault.status, len(body), body)


def _is_last(headers: Mapping[str, str]) -> bool:
    return headers.get("connection", "").lower() == "close"
