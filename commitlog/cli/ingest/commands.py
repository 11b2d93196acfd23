"""The commands ``ingest``: the status of sources, their waiting files and unreadable slices.

The commands need only the state table, because the query of a source stores its settings there.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click
from attrs import asdict, evolve

from commitlog.cli.connection import Connection, table_options
from commitlog.cli.exit_status import Exit, message_of, print_error, status_of
from commitlog.cli.ingest.report import (
    SourceReport,
    listing_progress,
    metrics_text,
    problem_lines,
    problem_record,
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
    Cleaner,
    IngestAdmin,
    IngestSettings,
    SourceMetadata,
    StateTable,
    sources,
    store_to_clean,
)
from commitlog.ingest.source_state import SourceState
from commitlog.urls import Url, parse_store_url

if TYPE_CHECKING:
    from commitlog.tables.api import Table

__all__ = ["ingest"]

R = TypeVar("R")

#: The maximum number of sources that a message lists.
_MAX_LISTED = 10


class _Group(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except TableNotFound as error:
            raise _without_advice(error) from None


def _without_advice(error: CommitError) -> CommitError:
    """Return the error without the advice to create a table, because the query has one already."""
    if not isinstance(error, TableNotFound):
        return error
    what = str(error).partition(": create it")[0]
    return TableNotFound(f"{what}: use the --state, region and endpoint of the query")


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
        help="Table with the state of sources: dynamodb://NAME or sqlite:///ABSOLUTE/FILE.",
    )(command)


def _input_option(command: Callable[..., R]) -> Callable[..., R]:
    return click.option(
        "--input", metavar="URL", help="URL of the objects; by default, the input of the query."
    )(command)


@ingest.command(short_help="Show the status of sources.")
@click.argument("source", required=False)
@_state_option
@_input_option
@click.option("--no-backlog", is_flag=True, help="Do not list the input to count waiting files.")
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
        raise click.UsageError("--json and --openmetrics cannot be combined")
    table = connection.open_table(state, INGEST_SCHEMA)
    names = _all(table) if source is None else [source]
    if input is not None and len(names) > 1:
        raise click.UsageError(f"--input takes one source: {_choice(names)}")
    worst = Exit.DONE
    known: list[SourceReport] = []
    for name in names:
        try:
            metadata = StateTable(table, name).metadata()
            admin = IngestAdmin(None, table, _settings(name, metadata))
            report = SourceReport(now=SystemClock().epoch(), status=admin.status(), metadata=metadata)
        except CommitError as error:
            worst = max(worst, _report(name, error))
            continue
        try:
            if not no_backlog:
                with listing_progress(f"listing the input of {printable(name)}") as listed:
                    admin = _with_input(connection, table, name, input)
                    report = evolve(report, backlog=admin.backlog(listed=listed))
        except CommitError as error:
            worst = max(worst, _report(name, error))
        if json:
            print_json(status_record(report))
        elif openmetrics:
            known.append(report)
        else:
            if known:
                click.echo()
            print_columns(status_rows(report))
            known.append(report)
    if openmetrics:
        click.echo(metrics_text(known), nl=False)
    click.get_current_context().exit(worst)


@ingest.command(short_help="List waiting files and unreadable data.")
@click.argument("source", required=False)
@_state_option
@_input_option
@click.option("--waiting", is_flag=True, help="List only waiting files.")
@click.option("--problems", is_flag=True, help="List only data that could not be read.")
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
    table = connection.open_table(state, INGEST_SCHEMA)
    name = _one(table, source)
    state_table = StateTable(table, name)
    if _state(state_table) is None:
        raise NotFound(f"source {name!r} has no state in this table")
    if waiting or not problems:
        admin = _with_input(connection, table, name, input)
    else:
        admin = IngestAdmin(None, table, _settings(name, state_table.metadata()))
    now = SystemClock().epoch()
    if problems or not waiting:
        for problem in admin.problems():
            if json:
                print_json(problem_record(problem, now=now))
            else:
                for line in problem_lines(problem, now=now):
                    click.echo(line)
    if waiting or not problems:
        with listing_progress("listing", hidden=sys.stdout.isatty()) as listed:
            for each in admin.waiting(listed=listed):
                if json:
                    print_json({"state": "waiting", **slice_record(each, now=now)})
                else:
                    click.echo(waiting_line(each, now=now))


@ingest.command(short_help="Retry data that could not be read.")
@click.argument("source", required=False)
@_state_option
@click.option(
    "--path",
    "paths",
    metavar="PATH",
    multiple=True,
    help="Path of an object, as 'ingest files' shows it.",
)
@click.option("--all", "everything", is_flag=True, help="Retry all data that could not be read.")
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
      commitlog ingest retry --all --state dynamodb://ingest
    """
    if everything == bool(paths):
        raise click.UsageError("give --path PATH or --all")
    table = connection.open_table(state, INGEST_SCHEMA)
    name = _one(table, source)
    admin = IngestAdmin(None, table, _settings(name, StateTable(table, name).metadata()))
    for path in [None] if everything else paths:
        again = admin.retry(path)
        if not again and path is not None:
            raise NotFound(
                f"there is nothing to retry of {path!r}: it has no data that could not be read, or all"
                " of it is retried already"
            )
        for problem in again:
            if json:
                rest = evolve(problem.slice, skip=problem.records)
                print_json({**slice_record(rest, now=SystemClock().epoch()), "skip": rest.skip})
            else:
                click.echo(printable(problem.slice.file.path))
        if not again and not json:
            click.echo("nothing to retry", err=True)


@ingest.command(short_help="Delete or archive delivered files.")
@click.argument("source", required=False)
@_state_option
@_input_option
@json_option
@table_options
def clean(connection: Connection, source: str | None, state: str, input: str | None, json: bool) -> None:
    """Delete or archive the files of SOURCE that are due, as its query does with cleanSource.

    A file is due when its batch is committed, and the time cleanDelay has passed since. A newer version
    of it stays. Files with data that could not be read stay. The query may run meanwhile.

    \b
    Example:
      commitlog ingest clean --state dynamodb://ingest
    """
    table = connection.open_table(state, INGEST_SCHEMA)
    name = _one(table, source)
    metadata = StateTable(table, name).metadata()
    settings = _settings(name, metadata)
    if not settings.cleans:
        raise ConfigurationError(f"the query of source {name!r} does not clean: set its cleanSource")
    url = parse_store_url(_input_url(name, metadata, input))
    if metadata is not None:
        _check_same_input(name, parse_store_url(metadata.url), url)
    url, below = store_to_clean(url, settings)
    cleaner = Cleaner(connection.open(url), table, settings, below=below)
    cleaner.check_store()
    total: Counter[str] = Counter()
    more = True
    while more:
        cleaned = asdict(cleaner.clean())
        more = cleaned.pop("more")
        total.update(cleaned)
    if json:
        print_json({"source": name, **total})
    else:
        what = "archived" if settings.archive else "deleted"
        click.echo(f"{total['files']} {what}, {total['gone']} gone, {total['kept']} kept")


@ingest.command(short_help="Delete the state of a source.")
@click.argument("source", required=False)
@_state_option
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
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
    table = connection.open_table(state, INGEST_SCHEMA)
    name = _one(table, source)
    state_table = StateTable(table, name)
    if not yes:
        _confirm(state_table)
    items = state_table.drop()
    if not items:
        raise NotFound(f"{table.url} has no state of source {name!r}")
    if json:
        print_json({"source": name, "items": items})
    else:
        click.echo(f"{printable(name)}: {items} items deleted")


def _confirm(state_table: StateTable) -> None:
    before = _state(state_table)
    summary = message_of(before) if isinstance(before, CommitError) else _summary(before)
    click.echo(f"{printable(state_table.source)}: {summary}", err=True)
    try:
        confirmed = click.confirm("Is the query stopped, and shall it read everything again?", err=True)
    except click.Abort:
        confirmed = False
    if not confirmed:
        raise ConfigurationError("not confirmed: nothing was deleted; --yes confirms")
    if isinstance(before, SourceState) and _state(state_table) != before:
        raise PreconditionFailed(
            f"the query of source {state_table.source!r} is active: stop it first. Nothing was deleted"
        )


def _state(state_table: StateTable) -> SourceState | CommitError | None:
    try:
        return state_table.read()
    except CommitError as error:  # a reset may be the remedy for this error
        return error


def _summary(state: SourceState | None) -> str:
    if state is None:
        return "it has not started"
    began = max((sweep.began for sweep in (state.tail, state.body) if sweep is not None), default=None)
    ago = None if began is None else duration(max(0.0, SystemClock().epoch() - began))
    listing = "" if ago is None else f"; it started to list its input {ago} ago, and has not finished"
    return f"it has delivered {state.files} files{listing}"


# -- the source and its input ------------------------------------------------------------------------


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
    more = f", … ({len(found)} in total)" if len(found) > _MAX_LISTED else ""
    return "name one of " + ", ".join(map(repr, found[:_MAX_LISTED])) + more


def _settings(source: str, metadata: SourceMetadata | None) -> IngestSettings:
    return IngestSettings(source=source) if metadata is None else metadata.settings


def _with_input(connection: Connection, table: Table, source: str, input: str | None) -> IngestAdmin:
    metadata = StateTable(table, source).metadata()
    url = _input_url(source, metadata, input)
    return IngestAdmin(connection.open_store(url), table, _settings(source, metadata))


def _input_url(source: str, metadata: SourceMetadata | None, input: str | None) -> str:
    url = metadata.url if input is None and metadata is not None else input
    if url is None:
        raise ConfigurationError(
            f"the state of source {source!r} does not contain the URL of its objects: give --input URL"
        )
    return url


def _check_same_input(source: str, known: Url, url: Url) -> None:
    """Raise `ConfigurationError` if the files of a source would be looked for in another place."""
    if any(getattr(known, part) != getattr(url, part) for part in ("scheme", "name", "prefix")):
        raise ConfigurationError(
            f"the query of source {source!r} reads {known}, and --input is {url}, where its files"
            " would count as gone; nothing was changed. Leave --input out, or start the query with the"
            " other URL first"
        )


# -- errors ------------------------------------------------------------------------------------------


def _report(source: str, error: CommitError) -> Exit:
    print_error(_without_advice(error), what=source)
    return status_of(error)
