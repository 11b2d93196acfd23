"""One object, all or nothing: `ConditionalStore`."""

from commitlog.commit.conditional import ConditionalStore
from commitlog.commit.probe_report import ProbeReport
from commitlog.commit.settings import DynamoCommit, LeaseSettings, SqliteCommit

__all__ = [
    "ConditionalStore",
    "DynamoCommit",
    "LeaseSettings",
    "ProbeReport",
    "SqliteCommit",
]
