"""`RequestMeter`: what S3 and DynamoDB would charge for the requests that this process sends."""

from __future__ import annotations

import json
import math
import threading
from base64 import b64decode
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from pricing import Usage

from commitlog.aws.connections import ConnectionPool
from commitlog.tables.rules import size_of_item
from support.servers import Ministack

__all__ = ["RequestMeter", "metered"]

#: Operations on tables themselves, which are free.
_FREE = frozenset(
    {
        *("CreateTable", "DescribeTable", "TagResource", "ListTagsOfResource"),
        *("DescribeTimeToLive", "UpdateTimeToLive"),
    }
)

#: Bytes of one unit.
_WRITE, _READ = 1024, 4096


class RequestMeter:
    """Counts the requests to S3 by price class, and the units of the requests to DynamoDB.

    Units are computed from the items themselves: the meter reads each item with a client of its own
    before the request goes out. A write is charged by the larger of the old and the new item, a
    condition that fails as a write.

    Args:
        server: the server of the tables.

    Attributes:
        kinds: the requests by kind, such as ``PUT``, ``LIST`` or ``PutItem``.
        largest_item: bytes of the largest item that was written.
    """

    def __init__(self, server: Ministack) -> None:
        self.kinds: Counter[str] = Counter()
        self.largest_item = 0
        self._server = server
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def reset(self) -> None:
        """Begin to count from zero."""
        with self._lock:
            self.kinds.clear()
            self._counts.clear()
            self.largest_item = 0

    @property
    def usage(self) -> Usage:
        """The usage since the last reset."""
        with self._lock:
            return Usage(**self._counts)

    def see(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> None:
        """Count a request that is about to be sent."""
        names = {name.lower(): value for name, value in headers.items()}
        if "x-amz-target" in names:
            service, _, operation = names["x-amz-target"].rpartition(".")
            if service == "AmazonSQS":
                counted = {"queue_requests": 1}
            else:
                counted = self._units(operation, json.loads(body))
        else:
            operation, counted = _of_s3(method, target, names)
        with self._lock:
            self.kinds[operation] += 1
            self._counts.update(counted)

    def _units(self, operation: str, body: Mapping[str, Any]) -> dict[str, int]:
        client = self._server.client("dynamodb")
        if operation == "GetItem":
            assert body["ConsistentRead"]
            return {"read_units": _ceil(_size(client.get_item(**body).get("Item")), _READ)}
        if operation in ("Query", "Scan"):
            assert body["ConsistentRead"]
            found = (client.query if operation == "Query" else client.scan)(**body)
            return {"read_units": _ceil(sum(map(_size, found["Items"])), _READ)}
        if operation in ("PutItem", "DeleteItem"):
            return {"write_units": self._written(client, body)}
        if operation == "TransactWriteItems":
            writes = [write for each in body["TransactItems"] for write in each.values()]
            return {"write_units": sum(2 * self._written(client, write) for write in writes)}
        assert operation in _FREE, operation
        return {}

    def _written(self, client: Any, write: Mapping[str, Any]) -> int:
        new = write.get("Item")
        key = write.get("Key") or {name: new[name] for name in self._key_names(client, write)}  # type: ignore[index]
        old = client.get_item(TableName=write["TableName"], Key=key, ConsistentRead=True).get("Item")
        size = max(_size(old), _size(new))
        with self._lock:
            self.largest_item = max(self.largest_item, size)
        return _ceil(size, _WRITE)

    def _key_names(self, client: Any, write: Mapping[str, Any]) -> list[str]:
        table = client.describe_table(TableName=write["TableName"])["Table"]
        return [each["AttributeName"] for each in table["KeySchema"]]


def _size(wire: Mapping[str, Any] | None) -> int:
    if not wire:
        return 0
    return size_of_item({name: _plain(value) for name, value in wire.items()})


def _plain(wire: Mapping[str, Any]) -> Any:
    [(kind, value)] = wire.items()
    if kind == "N":
        return int(value)
    # boto3 decodes bytes; in a request they are encoded.
    return b64decode(value) if kind == "B" and isinstance(value, str) else value


def _ceil(size: int, unit: int) -> int:
    return max(1, math.ceil(size / unit))


def _of_s3(method: str, target: str, headers: Mapping[str, str]) -> tuple[str, dict[str, int]]:
    query = parse_qs(urlsplit(target).query, keep_blank_values=True)
    kind = method
    if method == "GET" and ("list-type" in query or "uploads" in query):
        kind = "LIST"
    elif "x-amz-copy-source" in headers:
        kind = "COPY"
    elif method == "POST" and "delete" in query:
        kind = "bulk delete"
    if kind in ("PUT", "POST", "COPY", "LIST"):
        return kind, {"put_requests": 1}
    return kind, {"free_requests" if kind in ("DELETE", "bulk delete") else "get_requests": 1}


@contextmanager
def metered(server: Ministack) -> Iterator[RequestMeter]:
    """Return a context in which the requests of the library are counted."""
    meter = RequestMeter(server)
    begin = ConnectionPool.begin

    def counting(
        self: ConnectionPool, method: str, target: str, headers: Mapping[str, str], body: bytes = b""
    ) -> Any:
        meter.see(method, target, headers, bytes(body))
        return begin(self, method, target, headers, body)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ConnectionPool, "begin", counting)
        yield meter
