"""The commands ``fs du`` and ``fs count``: how much there is in namespaces, with progress."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import click

from commitlog.cli.connection import Connection, namespace_options
from commitlog.cli.exits import Trials
from commitlog.cli.fs_paths import found, url_of, urls_argument
from commitlog.cli.show import human_option, json_option, print_json, printable, size_of
from commitlog.cli.upkeep import counted
from commitlog.namespace import Namespace, Status, Summary

__all__ = ["count", "du"]

#: Files and directories after which it is told how many there were: a page of a listing.
_TOLD = 1000


@click.command(short_help="Show how much directories hold.")
@urls_argument
@click.option("-s", "--summarize", is_flag=True, help="One line for each URL, not for what it has.")
@human_option
@json_option
@namespace_options
def du(connection: Connection, urls: tuple[str, ...], summarize: bool, human: bool, json: bool) -> None:
    """Show bytes and number of files at and below each thing that directories have.

    With --summarize, of the directories themselves. What was deleted, and waits for "namespace clean",
    is not in it. All of it is listed for that, a page at a time.
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


@click.command(short_help="Count directories, files and bytes.")
@urls_argument
@click.option("-v", "--header", is_flag=True, help="Print what the columns are, first.")
@human_option
@json_option
@namespace_options
def count(connection: Connection, urls: tuple[str, ...], header: bool, human: bool, json: bool) -> None:
    """Show how many directories, files and bytes there are at and below each URL, itself included."""
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
    """Return how much there is at and below `top`; show on a terminal how far that is."""
    files = size = 0
    directories = int(top.is_directory)
    for status in _shown(lake.walk(top.path) if top.is_directory else iter([top])):
        directories += status.is_directory
        files += not status.is_directory
        size += status.size
    return Summary(files=files, directories=directories, bytes=size)


def _shown(statuses: Iterator[Status]) -> Iterator[Status]:
    """Yield what is counted; show of more than a page how many there were."""
    with ExitStack() as shown:
        count = None
        for number, status in enumerate(statuses, 1):
            yield status
            if number % _TOLD == 0:
                if count is None:
                    count = shown.enter_context(counted("files and directories counted"))
                count(number)
