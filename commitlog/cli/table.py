"""Commands on tables of leases, of ingest state, or of namespaces: ``table create``, ``table info``."""

from __future__ import annotations

from types import MappingProxyType

import click

from commitlog.cli.connection import Connection, table_options
from commitlog.cli.show import json_option, moment, print_columns, print_json
from commitlog.commit.record import LEASE_SCHEMA
from commitlog.ingest import INGEST_SCHEMA
from commitlog.namespace import NAMESPACE_SCHEMA

__all__ = ["table"]

#: The uses of a table: its keys differ.
_SCHEMAS = MappingProxyType(
    {str(schema.use): schema for schema in (LEASE_SCHEMA, INGEST_SCHEMA, NAMESPACE_SCHEMA)}
)


@click.group(short_help="Create or describe a table.")
def table() -> None:
    """Create or describe a table, of leases, of ingest state, or of namespaces.

    It is dynamodb://NAME or sqlite:///ABSOLUTE/FILE.
    """


@table.command()
@click.argument("url")
@click.option(
    "--for",
    "use",
    type=click.Choice(list(_SCHEMAS)),
    default="leases",
    show_default=True,
    help="What the table is for: leases, the state of ingest sources, or namespaces.",
)
@json_option
@table_options
def create(connection: Connection, url: str, use: str, json: bool) -> None:
    """Create the table URL with its keys, and TTL if it has one; do nothing if it is there and fits."""
    opened = connection.opened_table(url, _SCHEMAS[use])
    created = opened.create()
    if json:
        print_json({"url": opened.url, "created": created})
    else:
        click.echo(f"{opened.url} {'created' if created else 'was there and fits'}")


@table.command()
@click.argument("url")
@json_option
@table_options
def info(connection: Connection, url: str, json: bool) -> None:
    """Show the keys, TTL, format and size of the table URL."""
    known = connection.leases(url).describe()
    schema = known.schema
    if json:
        print_json(
            {
                "url": known.url,
                "hash_key": schema.hash_key,
                "range_key": schema.range_key,
                "ttl_attribute": schema.ttl_attribute,
                "format": known.format,
                "created": known.created,
                "item_count": known.item_count,
            }
        )
        return
    print_columns(
        [
            ("url", known.url),
            ("hash key", schema.hash_key),
            ("range key", schema.range_key or "-"),
            ("ttl attribute", schema.ttl_attribute or "-"),
            ("format", "-" if known.format is None else f"{known.format}"),
            ("created", "-" if known.created is None else moment(known.created)),
            ("items", "-" if known.item_count is None else f"{known.item_count}"),
        ]
    )
