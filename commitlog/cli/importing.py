"""The commands ``import`` and ``diff``: what a store had before its namespace, or behind its back."""

from __future__ import annotations

import os
import sys

import click

from commitlog.cli.connection import Connection, namespace_options
from commitlog.cli.exits import Exit, Interrupted, Question, complain
from commitlog.cli.fs_paths import found, spot, url_of
from commitlog.cli.places import refuse_secrets
from commitlog.cli.show import json_option, note, print_json, printable, readable
from commitlog.cli.upkeep import counted
from commitlog.errors import ConfigurationError
from commitlog.namespace import Adopted, Difference, Namespace
from commitlog.urls import parse_store_url

__all__ = ["diff", "import_", "prefix_in"]


@click.command("import", short_help="Make files of objects that are there.")
@click.argument("source", metavar="STORE_URL")
@click.argument("url")
@click.option("--start-after", default="", metavar="PATH", help="Go on behind this object.")
@json_option
@namespace_options
def import_(connection: Connection, source: str, url: str, start_after: str, json: bool) -> None:
    """Make files below URL of the objects below STORE_URL, which lies in the store of the namespace.

    Nothing is copied, and the objects stay where they are, whatever becomes of the files. It can be
    repeated: what is known is passed over, and what was overwritten in the store since is taken anew. If
    it is broken off, it says where to go on.

    Objects that cannot be files, such as "a/b" beside "a", are told, with status 1. So it is told if
    there are no objects.
    """
    at = spot(connection, url)
    prefix = prefix_in(at.namespace, source)
    so_far = Adopted(last=start_after)
    try:
        with counted("objects") as count:

            def progress(now: Adopted) -> None:
                nonlocal so_far
                so_far = now
                count(now.files + now.updated + now.known + len(now.refused))

            done = at.namespace.adopt(prefix, at.path, start_after=start_after, progress=progress)
    except KeyboardInterrupt as error:
        raise Interrupted(_state(so_far, start_after)) from error
    except BaseException:
        if so_far.last:
            here = f"--start-after {printable(so_far.last)!r}"
            note(f"to go on there, say {here}")
        raise
    for path, reason in done.refused:
        complain(reason, what=path)
    if json:
        print_json(
            {
                "files": done.files,
                "updated": done.updated,
                "known": done.known,
                "bytes": done.bytes,
                "refused": [{"path": path, "reason": reason} for path, reason in done.refused],
                "last": done.last,
            }
        )
    else:
        click.echo(
            f"files made: {done.files}, updated: {done.updated}, {readable(done.bytes)}; "
            f"known before: {done.known}; refused: {len(done.refused)}"
        )
    nothing = not (start_after or done.files or done.updated or done.known or done.refused)
    if nothing:
        complain(f"there is nothing to import below {source}")
    click.get_current_context().exit(Exit.FAILED if nothing or done.refused else Exit.DONE)


def _state(so_far: Adopted, start_after: str) -> str:
    """Return what is known of an import that was interrupted, and how to go on."""
    made = f"files made: {so_far.files}, updated: {so_far.updated}; known before: {so_far.known}"
    if so_far.refused:
        made += f"; refused: {len(so_far.refused)}"
    again = "the same command"
    if so_far.last != start_after:
        again += f" with --start-after {printable(so_far.last)!r}"
    return (
        f"{made}; some of the objects behind may have become files, too, and are known then; to go on:"
        f" {again}"
    )


def prefix_in(namespace: Namespace, url: str) -> str:
    """Return the prefix that paths in the namespace's store have of objects below `url`; "" for all.

    Raises `ConfigurationError` if it is not in that store.
    """
    given, store = parse_store_url(url), parse_store_url(namespace.store.url)
    refuse_secrets(given)
    endpoint = given.options.get("endpoint_url", store.options.get("endpoint_url"))
    if given.scheme == "file":
        here, top = os.path.realpath(given.name), os.path.realpath(store.name)
        below = os.path.relpath(here, top)
        path = None if below.split(os.sep, 1)[0] == os.pardir else below.removeprefix(os.curdir)
    else:
        same = (given.name, endpoint) == (store.name, store.options.get("endpoint_url"))
        within = f"{given.prefix}/".startswith(f"{store.prefix}/") or not store.prefix
        path = given.prefix[len(store.prefix) :].strip("/") if same and within else None
    if given.scheme != store.scheme or path is None:
        raise ConfigurationError(
            f"{given} is not in the store of namespace {namespace.name!r}, which is {store}: objects"
            " become files in place, so copy them there, or make a namespace where they are"
        )
    return f"{path}/" if path else ""


@click.command(cls=Question, short_help="Find what others have changed in the store.")
@click.argument("urls", metavar="URL...", nargs=-1, required=True)
@click.option(
    "--with",
    "source",
    metavar="STORE_URL",
    help="Where the directory was imported from: find objects there that are no files, too.",
)
@json_option
@namespace_options
def diff(connection: Connection, urls: tuple[str, ...], source: str | None, json: bool) -> None:
    """Find in what the store differs from what the namespace knows, at and below URLs.

    \b
    missing  the object of a file is gone
    changed  it is another than the file was given
    unknown  an object is no file, in a directory that is bound or compared --with its origin
    hidden   an object is there, though its file was deleted

    No content is read. The status is 0 if there are no differences, 1 if there are some, and 2 if it
    could not be found out.
    """
    if source is not None and len(urls) > 1:
        raise click.UsageError("--with is about one directory: give one URL")
    differences = 0
    for url in urls:
        for each in found(connection, url):
            prefix = None if source is None else prefix_in(each.namespace, source)
            with counted(f"looked at in {printable(each.url)}") as count:
                for difference in each.namespace.differences(each.path, prefix=prefix, progress=count):
                    differences += 1
                    _clear_line()
                    _print_difference(each.namespace, difference, json=json)
    click.get_current_context().exit(Exit.FAILED if differences else Exit.DONE)


def _clear_line() -> None:
    """Make room for a line where the count is, if there is one; it comes again below."""
    if sys.stderr.isatty():
        click.echo("\r\x1b[K", nl=False, err=True)


def _print_difference(namespace: Namespace, difference: Difference, *, json: bool) -> None:
    status = difference.status
    at = url_of(namespace, status.path)
    if json:
        print_json({"url": at, "kind": difference.kind, "object": status.data and status.data.path})
    else:
        click.echo(f"{difference.kind:8}  {printable(at)}")
