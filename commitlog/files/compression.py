"""Compression of whole files: text files of outputs are compressed, and all text files decompressed.

The suffix of a file's name gives its compression. Content is read in pieces, in bounded memory for any
size.
"""

from __future__ import annotations

import bz2
import gzip
import io
import zlib
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, BinaryIO, Protocol, cast

import pyarrow as pa

from commitlog.errors import CommitError, InputUnreadable
from commitlog.files.io import SinkFile, StoredObject

__all__ = ["CHUNK_BYTES", "SUFFIXES", "compress", "content_of", "is_compressed", "ranges_of"]

#: Suffix of a file's name by compression, for files of outputs. The first is the default, as in Spark.
SUFFIXES = MappingProxyType({"none": "", "gzip": ".gz", "bzip2": ".bz2", "zstd": ".zst"})

#: Bytes of one request, and of one piece of content.
CHUNK_BYTES = 8 * 1024 * 1024

#: Compressed bytes for one call of a decompressor. If the call fails, its output is lost.
_FEED_BYTES = 64 * 1024
#: Bytes to request from pyarrow's decompressor at once. If it fails, they are lost.
_ARROW_BYTES = 4 * 1024


# -- compression ---------------------------------------------------------------------------------------

_WRITERS: Mapping[str, Callable[[SinkFile], Any]] = MappingProxyType(
    {
        "none": lambda file: file,
        "gzip": lambda file: gzip.GzipFile(
            fileobj=cast(BinaryIO, file), mode="wb", compresslevel=6, mtime=0
        ),
        "bzip2": lambda file: bz2.BZ2File(cast(BinaryIO, file), "wb"),
        "zstd": lambda file: pa.CompressedOutputStream(file, "zstd"),
    }
)


def compress(file: SinkFile, compression: str) -> Any:
    """Return a binary file that compresses its data into `file`; `compression` is one of `SUFFIXES`."""
    return _WRITERS[compression](file)


# -- decompression -------------------------------------------------------------------------------------


class _Decompressor(Protocol):
    """The interface of `bz2.BZ2Decompressor`."""

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
        self._decompressor = zlib.decompressobj(window)

    @property
    def eof(self) -> bool:
        return self._decompressor.eof

    @property
    def needs_input(self) -> bool:
        return not self._decompressor.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._decompressor.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._decompressor.decompress(self._decompressor.unconsumed_tail + data, max_length)


#: By suffix. 31 is gzip with a header and a checksum, 15 what Hadoop calls deflate.
_DECOMPRESSORS: Mapping[str, Callable[[], _Decompressor]] = MappingProxyType(
    {"gz": lambda: _Zlib(31), "deflate": lambda: _Zlib(15), "bz2": bz2.BZ2Decompressor}
)
#: Codecs of pyarrow by suffix.
_ARROW: Mapping[str, str] = MappingProxyType({"zst": "zstd", "lz4": "lz4"})
#: There are several formats with this suffix; Hadoop has its own.
_REFUSED = "snappy"


def is_compressed(path: str) -> bool:
    """Return whether a file is compressed as a whole, by its suffix; if so, it has no slices.

    >>> is_compressed("a.json.gz"), is_compressed("a.json.GZ"), is_compressed("a.json")
    (True, True, False)
    """
    return _suffix(path) in {*_DECOMPRESSORS, *_ARROW, _REFUSED}


def ranges_of(source: StoredObject, start: int, end: int, *, beyond: int = 0) -> Iterator[bytes]:
    """Yield the stored bytes of a file from `start` to its end, for as long as the caller needs them.

    Args:
        source: the file.
        start: the first byte.
        end: the caller surely needs the bytes before this one.
        beyond: number of bytes after `end` to read in the same request. Later bytes are read in small
            ranges first.

    A file of at most `CHUNK_BYTES`, or an empty one, is one request. Raises the errors of the store.
    """
    size = source.size
    if start == 0 and size <= min(CHUNK_BYTES, end + beyond):
        yield source.get()
        return
    sure = min(end + beyond, size)
    while start < sure:
        stop = min(start + CHUNK_BYTES, sure)
        yield source.get(start, stop)
        start = stop
    step = max(_FEED_BYTES, beyond)
    while start < size:
        stop = min(start + step, size)
        yield source.get(start, stop)
        start, step = stop, min(2 * step, CHUNK_BYTES)


def content_of(source: StoredObject) -> Iterator[bytes]:
    """Yield the content of a file in pieces of some MiB, decompressed as its suffix says.

    An empty file has no content, whatever its suffix. Several compressed streams in a row are one
    content; zeros that fill up a block are ignored.

    Raises:
        InputUnreadable: a compressed stream is damaged, or ends early. The content before it was
            yielded, except for that of up to 64 KiB of compressed bytes. The error's offset is the
            approximate compressed offset. (Checksums follow the data, so damage may be noticed late.)
            It is also raised for Hadoop's own formats ``.snappy`` and ``.lz4``; files of the lz4 program
            can be read.
        Errors of the store.
    """
    path = source.path
    stored = ranges_of(source, 0, source.size)
    suffix = _suffix(path)
    if suffix in _DECOMPRESSORS:
        yield from _gathered(_streams(path, stored, _DECOMPRESSORS[suffix]))
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
    decompressor: _Decompressor | None = None
    offset = 0
    try:
        for piece in stored:
            for at in range(0, len(piece), _FEED_BYTES):
                data = piece[at : at + _FEED_BYTES]
                while data:
                    if decompressor is None:
                        decompressor = make()
                    yield decompressor.decompress(data, CHUNK_BYTES)
                    while not decompressor.eof and not decompressor.needs_input:
                        yield decompressor.decompress(b"", CHUNK_BYTES)
                    data = b""
                    if decompressor.eof:
                        data = decompressor.unused_data.lstrip(b"\0")
                        decompressor = None
                offset += min(_FEED_BYTES, len(piece) - at)
        while decompressor is not None and not decompressor.eof:
            # It may have kept output for which there was no space.
            rest = decompressor.decompress(b"", CHUNK_BYTES)
            if not rest:
                raise EOFError("the compressed stream ends early")
            yield rest
    except CommitError:
        raise
    except (EOFError, OSError, ValueError, zlib.error) as error:
        raise _damaged(path, offset, error) from error


class _ChunkFile(io.RawIOBase):
    """A readable file of the bytes that an iterator yields."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._left = memoryview(b"")
        self.offset = 0
        #: The error of the iterator, which pyarrow replaces by an OSError.
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
    file = _ChunkFile(stored)
    try:
        with pa.CompressedInputStream(pa.PythonFile(file, mode="r"), codec) as stream:
            while data := stream.read(_ARROW_BYTES):
                yield data
    except (OSError, ValueError) as error:
        if file.error is not None:
            raise file.error from None
        raise _damaged(path, file.offset, error) from error


def _damaged(path: str, offset: int, error: Exception) -> InputUnreadable:
    return InputUnreadable(
        f"{path!r} cannot be decompressed any further than to byte {offset}: {error}", offset=offset
    )


def _gathered(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the same bytes in pieces of `CHUNK_BYTES`; before an error, yield all bytes before it."""
    parts: list[bytes] = []
    size = 0
    try:
        for piece in pieces:
            if not piece:  # a decompressor may return nothing for a few bytes
                continue
            parts.append(piece)
            size += len(piece)
            if size >= CHUNK_BYTES:
                yield b"".join(parts)
                parts, size = [], 0
    except InputUnreadable:
        yield b"".join(parts)
        raise
    yield b"".join(parts)
