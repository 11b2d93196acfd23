"""Which namespace a path of the file system leads to, and what fsspec is told of what is there.

Imports `commitlog.mount` and the namespace.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, TypeAlias

from attrs import frozen

from commitlog.errors import ConfigurationError, InvalidPath
from commitlog.mount import mount
from commitlog.namespace import Namespace, Status
from commitlog.namespace.keys import Keys
from commitlog.paths import join

__all__ = ["Info", "Mounts", "Place", "directory_info", "info_of"]

#: What fsspec calls the details of a path.
Info: TypeAlias = dict[str, Any]


@frozen
class Place:
    """A path in a namespace.

    Attributes:
        namespace: which.
        path: in it; "" for its root.
    """

    namespace: Namespace
    path: str


class Mounts:
    """The namespaces of one table of names, each opened when it is first asked for. Thread-safe.

    Args:
        options: those of `commitlog.mount.mount`, for each of them.
    """

    def __init__(self, **options: Any) -> None:
        self._options = options
        self._opened: dict[str, Namespace] = {}

    def place(self, path: str) -> Place:
        """Return where ``NAMESPACE/PATH`` is.

        Raises `InvalidPath` if it begins with what no namespace can be called, and errors of `mount`.
        """
        name, _, rest = path.partition("/")
        found = self._opened.get(name)
        if found is None:
            try:
                Keys(name)
            except ConfigurationError as error:
                raise InvalidPath(f"path {path!r} begins with no namespace: {error}") from None
            # Not under a lock, which a fork could leave locked: of two, one is used.
            mounted = mount(name, **self._options)
            found = self._opened.setdefault(name, mounted)
            if found is not mounted:
                mounted.close()
        return Place(found, rest)

    def close(self) -> None:
        """Close the namespaces; they are opened again when they are asked for."""
        while self._opened:
            self._opened.popitem()[1].close()


def info_of(namespace: str, status: Status) -> Info:
    """Return what fsspec is told of a file or directory."""
    return {
        "name": join(namespace, status.path) if status.path else namespace,
        "size": status.size,
        "type": "directory" if status.is_directory else "file",
        "id": status.id,
        "version": status.version,
        "etag": status.etag,
        "created": _time(status.created),
        "modified": _time(status.modified),
        "mtime": status.modified / 1000,  # pyarrow looks for this name
    }


def directory_info(name: str) -> Info:
    """Return what is known of a directory without asking for it."""
    return {"name": name, "size": 0, "type": "directory"}


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
