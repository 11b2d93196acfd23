#!/usr/bin/env python
"""Links of eight threads in a local directory, if the log of a namespace put one object for each batch.

    python benchmarks/log_bound.py [--quick] [--directory DIR] [--json FILE]

A logged change puts its pending entry, and later its decision. Here, no decision is put and no entry is
removed. So these rates are the limit of any protocol that puts one object for each transaction, such as
a transactional outbox. Names are in an SQLite file. In a directory in memory, such as /dev/shm, nothing
waits for a disk.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from measure import print_ratios, ratio, versions
from namespace_sites import created, made_up, sqlite_site

from commitlog._util.ids import random_id
from commitlog.namespace import Namespace
from commitlog.oplog import Decision, Operation, OperationLog

THREADS = 8
WITHOUT, WITH, ONE_OBJECT = "without a log", "with a log", "with one object"


def _decide(log: OperationLog, operation: Operation, decision: Decision, seen: float) -> Decision:
    """Take the place of `OperationLog._decide`."""
    return decision


@contextmanager
def _namespace(case: str, directory: Path) -> Iterator[Namespace]:
    with (
        tempfile.TemporaryDirectory(prefix="bound-", dir=directory) as scratch,
        created(sqlite_site(Path(scratch)), log=case != WITHOUT) as lake,
    ):
        lake.make_directory("new")
        if case == ONE_OBJECT:
            with patch.object(OperationLog, "_decide", _decide):
                yield lake
        else:
            yield lake


def links_per_second(lake: Namespace, seconds: float) -> float:
    """Return the number of links a second of all threads together."""
    made = [0] * THREADS
    began = time.perf_counter()

    def link(thread: int) -> None:
        while time.perf_counter() < began + seconds:
            name = random_id()
            lake.link(f"new/{name}", made_up(name), parents=False)
            made[thread] += 1

    threads = [threading.Thread(target=link, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(made) / (time.perf_counter() - began)


def main() -> None:
    """Measure all cases in rounds, in a shuffled order."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    parser.add_argument("--directory", type=Path, help="where to put the namespaces")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to put the figures")
    arguments = parser.parse_args()
    directory = arguments.directory or Path(tempfile.gettempdir())
    rounds, seconds = (3, 0.5) if arguments.quick else (7, 1.5)

    rates: dict[str, list[float]] = {WITHOUT: [], WITH: [], ONE_OBJECT: []}
    for _ in range(rounds):
        for case in random.sample(list(rates), len(rates)):
            with _namespace(case, directory) as lake:
                links_per_second(lake, seconds / 4)  # the first ones create directories
                rates[case].append(links_per_second(lake, seconds))
    for case, found in rates.items():
        print(f"{case:<16} {statistics.median(found):8.0f} links a second")
    ratios = {
        "link_with_log_over_without": ratio(rates[WITH], rates[WITHOUT]),
        "link_with_one_object_over_without": ratio(rates[ONE_OBJECT], rates[WITHOUT]),
    }
    print_ratios("ratios of rates", ratios, {})
    if arguments.json is not None:
        figures = {
            "ratios": ratios,
            "quick": arguments.quick,
            "versions": versions("commitlog-store"),
            "links_per_second": rates,
        }
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
