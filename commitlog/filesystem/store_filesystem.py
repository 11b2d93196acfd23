"""File systems over plain stores: the fsspec protocols ``commitlog+s3``, ``+file`` and ``+memory``.

Each has a second name without the ``+``, because some tools, such as xarray, take a URL with one for the
path of a local directory.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from glob import has_magic
from typing import Any, ClassVar

from attrs import evolve
from fsspec.utils import tokenize

from commitlog.connect import connect
from commitlog.errors import (
    AlreadyExists,
    ConfigurationError,
    DirectoryNotEmpty,
    IsADirectory,
    NotADirectory,
    NotSupported,
)
from commitlog.filesystem.base import BaseFileSystem
from commitlog.filesystem.bulk import plan_call
from commitlog.filesystem.file import WriteFile
from commitlog.filesystem.ports import FileTarget
from commitlog.filesystem.store_locations import StoreLocations
from commitlog.filesystem.transactions import OutputTransaction, publish_in_order
from commitlog.transfer import is_copied_by_store
from commitlog.urls import (
    OBJECT_OPTIONS,
    SECRET_OPTIONS,
    SERVICE_OPTIONS,
    Url,
    parse_store_url,
    parse_table_url,
)

__all__ = ["LocalStoreFileSystem", "MemoryStoreFileSystem", "S3StoreFileSystem", "StoreFileSystem"]


class StoreFileSystem(BaseFileSystem):
    """The objects of plain stores as files. Use a subclass, which knows the kind of store.

    Args:
        commit, table: how conditional writes are enforced; see `commitlog.connect`.
        output: the path of the directory of an `Output`. Files that are written in a transaction become
            a job of it, all or none; see `OutputTransaction`. None: they are made in order.
        block_size: the minimum number of bytes that an open file reads, unless `open` overrides it, and
            the number of bytes that are copied at a time.
        batch_size: the number of concurrent files in calls for many files, unless the call overrides it;
            -1: all, up to 128.
        storage_options: other options of `commitlog.connect`, such as ``endpoint_url``, ``region`` and
            ``profile``.

    Guarantees:

    - Mode ``x`` of `open`, and ``mode="create"`` of `pipe` and `put`, make a new object. Of several
      clients that create one path, in any threads, processes and machines, one succeeds, on any store.
      A lost answer never makes the creator look like a loser: it succeeds, or raises `OutcomeUnknown`.
    - An object appears complete when its file is closed, and never if its ``with`` block ends with an
      exception.
    - An open file reads one version, or raises `PreconditionFailed`.

    Non-guarantees: the names of a store are not a tree. Nothing but one object is atomic: not `mv` (a
    copy and a removal for each object), not ``rm(recursive=True)``, and not a transaction of several
    files without `output`, see `publish_in_order`. `mkdir` does nothing, and does not exclude others.
    Writes without a condition (mode ``w``) replace any object, and take no lease.

    See docs/filesystem.md. Instances can be pickled, and used after a fork; the pickle contains the
    options. Several threads can share an instance, except in a transaction.
    """

    _locations: StoreLocations
    _scheme: ClassVar[str]
    #: The options of `commitlog.connect` for this kind of store.
    _options: ClassVar[frozenset[str]] = frozenset()

    def __init__(
        self,
        *,
        commit: str = "auto",
        table: str | None = None,
        output: str | None = None,
        block_size: int | None = None,
        batch_size: int | None = None,
        **storage_options: Any,
    ) -> None:
        of_store = {name: storage_options.pop(name) for name in self._options & storage_options.keys()}
        # Refuse wrong options now, rather than at the first use.
        Url(scheme=self._scheme, name="any").with_options(of_store)
        self._shown = "" if table is None else f"table={str(parse_table_url(table))!r}"
        super().__init__(
            StoreLocations(
                self._scheme,
                partial(connect, commit=commit, table=table, **of_store),
                root=self._root(storage_options),
            ),
            block_size=block_size,
            batch_size=batch_size,
            in_groups=False,
            **storage_options,
        )
        self._output = output
        if output is not None:
            self.transaction_type = OutputTransaction

    def _target(self, path: str, *, autocommit: bool) -> FileTarget:
        place = self._locations.find(self._strip_protocol(path))
        if autocommit or self._output is None or not self._intrans:
            return place
        found: FileTarget = self.transaction.target(
            place, self._locations.find(self._strip_protocol(self._output))
        )
        return found

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._shown})"

    @staticmethod
    def _root(storage_options: dict[str, Any]) -> str | None:
        """Take the root of the only store from the options; None if paths name their stores."""
        return None

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        stripped = super()._strip_protocol(path)
        return stripped if isinstance(stripped, list) else stripped.lstrip("/")

    def publish(self, files: Sequence[WriteFile]) -> None:
        """Make files one after the other; see `publish_in_order`."""
        publish_in_order(files)

    # status

    def created(self, path: str) -> datetime:
        """Raise `NotSupported`: a store keeps only the time of the last write."""
        raise NotSupported(f"the store does not keep when {path!r} was created: use `modified`")

    def checksum(self, path: str) -> int:
        """Return a number that differs after any change or replacement of the object."""
        return int(self.ukey(path), 16)

    def ukey(self, path: str) -> str:
        """Return a string that differs after any change or replacement of the object."""
        info = self.info(path)
        return str(tokenize(*(info.get(name) for name in ("name", "etag", "size", "mtime"))))

    def sign(self, path: str, expiration: int = 100, **kwargs: Any) -> str:
        """Raise `NotSupported`: this library makes no URLs for readers without credentials."""
        raise NotSupported(f"{path!r} has no URL for readers without credentials")

    def find(
        self,
        path: str,
        maxdepth: int | None = None,
        withdirs: bool = False,
        detail: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Return all objects below a path, as in fsspec; for an object, the object itself.

        With `withdirs`, objects come in place of directories that have their paths, also at `path`.
        """
        found = super().find(path, maxdepth, withdirs, True, **kwargs)
        top = self._strip_protocol(path)
        if withdirs and top in found and (itself := self._locations.object_info(top)) is not None:
            found[top] = itself
        return found if detail else list(found)

    # changes of names

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        """Do nothing: a directory exists as long as there is an object below it."""

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Do nothing: a directory exists as long as there is an object below it."""

    def rmdir(self, path: str) -> None:
        """Do nothing for an empty directory. Raises `NotADirectory` and `DirectoryNotEmpty`."""
        info = self._locations.info_or_none(self._strip_protocol(path))
        if info is not None and info["type"] == "file":
            raise NotADirectory(f"{path!r} is a file, not a directory")
        if info is not None:
            raise DirectoryNotEmpty(f"there are objects below {path!r}: use rm(recursive=True)")

    def rm_file(self, path: str) -> None:
        """Remove an object. Raises `NotFound`, and `DirectoryNotEmpty` for a directory."""
        self._locations.delete(self._strip_protocol(path))

    _rm = rm_file

    def rm(
        self,
        path: Any,
        recursive: bool = False,
        maxdepth: int | None = None,
        *,
        batch_size: int | None = None,
    ) -> None:
        """Remove objects, and directories with their objects. It is not atomic.

        Args:
            path: one or more paths, or patterns.
            recursive: whether to remove directories.
            maxdepth: remove only up to this depth.
            batch_size: the number of concurrent removals. With `recursive` a request removes a thousand.
        """
        if not recursive:
            paths = [path] if isinstance(path, str) and not has_magic(path) else self.expand_path(path)
            self._bulk(batch_size).remove(map(self._strip_protocol, paths), recursive=False)
            return
        tops = self.expand_path(path)
        # An object may have the path of a directory.
        names = (name for top in tops for name in {top, *self.find(top, maxdepth=maxdepth)})
        found = map(self._locations.find, names)
        self._locations.delete_objects(each for each in found if each.path)

    def cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        """Copy an object. Within a store and up to 5 GiB, the store copies it.

        In a transaction it is read and written, because it must not appear before the end.
        """
        source = self._locations.find(self._strip_protocol(path1))
        target = self._locations.find(self._strip_protocol(path2))
        if self._intrans or source.store is not target.store:
            super().cp_file(path1, path2, **kwargs)
            return
        opened = self._locations.open_unless_directory(self._strip_protocol(path1))
        if opened is None:
            return
        if is_copied_by_store(opened):
            target.copy_from(source.path)
        else:
            super().cp_file(path1, path2, **kwargs)

    def mv(
        self,
        path1: Any,
        path2: Any,
        recursive: bool = False,
        maxdepth: int | None = None,
        *,
        batch_size: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Copy objects, with fsspec's rules for target paths, then remove those that were copied.

        It is not atomic. After an error, objects may be at both paths. What another client writes to the
        source after it was copied is removed with it.

        Args:
            path1, path2, recursive, maxdepth: see fsspec.
            batch_size: the number of concurrent copies.

        Raises `NotFound`, `IsADirectory` without `recursive`, and `NotSupported` in a transaction, or if
        an object would move to the path of another one that moves as well; nothing happened then.
        """
        if self._intrans:
            raise NotSupported(
                f"{path1!r} cannot be moved in a transaction, in which copies appear at the end: copy it"
                " in the transaction, and remove it after that"
            )
        plan = plan_call(self, "copy", path1, path2, recursive=recursive, maxdepth=maxdepth)
        if not plan.pairs:
            raise IsADirectory(f"{path1!r} is a directory: use mv(recursive=True)")
        stripped = [tuple(map(self._strip_protocol, pair)) for pair in plan.pairs]
        moves = [(old, new) for old, new in stripped if old != new and old not in plan.directories]
        both = {old for old, _ in moves}.intersection(new for _, new in moves)
        if both:
            raise NotSupported(f"{min(both)!r} is both moved and a target: move it in another call")
        self._bulk(batch_size).copy(evolve(plan, pairs=moves), ignore_missing=False)
        sources = map(self._locations.find, (old for old, _ in moves))
        self._locations.delete_objects(source for source in sources if source.path)

    def touch(self, path: str, truncate: bool = True, **kwargs: Any) -> None:
        """Make an empty object. Without `truncate`, an existing one stays as it is."""
        if truncate:
            self.pipe_file(path, b"")
            return
        with contextlib.suppress(AlreadyExists):
            self.pipe_file(path, b"", mode="create")


class S3StoreFileSystem(StoreFileSystem):
    """Buckets of S3 or of a compatible store: ``commitlog+s3://BUCKET/KEY``.

    See `StoreFileSystem`. The options of S3 are those of `commitlog.connect`.
    """

    protocol = ("commitlog+s3", "commitlogs3")
    root_marker = ""
    _scheme = "s3"
    _options = SERVICE_OPTIONS | SECRET_OPTIONS | OBJECT_OPTIONS


class MemoryStoreFileSystem(StoreFileSystem):
    """Stores in the memory of this process, for tests: ``commitlog+memory://NAME/KEY``.

    See `StoreFileSystem`. A store is there as long as it is open.

    >>> fs = MemoryStoreFileSystem()
    >>> with fs.open("of-fsspec/day=1/part-0", "xb") as file:
    ...     file.write(b"rows")
    4
    >>> fs.pipe("of-fsspec/day=1/part-0", b"others", mode="create")
    Traceback (most recent call last):
    commitlog.errors.AlreadyExists: there is an object at 'day=1/part-0' already; nothing was written
    """

    protocol = ("commitlog+memory", "commitlogmemory")
    root_marker = ""
    _scheme = "memory"


class LocalStoreFileSystem(StoreFileSystem):
    """One local directory: ``commitlog+file:///ABSOLUTE/PATH``.

    Args:
        root: the absolute path of the directory that is the store, in which all paths lie. All clients
            have to name the same one: its index is what excludes them from each other, see `LocalStore`.
        storage_options: see `StoreFileSystem`.
    """

    protocol = ("commitlog+file", "commitlogfile")
    root_marker = "/"
    _scheme = "file"

    @staticmethod
    def _root(storage_options: dict[str, Any]) -> str | None:
        root = storage_options.pop("root", None)
        if not isinstance(root, str) or not os.path.isabs(root):
            raise ConfigurationError(
                "give the file system the option root: the absolute path of the directory that is the"
                " store, such as root='/data/lake'"
            )
        return parse_store_url(root).name

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        return super(StoreFileSystem, cls)._strip_protocol(path)
