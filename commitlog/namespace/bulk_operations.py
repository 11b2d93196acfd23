"""Operations on many files, or on deep paths, in few transactions.

`Namespace.link_all` creates all files or none. `link_each` creates as many as it can, as if the files
were created one by one, with about as many writes and far fewer transactions.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

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
from commitlog.namespace.model.data import Data
from commitlog.namespace.namespace import Namespace
from commitlog.namespace.read.tree import Mapper
from commitlog.namespace.status import Status
from commitlog.paths import join

__all__ = ["FILES_OF_A_LINK", "fill_directory", "link_each", "make_directories"]

#: Number of files to pass to `link_each`: one transaction has room for them, even if all replace others.
FILES_OF_A_LINK = 40

#: Errors that concern single files, or too many files at once.
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
    lake: Namespace,
    files: Mapping[str, Data],
    *,
    overwrite: bool = True,
    parents: bool = True,
    mapper: Mapper = map,
) -> dict[str, Status | CommitError]:
    """Create files from content that was stored for them; return each file, or the error for it.

    All files go into one transaction. If it is refused with an error that may concern only some of the
    files, each half goes into its own transaction, and so on. The content of a file that was not created
    is removed, as `Namespace.write` does. After an `OutcomeUnknown` it is left, since a file may refer
    to it.

    Args:
        lake: the namespace.
        files: the content for each path, an object of the namespace's own that no other file refers to.
        overwrite: whether to replace existing files.
        parents: whether to create missing parent directories.
        mapper: as for `Namespace.link_all`.

    Errors are those of `Namespace.link`. Thread-safe.

    >>> from commitlog.namespaces import create_namespace
    >>> lake = create_namespace("lake", store="memory://singly", metadata="memory://singly")
    >>> stored = {}
    >>> for path in ("a", "b", "b/c"):
    ...     with lake.begin_write(path) as writer:
    ...         stored[path] = writer.finish()
    >>> [type(made).__name__ for made in link_each(lake, stored).values()]
    ['Status', 'Status', 'NotADirectory']
    """
    if not files:
        return {}
    how: dict[str, Any] = {"overwrite": overwrite, "parents": parents, "mapper": mapper}
    try:
        return dict(zip(files, lake.link_all(files, **how), strict=True))
    except OutcomeUnknown as error:
        return dict.fromkeys(files, error)
    except CommitError as error:
        if isinstance(error, _OF_SOME) and len(files) > 1:
            return {
                path: made
                for some in _halves(files)
                for path, made in link_each(lake, some, **how).items()
            }
        with contextlib.suppress(CommitError):
            lake.store.delete_many([data.path for data in files.values() if data.own])
        return dict.fromkeys(files, error)


def _halves(files: Mapping[str, Data]) -> tuple[dict[str, Data], dict[str, Data]]:
    pairs = list(files.items())
    middle = len(pairs) // 2
    return dict(pairs[:middle]), dict(pairs[middle:])


#: Number of new files in a directory from which it is spread over more shards.
_FILES_PER_SHARD = 1000
_MAX_SHARDS = 64


def fill_directory(lake: Namespace, top: str, files: Mapping[str, Data], *, mapper: Mapper) -> None:
    """Create files, and the directories that contain them. The call can be repeated.

    Args:
        lake: the namespace.
        top: path of the directory. If it is gone, it is not created again.
        files: the content of each file, by its path below `top`.
        mapper: runs the work for different directories, or shards, in parallel.

    Raises the errors of `Namespace.make_directory`, `Namespace.reshard` and `Namespace.link_into`.
    """
    by_directory: dict[str, dict[str, Data]] = {}
    for path, data in files.items():
        directory, _, name = path.rpartition("/")
        by_directory.setdefault(directory, {})[name] = data
        while directory:
            directory = directory.rpartition("/")[0]
            by_directory.setdefault(directory, {})
    made = [
        (_make(lake, top, directory, len(named)), named)
        for directory, named in sorted(by_directory.items())
    ]
    filled = [each for each in made if each[1]]
    if len(filled) == 1:
        lake.link_into(*filled[0], mapper=mapper)
    else:
        list(mapper(lambda each: lake.link_into(*each), filled))


def _make(lake: Namespace, top: str, directory: str, files: int) -> str:
    """Create a directory for this number of files; return its path."""
    shards = _shards(files)
    if directory:
        # No parents: if the job is aborted meanwhile, its directory must not be created again.
        return lake.make_directory(join(top, directory), shards=shards, parents=False).path
    if shards > 1:
        lake.reshard(top, shards=shards)
    return top


def _shards(files: int) -> int:
    """Return the number of shards for this number of new files.

    >>> [_shards(number) for number in (1, 999, 1000, 10_000, 10**6)]
    [1, 1, 2, 16, 64]
    """
    return min(_MAX_SHARDS, 1 << (files // _FILES_PER_SHARD).bit_length())


#: Levels that one transaction creates: each takes three writes, and the existing parent takes two.
_LEVELS = 30


def make_directories(lake: Namespace, path: str, *, exist_ok: bool = True) -> Status:
    """Create a directory and all missing directories above it; return it.

    This is one transaction if they fit into it.

    Args:
        lake: the namespace.
        path: the path of the directory.
        exist_ok: whether the directory may exist already.

    Raises the errors of `Namespace.make_directory`; directories above may have been created then.

    >>> from commitlog.namespaces import create_namespace
    >>> lake = create_namespace("lake", store="memory://deep", metadata="memory://deep")
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
