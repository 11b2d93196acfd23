"""Progress of a query's ingest sources, batch by batch: as a listener and as metrics.

    spark.streams.addListener(IngestListener(MetricsFile("/var/lib/node_exporter/query.prom")))

A source puts its counters into ``latestOffset`` of the query's progress, because Spark has no metrics
for sources in Python.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from attrs import frozen
from pyspark.sql.streaming.listener import StreamingQueryListener

from commitlog._util.fork import WorkLock
from commitlog._util.metrics import Metric, openmetrics
from commitlog.errors import CommitError
from commitlog.ingest import Counters
from commitlog.ingest.offset import Offset

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

__all__ = ["IngestListener", "IngestProgress", "MetricsFile"]


@frozen(kw_only=True)
class IngestProgress:
    """Progress of one source in one batch of a query.

    Attributes:
        query: id of the query, which outlives restarts.
        name: name of the query, or None.
        batch: number of the batch.
        source: id of the source.
        epoch: the last epoch of the source in the batch.
        rows: number of rows that were read from the source.
        began: start of the batch, in epoch seconds by the driver's clock.
        seconds: duration of the batch.
        counters: counters of the source; None for a batch that an earlier run of the query had begun.
    """

    query: str
    name: str | None
    batch: int
    source: str
    epoch: int
    rows: int
    began: float
    seconds: float
    counters: Counters | None


class IngestListener(StreamingQueryListener):
    """Reports the progress of each ``commitlog_ingest`` source in each batch of a session's queries.

    Args:
        callback: called for each source after each batch, in a thread of Spark, one call at a time.
            Spark logs an error that it raises, and the query goes on.

    A source without data in a batch is not reported. Spark drops events if listeners are too slow: do
    not block.
    """

    def __init__(self, callback: Callable[[IngestProgress], object]) -> None:
        self._callback = callback

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Report each source."""
        # The JSON form is the same in Spark Connect, and does not change offsets.
        for each in _progress_of(json.loads(event.progress.json)):
            self._callback(each)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Do nothing."""


def _progress_of(progress: Mapping[str, Any]) -> Iterator[IngestProgress]:
    for source in progress["sources"]:
        end = _offset(source["endOffset"])
        if end is None or end == _offset(source["startOffset"]):
            continue
        yield IngestProgress(
            query=progress["id"],
            name=progress.get("name"),
            batch=progress["batchId"],
            source=end.source,
            epoch=end.epoch,
            rows=source["numInputRows"],
            began=datetime.fromisoformat(progress["timestamp"]).timestamp(),
            seconds=progress["batchDuration"] / 1000,
            counters=Counters.from_json(source["latestOffset"]),
        )


def _offset(value: object) -> Offset | None:
    """Return the offset of one of our sources, or None if it is none."""
    if not isinstance(value, dict) or not isinstance(value.get("source"), str):
        return None
    try:
        return Offset.from_json(value, source=value["source"])
    except CommitError:
        return None


@frozen(kw_only=True)
class _Sum:
    """The last batch of a source, and the totals since this process began."""

    last: IngestProgress
    counters: Counters | None
    batches: int
    rows: int


def _counted(value: Callable[[Counters], float]) -> Callable[[_Sum], float | None]:
    return lambda each: None if each.counters is None else value(each.counters)


_METRICS: Sequence[Metric[_Sum]] = (
    Metric("batch", "gauge", "Number of the last batch.", lambda s: s.last.batch),
    Metric("batch_began_seconds", "gauge", "When it began, as Unix time.", lambda s: s.last.began),
    Metric("batch_duration_seconds", "gauge", "How long it took.", lambda s: s.last.seconds),
    Metric("batch_rows", "gauge", "Rows of it.", lambda s: s.last.rows),
    Metric("batches", "counter", "Batches since this process began.", lambda s: s.batches),
    Metric("rows", "counter", "Rows since this process began.", lambda s: s.rows),
    Metric("epoch", "gauge", "Epoch of the source in the last batch.", lambda s: s.last.epoch),
    Metric("epoch_files", "gauge", "Files of that epoch.", _counted(lambda c: c.epoch_files)),
    Metric("epoch_bytes", "gauge", "Bytes of that epoch.", _counted(lambda c: c.epoch_bytes)),
    Metric("epoch_slices", "gauge", "Slices of that epoch.", _counted(lambda c: c.epoch_slices)),
    Metric("files", "counter", "Files handed out, ever.", _counted(lambda c: c.files)),
    Metric("bytes", "counter", "Bytes handed out, ever.", _counted(lambda c: c.bytes)),
    Metric("listed", "gauge", "Objects listed for the epoch.", _counted(lambda c: c.listed)),
    Metric("listing_seconds", "gauge", "How long that took.", _counted(lambda c: c.seconds)),
    Metric("caught_up", "gauge", "1 if nothing was left then.", _counted(lambda c: int(c.caught_up))),
    Metric("rest_bytes", "gauge", "Bytes left of the last file.", _counted(lambda c: c.rest)),
    Metric("passed_over", "counter", "Objects too old when listed.", _counted(lambda c: c.passed_over)),
    Metric(
        "problems",
        "gauge",
        "Slices that could not be read and were not handed out again, up to 1000.",
        _counted(lambda c: c.problems),
    ),
)


class MetricsFile:
    """A file of metrics in the OpenMetrics format, for an `IngestListener`. Thread-safe.

    The file is replaced as a whole after each batch. The names of the metrics begin with
    ``commitlog_ingest_query_``. Each source has the labels ``query`` (the query's name, or else its id)
    and ``source``. A query that has stopped stays in the file: see
    ``commitlog_ingest_query_batch_began_seconds``.

    Args:
        path: path of the file. Its directory must exist. No other process may write to the file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.path.abspath(path)
        self._lock = WorkLock()
        self._sums: dict[tuple[str, str], _Sum] = {}

    def __call__(self, progress: IngestProgress) -> None:
        """Add the progress of a source and write the file. Raises `OSError` if that fails."""
        key = (progress.name or progress.query, progress.source)
        with self._lock:
            before = self._sums.get(key)
            known = before.counters if before else None
            self._sums[key] = _Sum(
                last=progress,
                counters=known if progress.counters is None else progress.counters,
                batches=1 + (before.batches if before else 0),
                rows=progress.rows + (before.rows if before else 0),
            )
            things = [
                ({"query": query, "source": source}, each)
                for (query, source), each in self._sums.items()
            ]
            _replace(self._path, openmetrics(_METRICS, things, prefix="commitlog_ingest_query_"))


def _replace(path: str, text: str) -> None:
    """Replace a file with `text` in one step."""
    directory, name = os.path.split(path)
    # Collectors ignore this name.
    handle, scratch = tempfile.mkstemp(prefix=f".{name}.", suffix=".part", dir=directory)
    try:
        with open(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        os.chmod(scratch, 0o644)  # the collector is another user
        os.replace(scratch, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(scratch)
        raise
