"""Requests follow the settings of a caller's boto3 session or client."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import boto3.session
import botocore.credentials
import botocore.session
import pytest
from botocore import UNSIGNED
from botocore.config import Config
from botocore.credentials import RefreshableCredentials

import commitlog
from commitlog.aws import AwsOptions, AwsSession
from commitlog.commit.record import LEASE_SCHEMA
from commitlog.errors import AccessDenied, ConfigurationError
from commitlog.stores.open import open_store
from commitlog.tables.open import open_table
from support.recorder import CERTIFICATE, Recorder

_EMPTY = b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"


@pytest.fixture
def s3() -> Iterator[Recorder]:
    """A server whose bucket is empty."""
    with Recorder(lambda method, path, body: _EMPTY) as server:
        yield server


def _session(key: str = "AKIASESSION", **settings: Any) -> Any:
    return boto3.session.Session(key, "secret", **{"region_name": "eu-west-1", **settings})


# -- credentials -----------------------------------------------------------------------------------


def _in(seconds: float) -> str:
    return (datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)).isoformat()


def test_credentials_of_a_role_are_refreshed_before_a_request(s3: Recorder) -> None:
    """Credentials that are about to expire are refreshed. Valid ones are not."""
    made: list[str] = []

    def assume() -> dict[str, str]:
        made.append(f"AKIA{len(made)}")
        # The first two are within the time in which botocore insists on a refresh.
        lives = 30 if len(made) < 3 else 3600
        return {
            "access_key": made[-1],
            "secret_key": "s",
            "token": f"token-{made[-1]}",
            "expiry_time": _in(lives),
        }

    inner = botocore.session.Session()
    inner._credentials = RefreshableCredentials.create_from_metadata(
        assume(), refresh_using=assume, method="sts-assume-role"
    )
    session = boto3.session.Session(botocore_session=inner, region_name="eu-west-1")
    client = session.client("s3", endpoint_url=s3.url)
    for given in ({"session": session, "endpoint_url": s3.url}, {"client": client}):
        with contextlib.closing(open_store("s3://bucket", **given)) as store:
            for _ in range(2):
                store.list_page()
    client.close()
    assert s3.keys == ["AKIA1", "AKIA2", "AKIA2", "AKIA2"]
    assert s3.requests[0][2]["x-amz-security-token"] == "token-AKIA1"


_ROLE = """<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult>
<AssumedRoleUser><Arn>arn:aws:sts::123456789012:assumed-role/r/s</Arn>
<AssumedRoleId>A:s</AssumedRoleId></AssumedRoleUser><Credentials><AccessKeyId>{}</AccessKeyId>
<SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken><Expiration>{}</Expiration>
</Credentials></AssumeRoleResult></AssumeRoleResponse>"""


def test_a_profile_that_assumes_a_role_is_used(
    s3: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """botocore asks STS for the role, and requests are signed with the credentials from STS."""
    (tmp_path / "config").write_text(
        "[profile base]\naws_access_key_id = BASE\naws_secret_access_key = s\n"
        "[profile role]\nregion = eu-west-1\nsource_profile = base\n"
        "role_arn = arn:aws:iam::123456789012:role/r\n"
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))

    def answer(method: str, path: str, body: bytes) -> bytes:
        assert parse_qs(body.decode())["RoleArn"] == ["arn:aws:iam::123456789012:role/r"]
        return _ROLE.format("ASSUMED", _in(3600)).encode()

    with Recorder(answer) as sts:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", sts.url)
        session = boto3.session.Session(profile_name="role")
        with contextlib.closing(
            open_store("s3://bucket", session=session, endpoint_url=s3.url)
        ) as store:
            store.list_page()
            store.list_page()
    assert sts.keys == ["BASE"]
    assert s3.keys == ["ASSUMED"] * 2


def test_a_profile_of_single_sign_on_is_used(
    s3: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The token of a login is exchanged for credentials. Without a login the error names the token."""
    start = "https://example.awsapps.com/start"
    (tmp_path / "config").write_text(
        f"[profile sso]\nregion = eu-west-1\nsso_start_url = {start}\nsso_region = eu-west-1\n"
        "sso_account_id = 123456789012\nsso_role_name = reader\n"
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setattr(botocore.credentials.SSOProvider, "_SSO_TOKEN_CACHE_DIR", str(tmp_path))

    def store_of() -> Any:
        session = boto3.session.Session(profile_name="sso")
        return contextlib.closing(open_store("s3://bucket", session=session, endpoint_url=s3.url))

    with store_of() as store, pytest.raises(AccessDenied, match="SSO Token"):
        store.list_page()
    token = {"startUrl": start, "region": "eu-west-1", "accessToken": "login", "expiresAt": _in(3600)}
    (tmp_path / f"{hashlib.sha1(start.encode()).hexdigest()}.json").write_text(json.dumps(token))
    role = {"accessKeyId": "OFSSO", "secretAccessKey": "s", "sessionToken": "t"}
    role["expiration"] = int(datetime.datetime.now().timestamp() + 3600) * 1000  # type: ignore[assignment]
    with Recorder(lambda *_: json.dumps({"roleCredentials": role}).encode()) as portal:
        monkeypatch.setenv("AWS_ENDPOINT_URL_SSO", portal.url)
        with store_of() as store:
            store.list_page()
    assert portal.requests[0][2]["x-amz-sso_bearer_token"] == "login"
    assert s3.keys == ["OFSSO"]


def test_own_credentials_take_precedence_over_a_client(s3: Recorder) -> None:
    """Options take precedence over the client, and the client is unchanged."""
    client = _session().client("s3", endpoint_url=s3.url)
    with contextlib.closing(
        open_store("s3://bucket", client=client, access_key_id="AKIAOWN", secret_access_key="x")
    ) as store:
        store.list_page()
    client.list_objects_v2(Bucket="bucket")
    client.close()
    assert s3.keys == ["AKIAOWN", "AKIASESSION"]


# -- endpoints --------------------------------------------------------------------------------------

_VIRTUAL = Config(s3={"addressing_style": "virtual"})
_PATH = Config(s3={"addressing_style": "path"})


@pytest.mark.parametrize(
    ("settings", "url"),
    [
        ({}, "https://bucket.s3.eu-west-1.amazonaws.com"),
        ({"config": _PATH}, "https://s3.eu-west-1.amazonaws.com/bucket"),
        ({"region_name": "cn-north-1"}, "https://bucket.s3.cn-north-1.amazonaws.com.cn"),
        ({"config": Config(use_dualstack_endpoint=True)}, "https://bucket.s3.dualstack.eu-west-1.amazonaws.com"),
        ({"config": Config(use_fips_endpoint=True), "region_name": "us-east-2"}, "https://bucket.s3-fips.us-east-2.amazonaws.com"),
        ({"config": Config(s3={"use_accelerate_endpoint": True})}, "https://bucket.s3-accelerate.amazonaws.com"),
        ({"endpoint_url": "http://127.0.0.1:9"}, "http://127.0.0.1:9/bucket"),
        ({"endpoint_url": "http://host:9", "config": _VIRTUAL}, "http://bucket.host:9"),
        ({"endpoint_url": "https://bucket.vpce-1.s3.eu-west-1.vpce.amazonaws.com"},
         "https://bucket.vpce-1.s3.eu-west-1.vpce.amazonaws.com/bucket"),
    ],
    # The text of a configuration has its memory address, which differs between test processes.
    ids=lambda value: value if isinstance(value, str) else "-".join(value) or "default",
)  # fmt: skip
def test_a_client_determines_the_endpoint_of_a_bucket(
    settings: dict[str, Any], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Region, endpoint and addressing style come from the client, not from the environment."""
    client = _session().client("s3", **settings)
    head: list[str] = []

    def catch(request: Any, **_: object) -> None:
        head.append(request.url)
        raise InterruptedError

    client.meta.events.register("before-send.s3.HeadBucket", catch)
    with contextlib.suppress(Exception):
        client.head_bucket(Bucket="bucket")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://elsewhere:1")
    monkeypatch.setenv("AWS_PROFILE", "no-such-profile")
    found = AwsSession(AwsOptions(), client=client)
    assert found.endpoint("s3", bucket="bucket") == url == head[0].rstrip("/")
    assert found.region == settings.get("region_name", "eu-west-1")
    client.close()


def test_a_session_determines_the_endpoint_of_a_bucket() -> None:
    """The settings of the session apply, and options take precedence over them."""
    session = _session()
    session._session.set_default_client_config(_PATH)
    found = AwsSession(AwsOptions(), session)
    assert found.endpoint("s3", bucket="bucket") == "https://s3.eu-west-1.amazonaws.com/bucket"
    found = AwsSession(AwsOptions(addressing_style="virtual", region="eu-west-3"), session)
    assert found.endpoint("s3", bucket="bucket") == "https://bucket.s3.eu-west-3.amazonaws.com"


def test_a_client_of_dynamodb_determines_its_endpoint() -> None:
    """A client of one service is refused for another service."""
    with contextlib.closing(_session().client("dynamodb")) as client:
        found = AwsSession(AwsOptions(), client=client)
        assert found.endpoint("dynamodb") == "https://dynamodb.eu-west-1.amazonaws.com"
        with pytest.raises(ConfigurationError, match="'dynamodb', not for 's3'"):
            open_store("s3://bucket", client=client)


# -- connections -----------------------------------------------------------------------------------


def test_a_proxy_of_the_configuration_is_used() -> None:
    """Requests go to the proxy, with the URL of the store in them."""
    with Recorder(lambda method, path, body: _EMPTY) as proxy:
        session = _session()
        session._session.set_default_client_config(Config(proxies={"http": proxy.url}))
        with contextlib.closing(
            open_store("s3://bucket", session=session, endpoint_url="http://host.invalid")
        ) as store:
            assert not list(store.list())
        assert proxy.requests[0][1].startswith("http://host.invalid/bucket")


def test_timeouts_and_pool_size_come_from_the_configuration() -> None:
    """A session gives the values that are set, a client gives all. Options take precedence over both."""
    config = Config(connect_timeout=3, max_pool_connections=7)
    session = _session()
    session._session.set_default_client_config(config)
    with contextlib.closing(_session().client("s3", config=config)) as client:
        found = AwsSession(AwsOptions(), session), AwsSession(AwsOptions(), client=client)
        own = AwsSession(AwsOptions(read_timeout=1.0, max_idle_connections=0), client=client)
    assert [(f.connect_timeout, f.read_timeout, f.max_idle_connections) for f in (*found, own)] == [
        (3, 30.0, 7),
        (3, 60, 7),
        (3, 1.0, 0),
    ]


@pytest.mark.parametrize(
    ("retries", "tries"),
    [
        (None, 8),
        ({"max_attempts": 0}, 1),
        ({"max_attempts": 4}, 5),
        ({"total_max_attempts": 4}, 4),
        ({"total_max_attempts": 2, "mode": "adaptive"}, 2),
    ],
)
def test_attempts_are_counted_as_botocore_does(retries: dict[str, Any] | None, tries: int) -> None:
    """`max_attempts` of a `Config` does not count the first attempt. Without it, our default applies."""
    config = Config(retries=retries)
    session = _session()
    session._session.set_default_client_config(config)
    with contextlib.closing(_session().client("s3", config=config)) as client:
        found = AwsSession(AwsOptions(), session), AwsSession(AwsOptions(), client=client)
    assert [each.backoff().tries for each in found] == [tries, tries]


@pytest.mark.parametrize("of", ["session", "client"])
@pytest.mark.parametrize("tls", ["server", "mutual"])
def test_certificates_come_from_the_configuration(
    of: str, tls: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The CA bundle of the session or the client is trusted, and its client certificate is sent."""
    config = Config(client_cert=str(CERTIFICATE) if tls == "mutual" else None)
    session = _session()
    with Recorder(lambda *_: _EMPTY, tls=tls) as server:
        given: dict[str, Any] = {"session": session, "endpoint_url": server.url}
        session._session.set_default_client_config(config)
        if of == "session":
            session._session.set_config_variable("ca_bundle", str(CERTIFICATE))
        else:
            client = session.client("s3", endpoint_url=server.url, verify=str(CERTIFICATE))
            given = {"client": client}
        with contextlib.closing(open_store("s3://bucket", **given)) as store:
            assert not list(store.list())
        if of == "client":
            client.close()
    assert len(server.requests) == 1


def test_a_client_that_trusts_any_certificate_is_followed() -> None:
    """`verify=False` of the client applies, and an option takes precedence."""
    with contextlib.closing(_session().client("s3", verify=False)) as client:
        assert AwsSession(AwsOptions(), client=client).verify() is False
        assert AwsSession(AwsOptions(verify="/own"), client=client).verify() == "/own"


# -- refused settings ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (Config(signature_version=UNSIGNED), "UNSIGNED"),
        (Config(signature_version="s3"), "'s3' is not supported"),
        (Config(proxies_config={"proxy_ca_bundle": "/ca"}), "proxies_config"),
        (Config(proxies={"http://host": "http://proxy"}), "known: http, https"),
        (Config(sigv4a_signing_region_set="*"), "sigv4a_signing_region_set"),
        *(
            [(Config(account_id_endpoint_mode="required"), "account_id_endpoint_mode")]
            if "account_id_endpoint_mode" in Config.OPTION_DEFAULTS  # in botocore 1.37 and newer
            else []
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_settings_that_would_change_requests_are_refused(config: Config, message: str) -> None:
    """They are refused for a session and for a client, before a request is sent."""
    session = _session()
    session._session.set_default_client_config(config)
    with pytest.raises(ConfigurationError, match=message):
        open_store("s3://bucket", session=session)
    with (
        contextlib.closing(_session().client("s3", config=config)) as client,
        pytest.raises(ConfigurationError, match=message),
    ):
        open_store("s3://bucket", client=client)


class _Asynchronous:
    async def get_frozen_credentials(self) -> None:
        """As in aiobotocore."""


def test_other_objects_than_sessions_and_clients_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the expected or the actual type."""
    resource = _session().resource("s3")
    with pytest.raises(ConfigurationError, match=r"resource\.meta\.client"):
        open_store("s3://bucket", client=resource)
    resource.meta.client.close()
    with pytest.raises(ConfigurationError, match="session is of str"):
        open_store("s3://bucket", session="profile")  # type: ignore[arg-type]
    inner = botocore.session.Session()
    monkeypatch.setattr(inner, "_credentials", _Asynchronous())
    with pytest.raises(ConfigurationError, match="asynchronous"):
        open_store("s3://bucket", session=inner)


def test_contradictory_arguments_are_refused(tmp_path: Path) -> None:
    """Each service has one source of settings."""
    with contextlib.closing(_session().client("s3")) as client:
        for wrong in (
            lambda: open_store("s3://bucket", client=client, session=_session()),
            lambda: open_store("s3://bucket", client=client, profile="p"),
            lambda: open_store("s3://bucket", session=_session(), profile="p"),
            lambda: open_store(str(tmp_path), client=client),
            lambda: open_table("memory://", LEASE_SCHEMA, client=client),
            lambda: commitlog.connect("s3://bucket", table_client=client),
            lambda: commitlog.connect("s3://bucket", client=client, commit="dynamo:commits"),
        ):
            with pytest.raises(ConfigurationError):
                wrong()
