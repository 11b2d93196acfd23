"""A process that appends rows to a Lance table, one commit for each, and reports what each became.

Run as ``python -m support.lance_writer``, with a `Job` as JSON on its standard input. It prints the
numbers of the rows by outcome.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from attrs import asdict, field, frozen

__all__ = ["Job", "append"]


@frozen(kw_only=True)
class Job:
    """The work of one process.

    Attributes:
        way: ``namespace``, ``lock`` or ``plain``, which is Lance without this library.
        root: URL of the store.
        location: for ``lock`` and ``plain``, the URI of the table.
        options: for ``namespace``, the arguments of `CommitlogNamespace`; else Lance's storage options.
        leases: for ``lock``, the URL of the table of leases.
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

    def dump(self) -> str:
        """Return the job as JSON."""
        return json.dumps(asdict(self))


def append(job: Job) -> dict[str, list[int]]:
    """Append the rows, each until it is committed or its result is unknown.

    A commit that gave up because of other writers is repeated: it added nothing.
    """
    import lance
    import pyarrow as pa

    where = _target(job)
    outcomes: dict[str, list[int]] = {"committed": [], "unknown": []}
    for number in range(job.rows):
        rows = pa.table({"writer": [job.writer], "number": [number]})
        while True:
            try:
                lance.write_dataset(rows, mode="append", **where)
            except OSError as error:
                if "unknown" in str(error):
                    outcomes["unknown"].append(number)
                    break
                if "onflict" not in str(error) and "concurrent" not in str(error):
                    raise
            else:
                outcomes["committed"].append(number)
                break
    return outcomes


def _target(job: Job) -> dict[str, Any]:
    if job.way == "namespace":
        from commitlog.lance import CommitlogNamespace

        namespace = CommitlogNamespace(job.root, **job.options)
        return {"namespace_client": namespace, "table_id": ["race"]}
    where: dict[str, Any] = {"uri": job.location, "storage_options": dict(job.options)}
    if job.way == "lock":
        from commitlog.lance import commit_lock

        where["commit_lock"] = commit_lock(job.location, table=job.leases)
    return where


if __name__ == "__main__":
    print(json.dumps(append(Job(**json.load(sys.stdin)))))
