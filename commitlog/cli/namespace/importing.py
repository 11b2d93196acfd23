"""The commands ``namespace import`` and ``diff``, for objects that other programs wrote."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from commitlog.cli.connection import Connection, namespace_options, write_units_option
from commitlog.cli.exit_status import Exit, Interrupted, PredicateCommand, print_error
from commitlog.cli.fs.paths import matches, path_of, url_of
from commitlog.cli.namespace.cluster import (
    check_inventory,
    findings_options,
    inventory_option,
    job_arguments,
    job_options,
    run_on_spark,
    spark_option,
)
from commitlog.cli.output import counted, json_option, note, print_json, printable, readable
from commitlog.cli.urls import refuse_secrets
from commitlog.errors import ConfigurationError
from commitlog.urls import parse_store_url

if TYPE_CHECKING:
    from commitlog.namespace import Difference, ImportReport, Namespace

__all__ = ["diff", "import_", "prefix_in"]


@click.command("import")
@click.argument("source", metavar="STORE_URL")
@click.argument("url")
@click.option("--start-after", default="", metavar="PATH", help="Continue after this object.")
@spark_option("List and import the objects")
@job_options
@write_units_option
@json_option
@namespace_options
def import_(
    connection: Connection,
    source: str,
    url: str,
    start_after: str,
    spark: str | None,
    journal: str | None,
    report: str | None,
    job_id: str | None,
    json: bool,
) -> None:
    """Create files below URL from the objects below STORE_URL, without copying the content.

    STORE_URL has to be in the store of the namespace. The objects stay where they are, even when their
    files are removed. The command can be run again: it skips objects that are imported already, and
    updates files whose objects were overwritten. If it is interrupted, it prints where to continue.

    With --spark, the objects are divided among the executors of a cluster; see the command "fsck" for
    what this needs. With --journal and --job-id, an interrupted command can be continued.

    Objects that cannot become files, such as "a/b" next to "a", are reported, and the exit status is 1.
    The status is also 1 if there are no objects.

    \b
    Example:
      commitlog namespace import s3://bucket/lake/old commitlog://lake/old
    """
    from commitlog.namespace import ImportReport

    if spark is not None and start_after:
        raise click.UsageError("--start-after cannot be used with --spark: use --journal")
    job = job_arguments(spark, job_id, journal=journal, report=report)
    at = path_of(connection, url)
    prefix = prefix_in(at.namespace, source)
    so_far = ImportReport(last=start_after)
    try:
        with counted("objects", hidden=spark is not None) as count:

            def progress(now: ImportReport) -> None:
                nonlocal so_far
                so_far = now
                count(now.files + now.updated + now.known + len(now.refused))

            if spark is None:
                done = at.namespace.maintenance.import_objects(
                    prefix, at.path, start_after=start_after, progress=progress
                )
            else:
                name = at.namespace.name
                arguments = {**job, **connection.namespace_arguments(name)}
                done = run_on_spark(spark, "import_objects", name, prefix, at.path, **arguments)
    except KeyboardInterrupt as error:
        raise Interrupted(_state(so_far, start_after)) from error
    except BaseException:
        if so_far.last and spark is None:
            here = f"--start-after {printable(so_far.last)!r}"
            note(f"to resume: run the same command with {here}")
        raise
    for path, reason in done.refused:
        print_error(reason, what=path)
    if json:
        print_json(done.to_json())
    else:
        click.echo(
            f"files made: {done.files}, updated: {done.updated}, {readable(done.bytes)}; "
            f"unchanged: {done.known}; refused: {len(done.refused)}"
        )
    nothing = not (start_after or done.files or done.updated or done.known or done.refused)
    if nothing:
        print_error(f"there are no objects to import below {source}")
    click.get_current_context().exit(Exit.FAILED if nothing or done.refused else Exit.DONE)


def _state(so_far: ImportReport, start_after: str) -> str:
    """Return the state of an interrupted import, and how to continue it."""
    made = f"files made: {so_far.files}, updated: {so_far.updated}; unchanged: {so_far.known}"
    if so_far.refused:
        made += f"; refused: {len(so_far.refused)}"
    again = "run the same command"
    if so_far.last != start_after:
        again += f" with --start-after {printable(so_far.last)!r}"
    return (
        f"{made}; later objects may have become files, too, and then count as unchanged; to resume:"
        f" {again}"
    )


def prefix_in(namespace: Namespace, url: str) -> str:
    """Return the prefix in the namespace's store of the objects below `url`; "" for all objects.

    Raises `ConfigurationError` if `url` is not in that store.
    """
    source, store = parse_store_url(url), parse_store_url(namespace.store.url)
    refuse_secrets(source)
    endpoint = source.options.get("endpoint_url", store.options.get("endpoint_url"))
    if source.scheme == "file":
        directory, top = os.path.realpath(source.name), os.path.realpath(store.name)
        below = "" if directory == top else os.path.relpath(directory, top)
        path = None if below.split(os.sep, 1)[0] == os.pardir else below
    else:
        same = (source.name, endpoint) == (store.name, store.options.get("endpoint_url"))
        within = f"{source.prefix}/".startswith(f"{store.prefix}/") or not store.prefix
        path = source.prefix[len(store.prefix) :].strip("/") if same and within else None
    if source.scheme != store.scheme or path is None:
        raise ConfigurationError(
            f"{source} is not in the store of namespace {namespace.name!r}, which is {store}: objects"
            " become files in place, so copy them there, or create a namespace in their store"
        )
    return f"{path}/" if path else ""


@click.command(cls=PredicateCommand)
@click.argument("urls", metavar="URL...", nargs=-1, required=True)
@click.option(
    "--with",
    "source",
    metavar="STORE_URL",
    help="Also find objects below STORE_URL, the origin of the import, that have no file.",
)
@spark_option("Compare files and objects")
@inventory_option("With --spark: an S3 Inventory to read in place of a listing.")
@findings_options
@json_option
@namespace_options
def diff(
    connection: Connection,
    urls: tuple[str, ...],
    source: str | None,
    spark: str | None,
    inventory: str | None,
    findings: str | None,
    job_id: str | None,
    json: bool,
) -> None:
    """Show differences between the store and the namespace, at and below URLs.

    \b
    missing  the object of a file does not exist
    changed  the object of a file was overwritten
    unknown  an object has no file, in a directory that is bound or compared --with its origin
    hidden   an object exists, but its file was deleted

    No content is read. The exit status is 0 if there are no differences, 1 if there are some, and 2 if
    the comparison failed.

    With --spark, the directories are divided among the executors of a cluster; see the command "fsck"
    for what this needs.

    \b
    Example:
      commitlog namespace diff commitlog://lake
    """
    if source is not None and len(urls) > 1:
        raise click.UsageError("--with takes one directory: give one URL")
    check_inventory(spark, inventory)
    job = job_arguments(spark, job_id, findings=findings)
    if job_id is not None and len(urls) > 1:
        raise click.UsageError("--job-id takes one directory: give one URL")
    differences = 0
    for url in urls:
        for each in matches(connection, url):
            prefix = None if source is None else prefix_in(each.namespace, source)
            label = f"files and objects compared in {printable(each.url)}"
            with counted(label, hidden=spark is not None) as count:
                if spark is None:
                    found = each.namespace.bindings.diff(each.path, prefix=prefix, progress=count)
                else:
                    name = each.namespace.name
                    arguments = connection.namespace_arguments(name)
                    arguments |= {"prefix": prefix, "inventory": inventory, **job}
                    found = run_on_spark(spark, "diff", name, each.path, **arguments)
                for difference in found:
                    differences += 1
                    _clear_line()
                    _print_difference(each.namespace, difference, json=json)
    click.get_current_context().exit(Exit.FAILED if differences else Exit.DONE)


def _clear_line() -> None:
    """Clear the progress line on a terminal. The progress is shown again below the next line."""
    if sys.stderr.isatty():
        click.echo("\r\x1b[K", nl=False, err=True)


def _print_difference(namespace: Namespace, difference: Difference, *, json: bool) -> None:
    status = difference.status
    at = url_of(namespace, status.path)
    if json:
        print_json({"url": at, "kind": difference.kind, "object": status.data and status.data.path})
    else:
        click.echo(f"{difference.kind:8}  {printable(at)}")
