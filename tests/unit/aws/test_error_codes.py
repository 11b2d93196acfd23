"""The mapping of error codes to errors."""

from __future__ import annotations

import pytest

from commitlog.aws import common_error, first_line
from commitlog.errors import (
    AccessDenied,
    CommitError,
    ConfigurationError,
    NotSupported,
    OutcomeUnknown,
    Unavailable,
)


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (403, "AccessDenied", AccessDenied),
        (400, "ExpiredToken", AccessDenied),
        (400, "UnrecognizedClientException", AccessDenied),
        (403, "RequestTimeTooSkewed", AccessDenied),
        (403, "", AccessDenied),
        (503, "SlowDown", Unavailable),
        (400, "ProvisionedThroughputExceededException", Unavailable),
        (429, "", Unavailable),
        (307, "TemporaryRedirect", Unavailable),
        (301, "PermanentRedirect", ConfigurationError),
        (400, "AuthorizationHeaderMalformed", ConfigurationError),
        (501, "NotImplemented", NotSupported),
        (405, "", NotSupported),
        (503, "ServiceUnavailable", OutcomeUnknown),
        (500, "InternalError", OutcomeUnknown),
        (200, "InternalError", OutcomeUnknown),
        (502, "", OutcomeUnknown),
        (400, "InvalidArgument", CommitError),
        (403, "SomethingElse", CommitError),
    ],
)
def test_a_code_determines_whether_the_outcome_is_known(
    status: int, code: str, kind: type[CommitError]
) -> None:
    """A refusal proves that nothing happened. After a failure of the server the outcome is unknown."""
    error = common_error("PUT of 'a'", status, code, "why")
    assert type(error) is kind
    assert all(part in str(error) for part in ("PUT of 'a'", str(status), code, "why"))


def test_only_the_first_line_of_a_message_is_shown() -> None:
    """Below the first line, services repeat the signed request, which contains the session token."""
    message = "The signature does not match.\n\nThe Canonical String was\nx-amz-security-token:hush"
    assert first_line(message) == "The signature does not match"
    assert "hush" not in str(common_error("PutItem", 400, "InvalidSignatureException", message))


@pytest.mark.parametrize(
    ("code", "message", "advice"),
    [
        ("RequestTimeTooSkewed", "The difference is too large.", "Set the clock"),
        ("InvalidSignatureException", "Signature expired: 1 is now earlier than 2", "Set the clock"),
        ("InvalidSignatureException", "The signature does not match", "Check the credentials"),
        ("ExpiredToken", "The provided token has expired.", "renew them"),
        ("ExpiredTokenException", "The security token is expired", "renew them"),
    ],
)
def test_the_advice_names_the_cause(code: str, message: str, advice: str) -> None:
    """A wrong clock and expired credentials are not mistaken for a lack of permissions."""
    error = common_error("PutItem", 403, code, message)
    assert type(error) is AccessDenied
    assert advice in str(error)
