"""Spark source ``commitlog_ingest``: reads every version of every object in a bucket exactly once.

    spark.readStream.format("commitlog_ingest").option("fileFormat", "json").load("s3://landing/events/")

See ``docs/ingest.md``. Names are imported on first use, as in `commitlog.spark`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from commitlog.spark import check_pyspark

if TYPE_CHECKING:
    from commitlog.spark.ingest.progress import IngestListener, IngestProgress, MetricsFile
    from commitlog.spark.ingest.source import IngestDataSource

__all__ = ["IngestDataSource", "IngestListener", "IngestProgress", "MetricsFile"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    check_pyspark()
    home = "source" if name == "IngestDataSource" else "progress"
    return getattr(import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return __all__
