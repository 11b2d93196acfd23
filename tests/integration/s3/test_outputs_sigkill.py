"""Drivers that are killed with SIGKILL at given steps, over stores that outlive them; then an audit."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from commitlog.errors import JobAlreadyCommitted
from commitlog.outputs import Output
from support.killed_driver import STEPS, audit_rows, drive, kill_at, open_place
from support.outputs import check_invariants
from support.selection import with_all, with_all_but
from support.servers import Ministack


def check_kill(place: dict[str, Any], step: str, when: str) -> None:
    """Kill a driver, check the state for readers, recover, and audit; then run its job again."""
    committed = STEPS[step][2]
    if committed is None:
        committed = when == "after"
    with open_place(place) as store:
        drive(store, "first")
        kill_at(place, step, when)
        check_invariants(store)
        Output(store, "out").recover(older_than=0)
        audit_rows(store, ["first", "killed"] if committed else ["first"])
        try:
            drive(store, "killed")
        except JobAlreadyCommitted:
            assert committed
        audit_rows(store, ["first", "killed"])


@pytest.mark.parametrize(
    ("step", "when"),
    with_all_but(
        lambda step, when: when == "before" or step == "the commit record is written",
        itertools.product(STEPS, ("before", "after")),
    ),
)
def test_a_driver_killed_on_a_directory_loses_and_repeats_no_row(
    tmp_path: Path, step: str, when: str
) -> None:
    """At any step, every row of the job exists once or not at all, and once after a rerun."""
    check_kill({"url": f"file://{tmp_path}/lake", "options": {}}, step, when)


@pytest.mark.servers
@pytest.mark.parametrize(
    ("step", "when"),
    [
        ("a file is staged", "before"),
        with_all("the commit record is written", "before"),
        ("the commit record is written", "after"),
        ("the last file is published", "before"),
        with_all("_SUCCESS is written", "before"),
    ],
)
def test_a_driver_killed_on_s3_and_dynamodb_loses_and_repeats_no_row(
    ministack: Ministack, step: str, when: str
) -> None:
    """Here staged files are multipart uploads, and a dead driver may leave a lease."""
    place = {
        "url": f"s3://{ministack.new_bucket()}/lake",
        "options": ministack.options,
        "table": f"dynamodb://{ministack.new_table_name()}",
        "table_options": ministack.options,
    }
    check_kill(place, step, when)
