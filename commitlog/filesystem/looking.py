"""Listings and status: methods of the file system that need no write permission."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from fsspec.spec import AbstractFileSystem
from fsspec.utils import tokenize

from commitlog.absence import is_absent
from commitlog.errors import InvalidPath, NotFound, NotSupported
from commitlog.filesystem.places import Info, Mounts, Place, directory_info, info_of
from commitlog.namespaces import list_namespaces

__all__ = ["Looking"]


class Looking(AbstractFileSystem):
    """The methods of `CommitlogFileSystem` that look up names. Nothing is cached.

    A service that cannot be reached, or that refuses the credentials, always raises an error. It never
    makes a path look missing or a listing incomplete.
    """

    root_marker = ""
    _mounts: Mounts
    _metadata: str | None

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        stripped = super()._strip_protocol(path)
        return stripped if isinstance(stripped, list) else stripped.lstrip("/")

    def _place(self, path: str) -> Place:
        return self._mounts.place(self._strip_protocol(path))

    # one path

    def info(self, path: str, **kwargs: Any) -> Info:
        """Return the details of `path`: name, size, type, id, version, etag, created, modified.

        Raises `NotFound`, which is a `FileNotFoundError`.
        """
        stripped = self._strip_protocol(path)
        if not stripped:
            return directory_info("")
        place = self._mounts.place(stripped)
        return info_of(place.namespace.name, place.namespace.stat(place.path))

    def _info_or_none(self, path: str) -> Info | None:
        try:
            return self.info(path)
        except InvalidPath:
            return None
        except NotFound as error:
            if not is_absent(error):
                raise
            return None

    def exists(self, path: str, **kwargs: Any) -> bool:
        """Return whether a file or directory exists at `path`."""
        return self._info_or_none(path) is not None

    def isdir(self, path: str) -> bool:
        """Return whether `path` is a directory."""
        info = self._info_or_none(path)
        return info is not None and info["type"] == "directory"

    def isfile(self, path: str) -> bool:
        """Return whether `path` is a file."""
        info = self._info_or_none(path)
        return info is not None and info["type"] == "file"

    def created(self, path: str) -> datetime:
        """Return the creation time, by the clock of the creator. The list of namespaces has none."""
        return self._time(path, "created")

    def modified(self, path: str) -> datetime:
        """Return the time of the last write. Changes in a directory do not modify the directory."""
        return self._time(path, "modified")

    def _time(self, path: str, which: str) -> datetime:
        info = self.info(path)
        if which not in info:
            raise InvalidPath("the list of namespaces has no time: name one of them")
        time: datetime = info[which]
        return time

    def checksum(self, path: str) -> int:
        """Return a number that differs after any change or replacement of the file."""
        return int(self.ukey(path), 16)

    def ukey(self, path: str) -> str:
        """Return a string that differs after any change or replacement of the file."""
        info = self.info(path)
        return str(tokenize(info["name"] if "id" not in info else (info["id"], info["version"])))

    def sign(self, path: str, expiration: int = 100, **kwargs: Any) -> str:
        """Raise `NotSupported`: reading a file takes access to the metadata table, and credentials."""
        raise NotSupported(
            f"there is no URL by which others could read {path!r}: give them credentials to read the"
            " namespace, or a copy"
        )

    # many paths

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        """Return the entries of a directory, sorted by the UTF-8 bytes of the name; of a file, itself.

        The root of the file system lists the namespaces. Names that are added, renamed or removed during
        the call may be included or not. Raises `NotFound`.
        """
        stripped = self._strip_protocol(path)
        if stripped:
            place = self._mounts.place(stripped)
            name = place.namespace.name
            infos = [info_of(name, status) for status in place.namespace.list(place.path)]
        else:
            infos = [directory_info(name) for name in list_namespaces(self._metadata)]
        return infos if detail else [info["name"] for info in infos]

    def walk(
        self,
        path: str,
        maxdepth: int | None = None,
        topdown: bool = True,
        on_error: str | Callable[[OSError], object] = "omit",
        **kwargs: Any,
    ) -> Iterator[Any]:
        """Yield directories with their contents, as in fsspec.

        ``on_error="omit"`` skips directories that no longer exist; all other errors are raised.
        """
        handler = _omit_missing if on_error == "omit" else on_error
        yield from super().walk(path, maxdepth, topdown, handler, **kwargs)

    def find(
        self,
        path: str,
        maxdepth: int | None = None,
        withdirs: bool = False,
        detail: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Return all files below a path, as in fsspec; for a file, the file itself."""
        stripped = self._strip_protocol(path)
        if maxdepth is not None or not stripped:
            return super().find(stripped, maxdepth, withdirs, detail, **kwargs)
        found = {
            info["name"]: info for info in self._below(stripped) if withdirs or info["type"] == "file"
        }
        names = sorted(found)
        return {name: found[name] for name in names} if detail else names

    def _below(self, path: str) -> Iterator[Info]:
        """Yield a path, if it exists, and all paths below it."""
        info = self._info_or_none(path)
        if info is None:
            return
        yield info
        if info["type"] == "directory":
            place = self._mounts.place(path)
            for status in place.namespace.walk(place.path):
                yield info_of(place.namespace.name, status)

    def du(
        self,
        path: str,
        total: bool = True,
        maxdepth: int | None = None,
        withdirs: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Return the total size of the files at and below a path, in bytes, or the size of each file."""
        found = self.find(path, maxdepth=maxdepth, withdirs=withdirs, detail=True)
        sizes = {name: info["size"] for name, info in found.items()}
        return sum(sizes.values()) if total else sizes


def _omit_missing(error: OSError) -> None:
    if not is_absent(error):
        raise error
