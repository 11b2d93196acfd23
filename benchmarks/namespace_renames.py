"""Time to rename a directory, by number of files, compared with s3fs on the same server.

Directories of all sizes are in one namespace and move back and forth between two directories. Each round
renames all of them in shuffled order.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from attrs import frozen
from measure import ratio
from namespace_sites import Site, fill
from servers import Ministack, Seaweedfs

from commitlog.namespace import Namespace

__all__ = ["RenameSizes", "measure_renames", "measure_s3fs"]

BODY = b"x" * 256
_STORERS = 8


@frozen(kw_only=True)
class RenameSizes:
    """Sizes of the measurement.

    Attributes:
        files: numbers of files of the directories, the smallest first.
        rounds: how often each directory is renamed.
        s3fs_files: the same for the directories that s3fs renames.
        s3fs_rounds: how often s3fs renames each directory; once if it has more than a thousand files.
    """

    files: Sequence[int]
    rounds: int
    s3fs_files: Sequence[int]
    s3fs_rounds: int


def measure_renames(
    site: Site, lake: Namespace, sizes: RenameSizes, say: Callable[[str], None]
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Measure renames in a namespace; return one row for each size, and the ratios."""
    for files in sizes.files:
        say(f"renames, {site.kind}: making a directory of {files} files")
        fill(lake, f"here/{files}", files)
    lake.make_directory("there")
    say(f"renames, {site.kind}: {sizes.rounds} rounds")
    times: dict[int, list[float]] = {files: [] for files in sizes.files}
    order = list(sizes.files)
    shuffler = random.Random(1)
    ways = ("here", "there")
    for turn in range(-1, sizes.rounds):
        shuffler.shuffle(order)
        for files in order:
            source, target = (f"{way}/{files}" for way in (ways if turn % 2 else ways[::-1]))
            seconds = _timed(partial(lake.rename, source, target))
            if turn >= 0:  # The first round is not counted.
                times[files].append(seconds)
    rows = [{"site": site.kind, **_row("namespace", files, times[files])} for files in sizes.files]
    least = sizes.files[0]
    ratios = {
        f"rename_{files}_over_{least}{_suffix(site)}": round(ratio(times[files], times[least]), 3)
        for files in sizes.files[1:]
    }
    return rows, ratios


def _suffix(site: Site) -> str:
    return "" if site.kind == "dynamodb" else f"_{site.kind}"


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _row(way: str, files: int, times: Sequence[float]) -> dict[str, Any]:
    row: dict[str, Any] = {"way": way, "files": files, "rounds": len(times)}
    row["median_ms"] = round(1e3 * statistics.median(times), 2)
    if len(times) > 1:
        row["p90_ms"] = round(1e3 * statistics.quantiles(times, n=10, method="inclusive")[-1], 2)
    return row


def measure_s3fs(
    server: Ministack | Seaweedfs, sizes: RenameSizes, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Measure renames of directories with s3fs; return one row for each size.

    A rename is a recursive copy and a recursive removal, as in `S3FileSystem.mv`. `mv` itself fails if a
    directory has no object of its own.
    """
    from s3fs import S3FileSystem

    kind = type(server).__name__.lower()
    rows = []
    for files in sizes.s3fs_files:
        say(f"renames, s3fs on {kind}: {files} files")
        bucket = server.new_bucket()
        _store(server, bucket, files)
        system = S3FileSystem(
            key=server.access_key_id,
            secret=server.secret_access_key,
            endpoint_url=server.endpoint_url,
            client_kwargs={"region_name": server.region},
            use_listings_cache=False,
            skip_instance_cache=True,
        )
        rounds = 1 if files > 1000 else sizes.s3fs_rounds
        times = []
        for turn in range(rounds):
            source, target = f"{bucket}/{turn}", f"{bucket}/{turn + 1}"
            times.append(_timed(partial(_move, system, source, target)))
            assert (_count(server, target), _count(server, source)) == (files, 0)
        rows.append({"site": kind, **_row("s3fs", files, times)})
    return rows


def _move(system: Any, source: str, target: str) -> None:
    system.copy(source, target, recursive=True)
    system.rm(source, recursive=True)


def _count(server: Ministack | Seaweedfs, directory: str) -> int:
    """Return how many objects a directory has, as the server lists them."""
    bucket, _, prefix = directory.partition("/")
    pages = (
        server.client("s3").get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"{prefix}/")
    )
    return sum(page["KeyCount"] for page in pages)


def _store(server: Ministack | Seaweedfs, bucket: str, files: int) -> None:
    client = server.client("s3")
    with ThreadPoolExecutor(_STORERS) as pool:
        stored = pool.map(
            lambda number: client.put_object(Bucket=bucket, Key=f"0/part-{number:06}", Body=BODY),
            range(files),
        )
        for _ in stored:
            pass
