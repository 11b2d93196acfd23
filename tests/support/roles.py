"""The roles of `deploy/iam`, and the operations of each, in steps."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import urlencode

from attrs import field, frozen

import commitlog
from commitlog.aws.sqs import SqsQueue
from commitlog.clock import SystemClock
from commitlog.commit import ConditionalStore
from commitlog.commit.probe import probe
from commitlog.commit.probe_report import Kind
from commitlog.commit.record import LEASE_SCHEMA
from commitlog.errors import AccessDenied
from commitlog.ingest import INGEST_SCHEMA, Cleaner, IngestAdmin, IngestSettings
from commitlog.namespace import NAMESPACE_SCHEMA, Namespace
from commitlog.namespaces import restore_namespace
from commitlog.outputs import Job, Output, StagedFile
from commitlog.outputs.manifest import Manifests
from commitlog.outputs.pending import PendingJob
from commitlog.stores.open import open_store
from commitlog.tables.api import Table, TableSchema
from commitlog.tables.open import open_table
from commitlog.urls import parse_queue_url
from support.commit import proven
from support.ingest import Checkpoint, Engine
from support.outputs import check_invariants, visible
from support.servers import Ministack

__all__ = ["ROLES", "Site", "Step"]


@frozen(kw_only=True)
class Site:
    """A bucket with a prefix, tables and a queue on one server.

    Attributes:
        server: the server.
        bucket: the bucket; the prefix in it is ``prefix``.
        leases, names, state: names of the tables.
        queue: name of the queue.
        checkpoint: of the query that reads the source.
    """

    server: Ministack
    bucket: str
    leases: str
    names: str
    state: str
    queue: str
    checkpoint: Checkpoint = field(factory=Checkpoint, eq=False)

    @classmethod
    def on(cls, server: Ministack) -> Site:
        """Return a new site, whose tables exist."""
        leases, names, state, queue = (server.new_table_name() for _ in range(4))
        site = cls(
            server=server,
            bucket=server.new_bucket(),
            leases=leases,
            names=names,
            state=state,
            queue=queue,
        )
        for schema in (LEASE_SCHEMA, NAMESPACE_SCHEMA, INGEST_SCHEMA):
            with closing(site.open_table(schema)) as table:
                table.create()
        site.server.client("sqs").create_queue(QueueName=queue)
        return site

    def url_of(self, name: str) -> str:
        """Return the URL of a table, with credentials."""
        return f"dynamodb://{name}?{urlencode(self.server.options)}"

    def open_table(self, schema: TableSchema) -> Table:
        """Open the table of a schema."""
        name = {"leases": self.leases, "namespaces": self.names, "ingest": self.state}[schema.use]
        return open_table(self.url_of(name), schema)

    @property
    def store_url(self) -> str:
        """The URL of the prefix, without options."""
        return f"s3://{self.bucket}/prefix"

    @property
    def lake_url(self) -> str:
        """The URL of the store of the namespace, without options."""
        return f"{self.store_url}/lake"

    @property
    def _report(self) -> Any:
        # ministack ignores the condition of a copy, which one client alone does not notice
        return proven(*Kind, url=f"s3://{self.bucket}?{urlencode(self.server.options)}")

    @contextmanager
    def connect(self, *, leases: bool = False) -> Iterator[ConditionalStore]:
        """Open the store; conditions are native, or under leases."""
        how: dict[str, Any] = {"commit": "native", "probe_report": self._report}
        if leases:
            how = {"commit": "lease", "table": self.url_of(self.leases)}
        with closing(commitlog.connect(self.store_url, **how, **self.server.options)) as store:
            yield store

    @contextmanager
    def output(self, *, leases: bool = False) -> Iterator[Output]:
        """Open the output."""
        with self.connect(leases=leases) as store:
            yield Output(store, "out")

    @contextmanager
    def namespace(self) -> Iterator[Namespace]:
        """Open the namespace ``lake``."""
        store = f"{self.lake_url}?{urlencode(self.server.options)}"
        opened = commitlog.open_namespace(
            "lake",
            metadata=self.url_of(self.names),
            store=store,
            commit="native",
            probe_report=self._report,
            grace=0.0,
        )
        with closing(opened) as lake:
            yield lake

    def create_namespace(self) -> None:
        """Create the namespace ``lake``."""
        commitlog.create_namespace(
            "lake",
            metadata=self.url_of(self.names),
            store=f"{self.lake_url}?{urlencode(self.server.options)}",
            commit="native",
            probe_report=self._report,
        ).close()

    def restore_namespace(self) -> None:
        """Restore the namespace ``lake``, in place of the existing one."""
        with restore_namespace(
            "lake",
            metadata=self.url_of(self.names),
            store=f"{self.lake_url}?{urlencode(self.server.options)}",
            commit="native",
            probe_report=self._report,
        ) as restorer:
            restorer.restore(replace=True)

    @contextmanager
    def engine(self, **how: Any) -> Iterator[Engine]:
        """Open a source of ingest over ``prefix/landing``."""
        with (
            closing(open_store(self.store_url, **self.server.options)) as store,
            closing(self.open_table(INGEST_SCHEMA)) as table,
        ):
            yield Engine(
                store=store,
                table=table,
                settings=self.settings,
                clock=SystemClock(),
                checkpoint=self.checkpoint,
                **how,
            )

    @property
    def settings(self) -> IngestSettings:
        """The settings of the source."""
        return IngestSettings(source="s", prefix="landing/", remember="everything", clean="delete")


def _nothing(_site: Site) -> None:
    pass


@frozen(kw_only=True)
class Step:
    """An operation of a role.

    Attributes:
        run: the operation.
        prepare: done before, with all permissions.
        check: checks after a failure that nothing is half done, with all permissions. It may finish the
            work as an operator does.
        later: actions without which the operation succeeds: it leaves work for a later one, or a detail
            is missing.
    """

    run: Callable[[Site], object]
    prepare: Callable[[Site], object] = _nothing
    check: Callable[[Site], object] = _nothing
    later: frozenset[str] = frozenset()


# -- objects and outputs -------------------------------------------------------------------------------


def _put_objects(site: Site) -> None:
    with site.connect() as store:
        store.put("a", b"1")
        store.delete("b")
        store.delete("c")
        store.delete("large")


def _read_objects(site: Site) -> None:
    with site.connect() as store:
        assert store.get("a").data == b"1"
        assert store.head("a").size == 1
        assert [info.path for info in store.list("a")] == ["a"]
        assert store.begin_head("none")().info is None


def _staged(output: Output, job: Job, *tasks: int) -> list[StagedFile]:
    return [output.stage(job, job.file_name(task, suffix=".csv"), b"1\n", rows=1) for task in tasks]


def _commit_job(site: Site) -> None:
    with site.output() as output:
        job = output.begin()
        output.commit(job, _staged(output, job, 0))


def _read_output(site: Site) -> None:
    with site.output() as output:
        snapshot = output.snapshot(roll_forward=False)
        assert snapshot.files
        assert list(output.log())
        output.store.get(output.locate(snapshot.files[0]))


def _check_objects(site: Site) -> None:
    """Each object is whole: absent, or as one of the calls has written it. No upload is left."""
    with site.connect() as store:
        found = {
            info.path: store.get(info.path).data for info in store.list() if info.path in ("b", "large")
        }
        assert found.get("b") in (None, b"1", b"2")
        assert found.get("large") in (None, bytes(9 * 1024 * 1024))
        assert not [each for each in store.list_staged() if each.path in ("b", "large")]


def _write_conditionally(leases: bool) -> Callable[[Site], None]:
    def write(site: Site) -> None:
        with site.connect(leases=leases) as store:
            etag = store.put_if_absent("b", b"1").etag
            etag = store.put_if_match("b", b"2", etag=etag).etag
            store.delete_if_match("b", etag=etag)
            store.put_if_absent("large", io.BytesIO(bytes(9 * 1024 * 1024)))

    return write


def _rename(site: Site) -> None:
    with site.connect() as store:
        store.rename_if_absent("a", "c")


def _check_output(site: Site) -> None:
    """No job is visible in part, before and after a recovery; the recovery leaves nothing."""
    with site.output() as output:
        check_invariants(output.store, "out")
        output.recover(older_than=-2)
        check_invariants(output.store, "out")
        snapshot = output.snapshot(roll_forward=False)
        assert {file.path for file in snapshot.files} == visible(output.store, "out").keys()
        assert not list(output.store.list_staged("out/"))
        for directory in ("pending", "alive"):
            assert not list(output.store.list(f"out/_commitlog/{directory}/"))


def _check_logged(site: Site) -> None:
    with site.connect() as store:
        output = Output(store, "logged")
        assert all(store.head(output.locate(file)) for file in output.snapshot().files)
        output.gc(older_than=-2)
        hidden = {info.path for info in store.list("logged/_commitlog/data/")}
        assert hidden == {output.locate(file) for file in output.snapshot().files}


def _write_job(leases: bool) -> Callable[[Site], None]:
    def write(site: Site) -> None:
        with site.output(leases=leases) as output:
            job = output.begin()
            output.heartbeat(job.attempt)
            kept, _ = _staged(output, job, 0, 1)  # the second one is of a lost attempt at a task
            output.commit(job, [kept])
            output.clear_heartbeat(job.attempt)

    return write


def _abort_job(site: Site) -> None:
    with site.output() as output:
        job = output.begin()
        output.abort(job, _staged(output, job, 0))


def _leave_job(site: Site) -> None:
    """Leave a job that is prepared, and one that only staged."""
    with site.output() as output:
        _commit_job(site)
        job = output.begin()
        files = output._checked(job, _staged(output, job, 0, 1))
        output._prepare(PendingJob.of(job, files, Manifests(output.store, "out/_commitlog/manifests")))
        _staged(output, output.begin(), 0)
        output.heartbeat(output.begin().attempt)


def _recover(leases: bool) -> Callable[[Site], None]:
    def recover(site: Site) -> None:
        with site.output(leases=leases) as output:
            output.recover(older_than=-2)

    return recover


def _collect(site: Site) -> None:
    with site.connect() as store:
        output = Output(store, "logged")
        output.gc(older_than=-2)


def _overwrite_logged(site: Site) -> None:
    with site.connect() as store:
        output = Output(store, "logged")
        for _ in range(2):
            job = output.begin(mode="overwrite", visibility="logged")
            output.commit(job, _staged(output, job, 0))


def _compact(leases: bool) -> Callable[[Site], None]:
    def compact(site: Site) -> None:
        with site.output(leases=leases) as output:
            old = output.snapshot().files
            rows = b"".join(output.store.get(output.locate(file)).data for file in old)
            job = output.begin(mode="rewrite", replaces=[file.path for file in old])
            name = job.file_name(0, suffix=".csv")
            output.commit(job, [output.stage(job, name, rows, rows=len(old))])

    return compact


def _abort_compaction(site: Site) -> None:
    with site.output() as output:
        old = [file.path for file in output.snapshot().files]
        job = output.begin(mode="rewrite", replaces=old)
        output.abort(job, _staged(output, job, 0))


def _several_jobs(site: Site) -> None:
    _commit_job(site)
    _commit_job(site)


# -- ingest --------------------------------------------------------------------------------------------


def _landing(site: Site) -> None:
    with closing(site.open_table(INGEST_SCHEMA)) as table:
        IngestAdmin(None, table, site.settings).reset()
    with closing(open_store(site.store_url, **site.server.options)) as store:
        for name in ("a", "b"):
            store.put(f"landing/{name}", b"1")


def _ingest(site: Site) -> None:
    with closing(site.open_table(INGEST_SCHEMA)) as table:
        table.check()
    with site.engine() as engine:
        engine.drain()


def _check_ingest(site: Site) -> None:
    """The query goes on with its checkpoint, and has read each byte once."""
    _ingest(site)
    assert set(site.checkpoint.records.values()) == {1}
    assert {path for path, _, _ in site.checkpoint.records} == {"landing/a", "landing/b"}


def _ingested(site: Site) -> None:
    _landing(site)
    _ingest(site)


def _clean(site: Site) -> None:
    with site.connect() as store, closing(site.open_table(INGEST_SCHEMA)) as table:
        Cleaner(store, table, site.settings).clean()


def _check_cleaned(site: Site) -> None:
    _clean(site)
    with site.connect() as store:
        assert not list(store.list("landing/"))


def _receive(site: Site) -> None:
    url = parse_queue_url(f"sqs://{site.queue}").with_options(dict(site.server.options))
    with closing(SqsQueue(url, visible_after=1)) as queue:
        queue.acknowledge([message.handle for message in queue.receive(wait=1)])


def _send(site: Site) -> None:
    client = site.server.client("sqs")
    url = client.get_queue_url(QueueName=site.queue)["QueueUrl"]
    client.send_message(QueueUrl=url, MessageBody=json.dumps({"Records": []}))


# -- namespaces ----------------------------------------------------------------------------------------


def _fill(site: Site) -> None:
    site.create_namespace()
    with site.namespace() as lake:
        lake.write("kept/a", b"1")
        lake.write("gone/a", b"1")
        lake.delete("gone", recursive=True)
        with closing(open_store(site.lake_url, **site.server.options)) as store:
            store.put("raw/1", b"r")
        lake.bindings.bind("raw/", "bound")


def _check_namespace(site: Site) -> None:
    """Pending changes can be decided, and then a check finds no problem."""
    with site.namespace() as lake:
        lake.maintenance.recover(older_than=0)
        assert not lake.maintenance.fsck(objects=True, grace=0).findings
        assert lake.read("kept/a") == b"1"


def _read_namespace(site: Site) -> None:
    with site.namespace() as lake:
        assert lake.read("kept/a") == b"1"
        assert [found.name for found in lake.list("kept")] == ["a"]


def _read_bound(site: Site) -> None:
    with site.namespace() as lake:
        assert lake.read("bound/1") == b"r"
        assert [found.name for found in lake.list("bound")] == ["1"]


def _change_namespace(site: Site) -> None:
    with site.namespace() as lake:
        lake.write("changed/a", b"1")
        lake.write("changed/large", io.BytesIO(bytes(17 * 1024 * 1024)))
        lake.make_directory("changed/d/e")
        lake.rename("changed/a", "changed/d/a")
        lake.rename("changed/d", "moved", overwrite=True)
        lake.set_attributes("moved/a", attributes={"x": "y"})
        lake.delete("moved/a")
        lake.delete("changed", recursive=True)
        assert [found.name for found in lake.list("moved")] == ["e"]


_BROKEN = "the disk is broken"


class _Broken(io.RawIOBase):
    """A body that ends with an error after its first part."""

    def __init__(self) -> None:
        super().__init__()
        self._left = 3

    def read(self, size: int = -1) -> bytes:
        """Return another part, or raise."""
        self._left -= 1
        if not self._left:
            raise OSError(_BROKEN)
        return bytes(9 * 1024 * 1024)


def _fail_upload(site: Site) -> None:
    with site.namespace() as lake:
        try:
            lake.write("broken", _Broken())  # type: ignore[arg-type]
        except OSError as error:
            if str(error) != _BROKEN:
                raise


# -- operators -----------------------------------------------------------------------------------------


def _maintain(site: Site) -> None:
    with site.namespace() as lake:
        lake.maintenance.recover(older_than=0)
        lake.bindings.sync()
        lake.bindings.prune()
        lake.maintenance.empty_trash()
        for _, error in lake.maintenance.gc().failed:
            raise AccessDenied(error)
        lake.maintenance.fsck(objects=True, orphans=True, grace=0)
        lake.maintenance.compact_log()


def _restore(site: Site) -> None:
    site.restore_namespace()


def _look_at_leases(site: Site) -> None:
    with closing(site.open_table(LEASE_SCHEMA)) as table:
        table.describe()
        list(table.scan())
        list(table.query("prefix/b"))


def _leave_uploads(site: Site) -> None:
    with closing(open_store(site.store_url, **site.server.options)) as store:
        store.stage("left", b"1")


def _abort_uploads(site: Site) -> None:
    with closing(open_store(site.store_url, **site.server.options)) as store:
        for upload in store.list_staged("left"):
            store.abort(upload)


def _check_uploads(site: Site) -> None:
    _abort_uploads(site)
    with closing(open_store(site.store_url, **site.server.options)) as store:
        assert not list(store.list_staged("left"))


def _probe(site: Site) -> None:
    how = {"commit": "auto", "table": site.url_of(site.leases)}
    with closing(commitlog.connect(f"s3://{site.bucket}", **how, **site.server.options)) as store:
        report = probe(store.object_store, kinds=[Kind.PUT_IF_ABSENT, Kind.PUBLISH_IF_ABSENT])
        store.save_probe_report(report)


def _look_at_ingest(site: Site) -> None:
    with closing(site.open_table(INGEST_SCHEMA)) as table:
        table.check()
        list(table.scan())
        admin = IngestAdmin(None, table, site.settings)
        admin.status()
        admin.retry()
        admin.reset()


def _check_reset(site: Site) -> None:
    with closing(site.open_table(INGEST_SCHEMA)) as table:
        IngestAdmin(None, table, site.settings).reset()
        assert not list(table.scan())


# -- tables --------------------------------------------------------------------------------------------


def _create_tables(site: Site) -> None:
    for schema in (LEASE_SCHEMA, NAMESPACE_SCHEMA, INGEST_SCHEMA):
        with closing(site.open_table(schema)) as table:
            table.create()
            table.tag({"team": "data"})
            table.describe()


def _drop_tables(site: Site) -> None:
    for name in (site.leases, site.names, site.state):
        site.server.client("dynamodb").delete_table(TableName=name)


def _check_tables(site: Site) -> None:
    _create_tables(site)
    for schema in (LEASE_SCHEMA, NAMESPACE_SCHEMA, INGEST_SCHEMA):
        with closing(site.open_table(schema)) as table:
            info = table.describe()
            assert (info.format, info.tags) == (1, {"team": "data"})
            assert info.schema.ttl_attribute == schema.ttl_attribute


#: Actions without which a job is committed: uploads of lost tasks stay until a recovery.
_UPLOADS = frozenset({"s3:AbortMultipartUpload", "s3:ListBucketMultipartUploads"})

#: The same, and the job raises `PublishIncomplete`: files that it has replaced stay until a recovery.
_REPLACED = _UPLOADS | {"s3:DeleteObject"}

#: Actions without which a change of a namespace is done: its entry in the log stays pending.
_ENTRIES = frozenset({"s3:DeleteObject"})

#: Actions without which a description of a table lacks its expiry or tags.
_DETAILS = frozenset({"dynamodb:DescribeTimeToLive", "dynamodb:ListTagsOfResource"})

#: The steps of each role. A step uses all that the earlier ones of its role do not.
ROLES: dict[str, dict[str, Step]] = {
    "reader": {
        "objects": Step(prepare=_put_objects, run=_read_objects),
        "output": Step(prepare=_commit_job, run=_read_output),
    },
    "writer": {
        "conditional writes": Step(
            prepare=_put_objects, run=_write_conditionally(False), check=_check_objects
        ),
        "conditional writes with leases": Step(
            prepare=_put_objects, run=_write_conditionally(True), check=_check_objects
        ),
        "job": Step(run=_write_job(False), check=_check_output, later=_UPLOADS),
        "abort": Step(run=_abort_job, check=_check_output),
        "rename": Step(prepare=_put_objects, run=_rename),
    },
    "recoverer": {
        "recover": Step(prepare=_leave_job, run=_recover(False), check=_check_output),
        "recover with leases": Step(prepare=_leave_job, run=_recover(True), check=_check_output),
        "collect": Step(prepare=_overwrite_logged, run=_collect, check=_check_logged),
    },
    "compactor": {
        "compact": Step(
            prepare=_several_jobs, run=_compact(False), check=_check_output, later=_REPLACED
        ),
        "compact with leases": Step(
            prepare=_several_jobs, run=_compact(True), check=_check_output, later=_REPLACED
        ),
        "abort": Step(prepare=_several_jobs, run=_abort_compaction, check=_check_output),
    },
    "ingest": {
        "read": Step(prepare=_landing, run=_ingest, check=_check_ingest),
        "clean": Step(prepare=_ingested, run=_clean, check=_check_cleaned),
        "notifications": Step(prepare=_send, run=_receive),
    },
    "namespace-reader": {
        "read": Step(prepare=_fill, run=_read_namespace),
        "bound": Step(prepare=_fill, run=_read_bound),
    },
    "namespace-writer": {
        "change": Step(prepare=_fill, run=_change_namespace, check=_check_namespace, later=_ENTRIES),
        "failed upload": Step(prepare=_fill, run=_fail_upload, check=_check_namespace, later=_UPLOADS),
    },
    "operator": {
        "create": Step(run=Site.create_namespace, later=_ENTRIES),
        "maintain": Step(prepare=_fill, run=_maintain, check=_check_namespace),
        "restore": Step(prepare=_fill, run=_restore, check=_restore),
        "output": Step(prepare=_leave_job, run=_recover(False), check=_check_output),
        "leases": Step(run=_look_at_leases, later=_DETAILS),
        "uploads": Step(prepare=_leave_uploads, run=_abort_uploads, check=_check_uploads),
        "probe": Step(run=_probe),
        "ingest": Step(prepare=_ingested, run=_look_at_ingest, check=_check_reset),
    },
    "table-administrator": {
        "create": Step(prepare=_drop_tables, run=_create_tables, check=_check_tables, later=_DETAILS),
    },
}
