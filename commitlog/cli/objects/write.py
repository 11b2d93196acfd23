"""Commands that change one object: ``put``, ``rm``."""

from __future__ import annotations

import os
from typing import Any, BinaryIO

import click

from commitlog.cli.connection import Connection, object_options
from commitlog.cli.exit_status import Trials
from commitlog.cli.objects.recursive import (
    Below,
    check_plan,
    directory_place,
    each_below,
    head_or_none,
    recursive_option,
)
from commitlog.cli.output import (
    dry_run_option,
    json_option,
    note,
    print_json,
    print_plan,
    print_result,
    printable,
)
from commitlog.cli.progress import Headway
from commitlog.cli.streams import shown
from commitlog.cli.transfer import threads_option
from commitlog.cli.urls import Place
from commitlog.commit import ConditionalStore
from commitlog.stores.api import PutResult

__all__ = ["check_conditions", "put", "rm", "write"]


@click.command()
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

    Without a condition, an existing object is replaced. The object appears complete or not at all.

    \b
    Example:
      commitlog put report.csv s3://bucket/report.csv --if-absent
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
@recursive_option
@threads_option
@dry_run_option
@json_option
@object_options
def rm(
    connection: Connection,
    urls: tuple[str, ...],
    if_match: str | None,
    recursive: bool,
    threads: int,
    dry_run: bool,
    json: bool,
) -> None:
    """Remove objects. A missing object is an error only with --if-match.

    With --recursive, remove all objects below each URL, which is a directory: "a" stands for "a/".

    Every URL is tried. The exit status is the highest of all URLs.

    \b
    Example:
      commitlog rm -r s3://bucket/old --dry-run
    """
    if recursive and if_match is not None:
        raise click.UsageError("--if-match is about one object, and not for --recursive")
    trials = Trials()
    if recursive:
        for top in [directory_place(connection, url, whole=False) for url in urls]:
            _remove_below(connection.open(top.store), top, trials, threads, dry_run=dry_run, json=json)
        trials.end()
    for place in [connection.place(url) for url in urls]:
        with trials.of(place.url):
            store = connection.open(place.store)
            if dry_run:
                check_plan(store, place, if_absent=False, if_match=if_match)
                if head_or_none(store, place.path) is not None:
                    print_plan("remove", place.url, json=json)
                continue
            if if_match is None:
                store.delete(place.path)
            else:
                store.delete_if_match(place.path, etag=if_match)
            if json:
                print_json({"url": place.url, "removed": True})
    trials.end()


def _remove_below(
    store: ConditionalStore, top: Place, trials: Trials, threads: int, *, dry_run: bool, json: bool
) -> None:
    def remove(below: Below) -> Place:
        if not dry_run:
            store.delete(below[0].path)
        return below[0]

    def tell(place: Place) -> None:
        if dry_run:
            print_plan("remove", place.url, json=json)
        elif json:
            print_json({"url": place.url, "removed": True})

    headway = Headway("objects were removed", go_on="the same command")
    how: dict[str, Any] = {"label": "removing", "threads": threads}
    if not each_below(store, top, trials, headway, do=remove, done=tell, **how) and not trials.failures:
        note(f"there is nothing below {printable(top.url)}")
