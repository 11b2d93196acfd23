"""Reading, writing and copying all that is asked for: one system call may do less."""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from typing import Final

from commitlog.stores.body import WRITE_SIZE

__all__ = ["copy_all", "full_sync", "read_range", "write_all"]

#: Most bytes of one system call; Linux moves at most 2 GiB at a time.
_MOST: Final = 1 << 30
#: Errors of copy_file_range(2) if the kernel or the file system does not support it.
_NO_COPY_FILE_RANGE: Final = frozenset({errno.ENOSYS, errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP})


def read_range(fd: int, start: int, stop: int) -> bytes:
    """Return the file's bytes ``[start, stop)``, cut at its end."""
    pieces: list[bytes] = []
    while start < stop and (piece := os.pread(fd, min(stop - start, _MOST), start)):
        pieces.append(piece)
        start += len(piece)
    return b"".join(pieces)


def write_all(fd: int, data: bytes | bytearray | memoryview) -> None:
    """Write all of `data` at the file's position."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view[:WRITE_SIZE]) :]


def copy_all(source: int, target: int) -> None:
    """Copy from the source's position to its end, inside the kernel where that can."""
    try:
        while os.copy_file_range(source, target, _MOST):
            pass
    except (AttributeError, OSError) as error:
        if getattr(error, "errno", errno.ENOSYS) not in _NO_COPY_FILE_RANGE:
            raise
        while piece := os.read(source, WRITE_SIZE):
            write_all(target, piece)


def full_sync(fd: int) -> None:
    """Make a file or directory survive power loss.

    fsync(2) of macOS leaves it in the cache of the drive; F_FULLFSYNC does not. A file system that does
    not know it (a network share) gets fsync.
    """
    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is not None:
        with suppress(OSError):
            fcntl.fcntl(fd, full)
            return
    os.fsync(fd)
