#!/usr/bin/env python
"""CPU time of one conditional PUT of 1 KiB: our request path, and clients that could replace it.

    python benchmarks/request_cpu.py [--requests N]

The server is another process and sends the same response to every request. The CPU time is that of the
client's thread alone, in microseconds per request: the median of rounds in shuffled order.
docs/decisions/0001 has the result.
"""

from __future__ import annotations

import argparse
import http.client
import random
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from hashlib import sha256

import boto3.session
import urllib3
from botocore.config import Config
from botocore.credentials import Credentials

from commitlog.aws.signing import Signer
from commitlog.stores import IfAbsent
from commitlog.stores.open import open_store

BODY = b"x" * 1024
HEADERS = {"if-none-match": "*"}
ROUNDS = 7

_SERVER = """
import socket
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
import threading
def serve(peer):
    data = b""
    while True:
        while (end := data.find(b"\\r\\n\\r\\n")) < 0:
            if not (more := peer.recv(65536)):
                return
            data += more
        head = data[:end].lower()
        if b"expect: 100-continue" in head:
            peer.sendall(b"HTTP/1.1 100 Continue\\r\\n\\r\\n")
        length = int(head.partition(b"content-length: ")[2].partition(b"\\r\\n")[0] or 0)
        while len(data) < end + 4 + length:
            data += peer.recv(65536)
        data = data[end + 4 + length:]
        lines = (b"HTTP/1.1 200 OK", b'ETag: "x"', b"x-amz-request-id: 1", b"Content-Length: 0")
        peer.sendall(b"\\r\\n".join(lines) + b"\\r\\n\\r\\n")
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""


def clients(port: int) -> dict[str, Callable[[], object]]:
    """Return a call for each client. Each client keeps its connection."""
    url, host = f"http://127.0.0.1:{port}", f"127.0.0.1:{port}"
    store = open_store(
        "s3://bucket", endpoint_url=url, region="eu-west-1", access_key_id="A", secret_access_key="s"
    )
    signer, credentials = Signer("s3", "eu-west-1"), Credentials("A", "s")
    plain = http.client.HTTPConnection("127.0.0.1", port)
    plain.connect()
    plain.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    pool = urllib3.HTTPConnectionPool("127.0.0.1", port)
    boto = boto3.session.Session("A", "s", region_name="eu-west-1").client(
        "s3", endpoint_url=url, config=Config(request_checksum_calculation="when_required")
    )

    def signed() -> dict[str, str]:
        payload = sha256(BODY).hexdigest()
        headers = {"host": host, "x-amz-content-sha256": payload, **HEADERS}
        signer.sign_headers("PUT", "/bucket/key", "", headers, payload, credentials, time.time())
        return headers

    def by_http_client() -> None:
        plain.request("PUT", "/bucket/key", body=BODY, headers=signed())
        plain.getresponse().read()

    return {
        "ours": lambda: store.put("key", BODY, condition=IfAbsent()),
        "http.client, our signing": by_http_client,
        "urllib3, our signing": lambda: pool.request("PUT", "/bucket/key", body=BODY, headers=signed()),
        "boto3": lambda: boto.put_object(Bucket="bucket", Key="key", Body=BODY, IfNoneMatch="*"),
    }


def main() -> None:
    """Run the benchmark, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=int, default=300, help="requests of each client in a round")
    number = parser.parse_args().requests
    with subprocess.Popen([sys.executable, "-c", _SERVER], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        calls = clients(int(server.stdout.readline()))
        taken: dict[str, list[float]] = {name: [] for name in calls}
        for call in calls.values():
            call()
        for _ in range(ROUNDS):
            for name in random.sample(list(calls), len(calls)):
                start = time.thread_time()
                for _ in range(number):
                    calls[name]()
                taken[name].append((time.thread_time() - start) / number * 1e6)
        server.kill()
    for name, times in taken.items():
        print(f"{name:26} {statistics.median(times):6.0f} µs")


if __name__ == "__main__":
    main()
