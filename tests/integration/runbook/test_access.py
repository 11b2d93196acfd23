"""Wrong clocks, expired credentials and changed stores, from the runbook."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import commitlog
from commitlog.commit.probe_report import ProbeReport
from commitlog.commit.record import LEASE_SCHEMA
from commitlog.errors import (
    AccessDenied,
    AlreadyExists,
    JobAborted,
    JobAlreadyCommitted,
    NotFound,
    NotSupported,
    PublishIncomplete,
)
from commitlog.outputs import Output
from commitlog.tables.open import open_table
from commitlog.testing.proxy import Proxy, ProxyFault
from support.killed_driver import audit_rows, drive, open_place
from support.runbook import at
from support.servers import Juicefs, Ministack, Seaweedfs, Server

DAY = 86_400.0

#: The answer of S3 to a request with temporary credentials that have expired.
EXPIRED = (
    '<?xml version="1.0" encoding="UTF-8"?><Error><Code>ExpiredToken</Code>'
    "<Message>The provided token has expired.</Message></Error>"
)


@pytest.mark.servers
@pytest.mark.parametrize("direction", ["ahead of", "behind"])
def test_clock_of_a_client_wrong(seaweedfs: Seaweedfs, direction: str) -> None:
    """The store refuses everything from it, so nothing changes."""
    bucket = seaweedfs.new_bucket()
    client = seaweedfs.client("s3")
    client.put_object(Bucket=bucket, Key="a", Body=b"1")
    names = {"s3://bucket": f"s3://{bucket}", "ahead of": direction}
    with at("clock-of-a-client-wrong", names, server=seaweedfs) as operator:
        offset = DAY if direction == "ahead of" else -DAY
        operator.clock.advance(offset)
        operator.looks()
        assert operator.runs("commitlog put /dev/null s3://bucket/a").exit_code == 1
        assert client.get_object(Bucket=bucket, Key="a")["Body"].read() == b"1"
        operator.clock.advance(-offset)
        operator.does()


def test_a_wrong_clock_in_a_directory_makes_jobs_run_again(tmp_path: Path) -> None:
    """A recovery takes the job of another machine for dead. No row is lost, and none is there twice."""
    place = {"url": f"file://{tmp_path}/lake", "options": {}}
    with open_place(place) as store:
        output = Output(store, "out")
        job = output.begin("slow")
        staged = [output.stage(job, job.file_name(0), b"rows", rows=1)]
        names = {"s3://bucket": f"file://{tmp_path}/lake"}
        operator = at("clock-of-a-client-wrong", names)
        operator.clock.advance(2 * DAY)
        assert "aborted" in operator.runs("commitlog output recover s3://bucket/out").output
        with pytest.raises(JobAborted):
            output.commit(job, staged)
        drive(store, "slow")
        audit_rows(store, ["slow"])


@contextmanager
def expiring(server: Ministack, place: dict[str, Any], kind: str, path: str = "") -> Iterator[Any]:
    """Yield the same place, where the credentials have expired for a kind of request, and a proxy."""
    with Proxy(server.endpoint_url) as proxy:
        proxy.inject(
            ProxyFault(kind=kind, action="answer", path=path, status=400, body=EXPIRED, times=10_000)
        )
        options = {**place["options"], "endpoint_url": proxy.endpoint_url}
        yield {**place, "options": options}, proxy


@pytest.mark.servers
def test_credentials_expired_in_the_middle(ministack: Ministack) -> None:
    """Before the commit point nothing happened. After it, the job is completed, and is there once."""
    bucket, table = ministack.new_bucket(), f"dynamodb://{ministack.new_table_name()}"
    place = {"url": f"s3://{bucket}", "options": ministack.options, "table": table}
    place["table_options"] = ministack.options
    with open_place(place) as store:
        drive(store, "first")
    leases = {"COMMITLOG_TABLE": table, "COMMITLOG_COMMIT": "lease"}
    names = {"s3://bucket": f"s3://{bucket}"}
    with at("credentials-expired-in-the-middle", names, server=ministack, **leases) as operator:
        with expiring(ministack, place, "PUT", "part-00001") as (expired, _):
            with open_place(expired) as store, pytest.raises(AccessDenied) as denied:
                drive(store, "late")
            operator.sees(denied.value, 0)
        with expiring(ministack, place, "PUBLISH") as (expired, _):
            with open_place(expired) as store, pytest.raises(PublishIncomplete) as incomplete:
                drive(store, "late")
            operator.sees(incomplete.value, 1)
        with expiring(ministack, place, "S3") as (_, proxy):
            operator.env["AWS_ENDPOINT_URL_S3"] = proxy.endpoint_url
            operator.looks()
        operator.env["AWS_ENDPOINT_URL_S3"] = ministack.endpoint_url
        operator.checks()
        operator.does()
    with open_place(place) as store:
        with pytest.raises(JobAlreadyCommitted):
            drive(store, "late")
        Output(store, "out").recover(older_than=0)
        audit_rows(store, ["first", "late"])


class Gateway:
    """A TCP gateway in front of a store, which can be moved to another one under the same address."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._target = 0
        self._threads: list[threading.Thread] = []

    @property
    def endpoint_url(self) -> str:
        """The URL for clients."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def lead_to(self, server: Server) -> None:
        """Let new connections reach a server."""
        self._target = int(server.endpoint_url.rpartition(":")[2])

    def serve(self) -> None:
        """Accept connections until the listener is closed."""
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                for ends in ((client, server), (server, client)):
                    threading.Thread(target=self._copy, args=ends, daemon=True).start()

    @staticmethod
    def _copy(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def close(self) -> None:
        """Stop listening."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.mark.all
@pytest.mark.servers
def test_probe_report_outdated(
    ministack: Ministack, juicefs: Juicefs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bucket moves to a store that ignores preconditions: one write of two is lost until the probe."""
    bucket, table = ministack.new_bucket(), f"sqlite://{tmp_path}/leases.db"
    juicefs.client("s3").create_bucket(Bucket=bucket)
    with closing(open_table(table, LEASE_SCHEMA)) as opened:
        opened.create()
    report = tmp_path / "probe.json"
    with closing(Gateway()) as gateway:
        serving = threading.Thread(target=gateway.serve, daemon=True)
        serving.start()

        def winners(key: str, **leases: str) -> int:
            """Return how many of four writers create the same object."""
            start = threading.Barrier(4)
            known = ProbeReport.from_json(report.read_text())

            def create(number: int) -> bool:
                with commitlog.connect(f"s3://{bucket}", probe_report=known, **leases) as store:
                    with suppress(NotFound):
                        store.head(key)  # connects
                    start.wait()
                    with suppress(AlreadyExists):
                        store.put_if_absent(key, b"%d" % number)
                        return True
                    return False

            with ThreadPoolExecutor(4) as executor:
                return sum(executor.map(create, range(4)))

        names = {
            "s3://bucket": f"s3://{bucket}",
            "dynamodb://commits": table,
            "probe.json": str(report),
        }
        env = {"AWS_ENDPOINT_URL_S3": gateway.endpoint_url}
        with at("probe-report-outdated", names, server=juicefs, **env) as operator:
            for name, value in operator.env.items():
                monkeypatch.setenv(name, value)
            gateway.lead_to(ministack)
            operator.runs("commitlog probe s3://bucket/scratch --only put-if-absent --json > probe.json")
            assert winners("before") == 1
            gateway.lead_to(juicefs)
            assert winners("during") > 1
            operator.looks()
            operator.does()
        with pytest.raises(NotSupported):
            winners("refused")
        assert winners("after", table=table) == 1
    serving.join()
