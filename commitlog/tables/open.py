"""Opening a table by its URL. Imports an implementation only when a URL asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from commitlog.clock import Clock, SystemClock
from commitlog.errors import ConfigurationError
from commitlog.tables.api import Table, TableSchema
from commitlog.urls import Url, parse_table_url

if TYPE_CHECKING:
    from commitlog.aws import Boto3Client, Boto3Session

__all__ = ["open_table"]


def open_table(
    url: Url | str,
    schema: TableSchema,
    *,
    clock: Clock | None = None,
    session: Boto3Session | None = None,
    client: Boto3Client | None = None,
    **options: str | None,
) -> Table:
    """Return the table of `url` without checking that it exists: use `Table.check` or `create`.

    Args:
        url: ``dynamodb://name``, ``sqlite:///file`` or ``memory://name``.
        schema: the keys of its items.
        clock: its clock; this machine's clock by default.
        session: a boto3 session, for DynamoDB. It supplies the settings that no option gives:
            credentials, region, endpoint, timeouts, attempts, proxies, CA bundle. See
            docs/operations.md.
        client: a boto3 client for DynamoDB, used in place of a session.
        options: override those in the URL: ``endpoint_url``, ``region``, ``profile``, ``verify``,
            ``access_key_id``, ``secret_access_key``, ``session_token``. DynamoDB only.

    Raises `ConfigurationError` for an invalid URL or option.

    >>> open_table("memory://", TableSchema(hash_key="path")).create()
    True
    """
    location = parse_table_url(url) if isinstance(url, str) else url
    location = location.with_options(options)
    clock = clock or SystemClock()
    if location.options and location.scheme != "dynamodb":
        raise ConfigurationError(f"{location} takes no option {min(location.options)!r}")
    if client is not None and (session is not None or location.scheme != "dynamodb"):
        raise ConfigurationError("client is for dynamodb:// URLs, and in place of session")
    if location.scheme == "memory":
        from commitlog.tables.memory import MemoryTable

        return MemoryTable(location, schema, clock=clock)
    if location.scheme == "sqlite":
        from commitlog.tables.sqlite import SqliteTable

        return SqliteTable(location, schema, clock=clock)
    from commitlog.tables.dynamodb.table import DynamoTable

    return DynamoTable(location, schema, clock=clock, session=session, client=client)
