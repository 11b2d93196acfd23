"""Conditional writes of one object: `ConditionalStore`.

The modules: `conditional` (the store that callers use), `mutation` (one write and its condition),
`native_committer` (conditions of the store), `lease_committer` and `lease` (leases), `record` and
`settings` (their stored form and settings), `holding` (their age and state for operators), `probe`,
`probe_report` and `probe_cache` (which conditions a store enforces), and `bucket_identity` (different
URLs of one bucket).
"""

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
