"""The commands ``fs ls``, ``find``, ``test`` and ``du``, which read names."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import click
from attrs import frozen

from commitlog.cli.connection import Connection, namespace_options
from commitlog.cli.exit_status import Exit, FailureCollector, PredicateCommand
from commitlog.cli.fs.paths import (
    Match,
    braces,
    matches,
    path_of,
    pattern_to_regex,
    url_of,
    urls_argument,
)
from commitlog.cli.fs.status import status_record
from commitlog.cli.output import (
    counted,
    human_option,
    json_option,
    moment,
    no_letter_r,
    print_json,
    printable,
    size_of,
)
from commitlog.errors import NotFound

if TYPE_CHECKING:
    from commitlog.namespace import Namespace, Status, Summary

__all__ = ["du", "find", "ls", "test"]

#: The number of files and directories between two progress reports: one page of a listing.
_REPORT_INTERVAL = 1000


@frozen(kw_only=True)
class _Order:
    """The order of a directory listing; by name unless an option says otherwise."""

    by_time: bool
    by_size: bool
    reverse: bool

    def __call__(self, entries: Iterable[Status]) -> Iterable[Status]:
        key: Callable[[Status], int] | None = None
        if self.by_time:
            key = _newest_first
        elif self.by_size:
            key = _largest_first
        if key is not None:
            entries = sorted(entries, key=key)
        return reversed(list(entries)) if self.reverse else entries


def _newest_first(status: Status) -> int:
    return -status.modified


def _largest_first(status: Status) -> int:
    return -status.size


@click.command(cls=PredicateCommand)
@click.argument("url")
@click.option("-e", "wanted", flag_value="any", default="any", help="A file or directory (default).")
@click.option("-d", "wanted", flag_value="directory", help="A directory.")
@click.option("-f", "wanted", flag_value="file", help="A file.")
@click.option("-s", "wanted", flag_value="full", help="A file that is not empty.")
@click.option("-z", "wanted", flag_value="empty", help="An empty file.")
@namespace_options
def test(connection: Connection, url: str, wanted: str) -> None:
    """Test whether a file or directory exists at URL. Patterns in URL are not expanded.

    The exit status is 0 if it exists, 1 if not, and 2 or more if the test failed.

    \b
    Example:
      commitlog fs test -e commitlog://lake/_SUCCESS
    """
    at = path_of(connection, url)
    result = False
    with contextlib.suppress(NotFound):
        status = at.namespace.stat(at.path)
        if status.is_directory:
            result = wanted in ("any", "directory")
        elif not at.directory_only:
            results = {"directory": False, "full": status.size > 0, "empty": status.size == 0}
            result = results.get(wanted, True)
    click.get_current_context().exit(Exit.DONE if result else Exit.FAILED)


@click.command()
@urls_argument
@click.option(
    "-l", "--long", is_flag=True, expose_value=False, help="Ignored: the details are always shown."
)
@click.option("-R", "--recursive", is_flag=True, help="List the contents of all directories below.")
@click.option("-d", "--directory", is_flag=True, help="List directories themselves, not their contents.")
@click.option("-C", "--paths", is_flag=True, help="Print only the URLs.")
@click.option("-t", "by_time", is_flag=True, help="Sort by modification time, newest first.")
@click.option("-S", "by_size", is_flag=True, help="Sort by size, largest first.")
@click.option("--reverse", is_flag=True, help="Reverse the order.")
@no_letter_r
@human_option
@json_option
@namespace_options
def ls(
    connection: Connection,
    urls: tuple[str, ...],
    recursive: bool,
    directory: bool,
    paths: bool,
    by_time: bool,
    by_size: bool,
    reverse: bool,
    human: bool,
    json: bool,
) -> None:
    """List files and the contents of directories: type, size, modification time, URL.

    The order is by name, in UTF-8 byte order, and lines are printed as they arrive. To sort in another
    order, the command reads a whole directory before it prints it.

    \b
    Example:
      commitlog fs ls -lh commitlog://lake/events
    """
    order = _Order(by_time=by_time, by_size=by_size, reverse=reverse)
    failures = FailureCollector()
    for url in urls:
        with failures.collect(url):
            for each in matches(connection, url):
                for status in _listed(each, order, recursive=recursive, directory=directory):
                    if json:
                        print_json(status_record(each.namespace, status))
                    elif paths:
                        click.echo(printable(url_of(each.namespace, status.path)))
                    else:
                        click.echo(_line(each.namespace, status, human=human))
    failures.exit()


def _listed(at: Match, order: _Order, *, recursive: bool, directory: bool) -> Iterator[Status]:
    if directory or not at.is_directory:
        yield at.matched
        return
    pending = [iter(order(at.namespace.list(at.path)))]
    while pending:
        status = next(pending[-1], None)
        if status is None:
            pending.pop()
            continue
        yield status
        if recursive and status.is_directory:
            pending.append(iter(order(at.namespace.list(status.path))))


def _line(namespace: Namespace, status: Status, *, human: bool) -> str:
    size = "-" if status.is_directory else size_of(status.size, human=human)
    kind = "d" if status.is_directory else "-"
    return f"{kind}  {size:>14}  {moment(status.modified / 1000)}  " + printable(
        url_of(namespace, status.path)
    )


@click.command()
@urls_argument
@click.option("-name", "--name", metavar="PATTERN", help="Print only names that match PATTERN.")
@click.option("-iname", "--iname", metavar="PATTERN", help="The same, but ignore case.")
@click.option(
    "-print", "--print", "shown", is_flag=True, expose_value=False, help="Print URLs (default)."
)
@click.option(
    "-print0",
    "--print0",
    "zeros",
    is_flag=True,
    help="End each URL with a zero byte instead of a newline.",
)
@json_option
@namespace_options
def find(
    connection: Connection,
    urls: tuple[str, ...],
    name: str | None,
    iname: str | None,
    zeros: bool,
    json: bool,
) -> None:
    """Print the URLs of all files and directories at and below URLs.

    --name and --iname select names. A pattern has to match the whole name: * ? [a-c] [^a-c] {a,b}.

    \b
    Example:
      commitlog fs find commitlog://lake -name '*.csv'
    """
    exact = [re.compile(each) for each in map(pattern_to_regex, _patterns(name))]
    any_case = [re.compile(each, re.IGNORECASE) for each in map(pattern_to_regex, _patterns(iname))]
    failures = FailureCollector()
    for url in urls:
        with failures.collect(url):
            for each in matches(connection, url):
                for status in _at_and_below(each):
                    own = status.name or each.namespace.name
                    tests = (tests for tests in (exact, any_case) if tests)
                    if not all(any(test.match(own) for test in each_of) for each_of in tests):
                        continue
                    at = url_of(each.namespace, status.path)
                    if json:
                        print_json(status_record(each.namespace, status))
                    else:
                        click.echo(f"{at}\0" if zeros else printable(at), nl=not zeros)
    failures.exit()


def _patterns(pattern: str | None) -> list[str]:
    return [] if pattern is None else list(braces(pattern))


def _at_and_below(at: Match) -> Iterator[Status]:
    yield at.matched
    if at.is_directory:
        yield from at.namespace.walk(at.path)


@click.command()
@urls_argument
@click.option("-s", "--summarize", is_flag=True, help="Print one total for each URL.")
@human_option
@json_option
@namespace_options
def du(connection: Connection, urls: tuple[str, ...], summarize: bool, human: bool, json: bool) -> None:
    """Show the bytes and the number of files at and below each entry of the directories.

    Deleted files that wait for "namespace gc" are not counted. The command lists everything below the
    URLs, a page at a time.

    \b
    Example:
      commitlog fs du -h commitlog://lake
    """
    failures = FailureCollector()
    for url in urls:
        with failures.collect(url):
            for each in matches(connection, url):
                inside = each.is_directory and not summarize
                for status in each.namespace.list(each.path) if inside else [each.matched]:
                    total = _summed(each.namespace, status)
                    at = url_of(each.namespace, status.path)
                    if json:
                        counts = {"files": total.files, "directories": total.directories}
                        print_json({"url": at, "bytes": total.bytes, **counts})
                    else:
                        size = size_of(total.bytes, human=human)
                        click.echo(f"{size:>14}  {total.files:>10}  {printable(at)}")
    failures.exit()


def _summed(namespace: Namespace, top: Status) -> Summary:
    """Return the totals at and below `top`. Show the progress on a terminal."""
    from commitlog.namespace import Summary

    files = size = 0
    directories = int(top.is_directory)
    for status in _shown(namespace.walk(top.path) if top.is_directory else iter([top])):
        directories += status.is_directory
        files += not status.is_directory
        size += status.size
    return Summary(files=files, directories=directories, bytes=size)


def _shown(statuses: Iterator[Status]) -> Iterator[Status]:
    """Yield `statuses`. If there is more than one page, show the number so far on a terminal."""
    with ExitStack() as shown:
        count = None
        for number, status in enumerate(statuses, 1):
            yield status
            if number % _REPORT_INTERVAL == 0:
                if count is None:
                    count = shown.enter_context(counted("files and directories counted"))
                count(number)
