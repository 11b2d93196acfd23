"""A look finds each state that needs attention, gives the command for it, and changes nothing."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
import pytest
from attrs import evolve
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from commitlog.cli import main
from commitlog.cli.status_text import report_rows
from commitlog.commit.conditional import ConditionalStore
from commitlog.commit.record import LEASE_SCHEMA, LeaseRecord
from commitlog.errors import ConfigurationError, FormatTooNew, InputUnreadable, NotFound
from commitlog.ingest import (
    INGEST_SCHEMA,
    IngestSettings,
    Pinned,
    Slice,
    SourceMetadata,
    StateTable,
)
from commitlog.namespace import NAMESPACE_SCHEMA, DirectoryCommitter, Namespace
from commitlog.oplog import OperationLog
from commitlog.outputs import Mode, Output, OutputInspection
from commitlog.outputs.ready_jobs import ReadyJob
from commitlog.status import (
    FINDING_KINDS,
    LookSettings,
    Report,
    SourcesInspection,
    StatusFinding,
    look,
    metrics_text,
)
from commitlog.stores.api import InFlight, ObjectData, ObjectStore, Observation, Page, StagedInfo
from commitlog.stores.local.store import LocalStore
from commitlog.stores.memory import MemoryStore
from commitlog.tables.api import Key, Table
from commitlog.tables.open import open_table
from commitlog.testing import ManualClock
from commitlog.urls import parse_store_url
from support.ingest import Bucket, Checkpoint, Engine, state_table
from support.namespace import QUICK, InterceptedTable, ServiceTable
from support.outputs import Death, HookedStore, Once, add_job, open_output, stage_some

DAY = 86_400.0


def refuse(name: str, path: str, _mutation: Callable[[], Any]) -> Any:
    """Refuse a mutation, as a hook."""
    raise AssertionError(f"a look sent {name} {path}")


def reading(store: ObjectStore) -> HookedStore:
    """Return the store without its mutations."""
    return HookedStore(store, refuse)


class ReadingTable(InterceptedTable):
    """A table without its mutations."""

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self.step = self._perform

    def _perform(self, what: str, perform: Callable[[], object]) -> object:
        assert what in ("get", "query", "scan"), f"a look sent {what}"
        return perform()


def kinds(report: Report) -> dict[str, StatusFinding]:
    """Return the findings by kind, and check that the command of each exists."""
    for finding in report.findings:
        assert report.kind in FINDING_KINDS[finding.kind].targets
        check_command(finding.command)
    found = {finding.kind: finding for finding in report.findings}
    assert len(found) == len(report.findings)
    return found


def check_command(line: str) -> None:
    """Check that a command line parses."""
    program, *words = shlex.split(line)
    assert program == "commitlog"
    command: click.Command = main
    while isinstance(command, click.Group):
        found = command.get_command(click.Context(command), words.pop(0))
        assert found is not None, line
        command = found
    command.make_context("commitlog", words)


# -- outputs -------------------------------------------------------------------------------------------


@pytest.fixture(params=["memory", "local"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ObjectStore]:
    """An empty store, whose clock the tests advance."""
    clock = request.getfixturevalue("clock")
    if request.param == "memory":
        yield MemoryStore(clock=clock)
        return
    opened = LocalStore(parse_store_url(f"file://{tmp_path}/lake"), clock=clock)
    yield opened
    opened.close()


@pytest.fixture
def memory(clock: ManualClock) -> MemoryStore:
    """An empty store that dates its objects by the clock; a directory dates them by the machine's."""
    return MemoryStore(clock=clock)


@pytest.fixture
def clock() -> ManualClock:
    """A clock that the tests advance."""
    return ManualClock()


def look_at(store: ObjectStore, clock: ManualClock, **settings: Any) -> Report:
    """Look at the output, in a store that refuses mutations."""
    return look(open_output(reading(store), clock), settings=LookSettings(**settings), clock=clock)


def inspected(report: Report) -> OutputInspection:
    """Return the inspection of an output."""
    assert isinstance(report.inspection, OutputInspection)
    return report.inspection


def add_hidden(output: Output, job_id: str, body: bytes, mode: Mode = "append") -> None:
    """Commit a job with one file, in an output that only its log shows."""
    job = output.begin(job_id, mode=mode, visibility="logged")
    output.commit(job, [output.stage(job, job.file_name(0), body)])


def die_unpublished(store: ObjectStore, clock: ManualClock, job_id: str) -> None:
    """Commit a job whose driver dies before it publishes anything."""
    output = open_output(store, clock)
    job = output.begin(job_id)
    files = stage_some(output, job)
    with suppress(Death):  # after the pending entry and the record
        open_output(HookedStore(store, Once(3, "before")), clock).commit(job, files)


def test_an_output_in_order(store: ObjectStore, clock: ManualClock) -> None:
    """The report has the version, its age, and the content; nothing needs attention."""
    add_job(open_output(store, clock), "a", 0, 1)
    clock.advance(100)
    report = look_at(store, clock)
    found = inspected(report)
    assert report.findings == ()
    assert (found.version, found.visible, found.files, found.format) == (1, 1, 2, 1)
    assert found.committed == clock.epoch() - 100
    assert found.bytes == sum(len(f"a {task}") for task in (0, 1))
    assert found.complete


def test_no_output(store: ObjectStore, clock: ManualClock) -> None:
    """A directory without a trace of an output is an error, not a report."""
    with pytest.raises(NotFound):
        look_at(store, clock)


def test_jobs_in_progress(memory: MemoryStore, clock: ManualClock) -> None:
    """A job is alive while it begins files or sends heartbeats; after a day of silence it is dead."""
    output = open_output(memory, clock)
    dead, alive = output.begin("dead"), output.begin("alive")
    stage_some(output, dead, 3)
    stage_some(output, alive)
    assert look_at(memory, clock).findings == ()
    clock.advance(2 * DAY)
    output.heartbeat(alive.attempt)
    report = look_at(memory, clock)
    found = kinds(report)
    assert {each.attempt for each in inspected(report).attempts} == {dead.attempt, alive.attempt}
    assert found.keys() == {"dead-job", "abandoned-uploads"}
    assert (found["dead-job"].count, found["abandoned-uploads"].count) == (1, 3)
    assert dead.attempt in found["dead-job"].text
    assert found["dead-job"].age == pytest.approx(2 * DAY, abs=2)
    output.recover(older_than=DAY)
    assert look_at(memory, clock).findings == ()


def test_a_committed_job_that_is_not_published(store: ObjectStore, clock: ManualClock) -> None:
    """Its uploads are files of the output, so they are not abandoned. Recovery ends the finding."""
    add_job(open_output(store, clock), "a", 0)
    die_unpublished(store, clock, "daily")
    clock.advance(60)
    assert look_at(store, clock).findings == ()
    clock.advance(2 * DAY)
    report = look_at(store, clock)
    found = kinds(report)
    assert found.keys() == {"unpublished-job"}
    assert "'daily'" in found["unpublished-job"].text
    assert (inspected(report).version, inspected(report).visible) == (2, 1)
    [job] = inspected(report).unpublished
    assert (job.job_id, job.version) == ("daily", 2)
    assert "output recover" in found["unpublished-job"].command
    open_output(store, clock).recover(older_than=DAY)
    assert look_at(store, clock).findings == ()


def test_unpublished_before_the_checkpoint(store: ObjectStore, clock: ManualClock) -> None:
    """A job is found although a later checkpoint has its record."""
    die_unpublished(store, clock, "first")
    output = open_output(store, clock)
    state = output.state()
    output._log.checkpoints.save(state)
    clock.advance(1000)
    report = look_at(store, clock)
    assert inspected(report).checkpoint == 1
    assert kinds(report)["unpublished-job"].count == 1


def test_garbage_of_an_output(memory: MemoryStore, clock: ManualClock) -> None:
    """Replaced files count once they are older than gc allows; a full look has their size."""
    output = open_output(memory, clock)
    add_hidden(output, "a", b"12345")
    add_hidden(output, "b", b"1234567", "overwrite")
    stage_some(output, output.begin("dead", visibility="logged"), 1)
    clock.advance(8 * DAY)
    add_hidden(output, "c", b"1", "overwrite")
    assert inspected(look_at(memory, clock)).replaced == 2
    found = kinds(look_at(memory, clock))
    assert (found["garbage"].count, found["garbage"].bytes) == (1, None)
    full = kinds(look_at(memory, clock, full=True))
    dead = sum(len(memory.get(info.path).data) for info in memory.list("out/_commitlog/data/p=0/"))
    assert dead > 0
    assert (full["garbage"].count, full["garbage"].bytes) == (2, 5 + dead)
    assert full["garbage"].count == output.gc(older_than=7 * DAY, dry_run=True).removed
    output.gc(older_than=7 * DAY)
    assert look_at(memory, clock, full=True).findings == ()


def test_damage_of_an_output(store: ObjectStore, clock: ManualClock) -> None:
    """A record that cannot be read is a finding; the versions before it are shown."""
    output = open_output(store, clock)
    add_job(output, "a", 0)
    add_job(output, "b", 1)
    store.put("out/_commitlog/00000000000000000002.json", b"not a record")
    report = look_at(store, clock)
    assert kinds(report)["damaged-record"].count >= 1
    assert inspected(report).version == 1


def test_contradiction_of_success_and_log(store: ObjectStore, clock: ManualClock) -> None:
    """A lost record, which _SUCCESS names, is a finding."""
    output = open_output(store, clock)
    add_job(output, "a", 0)
    add_job(output, "b", 1)
    store.delete("out/_commitlog/00000000000000000002.json")
    found = kinds(look_at(store, clock))
    assert "contradict" in found["damaged-record"].text


def test_a_foreign_file_among_the_pending_entries(store: ObjectStore, clock: ManualClock) -> None:
    """It is a finding, as for recover."""
    add_job(open_output(store, clock), "a", 0)
    store.put("out/_commitlog/pending/x.json", b"{}")
    assert "'out/_commitlog/pending/x.json'" in kinds(look_at(store, clock))["damaged-record"].text


def test_a_newer_format_of_an_output(store: ObjectStore, clock: ManualClock) -> None:
    """The look fails, because it cannot know what a newer release means."""
    add_job(open_output(store, clock), "a", 0)
    path = "out/_commitlog/00000000000000000002.json"
    store.put(path, json.dumps({"format": 99, "kind": "commit", "checksum": ""}).encode())
    with pytest.raises(FormatTooNew):
        look_at(store, clock)


def test_the_cost_is_bounded(clock: ManualClock) -> None:
    """A long log is read up to the limit, and the report says so."""
    store = MemoryStore(clock=clock)
    output = open_output(store, clock)
    for number in range(8):
        add_job(output, f"job-{number}", 0)
    cut = inspected(look_at(store, clock, limit=5))
    assert (cut.records, cut.complete) == (5, False)
    whole = inspected(look_at(store, clock, limit=5, full=True))
    assert (whole.records, whole.complete) == (8, True)


def test_more_ready_entries_than_are_read_are_reported(clock: ManualClock) -> None:
    """The attempts in the others are not known without --full, and the report says so."""
    store = MemoryStore(clock=clock)
    output = open_output(store, clock)
    for number in range(101):
        job = output.begin(f"job-{number}")
        output._ready.leave([ReadyJob(job=job, files=())], after=job.base)
    report = look_at(store, clock)
    cut = inspected(report)
    assert (len(cut.attempts), cut.complete) == (100, False)
    assert "note" in dict(report_rows(report))
    report = look_at(store, clock, full=True)
    whole = inspected(report)
    assert (len(whole.attempts), whole.complete) == (101, True)
    assert "note" not in dict(report_rows(report))


class CountingReads(HookedStore):
    """A store without its mutations that counts reads: a page of a listing is one."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner, refuse)
        self.reads = 0

    def begin_head(self, path: str) -> InFlight[Observation]:
        self.reads += 1
        return super().begin_head(path)

    def get(self, path: str, **options: Any) -> ObjectData:
        self.reads += 1
        return super().get(path, **options)

    def list_page(self, prefix: str = "", **options: Any) -> Page:
        self.reads += 1
        return super().list_page(prefix, **options)

    def list_staged(self, prefix: str = "") -> Iterator[StagedInfo]:
        self.reads += 1
        return super().list_staged(prefix)


def test_the_cost_does_not_grow_with_the_log(clock: ManualClock) -> None:
    """Checkpoints bound the number of records that are read."""
    store = MemoryStore(clock=clock)
    output = open_output(store, clock)
    counts = []
    for number in range(1, 50):
        add_job(output, f"job-{number}", 0)
        if number in (29, 49):
            counted = CountingReads(store)
            assert look(open_output(counted, clock), clock=clock).findings == ()
            counts.append(counted.reads)
    assert counts[0] == counts[1] <= 20


# -- namespaces ----------------------------------------------------------------------------------------


class Site:
    """A namespace with a log, in memory."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.store = MemoryStore(clock=clock)
        self.table = ServiceTable(clock=clock)
        self.lake = self.opened(self.table, self.store)
        self.lake.create()

    def opened(self, table: Table, store: ObjectStore) -> Namespace:
        """Return another client."""
        log = OperationLog(
            ConditionalStore(store, clock=self.clock, backoff=QUICK), "log", clock=self.clock
        )
        return Namespace(table, store, "lake", clock=self.clock, backoff=QUICK, log=log)

    def look(self, **settings: Any) -> Report:
        """Look at the namespace through a table and a store that refuse mutations."""
        target = self.opened(ReadingTable(self.table), reading(self.store))
        return look(target, settings=LookSettings(**settings), clock=self.clock)

    def found(self, **settings: Any) -> dict[str, StatusFinding]:
        """Return the findings of a look by kind."""
        return kinds(self.look(**settings))


@pytest.fixture
def site(clock: ManualClock) -> Site:
    """An empty namespace."""
    return Site(clock)


def test_a_namespace_in_order(site: Site) -> None:
    """Files, and changes that were decided, need no attention."""
    site.lake.write("a/b", b"rows")
    site.lake.delete("a/b")
    report = site.look()
    assert report.findings == ()
    assert report.url == "commitlog://lake"
    assert report.inspection.format == site.lake.describe().format


def test_trash_and_garbage(site: Site) -> None:
    """What gc would have removed a week ago is a finding; gc ends it."""
    site.lake.write("a/b", b"12345")
    site.lake.write("a/b", b"1", overwrite=True)
    site.lake.delete("a", recursive=True)
    assert site.found() == {}
    site.clock.advance(8 * DAY)
    found = site.found()
    assert found.keys() == {"trash", "garbage"}
    assert (found["garbage"].count, found["garbage"].bytes, found["trash"].count) == (1, 5, 1)
    assert found["garbage"].command == "commitlog namespace gc lake --metadata=memory://"
    site.lake.maintenance.empty_trash()
    site.clock.advance(2 * 3600)
    site.lake.maintenance.gc()
    assert site.found() == {}


def test_a_dead_job_and_its_uploads(site: Site) -> None:
    """A job that was begun a week ago is dead, and so are uploads of that age."""
    DirectoryCommitter(site.lake, "out", clock=site.clock).begin("daily")
    writer = site.lake.open_writer("file")
    writer.write(b"x" * 9_000_000)
    assert site.found() == {}
    site.clock.advance(8 * DAY)
    found = site.found()
    assert found.keys() == {"dead-job", "abandoned-uploads"}
    assert found["dead-job"].age == pytest.approx(8 * DAY, abs=2)


def test_log_drift(site: Site) -> None:
    """A change that is still pending after an hour is a finding."""
    log = OperationLog(ConditionalStore(site.store), "log", clock=site.clock)
    log.begin({"what": "change"})
    assert site.found() == {}
    site.clock.advance(7200)
    assert site.found()["log-drift"].count == 1


def test_a_long_log(site: Site) -> None:
    """Old decisions beyond the limit are a finding; a compaction ends it."""
    for number in range(5):
        site.lake.write(f"f{number}", b"1")
    site.clock.advance(2 * DAY)
    assert site.found(max_log=100) == {}
    assert site.found(max_log=3)["long-log"].count >= 5
    site.lake.maintenance.compact_log()
    assert site.found(max_log=3) == {}


def test_a_fenced_log(site: Site) -> None:
    """The log of a namespace that was restored into another table."""
    site.lake.write("f", b"1")
    log = site.lake._context.changes.log
    assert log is not None
    log.epochs.claim(id="0" * 32, table="memory://other", after=log.epochs.newest())
    assert "memory://other" in site.found()["fenced"].text


def test_a_missing_store(site: Site) -> None:
    """A store that lacks the identity object is reported, and none of its uploads are."""
    site.lake.write("f", b"1")
    identity = site.lake.describe().identity
    assert identity is not None
    site.store.delete(identity)
    assert site.found().keys() == {"missing-store"}


def test_damage_of_a_namespace(site: Site) -> None:
    """A record of the garbage that cannot be read is a finding."""
    site.table.put({"place": "lake/x/0", "name": "000000000000001/x", "change_id": "w", "body": b"?"})
    assert site.found()["damaged-record"].count == 1


def test_no_namespace(clock: ManualClock) -> None:
    """A namespace that does not exist is an error."""
    namespace = Namespace(ServiceTable(clock=clock), MemoryStore(clock=clock), "other", clock=clock)
    with pytest.raises(NotFound):
        look(namespace)


# -- tables of leases ----------------------------------------------------------------------------------


@pytest.fixture
def leases(tmp_path: Path, clock: ManualClock) -> Iterator[Table]:
    """An empty table of leases in an SQLite file."""
    table = open_table(f"sqlite://{tmp_path}/leases.db", LEASE_SCHEMA, clock=clock)
    table.create()
    yield table
    table.close()


def lease(clock: ManualClock, path: str, *, age: float, timeout: int = 20_000) -> LeaseRecord:
    """Return a lease that was written `age` seconds ago by a writer with the default settings."""
    ttl = int(clock.epoch() - age) + 3600
    return LeaseRecord(path=path, etag="*", generation=1, timeout=timeout, ttl=ttl, owner="w")


def test_leases(leases: Table, clock: ManualClock) -> None:
    """Only a lease that could have been reclaimed is a finding."""
    for record in (
        lease(clock, "held", age=5),
        lease(clock, "late", age=30),
        lease(clock, "a b", age=90),
        lease(clock, "released", age=90, timeout=0),
    ):
        leases.put(record.to_item())
    report = look(ReadingTable(leases), clock=clock)
    found = kinds(report)
    assert report.kind == "leases"
    assert found.keys() == {"overdue-lease"}
    assert found["overdue-lease"].age == pytest.approx(90)
    assert found["overdue-lease"].command == f"commitlog lease break {leases.url} 'a b'"
    text = metrics_text([report])
    assert f'commitlog_status_leases{{url="{leases.url}",state="overdue"}} 2' in text
    assert f'commitlog_status_leases{{url="{leases.url}",state="held"}} 1' in text


def test_a_damaged_lease(leases: Table, clock: ManualClock) -> None:
    """The other leases are still shown."""
    leases.put({"path": "x", "etag": "*", "generation": "one"})
    leases.put(lease(clock, "a", age=5).to_item())
    found = kinds(look(ReadingTable(leases), clock=clock))
    assert found["damaged-record"].count == 1


def test_a_table_of_namespaces_is_refused(clock: ManualClock) -> None:
    """The message says what to look at instead."""
    with pytest.raises(ConfigurationError, match="commitlog://NAME"):
        look(ServiceTable(clock=clock))
    assert NAMESPACE_SCHEMA.key_names not in (LEASE_SCHEMA.key_names, INGEST_SCHEMA.key_names)


# -- sources -------------------------------------------------------------------------------------------


class Source:
    """A source in memory, and its query."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.store = Bucket(clock=clock)
        self.table = state_table(clock)
        self.settings = IngestSettings(source="s", grace=60, unreadable="quarantine")
        self.bad = ""
        self.engine = Engine(
            store=self.store,
            table=self.table,
            settings=self.settings,
            clock=clock,
            checkpoint=Checkpoint(),
            decode=self.decode,
        )
        StateTable(self.table, "s").describe(
            SourceMetadata(url="memory://in", format="json", settings=self.settings)
        )

    def decode(self, pinned: Pinned, slice: Slice) -> Iterator[list[tuple[str, str, int]]]:
        """Read a file whole; refuse the bad one."""
        if slice.file.path == self.bad:
            raise InputUnreadable("no JSON", offset=0)
        yield [(slice.file.path, slice.file.etag, 0)]

    def look(self, **settings: Any) -> Report:
        """Look at the table of the source."""
        return look(
            ReadingTable(self.table),
            settings=LookSettings(**settings),
            open_input=lambda _url: reading(self.store),
            clock=self.clock,
        )


def test_lag_and_quarantine(clock: ManualClock) -> None:
    """A file that waits for too long, and one that could not be read, are findings."""
    source = Source(clock)
    source.bad = "bad"
    source.store.put_at("bad", b"123", clock.epoch())
    source.engine.batch()
    found = kinds(source.look())
    assert found.keys() == {"quarantined"}
    assert "1 unreadable" in found["quarantined"].text
    source.store.put_at("late", b"12345", clock.epoch())
    clock.advance(1800)
    assert "ingest-lag" not in kinds(source.look())
    clock.advance(7200)
    late = kinds(source.look())["ingest-lag"]
    assert (late.count, late.bytes, late.age) == (1, 5, pytest.approx(9000, abs=1))
    assert late.command == "commitlog ingest files s --state=memory:// --waiting"
    source.engine.batch()
    assert "ingest-lag" not in kinds(source.look())
    source.store.put_at("ahead", b"1", clock.epoch() + 100)
    inspection = source.look().inspection
    assert isinstance(inspection, SourcesInspection)
    assert [each.lag for each in inspection.sources] == [0]


def test_the_listing_of_the_input_is_bounded(clock: ManualClock) -> None:
    """Of a long input only the beginning is listed, and the report says so."""
    source = Source(clock)
    source.engine.batch()
    for number in range(9):
        source.store.put_at(f"{number}", b"1", clock.epoch())
    clock.advance(7200)
    cut = source.look(limit=4)
    assert kinds(cut)["ingest-lag"].count == 4
    assert not cut.inspection.complete
    full = source.look(limit=4, full=True)
    assert kinds(full)["ingest-lag"].count == 9
    assert full.inspection.complete


def test_an_input_that_cannot_be_listed(clock: ManualClock) -> None:
    """The status of the source is still shown."""
    source = Source(clock)
    source.store.put_at("a", b"1", clock.epoch())
    source.engine.batch()

    def fail(_url: str) -> ObjectStore:
        raise NotFound("no such bucket")

    report = look(ReadingTable(source.table), open_input=fail, clock=clock)
    assert "no such bucket" in kinds(report)["unreachable-input"].text


def test_an_input_that_is_not_mounted_has_no_lag(clock: ManualClock, tmp_path: Path) -> None:
    """Its listing would be empty, and the source would seem to have read everything."""
    source = Source(clock)
    source.engine.batch()

    def open_input(_url: str) -> ObjectStore:
        return LocalStore(parse_store_url(f"file://{tmp_path}/lake"), clock=clock)

    report = look(ReadingTable(source.table), open_input=open_input, clock=clock)
    assert "mount it" in kinds(report)["unreachable-input"].text
    assert isinstance(report.inspection, SourcesInspection)
    assert [each.lag for each in report.inspection.sources] == [None]


def test_damage_of_a_source(clock: ManualClock) -> None:
    """A source whose state cannot be read does not hide the others."""
    source = Source(clock)
    source.store.put_at("a", b"1", clock.epoch())
    source.engine.batch()
    item = source.table.get(Key("s", "list"))
    assert item is not None
    source.table.put({**item, "source": "t", "body": b"?"})
    report = source.look()
    assert kinds(report)["damaged-record"].count == 1
    assert 'source="s"' in metrics_text([report])


# -- metrics -------------------------------------------------------------------------------------------


def test_metrics_can_be_read_by_prometheus(site: Site, leases: Table, clock: ManualClock) -> None:
    """Prometheus's own parser accepts reports of all kinds together, and finds their values."""
    store = MemoryStore(clock=clock)
    output = open_output(store, clock)
    add_job(output, "a", 0, 1)
    stage_some(output, output.begin("dead"))
    source = Source(clock)
    source.store.put_at("a", b"1", clock.epoch())
    source.engine.batch()
    clock.advance(2 * DAY)
    reports = [
        evolve(look_at(store, clock), url='s3://bucket/"out"'),
        site.look(),
        look(leases, clock=clock),
        source.look(),
    ]
    text = metrics_text(reports, failed=["s3://lost"])
    families = {
        family.name: family
        for family in text_string_to_metric_families(text)  # type: ignore[no-untyped-call]
    }

    def values(name: str, **labels: str) -> list[float]:
        samples = families[f"commitlog_status_{name}"].samples
        return [each.value for each in samples if labels.items() <= each.labels.items()]

    assert sorted(values("up")) == [0, 1, 1, 1, 1]
    assert values("up", url="s3://lost") == [0]
    out = {"url": 's3://bucket/"out"'}
    assert values("findings", finding="dead-job", **out) == [1]
    assert values("findings", finding="quarantined", **out) == []
    assert values("findings", finding="garbage", **out) == [0]
    assert values("output_files", **out) == [2]
    assert values("output_last_commit_age_seconds", **out) == [pytest.approx(2 * DAY, abs=2)]
    assert values("output_uploads", **out) == [2]
    assert values("namespace_pending_changes", url="commitlog://lake") == [0]
    assert values("leases", state="overdue") == [0]
    assert values("ingest_delivered_files", source="s") == [1]
    assert values("ingest_lag_seconds", source="s") == [0]
