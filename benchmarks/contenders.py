"""Contenders that create an object only if it is absent, all with the same work.

Each contender offers calls that take a fresh key: ``put`` writes 1 KiB to it, ``copy`` copies the object
`SOURCE` to it. A bare contender sends a single request of the protocol with the leanest client available
here. It is the lower limit for the others.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import boto3
import obstore
from attrs import evolve, frozen
from botocore.config import Config
from botocore.exceptions import ClientError
from obstore.store import S3Store as ObstoreS3
from servers import Server

import commitlog
from commitlog.aws import AwsClient, AwsOptions, AwsSession
from commitlog.clock import SystemClock
from commitlog.commit.probe_report import Kind, ProbeResult

__all__ = ["BODY", "SOURCE", "Place", "bare", "boto3_rows", "obstore_rows", "ours"]

BODY = b"x" * 1024
SOURCE = "source"
TIMEOUT_MS = 20_000

#: The calls of a contender, by operation. Each call takes an unused key.
Calls = Mapping[str, Callable[[str], Any]]


@frozen(kw_only=True)
class Place:
    """The environment of the contenders.

    Attributes:
        server: the test server. It gives the region and the credentials.
        endpoint_url: the URL of the server, or of the proxy in front of it.
        bucket: a bucket with the object `SOURCE`.
        table: a table of leases with the key schema of ``object_store``; empty if the server has no
            tables.
        writers: number of threads that call at once.
    """

    server: Server
    endpoint_url: str
    bucket: str
    table: str
    writers: int

    @property
    def options(self) -> dict[str, Any]:
        """The connection options for `commitlog.connect`."""
        return self.server.options | {"endpoint_url": self.endpoint_url}


def acquire_request(table: str, key: str) -> dict[str, Any]:
    """Return the PutItem request that acquires a lease on the creation of `key`."""
    return {
        "TableName": table,
        "Item": {
            "path": {"S": key},
            "etag": {"S": "*"},
            "generation": {"N": "0"},
            "timeout": {"N": str(TIMEOUT_MS)},
            "ttl": {"N": "1900000000"},
        },
        "ConditionExpression": "attribute_not_exists(#pk)",
        "ExpressionAttributeNames": {"#pk": "path"},
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }


@contextmanager
def bare(place: Place) -> Iterator[dict[str, Calls]]:
    """Send one request per call over our own request path, and check only the status of the response."""
    session = AwsSession(AwsOptions(**place.options, max_idle_connections=place.writers))
    clock = SystemClock()
    s3 = AwsClient(session, "s3", session.endpoint("s3", bucket=place.bucket), clock=clock)
    dynamodb = AwsClient(session, "dynamodb", session.endpoint("dynamodb"), clock=clock)
    from_source = {"x-amz-copy-source": f"/{place.bucket}/{SOURCE}"}
    target = {"x-amz-target": "DynamoDB_20120810.PutItem", "content-type": "application/x-amz-json-1.0"}

    def head(key: str) -> None:
        assert s3.begin("HEAD", f"/{key}")().status == 404

    def acquire(key: str) -> None:
        body = json.dumps(acquire_request(place.table, key)).encode()
        assert dynamodb.begin("POST", "/", headers=target, body=body)().status == 200

    def put(key: str) -> None:
        assert s3.begin("PUT", f"/{key}", body=BODY)().status == 200

    def copy(key: str) -> None:
        assert s3.begin("PUT", f"/{key}", headers=from_source)().status == 200

    def until(key: str, body: bytes, headers: Mapping[str, str]) -> None:
        now = int(clock.epoch())
        pending = s3.begin_until("PUT", f"/{key}", date=now, seconds=18, headers=headers, body=body)
        assert pending().status == 200

    rows: dict[str, Calls] = {
        "bare HEAD": {"put": head, "copy": head},
        "bare PUT/COPY": {"put": put, "copy": copy},
        "bare PUT/COPY, expiring": {
            "put": lambda key: until(key, BODY, {}),
            "copy": lambda key: until(key, b"", from_source),
        },
    }
    if place.table:
        rows["bare acquire"] = {"put": acquire, "copy": acquire}
    try:
        yield rows
    finally:
        s3.close()
        dynamodb.close()


@contextmanager
def boto3_rows(place: Place) -> Iterator[dict[str, Calls]]:
    """Send HEAD, PutItem and PUT through boto3: sequentially, or with HEAD and PutItem in parallel."""
    session = boto3.session.Session(
        aws_access_key_id=place.server.access_key_id,
        aws_secret_access_key=place.server.secret_access_key,
        region_name=place.server.region,
    )
    config = Config(
        retries={"total_max_attempts": 1},
        s3={"addressing_style": "path"},
        max_pool_connections=2 * place.writers,
    )
    s3 = session.client("s3", endpoint_url=place.endpoint_url, config=config)
    dynamodb = session.client("dynamodb", endpoint_url=place.endpoint_url, config=config)
    source = {"Bucket": place.bucket, "Key": SOURCE}

    def head(key: str) -> None:
        try:
            s3.head_object(Bucket=place.bucket, Key=key)
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] != 404:
                raise
        else:
            raise AssertionError(f"{key} is there")

    def acquire(key: str) -> None:
        dynamodb.put_item(**acquire_request(place.table, key))

    writes: Calls = {
        "put": lambda key: s3.put_object(Bucket=place.bucket, Key=key, Body=BODY),
        "copy": lambda key: s3.copy_object(Bucket=place.bucket, Key=key, CopySource=source),
    }

    def in_a_row(write: Callable[[str], Any]) -> Callable[[str], None]:
        def call(key: str) -> None:
            head(key)
            acquire(key)
            write(key)

        return call

    def in_parallel(write: Callable[[str], Any], pool: ThreadPoolExecutor) -> Callable[[str], None]:
        def call(key: str) -> None:
            looking = pool.submit(head, key)
            acquire(key)
            looking.result()
            write(key)

        return call

    with ThreadPoolExecutor(place.writers) as pool:
        try:
            yield {
                "boto3 in a row": {name: in_a_row(write) for name, write in writes.items()},
                "boto3 in parallel": {name: in_parallel(write, pool) for name, write in writes.items()},
                "boto3 PUT/COPY alone": writes,
            }
        finally:
            s3.close()
            dynamodb.close()


@contextmanager
def obstore_rows(place: Place) -> Iterator[dict[str, Calls]]:
    """Use the DynamoCommit of object_store, and its native conditional requests."""

    def connect(**how: Any) -> ObstoreS3:
        return ObstoreS3(
            place.bucket,
            endpoint=place.endpoint_url,
            region=place.server.region,
            access_key_id=place.server.access_key_id,
            secret_access_key=place.server.secret_access_key,
            virtual_hosted_style_request=False,
            client_options={"allow_http": True},
            **how,
        )

    def put(store: ObstoreS3) -> Callable[[str], Any]:
        return lambda key: obstore.put(store, key, BODY, mode="create", use_multipart=False)

    def calls(store: ObstoreS3) -> Calls:
        return {
            "put": lambda key: obstore.put(store, key, BODY, mode="create", use_multipart=False),
            "copy": lambda key: obstore.copy(store, SOURCE, key, overwrite=False),
        }

    rows = {"obstore native": calls(connect(copy_if_not_exists="header:if-none-match:*"))}
    if place.table:
        dynamo = f"dynamo:{place.table}:{TIMEOUT_MS}"
        rows["obstore dynamo"] = calls(connect(conditional_put=dynamo, copy_if_not_exists=dynamo))
    yield rows


#: The tests of the probe show that the servers honour these conditions for the rows that rely on them.
#: Probing here would take longer than the benchmark.
_KNOWN = commitlog.ProbeReport(
    url="s3://benchmarks",
    rows=[
        ProbeResult(kind=kind, check=check, expected="", got="", ok=True)
        for kind in (Kind.PUT_IF_ABSENT, Kind.COPY_IF_ABSENT)
        for check in kind.checks
    ],
)


@contextmanager
def ours(place: Place) -> Iterator[dict[str, Calls]]:
    """Use `commitlog.connect`: with native conditional requests, and with leases if there is a table."""
    url = f"s3://{place.bucket}"
    probed = f"{url}?endpoint_url={place.endpoint_url}&region={place.server.region}"
    known = evolve(_KNOWN, url=probed)
    stores = {"native": commitlog.connect(url, commit="native", probe_report=known, **place.options)}
    if place.table:
        commit = commitlog.DynamoCommit(place.table, timeout=TIMEOUT_MS / 1000, **place.options)
        stores["lease"] = commitlog.connect(url, commit=commit, **place.options)
    try:
        yield {name: _calls(store) for name, store in stores.items()}
    finally:
        for store in stores.values():
            store.close()


def _calls(store: commitlog.ConditionalStore) -> Calls:
    return {
        "put": lambda key: store.put_if_absent(key, BODY),
        "copy": lambda key: store.copy_if_absent(SOURCE, key),
    }
