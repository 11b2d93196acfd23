"""Waiting for states of Spark's executors, tasks and queries.

Spark has no events for them in Python.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

#: Seconds to wait before an error.
_PATIENCE = 100.0


def wait_for_executors(spark: SparkSession, state: Callable[[list[Any]], bool]) -> None:
    """Return once the executors, the first of which is the driver, satisfy a condition."""
    tracker: Any = spark.sparkContext._jsc.sc().statusTracker()
    _wait(lambda: state(list(tracker.getExecutorInfos())), "the executors do not get there")


def wait_for_tasks(spark: SparkSession) -> None:
    """Return once no task is running.

    When a job has failed, its other tasks may go on for a while: Spark asks them to end, gives Python
    workers two seconds (``spark.python.task.killTimeout``), kills them, and does not wait for that.
    """
    # The reported tasks may be those of a while ago.
    wait_for_events(spark)
    wait_for_executors(spark, lambda executors: not any(each.numRunningTasks() for each in executors))


def wait_for_all_but_one(spark: SparkSession) -> None:
    """Return once all tasks of the running stage but one have succeeded."""
    tracker = spark.sparkContext.statusTracker()

    def there() -> bool:
        stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
        return any(stage and stage.numTasks - stage.numCompletedTasks == 1 for stage in stages)

    _wait(there, "the other tasks do not end")


def wait_for_events(spark: SparkSession) -> None:
    """Return once all past events are delivered and logged."""
    bus: Any = spark.sparkContext._jsc.sc().listenerBus()
    bus.waitUntilEmpty(int(_PATIENCE * 1000))


def started(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Return the query that `start` starts, once its sources are there, or it has ended.

    Spark gives the process of a Python source ten seconds to start, which no setting changes and a busy
    machine may exceed: then the query is started again.
    """
    deadline = time.monotonic() + _PATIENCE
    while True:
        query = start()
        while query.isActive and query.status["message"].startswith("Initializing "):
            time.sleep(0.02)
        if "failed to connect back" not in str(query.exception()) or time.monotonic() > deadline:
            return query


def _wait(there: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not there():
        if time.monotonic() > deadline:
            raise TimeoutError(otherwise)
        time.sleep(0.05)
