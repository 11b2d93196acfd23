"""What the error codes that AWS services share say of the request: one table, one function."""

from __future__ import annotations

from http.client import responses

from commitlog.errors import (
    AccessDenied,
    CommitError,
    ConfigurationError,
    NotSupported,
    OutcomeUnknown,
    Unavailable,
)

__all__ = ["SHED", "common_fault", "first_line"]

#: The service was too busy and did not look at the request.
SHED = frozenset(
    {
        "BandwidthLimitExceeded",
        "LimitExceededException",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "SlowDown",
        "ThrottledException",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    }
)

#: The service did not believe, or did not permit.
_DENIED = frozenset(
    {
        "AccessDenied",
        "AccessDeniedException",
        "AccountProblem",
        "AllAccessDisabled",
        "ExpiredToken",
        "ExpiredTokenException",
        "IncompleteSignature",
        "IncompleteSignatureException",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "InvalidToken",
        "MissingAuthenticationToken",
        "MissingAuthenticationTokenException",
        "NotSignedUp",
        "RequestExpired",
        "RequestTimeTooSkewed",
        "SignatureDoesNotMatch",
        "TokenRefreshRequired",
        "UnrecognizedClientException",
    }
)

_ELSEWHERE = frozenset(
    {"AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "PermanentRedirect"}
)


def first_line(message: str) -> str:
    """Return what may be shown of a service's message.

    What follows its first line repeats the signed request, and with it session tokens.
    """
    return message.strip().partition("\n")[0][:300].rstrip(". ")


def common_fault(what: str, status: int, code: str, message: str) -> CommitError:
    """Return the error for a failed response for which the caller has no more specific error.

    Args:
        what: the request and its target, for the message: ``PUT of 'a/b' in s3://bucket``.
        status: HTTP status.
        code: the service's error code; empty if the response had none.
        message: the service's error message.
    """
    said = f"{what}: {status} {code or responses.get(status, '(no code)')}"
    if message.strip():
        said += f": {first_line(message)}"
    if code == "RequestTimeTooSkewed":
        return AccessDenied(f"{said}. Set the clock of this machine")
    if code in _DENIED or (status in (401, 403) and not code):
        return AccessDenied(f"{said}. Check the credentials and what they permit")
    if code in SHED or status == 429:
        return Unavailable(f"{said}. The service shed the request; try again later")
    if code in ("NotImplemented", "MethodNotAllowed") or status == 405:
        return NotSupported(f"{said}. This server does not offer it")
    if code in _ELSEWHERE or status == 301:
        return ConfigurationError(f"{said}. Set region to the one where it lives")
    if status == 307:
        return Unavailable(f"{said}. The service is moving requests elsewhere; try again later")
    if status == 404 and not code:
        # An ingress, a proxy or a load balancer that has no route. It says nothing of the service.
        return OutcomeUnknown(f"{said}. It has no error code, so it may not be the service's answer")
    if status >= 500 or status < 400:
        return OutcomeUnknown(said)
    return CommitError(f"{said}. The service refused the request; nothing happened")
