"""Open files: `ReadFile` reads the version it opened, `WriteFile` becomes visible when it is closed."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
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
from commitlog.namespace import FILES_OF_A_LINK, Data, Namespace, OpenFile

if TYPE_CHECKING:
    from commitlog.filesystem.filesystem import CommitlogFileSystem

__all__ = ["ReadFile", "WriteFile", "blocks_of", "is_copied_by_store", "publish"]

_UNSEEN = "Or write them without a transaction, below a directory that nobody reads yet, and rename that"

#: The largest object, in bytes, that a store copies in one request ("CopyObject" of S3).
_COPIED = 5 * 1024**3


class ReadFile(AbstractBufferedFile):
    """An open file for reading, in blocks, of the version that was opened. Not thread-safe.

    All bytes are of that version, even if the file changes. After the file was replaced, the namespace
    keeps the old content for a limited time; later reads raise `ObjectChanged`. The same holds for a
    pickled file, which is opened again by its path where it is unpickled.

    Args:
        fs, path, block_size, cache_type, cache_options: as in fsspec.
        opened: the file in its namespace.
        details: the result of `info` for the file.
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
        """Close the file."""
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
    """An open file for writing, which appears complete when it is closed. Not thread-safe.

    In a transaction, the file appears when the transaction ends. It never appears if it is discarded, if
    its ``with`` block ends with an exception, or if it is never closed.

    Args:
        fs, path, mode, autocommit: as in fsspec.
        place: the same path in its namespace.
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
            self.discard()  # a text wrapper would still close it, and publish it without this data
            raise
        self.loc += written
        return written

    def copy(self, source: OpenFile, namespace: Namespace) -> None:
        """Write the content of a file of `namespace`. If possible, let the store copy it."""
        if namespace is self.place.namespace and is_copied_by_store(source):
            self.loc += self._writer.copy(source)
            return
        for block in blocks_of(source, self.fs.blocksize):
            self.write(block)

    def flush(self, force: bool = False) -> None:
        """Do nothing, because the file appears only as a whole."""

    def close(self) -> None:
        """Make the file, or leave that to the transaction.

        Raises the errors of `Namespace.write`; no file was made then.
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
        """Make the file after it was opened with ``autocommit=False`` and closed."""
        publish([self])

    def discard(self) -> None:
        """Remove the written content, unless the file was made. Idempotent."""
        if not self.closed:
            self.closed = True
            self._abort()
        elif self.data is not None:
            with contextlib.suppress(CommitError):
                self.place.namespace.store.delete(self.data.path)
        self.data = None

    def _abort(self) -> None:
        with contextlib.suppress(CommitError):  # only an invisible upload remains
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
    """Return whether the store can copy the content of a file within a namespace."""
    return source.status.size <= _COPIED


def blocks_of(source: OpenFile, block: int) -> Iterator[bytes]:
    """Yield the content of a file in blocks of `block` bytes."""
    size = source.status.size
    for start in range(0, size, block):
        yield source.read(start, min(start + block, size))


def publish(files: Sequence[WriteFile]) -> None:
    """Make all written files in one transaction. After an error, remove their content.

    If several files were written to one path, the last one is made.

    Raises:
        ConfigurationError: a file is not closed.
        NotSupported: the files are in several namespaces, or only some of them have to be new.
        TransactionTooLarge: there are more files than one transaction can make.
        AlreadyExists, IsADirectory, NotADirectory: as in `Namespace.write`.
        OutcomeUnknown: the files may exist, or may still appear. No content is removed.
    """
    try:
        wanted = _wanted(files)
        if wanted:
            first = next(iter(wanted.values()))
            link = partial(
                first.place.namespace.link_all,
                {path: file.data for path, file in wanted.items() if file.data is not None},
                overwrite=not first.exclusive,
            )
            if len(wanted) == 1:
                link()  # works during interpreter shutdown too, when no thread can start
            else:
                with ThreadPoolExecutor(FILES_OF_A_LINK, "commitlog-read") as readers:
                    link(mapper=readers.map)
    except OutcomeUnknown:
        raise
    except CommitError as error:
        for file in files:
            file.discard()
        if isinstance(error, TransactionTooLarge):
            raise TransactionTooLarge(f"{error}. {_UNSEEN}") from error
        raise
    for file in wanted.values():
        file.data = None  # the file owns it now
    for file in files:
        file.discard()


def _wanted(files: Sequence[WriteFile]) -> dict[str, WriteFile]:
    """Return the files to make, by path."""
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
