"""Opening a store by its URL. Imports an implementation only when a URL asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from commitlog.clock import Clock, SystemClock
from commitlog.errors import ConfigurationError
from commitlog.stores.api import ObjectStore
from commitlog.urls import Url, parse_store_url

if TYPE_CHECKING:
    from commitlog.aws import Boto3Session

__all__ = ["open_store"]


def open_store(
    url: str | Url,
    *,
    clock: Clock | None = None,
    session: Boto3Session | None = None,
    **options: str | None,
) -> ObjectStore:
    """Open the store that a URL names.

    Args:
        url: ``s3://bucket/prefix``, ``file:///dir``, the path of a directory, ``memory://name``.
        clock: the system clock by default.
        session: a boto3 session, for S3: credentials, region and profile that nothing else gives.
        options: for S3 only, and in place of those in the URL's query where they are not None:
            ``endpoint_url``, ``region``, ``profile``, ``access_key_id``, ``secret_access_key``,
            ``session_token``, ``addressing_style``, ``verify``.

    Returns:
        The store. Close it when done.

    Raises:
        ConfigurationError: the URL or an option is wrong. Nothing was sent.

    >>> open_store("memory://doc").url
    'memory://doc'
    """
    parsed = parse_store_url(url) if isinstance(url, str) else url
    parsed = parsed.with_options(options)
    clock = clock or SystemClock()
    if parsed.options and parsed.scheme != "s3":
        raise ConfigurationError(f"{parsed.scheme} URLs take no option {min(parsed.options)!r}")
    if parsed.scheme == "memory":
        from commitlog.stores.memory import MemoryStore

        return MemoryStore(parsed, clock=clock)
    if parsed.scheme == "file":
        from commitlog.stores.local import LocalStore

        return LocalStore(parsed, clock=clock)
    from commitlog.stores.s3 import S3Store

    return S3Store(parsed, clock=clock, session=session)
