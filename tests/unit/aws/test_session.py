"""Options, credentials and endpoints, as botocore resolves them."""

from __future__ import annotations

import os
import traceback
from pathlib import Path

import boto3.session
import botocore.credentials
import pytest
from botocore.exceptions import ClientError, CredentialRetrievalError

from commitlog.aws import AwsOptions, AwsSession
from commitlog.errors import AccessDenied, ConfigurationError
from commitlog.urls import parse_store_url, parse_table_url

KEYS = {"access_key_id": "AKIA", "secret_access_key": "hush"}


def test_a_url_may_have_all_options() -> None:
    """All options in the query of a URL are used, and `verify` is converted."""
    url = parse_store_url(
        "s3://bucket?endpoint_url=https://host:1&region=eu-west-1&profile=p&addressing_style=path"
        "&verify=false&access_key_id=AKIA&secret_access_key=hush&session_token=word"
    )
    assert AwsOptions.from_url(url) == AwsOptions(
        endpoint_url="https://host:1",
        region="eu-west-1",
        profile="p",
        addressing_style="path",
        verify=False,
        session_token="word",
        **KEYS,
    )
    assert AwsOptions.from_url(parse_table_url("dynamodb://table")) == AwsOptions()


@pytest.mark.parametrize(
    "endpoint", ["http://user:hush@host", "http://user:hush@host:99999", "user:hush@host"]
)
def test_a_configured_endpoint_with_credentials_is_refused_without_showing_them(
    monkeypatch: pytest.MonkeyPatch, endpoint: str
) -> None:
    """They would not be used, and botocore quotes an endpoint that it refuses."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    session = AwsSession(AwsOptions(region="eu-west-1", **KEYS))
    with pytest.raises(ConfigurationError, match="endpoint") as caught:
        session.endpoint("s3", bucket="bucket")
    assert "hush" not in "".join(traceback.format_exception(caught.value))


def test_secrets_are_not_shown() -> None:
    """Neither key nor token is in the repr."""
    shown = repr(AwsOptions(session_token="word", **KEYS))
    assert not any(secret in shown for secret in ("AKIA", "hush", "word"))


@pytest.mark.parametrize(
    "options",
    [
        {"access_key_id": "AKIA"},
        {"secret_access_key": "hush"},
        {"session_token": "word"},
        {"addressing_style": "dns"},
        {"endpoint_url": "ftp://host"},
        {"endpoint_url": "http://user:password@host"},
    ],
    ids=str,
)
def test_invalid_options_are_refused(options: dict[str, str]) -> None:
    """An incomplete pair of keys or an invalid endpoint is refused before a request is sent."""
    with pytest.raises(ConfigurationError):
        AwsOptions(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("bucket", "options", "url"),
    [
        ("bucket", {"region": "eu-west-1"}, "https://bucket.s3.eu-west-1.amazonaws.com"),
        ("bucket", {"region": "cn-north-1"}, "https://bucket.s3.cn-north-1.amazonaws.com.cn"),
        ("a.bucket", {"region": "eu-west-1"}, "https://s3.eu-west-1.amazonaws.com/a.bucket"),
        (
            "bucket",
            {"region": "eu-west-1", "addressing_style": "path"},
            "https://s3.eu-west-1.amazonaws.com/bucket",
        ),
        ("bucket", {"endpoint_url": "http://127.0.0.1:9"}, "http://127.0.0.1:9/bucket"),
        ("bucket", {"endpoint_url": "http://host:9/base/"}, "http://host:9/base/bucket"),
        (
            "bucket",
            {"endpoint_url": "http://host:9", "addressing_style": "virtual"},
            "http://bucket.host:9",
        ),
    ],
    ids=str,
)
def test_the_endpoint_of_a_bucket_is_that_of_botocore(
    bucket: str, options: dict[str, str], url: str
) -> None:
    """It depends on partition, addressing style and endpoint, and needs no credentials."""
    session = AwsSession(AwsOptions(**options))  # type: ignore[arg-type]
    assert session.endpoint("s3", bucket=bucket) == url


def test_the_endpoint_of_a_table_is_that_of_botocore() -> None:
    """A service without buckets has one endpoint for each region."""
    session = AwsSession(AwsOptions(region="eu-west-1"))
    assert session.endpoint("dynamodb") == "https://dynamodb.eu-west-1.amazonaws.com"


def test_aws_needs_a_region(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a region the error names the variable to set. A custom endpoint needs no region."""
    for service in ("s3", "dynamodb"):
        with pytest.raises(ConfigurationError, match="AWS_DEFAULT_REGION"):
            AwsSession(AwsOptions()).endpoint(service)
    own = AwsSession(AwsOptions(endpoint_url="http://host"))
    assert (own.endpoint("s3"), own.region) == ("http://host", "us-east-1")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    assert AwsSession(AwsOptions()).region == "eu-west-1"


def test_the_endpoint_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Environment variables of botocore need no option of ours."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://host:9")
    assert AwsSession(AwsOptions()).endpoint("s3", bucket="bucket") == "http://host:9/bucket"


def test_the_settings_of_a_profile_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All settings of a profile are used. A missing profile is an error."""
    config = tmp_path / "config"
    config.write_text(
        "[profile p]\nregion = eu-west-3\naws_access_key_id = AKIB\naws_secret_access_key = psst\n"
        "ca_bundle = /bundle.pem\ns3 =\n  addressing_style = virtual\n"
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    session = AwsSession(AwsOptions(profile="p", endpoint_url="http://host"))
    assert session.endpoint("s3", bucket="bucket") == "http://bucket.host"
    assert (session.region, session.verify()) == ("eu-west-3", "/bundle.pem")
    assert (session.credentials().access_key, session.credentials().secret_key) == ("AKIB", "psst")
    with pytest.raises(ConfigurationError, match="no-such"):
        AwsSession(AwsOptions(profile="no-such"))


def test_options_take_precedence() -> None:
    """Given keys are used, with the session token."""
    credentials = AwsSession(AwsOptions(session_token="word", **KEYS)).credentials()
    assert (credentials.access_key, credentials.secret_key, credentials.token) == (
        "AKIA",
        "hush",
        "word",
    )


def test_missing_credentials_are_an_error_on_use() -> None:
    """A session can be made without credentials. On use, the error names the variables to set."""
    session = AwsSession(AwsOptions(region="eu-west-1"))
    with pytest.raises(ConfigurationError, match="AWS_ACCESS_KEY_ID"):
        session.credentials()


@pytest.mark.parametrize(
    "problem",
    [
        CredentialRetrievalError(provider="role", error_msg="no"),
        ClientError({"Error": {"Code": "AccessDenied", "Message": "not this role"}}, "AssumeRole"),
        RuntimeError("the refreshed credentials of the role are still expired"),
    ],
    ids=lambda problem: type(problem).__name__,
)
def test_a_failed_refresh_of_credentials_is_access_denied(
    monkeypatch: pytest.MonkeyPatch, problem: Exception
) -> None:
    """A role without credentials is not a configuration error: the same call may work later.

    The error is ours, whatever botocore raises. The release of a lease needs a signature too, and it
    must not fail a call whose work is done.
    """

    def fail(_self: object) -> None:
        raise problem

    monkeypatch.setattr(botocore.credentials.Credentials, "get_frozen_credentials", fail)
    with pytest.raises(AccessDenied, match=r"(?i)role"):
        AwsSession(AwsOptions(**KEYS)).credentials()


@pytest.mark.parametrize(
    ("option", "environment", "expected"),
    [
        (True, {}, True),
        (False, {"AWS_CA_BUNDLE": "/a"}, False),
        ("/own", {"AWS_CA_BUNDLE": "/a"}, "/own"),
        (True, {"AWS_CA_BUNDLE": "/a", "REQUESTS_CA_BUNDLE": "/r"}, "/a"),
        (True, {"REQUESTS_CA_BUNDLE": "/r"}, "/r"),
    ],
    ids=str,
)
def test_certificates_are_checked_as_botocore_would(
    monkeypatch: pytest.MonkeyPatch,
    option: bool | str,
    environment: dict[str, str],
    expected: bool | str,
) -> None:
    """The option comes first, then AWS_CA_BUNDLE, then REQUESTS_CA_BUNDLE."""
    monkeypatch.delenv("REQUESTS_CA_BUNDLE", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert AwsSession(AwsOptions(verify=option)).verify() == expected


def test_the_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy is used for its scheme, except for the excluded hosts."""
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("https_proxy", "http://proxy:1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    session = AwsSession(AwsOptions())
    assert session.proxy("https://host") == "http://proxy:1"
    assert session.proxy("http://host") is None
    assert session.proxy("https://127.0.0.1:9000") is None


def test_a_boto3_session_gives_credentials_and_region() -> None:
    """Options take precedence over the session."""
    given = boto3.session.Session(
        aws_access_key_id="AKIASESSION", aws_secret_access_key="s", region_name="eu-north-1"
    )
    session = AwsSession(AwsOptions(), given)
    assert session.credentials().access_key == "AKIASESSION"
    assert session.region == "eu-north-1"
    own = AwsOptions(access_key_id="AKIAOWN", secret_access_key="o", region="eu-west-3")
    session = AwsSession(own, given)
    assert (session.credentials().access_key, session.region) == ("AKIAOWN", "eu-west-3")
    with pytest.raises(ConfigurationError, match="not both"):
        AwsSession(AwsOptions(profile="p"), given)
