"""Sessions with chosen sources of credentials."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from commitlog.aws import AwsOptions, AwsSession
from commitlog.aws.configuration import Boto3Session
from commitlog.aws.credential_chain import bucket_region, chain_session
from commitlog.errors import ConfigurationError, Unavailable
from support.recorder import Recorder

EXPIRES = "2099-01-01T00:00:00Z"
ASSUMED = (
    '<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials>'
    "<AccessKeyId>OF-ROLE</AccessKeyId><SecretAccessKey>hush</SecretAccessKey>"
    f"<SessionToken>token</SessionToken><Expiration>{EXPIRES}</Expiration></Credentials><AssumedRoleUser>"
    "<Arn>arn:aws:sts::123456789012:assumed-role/writer/daily</Arn><AssumedRoleId>A:daily</AssumedRoleId>"
    "</AssumedRoleUser></AssumeRoleResult></AssumeRoleResponse>"
).encode()
ROLE = {"RoleArn": "arn:aws:iam::123456789012:role/writer", "RoleSessionName": "daily"}


class Services(Recorder):
    """The endpoints that credentials come from, and S3, on one server.

    Attributes:
        bodies: bodies of the requests.
        status: status of the answers to HEAD.
        region: region of every bucket, or None.
    """

    def __init__(self) -> None:
        super().__init__(self._answer)
        self.bodies: list[str] = []
        self.status = 200
        self.region: str | None = "eu-west-3"

    def _answer(self, method: str, path: str, body: bytes) -> bytes | tuple[int, dict[str, str], bytes]:
        self.bodies.append(body.decode())
        found = {"Expiration": EXPIRES, "Token": "token", "SecretAccessKey": "hush", "Code": "Success"}
        if method == "HEAD":
            return self.status, {"x-amz-bucket-region": self.region} if self.region else {}, b""
        if method == "PUT":
            return b"metadata-token"
        if path == "/container":
            return json.dumps({"AccessKeyId": "OF-CONTAINER", **found}).encode()
        if path.endswith("/security-credentials/machine"):
            return json.dumps({"AccessKeyId": "OF-INSTANCE", **found}).encode()
        return b"machine" if path.endswith("/security-credentials/") else ASSUMED


@pytest.fixture
def services(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Services]:
    """All sources of credentials of botocore at once, each with credentials of its own."""
    with Services() as found:
        shared = tmp_path / "credentials"
        shared.write_text(
            "[default]\naws_access_key_id = OF-DEFAULT\naws_secret_access_key = hush\n"
            "[mine]\naws_access_key_id = OF-MINE\naws_secret_access_key = hush\n"
        )
        for name, value in {
            "AWS_ACCESS_KEY_ID": "OF-ENVIRONMENT",
            "AWS_SECRET_ACCESS_KEY": "hush",
            "AWS_SHARED_CREDENTIALS_FILE": str(shared),
            "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{found.url}/container",
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": found.url,
        }.items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("AWS_EC2_METADATA_DISABLED", raising=False)
        yield found


def _key(session: Boto3Session) -> str:
    return AwsSession(AwsOptions(region="eu-west-1"), session).credentials().access_key


def test_only_the_given_sources_are_searched(services: Services, tmp_path: Path) -> None:
    """Credentials that botocore would find first do not count; no source means botocore's search."""
    keys = ("OF-KEYS", "hush", None)
    assert _key(chain_session(())) == "OF-ENVIRONMENT"
    assert _key(chain_session(("default", "keys"), keys=keys)) == "OF-ENVIRONMENT"
    assert _key(chain_session(("container", "instance"))) == "OF-CONTAINER"
    assert _key(chain_session(("instance", "keys"), keys=keys)) == "OF-INSTANCE"
    assert _key(chain_session(("keys", "instance"), keys=keys)) == "OF-KEYS"
    assert _key(chain_session(("profile",))) == "OF-DEFAULT"
    assert _key(chain_session(("profile",), profile="mine")) == "OF-MINE"
    own = tmp_path / "own"
    own.write_text("[mine]\naws_access_key_id = OF-FILE\naws_secret_access_key = hush\n")
    assert _key(chain_session(("profile-file",), profile="mine", profile_file=str(own))) == "OF-FILE"


def test_sources_without_credentials_are_skipped(services: Services, tmp_path: Path) -> None:
    """A missing profile, file or identity is skipped; without any credentials the error says so."""
    keys = ("OF-KEYS", "hush", "token")
    none = str(tmp_path / "none")
    sources = ("profile", "profile-file", "web-identity", "keys")
    assert _key(chain_session(sources, profile="absent", profile_file=none, keys=keys)) == "OF-KEYS"
    with pytest.raises(ConfigurationError, match="no AWS credentials found"):
        _key(chain_session(sources[:-1], profile="absent", profile_file=none))


def test_a_role_is_assumed_with_the_credentials_of_the_sources(services: Services) -> None:
    """The request to STS is signed with those, and sent when credentials are needed."""
    session = AwsSession(
        AwsOptions(region="eu-west-1"),
        chain_session(
            ("keys",),
            keys=("OF-KEYS", "hush", None),
            role={**ROLE, "DurationSeconds": 900, "ExternalId": "outside"},
            sts={"region_name": "eu-west-2", "endpoint_url": services.url},
        ),
    )
    assert not services.requests
    assert session.credentials().access_key == "OF-ROLE"
    assert session.credentials().token == "token"
    assert services.keys == ["OF-KEYS"]
    assert "/eu-west-2/sts/" in services.requests[0][2]["authorization"]
    sent = {name: values[0] for name, values in parse_qs(services.bodies[0]).items()}
    assert sent | {**ROLE, "DurationSeconds": "900", "ExternalId": "outside"} == sent


def test_a_role_needs_credentials(services: Services, tmp_path: Path) -> None:
    """Credentials of other sources are not used to assume a role."""
    session = chain_session(("profile-file",), profile_file=str(tmp_path / "none"), role=ROLE)
    with pytest.raises(ConfigurationError, match="no AWS credentials found"):
        _key(session)


def test_an_invalid_aws_configuration_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the profile."""
    monkeypatch.setenv("AWS_PROFILE", "absent")
    with pytest.raises(ConfigurationError, match="absent"):
        chain_session(("instance",))


def test_proxy_and_fips_apply_to_all_requests() -> None:
    """They are settings of the session, which are used for S3 and for other services."""
    session = chain_session(("keys",), keys=("a", "b", None), proxy="http://u:p@proxy:1", fips=True)
    found = AwsSession(AwsOptions(region="us-east-1"), session)
    assert found.endpoint("s3", bucket="bucket") == "https://bucket.s3-fips.us-east-1.amazonaws.com"
    assert found.endpoint("dynamodb") == "https://dynamodb-fips.us-east-1.amazonaws.com"
    assert found.proxy("https://host") == found.proxy("http://host") == "http://u:p@proxy:1"


def test_s3_names_the_region_of_a_bucket(services: Services) -> None:
    """The request has no signature, and a refusal names the region, too."""
    options = {"region": "us-east-2", "access_key_id": "a", "secret_access_key": "b"}
    session = AwsSession(AwsOptions(endpoint_url=services.url, **options))  # type: ignore[arg-type]
    for status in (200, 301, 403, 400):
        services.status = status
        assert bucket_region("bucket", session) == "eu-west-3"
    assert {(method, path) for method, path, _ in services.requests} == {("HEAD", "/bucket")}
    assert not any("authorization" in headers for _, _, headers in services.requests)
    services.region = None
    services.status = 404
    assert bucket_region("bucket", session) == "us-east-2"


def test_an_unknown_region_is_an_error(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    """If S3 fails or cannot be reached, the request is repeated before the error."""
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "2")
    options = {"region": "us-east-2", "access_key_id": "a", "secret_access_key": "b"}
    services.status, services.region = 503, None
    session = AwsSession(AwsOptions(endpoint_url=services.url, **options))  # type: ignore[arg-type]
    with pytest.raises(Unavailable, match="bucket"):
        bucket_region("bucket", session)
    assert len(services.requests) == 2
    gone = AwsSession(AwsOptions(endpoint_url="http://127.0.0.1:1", **options))  # type: ignore[arg-type]
    with pytest.raises(Unavailable):
        bucket_region("bucket", gone)
