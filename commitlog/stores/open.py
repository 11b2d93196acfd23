"""Opening a store by its URL. Imports an implementation only when a URL asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from commitlog.clock import Clock, SystemClock
from commitlog.errors import ConfigurationError
from commitlog.stores.api import ObjectStore
from commitlog.urls import Url, parse_store_url

if TYPE_CHECKING:
    from commitlog.aws import Boto3Client, Boto3Session

__all__ = ["open_store"]


def open_store(
    url: str | Url,
    *,
    clock: Clock | None = None,
    session: Boto3Session | None = None,
    client: Boto3Client | None = None,
    **options: str | None,
) -> ObjectStore:
    """Open the store that a URL names.

    Args:
        url: ``s3://bucket/prefix``, ``file:///dir``, the path of a directory, ``memory://name``.
        clock: the system clock by default.
        session: a boto3 session, for S3. What no option gives, it gives: credentials, region, endpoint,
            addressing style, timeouts, attempts, proxies, CA bundle. See docs/operations.md.
        client: a boto3 client for S3, which gives the same; in place of a session.
        options: for S3 only, and in place of those in the URL's query where they are not None:
            ``endpoint_url``, ``region``, ``profile``, ``access_key_id``, ``secret_access_key``,
            ``session_token``, ``addressing_style``, ``verify``, and those of
            `commitlog.stores.s3_options.ObjectOptions`.

    Returns:
        The store. Close it when done.

    Raises:
        ConfigurationError: the URL or an option is wrong. Nothing was sent.
        NotSupported: an option asks for a feature of S3 that is not supported.

    >>> open_store("memory://doc").url
    'memory://doc'
    """
    parsed = parse_store_url(url) if isinstance(url, str) else url
    parsed = parsed.with_options(options)
    clock = clock or SystemClock()
    if parsed.options and parsed.scheme != "s3":
        raise ConfigurationError(f"{parsed.scheme} URLs take no option {min(parsed.options)!r}")
    if client is not None and (session is not None or parsed.scheme != "s3"):
        raise ConfigurationError("client is for s3:// URLs, and in place of session")
    if parsed.scheme == "memory":
        from commitlog.stores.memory import MemoryStore

        return MemoryStore(parsed, clock=clock)
    if parsed.scheme == "file":
        from commitlog.stores.local.store import LocalStore

        return LocalStore(parsed, clock=clock)
    from commitlog.stores.s3.store import S3Store

    return S3Store(parsed, clock=clock, session=session, client=client)
