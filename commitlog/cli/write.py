"""Commands that change one object: ``put``, ``rm``."""

from __future__ import annotations

import os
from typing import BinaryIO

import click

from commitlog.cli.connection import Connection, object_options
from commitlog.cli.exits import Exit, message_of, status_of
from commitlog.cli.show import json_option, print_result
from commitlog.cli.streams import shown
from commitlog.commit import ConditionalStore
from commitlog.errors import CommitError
from commitlog.stores.api import PutResult

__all__ = ["check_conditions", "put", "rm", "write"]


@click.command(short_help="Upload a file to an object.")
@click.argument("file", type=click.File("rb"))
@click.argument("url")
@click.option("--if-absent", is_flag=True, help="Only if there is no object at URL.")
@click.option("--if-match", metavar="ETAG", help="Only if the object at URL has this etag.")
@json_option
@object_options
def put(
    connection: Connection,
    file: BinaryIO,
    url: str,
    if_absent: bool,
    if_match: str | None,
    json: bool,
) -> None:
    """Upload FILE, or standard input if FILE is "-", to the object URL, and print its etag.

    Without a condition, what is there is replaced. The object appears whole or not at all.
    """
    check_conditions(if_absent, if_match)
    place = connection.place(url)
    store = connection.open(place.store)
    with shown(file, _size(file), "writing") as body:
        result = write(store, place.path, body, if_absent=if_absent, if_match=if_match)
    print_result(place, result, json=json)


def check_conditions(if_absent: bool, if_match: str | None) -> None:
    """Raise a usage error if both conditions are asked for: no object can meet them."""
    if if_absent and if_match is not None:
        raise click.UsageError("--if-absent and --if-match cannot both hold")


def write(
    store: ConditionalStore, path: str, body: BinaryIO, *, if_absent: bool, if_match: str | None
) -> PutResult:
    """Write `body` under the condition that the options of a command ask for."""
    if if_absent:
        return store.put_if_absent(path, body)
    if if_match is not None:
        return store.put_if_match(path, body, etag=if_match)
    return store.put(path, body)


def _size(file: BinaryIO) -> int | None:
    try:
        return os.fstat(file.fileno()).st_size or None
    except OSError:
        return None


@click.command()
@click.argument("urls", metavar="URL...", nargs=-1, required=True)
@click.option("--if-match", metavar="ETAG", help="Only if the object has this etag.")
@object_options
def rm(connection: Connection, urls: tuple[str, ...], if_match: str | None) -> None:
    """Remove objects. One that is not there is no error, unless --if-match asks for it.

    Every URL is tried; the exit status is the highest that any of them gave.
    """
    places = [connection.place(url) for url in urls]
    worst = Exit.DONE
    for place in places:
        store = connection.open(place.store)
        try:
            if if_match is None:
                store.delete(place.path)
            else:
                store.delete_if_match(place.path, etag=if_match)
        except CommitError as error:
            click.echo(f"commitlog: {place.url}: {message_of(error)}", err=True)
            worst = max(worst, status_of(error))
    click.get_current_context().exit(worst)
