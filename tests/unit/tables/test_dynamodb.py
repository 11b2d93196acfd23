"""The DynamoDB table with answers that are hard to get from a server."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from commitlog._util.retry import Backoff
from commitlog.aws import AwsClient, AwsOptions, Response
from commitlog.errors import CommitError, OutcomeUnknown, TransactionCanceled, Unavailable
from commitlog.tables import Absent, Key, Put, TableSchema
from commitlog.tables.dynamodb.table import DynamoTable
from commitlog.testing import ManualClock
from commitlog.urls import parse_table_url

OPTIONS = AwsOptions(
    endpoint_url="http://127.0.0.1:9", region="r", access_key_id="id", secret_access_key="secret"
)


def _table() -> DynamoTable:
    return DynamoTable(
        parse_table_url("dynamodb://table"),
        TableSchema(hash_key="path"),
        clock=ManualClock(),
        backoff=Backoff(tries=4),
        options=OPTIONS,
    )


def _refusal(code: str, **rest: Any) -> Callable[[], Response]:
    body = json.dumps({"__type": f"com.amazonaws.dynamodb#{code}", **rest}).encode()
    return lambda: Response(400, {}, body)


def _unreachable() -> Response:
    raise Unavailable("no connection")


_FAILED = _refusal(
    "TransactionCanceledException", CancellationReasons=[{"Code": "ConditionalCheckFailed"}]
)


@pytest.mark.parametrize(
    ("last", "error"),
    [
        (_unreachable, OutcomeUnknown),
        (_refusal("ExpiredTokenException"), OutcomeUnknown),
        (_FAILED, TransactionCanceled),
    ],
    ids=["unreachable", "expired", "canceled"],
)
def test_a_transaction_that_was_under_way_stays_unknown(
    monkeypatch: pytest.MonkeyPatch, last: Callable[[], Response], error: type[CommitError]
) -> None:
    """That a later attempt did nothing does not settle it; only the answer about its conditions does."""
    answers = [_refusal("TransactionInProgressException"), last]
    monkeypatch.setattr(AwsClient, "begin", lambda *_, **__: answers.pop(0))
    table = _table()
    with pytest.raises(error):
        table.transact([Put({"path": "a"}, Absent())], token="once")
    assert answers == []
    table.close()


def test_a_transaction_that_was_throttled_after_that_stays_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The service has refused the later attempts alone."""
    answers = [_refusal("TransactionInProgressException"), *[_refusal("ThrottlingException")] * 3]
    monkeypatch.setattr(AwsClient, "begin", lambda *_, **__: answers.pop(0))
    table = _table()
    with pytest.raises(OutcomeUnknown, match="still under way"):
        table.transact([Put({"path": "a"}, Absent())], token="once")
    assert answers == []
    table.close()


def test_a_transaction_that_cannot_be_sent_again_stays_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first attempt was under way."""
    answers = [_refusal("TransactionInProgressException")]

    def begin(*_: object, **__: object) -> Callable[[], Response]:
        if not answers:
            raise Unavailable("no connection")
        return answers.pop()

    monkeypatch.setattr(AwsClient, "begin", begin)
    table = _table()
    with pytest.raises(OutcomeUnknown, match="still under way"):
        table.transact([Put({"path": "a"}, Absent())], token="once")
    table.close()


def test_an_empty_answer_is_not_one_of_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """Something else answers all requests with 200: an item is neither missing nor stored then."""
    monkeypatch.setattr(AwsClient, "begin", lambda *_, **__: lambda: Response(200, {}, b""))
    table = _table()
    with pytest.raises(Unavailable, match="the answer is empty"):
        table.get(Key("a"))
    with pytest.raises(OutcomeUnknown, match="the answer is empty"):
        table.put({"path": "a"})
    with pytest.raises(OutcomeUnknown, match="the answer is empty"):
        table.transact([Put({"path": "a"})])
    table.close()
