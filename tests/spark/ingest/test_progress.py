"""Progress reports of the ingest sources of a query, batch by batch, and their metrics."""

from __future__ import annotations

import json
import queue
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import attrs
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from commitlog.ingest import Counters
from commitlog.ingest.offset import Offset
from commitlog.spark.ingest import IngestListener, IngestProgress, MetricsFile
from support.spark_status import started

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PROGRESS = IngestProgress(
    query="0c5a",
    name="landing",
    batch=7,
    source='s3://lake/"in"',
    epoch=8,
    rows=100,
    began=1_800_000_000.5,
    seconds=2.5,
    counters=Counters(source="s", epoch=8, files=20, bytes=300, epoch_files=2, caught_up=True),
)


def samples(path: Path) -> dict[str, dict[str, float]]:
    """Return the metrics in a file, by name without prefix and then by source."""
    text = path.read_text()
    parsed = text_string_to_metric_families(text)  # type: ignore[no-untyped-call]
    return {
        family.name.removeprefix("commitlog_ingest_query_"): {
            sample.labels["source"]: sample.value for sample in family.samples
        }
        for family in parsed
    }


def test_metrics_add_up_batches(tmp_path: Path) -> None:
    """Batches and rows are summed; other values are those of the last batch of a query and source."""
    path = tmp_path / "ingest.prom"
    file = MetricsFile(path)
    file(PROGRESS)
    file(attrs.evolve(PROGRESS, batch=8, epoch=9, rows=11, counters=None))
    file(attrs.evolve(PROGRESS, source="other", name=None, counters=None))
    found = samples(path)
    mine = PROGRESS.source
    assert found["batches"] == {mine: 2, "other": 1}
    assert found["rows"] == {mine: 111, "other": 100}
    assert (found["batch"][mine], found["epoch"][mine], found["batch_rows"][mine]) == (8, 9, 11)
    assert (found["files"], found["caught_up"]) == ({mine: 20}, {mine: 1})  # from the batch before
    assert found["batch_began_seconds"][mine] == 1_800_000_000.5
    assert '{query="0c5a",source="other"}' in path.read_text()
    assert '{query="landing",source="s3://lake/\\"in\\""}' in path.read_text()


def test_the_metrics_file_is_replaced_atomically(tmp_path: Path) -> None:
    """Other users may read it, no other file remains, and a failed write keeps the old content."""
    path = tmp_path / "ingest.prom"
    file = MetricsFile(path)
    file(PROGRESS)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    before = path.stat().st_ino
    file(PROGRESS)
    assert path.stat().st_ino != before
    assert [each.name for each in tmp_path.iterdir()] == ["ingest.prom"]
    path.unlink()
    path.mkdir()
    with pytest.raises(OSError):
        file(PROGRESS)
    assert [each.name for each in tmp_path.iterdir()] == ["ingest.prom"]


def event(*sources: tuple[Any, Any, Any]) -> Any:
    """Return the event of a batch whose sources have these offsets: start, end, latest."""
    sources = [
        {"startOffset": start, "endOffset": end, "latestOffset": latest, "numInputRows": 3}
        for start, end, latest in sources
    ]
    progress = {
        "id": "q",
        "batchId": 4,
        "timestamp": "2027-01-15T08:00:00.500Z",
        "batchDuration": 1500,
        "sources": sources,
    }
    return SimpleNamespace(progress=SimpleNamespace(json=json.dumps(progress)))


def test_other_sources_are_not_reported() -> None:
    """Sources of other formats, and sources of ours without new files in the batch, are not reported."""
    reported: list[IngestProgress] = []
    end = Offset(source="s", epoch=3, born="b", claim="c").to_json()
    start = {**end, "epoch": 2}
    latest = Counters(source="s", epoch=3).to_json(end)
    foreign: list[Any] = [1, None, "None", {}, [], {"source": "s"}, {"source": "s", "format": 9}]
    IngestListener(reported.append).onQueryProgress(
        event(*((None, each, each) for each in foreign), (end, end, latest), (start, end, latest))
    )
    [one] = reported
    assert (one.query, one.name) == ("q", None)
    assert (one.source, one.epoch, one.batch, one.rows) == ("s", 3, 4, 3)
    assert (one.began, one.seconds, one.counters) == (
        1_800_000_000.5,
        1.5,
        Counters(source="s", epoch=3),
    )


@contextmanager
def listening(spark: SparkSession, callback: Any) -> Iterator[None]:
    """Report batches to `callback` within the block."""
    listener = IngestListener(callback)
    spark.streams.addListener(listener)
    try:
        yield
    finally:
        spark.streams.removeListener(listener)


@pytest.mark.all
@pytest.mark.spark
def test_batches_of_a_query_are_reported(spark: SparkSession, tmp_path: Path) -> None:
    """Each batch is reported with its rows and the counters of its source.

    A batch that an earlier run planned is reported without counters. An error of the callback
    stops nothing.
    """
    reported: queue.Queue[IngestProgress] = queue.Queue()
    metrics = MetricsFile(tmp_path / "ingest.prom")
    failing = [True]

    def callback(progress: IngestProgress) -> None:
        metrics(progress)
        reported.put(progress)
        raise RuntimeError("the callback fails")

    def sink(rows: DataFrame, batch: int) -> None:
        rows.collect()
        if batch == 1 and failing.pop():
            raise RuntimeError("the sink is out of order")

    def run() -> None:
        source = spark.readStream.format("commitlog_ingest").option("fileFormat", "binaryFile")
        rows = source.options(source="events", maxFilesPerTrigger=2).load(str(tmp_path / "in"))
        writer = rows.writeStream.queryName("landing").foreachBatch(sink).trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        started(writer.start).awaitTermination()

    (tmp_path / "in").mkdir()
    for name in "abcde":
        (tmp_path / "in" / name).write_bytes(name.encode() * 10)
    with listening(spark, callback):
        with pytest.raises(Exception, match="out of order"):
            run()
        failing.append(False)
        run()
        first, second, third = (reported.get(timeout=60) for _ in range(3))
    assert [each.batch for each in (first, second, third)] == [0, 1, 2]
    assert [each.epoch for each in (first, second, third)] == [1, 2, 3]
    assert [each.rows for each in (first, second, third)] == [2, 2, 1]
    assert {(each.source, each.name, each.query) for each in (first, second, third)} == {
        ("events", "landing", first.query)
    }
    assert first.counters is not None and third.counters is not None and second.counters is None
    assert (first.counters.files, first.counters.bytes, first.counters.caught_up) == (2, 20, False)
    assert (third.counters.files, third.counters.epoch_files, third.counters.caught_up) == (5, 1, True)
    assert third.counters.listed > 0 and third.seconds > 0 and third.began > first.began
    found = samples(tmp_path / "ingest.prom")
    assert (found["rows"], found["files"], found["problems"]) == (
        {"events": 5},
        {"events": 5},
        {"events": 0},
    )
