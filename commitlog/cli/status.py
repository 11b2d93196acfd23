"""The command ``status``: one look at outputs, namespaces, tables of leases and the state of ingest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
from attrs import asdict

from commitlog.cli.connection import Connection, any_options
from commitlog.cli.exit_status import Exit, PredicateCommand, print_error, status_of
from commitlog.cli.output import (
    duration,
    json_option,
    moment,
    print_columns,
    print_json,
    printable,
    readable,
)
from commitlog.cli.parameters import DURATION
from commitlog.cli.urls import without_credentials
from commitlog.clock import SystemClock
from commitlog.errors import CommitError, TableNotFound
from commitlog.namespaces import parse_url

if TYPE_CHECKING:
    from commitlog.namespace import Namespace, NamespaceInspection
    from commitlog.outputs import Output, OutputInspection
    from commitlog.status import (
        Finding,
        LeaseInspection,
        LookSettings,
        Report,
        SourceInspection,
        SourcesInspection,
    )
    from commitlog.tables.api import Table

__all__ = ["status"]

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
    watch: float | None,
    json: bool,
) -> None:
    """Show what each URL is, and what needs attention, with the command to run next.

    URL is an output (s3://bucket/out, or a directory), a namespace (commitlog://NAME), a table of leases
    or a table with the state of ingest (dynamodb://NAME, sqlite:///ABSOLUTE/FILE).

    Nothing is changed. Each look takes some tens of requests: of long listings only the first 10,000
    items are read, and the numbers are then marked as too low. With --full, everything is read.

    The exit status is 0 if nothing needs attention, 1 if something does, and 2 if a look failed. With
    --watch, the command runs until it is interrupted. docs/runbook.md has a section for each finding.

    \b
    Example:
      commitlog status s3://bucket/out commitlog://lake dynamodb://commits
    """
    from commitlog.status import LookSettings

    if json and openmetrics:
        raise click.UsageError("--json and --openmetrics cannot be combined")
    settings = LookSettings(dead_after=older_than, stale_after=stale_after, max_lag=max_lag, full=full)
    targets = [_Target(connection, url) for url in dict.fromkeys(urls)]
    clock = SystemClock()
    while True:
        worst = _look_at_all(connection, targets, settings, json=json, openmetrics=openmetrics)
        if watch is None:
            click.get_current_context().exit(worst)
        clock.sleep(watch)
        if not json and not openmetrics:
            click.echo()


class _Target:
    """A target of the command; it is opened at the first look that can."""

    def __init__(self, connection: Connection, url: str) -> None:
        self.url = without_credentials(url)
        self._argument = url
        self._connection = connection
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

        leases = self._connection.open_table(self._argument, LEASE_SCHEMA)
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


def _look_at_all(
    connection: Connection,
    targets: Sequence[_Target],
    settings: LookSettings,
    *,
    json: bool,
    openmetrics: bool,
) -> Exit:
    """Look at each target and print the reports; return the exit status."""
    from commitlog.status import look, metrics_text

    worst = Exit.DONE
    reports: list[Report] = []
    failed: list[str] = []
    for target in targets:
        try:
            report = look(
                target.open(), url=target.url, settings=settings, open_input=connection.open_store
            )
        except (CommitError, OSError) as error:
            failed.append(target.url)
            result = status_of(error)
            result = Exit.USAGE if result is Exit.FAILED else result
            print_error(error, what=target.url, status=result, json=json)
            worst = max(worst, result)
            continue
        worst = max(worst, Exit.FAILED if report.findings else Exit.DONE)
        if json:
            print_json(_record(report))
        elif not openmetrics:
            if reports:
                click.echo()
            _print(report)
        reports.append(report)
    if openmetrics:
        click.echo(metrics_text(reports, failed=failed), nl=False)
    return worst


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


# -- text ----------------------------------------------------------------------------------------------


def _print(report: Report) -> None:
    from commitlog.namespace import NamespaceInspection
    from commitlog.outputs import OutputInspection
    from commitlog.status import LeaseInspection

    match report.inspection:
        case OutputInspection() as output:
            rows = _output_rows(output)
        case NamespaceInspection() as namespace:
            rows = _namespace_rows(namespace)
        case LeaseInspection() as leases:
            rows = _lease_rows(leases)
        case sources:
            rows = _source_rows(sources)
    if not report.inspection.complete:
        rows.append(("note", "long listings were cut: numbers may be too low (--full)"))
    print_columns([(report.kind, report.url), *rows])
    for finding in report.findings:
        click.echo(f"! {_summary(finding)}")
        click.echo(f"  $ {printable(finding.command)}")
    if not report.findings:
        click.echo("nothing needs attention")


def _summary(finding: Finding) -> str:
    size = "" if finding.bytes is None else f", {readable(finding.bytes)}"
    age = "" if finding.age is None else f", for {duration(finding.age)}"
    return f"{finding.kind}: {finding.count}{size}{age}: {printable(finding.text)}"


def _output_rows(found: OutputInspection) -> list[tuple[str, str]]:
    age = "" if found.committed is None else f", committed {_ago(found.now, found.committed)}"
    visible = "" if found.visible >= found.version else f"; visible up to {found.visible}"
    rows = "" if found.rows is None else f", {found.rows} rows"
    jobs = [
        f"{each.job_id or each.attempt} ({each.outcome}, active {_ago(found.now, each.active)})"
        for each in found.attempts[:5]
    ]
    more = ", …" if len(found.attempts) > 5 else ""
    uploads = sum(each.uploads for each in found.attempts)
    return [
        ("version", f"{found.version}{age}{visible}"),
        ("content", f"{found.files} files, {readable(found.bytes)}{rows}"),
        ("jobs", ", ".join(jobs) + more or "none in progress"),
        ("uploads", f"{uploads}"),
        ("replaced", f"{found.replaced} files kept for old versions"),
        ("log", f"{found.records} records, {found.records - found.checkpoint} since the checkpoint"),
        ("format", "-" if found.format is None else f"{found.format}"),
    ]


def _namespace_rows(found: NamespaceInspection) -> list[tuple[str, str]]:
    jobs = f"{len(found.jobs)}"
    if found.jobs:
        jobs += f", the oldest begun {_ago(found.now, found.jobs[0])}"
    log = "-"
    if found.log is not None:
        oldest = "" if found.log.oldest is None else f", the oldest for {duration(found.log.oldest)}"
        log = f"{found.log.pending} pending{oldest}; {found.log.decided} decided"
    return [
        ("created", moment(found.created)),
        ("jobs", jobs),
        ("log", log),
        ("trash", f"{found.trash}"),
        ("garbage", f"{found.garbage_objects} objects, {readable(found.garbage_bytes)}"),
        ("uploads", f"{found.uploads}"),
        (
            "format",
            f"{found.format} (readers: {found.min_reader} or later, writers: {found.min_writer} or"
            " later)",
        ),
        *([("access", "read-only copy")] if found.read_only else []),
    ]


def _lease_rows(found: LeaseInspection) -> list[tuple[str, str]]:
    return [
        ("leases", f"{found.held} held, {len(found.overdue)} overdue, {found.released} released"),
        ("format", "-" if found.format is None else f"{found.format}"),
    ]


def _source_rows(found: SourcesInspection) -> list[tuple[str, str]]:
    rows = [("source", _source_line(each)) for each in found.sources]
    return [*rows, ("format", "-" if found.format is None else f"{found.format}")]


def _source_line(found: SourceInspection) -> str:
    status = found.status
    waiting: list[str] = []
    if found.backlog is not None:
        lag = f", for up to {duration(found.lag or 0.0)}" if found.backlog.files else ""
        waiting = [f"{found.backlog.files} waiting ({readable(found.backlog.bytes)}{lag})"]
    parts = [f"epoch {status.epoch}", f"{status.files} files delivered", *waiting]
    return f"{status.source}: " + ", ".join([*parts, f"{status.problems} problems"])


def _ago(now: float, time: float) -> str:
    return f"{duration(max(0.0, now - time))} ago"
