#!/usr/bin/env python
"""What it takes to read the operation log of a namespace, and to restore the namespace from it.

    python benchmarks/log_reading.py [--entries N] [--threads N ...] [--latency MS ...] [--json FILE]

The log is in a local directory, and in SeaweedFS on loopback, behind a proxy that adds a latency to
each request. The table, and the content of the files, which nobody reads, are in memory: so it is the
log that takes the time. With one thread, entries are read one after the other.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import boto3
from measure import cost_of, versions

from commitlog.commit import ConditionalStore
from commitlog.namespace import NAMESPACE_SCHEMA, Namespace, Restorer
from commitlog.oplog import OperationLog
from commitlog.stores.api import ObjectStore
from commitlog.stores.memory import MemoryStore
from commitlog.stores.open import open_store
from commitlog.tables.open import open_table
from commitlog.testing.proxy import Proxy
from commitlog.testing.servers import Seaweedfs

LOG = "log"

#: Files of a directory.
_TOGETHER = 100


def _made(entries: int) -> MemoryStore:
    """Return a store with the log of a namespace of so many files, each created by itself."""
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
    log = OperationLog(ConditionalStore(store), LOG, threads=opened)

    def restore() -> None:
        table = open_table("memory://", NAMESPACE_SCHEMA)
        table.create()
        done = Restorer(table=table, store=made, log=log, name="lake").restore()
        assert not done.lost

    def read() -> None:
        for _ in log.history():
            pass

    figures: dict[str, float] = {}
    for name, work in (("read", read), ("restore", restore)):
        cost = cost_of(work)
        figures |= {f"{name}_seconds": round(cost.wall, 1), f"{name}_cpu_seconds": round(cost.cpu, 1)}
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


def _rows(entries: int, threads: Sequence[int], latencies: Sequence[float]) -> Iterator[dict[str, Any]]:
    made = _made(entries)
    with tempfile.TemporaryDirectory(prefix="log-") as name:
        local = open_store(f"file://{Path(name) / 'store'}")
        _copy_log(made, local)
        for each in threads:
            yield {"store": "directory", "threads": each, **_measured(made, local, each)}
        local.close()
    with Seaweedfs() as server:
        bucket = server.new_bucket()
        with _seaweedfs(server, bucket, 0) as store:
            _copy_log(made, store)
        for latency in latencies:
            with _seaweedfs(server, bucket, latency) as store:
                what = f"seaweedfs, {latency:g} ms"
                for each in threads:
                    yield {"store": what, "threads": each, **_measured(made, store, each)}


def main() -> None:
    """Measure, and print a row for each store and number of threads."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--entries", type=int, default=10_000)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--latency", type=float, nargs="*", default=[0, 30], help="milliseconds")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    rows = []
    for row in _rows(given.entries, given.threads, given.latency):
        print(time.strftime("%H:%M:%S"), row, file=sys.stderr, flush=True)
        rows.append(row)
    found = {"entries": given.entries, "rows": rows, "versions": versions("commitlog-store")}
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=1))
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
