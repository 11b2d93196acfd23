"""Stores whose vendors have headers of their own for conditions.

The stores are fakes of the vendors' documents, see `support.vendors`: none of the services was tested.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from attrs import evolve
from click.testing import CliRunner

from commitlog import connect
from commitlog.cli import main
from commitlog.commit import ConditionalStore
from commitlog.commit.probe import THREADS, probe
from commitlog.commit.probe_report import Kind, ProbeReport
from commitlog.errors import (
    AlreadyExists,
    ConfigurationError,
    NotSupported,
    OutcomeUnknown,
    PreconditionFailed,
)
from commitlog.stores.api import Dialect, Versioning
from commitlog.testing.proxy import Proxy, ProxyFault
from support.selection import one_in, with_all
from support.vendors import ACCESS_KEY, SECRET_KEY, FakeVendor, serve

ABSENT = (Kind.PUT_IF_ABSENT, Kind.COPY_IF_ABSENT, Kind.PUBLISH_IF_ABSENT)
KINDS = [kind for kind in Kind if kind is not Kind.REQUEST_EXPIRY]

#: The dialect of each kind that a vendor's documents promise.
PROMISED: dict[str, dict[Kind, Dialect]] = {
    "oss": dict.fromkeys(ABSENT, Dialect.OSS),
    "cos": dict.fromkeys(ABSENT, Dialect.COS),
    "r2": {
        Kind.PUT_IF_ABSENT: Dialect.STANDARD,
        Kind.PUT_IF_MATCH: Dialect.STANDARD,
        Kind.PUBLISH_IF_ABSENT: Dialect.STANDARD,
        Kind.PUBLISH_IF_MATCH: Dialect.STANDARD,
        Kind.COPY_IF_ABSENT: Dialect.R2,
    },
    "gcs": dict.fromkeys(
        (Kind.PUT_IF_ABSENT, Kind.PUT_IF_MATCH, Kind.COPY_IF_ABSENT, Kind.DELETE_IF_MATCH), Dialect.GCS
    ),
}

Open: TypeAlias = Callable[..., ConditionalStore]


@pytest.fixture
def opened() -> Iterator[Open]:
    """Return a function that serves a fake and opens a client of it."""
    with ExitStack() as stack:

        def open_store(
            fake: FakeVendor, *, endpoint: str = "", dialect: str | None = None, **options: Any
        ) -> ConditionalStore:
            endpoint = endpoint or stack.enter_context(serve(fake))
            if report := options.get("probe_report"):
                options["probe_report"] = evolve(report, url=f"s3://bucket?endpoint_url={endpoint}")
            return stack.enter_context(
                connect(
                    "s3://bucket",
                    endpoint_url=endpoint,
                    region="auto",
                    access_key_id=ACCESS_KEY,
                    secret_access_key=SECRET_KEY,
                    dialect=dialect,
                    **options,
                )
            )

        yield open_store


@cache
def _proven(vendor: str) -> ProbeReport:
    """Return the report of a probe of a correct store."""
    with ExitStack() as stack:
        endpoint = stack.enter_context(serve(FakeVendor(vendor)))
        store = connect(
            "s3://bucket",
            endpoint_url=endpoint,
            region="auto",
            access_key_id=ACCESS_KEY,
            secret_access_key=SECRET_KEY,
        )
        return _probe(stack.enter_context(store))


def _probe(store: ConditionalStore, *kinds: Kind) -> ProbeReport:
    with ThreadPoolExecutor(THREADS) as executor:
        return probe(store.object_store, kinds=kinds or KINDS, executor=executor)


@pytest.mark.parametrize("vendor", PROMISED)
def test_the_probe_proves_what_the_vendor_promises(vendor: str) -> None:
    """A kind is proven by attempts and races, in the dialect of its operation; no other kind is."""
    report = _proven(vendor)
    found = {kind: report.dialects(kind)[0] for kind in KINDS if report.proves(kind)}
    assert found == PROMISED[vendor], [row for row in report.rows if not row.ok]
    assert '"format": 3' in report.to_json()
    assert ProbeReport.from_json(report.to_json()) == report
    assert report.versioning is (Versioning.NEVER if vendor in ("oss", "cos") else None)


@pytest.mark.parametrize("state", ["Enabled", with_all("Suspended")])
@pytest.mark.parametrize("vendor", ["oss", with_all("cos")])
def test_a_bucket_with_versions_is_found_by_attempts(opened: Open, vendor: str, state: str) -> None:
    """The store ignores the header there, answers 200 and overwrites."""
    fake = FakeVendor(vendor, versioning=state, tells_versioning=False)
    report = _probe(opened(fake))
    assert not any(report.proves(kind) for kind in KINDS)
    rows = [row for row in report.rows if row.check == f"refuse {vendor}"]
    assert {row.got for row in rows} == {"done, and it took effect"} and len(rows) == len(ABSENT)
    with pytest.raises(NotSupported, match="put-if-absent"):
        opened(fake, commit="native").put_if_absent("a", b"1")


@pytest.mark.parametrize("vendor", ["oss", "cos"])
def test_a_bucket_with_versions_is_not_trusted(opened: Open, vendor: str) -> None:
    """It seems to honour the header, but the vendor's documents say that it need not."""
    report = _probe(opened(FakeVendor(vendor, versioning="Suspended", honours_versioned=True)))
    assert not any(report.proves(kind) for kind in KINDS)
    rows = [row for row in report.rows if row.check == f"accept {vendor}" and not row.ok]
    assert {row.got for row in rows} == {"done, but the versioning of the bucket is suspended"}
    assert report.versioning is Versioning.SUSPENDED


@pytest.mark.parametrize("vendor", one_in(2, PROMISED))
def test_a_race_with_several_winners_is_noticed(opened: Open, vendor: str) -> None:
    """The store honours each condition alone, and lets racers win."""
    report = _probe(opened(FakeVendor(vendor, forgets=True)), *ABSENT)
    assert not any(report.proves(kind) for kind in ABSENT)
    raced = [row for row in report.rows if row.check.startswith("race")]
    assert raced and not any(row.ok for row in raced)


@pytest.mark.parametrize("vendor", one_in(2, PROMISED))
def test_conditional_writes_use_the_dialect(opened: Open, vendor: str) -> None:
    """A write whose condition does not hold is refused, with the port's error, and changes nothing."""
    store = opened(FakeVendor(vendor), commit="native", probe_report=_proven(vendor))
    etag = store.put_if_absent("a", b"1").etag
    with pytest.raises(AlreadyExists):
        store.put_if_absent("a", b"2")
    store.copy_if_absent("a", "b")
    with pytest.raises(AlreadyExists):
        store.copy_if_absent("a", "b")
    assert (store.get("a").data, store.get("b").data) == (b"1", b"1")
    if Kind.PUT_IF_MATCH not in PROMISED[vendor]:
        with pytest.raises(NotSupported):
            store.put_if_match("a", b"2", etag=etag)
        return
    store.put_if_match("a", b"2", etag=etag)
    for stale in (etag, '"none"'):
        with pytest.raises(PreconditionFailed):
            store.put_if_match("a", b"3", etag=stale)
    with pytest.raises(PreconditionFailed):
        store.put_if_match("missing", b"3", etag=etag)
    assert store.get("a").data == b"2"


def test_an_upload_in_parts_is_published_once(opened: Open) -> None:
    """The header is that of the request that completes the upload."""
    store = opened(FakeVendor("cos"), commit="native", probe_report=_proven("cos"))
    first, second = store.stage("a", b"1"), store.stage("a", b"2")
    store.publish_if_absent(first)
    with pytest.raises(AlreadyExists):
        store.publish_if_absent(second)
    assert store.get("a").data == b"1"


def test_a_deletion_needs_the_generation(opened: Open) -> None:
    """Google Cloud Storage deletes by generation; the object with another etag stays."""
    store = opened(FakeVendor("gcs"), commit="native", probe_report=_proven("gcs"))
    etag = store.put_if_absent("a", b"1").etag
    with pytest.raises(PreconditionFailed):
        store.delete_if_match("a", etag='"other"')
    store.delete_if_match("a", etag=etag)
    with pytest.raises(PreconditionFailed):
        store.delete_if_match("a", etag=etag)


def test_requests_with_a_generation_have_no_headers_of_amazon(opened: Open) -> None:
    """Google Cloud Storage refuses requests with both kinds of headers. All are signed."""
    fake = FakeVendor("gcs")
    store = opened(fake, commit="native", probe_report=_proven("gcs"))
    store.put_if_absent("a", b"1", metadata={"color": "red"})
    sent = [headers for _, headers in fake.requests if "x-goog-if-generation-match" in headers]
    assert sent and not any(name.startswith("x-amz-") for headers in sent for name in headers)
    assert sent[-1]["x-goog-meta-color"] == "red"
    assert sent[-1]["authorization"].startswith("GOOG4-HMAC-SHA256 Credential=fake/")


@pytest.mark.parametrize("vendor", one_in(2, PROMISED))
def test_a_lost_answer_is_no_conflict(opened: Open, vendor: str) -> None:
    """The retry is refused because of the first request. The nonce tells whose object is there."""
    fake = FakeVendor(vendor)
    with serve(fake) as endpoint, Proxy(endpoint) as proxy:
        report = _proven(vendor)
        store = opened(fake, endpoint=proxy.endpoint_url, commit="native", probe_report=report)
        proxy.inject(ProxyFault(kind="PUT", action="drop_response"))
        assert store.put_if_absent("a", b"1").etag == store.head("a").etag
        assert sum(proxy.strikes().values()) == 1
        assert [method for method, _ in fake.requests] == ["PUT", "PUT", "HEAD", "HEAD"]
        with pytest.raises(AlreadyExists):
            store.put_if_absent("a", b"2")


@pytest.mark.parametrize("vendor", ["oss", "cos"])
def test_versioning_that_begins_after_the_probe_is_noticed(opened: Open, vendor: str) -> None:
    """The write has happened, perhaps over another object, and no later one is sent."""
    fake = FakeVendor(vendor)
    store = opened(fake, commit="native", probe_report=_proven(vendor))
    store.put_if_absent("a", b"1")
    fake.versioning = "Enabled"
    with pytest.raises(OutcomeUnknown, match="another object may have been replaced"):
        store.put_if_absent("a", b"2")
    before = len(fake.requests)
    with pytest.raises(NotSupported, match="keeps versions now"):
        store.put_if_absent("b", b"2")
    assert len(fake.requests) == before


@pytest.mark.all
def test_one_of_many_writers_wins(opened: Open) -> None:
    """Each vendor's condition, with racing clients that share a table."""
    for vendor in PROMISED:
        fake = FakeVendor(vendor)
        with serve(fake) as endpoint:
            table = f"memory://dialects-{vendor}"
            report = _proven(vendor)
            clients = [
                opened(fake, endpoint=endpoint, table=table, probe_report=report) for _ in range(4)
            ]

            def create(client: ConditionalStore) -> int:
                try:
                    client.put_if_absent("k", b"1")
                except AlreadyExists:
                    return 0
                return 1

            with ThreadPoolExecutor(len(clients)) as executor:
                assert sum(executor.map(create, clients)) == 1


def test_a_chosen_dialect_is_the_only_one(opened: Open) -> None:
    """It is probed like others. A store that does not honour it gets no conditional write."""
    fake = FakeVendor("oss")
    wrong = opened(fake, commit="native", dialect="cos")
    with pytest.raises(NotSupported, match="put-if-absent"):
        wrong.put_if_absent("a", b"1")
    assert not any("if-none-match" in headers for _, headers in fake.requests)
    options = {"commit": "native", "dialect": "oss", "probe_report": _proven("oss")}
    assert opened(FakeVendor("oss"), **options).put_if_absent("a", b"1").etag
    with pytest.raises(ConfigurationError, match="dialect is 'swift'; known: auto, standard, bare"):
        opened(fake, dialect="swift")


def test_clients_of_one_table_use_one_dialect(opened: Open) -> None:
    """A client with another one is refused: it may not take leases where others take none."""
    fake = FakeVendor("cos")
    with serve(fake) as endpoint:
        report = _proven("cos")
        table = "memory://one-dialect"
        first = opened(fake, endpoint=endpoint, table=table, probe_report=report)
        first.put_if_absent("a", b"1")
        assert first.stored_probe_report().versioning is Versioning.NEVER
        assert first.stored_probe_report().dialects(Kind.COPY_IF_ABSENT) == (Dialect.COS,)
        other = opened(fake, endpoint=endpoint, table=table, dialect="oss")
        with pytest.raises(ConfigurationError, match="with dialect=cos, and it was opened with"):
            other.put_if_absent("b", b"1")


def test_the_command_shows_the_dialect_and_the_stored_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``--stored`` sends no request to the store. What was not measured is not found."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    monkeypatch.setenv("AWS_REGION", "auto")
    fake = FakeVendor("oss")
    with serve(fake) as endpoint:

        def run(*words: str, status: int = 0) -> str:
            place = ("s3://bucket", "--endpoint-url", endpoint)
            done = CliRunner().invoke(main, ["probe", *place, *words])
            assert done.exit_code == status, done.output
            return done.output

        table = ("--table", f"sqlite:///{tmp_path}/leases.db")
        assert "keeps no probe report" in run("--stored", *table, status=1)
        assert "there is no table" in run("--stored", status=2)
        shown = run("--only", "put-if-absent", *table)
        assert "put-if-absent  proven, dialect oss" in shown
        assert "versioning of the bucket: never enabled" in shown
        before = len(fake.requests)
        assert run("--stored", *table) == shown
        assert len(fake.requests) == before
        report = json.loads(run("--stored", "--json", *table))
        assert (report["format"], report["versioning"]) == (3, "never enabled")
        assert report["dialects"] == {"put-if-absent": "oss"}
