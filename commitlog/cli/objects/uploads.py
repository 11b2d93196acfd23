"""The commands ``upload list`` and ``upload abort``, for incomplete multipart uploads."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

import click

from commitlog.cli.connection import Connection, object_options
from commitlog.cli.exit_status import Exit, print_error
from commitlog.cli.output import dry_run_option, duration, json_option, moment, print_json, printable
from commitlog.cli.parameters import DURATION
from commitlog.cli.urls import Location
from commitlog.clock import SystemClock
from commitlog.errors import CommitError

if TYPE_CHECKING:
    from commitlog.stores.api import ObjectStore, StagedInfo

__all__ = ["upload"]

#: The directory of the log of an output or a namespace, relative to its own directory.
_LOG = "_commitlog/"


@click.group()
def upload() -> None:
    """List or abort incomplete multipart uploads.

    A process that is killed leaves its uploads. They cost storage, and listings of objects do not show
    them.
    """


@upload.command("list", short_help="List uploads, with their age.")
@click.argument("url")
@click.option("--older-than", type=DURATION, default="0s", help="Only uploads of at least this age.")
@json_option
@object_options
def list_(connection: Connection, url: str, older_than: float, json: bool) -> None:
    """List the uploads to objects whose URL begins with URL: start, age and object.

    An upload below an output or a namespace is marked: "output recover", "output gc" or "namespace gc"
    completes or removes it.

    \b
    Example:
      commitlog upload list s3://bucket/
    """
    location = connection.locate(url, prefix=True)
    store = connection.open_store(str(location.store))
    now = SystemClock().epoch()
    log_of = _log_finder(store)
    for upload in store.list_staged(location.path):
        age = now - upload.initiated
        if age < older_than:
            continue
        log = log_of(upload.path)
        if json:
            print_json({**_record(location, upload, age), "log": log and location.url_of(log)})
        else:
            below = "" if log is None else f"  (log: {printable(location.url_of(log))})"
            click.echo(
                f"{moment(upload.initiated)}  {duration(age):>14}  "
                f"{printable(location.url_of(upload.path))}{below}"
            )


@upload.command(short_help="Abort old uploads that belong to no log.")
@click.argument("url")
@click.option(
    "--older-than",
    type=DURATION,
    default="7d",
    show_default=True,
    help="Minimum age of the uploads to abort: more than the longest upload takes.",
)
@dry_run_option
@json_option
@object_options
def abort(connection: Connection, url: str, older_than: float, dry_run: bool, json: bool) -> None:
    """Abort the uploads to objects whose URL begins with URL, if they are older than --older-than.

    The uploads of every program are aborted, with one exception. Below an output or a namespace, which
    has its log in "_commitlog/", an upload may be a file of a committed job. The command counts it and
    leaves it: run "output recover", "output gc" or "namespace gc".

    Uploads that could not be aborted are reported, and the exit status is 1. You can repeat the command.

    \b
    Example:
      commitlog upload abort s3://bucket/ --older-than 7d --dry-run
    """
    location = connection.locate(url, prefix=True)
    store = connection.open_store(str(location.store))
    now = SystemClock().epoch()
    log_of = _log_finder(store)
    aborted = left = failed = 0
    for upload in store.list_staged(location.path):
        age = now - upload.initiated
        if age < older_than:
            continue
        if log_of(upload.path) is not None:
            left += 1
            continue
        try:
            if not dry_run:
                store.abort(upload)
        except CommitError as error:
            failed += 1
            print_error(error, what=location.url_of(upload.path))
            continue
        aborted += 1
        if json:
            print_json({**_record(location, upload, age), "aborted": not dry_run})
        else:
            click.echo(
                f"{'would abort' if dry_run else 'aborted'} {printable(location.url_of(upload.path))}"
            )
    if json:
        print_json({"aborted": 0 if dry_run else aborted, "left": left, "failed": failed})
    else:
        click.echo(f"uploads {'to abort' if dry_run else 'aborted'}: {aborted}")
        if left:
            click.echo(f"left below outputs or namespaces: {left}")
    click.get_current_context().exit(Exit.FAILED if failed else Exit.DONE)


def _record(location: Location, upload: StagedInfo, age: float) -> dict[str, object]:
    return {
        "url": location.url_of(upload.path),
        "upload_id": upload.upload_id,
        "initiated": upload.initiated,
        "age": age,
    }


def _log_finder(store: ObjectStore) -> Callable[[str], str | None]:
    """Return a function that returns the log of the output or namespace above a path, or None.

    It takes one short listing for each directory above the path.
    """

    @cache
    def has_log(directory: str) -> bool:
        return store.first(directory + _LOG) is not None

    def log_of(path: str) -> str | None:
        names = path.split("/")
        parents = ("".join(f"{name}/" for name in names[:depth]) for depth in range(len(names)))
        return next((directory + _LOG for directory in parents if has_log(directory)), None)

    return log_of
