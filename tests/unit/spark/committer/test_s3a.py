"""Translation of the settings of Hadoop's S3A."""

from __future__ import annotations

import random
from typing import Any

import pytest

from commitlog.aws import AwsOptions, AwsSession
from commitlog.errors import CommitError, ConfigurationError, NotSupported
from commitlog.spark.committer.s3a import S3AConnection, s3_connection, s3_url
from commitlog.stores.open import open_store
from support.recorder import Recorder

S3A = "org.apache.hadoop.fs.s3a."
SDK_1 = "com.amazonaws.auth."
SDK_2 = "software.amazon.awssdk.auth.credentials."

#: The defaults of Hadoop 3.5.0 (core-default.xml), without those of S3 Select and of buffers.
DEFAULTS = {
    "fs.s3a.impl": f"{S3A}S3AFileSystem",
    "fs.s3a.aws.credentials.provider": f"""
    {S3A}TemporaryAWSCredentialsProvider,
    {S3A}SimpleAWSCredentialsProvider,
    {SDK_2}EnvironmentVariableCredentialsProvider,
    {S3A}auth.IAMInstanceCredentialsProvider
  """,
    "fs.s3a.security.credential.provider.path": "",
    "fs.s3a.assumed.role.arn": "",
    "fs.s3a.assumed.role.session.name": "",
    "fs.s3a.assumed.role.policy": "",
    "fs.s3a.assumed.role.session.duration": "30m",
    "fs.s3a.assumed.role.sts.endpoint": "",
    "fs.s3a.assumed.role.sts.endpoint.region": "",
    "fs.s3a.assumed.role.credentials.provider": f"{S3A}SimpleAWSCredentialsProvider",
    "fs.s3a.delegation.token.binding": "",
    "fs.s3a.connection.maximum": "500",
    "fs.s3a.connection.ssl.enabled": "true",
    "fs.s3a.path.style.access": "false",
    "fs.s3a.attempts.maximum": "5",
    "fs.s3a.connection.establish.timeout": "30s",
    "fs.s3a.connection.timeout": "200s",
    "fs.s3a.connection.ttl": "5m",
    "fs.s3a.paging.maximum": "5000",
    "fs.s3a.threads.max": "96",
    "fs.s3a.multipart.size": "64M",
    "fs.s3a.multipart.threshold": "128M",
    "fs.s3a.multiobjectdelete.enable": "true",
    "fs.s3a.multipart.purge": "false",
    "fs.s3a.accesspoint.required": "false",
    "fs.s3a.block.size": "32M",
    "fs.s3a.buffer.dir": "/tmp/hadoop/s3a",
    "fs.s3a.fast.upload.buffer": "disk",
    "fs.s3a.user.agent.prefix": "",
    "fs.s3a.retry.limit": "7",
    "fs.s3a.committer.name": "file",
    "fs.s3a.committer.magic.enabled": "true",
    "fs.s3a.committer.staging.conflict-mode": "append",
    "fs.s3a.list.version": "2",
    "fs.s3a.change.detection.mode": "server",
    "fs.s3a.ssl.channel.mode": "default_jsse",
    "fs.s3a.downgrade.syncable.exceptions": "true",
    "fs.s3a.audit.enabled": "true",
}
#: The defaults of Hadoop 3.3.4 that differ: its classes of providers are those of SDK 1.
DEFAULTS_3_3 = {
    **DEFAULTS,
    "fs.s3a.aws.credentials.provider": (
        f"{S3A}TemporaryAWSCredentialsProvider, {S3A}SimpleAWSCredentialsProvider,"
        f" {SDK_1}EnvironmentVariableCredentialsProvider, {S3A}auth.IAMInstanceCredentialsProvider"
    ),
    "fs.s3a.select.enabled": "true",
}
KEYS = {"access.key": "AKIAHIDDEN", "secret.key": "KEYHIDDEN"}
OPTIONS = {"access_key_id": "AKIAHIDDEN", "secret_access_key": "KEYHIDDEN"}
SECRETS = ("AKIAHIDDEN", "KEYHIDDEN", "TOKENHIDDEN", "PROXYHIDDEN", "SSEHIDDEN")
ENVIRONMENT = {"AWS_ACCESS_KEY_ID": "AKIAHIDDEN", "AWS_SECRET_ACCESS_KEY": "KEYHIDDEN"}
REGION = {"endpoint.region": "eu-west-1"}
REGION_OPTION = {"region": "eu-west-1"}
AWS = {**OPTIONS, **REGION_OPTION}


def connection(
    settings: dict[str, str], environ: dict[str, str] | None = None, defaults: dict[str, str] = DEFAULTS
) -> S3AConnection:
    """Translate `settings`, whose names lack ``fs.s3a.``, over the defaults of Hadoop."""
    full = {f"fs.s3a.{name}": value for name, value in settings.items()}
    return s3_connection({**defaults, **full}, "mine", environ=environ or {})


def error(settings: dict[str, str], environ: dict[str, str] | None = None) -> CommitError:
    """Return the error of a translation, which shows no secret."""
    with pytest.raises((ConfigurationError, NotSupported)) as caught:
        connection(settings, environ)
    assert not any(secret in str(caught.value) for secret in SECRETS)
    return caught.value


# -- place -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        (REGION, REGION_OPTION),
        ({**REGION, "endpoint": "s3.amazonaws.com"}, {"region": "eu-west-1"}),
        ({**REGION, "path.style.access": "true"}, {"region": "eu-west-1", "addressing_style": "path"}),
        (
            {"endpoint": "http://host:9000", "path.style.access": " TRUE "},
            {"endpoint_url": "http://host:9000", "addressing_style": "path", "region": "us-east-1"},
        ),
        (
            {"endpoint": "host:9000", "connection.ssl.enabled": "false"},
            {"endpoint_url": "http://host:9000", "addressing_style": "virtual", "region": "us-east-1"},
        ),
        (
            {"endpoint": "minio.example.org", **REGION},
            {
                "endpoint_url": "https://minio.example.org",
                "addressing_style": "virtual",
                "region": "eu-west-1",
            },
        ),
        *(
            (
                {"endpoint": host},
                {"endpoint_url": f"https://{host}", "addressing_style": "virtual", "region": region},
            )
            for host, region in [
                ("s3.eu-central-1.amazonaws.com", "eu-central-1"),
                ("s3-us-west-2.amazonaws.com", "us-west-2"),
                ("s3.dualstack.eu-west-3.amazonaws.com", "eu-west-3"),
                ("s3.cn-north-1.amazonaws.com.cn", "cn-north-1"),
                ("s3-fips.us-gov-west-1.amazonaws.com", "us-gov-west-1"),
                ("bucket.vpce-f264a96c-6d27bfa7c85e.s3.us-west-2.vpce.amazonaws.com", "us-west-2"),
            ]
        ),
    ],
    ids=str,
)
@pytest.mark.parametrize("defaults", [DEFAULTS, DEFAULTS_3_3], ids=["3.5", "3.3"])
def test_endpoint_region_and_addressing_are_those_of_s3a(
    settings: dict[str, str], options: dict[str, str], defaults: dict[str, str]
) -> None:
    """A region comes from its setting, or from the host name; the scheme from that of TLS."""
    found = connection({**settings, **KEYS}, defaults=defaults)
    assert dict(found.options) == {**options, **OPTIONS}
    assert found.session is None
    assert not found.find_region


def test_virtual_addressing_is_that_of_the_sdk() -> None:
    """Hadoop's default is the bucket in the host name, except for addresses."""
    for endpoint, url in [
        ("http://host:9000", "http://bucket.host:9000"),
        ("http://127.0.0.1:9000", "http://127.0.0.1:9000/bucket"),
    ]:
        found = connection({"endpoint": endpoint, **KEYS})
        session = AwsSession(AwsOptions(**found.options))  # type: ignore[arg-type]
        assert session.endpoint("s3", bucket="bucket") == url


@pytest.mark.parametrize("settings", [{}, {"endpoint": "https://s3.amazonaws.com"}], ids=str)
def test_s3_is_asked_for_an_unknown_region(settings: dict[str, str]) -> None:
    """S3A reaches buckets of any region of AWS; the central endpoint is not one of a region."""
    found = connection({**settings, **KEYS})
    assert found.find_region
    assert dict(found.options) == OPTIONS


def test_a_fixed_region_is_not_searched() -> None:
    """Without access across regions, S3A uses us-east-2; an empty region is that of the environment."""
    found = connection({"cross.region.access.enabled": "false", **KEYS})
    assert (found.options["region"], found.find_region) == ("us-east-2", False)
    found = connection({"endpoint.region": " ", **KEYS}, {"AWS_REGION": "eu-north-1"})
    assert (found.options["region"], found.find_region) == ("eu-north-1", False)
    found = connection({"endpoint.region": "", **KEYS})
    assert (dict(found.options), found.find_region) == (OPTIONS, False)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("endpoint", "ftp://host"),
        ("endpoint", "http://AKIAHIDDEN:KEYHIDDEN@host"),
        ("endpoint", "s3-accelerate.amazonaws.com"),
        ("endpoint.region", "eu west"),
        ("endpoint.region", "sdk"),
    ],
)
def test_an_invalid_place_is_refused(name: str, value: str) -> None:
    """The error names the setting; an endpoint of AWS must name its region."""
    assert f"fs.s3a.{name}" in str(error({name: value, **KEYS}))


def test_urls_of_s3a_become_urls_of_s3() -> None:
    """Hadoop does not encode its paths; other schemes and credentials are refused."""
    assert s3_url("s3a://bucket/a b/c=%2F/d?e#f") == "s3://bucket/a%20b/c%3D%252F/d%3Fe%23f"
    assert s3_url("s3a://bucket") == "s3://bucket"
    assert s3_url("S3A://bucket/dir/") == "s3://bucket/dir"
    for url in ("s3n://bucket/x", "s3://bucket/x", "hdfs://host/x", "/x", "s3a:/x", "s3a:///x"):
        with pytest.raises(ConfigurationError):
            s3_url(url)
    with pytest.raises(ConfigurationError) as caught:
        s3_url("s3a://AKIAHIDDEN:KEYHIDDEN@bucket/x")
    assert "HIDDEN" not in str(caught.value)


# -- precedence --------------------------------------------------------------------------------------


def test_settings_of_the_bucket_override_general_ones() -> None:
    """Those of another bucket do not count, even if its name begins with that of this one."""
    found = connection(
        {
            "access.key": "general",
            "secret.key": "general",
            "endpoint": "http://general",
            "bucket.mine.endpoint": "http://own",
            "bucket.mine.access.key": "AKIAHIDDEN",
            "bucket.mine.secret.key": "KEYHIDDEN",
            "bucket.mine.path.style.access": "true",
            "bucket.mine2.endpoint": "http://other",
            "bucket.other.requester.pays.enabled": "true",
        }
    )
    assert dict(found.options) == {
        **OPTIONS,
        "endpoint_url": "http://own",
        "addressing_style": "path",
        "region": "us-east-1",
    }


def test_a_bucket_can_undo_a_refused_setting() -> None:
    """An empty setting of the bucket overrides a general one; ``impl`` is not read for a bucket."""
    signer = {"custom.signers": "Mine:org.example.Signer", **KEYS, **REGION}
    assert "fs.s3a.custom.signers" in str(error(signer))
    assert dict(connection({**signer, "bucket.mine.custom.signers": ""}).options) == AWS
    assert dict(connection({**KEYS, **REGION, "bucket.mine.impl": "org.example.Other"}).options) == AWS
    assert dict(connection({**KEYS, **REGION, "bucket.mine.bucket.endpoint": "x"}).options) == AWS


def test_an_error_names_the_setting_of_the_bucket() -> None:
    """The name in an error is that of the setting that counts."""
    refused = error({"bucket.mine.delegation.token.binding": f"{S3A}auth.delegation.X", **KEYS})
    assert "fs.s3a.bucket.mine.delegation.token.binding" in str(refused)


def test_the_long_form_of_a_secret_counts_first() -> None:
    """S3A also looks up secrets by ``fs.s3a.bucket.NAME.fs.s3a.…``, before all other names."""
    found = connection(
        {
            **REGION,
            "access.key": "AKIAHIDDEN",
            "secret.key": "general",
            "bucket.mine.secret.key": "short",
            "bucket.mine.fs.s3a.secret.key": "KEYHIDDEN",
        }
    )
    assert dict(found.options) == AWS


def test_deprecated_names_are_read() -> None:
    """A deprecated name of the bucket overrides general settings, but not its own current name."""
    found = connection(
        {
            **KEYS,
            **REGION,
            "encryption.algorithm": "AES256",
            "bucket.mine.server-side-encryption-algorithm": "SSE-KMS",
            "bucket.mine.server-side-encryption.key": "old",
            "bucket.mine.encryption.key": "new",
        }
    )
    assert found.options["server_side_encryption"] == "aws:kms"
    assert found.options["sse_kms_key_id"] == "new"


# -- credentials -------------------------------------------------------------------------------------


@pytest.mark.parametrize("defaults", [DEFAULTS, DEFAULTS_3_3], ids=["3.5", "3.3"])
def test_the_default_providers_are_searched_in_order(defaults: dict[str, str]) -> None:
    """Session credentials, keys, the environment, the role of the container or machine."""
    token = {"session.token": "TOKENHIDDEN"}
    found = connection({**KEYS, **REGION, **token}, {"AWS_ACCESS_KEY_ID": "x"}, defaults)
    assert dict(found.options) == {**AWS, "session_token": "TOKENHIDDEN"}
    assert dict(connection({**KEYS, **REGION}, ENVIRONMENT, defaults).options) == AWS
    environ = {**ENVIRONMENT, "AWS_SESSION_TOKEN": "TOKENHIDDEN"}
    found = connection({**REGION, "access.key": "lonely"}, environ, defaults)
    assert dict(found.options) == {**AWS, "session_token": "TOKENHIDDEN"}
    found = connection(REGION, {"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://169.254.170.23"}, defaults)
    assert found.session == {"sources": ("container",)}
    assert connection(REGION, {}, defaults).session == {"sources": ("instance",)}
    assert dict(connection(REGION, {}, defaults).options) == REGION_OPTION


WEB = {"AWS_WEB_IDENTITY_TOKEN_FILE": "/token", "AWS_ROLE_ARN": "arn:aws:iam::1:role/web"}
TASK = {"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "/v2"}


@pytest.mark.parametrize(
    ("providers", "environ", "sources"),
    [
        (f"{SDK_2}WebIdentityTokenFileCredentialsProvider", WEB, ("web-identity",)),
        (f"{SDK_1}WebIdentityTokenCredentialsProvider", WEB, ("web-identity",)),
        (
            f"{SDK_1}WebIdentityTokenCredentialsProvider,{SDK_1}InstanceProfileCredentialsProvider",
            {},
            ("instance",),
        ),
        (f"{SDK_2}InstanceProfileCredentialsProvider", TASK, ("instance",)),
        (f"{SDK_1}InstanceProfileCredentialsProvider", TASK, ("container",)),
        (f"{SDK_1}EC2ContainerCredentialsProviderWrapper", TASK, ("container",)),
        (f"{SDK_2}ContainerCredentialsProvider", TASK, ("container",)),
        (f"{SDK_2}ContainerCredentialsProvider,{SDK_2}DefaultCredentialsProvider", {}, ("default",)),
        (f"{SDK_1}DefaultAWSCredentialsProviderChain", {}, ("default",)),
        (
            f"{S3A}auth.IAMInstanceCredentialsProvider, {S3A}SimpleAWSCredentialsProvider, org.my.X",
            {},
            ("instance", "keys"),
        ),
        (
            f"{SDK_2}InstanceProfileCredentialsProvider,{SDK_2}AnonymousCredentialsProvider",
            {},
            ("instance",),
        ),
    ],
    ids=str,
)
def test_providers_become_sources(
    providers: str, environ: dict[str, str], sources: tuple[str, ...]
) -> None:
    """Providers without their input are left out, and so are those after a provider with credentials."""
    keys = KEYS if "Simple" in providers else {}
    found = connection({**REGION, **keys, "aws.credentials.provider": providers}, environ)
    assert found.session is not None
    assert found.session["sources"] == sources
    assert found.session.get("keys") == (("AKIAHIDDEN", "KEYHIDDEN", None) if keys else None)
    assert dict(found.options) == REGION_OPTION


def test_profiles_are_found_as_in_s3a() -> None:
    """The settings count before the environment; S3A's own provider reads only one file."""
    own = {**REGION, "aws.credentials.provider": f"{S3A}auth.ProfileAWSCredentialsProvider"}
    environ = {"AWS_PROFILE": "everyone", "AWS_SHARED_CREDENTIALS_FILE": "/shared"}
    assert connection(own).session == {
        "sources": ("profile-file",),
        "profile": "default",
        "profile_file": "~/.aws/credentials",
    }
    assert connection(own, environ).session == {
        "sources": ("profile-file",),
        "profile": "everyone",
        "profile_file": "/shared",
    }
    settings = {**own, "auth.profile.name": "mine", "auth.profile.file": "/mine"}
    assert connection(settings, environ).session == {
        "sources": ("profile-file",),
        "profile": "mine",
        "profile_file": "/mine",
    }
    for name in (f"{SDK_1}profile.ProfileCredentialsProvider", f"{SDK_2}ProfileCredentialsProvider"):
        found = connection({**settings, "aws.credentials.provider": name}, environ).session
        assert found is not None
        assert (found["sources"], found["profile"]) == (("profile",), "everyone")


def test_providers_are_renamed_by_the_mapping() -> None:
    """The mapping replaces classes, for clusters with their own."""
    settings = {
        **REGION,
        "aws.credentials.provider": "org.example.Old",
        "aws.credentials.provider.mapping": (
            f"org.example.A=org.example.B, org.example.Old = {S3A}auth.IAMInstanceCredentialsProvider"
        ),
    }
    assert connection(settings).session == {"sources": ("instance",)}


def test_a_role_is_assumed_with_the_credentials_for_it() -> None:
    """The providers for STS are listed apart; the duration has Hadoop's units."""
    role = {
        **REGION,
        "aws.credentials.provider": f"{S3A}auth.AssumedRoleCredentialProvider",
        "assumed.role.arn": "arn:aws:iam::1:role/writer",
    }
    assert connection({**role, **KEYS}, {"USER": "etl user"}).session == {
        "sources": ("keys",),
        "keys": ("AKIAHIDDEN", "KEYHIDDEN", None),
        "role": {
            "RoleArn": "arn:aws:iam::1:role/writer",
            "RoleSessionName": "etl-user",
            "DurationSeconds": 1800,
        },
        "sts": {"region_name": "eu-west-1"},
    }
    more = {
        "assumed.role.session.name": "daily",
        "assumed.role.session.duration": "1h",
        "assumed.role.policy": "{}",
        "assumed.role.external.id": "outside",
        "assumed.role.sts.endpoint": "sts.eu-west-2.amazonaws.com",
        "assumed.role.sts.endpoint.region": "eu-west-2",
        "assumed.role.credentials.provider": f"{SDK_2}WebIdentityTokenFileCredentialsProvider",
    }
    found = connection({**role, **more}, WEB)
    assert dict(found.options) == REGION_OPTION
    assert found.session == {
        "sources": ("web-identity",),
        "role": {
            "RoleArn": "arn:aws:iam::1:role/writer",
            "RoleSessionName": "daily",
            "DurationSeconds": 3600,
            "Policy": "{}",
            "ExternalId": "outside",
        },
        "sts": {"region_name": "eu-west-2", "endpoint_url": "https://sts.eu-west-2.amazonaws.com"},
    }
    assert "fs.s3a.assumed.role.arn" in str(error({**role, **KEYS, "assumed.role.arn": ""}))
    assert "session.duration" in str(error({**role, **KEYS, "assumed.role.session.duration": "long"}))
    assert "sts.signing-algorithm" in str(error({**role, **KEYS, "sts.signing-algorithm": "Mine"}))
    itself = {"assumed.role.credentials.provider": role["aws.credentials.provider"]}
    assert "assumed.role.credentials.provider" in str(error({**role, **itself}))


@pytest.mark.parametrize(
    ("providers", "reason"),
    [
        ("org.example.Vault", "org.example.Vault"),
        (f"{S3A}AnonymousAWSCredentialsProvider", "without a signature"),
        (f"{SDK_1}AnonymousAWSCredentials", "without a signature"),
        (f"{S3A}SimpleAWSCredentialsProvider", "has credentials"),
        (f"{S3A}TemporaryAWSCredentialsProvider", "has credentials"),
        (f"{SDK_2}WebIdentityTokenFileCredentialsProvider", "has credentials"),
        (f"{SDK_2}ContainerCredentialsProvider", "has credentials"),
        (
            f"{SDK_2}InstanceProfileCredentialsProvider,{S3A}auth.AssumedRoleCredentialProvider",
            "must be the first",
        ),
    ],
    ids=str,
)
def test_providers_without_a_counterpart_are_refused(providers: str, reason: str) -> None:
    """The error names the setting and the class."""
    refused = str(error({**REGION, "aws.credentials.provider": providers}))
    assert "fs.s3a.aws.credentials.provider" in refused
    assert reason in refused


# -- network and objects -----------------------------------------------------------------------------


def test_the_proxy_is_that_of_s3a() -> None:
    """It applies to all requests; its login may have any characters."""
    proxy = {"proxy.host": "proxy.local", "proxy.port": "3128"}
    found = connection({**KEYS, **REGION, **proxy})
    assert found.session == {"sources": (), "proxy": "http://proxy.local:3128"}
    assert dict(found.options) == AWS
    login = {"proxy.username": "us:er", "proxy.password": "PROXYHIDDEN@/"}
    found = connection({**KEYS, **REGION, **proxy, **login})
    assert found.session == {
        "sources": (),
        "proxy": "http://us%3Aer:PROXYHIDDEN%40%2F@proxy.local:3128",
    }


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"proxy.port": ""}, "proxy.port"),
        ({"proxy.port": "0"}, "proxy.port"),
        ({"proxy.host": "a b"}, "proxy.host"),
        ({"proxy.ssl.enabled": "true"}, "proxy.ssl.enabled"),
        ({"proxy.domain": "CORP"}, "proxy.domain"),
        ({"proxy.workstation": "host"}, "proxy.workstation"),
        ({"proxy.username": "user"}, "proxy.password"),
        ({"proxy.password": "PROXYHIDDEN"}, "proxy.username"),
    ],
    ids=str,
)
def test_a_proxy_that_cannot_be_used_is_refused(settings: dict[str, str], name: str) -> None:
    """The error names the setting."""
    proxy = {"proxy.host": "proxy.local", "proxy.port": "3128", **settings}
    assert f"fs.s3a.{name}" in str(error({**KEYS, **REGION, **proxy}))


def test_fips_endpoints_exclude_a_custom_endpoint() -> None:
    """As in S3A, the central endpoint may be set."""
    found = connection({**KEYS, **REGION, "endpoint.fips": "true", "endpoint": "s3.amazonaws.com"})
    assert found.session == {"sources": (), "fips": True}
    assert "fs.s3a.endpoint.fips" in str(
        error({**KEYS, "endpoint.fips": "true", "endpoint": "http://a"})
    )


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        ({"requester.pays.enabled": "true"}, {"request_payer": "requester"}),
        ({"requester.pays.enabled": "false"}, {}),
        ({"acl.default": "BucketOwnerFullControl"}, {"acl": "bucket-owner-full-control"}),
        ({"acl.default": "Private"}, {"acl": "private"}),
        ({"encryption.algorithm": "AES256"}, {"server_side_encryption": "AES256"}),
        ({"encryption.algorithm": "sse-kms"}, {"server_side_encryption": "aws:kms"}),
        (
            {"encryption.algorithm": "SSE-KMS", "encryption.key": "arn:aws:kms:k"},
            {"server_side_encryption": "aws:kms", "sse_kms_key_id": "arn:aws:kms:k"},
        ),
        (
            {"encryption.algorithm": "DSSE-KMS", "encryption.key": "k"},
            {"server_side_encryption": "aws:kms:dsse", "sse_kms_key_id": "k"},
        ),
        ({"encryption.context": "team=data"}, {}),
        ({"create.storage.class": "glacier_ir"}, {}),
    ],
    ids=str,
)
def test_options_of_objects_are_translated(settings: dict[str, str], options: dict[str, str]) -> None:
    """They are options of `open_store`. The storage class is that of data files only."""
    found = connection({**KEYS, **REGION, **settings})
    assert dict(found.options) == {**AWS, **options}
    open_store(s3_url("s3a://bucket/dir"), **found.options).close()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("encryption.algorithm", "SSE-C"),
        ("encryption.algorithm", "CSE-KMS"),
        ("encryption.algorithm", "CSE-CUSTOM"),
        ("encryption.algorithm", "ROT13"),
        ("encryption.context", "team=data"),
        ("acl.default", "bucket-owner"),
    ],
)
def test_encryption_by_the_client_is_refused(name: str, value: str) -> None:
    """So are a context, and unknown values."""
    settings = {"encryption.algorithm": "SSE-KMS", "encryption.key": "SSEHIDDEN", name: value}
    assert f"fs.s3a.{name}" in str(error({**KEYS, **REGION, **settings}))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("impl", "com.databricks.s3a.S3AFileSystem"),
        ("s3.client.factory.impl", f"{S3A}InconsistentS3ClientFactory"),
        ("signing-algorithm", "S3SignerType"),
        ("s3.signing-algorithm", "NoOpSignerType"),
        ("custom.signers", "Mine:org.example.Signer:org.example.Init"),
        ("http.signer.enabled", "true"),
        ("delegation.token.binding", f"{S3A}auth.delegation.SessionTokenBinding"),
        ("access.grants.enabled", "true"),
        ("accesspoint.arn", "arn:aws:s3:eu-west-2:1:accesspoint/ap"),
        ("client.s3.custom.headers", "x-secret=KEYHIDDEN"),
        ("audit.request.handlers", "org.example.Handler"),
        ("audit.execution.interceptors", "org.example.Interceptor"),
        ("create.checksum.algorithm", "CRC32C"),
        ("checksum.generation", "true"),
    ],
)
def test_settings_without_a_counterpart_are_refused(name: str, value: str) -> None:
    """The error names the setting, in its general form and in that of the bucket, and a remedy."""
    for form in (name, f"bucket.mine.{name}"):
        if form == "bucket.mine.impl":
            continue
        refused = error({**KEYS, **REGION, form: value})
        assert isinstance(refused, NotSupported)
        assert str(refused).startswith(f"fs.s3a.{form}: ")
        assert ". " in str(refused)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("s3.client.factory.impl", f"{S3A}DefaultS3ClientFactory"),
        ("signing-algorithm", "AWSS3V4SignerType"),
        ("s3.signing-algorithm", "AWS4UnsignedPayloadSignerType"),
        ("http.signer.enabled", "false"),
        ("access.grants.enabled", "False"),
        ("create.checksum.algorithm", ""),
        ("checksum.generation", "false"),
        ("sts.signing-algorithm", "Mine"),
        ("proxy.domain", "CORP"),
    ],
)
def test_harmless_values_are_accepted(name: str, value: str) -> None:
    """Defaults are accepted, and so are settings that do not apply."""
    assert dict(connection({**KEYS, **REGION, name: value}).options) == AWS


TUNING = (
    *("threads.max", "connection.maximum", "connection.timeout", "attempts.maximum", "retry.limit"),
    *("multipart.size", "multipart.threshold", "fast.upload.buffer", "block.size", "readahead.range"),
    *("committer.name", "committer.threads", "committer.magic.enabled", "input.stream.type"),
    *("experimental.input.fadvise", "directory.marker.retention", "create.performance", "list.version"),
    *(
        "ssl.channel.mode",
        "audit.enabled",
        "user.agent.prefix",
        "object.content.encoding",
        "bucket.probe",
    ),
    *("create.header.x", "request.md5.header", "connection.expect.continue", "io.rate.limit"),
)


def test_other_settings_are_ignored() -> None:
    """Settings that tune S3A and its committers do not change the connection."""
    tuned = {name: str(random.Random(name).random()) for name in TUNING}
    assert connection({**KEYS, **REGION, **tuned}) == connection({**KEYS, **REGION})


def test_no_secret_is_shown() -> None:
    """The repr shows no option: credentials can be in options, in the proxy and in a chain."""
    shown = repr(
        connection(
            {
                **KEYS,
                "session.token": "TOKENHIDDEN",
                "proxy.host": "proxy",
                "proxy.port": "1",
                "proxy.username": "user",
                "proxy.password": "PROXYHIDDEN",
                "aws.credentials.provider": (
                    f"{SDK_2}InstanceProfileCredentialsProvider,{S3A}TemporaryAWSCredentialsProvider"
                ),
            }
        )
    )
    assert shown == "S3AConnection(bucket='mine', find_region=True)"


def test_arguments_have_a_session_only_if_options_do_not_suffice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With keys in the settings, a table of leases finds its own credentials, as without S3A."""
    assert connection({**KEYS, **REGION}).arguments() == AWS
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    arguments: dict[str, Any] = connection(
        {**KEYS, **REGION, "proxy.host": "proxy", "proxy.port": "3128", "endpoint.fips": "true"}
    ).arguments()
    session = AwsSession(AwsOptions(**AWS), arguments.pop("session"))  # type: ignore[arg-type]
    assert arguments == AWS
    url = session.endpoint("s3", bucket="bucket")
    assert url == "https://bucket.s3-fips.eu-west-1.amazonaws.com"
    assert session.proxy(url) == "http://proxy:3128"


def test_the_region_of_the_bucket_is_an_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    """If it is not configured, S3 is asked for it, once for each call, without options of objects."""
    answer = 403, {"x-amz-bucket-region": "eu-west-3"}, b""
    with Recorder(lambda *_: answer) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", server.url)
        arguments = connection({**KEYS, "requester.pays.enabled": "true"}).arguments()
    assert arguments == {**OPTIONS, "region": "eu-west-3", "request_payer": "requester"}
    assert [(method, path) for method, path, _ in server.requests] == [("HEAD", "/mine")]
