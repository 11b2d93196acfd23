"""The page of ``commitlog status``: its charts have the stores' figures, and all texts are escaped."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from attrs import evolve

from commitlog.cli.status_page import status_page
from commitlog.commit.record import LEASE_SCHEMA, LeaseRecord
from commitlog.ingest import IngestSettings, SourceMetadata, StateTable
from commitlog.namespace import Namespace
from commitlog.outputs import Output, OutputHistory, StagedFile
from commitlog.status import FINDING_KINDS, LookSettings, Report, StatusFinding, look
from commitlog.stores.api import Staged
from commitlog.stores.memory import MemoryStore
from commitlog.tables.open import open_table
from commitlog.testing import ManualClock
from support.ingest import Bucket, Checkpoint, Engine, state_table
from support.namespace import ServiceTable
from support.outputs import open_output
from support.status_page import StatusPage

HOUR, DAY, MiB = 3600.0, 86_400.0, 2**20

#: Names that a page must not take for its own text. The last one has right-to-left letters.
HOSTILE = (
    "<script>alert(1)</script>",
    "\"><img src=x onerror='alert(1)'>",
    "&lt;b&gt; </title></svg></style><b>",
    "a\nb\r\0\u202e\u2028",
    "\udcff\ud800",
    "שלום \u200f«عربي»",
)


@pytest.fixture
def clock() -> ManualClock:
    """A clock that the tests advance."""
    return ManualClock()


def add(output: Output, job_id: str, sizes: Sequence[int], rows: Sequence[int | None]) -> None:
    """Commit a job with files of these sizes and rows, which only the log shows."""
    job = output.begin(job_id, visibility="logged")
    files = []
    for n, (size, count) in enumerate(zip(sizes, rows, strict=True)):
        path = f"out/_commitlog/data/{job.file_name(n)}"
        staged = Staged(path=path, upload_id=f"u{n}", size=size, nonce=f"n{n}")
        files.append(StagedFile(staged=staged, rows=count))
    output.commit(job, files)


def page_of(report: Report, clock: ManualClock, **settings: float) -> StatusPage:
    """Return the page of one report."""
    text = status_page([report], {}, settings=LookSettings(**settings), now=clock.epoch())
    return StatusPage(text)


def look_at(output: Output, clock: ManualClock, history: int = 100) -> Report:
    """Look at an output and its history."""
    return look(output, settings=LookSettings(history=history), clock=clock)


# -- outputs -------------------------------------------------------------------------------------------


def test_the_charts_of_an_output_have_the_figures_of_its_log(clock: ManualClock) -> None:
    """Commits and rows by hour, files and bytes by version, and files by size."""
    output = open_output(MemoryStore(clock=clock), clock)
    start = clock.epoch()
    for n in range(25):
        add(output, f"job-{n}", [n * MiB, 300 * MiB], [n, 1000])
        clock.advance(HOUR / 2 if n % 5 else 3 * HOUR)
    report = look_at(output, clock)
    page = page_of(report, clock)
    commits = list(output.log())
    assert len(commits) == 25

    over_time = page.figure("Commits over time")
    rows = page.figure("Rows added over time").values()
    assert "Each column is 1 hour" in over_time.note
    assert "Records 1 to 25 of the log." in over_time.note
    assert "Earlier" not in over_time.note
    hours = Counter(int(record.time // HOUR) for record in commits)
    first, last = int(start // HOUR), int(commits[-1].time // HOUR)
    assert list(over_time.values().values()) == [hours[hour] for hour in range(first, last + 1)]
    by_hour: Counter[int] = Counter()
    for record in commits:
        by_hour[int(record.time // HOUR)] += record.rows or 0
    assert list(rows.values()) == [by_hour[hour] for hour in range(first, last + 1)]
    assert sum(value or 0 for value in rows.values()) == sum(n + 1000 for n in range(25))

    files = page.figure("Files by version")
    assert files.values() == {f"version {n}": 2 * n for n in range(1, 26)}
    assert files.labels == ["0", "30", "60", "version 1", "version 25"]
    assert files.marks[-1][0] == pytest.approx(150 * 50 / 60, abs=0.001)  # the axis is 150 units high
    states = {v: output.state(until=v).files.values() for v in range(1, 26)}
    assert page.figure("Bytes by version").values() == {
        f"version {v}": sum(file.size for file in found) for v, found in states.items()
    }

    small = page.figure("Small files")
    assert "25 of 50 files (50.0%) are smaller than 96.0 MiB" in small.note
    assert small.values() == {
        "below 64.0 KiB": 1,
        "below 512.0 KiB": 0,
        "below 4.0 MiB": 3,
        "below 32.0 MiB": 21,
        "below 96.0 MiB": 0,
        "below 256.0 MiB": 0,
        "below 1.0 GiB": 25,
        "1.0 GiB or more": 0,
    }


def test_a_page_says_what_it_leaves_out(clock: ManualClock) -> None:
    """The records, and the totals that these do not tell."""
    output = open_output(MemoryStore(clock=clock), clock)
    for n in range(35):
        job = output.begin(f"job-{n}", mode="overwrite-partitions" if n == 12 else "append")
        output.commit(job, [output.stage(job, job.file_name(0), b"x" * n)])
    page = page_of(look_at(output, clock, history=30), clock)
    files = page.figure("Files by version")
    assert "Records 6 to 35 of the log. Earlier ones are left out: --history reads more." in files.note
    assert "A gap: the total is not known" in files.note
    found = files.values()
    assert list(found) == [f"version {n}" for n in range(6, 36)]
    assert [name for name, value in found.items() if value is None] == [
        f"version {n}" for n in range(6, 13)
    ]
    assert found["version 35"] == len(output.state().files)


def test_rows_that_no_job_gave(clock: ManualClock) -> None:
    """They are a gap and not 0, and a chart without a value has no drawing."""
    output = open_output(MemoryStore(clock=clock), clock)
    add(output, "a", [1], [5])
    clock.advance(120)
    add(output, "b", [1, 1], [5, None])
    rows = page_of(look_at(output, clock), clock).figure("Rows added over time")
    assert "is not known, because a job did not give it" in rows.note
    values = list(rows.values().values())
    assert (values[0], values[-1]) == (5, None)
    output = open_output(MemoryStore(clock=clock), clock)
    add(output, "a", [1], [None])
    page = page_of(look_at(output, clock), clock)
    assert page.figure("Rows added over time").marks == []
    assert page.tags.count("svg") == len(page.figures) - 1


@pytest.mark.parametrize(
    "times", [(0.0,), (0.0, 1e9), (-1e15, 1e15), (1e300, 0.0), (5e9, 5e9 + 86_400 * 29)]
)
def test_clocks_of_any_kind(clock: ManualClock, times: tuple[float, ...]) -> None:
    """Times before and after the calendar are shown, in a bounded number of columns."""
    output = open_output(MemoryStore(clock=clock), clock)
    add(output, "a", [1], [5])
    report = look_at(output, clock)
    assert report.history is not None
    [commit] = report.history.commits
    commits = tuple(evolve(commit, version=n, time=time) for n, time in enumerate(times, 1))
    page = page_of(evolve(report, history=evolve(report.history, commits=commits)), clock)
    values = page.figure("Commits over time").values()
    assert sum(value or 0 for value in values.values()) == len(times)
    assert len(values) <= 30


@pytest.mark.parametrize(("count", "step"), [(150, 1), (151, 2), (1000, 7)])
def test_long_histories_are_thinned(clock: ManualClock, count: int, step: int) -> None:
    """The chart has the last commit, and others at equal distances before it."""
    output = open_output(MemoryStore(clock=clock), clock)
    add(output, "a", [1], [5])
    report = look_at(output, clock)
    assert report.history is not None
    [commit] = report.history.commits
    commits = tuple(evolve(commit, version=n, files=n) for n in range(1, count + 1))
    page = page_of(evolve(report, history=evolve(report.history, commits=commits)), clock)
    files = page.figure("Files by version")
    shown = range(count, 0, -step)[::-1]
    assert files.values() == {f"version {n}": n for n in shown}
    assert len(shown) <= 150
    assert (f"One of {step} commits is shown" in files.note) == (step > 1)
    assert sum(value or 0 for value in page.figure("Commits over time").values().values()) == count


def test_no_history(clock: ManualClock) -> None:
    """A report without a history, or without a commit, has no chart of it."""
    output = open_output(MemoryStore(clock=clock), clock)
    output.heartbeat(output.begin("a").attempt)
    report = look(output, clock=clock)
    empty = OutputHistory(first=1, last=0, commits=(), sizes=(), complete=True)
    for each in (report, evolve(report, history=empty)):
        assert [figure.title for figure in page_of(each, clock).figures] == ["Silence of jobs"]


def test_many_jobs(clock: ManualClock) -> None:
    """The most silent ones are shown, and the page says how many there are."""
    output = open_output(MemoryStore(clock=clock), clock)
    for _ in range(23):
        output.heartbeat(output.begin("daily").attempt)
        clock.advance(600)
    report = look_at(output, clock)
    silence = page_of(report, clock, dead_after=1000).figure("Silence of jobs")
    assert "The 20 highest of 23 are shown" in silence.note
    assert "dead after 16 min 40 s" in silence.note
    assert "The dashed line is at 16 min 40 s." in silence.note
    values = list(silence.values().values())
    assert values == sorted(values, key=lambda value: -(value or 0))
    assert len(values) == 20
    assert values[0] == pytest.approx(23 * 600, abs=1)


# -- other targets -------------------------------------------------------------------------------------


@pytest.fixture
def reports(clock: ManualClock, tmp_path: Path) -> list[Report]:
    """Looks at a namespace, leases and a source, each with something that is old."""
    store = MemoryStore(clock=clock)
    names = Namespace(ServiceTable(clock=clock), store, "names", clock=clock)
    names.create()
    names.write("d/a", b"1")
    names.delete("d", recursive=True)
    bucket = Bucket(clock=clock)
    bucket.put_at("late", b"12345", clock.epoch())
    sources = state_table(clock)
    settings = IngestSettings(source="s", grace=60)
    StateTable(sources, "s").describe(
        SourceMetadata(url="memory://in", format="json", settings=settings)
    )
    engine = Engine(
        store=Bucket(clock=clock), table=sources, settings=settings, clock=clock, checkpoint=Checkpoint()
    )
    engine.batch()
    clock.advance(2 * HOUR)
    with closing(open_table(f"sqlite://{tmp_path}/leases.db", LEASE_SCHEMA, clock=clock)) as leases:
        leases.create()
        for key, age, timeout in (("k", 500, 20_000), ("held", 5, 20_000), ("done", 900, 0)):
            ttl = int(clock.epoch()) - age + 3600
            record = LeaseRecord(path=key, etag="*", generation=1, timeout=timeout, ttl=ttl, owner="w")
            leases.put(record.to_item())
        return [
            look(names, clock=clock),
            look(leases, clock=clock),
            look(sources, open_input=lambda _url: bucket, clock=clock),
        ]


def test_ages_and_lag(reports: list[Report], clock: ManualClock) -> None:
    """Ages of things left in a namespace, of leases, and of waiting files."""
    text = status_page(reports, {}, settings=LookSettings(), now=clock.epoch())
    page = StatusPage(text)
    assert page.figure("Ages").values()["trash"] == pytest.approx(2 * HOUR, abs=2)
    assert page.figure("Leases by state").values() == {"held": 1, "overdue": 1, "released": 1}
    assert page.figure("Age of overdue leases").values() == {"k": pytest.approx(500, abs=1)}
    assert page.figure("Ingest lag").values() == {"s": pytest.approx(2 * HOUR, abs=2)}
    assert page.figure("Waiting files").values() == {"s": 1}
    assert page.tags.count("line") > 0  # the limit of the lag
    for report in reports:
        for finding in report.findings:
            assert finding.command in page.text
            assert FINDING_KINDS[finding.kind].meaning in page.text


# -- texts ---------------------------------------------------------------------------------------------


def _renamed(reports: Sequence[Report], name: str) -> Iterator[Report]:
    """Yield the reports with a name in every text that comes from a store, a table or the user."""
    for report in reports:
        finding = StatusFinding(kind="damaged-record", count=1, text=name, command=f"commitlog x {name}")
        found = report.inspection
        if report.kind == "leases":
            overdue = tuple(evolve(h, record=evolve(h.record, path=name)) for h in found.overdue)  # type: ignore[union-attr]
            found = evolve(found, overdue=overdue)  # type: ignore[type-var]
        elif report.kind == "ingest":
            sources = tuple(evolve(s, status=evolve(s.status, source=name)) for s in found.sources)  # type: ignore[union-attr]
            found = evolve(found, sources=sources)  # type: ignore[type-var]
        elif report.kind == "output":
            attempts = tuple(evolve(each, job_id=name) for each in found.attempts)  # type: ignore[union-attr]
            found = evolve(found, attempts=attempts)  # type: ignore[type-var]
        yield evolve(report, url=f"s3://bucket/{name}", inspection=found, findings=[finding])


@pytest.mark.parametrize("name", HOSTILE)
def test_names_do_not_become_elements(name: str, reports: list[Report], clock: ManualClock) -> None:
    """A page with hostile names has the elements of one with plain names, and shows the names."""
    output = open_output(MemoryStore(clock=clock), clock)
    add(output, "a", [1], [5])
    output.heartbeat(output.begin("b").attempt)
    reports = [look_at(output, clock), *reports]

    def page(name: str) -> StatusPage:
        failed = {f"s3://lost/{name}": f"there is no {name}"}
        renamed = list(_renamed(reports, name))
        text = status_page(renamed, failed, settings=LookSettings(), now=clock.epoch())
        assert text.encode().decode() == text
        assert all(char == "\n" or char.isprintable() for char in text)
        return StatusPage(text)

    plain, hostile = page("plain"), page(name)
    assert hostile.tags == plain.tags
    assert [each for each, _ in hostile.attributes] == [each for each, _ in plain.attributes]
    shown = "".join(char if char.isprintable() else repr(char)[1:-1] for char in name)
    # The names of three bars may be cut.
    assert plain.text.count("plain") - 3 <= hostile.text.count(shown) <= plain.text.count("plain")


def test_a_page_stands_alone(reports: list[Report], clock: ManualClock) -> None:
    """It has no script, loads nothing, links only to itself, and forbids requests to itself."""
    text = status_page(reports, {"s3://x": "lost"}, settings=LookSettings(), now=clock.epoch())
    page = StatusPage(text)
    assert not {"script", "img", "iframe", "object", "base", "form"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name.startswith("on") or name == "src"]
    links = [value for name, value in page.attributes if name == "href"]
    ids = [value for name, value in page.attributes if name == "id"]
    assert set(links) == {"data:,", *(f"#target-{n}" for n in range(1, 5))}
    assert {link.removeprefix("#") for link in links} - {"data:,"} <= set(ids)
    assert len(ids) == len(set(ids))
    named = [id for name, value in page.attributes if name == "aria-labelledby" for id in value.split()]
    assert set(named) <= set(ids)
    assert not re.search(r"url\(|@import|https?:", text)
    assert "default-src 'none'" in text
    assert page.tags.count("table") == len(page.figures)
