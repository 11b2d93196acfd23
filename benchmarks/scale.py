"""Cost of a commit when the log is long or a job has many files: CPU time, requests and memory.

The store is in memory and its requests are counted, so no network is needed. As a program, this module
commits one job of FILES files, and prints the cost of its process::

    python benchmarks/scale.py FILES VISIBILITY
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar
from unittest.mock import patch

import psutil
from attrs import frozen

from commitlog._util.request_stats import RequestRecorder
from commitlog.commit import ConditionalStore
from commitlog.namespace import RequestStats
from commitlog.outputs import Job, Output, StagedFile
from commitlog.outputs.checkpoints import INTERVAL
from commitlog.stores.api import ObjectData, PutResult, Staged
from commitlog.stores.body import Body, chunks
from commitlog.stores.counting_store import CountingStore
from commitlog.stores.memory import MemoryStore

__all__ = ["Sizes", "measure_scale"]

T = TypeVar("T")

BODY = b"x" * 256

#: How often each figure of a log is measured.
TURNS = 5


@frozen(kw_only=True)
class Sizes:
    """Sizes of the measurement.

    Attributes:
        logs: lengths of the log, in commits.
        jobs: numbers of files of a job.
    """

    logs: Sequence[int]
    jobs: Sequence[int]


#: The reported name of each counted kind of request.
_KINDS = {
    "store_gets": "GET",
    "store_lists": "LIST",
    "store_puts": "PUT",
    "store_publishes": "complete upload",
    "store_deletes": "DELETE",
}


def _by_log(sizes: Sizes, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Measure jobs of one file, from begin to commit, and snapshots, by length of the log."""
    recorder = RequestRecorder()
    memory = _Measuring()
    store = CountingStore(memory, recorder)
    figures: list[dict[str, Any]] = []
    done = 0

    def opened() -> Output:
        # As in Spark, where the processes that begin and commit a job have no cached state.
        return Output(ConditionalStore(store))

    def begun() -> Output:
        output = opened()
        output.begin("another")
        return output

    def twice_begun() -> Output:
        output = begun()
        output.begin("third")
        return output

    def staged() -> tuple[Job, list[StagedFile]]:
        output = opened()
        job = output.begin()
        return job, [_stage_one(output, job)]

    def run_job(output: Output) -> None:
        _commit_one(opened(), output.begin())

    for commits in sizes.logs:
        say(f"a log of {commits} commits")
        output = opened()
        for number in range(done, commits):
            # The job is built directly, because beginning it would read the log. Only the last
            # checkpoint is needed.
            job = Job(job_id=f"job-{number}", attempt=output.new_attempt(), base=number)
            interval = INTERVAL if number + 1 == commits else sys.maxsize
            with patch("commitlog.outputs.output.INTERVAL", interval):
                _commit_one(output, job)
        row: dict[str, Any] = {"commits": commits}
        measure = partial(_measured, recorder, memory)
        row |= measure("begin", opened, lambda output: output.begin("another"), TURNS)
        row |= measure("begin_second", begun, lambda output: output.begin("third"), TURNS)
        row |= measure("begin_again", twice_begun, lambda output: output.begin("fourth"), TURNS)
        row |= measure("snapshot", opened, lambda output: output.snapshot(), TURNS)
        # As many as there are from one checkpoint to the next.
        row |= measure("commit", staged, lambda job: opened().commit(*job), INTERVAL)
        figures.append(row | measure("job", opened, run_job, INTERVAL))
        done = commits + 2 * INTERVAL
    return figures


def _stage_one(output: Output, job: Job) -> StagedFile:
    return output.stage(job, job.file_name(0, suffix=".bin"), BODY, rows=1)


def _commit_one(output: Output, job: Job) -> None:
    output.commit(job, [_stage_one(output, job)])


class _Measuring(MemoryStore):
    """Counts the bytes that it sends and receives, those of uploads excepted."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes_read = self.bytes_written = 0

    def get(self, path: str, **options: Any) -> ObjectData:
        found = super().get(path, **options)
        self.bytes_read += len(found.data)
        return found

    def put(self, path: str, body: Body, **options: Any) -> PutResult:
        data = b"".join(chunks(body))
        self.bytes_written += len(data)
        return super().put(path, data, **options)


def _measured(
    recorder: RequestRecorder,
    memory: _Measuring,
    name: str,
    prepare: Callable[[], T],
    step: Callable[[T], object],
    turns: int,
) -> dict[str, Any]:
    """Return the average CPU time, requests and bytes of a step, without those of its preparation."""
    times, read, written = [], 0, 0
    requests: Counter[str] = Counter()
    for _ in range(turns):
        prepared = prepare()
        before = RequestStats.of("", recorder.counts()).total
        memory.bytes_read = memory.bytes_written = 0
        start = time.process_time()
        step(prepared)
        times.append(time.process_time() - start)
        counts = RequestStats.of("", recorder.counts()).total - before
        requests.update({kind: getattr(counts, count) for count, kind in _KINDS.items()})
        read += memory.bytes_read
        written += memory.bytes_written
    return {
        f"{name}_milliseconds": round(statistics.mean(times) * 1000, 2),
        f"{name}_bytes_read": round(read / turns),
        f"{name}_bytes_written": round(written / turns),
        f"{name}_requests": {k: round(n / turns, 1) for k, n in sorted(requests.items()) if n},
    }


def _by_files(sizes: Sizes, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Measure commits of jobs by number of files, each in its own process."""
    figures: list[dict[str, Any]] = []
    for files in sizes.jobs:
        for visibility in ("listed", "logged"):
            say(f"a job of {files} files, {visibility}")
            command = [sys.executable, __file__, str(files), visibility]
            figures.append(json.loads(subprocess.check_output(command)))
    return figures


def measure_scale(sizes: Sizes, say: Callable[[str], None]) -> dict[str, Any]:
    """Measure all of it, and report progress to `say`."""
    return {"log": _by_log(sizes, say), "jobs": _by_files(sizes, say)}


class _Accepting(MemoryStore):
    """Accepts every upload as present and published, so that only the driver is measured."""

    def publish(self, staged: Staged, **_: Any) -> PutResult:
        return PutResult(path=staged.path, etag=staged.nonce)


def _staged(job: Job, files: int) -> list[StagedFile]:
    """Return the results of tasks with `files` files in all, with statistics of six columns."""
    top = "_commitlog/data/" if job.visibility == "logged" else ""
    columns = [f"column_{number}" for number in range(6)]
    return [
        StagedFile(
            staged=Staged(
                path=f"{top}part={n % 7}/{job.file_name(n, suffix='.parquet')}",
                upload_id=f"{n:032x}",
                size=n,
                nonce=f"{n:032x}",
            ),
            rows=n,
            partition={"part": str(n % 7)},
            stats=dict.fromkeys(columns, (n, n + 1, 0)),
        )
        for n in range(files)
    ]


def _commit_many(files: int, visibility: Any) -> dict[str, Any]:
    output = Output(ConditionalStore(_Accepting()))
    job = output.begin(visibility=visibility)
    process = psutil.Process()
    before = process.memory_info().rss
    staged = _staged(job, files)
    told = process.memory_info().rss
    peak, over = told, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not over.wait(0.005):
            peak = max(peak, process.memory_info().rss)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        start = time.process_time()
        output.commit(job, staged)
        seconds = time.process_time() - start
    finally:
        over.set()
        watcher.join()
    return {
        "files": files,
        "visibility": visibility,
        "cpu_seconds": round(seconds, 3),
        "told_megabytes": round((told - before) / 1e6, 1),
        "commit_megabytes": round((peak - told) / 1e6, 1),
    }


if __name__ == "__main__":
    print(json.dumps(_commit_many(int(sys.argv[1]), sys.argv[2])))
