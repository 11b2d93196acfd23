"""Paths in plain stores: lookups, listings and contents, in the form of fsspec."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from itertools import chain
from urllib.parse import quote

from attrs import evolve

from commitlog._util.retry import Backoff
from commitlog.clock import SystemClock
from commitlog.commit import ConditionalStore
from commitlog.errors import CommitError, DirectoryNotEmpty, InvalidPath, NotFound, NotSupported
from commitlog.filesystem.locations import directory_info, time_of
from commitlog.filesystem.object_writer import StorePath
from commitlog.filesystem.ports import Info
from commitlog.paths import check_prefix, join
from commitlog.stores.api import ObjectInfo
from commitlog.transfer import OpenObject, read_blocks, read_first_block, read_slice

__all__ = ["StoreLocations"]

#: Opens the store with a URL.
Connect = Callable[[str], ConditionalStore]


class StoreLocations:
    """The paths of objects in the stores of one kind. Nothing is cached. Thread-safe.

    Each store is opened at its first use. A directory exists as long as there is an object below it; an
    object and a directory may have the same path, if the store allows it, and the object is then found.

    Args:
        scheme: the scheme of the stores' URLs. The first part of a path names the store (for ``s3`` the
            bucket), unless there is a `root`.
        connect: opens a store.
        root: the absolute path of the only store, a local directory.
    """

    def __init__(self, scheme: str, connect: Connect, *, root: str | None = None) -> None:
        self._scheme = scheme
        self._connect = connect
        self._root = root
        self._clock = SystemClock()
        self._backoff = Backoff()
        self._opened: dict[str, ConditionalStore] = {}

    def find(self, path: str) -> StorePath:
        """Return the store and the path in it. The path need not exist.

        Raises `InvalidPath` if it names no store, and the errors of `commitlog.connect`.
        """
        if self._root is not None:
            root = self._root
            if path != root and not path.startswith(join(root, "")):
                raise InvalidPath(f"path {path!r} is not below the root {root!r} of the file system")
            rest = path.removeprefix(root).lstrip("/")
        else:
            root, _, rest = path.partition("/")
            if not root:
                raise InvalidPath(f"path {path!r} names no store: begin it with a name, as in 'name/a'")
        return StorePath(
            store=self._store(root),
            path=check_prefix(rest),
            root=root,
            clock=self._clock,
            backoff=self._backoff,
        )

    def _store(self, name: str) -> ConditionalStore:
        found = self._opened.get(name)
        if found is None:
            # No lock, because a fork could leave it locked. Of two results, one is used.
            opened = self._connect(f"{self._scheme}://{quote(name)}")
            found = self._opened.setdefault(name, opened)
            if found is not opened:
                opened.close()
        return found

    def close(self) -> None:
        """Close the stores. The next use opens them again."""
        while self._opened:
            self._opened.popitem()[1].close()

    # lookups

    def info(self, path: str) -> Info:
        """Return the details of an object or directory. Raises `NotFound`.

        An object takes one request. Anything else takes two.
        """
        if not path and self._root is None:
            return directory_info("")
        at = self.find(path)
        info = self._head(at)
        if info is not None:
            return _info_of(at.root, info)
        if not at.path or at.store.object_store.first(join(at.path, "")) is not None:
            return directory_info(path)
        raise NotFound(f"there is no object or directory at {path!r}")

    def object_info(self, path: str) -> Info | None:
        """Return the details of an object, or None if there is none; a directory does not count."""
        at = self.find(path)
        info = self._head(at)
        return None if info is None else _info_of(at.root, info)

    def info_or_none(self, path: str) -> Info | None:
        """Return the details of an object or directory, or None if it does not exist."""
        try:
            return self.info(path)
        except InvalidPath:
            return None
        except NotFound:
            return None

    def entries(self, path: str) -> list[Info]:
        """Return the details of the entries of a directory, or of an object. Raises `NotFound`."""
        if not path and self._root is None:
            raise NotSupported("the stores of an account are not listed: name one")
        at = self.find(path)
        top = join(at.path, "") if at.path else ""
        found: dict[str, Info] = {}
        for page in at.store.list_pages(top, delimiter="/"):
            for prefix in page.prefixes:
                name = join(at.root, prefix.rstrip("/"))
                found.setdefault(name, directory_info(name))
            for info in page.objects:
                found[join(at.root, info.path)] = _info_of(at.root, info)
        if not found and at.path:
            itself = self._head(at)
            if itself is None:
                raise NotFound(f"there is no object or directory at {path!r}")
            return [_info_of(at.root, itself)]
        return [found[name] for name in sorted(found, key=str.encode)]

    def walk(self, path: str) -> Iterator[Info]:
        """Yield the details of a path, if it exists, and of all paths below it."""
        at = self.find(path)
        directories: set[str] = set()
        top = join(at.path, "") if at.path else ""
        for info in at.store.list(top):
            above = info.path.removeprefix(top).split("/")[:-1]
            for depth in range(len(above) + 1):
                name = join(at.root, top + "/".join(above[:depth])).rstrip("/")
                if name not in directories:
                    directories.add(name)
                    yield directory_info(name)
            yield _info_of(at.root, info)
        if not directories:
            found = self.info_or_none(path)
            if found is not None:
                yield found

    def details(self, path: str, opened: OpenObject) -> Info:
        """Return the details of an open object. Sends no request."""
        return _info_of(self.find(path).root, opened.info)

    # contents

    def open(self, path: str) -> OpenObject:
        """Open an object for reading, with one request. Raises `NotFound`, also for a directory."""
        at = self.find(path)
        info = self._head(at)
        if info is None:
            raise NotFound(f"there is no object at {path!r}")
        return OpenObject(at.store, info)

    def open_unless_directory(self, path: str) -> OpenObject | None:
        """Open an object for reading; return None for a directory. Raises `NotFound`."""
        if path:
            try:
                return self.open(path)
            except NotFound:
                self.info(path)
        return None

    def open_blocks(self, path: str, block_size: int) -> tuple[OpenObject, Generator[bytes]] | None:
        """Open an object and return it with its blocks; None for a directory. Raises `NotFound`.

        An object of up to 8 MiB takes one request.
        """
        at = self.find(path)
        if not at.path:
            return None
        try:
            opened, first = read_first_block(at.store, at.path)
        except NotFound:
            self.info(path)
            return None

        def blocks() -> Generator[bytes]:
            yield first
            yield from read_blocks(opened, block_size, start=len(first))

        return opened, blocks()

    def read(self, path: str, start: int | None, end: int | None) -> bytes:
        """Return a slice of an object, which takes one request if no number is negative.

        A whole object above 8 MiB is read in blocks, several at a time. Raises `NotFound`, and
        `PreconditionFailed` if the object was replaced between two requests.
        """
        at = self.find(path)
        first = 0 if start is None else start
        if not at.path:
            raise NotFound(f"there is no object at {path!r}")
        if first < 0 or (end is not None and end < 0):
            return read_slice(self.open(path), start, end)
        if first == 0 and end is None:
            opened, block = read_first_block(at.store, at.path)
            return b"".join(chain([block], read_blocks(opened, start=len(block))))
        if end is not None and end <= first:
            self.open(path)
            return b""
        return at.store.get(at.path, start=first, end=end).data

    def write(self, path: str, value: bytes, *, overwrite: bool) -> None:
        """Make an object from bytes; see `StorePath.write`."""
        self.find(path).write(value, overwrite=overwrite)

    # changes of names

    def make_directories(self, path: str, *, exist_ok: bool) -> None:
        """Do nothing: a directory exists as long as there is an object below it."""

    def delete(self, path: str, *, recursive: bool = False) -> None:
        """Remove an object, or a directory with its objects.

        Raises `NotFound`, and `DirectoryNotEmpty` for a directory without `recursive`. After an error,
        some of the objects of a directory may be gone.
        """
        info = self.info(path)
        at = self.find(path)
        if info["type"] == "file":
            at.store.delete(at.path)
        if not recursive:
            if info["type"] == "directory" and at.path:
                raise DirectoryNotEmpty(f"there are objects below {path!r}")
            return
        top = join(at.path, "") if at.path else ""
        for page in at.store.list_pages(top):
            self.delete_objects(evolve(at, path=info.path) for info in page.objects)

    def delete_objects(self, paths: Iterator[StorePath]) -> None:
        """Remove objects, a thousand in a request. Missing ones are no errors.

        Raises the first error, with a note of their number. Other objects may be gone.
        """
        of_store: dict[str, list[StorePath]] = {}
        for at in paths:
            of_store.setdefault(at.root, []).append(at)
        failed: list[CommitError] = []
        for group in of_store.values():
            failed.extend(group[0].store.delete_many([at.path for at in group]).values())
        if failed:
            failed[0].add_note(f"{len(failed)} objects may remain; others were removed")
            raise failed[0]

    def _head(self, at: StorePath) -> ObjectInfo | None:
        return at.store.begin_head(at.path)().info if at.path else None


def _info_of(root: str, info: ObjectInfo) -> Info:
    """Return the details of an object in the form of fsspec."""
    return {
        "name": join(root, info.path),
        "size": info.size,
        "type": "file",
        "etag": info.etag,
        "version": info.version,
        "modified": time_of(info.last_modified * 1000),
        "mtime": info.last_modified,  # the name that pyarrow reads
    }
