"""The command ``status``: one look at outputs, namespaces, tables of leases and the state of ingest."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
from attrs import asdict, define, field

from commitlog.cli.connection import Connection, any_options
from commitlog.cli.exit_status import Exit, PredicateCommand, message_of, print_error, status_of
from commitlog.cli.file_io import atomic_file
from commitlog.cli.output import json_option, print_columns, print_json, printable
from commitlog.cli.parameters import DURATION
from commitlog.cli.urls import without_credentials
from commitlog.clock import SystemClock
from commitlog.errors import CommitError, TableNotFound
from commitlog.namespaces import parse_url

if TYPE_CHECKING:
    from commitlog.namespace import Namespace
    from commitlog.outputs import Output
    from commitlog.status import LookSettings, Report
    from commitlog.tables.api import Table

__all__ = ["status"]

#: Records of a log that the page shows by default.
_HISTORY = 100

_TABLES = ("dynamodb://", "dynamo://", "sqlite://")


@click.command(cls=PredicateCommand)
@click.argument("urls", metavar="URL...", nargs=-1, required=True)
@click.option(
    "--older-than",
    type=DURATION,
    default="1d",
    show_default=True,
    help="Age at which an uncommitted job of an output counts as dead.",
)
@click.option(
    "--stale-after",
    type=DURATION,
    default="7d",
    show_default=True,
    help="Age at which garbage, trash, and jobs and uploads of namespaces should have been removed.",
)
@click.option(
    "--max-lag",
    type=DURATION,
    default="1h",
    show_default=True,
    help="Longest time that a file may wait to be ingested.",
)
@click.option(
    "--full", is_flag=True, help="Read every listing to its end, also of files and of ingest input."
)
@click.option("--openmetrics", is_flag=True, help="Print metrics, as OpenMetrics text.")
@click.option(
    "--html",
    metavar="FILE",
    help="Also write a page with charts to FILE, or replace it.",
)
@click.option(
    "--history",
    type=click.IntRange(1),
    metavar="RECORDS",
    help=f"Records at the end of the log of an output that the page shows; {_HISTORY} if not given.",
)
@click.option("--watch", type=DURATION, metavar="SECONDS", help="Look again after this time, forever.")
@json_option
@any_options
def status(
    connection: Connection,
    urls: tuple[str, ...],
    older_than: float,
    stale_after: float,
    max_lag: float,
    full: bool,
    openmetrics: bool,
    html: str | None,
    history: int | None,
    watch: float | None,
    json: bool,
) -> None:
    """Show what each URL is, and what needs attention, with the command to run next.

    URL is an output (s3://bucket/out, or a directory), a namespace (commitlog://NAME), a table of leases
    or a table with the state of ingest (dynamodb://NAME, sqlite:///ABSOLUTE/FILE).

    Nothing is changed. Each look takes some tens of requests: of long listings only the first 10,000
    items are read, and the numbers are then marked as too low. With --full, everything is read.

    --html goes with any output. The page needs no other file and no server. For its charts, one more
    request is sent for each of the last --history records of an output; the page says which they are.

    The exit status is 0 if nothing needs attention, 1 if something does, and 2 if a look failed. With
    --watch, the command runs until it is interrupted. docs/runbook.md has a section for each finding.

    \b
    Example:
      commitlog status s3://bucket/out commitlog://lake dynamodb://commits
      commitlog status s3://bucket/out --html status.html
    """
    from commitlog.status import LookSettings

    if json and openmetrics:
        raise click.UsageError("--json and --openmetrics cannot be combined")
    if html is None and history is not None:
        raise click.UsageError("--history is of the page: add --html FILE")
    if html is not None:
        html = _checked_file(html)
        history = _HISTORY if history is None else history
    settings = LookSettings(
        dead_after=older_than,
        stale_after=stale_after,
        max_lag=max_lag,
        full=full,
        history=history or 0,
    )
    targets = [_Target(connection, url) for url in dict.fromkeys(urls)]
    clock = SystemClock()
    while True:
        looks = _look_at_all(connection, targets, settings, quiet=openmetrics, json=json)
        if openmetrics:
            from commitlog.status import metrics_text

            _check_different([target.url for target in targets])
            click.echo(metrics_text(looks.reports, failed=list(looks.failed)), nl=False)
        if html is not None:
            _write_page(html, looks, settings, now=clock.epoch(), json=json)
        if watch is None:
            click.get_current_context().exit(looks.status)
        clock.sleep(watch)
        if not json and not openmetrics:
            click.echo()


def _check_different(urls: Sequence[str]) -> None:
    """Raise `UsageError` for a URL that occurs twice: its metrics would have the same labels."""
    for url, times in Counter(urls).items():
        if times > 1:
            raise click.UsageError(f"two URLs are those of {url}: metrics need one for each target")


class _Target:
    """A target of the command; it is opened at the first look that can."""

    def __init__(self, connection: Connection, url: str) -> None:
        self.url = without_credentials(url)
        self._argument = url
        self._connection = connection
        self._leases: Table | None = None
        self._opened: Output | Namespace | Table | None = None

    def open(self) -> Output | Namespace | Table:
        """Return the opened target. Raises the errors of its store or table."""
        if self._opened is None:
            self._opened = self._open()
        return self._opened

    def _open(self) -> Output | Namespace | Table:
        from commitlog.outputs import Output

        if self._argument.startswith("commitlog://"):
            name, path = parse_url(self._argument)
            if path:
                raise click.UsageError(f"{self.url}: give a whole namespace, commitlog://{name}")
            return self._connection.namespace(name)
        if self._argument.startswith(_TABLES):
            return self._table()
        location = self._connection.locate_directory(self._argument)
        self.url = location.url
        return Output(self._connection.open(location.store), location.path)

    def _table(self) -> Table:
        from commitlog.commit.record import LEASE_SCHEMA
        from commitlog.ingest import INGEST_SCHEMA

        if self._leases is None:  # an earlier look may have failed
            self._leases = self._connection.open_table(self._argument, LEASE_SCHEMA)
        leases = self._leases
        self.url = leases.url
        try:
            keys = leases.describe().schema.key_names
        except TableNotFound as error:  # its advice is for a table of leases
            raise TableNotFound(
                f"there is no table {self.url}: check the URL, the region and the endpoint. If the table"
                " was lost, see docs/runbook.md before you create it again"
            ) from error
        if keys == INGEST_SCHEMA.key_names:
            return self._connection.open_table(self._argument, INGEST_SCHEMA)
        return leases


@define
class _Looks:
    """The looks at all targets.

    Attributes:
        status: the exit status.
        reports: the reports of those that succeeded.
        failed: the message of each failed look, by the URL of its target.
    """

    status: Exit = Exit.DONE
    reports: list[Report] = field(factory=list)
    failed: dict[str, str] = field(factory=dict)


def _look_at_all(
    connection: Connection,
    targets: Sequence[_Target],
    settings: LookSettings,
    *,
    quiet: bool,
    json: bool,
) -> _Looks:
    """Look at each target, and print its report, unless `quiet`, or its error."""
    from commitlog.status import look

    looks = _Looks()
    for target in targets:
        try:
            report = look(
                target.open(), url=target.url, settings=settings, open_input=connection.open_input
            )
        except (CommitError, OSError) as error:
            looks.failed[target.url] = message_of(error)
            result = status_of(error)
            result = Exit.USAGE if result is Exit.FAILED else result
            print_error(error, what=target.url, status=result, json=json)
            looks.status = max(looks.status, result)
            continue
        looks.status = max(looks.status, Exit.FAILED if report.findings else Exit.DONE)
        if json:
            print_json(_record(report))
        elif not quiet:
            if looks.reports:
                click.echo()
            _print(report)
        looks.reports.append(report)
    return looks


# -- HTML ----------------------------------------------------------------------------------------------


def _checked_file(file: str) -> str:
    """Return the file to replace, behind links. Raises the error of a wrong place before any look."""
    if file == "-":
        raise click.UsageError("--html needs a file: standard output has the text, JSON or metrics")
    target = os.path.realpath(file)
    if not os.path.isdir(os.path.dirname(target)):
        raise FileNotFoundError(errno.ENOENT, "its directory does not exist", file)
    if os.path.isdir(target):
        raise IsADirectoryError(errno.EISDIR, "it is a directory", file)
    if os.path.exists(target) and not os.path.isfile(target):  # a device or a pipe
        raise FileExistsError(errno.EEXIST, "it is not a regular file, which could be replaced", file)
    return target


def _write_page(file: str, looks: _Looks, settings: LookSettings, *, now: float, json: bool) -> None:
    """Replace the page; print an error, and remember its exit status, if that fails."""
    from commitlog.cli.status_page import status_page

    text = status_page(looks.reports, looks.failed, settings=settings, now=now)
    try:
        with atomic_file(file, absent=False) as target:
            target.write(text.encode())
    except OSError as error:
        print_error(error, what="--html", status=Exit.USAGE, json=json)
        looks.status = max(looks.status, Exit.USAGE)


# -- JSON ----------------------------------------------------------------------------------------------


def _record(report: Report) -> dict[str, Any]:
    """Return a report as --json prints it."""
    details = asdict(report.inspection)
    if report.kind == "ingest":
        details["sources"] = [_source_record(each) for each in details["sources"]]
    elif report.kind == "leases":
        details["overdue"] = [{**holding.pop("record"), **holding} for holding in details["overdue"]]
    return {
        "url": report.url,
        "kind": report.kind,
        "findings": [asdict(finding) for finding in report.findings],
        **details,
    }


def _source_record(found: dict[str, Any]) -> dict[str, Any]:
    status, backlog = found.pop("status"), found.pop("backlog")
    status["problems"] = dict(status.pop("problems_by_kind"))
    if backlog is not None:
        oldest = backlog["oldest"]
        backlog["oldest"] = None if oldest is None else oldest["file"]["path"]
    return {**status, **found, "backlog": backlog}


# -- text ---------------------------------------------------------------------------------------------


def _print(report: Report) -> None:
    from commitlog.cli.status_text import finding_line, report_rows

    print_columns([(report.kind, report.url), *report_rows(report)])
    for finding in report.findings:
        click.echo(f"! {finding_line(finding)}")
        click.echo(f"  $ {printable(finding.command)}")
    if not report.findings:
        click.echo("nothing needs attention")
