"""The commands ``table create`` and ``table describe``."""

from __future__ import annotations

from importlib import import_module
from types import MappingProxyType

import click

from commitlog.cli.connection import Connection, table_options
from commitlog.cli.output import json_option, moment, print_columns, print_json, printable
from commitlog.urls import parse_table_url

__all__ = ["table"]

#: The schema for each use of a table: its module and name. Only the one that is used is imported.
_SCHEMAS = MappingProxyType(
    {
        "leases": ("commitlog.commit.record", "LEASE_SCHEMA"),
        "ingest": ("commitlog.ingest", "INGEST_SCHEMA"),
        "namespaces": ("commitlog.namespace", "NAMESPACE_SCHEMA"),
    }
)


def _tags_of(_: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    tags: dict[str, str] = {}
    for each in texts:
        key, equals, value = each.partition("=")
        if not (key and equals):
            raise click.BadParameter(f"{each!r} is not KEY=VALUE", param=parameter)
        tags[key] = value
    return tags


@click.group()
def table() -> None:
    """Create or describe a table of leases, of ingest state or of namespaces.

    The URL of a table is dynamodb://NAME or sqlite:///ABSOLUTE/FILE.
    """


@table.command(short_help="Create a table.")
@click.argument("url")
@click.option(
    "--for",
    "use",
    type=click.Choice(list(_SCHEMAS)),
    default="leases",
    show_default=True,
    help="Use of the table: leases, state of ingest sources, or namespaces.",
)
@click.option(
    "--tag",
    "tags",
    metavar="KEY=VALUE",
    multiple=True,
    callback=_tags_of,
    help="Tag of the table. Repeatable.",
)
@json_option
@table_options
def create(connection: Connection, url: str, use: str, tags: dict[str, str], json: bool) -> None:
    """Create the table URL. An existing table with the same keys is not changed, except for its tags.

    A new table of DynamoDB is billed on demand. Tags appear in bills and policies of AWS. A table of
    SQLite has no tags.

    \b
    Example:
      commitlog table create dynamodb://commits
    """
    if tags and parse_table_url(url).scheme != "dynamodb":
        raise click.UsageError(f"{url} cannot have tags: only tables of DynamoDB can")
    module, name = _SCHEMAS[use]
    opened = connection.open_table(url, getattr(import_module(module), name))
    created = opened.create()
    if tags:
        opened.tag(tags)
    if json:
        print_json({"url": opened.url, "created": created})
    else:
        click.echo(f"{opened.url} {'created' if created else 'exists already'}")


@table.command(short_help="Describe a table.")
@click.argument("url")
@json_option
@table_options
def describe(connection: Connection, url: str, json: bool) -> None:
    """Show the keys, TTL, format, size, billing and tags of the table URL.

    \b
    Example:
      commitlog table describe dynamodb://commits
    """
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
                "billing": known.billing,
                "tags": None if known.tags is None else dict(known.tags),
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
            ("billing", known.billing or "-"),
            *(("tag", printable(f"{key}={value}")) for key, value in sorted((known.tags or {}).items())),
        ]
    )
