"""Behaviour of Ceph's radosgw 16 for the proxy, where it differs from S3.

Of the conditions, a PUT takes "no object", and an etag if it has no quotes; a quoted etag never matches.
Copies, deletions and completed uploads ignore conditions. A request after its signed expiry gets
``AccessDenied`` with an empty message, and a ``Date`` past the expiry.

The server behind it must enforce all conditions, and check the signatures of requests that are signed
only in their query: of others the proxy changes signed headers.
"""

from __future__ import annotations

from attrs import evolve

from commitlog.testing.proxy_http import Message

__all__ = ["asked_as_ceph", "told_as_ceph"]

_CONDITIONS = ("if-match", "if-none-match")


def asked_as_ceph(request: Message) -> Message:
    """Return the request that makes the server behind do what Ceph would do."""
    if request.service != "S3" or not request.mutates:
        return request
    if request.kinds[0] != "PUT" or "uploadId=" in request.target:
        return _with(request, dict.fromkeys(_CONDITIONS))
    etag = request.headers.get("if-match")
    if etag is None:
        return request
    # No object has the other one: the server behind refuses it as Ceph would.
    return _with(request, {"if-match": '"quoted"' if etag.startswith('"') else f'"{etag}"'})


def told_as_ceph(request: Message, response: Message) -> Message:
    """Return the answer as Ceph would give it."""
    if "fenced" not in request.kinds or response.status != 403:
        return response
    body = b"<Error><Code>AccessDenied</Code><Message></Message></Error>"
    told = _with(response, {"transfer-encoding": None, "content-length": str(len(body))})
    return evolve(told, data=told.data.partition(b"\r\n\r\n")[0] + b"\r\n\r\n" + body)


def _with(message: Message, headers: dict[str, str | None]) -> Message:
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
