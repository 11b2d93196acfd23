"""Writers of one output that compete through an unreliable network: their calls, and the audit.

As a program, this module is a process that writes jobs with Dask. It prints each outcome. On request it
kills itself with SIGKILL at a step of the commit of its last job.
"""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import pyarrow.parquet as pq

from commitlog import connect
from commitlog.errors import CommitError, JobAlreadyCommitted
from commitlog.outputs import Output
from commitlog.testing.proxy import Hazard
from support.outputs import check_invariants, visible
from support.project import environment

__all__ = ["HAZARDS", "DaskDriver", "Outcome", "audit", "rows_of", "write_jobs"]

#: Faults of the requests for the output's records and for the completion of uploads, many of them after
#: the server has acted.
HAZARDS = (
    Hazard(kinds=("PUT",), action="drop_response", rate=0.1, path="_commitlog/0"),
    Hazard(kinds=("PUT",), action="fail", rate=0.05, path="_commitlog"),
    Hazard(kinds=("GET",), action="drop_response", rate=0.03, path="_commitlog/0"),
    Hazard(kinds=("complete upload",), action="drop_response", rate=0.1, path="part-"),
)

#: Whether a job was reported as committed.
Outcome: TypeAlias = Literal["done", "open"]

#: The rows of a job, and how often a job is run until it is done.
ROWS, TRIES = 4, 8


def rows_of(job_id: str, writer: str) -> dict[str, list[Any]]:
    """Return the columns of the rows that a writer has for a job."""
    return {"job": [job_id] * ROWS, "writer": [writer] * ROWS, "v": list(range(ROWS))}


def write_jobs(write: Callable[[str], object], jobs: Iterable[str]) -> dict[str, Outcome]:
    """Write each job, again under its id after an error; return whether it was reported as committed."""
    outcomes: dict[str, Outcome] = {}
    for job_id in jobs:
        outcomes[job_id] = "open"
        for _ in range(TRIES):
            try:
                write(job_id)
            except JobAlreadyCommitted:
                pass
            except CommitError:
                continue
            outcomes[job_id] = "done"
            break
    return outcomes


def audit(url: str, options: Mapping[str, Any], outcomes: Iterable[Mapping[str, Outcome]]) -> None:
    """Check that each job is there whole, of one writer, or not at all, and reported ones are there.

    No attempt may be running.
    """
    with connect(url, **options) as store:
        output = Output(store)
        output.recover(older_than=0)
        check_invariants(store, "")
        assert not list(store.list_staged())
        files = output.snapshot().files
        assert visible(store, "").keys() == {file.path for file in files}
        found: dict[str, list[tuple[str, int]]] = {}
        for file in files:
            data = store.get(output.locate(file)).data
            for row in pq.read_table(io.BytesIO(data)).to_pylist():
                found.setdefault(row["job"], []).append((row["writer"], row["v"]))
    for job_id, rows in found.items():
        (writer,) = {each for each, _ in rows}
        assert sorted(rows) == [(writer, number) for number in range(ROWS)], job_id
    for each in outcomes:
        assert {job_id for job_id, outcome in each.items() if outcome == "done"} <= found.keys()


class DaskDriver:
    """A process that writes jobs with Dask.

    Args:
        url: URL of the output.
        options: arguments of `connect`.
        name: the name of the writer.
        jobs: the ids of its jobs.
        dies: the step of the commit of the last job at which it kills itself; None: it does not.
    """

    def __init__(
        self,
        url: str,
        options: Mapping[str, Any],
        name: str,
        jobs: Sequence[str],
        *,
        dies: Literal["before", "after"] | None = None,
    ) -> None:
        self._dies = dies
        settings = json.dumps([url, dict(options), name, list(jobs), dies])
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "support.dataset_race", settings],
            stdout=subprocess.PIPE,
            text=True,
            env=environment(),
        )

    def __enter__(self) -> DaskDriver:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def wait(self) -> dict[str, Outcome]:
        """Wait for its end; return the outcomes that it reported."""
        assert self._process.stdout is not None
        outcomes = {}
        for line in self._process.stdout:
            outcomes |= json.loads(line)
        assert self._process.wait() == (0 if self._dies is None else -signal.SIGKILL)
        return outcomes


def _die(when: str) -> None:
    commit = Output.commit

    def die(*arguments: Any, **options: Any) -> Any:
        if when == "after":
            commit(*arguments, **options)
        os.kill(os.getpid(), signal.SIGKILL)

    Output.commit = die  # type: ignore[method-assign, assignment]


def main(
    url: str,
    options: dict[str, Any],
    name: str,
    jobs: list[str],
    dies: Literal["before", "after"] | None,
) -> None:
    """Write the jobs, and print the outcome of each."""
    import dask.dataframe as dd
    import pandas as pd

    from commitlog.dask import to_commitlog

    def write(job_id: str) -> None:
        to_commitlog(
            dd.from_pandas(pd.DataFrame(rows_of(job_id, name)), npartitions=2),
            url,
            job_id=job_id,
            storage_options=options,
            compute_kwargs={"scheduler": "threads"},
        )

    for job_id in jobs:
        if dies is not None and job_id == jobs[-1]:
            _die(dies)
        print(json.dumps(write_jobs(write, [job_id])), flush=True)


if __name__ == "__main__":
    main(*json.loads(sys.argv[1]))
