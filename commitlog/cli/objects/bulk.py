"""Operations on all objects below a URL, and checks for dry runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click
from attrs import evolve, frozen

from commitlog.cli.connection import Connection
from commitlog.cli.exit_status import FailureCollector
from commitlog.cli.progress import FileOperation, Progress, run_jobs
from commitlog.cli.urls import Location
from commitlog.errors import AlreadyExists, ConfigurationError, NotFound, PreconditionFailed
from commitlog.stores.api import ObjectInfo, same_etag
from commitlog.transfer import Advance

if TYPE_CHECKING:
    from commitlog.commit import ConditionalStore

__all__ = [
    "ObjectBelow",
    "check_precondition",
    "directory_location",
    "head_or_none",
    "recursive_option",
    "run_for_each",
]

R = TypeVar("R")


@frozen
class ObjectBelow:
    """An object below a directory.

    Attributes:
        location: the location of the object.
        path: its path relative to the directory.
    """

    location: Location
    path: str


def recursive_option(command: Callable[..., R]) -> Callable[..., R]:
    """Add the flag `recursive`, for all objects below a URL, to `command`."""
    return click.option(
        "-r",
        "-R",
        "--recursive",
        is_flag=True,
        help="Process all objects below the URL, which is a directory.",
    )(command)


def directory_location(connection: Connection, url: str, *, allow_root: bool) -> Location:
    """Return the location of a directory, whose path ends in "/" or is "".

    Raises `ConfigurationError` for the root of a store, unless `allow_root` is set.
    """
    location = connection.locate(url, prefix=True)
    if not location.path and not allow_root:
        raise ConfigurationError(f"{location.url} is a whole store: name a directory in it")
    return evolve(location, path=location.path and location.path.rstrip("/") + "/")


def run_for_each(
    store: ConditionalStore,
    top: Location,
    failures: FailureCollector,
    progress: Progress,
    *,
    label: str,
    threads: int,
    call: Callable[[ObjectBelow], Any],
    done: Callable[[Any], object],
) -> int:
    """Call a function with each object below a directory, several at a time; return their number.

    Args:
        store: the store of the objects.
        top: the directory.
        failures: receives the errors.
        progress: receives the progress.
        label: the label of the progress bar.
        threads: the number of concurrent calls.
        call: the function.
        done: called in this thread with each result.
    """
    count = 0

    def run(below: ObjectBelow, _: Advance) -> Any:
        return call(below)

    def jobs() -> Iterator[FileOperation]:
        nonlocal count
        for info in store.list(top.path):
            count += 1
            location = evolve(top, path=info.path)
            below = ObjectBelow(location, info.path[len(top.path) :])
            yield FileOperation(name=location.url, run=partial(run, below), part=True)

    with progress.reported(failures), failures.collect(top.url), progress.step(top.url):
        run_jobs(
            jobs(),
            failures,
            label=label,
            effort=lambda: 0,
            threads=threads,
            done=done,
            progress=progress,
        )
    return count


def head_or_none(store: ConditionalStore, path: str) -> ObjectInfo | None:
    """Return the details of an object, or None if it does not exist."""
    try:
        return store.head(path)
    except NotFound:
        return None


def check_precondition(
    store: ConditionalStore, location: Location, *, if_absent: bool, if_match: str | None
) -> None:
    """Raise the error of a conditional write if its precondition does not hold. Nothing is written."""
    if not if_absent and if_match is None:
        return
    info = head_or_none(store, location.path)
    if if_absent and info is not None:
        raise AlreadyExists(f"the object {location.url} already exists")
    if if_match is not None and (info is None or not same_etag(info.etag, if_match)):
        found = "the object does not exist" if info is None else f"its etag is {info.etag}"
        raise PreconditionFailed(f"{location.url}: {found}, not {if_match}")
