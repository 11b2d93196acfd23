"""Cost of a batch for the driver as the history of a bucket grows, by the rules of `commitlog.ingest`.

The listing is generated while it is read, so no bucket of a million objects is needed, and listing costs
only the time to generate it. The time of a real server is computed separately, from the number of pages
of a thousand objects. The state is in a real SQLite file. As a program, this module is the driver of one
source and executes the commands on its standard input::

    python benchmarks/ingest_history.py WAY HISTORY DIRECTORY
"""

from __future__ import annotations

import gc
import json
import random
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil
from attrs import frozen
from measure import ratio

from commitlog._util.request_stats import RequestRecorder
from commitlog.ingest import INGEST_SCHEMA, Ingest, IngestSettings
from commitlog.namespace import RequestStats
from commitlog.stores.api import ObjectInfo, Page
from commitlog.stores.memory import MemoryStore
from commitlog.tables.counting_table import CountingTable
from commitlog.tables.open import open_table
from commitlog.testing import ManualClock

__all__ = ["PAGE_SECONDS", "RECOMMENDED", "WAYS", "Sizes", "measure_histories"]

#: Source settings for each way to list the bucket.
WAYS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {"ordered": {"ordered": True}, "list_limit": {"list_limit": 4_000}, "whole listing": {}}
)

#: The way that is recommended for large buckets.
RECOMMENDED = "ordered"

#: Assumed seconds to list a page of a thousand objects on S3.
PAGE_SECONDS = 0.05

#: New objects in each batch, and seconds between two batches.
NEW, PERIOD = 100, 720.0
GRACE = 3600.0

#: Batches until the grace window is full, and batches whose memory is traced.
WARMUP, TRACED = 12, 5


@frozen(kw_only=True)
class Sizes:
    """Sizes of the measurement.

    Attributes:
        histories: numbers of objects that were handed out before. Ratios compare the last with the
            first.
        longest_of_others: the longest history for the other, slower ways.
        batches: number of batches.
    """

    histories: Sequence[int]
    longest_of_others: int
    batches: int

    def of(self, way: str) -> Sequence[int]:
        """Return the histories to measure for one way."""
        most = max(self.histories) if way == RECOMMENDED else self.longest_of_others
        return [history for history in self.histories if history <= most]


class MadeUp(MemoryStore):
    """A bucket whose objects are generated when they are listed. Keys grow with time."""

    def __init__(self, history: int, clock: ManualClock) -> None:
        super().__init__(clock=clock)
        self.pages = 0
        self._clock = clock
        self._history = history
        # The whole history lies before the grace window, with one object per second.
        self._begun = clock.epoch() - 2 * GRACE - history
        self._added: list[float] = []

    def add(self) -> None:
        """Add the objects of the next batch."""
        self._added.append(self._clock.epoch())

    def list_page(
        self, prefix: str = "", *, start_after: str = "", token: str | None = None, **options: Any
    ) -> Page:
        """See `ObjectStore.list_page`. The bucket contains only the generated objects."""
        self.pages += 1
        after = max(start_after, token or "")
        first = int(after[3:15]) + 1 if after else 0
        size = self._history + NEW * len(self._added)
        last = min(first + options.get("limit", 1000), size)
        objects = tuple(map(self._info, range(first, last)))
        return Page(objects=objects, next_token=objects[-1].path if last < size else None)

    def _info(self, number: int) -> ObjectInfo:
        new = number - self._history
        return ObjectInfo(
            path=f"in/{number:012}.json",
            size=5_000,
            etag=f'"{number:032x}"',
            last_modified=self._begun + number if new < 0 else self._added[new // NEW],
        )


class Driver:
    """The driver of one source whose whole history has been handed out."""

    def __init__(self, way: str, history: int, directory: Path) -> None:
        self._clock = ManualClock()
        self._bucket = MadeUp(history, self._clock)
        self._settings = IngestSettings(source="bench", prefix="in/", grace=GRACE, **WAYS[way])
        self._url = f"sqlite://{directory.absolute()}/state.sqlite"
        self._recorder = RequestRecorder()
        self._start()
        self._offset = self._source.initial_offset()
        handed_out = 0
        while handed_out < history:
            handed_out += self.batch(new=False)["files"]
        for _ in range(WARMUP):
            self.batch()

    def _start(self) -> None:
        """Start like a new driver: the only state is the state in the table."""
        table = open_table(self._url, INGEST_SCHEMA)
        table.create()
        counting = CountingTable(table, self._recorder)
        self._source = Ingest(self._bucket, counting, self._settings, clock=self._clock)

    def _table_requests(self) -> int:
        return RequestStats.of("", self._recorder.counts()).total.table

    def batch(self, *, new: bool = True) -> dict[str, Any]:
        """Plan a batch, of new objects or of the history, and return its cost."""
        if new:
            self._clock.advance(PERIOD)
            self._bucket.add()
        calls, start = 0, self._offset
        self._bucket.pages = 0
        before = self._table_requests()
        began, busy = time.perf_counter(), time.process_time()
        while self._offset == start:
            self._offset = self._source.latest_offset(start)
            calls += 1
        partitions = self._source.partitions(start, self._offset)
        busy = time.process_time() - busy
        seconds = time.perf_counter() - began
        return {
            "seconds": seconds / calls,
            "cpu_seconds": busy / calls,
            "calls": calls,
            "pages": self._bucket.pages / calls,
            "table_requests": (self._table_requests() - before) / calls,
            "files": sum(len(partition.slices) for partition in partitions),
        }

    def memory(self) -> dict[str, Any]:
        """Return the memory that a newly started driver holds, and its peak during some batches."""
        del self._source
        gc.collect()
        tracemalloc.start()
        try:
            self._start()
            for _ in range(TRACED):
                self.batch()
            gc.collect()
            held, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        return {"held_bytes": held, "peak_bytes": peak, "rss_bytes": psutil.Process().memory_info().rss}


class _Child:
    """A `Driver` in its own process."""

    def __init__(self, way: str, history: int, directory: Path) -> None:
        directory.mkdir(parents=True)
        command = [sys.executable, __file__, way, str(history), str(directory)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def __enter__(self) -> _Child:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the driver of a source ended before its time")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, what: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(what + "\n")
        return self.answer()


def _measured(way: str, sizes: Sizes, scratch: Path, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Measure batches after all histories in turn, so that other load affects all of them equally."""
    with ExitStack() as stack:
        children = []
        for history in sizes.of(way):
            say(f"{way}: a history of {history:,} objects")
            child = stack.enter_context(_Child(way, history, scratch / f"{way}-{history}"))
            child.answer()
            children.append(child)
        say(f"{way}: batches")
        chance = random.Random(1)
        rounds = []
        for _ in range(sizes.batches):
            order = chance.sample(range(len(children)), len(children))
            turn = {at: children[at].ask("batch") for at in order}
            rounds.append([turn[at] for at in range(len(children))])
        memory = [child.ask("memory") for child in children]
    rows = []
    for at, history in enumerate(sizes.of(way)):
        turns = [turn[at] for turn in rounds]
        pages = statistics.median(turn["pages"] for turn in turns)
        seconds = statistics.median(turn["seconds"] for turn in turns)
        rows.append(
            {
                "way": way,
                "history": history,
                "calls": round(statistics.mean(turn["calls"] for turn in turns), 1),
                "milliseconds": round(seconds * 1000, 3),
                "cpu_milliseconds": round(
                    statistics.median(turn["cpu_seconds"] for turn in turns) * 1000, 3
                ),
                "pages": round(pages, 1),
                "table_requests": round(statistics.mean(turn["table_requests"] for turn in turns), 1),
                "computed_milliseconds_on_s3": round((seconds + pages * PAGE_SECONDS) * 1000, 1),
                **memory[at],
                **{
                    f"growth_{name}": round(
                        ratio([t[figure] for t in turns], [turn[0][figure] for turn in rounds]), 3
                    )
                    for name, figure in (("time", "seconds"), ("cpu", "cpu_seconds"))
                },
            }
        )
    return rows


def measure_histories(sizes: Sizes, scratch: Path, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Measure all ways, and report progress to `say`."""
    return [row for way in WAYS for row in _measured(way, sizes, scratch, say)]


def _serve(way: str, history: int, directory: Path) -> None:
    driver = Driver(way, history, directory)
    answers: dict[str, Callable[[], dict[str, Any]]] = {"batch": driver.batch, "memory": driver.memory}
    print("{}", flush=True)
    for line in sys.stdin:
        print(json.dumps(answers[line.strip()]()), flush=True)


if __name__ == "__main__":
    _serve(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
