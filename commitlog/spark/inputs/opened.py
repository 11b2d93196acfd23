"""Input files as file objects for pyarrow, with its errors converted to `InputUnreadable`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pyarrow as pa

from commitlog.errors import CommitError, InputUnreadable
from commitlog.ingest import Pinned
from commitlog.spark.formats.files import COMPLAINTS, StoredFile

__all__ = ["opened"]

#: A file of no more bytes is read by one request.
SMALL = 8 * 1024 * 1024


@contextlib.contextmanager
def opened(
    pinned: Pinned, what: str, *, small: int | None = None, block: int | None = None
) -> Iterator[pa.BufferReader | StoredFile]:
    """Open a file for random access. What its readers raise is `InputUnreadable`, or the store's error.

    Args:
        pinned: which file.
        what: it should be, for messages.
        small: up to how many bytes it is read whole, at once; `SMALL` by default.
        block: of larger ones, as of `StoredFile`.
    """
    path, size = pinned.file.path, pinned.file.size
    whole = size <= (SMALL if small is None else small)
    stored = StoredFile(pinned, path, size, block=block)
    try:
        yield pa.BufferReader(pinned.get(path).data) if whole else stored
    except CommitError:
        raise
    except (*COMPLAINTS, RecursionError) as error:
        if stored.error is not None:
            raise stored.error from None
        raise InputUnreadable(f"{path!r} cannot be read as {what}: {error}") from error
