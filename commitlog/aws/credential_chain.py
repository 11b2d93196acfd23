"""botocore sessions with chosen sources of credentials, and the region of a bucket.

botocore searches a fixed list of sources. Other clients of S3, such as Hadoop's S3A, are configured with
a list of their own: with botocore's list, they and this library could act as different users.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from botocore.config import Config
from botocore.credentials import (
    AssumeRoleCredentialFetcher,
    CredentialResolver,
    DeferredRefreshableCredentials,
    SharedCredentialProvider,
    create_credential_resolver,
)
from botocore.credentials import Credentials as StaticCredentials
from botocore.exceptions import BotoCoreError

from commitlog.aws.configuration import Boto3Session, open_session
from commitlog.aws.connections import ConnectionPool
from commitlog.aws.session import AwsSession
from commitlog.clock import SystemClock
from commitlog.errors import ConfigurationError, OutcomeUnknown, Unavailable

__all__ = ["bucket_region", "chain_session"]

#: Sources that botocore has, too, with the names of its providers.
_METHODS = {
    "container": {"container-role"},
    "instance": {"iam-role"},
    "web-identity": {"assume-role-with-web-identity"},
}
#: botocore's providers that read a profile.
_OF_PROFILES = frozenset(
    {"assume-role", "config-file", "custom-process", "login", "shared-credentials-file", "sso"}
    | {"assume-role-with-web-identity"}
)


class _Provider:
    """A provider for botocore's resolver, which calls `load` for credentials or None."""

    def __init__(self, method: str, load: Callable[[], Any]) -> None:
        self.METHOD = method
        self.load = load


def chain_session(
    sources: Sequence[str],
    *,
    keys: tuple[str, str, str | None] | None = None,
    profile: str = "default",
    profile_file: str | None = None,
    role: Mapping[str, Any] | None = None,
    sts: Mapping[str, str] | None = None,
    proxy: str | None = None,
    fips: bool = False,
) -> Boto3Session:
    """Return a botocore session that searches only `sources` for credentials. Nothing is sent.

    Args:
        sources: in the order of the search: ``container``, ``default`` (botocore's own search),
            ``instance``, ``keys``, ``profile`` (all settings of a profile), ``profile-file`` (only the
            keys of a profile in one file), ``web-identity``. If empty: botocore's own search.
        keys: the credentials of source ``keys``: id, secret and session token.
        profile: name of the profile.
        profile_file: path of the file for ``profile-file``.
        role: the arguments of STS's AssumeRole; credentials from the sources are used to assume it.
        sts: ``region_name`` and ``endpoint_url`` of STS.
        proxy: ``http://[user:password@]host:port``, for all requests; None: that of the environment.
        fips: whether requests to AWS go to its FIPS endpoints.

    Raises `ConfigurationError` if a file or a variable of the AWS configuration is invalid.
    """
    session = open_session(None)
    config: dict[str, Any] = {}
    if proxy is not None:
        config["proxies"] = {"http": proxy, "https": proxy}
    if fips:
        config["use_fips_endpoint"] = True
    if config:
        session.set_default_client_config(Config(**config))
    if not sources:
        return _typed(session)
    try:
        known = create_credential_resolver(session).providers
        providers: list[Any] = []
        for source in sources:
            if source == "keys":
                providers.append(_Provider("keys", partial(StaticCredentials, *(keys or ()))))
            elif source == "default":
                providers.extend(known)
            elif source == "profile":
                providers.extend(_of_profile(profile))
            elif source == "profile-file":
                providers.append(SharedCredentialProvider(profile_file, profile))
            else:
                methods = _METHODS[source]
                providers.extend(each for each in known if each.METHOD in methods)
    except BotoCoreError as error:
        raise ConfigurationError(f"AWS configuration: {error}") from error
    resolver = CredentialResolver(providers)
    if role is not None:
        load = partial(_assume, session, resolver, role, dict(sts or {}))
        resolver = CredentialResolver([_Provider("assume-role", load)])
    session.register_component("credential_provider", resolver)
    return _typed(session)


def _typed(session: Any) -> Boto3Session:
    found: Boto3Session = session
    return found


def _of_profile(profile: str) -> Iterable[Any]:
    session = open_session(profile)
    if profile not in session.available_profiles:
        return []
    return [
        each for each in create_credential_resolver(session).providers if each.METHOD in _OF_PROFILES
    ]


def _assume(session: Any, resolver: Any, role: Mapping[str, Any], sts: Mapping[str, str]) -> Any:
    """Return credentials of a role, which are fetched at their first use; None without a source."""
    source = resolver.load_credentials()
    if source is None:
        return None
    arguments = {name: value for name, value in role.items() if name != "RoleArn"}
    fetcher = AssumeRoleCredentialFetcher(
        partial(session.create_client, **sts), source, role["RoleArn"], extra_args=arguments
    )
    return DeferredRefreshableCredentials(refresh_using=fetcher.fetch_credentials, method="assume-role")


def bucket_region(bucket: str, session: AwsSession) -> str:
    """Return the region of a bucket on AWS; if S3 does not name it, the region of `session`.

    Sends one request without a signature: S3 names the region of each bucket to everyone.

    Raises `Unavailable` if S3 cannot be reached.
    """
    url = session.endpoint("s3")

    def ask() -> str | None:
        try:
            response = pool.begin("HEAD", f"/{bucket}", {})()
        except OutcomeUnknown as error:  # a HEAD changes nothing
            raise Unavailable(str(error)) from error
        region = response.headers.get("x-amz-bucket-region")
        if region is None and response.status >= 500:
            raise Unavailable(f"region of bucket {bucket}: {response.status}; try again later")
        return region

    pool = ConnectionPool(
        url,
        connect_timeout=session.connect_timeout,
        read_timeout=session.read_timeout,
        max_idle=0,
        verify=session.verify(),
        proxy=session.proxy(url),
        client_cert=session.client_cert,
    )
    try:
        return session.backoff().retry(SystemClock(), ask, on=Unavailable) or session.region
    finally:
        pool.close()
