"""Open files and transactions of the file system.

`ReadFile` reads the version that it opened. `WriteFile` becomes visible when it is closed, or when the
transaction ends. `wrap` adds compression and text to a file, so that closing and discarding still work.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, BinaryIO

from fsspec.compression import compr
from fsspec.core import get_compression
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem
from fsspec.transaction import Transaction

from commitlog.errors import (
    CommitError,
    ConfigurationError,
    NotSupported,
    ObjectChanged,
    OutcomeUnknown,
    TransactionTooLarge,
)
from commitlog.filesystem.locations import Info
from commitlog.namespace import LINK_BATCH_SIZE, Data, Namespace, OpenFile
from commitlog.transfer import (
    NamespacePath,
    SequentialReader,
    is_copied_by_store,
    read_blocks,
    sequential_reader,
)

__all__ = [
    "NamespaceTransaction",
    "ReadFile",
    "WriteFile",
    "new_local_file",
    "parse_mode",
    "wrap",
]

#: The caches of fsspec for which a file is not read ahead.
_NOT_READ_AHEAD = frozenset({"background", "none"})

#: The advice for files that do not fit into one transaction.
_WITHOUT_TRANSACTION = (
    "Or write them without a transaction to a new directory that has no readers yet, then rename it"
)


class ReadFile(AbstractBufferedFile):
    """An open file for reading, in blocks, of the version that was opened. Not thread-safe.

    While a file on a server is read in sequence, its next blocks are read ahead in threads; see
    `commitlog.transfer.sequential_reader`. With the caches "none" and "background" they are not: the
    former asks for no more than is read, the latter has threads of its own.

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
        fs: AbstractFileSystem,
        path: str,
        opened: OpenFile,
        details: Info,
        *,
        block_size: int | None = None,
        cache_type: str = "readahead",
        cache_options: dict[str, Any] | None = None,
    ) -> None:
        self._opened = opened
        self._reader: SequentialReader | None = None
        if cache_type not in _NOT_READ_AHEAD:
            self._reader = sequential_reader(opened)
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
        return (self._opened if self._reader is None else self._reader).read(start, end)

    def close(self) -> None:
        """Close the file. Threads that read ahead end with their requests. Idempotent."""
        if self._reader is not None:
            self._reader.close()
        super().close()

    def discard(self) -> None:
        """Close the file."""
        self.close()

    def __reduce__(self) -> tuple[Callable[..., ReadFile], tuple[Any, ...]]:
        cache = "none" if self.cache is None else self.cache.name
        return _reopen, (self.fs, self.path, self.blocksize, cache, self.data, self.loc)


def _reopen(
    fs: AbstractFileSystem, path: str, block_size: int, cache_type: str, data: Data, position: int
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
        target: the same path in its namespace.
    """

    closed: bool

    def __init__(
        self, fs: AbstractFileSystem, path: str, mode: str, target: NamespacePath, *, autocommit: bool
    ) -> None:
        self.target = target
        self.exclusive = mode == "xb"
        self.data: Data | None = None
        self._writer = target.namespace.open_writer(target.path, overwrite=not self.exclusive)
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
        if namespace is self.target.namespace and is_copied_by_store(source):
            self.loc += self._writer.copy(source)
            return
        with contextlib.closing(read_blocks(source, self.fs.blocksize)) as blocks:
            for block in blocks:
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
        _publish([self])

    def discard(self) -> None:
        """Remove the written content, unless the file was made. Idempotent."""
        if not self.closed:
            self.closed = True
            self._abort()
        elif self.data is not None:
            with contextlib.suppress(CommitError):
                self.target.namespace.store.delete(self.data.path)
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
                f"{self.path!r} was never closed: nothing was written", ResourceWarning, 1, self
            )
            with contextlib.suppress(Exception):
                self.discard()


class NamespaceTransaction(Transaction):
    """A transaction that makes all files opened and closed in it at once.

    It is one transaction of the metadata table. Not thread-safe: it belongs to one
    `CommitlogFileSystem`, and fsspec gives each thread its own.
    """

    fs: Any
    files: deque[WriteFile]

    def start(self) -> None:
        """Start the transaction. Raises `ConfigurationError` inside another transaction."""
        if self.fs._intrans:
            raise ConfigurationError("a transaction is active already, and transactions do not nest")
        super().start()

    def complete(self, commit: bool = True) -> None:
        """Make all files or none. If several files were written to one path, make the last one.

        Raises:
            ConfigurationError: a file is not closed.
            NotSupported: the files are in several namespaces, or only some of them have to be new.
            TransactionTooLarge: there are more files than one transaction can make.
            AlreadyExists, IsADirectory, NotADirectory: as in `Namespace.write`.
            OutcomeUnknown: the files may exist, or may still appear. No content is removed.
        """
        files = list(self.files)
        self.files = deque()
        try:
            if commit:
                _publish(files)
            else:
                for file in files:
                    file.discard()
        finally:
            self.fs._intrans = False
            self.fs._transaction = None
            self.fs = None


def _publish(files: Sequence[WriteFile]) -> None:
    """Make all written files in one transaction. After an error, remove their content."""
    try:
        last_files = _last_files(files)
        if last_files:
            first = next(iter(last_files.values()))
            link = partial(
                first.target.namespace.link_many,
                {path: file.data for path, file in last_files.items() if file.data is not None},
                overwrite=not first.exclusive,
            )
            if len(last_files) == 1:
                link()  # works during interpreter shutdown too, when no thread can start
            else:
                with ThreadPoolExecutor(LINK_BATCH_SIZE, "commitlog-read") as readers:
                    link(executor=readers)
    except OutcomeUnknown:
        raise
    except CommitError as error:
        for file in files:
            file.discard()
        if isinstance(error, TransactionTooLarge):
            raise TransactionTooLarge(f"{error}. {_WITHOUT_TRANSACTION}") from error
        raise
    for file in last_files.values():
        file.data = None  # the file owns it now
    for file in files:
        file.discard()


def _last_files(files: Sequence[WriteFile]) -> dict[str, WriteFile]:
    """Return the files to make: the last one that was written to each path."""
    for file in files:
        if not file.closed:
            raise ConfigurationError(
                f"{file.path!r} is still open: close it before the transaction ends"
            )
    written = [file for file in files if file.data is not None]
    if len({file.target.namespace.name for file in written}) > 1:
        raise NotSupported("a transaction makes files in one namespace: use one transaction for each")
    last_files = {file.target.path: file for file in written}
    if len({file.exclusive for file in last_files.values()}) > 1:
        raise NotSupported(
            "a transaction cannot make both files that must be new (mode 'x') and files that may replace"
            " others (mode 'w'): use two transactions"
        )
    return last_files


class _CompressedFile:
    """A compressor that also closes or discards the file below it."""

    def __init__(self, outer: Any, inner: Any) -> None:
        self._outer = outer
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._outer, name)

    @property
    def closed(self) -> bool:
        """Whether the file below is closed, which is also the case after a failed write."""
        return bool(self._inner.closed)

    def close(self) -> None:
        """Finish the compressed content and close the file."""
        if not self.closed:
            self._outer.close()
            self._inner.close()

    def discard(self) -> None:
        """Remove the written content and close the file."""
        with contextlib.suppress(CommitError):  # closing the compressor writes its last bytes
            self._outer.close()
        self._inner.discard()

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._outer)

    def __enter__(self) -> _CompressedFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()


class _TextFile(io.TextIOWrapper):
    """A text wrapper that discards the file below if its ``with`` block ends with an exception.

    If the wrapper is never closed, it does not close the file below, unlike Python's own wrapper.
    """

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.buffer.discard()  # type: ignore[attr-defined]

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # closed already, or never open
            self.detach()


def wrap(file: Any, path: str, mode: str, compression: str | None, text: dict[str, Any] | None) -> Any:
    """Add compression and text to an open file.

    Args:
        file: the file, opened for bytes.
        path: its path, from which the compression can be inferred.
        mode: its mode.
        compression: a name that fsspec knows, or "infer".
        text: the options of `io.TextIOWrapper`; None for bytes.

    Written text in UTF-16 or UTF-32 begins with a byte order mark.

    fsspec's own wrappers close the file wrongly. Its compressors do not close the file that they write
    to, so the file would never appear. Python's text wrapper closes the file even after an exception, so
    an incomplete file would appear.
    """
    method = get_compression(path, compression)
    if method is not None:
        file = _CompressedFile(compr[method](file, mode=mode[0]), file)
    if text is None:
        return file
    wrapped = _TextFile(file, **text)
    marked = codecs.lookup(wrapped.encoding).name in ("utf-16", "utf-32")
    if marked and mode[0] != "r" and not file.seekable():
        # Without a seekable file Python omits the mark, and readers could not detect the byte order.
        file.write("".encode(wrapped.encoding))
    return wrapped


@contextmanager
def new_local_file(path: str) -> Iterator[BinaryIO]:
    """Open a local file for writing. Make its directory. Remove the incomplete file after an error."""
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with open(path, "wb") as target:
        try:
            yield target
        except BaseException:
            if os.path.isfile(path):
                os.unlink(path)
            raise


def parse_mode(mode: str) -> tuple[str, bool]:
    """Return a mode of Python as a mode for bytes, and whether it is one for text.

    Raises `ConfigurationError` for an invalid mode.

    >>> [parse_mode(mode) for mode in ("r", "bw", "x+")]
    [('rb', True), ('wb', False), ('x+b', True)]
    """
    letters = set(mode)
    if (
        len(letters) != len(mode)
        or len(letters & set("rwax")) != 1
        or not letters <= set("rwaxbt+")
        or letters >= {"b", "t"}
    ):
        raise ConfigurationError(f"invalid mode {mode!r}: use 'r', 'w' or 'x', with 'b' for bytes")
    return mode.replace("t", "").replace("b", "") + "b", "b" not in mode
