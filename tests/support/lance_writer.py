"""Processes that append rows to a Lance table, one commit for each, and report what each became.

Run as ``python -m support.lance_writer``, with a list of `Job` as JSON on its standard input. It forks
a process for each, before Lance has any thread, because the imports take seconds.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from attrs import asdict, field, frozen

from commitlog import SqliteCommit
from commitlog.commit.probe_report import Kind
from support.commit import proven

__all__ = ["Job", "Outcomes", "append", "open_namespace", "race"]
if TYPE_CHECKING:
    from commitlog.lance import CommitlogNamespace


#: Numbers of the rows by outcome: ``committed``, ``unknown``, ``failed``; and the texts of ``errors``.
Outcomes: TypeAlias = dict[str, list[Any]]


#: Errors of Lance that say that other writers came first each time.
_GAVE_UP = re.compile("conflict|too many concurrent writers", re.IGNORECASE)


@frozen(kw_only=True)
class Job:
    """The work of one process.

    Attributes:
        way: ``namespace``, ``lock`` or ``plain``, which is Lance without this library.
        root: URL of the store.
        location: for ``lock`` and ``plain``, the URI of the table.
        options: for ``namespace``, the arguments of `CommitlogNamespace`; else Lance's storage options.
        leases: the SQLite file of leases; "" if the store enforces conditions, which is then not probed.
        writer: number of this process, a column of its rows.
        rows: number of rows.
    """

    way: str
    root: str
    location: str = ""
    options: Mapping[str, Any] = field(factory=dict)
    leases: str = ""
    writer: int = 0
    rows: int = 1


def race(jobs: Sequence[Job]) -> list[Outcomes]:
    """Run the jobs at the same time, each in a process, and return the outcomes of the rows of each."""
    source = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-m", "support.lance_writer"],
        input=json.dumps([asdict(job) for job in jobs]),
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(source), str(source.parent)))},
        text=True,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def append(job: Job) -> Outcomes:
    """Append the rows, each until it is committed or its result is unknown.

    A commit that gave up because of other writers is repeated: it added nothing. Another error ends the
    row as failed, and its text is kept.
    """
    import lance
    import pyarrow as pa

    where = _target(job)
    outcomes: Outcomes = {"committed": [], "unknown": [], "failed": [], "errors": []}
    for number in range(job.rows):
        rows = pa.table({"writer": [job.writer], "number": [number]})
        while True:
            try:
                lance.write_dataset(rows, mode="append", **where)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:  # a panic of Lance is no `Exception`
                text = str(error)
                if "is unknown" not in text and _GAVE_UP.search(text):
                    continue
                outcomes["unknown" if "is unknown" in text else "failed"].append(number)
                outcomes["errors"].append(text)
            else:
                outcomes["committed"].append(number)
            break
    return outcomes


def open_namespace(job: Job) -> CommitlogNamespace:
    """Open the namespace, with leases as short as they can be, so that a lost one costs little."""
    from commitlog.lance import CommitlogNamespace

    options: dict[str, Any] = dict(job.options)
    if job.leases:
        options["commit"] = SqliteCommit(job.leases, timeout=3.0, test_interval=0.05)
    else:
        url = f"{job.root}?endpoint_url={options['endpoint_url']}"
        options["probe_report"] = proven(*Kind, url=url)
    return CommitlogNamespace(job.root, **options)


def _target(job: Job) -> dict[str, Any]:
    if job.way == "namespace":
        return {"namespace_client": open_namespace(job), "table_id": ["race"]}
    where: dict[str, Any] = {"uri": job.location, "storage_options": dict(job.options)}
    if job.way == "lock":
        from commitlog.lance import commit_lock

        where["commit_lock"] = commit_lock(job.location, table=f"sqlite://{job.leases}")
    return where


def _main() -> None:
    import lance  # noqa: F401 - before the forks
    import pyarrow  # noqa: F401

    import commitlog.lance  # noqa: F401

    children = []
    for arguments in json.load(sys.stdin):
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            with open(writing, "w") as output:
                json.dump(append(Job(**arguments)), output)
            os._exit(0)
        os.close(writing)
        children.append((child, reading))
    for child, reading in children:
        with open(reading) as answer:
            print(answer.read())
        _, status = os.waitpid(child, 0)
        assert status == 0, f"a writer ended with status {status}"


if __name__ == "__main__":
    _main()
