"""Locks that a child process finds free.

A fork copies a lock as it is, but not the thread that holds it. So the thread that forks waits for these
locks, and gives them back on both sides. The state behind them is then complete in the child, too.
"""

from __future__ import annotations

import os
import threading
from weakref import WeakSet

__all__ = ["fork_safe_lock"]

# Fork hooks are global and cannot be removed, so one set of hooks serves all locks, and it needs a
# registry of them. Its own lock keeps new ones from being made while the process forks.
_locks: WeakSet[threading.Lock] = WeakSet()
_registry_lock = threading.Lock()
_acquired: list[threading.Lock] = []


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
    for lock in list(_locks):
        lock.acquire()
        _acquired.append(lock)


def _after() -> None:
    while _acquired:
        _acquired.pop().release()
    _registry_lock.release()


os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after)
