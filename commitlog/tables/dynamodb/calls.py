"""Calls of the DynamoDB API: one signed request each, retried where nothing can have happened.

All calls, hot or rare, go this one way, and so share one reading of the service's errors ("Error
handling with DynamoDB", its developer guide).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from commitlog._util.request_stats import report_retry
from commitlog._util.retry import Backoff
from commitlog.aws import AwsClient, Response, common_error, first_line
from commitlog.aws.error_codes import THROTTLED
from commitlog.aws.json_protocol import code_and_message, parse_answer
from commitlog.clock import Clock, Stopwatch
from commitlog.errors import CommitError, Conflict, NotSupported, OutcomeUnknown, Unavailable
from commitlog.tables.api import TRANSACT_WITHIN, InFlight, TableSchema
from commitlog.tables.marshal import to_json
from commitlog.tables.rules import table_not_found, wrong_schema

__all__ = ["Calls", "Refused", "reasons_of"]

A = TypeVar("A")
T = TypeVar("T")

_READS = frozenset(
    {
        "DescribeTable",
        "DescribeTimeToLive",
        "GetItem",
        "ListTagsOfResource",
        "Query",
        "Scan",
    }
)
#: Operations whose answer has no body; the others answer with a JSON object, even if it is empty.
_SILENT = frozenset({"TagResource"})
_TRANSACT = "TransactWriteItems"
#: Code if an earlier request with the same token is in progress, now or permanently.
_IN_PROGRESS = "TransactionInProgressException"
#: Codes, of a request or of one operation in a transaction, after which the same may well succeed.
_CONFLICTS = frozenset(
    {
        "ReplicatedWriteConflictException",
        "TransactionConflict",
        "TransactionConflictException",
        _IN_PROGRESS,
    }
)
_THROTTLED = THROTTLED | {"ProvisionedThroughputExceeded", "ThrottlingError"}
#: Texts in messages about keys that do not fit the table; there is no code for this error.
_KEY_PHRASES = ("key element", "the key", "for key", "key schema")


class Refused(CommitError):
    """The service refused the request for a reason that depends on the call. Nothing happened.

    Attributes:
        code: the service's error code.
        answer: the body of its answer.
    """

    # The defaults let it be pickled, which passes on the message alone and then the attributes.
    def __init__(self, message: str, *, code: str = "", answer: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.answer = answer or {}


class Calls:
    """The API of one table. Thread-safe.

    Args:
        client: the client for the service.
        url: the table, for messages.
        schema: the keys that are wanted, for messages.
        clock: the clock for pauses between attempts.
        backoff: the retry policy. Throttled requests and conflicting transactions are retried, because
            nothing happened, and reads without an answer. Transactions are retried only for
            `TRANSACT_WITHIN` seconds.
    """

    def __init__(
        self, client: AwsClient, url: str, schema: TableSchema, *, clock: Clock, backoff: Backoff
    ) -> None:
        self._client = client
        self._url = url
        self._schema = schema
        self._clock = clock
        self._backoff = backoff

    def call(self, operation: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send a request and return the answer."""
        return self.begin(operation, request)()

    def begin(self, operation: str, request: Mapping[str, Any]) -> InFlight[Mapping[str, Any]]:
        """Send a request; return the call that waits for the answer, repeating it where that is safe.

        The pending call raises `Refused` for what the caller has to explain, `Unavailable` or
        `Conflict` when the retries ran out (`OutcomeUnknown` if the same transaction was being done
        meanwhile), and what `commitlog.aws.common_error` says otherwise.
        """
        body = to_json(request).encode()
        headers = {
            "content-type": "application/x-amz-json-1.0",
            "x-amz-target": f"DynamoDB_20120810.{operation}",
        }

        def send() -> InFlight[Response]:
            return self._client.begin("POST", "/", headers=headers, body=body)

        began = Stopwatch(self._clock)
        first = send()

        def finish() -> Mapping[str, Any]:
            last: CommitError | None = None
            for attempt in self._backoff.attempts(self._clock):
                if last is not None:
                    # This machine may have been suspended in the pause.
                    if operation == _TRANSACT and began.elapsed() > TRANSACT_WITHIN:
                        break
                    report_retry(last)
                try:
                    pending = send() if attempt else first
                    return self._read(operation, pending())
                except _Again as error:
                    if not isinstance(last, OutcomeUnknown):
                        last = error.__cause__
                except OutcomeUnknown as error:
                    if operation not in _READS:
                        raise
                    last = Unavailable(str(error))
                except Refused:
                    raise
                except CommitError as error:
                    # That this attempt did nothing says nothing of the one that was under way.
                    if isinstance(last, OutcomeUnknown):
                        raise last from error
                    raise
            assert last is not None
            raise last

        return finish

    def understand(self, read: Callable[[A], T], answer: A) -> T:
        """Return what `read` takes out of `answer`, or a part of it.

        Raises `Unavailable` if it is not there, or not what the API reference says.
        """
        try:
            return read(answer)
        except CommitError:
            raise
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise Unavailable(
                f"{self._url}: the server's answer is not from DynamoDB ({error!r}) and was not used"
            ) from error

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _read(self, operation: str, response: Response) -> Mapping[str, Any]:
        what = f"{operation} on {self._url}"
        checksum = response.headers.get("x-amz-crc32")
        if checksum is not None and checksum != str(zlib.crc32(response.body)):
            raise OutcomeUnknown(f"{what}: the answer was damaged on its way")
        if response.status == 200 and not response.body and operation not in _SILENT:
            raise OutcomeUnknown(f"{what}: the answer is empty, so it may not be the service's")
        answer = parse_answer(what, response)
        if response.status == 200:
            return answer
        raise self._fault(what, response.status, answer)

    def _fault(self, what: str, status: int, answer: Mapping[str, Any]) -> Exception:
        code, message = code_and_message(answer)
        again = _worth_repeating(code, answer)
        if again:
            said = f"{what}: {again}: {first_line(message)}"
            if again == _IN_PROGRESS:
                return _Again(OutcomeUnknown(f"{said}. The same request was still under way"))
            kind = Conflict if again in _CONFLICTS else Unavailable
            return _Again(kind(f"{said}. Nothing happened; try again later"))
        if code == "ResourceNotFoundException":
            return table_not_found(self._url, self._schema)
        if code in ("UnknownOperationException", "NotImplemented"):
            return NotSupported(f"{what}: this server does not offer it")
        if code == "ValidationException":
            lower = message.lower()
            # Of one item, or of all that a transaction is about.
            if "item size" in lower or ("size" in lower and "exceed" in lower):
                return ValueError(f"{what}: {first_line(message)}")
            if any(phrase in lower for phrase in _KEY_PHRASES):
                found = f"has other keys ({first_line(message)})"
                return wrong_schema(self._url, found=found, wanted=self._schema)
        fault = common_error(what, status, code, message)
        # A plain CommitError says nothing more: the caller knows its meaning.
        return Refused(str(fault), code=code, answer=answer) if type(fault) is CommitError else fault


class _Again(Exception):
    """The same request may succeed, and can be repeated; `__cause__` is the error if it never does."""

    __cause__: CommitError

    def __init__(self, error: CommitError) -> None:
        super().__init__()
        self.__cause__ = error


def reasons_of(answer: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the reason of cancellation of each operation; empty if the response has none."""
    reasons = answer.get("CancellationReasons")
    has_reasons = isinstance(reasons, list) and all(isinstance(reason, dict) for reason in reasons)
    return reasons if has_reasons else ()  # type: ignore[return-value]


def _worth_repeating(code: str, answer: Mapping[str, Any]) -> str | None:
    """Return the code because of which the request should be repeated, if there is one."""
    codes = [code]
    if code == "TransactionCanceledException":
        codes = [str(reason.get("Code")) for reason in reasons_of(answer)]
        # A condition that failed fails again.
        if "ConditionalCheckFailed" in codes:
            return None
    return next((c for c in codes if c in _THROTTLED or c in _CONFLICTS), None)
