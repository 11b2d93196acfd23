"""Permissions of AWS: those that a request needs, those that a policy gives, and a gate that refuses.

`Gate` sees all requests of this process to S3, DynamoDB and SQS. It notes the permissions that AWS
would ask for, and answers 403 in place of the service if one of them is taken away.
"""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal
from urllib.parse import parse_qs, unquote, urlsplit

from attrs import define, field, frozen

from commitlog.aws.connections import ConnectionPool, PendingResponse, Response

__all__ = ["Gate", "Needed", "Sent", "allows", "needed_by", "statements_of"]

#: The action on each item of a transaction (DynamoDB developer guide, "Using IAM with transactions").
_IN_TRANSACTION = {"ConditionCheck": "ConditionCheckItem", "Delete": "DeleteItem", "Put": "PutItem"}

#: The action of a batch of SQS (SQS developer guide, "Amazon SQS API permissions").
_OF_QUEUES = {"DeleteMessageBatch": "DeleteMessage"}


@frozen
class Sent:
    """A request that was sent.

    Attributes:
        method: HTTP method.
        target: path and query.
        headers: names in lower case.
        body: the body.
    """

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def is_read_of_object(self) -> bool:
        """Whether it reads an object: without permission to list, a missing object is a 403."""
        path = urlsplit(self.target).path.strip("/")
        return self.method in ("GET", "HEAD") and "/" in path and "x-amz-target" not in self.headers


@frozen
class Needed:
    """A permission that a request needs.

    Attributes:
        action: the action, such as ``s3:GetObject``.
        resource: the ARN.
        prefix: the prefix of a listing, or None.
    """

    action: str
    resource: str
    prefix: str | None = field(default=None)


def needed_by(each: Sent) -> Iterator[Needed]:
    """Yield the permissions that AWS requires for a request."""
    if "x-amz-target" in each.headers:
        service, _, action = each.headers["x-amz-target"].partition(".")
        fields = json.loads(each.body)
        if service == "AmazonSQS":
            name = fields.get("QueueName") or fields["QueueUrl"].rpartition("/")[2]
            yield Needed(f"sqs:{_OF_QUEUES.get(action, action)}", f"arn:aws:sqs:REGION:ACCOUNT:{name}")
        elif action == "TransactWriteItems":
            for write in fields["TransactItems"]:
                [(kind, each_write)] = write.items()
                yield _of_table(_IN_TRANSACTION[kind], each_write["TableName"])
        elif "ResourceArn" in fields:
            yield _of_table(action, fields["ResourceArn"].rpartition("/")[2])
        else:
            yield _of_table(action, fields["TableName"])
        return
    parts = urlsplit(each.target)
    query = parse_qs(parts.query, keep_blank_values=True)
    bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
    place = f"arn:aws:s3:::{bucket}/{key}"
    prefix = query.get("prefix", [None])[0]
    if not key and "delete" in query:
        for name in re.findall(r"<Key>(.*?)</Key>", each.body.decode()):
            yield Needed("s3:DeleteObject", f"arn:aws:s3:::{bucket}/{name}")
    elif not key:
        action = "ListBucketMultipartUploads" if "uploads" in query else "ListBucket"
        yield Needed(f"s3:{action}", f"arn:aws:s3:::{bucket}", prefix)
    elif each.method == "DELETE":
        yield Needed("s3:AbortMultipartUpload" if "uploadId" in query else "s3:DeleteObject", place)
    elif each.method in ("GET", "HEAD"):
        yield Needed("s3:ListMultipartUploadParts" if "uploadId" in query else "s3:GetObject", place)
    else:
        yield Needed("s3:PutObject", place)
        if "x-amz-copy-source" in each.headers:
            source = unquote(each.headers["x-amz-copy-source"]).lstrip("/")
            yield Needed("s3:GetObject", f"arn:aws:s3:::{source}")


def _of_table(action: str, name: str) -> Needed:
    return Needed(f"dynamodb:{action}", f"arn:aws:dynamodb:REGION:ACCOUNT:table/{name}")


def statements_of(policy: str, names: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the statements of a policy in which words are replaced by names."""
    for word, name in names.items():
        policy = policy.replace(word, name)
    statements: list[dict[str, Any]] = json.loads(policy)["Statement"]
    return statements


def _many(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def allows(statement: Mapping[str, Any], needed: Needed) -> bool:
    """Return whether a statement of a policy gives a permission."""
    prefixes = statement.get("Condition", {}).get("StringLike", {}).get("s3:prefix")
    return (
        needed.action in _many(statement["Action"])
        and any(fnmatch.fnmatchcase(needed.resource, each) for each in _many(statement["Resource"]))
        and (
            prefixes is None
            or any(fnmatch.fnmatchcase(needed.prefix or "", each) for each in _many(prefixes))
        )
    )


@define
class Gate:
    """The permissions of this process.

    Attributes:
        needed: all permissions that requests have needed.
        denied: an action that is taken away, or None.
        policy: statements; what none of them allows is refused. None allows everything.
        refused: the requests that were refused.
    """

    needed: set[Needed] = field(factory=set)
    denied: str | None = None
    policy: Sequence[Mapping[str, Any]] | None = None
    refused: list[Sent] = field(factory=list)

    @property
    def actions(self) -> set[str]:
        """The actions that requests have needed."""
        return {each.action for each in self.needed}

    def begin(self, real: Callable[..., PendingResponse]) -> Callable[..., PendingResponse]:
        """Return a stand-in for `ConnectionPool.begin`."""

        def begin(
            pool: ConnectionPool,
            method: str,
            target: str,
            headers: Mapping[str, str],
            body: bytes | bytearray | memoryview = b"",
        ) -> PendingResponse:
            names = {name.lower(): value for name, value in headers.items()}
            sent = Sent(method, target, names, bytes(body))
            asked = list(needed_by(sent))
            for each in asked:
                if self._is_refused(each):
                    self.refused.append(sent)
                    answer = _refusal(sent, each)
                    return lambda: answer
            pending = real(pool, method, target, headers, body)
            return lambda: self._judged(sent, asked, pending())

        return begin

    def _is_refused(self, needed: Needed) -> bool:
        return needed.action == self.denied or (
            self.policy is not None and not any(allows(each, needed) for each in self.policy)
        )

    def _judged(self, sent: Sent, asked: Iterable[Needed], response: Response) -> Response:
        """Return the answer of the service, as a client with these permissions gets it."""
        self.needed.update(asked)
        if response.status == 404 and sent.is_read_of_object:
            bucket = urlsplit(sent.target).path.lstrip("/").partition("/")[0]
            list_bucket = Needed("s3:ListBucket", f"arn:aws:s3:::{bucket}")
            if self._is_refused(list_bucket):
                self.refused.append(sent)
                return _refusal(sent, list_bucket)
            self.needed.add(list_bucket)
        return response


def _refusal(sent: Sent, needed: Needed) -> Response:
    """Return the answer of AWS to a request that is not permitted; one to a HEAD has no body."""
    message = (
        f"User: arn:aws:iam::ACCOUNT:user/test is not authorized to perform: {needed.action} on"
        f" resource: {needed.resource} because no identity-based policy allows it"
    )
    service: Literal["json", "xml"] = "json" if "x-amz-target" in sent.headers else "xml"
    if service == "json":
        kind = "com.amazon.coral.service#AccessDeniedException"
        return Response(400, {}, json.dumps({"__type": kind, "Message": message}).encode())
    body = f"<Error><Code>AccessDenied</Code><Message>{message}</Message></Error>".encode()
    return Response(403, {}, b"" if sent.method == "HEAD" else body)
