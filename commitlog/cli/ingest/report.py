"""The output of the ``ingest`` commands: as text, JSON and metrics.

JSON keys and names of metrics are part of the interface and do not change.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, get_args

import click
from attrs import asdict, frozen

from commitlog._util.metrics import Metric, openmetrics
from commitlog.cli.output import duration, moment, printable, progress_file
from commitlog.ingest import Backlog, IngestSettings, InputProblem, Slice, SourceMetadata, SourceStatus
from commitlog.ingest.quarantine import Kind

__all__ = [
    "SourceReport",
    "listing_progress",
    "metrics_text",
    "problem_lines",
    "problem_record",
    "slice_record",
    "status_record",
    "status_rows",
    "waiting_line",
]


@frozen(kw_only=True)
class SourceReport:
    """The information on a source that a command shows.

    Attributes:
        now: the time, in epoch seconds.
        status: the status from the state table.
        metadata: the settings of its query, if known.
        backlog: the waiting files, if the input was listed.
    """

    now: float
    status: SourceStatus
    metadata: SourceMetadata | None
    backlog: Backlog | None = None


def _age(each: Slice, now: float) -> float:
    return max(0.0, now - each.file.modified)


def slice_record(each: Slice, *, now: float) -> dict[str, Any]:
    """Return the printed record of a slice."""
    file = each.file
    return {
        "path": file.path,
        "size": file.size,
        "etag": file.etag,
        "modified": file.modified,
        "age": _age(each, now),
        "start": each.start,
        "end": each.end,
    }


def problem_record(problem: InputProblem, *, now: float) -> dict[str, Any]:
    """Return the printed record of a problem."""
    return {
        "state": problem.kind,
        **slice_record(problem.slice, now=now),
        "error": problem.error,
        "offset": problem.offset,
        "epoch": problem.epoch,
        "records": problem.records,
        "time": problem.time,
    }


def waiting_line(each: Slice, *, now: float) -> str:
    """Return the line for a waiting slice."""
    return _line("waiting", each, now)


def _line(state: str, each: Slice, now: float) -> str:
    return f"{state:10}  {each.size:>14}  {duration(_age(each, now)):>13}  {printable(each.file.path)}"


def problem_lines(problem: InputProblem, *, now: float) -> Iterator[str]:
    """Yield the lines for a problem."""
    yield _line(problem.kind, problem.slice, now)
    where = "" if problem.offset is None else f" at byte {problem.offset}"
    yield (
        f"    epoch {problem.epoch}, {moment(problem.time)}, after {problem.records} records{where}:"
        f" {printable(problem.error)}"
    )


def status_record(report: SourceReport) -> dict[str, Any]:
    """Return the record of a source for --json."""
    status, metadata, backlog = report.status, report.metadata, report.backlog
    record = asdict(status, recurse=False)
    record["problems"] = dict(record.pop("problems_by_kind"))
    record["url"] = metadata and metadata.url
    record["format"] = metadata and metadata.format
    record["settings"] = metadata and _settings(metadata.settings)
    record["backlog"] = backlog and {
        "files": backlog.files,
        "bytes": backlog.bytes,
        "oldest": backlog.oldest and slice_record(backlog.oldest, now=report.now),
    }
    return record


def _settings(settings: IngestSettings) -> dict[str, Any]:
    return asdict(settings, filter=lambda each, _: each.init and each.name != "source")


def status_rows(report: SourceReport) -> list[tuple[str, str]]:
    """Return the information on a source as names and values."""
    status, metadata = report.status, report.metadata
    current = "" if status.cursor is None else f", one in progress: at {status.cursor or 'its start'}"
    kinds = ", ".join(f"{number} {kind}" for kind, number in status.problems_by_kind.items() if number)
    rows = [
        ("source", status.source),
        ("input", "-" if metadata is None else f"{metadata.url} ({metadata.format})"),
        ("epoch", f"{status.epoch}"),
        ("delivered", f"{status.files} files, {status.bytes} bytes"),
        ("sweeps", f"{status.sweeps} complete{current}"),
        ("known before", "-" if status.known_before is None else moment(status.known_before)),
        ("rest", f"{status.rest} bytes"),
        ("skipped", f"{status.passed_over}"),
        ("problems", kinds or "0"),
    ]
    if report.backlog is not None:
        rows.append(("waiting", _waiting(report.backlog, report.now)))
    if metadata is not None:
        rows.append(("settings", _changed_settings(metadata.settings)))
    return rows


def _waiting(backlog: Backlog, now: float) -> str:
    text = f"{backlog.files} files, {backlog.bytes} bytes"
    if backlog.oldest is None:
        return text
    return f"{text}; the oldest for {duration(_age(backlog.oldest, now))}: {backlog.oldest.file.path}"


def _changed_settings(settings: IngestSettings) -> str:
    """Return the settings that are not the default."""
    default = _settings(IngestSettings(source=settings.source))
    actual = _settings(settings)
    names = {**actual.pop("names"), "prefix": actual.pop("prefix")}
    default = {**default, **default.pop("names")}
    changed = {**names, **actual}
    unusual = [f"{name}={value}" for name, value in changed.items() if value != default[name]]
    return ", ".join(unusual) or "defaults"


def _oldest(backlog: Backlog, now: float) -> float:
    return 0.0 if backlog.oldest is None else _age(backlog.oldest, now)


def _problems(kind: Kind, report: SourceReport) -> float:
    return report.status.problems_by_kind[kind]


_METRICS: Sequence[Metric[SourceReport]] = (
    Metric("epoch", "gauge", "Number of the last planned epoch.", lambda s: s.status.epoch),
    Metric("files", "counter", "Files delivered.", lambda s: s.status.files),
    Metric("bytes", "counter", "Bytes delivered.", lambda s: s.status.bytes),
    Metric("sweeps", "counter", "Completed sweeps of the listing.", lambda s: s.status.sweeps),
    Metric("rest_bytes", "gauge", "Undelivered bytes of the last file.", lambda s: s.status.rest),
    Metric(
        "passed_over",
        "counter",
        "Objects too old for the listing.",
        lambda s: s.status.passed_over,
    ),
    *(
        Metric(
            "problems",
            "gauge",
            "Slices that could not be read and were not retried.",
            partial(_problems, kind),
            {"kind": kind},
        )
        for kind in get_args(Kind)
    ),
    Metric("backlog_files", "gauge", "Waiting files.", lambda s: s.backlog.files if s.backlog else None),
    Metric("backlog_bytes", "gauge", "Waiting bytes.", lambda s: s.backlog.bytes if s.backlog else None),
    Metric(
        "backlog_oldest_seconds",
        "gauge",
        "Age of the oldest waiting file, or 0.",
        lambda s: _oldest(s.backlog, s.now) if s.backlog else None,
    ),
)


def metrics_text(reports: Sequence[SourceReport]) -> str:
    """Return the information on sources as OpenMetrics text."""
    labelled = [({"source": each.status.source}, each) for each in reports]
    return openmetrics(_METRICS, labelled, prefix="commitlog_ingest_")


@contextmanager
def listing_progress(label: str, *, hidden: bool = False) -> Iterator[Callable[[], object]]:
    """Show the number of listed objects on a terminal. Yield the function to call for each."""
    with click.progressbar(
        itertools.count(),
        label=label,
        bar_template="%(label)s: %(info)s objects",
        show_pos=True,
        update_min_steps=1000,
        file=progress_file(hidden=hidden or not sys.stderr.isatty()),
    ) as bar:
        yield lambda: bar.update(1)
