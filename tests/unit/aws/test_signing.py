"""Our signatures, compared with those of botocore."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from hashlib import sha256
from typing import Any
from unittest import mock
from urllib.parse import parse_qs, urlsplit

import botocore.auth
import pytest
from botocore.awsrequest import AWSRequest
from botocore.credentials import ReadOnlyCredentials
from hypothesis import given
from hypothesis import strategies as st

from commitlog.aws.signing import Signer, canonical_query, encode_path

HOST = "bucket.example.com:9000"
EPOCH = st.integers(0, 4_000_000_000)
TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20)
VALUE = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=20)
QUERY = st.dictionaries(TEXT.filter(bool), TEXT, max_size=4)
HEADERS = st.dictionaries(
    st.sampled_from(
        [
            "if-match",
            "if-none-match",
            "range",
            "content-type",
            "x-amz-meta-a",
            "x-amz-meta-a-b",
            "x-amz-a",
        ]
    ),
    VALUE,
)
CREDENTIALS = st.builds(
    ReadOnlyCredentials,
    st.text("ABC123", min_size=1, max_size=8),
    st.text("abc/+=", min_size=1, max_size=8),
    st.one_of(st.none(), st.text("abc/+=", min_size=1, max_size=20)),
)
METHOD = st.sampled_from(["GET", "HEAD", "PUT", "POST", "DELETE"])


def _at(epoch: int) -> Any:
    moment = datetime.datetime.fromtimestamp(epoch, datetime.UTC)
    return mock.patch.object(botocore.auth, "get_current_datetime", return_value=moment)


def _request(
    method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
) -> AWSRequest:
    text = canonical_query(query)
    url = f"https://{HOST}/{encode_path(path)}" + (f"?{text}" if text else "")
    request = AWSRequest(method=method, url=url, headers=dict(headers), data=body)
    # The setting of botocore's client that signs the body for S3.
    request.context["payload_signing_enabled"] = True
    return request


@given(METHOD, TEXT, QUERY, HEADERS, CREDENTIALS, EPOCH, st.binary(max_size=20))
def test_header_signatures_are_those_of_botocore(
    method: str,
    path: str,
    query: dict[str, str],
    headers: dict[str, str],
    credentials: ReadOnlyCredentials,
    epoch: int,
    body: bytes,
) -> None:
    """For any request, the Authorization header is the one that botocore would have sent."""
    theirs = _request(method, path, query, headers, body)
    with _at(epoch):
        botocore.auth.S3SigV4Auth(credentials, "s3", "eu-west-1").add_auth(theirs)
    payload = sha256(body).hexdigest()
    ours = {"host": HOST, "x-amz-content-sha256": payload, **headers}
    Signer("s3", "eu-west-1").sign_headers(
        method, "/" + encode_path(path), canonical_query(query), ours, payload, credentials, epoch
    )
    assert ours["authorization"] == theirs.headers["Authorization"]
    assert ours["x-amz-date"] == theirs.headers["X-Amz-Date"]
    assert ours.get("x-amz-security-token") == theirs.headers.get("X-Amz-Security-Token")


@given(METHOD, TEXT, QUERY, HEADERS, CREDENTIALS, EPOCH, st.integers(1, 604_800))
def test_query_signatures_are_those_of_botocore(
    method: str,
    path: str,
    query: dict[str, str],
    headers: dict[str, str],
    credentials: ReadOnlyCredentials,
    epoch: int,
    seconds: int,
) -> None:
    """For any request, the signature and the parameters are those of botocore's presigned URL."""
    theirs = _request(method, path, query, headers, b"")
    with _at(epoch):
        botocore.auth.S3SigV4QueryAuth(credentials, "s3", "eu-west-1", expires=seconds).add_auth(theirs)
    ours = Signer("s3", "eu-west-1").sign_query(
        method, "/" + encode_path(path), query, {"host": HOST, **headers}, credentials, epoch, seconds
    )
    expected = parse_qs(urlsplit(theirs.url).query, keep_blank_values=True)
    assert parse_qs(ours, keep_blank_values=True) == expected


@given(CREDENTIALS, EPOCH)
def test_dynamodb_signatures_are_those_of_botocore(credentials: ReadOnlyCredentials, epoch: int) -> None:
    """Another service than S3 also gets botocore's signature."""
    headers = {"content-type": "application/x-amz-json-1.0", "x-amz-target": "DynamoDB_20120810.PutItem"}
    theirs = AWSRequest(method="POST", url=f"https://{HOST}/", headers=headers, data=b"{}")
    with _at(epoch):
        botocore.auth.SigV4Auth(credentials, "dynamodb", "eu-west-1").add_auth(theirs)
    ours = {"host": HOST, **headers}
    payload = sha256(b"{}").hexdigest()
    Signer("dynamodb", "eu-west-1").sign_headers("POST", "/", "", ours, payload, credentials, epoch)
    assert ours["authorization"] == theirs.headers["Authorization"]


@pytest.mark.parametrize(
    ("epoch", "secret"), [(86_400, "one"), (2 * 86_400, "one"), (86_400, "two")], ids=str
)
def test_the_signing_key_is_derived_again_for_another_day_or_secret(epoch: int, secret: str) -> None:
    """A used signer signs like a new one."""

    def sign(signer: Signer, when: int, key: str) -> str:
        credentials = ReadOnlyCredentials("AKIA", key, None)
        return signer.sign_query("GET", "/k", {}, {"host": HOST}, credentials, when, 60)

    used = Signer("s3", "eu-west-1")
    sign(used, 86_400, "one")
    assert sign(used, epoch, secret) == sign(Signer("s3", "eu-west-1"), epoch, secret)
