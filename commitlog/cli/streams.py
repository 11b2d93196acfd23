"""Objects as files: reading one piece by piece, and showing progress meanwhile."""

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

__all__ = ["PIECE", "arriving", "open_object", "shown"]

#: Bytes fetched at a time, and the size from which progress is worth showing.
PIECE = 8 * 1024 * 1024


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
        piece = self._store.get(self._info.path, start=self._position, end=end)
        if not same_etag(piece.etag, self._info.etag):
            raise PreconditionFailed(
                f"{self._info.path!r} was replaced while it was read: what was read so far is of etag "
                f"{self._info.etag}, the rest would be of {piece.etag}; read it again"
            )
        buffer[: len(piece.data)] = piece.data
        self._position += len(piece.data)
        return len(piece.data)


def open_object(store: _Readable, path: str, *, etag: str | None = None) -> tuple[ObjectInfo, BinaryIO]:
    """Return what is known of an object, and a file that reads it piece by piece.

    All pieces are of one version: reading raises `PreconditionFailed` if the object was replaced
    meanwhile.

    Args:
        store: where it is.
        path: which.
        etag: the version wanted; another one raises `PreconditionFailed`.

    Raises:
        NotFound: there is none.
    """
    info = store.head(path)
    if etag is not None and not same_etag(info.etag, etag):
        raise PreconditionFailed(f"{path!r} has etag {info.etag}, not {etag}")
    return info, io.BufferedReader(_ObjectReader(store, info), buffer_size=PIECE)


class _Counted(io.RawIOBase):
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
def shown(body: BinaryIO, size: int | None, label: str) -> Iterator[BinaryIO]:
    """Show on a terminal how far `body` has been read; elsewhere, and for small ones, just give it."""
    if size is None or size < PIECE or not sys.stderr.isatty():
        yield body
        return
    with click.progressbar(length=size, label=label, file=sys.stderr) as bar:
        yield io.BufferedReader(_Counted(body, bar), buffer_size=1024 * 1024)


@contextmanager
def arriving(file: str, *, absent: bool) -> Iterator[BinaryIO]:
    """Give a file to write to that takes the name `file` once all is written, and not if that fails.

    Raises `AlreadyExists` if `file` is there, and is to be absent.
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
        raise AlreadyExists(f"{file!r} exists already") from None
    except FileNotFoundError as error:
        if isinstance(error, CommitError):
            raise
        raise FileNotFoundError(error.errno, "its directory does not exist", file) from None
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(partial)
