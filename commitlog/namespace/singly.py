"""Many files, each for itself, in few transactions.

`Namespace.link_all` makes all files or none. Here what is wrong with one of them keeps nothing from the
others, as if they were made one by one, for about as many writes and far fewer transactions. Imports the
ground floor and its siblings.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from commitlog.errors import (
    AlreadyExists,
    CommitError,
    Conflict,
    InvalidPath,
    IsADirectory,
    NotADirectory,
    NotFound,
    OutcomeUnknown,
    TransactionTooLarge,
)
from commitlog.namespace.data import Data
from commitlog.namespace.namespace import Namespace
from commitlog.namespace.status import Status

__all__ = ["FILES_OF_A_LINK", "link_each"]

#: Files to give `link_each` at a time: if all of them replace others, one transaction still has them.
FILES_OF_A_LINK = 40

#: What is wrong with one file or the other, or with so many of them at once.
_OF_SOME = (
    AlreadyExists,
    Conflict,
    InvalidPath,
    IsADirectory,
    NotADirectory,
    NotFound,
    TransactionTooLarge,
)


def link_each(
    lake: Namespace, files: Mapping[str, Data], *, overwrite: bool = True, parents: bool = True
) -> dict[str, Status | CommitError]:
    """Make files of content that was stored for them; return for each the file, or why there is none.

    All of them go into one transaction; if that is refused for what may be wrong with some of them, each
    half of them into one, and so on. The content of what is not made is removed, as `Namespace.write`
    does; after an `OutcomeUnknown` it is left, since there may be a file of it.

    Args:
        lake: the namespace.
        files: for each path its content, an object of the namespace's own that is no other file's.
        overwrite: whether to replace files that are there.
        parents: whether to make the directories above that are missing.

    Errors are those of `Namespace.link`. Thread-safe.

    >>> from commitlog.mount import create_namespace
    >>> lake = create_namespace("lake", store="memory://singly", names="memory://singly")
    >>> stored = {}
    >>> for path in ("a", "b", "b/c"):
    ...     with lake.begin_write(path) as writer:
    ...         stored[path] = writer.finish()
    >>> [type(made).__name__ for made in link_each(lake, stored).values()]
    ['Status', 'Status', 'NotADirectory']
    """
    if not files:
        return {}
    try:
        return dict(zip(files, lake.link_all(files, overwrite=overwrite, parents=parents), strict=True))
    except OutcomeUnknown as error:
        return dict.fromkeys(files, error)
    except CommitError as error:
        if isinstance(error, _OF_SOME) and len(files) > 1:
            return {
                path: made
                for some in _halves(files)
                for path, made in link_each(lake, some, overwrite=overwrite, parents=parents).items()
            }
        with contextlib.suppress(CommitError):
            lake.store.delete_many([data.path for data in files.values() if data.own])
        return dict.fromkeys(files, error)


def _halves(files: Mapping[str, Data]) -> tuple[dict[str, Data], dict[str, Data]]:
    pairs = list(files.items())
    middle = len(pairs) // 2
    return dict(pairs[:middle]), dict(pairs[middle:])
