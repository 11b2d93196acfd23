"""Time to publish a job of many files: through a namespace, and as an output.

In both cases the tasks have already stored the files on one server, and a proxy adds the latency of a
network. The measured time starts when all tasks are done, and ends when the files are visible to all
readers.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any

from attrs import frozen
from measure import ratio
from namespace_sites import Site, dynamodb_site
from servers import Ministack

import commitlog
from commitlog.namespace import Data
from commitlog.outputs import Job, Output, StagedFile, Visibility
from commitlog.testing.proxy import Proxy

__all__ = ["LATENCY", "PublishSizes", "measure_publishing"]

#: Seconds of latency that the proxy adds to each request.
LATENCY = {"S3": 0.020, "DynamoDB": 0.005}

#: Shards of the directory that a job fills. As many transactions run at once.
SHARDS = 16

#: Publishing threads of the driver.
_THREADS = 16

BODY = b"x" * 256


@frozen(kw_only=True)
class PublishSizes:
    """Sizes of the measurement: files of the job, and how often each way publishes one."""

    files: int
    rounds: int


def measure_publishing(
    sizes: PublishSizes, say: Callable[[str], None]
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Measure all ways; return one row for each way, and the ratios."""
    rows: list[dict[str, Any]] = []
    for turn in range(sizes.rounds):
        # Each round has its own server, because a server with more objects lists more slowly.
        with (
            Ministack() as server,
            Proxy(server.endpoint_url, latency=LATENCY) as proxy,
            ThreadPoolExecutor(_THREADS) as pool,
        ):
            for shards in (1, SHARDS):
                say(f"publishing {sizes.files} files, namespace, {shards} shards, round {turn + 1}")
                site = dynamodb_site(server, proxy.endpoint_url)
                rows.append(_by_namespace(site, server, sizes.files, shards, pool))
            for visibility in ("listed", "logged"):
                say(f"publishing {sizes.files} files, output, {visibility}, round {turn + 1}")
                rows.append(_by_output(server, proxy, visibility, sizes.files, pool))
    times = {
        way: [row["seconds"] for row in rows if row["way"] == way]
        for way in dict.fromkeys(row["way"] for row in rows)
    }
    ways = {"": "listed output", "_logged": "logged output"}
    size = "" if sizes.files == 10_000 else f"_{sizes.files}_files"
    ratios = {
        f"publish{size}_namespace_over_outputs{end}": round(
            ratio(times[f"namespace, {SHARDS} shards"], times[way]), 3
        )
        for end, way in ways.items()
    }
    return [_median(rows, way) for way in times], ratios


def _median(rows: Sequence[dict[str, Any]], way: str) -> dict[str, Any]:
    mine = [row for row in rows if row["way"] == way]
    names = [name for name in mine[0] if name.endswith("seconds")]
    return mine[0] | {name: round(statistics.median(row[name] for row in mine), 3) for name in names}


def _by_namespace(
    site: Site, server: Ministack, files: int, shards: int, pool: Executor
) -> dict[str, Any]:
    lake = site.create(log=True)
    lake.make_directory("table")
    contents = _store(server, lake.store.url, files, pool)
    start = time.perf_counter()
    lake.make_directory("staging", shards=shards)
    lake.bulk_link("staging", contents, executor=pool)
    linked = time.perf_counter()
    lake.rename("staging", "table/job")
    end = time.perf_counter()
    assert sum(1 for _ in lake.list("table/job")) == files
    lake.close()
    return {
        "way": f"namespace, {shards} shards" if shards > 1 else "namespace, 1 shard",
        "files": files,
        "seconds": end - start,
        "commit_point_seconds": end - linked,
    }


def _store(server: Ministack, url: str, files: int, pool: Executor) -> dict[str, Data]:
    """Store a job's files as its tasks would, but without the proxy."""
    bucket = url.removeprefix("s3://").partition("?")[0].rstrip("/")
    options: dict[str, Any] = server.options
    with commitlog.connect(f"s3://{bucket}", commit="native", **options) as direct:

        def store(number: int) -> tuple[str, Data]:
            name = f"part-{number:06}"
            result = direct.object_store.put(f"tasks/{name}", BODY)
            return name, Data(path=result.path, size=len(BODY), etag=result.etag)

        return dict(pool.map(store, range(files)))


def _by_output(
    server: Ministack, proxy: Proxy, visibility: Visibility, files: int, pool: Executor
) -> dict[str, Any]:
    url = f"s3://{server.new_bucket()}"
    options: dict[str, Any] = server.options
    with commitlog.connect(url, commit="native", **options) as store:
        job, staged = _stage(Output(store, "out"), visibility, files, pool)
    slow = options | {"endpoint_url": proxy.endpoint_url}
    with commitlog.connect(url, commit="native", **slow) as store:
        output = Output(store, "out", executor=pool)
        output.snapshot()  # Open the connection.
        start = time.perf_counter()
        output.commit(job, staged)
        end = time.perf_counter()
        assert output.snapshot(roll_forward=False).rows == files
    return {"way": f"{visibility} output", "files": files, "seconds": end - start}


def _stage(
    output: Output, visibility: Visibility, files: int, pool: Executor
) -> tuple[Job, list[StagedFile]]:
    job = output.begin(visibility=visibility)

    def stage(task: int) -> StagedFile:
        return output.stage(job, job.file_name(task, suffix=".bin"), BODY, rows=1)

    return job, list(pool.map(stage, range(files)))
