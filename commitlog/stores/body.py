"""Bodies, the contents of objects, and the sizes that decide how they are sent.

A body is sent in one request, or in the parts of an upload, which is staged first and then published.
One request is the fastest way, and it can carry a condition. But it is sent again as a whole if it
fails, and it takes so long for a large body that a condition or a lease is at risk meanwhile. All sizes
are in bytes:

============================  ========================================================================
up to `STAGE_ABOVE`           One request, with the condition if there is one. Larger bodies are staged,
                              so that only the small request that publishes them has the condition.
                              Writers that do not know their size collect as much before they stage.
up to `PUT_LIMIT`             A write without a condition that matters is still one request.
above                         Parts, several at a time: `part_size`.
============================  ========================================================================

Under a lease, time matters rather than size: `LeaseSettings.largest_body` takes the place of
`STAGE_ABOVE` if it is less. It follows from the length of the lease and the bandwidth.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from functools import partial
from typing import BinaryIO, TypeAlias

__all__ = [
    "COPY_LIMIT",
    "MAX_PARTS",
    "MIN_PART_SIZE",
    "PART_SIZE",
    "PUT_LIMIT",
    "STAGE_ABOVE",
    "Body",
    "chunks",
    "part_size",
    "split_body",
]

#: A body to store: bytes in memory, or a binary file, read from its current position to its end.
Body: TypeAlias = bytes | bytearray | memoryview | BinaryIO

_MIB = 1024 * 1024

#: The size in bytes up to which a body is sent together with a condition, and up to which a writer that
#: gets its content in pieces collects it. So it also bounds the memory of such a writer.
STAGE_ABOVE = 8 * _MIB

#: The size in bytes up to which a store puts a body in one request. An upload takes three requests at
#: least, one after the other; it is faster only if several parts are sent at a time.
PUT_LIMIT = 16 * _MIB

#: The size in bytes of the first parts of an upload, and of the pieces in which files are read.
PART_SIZE = 8 * _MIB

#: The number of bytes that are written to a local file at a time. For single writes of 2 MiB or more,
#: Linux takes two to five times the processor time (ext4, kernel 6.18; see docs/benchmarks.md).
WRITE_SIZE = 256 * 1024

#: Limits of S3 ("Amazon S3 multipart upload limits"): the least bytes of a part except the last one, and
#: the most parts of an upload.
MIN_PART_SIZE = 5 * _MIB
MAX_PARTS = 10_000

#: The most bytes that a store copies in one request ("CopyObject" of S3).
COPY_LIMIT = 5 * 1024 * _MIB

#: Parts double in size after so many. So `MAX_PARTS` are terabytes, whatever their first size.
_PARTS_OF_A_SIZE = 1_000


def part_size(number: int, first: int = PART_SIZE) -> int:
    """Return the size in bytes of part `number` of an upload, from 1; its first parts have `first`.

    >>> [part_size(number, 5) for number in (1, 1_000, 1_001, 10_000)]
    [5, 5, 10, 2560]
    """
    return first << ((number - 1) // _PARTS_OF_A_SIZE)


def chunks(body: Body, size: int = PART_SIZE) -> Iterator[bytes | memoryview]:
    """Yield `body` in chunks of at most `size` bytes, without copying bytes in memory.

    Raises `TypeError`, when it is called, if `body` is not a body.

    >>> [bytes(chunk) for chunk in chunks(b"abcde", 2)]
    [b'ab', b'cd', b'e']
    """
    if isinstance(body, (bytes, bytearray, memoryview)):
        view = memoryview(body).cast("B")
        return (view[start : start + size] for start in range(0, len(view), size))
    return iter(partial(_file(body).read, size), b"")


def split_body(body: Body, most: int) -> tuple[bytes | memoryview, Body | None]:
    """Return a body of at most `most` bytes and None; or its beginning and a body with the rest.

    A file is read up to one byte beyond `most`. Raises `TypeError` if `body` is not a body.

    >>> split_body(io.BytesIO(b"abc"), 3)
    (b'abc', None)
    >>> start, rest = split_body(io.BytesIO(b"abcdef"), 3)
    >>> start, rest.read()
    (b'abcd', b'ef')
    """
    if isinstance(body, (bytes, bytearray, memoryview)):
        view = body if isinstance(body, bytes) else memoryview(body).cast("B")
        return (view, None) if len(view) <= most else (b"", body)
    file = _file(body)
    start = bytearray()
    while len(start) <= most and (piece := file.read(most + 1 - len(start))):
        start += piece
    return bytes(start), None if len(start) <= most else file


def _file(body: BinaryIO) -> BinaryIO:
    if isinstance(body, io.TextIOBase) or not hasattr(body, "read"):
        raise TypeError(f"a body is bytes, or a file that is open in binary mode; not {type(body)}")
    return body


def write_block(target: BinaryIO, block: bytes | memoryview) -> int:
    """Write a block to a local file, in pieces of `WRITE_SIZE`; return its number of bytes."""
    for start in range(0, len(block), WRITE_SIZE):
        target.write(block[start : start + WRITE_SIZE])
    return len(block)
