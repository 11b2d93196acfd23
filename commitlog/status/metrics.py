"""Reports as OpenMetrics text. The names of metrics are part of the interface and do not change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias, TypeVar

from attrs import frozen

from commitlog._util.metrics import Metric, openmetrics
from commitlog.namespace import NamespaceInspection
from commitlog.outputs import OutputInspection
from commitlog.status.findings import (
    FINDING_KINDS,
    LeaseInspection,
    Report,
    SourceInspection,
    SourcesInspection,
)

__all__ = ["metrics_text"]

S = TypeVar("S")


@frozen
class _Target:
    """A target, and whether the look at it succeeded."""

    succeeded: bool


#: What metrics are of: an inspection, the report around it, or a source in it.
_Thing: TypeAlias = (
    _Target
    | Report
    | OutputInspection
    | NamespaceInspection
    | LeaseInspection
    | SourcesInspection
    | SourceInspection
)


def metrics_text(reports: Sequence[Report], *, failed: Sequence[str] = ()) -> str:
    """Return reports as OpenMetrics text, which Prometheus reads.

    Args:
        reports: the reports.
        failed: URLs of targets at which a look failed; they only have ``commitlog_status_up 0``.

    Each metric has the label ``url``; those of a source of ingest also ``source``. Times and ages are in
    seconds. A value that is not known is left out. A kind of finding that a target does not have is 0.
    """
    things: list[tuple[Mapping[str, str], _Thing]] = []
    for report in reports:
        labels = {"url": report.url}
        things += [(labels, _Target(True)), (labels, report), (labels, report.inspection)]
        if isinstance(report.inspection, SourcesInspection):
            things += [
                ({**labels, "source": each.status.source}, each) for each in report.inspection.sources
            ]
    things += [({"url": url}, _Target(False)) for url in failed]
    return openmetrics(_METRICS, things, prefix="commitlog_status_")


def _of(kind: type[S], value: Callable[[S], float | None]) -> Callable[[_Thing], float | None]:
    """Return the value function of a metric that only things of one kind have."""
    return lambda thing: value(thing) if isinstance(thing, kind) else None


def _findings(name: str, report: Report) -> float | None:
    if report.kind not in FINDING_KINDS[name].targets:
        return None
    return sum(finding.count for finding in report.findings if finding.kind == name)


def _gauge(
    name: str,
    kind: type[S],
    help: str,
    value: Callable[[S], float | None],
    labels: Mapping[str, str] | None = None,
) -> Metric[_Thing]:
    return Metric(name, "gauge", help, _of(kind, value), labels or {})


def _since(now: float, time: float | None) -> float | None:
    return None if time is None else max(0.0, now - time)


def _open_jobs(found: OutputInspection) -> list[float]:
    return [each.active for each in found.attempts if each.outcome == "open"]


def _output(name: str, help: str, value: Callable[[OutputInspection], float | None]) -> Metric[_Thing]:
    return _gauge(f"output_{name}", OutputInspection, help, value)


def _namespace(
    name: str, help: str, value: Callable[[NamespaceInspection], float | None]
) -> Metric[_Thing]:
    return _gauge(f"namespace_{name}", NamespaceInspection, help, value)


def _source(name: str, help: str, value: Callable[[SourceInspection], float | None]) -> Metric[_Thing]:
    return _gauge(f"ingest_{name}", SourceInspection, help, value)


def _total(name: str, help: str, value: Callable[[SourceInspection], float | None]) -> Metric[_Thing]:
    return Metric(f"ingest_{name}", "counter", help, _of(SourceInspection, value))


_METRICS: Sequence[Metric[_Thing]] = (
    _gauge("up", _Target, "Whether the look succeeded.", lambda target: int(target.succeeded)),
    *(
        _gauge(
            "findings",
            Report,
            "Number of things that need attention.",
            partial(_findings, name),
            {"finding": name},
        )
        for name in FINDING_KINDS
    ),
    _gauge(
        "complete", Report, "Whether everything was read.", lambda each: int(each.inspection.complete)
    ),
    _gauge("format", Report, "Format of the stored records.", lambda each: each.inspection.format),
    _output("version", "Version of the last commit.", lambda found: found.version),
    _output(
        "visible_version", "Version up to which all files are visible.", lambda found: found.visible
    ),
    _output(
        "last_commit_age_seconds",
        "Age of the last commit.",
        lambda found: _since(found.now, found.committed),
    ),
    _output("files", "Files of the last version.", lambda found: found.files),
    _output("size_bytes", "Size of the last version.", lambda found: found.bytes),
    _output("rows", "Rows of the last version.", lambda found: found.rows),
    _output(
        "log_records_after_checkpoint",
        "Records of the log after the last checkpoint.",
        lambda found: found.records - found.checkpoint,
    ),
    _output("open_jobs", "Jobs that are not committed.", lambda found: len(_open_jobs(found))),
    _output(
        "open_job_silence_seconds",
        "Longest time without a sign of life of a job that is not committed.",
        lambda found: _since(found.now, min(_open_jobs(found), default=None)),
    ),
    _output(
        "unpublished_jobs",
        "Committed jobs that are not published yet.",
        lambda found: len(found.unpublished),
    ),
    _output(
        "uploads",
        "Uploads that are not published.",
        lambda found: sum(each.uploads for each in found.attempts),
    ),
    _output("replaced_files", "Files kept for old versions.", lambda found: found.replaced),
    _output("garbage_objects", "Objects that may be removed.", lambda found: found.garbage_objects),
    _output("garbage_bytes", "Size of these objects.", lambda found: found.garbage_bytes),
    _namespace("open_jobs", "Jobs that are not published.", lambda found: len(found.jobs)),
    _namespace(
        "open_job_silence_seconds",
        "Longest time since the begin of a job that is not published.",
        lambda found: _since(found.now, min(found.jobs, default=None)),
    ),
    _namespace(
        "pending_changes",
        "Changes pending in the log.",
        lambda found: None if found.log is None else found.log.pending,
    ),
    _namespace(
        "pending_change_age_seconds",
        "Age of the oldest pending change, or 0.",
        lambda found: None if found.log is None else max(0.0, found.log.oldest or 0.0),
    ),
    _namespace(
        "log_decisions",
        "Decided changes in the log.",
        lambda found: None if found.log is None else found.log.decided,
    ),
    _namespace("trash", "Files and directories directly in the trash.", lambda found: found.trash),
    _namespace("garbage_objects", "Objects that may be removed.", lambda found: found.garbage_objects),
    _namespace("garbage_bytes", "Size of these objects.", lambda found: found.garbage_bytes),
    _namespace("uploads", "Uploads of content.", lambda found: found.uploads),
    _gauge("leases", LeaseInspection, "Leases.", lambda found: found.held, {"state": "held"}),
    _gauge("leases", LeaseInspection, "Leases.", lambda found: len(found.overdue), {"state": "overdue"}),
    _gauge("leases", LeaseInspection, "Leases.", lambda found: found.released, {"state": "released"}),
    _source("epoch", "Number of the last planned epoch.", lambda found: found.status.epoch),
    _total("delivered_files", "Files delivered so far.", lambda found: found.status.files),
    _total("delivered_bytes", "Bytes delivered so far.", lambda found: found.status.bytes),
    _source("problems", "Slices that were not delivered.", lambda found: found.status.problems),
    _total("skipped_files", "Files that were too old.", lambda found: found.status.passed_over),
    _source(
        "backlog_files",
        "Waiting files.",
        lambda found: None if found.backlog is None else found.backlog.files,
    ),
    _source(
        "backlog_bytes",
        "Waiting bytes.",
        lambda found: None if found.backlog is None else found.backlog.bytes,
    ),
    _source("lag_seconds", "Age of the oldest waiting file, or 0.", lambda found: found.lag),
)
