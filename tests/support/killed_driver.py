"""A driver of an output that is killed with SIGKILL at a given step, over stores that outlive it.

As a program, this module is the driver: it stops at the given step, reports that, and waits to be
killed.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from commitlog.commit.conditional import ConditionalStore
from commitlog.commit.record import LEASE_SCHEMA
from commitlog.commit.settings import LeaseSettings
from commitlog.outputs import Output
from commitlog.stores.open import open_store
from commitlog.tables.open import open_table
from support.outputs import Hook, HookedStore, audit, perform, visible
from support.project import environment

__all__ = ["STEPS", "audit_rows", "drive", "kill_at", "open_place", "rows"]

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
        [sys.executable, "-m", "support.killed_driver", arguments],
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
