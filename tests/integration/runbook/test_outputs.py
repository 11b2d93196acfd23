"""States of leases and outputs, from the runbook: what the page shows, does, and says about the loss."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from commitlog import ConditionalStore
from commitlog.commit.record import LEASE_SCHEMA
from commitlog.commit.settings import LeaseSettings
from commitlog.errors import (
    CorruptRecord,
    LeaseTimeout,
    PublishIncomplete,
    StateMismatch,
    TableNotFound,
)
from commitlog.outputs import Job, Output, StagedFile
from commitlog.stores.open import open_store
from commitlog.tables.api import Key
from commitlog.tables.open import open_table
from support.killed_driver import audit_rows, drive, kill_at, open_place, rows
from support.outputs import visible
from support.runbook import Operator, at
from support.servers import Ministack

DAY = 86_400.0


def in_directory(path: Path) -> dict[str, Any]:
    """Return a local store with the output of a job, as `open_place` opens it."""
    place = {"url": f"file://{path}/lake", "options": {}}
    with open_place(place) as store:
        drive(store, "first")
    return place


def operator_of(anchor: str, place: dict[str, Any], *, days: float = 2) -> Operator:
    """Return an operator who looks at the output some days later."""
    operator = at(anchor, {"s3://bucket/out": f"{place['url']}/out"})
    operator.clock.advance(days * DAY)
    return operator


def on_server(server: Ministack) -> dict[str, Any]:
    """Return a bucket, and a table of leases, with the output of a job."""
    place = {
        "url": f"s3://{server.new_bucket()}",
        "options": server.options,
        "table": f"dynamodb://{server.new_table_name()}",
        "table_options": server.options,
    }
    with open_place(place) as store:
        drive(store, "first")
    return place


def lines_of(files: Iterable[bytes]) -> list[str]:
    """Return the rows of files that `drive` wrote, sorted."""
    return sorted(line for data in files for line in data.decode().splitlines()[1:])


@pytest.mark.servers
def test_dead_lease_holder(ministack: Ministack) -> None:
    """A driver is killed while it holds the lease of its commit record."""
    place = on_server(ministack)
    kill_at(place, "the commit record is written", "before")
    names = {"dynamodb://commits": place["table"]}
    with at("dead-lease-holder", names, server=ministack) as operator:
        settings = LeaseSettings(timeout=6.0, max_clock_skew_rate=1.0, max_wait=0.1)
        with ConditionalStore(
            open_store(place["url"], **ministack.options),
            table=open_table(place["table"], LEASE_SCHEMA, **ministack.options),
            mode="lease",
            settings=settings,
        ) as store:
            with pytest.raises(LeaseTimeout) as caught:
                store.put_if_absent("out/_commitlog/00000000000000000002.json", b"")
            operator.sees(caught.value)
            operator.clock.advance(600)
            operator.looks()
            operator.checks()
            operator.does()
            drive(store, "next")  # does not wait
    with open_place(place) as store:
        Output(store, "out").recover(older_than=0)
        audit_rows(store, ["first", "next"])


@pytest.mark.servers
def test_table_of_leases_lost(ministack: Ministack) -> None:
    """The table is deleted between two jobs."""
    place = on_server(ministack)
    names = {"dynamodb://commits": place["table"]}
    with at("table-of-leases-lost", names, server=ministack) as operator:
        name = place["table"].removeprefix("dynamodb://")
        ministack.client("dynamodb").delete_table(TableName=name)
        with (
            ConditionalStore(
                open_store(place["url"], **ministack.options),
                table=open_table(place["table"], LEASE_SCHEMA, **ministack.options),
                mode="lease",
            ) as store,
            pytest.raises(TableNotFound),
        ):
            drive(store, "next")
        operator.looks()
        operator.checks(status=1)
        operator.does()
    with open_place(place) as store:
        Output(store, "out").recover(older_than=0)
        drive(store, "next")
        audit_rows(store, ["first", "next"])


@pytest.mark.servers
@pytest.mark.all
def test_a_backup_of_a_table_of_leases_has_dead_holders(ministack: Ministack) -> None:
    """The page says so: its leases are broken like those of dead holders, and no row is lost."""
    place = on_server(ministack)
    kill_at(place, "the commit record is written", "before")
    with closing(open_table(place["table"], LEASE_SCHEMA, **ministack.options)) as table:
        backup = list(table.scan())
        with open_place(place) as store:
            drive(store, "next")
        for item in list(table.scan()):
            table.delete(Key(str(item["path"]), str(item["etag"])))
        for item in backup:
            table.put(item)
    names = {"dynamodb://commits": place["table"]}
    operator = at("dead-lease-holder", names, server=ministack)
    operator.clock.advance(600)
    operator.looks()
    operator.does()
    with open_place(place) as store:
        Output(store, "out").recover(older_than=0)
        drive(store, "last")
        audit_rows(store, ["first", "next", "last"])


@pytest.mark.servers
def test_lease_record_damaged(ministack: Ministack) -> None:
    """An item is replaced by one of another program; then that key can be written again."""
    place = on_server(ministack)
    names = {"dynamodb://commits": place["table"], "commits": place["table"].removeprefix("dynamodb://")}
    with (
        at("lease-record-damaged", names, server=ministack) as operator,
        open_place(place) as store,
    ):
        item = {"path": "out/x", "etag": "*", "generation": "seven"}
        open_table(place["table"], LEASE_SCHEMA, **ministack.options).put(item)
        operator.looks()
        with pytest.raises(CorruptRecord) as caught:
            store.put_if_absent("out/x", b"1")
        operator.sees(caught.value)
        operator.checks(status=1)
        operator.does()
        store.put_if_absent("out/x", b"1")
        store.delete("out/x")
        audit_rows(store, ["first"])


def test_job_died_before_its_commit(tmp_path: Path) -> None:
    """Its attempt is aborted; the job can run again, and its rows are there once."""
    place = in_directory(tmp_path)
    kill_at(place, "the commit is prepared", "after")
    with operator_of("job-died-before-its-commit", place) as operator:
        operator.looks()
        operator.checks()
        operator.does()
    with open_place(place) as store:
        audit_rows(store, ["first"])
        drive(store, "killed")
        audit_rows(store, ["first", "killed"])


def test_job_committed_but_not_published(tmp_path: Path) -> None:
    """All of its rows are there, once."""
    place = in_directory(tmp_path)
    kill_at(place, "the last file is published", "before")
    with operator_of("job-committed-but-not-published", place) as operator:
        operator.looks()
        operator.checks()
        operator.does()
    with open_place(place) as store:
        audit_rows(store, ["first", "killed"])


def test_uploads_of_a_committed_job_lost(tmp_path: Path) -> None:
    """Its rows are lost, and no others; the job that runs again replaces all of its files."""
    place = in_directory(tmp_path)
    kill_at(place, "the first file is published", "before")
    with open_place(place) as store:
        for upload in store.list_staged():
            store.abort(upload)
    with operator_of("uploads-of-a-committed-job-lost", place) as operator:
        operator.looks()
        with open_place(place) as store:
            output = Output(store, "out")
            with pytest.raises(PublishIncomplete) as caught:
                output.snapshot()
            operator.sees(caught.value)
            operator.checks()

            def write(job: Job) -> list[StagedFile]:
                body = "\n".join([f"{job.job_id} {job.attempt}", *rows("killed")]).encode()
                return [output.stage(job, job.file_name(0, suffix=".txt"), body, rows=15)]

            exec(operator.section.program("Do"), {"output": output, "write": write})
    with open_place(place) as store:
        assert Output(store, "out").recover(older_than=0).lost == ()
        assert lines_of(visible(store).values()) == sorted([*rows("first"), *rows("killed")])


@pytest.mark.servers
def test_uploads_outside_of_outputs(ministack: Ministack) -> None:
    """An upload below an output, of a job in progress, stays."""
    place = on_server(ministack)
    kill_at(place, "a file is staged", "after")
    names = {"s3://bucket": place["url"]}
    with open_place(place) as store:
        store.object_store.stage("raw/x", b"rows")
        with at("uploads-outside-of-outputs", names, server=ministack) as operator:
            operator.looks()
            operator.checks()
            operator.does()
        left = {upload.path for upload in store.list_staged()}
        assert len(left) == 2 and all(path.startswith("out/part-") for path in left)
        Output(store, "out").recover(older_than=0)
        audit_rows(store, ["first"])


def test_checkpoint_of_an_output_lost_or_damaged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Readers see all rows in each case, and the next checkpoint is written in its turn."""
    place = in_directory(tmp_path)
    jobs = ["first", *(f"job-{number}" for number in range(11))]
    with open_place(place) as store:
        for job in jobs[1:]:
            drive(store, job)
        checkpoint = "out/_commitlog/checkpoints/00000000000000000010.jsonl.gz"
        store.object_store.put(checkpoint, b"damaged")
        with operator_of("checkpoint-of-an-output-lost-or-damaged", place) as operator:
            audit_rows(store, jobs)
            operator.sees(caplog.messages[0])
            operator.checks()
            store.delete(checkpoint)
            operator.checks()
        for number in range(11, 19):
            jobs.append(f"job-{number}")
            drive(store, jobs[-1])
        caplog.clear()
        assert store.head("out/_commitlog/checkpoints/00000000000000000020.jsonl.gz")
        audit_rows(store, jobs)
        assert not caplog.messages


def test_manifest_lost(tmp_path: Path) -> None:
    """The output cannot be read through its log until the manifest is back; its files are there."""
    place = {"url": f"file://{tmp_path}/lake", "options": {}}
    with open_place(place) as store:
        output = Output(store, "out")
        job = output.begin("big")
        names = [job.file_name(number, suffix=".txt") for number in range(1001)]
        output.commit(job, [output.stage(job, name, name.encode(), rows=1) for name in names])
        [manifest] = store.list("out/_commitlog/manifests/")
        copy = tmp_path / "copy"
        copy.write_bytes(store.get(manifest.path).data)
        store.delete(manifest.path)
        real = {
            "s3://bucket/out": f"{place['url']}/out",
            "manifest.jsonl.gz": str(copy),
            "MANIFEST.jsonl.gz": manifest.path.rpartition("/")[2],
        }
        with at("manifest-lost", real) as operator:
            with pytest.raises(CorruptRecord) as caught:
                Output(store, "out").snapshot()
            operator.sees(caught.value)
            operator.looks()
            operator.checks()
            assert visible(store) == {name: name.encode() for name in names}
            operator.does()
        assert {file.path for file in Output(store, "out").snapshot().files} == set(names)


@pytest.mark.parametrize("damage", ["lost", "damaged"])
def test_record_of_a_log_lost_or_damaged(tmp_path: Path, damage: str) -> None:
    """Everything is as before when it is back."""
    place = in_directory(tmp_path)
    path = "out/_commitlog/00000000000000000002.json"
    with open_place(place) as store:
        drive(store, "second")
        copy = tmp_path / "copy"
        copy.write_bytes(store.get(path).data)
        if damage == "lost":
            store.delete(path)
        else:
            store.object_store.put(path, store.get(path).data[:100])
        real = {"s3://bucket/out": f"{place['url']}/out", "record.json": str(copy)}
        with at("record-of-a-log-lost-or-damaged", real) as operator:
            with pytest.raises(CorruptRecord) as caught:
                Output(store, "out").snapshot()
            operator.sees(caught.value, ["lost", "damaged"].index(damage))
            operator.has_seen(1 - ["lost", "damaged"].index(damage))
            operator.looks()
            operator.checks(status=0 if damage == "lost" else 1)
            operator.does()
        audit_rows(store, ["first", "second"])


def test_a_last_record_without_a_copy(tmp_path: Path) -> None:
    """Its job runs again; readers of the log see its rows once, and plain readers twice."""
    place = in_directory(tmp_path)
    with open_place(place) as store:
        drive(store, "second")
        store.delete("out/_commitlog/00000000000000000002.json")
        operator = operator_of("record-of-a-log-lost-or-damaged", place)
        assert operator.runs("commitlog rm s3://bucket/out/_SUCCESS").exit_code == 0
        drive(store, "second")
        assert operator.runs("commitlog status s3://bucket/out").exit_code == 0
        output = Output(store, "out")
        of_log = [store.get(output.locate(file)).data for file in output.snapshot().files]
        assert lines_of(of_log) == sorted([*rows("first"), *rows("second")])
        assert lines_of(visible(store).values()) == sorted([*rows("first"), *2 * rows("second")])


def test_output_restored_to_an_earlier_time(tmp_path: Path) -> None:
    """The later job is gone, and can run again; one that was in progress is finished."""
    place = in_directory(tmp_path)
    shutil.copytree(tmp_path / "lake", tmp_path / "backup")
    with open_place(place) as store:
        drive(store, "second")
        position = Output(store, "out").tail().start("latest")
    shutil.rmtree(tmp_path / "lake")
    shutil.copytree(tmp_path / "backup", tmp_path / "lake")
    with (
        open_place(place) as store,
        operator_of("output-restored-to-an-earlier-time", place) as operator,
    ):
        with pytest.raises(StateMismatch) as caught:
            Output(store, "out").tail().advance(position)
        operator.sees(caught.value)
        operator.checks()
        operator.does()
        audit_rows(store, ["first"])
        drive(store, "second")
        audit_rows(store, ["first", "second"])
        with pytest.raises(StateMismatch):  # the new record of the same number is another one
            Output(store, "out").tail().advance(position)


def test_garbage_of_an_output(tmp_path: Path) -> None:
    """The old version is gone, and the current one is complete."""
    place = {"url": f"file://{tmp_path}/lake", "options": {}}
    with open_place(place) as store:
        output = Output(store, "out")
        for number in (1, 2):
            job = output.begin(f"job-{number}", mode="overwrite", visibility="logged")
            output.commit(job, [output.stage(job, job.file_name(0, suffix=".txt"), b"%d" % number)])
        with operator_of("garbage-of-an-output", place, days=8) as operator:
            operator.looks()
            operator.checks()
            operator.does()
        [file] = Output(store, "out").snapshot().files
        assert store.get(output.locate(file)).data == b"2"
        assert [info.path for info in store.list("out/_commitlog/data/")] == [output.locate(file)]
