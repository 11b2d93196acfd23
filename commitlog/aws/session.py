"""Who we are to AWS, or to a server that speaks its protocols, and where that server is.

Everything that a user may have configured for botocore (environment, profiles, instance roles, CA
bundles, endpoints of partitions) is taken from botocore itself; only requests are our own.
Imports botocore, and of the project errors and urls.
"""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import urlsplit

import botocore.session
from attrs import field, frozen, validators
from botocore import UNSIGNED
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.compat import HTTPHeaders
from botocore.config import Config
from botocore.exceptions import BotoCoreError
from botocore.utils import get_environ_proxies
from urllib3 import HTTPResponse

from commitlog.errors import AccessDenied, CommitError, ConfigurationError
from commitlog.urls import Url, check_endpoint

__all__ = ["AwsOptions", "AwsSession", "Boto3Session", "Credentials"]

_VERIFY_WORDS = {"true": True, "false": False}
#: Where a server of one's own is said to be when nobody says: what such servers expect by default.
_CUSTOM_REGION = "us-east-1"


def _endpoint(_instance: object, _attribute: object, value: str) -> None:
    check_endpoint(value)


def _verify(value: bool | str) -> bool | str:
    return _VERIFY_WORDS.get(value.lower(), value) if isinstance(value, str) else value


@frozen(kw_only=True)
class AwsOptions:
    """How to reach one service. What is None is looked up where botocore looks it up.

    Attributes:
        endpoint_url: ``http://host:port`` of a server other than AWS's own.
        region: name of the region that requests are signed for.
        profile: section of the AWS configuration files.
        access_key_id: with `secret_access_key`, instead of botocore's search for credentials.
        secret_access_key: see there.
        session_token: of temporary credentials.
        addressing_style: how a bucket is named in a URL: ``path``, ``virtual``, or ``auto``, which is
            a host name on AWS and a path elsewhere.
        verify: False to trust any TLS certificate, or the path of a CA bundle.
        connect_timeout: seconds to wait for a connection.
        read_timeout: seconds to wait for the next bytes of an answer.
        max_idle_connections: connections kept open while nobody uses them: as many as a large executor
            has threads, since each new one costs several round trips.

    >>> AwsOptions(access_key_id="AKIA", secret_access_key="x", verify="false")
    AwsOptions(endpoint_url=None, region=None, profile=None, addressing_style='auto', verify=False,
        connect_timeout=5.0, read_timeout=30.0, max_idle_connections=64)
    """

    endpoint_url: str | None = field(default=None, validator=validators.optional(_endpoint))
    region: str | None = None
    profile: str | None = None
    access_key_id: str | None = field(default=None, repr=False)
    secret_access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    addressing_style: str = "auto"
    verify: bool | str = field(default=True, converter=_verify)
    connect_timeout: float = field(default=5.0, validator=validators.gt(0))
    read_timeout: float = field(default=30.0, validator=validators.gt(0))
    max_idle_connections: int = field(default=64, validator=validators.ge(0))

    def __attrs_post_init__(self) -> None:
        if self.addressing_style not in ("auto", "path", "virtual"):
            raise ConfigurationError("addressing_style must be auto, path or virtual")
        if (self.access_key_id is None) != (self.secret_access_key is None):
            raise ConfigurationError("give access_key_id and secret_access_key together, or neither")
        if self.session_token is not None and self.access_key_id is None:
            raise ConfigurationError("session_token needs access_key_id and secret_access_key")

    @classmethod
    def from_url(cls, url: Url) -> AwsOptions:
        """Return the options in the query of `url`."""
        options: dict[str, Any] = dict(url.options)
        return cls(**options)


class Credentials(Protocol):
    """What a request is signed with: botocore's frozen credentials."""

    @property
    def access_key(self) -> str:
        """Name of the key; it is sent."""

    @property
    def secret_key(self) -> str:
        """The key itself; it never is."""

    @property
    def token(self) -> str | None:
        """What temporary credentials are sent with."""


class Boto3Session(Protocol):
    """What is used of a ``boto3.session.Session``."""

    @property
    def profile_name(self) -> str:
        """Name of its profile, or ``default``."""

    @property
    def region_name(self) -> str | None:
        """Its region, if one is configured."""

    def get_credentials(self) -> Any:
        """Return botocore's credentials, or None."""


def _open(profile: str | None) -> Any:
    # It reads its data, such as that of endpoints, as files in its own directory.
    home = os.path.dirname(botocore.session.__file__)
    if not os.path.isdir(home):
        raise ConfigurationError(
            f"botocore is imported from a zip file ({home}), and cannot read its data there: install"
            " commitlog-store on each machine. With Spark, ship an environment in place of --py-files:"
            " --archives env.tar.gz#env, packed by venv-pack or conda-pack, and"
            " PYSPARK_PYTHON=./env/bin/python"
        )
    # Any: botocore's stubs are optional, and stricter than what it documents.
    return botocore.session.Session(profile=profile)


def _profile_of(session: Boto3Session | None) -> str | None:
    # boto3 says "default" also where no such profile exists, which botocore would take for a mistake.
    name = session.profile_name if session is not None else "default"
    return None if name == "default" else name


class AwsSession:
    """One set of options, resolved. Of its methods `credentials` alone is thread-safe.

    Args:
        options: what was asked for.
        session: a boto3 session of the caller's, which gives the credentials (refreshed, if it
            refreshes them), the region and the profile that `options` leave open.

    Raises `ConfigurationError` if the profile is unknown.
    """

    def __init__(self, options: AwsOptions, session: Boto3Session | None = None) -> None:
        self.options = options
        if session is not None and options.profile is not None:
            raise ConfigurationError("give a boto3 session or a profile, not both")
        self._botocore = _open(options.profile or _profile_of(session))
        if options.access_key_id is not None:
            self._botocore.set_credentials(
                options.access_key_id, options.secret_access_key, options.session_token
            )
        try:
            chosen: Any = self._botocore if session is None or options.access_key_id else session
            self._credentials = chosen.get_credentials()
            region = options.region or (session and session.region_name)
            region = region or self._botocore.get_config_variable("region")
        except BotoCoreError as error:
            raise ConfigurationError(f"AWS configuration: {error}") from error
        self._region_given = region is not None
        #: The region that requests are signed for.
        self.region: str = region or _CUSTOM_REGION

    def credentials(self) -> Credentials:
        """Return credentials that are valid now, refreshed if they come from a role.

        Raises `ConfigurationError` if there are none, `AccessDenied` if refreshing them failed.
        """
        if self._credentials is None:
            raise ConfigurationError(
                "no AWS credentials found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, choose a "
                "profile, or pass access_key_id and secret_access_key"
            )
        try:
            current: Credentials = self._credentials.get_frozen_credentials()
        except Exception as error:  # a refusal, a fault of the network, or of the caller's own refresher
            raise AccessDenied(f"AWS credentials could not be obtained: {error}") from error
        return current

    def endpoint(self, service: str, *, bucket: str | None = None) -> str:
        """Return the URL under which `service`, or a bucket of it, is reached, no slash at its end.

        botocore decides: partitions, dual stack, FIPS, virtual addressing. Nothing is sent. Raises
        `ConfigurationError` if AWS itself is meant and nothing says which region.
        """
        own = self.options.endpoint_url
        if own is not None and self._addressing_style() != "virtual":
            # What botocore would come to, without the tenth of a second that it takes it.
            return own.rstrip("/") + (f"/{bucket}" if bucket else "")
        try:
            client = self._client(service)
            url: str = client.meta.endpoint_url
            if not self._region_given and "amazonaws." in (urlsplit(url).hostname or ""):
                raise ConfigurationError(
                    "no AWS region found: set AWS_DEFAULT_REGION, or pass region=… or endpoint_url=…"
                )
            if bucket is not None:
                url = _where_a_request_goes(client, bucket)
        except CommitError:
            raise
        except (BotoCoreError, ValueError) as error:
            raise ConfigurationError(f"AWS configuration: {error}") from error
        return url.rstrip("/")

    def verify(self) -> bool | str:
        """Return what TLS certificates are checked against: True, False or the path of a CA bundle."""
        if self.options.verify is not True:
            return self.options.verify
        configured: str | None = self._botocore.get_config_variable("ca_bundle")
        return configured or os.environ.get("REQUESTS_CA_BUNDLE") or True

    def proxy(self, url: str) -> str | None:
        """Return the URL of the HTTP proxy that the environment wants for `url`, if any."""
        proxies: Mapping[str, str] = get_environ_proxies(url)
        return proxies.get(urlsplit(url).scheme)

    def _addressing_style(self) -> str:
        if self.options.addressing_style != "auto":
            return self.options.addressing_style
        configured: str = (
            self._botocore.get_scoped_config().get("s3", {}).get("addressing_style", "auto")
        )
        return configured

    def _client(self, service: str) -> Any:
        # Finding a place takes no credentials, and must not fail for want of them.
        config: dict[str, Any] = {"signature_version": UNSIGNED}
        if self.options.addressing_style != "auto":
            config["s3"] = {"addressing_style": self.options.addressing_style}
        return self._botocore.create_client(
            service,
            region_name=self.region,
            endpoint_url=self.options.endpoint_url,
            config=Config(**config),
        )


def _where_a_request_goes(client: Any, bucket: str) -> str:
    """Return the URL of a HeadBucket, caught on its way out.

    A presigned URL would be easier to have, but names the host of another region.
    """
    seen: list[str] = []

    def catch(request: AWSPreparedRequest, **_: object) -> AWSResponse:
        seen.append(request.url)
        nothing = HTTPResponse(io.BytesIO(), preload_content=False)
        return AWSResponse(request.url, 200, HTTPHeaders(), nothing)

    client.meta.events.register("before-send.s3.HeadBucket", catch)
    client.head_bucket(Bucket=bucket)
    return seen[0]
