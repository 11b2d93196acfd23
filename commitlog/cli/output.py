"""The output of commands: lines for people, or one JSON object per line for scripts.

JSON keys are part of the interface and do not change.
"""

from __future__ import annotations

import datetime
import io
import itertools
import json as _json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click

if TYPE_CHECKING:
    from commitlog.cli.urls import Location
    from commitlog.namespace import StepProgress
    from commitlog.stores.api import ObjectInfo, PutResult

__all__ = [
    "counted",
    "dry_run_option",
    "duration",
    "human_option",
    "json_option",
    "moment",
    "no_letter_r",
    "note",
    "object_record",
    "print_columns",
    "print_json",
    "print_plan",
    "print_result",
    "printable",
    "progress_file",
    "readable",
    "size_of",
    "step_line",
    "step_text",
    "use_json",
    "wants_json",
]

R = TypeVar("R")

#: Where the context of a command says whether errors are printed as JSON.
_JSON = f"{__name__}.json"


def json_option(command: Callable[..., R]) -> Callable[..., R]:
    """Add the flag `json` to `command`."""
    return click.option("--json", is_flag=True, help="Print one JSON object per line, also for errors.")(
        command
    )


def human_option(command: Callable[..., R]) -> Callable[..., R]:
    """Add the flag `human`, for readable sizes, to `command`."""
    return click.option("-h", "--human", is_flag=True, help="Show sizes in KiB, MiB, GiB.")(command)


def dry_run_option(command: Callable[..., R]) -> Callable[..., R]:
    """Add the flag `dry_run` to `command`."""
    return click.option("--dry-run", is_flag=True, help="Show the changes without making them.")(command)


def print_plan(action: str, url: str, to: str | None = None, *, json: bool) -> None:
    """Print a change that a command would make without --dry-run.

    Args:
        action: the change, such as "remove".
        url: the URL of the changed object.
        to: the new URL, if there is one.
        json: whether to print JSON.
    """
    if json:
        print_json({"action": action, "url": url, "to": to, "dry_run": True})
    else:
        click.echo(f"would {action} {printable(url)}" + (f" to {printable(to)}" if to else ""))


def no_letter_r(command: Callable[..., R]) -> Callable[..., R]:
    """Let `command`, a listing, refuse ``-r``, which is --recursive in other commands.

    In the ``ls`` of other programs, -r means the reverse order and -R the recursion.
    """

    def refuse(context: click.Context, parameter: click.Parameter, used: bool) -> None:
        if used:
            raise click.UsageError("-r is ambiguous: use -R for recursive, or --reverse")

    return click.option(
        "-r", "_r", is_flag=True, hidden=True, expose_value=False, callback=refuse, help="Refused."
    )(command)


def use_json(context: click.Context) -> None:
    """Print errors of the command as JSON."""
    context.meta[_JSON] = True


def wants_json() -> bool:
    """Return whether errors of the current command are printed as JSON."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(_JSON))


def note(message: str, *, json: bool | None = None) -> None:
    """Print a message on standard error that is neither a result nor an error.

    Args:
        message: one line.
        json: whether to print JSON; by default, if the command has --json.
    """
    if wants_json() if json is None else json:
        click.echo(_json.dumps({"note": message}), err=True)
    else:
        click.echo(f"commitlog: {message}", err=True)


def print_json(record: Mapping[str, Any]) -> None:
    """Print `record` as one line of JSON."""
    click.echo(_json.dumps(record))


def print_columns(rows: Iterable[Sequence[str]], *, right: Iterable[int] = ()) -> None:
    """Print `rows` in aligned columns. Those with the numbers `right` are aligned to the right.

    >>> print_columns([("size", "path"), ("7", "a")], right=[0])
    size  path
       7  a
    """
    cells = [[printable(cell) for cell in row] for row in rows]
    if not cells:
        return
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    flush_right = set(right)
    for row in cells:
        padded = [
            cell.rjust(width) if index in flush_right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        click.echo("  ".join(padded).rstrip())


def printable(text: str) -> str:
    """Return `text` with control characters escaped, because stored names may contain any character.

    >>> printable("täglich\\x1b[2J\\n")
    'täglich\\\\x1b[2J\\\\n'
    """
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def progress_file(*, hidden: bool) -> TextIO:
    """Return the file of a progress bar: standard error, or a file that is not shown.

    >>> progress_file(hidden=True).isatty()
    False
    """
    # Bars take hidden= from click 8.2 on.
    return io.StringIO() if hidden else sys.stderr


def object_record(location: Location, info: ObjectInfo) -> dict[str, Any]:
    """Return the details of an object as --json prints them."""
    return {
        "url": location.url_of(info.path),
        "path": info.path,
        "size": info.size,
        "etag": info.etag,
        "version": info.version,
        "last_modified": info.last_modified,
    }


def print_result(location: Location, result: PutResult, *, json: bool) -> None:
    """Print the result of a write: its etag, or all details as JSON."""
    if json:
        print_json(
            {"url": location.url, "path": result.path, "etag": result.etag, "version": result.version}
        )
    else:
        click.echo(result.etag)


def moment(epoch: float) -> str:
    """Return an epoch second as a readable time in UTC.

    >>> moment(1_800_000_000.7)
    '2027-01-15T08:00:00Z'
    """
    try:
        return datetime.datetime.fromtimestamp(int(epoch), datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):  # outside the calendar
        return f"{epoch:g} s"


def duration(seconds: float) -> str:
    """Return a duration in seconds in a readable form.

    >>> duration(0.25), duration(59.4), duration(754), duration(7_380), duration(266_400)
    ('0.2 s', '59.4 s', '12 min 34 s', '2 h 3 min', '3 d 2 h')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h"


def size_of(size: int, *, human: bool) -> str:
    """Return a number of bytes as text, in a readable unit if `human` is set."""
    return readable(size) if human else f"{size}"


def readable(size: int) -> str:
    """Return a number of bytes in a readable unit.

    >>> readable(512), readable(64 * 2**20), readable(1_500_000_000)
    ('512 B', '64.0 MiB', '1.4 GiB')
    """
    if size < 1024:
        return f"{size} B"
    number = float(size)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        number /= 1024
        if number < 1000:
            return f"{number:.1f} {unit}"
    return f"{number / 1024:.1f} PiB"


@contextmanager
def step_line() -> Iterator[Callable[[StepProgress], object]]:
    """Show the progress of steps in a line of a terminal; yield a function that takes it.

    The function may be called from another thread.
    """
    if not sys.stderr.isatty():
        yield lambda now: None
        return
    try:
        yield lambda now: click.echo(f"\r\x1b[K{step_text(now)}", err=True, nl=False)
    finally:
        click.echo("\r\x1b[K", err=True, nl=False)


def step_text(now: StepProgress) -> str:
    """Return the progress of a step as text.

    >>> from commitlog.namespace import StepProgress
    >>> step_text(StepProgress(step="reading the table", done=30_000, total=90_000, seconds=10))
    'reading the table: 30,000 of 90,000, 3,000 a second, 20.0 s left'
    """
    total = "" if now.total is None else f" of {max(now.total, now.done):,}"
    left = "" if now.remaining is None else f", {duration(now.remaining)} left"
    return f"{now.step}: {now.done:,}{total}, {now.rate:,.0f} a second{left}"


@contextmanager
def counted(label: str, *, hidden: bool = False) -> Iterator[Callable[[int], object]]:
    """Show a counter on a terminal, if not hidden; yield a function that takes the count so far."""
    with click.progressbar(
        itertools.count(),
        label=label,
        bar_template="%(label)s: %(info)s",
        show_pos=True,
        file=progress_file(hidden=hidden or not sys.stderr.isatty()),
    ) as bar:
        yield lambda done: bar.update(done - bar.pos)
