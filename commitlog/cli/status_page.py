"""Reports of looks as one HTML page, which needs nothing else: no script, no font, no other host.

The page also forbids scripts and requests to itself, by a Content-Security-Policy
(https://www.w3.org/TR/CSP3/), in case that a name is not escaped.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from itertools import chain, count

from commitlog.cli.charts import STYLE, Chart, Mark, Unit, escape, render
from commitlog.cli.output import duration, moment, readable
from commitlog.cli.status_text import finding_line, report_rows
from commitlog.namespace import NamespaceInspection
from commitlog.outputs import CommitSummary, OutputHistory, OutputInspection
from commitlog.outputs.compaction import SMALL, TARGET_BYTES
from commitlog.status import FINDING_KINDS, LeaseInspection, LookSettings, Report, SourcesInspection

__all__ = ["status_page"]

#: Most bars of a chart. The longest are shown.
_BARS = 20

#: Most columns of a chart of time, and of a chart of versions.
_COLUMNS, _VERSIONS = 30, 150

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400

#: Widths of a column of time, in seconds. Later ones double.
_WIDTHS = (
    *(each * _MINUTE for each in (1, 2, 5, 10, 15, 30)),
    *(each * _HOUR for each in (1, 2, 3, 6, 12)),
    *(each * _DAY for each in (1, 2, 7, 14, 28, 91, 182, 364)),
)

#: Size in bytes below which `commitlog output compact` merges a file.
_SMALL = round(SMALL * TARGET_BYTES)

#: Upper edges of the sizes of files, in bytes.
_EDGES = (64 << 10, 512 << 10, 4 << 20, 32 << 20, _SMALL, 256 << 20, 1 << 30)

_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
)

_STYLE = """
:root { color-scheme: light dark; --page: #fff; --text: #1b1f24; --soft: #57606a; --line: #d8dee4;
  --mark: #0969da; --limit: #bc4c00; --bad: #b42318; --good: #1a7f37; --box: #f6f8fa; }
@media (prefers-color-scheme: dark) {
  :root { --page: #0d1117; --text: #e6edf3; --soft: #9aa4af; --line: #30363d;
    --mark: #4493f8; --limit: #f0883e; --bad: #ff7b72; --good: #56d364; --box: #161b22; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 80rem; background: var(--page); color: var(--text);
  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; margin: 0; }
h2 { font-size: 1.25rem; margin: 0 0 .5rem; }
header p, footer { color: var(--soft); }
a { color: var(--mark); }
section { border-top: 1px solid var(--line); padding: 1rem 0; }
ul { list-style: none; padding: 0; margin: 0 0 1rem; }
nav li { margin: .25rem 0; }
.finding { border-inline-start: 4px solid var(--bad); padding: .25rem .75rem; margin: .5rem 0;
  background: var(--box); }
.finding p { margin: .25rem 0; }
.meaning { color: var(--soft); }
.bad { color: var(--bad); font-weight: 600; }
.good { color: var(--good); font-weight: 600; }
pre { margin: .25rem 0; padding: .5rem; background: var(--box); border: 1px solid var(--line);
  white-space: pre-wrap; }
dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: .1rem 1rem;
  margin: 0 0 1rem; }
dt { color: var(--soft); }
dd { margin: 0; }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 21rem), 1fr));
  gap: 1.5rem; }
"""


def status_page(
    reports: Sequence[Report], failed: Mapping[str, str], *, settings: LookSettings, now: float
) -> str:
    """Return reports as one HTML page, with a chart for each thing that changes.

    Args:
        reports: the reports.
        failed: the message of each failed look, by the URL of its target without credentials.
        settings: the settings of the looks; their limits are drawn.
        now: epoch second at which the looks ended.

    Texts from stores and tables are escaped. The page makes no request.
    """
    ids = iter(f"target-{number}" for number in count(1))
    links: list[str] = []
    sections: list[str] = []
    for url, message in failed.items():
        id = next(ids)
        links.append(_link(url, id, "the look failed", bad=True))
        sections.append(_failed_section(url, message, id))
    for report in reports:
        id = next(ids)
        state = _counted(len(report.findings), "finding")
        links.append(_link(report.url, id, state, bad=bool(report.findings)))
        sections.append(_section(report, id, settings))
    findings = sum(len(each.findings) for each in reports)
    summary = f"{_counted(findings, 'finding')}, {_counted(len(failed), 'failed look')}"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n<link rel="icon" href="data:,">\n'
        f"<title>{summary}: status of commitlog</title>\n<style>{_STYLE}{STYLE}</style>\n"
        "</head>\n<body>\n"
        f"<header><h1>Status</h1>\n<p>{_counted(len(links), 'target')}, {summary}."
        f' Looked at <time datetime="{moment(now)}">{moment(now)}</time>'
        f" by commitlog {escape(version('commitlog-store'))}. The page does not change by itself.</p>\n"
        f'<nav aria-label="Targets"><ul>\n{"".join(links)}</ul></nav></header>\n<main>\n'
        f"{''.join(sections)}</main>\n</body>\n</html>\n"
    )


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _link(url: str, id: str, state: str, *, bad: bool) -> str:
    kind = "bad" if bad else "good"
    return f'<li><a href="#{id}"><bdi>{escape(url)}</bdi></a> <span class="{kind}">{state}</span></li>\n'


def _failed_section(url: str, message: str, id: str) -> str:
    return (
        f'<section id="{id}" aria-labelledby="{id}-name">\n'
        f'<h2 id="{id}-name"><bdi>{escape(url)}</bdi></h2>\n'
        '<div class="finding"><p class="bad">The look failed.</p>\n'
        f"<p><bdi>{escape(message)}</bdi></p></div></section>\n"
    )


def _section(report: Report, id: str, settings: LookSettings) -> str:
    rows = "".join(
        f"<dt>{escape(name)}</dt><dd><bdi>{escape(value)}</bdi></dd>\n"
        for name, value in report_rows(report)
    )
    charts = "".join(
        render(chart, f"{id}-chart-{number}")
        for number, chart in enumerate(_charts(report, settings), 1)
    )
    return (
        f'<section id="{id}" aria-labelledby="{id}-name">\n'
        f'<h2 id="{id}-name">{report.kind} <bdi>{escape(report.url)}</bdi></h2>\n'
        f'{_findings(report)}<dl>\n{rows}</dl>\n<div class="charts">\n{charts}</div></section>\n'
    )


def _findings(report: Report) -> str:
    if not report.findings:
        return '<p class="good">Nothing needs attention.</p>\n'
    return "".join(
        f'<div class="finding"><p class="bad"><bdi>{escape(finding_line(finding))}</bdi></p>\n'
        f'<p class="meaning">{escape(FINDING_KINDS[finding.kind].meaning)}</p>\n'
        f"<pre><code><bdi>{escape(finding.command)}</bdi></code></pre></div>\n"
        for finding in report.findings
    )


# -- charts --------------------------------------------------------------------------------------------


def _charts(report: Report, settings: LookSettings) -> Iterator[Chart]:
    match report.inspection:
        case OutputInspection() as found:
            if report.history is not None:
                yield from _history(report.history)
            yield from _attempts(found, settings)
        case NamespaceInspection() as found:
            yield from _oldest(found)
        case LeaseInspection() as found:
            yield from _leases(found)
        case SourcesInspection() as found:
            yield from _sources(found, settings)


def _history(history: OutputHistory) -> Iterator[Chart]:
    scope = f"Records {history.first:,} to {history.last:,} of the log."
    if history.first > 1:
        scope += " Earlier ones are left out: --history reads more."
    if not history.complete:
        scope += " Some records could not be read, so there may be more commits."
    if history.commits:
        yield from _over_time(history.commits, scope)
        yield from _by_version(history, scope)
    if history.sizes:
        yield _sizes(history.sizes)


def _over_time(commits: Sequence[CommitSummary], scope: str) -> Iterator[Chart]:
    width, groups = _periods(commits)
    names = [_period(start, width) for start in groups]
    note = f"Each column is {_length(width)}, in UTC, by the clocks of the drivers. {scope}"
    counts = [float(len(group)) for group in groups.values()]
    yield _columns("Commits over time", note, "period", "count", names, counts)
    rows = [_sum([each.added_rows for each in group]) for group in groups.values()]
    if None in rows:
        note += " A gap: the number of rows is not known, because a job did not give it."
    yield _columns("Rows added over time", note, "period", "count", names, rows)


def _sum(counts: Sequence[int | None]) -> float | None:
    known = [count for count in counts if count is not None]
    return float(sum(known)) if len(known) == len(counts) else None


def _columns(
    title: str, note: str, of: str, unit: Unit, names: Sequence[str], values: Sequence[float | None]
) -> Chart:
    marks = [Mark(name=name, value=value) for name, value in zip(names, values, strict=True)]
    return Chart(title=title, note=note, form="columns", of=of, unit=unit, marks=marks)


def _periods(commits: Sequence[CommitSummary]) -> tuple[int, dict[int, list[CommitSummary]]]:
    """Return the width of periods in seconds, and the commits of each period by its start."""
    seconds = [math.floor(each.time) for each in commits]
    least, most = min(seconds), max(seconds)
    widths = chain(_WIDTHS, (_WIDTHS[-1] << double for double in count(1)))
    width = next(each for each in widths if most // each - least // each < _COLUMNS)
    starts = range(least // width * width, most + 1, width)
    groups: dict[int, list[CommitSummary]] = {start: [] for start in starts}
    for second, commit in zip(seconds, commits, strict=True):
        groups[second // width * width].append(commit)
    return width, groups


def _length(width: int) -> str:
    unit, noun = next(
        (s, n) for s, n in ((_DAY, "day"), (_HOUR, "hour"), (_MINUTE, "minute")) if width >= s
    )
    return _counted(width // unit, noun)


def _period(start: int, width: int) -> str:
    text = moment(start)
    return text[:10] if width % _DAY == 0 and text[10:11] == "T" else text


def _by_version(history: OutputHistory, scope: str) -> Iterator[Chart]:
    note = f"All files of the output after each commit. {scope}"
    step = -(-len(history.commits) // _VERSIONS)
    commits = history.commits[::-step][::-1]  # with the last one
    if step > 1:
        note += f" One of {step} commits is shown."
    if any(each.bytes is None for each in commits):
        note += (
            " A gap: the total is not known, because later jobs replaced files whose sizes these records"
            " do not have."
        )
    names = [f"version {each.version}" for each in commits]
    files = [None if each.files is None else float(each.files) for each in commits]
    yield _columns("Files by version", note, "version", "count", names, files)
    sizes = [None if each.bytes is None else float(each.bytes) for each in commits]
    yield _columns("Bytes by version", note, "version", "bytes", names, sizes)


def _sizes(sizes: Sequence[int]) -> Chart:
    edges = (0, *_EDGES)
    marks = []
    for low, high in zip(edges, (*_EDGES, None), strict=True):
        number = sum(low <= size and (high is None or size < high) for size in sizes)
        name = f"{readable(low)} or more" if high is None else f"below {readable(high)}"
        marks.append(Mark(name=name, value=number, tick=_short(low, high)))
    small = sum(size < _SMALL for size in sizes)
    return Chart(
        title="Small files",
        note=f"Files of the last version by size. {small:,} of {len(sizes):,} files"
        f" ({small / len(sizes):.1%}) are smaller than {readable(_SMALL)}: commitlog output compact"
        " merges such files of one partition and format.",
        form="columns",
        of="size",
        unit="count",
        marks=marks,
    )


def _short(low: int, high: int | None) -> str:
    shown = f"≥{readable(low)}" if high is None else f"<{readable(high)}"
    return shown.replace(".0 ", "").replace("iB", "")


def _bars(
    title: str,
    note: str,
    of: str,
    unit: Unit,
    found: Sequence[tuple[str, float]],
    limit: float | None = None,
) -> Chart:
    highest = sorted(found, key=lambda each: -each[1])[:_BARS]
    if len(found) > _BARS:
        note += f" The {_BARS} highest of {len(found):,} are shown; --json has all."
    marks = [Mark(name=name, value=value) for name, value in highest]
    return Chart(title=title, note=note, form="bars", of=of, unit=unit, marks=marks, limit=limit)


def _attempts(found: OutputInspection, settings: LookSettings) -> Iterator[Chart]:
    if found.attempts:
        ages = [
            (f"{each.job_id or each.attempt} ({each.outcome})", max(0.0, found.now - each.active))
            for each in found.attempts
        ]
        note = (
            f"An open job counts as dead after {duration(settings.dead_after)} without a sign of life."
        )
        yield _bars("Silence of jobs", note, "job", "seconds", ages, settings.dead_after)


def _oldest(found: NamespaceInspection) -> Iterator[Chart]:
    ages = {
        "pending change": None if found.log is None else found.log.oldest,
        "unpublished job": found.now - found.jobs[0] if found.jobs else None,
        "trash": None if found.oldest_trash is None else found.now - found.oldest_trash,
        "garbage": None if found.oldest_garbage is None else found.now - found.oldest_garbage,
    }
    known = [(name, max(0.0, age)) for name, age in ages.items() if age is not None]
    if known:
        note = "Of the things that are left in the namespace, the age of the oldest of each kind."
        yield _bars("Ages", note, "kind", "seconds", known)


def _leases(found: LeaseInspection) -> Iterator[Chart]:
    counts = {"held": found.held, "overdue": len(found.overdue), "released": found.released}
    yield Chart(
        title="Leases by state",
        note="An overdue lease is older than its timeout, and not released.",
        form="bars",
        of="state",
        unit="count",
        marks=[Mark(name=state, value=number) for state, number in counts.items()],
    )
    if found.overdue:
        ages = [(each.record.path, max(0.0, each.age)) for each in found.overdue]
        yield _bars("Age of overdue leases", "By the key of the object.", "key", "seconds", ages)


def _sources(found: SourcesInspection, settings: LookSettings) -> Iterator[Chart]:
    lags = [(each.status.source, each.lag) for each in found.sources if each.lag is not None]
    if lags:
        note = "Age of the oldest waiting file of each source whose input was listed."
        yield _bars("Ingest lag", note, "source", "seconds", lags, settings.max_lag)
    waiting = [
        (each.status.source, each.backlog.files) for each in found.sources if each.backlog is not None
    ]
    if waiting:
        yield _bars("Waiting files", "By source.", "source", "count", waiting)
