"""Stored formats: the present code writes them unchanged, and reads and continues those of all versions.

The samples are in ``tests/fixtures/formats``. Clients that died left each of them.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from commitlog._util.background import Foreground
from commitlog.commit import ConditionalStore, ProbeReport
from commitlog.commit.probe_report import Kind
from commitlog.commit.record import LEASE_SCHEMA, LeaseRecord
from commitlog.errors import (
    AlreadyExists,
    FormatTooNew,
    JobAlreadyCommitted,
    NotFound,
    PreconditionFailed,
    StaleToken,
)
from commitlog.iceberg.records import CatalogRecords
from commitlog.ingest import (
    INGEST_SCHEMA,
    Cleaned,
    Cleaner,
    IngestAdmin,
    SourceMetadata,
    StateTable,
)
from commitlog.ingest.offset import Offset
from commitlog.ingest.source_state import SourceState
from commitlog.lance.catalog import LanceCatalog
from commitlog.lance.versions import TableVersions
from commitlog.locks import LOCK_SCHEMA, Election, FencedStore, Holder, Lock, Semaphore
from commitlog.namespace import DirectoryCommitter, Namespace
from commitlog.namespace.model.keys import NAMESPACES, Keys
from commitlog.namespace.partitioned.dataset import SerialEngine
from commitlog.oplog import Decision, OperationLog
from commitlog.oplog.codec import Document, encode
from commitlog.outputs import AbortRecord, Batch, Output, Position
from commitlog.outputs.manifest import Manifests
from commitlog.outputs.records import Manifest
from commitlog.stores.api import Dialect, Staged, Versioning
from commitlog.stores.local.store import LocalStore
from commitlog.stores.memory import MemoryStore
from commitlog.tables.api import Key, Table, TableSchema
from commitlog.tables.dynamodb.lifecycle import Lifecycle
from commitlog.tables.memory import MemoryTable
from commitlog.tables.sqlite import SqliteTable
from commitlog.testing import ManualClock
from commitlog.urls import parse_table_url
from fixtures.formats.make import (
    BUCKET,
    SAMPLES,
    FakeDynamo,
    Unenforced,
    ingest_settings,
    lock_settings,
    namespace_world,
    prune,
)
from support.formats import FORMATS, VERSION, Ids, Sample, explained, normalised, samples
from support.ingest import Bucket, Checkpoint, Engine
from support.namespace import QUICK, Auditor, ServiceTable
from support.outputs import visible
from support.project import ROOT
from support.restore import World


def each(name: str) -> Any:
    """Run a test for each version that has a sample."""
    return pytest.mark.parametrize(
        "sample", [Sample.read(v, name) for v in samples(name)], ids=samples(name)
    )


# -- the present format --------------------------------------------------------------------------------


def test_the_present_version_has_samples() -> None:
    """The samples are those of the version in setup.cfg, and there is one for each function."""
    declared = re.search(r"^version = (\d+\.\d+)", (ROOT / "setup.cfg").read_text(), re.M)
    assert declared is not None
    assert declared[1] == VERSION, "raise VERSION in tests/support/formats.py, and write new samples"
    assert {file.stem for file in (FORMATS / VERSION).glob("*.json")} == SAMPLES.keys()


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_the_format_is_unchanged(name: str) -> None:
    """The present code writes, record by record, the sample of its version."""
    written = normalised(SAMPLES[name]())
    assert written == normalised(Sample.read(VERSION, name)), explained(name)


def test_a_change_of_a_record_is_found() -> None:
    """A comparison of samples ignores the bytes of compressed data, and nothing else."""
    sample = Sample.read(VERSION, "listed-output")
    [*_, packed] = [each for each in sample.objects if "content" in each]
    before = normalised(sample)
    changed = normalised(evolve(sample, objects=[evolve_object(packed, content="x")]))
    assert changed["objects"] != [each for each in before["objects"] if each["path"] == packed["path"]]
    text = next(each for each in sample.objects if each["path"].endswith("01.json"))
    one = normalised(evolve(sample, objects=[text]))
    other = normalised(evolve(sample, objects=[evolve_object(text, text=text["text"] + " ")]))
    assert one != other


def evolve_object(shown: dict[str, Any], **changes: str) -> dict[str, Any]:
    """Return an object of a sample with changes."""
    return {**shown, **changes}


# -- outputs -------------------------------------------------------------------------------------------


def opened_output(sample: Sample) -> tuple[MemoryStore, ManualClock, Output]:
    """Return the output of a sample, as a new driver opens it."""
    clock, ids = sample.clock, Ids("later")
    store = sample.store(clock, ids)
    conditional = ConditionalStore(store, clock=clock, new_id=ids, backoff=QUICK)
    return store, clock, Output(conditional, "out", clock=clock, new_id=ids, backoff=QUICK)


def rows_of(sample: Sample, *job_ids: str) -> dict[str, bytes]:
    """Return the content of the files of some jobs, by path below the output."""
    return {
        path.removeprefix("out/"): row.encode()
        for path, row in sample.values["rows"].items()
        if row.partition(",")[0] in job_ids
    }


#: The jobs of the sample whose files are part of the last version, and those that were replaced.
_PRESENT = ("many-named", "over-many-foreign", "ten", "committed")


@each("listed-output")
def test_a_listed_output_is_recovered(sample: Sample) -> None:
    """The committed job is published, the others are aborted, and no replaced file is left."""
    store, clock, output = opened_output(sample)
    assert not rows_of(sample, "committed").keys() & visible(store).keys()
    clock.advance(100)
    report = output.recover(older_than=50)
    assert report.completed == (11,)
    assert sorted(map(str, report.aborted.values())) == ["None", "prepared"]
    found = visible(store)
    assert found.items() >= rows_of(sample, "committed", "many-named", "ten").items()
    assert not found.keys() & rows_of(sample, "prepared", "staging", "one", "named").keys()
    assert not list(store.list_staged())
    assert {file.path: store.get(output.locate(file)).data for file in output.snapshot().files} == found


@each("listed-output")
def test_a_listed_output_goes_on(sample: Sample) -> None:
    """Job ids and batches of the log count, and a new job follows the last record."""
    store, _, output = opened_output(sample)
    for job_id in ("one", "committed", "many", "clicks/7", "clicks/3"):
        with pytest.raises(JobAlreadyCommitted):
            output.begin(job_id)
    with pytest.raises(JobAlreadyCommitted):
        output.begin(batch=Batch("clicks", 7))
    job = output.begin(batch=Batch("clicks", 8))
    name = "p=1/" + job.file_name(0, suffix=".csv")
    record = output.commit(job, [output.stage(job, name, b"new", partition={"p": "1"})])
    assert record.version == 12
    assert visible(store)[name] == b"new"
    assert visible(store).items() >= rows_of(sample, "committed").items()


@each("listed-output")
def test_old_versions_of_an_output_are_read(sample: Sample) -> None:
    """All records, manifests and statistics are read, with the checkpoint and without it."""
    store, _, output = opened_output(sample)
    output.recover(older_than=1e9)
    modes = [record.mode for record in output.log()]
    assert modes[:8] == [
        *("append", "append", "overwrite-files", "overwrite-partitions"),
        *("append", "overwrite-partitions", "overwrite-partitions", "rewrite"),
    ]
    snapshot = output.snapshot()
    assert snapshot.jobs[:2] == ("one", "named")
    assert snapshot.schema == '{"type":"struct","fields":[]}'
    assert {stats for file in snapshot.files for stats in file.stats.values()} >= {("a", "ü", None)}
    foreign = [record for record in output.log() if record.replaces_foreign]
    assert [len(record.foreign) for record in foreign] == [1, 0]
    assert [manifest.files for manifest in foreign[1].foreign_manifests] == [3]
    for info in list(store.list("out/_commitlog/checkpoints/")):
        store.delete(info.path)
    assert opened_again(store, output).snapshot() == snapshot


def opened_again(store: MemoryStore, output: Output) -> Output:
    """Return an output that has read nothing yet."""
    return Output(ConditionalStore(store, backoff=QUICK), output.path, backoff=QUICK)


@each("listed-output")
def test_a_follower_of_an_output_goes_on(sample: Sample) -> None:
    """From its stored position it gets the records after it, and none twice."""
    _, _, output = opened_output(sample)
    tail = output.tail(on_rewrite="added")
    position = Position.from_json(sample.values["position"])
    assert position.to_json() == sample.values["position"]
    assert (position.version, position.files) == (0, 1), "one of two files of record 1 was taken"
    added = list(tail.added(position, tail.advance(position)))
    assert list(dict.fromkeys(part.version for part in added)) == [1, 2, 3, 4, 5, 6, 7, 10, 11]
    assert len(added[0].files) == 1


@each("logged-output")
def test_a_logged_output_is_recovered(sample: Sample) -> None:
    """The hidden file of the dead attempt is removed, and the version before stays readable."""
    store, clock, output = opened_output(sample)
    assert output.snapshot().files
    clock.advance(100)
    assert len(output.snapshot(9).files) == 8, "version 11 has replaced them, but they are kept"
    with pytest.raises(NotFound):
        output.snapshot(1)  # it has expired
    assert output.gc(older_than=50).expired == 11
    *_, aborted = output.records()
    assert isinstance(aborted, AbortRecord)
    assert not [info.path for info in store.list() if "p=4" in info.path]
    job = output.begin("next")
    file = output.stage(job, "p=9/" + job.file_name(0), b"9", partition={"p": "9"})
    assert output.commit(job, [file]).visibility == "logged"


@each("shared-output")
def test_an_output_with_shared_records_is_recovered(sample: Sample) -> None:
    """The jobs of the last record are published from the uploads in it, and each is one job."""
    store, _, output = opened_output(sample)
    formats = [output._log.document(version).format for version in range(1, 13)]
    assert formats == [2] * 10 + [1, 2]
    assert not rows_of(sample, "c", "d").keys() & visible(store).keys()
    pairs = [f"{name}-{number}" for number in range(9) for name in "ab"]
    assert output.snapshot(11).jobs == (*pairs, "alone", "over")
    assert output.recover(older_than=1e9).completed == (12,)
    assert not list(store.list_staged())
    remaining = visible(store)
    assert remaining.items() >= rows_of(sample, *pairs, "over", "c", "d").items()
    snapshot = output.snapshot()
    assert snapshot.jobs == (*pairs, "alone", "over", "c", "d")
    assert {file.path for file in snapshot.files} == remaining.keys()
    for job_id in snapshot.jobs:
        with pytest.raises(JobAlreadyCommitted):
            opened_again(store, output).begin(job_id)
    for info in list(store.list("out/_commitlog/checkpoints/")):
        store.delete(info.path)
    assert opened_again(store, output).snapshot() == snapshot


@each("busy-output")
def test_the_jobs_of_a_dead_driver_are_taken_along(sample: Sample) -> None:
    """Its ready entry has all that another driver needs: the next record commits its jobs."""
    store, clock, output = opened_output(sample)
    waiting = [each for each in output.inspect(expire_after=0).attempts if each.prepared]
    assert {(each.job_id, each.uploads) for each in waiting} == {("waits", 1), ("clicks/7", 1)}
    schema = '{"type":"struct","fields":[]}'
    conditional = ConditionalStore(store, clock=clock, new_id=Ids("other"), backoff=QUICK)
    other = Output(conditional, "out", clock=clock, new_id=Ids("other"), share_records=True)
    other._ready.note_busy()
    job = other.begin("after", schema=schema)
    other.commit(job, [other.stage(job, "p=2/" + job.file_name(0), b"9", partition={"p": "2"})])
    assert [(each.version, each.job_id) for each in output.log()] == [
        *((1, "before"), (2, "after"), (2, "waits"), (2, "clicks/7"))
    ]
    assert visible(store).items() >= rows_of(sample, "before", "waits", "clicks/7").items()
    assert not list(store.list("out/_commitlog/ready/"))
    with pytest.raises(JobAlreadyCommitted):
        output.begin(batch=Batch("clicks", 6))


# -- operation log -------------------------------------------------------------------------------------


@each("operation-log")
def test_an_operation_log_goes_on(sample: Sample) -> None:
    """Decisions are final, and the pending operation can be decided once."""
    clock, ids = sample.clock, Ids("later")
    store = sample.store(clock, ids)
    conditional = ConditionalStore(store, clock=clock, new_id=ids, backoff=QUICK)
    log = OperationLog(conditional, "log", clock=clock, new_id=ids)
    done, undone = log.history()
    assert (done.body, done.decision) == (
        {"what": "done", "to": ["ü", 1, None, 2.5, True]},
        Decision.COMMITTED,
    )
    assert (undone.body["what"], undone.decision) == ("undone", Decision.ROLLED_BACK)
    [pending] = log.pending()
    assert (pending.id, pending.time) == (sample.values["pending"], 1_800_000_002)
    assert log.decide(pending, Decision.COMMITTED) is Decision.COMMITTED
    assert log.decide(pending, Decision.ROLLED_BACK) is Decision.COMMITTED
    assert not list(log.pending())


# -- leases --------------------------------------------------------------------------------------------


def memory_table(schema: TableSchema) -> Table:
    """Return a new table in memory."""
    return MemoryTable(parse_table_url("memory://"), schema, clock=ManualClock())


def check_leases(sample: Sample, table: Table) -> None:
    """Check that the findings count, and that the lease of the dead client is waited for."""
    clock, ids = sample.clock, Ids("later")
    store = Unenforced(sample.store(clock, ids))
    client = ConditionalStore(store, table=table, mode="lease", clock=clock, new_id=ids, backoff=QUICK)
    with pytest.raises(AlreadyExists):
        client.put_if_absent("released", b"3")
    etag = client.put_if_match("released", b"3", etag=store.head("released").etag).etag
    with pytest.raises(PreconditionFailed):
        client.put_if_match("released", b"4", etag='"other"')
    assert store.head("released").etag == etag
    began = clock.monotonic()
    client.put_if_absent("held", b"2")
    assert clock.monotonic() - began >= 60, (
        "the dead client may act for 20 s, by a clock 3 times as fast"
    )
    item = table.get(Key("held", "*"))
    assert item is not None
    assert (LeaseRecord.from_item(item).generation, LeaseRecord.from_item(item).released) == (2, True)
    other = ConditionalStore(store, table=table, clock=clock, new_id=ids, backoff=QUICK)
    other.probe()
    assert other.probe_report.proves(Kind.PUT_IF_ABSENT)
    items = [item for item in table.scan() if item["etag"] == "buckets"]
    [listed] = json.loads(str(items[0]["buckets"]))["buckets"]
    assert listed["urls"] == ["s3://bucket"]


@each("leases")
def test_leases_go_on(sample: Sample) -> None:
    """A table in memory or DynamoDB with these items is used as it is."""
    check_leases(sample, sample.fill_table(memory_table(LEASE_SCHEMA)))


@each("sqlite-leases")
def test_leases_in_sqlite_go_on(sample: Sample, tmp_path: Path) -> None:
    """A file of an earlier version is used as it is."""
    file = tmp_path / "leases.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript("\n".join(sample.values["sql"]))
    url = parse_table_url(f"sqlite://{file}")
    with closing(SqliteTable(url, LEASE_SCHEMA, clock=sample.clock)) as table:
        table.check()
        assert table.describe().created == sample.time
        check_leases(sample, table)


@each("dynamodb-table")
def test_a_table_of_dynamodb_is_used(sample: Sample) -> None:
    """Its marker is recognised, and no second one is added. A marker of a later format is refused."""
    service = FakeDynamo.from_json(sample.values["dynamodb"])
    before = service.to_json()
    opened = Lifecycle(service, "leases", "dynamodb://leases", LEASE_SCHEMA, sample.clock)  # type: ignore[arg-type]
    opened.check()
    info = opened.describe()
    assert (info.format, info.created, info.tags) == (1, sample.time, {})
    assert info.schema.key_names == LEASE_SCHEMA.key_names
    assert service.to_json() == before
    service.items[0]["table_version"] = {"N": "2"}
    with pytest.raises(FormatTooNew):
        opened.check()


@each("probe-reports")
def test_probe_reports_are_read(sample: Sample) -> None:
    """A report has the same meaning, and is written as it was."""
    for name, text in sample.values.items():
        report = ProbeReport.from_json(text)
        assert report.url == BUCKET
        assert report.proves(Kind.PUT_IF_ABSENT) and report.proves(Kind.PUT_IF_MATCH)
        assert report.needs_bare(Kind.PUT_IF_MATCH) == (name != "format-1")
        expected = Dialect.COS if name == "format-3" else Dialect.STANDARD
        assert report.dialects(Kind.PUT_IF_ABSENT)[0] is expected
        assert report.versioning is (Versioning.NEVER if name == "format-3" else None)
        assert report.to_json() == text


# -- namespaces ----------------------------------------------------------------------------------------


def opened_namespace(sample: Sample) -> World:
    """Return the namespace of a sample, with new clients."""
    clock = sample.clock
    table = sample.fill_table(ServiceTable(clock=clock))
    return namespace_world(clock, sample.store(clock), table, "later")


#: The tree of the sample, without the files of the two pending changes.
_TREE = {
    "bound": None,
    "bound/2": b"r2",
    "d2": None,
    "empty": None,
    "empty/b": None,
    "empty/b/1": b"1",
    "empty/b/2": b"22",
    "empty/below": None,
    "empty/new": b"n",
    "imported": None,
    "imported/1": b"o1",
    "over": b"3",
    "a": None,
    "table": None,
    "table/part-0": b"third",
}


def tree_of(lake: Namespace) -> dict[str, bytes | None]:
    """Return the content of all files, and None for directories."""
    return {
        found.path: None if found.is_directory else lake.read(found.path)
        for found in lake.walk("")
        if found.path
    }


@each("namespace")
def test_a_namespace_is_read(sample: Sample) -> None:
    """All files, attributes and bindings are there; also the change whose client died after it."""
    lake = opened_namespace(sample).lake
    assert tree_of(lake) == {**_TREE, "applied": b"yes"}
    assert lake.stat("empty/new").attributes == {"y": "1"}
    assert lake.stat("empty/b/1").attributes == {"x": "ü"}
    assert lake.describe().format == 1


@each("namespace")
def test_pending_changes_of_a_namespace_are_decided(sample: Sample) -> None:
    """The change that was sent is committed, the other one is rolled back, and the tree is sound."""
    at = opened_namespace(sample)
    at.clock.advance(4000)
    decided = at.lake.maintenance.recover()
    assert [each.decision for each in decided] == [Decision.COMMITTED, Decision.ROLLED_BACK]
    assert not list(at.log.pending())
    assert tree_of(at.lake) == {**_TREE, "applied": b"yes"}
    assert not at.lake.maintenance.fsck(objects=True).findings


@each("namespace")
def test_a_namespace_goes_on(sample: Sample) -> None:
    """Every kind of change applies to what an earlier version wrote."""
    at = opened_namespace(sample)
    lake = at.lake
    lake.rename("empty", "full")
    lake.write("full/b/1", b"11")
    lake.delete("imported", recursive=True)
    at.store.put("raw/3", b"r3")
    at.clock.advance(100)
    assert lake.read("bound/3") == b"r3"
    with pytest.raises(NotFound):
        lake.stat("bound/1")
    committer = DirectoryCommitter(
        lake, "table", clock=at.clock, backoff=QUICK, new_id=Ids("attempts-2")
    )
    for job_id in ("first", "second", "third"):
        with pytest.raises(JobAlreadyCommitted):
            committer.begin(job_id)
    assert lake.maintenance.empty_trash().files > 0
    assert lake.maintenance.gc().objects > 0
    found = tree_of(lake)
    assert found["full/b/1"] == b"11" and found["full/b/2"] == b"22"


@each("namespace")
def test_a_namespace_is_restored_from_its_log(sample: Sample) -> None:
    """The checkpoint and the operations after it have the whole tree."""
    at = opened_namespace(sample)
    at.clock.advance(4000)
    at.lake.maintenance.recover()
    before = tree_of(at.lake)
    table = at.lost()
    at.restorer(table).restore()
    restored = Namespace(table, at.store, "lake", clock=at.clock, log=at.log, backoff=QUICK)
    assert tree_of(restored) == before
    assert restored.describe().format == 2


@each("restored-namespace")
def test_a_restored_namespace_goes_on(sample: Sample) -> None:
    """Its epoch is known: it is changed with its log, which no other table can write."""
    at = opened_namespace(sample)
    assert tree_of(at.lake) == {"a": None, "a/b": b"1", "after": b"restore"}
    assert at.lake.describe().epoch.number == 1
    at.lake.write("more", b"2")
    Auditor(at.table, "lake", at.store).audit()
    assert not at.lake.maintenance.fsck(objects=True).findings


def test_a_namespace_of_a_later_format_is_refused() -> None:
    """A program reads up to `min_reader`, and changes up to `min_writer`."""
    sample = Sample.read(VERSION, "namespace")
    for reader, writer in ((1, 3), (3, 3)):
        at = opened_namespace(sample)
        item = at.table.get(Keys("lake").metadata)
        assert item is not None and item["place"] == NAMESPACES
        body = json.loads(bytes(item["body"]))  # type: ignore[arg-type]
        fields = {name: value for name, value in body.items() if name not in _ENVELOPE}
        fields |= {"namespace_format": 3, "min_reader": reader, "min_writer": writer, "later": True}
        at.table.put({**item, "body": encode(Document("namespace", fields))})
        lake = at.client()[1]
        with pytest.raises(FormatTooNew, match="to change it takes a library that knows format 3"):
            lake.write("x", b"x")
        if reader == 1:
            assert lake.read("over") == b"3"
        else:
            with pytest.raises(FormatTooNew, match="to read it takes"):
                lake.read("over")


_ENVELOPE = frozenset({"format", "kind", "checksum"})


@each("job-journal")
def test_a_maintenance_job_goes_on(sample: Sample) -> None:
    """The next driver leaves out the complete units, and reports the work of all of them."""
    at = opened_namespace(sample)
    units = [info.path for info in at.store.list("nightly/units/")]
    assert len(units) > 1
    report = prune(at, SerialEngine(partitions=3))
    assert report.files == 3
    assert sorted(path for path, body in tree_of(at.lake).items() if body) == [
        "imported/1/file",
        "imported/3/file",
        "imported/5/file",
    ]


# -- ingest --------------------------------------------------------------------------------------------


@each("ingest")
def test_an_ingest_source_goes_on(sample: Sample) -> None:
    """The batch in the log of the query is read again, and every byte is delivered once."""
    clock, ids = sample.clock, Ids("later")
    store = sample.fill(Bucket(clock=clock, new_id=ids))
    table = sample.fill_table(memory_table(INGEST_SCHEMA))
    values = sample.values
    kept = Checkpoint(
        log=list(values["log"]),
        committed=values["committed"],
        sink={int(n): [tuple(row) for row in rows] for n, rows in values["sink"].items()},
    )
    assert len(kept.log) == kept.committed + 1, "the driver died with a batch in the log"
    engine = Engine(
        store=store,
        table=table,
        settings=ingest_settings(),
        clock=clock,
        checkpoint=kept,
        splits=True,
        new_id=ids,
        backoff=QUICK,
    )
    store.put("in/new", b"12")
    engine.drain()
    sizes = {info.path: info.size for info in store.list("in/")}
    delivered = kept.records
    assert set(delivered.values()) == {1}
    assert {path: len([r for r in delivered if r[0] == path]) for path in sizes} == sizes


@each("ingest")
def test_the_state_of_an_ingest_source_is_read(sample: Sample) -> None:
    """An operator sees the settings, the schema, the problem and the totals."""
    table = sample.fill_table(memory_table(INGEST_SCHEMA))
    state = StateTable(table, "events")
    found = state.read()
    assert isinstance(found, SourceState)
    assert (found.epoch, found.files) == (4, 4)
    assert state.schema() == '{"type":"struct","fields":[]}'
    assert state.metadata() == SourceMetadata(
        url="s3://bucket/landing", format="json", settings=ingest_settings()
    )
    [problem] = IngestAdmin(None, table, ingest_settings(), clock=sample.clock)._quarantine
    assert (problem.slice.file.path, problem.records, problem.retried) == ("in/bad", 2, True)
    for offset in sample.values["log"]:
        assert Offset.from_json(offset, source="events").to_json() == offset


@each("ingest")
def test_the_files_of_a_source_are_cleaned(sample: Sample) -> None:
    """The queue and the commits of the query count: committed files are archived in time."""
    clock, ids = sample.clock, Ids("later")
    store = sample.fill(Bucket(clock=clock, new_id=ids))
    table = sample.fill_table(memory_table(INGEST_SCHEMA))
    conditional = ConditionalStore(store, mode="native", clock=clock, new_id=ids, backoff=QUICK)
    cleaner = Cleaner(conditional, table, ingest_settings(), clock=clock)
    assert cleaner.clean() == Cleaned()
    clock.advance(2000)
    assert cleaner.clean().files == 2
    left = {info.path for info in store.list()}
    assert not left & {"in/a", "in/c"}
    assert left >= {"in/bad", "in/d", "in/e", "in/f"}


# -- locks ---------------------------------------------------------------------------------------------


@each("locks")
@pytest.mark.parametrize("kind", ["store", "table"])
def test_locks_go_on(sample: Sample, kind: str) -> None:
    """A released lock is free, that of a dead holder is waited for, and tokens grow."""
    clock, ids = sample.clock, Ids("later")
    store = ConditionalStore(sample.store(clock, ids), clock=clock, new_id=ids, backoff=QUICK)
    place = store if kind == "store" else sample.fill_table(memory_table(LOCK_SCHEMA))
    released, held = (
        Lock(
            place,
            f"{kind}/{name}",
            settings=lock_settings(),
            clock=clock,
            backoff=QUICK,
            new_id=ids,
            background=Foreground(),
        )
        for name in ("released", "held")
    )
    tokens = sample.values["tokens"]
    assert not released.locked()
    assert released.acquire(blocking=False)
    assert released.token > tokens[f"{kind}/released"]
    assert held.holder() == Holder(token=tokens[f"{kind}/held"], description="host ü", timeout=20)
    assert not held.acquire(timeout=39)
    assert held.acquire(timeout=2), "twice the timeout has passed"
    assert held.token > tokens[f"{kind}/held"]


@each("locks")
def test_elections_and_semaphores_go_on(sample: Sample) -> None:
    """The leader and the holders of permits are seen, and one permit is free."""
    clock, ids = sample.clock, Ids("later")
    store = ConditionalStore(sample.store(clock, ids), clock=clock, new_id=ids, backoff=QUICK)
    leader = Election(store, "leader", clock=clock, backoff=QUICK, background=Foreground()).leader()
    assert leader is not None and leader.description == "candidate"
    permits = Semaphore(store, "loads", permits=3, clock=clock, backoff=QUICK, background=Foreground())
    assert [holder.description for holder in permits.holders()] == ["loader 0", "loader 1"]
    assert permits.acquire(blocking=False) and permits.slot == 2


@each("locks")
@pytest.mark.parametrize("keep", ["content", "metadata"])
def test_fenced_objects_go_on(sample: Sample, keep: Any) -> None:
    """The token of an earlier version counts."""
    store = ConditionalStore(sample.store(sample.clock), clock=sample.clock, backoff=QUICK)
    fenced = FencedStore(store, keep=keep, clock=sample.clock, backoff=QUICK)
    path = f"fenced/{keep}"
    found = fenced.get(path)
    assert (found.data, found.token) == (b"2,a\n", 8)
    with pytest.raises(StaleToken):
        fenced.put(path, b"late", token=7)
    assert fenced.claim(path, token=9).data == b"2,a\n"
    fenced.put(path, b"3,a\n", token=9)
    assert (fenced.get(path).data, fenced.get(path).token) == (b"3,a\n", 9)


# -- catalogs ------------------------------------------------------------------------------------------


def opened_iceberg(sample: Sample) -> CatalogRecords:
    """Return the catalog of a sample, as a new client opens it."""
    clock = sample.clock
    store = ConditionalStore(sample.store(clock), clock=clock, backoff=QUICK)
    return CatalogRecords(store, clock=clock, backoff=QUICK)


@each("iceberg-catalog")
def test_an_iceberg_catalog_goes_on(sample: Sample) -> None:
    """All names and pointers are read and changed, and the pointer of the dropped table is found."""
    records = opened_iceberg(sample)
    names = records.names()
    assert names.version == 7 and len(names.changes) == 7
    assert names.namespaces_in(()) == [("sales",)]
    assert names.namespaces_in(("sales",)) == [("sales", "a.b")]
    assert names.properties(("sales",)) == {"owner": "ü", "x": ""}
    assert names.tables_in(("sales",)) == [("sales", "new")]
    new, moved = records.find(("sales", "new")), records.find(("sales", "a.b", "moved"))
    assert (new.version, new.metadata_location) == (0, "s3://bucket/new/0.json")
    assert (moved.version, moved.metadata_location) == (2, "s3://bucket/moved/2.json")
    assert moved.previous == ("s3://bucket/moved/1.json", "s3://bucket/moved/0.json")
    for table, pointer in ((("sales", "new"), new), (("sales", "a.b", "moved"), moved)):
        records.move(pointer, "s3://bucket/later.json")
        assert records.find(table).metadata_location == "s3://bucket/later.json"
        assert records.find(table).version == pointer.version + 1
    assert records.leftovers() == [sample.values["dropped"]]
    records.drop(("sales", "new"))
    assert len(records.names().changes) == 8


@each("lance-catalog")
def test_a_lance_catalog_goes_on(sample: Sample) -> None:
    """All records are read, and the versions of both dead writers are created once."""
    clock = sample.clock
    store = ConditionalStore(sample.store(clock), clock=clock, backoff=QUICK)
    catalog = LanceCatalog(store, new_id=Ids("later"), clock=clock, backoff=QUICK)
    assert catalog.children([]) == (["raw"], ["declared", "registered"])
    assert catalog.children(["raw"]) == (["web"], [])
    assert catalog.namespace(["raw"]) == {"owner": "ü"}
    assert catalog.table(["registered"]).location == "old.lance"
    with pytest.raises(AlreadyExists):
        catalog.declare(["declared"])
    record = catalog.table(["raw", "web", "clicks"])
    assert record.properties == {"x": "1"}
    versions = TableVersions(store, record.location)
    assert [manifest.version for manifest in versions.list()] == [2, 1]
    _, second, third = sample.values["staged"]
    assert versions.create(2, second).version == 2, "its answer was lost"
    assert versions.create(3, third).version == 3
    latest = versions.latest()
    assert latest is not None and latest.version == 3
    assert catalog.remove(["raw", "web", "clicks"]) == record
    assert catalog.declare(["raw", "web", "clicks"]).location != record.location
    old = TableVersions(store, "old.lance").latest()
    assert old is not None and old.version == 1


# -- local directories ---------------------------------------------------------------------------------


@each("local-directory")
def test_a_local_directory_goes_on(sample: Sample, tmp_path: Path) -> None:
    """Objects have their etags and metadata, and the upload can be published."""
    values = sample.values
    for name, text in values["files"].items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (tmp_path / ".commitlog" / "writing").mkdir()
    with closing(sqlite3.connect(tmp_path / ".commitlog" / "index.sqlite")) as connection:
        connection.executescript(
            ";".join([*values["schema"], f"PRAGMA user_version={values['version']}"])
        )
        for name, token, metadata in values["rows"]:
            stat = (tmp_path / name).stat()
            row = (stat.st_ino, stat.st_size, stat.st_mtime_ns, token, metadata)
            connection.execute("INSERT INTO objects VALUES (?, ?, ?, ?, ?)", row)
        for *upload, body in values["uploads"]:
            row = (*upload, (tmp_path / body).stat().st_ino)
            connection.execute("INSERT INTO staged VALUES (?, ?, ?, ?)", row)
        home = (tmp_path / ".commitlog" / "index.sqlite").stat().st_ino
        connection.execute("INSERT INTO home VALUES (?)", (home,))
        connection.commit()
    with closing(LocalStore(f"file://{tmp_path}", clock=sample.clock)) as store:
        info = store.head("a/b")
        assert (info.etag, dict(info.metadata)) == (values["etag"], {"x": "y"})
        staged = Staged(**{**values["staged"], "parts": tuple(values["staged"]["parts"])})
        assert [each.upload_id for each in store.list_staged()] == [staged.upload_id]
        client = ConditionalStore(store)
        client.publish_if_absent(staged)
        assert store.get("a/c").data == b"22"
        client.put_if_match("a/b", b"2", etag=values["etag"])
        with pytest.raises(PreconditionFailed):
            client.put_if_match("a/b", b"3", etag=values["etag"])


# -- later formats -------------------------------------------------------------------------------------


def later_output(path: str, change: Callable[[bytes], bytes]) -> Callable[[], object]:
    """Return a function that reads an output in which one object was changed."""

    def read() -> object:
        store, _, output = opened_output(Sample.read(VERSION, "listed-output"))
        [found] = [info.path for info in store.list("out/") if info.path.endswith(path)]
        store.put(found, change(store.get(found).data))
        return output.recover(older_than=1e9)

    return read


def raised(data: bytes) -> bytes:
    """Return a record with the format after the present one."""
    assert b'"format":1' in data
    return data.replace(b'"format":1', b'"format":3')


def other_mode(data: bytes) -> bytes:
    """Return a commit with a mode of a later version."""
    body = {name: value for name, value in json.loads(data).items() if name not in _ENVELOPE}
    return encode(Document("commit", {**body, "mode": "overwrite-rows"}))


def later_manifest() -> object:
    """Read a manifest of a later format."""
    data = gzip.compress(b'{"format": 2, "kind": "manifest"}')
    store = ConditionalStore(MemoryStore())
    store.put("manifests/m", data)
    manifest = Manifest(name="m", sha256=hashlib.sha256(data).hexdigest(), files=0, rows=None, bytes=0)
    return list(Manifests(store, "manifests").files(manifest))


def later_buckets() -> object:
    """Use a table of leases whose list of buckets has a later format."""
    sample = Sample.read(VERSION, "leases")
    table = sample.fill_table(memory_table(LEASE_SCHEMA))
    item = table.get(Key("../PROBE/", "buckets"))
    assert item is not None
    table.put({**item, "buckets": str(item["buckets"]).replace('"format": 1', '"format": 2')})
    return ConditionalStore(Unenforced(sample.store(sample.clock)), table=table).probe()


def later_verdict() -> object:
    """Use a table of leases whose probe report has a later format."""
    sample = Sample.read(VERSION, "leases")
    table = sample.fill_table(memory_table(LEASE_SCHEMA))
    item = table.get(Key("../PROBE/s3://bucket", "put-if-absent"))
    assert item is not None
    table.put({**item, "verdict": str(item["verdict"]).replace('"format": 1', '"format": 4')})
    return ConditionalStore(Unenforced(sample.store(sample.clock)), table=table).probe()


def later_source() -> object:
    """Read the state of a source that a later version wrote."""
    table = Sample.read(VERSION, "ingest").fill_table(memory_table(INGEST_SCHEMA))
    item = table.get(Key("events", "list"))
    assert item is not None
    table.put({**item, "body": raised(bytes(item["body"]))})
    return StateTable(table, "events").read()


def later_position() -> object:
    """Read a position of a later format."""
    stored = Sample.read(VERSION, "listed-output").values["position"]
    return Position.from_json({**stored, "format": 2})


def later_offset() -> object:
    """Read an offset of a later format."""
    stored = Sample.read(VERSION, "ingest").values["log"][0]
    return Offset.from_json({**stored, "format": 2}, source="events")


def later_report() -> object:
    """Read a probe report of a later format."""
    stored = Sample.read(VERSION, "probe-reports").values["format-2"]
    return ProbeReport.from_json(stored.replace('"format": 2', '"format": 4'))


def later_object(
    name: str, path: str, read: Callable[[ConditionalStore], object]
) -> Callable[[], object]:
    """Return a function that reads an object of a sample that a later version wrote."""

    def call() -> object:
        sample = Sample.read(VERSION, name)
        store = sample.store(sample.clock)
        [found] = [info.path for info in store.list() if info.path.startswith(path)]
        data = store.get(found).data
        later = data.replace(b"commitlog-fence 1 ", b"commitlog-fence 2 ")
        store.put(found, raised(data) if later == data else later)
        return read(ConditionalStore(store, clock=sample.clock, backoff=QUICK))

    return call


def find_moved(store: ConditionalStore) -> object:
    """Return the pointer of a table in the sample of an Iceberg catalog."""
    return CatalogRecords(store, backoff=QUICK).find(("sales", "a.b", "moved"))


def lance_record(names: list[str], *, table: bool) -> Callable[[ConditionalStore], object]:
    """Return a function that reads a record of the sample of a Lance catalog."""

    def read(store: ConditionalStore) -> object:
        catalog = LanceCatalog(store, new_id=Ids("later"), backoff=QUICK)
        return catalog.table(names) if table else catalog.namespace(names)

    return read


_LATER: dict[str, Callable[[], object]] = {
    "record": later_output("00000000000000000011.json", raised),
    "success": later_output("_SUCCESS", raised),
    "mode": later_output("00000000000000000011.json", other_mode),
    "manifest": later_manifest,
    "buckets": later_buckets,
    "report in a table": later_verdict,
    "report in a file": later_report,
    "source": later_source,
    "position": later_position,
    "offset": later_offset,
    "lock": later_object("locks", "store/held", lambda store: Lock(store, "store/held").holder()),
    "fenced object": later_object(
        "locks", "fenced/content", lambda store: FencedStore(store).get("fenced/content")
    ),
    "names of an Iceberg catalog": later_object("iceberg-catalog", "names.json", find_moved),
    "pointer of an Iceberg table": later_object("iceberg-catalog", "pointers/09", find_moved),
    "Lance table": later_object(
        "lance-catalog", "_catalog/registered", lance_record(["registered"], table=True)
    ),
    "Lance namespace": later_object(
        "lance-catalog", "_catalog/raw/_", lance_record(["raw"], table=False)
    ),
}


@pytest.mark.parametrize("kind", _LATER)
def test_a_later_format_is_refused(kind: str) -> None:
    """The error says that the data are newer than the program."""
    with pytest.raises(FormatTooNew):
        _LATER[kind]()


def test_a_later_checkpoint_of_an_output_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """The log has all that a checkpoint has."""

    def change(data: bytes) -> bytes:
        return gzip.compress(gzip.decompress(data).replace(b'"format": 3', b'"format": 4', 1))

    sample = Sample.read(VERSION, "listed-output")
    store, _, output = opened_output(sample)
    before = output.snapshot()
    [found] = [info.path for info in store.list("out/_commitlog/checkpoints/0")]
    store.put(found, change(store.get(found).data))
    assert opened_again(store, output).snapshot() == before
    assert "is skipped" in caplog.text
    assert store.head(found), "it was left there"


def test_later_tables_and_directories_are_refused(tmp_path: Path) -> None:
    """A whole file of SQLite is refused by its number."""
    sql = "\n".join(Sample.read(VERSION, "sqlite-leases").values["sql"])
    file = tmp_path / "leases.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(sql + "UPDATE commitlog_table SET format = 2")
        connection.commit()
    url = parse_table_url(f"sqlite://{file}")
    table = SqliteTable(url, LEASE_SCHEMA, clock=ManualClock())
    with closing(table), pytest.raises(FormatTooNew):
        table.check()
    with closing(LocalStore(f"file://{tmp_path}/lake")) as store:
        store.put("a", b"1")
    with closing(sqlite3.connect(tmp_path / "lake/.commitlog/index.sqlite")) as connection:
        connection.execute("PRAGMA user_version = 2")
    with closing(LocalStore(f"file://{tmp_path}/lake")) as store, pytest.raises(FormatTooNew):
        store.put("b", b"2")
