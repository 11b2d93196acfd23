"""Cost of commits on S3: by number of files, and by number of concurrent jobs.

A proxy adds the latency of a network to a server on loopback, and records every request. Preparation
that is not measured bypasses the proxy.
"""

from __future__ import annotations

import random
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import Any

from attrs import evolve, frozen
from measure import kind_of, requests_of
from servers import Ministack

import commitlog
from commitlog.commit.probe import RACERS, probe
from commitlog.outputs import Job, Output, StagedFile, Visibility
from commitlog.stores.open import open_store
from commitlog.tabular import PUBLISHERS
from commitlog.testing.proxy import Proxy

__all__ = ["LATENCY", "Sizes", "measure_commits"]

#: Seconds of latency that the proxy adds to each request to S3.
LATENCY = 0.020

BODY = b"x" * 256
STAGERS = 16

#: Jobs of more files take so long that other load on the machine hardly matters.
MANY = 1_000


@frozen(kw_only=True)
class Sizes:
    """Sizes of the measurement.

    Attributes:
        files: numbers of files of a job.
        threads: numbers of publishing threads of a driver.
        rounds: how often each number of files up to a thousand is measured. Larger ones are measured
            once, and not with the fewest threads.
        drivers: numbers of concurrent drivers, each with one thread.
        groups: numbers of threads of one driver.
        commits: total number of commits of all drivers.
    """

    files: Sequence[int]
    threads: Sequence[int]
    rounds: int
    drivers: Sequence[int]
    groups: Sequence[int]
    commits: int


class _Site:
    """One server behind a slow proxy."""

    def __init__(self, server: Ministack, proxy: Proxy) -> None:
        self._server = server
        self._proxy = proxy
        self._bucket = server.new_bucket()
        options: dict[str, Any] = server.options
        with (
            closing(open_store(f"s3://{self._bucket}", **options)) as store,
            ThreadPoolExecutor(RACERS) as pool,
        ):
            # Probe once, as a table of leases would keep the report; probing is not measured here.
            self._probe_report = probe(store, executor=pool)

    def clear(self) -> None:
        """Go on in a new bucket, because this server lists a bucket with more objects more slowly."""
        self._bucket = self._server.new_bucket()

    def output(
        self,
        *,
        slow: bool = True,
        executor: ThreadPoolExecutor | None = None,
        finisher: ThreadPoolExecutor | None = None,
        share_records: bool = False,
    ) -> Output:
        """Open the output, as a separate driver would."""
        options: dict[str, Any] = self._server.options
        if slow:
            options = options | {"endpoint_url": self._proxy.endpoint_url}
        url = f"s3://{self._bucket}?endpoint_url={options['endpoint_url']}&region={options['region']}"
        # All buckets of a server honour the same conditions, and the proxy does not change them.
        probe_report = evolve(self._probe_report, url=url)
        store = commitlog.connect(f"s3://{self._bucket}", probe_report=probe_report, **options)
        return Output(store, "out", executor=executor, finisher=finisher, share_records=share_records)

    def watch(self, work: Callable[[], object]) -> tuple[float, Counter[str]]:
        """Run `work`; return its duration in seconds, and its requests by kind."""
        seconds, requests = requests_of(work, self._proxy)
        return seconds, Counter(map(kind_of, requests))


def _stage(site: _Site, visibility: Visibility, files: int) -> tuple[Job, list[StagedFile]]:
    output = site.output(slow=False)
    with output.store, ThreadPoolExecutor(STAGERS) as pool:
        job = output.begin(visibility=visibility)

        def stage(task: int) -> StagedFile:
            return output.stage(job, job.file_name(task, suffix=".bin"), BODY, rows=1)

        return job, list(pool.map(stage, range(files)))


def _by_files(site: _Site, sizes: Sizes, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Measure `Output.commit` by number of files and of publishing threads."""
    cells: list[tuple[int, Visibility, int]]
    cells = [
        (files, "listed", threads)
        for files in sizes.files
        for threads in sizes.threads[1 if files > MANY else 0 :]
    ]
    # A logged job publishes no files, so the number of threads does not matter.
    cells += [(files, "logged", sizes.threads[-1]) for files in sizes.files]
    figures = []
    for files, visibility, threads in cells:
        say(f"commit of {files} files, {visibility}, {threads} threads")
        times = []
        for _ in range(1 if files > MANY else sizes.rounds):
            site.clear()
            job, staged = _stage(site, visibility, files)
            with ThreadPoolExecutor(threads) as pool:
                # As in Spark, the job is committed by another process than the one that began it.
                output = site.output(executor=pool)
                with output.store:
                    seconds, requests = site.watch(partial(output.commit, job, staged))
            times.append(seconds)
            _check_files(site, files, listed=visibility == "listed")
        figures.append(
            {
                "visibility": visibility,
                "files": files,
                "threads": threads,
                "seconds": round(statistics.median(times), 4),
                "seconds_per_file": round(statistics.median(times) / files, 6),
                "requests": dict(sorted(requests.items())),
            }
        )
    return figures


def _check_files(site: _Site, files: int, *, listed: bool) -> None:
    output = site.output(slow=False)
    with output.store:
        assert output.snapshot(roll_forward=False).rows == files
        paths = [info.path.removeprefix("out/") for info in output.store.list("out/")]
        shown = [path for path in paths if not path.startswith("_")]
        assert len(shown) == (files if listed else 0)


@frozen(kw_only=True)
class _Shape:
    """How jobs of one file are committed at once.

    Attributes:
        outputs: number of `Output` objects, each as a separate driver has it.
        threads: number of threads of each, which commit one job after the other.
    """

    outputs: int
    threads: int = 1

    @property
    def name(self) -> str:
        """The name of its ratios."""
        return f"grouped_{self.threads}" if self.threads > 1 else str(self.outputs)


def _by_drivers(site: _Site, sizes: Sizes, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Measure committed jobs of one file per second, by number of concurrent drivers and threads.

    The shapes take turns, in an order that is shuffled in each round.
    """
    shapes = [_Shape(outputs=n) for n in sizes.drivers] + [
        _Shape(outputs=1, threads=n) for n in sizes.groups
    ]
    order, shuffle = list(shapes), random.Random(1)
    found: dict[_Shape, list[tuple[float, Counter[str]]]] = {shape: [] for shape in shapes}
    commits = {
        s: max(1, sizes.commits // (s.outputs * s.threads)) * s.outputs * s.threads for s in shapes
    }
    for turn in range(sizes.rounds):
        shuffle.shuffle(order)
        for shape in order:
            say(f"commits by {shape}, round {turn + 1} of {sizes.rounds}")
            site.clear()
            found[shape].append(site.watch(partial(_drive_all, site, shape, commits[shape])))
            _check_files(site, commits[shape], listed=True)
    return [
        {
            "name": shape.name,
            "drivers": shape.outputs,
            "threads": shape.threads,
            "commits": commits[shape],
            "per_second": round(statistics.median(commits[shape] / each[0] for each in found[shape]), 2),
            "requests_per_commit": _mean([each[1] for each in found[shape]], commits[shape]),
        }
        for shape in shapes
    ]


def _mean(counts: Sequence[Counter[str]], commits: int) -> dict[str, float]:
    total: Counter[str] = sum(counts, Counter())
    return {kind: round(n / commits / len(counts), 2) for kind, n in sorted(total.items())}


def _drive_all(site: _Site, shape: _Shape, commits: int) -> None:
    """Commit jobs; at the end, all work is done, and `_SUCCESS` names the last version."""
    each = commits // (shape.outputs * shape.threads)

    def work(output: Output, driver: int, thread: int) -> None:
        for number in range(each):
            _commit_one(output, f"{driver}-{thread}-{number}")

    def drive(driver: int) -> None:
        with (
            ThreadPoolExecutor(1) as finisher,
            ThreadPoolExecutor(PUBLISHERS) as executor,
            ThreadPoolExecutor(shape.threads) as threads,
        ):
            output = site.output(executor=executor, finisher=finisher, share_records=True)
            list(threads.map(partial(work, output, driver), range(shape.threads)))
            finisher.shutdown()
            output.store.close()

    with ThreadPoolExecutor(shape.outputs) as pool:
        list(pool.map(drive, range(shape.outputs)))


def _commit_one(output: Output, job_id: str) -> None:
    job = output.begin(job_id)
    output.commit(job, [output.stage(job, job.file_name(0, suffix=".bin"), BODY, rows=1)])


def measure_commits(sizes: Sizes, say: Callable[[str], None]) -> dict[str, Any]:
    """Measure all of it, and report progress to `say`."""
    with Ministack() as server, Proxy(server.endpoint_url, latency={"S3": LATENCY}) as proxy:
        site = _Site(server, proxy)
        return {
            "commits": _by_files(site, sizes, say),
            "concurrency": _by_drivers(site, sizes, say),
        }
