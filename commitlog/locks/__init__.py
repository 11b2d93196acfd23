"""Locks, elections and semaphores among processes, with fencing tokens.

A lock by itself is advisory. `Lock`, `Election` and `Semaphore` give each holder a token that is larger
than all earlier ones; a `FencedStore` refuses writes with a smaller token than it has seen.

They are kept in a `ConditionalStore`, or in a `Table` that was opened with `LOCK_SCHEMA`.

The modules: `lock`, `election` and `semaphore` (what callers use), `fencing` (writes with tokens),
`tenure` (how a slot is acquired, kept and lost), `records` (where the records are) and `settings`. The
rules of the record itself are those of leases: `commitlog.commit.lease`.
"""

from commitlog.locks.election import Election, Term
from commitlog.locks.fencing import FencedObject, FencedStore
from commitlog.locks.lock import Lock
from commitlog.locks.records import LOCK_SCHEMA
from commitlog.locks.semaphore import Semaphore
from commitlog.locks.settings import LockSettings
from commitlog.locks.tenure import Holder

__all__ = [
    "LOCK_SCHEMA",
    "Election",
    "FencedObject",
    "FencedStore",
    "Holder",
    "Lock",
    "LockSettings",
    "Semaphore",
    "Term",
]
