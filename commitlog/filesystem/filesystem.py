"""`CommitlogFileSystem`: the implementation of the fsspec protocol ``commitlog``."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from fsspec.utils import tokenize

from commitlog.clock import SystemClock
from commitlog.errors import (
    AlreadyExists,
    IsADirectory,
    NotADirectory,
    NotFound,
    NotSupported,
)
from commitlog.filesystem.base import BaseFileSystem
from commitlog.filesystem.bulk import plan_renames
from commitlog.filesystem.file import WriteFile
from commitlog.filesystem.locations import NamespaceLocations
from commitlog.filesystem.transactions import publish_at_once
from commitlog.transfer import NamespacePath
from commitlog.urls import parse_table_url

__all__ = ["CommitlogFileSystem"]


class CommitlogFileSystem(BaseFileSystem):
    """All namespaces of one metadata table as a file system. Paths are ``NAMESPACE/DIRECTORY/FILE``.

    Args:
        metadata: the URL of the table: ``dynamodb://table`` or ``sqlite:///file``. The default is the
            environment variable ``COMMITLOG_METADATA``, which each process reads for itself.
        store, commit, leases, grace, stable_paths: see `commitlog.open_namespace`. They apply
            to every namespace of the table.
        block_size: the minimum number of bytes that an open file reads, unless `open` overrides it, and
            the number of bytes that are copied at a time.
        batch_size: the number of concurrent files in calls for many files, unless the call overrides it;
            -1: all, up to 128.
        storage_options: options that fsspec passes to every file system are ignored; others raise
            `ConfigurationError`.

    All guarantees of fsspec hold. In addition:

    - A file appears complete when it is closed, and never if its ``with`` block ends with an exception.
    - An open file reads the version that was opened.
    - `mv` and ``rm(recursive=True)`` of a directory are one transaction of the table, whatever its size.
      So is ``with fs.transaction``, with all files written in it.
    - Nothing is cached. A service that cannot be reached, or that refuses the credentials, always raises
      an error. It never makes a path look missing or a listing incomplete.

    Calls for many files make several concurrently; `batch_size` is their number, and -1 stands for all,
    up to 128. Each file appears when it is complete; use a transaction to make all of them appear at
    once. When a file fails, no other is started, files in progress are cancelled where possible, and the
    error is raised with a note of the state.

    See docs/filesystem.md.

    Instances can be pickled, and used after a fork. The pickle and the JSON form contain the arguments
    as they were given, including credentials in a URL; keep credentials in the environment or in a
    profile instead. fsspec gives each thread its own instance. Several threads can share one, except in
    a transaction.

    >>> from commitlog import create_namespace
    >>> lake = create_namespace("lake", store="memory://of-fsspec", metadata="memory://of-fsspec")
    >>> fs = CommitlogFileSystem(metadata="memory://of-fsspec")
    >>> fs.pipe("lake/staging/part-0", b"rows")
    >>> fs.mv("lake/staging", "lake/events")
    >>> fs.find("lake")
    ['lake/events/part-0']
    """

    protocol = "commitlog"
    root_marker = ""
    _locations: NamespaceLocations

    def __init__(
        self,
        metadata: str | None = None,
        *,
        store: str | None = None,
        commit: str = "auto",
        leases: str | None = None,
        grace: float = 3600.0,
        stable_paths: bool = False,
        block_size: int | None = None,
        batch_size: int | None = None,
        **storage_options: Any,
    ) -> None:
        self._metadata = metadata
        self._shown = "" if metadata is None else repr(str(parse_table_url(metadata)))
        locations = NamespaceLocations(
            metadata,
            store=store,
            commit=commit,
            leases=leases,
            grace=grace,
            stable_paths=stable_paths,
        )
        super().__init__(
            locations,
            block_size=block_size,
            batch_size=batch_size,
            in_groups=True,
            **storage_options,
        )

    def publish(self, files: Sequence[WriteFile]) -> None:
        """Make files in one transaction of the metadata table; see `publish_at_once`."""
        publish_at_once(files)

    def __repr__(self) -> str:
        return f"CommitlogFileSystem({self._shown})"

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        stripped = super()._strip_protocol(path)
        return stripped if isinstance(stripped, list) else stripped.lstrip("/")

    def _find(self, path: str) -> NamespacePath:
        return self._locations.find(self._strip_protocol(path))

    # status

    def created(self, path: str) -> datetime:
        """Return the creation time, by the clock of the creator. The list of namespaces has none."""
        return self._time(path, "created")

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
            f"{path!r} has no URL for readers without credentials: give them credentials for the"
            " namespace, or a copy"
        )

    # changes of names

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        """Make a directory that must be new. Only one of several clients that make it succeeds.

        Raises `AlreadyExists`, `NotADirectory`, and `NotFound` without `create_parents`.
        """
        at = self._find(path)
        at.namespace.make_directory(at.path, exist_ok=False, parents=create_parents)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Make a directory and its missing parents, up to about thirty in one transaction.

        Without `exist_ok`, the directory itself must be new; else this raises `AlreadyExists`.
        """
        self._locations.make_directories(self._strip_protocol(path), exist_ok=exist_ok)

    def rmdir(self, path: str) -> None:
        """Remove an empty directory. Raises `NotADirectory` and `DirectoryNotEmpty`."""
        if self.info(path)["type"] != "directory":
            raise NotADirectory(f"{path!r} is a file, not a directory")
        self._locations.delete(self._strip_protocol(path))

    def rm_file(self, path: str) -> None:
        """Remove a file. Raises `IsADirectory`."""
        if self.info(path)["type"] == "directory":
            raise IsADirectory(f"{path!r} is a directory, not a file")
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
        """Remove files and directories, empty or with their contents.

        Args:
            path: one or more paths, or patterns. Each match is removed in one transaction.
            recursive: whether to remove directories that are not empty.
            maxdepth: remove only up to this depth; a directory with deeper contents raises
                `DirectoryNotEmpty`.
            batch_size: the number of concurrent removals.
        """
        bulk = self._bulk(batch_size)
        if not recursive or maxdepth is not None:
            paths = self.expand_path(path, recursive=recursive, maxdepth=maxdepth)
            bulk.remove(paths, recursive=False)
            return
        tops: set[str] = set()
        for each in self.expand_path(path):
            if not any(each.startswith(f"{top}/") for top in tops):
                tops.add(each)
        bulk.remove(tops, recursive=True)

    def mv(
        self,
        path1: Any,
        path2: Any,
        recursive: bool = False,
        maxdepth: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Rename a file, or a directory with its contents, in one transaction.

        The matches of a pattern and the paths of a list are renamed one by one. A file replaces a file.

        Args:
            path1: the source. With a slash at its end it stands for the contents of the directory: the
                target must then be missing or an empty directory.
            path2: the new path. If it is an existing directory or ends with a slash, the source moves
                into it and keeps its name. Missing parent directories are made first, in a transaction
                of their own.
            recursive, maxdepth: ignored; a directory is always moved with its contents.

        Raises `NotFound`, `DirectoryNotEmpty`, `IsADirectory`, `NotADirectory`, `InvalidPath`, and
        `NotSupported` from one namespace to another.
        """
        for old, new in plan_renames(self, path1, path2):
            source, target = self._find(old), self._find(new)
            if source.namespace is not target.namespace:
                raise NotSupported(
                    f"{old!r} cannot be moved to another namespace in one step: copy it, then remove it"
                )
            self._locations.rename(source, target)

    def touch(self, path: str, truncate: bool = True, **kwargs: Any) -> None:
        """Make an empty file. Without `truncate`, set only the modification time of an existing file."""
        if truncate:
            self.pipe_file(path, b"")
            return
        at = self._find(path)
        try:
            at.namespace.set_attributes(at.path, modified=int(SystemClock().epoch() * 1000))
        except NotFound:
            with contextlib.suppress(AlreadyExists):  # another client has just made it
                self.pipe_file(path, b"", mode="create")
