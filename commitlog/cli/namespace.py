"""The commands ``namespace create``, ``list``, ``info`` and ``grow``: which namespaces there are.

Those that look after one are in `commitlog.cli.upkeep`.
"""

from __future__ import annotations

from typing import Any

import click

from commitlog.cli.binding import bind, prune, sync, unbind
from commitlog.cli.check import check
from commitlog.cli.connection import Connection, names_options, namespace_options
from commitlog.cli.fs_paths import spot
from commitlog.cli.restore import relog, restore
from commitlog.cli.show import json_option, moment, print_columns, print_json, printable
from commitlog.cli.upkeep import clean, compact, recover
from commitlog.namespace import Namespace

__all__ = ["namespace"]


@click.group(short_help="Create and look after namespaces.")
def namespace() -> None:
    """Create and look after namespaces: trees of files, with names in a table and content in a store.

    --names is the table. SQLite makes it by itself; for DynamoDB there is
    "commitlog table create --for namespaces". Any number of namespaces share it.
    """


@namespace.command(short_help="Create a namespace.")
@click.argument("name")
@click.option("--no-log", is_flag=True, help="Keep no log of changes; it could restore lost names.")
@json_option
@namespace_options
def create(connection: Connection, name: str, no_log: bool, json: bool) -> None:
    """Create the namespace NAME, with its content in --store: s3://bucket/prefix, or a directory.

    Every change is logged there, too, which costs four requests each, unless --no-log says otherwise.
    One that is there already is left as it is, if its content is in the same place.
    """
    lake = connection.created_namespace(name, log=not no_log)
    marker = lake.check()
    if json:
        print_json(_record(lake))
    else:
        logged = "is not logged" if marker.log is None else f"is logged in {marker.log}"
        click.echo(f"{name} is in {printable(lake.table.url)}, its content in {printable(marker.store)}")
        click.echo(f"what happens in it {logged}")


@namespace.command("list", short_help="List namespaces.")
@json_option
@names_options
def list_(connection: Connection, json: bool) -> None:
    """List the namespaces that the table has, by name."""
    for name in connection.namespaces():
        if json:
            print_json({"name": name})
        else:
            click.echo(printable(name))


@namespace.command(short_help="Show where a namespace is, and its format.")
@click.argument("name")
@json_option
@namespace_options
def info(connection: Connection, name: str, json: bool) -> None:
    """Show where the names, content and log of the namespace NAME are, and its format."""
    lake = connection.namespace(name)
    record = _record(lake)
    if json:
        print_json(record)
        return
    print_columns(
        [
            ("namespace", name),
            ("names", record["names"]),
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
    marker = lake.check(writing=False)
    root = lake.stat("")
    return {
        "name": lake.name,
        "names": lake.table.url,
        "store": marker.store,
        "log": marker.log,
        "created": marker.created / 1000,
        "format": marker.format,
        "min_reader": marker.min_reader,
        "min_writer": marker.min_writer,
        "root": {"id": root.id, "version": root.version, "shards": root.entry.shards.now},
    }


@namespace.command(short_help="Spread a directory over more partitions.")
@click.argument("url")
@click.option("--shards", type=click.IntRange(1, 64), required=True, help="1, 2, 4, 8, 16, 32 or 64.")
@json_option
@namespace_options
def grow(connection: Connection, url: str, shards: int, json: bool) -> None:
    """Spread new names of the directory URL over more partitions of the table.

    One takes some hundred new names a second. What is there stays where it is, and a directory never
    shrinks: looking up a name may cost a request more for each doubling.
    """
    at = spot(connection, url)
    status = at.namespace.grow(at.path, shards=shards)
    if json:
        print_json({"url": at.url, "shards": status.entry.shards.now})
    else:
        click.echo(f"{printable(at.url)}: {status.entry.shards.now} shards")


for _command in (check, clean, recover, compact, restore, relog, bind, unbind, sync, prune):
    namespace.add_command(_command)
