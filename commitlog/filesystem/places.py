"""The namespace of a path of the file system, and file details in the form of fsspec."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, TypeAlias

from attrs import frozen

from commitlog.errors import ConfigurationError, InvalidPath
from commitlog.namespace import Namespace, Status
from commitlog.namespace.model.keys import Keys
from commitlog.namespaces import open_namespace
from commitlog.paths import join

__all__ = ["Info", "Mounts", "Place", "directory_info", "info_of"]

#: The details of a path in the form of fsspec.
Info: TypeAlias = dict[str, Any]


@frozen
class Place:
    """A path in a namespace.

    Attributes:
        namespace: the namespace.
        path: the path in the namespace; "" for its root.
    """

    namespace: Namespace
    path: str


class Mounts:
    """The namespaces of one metadata table, each opened at its first use. Thread-safe.

    Args:
        options: the options of `commitlog.namespaces.mount`, for each namespace.
    """

    def __init__(self, **options: Any) -> None:
        self._options = options
        self._opened: dict[str, Namespace] = {}

    def place(self, path: str) -> Place:
        """Return the namespace and path of ``NAMESPACE/PATH``.

        Raises `InvalidPath` if the first part is not a valid namespace name, and the errors of `mount`.
        """
        name, _, rest = path.partition("/")
        found = self._opened.get(name)
        if found is None:
            try:
                Keys(name)
            except ConfigurationError as error:
                raise InvalidPath(f"path {path!r} begins with no namespace: {error}") from None
            # No lock, because a fork could leave it locked. Of two results, one is used.
            mounted = open_namespace(name, **self._options)
            found = self._opened.setdefault(name, mounted)
            if found is not mounted:
                mounted.close()
        return Place(found, rest)

    def close(self) -> None:
        """Close the namespaces. The next use opens them again."""
        while self._opened:
            self._opened.popitem()[1].close()


def info_of(namespace: str, status: Status) -> Info:
    """Return the details of a file or directory in the form of fsspec."""
    return {
        "name": join(namespace, status.path) if status.path else namespace,
        "size": status.size,
        "type": "directory" if status.is_directory else "file",
        "id": status.id,
        "version": status.version,
        "etag": status.etag,
        "created": _time(status.created),
        "modified": _time(status.modified),
        "mtime": status.modified / 1000,  # the name that pyarrow reads
    }


def directory_info(name: str) -> Info:
    """Return the details of a directory that need no request."""
    return {"name": name, "size": 0, "type": "directory"}


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
