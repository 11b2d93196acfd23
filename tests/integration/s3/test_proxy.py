"""Tests of `commitlog.testing.proxy`: requests that pass, delays, and faults."""

from __future__ import annotations

import http.client
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from commitlog.errors import Unavailable
from commitlog.testing.proxy import Hazard, Proxy, ProxyFault, Strike
from support.servers import Ministack

#: More seconds than the test needs meanwhile, also on a slow machine.
_LATE = 3.0


class _Echo(BaseHTTPRequestHandler):
    """Responds with the received body, in the framing that the path names, and records requests."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_PUT(self) -> None:
        self.server.seen.append(self.path)  # type: ignore[attr-defined]
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path.startswith("/gate"):
            self.server.reached.release()  # type: ignore[attr-defined]
            assert self.server.gate.wait(20)  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("X-Seen", ",".join(sorted(name.lower() for name in self.headers)))
        if self.path == "/chunked":
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            if body:
                self.wfile.write(b"%x;ext=1\r\n%b\r\n" % (len(body), body))
            self.wfile.write(b"0\r\nX-Trailer: 1\r\n\r\n")
        elif self.path == "/until-closed":
            self.end_headers()
            self.wfile.write(body)
            self.close_connection = True
        else:
            self.send_header("Content-Length", str(len(body)))
            if self.path == "/announced-close":
                self.send_header("Connection", "close")
            self.end_headers()
            if self.path == "/halves":
                self.wfile.write(body[: len(body) // 2])
                assert self.server.gate.wait(20)  # type: ignore[attr-defined]
                body = body[len(body) // 2 :]
            if self.path == "/broken":
                body = body[:-1]
            self.wfile.write(body)
            self.close_connection = self.path in ("/announced-close", "/silent-close", "/broken")

    do_POST = do_PUT

    def do_HEAD(self) -> None:
        self.server.seen.append(self.path)  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


class _EchoServer(ThreadingHTTPServer):
    """A server that reports each closed connection."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Echo)
        self.seen: list[str] = []
        self.reached = threading.Semaphore(0)
        self.gate = threading.Event()
        self.gate.set()
        self.closed = threading.Semaphore(0)

    def shutdown_request(self, request: object) -> None:
        super().shutdown_request(request)  # type: ignore[arg-type]
        self.closed.release()


@contextmanager
def _serving() -> Iterator[_EchoServer]:
    with _EchoServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def echo() -> Iterator[_EchoServer]:
    """A server that responds with the received body. `seen` lists the paths."""
    with _serving() as server:
        yield server


@pytest.fixture
def closed_endpoint() -> Iterator[str]:
    """A bound address without a listener during the test."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


@pytest.fixture
def proxy(echo: _EchoServer) -> Iterator[Proxy]:
    """A proxy in front of the echo server, without latencies."""
    echo.seen.clear()
    with Proxy(f"http://127.0.0.1:{echo.server_port}") as proxy:
        yield proxy


@pytest.fixture
def connection(proxy: Proxy) -> Iterator[http.client.HTTPConnection]:
    """A client's connection to the proxy."""
    connection = _connect(proxy)
    yield connection
    connection.close()


def _connect(proxy: Proxy) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(proxy.endpoint_url.removeprefix("http://"), timeout=20)


def _put(connection: http.client.HTTPConnection, path: str = "/a", body: bytes = b"x") -> bytes:
    connection.request("PUT", path, body)
    return connection.getresponse().read()


@pytest.mark.parametrize("path", ["/plain", "/chunked", "/until-closed", "/announced-close"])
def test_bodies_pass_unchanged_in_every_framing(
    path: str, connection: http.client.HTTPConnection
) -> None:
    """Responses with a length, in chunks, or ended by the end of the connection arrive completely."""
    for body in (b"", b"x", os.urandom(3_000_000)):
        assert _put(connection, path, body) == body


def test_a_response_passes_as_it_arrives(
    echo: _EchoServer, connection: http.client.HTTPConnection
) -> None:
    """The client reads the first half before the server sends the second one."""
    body = os.urandom(1_000_000)
    echo.gate.clear()
    try:
        connection.request("PUT", "/halves", body)
        response = connection.getresponse()
        assert response.read(500_000) == body[:500_000]
    finally:
        echo.gate.set()
    assert response.read() == body[500_000:]
    assert _put(connection) == b"x"


def test_a_response_that_breaks_off_breaks_the_connection(
    connection: http.client.HTTPConnection,
) -> None:
    """The client sees a broken connection, and never a shorter body."""
    connection.request("PUT", "/broken", os.urandom(1_000_000))
    with pytest.raises((OSError, http.client.HTTPException)):
        connection.getresponse().read()


def test_a_connection_that_the_server_closed_silently_is_not_reused() -> None:
    """The next request uses a new connection to the server, and the client notices nothing."""
    # A separate server, which closes no other connection meanwhile.
    with _serving() as server, Proxy(f"http://127.0.0.1:{server.server_port}") as proxy:
        connection = _connect(proxy)
        assert _put(connection, "/silent-close") == b"x"
        assert server.closed.acquire(timeout=20)
        assert _put(connection, "/a", b"y") == b"y"
        connection.close()


def test_a_request_in_chunks_passes(connection: http.client.HTTPConnection) -> None:
    """A body without a declared length is forwarded chunk by chunk."""
    connection.request("PUT", "/a", iter([b"one", b"", b"two"]), encode_chunked=True)
    assert connection.getresponse().read() == b"onetwo"


def test_a_response_to_head_has_no_body(connection: http.client.HTTPConnection) -> None:
    """The length in the response announces no body, and the connection stays usable."""
    connection.request("HEAD", "/a")
    response = connection.getresponse()
    assert response.headers["Content-Length"] == "1000"
    assert response.read() == b""
    assert _put(connection) == b"x"


def test_the_proxy_responds_to_expect(proxy: Proxy) -> None:
    """A client that waits for 100 Continue gets it at once, and the server gets no Expect header."""
    address = proxy.endpoint_url.removeprefix("http://").split(":")
    with socket.create_connection((address[0], int(address[1])), timeout=20) as client:
        client.sendall(
            b"PUT /a HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n"
        )
        assert client.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(b"x")
        response = http.client.HTTPResponse(client)
        response.begin()
        assert response.read() == b"x"
        assert response.headers["X-Seen"] == "content-length,host"


def test_a_dropped_request_never_reaches_the_server(
    proxy: Proxy, connection: http.client.HTTPConnection, echo: _EchoServer
) -> None:
    """The client sees a reset connection, and the server no request. The next request passes."""
    proxy.inject(ProxyFault(kind="PUT", action="drop_request"))
    with pytest.raises(ConnectionResetError):
        _put(connection, "/dropped")
    connection.close()
    assert _put(connection, "/after") == b"x"
    assert echo.seen == ["/after"]


def test_a_dropped_response_follows_an_executed_request(
    proxy: Proxy, connection: http.client.HTTPConnection, echo: _EchoServer
) -> None:
    """The client sees a reset connection, although the server executed the request, once."""
    proxy.inject(ProxyFault(kind="PUT", action="drop_response"))
    with pytest.raises(ConnectionResetError):
        _put(connection, "/dropped")
    assert echo.seen == ["/dropped"]


def test_a_fault_affects_only_matching_requests(
    proxy: Proxy, connection: http.client.HTTPConnection
) -> None:
    """Kind and path have to match. `skip` requests pass before it, and all pass after `times`."""
    fault = ProxyFault(kind="PUT", action="answer", path="/b", skip=1, times=2, status=418, body="tea")
    proxy.inject(fault)
    statuses = []
    for method, path in [("PUT", "/a"), ("HEAD", "/b"), *[("PUT", "/b")] * 4]:
        connection.request(method, path)
        response = connection.getresponse()
        statuses.append((response.status, response.read()))
    assert statuses == [(200, b"")] * 3 + [(418, b"tea")] * 2 + [(200, b"")]


def test_a_delayed_request_reaches_the_server_late(
    proxy: Proxy, connection: http.client.HTTPConnection
) -> None:
    """The response comes after the delay."""
    proxy.inject(ProxyFault(kind="PUT", action="delay", seconds=0.3))
    start = time.monotonic()
    assert _put(connection) == b"x"
    assert time.monotonic() - start >= 0.3


def test_latencies_are_by_kind_and_overlap(echo: _EchoServer) -> None:
    """Each request of the kind has the latency, but 32 concurrent ones do not add up."""
    with Proxy(f"http://127.0.0.1:{echo.server_port}", latency={"PUT": 0.5, "HEAD": 60.0}) as proxy:

        def put(_: int) -> float:
            connection = _connect(proxy)
            start = time.monotonic()
            _put(connection)
            connection.close()
            return time.monotonic() - start

        start = time.monotonic()
        with ThreadPoolExecutor(32) as pool:
            assert min(pool.map(put, range(32))) >= 0.5
        assert time.monotonic() - start < 32 * 0.5


@pytest.mark.parametrize(
    ("headers", "kinds"),
    [
        ({}, "PUT /a"),
        ({"x-amz-copy-source": "/b/c"}, "COPY /a"),
        ({"X-Amz-Target": "DynamoDB_20120810.PutItem"}, "PutItem /a"),
    ],
)
def test_requests_are_listed_once_by_kind(
    headers: dict[str, str], kinds: str, proxy: Proxy, connection: http.client.HTTPConnection
) -> None:
    """A request is listed until the next call of `requests`."""
    connection.request("PUT", "/a", b"x", headers=headers)
    connection.getresponse().read()
    assert proxy.requests() == [kinds]
    assert proxy.requests() == []


def test_a_wider_kind_includes_the_narrower_ones(proxy: Proxy) -> None:
    """A fault of PUT also affects a copy, and one of DynamoDB any of its operations."""
    for kind, headers in (
        ("PUT", {"x-amz-copy-source": "b"}),
        ("DynamoDB", {"X-Amz-Target": "D.Query"}),
    ):
        proxy.inject(ProxyFault(kind=kind, action="answer", status=418))
        connection = _connect(proxy)
        connection.request("PUT", "/a", b"x", headers=headers)
        assert connection.getresponse().status == 418
        connection.close()


def test_a_stopped_server_looks_like_a_broken_connection(closed_endpoint: str) -> None:
    """Without a listener upstream, the client's connection is reset."""
    with Proxy(closed_endpoint) as proxy:
        connection = _connect(proxy)
        with pytest.raises(ConnectionResetError):
            _put(connection)
        connection.close()


def test_a_stopped_proxy_raises_an_error(proxy: Proxy) -> None:
    """A call of a stopped proxy raises an error instead of blocking."""
    assert proxy._process is not None and proxy._process.stdin is not None
    os.kill(proxy._process.pid, signal.SIGKILL)
    proxy._process.wait()
    with pytest.raises(Unavailable):
        proxy.requests()


def test_a_proxy_dies_with_a_test_run_that_is_killed() -> None:
    """SIGKILL of the process that started a proxy ends the proxy, too."""
    script = (
        "from commitlog.testing.proxy import Proxy\n"
        "import sys\n"
        "with Proxy('http://127.0.0.1:9') as proxy:\n"
        "    print(proxy._process.pid, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as runner:
        assert runner.stdout is not None
        ended = os.pidfd_open(int(runner.stdout.readline()))
        runner.send_signal(signal.SIGKILL)
    try:
        assert select.select([ended], [], [], 60)[0]
    finally:
        os.close(ended)


@pytest.mark.servers
def test_boto3_works_through_the_proxy(ministack: Ministack) -> None:
    """S3 and DynamoDB work as without the proxy, including large bodies and copies."""
    import boto3

    bucket, body = ministack.new_bucket(), os.urandom(2_000_000)
    with Proxy(ministack.endpoint_url) as proxy:
        session = boto3.session.Session(ministack.access_key_id, ministack.secret_access_key)
        s3 = session.client("s3", endpoint_url=proxy.endpoint_url, region_name=ministack.region)
        s3.put_object(Bucket=bucket, Key="a", Body=body)
        s3.copy_object(Bucket=bucket, Key="b", CopySource={"Bucket": bucket, "Key": "a"})
        assert s3.get_object(Bucket=bucket, Key="b")["Body"].read() == body
        assert [row["Key"] for row in s3.list_objects_v2(Bucket=bucket)["Contents"]] == ["a", "b"]
        s3.close()
        dynamodb = session.client(
            "dynamodb", endpoint_url=proxy.endpoint_url, region_name=ministack.region
        )
        dynamodb.list_tables()
        dynamodb.close()
        kinds = [request.split()[0] for request in proxy.requests()]
    assert kinds == ["PUT", "COPY", "GET", "GET", "ListTables"]


def _request(
    proxy: Proxy, path: str = "/a", *, headers: dict[str, str] | None = None, method: str = "PUT"
) -> tuple[int, bytes]:
    """Send one request on a new connection; return status and body."""
    connection = _connect(proxy)
    try:
        connection.request(method, path, b"x", headers=headers or {})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def _settled(proxy: Proxy) -> Counter[Strike]:
    """Wait until no request is delayed any more; return the counts of the faults."""
    deadline = time.monotonic() + 20
    while proxy.pending():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return proxy.strikes()


@pytest.mark.all
def test_a_reset_comes_before_the_request_arrives(proxy: Proxy, echo: _EchoServer) -> None:
    """The client gets the reset at once, and the server executes the request later."""
    proxy.inject(ProxyFault(kind="PUT", action="reset", path="/late", seconds=_LATE))
    with pytest.raises(ConnectionResetError):
        _request(proxy, "/late")
    assert echo.seen == []
    assert _request(proxy, "/a") == (200, b"x")
    assert _settled(proxy) == {Strike("PUT", "reset", 200): 1}
    assert echo.seen == ["/a", "/late"]


def test_a_failure_follows_an_executed_request(
    proxy: Proxy, connection: http.client.HTTPConnection, echo: _EchoServer
) -> None:
    """The client gets a server error, and the connection stays usable."""
    proxy.inject(ProxyFault(kind="PUT", action="fail", status=500, body="sorry"))
    connection.request("PUT", "/done", b"x")
    response = connection.getresponse()
    assert (response.status, response.read()) == (500, b"sorry")
    assert _put(connection) == b"x"
    assert echo.seen == ["/done", "/a"]


def test_a_duplicate_follows_its_request_directly(proxy: Proxy, echo: _EchoServer) -> None:
    """Between the two, no other mutation of the path passes. Other requests do."""
    echo.gate.clear()
    proxy.inject(ProxyFault(kind="PUT", action="duplicate"))
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(_request, proxy, "/gate?1")
        assert echo.reached.acquire(timeout=20)
        second = pool.submit(_request, proxy, "/gate?2")
        while "PUT /gate?2" not in proxy.requests():
            time.sleep(0.01)
        assert _request(proxy, "/a") == _request(proxy, "/a", method="POST") == (200, b"x")
        echo.gate.set()
        assert first.result() == second.result() == (200, b"x")
    assert echo.seen == ["/gate?1", "/a", "/a", "/gate?1", "/gate?2"]
    assert proxy.strikes() == {Strike("PUT", "duplicate", 200): 1}


@pytest.mark.all
def test_a_late_duplicate_comes_after_the_response(proxy: Proxy, echo: _EchoServer) -> None:
    """The client already has its response, and the response to the duplicate is dropped."""
    proxy.inject(ProxyFault(kind="PUT", action="duplicate", seconds=_LATE))
    assert _request(proxy, "/twice") == (200, b"x")
    assert _request(proxy, "/a") == (200, b"x")
    assert _settled(proxy) == {Strike("PUT", "duplicate", 200): 1}
    assert echo.seen == ["/twice", "/a", "/twice"]


def test_dynamodb_may_be_a_separate_server(echo: _EchoServer, closed_endpoint: str) -> None:
    """One endpoint serves both services. The headers of a request select its server."""
    with Proxy(closed_endpoint, dynamodb=f"http://127.0.0.1:{echo.server_port}") as proxy:
        assert _request(proxy, headers={"X-Amz-Target": "D.Query"}) == (200, b"x")
        with pytest.raises(ConnectionResetError):
            _request(proxy)


@pytest.mark.parametrize(
    ("path", "headers", "kinds"),
    [
        ("/a", {"If-None-Match": "*"}, {"PUT", "S3", "if-absent"}),
        ("/a", {"x-amz-copy-source": "b", "If-Match": "e"}, {"COPY", "PUT", "S3", "if-match"}),
        ("/a?X-Amz-Expires=3", {}, {"PUT", "S3", "expiring"}),
        ("/a", {"X-Amz-Target": "D.Query"}, {"Query", "DynamoDB"}),
    ],
)
def test_a_hazard_affects_requests_of_all_its_kinds(
    path: str, headers: dict[str, str], kinds: set[str], proxy: Proxy
) -> None:
    """Conditions and expiries count as kinds of a request, which must have every kind of the hazard."""
    every = {"PUT", "COPY", "S3", "DynamoDB", "Query", "if-absent", "if-match", "expiring"}
    for kind in sorted(every):
        proxy.endanger([Hazard(kinds=(kind,), action="answer", rate=1.0, status=418)])
        assert _request(proxy, path, headers=headers)[0] == (418 if kind in kinds else 200), kind
    proxy.endanger([Hazard(kinds=tuple(kinds), action="answer", rate=1.0, status=418, path="/b")])
    assert _request(proxy, path, headers=headers)[0] == 200
    proxy.endanger(())
    assert _request(proxy, path, headers=headers)[0] == 200
    assert proxy.strikes().total() == len(kinds)


def test_completing_an_upload_is_a_separate_kind(proxy: Proxy) -> None:
    """Its query distinguishes it from other posts."""
    for path, expected in (("/a?uploadId=1", 418), ("/a?uploads", 200), ("/a?delete", 200)):
        proxy.endanger([Hazard(kinds=("PUBLISH", "POST"), action="answer", rate=1.0, status=418)])
        assert _request(proxy, path, method="POST")[0] == expected


def test_a_seed_determines_the_faults(proxy: Proxy) -> None:
    """The same requests get the same faults, whatever comes between. Their number matches the rate."""
    hazard = Hazard(kinds=("PUT",), action="answer", rate=0.3, status=418)

    def struck(seed: int, others: int) -> list[bool]:
        proxy.endanger([hazard], seed=seed)
        found = []
        for _ in range(60):
            found.append(_request(proxy)[0] == 418)
            for _ in range(others):
                assert _request(proxy, method="HEAD")[0] == 200
        return found

    plan = struck(1, others=0)
    assert struck(1, others=1) == plan
    assert struck(2, others=0) != plan
    assert 5 < sum(plan) < 35


def test_a_fault_takes_precedence_over_a_hazard(proxy: Proxy) -> None:
    """An injected fault always happens."""
    proxy.endanger([Hazard(kinds=("PUT",), action="answer", rate=1.0, status=418)])
    proxy.inject(ProxyFault(kind="PUT", action="answer", status=503))
    assert [_request(proxy)[0] for _ in range(2)] == [503, 418]


@pytest.mark.parametrize(
    "wrong", [{"rate": 1.5}, {"rate": -0.1}, {"seconds": (2.0, 1.0)}, {"action": "explode"}]
)
def test_an_invalid_hazard_is_refused(wrong: dict[str, Any]) -> None:
    """Rates are between 0 and 1, and times are in order."""
    with pytest.raises(ValueError):
        Hazard(**{"kinds": ("PUT",), "action": "delay", "rate": 0.5, **wrong})
