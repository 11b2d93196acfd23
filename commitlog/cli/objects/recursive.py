"""Operations on all objects below a URL, and their dry runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

import click
from attrs import evolve

from commitlog.cli.connection import Connection
from commitlog.cli.exit_status import Trials
from commitlog.cli.progress import Headway
from commitlog.cli.transfer import Advance, Job, work
from commitlog.cli.urls import Place
from commitlog.commit import ConditionalStore
from commitlog.errors import AlreadyExists, ConfigurationError, NotFound, PreconditionFailed
from commitlog.stores.api import ObjectInfo, same_etag

__all__ = ["Below", "check_plan", "directory_place", "each_below", "head_or_none", "recursive_option"]

R = TypeVar("R")

#: An object below a URL: its place, its details, and its path below the URL.
Below = tuple[Place, ObjectInfo, str]


def recursive_option(command: Callable[..., R]) -> Callable[..., R]:
    """Give `command` the flag that it is about all objects below a URL, as its argument `recursive`."""
    return click.option(
        "-r",
        "-R",
        "--recursive",
        is_flag=True,
        help="All objects below the URL, which is taken as a directory.",
    )(command)


def directory_place(connection: Connection, url: str, *, whole: bool) -> Place:
    """Return the place of a directory, whose path ends in "/" or is "".

    Raises `ConfigurationError` for the root of a store, unless it may be `whole`.
    """
    place = connection.place(url, prefix=True)
    if not place.path and not whole:
        raise ConfigurationError(f"{place.url} is a whole store: name a directory in it")
    return evolve(place, path=place.path and place.path.rstrip("/") + "/")


def each_below(
    store: ConditionalStore,
    top: Place,
    trials: Trials,
    headway: Headway,
    *,
    label: str,
    threads: int,
    do: Callable[[Below], Any],
    done: Callable[[Any], object],
) -> int:
    """Do the same with each object below a directory, several at a time; return how many there were.

    Args:
        store: has them.
        top: the directory.
        trials, headway: are told what failed, and how far it came.
        label: of the progress bar.
        threads: objects that go at a time.
        do: does it with one of them.
        done: is told, in this thread, what it has returned.
    """
    count = 0

    def job(below: Below, _: Advance) -> Any:
        return do(below)

    def jobs() -> Iterator[Job]:
        nonlocal count
        for info in store.list(top.path):
            count += 1
            at = evolve(top, path=info.path)
            below = (at, info, info.path[len(top.path) :])
            yield Job(what=at.url, do=partial(job, below), part=True)

    with headway.told(trials), trials.of(top.url), headway.of(top.url):
        work(
            jobs(),
            trials,
            label=label,
            length=lambda: 0,
            threads=threads,
            done=done,
            headway=headway,
        )
    return count


def head_or_none(store: ConditionalStore, path: str) -> ObjectInfo | None:
    """Return what is known of an object, or None if there is none."""
    try:
        return store.head(path)
    except NotFound:
        return None


def check_plan(store: ConditionalStore, at: Place, *, if_absent: bool, if_match: str | None) -> None:
    """Raise what a write would, if its precondition does not hold by now. Nothing is written."""
    if not if_absent and if_match is None:
        return
    info = head_or_none(store, at.path)
    if if_absent and info is not None:
        raise AlreadyExists(f"there is an object at {at.url} already")
    if if_match is not None and (info is None or not same_etag(info.etag, if_match)):
        found = "there is no object" if info is None else f"it has etag {info.etag}"
        raise PreconditionFailed(f"{at.url}: {found}, and not {if_match}")
