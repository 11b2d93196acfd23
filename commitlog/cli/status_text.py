"""Reports of looks as text: the rows of each kind of target, and a line for each finding."""

from __future__ import annotations

from commitlog.cli.output import duration, moment, printable, readable
from commitlog.namespace import NamespaceInspection
from commitlog.outputs import OutputInspection
from commitlog.status import LeaseInspection, Report, SourceInspection, SourcesInspection, StatusFinding

__all__ = ["finding_line", "report_rows"]


def report_rows(report: Report) -> list[tuple[str, str]]:
    """Return what a look saw, as names with their values; names and values are not escaped."""
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
    return rows


def finding_line(finding: StatusFinding) -> str:
    """Return a finding without its command, in one line of printable characters."""
    size = "" if finding.bytes is None else f", {readable(finding.bytes)}"
    age = "" if finding.age is None else f", for {duration(finding.age)}"
    return f"{finding.kind}: {finding.count}{size}{age}: {printable(finding.text)}"


def _ago(now: float, time: float) -> str:
    """Return how long before `now` an epoch second was.

    >>> _ago(100.0, 40.0), _ago(100.0, 101.0)
    ('1 min 0 s ago', '0.0 s ago')
    """
    return f"{duration(max(0.0, now - time))} ago"


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
