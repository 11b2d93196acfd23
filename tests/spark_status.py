"""Waiting for what Spark says of its executors: it has no event for this that Python could wait for."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Seconds after which it is given up.
_PATIENCE = 100.0


def wait_for_executors(spark: SparkSession, state: Callable[[list[Any]], bool]) -> None:
    """Return once the executors, of which the first is the driver, are in a state."""
    tracker: Any = spark.sparkContext._jsc.sc().statusTracker()
    deadline = time.monotonic() + _PATIENCE
    while not state(list(tracker.getExecutorInfos())):
        if time.monotonic() > deadline:
            raise TimeoutError("the executors do not get there")
        time.sleep(0.05)


def wait_for_tasks(spark: SparkSession) -> None:
    """Return once no task is running.

    When a job has failed, its other tasks may go on for a while: Spark asks them to end, gives Python
    workers two seconds (``spark.python.task.killTimeout``), kills them, and does not wait for that.
    """
    wait_for_executors(spark, lambda executors: not any(each.numRunningTasks() for each in executors))
