"""The Spark source ``commitlog_ingest``: every object of a bucket, each version exactly once.

    spark.readStream.format("commitlog_ingest").option("fileFormat", "json").load("s3://landing/events/")

See ``docs/ingest.md``.
"""

from commitlog.spark.ingest.progress import IngestListener, IngestProgress, MetricsFile
from commitlog.spark.ingest.source import IngestDataSource

__all__ = ["IngestDataSource", "IngestListener", "IngestProgress", "MetricsFile"]
