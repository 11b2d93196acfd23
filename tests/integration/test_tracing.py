"""Spans of operations on real stores: a directory, a table in SQLite, and an S3 server."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode

import commitlog
from commitlog.cli import main
from commitlog.commit.probe_report import Kind
from commitlog.commit.record import LEASE_SCHEMA
from commitlog.errors import AlreadyExists, JobAlreadyCommitted, NotFound, OutcomeUnknown
from commitlog.ingest import INGEST_SCHEMA, Ingest, IngestAdmin, IngestSettings
from commitlog.namespace import DirectoryCommitter
from commitlog.outputs import Output
from commitlog.stores import open_store
from commitlog.tables import open_table
from commitlog.testing.proxy import Proxy, ProxyFault
from support.commit import proven
from support.servers import Ministack
from support.tracing import Recording, recorded


@pytest.fixture
def recording() -> Iterator[Recording]:
    """The spans of the test."""
    with recorded() as spans:
        yield spans


@pytest.fixture
def proxy(ministack: Ministack) -> Iterator[Proxy]:
    """A proxy in front of an S3 server."""
    with Proxy(ministack.endpoint_url) as opened:
        yield opened


@pytest.fixture
def bucket(ministack: Ministack) -> str:
    """The URL of a new bucket, without options."""
    return f"s3://{ministack.new_bucket()}/lake"


def _open(url: str, proxy: Proxy, server: Ministack, **options: Any) -> commitlog.ConditionalStore:
    given = {**server.options, "endpoint_url": proxy.endpoint_url}
    url += "?" + "&".join(f"{name}={value}" for name, value in given.items())
    # A probe takes seconds.
    return commitlog.connect(url, probe_report=proven(*Kind, url=url), **options)


def _attributes(span: Any) -> dict[str, Any]:
    return dict(span.attributes)


def _below(parent: ReadableSpan, spans: Sequence[ReadableSpan]) -> list[ReadableSpan]:
    return [span for span in spans if span.parent and span.parent.span_id == parent.context.span_id]


@pytest.mark.servers
def test_the_outcomes_on_s3(
    bucket: str,
    proxy: Proxy,
    ministack: Ministack,
    recording: Recording,
) -> None:
    """The three outcomes differ. The requests of an operation are below it, and a retry is an event."""
    with _open(bucket, proxy, ministack) as store:
        proxy.inject(ProxyFault(kind="PUT", action="drop_response"))
        store.put_if_absent("a", b"1")
        *requests, operation = recording.take()
        assert [span.parent.span_id for span in requests if span.parent] == [
            operation.context.span_id
        ] * len(requests)
        lost, *_ = requests
        assert (lost.kind, lost.name, lost.status.status_code) == (
            SpanKind.CLIENT,
            "PUT",
            StatusCode.ERROR,
        )
        assert _attributes(lost)["error.type"] == "commitlog.errors.OutcomeUnknown"
        assert operation.status.status_code is StatusCode.UNSET
        name = bucket.removeprefix("s3://").partition("/")[0]
        assert _attributes(operation) == {
            "aws.s3.bucket": name,
            "aws.s3.key": "lake/a",
            "commitlog.outcome": "success",
            "commitlog.path": "a",
            "commitlog.store": store.url,
        }

        with pytest.raises(AlreadyExists):
            store.put_if_absent("a", b"2")
        refused, *_, operation = recording.take()
        host, _, port = proxy.endpoint_url.removeprefix("http://").partition(":")
        found = _attributes(refused)
        found.pop("aws.request_id", None)
        assert found == {
            "error.type": "412",
            "http.request.method": "PUT",
            "http.response.status_code": 412,
            "server.address": host,
            "server.port": int(port),
            "url.full": f"{proxy.endpoint_url}/{name}/lake/a",
        }
        assert _attributes(operation)["commitlog.outcome"] == "failure"
        assert operation.status.status_code is StatusCode.ERROR

        proxy.inject(ProxyFault(kind="PUT", action="drop_response"))
        with pytest.raises(OutcomeUnknown):
            store.put("a", b"3")
        *_, operation = recording.take()
        assert _attributes(operation)["commitlog.outcome"] == "unknown"
        assert _attributes(operation)["error.type"] == "commitlog.errors.OutcomeUnknown"

        proxy.inject(ProxyFault(kind="GET", action="answer", status=503))
        store.get("a")
        failed, answered, operation = recording.take()
        assert _attributes(failed)["error.type"] == "503"
        assert "error.type" not in _attributes(answered)
        assert operation.status.status_code is StatusCode.UNSET
        (event,) = operation.events
        assert event.name == "commitlog.retry"
        assert dict(event.attributes or {}) == {"error.type": "commitlog.errors.OutcomeUnknown"}


@pytest.mark.servers
def test_no_span_has_a_secret(
    bucket: str,
    proxy: Proxy,
    ministack: Ministack,
    recording: Recording,
) -> None:
    """Neither credentials nor the signature of a URL are recorded, nor the content and its metadata."""
    options: Any = ministack.options
    commit = commitlog.DynamoCommit(ministack.new_table_name(), **options)
    with closing(open_table(commit.url, LEASE_SCHEMA, **options)) as table:
        table.create()
    recording.take()
    with _open(bucket, proxy, ministack, commit=commit) as store:
        # Under a lease, the expiry of the request is signed in its URL.
        store.put_if_absent("a", b"secret body", metadata={"name": "secret metadata"})
        with pytest.raises(NotFound):
            store.get("b")
        with pytest.raises(AlreadyExists):
            store.put_if_absent("a", b"secret body")
        assert any("X-Amz-Signature" in line for line in map(str, proxy.requests()))
    spans = recording.take()
    requests = {span.name for span in spans if span.kind is SpanKind.CLIENT}
    assert requests >= {"POST PutItem", "PUT", "GET"}
    text = "".join(span.to_json() for span in spans)
    assert json.loads(spans[0].to_json())["context"]["trace_id"] in text
    for secret in (ministack.access_key_id, ministack.secret_access_key, "Signature", "secret "):
        assert secret not in text


def test_a_local_store(recording: Recording, tmp_path: Path) -> None:
    """All operations have spans, also those that return an iterator."""
    (tmp_path / "lake").mkdir()
    table = f"sqlite://{tmp_path}/leases.db"
    with commitlog.connect(f"file://{tmp_path}/lake", commit="lease", table=table) as store:
        etag = store.put_if_absent("a", b"1").etag
        store.put_if_match("a", b"2", etag=etag)
        store.copy_if_absent("a", "b")
        store.rename_if_absent("b", "c")
        assert [info.path for info in store.list()] == ["a", "c"]
        store.delete("a")
        spans = recording.take()
    assert [span.name.removeprefix("ConditionalStore.") for span in spans] == [
        *("put_if_absent", "put_if_match", "copy_if_absent", "rename_if_absent", "list", "delete")
    ]
    assert all(span.attributes["commitlog.store"] == store.url for span in spans if span.attributes)
    assert (spans[2].attributes or {})["commitlog.source"] == "a"
    assert (spans[2].attributes or {})["commitlog.target"] == "b"


def test_a_job(recording: Recording, tmp_path: Path) -> None:
    """The operations on the store are below the operation on the output, also those of other threads."""
    with commitlog.connect(str(tmp_path)) as store, ThreadPoolExecutor(2) as threads:
        output = Output(store, "out", executor=threads)
        job = output.begin("daily")
        files = [output.stage(job, job.file_name(task), b"rows", rows=1) for task in (0, 1)]
        recording.take()
        record = output.commit(job, files)
        spans = recording.take()
        operation = spans[-1]
        assert operation.name == "Output.commit"
        below = [
            span for span in spans if span.parent and span.parent.span_id == operation.context.span_id
        ]
        assert [span.name for span in below].count("ConditionalStore.publish") == 2
        assert {span.name for span in spans if span.parent is None} == {"Output.commit"}
        assert _attributes(operation) == {
            "commitlog.attempt": job.attempt,
            "commitlog.job.id": "daily",
            "commitlog.outcome": "success",
            "commitlog.output": "out",
            "commitlog.store": store.url,
        }
        assert output.snapshot().version == record.version
        tail = output.tail()
        assert tail.advance(tail.start(0)).version == record.version
        assert not output.recover(older_than=0).uploads
        with pytest.raises(JobAlreadyCommitted):
            output.begin("daily")
        aborted = output.begin("other")
        output.abort(aborted)
        outer = [span for span in recording.take() if span.parent is None]
    assert [(span.name, _attributes(span)["commitlog.outcome"]) for span in outer] == [
        ("Output.snapshot", "success"),
        ("Tail.start", "success"),
        ("Tail.advance", "success"),
        ("Output.recover", "success"),
        ("Output.begin", "failure"),
        ("Output.begin", "success"),
        ("Output.abort", "success"),
    ]


def test_a_namespace(recording: Recording, tmp_path: Path) -> None:
    """A call of a method has one span, whatever methods it calls. The log of a change is below it."""
    (tmp_path / "lake").mkdir()
    with commitlog.create_namespace(
        "lake", store=f"file://{tmp_path}/lake", metadata=f"sqlite://{tmp_path}/names.db", log="changes"
    ) as lake:
        recording.take()
        lake.write("a/b", b"rows")
        lake.rename("a/b", "c")
        assert lake.read("c") == b"rows"
        assert [found.path for found in lake.walk()] == ["a", "c"]
        assert lake.summary().files == 1
        with pytest.raises(NotFound):
            lake.delete("a/b")
        committer = DirectoryCommitter(lake, "events")
        committer.publish(committer.begin("daily"), {})
        assert not list(lake.maintenance.fsck().findings)
        lake.maintenance.gc()
        spans = recording.take()
    outer = [span for span in spans if span.parent is None]
    assert [span.name for span in outer] == [
        *(
            "Namespace.write",
            "Namespace.rename",
            "Namespace.read",
            "Namespace.walk",
            "Namespace.summary",
        ),
        *("Namespace.delete", "DirectoryCommitter.begin", "DirectoryCommitter.publish"),
        *("Maintenance.fsck", "Maintenance.gc"),
    ]
    rename = outer[1]
    assert _attributes(rename) == {
        "commitlog.namespace": "lake",
        "commitlog.outcome": "success",
        "commitlog.source": "a/b",
        "commitlog.target": "c",
    }
    logged = ["OperationLog.begin", "ConditionalStore.put_if_absent", "ConditionalStore.delete"]
    assert [span.name for span in _below(rename, spans)] == logged
    assert _attributes(outer[5])["commitlog.outcome"] == "failure"
    assert _attributes(outer[7])["commitlog.job.id"] == "daily"


def test_a_source(recording: Recording, tmp_path: Path) -> None:
    """Planning and committing an epoch are operations of a source."""
    (tmp_path / "input").mkdir()
    (tmp_path / "input" / "a.json").write_text("{}")
    table = open_table(f"sqlite://{tmp_path}/state.db", INGEST_SCHEMA)
    with closing(table), closing(open_store(f"file://{tmp_path}/input")) as store:
        table.create()
        source = Ingest(store, table, IngestSettings(source="events"))
        end = source.latest_offset(source.initial_offset())
        assert source.partitions(source.initial_offset(), end)
        source.commit(end)
        IngestAdmin(store, table, source.settings).status()
    spans = recording.take()
    assert [span.name for span in spans] == [
        *("Ingest.initial_offset", "Ingest.latest_offset", "Ingest.initial_offset"),
        *("Ingest.partitions", "Ingest.commit", "IngestAdmin.status"),
    ]
    assert {_attributes(span)["commitlog.ingest.source"] for span in spans} == {"events"}


@pytest.mark.parametrize(
    ("arguments", "name", "code", "outcome"),
    [
        (["put", "file", "store/a", "--if-absent"], "commitlog put", 0, "success"),
        (["put", "file", "store/there", "--if-absent"], "commitlog put", 3, "failure"),
        (["put", "file", "--no-such-option"], "commitlog put", 2, "failure"),
        (["--debug", "fs", "ls", "none"], "commitlog fs ls", 2, "failure"),
        (["cat", "store/none"], "commitlog cat", 1, "failure"),
        (["lease", "list"], "commitlog lease list", 2, "failure"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_command(
    recording: Recording,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    arguments: list[str],
    name: str,
    code: int,
    outcome: str,
) -> None:
    """The span of a command has its exit status, no arguments, and the caller's span as its parent."""
    (tmp_path / "file").write_bytes(b"rows")
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "there").write_bytes(b"rows")
    monkeypatch.setenv("TRACEPARENT", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, arguments, prog_name="commitlog")
    assert done.exit_code == code, done.output
    *below, command = recording.take()
    assert command.name == name
    found = _attributes(command)
    assert (found["process.exit.code"], found["commitlog.outcome"]) == (code, outcome)
    assert (command.status.status_code is StatusCode.ERROR) is (code != 0)
    assert command.parent is not None
    assert command.parent.is_remote
    assert {span.context.trace_id for span in below} <= {command.context.trace_id}
    assert str(tmp_path) not in str(found)
