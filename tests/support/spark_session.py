"""One Spark session for the whole run; its fixtures reach all tests through conftest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from attrs import frozen

from support.agent import SETTING, agent_interpreter
from support.s3a import jars_of_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@frozen
class SparkLogs:
    """The logs of Spark: its own log, and the event log with all plans."""

    log: Path
    events: Path

    def text(self) -> str:
        """Return the text of all logs."""
        files = [self.log, *(path for path in self.events.rglob("*") if path.is_file())]
        return "\n".join(path.read_text(errors="replace") for path in files)


@pytest.fixture(scope="session")
def spark_logs(tmp_path_factory: pytest.TempPathFactory) -> SparkLogs:
    """The log files of the session."""
    directory = tmp_path_factory.mktemp("spark")
    (directory / "events").mkdir()
    return SparkLogs(directory / "log", directory / "events")


@pytest.fixture(scope="session")
def spark(spark_logs: SparkLogs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session of two cores in which a task may fail three times."""
    from demo.quiet import quiet_session

    conf = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": str(spark_logs.events),
        "spark.local.dir": str(spark_logs.log.parent),
        # Only the jar: tests that use the committer turn it on (tests/spark/batch/test_committer.py).
        "spark.jars": jars_of_session(),
        SETTING: agent_interpreter(tmp_path_factory.mktemp("agent") / "with traps"),
        # Far from UTC, and with daylight saving time: instants must not depend on it.
        "spark.sql.session.timeZone": "America/St_Johns",
    }
    with spark_logs.log.open("wb") as log:
        session = quiet_session(log, master="local[2,4]", conf=conf)
    yield session
    session.stop()
