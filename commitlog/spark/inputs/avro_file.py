"""Avro object container files: header and blocks, decompressed. Imports pyarrow's codecs.

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
#: No value in a header is longer.
_LONGEST = 64 * 1024 * 1024


class Source(Protocol):
    """A file that is read from its begin to its end."""

    def read(self, size: int, /) -> bytes:
        """Return as many bytes, or all that are left."""

    def tell(self) -> int:
        """Return how many bytes were read."""


@frozen
class Header:
    """What a file begins with.

    Attributes:
        schema: as JSON.
        codec: by which its blocks are compressed.
        sync: what is behind each block.
    """

    schema: bytes
    codec: str
    sync: bytes

    @classmethod
    def read(cls, source: Source) -> Header:
        """Return the header of a file; raise `ValueError` or `EOFError` if it has none."""
        if _exactly(source, len(_MAGIC)) != _MAGIC:
            raise ValueError("it does not begin as Avro does")
        told: dict[bytes, bytes] = {}
        while count := _long(source):
            if count < 0:  # then the size of the pairs in bytes comes as well
                _long(source)
            for _ in range(abs(count)):
                key = _exactly(source, _long(source))
                told[key] = _exactly(source, _long(source))
        codec = told.get(b"avro.codec", b"null").decode()
        if codec not in _CODECS:
            raise ValueError(f"its codec {codec!r} is none of {', '.join(_CODECS)}")
        return cls(told[b"avro.schema"], codec, _exactly(source, _SYNC))


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


def blocks(source: Source, header: Header, size: int) -> Iterator[Block]:
    """Yield the blocks of a file of `size` bytes, from behind its header on.

    Raises `ValueError`, `EOFError` or what codecs raise where one is damaged, or cut off.
    """
    while (offset := source.tell()) < size:
        count, length = _long(source), _long(source)
        if count < 0 or not 0 <= length <= size - source.tell():
            raise ValueError(f"no block is at byte {offset}")
        data = _exactly(source, length, length)
        if _exactly(source, _SYNC) != header.sync:
            raise ValueError(f"the block at byte {offset} does not end as it should")
        yield Block(source.tell(), count, _CODECS[header.codec](data))


def container(empty: bytes, block: Block) -> bytes:
    """Return `empty`, a file without compression and blocks, with one block."""
    parts = (_encoded(block.count), _encoded(len(block.data)), block.data, empty[-_SYNC:])
    return empty + b"".join(parts)


def _exactly(source: Source, size: int, most: int = _LONGEST) -> bytes:
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


def _snappy(data: bytes) -> bytes:
    size = shift = at = 0
    while True:
        size |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            break
    plain: bytes = pa.Codec("snappy").decompress(data[:-4], size, asbytes=True)
    if zlib.crc32(plain) != int.from_bytes(data[-4:], "big"):
        raise ValueError("a block's checksum is wrong")
    return plain


def _zstandard(data: bytes) -> bytes:
    with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
        plain: bytes = stream.read()
    return plain


_CODECS: Mapping[str, Callable[[bytes], bytes]] = MappingProxyType(
    {
        "null": lambda data: data,
        "deflate": lambda data: zlib.decompress(data, -15),
        "snappy": _snappy,
        "zstandard": _zstandard,
        "bzip2": bz2.decompress,
        "xz": lzma.decompress,
    }
)
