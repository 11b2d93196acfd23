"""The commands ``cp`` and ``mv``, which copy and move objects.

Within one store the store itself copies. Between two, the bytes stream through this machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click
from attrs import evolve, frozen

from commitlog.cli.connection import Connection, object_options
from commitlog.cli.exit_status import Trials
from commitlog.cli.objects.recursive import (
    Below,
    check_plan,
    directory_place,
    each_below,
    recursive_option,
)
from commitlog.cli.objects.write import check_conditions, write
from commitlog.cli.output import dry_run_option, json_option, print_plan, print_result
from commitlog.cli.progress import Headway
from commitlog.cli.streams import open_object, shown
from commitlog.cli.transfer import threads_option
from commitlog.cli.urls import Place
from commitlog.commit import ConditionalStore
from commitlog.errors import CommitError, ConfigurationError, NotFound, OutcomeUnknown
from commitlog.stores.api import PutResult

__all__ = ["cp", "mv"]

R = TypeVar("R")


def _options(command: Callable[..., R]) -> Callable[..., R]:
    """Give `command` the options that both commands have: the keyword arguments of `_go`."""
    for option in (object_options, json_option, dry_run_option, threads_option, recursive_option):
        command = option(command)
    return command


@click.command()
@click.argument("source")
@click.argument("target")
@click.option("--if-absent", is_flag=True, help="Only if there is no object at TARGET.")
@click.option("--if-match", metavar="ETAG", help="Only if the object at TARGET has this etag.")
@_options
def cp(
    connection: Connection,
    source: str,
    target: str,
    if_absent: bool,
    if_match: str | None,
    **how: Any,
) -> None:
    """Copy the object SOURCE to TARGET, and print the new etag.

    With --recursive, all objects below SOURCE go below TARGET, each by itself: both are directories.

    Within one store, the store copies the bytes with their metadata, except under --if-match.
    Otherwise the bytes stream through this machine, and metadata stays behind.

    \b
    Example:
      commitlog cp s3://bucket/a s3://bucket/b --if-absent
    """
    check_conditions(if_absent, if_match)
    if how["recursive"] and if_match is not None:
        raise click.UsageError("--if-match is about one object, and not for --recursive")

    def copy(route: _Route) -> PutResult:
        return _copy(route, if_absent=if_absent, if_match=if_match)

    _go(connection, source, target, "copy", copy, if_absent=if_absent, if_match=if_match, **how)


@click.command()
@click.argument("source")
@click.argument("target")
@click.option("--if-absent", is_flag=True, help="Only if there is no object at TARGET.")
@_options
def mv(
    connection: Connection,
    source: str,
    target: str,
    if_absent: bool,
    **how: Any,
) -> None:
    """Move the object SOURCE to TARGET, and print the new etag.

    With --recursive, all objects below SOURCE go below TARGET, each by itself: both are directories.

    The command copies SOURCE and then removes it, if it has not changed: for a while both exist. If
    SOURCE cannot be removed, or was replaced meanwhile, both remain and the exit status is 4.

    \b
    Example:
      commitlog mv -r s3://bucket/old s3://bucket/new
    """

    def move(route: _Route) -> PutResult:
        return _move(route, if_absent=if_absent)

    _go(connection, source, target, "move", move, if_absent=if_absent, if_match=None, **how)


@frozen(kw_only=True)
class _Route:
    """From one object to another.

    Attributes:
        origin: the store of the source.
        here: the source.
        store: the store of the target.
        there: the target.
        several: whether other objects are copied concurrently; this one then has no progress bar.
    """

    origin: ConditionalStore
    here: Place
    store: ConditionalStore
    there: Place
    several: bool = False

    @property
    def within(self) -> bool:
        """Whether both are in one store."""
        return self.here.store == self.there.store


def _go(
    connection: Connection,
    source: str,
    target: str,
    action: str,
    do: Callable[[_Route], PutResult],
    *,
    if_absent: bool,
    if_match: str | None,
    recursive: bool,
    threads: int,
    dry_run: bool,
    json: bool,
) -> None:
    if recursive:
        here = directory_place(connection, source, whole=action == "copy")
        there = directory_place(connection, target, whole=True)
        _check_apart(here, there)
    else:
        here, there = connection.place(source), connection.place(target)
        if here == there:
            raise ConfigurationError(f"source and target are the same object: {here.url}")
    origin, store = connection.open_both(here.store, there.store)

    def tried(route: _Route) -> tuple[_Route, PutResult | None]:
        if not dry_run:
            return route, do(route)
        check_plan(store, route.there, if_absent=if_absent, if_match=if_match)
        return route, None

    def tell(outcome: tuple[_Route, PutResult | None]) -> None:
        route, result = outcome
        if result is None:
            print_plan(action, route.here.url, route.there.url, json=json)
        elif not recursive or json:
            print_result(route.there, result, json=json)

    if not recursive:
        if dry_run:
            origin.head(here.path)
        tell(tried(_Route(origin=origin, here=here, store=store, there=there)))
        return

    def one(below: Below) -> tuple[_Route, PutResult | None]:
        goal = evolve(there, path=there.path + below[2])
        return tried(_Route(origin=origin, here=below[0], store=store, there=goal, several=True))

    trials = Trials()
    label, done = {"copy": ("copying", "copied"), "move": ("moving", "moved")}[action]
    headway = Headway(f"objects were {done}", go_on="the same command")
    count = each_below(origin, here, trials, headway, label=label, threads=threads, do=one, done=tell)
    if not count and not trials.failures:
        raise NotFound(f"there is no object below {here.url}")
    trials.end()


def _copy(route: _Route, *, if_absent: bool, if_match: str | None) -> PutResult:
    if route.within and if_match is None:
        copy = route.store.copy_if_absent if if_absent else route.store.copy
        return copy(route.here.path, route.there.path)
    info, body = open_object(route.origin, route.here.path)
    size = None if route.several else info.size
    with shown(body, size, "copying") as source:
        return write(route.store, route.there.path, source, if_absent=if_absent, if_match=if_match)


def _move(route: _Route, *, if_absent: bool) -> PutResult:
    here, there = route.here, route.there
    if route.within and if_absent:
        return route.store.rename_if_absent(here.path, there.path)
    etag = route.origin.head(here.path).etag
    result = _copy(route, if_absent=if_absent, if_match=None)
    try:
        route.origin.delete_if_match(here.path, etag=etag)
    except CommitError as error:
        raise OutcomeUnknown(
            f"{here.url} was copied to {there.url}, but may not have been removed ({error}). Look "
            "at both, and remove what is of no use"
        ) from error
    return result


def _check_apart(here: Place, there: Place) -> None:
    if here.store == there.store and (
        here.path.startswith(there.path) or there.path.startswith(here.path)
    ):
        raise ConfigurationError(f"one of {here.url} and {there.url} is in the other")
