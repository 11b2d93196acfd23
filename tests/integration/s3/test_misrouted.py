"""An ingress that responds "404 page not found" instead of the store makes no data disappear."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from commitlog._util.retry import Backoff
from commitlog.aws import AwsOptions
from commitlog.commit import ConditionalStore
from commitlog.commit.probe_report import Kind
from commitlog.errors import PublishIncomplete
from commitlog.outputs import Output
from commitlog.stores.s3.store import S3Store
from commitlog.testing import ManualClock
from commitlog.testing.proxy import Proxy, ProxyFault
from support.commit import proven
from support.servers import Ministack

pytestmark = pytest.mark.servers

INGRESS = "404 page not found\n"


@pytest.fixture
def proxy(ministack: Ministack) -> Iterator[Proxy]:
    """A proxy that acts as the ingress."""
    with Proxy(ministack.endpoint_url) as proxy:
        yield proxy


@pytest.fixture
def output(ministack: Ministack, proxy: Proxy) -> Iterator[Output]:
    """An output behind the ingress, with a job that is committed but not published."""
    with ExitStack() as stack:
        options = AwsOptions(**{**ministack.options, "endpoint_url": proxy.endpoint_url})
        clock, backoff = ManualClock(), Backoff(tries=3)
        url = f"s3://{ministack.new_bucket()}"
        store = S3Store(url, options=options, clock=clock, backoff=backoff)
        stack.callback(store.close)
        writer = ConditionalStore(
            store, probe_report=proven(*Kind, url=url), clock=clock, backoff=backoff, mode="native"
        )
        output = Output(writer, "out", clock=clock, backoff=backoff)
        job = output.begin("job")
        file = output.stage(job, job.file_name(0), b"rows")
        proxy.inject(ProxyFault(kind="PUBLISH", action="answer", status=503, times=3))
        with pytest.raises(PublishIncomplete):
            output.commit(job, [file])
        yield output


def _answer_once(proxy: Proxy, kind: str, path: str) -> None:
    proxy.inject(ProxyFault(kind=kind, path=path, action="answer", status=404, body=INGRESS))


def test_a_job_whose_pending_entry_gets_a_404_is_still_published(output: Output, proxy: Proxy) -> None:
    """Earlier, the job counted as published, and ``_SUCCESS`` said so."""
    _answer_once(proxy, "GET", "/pending/")
    (file,) = output.snapshot().files
    assert output.watermark() == 1
    assert output.store.get(output.locate(file)).data == b"rows"


def test_a_record_that_gets_a_404_is_still_read(output: Output, proxy: Proxy) -> None:
    """Earlier, readers got an older version."""
    _answer_once(proxy, "GET", "/_commitlog/0")
    assert output.snapshot().version == 1


def test_an_upload_that_gets_a_404_is_not_lost(output: Output, proxy: Proxy) -> None:
    """Earlier, the file was reported as lost, unless a HEAD found it."""
    _answer_once(proxy, "PUBLISH", "/out/")
    _answer_once(proxy, "HEAD", "/out/part-")
    output.recover(older_than=0)
    assert output.watermark() == 1
