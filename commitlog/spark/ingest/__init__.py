"""Spark source ``commitlog_ingest``: reads every version of every object in a bucket exactly once.

    spark.readStream.format("commitlog_ingest").option("fileFormat", "json").load("s3://landing/events/")

See ``docs/ingest.md``. The modules, in the order in which a query passes them:

* `source`: the format, which Spark calls; `options`: its options
* `reader`: the streaming reader, on the driver and in tasks; the rules are in `commitlog.ingest`
* `cleaning`: the deletion or archiving of delivered files, in a thread next to the reader
* `columns`: the columns of rows, from the content of files, their paths and their metadata; their
  inference
* `scans`: the files of batches that Spark's own readers read, for the format ``commitlog_ingest_spark``
* `stream`: `commitlog.spark.stream_files`, which takes the one format or the other
* `progress`: a listener and metrics for the progress of queries

Names are imported on first use, as in `commitlog.spark`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from commitlog.spark.versions import DATA_SOURCES, require_pyspark

if TYPE_CHECKING:
    from commitlog.spark.ingest.progress import IngestListener, IngestProgress, MetricsFile
    from commitlog.spark.ingest.source import IngestDataSource

__all__ = ["IngestDataSource", "IngestListener", "IngestProgress", "MetricsFile"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require_pyspark(DATA_SOURCES, f"{__name__}.{name}")
    home = "source" if name == "IngestDataSource" else "progress"
    return getattr(import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return __all__
