"""Open files and transactions of the file system.

`ReadFile` reads the version that it opened. `WriteFile` becomes visible when it is closed, or when the
transaction ends. `wrap` adds compression and text to a file, so that closing and discarding still work.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

from fsspec.compression import compr
from fsspec.core import get_compression
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem
from fsspec.transaction import Transaction

from commitlog.errors import CommitError, ConfigurationError, ObjectChanged
from commitlog.filesystem.ports import FileTarget, Info, Opened
from commitlog.transfer import SequentialReader, read_blocks, sequential_reader

__all__ = [
    "FileTransaction",
    "ReadFile",
    "WriteFile",
    "new_local_file",
    "parse_mode",
    "wrap",
]

#: The caches of fsspec for which a file is not read ahead.
_NOT_READ_AHEAD = frozenset({"background", "none"})


class ReadFile(AbstractBufferedFile):
    """An open file for reading, in blocks, of the version that was opened. Not thread-safe.

    While a file on a server is read in sequence, its next blocks are read ahead in threads; see
    `commitlog.transfer.sequential_reader`. With the caches "none" and "background" they are not: the
    former asks for no more than is read, the latter has threads of its own.

    All bytes are of that version, even if the file changes. After the file was replaced, a namespace
    keeps the old content for a limited time, and later reads raise `ObjectChanged`; a plain store keeps
    nothing, and reads raise `PreconditionFailed`. A pickled file is opened again by its path where it is
    unpickled, which raises `ObjectChanged` if the file was replaced.

    Args:
        fs, path, block_size, cache_type, cache_options: as in fsspec.
        opened: the file in its namespace.
        details: the result of `info` for the file.
    """

    def __init__(
        self,
        fs: AbstractFileSystem,
        path: str,
        opened: Opened,
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
    def data(self) -> Any:
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
    fs: AbstractFileSystem, path: str, block_size: int, cache_type: str, data: Any, position: int
) -> ReadFile:
    file: ReadFile = fs.open(path, block_size=block_size, cache_type=cache_type)
    if file.data != data:
        raise ObjectChanged(f"{path!r} was overwritten after it was opened. Open it again")
    file.seek(position)
    return file


class WriteFile(AbstractBufferedFile):
    """An open file for writing, which appears complete when it is closed. Not thread-safe.

    In a transaction, the file appears when the transaction ends. It never appears if it is discarded, if
    its ``with`` block ends with an exception, or if it is never closed; nor if it is closed while an
    exception is handled that was not when it was opened.

    Args:
        fs, path, mode, autocommit: as in fsspec.
        target: the same path in its namespace or store.
    """

    closed: bool

    def __init__(
        self, fs: AbstractFileSystem, path: str, mode: str, target: FileTarget, *, autocommit: bool
    ) -> None:
        self.target: Any = target
        self.exclusive = mode == "xb"
        self.data: Any = None
        self._handled_before = sys.exception()
        self._writer = target.open_writer(overwrite=not self.exclusive)
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

    def copy(self, source: Opened, origin: FileTarget) -> None:
        """Write the content of a file at `origin`. If possible, let the store copy it."""
        copied = self.target.copy(self._writer, source, origin)
        if copied is not None:
            self.loc += copied
            return
        with contextlib.closing(read_blocks(source, self.fs.blocksize)) as blocks:
            for block in blocks:
                self.write(block)

    def flush(self, force: bool = False) -> None:
        """Do nothing, because the file appears only as a whole."""

    def close(self) -> None:
        """Make the file, or leave that to the transaction.

        Writers such as those of pyarrow and pandas close a file also when they failed. So while another
        exception is handled than when the file was opened, the file is discarded, and that exception is
        raised again. A ``finally`` raises it anyway, and an ``except`` does not take it for a success.

        Raises the errors of `Namespace.write`; no file was made then.
        """
        if self.closed:
            return
        handled = sys.exception()
        if handled is not None and handled is not self._handled_before:
            self.discard()
            handled.add_note(
                f"{self.path!r} was closed while this exception was handled, and nothing was written. If"
                " its content is complete, close it outside of the 'except' block"
            )
            raise handled
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
        self.fs.publish([self])

    def discard(self) -> None:
        """Remove the written content, unless the file was made. Idempotent."""
        if not self.closed:
            self.closed = True
            self._abort()
        elif self.data is not None:
            with contextlib.suppress(CommitError):
                self.target.drop(self.data)
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


class FileTransaction(Transaction):
    """A transaction that hands its files to `publish` at its end, by default to the file system's.

    Not thread-safe: it belongs to one file system, and fsspec gives each thread its own.
    """

    fs: Any
    files: deque[WriteFile]

    def start(self) -> None:
        """Start the transaction. Raises `ConfigurationError` inside another transaction."""
        if self.fs._intrans:
            raise ConfigurationError("a transaction is active already, and transactions do not nest")
        super().start()

    def complete(self, commit: bool = True) -> None:
        """Make the files, or discard them. If several were written to one path, make the last one.

        Raises `ConfigurationError` if a file is not closed, and the errors of `BaseFileSystem.publish`.
        """
        files = list(self.files)
        self.files = deque()
        try:
            if commit:
                self.publish(files)
            else:
                for file in files:
                    file.discard()
        finally:
            self.fs._intrans = False
            self.fs._transaction = None
            self.fs = None

    def publish(self, files: Sequence[WriteFile]) -> None:
        """Make the files, which may include open and discarded ones."""
        self.fs.publish(files)


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
        # Closing the compressor writes its last bytes, and a failed write has closed the file below.
        with contextlib.suppress(CommitError, ValueError):
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
            target.flush()  # closing could fail to, and the file is removed here
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
