"""Append to one Lance table from several processes: each row is there once.

Run as ``python examples/lance_append.py DIRECTORY``. Give ``s3://bucket/prefix`` in place of a
directory, and a table of leases (``dynamodb://…``) as a second argument if the store does not enforce
preconditions.
"""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import lance
import pyarrow

from commitlog.lance import CommitlogNamespace

TABLE = ["events"]


def append(root: str, leases: str | None, writer: int, count: int) -> int:
    """Append rows, one commit for each. Runs in a separate process. Returns their number."""
    with CommitlogNamespace(root, table=leases) as namespace:
        for number in range(count):
            rows = pyarrow.table({"writer": [writer], "number": [number]})
            lance.write_dataset(rows, mode="append", namespace_client=namespace, table_id=TABLE)
    return count


def main(root: str, leases: str | None = None, *, writers: int = 2, count: int = 5) -> int:
    """Create the table, append to it from several processes, and return the number of its rows."""
    empty = pyarrow.table({"writer": pyarrow.array([], "int64"), "number": pyarrow.array([], "int64")})
    with CommitlogNamespace(root, table=leases) as namespace:
        lance.write_dataset(empty, namespace_client=namespace, table_id=TABLE)
        # Lance has threads, so its processes are not forked.
        with ProcessPoolExecutor(writers, mp_context=get_context("spawn")) as pool:
            jobs = [pool.submit(append, root, leases, number, count) for number in range(writers)]
            appended = sum(job.result() for job in jobs)
        rows: int = lance.dataset(namespace_client=namespace, table_id=TABLE).count_rows()
    print(f"{appended} rows appended, {rows} rows in the table")
    return rows


if __name__ == "__main__":
    main(*sys.argv[1:])
