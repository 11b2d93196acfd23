"""States of leases and outputs, from the runbook: what the page shows, does, and says about the loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from commitlog import ConditionalStore
from commitlog.commit.record import LEASE_SCHEMA
from commitlog.commit.settings import LeaseSettings
from commitlog.errors import LeaseTimeout
from commitlog.outputs import Output
from commitlog.stores.open import open_store
from commitlog.tables.open import open_table
from support.killed_driver import audit_rows, drive, kill_at, open_place
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


@pytest.mark.servers
def test_dead_lease_holder(ministack: Ministack) -> None:
    """A driver is killed while it holds the lease of its commit record: S3 and DynamoDB."""
    bucket, table = ministack.new_bucket(), f"dynamodb://{ministack.new_table_name()}"
    place = {"url": f"s3://{bucket}", "options": ministack.options, "table": table}
    place["table_options"] = ministack.options
    with open_place(place) as store:
        drive(store, "first")
    kill_at(place, "the commit record is written", "before")
    with at("dead-lease-holder", {"dynamodb://commits": table}, server=ministack) as operator:
        settings = LeaseSettings(timeout=6.0, max_clock_skew_rate=1.0, max_wait=0.1)
        with ConditionalStore(
            open_store(f"s3://{bucket}", **ministack.options),
            table=open_table(table, LEASE_SCHEMA, **ministack.options),
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
