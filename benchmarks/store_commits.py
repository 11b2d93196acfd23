"""Cost of commits on S3: by number of files, and by number of concurrent jobs.

A proxy adds the latency of a network to a server on loopback, and records every request. Preparation
that is not measured bypasses the proxy.
"""

from __future__ import annotations

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
        drivers: numbers of concurrent jobs.
        commits: total number of commits of all drivers.
    """

    files: Sequence[int]
    threads: Sequence[int]
    rounds: int
    drivers: Sequence[int]
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

    def output(self, *, slow: bool = True, executor: ThreadPoolExecutor | None = None) -> Output:
        """Open the output, as a separate driver would."""
        options: dict[str, Any] = self._server.options
        if slow:
            options = options | {"endpoint_url": self._proxy.endpoint_url}
        url = f"s3://{self._bucket}?endpoint_url={options['endpoint_url']}&region={options['region']}"
        # All buckets of a server honour the same conditions, and the proxy does not change them.
        probe_report = evolve(self._probe_report, url=url)
        store = commitlog.connect(f"s3://{self._bucket}", probe_report=probe_report, **options)
        return Output(store, "out", executor=executor)

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


def _by_drivers(site: _Site, sizes: Sizes, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Measure committed jobs of one file per second, by number of concurrent drivers."""
    figures = []
    for drivers in sizes.drivers:
        say(f"commits by {drivers} drivers at once")
        site.clear()
        commits = max(1, sizes.commits // drivers) * drivers
        seconds, requests = site.watch(partial(_drive_all, site, drivers, commits // drivers))
        _check_files(site, commits, listed=True)
        figures.append(
            {
                "drivers": drivers,
                "commits": commits,
                "per_second": round(commits / seconds, 2),
                "requests_per_commit": {k: round(n / commits, 2) for k, n in sorted(requests.items())},
            }
        )
    return figures


def _drive_all(site: _Site, drivers: int, commits: int) -> None:
    def drive(driver: int) -> None:
        output = site.output()
        with output.store:
            for number in range(commits):
                _commit_one(output, f"{driver}-{number}")

    with ThreadPoolExecutor(drivers) as pool:
        list(pool.map(drive, range(drivers)))


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
