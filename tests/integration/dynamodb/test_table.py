"""Tables on DynamoDB: the requests, the meaning of errors, and the ownership of a table."""

from __future__ import annotations

import http.server
import json
import threading
import time
import zlib
from collections.abc import Iterator
from typing import Any

import pytest

from commitlog._util.retry import Backoff
from commitlog.errors import (
    AccessDenied,
    CommitError,
    Conflict,
    CorruptRecord,
    FormatTooNew,
    NotSupported,
    OutcomeUnknown,
    TableNotFound,
    TransactionCanceled,
    Unavailable,
    WrongTableSchema,
)
from commitlog.tables import Absent, Check, ConditionFailed, Delete, Equals, Key, Put, TableSchema
from commitlog.tables.api import TRANSACT_WITHIN, UnreadableItem
from commitlog.tables.dynamodb.table import DynamoTable
from commitlog.testing import ManualClock
from commitlog.testing.proxy import Proxy, ProxyFault
from commitlog.urls import parse_table_url
from support.servers import Ministack

SCHEMA = TableSchema(hash_key="path", range_key="etag", ttl_attribute="ttl")
KEY = Key("a", "*")
ITEM = {"path": "a", "etag": "*", "generation": 1}
MARKER = {"path": {"S": "../VERSION"}, "etag": {"S": "../VERSION"}}
TAG = "commitlog-table-version"

pytestmark = pytest.mark.servers


class Setting:
    """A table name behind a proxy, a manual clock, and a client of the service itself."""

    def __init__(self, server: Ministack, proxy: Proxy) -> None:
        self.name = server.new_table_name()
        self.clock = ManualClock()
        self.client = server.client("dynamodb")
        self._server = server
        self._proxy = proxy
        self._opened: list[DynamoTable] = []

    def open(self, schema: TableSchema = SCHEMA, *, proxied: bool = True) -> DynamoTable:
        """Open the table, through the proxy by default."""
        options = dict(self._server.options)
        if proxied:
            options["endpoint_url"] = self._proxy.endpoint_url
        url = parse_table_url(f"dynamodb://{self.name}").with_options(options)
        self._opened.append(DynamoTable(url, schema, clock=self.clock, backoff=Backoff(tries=4)))
        return self._opened[-1]

    def close(self) -> None:
        """Close all opened tables."""
        for table in self._opened:
            table.close()

    def fail(self, operation: str, code: str, *, status: int = 400, times: int = 1, **rest: Any) -> None:
        """Respond to the next calls of `operation` with an error."""
        namespace = "com.amazonaws.dynamodb.v20120810"
        body = json.dumps({"__type": f"{namespace}#{code}", "message": "said the service.", **rest})
        self.disturb(operation, "answer", status=status, body=body, times=times)

    def disturb(self, operation: str, action: Any, **rest: Any) -> None:
        """Inject a fault into the next calls of `operation`."""
        self._proxy.requests()
        self._proxy.inject(ProxyFault(kind=operation, action=action, **rest))

    def requests(self) -> list[str]:
        """Return the operations since the last call."""
        return [request.split()[0] for request in self._proxy.requests()]

    def make(self, kinds: dict[str, str], **types: str) -> None:
        """Create the table as another tool would."""
        self.client.create_table(
            TableName=self.name,
            BillingMode="PAY_PER_REQUEST",
            KeySchema=[{"AttributeName": name, "KeyType": kind} for name, kind in kinds.items()],
            AttributeDefinitions=[
                {"AttributeName": name, "AttributeType": types.get(name, "S")} for name in kinds
            ],
        )

    def marker(self) -> dict[str, Any] | None:
        """Return the stored version marker."""
        found: dict[str, Any] = self.client.get_item(TableName=self.name, Key=MARKER)
        return found.get("Item")

    def tags(self) -> dict[str, str]:
        """Return the tags of the table."""
        arn = self.client.describe_table(TableName=self.name)["Table"]["TableArn"]
        tags = self.client.list_tags_of_resource(ResourceArn=arn)["Tags"]
        return {tag["Key"]: tag["Value"] for tag in tags}

    def tag(self, value: str) -> None:
        """Tag the table with a format."""
        arn = self.client.describe_table(TableName=self.name)["Table"]["TableArn"]
        self.client.tag_resource(ResourceArn=arn, Tags=[{"Key": TAG, "Value": value}])


@pytest.fixture(scope="module")
def proxy(ministack: Ministack) -> Iterator[Proxy]:
    """A proxy in front of the server."""
    with Proxy(ministack.endpoint_url) as proxy:
        yield proxy


@pytest.fixture
def setting(ministack: Ministack, proxy: Proxy) -> Iterator[Setting]:
    """A table that does not exist yet."""
    setting = Setting(ministack, proxy)
    yield setting
    setting.close()
    proxy.requests()


@pytest.fixture
def table(setting: Setting) -> DynamoTable:
    """A new table, without requests so far."""
    table = setting.open()
    table.create()
    setting.requests()
    return table


# -- requests ---------------------------------------------------------------------------------------


def test_each_method_is_one_request(setting: Setting, table: DynamoTable) -> None:
    """In particular, a conditional put is one request."""
    table.put(ITEM, condition=Absent())
    with pytest.raises(ConditionFailed):
        table.put(ITEM, condition=Absent())
    table.get(KEY)
    table.query_page("a")
    table.scan_page()
    table.transact([Check(KEY, Equals("generation", 1))])
    table.delete(KEY)
    assert setting.requests() == [
        *("PutItem", "PutItem", "GetItem", "Query", "Scan", "TransactWriteItems", "DeleteItem"),
    ]


def test_a_begun_put_is_sent_at_once(setting: Setting, table: DynamoTable) -> None:
    """It is executed before its result is awaited."""
    other = setting.open(proxied=False)
    pending = table.begin_put(ITEM)
    deadline = time.monotonic() + 60
    while other.get(KEY) is None:
        assert time.monotonic() < deadline
    pending()


def test_a_token_makes_a_transaction_idempotent(table: DynamoTable) -> None:
    """A transaction that is repeated with its token is applied once."""
    for _ in range(2):
        table.transact([Put(ITEM, Absent())], token="token")
    with pytest.raises(TransactionCanceled):
        table.transact([Put(ITEM, Absent())], token="other")


class Recorder:
    """A server that sends the given responses, and records the requests."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.checksum: str | None = None
        self.requests: list[tuple[str, Any]] = []
        recorder = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                operation = self.headers["x-amz-target"].removeprefix("DynamoDB_20120810.")
                assert self.headers["content-type"] == "application/x-amz-json-1.0"
                request = json.loads(self.rfile.read(int(self.headers["content-length"])))
                recorder.requests.append((operation, request))
                body = json.dumps(recorder.answers.get(operation, {})).encode()
                self.send_response(200)
                self.send_header("x-amz-crc32", recorder.checksum or str(zlib.crc32(body)))
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        options = {
            "endpoint_url": f"http://127.0.0.1:{self.server.server_port}",
            "access_key_id": "a",
            "secret_access_key": "b",
        }
        url = parse_table_url("dynamodb://leases").with_options(options)
        self.table = DynamoTable(url, SCHEMA, clock=ManualClock(), backoff=Backoff(tries=2))


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    """A table on a recording server."""
    recorder = Recorder()
    with recorder.server:
        thread = threading.Thread(target=recorder.server.serve_forever, args=(0.01,))
        thread.start()
        yield recorder
        recorder.table.close()
        recorder.server.shutdown()
        thread.join()


def test_a_put_has_the_wire_format_of_other_clients(recorder: Recorder) -> None:
    """Names are behind placeholders, as in the requests of other clients of the same tables."""
    recorder.table.put({**ITEM, "ttl": 5}, condition=Absent())
    recorder.table.put(ITEM, condition=Equals("generation", 0) & Absent("owner"))
    recorder.table.put(ITEM)
    item = {"path": {"S": "a"}, "etag": {"S": "*"}, "generation": {"N": "1"}}
    assert recorder.requests == [
        (
            "PutItem",
            {
                "TableName": "leases",
                "Item": {**item, "ttl": {"N": "5"}},
                "ConditionExpression": "attribute_not_exists(#n0)",
                "ExpressionAttributeNames": {"#n0": "path"},
                "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
            },
        ),
        (
            "PutItem",
            {
                "TableName": "leases",
                "Item": item,
                "ConditionExpression": "#n0 = :v0 AND attribute_not_exists(#n1)",
                "ExpressionAttributeNames": {"#n0": "generation", "#n1": "owner"},
                "ExpressionAttributeValues": {":v0": {"N": "0"}},
                "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
            },
        ),
        ("PutItem", {"TableName": "leases", "Item": item}),
    ]


def test_reads_are_consistent(recorder: Recorder) -> None:
    """Every read requests consistency. Local servers always give it, so the requests are checked."""
    recorder.table.get(KEY)
    recorder.table.query_page("a")
    recorder.table.scan_page(segment=1, segments=2)
    assert [operation for operation, _ in recorder.requests] == ["GetItem", "Query", "Scan"]
    assert all(request["ConsistentRead"] is True for _, request in recorder.requests)


# -- errors -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code",
    [
        "ProvisionedThroughputExceededException",
        "ThrottlingException",
        "RequestLimitExceeded",
        "TransactionConflictException",
    ],
)
def test_a_throttled_write_is_repeated(setting: Setting, table: DynamoTable, code: str) -> None:
    """It is sent again after a pause, and succeeds."""
    setting.fail("PutItem", code, times=2)
    table.put(ITEM, condition=Absent())
    assert setting.requests() == ["PutItem"] * 3
    assert setting.clock.monotonic() > 0
    assert table.get(KEY) == ITEM


def test_endless_throttling_is_reported(setting: Setting, table: DynamoTable) -> None:
    """After the last retry nothing has happened. The error distinguishes throttling from conflicts."""
    for code, error in (
        ("ThrottlingException", Unavailable),
        ("TransactionConflictException", Conflict),
    ):
        setting.fail("PutItem", code, times=4)
        with pytest.raises(error, match=rf"PutItem on dynamodb://.* {code}: said the service"):
            table.put(ITEM)
        assert setting.requests() == ["PutItem"] * 4
    assert table.get(KEY) is None


@pytest.mark.parametrize(
    ("code", "reasons"),
    [
        ("TransactionInProgressException", []),
        ("TransactionCanceledException", ["TransactionConflict", "None"]),
        ("TransactionCanceledException", ["None", "ThrottlingError"]),
        ("TransactionCanceledException", ["ProvisionedThroughputExceeded", "TransactionConflict"]),
    ],
)
def test_a_conflicting_transaction_is_repeated(
    setting: Setting, table: DynamoTable, code: str, reasons: list[str]
) -> None:
    """It is sent again, and succeeds."""
    setting.fail("TransactWriteItems", code, CancellationReasons=[{"Code": r} for r in reasons])
    table.transact([Put(ITEM, Absent()), Check(Key("b", "*"), Absent())])
    assert setting.requests() == ["TransactWriteItems"] * 2
    assert table.get(KEY) == ITEM


@pytest.mark.parametrize("code", ["ThrottlingException", "TransactionInProgressException"])
@pytest.mark.parametrize("passes", ["advance", "suspend"])
def test_a_transaction_is_not_repeated_late(setting: Setting, passes: str, code: str) -> None:
    """A machine that slept during a pause sends no transaction after it, but sends a put."""

    class Slept(ManualClock):
        def sleep(self, seconds: float) -> None:
            getattr(self, passes)(TRANSACT_WITHIN + 1)

    setting.clock = Slept()
    table = setting.open()
    table.create()
    setting.fail("TransactWriteItems", code)
    with pytest.raises(Unavailable if code.startswith("Throttling") else OutcomeUnknown, match=code):
        table.transact([Put(ITEM, Absent())], token="late")
    assert setting.requests() == ["TransactWriteItems"]
    setting.fail("PutItem", "ThrottlingException")
    table.put(ITEM, condition=Absent())
    assert setting.requests() == ["PutItem"] * 2


def test_a_transaction_with_a_failed_condition_is_not_repeated(
    setting: Setting, table: DynamoTable
) -> None:
    """This holds even if it also conflicted with another transaction."""
    reasons = [
        {"Code": "TransactionConflict"},
        {"Code": "ConditionalCheckFailed", "Item": {"path": {"S": "b"}, "etag": {"S": "*"}}},
    ]
    setting.fail("TransactWriteItems", "TransactionCanceledException", CancellationReasons=reasons)
    with pytest.raises(TransactionCanceled) as caught:
        table.transact([Put(ITEM), Check(Key("b", "*"), Absent())])
    conflict, condition = caught.value.reasons
    assert conflict is None
    assert isinstance(condition, ConditionFailed)
    assert condition.item == {"path": "b", "etag": "*"}
    assert setting.requests() == ["TransactWriteItems"]


def test_another_refusal_of_a_transaction_is_not_a_failed_condition(
    setting: Setting, table: DynamoTable
) -> None:
    """It raises another error than `TransactionCanceled`."""
    reasons = [{"Code": "ValidationError", "Message": "nonsense"}]
    setting.fail("TransactWriteItems", "TransactionCanceledException", CancellationReasons=reasons)
    with pytest.raises(CommitError, match="TransactionCanceledException") as caught:
        table.transact([Put(ITEM)])
    assert not isinstance(caught.value, TransactionCanceled)


@pytest.mark.parametrize("action", ["drop_request", "drop_response"])
def test_a_write_with_a_lost_response_is_not_repeated(
    setting: Setting, table: DynamoTable, action: str
) -> None:
    """Its outcome is unknown."""
    setting.disturb("PutItem", action)
    with pytest.raises(OutcomeUnknown):
        table.put(ITEM)
    assert setting.requests() == ["PutItem"]
    assert (table.get(KEY) is not None) == (action == "drop_response")


@pytest.mark.parametrize("operation", ["GetItem", "Query", "Scan", "DescribeTable"])
def test_a_read_with_a_lost_response_is_repeated(
    setting: Setting, table: DynamoTable, operation: str
) -> None:
    """After the last retry the service is unavailable."""
    read = {
        "GetItem": lambda: table.get(KEY),
        "Query": lambda: table.query_page("a"),
        "Scan": table.scan_page,
        "DescribeTable": table.check,
    }[operation]
    setting.disturb(operation, "drop_response", times=2)
    read()
    assert setting.requests().count(operation) == 3
    setting.fail(operation, "InternalServerError", status=500, times=4)
    with pytest.raises(Unavailable):
        read()


@pytest.mark.parametrize(
    ("status", "code"), [(500, "InternalServerError"), (503, "ServiceUnavailable"), (502, "")]
)
def test_a_failed_write_has_an_unknown_outcome(
    setting: Setting, table: DynamoTable, status: int, code: str
) -> None:
    """The service may have executed it."""
    setting.fail("PutItem", code, status=status)
    with pytest.raises(OutcomeUnknown):
        table.put(ITEM)
    assert setting.requests() == ["PutItem"]


def test_a_refused_connection_is_unavailable(setting: Setting, ministack: Ministack) -> None:
    """A refused connection proves that nothing happened."""
    with Proxy(ministack.endpoint_url) as gone:
        endpoint = gone.endpoint_url
    url = parse_table_url(f"dynamodb://{setting.name}")
    url = url.with_options({**ministack.options, "endpoint_url": endpoint})
    table = DynamoTable(url, SCHEMA, clock=setting.clock)
    for call in (table.check, table.begin_put(ITEM), lambda: table.get(KEY)):
        with pytest.raises(Unavailable):
            call()


@pytest.mark.parametrize("code", ["AccessDeniedException", "UnrecognizedClientException"])
def test_denied_access_is_reported(
    setting: Setting, table: DynamoTable, ministack: Ministack, code: str
) -> None:
    """The error does not contain the credentials."""
    setting.fail("PutItem", code)
    with pytest.raises(AccessDenied, match=f"{code}: said the service") as caught:
        table.put(ITEM)
    assert ministack.secret_access_key not in f"{caught.value}{table!r}{table.url}"


def test_invalid_responses_prove_nothing(setting: Setting, table: DynamoTable) -> None:
    """A write with such a response has an unknown outcome. A read is repeated."""
    for body in ("<html>", "[]"):
        setting.disturb("PutItem", "answer", status=200, body=body)
        with pytest.raises(OutcomeUnknown):
            table.put(ITEM)
        setting.disturb("GetItem", "answer", status=200, body=body)
        assert table.get(KEY) is None


def test_a_missing_operation_is_reported(setting: Setting, table: DynamoTable) -> None:
    """The error differs from that of a failing operation."""
    setting.fail("TransactWriteItems", "UnknownOperationException")
    with pytest.raises(NotSupported, match="TransactWriteItems"):
        table.transact([Put(ITEM)])


def test_an_item_that_the_service_refuses_as_too_large_is_reported(
    setting: Setting, table: DynamoTable
) -> None:
    """The service determines the size of an item."""
    message = "Item size has exceeded the maximum allowed size"
    setting.fail("PutItem", "ValidationException", Message=message, message=message)
    with pytest.raises(ValueError, match="Item size"):
        table.put(ITEM)


def test_a_transaction_that_the_service_refuses_as_too_large_is_reported(
    setting: Setting, table: DynamoTable
) -> None:
    """Only the service knows the size of deleted and checked items. Nothing is written."""
    message = "The aggregate size of the items in the transaction exceeds 4 MB"
    setting.fail("TransactWriteItems", "ValidationException", Message=message, message=message)
    with pytest.raises(ValueError, match="aggregate size"):
        table.transact([Put(ITEM), Delete(Key("b", "*"))])
    assert setting.requests() == ["TransactWriteItems"]
    assert table.get(KEY) is None


def test_a_damaged_response_is_refused(recorder: Recorder) -> None:
    """A response with a wrong checksum is not used."""
    recorder.answers = {"GetItem": {"Item": {"path": {"S": "x"}, "etag": {"S": "*"}}}, "PutItem": {}}
    recorder.checksum = "1"
    with pytest.raises(Unavailable, match="damaged"):
        recorder.table.get(KEY)
    with pytest.raises(OutcomeUnknown, match="damaged"):
        recorder.table.put(ITEM)


def test_unreadable_items_of_other_tools_are_corrupt(setting: Setting, table: DynamoTable) -> None:
    """An item with attributes that no value can hold is neither read in part nor overwritten."""
    foreign = {"path": {"S": "a"}, "etag": {"S": "*"}, "sizes": {"L": []}}
    setting.client.put_item(TableName=setting.name, Item=foreign)
    for call in (lambda: table.get(KEY), lambda: table.put(ITEM, condition=Absent())):
        with pytest.raises(CorruptRecord, match=r"'sizes' .* is L"):
            call()


def test_unreadable_items_can_be_scanned_and_deleted_by_key(
    setting: Setting, table: DynamoTable
) -> None:
    """A scan reports them with their readable attributes. A query raises an error."""
    table.put({**ITEM, "path": "b"})
    foreign = {"path": {"S": "a"}, "etag": {"S": "*"}, "sizes": {"L": []}}
    setting.client.put_item(TableName=setting.name, Item=foreign)
    reported: list[UnreadableItem] = []
    assert list(table.scan(unreadable=reported.append)) == [{**ITEM, "path": "b"}]
    assert [each.item for each in reported] == [{"path": "a", "etag": "*"}]
    for call in (lambda: list(table.scan()), lambda: list(table.query("a"))):
        with pytest.raises(CorruptRecord, match=r"'sizes' .* is L"):
            call()
    table.transact([Delete(KEY)])
    assert table.get(KEY) is None


# -- ownership of a table ----------------------------------------------------------------------------


def test_a_created_table_has_a_marker_and_a_tag(setting: Setting, table: DynamoTable) -> None:
    """It is billed on demand and expires items. Marker and tag have the format."""
    description = setting.client.describe_table(TableName=setting.name)["Table"]
    assert description["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"
    ttl = setting.client.describe_time_to_live(TableName=setting.name)["TimeToLiveDescription"]
    assert ttl == {"TimeToLiveStatus": "ENABLED", "AttributeName": "ttl"}
    created = str(int(setting.clock.epoch() * 1000))
    version = {"table_version": {"N": "1"}, "table_created": {"N": created}}
    assert setting.marker() == {**MARKER, **version}
    assert setting.tags() == {TAG: "1"}
    assert list(table.scan()) == []
    assert table.describe().created == setting.clock.epoch()


def test_a_table_without_range_key_has_a_marker(setting: Setting) -> None:
    """The marker has only the hash key."""
    table = setting.open(TableSchema(hash_key="name"))
    table.create()
    marker = setting.client.get_item(TableName=setting.name, Key={"name": {"S": "../VERSION"}})["Item"]
    assert set(marker) == {"name", "table_version", "table_created"}
    assert table.describe().schema == TableSchema(hash_key="name")
    assert list(table.scan()) == []


def test_a_creation_continues_after_the_creator_died(setting: Setting) -> None:
    """The next creator completes the creation."""
    setting.make({"path": "HASH", "etag": "RANGE"})
    table = setting.open()
    assert table.create() is False
    assert table.describe().schema == SCHEMA
    assert setting.marker() is not None


def test_a_table_of_another_tool_is_marked(setting: Setting) -> None:
    """It has the right keys and no marker. The first check writes marker and tag."""
    setting.make({"path": "HASH", "etag": "RANGE"})
    table = setting.open()
    assert table.describe().format is None
    table.check()
    assert table.describe().format == 1
    assert setting.tags() == {TAG: "1"}
    setting.requests()
    table.check()
    assert setting.requests() == ["DescribeTable", "GetItem"]


def test_a_table_can_be_marked_without_permission_to_tag(setting: Setting) -> None:
    """A client that may neither read nor write tags can use the table."""
    setting.make({"path": "HASH", "etag": "RANGE"})
    setting.fail("ListTagsOfResource", "AccessDeniedException")
    setting.fail("TagResource", "AccessDeniedException")
    setting.open().check()
    assert setting.marker() is not None
    assert setting.tags() == {}


def test_a_lost_marker_is_restored(setting: Setting, table: DynamoTable) -> None:
    """The tag still has the format."""
    setting.client.delete_item(TableName=setting.name, Key=MARKER)
    table.check()
    marker = setting.marker()
    assert marker is not None
    assert marker["table_version"] == {"N": "1"}


@pytest.mark.parametrize("action", ["drop_request", "drop_response"])
def test_a_marker_with_a_lost_response_is_no_error(setting: Setting, action: str) -> None:
    """The caller's outcome does not depend on it. A lost marker is written later."""
    setting.make({"path": "HASH", "etag": "RANGE"})
    table = setting.open()
    setting.disturb("PutItem", action)
    table.check()
    table.check()
    assert setting.marker() is not None


@pytest.mark.parametrize("where", ["marker", "tag"])
def test_a_table_of_a_newer_format_is_refused(setting: Setting, table: DynamoTable, where: str) -> None:
    """The marker or the tag may have the newer format. Neither is changed."""
    if where == "tag":
        setting.tag("2")
        setting.client.delete_item(TableName=setting.name, Key=MARKER)
    else:
        setting.client.put_item(TableName=setting.name, Item={**MARKER, "table_version": {"N": "2"}})
    before = setting.marker()
    for call in (table.check, table.create):
        with pytest.raises(FormatTooNew, match=r"format 2.*upgrade"):
            call()
    assert setting.marker() == before


def test_creation_reads_marker_and_tag(setting: Setting, table: DynamoTable) -> None:
    """A missing tag is added, and the newer of two formats applies. Opening reads only the marker."""
    arn = setting.client.describe_table(TableName=setting.name)["Table"]["TableArn"]
    setting.client.untag_resource(ResourceArn=arn, TagKeys=[TAG])
    table.check()
    assert setting.tags() == {}
    assert table.create() is False
    assert setting.tags() == {TAG: "1"}
    setting.tag("2")
    table.check()
    before = setting.marker()
    with pytest.raises(FormatTooNew, match=r"format 2.*upgrade"):
        table.create()
    assert (setting.marker(), setting.tags()) == (before, {TAG: "2"})


def test_creation_needs_no_permission_to_tag(setting: Setting, table: DynamoTable) -> None:
    """If the tags cannot be read, a correct marker is enough."""
    setting.fail("ListTagsOfResource", "AccessDeniedException")
    setting.fail("TagResource", "AccessDeniedException")
    assert table.create() is False


def test_a_tag_without_a_format_is_replaced(setting: Setting, table: DynamoTable) -> None:
    """It may be from another tool. The marker applies, and the tag is corrected."""
    setting.tag("many")
    table.create()
    assert setting.tags() == {TAG: "1"}


def test_an_invalid_marker_is_corrupt(setting: Setting, table: DynamoTable) -> None:
    """An item under the marker's key without a format is not taken for a marker."""
    setting.client.put_item(TableName=setting.name, Item=MARKER)
    with pytest.raises(CorruptRecord, match="table_version"):
        table.check()


def test_keys_that_are_not_strings_are_refused(setting: Setting) -> None:
    """A table with number keys of the right names can only be described."""
    setting.make({"path": "HASH", "etag": "RANGE"}, etag="N")
    table = setting.open()
    for call in (table.check, table.create):
        with pytest.raises(WrongTableSchema, match="not strings"):
            call()
    assert table.describe().format is None


def test_a_table_in_creation_is_awaited(setting: Setting, table: DynamoTable) -> None:
    """The wait is limited."""
    creating = json.dumps({"Table": {"TableStatus": "CREATING"}})
    setting.disturb("DescribeTable", "answer", status=200, body=creating, times=3)
    before = setting.clock.monotonic()
    table.check()
    assert setting.clock.monotonic() - before == 1.5
    setting.disturb("DescribeTable", "answer", status=200, body=creating, times=361)
    with pytest.raises(Unavailable, match="still being made"):
        table.check()
    deleting = json.dumps({"Table": {"TableStatus": "DELETING"}})
    setting.disturb("DescribeTable", "answer", status=200, body=deleting)
    with pytest.raises(Unavailable, match="is DELETING"):
        table.check()


def test_a_creator_waits_until_its_table_is_known(setting: Setting) -> None:
    """Other clients get the error that the table does not exist."""
    setting.fail("DescribeTable", "ResourceNotFoundException", times=2)
    table = setting.open()
    assert table.create() is True
    setting.fail("DescribeTable", "ResourceNotFoundException")
    with pytest.raises(TableNotFound):
        table.check()


def test_a_creator_without_permission_for_expiry_gets_an_error(setting: Setting) -> None:
    """Without expiry, records would accumulate."""
    setting.fail("UpdateTimeToLive", "AccessDeniedException")
    with pytest.raises(AccessDenied, match="UpdateTimeToLive"):
        setting.open().create()
