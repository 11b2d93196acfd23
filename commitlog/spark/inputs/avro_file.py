"""Avro object container files: header and blocks, decompressed.

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

__all__ = ["Block", "Header", "Source", "blocks", "container"]

_MAGIC = b"Obj\x01"
_SYNC = 16
#: A header has no more bytes, and no more pairs. It is a schema with a few words.
_LONGEST = 64 * 1024 * 1024
_PAIRS = 1000

#: Compressed bytes that a codec of pyarrow is asked for at a time.
_MADE = 1024 * 1024
#: Snappy makes no more of a byte: at most 64 of each three.
_SNAPPY = 22
#: Memory that xz may take for its dictionary: what its highest level needs.
_XZ_MEMORY = 80 * 1024 * 1024


class Source(Protocol):
    """A file that is read from its begin to its end."""

    def read(self, size: int, /) -> bytes:
        """Return as many bytes, or all that are left."""

    def tell(self) -> int:
        """Return how many bytes were read."""


class _Decompressor(Protocol):
    """What decompresses one stream, in the modules of Python."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...


@frozen
class Header:
    """What a file begins with.

    Attributes:
        schema: as JSON.
        codec: by which its blocks are compressed.
        sync: the marker after each block.
    """

    schema: bytes
    codec: str
    sync: bytes

    @classmethod
    def read(cls, source: Source, size: int) -> Header:
        """Return the header of a file of `size` bytes. Raises `ValueError`, `EOFError`."""
        if _exactly(source, len(_MAGIC)) != _MAGIC:
            raise ValueError("it does not begin as Avro does")
        pairs: dict[bytes, bytes] = {}
        read = 0
        while count := _long(source):
            if count < 0:  # then the size of the pairs in bytes comes as well
                _long(source)
            read += abs(count)
            if read > _PAIRS:
                raise ValueError(f"its header has more than {_PAIRS} entries")
            for _ in range(abs(count)):
                key = _exactly(source, _long(source), min(size, _LONGEST) - source.tell())
                pairs[key] = _exactly(source, _long(source), min(size, _LONGEST) - source.tell())
        codec = pairs.get(b"avro.codec", b"null").decode()
        if codec not in _CODECS:
            raise ValueError(f"its codec {codec!r} is none of {', '.join(_CODECS)}")
        if b"avro.schema" not in pairs:
            raise ValueError("its header has no schema")
        return cls(pairs[b"avro.schema"], codec, _exactly(source, _SYNC))


@frozen
class Block:
    """Some records, one after the other.

    Attributes:
        end: where the next one begins in its file.
        count: number of its records.
        data: they, not compressed.
    """

    end: int
    count: int
    data: bytes


def blocks(source: Source, header: Header, size: int, most: int) -> Iterator[Block]:
    """Yield the blocks of a file of `size` bytes, from behind its header on.

    Raises `ValueError`, `EOFError` or what codecs raise where one is damaged, cut off, or has more than
    `most` bytes, decompressed or not. No more than that is allocated for one.
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


def container(empty: bytes, block: Block) -> bytes:
    """Return `empty`, a file without compression and blocks, with one block."""
    parts = (_encoded(block.count), _encoded(len(block.data)), block.data, empty[-_SYNC:])
    return empty + b"".join(parts)


def _too_large(most: int) -> ValueError:
    return ValueError(
        f"a block has more than {most} bytes. If that is what it should be, raise option maxBlockBytes"
    )


def _exactly(source: Source, size: int, most: int = _SYNC) -> bytes:
    if not 0 <= size <= most:
        raise ValueError(f"a length is {size}")
    data = source.read(size)
    if len(data) < size:
        raise EOFError("it ends early")
    return data


def _long(source: Source) -> int:
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
    """Return a number from 0 on as Avro writes it.

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
    if size > _SNAPPY * len(data):
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
        while part := stream.read(_MADE):
            parts.append(part)
            size += len(part)
            if size > most:
                raise _too_large(most)
    return b"".join(parts)


def _inflated(machine: _Decompressor, plain: bytes, behind: bytes, most: int) -> bytes:
    """Return `plain` if the stream is complete; only `behind` may be left of the compressed bytes."""
    if len(plain) > most:
        raise _too_large(most)
    if not machine.eof:
        raise EOFError("a block's compressed data end early")
    if not behind.startswith(machine.unused_data):
        raise ValueError("bytes are left behind the compressed data of a block")
    return plain


def _deflate(data: bytes, most: int) -> bytes:
    machine = zlib.decompressobj(-15)
    plain = machine.decompress(data, most + 1)
    # Some writers leave the checksum of zlib's own format there, or a part of it.
    return _inflated(machine, plain, zlib.adler32(plain).to_bytes(4, "big"), most)


def _bzip2(data: bytes, most: int) -> bytes:
    machine = bz2.BZ2Decompressor()
    return _inflated(machine, machine.decompress(data, most + 1), b"", most)


def _xz(data: bytes, most: int) -> bytes:
    machine = lzma.LZMADecompressor(memlimit=_XZ_MEMORY)
    return _inflated(machine, machine.decompress(data, most + 1), b"", most)


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
