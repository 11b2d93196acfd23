"""Any response of a server or of a proxy is read correctly, or the error states the known outcome.

A read whose response is invalid raises `Unavailable`. A write raises `OutcomeUnknown`, unless the
response proves that nothing happened. A response that only looks like a success is never taken for one.
"""

from __future__ import annotations

import json
import resource
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from hypothesis import strategies as st

from commitlog._util.retry import Backoff
from commitlog.aws import AwsOptions, ConnectionPool, Response
from commitlog.errors import CommitError, CorruptRecord, NotFound, OutcomeUnknown, Unavailable
from commitlog.stores import IfAbsent, ObjectData, ObjectInfo, Page, Staged
from commitlog.stores.s3.store import S3Store
from commitlog.stores.s3.xml import error_of, http_date, parse
from commitlog.tables.api import Absent, Key, Put, TableSchema
from commitlog.tables.dynamodb.table import DynamoTable
from commitlog.testing import ManualClock
from commitlog.urls import parse_table_url
from support.fuzzing import (
    ENOUGH,
    Canned,
    Properties,
    damaged_bytes,
    damaged_json,
    dumps,
    http,
    outcome,
    replaced,
    wild_texts,
)
from support.selection import one_in

fuzz = Properties()


@pytest.fixture(scope="module")
def canned() -> Iterator[Canned]:
    """A server that sends any response."""
    with Canned() as server:
        yield server


@pytest.fixture(scope="module")
def pool(canned: Canned) -> Iterator[ConnectionPool]:
    """A client of the server."""
    client = ConnectionPool(
        f"http://127.0.0.1:{canned.port}", connect_timeout=30, read_timeout=30, max_idle=0
    )
    yield client
    client.close()


def _options(canned: Canned) -> AwsOptions:
    return AwsOptions(
        endpoint_url=f"http://127.0.0.1:{canned.port}",
        access_key_id="a",
        secret_access_key="s",
        region="us-east-1",
        read_timeout=30,
        max_idle_connections=0,
    )


@pytest.fixture(scope="module")
def store(canned: Canned) -> Iterator[S3Store]:
    """An S3 store on the server, below a prefix."""
    opened = S3Store(
        "s3://bucket/root", options=_options(canned), clock=ManualClock(), backoff=Backoff(tries=2)
    )
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def table(canned: Canned) -> Iterator[DynamoTable]:
    """A DynamoDB table on the server."""
    opened = DynamoTable(
        parse_table_url("dynamodb://table"),
        TableSchema(hash_key="path", range_key="etag", ttl_attribute="ttl"),
        clock=ManualClock(),
        backoff=Backoff(tries=2),
        options=_options(canned),
    )
    yield opened
    opened.close()


# -- HTTP --------------------------------------------------------------------------------------------

CHUNKED = (
    b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nETag: "e"\r\n\r\n'
    b"5;x=y\r\nhello\r\nA\r\n0123456789\r\n0\r\nTrailer: t\r\n\r\n"
)
ANSWERS = (
    http(b"hello", ETag='"e"', Date="Sat, 21 Nov 2026 10:00:00 GMT"),
    CHUNKED,
    b"HTTP/1.1 100 Continue\r\n\r\n" + http(b"hello"),
    http(status="204 No Content", content_length=None),
    b"HTTP/1.0 200 OK\r\n\r\nto the end",
)


@fuzz(
    300,
    answer=st.sampled_from(ANSWERS).flatmap(damaged_bytes)
    | st.binary(max_size=60)
    | st.builds(http, st.binary(max_size=9), wild_texts, content_length=wild_texts)
    | st.builds(http, st.binary(max_size=9), transfer_encoding=wild_texts),
    method=st.sampled_from(["GET", "HEAD", "PUT"]),
)
def test_any_response_is_complete_or_refused(
    answer: bytes, method: str, canned: Canned, pool: ConnectionPool
) -> None:
    """The pool returns a response, or raises `OutcomeUnknown`."""
    canned.give(answer)
    found = outcome(pool.begin(method, "/", {}), OutcomeUnknown)
    assert isinstance(found, OutcomeUnknown) or 100 <= found.status <= 999


def test_a_truncated_response_is_refused(canned: Canned, pool: ConnectionPool) -> None:
    """This holds for every prefix of a response with a known length."""
    for answer in ANSWERS[:2]:
        for length in range(len(answer)):
            canned.give(answer[:length])
            assert isinstance(outcome(pool.begin("GET", "/", {}), OutcomeUnknown), OutcomeUnknown)


@pytest.mark.parametrize(
    "answer",
    [
        http(b"hello", content_length="+5"),
        http(b"hello", content_length="0_5"),
        http(b"hello", content_length="-5"),
        http(b"hello", content_length="٥"),
        http(b"hello", content_length="5, 5"),
        http(b"hello", content_length="9" * 5000),
        http(b"hello", status="20"),
        http(b"hello", status="-20"),
        http(b"hello", status="2e2"),
        http(b"hello", transfer_encoding="gzip, chunked"),
        CHUNKED.replace(b"\nA\r", b"\n0xA\r"),
        CHUNKED.replace(b"\nA\r", b"\n-A\r"),
        CHUNKED.replace(b"\nA\r", b"\n" + b"F" * 16 + b"\r"),
        CHUNKED.replace(b"Trailer: t\r\n", b"Trailer: t\r\n" * 100_000),
        b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000 + http(b"hello"),
    ],
)
def test_invalid_numbers_in_a_response_are_refused(
    answer: bytes, canned: Canned, pool: ConnectionPool
) -> None:
    """Lengths and statuses that only Python would parse are refused, and so are endless heads."""
    canned.give(answer)
    assert isinstance(outcome(pool.begin("GET", "/", {}), OutcomeUnknown), OutcomeUnknown)


@pytest.mark.parametrize("length", ["%d", "chunked"])
def test_an_announced_length_takes_no_memory(length: str, canned: Canned, pool: ConnectionPool) -> None:
    """Memory is allocated for the received bytes, not for the announced length."""
    promised = 2**36
    if length == "chunked":
        head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n" % promised
    else:
        head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % promised
    canned.give(head + b"x" * 1000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert isinstance(outcome(pool.begin("GET", "/", {}), OutcomeUnknown), OutcomeUnknown)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kB


@pytest.mark.parametrize("size", [0, 1, 16 * 2**20 - 1, 16 * 2**20 + 1, 50 * 2**20])
def test_a_large_response_is_read_completely(size: int, canned: Canned, pool: ConnectionPool) -> None:
    """Bodies larger than the buffer that is allocated at once are received unchanged."""
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    canned.give(http(body))
    found = pool.begin("GET", "/", {})()
    assert found == Response(200, {"content-length": str(size)}, body)


# -- XML ---------------------------------------------------------------------------------------------


def xml(tag: str, content: str) -> bytes:
    """Return an XML body in the namespace of S3."""
    head = '<?xml version="1.0" encoding="UTF-8"?>'
    return f'{head}<{tag} xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{content}</{tag}>'.encode()


ROW = (
    "<Contents><Key>root/a%20b</Key><Size>7</Size><ETag>&quot;e&quot;</ETag>"
    "<LastModified>2026-11-21T10:00:00.000Z</LastModified></Contents>"
)
LISTING = xml(
    "ListBucketResult", f"<EncodingType>url</EncodingType><IsTruncated>false</IsTruncated>{ROW}"
)
UPLOAD = (
    "<Upload><Key>root/a b</Key><UploadId>u</UploadId>"
    "<Initiated>2026-11-21T10:00:00.000Z</Initiated></Upload>"
)
UPLOADS = xml("ListMultipartUploadsResult", f"<IsTruncated>false</IsTruncated>{UPLOAD}")
INITIATED = xml("InitiateMultipartUploadResult", "<UploadId>u</UploadId>")
COMPLETED = xml("CompleteMultipartUploadResult", "<ETag>&quot;e-1&quot;</ETag>")
COPIED = xml("CopyObjectResult", "<ETag>&quot;e&quot;</ETag>")
DELETED = xml("DeleteResult", "<Error><Key>root/a</Key><Code>AccessDenied</Code></Error>")
ERROR = xml("Error", "<Code>SlowDown</Code><Message>Slow down.</Message>")
BODIES = (LISTING, UPLOADS, INITIATED, COMPLETED, COPIED, DELETED, ERROR)

LAUGHS = b"".join(
    [
        b"<!DOCTYPE x [<!ENTITY a0 'ha'>",
        *(b"<!ENTITY a%d '%s'>" % (n, b"&a%d;" % (n - 1) * 10) for n in range(1, 12)),
        b"]><ListBucketResult><Name>&a11;</Name></ListBucketResult>",
    ]
)
OUTSIDE = b'<!DOCTYPE x [<!ENTITY f SYSTEM "file:///etc/passwd">]><Error><Code>&f;</Code></Error>'
#: Bodies that are not XML of S3.
FOREIGN = (
    b"",
    b"<html><body>Please log in</body></html>",
    LAUGHS,
    OUTSIDE,
    b'<?xml version="1.0" encoding="shift_jis"?><Error/>',
    b'<?xml version="1.0" encoding="no-such-thing"?><Error/>',
    b'<?xml version="1.0" encoding="utf-16"?><Error/>',
    b"<a>" * 100_000,
    b"<a>" * 50_000 + b"</a>" * 50_000,
    b"\xff\xfe" + "<Error><Code>x</Code></Error>".encode("utf-16-le"),
    b"<Error>\x00</Error>",
    b"<Error><Code>&#x1;</Code></Error>",
    b"null",
    b'{"Error": 1}',
)


@fuzz(400, body=st.sampled_from(BODIES).flatmap(damaged_bytes) | st.binary(max_size=60))
def test_any_body_is_parsed_without_an_error(body: bytes) -> None:
    """The parser returns the XML or None, and raises nothing."""
    outcome(lambda: parse(body))
    code, message = outcome(lambda: error_of(body))
    assert isinstance(code, str) and isinstance(message, str)


@pytest.mark.parametrize("body", FOREIGN)
def test_a_foreign_body_is_parsed_safely(body: bytes) -> None:
    """Entities are neither expanded without bound nor fetched, and no encoding raises an error."""
    found = outcome(lambda: error_of(body))
    assert "root:" not in str(found) and len(str(found)) < 100


@fuzz(
    300,
    text=wild_texts
    | st.from_regex(
        r"\A[A-Z][a-z]{2}, \d{1,3} [A-Z][a-z]{2} \d{1,6} \d\d:\d\d:\d\d ([+-]\d{1,20}|GMT)\Z"
    ),
)
def test_any_date_is_parsed_or_none(text: str) -> None:
    """The date of a header is an epoch second, or None."""
    assert isinstance(outcome(lambda: http_date(text)), int | None)


# -- S3 ----------------------------------------------------------------------------------------------

STAGED = Staged(path="a", upload_id="u", size=1, nonce="n", parts=('"e"',))

READS: Mapping[str, Callable[[S3Store], object]] = {
    "head": lambda store: store.begin_head("a")().info,
    "get": lambda store: store.get("a"),
    "range": lambda store: store.get("a", start=1, end=4),
    "rest": lambda store: store.get("a", start=2),
    "list": lambda store: list(store.list()),
    "page": lambda store: store.list_page("a", delimiter="/", limit=2),
    "uploads": lambda store: list(store.list_staged()),
}
WRITES: Mapping[str, Callable[[S3Store], object]] = {
    "put": lambda store: store.put("a", b"1", condition=IfAbsent()),
    "copy": lambda store: store.copy("b", "a", condition=IfAbsent()),
    "publish": lambda store: store.publish(STAGED, condition=IfAbsent()),
    "delete_many": lambda store: store.delete_many(["a", "b"]),
    "stage": lambda store: store.stage("a", b"1"),
    "abort": lambda store: store.abort(STAGED),
}
HEADERS = {
    "ETag": '"e"',
    "Last-Modified": "Sat, 21 Nov 2026 10:00:00 GMT",
    "Date": "Sat, 21 Nov 2026 10:00:00 GMT",
    "x-amz-version-id": "v",
    "x-amz-meta-commitlog-nonce": "n",
    "Content-Range": "bytes 1-3/7",
}

bodies = st.sampled_from(BODIES).flatmap(lambda body: st.just(body) | damaged_bytes(body)) | (
    st.sampled_from([body for body in FOREIGN if len(body) < 1000]) | st.binary(max_size=30)
)
headers = st.fixed_dictionaries(
    {}, optional={name: st.just(value) | wild_texts for name, value in HEADERS.items()}
)
statuses = st.sampled_from(
    [
        *("200 OK", "200 OK", "204 No Content", "206 Partial Content", "201 Created", "299 Well"),
        *("301 Moved", "304 Not Modified", "307 Elsewhere"),
        *("400 Bad", "403 No", "404 Not Found", "409 Conflict", "412 Precondition Failed"),
        *("416 Range", "429 Slow", "500 Oh", "503 Busy", "600 Eh"),
    ]
)
answers = st.builds(
    lambda body, status, declared: http(body, status, **declared), bodies, statuses, headers
)


@fuzz(200, call=st.sampled_from(sorted(READS)), first=answers, second=answers)
def test_any_response_to_a_read_is_read_or_unavailable(
    call: str, first: bytes, second: bytes, canned: Canned, store: S3Store
) -> None:
    """A read returns the content of the response, or raises an error of ours, after few requests."""
    canned.give(first, second)
    found = outcome(lambda: READS[call](store), CommitError)
    assert canned.served < ENOUGH
    assert not isinstance(found, (OutcomeUnknown, CorruptRecord))
    if isinstance(found, ObjectData) and call in ("range", "rest"):
        assert len(found.data) <= found.size
    if isinstance(found, ObjectInfo):
        assert found.etag and 0 <= found.size < 10**18


@fuzz(200, call=st.sampled_from(sorted(WRITES)), first=answers, second=answers)
def test_any_response_to_a_write_is_read_or_an_error(
    call: str, first: bytes, second: bytes, canned: Canned, store: S3Store
) -> None:
    """A write returns, or raises an error of ours, after few requests."""
    canned.give(first, second)
    outcome(lambda: WRITES[call](store), CommitError)
    assert canned.served < ENOUGH


@pytest.mark.parametrize("body", one_in(2, FOREIGN))
@pytest.mark.parametrize("call", ["put", "copy", "publish", "delete_many"])
def test_a_foreign_success_response_to_a_write_is_an_unknown_outcome(
    call: str, body: bytes, canned: Canned, store: S3Store
) -> None:
    """For example, a login page with status 200 does not prove a write."""
    canned.give(http(body))
    found = outcome(lambda: WRITES[call](store), OutcomeUnknown)
    if call == "delete_many":
        assert isinstance(found, Mapping)
        assert [type(error) for error in found.values()] == [OutcomeUnknown] * 2
    else:
        assert isinstance(found, OutcomeUnknown)


@pytest.mark.parametrize("status", ["200 OK", "204 No Content", "206 Partial Content"])
@pytest.mark.parametrize("call", one_in(2, sorted(READS)))
def test_a_foreign_success_response_to_a_read_is_unavailable(
    call: str, status: str, canned: Canned, store: S3Store
) -> None:
    """Such a page is neither an object nor an empty listing."""
    for body in FOREIGN:
        canned.give(http(body, status))
        assert isinstance(outcome(lambda: READS[call](store), Unavailable), Unavailable)


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        ("list", xml("ListBucketResult", f"<IsTruncated>true</IsTruncated>{ROW}")),
        (
            "list",
            xml(
                "ListBucketResult",
                f"<IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>{ROW}",
            ),
        ),
        ("uploads", xml("ListMultipartUploadsResult", f"<IsTruncated>true</IsTruncated>{UPLOAD}")),
        (
            "uploads",
            xml(
                "ListMultipartUploadsResult",
                "<IsTruncated>true</IsTruncated><NextKeyMarker>root/a</NextKeyMarker>"
                f"<NextUploadIdMarker>u</NextUploadIdMarker>{UPLOAD}",
            ),
        ),
        ("list", LISTING.replace(b"root/", b"elsewhere/")),
        ("uploads", UPLOADS.replace(b"root/", b"elsewhere/")),
        ("list", LISTING.replace(b">7<", b">-7<")),
        ("list", LISTING.replace(b">7<", b">" + b"7" * 5000 + b"<")),
        ("list", LISTING.replace(b"2026-11-21T10:00:00.000Z", b"soon")),
        ("uploads", UPLOADS.replace(b"<UploadId>u</UploadId>", b"")),
        ("uploads", UPLOADS.replace(b"<UploadId>u</UploadId>", b"<UploadId/>")),
    ],
)
def test_an_invalid_listing_is_unavailable(
    call: str, answer: bytes, canned: Canned, store: S3Store
) -> None:
    """Endless listings, and listings with other keys or invalid fields, are not used in part."""
    canned.give(http(answer))
    assert isinstance(outcome(lambda: READS[call](store), Unavailable), Unavailable)
    assert canned.served < 5


@pytest.mark.parametrize(
    ("declared", "body"),
    [
        ("bytes 0-2/7", b"abc"),
        ("bytes 1-2/7", b"bc"),
        ("bytes 1-3/7", b"b"),
        ("bytes 1-3/*", b"bcd"),
        ("bytes ²-3/7", b"bcd"),
        ("bytes 1-3/" + "7" * 5000, b"bcd"),
        ("", b"bcd"),
    ],
)
def test_another_range_than_the_requested_one_is_refused(
    declared: str, body: bytes, canned: Canned, store: S3Store
) -> None:
    """Otherwise wrong or missing bytes would be returned as content."""
    canned.give(http(body, "206 Partial Content", **{**HEADERS, "Content-Range": declared}))
    assert isinstance(outcome(lambda: store.get("a", start=1, end=4), Unavailable), Unavailable)


def test_a_store_that_refuses_all_ranges_is_unavailable(canned: Canned, store: S3Store) -> None:
    """An existing object whose bytes cannot be read is `Unavailable` after some attempts."""
    canned.give(http(b"", "416 Range"), http(content_length=9, **HEADERS))
    refusal, head = canned.answers
    canned.give(*[refusal, head] * 10)
    assert isinstance(outcome(lambda: store.get("a", start=1), Unavailable), Unavailable)
    assert canned.served < 10


@pytest.mark.parametrize("call", ["head", "get"])
def test_a_response_without_an_etag_is_requested_again(
    call: str, canned: Canned, store: S3Store
) -> None:
    """JuiceFS sends it while an object is replaced. The new object may be the expected one."""
    canned.give(http(b"abc", x_amz_request_id="1"), http(b"abc", x_amz_request_id="2", ETag='"e"'))
    assert getattr(store, call)("a").etag == '"e"'
    assert canned.served == 2


@pytest.mark.parametrize("call", ["head", "get"])
def test_an_object_without_an_etag_is_unavailable(call: str, canned: Canned, store: S3Store) -> None:
    """The error names the option to set."""
    canned.give(http(b"abc", x_amz_request_id="1"))
    with pytest.raises(Unavailable, match="keep-etag"):
        getattr(store, call)("a")


def test_a_write_response_without_an_etag_is_a_success(canned: Canned, store: S3Store) -> None:
    """The server identifies itself, so the response is its own."""
    canned.give(http(x_amz_request_id="1"))
    assert store.put("a", b"1").etag == ""


def test_an_upload_without_an_id_is_refused(canned: Canned, store: S3Store) -> None:
    """Aborting an upload with an empty id would delete the object."""
    canned.give(http(xml("InitiateMultipartUploadResult", "<Key>root/a</Key>")))
    with pytest.raises(Unavailable, match="UploadId"):
        store.begin_stage("a")


def test_a_part_without_an_etag_is_refused(canned: Canned, store: S3Store) -> None:
    """The upload could never be published, so the error must come before the job is committed."""
    canned.give(http(INITIATED), http())
    with pytest.raises(Unavailable, match="etag"):
        store.stage("a", b"1")


# -- DynamoDB ----------------------------------------------------------------------------------------

ITEM = {"path": {"S": "a"}, "etag": {"S": "*"}, "generation": {"N": "3"}}
DESCRIPTION = {
    "TableStatus": "ACTIVE",
    "KeySchema": [
        {"AttributeName": "path", "KeyType": "HASH"},
        {"AttributeName": "etag", "KeyType": "RANGE"},
    ],
    "AttributeDefinitions": [
        {"AttributeName": "path", "AttributeType": "S"},
        {"AttributeName": "etag", "AttributeType": "S"},
    ],
    "TableArn": "arn",
    "ItemCount": 3,
    "CreationDateTime": 1.5,
}
#: One response that fits every request.
ANSWER = {
    "Item": {**ITEM, "table_version": {"N": "1"}, "table_created": {"N": "1800000000000"}},
    "Items": [ITEM],
    "Table": DESCRIPTION,
    "TimeToLiveDescription": {"TimeToLiveStatus": "ENABLED", "AttributeName": "ttl"},
    "Tags": [{"Key": "commitlog-table-version", "Value": "1"}],
}
CANCELED = {
    "__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
    "message": "Transaction cancelled",
    "CancellationReasons": [{"Code": "ConditionalCheckFailed", "Item": ITEM}],
}
FAILED = {"__type": "x#ConditionalCheckFailedException", "message": "no", "Item": ITEM}

KEY = Key("a", "*")
TABLE_READS: Mapping[str, Callable[[DynamoTable], object]] = {
    "get": lambda table: table.get(KEY),
    "query": lambda table: list(table.query("a")),
    "scan": lambda table: list(table.scan()),
    "describe": lambda table: table.describe(),
}
TABLE_WRITES: Mapping[str, Callable[[DynamoTable], object]] = {
    "check": lambda table: table.check(),
    "create": lambda table: table.create(),
    "put": lambda table: table.put({"path": "a", "etag": "*"}, condition=Absent()),
    "delete": lambda table: table.delete(KEY, condition=Absent("x")),
    "transact": lambda table: table.transact([Put({"path": "a", "etag": "*"}, Absent())]),
}
TABLE_CALLS = {**TABLE_READS, **TABLE_WRITES}


def test_an_invalid_member_of_a_response_is_a_typed_error(canned: Canned, table: DynamoTable) -> None:
    """For any value of a member, every call that reads it ends, at most with a typed error."""
    for name, members in (
        ("get", ["Item"]),
        ("scan", ["Items"]),
        ("describe", ["Table", "Item", "TimeToLiveDescription"]),
    ):
        for value in replaced({member: ANSWER[member] for member in members}):
            canned.give(http(dumps(value).encode()))
            found = outcome(lambda: TABLE_CALLS[name](table), CommitError)  # noqa: B023
            assert not isinstance(found, OutcomeUnknown) and canned.served < ENOUGH


@fuzz(
    300,
    call=st.sampled_from(sorted(TABLE_CALLS)),
    value=st.sampled_from([ANSWER, CANCELED, FAILED]).flatmap(damaged_json),
    status=st.sampled_from(["200 OK", "400 Bad", "500 Oh"]),
)
def test_any_response_to_a_table_is_read_or_an_error(
    call: str, value: Any, status: str, canned: Canned, table: DynamoTable
) -> None:
    """A call on a table returns the content of the response, or raises an error of ours."""
    canned.give(http(dumps(value).encode(), status))
    outcome(
        lambda: TABLE_CALLS[call](table), CommitError, ValueError if status[0] == "4" else CommitError
    )
    assert canned.served < ENOUGH


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"[" * 100_000, b'"x"', b"\xff", b"1" * 5000])
def test_a_foreign_success_response_of_a_table_is_an_unknown_outcome(
    body: bytes, canned: Canned, table: DynamoTable
) -> None:
    """A write whose response is not a JSON object may have happened. A read may be repeated."""
    for name, call in TABLE_CALLS.items():
        canned.give(http(body))
        wanted = OutcomeUnknown if name in ("put", "delete", "transact", "create") else Unavailable
        assert type(outcome(lambda: call(table), CommitError)) is wanted  # noqa: B023


def test_a_cancellation_with_invalid_reasons_is_a_cancellation(
    canned: Canned, table: DynamoTable
) -> None:
    """A transaction whose cancellation reasons are invalid was still canceled."""
    for value in replaced(CANCELED["CancellationReasons"]):
        canned.give(http(json.dumps({**CANCELED, "CancellationReasons": value}).encode(), "400 Bad"))
        found = outcome(lambda: TABLE_CALLS["transact"](table), CommitError)
        assert isinstance(found, CommitError) and not isinstance(found, OutcomeUnknown)


@pytest.mark.parametrize("name", ["query", "scan"])
def test_pages_that_do_not_advance_are_unavailable(
    name: str, canned: Canned, table: DynamoTable
) -> None:
    """A server that returns the same page forever is `Unavailable`."""
    last = {"path": {"S": "a"}, "etag": {"S": "*"}}
    canned.give(http(json.dumps({"Items": [ITEM], "LastEvaluatedKey": last}).encode()))
    assert isinstance(outcome(lambda: TABLE_CALLS[name](table), Unavailable), Unavailable)
    assert canned.served < 5


def test_an_endless_list_of_tags_is_ignored(canned: Canned, table: DynamoTable) -> None:
    """The number of requests for tags is limited."""
    canned.give(http(json.dumps({"Table": DESCRIPTION, "NextToken": "t"}).encode()))
    assert outcome(lambda: table.check()) is None
    assert canned.served < ENOUGH


def test_valid_responses_are_read(canned: Canned, store: S3Store) -> None:
    """The simple cases work with this server, so the other tests are meaningful."""
    canned.give(http(b"<Error><Code>NoSuchKey</Code></Error>", "404 Not Found"))
    assert store.begin_head("a")().info is None
    assert isinstance(outcome(lambda: store.get("a"), NotFound), NotFound)
    canned.give(http(b"abc", "206 Partial Content", **HEADERS))
    assert store.get("a", start=1, end=4).data == b"abc"
    canned.give(http(LISTING))
    assert [info.path for info in store.list()] == ["a b"]
    assert isinstance(store.list_page("a"), Page)


@pytest.mark.campaign
def test_campaign(
    campaign_seconds: float,
    campaign_seed: int,
    canned: Canned,
    pool: ConnectionPool,
    store: S3Store,
    table: DynamoTable,
) -> None:
    """Run all properties with new examples, for the given time."""
    tried = fuzz.campaign(
        campaign_seconds, campaign_seed, canned=canned, pool=pool, store=store, table=table
    )
    print(f"{tried} examples")
