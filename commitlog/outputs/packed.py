"""Packed lines: gzip members of JSON lines, of which parts can be read alone."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable

from commitlog.commit.conditional import ConditionalStore
from commitlog.errors import CorruptRecord
from commitlog.stores.api import ObjectData

__all__ = ["first_member", "pack", "unpack"]

#: Bytes of an object that are read for its first member, and the factor by which more are read if it is
#: larger. A small object is read whole.
_HEAD_BYTES, _HEAD_GROWTH = 8 * 1024, 8


def pack(lines: Iterable[object]) -> bytes:
    """Return a gzip member of JSON lines."""
    lines = "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines)
    return gzip.compress(lines.encode(), compresslevel=6, mtime=0)


def unpack(data: bytes, path: str) -> list[object]:
    """Return the JSON lines in gzip members. Raises `CorruptRecord`, which names `path`."""
    try:
        lines = gzip.decompress(data).splitlines()
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise _other(path, error) from error
    return [_json(line, path) for line in lines]


def first_member(store: ConditionalStore, path: str) -> tuple[ObjectData, object, int]:
    """Return the first bytes of an object, the first line of its first member, and where that ends.

    Raises `NotFound` and `CorruptRecord`.
    """
    end = _HEAD_BYTES
    while True:
        found = store.get(path, end=end)
        reader = zlib.decompressobj(wbits=31)
        try:
            text = reader.decompress(found.data)
        except zlib.error as error:
            raise _other(path, error) from error
        if reader.eof:
            line = _json(text.partition(b"\n")[0], path)
            return found, line, len(found.data) - len(reader.unused_data)
        if len(found.data) < end:
            raise _other(path, "it ends in its first line")
        end *= _HEAD_GROWTH


def _json(line: bytes, path: str) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _other(path, error) from error


def _other(path: str, error: object) -> CorruptRecord:
    return CorruptRecord(f"{path!r} is not a checkpoint: {error}")
