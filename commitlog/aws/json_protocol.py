"""Answers of services with AWS's JSON protocol, such as DynamoDB and SQS."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from commitlog.aws.connections import Response
from commitlog.errors import OutcomeUnknown

__all__ = ["code_and_message", "parse_answer"]


def parse_answer(what: str, response: Response) -> Mapping[str, Any]:
    """Return the answer in a response; the answer of a failure is empty if it is no JSON object.

    Args:
        what: operation and place, for the error.
        response: the response.

    Raises `OutcomeUnknown` if the status is 200 and the body is no JSON object.
    """
    try:
        answer = json.loads(response.body or b"{}")
        if not isinstance(answer, dict):
            raise ValueError("not an object")
    except (ValueError, RecursionError) as error:
        if response.status == 200:
            raise OutcomeUnknown(f"{what}: the answer is not JSON ({error})") from error
        return {}
    return answer


def code_and_message(answer: Mapping[str, Any]) -> tuple[str, str]:
    """Return the error code and the message in the answer of a failure; "" for what it lacks.

    >>> code_and_message({"__type": "com.amazonaws.sqs#QueueDoesNotExist", "message": "no such queue"})
    ('QueueDoesNotExist', 'no such queue')
    """
    code = str(answer.get("__type", "")).rpartition("#")[2]
    return code, str(answer.get("message") or answer.get("Message") or "")
