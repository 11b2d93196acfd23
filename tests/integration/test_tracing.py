"""Spans of operations on real stores: a directory, a table in SQLite, and an S3 server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.trace import SpanKind, StatusCode

import commitlog
from commitlog.commit.probe_report import Kind
from commitlog.errors import AlreadyExists, NotFound, OutcomeUnknown
from commitlog.testing.proxy import Fault, Proxy
from support.commit import proven
from support.servers import Seaweedfs
from support.tracing import Recording, recording  # noqa: F401 - fixture


@pytest.fixture
def proxy(seaweedfs: Seaweedfs) -> Iterator[Proxy]:
    """A proxy in front of an S3 server."""
    with Proxy(seaweedfs.endpoint_url) as opened:
        yield opened


@pytest.fixture
def bucket(seaweedfs: Seaweedfs) -> str:
    """The URL of a new bucket, without options."""
    return f"s3://{seaweedfs.new_bucket()}/lake"


def _open(url: str, proxy: Proxy, server: Seaweedfs, **options: Any) -> commitlog.ConditionalStore:
    given = {**server.options, "endpoint_url": proxy.endpoint_url}
    url += "?" + "&".join(f"{name}={value}" for name, value in given.items())
    # A probe takes seconds.
    return commitlog.connect(url, probe_report=proven(*Kind, url=url), **options)


def _attributes(span: Any) -> dict[str, Any]:
    return dict(span.attributes)


@pytest.mark.servers
def test_the_outcomes_on_s3(
    bucket: str,
    proxy: Proxy,
    seaweedfs: Seaweedfs,
    recording: Recording,  # noqa: F811
) -> None:
    """The three outcomes differ. The requests of an operation are below it, and a retry is an event."""
    with _open(bucket, proxy, seaweedfs) as store:
        proxy.inject(Fault(kind="PUT", action="drop_response"))
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

        proxy.inject(Fault(kind="PUT", action="drop_response"))
        with pytest.raises(OutcomeUnknown):
            store.put("a", b"3")
        *_, operation = recording.take()
        assert _attributes(operation)["commitlog.outcome"] == "unknown"
        assert _attributes(operation)["error.type"] == "commitlog.errors.OutcomeUnknown"


@pytest.mark.servers
def test_no_span_has_a_secret(
    bucket: str,
    proxy: Proxy,
    seaweedfs: Seaweedfs,
    recording: Recording,  # noqa: F811
    tmp_path: Path,
) -> None:
    """Neither credentials nor the signature of a URL are recorded, nor the content and its metadata."""
    commit = commitlog.SqliteCommit(tmp_path / "leases.db")
    with _open(bucket, proxy, seaweedfs, commit=commit) as store:
        # Under a lease, the expiry of the request is signed in its URL.
        store.put_if_absent("a", b"secret body", metadata={"name": "secret metadata"})
        with pytest.raises(NotFound):
            store.get("b")
        with pytest.raises(AlreadyExists):
            store.put_if_absent("a", b"secret body")
        assert any("X-Amz-Signature" in line for line in map(str, proxy.requests()))
    spans = recording.take()
    assert {span.kind for span in spans} == {SpanKind.CLIENT, SpanKind.INTERNAL}
    text = "".join(span.to_json() for span in spans)
    assert json.loads(spans[0].to_json())["context"]["trace_id"] in text
    for secret in (seaweedfs.access_key_id, seaweedfs.secret_access_key, "Signature", "secret "):
        assert secret not in text


def test_a_local_store(recording: Recording, tmp_path: Path) -> None:  # noqa: F811
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
