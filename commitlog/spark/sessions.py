"""What has to be so in a Spark session for a while, and is then as it was.

Imports pyspark.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

__all__ = ["active", "register", "unbounded"]


def register(spark: SparkSession, source: type[DataSource]) -> None:
    """Register a format with a classic session that does not know it.

    Spark looks for the modules pyspark_…, but not everywhere where Python would find them: of an
    editable install it sees only the working directory, and nothing of ``--py-files``. To register a
    format twice, it warns.
    """
    if not spark._jsparkSession.sessionState().dataSourceManager().dataSourceExists(source.name()):
        spark.dataSource.register(source)


@contextlib.contextmanager
def active(spark: SparkSession) -> Iterator[None]:
    """Make `spark` the active session of this thread for a while.

    Spark looks a Python data source up in the thread's active session alone, and a new thread has none:
    it would not find the format.
    """
    if not isinstance(spark, SparkSession):  # of Spark Connect: its threads are elsewhere
        yield
        return
    sessions = spark._get_j_spark_session_class(spark._jvm)
    before = sessions.getActiveSession()
    sessions.setActiveSession(spark._jsparkSession)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


@contextlib.contextmanager
def unbounded(spark: SparkSession, setting: str) -> Iterator[None]:
    """Give `setting` the largest value of a 32-bit integer for a while.

    The setting is the session's: of threads that do so at once, the first to end restores it for all.
    """
    largest = str(2**31 - 1)
    before = spark.conf.get(setting)
    if before == largest:  # perhaps by another thread, which restores it
        yield
        return
    spark.conf.set(setting, largest)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(setting)
        else:
            spark.conf.set(setting, before)
