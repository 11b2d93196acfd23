"""What the file systems need of their files: lookups, open files, and the places of new ones.

There are two implementations: `locations` has the files of namespaces, and `store_locations` the objects
of plain stores. `BaseFileSystem`, `Bulk`, `ReadFile` and `WriteFile` know these protocols only.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any, Protocol, TypeAlias

from commitlog.transfer import OpenSource

__all__ = ["FileTarget", "Info", "Locations", "Opened", "Writer"]

#: The details of a path in the form of fsspec.
Info: TypeAlias = dict[str, Any]


class Opened(OpenSource, Protocol):
    """One version of a file, open for reading. Thread-safe."""

    @property
    def data(self) -> Any:
        """Refers to the content: equal for the same version, and picklable."""


class Writer(Protocol):
    """The content of a new file, which is invisible until it is committed. Not thread-safe."""

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """Append `data`; return its length in bytes."""

    def commit(self) -> Any:
        """Make the file."""

    def finish(self) -> Any:
        """Store the content without making a file; return a reference to it."""

    def abort(self) -> None:
        """Remove the content, unless the file may exist. Idempotent."""


class FileTarget(Protocol):
    """The place of a new file."""

    @property
    def path(self) -> str:
        """The path, relative to its namespace or store."""

    def open_writer(self, *, overwrite: bool) -> Writer:
        """Begin a file. Without `overwrite` it must be new: raises `AlreadyExists`, now or later."""

    def copy(self, writer: Any, source: Any, origin: Any) -> int | None:
        """Let the store copy `source`, which is at `origin`, to `writer`; return its size.

        Returns None if the store cannot: read and write it.
        """

    def drop(self, data: Any) -> None:
        """Remove content that `Writer.finish` stored and that no file refers to."""


class Locations(Protocol):
    """The paths of a file system, without its protocol. Nothing is cached. Thread-safe."""

    def find(self, path: str) -> Any:
        """Return the place of a file or directory, which need not exist. Raises `InvalidPath`."""

    def info(self, path: str) -> Info:
        """Return the details of a file or directory. Raises `NotFound`."""

    def info_or_none(self, path: str) -> Info | None:
        """Return the details of a file or directory, or None if it does not exist."""

    def details(self, path: str, opened: Any) -> Info:
        """Return the details of an open file. Sends no request."""

    def entries(self, path: str) -> list[Info]:
        """Return the details of the entries of a directory, or of a file itself. Raises `NotFound`."""

    def walk(self, path: str) -> Iterator[Info]:
        """Yield the details of a path, if it exists, and of all paths below it."""

    def open(self, path: str) -> Any:
        """Open a file for reading. Raises `NotFound`."""

    def open_unless_directory(self, path: str) -> Any | None:
        """Open a file for reading; return None for a directory. Raises `NotFound`."""

    def open_blocks(self, path: str, block_size: int) -> tuple[Opened, Generator[bytes]] | None:
        """Open a file and return it with its blocks; None for a directory. Raises `NotFound`."""

    def read(self, path: str, start: int | None, end: int | None) -> bytes:
        """Return a slice of a file. Negative numbers count from the end. Raises `NotFound`."""

    def write(self, path: str, value: bytes, *, overwrite: bool) -> None:
        """Make a file from bytes. Without `overwrite` it must be new (`AlreadyExists`)."""

    def make_directories(self, path: str, *, exist_ok: bool) -> None:
        """Make a directory and its missing parents. Raises `AlreadyExists`."""

    def delete(self, path: str, *, recursive: bool = False) -> None:
        """Remove a file, an empty directory, or a directory with its contents."""

    def close(self) -> None:
        """Close all connections. The next use opens them again."""
