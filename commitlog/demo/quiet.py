"""A Spark session that says nothing on the terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from commitlog.spark import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["quiet_session"]

_CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "4",
}


def quiet_session(log: IO[bytes] | None = None) -> SparkSession:
    """Return a session with two cores; what Spark says goes to `log`, or to stderr."""
    with _stderr_to(log):
        return session("local[2]", _CONF)


@contextmanager
def _stderr_to(log: IO[bytes] | None) -> Iterator[None]:
    # The JVM keeps the descriptor that it is started with.
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        if log is not None:
            os.dup2(log.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
