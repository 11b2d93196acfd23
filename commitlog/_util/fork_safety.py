"""Connections and locks around a fork: connections are closed, and locks are free on both sides.

SQLite remembers in memory which file locks its process holds. A forked child inherits that memory, but
not the locks: other processes would remove the log while the child uses it, and the child would write
without a lock ("How To Corrupt An SQLite Database File", 2.6). So no connection may be open when the
process forks.

A fork copies a lock as it is, but not the thread that holds it. So the thread that forks waits for the
locks, and gives them back on both sides. The state behind them is then complete in the child, too.
"""

from __future__ import annotations

import os
import threading
from functools import partial
from typing import Protocol
from weakref import WeakSet

__all__ = ["Closable", "close_on_fork", "fork_safe_lock"]


class Closable(Protocol):
    """An object that can close its connections temporarily."""

    def put_away(self) -> None:
        """Wait until no connection is in use, close all, and block new ones until `bring_back`."""

    def bring_back(self, *, child: bool) -> None:
        """Continue after the fork, in the thread that called `put_away`; `child`: in the new process."""


# Fork hooks are global and cannot be removed, so one set of hooks serves all objects, and it needs a
# registry of them. Its lock also keeps new objects from being registered while the process forks.
_closables: WeakSet[Closable] = WeakSet()
_locks: WeakSet[threading.Lock] = WeakSet()
_registry_lock = threading.Lock()
_put_away: list[Closable] = []
_acquired: list[threading.Lock] = []


def close_on_fork(closable: Closable) -> None:
    """Call `put_away` of `closable` at each fork, as long as other references to it exist."""
    with _registry_lock:
        _closables.add(closable)


def fork_safe_lock() -> threading.Lock:
    """Return a new lock that is free in a child process.

    It is for short sections: who holds it waits for nothing, forks nothing, and makes or acquires no
    other lock of this kind.
    """
    lock = threading.Lock()
    with _registry_lock:
        _locks.add(lock)
    return lock


def _before() -> None:
    _registry_lock.acquire()
    # Connections first: who uses one may need a lock.
    for closable in list(_closables):
        closable.put_away()
        _put_away.append(closable)
    for lock in list(_locks):
        lock.acquire()
        _acquired.append(lock)


def _after(*, child: bool) -> None:
    while _acquired:
        _acquired.pop().release()
    while _put_away:
        _put_away.pop().bring_back(child=child)
    _registry_lock.release()


os.register_at_fork(
    before=_before,
    after_in_parent=partial(_after, child=False),
    after_in_child=partial(_after, child=True),
)
