"""Directories at any depth: more levels than one transaction makes are made in steps.

Imports its siblings.
"""

from __future__ import annotations

from commitlog.errors import TransactionTooLarge
from commitlog.namespace.namespace import Namespace
from commitlog.namespace.status import Status

__all__ = ["make_directories"]

#: Levels that one transaction makes: each takes three writes, and two are for what is above.
_LEVELS = 30


def make_directories(lake: Namespace, path: str, *, exist_ok: bool = True) -> Status:
    """Make a directory and all above it that are missing; return it. At once, if a transaction has room.

    Args:
        lake: the namespace.
        path: where.
        exist_ok: whether one that is there already will do.

    Raises what `Namespace.make_directory` does; directories above may have been made then.

    >>> from commitlog.mount import create_namespace
    >>> lake = create_namespace("lake", store="memory://deep", names="memory://deep")
    >>> make_directories(lake, "/".join("d" * 100)).is_directory
    True
    """
    try:
        return lake.make_directory(path, exist_ok=exist_ok)
    except TransactionTooLarge:
        names = path.split("/")
        for depth in range(_LEVELS, len(names), _LEVELS):
            lake.make_directory("/".join(names[:depth]))
        return lake.make_directory(path, exist_ok=exist_ok)
