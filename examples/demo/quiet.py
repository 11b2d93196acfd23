"""A Spark session that starts fast and prints nothing on the terminal."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
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

# The JVM lives for seconds only: the optimising compiler would cost more time than it saves.
_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def quiet_session(
    log: IO[bytes] | None = None, master: str = "local[2]", conf: Mapping[str, str] | None = None
) -> SparkSession:
    """Return a session that logs to `log`, or to stderr.

    Its files go to Python's temporary directory (``TMPDIR``), because a killed JVM leaves them there.
    """
    scratch = tempfile.gettempdir()
    places = {
        "spark.local.dir": scratch,
        "spark.driver.extraJavaOptions": f'{_JAVA} "-Djava.io.tmpdir={scratch}"',
    }
    with _stderr_to(log):
        return session(master, {**_CONF, **places, **(conf or {})})


@contextmanager
def _stderr_to(log: IO[bytes] | None) -> Iterator[None]:
    # The JVM keeps the stderr that it is started with.
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        if log is not None:
            os.dup2(log.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
