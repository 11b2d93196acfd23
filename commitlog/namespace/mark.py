"""The object by which the store of a namespace is known: that it is there, and is the right one.

It is stored once, when the namespace is made, below what nobody's files are in; the marker of the table
tells which it is. Whoever writes to a store that is not mounted makes a directory, but never this.
Imports the ground floor, its siblings and the `ObjectStore` port.
"""

from __future__ import annotations

from attrs import frozen

from commitlog.backoff import Backoff
from commitlog.clock import Clock
from commitlog.commit.bucket import put_mark
from commitlog.namespace.binding import RESERVED
from commitlog.stores.api import ObjectStore

__all__ = ["Marks", "mark_of"]


def mark_of(namespace: str, word: str) -> str:
    """Return the path of a namespace's mark; the word is one that nobody else ever makes.

    >>> mark_of("lake", "0b1c")
    '_commitlog/namespaces/lake/mark/0b1c'
    """
    return f"{RESERVED}namespaces/{namespace}/mark/{word}"


@frozen(kw_only=True)
class Marks:
    """Stores marks.

    Args:
        store: where.
        clock: waited on between attempts.
        backoff: how often it is tried; done twice, it is the same.
    """

    store: ObjectStore
    clock: Clock
    backoff: Backoff

    def put(self, path: str) -> bool:
        """Store a mark; return False if that is denied. Raises `BucketNotFound`, `Unavailable`."""
        text = b"By this object a namespace knows its store. Leave it here.\n"
        return put_mark(self.store, lambda: path, text, clock=self.clock, backoff=self.backoff)
