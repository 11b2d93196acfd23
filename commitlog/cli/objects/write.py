"""The commands ``put`` and ``rm``, which write and remove objects."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, BinaryIO

import click

from commitlog.cli.connection import Connection, object_options
from commitlog.cli.exit_status import FailureCollector
from commitlog.cli.file_io import with_progress_bar
from commitlog.cli.objects.bulk import (
    ObjectBelow,
    check_precondition,
    directory_location,
    head_or_none,
    recursive_option,
    run_for_each,
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
from commitlog.cli.progress import Progress, threads_option
from commitlog.cli.urls import Location

if TYPE_CHECKING:
    from commitlog.commit import ConditionalStore
    from commitlog.stores.api import PutResult

__all__ = ["check_conditions", "put", "rm", "write"]


@click.command()
@click.argument("file", type=click.File("rb"))
@click.argument("url")
@click.option("--if-absent", is_flag=True, help="Only if URL does not exist.")
@click.option("--if-match", metavar="ETAG", help="Only if URL has this etag.")
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
    location = connection.locate(url)
    store = connection.open(location.store)
    with with_progress_bar(file, _size(file), "writing") as body:
        result = write(store, location.path, body, if_absent=if_absent, if_match=if_match)
    print_result(location, result, json=json)


def check_conditions(if_absent: bool, if_match: str | None) -> None:
    """Raise a usage error for both conditions, which no object can meet."""
    if if_absent and if_match is not None:
        raise click.UsageError("--if-absent and --if-match cannot both hold")


def write(
    store: ConditionalStore, path: str, body: BinaryIO, *, if_absent: bool, if_match: str | None
) -> PutResult:
    """Write `body` under the condition that the options of a command set."""
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

    With --recursive, URLs are directories, and all objects below them are removed; "a" stands for "a/".

    Every URL is tried. The exit status is the highest of all URLs.

    \b
    Example:
      commitlog rm -r s3://bucket/old --dry-run
    """
    if recursive and if_match is not None:
        raise click.UsageError("--if-match takes one object: leave --recursive out")
    failures = FailureCollector()
    if recursive:
        for top in [directory_location(connection, url, allow_root=False) for url in urls]:
            store = connection.open(top.store)
            _remove_below(store, top, failures, threads, dry_run=dry_run, json=json)
        failures.exit()
    for location in [connection.locate(url) for url in urls]:
        with failures.collect(location.url):
            store = connection.open(location.store)
            if dry_run:
                check_precondition(store, location, if_absent=False, if_match=if_match)
                if head_or_none(store, location.path) is not None:
                    print_plan("remove", location.url, json=json)
                continue
            if if_match is None:
                store.delete(location.path)
            else:
                store.delete_if_match(location.path, etag=if_match)
            if json:
                print_json({"url": location.url, "removed": True})
    failures.exit()


def _remove_below(
    store: ConditionalStore,
    top: Location,
    failures: FailureCollector,
    threads: int,
    *,
    dry_run: bool,
    json: bool,
) -> None:
    def remove(below: ObjectBelow) -> Location:
        if not dry_run:
            store.delete(below.location.path)
        return below.location

    def show(location: Location) -> None:
        if dry_run:
            print_plan("remove", location.url, json=json)
        elif json:
            print_json({"url": location.url, "removed": True})

    count = run_for_each(
        store,
        top,
        failures,
        Progress("objects were removed", resume="run the same command"),
        label="removing",
        threads=threads,
        call=remove,
        done=show,
    )
    if not count and not failures.count:
        note(f"there is no object below {printable(top.url)}")
