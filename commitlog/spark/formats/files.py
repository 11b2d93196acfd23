"""File objects for pyarrow that read from and write to a store."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa

from commitlog.errors import CorruptRecord
from commitlog.stores import ObjectData

__all__ = ["COMPLAINTS", "BinarySink", "Reads", "SinkFile", "StoredFile", "stored_file"]

#: How many blocks a `StoredFile` keeps.
BLOCKS = 32


#: What readers of damaged files raise; most of pyarrow's own errors are among the builtin ones.
COMPLAINTS = (
    pa.ArrowException,
    ArithmeticError,
    EOFError,
    LookupError,
    OSError,
    TypeError,
    ValueError,
)


class Reads(Protocol):
    """The part of a store that readers need."""

    def get(self, path: str, *, start: int = 0, end: int | None = None) -> ObjectData:
        """See `commitlog.stores.ObjectStore.get`."""


class BinarySink(Protocol):
    """Where a file's bytes go, in order."""

    def write(self, data: bytes) -> int:
        """Take `data`; return its length."""


class SinkFile(io.RawIOBase):
    """What pyarrow asks of a file to write to, over a `BinarySink`. Closing it leaves the sink open."""

    def __init__(self, sink: BinarySink) -> None:
        self._sink: BinarySink | None = sink
        #: Bytes that the sink has taken.
        self.written = 0
        #: What the sink raised, for pyarrow makes an OSError of it in places.
        self.error: Exception | None = None

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        """Hand `data` on. What the sink raises is kept as well."""
        if self._sink is not None:
            try:
                self._sink.write(data)
            except Exception as error:
                self.error = error
                raise
            self.written += len(data)
        return len(data)

    def detach(self) -> None:
        """Discard all later writes, such as the footer of an abandoned file."""
        self._sink = None


class StoredFile(io.RawIOBase):
    """A stored object as a seekable file. Not thread-safe.

    Args:
        store: where it is.
        path: its path there.
        size: its size in bytes.
        block: bytes that a request asks for at least; the last `BLOCKS` blocks are kept. None: each
            read is a request of its own, for readers that know themselves what to read together.
    """

    def __init__(self, store: Reads, path: str, size: int, *, block: int | None = None) -> None:
        self._store = store
        self._path = path
        self._size = size
        self._position = 0
        self._block = block
        self._kept: dict[int, bytes] = {}
        #: What the store raised, for pyarrow makes an OSError of it in places.
        self.error: Exception | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = start + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        """Return the next `size` bytes, or all that there are. What the store raises is kept as well."""
        start = self._position
        end = self._size if size < 0 else min(self._size, start + size)
        if end <= start:
            return b""
        data = self._get(start, end) if self._block is None else self._join(start, end, self._block)
        self._position += len(data)
        return data

    def _join(self, start: int, end: int, block: int) -> bytes:
        first = start // block
        parts = [self._kept_block(number, block) for number in range(first, (end - 1) // block + 1)]
        return b"".join(parts)[start - first * block : end - first * block]

    def _kept_block(self, number: int, block: int) -> bytes:
        data = self._kept.pop(number, None)
        if data is None:
            data = self._get(number * block, min(self._size, (number + 1) * block))
        self._kept[number] = data  # the latest at the end
        if len(self._kept) > BLOCKS:
            del self._kept[next(iter(self._kept))]
        return data

    def _get(self, start: int, end: int) -> bytes:
        try:
            return self._store.get(self._path, start=start, end=end).data
        except Exception as error:
            self.error = error
            raise


@contextlib.contextmanager
def stored_file(
    store: Reads, path: str, size: int, what: str, *, block: int | None = None
) -> Iterator[StoredFile]:
    """Open a `StoredFile`; what its readers raise is `CorruptRecord`, unless it is the store's error.

    Arguments as for `StoredFile`, and `what` the file should be, for the message.
    """
    with StoredFile(store, path, size, block=block) as file:
        try:
            yield file
        except COMPLAINTS as error:
            if file.error is not None:
                raise file.error from None
            raise CorruptRecord(f"{path!r} cannot be read as {what}: {error}") from error
