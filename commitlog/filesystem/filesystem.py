"""`CommitlogFileSystem`: the implementation of the fsspec protocol ``commitlog``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from glob import has_magic
from itertools import groupby
from typing import Any

from fsspec.utils import stringify_path

from commitlog.absence import is_absent
from commitlog.errors import (
    ConfigurationError,
    IsADirectory,
    NotADirectory,
    NotFound,
    NotSupported,
)
from commitlog.filesystem.bulk import Batch, files_at_a_time
from commitlog.filesystem.files import ReadFile, WriteFile
from commitlog.filesystem.layers import layered
from commitlog.filesystem.making import Making
from commitlog.filesystem.places import Mounts, Place, info_of
from commitlog.filesystem.transactions import NamespaceTransaction
from commitlog.namespace import make_directories
from commitlog.urls import parse_table_url

__all__ = ["CommitlogFileSystem"]

#: Options that fsspec passes to every file system, and that have no effect here.
_OF_FSSPEC = frozenset(
    {"asynchronous", "listings_expiry_time", "loop", "max_paths", "use_listings_cache"}
)


class CommitlogFileSystem(Making):
    """All namespaces of one metadata table as a file system. Paths are ``NAMESPACE/DIRECTORY/FILE``.

    Args:
        metadata: the URL of the table: ``dynamodb://table`` or ``sqlite:///file``. The default is the
            environment variable ``COMMITLOG_METADATA``, which each process reads for itself.
        store, commit, leases, grace, stable_paths: see `commitlog.namespaces.mount`. They apply to every
            namespace of the table.
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
    - Nothing is cached.

    See docs/filesystem.md.

    Instances can be pickled, and used after a fork. The pickle and the JSON form contain the arguments
    as they were given, including credentials in a URL; keep credentials in the environment or in a
    profile instead. fsspec gives each thread its own instance. Several threads can share one, except in
    a transaction.

    >>> from commitlog.namespaces import create_namespace
    >>> lake = create_namespace("lake", store="memory://of-fsspec", metadata="memory://of-fsspec")
    >>> fs = CommitlogFileSystem(metadata="memory://of-fsspec")
    >>> fs.pipe("lake/staging/part-0", b"rows")
    >>> fs.mv("lake/staging", "lake/events")
    >>> fs.find("lake")
    ['lake/events/part-0']
    """

    protocol = "commitlog"
    transaction_type = NamespaceTransaction

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
        super().__init__(**storage_options)
        unknown = sorted(set(storage_options) - _OF_FSSPEC)
        if unknown:
            raise ConfigurationError(f"option {unknown[0]!r} is not known to file systems of namespaces")
        self._metadata = metadata
        self._shown = "" if metadata is None else repr(str(parse_table_url(metadata)))
        self._mounts = Mounts(
            metadata=metadata,
            store=store,
            commit=commit,
            leases=leases,
            grace=grace,
            stable_paths=stable_paths,
        )
        if block_size is not None:
            self.blocksize = block_size
        self.batch_size = files_at_a_time(batch_size)

    def __repr__(self) -> str:
        return f"CommitlogFileSystem({self._shown})"

    def close(self) -> None:
        """Close all connections. Later calls open them again when needed. Idempotent."""
        self._mounts.close()

    # content

    def open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        cache_options: dict[str, Any] | None = None,
        compression: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """Open a file, as fsspec does.

        Args:
            path: the path of the file.
            mode: ``r``, ``w`` (replaces a file) or ``x`` (the file must be new), with ``b`` for bytes.
                Missing parent directories are made together with the file. Files are written once, so
                there is no mode for appending.
            block_size: the minimum number of bytes to read.
            cache_options: options of the read cache, which belongs to this file alone.
            compression: a name that fsspec knows, or "infer".
            kwargs: `cache_type`, and ``encoding``, ``errors``, ``newline`` for text.

        Raises `NotFound`, `IsADirectory`, `NotADirectory`, `AlreadyExists`, `NotSupported` for other
        modes of Python, and `ConfigurationError`, which is a `ValueError`, for an invalid mode.
        """
        if not _is_mode(mode):
            raise ConfigurationError(
                f"{mode!r} is no mode to open a file with: there are 'r', 'w', 'x', and 'b' beside them"
            )
        text: dict[str, Any] | None = None
        if "b" not in mode:
            text = {
                name: kwargs.pop(name) for name in ("encoding", "errors", "newline") if name in kwargs
            }
        mode = mode.replace("t", "").replace("b", "") + "b"
        file = super().open(path, mode, block_size=block_size, cache_options=cache_options, **kwargs)
        return layered(file, self._strip_protocol(path), mode, compression, text)

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: dict[str, Any] | None = None,
        cache_type: str = "readahead",
        **kwargs: Any,
    ) -> ReadFile | WriteFile:
        place = self._place(path)
        if mode == "rb":
            opened = place.namespace.open(place.path)
            return ReadFile(
                self,
                path,
                opened,
                info_of(place.namespace.name, opened.status),
                block_size=block_size or self.blocksize,
                cache_type=cache_type,
                cache_options=cache_options,
            )
        if mode not in ("wb", "xb"):
            raise NotSupported(
                f"{path!r} cannot be opened with mode {mode!r}: a file is content that was written once."
                " Write a new file beside it, or write all of it anew"
            )
        return WriteFile(self, path, mode, place, autocommit=autocommit)

    # names

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        """Make a directory that must be new. Only one of several clients that make it succeeds.

        Raises `AlreadyExists`, `NotADirectory`, and `NotFound` without `create_parents`.
        """
        place = self._place(path)
        place.namespace.make_directory(place.path, exist_ok=False, parents=create_parents)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Make a directory and its missing parents, up to about thirty in one transaction.

        Without `exist_ok`, the directory itself must be new; else this raises `AlreadyExists`.
        """
        if exist_ok and not self._strip_protocol(path):
            return
        place = self._place(path)
        make_directories(place.namespace, place.path, exist_ok=exist_ok)

    def rmdir(self, path: str) -> None:
        """Remove an empty directory. Raises `NotADirectory` and `DirectoryNotEmpty`."""
        if self.info(path)["type"] != "directory":
            raise NotADirectory(f"{path!r} is a file, not a directory")
        self._delete(path)

    def rm_file(self, path: str) -> None:
        """Remove a file. Raises `IsADirectory`."""
        if self.info(path)["type"] == "directory":
            raise IsADirectory(f"{path!r} is a directory, not a file")
        self._delete(path)

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
            batch_size: the number of concurrent removals; -1: all, up to 128.
        """
        if not recursive or maxdepth is not None:
            paths = self.expand_path(path, recursive=recursive, maxdepth=maxdepth)
            for _, level in groupby(sorted(paths, key=_depth, reverse=True), key=_depth):
                self._remove(level, batch_size=batch_size)
            return
        gone: set[str] = set()
        for each in self.expand_path(path):
            if not any(each.startswith(f"{above}/") for above in gone):
                gone.add(each)
        self._remove(gone, batch_size=batch_size, recursive=True)

    def _remove(self, paths: Iterable[str], *, batch_size: int | None, recursive: bool = False) -> None:
        batch = Batch(dict.fromkeys(paths), "removed", at_once=self._at_a_time(batch_size))
        batch.run(lambda path, _, told: self._delete(path, recursive=recursive))

    def _delete(self, path: str, *, recursive: bool = False) -> None:
        place = self._place(path)
        place.namespace.delete(place.path, recursive=recursive)

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
        for source, target in self._renames(path1, path2):
            here, there = self._place(source), self._place(target)
            if here.namespace is not there.namespace:
                raise NotSupported(
                    f"{source!r} cannot be moved to another namespace at once: copy it, then remove it"
                )
            _rename(here, there)

    def _renames(self, path1: Any, path2: Any) -> Iterator[tuple[str, str]]:
        """Yield the renames to perform."""
        if isinstance(path1, list) and isinstance(path2, list):
            yield from zip(self._strip_protocol(path1), self._strip_protocol(path2), strict=True)
            return
        source, target = stringify_path(path1), self._strip_protocol(path2)
        if isinstance(source, list) or has_magic(source):
            for each in self.expand_path(source):
                yield each, f"{target}/{each.rpartition('/')[2]}"
            return
        stripped = self._strip_protocol(source)
        if stripped == target:
            return
        into = stringify_path(path2).endswith("/") or self.isdir(target)
        if into and not source.endswith("/"):
            target = f"{target}/{stripped.rpartition('/')[2]}"
        yield stripped, target


def _rename(source: Place, target: Place) -> None:
    """Rename a file or directory. Make missing parent directories of the target first."""
    lake = source.namespace
    try:
        lake.rename(source.path, target.path, overwrite=True)
    except NotFound as error:
        above = target.path.rpartition("/")[0]
        if not is_absent(error) or not above:
            raise
        lake.stat(source.path)  # a missing source must leave no new directories
        make_directories(lake, above)
        lake.rename(source.path, target.path, overwrite=True)


def _depth(path: str) -> int:
    return path.count("/")


def _is_mode(mode: str) -> bool:
    """Return whether `mode` is a valid mode of Python.

    >>> [mode for mode in ("r", "bw", "a+", "rbt", "rw", "zz", "") if _is_mode(mode)]
    ['r', 'bw', 'a+']
    """
    letters = sorted(mode)
    distinct = set(letters)
    return (
        len(letters) == len(distinct)
        and len(distinct & set("rwax")) == 1
        and distinct <= set("rwaxbt+")
        and not distinct >= {"b", "t"}
    )
