"""Commands that go from one object to another: ``cp``, ``mv``.

Within one store the store itself copies. Between two, the bytes stream through this machine.
"""

from __future__ import annotations

import click

from commitlog.cli.connection import Connection, object_options
from commitlog.cli.places import Place
from commitlog.cli.show import json_option, print_result
from commitlog.cli.streams import open_object, shown
from commitlog.cli.write import check_conditions, write
from commitlog.commit import ConditionalStore
from commitlog.errors import CommitError, ConfigurationError, OutcomeUnknown
from commitlog.stores.api import PutResult

__all__ = ["cp", "mv"]


@click.command(short_help="Copy an object.")
@click.argument("source")
@click.argument("target")
@click.option("--if-absent", is_flag=True, help="Only if there is no object at TARGET.")
@click.option("--if-match", metavar="ETAG", help="Only if the object at TARGET has this etag.")
@json_option
@object_options
def cp(
    connection: Connection,
    source: str,
    target: str,
    if_absent: bool,
    if_match: str | None,
    json: bool,
) -> None:
    """Copy the object SOURCE to TARGET, and print the new etag.

    Within one store, the store copies the bytes with their metadata, except under --if-match.
    Otherwise the bytes stream through this machine, and metadata stays behind.
    """
    check_conditions(if_absent, if_match)
    here, there = connection.place(source), connection.place(target)
    _check_distinct(here, there)
    origin, store = connection.open_both(here.store, there.store)
    if here.store == there.store and if_match is None:
        copy = store.copy_if_absent if if_absent else store.copy
        result = copy(here.path, there.path)
    else:
        result = _stream(origin, here, there, store, if_absent=if_absent, if_match=if_match)
    print_result(there, result, json=json)


def _stream(
    origin: ConditionalStore,
    here: Place,
    there: Place,
    store: ConditionalStore,
    *,
    if_absent: bool,
    if_match: str | None,
) -> PutResult:
    info, body = open_object(origin, here.path)
    with shown(body, info.size, "copying") as shown_body:
        return write(store, there.path, shown_body, if_absent=if_absent, if_match=if_match)


def _check_distinct(here: Place, there: Place) -> None:
    if here == there:
        raise ConfigurationError(f"source and target are the same object: {here.url}")


@click.command(short_help="Move an object.")
@click.argument("source")
@click.argument("target")
@click.option("--if-absent", is_flag=True, help="Only if there is no object at TARGET.")
@json_option
@object_options
def mv(connection: Connection, source: str, target: str, if_absent: bool, json: bool) -> None:
    """Move the object SOURCE to TARGET, and print the new etag.

    It is a copy, then a removal of SOURCE if that is still what was copied: for a while both exist. If
    SOURCE cannot be removed, or was replaced meanwhile, both remain and the status is 4.
    """
    here, there = connection.place(source), connection.place(target)
    _check_distinct(here, there)
    origin, store = connection.open_both(here.store, there.store)
    if here.store == there.store and if_absent:
        result = store.rename_if_absent(here.path, there.path)
    else:
        etag = origin.head(here.path).etag
        if here.store == there.store:
            result = store.copy(here.path, there.path)
        else:
            result = _stream(origin, here, there, store, if_absent=if_absent, if_match=None)
        try:
            origin.delete_if_match(here.path, etag=etag)
        except CommitError as error:
            raise OutcomeUnknown(
                f"{here.url} was copied to {there.url}, but may not have been removed ({error}). Look "
                "at both, and remove what is of no use"
            ) from error
    print_result(there, result, json=json)
