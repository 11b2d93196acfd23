"""One open file: `ReadFile` keeps to the version that was opened, `WriteFile` shows when it is closed.

Imports fsspec, its siblings and the namespace.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from fsspec.spec import AbstractBufferedFile

from commitlog.errors import (
    CommitError,
    ConfigurationError,
    NotSupported,
    ObjectChanged,
    OutcomeUnknown,
    TransactionTooLarge,
)
from commitlog.filesystem.places import Info, Place
from commitlog.namespace import Data, Namespace, OpenFile

if TYPE_CHECKING:
    from commitlog.filesystem.filesystem import CommitlogFileSystem

__all__ = ["ReadFile", "WriteFile", "blocks_of", "is_copied_by_store", "publish"]

_UNSEEN = "Or write them without a transaction, below a directory that nobody reads yet, and rename that"

#: What a store copies in one request at most ("CopyObject", Amazon S3 API reference).
_COPIED = 5 * 1024**3


class ReadFile(AbstractBufferedFile):
    """A file that is read, in blocks, as it was when it was opened. Not thread-safe.

    Whatever happens to the file, its bytes are those of that version, or reading raises `ObjectChanged`:
    the content is gone, longer after it was replaced than the namespace keeps it. That holds for one
    that was pickled, too, which is opened anew by its path where it is read.

    Args:
        fs, path, block_size, cache_type, cache_options: as fsspec has them.
        opened: the file.
        details: what fsspec is told of it.
    """

    def __init__(
        self,
        fs: CommitlogFileSystem,
        path: str,
        opened: OpenFile,
        details: Info,
        *,
        block_size: int | None = None,
        cache_type: str = "readahead",
        cache_options: dict[str, Any] | None = None,
    ) -> None:
        self._opened = opened
        super().__init__(
            fs,
            path,
            "rb",
            block_size,
            cache_type=cache_type,
            cache_options=cache_options,
            size=details["size"],
        )
        self.details = details

    @property
    def data(self) -> Data:
        """The content that is read."""
        return self._opened.data

    def _fetch_range(self, start: int, end: int) -> bytes:
        return self._opened.read(start, end)

    def discard(self) -> None:
        """Close it."""
        self.close()

    def __reduce__(self) -> tuple[Callable[..., ReadFile], tuple[Any, ...]]:
        cache = "none" if self.cache is None else self.cache.name
        return _reopened, (self.fs, self.path, self.blocksize, cache, self.data, self.loc)


def _reopened(
    fs: CommitlogFileSystem, path: str, block_size: int, cache_type: str, data: Data, position: int
) -> ReadFile:
    file: ReadFile = fs.open(path, block_size=block_size, cache_type=cache_type)
    if file.data != data:
        raise ObjectChanged(f"{path!r} was overwritten after it was opened. Open it again")
    file.seek(position)
    return file


class WriteFile(AbstractBufferedFile):
    """A file that is written, and shows, whole, when it is closed. Not thread-safe.

    In a transaction it shows when that ends. It never shows if it is discarded, if its ``with`` block
    ends with an exception, or if it is never closed.

    Args:
        fs, path, mode, autocommit: as fsspec has them.
        place: the same path, in its namespace.
    """

    closed: bool

    def __init__(
        self, fs: CommitlogFileSystem, path: str, mode: str, place: Place, *, autocommit: bool
    ) -> None:
        self.place = place
        self.exclusive = mode == "xb"
        self.data: Data | None = None
        self._writer = place.namespace.begin_write(place.path, overwrite=not self.exclusive)
        super().__init__(fs, path, mode, autocommit=autocommit)

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """Append `data`; return its length in bytes. If that fails, the file is discarded."""
        if self.closed:
            raise ValueError(f"{self.path!r} is closed")
        try:
            written = self._writer.write(data)
        except CommitError:
            self.discard()  # a text wrapper would close it all the same, and it would lack this
            raise
        self.loc += written
        return written

    def copy(self, source: OpenFile, namespace: Namespace) -> None:
        """Write the content of a file of `namespace`; the store copies it, if it has both and can."""
        if namespace is self.place.namespace and is_copied_by_store(source):
            self.loc += self._writer.copy(source)
            return
        for block in blocks_of(source, self.fs.blocksize):
            self.write(block)

    def flush(self, force: bool = False) -> None:
        """Do nothing: what is written shows all at once."""

    def close(self) -> None:
        """Make the file, or leave that to the transaction.

        Errors as of `Namespace.write`; there is no file of it then.
        """
        if self.closed:
            return
        self.closed = True
        try:
            if self.autocommit:
                self._writer.commit()
            else:
                self.data = self._writer.finish()
        except BaseException:
            self._abort()
            raise

    def commit(self) -> None:
        """Make the file, of one that was opened with ``autocommit=False`` and is closed."""
        publish([self])

    def discard(self) -> None:
        """Drop what was written, unless a file was made of it. Idempotent."""
        if not self.closed:
            self.closed = True
            self._abort()
        elif self.data is not None:
            with contextlib.suppress(CommitError):
                self.place.namespace.store.delete(self.data.path)
        self.data = None

    def _abort(self) -> None:
        with contextlib.suppress(CommitError):  # what remains is an upload that nobody sees
            self._writer.abort()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()

    def __del__(self) -> None:
        if not self.closed:
            warnings.warn(
                f"{self.path!r} was never closed: nothing is written", ResourceWarning, 1, self
            )
            with contextlib.suppress(Exception):
                self.discard()


def is_copied_by_store(source: OpenFile) -> bool:
    """Tell whether the store copies the content of a file, within a namespace."""
    return source.status.size <= _COPIED


def blocks_of(source: OpenFile, block: int) -> Iterator[bytes]:
    """Yield the content of a file, so many bytes at a time."""
    size = source.status.size
    for start in range(0, size, block):
        yield source.read(start, min(start + block, size))


def publish(files: Sequence[WriteFile]) -> None:
    """Make files of what was written, all in one transaction; drop the content if that does not happen.

    Of several that were written to one path, the last counts.

    Raises:
        ConfigurationError: one of them is not closed.
        NotSupported: they are in more than one namespace, or some must be new and others need not be.
        TransactionTooLarge: they are more than one transaction makes.
        AlreadyExists, IsADirectory, NotADirectory: as `Namespace.write`.
        OutcomeUnknown: they may have been made, or may still be. Nothing is dropped.
    """
    try:
        wanted = _wanted(files)
        if wanted:
            first = next(iter(wanted.values()))
            first.place.namespace.link_all(
                {path: file.data for path, file in wanted.items() if file.data is not None},
                overwrite=not first.exclusive,
            )
    except OutcomeUnknown:
        raise
    except CommitError as error:
        for file in files:
            file.discard()
        if isinstance(error, TransactionTooLarge):
            raise TransactionTooLarge(f"{error}. {_UNSEEN}") from error
        raise
    for file in wanted.values():
        file.data = None  # it is the file's now
    for file in files:
        file.discard()


def _wanted(files: Sequence[WriteFile]) -> dict[str, WriteFile]:
    """Return the files that are to be made, by path."""
    for file in files:
        if not file.closed:
            raise ConfigurationError(
                f"{file.path!r} is still open: close it before the transaction ends"
            )
    written = [file for file in files if file.data is not None]
    if len({file.place.namespace.name for file in written}) > 1:
        raise NotSupported("one transaction makes files in one namespace: use one for each")
    wanted = {file.place.path: file for file in written}
    if len({file.exclusive for file in wanted.values()}) > 1:
        raise NotSupported(
            "one transaction makes files that must be new (mode 'x'), or files that may replace others"
            " (mode 'w'), not both: use one for each"
        )
    return wanted
