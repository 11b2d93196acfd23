"""The commands ``namespace bind``, ``unbind``, ``sync``, ``prune``: directories that others write to.

Imports which part of a store a URL means.
"""

from __future__ import annotations

import click

from commitlog.cli.connection import Connection, namespace_options
from commitlog.cli.exits import Exit, complain
from commitlog.cli.fs_paths import spot
from commitlog.cli.importing import prefix_in
from commitlog.cli.recover import Seconds
from commitlog.cli.show import duration, json_option, print_json, printable
from commitlog.cli.upkeep import counted
from commitlog.namespace import Pruned, Synced

__all__ = ["bind", "prune", "sync", "unbind"]

_FOREVER = "forever"


class _Age(Seconds):
    """A span of time, or "forever", which is infinite."""

    def convert(
        self, value: str | float, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return `value` in seconds."""
        return float("inf") if value == _FOREVER else super().convert(value, param, ctx)


@click.command(short_help="Let a directory have what others store.")
@click.argument("source", metavar="STORE_URL")
@click.argument("url")
@click.option(
    "--max-age",
    type=_Age(),
    default="0s",
    show_default=True,
    help="How long a listing counts; forever: only the namespace changes what is there.",
)
@json_option
@namespace_options
def bind(connection: Connection, source: str, url: str, max_age: float, json: bool) -> None:
    """Let the directory URL have what others store below STORE_URL, beside what it has.

    It is made if it is missing; STORE_URL lies in the store of the namespace. What is deleted from the
    directory stays hidden, though the object may be there. Run it again to change --max-age.
    """
    at = spot(connection, url)
    prefix = prefix_in(at.namespace, source)
    age = None if max_age == float("inf") else max_age
    status = at.namespace.bind(prefix, at.path, max_age=age)
    binding = status.binding
    assert binding is not None
    if json:
        print_json({"url": at.url, "bound_to": binding.prefix, "max_age": binding.max_age})
        return
    looks = _FOREVER if binding.max_age is None else duration(binding.max_age)
    click.echo(f"{printable(at.url)} has what is below {printable(binding.prefix)}, listed for {looks}")


@click.command(short_help="Let a directory be changed by the namespace alone.")
@click.argument("url")
@json_option
@namespace_options
def unbind(connection: Connection, url: str, json: bool) -> None:
    """Let the directory URL, and what is bound with it, be changed by the namespace alone.

    It keeps the files that it has by then; run "namespace sync" before to have all.
    """
    at = spot(connection, url)
    at.namespace.unbind(at.path)
    if json:
        print_json({"url": at.url, "bound_to": None, "max_age": None})
    else:
        click.echo(f"{printable(at.url)} is not bound")


_empty_store = click.option(
    "--empty-store",
    is_flag=True,
    help="Take the store for the right one, though it lacks what it is known by; put that back.",
)


@click.command(short_help="Take over what others have stored.")
@click.argument("url")
@_empty_store
@json_option
@namespace_options
def sync(connection: Connection, url: str, empty_store: bool, json: bool) -> None:
    """Make all bound directories at and below URL agree with the store.

    What cannot be a file or directory there is told, with status 1. It can be broken off and repeated.
    """
    at = spot(connection, url)
    with counted("directories") as count:

        def progress(so_far: Synced) -> None:
            count(so_far.directories)

        done = at.namespace.sync(at.path, empty_store=empty_store, progress=progress)
    for path in done.unfit:
        complain("cannot be a file or directory there", what=path)
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


@click.command(short_help="Forget what the store has not any more.")
@click.argument("url")
@click.option(
    "--older-than",
    type=Seconds(),
    help="Also what hides objects for so long; those that are still there show again.",
)
@_empty_store
@json_option
@namespace_options
def prune(
    connection: Connection, url: str, older_than: float | None, empty_store: bool, json: bool
) -> None:
    """Remove what is of no use any more from the directories at and below URL.

    That is files whose objects others have removed, which nobody can read; and records that hide
    objects which are not there any more. Run it now and then. It can be broken off and repeated. What
    could not be removed is told, with status 1.
    """
    at = spot(connection, url)
    with counted("directories") as count:

        def progress(so_far: Pruned) -> None:
            count(so_far.directories)

        done = at.namespace.prune(
            at.path, older_than=older_than, empty_store=empty_store, progress=progress
        )
    for id, error in done.failed:
        complain(error, what=id)
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
