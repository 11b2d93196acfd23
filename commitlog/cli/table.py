"""Commands on tables of leases, of ingest state, or of namespaces: ``create``, ``info`` and so on."""

from __future__ import annotations

from types import MappingProxyType

import click

from commitlog.cli.connection import Connection, table_options
from commitlog.cli.exit_status import Exit
from commitlog.cli.output import json_option, moment, print_columns, print_json, printable
from commitlog.commit.record import LEASE_SCHEMA
from commitlog.ingest import INGEST_SCHEMA
from commitlog.namespace import NAMESPACE_SCHEMA
from commitlog.urls import parse_table_url

__all__ = ["table"]

#: The uses of a table: its keys differ.
_SCHEMAS = MappingProxyType(
    {str(schema.use): schema for schema in (LEASE_SCHEMA, INGEST_SCHEMA, NAMESPACE_SCHEMA)}
)


def _tags_of(_: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    tags: dict[str, str] = {}
    for each in given:
        key, equals, value = each.partition("=")
        if not (key and equals):
            raise click.BadParameter(f"{each!r} is not KEY=VALUE", param=parameter)
        tags[key] = value
    return tags


@click.group()
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
@click.option(
    "--tag",
    "tags",
    metavar="KEY=VALUE",
    multiple=True,
    callback=_tags_of,
    help="Give the table this tag; may be repeated.",
)
@json_option
@table_options
def create(connection: Connection, url: str, use: str, tags: dict[str, str], json: bool) -> None:
    """Create the table URL with its keys, and TTL if it has one; do nothing if it is there and fits.

    A table of DynamoDB is billed on demand. Tags are given to a table that was there, too; tags are for
    your bills and policies, and a file of SQLite has none.

    \b
    Example:
      commitlog table create dynamodb://commits
    """
    if tags and parse_table_url(url).scheme != "dynamodb":
        raise click.UsageError(f"{url} cannot have tags: only tables of DynamoDB can")
    opened = connection.opened_table(url, _SCHEMAS[use])
    created = opened.create()
    if tags:
        opened.tag(tags)
    if json:
        print_json({"url": opened.url, "created": created})
    else:
        click.echo(f"{opened.url} {'created' if created else 'was there and fits'}")


@table.command()
@click.argument("url")
@json_option
@table_options
def info(connection: Connection, url: str, json: bool) -> None:
    """Show the keys, TTL, format, size, billing and tags of the table URL.

    \b
    Example:
      commitlog table info dynamodb://commits
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


@table.command("set-capacity", short_help="Tell how the capacity of a table is set.")
@click.argument("url")
@click.option("--read", type=click.IntRange(1), help="Read capacity units, as in S3Guard.")
@click.option("--write", type=click.IntRange(1), help="Write capacity units, as in S3Guard.")
@json_option
@table_options
def set_capacity(
    connection: Connection, url: str, read: int | None, write: int | None, json: bool
) -> None:
    """Tell how the capacity of the table URL is set. Nothing is changed.

    Those who come from "hadoop s3guard set-capacity" look for it here. Tables that this command line
    makes are billed on demand: DynamoDB takes as many requests as come, and there is no capacity to set.
    The status is 0 then. For a table that another tool made with provisioned capacity, the command says
    how to change that with the AWS CLI, with status 1.

    \b
    Example:
      commitlog table set-capacity dynamodb://commits
    """
    known = connection.leases(url).describe()
    name = parse_table_url(known.url).name
    units = f"ReadCapacityUnits={read or 'N'},WriteCapacityUnits={write or 'N'}"
    told = {
        "on-demand": "billed on demand: there is no capacity to set",
        "provisioned": (
            "provisioned, and nothing was changed. To bill it on demand: aws dynamodb update-table"
            f" --table-name {name} --billing-mode PAY_PER_REQUEST. To keep it provisioned: aws dynamodb"
            f" update-table --table-name {name} --provisioned-throughput {units}"
        ),
    }.get(known.billing or "", "no table of DynamoDB: there is no capacity to set")
    if json:
        print_json({"url": known.url, "billing": known.billing, "message": told})
    else:
        click.echo(f"{printable(known.url)} is {told}")
    provisioned = known.billing == "provisioned"
    click.get_current_context().exit(Exit.FAILED if provisioned else Exit.DONE)
