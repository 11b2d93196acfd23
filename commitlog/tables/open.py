"""Opening a table by its URL. Imports an implementation only when a URL asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from commitlog.clock import Clock, SystemClock
from commitlog.errors import ConfigurationError
from commitlog.tables.api import Table, TableSchema
from commitlog.urls import Url, parse_table_url

if TYPE_CHECKING:
    from commitlog.aws import Boto3Session

__all__ = ["open_table"]


def open_table(
    url: Url | str,
    schema: TableSchema,
    *,
    clock: Clock | None = None,
    session: Boto3Session | None = None,
    **options: str | None,
) -> Table:
    """Return the table of `url`, without asking whether it exists: `Table.check` or `create` does that.

    Args:
        url: ``dynamodb://name``, ``sqlite:///file`` or ``memory://name``.
        schema: how its items are keyed.
        clock: what it goes by; this machine's clock by default.
        session: a boto3 session, for DynamoDB: credentials, region and profile that nothing else gives.
        options: taken before those in the URL: ``endpoint_url``, ``region``, ``profile``, ``verify``,
            ``access_key_id``, ``secret_access_key``, ``session_token``. DynamoDB only.

    Raises `ConfigurationError` for a URL or option that is none.

    >>> open_table("memory://", TableSchema(hash_key="path")).create()
    True
    """
    place = parse_table_url(url) if isinstance(url, str) else url
    place = place.with_options(options)
    clock = clock or SystemClock()
    if place.options and place.scheme != "dynamodb":
        raise ConfigurationError(f"{place} takes no option {min(place.options)!r}")
    if place.scheme == "memory":
        from commitlog.tables.memory import MemoryTable

        return MemoryTable(place, schema, clock=clock)
    if place.scheme == "sqlite":
        from commitlog.tables.sqlite import SqliteTable

        return SqliteTable(place, schema, clock=clock)
    from commitlog.tables.dynamodb import DynamoTable

    return DynamoTable(place, schema, clock=clock, session=session)
