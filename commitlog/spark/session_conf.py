"""Temporary changes of a Spark session's settings, and registration of formats."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource

__all__ = ["active", "register", "unbounded"]


def register(spark: SparkSession, source: type[DataSource]) -> None:
    """Register a format with a session unless it is registered already.

    Spark finds the modules pyspark_… by itself, but not everywhere: it does not find those of an
    editable install outside the working directory, nor those in ``--py-files``. If a format is
    registered twice, Spark warns, or raises (4.0).
    """
    if isinstance(spark, SparkSession):
        sources = spark._jsparkSession.sessionState().dataSourceManager()
        if not sources.dataSourceExists(source.name()):
            spark.dataSource.register(source)
        return
    try:  # Spark Connect cannot be queried, and a warning goes to the server
        spark.dataSource.register(source)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


@contextlib.contextmanager
def active(spark: SparkSession) -> Iterator[None]:
    """Make `spark` the active session of this thread during the context.

    Spark looks up Python data sources only in the thread's active session. A new thread has none, so
    Spark would not find the format.
    """
    if not isinstance(spark, SparkSession):  # Spark Connect: its threads are in another process
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
    """Set `setting` to the largest 32-bit integer during the context.

    The setting belongs to the session: if several threads do this at once, the first to end restores it
    for all.
    """
    largest = str(2**31 - 1)
    before = spark.conf.get(setting)
    if before == largest:  # perhaps another thread has set it, and restores it
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
