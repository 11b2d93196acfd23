"""The S3 store with answers that no server of the other tests gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from urllib.parse import unquote

import pytest

from commitlog._util.retry import Backoff
from commitlog.aws import AwsClient, AwsOptions, Response
from commitlog.errors import (
    AccessDenied,
    BucketNotFound,
    CommitError,
    ConfigurationError,
    OutcomeUnknown,
    PreconditionFailed,
    Unavailable,
)
from commitlog.stores.api import IfMatch
from commitlog.stores.s3.store import S3Store
from commitlog.stores.s3.xml import parse
from commitlog.testing import ManualClock

OPTIONS = AwsOptions(
    endpoint_url="http://127.0.0.1:9", region="r", access_key_id="id", secret_access_key="secret"
)


def test_a_conditional_deletion_of_a_missing_object_never_succeeds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever code the server has for it."""

    def begin(self: AwsClient, method: str, path: str, **options: Any) -> Callable[[], Response]:
        return lambda: Response(404, {}, b"<Error><Code>NotFound</Code></Error>")

    monkeypatch.setattr(AwsClient, "begin", begin)
    store = S3Store("s3://bucket", options=OPTIONS, clock=ManualClock())
    store.delete("a")
    with pytest.raises(PreconditionFailed, match="there is no object"):
        store.delete("a", condition=IfMatch('"e"'))
    store.close()


def test_a_name_that_xml_cannot_hold_does_not_prevent_a_bulk_removal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is removed by a request of its own."""
    removed: list[str] = []

    def begin(self: AwsClient, method: str, path: str, **options: Any) -> Callable[[], Response]:
        if method == "DELETE":
            removed.append(unquote(path))
            return lambda: Response(204, {}, b"")
        asked = parse(options["body"])
        if asked is None:
            return lambda: Response(400, {}, b"<Error><Code>MalformedXML</Code></Error>")
        removed.extend(f"/{key.text}" for key in asked.iter("Key"))
        return lambda: Response(200, {}, b"<DeleteResult/>")

    monkeypatch.setattr(AwsClient, "begin", begin)
    store = S3Store("s3://bucket", options=OPTIONS, clock=ManualClock())
    assert store.delete_many(["a", "b\ufffe", "c"]) == {}
    assert sorted(removed) == ["/a", "/b\ufffe", "/c"]
    store.close()


class Uploads:
    """A server that takes uploads.

    Attributes:
        refused: the number of the part that the server refuses.
        aborted: whether the upload was aborted.
    """

    def __init__(self) -> None:
        self.refused = ""
        self.aborted = False

    def begin(self, method: str, path: str, **options: Any) -> Callable[[], Response]:
        """Answer a request."""
        if method == "POST":
            kind = "InitiateMultipartUploadResult"
            body = f"<{kind}><UploadId>1</UploadId></{kind}>".encode()
            return lambda: Response(200, {}, body)
        if method == "DELETE":
            self.aborted = True
            return lambda: Response(204, {}, b"")
        if options["query"]["partNumber"] == self.refused:
            return lambda: Response(403, {}, b"<Error><Code>AccessDenied</Code></Error>")
        return lambda: Response(200, {"etag": '"e"'}, b"")


@pytest.mark.parametrize(
    ("refused", "most", "error"), [("", 2, ConfigurationError), ("1", 10_000, AccessDenied)]
)
def test_an_upload_with_a_failed_write_is_not_finished(
    monkeypatch: pytest.MonkeyPatch, refused: str, most: int, error: type[CommitError]
) -> None:
    """It has too many parts, or a part was refused: bytes are missing. It can be aborted."""
    server = Uploads()
    server.refused = refused
    monkeypatch.setattr(AwsClient, "begin", lambda _, *args, **options: server.begin(*args, **options))
    monkeypatch.setattr("commitlog.stores.s3.multipart.MAX_PARTS", most)
    store = S3Store(
        "s3://bucket", options=OPTIONS, clock=ManualClock(), part_size=5 << 20, parallel_parts=1
    )
    writer = store.begin_stage("a")
    with pytest.raises(error):
        writer.write(bytes(20 << 20))
    for proceed in (lambda: writer.write(b"more"), writer.finish):
        with pytest.raises(ConfigurationError, match=rf"a write has failed \({error.__name__}"):
            proceed()
    writer.abort()
    assert server.aborted
    store.close()


# -- answers of other servers -------------------------------------------------------------------------


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., S3Store]]:
    """Return a function that opens a store whose server gives one answer to all requests."""
    with ExitStack() as stack:

        def answer(body: bytes, status: int = 200, **headers: str) -> S3Store:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            response = Response(status, {"etag": '"e"', **named}, body)
            monkeypatch.setattr(AwsClient, "begin", lambda *_, **__: lambda: response)
            store = S3Store(
                "s3://bucket", options=OPTIONS, clock=ManualClock(), backoff=Backoff(tries=1)
            )
            stack.callback(store.close)
            return store

        yield answer


def test_the_name_of_an_answer_does_not_matter(answered: Callable[..., S3Store]) -> None:
    """This is how boto3 reads it. The first answer is that of rclone."""
    begun = (
        b"<InitiateMultipartUpload><Bucket>b</Bucket><UploadId>7</UploadId></InitiateMultipartUpload>"
    )
    answered(begun).begin_stage("a")
    listed = b" \n<?xml version='1.0'?><Listed><IsTruncated>false</IsTruncated></Listed>"
    assert list(answered(listed).list()) == []
    assert list(answered(listed).list_staged()) == []
    assert answered(b"<CopyResult><ETag>e</ETag></CopyResult>").copy("a", "b").etag == "e"


@pytest.mark.parametrize("body", [b"<html><body/></html>", b"<Error><IsTruncated/></Error>", b""])
def test_an_answer_of_something_else_is_not_used(answered: Callable[..., S3Store], body: bytes) -> None:
    """A page for a login is not an empty listing, nor a copy, nor the settings of a bucket."""
    store = answered(body)
    for call in (
        lambda: list(store.list()),
        lambda: list(store.list_staged()),
        lambda: store.begin_stage("a"),
    ):
        with pytest.raises(Unavailable, match="not a valid"):
            call()
    with pytest.raises(OutcomeUnknown):
        store.copy("a", "b")
    assert store.versioning() is None


def test_a_listing_in_place_of_the_versioning_says_nothing(answered: Callable[..., S3Store]) -> None:
    """s3rver does not know the query, and lists the bucket."""
    assert (
        answered(b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>").versioning()
        is None
    )


def test_the_range_of_an_empty_object(answered: Callable[..., S3Store]) -> None:
    """S3Mock answers with the bytes from 0 to -1."""
    store = answered(b"", 206, content_range="bytes 0--1/0")
    assert (store.get("a", end=8).data, store.get("a", end=8).size, store.get("a", start=3).data) == (
        b"",
        0,
        b"",
    )


def test_a_range_with_status_200_is_a_range(answered: Callable[..., S3Store]) -> None:
    """rclone sends it so. It was cut a second time, as if it were the whole object."""
    store = answered(b"23", content_range="bytes 2-3/10")
    found = store.get("a", start=2, end=4)
    assert (found.data, found.size) == (b"23", 10)
    with pytest.raises(Unavailable, match="bytes 3 to 4 were requested"):
        store.get("a", start=3, end=4)
    with pytest.raises(Unavailable, match="bytes 0 to the end were requested"):
        store.get("a")


def test_dates_are_read_as_boto3_reads_them(answered: Callable[..., S3Store]) -> None:
    """s3proxy lists a directory without a date. A real object without one is not listed."""

    def listed(*rows: str) -> S3Store:
        contents = "".join(f"<Contents>{row}</Contents>" for row in rows)
        return answered(
            f"<ListBucketResult><IsTruncated>false</IsTruncated>{contents}</ListBucketResult>".encode()
        )

    directory = "<Key>d/</Key>"
    date = "<LastModified>Sat, 21 Nov 2026 10:00:00 GMT</LastModified>"
    found = list(listed(directory, f"<Key>a</Key><Size>1</Size>{date}").list())
    assert [(info.path, info.last_modified) for info in found] == [("a", 1795255200.0)]
    with pytest.raises(Unavailable, match="not a valid ListBucketResult"):
        list(listed("<Key>a</Key><Size>1</Size>").list())


def test_an_error_may_be_wrapped(answered: Callable[..., S3Store]) -> None:
    """Other services of AWS, and servers after their example, wrap it."""
    body = b"<ErrorResponse><Error><Code> NoSuchBucket </Code></Error></ErrorResponse>"
    with pytest.raises(BucketNotFound):
        answered(body, 404).get("a")
