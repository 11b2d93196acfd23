"""Filling a directory, at which nobody looks yet, with any number of files, at any depth.

Imports its siblings.
"""

from __future__ import annotations

from collections.abc import Mapping

from commitlog.namespace.batches import Mapper
from commitlog.namespace.data import Data
from commitlog.namespace.namespace import Namespace
from commitlog.paths import join

__all__ = ["fill"]

#: New files of a directory from which on it is spread over more shards.
_FILES_PER_SHARD = 1000
_MAX_SHARDS = 64


def fill(lake: Namespace, top: str, files: Mapping[str, Data], *, mapper: Mapper) -> None:
    """Make files, and the directories that they are in. It can be repeated.

    Args:
        lake: the namespace.
        top: path of the directory. If it is gone, it is not made anew.
        files: for each path below it what the file's content is.
        mapper: has files of different directories, or shards, linked at once.

    Raises what `Namespace.make_directory`, `Namespace.grow` and `Namespace.link_into` do.
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
    """Make a directory for so many files; return its path."""
    shards = _shards(files)
    if directory:
        # Without those above: if the job is aborted meanwhile, its own must not be made anew.
        return lake.make_directory(join(top, directory), shards=shards, parents=False).path
    if shards > 1:
        lake.grow(top, shards=shards)
    return top


def _shards(files: int) -> int:
    """Return over how many shards so many new files are to be spread.

    >>> [_shards(number) for number in (1, 999, 1000, 10_000, 10**6)]
    [1, 1, 2, 16, 64]
    """
    return min(_MAX_SHARDS, 1 << (files // _FILES_PER_SHARD).bit_length())
