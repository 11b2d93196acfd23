"""Content of a file in pieces, decompressed by its suffix, in bounded memory for any size."""

from __future__ import annotations

import bz2
import io
import zlib
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Protocol

import pyarrow as pa

from commitlog.errors import InputUnreadable
from commitlog.ingest import Pinned

__all__ = ["PIECE", "content_of", "is_compressed", "ranges_of"]

#: Bytes that are asked for at once, and handed on at once.
PIECE = 8 * 1024 * 1024

#: Compressed bytes for one call of a decompressor. If the call fails, its output is lost.
_FED = 64 * 1024
#: Bytes that pyarrow is asked for at once, which are lost if it fails.
_MADE = 4 * 1024


class _Decompressor(Protocol):
    """What `bz2.BZ2Decompressor` is."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _Zlib:
    """zlib with the methods of `bz2.BZ2Decompressor`."""

    def __init__(self, window: int) -> None:
        self._machine = zlib.decompressobj(window)

    @property
    def eof(self) -> bool:
        return self._machine.eof

    @property
    def needs_input(self) -> bool:
        return not self._machine.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._machine.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._machine.decompress(self._machine.unconsumed_tail + data, max_length)


#: By suffix. 31 is gzip with a header and a checksum, 15 what Hadoop calls deflate.
_MACHINES: Mapping[str, Callable[[], _Decompressor]] = MappingProxyType(
    {"gz": lambda: _Zlib(31), "deflate": lambda: _Zlib(15), "bz2": bz2.BZ2Decompressor}
)
_ARROW: Mapping[str, str] = MappingProxyType({"zst": "zstd", "lz4": "lz4"})
#: Of which there are several kinds, Hadoop having its own.
_REFUSED = "snappy"


def is_compressed(path: str) -> bool:
    """Tell by its suffix whether a file is compressed as a whole, and so has to be read from its begin.

    >>> is_compressed("a.json.gz"), is_compressed("a.json.GZ"), is_compressed("a.json")
    (True, True, False)
    """
    return _suffix(path) in {*_MACHINES, *_ARROW, _REFUSED}


def ranges_of(pinned: Pinned, start: int, end: int, *, beyond: int = 0) -> Iterator[bytes]:
    """Yield the stored bytes of a file from `start` on, to its end, for as long as they are asked for.

    Args:
        pinned: which file.
        start: the first byte.
        end: up to where they are surely needed.
        beyond: number of bytes after `end` to read in the same request. Later bytes are read in small
            ranges first.

    A file that is no more than a piece, or empty, is one request. Raises as `Pinned.get`.
    """
    path, size = pinned.file.path, pinned.file.size
    if start == 0 and size <= min(PIECE, end + beyond):
        yield pinned.get(path).data
        return
    sure = min(end + beyond, size)
    while start < sure:
        stop = min(start + PIECE, sure)
        yield pinned.get(path, start=start, end=stop).data
        start = stop
    step = max(_FED, beyond)
    while start < size:
        stop = min(start + step, size)
        yield pinned.get(path, start=start, end=stop).data
        start, step = stop, min(2 * step, PIECE)


def content_of(pinned: Pinned) -> Iterator[bytes]:
    """Yield the content of a file in pieces of some MiB, decompressed as its suffix says.

    An empty file has no content, whatever its suffix. Several compressed streams one behind the other
    are one content, and zeros that fill up a block are none.

    Raises:
        InputUnreadable: a compressed stream is damaged, or ends early. The content before it was
            yielded, except for that of up to 64 KiB of compressed bytes. The error's offset is the
            approximate compressed offset. (Checksums follow the data, so damage may be noticed late.)
            It is also raised for Hadoop's own formats ``.snappy`` and ``.lz4``; files of the lz4 program
            can be read.
        InputChanged, InputMissing: as `Pinned.get`.
    """
    path = pinned.file.path
    stored = ranges_of(pinned, 0, pinned.file.size)
    suffix = _suffix(path)
    if suffix in _MACHINES:
        yield from _gathered(_streams(path, stored, _MACHINES[suffix]))
    elif suffix == _REFUSED:
        raise InputUnreadable(
            f"{path!r} cannot be decompressed: of .snappy there are several kinds, none of them common."
            " Write it as .gz or .zst"
        )
    elif suffix in _ARROW:
        yield from _gathered(_by_arrow(path, stored, _ARROW[suffix]))
    else:
        yield from stored


def _suffix(path: str) -> str:
    return path.rpartition("/")[2].rpartition(".")[2].lower()


def _streams(path: str, stored: Iterator[bytes], make: Callable[[], _Decompressor]) -> Iterator[bytes]:
    machine: _Decompressor | None = None
    offset = 0
    try:
        for piece in stored:
            for at in range(0, len(piece), _FED):
                fed = piece[at : at + _FED]
                while fed:
                    if machine is None:
                        machine = make()
                    yield machine.decompress(fed, PIECE)
                    while not machine.eof and not machine.needs_input:
                        yield machine.decompress(b"", PIECE)
                    fed = b""
                    if machine.eof:
                        fed = machine.unused_data.lstrip(b"\0")
                        machine = None
                offset += min(_FED, len(piece) - at)
        while machine is not None and not machine.eof:
            # It may have kept back something for which there was no more space.
            rest = machine.decompress(b"", PIECE)
            if not rest:
                raise EOFError("the compressed stream ends early")
            yield rest
    except (EOFError, OSError, ValueError, zlib.error) as error:
        raise _damaged(path, offset, error) from error


class _Fed(io.RawIOBase):
    """An iterator of bytes as a file."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._left = memoryview(b"")
        self.offset = 0
        #: What the pieces raised, for pyarrow makes an OSError of it.
        self.error: Exception | None = None

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        while not self._left:
            try:
                piece = next(self._pieces, None)
            except Exception as error:
                self.error = error
                raise
            if piece is None:
                return b""
            self._left = memoryview(piece)
        data, self._left = self._left[:size], self._left[size:]
        self.offset += len(data)
        return bytes(data)


def _by_arrow(path: str, stored: Iterator[bytes], codec: str) -> Iterator[bytes]:
    fed = _Fed(stored)
    try:
        with pa.CompressedInputStream(pa.PythonFile(fed, mode="r"), codec) as stream:
            while data := stream.read(_MADE):
                yield data
    except (OSError, ValueError) as error:
        if fed.error is not None:
            raise fed.error from None
        raise _damaged(path, fed.offset, error) from error


def _damaged(path: str, offset: int, error: Exception) -> InputUnreadable:
    return InputUnreadable(
        f"{path!r} cannot be decompressed any further than to byte {offset}: {error}", offset=offset
    )


def _gathered(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the same bytes in pieces that are worth it, and before an error all that came until then."""
    parts: list[bytes] = []
    size = 0
    try:
        for piece in pieces:
            if not piece:  # of which an empty stream makes one, for a few bytes
                continue
            parts.append(piece)
            size += len(piece)
            if size >= PIECE:
                yield b"".join(parts)
                parts, size = [], 0
    except InputUnreadable:
        yield b"".join(parts)
        raise
    yield b"".join(parts)
