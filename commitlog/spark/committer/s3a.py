"""Settings of Hadoop's S3A (``fs.s3a.…``), translated to arguments of `commitlog.connect`.

Spark's tasks write files through S3A, and this library commits them: both must reach the same bucket, at
the same endpoint, as the same user. There are three kinds of settings:

* translated: endpoint, region, addressing, proxy, credentials, encryption, ACL, requester pays;
* refused, unless they have Hadoop's default: they change requests in a way that has no counterpart here,
  such as a custom signer. The error names the setting;
* ignored: all others. They tune S3A (threads, buffers, retries, sizes) or its own committers.

The names are those of Hadoop 3.3.4 to 3.5.0; see "Connection settings" in ``docs/spark-s3a.md``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any
from urllib.parse import quote, urlsplit

from attrs import field, frozen

from commitlog._util.parsing import parse_seconds
from commitlog.errors import ConfigurationError, NotSupported
from commitlog.urls import OBJECT_OPTIONS, check_endpoint, parse_store_url

__all__ = ["S3AConnection", "s3_connection", "s3_url"]

_PREFIX = "fs.s3a."
_S3A = "org.apache.hadoop.fs.s3a."
_SDK_1 = "com.amazonaws.auth."
_SDK_2 = "software.amazon.awssdk.auth.credentials."
#: Region of S3A's requests to AWS if it knows no other.
_FALLBACK_REGION = "us-east-2"
#: Region in signatures for other servers: their default.
_CUSTOM_REGION = "us-east-1"


@frozen(kw_only=True)
class S3AConnection:
    """The connection of S3A to one bucket. It can have credentials, so no value is in its repr.

    Attributes:
        bucket: name of the bucket.
        options: options of `commitlog.connect`, all of them text.
        session: arguments of `commitlog.aws.credential_chain.chain_session`; None if `options` suffice.
        find_region: whether the region of the bucket is not configured, so that S3 must be asked for it.
    """

    bucket: str
    options: Mapping[str, str] = field(repr=False)
    session: Mapping[str, Any] | None = field(default=None, repr=False)
    find_region: bool = False

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `commitlog.connect` besides the URL.

        A ``session`` among them is used for a table of leases in DynamoDB, too. Keep the result: if the
        region is not configured, each call sends a request to S3.

        Raises:
            ConfigurationError: the AWS configuration of this machine is invalid.
            Unavailable: S3 did not say in which region the bucket is.
        """
        arguments: dict[str, Any] = dict(self.options)
        if self.session is not None:
            from commitlog.aws.credential_chain import chain_session

            arguments["session"] = chain_session(**self.session)
        if self.find_region:
            from commitlog.aws import AwsOptions, AwsSession
            from commitlog.aws.credential_chain import bucket_region

            known = {name: text for name, text in self.options.items() if name not in OBJECT_OPTIONS}
            options = AwsOptions(**{**known, "region": _FALLBACK_REGION})  # type: ignore[arg-type]
            session = AwsSession(options, arguments.get("session"))
            arguments["region"] = bucket_region(self.bucket, session)
        return arguments


def s3_url(url: str) -> str:
    """Return the URL for `commitlog.connect` of a path in S3A, as Hadoop's ``Path.toString`` spells it.

    Raises `ConfigurationError` for another scheme, and for a URL without a bucket or with credentials.

    >>> s3_url("s3a://bucket/daily sales/50%")
    's3://bucket/daily%20sales/50%25'
    """
    scheme, colon, place = url.partition("://")
    if not colon or scheme.lower() != "s3a":
        raise ConfigurationError(
            f"scheme {scheme[:20]!r}: only paths of S3A are supported: s3a://bucket/…"
        )
    return str(parse_store_url(f"s3://{quote(place, safe='/@:')}"))


def s3_connection(
    settings: Mapping[str, str], bucket: str, *, environ: Mapping[str, str] | None = None
) -> S3AConnection:
    """Return the connection that S3A has to `bucket`. Nothing is sent.

    Args:
        settings: all settings ``fs.s3a.…`` of Hadoop's configuration, with its defaults and with those
            of single buckets (``fs.s3a.bucket.NAME.…``), without variables (``${…}``), and with the
            passwords from Hadoop's credential providers.
        bucket: name of the bucket.
        environ: the environment of the driver; None for that of this process.

    Raises:
        NotSupported: a setting has no counterpart here. The error names it.
        ConfigurationError: the value of a setting is invalid, or no source has credentials.

    >>> keys = {"fs.s3a.access.key": "AKIA", "fs.s3a.secret.key": "hush"}
    >>> found = s3_connection(
    ...     {"fs.s3a.endpoint": "http://host:9000", "fs.s3a.path.style.access": "true", **keys}, "bucket"
    ... )
    >>> found.options["endpoint_url"], found.options["addressing_style"]
    ('http://host:9000', 'path')
    """
    read = _Settings(settings, bucket)
    for name, (accepted, reason) in _REFUSED.items():
        if read.text(name).lower() not in {"", *(value.lower() for value in accepted)}:
            raise NotSupported(f"{read.name(name)}: {reason}")
    place, find_region = _place(read, os.environ if environ is None else environ)
    chain = _chain(read, "aws.credentials.provider", os.environ if environ is None else environ)
    keys = {}
    if chain["sources"] == ("keys",) and "role" not in chain:
        access_key, secret_key, token = chain["keys"]
        keys = {"access_key_id": access_key, "secret_access_key": secret_key}
        keys |= {"session_token": token} if token else {}
        chain = {"sources": ()}
    network = _network(read, place)
    return S3AConnection(
        bucket=bucket,
        options=MappingProxyType({**place, **keys, **_object_options(read)}),
        session={**chain, **network} if network or chain["sources"] else None,
        find_region=find_region,
    )


# -- settings ----------------------------------------------------------------------------------------

#: Old names, which Hadoop still reads.
_DEPRECATED = {
    "server-side-encryption-algorithm": "encryption.algorithm",
    "server-side-encryption.key": "encryption.key",
}
#: Settings that S3A also reads by the name ``fs.s3a.bucket.NAME.fs.s3a.…``, before all others.
_SECRETS = frozenset(
    {"access.key", "secret.key", "session.token", "proxy.username", "proxy.password"}
    | {"encryption.algorithm", "encryption.key", "encryption.context"}
)
_SIGNERS = ("AWSS3V4SignerType", "AWS4SignerType", "AWS4UnsignedPayloadSignerType")
_WITH_SIGNER = "commitlog signs requests by Signature Version 4 only. Remove the setting"
_WITH_CHECKSUMS = (
    "such an upload is completed with the checksum of each part, which commitlog does not send. Remove"
    " the setting: S3 has checksums of its own"
)
_WITH_HANDLERS = "commitlog cannot run Java classes that change requests. Remove the setting"

#: Settings without a counterpart: the accepted values, and the reason with the remedy.
_REFUSED: Mapping[str, tuple[Sequence[str], str]] = {
    "impl": (
        (f"{_S3A}S3AFileSystem",),
        f"commitlog knows the settings of Hadoop's S3A only. Set {_S3A}S3AFileSystem",
    ),
    "s3.client.factory.impl": (
        (f"{_S3A}DefaultS3ClientFactory",),
        "commitlog cannot know how such a client reaches S3. Remove the setting",
    ),
    "signing-algorithm": (_SIGNERS, _WITH_SIGNER),
    "s3.signing-algorithm": (_SIGNERS, _WITH_SIGNER),
    "custom.signers": ((), _WITH_SIGNER),
    "http.signer.enabled": (("false",), _WITH_SIGNER),
    "delegation.token.binding": (
        (),
        "commitlog cannot read delegation tokens. Remove the setting, and choose credentials by"
        " fs.s3a.aws.credentials.provider",
    ),
    "access.grants.enabled": (
        ("false",),
        "commitlog does not request credentials from S3 Access Grants. Give the driver a role that can"
        " access the bucket",
    ),
    "accesspoint.arn": (
        (),
        "commitlog reaches an access point by its alias, not by its ARN. Remove the setting, and write"
        " to s3a://ALIAS/…",
    ),
    "client.s3.custom.headers": ((), "commitlog sends no such headers. Remove the setting"),
    "audit.request.handlers": ((), _WITH_HANDLERS),
    "audit.execution.interceptors": ((), _WITH_HANDLERS),
    "create.checksum.algorithm": ((), _WITH_CHECKSUMS),
    "checksum.generation": (("false",), _WITH_CHECKSUMS),
}


class _Settings:
    """The settings of one bucket by their names without ``fs.s3a.``; its own override general ones."""

    def __init__(self, settings: Mapping[str, str], bucket: str) -> None:
        of_bucket = f"{_PREFIX}bucket.{bucket}."
        own: dict[str, tuple[str, str]] = {}
        for name, value in settings.items():
            short = name.removeprefix(of_bucket)
            # S3A does not read these for a bucket.
            if short != name and short != "impl" and not short.startswith("bucket."):
                own[short] = value.strip(), name
        everywhere = {
            name.removeprefix(_PREFIX): (value.strip(), name)
            for name, value in settings.items()
            if name.startswith(_PREFIX) and not name.startswith(f"{_PREFIX}bucket.")
        }
        self._values = _renamed(everywhere) | _renamed(own)
        for name in _SECRETS:
            found = own.get(_PREFIX + name)
            if found is not None and found[0]:
                self._values[name] = found

    def text(self, name: str) -> str:
        """Return the value without spaces at its ends; an empty text if it is not set."""
        return self._values.get(name, ("", ""))[0]

    def name(self, name: str) -> str:
        """Return the full name of the setting that counts, for errors."""
        return self._values.get(name, ("", _PREFIX + name))[1]

    def has(self, name: str) -> bool:
        """Return whether the setting is set, if only to an empty text."""
        return name in self._values

    def flag(self, name: str, default: bool = False) -> bool:
        """Return a boolean; as in Hadoop, every other text means the default."""
        return {"true": True, "false": False}.get(self.text(name).lower(), default)

    def list(self, name: str) -> list[str]:
        """Return the entries of a list that are not empty."""
        return [entry.strip() for entry in self.text(name).split(",") if entry.strip()]


def _renamed(values: Mapping[str, tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """Return settings with the current names in place of deprecated ones."""
    old = {_DEPRECATED[name]: value for name, value in values.items() if name in _DEPRECATED}
    current = {name: value for name, value in values.items() if name not in _DEPRECATED}
    return current | {name: value for name, value in old.items() if not current.get(name, ("",))[0]}


# -- place -------------------------------------------------------------------------------------------

_CENTRAL = "s3.amazonaws.com"
_REGION = re.compile(r"[a-z0-9-]+")
#: Values that tell Hadoop after 3.5.0 where to search.
_NO_REGIONS = frozenset({"ec2", "external", "sdk"})
_OF_AWS = re.compile(r".*\.amazonaws\.com(?:\.cn)?")
#: Hosts of AWS that name their region: those of S3, and interface endpoints of a VPC.
_REGIONAL = (
    re.compile(r"(?:.+\.)?s3(?:-fips)?(?:\.dualstack)?[.-]([a-z]{2}(?:-[a-z]+)+-\d+)\.amazonaws\..+"),
    re.compile(r"(?:.+\.)?([a-z0-9-]+)\.vpce\.amazonaws\..+"),
)


def _place(read: _Settings, environ: Mapping[str, str]) -> tuple[dict[str, str], bool]:
    """Return the options for endpoint, region and addressing, and whether S3 must name the region."""
    endpoint = read.text("endpoint")
    if endpoint and "://" not in endpoint:
        secure = read.flag("connection.ssl.enabled", default=True)
        endpoint = f"{'https' if secure else 'http'}://{endpoint}"
    try:
        host = urlsplit(check_endpoint(endpoint)).hostname or "" if endpoint else ""
    except ConfigurationError:
        raise ConfigurationError(
            f"{read.name('endpoint')}: write host, host:port or http(s)://host:port, without credentials"
        ) from None
    region = read.text("endpoint.region")
    if region in _NO_REGIONS or (region and not _REGION.fullmatch(region)):
        raise ConfigurationError(f"{read.name('endpoint.region')}: give the name of the region")
    options = {"addressing_style": "path"} if read.flag("path.style.access") else {}
    if host and not host.endswith(_CENTRAL):
        options = {"endpoint_url": endpoint, "addressing_style": "virtual", **options}
        region = region or _region_of(host)
        if not region:
            raise ConfigurationError(
                f"{read.name('endpoint')} names no region: set fs.s3a.endpoint.region, too"
            )
    elif not region and read.has("endpoint.region"):
        # An empty text: the AWS SDK searches. It reads AWS_REGION, which botocore does not.
        region = environ.get("AWS_REGION", "")
        return {**options, **({"region": region} if region else {})}, False
    elif not region and not read.flag("cross.region.access.enabled", default=True):
        region = _FALLBACK_REGION
    return {**options, **({"region": region} if region else {})}, not region


def _region_of(host: str) -> str:
    """Return the region of a server; an empty text if it is of AWS and its name has no region."""
    if not _OF_AWS.fullmatch(host):
        return _CUSTOM_REGION
    found = [match[1] for pattern in _REGIONAL if (match := pattern.fullmatch(host))]
    return found[0] if found else ""


def _network(read: _Settings, place: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of `chain_session` for the proxy and for FIPS endpoints."""
    arguments: dict[str, Any] = {}
    if read.flag("endpoint.fips"):
        if "endpoint_url" in place:
            raise ConfigurationError(f"{read.name('endpoint.fips')} excludes {read.name('endpoint')}")
        arguments["fips"] = True
    host, port = read.text("proxy.host"), read.text("proxy.port")
    if not host:
        return arguments
    for name in ("proxy.domain", "proxy.workstation"):
        if read.text(name):
            raise NotSupported(f"{read.name(name)}: a proxy with NTLM is not supported")
    if read.flag("proxy.ssl.enabled"):
        raise NotSupported(f"{read.name('proxy.ssl.enabled')}: proxies are reached by http:// only")
    if not (port.isdecimal() and 0 < int(port) < 2**16):
        # The default of S3A depends on its version.
        raise ConfigurationError(f"{read.name('proxy.port')}: give the port of the proxy")
    if not re.fullmatch(r"[A-Za-z0-9._:-]+", host):
        raise ConfigurationError(f"{read.name('proxy.host')}: not the name of a host")
    user, password = read.text("proxy.username"), read.text("proxy.password")
    if bool(user) != bool(password):
        missing = "proxy.password" if user else "proxy.username"
        raise ConfigurationError(f"{_PREFIX}{missing} is missing: set both or neither")
    login = f"{quote(user, safe='')}:{quote(password, safe='')}@" if user else ""
    shown = f"[{host}]" if ":" in host else host
    return {**arguments, "proxy": f"http://{login}{shown}:{port}"}


# -- credentials -------------------------------------------------------------------------------------

#: The default of Hadoop.
_PROVIDERS = (
    *(f"{_S3A}TemporaryAWSCredentialsProvider", f"{_S3A}SimpleAWSCredentialsProvider"),
    *(f"{_SDK_2}EnvironmentVariableCredentialsProvider", f"{_S3A}auth.IAMInstanceCredentialsProvider"),
)
#: Classes of providers, and the sources that they read.
_KINDS = {
    f"{_S3A}TemporaryAWSCredentialsProvider": "temporary",
    f"{_S3A}SimpleAWSCredentialsProvider": "simple",
    f"{_S3A}BasicAWSCredentialsProvider": "simple",
    f"{_S3A}AnonymousAWSCredentialsProvider": "anonymous",
    f"{_S3A}SharedInstanceCredentialProvider": "iam",
    f"{_S3A}auth.IAMInstanceCredentialsProvider": "iam",
    f"{_S3A}auth.AssumedRoleCredentialProvider": "role",
    f"{_S3A}auth.ProfileAWSCredentialsProvider": "profile-file",
    f"{_SDK_1}AnonymousAWSCredentials": "anonymous",
    f"{_SDK_1}ContainerCredentialsProvider": "container",
    f"{_SDK_1}DefaultAWSCredentialsProviderChain": "default",
    f"{_SDK_1}EC2ContainerCredentialsProviderWrapper": "iam",
    f"{_SDK_1}EnvironmentVariableCredentialsProvider": "environment",
    f"{_SDK_1}InstanceProfileCredentialsProvider": "iam",
    f"{_SDK_1}WebIdentityTokenCredentialsProvider": "web-identity",
    f"{_SDK_1}profile.ProfileCredentialsProvider": "profile",
    f"{_SDK_2}AnonymousCredentialsProvider": "anonymous",
    f"{_SDK_2}ContainerCredentialsProvider": "container",
    f"{_SDK_2}DefaultCredentialsProvider": "default",
    f"{_SDK_2}EnvironmentVariableCredentialsProvider": "environment",
    f"{_SDK_2}InstanceProfileCredentialsProvider": "instance",
    f"{_SDK_2}ProfileCredentialsProvider": "profile",
    f"{_SDK_2}WebIdentityTokenFileCredentialsProvider": "web-identity",
}
#: Sources that may turn out to have no credentials when they are searched.
_UNCERTAIN = frozenset({"default", "instance", "profile", "profile-file"})
_OF_CONTAINERS = ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI")
_OF_WEB_IDENTITIES = ("AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE")
_Keys = tuple[str, str, str | None]


def _chain(read: _Settings, setting: str, environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of `chain_session` for the providers that `setting` lists.

    S3A skips a provider without credentials, and does not reach those after the first one with
    credentials. Both are left out.
    """
    of_bucket = setting == "aws.credentials.provider"
    pairs = (entry.partition("=") for entry in read.list("aws.credentials.provider.mapping"))
    mapping = {name.strip(): value.strip() for name, _, value in pairs}
    sources: list[str] = []
    arguments: dict[str, Any] = {}
    for listed in read.list(setting) or (_PROVIDERS if of_bucket else _PROVIDERS[1:3]):
        kind = _KINDS.get(mapping.get(listed, listed))
        if kind is None:
            raise NotSupported(
                f"{read.name(setting)}: {listed} is a Java class without a counterpart in Python. Use"
                " keys, environment variables, a profile, the role of the machine or container, a web"
                " identity, or an assumed role"
            )
        if kind == "anonymous":
            if sources:
                break
            raise NotSupported(f"{read.name(setting)}: requests without a signature are not supported")
        if kind == "role":
            if sources or not of_bucket:
                raise NotSupported(f"{read.name(setting)}: an assumed role must be the first provider")
            return _role(read, environ)
        source: str | None = kind
        if kind in ("temporary", "simple", "environment"):
            keys = _keys(kind, read, environ)
            source = None if keys is None else "keys"
            arguments |= {} if keys is None else {"keys": keys}
        elif kind == "web-identity" and not all(map(environ.get, _OF_WEB_IDENTITIES)):
            source = None
        elif kind in ("container", "iam"):
            instance = "instance" if kind == "iam" else None
            source = "container" if any(map(environ.get, _OF_CONTAINERS)) else instance
        if source is not None:
            sources.append(source)
            if source not in _UNCERTAIN:
                break
    if not sources:
        raise ConfigurationError(
            f"no provider in {read.name(setting)} has credentials: set fs.s3a.access.key and"
            " fs.s3a.secret.key, or list another provider"
        )
    if "profile" in sources or "profile-file" in sources:
        own = read.text("auth.profile.name") if "profile-file" in sources else ""
        arguments["profile"] = own or environ.get("AWS_PROFILE") or "default"
        file = read.text("auth.profile.file") or environ.get("AWS_SHARED_CREDENTIALS_FILE")
        arguments["profile_file"] = file or "~/.aws/credentials"
    return {"sources": tuple(sources), **arguments}


def _keys(kind: str, read: _Settings, environ: Mapping[str, str]) -> _Keys | None:
    """Return the id, secret and token of a key; None if one of them is missing."""
    if kind == "environment":
        names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
        access_key, secret_key, token = (environ.get(name, "").strip() for name in names)
    else:
        access_key, secret_key, token = map(read.text, ("access.key", "secret.key", "session.token"))
    if not access_key or not secret_key or (kind == "temporary" and not token):
        return None
    return access_key, secret_key, None if kind == "simple" else token or None


def _role(read: _Settings, environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of `chain_session` for the role that S3A assumes."""
    arn = read.text("assumed.role.arn")
    if not arn:
        raise ConfigurationError(
            f"{_PREFIX}assumed.role.arn is missing: the provider of a role needs it"
        )
    for name in ("sts.signing-algorithm", "client.sts.custom.headers"):
        if read.text(name) and read.text(name) not in _SIGNERS:
            raise NotSupported(f"{read.name(name)}: {_WITH_HANDLERS}")
    try:
        seconds = parse_seconds(read.text("assumed.role.session.duration") or "30m")
    except ConfigurationError as error:
        raise ConfigurationError(f"{read.name('assumed.role.session.duration')}: {error}") from None
    user = environ.get("HADOOP_USER_NAME") or environ.get("USER") or "commitlog"
    role = {
        "RoleArn": arn,
        "RoleSessionName": read.text("assumed.role.session.name")
        or re.sub(r"[^A-Za-z0-9,.@-]", "-", user)[:64],
        "DurationSeconds": int(seconds),
        "Policy": read.text("assumed.role.policy"),
        "ExternalId": read.text("assumed.role.external.id"),
    }
    endpoint, region = (read.text(f"assumed.role.sts.endpoint{part}") for part in ("", ".region"))
    if endpoint and "://" not in endpoint:
        endpoint = f"https://{endpoint}"
    sts = {
        "region_name": region or read.text("endpoint.region") or _CUSTOM_REGION,
        **({"endpoint_url": endpoint} if endpoint else {}),
    }
    chain = _chain(read, "assumed.role.credentials.provider", environ)
    return {**chain, "role": {name: value for name, value in role.items() if value}, "sts": sts}


# -- objects -----------------------------------------------------------------------------------------

_ENCRYPTIONS = {
    "AES256": "AES256",
    "SSE-KMS": "aws:kms",
    "DSSE-KMS": "aws:kms:dsse",
}


def _object_options(read: _Settings) -> dict[str, str]:
    """Return the options of the objects that the library writes itself, such as its records."""
    options = {"request_payer": "requester"} if read.flag("requester.pays.enabled") else {}
    if acl := read.text("acl.default"):
        if not re.fullmatch(r"[A-Z][A-Za-z]+", acl):
            raise ConfigurationError(f"{read.name('acl.default')}: no canned ACL, such as Private")
        options["acl"] = re.sub(r"(?<!^)(?=[A-Z])", "-", acl).lower()
    algorithm = read.text("encryption.algorithm").upper()
    if not algorithm:
        return options
    setting = read.name("encryption.algorithm")
    if algorithm == "SSE-C" or algorithm.startswith("CSE"):
        raise NotSupported(
            f"{setting} is {algorithm}: keys of the client are not supported. Use SSE-KMS for the bucket"
        )
    if algorithm not in _ENCRYPTIONS:
        raise ConfigurationError(f"{setting}: unknown; known: {', '.join(_ENCRYPTIONS)}")
    options["server_side_encryption"] = _ENCRYPTIONS[algorithm]
    if algorithm != "AES256":
        if read.text("encryption.context"):
            raise NotSupported(
                f"{read.name('encryption.context')}: an encryption context is not supported. Remove it,"
                " and let the policy of the key do without it"
            )
        if key := read.text("encryption.key"):
            options["sse_kms_key_id"] = key
    return options
