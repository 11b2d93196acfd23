"""Signature Version 4, in headers and in the query string.

botocore's own signers take several times as long per request and read the clock themselves; a property
test shows that they compute the same signatures as this module. Source of the rules: "AWS Signature
Version 4 for API requests" (IAM User Guide) and, for queries, "Authenticating Requests: Using Query
Parameters" (Amazon S3 API Reference). Google's variant of it, with other names, is in "Signatures"
(https://docs.cloud.google.com/storage/docs/authentication/signatures).
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Mapping
from hashlib import sha256
from typing import TypeAlias
from urllib.parse import quote

from attrs import frozen

from commitlog.aws.session import Credentials

__all__ = ["AWS4", "GOOG4", "MAX_EXPIRES", "Scheme", "Signer", "canonical_query", "encode_path"]

#: Longest life of a signed query, in seconds.
MAX_EXPIRES = 7 * 24 * 3600

#: The value in place of the hash of the body if a query is signed.
_UNSIGNED = "UNSIGNED-PAYLOAD"
_KeyCache: TypeAlias = tuple[str, str, str, bytes]


@frozen
class Scheme:
    """The names in a signature.

    Attributes:
        name: begins the algorithm and the key, and in lower case the end of the scope.
        prefix: begins the names of extension headers.
    """

    name: str
    prefix: str

    @property
    def algorithm(self) -> str:
        """The name of the algorithm."""
        return f"{self.name}-HMAC-SHA256"

    def renamed(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Return headers with the prefix of this scheme in place of Amazon's.

        >>> GOOG4.renamed({"x-amz-acl": "private", "host": "a"})
        {'x-goog-acl': 'private', 'host': 'a'}
        """
        return {
            self.prefix + name.removeprefix(AWS4.prefix) if name.startswith(AWS4.prefix) else name: value
            for name, value in headers.items()
        }


#: Signatures of AWS, with headers ``x-amz-``.
AWS4 = Scheme("AWS4", "x-amz-")
#: Signatures of Google Cloud Storage by an HMAC key, with headers ``x-goog-``.
GOOG4 = Scheme("GOOG4", "x-goog-")


def encode_path(path: str) -> str:
    """Return an encoded path: all characters are encoded except unreserved ones and '/'.

    >>> encode_path("a b/ü+%~")
    'a%20b/%C3%BC%2B%25~'
    """
    return quote(path, safe="/~")


def canonical_query(query: Mapping[str, str]) -> str:
    """Return a query string in canonical order and encoding.

    >>> canonical_query({"uploads": "", "prefix": "a b/"})
    'prefix=a%20b%2F&uploads='
    """
    if not query:
        return ""
    pairs = [(quote(name, safe="~"), quote(value, safe="~")) for name, value in query.items()]
    pairs.sort()
    return "&".join([f"{name}={value}" for name, value in pairs])


class Signer:
    """Signs requests to one service in one region. Thread-safe.

    Header names are in lower case. All headers are signed; `host` must be among them.

    Args:
        service: the service in the scope of signatures, such as ``s3``.
        region: the region in the scope.
        scheme: the names in signatures.
    """

    def __init__(self, service: str, region: str, *, scheme: Scheme = AWS4) -> None:
        self._scheme = scheme
        self._algorithm = scheme.algorithm
        self._end = f"{scheme.name.lower()}_request"
        self._scope = f"{region}/{service}/{self._end}"
        self._service = service
        self._region = region
        self._key: _KeyCache = ("", "", "", b"")

    def sign_headers(
        self,
        method: str,
        path: str,
        query: str,
        headers: dict[str, str],
        payload: str,
        credentials: Credentials,
        epoch: float,
    ) -> None:
        """Add the date, token and authorization of a request to `headers`.

        Args:
            method: HTTP method.
            path: encoded path.
            query: canonical query string, without '?'.
            headers: the headers to sign; changed in place.
            payload: SHA-256 of the body in hexadecimal.
            credentials: the credentials that sign it.
            epoch: date of the request in epoch seconds.
        """
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(epoch))
        headers[f"{self._scheme.prefix}date"] = stamp
        if credentials.token:
            headers[f"{self._scheme.prefix}security-token"] = credentials.token
        names, canonical = _canonical_headers(headers)
        request = f"{method}\n{path}\n{query}\n{canonical}\n{names}\n{payload}"
        signature = self._signature(request, stamp, credentials)
        headers["authorization"] = (
            f"{self._algorithm} Credential={credentials.access_key}/{stamp[:8]}/{self._scope}, "
            f"SignedHeaders={names}, Signature={signature}"
        )

    def sign_query(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        credentials: Credentials,
        epoch: float,
        seconds: int,
    ) -> str:
        """Return the query string of a request that is refused `seconds` seconds after `epoch`.

        The body is not signed, but a header with its checksum can be. Only with `AWS4`.
        """
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(epoch))
        names, canonical = _canonical_headers(headers)
        signed = {
            **query,
            "X-Amz-Algorithm": self._algorithm,
            "X-Amz-Credential": f"{credentials.access_key}/{stamp[:8]}/{self._scope}",
            "X-Amz-Date": stamp,
            "X-Amz-Expires": str(seconds),
            "X-Amz-SignedHeaders": names,
        }
        if credentials.token:
            signed["X-Amz-Security-Token"] = credentials.token
        text = canonical_query(signed)
        request = f"{method}\n{path}\n{text}\n{canonical}\n{names}\n{_UNSIGNED}"
        return f"{text}&X-Amz-Signature={self._signature(request, stamp, credentials)}"

    def _signature(self, request: str, stamp: str, credentials: Credentials) -> str:
        day = stamp[:8]
        secret = credentials.secret_key
        known_secret, known_day, scope, key = self._key
        if known_secret != secret or known_day != day:
            scope = f"{day}/{self._scope}"
            key = f"{self._scheme.name}{secret}".encode()
            for part in (day, self._region, self._service, self._end):
                key = hmac.digest(key, part.encode(), "sha256")
            # One assignment, so that another thread sees a complete tuple.
            self._key = (secret, day, scope, key)
        text = f"{self._algorithm}\n{stamp}\n{scope}\n{sha256(request.encode()).hexdigest()}"
        return hmac.digest(key, text.encode(), "sha256").hex()


def _canonical_headers(headers: Mapping[str, str]) -> tuple[str, str]:
    names = sorted(headers)
    lines = [f"{name}:{' '.join(headers[name].split())}\n" for name in names]
    return ";".join(names), "".join(lines)
