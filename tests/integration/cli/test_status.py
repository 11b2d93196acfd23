"""The command ``commitlog status``, on a directory and on tables in SQLite files."""

from __future__ import annotations

import gc
import hashlib
import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from prometheus_client.openmetrics.parser import text_string_to_metric_families

import commitlog
import commitlog.cli.status
from commitlog.cli import main
from commitlog.cli.connection import Connection
from commitlog.outputs import Output
from commitlog.stores.local.store import LocalStore
from commitlog.tables.api import Table, TableSchema
from commitlog.testing import ManualClock
from support.outputs import add_job, stage_some
from support.servers import Ministack
from support.status_site import Site, new_site


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """Targets that need no attention."""
    return new_site(tmp_path)


def files(root: Path) -> dict[str, str]:
    """Return the content of all files, but for SQLite's own."""
    return {
        str(file): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in root.rglob("*")
        if file.is_file() and not file.name.endswith(("-wal", "-shm"))
    }


def test_nothing_needs_attention(site: Site) -> None:
    """The status is 0, each target is described, and no file changes."""
    before = files(site.root)
    done = site.run(*site.urls)
    assert done.exit_code == 0, done.output
    assert done.stdout.count("nothing needs attention") == 4
    assert "1 files" in done.stdout
    kinds = [record["kind"] for record in site.records(*site.urls, "--full", status=0)]
    assert kinds == ["output", "namespace", "leases", "ingest"]
    assert files(site.root) == before


def test_each_target_can_need_attention(site: Site) -> None:
    """The status is 1, and each finding comes with its command."""
    site.dead_job()
    site.deleted_directory()
    site.late_lease()
    site.late_file()
    now = ("--older-than", "0", "--stale-after", "0", "--max-lag", "0")
    found = {
        record["kind"]: {finding["kind"] for finding in record["findings"]}
        for record in site.records(*site.urls, *now, status=1)
    }
    assert found["output"] == {"dead-job", "abandoned-uploads"}
    assert found["namespace"] == {"trash"}
    assert found["leases"] == {"overdue-lease"}
    assert found["ingest"] == {"ingest-lag"}
    done = site.run(*site.urls, *now)
    assert done.exit_code == 1
    assert "commitlog namespace gc names" in done.stdout
    assert f"commitlog lease break {site.leases} k" in done.stdout
    [source] = site.records(site.ingest, status=0)[0]["sources"]
    assert (source["source"], source["backlog"]["oldest"]) == ("s", "late")


def test_a_finding_ends_with_its_command(site: Site) -> None:
    """The printed command can be run as it is."""
    site.dead_job()
    [record] = site.records(site.output, "--older-than", "0", status=1)
    commands = {finding["command"] for finding in record["findings"]}
    for command in commands:
        words = command.split()[1:]
        assert CliRunner().invoke(main, words).exit_code == 0, command
    assert site.records(site.output, "--older-than", "0", status=0)[0]["findings"] == []


def test_a_failed_look(site: Site) -> None:
    """The status is 2, and the other targets are still shown."""
    done = site.run(
        f"{site.root}/none", f"sqlite://{site.root}/none.db", "commitlog://none", site.output
    )
    assert done.exit_code == 2
    assert done.stdout.count("nothing needs attention") == 1
    assert done.stderr.count("commitlog: ") == 3
    assert not (site.root / "none.db").exists()
    assert site.run("commitlog://names/a").exit_code == 2
    assert site.run(site.output, "--json", "--openmetrics").exit_code == 2
    assert site.run("s3://bucket/out?secret_access_key=geheim").exit_code == 2


@pytest.mark.parametrize(
    "url",
    [
        "s3://bucket/out?secret_access_key=geheim",
        "s3://me:geheim@bucket/out",
        "s3://bucket/out?endpoint_url=http://me:geheim@127.0.0.1:1",
        "dynamodb://table?session_token=geheim&region=us-east-1",
        "dynamodb://table?endpoint_url=http://me:geheim@127.0.0.1:1",
    ],
)
@pytest.mark.parametrize("option", ["--json", "--openmetrics", "--full"])
def test_credentials_of_a_url_are_not_printed(site: Site, url: str, option: str) -> None:
    """Neither the error nor the metrics of a failed look have them."""
    done = site.run(url, option)
    assert done.exit_code == 2
    assert url.partition("://")[0] in done.stderr
    assert "geheim" not in done.output


def test_openmetrics(site: Site) -> None:
    """Prometheus's own parser accepts the metrics; a failed look is 0."""
    site.dead_job()
    done = site.run(*site.urls, f"{site.root}/none", "--older-than", "0", "--openmetrics")
    assert done.exit_code == 2
    parsed = text_string_to_metric_families(done.stdout)  # type: ignore[no-untyped-call]
    samples = {family.name: family.samples for family in parsed}
    up = {each.labels["url"]: each.value for each in samples["commitlog_status_up"]}
    assert sorted(up.values()) == [0, 1, 1, 1, 1]
    dead = [
        each.value
        for each in samples["commitlog_status_findings"]
        if each.labels["finding"] == "dead-job" and "out" in each.labels["url"]
    ]
    assert dead == [1]


def test_metrics_of_a_target_are_not_printed_twice(site: Site) -> None:
    """Two URLs of it would be two values of one metric, which Prometheus refuses."""
    done = site.run(site.output, f"{site.output}/", "--openmetrics")
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"two URLs are those of file://{site.output}/" in done.stderr


def test_watch(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks again after each pause, and sees what has changed, until it is interrupted."""

    class Clock(ManualClock):
        def sleep(self, seconds: float) -> None:
            assert seconds == 30
            if self.monotonic() >= 60:
                raise KeyboardInterrupt
            site.dead_job()
            super().sleep(seconds)

    monkeypatch.setattr(commitlog.cli.status, "SystemClock", Clock)
    done = site.run(site.output, "--watch", "30", "--older-than", "0", "--json")
    assert done.exit_code == 130
    attempts = [len(json.loads(line)["attempts"]) for line in done.stdout.splitlines()]
    assert attempts == [0, 1, 2]


def test_watch_keeps_no_store_of_an_input(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look opens the input of a source, and nothing of it is left after the look."""
    alive: list[int] = []

    class Clock(ManualClock):
        def sleep(self, seconds: float) -> None:
            gc.collect()
            alive.append(sum(isinstance(each, LocalStore) for each in gc.get_objects()))
            if len(alive) == 5:
                raise KeyboardInterrupt
            super().sleep(seconds)

    monkeypatch.setattr(commitlog.cli.status, "SystemClock", Clock)
    assert site.run(site.ingest, "--watch", "30", "--json").exit_code == 130
    assert len(set(alive)) == 1


def test_watch_opens_a_missing_table_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look fails, until the table is there."""
    opened: list[str] = []
    real = Connection.open_table

    def open_table(self: Connection, url: str, schema: TableSchema) -> Table:
        opened.append(url)
        return real(self, url, schema)

    class Clock(ManualClock):
        def sleep(self, seconds: float) -> None:
            if self.monotonic() >= 90:
                raise KeyboardInterrupt
            if self.monotonic() >= 60:
                assert CliRunner().invoke(main, ["table", "create", missing]).exit_code == 0
                opened.pop()
            super().sleep(seconds)

    missing = f"sqlite://{site.root}/missing.db"
    monkeypatch.setattr(commitlog.cli.status, "SystemClock", Clock)
    monkeypatch.setattr(Connection, "open_table", open_table)
    done = site.run(missing, "--watch", "30", "--json")
    assert done.exit_code == 130
    assert done.stderr.count("TableNotFound") == 3
    assert json.loads(done.stdout)["kind"] == "leases"
    assert opened == [missing]


@pytest.mark.servers
def test_an_output_on_s3_with_leases_in_dynamodb(
    site: Site, ministack: Ministack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Uploads of a dead job, and a lease, are found through the services' own interfaces."""
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY"):
        monkeypatch.setenv(f"AWS_{name}", "test")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    bucket, table = ministack.new_bucket(), f"dynamodb://{ministack.new_table_name()}"
    service = {"endpoint_url": ministack.endpoint_url, "region": "us-east-1"}
    with commitlog.connect(f"s3://{bucket}/out", **service) as store:
        output = Output(store)
        add_job(output, "a", 0)
        stage_some(output, output.begin("dead"))
    options = ("--endpoint-url", ministack.endpoint_url, "--region", "us-east-1")
    assert CliRunner().invoke(main, ["table", "create", table, *options]).exit_code == 0
    words = (f"s3://{bucket}/out", table, *options)
    assert [record["kind"] for record in site.records(*words, status=0)] == ["output", "leases"]
    [found, leases] = site.records(*words, "--older-than", "0", status=1)
    counts = {finding["kind"]: finding["count"] for finding in found["findings"]}
    assert counts == {"dead-job": 1, "abandoned-uploads": 2}
    assert (found["version"], found["files"], leases["format"]) == (1, 1, 1)
    assert leases["findings"] == []
