"""The commands ``namespace bind``, ``unbind``, ``sync`` and ``prune``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from commitlog._util.parsing import parse_seconds
from commitlog.cli.connection import Connection, namespace_options, write_units_option
from commitlog.cli.exit_status import Exit, print_error
from commitlog.cli.fs.paths import path_of
from commitlog.cli.namespace.cluster import (
    check_inventory,
    inventory_option,
    job_arguments,
    job_options,
    run_on_spark,
    spark_option,
)
from commitlog.cli.namespace.importing import prefix_in
from commitlog.cli.output import counted, duration, json_option, print_json, printable
from commitlog.cli.parameters import DURATION, ParsedParameter

if TYPE_CHECKING:
    from commitlog.namespace import PruneReport, SyncReport

__all__ = ["bind", "prune", "sync", "unbind"]

_FOREVER = "forever"


def _parse_age(text: str) -> float:
    """Return a duration in seconds; infinity for "forever"."""
    return float("inf") if text == _FOREVER else parse_seconds(text)


@click.command()
@click.argument("source", metavar="STORE_URL")
@click.argument("url")
@click.option(
    "--max-age",
    type=ParsedParameter("duration", _parse_age),
    default="0s",
    show_default=True,
    help="Maximum age of a listing; forever: only 'sync' lists the store.",
)
@json_option
@namespace_options
def bind(connection: Connection, source: str, url: str, max_age: float, json: bool) -> None:
    """Show the objects below STORE_URL in the directory URL, in addition to its own files.

    STORE_URL has to be in the store of the namespace. The directory is made if it is missing. A file
    that is deleted from the directory stays hidden, even if its object still exists. Run the command
    again to change --max-age.

    \b
    Example:
      commitlog namespace bind s3://bucket/lake/in commitlog://lake/in --max-age 60s
    """
    at = path_of(connection, url)
    prefix = prefix_in(at.namespace, source)
    age = None if max_age == float("inf") else max_age
    status = at.namespace.bindings.bind(prefix, at.path, max_age=age)
    binding = status.binding
    assert binding is not None
    if json:
        print_json({"url": at.url, "bound_to": binding.prefix, "max_age": binding.max_age})
        return
    age_text = _FOREVER if binding.max_age is None else duration(binding.max_age)
    click.echo(
        f"{printable(at.url)} is bound to {printable(binding.prefix)}, with a maximum age of {age_text}"
    )


@click.command()
@click.argument("url")
@json_option
@namespace_options
def unbind(connection: Connection, url: str, json: bool) -> None:
    """End the binding of the directory URL, and of the bound directories below it.

    From then on, only the namespace changes the directory. It keeps the files that are recorded at that
    time; run "namespace sync" first to record all of them.

    \b
    Example:
      commitlog namespace unbind commitlog://lake/in
    """
    at = path_of(connection, url)
    at.namespace.bindings.unbind(at.path)
    if json:
        print_json({"url": at.url, "bound_to": None, "max_age": None})
    else:
        click.echo(f"{printable(at.url)} is not bound")


_empty_store = click.option(
    "--empty-store",
    is_flag=True,
    help="Accept a store without the object that identifies it, and write that object again.",
)


@click.command()
@click.argument("url")
@_empty_store
@json_option
@namespace_options
def sync(connection: Connection, url: str, empty_store: bool, json: bool) -> None:
    """Bring all bound directories at and below URL up to date with the store.

    Objects that cannot become a file or directory are reported, and the exit status is 1. The command
    can be interrupted and run again.

    \b
    Example:
      commitlog namespace sync commitlog://lake/in
    """
    at = path_of(connection, url)
    with counted("directories") as count:

        def progress(so_far: SyncReport) -> None:
            count(so_far.directories)

        done = at.namespace.bindings.sync(at.path, empty_store=empty_store, progress=progress)
    for path in done.unfit:
        print_error("the object cannot become a file or directory", what=path)
    if json:
        print_json(
            {
                "directories": done.directories,
                "files": done.files,
                "updated": done.updated,
                "removed": done.removed,
                "unfit": list(done.unfit),
            }
        )
    else:
        click.echo(
            f"directories: {done.directories}; files made: {done.files}, updated: {done.updated}, "
            f"removed: {done.removed}"
        )
    click.get_current_context().exit(Exit.FAILED if done.unfit else Exit.DONE)


@click.command()
@click.argument("url")
@click.option(
    "--older-than",
    type=DURATION,
    help="Also remove older records that hide objects; existing objects appear again.",
)
@_empty_store
@spark_option("Read directories and remove records")
@inventory_option("With --spark: an S3 Inventory to read in place of a listing.")
@job_options
@write_units_option
@json_option
@namespace_options
def prune(
    connection: Connection,
    url: str,
    older_than: float | None,
    empty_store: bool,
    spark: str | None,
    inventory: str | None,
    journal: str | None,
    report: str | None,
    job_id: str | None,
    json: bool,
) -> None:
    """Remove obsolete records from the directories at and below URL.

    A record is obsolete if its file cannot be read because another client removed the object, or if it
    hides an object that no longer exists. Run the command from time to time; it can be interrupted and
    run again. Records that could not be removed are reported, and the exit status is 1.

    With --spark, the directories are divided among the executors of a cluster; see the command "fsck"
    for what this needs. With --journal and --job-id, an interrupted command can be continued.

    \b
    Example:
      commitlog namespace prune commitlog://lake/in
    """
    check_inventory(spark, inventory)
    job = job_arguments(spark, job_id, journal=journal, report=report)
    at = path_of(connection, url)
    with counted("directories", hidden=spark is not None) as count:

        def progress(so_far: PruneReport) -> None:
            count(so_far.directories)

        if spark is None:
            done = at.namespace.bindings.prune(
                at.path, older_than=older_than, empty_store=empty_store, progress=progress
            )
        else:
            name = at.namespace.name
            done = run_on_spark(
                spark,
                "prune",
                name,
                at.path,
                older_than=older_than,
                empty_store=empty_store,
                inventory=inventory,
                **job,
                **connection.namespace_arguments(name),
            )
    for id, error in done.failed:
        print_error(error, what=id)
    if json:
        print_json(
            {
                "directories": done.directories,
                "tombstones": done.tombstones,
                "files": done.files,
                "failed": [{"what": id, "error": error} for id, error in done.failed],
            }
        )
    else:
        click.echo(
            f"directories: {done.directories}; removed: {done.files} files, {done.tombstones} tombstones"
        )
    click.get_current_context().exit(Exit.FAILED if done.failed else Exit.DONE)
