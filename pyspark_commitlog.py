"""Registers the format ``commitlog`` with Spark, which looks into modules called ``pyspark_…``."""

from commitlog.spark import CommitlogDataSource as DefaultSource

__all__ = ["DefaultSource"]
