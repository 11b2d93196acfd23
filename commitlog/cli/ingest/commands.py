"""The commands ``ingest …``: the status of sources, their waiting files and unreadable slices.

The commands need only the state table, because the query of a source stores its settings there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click
from attrs import evolve

from commitlog.cli.connection import Connection, table_options
from commitlog.cli.exit_status import Exit, complain, message_of, status_of
from commitlog.cli.ingest.report import (
    Shown,
    counting,
    problem_lines,
    problem_record,
    shown_metrics,
    slice_record,
    status_record,
    status_rows,
    waiting_line,
)
from commitlog.cli.output import duration, json_option, print_columns, print_json, printable
from commitlog.clock import SystemClock
from commitlog.errors import CommitError, ConfigurationError, NotFound, PreconditionFailed, TableNotFound
from commitlog.ingest import (
    INGEST_SCHEMA,
    IngestAdmin,
    IngestSettings,
    SourceMetadata,
    StateTable,
    sources,
)
from commitlog.ingest.source_state import SourceState
from commitlog.tables.api import Table

__all__ = ["ingest"]

R = TypeVar("R")

#: The maximum number of sources that a message names.
_NAMED = 10


class _Group(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except TableNotFound as error:
            raise _hinted(error) from None


def _hinted(error: CommitError) -> CommitError:
    """Return the error without the advice to create a table, because the query has one already."""
    if not isinstance(error, TableNotFound):
        return error
    what = str(error).partition(": create it")[0]
    return TableNotFound(f"{what}: --state, region and endpoint have to be those of the query")


@click.group(cls=_Group)
def ingest() -> None:
    """Show and manage the sources through which streaming queries read buckets.

    --state is the state table of the query. The table also holds the settings of the query.
    """


def _state_option(command: Callable[..., R]) -> Callable[..., R]:
    return click.option(
        "--state",
        required=True,
        envvar="COMMITLOG_STATE",
        show_envvar=True,
        metavar="URL",
        help="Table that the state of sources is kept in: dynamodb://NAME or sqlite:///ABSOLUTE/FILE.",
    )(command)


def _input_option(command: Callable[..., R]) -> Callable[..., R]:
    return click.option(
        "--input", metavar="URL", help="Where the objects are, if not where the query has them from."
    )(command)


@ingest.command(short_help="Show how sources are doing.")
@click.argument("source", required=False)
@_state_option
@_input_option
@click.option("--no-backlog", is_flag=True, help="Do not list the input to see what waits.")
@click.option("--openmetrics", is_flag=True, help="Print metrics, as OpenMetrics text.")
@json_option
@table_options
def status(
    connection: Connection,
    source: str | None,
    state: str,
    input: str | None,
    no_backlog: bool,
    openmetrics: bool,
    json: bool,
) -> None:
    """Show the status of SOURCE, or of every source of the table.

    To find waiting files, the command lists the whole input; it changes nothing. Every source is tried.
    The exit status is the highest of all sources.

    \b
    Example:
      commitlog ingest status --state dynamodb://ingest
    """
    if json and openmetrics:
        raise click.UsageError("--json and --openmetrics are two formats: choose one")
    table = connection.opened_table(state, INGEST_SCHEMA)
    names = _all(table) if source is None else [source]
    if input is not None and len(names) > 1:
        raise click.UsageError(f"--input is of one source: {_choice(names)}")
    worst = Exit.DONE
    known: list[Shown] = []
    for name in names:
        try:
            about = StateTable(table, name).about()
            operator = IngestAdmin(None, table, _settings(name, about))
            shown = Shown(now=SystemClock().epoch(), status=operator.status(), about=about)
        except CommitError as error:
            worst = max(worst, _complain(name, error))
            continue
        try:
            if not no_backlog:
                with counting(f"listing the input of {printable(name)}") as listed:
                    operator = _with_input(connection, table, name, input)
                    shown = evolve(shown, backlog=operator.backlog(listed=listed))
        except CommitError as error:
            worst = max(worst, _complain(name, error))
        if json:
            print_json(status_record(shown))
        elif openmetrics:
            known.append(shown)
        else:
            if known:
                click.echo()
            print_columns(status_rows(shown))
            known.append(shown)
    if openmetrics:
        click.echo(shown_metrics(known), nl=False)
    click.get_current_context().exit(worst)


@ingest.command(short_help="List files that wait, and those that could not be read.")
@click.argument("source", required=False)
@_state_option
@_input_option
@click.option("--waiting", is_flag=True, help="Only what waits.")
@click.option("--problems", is_flag=True, help="Only what could not be read.")
@json_option
@table_options
def files(
    connection: Connection,
    source: str | None,
    state: str,
    input: str | None,
    waiting: bool,
    problems: bool,
    json: bool,
) -> None:
    """List the data that SOURCE has not delivered: waiting files, and slices that could not be read.

    SOURCE is optional if the table has only one source. Lines are printed as they are found. To find
    waiting files, the command lists the whole input.

    \b
    Example:
      commitlog ingest files --state dynamodb://ingest
    """
    table = connection.opened_table(state, INGEST_SCHEMA)
    operator = _with_input(connection, table, _one(table, source), input)
    now = SystemClock().epoch()
    if problems or not waiting:
        for problem in operator.problems():
            if json:
                print_json(problem_record(problem, now=now))
            else:
                for line in problem_lines(problem, now=now):
                    click.echo(line)
    if waiting or not problems:
        with counting("listing", hidden=sys.stdout.isatty()) as listed:
            for each in operator.waiting(listed=listed):
                if json:
                    print_json({"state": "waiting", **slice_record(each, now=now)})
                else:
                    click.echo(waiting_line(each, now=now))


@ingest.command(short_help="Have what could not be read read again.")
@click.argument("source", required=False)
@_state_option
@click.option(
    "--path", "paths", metavar="PATH", multiple=True, help="Path of an object, as files shows it."
)
@click.option("--all", "everything", is_flag=True, help="All that could not be read.")
@json_option
@table_options
def retry(
    connection: Connection,
    source: str | None,
    state: str,
    paths: tuple[str, ...],
    everything: bool,
    json: bool,
) -> None:
    """Let SOURCE retry the slices that it could not read, in its next batch, and print them.

    Only the undelivered part of each slice is read. The object must still have the same version: a
    repaired or replaced object is a new version, which the source reads without this command.

    \b
    Example:
      commitlog ingest retry --state dynamodb://ingest
    """
    if everything == bool(paths):
        raise click.UsageError("name what to read again with --path PATH, or say --all")
    table = connection.opened_table(state, INGEST_SCHEMA)
    name = _one(table, source)
    operator = IngestAdmin(None, table, _settings(name, StateTable(table, name).about()))
    for path in [None] if everything else paths:
        again = operator.retry(path)
        if not again and path is not None:
            raise NotFound(f"there is nothing of {path!r} that could not be read")
        for problem in again:
            if json:
                rest = evolve(problem.slice, skip=problem.records)
                print_json({**slice_record(rest, now=SystemClock().epoch()), "skip": rest.skip})
            else:
                click.echo(printable(problem.slice.file.path))
        if not again and not json:
            click.echo("nothing to read again", err=True)


@ingest.command(short_help="Forget a source.")
@click.argument("source", required=False)
@_state_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@table_options
def reset(connection: Connection, source: str | None, state: str, yes: bool, json: bool) -> None:
    """Delete the state of SOURCE: the read files, the schema, and the slices that could not be read.

    Stop the query first, and give it a new checkpoint directory: it then reads everything again. A query
    that continues with its old checkpoint stops with StateMismatch. Other sources are not changed.

    \b
    Example:
      commitlog ingest reset SOURCE --state dynamodb://ingest
    """
    table = connection.opened_table(state, INGEST_SCHEMA)
    name = _one(table, source)
    kept = StateTable(table, name)
    if not yes:
        _ask(kept)
    items = kept.drop()
    if not items:
        raise NotFound(f"nothing was kept of source {name!r} in {table.url}")
    if json:
        print_json({"source": name, "items": items})
    else:
        click.echo(f"{printable(name)}: forgotten, {items} items")


def _ask(kept: StateTable) -> None:
    before = _seen(kept)
    told = message_of(before) if isinstance(before, CommitError) else _so_far(before)
    click.echo(f"{printable(kept.source)}: {told}", err=True)
    try:
        sure = click.confirm("Is its query stopped, and is all to be read again?", err=True)
    except click.Abort:
        sure = False
    if not sure:
        raise ConfigurationError("nothing was forgotten; say --yes, or answer so")
    if isinstance(before, SourceState) and _seen(kept) != before:
        raise PreconditionFailed(
            f"the query of source {kept.source!r} has gone on meanwhile: stop it first. Nothing was"
            " forgotten"
        )


def _seen(kept: StateTable) -> SourceState | CommitError | None:
    try:
        return kept.head()
    except CommitError as error:  # a reset may be the remedy for this error
        return error


def _so_far(head: SourceState | None) -> str:
    if head is None:
        return "it has not begun"
    began = max((sweep.began for sweep in (head.tail, head.body) if sweep is not None), default=None)
    ago = None if began is None else duration(max(0.0, SystemClock().epoch() - began))
    under_way = "" if ago is None else f"; a pass over its input began {ago} ago, and is not complete"
    return f"it has handed out {head.files} files{under_way}"


# -- which source, and where its objects are ---------------------------------------------------------


def _all(table: Table) -> list[str]:
    found = sources(table)
    if not found:
        raise NotFound(f"there is no source in {table.url}")
    return found


def _one(table: Table, source: str | None) -> str:
    if source is not None:
        return source
    found = _all(table)
    if len(found) > 1:
        raise click.UsageError(f"{table.url} has several sources: {_choice(found)}")
    return found[0]


def _choice(found: list[str]) -> str:
    more = f", or another of {len(found)}" if len(found) > _NAMED else ""
    return "name one of " + ", ".join(map(repr, found[:_NAMED])) + more


def _settings(source: str, about: SourceMetadata | None) -> IngestSettings:
    return IngestSettings(source=source) if about is None else about.settings


def _with_input(connection: Connection, table: Table, source: str, input: str | None) -> IngestAdmin:
    about = StateTable(table, source).about()
    url = about.url if input is None and about is not None else input
    if url is None:
        raise ConfigurationError(
            f"the state of source {source!r} does not say where its objects are: give --input URL"
        )
    return IngestAdmin(connection.opened_store(url), table, _settings(source, about))


# -- telling -----------------------------------------------------------------------------------------


def _complain(source: str, error: CommitError) -> Exit:
    complain(_hinted(error), what=source)
    return status_of(error)
