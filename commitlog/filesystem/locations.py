"""Paths in namespaces: lookups, listings and contents, in the form of fsspec."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from datetime import UTC, datetime
from typing import Any

from commitlog.errors import ConfigurationError, InvalidPath, IsADirectory, NotFound
from commitlog.filesystem.ports import Info
from commitlog.namespace import Namespace, OpenFile, Status
from commitlog.namespace.model.keys import Keys
from commitlog.namespaces import list_namespaces, open_namespace
from commitlog.paths import join
from commitlog.transfer import NamespacePath, read_blocks, read_slice

__all__ = ["NamespaceLocations", "directory_info", "info_of", "time_of"]


class NamespaceLocations:
    """The paths ``NAMESPACE/PATH`` of one metadata table. Nothing is cached. Thread-safe.

    Each namespace is opened at its first use. The path "" stands for the list of namespaces.

    Args:
        metadata: the URL of the table; None for the one of the environment.
        options: other options of `commitlog.open_namespace`, for each namespace.
    """

    def __init__(self, metadata: str | None, **options: Any) -> None:
        self._metadata = metadata
        self._options = options
        self._opened: dict[str, Namespace] = {}

    def find(self, path: str) -> NamespacePath:
        """Return the namespace and the path in it. The path need not exist.

        Raises `InvalidPath` if the first part is not a valid namespace name, and the errors of
        `open_namespace`.
        """
        name, _, rest = path.partition("/")
        found = self._opened.get(name)
        if found is None:
            try:
                Keys(name)
            except ConfigurationError as error:
                raise InvalidPath(f"path {path!r} does not begin with a namespace: {error}") from None
            # No lock, because a fork could leave it locked. Of two results, one is used.
            opened = open_namespace(name, metadata=self._metadata, **self._options)
            found = self._opened.setdefault(name, opened)
            if found is not opened:
                opened.close()
        return NamespacePath(namespace=found, path=rest)

    def close(self) -> None:
        """Close the namespaces. The next use opens them again."""
        while self._opened:
            self._opened.popitem()[1].close()

    def info(self, path: str) -> Info:
        """Return the details of a file or directory. Raises `NotFound`."""
        if not path:
            return directory_info("")
        at = self.find(path)
        return info_of(at.namespace.name, at.namespace.stat(at.path))

    def info_or_none(self, path: str) -> Info | None:
        """Return the details of a file or directory, or None if it does not exist."""
        try:
            return self.info(path)
        except InvalidPath:
            return None
        except NotFound:
            return None

    def entries(self, path: str) -> list[Info]:
        """Return the details of the entries of a directory, or of a file itself. Raises `NotFound`."""
        if not path:
            return [directory_info(name) for name in list_namespaces(self._metadata)]
        at = self.find(path)
        return [info_of(at.namespace.name, status) for status in at.namespace.list(at.path)]

    def walk(self, path: str) -> Iterator[Info]:
        """Yield the details of a path in a namespace, if it exists, and of all paths below it."""
        info = self.info_or_none(path)
        if info is None:
            return
        yield info
        if info["type"] == "directory":
            at = self.find(path)
            for status in at.namespace.walk(at.path):
                yield info_of(at.namespace.name, status)

    def open(self, path: str) -> OpenFile:
        """Open a file for reading. Raises `NotFound` and `IsADirectory`."""
        at = self.find(path)
        return at.namespace.open(at.path)

    def open_unless_directory(self, path: str) -> OpenFile | None:
        """Open a file for reading; return None for a directory. Raises `NotFound`."""
        if not path:
            return None
        try:
            return self.open(path)
        except IsADirectory:
            return None

    def open_blocks(self, path: str, block_size: int) -> tuple[OpenFile, Generator[bytes]] | None:
        """Open a file and return it with its blocks; None for a directory. Raises `NotFound`."""
        opened = self.open_unless_directory(path)
        return None if opened is None else (opened, read_blocks(opened, block_size))

    def read(self, path: str, start: int | None, end: int | None) -> bytes:
        """Return a slice of a file. Raises `NotFound`, `IsADirectory`, `ObjectChanged`."""
        return read_slice(self.open(path), start, end)

    def details(self, path: str, opened: OpenFile) -> Info:
        """Return the details of an open file. Sends no request."""
        return info_of(self.find(path).namespace.name, opened.status)

    def write(self, path: str, value: bytes, *, overwrite: bool) -> None:
        """Make a file from bytes; see `Namespace.write`."""
        at = self.find(path)
        at.namespace.write(at.path, value, overwrite=overwrite)

    def make_directories(self, path: str, *, exist_ok: bool) -> None:
        """Make a directory and its missing parents. Raises `AlreadyExists`."""
        if exist_ok and not path:
            return
        at = self.find(path)
        at.namespace.make_directory(at.path, exist_ok=exist_ok, atomic=False)

    def delete(self, path: str, *, recursive: bool = False) -> None:
        """Remove a file, an empty directory, or a directory with its contents."""
        at = self.find(path)
        at.namespace.delete(at.path, recursive=recursive)

    def rename(self, source: NamespacePath, target: NamespacePath) -> None:
        """Rename a file or directory within a namespace. A file replaces a file.

        Missing parent directories of the target are made first, in a transaction of their own.
        """
        namespace = source.namespace
        try:
            namespace.rename(source.path, target.path, overwrite=True)
        except NotFound:
            parent = target.path.rpartition("/")[0]
            if not parent:
                raise
            namespace.stat(source.path)  # a missing source must leave no new directories
            namespace.make_directory(parent, atomic=False)
            namespace.rename(source.path, target.path, overwrite=True)


def info_of(namespace: str, status: Status) -> Info:
    """Return the details of a file or directory in the form of fsspec."""
    return {
        "name": join(namespace, status.path) if status.path else namespace,
        "size": status.size,
        "type": "directory" if status.is_directory else "file",
        "id": status.id,
        "version": status.version,
        "etag": status.etag,
        "created": time_of(status.created),
        "modified": time_of(status.modified),
        "mtime": status.modified / 1000,  # the name that pyarrow reads
    }


def directory_info(name: str) -> Info:
    """Return the details of a directory that need no request."""
    return {"name": name, "size": 0, "type": "directory"}


def time_of(milliseconds: float) -> datetime:
    """Return the time of a number of milliseconds since the epoch."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
