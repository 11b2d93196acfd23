"""Directories and files below a root, reached without ever following a symbolic link.

Every component is opened relative to its parent's descriptor with O_NOFOLLOW, so no rename and no link
made meanwhile leads outside.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Final

from attrs import frozen

from commitlog.errors import AccessDenied, BucketNotFound, CommitError, InvalidPath, Unavailable
from commitlog.paths import check_path
from commitlog.stores.local.file_io import full_sync

__all__ = ["RESERVED", "DirectoryTree", "TreeEntry", "explained", "in_the_way", "sync_directory"]

#: The directory of a store's internal files. No path may lead through it.
RESERVED: Final = ".commitlog"

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: opening a FIFO must not wait for its writer
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

_DENIED: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Turn an `OSError` on `what` into the matching error of this library."""
    try:
        yield
    except CommitError:  # some of them are OSErrors as well
        raise
    except OSError as error:
        raise _explain(error, what) from error


def _explain(error: OSError, what: str) -> CommitError:
    if error.errno in _DENIED:
        return AccessDenied(f"{what}: {error.strerror}")
    if error.errno == errno.ENAMETOOLONG:
        return InvalidPath(f"{what}: this file system takes no name of that length")
    if error.errno == errno.EXDEV:
        return InvalidPath(f"{what} is on another file system than the store's root")
    return Unavailable(f"{what}: {error.strerror or error}")


def sync_directory(path: str) -> None:
    """Make creations, renames and removals in the directory survive power loss."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        full_sync(fd)
    finally:
        os.close(fd)


@frozen
class TreeEntry:
    """A file found by `DirectoryTree.walk`, or, with `stat` None, a directory that was rolled up."""

    path: str
    stat: os.stat_result | None


@frozen
class DirectoryTree:
    """The directory tree below `root`. Stateless, so thread-safe and fork-safe.

    Args:
        root: real path of a directory, which need not exist yet.
        durable: fsync the parents of new directories.
    """

    root: str
    durable: bool

    # one file

    def stat(self, parts: Sequence[str]) -> os.stat_result | None:
        """Return the status of a file or directory; None if it does not exist."""
        with self.directory(parts[:-1]) as parent:
            if parent is None:
                return None
            try:
                found = os.stat(parts[-1], dir_fd=parent, follow_symlinks=False)
            except FileNotFoundError:
                return None
        if stat.S_ISLNK(found.st_mode):
            raise _is_link(parts)
        return found

    def open_file(self, parts: Sequence[str]) -> int | None:
        """Return a descriptor of the file, for the caller to close; None if there is no file.

        Raises `InvalidPath` where a symbolic link is in the way.
        """
        with self.directory(parts[:-1]) as parent:
            if parent is None:
                return None
            try:
                fd = os.open(parts[-1], _FILE, dir_fd=parent)
            except FileNotFoundError:
                return None
            except OSError as error:
                if error.errno == errno.ELOOP:
                    raise _is_link(parts) from None
                if error.errno == errno.ENXIO:  # a socket
                    return None
                raise
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            return None
        return fd

    def check_free(self, parts: Sequence[str]) -> None:
        """Raise `InvalidPath` if no file can be there: of a directory, or of a file or link above it."""
        for depth in range(1, len(parts) + 1):
            found = self.stat(parts[:depth])
            if found is None:
                return
            if stat.S_ISDIR(found.st_mode) != (depth < len(parts)):
                kind = "a directory" if depth == len(parts) else "an object"
                raise in_the_way(parts[:depth], kind)

    # directories

    @contextmanager
    def directory(self, parts: Sequence[str]) -> Iterator[int | None]:
        """Give a descriptor of the directory, or None if there is none."""
        fd = self._descend(parts, create=False)
        try:
            yield fd
        finally:
            if fd is not None:
                os.close(fd)

    @contextmanager
    def made_directory(self, parts: Sequence[str]) -> Iterator[int]:
        """Yield a descriptor of the directory; create it and its parents if they are missing.

        Raises `InvalidPath` if a file is in the way, `FileNotFoundError` if another process removed a
        directory concurrently.
        """
        fd = self._descend(parts, create=True)
        assert fd is not None
        try:
            yield fd
        finally:
            os.close(fd)

    def prune(self, parts: Sequence[str], keep: int) -> None:
        """Remove the directory and its parents as far as they are empty, but not the first `keep`.

        If a file was just added to a directory, it is not empty, and rmdir(2) leaves it alone. Never
        raises: a remaining empty directory is invisible through a store.
        """
        with suppress(OSError, CommitError):
            for depth in range(len(parts), keep, -1):
                with self.directory(parts[: depth - 1]) as parent:
                    if parent is not None:
                        with suppress(FileNotFoundError):
                            os.rmdir(parts[depth - 1], dir_fd=parent)

    def sync(self, parts: Sequence[str]) -> None:
        """Make changes in the directory, or in the nearest parent that is left, survive power loss."""
        if not self.durable:
            return
        for depth in range(len(parts), -1, -1):
            with self.directory(parts[:depth]) as fd:
                if fd is not None:
                    full_sync(fd)
                    return

    def _descend(self, parts: Sequence[str], *, create: bool) -> int | None:
        try:
            fd = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            if create:
                raise
            return None
        except NotADirectoryError:
            raise BucketNotFound(f"{self.root} is not a directory") from None
        try:
            for depth, part in enumerate(parts, 1):
                try:
                    child = os.open(part, _DIRECTORY, dir_fd=fd)
                except FileNotFoundError:
                    if not create:
                        os.close(fd)
                        return None
                    with suppress(FileExistsError):
                        os.mkdir(part, dir_fd=fd)
                    if self.durable:
                        full_sync(fd)
                    child = os.open(part, _DIRECTORY, dir_fd=fd)
                except OSError as error:
                    if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                        raise
                    if stat.S_ISLNK(os.stat(part, dir_fd=fd, follow_symlinks=False).st_mode):
                        raise _is_link(parts[:depth]) from None
                    if create:
                        raise in_the_way(parts[:depth], "an object") from None
                    os.close(fd)
                    return None
                os.close(fd)
                fd = child
        except BaseException:
            os.close(fd)
            raise
        return fd

    # many files

    def walk(
        self, prefix: str, after: str, *, roll_up: bool = False
    ) -> Generator[TreeEntry, None, None]:
        """Yield the files whose path starts with `prefix` and comes after `after`.

        They come in the byte order of their whole paths, as on S3: ``a-b`` before ``a/1``. One
        directory at a time is held in memory. Links, special files and names that are not valid in paths
        are left out.

        Args:
            prefix: the prefix of the paths.
            after: yield only paths greater than this.
            roll_up: yield directories directly below the prefix, if there is a file in them, instead of
                their files.
        """
        parts = prefix.split("/")[:-1]
        if RESERVED in parts:
            return
        try:
            with self.directory(parts) as fd:
                if fd is not None:
                    base = "".join(part + "/" for part in parts)
                    yield from self._walk(fd, base, prefix, after, roll_up)
        except InvalidPath:  # the prefix leads through a link, and links are left out
            return

    def _walk(
        self, fd: int, base: str, prefix: str, after: str, roll_up: bool
    ) -> Generator[TreeEntry, None, None]:
        for name in _names(fd, prefix[len(base) :]):
            path = base + name
            if not name.endswith("/"):
                if path > after:
                    try:
                        yield TreeEntry(path, os.stat(name, dir_fd=fd, follow_symlinks=False))
                    except FileNotFoundError:
                        continue
                continue
            if path < after and not after.startswith(path):
                continue
            try:
                child = os.open(name[:-1], _DIRECTORY, dir_fd=fd)
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                    continue  # removed or replaced meanwhile
                raise
            try:
                with closing(self._walk(child, path, path, after, False)) as below:
                    if not roll_up:
                        yield from below
                    elif next(below, None) is not None:
                        yield TreeEntry(path, None)
            finally:
                os.close(child)


def _names(fd: int, start: str) -> list[str]:
    """Return the names that begin with `start`, sorted; those of directories end in "/"."""
    names: list[str] = []
    with os.scandir(fd) as entries:
        for entry in entries:
            if not entry.name.startswith(start) or entry.name == RESERVED:
                continue
            try:
                check_path(entry.name)
            except InvalidPath:
                continue
            if entry.is_dir(follow_symlinks=False):
                names.append(entry.name + "/")
            elif entry.is_file(follow_symlinks=False):
                names.append(entry.name)
    names.sort()
    return names


def in_the_way(parts: Sequence[str], kind: str) -> InvalidPath:
    """Return the error for a file of which the path is taken, or leads through a file."""
    path = "/".join(parts)
    return InvalidPath(f"{path!r} is {kind}: a local directory cannot hold both 'a' and 'a/b'")


def _is_link(parts: Sequence[str]) -> InvalidPath:
    return InvalidPath(f"{'/'.join(parts)!r} is a symbolic link, and links are not followed")
