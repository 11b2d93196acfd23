"""What tests of input formats share: files in memory, cut into slices, read in small pieces."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence

import pytest

from commitlog.ingest import File, Pinned, Slice
from commitlog.spark.inputs import content, lines
from commitlog.stores.api import ObjectStore
from commitlog.stores.memory import MemoryStore


def pinned(data: bytes, path: str = "in/file", store: ObjectStore | None = None) -> Pinned:
    """Return a stored file."""
    store = store or MemoryStore()
    store.put(path, data)
    return Pinned(store, File.of(store.head(path)))


def slices(file: File, cuts: Sequence[int] = ()) -> list[Slice]:
    """Return the slices that `cuts` make of a file, in order."""
    bounds = [0, *sorted({cut for cut in cuts if 0 < cut < file.size}), file.size]
    return [Slice(file, *pair) for pair in itertools.pairwise(bounds)]


@contextlib.contextmanager
def pieces_of(size: int) -> Iterator[None]:
    """Have files read so many bytes at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(content, "PIECE", size)
        patch.setattr(content, "_FED", size)
        patch.setattr(lines, "_BEYOND", size)
        yield
