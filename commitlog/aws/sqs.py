"""An SQS queue whose messages are received, and deleted when they are done with.

The requests are those of the service's JSON protocol, signed like all others of this library.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from attrs import frozen

from commitlog._util.retry import Backoff
from commitlog.aws.client import AwsClient
from commitlog.aws.error_codes import common_error, first_line
from commitlog.aws.json_protocol import code_and_message, parse_answer
from commitlog.aws.session import AwsOptions, AwsSession
from commitlog.clock import Clock, SystemClock
from commitlog.errors import CommitError, NotFound, OutcomeUnknown, Unavailable
from commitlog.urls import Url

__all__ = ["MOST_MESSAGES", "QueueMessage", "SqsQueue"]

#: Most messages that one request receives or deletes.
MOST_MESSAGES = 10

_MISSING = frozenset({"QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue"})


@frozen
class QueueMessage:
    """A received message.

    Attributes:
        handle: identifies this receipt of the message, to delete it.
        body: its text.
    """

    handle: str
    body: str


class SqsQueue:
    """A queue. Thread-safe.

    Args:
        url: ``sqs://NAME``, or ``sqs://ACCOUNT/NAME`` for a queue of another account; see
            `commitlog.urls.parse_queue_url`.
        visible_after: number of seconds after which a received message that was not deleted can be
            received again.
        clock: dates signatures, and measures pauses between attempts.
        backoff: retry policy. Both operations can be repeated: a lost answer hides messages for
            `visible_after` seconds.

    Methods raise `NotFound` if there is no such queue, `AccessDenied`, `Unavailable`, `OutcomeUnknown`.
    """

    def __init__(
        self,
        url: Url,
        *,
        visible_after: int,
        clock: Clock | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        self.url = str(url)
        self.visible_after = visible_after
        self._clock = SystemClock() if clock is None else clock
        self._account, _, self._name = url.name.rpartition("/")
        session = AwsSession(AwsOptions.from_url(url))
        self._backoff = session.backoff() if backoff is None else backoff
        self._client = AwsClient(session, "sqs", session.endpoint("sqs"), clock=self._clock)
        self._queue_url: str | None = None

    def receive(self, most: int = MOST_MESSAGES, *, wait: int = 0) -> list[QueueMessage]:
        """Return up to `most` messages, in any order; none if the queue has none for `wait` seconds.

        `most` is at most `MOST_MESSAGES`, and `wait` at most 20.
        """
        answer = self._call(
            "ReceiveMessage",
            {
                "QueueUrl": self._located(),
                "MaxNumberOfMessages": most,
                "WaitTimeSeconds": wait,
                "VisibilityTimeout": self.visible_after,
            },
        )
        found = answer.get("Messages") or []
        try:
            return [
                QueueMessage(str(each["ReceiptHandle"]), str(each.get("Body", ""))) for each in found
            ]
        except (AttributeError, LookupError, TypeError) as error:
            raise Unavailable(f"{self.url}: the server's answer is not from SQS ({error!r})") from error

    def acknowledge(self, handles: Iterable[str]) -> None:
        """Delete messages. One that is not deleted, also after an error, is received again later."""
        kept = list(handles)
        for first in range(0, len(kept), MOST_MESSAGES):
            entries = [
                {"Id": str(number), "ReceiptHandle": handle}
                for number, handle in enumerate(kept[first : first + MOST_MESSAGES])
            ]
            self._call("DeleteMessageBatch", {"QueueUrl": self._located(), "Entries": entries})

    def close(self) -> None:
        """Close the connections. Idempotent."""
        self._client.close()

    def _located(self) -> str:
        """Return the URL of the queue in requests."""
        if self._queue_url is None:
            wanted = {"QueueName": self._name}
            if self._account:
                wanted["QueueOwnerAWSAccountId"] = self._account
            answer = self._call("GetQueueUrl", wanted)
            found = answer.get("QueueUrl")
            if not isinstance(found, str) or not found:
                raise Unavailable(f"{self.url}: the server's answer is not from SQS: it has no QueueUrl")
            self._queue_url = found
        return self._queue_url

    def _call(self, operation: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        return self._backoff.retry(
            self._clock, lambda: self._send(operation, request), on=(OutcomeUnknown, Unavailable)
        )

    def _send(self, operation: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        headers = {
            "content-type": "application/x-amz-json-1.0",
            "x-amz-target": f"AmazonSQS.{operation}",
        }
        body = json.dumps(request).encode()
        response = self._client.begin("POST", "/", headers=headers, body=body)()
        what = f"{operation} on {self.url}"
        answer = parse_answer(what, response)
        if response.status == 200:
            return answer
        raise self._fault(what, response.status, answer)

    def _fault(self, what: str, status: int, answer: Mapping[str, Any]) -> CommitError:
        code, message = code_and_message(answer)
        if code in _MISSING:
            return NotFound(
                f"{what}: there is no such queue ({first_line(message)}). Check its name, region and"
                " endpoint"
            )
        return common_error(what, status, code, message)
