"""The HTTP client, against a server with scripted responses."""

from __future__ import annotations

import contextlib
import gc
import socket
import ssl
import struct
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Self

import pytest

from commitlog.aws import ConnectionPool, Response, connections
from commitlog.errors import ConfigurationError, OutcomeUnknown, Unavailable
from support.recorder import CERTIFICATE

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Script:
    """A server that plays one list of responses on each connection, then closes it.

    A response of None closes the connection without sending anything. `requests` holds the received
    requests, head and body, by connection. `closed` is set whenever a connection has been closed and the
    client has acknowledged that.
    """

    def __init__(
        self, *connections: Sequence[bytes | None], tls: bool = False, proxy: bool = False
    ) -> None:
        self._connections = connections
        self._tls = tls
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(CERTIFICATE)
        self._proxy = proxy
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._run)
        self.requests: list[list[bytes]] = []
        self.closed = threading.Event()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # end an accept() that is waiting
        self._thread.join()
        self._listener.close()

    def _run(self) -> None:
        players: list[threading.Thread] = []
        for answers in self._connections:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                break
            seen: list[bytes] = []
            self.requests.append(seen)
            players.append(threading.Thread(target=self._play, args=(sock, answers, seen)))
            players[-1].start()
        for player in players:
            player.join()

    def _play(self, sock: socket.socket, answers: Sequence[bytes | None], seen: list[bytes]) -> None:
        with contextlib.suppress(OSError):
            if self._proxy:
                seen.append(_read_request(sock))
                sock.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            if self._tls:
                sock = self._context.wrap_socket(sock, server_side=True)
            for answer in answers:
                seen.append(_read_request(sock))
                if answer is None:
                    break
                sock.sendall(answer)
        with contextlib.suppress(OSError):
            # On a busy machine the end of the connection may arrive after the client's call: wait for
            # it.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 30))
        sock.close()
        self.closed.set()


def _read_request(sock: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = sock.recv(65536)
        if not piece:
            raise ConnectionError("the client closed the connection")
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    length = 0
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            length = int(line.partition(b":")[2])
    while len(body) < length:
        body += sock.recv(65536)
    return head + b"\r\n\r\n" + body


@pytest.fixture
def script() -> Iterator[Callable[..., Script]]:
    """Start scripted servers that end with the test."""
    with contextlib.ExitStack() as stack:
        yield lambda *connections, **options: stack.enter_context(Script(*connections, **options))


@pytest.fixture
def pool_to() -> Iterator[Callable[..., ConnectionPool]]:
    """Make connection pools that are closed with the test."""
    with contextlib.ExitStack() as stack:

        def make(port: int, *, scheme: str = "http", **options: object) -> ConnectionPool:
            settings = {"connect_timeout": 30.0, "read_timeout": 30.0, "max_idle": 4, **options}
            pool = ConnectionPool(f"{scheme}://127.0.0.1:{port}", **settings)  # type: ignore[arg-type]
            stack.callback(pool.close)
            return pool

        yield make


Scripts = Callable[..., Script]
Pools = Callable[..., ConnectionPool]


def _get(pool: ConnectionPool, method: str = "GET", body: bytes = b"") -> Response:
    return pool.begin(method, "/a?b=c", {"x-one": "1"}, body)()


# -- one request -----------------------------------------------------------------------------------


def test_a_request_is_sent_unchanged(script: Scripts, pool_to: Pools) -> None:
    """Method, target, headers and body arrive. Host and Content-Length are added."""
    server = script([OK])
    response = _get(pool_to(server.port), "PUT", b"body")
    assert (response.status, response.body) == (200, b"ok")
    head, _, body = server.requests[0][0].partition(b"\r\n\r\n")
    assert head.split(b"\r\n") == [
        b"PUT /a?b=c HTTP/1.1",
        b"host: 127.0.0.1:%d" % server.port,
        b"x-one: 1",
        b"content-length: 4",
    ]
    assert body == b"body"


@pytest.mark.parametrize("size", [0, 1, 65536, 65537, 3_000_000])
def test_bodies_of_any_size_arrive_complete(script: Scripts, pool_to: Pools, size: int) -> None:
    """Bodies that fit into one packet with the head and larger ones arrive, in both directions."""
    body = bytes(range(251)) * (size // 251 + 1)
    body = body[:size]
    server = script([b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + body])
    assert _get(pool_to(server.port), "PUT", body).body == body
    assert server.requests[0][0].endswith(b"content-length: %d\r\n\r\n" % size + body)


@pytest.mark.parametrize(
    ("answer", "method", "status", "body"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "HEAD", 200, b""),
        (b"HTTP/1.1 204 No Content\r\n\r\n", "DELETE", 204, b""),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", "GET", 304, b""),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n"
            b"4;x=y\r\nwiki\r\nA\r\npedia in c\r\n0\r\nTrailer: 1\r\n\r\n",
            "GET",
            200,
            b"wikipedia in c",
        ),
        (
            b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n" + OK,
            "GET",
            200,
            b"ok",
        ),
    ],
    ids=["head", "204", "304", "chunked", "interim"],
)
def test_every_framing_is_understood(
    script: Scripts, pool_to: Pools, answer: bytes, method: str, status: int, body: bytes
) -> None:
    """The end of a response is found in every framing, so that the connection can be reused."""
    server = script([answer, OK])
    pool = pool_to(server.port)
    response = _get(pool, method)
    assert (response.status, response.body) == (status, body)
    assert _get(pool).body == b"ok"
    assert len(server.requests) == 1


def test_a_response_without_a_length_ends_with_the_connection(script: Scripts, pool_to: Pools) -> None:
    """A server may mark the end of a response by closing the connection."""
    server = script([b"HTTP/1.0 200 OK\r\n\r\nall of it"])
    assert _get(pool_to(server.port)).body == b"all of it"


def test_header_names_are_lower_case_and_repeats_are_joined(script: Scripts, pool_to: Pools) -> None:
    """Headers can be looked up regardless of the server's spelling."""
    server = script([b'HTTP/1.1 200 OK\r\nETag: "x"\r\nVary: a\r\nVARY:b\r\nContent-Length: 0\r\n\r\n'])
    assert dict(_get(pool_to(server.port)).headers) == {
        "etag": '"x"',
        "vary": "a, b",
        "content-length": "0",
    }


@pytest.mark.parametrize("value", ["a\r\nx-evil: 1", "a\nb", "a\rb", "ü"])
def test_header_injection_is_refused(pool_to: Pools, value: str) -> None:
    """A line break or a non-ASCII character in a value is refused before a request is sent."""
    pending = pool_to(1).begin("GET", "/", {"x-meta": value})
    with pytest.raises(ConfigurationError):
        pending()


# -- connections -------------------------------------------------------------------------------------


def test_a_connection_is_reused(script: Scripts, pool_to: Pools) -> None:
    """Two consecutive requests use one connection."""
    server = script([OK, OK])
    pool = pool_to(server.port)
    assert [_get(pool).body, _get(pool).body] == [b"ok", b"ok"]
    assert [len(seen) for seen in server.requests] == [2]


def test_two_requests_of_a_thread_overlap(script: Scripts, pool_to: Pools) -> None:
    """A pending request does not block the next one of the same thread."""
    server = script([OK], [OK])
    pool = pool_to(server.port)
    first = pool.begin("GET", "/1", {})
    second = pool.begin("GET", "/2", {})
    assert (second().body, first().body) == (b"ok", b"ok")
    assert [seen[0][:6] for seen in server.requests] == [b"GET /1", b"GET /2"]


@pytest.mark.parametrize(
    "answer",
    [b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", OK + b"HTTP/1.1 200 OK"],
    ids=["close", "excess"],
)
def test_a_closing_or_desynchronized_connection_is_dropped(
    script: Scripts, pool_to: Pools, answer: bytes
) -> None:
    """A later request on it could get the response of another request, or none."""
    server = script([answer, OK], [OK])
    pool = pool_to(server.port)
    assert _get(pool).body == b"ok"
    assert _get(pool).body == b"ok"
    assert [len(seen) for seen in server.requests if seen] == [1, 1]


@pytest.mark.parametrize("method", ["PUT", "GET"])
def test_a_connection_closed_by_the_server_is_not_reused(
    script: Scripts, pool_to: Pools, method: str
) -> None:
    """A mutation on a dead connection would have an unknown outcome."""
    server = script([OK], [OK])
    pool = pool_to(server.port)
    assert _get(pool).body == b"ok"
    assert server.closed.wait(60)
    assert _get(pool, method, b"body").body == b"ok"
    assert [len(seen) for seen in server.requests] == [1, 1]


def test_idle_connections_are_limited(script: Scripts, pool_to: Pools) -> None:
    """Above the limit, a connection is closed after its request."""
    server = script([OK, OK], [OK, OK])
    pool = pool_to(server.port, max_idle=0)
    assert [_get(pool).body, _get(pool).body] == [b"ok", b"ok"]
    assert [len([r for r in seen if r]) for seen in server.requests] == [1, 1]


def test_a_forked_child_does_not_use_the_connections_of_its_parent(script: Scripts) -> None:
    """Parent and child never read each other's responses from a shared socket."""
    server = script([OK, OK, OK], [OK])
    program = """
import os, sys
from commitlog.aws import ConnectionPool
pool = ConnectionPool(sys.argv[1], connect_timeout=30, read_timeout=30, max_idle=4)
assert pool.begin("GET", "/parent", {})().body == b"ok"
assert pool.begin("GET", "/parent", {})().body == b"ok"
child = os.fork()
if child == 0:
    os._exit(0 if pool.begin("GET", "/child", {})().body == b"ok" else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    url = f"http://127.0.0.1:{server.port}"
    # The first connection stays open for a third request. The child must not send it.
    subprocess.run([sys.executable, "-c", program, url], check=True, timeout=60)
    assert [[r.split()[1] for r in seen] for seen in server.requests] == [[b"/parent"] * 2, [b"/child"]]


@pytest.mark.parametrize("cycle", [False, True], ids=["alone", "in a cycle"])
def test_an_abandoned_request_closes_its_connection(
    script: Scripts, pool_to: Pools, cycle: bool
) -> None:
    """Dropping the pending call closes its connection, without a warning."""
    server = script([OK, OK])
    pending = [pool_to(server.port).begin("GET", "/", {})]
    if cycle:
        pending.append(pending)  # type: ignore[arg-type]
    del pending
    gc.collect()
    assert server.closed.wait(60)


# -- outcome after a failure ---------------------------------------------------------------------------


def test_a_refused_connection_is_unavailable(pool_to: Pools) -> None:
    """A refused connection proves that nothing happened. The pending call raises the error."""
    with socket.socket() as taken:  # bound, so that no other process listens there
        taken.bind(("127.0.0.1", 0))
        pending = pool_to(taken.getsockname()[1]).begin("PUT", "/", {}, b"x")
        with pytest.raises(Unavailable):
            pending()


@pytest.mark.parametrize(
    "answer",
    [
        None,
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nok",
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno header\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: two\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffff\r\nok",
    ],
    ids=[
        "none",
        "half a head",
        "half a body",
        "half a chunk",
        "other protocol",
        "bad header",
        "bad length",
        "huge length",
        "huge chunk",
    ],
)
def test_a_request_without_a_complete_response_has_an_unknown_outcome(
    script: Scripts, pool_to: Pools, answer: bytes | None
) -> None:
    """The server may have executed the request before it stopped."""
    server = script([answer])
    with pytest.raises(OutcomeUnknown):
        _get(pool_to(server.port), "PUT", b"x")
    assert len(server.requests[0]) == 1


def test_a_silent_server_causes_a_timeout(pool_to: Pools) -> None:
    """After the read timeout, the outcome of a request that was sent is unknown."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        pool = pool_to(listener.getsockname()[1], read_timeout=0.05)
        with pytest.raises(OutcomeUnknown, match="timed out"):
            _get(pool, "PUT", b"x")


def test_a_response_before_the_end_of_the_body_is_read(pool_to: Pools) -> None:
    """A server that refuses early and closes has refused. The outcome is known."""
    refusal = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno"

    def refuse(listener: socket.socket) -> None:
        sock, _ = listener.accept()
        with sock:
            sock.recv(100)
            sock.sendall(refusal)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=refuse, args=(listener,))
        thread.start()
        response = _get(pool_to(listener.getsockname()[1]), "PUT", bytes(32_000_000))
        thread.join()
    assert (response.status, response.body) == (403, b"no")


def test_a_connection_is_not_reused_after_an_answer_before_the_end_of_the_body(
    pool_to: Pools, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server may take the next request for the rest of that body."""

    def serve(listener: socket.socket) -> None:
        with listener.accept()[0] as first:
            first.recv(1000)
            first.sendall(OK)
            with listener.accept()[0] as second:
                _read_request(second)
                second.sendall(OK)

    def send_all(sock: socket.socket, view: memoryview) -> None:
        if len(view) > 1000:
            raise TimeoutError("the server reads no more")

    monkeypatch.setattr(connections, "_send_all", send_all)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(60)
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        pool = pool_to(listener.getsockname()[1])
        assert _get(pool, "PUT", bytes(1_000_000)).body == b"ok"
        assert _get(pool).body == b"ok"
        thread.join()


# -- TLS and proxies -----------------------------------------------------------------------------------


@pytest.mark.parametrize("verify", [str(CERTIFICATE), False], ids=["trusted", "unchecked"])
def test_tls_is_supported(script: Scripts, pool_to: Pools, verify: str | bool) -> None:
    """A server with a trusted certificate is accepted, and with `verify=False` any server."""
    server = script([OK, OK], tls=True)
    pool = pool_to(server.port, scheme="https", verify=verify)
    assert [_get(pool, "PUT", bytes(100_000)).body, _get(pool).body] == [b"ok", b"ok"]
    assert [len(seen) for seen in server.requests] == [2]


def test_an_untrusted_certificate_is_refused(script: Scripts, pool_to: Pools) -> None:
    """No request is sent to an untrusted server, and the error names the option to set."""
    server = script([OK], tls=True)
    with pytest.raises(ConfigurationError, match="verify"):
        _get(pool_to(server.port, scheme="https"))


def test_a_missing_ca_bundle_is_a_configuration_error(pool_to: Pools) -> None:
    """A pool is not made with a bundle that it cannot read."""
    with pytest.raises(ConfigurationError, match=r"/no/such\.pem"):
        pool_to(1, scheme="https", verify="/no/such.pem")


def test_plain_requests_go_through_the_proxy(script: Scripts, pool_to: Pools) -> None:
    """A proxy gets the whole URL, and its own credentials."""
    proxy = script([OK])
    pool = pool_to(9, proxy=f"http://user:p%40ss@127.0.0.1:{proxy.port}")
    assert _get(pool).body == b"ok"
    lines = proxy.requests[0][0].split(b"\r\n")
    assert lines[0] == b"GET http://127.0.0.1:9/a?b=c HTTP/1.1"
    assert b"proxy-authorization: Basic dXNlcjpwQHNz" in lines


def test_tls_goes_through_a_tunnel_of_the_proxy(script: Scripts, pool_to: Pools) -> None:
    """The proxy opens a tunnel, and does not see the request or give its credentials to the server."""
    proxy = script([OK], tls=True, proxy=True)
    pool = pool_to(
        9, scheme="https", verify=str(CERTIFICATE), proxy=f"http://user@127.0.0.1:{proxy.port}"
    )
    assert _get(pool).body == b"ok"
    connect, request = proxy.requests[0]
    assert connect.startswith(b"CONNECT 127.0.0.1:9 HTTP/1.1\r\n")
    assert b"proxy-authorization: Basic dXNlcjo=\r\n" in connect
    assert request.startswith(b"GET /a?b=c HTTP/1.1\r\n") and b"proxy-auth" not in request


def test_a_refusal_of_the_proxy_is_unavailable(script: Scripts, pool_to: Pools) -> None:
    """Without a tunnel no request reaches the server."""
    proxy = script([b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n"])
    pool = pool_to(9, scheme="https", proxy=f"http://127.0.0.1:{proxy.port}")
    with pytest.raises(Unavailable, match="407"):
        _get(pool)


def test_a_proxy_without_http_is_a_configuration_error(pool_to: Pools) -> None:
    """Proxies over TLS or SOCKS are refused instead of bypassed."""
    with pytest.raises(ConfigurationError, match="http://host:port"):
        pool_to(1, proxy="socks5://127.0.0.1:1")


@pytest.mark.parametrize(
    "proxy", ["http://user:ab/secret@host:80", "http://user:secret#b@host", "http://[host", "http://a:b"]
)
def test_an_invalid_proxy_is_a_configuration_error_without_its_password(
    pool_to: Pools, proxy: str
) -> None:
    """A password that is not encoded may end where the port is expected."""
    with pytest.raises(ConfigurationError, match="http://") as caught:
        pool_to(1, proxy=proxy)
    shown = "".join(traceback.format_exception(caught.value))
    assert "secret" not in shown and "'ab'" not in shown
