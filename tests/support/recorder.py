"""A small HTTP server on loopback that records its requests."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

__all__ = ["CERTIFICATE", "Recorder"]

#: The certificate of HTTPS servers and their clients, with its key.
CERTIFICATE = Path(__file__).with_name("tls.pem")


class Recorder:
    """A server that records requests without their bodies, and computes each response with `answer`.

    Args:
        answer: takes method, path and body; returns the body of a response with status 200, or status,
            headers and body.
        tls: ``server``: HTTPS; ``mutual``: the client needs a certificate, too; empty: HTTP.
    """

    def __init__(
        self,
        answer: Callable[[str, str, bytes], bytes | tuple[int, dict[str, str], bytes]],
        *,
        tls: str = "",
    ) -> None:
        seen: list[tuple[str, str, dict[str, str]]] = []
        self.requests = seen

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                seen.append((self.command, self.path, {k.lower(): v for k, v in self.headers.items()}))
                answered = answer(self.command, self.path, body)
                status, headers, data = (200, {}, answered) if isinstance(answered, bytes) else answered
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_PUT = do_POST = do_HEAD = handle_one

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(CERTIFICATE)
            if tls == "mutual":
                context.verify_mode = ssl.CERT_REQUIRED
                context.load_verify_locations(CERTIFICATE)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Recorder:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def keys(self) -> list[str]:
        """The access keys that signed the requests."""
        return [
            headers["authorization"].partition("Credential=")[2].partition("/")[0]
            for _, _, headers in self.requests
        ]
