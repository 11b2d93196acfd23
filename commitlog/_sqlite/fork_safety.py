"""Closing of SQLite connections around a fork, and opening them again on both sides after it.

SQLite remembers in memory which file locks its process holds. A forked child inherits that memory, but
not the locks: other processes would remove the log while the child uses it, and the child would write
without a lock ("How To Corrupt An SQLite Database File", 2.6). So no connection may be open when the
process forks.
"""

from __future__ import annotations

import os
import threading
from functools import partial
from typing import Protocol
from weakref import WeakSet

__all__ = ["Closable", "close_on_fork"]


class Closable(Protocol):
    """An object that can close its connections temporarily."""

    def put_away(self) -> None:
        """Wait until no connection is in use, close all, and block new ones until `bring_back`."""

    def bring_back(self, *, child: bool) -> None:
        """Continue after the fork, in the thread that called `put_away`; `child`: in the new process."""


# Fork hooks are global and cannot be removed, so one set of hooks serves all objects, and it needs a
# registry of them. The lock also keeps new objects from being registered while the process forks.
_known: WeakSet[Closable] = WeakSet()
_lock = threading.Lock()
_put_away: list[Closable] = []


def close_on_fork(closable: Closable) -> None:
    """Call `put_away` of `closable` at each fork, as long as other references to it exist."""
    with _lock:
        _known.add(closable)


def _before() -> None:
    _lock.acquire()
    for closable in list(_known):
        closable.put_away()
        _put_away.append(closable)


def _after(*, child: bool) -> None:
    while _put_away:
        _put_away.pop().bring_back(child=child)
    _lock.release()


os.register_at_fork(
    before=_before,
    after_in_parent=partial(_after, child=False),
    after_in_child=partial(_after, child=True),
)
