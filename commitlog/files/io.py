"""Stored files as file objects for pyarrow: to write to a store, and to read from one."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
from attrs import frozen

from commitlog.errors import CommitError, CorruptRecord, InputUnreadable
from commitlog.stores import ObjectData
from commitlog.urls import parse_store_url

if TYPE_CHECKING:
    from commitlog.ingest import Pinned

__all__ = [
    "READER_ERRORS",
    "BinarySink",
    "ReadableStore",
    "SinkFile",
    "StoredFile",
    "StoredObject",
    "convert_errors",
    "object_url",
    "open_input_file",
    "open_output_file",
]

#: The number of blocks that a `StoredFile` keeps.
BLOCKS = 32

#: An input file of at most this many bytes is read by one request.
SMALL = 8 * 1024 * 1024

#: Errors of readers of damaged files; most of pyarrow's own errors are among the builtin ones.
READER_ERRORS = (
    pa.ArrowException,
    ArithmeticError,
    EOFError,
    LookupError,
    OSError,
    RecursionError,
    TypeError,
    ValueError,
)


class ReadableStore(Protocol):
    """The part of an object store that readers need."""

    def get(self, path: str, *, start: int = 0, end: int | None = None) -> ObjectData:
        """See `commitlog.stores.ObjectStore.get`."""


@frozen
class StoredObject:
    """An object to read. Thread-safe if its store is.

    Attributes:
        store: the store with the object.
        path: its path there.
        size: its size in bytes.
    """

    store: ReadableStore
    path: str
    size: int

    @classmethod
    def of(cls, pinned: Pinned) -> StoredObject:
        """Return an input file, as an object to read in the version that is pinned."""
        return cls(pinned, pinned.file.path, pinned.file.size)

    def get(self, start: int = 0, end: int | None = None) -> bytes:
        """Return bytes ``[start, end)``. Raises the errors of the store."""
        return self.store.get(self.path, start=start, end=end).data


def object_url(store: str, path: str) -> str:
    """Return the URL of an object, readable rather than quoted, and without options.

    Args:
        store: URL of the store.
        path: path of the object there.

    >>> object_url("s3://landing/events?region=eu-west-1", "a b/c%.json")
    's3://landing/events/a b/c%.json'
    """
    url = parse_store_url(store)
    prefix = f"{url.prefix}/" if url.prefix else ""
    return f"{url.scheme}://{url.name}/{prefix}{path}"


class BinarySink(Protocol):
    """A destination for the bytes of a file, in order."""

    def write(self, data: bytes) -> int:
        """Take `data`; return its length."""


class SinkFile(io.RawIOBase):
    """A writable file for pyarrow, over a `BinarySink`. Closing it leaves the sink open."""

    def __init__(self, sink: BinarySink) -> None:
        self._sink: BinarySink | None = sink
        #: Number of bytes written to the sink.
        self.written = 0
        #: The error of the sink, which pyarrow replaces by an OSError in places.
        self.error: Exception | None = None

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        """Write `data` to the sink. An error of the sink is kept and raised."""
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
        source: the object.
        block: size in bytes of the blocks to request; the last `BLOCKS` blocks are kept. None: each
            read is one request, for readers that combine small reads themselves.
    """

    def __init__(self, source: StoredObject, *, block: int | None = None) -> None:
        self._source = source
        self._size = source.size
        self._position = 0
        self._block = block
        self._kept: dict[int, bytes] = {}
        #: The error of the store, which pyarrow replaces by an OSError in places.
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
        """Return the next `size` bytes, or all the rest. An error of the store is kept and raised."""
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
            return self._source.get(start, end)
        except Exception as error:
            self.error = error
            raise


@contextlib.contextmanager
def open_output_file(
    source: StoredObject, what: str, *, block: int | None = None
) -> Iterator[StoredFile]:
    """Open a file of an output for random access.

    Args:
        source: the file.
        what: the format that the file should have, for messages.
        block: as for `StoredFile`.

    Raises `CorruptRecord` for an error of the format's reader, and the errors of the store.
    """
    with StoredFile(source, block=block) as file, convert_errors(source.path, what, CorruptRecord, file):
        yield file


@contextlib.contextmanager
def open_input_file(
    source: StoredObject, what: str, *, small: int | None = None, block: int | None = None
) -> Iterator[pa.BufferReader | StoredFile]:
    """Open an input file for random access.

    Args:
        source: the file.
        what: the format that the file should have, for messages.
        small: a file of at most this many bytes is read by one request; None for `SMALL`.
        block: of larger files, as for `StoredFile`.

    Raises `InputUnreadable` for an error of the format's reader, and the errors of the store.
    """
    with (
        StoredFile(source, block=block) as file,
        convert_errors(source.path, what, InputUnreadable, file),
    ):
        whole = source.size <= (SMALL if small is None else small)
        yield pa.BufferReader(source.get()) if whole else file


@contextlib.contextmanager
def convert_errors(
    path: str, what: str, kind: type[CorruptRecord], file: StoredFile | None = None
) -> Iterator[None]:
    """Convert the errors of readers of a file to errors of type `kind`.

    Other errors of this package are raised unchanged, and so is an error of the store that `file` kept.

    Args:
        path: path of the file.
        what: the format that the file should have, for messages.
        kind: `CorruptRecord` for a file of an output, `InputUnreadable` for an input file.
        file: the file from which pyarrow reads; None if it does not read from the store.
    """
    try:
        yield
    except READER_ERRORS as error:
        if file is not None and file.error is not None:
            raise file.error from None
        is_unreadable = isinstance(error, InputUnreadable) and kind is CorruptRecord
        if isinstance(error, CommitError) and not is_unreadable:
            raise
        raise kind(f"{path!r} cannot be read as {what}: {error}") from error
