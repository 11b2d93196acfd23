"""Fakes of stores whose vendors have headers of their own for conditions.

They are not the stores. Each does what the vendor's documents say (`commitlog.stores.s3.dialects` names
them), and no more; none was compared with the service. They check the signature of each request, by
code of their own, so that a header which was not signed is found.
"""

from __future__ import annotations

import hashlib
import hmac
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from attrs import define, field, frozen

__all__ = ["ACCESS_KEY", "SECRET_KEY", "FakeVendor", "Refusal", "serve"]

ACCESS_KEY = "fake"
SECRET_KEY = "secret"

_MIXED = "Requests cannot specify both x-amz and x-goog headers"


class Refusal(Exception):
    """An answer with an error code."""

    def __init__(self, status: int, code: str, message: str = "") -> None:
        super().__init__(code)
        self.status, self.code, self.message = status, code, message or code


@frozen
class _Object:
    data: bytes
    metadata: Mapping[str, str]
    generation: int

    @property
    def etag(self) -> str:
        return f'"{hashlib.md5(self.data, usedforsecurity=False).hexdigest()}"'


@define
class FakeVendor:
    """One bucket of a fake store. Thread-safe.

    Args:
        vendor: ``oss``, ``cos``, ``r2`` or ``gcs``.
        versioning: the status of the bucket: "", ``Enabled`` or ``Suspended``.
        tells_versioning: whether it answers GetBucketVersioning; else it denies it.
        honours_versioned: whether it honours the header in spite of its versioning.
        forgets: the fault of a store that lets racers win: a condition overlooks an object that nobody
            has read yet.

    Attributes:
        requests: the method and the headers of each request.
    """

    vendor: str
    versioning: str = ""
    tells_versioning: bool = True
    honours_versioned: bool = False
    forgets: bool = False
    requests: list[tuple[str, Mapping[str, str]]] = field(factory=list)
    _lock: threading.RLock = field(factory=threading.RLock)
    _objects: dict[str, _Object] = field(factory=dict)
    _uploads: dict[str, tuple[str, Mapping[str, str], dict[int, bytes]]] = field(factory=dict)
    _seen: set[str] = field(factory=set)
    _count: int = 0

    def answer(
        self, method: str, key: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers and body of the answer. Raises `Refusal`."""
        with self._lock:
            self.requests.append((method, dict(headers)))
            if self.vendor == "gcs":
                extensions = {name[:6] for name in headers if name.startswith(("x-amz-", "x-goog"))}
                if len(extensions) > 1:
                    raise Refusal(400, "ExcessHeaderValues", _MIXED)
            if not key:
                return 200, {}, self._bucket(method, query, body)
            if method in ("GET", "HEAD"):
                return self._read(key)
            if method == "DELETE":
                return self._delete(key, query, headers)
            if method == "POST" and "uploads" in query:
                upload = str(self._next())
                self._uploads[upload] = (key, self._metadata(headers), {})
                return 200, {}, _xml("InitiateMultipartUploadResult", UploadId=upload)
            if method == "POST":
                return self._complete(key, query, headers)
            if "partNumber" in query:
                self._uploads[query["uploadId"]][2][int(query["partNumber"])] = body
                return 200, {"ETag": '"part"'}, b""
            return self._put(key, headers, body)

    # -- objects -----------------------------------------------------------------------------------

    def _put(
        self, key: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        source = headers.get("x-amz-copy-source") or headers.get("x-goog-copy-source")
        if source is None:
            self._check(key, headers, "put")
            return 200, self._set(key, body, self._metadata(headers)), b""
        found = self._objects.get(unquote(source).lstrip("/").partition("/")[2])
        if found is None:
            raise Refusal(404, "NoSuchKey")
        self._check(key, headers, "copy")
        answer = self._set(key, found.data, found.metadata)
        return 200, answer, _xml("CopyObjectResult", ETag=answer["ETag"])

    def _complete(
        self, key: str, query: Mapping[str, str], headers: Mapping[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        upload = self._uploads.get(query["uploadId"])
        if upload is None or upload[0] != key:
            raise Refusal(404, "NoSuchUpload")
        self._check(key, headers, "complete")
        del self._uploads[query["uploadId"]]
        data = b"".join(data for _, data in sorted(upload[2].items()))
        answer = self._set(key, data, upload[1])
        return 200, answer, _xml("CompleteMultipartUploadResult", ETag=answer["ETag"])

    def _delete(
        self, key: str, query: Mapping[str, str], headers: Mapping[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        if "uploadId" in query:
            self._uploads.pop(query["uploadId"], None)
        else:
            self._check(key, headers, "delete")
            self._objects.pop(key, None)
        return 204, {}, b""

    def _read(self, key: str) -> tuple[int, dict[str, str], bytes]:
        found = self._objects.get(key)
        if found is None:
            raise Refusal(404, "NoSuchKey")
        self._seen.add(key)
        metadata = {f"x-amz-meta-{name}": value for name, value in found.metadata.items()}
        return 200, {**self._names(found), **metadata}, found.data

    def _set(self, key: str, data: bytes, metadata: Mapping[str, str]) -> dict[str, str]:
        self._objects[key] = _Object(data, metadata, self._next())
        self._seen.discard(key)
        return self._names(self._objects[key])

    def _names(self, found: _Object) -> dict[str, str]:
        names = {"ETag": found.etag}
        if self.vendor == "gcs":
            names["x-goog-generation"] = str(found.generation)
        elif self.versioning == "Enabled":
            names[f"x-{self.vendor}-version-id"] = f"version-{found.generation}"
        return names

    def _metadata(self, headers: Mapping[str, str]) -> Mapping[str, str]:
        prefixes = ("x-amz-meta-", "x-goog-meta-")
        return {k.partition("-meta-")[2]: v for k, v in headers.items() if k.startswith(prefixes)}

    def _next(self) -> int:
        self._count += 1
        return self._count

    # -- conditions --------------------------------------------------------------------------------

    def _check(self, key: str, headers: Mapping[str, str], operation: str) -> None:
        found = self._objects.get(key)
        if self.forgets and key not in self._seen:
            found = None
        getattr(self, f"_check_{self.vendor}")(found, headers, operation)

    def _check_oss(self, found: _Object | None, headers: Mapping[str, str], operation: str) -> None:
        if {"if-match", "if-none-match"} & set(headers):
            raise Refusal(501, "NotImplemented", "A header implies functionality not implemented.")
        self._forbid_overwrite(found, headers, operation)

    def _check_cos(self, found: _Object | None, headers: Mapping[str, str], operation: str) -> None:
        self._forbid_overwrite(found, headers, operation)

    def _forbid_overwrite(
        self, found: _Object | None, headers: Mapping[str, str], operation: str
    ) -> None:
        forbidden = headers.get(f"x-{self.vendor}-forbid-overwrite") == "true"
        ignores = bool(self.versioning) and not self.honours_versioned
        if forbidden and operation != "delete" and found is not None and not ignores:
            raise Refusal(409, "FileAlreadyExists", "The object you specified already exists.")

    def _check_r2(self, found: _Object | None, headers: Mapping[str, str], operation: str) -> None:
        prefix = "cf-copy-destination-" if operation == "copy" else ""
        expected = headers.get(f"{prefix}if-match")
        if operation == "delete":
            return
        if headers.get(f"{prefix}if-none-match") == "*" and found is not None:
            raise Refusal(412, "PreconditionFailed")
        if expected is not None and (found is None or found.etag != expected):
            raise Refusal(412, "PreconditionFailed")

    def _check_gcs(self, found: _Object | None, headers: Mapping[str, str], operation: str) -> None:
        expected = headers.get("x-goog-if-generation-match")
        present = "0" if found is None else str(found.generation)
        if expected is not None and operation != "complete" and expected != present:
            raise Refusal(412, "PreconditionFailed")

    # -- the bucket --------------------------------------------------------------------------------

    def _bucket(self, method: str, query: Mapping[str, str], body: bytes) -> bytes:
        if "versioning" in query:
            if self.vendor == "r2":
                raise Refusal(501, "NotImplemented")
            if not self.tells_versioning:
                raise Refusal(403, "AccessDenied")
            status = {"Status": self.versioning} if self.versioning else {}
            return _xml("VersioningConfiguration", **status)
        if "delete" in query:
            for row in ElementTree.fromstring(body).iter():
                if row.tag.rpartition("}")[2] == "Key":
                    self._objects.pop(row.text or "", None)
            return _xml("DeleteResult")
        if "uploads" in query:
            return _xml("ListMultipartUploadsResult", IsTruncated="false")
        assert (method, query.get("list-type")) == ("GET", "2"), (method, query)
        rows = "".join(
            f"<Contents><Key>{escape(key)}</Key><ETag>{escape(found.etag)}</ETag><Size>"
            f"{len(found.data)}</Size><LastModified>2026-01-01T00:00:00Z</LastModified></Contents>"
            for key, found in sorted(self._objects.items())
            if key.startswith(query.get("prefix", ""))
        )
        return f"<ListBucketResult>{rows}</ListBucketResult>".encode()


def _xml(tag: str, **fields: str) -> bytes:
    rows = "".join(f"<{name}>{escape(value)}</{name}>" for name, value in fields.items())
    return f"<{tag}>{rows}</{tag}>".encode()


def _verify(method: str, target: str, headers: Mapping[str, str]) -> None:
    """Refuse a request whose signature is wrong, or leaves out a header that may be a condition."""
    algorithm, _, rest = headers["authorization"].partition(" ")
    parts = dict(part.strip().split("=", 1) for part in rest.split(","))
    google = algorithm == "GOOG4-HMAC-SHA256"
    prefix = "x-goog-" if google else "x-amz-"
    signed = parts["SignedHeaders"].split(";")
    extensions = ("x-", "cf-", "if-")
    if any(name.startswith(extensions) and name not in signed for name in headers):
        raise Refusal(403, "AccessDenied", "There were headers that were not signed")
    if any(name.startswith("x-goog-") for name in signed) is not google:
        raise Refusal(403, "SignatureDoesNotMatch")
    _, *scope = parts["Credential"].split("/")
    key = f"{'GOOG4' if google else 'AWS4'}{SECRET_KEY}".encode()
    for part in scope:
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    path, _, query = target.partition("?")
    lines = "".join(f"{name}:{headers[name].strip()}\n" for name in signed)
    request = "\n".join(
        (method, path, query, lines, parts["SignedHeaders"], headers[f"{prefix}content-sha256"])
    )
    digest = hashlib.sha256(request.encode()).hexdigest()
    text = "\n".join((algorithm, headers[f"{prefix}date"], "/".join(scope), digest))
    expected = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    if scope[2:] != (["storage", "goog4_request"] if google else ["s3", "aws4_request"]):
        raise Refusal(403, "SignatureDoesNotMatch")
    if not hmac.compare_digest(expected, parts["Signature"]):
        raise Refusal(403, "SignatureDoesNotMatch")


@contextmanager
def serve(store: FakeVendor) -> Iterator[str]:
    """Serve the bucket ``bucket`` on loopback; return the URL of the endpoint."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # One packet for each answer.
        wbufsize = -1
        disable_nagle_algorithm = True

        def _respond(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = self.rfile.read(int(headers.get("content-length", "0")))
            parts = urlsplit(self.path)
            key = unquote(parts.path).removeprefix("/bucket").lstrip("/")
            query = dict(parse_qsl(parts.query, keep_blank_values=True))
            answer: dict[str, str] = {}
            try:
                if "authorization" in headers:
                    _verify(self.command, self.path, headers)
                status, answer, data = store.answer(self.command, key, query, headers, body)
            except Refusal as refusal:
                status = refusal.status
                data = _xml("Error", Code=refusal.code, Message=refusal.message)
            self.send_response_only(status)
            self.send_header("Date", formatdate(usegmt=True))
            self.send_header("Content-Length", str(len(data)))
            self.send_header("x-amz-request-id", "1")
            for name, value in answer.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _respond

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
