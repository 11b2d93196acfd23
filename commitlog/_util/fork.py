"""What threads share, around a fork: connections are closed, and a child process finds all locks free.

Every lock, condition, thread-local and executor that outlives a call is made or registered here.

SQLite remembers in memory which file locks its process holds. A forked child inherits that memory, but
not the locks: other processes would remove the log while the child uses it, and the child would write
without a lock ("How To Corrupt An SQLite Database File", 2.6). So no connection may be open when the
process forks.

A fork copies a lock as it is, but not the thread that holds it. There are two kinds:

* A `fork_safe_lock` is held for moments. The thread that forks waits for it, and gives it back on both
  sides. The state behind it is then complete in the child, too.
* A `WorkLock` may be held during requests, so no fork waits for it. The child gets a free one. What the
  lock's holder was doing goes on in the parent alone.

An object with other things of threads has a method `renew`, and registers with `renew_in_child`.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from functools import partial
from typing import Protocol
from weakref import WeakSet

__all__ = ["Closable", "Renewable", "WorkLock", "close_on_fork", "fork_safe_lock", "renew_in_child"]


class Closable(Protocol):
    """An object that can close its connections temporarily."""

    def put_away(self) -> None:
        """Wait until no connection is in use, close all, and block new ones until `bring_back`."""

    def bring_back(self, *, child: bool) -> None:
        """Continue after the fork, in the thread that called `put_away`; `child`: in the new process."""


class Renewable(Protocol):
    """An object with locks, threads or thread-locals."""

    def renew(self) -> None:
        """Replace them, in a child process: no other thread is there."""


# Fork hooks are global and cannot be removed, so one set of hooks serves all objects, and it needs a
# registry of them. Its lock also keeps new objects from being registered while the process forks.
_closables: WeakSet[Closable] = WeakSet()
_locks: WeakSet[threading.Lock] = WeakSet()
_renewables: WeakSet[Renewable] = WeakSet()
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


def renew_in_child(renewable: Renewable) -> None:
    """Call `renew` in each child process, as long as other references to the object exist."""
    with _registry_lock:
        _renewables.add(renewable)


class WorkLock:
    """A lock that may be held for long, such as during requests, and that is free in a child process."""

    def __init__(self) -> None:
        self.renew()
        renew_in_child(self)

    def renew(self) -> None:
        """See `Renewable`."""
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        """Acquire it."""
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        """Release it; the thread that forked while it held the lock finds it free already."""
        with suppress(RuntimeError):
            self._lock.release()


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
    if child:
        for renewable in list(_renewables):
            renewable.renew()
    _registry_lock.release()


os.register_at_fork(
    before=_before,
    after_in_parent=partial(_after, child=False),
    after_in_child=partial(_after, child=True),
)
