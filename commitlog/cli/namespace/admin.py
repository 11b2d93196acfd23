"""The commands ``namespace create``, ``list``, ``describe`` and ``reshard``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from commitlog.cli.connection import Connection, metadata_options, namespace_options
from commitlog.cli.fs.paths import path_of
from commitlog.cli.output import json_option, moment, print_columns, print_json, printable

if TYPE_CHECKING:
    from commitlog.namespace import Namespace

__all__ = ["create", "describe", "list_", "reshard"]


@click.command()
@click.argument("name")
@click.option(
    "--no-log", is_flag=True, help="Keep no log of changes. Without it, a lost table cannot be restored."
)
@json_option
@namespace_options
def create(connection: Connection, name: str, no_log: bool, json: bool) -> None:
    """Create the namespace NAME, with its content in --store: s3://bucket/prefix, or a directory.

    The store also holds a log of every change, which costs four requests for each change. --no-log
    switches the log off. An existing namespace with the same --store is left as it is.

    \b
    Example:
      commitlog namespace create lake --store s3://bucket/lake
    """
    namespace = connection.create_namespace(name, log=not no_log)
    metadata = namespace.describe()
    if json:
        print_json(_record(namespace))
    else:
        click.echo(
            f"{name} is in {printable(namespace.table.url)}, its content in {printable(metadata.store)}"
        )
        click.echo("no log" if metadata.log is None else f"log: {printable(metadata.log)}")


@click.command("list")
@json_option
@metadata_options
def list_(connection: Connection, json: bool) -> None:
    """List the namespaces in the table, sorted by name.

    \b
    Example:
      commitlog namespace list
    """
    for name in connection.namespaces():
        if json:
            print_json({"name": name})
        else:
            click.echo(printable(name))


@click.command()
@click.argument("name")
@json_option
@namespace_options
def describe(connection: Connection, name: str, json: bool) -> None:
    """Show the locations of the names, content and log of the namespace NAME, and its format.

    \b
    Example:
      commitlog namespace describe lake
    """
    namespace = connection.namespace(name)
    record = _record(namespace)
    if json:
        print_json(record)
        return
    print_columns(
        [
            ("namespace", name),
            ("metadata", record["metadata"]),
            ("content", record["store"]),
            ("log", record["log"] or "-"),
            ("created", moment(record["created"])),
            (
                "format",
                f"{record['format']} (readers: {record['min_reader']} or later, writers: "
                f"{record['min_writer']} or later)",
            ),
            ("root id", record["root"]["id"]),
            ("root shards", f"{record['root']['shards']}"),
        ]
    )


def _record(namespace: Namespace) -> dict[str, Any]:
    metadata = namespace.describe(writing=False)
    root = namespace.stat("")
    return {
        "name": namespace.name,
        "metadata": namespace.table.url,
        "store": metadata.store,
        "log": metadata.log,
        "created": metadata.created / 1000,
        "format": metadata.format,
        "min_reader": metadata.min_reader,
        "min_writer": metadata.min_writer,
        "root": {"id": root.id, "version": root.version, "shards": root.entry.shards.now},
    }


@click.command()
@click.argument("url")
@click.option("--shards", type=click.IntRange(1, 64), required=True, help="1, 2, 4, 8, 16, 32 or 64.")
@json_option
@namespace_options
def reshard(connection: Connection, url: str, shards: int, json: bool) -> None:
    """Spread new names of the directory URL over more partitions of the table.

    One partition takes some hundred new names a second. Existing names stay in their partitions. The
    number of partitions never shrinks: each doubling may add one request to the lookup of a name.

    \b
    Example:
      commitlog namespace reshard commitlog://lake/events --shards 8
    """
    at = path_of(connection, url)
    status = at.namespace.reshard(at.path, shards=shards)
    if json:
        print_json({"url": at.url, "shards": status.entry.shards.now})
    else:
        click.echo(f"{printable(at.url)}: {status.entry.shards.now} shards")
