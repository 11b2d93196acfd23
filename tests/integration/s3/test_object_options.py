"""How an S3 store writes objects: required checksums, encryption, storage class, tags."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest
from click.testing import CliRunner

import commitlog
from commitlog._util.request_stats import listen_for_retries
from commitlog._util.retry import Backoff
from commitlog.aws import AwsClient, AwsOptions
from commitlog.cli import main
from commitlog.commit.record import LEASE_SCHEMA
from commitlog.errors import AlreadyExists, CommitError, OutcomeUnknown
from commitlog.stores import IfAbsent, IfMatch, RequestExpiry
from commitlog.stores.open import open_store
from commitlog.stores.s3 import bucket as bucket_module
from commitlog.stores.s3.store import S3Store
from commitlog.stores.s3_options import ObjectOptions
from commitlog.tables.open import open_table
from commitlog.testing.contract.store import check_object_store
from commitlog.testing.proxy import Proxy, ProxyFault
from commitlog.urls import parse_table_url
from support.servers import Ministack

pytestmark = pytest.mark.servers

MIB = 1024 * 1024
DEMAND = (
    "Content-MD5 OR x-amz-checksum- HTTP header is required for Put {} requests"
    " with Object Lock parameters"
)

Opener = Callable[..., S3Store]


def _refusal(code: str = "InvalidRequest", what: str = "Object") -> ProxyFault:
    """Refuse writes of a body without a checksum. Ministack checks each MD5 that it gets."""
    return ProxyFault(
        kind="PUT",
        action="answer",
        status=400,
        body=f"<Error><Code>{code}</Code><Message>{DEMAND.format(what)}</Message></Error>",
        without=("content-md5", "x-amz-copy-source"),
        times=100_000,
    )


@pytest.fixture
def locked(ministack: Ministack) -> Iterator[Proxy]:
    """Ministack, as if all its buckets had Object Lock with a retention."""
    with Proxy(ministack.endpoint_url) as proxy:
        proxy.inject(_refusal())
        yield proxy


@pytest.fixture
def open_bucket(ministack: Ministack) -> Iterator[Opener]:
    """Open stores that are closed with the test, on a new bucket unless one is named."""
    with ExitStack() as stack:

        def make(proxy: Proxy | None, *, bucket: str = "", **settings: Any) -> S3Store:
            place = {} if proxy is None else {"endpoint_url": proxy.endpoint_url}
            url = f"s3://{bucket or ministack.new_bucket()}"
            options = AwsOptions(**(ministack.options | place))
            store = S3Store(url, options=options, backoff=Backoff(tries=3, base=0.001), **settings)
            stack.callback(store.close)
            if proxy is not None:
                proxy.requests()
            return store

        yield make


def _writes(proxy: Proxy) -> list[str]:
    return [request for request in proxy.requests() if request.startswith("PUT ")]


# -- required checksums ----------------------------------------------------------------------------


def test_a_bucket_that_requires_checksums_keeps_the_contract(locked: Proxy, open_bucket: Opener) -> None:
    """All rules of a store hold, including conditions, uploads and races."""
    conditions = dict(S3Store.capabilities.conditions) | {
        commitlog.stores.WriteOperation.COPY: frozenset()
    }
    check_object_store(
        open_bucket(locked), conditions=conditions, fresh_etags=False, forgets_uploads=False
    )


def test_the_requirement_is_remembered(locked: Proxy, open_bucket: Opener) -> None:
    """The first write is sent twice and counted twice. Later writes are sent once."""
    store = open_bucket(locked)
    again: list[Exception] = []
    etag = listen_for_retries(again.append, lambda: store.put("a", b"1", condition=IfAbsent())).etag
    assert len(_writes(locked)) == 2
    assert [type(cause) for cause in again] == [CommitError]
    store.put("a", b"2", condition=IfMatch(etag))
    store.copy("a", "b")
    store.publish(store.stage("c", b"3"))
    assert len(_writes(locked)) == 2
    assert [store.get(path).data for path in "abc"] == [b"2", b"2", b"3"]
    with pytest.raises(AlreadyExists):
        store.put("a", b"3", condition=IfAbsent())


def test_the_condition_is_in_the_second_request(locked: Proxy, open_bucket: Opener) -> None:
    """The first request was refused before its condition was evaluated."""
    store = open_bucket(locked)
    open_bucket(None, bucket=store.url.removeprefix("s3://")).put("a", b"old")
    with pytest.raises(AlreadyExists):
        store.put("a", b"new", condition=IfAbsent())
    assert store.get("a").data == b"old"


@pytest.mark.parametrize("body", [b"", b"1"], ids=["empty", "full"])
def test_a_write_with_an_expiry_has_a_checksum(locked: Proxy, open_bucket: Opener, body: bytes) -> None:
    """A body always has one, and an empty body gets one if it is required. The expiry stays."""
    store = open_bucket(locked)
    store.put("a", body, expiry=RequestExpiry(int(time.time()), 60))
    assert len(_writes(locked)) == (1 if body else 2)
    assert store.get("a").data == body


def test_parts_are_repeated_with_a_checksum(ministack: Ministack, open_bucket: Opener) -> None:
    """The upload itself needs no checksum and is continued, and only its parts are sent again."""
    with Proxy(ministack.endpoint_url) as proxy:
        proxy.inject(_refusal("MissingContentMD5", "Part"))
        store = open_bucket(proxy, part_size=5 * MIB, put_limit=MIB)
        body = bytes(range(256)) * (11 * MIB // 256)
        result = store.put("a", body, condition=IfAbsent())
        assert store.get("a").data == body and store.head("a").etag == result.etag
        assert result.etag.strip('"').endswith("-3")
        parts = _writes(proxy)
        assert 4 <= len(parts) <= 6
        store.put("b", body)
        assert len(_writes(proxy)) == 3


def test_a_lost_response_to_the_second_request_is_an_unknown_outcome(
    locked: Proxy, open_bucket: Opener
) -> None:
    """The second request is a write like any other."""
    store = open_bucket(locked)
    locked.inject(ProxyFault(kind="PUT", action="drop_response"))
    with pytest.raises(OutcomeUnknown):
        store.put("a", b"1")
    assert store.get("a").data == b"1"
    assert len(_writes(locked)) == 2


def test_a_checksum_is_verified(
    locked: Proxy, open_bucket: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store refuses a body that does not match its checksum."""
    monkeypatch.setattr(bucket_module, "content_md5", lambda body: "XUFAKrxLKna5cZ2REBfFkg==")
    store = open_bucket(locked)
    with pytest.raises(commitlog.Unavailable, match="BadDigest"):
        store.put("a", b"not hello")
    assert store.begin_head("a")().info is None
    store.put("a", b"hello")


def test_configured_checksums_are_sent_at_once(locked: Proxy, open_bucket: Opener) -> None:
    """With `checksum=md5` no request is refused."""
    store = open_bucket(locked, object_options=ObjectOptions(checksum="md5"))
    store.put("a", b"")
    store.publish(store.stage("b", b"1"))
    assert len(_writes(locked)) == 2
    assert not locked.strikes()


def test_other_refusals_are_raised(ministack: Ministack, open_bucket: Opener) -> None:
    """Not every error that mentions the header requires a checksum. A write is repeated once."""
    with Proxy(ministack.endpoint_url) as proxy:
        for code, message, sent in (
            ("InvalidRequest", "no", 1),
            ("InvalidDigest", "The Content-MD5 you specified is not valid", 1),
            ("InvalidRequest", DEMAND, 2),
        ):
            body = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
            store = open_bucket(proxy)
            proxy.inject(ProxyFault(kind="PUT", action="answer", status=400, body=body, times=sent))
            with pytest.raises(CommitError, match=code):
                store.put("a", b"1")
            assert len(_writes(proxy)) == sent
            assert store.begin_head("a")().info is None


def test_bulk_deletions_have_a_checksum(locked: Proxy, open_bucket: Opener) -> None:
    """DeleteObjects always requires one."""
    store = open_bucket(locked)
    seen: list[dict[str, str]] = []
    begin = AwsClient.begin

    def spy(self: AwsClient, method: str, path: str, **rest: Any) -> Any:
        seen.append({"method": method, **rest.get("headers", {})})
        return begin(self, method, path, **rest)

    store.put("a", b"1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AwsClient, "begin", spy)
        assert store.delete_many(["a"]) == {}
    assert seen[0]["method"] == "POST" and seen[0]["content-md5"]


@pytest.mark.parametrize("commit", ["native", "lease"])
def test_both_strategies_work_on_a_locked_bucket(
    ministack: Ministack, locked: Proxy, commit: str
) -> None:
    """This covers the probe, leases and the write itself."""
    table = f"dynamodb://{ministack.new_table_name()}"
    with closing(open_table(table, LEASE_SCHEMA, **ministack.options)) as leases:
        leases.create()
    given = ministack.options | {"endpoint_url": locked.endpoint_url}
    place = parse_table_url(table).with_options(ministack.options)
    url = f"s3://{ministack.new_bucket()}"
    with commitlog.connect(
        url, commit=commit, table=place if commit == "lease" else None, **given
    ) as store:
        store.put_if_absent("a", b"")
        store.put_if_absent("b", b"1")
        with pytest.raises(AlreadyExists):
            store.put_if_absent("b", b"2")
        assert store.get("b").data == b"1"


# -- headers ---------------------------------------------------------------------------------------

ALL = {
    "storage_class": "STANDARD_IA",
    "server_side_encryption": "aws:kms",
    "sse_kms_key_id": "arn:aws:kms:us-east-1:123456789012:key/1",
    "bucket_key": "true",
    "tagging": "team=data%26more&tier=hot",
    "acl": "bucket-owner-full-control",
}


def test_objects_are_stored_with_the_options(ministack: Ministack) -> None:
    """This holds for objects that are put, uploaded in parts, or copied."""
    bucket = ministack.new_bucket()
    options = ministack.options | ALL
    with closing(open_store(f"s3://{bucket}", **options)) as store:
        etag = store.put("put", b"1", condition=IfAbsent()).etag
        store.put("put", b"2", condition=IfMatch(etag))
        store.publish(store.stage("staged", b"2"))
        store.copy("put", "copied")
        store.put("expiring", b"3", expiry=RequestExpiry(int(time.time()), 60))
        assert store.get("copied").data == b"2"
    client = ministack.client("s3")
    for key in ("put", "staged", "copied", "expiring"):
        head = client.head_object(Bucket=bucket, Key=key)
        assert head["StorageClass"] == "STANDARD_IA", key
        assert head["ServerSideEncryption"] == "aws:kms", key
        assert head["SSEKMSKeyId"] == ALL["sse_kms_key_id"], key
        if key == "staged":  # ministack ignores the tags of an upload
            continue
        tags = client.get_object_tagging(Bucket=bucket, Key=key)["TagSet"]
        assert {tag["Key"]: tag["Value"] for tag in tags} == {"team": "data&more", "tier": "hot"}, key


def test_reads_have_only_the_headers_of_all_requests(
    ministack: Ministack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3 refuses headers of writes in a read. The payer is sent in each request."""
    own = ObjectOptions(**ALL).of_new_objects
    seen: list[tuple[str, dict[str, str]]] = []
    begin = AwsClient.begin

    def spy(self: AwsClient, method: str, path: str, **rest: Any) -> Any:
        seen.append((method, dict(rest.get("headers", {}))))
        return begin(self, method, path, **rest)

    monkeypatch.setattr(AwsClient, "begin", spy)
    options = ministack.options | ALL | {"request_payer": "requester"}
    with closing(open_store(f"s3://{ministack.new_bucket()}", **options)) as store:
        store.put("a", b"1")
        store.publish(store.stage("b", b"2"))
        store.head("a"), store.get("a"), list(store.list()), list(store.list_staged())
        store.delete("a")
        store.delete_many(["b"])
    assert {headers.get("x-amz-request-payer") for _, headers in seen} == {"requester"}
    having = [(method, own.keys() & headers.keys()) for method, headers in seen if own.keys() & headers]
    # Of an upload, only its start has them, and neither the part nor the completion.
    assert having == [("PUT", own.keys()), ("POST", own.keys())]


def test_the_command_line_accepts_the_options_in_a_url(
    ministack: Ministack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They work like all other options of a URL."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ministack.access_key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", ministack.secret_access_key)
    bucket = ministack.new_bucket()
    url = f"s3://{bucket}/a?endpoint_url={ministack.endpoint_url}&storage_class=STANDARD_IA"
    done = CliRunner().invoke(main, ["put", "-", url], input=b"1")
    assert done.exit_code == 0, done.output
    assert ministack.client("s3").head_object(Bucket=bucket, Key="a")["StorageClass"] == "STANDARD_IA"
