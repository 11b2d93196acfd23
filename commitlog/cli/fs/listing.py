"""The commands ``fs ls``, ``fs find``, ``fs test`` and ``fs tree``, which list names."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator

import click
from attrs import frozen

from commitlog.cli.connection import Connection, namespace_options
from commitlog.cli.exit_status import Exit, Question, Trials
from commitlog.cli.fs.paths import Found, braces, expression, found, spot, url_of, urls_argument
from commitlog.cli.fs.status import status_record
from commitlog.cli.output import (
    human_option,
    json_option,
    moment,
    no_letter_r,
    print_json,
    printable,
    readable,
    size_of,
)
from commitlog.errors import NotFound
from commitlog.namespace import Namespace, Status

__all__ = ["find", "ls", "test", "tree"]


@frozen(kw_only=True)
class _Order:
    """The order of a directory listing; by name unless an option says otherwise."""

    by_time: bool
    by_size: bool
    reverse: bool

    def __call__(self, entries: Iterable[Status]) -> Iterable[Status]:
        key: Callable[[Status], int] | None = None
        if self.by_time:
            key = _youngest_first
        elif self.by_size:
            key = _largest_first
        if key is not None:
            entries = sorted(entries, key=key)
        return reversed(list(entries)) if self.reverse else entries


def _youngest_first(status: Status) -> int:
    return -status.modified


def _largest_first(status: Status) -> int:
    return -status.size


@click.command(cls=Question)
@click.argument("url")
@click.option("-e", "wanted", flag_value="any", default="any", help="Anything (default).")
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
    at = spot(connection, url)
    is_so = False
    with contextlib.suppress(NotFound):
        status = at.namespace.stat(at.path)
        if status.is_directory:
            is_so = wanted in ("any", "directory")
        elif not at.inside:
            fits = {"directory": False, "full": status.size > 0, "empty": status.size == 0}
            is_so = fits.get(wanted, True)
    click.get_current_context().exit(Exit.DONE if is_so else Exit.FAILED)


@click.command()
@urls_argument
@click.option("-l", "--long", is_flag=True, expose_value=False, help="Show all of that: is so anyway.")
@click.option("-R", "--recursive", is_flag=True, help="List everything below, too.")
@click.option("-d", "--directory", is_flag=True, help="List directories themselves, as if files.")
@click.option("-C", "--paths", is_flag=True, help="Print the URLs alone.")
@click.option("-t", "by_time", is_flag=True, help="Youngest modification first.")
@click.option("-S", "by_size", is_flag=True, help="Largest first.")
@click.option("--reverse", is_flag=True, help="The other way round.")
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
    trials = Trials()
    for url in urls:
        with trials.of(url):
            for each in found(connection, url):
                for status in _listed(each, order, recursive=recursive, directory=directory):
                    if json:
                        print_json(status_record(each.namespace, status))
                    elif paths:
                        click.echo(printable(url_of(each.namespace, status.path)))
                    else:
                        click.echo(_line(each.namespace, status, human=human))
    trials.end()


def _listed(at: Found, order: _Order, *, recursive: bool, directory: bool) -> Iterator[Status]:
    if directory or not at.is_directory:
        yield at.known
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
@click.option("-name", "--name", metavar="PATTERN", help="Only names that match it.")
@click.option("-iname", "--iname", metavar="PATTERN", help="Likewise, upper and lower case alike.")
@click.option(
    "-print", "--print", "shown", is_flag=True, expose_value=False, help="Print URLs (default)."
)
@click.option("-print0", "--print0", "zeros", is_flag=True, help="End each URL with a zero byte.")
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
    """Print the URLs of the files and directories at and below URLs, or of those whose name matches.

    A pattern has to match the whole name: * ? [a-c] [^a-c] {a,b}.

    \b
    Example:
      commitlog fs find commitlog://lake -name '*.csv'
    """
    wanted = [re.compile(each) for each in map(expression, _patterns(name))]
    wanted_in_any_case = [re.compile(each, re.IGNORECASE) for each in map(expression, _patterns(iname))]
    trials = Trials()
    for url in urls:
        with trials.of(url):
            for each in found(connection, url):
                for status in _at_and_below(each):
                    own = status.name or each.namespace.name
                    tests = (tests for tests in (wanted, wanted_in_any_case) if tests)
                    if not all(any(test.match(own) for test in alike) for alike in tests):
                        continue
                    at = url_of(each.namespace, status.path)
                    if json:
                        print_json(status_record(each.namespace, status))
                    else:
                        click.echo(f"{at}\0" if zeros else printable(at), nl=not zeros)
    trials.end()


def _patterns(pattern: str | None) -> list[str]:
    return [] if pattern is None else list(braces(pattern))


def _at_and_below(at: Found) -> Iterator[Status]:
    yield at.known
    if at.is_directory:
        yield from at.namespace.walk(at.path)


@click.command()
@urls_argument
@click.option("-L", "--level", type=click.IntRange(min=1), help="Go so many levels down.")
@click.option("--directories", is_flag=True, help="Directories alone.")
@human_option
@json_option
@namespace_options
def tree(
    connection: Connection,
    urls: tuple[str, ...],
    level: int | None,
    directories: bool,
    human: bool,
    json: bool,
) -> None:
    """Draw directories as trees, line by line as they are read. With --human, show file sizes, too.

    \b
    Example:
      commitlog fs tree commitlog://lake
    """
    trials = Trials()
    for url in urls:
        with trials.of(url):
            for each in found(connection, url):
                if json:
                    for _, status in _drawn(each, level, directories=directories):
                        print_json(status_record(each.namespace, status))
                    continue
                click.echo(printable(each.url))
                files = folders = 0
                if each.is_directory:
                    for depth, status in _drawn(each, level, directories=directories):
                        size = "" if status.is_directory or not human else readable(status.size)
                        name = printable(status.name) + "/" * status.is_directory
                        click.echo(f"{depth}{name}" + (f"  ({size})" if size else ""))
                        files += not status.is_directory
                        folders += status.is_directory
                counts = [f"{folders} directories"] + [f"{files} files"] * (not directories)
                click.echo(", ".join(counts))
    trials.end()


def _drawn(at: Found, level: int | None, *, directories: bool) -> Iterator[tuple[str, Status]]:
    """Yield the files and directories below a directory, each with the lines to draw before it."""

    def entries(path: str) -> Iterator[tuple[Status, bool]]:
        """Yield the entries of a directory, each with whether it is the last."""
        before: Status | None = None
        for status in at.namespace.list(path):
            if directories and not status.is_directory:
                continue
            if before is not None:
                yield before, False
            before = status
        if before is not None:
            yield before, True

    pending = [("", entries(at.path))]
    while pending:
        indent, rest = pending[-1]
        status, last = next(rest, (None, False))
        if status is None:
            pending.pop()
            continue
        yield indent + ("└── " if last else "├── "), status
        if status.is_directory and (level is None or len(pending) < level):
            pending.append((indent + ("    " if last else "│   "), entries(status.path)))
