"""Cost of Spark jobs on S3, by committer: seconds, requests and copied bytes.

All committers run in one Spark application, through S3A, on a SeaweedFS behind a proxy that adds the
latency of a network to each request and records it.
"""

from __future__ import annotations

import random
import statistics
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from attrs import frozen
from measure import kind_of, ratio, requests_of
from s3a_spark import COMMITTERS, CommitTimes, S3aWriter, settings_of, start_on_s3a
from servers import Seaweedfs

import commitlog
from commitlog.outputs import Output
from commitlog.testing.proxy import Proxy

__all__ = ["AIMS", "LATENCY", "S3aJob", "S3aSizes", "Shape", "measure_s3a", "s3a_ratios"]

#: Seconds of latency that the proxy adds to each request.
LATENCY = 0.020

#: Spark's task slots. Tasks mostly wait for requests, so these are more than the machine has cores.
SLOTS = 16

#: Targets, for the largest of the ratios by number of files.
AIMS = {
    "s3a_job_over_magic": "<= 1.0",
    "s3a_commit_over_magic": "<= 0.7",
    "s3a_requests_over_magic": "<= 0.8",
    "s3a_job_over_v1": "<= 0.3",
}

#: Ratio, the value that it compares, and the two committers.
_RATIOS = (
    ("s3a_job_over_magic", "job", "listed", "magic"),
    ("s3a_commit_over_magic", "commit", "listed", "magic"),
    ("s3a_requests_over_magic", "requests", "listed", "magic"),
    ("s3a_job_over_v1", "job", "listed", "file v1"),
    ("s3a_job_over_magic_in_memory", "job", "listed", "magic in memory"),
    ("s3a_commit_over_magic_in_memory", "commit", "listed", "magic in memory"),
    ("s3a_requests_over_magic_in_memory", "requests", "listed", "magic in memory"),
    ("s3a_logged_job_over_magic", "job", "logged", "magic"),
    ("s3a_logged_commit_over_magic", "commit", "logged", "magic"),
    ("s3a_logged_requests_over_magic", "requests", "logged", "magic"),
)


@frozen
class Shape:
    """The shape of a job.

    Attributes:
        files: number of its files.
        partitions: number of files that each task writes, one to each partition. With one, there are no
            partition columns.
    """

    files: int
    partitions: int = 1

    def __str__(self) -> str:
        return f"{self.files}_partitioned" if self.partitions > 1 else str(self.files)


@frozen(kw_only=True)
class S3aSizes:
    """Sizes of the measurement.

    Attributes:
        rounds: measured jobs of each committer, by shape.
        v1_rounds: the same for FileOutputCommitter v1, at most. It takes a third of a second for each
            file, because it renames one after the other.
        warm_up: the number of files of each job before the measured ones.
    """

    rounds: Mapping[Shape, int]
    v1_rounds: Mapping[Shape, int]
    warm_up: Sequence[int]


@frozen(kw_only=True)
class S3aJob:
    """The cost of a job on S3.

    Attributes:
        job: seconds of the whole job, as the caller sees them.
        commit: seconds of the job commit, as Spark logs them.
        kinds: its requests by kind.
        copied: bytes that the server copied.
    """

    job: float
    commit: float
    kinds: Counter[str]
    copied: int

    @property
    def requests(self) -> int:
        """The number of its requests."""
        return self.kinds.total()


_Costs = dict[tuple[Shape, str], list[S3aJob]]


def measure_s3a(
    sizes: S3aSizes, say: Callable[[str], None]
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Measure all of it, and report progress to `say`; return the figures and the ratios."""
    with (
        tempfile.TemporaryDirectory(prefix="s3a-", ignore_cleanup_errors=True) as scratch,
        Seaweedfs() as server,
        Proxy(server.endpoint_url, latency={"S3": LATENCY}) as proxy,
    ):
        times = CommitTimes(Path(scratch))
        buckets = {committer.name: server.new_bucket() for committer in COMMITTERS}
        spark = start_on_s3a(
            f"local[{SLOTS}]",
            Path(scratch),
            settings_of(server, proxy, COMMITTERS, buckets),
            times.java_option,
        )
        try:
            writers = [S3aWriter(spark, each, buckets[each.name]) for each in COMMITTERS]
            costs = _Bench(server, proxy, times, writers, say).run(sizes)
        finally:
            spark.stop()
    return {
        "ratios": s3a_ratios(costs),
        "latency_seconds": LATENCY,
        "slots": SLOTS,
        # This store has the condition If-None-Match. There are no requests to a table.
        "commit_mode": "native",
        "jobs": _figures(costs),
    }


class _Bench:
    """Writes jobs and collects their costs."""

    def __init__(
        self,
        server: Seaweedfs,
        proxy: Proxy,
        times: CommitTimes,
        writers: Sequence[S3aWriter],
        say: Callable[[str], None],
    ) -> None:
        self._server = server
        self._proxy = proxy
        self._times = times
        self._writers = writers
        self._say = say
        self._random = random.Random(1)

    def run(self, sizes: S3aSizes) -> _Costs:
        """Let each committer write a job in every round, in shuffled order."""
        for number, files in enumerate(sizes.warm_up, 1):
            self._say(f"warming up, {number} of {len(sizes.warm_up)}")
            self._round(self._writers, Shape(files), f"warm-up-{number}")
        costs: _Costs = {}
        for shape, rounds in sizes.rounds.items():
            for turn in range(rounds):
                self._say(f"{shape} files, round {turn + 1} of {rounds}")
                with_v1 = turn < sizes.v1_rounds.get(shape, 0)
                writers = [each for each in self._writers if with_v1 or each.name != "file v1"]
                for name, cost in self._round(writers, shape, f"{shape}-{turn}").items():
                    costs.setdefault((shape, name), []).append(cost)
        return costs

    def _round(self, writers: Sequence[S3aWriter], shape: Shape, path: str) -> dict[str, S3aJob]:
        order = list(writers)
        self._random.shuffle(order)
        costs = {}
        for writer in order:
            costs[writer.name] = cost = self._once(writer, shape, path)
            if shape.files >= 1_000:
                self._say(f"  {writer.name}: {cost.job:.1f} s, commit {cost.commit:.1f} s")
        return costs

    def _once(self, writer: S3aWriter, shape: Shape, path: str) -> S3aJob:
        frame = writer.session.range(0, shape.files, 1, shape.files // shape.partitions)
        partition_by = []
        if shape.partitions > 1:
            frame = frame.selectExpr("id", f"id % {shape.partitions} as part")
            partition_by = ["part"]
        write = partial(writer.write, frame, path, partition_by=partition_by)
        seconds, requests = requests_of(write, self._proxy)
        stored = self._stored(writer.bucket, path)
        self._check(writer, path, shape.files, stored)
        of_name = {key.rpartition("/")[2]: size for key, size in stored.items()}
        return S3aJob(
            job=seconds,
            commit=self._times.seconds()[-1],
            kinds=Counter(map(kind_of, requests)),
            # A file keeps its name when it is renamed.
            copied=sum(
                of_name.get(request.rpartition("/")[2], 0)
                for request in requests
                if request.startswith("COPY ")
            ),
        )

    def _stored(self, bucket: str, path: str) -> dict[str, int]:
        """Return the size of each object below a path, by key; past the proxy."""
        pages = self._server.client("s3").get_paginator("list_objects_v2")
        return {
            each["Key"]: each["Size"]
            for page in pages.paginate(Bucket=bucket, Prefix=f"{path}/")
            for each in page.get("Contents", ())
        }

    def _check(self, writer: S3aWriter, path: str, files: int, stored: Mapping[str, int]) -> None:
        names = [key.removeprefix(f"{path}/") for key, size in stored.items() if size]
        shown = sum(not name.startswith(("_", ".")) for name in names)
        wanted = 0 if writer.hidden else files
        assert shown == wanted, f"{writer.name} shows {shown} of {wanted} files"
        if writer.logged:
            options: dict[str, Any] = self._server.options
            with commitlog.connect(f"s3://{writer.bucket}", **options) as store:
                found = len(Output(store, path).snapshot(roll_forward=False).files)
            assert found == files, f"{writer.name} has {found} of {files} files in its log"


def _figures(costs: _Costs) -> list[dict[str, Any]]:
    shapes = list(dict.fromkeys(shape for shape, _ in costs))
    cells = [
        (shape, committer.name, costs[shape, committer.name])
        for shape in shapes
        for committer in COMMITTERS
        if (shape, committer.name) in costs
    ]
    return [
        {
            "job": str(shape),
            "files": shape.files,
            "tasks": shape.files // shape.partitions,
            "committer": name,
            "rounds": len(jobs),
            "job_seconds": round(statistics.median(job.job for job in jobs), 3),
            "commit_seconds": round(statistics.median(job.commit for job in jobs), 3),
            "requests": round(statistics.median(job.requests for job in jobs)),
            "requests_by_kind": {
                kind: round(statistics.median(job.kinds[kind] for job in jobs), 1)
                for kind in sorted(set().union(*(job.kinds for job in jobs)))
            },
            "bytes_copied": round(statistics.median(job.copied for job in jobs)),
        }
        for shape, name, jobs in cells
    ]


def s3a_ratios(costs: _Costs) -> dict[str, float]:
    """Return each ratio by shape, and under its plain name the largest of these."""
    ratios: dict[str, float] = {}
    shapes = list(dict.fromkeys(shape for shape, _ in costs))
    for name, value, mine, others in _RATIOS:
        found = {
            shape: round(_ratio(value, costs[shape, mine], costs[shape, others]), 3)
            for shape in shapes
            if (shape, mine) in costs and (shape, others) in costs
        }
        if found:
            ratios[name] = max(found.values())
            ratios |= {f"{name}_{shape}": value for shape, value in found.items()}
    return ratios


def _ratio(value: str, mine: Sequence[S3aJob], others: Sequence[S3aJob]) -> float:
    rounds = min(len(mine), len(others))
    return ratio(
        [getattr(job, value) for job in mine[:rounds]], [getattr(job, value) for job in others[:rounds]]
    )
