"""The object that identifies the store of a namespace: it shows that the right store is there.

The object is stored once, when the namespace is created, under a reserved prefix that holds no user's
files. The metadata record in the table has its path. If a disk is not mounted, a program that writes
there creates a new directory, but never this object.
"""

from __future__ import annotations

from attrs import frozen

from commitlog._util.retry import Backoff
from commitlog.clock import Clock
from commitlog.commit.bucket_identity import put_identity_object
from commitlog.namespace.model.binding import RESERVED
from commitlog.stores.api import ObjectStore

__all__ = ["StoreIdentity", "identity_path"]


def identity_path(namespace: str, id: str) -> str:
    """Return the path of a namespace's identity object; `id` is a unique string.

    >>> identity_path("lake", "0b1c")
    '_commitlog/namespaces/lake/mark/0b1c'
    """
    return f"{RESERVED}namespaces/{namespace}/mark/{id}"


@frozen(kw_only=True)
class StoreIdentity:
    """Stores identity objects.

    Args:
        store: the store to identify.
        clock: the clock for pauses between attempts.
        backoff: the retry policy; the write may be repeated safely.
    """

    store: ObjectStore
    clock: Clock
    backoff: Backoff

    def put(self, path: str) -> bool:
        """Store an identity object; return False if access is denied.

        Raises `BucketNotFound`, `Unavailable`.
        """
        text = b"By this object a namespace knows its store. Leave it here.\n"
        return put_identity_object(
            self.store, lambda: path, text, clock=self.clock, backoff=self.backoff
        )
