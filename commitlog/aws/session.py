"""Credentials and endpoints of AWS, or of a server with the same protocols.

All settings for botocore (environment, profiles, instance roles, CA bundles, endpoints of partitions)
are taken from botocore. Only the requests are sent by this library.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import urlsplit

from attrs import field, frozen, validators
from botocore import UNSIGNED
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.compat import HTTPHeaders
from botocore.config import Config
from botocore.credentials import Credentials as StaticCredentials
from botocore.exceptions import BotoCoreError
from botocore.utils import get_environ_proxies
from urllib3 import HTTPResponse

from commitlog._util.parsing import check_choice
from commitlog._util.retry import Backoff
from commitlog.aws.configuration import (
    Boto3Client,
    Boto3Session,
    Configuration,
    of_client,
    of_session,
    open_session,
)
from commitlog.errors import AccessDenied, CommitError, ConfigurationError
from commitlog.urls import SECRET_OPTIONS, SERVICE_OPTIONS, Url, check_endpoint

__all__ = ["AwsOptions", "AwsSession", "Credentials"]

_VERIFY_VALUES = {"true": True, "false": False}
#: Region of a server other than AWS, if none is given: the default of such servers.
_CUSTOM_REGION = "us-east-1"


def _endpoint(_instance: object, _attribute: object, value: str) -> None:
    check_endpoint(value)


def _verify(value: bool | str) -> bool | str:
    return _VERIFY_VALUES.get(value.lower(), value) if isinstance(value, str) else value


@frozen(kw_only=True)
class AwsOptions:
    """Options of one service. Options that are None are looked up as botocore does.

    Attributes:
        endpoint_url: ``http://host:port`` of a server other than AWS's own.
        region: name of the region in signatures.
        profile: section of the AWS configuration files.
        access_key_id: with `secret_access_key`, instead of botocore's search for credentials.
        secret_access_key: see `access_key_id`.
        session_token: of temporary credentials.
        addressing_style: the place of the bucket in a URL: ``path``, ``virtual``, or ``auto``, which is
            the host name on AWS and the path elsewhere.
        verify: False to trust any TLS certificate, or the path of a CA bundle.
        connect_timeout: seconds to wait for a connection. None: the value of a boto3 session or
            client, else 5.
        read_timeout: seconds to wait for the next bytes of an answer. None: likewise, else 30.
        max_idle_connections: connections kept open while no request uses them. None: the
            ``max_pool_connections`` of a boto3 session or client, else 64: as many as a large executor
            has threads, since each new one costs several round trips.

    >>> AwsOptions(access_key_id="AKIA", secret_access_key="x", verify="false")
    AwsOptions(endpoint_url=None, region=None, profile=None, addressing_style='auto', verify=False,
        connect_timeout=None, read_timeout=None, max_idle_connections=None)
    """

    endpoint_url: str | None = field(default=None, validator=validators.optional(_endpoint))
    region: str | None = None
    profile: str | None = None
    access_key_id: str | None = field(default=None, repr=False)
    secret_access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    addressing_style: str = "auto"
    verify: bool | str = field(default=True, converter=_verify)
    connect_timeout: float | None = field(default=None, validator=validators.optional(validators.gt(0)))
    read_timeout: float | None = field(default=None, validator=validators.optional(validators.gt(0)))
    max_idle_connections: int | None = field(
        default=None, validator=validators.optional(validators.ge(0))
    )

    def __attrs_post_init__(self) -> None:
        check_choice("addressing_style", self.addressing_style, ("auto", "path", "virtual"))
        if (self.access_key_id is None) != (self.secret_access_key is None):
            raise ConfigurationError("give access_key_id and secret_access_key together, or neither")
        if self.session_token is not None and self.access_key_id is None:
            raise ConfigurationError("session_token needs access_key_id and secret_access_key")

    @classmethod
    def from_url(cls, url: Url) -> AwsOptions:
        """Return the service options in the query of `url`."""
        known = SERVICE_OPTIONS | SECRET_OPTIONS
        options: dict[str, Any] = {k: v for k, v in url.options.items() if k in known}
        return cls(**options)


class Credentials(Protocol):
    """Credentials that sign a request: botocore's frozen credentials."""

    @property
    def access_key(self) -> str:
        """The id of the key, which is sent."""

    @property
    def secret_key(self) -> str:
        """The secret key, which is never sent."""

    @property
    def token(self) -> str | None:
        """The session token of temporary credentials."""


class AwsSession:
    """A resolved set of options. Only `credentials` is thread-safe.

    Args:
        options: the options of the caller.
        session: a boto3 session of the caller. It supplies the settings that `options` leave open:
            credentials (read before each request, so that those of a role are refreshed), region,
            endpoint, addressing style, timeouts, pool size, attempts, proxies, CA bundle and client
            certificate.
        client: a boto3 client of the caller, which supplies the same. It takes precedence over
            `session`.

    Raises `ConfigurationError` if the profile is unknown, or if the session or the client has a setting
    that is not supported.
    """

    def __init__(
        self,
        options: AwsOptions,
        session: Boto3Session | None = None,
        *,
        client: Boto3Client | None = None,
    ) -> None:
        self.options = options
        if options.profile is not None and (session is not None or client is not None):
            what = "session" if client is None else "client"
            raise ConfigurationError(f"give a boto3 {what} or a profile, not both")
        own = options.access_key_id is not None
        try:
            found = (
                of_session(session or open_session(options.profile), search=not own)
                if client is None
                else of_client(client)
            )
        except CommitError:
            raise
        except (BotoCoreError, ValueError) as error:
            raise ConfigurationError(f"AWS configuration: {error}") from error
        self._found: Configuration = found
        self._credentials: Any = found.credentials
        if own:
            self._credentials = StaticCredentials(
                options.access_key_id, options.secret_access_key, options.session_token
            )
        region = options.region or found.region
        self._has_region = region is not None
        #: The region in signatures.
        self.region: str = region or _CUSTOM_REGION
        config = found.config
        #: Seconds to wait for a connection.
        self.connect_timeout: float = options.connect_timeout or config.connect_timeout
        #: Seconds to wait for the next bytes of an answer.
        self.read_timeout: float = options.read_timeout or config.read_timeout
        idle = options.max_idle_connections
        #: Connections kept open while no request uses them.
        self.max_idle_connections: int = config.max_pool_connections if idle is None else idle
        #: Path of a client certificate with its key, or the paths of both.
        self.client_cert: str | tuple[str, str] | None = config.client_cert

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
        except Exception as error:  # of the service, the network, or the caller's own refresher
            raise AccessDenied(f"AWS credentials could not be obtained: {error}") from error
        return current

    def endpoint(self, service: str, *, bucket: str | None = None) -> str:
        """Return the URL of `service`, or of a bucket of it, without a slash at its end.

        botocore determines it: partitions, dual stack, FIPS, virtual addressing. Nothing is sent. Raises
        `ConfigurationError` if it is a URL of AWS and no region is configured, and for a configured
        endpoint that is no URL, or has credentials in it; the message does not show them.
        """
        of_client = self._found.service
        if of_client not in (None, service):
            raise ConfigurationError(f"the boto3 client is one for {of_client!r}, not for {service!r}")
        own = self.options.endpoint_url or self._found.endpoint_url
        if own is not None:
            check_endpoint(own)
        if of_client is not None and own is not None and self._of_aws(own, service):
            own = None
        if own is not None and bucket is None:
            return own.rstrip("/")
        if own is not None and self._addressing_style() != "virtual":
            # botocore would return the same URL, but takes a tenth of a second.
            return own.rstrip("/") + (f"/{bucket}" if bucket else "")
        try:
            client = self._client(service, own)
            url: str = check_endpoint(client.meta.endpoint_url)
            if not self._has_region and _is_of_amazon(url):
                raise ConfigurationError(
                    "no AWS region found: set AWS_DEFAULT_REGION, or pass region=… or endpoint_url=…"
                )
            if bucket is not None:
                url = _url_of_request(client, bucket)
        except CommitError:
            raise
        except (BotoCoreError, ValueError) as error:
            if "@" not in str(error):
                raise ConfigurationError(f"AWS configuration: {error}") from error
            # It quotes an endpoint of the environment or of a profile, with its credentials.
            raise ConfigurationError(
                "AWS configuration: the endpoint is not a URL, and must not contain credentials"
            ) from None
        return url.rstrip("/")

    def verify(self) -> bool | str:
        """Return how TLS certificates are verified: True, False or the path of a CA bundle."""
        return self._found.verify if self.options.verify is True else self.options.verify

    def proxy(self, url: str) -> str | None:
        """Return the URL of the HTTP proxy for `url`, if any.

        It comes from the configuration of the session or client, or else from the environment.
        """
        configured: Mapping[str, str] | None = self._found.config.proxies
        proxies: Mapping[str, str] = get_environ_proxies(url) if configured is None else configured
        return proxies.get(urlsplit(url).scheme)

    def backoff(self) -> Backoff:
        """Return the retry policy: the configured number of attempts, or the default policy."""
        attempts = self._found.attempts
        return Backoff() if attempts is None else Backoff(tries=max(1, attempts))

    def _addressing_style(self) -> str:
        if self.options.addressing_style != "auto":
            return self.options.addressing_style
        found = self._found
        configured = (found.config.s3 or {}).get("addressing_style")
        if configured is None:
            configured = found.session.get_scoped_config().get("s3", {}).get("addressing_style")
        return configured or "auto"

    def _of_aws(self, url: str, service: str) -> bool:
        """Return whether a client's endpoint is the one that botocore would choose."""
        if self.options.endpoint_url is not None or not _is_of_amazon(url):
            return False
        chosen: str = self._client(service, None).meta.endpoint_url
        return chosen == url

    def _client(self, service: str, endpoint_url: str | None) -> Any:
        # Finding an endpoint needs no credentials, and must not fail without them.
        found = self._found
        config: dict[str, Any] = {"signature_version": UNSIGNED}
        if found.service is not None:
            # All settings were read from the client: the environment must not override them.
            config["ignore_configured_endpoint_urls"] = True
            config["use_fips_endpoint"] = bool(found.config.use_fips_endpoint)
            config["use_dualstack_endpoint"] = bool(found.config.use_dualstack_endpoint)
        s3 = dict(found.config.s3 or {})
        if self.options.addressing_style != "auto":
            s3["addressing_style"] = self.options.addressing_style
        if s3:
            config["s3"] = s3
        return found.session.create_client(
            service, region_name=self.region, endpoint_url=endpoint_url, config=Config(**config)
        )


def _is_of_amazon(url: str) -> bool:
    return "amazonaws." in (urlsplit(url).hostname or "")


def _url_of_request(client: Any, bucket: str) -> str:
    """Return the URL of a HeadBucket request, which is intercepted before it is sent.

    A presigned URL would be simpler, but has the host of another region.
    """
    urls: list[str] = []

    def catch(request: AWSPreparedRequest, **_: object) -> AWSResponse:
        urls.append(request.url)
        nothing = HTTPResponse(io.BytesIO(), preload_content=False)
        return AWSResponse(request.url, 200, HTTPHeaders(), nothing)

    client.meta.events.register_first("before-send.s3.HeadBucket", catch)
    client.head_bucket(Bucket=bucket)
    return urls[0]
