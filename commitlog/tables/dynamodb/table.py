"""A table on DynamoDB, or on a server that speaks its protocol.

A put is one request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from commitlog._util.retry import Backoff
from commitlog.aws import AwsClient, AwsOptions, AwsSession, Boto3Client, Boto3Session
from commitlog.clock import Clock
from commitlog.errors import CorruptRecord, Unavailable
from commitlog.tables.api import (
    Check,
    ConditionFailed,
    Delete,
    InFlight,
    Item,
    ItemPage,
    Key,
    Put,
    Table,
    TableCondition,
    TableInfo,
    TableSchema,
    UnreadableItem,
    Write,
)
from commitlog.tables.dynamodb.calls import Calls, Refused, reasons_of
from commitlog.tables.dynamodb.expressions import Expressions, conditional
from commitlog.tables.dynamodb.lifecycle import Lifecycle
from commitlog.tables.marshal import marshal, readable_part, unmarshal
from commitlog.tables.rules import (
    MARKER_KEY,
    canceled,
    check_condition,
    check_item,
    check_key,
    check_query,
    check_scan,
    check_writes,
    condition_failed,
    key_of_token,
    token_of_key,
)
from commitlog.urls import Url

__all__ = ["DynamoTable"]

_CONDITION_FAILED = "ConditionalCheckFailedException"
_CANCELED = "TransactionCanceledException"


class DynamoTable(Table):
    """A DynamoDB table. See `Table` for what the methods promise. Usable after a fork.

    Args:
        url: ``dynamodb://name``.
        schema: the keys of its items.
        clock: dates signatures and the version marker, and measures pauses between attempts.
        backoff: the retry policy of throttled and conflicting requests.
        options: options of the connection; by default those of the URL.
        session, client: a boto3 session or client for what the options leave open; see `AwsSession`.

    A server that does not return the old item of a failed condition makes `ConditionFailed` with
    `item_known` False; one without transactions makes `transact` raise `NotSupported`.
    """

    def __init__(
        self,
        url: Url,
        schema: TableSchema,
        *,
        clock: Clock,
        backoff: Backoff | None = None,
        options: AwsOptions | None = None,
        session: Boto3Session | None = None,
        client: Boto3Client | None = None,
    ) -> None:
        self.url = str(url)
        self.schema = schema
        self._name = url.name
        aws = AwsSession(options or AwsOptions.from_url(url), session, client=client)
        aws_client = AwsClient(aws, "dynamodb", aws.endpoint("dynamodb"), clock=clock)
        self._calls = Calls(aws_client, self.url, schema, clock=clock, backoff=backoff or aws.backoff())
        self._lifecycle = Lifecycle(self._calls, url.name, self.url, schema, clock)

    def __repr__(self) -> str:
        return f"DynamoTable({self.url!r})"

    # the table itself

    def create(self) -> bool:
        return self._lifecycle.create()

    def check(self) -> None:
        self._lifecycle.check()

    def describe(self) -> TableInfo:
        return self._lifecycle.describe()

    def tag(self, tags: Mapping[str, str]) -> None:
        self._lifecycle.tag(tags)

    # one item

    def begin_get(self, key: Key) -> InFlight[Item | None]:
        check_key(self.schema, key)
        pending = self._calls.begin(
            "GetItem", {"TableName": self._name, "Key": self._key(key), "ConsistentRead": True}
        )

        def finish() -> Item | None:
            answer = pending()
            return unmarshal(answer["Item"], self.schema.key_names) if "Item" in answer else None

        return finish

    def begin_put(self, item: Item, *, condition: TableCondition | None = None) -> InFlight[None]:
        key = check_item(self.schema, item)
        check_condition(condition)
        pending = self._calls.begin("PutItem", self._put(Put(item, condition)))
        return lambda: self._wait(pending, key, condition)

    def delete(self, key: Key, *, condition: TableCondition | None = None) -> None:
        check_key(self.schema, key)
        check_condition(condition)
        pending = self._calls.begin("DeleteItem", self._on_key(Delete(key, condition)))
        self._wait(pending, key, condition)

    def _wait(
        self, pending: InFlight[Mapping[str, Any]], key: Key, condition: TableCondition | None
    ) -> None:
        try:
            pending()
        except Refused as error:
            if error.code != _CONDITION_FAILED:
                raise
            raise _failure(key, condition, error.answer) from None

    # many items

    def query_page(
        self, hash_key: str, *, start_after: str = "", limit: int = 1000, token: str | None = None
    ) -> ItemPage:
        check_query(self.schema, hash_key, start_after, limit)
        marks = Expressions()
        expression = f"{marks.name(self.schema.hash_key)} = {marks.value(hash_key)}"
        # A page that follows another starts behind `start_after` anyway, and a server that checks the
        # one against the other may do so in another order than that of bytes (dynalite does).
        if start_after and token is None and self.schema.range_key is not None:
            expression += f" AND {marks.name(self.schema.range_key)} > {marks.value(start_after)}"
        request = {"KeyConditionExpression": expression, **marks.members()}
        return self._page("Query", request, limit, token)

    def scan_page(
        self, *, segment: int = 0, segments: int = 1, limit: int = 1000, token: str | None = None
    ) -> ItemPage:
        check_scan(segment, segments, limit)
        request = {"Segment": segment, "TotalSegments": segments} if segments > 1 else {}
        return self._page("Scan", request, limit, token)

    def _page(
        self, operation: str, request: Mapping[str, Any], limit: int, token: str | None
    ) -> ItemPage:
        start = {} if token is None else {"ExclusiveStartKey": self._key(key_of_token(token))}
        answer = self._calls.call(
            operation,
            {
                "TableName": self._name,
                "ConsistentRead": True,
                "Limit": limit,
                **request,
                **start,
            },
        )
        page = self._calls.understand(self._read, answer)
        if page.unreadable and operation == "Query":
            raise CorruptRecord(page.unreadable[0].reason)
        if page.next_token is not None and page.next_token == token:
            raise Unavailable(f"{self.url}: the server's listing does not advance and was stopped")
        return page

    def _read(self, answer: Mapping[str, Any]) -> ItemPage:
        last = answer.get("LastEvaluatedKey")
        marker = {"S": MARKER_KEY}
        items: list[Item] = []
        unreadable: list[UnreadableItem] = []
        for wire in answer.get("Items", ()):
            if wire.get(self.schema.hash_key) == marker:
                continue
            try:
                items.append(unmarshal(wire, self.schema.key_names))
            except CorruptRecord as error:
                unreadable.append(UnreadableItem(readable_part(wire), str(error)))
        return ItemPage(
            items=tuple(items),
            unreadable=tuple(unreadable),
            next_token=None if not last else token_of_key(self.schema.key_of(unmarshal(last))),
        )

    def transact(self, writes: Sequence[Write], *, token: str | None = None) -> None:
        keys = check_writes(self.schema, writes, token)
        if not writes:
            return
        request: dict[str, Any] = {"TransactItems": [self._operation(write) for write in writes]}
        if token is not None:
            request["ClientRequestToken"] = token
        try:
            self._calls.call("TransactWriteItems", request)
        except Refused as error:
            if error.code == _CANCELED:
                conditions = [write.condition for write in writes]
                canceled(_reasons(keys, conditions, reasons_of(error.answer)))
            raise

    def close(self) -> None:
        self._calls.close()

    # requests

    def _operation(self, write: Write) -> dict[str, Any]:
        if isinstance(write, Put):
            return {"Put": self._put(write)}
        return {"Delete" if isinstance(write, Delete) else "ConditionCheck": self._on_key(write)}

    def _put(self, put: Put) -> dict[str, Any]:
        condition = conditional(put.condition, self.schema)
        return {"TableName": self._name, "Item": marshal(put.item), **condition}

    def _on_key(self, write: Delete | Check) -> dict[str, Any]:
        condition = conditional(write.condition, self.schema)
        return {"TableName": self._name, "Key": self._key(write.key), **condition}

    def _key(self, key: Key) -> dict[str, Any]:
        wire: dict[str, Any] = {self.schema.hash_key: {"S": key.hash}}
        if self.schema.range_key is not None:
            wire[self.schema.range_key] = {"S": key.range}
        return wire


def _failure(key: Key, condition: TableCondition | None, answer: Mapping[str, Any]) -> ConditionFailed:
    wire = answer.get("Item")
    item = unmarshal(wire) if wire else None
    return condition_failed(key, condition, item, item_known=item is not None)


def _reasons(
    keys: Sequence[Key],
    conditions: Sequence[TableCondition | None],
    answers: Sequence[Mapping[str, Any]],
) -> tuple[ConditionFailed | None, ...]:
    return tuple(
        _failure(key, condition, answer) if answer.get("Code") == "ConditionalCheckFailed" else None
        for key, condition, answer in zip(keys, conditions, answers, strict=False)
    )
