"""The errors for the error codes that all AWS services share."""

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

__all__ = ["THROTTLED", "common_error", "first_line"]

#: The service was too busy and did not process the request.
THROTTLED = frozenset(
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

#: The service rejected the credentials, or they permit no such request.
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

#: The session of temporary credentials has ended.
_EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"})

#: Services other than S3 refuse the signature of a wrong clock with ``InvalidSignatureException``, and
#: say "Signature expired: … is now earlier than …", or "Signature not yet current: …".
_SKEWED = ("signature expired", "signature not yet current")

_ELSEWHERE = frozenset(
    {"AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "PermanentRedirect"}
)


def first_line(message: str) -> str:
    """Return the part of a service's message that may be shown.

    The lines after the first repeat the signed request, and with it session tokens.
    """
    return message.strip().partition("\n")[0][:300].rstrip(". ")


def common_error(what: str, status: int, code: str, message: str) -> CommitError:
    """Return the error for a failed response, if the caller knows no more specific error.

    Args:
        what: the request and its target, for the message: ``PUT of 'a/b' in s3://bucket``.
        status: HTTP status.
        code: the service's error code; empty if the response had none.
        message: the service's error message.
    """
    said = f"{what}: {status} {code or responses.get(status, '(no code)')}"
    if message.strip():
        said += f": {first_line(message)}"
    if code == "RequestTimeTooSkewed" or (
        code == "InvalidSignatureException" and message.lower().startswith(_SKEWED)
    ):
        return AccessDenied(f"{said}. Set the clock of this machine")
    if code in _EXPIRED:
        return AccessDenied(f"{said}. The credentials have expired: renew them, and run it again")
    if code in _DENIED or (status in (401, 403) and not code):
        return AccessDenied(f"{said}. Check the credentials and their permissions")
    if code in THROTTLED or status == 429:
        return Unavailable(f"{said}. The service shed the request; try again later")
    if code in ("NotImplemented", "MethodNotAllowed") or status == 405:
        return NotSupported(f"{said}. This server does not offer it")
    if code in _ELSEWHERE or status == 301:
        return ConfigurationError(f"{said}. Set region to that of the resource")
    if status == 307:
        return Unavailable(f"{said}. The service redirects requests; try again later")
    if status == 404 and not code:
        # It may come from an ingress, a proxy or a load balancer without a route to the service.
        return OutcomeUnknown(f"{said}. It has no error code, so it may not be the service's answer")
    if status >= 500 or status < 400:
        return OutcomeUnknown(said)
    return CommitError(f"{said}. The service refused the request; nothing happened")
