"""Streams of objects and local files: blocks of an object, atomic local files, progress bars."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import secrets
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, BinaryIO

import click

from commitlog.errors import AlreadyExists, CommitError, PreconditionFailed
from commitlog.stores.api import ObjectInfo, same_etag
from commitlog.stores.body import write_block
from commitlog.transfer import (
    BLOCK_SIZE,
    Advance,
    OpenObject,
    read_blocks,
    read_first_block,
)

if TYPE_CHECKING:
    from commitlog.commit import ConditionalStore

__all__ = ["atomic_file", "open_object", "read_object", "save_object", "with_progress_bar"]

#: How file systems refuse hard links: EPERM (link(2)), EOPNOTSUPP and ENOSYS (of FUSE).
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS})


class _BlocksFile(io.RawIOBase):
    """A file of blocks. Closing it ends their iterator."""

    def __init__(self, blocks: Generator[bytes]) -> None:
        self._blocks = blocks
        self._block = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        if not self._block:
            self._block = memoryview(next(self._blocks, b""))
        size = min(len(buffer), len(self._block))
        buffer[:size] = self._block[:size]
        self._block = self._block[size:]
        return size

    def close(self) -> None:
        self._blocks.close()
        super().close()


def read_object(
    store: ConditionalStore, path: str, *, etag: str | None = None
) -> tuple[ObjectInfo, Generator[bytes]]:
    """Return the details of an object, and an iterator of its blocks. The caller closes the iterator.

    The first block is read at once, and is the only request for an object of one block; an empty object
    takes a second one for its details. From a server, up to 8 further blocks are read ahead in threads,
    but no more than were read before, for readers that stop early. All blocks are of one version: the
    iterator raises `PreconditionFailed` if the object was replaced meanwhile, and `NotFound` if it was
    removed.

    Args:
        store: the store.
        path: the path of the object.
        etag: the expected version; another one raises `PreconditionFailed`.

    Raises:
        NotFound: the object does not exist.
    """
    opened, first = _first_block(store, path, etag)

    def blocks() -> Generator[bytes]:
        nonlocal first
        start = len(first)
        yield first
        first = b""
        yield from read_blocks(opened, start=start, ramp_up=True)

    return opened.info, blocks()


def open_object(store: ConditionalStore, path: str) -> tuple[ObjectInfo, BinaryIO]:
    """Return the details of an object, and a file of its blocks; see `read_object`.

    The caller closes the file. Raises `NotFound` if the object does not exist.
    """
    info, blocks = read_object(store, path)
    return info, io.BufferedReader(_BlocksFile(blocks), buffer_size=64 * 1024)


def save_object(
    store: ConditionalStore,
    path: str,
    target: BinaryIO,
    *,
    etag: str | None = None,
    started: Callable[[ObjectInfo], Advance],
) -> ObjectInfo:
    """Write an object to a new local file, and return its details.

    It sends the requests of `read_object`, with 8 under way from the start. Blocks are written in order:
    on a disk, writes to places in any order cost more than they save.

    Args:
        store, path, etag: as in `read_object`.
        target: the empty file.
        started: called with the details; returns the function that is called with the number of bytes
            after each block.

    Raises the errors of `read_object` and of its iterator. The file then has some of the blocks.
    """
    opened, first = _first_block(store, path, etag)
    advance = started(opened.info)
    start = len(first)
    advance(write_block(target, first))
    del first
    with closing(read_blocks(opened, start=start)) as blocks:
        for block in blocks:
            advance(write_block(target, block))
    return opened.info


def _first_block(store: ConditionalStore, path: str, etag: str | None) -> tuple[OpenObject, bytes]:
    opened, first = read_first_block(store, path)
    if etag is not None and not same_etag(opened.info.etag, etag):
        raise PreconditionFailed(f"{path!r} has etag {opened.info.etag}, not {etag}")
    return opened, first


class _CountedReader(io.RawIOBase):
    def __init__(self, body: BinaryIO, bar: click._termui_impl.ProgressBar[int]) -> None:
        self._body = body
        self._bar = bar

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        data = self._body.read(len(buffer))
        buffer[: len(data)] = data
        self._bar.update(len(data))
        return len(data)


@contextmanager
def with_progress_bar(body: BinaryIO, size: int | None, label: str) -> Iterator[BinaryIO]:
    """Show a progress bar while `body` is read, if standard error is a terminal and the file is large.

    Args:
        body: the file.
        size: its size in bytes; None if unknown.
        label: the label of the progress bar.
    """
    if size is None or size < BLOCK_SIZE or not sys.stderr.isatty():
        yield body
        return
    with click.progressbar(length=size, label=label, file=sys.stderr) as bar:
        yield io.BufferedReader(_CountedReader(body, bar), buffer_size=1024 * 1024)


@contextmanager
def atomic_file(file: str, *, absent: bool) -> Iterator[BinaryIO]:
    """Open a local file for writing. It appears when it is complete, and not after an error.

    With `absent`, raises `AlreadyExists` if `file` exists. On a file system without hard links (as FAT),
    an empty file then has the name for a moment, and stays if the process dies then. Without `absent`,
    raises `FileExistsError` if `file` is a directory, a device or a pipe.
    """
    if not absent and os.path.exists(file) and not os.path.isfile(file):
        reason = "it is not a regular file, which could be replaced ('-' is standard output)"
        raise FileExistsError(errno.EEXIST, reason, file)
    partial = f"{file}.{secrets.token_hex(4)}.part"
    try:
        with open(partial, "xb") as target:
            yield target
        if absent:
            _place(partial, file)
        else:
            os.replace(partial, file)
    except FileExistsError as error:
        if isinstance(error, CommitError):
            raise
        raise AlreadyExists(f"{file!r} already exists") from None
    except FileNotFoundError as error:
        if isinstance(error, CommitError):
            raise
        raise FileNotFoundError(error.errno, "its directory does not exist", file) from None
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(partial)


def _place(partial: str, file: str) -> None:
    """Give a file its name. Raises `FileExistsError` if there is one with that name."""
    try:
        os.link(partial, file)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        with open(file, "xb"):  # keeps others from the name
            pass
        os.replace(partial, file)
