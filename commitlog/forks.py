"""What must not be open while the process forks: closed before it, free on both sides after it.

SQLite remembers in memory which file locks its process holds. A forked child inherits that memory, but
not the locks: other processes would remove the log under it, and it would write beside them ("How To
Corrupt An SQLite Database File", 2.6). So nobody may have a connection open when the process forks.

Imports nothing of the project.
"""

from __future__ import annotations

import os
import threading
from functools import partial
from typing import Protocol
from weakref import WeakSet

__all__ = ["Closable", "close_at_forks"]


class Closable(Protocol):
    """Something with connections that it can close for a while."""

    def put_away(self) -> None:
        """Wait until no connection is in use, close all, and let none be opened until `bring_back`."""

    def bring_back(self, *, child: bool) -> None:
        """Go on after the fork, in the thread that called `put_away`; `child`: in the new process."""


# Hooks on fork are the process's and cannot be taken back, so there is one set of them for everything,
# and it has to know what there is. The lock also keeps more from coming up while the process forks.
_known: WeakSet[Closable] = WeakSet()
_lock = threading.Lock()
_put_away: list[Closable] = []


def close_at_forks(closable: Closable) -> None:
    """Put `closable` away whenever the process forks, for as long as somebody else refers to it."""
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
