"""A queue behind something that answers in its place."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from commitlog._util.retry import Backoff
from commitlog.aws import AwsClient, Response
from commitlog.aws.sqs import SqsQueue
from commitlog.errors import Unavailable
from commitlog.testing import ManualClock
from commitlog.urls import parse_queue_url

URL = (
    "sqs://arrivals?endpoint_url=http://127.0.0.1:9&region=eu-west-1"
    "&access_key_id=id&secret_access_key=secret"
)


def test_an_answer_without_the_url_of_the_queue_is_not_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next call asks again."""
    answers: list[dict[str, Any]] = [{}, {"QueueUrl": "http://there/arrivals"}, {"Messages": []}]
    bodies: list[dict[str, Any]] = []

    def begin(self: AwsClient, method: str, path: str, **options: Any) -> Callable[[], Response]:
        bodies.append(json.loads(options["body"]))
        body = json.dumps(answers.pop(0)).encode()
        return lambda: Response(200, {}, body)

    monkeypatch.setattr(AwsClient, "begin", begin)
    clock = ManualClock()
    queue = SqsQueue(parse_queue_url(URL), visible_after=30, clock=clock, backoff=Backoff(tries=1))
    with pytest.raises(Unavailable, match="it has no QueueUrl"):
        queue.receive()
    assert queue.receive() == []
    assert bodies[-1]["QueueUrl"] == "http://there/arrivals"
    queue.close()
