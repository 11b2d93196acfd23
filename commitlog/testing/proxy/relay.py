"""The process behind `Proxy`: it relays HTTP/1.1 requests and injects faults.

It reads its commands as lines of JSON from standard input, and ends with that input.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from attrs import evolve

from commitlog.testing.proxy.faults import FaultPlan, Hazard, ProxyFault, Strike
from commitlog.testing.proxy.http import HttpMessage, Peer

__all__ = ["main"]

_KEPT_REQUESTS = 10_000
_CONDITIONS = ("if-match", "if-none-match")

_Address: TypeAlias = tuple[str, int]


def main() -> None:
    """Serve until the end of standard input; see `Proxy` for the commands."""
    relay = _Relay(*json.loads(sys.argv[1]))
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        threading.Thread(target=relay.serve, args=(listener,), daemon=True).start()
        print(listener.getsockname()[1], flush=True)
        # The end of stdin means that the parent process has ended, for any reason.
        for line in sys.stdin:
            method, *arguments = json.loads(line)
            print(json.dumps(getattr(relay, method)(*arguments)), flush=True)


class _Relay:
    """Forwards requests, with a thread for each connection: blocking calls cost the least time here."""

    def __init__(
        self, upstream: str, dynamodb: str, latency: Mapping[str, float], like_ceph: bool
    ) -> None:
        self._like_ceph = like_ceph
        self._addresses = {"S3": _address(upstream), "DynamoDB": _address(dynamodb)}
        self._latency = latency
        self._lock = threading.Lock()
        self._faults: list[ProxyFault] = []
        self._plan = FaultPlan((), 0)
        self._requests: deque[str] = deque(maxlen=_KEPT_REQUESTS)
        self._strikes: Counter[Strike] = Counter()
        self._pending = 0
        self._doubling: set[str] = set()
        self._doubled = threading.Condition(self._lock)

    # -- commands of `Proxy` -------------------------------------------------------------------

    def inject(self, fault: dict[str, Any]) -> None:
        with self._lock:
            self._faults.append(ProxyFault(**fault))

    def endanger(self, hazards: list[dict[str, Any]], seed: int) -> None:
        with self._lock:
            self._plan = FaultPlan(tuple(Hazard(**hazard) for hazard in hazards), seed)

    def strikes(self) -> list[tuple[str, str, int, int]]:
        with self._lock:
            return [(one.kind, one.action, one.status, n) for one, n in self._strikes.items()]

    def pending(self) -> int:
        with self._lock:
            return self._pending

    def requests(self) -> list[str]:
        with self._lock:
            seen = list(self._requests)
            self._requests.clear()
            return seen

    def serve(self, listener: socket.socket) -> None:
        while True:
            client, _ = listener.accept()
            threading.Thread(target=self._converse, args=(client,), daemon=True).start()

    # -- one conversation --------------------------------------------------------------------------

    def _converse(self, connection: socket.socket) -> None:
        client, link = Peer(connection), _Link(self._addresses)
        try:
            is_open = True
            while is_open and (request := client.read_request()):
                fault = self._note(request)
                time.sleep(next((self._latency[k] for k in request.kinds if k in self._latency), 0.0))
                if fault is None:
                    is_open = self._forward(client, link, request)
                else:
                    is_open = self._strike(client, link, request, fault)
        except (OSError, ValueError, IndexError):
            # One side is gone or sends no HTTP. The client must see a broken connection, not an orderly
            # end.
            client.reset()
        finally:
            client.close()
            link.close()

    def _forward(self, client: Peer, link: _Link, request: HttpMessage) -> bool:
        """Forward the request and its response; return whether the connection stays open."""
        self._await_double(request)
        if self._like_ceph:
            response = self._relay(link, request)
            client.send(response.data)
            last = response.last
        else:
            last = link.send(request).pass_response(client, to_head=request.method == "HEAD")
        return not (last or request.last)

    def _strike(self, client: Peer, link: _Link, request: HttpMessage, fault: ProxyFault) -> bool:
        """Inject the fault; return whether the connection stays open."""
        action = fault.action
        if action == "drop_request":
            self._count(fault, 0)
            client.reset()
            return False
        if action == "answer":
            self._count(fault, 0)
            client.send(_injected_response(fault, request))
            return not request.last
        if action == "duplicate":
            response = self._double(link, request, fault)
        else:
            if action == "reset":
                client.reset()
            response = self._late(link, request, fault)
        if action in ("drop_response", "reset"):
            client.reset()
            return False
        client.send(_injected_response(fault, request) if action == "fail" else response.data)
        return not (response.last or request.last)

    def _double(self, link: _Link, request: HttpMessage, fault: ProxyFault) -> HttpMessage:
        """Send the request twice; return the first response."""
        if fault.seconds:
            response = self._exchange(link, request)
            threading.Thread(target=self._repeat, args=(request, fault), daemon=True).start()
            return response
        with self._exclusively(request.path):
            response = self._relay(link, request)
            again = self._relay(link, request)
        self._count(fault, again.status)
        return response

    def _repeat(self, request: HttpMessage, fault: ProxyFault) -> None:
        link = _Link(self._addresses)
        try:
            self._late(link, request, fault)
        except (OSError, ValueError, IndexError):
            pass  # the server is gone; the response is not awaited
        finally:
            link.close()

    def _late(self, link: _Link, request: HttpMessage, fault: ProxyFault) -> HttpMessage:
        """Forward the request after the delay of the fault."""
        status = 0
        with self._lock:
            self._pending += 1
        try:
            time.sleep(fault.seconds)
            response = self._exchange(link, request)
            status = response.status
            return response
        finally:
            with self._lock:
                self._pending -= 1
            self._count(fault, status)

    def _exchange(self, link: _Link, request: HttpMessage) -> HttpMessage:
        self._await_double(request)
        return self._relay(link, request)

    def _await_double(self, request: HttpMessage) -> None:
        if request.mutates:
            with self._doubled:
                self._doubled.wait_for(lambda: request.path not in self._doubling)

    def _relay(self, link: _Link, request: HttpMessage) -> HttpMessage:
        if not self._like_ceph:
            return link.exchange(request)
        return _as_answered_by_ceph(request, link.exchange(_as_asked_of_ceph(request)))

    @contextmanager
    def _exclusively(self, path: str) -> Iterator[None]:
        """Hold back other mutations of `path` that have not been forwarded yet."""
        with self._doubled:
            self._doubled.wait_for(lambda: path not in self._doubling)
            self._doubling.add(path)
        try:
            yield
        finally:
            with self._doubled:
                self._doubling.remove(path)
                self._doubled.notify_all()

    def _count(self, fault: ProxyFault, status: int) -> None:
        with self._lock:
            self._strikes[Strike(fault.kind, fault.action, status)] += 1

    def _note(self, request: HttpMessage) -> ProxyFault | None:
        with self._lock:
            kinds = request.kinds
            self._requests.append(f"{kinds[0]} {request.target}")
            planned = self._plan.next(kinds, request.target)
            for index, fault in enumerate(self._faults):
                if fault.kind not in kinds or fault.path not in request.target:
                    continue
                if not request.headers.keys().isdisjoint(fault.without):
                    continue
                if fault.skip:
                    self._faults[index] = evolve(fault, skip=fault.skip - 1)
                    continue
                if fault.times > 1:
                    self._faults[index] = evolve(fault, times=fault.times - 1)
                else:
                    del self._faults[index]
                return evolve(fault, kind=kinds[0])
        return planned


class _Link:
    """The connections to the servers for one client connection, opened on first use."""

    def __init__(self, addresses: Mapping[str, _Address]) -> None:
        self._addresses = addresses
        self._peers: dict[str, Peer] = {}

    def exchange(self, request: HttpMessage) -> HttpMessage:
        """Send the request to its server and return the response."""
        return self.send(request).read_response(to_head=request.method == "HEAD")

    def send(self, request: HttpMessage) -> Peer:
        """Send the request to its server; return the connection on which the response arrives."""
        service = request.service
        peer = self._peers.pop(service, None)
        if peer is not None and peer.is_stale():
            peer.close()
            peer = None
        if peer is None:
            peer = Peer(socket.create_connection(self._addresses[service]))
        self._peers[service] = peer
        peer.send(request.data)
        return peer

    def close(self) -> None:
        while self._peers:
            self._peers.popitem()[1].close()


def _address(url: str) -> _Address:
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or 80


def _injected_response(fault: ProxyFault, request: HttpMessage) -> bytes:
    body = b"" if request.method == "HEAD" else fault.body.encode()
    return b"HTTP/1.1 %d Injected\r\nContent-Length: %d\r\n\r\n%b" % (fault.status, len(body), body)


def _as_asked_of_ceph(request: HttpMessage) -> HttpMessage:
    """Return the request that makes the server do what Ceph's radosgw 16 would do.

    Of the conditions, a PUT takes "no object", and an etag if it has no quotes; a quoted etag never
    matches. Copies, deletions and completed uploads ignore conditions.

    The server must enforce all conditions, and check the signatures only of requests that are signed in
    their query: the proxy changes the signed headers of other requests.
    """
    if request.service != "S3" or not request.mutates:
        return request
    if request.kinds[0] != "PUT" or "uploadId=" in request.target:
        return _with(request, dict.fromkeys(_CONDITIONS))
    etag = request.headers.get("if-match")
    if etag is None:
        return request
    # No object has the etag "quoted", so the server refuses the request as Ceph would.
    return _with(request, {"if-match": '"quoted"' if etag.startswith('"') else f'"{etag}"'})


def _as_answered_by_ceph(request: HttpMessage, response: HttpMessage) -> HttpMessage:
    """Return the response as Ceph would send it.

    A request after its signed expiry gets ``AccessDenied`` with an empty message, and a ``Date`` past
    the expiry.
    """
    if "expiring" not in request.kinds or response.status != 403:
        return response
    body = b"<Error><Code>AccessDenied</Code><Message></Message></Error>"
    refusal = _with(response, {"transfer-encoding": None, "content-length": str(len(body))})
    return evolve(refusal, data=refusal.data.partition(b"\r\n\r\n")[0] + b"\r\n\r\n" + body)


def _with(message: HttpMessage, headers: dict[str, str | None]) -> HttpMessage:
    """Return the message with these headers; without those that are None."""
    head, _, body = message.data.partition(b"\r\n\r\n")
    lines = [
        line
        for line in head.split(b"\r\n")
        if line.partition(b":")[0].decode("latin-1").lower() not in headers
    ]
    new = {name: value for name, value in headers.items() if value is not None}
    lines += [f"{name}: {value}".encode("latin-1") for name, value in new.items()]
    kept = {name: value for name, value in message.headers.items() if name not in headers}
    return evolve(message, headers={**kept, **new}, data=b"\r\n".join(lines) + b"\r\n\r\n" + body)
