"""Registers the format ``commitlog_ingest`` with Spark, which looks for modules ``pyspark_…``."""

from commitlog.spark.ingest import IngestDataSource as DefaultSource

__all__ = ["DefaultSource"]
