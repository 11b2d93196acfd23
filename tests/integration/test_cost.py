"""The counts of `pricing.operations` are those of the requests that servers receive."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any
from urllib.parse import urlencode

import pytest
from attrs import asdict, field, frozen
from pricing import ConditionalWrite, Usage, operations

import commitlog
from commitlog.aws.sqs import SqsQueue
from commitlog.clock import SystemClock
from commitlog.commit import ConditionalStore, ProbeReport
from commitlog.commit.probe_report import Kind
from commitlog.commit.record import LEASE_SCHEMA
from commitlog.errors import PreconditionFailed
from commitlog.ingest import INGEST_SCHEMA, IngestSettings
from commitlog.ingest.rows import ROWS
from commitlog.namespace import NAMESPACE_SCHEMA, Data, Namespace
from commitlog.outputs import Output, Visibility
from commitlog.stores.open import open_store
from commitlog.tables.api import TableSchema
from commitlog.tables.open import open_table
from commitlog.tables.rules import size_of_item
from commitlog.urls import parse_queue_url
from support.commit import proven
from support.ingest import Engine
from support.metering import RequestMeter, metered
from support.selection import in_campaigns, with_all
from support.servers import Ministack, Seaweedfs

pytestmark = pytest.mark.servers


@frozen
class Site:
    """A bucket and a table of leases, and the meter of their requests."""

    server: Ministack
    meter: RequestMeter
    bucket: str
    leases: str = field(init=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "leases", self.table(LEASE_SCHEMA))

    def table(self, schema: TableSchema) -> str:
        """Return the URL of a new table."""
        url = f"dynamodb://{self.server.new_table_name()}?{urlencode(self.server.options)}"
        with closing(open_table(url, schema)) as table:
            table.create()
        return url

    @property
    def report(self) -> ProbeReport:
        """A report that proves all conditions, so that nothing is measured."""
        return proven(*Kind, url=f"s3://{self.bucket}?{urlencode(self.server.options)}")

    def how(self, leases: bool, table: str = "table") -> dict[str, Any]:
        """Return the arguments that choose how conditions are enforced."""
        if leases:
            return {"commit": "lease", table: self.leases}
        return {"commit": "native", "probe_report": self.report}

    def connect(self, leases: bool, prefix: str = "") -> ConditionalStore:
        """Open the store."""
        options: dict[str, Any] = {**self.how(leases), **self.server.options}
        return commitlog.connect(f"s3://{self.bucket}/{prefix}", **options)

    def usage_of(self, work: Callable[[], object]) -> Usage:
        """Return the usage of some work."""
        self.meter.reset()
        work()
        return self.meter.usage


@pytest.fixture
def site(ministack: Ministack) -> Iterator[Site]:
    """A new bucket, whose requests are counted."""
    with metered(ministack) as meter:
        yield Site(ministack, meter, ministack.new_bucket())


# -- conditional writes ------------------------------------------------------------------------------


def _write(store: ConditionalStore, write: ConditionalWrite, path: str, etag: str) -> None:
    if write.startswith("put"):
        _put(store, write, path, b"2", etag)
    elif write == "copy_if_absent":
        store.copy_if_absent(f"{write}/source", path)
    else:
        store.delete_if_match(path, etag=etag)


@pytest.mark.parametrize("leases", [False, True])
def test_conditional_writes(site: Site, leases: bool) -> None:
    """Each kind of write, done and refused."""
    with closing(site.connect(leases)) as store:
        _check_write(site, store, "put_if_absent", leases)
        _check_write(site, store, "put_if_match", leases)
        _check_write(site, store, "delete_if_match", leases)
        if leases:
            _check_write(site, store, "copy_if_absent", leases)


@pytest.mark.parametrize("write", ["put_if_absent", "put_if_match"])
@pytest.mark.parametrize(
    ("leases", "size", "parts"),
    [(False, 8 * 2**20, 0), (False, 8 * 2**20 + 1, 2), (True, 160 * 2**10, 0), (True, 200 * 2**10, 1)],
)
def test_large_bodies(site: Site, write: ConditionalWrite, leases: bool, size: int, parts: int) -> None:
    """A body is uploaded in parts from a size that depends on how the condition is enforced."""
    body = bytes(size)
    with closing(site.connect(leases)) as store:
        store.put_if_absent("first", b"0")
        etag = store.put("there", b"1").etag

        def refused() -> None:
            with pytest.raises((PreconditionFailed, commitlog.AlreadyExists)):
                _put(store, write, "there", body, "0" * 32)

        def done() -> None:
            _put(store, write, "new" if write == "put_if_absent" else "there", body, etag)

        for work in (refused, done):
            expected = operations.conditional_write(
                write, leases=leases, refused=work is refused, parts=parts
            )
            assert site.usage_of(work) == expected, (work, site.meter.kinds)


def _put(store: ConditionalStore, write: ConditionalWrite, path: str, body: bytes, etag: str) -> None:
    if write == "put_if_absent":
        store.put_if_absent(path, body)
    else:
        store.put_if_match(path, body, etag=etag)


def test_conditional_copies(site: Site, seaweedfs: Seaweedfs) -> None:
    """Native conditions of copies, on a store that enforces them."""
    url = f"s3://{seaweedfs.new_bucket()}"
    report = proven(*Kind, url=f"{url}?{urlencode(seaweedfs.options)}")
    options: dict[str, Any] = seaweedfs.options
    with closing(commitlog.connect(url, commit="native", probe_report=report, **options)) as store:
        _check_write(site, store, "copy_if_absent", False)


def _check_write(site: Site, store: ConditionalStore, write: ConditionalWrite, leases: bool) -> None:
    # The first lease also checks the table.
    store.put_if_absent(f"{write}/source", b"0")
    etag = store.put(f"{write}/there", b"1").etag
    absent = write.endswith("absent")

    def refused() -> None:
        with pytest.raises((PreconditionFailed, commitlog.AlreadyExists)):
            _write(store, write, f"{write}/there", "0" * 32)

    def done() -> None:
        _write(store, write, f"{write}/new" if absent else f"{write}/there", etag)

    for work in (refused, done):
        usage = site.usage_of(work)
        expected = operations.conditional_write(write, leases=leases, refused=work is refused)
        assert usage == expected, (write, work, site.meter.kinds)
        assert site.meter.largest_item < 1_024


# -- outputs -----------------------------------------------------------------------------------------


def _job(site: Site, visibility: Visibility, leases: bool, files: int) -> None:
    """Run a job as a new process does: with a store and an output of its own."""
    with closing(site.connect(leases, "out")) as store:
        output = Output(store)
        job = output.begin(visibility=visibility)
        names = [job.file_name(number, suffix=".csv") for number in range(files)]
        output.commit(job, [output.stage(job, name, b"1") for name in names])


@pytest.mark.parametrize(
    ("visibility", "leases", "files"),
    [
        *((visibility, False, 2) for visibility in ("listed", "logged")),
        ("listed", True, 1),
        with_all("logged", True, 1),
        with_all("listed", True, 100),
        in_campaigns("logged", True, 100),
        in_campaigns("listed", False, 1_001),
        in_campaigns("logged", False, 1_001),
    ],
)
def test_jobs(site: Site, visibility: Visibility, leases: bool, files: int) -> None:
    """Ten jobs after twenty others, which is a whole period between two checkpoints."""
    for _ in range(20):
        _job(site, visibility, leases, 1)
    usage = site.usage_of(lambda: [_job(site, visibility, leases, files) for _ in range(10)])
    expected = 10 * operations.output_job(files, visibility=visibility, leases=leases)
    assert _rounded(usage) == _rounded(expected)
    assert site.meter.largest_item < 1_024


@pytest.mark.all
def test_a_job_of_more_files_than_a_request_takes(site: Site) -> None:
    """Nine jobs of one file and one of 1,001, in a whole period between two checkpoints."""
    for _ in range(20):
        _job(site, "listed", False, 1)
    usage = site.usage_of(lambda: [_job(site, "listed", False, n) for n in (1_001, *[1] * 9)])
    expected = 9 * operations.output_job(1) + operations.output_job(1_001)
    assert _rounded(usage) == _rounded(expected)


def _rounded(usage: Usage) -> Usage:
    """Return numbers of whole requests without the error of a float."""
    return Usage(**{name: round(number, 6) for name, number in asdict(usage).items()})


# -- namespaces --------------------------------------------------------------------------------------


def _namespace(site: Site, *, log: bool, leases: bool) -> Namespace:
    how = site.how(leases, "leases")
    return commitlog.create_namespace(
        "lake",
        metadata=site.table(NAMESPACE_SCHEMA),
        store=f"s3://{site.bucket}/lake?{urlencode(site.server.options)}",
        log=log,
        grace=0.0,
        **how,
    )


@pytest.mark.parametrize(
    ("log", "leases"), [with_all(False, False), with_all(True, False), (True, True)]
)
def test_names(site: Site, log: bool, leases: bool) -> None:
    """Each operation on a path of three names."""
    with closing(_namespace(site, log=log, leases=leases)) as lake:
        lake.make_directory("a/many")
        lake.make_directory("a/b")
        lake.write("a/b/first", b"1")
        how: dict[str, Any] = {"log": log, "leases": leases}

        def check(work: Callable[[], object], expected: Usage) -> None:
            before = lake.request_stats
            assert site.usage_of(work) == expected, site.meter.kinds
            assert site.meter.largest_item < 1_024
            if not log and not site.meter.kinds["Query"]:
                own = lake.request_stats.since(before).total
                assert operations.counted_requests(own) == expected

        check(lambda: lake.write("a/b/f", b"1"), operations.create_file(**how))
        check(lambda: lake.write("a/b/f", b"2"), operations.create_file(**how))
        check(lambda: lake.stat("a/b/f"), operations.look_up())
        check(lambda: lake.read("a/b/f"), operations.look_up() + Usage(get_requests=1))
        check(lambda: lake.rename("a/b/f", "a/b/g"), operations.rename_file(**how))
        check(lambda: lake.delete("a/b/g"), operations.delete_file(**how))
        check(lambda: lake.maintenance.gc(), operations.collect_garbage(2, log=log))
        files = {f"part-{number:05}": _stored(number) for number in range(250)}
        check(lambda: lake.bulk_link("a/many", files), operations.bulk_link(250, 2, **how))
        size = site.meter.largest_item
        check(lambda: list(lake.list("a/many")), operations.list_directory(250, 2))
        renamed = operations.rename_directory(2, unshared=0, **how)
        check(lambda: lake.rename("a/many", "a/more"), renamed)
        lake.make_directory("a/c")
        lake.make_directory("a/b/d")
        moved = operations.rename_directory(**how)
        check(lambda: lake.rename("a/b/d", "a/c/d"), moved)
        assert size == operations.ENTRY_BYTES


def _stored(number: int) -> Data:
    """Return the content of a file, as `Namespace.write` would have stored it."""
    return Data(path=f"{number:03x}/{number:032x}", size=1, etag=f'"{number:032x}"', own=True)


# -- ingest ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "notified"), [(1, False), (10, False), with_all(250, False), (1, True), with_all(45, True)]
)
def test_epochs(site: Site, files: int, notified: bool) -> None:
    """An epoch of new files, and one without any."""
    with (
        closing(open_store(f"s3://{site.bucket}/in", **site.server.options)) as store,
        closing(open_table(site.table(INGEST_SCHEMA), INGEST_SCHEMA)) as table,
        closing(_Landing(site)) as landing,
    ):
        engine = Engine(
            store=store,
            table=table,
            settings=IngestSettings(source="s", prefix="landing/"),
            clock=SystemClock(),
            notifications=landing.queue if notified else None,
        )
        for _ in range(3):  # the first batches of a source take more
            landing.add(1)
            assert engine.batch()
        landing.add(files)
        usage = site.usage_of(engine.batch)
        rows = [item for item in table.query("s") if str(item["item"]).startswith(ROWS)]
        size = size_of_item(rows[-1])
        assert rows[-1]["files"] == files
        tasks = len(engine.source.partitions(*engine.checkpoint.log[-2:]))
        how: dict[str, Any] = {"tasks": tasks, "listed_keys": landing.keys, "notified": notified}
        expected = operations.ingest_epoch(files, row_bytes=size, **how)
        # The item is removed when the source forgets the files, an hour later.
        removed = Usage(write_units=2 * -(-size // 1_024))
        assert usage + removed == expected, site.meter.kinds
        # The size that is taken by default is right.
        taken = operations.ingest_epoch(files, **how)
        assert expected.write_units <= taken.write_units <= 1.2 * expected.write_units


def test_an_epoch_without_files(site: Site) -> None:
    """It costs the listing, and a look at the state."""
    with (
        closing(open_store(f"s3://{site.bucket}/in", **site.server.options)) as store,
        closing(open_table(site.table(INGEST_SCHEMA), INGEST_SCHEMA)) as table,
        closing(_Landing(site)) as landing,
    ):
        settings = IngestSettings(source="s", prefix="landing/")
        engine = Engine(store=store, table=table, settings=settings, clock=SystemClock())
        for _ in range(2):
            landing.add(1)
            assert engine.batch()
        assert site.usage_of(engine.batch) == operations.ingest_poll(listed_keys=landing.keys)


class _Landing:
    """The prefix that a source reads, with a queue that gets a message for each object.

    Attributes:
        keys: number of its objects.
        queue: the queue.
    """

    def __init__(self, site: Site) -> None:
        self.keys = 0
        self._site = site
        name = f"queue-{site.bucket}"
        self._url = site.server.client("sqs").create_queue(QueueName=name)["QueueUrl"]
        url = parse_queue_url(f"sqs://{name}").with_options(site.server.options)
        self.queue = SqsQueue(url, visible_after=300)

    def add(self, number: int) -> None:
        """Store objects."""
        for _ in range(number):
            self.keys += 1
            key = f"in/landing/2026-11-25/part-{self.keys:09}-0123456789abcdef.json"
            # One record each, see `support.ingest.records_of`; etags differ as those of real files do.
            body = bytes([self.keys % 256])
            self._site.server.client("s3").put_object(Bucket=self._site.bucket, Key=key, Body=body)
            event = {"eventSource": "aws:s3", "eventName": "ObjectCreated:Put"}
            place = {"bucket": {"name": self._site.bucket}, "object": {"key": key}}
            message = json.dumps({"Records": [{**event, "eventVersion": "2.1", "s3": place}]})
            self._site.server.client("sqs").send_message(QueueUrl=self._url, MessageBody=message)

    def close(self) -> None:
        """Close the client of the queue."""
        self.queue.close()
