#!/usr/bin/env python
"""Time to read the operation log of a namespace, and to restore the namespace from it.

    ./run bench log [--quick] [--entries N] [--latency MS ...] [--json FILE]

Both are measured with one thread and with 16 threads. The log is in a local directory, and in SeaweedFS
on loopback behind a proxy that adds latency to each request. The table is in memory, and so is the
content of the files, which is never read. So the time is spent on the log. With one thread, entries are
read one after the other.

Ratios are times with 16 threads divided by times with one thread: `read_16_over_1_directory`,
`restore_16_over_1_seaweedfs_30ms`, and so on.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import boto3
from measure import cost_of, versions
from servers import Seaweedfs

from commitlog.commit import ConditionalStore
from commitlog.namespace import NAMESPACE_SCHEMA, Namespace, Restorer
from commitlog.oplog import OperationLog
from commitlog.stores.api import ObjectStore
from commitlog.stores.memory import MemoryStore
from commitlog.stores.open import open_store
from commitlog.tables.open import open_table
from commitlog.testing.proxy import Proxy

LOG = "log"

#: Files per directory.
_TOGETHER = 100

_THREADS = (1, 16)


def _made(entries: int) -> MemoryStore:
    """Return a store with the log of a namespace of `entries` files, each created by its own change."""
    store = MemoryStore()
    log = OperationLog(ConditionalStore(store), LOG)
    table = open_table("memory://", NAMESPACE_SCHEMA)
    table.create()
    lake = Namespace(table, store, "lake", log=log)
    lake.create()
    for number in range(entries):
        lake.write(f"directory-{number // _TOGETHER:05}/part-{number:07}", b"rows")
    return store


def _copy_log(made: MemoryStore, store: ObjectStore) -> None:
    with ThreadPoolExecutor(16) as executor:

        def copy(path: str) -> None:
            store.put(path, made.get(path).data)

        for _ in executor.map(copy, [info.path for info in made.list(f"{LOG}/")]):
            pass


def _measured(made: MemoryStore, store: ObjectStore, threads: int) -> dict[str, float]:
    opened = partial(ThreadPoolExecutor, threads) if threads > 1 else None
    log = OperationLog(ConditionalStore(store), LOG, open_executor=opened)

    def restore() -> None:
        table = open_table("memory://", NAMESPACE_SCHEMA)
        table.create()
        done = Restorer(table=table, store=made, log=log, name="lake").restore(read_only=True)
        assert not done.lost

    def read() -> None:
        for _ in log.history():
            pass

    figures: dict[str, float] = {}
    for name, work in (("read", read), ("restore", restore)):
        cost = cost_of(work)
        figures |= {f"{name}_seconds": round(cost.wall, 3), f"{name}_cpu_seconds": round(cost.cpu, 3)}
    return figures


@contextmanager
def _seaweedfs(server: Seaweedfs, bucket: str, latency: float) -> Iterator[ObjectStore]:
    session = boto3.Session(
        aws_access_key_id=server.access_key_id, aws_secret_access_key=server.secret_access_key
    )
    with Proxy(server.endpoint_url, latency={"S3": latency / 1000}) as proxy:
        url = f"s3://{bucket}?endpoint_url={proxy.endpoint_url}&region={server.region}"
        store = open_store(url, session=session)
        try:
            yield store
        finally:
            store.close()


def measure_log(entries: int, latencies: Sequence[float]) -> Iterator[dict[str, Any]]:
    """Yield the times of each store with each number of threads.

    Args:
        entries: number of entries of the log.
        latencies: latencies of a request to SeaweedFS, in milliseconds.
    """
    made = _made(entries)
    with tempfile.TemporaryDirectory(prefix="log-") as name:
        local = open_store(f"file://{Path(name) / 'store'}")
        _copy_log(made, local)
        for each in _THREADS:
            yield {"store": "directory", "threads": each, **_measured(made, local, each)}
        local.close()
    with Seaweedfs() as server:
        bucket = server.new_bucket()
        with _seaweedfs(server, bucket, 0) as store:
            _copy_log(made, store)
        for latency in latencies:
            with _seaweedfs(server, bucket, latency) as store:
                what = f"seaweedfs_{latency:g}ms"
                for each in _THREADS:
                    yield {"store": what, "threads": each, **_measured(made, store, each)}


def ratios_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the times with many threads divided by those with one, by store."""
    one, many = ({row["store"]: row for row in rows if row["threads"] == n} for n in _THREADS)
    return {
        f"{work}_16_over_1_{store}": round(many[store][time_of] / one[store][time_of], 3)
        for store in one
        for work, time_of in (("read", "read_seconds"), ("restore", "restore_seconds"))
    }


def main() -> None:
    """Run the benchmark, and print a row for each store and number of threads."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few entries; rough figures in a minute")
    parser.add_argument("--entries", type=int, help="default: 10000; with --quick 300")
    parser.add_argument("--latency", type=float, nargs="*", default=[0, 30], help="milliseconds")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write ratios and figures")
    given = parser.parse_args()
    entries = given.entries or (300 if given.quick else 10_000)
    rows = []
    for row in measure_log(entries, given.latency):
        print(time.strftime("%H:%M:%S"), row, file=sys.stderr, flush=True)
        rows.append(row)
    found = {
        "ratios": ratios_of(rows),
        "entries": entries,
        "rows": rows,
        "versions": versions("commitlog-store"),
    }
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=1))
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
