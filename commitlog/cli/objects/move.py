"""The commands ``cp`` and ``mv``, which copy and move objects.

Within one store the store itself copies. Between two, the bytes stream through this machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click
from attrs import evolve, frozen

from commitlog.cli.connection import Connection, object_options
from commitlog.cli.exit_status import FailureCollector
from commitlog.cli.file_io import open_object, with_progress_bar
from commitlog.cli.objects.bulk import (
    ObjectBelow,
    check_precondition,
    directory_location,
    recursive_option,
    run_for_each,
)
from commitlog.cli.objects.write import check_conditions, write
from commitlog.cli.output import dry_run_option, json_option, print_plan, print_result
from commitlog.cli.progress import Progress, threads_option
from commitlog.cli.urls import Location
from commitlog.errors import CommitError, ConfigurationError, NotFound, NotSupported, OutcomeUnknown

if TYPE_CHECKING:
    from commitlog.commit import ConditionalStore
    from commitlog.stores.api import PutResult

__all__ = ["cp", "mv"]

R = TypeVar("R")


def _options(command: Callable[..., R]) -> Callable[..., R]:
    """Add the options that both commands have, the keyword arguments of `_run`, to `command`."""
    for option in (object_options, json_option, dry_run_option, threads_option, recursive_option):
        command = option(command)
    return command


@click.command()
@click.argument("source")
@click.argument("target")
@click.option("--if-absent", is_flag=True, help="Only if TARGET does not exist.")
@click.option("--if-match", metavar="ETAG", help="Only if TARGET has this etag.")
@_options
def cp(
    connection: Connection,
    source: str,
    target: str,
    if_absent: bool,
    if_match: str | None,
    **options: Any,
) -> None:
    """Copy the object SOURCE to TARGET, and print the new etag.

    With --recursive, both are directories, and each object below SOURCE is copied by itself.

    Within one store, the store copies the bytes with their metadata, except with --if-match.
    Otherwise the bytes stream through this machine, and the metadata is not copied.

    \b
    Example:
      commitlog cp s3://bucket/a s3://bucket/b --if-absent
    """
    check_conditions(if_absent, if_match)
    if options["recursive"] and if_match is not None:
        raise click.UsageError("--if-match takes one object: leave --recursive out")

    def copy(route: _Route) -> PutResult:
        return _copy(route, if_absent=if_absent, if_match=if_match)

    _run(connection, source, target, "copy", copy, if_absent=if_absent, if_match=if_match, **options)


@click.command()
@click.argument("source")
@click.argument("target")
@click.option("--if-absent", is_flag=True, help="Only if TARGET does not exist.")
@_options
def mv(
    connection: Connection,
    source: str,
    target: str,
    if_absent: bool,
    **options: Any,
) -> None:
    """Move the object SOURCE to TARGET, and print the new etag.

    With --recursive, both are directories, and each object below SOURCE is moved by itself.

    The command copies SOURCE, and then removes it if it has not changed. For a while both exist. If
    SOURCE cannot be removed, or was replaced meanwhile, both remain and the exit status is 4. A store
    that cannot remove an object under a condition needs a table of leases; without one, nothing is
    copied.

    \b
    Example:
      commitlog mv -r s3://bucket/old s3://bucket/new
    """

    def move(route: _Route) -> PutResult:
        return _move(route, if_absent=if_absent)

    _run(connection, source, target, "move", move, if_absent=if_absent, if_match=None, **options)


@frozen(kw_only=True)
class _Route:
    """The source and the target of a copy.

    Attributes:
        source_store: the store of the source.
        source: the source.
        target_store: the store of the target.
        target: the target.
        several: whether other objects are copied concurrently; this one then has no progress bar.
    """

    source_store: ConditionalStore
    source: Location
    target_store: ConditionalStore
    target: Location
    several: bool = False

    @property
    def within(self) -> bool:
        """Whether the source and the target are in one store."""
        return self.source.store == self.target.store


def _run(
    connection: Connection,
    source_url: str,
    target_url: str,
    action: str,
    call: Callable[[_Route], PutResult],
    *,
    if_absent: bool,
    if_match: str | None,
    recursive: bool,
    threads: int,
    dry_run: bool,
    json: bool,
) -> None:
    if recursive:
        source = directory_location(connection, source_url, allow_root=action == "copy")
        target = directory_location(connection, target_url, allow_root=True)
    else:
        source, target = connection.locate(source_url), connection.locate(target_url)
    # A copy in place may give an object other options, such as a storage class. A move would remove it.
    in_place = action == "copy" and source.path == target.path and source.store != target.store
    if connection.is_same_store(source.store, target.store) and not in_place:
        _check_apart(source, target, recursive=recursive)
    source_store, target_store = connection.open_both(source.store, target.store)

    def run(route: _Route) -> tuple[_Route, PutResult | None]:
        if not dry_run:
            return route, call(route)
        check_precondition(target_store, route.target, if_absent=if_absent, if_match=if_match)
        return route, None

    def show(outcome: tuple[_Route, PutResult | None]) -> None:
        route, result = outcome
        if result is None:
            print_plan(action, route.source.url, route.target.url, json=json)
        elif not recursive or json:
            print_result(route.target, result, json=json)

    route = _Route(source_store=source_store, source=source, target_store=target_store, target=target)
    if not recursive:
        if dry_run:
            source_store.head(source.path)
        show(run(route))
        return

    def run_below(below: ObjectBelow) -> tuple[_Route, PutResult | None]:
        to = evolve(target, path=target.path + below.path)
        return run(evolve(route, source=below.location, target=to, several=True))

    failures = FailureCollector()
    label, done = {"copy": ("copying", "copied"), "move": ("moving", "moved")}[action]
    count = run_for_each(
        source_store,
        source,
        failures,
        Progress(f"objects were {done}", resume="run the same command"),
        label=label,
        threads=threads,
        call=run_below,
        done=show,
    )
    if not count and not failures.count:
        raise NotFound(f"there is no object below {source.url}")
    failures.exit()


def _copy(route: _Route, *, if_absent: bool, if_match: str | None) -> PutResult:
    source, target, store = route.source, route.target, route.target_store
    if route.within and if_match is None:
        copy = store.copy_if_absent if if_absent else store.copy
        return copy(source.path, target.path)
    info, body = open_object(route.source_store, source.path)
    size = None if route.several else info.size
    with body, with_progress_bar(body, size, "copying") as stream:
        return write(store, target.path, stream, if_absent=if_absent, if_match=if_match)


def _move(route: _Route, *, if_absent: bool) -> PutResult:
    source, target = route.source, route.target
    if route.within and if_absent:
        _check_removable(route)
        return route.target_store.rename_if_absent(source.path, target.path)
    etag = route.source_store.head(source.path).etag
    _check_removable(route)
    result = _copy(route, if_absent=if_absent, if_match=None)
    try:
        route.source_store.delete_if_match(source.path, etag=etag)
    except CommitError as error:
        raise OutcomeUnknown(
            f"{source.url} was copied to {target.url}, but may not have been removed ({error}). Compare "
            "both, and remove one of them"
        ) from error
    return result


def _check_removable(route: _Route) -> None:
    """Raise `NotSupported` if the source could not be removed after the copy. Nothing is copied."""
    try:
        route.source_store.check_delete()
    except NotSupported as error:
        raise NotSupported(
            f"{route.source.url} cannot be moved, because it could change before it is removed; nothing"
            f" was copied: {error}. The option for the table is --table. Or, if no other program writes"
            " the object, run `commitlog cp` and then `commitlog rm`"
        ) from error


def _check_apart(source: Location, target: Location, *, recursive: bool) -> None:
    """Raise `ConfigurationError` if two locations in a store are the same, or one contains the other."""
    if not recursive and source.path == target.path:
        raise ConfigurationError(f"source and target are the same object: {source.url}")
    if recursive and (source.path.startswith(target.path) or target.path.startswith(source.path)):
        raise ConfigurationError(f"one of {source.url} and {target.url} contains the other")
