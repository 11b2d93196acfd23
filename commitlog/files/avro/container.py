"""Avro object container files: header, and decompressed blocks.

Source: "Object Container Files" of the Avro specification, version 1.11.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Protocol

import pyarrow as pa
from attrs import frozen

__all__ = ["Block", "Header", "SequentialFile", "blocks", "one_block_file"]

_MAGIC = b"Obj\x01"
_SYNC = 16
#: The most bytes of a header, which is a schema and a few words, and the most of its entries.
_HEADER_BYTES = 64 * 1024 * 1024
_HEADER_ENTRIES = 1000

#: Decompressed bytes to request from a codec of pyarrow at a time.
_STEP = 1024 * 1024
#: The most bytes that a byte of Snappy expands to: 64 for three bytes.
_SNAPPY_RATIO = 22
#: The most memory for the dictionary of xz: its highest level needs this much.
_XZ_MEMORY = 80 * 1024 * 1024


class SequentialFile(Protocol):
    """A file to read from its begin to its end."""

    def read(self, size: int, /) -> bytes:
        """Return the next `size` bytes, or all that are left."""

    def tell(self) -> int:
        """Return the number of bytes read so far."""


class _Decompressor(Protocol):
    """A decompressor of one stream, as in the standard library."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...


@frozen
class Header:
    """The header of a file.

    Attributes:
        schema: the schema as JSON.
        codec: name of the compression of the blocks.
        sync: the marker after each block.
        marks: all entries.
    """

    schema: bytes
    codec: str
    sync: bytes
    marks: Mapping[bytes, bytes]

    @classmethod
    def read(cls, source: SequentialFile, size: int) -> Header:
        """Return the header of a file of `size` bytes. Raises `ValueError`, `EOFError`."""
        if _exactly(source, len(_MAGIC)) != _MAGIC:
            raise ValueError("it does not begin as Avro does")
        pairs: dict[bytes, bytes] = {}
        read = 0
        while count := _long(source):
            if count < 0:  # then the size of the pairs in bytes comes as well
                _long(source)
            read += abs(count)
            if read > _HEADER_ENTRIES:
                raise ValueError(f"its header has more than {_HEADER_ENTRIES} entries")
            for _ in range(abs(count)):
                key = _exactly(source, _long(source), min(size, _HEADER_BYTES) - source.tell())
                pairs[key] = _exactly(source, _long(source), min(size, _HEADER_BYTES) - source.tell())
        codec = pairs.get(b"avro.codec", b"null").decode()
        if codec not in _CODECS:
            raise ValueError(f"its codec {codec!r} is unknown; it must be one of {', '.join(_CODECS)}")
        if b"avro.schema" not in pairs:
            raise ValueError("its header has no schema")
        return cls(pairs[b"avro.schema"], codec, _exactly(source, _SYNC), pairs)


@frozen
class Block:
    """Consecutive records.

    Attributes:
        end: offset of the next block in the file.
        count: number of records.
        data: the records, decompressed.
    """

    end: int
    count: int
    data: bytes


def blocks(source: SequentialFile, header: Header, size: int, most: int) -> Iterator[Block]:
    """Yield the blocks of a file of `size` bytes; its header was read.

    Raises `ValueError`, `EOFError` or the errors of codecs for a block that is damaged, cut off, or has
    more than `most` bytes, decompressed or not. No more than that is allocated for a block.
    """
    while (offset := source.tell()) < size:
        count, length = _long(source), _long(source)
        if count < 0 or not 0 <= length <= size - source.tell():
            raise ValueError(f"no block is at byte {offset}")
        if length > most:
            raise _too_large(most)
        data = _exactly(source, length, length)
        if _exactly(source, _SYNC) != header.sync:
            raise ValueError(f"the block at byte {offset} does not end as it should")
        yield Block(source.tell(), count, _CODECS[header.codec](data, most))


def one_block_file(empty: bytes, block: Block) -> bytes:
    """Return a file with one block; `empty` is a file without compression and without blocks."""
    parts = (_encoded(block.count), _encoded(len(block.data)), block.data, empty[-_SYNC:])
    return empty + b"".join(parts)


def _too_large(most: int) -> ValueError:
    return ValueError(
        f"a block has more than {most} bytes. If the file is valid, raise option maxBlockBytes"
    )


def _exactly(source: SequentialFile, size: int, most: int = _SYNC) -> bytes:
    if not 0 <= size <= most:
        raise ValueError(f"a length is {size}")
    data = source.read(size)
    if len(data) < size:
        raise EOFError("it ends early")
    return data


def _long(source: SequentialFile) -> int:
    value = shift = 0
    while True:
        byte = _exactly(source, 1)[0]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1)
        shift += 7
        if shift > 63:
            raise ValueError("a number is too long")


def _encoded(value: int) -> bytes:
    """Return a number that is not negative in Avro's encoding.

    >>> _encoded(0), _encoded(64)
    (b'\\x00', b'\\x80\\x01')
    """
    value <<= 1
    data = bytearray()
    while value >= 0x80:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)


def _stored(data: bytes, most: int) -> bytes:
    return data


def _snappy(data: bytes, most: int) -> bytes:
    size = shift = at = 0
    while True:
        size |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            break
    if size > _SNAPPY_RATIO * len(data):
        raise ValueError(f"{len(data)} bytes of Snappy are said to be {size}")
    if size > most:
        raise _too_large(most)
    plain: bytes = pa.Codec("snappy").decompress(data[:-4], size, asbytes=True)
    if zlib.crc32(plain) != int.from_bytes(data[-4:], "big"):
        raise ValueError("a block's checksum is wrong")
    return plain


def _zstandard(data: bytes, most: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
        while part := stream.read(_STEP):
            parts.append(part)
            size += len(part)
            if size > most:
                raise _too_large(most)
    return b"".join(parts)


def _complete(decompressor: _Decompressor, plain: bytes, trailer: bytes, most: int) -> bytes:
    """Return `plain` if the stream is complete; only a prefix of `trailer` may come after it."""
    if len(plain) > most:
        raise _too_large(most)
    if not decompressor.eof:
        raise EOFError("a block's compressed data end early")
    if not trailer.startswith(decompressor.unused_data):
        raise ValueError("bytes are left behind the compressed data of a block")
    return plain


def _deflate(data: bytes, most: int) -> bytes:
    decompressor = zlib.decompressobj(-15)
    plain = decompressor.decompress(data, most + 1)
    # Some writers append the checksum of zlib's own format, or a part of it.
    return _complete(decompressor, plain, zlib.adler32(plain).to_bytes(4, "big"), most)


def _bzip2(data: bytes, most: int) -> bytes:
    decompressor = bz2.BZ2Decompressor()
    return _complete(decompressor, decompressor.decompress(data, most + 1), b"", most)


def _xz(data: bytes, most: int) -> bytes:
    decompressor = lzma.LZMADecompressor(memlimit=_XZ_MEMORY)
    return _complete(decompressor, decompressor.decompress(data, most + 1), b"", most)


_CODECS: Mapping[str, Callable[[bytes, int], bytes]] = MappingProxyType(
    {
        "null": _stored,
        "deflate": _deflate,
        "snappy": _snappy,
        "zstandard": _zstandard,
        "bzip2": _bzip2,
        "xz": _xz,
    }
)
