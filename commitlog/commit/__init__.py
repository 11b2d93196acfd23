"""One object, all or nothing: `ConditionalStore`."""

from commitlog.commit.conditional import ConditionalStore
from commitlog.commit.settings import DynamoCommit, LeaseSettings, SqliteCommit
from commitlog.commit.verdict import Verdict

__all__ = [
    "ConditionalStore",
    "DynamoCommit",
    "LeaseSettings",
    "SqliteCommit",
    "Verdict",
]
