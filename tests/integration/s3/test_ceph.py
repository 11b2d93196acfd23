"""A store that behaves like Ceph's radosgw: bare etags, and ``AccessDenied`` for late requests.

radosgw itself is not available. A proxy gives ministack its behaviour, as observed with version 16.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from commitlog.aws import AwsOptions
from commitlog.commit import ConditionalStore
from commitlog.commit.probe import probe
from commitlog.commit.probe_report import Kind, ProbeReport
from commitlog.errors import NotSupported, PreconditionFailed, RequestExpired
from commitlog.stores.api import ObjectStore, RequestExpiry
from commitlog.stores.s3.store import S3Store
from commitlog.testing.proxy import Proxy, ProxyFault
from support.servers import Ministack

pytestmark = pytest.mark.servers


@pytest.fixture(scope="module")
def proxy(ministack: Ministack) -> Iterator[Proxy]:
    """A proxy that makes the server behave like radosgw."""
    with Proxy(ministack.endpoint_url, like_ceph=True) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def store(ministack: Ministack, proxy: Proxy) -> Iterator[ObjectStore]:
    """A store behind the proxy."""
    with ExitStack() as stack:
        options = AwsOptions(**{**ministack.options, "endpoint_url": proxy.endpoint_url})
        store = S3Store(f"s3://{ministack.new_bucket()}", options=options)
        stack.callback(store.close)
        yield store


@pytest.fixture(scope="module")
def probe_report(store: ObjectStore) -> ProbeReport:
    """The findings of the probe about this store."""
    with ThreadPoolExecutor(8) as executor:
        return probe(store, executor=executor)


def test_the_probe_finds_the_enforced_conditions_and_the_form_of_etags(
    probe_report: ProbeReport,
) -> None:
    """The probe completes, because a late request does not count as denied access."""
    proven = {kind for kind in Kind if probe_report.proves(kind)}
    assert proven == {Kind.PUT_IF_ABSENT, Kind.PUT_IF_MATCH, Kind.REQUEST_EXPIRY}
    assert [kind for kind in Kind if probe_report.needs_bare(kind)] == [Kind.PUT_IF_MATCH]


def test_findings_for_bare_etags_have_format_2(
    probe_report: ProbeReport,
) -> None:
    """A reader of format 1 must refuse them: it would take leases while others use native conditions."""
    assert '"format": 2' in probe_report.to_json()
    assert ProbeReport.from_json(probe_report.to_json()) == probe_report
    assert (
        '"format": 1'
        in ProbeReport(url=probe_report.url, rows=probe_report.of(Kind.PUT_IF_ABSENT)).to_json()
    )


@pytest.mark.parametrize("quotes", [True, False])
def test_an_update_is_native(store: ObjectStore, probe_report: ProbeReport, quotes: bool) -> None:
    """The etag may have quotes or not. A stale etag is refused, and so is a conditional delete."""
    native = ConditionalStore(store, mode="native", probe_report=probe_report)
    path = f"a-{quotes}"
    first = native.put_if_absent(path, b"1").etag
    given = first if quotes else first.strip('"')
    native.put_if_match(path, b"2", etag=given)
    with pytest.raises(PreconditionFailed):
        native.put_if_match(path, b"3", etag=given)
    assert native.get(path).data == b"2"
    with pytest.raises(NotSupported):
        native.delete_if_match(path, etag=native.head(path).etag)


def test_a_lost_response_to_an_update_is_resolved(
    store: ObjectStore, probe_report: ProbeReport, proxy: Proxy
) -> None:
    """The next attempt has the same bare etag."""
    native = ConditionalStore(store, mode="native", probe_report=probe_report)
    first = native.put_if_absent("lost", b"1").etag
    proxy.inject(ProxyFault(kind="PUT", path="/lost", action="drop_response"))
    native.put_if_match("lost", b"2", etag=first)
    assert native.get("lost").data == b"2"


def test_a_late_request_is_reported_as_expired(store: ObjectStore) -> None:
    """The store responds with `AccessDenied`, and only the date of the response shows the reason."""
    now = store.begin_head("late")().store_time
    assert now is not None
    with pytest.raises(RequestExpired):
        store.put("late", b"", expiry=RequestExpiry(now - 60, 30))
    assert store.begin_head("late")().info is None
