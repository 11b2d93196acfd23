"""The commands ``fs du`` and ``fs count``: the number and size of files, with progress."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import click

from commitlog.cli.connection import Connection, namespace_options
from commitlog.cli.exit_status import Trials
from commitlog.cli.fs.paths import found, url_of, urls_argument
from commitlog.cli.output import counted, human_option, json_option, print_json, printable, size_of
from commitlog.namespace import Namespace, Status, Summary

__all__ = ["count", "du"]

#: The number of files and directories between two progress reports: one page of a listing.
_TOLD = 1000


@click.command()
@urls_argument
@click.option("-s", "--summarize", is_flag=True, help="One line for each URL, not for what it has.")
@human_option
@json_option
@namespace_options
def du(connection: Connection, urls: tuple[str, ...], summarize: bool, human: bool, json: bool) -> None:
    """Show the bytes and the number of files at and below each entry of the directories.

    With --summarize, show one total for each URL. Deleted files that wait for "namespace gc" are not
    counted. The command lists everything below the URLs, a page at a time.

    \b
    Example:
      commitlog fs du -h commitlog://lake
    """
    trials = Trials()
    for url in urls:
        with trials.of(url):
            for each in found(connection, url):
                inside = each.is_directory and not summarize
                for status in each.namespace.list(each.path) if inside else [each.known]:
                    there = _summed(each.namespace, status)
                    at = url_of(each.namespace, status.path)
                    if json:
                        counts = {"files": there.files, "directories": there.directories}
                        print_json({"url": at, "bytes": there.bytes, **counts})
                    else:
                        size = size_of(there.bytes, human=human)
                        click.echo(f"{size:>14}  {there.files:>10}  {printable(at)}")
    trials.end()


@click.command()
@urls_argument
@click.option("-v", "--header", is_flag=True, help="Print what the columns are, first.")
@human_option
@json_option
@namespace_options
def count(connection: Connection, urls: tuple[str, ...], header: bool, human: bool, json: bool) -> None:
    """Show the number of directories, files and bytes at and below each URL, itself included.

    \b
    Example:
      commitlog fs count commitlog://lake/events
    """
    trials = Trials()
    if header and not json:
        click.echo(f"{'DIRECTORIES':>12}  {'FILES':>12}  {'BYTES':>18}  URL")
    for url in urls:
        with trials.of(url):
            for each in found(connection, url):
                there = _summed(each.namespace, each.known)
                if json:
                    counts = {"files": there.files, "directories": there.directories}
                    print_json({"url": each.url, "bytes": there.bytes, **counts})
                else:
                    size = size_of(there.bytes, human=human)
                    counted = f"{there.directories:>12}  {there.files:>12}  {size:>18}"
                    click.echo(f"{counted}  {printable(each.url)}")
    trials.end()


def _summed(lake: Namespace, top: Status) -> Summary:
    """Return the totals at and below `top`. Show the progress on a terminal."""
    files = size = 0
    directories = int(top.is_directory)
    for status in _shown(lake.walk(top.path) if top.is_directory else iter([top])):
        directories += status.is_directory
        files += not status.is_directory
        size += status.size
    return Summary(files=files, directories=directories, bytes=size)


def _shown(statuses: Iterator[Status]) -> Iterator[Status]:
    """Yield `statuses`. If there is more than one page, show how many were counted."""
    with ExitStack() as shown:
        count = None
        for number, status in enumerate(statuses, 1):
            yield status
            if number % _TOLD == 0:
                if count is None:
                    count = shown.enter_context(counted("files and directories counted"))
                count(number)
