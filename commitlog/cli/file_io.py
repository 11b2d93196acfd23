"""Streams of objects and local files: blocks of an object, atomic local files, progress bars."""

from __future__ import annotations

import contextlib
import io
import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, Protocol

import click

from commitlog.errors import AlreadyExists, CommitError, PreconditionFailed
from commitlog.stores.api import ObjectData, ObjectInfo, same_etag
from commitlog.transfer import BLOCK_SIZE

__all__ = ["atomic_file", "open_object", "with_progress_bar"]


class _Readable(Protocol):
    def head(self, path: str) -> ObjectInfo: ...
    def get(self, path: str, *, start: int = 0, end: int | None = None) -> ObjectData: ...


class _ObjectReader(io.RawIOBase):
    def __init__(self, store: _Readable, info: ObjectInfo) -> None:
        self._store = store
        self._info = info
        self._position = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        end = min(self._position + len(buffer), self._info.size)
        if end == self._position:
            return 0
        block = self._store.get(self._info.path, start=self._position, end=end)
        if not same_etag(block.etag, self._info.etag):
            raise PreconditionFailed(
                f"{self._info.path!r} was replaced while it was read: its etag was {self._info.etag},"
                f" and is now {block.etag}; read it again"
            )
        buffer[: len(block.data)] = block.data
        self._position += len(block.data)
        return len(block.data)


def open_object(store: _Readable, path: str, *, etag: str | None = None) -> tuple[ObjectInfo, BinaryIO]:
    """Return the details of an object, and a file that reads it in blocks.

    All blocks are of one version: reading raises `PreconditionFailed` if the object was replaced
    meanwhile.

    Args:
        store: the store.
        path: the path of the object.
        etag: the expected version; another one raises `PreconditionFailed`.

    Raises:
        NotFound: the object does not exist.
    """
    info = store.head(path)
    if etag is not None and not same_etag(info.etag, etag):
        raise PreconditionFailed(f"{path!r} has etag {info.etag}, not {etag}")
    return info, io.BufferedReader(_ObjectReader(store, info), buffer_size=BLOCK_SIZE)


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

    With `absent`, raises `AlreadyExists` if `file` exists.
    """
    partial = f"{file}.{secrets.token_hex(4)}.part"
    try:
        with open(partial, "xb") as target:
            yield target
        if absent:
            os.link(partial, file)
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
