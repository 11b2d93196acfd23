"""Streaming queries over directories: Spark's own file source and ours, in the same application.

Each way to read has its own session, so that its settings do not affect the others.
"""

from __future__ import annotations

import random
import shutil
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil
from attrs import frozen
from ingest_data import SCHEMA, DataSet, write_tiny
from measure import Cost, cost_of
from pyspark.sql import DataFrame, SparkSession

from commitlog.spark import stream_files

__all__ = ["HistorySizes", "Run", "Way", "histories_in_spark", "history_ways", "speeds", "ways"]

#: The format of this library's source if Spark's own readers read its files.
SPARK_FORMAT = "commitlog_ingest_spark"

_THRESHOLD = "spark.sql.sources.parallelPartitionDiscovery.threshold"

#: Files per batch, for all ways.
MAX_FILES = 1_000

#: Files per batch while the history is read, which is not measured.
_MANY = 10_000


@frozen(kw_only=True)
class Way:
    """One way to read a directory as a stream.

    Attributes:
        name: name in the tables.
        session: the session with its settings.
        reader: the reader of this library's source, as `stream_files` takes it; None for Spark's own
            source.
        options: options in addition to the common ones.
    """

    name: str
    session: SparkSession
    reader: str | None = None
    options: Mapping[str, str] = MappingProxyType({})

    def load(self, path: Path, format: str, scratch: Path, **options: str) -> DataFrame:
        """Return the stream of the files in `path`. Its state goes to `scratch`."""
        options = {"maxFilesPerTrigger": str(MAX_FILES), **self.options, **options}
        if self.reader is None:
            stream = self.session.readStream.schema(SCHEMA).options(**options)
            return stream.format(format).load(str(path))
        options |= {"fileFormat": format, "state": f"sqlite://{scratch}/state.sqlite"}
        return stream_files(self.session, str(path), schema=SCHEMA, reader=self.reader, options=options)


def ways(spark: SparkSession) -> list[Way]:
    """Return the ways whose speed is compared; Spark's own source comes first."""
    return [
        Way(name="built-in", session=spark.newSession()),
        Way(name="built-in tuned", session=_tuned(spark)),
        Way(name="ours", session=spark.newSession(), reader="auto"),
        Way(name="ours by Python", session=spark.newSession(), reader="python"),
    ]


def history_ways(spark: SparkSession) -> list[Way]:
    """Return the ways whose growth is compared: Spark's, ours for directories and for large buckets.

    Both readers of ours plan in the same way. With Python's, the source has a process of its own, whose
    memory is measured.
    """
    large = {"remember": "window", "ordered": "true"}
    return [
        Way(name="built-in", session=_tuned(spark)),
        Way(name="ours", session=spark.newSession(), reader="python"),
        Way(name="ours, ordered", session=spark.newSession(), reader="python", options=large),
    ]


def _tuned(spark: SparkSession) -> SparkSession:
    """Return a session in which the driver lists the files of a batch without a Spark job."""
    session = spark.newSession()
    session.conf.set(_THRESHOLD, str(2**31 - 1))
    return session


# -- speed -------------------------------------------------------------------------------------------


@frozen
class Run:
    """The cost of a query that read all files and then ended.

    Attributes:
        cost: cost of the whole query, including the first listing.
        batches: seconds of its batches, as Spark reports them. The rest is startup and shutdown.
    """

    cost: Cost
    batches: float


def speeds(
    ways: Sequence[Way], data: DataSet, rounds: int, scratch: Path, say: Callable[[str], None]
) -> dict[str, list[Run]]:
    """Return what each way takes in each round to read all of `data`.

    Unmeasured rounds come first, until the JVM has compiled the code.
    """
    chance = random.Random(1)
    runs: dict[str, list[Run]] = {way.name: [] for way in ways}
    order = list(ways)
    warmup = min(rounds, 2)
    for turn in range(rounds + warmup):
        say(f"round {turn - warmup + 1} of {rounds}" if turn >= warmup else "warming up")
        chance.shuffle(order)
        for way in order:
            run = _read_all(way, data, scratch / "run")
            if turn >= warmup:
                runs[way.name].append(run)
    return runs


def _read_all(way: Way, data: DataSet, scratch: Path) -> Run:
    scratch.mkdir()
    progress: list[Any] = []

    def run() -> None:
        stream = way.load(data.path, data.format, scratch)
        writer = stream.writeStream.format("noop").trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(scratch / "checkpoint")).start()
        query.awaitTermination()
        progress.extend(query.recentProgress)

    cost = cost_of(run)
    rows = sum(each.numInputRows for each in progress)
    assert rows == data.rows, f"{way.name} read {rows} of {data.rows} rows"
    if way.reader == "auto":
        taken = progress[0].sources[0].description
        assert taken.startswith(f"{SPARK_FORMAT}["), f"auto took {taken}"
    _remove(scratch)
    # Triggers that find no files are not batches.
    took = [each.durationMs["triggerExecution"] for each in progress if each.numInputRows]
    return Run(cost, sum(took) / 1000)


def _remove(directory: Path) -> None:
    """Remove a directory in which the agent may still be closing the state of a query that has ended."""
    while directory.exists():
        with suppress(FileNotFoundError):
            shutil.rmtree(directory)


# -- history -----------------------------------------------------------------------------------------

#: New files in each batch.
NEW = 100

#: Unmeasured batches at the start, and how many batches a trigger may split in two.
_WARMUP, _CUT = 1, 5

_DAY = 86400.0

#: Seconds after which a query that has not read its files counts as stuck.
_PATIENCE = 900.0

#: The module that runs a Python source next to the driver.
_RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"


@frozen(kw_only=True)
class HistorySizes:
    """Sizes of the measurement.

    Attributes:
        files: numbers of files in the directory, all of them already read.
        batches: number of measured batches, of `NEW` files each.
        period: seconds from trigger to trigger. It must exceed the time to list the directory.
    """

    files: Sequence[int]
    batches: int
    period: float


def histories_in_spark(
    ways: Sequence[Way], sizes: HistorySizes, scratch: Path, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Return the cost of a batch of new files for each way, after each history."""
    found = []
    for files in sizes.files:
        directory = scratch / f"history-{files}"
        # Older than any grace window, but not too old for Spark's own source.
        _show(write_tiny(directory, 0, files, age=_DAY))
        for way in ways:
            say(f"{way.name}: a directory of {files:,} files")
            below = scratch / "run"
            below.mkdir()
            with _Running(way, directory, files, sizes.period, below) as query:
                found.append({"way": way.name, "files": files, **query.measured(sizes.batches)})
            _remove(below)
        shutil.rmtree(directory)
    return found


def _show(names: Sequence[Path]) -> None:
    for name in names:
        name.with_name("." + name.name).rename(name)


class _Running:
    """A query that looks for new files periodically and has read the existing ones."""

    def __init__(self, way: Way, directory: Path, files: int, period: float, scratch: Path) -> None:
        self._spark = way.session
        self._directory = directory
        self._files = files
        self._period = period
        self._progress: dict[int, Any] = {}
        self._new: list[Path] = []
        stream = way.load(directory, "json", scratch, maxFilesPerTrigger=str(_MANY))
        writer = stream.writeStream.format("noop").trigger(processingTime=f"{period} seconds")
        self._query = writer.option("checkpointLocation", str(scratch / "checkpoint")).start()

    def __enter__(self) -> _Running:
        self._wait(self._files)
        return self

    def __exit__(self, *_: object) -> None:
        self._query.stop()
        for name in self._new:
            name.unlink()

    def measured(self, batches: int) -> dict[str, Any]:
        """Return the cost of finding and reading new files, and the memory of the driver after that."""
        found: list[Mapping[str, int]] = []
        for _ in range(batches + _WARMUP + _CUT):
            if len(found) < batches + _WARMUP:
                progress = self._batch()
                if progress.numInputRows == NEW:
                    found.append(progress.durationMs)
        assert len(found) == batches + _WARMUP, "triggers came while files were put there"
        durations = {
            step: round(statistics.median(each.get(step, 0) for each in found[_WARMUP:]), 1)
            for step in sorted({step for each in found for step in each})
        }
        return {
            "planning_milliseconds": durations["latestOffset"] + durations.get("getBatch", 0),
            "trigger_milliseconds": durations["triggerExecution"],
            **_memory(self._spark),
            "milliseconds": durations,
        }

    def _batch(self) -> Any:
        """Delete the files of the previous batch, so that the directory does not grow; read new ones."""
        for name in self._new:
            name.unlink()
        number = max(self._progress) + 1
        self._new = write_tiny(self._directory, 10**8 + number * NEW, NEW)
        # Triggers come at multiples of the period. All new files must be visible before one of them.
        time.sleep((0.7 * self._period - time.time()) % self._period)
        _show(self._new)
        self._wait(self._rows + NEW)
        return self._progress[max(self._progress)]

    @property
    def _rows(self) -> int:
        return sum(each.numInputRows for each in self._progress.values())

    def _wait(self, rows: int) -> None:
        """Wait until `rows` rows were read, and check that there are no more."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            error = self._query.exception()
            if error is not None:
                raise error
            for each in self._query.recentProgress:
                if each.numInputRows:
                    self._progress[each.batchId] = each
            if self._rows >= rows:
                assert self._rows == rows, f"read {self._rows} of {rows} rows"
                return
            assert time.monotonic() < deadline, f"stuck at {self._rows} of {rows} rows"
            time.sleep(0.05)


def _memory(spark: SparkSession) -> dict[str, int]:
    """Return bytes of memory of the driver: live heap of its JVM, and its Python source processes."""
    jvm = spark._jvm
    assert jvm is not None
    for _ in range(3):
        jvm.java.lang.System.gc()
        time.sleep(0.1)
    runtime = jvm.java.lang.Runtime.getRuntime()
    heap = int(runtime.totalMemory() - runtime.freeMemory())
    python = sum(map(_resident, psutil.Process().children(recursive=True)))
    return {"heap_bytes": heap, "python_bytes": python, "driver_bytes": heap + python}


def _resident(process: psutil.Process) -> int:
    """Return the memory of a Python source process; 0 for other processes and for one that has ended."""
    try:
        return int(process.memory_info().rss) if _RUNNER in process.cmdline() else 0
    except psutil.NoSuchProcess:
        return 0
