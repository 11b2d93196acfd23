"""Commands on multipart uploads that were begun and not completed: ``uploads ls``, ``uploads abort``."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import click

from commitlog.cli.connection import Connection, object_options
from commitlog.cli.exit_status import Exit, complain
from commitlog.cli.output import dry_run_option, duration, json_option, moment, print_json, printable
from commitlog.cli.parameters import DURATION
from commitlog.cli.urls import Place
from commitlog.clock import SystemClock
from commitlog.errors import CommitError
from commitlog.stores.api import ObjectStore, StagedInfo

__all__ = ["uploads"]

#: Where outputs and namespaces keep their logs, seen from their directories.
_LOG = "_commitlog/"


@click.group()
def uploads() -> None:
    """List or abort multipart uploads that were begun and not completed.

    They cost storage, and no listing of objects shows them. A process that was killed leaves its
    uploads.
    """


@uploads.command(short_help="List uploads, with their age.")
@click.argument("url")
@click.option("--older-than", type=DURATION, default="0s", help="Only uploads of this age.")
@json_option
@object_options
def ls(connection: Connection, url: str, older_than: float, json: bool) -> None:
    """List the uploads to objects whose URL begins with URL: begun when, their age, and the object.

    An upload below an output or a namespace is marked: "recover", "gc" or "namespace gc" decides
    what becomes of it.

    \b
    Example:
      commitlog uploads ls s3://bucket/
    """
    place = connection.place(url, prefix=True)
    store = connection.opened_store(str(place.store))
    now = SystemClock().epoch()
    owned = _owned(store)
    for upload in store.list_staged(place.path):
        age = now - upload.initiated
        if age < older_than:
            continue
        owner = owned(upload.path)
        if json:
            print_json({**_record(place, upload, age), "log": owner and place.url_of(owner)})
        else:
            below = "" if owner is None else f"  (has a log: {printable(place.url_of(owner))})"
            click.echo(
                f"{moment(upload.initiated)}  {duration(age):>14}  "
                f"{printable(place.url_of(upload.path))}{below}"
            )


@uploads.command(short_help="Abort old uploads that no log decides about.")
@click.argument("url")
@click.option(
    "--older-than",
    type=DURATION,
    default="7d",
    show_default=True,
    help="Age from which an upload is aborted: more than the longest upload takes.",
)
@dry_run_option
@json_option
@object_options
def abort(connection: Connection, url: str, older_than: float, dry_run: bool, json: bool) -> None:
    """Abort the uploads to objects whose URL begins with URL, and that were begun --older-than ago.

    Those of every program are aborted, with one exception. Below an output or a namespace, which has its
    log in "_commitlog/", an upload may be a file of a committed job. It is left alone and counted: run
    "recover" or "gc" on the output, or "namespace gc".

    An upload that could not be aborted is shown, with status 1. The command can be repeated.

    \b
    Example:
      commitlog uploads abort s3://bucket/ --older-than 7d --dry-run
    """
    place = connection.place(url, prefix=True)
    store = connection.opened_store(str(place.store))
    now = SystemClock().epoch()
    owned = _owned(store)
    aborted = left = failed = 0
    for upload in store.list_staged(place.path):
        age = now - upload.initiated
        if age < older_than:
            continue
        if owned(upload.path) is not None:
            left += 1
            continue
        try:
            if not dry_run:
                store.abort(upload)
        except CommitError as error:
            failed += 1
            complain(error, what=place.url_of(upload.path))
            continue
        aborted += 1
        if json:
            print_json({**_record(place, upload, age), "aborted": not dry_run})
        else:
            click.echo(
                f"{'would abort' if dry_run else 'aborted'} {printable(place.url_of(upload.path))}"
            )
    if json:
        print_json({"aborted": 0 if dry_run else aborted, "left": left, "failed": failed})
    else:
        click.echo(f"uploads {'to abort' if dry_run else 'aborted'}: {aborted}")
        if left:
            click.echo(f"left alone, below an output or a namespace: {left}")
    click.get_current_context().exit(Exit.FAILED if failed else Exit.DONE)


def _record(place: Place, upload: StagedInfo, age: float) -> dict[str, object]:
    return {
        "url": place.url_of(upload.path),
        "upload_id": upload.upload_id,
        "initiated": upload.initiated,
        "age": age,
    }


def _owned(store: ObjectStore) -> Callable[[str], str | None]:
    """Return what tells the log of the output or namespace that an upload is below; None if of none.

    A listing of one object for each directory above.
    """

    @cache
    def has_log(directory: str) -> bool:
        token: str | None = None
        while True:
            page = store.list_page(directory + _LOG, limit=1, token=token)
            token = page.next_token
            if page.objects or token is None:
                return bool(page.objects)

    def owner(path: str) -> str | None:
        names = path.split("/")
        above = ("".join(f"{name}/" for name in names[:depth]) for depth in range(len(names)))
        return next((directory + _LOG for directory in above if has_log(directory)), None)

    return owner
