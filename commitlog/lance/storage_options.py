"""The options by which Lance reaches a store: its location, endpoint, region and credentials.

A module of its own, because it alone knows the options of the crate ``object_store``, which Lance reads
and writes with. They are computed for each answer and stored nowhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from commitlog.aws import AwsOptions, AwsSession, Boto3Client, Boto3Session
from commitlog.clock import Clock
from commitlog.errors import ConfigurationError
from commitlog.urls import Url, parse_store_url

__all__ = ["LanceStorage"]

#: Seconds for which botocore's temporary credentials are valid at least: it refreshes them earlier.
_VALID: Final = 600


class LanceStorage:
    """A store as Lance reaches it. Thread-safe.

    Args:
        url: URL of the store, ``s3://`` or ``file://``.
        clock: dates the expiry of temporary credentials.
        extra: options for Lance that replace computed ones.
        leased: whether versions are created under leases. Then Lance's own conditional writes are turned
            off: a dataset that was pickled has lost its namespace, and would commit by its URI, without
            a lease, over the version of another writer.
        session, client: see `commitlog.connect`.

    Raises `ConfigurationError` for a store that Lance cannot reach.
    """

    def __init__(
        self,
        url: Url,
        *,
        clock: Clock,
        extra: Mapping[str, str],
        leased: bool = False,
        session: Boto3Session | None = None,
        client: Boto3Client | None = None,
    ) -> None:
        if url.scheme not in ("s3", "file"):
            raise ConfigurationError(
                f"Lance cannot reach {url.scheme}:// stores: use s3:// or a directory"
            )
        self._url = url
        self._clock = clock
        self._extra = dict(extra)
        self._aws: AwsSession | None = None
        self._fixed: dict[str, str] = {}
        if url.scheme == "s3":
            self._aws = AwsSession(AwsOptions.from_url(url), session, client=client)
            self._fixed = _endpoint(self._aws, url.name)
            if leased:
                self._fixed["aws_conditional_put"] = "disabled"

    @property
    def root(self) -> str:
        """The URI of the store's root for Lance, without a slash at its end."""
        if self._url.scheme == "file":
            return self._url.name.rstrip("/")
        prefix = f"/{self._url.prefix}" if self._url.prefix else ""
        return f"s3://{self._url.name}{prefix}"

    def uri(self, location: str) -> str:
        """Return the URI of a table's directory."""
        return f"{self.root}/{location}"

    def location(self, uri: str) -> str:
        """Return the path of a table's directory in the store, from its URI or that path itself.

        For a directory outside of the store, it is still a URI or an absolute path.
        """
        if self._url.scheme == "file" and uri.startswith("file:"):
            uri = parse_store_url(uri).name
        return uri.rstrip("/").removeprefix(f"{self.root}/")

    def options(self) -> dict[str, str]:
        """Return the options for Lance, with credentials that are valid now.

        Raises `ConfigurationError` if there are none, `AccessDenied` if refreshing them failed.
        """
        found = dict(self._fixed)
        if self._aws is not None:
            credentials = self._aws.credentials()
            found["aws_access_key_id"] = credentials.access_key
            found["aws_secret_access_key"] = credentials.secret_key
            if credentials.token:
                found["aws_session_token"] = credentials.token
                if self._aws.options.session_token is None:
                    found["expires_at_millis"] = str(int((self._clock.epoch() + _VALID) * 1000))
        return {**found, **self._extra}


def _endpoint(aws: AwsSession, bucket: str) -> dict[str, str]:
    url = aws.endpoint("s3", bucket=bucket)
    virtual = not url.endswith(f"/{bucket}")
    options = {
        "aws_endpoint": url if virtual else url.removesuffix(f"/{bucket}"),
        "aws_region": aws.region,
        "aws_virtual_hosted_style_request": str(virtual).lower(),
    }
    if url.startswith("http://"):
        options["allow_http"] = "true"
    if aws.verify() is False:
        options["allow_invalid_certificates"] = "true"
    return options
