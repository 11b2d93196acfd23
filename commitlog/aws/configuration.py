"""The configuration of a botocore session, a boto3 session or a boto3 client, read once.

A setting that is not supported raises `ConfigurationError`. Settings that make no difference to the
requests of this library are listed in docs/operations.md.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from typing import Any, Protocol

import botocore.session
from attrs import field, frozen
from botocore import UNSIGNED
from botocore.client import BaseClient
from botocore.config import Config

from commitlog.errors import ConfigurationError

__all__ = ["Boto3Client", "Boto3Session", "Configuration", "of_client", "of_session", "open_session"]

#: Defaults of this library, where a session has no client configuration of its own.
_DEFAULTS = Config(connect_timeout=5.0, read_timeout=30.0, max_pool_connections=64)
#: Names of Signature Version 4, the only supported one.
_SIGNATURES = frozenset({None, "s3v4", "s3v4-query", "v4", "v4-query"})
#: The regions that botocore reports for a client without one.
_NO_REGION = frozenset({"aws-global", "s3-external-1"})


class Boto3Session(Protocol):
    """A ``boto3.session.Session``, or a ``botocore.session.Session``."""

    def get_credentials(self) -> Any:
        """Return botocore's credentials, or None."""


class Boto3Client(Protocol):
    """A client for S3 or DynamoDB, as ``boto3.client`` returns it."""

    @property
    def meta(self) -> Any:
        """Configuration, region, endpoint and service of the client."""


@frozen(kw_only=True)
class Configuration:
    """The settings of a session or a client.

    Attributes:
        session: the botocore session that knows the addresses of services.
        credentials: botocore's credentials, which refresh themselves; or None.
        region: name of the region, or None.
        config: timeouts, pool size, proxies, client certificate and settings of S3.
        attempts: maximum number of attempts of a request, or None if it is not configured.
        verify: True or False, or the path of a CA bundle.
        service: name of the client's service; None for a session.
        endpoint_url: the client's endpoint; None for a session.
    """

    session: Any = field(repr=False)
    credentials: Any = field(repr=False)
    region: str | None
    config: Any
    attempts: int | None
    verify: bool | str
    service: str | None = None
    endpoint_url: str | None = None


def open_session(profile: str | None) -> Any:
    """Return a botocore session that reads the environment and the shared AWS configuration."""
    # botocore reads its data, such as endpoints, from files in its own directory.
    home = os.path.dirname(botocore.session.__file__)
    if not os.path.isdir(home):
        raise ConfigurationError(
            f"botocore is imported from a zip file ({home}), and cannot read its data there: install"
            " commitlog-store on each machine. With Spark, ship an environment in place of --py-files:"
            " --archives env.tar.gz#env, packed by venv-pack or conda-pack, and"
            " PYSPARK_PYTHON=./env/bin/python"
        )
    # Any: botocore's stubs are optional, and stricter than its documentation.
    return botocore.session.Session(profile=profile)


def of_session(session: Boto3Session, *, search: bool = True) -> Configuration:
    """Return the configuration of a boto3 or botocore session. Nothing is sent.

    Args:
        session: the session. It is not changed.
        search: whether to look for credentials.

    Raises `ConfigurationError` for settings that are not supported; errors of botocore propagate.
    """
    found: Any = getattr(session, "_session", session)
    if not isinstance(found, botocore.session.Session):
        raise ConfigurationError(
            f"session is of {type(session).__name__}; it must be a boto3.Session or a botocore session"
        )
    own = found.get_default_client_config() or Config()
    s3 = found.get_scoped_config().get("s3", {})
    _check(own, s3 if isinstance(s3, Mapping) else {})
    credentials = found.get_credentials() if search else None
    _check_credentials(credentials)
    bundle = found.get_config_variable("ca_bundle")
    return Configuration(
        session=found,
        credentials=credentials,
        region=own.region_name or found.get_config_variable("region"),
        config=_DEFAULTS.merge(own),
        attempts=_attempts(own.retries) or found.get_config_variable("max_attempts"),
        verify=bundle or os.environ.get("REQUESTS_CA_BUNDLE") or True,
    )


def of_client(client: Boto3Client) -> Configuration:
    """Return the configuration of a boto3 client. The client is not changed, and sends nothing.

    Raises `ConfigurationError` if it is not a boto3 client, or for settings that are not supported.
    """
    if not isinstance(client, BaseClient):
        hint = "; of a resource, pass resource.meta.client" if hasattr(client, "meta") else ""
        raise ConfigurationError(
            f"client is of {type(client).__name__}; it must be what boto3.client returns{hint}"
        )
    found: Any = client
    config = found.meta.config
    _check(config, {})
    # These two are not public.
    signer: Any = getattr(found, "_request_signer", None)
    verify = getattr(getattr(getattr(found, "_endpoint", None), "http_session", None), "_verify", None)
    if verify is None or not hasattr(signer, "_credentials"):
        raise ConfigurationError(
            "credentials and CA bundle of such a client cannot be read: pass session=… in its place"
        )
    _check_credentials(signer._credentials)
    region = config.region_name
    return Configuration(
        # No profile and no shared configuration: their settings are already in the client.
        session=botocore.session.Session(
            session_vars={
                "profile": (None, None, None, None),
                "config_file": (None, None, os.devnull, None),
            }
        ),
        credentials=signer._credentials,
        region="us-east-1" if region in _NO_REGION else region,
        config=config,
        attempts=_attempts(config.retries),
        verify=verify,
        service=found.meta.service_model.service_name,
        endpoint_url=found.meta.endpoint_url,
    )


def _check(config: Any, s3: Mapping[str, Any]) -> None:
    """Raise `ConfigurationError` for unsupported settings that would change requests."""
    for version in (config.signature_version, s3.get("signature_version")):
        if version is UNSIGNED:
            raise ConfigurationError("requests without a signature (UNSIGNED) are not supported")
        if version not in _SIGNATURES:
            raise ConfigurationError(
                f"signature_version {version!r} is not supported: requests are signed by version 4"
            )
    if config.sigv4a_signing_region_set:
        raise ConfigurationError("sigv4a_signing_region_set is not supported: set a region")
    if any((config.proxies_config or {}).values()):
        raise ConfigurationError(
            "proxies_config is not supported: proxies are reached by http:// and without certificates"
        )
    unknown = sorted(set(config.proxies or {}) - {"http", "https"})
    if unknown:
        raise ConfigurationError(f"proxies has the key {unknown[0]!r}; known: http, https")
    # Only botocore 1.37 and newer have it.
    if getattr(config, "account_id_endpoint_mode", None) == "required":
        raise ConfigurationError("account_id_endpoint_mode='required' is not supported")


def _check_credentials(credentials: Any) -> None:
    if inspect.isawaitable(credentials) or inspect.iscoroutinefunction(
        getattr(credentials, "get_frozen_credentials", None)
    ):
        if inspect.iscoroutine(credentials):
            credentials.close()
        raise ConfigurationError(
            "asynchronous sessions and clients (aiobotocore) are not supported: pass a boto3.Session"
        )


def _attempts(retries: Mapping[str, Any] | None) -> int | None:
    """Return the maximum number of attempts: a client has the total, a `Config` the retries."""
    if not retries:
        return None
    if (total := retries.get("total_max_attempts")) is not None:
        return int(total)
    again = retries.get("max_attempts")
    return None if again is None else int(again) + 1
