"""Helpers of the tests of input formats: files in memory, cut into slices, read in small parts."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from attrs import field, frozen

from commitlog.files import Columns, InputFormat, compression, io, lines
from commitlog.ingest import File, Pinned, Slice
from commitlog.stores.api import ObjectData, ObjectStore
from commitlog.stores.memory import MemoryStore


def pinned(data: bytes, path: str = "in/file", store: ObjectStore | None = None) -> Pinned:
    """Return a stored file."""
    store = store or MemoryStore()
    store.put(path, data)
    return Pinned(store, File.of(store.head(path)))


def slices(file: File, cuts: Sequence[int] = ()) -> list[Slice]:
    """Return the slices of a file between `cuts`, in order."""
    bounds = [0, *sorted({cut for cut in cuts if 0 < cut < file.size}), file.size]
    return [Slice(file, *pair) for pair in itertools.pairwise(bounds)]


@contextlib.contextmanager
def pieces_of(size: int) -> Iterator[None]:
    """Read files in parts of `size` bytes within the block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compression, "CHUNK_BYTES", size)
        patch.setattr(compression, "_FEED_BYTES", size)
        patch.setattr(lines, "_BEYOND", size)
        yield


def records(
    input: InputFormat, pinned: Pinned, columns: Columns, cuts: Sequence[int] = ()
) -> list[tuple[dict[str, Any], int | None, str | None]]:
    """Return each record of a file, slice by slice: its columns, offset, and rescued values."""
    found: list[tuple[dict[str, Any], int | None, str | None]] = []
    for each in slices(pinned.file, cuts):
        for part in input.decode(pinned, each, columns):
            part.batch.validate(full=True)
            assert set(part.batch.schema).issubset(columns.schema)
            assert (part.offsets is not None) == columns.offsets
            rows = part.batch.to_pylist() if part.batch.num_columns else [{} for _ in range(len(part))]
            offsets = [None] * len(part) if part.offsets is None else part.offsets.to_pylist()
            rescued = [None] * len(part) if part.rescued is None else part.rescued.to_pylist()
            found += zip(rows, offsets, rescued, strict=True)
    return found


@contextlib.contextmanager
def small_up_to(size: int) -> Iterator[None]:
    """Read files of more than `size` bytes in ranges within the block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(io, "SMALL", size)
        yield


@frozen
class Counting(Pinned):
    """A file that records the number of bytes of each request."""

    sizes: list[int] = field(factory=list)

    def get(self, path: str, *, start: int = 0, end: int | None = None) -> ObjectData:
        """See `Pinned.get`."""
        data = super().get(path, start=start, end=end)
        self.sizes.append(len(data.data))
        return data
