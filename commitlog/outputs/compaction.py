"""The plan of a compaction: which small files of an output to merge. Reads and writes nothing."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable

from attrs import frozen

from commitlog.errors import ConfigurationError
from commitlog.outputs.records import DataFile, total_rows

__all__ = ["TARGET_BYTES", "Group", "plan"]

#: Size that files are merged up to by default.
TARGET_BYTES = 128 * 1024 * 1024

#: Files are small below this share of the target size. A merged file, of about the target size, is not
#: merged again.
SMALL = 0.75


@frozen
class Group:
    """Files of one partition and one kind that become one file.

    Attributes:
        files: two or more, in order of commit.
    """

    files: tuple[DataFile, ...]

    @property
    def bytes(self) -> int:
        """Their size."""
        return sum(file.size for file in self.files)

    @property
    def rows(self) -> int | None:
        """Number of rows in them, or None if one of them is not known."""
        return total_rows(self.files)


def plan(
    files: Iterable[DataFile],
    *,
    kind: Callable[[DataFile], Hashable],
    target_bytes: int = TARGET_BYTES,
    min_files: int = 2,
) -> tuple[Group, ...]:
    """Return the groups of `files` that are worth merging; the same files give the same groups.

    Small files, those of less than three quarters of `target_bytes`, are taken in their order, and a
    group ends before the file that would make it larger than that; so its rows keep their order. The
    merged file is large then, or meets other small files in a later plan: there are fewer each time.

    Args:
        files: in order of commit, as in `State.files`.
        kind: returns the kind of a file, such as format and compression. Files of a group have the same
            kind and partition. None for a file that is not to be merged.
        target_bytes: most bytes of a group, at least 1.
        min_files: least number of files of a group, at least 2.

    Raises `ConfigurationError` for other numbers.

    >>> files = [DataFile(path=f"{n}.csv", size=4, nonce="") for n in range(5)]
    >>> [[file.path for file in group.files] for group in plan(files, kind=type, target_bytes=8)]
    [['0.csv', '1.csv'], ['2.csv', '3.csv']]
    """
    if target_bytes < 1 or min_files < 2:
        raise ConfigurationError(
            f"files are to be merged up to {target_bytes} bytes, at least {min_files} at a time: give a"
            " size of 1 or more, and at least 2 files"
        )
    groups: list[list[DataFile]] = []
    last: dict[Hashable, tuple[list[DataFile], int]] = {}
    for file in files:
        of = kind(file)
        if of is not None and file.size < SMALL * target_bytes:
            key = of, file.partition_key
            group, size = last.get(key, ([], 0))
            if size + file.size > target_bytes or not group:
                group, size = [], 0
                groups.append(group)
            group.append(file)
            last[key] = group, size + file.size
    return tuple(Group(tuple(group)) for group in groups if len(group) >= min_files)
