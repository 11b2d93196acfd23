"""Drivers that are killed with SIGKILL at given steps, over stores that outlive them; then an audit.

As a program, this module is the driver: it stops at the given step, reports that, and waits to be
killed.
"""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commitlog.commit.conditional import ConditionalStore
from commitlog.commit.record import LEASE_SCHEMA
from commitlog.commit.settings import LeaseSettings
from commitlog.errors import JobAlreadyCommitted
from commitlog.outputs import Output
from commitlog.stores.open import open_store
from commitlog.tables.open import open_table
from support.outputs import Hook, HookedStore, audit, check_invariants, perform, visible
from support.project import environment
from support.selection import with_all, with_all_but
from support.servers import Ministack

FILES = 3
ROWS_PER_FILE = 5

#: The steps of a driver, in order: the mutation to stop at, how many such mutations come before it, and
#: whether the job is committed then. Recovery must keep a committed job. None means that it depends on
#: whether the driver stops before or after the step.
STEPS = {
    "a file is begun": ("begin_stage", 1, False),
    "a file is staged": ("finish", 1, False),
    "the commit is prepared": ("pending", 0, False),
    "the commit record is written": ("record", 0, None),
    "the first file is published": ("publish", 0, True),
    "the last file is published": ("publish", FILES - 1, True),
    "the pending entry is removed": ("delete", 0, True),
    "_SUCCESS is written": ("success", 0, True),
}


def step_of(name: str, path: str) -> str:
    """Return the name of a mutation in `STEPS`."""
    if name != "put":
        return name
    if path.endswith("_SUCCESS"):
        return "success"
    return "pending" if "/pending/" in path else "record"


def rows(job: str) -> list[str]:
    """Return the input of a job."""
    return [f"{job} {number}" for number in range(FILES * ROWS_PER_FILE)]


def drive(store: ConditionalStore, job_id: str) -> None:
    """Write the input of `job_id` to the output, as several files of lines."""
    output = Output(store, "out")
    job = output.begin(job_id)
    lines = rows(job_id)
    files = []
    for task in range(FILES):
        part = lines[task::FILES]
        # The audit looks for job and attempt in every file.
        body = "\n".join([f"{job_id} {job.attempt}", *part]).encode()
        files.append(output.stage(job, job.file_name(task, suffix=".txt"), body, rows=len(part)))
    output.commit(job, files)


def audit_rows(store: ConditionalStore, jobs: list[str]) -> None:
    """Check that every row of `jobs` exists exactly once, and that there are no other rows."""
    assert [record.job_id for record in audit(store)] == jobs
    found = [line for data in visible(store).values() for line in data.decode().splitlines()[1:]]
    assert sorted(found) == sorted(row for job in jobs for row in rows(job))


def open_place(place: dict[str, Any], hook: Hook = perform) -> ConditionalStore:
    """Open a place that is described by JSON, with a hook into its mutations."""
    store = HookedStore(open_store(place["url"], **place["options"]), hook)
    if "table" not in place:
        return ConditionalStore(store)
    table = open_table(place["table"], LEASE_SCHEMA, **place["table_options"])
    table.create()
    settings = LeaseSettings(timeout=6.0, max_clock_skew_rate=1.0)
    return ConditionalStore(store, table=table, mode="lease", settings=settings)


def kill_at(place: dict[str, Any], step: str, when: str) -> None:
    """Start a driver, wait until it stops at the step, and kill it."""
    arguments = json.dumps({"place": place, "step": step, "when": when})
    with subprocess.Popen(
        [sys.executable, "-m", "integration.s3.test_outputs_sigkill", arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as driver:
        try:
            assert driver.stdout is not None
            assert driver.stdout.readline() == "here\n"
        finally:
            driver.kill()
    assert driver.returncode == -signal.SIGKILL


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


def main(place: dict[str, Any], step: str, when: str) -> None:
    """Run a driver that stops at a step."""
    wanted, before, _ = STEPS[step]
    count = 0

    def stop(name: str, path: str, mutation: Callable[[], Any]) -> Any:
        nonlocal count
        here = step_of(name, path) == wanted
        count += here
        if not here or count != before + 1:
            return mutation()
        if when == "after":
            mutation()
        print("here", flush=True)
        sys.stdin.read()
        raise AssertionError("the driver should have been killed")

    with open_place(place, stop) as store:
        drive(store, "killed")


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
