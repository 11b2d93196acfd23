"""The commands ``namespace create``, ``list``, ``info`` and ``reshard``.

The maintenance commands are in `commitlog.cli.namespace.maintenance`.
"""

from __future__ import annotations

from typing import Any

import click

from commitlog.cli.connection import Connection, metadata_options, namespace_options
from commitlog.cli.fs.paths import spot
from commitlog.cli.output import json_option, moment, print_columns, print_json, printable
from commitlog.namespace import Namespace

__all__ = ["create", "info", "list_", "reshard"]


@click.command()
@click.argument("name")
@click.option("--no-log", is_flag=True, help="Keep no log of changes; it could restore lost names.")
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
    lake = connection.created_namespace(name, log=not no_log)
    marker = lake.describe()
    if json:
        print_json(_record(lake))
    else:
        logged = "is not logged" if marker.log is None else f"is logged in {marker.log}"
        click.echo(f"{name} is in {printable(lake.table.url)}, its content in {printable(marker.store)}")
        click.echo(f"what happens in it {logged}")


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
def info(connection: Connection, name: str, json: bool) -> None:
    """Show the locations of the names, content and log of the namespace NAME, and its format.

    \b
    Example:
      commitlog namespace info lake
    """
    lake = connection.namespace(name)
    record = _record(lake)
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
                f"{record['format']}, read from {record['min_reader']}, written from "
                f"{record['min_writer']} on",
            ),
            ("root's id", record["root"]["id"]),
            ("root's shards", f"{record['root']['shards']}"),
        ]
    )


def _record(lake: Namespace) -> dict[str, Any]:
    marker = lake.describe(writing=False)
    root = lake.stat("")
    return {
        "name": lake.name,
        "metadata": lake.table.url,
        "store": marker.store,
        "log": marker.log,
        "created": marker.created / 1000,
        "format": marker.format,
        "min_reader": marker.min_reader,
        "min_writer": marker.min_writer,
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
    at = spot(connection, url)
    status = at.namespace.reshard(at.path, shards=shards)
    if json:
        print_json({"url": at.url, "shards": status.entry.shards.now})
    else:
        click.echo(f"{printable(at.url)}: {status.entry.shards.now} shards")
