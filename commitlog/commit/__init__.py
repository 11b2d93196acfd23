"""One object, all or nothing: `connect` and `ConditionalStore`."""

from commitlog.commit.conditional import ConditionalStore
from commitlog.commit.open import connect
from commitlog.commit.settings import DynamoCommit, LeaseSettings, SqliteCommit
from commitlog.commit.verdict import Verdict

__all__ = [
    "ConditionalStore",
    "DynamoCommit",
    "LeaseSettings",
    "SqliteCommit",
    "Verdict",
    "connect",
]
